"""Delete blocks: which keys, and up to which ordering value (spec 7.6). Pure.

The records of content version 3 are one Avro array; an ordering value is a union of wrappers, one for each type, so that
the values of one block may differ in type. They come, and go, as one Arrow column per type. What content versions 1 and
2 hold, Java objects in Kryo's form, is read by :mod:`~lakefmt.formats.log._delete_kryo`.

Where the records of a delete block begin: their lengths are stored nowhere (spec 7.6). Pure.

One record is walked over byte by byte, and its form noted: the bytes that say how long its texts are and of which type
its ordering value is, and where its numbers end. Records of one block mostly follow one another in one form; as many as
do are found together. Where each has another form they are walked over one by one.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.errors import CorruptFile, SchemaMismatch, UnsupportedFeature
from lakefmt.formats.avro.columnar.codec import encode_rows
from lakefmt.formats.avro.columnar.decode import Cursor, DamagedInput, read_values, spread
from lakefmt.formats.avro.columnar.encode import encode_segments, even_bytes, measure_record, span_segment
from lakefmt.formats.avro.columnar.plan import Node, plan_rows
from lakefmt.formats.avro.columnar.segments import Segment
from lakefmt.formats.avro.columnar.varint import I64, U8
from lakefmt.formats.avro.reader import read_block_count, read_long, read_span
from lakefmt.formats.avro.writer import encode_long
from lakefmt.formats.log._delete_kryo import read_kryo_deletes
from lakefmt.formats.log._records import CONTENT_VERSION
from lakefmt.formats.log.blocks import BlockKind, encode_block
from lakefmt.formats.log.data_block import BlockHeader

__all__ = [
    "LOCAL_DATE",
    "SEVERAL",
    "DeleteRecords",
    "decode_delete_content",
    "delete_records",
    "encode_delete_block",
    "record_starts",
    "storable_orderings",
    "stores_every_ordering",
]


#: The branch of an array of ordering values; inside of one it is that of one more type, dates.
SEVERAL = LOCAL_DATE = 12
_NUMBERS = frozenset({2, 3, 8, 10, 11})
_SPANS = frozenset({6, 7, 9})
_FIXED = {1: 1, 4: 4, 5: 8}
#: Inside the array's wrapper: that there is one.
_THERE = 2

#: A byte of the form is the same in every record, or only tells whether its number goes on.
_SAME, _GOES_ON = 0xFF, 0x80
#: So many records are compared at first, and at most, with the one before them.
_FIRST_GUESS, _LAST_GUESS = 64, 1 << 14
#: Fewer of one form than this were not worth a guess; so many records are then walked over before the next.
_FEW, _MOST_WALKED = 8, 1 << 12

#: Offsets of the bytes of a record's form, and which of their bits belong to it.
_Form = list[tuple[int, int]]


def record_starts(data: bytes) -> I64:
    """Return where the records of an Avro array of delete records begin.

    Raises:
        ValueError: the bytes are no such array.
        IndexError: they end inside a record.

    Spec 7.6.

    Example:
        >>> record_starts(bytes.fromhex("06 02026b 00 00 02026c 00 00 02026d 00 00 00")).tolist()
        [1, 6, 11]
    """
    raw = np.frombuffer(data, np.uint8)
    found: list[I64] = []
    count, at = read_block_count(data, 0, "records")
    while count:
        at = _walk_block(data, raw, at, count, found)
        count, at = read_block_count(data, at, "records")
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes behind the last record")
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _walk_block(data: bytes, raw: U8, at: int, count: int, found: list[I64]) -> int:
    """Add where `count` records begin, the first of them at `at`; return where the last one ends."""
    walked = 1
    while count:
        form: _Form = []
        end = _skip_record(data, at, form)
        alike = _alike(raw, at, end - at, form, count)
        found.append(np.arange(at, at + alike * (end - at), end - at))
        at, count = at + alike * (end - at), count - alike
        walked = 1 if alike >= _FEW else min(2 * walked, _MOST_WALKED)
        if walked > 1 and count:
            singly = array("q")
            for _ in range(min(walked, count)):
                singly.append(at)
                at = _skip_record(data, at, None)
            count -= len(singly)
            found.append(np.array(singly, np.int64))
    return at


def _alike(raw: U8, at: int, length: int, form: _Form, most: int) -> int:
    """Return how many records in a row, at most `most`, have the form of the one at `at`: it is the first of them."""
    offsets, bits = (np.array(column, kind) for column, kind in zip(zip(*form, strict=True), "lB", strict=True))
    wanted = raw[at + offsets] & bits
    most = min(most, (len(raw) - at) // length)
    known, guess = 1, _FIRST_GUESS
    while known < most:
        guess = min(guess, most - known)
        begin = at + known * length
        rows = raw[begin : begin + guess * length].reshape(guess, length)
        other = ((rows.take(offsets, axis=1) & bits) != wanted).any(axis=1)
        first = int(other.argmax())
        if other[first]:
            return known + first
        known, guess = known + guess, min(2 * guess, _LAST_GUESS)
    return known


def _skip_record(data: bytes, at: int, form: _Form | None) -> int:
    """Return the offset behind a record, and note its form."""
    begin = at
    for _text in range(2):
        _note(form, range(at - begin, at - begin + 1))
        at = _skip_span(data, at + 1, begin, form) if data[at] else at + 1
    return _skip_ordering(data, at, begin, form)


def _skip_ordering(data: bytes, at: int, begin: int, form: _Form | None, inside: bool = False) -> int:
    """Return the offset behind an ordering value."""
    _note(form, range(at - begin, at - begin + 1))
    branch, at = data[at] >> 1, at + 1
    if branch == 0:
        return at
    if branch in _NUMBERS or (inside and branch == LOCAL_DATE):
        behind = read_long(data, at)[1]
        _note(form, range(at - begin, behind - begin), _GOES_ON)
        return behind
    if branch in _SPANS:
        return _skip_span(data, at, begin, form)
    if branch in _FIXED:
        return at + _FIXED[branch]
    if branch != SEVERAL:
        raise ValueError(f"branch {branch} of the ordering values")
    return _skip_several(data, at, begin, form)


def _skip_several(data: bytes, at: int, begin: int, form: _Form | None) -> int:
    if data[at] != _THERE:
        raise ValueError("several ordering values that are none")
    count, behind = read_block_count(data, at + 1)
    _note(form, range(at - begin, behind - begin))
    at = behind
    for _ in range(count):
        at = _skip_ordering(data, at, begin, form, inside=True)
    if not count:
        return at
    if data[at]:
        raise ValueError("several ordering values in several blocks")
    _note(form, range(at - begin, at - begin + 1))
    return at + 1


def _skip_span(data: bytes, at: int, begin: int, form: _Form | None) -> int:
    first, behind = read_span(data, at)
    _note(form, range(at - begin, first - begin))
    return behind


def _note(form: _Form | None, offsets: range, bits: int = _SAME) -> None:
    if form is not None:
        form.extend((offset, bits) for offset in offsets)


_PAIR = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """One branch of the union of ordering values."""

    branch: int
    name: str
    avro: object
    arrow: pa.DataType


_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}
#: The branch numbers are the contract: no schema is stored with the block.
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
        (9, "decimal", _DECIMAL, pa.decimal128(30, 15)),
        (10, "time-micros", {"type": "long", "logicalType": "time-micros"}, pa.time64("us")),
        (11, "timestamp-micros", {"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC")),
    )
)
_INT = _WRAPPERS[1]
#: Inside an array the branch of arrays is that of one more type.
_LOCAL_DATE = _Wrapper(LOCAL_DATE, "local-date", {"type": "int", "logicalType": "date"}, pa.date32())
_INSIDE = (*_WRAPPERS, _LOCAL_DATE)
_BY_NAME = {wrapper.name: wrapper for wrapper in _INSIDE}
#: How several values begin: the branch of arrays, and inside it that there is one.
_SEVERAL_HEAD = encode_long(SEVERAL) + encode_long(1)
#: The bytes of the ordering value that deletes whatever is stored: the int 0.
_ALWAYS = encode_long(_INT.branch) + b"\0"

#: The values of one ordering field: for each type that occurs a column with nulls where the value is of another one.
Ordering = Mapping[str, pa.Array]


@dataclass(frozen=True, slots=True, eq=False)
class DeleteRecords:
    """The records of a delete block.

    Attributes:
        keys: record keys.
        partitions: partition paths.
        orderings: for each ordering field (mostly one; none: nobody said any) its values by type. A row that is null in
            every type has no ordering value.

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

    def ordering(self, kind: pa.DataType, field: int = 0) -> pa.Array:
        """Return the values of an ordering field as the type of the table's column.

        Null says that the record deletes whatever is stored: no ordering value, the int 0 that stands for none, or one
        that cannot be compared with the column, as Hudi sees it.

        Parameters:
            kind: the type of the table's ordering column.
            field: which of several ordering fields.

        Spec 7.6, 7.9.
        """
        found = pa.nulls(len(self), kind)
        for name, values in (self.orderings[field] if field < len(self.orderings) else {}).items():
            if name == _INT.name:
                values = pc.if_else(pc.equal(values, 0), pa.scalar(None, values.type), values)
            as_kind = _comparable(values, kind)
            found = found if as_kind is None else pc.coalesce(found, as_kind)
        return found


def _comparable(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return ordering values as the type of a column; None when Hudi could not compare the two."""
    if pt.is_integer(values.type) and pt.is_temporal(kind):
        # Dates and times often come as the number that is stored.
        values = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not any(check(values.type) and check(kind) for check in _FAMILIES):
        return None
    try:
        return values.cast(kind, safe=not pt.is_timestamp(kind))
    except pa.ArrowException:
        return None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


#: Types that can be compared with each other.
_FAMILIES = (_is_number, _is_text, pt.is_boolean, pt.is_binary, pt.is_date, pt.is_time, pt.is_timestamp)


def delete_records(keys: pa.Array, partitions: pa.Array, *orderings: pa.Array) -> DeleteRecords:
    """Return the records that delete keys, each up to an ordering value.

    Parameters:
        keys: record keys.
        partitions: partition paths.
        orderings: the values of each ordering field, of any type that such a field may have; null, or no field at all:
            delete whatever is stored. Times of day and timestamps go as microseconds, decimals with 15 digits behind
            the point.

    Raises:
        SchemaMismatch: a type that ordering values cannot have, or columns of different lengths.

    Spec 7.6.

    Example:
        >>> records = delete_records(pa.array(["a"]), pa.array(["day=1"]))
        >>> len(records), records.orderings
        (1, ())
    """
    if any(len(column) != len(keys) for column in (partitions, *orderings)):
        raise SchemaMismatch("keys, partition paths and ordering values of deletes are not equally many")
    text = [_plain(column, pa.string()) for column in (keys, partitions)]
    return DeleteRecords(text[0], text[1], tuple(_typed(column) for column in orderings))


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(whole, pa.ChunkedArray):  # of no chunk, in old releases
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.nulls(0, whole.type)
    return whole


def _plain(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    try:
        return _whole(column).cast(kind)
    except pa.ArrowException as error:
        raise SchemaMismatch(f"{column.type} cannot be stored in a delete block as {kind}: {error}") from None


def _typed(column: pa.Array | pa.ChunkedArray) -> Ordering:
    kind = column.type
    for wrapper in _WRAPPERS:
        if kind == wrapper.arrow:
            return {wrapper.name: _plain(column, kind)}
    for check, name in _NEAR:
        if check(kind):
            return {name: _plain(column, _BY_NAME[name].arrow)}
    raise SchemaMismatch(f"{kind} is no type of ordering values")


_NEAR = (
    (lambda kind: pt.is_integer(kind) and kind.bit_width < 32, "int"),
    (lambda kind: str(kind) == "uint32", "long"),
    (pt.is_large_string, "string"),
    (pt.is_large_binary, "bytes"),
    (pt.is_decimal, "decimal"),
    (pt.is_time, "time-micros"),
    (pt.is_timestamp, "timestamp-micros"),
)


def storable_orderings(columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[pa.Array]:
    """Return the ordering values that delete records can hold; rows of which one value does not fit get nulls.

    Dates and times become the numbers that are stored: Java compares those, not dates. A decimal fits with at most 15
    digits before the point and 15 behind it. Bytes do not fit: Hudi's engines do not compare them with a record's.

    Parameters:
        columns: the values of each ordering field.

    Spec 7.6.

    Example:
        >>> from decimal import Decimal
        >>> values = pa.array([Decimal(10) ** 15 - 1, Decimal(10) ** 15], pa.decimal128(20, 0))
        >>> storable_orderings([values])[0].is_valid().to_pylist()
        [True, False]
    """
    whole = [_whole(column) for column in columns]
    found = [_storable(column) for column in whole]
    if all(before.null_count == after.null_count for before, after in zip(whole, found, strict=True)):
        return found
    some = pa.array(np.zeros(len(whole[0]), dtype=bool))
    for before, after in zip(whole, found, strict=True):
        some = pc.or_(some, pc.and_(before.is_valid(), after.is_null()))
    return [pc.if_else(some, pa.scalar(None, column.type), column) for column in found]


def stores_every_ordering(kind: pa.DataType) -> bool:
    """Return whether delete records can hold every ordering value of a type.

    Example:
        >>> stores_every_ordering(pa.decimal128(15, 2)), stores_every_ordering(pa.decimal128(20, 0))
        (True, False)
    """
    stored = _BY_NAME["decimal"].arrow
    if pt.is_decimal(kind):
        return bool(kind.scale <= stored.scale and kind.precision - kind.scale <= stored.precision - stored.scale)
    return not (pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


def _storable(values: pa.Array) -> pa.Array:
    kind = values.type
    stored = _BY_NAME["decimal"].arrow
    if pt.is_temporal(kind):
        return values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    if stores_every_ordering(kind):
        return values.cast(stored) if pt.is_decimal(kind) else values
    if not pt.is_decimal(kind):
        return pa.nulls(len(values), pa.binary())
    wide = values.cast(pa.decimal256(76, max(kind.scale, stored.scale)))
    limit = pa.scalar(Decimal(10) ** (stored.precision - stored.scale), wide.type)
    fits = pc.less(pc.abs(wide), limit)
    if kind.scale > stored.scale:
        fits = pc.and_(fits, pc.equal(pc.round(wide, stored.scale, "towards_zero"), wide))
    return pc.if_else(fits, values, pa.scalar(None, kind)).cast(stored)


# --------------------------------------------------------------------------------------------------------- encoding


def encode_delete_block(records: DeleteRecords, header: BlockHeader) -> bytes:
    """Return a delete block (spec 7.6).

    An ordering value that is missing is stored as the int 0, which says the same: null stops readers of 0.15.

    Parameters:
        records: from :func:`delete_records`.
        header: what the block says of itself; positions, if any, one for each record.

    Raises:
        InvalidInputError: the positions are not as many as the records, or the block would pass 2 GiB.

    Example:
        >>> records = delete_records(pa.array(["k1", "k2"]), pa.array(["", "p=1"]), pa.array([None, 5]))
        >>> encode_delete_block(records, BlockHeader("20240101000000000"))[-41:-12].hex(" ", -4)
        '00000003 00000015 0402046b 31020004 0002046b 32020670 3d31060a 00'
    """
    rows = len(records)
    pieces = _text_pieces(records) + _ordering_pieces(records)
    data = encode_segments(pieces, rows) if rows else b""
    datum = b"".join((encode_long(rows), data, b"\0")) if rows else b"\0"
    lead = _PAIR.pack(CONTENT_VERSION, len(datum))
    return encode_block(BlockKind.DELETE, header.entries(rows), lead, datum)


def _text_pieces(records: DeleteRecords) -> list[Segment]:
    return measure_record(_texts(), [records.keys, records.partitions])


@cache
def _texts() -> Node:
    return plan_rows(
        '{"type":"record","name":"r","fields":[{"name":"recordKey","type":["null","string"]},'
        '{"name":"partitionPath","type":["null","string"]}]}'
    )


@cache
def _value_node(name: str) -> Node:
    return plan_rows(_value_schema(name)).parts[0]


@cache
def _value_schema(name: str) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": "value", "type": _BY_NAME[name].avro}]})


def _ordering_pieces(records: DeleteRecords) -> list[Segment]:
    rows = len(records)
    if not records.orderings:
        return [even_bytes(byte) for byte in _ALWAYS]
    spans = [_ordering_spans(ordering, rows) for ordering in records.orderings]
    if len(spans) == 1:
        return [span_segment(*spans[0][:3])]
    return _several_pieces(spans, rows)


#: Bytes, where each value begins in them, its length, and whether there is one.
_Spans = tuple[U8, I64, I64, npt.NDArray[np.bool_]]


def _ordering_spans(ordering: Ordering, rows: int) -> _Spans:
    """Return every row's branch and value; the int 0 where there is none."""
    stored = [np.frombuffer(_ALWAYS, np.uint8)]
    begins = np.zeros(rows, np.int64)
    lengths = np.full(rows, len(_ALWAYS), np.int64)
    there = np.zeros(rows, np.bool_)
    used = len(_ALWAYS)
    for name, values in ordering.items():
        valid = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        data, offsets = _branched(_BY_NAME[name], values.drop_null())
        begins[valid], lengths[valid] = offsets[:-1] + used, np.diff(offsets)
        there[valid] = True
        stored.append(data)
        used += len(data)
    return np.concatenate(stored), begins, lengths, there


def _branched(wrapper: _Wrapper, values: pa.Array) -> tuple[U8, I64]:
    """Return values with their branch before them."""
    schema = json.dumps(
        {
            "type": "record",
            "name": "r",
            "fields": [{"name": "branch", "type": "int"}, {"name": "value", "type": wrapper.avro}],
        }
    )
    branch = pa.array(np.full(len(values), wrapper.branch, np.int32))
    data, offsets = encode_rows(pa.table({"branch": branch, "value": values}), schema)
    return np.frombuffer(data, np.uint8), offsets


def _several_pieces(spans: list[_Spans], rows: int) -> list[Segment]:
    """Return several ordering values as one array; a row without any has the int 0 alone."""
    some = np.logical_or.reduce([there for *_, there in spans])
    head = np.frombuffer(_SEVERAL_HEAD + encode_long(len(spans)) + _ALWAYS + b"\0", np.uint8)
    before = len(head) - len(_ALWAYS) - 1
    pieces = [span_segment(head, np.where(some, 0, before), np.where(some, before, len(_ALWAYS)))]
    pieces += [span_segment(data, begins, np.where(some, lengths, 0)) for data, begins, lengths, _ in spans]
    return [*pieces, span_segment(head, np.full(rows, len(head) - 1), some.astype(np.int64))]


# --------------------------------------------------------------------------------------------------------- decoding


def decode_delete_content(content: bytes | memoryview, *, what: str) -> DeleteRecords:
    """Return the records of a delete block.

    Parameters:
        content: the content of the block, of version 1, 2 or 3.
        what: how the file is named in errors.

    Raises:
        CorruptFile: the content is damaged.
        UnsupportedFeature: another content version, or ordering values in a form that is not read.

    Spec 7.4, 7.6.

    Example:
        >>> content = bytes.fromhex("00000003 00000014 04 02046b31 0200 00 02046b32 0206703d31 060a 00")
        >>> records = decode_delete_content(content, what="a.log")
        >>> records.keys.to_pylist(), records.partitions.to_pylist(), records.ordering(pa.int64()).to_pylist()
        (['k1', 'k2'], ['', 'p=1'], [None, 5])
    """
    if len(content) < _PAIR.size:
        raise CorruptFile(f"{what}: delete block of {len(content)} bytes is too short")
    version, length = _PAIR.unpack_from(content)
    if version not in (1, 2, 3):
        raise UnsupportedFeature(f"{what}: delete block with content version {version}; versions 1 to 3 are read")
    if length != len(content) - _PAIR.size:
        raise CorruptFile(f"{what}: delete block of {len(content)} bytes announces {length}")
    data = bytes(content[_PAIR.size :])
    try:
        return _decode_list(data) if version == CONTENT_VERSION else _from_values(*read_kryo_deletes(data))
    except IndexError:
        raise CorruptFile(f"{what}: a delete block ends inside a record") from None
    except (DamagedInput, ValueError, struct.error) as error:
        raise CorruptFile(f"{what}: damaged delete block: {error}") from None


def _decode_list(data: bytes) -> DeleteRecords:
    source = Cursor(np.frombuffer(data, np.uint8), 0, len(data))
    at = record_starts(data)
    limit = np.full(len(at), len(data), np.int64)
    texts = []
    for part in _texts().parts:
        column, at = read_values(source, part, at, limit)
        texts.append(column)
    orderings, _ = _read_orderings(source, at, limit)
    return DeleteRecords(texts[0], texts[1], orderings)


def _read_orderings(source: Cursor, at: I64, limit: I64) -> tuple[tuple[Ordering, ...], I64]:
    branches = source.data.take(at) >> 1
    several = np.flatnonzero(branches == SEVERAL)
    if not len(several):
        ordering, end = _read_ordering(source, at, limit)
        return ((ordering,) if ordering else ()), end
    others = np.flatnonzero((branches != SEVERAL) & (branches != 0) & (branches != _INT.branch))
    if len(others):
        raise ValueError("one ordering value and several are mixed")
    counts, here = source.numbers(_value_node(_INT.name), at[several] + len(_SEVERAL_HEAD), limit[several])
    if (counts < 0).any():
        raise ValueError("several ordering values in several blocks")
    found: list[Ordering] = []
    for field in range(int(counts.max())):
        going = np.flatnonzero(counts > field)
        ordering, here[going] = _read_ordering(source, here[going], limit[going], _INSIDE)
        valid = np.zeros(len(at), np.bool_)
        valid[several[going]] = True
        found.append({name: spread(values, valid) for name, values in ordering.items()})
    return tuple(found), at


def _read_ordering(
    source: Cursor, at: I64, limit: I64, wrappers: tuple[_Wrapper, ...] = _WRAPPERS
) -> tuple[Ordering, I64]:
    """Return the values at `at`, by type, and where they end."""
    branches = source.data.take(at)
    end = at + 1
    found: dict[str, pa.Array] = {}
    for wrapper in wrappers:
        valid = branches == 2 * wrapper.branch
        there = np.flatnonzero(valid)
        if len(there):
            node = _value_node(wrapper.name)
            dense, end[there] = read_values(source, node, end[there], limit[there])
            found[wrapper.name] = spread(dense, valid)
    return found, end


def _from_values(keys: list[str], partitions: list[str], values: Mapping[str, list[object]]) -> DeleteRecords:
    ordering = {name: pa.array(column, _BY_NAME[name].arrow) for name, column in values.items()}
    texts = [pa.array(column, pa.string()) for column in (keys, partitions)]
    return DeleteRecords(texts[0], texts[1], (ordering,) if ordering else ())
