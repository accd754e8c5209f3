"""A merge-on-read table in operation: twenty commits of lakefmt and Spark in turn, services of both among them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt.testing.model import ModelTable
from tests.compaction.held import Story, count_effects, hold
from tests.compat.tables import plain_rows
from tests.compat.test_spark_clean import SPARK_CLEANS
from tests.compat.test_spark_log_compaction import FOLD, INLINE
from tests.compat.test_spark_mor import keys, make
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import SparkJudge

pytestmark = [pytest.mark.judge_spark, pytest.mark.every_second_day(0)]

SPARK_COMPACTS = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
RETAINED: dict[str, object] = {"hoodie.clean.commits.retained": 3}


class Operation:
    """One table under two engines, and what it should hold."""

    def __init__(self, root: Path, version: int, spark: SparkJudge) -> None:
        self.root, self.version, self.spark = root, version, spark
        self.table = make(root, version)
        self.model = ModelTable("id", "city", "ts")

    def ours(self, rows: pa.Table) -> lakefmt.CommitResult:
        self.model.upsert(rows.to_pylist())
        return self.table.upsert(rows)

    def theirs(self, rows: pa.Table, **options: str) -> None:
        self.model.upsert(rows.to_pylist())
        self.spark.write(self.root, rows, index="BLOOM", options=options)

    @property
    def expected(self) -> pa.Table:
        return pa.Table.from_pylist([dict(row) for row in self.model.rows()], schema=plain_rows(1).schema)

    def agree(self, what: str, *queries: str) -> None:
        """Both engines find the rows of the model, by snapshot and by the queries named."""
        what = f"version {self.version}, {what}"
        for query in ("snapshot", *queries):
            assert_same_multiset(self.table.read(query=query), self.expected, what=f"{what}, lakefmt, {query}")
            asked = {"hoodie.datasource.query.type": query}
            self.spark.assert_same_rows(self.root, self.expected, options=asked, what=f"{what}, {query}")

    def commits(self, *operations: str) -> int:
        """How many commits there were, or of these operations; archived ones among them."""
        client = self.table.client
        state = client.at(client.load()).with_history().state
        found = [client.at(state).commit_metadata(i).operation.value for i in state.timeline.commits]
        return sum(not operations or one in operations for one in found)


def run_twenty_commits(one: Operation) -> None:
    # Logs of both, late rows and deletes among them.
    one.ours(plain_rows(30, ts=5))
    one.ours(plain_rows(12, ts=7))
    one.theirs(plain_rows(8, ts=8, first=4))
    one.ours(plain_rows(5, ts=6, first=10))
    one.spark.write(one.root, plain_rows(1, ts=9, first=20), "delete")
    one.table.delete(list(keys(0, 29)))
    one.model.delete(keys(20, 0, 29))
    one.agree("logs of both")
    assert_same_multiset(one.table.read(query="read_optimized"), plain_rows(30, ts=5), what="base files")
    # Log compactions of both.
    one.theirs(plain_rows(4, ts=10, first=1), **INLINE)
    one.ours(plain_rows(3, ts=11, first=6))
    assert one.table.compact(log=True, options=FOLD).files
    assert one.commits("LOG_COMPACT") >= 2 - (one.spark.bundle == "0.15.0")
    one.agree("folded logs")
    # Compactions of both, new keys in between.
    one.theirs(plain_rows(2, ts=12, first=9), **SPARK_COMPACTS)
    one.agree("Spark's compaction", "read_optimized")
    one.ours(plain_rows(6, ts=13, first=27))
    one.ours(plain_rows(6, ts=14, first=25))
    assert one.table.compact(verify=True).files
    one.agree("our compaction", "read_optimized")
    # A dead write of ours that Spark rolls back, a commit of ours that we roll back; cleans of both.
    one.theirs(plain_rows(3, ts=15), **SPARK_CLEANS)
    context = lowlevel.begin_write(one.table, "upsert")
    for assignment, batches in lowlevel.assign(context, plain_rows(9, ts=99)):
        lowlevel.write_files(context, assignment, batches)
    one.theirs(plain_rows(3, ts=16, first=2), **SPARK_CLEANS)
    undone = one.table.upsert(plain_rows(5, ts=98))
    one.table.rollback(str(undone.instant))
    one.ours(plain_rows(3, ts=17, first=3))
    one.table.clean(options=RETAINED)
    one.agree("rollbacks and cleans")
    # And on, for an increment without late rows.
    start = one.ours(plain_rows(2, ts=18))
    one.theirs(plain_rows(3, ts=19, first=1))
    one.ours(plain_rows(2, ts=20, first=3))
    since = start.completion_time or start.instant
    assert since is not None
    assert_same_multiset(one.spark.incremental(one.root, since), one.table.incremental(since), what="increment")
    one.ours(plain_rows(2, ts=21, first=5))
    one.agree("in the end")
    assert one.commits() >= 20


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [6, 8, 9])
def test_twenty_commits_in_turn(
    tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge, version: int
) -> None:
    one = Operation(tmp_path / "t", version, spark_judge)
    run_twenty_commits(one)
    assert_same_multiset(hudi_rs_judge.snapshot(one.root), one.expected, what="hudi-rs")
    with pytest.raises(AssertionError):
        spark_judge.assert_same_rows(one.root, one.expected.slice(1))


if os.environ.get("LAKEFMT_HYPOTHESIS") == "thorough":  # each takes twenty seconds; both agree

    def test_twenty_commits_with_hudi_1_0(tmp_path: Path, spark_judge_102: SparkJudge) -> None:
        run_twenty_commits(Operation(tmp_path / "t", 8, spark_judge_102))

    def test_twenty_commits_with_hudi_0_15(tmp_path: Path, spark_judge_0150: SparkJudge) -> None:
        run_twenty_commits(Operation(tmp_path / "t", 6, spark_judge_0150))


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [6, 8, 9])
def test_spark_reads_what_a_held_compaction_left(tmp_path: Path, spark_judge: SparkJudge, version: int) -> None:
    """Held at an early, a middle and a late effect while two deltacommits finish; all tables are read in one batch."""

    def compact(table: lakefmt.Table) -> Any:
        return table.compact()

    found = count_effects(version, compact)
    requests = []
    for n in (found // 4, found // 2, found - 3):
        story = Story(version)
        hold(story, compact, n)
        root = story.dump(tmp_path / str(n))
        source = tmp_path / f"{n}.parquet"
        pq.write_table(story.expected, source)
        ignore = [
            f"_hoodie_{name}" for name in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
        ]
        requests.append(
            {"op": "except_all", "path": str(root), "expected": str(source), "ignore": ignore, "options": {}}
        )
    answers = spark_judge.batch(requests)
    for asked, answer in zip(requests, answers, strict=True):
        told = {side: answer.get(side) for side in ("error", "differs", "table_only", "expected_only")}
        assert told == {"error": None, "differs": None, "table_only": 0, "expected_only": 0}, asked["path"]


@pytest.mark.parametrize("target", [8, 9])
def test_an_upgraded_table_is_one_of_theirs(
    tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge, target: int
) -> None:
    """Version 6 with logs of both engines: compacted, upgraded, and written on by both."""
    one = Operation(tmp_path / "t", 6, spark_judge)
    one.ours(plain_rows(12, ts=5))
    one.theirs(plain_rows(4, ts=6))
    one.ours(plain_rows(6, ts=4, first=2))
    assert one.table.upgrade(target).logs
    one.version = target
    one.agree("upgraded", "read_optimized")
    assert_same_multiset(hudi_rs_judge.snapshot(one.root), one.expected, what="hudi-rs, upgraded")
    one.theirs(plain_rows(3, ts=8, first=1))
    one.ours(plain_rows(3, ts=9, first=2))
    one.agree("written on")
    assert_same_multiset(hudi_rs_judge.snapshot(one.root), one.expected, what="hudi-rs, written on")
