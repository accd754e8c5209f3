"""The metadata table: Spark reads through the one that lakefmt keeps and goes on with it, lakefmt goes on with Spark's.

One JVM for each bundle, three rounds on each table: Spark upserts through the indexes that lakefmt wrote and lakefmt reads,
lakefmt upserts and deletes and Spark reads, with predicates that statistics, record index and secondary index serve. What
they must find DuckDB says from the expected rows. Spark's own validation of the file listing and hudi-rs judge as well.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.table import Table
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.spark import SparkJudge
from tests.metadata.metadata_indexes import create_metadata_index

pytestmark = [pytest.mark.judge_spark, pytest.mark.timeout(600), pytest.mark.every_second_day(0)]

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("v", pa.int64()), ("name", pa.string()), ("ts", pa.int64())]
)
CITIES = ("sf", "ny", "são paulo")
#: Two file groups make the record index small enough for a table of a few rows.
SMALL = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
}
INDEXES = {
    **SMALL,
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
    "hoodie.metadata.record.index.max.filegroup.count": "2",
}
#: A record index with file groups of its own for every data partition.
PARTITIONED = {
    **SMALL,
    "hoodie.metadata.record.level.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": "2",
    "hoodie.metadata.record.index.max.filegroup.count": "2",
}
#: Both engines take key ranges and filters from the metadata table.
BY_METADATA = {**INDEXES, "hoodie.bloom.index.use.metadata": "true"}
_THRESHOLD = "hoodie.metadata.log.compaction.blocks.threshold"
#: Both engines make one log of several in the metadata table, after every second commit.
LOG_COMPACTED = {
    **INDEXES,
    "hoodie.metadata.log.compaction.enable": "true",
    _THRESHOLD: "2",
    "hoodie.metadata.compact.max.delta.commits": "40",
}
#: Options of both, how lakefmt finds keys, and how Spark does.
CASES = {
    "record index": (INDEXES, "bloom", "RECORD_INDEX"),
    "partitioned record index": (PARTITIONED, "partitioned_record", "RECORD_LEVEL_INDEX"),
    "bloom by metadata": (BY_METADATA, "bloom", "BLOOM"),
    "log compaction": (LOG_COMPACTED, "record", "RECORD_INDEX"),
}
#: What Spark has to be told, else it deletes the indexes that it does not keep.
TOLD = {
    "hoodie.metadata.index.partition.stats.enable": "true",
    "hoodie.embed.timeline.server": "true",
    "hoodie.metadata.record.level.index.min.filegroup.count": "2",
    "hoodie.metadata.record.level.index.max.filegroup.count": "2",
}
READ = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
PREDICATES = (
    "v < 40",
    "v between 205 and 207",
    "id = 'key-007'",
    "id in ('key-001', 'no')",
    "city = 'ny' and v > 900",
    "name = 'n3'",
    "name in ('n1', 'n6')",
    "name is null",
)
#: Hudi 1.0.2 does not find secondary keys with this sign, in its own indexes either.
WITH_DOLLAR = ("name = 'a$b'",)


def rows(first: int, last: int, ts: int) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {
            "id": [f"key-{n:03d}" for n in numbers],
            "city": [CITIES[n % 3] for n in numbers],
            "v": [100 * ts + n for n in numbers],
            "name": [None if n % 5 == 0 else "a$b" if (n + ts) % 7 == 0 else f"n{(n + ts) % 7}" for n in numbers],
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


#: Turns of a table between the engines; its indexes are asked before the first one and after the last one.
TURNS = 3


def judge(root: Path, table: Table, spark: SparkJudge, expected: pa.Table, turn: int = TURNS - 1) -> None:
    """Spark sees the rows through the metadata table, each index leads it to them, and the listing is the storage's."""
    spark.assert_same_rows(root, expected, options=READ, what="through the metadata table")
    if turn < TURNS - 1:
        return
    name = f"t_{abs(hash(str(root)))}"
    asked = PREDICATES if spark.bundle == "1.0.2" else PREDICATES + WITH_DOLLAR
    counts = [
        f"select {number} n, count(*) c, sum(v) s, min(id) i from {{}} where {where}"
        for number, where in enumerate(asked)
    ]
    everything = " union all ".join(counts)
    validation = f"call validate_metadata_table_files(table => '{name}', verbose => false)"
    _, _, found, *validated = spark.sql(
        f"create table if not exists {name} using hudi location '{root}'",
        f"refresh table {name}",
        everything.replace("{}", name),
        *([validation] if spark.bundle == "1.2.0" else []),
        settings=READ,
    )
    with duckdb.connect() as connection:
        connection.register("expected", expected)
        wanted = connection.execute(everything.replace("{}", "expected")).fetchall()
    by_number = {row["n"]: (row["c"], row["s"], row["i"]) for row in found}
    assert {asked[n]: by_number[n] for n in by_number} == {
        asked[n]: (c, None if s is None else int(s), i) for n, c, s, i in wanted
    }
    assert validated in ([], [[]])


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    ("kind", "version", "case"),
    [
        ("cow", 8, "bloom by metadata"),
        ("mor", 8, "record index"),
        ("mor", 9, "log compaction"),
        ("cow", 9, "partitioned record index"),
    ],
)
def test_spark_goes_on_with_a_metadata_table_that_lakefmt_made(
    kind: str, version: int, case: str, tmp_path: Path, spark_judge: SparkJudge, hudi_rs_judge: HudiRsJudge
) -> None:
    root = _go_on_with_ours(tmp_path, spark_judge, hudi_rs_judge, kind, version, case)
    if case == "log compaction":
        # Spark was always the first to do it: now lakefmt.
        table = lakefmt.open_table(root, options={**LOG_COMPACTED, _THRESHOLD: "1"})
        for turn in range(3):
            table.upsert(rows(10 * turn, 10 * turn + 20, 20 + turn))
        _check_both_log_compacted(root)
        assert table.index.check().is_clean
        spark_judge.assert_same_rows(root, table.read(), options=READ, what="log-compacted by lakefmt")


def _check_both_log_compacted(root: Path) -> None:
    """Some log compactions are Spark's and some are lakefmt's: the write tokens of the logs tell."""
    requested = {each.name[:17] for each in root.rglob("*.logcompaction.requested")}
    done = {each.name[:17] for each in (root / ".hoodie/metadata").rglob("*.deltacommit")} & requested
    logs = [each.name for each in (root / ".hoodie/metadata/files").glob(".*.log.*") if not each.name.endswith(".crc")]
    tokens = [name.rpartition("_")[2] for name in logs if name.partition(".log.")[0][-17:] in done]
    ours = [token for token in tokens if token.startswith("1-") and token.endswith("-0")]
    assert 0 < len(ours) < len(tokens), tokens


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_hudi_102_goes_on_with_a_metadata_table_that_lakefmt_made(
    kind: str, tmp_path: Path, spark_judge_102: SparkJudge
) -> None:
    _go_on_with_ours(tmp_path, spark_judge_102, None, kind, 8, "record index")


def test_hudi_0150_goes_on_with_a_metadata_table_that_lakefmt_made(
    tmp_path: Path, spark_judge_0150: SparkJudge
) -> None:
    _go_on_with_ours(tmp_path, spark_judge_0150, None, "mor", 6, "record index")


def _go_on_with_ours(
    tmp_path: Path, spark: SparkJudge, hudi_rs: HudiRsJudge | None, kind: str, version: int, case: str
) -> Path:
    """Spark and lakefmt write to one table in turns."""
    root = tmp_path / f"ours_{kind}"
    options, own_index, index = CASES[case]
    table = lakefmt.create_table(
        root,
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=kind,
        table_version=version,
        index=own_index,
        options=options,
    )
    parts = [rows(0, 30, 1)]
    assert table.upsert(parts[0]).warnings == ()
    names = {"files", "column_stats", "record_index", "bloom_filters"} | ({"partition_stats"} if version > 6 else set())
    if version > 6 and options is not PARTITIONED:
        names.add("secondary_index_name")
        create_metadata_index(table.client, "secondary_index_name", "name", options)
    assert set(table.properties.metadata_partitions) == names
    judge(root, table, spark, merged(*parts))
    gone: tuple[str, ...] = ()
    for turn in range(TURNS):
        parts.append(rows(10 * turn, 10 * turn + 35, 2 * turn + 2))
        spark.write(root, parts[-1], options={**options, **TOLD}, index=index)
        assert set(table.properties.metadata_partitions) == names, "Spark kept our indexes"
        assert_same_multiset(table.read(), merged(*parts, without=gone), what="lakefmt")
        parts.append(rows(10 * turn + 20, 10 * turn + 60, 2 * turn + 3))
        known = merged(*parts[:-1], without=gone)["id"].to_pylist()
        done = table.upsert(parts[-1])
        assert (done.num_updates, done.warnings) == (len({*known} & {*parts[-1]["id"].to_pylist()}), ())
        gone = (*gone, f"key-{turn:03d}")
        table.delete([gone[-1]])
        parts = [merged(*parts, without=gone)]
        judge(root, table, spark, parts[0], turn)
        if hudi_rs is not None:
            assert_same_multiset(hudi_rs.snapshot(root), parts[0], what="hudi-rs")
    initial = sorted(each.name for each in (root / ".hoodie/metadata/.hoodie").rglob("0000*.deltacommit"))
    assert len(initial) == len(names), "Spark did not build the metadata table anew"
    assert table.index.check().is_clean
    return root


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


@pytest.mark.in_turn(2)
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
    for turn in range(TURNS):
        parts.append(rows(10 * turn + 20, 10 * turn + 40, 2 * turn + 2))
        table.upsert(parts[-1])
        judge(root, table, spark_judge, merged(*parts), turn)
        parts.append(rows(10 * turn, 10 * turn + 30, 2 * turn + 3))
        spark_judge.write(root, parts[-1], options=DEFAULTS)
        assert set(table.properties.metadata_partitions) == names
        assert_same_multiset(table.read(), merged(*parts), what="lakefmt")
        assert_same_multiset(hudi_rs_judge.snapshot(root), merged(*parts), what="hudi-rs")


def test_a_write_says_which_index_spark_dropped(tmp_path: Path, spark_judge: SparkJudge) -> None:
    root = tmp_path / "dropped"
    _spark_makes(root, spark_judge, rows(0, 30, 1), "cow")
    table = lakefmt.open_table(root)
    table.index.create("record_index", options={key: INDEXES[key] for key in INDEXES if "filegroup" in key})
    assert table.index.check().is_clean
    assert not table.upsert(rows(5, 10, 2)).warnings
    spark_judge.write(root, rows(20, 40, 3), options=DEFAULTS)
    assert "record_index" not in table.properties.metadata_partitions
    (warning,) = table.upsert(rows(8, 12, 4)).warnings
    assert warning.startswith("the index record_index of the metadata table is gone: another writer dropped it")
    spark_judge.write(root, rows(0, 5, 5), options=DEFAULTS)
    assert not table.upsert(rows(8, 12, 6)).warnings
    assert table.index.check().is_clean
