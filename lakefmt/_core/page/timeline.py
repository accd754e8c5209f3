"""What the page says of timelines and instants, as JSON values; bodies are read for what is shown only."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, tzinfo
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.drawing import (
    LANES,
    Bar,
    CountColumn,
    Picture,
    TimelineSpan,
    drawn_kind,
    legend_of,
    timeline_picture,
)
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.page.tables import PageTable
from lakefmt._core.read.stats import EntryBuilder, TimelineEntry
from lakefmt._core.timeline.archive import History, HistoryStore, numbers_of_times
from lakefmt._core.timeline.commit import SCHEMA_KEY, STREAM_PREFIX, TXN_PREFIX, CommitMetadata
from lakefmt._core.timeline.instant import (
    COMMIT_ACTIONS,
    Action,
    Instant,
    State,
    format_instant_time,
    parse_instant_time,
)
from lakefmt._core.timeline.lsm_timeline import HistoryFile
from lakefmt._core.timeline.metadata_codec import body_kind, decode_body
from lakefmt._core.values import size_text
from lakefmt.errors import InstantNotFound, InvalidInputError, LakefmtError, ObjectNotFound

__all__ = [
    "MOST_BARS",
    "InstantList",
    "TimelineQuery",
    "commit_facts",
    "entry_facts",
    "instant_facts",
    "label_facts",
    "legend_facts",
    "list_instants",
    "timeline_facts",
    "timeline_svg",
    "zone_of",
]

Facts = dict[str, Any]
Numbers = npt.NDArray[np.int64]

#: Instants that are drawn one by one; of more only their number per column of time.
MOST_BARS: Final = 240
_COLUMN_PIXELS: Final = 5
#: Bodies are read for so long per picture; what is left is drawn without its operation, and the page asks again.
_BODY_SECONDS: Final = 0.03
#: How long a pending instant counts as it was seen: of many dead writers each costs some requests.
_PENDING_SECONDS: Final = 5.0
#: By how much the clocks of a writer and of the store may differ, in seconds.
_MOST_SKEW: Final = 3600.0
#: Archived instants that are held as such: of more their times and actions are, in nine bytes each, and a part is read anew.
_MOST_ARCHIVED: Final = 5_000
_TIME_DIGITS: Final = 17
_LAST_TIME: Final = 10**_TIME_DIGITS - 1
#: The first and the last day that a moment may be of, in epoch seconds: years of four digits, whatever the zone.
_FIRST_MOMENT: Final = -30_000_000_000.0
_LAST_MOMENT: Final = 253_402_000_000.0
_ACTION_NAMES: Final = tuple(action.value for action in Action)
_MOST_ENTRIES: Final = 20_000
#: How the names of what HTTP loads note in commits begin: label, database, transaction.
_LOAD_PREFIX: Final = "lakefmt.load."
_MOST_TEXT: Final = 4096
_MOST_BODY_TEXT: Final = 64 << 10
_MOST_PARTITIONS: Final = 400
_MOST_FILES: Final = 400


@dataclass(frozen=True, slots=True)
class TimelineQuery:
    """What part of a timeline is asked for.

    Attributes:
        start: epoch seconds; None: the first instant.
        end: epoch seconds; None: the last one.
        width: of the picture in CSS pixels.
        archived: with the archived timeline.
        marks: instants that are marked, two at most.
    """

    start: float | None = None
    end: float | None = None
    width: int = 960
    archived: bool = False
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Moments:
    """The instants of a timeline with their moments, by request."""

    instants: tuple[Instant, ...]
    starts: tuple[float, ...]
    ends: tuple[float | None, ...]
    archived: frozenset[str]
    zone: tzinfo


def zone_of(table_at: TableAt) -> tzinfo:
    """Return the zone of a table's instants; of a table without one that of this machine."""
    return table_at.reading_zone() or datetime.now().astimezone().tzinfo or UTC


class _Archive:
    """The archived timeline of a table: it holds the time and action of every instant, and reads instants for a part at a time."""

    def __init__(self, table_at: TableAt) -> None:
        self.key = _archive_key(table_at)
        self._store = HistoryStore(table_at.client.store, *self.key)
        self._numbers: dict[HistoryFile, tuple[Numbers, Numbers]] = {}

    def look(self) -> None:
        """Read which files there are, and the times of those that are new."""
        known, files = self._numbers, self._store.files()
        if files != list(known):
            read = {file: known.get(file) or self._read(file) for file in files}
            # An archive step that died wrote its instants again into the next log.
            self._numbers = read if self.key[1] == 2 else _without_repeated(read)

    def _read(self, file: HistoryFile) -> tuple[Numbers, Numbers]:
        table = self._store.times(file)
        times = numbers_of_times(table.column("instantTime")).to_numpy()
        codes = pc.fill_null(pc.index_in(table.column("action"), pa.array(_ACTION_NAMES)), 0).to_numpy()
        order = np.argsort(times, kind="stable")
        return times[order], codes[order].astype(np.int8)

    @property
    def is_large(self) -> bool:
        """Whether it has too many instants to hold all of them."""
        return self.total > _MOST_ARCHIVED

    @property
    def total(self) -> int:
        """How many instants there are."""
        return sum(len(times) for times, _ in self._numbers.values())

    @property
    def counts(self) -> dict[str, int]:
        """How many instants each action has."""
        codes = np.concatenate([np.empty(0, np.int8), *(codes for _, codes in self._numbers.values())])
        counts = np.bincount(codes, minlength=len(_ACTION_NAMES))
        return {name: int(count) for name, count in zip(_ACTION_NAMES, counts, strict=True) if count}

    def times(self, lower: int = 0, upper: int = _LAST_TIME, action: str = "") -> Numbers:
        """Return the times of all instants between two times, in order."""
        parts = [np.empty(0, np.int64)]
        for times, codes in self._numbers.values():
            first, last = np.searchsorted(times, lower), np.searchsorted(times, upper, "right")
            selected_times = times[first:last]
            parts.append(selected_times if not action else selected_times[codes[first:last] == _code(action)])
        return np.sort(np.concatenate(parts))

    def columns(self, edges: Sequence[int]) -> dict[tuple[str, int], int]:
        """Return action and number of the column → how many instants it has; a column begins at its edge and ends before the next."""
        bounds = np.maximum.accumulate(np.array(edges, np.int64))
        sums: dict[tuple[str, int], int] = {}
        for times, codes in self._numbers.values():
            for code in np.unique(codes):
                counts = np.diff(np.searchsorted(times[codes == code], bounds))
                for column in np.flatnonzero(counts):
                    key = (_ACTION_NAMES[code], int(column))
                    sums[key] = sums.get(key, 0) + int(counts[column])
        return sums

    def between(self, table_at: TableAt, lower: int, upper: int) -> TableAt:
        """Return the table with the archived instants between two times."""
        try:
            history = self._load(lower, upper)
        except ObjectNotFound:
            self.look()  # the archive was merged meanwhile
            history = self._load(lower, upper)
        timeline = table_at.timeline.with_history(history.instants)
        return replace(table_at, state=replace(table_at.state, timeline=timeline, history=history))

    def _load(self, lower: int, upper: int) -> History:
        files = [
            file
            for file, (times, _) in self._numbers.items()
            if np.searchsorted(times, lower) < np.searchsorted(times, upper, "right")
        ]
        return self._store.load_between(files, lower, upper)


def _without_repeated(
    files: Mapping[HistoryFile, tuple[Numbers, Numbers]],
) -> dict[HistoryFile, tuple[Numbers, Numbers]]:
    """Return the times and actions of files without those that a later one has, too."""
    remaining: dict[HistoryFile, tuple[Numbers, Numbers]] = {}
    later = np.empty(0, np.int64)
    for file in reversed(list(files)):
        times, codes = files[file]
        keys, indices = np.unique(times * len(_ACTION_NAMES) + codes, return_index=True)
        indices = indices[~np.isin(keys, later)]
        remaining[file] = times[indices], codes[indices]
        later = np.concatenate([later, keys])
    return {file: remaining[file] for file in files}


def _archive_key(table_at: TableAt) -> tuple[str, int]:
    return table_at.config.history_directory, table_at.config.version.layout


def _code(action: str) -> int:
    return _ACTION_NAMES.index(action) if action in _ACTION_NAMES else -1


def _large_archive(table: PageTable, table_at: TableAt) -> _Archive | None:
    """Return the archive of a table if it has too many instants to hold all of them.

    Raises:
        LakefmtError: it cannot be read.
    """
    if not table_at.has_history:
        return None
    archive: _Archive | None = table.remembered.get("archive")
    if archive is None or archive.key != _archive_key(table_at):  # an upgrade makes another one
        archive = table.remembered["archive"] = _Archive(table_at)
    with table.alone():
        archive.look()
    return archive if archive.is_large else None


def _number(at: float, zone: tzinfo) -> int:
    """Return a moment as an instant time of 17 digits."""
    moment = datetime.fromtimestamp(min(max(at, _FIRST_MOMENT), _LAST_MOMENT), UTC).astimezone(zone)
    return int(format_instant_time(moment).ljust(_TIME_DIGITS, "0"))


def _moments(table: PageTable, *, archived: bool) -> tuple[TableAt, _Moments]:
    """Return the table as it is, with the moments of its instants; they are computed once per state."""
    table_at = table.at()
    return _moments_of(table, table_at.with_history() if archived else table_at)


def _moments_of(table: PageTable, table_at: TableAt) -> tuple[TableAt, _Moments]:
    timeline = table_at.timeline
    old = timeline.archived
    ends = (old[0].time, old[-1].time) if old else ()
    key = (timeline.highest_time, len(timeline.instants), len(timeline.pending), len(old), ends)
    name = "moments+" if old else "moments"
    known = table.remembered.get(name)
    if known is None or known[0] != key:
        epochs: dict[str, float] = table.remembered.setdefault("epochs", {})
        if len(epochs) > 2 * _MOST_ARCHIVED:
            epochs.clear()
        known = (key, _computed_moments(table_at, epochs))
        table.remembered[name] = known
    return table_at, known[1]


def _computed_moments(table_at: TableAt, epochs: dict[str, float]) -> _Moments:
    timeline, zone = table_at.timeline, zone_of(table_at)

    def epoch(time: str) -> float:
        moment = epochs.get(time)
        if moment is None:
            moment = epochs[time] = _epoch(time, zone)
        return moment

    instants = tuple(sorted((*timeline.archived, *timeline.instants), key=attrgetter("time")))
    ends = tuple(None if i.completion is None else epoch(i.completion) for i in instants)
    archived = frozenset(str(i.time) for i in timeline.archived)
    return _Moments(instants, tuple(epoch(i.time) for i in instants), ends, archived, zone)


def _epoch(time: str, zone: tzinfo) -> float:
    try:
        return parse_instant_time(time, zone).timestamp()
    except (InvalidInputError, ValueError, OverflowError):
        return 0.0  # digits that are no date: it is drawn at the beginning, and named as it is


def timeline_facts(table: PageTable, query: TimelineQuery) -> Facts:
    """Return a part of a timeline: its instants one by one, or their numbers by columns of time where there are too many.

    Raises:
        LakefmtError: the table cannot be read.
    """
    archive = _large_archive(table, table.at()) if query.archived else None
    table_at, moments = _moments(table, archived=query.archived and archive is None)
    counts, zone = _counts(moments.instants), moments.zone
    first_start = moments.starts[0] if moments.starts else None
    if archive is not None:
        first_start = min(_epoch(str(archive.times()[0]), zone), *moments.starts[:1])
        for action, count in archive.counts.items():
            counts[action] = counts.get(action, 0) + count
    start, end = _window(moments, first_start, query)
    last_end, num_old = _last(moments), 0
    if archive is not None:
        num_old = len(archive.times(_number(start, zone), _number(end, zone)))
        if num_old <= MOST_BARS:
            table_at, moments, num_old = *_near(table, table_at, archive, start, end), 0
    first, last = _inside(moments, start, end)
    indices = range(first, last)
    facts: Facts = {
        "start": start,
        "end": end,
        "zone": str(moments.zone),
        "total": sum(counts.values()),
        "shown": len(indices) + num_old,
        "archived": query.archived,
        "has_archive": table_at.has_history,
        "first": first_start,
        "last": last_end,
        "counts": counts,
        "instants": [],
        "columns": [],
        "complete": True,
    }
    if len(indices) + num_old > MOST_BARS:
        facts["columns"] = _columns(moments, indices, (start, end), query.width, archive if num_old else None)
    else:
        entries, facts["complete"] = _entries(table, table_at, moments, indices)
        facts["instants"] = entries
    facts["marks"] = [
        {"time": time, "at": moments.starts[index]}
        for time in query.marks
        if (index := _index_of(moments, time)) is not None
    ]
    return facts


def _last(moments: _Moments) -> float | None:
    return max((*moments.starts[-1:], *(end for end in moments.ends if end is not None)), default=None)


def _counts(instants: Iterable[Instant]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for instant in instants:
        name = instant.action.value if instant.is_completed else f"{instant.action.value} {instant.state.value}"
        counts[name] = counts.get(name, 0) + 1
    return counts


def _window(moments: _Moments, first: float | None, query: TimelineQuery) -> tuple[float, float]:
    last = _last(moments)
    if last is None or first is None:
        return query.start or 0.0, query.end or 1.0
    duration = max(last - first, 1.0)
    start = first - duration * 0.02 if query.start is None else query.start
    end = last + duration * 0.02 if query.end is None else query.end
    return start, max(end, start + 0.01)


def _inside(moments: _Moments, start: float, end: float) -> tuple[int, int]:
    """Return the instants that a window shows, as a range: those requested in it, and those that lasted into it."""
    first, last = bisect_left(moments.starts, start), bisect_right(moments.starts, end)
    # Few are at work at a time: it is enough to look at some before.
    while first > 0 and first > last - MOST_BARS and (moments.ends[first - 1] or 0.0) >= start:
        first -= 1
    return first, last


def _index_of(moments: _Moments, time: str) -> int | None:
    return next((index for index, instant in enumerate(moments.instants) if instant.time == time), None)


def _near(table: PageTable, table_at: TableAt, archive: _Archive, start: float, end: float) -> tuple[TableAt, _Moments]:
    """Return the table with the archived instants of a window, and some before it: what was requested then may last into it."""
    lower, upper = (_number(at, zone_of(table_at)) for at in (start, end))
    before = archive.times(upper=lower)[-MOST_BARS:]
    return _moments_of(table, archive.between(table_at, int(before[0]) if len(before) else lower, upper))


def _columns(
    moments: _Moments, indices: range, window: tuple[float, float], width: int, archive: _Archive | None
) -> list[Facts]:
    start, end = window
    count = max(1, (width - 120) // _COLUMN_PIXELS)
    step = (end - start) / count
    edges = [_number(start + index * step, moments.zone) for index in range(count + 1)]
    numbers = {} if archive is None else archive.columns(edges)
    for index in indices:
        column = min(count - 1, max(0, int((moments.starts[index] - start) / step)))
        key = (moments.instants[index].action.value, column)
        numbers[key] = numbers.get(key, 0) + 1
    return [
        {"action": action, "start": start + column * step, "end": start + (column + 1) * step, "count": number}
        for (action, column), number in sorted(numbers.items())
    ]


def _entries(
    table: PageTable, table_at: TableAt, moments: _Moments, indices: Iterable[int]
) -> tuple[list[Facts], bool]:
    """Return the entries of instants; newest bodies are read first, for a while. The second value: all were read."""
    builder, clock = EntryBuilder(table_at), table_at.client.time_source
    until = clock.monotonic() + _BODY_SECONDS
    entries: list[Facts] = []
    complete = True
    for index in reversed(list(indices)):
        instant = moments.instants[index]
        archived = str(instant.time) in moments.archived
        facts = _known_entry(table, instant, archived, clock.monotonic())
        if facts is None and clock.monotonic() < until:
            facts = _read_entry(builder, table_at, instant, archived, table)
            _keep_entry(table, instant, archived, facts, clock.monotonic())
        if facts is None:
            complete = False
            facts = entry_facts(_plain_entry(instant))
            facts["known"] = False
        entries.append(facts | _phase_facts(moments, index, facts))
    return entries[::-1], complete


def _known_entry(table: PageTable, instant: Instant, archived: bool, now: float) -> Facts | None:
    """Return the entry that was read before: a completed instant stays as it is, a pending one for a moment."""
    known: dict[tuple[str, bool], tuple[float, Facts]] = table.remembered.setdefault("entries", {})
    cached = known.get((_entry_name(instant), archived))
    if cached is None or (not instant.is_completed and now - cached[0] > _PENDING_SECONDS):
        return None
    return cached[1]


def _keep_entry(table: PageTable, instant: Instant, archived: bool, facts: Facts, now: float) -> None:
    known = table.remembered["entries"]
    if len(known) > _MOST_ENTRIES:
        known.clear()
    known[(_entry_name(instant), archived)] = (now, facts)


def _entry_name(instant: Instant) -> str:
    return instant.file_name or str(instant)


def _end(moments: _Moments, index: int, facts: Facts) -> float | None:
    end, seconds = moments.ends[index], facts["seconds"]
    # Version 6 stores no completion time: what its files tell is the duration.
    return moments.starts[index] + seconds if end is None and seconds is not None else end


def _phase_facts(moments: _Moments, index: int, facts: Facts) -> Facts:
    """Return when an instant was requested, became inflight and completed, and how long it was the one and the other."""
    start, end, inflight = moments.starts[index], _end(moments, index, facts), facts["inflight"]
    # The store's clock tells when the file of the state was made, the writer's the other moments.
    if inflight is not None and not start - _MOST_SKEW <= inflight <= (inflight if end is None else end + _MOST_SKEW):
        inflight = None
    if inflight is not None:
        inflight = max(start, inflight if end is None else min(inflight, end))
    return {
        "start": start,
        "end": end,
        "inflight": inflight,
        "requested_seconds": None if inflight is None else round(inflight - start, 3),
        "inflight_seconds": None if inflight is None or end is None else round(end - inflight, 3),
    }


def _inflight_at(table_at: TableAt, instant: Instant) -> float | None:
    """Return when an active instant became inflight, by the time of its file; None: it did not, or the store does not tell."""
    files = table_at.timeline.files_of(instant)
    file = next((each for each in files if each.state is State.INFLIGHT), None)
    if file is None:
        return None
    if file.modified:
        return file.modified
    info = table_at.client.store.info(f"{table_at.config.timeline_directory}/{file.file_name}")
    return None if info is None else info.modified or None


def _plain_entry(instant: Instant) -> TimelineEntry:
    return TimelineEntry(instant.time, instant.completion, instant.action.value, instant.state.value, "")


def _read_entry(builder: EntryBuilder, table_at: TableAt, instant: Instant, archived: bool, table: PageTable) -> Facts:
    try:
        facts = entry_facts(builder.entry(instant, archived))
        return facts if archived else facts | {"inflight": _inflight_at(table_at, instant)}
    except LakefmtError as error:
        # A damaged body, or an instant that vanished: the others are shown all the same.
        facts = entry_facts(_plain_entry(instant))
        return {**facts, "problem": table.redact(str(error))[:_MOST_TEXT]}


def entry_facts(entry: TimelineEntry) -> Facts:
    """Return an entry as JSON values.

    Example:
        >>> entry_facts(TimelineEntry("20260101000000000", None, "clean", "requested", ""))["sign"]
        '○'
    """
    state = "failed" if entry.failed else entry.state
    style = drawn_kind(entry.operation, entry.action)
    sign = {"requested": "○", "inflight": "◐", "failed": "✗"}.get(state, "●")
    return {
        **asdict(entry),
        "state": state,
        "sign": sign,
        "letter": style.letter,
        "hue": style.hue,
        "known": True,
        "problem": "",
        "inflight": None,
    }


def timeline_svg(facts: Facts, query: TimelineQuery, zone: tzinfo, base: str, name: str) -> Picture:
    """Return the picture of what :func:`timeline_facts` told.

    Args:
        facts: the part of the timeline.
        query: what was asked for.
        zone: of the table's instants.
        base: the address of the table's pages; empty: the picture has no links.
        name: of the table.
    """
    bars = [
        Bar(
            each["time"],
            each["action"] if each["action"] in LANES else "commit",
            each["start"],
            each["end"],
            each["operation"],
            each["state"],
            _words(each),
            f"{base}/instants/{each['time']}?action={each['action']}" if base else "",
            each["archived"],
            each["inflight"],
        )
        for each in facts["instants"]
    ]
    more = "&archived=1" if query.archived else ""
    columns = [
        CountColumn(
            each["action"],
            each["start"],
            each["end"],
            each["count"],
            href=f"{base}/timeline?start={each['start']:.3f}&end={each['end']:.3f}{more}" if base else "",
        )
        for each in facts["columns"]
    ]
    marks = tuple((mark["at"], f"mark {number + 1}") for number, mark in enumerate(facts["marks"]))
    span = TimelineSpan(facts["start"], facts["end"], zone, facts["zone"], query.width, marks)
    return timeline_picture(bars, columns, span, f"Timeline of {name}: {facts['shown']:,} instants")


def _words(entry: Facts) -> str:
    """Return what an instant did, as one line that is read aloud."""
    head = f"{entry['sign']} {entry['operation'] or entry['action']} {entry['time']}, {entry['state']}"
    parts = [head]
    if entry["operation"]:
        counts = ("inserts", "inserted"), ("updates", "updated"), ("deletes", "deleted")
        parts += [f"{entry[name]:,} {verb}" for name, verb in counts if entry[name]]
        parts.append(f"{entry['files']:,} files, {size_text(entry['bytes_written'])}")
    if entry["seconds"] is not None:
        parts.append(f"{entry['seconds']:.3f} s")
    if entry["requested_seconds"] is not None:
        parts.append(f"requested for {entry['requested_seconds']:.3f} s")
    if entry["inflight_seconds"] is not None:
        parts.append(f"inflight for {entry['inflight_seconds']:.3f} s")
    parts += [part[:200] for part in (entry["note"], entry["writer"] or "", entry["problem"]) if part]
    return "; ".join(parts)


# --- lists and single instants ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InstantList:
    """Which instants are listed, newest first.

    Attributes:
        before: only those requested before it; empty: from the newest on.
        action: only of this action; empty: of all.
        limit: how many.
        archived: with the archived timeline.
        start: requested at this moment or later, epoch seconds; None: whenever.
        end: requested at this moment or before.
    """

    before: str = ""
    action: str = ""
    limit: int = 50
    archived: bool = False
    start: float | None = None
    end: float | None = None


def list_instants(table: PageTable, query: InstantList) -> Facts:
    """Return a page of the list of instants, newest first, and where the next one begins.

    Raises:
        LakefmtError: the table cannot be read.
    """
    archive = _large_archive(table, table.at()) if query.archived else None
    table_at, moments = _moments(table, archived=query.archived and archive is None)
    more = 0
    if archive is not None:
        table_at, moments, more = _newest_archived(table, table_at, moments, archive, query)
    indices = [
        index
        for index in range(len(moments.instants) - 1, -1, -1)
        if (not query.before or moments.instants[index].time < query.before)
        and (not query.action or moments.instants[index].action.value == query.action)
        and (query.start is None or moments.starts[index] >= query.start)
        and (query.end is None or moments.starts[index] <= query.end)
    ]
    page = indices[: query.limit]
    # Two instants may have one time: a savepoint and its commit stay on one page.
    instants = moments.instants
    while page and len(page) < len(indices) and instants[page[-1]].time == instants[indices[len(page)]].time:
        page.append(indices[len(page)])
    builder = EntryBuilder(table_at)
    entries = []
    for index in page:
        instant = moments.instants[index]
        facts = _read_entry(builder, table_at, instant, str(instant.time) in moments.archived, table)
        entries.append(facts | _phase_facts(moments, index, facts))
    following = str(moments.instants[page[-1]].time) if len(page) < len(indices) + more else ""
    return {"instants": entries, "next": following, "total": len(indices) + more}


def _newest_archived(
    table: PageTable, table_at: TableAt, moments: _Moments, archive: _Archive, query: InstantList
) -> tuple[TableAt, _Moments, int]:
    """Return the table with as many archived instants as a page of the list may show, and how many there are beside."""
    zone = moments.zone
    lower = 0 if query.start is None else _number(query.start, zone)
    upper = _LAST_TIME if query.end is None else _number(query.end, zone)
    if query.before:
        upper = min(upper, int(query.before.ljust(_TIME_DIGITS, "0")) - 1)
    times = archive.times(lower, upper, query.action)
    if not len(times):
        return table_at, moments, 0
    # All of one time come together.
    first = int(times[-min(query.limit + 1, len(times))])
    here = len(times) - int(np.searchsorted(times, first))
    return (*_moments_of(table, archive.between(table_at, first, upper)), len(times) - here)


def instant_facts(table: PageTable, time: str, action: str = "") -> Facts:
    """Return all that is known of an instant.

    Args:
        table: the table.
        time: its requested or completion time.
        action: where several instants have that time.

    Raises:
        InstantNotFound: there is none.
    """
    table_at, moments = _moments(table, archived=False)
    position = _find(moments, time, action)
    if position is None and table_at.has_history:
        table_at, moments = _archived_moments(table, table_at, time)
        position = _find(moments, time, action)
    if position is None:
        raise InstantNotFound(f"no instant {time} on the timeline of this table: it may have been undone")
    instant = moments.instants[position]
    facts = _read_entry(EntryBuilder(table_at), table_at, instant, str(instant.time) in moments.archived, table)
    facts |= {**_phase_facts(moments, position, facts), "zone": str(moments.zone)}
    facts["states"] = [
        {"action": each.action.value, "state": each.state.value, "file": each.file_name}
        for each in table_at.timeline.files_of(instant)
    ]
    facts["same_time"] = [
        i.action.value for i in moments.instants if i.time == instant.time and i.action is not instant.action
    ]
    facts["waiting"] = [str(i) for i in table_at.timeline.pending if i.time != instant.time][:_MOST_FILES]
    neighbours = (
        moments.instants[index].time for index in (position - 1, position + 1) if 0 <= index < len(moments.instants)
    )
    facts["neighbours"] = [str(each) for each in neighbours]
    try:
        facts |= _body_facts(table_at, instant)
    except LakefmtError as error:
        facts["problem"] = table.redact(str(error))[:_MOST_TEXT]
    return facts


def _archived_moments(table: PageTable, table_at: TableAt, time: str) -> tuple[TableAt, _Moments]:
    """Return the table with the archive, of a large one with what is near a requested or completion time."""
    archive = _large_archive(table, table_at)
    if archive is None:
        return _moments(table, archived=True)
    number = int(time.ljust(_TIME_DIGITS, "0"))
    before, after = archive.times(upper=number)[-MOST_BARS:], archive.times(lower=number)[:2]
    return _moments_of(
        table,
        archive.between(table_at, int(before[0]) if len(before) else number, int(after[-1]) if len(after) else number),
    )


def _find(moments: _Moments, time: str, action: str) -> int | None:
    matches = [index for index, i in enumerate(moments.instants) if time in (i.time, i.completion)]
    exact = [index for index in matches if moments.instants[index].action.value == action]
    commits = [index for index in matches if moments.instants[index].action in COMMIT_ACTIONS]
    return next(iter((*exact, *commits, *matches)), None)


def _body_facts(table_at: TableAt, instant: Instant) -> Facts:
    facts: Facts = {"plan": _plan_text(table_at, instant)}
    if not instant.is_completed:
        return facts
    if instant.action not in COMMIT_ACTIONS:
        kind = body_kind(instant.action, State.COMPLETED)
        body = b"" if kind is None else table_at.read_body(instant)
        facts["body"] = _json_text(decode_body(kind, body, what=instant.file_name)) if kind and body else ""
        return facts
    commit = table_at.commit_metadata(instant)
    return facts | commit_facts(commit) | _schema_facts(table_at, instant, commit)


def _plan_text(table_at: TableAt, instant: Instant) -> str:
    """Return the plan that an instant had, as JSON text; empty: it had none, or it is gone."""
    for requested in table_at.timeline.files_of(instant):
        kind = body_kind(requested.action, State.REQUESTED)
        if requested.state is State.REQUESTED and kind is not None and requested.file_name:
            try:
                body = table_at.read_body(requested)
                return _json_text(decode_body(kind, body, what=requested.file_name)) if body else ""
            except LakefmtError as error:
                return f"the plan cannot be read: {error}"
    return ""


def _json_text(value: object) -> str:
    json_text = json.dumps(value, indent=1, ensure_ascii=False, default=str)
    return (
        json_text
        if len(json_text) <= _MOST_BODY_TEXT
        else f"{json_text[:_MOST_BODY_TEXT]}\n… {len(json_text):,} characters in all"
    )


def commit_facts(commit: CommitMetadata) -> Facts:
    """Return what a commit did: per partition, per file, and what else it says; long texts are cut."""
    partitions: dict[str, Facts] = {}
    for stat in commit.stats:
        part = partitions.setdefault(
            str(stat.partition_path),
            {
                "partition": str(stat.partition_path),
                "files": 0,
                "inserts": 0,
                "updates": 0,
                "deletes": 0,
                "bytes": 0,
                "errors": 0,
            },
        )
        part["files"] += 1
        part["inserts"] += stat.num_inserts
        part["updates"] += stat.num_update_writes
        part["deletes"] += stat.num_deletes
        part["bytes"] += stat.total_write_bytes
        part["errors"] += stat.total_write_errors
    files = [
        {
            "path": stat.path,
            "file_id": str(stat.file_id),
            "writes": stat.num_writes,
            "inserts": stat.num_inserts,
            "updates": stat.num_update_writes,
            "deletes": stat.num_deletes,
            "bytes": stat.total_write_bytes,
            "size": stat.file_size_in_bytes,
        }
        for stat in commit.stats[:_MOST_FILES]
    ]
    by_bytes = sorted(partitions.values(), key=lambda part: (-part["bytes"], part["partition"]))
    return {
        "partitions": by_bytes[:_MOST_PARTITIONS],
        "num_partitions": len(partitions),
        "file_stats": files,
        "num_files": len(commit.stats),
        "replaced": {str(path): len(ids) for path, ids in list(commit.replaced_file_ids.items())[:_MOST_PARTITIONS]},
        "metadata": _metadata_facts(commit.extra_metadata),
        "labels": label_facts(commit.extra_metadata),
    }


def _metadata_facts(extra: Mapping[str, str]) -> list[Facts]:
    return [
        {"name": name, "value": value[:_MOST_TEXT], "characters": len(value)}
        for name, value in sorted(extra.items())
        if name != SCHEMA_KEY
    ]


def label_facts(extra: Mapping[str, str]) -> list[Facts]:
    """Return what streams, loads and ingestion tools note in commits: each as what it is, with its value."""
    labels = []
    for name, value in sorted(extra.items()):
        value_text = str(value)[:_MOST_TEXT]
        if name.startswith(STREAM_PREFIX):
            labels.append({"what": "stream", "name": name.removeprefix(STREAM_PREFIX), "value": value_text})
        elif name.startswith(TXN_PREFIX):
            labels.append({"what": "application", "name": name.removeprefix(TXN_PREFIX), "value": value_text})
        elif name.startswith(_LOAD_PREFIX):
            labels.append({"what": "load", "name": name.removeprefix(_LOAD_PREFIX), "value": value_text})
        elif "checkpoint" in name or "watermark" in name:
            labels.append({"what": "checkpoint", "name": name, "value": value_text})
    return labels


def _schema_facts(table_at: TableAt, instant: Instant, commit: CommitMetadata) -> Facts:
    """Return the columns that a commit brought, dropped and changed, beside the commit before it."""
    schema_text = commit.schema_text
    commits = table_at.timeline.commits
    index = next((number for number, each in enumerate(commits) if each.time == instant.time), 0)
    if not schema_text or index == 0:
        return {"schema_change": None}
    before_text = table_at.commit_metadata(commits[index - 1]).schema_text
    if not before_text or before_text == schema_text:
        return {"schema_change": None}
    parse = table_at.client.cache.parse_schema
    before, after = (_column_types(parse(each)) for each in (before_text, schema_text))
    return {
        "schema_change": {
            "added": [name for name in after if name not in before],
            "dropped": [name for name in before if name not in after],
            "changed": [name for name in after if before.get(name, after[name]) != after[name]],
        }
    }


def _column_types(schema: Sequence[Any]) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


def legend_facts(facts: Facts) -> list[Facts]:
    """Return the letters and hues that a picture has, with their words."""
    names = [each["operation"] or each["action"] for each in facts["instants"]]
    names += [each["action"] for each in facts["columns"]]
    return [{"letter": letter, "hue": hue, "title": title} for letter, hue, title in legend_of(names)]
