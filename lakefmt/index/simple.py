"""The simple index: read the keys of every file that could hold them."""

from __future__ import annotations

from collections.abc import Sequence

from lakefmt.filegroups.model import FileSlice
from lakefmt.index.api import IndexCapabilities, IndexKeys, KeyReader, Located
from lakefmt.index.lookup import LookUp, look_up_keys

__all__ = ["SimpleIndex"]


class SimpleIndex:
    """Finds keys by comparing with every stored key of the partition (or of the table).

    Args:
        is_global: look in every partition, whatever partition a row is meant for.
        update_partition_path: with `is_global`, a row whose key is stored in another partition moves to its own.
        threads: how many files are looked at together; 0: as many as suits the store.

    Attributes:
        notes: what the result of a write tells of its index.
    """

    #: It reads base files; where keys go that it does not find, and what logs say, is the write's matter.
    capabilities = IndexCapabilities()

    def __init__(self, *, is_global: bool = False, update_partition_path: bool = True, threads: int = 0) -> None:
        self.is_global = is_global
        self.name = "global_simple" if is_global else "simple"
        self.update_partition_path = update_partition_path
        self.notes: tuple[str, ...] = ()
        self._threads = threads

    def for_global_lookup(self) -> SimpleIndex:
        """Return the same index for keys whose partition is not known."""
        return SimpleIndex(is_global=True, threads=self._threads)

    def locate(self, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return where the wanted keys are stored among `slices`."""
        return look_up_keys(LookUp(self.is_global, threads=self._threads), wanted, slices, reader)
