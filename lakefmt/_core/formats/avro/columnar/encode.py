"""Arrow columns to Avro records: which pieces they are made of, and what every value takes. Pure.

A record is a row of *pieces*: bytes of one size for all rows of a block (:class:`Even`), numbers or text of various
sizes, the values of an optional column, the items of a list. Each says how many bytes it takes in each row; from that
follows where each begins.

A store costs about the same for one byte and for fifty. So neighbours are laid side by side first and stored as one: any
number of even pieces and one of varying size behind them, which is laid as if all its values were as long as the longest.
What it stores beyond a shorter value (its *spill*) is written over by what is stored later. For that the even pieces that
a record begins with come last: a spill behind the end of a record falls on the next one's beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import common_length, text_offsets
from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.avro.columnar.plan import Node
from lakefmt._core.formats.avro.columnar.varint import (
    I64,
    PADDING,
    U8,
    U64,
    Out,
    anywhere,
    copy_spans,
    number_sizes,
    number_words,
    padded,
    voids,
    zigzag,
)
from lakefmt._core.formats.avro.values import encode_long
from lakefmt.errors import SchemaMismatch

__all__ = [
    "Segment",
    "encode_segments",
    "even_bytes",
    "length_segment",
    "measure_record",
    "place_records",
    "span_segment",
    "total_sizes",
]

Void = npt.NDArray[np.void]
#: Bytes that stand side by side in all rows: an item of each, or the same for all.
_Part = Void | bytes

#: A store of a word writes at most this many bytes too many.
_SPILL = 7
#: Adjacent segments are joined up to this many bytes: copying more would cost more than it saves.
_MAX_TOGETHER = 256


class Segment(Protocol):
    """A part of every record of a block."""

    @property
    def size(self) -> I64 | int:
        """Bytes of each value; one int when all agree."""

    @property
    def least(self) -> int:
        """Bytes of the smallest value."""

    def put(self, out: Out, positions: I64, room: int) -> None:
        """Store the values; `room` bytes behind every value are written later."""


class Flat(Segment, Protocol):
    """A piece whose values can be laid side by side with those of its neighbours, all equally wide."""

    @property
    def width(self) -> int:
        """Bytes reserved for every value; 0: these values are too long."""

    def parts(self) -> list[_Part]:
        """Return the values, laid."""

    def take(self, rows: I64) -> Flat:
        """Return the piece of some rows."""


@dataclass(slots=True)
class Even:
    """Values of one size: items, or bytes that are the same everywhere."""

    size: int
    items: _Part

    @property
    def least(self) -> int:
        """The size of every value."""
        return self.size

    @property
    def width(self) -> int:
        """The same as `size`."""
        return self.size

    def parts(self) -> list[_Part]:
        """Return the items."""
        return [self.items]

    def put(self, out: Out, positions: I64, room: int) -> None:
        """Store the items, no byte more."""
        out.put_items(positions, _join_segments(self.parts(), len(positions)))

    def take(self, rows: I64) -> Flat:
        """Return the items of some rows."""
        return self if isinstance(self.items, bytes) else Even(self.size, self.items[rows])


@dataclass(slots=True)
class Numbers:
    """Numbers of variable length."""

    numbers: U64
    size: I64 | int
    least: int
    most: int

    @property
    def width(self) -> int:
        """Bytes of a word; numbers that do not fit into one cannot be laid."""
        return 0 if self.most > 8 else _quick(self.most)

    def parts(self) -> list[_Part]:
        """Return the words."""
        return [voids(number_words(self.numbers, self.size, self.most), self.width)]

    def put(self, out: Out, positions: I64, room: int) -> None:
        """Store each number's own bytes."""
        words = number_words(self.numbers, self.size, self.most)
        sizes = self.size if self.most <= 8 else np.minimum(self.size, 8)
        out.put_words(positions, words, sizes, spill=room >= _SPILL)
        if self.most > 8:
            self._put_tails(out, positions, np.broadcast_to(self.size, positions.shape))

    def _put_tails(self, out: Out, positions: I64, sizes: I64) -> None:
        nine = np.flatnonzero(sizes > 8)
        rest = self.numbers[nine] >> np.uint64(56)
        ten = sizes[nine] > 9
        ninth = (rest & np.uint64(127)) | np.where(ten, np.uint64(128), np.uint64(0))
        out.put_bytes(positions[nine] + 8, ninth.astype(np.uint8))
        out.put_bytes(positions[nine[ten]] + 9, (rest[ten] >> np.uint64(7)).astype(np.uint8))

    def take(self, rows: I64) -> Flat:
        """Return the numbers of some rows."""
        size = self.size if isinstance(self.size, int) else self.size[rows]
        return Numbers(self.numbers[rows], size, self.least, self.most)


@dataclass(slots=True)
class Spans:
    """Bytes of `source`, which is padded; of various lengths."""

    source: U8
    begins: I64
    size: I64
    least: int
    most: int

    @property
    def width(self) -> int:
        """Bytes of the longest span; long ones are copied in chunks instead."""
        return 0 if self.most > PADDING else _quick(self.most)

    def parts(self) -> list[_Part]:
        """Return as many bytes from each beginning on."""
        return [anywhere(self.source, self.width)[self.begins]]

    def put(self, out: Out, positions: I64, room: int) -> None:
        """Copy each span's own bytes."""
        copy_spans(out, positions, self.source, self.begins, self.size, spill=room >= _SPILL)

    def take(self, rows: I64) -> Flat:
        """Return the spans of some rows."""
        return Spans(self.source, self.begins[rows], self.size[rows], self.least, self.most)


@dataclass(slots=True)
class Masked:
    """A column some of whose values are null, laid as if none were: the branch, and any value behind that of a null.

    Only the last piece of `inner` is of various sizes.
    """

    branches: U8
    valid: npt.NDArray[np.bool_]
    inner: Sequence[Flat]
    size: I64
    least: int = 1

    @property
    def width(self) -> int:
        """Bytes of a branch and of the widest value."""
        return 1 + sum(segment.width for segment in self.inner)

    def parts(self) -> list[_Part]:
        """Return the branches, and values for all rows."""
        return [voids(self.branches, 1), *(part for segment in self.inner for part in segment.parts())]

    def put(self, out: Out, positions: I64, room: int) -> None:
        """Store the branches, and the values that are there."""
        there = np.flatnonzero(self.valid)
        inner: list[Segment] = [segment.take(there) for segment in self.inner]
        Optional(self.branches, there, inner, self.size, 1).put(out, positions, room)

    def take(self, rows: I64) -> Flat:
        """Return the column's values of some rows."""
        return Masked(self.branches[rows], self.valid[rows], [each.take(rows) for each in self.inner], self.size[rows])


@dataclass(slots=True)
class Optional:
    """A column some of whose values are null: the branch of each row, and the values that are there."""

    branches: U8
    there: I64
    inner: list[Segment]
    size: I64
    least: int

    def put(self, out: Out, positions: I64, room: int) -> None:
        """Store the branches, and the values that are there."""
        out.put_bytes(positions, self.branches)
        place_segments(self.inner, out, positions.take(self.there) + 1, room)


@dataclass(slots=True)
class Repeated:
    """Arrays and maps: the number of items, the items, and a zero; an empty one is the zero alone."""

    counts: I64
    numbers: U64
    number_size: I64 | int
    inner: list[Segment]
    before: I64
    begins: I64
    size: I64
    least: int

    def put(self, out: Out, positions: I64, room: int) -> None:
        """Store counts, items and the zeros behind them."""
        non_empty = np.flatnonzero(self.counts)
        sizes = self.number_size if isinstance(self.number_size, int) else self.number_size[non_empty]
        words = number_words(self.numbers[non_empty], sizes)
        out.put_words(positions[non_empty], words, sizes, spill=False)
        first = positions + np.where(self.counts > 0, self.number_size, 0) - self.begins
        place_segments(self.inner, out, np.repeat(first, self.counts) + self.before[:-1], 0)
        out.put_bytes(positions + self.size - 1, 0)


_FLAT = (Even, Numbers, Spans, Masked)


def masked(branches: U8, valid: npt.NDArray[np.bool_], inner: list[Segment]) -> Masked | None:
    """Return a column with nulls, `inner` having a value for every row; None where they cannot be laid side by side."""
    flat = [segment for segment in inner if isinstance(segment, _FLAT) and segment.width]
    if len(flat) < len(inner) or sum(segment.width for segment in flat) >= PADDING:
        return None
    even = sum(segment.size for segment in inner if isinstance(segment.size, int))
    size = valid * np.int64(even) + 1
    for number, segment in enumerate(inner, 1):
        if not isinstance(segment.size, int):
            if number < len(inner):
                return None
            size += segment.size * valid
    return Masked(branches, valid, flat, size)


def _quick(size: int) -> int:
    """Return the next size whose items are moved quickly: numpy does powers of two up to 16 twice as fast."""
    return size if size > 16 or not size else 1 << (size - 1).bit_length()


# ---------------------------------------------------------------------------------------------------------- placing


def total_sizes(segments: list[Segment], rows: int) -> I64:
    """Return the bytes that all pieces of each record take together."""
    even = sum(segment.size for segment in segments if isinstance(segment.size, int))
    total = np.full(rows, even, np.int64)
    for segment in segments:
        if not isinstance(segment.size, int):
            total += segment.size
    return total


def place_records(segments: list[Segment], out: Out, positions: I64) -> None:
    """Store the records of a block; what follows it may be damaged by fewer than :data:`PADDING` bytes."""
    evens = [isinstance(segment, Even) for segment in segments]
    first = evens.index(False) if False in evens else len(evens)
    room = sum(segment.least for segment in segments[:first])
    place_segments(segments[first:], out, positions + room, room)
    place_segments(segments[:first], out, positions, 0)


def place_segments(segments: list[Segment], out: Out, positions: I64, room: int) -> None:
    """Store values: those of the first piece at `positions`, of each other piece behind the one before it.

    `room` bytes behind all of them are written later.
    """
    run: list[Flat] = []
    width, behind = 0, room + sum(segment.least for segment in segments)
    for segment in segments:
        behind -= segment.least
        wide = segment.width if isinstance(segment, _FLAT) else 0
        fits = 0 < wide <= segment.least + behind
        if run and (not fits or width + wide > _MAX_TOGETHER):
            positions, run, width = _put_run(run, out, positions), [], 0
        if not (fits and isinstance(segment, _FLAT)):
            segment.put(out, positions, behind)
            positions = positions + segment.size
            continue
        run.append(segment)
        width += wide
        if not isinstance(segment.size, int):
            positions, run, width = _put_run(run, out, positions), [], 0
    if run:
        _put_run(run, out, positions)


def _put_run(run: list[Flat], out: Out, positions: I64) -> I64:
    """Store neighbours as one, and return where what follows them begins."""
    out.put_items(positions, _join_segments([part for segment in run for part in segment.parts()], len(positions)))
    positions = positions + sum(segment.size for segment in run if isinstance(segment.size, int))
    last = run[-1].size
    return positions if isinstance(last, int) else positions + last


def _join_segments(parts: list[_Part], rows: int) -> Void:
    """Return bytes that stand side by side as one item per row, or one for all rows."""
    parts = _merged(parts)
    if len(parts) == 1:
        return _items(parts[0])
    each = [_items(part) for part in parts]
    width = sum(items.itemsize for items in each)
    table = np.empty((rows, width), np.uint8)
    begin = 0
    for items in each:
        if len(items) == items.itemsize == 1 < rows:
            table[:, begin] = items.view(np.uint8)
        else:
            np.ndarray((rows,), items.dtype, table, begin, (width,))[...] = items
        begin += items.itemsize
    return voids(table.reshape(-1).view(f"V{width}"), width)


def _merged(parts: list[_Part]) -> list[_Part]:
    """Return parts, neighbours that are the same everywhere as one."""
    merged: list[_Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, bytes) and isinstance(last, bytes):
            merged[-1] = last + part
        else:
            merged.append(part)
    return merged


def _items(part: _Part) -> Void:
    return np.frombuffer(part, f"V{len(part)}") if isinstance(part, bytes) else part


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
    return _text_segments(column, valid)


def _raw(column: pa.Array, dtype_like: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """Return the values of a column of fixed width as they are in memory."""
    dtype = np.dtype(dtype_like)
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


def _text_segments(column: pa.Array, valid: npt.NDArray[np.bool_] | None) -> list[Segment]:
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
        digits = np.empty((rows, size), np.uint8)
        digits[:, max(0, size - 16) :] = table[:, max(0, 16 - size) :]
        digits[:, : max(0, size - 16)] = (table[:, :1] >> 7) * np.uint8(255)
        return [Even(size, digits.reshape(-1).view(f"V{size}"))]
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
