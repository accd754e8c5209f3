"""Where a stream stands in a table: the progress of a consumer, kept in the table, and where streams begin and end (effects).

A consumer's file is replaced by compare-and-swap where the store can, and names who reads at present. A reader that took it over,
or a caller that reset or deleted it, makes the next change of the former owner fail (docs/consumers.md).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from lakefmt._core.consumers.planning import CommitFinder
from lakefmt._core.consumers.position import End, Start, StreamPosition, position_behind
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.read.incremental import EARLIEST
from lakefmt._core.read.snapshot import resolve_bound
from lakefmt._core.storage.api import PutOutcome, with_versions
from lakefmt._core.storage.process_lock import ProcessName, has_ended, this_process
from lakefmt._core.timeline.consumers import (
    CONSUMERS,
    MAX_CONSUMER_BYTES,
    RUNNING,
    RUNNING_EXPIRY,
    ConsumerRecord,
    decode_consumer,
    encode_consumer,
)
from lakefmt._core.timeline.instant import parse_instant_time
from lakefmt.errors import ConsumerActive, InvalidInputError, LakefmtError, LeaseLost, ObjectNotFound, StorageError

__all__ = [
    "ConsumerProgress",
    "RunningHold",
    "as_its_shards",
    "change_consumer",
    "completion_moment",
    "consumer_name",
    "end_time",
    "is_active",
    "load_consumer",
    "position_of",
    "record_of",
    "start_position",
]

_log = logging.getLogger("lakefmt.consumers")
#: An owner says so often that it is alive, in seconds.
BEAT_SECONDS: Final = 20.0
#: An owner that was not heard of for so long has ended.
_OWNER_SILENCE: Final = timedelta(seconds=60)
_MOST_ATTEMPTS: Final = 20


def consumer_name(consumer_id: str, shard: tuple[int, int] | None = None) -> str:
    """Return the file of a consumer, or of one of its shards, relative to the table.

    Example:
        >>> consumer_name("report", (0, 4))
        '.hoodie/.lakefmt/consumers/report@0-of-4.json'
    """
    return f"{CONSUMERS}/{consumer_id}{'' if shard is None else f'@{shard[0]}-of-{shard[1]}'}.json"


def position_of(record: ConsumerRecord) -> StreamPosition:
    """Return the position that a consumer's file holds.

    Example:
        >>> position_of(ConsumerRecord("000")).done
        '000'
    """
    return StreamPosition(record.next_start, record.instant, dict(record.files), record.whole, record.in_turn)


def record_of(position: StreamPosition, record: ConsumerRecord) -> ConsumerRecord:
    """Return a consumer's file with another position."""
    return replace(
        record,
        next_start=position.done,
        instant=position.instant,
        files=dict(position.parts),
        whole=position.whole,
        in_turn=position.in_turn,
    )


def is_active(record: ConsumerRecord, now: datetime) -> bool:
    """Return whether the owner of a consumer may be alive.

    Args:
        record: the consumer's file.
        now: current time, with a zone.
    """
    if not record.owner:
        return False
    name = _parse_process(record.process)
    if name is not None and has_ended(name):
        return False
    return record.updated is None or now - record.updated <= _OWNER_SILENCE


def load_consumer(client: TableClient, name: str) -> ConsumerRecord | None:
    """Return what a consumer's file says; None: there is none.

    Raises:
        CorruptFile: it is damaged.
    """
    try:
        return decode_consumer(client.store.read(name, MAX_CONSUMER_BYTES), name)
    except ObjectNotFound:
        return None


def change_consumer(
    client: TableClient, name: str, change: Callable[[ConsumerRecord | None], ConsumerRecord]
) -> ConsumerRecord:
    """Replace a consumer's file, and return what it then says.

    Args:
        client: the table.
        name: of the file.
        change: returns the new content, given the present one; may be called again, and may raise to change nothing.

    Raises:
        StorageError: others changed it at every attempt.
        CorruptFile: it is damaged.
    """
    versions = with_versions(client.store)
    if versions is None:
        record = change(load_consumer(client, name))
        client.store.put(name, encode_consumer(record), durable=True)
        return record
    for _ in range(_MOST_ATTEMPTS):
        present = versions.read_version(name, MAX_CONSUMER_BYTES)
        record = change(None if present is None else decode_consumer(present.data, name))
        data = encode_consumer(record)
        if len(data) > MAX_CONSUMER_BYTES:
            raise InvalidInputError(
                f"{name}: a position inside a commit of {len(record.files):,} file groups is too large"
            )
        if versions.put_if_match(name, data, None if present is None else present.mark).outcome is PutOutcome.DONE:
            return record
        # Refused or unknown: what is there now decides.
        stored = versions.read_version(name, MAX_CONSUMER_BYTES)
        if stored is not None and stored.data == data:
            return record
    raise StorageError(f"{name} was changed by others {_MOST_ATTEMPTS} times in a row", transient=True)


def as_its_shards(
    client: TableClient, consumer_id: str, shard: tuple[int, int] | None, position: StreamPosition
) -> StreamPosition:
    """Return where a shard begins, with the buckets that the other shards of its consumer leave to it.

    Progress that an earlier release has stored deals buckets out in another way, and all shards have to do it alike.
    """
    if shard is None or not position.in_turn:
        return position
    end = f"-of-{shard[1]}.json"
    names = [file.name for file in client.store.list(CONSUMERS, recursive=False) if file.name.endswith(end)]
    records = [load_consumer(client, name) for name in names if name.startswith(f"{CONSUMERS}/{consumer_id}@")]
    return replace(position, in_turn=all(record is None or record.in_turn for record in records))


class ConsumerProgress:
    """The progress of the consumer that this process reads as.

    Args:
        client: the table.
        consumer_id: its id.
        shard: which part of the buckets it reads; each has its own progress.
        mode: ``exactly_once`` or ``at_least_once``.
        digest: a short text for the filter.
    """

    def __init__(
        self, client: TableClient, consumer_id: str, shard: tuple[int, int] | None, mode: str, digest: str
    ) -> None:
        self.consumer_id = consumer_id
        self._client, self._mode, self._digest, self._shard = client, mode, digest, shard
        self._name = consumer_name(consumer_id, shard)
        self._owner = client.ids.new_uuid()
        self._lock = threading.Lock()
        self._stop_beating: Callable[[], None] | None = None
        self._stored: StreamPosition | None = None

    @property
    def stored(self) -> StreamPosition | None:
        """The position that the table holds; None before the first."""
        return self._stored

    def open(self, start: Callable[[], StreamPosition], *, takeover: bool, ignores: bool) -> StreamPosition:
        """Become the owner, and return the position to go on from.

        Args:
            start: returns the position of a consumer that has none.
            takeover: take the consumer from another owner that is alive.
            ignores: begin at `start` whatever is stored.

        Raises:
            ConsumerActive: another owner is alive.
            InvalidInputError: the stored position is inside a commit that was read with another filter.
        """
        first: list[StreamPosition] = []

        def claim(record: ConsumerRecord | None) -> ConsumerRecord:
            now = self._client.clock.now()
            if record is not None and is_active(record, now) and not takeover:
                raise ConsumerActive(
                    f"the consumer {self.consumer_id!r} is read by {record.owner} ({record.process or 'elsewhere'}), last heard "
                    f"of at {record.updated}: wait until it has ended, or give takeover=True"
                )
            if record is None or ignores:
                first[:] = first or [as_its_shards(self._client, self.consumer_id, self._shard, start())]
                record = record_of(first[0], ConsumerRecord(first[0].done))
            if record.files and record.filter != self._digest:
                raise InvalidInputError(
                    f"the consumer {self.consumer_id!r} stopped inside a commit that it read with another filter: give that "
                    "filter, or reset the consumer"
                )
            return replace(self._owned(record, now), filter=self._digest, mode=self._mode)

        record = change_consumer(self._client, self._name, claim)
        self._stored = position_of(record)
        self._stop_beating = self._client.time_source.schedule_periodic(
            BEAT_SECONDS, self._beat, f"lakefmt-consumer-{self.consumer_id}"
        )
        return self._stored

    def _owned(self, record: ConsumerRecord, now: datetime) -> ConsumerRecord:
        return replace(record, owner=self._owner, process=_process_text(this_process()), updated=now)

    def store(self, position: StreamPosition) -> None:
        """Keep a position.

        Raises:
            LeaseLost: another owner took the consumer over, or it was reset or deleted.
        """
        self._change(lambda record: record_of(position, record))
        self._stored = position

    def _change(self, change: Callable[[ConsumerRecord], ConsumerRecord]) -> None:
        def own(record: ConsumerRecord | None) -> ConsumerRecord:
            if record is None or record.owner != self._owner:
                what = "was deleted" if record is None else f"is read by {record.owner or 'nobody'} now, or was reset"
                raise LeaseLost(f"the consumer {self.consumer_id!r} {what}: this reader's progress is not kept")
            return change(replace(record, updated=self._client.clock.now()))

        with self._lock:
            change_consumer(self._client, self._name, own)

    def _beat(self) -> None:
        try:
            self._change(lambda record: record)
        except LakefmtError:
            # A failed renewal is a missed one; the next stored position finds out whether the consumer is still ours.
            return

    def close(self) -> None:
        """Let others read as this consumer; what fails is passed over, the owner then counts as dead after a minute."""
        if self._stop_beating is not None:
            self._stop_beating()
            self._stop_beating = None
            try:
                self._change(lambda record: replace(record, owner="", process=""))
            except LakefmtError:
                return

    def abandon(self) -> None:
        """Stop as a process does that dies: the file stays as it is."""
        if self._stop_beating is not None:
            self._stop_beating()
            self._stop_beating = None


class RunningHold:
    """Keeps what a stream without a consumer's id has not read, as long as it runs: a consumer of no name.

    Who may not write to the table reads on without it.

    Args:
        client: the table.
        position: where the stream begins.
    """

    def __init__(self, client: TableClient, position: StreamPosition) -> None:
        self._client, self._name = client, f"{CONSUMERS}/{RUNNING}-{client.ids.new_uuid()}.json"
        #: How far the stream has come; each sign of life tells the cleaner.
        self.position = position
        #: Nobody has the stream any more.
        self.is_dropped = False
        self._lock = threading.Lock()
        self._stop_beating: Callable[[], None] | None = None
        try:
            self._remove_dead()
            self._store()
        except LakefmtError as error:
            _log.info("%s: a stream without a consumer's id holds nothing: %s", client.store.url, error)
            return
        self._stop_beating = client.time_source.schedule_periodic(BEAT_SECONDS, self._beat, "lakefmt-stream-hold")

    def _store(self) -> None:
        position = self.position
        # What is read whole is the state at its time, not only what comes after it.
        next_start = f"{max(0, int(position.done) - 1):0{len(position.done)}d}" if position.whole else position.done
        owner = self._name.rpartition("/")[2].removesuffix(".json")
        record = ConsumerRecord(
            next_start, self._client.clock.now(), mode=RUNNING, owner=owner, process=_process_text(this_process())
        )
        self._client.store.put(self._name, encode_consumer(record))

    def _remove_dead(self) -> None:
        """Remove what streams have left whose processes have died."""
        now, store = self._client.clock.now(), self._client.store
        for file in store.list(CONSUMERS, recursive=False):
            if not file.name.startswith(f"{CONSUMERS}/{RUNNING}-"):
                continue
            record = load_consumer(self._client, file.name)
            if record is not None and record.mode == RUNNING and record.updated is not None:
                name = _parse_process(record.process)
                if now - record.updated > RUNNING_EXPIRY or (name is not None and has_ended(name)):
                    store.delete([file.name])

    def _beat(self) -> None:
        if self.is_dropped:
            self.end()
            return
        with self._lock, suppress(LakefmtError):  # a failed sign of life is a missed one
            if self._stop_beating is not None:
                self._store()

    def drop(self) -> None:
        """Let the next sign of life be the last one: nobody has the stream any more."""
        self.is_dropped = True

    def end(self) -> None:
        """Stop holding rows: remove the file of this stream."""
        with self._lock:
            stop, self._stop_beating = self._stop_beating, None
        if stop is not None:
            stop()
            with suppress(LakefmtError):
                self._client.store.delete([self._name])


def _process_text(name: ProcessName | None) -> str:
    return "" if name is None else f"{name.machine}|{name.space}|{name.pid}|{name.started}"


def _parse_process(name: str) -> ProcessName | None:
    parts = name.split("|")
    if len(parts) != 4 or not all(part.isdigit() and len(part) < 20 for part in parts[2:]):
        return None
    return ProcessName(parts[0], parts[1], int(parts[2]), int(parts[3]))


# --------------------------------------------------------------------------------------- where a stream begins and ends


def start_position(client: TableClient, finder: CommitFinder, start: Start) -> StreamPosition:
    """Return where a stream begins.

    Args:
        client: the table.
        finder: of the stream.
        start: what the caller asked for.

    Raises:
        InvalidInputError: no such time.
    """
    if start.position is not None:
        return start.position
    if start.moment is not None:
        config = client.load_config()
        return position_behind(resolve_bound(start.moment, client.reading_zone(config)), config.version.layout)
    if start.word in ("latest", "full"):
        state = client.load()
        newest = finder.newest(state)
        if not newest:
            return StreamPosition()
        is_whole = start.word == "full"
        return StreamPosition(newest, whole=True) if is_whole else position_behind(newest, state.timeline.layout)
    earliest = _earliest_readable(client, finder)
    if start.watermark is None:
        return _oldest_whole_state(client, earliest)
    # Commits with a larger watermark that were cleaned away are not passed over: the stream says so.
    if _has_rows_up_to(finder, earliest):
        return StreamPosition()
    return position_behind(earliest, client.known_config.version.layout)


def _oldest_whole_state(client: TableClient, earliest: str) -> StreamPosition:
    """Return where a stream begins that leaves out no row: at the first commit, or with the oldest state that is whole.

    Args:
        client: the table.
        earliest: the position from which on nothing was cleaned away.
    """
    if earliest == EARLIEST:
        return StreamPosition()
    state = client.load()
    retained = client.at(state).retained_from() or ""
    times = [instant.order_time for instant in state.timeline.commits if instant.time <= retained]
    return StreamPosition(max([earliest, *times]), whole=True)


def _has_rows_up_to(finder: CommitFinder, end: str) -> bool:
    """Return whether commits up to a completion time hand out rows."""
    position = EARLIEST
    while position < end:
        coming = finder.find(position, end)
        if any(step.parts for step in coming.steps):
            return True
        if coming.is_all:
            break
        position = coming.steps[-1].instant.order_time
    return False


def _earliest_readable(client: TableClient, finder: CommitFinder) -> str:
    """Return the position from which on nothing was cleaned away."""
    position = looked_up_to = EARLIEST
    retained = client.at(client.load()).retained_from()
    while retained is not None:
        coming = finder.find(looked_up_to)
        old = [step for step in coming.steps if step.instant.time <= retained]
        lost, _ = finder.oldest_readable(coming.state, old)
        position = lost or position
        if coming.is_all or len(old) < len(coming.steps):
            break
        looked_up_to = coming.steps[-1].instant.order_time
    return position


def end_time(client: TableClient, finder: CommitFinder, end: End) -> str | None:
    """Return the completion time up to which a stream reads; None: no end by time.

    Args:
        client: the table.
        finder: of the stream.
        end: what the caller asked for.
    """
    moment = None if end.moment is None else resolve_bound(end.moment, client.reading_zone(client.load_config()))
    if not end.newest:
        return moment
    newest = finder.newest(client.load()) or EARLIEST
    return newest if moment is None else min(newest, moment)


def completion_moment(client: TableClient, time: str) -> datetime | None:
    """Return a completion time as a moment; None for a text that is none."""
    zone = client.reading_zone(client.known_config) or datetime.now(UTC).astimezone().tzinfo or UTC
    if len(time) not in (14, 17):
        return None
    try:
        return parse_instant_time(time, zone)
    except (ValueError, InvalidInputError):
        return None
