"""Clustering: pack small files and put rows in an order (docs/services.md, Clustering; docs/format.md, Clustering).

A plan is requested, its groups are rewritten without the table lock, and a replacecommit hides the old file groups. A
write that would change a file group of the plan is refused meanwhile, so what was planned is what is rewritten.

:func:`cluster_table` checks the arguments of ``table.cluster`` and hands them to the service.

The content of the file is encoded and checked. Of a pending clustering: its plan, whether its file groups are as they were, and
what a failed attempt left (effects).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from os import cpu_count
from time import perf_counter
from typing import Any, Final

from lakefmt._core.arguments import comma_separated, parse_member, shown, texts_argument
from lakefmt._core.compaction.clean_run import planned_groups
from lakefmt._core.compaction.cluster_plan import (
    ClusteringGroup,
    ClusteringPlan,
    ClusteringRules,
    ClusteringSlice,
    ClusteringStrategy,
    PartitionFilter,
    PartitionMode,
    choose_cluster_partitions,
    is_clustering_due,
    plan_bucket_clustering,
    plan_clustering,
    plan_queue_clustering,
)
from lakefmt._core.compaction.cluster_rewrite import (
    GroupRewrite,
    changed_rings,
    index_of_buckets,
    keep_rings,
    mark_rings,
    ordered_groups,
)
from lakefmt._core.compaction.compact_plan import checked_log_name, name_in_partition
from lakefmt._core.compaction.compact_run import check_no_earlier_write
from lakefmt._core.compaction.operations import RewriteResult, RunClustering, clustering_operations_of
from lakefmt._core.compaction.service import PlanRun, load_for_service, run_pending, run_service, withdrawn_logs
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.config.table_config import TableConfig, check_writable, merge_rule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice, join_path
from lakefmt._core.filegroups.pending_plans import pending_clusterings
from lakefmt._core.filegroups.reader import stored_schema
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.names import parse_base_file
from lakefmt._core.index import choose_index, places_new_keys
from lakefmt._core.index.bucket_ring import (
    SplittingIndex,
    decode_node_change,
    encode_node_change,
    resize_rules,
    splits_buckets,
)
from lakefmt._core.index.bucket_ring_files import RingFiles
from lakefmt._core.read.file_selection import select_slices
from lakefmt._core.read.scan import plan_query
from lakefmt._core.schema import arrow_to_avro
from lakefmt._core.schema.types import field_at
from lakefmt._core.sorting import Layout, RowOrder, check_order
from lakefmt._core.storage.api import ObjectStore, SupportsSources, check_name
from lakefmt._core.timeline.commit import CommitMetadata, encode_commit
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State, check_transition
from lakefmt._core.timeline.locks.api import Lease
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt._core.timeline.rollback import absolute_path
from lakefmt._core.transactions.client import WriteAt, WriteClient, open_write_client
from lakefmt._core.transactions.instant import InstantTransaction, with_stored_entries
from lakefmt._core.transactions.rollback_executor import discard_clustered_files, drop_rings, withdraw_clustering
from lakefmt._core.values import FileId, InstantTime, PartitionPath, TableType, WriteOperation, WriteStat
from lakefmt.errors import (
    CommitConflict,
    CorruptFile,
    InstantNotFound,
    InstantNotPending,
    InvalidInputError,
    ObjectNotFound,
    UnknownSetting,
    UnsupportedFeature,
)

__all__ = [
    "LAYOUT",
    "SORT_COLUMNS",
    "TARGET_BYTES",
    "ClusterCall",
    "ClusteringResult",
    "ClusteringWish",
    "abandon_clustering",
    "check_groups_unchanged",
    "cluster_table",
    "clustering_plan_record",
    "clustering_rules",
    "has_pending_clustering",
    "is_outdated",
    "options_for_all_files",
    "parse_clustering_plan",
    "plan_clustering_of",
    "read_clustering_plan",
    "release_clustering",
    "run_clustering",
    "run_waiting_clusterings",
]

GroupKey = tuple[PartitionPath, FileId]
#: Groups that are rewritten at a time; they share the memory.
_MOST_GROUPS_AT_ONCE = 4
_STRATEGY_SETTING: Final = "hoodie.clustering.plan.strategy.class"
_SMALL_FILE_SETTING: Final = "hoodie.clustering.plan.strategy.small.file.limit"


@dataclass(frozen=True, slots=True)
class ClusteringResult(RewriteResult[ClusteringPlan]):
    """What a clustering did; prints as one line."""

    def __str__(self) -> str:
        if self.completion_time is None:
            return str(self.plan)
        return (
            f"cluster {self.instant}: {self.plan.num_slices:,} slices became {len(self.files):,} files, "
            f"{self.num_rows:,} rows {self.plan.order}, {self.bytes_written:,} bytes, {self.seconds:.3f} s"
        )


@dataclass(frozen=True, slots=True)
class ClusteringWish:
    """The arguments of a call that are no settings.

    Attributes:
        order: how rows are ordered; None: as the settings say.
        only: plan these file groups only; None: those that the strategy chooses.
        partitions: plan these partitions only; None: those that the settings name.
    """

    order: RowOrder | None = None
    only: Collection[GroupKey] | None = None
    partitions: Collection[PartitionPath] | None = None


_NO_WISH = ClusteringWish()


def clustering_rules(settings: Settings) -> ClusteringRules:
    """Return the rules that settings ask for.

    Raises:
        UnknownSetting: a strategy, order or filter of that name does not exist.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> clustering_rules(resolve_settings({"hoodie.clustering.plan.strategy.max.num.groups": 3})).max_groups
        3
    """
    prefix = "hoodie.clustering.plan.strategy."
    strategy = parse_member(ClusteringStrategy, settings.text(f"{prefix}class") or "", "clustering plan strategy")
    mode = parse_member(
        PartitionMode, settings.text("hoodie.clustering.plan.partition.filter.mode") or "NONE", "partition filter mode"
    )
    if strategy is ClusteringStrategy.RECENT_DAYS:
        mode = PartitionMode.RECENT_DAYS
    if strategy is ClusteringStrategy.SELECTED_PARTITIONS:
        mode = PartitionMode.SELECTED_PARTITIONS
    selected = comma_separated(settings.text(f"{prefix}partition.selected") or "")
    way = "inline" if settings.flag("hoodie.clustering.inline") else "async"
    return ClusteringRules(
        strategy=strategy,
        order=RowOrder(
            comma_separated(settings.text(SORT_COLUMNS) or ""),
            parse_member(Layout, settings.text(LAYOUT) or "linear", "order"),
        ),
        small_bytes=settings.integer(_SMALL_FILE_SETTING),
        target_bytes=settings.integer(TARGET_BYTES),
        group_bytes=settings.integer(f"{prefix}max.bytes.per.group"),
        max_groups=settings.integer(f"{prefix}max.num.groups"),
        single_slices=settings.flag(f"{prefix}single.group.clustering.enabled"),
        partitions=PartitionFilter(
            mode,
            settings.integer(f"{prefix}daybased.lookback.partitions"),
            settings.integer(f"{prefix}daybased.skipfromlatest.partitions"),
            settings.text(f"{prefix}cluster.begin.partition") or "",
            settings.text(f"{prefix}cluster.end.partition") or "",
            frozenset(map(PartitionPath, selected)) if selected else None,
            settings.text(f"{prefix}partition.regex.pattern") or "",
        ),
        max_commits=settings.integer(f"hoodie.clustering.{way}.max.commits"),
    )


def options_for_all_files(client: TableClient, options: Mapping[str, object] | None) -> dict[str, object]:
    """Return options of a clustering that also packs files that are not small: all that are smaller than its own."""
    target_bytes = clustering_rules(open_write_client(client, options).settings).target_bytes
    return {_SMALL_FILE_SETTING: target_bytes, **(options or {})}


def plan_clustering_of(
    client: TableClient, options: Mapping[str, object] | None = None, wish: ClusteringWish = _NO_WISH
) -> ClusteringPlan:
    """Return what :func:`run_clustering` would schedule; nothing is changed."""
    service = _open_service(client, options, wish)
    return service.propose(load_for_service(service))


def run_clustering(
    client: TableClient,
    options: Mapping[str, object] | None = None,
    wish: ClusteringWish = _NO_WISH,
    *,
    schedule: bool = False,
    run: str | None = None,
    force: bool = True,
    run_groups: RunClustering | None = None,
) -> ClusteringResult:
    """Execute pending clusterings, then plan one and execute it.

    Args:
        client: the table.
        options: settings of the call.
        wish: what is asked for besides.
        schedule: only request a plan; the next clustering, or another engine's, executes it.
        run: only execute the pending clustering of this requested time.
        force: False asks first whether enough commits came since the last one.
        run_groups: rewrites the groups, in other processes; None: threads of this one do.

    Raises:
        UnsupportedFeature: the index of the table decides the file group of a key.
        InvalidInputError: rows cannot be ordered so.
        WriterActive: another process executes a clustering; on version 6 also when a write is pending.
        CommitConflict: another engine changed a file group of the plan meanwhile.
        InstantNotFound: there is no pending clustering at `run`.
        CorruptFile: a plan or data file is damaged.
        LockUnavailable: the table lock could not be taken in time.
    """
    begun = perf_counter()
    service = replace(_open_service(client, options, wish, force=force), run_groups=run_groups)
    if run is not None:
        _check_is_clustering(service, run)
        executed = _run_pending_one(service, run)
        plan = ClusteringPlan() if executed is None else executed.plan
        return _result_of_run(plan, executed, (), perf_counter() - begun)
    # The driver would take overwrites of version 6 for clusterings: they have the same action.
    finished = () if schedule else _run_all_pending(service)
    service_run = run_service(service, schedule=True) if schedule else run_service(service)
    _mark_completed(service, service_run.run)
    return _result_of_run(
        service_run.proposal, service_run.run, (*finished, *service_run.finished), perf_counter() - begun
    )


def has_pending_clustering(client: TableClient) -> bool:
    """Return whether a clustering is planned or at work."""
    return bool(pending_clusterings(client.at(client.load())))


def run_waiting_clusterings(client: TableClient, options: Mapping[str, object] | None = None) -> None:
    """Execute the pending clusterings, whichever engine planned them."""
    _run_all_pending(_open_service(client, options, _NO_WISH))


def _open_service(
    client: TableClient, options: Mapping[str, object] | None, wish: ClusteringWish, *, force: bool = True
) -> _ClusteringService:
    write_client = open_write_client(client, options)
    layout = client.load_config().version.layout
    return _ClusteringService(write_client, Action.CLUSTERING if layout > 1 else Action.REPLACE_COMMIT, wish, force)


def _check_is_clustering(service: _ClusteringService, time: str) -> None:
    state = load_for_service(service)
    if all(pending.time != time for pending in pending_clusterings(service.write_client.client.at(state))):
        raise InstantNotFound(f"no clustering is pending at {time}")


def _run_all_pending(service: _ClusteringService) -> tuple[InstantTime, ...]:
    """Execute pending clusterings; return those that were completed."""
    runs = []
    for pending in pending_clusterings(service.write_client.client.at(load_for_service(service))):
        with suppress(InstantNotFound):  # another process has completed or withdrawn it in the meantime
            runs.append(_run_pending_one(service, pending.time))
    return tuple(run.instant for run in runs if run is not None)


def _run_pending_one(service: _ClusteringService, time: str) -> PlanRun[ClusteringPlan, CommitMetadata] | None:
    executed = run_pending(service, time)
    _mark_completed(service, executed)
    return executed


def _mark_completed(service: _ClusteringService, run: PlanRun[ClusteringPlan, CommitMetadata] | None) -> None:
    """Mark the rings of a clustering that this process has completed."""
    if run is not None and run.completed is not None:
        mark_rings(service.write_client.client, run.instant, run.plan)


def _result_of_run(
    proposal: ClusteringPlan,
    run: PlanRun[ClusteringPlan, CommitMetadata] | None,
    finished: tuple[InstantTime, ...],
    seconds: float,
) -> ClusteringResult:
    if run is None or run.completed is None or run.output is None:
        return ClusteringResult(None if run is None else run.instant, proposal, finished=finished, seconds=seconds)
    return ClusteringResult(run.instant, run.plan, run.completed.order_time, run.output.stats, finished, seconds)


@dataclass(frozen=True, slots=True)
class _ClusteringService:
    """What clustering adds to the driver of services.

    Attributes:
        write_client: the table.
        action: ``clustering``, of version 6 ``replacecommit``.
        wish: what the call asks for besides its settings.
        force: False asks first whether enough commits came since the last clustering.
        run_groups: rewrites the groups in other processes; None: in this one.
    """

    write_client: WriteClient
    action: Action
    wish: ClusteringWish = _NO_WISH
    force: bool = True
    run_groups: RunClustering | None = None

    def check_table(self, config: TableConfig) -> None:
        """Raise when lakefmt cannot write such a table."""
        check_writable(config)
        merge_rule(config)

    def propose(self, state: TableState) -> ClusteringPlan:
        write_at = self.write_client.at(state)
        client, rules = self.write_client.client, clustering_rules(self.write_client.settings)
        table_at = client.at(state)
        rules = rules if self.wish.order is None else replace(rules, order=self.wish.order)
        due = is_clustering_due(state.timeline, rules.max_commits)
        if not (due or self.force):
            return ClusteringPlan(order=rules.order, due=False)
        index = choose_index(client, self.write_client.settings, state.config, state)
        if splits_buckets(index):
            return self._propose_buckets(state, rules, index, due=due)
        if places_new_keys(index):
            raise UnsupportedFeature(
                "the table has a bucket index with a fixed number of buckets: every key has its file group, and clustering would "
                "take it elsewhere; Hudi's storage layout of such tables has no clustering either. Buckets of consistent "
                "hashing are split, merged and ordered"
            )
        if rules.strategy is ClusteringStrategy.CONSISTENT_BUCKET:
            raise UnsupportedFeature(
                "hoodie.clustering.plan.strategy.class: buckets are split and merged in tables with consistent hashing only"
            )
        ordered = state.config.properties.get("lakefmt.append.order") == "per_bucket"
        if ordered:
            return self._propose_in_order(state, rules, due=due)
        check_order(rules.order, table_at.schema())
        if state.config.table_type is TableType.MERGE_ON_READ:
            check_no_earlier_write(write_at)
        slices = self._chosen(state, rules)
        busy = frozenset(planned_groups(write_at))
        return plan_clustering(slices, busy, rules, ordered=ordered_groups(table_at, slices, rules.order), due=due)

    def _propose_in_order(self, state: TableState, rules: ClusteringRules, *, due: bool) -> ClusteringPlan:

        timeline = self.write_client.client.at(state).with_history().timeline
        busy = frozenset(planned_groups(self.write_client.at(state)))

        def completion_of(time: InstantTime) -> InstantTime:
            return timeline.completion_of(time) if timeline.tells_completion_of(time) else time

        slices, only = self._in_chosen_partitions(state, rules), self.wish.only
        if only is not None:  # what is left out stays between the others
            busy |= {(each.partition, each.file_id) for each in slices}.difference(only)
        return plan_queue_clustering(slices, busy, rules, completion_of, all_small=self.force, due=due)

    def _propose_buckets(
        self, state: TableState, rules: ClusteringRules, index: SplittingIndex, *, due: bool
    ) -> ClusteringPlan:

        write_at = self.write_client.at(state)
        client, settings = self.write_client.client, self.write_client.settings
        table_at = client.at(state)
        is_explicit = settings.origins.get(_STRATEGY_SETTING) in ("call", "handle")
        if is_explicit and rules.strategy is not ClusteringStrategy.CONSISTENT_BUCKET:
            raise UnsupportedFeature(
                f"{_STRATEGY_SETTING}: as in Hudi, tables with consistent hashing are clustered by "
                "SparkConsistentBucketClusteringPlanStrategy only, which is the default there"
            )
        if not state.config.populate_meta_fields:
            raise UnsupportedFeature("buckets of tables without meta columns are neither split nor merged")
        check_order(rules.order, table_at.schema())
        check_no_earlier_write(write_at)
        partitions = {each.partition for each in self._chosen(state, rules)}
        slices = table_at.slices(sorted(partitions))
        rings = [RingFiles(table_at, index.num_buckets).stored_ring(partition) for partition in sorted(partitions)]
        return plan_bucket_clustering(
            [ring for ring in rings if ring is not None],
            slices,
            frozenset(planned_groups(write_at)),
            rules,
            resize_rules(settings, index.num_buckets),
            client.ids.new_uuid,
            only=self.wish.only,
            ordered=ordered_groups(table_at, slices, rules.order),
            due=due,
        )

    def _chosen(self, state: TableState, rules: ClusteringRules) -> list[FileSlice]:
        slices, only = self._in_chosen_partitions(state, rules), self.wish.only
        return slices if only is None else [each for each in slices if (each.partition, each.file_id) in only]

    def _in_chosen_partitions(self, state: TableState, rules: ClusteringRules) -> list[FileSlice]:
        client = self.write_client.client
        slices = client.at(state).slices(None if self.wish.partitions is None else sorted(self.wish.partitions))
        if self.wish.partitions is not None:
            return slices
        now = client.clock.now()
        hour = now.astimezone(state.config.zone).hour
        partitions = set(choose_cluster_partitions(sorted({each.partition for each in slices}), rules.partitions, hour))
        return [each for each in slices if each.partition in partitions]

    def encode(self, state: TableState, proposal: ClusteringPlan) -> tuple[ClusteringPlan, bytes] | None:
        """Return the plan and the content of its requested file; None: there is nothing to do."""
        if not proposal.groups:
            return None
        record = clustering_plan_record(self.write_client.client.store, proposal)
        return proposal, encode_body(BodyKind.REQUESTED_REPLACE, record)

    def check_idle(self, state: TableState, pending: Instant) -> None:
        if _is_clustering(self.write_client.client.at(state), pending):
            self.write_client.at(state).check_not_at_work(pending)

    def read_pending(self, state: TableState, pending: Instant, lease: Lease) -> ClusteringPlan | None:
        client = self.write_client.client
        table_at = client.at(state)
        if not _is_clustering(table_at, pending):
            return None  # an overwrite of version 6
        plan = read_clustering_plan(table_at, pending)
        if plan is None or is_outdated(table_at, pending, plan):
            withdraw_clustering(self.write_client.at(state), pending, lease)
            return None
        return plan.without_logs(withdrawn_logs(table_at, plan.log_paths))

    def discard_attempt(self, state: TableState, time: InstantTime, plan: ClusteringPlan) -> None:
        discard_clustered_files(self.write_client.at(state), time, plan.partitions)
        drop_rings(self.write_client, time, plan.opened)

    def execute(self, transaction: InstantTransaction, state: TableState, plan: ClusteringPlan) -> CommitMetadata:
        client, settings = self.write_client.client, self.write_client.settings
        # Its files count as those of its instant, so they have the columns of then.
        columns = client.at(state).columns_at(transaction.time).state
        table_at = client.at(columns)
        schema = table_at.schema()
        check_order(plan.order, schema)
        bases, logs = client.storage_listing(state.config).files(plan.partitions)
        threads = _threads_for_groups(settings, len(plan.groups))
        rings = {}
        if plan.opened:
            index = index_of_buckets(client.at(state), settings)
            rings = changed_rings(RingFiles(client.at(state), index.num_buckets), transaction.time, plan)
        rewrite = GroupRewrite(
            client,
            state,
            settings,
            transaction.time,
            arrow_to_avro(stored_schema(state.config, schema), state.config.name, with_meta=True),
            plan.order,
            plan.target_bytes or settings.integer(TARGET_BYTES),
            self.write_client.attempt_number,
            max(1, settings.integer("lakefmt.write.window.bytes") // threads),
            {**{base.path: base for base in bases}, **{log.path: log for log in logs}},
            [client.ids.new_uuid() for _ in plan.groups],
            rings,
            transaction.check_held,
        )
        replaced: dict[PartitionPath, tuple[FileId, ...]] = {}
        for group in plan.groups:
            ids = tuple(each.file_id for each in group.slices)
            replaced[group.partition] = (*replaced.get(group.partition, ()), *ids)
        if self.run_groups is None:
            stats = _rewritten_groups(rewrite, plan, threads)
        else:
            parts = self.run_groups(clustering_operations_of(rewrite, plan, self.write_client.owner))
            stats = tuple(stat for part in parts for stat in part)
        return CommitMetadata(WriteOperation.CLUSTER, stats, replaced, table_at.schema_notes(schema))

    def finish_output(
        self, transaction: InstantTransaction, state: TableState, plan: ClusteringPlan, output: CommitMetadata
    ) -> tuple[bytes, CommitMetadata]:
        client = self.write_client.client
        table_at = client.at(state)
        lost = [stat.path for stat in output.stats if client.store.info(stat.path) is None]
        if lost:
            # A process that took this one for dead has deleted them, and executes the plan itself.
            raise InstantNotPending(
                f"the clustering {transaction.time} was taken over by another process: {lost[0]} is gone"
            )
        check_groups_unchanged(table_at, transaction.time, plan)
        if plan.opened:
            keep_rings(table_at, transaction.time, plan)
        output = with_stored_entries(table_at, output, self.write_client.settings)
        return encode_commit(output, state.config.version, replace=True), output

    def release_attempt(self, state: TableState, time: InstantTime, plan: ClusteringPlan) -> None:
        release_clustering(self.write_client.at(state), time, self.action, plan)


def _is_clustering(table_at: TableAt, pending: Instant) -> bool:
    return any(each.time == pending.time for each in pending_clusterings(table_at))


def _threads_for_groups(settings: Settings, groups: int) -> int:
    max_threads = settings.integer("lakefmt.write.threads") or _MOST_GROUPS_AT_ONCE
    return max(1, min(max_threads, cpu_count() or 1, groups))


def _rewritten_groups(rewrite: GroupRewrite, plan: ClusteringPlan, threads: int) -> tuple[WriteStat, ...]:
    """Rewrite the groups, a few at a time; the stats are in the order of the plan."""
    if threads == 1:
        return tuple(stat for number, group in enumerate(plan.groups) for stat in rewrite.run(number, group))
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(rewrite.run, number, group) for number, group in enumerate(plan.groups)]
        try:
            return tuple(stat for future in futures for stat in future.result())
        except BaseException:
            for waiting in futures:
                waiting.cancel()
            raise


# -------------------------------------------------------------------------------------------------------- table.cluster


@dataclass(frozen=True, slots=True)
class ClusterCall:
    """The arguments of ``table.cluster``, as they were given."""

    columns: Any = None
    order: str | None = None
    where: Any = None
    partitions: Any = None
    schedule: bool = False
    run: str | None = None
    abandon: str | None = None
    dry_run: bool = False


def cluster_table(
    client: TableClient,
    call: ClusterCall,
    options: Mapping[str, object] | None,
    run_groups: RunClustering | None = None,
) -> ClusteringResult:
    """Execute a call of ``table.cluster``.

    Args:
        client: the table.
        call: the arguments.
        options: settings of the call.
        run_groups: rewrites the groups, in other processes; None: threads of this one do.

    Raises:
        InvalidInputError: its arguments contradict each other.
    """
    if sum((bool(call.schedule), call.run is not None, call.abandon is not None, bool(call.dry_run))) > 1:
        raise InvalidInputError("cluster takes one of schedule, run, abandon and dry_run")
    plans = (call.columns, call.order, call.where, call.partitions)
    if (call.run is not None or call.abandon is not None) and any(each is not None for each in plans):
        raise InvalidInputError("run and abandon take a plan as it is: without columns, order, where and partitions")
    if call.abandon is not None:
        abandon_clustering(client, call.abandon, options)
        return ClusteringResult(None, ClusteringPlan())
    if call.run is not None:
        return run_clustering(client, options, run=call.run, run_groups=run_groups)
    order = _order_of_call(client, call, options)
    state = client.load()
    table_at = client.at(state)
    partitions = None if call.partitions is None else table_at.chosen_partitions(call.partitions)
    only = None if call.where is None else _chosen_groups(table_at, call.where)
    wish = ClusteringWish(order, only, partitions)
    if call.dry_run:
        return ClusteringResult(None, plan_clustering_of(client, options, wish))
    return run_clustering(client, options, wish, schedule=call.schedule, run_groups=run_groups)


def _order_of_call(client: TableClient, call: ClusterCall, options: Mapping[str, object] | None) -> RowOrder | None:
    if call.columns is None and call.order is None:
        return None
    call_options = {**client.options, **(options or {})}
    settings = resolve_settings(call_options, None, client.load_config().properties)
    if call.columns is None:
        columns = comma_separated(settings.text(SORT_COLUMNS) or "")
    else:
        columns = _named_columns(call.columns)
    if call.order is not None and not columns:
        raise InvalidInputError(f"order={call.order!r} needs columns to order rows by")
    return RowOrder(columns, parse_member(Layout, call.order or settings.text(LAYOUT) or "linear", "order"))


def _named_columns(columns: object) -> tuple[str, ...]:
    names = tuple(texts_argument([columns] if isinstance(columns, str) else columns, "columns"))
    if not all(names):
        raise InvalidInputError(f"columns are names of columns, not {shown(columns)}")
    return names


def _chosen_groups(table_at: TableAt, where: Any) -> frozenset[GroupKey]:
    """Return the file groups that may have rows of a filter."""
    query = plan_query(table_at.config, table_at.schema(), None, where, meta_columns=False)
    selected = select_slices(table_at, query, "snapshot")
    return frozenset((each.partition, each.file_id) for each in selected.slices)


def abandon_clustering(client: TableClient, instant: str, options: Mapping[str, object] | None = None) -> None:
    """Withdraw a pending clustering: delete what it wrote, and its plan.

    Raises:
        InstantNotFound: there is no pending clustering at `instant`.
        WriterActive: its process may be alive.
    """
    write_client = open_write_client(client, options)
    with write_client.lock.hold() as lease:
        config = client.load_config()
        check_writable(config)
        state = TableState(config, write_client.timeline(config).load())
        pending = next((each for each in pending_clusterings(client.at(state)) if each.time == instant), None)
        if pending is None:
            raise InstantNotFound(f"no clustering is pending at {instant}")
        write_client.at(state).check_not_at_work(pending)
        withdraw_clustering(write_client.at(state), pending, lease)


SORT_COLUMNS: Final = "hoodie.clustering.plan.strategy.sort.columns"
TARGET_BYTES: Final = "hoodie.clustering.plan.strategy.target.file.max.bytes"
LAYOUT: Final = "hoodie.layout.optimize.strategy"
#: A JVM loads one of these classes when it executes the plan.
_EXECUTOR_PACKAGE: Final = "org.apache.hudi.client.clustering.run.strategy."
_SORT_EXECUTOR: Final = f"{_EXECUTOR_PACKAGE}SparkSortAndSizeExecutionStrategy"
_BUCKET_EXECUTOR: Final = f"{_EXECUTOR_PACKAGE}SparkConsistentBucketClusteringExecutionStrategy"
_MAX_STAMP_BYTES = 64 * 1024


def clustering_plan_record(store: ObjectStore, plan: ClusteringPlan) -> dict[str, object]:
    """Return the record of a requested clustering."""
    parameters = {TARGET_BYTES: str(plan.target_bytes)} if plan.target_bytes else {}
    of_buckets = any(group.buckets is not None for group in plan.groups)
    if plan.order.columns:
        parameters |= {SORT_COLUMNS: ",".join(plan.order.columns), LAYOUT: plan.order.layout.value}
    return {
        "operationType": WriteOperation.CLUSTER.value,
        "clusteringPlan": {
            "inputGroups": [
                {
                    "slices": [_slice_record(store, each) for each in group.slices],
                    "metrics": group.metrics,
                    "numOutputFileGroups": group.num_outputs,
                    "extraMetadata": None
                    if group.buckets is None
                    else encode_node_change(group.partition, group.buckets),
                    "version": 1,
                }
                for group in plan.groups
            ],
            "strategy": {
                "strategyClassName": _BUCKET_EXECUTOR if of_buckets else _SORT_EXECUTOR,
                "strategyParams": parameters,
                "version": 1,
            },
            "extraMetadata": {},
            "version": 1,
            "preserveHoodieMetadata": True,
            "missingSchedulePartitions": [],
        },
        "extraMetadata": {},
        "version": 1,
    }


def _slice_record(store: ObjectStore, each: ClusteringSlice) -> dict[str, object]:
    def path(name: str) -> str:
        return absolute_path(store, join_path(each.partition, name))

    source = None
    if each.base_name is not None and isinstance(store, SupportsSources):
        source = store.source_uri(join_path(each.partition, each.base_name))
    return {
        "dataFilePath": "" if each.base_name is None else path(each.base_name),
        "deltaFilePaths": [path(name) for name in each.log_names],
        "fileId": each.file_id,
        "partitionPath": each.partition,
        "bootstrapFilePath": source or "",
        "version": 1,
    }


def parse_clustering_plan(store: ObjectStore, record: Mapping[str, Any], what: str) -> ClusteringPlan:
    """Return the plan in the record of a requested clustering, whichever engine wrote it.

    Args:
        store: the table; absolute paths must be below it.
        record: the decoded body.
        what: name of the file in errors.

    Raises:
        CorruptFile: it names something that is no base file or log of its file group, a group of several partitions, a
            file group twice, or does not say how buckets change.
        UnsafePath: it names something outside the table.
        UnsupportedFeature: a slice has a bootstrap file.
    """
    body = record.get("clusteringPlan") or {}
    strategy = body.get("strategy") or {}
    executor = str(strategy.get("strategyClassName") or _SORT_EXECUTOR)
    # These classes split and merge the buckets of consistent hashing.
    of_buckets = "ConsistentBucket" in executor or "ConsistentHashing" in executor
    parameters = {str(name): str(value) for name, value in (strategy.get("strategyParams") or {}).items()}
    groups = tuple(
        _parsed_group(store, group, what, of_buckets=of_buckets)
        for group in body.get("inputGroups") or ()
        if group.get("slices")
    )
    if any(len({each.partition for each in group.slices}) > 1 for group in groups):
        raise CorruptFile(f"{what} puts rows of several partitions together")
    plan = ClusteringPlan(groups, _parsed_order(parameters, what), _parsed_target_bytes(parameters))
    if len(plan.file_groups) != plan.num_slices:
        raise CorruptFile(f"{what} plans a file group twice")
    return plan


def _parsed_group(store: ObjectStore, group: Mapping[str, Any], what: str, *, of_buckets: bool) -> ClusteringGroup:
    slices = tuple(_parsed_slice(store, each, what) for each in group["slices"])
    entries = group.get("extraMetadata") or {}
    buckets = decode_node_change(entries, slices[0].partition, what) if of_buckets else None
    return ClusteringGroup(slices, max(1, int(group.get("numOutputFileGroups") or 1)), buckets)


def _parsed_order(parameters: Mapping[str, str], what: str) -> RowOrder:
    columns = comma_separated(parameters.get(SORT_COLUMNS, ""))
    try:
        return RowOrder(columns, parse_member(Layout, parameters.get(LAYOUT, "linear"), "order"))
    except UnknownSetting as error:
        raise CorruptFile(f"{what}: {error}") from None


def _parsed_target_bytes(parameters: Mapping[str, str]) -> int:
    target_bytes = parameters.get(TARGET_BYTES, "")
    return int(target_bytes) if target_bytes.isascii() and target_bytes.isdigit() and len(target_bytes) < 19 else 0


def _parsed_slice(store: ObjectStore, entry: Mapping[str, Any], what: str) -> ClusteringSlice:
    if entry.get("bootstrapFilePath") and not isinstance(store, SupportsSources):
        raise UnsupportedFeature(f"{what} rewrites a bootstrap file, and the table is not bootstrapped")
    partition = PartitionPath(str(entry.get("partitionPath") or ""))
    if partition:
        check_name(partition)
    file_id = FileId(str(entry.get("fileId") or ""))
    base_path = str(entry.get("dataFilePath") or "")
    base_name = name_in_partition(store, partition, base_path, what) if base_path else None
    logs = [name_in_partition(store, partition, str(path or ""), what) for path in entry.get("deltaFilePaths") or ()]
    base = None if base_name is None else parse_base_file(base_name)
    if base_name is not None and (base is None or base.file_id != file_id):
        raise CorruptFile(f"{what} names {base_name!r}, which is no base file of group {file_id!r}")
    for name in logs:
        checked_log_name(name, file_id, what)
    if base_name is None and not logs:
        raise CorruptFile(f"{what} plans the file group {file_id!r} without files")
    return ClusteringSlice(partition, file_id, base_name, tuple(logs))


# ------------------------------------------------------------------------------------------------- a pending clustering


def read_clustering_plan(table_at: TableAt, pending: Instant) -> ClusteringPlan | None:
    """Return the plan of a pending clustering, None when its process died before it was written.

    Raises:
        CorruptFile: the plan is damaged, or names files of other file groups.
        UnsafePath: it names something outside the table.
    """
    requested = next((f for f in table_at.timeline.files_of(pending) if f.state is State.REQUESTED), None)
    if requested is None:
        return None
    try:
        body = table_at.client.timeline_store(table_at.config).read_body(requested)
    except ObjectNotFound:
        return None
    if not body:
        return None
    record = decode_body(BodyKind.REQUESTED_REPLACE, body, what=requested.file_name)
    return parse_clustering_plan(table_at.client.store, record, requested.file_name)


def is_outdated(table_at: TableAt, pending: Instant, plan: ClusteringPlan) -> bool:
    """Return whether a file group of a plan was changed since it was made, or a column by which it orders rows was undone."""
    schema = table_at.columns_at(pending.time).schema()
    if any(field_at(schema, column) is None for column in plan.order.columns):
        return True
    return _changed_by(table_at, pending.time, plan) is not None


def check_groups_unchanged(table_at: TableAt, time: InstantTime, plan: ClusteringPlan) -> None:
    """Raise when a file group of a plan was changed since it was made: its new rows would be hidden.

    Raises:
        CommitConflict: another engine let an update through.
    """
    other = _changed_by(table_at, time, plan)
    if other is not None:
        raise CommitConflict(
            f"the clustering {time} would hide what {other} changed after it was planned: it does not complete, the next run "
            "withdraws it and plans again",
            other_instant=other.time,
        )


def _changed_by(table_at: TableAt, time: InstantTime, plan: ClusteringPlan) -> Instant | None:
    completed = (i for i in table_at.timeline.completed_of(*COMMIT_ACTIONS) if i.order_time > time)
    later = next((i for i in completed if _hides_changes(plan, table_at.commit_metadata(i).file_ids())), None)
    # Layout 1 does not say when a commit completed: one that began before the plan may have done so after it.
    return later or (_unseen_commit(table_at, time, plan) if table_at.timeline.layout == 1 else None)


def _unseen_commit(table_at: TableAt, time: InstantTime, plan: ClusteringPlan) -> Instant | None:
    """Return a commit that began before a plan, and replaced one of its file groups or wrote a file that the plan does not have."""
    slices = [each for group in plan.groups for each in group.slices]
    names = {(each.partition, each.file_id): {each.base_name, *each.log_names} for each in slices}
    begun = {(each.partition, each.file_id): _base_instant(each) for each in slices}
    oldest = min(begun.values(), default="")
    for instant in table_at.timeline.completed_of(*COMMIT_ACTIONS):
        if not oldest < instant.time <= time:
            continue
        commit = table_at.commit_metadata(instant)
        if any((partition, each) in names for partition, ids in commit.replaced_file_ids.items() for each in ids):
            return instant  # another clustering whose planner slept: both plans have the group
        for stat in commit.stats:
            group = stat.partition_path, stat.file_id
            if group in names and instant.time > begun[group] and stat.path.rpartition("/")[2] not in names[group]:
                return instant
    return None


def _base_instant(planned: ClusteringSlice) -> str:
    parsed = None if planned.base_name is None else parse_base_file(planned.base_name)
    return "" if parsed is None else parsed.instant


def _hides_changes(plan: ClusteringPlan, changed: Collection[tuple[PartitionPath, FileId]]) -> bool:
    """Return whether a clustering would hide what a commit wrote to some file groups.

    What Spark wrote to the new buckets of a group, too, comes with them.
    """
    for group in plan.groups:
        opened = {(group.partition, node.file_id) for node in (group.buckets.nodes if group.buckets else ())}
        if opened.isdisjoint(changed) and any((each.partition, each.file_id) in changed for each in group.slices):
            return True
    return False


def release_clustering(write_at: WriteAt, time: InstantTime, action: Action, plan: ClusteringPlan) -> None:
    """Delete what a failed attempt of this process wrote; the plan becomes pending at once, not when the heartbeat expires.

    Not after a failure of the store: the completed file may still appear.
    """
    with write_at.lock.hold() as lease:
        now = TableState(write_at.config, write_at.write_client.timeline(write_at.config).load())
        name = heartbeat_name(time)
        pending = next((i for i in now.timeline.pending if i.time == time and i.action is action), None)
        beat = json.loads(write_at.client.store.read(name, _MAX_STAMP_BYTES))
        if pending is None or beat["owner"] != write_at.owner:
            return
        lease.check()
        discard_clustered_files(write_at.write_client.at(now), time, plan.partitions)
        drop_rings(write_at.write_client, time, plan.opened)
        for file in now.timeline.files_of(pending):
            if file.state is State.INFLIGHT:
                check_transition(Action.CLUSTERING, State.INFLIGHT, State.REQUESTED)
                write_at.write_client.timeline(write_at.config).remove_files([file])
        write_at.client.store.delete([name])
