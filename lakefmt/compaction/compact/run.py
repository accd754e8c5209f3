"""Compacting a table: plan, request, merge slice by slice, complete (spec 10.6; effects).

The plan is made and requested under the table lock; slices are merged without it, so that writers go on; the completion
takes it again. Whoever dies in between leaves a pending compaction with its plan: the next one takes away what it wrote
and carries the plan out again, whichever engine made it. Nothing of a compaction is visible before it completes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC
from os import cpu_count
from time import perf_counter

from lakefmt.compaction.clean.run import planned_groups
from lakefmt.compaction.compact.merge import SliceFiles, SliceMerge
from lakefmt.compaction.compact.pending import (
    check_dead,
    check_inputs,
    discard_outputs,
    find_pending,
    partitions_of,
    read_plan,
    release_outputs,
    require_merge_on_read,
)
from lakefmt.compaction.compact.plan import (
    CompactionPlan,
    CompactionRules,
    CompactionStrategy,
    CompactionTrigger,
    GroupKey,
    is_due,
    plan_compaction,
)
from lakefmt.compaction.compact.records import compaction_plan_record
from lakefmt.config.settings import Settings
from lakefmt.config.table_config import TableConfig, cdc_mode
from lakefmt.errors import (
    CommitConflict,
    InstantNotFound,
    InstantNotPending,
    LakefmtError,
    StateError,
    StorageError,
    WriterActive,
)
from lakefmt.filegroups.cdc.files import cdc_paths, list_change_files
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.filegroups.virtual_columns import stored_schema
from lakefmt.schema import arrow_to_avro
from lakefmt.timeline.commit import CommitMetadata, encode_commit
from lakefmt.timeline.heartbeat import Heartbeat
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant
from lakefmt.timeline.locks.open import Lease
from lakefmt.timeline.markers import remove_markers
from lakefmt.timeline.metadata_codec import BodyKind, encode_body
from lakefmt.transactions.client import WriteClient, open_write_client, request_service, take_over_instant
from lakefmt.values import InstantTime, WriteOperation, WriteStat

__all__ = [
    "CompactionResult",
    "check_no_earlier_write",
    "compaction_rules",
    "plan_compaction_of",
    "run_compaction",
]

#: A slice is held whole while it is merged, so that few are merged at once.
_MOST_THREADS = 4


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction, or log compaction, did; prints as one readable line. ``instant`` None: nothing was to be merged, or a plan only.

    Attributes:
        files: what was written, slice by slice.
        finished: pending compactions that were carried out on the way.
    """

    instant: InstantTime | None
    plan: CompactionPlan
    completion_time: InstantTime | None = None
    files: tuple[WriteStat, ...] = ()
    finished: tuple[InstantTime, ...] = ()
    seconds: float = 0.0

    @property
    def num_rows(self) -> int:
        """Rows in the new files."""
        return sum(stat.num_writes for stat in self.files)

    @property
    def bytes_written(self) -> int:
        """Bytes of the new files."""
        return sum(stat.total_write_bytes for stat in self.files)

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
            f"{self.num_rows:,} rows, {self.bytes_written:,} bytes, {self.seconds:.3f} s"
        )


def compaction_rules(settings: Settings) -> CompactionRules:
    """Return the rules that settings ask for.

    Raises:
        UnknownSetting: a strategy or trigger of that name does not exist.

    Example:
        >>> from lakefmt.config.settings import resolve_settings
        >>> compaction_rules(resolve_settings({"hoodie.compact.inline.max.delta.commits": 3})).max_delta_commits
        3
    """
    return CompactionRules(
        strategy=CompactionStrategy.parse(settings.text("hoodie.compaction.strategy") or ""),
        target_io_mb=settings.integer("hoodie.compaction.target.io"),
        min_log_bytes=settings.integer("hoodie.compaction.logfile.size.threshold"),
        min_log_files=settings.integer("hoodie.compaction.logfile.num.threshold"),
        partitions=settings.integer("hoodie.compaction.daybased.target.partitions"),
        trigger=CompactionTrigger.parse(settings.text("hoodie.compact.inline.trigger.strategy") or ""),
        max_delta_commits=settings.integer("hoodie.compact.inline.max.delta.commits"),
        max_delta_seconds=settings.integer("hoodie.compact.inline.max.delta.seconds"),
        max_file_bytes=settings.integer("hoodie.parquet.max.file.size"),
    )


def plan_compaction_of(client: TableClient, options: Mapping[str, object] | None = None) -> CompactionPlan:
    """Return what :func:`run_compaction` would schedule; nothing is changed."""
    write_client = open_write_client(client, options)
    config = client.load_config()
    require_merge_on_read(config)
    return _plan(write_client, TableState(config, write_client.timeline(config).load()), force=True)


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
) -> CompactionResult:
    """Carry out pending compactions, then plan one and carry it out.

    Args:
        client: the table.
        options: settings of the call.
        schedule: only request a plan; the next compaction, or another engine's, carries it out.
        run: only carry out the pending compaction of this requested time.
        force: False asks the trigger of the settings first.
        verify: before it completes, read every new file back and compare it with its slice.
        only: plan no file groups, (partition, file id), but these; None: those that the strategy chooses.
        notes: what the commits say besides, as extra metadata.

    Raises:
        UnsupportedFeature: the table is not merge-on-read, or lakefmt does not know how it merges.
        MetadataTablePresent: the table advertises a metadata table.
        WriterActive: another process carries a compaction out; on version 6 also, when a write is pending.
        InstantNotFound: there is no pending compaction at `run`.
        CorruptFile: a plan or data file is damaged.
        LockUnavailable: the table lock could not be had in time.
    """
    begun = perf_counter()
    write_client = open_write_client(client, options)
    done: list[CompactionResult] = []
    if not schedule:
        waiting = [run] if run is not None else [i.time for i in _pending_compactions(write_client)]
        for time in waiting:
            try:
                done.append(_run_pending(write_client, time, verify=verify, notes=notes))
            except InstantNotFound:
                if run is not None:
                    raise
                # Whoever was at it has just completed it.
        if run is not None:
            return replace(done[0], seconds=perf_counter() - begun)
    finished = tuple(result.instant for result in done if result.instant is not None)
    with write_client.lock.hold() as lease:
        config = client.load_config()
        require_merge_on_read(config)
        state = TableState(config, write_client.timeline(config).load())
        plan = _plan(write_client, state, force=force, only=only)
        if not plan.operations:
            return CompactionResult(None, plan, finished=finished, seconds=perf_counter() - begun)
        body = encode_body(BodyKind.COMPACTION_PLAN, compaction_plan_record(plan))
        heartbeat, time = request_service(write_client, state, Action.COMPACTION, body, lease, start=not schedule)
    if schedule:
        heartbeat.stop()
        return CompactionResult(time, plan, finished=finished, seconds=perf_counter() - begun)
    made = _execute(write_client, state, time, plan, heartbeat, verify=verify, notes=notes)
    return replace(made, finished=finished, seconds=perf_counter() - begun)


# ------------------------------------------------------------------------------------------------------ what is planned


def _plan(
    write_client: WriteClient, state: TableState, *, force: bool, only: Collection[GroupKey] | None = None
) -> CompactionPlan:
    client, rules = write_client.client, compaction_rules(write_client.settings)
    now = client.clock.now()
    zone = state.config.zone or now.astimezone().tzinfo or UTC
    due = is_due(state.timeline, rules, now, zone)
    if not (due or force):
        return CompactionPlan(rules, due=False)
    check_no_earlier_write(write_client, state)
    busy = frozenset(planned_groups(write_client, state))
    slices = client.slices(state)
    if only is not None:
        slices = [file_slice for file_slice in slices if (file_slice.partition, file_slice.file_id) in only]
        rules = replace(rules, strategy=CompactionStrategy.UNBOUNDED)
    return plan_compaction(slices, busy, rules, now.astimezone(zone).date(), due=due)


def check_no_earlier_write(write_client: WriteClient, state: TableState) -> None:
    """On version 6 a log tells its base's instant only: a write that is pending now may add to a slice being merged."""
    if state.config.version.layout > 1:
        return
    for pending in state.timeline.pending:
        if pending.action in COMMIT_ACTIONS:
            life = write_client.writer_liveness(state.config, state.timeline, pending)
            raise WriterActive(
                f"{pending} is pending ({life.reason}), and a compaction of a version 6 table may not begin before it "
                "ends: try again later; of a dead writer roll it back"
            )


# ---------------------------------------------------------------------------------------------------- what is pending


def _pending_compactions(write_client: WriteClient) -> list[Instant]:
    config = write_client.client.load_config()
    require_merge_on_read(config)
    return [i for i in write_client.timeline(config).load().pending if i.action is Action.COMPACTION]


def _run_pending(
    write_client: WriteClient, instant: str, *, verify: bool, notes: Mapping[str, str] | None = None
) -> CompactionResult:
    """Carry out a plan that somebody requested or died over."""
    client = write_client.client
    with write_client.lock.hold() as lease:
        config = client.load_config()
        require_merge_on_read(config)
        state = TableState(config, write_client.timeline(config).load())
        pending = find_pending(state.timeline, instant)
        check_dead(write_client, state, pending)
        plan = read_plan(write_client, state, pending)
        check_inputs(write_client, state, pending, plan)
        lease.check()
        if plan is None:
            write_client.timeline(config).remove_pending(pending.time, Action.COMPACTION)
            return CompactionResult(None, CompactionPlan(None))
        heartbeat = take_over_instant(write_client, pending)
        try:
            discard_outputs(write_client, state, pending.time, partitions_of(plan))
            write_client.timeline(config).start(pending.time, Action.COMPACTION)
        except BaseException:
            heartbeat.abandon()
            raise
    return _execute(write_client, state, pending.time, plan, heartbeat, verify=verify, notes=notes)


# ------------------------------------------------------------------------------------------------------ carrying it out


def _execute(
    write_client: WriteClient,
    state: TableState,
    time: InstantTime,
    plan: CompactionPlan,
    heartbeat: Heartbeat,
    *,
    verify: bool,
    notes: Mapping[str, str] | None = None,
) -> CompactionResult:
    try:
        schema = write_client.client.schema(state)
        merge = SliceMerge(
            write_client.client,
            state,
            write_client.settings,
            time,
            arrow_to_avro(stored_schema(state.config, schema), state.config.name, with_meta=True),
            attempt=int(write_client.owner.replace("-", "")[:7], 16),
            verify=verify,
        )
        stats = _merge_all(merge, plan)
        said = CommitMetadata(
            WriteOperation.COMPACT,
            stats,
            extra_metadata={**(notes or {}), **write_client.client.schema_notes(state, schema)},
            compacted=True,
        )
        with write_client.lock.hold() as lease:
            completion = _complete(write_client, state.config, time, said, lease)
    except BaseException as error:
        heartbeat.abandon()  # the next compaction carries the plan out again
        if isinstance(error, LakefmtError) and not isinstance(error, StorageError | StateError):
            with suppress(LakefmtError, LookupError, TypeError, ValueError):
                release_outputs(write_client, state, time, plan)
        raise
    # It is complete from here on; what a failing store leaves behind is swept by the next writer.
    with suppress(StorageError):
        heartbeat.stop()
        remove_markers(write_client.client.store, time)
    return CompactionResult(time, plan, completion, stats)


def _merge_all(merge: SliceMerge, plan: CompactionPlan) -> tuple[WriteStat, ...]:
    """Merge the slices, a few side by side; the stats come in the plan's order."""
    bases, logs = merge.client.listing(merge.state.config).files(partitions_of(plan))
    found: dict[str, SliceFiles] = {}
    for base in bases:
        found.setdefault(base.partition, ({}, {}))[0][base.name] = base
    for log in logs:
        found.setdefault(log.partition, ({}, {}))[1][log.name] = log
    asked = merge.settings.integer("lakefmt.write.threads") or _MOST_THREADS
    threads = max(1, min(asked, cpu_count() or 1, len(plan.operations)))
    if threads == 1:
        return tuple(merge.run(n, o, found.get(o.partition, ({}, {}))) for n, o in enumerate(plan.operations))
    with ThreadPoolExecutor(threads) as pool:
        running = [
            pool.submit(merge.run, number, operation, found.get(operation.partition, ({}, {})))
            for number, operation in enumerate(plan.operations)
        ]
        try:
            return tuple(future.result() for future in running)
        except BaseException:
            for waiting in running:
                waiting.cancel()
            raise


def _complete(
    write_client: WriteClient, config: TableConfig, time: InstantTime, said: CommitMetadata, lease: Lease
) -> InstantTime:
    timeline_store = write_client.timeline(config)
    timeline_store.check_pending(time, Action.COMPACTION)
    lost = [stat.path for stat in said.stats if write_client.client.store.info(stat.path) is None]
    if lost:
        # Who thought us dead has taken them away, and does the work now.
        raise InstantNotPending(f"the compaction {time} was taken over by another process: {lost[0]} is gone")
    timeline = timeline_store.load()
    _settle_bases(write_client, TableState(config, timeline), time, said)
    completion = write_client.instant_time_generator(config, timeline)()
    body = encode_commit(said, config.version, replace=False)
    lease.check()
    return timeline_store.complete(time, Action.COMPACTION, completion, body).order_time


def _settle_bases(write_client: WriteClient, state: TableState, time: InstantTime, said: CommitMetadata) -> None:
    """Delete what another attempt has written since, and refuse to hide what another write has put below us."""
    ours = {(stat.partition_path, stat.file_id): stat for stat in said.stats}
    bases, _ = write_client.client.listing(state.config).files(sorted({stat.partition_path for stat in said.stats}))
    strays = []
    for base in bases:
        stat = ours.get((base.partition, base.file_id))
        if base.instant == time and (stat is None or base.path != stat.path):
            strays.append(base.path)  # two base files of one group and instant would be one too many
        elif stat is None or base.instant >= time or not state.timeline.is_committed(base.instant):
            continue
        elif stat.prev_commit == "null" or base.instant > stat.prev_commit:
            raise CommitConflict(
                f"the compaction {time} would hide {base.path}, which was committed after it was planned: abandon it "
                "and compact again"
            )
    if cdc_mode(state.config.properties) is not None:
        named = {path for stat in said.stats for path in cdc_paths(stat)}
        found = list_change_files(write_client.client.store, sorted({stat.partition_path for stat in said.stats}))
        strays += [file.path for file in found if file.instant == time and file.path not in named]
    write_client.client.store.delete(strays)
