"""Building partitions of the metadata table while others write (effects).

First their empty file groups are made and advertised as inflight, under the table lock: from then on every writer adds what
it commits. Then the first records are collected without the lock, from what was committed at that moment. Last, again under
the lock, they are put below what writers have added, and the partitions become ready (docs/format.md, Metadata table).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.reader import parquet_file, reading
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.parquet.base_file import decode_footer
from lakefmt._core.metadata.commit_updates import first_update
from lakefmt._core.metadata.first_keys import FirstKeys
from lakefmt._core.metadata.index_definitions import IndexDefinition
from lakefmt._core.metadata.layout import DEFAULT_FILE_GROUPS, MetadataFileName, check_file_groups, kind_of_partition
from lakefmt._core.metadata.manage import (
    MetadataTableManager,
    committed_files,
    inflight_partitions,
    load_definitions,
)
from lakefmt._core.metadata.records import PartitionUpdate
from lakefmt.errors import CorruptFile, InvalidInputError

__all__ = ["PartitionBuild", "begin_building", "finish_building"]

#: About how large a record is in a log.
_LOG_RECORD_BYTES = 100


@dataclass(frozen=True)
class PartitionBuild:
    """Partitions that are being built, and what was committed when they began.

    Attributes:
        manager: of the metadata table, as it was then.
        names: the partitions, in the order of their making.
        definitions: of the table's indexes, those of the partitions among them.
        listed: committed files by data partition, with their sizes in bytes.
        slices: the newest file slices. What is cleaned later must not be passed over: it is missed when it is read.
    """

    manager: MetadataTableManager
    names: tuple[str, ...]
    definitions: Mapping[str, IndexDefinition]
    listed: Mapping[str, Mapping[str, int]]
    slices: Sequence[FileSlice]

    def first_records(self) -> dict[str, PartitionUpdate | FirstKeys]:
        """Return the first records by partition; needs no lock.

        Raises:
            ObjectNotFound, SnapshotExpired: a file was cleaned meanwhile; begin again.
        """
        manager = self.manager
        return {
            name: first_update(
                name,
                manager.config,
                manager.writer.form,
                manager.collector(),
                self.definitions,
                self.listed,
                self.slices,
            )
            for name in self.names
        }


def begin_building(
    manager: MetadataTableManager, names: Sequence[str], definitions: Mapping[str, IndexDefinition]
) -> PartitionBuild:
    """Make empty partitions that writers keep from now on, and no reader uses.

    Parameters:
        manager: of the metadata table.
        names: partitions that are not ready yet, in the order of their making; what is there of them is removed.
        definitions: of indexes among them.

    Raises:
        UnsupportedFeature: a partition that lakefmt cannot make.
    """
    collector = manager.collector()
    stored = load_definitions(manager.client, manager.config)
    wanted = {key: each for key, each in stored.items() if key in (*manager.config.metadata_partitions, *names)}
    wanted |= definitions
    listed, slices = committed_files(manager.client, manager.config, manager.timeline)
    num_records = _num_stored_records(manager.client, slices) if any(map(_is_sized, names)) else 0
    begun = [name for name in names if name in manager.config.metadata_partitions]
    if begun:
        # No writer may find half of the file groups.
        kept = [name for name in manager.config.metadata_partitions if name not in begun]
        manager = replace(manager, config=manager.advertise(kept, wanted, begun))
    for name in names:
        if name not in wanted:
            wanted |= manager.new_definition(name, collector)
        manager.make_file_groups(name, num_records, wanted, sorted(listed))
        # Advertised one after the other: the next one must find the instant of this one taken.
        kept = [each for each in manager.config.metadata_partitions if each != name]
        manager = replace(manager, config=manager.advertise((*kept, name), wanted, building=[name]))
    return PartitionBuild(manager, tuple(names), wanted, listed, slices)


def finish_building(manager: MetadataTableManager, updates: Mapping[str, PartitionUpdate | FirstKeys]) -> TableConfig:
    """Fill partitions that were built while others wrote, and advertise them; return the properties afterwards.

    A partition whose file groups have base files by now, from a compaction, or lack one, is made anew.

    Parameters:
        manager: of the metadata table, with its properties as they are under this hold of the lock.
        updates: the first records by partition.

    Raises:
        InvalidInputError: a partition was dropped meanwhile.
    """
    names = [name for name in updates if name in inflight_partitions(manager.config)]
    dropped = [name for name in updates if name not in manager.config.metadata_partitions]
    if dropped:
        raise InvalidInputError(f"{', '.join(dropped)} was dropped while it was built")
    definitions = load_definitions(manager.client, manager.config)
    for name in names:
        files = manager.writer.files(name)
        if any(file.version is None for file in files) or not _is_whole(name, files):
            return manager.add(names, {key: each for key, each in definitions.items() if key in names})
    for name in names:
        instant = min(file.instant for file in manager.writer.files(name))
        manager.writer.fill(instant, updates[name], manager.next_time)
    return manager.advertise(manager.config.metadata_partitions, definitions, made=names)


def _is_sized(name: str) -> bool:
    """Return whether the number of records decides how many file groups a partition has. Pure."""
    return kind_of_partition(name) not in DEFAULT_FILE_GROUPS


def _is_whole(name: str, files: Sequence[MetadataFileName]) -> bool:
    """Return whether a partition has all its file groups. Pure."""
    try:
        return bool(check_file_groups(name, (file.file_id for file in files)))
    except CorruptFile:
        return False


def _num_stored_records(client: TableClient, slices: Iterable[FileSlice]) -> int:
    """Return about how many records a table has: those of its base files, and some for its logs.

    Parameters:
        client: the table.
        slices: its newest file slices.
    """
    total = 0
    filesystem, prefix = client.store.arrow_filesystem()
    for each in slices:
        if each.base is not None:
            with reading(each.base.path), filesystem.open_input_file(prefix + each.base.path) as source:
                total += decode_footer(parquet_file(source).metadata).num_rows
        total += sum(log.size for log in each.logs) // _LOG_RECORD_BYTES
    return total
