"""The simple index: read the keys of every file that could hold them."""

from __future__ import annotations

from collections.abc import Sequence

from lakefmt.filegroups.model import FileSlice
from lakefmt.index.api import IndexKeys, KeyReader, Located, LookUpStep
from lakefmt.index.lookup import check_keys, partition_rows, to_located

__all__ = ["SimpleIndex"]


class SimpleIndex:
    """Finds keys by comparing with every stored key of the partition (or of the table)."""

    def __init__(self, *, is_global: bool = False) -> None:
        self.is_global = is_global
        self.name = "global_simple" if is_global else "simple"

    def locate(self, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return where the wanted keys are stored among `slices`."""
        candidates = list(partition_rows(wanted, slices, self.is_global))
        steps = (LookUpStep("considered", len(candidates)), LookUpStep("opened", len(candidates)))
        return to_located(check_keys(wanted, candidates, reader), steps)
