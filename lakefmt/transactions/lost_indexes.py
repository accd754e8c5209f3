"""Indexes that another engine's writer dropped since lakefmt's last write: which they are, and what is kept to know it.

A writer of Hudi on the JVM removes indexes of the metadata table that its own settings do not ask for, and says nothing. So
lakefmt keeps the list that it saw last as a property of its own beside Hudi's list, in one update with it wherever it
changes that (docs/format.md, Metadata table).
"""

from __future__ import annotations

from contextlib import suppress

from lakefmt.config.table_config import TableConfig
from lakefmt.errors import StorageError
from lakefmt.metadata.manage import SEEN_KEY
from lakefmt.timeline.properties_store import update_properties
from lakefmt.transactions.client import WriteClient

__all__ = ["lost_index_warnings", "note_indexes"]


def _seen(config: TableConfig) -> frozenset[str]:
    return frozenset(name for name in config.properties.get(SEEN_KEY, "").split(",") if name)


def _lost_indexes(config: TableConfig) -> tuple[str, ...]:
    """Return the indexes that lakefmt saw last and the properties no longer advertise.

    Parameters:
        config: the table's properties, read under the table lock.
    """
    return tuple(sorted(_seen(config).difference(config.metadata_partitions)))


def lost_index_warnings(config: TableConfig) -> tuple[str, ...]:
    """Return what the result of a write says of indexes that are gone.

    Parameters:
        config: the table's properties as the write met them.
    """
    lost = _lost_indexes(config)
    if not lost:
        return ()
    what = (
        "the metadata table" if not config.metadata_partitions else f"the index {', '.join(lost)} of the metadata table"
    )
    return (
        f"{what} is gone: another writer dropped it since lakefmt's last write, because its settings do not ask for it; "
        "table.index.create makes it again",
    )


def note_indexes(write_client: WriteClient, config: TableConfig) -> None:
    """Keep the list of indexes for the next write, under the table lock; the write that calls this is committed.

    Parameters:
        write_client: the table.
        config: its properties as the write met them.
    """
    if _seen(config) == frozenset(config.metadata_partitions):
        return
    client = write_client.client
    with suppress(StorageError):  # the next write notes it, or warns again
        names = client.load_config().metadata_partitions
        changes = {SEEN_KEY: ",".join(sorted(names)) or None}
        update_properties(client.store, changes, client.clock.now(), durable=False)
