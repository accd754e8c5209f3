"""What Spark's tasks read together is what one process reads, whatever is asked and however it is cut (no JVM)."""

from __future__ import annotations

import datetime as dt
import pickle
from collections import namedtuple
from decimal import Decimal

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.read.splits import choose_split_bytes
from lakefmt.errors import SnapshotExpired
from lakefmt.spark.reading import choose_by_path, open_scan, translate_filters

OPTIONS = {"lakefmt.durability": "none", "lakefmt.write.threads": 1, "hoodie.clean.automatic": False}
QUERY = "hoodie.datasource.query.type"
BEGIN, END = "hoodie.datasource.read.begin.instanttime", "hoodie.datasource.read.end.instanttime"
GLOB = "hoodie.datasource.read.incr.path.glob"
FALLBACK = "hoodie.datasource.read.incr.fallback.fulltablescan.enable"
ONE_FILE = {"lakefmt.spark.read.split.bytes": "1"}
CDC = {
    QUERY: "incremental",
    "hoodie.datasource.query.incremental.format": "cdc",
    "lakefmt.spark.cdc.images": "struct",
}


def rows(ids: range, v: float) -> pa.Table:
    return pa.table(
        {"id": [f"k{n}" for n in ids], "city": [f"c{n % 4}" for n in ids], "v": [v + n for n in ids], "ts": [*ids]}
    )


@pytest.fixture(scope="module", params=["cow", "mor"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> lakefmt.Table:
    """Four partitions, three commits: inserts, updates with inserts, deletes."""
    path = tmp_path_factory.mktemp("scan") / request.param
    made = lakefmt.create_table(
        path,
        data=rows(range(1), 0.0),
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=request.param,
        options=OPTIONS,
    )
    made.upsert(rows(range(20), 0.0))
    made.upsert(rows(range(5, 25), 100.0))
    made.delete(["k0", "k7"])
    return made


def spark_rows(path: str, options: dict[str, str], filters: tuple = ()) -> tuple[list[dict], int]:
    """Read as tasks do: each has the pickled plan without its splits, and one pickled split."""
    planned = open_scan(path, options).plan(filters)
    sent = pickle.dumps(planned)
    found: list[dict] = []
    for split in planned.splits:
        task = pickle.loads(sent)
        for batch in task.read(pickle.loads(pickle.dumps(split))):
            assert batch.schema == planned.schema
            found += batch.to_pylist()
    return found, len(planned.splits)


def texts(found: list[dict]) -> list[str]:
    return sorted(map(str, found))


def times(table: lakefmt.Table) -> list[str]:
    """The completion times of the commits, first to last."""
    return [str(instant.order_time) for instant in table.client.load().timeline.commits_by_completion]


@pytest.mark.parametrize("cut", [{}, ONE_FILE], ids=["few splits", "many splits"])
def test_splits_hold_every_row_once(table, cut):
    path, done = table.client.store.url, times(table)
    now, splits = spark_rows(path, cut)
    assert texts(now) == texts(table.read(meta_columns=True).to_pylist())
    then, _ = spark_rows(path, {"as.of.instant": table.timeline.entries[0].time, **cut})
    assert len(then) == 20
    for start, end in (("000", None), (done[0], None), ("000", done[1]), (done[2], None)):
        asked = {BEGIN: start, **({END: end} if end else {}), **cut}
        increment, parts = spark_rows(path, {QUERY: "incremental", **asked})
        assert texts(increment) == texts(table.incremental(start, end, meta_columns=True).to_pylist()), (start, end)
        changes, sources = spark_rows(path, {**CDC, **asked})
        assert texts(changes) == texts(table.changes(start, end).to_pylist()), (start, end)
        assert min(parts, sources) > 1 or not cut or start == done[2]
    assert splits == (len(table.file_groups()) if cut else 1)


def test_a_planned_query_stays_where_it_was_planned(tmp_path):
    made = lakefmt.write_table(tmp_path / "t", rows(range(4), 0.0), record_key="id", ordering="ts", options=OPTIONS)
    path = str(tmp_path / "t")
    asked = [{}, {QUERY: "incremental"}, CDC]
    scans = [open_scan(path, options) for options in asked]
    lakefmt.open_table(path, options=OPTIONS).upsert(rows(range(8), 50.0))
    for scan in scans:
        planned = scan.plan()
        assert sum(batch.num_rows for split in planned.splits for batch in planned.read(split)) == 4
    assert made.num_inserts == 4


def test_filters_leave_files_out_before_tasks_exist(table):
    path = table.client.store.url
    found, splits = spark_rows(path, ONE_FILE, (("city", "=", "c1"),))
    assert (splits, {row["city"] for row in found}) == (len(table.file_groups(["city=c1"])), {"c1"})
    assert splits < len(table.file_groups())
    found, splits = spark_rows(path, {QUERY: "incremental", **ONE_FILE}, (("city", "in", ["c1", "c2"]), ("ts", "<", 9)))
    assert texts(found) == texts(
        table.incremental("000", filter="city in ('c1', 'c2') and ts < 9", meta_columns=True).to_pylist()
    )
    assert len(found) == 4


def test_a_filter_of_the_options_reads_only_its_rows(table):
    path, where = table.client.store.url, "city = 'c1' and ts > 4"
    asked = {"lakefmt.spark.read.filter": where, **ONE_FILE}
    found, splits = spark_rows(path, asked)
    assert texts(found) == texts(table.read(filter=where, meta_columns=True).to_pylist())
    assert splits <= len(table.file_groups(["city=c1"]))
    changes, _ = spark_rows(path, {**CDC, **asked})
    assert texts(changes) == texts(table.changes("000", filter=where).to_pylist())
    assert len(changes) < table.changes("000").num_rows


def test_a_path_chooses_files_of_an_increment(table):
    found, _ = spark_rows(table.client.store.url, {QUERY: "incremental", GLOB: "/city=c[12]/*"})
    assert {row["city"] for row in found} == {"c1", "c2"}
    assert choose_by_path(table.file_groups(), "/nowhere/*") == []


def test_what_was_cleaned_away_comes_from_the_newest_files_or_is_an_error(tmp_path):
    path = str(tmp_path / "t")
    for v in (0.0, 10.0, 20.0):
        lakefmt.write_table(path, rows(range(4), v), record_key="id", ordering="ts", mode="append", options=OPTIONS)
    table = lakefmt.open_table(path, options=OPTIONS)
    table.upsert(rows(range(4, 6), 0.0))
    done = times(table)
    table.clean(options={"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1})
    asked = {QUERY: "incremental", END: done[1]}
    assert spark_rows(path, asked)[0] == []  # all rows were written again after the range
    with pytest.raises(SnapshotExpired, match="cleaned away"):
        spark_rows(path, {**asked, FALLBACK: "false"})
    assert len(spark_rows(path, {QUERY: "incremental", BEGIN: done[1]})[0]) == 6


def test_a_few_tasks_for_each_slot():
    assert choose_split_bytes(600 << 20, 10) == 20 << 20
    assert choose_split_bytes(1 << 50, 10) == 128 << 20


def spark_filter(name: str, *values: object) -> object:
    """A filter as PySpark hands it, by name and attributes."""
    fields = {"Not": "child", "IsNull": "attribute", "IsNotNull": "attribute"}.get(name, "attribute value")
    return namedtuple(name, fields)(*values)


DAY, PRICE = dt.date(2026, 1, 2), Decimal("1.50")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("EqualTo", ("s",), "a"), ("s", "=", "a")),
        (("EqualNullSafe", ("n",), 1), ("n", "=", 1)),
        (("EqualNullSafe", ("n",), None), ("n", "is", None)),
        (("GreaterThan", ("day",), DAY), ("day", ">", DAY)),
        (("GreaterThanOrEqual", ("price",), PRICE), ("price", ">=", PRICE)),
        (("LessThan", ("n",), 1), ("n", "<", 1)),
        (("LessThanOrEqual", ("n",), 1), ("n", "<=", 1)),
        (("In", ("n",), (1, 2)), ("n", "in", [1, 2])),
        (("IsNull", ("s",)), ("s", "is", None)),
        (("IsNotNull", ("s",)), ("s", "is not", None)),
        (("StringStartsWith", ("s",), "ab"), ("s", "like", "ab%")),
        (("StringStartsWith", ("s",), "a_b"), None),
        (("StringContains", ("s",), "ab"), None),
        (("EqualTo", ("n",), None), None),
        (("EqualTo", ("v",), 1.5), None),  # Spark takes NaN as equal to itself
        (("GreaterThan", ("v",), 1.5), None),  # and as the largest number
        (("EqualTo", ("s", "inner"), "a"), None),
        (("EqualTo", ("unknown",), "a"), None),
    ],
)
def test_filters_of_spark(given, expected):
    schema = pa.schema(
        {"s": pa.string(), "n": pa.int64(), "v": pa.float64(), "day": pa.date32(), "price": pa.decimal128(10, 2)}
    )
    assert translate_filters([spark_filter(*given)], schema) == ([] if expected is None else [expected])
    opposite = translate_filters([spark_filter("Not", spark_filter(*given))], schema)
    named = {"EqualTo": "!=", "In": "not in"}.get(given[0])
    if expected is None or named is None:
        assert opposite == []
    else:
        assert opposite == [(expected[0], named, expected[2])]
