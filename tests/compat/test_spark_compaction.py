"""Compactions by turns: Spark carries out our plan, we carry out Spark's, and each reads what the other has merged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakefmt._core.compaction.compact_run import run_compaction
from lakefmt._core.timeline.instant import Action
from tests.compaction.mor_tables import OPTIONS, MorTable, rows
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import SparkJudge

pytestmark = pytest.mark.judge_spark


def completed_compactions(mor: MorTable) -> list[str]:
    """Commits on a merge-on-read table are compactions."""
    return [i.time for i in mor.table.client.load().timeline.commits if i.action is Action.COMMIT]


@pytest.mark.parametrize("version", [6, 9])
def test_compactions_by_turns(
    tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge, version: int
) -> None:
    root = tmp_path / "t"
    mor = MorTable(str(root), version)
    client = mor.table.client
    settings = {
        "hoodie.write.table.version": str(version),
        "hoodie.write.auto.upgrade": "false",
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
        "hoodie.compact.inline.max.delta.commits": "1",
    }

    def agreed(expected: pa.Table, what: str, *queries: str) -> None:
        for query in queries:
            asked = {"hoodie.datasource.query.type": query}
            spark_judge.assert_same_rows(root, expected, options=asked, what=f"{what}, Spark, {query}")
        assert_same_multiset(mor.table.read(), expected, what=what)
        assert_same_multiset(mor.table.read(query="read_optimized"), expected, what=what)
        assert_same_multiset(hudi_rs_judge.snapshot(root), expected, what=f"{what}, hudi-rs")

    # Our plan, carried out by Spark.
    mor.base(rows("abcdef"))
    mor.log(rows("ag", ts=3, v=1.5), ["b"], 4)
    mor.log(rows("ac", ts=2, v=2.5))  # late for a
    mor.log(rows("yz", partition="y"), partition="y")
    before = mor.table.read()
    planned = run_compaction(client, OPTIONS, schedule=True)
    assert len(planned.plan.operations) == 2
    spark_judge.sql(
        f"call run_compaction(op => 'run', path => '{root}', timestamp => {planned.instant})", settings=settings
    )
    assert completed_compactions(mor) == [planned.instant], "Spark carried our plan out"
    agreed(before, "after Spark ran our plan", "snapshot")

    # Spark's plan, carried out by us.
    mor.log(rows("bd", ts=5, v=5.5), ["e"], 5)
    mor.log(rows("y", ts=6, v=6.5, partition="y"), ["z"], 6, partition="y")
    before = mor.table.read()
    spark_judge.sql(f"call run_compaction(op => 'schedule', path => '{root}')", settings=settings)
    waiting = [i.time for i in client.load().timeline.pending if i.action is Action.COMPACTION]
    assert len(waiting) == 1
    done = run_compaction(client, OPTIONS, run=waiting[0], verify=True)
    assert done.plan.num_logs == 2
    agreed(before, "after we ran Spark's plan", "snapshot")

    # All of it ours, and Spark goes on.
    mor.log(rows("h", ts=7), ["a"], 7)
    before = mor.table.read()
    assert len(run_compaction(client, OPTIONS, verify=True).files) == 1
    agreed(before, "after our compaction", "snapshot", "read_optimized")
    theirs = rows("ch", ts=9, v=9.5)
    spark_judge.write(root, theirs, index="BLOOM")
    expected = pa.concat_tables([before.filter(pa.array([k not in "ch" for k in before["id"].to_pylist()])), theirs])
    spark_judge.assert_same_rows(root, expected, what="after Spark's upsert on ours")
    assert_same_multiset(mor.table.read(), expected, what="after Spark's upsert on ours")
