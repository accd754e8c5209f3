"""Which of two rows is the larger, and what a delete removes: Spark reads merge-on-read tables of every ordering type."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from tests.compat.ordering_tables import (
    IN_BASE_FILES_ONLY,
    KINDS,
    arrivals,
    arriving,
    delete_in_every_way,
    found,
    make_table,
    rows_of,
    winners,
)
from tests.judges.spark import JudgeError, SparkJudge

pytestmark = [pytest.mark.judge_spark, pytest.mark.every_second_day(0)]

#: Spark reads no Parquet column of a time of day, whatever a table does with it.
UNREAD = ("time32", "time64")
ON_LOGS = [name for name in KINDS if name not in (*UNREAD, *IN_BASE_FILES_ONLY)]
#: Versions 6 and 9 are asked of floats: what a version does to rows is not a matter of their type.
TABLES = [*((name, 8) for name in ON_LOGS), ("float64", 6), ("float32", 9), ("decimal large", 9)]


@pytest.mark.parametrize(("name", "version"), TABLES)
def test_spark_merges_logs_alike(tmp_path: Path, spark_judge: SparkJudge, name: str, version: int) -> None:
    """Every order of arrival of up to three values, and every way to delete a row, in one table."""
    sequences = arrivals(len(KINDS[name][1]), length=3 if "float" in name else 2)
    table = make_table(tmp_path, name, "mor", version)
    for batch in arriving(name, sequences):
        table.upsert(batch)
    expected = winners(sequences) | delete_in_every_way(table, name)
    there = found(spark_judge.snapshot(tmp_path))
    assert there == expected
    assert found(table.read()) == expected
    if name == "int32":
        # The judge can say no: one more row, of an event time that is not late, and Spark finds other rows.
        table.upsert(rows_of(KINDS[name][0], [("kept0", KINDS[name][1][0], 9, False)]))
        assert found(spark_judge.snapshot(tmp_path)) != expected


@pytest.mark.parametrize("name", ["float64", "text", *IN_BASE_FILES_ONLY])
def test_spark_writes_base_files_by_the_same_order(tmp_path: Path, spark_judge: SparkJudge, name: str) -> None:
    """Spark upserts into a copy-on-write table; the rows that it leaves are those that lakefmt leaves."""
    sequences = arrivals(len(KINDS[name][1]), length=2)
    make_table(tmp_path, name, "cow", 8)
    for batch in arriving(name, sequences):
        kind = pa.binary() if name == "fixed" else batch["ts"].type
        spark_judge.write(tmp_path, batch.set_column(1, "ts", batch["ts"].cast(kind)))
    assert found(lakefmt.open_table(str(tmp_path)).read()) == winners(sequences)


def test_spark_knows_deletes_without_an_event_time(tmp_path: Path, spark_judge: SparkJudge) -> None:
    """Null removes whatever is stored, as does the int 0; a later row comes in whatever its event time, and may be late."""
    keys = ("null", "zero", "null in a log", "late after null", "back after null", "kept")
    for name in ("int64", "int32", "float64"):
        kind, values = KINDS[name]
        low, high, silent = values[0], values[-1], 0 if name == "int32" else None
        table = make_table(tmp_path / name, name, "mor", 8)
        table.upsert(rows_of(kind, [(key, high, 0, False) for key in keys]))
        table.upsert(rows_of(kind, [("null in a log", high, 1, False)]))
        marked = [("zero", silent, 2, True)] + [(key, None, 2, True) for key in keys[:5] if key != "zero"]
        table.upsert(rows_of(kind, marked))
        table.upsert(rows_of(kind, [("late after null", low, 3, False), ("back after null", high, 3, False)]))
        expected = {"kept": 0, "late after null": 0, "back after null": 3}
        assert found(table.read()) == expected, name
        assert found(spark_judge.snapshot(tmp_path / name)) == expected, name


def test_a_late_row_brings_back_nothing_that_a_key_removed(tmp_path: Path, spark_judge: SparkJudge) -> None:
    """Nanoseconds since 1970 do not fit into a delete block: a row that comes later is a new one."""
    kind, values = KINDS["uint64"]
    table = make_table(tmp_path, "uint64", "mor", 8)
    table.upsert(rows_of(kind, [("late", values[1], 0, False), ("gone", values[1], 0, False)]))
    table.delete(["late", "gone"])
    table.upsert(rows_of(kind, [("late", values[1] - 1, 1, False)]))
    assert found(table.read()) == found(spark_judge.snapshot(tmp_path)) == {"late": 1}


def test_spark_refuses_nulls_where_lakefmt_takes_them_for_the_smallest(tmp_path: Path, spark_judge: SparkJudge) -> None:
    """What docs/limits.md says of null ordering values in logs, so that it is noticed when Hudi reads them."""
    table = make_table(tmp_path, "int64", "mor", 8)
    for batch in arriving("int64", [(0, -1), (-1, 0)]):
        table.upsert(batch)
    assert found(table.read()) == {"k0n": 0, "kn0": 1}
    with pytest.raises(JudgeError, match="ClassCastException"):
        spark_judge.snapshot(tmp_path)
