"""The protocol of every index: where does a key live? Pure declarations.

An index is handed the keys, the latest file slices and a way to read footers and keys; it answers with pairs of
row and slice. A key without a pair is new. A key may have several pairs: plain inserts allow duplicates, and an
update must reach all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt.filegroups.model import BaseFile, FileSlice
from lakefmt.formats.bloom.bloom_filter import BloomFilter
from lakefmt.formats.parquet.base_file import BaseFileFooter

__all__ = [
    "FilterTally",
    "Index",
    "IndexKeys",
    "KeyReader",
    "Located",
    "LookUpStep",
    "PositionalKeyReader",
    "SelectiveKeyReader",
    "SupportsGlobalLookup",
]


class KeyReader(Protocol):
    """What an index may ask of base files; every call may come from a thread of its own."""

    def footer(self, file: BaseFile) -> BaseFileFooter:
        """Return a file's footer: rows, key range, the stored text of its filter."""
        ...

    def bloom_filter(self, file: BaseFile) -> BloomFilter | None:
        """Return a file's key filter, None when it has none."""
        ...

    def keys(self, file: BaseFile) -> pa.ChunkedArray:
        """Return a file's record keys, in file order."""
        ...


@runtime_checkable
class SelectiveKeyReader(KeyReader, Protocol):
    """A reader that knows more of a file than its range: it leaves out parts that cannot hold what is looked for.

    Attributes:
        threads: how many threads it pays to ask with at once.
    """

    threads: int

    def keys_among(self, file: BaseFile, wanted: pa.StringArray) -> pa.ChunkedArray | None:
        """Return the keys of the parts of a file that may hold some of `wanted`; None: no part does, none is read."""
        ...


@runtime_checkable
class PositionalKeyReader(SelectiveKeyReader, Protocol):
    """A reader that knows which rows of a file the parts are that it did not leave out."""

    def keys_with_positions(
        self, file: BaseFile, wanted: pa.StringArray
    ) -> tuple[pa.ChunkedArray, npt.NDArray[np.int64]] | None:
        """Return the keys of the parts that may hold some of `wanted`, and the row of each; None: no part does."""
        ...


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """Keys to look up: record keys and the partition each row is meant for. No nulls, equal lengths."""

    keys: pa.StringArray
    partitions: pa.DictionaryArray

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class LookUpStep:
    """One step of a look-up, for people who ask why it was slow.

    Attributes:
        name: what the step did.
        files: how many files were left after it.
        candidates: how many pairs of key and file were left after it.
    """

    name: str
    files: int
    candidates: int = 0


@dataclass(frozen=True, slots=True)
class FilterTally:
    """What key filters said in one look-up, and how much of it was true.

    Attributes:
        asked: pairs of key and file that were asked about.
        passed: pairs of which a filter said "maybe".
        right: pairs of these whose key is stored in the file.
    """

    asked: int = 0
    passed: int = 0
    right: int = 0

    def __add__(self, other: FilterTally) -> FilterTally:
        return FilterTally(self.asked + other.asked, self.passed + other.passed, self.right + other.right)

    @property
    def false(self) -> int:
        """Pairs that a filter passed in vain."""
        return self.passed - self.right

    @property
    def false_rate(self) -> float | None:
        """The share of keys that are not in a file and passed its filter all the same; None when there were none.

        Example:
            >>> FilterTally(asked=1010, passed=12, right=10).false_rate
            0.002
        """
        absent = self.asked - self.right
        return self.false / absent if absent else None


@dataclass(frozen=True, slots=True)
class Located:
    """Pairs of row number and slice number, ordered by row; rows without a pair are new keys.

    ``steps`` and ``filters`` tell how the answer was found; an index may leave them out. ``positions`` may tell for each
    pair the row of the slice's base file that has the key, -1 where that is not known or where several rows have it.
    """

    rows: npt.NDArray[np.int64]
    slices: npt.NDArray[np.int64]
    steps: tuple[LookUpStep, ...] = field(default=())
    filters: FilterTally | None = None
    positions: npt.NDArray[np.int64] | None = None

    def where(self, which: npt.NDArray[np.bool_]) -> Located:
        """Return some of the pairs.

        Example:
            >>> pairs = Located(np.array([4, 5]), np.array([0, 1]))
            >>> pairs.where(np.array([False, True])).rows.tolist()
            [5]
        """
        positions = None if self.positions is None else self.positions[which]
        return Located(self.rows[which], self.slices[which], self.steps, self.filters, positions)


class Index(Protocol):
    """Where a key lives.

    Attributes:
        name: as in ``create_table(index=…)``.
        is_global: True when a key is unique in the table, not only in its partition.
    """

    name: str
    is_global: bool

    def locate(self, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return where the wanted keys are stored among `slices`.

        An index that is not global answers with slices of a row's own partition only. The answer is trusted: a key
        that is stored and not found is stored twice.
        """
        ...


@runtime_checkable
class SupportsGlobalLookup(Protocol):
    """An index that has a twin for keys whose partition is not known."""

    def for_global_lookup(self) -> Index:
        """Return the twin that looks in every partition, whatever partition a row is meant for."""
        ...
