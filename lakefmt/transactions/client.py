"""What every writer and service needs: the table, the settings of the call, the lock, its stamp, an instant (effects)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lakefmt.arguments import mapping_argument
from lakefmt.config.mergers import adopt_merger
from lakefmt.config.settings import Settings, resolve_settings
from lakefmt.config.table_config import TableConfig
from lakefmt.errors import InternalError, WriterActive
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.storage.api import PutOutcome
from lakefmt.timeline.heartbeat import Heartbeat, Liveness, heartbeat_name, is_alive
from lakefmt.timeline.instant import Action, Instant, State, instant_file_name
from lakefmt.timeline.locks.open import Lease, TableLock, lock_options, open_lock
from lakefmt.timeline.locks.reentrant import held_lock_of
from lakefmt.timeline.properties_store import update_properties
from lakefmt.timeline.store import TimelineStore
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import InstantTime

__all__ = [
    "WriteClient",
    "claim_instant",
    "drop_metadata_table",
    "open_write_client",
    "request_service",
    "take_over_instant",
    "write_client_of",
]

_METADATA_KEYS = (
    "hoodie.table.metadata.partitions",
    "hoodie.table.metadata.partitions.inflight",
    "hoodie.table.index.defs.path",
)
_METADATA_DIRECTORIES = (".hoodie/metadata", ".hoodie/.index_defs")
_CLAIMS = 1000


@dataclass(frozen=True, slots=True)
class WriteClient:
    """The table, the settings of the call, the lock, the writer's stamp."""

    client: TableClient
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
        return self.client.timeline_store(config, durable=self.durable)

    def instant_time_generator(self, config: TableConfig, timeline: Timeline) -> Callable[[], InstantTime]:
        """Return the source of new instant times above everything on `timeline`."""
        clock, floor = self.client.instant_clock(config), timeline.highest_time
        return lambda: clock.next(floor)

    def writer_liveness(self, config: TableConfig, timeline: Timeline, pending: Instant) -> Liveness:
        """Tell whether the writer of a pending instant may be alive."""
        client = self.client
        return is_alive(
            client.store, timeline, pending, config.timeline_directory, client.clock.now, self.expiry_seconds
        )

    def is_claimed(self, config: TableConfig, timeline: Timeline, time: InstantTime) -> bool:
        """Tell whether somebody who may be alive has begun a commit at `time`, requested or not."""
        name = instant_file_name(time, Action.COMMIT, State.REQUESTED, config.version.layout)
        return self.writer_liveness(
            config, timeline, Instant(time, Action.COMMIT, State.REQUESTED, file_name=name)
        ).alive


def open_write_client(client: TableClient, options: Mapping[str, object] | None = None) -> WriteClient:
    """Return the services of a new writer.

    Args:
        client: the table; its settings go behind those of the call.
        options: settings of the call.
    """
    given = {**client.options, **mapping_argument(options, "options")}
    settings = resolve_settings(given, None, client.load_config().properties)
    adopt_merger(given)  # a function that is not there is refused before the write begins
    return write_client_of(client, settings, client.ids.new_uuid())


def write_client_of(client: TableClient, settings: Settings, owner: str) -> WriteClient:
    """Return the services of the writer that has the stamp `owner`."""
    options = lock_options(settings, lambda: client.load_config().name)
    lock = open_lock(client.store, options, owner, client.time_source, lambda: client.clock.now().timestamp())
    held_lock = held_lock_of(client.store.url)
    return WriteClient(client, settings, lock if held_lock is None else held_lock.over(lock), owner)


def claim_instant(
    write_client: WriteClient, config: TableConfig, timeline: Timeline, action: Action, body: bytes = b""
) -> tuple[Heartbeat, InstantTime]:
    """Take a new instant time by its heartbeat, and request it.

    Args:
        write_client: the writer.
        config: the table's properties.
        timeline: the new instant is above everything on it.
        action: what will be done.
        body: what the requested file says.

    Raises:
        InternalError: every time that was tried is taken.
    """
    next_time = write_client.instant_time_generator(config, timeline)
    for _ in range(_CLAIMS):
        time = next_time()
        heartbeat = _heartbeat(write_client, time)
        if not heartbeat.claim():
            continue
        try:
            if write_client.timeline(config).request(time, action, body) is PutOutcome.DONE:
                return heartbeat, time
        except BaseException:
            heartbeat.abandon()
            raise
        heartbeat.stop()
    raise InternalError(f"no free instant time was found in {_CLAIMS} attempts")


def take_over_instant(write_client: WriteClient, instant: Instant) -> Heartbeat:
    """Take the claim on a pending instant whose author is dead or only planned it; call under the lock.

    Raises:
        WriterActive: somebody else has taken it.
    """
    write_client.client.store.delete([heartbeat_name(instant.time)])
    heartbeat = _heartbeat(write_client, instant.time)
    if not heartbeat.claim():
        raise WriterActive(f"the {instant.action.value} {instant.time} was taken up by somebody else")
    return heartbeat


def _heartbeat(write_client: WriteClient, time: InstantTime) -> Heartbeat:
    interval = write_client.settings.integer("hoodie.client.heartbeat.interval_in_ms") / 1000
    return Heartbeat(write_client.client.store, time, write_client.owner, interval, write_client.client.time_source)


def request_service(
    write_client: WriteClient, state: TableState, action: Action, body: bytes, lease: Lease, *, start: bool
) -> tuple[Heartbeat, InstantTime]:
    """Take an instant for a table service and request its plan; call under the lock.

    Args:
        write_client: whose service it is.
        state: the table that was planned for.
        action: the service.
        body: its plan, as the requested file has it.
        lease: the lock's.
        start: also move it to inflight; False leaves it to whoever runs it.
    """
    heartbeat, time = claim_instant(write_client, state.config, state.timeline, action, body)
    try:
        lease.check()
        if start:
            write_client.timeline(state.config).start(time, action)
    except BaseException:
        heartbeat.abandon()  # dead from here on: the next run of the service takes it up
        raise
    return heartbeat, time


def drop_metadata_table(write_client: WriteClient) -> TableConfig:
    """Remove the table's metadata table; return the properties without it."""
    # First the properties, then the directories (spec A.8): in between readers list the store, which is right.
    client = write_client.client
    changes = dict.fromkeys(key for key in _METADATA_KEYS if key in client.load_config().properties)
    if changes:
        update_properties(client.store, changes, client.clock.now(), durable=write_client.durable)
    for directory in _METADATA_DIRECTORIES:
        client.store.delete_tree(directory)
    return client.load_config()
