"""Compaction: merge the logs of file slices into new base files (docs/format.md, Compaction).

The plan names the slices; the executor merges a few of them at a time; nothing is visible before the instant completes.
:mod:`lakefmt._core.compaction.service` says in which order this happens, and what a dead compaction leaves.

Where the trigger asks for a compaction after every commit because none is ever made (a table that is only appended to, or whose
small files are rewritten), every commit would list the whole table to learn that there is no log. Once a listing has
shown none, the commits that completed since say whether one came.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from os import cpu_count
from time import perf_counter
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

from lakefmt._core.arguments import parse_member
from lakefmt._core.compaction.clean_run import planned_groups
from lakefmt._core.compaction.compact_merge import LATE_ROWS, SliceFiles, SliceMerge
from lakefmt._core.compaction.compact_plan import (
    CompactionPlan,
    CompactionRules,
    CompactionStrategy,
    CompactionTrigger,
    GroupKey,
    check_inputs,
    compaction_plan_record,
    discard_outputs,
    is_due,
    partitions_of,
    plan_compaction,
    read_plan,
    release_outputs,
    require_merge_on_read,
)
from lakefmt._core.compaction.operations import RewriteResult, operations_of
from lakefmt._core.compaction.service import PlanRun, load_for_service, run_pending, run_service, withdrawn_logs
from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import TableConfig, cdc_mode
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.cdc import cdc_paths, list_change_files
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.reader import BaseFileReader, stored_schema
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.names import parse_log_file
from lakefmt._core.schema import arrow_to_avro
from lakefmt._core.timeline.commit import LATE_ROWS_ENTRY, CommitMetadata, encode_commit
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.metadata_codec import BodyKind, encode_body
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.transactions.client import WriteAt, WriteClient, open_write_client
from lakefmt._core.transactions.instant import InstantTransaction, with_stored_entries
from lakefmt._core.values import InstantTime, WriteOperation, WriteStat, sum_of_known
from lakefmt.errors import CommitConflict, InstantNotPending, SnapshotExpired, WriterActive

if TYPE_CHECKING:
    from lakefmt._core.compaction.operations import RunOperations

__all__ = [
    "CompactionResult",
    "MergingService",
    "Moment",
    "check_no_earlier_write",
    "commits_to_look_at",
    "compaction_result",
    "compaction_rules",
    "has_no_logs",
    "moment_of",
    "plan_compaction_of",
    "remember_logs",
    "run_compaction",
]

#: Completed actions that bring no log back. Others may: a restore and a rollback show older file slices again.
_ACTIONS_WITHOUT_OLD_LOGS = COMMIT_ACTIONS | {Action.CLEAN, Action.SAVEPOINT}
_moments_without_logs: WeakKeyDictionary[BaseFileReader, Moment] = WeakKeyDictionary()
#: A slice is held in memory while it is merged, so only a few are merged at once.
_MOST_SLICES_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class CompactionResult(RewriteResult[CompactionPlan]):
    """What a compaction, or log compaction, did; prints as one line.

    Attributes:
        num_late: rows of the merged logs that changed nothing when they came, because a larger ordering value was stored by
            then; rows that a log compaction folded before are not among them. None: not known, as of a log compaction, and
            where rows that lose fill columns.
    """

    num_late: int | None = None

    def __str__(self) -> str:
        if self.completion_time is None:
            return str(self.plan)
        if self.plan.log:
            deletes = sum(stat.num_deletes for stat in self.files)
            return (
                f"log compact {self.instant}: {self.plan.num_logs:,} logs folded into {len(self.files):,}, "
                f"{self.num_rows:,} rows, {deletes:,} deletes, {self.bytes_written:,} bytes, {self.seconds:.3f} s"
            )
        return (
            f"compact {self.instant}: {self.plan.num_logs:,} logs merged into {len(self.files):,} base files, "
            f"{self.num_rows:,} rows{f', {self.num_late:,} late' if self.num_late else ''}, {self.bytes_written:,} bytes, "
            f"{self.seconds:.3f} s"
        )


def compaction_rules(settings: Settings) -> CompactionRules:
    """Return the rules that settings ask for.

    Raises:
        UnknownSetting: a strategy or trigger of that name does not exist.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> compaction_rules(resolve_settings({"hoodie.compact.inline.max.delta.commits": 3})).max_delta_commits
        3
    """
    return CompactionRules(
        strategy=parse_member(
            CompactionStrategy, settings.text("hoodie.compaction.strategy") or "", "compaction strategy"
        ),
        target_io_mb=settings.integer("hoodie.compaction.target.io"),
        min_log_bytes=settings.integer("hoodie.compaction.logfile.size.threshold"),
        min_log_files=settings.integer("hoodie.compaction.logfile.num.threshold"),
        partitions=settings.integer("hoodie.compaction.daybased.target.partitions"),
        trigger=parse_member(
            CompactionTrigger, settings.text("hoodie.compact.inline.trigger.strategy") or "", "compaction trigger"
        ),
        max_delta_commits=settings.integer("hoodie.compact.inline.max.delta.commits"),
        max_delta_seconds=settings.integer("hoodie.compact.inline.max.delta.seconds"),
        max_file_bytes=settings.integer("hoodie.parquet.max.file.size"),
    )


def plan_compaction_of(client: TableClient, options: Mapping[str, object] | None = None) -> CompactionPlan:
    """Return what :func:`run_compaction` would schedule; nothing is changed."""
    service = _CompactionService(open_write_client(client, options))
    return service.propose(load_for_service(service))


def run_compaction(
    client: TableClient,
    options: Mapping[str, object] | None = None,
    *,
    schedule: bool = False,
    run: str | None = None,
    force: bool = True,
    verify: bool = False,
    only: Collection[GroupKey] | None = None,
    notes: Mapping[str, str] | None = None,
    run_operations: RunOperations | None = None,
) -> CompactionResult:
    """Execute pending compactions, then plan one and execute it.

    Args:
        client: the table.
        options: settings of the call.
        schedule: only request a plan; the next compaction, or another engine's, executes it.
        run: only execute the pending compaction of this requested time.
        force: False asks the trigger of the settings first.
        verify: before it completes, read every new file and compare it with its slice.
        only: plan only these file groups, as (partition, file id); None: those that the strategy chooses.
        notes: extra metadata of the commits.
        run_operations: runs the operations, in other processes; None: threads of this one do.

    Raises:
        UnsupportedFeature: the table is not merge-on-read, or lakefmt does not know how it merges.
        MetadataTablePresent: the table advertises a metadata table.
        WriterActive: another process executes a compaction; on version 6 also when a write is pending.
        InstantNotFound: there is no pending compaction at `run`.
        CorruptFile: a plan or data file is damaged.
        LockUnavailable: the table lock could not be taken in time.
    """
    begun = perf_counter()
    service = _CompactionService(open_write_client(client, options), force, verify, only, notes or {}, run_operations)
    if run is not None:
        executed = run_pending(service, run)
        proposal = CompactionPlan(None) if executed is None else executed.plan
        return compaction_result(proposal, executed, (), perf_counter() - begun)
    service_run = run_service(service, schedule=schedule)
    return compaction_result(service_run.proposal, service_run.run, service_run.finished, perf_counter() - begun)


def compaction_result(
    proposal: CompactionPlan,
    run: PlanRun[CompactionPlan, CommitMetadata] | None,
    finished: tuple[InstantTime, ...],
    seconds: float,
) -> CompactionResult:
    """Return what a run of a compaction, or log compaction, did."""
    if run is None or run.completed is None or run.output is None:
        instant = None if run is None else run.instant
        return CompactionResult(instant, proposal, finished=finished, seconds=seconds)
    late = run.output.extra_metadata.get(LATE_ROWS_ENTRY)
    num_late = None if late is None else int(late)
    return CompactionResult(
        run.instant, proposal, run.completed.order_time, run.output.stats, finished, seconds, num_late
    )


@dataclass(frozen=True, slots=True)
class MergingService:
    """What compaction and log compaction have in common for the driver of services: their plans, and who may run them.

    Attributes:
        write_client: the table.
    """

    write_client: WriteClient

    def check_table(self, config: TableConfig) -> None:
        """Raise unless the table is merge-on-read."""
        require_merge_on_read(config)

    def encode(self, state: TableState, proposal: CompactionPlan) -> tuple[CompactionPlan, bytes] | None:
        """Return the plan and the content of its requested file; None: there is nothing to do."""
        if not proposal.operations:
            return None
        return proposal, encode_body(BodyKind.COMPACTION_PLAN, compaction_plan_record(proposal))

    def check_idle(self, state: TableState, pending: Instant) -> None:
        """Raise WriterActive when another process may be executing a pending instant."""
        self.write_client.at(state).check_not_at_work(pending)


@dataclass(frozen=True, slots=True)
class _CompactionService(MergingService):
    """What a compaction adds to the driver of services.

    Attributes:
        force: False asks the trigger of the settings first.
        verify: read every new file back before the compaction completes.
        only: plan these file groups only; None: those that the strategy chooses.
        notes: extra metadata of the commit.
        run_operations: runs the operations in other processes; None: in this one.
    """

    force: bool = True
    verify: bool = False
    only: Collection[GroupKey] | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    run_operations: RunOperations | None = None

    @property
    def action(self) -> Action:
        return Action.COMPACTION

    def propose(self, state: TableState) -> CompactionPlan:
        write_at = self.write_client.at(state)
        client, rules = self.write_client.client, compaction_rules(self.write_client.settings)
        table_at = client.at(state)
        now = client.clock.now()
        zone = client.writing_zone(state.config, state.timeline)
        due = is_due(state.timeline, rules, now, zone)
        if not (due or self.force):
            return CompactionPlan(rules, due=False)
        check_no_earlier_write(write_at)
        busy = frozenset(planned_groups(write_at))
        # A call looks in any case; a commit does not list a table whose commits say that there is nothing to merge.
        slices = [] if not self.force and has_no_logs(table_at) else table_at.slices()
        if slices:
            remember_logs(table_at, slices)
        if self.only is not None:
            slices = [file_slice for file_slice in slices if (file_slice.partition, file_slice.file_id) in self.only]
            rules = replace(rules, strategy=CompactionStrategy.UNBOUNDED)
        return plan_compaction(slices, busy, rules, now.astimezone(zone).date(), due=due)

    def read_pending(self, state: TableState, pending: Instant, lease: Lease) -> CompactionPlan | None:
        write_at = self.write_client.at(state)
        plan = read_plan(write_at, pending)
        if plan is None:
            lease.check()
            self.write_client.timeline(state.config).remove_pending(pending.time, Action.COMPACTION)
            return None
        check_inputs(write_at, pending, plan)
        return plan.without_logs(withdrawn_logs(write_at, plan.log_paths))

    def discard_attempt(self, state: TableState, time: InstantTime, plan: CompactionPlan) -> None:
        discard_outputs(self.write_client.at(state), time, partitions_of(plan))

    def execute(self, transaction: InstantTransaction, state: TableState, plan: CompactionPlan) -> CommitMetadata:
        client = self.write_client.client
        columns = client.at(state).columns_at(transaction.time).state
        table_at = client.at(columns)
        schema = table_at.schema()
        merge = SliceMerge(
            client,
            state,
            self.write_client.settings,
            transaction.time,
            arrow_to_avro(stored_schema(state.config, schema), state.config.name, with_meta=True),
            attempt=self.write_client.attempt_number,
            verify=self.verify,
        )
        notes = {**self.notes, **table_at.schema_notes(schema)}
        if self.run_operations is None:
            stats = _merge_slices(merge, plan)
        else:
            parts = self.run_operations(operations_of(merge, plan, self.write_client.owner))
            stats = tuple(stat for part in parts for stat in part)
        num_late = sum_of_known(cast("int | None", stat.extra[LATE_ROWS]) for stat in stats)
        if num_late is not None:
            notes[LATE_ROWS_ENTRY] = str(num_late)
        plain = (replace(stat, extra={n: v for n, v in stat.extra.items() if n != LATE_ROWS}) for stat in stats)
        return CommitMetadata(WriteOperation.COMPACT, tuple(plain), extra_metadata=notes, compacted=True)

    def finish_output(
        self, transaction: InstantTransaction, state: TableState, plan: CompactionPlan, output: CommitMetadata
    ) -> tuple[bytes, CommitMetadata]:
        lost = [stat.path for stat in output.stats if self.write_client.client.store.info(stat.path) is None]
        if lost:
            # A process that took this one for dead has deleted them, and executes the plan itself.
            raise InstantNotPending(
                f"the compaction {transaction.time} was taken over by another process: {lost[0]} is gone"
            )
        _check_written_bases(self.write_client.at(state), transaction.time, output)
        output = with_stored_entries(self.write_client.client.at(state), output, self.write_client.settings)
        return encode_commit(output, state.config.version, replace=False), output

    def release_attempt(self, state: TableState, time: InstantTime, plan: CompactionPlan) -> None:
        release_outputs(self.write_client.at(state), time, plan)


def check_no_earlier_write(write_at: WriteAt) -> None:
    """Raise when a write is pending on a table of version 6.

    There a log names its base's instant only: a write that is pending now may add to a slice that is being merged.

    Raises:
        WriterActive: a write is pending.
    """
    if write_at.config.version.layout > 1:
        return
    for pending in write_at.timeline.pending:
        if pending.action in COMMIT_ACTIONS:
            life = write_at.write_client.writer_liveness(write_at.config, write_at.timeline, pending)
            raise WriterActive(
                f"{pending} is pending ({life.reason}), and a service that merges logs of a version 6 table may not begin before it "
                "ends: try again later; of a dead writer roll it back"
            )


def _merge_slices(merge: SliceMerge, plan: CompactionPlan) -> tuple[WriteStat, ...]:
    """Merge the slices, a few at a time; the stats are in the order of the plan."""
    bases, logs = merge.client.storage_listing(merge.state.config).files(partitions_of(plan))
    files: dict[str, SliceFiles] = {}
    for base in bases:
        files.setdefault(base.partition, ({}, {}))[0][base.name] = base
    for log in logs:
        files.setdefault(log.partition, ({}, {}))[1][log.name] = log
    max_threads = merge.settings.integer("lakefmt.write.threads") or _MOST_SLICES_AT_ONCE
    threads = max(1, min(max_threads, cpu_count() or 1, len(plan.operations)))
    if threads == 1:
        return tuple(merge.run(n, o, files.get(o.partition, ({}, {}))) for n, o in enumerate(plan.operations))
    with ThreadPoolExecutor(threads) as pool:
        futures = [
            pool.submit(merge.run, number, operation, files.get(operation.partition, ({}, {})))
            for number, operation in enumerate(plan.operations)
        ]
        try:
            return tuple(future.result() for future in futures)
        except BaseException:
            for waiting in futures:
                waiting.cancel()
            raise


def _check_written_bases(write_at: WriteAt, time: InstantTime, commit: CommitMetadata) -> None:
    """Delete what another attempt has written; refuse to hide base files that were committed after the plan was made."""
    stats_by_group = {(stat.partition_path, stat.file_id): stat for stat in commit.stats}
    bases, _ = write_at.client.storage_listing(write_at.config).files(
        sorted({stat.partition_path for stat in commit.stats})
    )
    strays = []
    for base in bases:
        stat = stats_by_group.get((base.partition, base.file_id))
        if base.instant == time and (stat is None or base.path != stat.path):
            strays.append(base.path)  # a second base file of one file group and instant
        elif stat is None or base.instant >= time or not write_at.timeline.is_committed(base.instant):
            continue
        elif stat.prev_commit == "null" or base.instant > stat.prev_commit:
            raise CommitConflict(
                f"the compaction {time} would hide {base.path}, which was committed after it was planned: abandon it "
                "and compact again"
            )
    if cdc_mode(write_at.config.properties) is not None:
        named_paths = {path for stat in commit.stats for path in cdc_paths(stat)}
        change_files = list_change_files(write_at.client.store, sorted({stat.partition_path for stat in commit.stats}))
        strays += [file.path for file in change_files if file.instant == time and file.path not in named_paths]
    write_at.client.store.delete(strays)


# -------------------------------------------------------------------------------------------- whether there may be logs


@dataclass(frozen=True, slots=True)
class Moment:
    """A timeline at which the latest file slices had no logs.

    Attributes:
        completed: time and action of the completed instants.
        pending: requested times of the others.
        newest: the latest requested time of a completed commit.
    """

    completed: frozenset[tuple[InstantTime, Action]]
    pending: frozenset[InstantTime]
    newest: InstantTime


def moment_of(timeline: Timeline) -> Moment:
    """Return what is remembered of a timeline. Pure."""
    completed = frozenset((each.time, each.action) for each in timeline.completed)
    newest = max((each.time for each in timeline.commits), default=InstantTime(""))
    return Moment(completed, timeline.pending_times, newest)


def commits_to_look_at(moment: Moment, timeline: Timeline) -> tuple[Instant, ...] | None:
    """Return the commits that completed after a moment; None: the timeline does not tell what has happened since. Pure.

    Args:
        moment: of an earlier timeline of the same table.
        timeline: the active timeline now.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> names = [f"2026010100000{n}000_2026010100000{n}500.deltacommit" for n in range(3)]
        >>> moment = moment_of(timeline_from_names(names[:2], 2))
        >>> [each.time for each in commits_to_look_at(moment, timeline_from_names(names, 2)) or ()]
        ['20260101000002000']
    """
    first = timeline.first_active
    if first is None or first > moment.newest:
        return None  # commits that completed after the moment may be archived
    active = {each.time for each in timeline.instants}
    if any(time < first and time not in active for time in moment.pending):
        return None  # the same
    new = [each for each in timeline.completed if (each.time, each.action) not in moment.completed]
    if any(each.action not in _ACTIONS_WITHOUT_OLD_LOGS for each in new):
        return None
    return tuple(each for each in new if each.action in COMMIT_ACTIONS)


def has_no_logs(table_at: TableAt) -> bool:
    """Return whether this handle knows, without a listing, that no latest file slice has a log.

    Args:
        table_at: the table, at one moment.
    """
    moment = _moments_without_logs.get(table_at.client.reader)
    commits = None if moment is None else commits_to_look_at(moment, table_at.timeline)
    if commits is None:
        return False
    try:
        if any(_writes_logs(table_at, commit) for commit in commits):
            return False
    except SnapshotExpired:  # undone meanwhile
        return False
    _moments_without_logs[table_at.client.reader] = moment_of(table_at.timeline)
    return True


def remember_logs(table_at: TableAt, slices: Iterable[FileSlice]) -> None:
    """Remember what a listing has shown.

    Args:
        table_at: the table, at one moment.
        slices: the latest file slice of every file group.
    """
    if any(each.logs for each in slices):
        _moments_without_logs.pop(table_at.client.reader, None)
    else:
        _moments_without_logs[table_at.client.reader] = moment_of(table_at.timeline)


def _writes_logs(table_at: TableAt, commit: Instant) -> bool:
    stats = table_at.commit_metadata(commit).stats
    return any(parse_log_file(stat.file_name) is not None for stat in stats)
