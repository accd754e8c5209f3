"""Which types a table stores, and what it refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakefmt._core.schema import normalise_schema, split_meta, with_meta_columns, without_meta_columns
from lakefmt._core.schema.types import MAX_DEPTH, field_at
from lakefmt._core.values import META_COLUMNS
from lakefmt.errors import SchemaMismatch

UTC = "UTC"

STORED = [
    (pa.bool_(), pa.bool_()),
    (pa.int8(), pa.int32()),
    (pa.int16(), pa.int32()),
    (pa.int32(), pa.int32()),
    (pa.int64(), pa.int64()),
    (pa.uint8(), pa.int32()),
    (pa.uint16(), pa.int32()),
    (pa.uint32(), pa.int64()),
    (pa.uint64(), pa.decimal128(20, 0)),
    (pa.float16(), pa.float32()),
    (pa.float32(), pa.float32()),
    (pa.float64(), pa.float64()),
    (pa.string(), pa.string()),
    (pa.large_string(), pa.string()),
    (pa.string_view(), pa.string()),
    (pa.binary(), pa.binary()),
    (pa.large_binary(), pa.binary()),
    (pa.binary_view(), pa.binary()),
    (pa.binary(7), pa.binary(7)),
    (pa.null(), pa.string()),
    (pa.date32(), pa.date32()),
    (pa.date64(), pa.date32()),
    (pa.time32("s"), pa.time32("ms")),
    (pa.time32("ms"), pa.time32("ms")),
    (pa.time64("us"), pa.time64("us")),
    (pa.time64("ns"), pa.time64("us")),
    (pa.timestamp("s"), pa.timestamp("us", UTC)),
    (pa.timestamp("ms"), pa.timestamp("ms", UTC)),
    (pa.timestamp("us"), pa.timestamp("us", UTC)),
    (pa.timestamp("ns", "Asia/Tokyo"), pa.timestamp("us", UTC)),
    (pa.decimal128(10, 2), pa.decimal128(10, 2)),
    (pa.decimal256(38, 3), pa.decimal128(38, 3)),
    (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
    (pa.large_list(pa.uint8()), pa.list_(pa.field("element", pa.int32()))),
    (pa.list_(pa.string(), 3), pa.list_(pa.field("element", pa.string()))),
    (pa.list_view(pa.int8()), pa.list_(pa.field("element", pa.int32()))),
    (pa.large_list_view(pa.int8()), pa.list_(pa.field("element", pa.int32()))),
    (pa.map_(pa.large_string(), pa.int8()), pa.map_(pa.string(), pa.int32())),
    (pa.map_(pa.dictionary(pa.int8(), pa.string()), pa.int64()), pa.map_(pa.string(), pa.int64())),
    (
        pa.struct([pa.field("a", pa.uint16(), nullable=False), ("b", pa.list_(pa.timestamp("ns")))]),
        pa.struct(
            [
                pa.field("a", pa.int32(), nullable=False),
                ("b", pa.list_(pa.field("element", pa.timestamp("us", UTC)))),
            ]
        ),
    ),
]


@pytest.mark.parametrize(("given", "stored"), STORED, ids=[str(given) for given, _ in STORED])
def test_a_type_is_stored_as(given, stored):
    found = normalise_schema(pa.schema([pa.field("c", given)]))
    assert found.field("c").type == stored
    assert str(found.field("c").type) == str(stored)
    assert normalise_schema(found) == found


@pytest.mark.parametrize("make", ["decimal32", "decimal64"])
def test_small_decimals_are_stored_as_decimal128(make):
    if not hasattr(pa, make):
        pytest.skip("this release of Arrow has no small decimals")
    assert normalise_schema(pa.schema([("c", getattr(pa, make)(5, 2))])).field("c").type == pa.decimal128(5, 2)


def test_labels_of_arrow_are_taken_off_and_others_refused():
    if not hasattr(pa, "uuid"):
        pytest.skip("this release of Arrow has no canonical uuid")
    assert normalise_schema(pa.schema([("c", pa.uuid())])).field("c").type == pa.binary(16)
    with pytest.raises(SchemaMismatch, match="'c'"):
        normalise_schema(pa.schema([("c", pa.opaque(pa.int32(), "x", "y"))]))


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (pa.duration("s"), "c"),
        (pa.month_day_nano_interval(), "c"),
        (pa.dense_union([pa.field("a", pa.int32())]), "c"),
        (pa.run_end_encoded(pa.int32(), pa.string()), "c"),
        (pa.decimal256(39, 0), "c"),
        (pa.decimal128(5, -2), "c"),
        (pa.decimal128(3, 5), "c"),
        (pa.struct([]), "c"),
        (pa.map_(pa.int32(), pa.int32()), "c"),
        (pa.map_(pa.binary(), pa.int32()), "c"),
        (pa.struct([("x", pa.list_(pa.duration("s")))]), "c.x.element"),
        (pa.map_(pa.string(), pa.duration("s")), "c.value"),
    ],
    ids=str,
)
def test_what_has_no_counterpart_is_refused_by_path(kind, path):
    with pytest.raises(SchemaMismatch, match=rf"'{path}'"):
        normalise_schema(pa.schema([("c", kind)]))


@pytest.mark.parametrize("name", ["", "a b", "1a", "a.b", "a-b", "é", "a\n"])
def test_a_name_that_avro_does_not_allow_is_refused_at_any_depth(name):
    for schema in (pa.schema([(name, pa.int32())]), pa.schema([("s", pa.struct([(name, pa.int32())]))])):
        with pytest.raises(SchemaMismatch, match="column name"):
            normalise_schema(schema)


def test_a_name_twice_is_refused_at_any_depth():
    for schema in (
        pa.schema([("a", pa.int32()), ("a", pa.int64())]),
        pa.schema([("s", pa.struct([("a", pa.int32()), ("a", pa.int64())]))]),
    ):
        with pytest.raises(SchemaMismatch, match="more than once"):
            normalise_schema(schema)


def test_a_table_without_columns_is_refused():
    with pytest.raises(SchemaMismatch, match="at least one column"):
        normalise_schema(pa.schema([]))


@pytest.mark.parametrize("name", META_COLUMNS)
def test_a_meta_column_among_the_data_is_refused(name):
    with pytest.raises(SchemaMismatch, match=name):
        normalise_schema(pa.schema([("id", pa.int32()), (name, pa.string())]))


def test_the_delete_marker_must_be_boolean():
    assert normalise_schema(pa.schema([("_hoodie_is_deleted", pa.bool_())])).names == ["_hoodie_is_deleted"]
    with pytest.raises(SchemaMismatch, match="must be boolean"):
        normalise_schema(pa.schema([("_hoodie_is_deleted", pa.string())]))


def test_depth_is_bounded():
    kind = pa.int32()
    for _ in range(MAX_DEPTH - 1):
        kind = pa.list_(kind)
    assert normalise_schema(pa.schema([("c", kind)])).field("c").type is not None
    with pytest.raises(SchemaMismatch, match="deeper"):
        normalise_schema(pa.schema([("c", pa.list_(kind))]))


def test_nullability_and_notes_of_fields_stay():
    field = pa.field("c", pa.int8(), nullable=False, metadata={"k": "v"})
    found = normalise_schema(pa.schema([field])).field("c")
    assert not found.nullable
    assert found.metadata == {b"k": b"v"}


def test_meta_columns_come_first_and_go_again():
    data = pa.schema([("id", pa.int64()), ("x", pa.string())])
    whole = with_meta_columns(data)
    assert tuple(whole.names[:5]) == META_COLUMNS
    assert all(whole.field(name).type == pa.string() for name in META_COLUMNS)
    assert with_meta_columns(whole) == whole
    assert without_meta_columns(whole) == data


def test_a_table_is_split_into_meta_and_data():
    table = pa.table({"id": [1, 2], "_hoodie_file_name": ["f", "f"], "_hoodie_record_key": ["a", "b"], "x": [3, 4]})
    meta, data = split_meta(table)
    assert meta.column_names == ["_hoodie_record_key", "_hoodie_file_name"]
    assert data.column_names == ["id", "x"]
    assert meta.num_rows == data.num_rows == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a", pa.int32()), ("s.b", pa.string()), ("s.t.c", pa.date32()), ("s.x", None), ("a.x", None), ("z", None)],
)
def test_a_dotted_name_leads_into_structs(name, kind):
    schema = pa.schema(
        [("a", pa.int32()), ("s", pa.struct([("b", pa.string()), ("t", pa.struct([("c", pa.date32())]))]))]
    )
    found = field_at(schema, name)
    assert (None if found is None else found.type) == kind
