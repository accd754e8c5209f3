"""What a clustering chooses: packing ends, bytes are written three times at most, limits hold; and plans survive bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.compaction.cluster_plan import (
    FULL,
    ClusteringRules,
    ClusteringStrategy,
    PartitionFilter,
    PartitionMode,
    choose_cluster_partitions,
    plan_clustering,
)
from lakefmt._core.compaction.cluster_run import clustering_plan_record, clustering_rules, parse_clustering_plan
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile
from lakefmt._core.sorting import Layout, RowOrder
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, encode_body
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt.errors import CorruptFile, InvalidInputError, UnknownSetting, UnsafePath, UnsupportedFeature

TIME = InstantTime("20260101000000000")
BY_ID = RowOrder(("id",))


def slice_of(number: int, size: int, *, partition: str = "p", log_bytes: int = 0) -> FileSlice:
    file_id = FileId(f"f{number:07d}-0000-4000-8000-000000000000-0")
    place = PartitionPath(partition)
    base = BaseFile(place, f"{file_id}_0-0-0_{TIME}.parquet", file_id, "0-0-0", TIME, size)
    log = LogFile(place, f".{file_id}_{TIME}.log.1_0-0-0", file_id, TIME, 1, log_bytes)
    return FileSlice(place, file_id, TIME, base, (log,) if log_bytes else ())


def rewritten(sizes: list[int], full: int) -> list[int]:
    """The files that a group's bytes become: full ones, and the rest."""
    whole, rest = divmod(sum(sizes), full)
    return [full] * whole + ([rest] if rest else [])


@given(
    st.lists(st.integers(1, 130), min_size=1, max_size=60),
    st.integers(20, 120),
    st.integers(0, 300),
    st.integers(2, 5),
    st.integers(1, 4),
    st.sampled_from([FULL, 0.97, 1.0]),
)
def test_small_files_become_few_and_nothing_is_rewritten_for_ever(
    sizes: list[int], target: int, small_part: int, targets_per_group: int, groups: int, part: float
) -> None:
    """A limit above the target, and files that are not full to the last byte, were packed again in each run."""
    full = max(1, round(target * part))
    rules = ClusteringRules(
        small_bytes=max(1, target * small_part // 100),
        target_bytes=target,
        group_bytes=target * targets_per_group,
        max_groups=groups,
    )
    total, written, runs = sum(sizes), 0, 0
    files = dict(enumerate(sizes))
    while (plan := plan_clustering([slice_of(n, size) for n, size in files.items()], (), rules)).groups:
        runs += 1
        assert runs <= len(sizes), "packing does not end"
        for group in plan.groups:
            numbers = [int(each.file_id[1:8]) for each in group.slices]
            taken = [files.pop(number) for number in numbers]
            assert len(taken) > 1, "a file is rewritten alone"
            assert sum(taken) <= rules.group_bytes
            written += sum(taken)
            files |= {max(files, default=0) + 1000 + n: size for n, size in enumerate(rewritten(taken, full))}
    assert sum(files.values()) == total
    assert written <= 3 * total
    assert len(files) <= -(-total // rules.full_bytes) + 1
    below = [size for size in files.values() if size < rules.full_bytes]
    assert len(below) <= -(-sum(below) // target) + 1


def test_files_above_the_limit_stay_and_busy_ones_too() -> None:
    rules = ClusteringRules(small_bytes=50, target_bytes=100, group_bytes=200)
    slices = [slice_of(n, size) for n, size in enumerate((10, 20, 60, 100, 30))]
    plan = plan_clustering(slices, {("p", slices[4].file_id)}, rules)
    assert [[each.base_bytes for each in group.slices] for group in plan.groups] == [[20, 10]]
    assert plan_clustering(slices[3:], (), rules).groups == (), "one small file is left alone"


def test_groups_stay_in_partitions_and_in_their_bytes() -> None:
    rules = ClusteringRules(small_bytes=50, target_bytes=50, group_bytes=100, max_groups=3)
    slices = [slice_of(n, 40, partition="ab"[n % 2]) for n in range(12)]
    plan = plan_clustering(slices, (), rules)
    assert [(group.partition, len(group.slices), group.num_outputs) for group in plan.groups] == [
        ("a", 2, 2),
        ("a", 2, 2),
        ("a", 2, 2),
    ]
    assert plan.left == 3
    assert "3 groups left for later" in str(plan)


def test_rows_without_the_order_are_ordered_whatever_their_size() -> None:
    rules = ClusteringRules(order=BY_ID, small_bytes=50, target_bytes=100, group_bytes=200)
    slices = [slice_of(n, size) for n, size in enumerate((10, 20, 500, 400))]
    ordered = {("p", slices[3].file_id), ("p", slices[0].file_id)}
    plan = plan_clustering(slices, (), rules, ordered=ordered)
    assert [[each.base_bytes for each in group.slices] for group in plan.groups] == [[500], [20, 10]]
    everything = {("p", each.file_id) for each in slices[1:]}
    assert plan_clustering(slices[1:], (), rules, ordered=everything).groups == ()
    alone = ClusteringRules(order=BY_ID, small_bytes=0, single_slices=False, group_bytes=1)
    assert plan_clustering(slices, (), alone).groups == ()


def test_each_file_is_ordered_alone_by_single_file_sort() -> None:
    rules = ClusteringRules(strategy=ClusteringStrategy.SINGLE_FILE_SORT, order=BY_ID)
    slices = [slice_of(n, size) for n, size in enumerate((10, 20))]
    assert [len(group.slices) for group in plan_clustering(slices, (), rules).groups] == [1, 1]


@pytest.mark.parametrize(
    ("rules", "hour", "expected"),
    [
        (PartitionFilter(), 0, ["d1", "d2", "d3", "x"]),
        (PartitionFilter(PartitionMode.RECENT_DAYS, recent=2), 0, ["d3", "x"]),
        (PartitionFilter(PartitionMode.RECENT_DAYS, recent=2, skipped=1), 0, ["d2", "d3"]),
        (PartitionFilter(PartitionMode.SELECTED_PARTITIONS, first="d2", last="d3"), 0, ["d2", "d3"]),
        (PartitionFilter(PartitionMode.SELECTED_PARTITIONS, first="d3"), 0, ["d3", "x"]),
        (PartitionFilter(PartitionMode.DAY_ROLLING), 1, ["d2"]),
        (PartitionFilter(pattern="d[12]"), 0, ["d1", "d2"]),
        (PartitionFilter(named=frozenset({PartitionPath("x")})), 0, ["x"]),
    ],
)
def test_partitions_are_chosen(rules: PartitionFilter, hour: int, expected: list[str]) -> None:
    assert choose_cluster_partitions([*map(PartitionPath, ("d2", "x", "d1", "d3"))], rules, hour) == expected


def test_settings_become_rules_and_wrong_ones_are_refused() -> None:
    prefix = "hoodie.clustering.plan.strategy."
    rules = clustering_rules(
        resolve_settings(
            {
                f"{prefix}class": "org.apache.hudi.client.clustering.plan.strategy.SparkRecentDaysClusteringPlanStrategy",
                f"{prefix}sort.columns": "a, b",
                f"{prefix}target.file.max.bytes": 7,
                "hoodie.layout.optimize.strategy": "hilbert",
            }
        )
    )
    assert rules.order == RowOrder(("a", "b"), Layout.HILBERT)
    assert (rules.partitions.mode, rules.target_bytes) == (PartitionMode.RECENT_DAYS, 7)
    for name, value in {
        f"{prefix}class": "SparkNoSuchStrategy",
        "hoodie.layout.optimize.strategy": "peano",
        "hoodie.clustering.plan.partition.filter.mode": "SOME",
    }.items():
        with pytest.raises(UnknownSetting):
            clustering_rules(resolve_settings({name: value}))
    with pytest.raises(InvalidInputError, match="regular expression"):
        PartitionFilter(pattern="(")


# ------------------------------------------------------------------------------------------------------------- records


def test_a_plan_comes_back_from_its_bytes() -> None:
    store = MemoryStore("cluster-records")
    slices = [slice_of(1, 10), slice_of(2, 20, log_bytes=5), slice_of(3, 30, partition="")]
    order = RowOrder(("a", "b"), Layout.ZORDER)
    rules = ClusteringRules(order=order, target_bytes=16)
    plan = plan_clustering(slices, (), rules)
    body = encode_body(BodyKind.REQUESTED_REPLACE, clustering_plan_record(store, plan))
    found = parse_clustering_plan(store, decode_body(BodyKind.REQUESTED_REPLACE, body), "plan")
    assert [[each.paths for each in group.slices] for group in found.groups] == [
        [each.paths for each in group.slices] for group in plan.groups
    ]
    assert (found.order, found.target_bytes) == (order, 16)
    assert [group.num_outputs for group in found.groups] == [2, 3]


def broken(change: dict[str, object], *, strategy: dict[str, object] | None = None) -> dict[str, object]:
    file_id = slice_of(1, 10).file_id
    name = f"{file_id}_0-0-0_{TIME}.parquet"
    piece = {"dataFilePath": f"p/{name}", "deltaFilePaths": [], "fileId": file_id, "partitionPath": "p", **change}
    return {"clusteringPlan": {"inputGroups": [{"slices": [piece]}], "strategy": strategy or {}}}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"dataFilePath": "/etc/passwd"}, UnsafePath),
        ({"dataFilePath": "../x.parquet"}, UnsafePath),
        ({"partitionPath": "../q"}, UnsafePath),
        ({"partitionPath": "q"}, CorruptFile),
        ({"fileId": "other-0"}, CorruptFile),
        ({"dataFilePath": ""}, CorruptFile),
        ({"deltaFilePaths": ["p/no.log"]}, CorruptFile),
        ({"bootstrapFilePath": "p/b.parquet"}, UnsupportedFeature),
    ],
)
def test_a_hostile_plan_is_refused(change: dict[str, object], error: type[Exception]) -> None:
    store = MemoryStore("cluster-records")
    assert parse_clustering_plan(store, broken({}), "plan").num_slices == 1
    with pytest.raises(error):
        parse_clustering_plan(store, broken(change), "plan")


def test_plans_that_lakefmt_would_run_wrongly_are_refused() -> None:
    store = MemoryStore("cluster-records")
    consistent = {"strategyClassName": "org.apache.hudi.x.SparkConsistentBucketClusteringExecutionStrategy"}
    with pytest.raises(CorruptFile, match="buckets"):
        parse_clustering_plan(store, broken({}, strategy=consistent), "plan")
    twice = broken({})
    groups = twice["clusteringPlan"]["inputGroups"]  # type: ignore[index]
    groups.append(groups[0])
    with pytest.raises(CorruptFile, match="twice"):
        parse_clustering_plan(store, twice, "plan")
    with pytest.raises(CorruptFile, match="peano"):
        parse_clustering_plan(
            store, broken({}, strategy={"strategyParams": {"hoodie.layout.optimize.strategy": "peano"}}), "plan"
        )
