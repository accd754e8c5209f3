"""Avro containers made to hurt: typed errors, little memory, little time."""

from __future__ import annotations

import json
import random
import tracemalloc

import pytest

from lakefmt._core.formats.avro.container import decode_container, encode_container
from lakefmt._core.formats.avro.values import encode_long
from lakefmt._core.schema.avro import parse_avro_schema
from lakefmt.errors import CorruptFile, FormatError, UnsupportedFeature

HUGE = 1 << 62


def record_of(kind):
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


def container(schema, payload, count=1):
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    header = b"Obj\x01\x02\x16avro.schema" + encode_long(len(text)) + text + b"\0"
    sync = b"0123456789abcdef"
    return header + sync + encode_long(count) + encode_long(len(payload)) + payload + sync


def nested(levels):
    kind = "long"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return kind


def shared(levels):
    """Return a schema of few types whose value would be exponentially large."""
    kind = {"type": "record", "name": "T0", "fields": [{"name": "x", "type": "long"}]}
    for n in range(1, levels):
        fields = [{"name": "x", "type": kind}, {"name": "y", "type": f"T{n - 1}"}]
        kind = {"type": "record", "name": f"T{n}", "fields": fields}
    return kind


ITEMS = {"type": "array", "items": "long"}
NAMED = {"type": "fixed", "name": "F", "size": 1}

HOSTILE = {
    "array of nulls": container(record_of({"type": "array", "items": "null"}), encode_long(HUGE) + b"\0"),
    "null field": container(record_of("null"), b""),
    "array of empty records": container(
        record_of({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}), encode_long(HUGE)
    ),
    "huge array": container(record_of(ITEMS), encode_long(HUGE) + b"\0"),
    "huge negative array": container(record_of(ITEMS), encode_long(-(1 << 63)) + b"\0\0"),
    "endless array": container(record_of(ITEMS), b"\x02\x02" * 10),
    "huge map": container(record_of({"type": "map", "values": "long"}), encode_long(HUGE) + b"\0"),
    "huge string": container(record_of("string"), encode_long(HUGE) + b"x"),
    "negative string": container(record_of("string"), b"\x01x"),
    "negative optional string": container(record_of(["null", "string"]), b"\x02\x01x"),
    "huge optional string": container(record_of(["null", "string"]), b"\x02" + encode_long(HUGE) + b"x"),
    "no text": container(record_of("string"), b"\x02\xff"),
    "endless number": container(record_of("long"), b"\xff" * 1000),
    "number of 65 bits": container(record_of("long"), b"\xff" * 9 + b"\x02"),
    "boolean 2": container(record_of("boolean"), b"\x02"),
    "branch 2 of 2": container(record_of(["null", "long"]), b"\x04\x02"),
    "branch 9 of 3": container(record_of(["null", "long", "string"]), b"\x12\x02"),
    "branch -1": container(record_of(["long", "null"]), b"\x01\x02"),
    "symbol -1": container(record_of({"type": "enum", "name": "E", "symbols": ["X"]}), b"\x01"),
    "huge count": container(record_of("long"), b"\x02", count=HUGE),
    "negative count": container(record_of("long"), b"\x02", count=-1),
    "bytes left over": container(record_of("long"), b"\x02\x02"),
    "huge fixed": container(record_of({"type": "fixed", "name": "F", "size": 1 << 40}), b"\x02"),
    "fixed of nothing": container(record_of({"type": "fixed", "name": "F", "size": 0}), b""),
    "fixed of true": container(record_of({"type": "fixed", "name": "F", "size": True}), b"x"),
    "contains itself": container(record_of(["null", "R"]), b"\x02" * 50_000),
    "contains itself in another": container(record_of({"type": "array", "items": "R"}), b"\x02" * 50_000),
    "deep schema": container(record_of(nested(33)), b"\x02" * 100),
    "deep schema by reference": container(shared(40), b"\0" * 100),
    "wide by reference": container(shared(20), b"\0" * 100),
    "deep brackets": container(b"[" * 200_000, b""),
    "deep types": container(b'{"type":' * 20_000, b""),
    "long schema": container(b'"' + b"x" * 300_000 + b'"', b""),
    "schema is no text": container(b"\xff\xfe", b""),
    "schema of digits": container(b'{"type":"fixed","name":"F","size":' + b"9" * 200_000 + b"}", b""),
    "not a record": container(b'"long"', b"\x02"),
    "unknown type": container(record_of("Missing"), b""),
    "type is a number": container(record_of(7), b""),
    "type is missing": container({"name": "R"}, b""),
    "defined twice": container(
        {"type": "record", "name": "R", "fields": [{"name": x, "type": NAMED} for x in "ab"]}, b"ab"
    ),
    "two fields of one name": container(
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2}, b"\0\0"
    ),
    "union in a union": container(record_of(["null", ["null", "long"]]), b"\0"),
    "union of nothing": container(record_of([]), b"\0"),
    "wide union": container(record_of(["null"] * 65), b"\0"),
    "no name": container({"type": "record", "name": "", "fields": [{"name": "a", "type": "int"}]}, b"\0"),
    "fields are no list": container({"type": "record", "name": "R", "fields": {"a": 1}}, b"\0"),
    "a field is no object": container({"type": "record", "name": "R", "fields": ["a"]}, b"\0"),
    "a field without type": container({"type": "record", "name": "R", "fields": [{"name": "a"}]}, b"\0"),
    "items are missing": container(record_of({"type": "array"}), b"\0"),
    "huge header": b"Obj\x01" + encode_long(HUGE),
    "huge header key": b"Obj\x01\x02" + encode_long(HUGE),
    "no schema": b"Obj\x01\0" + b"0123456789abcdef",
    "no sync marker": b"Obj\x01\0" + b"0123",
    "another marker": container(record_of("long"), b"\x02")[:-1] + b"!",
    "nothing": b"",
    "another kind of file": b"PAR1" + b"\0" * 100,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_containers_are_corrupt_files(name):
    data = HOSTILE[name]
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFile, match=r"^the\.file: "):
            decode_container(data, what="the.file")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 4 * len(data) + 1024 * 1024


def test_a_reader_cannot_be_made_to_fill_in_much():
    fields = [{"name": f"f{n}", "type": ["null", "long"], "default": None} for n in range(9)]
    wide = {"type": "record", "name": "W", "fields": fields}
    reader = json.dumps(record_of({"type": "array", "items": wide}))

    def stored(number):
        return record_of({"type": "array", "items": {**wide, "fields": fields[:number]}})

    narrow = encode_container(stored(2), {"a": [{}] * 5})
    with pytest.raises(CorruptFile, match="2 of 9 fields"):
        decode_container(narrow, reader=reader)
    assert decode_container(encode_container(stored(3), {"a": [{}]}), reader=reader)["a"][0]["f8"] is None


def test_a_large_schema_is_still_read():
    fields = [{"name": f"f{n}", "type": ["null", "long", "string"]} for n in range(3000)]
    assert len(parse_avro_schema(json.dumps({"type": "record", "name": "R", "fields": fields})).fields) == 3000


RICH = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": ["null", "string"]}}},
        {"name": "o", "type": ["null", {"type": "record", "name": "I", "fields": [{"name": "d", "type": "double"}]}]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "n", "type": ["null", "long"]},
    ],
}
SAMPLE = encode_container(RICH, {"m": {"k": ["v", None], "l": []}, "o": {"d": 0.5}, "e": "Y", "n": 10**12})


def test_every_truncation_is_a_corrupt_file():
    for end in range(len(SAMPLE)):
        with pytest.raises(CorruptFile):
            decode_container(SAMPLE[:end])


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_are_a_value_or_an_error(seed):
    chance = random.Random(seed)
    for _ in range(200):
        data = bytearray(SAMPLE)
        for _ in range(chance.choice((1, 1, 2, 5))):
            data[chance.randrange(4, len(data))] = chance.randrange(256)
        try:
            found = decode_container(bytes(data))
        except (FormatError, UnsupportedFeature):
            continue
        assert isinstance(found, dict)
