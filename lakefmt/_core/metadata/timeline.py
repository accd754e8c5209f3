"""The timeline of the metadata table: its instants, which of them count, and how it compares with that of the data (effects on the store).

Its files are named as those of any table, with two differences: the instants of initialisations begin with fourteen
zeros, and in version 6 an instant may have further digits, three for each service (docs/format.md, Metadata table).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property, lru_cache

from lakefmt._core.data_classes import dataclass
from lakefmt._core.metadata.layout import METADATA_DIRECTORY, WITHOUT_FILES, is_initial_of_six
from lakefmt._core.storage.api import ObjectInfo, ObjectStore, PutOutcome
from lakefmt._core.storage.table_directory import TableDirectory, list_names
from lakefmt._core.timeline.instant import Action, Instant, State, completed_action
from lakefmt._core.timeline.store import MAX_BODY_BYTES, put_if_absent_confirmed
from lakefmt._core.timeline.timeline import Timeline, build_timeline
from lakefmt._core.values import InstantTime, TableVersion
from lakefmt.errors import StateError

__all__ = [
    "INITIALISATION",
    "INSTANT_DIGITS",
    "MetadataInstant",
    "MetadataTimeline",
    "MetadataTimelineStore",
    "knows_all",
    "records_all",
    "unseen_commits",
]

_NAME = re.compile(r"(\d{14,26})(?:_(\d{14,20}))?\.([a-z]+)(?:\.(requested|inflight))?", re.ASCII)
_ACTIONS = {action.value: action for action in Action}
_LOG_COMPACTION = f".{Action.LOG_COMPACTION.value}."
#: How the instants of initialisations begin.
INITIALISATION = "0" * 14
#: Of an instant time; version 6 appends digits to those of services.
INSTANT_DIGITS = 17


@dataclass(frozen=True, slots=True)
class MetadataInstant:
    """One action on the metadata table at one time, in its highest state.

    Attributes:
        time: the requested time, 14 to 26 digits.
        action: what it does; a completed compaction is a commit.
        state: how far it has come.
        completion: the completion time; the requested time in layout 1; None while it is pending.
        file_names: its files on the timeline.
    """

    time: str
    action: Action
    state: State
    completion: str | None
    file_names: tuple[str, ...]

    @property
    def is_initialisation(self) -> bool:
        """Whether it made a partition of the metadata table."""
        return self.time.startswith(INITIALISATION)

    @property
    def is_log_compaction(self) -> bool:
        """Whether it made one log of several: its pending files say so, the completed one is that of a deltacommit."""
        return any(_LOG_COMPACTION in name for name in self.file_names)


@dataclass(frozen=True)
class MetadataTimeline:
    """The instants of the metadata table, by requested time.

    Attributes:
        instants: one for each time and action.
    """

    instants: tuple[MetadataInstant, ...]

    def completed(self, *actions: Action) -> tuple[MetadataInstant, ...]:
        """Return the completed instants of some actions, of all without any, by requested time."""
        return tuple(
            instant
            for instant in self.instants
            if instant.state is State.COMPLETED and (not actions or instant.action in actions)
        )

    def of_time(self, time: str) -> tuple[MetadataInstant, ...]:
        """Return the instants of a requested time, pending ones included."""
        return tuple(instant for instant in self.instants if instant.time == time)

    def log_compactions_after(self, time: str) -> tuple[str, ...]:
        """Return the log compactions that may hold what an instant of the data table wrote, the newest first.

        Parameters:
            time: the instant's requested time.
        """
        if all(each.completion is None for each in self.of_time(time)):
            return ()
        deltas = self.completed(Action.DELTA_COMMIT)
        later = [each.time for each in deltas if each.is_log_compaction and each.time > time]
        return tuple(reversed(later))

    @cached_property
    def _first_active(self) -> str:
        regular = (each.time for each in self.completed() if not each.is_initialisation)
        return min(regular, default="")

    @cached_property
    def _completions(self) -> dict[str, str | None]:
        return {each.time: each.completion for each in self.instants}

    def completion_of(self, time: str) -> str | None:
        """Return when the instant that wrote a file was complete; None when it is not.

        An instant that is older than the timeline is archived. One that is not on it and is not older was never complete:
        a writer that had lost the lock wrote the file.

        Parameters:
            time: its requested time.
        """
        if time in self._completions:
            return self._completions[time]
        return time if time < self._first_active or time.startswith(INITIALISATION) else None

    @property
    def highest_time(self) -> str:
        """The largest requested or completion time; the empty text without instants."""
        return max((time for instant in self.instants for time in (instant.time, instant.completion or "")), default="")

    @property
    def last_compaction(self) -> MetadataInstant | None:
        """The completed compaction with the largest time."""
        return max(self.completed(Action.COMMIT), key=lambda instant: instant.time, default=None)

    @property
    def initialisations(self) -> tuple[MetadataInstant, ...]:
        """The completed instants that made partitions."""
        return tuple(instant for instant in self.completed(Action.DELTA_COMMIT) if instant.is_initialisation)


def parse_timeline_files(listed: Iterable[ObjectInfo], layout: int) -> Timeline:
    """Return the timeline of a directory with all its files, as the archive of a timeline needs it. Pure.

    Parameters:
        listed: the files of the directory; others are ignored.
        layout: the timeline layout, 1 or 2.
    """
    files = []
    for each in listed:
        name = each.name.rpartition("/")[2]
        parsed = _parse_name(name, layout)
        if parsed is not None:
            time, action, state, completion = parsed
            done = None if completion is None else InstantTime(completion)
            files.append(Instant(InstantTime(time), action, state, done, name, each.size, each.modified))
    return build_timeline(files, layout)


@lru_cache(maxsize=1 << 14)
def _parse_name(name: str, layout: int) -> tuple[str, Action, State, str | None] | None:
    """Return time, action, state and completion time of a file name; None for other names."""
    match = _NAME.fullmatch(name)
    action = None if match is None else _ACTIONS.get(match[3])
    if match is None or action is None:
        return None
    state = State(match[4]) if match[4] else State.COMPLETED
    if (state is State.COMPLETED and layout == 2) != (match[2] is not None):
        return None
    return match[1], action, state, match[2]


def parse_timeline(names: Iterable[str], layout: int) -> MetadataTimeline:
    """Return the timeline of a directory's file names; other names are ignored.

    Parameters:
        names: file names without directory.
        layout: the timeline layout, 1 or 2.

    Example:
        >>> names = ["00000000000000000.deltacommit.requested", "00000000000000000_20260101000000000.deltacommit"]
        >>> [one.completion for one in parse_timeline(names, 2).instants]
        ['20260101000000000']
    """
    files: dict[tuple[str, Action], list[str]] = {}
    best: dict[tuple[str, Action], tuple[State, str | None, Action]] = {}
    for name in sorted(names):
        parsed = _parse_name(name, layout)
        if parsed is None:
            continue
        time, action, state, completion = parsed
        key = (time, completed_action(action))
        files.setdefault(key, []).append(name)
        highest = best.get(key)
        if highest is None or state.rank > highest[0].rank:
            best[key] = (state, (completion or time) if state is State.COMPLETED else None, action)
    instants = [
        MetadataInstant(time, action, state, completion, tuple(files[time, key]))
        for (time, key), (state, completion, action) in best.items()
    ]
    return MetadataTimeline(tuple(sorted(instants, key=lambda instant: instant.time)))


# Three questions to both timelines. The first two ask whether the metadata table has what the data table has, for opposite ends: a
# listing that may not be of one moment is believed only where all is there for certain, and damage is told only where something is
# missing for certain. The third asks the reverse.


def records_all(timeline: Timeline, metadata: MetadataTimeline) -> bool:
    """Return whether a metadata table has recorded every completed instant that changes files: in doubt it has not. Pure.

    Parameters:
        timeline: of the data table.
        metadata: of the metadata table.
    """
    regular = [each.time for each in metadata.completed() if not each.is_initialisation]
    recorded = frozenset(regular)
    made = min((each.completion or "" for each in metadata.initialisations), default="")
    # What is older was archived; nothing is before a compaction was.
    first = min(regular, default="") if metadata.last_compaction is not None else ""
    return all(
        each.time in recorded or each.time < first or each.order_time <= made
        for each in timeline.completed
        if each.action not in WITHOUT_FILES
    )


def unseen_commits(version: TableVersion, data_timeline: Timeline, timeline: Timeline) -> list[InstantTime]:
    """Return the commits of the data table that the metadata table did not record: in doubt it has recorded them. Pure.

    Commits that completed before the metadata table was made are in its first state.

    Parameters:
        version: of the metadata table.
        data_timeline: loaded before it.
        timeline: of the metadata table.
    """
    recorded = {instant.time[:INSTANT_DIGITS] for instant in timeline.commits}
    first = [each for each in timeline.commits if version is not TableVersion.SIX and each.time == "0" * INSTANT_DIGITS]
    if version is TableVersion.SIX:
        # A compaction that was planned before the metadata table was made has an earlier time than its beginning.
        made = [each.time for each in timeline.commits if is_initial_of_six(each.time)]
        began = min(made or (each.time for each in timeline.commits), default="")[:INSTANT_DIGITS]
    else:
        began = min((str(each.completion or "") for each in first), default="")
    archived = not first and not any(each.time.startswith(INITIALISATION) for each in timeline.commits)
    oldest = min(recorded, default="") if archived else ""
    return [
        each.time
        for each in data_timeline.commits
        if each.time[:INSTANT_DIGITS] not in recorded
        and each.time >= oldest
        and (each.time if data_timeline.layout == 1 else str(each.completion)) > began
    ]


def knows_all(data: Timeline, loaded: MetadataTimeline) -> bool:
    """Return whether a data table's timeline, loaded earlier, tells of a metadata table's instants what one of now would. Pure.

    What is older than the data table's timeline was archived there; a service has the time of an instant that it follows, or
    one of its own.
    """
    completed, first, until = {each.time for each in data.completed}, data.first_active or "", data.highest_time or ""
    return all(
        each.is_initialisation
        or each.time in completed
        or each.time < first
        or (each.time[:INSTANT_DIGITS] <= until and (each.action is not Action.DELTA_COMMIT or each.is_log_compaction))
        for each in loaded.completed()
    )


class MetadataTimelineStore:
    """The timeline directory of the metadata table of one table.

    Parameters:
        store: the data table's store.
        version: the table version.
        durable: whether a completed instant must reach the disk before a call returns.
    """

    def __init__(self, store: ObjectStore, version: TableVersion, *, durable: bool) -> None:
        self._store = store
        self.layout = version.layout
        self._durable = durable
        below = ".hoodie" if version.layout == 1 else ".hoodie/timeline"
        self.directory = f"{METADATA_DIRECTORY}/{below}"

    def load(self, directory: TableDirectory | None = None) -> MetadataTimeline:
        """Return the timeline as it is now, or as it was when `directory` was listed."""
        return parse_timeline(list_names(self._store, self.directory, directory), self.layout)

    def load_files(self) -> Timeline:
        """Return the timeline with all its files."""
        return parse_timeline_files(self._store.list(self.directory, recursive=False), self.layout)

    @property
    def archive_directory(self) -> str:
        """Where archived instants are."""
        return f"{METADATA_DIRECTORY}/.hoodie/archived" if self.layout == 1 else f"{self.directory}/history"

    def remove_files(self, files: Iterable[Instant]) -> None:
        """Remove files of the timeline, in this order."""
        self._store.delete(f"{self.directory}/{file.file_name}" for file in files)

    def read_body(self, name: str) -> bytes:
        """Return the content of a file of the timeline.

        Raises:
            ObjectNotFound: the file is gone.
        """
        return self._store.read(f"{self.directory}/{name}", MAX_BODY_BYTES)

    def request(self, time: str, action: Action, body: bytes = b"") -> None:
        """Put the requested and the inflight file of an instant; files that are there already stay.

        Parameters:
            time: the requested time.
            action: what it does.
            body: content of the requested file.
        """
        for state, content in ((State.REQUESTED, body), (State.INFLIGHT, b"")):
            name = f"{self.directory}/{time}.{action.value}.{state.value}"
            put_if_absent_confirmed(self._store, name, content, durable=False)

    def put_completed(self, time: str, action: Action, completion: str, body: bytes) -> None:
        """Make an instant complete.

        Parameters:
            time: the requested time.
            action: what it did.
            completion: the completion time; not stored in layout 1.
            body: content of the completed file.

        Raises:
            StateError: it was completed before, with another content.
        """
        done = "" if self.layout == 1 else f"_{completion}"
        name = f"{self.directory}/{time}{done}.{completed_action(action).value}"
        if put_if_absent_confirmed(self._store, name, body, durable=self._durable) is PutOutcome.REFUSED:
            raise StateError(f"{name} exists already: instant {time} of the metadata table was completed before")

    def reopen(self, instants: Iterable[MetadataInstant]) -> None:
        """Remove the completed files of instants, which are pending from then on."""
        self._store_delete(name for instant in instants for name in instant.file_names if not _is_pending_name(name))

    def remove_pending(self, instants: Iterable[MetadataInstant]) -> None:
        """Remove the requested and inflight files of instants."""
        self._store_delete(name for instant in instants for name in instant.file_names if _is_pending_name(name))

    def _store_delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._store.delete([f"{self.directory}/{name}"])


def _is_pending_name(name: str) -> bool:
    return name.endswith((".requested", ".inflight"))
