"""Log compaction: fold the logs of a file slice into one log (docs/format.md, Compaction).

A candidate is a slice whose logs have at least the threshold of visible blocks and whose file group is in no pending plan.
Hudi counts log files first, and blocks only when there are few files; counting visible blocks avoids that a slice is
merged again right after it was merged.

The new log says what the folded ones say together and names their instants; readers take it in their place. It completes
as a deltacommit, and no row changes. A plan of a log compaction is withdrawn, not executed again, when its process died
or a compaction was planned after it: planning anew is cheap, and Hudi does the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING

from lakefmt._core.compaction.clean_run import planned_groups
from lakefmt._core.compaction.compact_merge import LogMerge
from lakefmt._core.compaction.compact_plan import (
    CompactionPlan,
    GroupKey,
    partitions_of,
    plan_operation,
    read_plan,
    since_last_compaction,
)
from lakefmt._core.compaction.compact_run import (
    CompactionResult,
    MergingService,
    check_no_earlier_write,
    compaction_result,
)
from lakefmt._core.compaction.operations import operations_of
from lakefmt._core.compaction.service import find_pending, load_for_service, run_pending, run_service, withdrawn_logs
from lakefmt._core.config.table_config import TableConfig, merge_rule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.log_reader import select_log_blocks
from lakefmt._core.filegroups.merged_slice import check_can_merge
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.schema import arrow_to_avro
from lakefmt._core.storage.api import remove_abandoned
from lakefmt._core.timeline.commit import CommitMetadata, encode_commit
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.markers import list_marked, remove_markers
from lakefmt._core.timeline.rollback import plan_rollback_of
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.transactions.client import WriteAt, WriteClient, open_write_client
from lakefmt._core.transactions.instant import InstantTransaction, with_stored_entries
from lakefmt._core.transactions.rollback_executor import check_rollback_allowed
from lakefmt._core.values import InstantTime, PartitionPath, WriteOperation, WriteStat
from lakefmt.errors import CommitConflict, InstantNotPending

if TYPE_CHECKING:
    from lakefmt._core.compaction.operations import RunOperations

__all__ = [
    "LogFacts",
    "abandon_log_compaction",
    "find_newer_compaction",
    "is_log_compaction_due",
    "plan_log_compaction",
    "plan_log_compaction_of",
    "run_log_compaction",
]

_LOG_COMPACTION = Action.LOG_COMPACTION

# ------------------------------------------------------------------------------------------------------------- planning


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Facts about the blocks of a slice's logs.

    Attributes:
        num_blocks: visible blocks.
        num_instants: number of instants that wrote them; blocks of one instant are not merged.
        is_partial: whether a block holds only some columns of the table; it cannot be merged without the base file.
    """

    num_blocks: int
    num_instants: int
    is_partial: bool = False


def plan_log_compaction(
    slices: Iterable[FileSlice],
    facts: Mapping[GroupKey, LogFacts],
    busy: frozenset[GroupKey],
    threshold: int,
    *,
    max_file_bytes: int = 0,
    due: bool = True,
) -> CompactionPlan:
    """Return what a log compaction merges.

    Args:
        slices: the latest committed slice of every file group.
        facts: for slices that have logs, by (partition, file id).
        busy: file groups in a pending compaction, log compaction or clustering plan.
        threshold: number of blocks from which on a slice is merged.
        max_file_bytes: expected size of a base file where there is none, for the metrics of the plan.
        due: from :func:`is_log_compaction_due`; it is passed on.

    Example:
        >>> from lakefmt._core.filegroups.model import LogFile
        >>> log = LogFile("p", ".f-0_20260101000000000.log.1_0-0-0", "f-0", "20260101000000000", 1, 9)
        >>> file_slice = FileSlice("p", "f-0", "20260101000000000", None, (log,))
        >>> print(plan_log_compaction([file_slice], {("p", "f-0"): LogFacts(2, 2)}, frozenset(), 2))
        log compact: 1 slices, 1 logs, 9 log bytes
          p: no base file + 1 logs
    """
    operations = []
    skipped = 0
    for file_slice in sorted(slices, key=lambda s: (s.partition, s.file_id)):
        group = (file_slice.partition, file_slice.file_id)
        slice_facts = facts.get(group)
        if slice_facts is None or group in busy or slice_facts.is_partial:
            continue
        if slice_facts.num_blocks >= threshold and slice_facts.num_instants > 1:
            operations.append(plan_operation(file_slice, max_file_bytes))
        else:
            skipped += 1
    return CompactionPlan(None, tuple(operations), skipped, due, log=True)


def is_log_compaction_due(timeline: Timeline, threshold: int) -> bool:
    """Return whether there are enough deltacommits since the last compaction and log compaction, counted as Hudi does.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> names = [f"2026010100000{n}000_2026010100000{n}500.deltacommit" for n in range(3)]
        >>> folded = ["20260101000001000.logcompaction.requested"]
        >>> [is_log_compaction_due(timeline_from_names(n, 2), 3) for n in (names, names + folded)]
        [True, False]
    """
    if any(i.action is Action.LOG_COMPACTION for i in timeline.pending):
        return False
    commits, _ = since_last_compaction(timeline)
    last = max((i.time for i in timeline.commits if _was_log_compaction(timeline, i)), default="")
    return min(commits, sum(_is_deltacommit(i) and i.order_time > last for i in timeline.commits)) >= threshold


def _is_deltacommit(instant: Instant) -> bool:
    return instant.action is Action.DELTA_COMMIT


def _was_log_compaction(timeline: Timeline, instant: Instant) -> bool:
    """Return whether a deltacommit was a log compaction, by its requested file."""
    return _is_deltacommit(instant) and any(f.action is Action.LOG_COMPACTION for f in timeline.files_of(instant))


def find_newer_compaction(timeline: Timeline, time: InstantTime) -> Instant | None:
    """Return a compaction, pending or done, that was planned after a log compaction; None when there is none.

    Hudi gives a log compaction up then: what it merged is in a new base file, or will be, and its log would lie on top.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> view = timeline_from_names(["20260101000000700.compaction.requested"], 2)
        >>> [find_newer_compaction(view, time) is None for time in ("20260101000000600", "20260101000000800")]
        [False, True]
    """
    compactions = [i for i in timeline.pending if i.action is Action.COMPACTION]
    compactions += [i for i in timeline.commits if i.action is Action.COMMIT]
    return min((i for i in compactions if i.time > time), key=lambda i: i.time, default=None)


# -------------------------------------------------------------------------------------------------------------- running


def plan_log_compaction_of(client: TableClient, options: Mapping[str, object] | None = None) -> CompactionPlan:
    """Return what :func:`run_log_compaction` would schedule; nothing is changed."""
    service = _LogCompactionService(open_write_client(client, options))
    return service.propose(load_for_service(service))


def run_log_compaction(
    client: TableClient,
    options: Mapping[str, object] | None = None,
    *,
    schedule: bool = False,
    run: str | None = None,
    force: bool = True,
    run_operations: RunOperations | None = None,
) -> CompactionResult:
    """Execute pending log compactions, then plan one and execute it.

    Args:
        client: the table.
        options: settings of the call.
        schedule: only request a plan; the next log compaction, or another engine's, executes it.
        run: only execute the pending log compaction of this requested time.
        force: False asks first whether enough deltacommits came since the last one.
        run_operations: runs the operations, in other processes; None: threads of this one do.

    Raises:
        UnsupportedFeature: the table is not merge-on-read, or its logs cannot be merged without the base file.
        MetadataTablePresent: the table advertises a metadata table.
        WriterActive: another process executes a log compaction; on version 6 also when a write is pending.
        CommitConflict: a compaction was planned since; the log compaction is withdrawn.
        InstantNotFound: there is no pending log compaction at `run`.
        LockUnavailable: the table lock could not be taken in time.
    """
    begun = perf_counter()
    service = _LogCompactionService(open_write_client(client, options), force, run_operations)
    if run is not None:
        executed = run_pending(service, run)
        proposal = CompactionPlan(None, log=True) if executed is None else executed.plan
        return compaction_result(proposal, executed, (), perf_counter() - begun)
    service_run = run_service(service, schedule=schedule)
    return compaction_result(service_run.proposal, service_run.run, service_run.finished, perf_counter() - begun)


@dataclass(frozen=True, slots=True)
class _LogCompactionService(MergingService):
    """What a log compaction adds to the driver of services.

    Attributes:
        force: False asks first whether enough deltacommits came since the last log compaction.
        run_operations: runs the operations in other processes; None: in this one.
    """

    force: bool = True
    run_operations: RunOperations | None = None

    @property
    def action(self) -> Action:
        return _LOG_COMPACTION

    def propose(self, state: TableState) -> CompactionPlan:
        write_client = self.write_client
        write_at = write_client.at(state)
        check_can_merge(merge_rule(state.config))
        threshold = write_client.settings.integer("hoodie.log.compaction.blocks.threshold")
        due = is_log_compaction_due(state.timeline, threshold)
        if not (due or self.force):
            return CompactionPlan(None, due=False, log=True)
        check_no_earlier_write(write_at)
        busy = frozenset(planned_groups(write_at))
        slices = [file_slice for file_slice in write_client.client.at(state).slices() if file_slice.logs]
        facts = {}
        for file_slice in slices:
            if (file_slice.partition, file_slice.file_id) not in busy:
                blocks = select_log_blocks(write_client.client.store, file_slice, state.timeline)
                facts[file_slice.partition, file_slice.file_id] = LogFacts(
                    len(blocks),
                    len({placed.block.instant_time for placed in blocks}),
                    any(placed.block.is_partial for placed in blocks),
                )
        max_bytes = write_client.settings.integer("hoodie.parquet.max.file.size")
        return plan_log_compaction(slices, facts, busy, threshold, max_file_bytes=max_bytes, due=due)

    def read_pending(self, state: TableState, pending: Instant, lease: Lease) -> CompactionPlan | None:
        write_at = self.write_client.at(state)
        plan = read_plan(write_at, pending)
        newer_compaction = find_newer_compaction(state.timeline, pending.time)
        if plan is None or newer_compaction is not None or pending.state is not State.REQUESTED:
            _withdraw_log_compaction(write_at, pending, plan, lease)
            return None
        plan = plan.without_logs(withdrawn_logs(write_at, plan.log_paths))
        return replace(plan, log=True)

    def discard_attempt(self, state: TableState, time: InstantTime, plan: CompactionPlan) -> None:
        return  # an attempt that wrote anything was withdrawn

    def execute(self, transaction: InstantTransaction, state: TableState, plan: CompactionPlan) -> CommitMetadata:
        client = self.write_client.client
        columns = client.at(state).columns_at(transaction.time).state
        table_at = client.at(columns)
        schema = table_at.schema()
        schema_text = arrow_to_avro(schema, state.config.name, with_meta=True)
        merge = LogMerge(
            client, state, self.write_client.settings, transaction.time, schema_text, self.write_client.attempt_number
        )
        notes = table_at.schema_notes(schema)
        if self.run_operations is None:
            stats = merge.run(plan)
        else:
            parts = self.run_operations(operations_of(merge, plan, self.write_client.owner))
            stats = tuple(stat for part in parts for stat in part)
        return CommitMetadata(WriteOperation.LOG_COMPACT, stats, extra_metadata=notes)

    def finish_output(
        self, transaction: InstantTransaction, state: TableState, plan: CompactionPlan, output: CommitMetadata
    ) -> tuple[bytes, CommitMetadata]:
        time = transaction.time
        lost = [stat.path for stat in output.stats if self.write_client.client.store.info(stat.path) is None]
        if lost:
            raise InstantNotPending(f"the log compaction {time} was withdrawn by another process: {lost[0]} is gone")
        newer = find_newer_compaction(state.timeline, time)
        if newer is not None:
            raise CommitConflict(
                f"the log compaction {time} is withdrawn: {newer} would leave its logs on top; do it again"
            )
        if state.config.version.layout == 1:
            _check_no_newer_logs(self.write_client.at(state), time, plan, output.stats)
        output = with_stored_entries(self.write_client.client.at(state), output, self.write_client.settings)
        return encode_commit(output, state.config.version, replace=False), output

    def release_attempt(self, state: TableState, time: InstantTime, plan: CompactionPlan) -> None:
        """Withdraw this process's own attempt, or delete what is left of it when another process has withdrawn it."""
        with self.write_client.lock.hold() as lease:
            now = load_for_service(self)
            pending = [i for i in now.timeline.pending if i.action is _LOG_COMPACTION and i.time == time]
            if pending:
                _withdraw_log_compaction(self.write_client.at(now), pending[0], plan, lease)
            elif not now.timeline.is_committed(time):
                _discard_logs(self.write_client, now.config, time, partitions_of(plan))


def abandon_log_compaction(
    client: TableClient, instant: str, options: Mapping[str, object] | None = None, *, force: bool = False
) -> None:
    """Withdraw a pending log compaction: delete what it wrote, and its plan.

    Args:
        client: the table.
        instant: its requested time.
        options: settings of the call.
        force: also when its process may be alive.

    Raises:
        InstantNotFound: there is no pending log compaction at `instant`.
        WriterActive: its process may be alive.
    """
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        state = load_for_service(_LogCompactionService(write_client))
        pending = find_pending(state.timeline, instant, _LOG_COMPACTION)
        if not force:
            write_client.at(state).check_not_at_work(pending)
        _withdraw_log_compaction(write_client.at(state), pending, read_plan(write_client.at(state), pending), lease)


def _withdraw_log_compaction(write_at: WriteAt, pending: Instant, plan: CompactionPlan | None, lease: Lease) -> None:
    """Delete what a log compaction wrote, then its plan; call under the table lock."""
    store, partitions = write_at.client.store, () if plan is None else partitions_of(plan)
    check_rollback_allowed(write_at.write_client, write_at.config, [pending])
    lease.check()
    _discard_logs(write_at.write_client, write_at.config, pending.time, partitions)
    store.delete([heartbeat_name(pending.time)])
    write_at.write_client.timeline(write_at.config).remove_pending(pending.time, _LOG_COMPACTION)


def _discard_logs(
    write_client: WriteClient, config: TableConfig, time: InstantTime, partitions: tuple[PartitionPath, ...]
) -> None:
    """Delete the logs of an attempt; markers name all of them, because a marker is written before its file."""
    store, layout = write_client.client.store, config.version.layout
    target = Instant(time, _LOG_COMPACTION, State.INFLIGHT)
    plan = plan_rollback_of(store, target, layout, list_marked(store, time) or ())
    store.delete(name for names in plan.files.values() for name in names)
    for partition in partitions:
        remove_abandoned(store, partition, recursive=False)
    remove_markers(store, time)


def _check_no_newer_logs(
    write_at: WriteAt, time: InstantTime, plan: CompactionPlan, stats: tuple[WriteStat, ...]
) -> None:
    """Raise when newer logs of version 6 are there.

    In version 6 the number in a log's name orders it: readers without log compaction would take the new log for newer.

    Raises:
        CommitConflict: a log was written since the plan was made.
    """
    merged_names = {name for operation in plan.operations for name in operation.log_names}
    merged_names |= {stat.path.rpartition("/")[2] for stat in stats}
    groups = {(o.partition, o.file_id) for o in plan.operations}
    for file_slice in write_at.slices(partitions_of(plan)):
        newer_logs = [log.path for log in file_slice.logs if log.name not in merged_names]
        if newer_logs and (file_slice.partition, file_slice.file_id) in groups:
            raise CommitConflict(f"the log compaction {time} is withdrawn: {newer_logs[0]} came meanwhile; do it again")
