"""What every write needs: the table, the settings of the call, the lock, the writer's stamp (effects: the metadata table goes)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakefmt.config import Settings, resolve_settings
from lakefmt.filegroups.access import TableAccess
from lakefmt.table_config import TableConfig
from lakefmt.timeline.lock import TableLock, open_lock
from lakefmt.timeline.properties_store import update_properties
from lakefmt.timeline.store import TimelineStore

__all__ = ["WriteServices", "drop_metadata_table", "open_services", "services_of"]

_METADATA_KEYS = (
    "hoodie.table.metadata.partitions",
    "hoodie.table.metadata.partitions.inflight",
    "hoodie.table.index.defs.path",
)
_METADATA_DIRECTORIES = (".hoodie/metadata", ".hoodie/.index_defs")


@dataclass(frozen=True, slots=True)
class WriteServices:
    """What a conversation needs: the table, the settings of the call, the lock, the writer's stamp."""

    access: TableAccess
    settings: Settings
    lock: TableLock
    owner: str

    @property
    def durable(self) -> bool:
        """True when a commit must reach the disk before it returns."""
        return self.settings.text("lakefmt.durability") == "fsync"

    @property
    def expiry_seconds(self) -> float:
        """The age of a last sign of life at which a writer is dead."""
        interval = self.settings.integer("hoodie.client.heartbeat.interval_in_ms")
        return interval * self.settings.integer("hoodie.client.heartbeat.tolerable.misses") / 1000

    def timeline(self, config: TableConfig) -> TimelineStore:
        """Return the timeline directory with this call's durability."""
        return self.access.timeline_store(config, durable=self.durable)


def open_services(access: TableAccess, options: Mapping[str, object] | None = None) -> WriteServices:
    """Return the services of a new writer.

    Args:
        access: the table; its settings go behind those of the call.
        options: settings of the call.
    """
    settings = resolve_settings({**access.options, **(options or {})}, None, access.load_config().properties)
    return services_of(access, settings, access.ids.new_uuid())


def services_of(access: TableAccess, settings: Settings, owner: str) -> WriteServices:
    """Return the services of the writer that has the stamp `owner`."""
    wait = settings.integer("hoodie.write.lock.wait_time_ms") / 1000
    lock = open_lock(access.store, settings.text("hoodie.write.lock.provider"), owner, wait)
    return WriteServices(access, settings, lock, owner)


def drop_metadata_table(services: WriteServices) -> TableConfig:
    """Remove the table's metadata table; return the properties without it."""
    # First the properties, then the directories (spec A.8): in between readers list the store, which is right.
    access = services.access
    changes = dict.fromkeys(key for key in _METADATA_KEYS if key in access.load_config().properties)
    if changes:
        update_properties(access.store, changes, access.clock.now(), durable=services.durable)
    for directory in _METADATA_DIRECTORIES:
        access.store.delete_tree(directory)
    return access.load_config()
