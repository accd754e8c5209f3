"""Decode Avro records to Arrow columns: where every record stands is known, the columns are read one after the other. Pure.

The reader of a column gets the offsets of its values and the end of each record; it returns the values and the offsets at
which they end, where the next column begins. No position ever passes the end of its record (:class:`ByteCursor`), so that nothing
is read, counted or allocated that the record does not hold.

An item of an array or map has a known size only when it has been walked over, so all lists take their steps together: first
items, second items and so on (:func:`find_items`). What takes many steps for few lists goes on item by item.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.arrays import distinct, from_numpy
from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.avro.columnar.plan import Node
from lakefmt._core.formats.avro.columnar.varint import I64, U8, anywhere, overlapping_words, padded, split_numbers
from lakefmt._core.formats.avro.values import read_long
from lakefmt._core.schema.types import struct_fields
from lakefmt.errors import UnsupportedFeature

__all__ = [
    "ByteCursor",
    "DamagedInput",
    "Items",
    "find_items",
    "read_columns",
    "read_values",
    "skip",
    "spread",
]

Flags = npt.NDArray[np.bool_]

#: What nulls take in Arrow may be this many times the bytes of the records, and is not limited up to the second number of bytes.
_MAX_EXPANSION = 64
_FREE_EXPANSION = 1 << 24
#: Values of these kinds have a byte at least, and their readers check where they end.
_ENDS_CHECKED = frozenset({"boolean", "int", "long", "float", "double", "string", "bytes", "enum"})
#: No record is longer.
_MOST_RECORD_BYTES = (1 << 31) - 1


_EVEN_SIZES = {"boolean": 1, "float": 4, "double": 8}
#: After this many steps over all lists at once, fewer lists than the second number are read item by item: a step costs as
#: much as reading the items of about that number of lists.
_STEPS_TOGETHER = 64
_FEW_LISTS = 128
_MAX_UNSCALED = 16
#: Returns the offset behind the value at an offset.
_Walk = Callable[[bytes, int], int]
_ValuesAndEnd = tuple[pa.Array, I64]


class DamagedInput(Exception):
    """A record does not fit its schema; :mod:`~lakefmt._core.formats.avro.columnar.codec` says of which file."""


class ByteCursor:
    """A stretch of bytes with some records, and what may still be allocated for their nulls.

    Offsets inside count from `begin`, so that they fit into Arrow's.
    """

    __slots__ = ("_free", "begin", "data", "words")

    def __init__(self, raw: U8, begin: int, end: int) -> None:
        self.begin = begin
        self.data = padded(raw, begin, end)
        self.words = overlapping_words(self.data)
        self._free = _FREE_EXPANSION + _MAX_EXPANSION * (end - begin)

    def charge(self, size: int, node: Node) -> None:
        """Count bytes that values of `node` take in Arrow and not in the file.

        Raises:
            UnsupportedFeature: it is far too many.
        """
        self._free -= size
        if self._free < 0:
            raise UnsupportedFeature(
                f"nulls of column {node.path!r} would take over {_MAX_EXPANSION} times the memory of the records"
            )

    def branches(self, node: Node, positions: I64, limit: I64) -> Flags | None:
        """Say which values of a union are there, None for all.

        Raises:
            DamagedInput: a branch that the schema does not have, or no byte is left.
        """
        # A position is never behind its record's end, and what is there is padded: a byte can be read at each.
        stored = self.data.take(positions)
        valid = stored == node.branch
        every = bool(valid.all())
        if not every or node.kind not in _ENDS_CHECKED:
            self._check(node, positions + 1, limit)
        if every:
            return None
        if node.null is None or not (valid | (stored == node.null)).all():
            raise DamagedInput(f"column {node.path!r}: a branch that its union does not have")
        return np.asarray(valid)

    def skip_bytes(self, node: Node, positions: I64, size: int, limit: I64) -> I64:
        """Return the offsets `size` bytes on.

        Raises:
            DamagedInput: a record ends before.
        """
        end = positions + size
        self._check(node, end, limit)
        return end

    def numbers(self, node: Node, positions: I64, limit: I64) -> tuple[I64, I64]:
        """Return the ints or longs at `positions`, and the offsets behind them.

        Raises:
            DamagedInput: a record ends before, or a number has more than 64 bits.
        """
        numbers, end = self._numbers(node, positions)
        self._check(node, end, limit)
        return numbers, end

    def _numbers(self, node: Node, positions: I64) -> tuple[I64, I64]:
        numbers, end, fits = split_numbers(self.data, self.words, positions)
        if not fits:
            raise DamagedInput(f"column {node.path!r}: a number of more than 64 bits")
        return numbers, end

    def spans(self, node: Node, positions: I64, limit: I64) -> tuple[I64, I64, I64]:
        """Return where the bytes of texts begin, their lengths, and where they end.

        Raises:
            DamagedInput: a length is negative or leads out of its record.
        """
        lengths, begins = self._numbers(node, positions)
        if int(lengths.view(np.uint64).max(initial=0)) > _MOST_RECORD_BYTES:  # that a negative one is, too
            raise DamagedInput(f"column {node.path!r}: a length leads out of the record")
        end = begins + lengths
        self._check(node, end, limit)
        return begins, lengths, end

    def _check(self, node: Node, end: I64, limit: I64) -> None:
        if (end > limit).any():
            raise DamagedInput(f"column {node.path!r}: a record ends too early")


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a column of lists.

    Attributes:
        counts: items of each list.
        starts: offset of each item, list by list.
        limits: end of the record that each item is in.
        end: offset behind each list.
    """

    counts: I64
    starts: I64
    limits: I64
    end: I64


def skip(source: ByteCursor, node: Node, positions: I64, limit: I64) -> I64:
    """Return where the values at `positions` end.

    Raises:
        DamagedInput: they leave their records, or are not of the schema.
    """
    if node.branch is None:
        return _skip_value(source, node, positions, limit)
    valid = source.branches(node, positions, limit)
    if valid is None:
        return _skip_value(source, node, positions + 1, limit)
    there = np.flatnonzero(valid)
    end = positions + 1
    end[there] = _skip_value(source, node, end.take(there), limit.take(there))
    return end


def _skip_value(source: ByteCursor, node: Node, positions: I64, limit: I64) -> I64:
    size = _even_size(node)
    if size:
        return source.skip_bytes(node, positions, size, limit)
    if node.kind == "record":
        return _skip_parts(source, node, positions, limit)
    if node.kind in ("array", "map"):
        return find_items(source, node, positions, limit).end
    if node.kind in ("string", "bytes"):
        return source.spans(node, positions, limit)[2]
    return source.numbers(node, positions, limit)[1]


def _skip_parts(source: ByteCursor, node: Node, positions: I64, limit: I64) -> I64:
    for part in node.parts:
        positions = skip(source, part, positions, limit)
    return positions


def _even_size(node: Node) -> int:
    """Return the bytes that every value takes after its branch; 0 when they differ."""
    if node.kind == "fixed":
        return node.size
    if node.kind == "record":
        return _even_sum(node)
    return _EVEN_SIZES.get(node.kind, 0)


def _even_sum(node: Node) -> int:
    sizes = [0 if part.branch is not None else _even_size(part) for part in node.parts]
    return sum(sizes) if all(sizes) else 0


# ----------------------------------------------------------------------------------------------------------- items


def find_items(source: ByteCursor, node: Node, positions: I64, limit: I64) -> Items:
    """Return the items of the arrays or maps at `positions`.

    Raises:
        DamagedInput: a count or an item leads out of its record.
    """
    steps = _ListSteps(source, node, positions, limit)
    while len(steps.rows):
        steps.open_blocks()
        steps.take_items()
    rows = np.concatenate([np.empty(0, np.int64), *steps.found_rows])
    starts = np.concatenate([np.empty(0, np.int64), *steps.found])
    order = np.argsort(starts, kind="stable")
    return Items(np.bincount(rows, minlength=len(positions)), starts[order], limit[rows[order]], steps.end)


@dataclass
class _ListSteps:
    """Lists that are being walked over: of each that has not ended, its row, where it stands and what its block has left."""

    source: ByteCursor
    node: Node
    at: I64
    limit: I64
    found_rows: list[I64] = field(default_factory=list)
    found: list[I64] = field(default_factory=list)
    steps: int = 0

    def __post_init__(self) -> None:
        self.at = self.at.copy()
        self.rows = np.arange(len(self.at))
        self.left = np.zeros(len(self.at), np.int64)
        self.end = self.at.copy()
        self.even = _even_sum(self.node)

    def open_blocks(self) -> None:
        """Read the counts where a block begins; lists whose last block is behind them leave."""
        opening = np.flatnonzero(self.left == 0)
        if not len(opening):
            return
        limit = self.limit[opening]
        counts, positions = self.source.numbers(self.node, self.at[opening], limit)
        sized = np.flatnonzero(counts < 0)
        if len(sized):
            counts[sized] = -counts[sized]
            positions[sized] = self.source.numbers(self.node, positions[sized], limit[sized])[1]
        # Every item takes a byte at least; the smallest number has no opposite and stays negative.
        if (counts < 0).any() or (counts > limit - positions).any():
            raise DamagedInput(f"column {self.node.path!r}: more items are announced than there are bytes")
        self.at[opening], self.left[opening] = positions, counts
        self.end[self.rows[opening]] = positions
        self._keep(self.left > 0)

    def _keep(self, going_on: np.typing.NDArray[np.bool_]) -> None:
        if not going_on.all():
            self.rows, self.at, self.left, self.limit = (
                each[going_on] for each in (self.rows, self.at, self.left, self.limit)
            )

    def take_items(self) -> None:
        """Take the next item of every list; all of a block when they are of one size, or the lists are few."""
        if self.even:
            self._take_even()
        elif self.steps >= _STEPS_TOGETHER and len(self.rows) < _FEW_LISTS:
            self._walk_rest()
        else:
            self.steps += 1
            self.found_rows.append(self.rows)
            self.found.append(self.at)
            self.at = _skip_parts(self.source, self.node, self.at, self.limit)
            self.left = self.left - 1

    def _take_even(self) -> None:
        if (self.left > (self.limit - self.at) // self.even).any():
            raise DamagedInput(f"column {self.node.path!r}: items lead out of the record")
        before = np.repeat(np.cumsum(self.left) - self.left, self.left)
        number = np.arange(int(self.left.sum())) - before
        self.found_rows.append(np.repeat(self.rows, self.left))
        self.found.append(np.repeat(self.at, self.left) + number * self.even)
        self.at = self.at + self.left * self.even
        self.left = np.zeros_like(self.left)

    def _walk_rest(self) -> None:
        walk = _walk_parts(self.node)
        for number in range(len(self.rows)):
            begin, end = int(self.at[number]), int(self.limit[number])
            record = self.source.data[begin:end].tobytes()
            starts = array("q")
            try:
                stop = _walk_items(record, 0, walk, int(self.left[number]), starts)
            except IndexError:
                raise DamagedInput(f"column {self.node.path!r}: a record ends too early") from None
            self.found_rows.append(np.full(len(starts), self.rows[number]))
            self.found.append(np.array(starts) + begin)
            self.end[self.rows[number]] = begin + stop
        self._keep(np.zeros(len(self.rows), np.bool_))


# ---------------------------------------------------------------------------------------------------- item by item


def _walk_items(record: bytes, position: int, walk: _Walk, remaining: int, starts: array[int] | None) -> int:
    """Return the end of a list that has `remaining` items to go in its block, and put down where items start."""
    while True:
        for _ in range(remaining):
            if starts is not None:
                starts.append(position)
            position = walk(record, position)
        remaining, position = read_long(record, position)
        if remaining < 0:
            remaining = -remaining
            _, position = read_long(record, position)
        if not remaining:
            return position
        if remaining > len(record) - position:
            raise IndexError


def _walk_parts(node: Node) -> _Walk:
    walks = [_walker(part) for part in node.parts]

    def walk(record: bytes, position: int) -> int:
        for each in walks:
            position = each(record, position)
        return position

    return walk


def _walker(node: Node) -> _Walk:
    value = _value_walker(node)
    if node.branch is None:
        return value

    def walk(record: bytes, position: int) -> int:
        branch = record[position]
        if branch == node.branch:
            return value(record, position + 1)
        if branch != node.null:
            raise DamagedInput(f"column {node.path!r}: a branch that its union does not have")
        return position + 1

    return walk


def _value_walker(node: Node) -> _Walk:
    size = _even_size(node)
    if size:
        return lambda _record, position: position + size
    if node.kind == "record":
        return _walk_parts(node)
    if node.kind in ("array", "map"):
        inner = _walk_parts(node)
        return lambda record, position: _walk_items(record, position, inner, 0, None)
    return _walk_text if node.kind in ("string", "bytes") else _walk_number


def _walk_text(record: bytes, position: int) -> int:
    length, position = read_long(record, position)
    if not 0 <= length <= len(record) - position:
        raise IndexError
    return position + length


def _walk_number(record: bytes, position: int) -> int:
    while record[position] > 127:
        position += 1
    return position + 1


# -------------------------------------------------------------------------------------------------------------- columns


def read_columns(
    source: ByteCursor, root: Node, begins: I64, stops: I64, column_numbers: Sequence[int]
) -> list[pa.Array]:
    """Return the columns of some records that have the numbers `column_numbers`, in this order.

    Raises:
        DamagedInput: a record does not fit the schema.
        UnsupportedFeature: nulls would take far more memory than the file.
    """
    positions, limit = begins - source.begin, stops - source.begin
    arrays: dict[int, pa.Array] = {}
    last, chosen = max(column_numbers), set(column_numbers)
    for number, part in enumerate(root.parts[: last + 1]):
        if number in chosen:
            arrays[number], positions = read_values(source, part, positions, limit)
        else:
            positions = skip(source, part, positions, limit)
    if last == len(root.parts) - 1 and not np.array_equal(positions, limit):
        raise DamagedInput("bytes are left behind the last field")
    return [arrays[number] for number in column_numbers]


def read_values(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _ValuesAndEnd:
    """Return the values of `node` that begin at `positions`, and where they end; none passes its `limit`.

    Raises:
        DamagedInput: a value does not fit.
        UnsupportedFeature: nulls would take far more memory than the file.
    """
    if node.branch is None:
        return _READERS[node.kind](source, node, positions, limit)
    valid = source.branches(node, positions, limit)
    if valid is None:
        return _READERS[node.kind](source, node, positions + 1, limit)
    there = np.flatnonzero(valid)
    source.charge((len(positions) - len(there)) * node.width, node)
    end = positions + 1
    if not len(there):
        return pa.nulls(len(positions), node.arrow), end
    dense, end[there] = _READERS[node.kind](source, node, end.take(there), limit.take(there))
    return spread(dense, valid), end


def spread(dense: pa.Array, valid: Flags) -> pa.Array:
    """Return the values with nulls between them."""
    indices = np.cumsum(valid, dtype=np.int32)
    indices -= 1
    return dense.take(from_numpy(indices, valid))


def _array_of_numbers(node: Node, values: npt.NDArray[np.generic]) -> pa.Array:
    return pa.Array.from_buffers(node.arrow, len(values), [None, pa.py_buffer(values)])


def _validated(array: pa.Array, node: Node) -> pa.Array:
    """Return an array whose values Arrow finds possible: UTF-8, times of a day, decimals of few enough digits."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DamagedInput(f"column {node.path!r}: {error}") from None
    return array


# ---------------------------------------------------------------------------------------------------- plain values


def _read_number(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _ValuesAndEnd:
    values, end = source.numbers(node, positions, limit)
    if node.kind == "int":
        if int(values.max(initial=0)) >= 1 << 31 or int(values.min(initial=0)) < -(1 << 31):
            raise DamagedInput(f"column {node.path!r}: an int of more than 32 bits")
        values = values.astype(np.int32)
    array = _array_of_numbers(node, values)
    return _validated(array, node) if pt.is_time(node.arrow) else array, end


def _read_boolean(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _ValuesAndEnd:
    end = source.skip_bytes(node, positions, 1, limit)
    values = source.data.take(positions)
    if int(values.max(initial=0)) > 1:
        raise DamagedInput(f"column {node.path!r}: a boolean is neither 0 nor 1")
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(node.arrow, len(positions), [None, pa.py_buffer(bits)]), end


def _read_float(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _ValuesAndEnd:
    size = 4 if node.kind == "float" else 8
    end = source.skip_bytes(node, positions, size, limit)
    return _array_of_numbers(node, anywhere(source.data, size)[positions]), end


def _read_fixed(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _ValuesAndEnd:
    end = source.skip_bytes(node, positions, node.size, limit)
    items = anywhere(source.data, node.size)[positions]
    if not pt.is_decimal(node.arrow):
        return _array_of_numbers(node, items), end
    return _decimals(node, items.view(np.uint8).reshape(-1, node.size)), end


def _read_enum(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _ValuesAndEnd:
    values, end = source.numbers(node, positions, limit)
    if int(values.max(initial=0)) >= len(node.symbols) or int(values.min(initial=0)) < 0:
        raise DamagedInput(f"column {node.path!r}: a symbol that the schema does not have")
    source.charge(len(positions) * max(map(len, node.symbols)), node)
    return pa.array(node.symbols, pa.string()).take(from_numpy(values)), end


# ------------------------------------------------------------------------------------------------- text and bytes


def _read_text(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _ValuesAndEnd:
    begins, lengths, end = source.spans(node, positions, limit)
    if pt.is_decimal(node.arrow):
        return _short_decimals(source, node, begins, lengths), end
    offsets = np.zeros(len(positions) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    data = _joined_spans(source, begins, lengths, end)
    buffers = [None, pa.py_buffer(offsets), data]
    array = pa.Array.from_buffers(node.arrow, len(positions), buffers)
    if node.kind == "string" and data.size and int(np.frombuffer(data, np.uint8).max()) > 127:
        _validated(array, node)
    return array, end


def _joined_spans(source: ByteCursor, begins: I64, lengths: I64, end: I64) -> pa.Buffer:
    """Return the spans of the source one behind the other."""
    length = int(lengths[0]) if len(lengths) else 0
    if (lengths == length).all():
        items = anywhere(source.data, length)[begins] if length else np.empty(0, np.uint8)
        return pa.py_buffer(items)
    # What lies between the spans are texts, too, for Arrow: every other one is taken.
    bounds = np.empty(2 * len(begins), np.int32)
    bounds[0::2] = begins
    bounds[1::2] = end
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(source.data)]
    every = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    return every.take(from_numpy(np.arange(0, len(bounds), 2, dtype=np.int32))).buffers()[2]


def _short_decimals(source: ByteCursor, node: Node, begins: I64, lengths: I64) -> pa.Array:
    table = np.empty((len(begins), _MAX_UNSCALED), np.uint8)
    for size in distinct(lengths):
        if not 0 < size <= _MAX_UNSCALED:
            raise DamagedInput(f"column {node.path!r}: a decimal of {size} bytes")
        rows = np.flatnonzero(lengths == size)
        items = anywhere(source.data, int(size))[begins[rows]].view(np.uint8).reshape(-1, int(size))
        table[rows] = _little_endian_decimals(node, items)
    return _validated(_array_of_numbers(node, table.reshape(-1).view("V16")), node)


def _decimals(node: Node, items: U8) -> pa.Array:
    return _validated(_array_of_numbers(node, _little_endian_decimals(node, items).reshape(-1).view("V16")), node)


def _little_endian_decimals(node: Node, items: U8) -> U8:
    """Return big-endian numbers as little-endian ones of sixteen bytes."""
    size = items.shape[1]
    sign = (items[:, :1] >> 7) * np.uint8(255)
    table = np.empty((len(items), _MAX_UNSCALED), np.uint8)
    extra = max(0, size - _MAX_UNSCALED)
    used = items[:, extra:]
    table[:, : size - extra] = used[:, ::-1]
    table[:, size - extra :] = sign
    if (extra and (items[:, :extra] != sign).any()) or (used[:, :1] ^ sign > 127).any():
        raise DamagedInput(f"column {node.path!r}: a decimal of more than 128 bits")
    return table


# ---------------------------------------------------------------------------------------------------------- nested


def _read_record(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _ValuesAndEnd:
    arrays = []
    for part in node.parts:
        array, positions = read_values(source, part, positions, limit)
        arrays.append(array)
    return pa.StructArray.from_arrays(arrays, fields=struct_fields(node.arrow)), positions


def _read_items(source: ByteCursor, node: Node, positions: I64, limit: I64) -> _ValuesAndEnd:
    items = find_items(source, node, positions, limit)
    offsets = np.zeros(len(positions) + 1, np.int32)
    np.cumsum(items.counts, out=offsets[1:])
    arrays, here = [], items.starts
    for part in node.parts:
        array, here = read_values(source, part, here, items.limits)
        arrays.append(array)
    inner = arrays[0]
    if node.kind == "map":
        fields = [pa.field("key", pa.string(), nullable=False), node.arrow.item_field]
        inner = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.Array.from_buffers(node.arrow, len(positions), [None, pa.py_buffer(offsets)], children=[inner]), items.end


_READERS: dict[str, Callable[[ByteCursor, Node, I64, I64], _ValuesAndEnd]] = {
    "boolean": _read_boolean,
    "int": _read_number,
    "long": _read_number,
    "float": _read_float,
    "double": _read_float,
    "bytes": _read_text,
    "string": _read_text,
    "fixed": _read_fixed,
    "enum": _read_enum,
    "record": _read_record,
    "array": _read_items,
    "map": _read_items,
}
