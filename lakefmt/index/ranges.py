"""Which of many keys lie in a file's key range (spec 5.1). Pure.

All keys of a look-up are sorted once; a file is then two binary searches, whatever the number of keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.formats.parquet import in_java_order, java_order_key

__all__ = ["KeyRanges"]

I64 = npt.NDArray[np.int64]


class KeyRanges:
    """The keys of one look-up, ready to be compared with the ranges of files.

    A range is the ends of a file's keys in the order of Java's strings or, from Spark's row writer, in that of UTF-8
    bytes, and a footer does not say which. Where the two differ, a key is inside when it is by either.

    Args:
        keys: every key wanted.
        groups: the arrays of row numbers that will be asked about, each given as that very array.

    Example:
        >>> rows = np.arange(3)
        >>> KeyRanges(pa.array(["c", "a", "b"]), [rows]).inside(rows, "b", "z").tolist()
        [2, 0]
    """

    def __init__(self, keys: pa.StringArray, groups: Iterable[I64]) -> None:
        plain, java = keys.cast(pa.binary()), in_java_order(keys)
        distinct = {id(rows): rows for rows in groups}
        self._java = _Sorted(java, distinct)
        # Most keys sort alike in both orders.
        self._plain = self._java if java.equals(plain) else _Sorted(plain, distinct)

    def inside(self, rows: I64, low: str, high: str) -> I64:
        """Return those of `rows` whose key lies between `low` and `high`, the ends included."""
        ends = (java_order_key(low), java_order_key(high))
        found = self._java.inside(rows, *ends)
        if self._plain is self._java and ends == (low.encode(), high.encode()):
            return found
        return np.union1d(found, self._plain.inside(rows, low.encode(), high.encode()))


class _Sorted:
    """Keys in one order, and each group's rows in the order of their keys."""

    def __init__(self, keys: pa.BinaryArray, groups: dict[int, I64]) -> None:
        order = pc.sort_indices(keys).to_numpy()
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        self._keys = _Texts(keys.take(pa.array(order)))
        self._groups = {name: (rows[by := np.argsort(ranks[rows])], ranks[rows][by]) for name, rows in groups.items()}

    def inside(self, rows: I64, low: bytes, high: bytes) -> I64:
        ordered, ranks = self._groups[id(rows)]
        first, last = np.searchsorted(ranks, (bisect_left(self._keys, low), bisect_right(self._keys, high)))
        return ordered[first:last]


class _Texts(Sequence[bytes]):
    """An array as a sequence; a binary search looks at a few of its values, not at rows."""

    def __init__(self, values: pa.BinaryArray) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...

    def __getitem__(self, at: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(at, slice):
            return _Texts(self._values[at])
        return bytes(self._values[at].as_buffer())
