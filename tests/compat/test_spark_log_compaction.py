"""Logs that roll and logs that are folded, by turns: Spark carries out our log compaction, we carry out Spark's."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

import lakefmt
from lakefmt._core.timeline.instant import Action
from tests.compat.tables import plain_rows
from tests.compat.test_spark_mor import OPTIONS, keys, make, overlaid
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import SparkJudge

pytestmark = [pytest.mark.judge_spark, pytest.mark.every_second_day(1)]

FOLD: dict[str, object] = {**OPTIONS, "hoodie.log.compaction.blocks.threshold": 2}
#: Spark folds after its own write, what is pending first.
INLINE = {"hoodie.log.compaction.inline": "true", "hoodie.log.compaction.blocks.threshold": "2"}
ROLLING = {**OPTIONS, "hoodie.logfile.data.block.max.size": 400, "hoodie.logfile.max.size": 700}


def folds(table: lakefmt.Table) -> list[str]:
    """The instants of completed log compactions."""
    state = table.client.load()
    commits = [(i, table.client.at(state).commit_metadata(i)) for i in state.timeline.commits]
    return [i.time for i, commit in commits if commit.operation.value == "LOG_COMPACT"]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [6, 9])
def test_spark_reads_our_folded_logs_and_runs_our_plan(
    tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge, version: int
) -> None:
    root = tmp_path / "t"
    table = make(root, version)
    # Logs that roll, late rows, deletes; folded by us, and a log on top.
    table.upsert(plain_rows(30, ts=5))
    assert len(table.upsert(plain_rows(12, ts=7), options=ROLLING).files) > 3
    table.upsert(plain_rows(20, ts=6, first=5))
    table.delete(list(keys(0, 29)))
    expected = overlaid(plain_rows(30, ts=5), plain_rows(12, ts=7), plain_rows(20, ts=6, first=5), without=keys(0, 29))
    spark_judge.assert_same_rows(root, expected, what=f"version {version}, logs that rolled")
    assert len(table.compact(log=True, options=FOLD).files) == 3
    table.upsert(plain_rows(3, ts=8))
    expected = overlaid(expected, plain_rows(3, ts=8))
    spark_judge.assert_same_rows(root, expected, what=f"version {version}, folded by us")
    assert_same_multiset(hudi_rs_judge.snapshot(root), expected, what="hudi-rs, folded by us")
    # Our plan, carried out by Spark behind a write of its own; then it folds what there is by its own plan.
    planned = table.compact(log=True, schedule=True, options=FOLD)
    assert planned.plan.operations
    spark_judge.write(root, plain_rows(3, ts=9, first=1), index="BLOOM", options=INLINE)
    expected = overlaid(expected, plain_rows(3, ts=9, first=1))
    assert planned.instant in folds(table), "Spark carried our plan out"
    assert_same_multiset(table.read(), expected, what="folded by Spark")
    spark_judge.assert_same_rows(root, expected, what=f"version {version}, folded by Spark")
    # And on: a compaction of folded logs.
    table.upsert(plain_rows(4, ts=12))
    assert table.compact(verify=True).files
    assert_same_multiset(table.read(query="read_optimized"), overlaid(expected, plain_rows(4, ts=12)))


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [6, 9])
def test_we_run_a_plan_that_spark_made(tmp_path: Path, spark_judge: SparkJudge, version: int) -> None:
    """Spark schedules and runs in one go: its plan is put before the table as it was."""
    root = tmp_path / "t"
    table = make(root, version)
    table.upsert(plain_rows(9, ts=5))
    table.upsert(plain_rows(4, ts=10, first=4))
    spark_judge.write(root, plain_rows(2, ts=11, first=5), index="BLOOM", options=INLINE)
    expected = overlaid(plain_rows(9, ts=5), plain_rows(4, ts=10, first=4), plain_rows(2, ts=11, first=5))
    assert_same_multiset(table.read(), expected, what="folded by Spark")
    (theirs,) = folds(table)
    copy = shutil.copytree(root, tmp_path / "copy")
    state = table.client.load()
    for file in (copy / state.config.timeline_directory).glob(f"*{theirs}*"):  # checksums of Hadoop's, too
        if ".requested" not in file.name:
            file.unlink()
    for stat in table.client.at(state).commit_metadata(state.timeline.find(theirs)).stats:
        (copy / stat.path).unlink()
    copied = lakefmt.open_table(str(copy), options=OPTIONS)
    assert [i.time for i in copied.client.load().timeline.pending if i.action is Action.LOG_COMPACTION] == [theirs]
    assert_same_multiset(copied.read(), expected, what="with Spark's plan waiting")
    assert copied.compact(run=theirs).instant == theirs
    assert_same_multiset(copied.read(), expected, what="after we ran Spark's plan")
    spark_judge.assert_same_rows(copy, expected, what=f"version {version}, after we ran Spark's plan")


def test_hudi_1_0_reads_folded_logs(tmp_path: Path, spark_judge_102: SparkJudge) -> None:
    root = tmp_path / "t"
    table = make(root, 8)
    table.upsert(plain_rows(9, ts=5))
    for ts in (7, 6, 8):
        table.upsert(plain_rows(3, ts=ts), options=ROLLING)
    table.delete(list(keys(1)))
    folded = table.compact(log=True, options=FOLD)
    expected = overlaid(plain_rows(9, ts=5), plain_rows(3, ts=8), without=keys(1))
    spark_judge_102.assert_same_rows(root, expected, what="folded logs")
    table.upsert(plain_rows(1, ts=9))
    expected = overlaid(expected, plain_rows(1, ts=9))
    spark_judge_102.assert_same_rows(root, expected, what="a log on top")
    (path,) = (root / stat.path for stat in folded.files if stat.num_deletes == 0 and "city=rio" in stat.path)
    path.write_bytes(path.read_bytes().replace(struct.pack("<d", 16.0), struct.pack("<d", 17.0)))
    with pytest.raises(AssertionError, match=r"17\.0"):
        spark_judge_102.assert_same_rows(root, expected, what="a value changed in the folded log")
