"""Increments and changes have the columns that the table has now, whenever their range ends and whatever was altered since."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from tests.example_counts import in_turn

NUMBERS = itertools.count()
STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("a", pa.int32()), ("b", pa.string()), ("s", STRUCT)])
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
}
KEEP_TWO: dict[str, object] = {"hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
Row = dict[str, Any]
Change = tuple[Callable[[lakefmt.Table], object], Callable[[Row], Row]]


def renamed(old: str, new: str) -> Change:
    return (
        lambda t: t.alter.rename_column(old, new),
        lambda row: {new if name == old else name: value for name, value in row.items()},
    )


def dropped(name: str) -> Change:
    return lambda t: t.alter.drop_column(name), lambda row: {n: v for n, v in row.items() if n != name}


def added(name: str, type: pa.DataType) -> Change:
    return lambda t: t.alter.add_column(name, type), lambda row: {**row, name: None}


def widened(name: str, type: pa.DataType) -> Change:
    return lambda t: t.alter.update_column(name, type=type), dict


#: What is altered after the second commit, one after the other.
STORIES: dict[str, list[Change]] = {
    "renamed": [renamed("a", "c")],
    "dropped and added": [dropped("a"), added("a", pa.int32())],
    "swapped": [renamed("a", "other"), renamed("b", "a"), renamed("other", "b")],
    "widened": [widened("a", pa.int64())],
    "nested": [
        (
            lambda t: t.alter.rename_column("s.x", "z"),
            lambda row: {**row, "s": {"z": row["s"].get("x"), "y": row["s"]["y"]}},
        )
    ],
    "nested and wider": [widened("s.x", pa.int64()), renamed("s", "u"), added("s", pa.string())],
}


def batch(table: lakefmt.Table, ids: str, v: int) -> pa.Table:
    """Rows in the columns of now: every number is `v`, every text its digits."""

    def value(type: pa.DataType) -> Any:
        if pa.types.is_struct(type):
            return {field.name: value(field.type) for field in type}
        return v if pa.types.is_integer(type) else str(v)

    fixed = [{"id": i, "p": f"p{ord(i) % 2}"} for i in ids]
    rest = {field.name: value(field.type) for field in table.schema if field.name not in ("id", "p")}
    return pa.Table.from_pylist([{**row, **rest} for row in fixed], schema=table.schema)


def played(kind: str, version: int, story: str, indexes: list[str] | None) -> tuple[lakefmt.Table, list[Any]]:
    """Return a table, and its moments: (end, rows by key with the number of their commit)."""
    table = lakefmt.create_table(
        f"memory://altered-increments-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="p",
        table_type=kind,
        table_version=version,
        indexes=indexes,
        options=OPTIONS,
    )
    stored: dict[str, tuple[Row, int]] = {}
    moments: list[Any] = []
    for number, ids in enumerate(["abc", "ab", "a", "bd", "ae"]):
        if number == 2:
            for alter, change in STORIES[story]:
                alter(table)
                stored = {key: (change(row), at) for key, (row, at) in stored.items()}
                moments = [(e, {key: (change(row), at) for key, (row, at) in m.items()}) for e, m in moments]
        rows = batch(table, ids, number)
        done = table.upsert(rows)
        stored |= {row["id"]: (row, number) for row in rows.to_pylist()}
        moments.append((done.instant if version == 6 else done.completion_time, dict(stored)))
    return table, moments


def by_key(rows: pa.Table) -> list[Row]:
    return sorted(rows.to_pylist(), key=lambda row: str(row["id"]))


def check_ranges(table: lakefmt.Table, moments: list[Any]) -> None:
    schema = table.schema
    for first, last in [(-1, 0), (-1, 1), (0, 1), (0, 2), (1, 3), (2, 4), (-1, 4)]:
        start, (end, stored) = "000" if first < 0 else moments[first][0], moments[last]
        news = [row for _, (row, at) in sorted(stored.items()) if first < at <= last]
        found = table.incremental(start, end)
        assert found.schema.equals(schema), (first, last)
        assert by_key(found) == news, (first, last)
        name = "b"
        chosen = [row for row in news if row[name] is not None and row[name] != 0] if name in schema.names else []
        condition = f"{name} != {0 if pa.types.is_integer(schema.field(name).type) else repr('no')}"
        assert by_key(table.incremental(start, end, filter=condition)) == chosen
        projected = table.incremental(start, end, columns=[schema.names[-1], "id"])
        assert projected.schema.names == [schema.names[-1], "id"]
        changes = table.changes(start, end)
        assert changes.schema.field("after").type.equals(pa.struct(list(schema))), (first, last)
        newest = {row["id"]: row for row in changes.column("after").to_pylist()}
        assert [newest[key] for key in sorted(newest)] == news, (first, last)


CASES = [
    (kind, version, story)
    for number, story in enumerate(STORIES)
    for kind, version in (("mor", (6, 8, 9)[number % 3]), ("cow", (8, 9, 6)[number % 3]))
]


@pytest.mark.slow
@pytest.mark.in_turn(2)  # each story on one of the two types of table
@pytest.mark.parametrize(("kind", "version", "story"), CASES)
def test_every_range_has_the_columns_of_now(kind: str, version: int, story: str) -> None:
    table, moments = played(kind, version, story, None)
    check_ranges(table, moments)
    if kind == "mor":
        table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
    table.archive(options=KEEP_TWO)
    check_ranges(lakefmt.open_table(table.client.store.url), moments)


@pytest.mark.slow
def test_every_range_has_the_columns_of_now_in_any_table() -> None:
    every = [(k, v, s, i) for k in ("cow", "mor") for v in (6, 8, 9) for s in STORIES for i in (None, ["column_stats"])]
    for kind, version, story, indexes in in_turn(every, 24):
        table, moments = played(kind, version, story, indexes)
        check_ranges(table, moments)


def test_a_filter_and_a_range_before_an_alteration_go_by_the_names_of_now() -> None:
    table = lakefmt.create_table(
        f"memory://altered-increments-{next(NUMBERS)}",
        schema=pa.schema([("id", pa.string()), ("a", pa.int64()), ("b", pa.int64())]),
        record_key="id",
        table_type="mor",
        options=OPTIONS,
    )
    done = [table.upsert(pa.table({"id": ["x"], "a": [n], "b": [10 + n]})) for n in range(2)]
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        table.alter.rename_column(old, new)
    start, end = done[0].completion_time, done[1].completion_time
    assert start is not None
    assert table.incremental(start, end, filter="a = 11").to_pylist() == [{"id": "x", "b": 1, "a": 11}]
    assert table.incremental(start, end, filter="a = 1").num_rows == 0
