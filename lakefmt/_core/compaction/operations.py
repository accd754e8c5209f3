"""The operations of compactions and clusterings as single calls, for engines that spread them over processes.

One process plans, requests and completes, as ever: it gives :func:`lakefmt._core.compaction.compact_run.run_compaction` a function
that runs the operations. Workers anywhere call :func:`run_operation`, twice or again after a crash as they like: the name of
every file is fixed by the attempt of the process that plans, and a file that is there already is taken as it is.

Of a clustering the process that plans fixes the file ids of every group, so a group that runs twice writes files of the same names
with the same rows. :class:`RewriteResult` is what the results of these services have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Generic, TypeVar

from lakefmt._core.compaction.cluster_plan import ClusteringPlan
from lakefmt._core.compaction.cluster_rewrite import GroupRewrite
from lakefmt._core.compaction.compact_merge import LogMerge, SliceFiles, SliceMerge
from lakefmt._core.compaction.compact_plan import CompactionPlan
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.index.bucket_ring import HashRing
from lakefmt._core.notebook import NotebookText
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.open import open_store
from lakefmt._core.timeline.heartbeat import read_stamp
from lakefmt._core.values import InstantTime, PartitionPath, WriteStat
from lakefmt.errors import InstantNotPending

__all__ = [
    "ClusteringOperations",
    "RewriteResult",
    "RunClustering",
    "RunOperations",
    "ServiceOperations",
    "clustering_operations_of",
    "operations_of",
    "run_clustering_operation",
    "run_operation",
]


@dataclass(frozen=True, slots=True)
class ServiceOperations:
    """The operations of a compaction, or log compaction, that is inflight; it pickles, without open files and secrets.

    Attributes:
        url: the table.
        options: settings of the call and of the handle.
        owner: the writer whose heartbeat keeps the instant alive.
        state: the table when the plan was made.
        time: the requested time of the instant.
        schema_text: the schema of the new files, meta columns included, as Avro JSON.
        attempt: a number that no other attempt has.
        plan: the operations.
        verify: compare every new base file with its file slice.
    """

    url: str
    options: Mapping[str, object] = field(repr=False)
    owner: str
    state: TableState = field(repr=False)
    time: InstantTime
    schema_text: str = field(repr=False)
    attempt: int
    plan: CompactionPlan
    verify: bool = False


#: Runs all operations, each by :func:`run_operation`; what each returned, in the order of the plan.
RunOperations = Callable[[ServiceOperations], Sequence[tuple[WriteStat, ...]]]


def operations_of(merge: SliceMerge | LogMerge, plan: CompactionPlan, owner: str) -> ServiceOperations:
    """Return the operations of a plan for other processes.

    Args:
        merge: what the operations have in common.
        plan: the slices.
        owner: the writer.
    """
    verify = isinstance(merge, SliceMerge) and merge.verify
    return ServiceOperations(
        merge.client.store.url,
        _options_of(merge.client, merge.settings),
        owner,
        replace(merge.state, history=None),
        merge.time,
        merge.schema_text,
        merge.attempt,
        plan,
        verify,
    )


def _options_of(client: TableClient, settings: Settings) -> dict[str, object]:
    """Return the options by which another process resolves the same settings."""
    changed = (name for name, origin in settings.origins.items() if origin not in ("default", "table"))
    return {**client.options, **{name: settings.values[name] for name in changed}}


def _check_owner(store: ObjectStore, time: InstantTime, owner: str, service: str) -> None:
    """Raise when the process that planned is dead, or another one has taken the plan over."""
    stamp = read_stamp(store, time)
    if stamp is None or stamp.get("owner") != owner:
        raise InstantNotPending(f"the {service} {time} has ended, or another process has taken it over")


def run_operation(
    operations: ServiceOperations, number: int, storage_options: Mapping[str, object] | None = None
) -> tuple[WriteStat, ...]:
    """Run one operation: merge the logs of one file slice; runs anywhere, any number of times.

    Args:
        operations: of the plan.
        number: the index of the operation in its plan.
        storage_options: credentials; operations carry none.

    Returns:
        The entries for the commit.

    Raises:
        InstantNotPending: the process that plans is dead, or another one has taken the plan over.
        SnapshotExpired: a file of the plan does not exist any more.
        CorruptFile: a file or block is damaged.
    """
    store = open_store(operations.url, storage_options)
    client = TableClient(store, operations.options)
    state, operation = operations.state, operations.plan.operations[number]

    check = partial(_check_owner, store, operations.time, operations.owner, "service")
    check()
    bases, logs = client.storage_listing(state.config).files([operation.partition])
    files: SliceFiles = {base.name: base for base in bases}, {log.name: log for log in logs}
    settings = resolve_settings(operations.options, None, state.config.properties)
    common = (client, state, settings, operations.time, operations.schema_text, operations.attempt)
    if operations.plan.log:
        return tuple(LogMerge(*common, before_put=check).run_one(number, operation, files))
    merge = SliceMerge(*common, verify=operations.verify, before_put=check, adopts=True)
    return (merge.run(number, operation, files),)


@dataclass(frozen=True, slots=True)
class ClusteringOperations:
    """The groups of a clustering that is inflight; it pickles, without open files and secrets.

    Attributes:
        url: the table.
        options: settings of the call and of the handle.
        owner: the writer whose heartbeat keeps the instant alive.
        state: the table when the plan was made.
        time: the requested time of the instant.
        schema_text: the schema of the new files, meta columns included, as Avro JSON.
        attempt: a number that no other attempt has.
        plan: the groups.
        target_bytes: a new file is full at this size.
        memory_bytes: what one group may hold.
        group_ids: a UUID for each group, from which the ids of its files are made.
        rings: of the partitions whose buckets are split, merged or renewed, as they are afterwards.
    """

    url: str
    options: Mapping[str, object] = field(repr=False)
    owner: str
    state: TableState = field(repr=False)
    time: InstantTime
    schema_text: str = field(repr=False)
    attempt: int
    plan: ClusteringPlan
    target_bytes: int
    memory_bytes: int
    group_ids: tuple[str, ...]
    rings: Mapping[PartitionPath, HashRing] = field(default_factory=dict, repr=False)


#: Rewrites all groups, each by :func:`run_clustering_operation`; what each returned, in the order of the plan.
RunClustering = Callable[[ClusteringOperations], Sequence[tuple[WriteStat, ...]]]


def clustering_operations_of(rewrite: GroupRewrite, plan: ClusteringPlan, owner: str) -> ClusteringOperations:
    """Return the groups of a plan for other processes.

    Args:
        rewrite: what the groups have in common.
        plan: the groups.
        owner: the writer.
    """
    return ClusteringOperations(
        rewrite.client.store.url,
        _options_of(rewrite.client, rewrite.settings),
        owner,
        replace(rewrite.state, history=None),
        rewrite.time,
        rewrite.schema_text,
        rewrite.attempt,
        plan,
        rewrite.target_bytes,
        rewrite.settings.integer("lakefmt.write.window.bytes"),
        tuple(rewrite.group_ids),
        rewrite.rings,
    )


def run_clustering_operation(
    operations: ClusteringOperations, number: int, storage_options: Mapping[str, object] | None = None
) -> tuple[WriteStat, ...]:
    """Rewrite one group; runs anywhere, any number of times.

    Args:
        operations: of the plan.
        number: the index of the group in its plan.
        storage_options: credentials; operations carry none.

    Returns:
        The entries for the commit.

    Raises:
        InstantNotPending: the process that plans is dead, or another one has taken the plan over.
        SnapshotExpired: a file of the plan does not exist any more.
        CorruptFile: a file or block is damaged.
    """
    store = open_store(operations.url, storage_options)
    client = TableClient(store, operations.options)
    state, group = operations.state, operations.plan.groups[number]

    check = partial(_check_owner, store, operations.time, operations.owner, "clustering")
    check()
    bases, logs = client.storage_listing(state.config).files([group.partition])
    rewrite = GroupRewrite(
        client,
        state,
        resolve_settings(operations.options, None, state.config.properties),
        operations.time,
        operations.schema_text,
        operations.plan.order,
        operations.target_bytes,
        operations.attempt,
        operations.memory_bytes,
        {**{base.path: base for base in bases}, **{log.path: log for log in logs}},
        operations.group_ids,
        operations.rings,
        before_put=check,
        adopts=True,
    )
    return tuple(rewrite.run(number, group))


Plan_co = TypeVar("Plan_co", covariant=True)


@dataclass(frozen=True, slots=True)
class RewriteResult(NotebookText, Generic[Plan_co]):
    """What a compaction, log compaction or clustering did.

    Attributes:
        instant: its requested time; None: there was nothing to rewrite, or it is only a plan.
        plan: what was to be rewritten.
        completion_time: when it became visible; None: it did not.
        files: the new files, in the order of the plan.
        finished: pending instants of the service that were executed before.
        seconds: how long it took.
    """

    instant: InstantTime | None
    plan: Plan_co
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
