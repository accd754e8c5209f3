"""Laws over random schemas and data: what is written is read back, and casting never loses a value silently."""

from __future__ import annotations

import datetime
import decimal
import json

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.schema import (
    arrow_to_avro,
    avro_to_arrow,
    conform,
    evolve,
    normalise_schema,
    reconcile,
    with_meta_columns,
)
from lakefmt.errors import CorruptFile, SchemaMismatch, UnsupportedFeature

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
PLAIN = st.sampled_from(
    [
        pa.bool_(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.binary(5),
        pa.date32(),
        pa.time32("ms"),
        pa.time64("us"),
        pa.timestamp("ms", "UTC"),
        pa.timestamp("us", "UTC"),
    ]
)


def one_field(names, kinds):
    return st.builds(
        lambda name, kind, null: pa.field(name, kind, null or pa.types.is_null(kind)), names, kinds, st.booleans()
    )


def fields(kinds, names=NAMES):
    return st.lists(one_field(names, kinds), min_size=1, max_size=4, unique_by=lambda field: field.name)


def nested(kinds):
    element = one_field(st.just("element"), kinds)
    value = one_field(st.just("value"), kinds)
    return st.one_of(
        element.map(pa.list_), value.map(lambda field: pa.map_(pa.string(), field)), fields(kinds).map(pa.struct)
    )


KINDS = st.recursive(st.one_of(PLAIN, DECIMALS), nested, max_leaves=6)
SCHEMAS = fields(KINDS).map(pa.schema)
ARBITRARY = st.sampled_from(
    [
        pa.int8(),
        pa.uint16(),
        pa.uint64(),
        pa.float16(),
        pa.large_string(),
        pa.date64(),
        pa.timestamp("ns"),
        pa.timestamp("s", "Asia/Tokyo"),
        pa.time32("s"),
        pa.dictionary(pa.int8(), pa.string()),
        pa.null(),
    ]
)


@given(SCHEMAS, st.text(min_size=1, max_size=8), st.booleans())
def test_what_is_written_is_read_back(schema, table, with_meta):
    text = arrow_to_avro(schema, table, with_meta)
    assert avro_to_arrow(text).equals(with_meta_columns(schema) if with_meta else schema)
    # Another parser agrees that names are legal and nothing is defined twice.
    fastavro.parse_schema(json.loads(text))


@given(SCHEMAS)
def test_a_stored_schema_is_normal_already(schema):
    assert normalise_schema(schema) == schema


@given(fields(st.recursive(st.one_of(PLAIN, ARBITRARY), nested, max_leaves=4)).map(pa.schema))
def test_normalising_twice_changes_nothing_more(schema):
    once = normalise_schema(schema)
    assert normalise_schema(once) == once
    assert avro_to_arrow(arrow_to_avro(once, "t")) == once


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=6),
        lambda s: (
            st.lists(s, max_size=3)
            | st.dictionaries(
                st.sampled_from(["type", "name", "fields", "items", "values", "size", "logicalType", "namespace"]),
                s | st.sampled_from(["record", "array", "map", "int", "fixed", "enum", "decimal"]),
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_strange_values_are_refused_by_name(value):
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": value}]})
    try:
        schema = avro_to_arrow(text)
    except (CorruptFile, UnsupportedFeature):
        return
    assert schema.names == ["c"]


# -------------------------------------------------------------------------------------------------------------- values


FEW_KINDS = st.recursive(
    st.sampled_from([pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.decimal128(5, 2)]),
    lambda kinds: st.one_of(
        one_field(st.just("element"), kinds).map(pa.list_), fields(kinds, st.sampled_from("xy")).map(pa.struct)
    ),
    max_leaves=3,
)
FEW = fields(FEW_KINDS, st.sampled_from("abc")).map(pa.schema)


@given(FEW, FEW)
def test_evolving_keeps_the_old_and_settles(table, incoming):
    try:
        found = evolve(table, incoming, partial=True)
    except SchemaMismatch:
        return
    assert found.names[: len(table.names)] == table.names
    assert set(found.names) == {*table.names, *incoming.names}
    # The same data change nothing a second time, and readers can follow with files of before.
    assert evolve(found, incoming, partial=True) == found
    assert evolve(found, incoming, mode="strict", partial=True) == found
    before = pa.table({field.name: pa.nulls(1, field.type) for field in table})
    after = pa.schema([field.with_nullable(True) for field in found])
    assert reconcile(before, after).schema == after


INTS = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.one_of(
    st.tuples(st.sampled_from([pa.int8(), pa.int16(), pa.int32(), pa.int64()]), st.just(INTS)),
    st.tuples(st.sampled_from([pa.uint8(), pa.uint32(), pa.uint64()]), st.just(st.integers(0, 2**64 - 1))),
    st.tuples(st.sampled_from([pa.float32(), pa.float64()]), st.just(st.floats(width=32))),
    st.tuples(st.just(pa.decimal128(20, 5)), st.just(st.decimals(-(10**14), 10**14, places=5))),
    st.tuples(
        st.sampled_from([pa.timestamp("ns"), pa.timestamp("s", "UTC"), pa.timestamp("us", "Asia/Tokyo")]),
        st.just(st.integers(-(10**10), 10**11)),
    ),
)


@given(st.data())
def test_a_value_that_is_cast_is_the_same_value(data):
    kind, values = data.draw(NUMBERS)
    target = data.draw(st.one_of(PLAIN, DECIMALS))
    try:
        array = pa.array([data.draw(values), None], kind)
    except (pa.ArrowInvalid, OverflowError):
        return
    try:
        found = conform(pa.table({"c": array}), pa.schema([("c", target)])).column("c")
    except SchemaMismatch:
        return
    assert found.type == target
    assert found[1].as_py() is None
    before, after = array[0].as_py(), found[0].as_py()
    if isinstance(before, datetime.datetime | int) and not isinstance(after, type(before)):
        assert isinstance(after, float | decimal.Decimal)
        before = type(after)(before)
    if hasattr(before, "nanosecond"):
        before = before.to_pydatetime(warn=False)
    if isinstance(before, datetime.datetime):
        before = before.replace(tzinfo=before.tzinfo or datetime.UTC)
    assert after == before or (after != after and before != before)


@given(SCHEMAS)
def test_empty_and_null_tables_have_every_schema(schema):
    assert conform(schema.empty_table(), schema).schema == schema
    optional = pa.schema([field.with_nullable(True) for field in schema])
    nulls = pa.table({field.name: pa.nulls(3) for field in optional})
    for bring in (conform, reconcile):
        found = bring(nulls, optional)
        assert found.schema == optional
        assert all(column.null_count == 3 for column in found.columns)
