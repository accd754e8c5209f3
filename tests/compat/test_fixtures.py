"""Every real table reads like hudi-rs reads it and like Spark, which wrote it, recorded it: every kind of query."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakefmt._core.table import Table, open_table
from lakefmt._core.values import TableType
from tests.compat.exemptions import Answer, Comparison, outcome
from tests.compat.fixture_tables import RealTable, has_all_fixtures, label, real_tables
from tests.judges.hudi_rs import HudiRsJudge

TABLES = real_tables()
RECORDED = [table for table in TABLES if table.recorded is not None]
WITH_ROWS = [table for table in TABLES if table.rows is not None and table.is_copy_on_write]
OPTIMIZED = {"hoodie.read.use.read_optimized.mode": "true"}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[RealTable], Path]:
    folder = tmp_path_factory.mktemp("real")
    return lambda table: table.unpack(folder)


def by_name(tables: list[RealTable]) -> Any:
    return pytest.mark.parametrize("real", tables, ids=[table.name for table in tables])


def test_the_selection_is_always_there() -> None:
    names = {table.name for table in TABLES}
    assert {"v6_cow_archived_0150", "v8_mor_archived_120", "v9_cow_restore_120", "v8_cow_evolved_102"} <= names
    assert len(TABLES) >= (46 if has_all_fixtures() else 8)


# --- hudi-rs ------------------------------------------------------------------------------------------------------


def is_copy_on_write(table: Table) -> bool:
    return table.properties.table_type is TableType.COPY_ON_WRITE


def instants(table: Table) -> list[str]:
    """Every requested and completion time on the timeline, active and archived."""
    state = table.client.at(table.client.load()).with_history().state
    known = (*state.timeline.archived, *state.timeline.completed)
    return sorted({time for i in known for time in (i.time, i.completion) if time})


def ranges(table: Table) -> Iterator[tuple[str, str | None]]:
    """From everywhere to now, from the start to everywhere, and every single commit."""
    ends = [i.order_time for i in table.client.load().timeline.commits_by_completion]
    yield from ((start, None) for start in ("000", *ends))
    yield from (("000", end) for end in ends)
    yield from pairwise(ends)


def read(table: Table, **how: Any) -> Answer:
    return outcome(lambda: table.read(meta_columns=True, **how))


@by_name(TABLES)
def test_every_query_equals_hudi_rs(
    real: RealTable,
    unpacked: Callable[[RealTable], Path],
    hudi_rs_judge: HudiRsJudge,
    record_property: Callable[[str, object], None],
) -> None:
    root = unpacked(real)
    table, judge = open_table(str(root)), hudi_rs_judge
    cow = is_copy_on_write(table)
    assert cow == real.is_copy_on_write
    found = Comparison("hudi-rs", real.name)
    found.add(
        "read_optimized",
        read(table, query="read_optimized"),
        outcome(lambda: judge.read_optimized(root, meta_columns=True)),
    )
    found.add("snapshot", read(table), outcome(lambda: judge.snapshot(root, meta_columns=True)))
    for time in instants(table):
        theirs = outcome(lambda at=time: judge.as_of(root, at, meta_columns=True))
        found.add(f"as_of {time}", read(table, as_of=time), theirs)
        if not cow:
            theirs = outcome(lambda at=time: judge.as_of(root, at, meta_columns=True, options=OPTIMIZED))
            found.add(f"read_optimized as_of {time}", read(table, as_of=time, query="read_optimized"), theirs)
    for start, end in ranges(table):
        found.add(
            f"incremental {start}..{end or ''}",
            outcome(lambda a=start, b=end: table.incremental(a, b, meta_columns=True)),
            outcome(lambda a=start, b=end: judge.incremental(root, a, b, meta_columns=True)),
        )
    found.finish(record_property)


# --- Spark's recorded answers -------------------------------------------------------------------------------------


def ask(table: Table, query: dict[str, Any]) -> Answer:
    """Ask a recorded query of lakefmt."""
    kind = query["query"]
    if kind == "incremental":
        return outcome(lambda: table.incremental(query["begin"], query.get("end"), meta_columns=True))
    how = {"as_of": {"as_of": query.get("instant")}, "read_optimized": {"query": "read_optimized"}}.get(kind, {})
    return read(table, **how)


@by_name(RECORDED)
def test_every_query_equals_what_spark_recorded(
    real: RealTable, unpacked: Callable[[RealTable], Path], record_property: Callable[[str, object], None]
) -> None:
    table = open_table(str(unpacked(real)))
    asked = {"snapshot", "as_of", "incremental", "read_optimized"}
    found = Comparison("spark", real.name)
    for query in real.queries():
        if query["query"] in asked:
            found.add(label(query), ask(table, query), real.answer(query))
    if found.compared:
        found.finish(record_property)
    else:
        assert not is_copy_on_write(table), "merge-on-read without a recorded read_optimized query"


def as_spark_json(value: Any) -> Any:
    """A value as Spark's JSON has it: milliseconds, decimals as numbers, no nulls inside."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {key: as_spark_json(inner) for key, inner in value.items()}
    return [as_spark_json(inner) for inner in value] if isinstance(value, list) else value


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["_hoodie_record_key"], row["_hoodie_partition_path"]))


@pytest.mark.skipif(not WITH_ROWS, reason="only the selection is there; the closing lines say so")
@by_name(WITH_ROWS)
def test_rows_and_filters_equal_what_spark_recorded_with_its_metadata_table(
    real: RealTable, unpacked: Callable[[RealTable], Path]
) -> None:
    table = open_table(str(unpacked(real)))
    assert real.rows is not None
    expected = json.loads(real.rows.read_text("utf-8"))
    rows = [as_spark_json(row) for row in table.read(meta_columns=True).to_pylist()]
    wanted = [{name: row.get(name) for name in rows[0]} for row in expected["rows"]]
    assert in_order(rows) == in_order(wanted)
    for text, ids in expected["queries"].items():
        assert sorted(table.read(["id"], text)["id"].to_pylist()) == sorted(ids), text


# --- the exemptions say no ----------------------------------------------------------------------------------------


def test_a_difference_is_told_and_an_exemption_that_nothing_needs_fails() -> None:
    rows = pa.table({"k": [1]})
    found = Comparison("spark", "v8_cow_evolved_102")
    found.add("snapshot", rows, pa.table({"k": [2]}))
    found.add("as_of 1", rows, "Cleaner cleaned up")
    with pytest.raises(AssertionError, match=r"(?s)snapshot.*the judge refuses.*exemption is not needed"):
        found.finish(lambda name, value: None)
    with pytest.raises(AssertionError, match="nothing was compared"):
        Comparison("spark", "no such table").finish(lambda name, value: None)
