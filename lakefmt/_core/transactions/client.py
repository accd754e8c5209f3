"""What every writer and table service needs: the table, the settings of the call, the lock, the writer id, an instant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from lakefmt._core.arguments import mapping_argument
from lakefmt._core.config.merge_rule import adopt_merger
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.metadata.layout import SEEN_KEY
from lakefmt._core.timeline.heartbeat import Heartbeat, Liveness, heartbeat_name, is_alive
from lakefmt._core.timeline.instant import Action, Instant, State, instant_file_name
from lakefmt._core.timeline.locks.local import held_lock_of
from lakefmt._core.timeline.locks.open import TableLock, lock_options, open_lock
from lakefmt._core.timeline.observer import CommitObserver
from lakefmt._core.timeline.properties_store import update_properties
from lakefmt._core.timeline.store import TimelineStore
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import InstantTime
from lakefmt.errors import StorageError, WriterActive

__all__ = [
    "WriteAt",
    "WriteClient",
    "drop_metadata_table",
    "lost_index_warnings",
    "note_indexes",
    "open_write_client",
    "write_client_of",
]

_METADATA_KEYS = (
    "hoodie.table.metadata.partitions",
    "hoodie.table.metadata.partitions.inflight",
    "hoodie.table.index.defs.path",
    SEEN_KEY,
)
_METADATA_DIRECTORIES = (".hoodie/metadata", ".hoodie/.index_defs")


@dataclass(frozen=True, slots=True)
class WriteClient:
    """The way to a table for one writing call.

    Attributes:
        client: the table.
        settings: of the call and the table handle.
        lock: the table lock.
        owner: id of the writer, kept in its heartbeats.
        durable: a commit must be on disk before the call returns.
    """

    client: TableClient
    settings: Settings
    lock: TableLock
    owner: str
    durable: bool

    def at(self, state: TableState) -> WriteAt:
        """Return the table at the moment of a state, for this writing call."""
        return WriteAt(self.client, state, self)

    def observers(self, config: TableConfig) -> Sequence[CommitObserver]:
        """Return who takes part in completions: the metadata table if there is or will be one, then those of the handle.

        Args:
            config: the table's properties, read under the table lock.
        """
        if not config.metadata_partitions and self.settings.values["hoodie.metadata.enable"] is not True:
            return self.client.observers
        from lakefmt._core.metadata.observer import MetadataTableObserver  # brings the metadata table along

        return (MetadataTableObserver(self.client, self.settings), *self.client.observers)

    @property
    def attempt_number(self) -> int:
        """A number for file names that no other attempt has, below 2**28."""
        return int(self.owner.replace("-", "")[:7], 16)

    @property
    def expiry_seconds(self) -> float:
        """The age of the last heartbeat, in seconds, from which on a writer counts as dead."""
        interval = self.settings.integer("hoodie.client.heartbeat.interval_in_ms")
        return interval * self.settings.integer("hoodie.client.heartbeat.tolerable.misses") / 1000

    def timeline(self, config: TableConfig) -> TimelineStore:
        """Return the timeline directory, written with this call's durability."""
        return self.client.timeline_store(config, durable=self.durable)

    def instant_time_generator(self, config: TableConfig, timeline: Timeline) -> Callable[[], InstantTime]:
        """Return a function that gives new instant times, each above everything on `timeline`."""
        clock, floor = self.client.instant_clock(config), timeline.highest_time
        zone = self.client.writing_zone(config, timeline)
        return lambda: clock.next(floor, zone)

    def writer_liveness(self, config: TableConfig, timeline: Timeline, pending: Instant) -> Liveness:
        """Return whether the writer of a pending instant may be alive."""
        client = self.client
        return is_alive(
            client.store, timeline, pending, config.timeline_directory, client.clock.now, self.expiry_seconds
        )

    def heartbeat(self, time: InstantTime) -> Heartbeat:
        """Return the heartbeat with which this writer claims an instant time, or takes it over."""
        interval = self.settings.integer("hoodie.client.heartbeat.interval_in_ms") / 1000
        return Heartbeat(self.client.store, time, self.owner, interval, self.client.time_source)

    def is_claimed(self, config: TableConfig, timeline: Timeline, time: InstantTime) -> bool:
        """Return whether a writer that may be alive has claimed the instant time `time`, requested or not."""
        name = instant_file_name(time, Action.COMMIT, State.REQUESTED, config.version.layout)
        return self.writer_liveness(
            config, timeline, Instant(time, Action.COMMIT, State.REQUESTED, file_name=name)
        ).alive


@dataclass(frozen=True)
class WriteAt(TableAt):
    """A table at one moment, for one writing call.

    Attributes:
        write_client: settings, lock and owner of the call.
    """

    write_client: WriteClient

    @property
    def settings(self) -> Settings:
        """The settings of the call and the table handle."""
        return self.write_client.settings

    @property
    def lock(self) -> TableLock:
        """The table lock."""
        return self.write_client.lock

    @property
    def owner(self) -> str:
        """The id of the writer."""
        return self.write_client.owner

    @property
    def durable(self) -> bool:
        """Whether a commit must be on disk before the call returns."""
        return self.write_client.durable

    def check_not_at_work(self, pending: Instant) -> None:
        """Raise when another process may be executing a pending compaction or clustering.

        Raises:
            WriterActive: its process may be alive.
        """
        beats = self.client.store.info(heartbeat_name(pending.time)) is not None
        if pending.state is State.REQUESTED and not beats:
            return
        life = self.write_client.writer_liveness(self.config, self.timeline, pending)
        if life.alive:
            raise WriterActive(f"the {pending.action.value} {pending.time} is at work ({life.reason}); try again later")


def open_write_client(
    client: TableClient, options: Mapping[str, object] | None = None, config: TableConfig | None = None
) -> WriteClient:
    """Return the write client of a new writer.

    Args:
        client: the table; settings of the call override its own.
        options: settings of the call.
        config: the table's properties, where the caller will see whether they still hold; None: they are read.
    """
    of_call = mapping_argument(options, "options")
    if of_call:
        adopt_merger(of_call)  # a merge function that cannot be imported is refused before the write begins
    settings = resolve_settings({**client.options, **of_call}, None, (config or client.load_config()).properties)
    return write_client_of(client, settings, client.ids.new_uuid())


def write_client_of(client: TableClient, settings: Settings, owner: str) -> WriteClient:
    """Return the write client of the writer with the id `owner`."""
    options = lock_options(settings, lambda: client.load_config().name)
    lock = open_lock(client.store, options, owner, client.time_source, lambda: client.clock.now().timestamp())
    held_lock = held_lock_of(client.store.url)
    durable = settings.text("lakefmt.durability") == "fsync"
    return WriteClient(client, settings, lock if held_lock is None else held_lock.over(lock), owner, durable)


def drop_metadata_table(write_client: WriteClient, *, is_made_again: bool = False) -> TableConfig:
    """Remove the table's metadata table; return the properties without it.

    Args:
        write_client: the table.
        is_made_again: the caller makes it again; should that fail, the next write says that it is gone.
    """
    # First the properties, then the directories: in between, readers list the store, which is right (docs/format.md,
    # Metadata table).
    client = write_client.client
    keys = (key for key in _METADATA_KEYS if not (is_made_again and key == SEEN_KEY))
    changes = dict.fromkeys(key for key in keys if key in client.load_config().properties)
    if changes:
        update_properties(client.store, changes, client.clock.now(), durable=write_client.durable)
    for directory in _METADATA_DIRECTORIES:
        client.store.delete_tree(directory)
    return client.load_config()


# ------------------------------------------------------------------------------- indexes that another engine dropped


def _noted_names(config: TableConfig) -> frozenset[str]:
    return frozenset(name for name in config.properties.get(SEEN_KEY, "").split(",") if name)


def _lost_indexes(config: TableConfig) -> tuple[str, ...]:
    """Return the indexes that lakefmt saw last and the properties no longer advertise.

    Parameters:
        config: the table's properties, read under the table lock.
    """
    return tuple(sorted(_noted_names(config).difference(config.metadata_partitions)))


def lost_index_warnings(config: TableConfig) -> tuple[str, ...]:
    """Return what the result of a write says of indexes that are gone. Pure.

    A writer of Hudi on the JVM removes indexes of the metadata table that its own settings do not ask for, and says nothing.
    So lakefmt keeps the list that it saw last as a property of its own beside Hudi's list, in one update with it wherever it
    changes that (docs/format.md, Metadata table).

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
        f"{what} is gone: another writer dropped it since lakefmt's last write, because its settings do not ask for it, or a "
        "restore brought back columns of a time before it; table.index.create makes it again",
    )


def note_indexes(write_client: WriteClient, config: TableConfig) -> None:
    """Keep the list of indexes for the next write, under the table lock; the write that calls this is committed.

    Parameters:
        write_client: the table.
        config: its properties as the write met them.
    """
    if _noted_names(config) == frozenset(config.metadata_partitions):
        return
    client = write_client.client
    with suppress(StorageError):  # the next write notes it, or warns again
        names = client.load_config().metadata_partitions
        changes = {SEEN_KEY: ",".join(sorted(names)) or None}
        update_properties(client.store, changes, client.clock.now(), durable=False)
