"""What a peer can be asked to do; one process per peer, in the peer's own environment (see ``worker.py``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import pyarrow as pa


class NotOffered(Exception):
    """The peer has no such job; the table of figures then shows a dash."""


class Peer:
    """One table of one peer at a path: made, opened, written, read. Timing happens outside."""

    #: Distributions whose versions belong to the name.
    packages: ClassVar[tuple[str, ...]] = ()
    #: What a returned commit has survived, in a few words.
    durability: ClassVar[str] = "page cache"
    #: Whether the files of a returned commit are on the disk.
    syncs: bool = False

    def __init__(self, path: str, columns: dict[str, str], options: dict[str, Any]) -> None:
        self.path, self.options = path, options
        self.key, self.partition, self.ordering = columns["key"], columns["partition"], columns["ordering"]

    def create(self, schema: pa.Schema) -> None:
        """Make an empty table at the path, which does not exist yet, and open it."""
        raise NotOffered

    def open(self) -> None:
        """Open the table at the path anew, forgetting what an earlier handle knew."""
        raise NotOffered

    def prepare(self, data: pa.Table) -> Any:
        """Turn rows into what the peer's own calls take, where that is no part of the job; not timed."""
        return data

    def load(self, data: Any) -> None:
        """Write many new rows in one commit."""
        raise NotOffered

    def append(self, data: Any) -> None:
        """Write a few new rows in one commit; nothing is looked up."""
        self.load(data)

    def upsert(self, data: Any) -> None:
        """Replace stored rows by key where the ordering value is not smaller, add the others, in one commit."""
        raise NotOffered

    def delete(self, data: Any) -> None:
        """Delete the stored rows of the keys of some rows, in one commit."""
        raise NotOffered

    def scan_columns(self, names: list[str]) -> Iterable[pa.RecordBatch]:
        """Return the values of some columns as a stream of batches."""
        raise NotOffered

    def cluster(self, name: str) -> None:
        """Write all rows anew, those of a partition sorted by a column, or what the peer has for that."""
        raise NotOffered

    def compact(self) -> None:
        """Merge what was written beside the files into them."""
        raise NotOffered

    def scan(self) -> pa.Table:
        """Return every row and column."""
        raise NotOffered

    def look_up(self, keys: pa.Array) -> pa.Table:
        """Return the rows of some keys."""
        raise NotOffered

    def files(self) -> list[str]:
        """Return the paths of the data files of the newest state."""
        raise NotOffered

    def close(self) -> None:
        """Let go of the table, so that its folder can be removed or put back."""
