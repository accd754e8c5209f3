"""Rows of the log cut into columns of bytes (pure).

Values of a fixed width stand side by side in one block of bytes for each row, so that NumPy decodes a column at once; values of
variable width are slices. What is done for each row is to find where its values end: that is how the log is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.cdc.mysql.table_map import LogColumn
from lakefmt._core.cdc.mysql.values import decode_fixed, decode_variable
from lakefmt.errors import SourceRefused

__all__ = ["RowBuffer"]


class RowBuffer:
    """Rows of tables of one shape, as bytes by column, until :meth:`take` makes Arrow columns of them."""

    def __init__(self, columns: Sequence[LogColumn], charsets: dict[int, str]) -> None:
        self._columns = tuple(columns)
        self._charsets = charsets
        self._bitmap_bytes = (len(columns) + 7) // 8
        self._steps: dict[bytes, tuple[tuple[Any, int], ...]] = {}
        self._begin()

    def _begin(self) -> None:
        self._fixed: list[bytes] = []
        self._variable: list[list[bytes | None]] = [[] for column in self._columns if not column.width]
        self._bitmaps: list[bytes] = []
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._bitmaps)

    def add(self, body: bytes, at: int) -> int:
        """Add the rows of an event, which go to its end; return how many they are.

        Raises:
            SourceRefused: the event is damaged.
        """
        before = len(self._bitmaps)
        end, width = len(body), self._bitmap_bytes
        self.bytes += end - at
        fixed, bitmaps, known = self._fixed, self._bitmaps, self._steps
        while at < end:
            bitmap = body[at : at + width]
            at += width
            steps = known.get(bitmap)
            if steps is None:
                steps = known[bitmap] = self._steps_of(bitmap)
            bitmaps.append(bitmap)
            for target, size in steps:
                if target is None:
                    fixed.append(body[at : at + size])
                    at += size
                elif size > 0:
                    begin = at + size
                    at = begin + int.from_bytes(body[at:begin], "little")
                    target.append(body[begin:at])
                elif size == 0:
                    target.append(None)
                else:
                    fixed.append(target)
        if at != end:
            raise SourceRefused("the log has an event of rows that is damaged")
        return len(bitmaps) - before

    def _steps_of(self, bitmap: bytes) -> tuple[tuple[Any, int], ...]:
        # (None, width): bytes of fixed width; (list, prefix): a value of variable width; (list, 0): a null of one;
        # (zeros, -1): nulls of fixed width.
        nulls = int.from_bytes(bitmap, "little")
        steps: list[tuple[Any, int]] = []
        variable = 0
        for i, column in enumerate(self._columns):
            is_null = bool(nulls >> i & 1)
            if not column.width:
                steps.append((self._variable[variable], 0 if is_null else column.prefix))
                variable += 1
            elif is_null:
                steps.append((bytes(column.width), -1))
            elif steps and steps[-1][0] is None:
                steps[-1] = (None, steps[-1][1] + column.width)
            else:
                steps.append((None, column.width))
        return tuple(steps)

    def take(self) -> list[pa.Array]:
        """Return the columns of the rows, and be empty."""
        count = len(self._bitmaps)
        bits = _matrix(self._bitmaps, count, self._bitmap_bytes)
        nulls = np.unpackbits(bits, axis=1, bitorder="little").astype(bool)
        fixed = _matrix(self._fixed, count, sum(column.width for column in self._columns))
        arrays, at, variable = [], 0, 0
        for i, column in enumerate(self._columns):
            if column.width:
                arrays.append(decode_fixed(column, fixed[:, at : at + column.width], nulls[:, i], self._charsets))
                at += column.width
            else:
                arrays.append(decode_variable(column, self._variable[variable], self._charsets))
                variable += 1
        self._begin()
        self._steps.clear()  # they hold the lists
        return arrays


def _matrix(pieces: Sequence[bytes], rows: int, width: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"".join(pieces), np.uint8).reshape(rows, width)
