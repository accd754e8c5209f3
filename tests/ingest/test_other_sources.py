"""Tables, queries and rows of the caller as sources."""

from __future__ import annotations

import sqlite3
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt.errors import InvalidInputError, PositionLost, SourceRefused, SourceUnavailable
from tests.example_counts import examples
from tests.ingest.ingest_kit import commits_of, extra_of, ingest, job, rows_of

V1, V2 = "deltastreamer.checkpoint.key", "streamer.checkpoint.key.v2"
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def make(path: Path, **how: Any) -> lakefmt.Table:
    return lakefmt.create_table(
        str(path), schema=SCHEMA, record_key="id", options={"lakefmt.durability": "none"}, **how
    )


# --------------------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_table_follows_a_table_with_its_deletes(tmp_path, version, table_type):
    bronze = make(tmp_path / "bronze", table_version=version, table_type=table_type)
    bronze.upsert([{"id": "a", "n": 1}, {"id": "b", "n": 1}])
    how = {"source_kind": "table", "table_version": version}
    assert ingest(tmp_path / "bronze", tmp_path / "silver", **how) == 2
    last = bronze.upsert([{"id": "a", "n": 2}, {"id": "c", "n": 1}])
    deleted = bronze.delete(["b"])
    ingest(tmp_path / "bronze", tmp_path / "silver", **how)
    assert rows_of(tmp_path / "silver") == rows_of(tmp_path / "bronze") == [{"id": "a", "n": 2}, {"id": "c", "n": 1}]
    extra = extra_of(tmp_path / "silver")
    if version == 6:
        assert (extra[V1], V2 in extra) == (deleted.instant, False)
    else:
        assert (extra[V2], V1 in extra) == (deleted.completion_time, False)
    assert last.instant is not None
    assert ingest(tmp_path / "bronze", tmp_path / "silver", **how) == 0
    assert commits_of(tmp_path / "silver") == 2


def test_a_pipeline_of_three_tables(tmp_path):
    bronze = make(tmp_path / "bronze")
    silver = {"source_kind": "table", "transformers": ["SELECT id, n * 10 AS n FROM <SRC> WHERE n > 0"]}
    gold = {"source_kind": "table", "transformers": ["python:tests.ingest.test_jobs:double"]}
    for change in ([{"id": "a", "n": 1}, {"id": "b", "n": -1}], [{"id": "a", "n": 2}, {"id": "c", "n": 3}]):
        bronze.upsert(change)
        ingest(tmp_path / "bronze", tmp_path / "silver", **silver)
        ingest(tmp_path / "silver", tmp_path / "gold", **gold)
    bronze.delete(["c"])
    ingest(tmp_path / "bronze", tmp_path / "silver", **silver)
    ingest(tmp_path / "silver", tmp_path / "gold", **gold)
    assert rows_of(tmp_path / "gold") == [{"id": "a", "n": 40}]


CHANGE = st.one_of(
    st.tuples(st.just("put"), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=4)),
    st.tuples(st.just("delete"), st.lists(st.integers(0, 4), min_size=1, max_size=2)),
    st.just(("pull", [])),
)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(CHANGE, min_size=2, max_size=10), st.sampled_from(["cow", "mor"]), st.sampled_from([None, "1"]))
def test_a_table_that_follows_is_equal_whenever_it_pulls(tmp_path_factory, story, table_type, commits):
    base = tmp_path_factory.mktemp("pull")
    bronze = make(base / "bronze", table_type=table_type)
    options = {} if commits is None else {"hoodie.streamer.source.hoodieincr.num_instants": commits}
    for verb, what in story:
        if verb == "put":
            bronze.upsert([{"id": str(key), "n": n} for key, n in dict(what).items()])
        elif verb == "delete":
            bronze.delete([str(key) for key in what])
        else:
            ingest(base / "bronze", base / "silver", source_kind="table", **options)
    ingest(base / "bronze", base / "silver", source_kind="table", **options)
    if (base / "silver").exists():
        assert rows_of(base / "silver") == rows_of(base / "bronze")


@pytest.mark.parametrize("falls_back", [False, True])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_pull_has_all_commits_before_its_checkpoint_in_whatever_order_they_were_requested(
    tmp_path, version, falls_back
):
    """Of the last commit the requested time may be smaller than that of one that became visible before it."""
    many = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    bronze = make(tmp_path / "bronze", table_version=version)
    bronze.upsert([{"id": "a", "n": 1}])
    whole = {"hoodie.datasource.read.incr.fallback.fulltablescan.enable": "true"}
    how = {"source_kind": "table", "table_version": version, **(whole if falls_back else {})}
    if falls_back:
        ingest(tmp_path / "bronze", tmp_path / "silver", **how)
    slow, quick = (lakefmt.open_table(str(tmp_path / "bronze"), options=many) for _ in range(2))

    def rows():
        yield pa.record_batch({"id": ["slow"], "n": [1]})
        quick.insert([{"id": "quick", "n": 1}])

    slow.bulk_insert(pa.RecordBatchReader.from_batches(SCHEMA, rows()))
    if falls_back:
        bronze.upsert([{"id": "a", "n": 2}])
        bronze.clean(options={"hoodie.clean.commits.retained": 1})
    for _ in range(2):
        ingest(tmp_path / "bronze", tmp_path / "silver", **how)
        assert rows_of(tmp_path / "silver") == rows_of(tmp_path / "bronze")


def test_history_that_was_cleaned_is_told_or_read_anew(tmp_path):
    bronze = make(tmp_path / "bronze")
    bronze.upsert([{"id": "a", "n": 1}])
    ingest(tmp_path / "bronze", tmp_path / "silver", source_kind="table")
    for n in range(4):
        bronze.upsert([{"id": "a", "n": n}, {"id": f"x{n}", "n": n}])
    bronze.clean(options={"hoodie.clean.commits.retained": 1})
    with pytest.raises(PositionLost, match="was cleaned away"):
        ingest(tmp_path / "bronze", tmp_path / "silver", source_kind="table")
    whole = {"hoodie.datasource.read.incr.fallback.fulltablescan.enable": "true"}
    ingest(tmp_path / "bronze", tmp_path / "silver", source_kind="table", **whole)
    assert rows_of(tmp_path / "silver") == rows_of(tmp_path / "bronze")


@pytest.mark.parametrize("form", ["{}", "resumeFromInstantCompletionTime:{}"])
def test_hudis_own_instants_are_gone_on_from(tmp_path, form):
    bronze = make(tmp_path / "bronze")
    first = bronze.upsert([{"id": "a", "n": 1}])
    bronze.upsert([{"id": "b", "n": 1}])
    silver = make(tmp_path / "silver")
    silver.upsert([{"id": "z", "n": 0}], commit_metadata={V2: form.format(first.completion_time)})
    ingest(tmp_path / "bronze", tmp_path / "silver", source_kind="table")
    assert [row["id"] for row in rows_of(tmp_path / "silver")] == ["b", "z"]


def test_a_table_as_a_source_says_what_is_wrong(tmp_path):
    with pytest.raises(SourceUnavailable):
        ingest(tmp_path / "none", tmp_path / "t", source_kind="table")
    make(tmp_path / "bronze").upsert([{"id": "a", "n": 1}])
    make(tmp_path / "silver").upsert([{"id": "a", "n": 1}], commit_metadata={V1: "1700000000000"})
    with pytest.raises(SourceRefused, match="reads a Hudi table, and the checkpoint '1700000000000' is one of files"):
        ingest(tmp_path / "bronze", tmp_path / "silver", source_kind="table")


# --------------------------------------------------------------------------------------------------------------- queries


def database(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("create table orders (id text primary key, v integer, changed integer, at date)")
    return connection


def put(connection: sqlite3.Connection, *rows: tuple[object, ...]) -> None:
    connection.executemany("insert or replace into orders values (?, ?, ?, '2026-01-01')", rows)
    connection.commit()


def query(path: Path, **more: Any) -> dict[str, Any]:
    return {"source_kind": "query", "query.table": "orders", "query.column": "changed", **more}


def test_rows_with_an_equal_value_that_come_later_are_taken(tmp_path):
    connection = database(tmp_path / "db")
    put(connection, ("a", 1, 10), ("b", 1, 20))
    source, how = f"sqlite:{tmp_path}/db", query(tmp_path)
    assert ingest(source, tmp_path / "t", **how) == 2
    assert ingest(source, tmp_path / "t", **how) == 0
    put(connection, ("c", 1, 20), ("a", 2, 20))
    assert ingest(source, tmp_path / "t", **how) == 2
    assert extra_of(tmp_path / "t")[V1] == "20"
    assert ingest(source, tmp_path / "t", **how) == 0
    assert [(row["id"], row["v"]) for row in rows_of(tmp_path / "t", ["id", "v"])] == [("a", 2), ("b", 1), ("c", 1)]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=4), min_size=1, max_size=6),
    st.sampled_from([None, 1, 3]),
)
def test_each_version_of_a_row_is_taken_once(tmp_path_factory, story, limit):
    """The column grows; rows are only added here, so that nothing is overwritten between two rounds."""
    base = tmp_path_factory.mktemp("query")
    connection = sqlite3.connect(base / "db")
    connection.execute("create table log (id integer primary key, changed integer)")
    now, number, expected = 0, 0, Counter[int]()
    how = {"source_kind": "query", "query.table": "select id, changed from log", "query.column": "changed"}
    for step in story:
        for count, later in step:
            now += later
            for _ in range(count):
                connection.execute("insert into log values (?, ?)", (number, now))
                expected[number] += 1
                number += 1
        connection.commit()
        ingest(f"sqlite:{base}/db", base / "t", key=(), operation="insert", source_limit=limit, **how)
    connection.close()
    if expected:
        assert Counter(row["id"] for row in rows_of(base / "t")) == expected


def connect() -> Any:
    connection = sqlite3.connect(":memory:")
    put_date = "insert into days values ('a', ?)"
    connection.execute("create table days (id text, d text)")
    connection.execute(put_date, (date(2026, 1, 1).isoformat(),))
    return connection


def test_any_module_of_the_db_api_will_do(tmp_path):
    how = {"source_kind": "query", "query.table": "days", "query.column": "d"}
    assert ingest("tests.ingest.test_other_sources:connect", tmp_path / "t", **how) == 1
    assert ingest("tests.ingest.test_other_sources:connect", tmp_path / "t", **how) == 0


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"query.column": "nope"}, InvalidInputError, "has no column 'nope'"),
        ({"query.table": "nope"}, SourceUnavailable, "no such table"),
        ({"query.table": ""}, InvalidInputError, "a query needs"),
        ({"query.table": 'or"ders'}, SourceUnavailable, "no such table"),
    ],
)
def test_a_query_that_is_wrong_says_so(tmp_path, more, error, message):
    put(database(tmp_path / "db"), ("a", 1, 10))
    with pytest.raises(error, match=message):
        ingest(f"sqlite:{tmp_path}/db", tmp_path / "t", **query(tmp_path, **more))


# ---------------------------------------------------------------------------------------------------------- rows of the caller


def rows_by_name():
    yield {"id": "a", "n": 1}
    yield [{"id": "b", "n": 2}, {"id": "c", "n": 3, "new": "x"}]
    yield pa.table({"id": ["d"], "n": [4.5]})


EXPECTED = [
    {"id": "a", "n": 1.0, "new": None},
    {"id": "b", "n": 2.0, "new": None},
    {"id": "c", "n": 3.0, "new": "x"},
    {"id": "d", "n": 4.5, "new": None},
]


@pytest.mark.parametrize("source", ["tests.ingest.test_other_sources:rows_by_name", rows_by_name, list(rows_by_name())])
def test_rows_of_the_caller_are_taken_once_in_a_run(tmp_path, source):
    how = {"source_kind": "rows"} if isinstance(source, str) else {}
    assert job(source, tmp_path / "t", **how).run("until_idle").tables[0].commits == 1
    assert rows_of(tmp_path / "t") == EXPECTED
    assert extra_of(tmp_path / "t")[V1] == "rows-run-1"
    ingest(source, tmp_path / "t", **how)
    assert (rows_of(tmp_path / "t"), extra_of(tmp_path / "t")[V1]) == (EXPECTED, "rows-run-2")


def test_a_resource_of_dlt_is_an_iterable_of_rows(tmp_path):
    dlt = pytest.importorskip("dlt")

    @dlt.resource
    def numbers():
        yield from ({"id": str(n), "n": n} for n in range(3))

    assert ingest(numbers, tmp_path / "t") == 3


@pytest.mark.parametrize("source", [[1, 2], [{"id": [1]}, {"id": "x"}], lambda: 5])
def test_what_are_no_rows_is_refused(tmp_path, source):
    with pytest.raises(InvalidInputError):
        ingest(source, tmp_path / "t")


def test_rows_that_fail_half_way_are_not_committed(tmp_path):
    def broken():
        yield {"id": "a"}
        raise ValueError("away")

    with pytest.raises(InvalidInputError, match="away"):
        ingest(broken, tmp_path / "t")
    assert not (tmp_path / "t").exists()
