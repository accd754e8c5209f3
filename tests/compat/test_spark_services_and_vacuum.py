"""What services, a vacuum, streams and tables without keys leave, read and written on by Spark (A8, A11, A13, A14)."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import services
from lakefmt._core.timeline.instant import Action
from lakefmt.errors import SnapshotExpired
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import SparkJudge

pytestmark = pytest.mark.judge_spark

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
WRITER = {"lakefmt.durability": "none", "lakefmt.write.only": True}
OFTEN = {
    "lakefmt.durability": "none",
    "hoodie.compact.inline.max.delta.commits": 3,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 5,
}


def rows(first: int, last: int, ts: int) -> pa.Table:
    numbers = range(first, last)
    values = [[f"k{n:03d}" for n in numbers], [("sf", "oslo")[n % 2] for n in numbers], [ts] * len(numbers)]
    return pa.table([*values, [float((n * 37 + ts) % 11) for n in numbers]], schema=SCHEMA)


@pytest.mark.parametrize("kind", ["mor", "append"])
def test_a11_spark_reads_and_writes_what_services_and_a_vacuum_left(
    tmp_path: Path, kind: str, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge
) -> None:
    root = tmp_path / "t"
    how = (
        {"record_key": "id", "ordering": "ts", "table_type": "mor"}
        if kind == "mor"
        else {"record_key": None, "properties": {"lakefmt.table.kind": "append"}}
    )
    table = lakefmt.create_table(str(root), schema=SCHEMA, partition_by="city", options=WRITER, **how)
    for ts in range(1, 13):
        (table.upsert if kind == "mor" else table.bulk_insert)(rows(ts, ts + 20, ts))
        if ts % 3 == 0:
            status = services.run(table, once=True, options=OFTEN)
            assert not status.has_failed, str(status)
    done = {name for name, step in status.tables[0].steps.items() if step.result == "done"}
    assert ("compaction" if kind == "mor" else "packing") in done
    source = next(root.glob("city=sf/*.parquet"))
    planted = source.parent / "00000000-0000-4000-8000-000000000001-0_0-0-0_20990101000000000.parquet"
    planted.write_bytes(source.read_bytes())
    os.utime(planted, (1_700_000_000, 1_700_000_000))
    expected = table.read()
    assert table.vacuum(orphans=True).files_deleted == 1
    assert not planted.exists()
    assert_same_multiset(spark_judge.snapshot(root), expected, what="Spark after services and vacuum")
    assert_same_multiset(hudi_rs_judge.snapshot(root), expected, what="hudi-rs after services and vacuum")
    # The sabotage twin: one row more, and Spark's rows are not the expected ones.
    with pytest.raises(AssertionError):
        assert_same_multiset(
            spark_judge.snapshot(root), pa.concat_tables([expected, expected.slice(0, 1)]), what="twin"
        )
    # A14: Spark writes on, and so do we.
    if kind == "mor":
        spark_judge.write(root, rows(0, 40, 99), index="BLOOM")
        expected = rows(0, 40, 99)
    else:
        spark_judge.write(root, rows(90, 95, 99), "insert")
        table.append(rows(95, 99, 100))
        expected = pa.concat_tables([expected, rows(90, 95, 99), rows(95, 99, 100)])
    assert_same_multiset(table.read(), expected, what="after Spark's write")
    assert_same_multiset(spark_judge.snapshot(root), expected, what="Spark after its write")
    assert services.run(table, once=True, options=OFTEN).has_failed is False
    assert_same_multiset(spark_judge.snapshot(root), expected, what="Spark after services behind its write")


#: Spark cleans after its commit and keeps one commit.
SPARK_CLEANS = {
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.cleaner.commits.retained": "1",
    "hoodie.keep.min.commits": "20",
    "hoodie.keep.max.commits": "30",
}


def test_a13_sparks_cleaner_keeps_a_state_with_a_tag(tmp_path: Path, spark_judge: SparkJudge) -> None:
    root = tmp_path / "t"
    table = lakefmt.create_table(str(root), schema=SCHEMA, kind="append", options=WRITER)
    table.append(rows(0, 6, 1))
    tag = table.tags.create("first")
    for ts in range(2, 5):
        table.overwrite(rows(0, 3, ts), mode="static")
    spark_judge.write(root, rows(7, 9, 9), "insert", options=SPARK_CLEANS)
    assert any(instant.action is Action.CLEAN for instant in table.client.load().timeline.completed)
    assert_same_multiset(table.as_of(tag="first").read(), rows(0, 6, 1), what="the tag behind Spark's clean")
    # The sabotage: without the tag the next clean of Spark takes the state away.
    table.tags.delete("first")
    table.overwrite(rows(0, 3, 10), mode="static")
    spark_judge.write(root, rows(7, 9, 11), "insert", options=SPARK_CLEANS)
    with pytest.raises(SnapshotExpired):
        table.read(as_of=tag.instant)
