"""Avro records made to hurt: a value or a typed error, little memory, little time."""

from __future__ import annotations

import json
import random
import tracemalloc
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats.avro.columnar.codec import decode_rows, encode_rows
from lakefmt._core.formats.avro.values import encode_long
from lakefmt.errors import CorruptFile, LakefmtError, UnsupportedFeature

FIELDS = [
    {"name": "key", "type": ["null", "string"]},
    {"name": "n", "type": ["null", "long"]},
    {"name": "i", "type": "int"},
    {"name": "d", "type": ["null", "double"]},
    {"name": "b", "type": "boolean"},
    {"name": "list", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
    {"name": "map", "type": {"type": "map", "values": "long"}},
    {
        "name": "s",
        "type": ["null", {"type": "record", "name": "s", "fields": [{"name": "a", "type": ["null", "bytes"]}]}],
    },
    {"name": "p", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
    {"name": "t", "type": {"type": "int", "logicalType": "time-millis"}},
]
SCHEMA = json.dumps({"type": "record", "name": "r", "fields": FIELDS})
ROWS = 5


def table(rows: int = ROWS) -> pa.Table:
    rng = random.Random(3)
    columns = {
        "key": [f"k{n}ß" * rng.randint(0, 4) if n % 4 else None for n in range(rows)],
        "n": [rng.randint(-(2**60), 2**60) for n in range(rows)],
        "i": pa.array([n - 100 for n in range(rows)], pa.int32()),
        "d": [0.5 * n if n % 3 else None for n in range(rows)],
        "b": [n % 2 == 0 for n in range(rows)],
        "list": [["a", None, "bc"][: n % 4] for n in range(rows)],
        "map": pa.array([[(f"m{n}", n)] * (n % 3) for n in range(rows)], pa.map_(pa.string(), pa.int64())),
        "s": pa.array([{"a": b"x"} if n % 2 else None for n in range(rows)], pa.struct([("a", pa.binary())])),
        "p": pa.array([Decimal(n).scaleb(-2) for n in range(rows)], pa.decimal128(10, 2)),
        "e": ["AB"[n % 2] for n in range(rows)],
        "t": pa.array(list(range(rows)), pa.int32()).cast(pa.time32("ms")),
    }
    return pa.table(columns)


def stored(rows: int = ROWS) -> tuple[bytes, np.ndarray]:
    data, offsets = encode_rows(table(rows), SCHEMA)
    return data.to_pybytes(), offsets


DATA, OFFSETS = stored()


def decode_or_refuse(data: bytes, offsets: np.ndarray, schema: str = SCHEMA) -> pa.Table | None:
    try:
        found = decode_rows(data, offsets[:-1], offsets[1:], schema, what="a.log")
    except (CorruptFile, UnsupportedFeature) as error:
        assert "a.log" in str(error) or isinstance(error, UnsupportedFeature)  # noqa: PT017
        return None
    found.validate(full=True)
    return found


def test_the_undamaged_rows_are_read():
    assert decode_or_refuse(DATA, OFFSETS).to_pylist() == table().to_pylist()


def test_a_record_cut_anywhere_is_refused():
    last = int(OFFSETS[-2])
    for cut in range(last, len(DATA)):
        offsets = OFFSETS.copy()
        offsets[-1] = cut
        assert decode_or_refuse(DATA[:cut], offsets) is None, cut


def test_a_byte_too_many_is_refused():
    offsets = OFFSETS.copy()
    offsets[-1] += 1
    assert decode_or_refuse(DATA + b"\0", offsets) is None


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_any_changed_byte_is_a_value_or_refused(at, change):
    damaged = bytearray(DATA)
    damaged[at] ^= change
    found = decode_or_refuse(bytes(damaged), OFFSETS)
    assert found is None or found.num_rows == ROWS


def test_every_changed_byte_is_noticed_or_changes_a_value():
    good = table().to_pylist()
    changed = 0
    for at in range(len(DATA)):
        damaged = bytearray(DATA)
        damaged[at] ^= 0x41
        found = decode_or_refuse(bytes(damaged), OFFSETS)
        changed += found is not None
        assert found is None or found.to_pylist() != good, at
    assert changed > len(DATA) // 10


@given(st.binary(max_size=80), st.data())
def test_any_bytes_are_a_value_or_refused(data, draw):
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), min_size=1, max_size=4)))
    decode_or_refuse(data, np.array(cuts, np.int64))


def of(kind: object) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": kind}]})


HUGE = encode_long(1 << 62)
LEAST = encode_long(-(1 << 63))
LISTS = {"type": "array", "items": "long"}
DEEP = {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": "string"}}}
HOSTILE = {
    "a text longer than the file": (of("string"), HUGE + b"a", "length"),
    "a text of negative length": (of("string"), encode_long(-1), "length"),
    "a text of the smallest length": (of("string"), LEAST, "length"),
    "a list of more items than bytes": (of(LISTS), HUGE + b"\0", "more items"),
    "a list of the smallest count": (of(LISTS), LEAST + b"\2\0\0", "more items"),
    "a block whose size is no number": (of(LISTS), encode_long(-1) + b"\xff" * 11, "64 bits"),
    "doubles that leave the record": (of({"type": "array", "items": "double"}), b"\x08" + bytes(9), "lead out"),
    "a map of more entries than bytes": (of({"type": "map", "values": "long"}), HUGE, "more items"),
    "a branch that is none": (of(["null", "long"]), b"\4\2", "branch"),
    "a negative branch": (of(["null", "long"]), b"\1\2", "branch"),
    "null where none may be": (of(["long"]), b"\2\2", "branch"),
    "a number of eleven bytes": (of("long"), b"\x80" * 10 + b"\1", "64 bits"),
    "a number of 65 bits": (of("long"), b"\x80" * 9 + b"\2", "64 bits"),
    "an int of 33 bits": (of("int"), encode_long(1 << 31), "32 bits"),
    "a boolean of two": (of("boolean"), b"\2", "boolean"),
    "a text that is not UTF-8": (of("string"), b"\2\xff", "UTF8"),
    "a symbol too many": (of({"type": "enum", "name": "e", "symbols": ["A"]}), b"\2", "symbol"),
    "a decimal without bytes": (
        of({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}),
        b"\0",
        "decimal of 0 bytes",
    ),
    "a decimal of 17 bytes": (
        of({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}),
        b"\x22" + bytes(17),
        "decimal of 17 bytes",
    ),
    "a decimal of too many digits": (
        of({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}),
        b"\x06\x7f\xff\xff",
        "precision",
    ),
    "a fixed decimal of more than 128 bits": (
        of({"type": "fixed", "name": "f", "size": 18, "logicalType": "decimal", "precision": 38, "scale": 2}),
        b"\1" + bytes(17),
        "128 bits",
    ),
    "a time of no day": (of({"type": "int", "logicalType": "time-millis"}), encode_long(86_400_000), "time"),
    "a list without its end": (of(DEEP), b"\2\2\2\2a", "too early"),
    "an empty record": (of("long"), b"", "too early"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("copies", [1, 3])
def test_hostile_records_are_refused_and_named(name, copies):
    schema, datum, said = HOSTILE[name]
    ends = np.arange(1, copies + 1) * len(datum)
    with pytest.raises(CorruptFile, match=f"(?i)a.log: .*{said}"):
        decode_rows(datum * copies, ends - len(datum), ends, schema, what="a.log")


@pytest.mark.parametrize(
    ("starts", "ends"), [([0, 1], [2, 3]), ([-1], [1]), ([0], [4]), ([2], [1]), ([1 << 62], [(1 << 62) + 1])]
)
def test_records_that_overlap_or_leave_the_bytes_are_refused(starts, ends):
    with pytest.raises(CorruptFile, match=r"a\.log: the records overlap or leave"):
        decode_rows(b"\2\2\2", np.array(starts), np.array(ends), of("long"), what="a.log")


@pytest.mark.parametrize("schema", ["", "{", '"long"', '{"type": "record", "name": "r", "fields": 3}', "[" * 5000])
def test_a_schema_that_is_none_is_refused(schema):
    with pytest.raises(LakefmtError):
        decode_rows(b"\0", np.array([0]), np.array([1]), schema, what="a.log")


def peak(schema: str, data: bytes, count: int) -> tuple[int, bool]:
    """Return the bytes allocated at most while `data` is read as `count` records, Arrow's included."""
    ends = np.arange(1, count + 1) * (len(data) // count)
    starts = ends - len(data) // count
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        try:
            found = decode_rows(data, starts, ends, schema)
        except (CorruptFile, UnsupportedFeature):
            return tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before, False
        return tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before, found.num_rows > 0
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_lengths_allocate_little(name):
    schema, datum, _ = HOSTILE[name]
    used, read = peak(schema, datum + bytes(100_000), 1)
    assert not read
    assert used < 4 * 100_000 + 300_000


def test_nulls_of_wide_structs_are_refused_before_they_are_made():
    inner = {"type": "record", "name": "s", "fields": [{"name": f"f{n}", "type": "long"} for n in range(3000)]}
    schema = of(["null", inner])
    used, read = peak(schema, bytes(30_000), 30_000)
    assert not read
    assert used < 40_000_000
    fixed = of(["null", {"type": "fixed", "name": "f", "size": 1 << 20}])
    used, read = peak(fixed, bytes(1000), 1000)
    assert not read
    assert used < 1_000_000


def test_many_small_items_take_little_time_and_memory_in_proportion():
    schema = of({"type": "array", "items": "string"})
    count = 200_000
    used, read = peak(schema, encode_long(count) + bytes(count) + b"\0", 1)
    assert read
    assert used < 100 * count
