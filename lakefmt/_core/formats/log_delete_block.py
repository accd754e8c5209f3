"""Encode and decode delete blocks (docs/format.md, Delete blocks). Pure.

Content version 3 is one Avro array; an ordering value is a union of wrappers, one per type, so
values of a block may differ in type. They are one Arrow column per type.

Records have no stored length: :func:`record_starts` computes where a record would end from every byte
with which one may begin.

Versions 1 and 2 are Java objects of Kryo 4, which Hudi wrote up to table version 5: ``HoodieKey[]``
(key, partition) and ``DeleteRecord[]`` (key, partition, ordering value). Kryo names each class
once, then numbers it, and refers back to objects written before, so records are read one by one.
Other classes are refused; nothing is instantiated.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import from_numpy, one_array
from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.avro.columnar.codec import encode_rows
from lakefmt._core.formats.avro.columnar.decode import ByteCursor, DamagedInput, read_values, spread
from lakefmt._core.formats.avro.columnar.encode import (
    Segment,
    encode_segments,
    even_bytes,
    measure_record,
    span_segment,
)
from lakefmt._core.formats.avro.columnar.plan import Node, plan_rows
from lakefmt._core.formats.avro.columnar.varint import I64, U8
from lakefmt._core.formats.avro.values import encode_long, read_block_count
from lakefmt._core.formats.log_blocks import CONTENT_VERSION, BlockKind, encode_block
from lakefmt._core.formats.log_data_block import BlockHeader
from lakefmt._core.schema.types import is_number, is_string
from lakefmt.errors import CorruptFile, SchemaMismatch, UnsupportedFeature

__all__ = [
    "LOCAL_DATE",
    "SEVERAL",
    "DeleteRecords",
    "decode_delete_content",
    "delete_records",
    "encode_delete_block",
    "read_kryo_deletes",
    "record_starts",
    "storable_orderings",
    "stores_every_ordering",
]


#: The branch of an array of ordering values; inside of an array it is that of a date.
SEVERAL = LOCAL_DATE = 12


_VERSION_AND_LENGTH = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """One branch of the union of ordering values."""

    branch: int
    name: str
    avro: object
    arrow: pa.DataType


_AVRO_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}
#: The branch numbers are part of the format: no schema is stored with the block.
_WRAPPERS = tuple(
    _Wrapper(*row)
    for row in (
        (1, "boolean", "boolean", pa.bool_()),
        (2, "int", "int", pa.int32()),
        (3, "long", "long", pa.int64()),
        (4, "float", "float", pa.float32()),
        (5, "double", "double", pa.float64()),
        (6, "bytes", "bytes", pa.binary()),
        (7, "string", "string", pa.string()),
        (8, "date", {"type": "int", "logicalType": "date"}, pa.date32()),
        (9, "decimal", _AVRO_DECIMAL, pa.decimal128(30, 15)),
        (10, "time-micros", {"type": "long", "logicalType": "time-micros"}, pa.time64("us")),
        (11, "timestamp-micros", {"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC")),
    )
)
_INT_WRAPPER = _WRAPPERS[1]
#: Inside of an array the branch of arrays is that of a date.
_LOCAL_DATE_WRAPPER = _Wrapper(LOCAL_DATE, "local-date", {"type": "int", "logicalType": "date"}, pa.date32())
_WRAPPERS_INSIDE = (*_WRAPPERS, _LOCAL_DATE_WRAPPER)
_WRAPPERS_BY_NAME = {wrapper.name: wrapper for wrapper in _WRAPPERS_INSIDE}
#: The first bytes of several values: the branch of arrays, then the non-null branch.
_SEVERAL_HEAD = encode_long(SEVERAL) + encode_long(1)
#: The bytes of the ordering value int 0, which deletes any stored row.
_ALWAYS_DELETES = encode_long(_INT_WRAPPER.branch) + b"\0"

#: The values of an ordering field: a column per type, null where the value has another type.
Ordering = Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True, eq=False)
class DeleteRecords:
    """The records of a delete block.

    Attributes:
        keys: record keys.
        partitions: partition paths.
        orderings: for each ordering field (mostly one; none without ordering values) its values by
            type. A row that is null in every type has no ordering value.

    Example:
        >>> records = delete_records(pa.array(["a", "b"]), pa.array(["", ""]), pa.array([7, None]))
        >>> records.ordering(pa.int64()).to_pylist()
        [7, None]
    """

    keys: pa.Array
    partitions: pa.Array
    orderings: tuple[Ordering, ...]

    def __len__(self) -> int:
        return len(self.keys)

    def ordering(self, data_type: pa.DataType, field: int = 0) -> pa.Array:
        """Return the values of an ordering field in the type of the table's column.

        Null in every field means that the record deletes any stored row: no ordering value, int 0 where there is one
        field, or a value that Hudi cannot compare with the column.

        Parameters:
            data_type: the type of the table's ordering column.
            field: index of the ordering field.

        Source: docs/format.md, Delete blocks; Merge rules.
        """
        merged = pa.nulls(len(self), data_type)
        for name, values in (self.orderings[field] if field < len(self.orderings) else {}).items():
            # Among several fields a null is written as int 0, too, which a column of such numbers does not tell apart.
            if name == _INT_WRAPPER.name and (len(self.orderings) == 1 or not _is_short(data_type)):
                values = pc.if_else(pc.equal(values, 0), pa.scalar(None, values.type), values)
            as_kind = _comparable_values(values, data_type)
            merged = merged if as_kind is None else pc.coalesce(merged, as_kind)
        return merged


def _comparable_values(values: pa.Array, data_type: pa.DataType) -> pa.Array | None:
    """Return ordering values in the type of a column; None if Hudi cannot compare the two."""
    if pt.is_integer(values.type) and pt.is_temporal(data_type):
        # Dates and times are often stored as plain numbers.
        values = values.cast(pa.int32() if data_type.bit_width == 32 else pa.int64())
    elif not any(check(values.type) and check(data_type) for check in _COMPARABLE_TYPES):
        return None
    try:
        return values.cast(data_type, safe=not pt.is_timestamp(data_type))
    except pa.ArrowException:
        return None


def _is_short(data_type: pa.DataType) -> bool:
    """Return whether values of a type are stored as 32-bit numbers."""
    return bool((pt.is_integer(data_type) or pt.is_temporal(data_type)) and data_type.bit_width <= 32)


#: Types that are comparable with each other.
_COMPARABLE_TYPES = (is_number, is_string, pt.is_boolean, pt.is_binary, pt.is_date, pt.is_time, pt.is_timestamp)


def delete_records(keys: pa.Array, partitions: pa.Array, *orderings: pa.Array) -> DeleteRecords:
    """Return records that delete keys, each up to an ordering value.

    Parameters:
        keys: record keys.
        partitions: partition paths.
        orderings: the values of each ordering field, of a supported type; null, or no field: delete
            any stored row. Times and timestamps are stored as microseconds, decimals with scale 15.

    Raises:
        SchemaMismatch: an unsupported type, or columns of different lengths.

    Source: docs/format.md, Delete blocks.

    Example:
        >>> records = delete_records(pa.array(["a"]), pa.array(["day=1"]))
        >>> len(records), records.orderings
        (1, ())
    """
    if any(len(column) != len(keys) for column in (partitions, *orderings)):
        raise SchemaMismatch("keys, partition paths and ordering values of deletes are not equally many")
    text_columns = [_as_stored_type(column, pa.string()) for column in (keys, partitions)]
    return DeleteRecords(text_columns[0], text_columns[1], tuple(_by_stored_type(column) for column in orderings))


def _as_stored_type(column: pa.Array | pa.ChunkedArray, data_type: pa.DataType) -> pa.Array:
    try:
        return one_array(column).cast(data_type)
    except pa.ArrowException as error:
        raise SchemaMismatch(f"{column.type} cannot be stored in a delete block as {data_type}: {error}") from None


def _by_stored_type(column: pa.Array | pa.ChunkedArray) -> Ordering:
    data_type = column.type
    for wrapper in _WRAPPERS:
        if data_type == wrapper.arrow:
            return {wrapper.name: _as_stored_type(column, data_type)}
    for check, name in _NEAREST_TYPES:
        if check(data_type):
            return {name: _as_stored_type(column, _WRAPPERS_BY_NAME[name].arrow)}
    raise SchemaMismatch(f"{data_type} is no type of ordering values")


_NEAREST_TYPES = (
    (lambda kind: pt.is_integer(kind) and kind.bit_width < 32, "int"),
    (lambda kind: str(kind) == "uint32", "long"),
    (pt.is_large_string, "string"),
    (pt.is_large_binary, "bytes"),
    (pt.is_decimal, "decimal"),
    (pt.is_time, "time-micros"),
    (pt.is_timestamp, "timestamp-micros"),
)


def storable_orderings(columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[pa.Array]:
    """Return the ordering values that delete records can store; rows with another value get nulls.

    Dates and times become their stored numbers, which Java compares. A decimal fits with at most 15
    digits before and 15 after the point. Bytes do not fit: Hudi does not compare them.

    Parameters:
        columns: the values of each ordering field.

    Source: docs/format.md, Delete blocks.

    Example:
        >>> from decimal import Decimal
        >>> values = pa.array([Decimal(10) ** 15 - 1, Decimal(10) ** 15], pa.decimal128(20, 0))
        >>> storable_orderings([values])[0].is_valid().to_pylist()
        [True, False]
    """
    arrays = [one_array(column) for column in columns]
    storable = [_storable_values(column) for column in arrays]
    if all(before.null_count == after.null_count for before, after in zip(arrays, storable, strict=True)):
        return storable
    is_unstorable = from_numpy(np.zeros(len(arrays[0]), dtype=bool))
    for before, after in zip(arrays, storable, strict=True):
        is_unstorable = pc.or_(is_unstorable, pc.and_(before.is_valid(), after.is_null()))
    return [pc.if_else(is_unstorable, pa.scalar(None, column.type), column) for column in storable]


def stores_every_ordering(data_type: pa.DataType) -> bool:
    """Return whether delete records can store every ordering value of a type.

    Example:
        >>> stores_every_ordering(pa.decimal128(15, 2)), stores_every_ordering(pa.decimal128(20, 0))
        (True, False)
    """
    stored = _WRAPPERS_BY_NAME["decimal"].arrow
    if pt.is_decimal(data_type):
        return bool(
            data_type.scale <= stored.scale and data_type.precision - data_type.scale <= stored.precision - stored.scale
        )
    return not (pt.is_binary(data_type) or pt.is_large_binary(data_type) or pt.is_fixed_size_binary(data_type))


def _storable_values(values: pa.Array) -> pa.Array:
    data_type = values.type
    stored = _WRAPPERS_BY_NAME["decimal"].arrow
    if pt.is_temporal(data_type):
        return values.cast(pa.int32() if data_type.bit_width == 32 else pa.int64())
    if stores_every_ordering(data_type):
        return values.cast(stored) if pt.is_decimal(data_type) else values
    if not pt.is_decimal(data_type):
        return pa.nulls(len(values), pa.binary())
    wide = values.cast(pa.decimal256(76, max(data_type.scale, stored.scale)))
    limit = pa.scalar(Decimal(10) ** (stored.precision - stored.scale), wide.type)
    fits = pc.less(pc.abs(wide), limit)
    if data_type.scale > stored.scale:
        fits = pc.and_(fits, pc.equal(pc.round(wide, stored.scale, "towards_zero"), wide))
    return pc.if_else(fits, values, pa.scalar(None, data_type)).cast(stored)


# --------------------------------------------------------------------------------------------------------- encoding


def encode_delete_block(records: DeleteRecords, header: BlockHeader) -> bytes:
    """Return a delete block (docs/format.md, Delete blocks).

    A missing ordering value is stored as int 0 with the same meaning: Hudi 0.15 fails on null.

    Parameters:
        records: a result of :func:`delete_records`.
        header: the header; positions, if any, one per record.

    Raises:
        InvalidInputError: the positions differ in number from the records, or the block would
            exceed 2 GiB.

    Example:
        >>> records = delete_records(pa.array(["k1", "k2"]), pa.array(["", "p=1"]), pa.array([None, 5]))
        >>> encode_delete_block(records, BlockHeader("20240101000000000"))[-41:-12].hex(" ", -4)
        '00000003 00000015 0402046b 31020004 0002046b 32020670 3d31060a 00'
    """
    rows = len(records)
    segments = _text_segments(records) + _ordering_segments(records)
    data = encode_segments(segments, rows) if rows else b""
    datum = b"".join((encode_long(rows), data, b"\0")) if rows else b"\0"
    lead = _VERSION_AND_LENGTH.pack(CONTENT_VERSION, len(datum))
    return encode_block(BlockKind.DELETE, header.entries(rows), lead, datum)


def _text_segments(records: DeleteRecords) -> list[Segment]:
    return measure_record(_text_fields(), [records.keys, records.partitions])


@cache
def _text_fields() -> Node:
    return plan_rows(
        '{"type":"record","name":"r","fields":[{"name":"recordKey","type":["null","string"]},'
        '{"name":"partitionPath","type":["null","string"]}]}'
    )


@cache
def _value_node(name: str) -> Node:
    return plan_rows(_value_schema(name)).parts[0]


@cache
def _value_schema(name: str) -> str:
    return json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": "value", "type": _WRAPPERS_BY_NAME[name].avro}]}
    )


def _ordering_segments(records: DeleteRecords) -> list[Segment]:
    rows = len(records)
    if not records.orderings:
        return [even_bytes(byte) for byte in _ALWAYS_DELETES]
    spans = [_ordering_spans(ordering, rows) for ordering in records.orderings]
    if len(spans) == 1:
        return [span_segment(*spans[0][:3])]
    return _tuple_segments(spans, rows)


#: The bytes, start and length of each value, and whether it exists.
_OrderingSpans = tuple[U8, I64, I64, npt.NDArray[np.bool_]]


def _ordering_spans(ordering: Ordering, rows: int) -> _OrderingSpans:
    """Return every row's branch and value, int 0 for missing ones."""
    stored = [np.frombuffer(_ALWAYS_DELETES, np.uint8)]
    begins = np.zeros(rows, np.int64)
    lengths = np.full(rows, len(_ALWAYS_DELETES), np.int64)
    there = np.zeros(rows, np.bool_)
    used = len(_ALWAYS_DELETES)
    for name, values in ordering.items():
        valid = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        data, offsets = _with_branches(_WRAPPERS_BY_NAME[name], values.drop_null())
        begins[valid], lengths[valid] = offsets[:-1] + used, np.diff(offsets)
        there[valid] = True
        stored.append(data)
        used += len(data)
    return np.concatenate(stored), begins, lengths, there


def _with_branches(wrapper: _Wrapper, values: pa.Array) -> tuple[U8, I64]:
    """Return values with their branch before them."""
    schema = json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [{"name": "branch", "type": "int"}, {"name": "value", "type": wrapper.avro}],
        }
    )
    branch = from_numpy(np.full(len(values), wrapper.branch, np.int32))
    data, offsets = encode_rows(pa.table({"branch": branch, "value": values}), schema)
    return np.frombuffer(data, np.uint8), offsets


def _tuple_segments(spans: list[_OrderingSpans], rows: int) -> list[Segment]:
    """Return several ordering values as one array; a row without any has only int 0."""
    has_values = np.logical_or.reduce([there for *_, there in spans])
    head = np.frombuffer(_SEVERAL_HEAD + encode_long(len(spans)) + _ALWAYS_DELETES + b"\0", np.uint8)
    before = len(head) - len(_ALWAYS_DELETES) - 1
    segments = [span_segment(head, np.where(has_values, 0, before), np.where(has_values, before, len(_ALWAYS_DELETES)))]
    segments += [span_segment(data, begins, np.where(has_values, lengths, 0)) for data, begins, lengths, _ in spans]
    return [*segments, span_segment(head, np.full(rows, len(head) - 1), has_values.astype(np.int64))]


# --------------------------------------------------------------------------------------------------------- decoding


def decode_delete_content(content: bytes | memoryview, *, what: str) -> DeleteRecords:
    """Return the records of a delete block.

    Parameters:
        content: the content of the block, version 1, 2 or 3.
        what: the file's name in errors.

    Raises:
        CorruptFile: the content is damaged.
        UnsupportedFeature: another content version, or an unsupported form of ordering values.

    Source: docs/format.md, Delete blocks.

    Example:
        >>> content = bytes.fromhex("00000003 00000014 04 02046b31 0200 00 02046b32 0206703d31 060a 00")
        >>> records = decode_delete_content(content, what="a.log")
        >>> records.keys.to_pylist(), records.partitions.to_pylist(), records.ordering(pa.int64()).to_pylist()
        (['k1', 'k2'], ['', 'p=1'], [None, 5])
    """
    if len(content) < _VERSION_AND_LENGTH.size:
        raise CorruptFile(f"{what}: delete block of {len(content)} bytes is too short")
    version, length = _VERSION_AND_LENGTH.unpack_from(content)
    if version not in (1, 2, 3):
        raise UnsupportedFeature(f"{what}: delete block with content version {version}; versions 1 to 3 are read")
    if length != len(content) - _VERSION_AND_LENGTH.size:
        raise CorruptFile(f"{what}: delete block of {len(content)} bytes announces {length}")
    data = bytes(content[_VERSION_AND_LENGTH.size :])
    try:
        return _decode_avro_deletes(data) if version == CONTENT_VERSION else _from_kryo_values(*read_kryo_deletes(data))
    except IndexError:
        raise CorruptFile(f"{what}: a delete block ends inside a record") from None
    except (DamagedInput, ValueError, struct.error) as error:
        raise CorruptFile(f"{what}: damaged delete block: {error}") from None


def _decode_avro_deletes(data: bytes) -> DeleteRecords:
    source = ByteCursor(np.frombuffer(data, np.uint8), 0, len(data))
    offsets = record_starts(data)
    limit = np.full(len(offsets), len(data), np.int64)
    texts = []
    for part in _text_fields().parts:
        column, offsets = read_values(source, part, offsets, limit)
        texts.append(column)
    orderings, _ = _read_orderings(source, offsets, limit)
    return DeleteRecords(texts[0], texts[1], orderings)


def _read_orderings(source: ByteCursor, offsets: I64, limit: I64) -> tuple[tuple[Ordering, ...], I64]:
    branches = source.data.take(offsets) >> 1
    several = np.flatnonzero(branches == SEVERAL)
    if not len(several):
        ordering, end = _read_ordering(source, offsets, limit)
        return ((ordering,) if ordering else ()), end
    plain_rows = np.flatnonzero((branches != SEVERAL) & (branches != 0) & (branches != _INT_WRAPPER.branch))
    if len(plain_rows):
        raise ValueError("one ordering value and several are mixed")
    counts, here = source.numbers(_value_node(_INT_WRAPPER.name), offsets[several] + len(_SEVERAL_HEAD), limit[several])
    if (counts < 0).any():
        raise ValueError("several ordering values in several blocks")
    orderings: list[Ordering] = []
    for field in range(int(counts.max())):
        going = np.flatnonzero(counts > field)
        ordering, here[going] = _read_ordering(source, here[going], limit[going], _WRAPPERS_INSIDE)
        valid = np.zeros(len(offsets), np.bool_)
        valid[several[going]] = True
        orderings.append({name: spread(values, valid) for name, values in ordering.items()})
    return tuple(orderings), offsets


def _read_ordering(
    source: ByteCursor, offsets: I64, limit: I64, wrappers: tuple[_Wrapper, ...] = _WRAPPERS
) -> tuple[Ordering, I64]:
    """Return the values at `offsets` by type, and their end offsets."""
    branches = source.data.take(offsets)
    end = offsets + 1
    by_type: dict[str, pa.Array] = {}
    for wrapper in wrappers:
        valid = branches == 2 * wrapper.branch
        there = np.flatnonzero(valid)
        if len(there):
            node = _value_node(wrapper.name)
            dense, end[there] = read_values(source, node, end[there], limit[there])
            by_type[wrapper.name] = spread(dense, valid)
    return by_type, end


def _from_kryo_values(keys: list[str], partitions: list[str], values: Mapping[str, list[object]]) -> DeleteRecords:
    ordering = {name: pa.array(column, _WRAPPERS_BY_NAME[name].arrow) for name, column in values.items()}
    texts = [pa.array(column, pa.string()) for column in (keys, partitions)]
    return DeleteRecords(texts[0], texts[1], (ordering,) if ordering else ())


# -------------------------------------------------------------------------------------------------- where records begin

#: What follows the byte of a branch: this many bytes, or a length and as many bytes, one number, or several ordering values.
_SPAN, _NUMBER, _SEVERAL, _DAMAGED = -1, -2, -3, -4
_BRANCHES = {0: 0, 1: 1, 4: 4, 5: 8, 6: _SPAN, 7: _SPAN, 9: _SPAN, **dict.fromkeys((2, 3, 8, 10, 11), _NUMBER)}
#: Offsets whose ends are computed at a time.
_CHUNK = 1 << 16
#: The branch of the non-null wrapper.
_NON_NULL_BRANCH = 2
#: More ordering fields are damage.
_MOST_FIELDS = 1000


def _by_first_byte(branches: Mapping[int, int]) -> I64:
    table = np.full(256, _DAMAGED, np.int64)
    table[[2 * branch for branch in branches]] = list(branches.values())
    return table


_TEXT = _by_first_byte({0: 0, 1: _SPAN})
_ORDERING = _by_first_byte({**_BRANCHES, SEVERAL: _SEVERAL})
_ORDERING_INSIDE = _by_first_byte({**_BRANCHES, LOCAL_DATE: _NUMBER})


def record_starts(data: bytes) -> I64:
    """Return the start offsets of the records of an Avro array of delete records.

    A record begins with the branch of its key. For every byte that may be one, the end of such a record is computed; then each
    record begins at the end of the one before it.

    Raises:
        ValueError: the bytes are not such an array.
        IndexError: the bytes end before the records do.

    Source: docs/format.md, Delete blocks.

    Example:
        >>> record_starts(bytes.fromhex("06 02026b 00 00 02026c 00 00 02026d 00 00 00")).tolist()
        [1, 6, 11]
    """
    raw = np.frombuffer(data, np.uint8)
    padded = np.append(raw, np.uint8(0xFF))  # a branch that there is not: records that are damaged end there
    ends = np.full(len(padded), len(raw), np.int32)
    possible = np.flatnonzero(_TEXT[raw] != _DAMAGED)
    for first in range(0, len(possible), _CHUNK):
        offsets = possible[first : first + _CHUNK]
        partition = _ends(padded, offsets, _TEXT)
        ends[offsets] = _ends(padded, _ends(padded, partition, _TEXT), _ORDERING)
    starts, end_of = array("q"), memoryview(ends.data)
    count, offset = read_block_count(data, 0, "records")
    while count:
        for _ in range(count):
            starts.append(offset)
            offset = end_of[offset]
        if offset == len(raw):
            raise ValueError("a record is damaged, or ends behind the block")
        count, offset = read_block_count(data, offset, "records")
    if offset != len(data):
        raise ValueError(f"{len(data) - offset} bytes behind the last record")
    return np.array(starts, np.int64)


def _ends(data: U8, offsets: I64, table: I64) -> I64:
    """Return the ends of values of a union; the last offset where there is no such value."""
    last = len(data) - 1
    form = table[data[offsets]]
    ends = np.where(form == _DAMAGED, last, offsets + 1 + np.maximum(form, 0))
    for each, ends_of in ((_SPAN, _ends_of_spans), (_NUMBER, _ends_of_numbers), (_SEVERAL, _ends_of_several)):
        here = np.flatnonzero(form == each)
        if len(here):
            ends[here] = ends_of(data, offsets[here] + 1)
    return np.minimum(ends, last)


def _ends_of_spans(data: U8, offsets: I64) -> I64:
    last = len(data) - 1
    lengths, begins = _numbers(data, offsets)
    return np.where((lengths >= 0) & (lengths <= last - begins), begins + lengths, last)


def _ends_of_numbers(data: U8, offsets: I64) -> I64:
    return _numbers(data, offsets)[1]


def _ends_of_several(data: U8, offsets: I64) -> I64:
    """Return the ends of arrays of ordering values, which have one block."""
    last = len(data) - 1
    counts, ends = _numbers(data, np.minimum(offsets + 1, last))
    counts[(data[offsets] != _NON_NULL_BRANCH) | (counts > _MOST_FIELDS)] = -1
    for field in range(int(counts.max(initial=0))):
        going = np.flatnonzero(counts > field)
        ends[going] = _ends(data, ends[going], _ORDERING_INSIDE)
    ends = np.where(counts == 0, ends, np.where(data[ends] == 0, ends + 1, last))
    return np.where(counts < 0, last, ends)


def _numbers(data: U8, offsets: I64) -> tuple[I64, I64]:
    """Return the numbers at some offsets and their ends; the last offset where a number is too long."""
    values, ends = data[offsets].astype(np.int64), offsets + 1
    longer = np.flatnonzero(values >= 0x80)
    values &= 0x7F
    for shift in range(7, 70, 7):
        if not len(longer):
            break
        byte = data[np.minimum(ends[longer], len(data) - 1)].astype(np.int64)
        values[longer] |= (byte & 0x7F) << shift
        ends[longer] += 1
        longer = longer[byte >= 0x80]
    ends[longer] = len(data) - 1
    return (values >> 1) ^ -(values & 1), np.minimum(ends, len(data) - 1)


# ----------------------------------------------------------------------------------------------------- versions 1 and 2

_KRYO_KEY_CLASS = "org.apache.hudi.common.model.HoodieKey"
_KRYO_DELETE_CLASS = "org.apache.hudi.common.model.DeleteRecord"
#: Kryo's registration ids plus two: 0 is null, 1 a class by name.
_KRYO_INT, _KRYO_STRING, _KRYO_FLOAT, _KRYO_BOOLEAN, _KRYO_LONG, _KRYO_DOUBLE = 2, 3, 4, 5, 9, 10
_MOST_KRYO_CLASSES = 3


class MalformedKryo(ValueError):
    """The bytes are not those of Kryo for these classes; used by the readers of delete blocks only."""


#: Keys, partition paths and, by type, the ordering values, None where a value has another type.
_KryoDeletes = tuple[list[str], list[str], dict[str, list[object]]]


def read_kryo_deletes(data: bytes) -> _KryoDeletes:
    r"""Return the keys, partition paths and ordering values by type.

    Raises:
        MalformedKryo: the bytes are damaged.
        IndexError: the bytes end early.
        UnsupportedFeature: an ordering value of an unknown class.

    Example:
        >>> name = b"[Lorg.apache.hudi.common.model.HoodieKey" + bytes([ord(";") | 128])
        >>> read_kryo_deletes(b"\1\0" + name + b"\1\1")
        ([], [], {})
    """
    reader = _KryoReader(data)
    deletes = reader.array()
    if reader.at != len(data):
        raise MalformedKryo(f"{len(data) - reader.at} bytes behind the last record")
    return deletes


class _KryoReader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.names: list[str] = []
        #: All objects that may be referred to, in order of their start.
        self.objects: list[object] = []

    # ------------------------------------------------------------------------------------------------ Kryo's values

    def number(self) -> int:
        """Return an unsigned varint."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise MalformedKryo("number of more than 64 bits")

    def signed(self) -> int:
        encoded = self.number()
        return (encoded >> 1) ^ -(encoded & 1)

    def text(self) -> str:
        """Return a string: ASCII with the high bit of its last byte set, or a count of UTF-16 units and UTF-8."""
        first = self.data[self.at]
        if first & 128 == 0:
            begin = self.at
            while self.data[self.at] < 128:
                self.at += 1
            self.at += 1
            return (self.data[begin : self.at - 1] + bytes([self.data[self.at - 1] & 127])).decode("ascii")
        self.at += 1
        count = first & 63
        shift = 6
        while first & (64 if shift == 6 else 128):
            first = self.data[self.at]
            self.at += 1
            count |= (first & 127) << shift
            shift += 7
        if not count:
            raise MalformedKryo("text is null")
        return self._units(count - 1)

    def _units(self, count: int) -> str:
        if count > len(self.data) - self.at:
            raise MalformedKryo(f"text of {count} characters, {len(self.data) - self.at} bytes left")
        begin = self.at
        for _ in range(count):
            byte = self.data[self.at]
            self.at += 1 if byte < 128 else 2 if byte < 224 else 3
        # Units beyond the basic plane are surrogates of three bytes each.
        raw = self.data[begin : self.at].decode("utf-8", "surrogatepass")
        return raw.encode("utf-16-le", "surrogatepass").decode("utf-16-le")

    def reference(self, make: Callable[[], object]) -> object:
        """Return an object written before, or the result of `make`."""
        mark = self.number()
        if mark == 0:
            return None
        if mark > 1:
            return self.objects[mark - 2]
        slot = len(self.objects)
        self.objects.append(None)
        self.objects[slot] = new_object = make()
        return new_object

    def class_name(self) -> str | None:
        """Return the class name of the next object, None for null."""
        mark = self.number()
        if mark == 0:
            return None
        if mark != 1:
            return f"#{mark}"
        number = self.number()
        if number == len(self.names) < _MOST_KRYO_CLASSES:
            self.names.append(self.text())
        return self.names[number]

    # ------------------------------------------------------------------------------------------------ Hudi's objects

    def array(self) -> _KryoDeletes:
        name = self.class_name()
        if name not in (f"[L{_KRYO_KEY_CLASS};", f"[L{_KRYO_DELETE_CLASS};"):
            raise MalformedKryo(f"it holds {name!r:.80}")
        if self.number() != 1:
            raise MalformedKryo("no array of records")
        self.objects.append(None)
        count = self.number() - 1
        if not 0 <= count <= len(self.data) - self.at:
            raise MalformedKryo(f"{count} records announced, {len(self.data) - self.at} bytes left")
        keys, partitions, values = [], [], []
        for _ in range(count):
            (key, partition), value = self.record() if name == f"[L{_KRYO_DELETE_CLASS};" else (self.key(), None)
            keys.append(key)
            partitions.append(partition)
            values.append(value)
        return keys, partitions, _values_by_type(values)

    def record(self) -> tuple[tuple[str, str], object]:
        if self.class_name() != _KRYO_DELETE_CLASS:
            raise MalformedKryo("a record is no DeleteRecord")
        fields = self.reference(lambda: (self.key(), self.ordering()))
        if not isinstance(fields, tuple) or not isinstance(fields[0], tuple):
            raise MalformedKryo("a record is no DeleteRecord")
        return fields

    def key(self) -> tuple[str, str]:
        if self.class_name() != _KRYO_KEY_CLASS:
            raise MalformedKryo("a key is no HoodieKey")
        fields = self.reference(self._key_fields)
        if not isinstance(fields, tuple) or not isinstance(fields[0], str):
            raise MalformedKryo("a key is no HoodieKey")
        return fields

    def _key_fields(self) -> tuple[str, str]:
        partition, key = self.reference(self.text), self.reference(self.text)
        if not isinstance(key, str) or not isinstance(partition, str):
            raise MalformedKryo("a key or partition path is no text")
        return key, partition

    def ordering(self) -> object:
        name = self.class_name()
        if name is None:
            return None
        if name == f"#{_KRYO_STRING}":
            return self.reference(self.text)
        if name == f"#{_KRYO_INT}":
            return _JavaInteger(self.signed())
        if name == f"#{_KRYO_LONG}":
            return self.signed()
        if name == f"#{_KRYO_BOOLEAN}":
            self.at += 1
            return self.data[self.at - 1] == 1
        if name in (f"#{_KRYO_FLOAT}", f"#{_KRYO_DOUBLE}"):
            layout, size = (">f", 4) if name == f"#{_KRYO_FLOAT}" else (">d", 8)
            self.at += size
            return float(struct.unpack_from(layout, self.data, self.at - size)[0])
        raise UnsupportedFeature(f"a delete block of an old table has ordering values of class {name!r:.80}")


class _JavaInteger(int):
    """A Java Integer, distinct from Long."""


_KRYO_VALUE_TYPES: tuple[tuple[type, str], ...] = (
    (_JavaInteger, "int"),
    (bool, "boolean"),
    (int, "long"),
    (float, "double"),
    (str, "string"),
)


def _values_by_type(values: list[object]) -> dict[str, list[object]]:
    names = [
        next((name for python_type, name in _KRYO_VALUE_TYPES if isinstance(value, python_type)), None)
        for value in values
    ]
    return {
        name: [value if its == name else None for value, its in zip(values, names, strict=True)]
        for _, name in _KRYO_VALUE_TYPES
        if name in names
    }
