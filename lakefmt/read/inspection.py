"""Looking at a table: its timeline as a drawing, its files as numbers. Nothing here writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from lakefmt.filegroups.access import TableAccess, TableState
from lakefmt.filegroups.model import FileSlice
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant, State, parse_instant_time
from lakefmt.timeline.view import Timeline
from lakefmt.values import InstantTime, PartitionPath

__all__ = ["PartitionBacklog", "TableStats", "TimelineEntry", "TimelineView", "describe_slices"]

_SIGNS = {State.REQUESTED: "○", State.INFLIGHT: "◐", State.COMPLETED: "●"}


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One instant with what its commit says."""

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

    @property
    def seconds(self) -> float | None:
        """From requested to completed, None when that is not known."""
        if self.completion is None:
            return None
        return (parse_instant_time(self.completion) - parse_instant_time(self.time)).total_seconds()


@dataclass(frozen=True)
class TimelineView:
    """A table's active timeline; iterate it, or print it."""

    entries: tuple[TimelineEntry, ...]
    timeline: Timeline

    @classmethod
    def load(cls, access: TableAccess) -> TimelineView:
        """Read the timeline as it is now, with the content of its commits."""
        state = access.load()
        return cls(tuple(_entry(access, state, i) for i in state.timeline), state.timeline)

    def __iter__(self) -> Iterator[TimelineEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __str__(self) -> str:
        return "\n".join(_line(entry) for entry in self.entries) or "(no instants)"


def _entry(access: TableAccess, state: TableState, instant: Instant) -> TimelineEntry:
    plain = (instant.time, instant.completion, instant.action.value, instant.state.value)
    if instant.action not in COMMIT_ACTIONS or not instant.is_completed:
        return TimelineEntry(*plain, operation="")
    commit = access.commit_metadata(state, instant)
    return TimelineEntry(
        *plain,
        operation=commit.operation.value.lower(),
        inserts=sum(s.num_inserts for s in commit.stats),
        updates=sum(s.num_update_writes for s in commit.stats),
        deletes=sum(s.num_deletes for s in commit.stats),
        files=len(commit.stats),
        bytes_written=sum(s.total_write_bytes for s in commit.stats),
    )


def _line(entry: TimelineEntry) -> str:
    sign = _SIGNS[State(entry.state)]
    took = "" if entry.seconds is None else f"  {entry.seconds:8.3f} s"
    counts = (
        f"  +{entry.inserts:,} ~{entry.updates:,} -{entry.deletes:,} in {entry.files} files" if entry.operation else ""
    )
    what = f"{entry.action} {entry.operation}".strip()
    pending = "" if entry.state == State.COMPLETED.value else f" ({entry.state})"
    return f"{sign} {entry.time}  {what:<26}{took}{counts}{pending}"


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """What of a partition waits in logs for a compaction.

    Attributes:
        partition: its path.
        file_groups: groups whose latest slice has logs.
        log_files: logs of those slices.
        log_bytes: their sizes.
        log_records: rows and deletes in them, as far as commits of the active timeline tell.
        oldest: requested time of the oldest deltacommit with a log among them; None when its commit is archived.
        stale_seconds: how long ago it completed, by the handle's clock: since then a read-optimised query lacks rows.
    """

    partition: PartitionPath
    file_groups: int
    log_files: int
    log_bytes: int
    log_records: int
    oldest: InstantTime | None
    stale_seconds: float | None


@dataclass(frozen=True, slots=True)
class TableStats:
    """Counts and sizes of the latest snapshot. ``rows`` counts stored rows, from the files' footers: none of logs.

    ``backlog`` has the partitions whose logs are not compacted, ``pending_compactions`` how many compactions are planned.
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
        """Log files that are not compacted."""
        return sum(part.log_files for part in self.backlog)

    @property
    def stale_seconds(self) -> float:
        """How far read-optimised queries are behind, in the partition where that is most; 0: nowhere."""
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


def describe_slices(access: TableAccess, state: TableState) -> TableStats:
    """Return the numbers of a table's latest snapshot."""
    slices = access.slices(state)
    latest = state.timeline.latest_commit
    return TableStats(
        partitions=len({s.partition for s in slices}),
        file_groups=len(slices),
        rows=sum(access.reader.footer(s.base).num_rows for s in slices if s.base is not None),
        size_bytes=sum(s.size_bytes for s in slices),
        commits=len(state.timeline.commits),
        pending=len(state.timeline.pending),
        latest_instant=None if latest is None else latest.time,
        backlog=_backlog(access, state, [piece for piece in slices if piece.logs]),
        pending_compactions=sum(i.action is Action.COMPACTION for i in state.timeline.pending),
    )


def _backlog(access: TableAccess, state: TableState, logged: Sequence[FileSlice]) -> tuple[PartitionBacklog, ...]:
    """Return what waits for compaction, partition by partition."""
    if not logged:
        return ()
    written: dict[str, tuple[Instant, int]] = {}
    for instant in state.timeline.commits:
        if instant.action is Action.DELTA_COMMIT:
            stats = access.commit_metadata(state, instant).stats
            written |= {s.path: (instant, s.num_writes + s.num_deletes) for s in stats if s.log_files}
    by_partition: dict[PartitionPath, list[FileSlice]] = {}
    for piece in logged:
        by_partition.setdefault(piece.partition, []).append(piece)
    now = access.clock.now()
    return tuple(_waiting(state, path, pieces, written, now) for path, pieces in sorted(by_partition.items()))


def _waiting(
    state: TableState,
    partition: PartitionPath,
    pieces: Sequence[FileSlice],
    written: Mapping[str, tuple[Instant, int]],
    now: datetime,
) -> PartitionBacklog:
    logs = [log for piece in pieces for log in piece.logs]
    known = [written[log.path] for log in logs if log.path in written]
    oldest, stale = None, None
    if len(known) == len(logs):
        first = min((instant for instant, _ in known), key=lambda instant: instant.order_time)
        oldest = first.time
        stale = max(0.0, (now - parse_instant_time(first.order_time, state.config.zone or UTC)).total_seconds())
    return PartitionBacklog(
        partition, len(pieces), len(logs), sum(log.size for log in logs), sum(n for _, n in known), oldest, stale
    )
