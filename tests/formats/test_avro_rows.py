"""Rows as Avro records: random schemas and rows against fastavro, which nobody here wrote, and the way back."""

from __future__ import annotations

import datetime
import io
import itertools
import json
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats.avro.columnar import codec
from lakefmt._core.formats.avro.columnar.codec import decode_rows, encode_rows
from lakefmt._core.formats.avro.columnar.plan import nullable_type
from lakefmt._core.schema import avro_to_arrow
from lakefmt.errors import InvalidInputError, SchemaMismatch

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1)
#: Numbers around which the length of an Avro number changes.
EDGES = [sign * ((1 << 7 * size - 1) + off) for size in range(1, 10) for sign in (1, -1) for off in (-1, 0, 1)]
LETTERS = "abcxyz019 _-ßéжш日本😀"


def text(rng: random.Random) -> str:
    lengths = rng.choice([(0, 3), (0, 12), (8, 8), (30, 70), (60, 130), (0, 700)])
    return "".join(rng.choices(LETTERS if rng.random() < 0.3 else "abcdef", k=rng.randint(*lengths)))


def whole(bits: int) -> Callable[[random.Random], int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    near = [edge for edge in [*EDGES, low, high, 0] if low <= edge <= high]

    def draw(rng: random.Random) -> int:
        return rng.choice(near) if rng.random() < 0.3 else rng.randint(low, high) >> rng.randint(0, bits)

    return draw


def number(precision: int, scale: int) -> Callable[[random.Random], Decimal]:
    def draw(rng: random.Random) -> Decimal:
        unscaled = rng.randint(-(10**precision) + 1, 10**precision - 1) // 10 ** rng.randint(0, precision)
        # fastavro takes a byte more than needed for -128, -32768 …; Java does not. Tested by hand below.
        if unscaled < 0 and (unscaled & -unscaled) == -unscaled:
            unscaled += 1
        return Decimal(unscaled).scaleb(-scale) if abs(unscaled) else Decimal(0).scaleb(-scale)

    return draw


def whole_millis(rng: random.Random) -> datetime.datetime:
    return EPOCH + datetime.timedelta(milliseconds=rng.randint(-(10**12), 4 * 10**12))


def whole_micros(rng: random.Random) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=rng.randint(-(10**15), 4 * 10**15))


def clock(rng: random.Random, step: int) -> datetime.time:
    found = EPOCH + datetime.timedelta(microseconds=rng.randrange(0, 86_400_000_000, step))
    return found.time()


Draw = Callable[[random.Random], Any]
Made = tuple[Any, Draw]

PLAIN: list[Made] = [
    ("boolean", lambda rng: rng.random() < 0.5),
    ("int", whole(32)),
    ("long", whole(64)),
    ("float", lambda rng: float(np.float32(rng.uniform(-1e6, 1e6)))),
    ("double", lambda rng: rng.uniform(-1e300, 1e300)),
    ("string", text),
    ("bytes", lambda rng: rng.randbytes(rng.choice([0, 1, 5, 8, 40, 64, 90, 200]))),
    ({"type": "int", "logicalType": "date"}, lambda rng: whole_millis(rng).date()),
    ({"type": "int", "logicalType": "time-millis"}, lambda rng: clock(rng, 1000)),
    ({"type": "long", "logicalType": "time-micros"}, lambda rng: clock(rng, 1)),
    ({"type": "long", "logicalType": "timestamp-millis"}, lambda rng: whole_millis(rng).replace(tzinfo=UTC)),
    ({"type": "long", "logicalType": "timestamp-micros"}, lambda rng: whole_micros(rng).replace(tzinfo=UTC)),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, whole_millis),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, whole_micros),
    ({"type": "string", "logicalType": "uuid"}, lambda rng: f"{rng.getrandbits(128):032x}"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 6}, number(30, 6)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 0}, number(5, 0)),
]


NAMED: list[Made] = [
    ({"type": "fixed", "size": 5}, lambda rng: rng.randbytes(5)),
    ({"type": "enum", "symbols": ["RED", "GREEN"]}, lambda rng: rng.choice(["RED", "GREEN"])),
    ({"type": "fixed", "size": 5, "logicalType": "decimal", "precision": 10, "scale": 2}, number(10, 2)),
    ({"type": "fixed", "size": 20, "logicalType": "decimal", "precision": 38, "scale": 9}, number(38, 9)),
]


@st.composite
def kinds(draw: st.DrawFn, depth: int = 0) -> Made:
    """An Avro type and what draws a value of it."""
    choice = draw(st.integers(0, 9)) if depth < 3 else 0
    if choice < 6:
        return draw(st.sampled_from([*PLAIN, *NAMED]))
    if choice == 6:
        avro, inner = draw(optional(depth + 1))
        return {"type": "array", "items": avro}, lambda rng: [inner(rng) for _ in range(rng.choice([0, 1, 2, 5]))]
    if choice == 7:
        avro, inner = draw(optional(depth + 1))
        return {"type": "map", "values": avro}, lambda rng: {text(rng): inner(rng) for _ in range(rng.randint(0, 3))}
    return draw(records(depth + 1))


@st.composite
def optional(draw: st.DrawFn, depth: int = 0) -> Made:
    """A type alone, or in a union with null in either order."""
    avro, inner = draw(kinds(depth))
    order = draw(st.integers(0, 3))
    if order == 0:
        return avro, inner
    share = draw(st.sampled_from([0.0, 0.3, 1.0]))
    return (
        [avro, "null"] if order == 1 else ["null", avro],
        lambda rng: None if rng.random() < share else inner(rng),
    )


@st.composite
def records(draw: st.DrawFn, depth: int = 0) -> Made:
    parts = draw(st.lists(optional(depth), min_size=1, max_size=5 if depth else 7))
    fields = [{"name": f"c{n}", "type": avro} for n, (avro, _) in enumerate(parts)]
    made = {"type": "record", "fields": fields}
    return made, lambda rng: {f"c{n}": inner(rng) for n, (_, inner) in enumerate(parts)}


def schema_text(avro: Any) -> str:
    """Return a schema as text, every named type with a name of its own."""
    numbers = itertools.count()

    def with_names(node: Any) -> Any:
        if isinstance(node, list):
            return [with_names(each) for each in node]
        if not isinstance(node, dict):
            return node
        name = {"name": f"n{next(numbers)}"} if node.get("type") in ("record", "enum", "fixed") else {}
        return {**name, **{key: with_names(each) for key, each in node.items()}}

    return json.dumps(with_names(avro))


def for_arrow(value: Any, kind: pa.DataType) -> Any:
    """Return a value as pyarrow takes it: maps are lists of pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(key, for_arrow(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_list(kind):
        return [for_arrow(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {each.name: for_arrow(value[each.name], each.type) for each in kind}
    return value


def to_table(rows: list[dict[str, Any]], schema: str) -> pa.Table:
    shape = pa.schema([field.remove_metadata() for field in avro_to_arrow(schema)])
    columns = []
    for field in shape:
        values = [for_arrow(row[field.name], field.type) for row in rows]
        columns.append(pa.array(values, nullable_type(field.type)))
    return pa.table(columns, names=shape.names)


def by_fastavro(rows: list[dict[str, Any]], schema: str) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(schema))
    made = []
    for row in rows:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, parsed, row)
        made.append(sink.getvalue())
    return made


def split(data: pa.Buffer, offsets: np.ndarray) -> list[bytes]:
    raw = data.to_pybytes()
    return [raw[low:high] for low, high in itertools.pairwise(offsets)]


def joined(data: list[bytes], gap: bytes = b"") -> tuple[bytes, np.ndarray, np.ndarray]:
    """Return records one behind the other with `gap` before each, and where they begin and end."""
    ends = np.cumsum([len(one) + len(gap) for one in data], dtype=np.int64)
    return gap + gap.join(data), ends - [len(one) for one in data], ends


def plain(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist()


@given(records(), st.integers(0, 2**32), st.sampled_from([0, 1, 3, 40]))
def test_any_rows_are_the_bytes_of_fastavro_and_come_back(record, seed, count):
    avro, draw = record
    schema, rng = schema_text(avro), random.Random(seed)
    rows = [draw(rng) for _ in range(count)]
    table = to_table(rows, schema)
    data, offsets = encode_rows(table, schema)
    expected = by_fastavro(rows, schema)
    assert split(data, offsets) == expected
    raw, starts, ends = joined(expected, b"gap!")
    back = decode_rows(raw, starts, ends, schema)
    back.validate(full=True)
    assert plain(back) == plain(table)
    assert back.schema.names == table.schema.names


@given(records(), st.integers(0, 2**32), st.data())
def test_blocks_slices_and_chunks_change_nothing(record, seed, data):
    avro, draw = record
    schema, rng = schema_text(avro), random.Random(seed)
    rows = [draw(rng) for _ in range(30)]
    cuts = sorted({0, 30, *data.draw(st.lists(st.integers(0, 30), max_size=4))})
    whole_table = to_table(rows, schema)
    table = pa.concat_tables([whole_table.slice(low, high - low) for low, high in itertools.pairwise(cuts)])
    expected = by_fastavro(rows, schema)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "BLOCK_ROWS", data.draw(st.integers(1, 31)))
        patch.setattr(codec, "ENCODED_ROWS", data.draw(st.integers(1, 31)))
        patch.setattr(codec, "_LEAST_CHUNK", 1)
        patch.setattr(codec, "BLOCK_BYTES", data.draw(st.sampled_from([1, 1000, 1 << 24])))
        assert split(*encode_rows(table, schema)) == expected
        part = table.slice(7, 11)
        assert split(*encode_rows(part, schema)) == expected[7:18]
        assert split(*encode_rows(part.combine_chunks().to_batches()[0], schema)) == expected[7:18]
        back = decode_rows(*joined(expected), schema)
    assert plain(back) == plain(whole_table)


@given(records(), st.integers(0, 2**32), st.data())
def test_some_columns_are_those_of_all(record, seed, data):
    avro, draw = record
    schema, rng = schema_text(avro), random.Random(seed)
    rows = [draw(rng) for _ in range(20)]
    table = to_table(rows, schema)
    wanted = data.draw(st.lists(st.sampled_from(table.column_names), min_size=1, unique=True))
    back = decode_rows(*joined(by_fastavro(rows, schema)), schema, wanted)
    assert plain(back) == plain(table.select(wanted))


@given(records(), st.integers(0, 2**32))
def test_framed_records_are_preceded_by_their_lengths(record, seed):
    avro, draw = record
    schema, rng = schema_text(avro), random.Random(seed)
    rows = [draw(rng) for _ in range(9)]
    data, offsets = encode_rows(to_table(rows, schema), schema, framed=True)
    expected = [len(one).to_bytes(4, "big") + one for one in by_fastavro(rows, schema)]
    assert split(data, offsets) == expected


@given(records(), st.integers(0, 2**32), st.sampled_from([3, 20, 70]), st.integers(1, 31))
def test_what_is_stored_beyond_short_values_is_written_over(record, seed, size, rows_of_block):
    """Records begin with a value of one size, as those of tables do: then values are stored as wide as the longest."""
    avro, draw = record
    head = {"name": "head", "type": {"type": "fixed", "size": size}}
    avro = {"type": "record", "fields": [head, *avro["fields"]]}
    schema, rng = schema_text(avro), random.Random(seed)
    rows = [{"head": rng.randbytes(size), **draw(rng)} for _ in range(31)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "ENCODED_ROWS", rows_of_block)
        data, offsets = encode_rows(to_table(rows, schema), schema, framed=True)
    assert split(data, offsets) == [len(one).to_bytes(4, "big") + one for one in by_fastavro(rows, schema)]


# ------------------------------------------------------------------------------------------------------ lists by hand


def one_field(avro: Any) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": avro}]})


LISTS = {
    "of text": ("string", lambda n: [f"{i}" * (i % 5) for i in range(n)]),
    "of nullable numbers": (["null", "long"], lambda n: [None if i % 3 else i << (i % 50) for i in range(n)]),
    "of doubles": ("double", lambda n: [float(i) for i in range(n)]),
    "of lists": ({"type": "array", "items": "string"}, lambda n: [["a"] * (i % 3) for i in range(n)]),
    "of records": (
        {"type": "record", "name": "s", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}]},
        lambda n: [{"a": i, "b": str(i)} for i in range(n)],
    ),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("lengths", [[0], [500], [3, 0, 200, 70, 1], [64, 65, 63] * 3, [1000, 2] * 2 + [0]])
def test_long_lists_of_few_rows(name, lengths):
    avro, make = LISTS[name]
    schema = one_field({"type": "array", "items": avro})
    rows = [{"c": make(length)} for length in lengths]
    table = to_table(rows, schema)
    expected = by_fastavro(rows, schema)
    assert split(*encode_rows(table, schema)) == expected
    assert plain(decode_rows(*joined(expected), schema)) == plain(table)


def test_lists_in_several_blocks_are_read():
    """Java's blocking encoder writes counts below zero with the block's size behind them."""
    schema = one_field({"type": "array", "items": ["null", "string"]})
    several = bytes.fromhex("04 020261 00 03 0c 020262 020263 00")
    table = decode_rows(several * 3, np.arange(3) * 14, np.arange(1, 4) * 14, schema)
    assert table["c"].to_pylist() == [["a", None, "b", "c"]] * 3
    even = bytes.fromhex("02") + bytes(8) + bytes.fromhex("01 10") + bytes(8) + bytes.fromhex("02") + bytes(8) + b"\0"
    table = decode_rows(even, np.array([0]), np.array([len(even)]), one_field({"type": "array", "items": "double"}))
    assert table["c"].to_pylist() == [[0.0, 0.0, 0.0]]


# -------------------------------------------------------------------------------------------------------- unit tables


@pytest.mark.parametrize(
    ("unscaled", "stored"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "0080"),
        (-128, "80"),
        (-129, "ff7f"),
        (32767, "7fff"),
        (-32768, "8000"),
        ((1 << 63) - 1, "7fffffffffffffff"),
        (1 << 63, "008000000000000000"),
        (-(1 << 63), "8000000000000000"),
        (-(1 << 63) - 1, "ff7fffffffffffffff"),
        ((1 << 64) - 1, "00ffffffffffffffff"),
        (10**38 - 1, "4b3b4ca85a86c47a098a223fffffffff"),
        (-(10**37), "f87a4304ca96f6e4cf6c64fa00000000"),
    ],
)
def test_decimals_over_bytes_are_as_short_as_javas(unscaled, stored):
    """As ``BigInteger.toByteArray`` makes them."""
    schema = one_field({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0})
    column = pa.array([Decimal(unscaled), Decimal(1)], pa.decimal128(38, 0))
    data, offsets = encode_rows(pa.table({"c": column}), schema)
    if unscaled != -(10**37):
        assert split(data, offsets)[0][1:].hex() == stored
    assert int.from_bytes(split(data, offsets)[0][1:], "big", signed=True) == unscaled
    assert decode_rows(data, offsets[:-1], offsets[1:], schema)["c"].to_pylist() == [Decimal(unscaled), Decimal(1)]


def test_types_of_the_same_values_are_taken():
    schema = json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "a", "type": ["null", "string"]},
                {"name": "b", "type": ["null", "long"]},
                {"name": "c", "type": {"type": "array", "items": ["null", "int"]}},
            ],
        }
    )
    table = pa.table(
        {
            "b": pa.array([1, None], pa.int16()),
            "a": pa.array(["x", None]).dictionary_encode(),
            "c": pa.array([[1], [None, 2]], pa.large_list(pa.int32())),
        }
    )
    data, offsets = encode_rows(table, schema)
    rows = decode_rows(data, offsets[:-1], offsets[1:], schema).to_pylist()
    assert rows == [{"a": "x", "b": 1, "c": [1]}, {"a": None, "b": None, "c": [None, 2]}]


@pytest.mark.parametrize(
    ("table", "avro", "said"),
    [
        (pa.table({"c": [1, None]}), "long", "'c' has 1 nulls"),
        (pa.table({"d": [1]}), "long", "differ: c, d"),
        (pa.table({"c": ["x"]}), "long", "'c' has type string"),
        (pa.table({"c": [1 << 40]}), "int", "'c' has type int64"),
        (pa.table({"c": ["BLUE"]}), {"type": "enum", "name": "e", "symbols": ["RED"]}, "none of the symbols RED"),
        (pa.table({"c": [[None]]}), {"type": "array", "items": "long"}, "'c.element' has 1 nulls"),
        (pa.table([pa.array([1]), pa.array([1])], names=["c", "c"]), "long", "differ: c"),
    ],
)
def test_what_does_not_fit_the_schema_is_named(table, avro, said):
    with pytest.raises(SchemaMismatch, match=said):
        encode_rows(table, one_field(avro))


@pytest.mark.parametrize("columns", [["d"], ["c", "c"], []])
def test_columns_that_cannot_be_had_are_refused(columns):
    with pytest.raises(InvalidInputError, match="columns"):
        decode_rows(b"\0", np.array([0]), np.array([1]), one_field("long"), columns)


def test_no_rows_are_no_bytes():
    schema = one_field(["null", {"type": "array", "items": "string"}])
    data, offsets = encode_rows(to_table([], schema), schema)
    assert (data.size, offsets.tolist()) == (0, [0])
    empty = decode_rows(data, offsets[:-1], offsets[1:], schema)
    assert (empty.num_rows, empty.column_names) == (0, ["c"])
