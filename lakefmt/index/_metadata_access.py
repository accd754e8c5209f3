"""The metadata table as an index asks it: opened for the state of a write, or why it cannot be (effects on reading only)."""

from __future__ import annotations

from collections.abc import Sequence

from lakefmt.config.settings import Settings
from lakefmt.config.table_config import TableConfig
from lakefmt.errors import SnapshotExpired
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.metadata.layout import METADATA_DIRECTORY, PartitionKind
from lakefmt.metadata.reading.listing import files_read_before
from lakefmt.metadata.reading.reader import MetadataTable, ready_partitions
from lakefmt.metadata.reading.written_groups import known_commits

__all__ = ["open_for_look_up", "why_missing"]

_PROPERTIES = f"{METADATA_DIRECTORY}/.hoodie/hoodie.properties"


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
    if client.store.info(_PROPERTIES) is None:
        return f"{what} is gone with {METADATA_DIRECTORY}"
    return None


def open_for_look_up(client: TableClient, state: TableState | None) -> MetadataTable:
    """Return the metadata table with what was committed in a state of the table.

    Args:
        client: the table.
        state: the table as a write sees it; None: as it is now.

    Raises:
        CorruptFile: the metadata table was begun and never completed.
        SnapshotExpired: it was dropped meanwhile.
    """
    now = client.load() if state is None else state
    commits = known_commits(client)
    table = MetadataTable.open(client.store, now.config, now.timeline, files_read_before(client), commits=commits)
    if table is None:
        raise SnapshotExpired(f"{METADATA_DIRECTORY} was dropped meanwhile: do it again")
    return table
