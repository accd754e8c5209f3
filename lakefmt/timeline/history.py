"""The archived timeline of both layouts: completed instants that have left the active one, and their bodies (effects).

Layout 2 keeps sorted Parquet files that a manifest names; layout 1 keeps log files (spec 3.11). An index of times and
actions is read first; a body is read when somebody asks for it. Files never change under one name, so what was read of
them is kept by name and size. Whoever needs only the newest snapshot never comes here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt.errors import CorruptFile, InstantNotFound, ObjectNotFound
from lakefmt.formats.parquet import check_row_counts
from lakefmt.storage.api import ObjectStore
from lakefmt.timeline.history_files import check_group, load_manifest, open_archived
from lakefmt.timeline.history_logs import LogArchive, LogEntry
from lakefmt.timeline.instant import Action, Instant, State, comparable_action, instant_file_name
from lakefmt.values import InstantTime, check_instant_time

__all__ = ["History", "HistoryStore"]

#: Hudi merges files until they have 1,000 MiB, and the last one may be of any size below that.
_MAX_FILE_BYTES = 4 << 30
_INDEX_COLUMNS = ("instantTime", "completionTime", "action")

#: Returns the bytes of one body.
_Fetch = Callable[[], bytes]
_Entries = list[tuple[Instant, _Fetch]]
_Deed = tuple[InstantTime, Action]


@dataclass(frozen=True)
class History:
    """Completed instants that were archived, ordered by requested time.

    Example:
        >>> History().instants
        ()
    """

    instants: tuple[Instant, ...] = ()
    _fetch: Mapping[tuple[InstantTime, Action], _Fetch] = field(default_factory=dict, repr=False)

    def holds(self, instant: Instant) -> bool:
        """Return whether the instant was archived."""
        return (instant.time, comparable_action(instant.action)) in self._fetch

    def body(self, instant: Instant) -> bytes:
        """Return the content of the instant's completed file, in either of the forms that commits are stored in.

        Raises:
            InstantNotFound: it is not archived.
            ObjectNotFound: the archive was merged meanwhile; load the history again.
            CorruptFile: the archive is damaged.
        """
        fetch = self._fetch.get((instant.time, comparable_action(instant.action)))
        if fetch is None:
            raise InstantNotFound(f"no instant {instant.time} in the archived timeline")
        return fetch()


class HistoryStore:
    """The archive directory of one table."""

    def __init__(self, store: ObjectStore, directory: str, layout: int) -> None:
        self._store = store
        self._directory = directory
        self._layout = layout
        self._logs = LogArchive(store, directory)
        self._indexes: dict[tuple[str, int], _Entries] = {}

    def load(self) -> History:
        """Return what has been archived until now; empty when there is no archive.

        Raises:
            CorruptFile: a manifest or an archive file is damaged.
            StorageError: the store failed.
        """
        try:
            return self._load()
        except ObjectNotFound:
            # The archive was merged between its listing and its reading: the new files hold the same.
            return self._load()

    def find(self, instants: Iterable[Instant]) -> list[Instant]:
        """Return those instants that the archive has; only files that may hold one of them are looked into.

        Of a log archive those are the newest ones: an archive step that died left its instants in the last file.

        Raises:
            CorruptFile: a manifest or an archive file is damaged.
            StorageError: the store failed.
        """
        wanted = {(i.time, comparable_action(i.action)): i for i in instants}
        try:
            held = self._held_of_sorted(wanted) if self._layout == 2 else self._held_of_logs(wanted)
        except ObjectNotFound:
            held = self._held_of_sorted(wanted) if self._layout == 2 else self._held_of_logs(wanted)
        return [instant for key, instant in wanted.items() if key in held]

    def _held_of_sorted(self, wanted: Mapping[_Deed, Instant]) -> set[_Deed]:
        times = sorted(time for time, _ in wanted)
        held: set[_Deed] = set()
        for file in load_manifest(self._store, self._directory)[1]:
            low, high = sorted((file.first, file.last))
            if bisect_left(times, low) < bisect_right(times, high):
                held |= self._deeds(file.name, file.size) & wanted.keys()
        return held

    def _held_of_logs(self, wanted: Mapping[_Deed, Instant]) -> set[_Deed]:
        held: set[_Deed] = set()
        for name, size in reversed(self._logs.files()):
            here = self._deeds(name, size) & wanted.keys()
            if not here:
                break
            held |= here
        return held

    def _deeds(self, name: str, size: int) -> set[_Deed]:
        key = (name, size)
        if key not in self._indexes:
            self._indexes[key] = self._index_sorted_file(*key) if self._layout == 2 else self._index_log(*key)
        return {(i.time, comparable_action(i.action)) for i, _ in self._indexes[key]}

    def _load(self) -> History:
        files = self._sorted_files() if self._layout == 2 else self._logs.files()
        read = self._index_sorted_file if self._layout == 2 else self._index_log
        kept = {key: self._indexes.get(key) or read(*key) for key in files}
        self._indexes = kept
        found = {
            (instant.time, comparable_action(instant.action)): (instant, fetch)
            for entries in kept.values()
            for instant, fetch in entries
        }
        ordered = sorted((instant for instant, _ in found.values()), key=lambda i: (i.time, i.action.value))
        return History(tuple(ordered), {key: fetch for key, (_, fetch) in found.items()})

    def _index_log(self, name: str, size: int) -> _Entries:
        completed = (entry for entry in self._logs.entries(name, size) if entry.instant.is_completed)
        return [(entry.instant, _LoggedBody(self._logs, entry)) for entry in completed]

    def path(self, name: str) -> str:
        """Return a file's name relative to the table."""
        return f"{self._directory}/{name}"

    # ------------------------------------------------------------------------------------------------- layout 2: sorted

    def _sorted_files(self) -> list[tuple[str, int]]:
        return [(file.name, file.size) for file in load_manifest(self._store, self._directory)[1]]

    def _index_sorted_file(self, name: str, size: int) -> _Entries:
        if size > _MAX_FILE_BYTES:
            raise CorruptFile(f"{self._directory}/{name} has {size:,} bytes; at most {_MAX_FILE_BYTES:,} are read")
        with open_archived(self._store, self.path(name)) as source, pq.ParquetFile(source) as file:
            self._check_sorted_file(file, name, size)
            groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
            table = file.read(columns=list(_INDEX_COLUMNS))
            # One row per archived instant, three short texts each.
            rows = list(zip(*(table.column(each).to_numpy() for each in _INDEX_COLUMNS), strict=True))
        places = [(group, row) for group, count in enumerate(groups) for row in range(count)]
        if len(places) != len(rows):
            raise CorruptFile(f"{self._directory}/{name} announces {len(places):,} rows and has {len(rows):,}")
        column = _LastColumn(self, name)
        entries: _Entries = []
        for (time, completion, action), (group, at) in zip(rows, places, strict=True):
            instant = self._instant(time, action, completion, name)
            if instant is not None:
                entries.append((instant, _SortedBody(column, group, at, instant)))
        return entries

    def _check_sorted_file(self, file: pq.ParquetFile, name: str, size: int) -> None:
        schema, count = file.schema_arrow, file.metadata.num_rows
        wrong = [each for each in _INDEX_COLUMNS if each not in schema.names or schema.field(each).type != pa.string()]
        if "metadata" not in schema.names or schema.field("metadata").type != pa.binary():
            wrong.append("metadata")
        if wrong:
            raise CorruptFile(f"{self._directory}/{name} is no archive: {', '.join(wrong)} missing or of another type")
        check_row_counts(file.metadata)
        # Each row has a time of its own, so it takes a byte at least.
        if not 0 <= count <= size:
            raise CorruptFile(f"{self._directory}/{name} announces {count:,} rows in {size:,} bytes")

    def _instant(self, time: object, action: object, completion: object, name: str) -> Instant | None:
        """Return a completed instant, None for an action that lakefmt does not know."""
        known = _ACTIONS.get(action) if isinstance(action, str) else None
        if known is None:
            return None
        try:
            start = check_instant_time(time if isinstance(time, str) else "")
            done = check_instant_time(completion if isinstance(completion, str) else "")
        except ValueError:
            raise CorruptFile(
                f"{self._directory}/{name} holds a {known.value} at {time!r:.40}, completed at {completion!r:.40}: "
                "these are no instant times"
            ) from None
        file_name = instant_file_name(start, known, State.COMPLETED, 2, done)
        return Instant(start, known, State.COMPLETED, done, file_name)

    def read_bodies(self, name: str, group: int) -> pa.ChunkedArray:
        """Return the bodies in one row group of a sorted file."""
        with open_archived(self._store, self.path(name)) as source, pq.ParquetFile(source) as file:
            check_group(file, group, self.path(name))
            return file.read_row_group(group, columns=["metadata"]).column(0)


_ACTIONS = {action.value: action for action in Action}


class _LastColumn:
    """The bodies of the row group that was read last: bodies are asked for in order."""

    def __init__(self, store: HistoryStore, name: str) -> None:
        self._store = store
        self._name = name
        self._last: tuple[int, pa.ChunkedArray] | None = None

    @property
    def path(self) -> str:
        return self._store.path(self._name)

    def value(self, group: int, row: int) -> bytes | None:
        last = self._last
        if last is None or last[0] != group:
            last = self._last = (group, self._store.read_bodies(self._name, group))
        if row >= len(last[1]):
            raise CorruptFile(f"{self.path} has content for {len(last[1]):,} of its instants only")
        found = last[1][row].as_buffer()
        return None if found is None else bytes(found)


@dataclass(frozen=True)
class _SortedBody:
    """Where the body of an instant is in a sorted file."""

    column: _LastColumn
    group: int
    row: int
    instant: Instant

    def __call__(self) -> bytes:
        found = self.column.value(self.group, self.row)
        if not found and self.instant.action is not Action.CLEAN:
            raise CorruptFile(f"{self.column.path} has no content for instant {self.instant}")
        return found or b""


@dataclass(frozen=True)
class _LoggedBody:
    """Where the body of an instant is in an archive of layout 1."""

    logs: LogArchive
    entry: LogEntry

    def __call__(self) -> bytes:
        found, instant = self.logs.body(self.entry), self.entry.instant
        if not found and instant.action is not Action.CLEAN:
            raise CorruptFile(f"{self.logs.path(self.entry.name)} has no content for instant {instant}")
        return found
