"""Statistics of partitions leave out none by a column that was altered, and those of other columns leave out partitions as before."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.read import file_selection
from lakefmt._core.read.filters import keep_rows, parse_filter

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.metadata.enable": True,
    "hoodie.clean.automatic": False,
    "hoodie.compact.inline.max.delta.commits": 3,
}
SCHEMA = pa.schema([("id", pa.string()), ("place", pa.string()), ("n", pa.int32()), ("m", pa.int64())])
PLACES = tuple("abcde")


@pytest.fixture(autouse=True)
def statistics_of_few_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FEW_FILES", "FEW_NEAR_FILES", "FEW_PARTITIONS"):
        monkeypatch.setattr(file_selection, name, 0)


def made(table_type: str = "cow", version: int = 9) -> lakefmt.Table:
    return lakefmt.create_table(
        f"memory://places-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="place",
        table_type=table_type,
        table_version=version,
        options=OPTIONS,
    )


def row(schema: pa.Schema, place: str, key: int, number: int | None) -> pa.Table:
    values: dict[str, Any] = {"id": f"{place}{key}", "place": place}
    numbers = [name for name in schema.names if name not in values]
    values |= {name: None if number is None else number * (-1) ** at for at, name in enumerate(numbers)}
    return pa.Table.from_pylist([values], schema=schema)


def indexing(table: lakefmt.Table) -> dict[str, object]:
    names = [name for name in table.schema.names if name != "id"]
    return {"hoodie.metadata.index.column.stats.column.list": ",".join(names)}


def reindex(table: lakefmt.Table) -> None:
    """Statistics of the columns that the table has now, made of all files by ids."""
    for name in ("partition_stats", "column_stats"):
        if name in table.client.load().config.metadata_partitions:
            table.index.drop(name)
    table.index.create("column_stats", options=indexing(table))
    if "partition_stats" not in table.client.load().config.metadata_partitions:
        table.index.create("partition_stats", options=indexing(table))


def of_five(table_type: str = "cow") -> lakefmt.Table:
    """A table of five partitions with one number each."""
    table = made(table_type)
    for number, place in enumerate(PLACES):
        table.upsert(row(SCHEMA, place, 0, number))
    return table


def partitions_left(table: lakefmt.Table, query: str) -> int:
    everything = table.read()
    expected = keep_rows(everything, parse_filter(query, everything.schema))
    assert sorted(table.read(filter=query)["id"].to_pylist()) == sorted(expected["id"].to_pylist())
    steps = {step.name: step.partitions for step in table.explain(query).steps}
    return steps.get("partition_stats", len(PLACES))


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_column_that_was_renamed(table_type: str) -> None:
    """Not even when an index is made anew: what is stored of a partition does not say which files it is of."""
    table = of_five(table_type)
    table.alter.rename_column("n", "number")
    assert partitions_left(table, "number = 3") == 5
    reindex(table)
    assert partitions_left(table, "number = 3") == 5
    table.upsert(row(table.schema, "b", 0, 9))
    assert partitions_left(table, "number = 9") == 5
    assert partitions_left(table, "m = -3") == (1 if table_type == "cow" else 2)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_a_wider_column_and_one_that_was_moved(table_type: str) -> None:
    table = of_five(table_type)
    table.alter.update_column("n", type=pa.int64())
    assert partitions_left(table, "n = 3") == 5
    table.alter.update_column("m", before="n")
    assert partitions_left(table, "m = -3") == 1


def test_explain_says_that_statistics_of_partitions_are_not_used() -> None:
    table = of_five()
    table.alter.rename_column("n", "number")
    reasons = {each.name: each.reason for each in table.explain("number = 3").unused}
    assert reasons["partition_stats"] == "the columns of the filter were altered since files were written"


def test_names_that_two_columns_had_tell_nothing() -> None:
    table = of_five()
    for one, to in (("n", "swapping"), ("m", "n"), ("swapping", "m")):
        table.alter.rename_column(one, to)
    assert partitions_left(table, "m = 3") == 5
    table.alter.update_column("m", type=pa.int64())
    assert partitions_left(table, "m = 3") == 5


@pytest.mark.parametrize("kind", [pa.float64(), pa.string()])
def test_types_of_which_ends_are_converted_tell_nothing(kind: pa.DataType) -> None:
    table = of_five()
    table.alter.update_column("n", type=kind)
    assert partitions_left(table, "n = '3'" if kind == pa.string() else "n = 3") == 5
