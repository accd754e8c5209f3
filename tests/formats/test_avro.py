"""Avro containers: bytes of the specification, agreement with another implementation, and resolving of schemas."""

from __future__ import annotations

import io
import json
import struct
import zlib

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats.avro.container import decode_container, decode_container_records, encode_container
from lakefmt._core.formats.avro.values import encode_long
from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature

NOTE = {"type": "record", "name": "Note", "fields": [{"name": "text", "type": "string"}]}


def record_of(*fields, name="R", **more):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields], **more}


def container(schema, *blocks, codec=None):
    """Make a container by hand: blocks are (count, payload)."""
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    entries = {b"avro.schema": text} | ({} if codec is None else {b"avro.codec": codec})
    header = encode_long(len(entries)) + b"".join(encode_long(len(x)) + x for e in entries.items() for x in e) + b"\0"
    sync = b"0123456789abcdef"
    body = b"".join(encode_long(count) + encode_long(len(data)) + data + sync for count, data in blocks)
    return b"Obj\x01" + header + sync + body


def test_the_bytes_of_a_container():
    data = encode_container(NOTE, {"text": "hé"})
    schema = b'{"type":"record","name":"Note","fields":[{"name":"text","type":"string"}]}'
    sync = data[-16:]
    header = b"Obj\x01\x02\x16avro.schema" + encode_long(len(schema)) + schema + b"\0"
    assert data == header + sync + b"\x02\x08\x06h\xc3\xa9" + sync


def test_equal_content_gives_equal_bytes_and_other_content_another_marker():
    first, again, other = (encode_container(NOTE, {"text": text}) for text in ("a", "a", "b"))
    assert first == again
    assert first[-16:] != other[-16:]
    assert encode_container({**NOTE, "name": "Other"}, {"text": "a"})[-16:] != first[-16:]


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-64, "7f"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_numbers_of_the_specification(number, data):
    assert encode_long(number).hex() == data
    schema = record_of(("n", "long"))
    assert decode_container(container(schema, (1, bytes.fromhex(data)))) == {"n": number}


EVERYTHING = record_of(
    ("none_or_flag", ["null", "boolean"]),
    ("i", "int"),
    ("l", "long"),
    ("f", "float"),
    ("d", "double"),
    ("b", "bytes"),
    ("s", "string"),
    ("e", {"type": "enum", "name": "E", "symbols": ["X", "Y"]}),
    ("x", {"type": "fixed", "name": "F", "size": 3}),
    ("a", {"type": "array", "items": ["null", "string"]}),
    ("m", {"type": "map", "values": {"type": "array", "items": "E"}}),
    ("r", record_of(("again", "F"), ("v", ["int", "null"]), name="Inner")),
    ("u", ["null", "boolean", "long", "double", "string", "Inner", {"type": "map", "values": "long"}]),
    namespace="n.s",
)
longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]))
inners = st.fixed_dictionaries({"again": st.binary(min_size=3, max_size=3), "v": st.none() | ints})
everything = st.fixed_dictionaries(
    {
        "none_or_flag": st.none() | st.booleans(),
        "i": ints,
        "l": longs,
        "f": st.floats(width=32, allow_nan=False),
        "d": st.floats(allow_nan=False),
        "b": st.binary(),
        "s": texts,
        "e": st.sampled_from(["X", "Y"]),
        "x": st.binary(min_size=3, max_size=3),
        "a": st.lists(st.none() | texts),
        "m": st.dictionaries(texts, st.lists(st.sampled_from(["X", "Y"]))),
        "r": inners,
        "u": st.none() | st.booleans() | longs | texts | inners | st.dictionaries(texts, longs, min_size=1),
    }
)


@pytest.mark.slow
@given(everything)
def test_another_implementation_reads_what_is_written(record):
    data = encode_container(EVERYTHING, record)
    assert list(fastavro.reader(io.BytesIO(data))) == [record]
    assert decode_container(data) == record


@pytest.mark.slow
@given(everything, st.sampled_from(["null", "deflate"]))
def test_what_another_implementation_writes_is_read(record, codec):
    out = io.BytesIO()
    fastavro.writer(out, EVERYTHING, [record], codec=codec)
    assert decode_container(out.getvalue()) == record


def test_several_blocks_and_records():
    data = container(NOTE, (2, b"\x02a\x02b"), (0, b""), (1, b"\x02c"))
    assert [r["text"] for r in decode_container_records(data, 3)] == ["a", "b", "c"]
    with pytest.raises(CorruptFile, match="at most 2 expected"):
        decode_container_records(data, 2)
    with pytest.raises(CorruptFile):
        decode_container(data)


def test_no_record():
    assert decode_container_records(container(NOTE), 5) == []
    with pytest.raises(CorruptFile, match="notes: Avro container without a record"):
        decode_container(container(NOTE, (0, b"")), what="notes")


def test_arrays_and_maps_in_several_blocks():
    schema = record_of(("a", {"type": "array", "items": "long"}), ("m", {"type": "map", "values": "long"}))
    array = encode_long(1) + b"\x02" + encode_long(-2) + encode_long(2) + b"\x04\x06" + b"\0"
    mapping = encode_long(-1) + encode_long(3) + b"\x02k\x08" + b"\0"
    assert decode_container(container(schema, (1, array + mapping))) == {"a": [1, 2, 3], "m": {"k": 4}}


def test_a_null_codec_may_be_named():
    assert decode_container(container(NOTE, (1, b"\x02a"), codec=b"null")) == {"text": "a"}


def deflate(data):
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush()


def snappy(data):
    return pa.Codec("snappy").compress(data, asbytes=True) + struct.pack(">I", zlib.crc32(data))


def zstandard(data):
    return pa.Codec("zstd").compress(data, asbytes=True)


CODECS = {b"deflate": deflate, b"snappy": snappy, b"zstandard": zstandard}


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_containers(codec):
    payload = encode_long(4000) + b"ab" * 2000
    data = container(NOTE, (1, CODECS[codec](payload)), codec=codec)
    assert decode_container(data) == {"text": "ab" * 2000}
    for end in range(len(data)):
        with pytest.raises(CorruptFile):
            decode_container(data[:end])
    damaged = container(NOTE, (1, CODECS[codec](payload)[:-3]), codec=codec)
    with pytest.raises(CorruptFile):
        decode_container(damaged)


@pytest.mark.parametrize("codec", [b"deflate", b"zstandard"])
def test_a_decompression_bomb_is_bounded(codec):
    size = 8 * 1024 * 1024
    data = container(NOTE, (1, CODECS[codec](encode_long(size) + b"a" * size)), codec=codec)
    assert len(data) < size / 16
    with pytest.raises(CorruptFile, match=str(codec, "ascii")):
        decode_container(data)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (snappy(b"\x02a")[:-1] + b"\0", "wrong checksum"),
        (b"\xff\xff\xff\xff\x0f" + b"x" * 100, "4,294,967,295 bytes announced"),
        (b"\xff" * 100, "no size"),
        (b"", "no size"),
    ],
)
def test_damaged_snappy(payload, reason):
    with pytest.raises(CorruptFile, match=reason):
        decode_container(container(NOTE, (1, payload), codec=b"snappy"))


def test_an_unknown_codec_is_unsupported():
    with pytest.raises(UnsupportedFeature, match="'xz'"):
        decode_container(container(NOTE, (1, b"x"), codec=b"xz"))


# ------------------------------------------------------------------------------------------------------- resolving


def read_as(reader, schema, record):
    return decode_container(encode_container(schema, record), reader=json.dumps(reader))


def test_a_reader_gets_its_fields_in_its_order():
    reader = record_of(("b", "long"), ("c", ["null", "string"]), ("d", {"type": "array", "items": "int"}))
    reader["fields"][1]["default"] = None
    reader["fields"][2]["default"] = []
    found = read_as(reader, record_of(("a", "string"), ("b", "int")), {"a": "x", "b": 3})
    assert list(found.items()) == [("b", 3), ("c", None), ("d", [])]


def test_defaults_are_not_shared():
    reader = record_of(("a", "int"), ("d", {"type": "array", "items": "int"}))
    reader["fields"][1]["default"] = []
    first = read_as(reader, record_of(("a", "int")), {"a": 1})
    first["d"].append(1)
    assert read_as(reader, record_of(("a", "int")), {"a": 1})["d"] == []


@pytest.mark.parametrize(
    ("written", "wanted", "value", "found"),
    [
        ("int", "long", 7, 7),
        ("int", "double", 7, 7.0),
        ("long", ["null", "float"], 7, 7.0),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "é", b"\xc3\xa9"),
        ("bytes", "string", b"\xc3\xa9", "é"),
        (["null", "int"], ["long", "null"], None, None),
        (["null", "int"], ["string", "null", "long"], 3, 3),
        (["null", "int"], "int", 3, 3),
        ("int", ["string", "int"], 3, 3),
    ],
)
def test_promotions(written, wanted, value, found):
    assert read_as(record_of(("a", wanted)), record_of(("a", written)), {"a": value}) == {"a": found}


@pytest.mark.parametrize(
    ("written", "wanted", "value"),
    [
        ("long", "int", 7),
        ("string", "long", "7"),
        ("double", "float", 0.5),
        (["null", "int"], "int", None),
        ("int", ["null", "string"], 1),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, [1]),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, b"ab"),
        (record_of(("x", "int"), name="A"), record_of(("x", "int"), name="B"), {"x": 1}),
    ],
)
def test_what_does_not_fit_is_refused(written, wanted, value):
    with pytest.raises(CorruptFile):
        read_as(record_of(("a", wanted)), record_of(("a", written)), {"a": value})


def test_a_field_without_default_must_be_there():
    with pytest.raises(CorruptFile, match="lacks field 'b'"):
        read_as(record_of(("a", "int"), ("b", "int")), record_of(("a", "int")), {"a": 1})


def test_a_record_may_go_by_another_name():
    reader = record_of(("a", "int"), name="New", aliases=["old.Old"])
    assert read_as(reader, record_of(("a", "int"), name="Old", namespace="x"), {"a": 1}) == {"a": 1}
    with pytest.raises(CorruptFile, match="record R cannot be read as record New"):
        read_as(reader, record_of(("a", "int")), {"a": 1})


def test_inner_records_as_tuples():
    inner = record_of(("x", "int"), ("y", ["null", "string"]), name="Inner")
    schema = record_of(("a", {"type": "array", "items": inner}))
    data = encode_container(schema, {"a": [{"x": 1, "y": "one"}, {"x": 2, "y": None}]})
    tuples = frozenset({"Inner"})
    assert decode_container(data, as_tuples=tuples) == {"a": [(1, "one"), (2, None)]}
    turned = record_of(("y", ["null", "string"]), ("x", "int"), name="Inner")
    reader = json.dumps(record_of(("a", {"type": "array", "items": turned})))
    assert decode_container(data, reader=reader, as_tuples=tuples) == {"a": [("one", 1), (None, 2)]}


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 2**31),
        ("int", True),
        ("long", 2**63),
        ("long", 1.0),
        ("long", None),
        ("boolean", 1),
        ("double", "1"),
        ("double", 10**400),
        ("float", 1e39),
        ("string", b"x"),
        ("string", "\ud800"),
        ("bytes", "x"),
        ({"type": "enum", "name": "E", "symbols": ["X"]}, "Y"),
        ({"type": "fixed", "name": "F", "size": 2}, b"x"),
        ({"type": "array", "items": "int"}, "ab"),
        ({"type": "array", "items": "int"}, ["ab"]),
        ({"type": "map", "values": "int"}, [("a", 1)]),
        ({"type": "map", "values": "int"}, {1: 1}),
        (["null", "int"], "x"),
        (["null", "int", "string"], 1.5),
        (record_of(("x", "int"), name="I"), {"x": 1, "y": 2}),
        (record_of(("x", "int"), name="I"), {}),
        (record_of(("x", "int"), name="I"), 1),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_its_field_named(kind, value):
    with pytest.raises(InvalidInputError, match="record does not fit its schema: field_name: "):
        encode_container(record_of(("field_name", kind)), {"field_name": value})


def test_a_missing_field_takes_its_default():
    schema = record_of(("a", ["int", "null"]), ("b", "string"))
    schema["fields"][0]["default"] = 1
    assert decode_container(encode_container(schema, {"b": "x"})) == {"a": 1, "b": "x"}
    with pytest.raises(InvalidInputError, match="b: nothing is not a text"):
        encode_container(schema, {})


@pytest.mark.parametrize("schema", ['"string"', "{", "[]", '{"type":"record","name":"R","fields":[]}'])
def test_a_schema_that_is_none_is_refused(schema):
    with pytest.raises(InvalidInputError):
        encode_container(schema, {})
