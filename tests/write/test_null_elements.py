"""Null elements in lists are written, and the result says so once; a setting refuses them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.table import Table
from lakefmt.errors import SchemaMismatch
from tests.kit import product_or_diagonal

NUMBERS = itertools.count()
KINDS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "list": (pa.list_(pa.int64()), [1, None], [1]),
    "list of lists": (pa.list_(pa.list_(pa.string())), [["a"], [None]], [["a"]]),
    "struct": (pa.struct([("l", pa.list_(pa.int64()))]), {"l": [None]}, {"l": None}),
    "map": (pa.map_(pa.string(), pa.list_(pa.int64())), [("k", [None])], [("k", None)]),
    "list of structs": (pa.list_(pa.struct([("a", pa.int64())])), [{"a": 1}, None], [{"a": None}]),
}
WRITES: dict[str, Callable[..., Any]] = {
    "upsert": lambda table, rows, **how: table.upsert(rows, **how),
    "insert": lambda table, rows, **how: table.insert(rows, **how),
    "bulk_insert": lambda table, rows, **how: table.bulk_insert(rows, **how),
    "bulk_insert of a stream": lambda table, rows, **how: table.bulk_insert(iter([rows, rows]), **how),
    "insert_overwrite": lambda table, rows, **how: table.insert_overwrite(rows, **how),
}
REFUSE = {"lakefmt.write.null_list_elements": "refuse"}


def made(kind: pa.DataType, **how: Any) -> Table:
    schema = pa.schema([("id", pa.string()), ("v", kind), ("plain", pa.list_(pa.int64()))])
    return lakefmt.create_table(f"memory://null-elements-{next(NUMBERS)}", schema=schema, record_key="id", **how)


def rows(table: Table, value: Any) -> pa.Table:
    return pa.table({"id": ["a", "b"], "v": [value, None], "plain": [[1], None]}, schema=table.schema)


@product_or_diagonal(name=list(KINDS), verb=list(WRITES), table_type=["cow", "mor"])
def test_null_elements_are_written_with_one_warning(name: str, verb: str, table_type: str) -> None:
    kind, with_null, without = KINDS[name]
    table = made(kind, table_type=table_type)
    data = rows(table, with_null)
    with pytest.raises(SchemaMismatch, match="null elements"):
        WRITES[verb](table, data, options=REFUSE)
    assert len(table.timeline) == 0
    (warning,) = WRITES[verb](table, data).warnings
    assert "(v)" in warning
    assert "parquet.avro.write-old-list-structure=false" in warning
    assert "lakefmt.write.null_list_elements=refuse" in warning
    assert table.read().slice(0, 2).sort_by("id").to_pylist() == data.to_pylist()
    assert WRITES[verb](table, rows(table, without)).warnings == ()
    assert WRITES[verb](table, rows(table, without), options=REFUSE).warnings == ()


def test_a_setting_of_the_handle_refuses_them() -> None:
    table = made(pa.list_(pa.int64()), options=REFUSE)
    with pytest.raises(SchemaMismatch, match="null elements"):
        table.upsert(rows(table, [None]))


@product_or_diagonal(name=list(KINDS), table_type=["cow", "mor"])
def test_a_row_with_null_elements_is_updated(name: str, table_type: str) -> None:
    kind, with_null, _ = KINDS[name]
    table = made(kind, table_type=table_type)
    table.upsert(rows(table, with_null))
    assert table.update("id = 'a'", {"plain": [7]}).num_updates == 1
    assert table.read(filter="id = 'a'").to_pylist() == [{**rows(table, with_null).to_pylist()[0], "plain": [7]}]
    with pytest.raises(SchemaMismatch, match="null elements"):
        table.update("id = 'a'", {"plain": [8]}, options=REFUSE)
