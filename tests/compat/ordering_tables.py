"""Tables of every type that an ordering column may have, and what has to be in them after any order of arrival."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import struct
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cmp_to_key
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakefmt

UTC = dt.UTC
NAN, INF = math.nan, math.inf
DAYS = [dt.date(1960, 1, 1), dt.date(1970, 1, 1), dt.date(2024, 2, 29)]
MOMENTS = [dt.datetime(day.year, day.month, day.day, 12, tzinfo=UTC) for day in DAYS]
TIMES = [dt.time(0), dt.time(1, 2, 3), dt.time(23, 59)]

#: name → type and values, ascending as Hudi compares them.
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [False, True]),
    "int8": (pa.int8(), [-5, 0, 7]),
    "int32": (pa.int32(), [-5, 0, 7]),
    "uint32": (pa.uint32(), [0, 7, 1 << 31]),
    "int64": (pa.int64(), [-5, 0, 1 << 62]),
    "uint64": (pa.uint64(), [3, 1_767_225_600_000_000_000, 1 << 63]),
    "float16": (pa.float16(), [-0.0, 0.0, 1.5, NAN]),
    "float32": (pa.float32(), [-INF, -0.0, 0.0, 1e-45, INF, NAN]),
    "float64": (pa.float64(), [-INF, -0.0, 0.0, 5e-324, INF, NAN]),
    "decimal short": (pa.decimal128(5, 2), [Decimal("-1.10"), Decimal("0.00"), Decimal("2.20")]),
    "decimal fits": (pa.decimal128(30, 15), [Decimal("-1.1"), Decimal("1E-15"), Decimal("123456789012345.5")]),
    "decimal large": (pa.decimal128(38, 0), [Decimal(-5), Decimal(10) ** 15, Decimal(10) ** 37]),
    "decimal fine": (pa.decimal128(38, 20), [Decimal("-1.1"), Decimal("1E-20"), Decimal("2E-20")]),
    "text": (pa.string(), ["", "a", "\uff5e", "\U0001f600"]),  # by UTF-8, not by UTF-16
    "binary": (pa.binary(), [b"", b"\x80", b"\xff", b"\x00", b"\x00\x01", b"\x7f"]),
    "fixed": (pa.binary(2), [b"\x80\x00", b"\x80\x01", b"\x00\x01", b"\x7f\x00"]),
    "date": (pa.date32(), DAYS),
    "time32": (pa.time32("ms"), TIMES),
    "time64": (pa.time64("us"), TIMES),
    "timestamp ms": (pa.timestamp("ms", "UTC"), MOMENTS),
    "timestamp us": (pa.timestamp("us", "UTC"), MOMENTS),
}
#: Hudi compares no bytes when it merges logs: no merge-on-read table is made with them.
IN_BASE_FILES_ONLY = ("binary", "fixed")
#: The value that says "no event time" in a delete: the 0 of a type of 32 bits that is no float.
UNTIMED = {"int8": 0, "int32": 0, "date": DAYS[1], "time32": TIMES[0]}

Sequences = list[tuple[int, ...]]

# --------------------------------------------------------------------------------------------------------------- order


def java_compare(one: Any, other: Any) -> int:
    """Compare as Java's ``compareTo`` does for a value's class, null first."""
    if one is None or other is None:
        return (one is not None) - (other is not None)
    if isinstance(one, float):
        if one < other or one > other:
            return -1 if one < other else 1
        bits = [
            struct.unpack(">q", struct.pack(">d", math.nan if math.isnan(value) else value))[0]
            for value in (one, other)
        ]
        return int(bits[0] > bits[1]) - int(bits[0] < bits[1])
    if isinstance(one, bytes):
        one, other = ([byte - 256 * (byte > 127) for byte in value] for value in (one, other))
    if isinstance(one, str):
        one, other = one.encode(), other.encode()
    return int(one > other) - int(one < other)


java_key = cmp_to_key(java_compare)


# ------------------------------------------------------------------------------------------------------------ arrivals


def arrivals(count: int, *, length: int = 3, nulls: bool = False) -> Sequences:
    """Return every sequence of up to `length` of `count` values, -1 standing for null."""
    numbers = range(-1 if nulls else 0, count)
    return [one for size in range(1, length + 1) for one in itertools.product(numbers, repeat=size)]


def key_of(sequence: Sequence[int]) -> str:
    return "k" + "".join("n" if number < 0 else str(number) for number in sequence)


def schema_of(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("id", pa.string()), ("ts", kind), ("v", pa.int64()), ("_hoodie_is_deleted", pa.bool_())])


def rows_of(kind: pa.DataType, rows: Iterable[tuple[str, Any, int, bool]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    if pa.types.is_float16(kind):
        columns[1] = pa.array(columns[1], pa.float32()).cast(kind)
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, schema_of(kind), strict=True)], schema=schema_of(kind)
    )


def arriving(name: str, sequences: Sequences) -> list[pa.Table]:
    """Return batches: the first has the first value of every sequence, and so on; `v` is the number of the batch."""
    kind, values = KINDS[name]
    longest = max(map(len, sequences))
    return [
        rows_of(
            kind,
            [(key_of(one), None if one[at] < 0 else values[one[at]], at, False) for one in sequences if len(one) > at],
        )
        for at in range(longest)
    ]


def winners(sequences: Sequences) -> dict[str, int]:
    """Return for every key the arrival that wins: the largest value, the later one of equal ones."""
    return {key_of(one): max(range(len(one)), key=lambda at: (one[at], at)) for one in sequences}


def found(rows: pa.Table) -> dict[str, int]:
    """Return what a reader found in the form of :func:`winners`."""
    keys = rows["id"].to_pylist()
    assert len(set(keys)) == len(keys), "a key came twice"
    return dict(zip(keys, rows["v"].to_pylist(), strict=True))


def make_table(path: Path | str, name: str, table_type: str, version: int) -> lakefmt.Table:
    return lakefmt.create_table(
        str(path),
        schema=schema_of(KINDS[name][0]),
        record_key="id",
        ordering="ts",
        table_type=table_type,
        table_version=version,
        options={
            "lakefmt.create.types": "exact",
            "lakefmt.durability": "none",
            "lakefmt.write.threads": 1,
            "hoodie.parquet.small.file.limit": 0,  # changes stay in logs
        },
    )


# ------------------------------------------------------------------------------------------------------------- deletes


def delete_in_every_way(table: lakefmt.Table, name: str) -> dict[str, int]:
    """Store rows of every value and delete them in every way; return what has to be left."""
    kind, values = KINDS[name]
    numbers = range(len(values))
    ways = ("kept", "key", "filter", "marked", "late", "again")
    table.upsert(rows_of(kind, [(f"{way}{n}", values[n], 0, False) for way in ways for n in numbers]))
    by_key = table.delete([f"key{n}" for n in numbers])
    by_filter = table.delete("id like 'filter%'")
    assert (by_key.num_deletes, by_filter.num_deletes) == (len(values), len(values))
    table.upsert(rows_of(kind, [(f"marked{n}", values[n], 1, True) for n in numbers]))
    table.upsert(rows_of(kind, [(f"late{n}", values[n - 1], 1, True) for n in numbers[1:]]))
    table.delete([f"again{n}" for n in numbers])
    table.upsert(rows_of(kind, [(f"again{n}", values[n], 2, False) for n in numbers]))
    left = {f"kept{n}": 0 for n in numbers} | {f"again{n}": 2 for n in numbers} | {"late0": 0}
    return left | {f"late{n}": 0 for n in numbers[1:] if name not in UNTIMED or values[n - 1] != UNTIMED[name]}
