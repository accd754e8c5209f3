"""Keys of a stream that is more than memory, deleted file group by file group (effects: temporary files, the write's files)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.index import Index
from lakefmt._core.values import PARTITION_PATH, RECORD_KEY, CommitResult, PartitionPath, Partitions
from lakefmt._core.write.assign import Assigned
from lakefmt._core.write.bound_context import Announcements, BoundContext
from lakefmt._core.write.bulk.grouped_rows import GroupOptions, write_by_group
from lakefmt._core.write.commit.conflict_resolution import Footprint
from lakefmt._core.write.context import WriteStatus
from lakefmt._core.write.ingest import KeyedBatch, in_no_partition, record_keys
from lakefmt._core.write.mutations import DeleteKeys, GivenKeys, keys_and_partitions
from lakefmt._core.write.pipeline import LocatedRows, PlacedRows

__all__ = ["delete_key_stream"]


class DeleteSteps(Protocol):
    """What a delete by file group asks of a write."""

    client: TableClient
    bound: BoundContext
    state: TableState

    @property
    def index(self) -> Index:
        """The index of the write."""
        ...

    def rely_on(self, footprint: Footprint) -> None:
        """Remember what other writers must not change."""
        ...

    def aborted_on_error(self) -> AbstractContextManager[None]:
        """Undo the write where the block fails."""
        ...

    def commit_unless_empty(self, statuses: Sequence[WriteStatus]) -> CommitResult | None:
        """Commit; when there are no files and nothing to remember, abort and return None."""
        ...

    def locate_deletes(self, keys: DeleteKeys, /) -> LocatedRows:
        """Return where keys are stored."""
        ...

    def check_early(self, assigned: Sequence[Assigned], /) -> None:
        """Raise when files that are about to be written cannot stand."""
        ...

    def write(self, placed: PlacedRows, announcements: Announcements, /) -> list[WriteStatus]:
        """Write every file of a placement."""
        ...


def delete_key_stream(
    write: DeleteSteps, rows: Iterable[pa.Table], partitions: Partitions | None
) -> CommitResult | None:
    """Delete the keys of a stream of rows in bounded memory, and commit; None when the table has none of them.

    Args:
        write: the write that deletes them.
        rows: tables with the key columns.
        partitions: look only there; None: anywhere.

    Raises:
        SchemaMismatch: a key column is missing, or a value has another type than its column.
        InvalidKey: a key is null or empty, or a partition value cannot be one.
        StorageError: the temporary directory could not take the keys, or the store failed.
    """
    with write.aborted_on_error():
        memory_bytes = write.bound.settings.integer("lakefmt.write.window.bytes")
        listed = None if partitions is None else write.client.at(write.state).chosen_partitions(partitions)
        keys = _DeletedKeys(write, listed, everywhere=write.index.is_global)
        how = GroupOptions(memory_bytes, looks_up=True, across_partitions=True, appends=False, fills=False)
        statuses, _, footprint = write_by_group(keys, _keyed, map(keys.keys_of, rows), how)
        # The keys are too many to be held: no other write may have changed anything where they are.
        write.rely_on(footprint + Footprint(covers=keys.covered))
        return write.commit_unless_empty(statuses)


class _DeletedKeys:
    """The keys of a stream of rows, looked up part by part.

    Args:
        write: the write that deletes them.
        partitions: look only there; None: anywhere.
        everywhere: a key is deleted in whichever partition it is, also where the rows have the partition columns.
    """

    def __init__(self, write: DeleteSteps, partitions: Sequence[PartitionPath] | None, *, everywhere: bool) -> None:
        self.client, self.bound, self.state = write.client, write.bound, write.state
        self._write = write
        self._listed = None if partitions is None else tuple(partitions)
        self._everywhere = everywhere
        self._named = set[PartitionPath]()

    @property
    def covered(self) -> frozenset[PartitionPath] | None:
        """The partitions into which no other write may have brought one of the keys; None: all."""
        if not self._everywhere:
            return frozenset(self._named)
        return None if self._listed is None else frozenset(self._listed)

    def keys_of(self, table: pa.Table) -> pa.Table:
        """Return the record keys of rows, with their partitions where these count."""
        keys, partitions = keys_and_partitions(self.client.at(self.state), GivenKeys(rows=table), self.bound.settings)
        if partitions is None:
            self._everywhere = True
        if self._everywhere or partitions is None:
            return pa.table({RECORD_KEY: keys})
        self._named.update(map(PartitionPath, partitions.dictionary.to_pylist()))  # partitions, not rows
        return pa.table({RECORD_KEY: keys, PARTITION_PATH: partitions.cast(pa.string())})

    def key(self, table: pa.Table) -> KeyedBatch:
        """Return every key once."""
        return _keyed(table.group_by(table.column_names).aggregate([]))

    def locate(self, batch: KeyedBatch) -> LocatedRows:
        """Return where keys are stored."""
        own_partitions = None if self._everywhere else batch.partitions
        return self._write.locate_deletes(DeleteKeys(record_keys(batch), own_partitions, self._listed))

    def check_early(self, assigned: Sequence[Assigned]) -> None:
        """Raise when files that are about to be written cannot stand."""
        self._write.check_early(assigned)

    def write(self, placed: PlacedRows, announcements: Announcements) -> list[WriteStatus]:
        """Write every file of a placement."""
        return self._write.write(placed, announcements)


def _keyed(table: pa.Table) -> KeyedBatch:
    if PARTITION_PATH in table.column_names:
        partitions = table.column(PARTITION_PATH).combine_chunks().dictionary_encode()
    else:
        partitions = in_no_partition(table.num_rows)
    return KeyedBatch(table, table.column(RECORD_KEY).combine_chunks(), partitions)
