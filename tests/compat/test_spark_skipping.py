"""Data skipping: lakefmt by statistics that Spark wrote, Spark by those that lakefmt wrote, over values that are easily wrong."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.read import file_selection
from tests.judges.spark import SparkJudge

pytestmark = [pytest.mark.judge_spark, pytest.mark.timeout(600), pytest.mark.every_second_day(1)]

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("double", pa.float64()),
        ("single", pa.float32()),
        ("text", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("nested", pa.struct([("number", pa.int64()), ("word", pa.string())])),
        ("ts", pa.int64()),
    ]
)
COLUMNS = "double,single,text,price,day,at,nested.number,nested.word,ts"
LONG = "a" * 5000
INDEXES = {"hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.column.list": COLUMNS}
FLOATS = [0.0, -0.0, float("nan"), 50.0, -7.5, None]
TEXTS = ["b", LONG + "x", LONG + "z", "😀", "\ufffd", None]
MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5, 678901, datetime.UTC)


def rows(numbers: list[int], ts: int) -> pa.Table:
    """Rows of six partitions; values differ between partitions more than inside of them."""
    return pa.Table.from_pylist(
        [
            {
                "id": f"k{number}",
                "part": f"p{number % 6}",
                "double": FLOATS[(number + ts) % 6],
                "single": FLOATS[(number // 6 + number) % 6],
                "text": TEXTS[(number + ts) % 6],
                "price": Decimal(number % 6) / 4,
                "day": datetime.date(1960 + 20 * (number % 6), 1, 1),
                "at": MOMENT + datetime.timedelta(microseconds=number),
                "nested": None if number % 6 == 5 else {"number": number, "word": f"w{number}"},
                "ts": ts,
            }
            for number in numbers
        ],
        SCHEMA,
    )


PARTS = [rows([*range(18)], 1), rows([0, 1, 2, 7], 2)]
FILTERS: list[tuple[str, str, Any]] = [
    *(("double", "=", value) for value in (0.0, 50.0, -7.5)),
    *(("single", operator, 50.0) for operator in ("=", "<", "!=")),
    *(("text", operator, value) for operator in ("=", "<", ">=") for value in ("b", LONG + "x", "😀", "\ufffd")),
    ("text", "is", None),
    ("text", "is not", None),
    ("price", "=", Decimal("1.25")),
    ("price", "<", Decimal("0.25")),
    ("day", "=", datetime.date(1960, 1, 1)),
    ("day", ">", datetime.date(2040, 1, 1)),
    ("at", "=", MOMENT),
    ("at", ">", MOMENT + datetime.timedelta(microseconds=16)),
    ("nested.number", "=", 7),
    ("nested.word", "is", None),
    ("ts", "=", 2),
    ("id", "=", "k7"),
]


def sorted_rows(found: pa.Table) -> list[str]:
    return sorted(map(repr, found.to_pylist()))


def check_same(root: Path) -> set[str]:
    """Compare reads of lakefmt with and without skipping; return what left out files."""
    table = lakefmt.open_table(root)
    plain = lakefmt.open_table(root, options={"hoodie.enable.data.skipping": "false"})
    by = set()
    for query in FILTERS:
        assert sorted_rows(table.read(filter=[query])) == sorted_rows(plain.read(filter=[query])), query
        steps = table.explain([query]).steps
        by |= {step.name for before, step in itertools.pairwise(steps) if step.files < before.files}
    return by


def literal(value: Any) -> str:
    if isinstance(value, datetime.datetime):
        return f"timestamp '{value:%Y-%m-%d %H:%M:%S.%f}+00:00'"
    if isinstance(value, datetime.date):
        return f"date '{value}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


@pytest.fixture(autouse=True)
def statistics_of_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEW_FILES", "FEW_NEAR_FILES", "FEW_PARTITIONS"):
        monkeypatch.setattr(file_selection, name, 0)


def test_statistics_by_spark_leave_out_no_row(tmp_path: Path, spark_judge: SparkJudge) -> None:
    """Of base files, which the first write makes, and of logs, which the second one does."""
    root = tmp_path / "theirs"
    options = {
        "hoodie.table.name": "theirs",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.embed.timeline.server": "true",
        **INDEXES,
    }
    spark_judge.write(root, PARTS[0], options=options, mode="overwrite")
    spark_judge.write(root, PARTS[1], options=options)
    assert {"column_stats", "partition_stats"} <= set(lakefmt.open_table(root).properties.metadata_partitions)
    assert {"column_stats", "partition_stats"} <= check_same(root)


def test_spark_skips_by_statistics_of_lakefmt(tmp_path: Path, spark_judge: SparkJudge) -> None:
    root = tmp_path / "ours"
    table = lakefmt.create_table(
        root, schema=SCHEMA, record_key="id", partition_by="part", ordering="ts", table_type="mor", options=INDEXES
    )
    for part in PARTS:
        table.upsert(part)
    assert {"column_stats", "partition_stats"} <= check_same(root)
    names = {"is": "is null", "is not": "is not null"}
    wheres = [f"{c} {names.get(o) or f'{o} {literal(v)}'}" for c, o, v in FILTERS[::3]]
    spark_judge.sql(f"create table if not exists ours using hudi location '{root}'", "refresh table ours")
    counts = [f"select count(*) c, sum(ts) s, min(id) i from ours where {where}" for where in wheres]
    through = spark_judge.sql(
        *counts, settings={"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
    )
    plain = spark_judge.sql(*counts, settings={"hoodie.metadata.enable": "false"})
    assert dict(zip(wheres, through, strict=True)) == dict(zip(wheres, plain, strict=True))


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_spark_finds_nan_which_is_its_largest_number(tmp_path: Path, kind: str, spark_judge: SparkJudge) -> None:
    """By footers alone, and by the statistics of files and partitions; `= NaN` those cannot answer."""
    root, nan = tmp_path / kind, float("nan")
    table = lakefmt.create_table(
        root,
        schema=SCHEMA,
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type=kind,
        options={**INDEXES, "hoodie.parquet.small.file.limit": "0"},
    )
    for number, values in enumerate([[1.0, nan], [100.0, 2.0], [1.0, 2.0]]):
        some = rows([2 * number, 2 * number + 1], 1)
        for name in ("double", "single"):
            index = SCHEMA.get_field_index(name)
            some = some.set_column(index, SCHEMA.field(name), pa.array(values, SCHEMA.field(name).type))
        table.upsert(some.set_column(1, SCHEMA.field("part"), pa.array(["p", "p"])))
    # In a merge-on-read table this comes in a log.
    table.update("id = 'k4'", {"double": nan, "single": nan})
    spark_judge.sql(f"create table if not exists nan_{kind} using hudi location '{root}'", f"refresh table nan_{kind}")
    wheres = [f"{name} {test}" for name in ("double", "single") for test in ("> 5", ">= 100", "<= 1")]
    queries = [f"select id from nan_{kind} where {where} order by id" for where in wheres]
    expected = [["k1", "k2", "k4"], ["k1", "k2", "k4"], ["k0"]] * 2
    for skips in ("true", "false"):
        settings = {"hoodie.metadata.enable": skips, "hoodie.enable.data.skipping": skips}
        found = spark_judge.sql(*queries, settings=settings)
        assert [[row["id"] for row in each] for each in found] == expected, skips


def test_secondary_indexes_that_spark_made_on_a_field_and_on_a_second_column(
    tmp_path: Path, spark_judge: SparkJudge
) -> None:
    """The first is kept by both engines. The second one Spark leaves as it was: lakefmt does not ask it."""
    root = tmp_path / "fields"
    settings = {"hoodie.metadata.enable": "true", "hoodie.metadata.record.index.enable": "true"}
    told = f"using hudi options (primaryKey='id', type='mor', orderingFields='ts') location '{root}'"
    place = "named_struct('name', '{}', 'floor', 1)"
    spark_judge.sql(
        f"create table fields (id string, ts bigint, v int, place struct<name:string,floor:int>) {told}",
        f"insert into fields select 'a', 1, 1, {place.format('red')} union all select 'b', 1, 2, {place.format('blue')}",
        "insert into fields select 'c', 1, 3, null",
        "create index place on fields (place.name)",
        "create index v on fields (v)",
        settings={
            **settings,
            "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
            "hoodie.clean.failed.writes.policy": "LAZY",
            "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
        },
    )
    table = lakefmt.open_table(root)
    newer = [{"id": "c", "ts": 2, "v": 4, "place": {"name": "red", "floor": 2}}]
    table.upsert(pa.Table.from_pylist(newer, table.schema))
    assert table.index.check().is_clean
    spark_judge.sql("refresh table fields", "update fields set v = 77 where place.name = 'red'", settings=settings)
    assert [table.read(filter=where).num_rows for where in ("v = 77", "place.name = 'red'")] == [2, 2]
    assert "secondary_index_place" in [step.name for step in table.explain("place.name = 'red'").steps]
    found = spark_judge.sql("select id from fields where v = 77", settings=settings)[0]
    assert found == [], "Hudi keeps its second secondary index: docs/limits.md says that it does not"
    table.index.check(repair=True)
    ids = spark_judge.sql("refresh table fields", "select id from fields where v = 77", settings=settings)[1]
    assert sorted(row["id"] for row in ids) == ["a", "c"]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_spark_finds_doubles_by_a_secondary_index_of_lakefmt(
    tmp_path: Path, kind: str, spark_judge: SparkJudge
) -> None:
    """It looks for Java's texts of them: 1.0, 1.0E10."""
    root, schema = tmp_path / kind, pa.schema([("id", pa.string()), ("v", pa.float64()), ("ts", pa.int64())])
    table = lakefmt.create_table(
        root,
        schema=schema,
        record_key="id",
        ordering="ts",
        table_type=kind,
        index="record",
        options={"hoodie.metadata.enable": True},
    )
    for number, value in enumerate([1.0, 1e10, 2.5, None]):
        table.upsert(pa.table([[f"k{number}"], [value], [1]], schema=schema))
    table.index.create("secondary_index", "v")
    table.upsert(pa.table([["k2", "k3"], [1.0, 7.0], [2, 2]], schema=schema))
    kept = ("enable", "record.index.enable", "index.column.stats.enable")
    through = {f"hoodie.metadata.{name}": "true" for name in kept}
    spark_judge.write(
        root, pa.table([["k0"], [7.0], [3]], schema=schema), "upsert", through, index="GLOBAL_RECORD_LEVEL_INDEX"
    )
    assert table.index.check().is_clean
    for where, expected in {"v = 1.0D": ["k2"], "v = 1e10": ["k1"], "v = 7.0D": ["k0", "k3"], "v = 2.5D": []}.items():
        found = spark_judge.snapshot(root, columns=["id"], where=where, options=through)
        assert sorted(found["id"].to_pylist()) == expected, where
