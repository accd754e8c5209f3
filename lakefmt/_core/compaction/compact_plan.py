"""Which file slices a compaction merges, when it is due, and its plan in the requested file (docs/format.md, Compaction).

A candidate is a file slice with at least one log whose file group is in no pending plan. A strategy, named as in Hudi,
orders the candidates and takes as many as its limit allows; a trigger decides whether a compaction is due.

The content of the file is encoded and checked. Of a pending compaction: whether a process executes it, its plan, its output, and
its withdrawal (effects).
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, tzinfo
from typing import Any

from lakefmt._core.compaction.service import find_pending, withdrawn_logs
from lakefmt._core.config.table_config import TableConfig, cdc_mode, check_readable, merge_rule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.cdc import list_change_files
from lakefmt._core.filegroups.missing_completions import missing_completion
from lakefmt._core.filegroups.model import FileSlice, join_path
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.formats.names import parse_base_file, parse_log_file
from lakefmt._core.notebook import NotebookText
from lakefmt._core.storage.api import ObjectStore, check_name, remove_abandoned
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import Action, Instant, State, check_transition, parse_instant_time
from lakefmt._core.timeline.markers import remove_markers
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body
from lakefmt._core.timeline.rollback import relative_path
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.transactions.client import WriteAt, open_write_client
from lakefmt._core.transactions.rollback_executor import check_rollback_allowed
from lakefmt._core.values import FileId, InstantTime, PartitionPath, TableType, check_instant_time
from lakefmt.errors import CorruptFile, InvalidInputError, ObjectNotFound, UnsupportedFeature

__all__ = [
    "CompactionOperation",
    "CompactionPlan",
    "CompactionRules",
    "CompactionStrategy",
    "CompactionTrigger",
    "abandon_compaction",
    "check_inputs",
    "checked_log_name",
    "compaction_plan_record",
    "discard_outputs",
    "is_due",
    "name_in_partition",
    "parse_compaction_plan",
    "partitions_of",
    "plan_compaction",
    "plan_operation",
    "read_plan",
    "read_plan_of",
    "release_outputs",
    "require_merge_on_read",
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


#: Version 2 of a plan holds names only; version 1 held whole paths.
_PLAN_VERSION = 2
#: Hudi's strategy in the plan of a log compaction; releases before 1.0 load the class by its name.
_LOG_COMPACTION_STRATEGY = {
    "compactorClassName": "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper",
    "strategyParams": {},
    "version": 1,
}
_MAX_STAMP_BYTES = 64 * 1024


def compaction_plan_record(plan: CompactionPlan) -> dict[str, object]:
    """Return the record of a requested compaction.

    Example:
        >>> compaction_plan_record(CompactionPlan(None))["version"]
        2
    """
    return {
        "operations": [
            {
                "baseInstantTime": operation.base_instant,
                "deltaFilePaths": list(operation.log_names),
                "dataFilePath": operation.base_name,
                "fileId": operation.file_id,
                "partitionPath": operation.partition,
                # Hudi reads every metric without a check: a missing one is a null pointer there.
                "metrics": dict(operation.metrics),
                "bootstrapFilePath": None,
            }
            for operation in plan.operations
        ],
        "extraMetadata": None,
        "version": _PLAN_VERSION,
        "strategy": _LOG_COMPACTION_STRATEGY if plan.log else None,
        "preserveHoodieMetadata": plan.log,
        "missingSchedulePartitions": None,
    }


def parse_compaction_plan(store: ObjectStore, record: Mapping[str, Any], what: str) -> CompactionPlan:
    """Return the plan in the record of a requested compaction, whichever engine wrote it.

    Args:
        store: the table; absolute paths must be below it.
        record: the decoded body.
        what: name of the file in errors.

    Raises:
        CorruptFile: it names something that is no base file or log of its file group, or a group twice.
        UnsafePath: it names something outside the table.
        UnsupportedFeature: an operation has a bootstrap file.
    """
    operations = tuple(_parsed_operation(store, entry, what) for entry in record.get("operations") or ())
    groups = {(o.partition, o.file_id) for o in operations}
    if len(groups) != len(operations):
        raise CorruptFile(f"{what} plans a file group twice")
    return CompactionPlan(None, operations)


def _parsed_operation(store: ObjectStore, entry: Mapping[str, Any], what: str) -> CompactionOperation:
    if entry.get("bootstrapFilePath"):
        raise UnsupportedFeature(f"{what} merges a bootstrap file: bootstrap tables are not supported")
    partition = PartitionPath(str(entry.get("partitionPath") or ""))
    if partition:
        check_name(partition)
    file_id = FileId(str(entry.get("fileId") or ""))
    try:
        instant = check_instant_time(str(entry.get("baseInstantTime") or ""))
    except InvalidInputError as error:
        raise CorruptFile(f"{what} plans a slice of {error}") from None
    base_name = _planned_name(store, partition, entry.get("dataFilePath"), what)
    logs = [_planned_name(store, partition, path, what) for path in entry.get("deltaFilePaths") or ()]
    _check_base_name(base_name, file_id, instant, what)
    return CompactionOperation(
        partition,
        file_id,
        instant,
        base_name,
        tuple(checked_log_name(name, file_id, what) for name in logs),
        {str(name): float(value) for name, value in (entry.get("metrics") or {}).items()},
    )


def _planned_name(store: ObjectStore, partition: str, path: object, what: str) -> str | None:
    """Return a file's name in its partition; plans of version 1 hold whole paths."""
    file_path = str(path or "")
    if "/" not in file_path:
        return check_name(file_path) if file_path else None
    return name_in_partition(store, partition, file_path, what)


def name_in_partition(store: ObjectStore, partition: str, path: str, what: str) -> str:
    """Return the name of a file in its partition.

    Raises:
        CorruptFile: it is in another partition.
        UnsafePath: it is not in the table.
    """
    inside, _, name = relative_path(store, path).rpartition("/")
    if inside != partition:
        raise CorruptFile(f"{what} names {path!r}, which is not in partition {partition!r}")
    return name


def _check_base_name(name: str | None, file_id: FileId, instant: InstantTime, what: str) -> None:
    base = None if name is None else parse_base_file(name)
    if name is not None and (base is None or base.file_id != file_id or base.instant != instant):
        raise CorruptFile(f"{what} names {name!r}, which is no base file of group {file_id!r} at {instant}")


def checked_log_name(name: str | None, file_id: FileId, what: str) -> str:
    """Return the name of a log of a file group.

    Raises:
        CorruptFile: it is no such name.
    """
    log = None if name is None else parse_log_file(name)
    if name is None or log is None or log.file_id != file_id or log.is_cdc:
        raise CorruptFile(f"{what} names {name!r}, which is no log of file group {file_id!r}")
    return name


# ------------------------------------------------------------------------------------------------- a pending compaction


def abandon_compaction(
    client: TableClient, instant: str, options: Mapping[str, object] | None = None, *, force: bool = False
) -> bool:
    """Withdraw a pending compaction: delete what it wrote, and its plan where nothing depends on the plan.

    Args:
        client: the table.
        instant: its requested time.
        options: settings of the call.
        force: also when its process may be alive, or when what it wrote is the only copy of its rows.

    Returns:
        True when the plan was removed; False when it had to stay: on version 6, logs that were written since are named by
        its time, and other engines would not find their slice without it.

    Raises:
        InstantNotFound: there is no pending compaction at `instant`.
        WriterActive: its process may be alive.
        CompletedFileMissing: it was complete, and what it wrote is the only copy of its rows.
    """
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        config = client.load_config()
        require_merge_on_read(config)
        state = TableState(config, write_client.timeline(config).load())
        pending = find_pending(state.timeline, instant, Action.COMPACTION)
        if not force:
            write_client.at(state).check_not_at_work(pending)
        plan = read_plan(write_client.at(state), pending)
        if not force:
            check_inputs(write_client.at(state), pending, plan)
        partitions = () if plan is None else partitions_of(plan)
        check_rollback_allowed(write_client, config, [pending])
        lease.check()
        discard_outputs(write_client.at(state), pending.time, partitions)
        client.store.delete([heartbeat_name(pending.time)])
        _, logs = client.storage_listing(config).files(partitions)
        if config.version.layout == 1 and any(log.instant == pending.time for log in logs):
            _back_to_requested(write_client.at(state), pending)
            return False
        write_client.timeline(config).remove_pending(pending.time, Action.COMPACTION)
    return True


def release_outputs(write_at: WriteAt, time: InstantTime, plan: CompactionPlan) -> None:
    """Delete what a failed attempt of this process wrote; the plan becomes pending at once, not when the heartbeat expires.

    Not after a failure of the store: the completed file may still appear.
    """
    with write_at.lock.hold() as lease:
        now = TableState(write_at.config, write_at.write_client.timeline(write_at.config).load())
        pending = find_pending(now.timeline, time, Action.COMPACTION)
        name = heartbeat_name(time)
        if json.loads(write_at.client.store.read(name, _MAX_STAMP_BYTES))["owner"] != write_at.owner:
            return
        lease.check()
        discard_outputs(write_at.write_client.at(now), time, partitions_of(plan))
        _back_to_requested(write_at.write_client.at(now), pending)
        write_at.client.store.delete([name])


def require_merge_on_read(config: TableConfig) -> None:
    """Raise when lakefmt cannot compact the table.

    Raises:
        UnsupportedFeature: it is not merge-on-read, or merges by a rule that lakefmt does not know.
        MetadataTablePresent: it advertises a metadata table.
    """
    check_readable(config)
    if config.table_type is not TableType.MERGE_ON_READ:
        raise UnsupportedFeature("only merge-on-read tables have logs to compact; this one is copy-on-write")
    if cdc_mode(config.properties) is not None and not config.stores_every_column:
        raise UnsupportedFeature(
            "hoodie.table.cdc.enabled=true: changes are not written for tables without meta columns or with dropped "
            "partition columns, and a compaction would lose them"
        )
    merge_rule(config)


def check_inputs(write_at: WriteAt, pending: Instant, plan: CompactionPlan | None) -> None:
    """Raise when what a pending compaction wrote is the only copy of its rows: it was complete, and its inputs were cleaned.

    Raises:
        CompletedFileMissing: its base files exist, and files that it merges do not.
    """
    if plan is None:
        return
    bases, logs = write_at.client.storage_listing(write_at.config).files(partitions_of(plan))
    groups = {(file.partition, file.file_id) for file in bases if file.instant == pending.time}
    there = {file.path for file in bases} | {log.path for log in logs}
    merged = {path for each in plan.operations if (each.partition, each.file_id) in groups for path in each.paths}
    lost = merged - there
    if lost and lost - withdrawn_logs(write_at, plan.log_paths):
        raise missing_completion(write_at.state, pending)


def read_plan(write_at: WriteAt, pending: Instant) -> CompactionPlan | None:
    """Return the plan of a pending compaction, None when its process died before it was written.

    Raises:
        CorruptFile: the plan is damaged, or names files of other file groups.
        UnsafePath: it names something outside the table.
    """
    requested = next((f for f in write_at.timeline.files_of(pending) if f.state is State.REQUESTED), None)
    return None if requested is None else read_plan_of(write_at.client, write_at.config, requested)


def read_plan_of(client: TableClient, config: TableConfig, requested: Instant) -> CompactionPlan | None:
    """Return the plan in the requested file of a compaction, None when the file is missing or empty.

    Raises:
        CorruptFile: the plan is damaged, or names files of other file groups.
        UnsafePath: it names something outside the table.
    """
    try:
        body = client.timeline_store(config).read_body(requested)
    except ObjectNotFound:
        body = b""
    if not body:
        return None
    record = decode_body(BodyKind.COMPACTION_PLAN, body, what=requested.file_name)
    return parse_compaction_plan(client.store, record, requested.file_name)


def partitions_of(plan: CompactionPlan) -> tuple[PartitionPath, ...]:
    """Return the partitions of a plan, each once.

    Example:
        >>> partitions_of(CompactionPlan(None))
        ()
    """
    return tuple(dict.fromkeys(operation.partition for operation in plan.operations))


def discard_outputs(write_at: WriteAt, time: InstantTime, partitions: tuple[PartitionPath, ...]) -> None:
    """Delete the base files and change files that an attempt at a compaction wrote; call under the table lock."""
    store = write_at.client.store
    bases, _ = write_at.client.storage_listing(write_at.config).files(partitions)
    changes = () if cdc_mode(write_at.config.properties) is None else list_change_files(store, partitions)
    paths = [file.path for file in (*bases, *changes) if file.instant == time]
    store.delete(paths)
    for partition in partitions:
        remove_abandoned(store, partition, recursive=False)
    remove_markers(store, time)


def _back_to_requested(write_at: WriteAt, pending: Instant) -> None:
    """Move a compaction from inflight back to requested."""
    for file in write_at.timeline.files_of(pending):
        if file.state is State.INFLIGHT:
            check_transition(Action.COMPACTION, State.INFLIGHT, State.REQUESTED)
            write_at.write_client.timeline(write_at.config).remove_files([file])
