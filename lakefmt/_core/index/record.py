"""The record index: the metadata table says where each key is, so that no data file is read to find it (effects on reading only).

The index is a partition of the metadata table, kept by every commit in the instant that it belongs to
(docs/format.md, Metadata table). A global one has one place for each key of the table, a partitioned one has one for each
key of a data partition.

:func:`open_for_look_up` opens the metadata table for an index, :func:`why_missing` tells why it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy, one_array
from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.index.api import (
    Index,
    IndexCapabilities,
    IndexKeys,
    KeyFileGroups,
    KeyReader,
    Located,
    LookUpStep,
    locations_in,
)
from lakefmt._core.index.bloom import SimpleIndex
from lakefmt._core.index.lookup import rows_by_partition
from lakefmt._core.metadata.index_readers import LOCATION_SCHEMA, is_partitioned, lookup_locations
from lakefmt._core.metadata.layout import METADATA_DIRECTORY, PartitionKind
from lakefmt._core.metadata.listing import files_read_before, note_unseen, reading_newest
from lakefmt._core.metadata.manage import wanted_partitions
from lakefmt._core.metadata.metadata_files import known_commits
from lakefmt._core.metadata.reader import MetadataTable, ready_partitions
from lakefmt._core.storage.api import check_name
from lakefmt.errors import SnapshotExpired, UnsupportedFeature

__all__ = [
    "RecordIndex",
    "bringing_instants",
    "open_for_look_up",
    "open_record_index",
    "why_missing",
]


I64 = npt.NDArray[np.int64]

_UPDATE_PARTITION: Final = "hoodie.record.index.update.partition.path"
_PARTITION_NAME: Final = PartitionKind.RECORD_INDEX.value


_METADATA_PROPERTIES = f"{METADATA_DIRECTORY}/.hoodie/hoodie.properties"


def open_record_index(
    client: TableClient, settings: Settings, config: TableConfig, state: TableState | None, *, is_global: bool
) -> Index:
    """Return the record index of a table; where the table has none, the simple index with the same scope, as Hudi does.

    Args:
        client: the table.
        settings: of the call.
        config: the table's properties.
        state: the table as the call sees it; None: as it is when the first keys are looked up.
        is_global: a key is unique in the table; False: in its partition.
    """
    moves = settings.flag(_UPDATE_PARTITION)
    reason = why_missing(client, settings, config, [_PARTITION_NAME])
    if reason is None:
        return RecordIndex(partial(open_for_look_up, client, state), is_global=is_global, update_partition_path=moves)
    threads = settings.integer("lakefmt.index.threads")
    simple = SimpleIndex(is_global=is_global, update_partition_path=moves, threads=threads)
    if _PARTITION_NAME not in wanted_partitions(config, settings):  # else this very commit makes it
        simple.notes = (
            f"{reason}: keys were looked up by the index {simple.name!r}, which reads the keys of all files; "
            f"table.index.create({_PARTITION_NAME!r}) makes the record index again",
        )
    return simple


def bringing_instants(table_at: TableAt, keys: pa.StringArray, partitions: Collection[str] | None) -> frozenset[int]:
    """Return the instants that brought keys to where they are, in milliseconds since 1970.

    Args:
        table_at: the table, at one moment.
        keys: record keys.
        partitions: only keys in these count; None: anywhere.
    """
    locations = reading_newest(lambda: lookup_locations(open_for_look_up(table_at.client, table_at.state), keys))
    if partitions is not None:
        locations = locations.filter(
            pc.is_in(locations["partition"], value_set=pa.array(sorted(partitions), pa.string()))
        )
    return frozenset(locations["instant_millis"].unique().to_pylist())  # instants, not rows


class RecordIndex:
    """Finds keys through the record index of the metadata table.

    Args:
        open_table: opens the metadata table as it is at the time of the write.
        is_global: look in the whole table, whatever partition a row is meant for.
        update_partition_path: with `is_global`, a row whose key is stored in another partition moves to its own.
    """

    #: The index is kept with every commit, logs included: it neither lacks keys of logs nor has keys that logs deleted.
    capabilities = IndexCapabilities(covers_logs=True, needs_file_reader=False)

    def __init__(
        self, open_table: Callable[[], MetadataTable], *, is_global: bool, update_partition_path: bool = False
    ) -> None:
        self.is_global = is_global
        self.name = "record" if is_global else "partitioned_record"
        self.update_partition_path = update_partition_path
        self._open = open_table
        self._everywhere: RecordIndex | None = self if is_global else None
        self._last: tuple[IndexKeys, KeyFileGroups] | None = None

    def for_global_lookup(self) -> RecordIndex:
        """Return the same index for keys whose partition is not known."""
        if self._everywhere is None:
            self._everywhere = RecordIndex(self._open, is_global=True)
        return self._everywhere

    def locate(self, index_keys: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return where the wanted keys are stored among `slices`; nothing is read from them.

        Raises:
            CorruptFile: the metadata table is damaged, or a file group of the index is missing.
        """
        locations = self.key_locations(index_keys)
        located = locations_in(locations, slices)
        groups = pc.binary_join_element_wise(locations.partitions, locations.file_ids, "/").unique()
        named = LookUpStep("in the record index", len(groups), len(locations.rows))
        return Located(located.rows, located.slices, (named,))

    def key_locations(self, index_keys: IndexKeys) -> KeyFileGroups:
        """Return the file groups that hold the wanted keys.

        Raises:
            CorruptFile: the metadata table is damaged, or a file group of the index is missing.
            UnsafePath: it names a partition outside of the table.
        """
        if self._last is None or not self._is_same(index_keys, self._last[0]):
            self._last = index_keys, reading_newest(lambda: self._look_up(self._open(), index_keys))
        return self._last[1]

    def _is_same(self, index_keys: IndexKeys, other: IndexKeys) -> bool:
        """Return whether keys are those that were looked up last; a write asks first for partitions, then for slices."""
        return index_keys.keys is other.keys and (self.is_global or index_keys.partitions is other.partitions)

    def _look_up(self, table: MetadataTable, index_keys: IndexKeys) -> KeyFileGroups:
        if not self.is_global and not is_partitioned(table):
            raise UnsupportedFeature(
                "the table's record index has one place for each key of the table (RECORD_INDEX), so that a key cannot be in "
                "several partitions: write with hoodie.index.type=RECORD_INDEX, or drop the index"
            )
        if self.is_global:
            everything = np.arange(len(index_keys), dtype=np.int64)
            parts = [(everything, lookup_locations(table, index_keys.keys))]
        else:
            parts = [
                (rows, lookup_locations(table, index_keys.keys.take(from_numpy(rows)), [partition]))
                for partition, rows in rows_by_partition(index_keys)
                if len(rows)
            ]
        joined = [_pairs_of_same_key(index_keys.keys, rows, stored) for rows, stored in parts]
        rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in joined)])
        locations = pa.concat_tables([LOCATION_SCHEMA.empty_table(), *(stored for _, stored in joined)])
        for path in locations["partition"].unique().to_pylist():  # partitions, not rows
            if path:
                check_name(path)
        return KeyFileGroups(rows, one_array(locations["partition"]), one_array(locations["file_id"]))


def _pairs_of_same_key(keys: pa.StringArray, rows: I64, locations: pa.Table) -> tuple[I64, pa.Table]:
    """Return pairs of row and place with the same key.

    Args:
        keys: all keys.
        rows: numbers of the keys that were looked up; a key may come several times.
        locations: where keys are; a key may have several, one in each data partition.
    """
    looked_up = keys.take(from_numpy(rows))
    distinct = locations["key"].unique()
    codes = pc.index_in(looked_up, value_set=distinct)
    is_stored = np.asarray(codes.is_valid())
    lookup_codes = codes.drop_null().to_numpy().astype(np.int64)
    stored = pc.index_in(locations["key"], value_set=distinct).to_numpy().astype(np.int64)
    order = np.argsort(stored, kind="stable")
    begins, ends = (np.searchsorted(stored[order], lookup_codes, side) for side in ("left", "right"))
    counts = ends - begins
    indices = np.arange(counts.sum()) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
    return np.repeat(rows[is_stored], counts), locations.take(from_numpy(order[indices]))


def why_missing(client: TableClient, settings: Settings, config: TableConfig, names: Sequence[str]) -> str | None:
    """Return why partitions of the metadata table cannot be asked; None: they can.

    Args:
        client: the table.
        settings: of the call.
        config: the table's properties.
        names: the partitions.
    """
    what = " and ".join(names)
    if settings.values["hoodie.metadata.enable"] is False:
        return f"hoodie.metadata.enable=false leaves no {what}"
    missing = [name for name in (PartitionKind.FILES.value, *names) if name not in ready_partitions(config)]
    if missing:
        return f"the metadata table has no {' and '.join(missing)} (another engine may have dropped it)"
    if client.store.info(_METADATA_PROPERTIES) is None:
        return f"{what} is gone with {METADATA_DIRECTORY}"
    return None


def open_for_look_up(client: TableClient, state: TableState | None) -> MetadataTable:
    """Return the metadata table with what was committed in a state of the table.

    Args:
        table_at: the table, at one moment.

    Raises:
        CorruptFile: the metadata table was begun and never completed.
        SnapshotExpired: it was dropped meanwhile.
    """
    now = client.load() if state is None else state
    commits = known_commits(client)
    table = MetadataTable.open(client.store, now.config, now.timeline, files_read_before(client), commits=commits)
    if table is None:
        raise SnapshotExpired(f"{METADATA_DIRECTORY} was dropped meanwhile: do it again")
    note_unseen(client, table, now.timeline)
    return table
