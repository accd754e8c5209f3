"""Statistics of files by services that were planned before an alteration, and under names that were another type's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.table import Table

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.clean.automatic": False,
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.log.compaction.blocks.threshold": 2,
}
SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("a", pa.int64()), ("b", pa.int64()), ("s", pa.string())])


def rows(first: int, last: int) -> pa.Table:
    numbers = range(first, last)
    values = [[f"{n:03}" for n in numbers], ["x"] * len(numbers), [*numbers], [-n for n in numbers]]
    return pa.table([*values, [f"t{n}" for n in numbers]], schema=SCHEMA)


def renamed(table: Table) -> tuple[str, str, str]:
    for name in "abs":
        table.alter.rename_column(name, f"{name}{name}")
    return "aa", "bb", "ss"


def swapped(first: str, second: str) -> Callable[[Table], tuple[str, str, str]]:
    def alter(table: Table) -> tuple[str, str, str]:
        for old, new in ((first, "between"), (second, first), ("between", second)):
            table.alter.rename_column(old, new)
        names = {"a": "a", "b": "b", "s": "s", first: second, second: first}
        return names["a"], names["b"], names["s"]

    return alter


def dropped_and_added(table: Table) -> tuple[str, str, str]:
    table.alter.rename_column("a", "aa")
    table.alter.add_column("a", pa.string())
    return "aa", "b", "s"


ALTERED: dict[str, Callable[[Table], tuple[str, str, str]]] = {
    "renamed": renamed,
    "swapped": swapped("a", "b"),
    "swapped types": swapped("a", "s"),
    "another column of the name": dropped_and_added,
}


@pytest.mark.slow
@pytest.mark.in_turn(3)
@pytest.mark.parametrize("alter", ALTERED)
@pytest.mark.parametrize("service", ["cluster", "compact", "log_compact"])
@pytest.mark.parametrize("version", [6, 8])
def test_rows_are_found_behind_a_service_that_was_planned_before(alter: str, service: str, version: int) -> None:
    """No service completed where a name had become another type's; statistics had a renamed column as null in all rows."""
    table = lakefmt.create_table(
        f"memory://behind-services-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="p",
        table_type="cow" if service == "cluster" else "mor",
        table_version=version,
        indexes=["column_stats", *(["partition_stats"] if version > 6 else [])],
        options=OPTIONS,
    )
    table.insert(rows(0, 10))
    table.insert(rows(10, 20))
    if service != "cluster":
        for _ in range(2):
            table.upsert(rows(5, 15))
    planned = (
        table.cluster(schedule=True) if service == "cluster" else table.compact(schedule=True, log=service != "compact")
    )
    assert planned.instant is not None
    a, b, s = ALTERED[alter](table)
    if service == "cluster":
        assert table.cluster(run=planned.instant).files
    else:
        assert table.compact(run=planned.instant, log=service != "compact").files
    for n in (3, 7, 12, 18):
        for name, value in ((a, n), (b, -n), (s, f"t{n}")):
            found = table.read(["id"], filter=[(name, "=", value)])["id"].to_pylist()
            assert found == [f"{n:03}"], (name, value)
    assert table.read(filter=[(a, ">", 100)]).num_rows == 0
    assert not table.index.check().findings
    assert not table.check("full").findings


VALUES: dict[str, tuple[pa.DataType, object]] = {
    "long": (pa.int64(), 22_000_000_000),
    "int": (pa.int32(), 7),
    "date": (pa.date32(), date(2026, 1, 2)),
    "double": (pa.float64(), 1e300),
    "text": (pa.string(), "text"),
    "decimal": (pa.decimal128(30, 2), Decimal("1.25")),
    "time": (pa.timestamp("us", "UTC"), None),
}


def partners(first: str) -> list[str]:
    """The types whose names a type exchanges, each pair once: an exchange is one of both columns, and both are read."""
    names = list(VALUES)
    at = names.index(first)
    return [name for other, name in enumerate(names) if (other <= at if (at + other) % 2 else other >= at)]


def test_every_pair_of_types_exchanges_its_names() -> None:
    assert {frozenset((first, second)) for first in VALUES for second in partners(first)} == {
        frozenset((first, second)) for first in VALUES for second in VALUES
    }


@pytest.mark.parametrize("first", VALUES)
def test_names_that_were_another_types(first: str) -> None:
    """Ends of a number that no date can be ended reads of the date that has its name now, in an error of Arrow's."""
    for second in partners(first):
        kinds = [VALUES[first], VALUES[second]]
        schema = pa.schema([("id", pa.string()), ("a", kinds[0][0]), ("b", kinds[1][0])])
        table = lakefmt.create_table(
            f"memory://behind-services-{next(NUMBERS)}",
            schema=schema,
            record_key="id",
            table_type="mor",
            indexes=["column_stats"],
            options=OPTIONS,
        )
        for key in ("x", "y", "z"):
            table.insert(pa.table({"id": [key], "a": [kinds[0][1]], "b": [kinds[1][1]]}, schema=schema))
        swapped("a", "b")(table)
        behind = pa.table({"id": ["z"], "b": [kinds[0][1]], "a": [kinds[1][1]]}, schema=table.schema)
        table.upsert(behind)
        for name, (_, value) in zip("ba", kinds, strict=True):
            if value is not None:
                assert table.read(["id"], filter=[(name, "=", value)]).num_rows == 3, (first, second, name)
            assert table.read(["id"], filter=f"{name} is null").num_rows == 3 * (value is None)
