"""Which file slices a compaction merges, and when a compaction is due (docs/format.md, Compaction). Pure.

A candidate is a file slice with at least one log whose file group is in no pending plan. A strategy, named as in Hudi,
orders the candidates and takes as many as its limit allows; a trigger decides whether a compaction is due.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, tzinfo

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice, join_path
from lakefmt._core.notebook import NotebookText
from lakefmt._core.timeline.instant import Action, parse_instant_time
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt.errors import InvalidInputError

__all__ = [
    "CompactionOperation",
    "CompactionPlan",
    "CompactionRules",
    "CompactionStrategy",
    "CompactionTrigger",
    "is_due",
    "plan_compaction",
    "plan_operation",
    "since_last_compaction",
]

_MIB = 1 << 20
GroupKey = tuple[PartitionPath, FileId]


class CompactionStrategy(enum.Enum):
    """Which candidates are compacted, with Hudi's names."""

    LOG_FILE_SIZE_BASED = "LogFileSizeBasedCompactionStrategy"
    LOG_FILE_NUM_BASED = "LogFileNumBasedCompactionStrategy"
    BOUNDED_IO = "BoundedIOCompactionStrategy"
    UNBOUNDED = "UnBoundedCompactionStrategy"
    DAY_BASED = "DayBasedCompactionStrategy"
    BOUNDED_PARTITION_AWARE = "BoundedPartitionAwareCompactionStrategy"
    UNBOUNDED_PARTITION_AWARE = "UnBoundedPartitionAwareCompactionStrategy"


class CompactionTrigger(enum.Enum):
    """When a compaction is due, with Hudi's names."""

    NUM_COMMITS = "NUM_COMMITS"
    NUM_COMMITS_AFTER_LAST_REQUEST = "NUM_COMMITS_AFTER_LAST_REQUEST"
    TIME_ELAPSED = "TIME_ELAPSED"
    NUM_AND_TIME = "NUM_AND_TIME"
    NUM_OR_TIME = "NUM_OR_TIME"


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """How candidates are chosen, and when.

    Attributes:
        strategy: orders and limits the candidates.
        target_io_mb: MiB to read and write at which the bounded strategies stop.
        min_log_bytes: log bytes below which LogFileSizeBased leaves a slice alone.
        min_log_files: log files below which LogFileNumBased leaves a slice alone.
        partitions: days, or partitions, that the strategies by day look at.
        trigger: what makes a compaction due.
        max_delta_commits: deltacommits after which a compaction is due.
        max_delta_seconds: seconds after which a compaction is due.
        max_file_bytes: expected size of the base file of a slice that has none.
    """

    strategy: CompactionStrategy = CompactionStrategy.LOG_FILE_SIZE_BASED
    target_io_mb: int = 512000
    min_log_bytes: int = 0
    min_log_files: int = 0
    partitions: int = 10
    trigger: CompactionTrigger = CompactionTrigger.NUM_COMMITS
    max_delta_commits: int = 5
    max_delta_seconds: int = 3600
    max_file_bytes: int = 120 * _MIB

    def __post_init__(self) -> None:
        if min(self.target_io_mb, self.min_log_bytes, self.min_log_files, self.max_delta_seconds) < 0:
            raise InvalidInputError("limits of a compaction cannot be negative")
        if min(self.partitions, self.max_delta_commits) < 1:
            raise InvalidInputError("a compaction looks at one partition at least, after one deltacommit at least")


@dataclass(frozen=True, slots=True)
class CompactionOperation:
    """One file slice to merge.

    Attributes:
        partition: where its files are.
        file_id: its file group.
        base_instant: the instant of the base file; without one, of the slice.
        base_name: name of the base file; None when there is none.
        log_names: names of the logs, oldest first.
        metrics: files, bytes and MiB, with the names of Hudi's plans.
    """

    partition: PartitionPath
    file_id: FileId
    base_instant: InstantTime
    base_name: str | None
    log_names: tuple[str, ...]
    metrics: Mapping[str, float]

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are merged, relative to the table."""
        names = self.log_names if self.base_name is None else (self.base_name, *self.log_names)
        return tuple(join_path(self.partition, name) for name in names)

    @property
    def log_bytes(self) -> int:
        """Bytes of the logs, as the plan says."""
        return int(self.metrics.get("TOTAL_LOG_FILES_SIZE", 0))

    @property
    def io_mb(self) -> int:
        """MiB to read and to write, as the plan says."""
        return int(self.metrics.get("TOTAL_IO_MB", 0))


@dataclass(frozen=True, slots=True)
class CompactionPlan(NotebookText):
    """What a compaction merges: prints one line per slice.

    Attributes:
        rules: the strategy and its limits; None for a plan that was read from the timeline.
        operations: the slices, in the order in which they are merged.
        left: candidates that the strategy did not choose.
        due: whether the trigger asks for a compaction; a call can ask for one that is not due.
        log: True for a log compaction.
    """

    rules: CompactionRules | None
    operations: tuple[CompactionOperation, ...] = ()
    left: int = 0
    due: bool = True
    log: bool = False

    @property
    def num_logs(self) -> int:
        """How many log files are merged."""
        return sum(len(operation.log_names) for operation in self.operations)

    @property
    def log_bytes(self) -> int:
        """How many bytes of logs are merged."""
        return sum(operation.log_bytes for operation in self.operations)

    @property
    def log_paths(self) -> tuple[str, ...]:
        """The logs, relative to the table."""
        return tuple(join_path(each.partition, name) for each in self.operations for name in each.log_names)

    def without_logs(self, paths: Collection[str]) -> CompactionPlan:
        """Return the plan without some logs, and without slices of which nothing is left."""
        operations = [
            replace(each, log_names=tuple(n for n in each.log_names if join_path(each.partition, n) not in paths))
            for each in self.operations
        ]
        return replace(self, operations=tuple(each for each in operations if each.paths))

    def __str__(self) -> str:
        name = "as planned" if self.rules is None else self.rules.strategy.value.removesuffix("CompactionStrategy")
        rest = f"; {self.left:,} left for later" if self.left else ""
        early = "" if self.due else "; not due yet"
        verb = "log compact" if self.log else f"compact ({name})"
        title = (
            f"{verb}: {len(self.operations):,} slices, {self.num_logs:,} logs, "
            f"{self.log_bytes:,} log bytes{rest}{early}"
        )
        lines = [
            f"  {operation.partition or '.'}: {operation.base_name or 'no base file'} + {len(operation.log_names)} logs"
            for operation in self.operations
        ]
        return "\n".join([title, *lines])


# ------------------------------------------------------------------------------------------------------------ triggers


def since_last_compaction(timeline: Timeline, *, requested: bool = False) -> tuple[int, InstantTime | None]:
    """Return how many deltacommits came after the last compaction, and when that was.

    Args:
        timeline: the active timeline of a merge-on-read table.
        requested: pending compactions count as well.

    Returns:
        The number, and the requested time of the compaction. Before the first compaction it is the time of the oldest
        deltacommit; None when there is neither.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> names = [f"2026010100000{n}000_2026010100000{n}500.deltacommit" for n in range(3)]
        >>> since_last_compaction(timeline_from_names([*names, "20260101000000700_20260101000000900.commit"], 2))
        (2, '20260101000000700')
    """
    # On a merge-on-read table only compactions complete as commits.
    compactions = [i.time for i in timeline.commits if i.action is Action.COMMIT]
    if requested:
        compactions += [i.time for i in timeline.pending if i.action is Action.COMPACTION]
    deltas = [i for i in timeline.commits if i.action is Action.DELTA_COMMIT]
    if not compactions:
        return len(deltas), min((i.time for i in deltas), default=None)
    last = max(compactions)
    return sum(i.order_time > last for i in deltas), last


def is_due(timeline: Timeline, rules: CompactionRules, now: datetime, zone: tzinfo) -> bool:
    """Return whether the trigger makes a compaction due.

    Args:
        timeline: the active timeline of a merge-on-read table.
        rules: the trigger and its limits.
        now: the present.
        zone: the table's timeline zone.

    Example:
        >>> from datetime import UTC
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> once = timeline_from_names(["20260101000000000_20260101000000500.deltacommit"], 2)
        >>> hour_later = datetime(2026, 1, 1, 1, tzinfo=UTC)
        >>> [is_due(once, CompactionRules(trigger=t), hour_later, UTC) for t in CompactionTrigger]
        [False, False, True, False, True]
    """
    after_request = rules.trigger is CompactionTrigger.NUM_COMMITS_AFTER_LAST_REQUEST
    commits, last = since_last_compaction(timeline, requested=after_request)
    if last is None:
        return False
    enough = commits >= rules.max_delta_commits
    late = commits > 0 and (now - parse_instant_time(last, zone)).total_seconds() >= rules.max_delta_seconds
    match rules.trigger:
        case CompactionTrigger.TIME_ELAPSED:
            return late
        case CompactionTrigger.NUM_AND_TIME:
            return enough and late
        case CompactionTrigger.NUM_OR_TIME:
            return enough or late
        case _:
            return enough


# ------------------------------------------------------------------------------------------------------------ planning


def plan_compaction(
    slices: Iterable[FileSlice], busy: frozenset[GroupKey], rules: CompactionRules, today: date, *, due: bool = True
) -> CompactionPlan:
    """Return what a compaction merges.

    Args:
        slices: the latest committed slice of every file group.
        busy: file groups in a pending compaction, log compaction or clustering plan.
        rules: the strategy and its limits.
        today: the present day, for the strategies by day.
        due: from :func:`is_due`; it is passed on.

    Example:
        >>> from lakefmt._core.filegroups.model import LogFile
        >>> log = LogFile("p", ".f-0_20260101000000000.log.1_0-0-0", "f-0", "20260101000000000", 1, 9)
        >>> file_slice = FileSlice("p", "f-0", "20260101000000000", None, (log,))
        >>> print(plan_compaction([file_slice], frozenset(), CompactionRules(), date(2026, 1, 1)))
        compact (LogFileSizeBased): 1 slices, 1 logs, 9 log bytes
          p: no base file + 1 logs
    """
    candidates = [
        plan_operation(file_slice, rules.max_file_bytes)
        for file_slice in sorted(slices, key=lambda s: (s.partition, s.file_id))
        if file_slice.logs and (file_slice.partition, file_slice.file_id) not in busy
    ]
    operations = _CHOOSE[rules.strategy](candidates, rules, today)
    return CompactionPlan(rules, tuple(operations), len(candidates) - len(operations), due)


def plan_operation(file_slice: FileSlice, max_file_bytes: int) -> CompactionOperation:
    """Return the operation that merges a slice; `max_file_bytes`: expected size of a base file where there is none."""
    log_bytes = sum(log.size for log in file_slice.logs)
    base_bytes = 0 if file_slice.base is None else file_slice.base.size
    # Whole MiB, as Hudi counts them, so that both plans stop at the same operation.
    read = (base_bytes + log_bytes) // _MIB
    write = (max_file_bytes if file_slice.base is None else base_bytes) // _MIB
    metrics = {
        "TOTAL_LOG_FILES": float(len(file_slice.logs)),
        "TOTAL_IO_READ_MB": float(read),
        "TOTAL_IO_WRITE_MB": float(write),
        "TOTAL_IO_MB": float(read + write),
        "TOTAL_LOG_FILES_SIZE": float(log_bytes),
    }
    base_name = None if file_slice.base is None else file_slice.base.name
    names = tuple(log.name for log in file_slice.logs)
    return CompactionOperation(file_slice.partition, file_slice.file_id, file_slice.instant, base_name, names, metrics)


_Operations = Sequence[CompactionOperation]


def _bounded(candidates: _Operations, rules: CompactionRules) -> _Operations:
    """Take candidates in order up to the one that reaches the limit, which is included: a plan is never empty."""
    planned = 0
    for count, operation in enumerate(candidates, 1):
        planned += operation.io_mb
        if planned >= rules.target_io_mb:
            return candidates[:count]
    return candidates


def _bounded_io(candidates: _Operations, rules: CompactionRules, _: date) -> _Operations:
    return _bounded(candidates, rules)


def _by_log_size(candidates: _Operations, rules: CompactionRules, _: date) -> _Operations:
    large = [o for o in candidates if o.log_bytes >= rules.min_log_bytes]
    return _bounded(sorted(large, key=lambda o: -o.log_bytes), rules)


def _by_log_count(candidates: _Operations, rules: CompactionRules, _: date) -> _Operations:
    many = [o for o in candidates if len(o.log_names) >= rules.min_log_files]
    return _bounded(sorted(many, key=lambda o: -len(o.log_names)), rules)


def _everything(candidates: _Operations, _rules: CompactionRules, _: date) -> _Operations:
    return candidates


def _by_day(candidates: _Operations, rules: CompactionRules, _: date) -> _Operations:
    newest = sorted({o.partition for o in candidates}, key=_day_order, reverse=True)[: rules.partitions]
    return [o for partition in newest for o in candidates if o.partition == partition]


def _recent(candidates: _Operations, rules: CompactionRules, today: date) -> _Operations:
    recent_operations = [o for o in candidates if not _is_old(o.partition, rules, today)]
    return sorted(recent_operations, key=lambda o: _day_order(o.partition), reverse=True)


def _old(candidates: _Operations, rules: CompactionRules, today: date) -> _Operations:
    old_operations = [o for o in candidates if _is_old(o.partition, rules, today)]
    return sorted(old_operations, key=lambda o: _day_order(o.partition), reverse=True)


_CHOOSE: dict[CompactionStrategy, Callable[[_Operations, CompactionRules, date], _Operations]] = {
    CompactionStrategy.LOG_FILE_SIZE_BASED: _by_log_size,
    CompactionStrategy.LOG_FILE_NUM_BASED: _by_log_count,
    CompactionStrategy.BOUNDED_IO: _bounded_io,
    CompactionStrategy.UNBOUNDED: _everything,
    CompactionStrategy.DAY_BASED: _by_day,
    CompactionStrategy.BOUNDED_PARTITION_AWARE: _recent,
    CompactionStrategy.UNBOUNDED_PARTITION_AWARE: _old,
}

#: 2026/01/31, 2026-01-31 or 20260131, each part possibly behind ``name=``.
_DAY = re.compile(r"(?:[^/=]*=)?(\d{4})[-/]?(?:[^/=]*=)?(\d{2})[-/]?(?:[^/=]*=)?(\d{2})", re.ASCII)


def _day_of(partition: str) -> date | None:
    match = _DAY.fullmatch(partition)
    try:
        return None if match is None else date(*map(int, match.groups()))
    except ValueError:
        return None


def _day_order(partition: str) -> tuple[bool, date, str]:
    """Return a sort key with the newest day last; partitions that are no days come before all days, by their text."""
    day = _day_of(partition)
    return (day is not None, day or date.min, partition)


def _is_old(partition: str, rules: CompactionRules, today: date) -> bool:
    """Return whether a partition is before the window of days; a partition that is no day is."""
    day = _day_of(partition)
    return day is None or (today - day).days > rules.partitions
