"""Arrow columns to Avro records: which pieces they are made of, and what every value takes. Pure.

How the pieces come to their places is said in :mod:`~lakefmt._core.formats.avro.columnar.segments`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import common_length, text_offsets
from lakefmt._core.formats.avro.columnar.plan import Node
from lakefmt._core.formats.avro.columnar.segments import (
    Even,
    Numbers,
    Optional,
    Repeated,
    Segment,
    Spans,
    masked,
    place_records,
    total_sizes,
)
from lakefmt._core.formats.avro.columnar.varint import (
    I64,
    U8,
    U64,
    Out,
    number_sizes,
    number_words,
    padded,
    voids,
    zigzag,
)
from lakefmt._core.formats.avro.writer import encode_long
from lakefmt.errors import SchemaMismatch

__all__ = ["encode_segments", "even_bytes", "length_segment", "measure_record", "span_segment"]

#: Kinds whose columns have a value of any bytes where they have a null.
_PLAIN = ("int", "long", "float", "double", "boolean", "string", "bytes", "fixed")


def encode_segments(segments: list[Segment], rows: int) -> memoryview:
    """Return records one behind the other."""
    ends = np.cumsum(total_sizes(segments, rows))
    out = Out(int(ends[-1]) if rows else 0)
    if rows:
        place_records(segments, out, np.concatenate([[0], ends[:-1]]))
    return out.data[: int(ends[-1]) if rows else 0].data


def even_bytes(byte: int) -> Segment:
    """Return the piece that is one byte, the same in every record."""
    return Even(1, bytes([byte]))


def length_segment(lengths: I64) -> Segment:
    """Return the piece that is a number of four bytes, as a record's length is stored before it."""
    return Even(4, voids(lengths.astype(">u4"), 4))


def span_segment(data: U8, begins: I64, lengths: I64) -> Segment:
    """Return the piece that is a span of `data` in every record, as it is."""
    return _span_segment(padded(data, 0, len(data)), begins, lengths)


def _span_segment(source: U8, begins: I64, lengths: I64) -> Spans:
    return Spans(source, begins, lengths, int(lengths.min(initial=0)), int(lengths.max(initial=0)))


# -------------------------------------------------------------------------------------------------------- measuring


def measure_record(node: Node, columns: list[pa.Array]) -> list[Segment]:
    """Return the pieces of records whose fields are `columns`, in the schema's order.

    Raises:
        SchemaMismatch: a null where the schema has none, or a text that is none of an enum's symbols.
    """
    return [segment for part, column in zip(node.parts, columns, strict=True) for segment in _measure(part, column)]


def _measure(node: Node, column: pa.Array) -> list[Segment]:
    if not column.null_count:
        branch: list[Segment] = [] if node.branch is None else [even_bytes(node.branch)]
        return branch + _values(node, column)
    if node.null is None or node.branch is None:
        raise SchemaMismatch(
            f"column {node.path!r} has {column.null_count} nulls and its Avro schema allows none: fill them, or make "
            "the column nullable"
        )
    if column.null_count == len(column):
        return [even_bytes(node.null)]
    valid = _valid(column)
    branches = valid * np.uint8((node.branch - node.null) & 0xFF) + np.uint8(node.null)
    if node.kind in _PLAIN and not pa.types.is_decimal(node.arrow):
        flat = masked(branches, valid, _values(node, column, valid))
        if flat is not None:
            return [flat]
    there = np.flatnonzero(valid)
    inner = _values(node, column.drop_null())
    size = np.ones(len(column), np.int64)
    size[there] += total_sizes(inner, len(there))
    return [Optional(branches, there, inner, size, 1)]


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which values are no null."""
    return _bits(column.buffers()[0], column.offset, len(column))


def _bits(buffer: pa.Buffer, first: int, count: int) -> npt.NDArray[np.bool_]:
    raw = np.frombuffer(buffer, np.uint8, (first % 8 + count + 7) // 8, first // 8)
    return np.unpackbits(raw, count=first % 8 + count, bitorder="little")[first % 8 :].view(np.bool_)


def _values(node: Node, column: pa.Array, valid: npt.NDArray[np.bool_] | None = None) -> list[Segment]:
    """Return the pieces of a column without nulls; with `valid`, of a plain column, something for every null, too."""
    if not len(column):
        return []
    kind = node.kind
    if kind in ("int", "long"):
        numbers = _raw(column, np.int32 if kind == "int" else np.int64).astype(np.int64)
        return _number_pieces(numbers if valid is None else numbers * valid)
    if kind in ("float", "double"):
        items = _raw(column, np.float32 if kind == "float" else np.float64)
        return [Even(items.itemsize, voids(items, items.itemsize))]
    if kind == "boolean":
        return [Even(1, voids(_bits(column.buffers()[1], column.offset, len(column)), 1))]
    if kind == "record":
        return measure_record(node, [column.field(number) for number in range(len(node.parts))])
    if kind in ("array", "map"):
        return _repeated(node, column)
    if kind == "enum":
        return _number_pieces(_symbol_numbers(node, column))
    if pa.types.is_decimal(node.arrow):
        return _decimals(node, column)
    if kind == "fixed":
        return [Even(node.size, voids(_raw(column, f"V{node.size}"), node.size))]
    return _text(column, valid)


def _raw(column: pa.Array, kind: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """Return the values of a column of fixed width as they are in memory."""
    dtype = np.dtype(kind)
    buffer = column.buffers()[1]
    if buffer is None:
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, len(column), column.offset * dtype.itemsize)


def _number_pieces(values: I64) -> list[Segment]:
    return _counted(zigzag(values))


def _counted(numbers: U64) -> list[Segment]:
    least, most, size = number_sizes(numbers)
    if not (isinstance(size, int) and size <= 8):
        return [Numbers(numbers, size, least, most)]
    if numbers[0] == numbers[-1] and (numbers == numbers[0]).all():
        return [Even(size, number_words(numbers[:1], size, size).tobytes()[:size])]
    return [Even(size, voids(number_words(numbers, size, size), size))]


def _text(column: pa.Array, valid: npt.NDArray[np.bool_] | None) -> list[Segment]:
    data = column.buffers()[2]
    if data is None or not data.size:
        return [even_bytes(0)]
    offsets = text_offsets(column)
    begin, end = int(offsets[0]), int(offsets[-1])
    length = common_length(offsets) if valid is None else None
    if length is not None:
        return _even_text(data.slice(begin, end - begin), length)
    lengths = np.diff(offsets)
    if valid is not None:
        lengths *= valid
    begins = np.subtract(offsets[:-1], begin, dtype=np.int64)
    return _spans(padded(np.frombuffer(data, np.uint8), begin, end), begins, lengths.astype(np.int64))


def _even_text(data: pa.Buffer, length: int) -> list[Segment]:
    lead = encode_long(length)
    if not length:
        return [Even(1, lead)]
    if data.slice(length).equals(data.slice(0, data.size - length)):  # all are the same
        return [Even(len(lead) + length, lead + data.slice(0, length).to_pybytes())]
    return [Even(len(lead), lead), Even(length, np.frombuffer(data, f"V{length}"))]


def _spans(source: U8, begins: I64, lengths: I64) -> list[Segment]:
    span = _span_segment(source, begins, lengths)
    if span.most < 64:  # twice the length is its number, of one byte
        return [Even(1, voids((lengths << 1).astype(np.uint8), 1)), span]
    return [*_number_pieces(lengths), span]


def _decimals(node: Node, column: pa.Array) -> list[Segment]:
    """Return unscaled numbers as big-endian two's complement: of the fixed's size, or as short as possible."""
    stored = _raw(column, np.dtype("V16"))
    table = stored.view(np.uint8).reshape(-1, 16)[:, ::-1]
    rows = len(column)
    if node.kind == "fixed":
        size = node.size
        made = np.empty((rows, size), np.uint8)
        made[:, max(0, size - 16) :] = table[:, max(0, 16 - size) :]
        made[:, : max(0, size - 16)] = (table[:, :1] >> 7) * np.uint8(255)
        return [Even(size, made.reshape(-1).view(f"V{size}"))]
    words = stored.view("<i8").reshape(-1, 2)
    # The magnitude's bits, without the sign; of the high word as soon as it has any.
    low, high = (words[:, number] ^ (words[:, 1] >> 63) for number in (0, 1))
    unsigned = np.where(high != 0, high, low).view(np.uint64)
    lengths = np.where(high != 0, 9, 1).astype(np.int64)
    for size in range(1, 8):
        lengths += unsigned >= np.uint64(1 << 8 * size - 1)
    lengths += (high == 0) & (unsigned >= np.uint64(1 << 63))
    source = np.ascontiguousarray(table).reshape(-1)
    begins = np.arange(1, rows + 1) * 16 - lengths
    return _spans(padded(source, 0, len(source)), begins, lengths)


def _symbol_numbers(node: Node, column: pa.Array) -> I64:
    numbers = pc.index_in(column, pa.array(node.symbols, pa.string()))
    if numbers.null_count:
        raise SchemaMismatch(
            f"column {node.path!r} has {numbers.null_count} values that are none of the symbols {', '.join(node.symbols)}"
        )
    return np.asarray(numbers, np.int64)


def _repeated(node: Node, column: pa.Array) -> list[Segment]:
    offsets = column.offsets.to_numpy().astype(np.int64)
    first, items = int(offsets[0]), int(offsets[-1] - offsets[0])
    children = [column.keys, column.items] if node.kind == "map" else [column.values]
    parts = zip(node.parts, children, strict=True)
    inner = [segment for part, child in parts for segment in _measure(part, child.slice(first, items))]
    before = np.concatenate([[0], np.cumsum(total_sizes(inner, items))])
    begins = before[offsets[:-1] - first]
    counts = np.diff(offsets)
    numbers = zigzag(counts)
    _, _, number_size = number_sizes(numbers)
    size = before[offsets[1:] - first] - begins + np.where(counts > 0, number_size, 0) + 1
    return [Repeated(counts, numbers, number_size, inner, before, begins, size, int(size.min(initial=1)))]
