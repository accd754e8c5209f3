"""Clusterings by turns: Spark carries out our plan, we carry out Spark's, and each reads and goes on with what the other did."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import WriteOperation
from lakefmt.errors import CommitConflict
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import JudgeError, SparkJudge

pytestmark = [pytest.mark.judge_spark, pytest.mark.every_second_day(0)]

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "hoodie.clean.automatic": False,
    "hoodie.parquet.small.file.limit": 0,
}


def rows(first: int, last: int, ts: int = 1) -> pa.Table:
    numbers = range(first, last)
    values = [[f"k{n:03d}" for n in numbers], [("sf", "oslo")[n % 2] for n in numbers], [ts] * len(numbers)]
    return pa.table([*values, [float((n * 37) % 11) for n in numbers]], schema=SCHEMA)


def clusterings(table: lakefmt.Table) -> list[str]:
    """Requested times of completed clusterings."""
    state = table.client.load()
    found = state.timeline.completed_of(Action.REPLACE_COMMIT)
    return [i.time for i in found if table.client.at(state).commit_metadata(i).operation is WriteOperation.CLUSTER]


class Turns:
    """A table of several small files per partition, with judges that read it after every step."""

    def __init__(self, root: Path, version: int, kind: str, spark: SparkJudge, other: HudiRsJudge) -> None:
        self.root, self.version, self.spark, self.other = root, version, spark, other
        self.table = lakefmt.create_table(
            str(root),
            schema=SCHEMA,
            record_key="id",
            partition_by="city",
            ordering="ts",
            table_version=version,
            table_type=kind,
            options=OPTIONS,
        )
        for start in (0, 6, 12):
            self.table.insert(rows(start, start + 6))
        self.table.upsert(rows(4, 8, ts=2))
        self.settings = {
            "hoodie.metadata.enable": "false",
            "hoodie.embed.timeline.server": "false",
            "hoodie.clean.automatic": "false",
            "hoodie.parquet.small.file.limit": "0",
        }
        if not spark.bundle.startswith("0."):
            self.settings |= {"hoodie.write.table.version": str(version), "hoodie.write.auto.upgrade": "false"}

    def call(self, op: str, **more: str) -> None:
        told = "".join(f", {name} => '{value}'" for name, value in more.items())
        self.spark.sql(f"call run_clustering(path => '{self.root}', op => '{op}'{told})", settings=self.settings)

    def agreed(self, expected: pa.Table, what: str) -> None:
        assert_same_multiset(self.table.read(), expected, what=what)
        self.spark.assert_same_rows(self.root, expected, what=f"{what}, Spark")
        assert_same_multiset(self.other.snapshot(self.root), expected, what=f"{what}, hudi-rs")

    def run_ours_by_spark(self, columns: list[str], order: str) -> None:
        before = self.table.read()
        planned = self.table.cluster(columns, order=order, schedule=True)
        self.call("execute")
        assert clusterings(self.table)[-1] == planned.instant, "Spark carried our plan out"
        self.agreed(before, "after Spark ran our plan")
        live = {piece.file_id for piece in self.table.file_groups()}
        assert not live & {file_id for _, file_id in planned.plan.file_groups}

    def run_theirs(self) -> None:
        self.table.insert(rows(100, 104))
        before = self.table.read()
        self.call("schedule", order="v")
        (waiting,) = [i.time for i in self.table.client.load().timeline.pending]
        done = self.table.cluster(run=waiting)
        assert done.plan.order.columns == ("v",)
        assert clusterings(self.table)[-1] == waiting, "we carried Spark's plan out"
        self.agreed(before, "after we ran Spark's plan")

    def run_ours_and_go_on(self) -> None:
        self.table.insert(rows(200, 204))
        before = self.table.read()
        self.table.cluster(["v", "id"], order="hilbert")
        self.agreed(before, "after our clustering")
        self.spark.write(self.root, rows(0, 18, ts=9), options=self.settings, index="BLOOM")
        kept = before.filter(pa.array([row >= "k018" for row in before["id"].to_pylist()]))
        expected = pa.concat_tables([kept, rows(0, 18, ts=9)])
        self.agreed(expected, "after Spark's upsert on ours")


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("version", "kind"), [(6, "cow"), (9, "mor")])
def test_clusterings_by_turns(
    tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge, version: int, kind: str
) -> None:
    turns = Turns(tmp_path / "t", version, kind, spark_judge, hudi_rs_judge)
    turns.run_ours_by_spark(["v", "id"], "zorder")
    turns.run_theirs()
    turns.run_ours_and_go_on()
    # The sabotage: a clustering that lost a file is seen.
    expected = turns.table.read()
    lost = next(piece.base for piece in turns.table.file_groups() if piece.base is not None)
    turns.table.client.store.delete([lost.path, f"{lost.partition}/.{lost.name}.crc"])
    with pytest.raises((AssertionError, JudgeError)):
        spark_judge.assert_same_rows(turns.root, expected, what="sabotaged")


def test_both_refuse_an_update_of_a_planned_group(
    tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge
) -> None:
    turns = Turns(tmp_path / "t", 9, "cow", spark_judge, hudi_rs_judge)
    before = turns.table.read()
    planned = turns.table.cluster("v", schedule=True)
    with pytest.raises(CommitConflict, match="pending clustering"):
        turns.table.upsert(rows(0, 1, ts=9))
    with pytest.raises(JudgeError) as refused:
        spark_judge.write(turns.root, rows(0, 1, ts=9), options=turns.settings, index="BLOOM")
    told = json.dumps([str(refused.value), refused.value.log])
    assert "clustering" in told.lower()
    turns.agreed(before, "after both were refused")
    # What Spark's failed write left is rolled back; then Spark is told that updates go before, and takes our plan away.
    for left in turns.table.client.load().timeline.pending:
        if left.time != planned.instant:
            turns.table.rollback(str(left.time), force=True)
    allow = {
        "hoodie.clustering.updates.strategy": "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy",
        "hoodie.clustering.rollback.pending.replacecommit.on.conflict": "true",
    }
    spark_judge.write(turns.root, rows(0, 1, ts=9), options={**turns.settings, **allow}, index="BLOOM")
    assert turns.table.client.load().timeline.pending == ()
    # And ours takes Spark's plan away.
    turns.call("schedule", order="v")
    allowing = lakefmt.open_table(str(turns.root), options={**OPTIONS, **allow})
    allowing.upsert(rows(1, 2, ts=9))
    assert turns.table.client.load().timeline.pending == ()
    kept = before.filter(pa.array([key not in ("k000", "k001") for key in before["id"].to_pylist()]))
    turns.agreed(pa.concat_tables([kept, rows(0, 2, ts=9)]), "after both plans were withdrawn")


def test_clusterings_by_turns_with_hudi_1_0_2(
    tmp_path: Path, spark_judge_102: SparkJudge, hudi_rs_judge: HudiRsJudge
) -> None:
    turns = Turns(tmp_path / "t", 8, "cow", spark_judge_102, hudi_rs_judge)
    turns.run_ours_by_spark(["id"], "linear")
    turns.run_theirs()
    turns.run_ours_and_go_on()


def test_clusterings_by_turns_with_hudi_0_15(
    tmp_path: Path, spark_judge_0150: SparkJudge, hudi_rs_judge: HudiRsJudge
) -> None:
    turns = Turns(tmp_path / "t", 6, "cow", spark_judge_0150, hudi_rs_judge)
    turns.run_ours_by_spark(["id"], "linear")
    turns.run_theirs()
    turns.run_ours_and_go_on()
