"""Archives by turns: Spark reads behind our archive, archives into it, and we read and archive on behind Spark's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.tables import make_plain_table, plain_rows
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import SparkJudge

pytestmark = pytest.mark.judge_spark

#: Spark archives after its commit, down to two commits.
SPARK_ARCHIVES = {
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.clean.automatic": "false",
    "hoodie.clean.commits.retained": "1",
    "hoodie.cleaner.commits.retained": "1",
    "hoodie.commits.archival.batch": "1",
}


@pytest.mark.parametrize("version", [8, 9])
def test_archives_by_turns(tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge, version: int) -> None:
    root = tmp_path / "t"
    table = make_plain_table(root, 30, version=version)
    for ts in range(2, 7):
        table.upsert(plain_rows(30, ts=ts))
    times = [i.time for i in table.timeline.timeline.commits]
    archived = table.archive(options={"hoodie.keep.min.commits": 2})
    assert len(archived.plan.instants) == 4
    spark_judge.assert_same_rows(root, plain_rows(30, ts=6), what="behind our archive")
    assert_same_multiset(hudi_rs_judge.snapshot(root), plain_rows(30, ts=6), what="hudi-rs behind our archive")
    spark_judge.assert_same_rows(
        root, plain_rows(30, ts=3), options={"as.of.instant": times[2]}, what="an archived instant"
    )

    for ts in (7, 8, 9):
        spark_judge.write(root, plain_rows(30, ts=ts), index="BLOOM", options=SPARK_ARCHIVES)
    active = [i.time for i in table.timeline.timeline.commits]
    assert len(active) < 5, "Spark archived"
    everything = table.access.with_history(table.access.load()).timeline.commits
    assert [i.time for i in everything][: len(times)] == times, "Spark's archive step kept ours"
    assert len(everything) == len(times) + 3
    for n, ts in enumerate(range(1, 10)):
        assert_same_multiset(table.read(as_of=everything[n].time), plain_rows(30, ts=ts), what=f"state {n}")

    table.upsert(plain_rows(30, ts=10))
    table.archive(options={"hoodie.keep.min.commits": 1})
    again = table.access.with_history(table.access.load()).timeline.commits
    assert [i.time for i in again][:-1] == [i.time for i in everything], "and ours kept Spark's"
    name = f"archived_{version}"
    shown = spark_judge.sql(
        f"create table {name} using hudi location '{root}'",
        f"call show_archived_commits(table => '{name}', limit => 100, start_ts => '20200101000000000', end_ts => '29990101000000000')",
        f"drop table {name}",
    )[1]
    assert {row["commit_time"] for row in shown} == {i.time for i in again[:-1]}
    spark_judge.assert_same_rows(root, plain_rows(30, ts=10), what="after one archive step each and ours again")
