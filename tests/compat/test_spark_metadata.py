"""The metadata table: Spark reads through the one that lakefmt keeps and goes on with it, lakefmt goes on with Spark's.

One JVM for the whole file. Every round is judged by Spark with its metadata table on and off, with predicates that its
statistics and its record index serve, by Spark's own validation of the file listing, and by hudi-rs.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.table import Table
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import SparkJudge

pytestmark = [pytest.mark.judge_spark, pytest.mark.timeout(600)]

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("v", pa.int64()), ("name", pa.string()), ("ts", pa.int64())]
)
CITIES = ("sf", "ny", "são paulo")
#: Two file groups make the record index small enough for a table of a few rows.
INDEXES = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
    "hoodie.metadata.record.index.max.filegroup.count": "2",
}
#: What Spark has to be told, else it deletes the indexes that it does not keep.
SPARK_INDEXES = {
    **INDEXES,
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.embed.timeline.server": "true",
}
READ = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
PREDICATES = (
    "v < 40",
    "v between 205 and 207",
    "id = 'key-007'",
    "id in ('key-001', 'no')",
    "city = 'ny' and v > 900",
    "name is null",
)


def rows(first: int, last: int, ts: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {
            "id": [f"key-{n:03d}" for n in numbers],
            "city": [CITIES[n % 3] for n in numbers],
            "v": [100 * ts + n for n in numbers],
            "name": [None if n % 5 == 0 else f"n${n % 7}" for n in numbers],
            "ts": [ts] * len(numbers),
        },
        schema=SCHEMA,
    )


def merged(*parts: pa.Table, without: tuple[str, ...] = ()) -> pa.Table:
    """The newest row of every key."""
    newest: dict[str, dict[str, object]] = {}
    for part in parts:
        newest |= {row["id"]: row for row in part.to_pylist()}
    return pa.Table.from_pylist([row for key, row in newest.items() if key not in without], SCHEMA)


def judge(root: Path, table: Table, spark: SparkJudge, rs: HudiRsJudge | None, expected: pa.Table) -> None:
    """Everybody sees the same rows, with and without the metadata table, and it lists what the storage has."""
    assert_same_multiset(table.read(), expected, what="lakefmt")
    spark.assert_same_rows(root, expected, options=READ, what="through the metadata table")
    spark.assert_same_rows(root, expected, options={"hoodie.metadata.enable": "false"}, what="without it")
    name = f"t_{abs(hash(str(root)))}"
    spark.sql(f"create table if not exists {name} using hudi location '{root}'", f"refresh table {name}")
    counts = [f"select count(*) c, sum(v) s, min(id) i from {name} where {where}" for where in PREDICATES]
    found = spark.sql(*counts, settings=READ)
    plain = spark.sql(*counts, settings={"hoodie.metadata.enable": "false"})
    assert dict(zip(PREDICATES, found, strict=True)) == dict(zip(PREDICATES, plain, strict=True))
    if spark.bundle == "1.2.0":
        assert spark.sql(f"call validate_metadata_table_files(table => '{name}', verbose => false)") == [[]]
    if rs is not None:
        assert_same_multiset(rs.snapshot(root), expected, what="hudi-rs")


@pytest.mark.parametrize(("kind", "version", "turns"), [("cow", 8, 2), ("mor", 8, 2), ("mor", 9, 1)])
def test_spark_goes_on_with_a_metadata_table_that_lakefmt_made(
    kind: str, version: int, turns: int, tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge
) -> None:
    _go_on_with_ours(tmp_path, spark_judge, hudi_rs_judge, kind, version, turns)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_hudi_102_goes_on_with_a_metadata_table_that_lakefmt_made(
    kind: str, tmp_path: Path, spark_judge_102: SparkJudge
) -> None:
    _go_on_with_ours(tmp_path, spark_judge_102, None, kind, 8, 1)


def test_hudi_0150_goes_on_with_a_metadata_table_that_lakefmt_made(
    tmp_path: Path, spark_judge_0150: SparkJudge
) -> None:
    _go_on_with_ours(tmp_path, spark_judge_0150, None, "mor", 6, 1)


def _go_on_with_ours(
    tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge | None, kind: str, version: int, turns: int
) -> None:
    """Spark and lakefmt write to one table in turns."""
    root = tmp_path / f"ours_{kind}"
    table = lakefmt.create_table(
        root,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=kind,
        table_version=version,
        options=INDEXES,
    )
    parts = [rows(0, 30, 1)]
    table.upsert(parts[0])
    names = {"files", "column_stats", "record_index"} | ({"partition_stats"} if version > 6 else set())
    assert set(table.properties.metadata_partitions) == names
    judge(root, table, spark_judge, hudi_rs_judge, merged(*parts))
    gone: tuple[str, ...] = ()
    for turn in range(turns):
        parts.append(rows(10 * turn, 10 * turn + 35, 2 * turn + 2))
        spark_judge.write(root, parts[-1], options=SPARK_INDEXES, index="RECORD_INDEX")
        assert set(table.properties.metadata_partitions) == names, "Spark kept our indexes"
        judge(root, table, spark_judge, hudi_rs_judge, merged(*parts, without=gone))
        parts.append(rows(10 * turn + 20, 10 * turn + 60, 2 * turn + 3))
        table.upsert(parts[-1])
        gone = (*gone, f"key-{turn:03d}")
        table.delete([gone[-1]])
        parts = [merged(*parts, without=gone)]
        judge(root, table, spark_judge, hudi_rs_judge, parts[0])
    initial = sorted(each.name for each in (root / ".hoodie/metadata/.hoodie").rglob("0000*.deltacommit"))
    assert len(initial) == len(names), "Spark did not build the metadata table anew"


def _spark_makes(root: Path, spark: SparkJudge, data: pa.Table, kind: str, **more: str) -> None:
    options = {
        "hoodie.table.name": "theirs",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[kind],
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
        "hoodie.table.timeline.timezone": "UTC",
        **more,
    }
    spark.write(root, data, options=options, mode="overwrite")


#: What the judge's writer otherwise turns off.
DEFAULTS = {"hoodie.metadata.enable": "true", "hoodie.embed.timeline.server": "true", "hoodie.clean.automatic": "true"}


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_lakefmt_goes_on_with_a_table_that_spark_made_with_its_defaults(
    kind: str, tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge
) -> None:
    root = tmp_path / f"theirs_{kind}"
    parts = [rows(0, 30, 1)]
    _spark_makes(root, spark_judge, parts[0], kind)
    table = lakefmt.open_table(root)
    names = set(table.properties.metadata_partitions)
    assert {"files", "column_stats", "partition_stats"} <= names
    for turn in range(2):
        parts.append(rows(10 * turn + 20, 10 * turn + 40, 2 * turn + 2))
        table.upsert(parts[-1])
        judge(root, table, spark_judge, hudi_rs_judge, merged(*parts))
        parts.append(rows(10 * turn, 10 * turn + 30, 2 * turn + 3))
        spark_judge.write(root, parts[-1], options=DEFAULTS)
        assert set(table.properties.metadata_partitions) == names
        judge(root, table, spark_judge, hudi_rs_judge, merged(*parts))
