"""What every writer and table service needs: the table, the settings of the call, the lock, the writer id, an instant.

:class:`Concurrency` says how concurrent writers of a table behave, and refuses settings that would lose data.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

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
from lakefmt._core.timeline.store import TimelineStore, update_properties
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import InstantTime, TableType
from lakefmt.errors import InvalidInputError, StorageError, UnknownSetting, WriterActive

__all__ = [
    "Concurrency",
    "FailedWrites",
    "WriteAt",
    "WriteClient",
    "check_concurrency",
    "check_non_blocking",
    "drop_metadata_table",
    "is_beside",
    "is_non_blocking",
    "lost_index_warnings",
    "note_indexes",
    "open_write_client",
    "write_client_of",
]

_MODE: Final = "hoodie.write.concurrency.mode"
_POLICY: Final = "hoodie.clean.failed.writes.policy"
_STRATEGY: Final = "hoodie.write.lock.conflict.resolution.strategy"
_TURN: Final = "lakefmt.write.turn.after.conflicts"
#: The last one compares buckets, which :func:`lakefmt._core.timeline.conflict.check_conflict` does wherever file groups have them.
_STRATEGIES: Final = frozenset(
    {
        "SimpleConcurrentFileWritesConflictResolutionStrategy",
        "PreferWriterConflictResolutionStrategy",
        "BucketIndexConcurrentFileWritesConflictResolutionStrategy",
    }
)
_OPTIMISTIC: Final = "optimistic_concurrency_control"
_NON_BLOCKING: Final = "non_blocking_concurrency_control"
#: A write that may keep the lock succeeds soon. One that takes too long for that may lose ten attempts by bad luck.
_RETRIES: Final = 20


class FailedWrites(enum.Enum):
    """When failed writes are rolled back, as in ``hoodie.clean.failed.writes.policy``."""

    EAGER = "eager"
    LAZY = "lazy"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How one writer behaves beside others.

    Attributes:
        beside: True: it begins beside live writers and repeats its write after a conflict. False: it needs to be alone.
        background: services run beside it, in a thread of its process; it repeats its write after a conflict with them, too.
        failed_writes: when it rolls back writes whose writer is dead. Live writers are never rolled back.
        retries: attempts after a conflict.
        early: whether it looks for conflicts before it writes files (early conflict detection).
        turn_after: conflicts after which it holds the lock for a whole attempt; 0: never.
    """

    beside: bool
    background: bool
    failed_writes: FailedWrites
    retries: int
    early: bool
    turn_after: int = 0


def check_concurrency(settings: Settings, *, lock_reaches_all: bool) -> Concurrency:
    """Return how a writer behaves, or refuse settings under which writers could lose each other's rows.

    Args:
        settings: of the call.
        lock_reaches_all: whether the lock excludes every process that may write: the store has locks between processes,
            or a lock provider is set.

    Raises:
        InvalidInputError: the settings could lose data together.
        UnknownSetting: Hudi has no such strategy.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> many = resolve_settings({"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"})
        >>> check_concurrency(many, lock_reaches_all=True).failed_writes.value
        'lazy'
    """
    mode = settings.text(_MODE)
    strategy = settings.text(_STRATEGY)
    if strategy is not None and strategy.rsplit(".", 1)[-1] not in _STRATEGIES:
        raise UnknownSetting(
            f"{_STRATEGY} does not take {strategy!r}: expected one of {', '.join(sorted(_STRATEGIES))}"
        )
    beside = is_beside(settings)
    background = settings.flag("lakefmt.write.services.background")
    policy_name = settings.text(_POLICY)
    if policy_name == "eager" and (beside or background):
        cause = f"{_MODE}={mode}" if beside else "lakefmt.write.services.background=true"
        raise InvalidInputError(
            f"{_POLICY}=eager means that whatever is pending has failed, but with {cause} others may be at work: leave it "
            "unset, or say lazy"
        )
    if beside and not lock_reaches_all:
        raise InvalidInputError(
            f"{_MODE}={mode} needs a lock that every writer takes, and this store has none of its own: set "
            "hoodie.write.lock.provider (InProcessLockProvider when all writers are threads of this process)"
        )
    policy = (
        FailedWrites(policy_name) if policy_name else FailedWrites.LAZY if beside or background else FailedWrites.EAGER
    )
    retry_setting = settings.values["hoodie.write.num.retries.on.conflict.failures"]
    retries = int(str(retry_setting)) if retry_setting is not None else _RETRIES if beside or background else 0
    early = settings.flag("hoodie.write.concurrency.early.conflict.detection.enable")
    return Concurrency(beside, background, policy, retries, early, settings.integer(_TURN) if beside else 0)


def is_beside(settings: Settings) -> bool:
    """Return whether a writer expects others at work.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> is_beside(resolve_settings({}))
        False
    """
    return settings.text(_MODE) in (_OPTIMISTIC, _NON_BLOCKING)


def is_non_blocking(settings: Settings) -> bool:
    """Return whether writers of one file group do not conflict, because each of them only adds logs.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> is_non_blocking(resolve_settings({"hoodie.write.concurrency.mode": "non_blocking_concurrency_control"}))
        True
    """
    return settings.text(_MODE) == _NON_BLOCKING


def check_non_blocking(settings: Settings, config: TableConfig, *, places_keys: bool) -> None:
    """Raise when non-blocking writers of a table would not meet in logs only.

    Args:
        settings: of the call.
        config: of the table. From version 8 on each commit writes log files of its own.
        places_keys: whether its index gives every key one file group, whatever writer it is.

    Raises:
        InvalidInputError: the mode is non-blocking and one of these is missing.
    """
    own_logs = config.table_type is TableType.MERGE_ON_READ and config.version.layout > 1
    if is_non_blocking(settings) and not (own_logs and places_keys):
        raise InvalidInputError(
            f"{_MODE}={_NON_BLOCKING} needs a merge-on-read table of version 8 or 9 with a bucket index of a fixed "
            f"number of buckets, where writers meet in logs only: use {_OPTIMISTIC}"
        )


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
