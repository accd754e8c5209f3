"""Looking at a table: its timeline as a drawing, its files as numbers. Nothing here writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakefmt.filegroups.access import TableAccess, TableState
from lakefmt.timeline.instant import COMMIT_ACTIONS, Instant, State, parse_instant_time
from lakefmt.timeline.view import Timeline
from lakefmt.values import InstantTime

__all__ = ["TableStats", "TimelineEntry", "TimelineView", "describe_slices"]

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
class TableStats:
    """Counts and sizes of the latest snapshot. ``rows`` counts stored rows, from the files' footers."""

    partitions: int
    file_groups: int
    rows: int
    size_bytes: int
    commits: int
    pending: int
    latest_instant: str | None

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows in {self.file_groups:,} file groups of {self.partitions:,} partitions, "
            f"{self.size_bytes:,} bytes; {self.commits:,} commits, {self.pending} pending, "
            f"latest {self.latest_instant or '–'}"
        )


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
    )
