"""Log compaction of a table: plan, request, fold logs slice by slice, complete (metadata note 9.1; effects).

The logs of a slice become one log that says what they say together and names their instants; readers take it in their
place. It completes as a deltacommit, and no row changes. Its plan lives less long than a compaction's: Hudi withdraws one
that somebody died over, and one that a compaction has overtaken, because planning anew is cheap. So do we.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from time import perf_counter

from lakefmt.compaction.clean.run import planned_groups
from lakefmt.compaction.compact.pending import check_dead, find_pending, partitions_of, read_plan, require_merge_on_read
from lakefmt.compaction.compact.plan import CompactionPlan
from lakefmt.compaction.compact.records import compaction_plan_record
from lakefmt.compaction.compact.run import CompactionResult, check_no_earlier_write
from lakefmt.compaction.log_compact._merge import LogMerge
from lakefmt.compaction.log_compact.plan import (
    LogFacts,
    find_newer_compaction,
    is_log_compaction_due,
    plan_log_compaction,
)
from lakefmt.config.table_config import TableConfig, merge_rule
from lakefmt.errors import (
    CommitConflict,
    InstantNotPending,
    LakefmtError,
    StorageError,
)
from lakefmt.filegroups.logs.reader import select_log_blocks
from lakefmt.filegroups.merge.log_compaction_merge import check_can_merge
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.schema import arrow_to_avro
from lakefmt.storage.api import remove_abandoned
from lakefmt.timeline.commit import CommitMetadata, encode_commit
from lakefmt.timeline.heartbeat import Heartbeat, heartbeat_name
from lakefmt.timeline.instant import Action, Instant, State
from lakefmt.timeline.locks.open import Lease
from lakefmt.timeline.markers import list_marked, remove_markers
from lakefmt.timeline.metadata_codec import BodyKind, encode_body
from lakefmt.timeline.rollback import plan_rollback_of
from lakefmt.transactions.client import WriteClient, open_write_client, request_service, take_over_instant
from lakefmt.values import InstantTime, PartitionPath, WriteOperation, WriteStat

__all__ = ["abandon_log_compaction", "plan_log_compaction_of", "run_log_compaction"]

_ACTION = Action.LOG_COMPACTION


def plan_log_compaction_of(client: TableClient, options: Mapping[str, object] | None = None) -> CompactionPlan:
    """Return what :func:`run_log_compaction` would schedule; nothing is changed."""
    write_client = open_write_client(client, options)
    return _plan(write_client, _load(write_client), force=True)


def run_log_compaction(
    client: TableClient,
    options: Mapping[str, object] | None = None,
    *,
    schedule: bool = False,
    run: str | None = None,
    force: bool = True,
) -> CompactionResult:
    """Carry out pending log compactions, then plan one and carry it out.

    Args:
        client: the table.
        options: settings of the call.
        schedule: only request a plan; the next log compaction, or another engine's, carries it out.
        run: only carry out the pending log compaction of this requested time.
        force: False asks first whether enough deltacommits came since the last one.

    Raises:
        UnsupportedFeature: the table is not merge-on-read, or its logs say less without the base file.
        MetadataTablePresent: the table advertises a metadata table.
        WriterActive: another process carries a log compaction out; on version 6 also, when a write is pending.
        CommitConflict: a compaction was planned meanwhile; the log compaction is withdrawn.
        InstantNotFound: there is no pending log compaction at `run`.
        LockUnavailable: the table lock could not be had in time.
    """
    begun = perf_counter()
    write_client = open_write_client(client, options)
    done: list[CompactionResult] = []
    if not schedule:
        waiting = [run] if run is not None else _pending(write_client)
        done = [_run_pending(write_client, time) for time in waiting]
        if run is not None:
            return replace(done[0], seconds=perf_counter() - begun)
    finished = tuple(result.instant for result in done if result.instant is not None)
    with write_client.lock.hold() as lease:
        state = _load(write_client)
        plan = _plan(write_client, state, force=force)
        if not plan.operations:
            return CompactionResult(None, plan, finished=finished, seconds=perf_counter() - begun)
        body = encode_body(BodyKind.COMPACTION_PLAN, compaction_plan_record(plan))
        heartbeat, time = request_service(write_client, state, _ACTION, body, lease, start=not schedule)
    if schedule:
        heartbeat.stop()
        return CompactionResult(time, plan, finished=finished, seconds=perf_counter() - begun)
    made = _execute(write_client, state, time, plan, heartbeat)
    return replace(made, finished=finished, seconds=perf_counter() - begun)


def abandon_log_compaction(
    client: TableClient, instant: str, options: Mapping[str, object] | None = None, *, force: bool = False
) -> None:
    """Withdraw a pending log compaction: what it wrote goes, and its plan.

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
        state = _load(write_client)
        pending = find_pending(state.timeline, instant, _ACTION)
        if not force:
            check_dead(write_client, state, pending)
        _withdraw(write_client, state, pending, read_plan(write_client, state, pending), lease)


# ------------------------------------------------------------------------------------------------------ what is planned


def _load(write_client: WriteClient) -> TableState:
    config = write_client.client.load_config()
    require_merge_on_read(config)
    return TableState(config, write_client.timeline(config).load())


def _plan(write_client: WriteClient, state: TableState, *, force: bool) -> CompactionPlan:
    check_can_merge(merge_rule(state.config))
    threshold = write_client.settings.integer("hoodie.log.compaction.blocks.threshold")
    due = is_log_compaction_due(state.timeline, threshold)
    if not (due or force):
        return CompactionPlan(None, due=False, log=True)
    check_no_earlier_write(write_client, state)
    busy = frozenset(planned_groups(write_client, state))
    slices = [file_slice for file_slice in write_client.client.slices(state) if file_slice.logs]
    facts = {}
    for file_slice in slices:
        if (file_slice.partition, file_slice.file_id) not in busy:
            blocks = select_log_blocks(write_client.client.store, file_slice, state.timeline)
            facts[file_slice.partition, file_slice.file_id] = LogFacts(
                len(blocks),
                len({placed.block.instant_time for placed in blocks}),
                any(placed.block.is_partial for placed in blocks),
            )
    most = write_client.settings.integer("hoodie.parquet.max.file.size")
    return plan_log_compaction(slices, facts, busy, threshold, max_file_bytes=most, due=due)


# ---------------------------------------------------------------------------------------------------- what is pending


def _pending(write_client: WriteClient) -> list[InstantTime]:
    return [i.time for i in _load(write_client).timeline.pending if i.action is _ACTION]


def _run_pending(write_client: WriteClient, instant: str) -> CompactionResult:
    """Carry out a plan that waits; one that somebody died over, or that a compaction has overtaken, is withdrawn."""
    nothing = CompactionResult(None, CompactionPlan(None, log=True))
    with write_client.lock.hold() as lease:
        state = _load(write_client)
        pending = find_pending(state.timeline, instant, _ACTION)
        check_dead(write_client, state, pending)
        plan = read_plan(write_client, state, pending)
        overtaken = find_newer_compaction(state.timeline, pending.time) is not None
        if plan is None or overtaken or pending.state is not State.REQUESTED:
            _withdraw(write_client, state, pending, plan, lease)
            return nothing
        heartbeat = take_over_instant(write_client, pending)
        try:
            lease.check()
            write_client.timeline(state.config).start(pending.time, _ACTION)
        except BaseException:
            heartbeat.abandon()
            raise
    return _execute(write_client, state, pending.time, replace(plan, log=True), heartbeat)


def _withdraw(
    write_client: WriteClient, state: TableState, pending: Instant, plan: CompactionPlan | None, lease: Lease
) -> None:
    """Delete what a log compaction wrote, then its plan; call under the lock."""
    store, partitions = write_client.client.store, () if plan is None else partitions_of(plan)
    lease.check()
    _discard_outputs(write_client, state.config, pending.time, partitions)
    store.delete([heartbeat_name(pending.time)])
    write_client.timeline(state.config).remove_pending(pending.time, _ACTION)


def _discard_outputs(
    write_client: WriteClient, config: TableConfig, time: InstantTime, partitions: tuple[PartitionPath, ...]
) -> None:
    """Delete the logs of an attempt: its markers name them, and were there before."""
    store, layout = write_client.client.store, config.version.layout
    target = Instant(time, _ACTION, State.INFLIGHT)
    plan = plan_rollback_of(store, target, layout, list_marked(store, time) or ())
    store.delete(name for names in plan.files.values() for name in names)
    for partition in partitions:
        remove_abandoned(store, partition, recursive=False)
    remove_markers(store, time)


# ------------------------------------------------------------------------------------------------------ carrying it out


def _execute(
    write_client: WriteClient, state: TableState, time: InstantTime, plan: CompactionPlan, heartbeat: Heartbeat
) -> CompactionResult:
    try:
        schema = write_client.client.schema(state)
        attempt = int(write_client.owner.replace("-", "")[:7], 16)
        text = arrow_to_avro(schema, state.config.name, with_meta=True)
        fold = LogMerge(write_client.client, state, write_client.settings, time, text, attempt)
        stats = fold.run(plan)
        said = CommitMetadata(
            WriteOperation.LOG_COMPACT,
            stats,
            extra_metadata=write_client.client.schema_notes(state, schema),
        )
        with write_client.lock.hold() as lease:
            completion = _complete(write_client, state.config, time, plan, said, lease)
    except BaseException as error:
        heartbeat.abandon()  # the next log compaction takes it away
        if isinstance(error, LakefmtError) and not isinstance(error, StorageError):
            with suppress(LakefmtError, LookupError, TypeError, ValueError):
                _release(write_client, state, time, plan)
        raise
    # It is complete from here on; what a failing store leaves behind is swept by the next writer.
    with suppress(StorageError):
        heartbeat.stop()
        remove_markers(write_client.client.store, time)
    return CompactionResult(time, plan, completion, stats)


def _release(write_client: WriteClient, state: TableState, time: InstantTime, plan: CompactionPlan) -> None:
    """Withdraw our own attempt, or what is left of it when somebody else has withdrawn it."""
    with write_client.lock.hold() as lease:
        now = TableState(state.config, write_client.timeline(state.config).load())
        pending = [i for i in now.timeline.pending if i.action is _ACTION and i.time == time]
        if pending:
            _withdraw(write_client, now, pending[0], plan, lease)
        elif not now.timeline.is_committed(time):
            _discard_outputs(write_client, state.config, time, partitions_of(plan))


def _complete(
    write_client: WriteClient,
    config: TableConfig,
    time: InstantTime,
    plan: CompactionPlan,
    said: CommitMetadata,
    lease: Lease,
) -> InstantTime:
    timeline_store = write_client.timeline(config)
    timeline_store.check_pending(time, _ACTION)
    lost = [stat.path for stat in said.stats if write_client.client.store.info(stat.path) is None]
    if lost:
        raise InstantNotPending(f"the log compaction {time} was withdrawn by another process: {lost[0]} is gone")
    timeline = timeline_store.load()
    newer = find_newer_compaction(timeline, time)
    if newer is not None:
        raise CommitConflict(
            f"the log compaction {time} is withdrawn: {newer} would leave its logs on top; do it again"
        )
    if config.version.layout == 1:
        _check_nothing_on_top(write_client, TableState(config, timeline), time, plan, said.stats)
    completion = write_client.instant_time_generator(config, timeline)()
    body = encode_commit(said, config.version, replace=False)
    lease.check()
    return timeline_store.complete(time, _ACTION, completion, body).order_time


def _check_nothing_on_top(
    write_client: WriteClient, state: TableState, time: InstantTime, plan: CompactionPlan, stats: tuple[WriteStat, ...]
) -> None:
    """On version 6 the number in a log's name orders it: readers that know no folded logs would take ours for newer."""
    known = {name for operation in plan.operations for name in operation.log_names}
    known |= {stat.path.rpartition("/")[2] for stat in stats}
    groups = {(o.partition, o.file_id) for o in plan.operations}
    for file_slice in write_client.client.slices(state, partitions_of(plan)):
        over = [log.path for log in file_slice.logs if log.name not in known]
        if over and (file_slice.partition, file_slice.file_id) in groups:
            raise CommitConflict(f"the log compaction {time} is withdrawn: {over[0]} came meanwhile; do it again")
