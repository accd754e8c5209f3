"""An index of one's own that only the driver has: tasks do not find this module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.index import IndexCapabilities, IndexCommit, IndexKeys, KeyReader, Located


class ByFile:
    """Reads the keys of every base file; counts the keys that it was asked for, and the commits that it was told."""

    name = "by_file"
    is_global = False
    capabilities = IndexCapabilities(on_commit=True)
    asked: ClassVar[list[int]] = []
    told: ClassVar[list[str]] = []

    def locate(self, wanted: IndexKeys, slices: Sequence[Any], reader: KeyReader) -> Located:
        """Return where keys are stored."""
        self.asked.append(len(wanted))
        meant_for = wanted.partitions.cast(pa.string())
        rows, places = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for number, piece in enumerate(slices):
            stored = pc.is_in(wanted.keys, value_set=reader.keys(piece.base))
            here = stored if self.is_global else pc.and_(stored, pc.equal(meant_for, piece.partition))
            rows.append(np.flatnonzero(here.to_numpy(zero_copy_only=False)))
            places.append(np.full(len(rows[-1]), number))
        return Located(np.concatenate(rows), np.concatenate(places))

    def on_commit(self, commit: IndexCommit) -> None:
        """Remember a commit."""
        self.told.append(commit.time)


class ByFileEverywhere(ByFile):
    """The same for keys of the whole table."""

    is_global = True
