"""Clusterings that split and merge the buckets of consistent hashing: planned by one engine, carried out by the other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakefmt._core.index.bucket_index import I64, ConsistentBucketIndex
from lakefmt._core.index.bucket_ring import HashRing
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.values import FileId, WriteOperation
from lakefmt._core.write.context import WriteRequest
from lakefmt._core.write.transaction import WriteTransaction
from tests.compat.test_spark_bucket import BUCKETS, RESIZE, SCHEMA, Rows, check_rings, make, put, rows
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import SparkJudge

pytestmark = [pytest.mark.judge_spark, pytest.mark.every_second_day(1)]

ENGINE = {"hoodie.index.type": "BUCKET", "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}
NUMBER = {"hoodie.bucket.index.num.buckets": str(BUCKETS)}
SPLIT = {"hoodie.bucket.index.max.num.buckets": 6, "hoodie.bucket.index.split.threshold": 0}
TWICE: dict[str, object] = {
    "hoodie.clustering.updates.strategy": RESIZE["hoodie.clustering.updates.strategy"],
}
#: Spark's clusterings are asked for one by one.
CLASSES = {name: value for name, value in RESIZE.items() if ".inline" not in name}


class Turns:
    """A table with consistent hashing that both engines write, cluster and read."""

    def __init__(self, root: Path, version: int, spark: SparkJudge) -> None:
        self.root, self.spark = root, spark
        self.model: Rows = {}
        self.table = make(root, "mor", version, ["id"], "id", **{"hoodie.index.bucket.engine": "CONSISTENT_HASHING"})
        self.settings = {**ENGINE, **NUMBER, **CLASSES, "hoodie.metadata.enable": "false"}
        self.settings |= {"hoodie.embed.timeline.server": "false", "hoodie.datasource.write.recordkey.field": "id"}
        if not spark.bundle.startswith("0."):
            self.settings |= {"hoodie.write.table.version": str(version), "hoodie.write.auto.upgrade": "false"}

    def upsert_ours(self, first: int, last: int, ts: int, options: dict[str, object] | None = None) -> None:
        self.expected = put(self.model, rows(first, last, ts, "o"))
        self.table.upsert(rows(first, last, ts, "o"), options=options)

    def delete_ours(self, count: int, options: dict[str, object]) -> None:
        gone = [key for key, _ in list(self.model)[-count:]]
        self.table.delete(pc.field("id").isin(gone), options=options)
        for key in [key for key in self.model if key[0] in gone]:
            del self.model[key]
        self.expected = pa.Table.from_pylist(list(self.model.values()), schema=SCHEMA)

    def upsert_theirs(self, first: int, last: int, ts: int) -> None:
        self.expected = put(self.model, rows(first, last, ts, "s"))
        self.spark.write(self.root, rows(first, last, ts, "s"), index="BUCKET", options=self.settings)

    def call(self, op: str, **settings: str) -> None:
        named = {**self.settings, **settings}
        self.spark.sql(f"call run_clustering(path => '{self.root}', op => '{op}')", settings=named)

    def agreed(self, what: str, buckets: int | None = None) -> None:
        assert_same_multiset(self.table.read(), self.expected, what=what)
        self.spark.assert_same_rows(self.root, self.expected, what=f"{what}, Spark")
        rings = check_rings(self.table)
        assert buckets is None or {len(ring.nodes) for ring in rings.values()} == {buckets}, what


def take_turns(turns: Turns) -> None:
    turns.upsert_ours(0, 40, 1)
    planned = turns.table.cluster(schedule=True, options=SPLIT)
    turns.call("execute")
    assert turns.table.client.load().timeline.pending == ()
    turns.agreed("Spark ran our split and merge", 5)
    turns.upsert_theirs(10, 60, 2)
    turns.agreed("Spark wrote on")
    turns.call("schedule", **{"hoodie.parquet.max.file.size": str(1 << 30)})
    (waiting,) = [each.time for each in turns.table.client.load().timeline.pending]
    done = turns.table.cluster(run=waiting)
    assert done.completion_time is not None
    assert all(len(ring.nodes) < 3 for ring in check_rings(turns.table).values())
    turns.agreed("we ran Spark's merge")
    turns.upsert_theirs(0, 70, 3)
    turns.agreed("Spark wrote on ours")
    turns.table.cluster(
        "v", options={"hoodie.bucket.index.max.num.buckets": 2, "hoodie.bucket.index.split.threshold": 0}
    )
    turns.agreed("our split with an order")
    turns.upsert_theirs(20, 80, 4)
    turns.upsert_ours(0, 10, 5)
    turns.agreed("both wrote on")
    assert planned.instant is not None


def test_plans_of_buckets_by_turns(
    tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(tmp_path / "t", 9, spark_judge)
    take_turns(turns)
    assert_same_multiset(hudi_rs_judge.snapshot(turns.root), turns.expected, what="hudi-rs")
    # The sabotage: rows in the wrong one of two new buckets are not found by Spark, and stored once more.
    whole = ConsistentBucketIndex.rows_by_node

    def swapped(index: ConsistentBucketIndex, keys: pa.StringArray, ring: HashRing) -> list[tuple[FileId, I64]]:
        placed = whole(index, keys, ring)
        ids = [file_id for file_id, _ in placed]
        return [(file_id, numbers) for file_id, (_, numbers) in zip(reversed(ids), placed, strict=True)]

    with monkeypatch.context() as wrong:
        wrong.setattr(ConsistentBucketIndex, "rows_by_node", swapped)
        turns.table.cluster(
            options={"hoodie.bucket.index.max.num.buckets": 8, "hoodie.bucket.index.split.threshold": 0}
        )
    turns.upsert_theirs(0, 80, 9)
    with pytest.raises(AssertionError):
        spark_judge.assert_same_rows(turns.root, turns.expected, what="sabotaged")


def test_plans_of_buckets_by_turns_with_hudi_1_0_2(tmp_path: Path, spark_judge_102: SparkJudge) -> None:
    take_turns(Turns(tmp_path / "t", 8, spark_judge_102))


def test_plans_of_buckets_by_turns_with_hudi_0_15(tmp_path: Path, spark_judge_0150: SparkJudge) -> None:
    take_turns(Turns(tmp_path / "t", 6, spark_judge_0150))


def write_to_both(turns: Turns, *, by_spark: bool) -> None:
    """Both engines write to the old and to the new buckets of one plan of ours; one of them runs it."""
    turns.upsert_ours(0, 40, 1)
    planned = turns.table.cluster(schedule=True, options=SPLIT)
    assert planned.instant is not None
    turns.upsert_ours(10, 50, 2, TWICE)
    turns.agreed("we wrote to both, the plan waits", BUCKETS)
    turns.upsert_theirs(20, 60, 3)
    turns.agreed("Spark wrote to both", BUCKETS)
    turns.delete_ours(5, TWICE)
    turns.upsert_ours(30, 65, 4, TWICE)
    turns.agreed("we deleted and wrote", BUCKETS)
    if by_spark:
        turns.call("execute")
    else:
        assert turns.table.cluster(run=planned.instant).completion_time is not None
    turns.agreed("after the plan", 5)
    turns.upsert_theirs(30, 70, 5)
    turns.upsert_ours(0, 35, 6)
    turns.agreed("both wrote on")
    turns.table.compact()
    turns.agreed("compacted")


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("by_spark", [True, False])
def test_writes_to_old_and_new_buckets(tmp_path: Path, spark_judge: SparkJudge, by_spark: bool) -> None:
    turns = Turns(tmp_path / "t", 9, spark_judge)
    write_to_both(turns, by_spark=by_spark)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("by_spark", [True, False])
def test_writes_to_old_and_new_buckets_of_version_6(tmp_path: Path, spark_judge: SparkJudge, by_spark: bool) -> None:
    write_to_both(Turns(tmp_path / "t", 6, spark_judge), by_spark=by_spark)


def test_writes_to_old_and_new_buckets_with_hudi_1_0_2(tmp_path: Path, spark_judge_102: SparkJudge) -> None:
    write_to_both(Turns(tmp_path / "t", 8, spark_judge_102), by_spark=True)


def test_writes_to_old_and_new_buckets_with_hudi_0_15(tmp_path: Path, spark_judge_0150: SparkJudge) -> None:
    write_to_both(Turns(tmp_path / "t", 6, spark_judge_0150), by_spark=True)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [6, 9])
def test_our_writes_to_both_and_plans_of_spark(tmp_path: Path, spark_judge: SparkJudge, version: int) -> None:
    turns = Turns(tmp_path / "t", version, spark_judge)
    turns.upsert_ours(0, 40, 1)
    turns.upsert_theirs(10, 45, 2)
    turns.call("schedule")
    (waiting,) = [each.time for each in turns.table.client.load().timeline.pending]
    for turn in range(3):
        turns.upsert_ours(5 * turn, 40 + 5 * turn, 3 + turn, TWICE)
        turns.agreed(f"write {turn} beside Spark's plan", BUCKETS)
    turns.call("execute")
    assert turns.table.client.load().timeline.pending == ()
    turns.agreed("Spark ran its plan")
    assert waiting in {each.time for each in turns.table.client.load().timeline.commits}
    turns.upsert_theirs(0, 60, 9)
    turns.agreed("Spark wrote on")


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [6, 9])
def test_a_plan_that_is_withdrawn_takes_the_copies_of_both_engines(
    tmp_path: Path, spark_judge: SparkJudge, version: int
) -> None:
    turns = Turns(tmp_path / "t", version, spark_judge)
    turns.upsert_ours(0, 40, 1)
    for verb in ("abandon", "rollback"):
        planned = turns.table.cluster(schedule=True, options=SPLIT)
        assert planned.instant is not None
        turns.upsert_theirs(10, 50, 2)
        turns.upsert_ours(15, 55, 3, TWICE)
        if verb == "abandon":
            turns.table.cluster(abandon=planned.instant)
        else:
            turns.table.rollback(planned.instant, force=True)
        assert not [path for path in turns.root.rglob(f"*_{planned.instant}.*") if path.suffix != ".crc"]
        turns.agreed(f"the plan is gone by {verb}", BUCKETS)
    turns.upsert_theirs(30, 60, 4)
    turns.upsert_ours(0, 35, 5)
    turns.agreed("both wrote on", BUCKETS)


def test_spark_takes_a_dead_write_of_ours_back(tmp_path: Path, spark_judge: SparkJudge) -> None:
    """Its copies go with it, as Hudi's markers name them."""
    turns = Turns(tmp_path / "t", 9, spark_judge)
    turns.upsert_ours(0, 40, 1)
    planned = turns.table.cluster(schedule=True, options=SPLIT)
    dying = WriteTransaction.begin(turns.table.client, WriteRequest(WriteOperation.UPSERT, TWICE))
    dying.write(dying.place(dying.locate(dying.key(rows(0, 90, 8, "x")))))
    dying._abandon()
    turns.table.client.store.delete([heartbeat_name(dying.context.instant)])
    turns.upsert_theirs(10, 50, 2)
    pending = turns.table.client.load().timeline.pending
    assert [each.time for each in pending] == [planned.instant], "Spark rolled our write back"
    turns.agreed("Spark rolled our write back")
    turns.call("execute")
    turns.agreed("and ran the plan", 5)


def test_a_metadata_table_that_spark_makes_while_the_plan_waits(tmp_path: Path, spark_judge: SparkJudge) -> None:
    """Hudi does not list the logs of new buckets in it; the clustering, run by us, does."""
    turns = Turns(tmp_path / "t", 9, spark_judge)
    turns.upsert_ours(0, 40, 1)
    planned = turns.table.cluster(schedule=True, options=SPLIT)
    turns.upsert_ours(0, 50, 2, TWICE)
    turns.settings["hoodie.metadata.enable"] = "true"
    turns.upsert_theirs(45, 60, 3)
    assert "files" in turns.table.client.load_config().metadata_partitions
    turns.agreed("the plan waits", BUCKETS)
    assert not turns.table.index.check().is_clean
    turns.table.cluster(run=planned.instant)
    turns.agreed("after the plan", 5)
    assert turns.table.index.check().is_clean, str(turns.table.index.check())
    for told in ("true", "false"):
        turns.spark.assert_same_rows(turns.root, turns.expected, options={"hoodie.metadata.enable": told}, what=told)
    turns.upsert_theirs(30, 70, 4)
    turns.upsert_ours(0, 35, 5)
    turns.agreed("both wrote on")
