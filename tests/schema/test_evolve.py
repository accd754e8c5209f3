"""What a table's schema becomes when other data arrive."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakefmt._core.schema import avro_to_arrow, check_names, evolve
from lakefmt.errors import SchemaMismatch

I32, I64, F32, F64, S = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()


def one(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("c", kind)])


@pytest.mark.parametrize(
    ("table", "data", "becomes"),
    [
        (I32, I32, I32),
        (I32, I64, I64),
        (I64, I32, I64),
        (I64, pa.int8(), I64),
        (I32, pa.uint32(), I64),
        (I32, F64, F64),
        (I32, F32, F64),
        (I64, F32, F64),
        (F32, F64, F64),
        (F64, F32, F64),
        (F64, I64, F64),
        (F32, I32, F32),
        (F32, pa.float16(), F32),
        (pa.decimal128(10, 2), pa.decimal128(12, 2), pa.decimal128(12, 2)),
        (pa.decimal128(12, 2), pa.decimal128(10, 2), pa.decimal128(12, 2)),
        (pa.decimal128(12, 2), pa.decimal128(5, 1), pa.decimal128(12, 2)),
        (pa.decimal128(20, 0), pa.uint64(), pa.decimal128(20, 0)),
        (pa.decimal128(12, 2), pa.int32(), pa.decimal128(12, 2)),
        (S, pa.large_string(), S),
        (S, pa.dictionary(pa.int8(), S), S),
        (S, pa.null(), S),
        (I32, pa.null(), I32),
        (pa.list_(I32), pa.null(), pa.list_(I32)),
        (pa.timestamp("us", "UTC"), pa.timestamp("ns", "Asia/Tokyo"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")),
        (pa.time64("us"), pa.time32("s"), pa.time64("us")),
        (pa.date32(), pa.date64(), pa.date32()),
        (pa.binary(4), pa.binary(), pa.binary(4)),
        (pa.list_(I32), pa.large_list(I64), pa.list_(I64)),
        (pa.map_(S, I32), pa.map_(S, F64), pa.map_(S, F64)),
        (pa.struct([("a", I32), ("b", S)]), pa.struct([("b", S), ("a", I64)]), pa.struct([("a", I64), ("b", S)])),
        (pa.struct([("a", I32)]), pa.struct([("z", S), ("a", I32)]), pa.struct([("a", I32), ("z", S)])),
        (
            pa.list_(pa.struct([("a", I32)])),
            pa.list_(pa.struct([("a", I32), pa.field("n", I32, nullable=False)])),
            pa.list_(pa.struct([("a", I32), ("n", I32)])),
        ),
    ],
    ids=str,
)
def test_a_column_becomes(table, data, becomes):
    found = evolve(one(table), one(data))
    assert found == one(becomes)
    if found == one(table):
        assert evolve(one(table), one(data), mode="strict") == one(table)
    else:
        with pytest.raises(SchemaMismatch, match="strict"):
            evolve(one(table), one(data), mode="strict")


@pytest.mark.parametrize(
    ("table", "data"),
    [
        (I32, S),
        (S, I32),
        (pa.bool_(), I32),
        (I64, pa.uint64()),
        (I64, pa.decimal128(5, 0)),
        (pa.decimal128(5, 2), I32),
        (pa.decimal128(5, 2), F64),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.decimal128(10, 2), pa.decimal128(12, 1)),
        (S, pa.binary()),
        (pa.date32(), pa.timestamp("us", "UTC")),
        (pa.timestamp("us", "UTC"), I64),
        (I32, pa.list_(I32)),
        (pa.list_(I32), I32),
        (pa.struct([("a", I32)]), pa.map_(S, I32)),
        (pa.struct([("a", I32), ("b", I32)]), pa.struct([("a", I32)])),
        (pa.list_(S), pa.list_(I32)),
    ],
    ids=str,
)
def test_what_cannot_meet_is_refused(table, data):
    for partial in (False, True):
        with pytest.raises(SchemaMismatch, match="'c"):
            evolve(one(table), one(data), partial=partial)


def test_new_columns_are_appended_and_optional():
    table = pa.schema([("a", I32), ("b", S)], metadata={"k": "v"})
    data = pa.schema([pa.field("z", pa.uint8(), nullable=False), ("b", S), ("a", I32), ("y", pa.null())])
    found = evolve(table, data)
    assert found == pa.schema([("a", I32), ("b", S), ("z", I32), ("y", S)])
    assert found.metadata == {b"k": b"v"}


def test_required_stays_required():
    table = pa.schema([pa.field("a", I32, nullable=False)])
    assert evolve(table, pa.schema([("a", I64)])) == pa.schema([pa.field("a", I64, nullable=False)])


def test_a_missing_column_is_refused_unless_rows_are_partial():
    table = pa.schema([("a", I32), ("b", S)])
    with pytest.raises(SchemaMismatch, match="lack the table's columns b"):
        evolve(table, pa.schema([("a", I32)]))
    assert evolve(table, pa.schema([("a", I32)]), partial=True) == table


@pytest.mark.parametrize("name", ["_hoodie_record_key", "a b"])
def test_a_column_that_no_table_has_is_refused(name):
    with pytest.raises(SchemaMismatch):
        evolve(pa.schema([("a", I32)]), pa.schema([("a", I32), (name, S)]))


def test_another_mode_is_refused():
    with pytest.raises(SchemaMismatch, match="neither"):
        evolve(one(I32), one(I32), mode="overwrite")


def test_notes_of_other_columns_stay():
    avro = '{"type":"record","name":"r","fields":[{"name":"e","type":{"type":"enum","name":"x","symbols":["A"]}}]}'
    table = avro_to_arrow(avro)
    found = evolve(table, pa.schema([("e", S), ("new", S)]))
    assert found.field("e").metadata == table.field("e").metadata


# --- names that differ by case only -----------------------------------------------------------------------------------

V, INT = pa.field("v", pa.int64()), pa.int64()
ALIKE = {
    "column": ([V], [V, pa.field("V", INT)]),
    "column alone": ([V], [pa.field("V", INT)]),
    "two new ones": ([V], [V, pa.field("x", INT), pa.field("X", INT)]),
    "in a struct": (
        [pa.field("s", pa.struct([V]))],
        [pa.field("s", pa.struct([V, pa.field("V", INT)]))],
    ),
    "in a list": (
        [pa.field("l", pa.list_(pa.struct([V])))],
        [pa.field("l", pa.list_(pa.struct([V, pa.field("V", INT)])))],
    ),
    "in a map": (
        [pa.field("m", pa.map_(pa.string(), pa.struct([V])))],
        [pa.field("m", pa.map_(pa.string(), pa.struct([V, pa.field("V", INT)])))],
    ),
    "in a new struct": ([V], [V, pa.field("s", pa.struct([V, pa.field("V", INT)]))]),
}


@pytest.mark.parametrize("name", list(ALIKE))
def test_a_column_that_differs_by_case_only_is_not_added(name: str) -> None:
    have, data = (pa.schema(fields) for fields in ALIKE[name])
    with pytest.raises(SchemaMismatch, match="by case only"):
        evolve(have, data, partial=True)
    if name != "column alone":
        with pytest.raises(SchemaMismatch, match="by case only"):
            check_names(data)


def test_a_table_that_has_both_goes_on() -> None:
    both = pa.schema([V, pa.field("V", INT)])
    assert evolve(both, both) == both
    assert evolve(both, both.append(pa.field("x", INT))).names == ["v", "V", "x"]
    with pytest.raises(SchemaMismatch, match="'X' differs from 'x' by case only"):
        evolve(both.append(pa.field("x", INT)), both.append(pa.field("X", INT)), partial=True)


def test_a_column_that_differs_in_capitals_is_named_where_it_lacks() -> None:
    table = pa.schema([("id", pa.string()), ("fare", pa.int64())])
    data = pa.schema([("ID", pa.string()), ("fare", pa.int64())])
    with pytest.raises(SchemaMismatch, match=r"lack the table's columns id: rename ID as id$"):
        evolve(table, data)
