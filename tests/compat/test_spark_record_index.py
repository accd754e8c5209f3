"""The record index in turns: Spark upserts through the one of lakefmt, lakefmt through Spark's; keys none lost, none doubled.

Every turn changes stored keys, brings new ones, deletes one, and brings a deleted one back. A write of Spark's that a key
is left out of the index for doubles that key: that is how it shows that the index is asked (the sabotage of this file).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from tests.judges.compare import assert_same_multiset
from tests.judges.spark import SparkJudge
from tests.metadata.metadata_content import check_metadata_table

pytestmark = [pytest.mark.judge_spark, pytest.mark.timeout(600), pytest.mark.every_second_day(1)]

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
CITIES = ("sf", "ny", "são paulo")
FEW: dict[str, str] = {
    "hoodie.metadata.record.index.min.filegroup.count": "2",
    "hoodie.metadata.record.index.max.filegroup.count": "2",
}
GLOBAL = {"hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true", **FEW}
SPARK = {**GLOBAL, "hoodie.metadata.index.column.stats.enable": "false", "hoodie.embed.timeline.server": "true"}


def rows(first: int, last: int, ts: int, shift: int = 0) -> pa.Table:
    numbers = range(first, last)
    columns = {
        "id": [f"key-{n:03d}" for n in numbers],
        "city": [CITIES[(n + shift) % 3] for n in numbers],
        "v": [100 * ts + n for n in numbers],
        "ts": [ts] * len(numbers),
    }
    return pa.table(columns, schema=SCHEMA)


class Expected:
    """The newest row of every key."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def upsert(self, rows: pa.Table) -> pa.Table:
        self.rows |= {row["id"]: row for row in rows.to_pylist()}
        return rows

    def delete(self, key: str) -> list[str]:
        del self.rows[key]
        return [key]

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(list(self.rows.values()), SCHEMA)


def judge(root: Path, table: Table, spark: SparkJudge, expected: Expected) -> None:
    assert_same_multiset(table.read(), expected.table(), what="lakefmt")
    spark.assert_same_rows(root, expected.table(), options={"hoodie.metadata.enable": "true"})


def take_turns(root: Path, table: Table, spark: SparkJudge, expected: Expected, turns: int) -> None:
    """Spark first, then lakefmt."""
    for turn in range(turns):
        first = 10 * turn
        spark.write(root, expected.upsert(rows(first, first + 35, 2 * turn + 2)), options=SPARK, index="RECORD_INDEX")
        assert "record_index" in table.properties.metadata_partitions, "Spark kept the index"
        table.delete(expected.delete(f"key-{first + 7:03d}"))
        stored = len(expected.rows)
        done = table.upsert(expected.upsert(rows(first + 20, first + 50, 2 * turn + 3)))
        assert (done.num_inserts, done.warnings) == (len(expected.rows) - stored, ())
        judge(root, table, spark, expected)
        spark.write(
            root, expected.upsert(rows(first + 5, first + 9, 2 * turn + 4)), options=SPARK, index="RECORD_INDEX"
        )
        judge(root, table, spark, expected)
    assert table.upsert(expected.upsert(rows(0, 40, 99))).num_inserts == 0
    judge(root, table, spark, expected)
    check_metadata_table(table)


def ours(root: Path, kind: str, version: int, index: str = "record") -> Table:
    return lakefmt.create_table(
        root,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=kind,
        table_version=version,
        index=index,
        options=FEW,
    )


def theirs(root: Path, spark: SparkJudge, kind: str, data: pa.Table) -> Table:
    options = {
        "hoodie.table.name": "theirs",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[kind],
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
        "hoodie.table.timeline.timezone": "UTC",
        **SPARK,
    }
    spark.write(root, data, options=options, mode="overwrite", index="RECORD_INDEX")
    return lakefmt.open_table(root, options={**FEW, "hoodie.index.type": "RECORD_INDEX"})


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("kind", "version"), [("cow", 8), ("mor", 9)])
def test_spark_120_and_lakefmt_upsert_through_one_record_index(
    kind: str, version: int, tmp_path: Path, spark_judge: SparkJudge
) -> None:
    root, expected = tmp_path / f"record_{kind}", Expected()
    table = ours(root, kind, version)
    table.upsert(expected.upsert(rows(0, 30, 1)))
    take_turns(root, table, spark_judge, expected, 2)
    table.upsert(rows(0, 9, 100, shift=1))
    expected.upsert(rows(0, 9, 100))  # by default a row stays where its key is
    judge(root, table, spark_judge, expected)


def test_lakefmt_upserts_through_the_index_of_a_table_that_spark_120_made(
    tmp_path: Path, spark_judge: SparkJudge
) -> None:
    root, expected = tmp_path / "record_theirs", Expected()
    table = theirs(root, spark_judge, "mor", expected.upsert(rows(0, 30, 1)))
    take_turns(root, table, spark_judge, expected, 1)


def test_hudi_102_and_lakefmt_upsert_through_one_record_index(tmp_path: Path, spark_judge_102: SparkJudge) -> None:
    root, expected = tmp_path / "record_102", Expected()
    table = ours(root, "mor", 8)
    table.upsert(expected.upsert(rows(0, 30, 1)))
    take_turns(root, table, spark_judge_102, expected, 1)


def test_hudi_0150_and_lakefmt_upsert_through_one_record_index(tmp_path: Path, spark_judge_0150: SparkJudge) -> None:
    root, expected = tmp_path / "record_0150", Expected()
    table = ours(root, "mor", 6)
    table.upsert(expected.upsert(rows(0, 30, 1)))
    take_turns(root, table, spark_judge_0150, expected, 1)


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("kind", "version"), [("cow", 8), ("mor", 9)])
def test_each_engine_runs_the_others_plans_of_indexing(
    kind: str, version: int, tmp_path: Path, spark_judge: SparkJudge
) -> None:
    root, expected = tmp_path / f"planned_{kind}", Expected()
    table = lakefmt.create_table(
        root,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=kind,
        table_version=version,
        indexes=["files"],
        options=FEW,
    )
    table.upsert(expected.upsert(rows(0, 30, 1)))
    told = {**SPARK, "hoodie.write.table.version": str(version)}
    if kind == "cow":  # Spark plans, lakefmt runs
        planned = [
            spark_judge.request("schedule_indexing", path=str(root), kind=name, options={**told, **more})["instant"]
            for name, more in (
                ("RECORD_INDEX", {}),
                ("BLOOM_FILTERS", {"hoodie.metadata.index.bloom.filter.enable": "true"}),
            )
        ]
        table.upsert(expected.upsert(rows(20, 40, 2)))
        assert table.index.run() == ("bloom_filters", "files", "record_index")
        told["hoodie.metadata.index.bloom.filter.enable"] = "true"
    else:  # lakefmt plans, Spark runs
        planned = [table.index.schedule("record_index")]
        table.upsert(expected.upsert(rows(20, 40, 2)))
        assert spark_judge.request("run_indexing", path=str(root), instant=planned[0], options=told)["done"]
    done = [each.time for each in table.timeline.timeline.completed_of(Action.INDEXING)]
    assert done == planned
    assert "record_index" in table.properties.metadata_partitions
    assert table.index.check().is_clean
    spark_judge.write(root, expected.upsert(rows(10, 50, 3)), options=told, index="RECORD_INDEX")
    assert "record_index" in table.properties.metadata_partitions, "Spark kept the index"
    judge(root, table, spark_judge, expected)
    assert table.upsert(expected.upsert(rows(0, 50, 4)), options={"hoodie.index.type": "RECORD_INDEX"}).num_inserts == 0
    judge(root, table, spark_judge, expected)


def test_a_key_that_is_left_out_of_the_index_is_doubled_by_spark(
    tmp_path: Path, spark_judge: SparkJudge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sabotage: with one key fewer in the index the laws of this file are broken, by Spark and by lakefmt."""
    from lakefmt._core.metadata import commit_updates

    whole = commit_updates.record_index_update

    def one_fewer(changes: Any, form: Any, **more: Any) -> Any:
        less = [replace(each, added=each.added.filter(pa.compute.not_equal(each.added, "key-003"))) for each in changes]
        return whole(less, form, **more)

    root, expected = tmp_path / "record_sabotaged", Expected()
    table = ours(root, "cow", 8)
    monkeypatch.setattr(commit_updates, "record_index_update", one_fewer)
    table.upsert(expected.upsert(rows(0, 10, 1)))
    monkeypatch.undo()
    small = {"hoodie.parquet.small.file.limit": "0"}
    spark_judge.write(root, expected.upsert(rows(0, 10, 2)), options={**SPARK, **small}, index="RECORD_INDEX")
    keys = table.read(columns=["id"]).column("id").to_pylist()
    assert sorted(keys) == sorted([*expected.rows, "key-003"])
