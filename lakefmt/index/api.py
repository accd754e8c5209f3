"""The protocol of every index: where does a key live? (pure declarations)

An index is handed the keys, the latest file slices and a way to read footers and keys; it answers with pairs of
row and slice. A key without a pair is new. A key may have several pairs: plain inserts allow duplicates, and an
update must reach all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt.filegroups.model import BaseFile, FileSlice
from lakefmt.formats.bloom import BloomFilter
from lakefmt.formats.parquet import BaseFileFooter

__all__ = ["Index", "IndexKeys", "KeyReader", "Located", "LookUpStep"]


class KeyReader(Protocol):
    """What an index may ask of base files."""

    def footer(self, file: BaseFile) -> BaseFileFooter:
        """Return a file's footer."""
        ...

    def bloom_filter(self, file: BaseFile) -> BloomFilter | None:
        """Return a file's key filter, None when it has none."""
        ...

    def keys(self, file: BaseFile) -> pa.ChunkedArray:
        """Return a file's record keys."""
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
    """One step of a look-up, for people who ask why it was slow: how many files were left after it."""

    name: str
    files: int
    candidates: int = 0


@dataclass(frozen=True, slots=True)
class Located:
    """Pairs of row number and slice number, ordered by row; rows without a pair are new keys."""

    rows: npt.NDArray[np.int64]
    slices: npt.NDArray[np.int64]
    steps: tuple[LookUpStep, ...] = field(default=())


class Index(Protocol):
    """Where a key lives.

    Attributes:
        name: as in ``create_table(index=…)``.
        is_global: True when a key is unique in the table, not only in its partition.
    """

    name: str
    is_global: bool

    def locate(self, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return where the wanted keys are stored among `slices`."""
        ...
