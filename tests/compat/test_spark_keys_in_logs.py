"""Keys that were deleted and written again around a waiting compaction: Spark finds each once, and goes on from there."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import SparkJudge
from tests.stateful.test_keys_in_logs import (
    IN_A_LOG_ALONE,
    IN_TWO_PLACES,
    SCHEMA,
    WRITTEN_AGAIN,
    History,
    Scene,
    copy_out,
)

pytestmark = pytest.mark.judge_spark


def row(key: str, place: str, n: int) -> pa.Table:
    return pa.table({"id": [key], "p": [place], "ts": [n], "v": [n], "w": [n]}, schema=SCHEMA)


def made(scene: Scene, steps: list[tuple[object, ...]], root: Path) -> lakefmt.Table:
    history = History(scene, begin=datetime.now(UTC))
    history.go(steps)
    copy_out(history.store, root)
    return lakefmt.open_table(str(root), options=scene.options())


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    "scene",
    [
        Scene("bloom", 6),
        Scene("bloom", 8, None),
        Scene("simple", 9),
        Scene("global_simple", 8),
        Scene("global_bloom", 9),
    ],
    ids=lambda scene: f"{scene.index}-{scene.version}",
)
def test_spark_goes_on_where_a_deleted_key_was_written_again(
    scene: Scene, tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge
) -> None:
    table = made(scene, WRITTEN_AGAIN, tmp_path / "t")
    spark_judge.assert_same_rows(tmp_path / "t", table.read(), what="after the compaction")
    spark_judge.write(tmp_path / "t", row("a", "x", 50), index=scene.index.upper())
    spark_judge.write(tmp_path / "t", row("b", "x", 50), "delete", index=scene.index.upper())
    assert table.read().to_pylist() == row("a", "x", 50).to_pylist()
    rows = hudi_rs_judge.snapshot(tmp_path / "t").select(SCHEMA.names)
    assert rows.to_pylist() == row("a", "x", 50).to_pylist()
    assert table.delete(["a"]).num_deletes == 1
    spark_judge.assert_same_rows(tmp_path / "t", SCHEMA.empty_table(), what="all deleted")


@pytest.mark.parametrize("version", [6, 9])
def test_spark_finds_no_key_of_a_bucket_index_that_was_deleted(
    version: int, tmp_path: Path, spark_judge: SparkJudge
) -> None:
    table = made(Scene("bucket", version), [*IN_TWO_PLACES, ("upsert", "a", "y"), ("delete", "a")], tmp_path / "t")
    assert [found["id"] for found in table.read().to_pylist()] == ["b"]
    spark_judge.assert_same_rows(tmp_path / "t", table.read(), what="after the delete")


def test_sparks_index_does_not_find_a_key_that_a_log_has_alone(tmp_path: Path, spark_judge: SparkJudge) -> None:
    """So no write that sees the plan may bring it back in a log."""
    table = made(Scene("bloom", beside=True), IN_A_LOG_ALONE, tmp_path / "t")
    spark_judge.write(tmp_path / "t", row("a", "x", 50), index="BLOOM")
    assert sorted(found["id"] for found in table.read().to_pylist()) == ["a", "a", "b"]
    assert table.delete(["a"]).num_deletes == 2
    spark_judge.assert_same_rows(tmp_path / "t", table.read().filter(pa.compute.field("id") == "b"), what="deleted")
