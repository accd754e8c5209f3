"""Batches brought to a table's schema: nothing is lost, and what does not fit is named."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from lakefmt._core.schema import conform, normalise_schema, reconcile
from lakefmt.errors import CorruptFile, SchemaMismatch

D = decimal.Decimal
UTC_US = pa.timestamp("us", "UTC")


def one(array: pa.Array, kind: pa.DataType, **options: bool) -> pa.ChunkedArray:
    return conform(pa.table({"c": array}), pa.schema([("c", kind)]), **options).column("c")


# ------------------------------------------------------------------------------------------------------------ conform


@pytest.mark.parametrize(
    ("array", "kind", "values"),
    [
        (pa.array([1, None], pa.int8()), pa.int64(), [1, None]),
        (pa.array([2**31 - 1], pa.int64()), pa.int32(), [2**31 - 1]),
        (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0), [D(2**64 - 1)]),
        (pa.array([7], pa.int64()), pa.decimal128(4, 2), [D("7.00")]),
        (pa.array([3], pa.int32()), pa.float32(), [3.0]),
        (pa.array([3.0, None]), pa.int32(), [3, None]),
        (pa.array([0.5, None]), pa.float32(), [0.5, None]),
        (pa.array([1.5], pa.float16() if False else pa.float32()), pa.float64(), [1.5]),
        (pa.array([np.float16(1.5)]), pa.float32(), [1.5]),
        (pa.array(["a", None], pa.large_string()), pa.string(), ["a", None]),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string(), ["a", None, "a"]),
        (pa.array([b"ab"], pa.large_binary()), pa.binary(2), [b"ab"]),
        (pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"]),
        (pa.array([D("1.20")], pa.decimal128(10, 2)), pa.decimal128(5, 3), [D("1.200")]),
        (pa.array([D("1.20")], pa.decimal256(40, 2)), pa.decimal128(10, 2), [D("1.20")]),
        (pa.array([86_400_000], pa.int64()).cast(pa.date64()), pa.date32(), [datetime.date(1970, 1, 2)]),
        (pa.array([5], pa.int32()).cast(pa.time32("s")), pa.time32("ms"), [datetime.time(0, 0, 5)]),
        (pa.nulls(2), pa.struct([("a", pa.int32())]), [None, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value),
)
def test_what_fits_is_cast(array, kind, values):
    found = one(array, kind)
    assert found.type == kind
    assert found.to_pylist() == values


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_any_zone_keep_their_instant(unit, zone):
    seconds = 1_700_000_000
    array = pa.array([seconds]).cast(pa.timestamp("s")).cast(pa.timestamp(unit)).cast(pa.timestamp(unit, zone))
    for kind in (UTC_US, pa.timestamp("ms", "UTC"), pa.timestamp("us")):
        factor = 1_000 if kind.unit == "ms" else 1_000_000
        assert one(array, kind).cast(pa.int64()).to_pylist() == [seconds * factor]


@pytest.mark.parametrize(
    ("array", "kind", "row"),
    [
        (pa.array([1, 300, 2**31]), pa.int32(), 2),
        (pa.array([0, 2**63], pa.uint64()), pa.int64(), 1),
        (pa.array([1, 2**24 + 1]), pa.float32(), 1),
        (pa.array([1, 2**53 + 1]), pa.float64(), 1),
        (pa.array([1.0, 1.5]), pa.int64(), 1),
        (pa.array([1.0, 1e300, 0.1]), pa.float32(), 1),
        (pa.array([D("1.00"), D("1.25")]), pa.decimal128(10, 1), 1),
        (pa.array([D("1.00"), D("999.25")]), pa.decimal128(4, 2), 1),
        (pa.array([D(1), D(35)]), pa.decimal128(38, 37), 1),
        (pa.array([1, 1_001], pa.int64()).cast(pa.timestamp("ns")), UTC_US, 0),
        (pa.array([0, 86_400_001]).cast(pa.date64()), pa.date32(), 1),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value),
)
def test_what_does_not_fit_is_named_with_its_row(array, kind, row):
    with pytest.raises(SchemaMismatch) as caught:
        one(array, kind)
    said = str(caught.value)
    assert "'c'" in said
    assert str(array.type) in said
    assert str(kind) in said
    assert f"first at row {row}:" in said


def test_rows_are_counted_over_chunks():
    column = pa.chunked_array([pa.array([1, 2]), pa.array([3, 2**40])])
    with pytest.raises(SchemaMismatch, match="row 3: 1099511627776"):
        conform(pa.table({"c": column}), pa.schema([("c", pa.int32())]))


def test_nan_and_infinity_are_numbers():
    found = one(pa.array([float("nan"), float("inf"), float("-inf"), -0.0]), pa.float32()).to_pylist()
    assert found[0] != found[0]
    assert found[1:3] == [float("inf"), float("-inf")]
    assert str(found[3]) == "-0.0"


def test_seconds_beyond_microseconds_are_refused():
    with pytest.raises(SchemaMismatch):
        one(pa.array([10**15]).cast(pa.timestamp("s")), UTC_US)


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array(["1"]), pa.int32()),
        (pa.array([1]), pa.string()),
        (pa.array([True]), pa.int32()),
        (pa.array([1]), pa.bool_()),
        (pa.array(["a"]), pa.binary()),
        (pa.array([b"a"]), pa.string()),
        (pa.array([D("1.0")]), pa.float64()),
        (pa.array([1.0]), pa.decimal128(5, 2)),
        (pa.array([datetime.date(2024, 1, 1)]), UTC_US),
        (pa.array(["2024-01-01"]), pa.date32()),
        (pa.array([1]), UTC_US),
        (pa.array([b"abc"]), pa.binary(2)),
        (pa.array([[1]]), pa.int32()),
        (pa.array([1]), pa.list_(pa.int32())),
        (pa.array([{"a": 1}]), pa.map_(pa.string(), pa.int32())),
    ],
    ids=str,
)
def test_another_kind_of_value_is_refused(array, kind):
    with pytest.raises(SchemaMismatch, match="'c'"):
        one(array, kind)


def test_columns_come_by_name_in_the_order_of_the_schema():
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())], metadata={"k": "v"})
    found = conform(pa.table({"c": [1.0], "a": [7]}), schema)
    assert found.schema.equals(schema, check_metadata=True)
    assert found.to_pylist() == [{"a": 7, "b": None, "c": 1.0}]


def test_unknown_missing_and_repeated_columns_are_refused():
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(SchemaMismatch, match="no column 'x'"):
        conform(pa.table({"a": [1], "x": [1]}), schema)
    with pytest.raises(SchemaMismatch, match="'a' is missing"):
        conform(
            pa.table({"a": [1]}).select([]).append_column("b", pa.array([1])), pa.schema([*schema, ("b", pa.int64())])
        )
    with pytest.raises(SchemaMismatch, match="more than once"):
        conform(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), schema)


def test_nulls_are_refused_where_a_value_is_required():
    required = pa.field("a", pa.int64(), nullable=False)
    with pytest.raises(SchemaMismatch, match="'c' has 1 nulls"):
        conform(pa.table({"c": pa.array([1, None])}), pa.schema([required.with_name("c")]))
    with pytest.raises(SchemaMismatch, match=r"'c\.a' has 1 nulls"):
        one(pa.array([{"a": None}, None, {"a": 1}]), pa.struct([required]))
    with pytest.raises(SchemaMismatch, match=r"'c\.value' has 1 nulls"):
        one(
            pa.array([[("k", None)]], pa.map_(pa.string(), pa.int64())),
            pa.map_(pa.string(), required.with_name("value")),
        )


def test_a_null_struct_needs_no_values_in_required_fields():
    kind = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    assert one(pa.array([None, {"a": 1}], pa.struct([("a", pa.int32())])), kind).to_pylist() == [None, {"a": 1}]


@pytest.mark.parametrize(
    ("array", "path"),
    [
        (pa.array([[1, None]]), "c"),
        (pa.array([[1]] * 3 + [[None]]).slice(3), "c"),
        (pa.array([[[1], [None]]]), "c.element"),
        (pa.array([{"l": [None]}], pa.struct([("l", pa.list_(pa.int64()))])), "c.l"),
        (pa.array([[("k", [None])]], pa.map_(pa.string(), pa.list_(pa.int64()))), "c.value"),
        (pa.array([[{"a": 1}, None]]), "c"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value.type),
)
def test_null_elements_are_refused_unless_asked_for(array, path):
    kind = normalise_schema(pa.schema([("c", array.type)])).field("c").type
    with pytest.raises(SchemaMismatch, match=rf"'{path}' has 1 null elements.*Spark"):
        one(array, kind)
    assert one(array, kind, allow_null_list_elements=True).to_pylist() == array.to_pylist()


def test_null_lists_are_no_null_elements():
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pa.array([None, 5]), mask=pa.array([True, False])
    )
    assert one(hidden, pa.list_(pa.field("element", pa.int64()))).to_pylist() == [None, [5]]


def test_a_column_of_the_right_type_is_not_copied():
    schema = pa.schema([("a", pa.int64()), ("s", pa.string())])
    table = pa.table({"s": ["x", "y"], "a": [1, 2]})
    found = conform(table, schema)
    for name in schema.names:
        mine, theirs = found.column(name).chunk(0).buffers(), table.column(name).chunk(0).buffers()
        assert [b and b.address for b in mine] == [b and b.address for b in theirs]


NESTED = [
    (pa.list_(pa.int8()), [[1, 2], None, [], [3]]),
    (pa.large_list(pa.int8()), [[1, 2], None, [], [3]]),
    (pa.list_view(pa.int8()), [[1, 2], None, [], [3]]),
    (pa.large_list_view(pa.int8()), [[1, 2], None, [], [3]]),
    (pa.list_(pa.int8(), 2), [[1, 2], None, [3, 4], [5, 6]]),
    (pa.map_(pa.string(), pa.int8()), [[("a", 1), ("b", None)], None, [], [("c", 3)]]),
    (
        pa.struct([("x", pa.int8()), ("y", pa.large_string())]),
        [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}, {"x": 2, "y": None}],
    ),
    (
        pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.large_list(pa.uint16())))])),
        [[{"m": [("k", [1, 2])]}], None, [], [{"m": None}, {"m": [("j", [])]}]],
    ),
]


@pytest.mark.parametrize(("kind", "values"), NESTED, ids=[str(kind) for kind, _ in NESTED])
@pytest.mark.parametrize("start", [0, 1, 3])
def test_nested_columns_are_taken_apart_and_put_together(kind, values, start):
    array = pa.array([*values, *values], kind)[start : start + 4]
    target = normalise_schema(pa.schema([("c", kind)]))
    for bring in (conform, reconcile):
        found = bring(pa.table({"c": array}), target)
        found.validate(full=True)
        assert str(found.schema) == str(target)
        assert found.column("c").to_pylist() == array.to_pylist()


def test_what_lies_under_null_maps_does_not_come_back():
    array = pa.MapArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()), pa.array(["a", "b", "c"]), pa.array([1000, 1, 2]), mask=pa.array([True, False])
    )
    found = one(array, pa.map_(pa.string(), pa.int32()))
    found.validate(full=True)
    assert found.to_pylist() == [None, [("c", 2)]]


def test_nested_fields_come_by_name_and_none_gets_lost():
    kind = pa.struct([("a", pa.int64()), ("new", pa.string())])
    assert one(pa.array([{"a": 1}]), kind).to_pylist() == [{"a": 1, "new": None}]
    with pytest.raises(SchemaMismatch, match="no field 'x'"):
        one(pa.array([{"a": 1, "x": 2}]), kind)
    with pytest.raises(SchemaMismatch, match=r"'c\.a' is missing"):
        one(pa.array([{"new": "n"}]), pa.struct([pa.field("a", pa.int64(), nullable=False), ("new", pa.string())]))


# ---------------------------------------------------------------------------------------------------------- reconcile


@pytest.mark.parametrize(
    ("array", "kind", "values"),
    [
        (pa.array([1], pa.int32()), pa.int64(), [1]),
        (pa.array([2**53 + 1]), pa.float64(), [2.0**53]),
        (pa.array([2**24 + 1]), pa.float32(), [2.0**24]),
        (pa.array([1.5], pa.float32()), pa.float64(), [1.5]),
        (pa.array([1, None]), pa.string(), ["1", None]),
        (pa.array([1.0]), pa.string(), ["1.0"]),
        (pa.array([True]), pa.string(), ["true"]),
        (pa.array([D("1.20")]), pa.string(), ["1.20"]),
        (pa.array([datetime.date(2024, 1, 2)]), pa.string(), ["2024-01-02"]),
        (pa.array([D("1.20")]), pa.decimal128(38, 2), [D("1.20")]),
        (pa.array(["é"]), pa.binary(), ["é".encode()]),
        (pa.array(["é".encode()]), pa.string(), ["é"]),
        (
            pa.array([1], pa.int64()),
            pa.timestamp("us", "UTC"),
            [datetime.datetime(1970, 1, 1, microsecond=1, tzinfo=datetime.UTC)],
        ),
        (pa.array([1], pa.int32()), pa.date32(), [datetime.date(1970, 1, 2)]),
        (pa.array([7]).cast(pa.timestamp("us")), pa.int64(), [7]),
        (
            pa.array([1_999]).cast(pa.timestamp("ns")),
            UTC_US,
            [datetime.datetime(1970, 1, 1, microsecond=1, tzinfo=datetime.UTC)],
        ),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value),
)
def test_an_old_file_is_read_as_the_schema_says_today(array, kind, values):
    assert reconcile(pa.table({"c": array}), pa.schema([("c", kind)])).column("c").to_pylist() == values


def test_missing_columns_are_null_and_unknown_ones_go():
    old = pa.table({"s": [{"a": 1, "gone": 2}], "gone": [3]})
    schema = pa.schema([("s", pa.struct([("new", pa.string()), ("a", pa.int64())])), ("added", pa.list_(pa.int32()))])
    assert reconcile(old, schema).to_pylist() == [{"s": {"new": None, "a": 1}, "added": None}]


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array(["x"]), pa.int32()),
        (pa.array([2**40]), pa.int32()),
        (pa.array([b"\xff"]), pa.string()),
        (pa.array([{"a": 1}]), pa.int32()),
        (pa.array([[1]]), pa.string()),
        (pa.array([1.5]), pa.decimal128(5, 2)),
        (pa.array([0.1]), pa.float32()),
    ],
    ids=str,
)
def test_a_file_that_cannot_be_what_the_schema_says_is_corrupt(array, kind):
    with pytest.raises(CorruptFile, match="'c'"):
        reconcile(pa.table({"c": array}), pa.schema([("c", kind)]))


def test_a_required_column_that_a_file_lacks_is_corrupt():
    with pytest.raises(CorruptFile, match="'c' is missing"):
        reconcile(pa.table({"a": [1]}), pa.schema([pa.field("c", pa.int32(), nullable=False)]))


def test_an_empty_file_lacks_nothing():
    required = pa.schema([pa.field("c", pa.int32(), nullable=False)])
    assert reconcile(pa.table({"a": pa.array([], pa.int32())}), required).num_rows == 0
