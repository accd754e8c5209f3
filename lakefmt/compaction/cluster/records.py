"""Content of the requested file of a clustering, encoded and checked (docs/format.md, Clustering). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lakefmt.compaction.cluster.plan import ClusteringGroup, ClusteringPlan, ClusteringSlice
from lakefmt.errors import CorruptFile, UnknownSetting, UnsupportedFeature
from lakefmt.filegroups.model import join_path
from lakefmt.formats.names import parse_base_file, parse_log_file
from lakefmt.index.bucket.child_nodes import decode_node_change, encode_node_change
from lakefmt.sorting.orders import Layout, RowOrder
from lakefmt.storage.api import ObjectStore
from lakefmt.storage.object_names import check_name
from lakefmt.timeline.rollback import absolute_path, relative_path
from lakefmt.values import FileId, PartitionPath, WriteOperation

__all__ = ["LAYOUT", "SORT_COLUMNS", "TARGET_BYTES", "clustering_plan_record", "parse_clustering_plan"]

SORT_COLUMNS: Final = "hoodie.clustering.plan.strategy.sort.columns"
TARGET_BYTES: Final = "hoodie.clustering.plan.strategy.target.file.max.bytes"
LAYOUT: Final = "hoodie.layout.optimize.strategy"
#: A JVM loads one of these classes when it executes the plan.
_EXECUTORS: Final = "org.apache.hudi.client.clustering.run.strategy."
_EXECUTOR: Final = f"{_EXECUTORS}SparkSortAndSizeExecutionStrategy"
_BUCKET_EXECUTOR: Final = f"{_EXECUTORS}SparkConsistentBucketClusteringExecutionStrategy"


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
                "strategyClassName": _BUCKET_EXECUTOR if of_buckets else _EXECUTOR,
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
    of_buckets = _is_of_buckets(str(strategy.get("strategyClassName") or _EXECUTOR))
    parameters = {str(name): str(value) for name, value in (strategy.get("strategyParams") or {}).items()}
    groups = tuple(
        _parsed_group(store, group, what, of_buckets=of_buckets)
        for group in body.get("inputGroups") or ()
        if group.get("slices")
    )
    if any(len({each.partition for each in group.slices}) > 1 for group in groups):
        raise CorruptFile(f"{what} puts rows of several partitions together")
    plan = ClusteringPlan(groups, _parsed_order(parameters, what), _parsed_bytes(parameters))
    if len(plan.file_groups) != plan.num_slices:
        raise CorruptFile(f"{what} plans a file group twice")
    return plan


def _is_of_buckets(executor: str) -> bool:
    """Return whether a class splits and merges the buckets of consistent hashing."""
    return "ConsistentBucket" in executor or "ConsistentHashing" in executor


def _parsed_group(store: ObjectStore, group: Mapping[str, Any], what: str, *, of_buckets: bool) -> ClusteringGroup:
    slices = tuple(_parsed_slice(store, each, what) for each in group["slices"])
    entries = group.get("extraMetadata") or {}
    buckets = decode_node_change(entries, slices[0].partition, what) if of_buckets else None
    return ClusteringGroup(slices, max(1, int(group.get("numOutputFileGroups") or 1)), buckets)


def _parsed_order(parameters: Mapping[str, str], what: str) -> RowOrder:
    columns = tuple(filter(None, (name.strip() for name in parameters.get(SORT_COLUMNS, "").split(","))))
    try:
        return RowOrder(columns, Layout.parse(parameters.get(LAYOUT, "linear")))
    except UnknownSetting as error:
        raise CorruptFile(f"{what}: {error}") from None


def _parsed_bytes(parameters: Mapping[str, str]) -> int:
    text = parameters.get(TARGET_BYTES, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _parsed_slice(store: ObjectStore, entry: Mapping[str, Any], what: str) -> ClusteringSlice:
    if entry.get("bootstrapFilePath"):
        raise UnsupportedFeature(f"{what} rewrites a bootstrap file: bootstrap tables are not supported")
    partition = PartitionPath(str(entry.get("partitionPath") or ""))
    if partition:
        check_name(partition)
    file_id = FileId(str(entry.get("fileId") or ""))
    base_path = str(entry.get("dataFilePath") or "")
    base_name = _name(store, partition, base_path, what) if base_path else None
    logs = [_name(store, partition, str(path or ""), what) for path in entry.get("deltaFilePaths") or ()]
    base = None if base_name is None else parse_base_file(base_name)
    if base_name is not None and (base is None or base.file_id != file_id):
        raise CorruptFile(f"{what} names {base_name!r}, which is no base file of group {file_id!r}")
    _check_logs(logs, file_id, what)
    if base_name is None and not logs:
        raise CorruptFile(f"{what} plans the file group {file_id!r} without files")
    return ClusteringSlice(partition, file_id, base_name, tuple(logs))


def _check_logs(names: Sequence[str], file_id: FileId, what: str) -> None:
    for name in names:
        log = parse_log_file(name)
        if log is None or log.file_id != file_id or log.is_cdc:
            raise CorruptFile(f"{what} names {name!r}, which is no log of file group {file_id!r}")


def _name(store: ObjectStore, partition: str, path: str, what: str) -> str:
    """Return a file's name in its partition."""
    inside, _, name = relative_path(store, path).rpartition("/")
    if inside != partition:
        raise CorruptFile(f"{what} names {path!r}, which is not in partition {partition!r}")
    return name
