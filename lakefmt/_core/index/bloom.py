"""The simple and the bloom index, which find keys by searching base files.

The simple index reads the keys of every file that could hold them. The bloom index narrows a key's files in three steps, cheapest
first: the range in each footer, the filter in each footer, and at last the key column of the few files that remain, so that a false
positive of a filter never becomes a wrong update (docs/format.md, Parquet footer; Bloom filter bytes).

Ranges and filters may come from the metadata table in place of the footers (:mod:`lakefmt._core.index.key_reader`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.index.api import IndexCapabilities, IndexKeys, KeyReader, Located
from lakefmt._core.index.lookup import LookUp, look_up_keys

if TYPE_CHECKING:
    from lakefmt._core.metadata.reader import MetadataTable

__all__ = ["BloomIndex", "SimpleIndex"]


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

    def locate(self, index_keys: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return where the wanted keys are stored among `slices`."""
        return look_up_keys(LookUp(self.is_global, threads=self._threads), index_keys, slices, reader)


class BloomIndex:
    """Finds keys through the footers of base files.

    Args:
        is_global: look in every partition, whatever partition a row is meant for.
        prune_by_ranges: ask for key ranges before filters.
        update_partition_path: with `is_global`, a row whose key is stored in another partition moves to its own.
        threads: how many files are looked at together; 0: as many as suits the store.
        open_metadata: opens the metadata table, whose key ranges and filters are used; None: those of the footers are.

    Attributes:
        open_metadata: see there.
        notes: what the result of a write tells of its index.
    """

    #: It reads base files; where keys go that it does not find, and what logs say, is the write's matter.
    capabilities = IndexCapabilities()

    def __init__(
        self,
        *,
        is_global: bool = False,
        prune_by_ranges: bool = True,
        update_partition_path: bool = True,
        threads: int = 0,
        open_metadata: Callable[[], MetadataTable] | None = None,
    ) -> None:
        self.is_global = is_global
        self.name = "global_bloom" if is_global else "bloom"
        self._prune_by_ranges = prune_by_ranges
        self.update_partition_path = update_partition_path
        self._threads = threads
        self.open_metadata = open_metadata
        self.notes: tuple[str, ...] = ()

    def for_global_lookup(self) -> BloomIndex:
        """Return the same index for keys whose partition is not known."""
        return BloomIndex(
            is_global=True,
            prune_by_ranges=self._prune_by_ranges,
            threads=self._threads,
            open_metadata=self.open_metadata,
        )

    def locate(self, index_keys: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return where the wanted keys are stored among `slices`."""
        how = LookUp(self.is_global, ranges=self._prune_by_ranges, filters=True, threads=self._threads)
        if self.open_metadata is not None:
            from lakefmt._core.index.metadata_footers import metadata_footers  # brings the metadata table along

            reader = metadata_footers(self.open_metadata, index_keys.keys, slices, reader)
        return look_up_keys(how, index_keys, slices, reader)
