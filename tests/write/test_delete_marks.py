"""The column ``_hoodie_is_deleted`` of rows that are not deleted: what was stored is what is read, null included."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.table import Table
from tests.example_counts import examples

NUMBERS = itertools.count()
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("_hoodie_is_deleted", pa.bool_())])
OPTIONS: dict[str, object] = {"lakefmt.durability": "none", "lakefmt.write.threads": 1}


def rows(marks: dict[str, bool | None], ts: int) -> pa.Table:
    return pa.table(
        {"id": list(marks), "ts": [ts] * len(marks), "_hoodie_is_deleted": list(marks.values())}, schema=SCHEMA
    )


def made(kind: str, version: int) -> Table:
    return lakefmt.create_table(
        f"memory://marks-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        ordering="ts",
        table_type=kind,
        table_version=version,
        options=OPTIONS,
    )


def marks_of(table: Table, **how: Any) -> dict[str, bool | None]:
    found = table.read(**how)
    return dict(zip(found["id"].to_pylist(), found["_hoodie_is_deleted"].to_pylist(), strict=True))


MARKS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([None, False, True]), min_size=1)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "version"), [("cow", 8), ("mor", 6), ("mor", 8), ("mor", 9)])
@settings(max_examples=examples(8))
@given(batches=st.lists(MARKS, min_size=1, max_size=4))
def test_what_was_stored_stays(kind: str, version: int, batches: list[dict[str, bool | None]]) -> None:
    """Batches that also delete, an update, and a compaction leave every mark as it was written."""
    table = made(kind, version)
    expected: dict[str, bool | None] = {}
    for ts, batch in enumerate([{"a": None, "b": False, "c": None}, *batches], start=1):
        table.upsert(rows(batch, ts))
        expected |= batch
        expected = {key: mark for key, mark in expected.items() if mark is not True}
        assert marks_of(table) == expected
    table.update("id <= 'd'", {"ts": 50})
    assert marks_of(table) == expected
    table.delete(["b"])
    expected.pop("b", None)
    assert marks_of(table) == expected
    if kind == "mor":
        table.compact()
        assert marks_of(table) == expected
        assert marks_of(table, query="read_optimized") == expected
