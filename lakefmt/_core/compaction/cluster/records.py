"""The plan of a clustering in its requested file, and checks of a pending one (docs/format.md, Clustering).

The content of the file is encoded and checked. Of a pending clustering: its plan, whether its file groups are as they were, and
what a failed attempt left (effects).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from lakefmt._core.arguments import comma_separated, parse_member
from lakefmt._core.compaction.cluster.plan import ClusteringGroup, ClusteringPlan, ClusteringSlice
from lakefmt._core.compaction.compact.records import checked_log_name, name_in_partition
from lakefmt._core.filegroups.model import join_path
from lakefmt._core.filegroups.table_client import TableAt, TableState
from lakefmt._core.formats.names import parse_base_file
from lakefmt._core.index.bucket.ring import decode_node_change, encode_node_change
from lakefmt._core.schema.types import field_at
from lakefmt._core.sorting.orders import Layout, RowOrder
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.object_names import check_name
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State, check_transition
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body
from lakefmt._core.timeline.rollback import absolute_path
from lakefmt._core.transactions.client import WriteAt
from lakefmt._core.transactions.rollback_executor import discard_clustered_files, drop_rings
from lakefmt._core.values import FileId, InstantTime, PartitionPath, WriteOperation
from lakefmt.errors import CommitConflict, CorruptFile, ObjectNotFound, UnknownSetting, UnsupportedFeature

__all__ = [
    "LAYOUT",
    "SORT_COLUMNS",
    "TARGET_BYTES",
    "check_groups_unchanged",
    "clustering_plan_record",
    "is_outdated",
    "parse_clustering_plan",
    "read_clustering_plan",
    "release_clustering",
]

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

    return {
        "dataFilePath": "" if each.base_name is None else path(each.base_name),
        "deltaFilePaths": [path(name) for name in each.log_names],
        "fileId": each.file_id,
        "partitionPath": each.partition,
        "bootstrapFilePath": "",
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
    if entry.get("bootstrapFilePath"):
        raise UnsupportedFeature(f"{what} rewrites a bootstrap file: bootstrap tables are not supported")
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
