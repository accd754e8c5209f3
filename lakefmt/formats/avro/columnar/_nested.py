"""Where values of Avro records end, and where the items of arrays and maps begin, on whole columns at once. Pure.

An item's size is known when the item has been walked over, so all lists take their steps together: first items, second
items and so on. What takes many steps for few lists goes on item by item.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import field

import numpy as np

from lakefmt.data_classes import dataclass
from lakefmt.formats.avro.columnar._cursor import ByteCursor, DamagedInput
from lakefmt.formats.avro.columnar.plan import Node
from lakefmt.formats.avro.columnar.varint import I64
from lakefmt.formats.avro.reader import read_long

__all__ = ["Items", "find_items", "skip"]

_SIZES = {"boolean": 1, "float": 4, "double": 8}
#: After this many steps over all lists at once, fewer lists than the second number are read item by item: a step costs as
#: much as reading the items of about that number of lists.
_STEPS = 64
_FEW_LISTS = 128

#: Returns the offset behind the value at an offset.
_Walk = Callable[[bytes, int], int]


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
        Damage: they leave their records, or are not of the schema.
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
    return _SIZES.get(node.kind, 0)


def _even_sum(node: Node) -> int:
    sizes = [0 if part.branch is not None else _even_size(part) for part in node.parts]
    return sum(sizes) if all(sizes) else 0


# ----------------------------------------------------------------------------------------------------------- items


def find_items(source: ByteCursor, node: Node, positions: I64, limit: I64) -> Items:
    """Return the items of the arrays or maps at `positions`.

    Raises:
        Damage: a count or an item leads out of its record.
    """
    steps = _Steps(source, node, positions, limit)
    while len(steps.rows):
        steps.open_blocks()
        steps.take_items()
    rows = np.concatenate([np.empty(0, np.int64), *steps.found_rows])
    starts = np.concatenate([np.empty(0, np.int64), *steps.found])
    order = np.argsort(starts, kind="stable")
    return Items(np.bincount(rows, minlength=len(positions)), starts[order], limit[rows[order]], steps.end)


@dataclass
class _Steps:
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
        elif self.steps >= _STEPS and len(self.rows) < _FEW_LISTS:
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


def _walk_items(record: bytes, position: int, walk: _Walk, left: int, starts: array[int] | None) -> int:
    """Return the end of a list that has `left` items to go in its block, and put down where items start."""
    while True:
        for _ in range(left):
            if starts is not None:
                starts.append(position)
            position = walk(record, position)
        left, position = read_long(record, position)
        if left < 0:
            left = -left
            _, position = read_long(record, position)
        if not left:
            return position
        if left > len(record) - position:
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
