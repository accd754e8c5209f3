"""Cleans by turns: Spark reads what we cleaned, carries out our plans and cleans on; we go on behind Spark's cleans."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefmt._core.timeline.instant import Action
from lakefmt.errors import SnapshotExpired
from tests.compat.tables import make_plain_table, plain_rows
from tests.judges.compare import assert_same_multiset
from tests.judges.spark import SparkJudge

pytestmark = pytest.mark.judge_spark


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [6, 8, 9])
def test_cleans_by_turns(tmp_path: Path, spark_judge: SparkJudge, version: int) -> None:
    root = tmp_path / "t"
    table = make_plain_table(root, 30, version=version)

    def data_files() -> int:
        return sum(1 for path in root.rglob("*.parquet") if ".hoodie" not in path.parts)

    for ts in range(2, 5):
        table.upsert(plain_rows(30, ts=ts))
    groups = len(table.file_groups())
    assert data_files() == 4 * groups
    ours = table.clean(options={"hoodie.clean.commits.retained": 1})
    assert ours.files_deleted == 2 * groups
    spark_judge.assert_same_rows(root, plain_rows(30, ts=4), what="after our clean")

    # Our plan, carried out by Spark's cleaner.
    table.upsert(plain_rows(30, ts=5))
    planned = table.clean(schedule=True, options={"hoodie.clean.commits.retained": 1})
    assert planned.instant is not None
    spark_judge.write(root, plain_rows(30, ts=6), index="BLOOM", options=SPARK_CLEANS)
    state = table.client.load()
    cleans = [i for i in state.timeline.completed if i.action is Action.CLEAN]
    assert planned.instant in [i.time for i in cleans], "Spark carried our plan out"
    assert data_files() == 3 * groups, "and nothing more"
    spark_judge.write(root, plain_rows(30, ts=7), index="BLOOM", options=SPARK_CLEANS)
    assert data_files() == 2 * groups, "the next time it makes a clean of its own"
    assert_same_multiset(table.read(), plain_rows(30, ts=7), what="after Spark's clean")
    first = state.timeline.commits[0].time
    with pytest.raises(SnapshotExpired):
        table.read(as_of=first)

    # We go on behind Spark's clean.
    table.upsert(plain_rows(30, ts=8))
    again = table.clean(options={"hoodie.clean.commits.retained": 1})
    assert again.files_deleted == groups
    spark_judge.assert_same_rows(root, plain_rows(30, ts=8), what="after one clean each and ours again")


#: Spark cleans after its commit and keeps one commit.
SPARK_CLEANS = {
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.cleaner.commits.retained": "1",
    "hoodie.keep.min.commits": "20",
    "hoodie.keep.max.commits": "30",
}
