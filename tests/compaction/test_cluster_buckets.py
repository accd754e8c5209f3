"""Clusterings that split, merge and order the buckets of consistent hashing: rows stay, and every row lies in its bucket."""

from __future__ import annotations

import functools
import itertools
import pickle

import pyarrow as pa
import pytest

from lakefmt._core.compaction.cluster_plan import ClusteringGroup, ClusteringPlan, ClusteringSlice
from lakefmt._core.compaction.cluster_run import _hides_changes, run_clustering
from lakefmt._core.compaction.operations import ClusteringOperations, run_clustering_operation
from lakefmt._core.formats.names import RING_DIRECTORY
from lakefmt._core.index.bucket_ring import (
    HashNode,
    NodeChange,
    decode_node_change,
    encode_node_change,
    first_ring,
    ring_with,
)
from lakefmt._core.table import Table
from lakefmt._core.values import FileId, PartitionPath, WriteStat
from lakefmt.errors import CommitConflict, CorruptFile, InstantNotFound, UnsupportedFeature
from lakefmt.testing.invariants import check_invariants
from lakefmt.testing.stores import FaultStore, no_faults
from tests.compaction.test_cluster import everything, pending
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import Ending, endings_of_run, sweep
from tests.index.ring_tables import ENGINE, FAST, NUM, check, make, rings_of, rows
from tests.index.test_resized_buckets import LEAST, MERGE_ALL, MOST, SPLIT_ALL
from tests.judges.compare import assert_same_multiset

MODEL = {f"k{n}": 1 + (n >= 30) for n in range(60)}
NUMBERS = itertools.count()


def made(version: int = 9, **how: object) -> Table:
    """A table of two partitions with four buckets each; some of them have logs only, some a base file and logs."""
    table = make(f"clustered-{next(NUMBERS)}", table_version=version, **how)
    table.upsert(rows(0, 40, 1))
    table.compact()
    table.upsert(rows(30, 60, 2))
    return table


def sizes(table: Table) -> dict[str, int]:
    return {partition: len(ring.nodes) for partition, ring in rings_of(table).items()}


def rings_stored(table: Table, instant: str | None) -> int:
    """How many rings and marks of an instant there are."""
    return sum(f"/{instant}." in info.name for info in table.client.store.list(RING_DIRECTORY))


@pytest.mark.parametrize("version", [6, 8, 9])
def test_buckets_are_split_merged_and_ordered(version: int) -> None:
    table = made(version)
    before = everything(table)
    planned = table.cluster(dry_run=True, options=SPLIT_ALL)
    assert (len(planned.plan.groups), planned.plan.num_slices) == (8, 8)
    assert "→ 2 buckets" in str(planned)
    done = table.cluster(options=SPLIT_ALL)
    assert (done.num_rows, sizes(table)) == (60, {"p=p0": 8, "p=p1": 8})
    check(table, MODEL)
    assert_same_multiset(everything(table), before, what="after the split")
    table.upsert(rows(50, 70, 3))
    model = MODEL | {f"k{n}": 3 for n in range(50, 70)}
    check(table, model)
    done = table.cluster(partitions=["p0"], options={**MERGE_ALL, LEAST: 2})
    assert (done.instant is not None, sizes(table)) == (True, {"p=p0": 2, "p=p1": 8})
    check(table, model)
    table.upsert(rows(0, 70, 4))
    model = {f"k{n}": 4 for n in range(70)}
    check(table, model)
    as_they_are = {LEAST: 2, MOST: 8}
    table.cluster("id", options={**as_they_are, "hoodie.bucket.index.merge.threshold": 0})
    check(table, model)
    check_invariants(table)
    for group in table.file_groups():
        assert group.base is not None
        keys = pa.concat_tables(table.client.reader.row_groups(group.base, ["id"]))["id"].to_pylist()
        assert keys == sorted(keys)
    settled = table.cluster("id", options={**as_they_are, "hoodie.bucket.index.merge.threshold": 0})
    assert settled.instant is None, "buckets that have their order are not rewritten"
    assert table.check("full").is_clean


def test_a_waiting_plan_refuses_writes_and_is_withdrawn_run_or_rolled_back() -> None:
    table = made()
    before = everything(table)
    planned = table.cluster(schedule=True, options=SPLIT_ALL)
    assert planned.instant is not None
    with pytest.raises(CommitConflict, match="pending clustering"):
        table.upsert(rows(0, 3, 9))
    with pytest.raises(CommitConflict, match="pending clustering"):
        table.insert_overwrite(rows(0, 3, 9))
    assert table.index.resize_buckets(options=SPLIT_ALL).instant is None, "one change of a ring at a time"
    assert table.cluster(schedule=True, options=SPLIT_ALL).instant is None
    table.cluster(abandon=planned.instant)
    assert pending(table) == []
    with pytest.raises(InstantNotFound):
        table.cluster(run=planned.instant)
    planned = table.cluster(schedule=True, options=SPLIT_ALL)
    assert planned.instant is not None
    table.rollback(planned.instant)
    assert (pending(table), rings_stored(table, planned.instant)) == ([], 0)
    planned = table.cluster(schedule=True, options=SPLIT_ALL)
    assert table.cluster(run=planned.instant).completion_time is not None
    assert rings_stored(table, planned.instant) == 4, "a ring and its mark in two partitions"
    assert_same_multiset(everything(table), before, what="after it ran")
    check(table, MODEL)
    assert planned.instant is not None
    table.rollback(planned.instant)
    assert rings_stored(table, planned.instant) == 0, "Spark would take a ring that is left for one that counts"
    assert sizes(table) == {"p=p0": 4, "p=p1": 4}
    check(table, MODEL)
    # An update goes before the plan where the settings say so.
    table.cluster(schedule=True, options=SPLIT_ALL)
    table.upsert(rows(0, 60, 5), options={"hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy"})
    check(table, {f"k{n}": 5 for n in range(60)})
    assert pending(table) == []


def test_changes_increments_and_other_processes() -> None:
    properties = {NUM: "4", ENGINE: "CONSISTENT_HASHING", "hoodie.table.cdc.enabled": "true"}
    table = made(properties=properties)
    changes = table.changes("0")

    def in_other_processes(operations: ClusteringOperations) -> list[tuple[WriteStat, ...]]:
        numbers = [*range(len(operations.plan.groups))] * 2
        done = [run_clustering_operation(pickle.loads(pickle.dumps(operations)), number) for number in numbers]
        return done[len(done) // 2 :]

    assert run_clustering(table.client, SPLIT_ALL, run_groups=in_other_processes).num_rows == 60
    check(table, MODEL)
    assert sizes(table) == {"p=p0": 8, "p=p1": 8}
    assert_same_multiset(table.changes("0"), changes, what="changes across the clustering")
    table.upsert(rows(0, 10, 7))
    check(table, MODEL | {f"k{n}": 7 for n in range(10)})


def test_the_metadata_table_and_its_statistics_follow() -> None:
    table = made(indexes=["column_stats"])
    before = everything(table)
    for how in (SPLIT_ALL, MERGE_ALL):
        assert table.cluster("v", options=how).completion_time is not None
        assert_same_multiset(everything(table), before, what="through the listing of the metadata table")
        check(table, MODEL)
        assert table.index.check().is_clean
    assert table.read(filter="v = 2").num_rows == 30


def test_what_cannot_be_is_refused() -> None:
    fixed = make("fixed-clustered", properties={NUM: "4"})
    with pytest.raises(UnsupportedFeature, match="fixed number"):
        fixed.cluster("id")
    strategy = "hoodie.clustering.plan.strategy.class"
    with pytest.raises(UnsupportedFeature, match="SparkConsistentBucketClusteringPlanStrategy only"):
        made().cluster(options={strategy: "SparkSizeBasedClusteringPlanStrategy"})
    assert (
        made().cluster(options={strategy: "x.SparkConsistentBucketClusteringPlanStrategy", **SPLIT_ALL}).num_rows == 60
    )
    plain = make("plain-clustered", index="simple", properties=None)
    with pytest.raises(UnsupportedFeature, match="consistent hashing only"):
        plain.cluster(options={strategy: "SparkConsistentBucketClusteringPlanStrategy"})


# -------------------------------------------------------------------------------------------------- plans of others

PART = PartitionPath("p")
RING = first_ring(PART, 4)
FIRST, SECOND, THIRD, LAST = RING.nodes
ENTRIES = encode_node_change(PART, NodeChange(0, (FIRST.value,), (HashNode(SECOND.value, "new"),)))


def test_a_merge_around_the_end_of_the_ring() -> None:
    change = NodeChange(0, (LAST.value,), (HashNode(FIRST.value, "new"),))
    assert decode_node_change(encode_node_change(PART, change), PART, "plan") == change
    after = ring_with(RING, [change], [{LAST.file_id, FIRST.file_id}], "plan")
    assert [node.prefix for node in after.nodes] == ["new", SECOND.prefix, THIRD.prefix]


@pytest.mark.parametrize(
    "change",
    [
        {"clustering.group.partition": "q"},
        {"clustering.group.sequence.no": "-1"},
        {"clustering.group.child.node": ""},
        {"clustering.group.child.node": "[" * 100_000},
        {"clustering.group.child.node": "[]"},
        {"clustering.group.child.node": '[{"value": 1, "fileIdPrefix": "a/b", "tag": "REPLACE"}]'},
        {"clustering.group.child.node": '[{"value": 1, "fileIdPrefix": "a", "tag": "NORMAL"}]'},
        {"clustering.group.child.node": '[{"value": -1, "fileIdPrefix": "a", "tag": "REPLACE"}]'},
        {"clustering.group.child.node": '[{"value": 1, "fileIdPrefix": null, "tag": "DELETE"}]'},
        {
            "clustering.group.child.node": '[{"value": 1, "fileIdPrefix": "a", "tag": "REPLACE"}, {"value": 1, "tag": "DELETE"}]'
        },
    ],
)
def test_hostile_metadata_of_a_group_are_refused(change: dict[str, str]) -> None:
    with pytest.raises(CorruptFile):
        decode_node_change(ENTRIES | change, PART, "plan")


@pytest.mark.parametrize(
    ("change", "sources"),
    [
        (NodeChange(0, (FIRST.value,), (HashNode(THIRD.value, "new"),)), (FIRST, THIRD)),  # over a bucket in between
        (NodeChange(0, (), (HashNode(5, "new"), HashNode(SECOND.value, "more"))), (SECOND,)),  # hashes of the first one
        (NodeChange(0, (), (HashNode(SECOND.value, FIRST.prefix),)), (SECOND,)),  # a file group that is there
        (NodeChange(0, (), (HashNode(SECOND.value, "new"),)), (FIRST,)),  # other rows than those of the bucket
        (NodeChange(0, (FIRST.value,), (HashNode(5, "new"),)), (FIRST,)),  # some hashes go to the next bucket
    ],
)
def test_plans_that_would_lose_keys_are_refused(change: NodeChange, sources: tuple[HashNode, ...]) -> None:
    with pytest.raises(CorruptFile):
        ring_with(RING, [change], [{FileId(node.file_id) for node in sources}], "plan")


@pytest.mark.parametrize(("written", "hides"), [((FIRST,), True), ((FIRST, LAST), False), ((SECOND,), False)])
def test_what_spark_writes_to_old_and_new_buckets_is_not_hidden(written: tuple[HashNode, ...], hides: bool) -> None:
    moved = ClusteringSlice(PART, FIRST.file_id, f"{FIRST.file_id}_0-0-0_20260101000000000.parquet")
    group = ClusteringGroup((moved,), 1, NodeChange(0, (), (LAST,)))
    assert _hides_changes(ClusteringPlan((group,)), {(PART, node.file_id) for node in written}) is hides


# ----------------------------------------------------------------------------------------------------------- deaths


DYING = {**FAST, "lakefmt.write.threads": 1, "hoodie.clean.automatic": False}


@functools.cache
def repeatable() -> tuple[Repeatable, pa.Table]:
    origin = make(f"dying-{next(NUMBERS)}", options=DYING)
    origin.upsert(rows(0, 9, 1))
    return Repeatable(origin.client.store), everything(origin)


@pytest.mark.slow
@pytest.mark.xdist_group(
    "bucket-clustering-dies"
)  # one process asks all endings: it knows the states that it has checked
@pytest.mark.parametrize("ending", endings_of_run(), ids=str)
def test_dying_anywhere_leaves_the_rows_and_the_next_clustering_ends_it(ending: Ending) -> None:
    origin, before = repeatable()
    whole = FaultStore(origin.copy(), no_faults)
    origin.table(whole, DYING).cluster(options=SPLIT_ALL)
    assert len(whole.effects) >= 10
    call = lambda store: origin.table(store, DYING).cluster(options=SPLIT_ALL)  # noqa: E731
    for left in sweep(origin, call, len(whole.effects), ending):
        healthy, story = origin.table(left.store, DYING, process=1), left.story
        assert_same_multiset(everything(healthy), before, what=story)
        healthy.cluster(options={**SPLIT_ALL, MOST: 5})
        assert_same_multiset(everything(healthy), before, what=story)
        assert pending(healthy) == [], story
        assert 5 <= max(sizes(healthy).values()) <= 8, story
        healthy.upsert(rows(0, 12, 9))
        check(healthy, {f"k{n}": 9 for n in range(12)})
        assert healthy.check("full").is_clean, story
