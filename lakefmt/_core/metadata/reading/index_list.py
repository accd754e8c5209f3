"""Which indexes a metadata table has, and how large they are (effects on reading only)."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.log.blocks import BlockKind
from lakefmt._core.metadata.index_definitions import IndexDefinition
from lakefmt._core.metadata.layout import METADATA_DIRECTORY, kind_of_partition
from lakefmt._core.metadata.manage import load_definitions
from lakefmt._core.metadata.reading.reader import MetadataTable, ready_partitions
from lakefmt._core.values import size_text
from lakefmt.errors import CorruptFile, SnapshotExpired, UnsupportedFeature

__all__ = ["IndexState", "MetadataIndex", "list_indexes"]


class IndexState(enum.Enum):
    """How far an index is."""

    #: Readers may use it.
    COMPLETE = "complete"
    #: It is being made; writers keep it already.
    INFLIGHT = "inflight"
    #: Its files cannot be read, or some of them are missing.
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class MetadataIndex:
    """An index of the metadata table.

    Attributes:
        name: the metadata table's partition, such as ``secondary_index_city``.
        kind: ``files``, ``column_stats``, ``secondary_index`` …; ``unknown`` for one that lakefmt does not know.
        state: how far it is.
        columns: the columns that it is on, where its definition names some.
        partitioned: whether a record index has file groups of its own for each data partition.
        file_groups: how many.
        records: entries in its files; a record that was written anew since the last compaction counts each time. None
            where the files cannot be read.
        size_bytes: of the files that count.
    """

    name: str
    kind: str
    state: IndexState
    columns: tuple[str, ...] = ()
    partitioned: bool = False
    file_groups: int = 0
    records: int | None = None
    size_bytes: int = 0

    def __str__(self) -> str:
        on = f" on {', '.join(self.columns)}" if self.columns and self.kind != "column_stats" else ""
        of = f" of {len(self.columns)} columns" if self.columns and self.kind == "column_stats" else ""
        parted = ", partitioned" if self.partitioned else ""
        records = "" if self.records is None else f"{self.records:,} records, "
        groups = f"{self.file_groups:,} file group{'' if self.file_groups == 1 else 's'}"
        return f"{self.name}{on}{of}: {self.state.value}{parted}, {records}{groups}, {size_text(self.size_bytes)}"


def list_indexes(client: TableClient) -> tuple[MetadataIndex, ...]:
    """Return the indexes that a table advertises, in the order of its properties; none without a metadata table.

    Parameters:
        client: the table.
    """
    state = client.load()
    config = state.config
    if not config.metadata_partitions:
        return ()
    try:
        definitions = load_definitions(client, config)
        table = MetadataTable.open(client.store, config, state.timeline)
    except CorruptFile:
        definitions, table = {}, None
    ready = ready_partitions(config)
    return tuple(
        _one(client, table, name, definitions.get(name), is_ready=name in ready) for name in config.metadata_partitions
    )


def _one(
    client: TableClient, table: MetadataTable | None, name: str, definition: IndexDefinition | None, *, is_ready: bool
) -> MetadataIndex:
    kind = kind_of_partition(name)
    made = MetadataIndex(
        name,
        "unknown" if kind is None else kind.value.rstrip("_"),
        IndexState.COMPLETE if is_ready else IndexState.INFLIGHT,
        () if definition is None else definition.columns,
        definition is not None and definition.is_partitioned,
    )
    if kind is None or not is_ready:
        return _measured(made, client, made.state)
    try:
        if table is None:
            return _measured(made, client, IndexState.DAMAGED)
        slices = [each for run in table.file_slices(name).values() for each in run]
        records, size = _num_records(table, slices), sum(each.size_bytes for each in slices)
    except (CorruptFile, UnsupportedFeature, SnapshotExpired):
        return _measured(made, client, IndexState.DAMAGED)
    return MetadataIndex(made.name, made.kind, made.state, made.columns, made.partitioned, len(slices), records, size)


def _measured(index: MetadataIndex, client: TableClient, state: IndexState) -> MetadataIndex:
    """Return an index with the size of all files in its directory: of which ones count nothing is known."""
    size = sum(item.size for item in client.store.list(f"{METADATA_DIRECTORY}/{index.name}"))
    return MetadataIndex(index.name, index.kind, state, index.columns, index.partitioned, 0, None, size)


def _num_records(table: MetadataTable, slices: Sequence[FileSlice]) -> int:
    bases, logs = table.files.open_all(slices)
    blocks = [each for opened in logs.values() for each in opened if each.block.kind is BlockKind.HFILE_DATA]
    return sum(reader.entry_count for reader in bases.values()) + sum(each.reader.entry_count for each in blocks)
