"""Delete blocks: every type of ordering value against fastavro, Kryo's bytes, and damage."""

from __future__ import annotations

import datetime
import io
import json
import struct
from decimal import Decimal
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.formats.avro.values import encode_long
from lakefmt._core.formats.log_blocks import BlockKind, HeaderKey, LogBlockReader, WholeBlock
from lakefmt._core.formats.log_data_block import BlockHeader
from lakefmt._core.formats.log_delete_block import (
    DeleteRecords,
    decode_delete_content,
    delete_records,
    encode_delete_block,
    record_starts,
)
from lakefmt.errors import CorruptFile, InvalidInputError, SchemaMismatch, UnsupportedFeature
from tests.example_counts import examples

KRYO = json.loads((Path(__file__).parents[1] / "data/formats/log/java.json").read_text("utf-8"))["kryo"]
HEADER = BlockHeader("20240101000000000")
UTC = datetime.UTC

#: The schema of Hudi's `HoodieDeleteRecordList`, written down for fastavro.
WRAPPERS = [
    ("BooleanWrapper", "boolean"),
    ("IntWrapper", "int"),
    ("LongWrapper", "long"),
    ("FloatWrapper", "float"),
    ("DoubleWrapper", "double"),
    ("BytesWrapper", "bytes"),
    ("StringWrapper", "string"),
    ("DateWrapper", "int"),
    ("DecimalWrapper", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}),
    ("TimeMicrosWrapper", "long"),
    ("TimestampMicrosWrapper", "long"),
]


def wrapper(name: str, kind: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": [{"name": "value", "type": kind}]}


UNION = ["null", *(wrapper(name, kind) for name, kind in WRAPPERS)]
#: As in the classes of Hudi 1.2.0: the array itself may be null, and inside it there is one type more.
INSIDE = ["null", *(name for name, _ in WRAPPERS), wrapper("LocalDateWrapper", "int")]
SEVERAL = {
    "type": "record",
    "name": "ArrayWrapper",
    "fields": [{"name": "wrappedValues", "type": ["null", {"type": "array", "items": INSIDE}]}],
}
RECORD = {
    "type": "record",
    "name": "HoodieDeleteRecord",
    "fields": [
        {"name": "recordKey", "type": ["null", "string"]},
        {"name": "partitionPath", "type": ["null", "string"]},
        {"name": "orderingVal", "type": [*UNION, SEVERAL]},
    ],
}
LIST = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieDeleteRecordList",
        "fields": [{"name": "deleteRecordList", "type": {"type": "array", "items": RECORD}}],
    }
)


def by_fastavro(rows: list[tuple[str, str, object]]) -> bytes:
    """Return a content made from (key, partition, ordering value as fastavro takes it)."""
    sink = io.BytesIO()
    listed = [{"recordKey": key, "partitionPath": path, "orderingVal": value} for key, path, value in rows]
    fastavro.schemaless_writer(sink, LIST, {"deleteRecordList": listed})
    return struct.pack(">ii", 3, len(sink.getvalue())) + sink.getvalue()


def content_of(block: bytes) -> bytes:
    reader = LogBlockReader("a.log")
    reader.feed(block)
    (found,) = reader.finish()
    assert isinstance(found, WholeBlock)
    assert found.kind is BlockKind.DELETE
    return found.content


ALWAYS = ("IntWrapper", {"value": 0})
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
MICROS = datetime.timedelta(microseconds=1)
KINDS = {
    "boolean": (pa.bool_(), st.booleans(), lambda v: ("BooleanWrapper", {"value": v})),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1), lambda v: ("IntWrapper", {"value": v})),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1), lambda v: ("LongWrapper", {"value": v})),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False), lambda v: ("FloatWrapper", {"value": v})),
    "double": (pa.float64(), st.floats(allow_nan=False), lambda v: ("DoubleWrapper", {"value": v})),
    "bytes": (pa.binary(), st.binary(max_size=9), lambda v: ("BytesWrapper", {"value": v})),
    "string": (pa.string(), st.text(max_size=70), lambda v: ("StringWrapper", {"value": v})),
    "date": (
        pa.date32(),
        st.dates(),
        lambda v: ("DateWrapper", {"value": (v - datetime.date(1970, 1, 1)).days}),
    ),
    "decimal": (
        pa.decimal128(30, 15),
        st.integers(1, 10**12).map(lambda n: Decimal(n).scaleb(-2)),
        lambda v: ("DecimalWrapper", {"value": v.quantize(Decimal("1e-15"))}),
    ),
    "timestamp-micros": (
        pa.timestamp("us", "UTC"),
        st.datetimes(timezones=st.just(UTC)),
        lambda v: ("TimestampMicrosWrapper", {"value": (v - EPOCH) // MICROS}),
    ),
    "time-micros": (
        pa.time64("us"),
        st.times(),
        lambda v: (
            "TimeMicrosWrapper",
            {"value": ((v.hour * 60 + v.minute) * 60 + v.second) * 1_000_000 + v.microsecond},
        ),
    ),
}
ROWS = st.lists(st.tuples(st.text(max_size=40), st.sampled_from(["", "day=1", "a/b"])), max_size=12)


@settings(max_examples=examples(15))
@given(ROWS, st.data())
@pytest.mark.parametrize("name", KINDS)
def test_the_bytes_are_those_of_fastavro_and_come_back(name, rows, data):
    kind, values, wrapped = KINDS[name]
    drawn = data.draw(st.lists(st.none() | values, min_size=len(rows), max_size=len(rows)))
    keys, partitions = (
        pa.array([key for key, _ in rows], pa.string()),
        pa.array([path for _, path in rows], pa.string()),
    )
    records = delete_records(keys, partitions, pa.array(drawn, kind))
    expected = by_fastavro(
        [
            (key, path, ALWAYS if value is None else wrapped(value))
            for (key, path), value in zip(rows, drawn, strict=True)
        ]
    )
    assert content_of(encode_delete_block(records, HEADER)) == expected
    found = decode_delete_content(expected, what="a.log")
    assert (found.keys.to_pylist(), found.partitions.to_pylist()) == (keys.to_pylist(), partitions.to_pylist())
    # The int 0 stands for no value.
    assert found.ordering(kind).to_pylist() == [None if name == "int" and value == 0 else value for value in drawn]
    assert content_of(encode_delete_block(found, HEADER)) == expected


@given(st.lists(st.none() | st.integers(-9, 9) | st.text(max_size=3) | st.booleans(), min_size=1, max_size=12))
def test_values_of_several_types_in_one_block(values):
    def wrapped(value):
        if value is None:
            return None
        name = {bool: "BooleanWrapper", int: "LongWrapper", str: "StringWrapper"}[type(value)]
        return name, {"value": value}

    content = by_fastavro([(f"k{n}", "", wrapped(value)) for n, value in enumerate(values)])
    found = decode_delete_content(content, what="a.log")
    (ordering,) = found.orderings or ({},)
    assert set(ordering) <= {"boolean", "long", "string"}
    rows = [
        next((column[n].as_py() for column in ordering.values() if column[n].is_valid), None)
        for n in range(len(values))
    ]
    assert rows == values
    # Every other type than the column's deletes whatever is stored.
    assert found.ordering(pa.int64()).to_pylist() == [v if type(v) is int else None for v in values]
    again = decode_delete_content(content_of(encode_delete_block(found, HEADER)), what="a.log")
    assert again.ordering(pa.string()).equals(found.ordering(pa.string()))


def test_several_ordering_fields_go_as_an_array():
    keys, partitions = pa.array(["a", "b", "c"]), pa.array(["", "", "p"])
    records = delete_records(keys, partitions, pa.array([1, None, None]), pa.array(["x", "y", None]))

    def several(*values):
        return "ArrayWrapper", {"wrappedValues": list(values)}

    expected = by_fastavro(
        [
            ("a", "", several(("LongWrapper", {"value": 1}), ("StringWrapper", {"value": "x"}))),
            ("b", "", several(ALWAYS, ("StringWrapper", {"value": "y"}))),
            ("c", "p", ALWAYS),
        ]
    )
    assert content_of(encode_delete_block(records, HEADER)) == expected
    found = decode_delete_content(expected, what="a.log")
    assert found.ordering(pa.int64(), 0).to_pylist() == [1, None, None]
    assert found.ordering(pa.string(), 1).to_pylist() == ["x", "y", None]
    assert found.ordering(pa.string(), 2).to_pylist() == [None, None, None]


def test_dates_inside_an_array_are_read_in_either_wrapper():
    def several(*values):
        return "ArrayWrapper", {"wrappedValues": list(values)}

    rows = [
        ("a", "", several(("LocalDateWrapper", {"value": 3}), ("LongWrapper", {"value": 1}))),
        ("b", "", several(("DateWrapper", {"value": 4}), ("LongWrapper", {"value": 2}))),
        ("c", "", several()),
    ]
    content = by_fastavro(rows)
    found = decode_delete_content(content, what="a.log")
    days = [datetime.date(1970, 1, 4), datetime.date(1970, 1, 5), None]
    assert found.ordering(pa.date32(), 0).to_pylist() == days
    assert found.ordering(pa.int64(), 1).to_pylist() == [1, 2, None]
    assert content_of(encode_delete_block(found, HEADER)) == by_fastavro([*rows[:2], ("c", "", ALWAYS)])


def test_null_is_never_written():
    for values in ((), (pa.array([None, None], pa.int64()),), (pa.array([None, 2.5]),)):
        content = content_of(
            encode_delete_block(delete_records(pa.array(["a", "b"]), pa.array(["", ""]), *values), HEADER)
        )
        found = decode_delete_content(content, what="a.log")
        first = [column[0].as_py() for column in found.orderings[0].values()]
        assert 0 in first
        assert found.ordering(pa.float64())[0].as_py() is None


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (pa.array([1], pa.int8()), "int"),
        (pa.array([1], pa.uint32()), "long"),
        (pa.array(["x"], pa.large_string()), "string"),
        (pa.array([Decimal("1.5")], pa.decimal128(4, 1)), "decimal"),
        (pa.array([5], pa.timestamp("ms")), "timestamp-micros"),
        (pa.chunked_array([["x"], []]), "string"),
    ],
)
def test_near_types_are_taken(values, name):
    records = delete_records(pa.array(["a"]), pa.array([""]), values)
    assert list(records.orderings[0]) == [name]
    found = decode_delete_content(content_of(encode_delete_block(records, HEADER)), what="a.log")
    assert found.orderings[0][name].equals(records.orderings[0][name])


@pytest.mark.parametrize("values", [pa.array([[1]]), pa.array([1, 2]), pa.array([2**40], pa.uint64())])
def test_what_is_no_ordering_value_is_refused(values):
    with pytest.raises(SchemaMismatch):
        delete_records(pa.array(["a"]), pa.array([""]), values)


def test_positions_and_schema_are_in_the_header():
    header = BlockHeader("2024", "{}", np.array([3, 8]), "2023")
    reader = LogBlockReader("a.log")
    reader.feed(encode_delete_block(delete_records(pa.array(["a", "b"]), pa.array(["", ""])), header))
    (found,) = reader.finish()
    keys = [HeaderKey.INSTANT_TIME, HeaderKey.SCHEMA, HeaderKey.RECORD_POSITIONS]
    assert list(found.block.header) == [*keys, HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS]
    with pytest.raises(InvalidInputError, match="2 positions for 1 records"):
        encode_delete_block(delete_records(pa.array(["a"]), pa.array([""])), header)


ORDERING_VALUES = st.one_of(
    st.none(),
    st.tuples(st.just("IntWrapper"), st.integers(-70, 70)),
    st.tuples(st.just("LongWrapper"), st.integers(-(2**62), 2**62)),
    st.tuples(st.just("StringWrapper"), st.text(max_size=3)),
    st.tuples(st.just("DoubleWrapper"), st.floats(allow_nan=False)),
    st.lists(st.tuples(st.sampled_from(["IntWrapper", "LongWrapper"]), st.integers(0, 300)), max_size=3),
)
RUNS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 70), ORDERING_VALUES, st.integers(1, 300)), max_size=12)


def stored(value: object, more: int) -> object:
    """Return an ordering value as fastavro takes it, numbers raised by `more`."""
    if isinstance(value, list):
        return ("ArrayWrapper", {"wrappedValues": [stored(each, more) for each in value]})
    if value is None:
        return None
    kind, number = value
    return (kind, {"value": number + more if isinstance(number, int) else number})


@given(RUNS, st.integers(1, 5))
def test_records_begin_where_fastavro_began_them(runs, blocks):
    """Runs of one form, and changes of it anywhere, also at the seams of an array's blocks."""
    schema = fastavro.parse_schema(RECORD)
    pieces = []
    for number, (path, length, value, times) in enumerate(runs):
        for time in range(times):
            key = f"{number}-{time}".ljust(length, "k")
            row = {"recordKey": key, "partitionPath": "p" * path or None, "orderingVal": stored(value, time // 5 * 9)}
            sink = io.BytesIO()
            fastavro.schemaless_writer(sink, schema, row)
            pieces.append(sink.getvalue())
    datum, starts = b"", []
    step = -(-len(pieces) // blocks) or 1
    for begin in range(0, len(pieces), step):
        block = pieces[begin : begin + step]
        datum += encode_long(len(block))
        starts += (len(datum) + np.cumsum([0, *map(len, block[:-1])])).tolist()
        datum += b"".join(block)
    assert record_starts(datum + b"\0").tolist() == starts


def test_many_deletes_in_one_block():
    count = 5000
    keys = pa.array([f"key-{n}" for n in range(count)])
    records = delete_records(keys, pa.array(["p"] * count), pa.array(range(count)))
    found = decode_delete_content(content_of(encode_delete_block(records, HEADER)), what="a.log")
    assert found.keys.equals(keys)
    assert found.ordering(pa.int64()).to_pylist() == list(range(count))


# ------------------------------------------------------------------------------------------------------------- Kryo

ORDERINGS = {"5": 5, "7": 7, "0": 0, "x": "x", "null": None, "2.5": 2.5}


def kryo(version: int, data: bytes) -> DeleteRecords:
    return decode_delete_content(struct.pack(">ii", version, len(data)) + data, what="a.log")


@pytest.mark.parametrize("name", ORDERINGS)
def test_javas_delete_records_are_read(name):
    found = kryo(2, bytes.fromhex(KRYO[f"D2 {name}"]))
    assert (found.keys.to_pylist(), found.partitions.to_pylist()) == (["k1", "é2"], ["p=1", ""])
    values = [column.to_pylist() for ordering in found.orderings for column in ordering.values()]
    assert values == ([] if name == "null" else [[ORDERINGS[name]] * 2])
    kinds = {"5": "long", "7": "int", "0": "int", "x": "string", "2.5": "double"}
    assert [list(ordering) for ordering in found.orderings] == ([] if name == "null" else [[kinds[name]]])


def test_javas_arrays_of_keys_and_of_many_records_are_read():
    assert kryo(1, bytes.fromhex(KRYO["D1 keys"])).keys.to_pylist() == ["k1", "é2"]
    found = kryo(2, bytes.fromhex(KRYO["D2 many"]))
    long = "a longer key of forty or so characters in all 1234567890 1234567890"
    assert found.keys.to_pylist() == ["k1", "k2", "k3", long]
    assert found.partitions.to_pylist() == ["p=1", "p=1", "", "p=1"]
    assert found.ordering(pa.int64()).to_pylist() == [5, 7, 3, 3]
    assert len(kryo(2, bytes.fromhex(KRYO["D2 none"]))) == 0


# ----------------------------------------------------------------------------------------------------------- damage

GOOD = by_fastavro(
    [
        ("k1", "p", ("LongWrapper", {"value": 300})),
        ("k2", "", ("StringWrapper", {"value": "x"})),
        ("k3", "", ("DoubleWrapper", {"value": 0.5})),
        ("k4", "", None),
        ("k5", "", ("DecimalWrapper", {"value": Decimal("1.5")})),
        ("k6", "", ("BooleanWrapper", {"value": True})),
    ]
)
OLD = struct.pack(">ii", 2, len(bytes.fromhex(KRYO["D2 many"]))) + bytes.fromhex(KRYO["D2 many"])


def refuse_or_decode(content: bytes) -> DeleteRecords | None:
    try:
        return decode_delete_content(content, what="a.log")
    except CorruptFile as error:
        assert "a.log" in str(error)  # noqa: PT017
        return None
    except UnsupportedFeature:
        return None


@pytest.mark.parametrize("content", [GOOD, OLD], ids=["3", "2"])
def test_a_content_cut_anywhere_is_refused(content):
    for cut in range(8, len(content)):
        data = content[:4] + struct.pack(">i", cut - 8) + content[8:cut]
        assert refuse_or_decode(data) is None, cut
    assert refuse_or_decode(content + b"\0") is None
    assert refuse_or_decode(content[:5]) is None


@pytest.mark.parametrize("content", [GOOD, OLD], ids=["3", "2"])
@given(data=st.data())
def test_any_changed_byte_is_a_value_or_refused(content, data):
    changed = bytearray(content)
    changed[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    found = refuse_or_decode(bytes(changed))
    assert found is None or len(found) <= len(content)


@given(st.binary(max_size=60), st.integers(1, 3))
def test_any_bytes_are_a_value_or_refused(data, version):
    refuse_or_decode(struct.pack(">ii", version, len(data)) + data)


@pytest.mark.parametrize(
    ("datum", "said"),
    [
        ("feffffff0f", "records announced"),
        ("02 02 02 61", "a record is damaged"),
        ("02 02 feffffff0f", "a record is damaged"),
        ("02 0202 61 00 1a 00 00", "a record is damaged"),
        ("02 0202 61 00 18 02 02 1a 00 00 00", "a record is damaged"),
        ("02 0202 61 00 18 00 00 00", "a record is damaged"),
        ("04 0202 61 00 18 02 02 0e 00 00 0202 62 00 06 08 00", "one ordering value and several"),
        ("02 0202 61 00 18 02 02 0e 00 02 0e 00 00 00", "a record is damaged"),
        ("02 0202 61 00 18 02 01 04 0e 00 00 00", "a record is damaged"),
        ("02 0202 61 00 04 00 00 00", "behind the last record"),
        ("02 0402 61 00 00 00", "a record is damaged"),
    ],
)
def test_hostile_lists_are_refused_and_named(datum, said):
    data = bytes.fromhex(datum)
    with pytest.raises(CorruptFile, match=rf"a\.log: .*{said}"):
        decode_delete_content(struct.pack(">ii", 3, len(data)) + data, what="a.log")


def test_another_version_is_refused():
    with pytest.raises(UnsupportedFeature, match="content version 4"):
        decode_delete_content(struct.pack(">ii", 4, 0), what="a.log")
