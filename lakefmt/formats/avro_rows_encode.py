"""Arrow columns to Avro records: what every value takes, then every value to its place. Pure.

A record is a row of *pieces*: bytes of one size for all rows of a block (:class:`_Even`), numbers or text of various
sizes, the values of an optional column, the items of a list. Measuring says how many bytes each takes in each row; from
that follows where each begins, and it is stored there, one piece after the other. Neighbours of one size are put together
first and stored as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.errors import SchemaMismatch
from lakefmt.formats.avro_rows_plan import Node
from lakefmt.formats.avro_rows_words import (
    I64,
    U8,
    U64,
    Out,
    copy_spans,
    number_sizes,
    number_words,
    padded,
    voids,
    zigzag,
)

__all__ = ["Piece", "encode_pieces", "even_bytes", "measure_record", "place", "span_piece", "total_sizes"]

Void = npt.NDArray[np.void]

#: A store that writes too much writes at most this many bytes too many.
_SPILL = 7
#: Neighbours are put together up to so many bytes: more would be moved twice for nothing.
_MAX_TOGETHER = 256


class Piece(Protocol):
    """A part of every record of a block."""

    @property
    def size(self) -> I64 | int:
        """Bytes of each value; one int when all agree."""

    @property
    def least(self) -> int:
        """Bytes of the smallest value."""

    def put(self, out: Out, at: I64, room: int) -> None:
        """Store the values; `room` bytes behind every value are written later."""


@dataclass(slots=True)
class _Even:
    """Values of one size: a byte that is the same everywhere, or items."""

    size: int
    items: Void | int

    @property
    def least(self) -> int:
        return self.size

    def put(self, out: Out, at: I64, room: int) -> None:
        if isinstance(self.items, int):
            out.put_bytes(at, self.items)
        elif self.size == 1:
            out.put_bytes(at, self.items.view(np.uint8))
        else:
            out.put_items(at, self.items)


@dataclass(slots=True)
class _Numbers:
    """Numbers of variable length."""

    numbers: U64
    size: I64 | int
    least: int
    most: int

    def put(self, out: Out, at: I64, room: int) -> None:
        words = number_words(self.numbers, self.size)
        sizes = self.size if self.most <= 8 else np.minimum(self.size, 8)
        out.put_words(at, words, sizes, spill=room >= _SPILL)
        if self.most > 8:
            self._put_tails(out, at, np.broadcast_to(self.size, at.shape))

    def _put_tails(self, out: Out, at: I64, sizes: I64) -> None:
        nine = np.flatnonzero(sizes > 8)
        rest = self.numbers[nine] >> np.uint64(56)
        ten = sizes[nine] > 9
        ninth = (rest & np.uint64(127)) | np.where(ten, np.uint64(128), np.uint64(0))
        out.put_bytes(at[nine] + 8, ninth.astype(np.uint8))
        out.put_bytes(at[nine[ten]] + 9, (rest[ten] >> np.uint64(7)).astype(np.uint8))


@dataclass(slots=True)
class _Spans:
    """Bytes of various lengths."""

    source: U8
    begins: I64
    size: I64
    least: int

    def put(self, out: Out, at: I64, room: int) -> None:
        copy_spans(out, at, self.source, self.begins, self.size, spill=room >= _SPILL)


@dataclass(slots=True)
class _Optional:
    """A column some of whose values are null: the branch of each row, and the values that are there."""

    branches: U8
    there: I64
    inner: list[Piece]
    size: I64
    least: int

    def put(self, out: Out, at: I64, room: int) -> None:
        out.put_bytes(at, self.branches)
        place(self.inner, out, at.take(self.there) + 1, room)


@dataclass(slots=True)
class _Repeated:
    """Arrays and maps: the number of items, the items, and a zero; an empty one is the zero alone."""

    counts: I64
    numbers: U64
    number_size: I64 | int
    inner: list[Piece]
    before: I64
    begins: I64
    size: I64
    least: int

    def put(self, out: Out, at: I64, room: int) -> None:
        some = np.flatnonzero(self.counts)
        sizes = self.number_size if isinstance(self.number_size, int) else self.number_size[some]
        words = number_words(self.numbers[some], sizes)
        out.put_words(at[some], words, sizes, spill=False)
        first = at + np.where(self.counts > 0, self.number_size, 0) - self.begins
        place(self.inner, out, np.repeat(first, self.counts) + self.before[:-1], 0)
        out.put_bytes(at + self.size - 1, 0)


# ---------------------------------------------------------------------------------------------------------- placing


def total_sizes(pieces: list[Piece], rows: int) -> I64:
    """Return the bytes that all pieces of each record take together."""
    even = sum(piece.size for piece in pieces if isinstance(piece.size, int))
    total = np.full(rows, even, np.int64)
    for piece in pieces:
        if not isinstance(piece.size, int):
            total += piece.size
    return total


def place(pieces: list[Piece], out: Out, at: I64, room: int) -> None:
    """Store records: the first pieces at `at`, each other one behind the one before it."""
    groups = _grouped(pieces)
    rooms = room + sum(piece.least for group in groups for piece in group)
    for group in groups:
        rooms -= sum(piece.least for piece in group)
        piece = group[0] if len(group) == 1 else _together(group, len(at))
        piece.put(out, at, rooms)
        at = at + piece.size


def _grouped(pieces: list[Piece]) -> list[list[Piece]]:
    """Return runs of neighbours that can be stored as one."""
    groups: list[list[Piece]] = []
    width = _MAX_TOGETHER + 1
    for piece in pieces:
        even = isinstance(piece, _Even)
        width += piece.least if even else _MAX_TOGETHER
        if not even or width > _MAX_TOGETHER:
            groups.append([])
            width = piece.least if even else _MAX_TOGETHER + 1
        groups[-1].append(piece)
    return groups


def _together(group: list[Piece], rows: int) -> Piece:
    """Return neighbours of one size each as one piece."""
    evens = [piece for piece in group if isinstance(piece, _Even)]
    width = sum(piece.size for piece in evens)
    table = np.empty((rows, width), np.uint8)
    at = 0
    for piece in evens:
        if isinstance(piece.items, int):
            table[:, at] = piece.items
        else:
            np.ndarray((rows,), f"V{piece.size}", table, at, (width,))[...] = piece.items
        at += piece.size
    return _Even(width, voids(table.reshape(-1).view(f"V{width}"), width))


def encode_pieces(pieces: list[Piece], rows: int) -> memoryview:
    """Return records one behind the other."""
    ends = np.cumsum(total_sizes(pieces, rows))
    out = Out(int(ends[-1]) if rows else 0)
    if rows:
        place(pieces, out, np.concatenate([[0], ends[:-1]]), 0)
    return out.data[: int(ends[-1]) if rows else 0].data


def even_bytes(byte: int) -> Piece:
    """Return the piece that is one byte, the same in every record."""
    return _Even(1, byte)


def span_piece(data: U8, begins: I64, lengths: I64) -> Piece:
    """Return the piece that is a span of `data` in every record, as it is."""
    return _Spans(padded(data, 0, len(data)), begins, lengths, int(lengths.min(initial=0)))


# -------------------------------------------------------------------------------------------------------- measuring


def measure_record(node: Node, columns: list[pa.Array]) -> list[Piece]:
    """Return the pieces of records whose fields are `columns`, in the schema's order.

    Raises:
        SchemaMismatch: a null where the schema has none, or a text that is none of an enum's symbols.
    """
    return [piece for part, column in zip(node.parts, columns, strict=True) for piece in _measure(part, column)]


def _measure(node: Node, column: pa.Array) -> list[Piece]:
    if not column.null_count:
        branch: list[Piece] = [] if node.branch is None else [_Even(1, node.branch)]
        return branch + _values(node, column)
    if node.null is None or node.branch is None:
        raise SchemaMismatch(
            f"column {node.path!r} has {column.null_count} nulls and its Avro schema allows none: fill them, or make "
            "the column nullable"
        )
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    there = np.flatnonzero(valid)
    inner = _values(node, column.drop_null())
    size = np.ones(len(column), np.int64)
    size[there] += total_sizes(inner, len(there))
    branches = np.where(valid, np.uint8(node.branch), np.uint8(node.null))
    return [_Optional(branches, there, inner, size, 1)]


def _values(node: Node, column: pa.Array) -> list[Piece]:
    """Return the pieces of a column without nulls."""
    if not len(column):
        return []
    kind = node.kind
    if kind in ("int", "long"):
        return _number_pieces(_raw(column, np.int32 if kind == "int" else np.int64).astype(np.int64))
    if kind in ("float", "double"):
        items = _raw(column, np.float32 if kind == "float" else np.float64)
        return [_Even(items.itemsize, voids(items, items.itemsize))]
    if kind == "boolean":
        return [_Even(1, voids(column.cast(pa.uint8()).to_numpy(), 1))]
    if kind == "record":
        return measure_record(node, [column.field(number) for number in range(len(node.parts))])
    if kind in ("array", "map"):
        return _repeated(node, column)
    if kind == "enum":
        return _number_pieces(_symbol_numbers(node, column))
    if pa.types.is_decimal(node.arrow):
        return _decimals(node, column)
    if kind == "fixed":
        return [_Even(node.size, voids(_raw(column, f"V{node.size}"), node.size))]
    return _text(column)


def _raw(column: pa.Array, kind: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """Return the values of a column of fixed width as they are in memory."""
    dtype = np.dtype(kind)
    buffer = column.buffers()[1]
    if buffer is None:
        return np.empty(0, dtype)
    return np.frombuffer(buffer, dtype, len(column), column.offset * dtype.itemsize)


def _number_pieces(values: I64) -> list[Piece]:
    return _counted(zigzag(values))


def _counted(numbers: U64) -> list[Piece]:
    least, most, size = number_sizes(numbers)
    if isinstance(size, int) and size <= 8:
        return [_Even(size, voids(number_words(numbers, size), size))]
    return [_Numbers(numbers, size, least, most)]


def _text(column: pa.Array) -> list[Piece]:
    _, offset_buffer, data_buffer = column.buffers()
    if data_buffer is None or not data_buffer.size:
        return [_Even(1, 0)]
    offsets = np.frombuffer(offset_buffer, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    lengths = np.diff(offsets)
    begin, end = int(offsets[0]), int(offsets[-1])
    source = np.frombuffer(data_buffer, np.uint8)
    length = int(lengths[0])
    if (lengths == length).all():
        items: list[Piece] = [_Even(length, source[begin:end].view(f"V{length}"))] if length else []
        return _counted(np.full(len(lengths), 2 * length, np.uint64)) + items
    return _spans(padded(source, begin, end), offsets[:-1] - begin, lengths)


def _spans(source: U8, begins: I64, lengths: I64) -> list[Piece]:
    return [*_number_pieces(lengths), _Spans(source, begins, lengths, int(lengths.min()))]


def _decimals(node: Node, column: pa.Array) -> list[Piece]:
    """Return unscaled numbers as big-endian two's complement: of the fixed's size, or as short as possible."""
    stored = _raw(column, np.dtype("V16"))
    table = stored.view(np.uint8).reshape(-1, 16)[:, ::-1]
    rows = len(column)
    if node.kind == "fixed":
        size = node.size
        made = np.empty((rows, size), np.uint8)
        made[:, max(0, size - 16) :] = table[:, max(0, 16 - size) :]
        made[:, : max(0, size - 16)] = (table[:, :1] >> 7) * np.uint8(255)
        return [_Even(size, made.reshape(-1).view(f"V{size}"))]
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
    found = pc.index_in(column, pa.array(node.symbols, pa.string()))
    if found.null_count:
        raise SchemaMismatch(
            f"column {node.path!r} has {found.null_count} values that are none of the symbols {', '.join(node.symbols)}"
        )
    return np.asarray(found, np.int64)


def _repeated(node: Node, column: pa.Array) -> list[Piece]:
    offsets = column.offsets.to_numpy().astype(np.int64)
    first, items = int(offsets[0]), int(offsets[-1] - offsets[0])
    children = [column.keys, column.items] if node.kind == "map" else [column.values]
    parts = zip(node.parts, children, strict=True)
    inner = [piece for part, child in parts for piece in _measure(part, child.slice(first, items))]
    before = np.concatenate([[0], np.cumsum(total_sizes(inner, items))])
    begins = before[offsets[:-1] - first]
    counts = np.diff(offsets)
    numbers = zigzag(counts)
    _, _, number_size = number_sizes(numbers)
    size = before[offsets[1:] - first] - begins + np.where(counts > 0, number_size, 0) + 1
    return [_Repeated(counts, numbers, number_size, inner, before, begins, size, int(size.min(initial=1)))]
