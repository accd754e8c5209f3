"""Describe a table as Arrow tables: its instants, its files with their statistics, its partitions and schemas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, overload

import pyarrow as pa

from lakefmt._core.arguments import check_flags, instance_argument
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.pending_plans import is_copied_log
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.notebook import NotebookText, rows_html
from lakefmt._core.timeline.commit import SCHEMA_KEY
from lakefmt._core.timeline.heartbeat import heartbeat_name, is_alive
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State, parse_instant_time
from lakefmt._core.timeline.metadata_codec import body_kind, decode_body
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import InstantTime, PartitionPath, printable, size_text
from lakefmt.errors import CorruptFile, ObjectNotFound, SnapshotExpired

__all__ = [
    "EntryBuilder",
    "PartitionBacklog",
    "TableStats",
    "TimelineEntry",
    "TimelineView",
    "describe_slices",
    "draw_lines",
    "files_table",
    "follow_timeline",
    "partitions_table",
    "schema_history_table",
    "sign_of",
]

_Body = Mapping[str, Any]

_SIGNS = {State.REQUESTED.value: "○", State.INFLIGHT.value: "◐", State.COMPLETED.value: "●"}
_FAILED_SIGN = "✗"
#: Column titles; numbers are right-aligned.
_COLUMN_TITLES = (
    "",
    "instant",
    "action",
    "operation",
    "inserted",
    "updated",
    "deleted",
    "files",
    "written",
    "took",
    "",
)
_RIGHT_ALIGNED = frozenset(range(4, 10))
_MAX_NOTE_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One instant with the main facts of its metadata.

    Attributes:
        time: requested time.
        completion: completion time; None while pending and in version 6, which does not store it.
        action: commit, deltacommit, clean, rollback and so on.
        state: requested, inflight or completed.
        operation: the operation of a commit; empty for other actions.
        seconds: time from requested to completed; None if unknown.
        writer: the writer's name, if a commit or heartbeat has it.
        note: the result of a table service, or what a pending instant waits for.
        failed: pending with a dead writer; the next write rolls it back.
        archived: in the archived timeline.
    """

    time: InstantTime
    completion: InstantTime | None
    action: str
    state: str
    operation: str
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    files: int = 0
    bytes_written: int = 0
    seconds: float | None = None
    writer: str | None = None
    note: str = ""
    failed: bool = False
    archived: bool = False


def sign_of(entry: TimelineEntry) -> str:
    """Return the symbol of an instant: ● completed, ◐ inflight, ○ requested, ✗ failed.

    Example:
        >>> sign_of(TimelineEntry("20260101000000000", None, "commit", "inflight", "", failed=True))
        '✗'
    """
    return _FAILED_SIGN if entry.failed else _SIGNS[entry.state]


def draw_lines(entries: Sequence[TimelineEntry], *, titles: bool = True) -> Iterator[str]:
    """Yield a timeline's lines, oldest first: titles, then one line per instant with a rail between them.

    Args:
        titles: False: omit the titles, to continue a drawing.

    Example:
        >>> begun = TimelineEntry("20260101000000000", None, "commit", "requested", "", note="at work")
        >>> list(draw_lines([begun]))[1].split()
        ['○', '20260101000000000', 'commit', 'requested', 'at', 'work']
    """
    if not entries:
        yield "(no instants)"
        return
    rows = [_COLUMN_TITLES, *(_cells(entry) for entry in entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row_number, row in enumerate(rows):
        padded = (
            cell.rjust(width) if index in _RIGHT_ALIGNED else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        if row_number or titles:
            yield "  ".join(padded).rstrip()
        if 0 < row_number < len(rows) - 1:
            yield "│"


def _cells(entry: TimelineEntry) -> tuple[str, ...]:
    took = "" if entry.seconds is None else f"{entry.seconds:.3f} s"
    pending = "" if entry.state == State.COMPLETED.value else "failed" if entry.failed else entry.state
    head = (sign_of(entry), entry.time, entry.action, entry.operation or pending)
    numbers = ("", "", "", "", "")
    if entry.operation:
        counts = (f"{number:,}" if number else "·" for number in (entry.inserts, entry.updates, entry.deletes))
        numbers = (*counts, f"{entry.files:,}", size_text(entry.bytes_written))  # type: ignore[assignment]
    notes = [entry.note, f"by {entry.writer}" if entry.writer else "", "archived" if entry.archived else ""]
    note = printable("; ".join(part for part in notes if part))
    return (*head, *numbers, took, note if len(note) <= _MAX_NOTE_CHARACTERS else f"{note[:_MAX_NOTE_CHARACTERS]}…")


#: Commit entry with the writer's name (docs/format.md, lakefmt's commit entries).
_WRITER_ENTRY = "lakefmt.writer"
_MOMENT: Final = pa.timestamp("ms", "UTC")
_HISTORY: Final = pa.schema(
    [
        ("instant", pa.string()),
        ("completion_time", pa.string()),
        ("requested_at", _MOMENT),
        ("action", pa.string()),
        ("state", pa.string()),
        ("operation", pa.string()),
        ("num_inserts", pa.int64()),
        ("num_updates", pa.int64()),
        ("num_deletes", pa.int64()),
        ("num_files", pa.int64()),
        ("bytes_written", pa.int64()),
        ("seconds", pa.float64()),
        ("writer", pa.string()),
        ("note", pa.string()),
        ("archived", pa.bool_()),
    ]
)
#: Actions with plans that are executed later; until then they have no writer.
_PLANNED_ACTIONS = frozenset(
    {Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING, Action.CLEAN, Action.INDEXING}
)
_MAX_STAMP_BYTES = 64 * 1024
_MOST_SKEW_SECONDS = 3600.0


@dataclass(frozen=True)
class TimelineView:
    """A table's timeline, iterable and printable: the output of `lakefmt timeline`.

    Attributes:
        entries: one per instant, oldest first.
        timeline: the active timeline, with the archive if requested.
    """

    entries: tuple[TimelineEntry, ...]
    timeline: Timeline
    _client: TableClient | None = field(default=None, repr=False, compare=False)

    @classmethod
    def load(cls, client: TableClient, *, archived: bool = False, limit: int | None = None) -> TimelineView:
        """Read the timeline and the metadata of its commits.

        Args:
            client: the table client.
            archived: also read the archive.
            limit: the number of newest instants to read; None: all.

        Raises:
            CorruptFile: a body or the requested archive is damaged.
        """
        check_flags(archived=archived)
        if limit is not None:
            instance_argument(limit, int, "limit")
        try:
            return cls._load(client, archived, limit)
        except SnapshotExpired:
            # Something was rolled back between reading the timeline and its files.
            return cls._load(client, archived, limit)

    @classmethod
    def _load(cls, client: TableClient, archived: bool, limit: int | None) -> TimelineView:
        state = client.load()
        state = client.at(state).with_history().state if archived else state
        old = state.timeline.archived
        instants = [*((i, True) for i in old), *((i, False) for i in state.timeline)]
        instants.sort(key=lambda pair: pair[0].time)
        teller = EntryBuilder(client.at(state))
        shown_instants = instants[-limit:] if limit else instants
        return cls(tuple(teller.entry(i, was_archived) for i, was_archived in shown_instants), state.timeline, client)

    def with_archived(self) -> TimelineView:
        """Return the current timeline with its archived instants.

        Example:
            >>> import pyarrow as pa
            >>> from lakefmt._core.table import create_table
            >>> t = create_table("memory://doc-story", schema=pa.schema([("id", pa.string())]), record_key="id")
            >>> for _ in range(3): _ = t.upsert(pa.table({"id": ["a"]}))
            >>> _ = t.archive(options={"hoodie.keep.min.commits": 1})
            >>> len(t.timeline), [entry.archived for entry in t.timeline.with_archived()]
            (1, [True, True, False])
        """
        return self if self._client is None else TimelineView.load(self._client, archived=True)

    def __iter__(self) -> Iterator[TimelineEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, position: int) -> TimelineEntry: ...
    @overload
    def __getitem__(self, position: slice) -> TimelineView: ...
    def __getitem__(self, position: int | slice) -> TimelineEntry | TimelineView:
        """Return an entry by its position, -1 the newest one, or a view of some of them."""
        return replace(self, entries=self.entries[position]) if isinstance(position, slice) else self.entries[position]

    def __str__(self) -> str:
        return "\n".join(draw_lines(self.entries))

    def to_arrow(self) -> pa.Table:
        """Return the entries as an Arrow table, oldest first, one row each, as ``table.history()`` has them.

        Example:
            >>> import lakefmt
            >>> t = lakefmt.create_table("memory://doc-view", data=pa.table({"id": ["a"]}), record_key="id")
            >>> _ = t.insert(pa.table({"id": ["a"]}))
            >>> t.timeline.to_arrow().select(["action", "num_inserts"]).to_pylist()
            [{'action': 'commit', 'num_inserts': 1}]
        """
        zone = None if self._client is None else self._client.reading_zone(self._client.known_config)
        entries = self.entries
        columns: list[list[object]] = [
            [entry.time for entry in entries],
            [entry.completion for entry in entries],
            [_moment(entry.time, zone) for entry in entries],
            [entry.action for entry in entries],
            ["failed" if entry.failed else entry.state for entry in entries],
            [entry.operation or None for entry in entries],
            [entry.inserts for entry in entries],
            [entry.updates for entry in entries],
            [entry.deletes for entry in entries],
            [entry.files for entry in entries],
            [entry.bytes_written for entry in entries],
            [entry.seconds for entry in entries],
            [entry.writer for entry in entries],
            [entry.note or None for entry in entries],
            [entry.archived for entry in entries],
        ]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _HISTORY, strict=True)]
        return pa.Table.from_arrays(arrays, schema=_HISTORY)

    def _repr_html_(self) -> str:
        return rows_html(repr(self), (*_COLUMN_TITLES[:-1], "note"), [_cells(entry) for entry in self.entries])

    def __repr__(self) -> str:
        times = [entry.time for entry in self.entries]
        span = f", {times[0]} to {times[-1]}" if times else ""
        return f"TimelineView({len(times):,} instants{span})"


def _moment(time: str, zone: tzinfo | None) -> datetime:
    if zone is None:  # a moment without a zone is one of this machine's
        return parse_instant_time(time).replace(tzinfo=None).astimezone(UTC)
    return parse_instant_time(time, zone).astimezone(UTC)


def follow_timeline(client: TableClient, seconds: float) -> Iterator[tuple[TimelineEntry, ...]]:
    """Yield the entries of the timeline, then new entries as they appear; never returns.

    Args:
        client: the table client; its time source sleeps.
        seconds: time between two reads.

    An instant is yielded once per state, and again when its writer has died.
    """
    reported: set[tuple[str, str, str, bool]] = set()
    while True:
        view = TimelineView.load(client)
        new = tuple(entry for entry in view if (entry.time, entry.action, entry.state, entry.failed) not in reported)
        reported = {(entry.time, entry.action, entry.state, entry.failed) for entry in view}
        yield new
        client.time_source.sleep(seconds)


class EntryBuilder:
    """Builds entries from the files of instants, which are read one by one."""

    def __init__(self, table_at: TableAt) -> None:
        self._client = table_at.client
        self._state = table_at.state
        self._made = _creation_times(table_at) if table_at.timeline.layout == 1 else {}
        self._zone = table_at.reading_zone() if self._made else None

    def entry(self, instant: Instant, archived: bool) -> TimelineEntry:
        """Return the entry of an instant of the timeline.

        Raises:
            CorruptFile: its body is damaged.
            SnapshotExpired: its file is gone.
        """
        plain = (instant.time, instant.completion, instant.action.value, instant.state.value)
        if not instant.is_completed:
            note, writer, failed = self._waiting(instant)
            return TimelineEntry(*plain, operation="", note=note, writer=writer, failed=failed)
        seconds = self._seconds(instant)
        if instant.action not in COMMIT_ACTIONS:
            return TimelineEntry(*plain, operation="", seconds=seconds, note=self._done(instant), archived=archived)
        commit = self._client.at(self._state).commit_metadata(instant)
        timeline = self._state.timeline
        counted = [stat for stat in commit.stats if not is_copied_log(timeline, instant, stat.file_name)]
        return TimelineEntry(
            *plain,
            operation=commit.operation.value.lower(),
            inserts=sum(s.num_inserts for s in counted),
            updates=sum(s.num_update_writes for s in counted),
            deletes=sum(s.num_deletes for s in counted),
            files=len(commit.stats),
            bytes_written=sum(s.total_write_bytes for s in commit.stats),
            seconds=seconds,
            writer=commit.extra_metadata.get(_WRITER_ENTRY),
            archived=archived,
        )

    def _seconds(self, instant: Instant) -> float | None:
        if instant.completion is not None:
            return (parse_instant_time(instant.completion) - parse_instant_time(instant.time)).total_seconds()
        made = self._made.get(instant.file_name)
        if made is None:
            return self._archived_seconds(instant)
        zone = self._zone or datetime.fromtimestamp(made, UTC).astimezone().tzinfo or UTC
        # An instant time without milliseconds is the end of its second; file times are those of the
        # store's clock.
        return max(0.0, round(made - parse_instant_time(instant.time, zone).timestamp(), 3))

    def _archived_seconds(self, instant: Instant) -> float | None:
        """Return the duration of an archived instant of layout 1: its entry has the time of the completed file."""
        history = self._state.history
        made = None if history is None else history.transition(instant)
        if made is None:
            return None
        # Both times are in the table's zone. A file much older than its instant comes from a store
        # without times.
        seconds = (parse_instant_time(made) - parse_instant_time(instant.time)).total_seconds()
        return max(0.0, seconds) if seconds > -_MOST_SKEW_SECONDS else None

    def _done(self, instant: Instant) -> str:
        """Return the summary of a table service's result; None if its body has none."""
        kind = body_kind(instant.action, State.COMPLETED)
        tell = _NOTES.get(instant.action)
        body = b"" if kind is None or tell is None else self._client.at(self._state).read_body(instant)
        return "" if not body or kind is None or tell is None else tell(decode_body(kind, body, what=instant.file_name))

    def _waiting(self, instant: Instant) -> tuple[str, str | None, bool]:
        """Return what a pending instant waits for, its writer, and whether that writer is dead."""
        if instant.state is State.REQUESTED and instant.action in _PLANNED_ACTIONS:
            return "planned", None, False
        config, client = self._state.config, self._client
        settings = resolve_settings(client.options, None, config.properties)
        interval = settings.integer("hoodie.client.heartbeat.interval_in_ms") / 1000
        expiry = interval * settings.integer("hoodie.client.heartbeat.tolerable.misses")
        directory, now = config.timeline_directory, client.clock.now
        life = is_alive(client.store, self._state.timeline, instant, directory, now, expiry)
        return ("at work: " if life.alive else "") + life.reason, self._owner(instant), not life.alive

    def _owner(self, instant: Instant) -> str | None:
        try:
            stamp = json.loads(self._client.store.read(heartbeat_name(instant.time), _MAX_STAMP_BYTES) or b"null")
        except (ObjectNotFound, CorruptFile, ValueError, RecursionError):
            return None
        return (
            f"{stamp.get('owner')} on {stamp.get('host')}, process {stamp.get('pid')}"
            if isinstance(stamp, dict)
            else None
        )


def _creation_times(table_at: TableAt) -> dict[str, float]:
    """Return creation times of the files of a layout 1 timeline in epoch seconds, to compute durations."""
    listed = table_at.client.store.list(table_at.config.timeline_directory, recursive=False)
    return {o.name.rpartition("/")[2]: o.modified for o in listed if o.modified > 0}


def _undone_text(times: Sequence[str]) -> str:
    shown = ", ".join(times[:3])
    return f"undid {shown}" + (f" and {len(times) - 3} more" if len(times) > 3 else "")


def _savepoint_text(user: str, comment: str) -> str:
    return ": ".join(part for part in (f"made by {user}" if user else "", comment) if part)


_NOTES: dict[Action, Callable[[_Body], str]] = {
    Action.CLEAN: lambda body: f"{body['totalFilesDeleted']:,} files deleted",
    Action.ROLLBACK: lambda body: _undone_text(body["commitsRollback"]),
    Action.RESTORE: lambda body: _undone_text(body["instantsToRollback"]),
    Action.SAVEPOINT: lambda body: _savepoint_text(str(body["savepointedBy"]), str(body["comments"])),
}


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """The logs of a partition that await compaction.

    Attributes:
        partition: the partition path.
        file_groups: number of file groups whose latest slice has logs.
        log_files: number of their logs.
        log_bytes: total size of their logs in bytes.
        log_records: rows and deletes in them, as far as active commits count them.
        oldest: requested time of the oldest deltacommit with such a log; None if it is archived.
        stale_seconds: time since its completion, by the client's clock: read-optimized queries lack
            the rows since then.
    """

    partition: PartitionPath
    file_groups: int
    log_files: int
    log_bytes: int
    log_records: int
    oldest: InstantTime | None
    stale_seconds: float | None


@dataclass(frozen=True, slots=True)
class TableStats(NotebookText):
    """Counts and sizes of the latest snapshot; ``rows`` counts rows in base files only.

    ``backlog`` has the partitions with uncompacted logs, ``pending_compactions`` the number of
    planned compactions.
    """

    partitions: int
    file_groups: int
    rows: int
    size_bytes: int
    commits: int
    pending: int
    latest_instant: str | None
    backlog: tuple[PartitionBacklog, ...] = ()
    pending_compactions: int = 0

    @property
    def log_files(self) -> int:
        """The number of uncompacted logs."""
        return sum(part.log_files for part in self.backlog)

    @property
    def stale_seconds(self) -> float:
        """The largest lag of read-optimized queries over all partitions; 0 without a backlog."""
        return max((part.stale_seconds or 0.0 for part in self.backlog), default=0.0)

    def __str__(self) -> str:
        lines = [
            f"{self.rows:,} rows in {self.file_groups:,} file groups of {self.partitions:,} partitions, "
            f"{self.size_bytes:,} bytes; {self.commits:,} commits, {self.pending} pending, "
            f"latest {self.latest_instant or '–'}"
        ]
        if self.backlog or self.pending_compactions:
            log_bytes = sum(part.log_bytes for part in self.backlog)
            lines.append(
                f"not compacted: {self.log_files:,} logs, {log_bytes:,} bytes in {len(self.backlog):,} partitions; "
                f"{self.pending_compactions} compactions pending"
            )
        for part in self.backlog:
            stale = "?" if part.stale_seconds is None else f"{part.stale_seconds:,.0f} s"
            lines.append(
                f"  {part.partition or '.'}: {part.log_files:,} logs, {part.log_records:,} records, "
                f"{part.log_bytes:,} bytes, stale for {stale}"
            )
        return "\n".join(lines)


def describe_slices(table_at: TableAt) -> TableStats:
    """Return the statistics of a table's latest snapshot."""
    slices = table_at.slices()
    latest = table_at.timeline.latest_commit
    return TableStats(
        partitions=len({s.partition for s in slices}),
        file_groups=len(slices),
        rows=sum(table_at.client.reader.footer(s.base).num_rows for s in slices if s.base is not None),
        size_bytes=sum(s.size_bytes for s in slices),
        commits=len(table_at.timeline.commits),
        pending=len(table_at.timeline.pending),
        latest_instant=None if latest is None else latest.time,
        backlog=_compaction_backlog(table_at, [file_slice for file_slice in slices if file_slice.logs]),
        pending_compactions=sum(i.action is Action.COMPACTION for i in table_at.timeline.pending),
    )


def _compaction_backlog(table_at: TableAt, logged: Sequence[FileSlice]) -> tuple[PartitionBacklog, ...]:
    """Return the compaction backlog by partition."""
    if not logged:
        return ()
    written: dict[str, tuple[Instant, int]] = {}
    for instant in table_at.timeline.commits:
        if instant.action is Action.DELTA_COMMIT:
            stats = table_at.commit_metadata(instant).stats
            written |= {s.path: (instant, s.num_writes + s.num_deletes) for s in stats if s.log_files}
    by_partition: dict[PartitionPath, list[FileSlice]] = {}
    for file_slice in logged:
        by_partition.setdefault(file_slice.partition, []).append(file_slice)
    now = table_at.client.clock.now()
    return tuple(
        _partition_backlog(table_at.state, path, slices, written, now) for path, slices in sorted(by_partition.items())
    )


def _partition_backlog(
    state: TableState,
    partition: PartitionPath,
    slices: Sequence[FileSlice],
    written: Mapping[str, tuple[Instant, int]],
    now: datetime,
) -> PartitionBacklog:
    logs = [log for file_slice in slices for log in file_slice.logs]
    instants = [written[log.path] for log in logs if log.path in written]
    oldest, stale = None, None
    if len(instants) == len(logs):
        first = min((instant for instant, _ in instants), key=lambda instant: instant.order_time)
        oldest = first.time
        stale = max(0.0, (now - parse_instant_time(first.order_time, state.config.zone or UTC)).total_seconds())
    return PartitionBacklog(
        partition, len(slices), len(logs), sum(log.size for log in logs), sum(n for _, n in instants), oldest, stale
    )


_FILES: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("instant", pa.string()),
        ("base_file", pa.string()),
        ("base_bytes", pa.int64()),
        ("log_files", pa.list_(pa.string())),
        ("log_bytes", pa.int64()),
    ]
)
_PARTITIONS: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("num_file_groups", pa.int64()),
        ("num_log_files", pa.int64()),
        ("bytes", pa.int64()),
        ("newest_instant", pa.string()),
    ]
)
_SCHEMAS: Final = pa.schema(
    [
        ("instant", pa.string()),
        ("operation", pa.string()),
        ("columns", pa.list_(pa.string())),
        ("types", pa.list_(pa.string())),
        ("added", pa.list_(pa.string())),
        ("dropped", pa.list_(pa.string())),
        ("changed", pa.list_(pa.string())),
    ]
)


def files_table(slices: list[FileSlice]) -> pa.Table:
    """Return the file slices of a table, one row each."""
    columns = [
        [str(each.partition) for each in slices],
        [str(each.file_id) for each in slices],
        [each.instant for each in slices],
        [None if each.base is None else each.base.path for each in slices],
        [0 if each.base is None else each.base.size for each in slices],
        [[log.path for log in each.logs] for each in slices],
        [sum(log.size for log in each.logs) for each in slices],
    ]
    return _table(columns, _FILES)


def partitions_table(slices: list[FileSlice]) -> pa.Table:
    """Return the partitions of a table that hold file slices, one row each, by path."""
    by_path: dict[str, list[FileSlice]] = {}
    for each in slices:
        by_path.setdefault(str(each.partition), []).append(each)
    paths = sorted(by_path)
    columns = [
        paths,
        [len(by_path[path]) for path in paths],
        [sum(len(each.logs) for each in by_path[path]) for path in paths],
        [sum(each.size_bytes for each in by_path[path]) for path in paths],
        [max(time for each in by_path[path] for time in _instants(each)) for path in paths],
    ]
    return _table(columns, _PARTITIONS)


def schema_history_table(table_at: TableAt) -> pa.Table:
    """Return the commits that changed the columns of a table, oldest first, the first commit included; the archive is read.

    Raises:
        CorruptFile: a commit or the archive is damaged.
    """
    table_at = table_at.with_history()
    rows: list[tuple[object, ...]] = []
    before: dict[str, str] = {}
    schema_json_before = ""
    for commit in table_at.timeline.commits:
        metadata = table_at.commit_metadata(commit)
        schema_json = metadata.extra_metadata.get(SCHEMA_KEY, "")
        if not schema_json or schema_json == schema_json_before:
            continue
        schema_json_before = schema_json
        columns = {field.name: str(field.type) for field in table_at.client.cache.parse_schema(schema_json)}
        if columns == before and rows:
            continue
        added, dropped = [n for n in columns if n not in before], [n for n in before if n not in columns]
        changed = [n for n in columns if before.get(n, columns[n]) != columns[n]]
        operation = metadata.operation.value.lower()
        rows.append((commit.time, operation, list(columns), list(columns.values()), added, dropped, changed))
        before = columns
    return _table([list(column) for column in zip(*rows, strict=True)] or [[] for _ in _SCHEMAS], _SCHEMAS)


def _table(columns: list[list[object]] | list[object], schema: pa.Schema) -> pa.Table:
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _instants(file_slice: FileSlice) -> list[str]:
    return [file_slice.instant, *(log.instant for log in file_slice.logs)]
