"""The timeline directory of a table: its instants and ``hoodie.properties`` are listed, read and moved on here.

This is the only module that creates or deletes timeline files. Every move is checked against
:data:`lakefmt._core.timeline.instant.TRANSITIONS` first. The answer of a store may be lost: :func:`put_if_absent_confirmed` reads the
object again to learn whether it was written. The times of new instants come from :class:`InstantClock`.

A LOCAL timeline (docs/timeline.md, Local timelines) has the wall-clock times of whoever wrote it, and nothing says
where that was. An instant that is ahead of the other writers' clocks would hide what they write next, so the lowest
offset counts that the newest instants allow (:func:`reading_zone`).

Properties are read before every write and never cached: another engine may have changed them. An
update runs under the table lock.
"""

from __future__ import annotations

import zoneinfo
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from lakefmt._core.formats.properties import (
    CHECKSUM_KEY,
    check_table_checksum,
    decode_properties,
    encode_properties,
    properties_comment_date,
    table_checksum,
)
from lakefmt._core.storage.api import ObjectInfo, ObjectStore, PutOutcome, SupportsNames
from lakefmt._core.storage.parallel import map_concurrently
from lakefmt._core.timeline.instant import (
    Action,
    Instant,
    State,
    check_transition,
    comparable_action,
    format_instant_time,
    instant_file_name,
    parse_instant_file,
    parse_instant_time,
)
from lakefmt._core.timeline.timeline import Timeline, build_timeline, extend_timeline, timeline_from_names
from lakefmt._core.values import Clock, InstantTime
from lakefmt.errors import (
    CorruptFile,
    InvalidInputError,
    ObjectNotFound,
    StateError,
    StorageError,
    TableExists,
    TableNotFound,
)

if TYPE_CHECKING:
    from lakefmt._core.storage.table_directory import TableDirectory

__all__ = [
    "BACKUP",
    "LOWEST_ZONE",
    "NEWEST",
    "PROPERTIES",
    "InstantClock",
    "TimelineStore",
    "create_properties",
    "load_mark",
    "load_properties",
    "next_instant_time",
    "offset_of",
    "put_if_absent_confirmed",
    "reading_zone",
    "update_properties",
    "writing_zone",
]

#: A timeline file that is larger than this is refused before it is read.
MAX_BODY_BYTES = 512 * 1024 * 1024
T = TypeVar("T")

_CACHE_BYTES = 64 * 1024 * 1024
_ATTEMPTS = 3
_MILLISECOND = timedelta(milliseconds=1)


def next_instant_time(time: InstantTime, zone: tzinfo = UTC) -> InstantTime:
    """Return the instant time one millisecond later.

    Example:
        >>> next_instant_time("20261231235959999")
        '20270101000000000'
    """
    return format_instant_time(parse_instant_time(time, zone) + _MILLISECOND, zone)


class InstantClock:
    """Generates the instant times of one table: strictly increasing, larger than all on the timeline.

    Requested and completion times come from one generator, so an instant completes after it was requested, and an
    instant that starts after another completed has a larger time, even if the system clock steps back
    (docs/format.md, Instant times).
    """

    def __init__(self, clock: Clock, zone: tzinfo | None = UTC) -> None:
        self._clock = clock
        self._zone = zone
        self._last = InstantTime("")
        self._lock = Lock()

    def next(self, above: InstantTime | None = None, zone: tzinfo | None = None) -> InstantTime:
        """Return a time larger than `above` and than all times that this clock returned.

        Args:
            above: the highest time on the timeline.
            zone: of the timeline, where its properties do not name one; None: the machine's.
        """
        with self._lock:
            now = self._clock.now()
            zone = self._zone or zone or now.astimezone().tzinfo or UTC
            candidate = format_instant_time(now, zone)
            floor = max(self._last, above or InstantTime(""))
            if candidate <= floor:
                # Compared as text, not by calendar, so that a local time inside a daylight-saving
                # gap is exceeded, too.
                candidate = next_instant_time(floor, UTC)
            self._last = candidate
            return candidate


def put_if_absent_confirmed(store: ObjectStore, name: str, data: bytes, *, durable: bool) -> PutOutcome:
    """Put an object if it is absent; when the answer is lost, read it to learn the outcome: done or refused, never unknown.

    No other writer may put the same bytes under that name: equal bytes are taken for this writer's.

    Raises:
        StorageError: the store did not answer.
    """
    for _ in range(_ATTEMPTS):
        outcome = store.put_if_absent(name, data, durable=durable)
        if outcome is not PutOutcome.UNKNOWN:
            return outcome
        if store.info(name) is not None:
            try:
                return PutOutcome.DONE if store.read(name, MAX_BODY_BYTES) == data else PutOutcome.REFUSED
            except ObjectNotFound:
                continue  # it was deleted in between
    raise StorageError(f"the store does not say whether {name} was written; nothing was completed", transient=True)


class InstantCache(Generic[T]):
    """What was read of instants, by name and size of their files; thread-safe.

    Completed files never change. What leaves the active timeline is dropped: a handle that lives long would keep all of it.

    Args:
        most: how much is kept, in what `size_of` counts; what was used last stays.
        size_of: counts one of them.

    Example:
        >>> cache = InstantCache[str](2)
        >>> for time in ("1", "2", "3"):
        ...     cache.keep((f"{time}.commit", 9), time)
        >>> cache.forget_before("3")
        >>> cache.get(("1.commit", 9)), cache.get(("2.commit", 9)), cache.get(("3.commit", 9)), len(cache)
        (None, None, '3', 1)
    """

    def __init__(self, most: int, size_of: Callable[[T], int] = lambda _: 1) -> None:
        self._most = most
        self._size_of = size_of
        self._kept: OrderedDict[tuple[str, int], T] = OrderedDict()
        self._size = 0
        self._first_active = ""
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: tuple[str, int]) -> bool:
        return key in self._kept

    @property
    def names(self) -> frozenset[str]:
        """The files of which something is kept."""
        with self._lock:
            return frozenset(name for name, _ in self._kept)

    def get(self, key: tuple[str, int]) -> T | None:
        """Return what is kept of a file, None without it."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def keep(self, key: tuple[str, int], value: T) -> None:
        """Keep what was read of a file."""
        with self._lock:
            if key in self._kept:
                self._size -= self._size_of(self._kept.pop(key))
            self._kept[key] = value
            self._size += self._size_of(value)
            while self._size > self._most and len(self._kept) > 1:
                self._size -= self._size_of(self._kept.popitem(last=False)[1])

    def forget_before(self, first: str | None) -> None:
        """Drop what is kept of instants before the first active one; None: there is none."""
        with self._lock:
            if first is None or first <= self._first_active:
                return
            self._first_active = first
            for key in [key for key in self._kept if key[0][: len(first)] < first]:
                self._size -= self._size_of(self._kept.pop(key))


def _has_nothing_of(before: frozenset[str], listed: frozenset[str]) -> bool:
    """Return whether a timeline has no file of an instant that was there before; the newest commit stays on a table's timeline.

    Example:
        >>> _has_nothing_of(frozenset(["1.commit", "history"]), frozenset(["2.commit", "history"]))
        True
    """
    instants = [name for name in before if name[:1].isdigit()]
    return bool(instants) and listed.isdisjoint(instants)


class TimelineStore:
    """The timeline directory of one table.

    Attributes:
        directory: where the active timeline lives, relative to the table.
        layout: the timeline layout, 1 or 2.
        seen: the timeline of the last listing, with what was completed through this object since; None before the first
            listing. Other writers may have changed it since: it shows whether a new listing is worth it and must decide nothing.
        made_anew: how often everything that was listed before was gone: another table was made in the place of the one that was
            dropped.
    """

    def __init__(self, store: ObjectStore, directory: str, layout: int, *, durable: bool) -> None:
        self._store = store
        self._names = store if isinstance(store, SupportsNames) else None
        self.directory = directory
        self.layout = layout
        self._durable = durable
        self._bodies = InstantCache[bytes](_CACHE_BYTES, len)
        self._view: tuple[frozenset[str], Timeline] | None = None
        self._listed: tuple[list[tuple[str, int, float]], Timeline] | None = None
        self.seen: Timeline | None = None
        self.made_anew = 0

    def load(self, directory: TableDirectory | None = None) -> Timeline:
        """List the timeline.

        A listing that says what the last one said means what that meant; the listing itself is never cached.

        Args:
            directory: has been listed for this call; None: the timeline is listed now.
        """
        self.seen = self._load(directory)
        self._bodies.forget_before(self.seen.first_active)
        return self.seen

    def _load(self, directory: TableDirectory | None) -> Timeline:
        if self._names is not None:
            return self._load_names(frozenset(self._names.list_names(self.directory)))
        skip = len(self.directory) + 1
        listed = (
            self._store.list(self.directory, recursive=False) if directory is None else directory.inside(self.directory)
        )
        files = [(o.name[skip:], o.size, o.modified) for o in listed]
        cached_listing = self._listed
        if cached_listing is not None and cached_listing[0] == files:
            return cached_listing[1]
        instants = (parse_instant_file(name, self.layout, size, modified) for name, size, modified in files)
        timeline = build_timeline((i for i in instants if i is not None), self.layout)
        if cached_listing is not None:
            self.made_anew += _has_nothing_of(
                frozenset(name for name, *_ in cached_listing[0]), frozenset(name for name, *_ in files)
            )
        self._listed = (files, timeline)
        return timeline

    def _load_names(self, listed: frozenset[str]) -> Timeline:
        before, timeline = self._view, None
        if before is not None:
            new = listed - before[0]
            if len(listed) == len(before[0]) + len(new):  # nothing is gone
                timeline = extend_timeline(before[1], new) if new else before[1]
        if timeline is None:
            timeline = timeline_from_names(listed, self.layout)
            self.made_anew += before is not None and _has_nothing_of(before[0], listed)
        self._view = (listed, timeline)
        return timeline

    def read_body(self, instant: Instant) -> bytes:
        """Return the content of an instant's file; completed files never change and are cached.

        Raises:
            ObjectNotFound: there is no such file.
            CorruptFile: the file is too large, or empty.
        """
        key = (instant.file_name, instant.size)
        cached_body = self._bodies.get(key)
        if cached_body is not None:
            return cached_body
        data = self._store.read(f"{self.directory}/{instant.file_name}", MAX_BODY_BYTES)
        if instant.is_completed:
            if not data and instant.action is not Action.CLEAN:
                raise CorruptFile(f"{instant.file_name} is empty: a completed instant must have a body")
            self._bodies.keep(key, data)
        return data

    def request(self, time: InstantTime, action: Action, body: bytes = b"") -> PutOutcome:
        """Create the requested file; *refused* when it exists with other content."""
        check_transition(action, None, State.REQUESTED)
        return self._put(time, action, State.REQUESTED, body)

    def start(self, time: InstantTime, action: Action, body: bytes = b"") -> None:
        """Move a requested instant to inflight; an instant that is inflight already stays so.

        Raises:
            StorageError: the store failed.
        """
        before = None if action is Action.SAVEPOINT else State.REQUESTED
        check_transition(action, before, State.INFLIGHT)
        self._put(time, action, State.INFLIGHT, body)

    def complete(self, time: InstantTime, action: Action, completion: InstantTime, body: bytes) -> Instant:
        """Make an inflight instant visible, atomically and at most once.

        Raises:
            StateError: the instant was completed before, with other content.
            StorageError: the store does not say whether it is visible.
        """
        check_transition(action, State.INFLIGHT, State.COMPLETED)
        completion_time = completion if self.layout == 2 else None
        name = instant_file_name(time, action, State.COMPLETED, self.layout, completion_time)
        if (
            put_if_absent_confirmed(self._store, f"{self.directory}/{name}", body, durable=self._durable)
            is PutOutcome.REFUSED
        ):
            raise StateError(f"instant {time} is completed already: {name} exists")
        if self.seen is not None:
            listed, self.seen = self._view, extend_timeline(before := self.seen, [name])
            if listed is not None and listed[1] is before:
                self._view = (listed[0] | {name}, self.seen)
        return Instant(time, comparable_action(action), State.COMPLETED, completion_time, name, len(body))

    def _put(self, time: InstantTime, action: Action, state: State, body: bytes) -> PutOutcome:
        name = instant_file_name(time, action, state, self.layout)
        return put_if_absent_confirmed(self._store, f"{self.directory}/{name}", body, durable=False)

    def reopen(self, instant: Instant, requested_as: Action | None = None) -> None:
        """Move a completed instant back to inflight, the first step of its rollback: it is invisible from here on.

        Args:
            instant: the completed instant.
            requested_as: the action of its pending files where it differs: a compaction completes as a commit.
        """
        check_transition(instant.action, State.COMPLETED, State.INFLIGHT)
        self.start(instant.time, requested_as or instant.action)
        self._store.delete([f"{self.directory}/{instant.file_name}"])

    def remove_pending(self, time: InstantTime, action: Action) -> None:
        """Delete the inflight, then the requested file of an instant, at the end of a rollback."""
        for state in (State.INFLIGHT, State.REQUESTED):
            name = instant_file_name(time, action, state, self.layout)
            self._store.delete([f"{self.directory}/{name}"])

    def revert_to_requested(self, time: InstantTime, action: Action) -> None:
        """Move an inflight instant back to requested; an instant that is requested already stays so."""
        check_transition(action, State.INFLIGHT, State.REQUESTED)
        self._store.delete([f"{self.directory}/{instant_file_name(time, action, State.INFLIGHT, self.layout)}"])

    def remove_files(self, files: Iterable[Instant]) -> None:
        """Delete timeline files of archived instants, or an inflight file of an instant that is undone; missing files are fine."""
        self._store.delete([f"{self.directory}/{file.file_name}" for file in files])


#: Instants that are looked at.
NEWEST: Final = 8
#: No clock is behind this one.
LOWEST_ZONE: Final = timezone(timedelta(hours=-12))

_QUARTER: Final = 900
#: A file of an instant is stored so many seconds after its time; clocks of stores may be a little behind.
_LATEST: Final = 60.0
_EARLIEST: Final = -2.0


def offset_of(times: Iterable[tuple[str, float]]) -> tuple[int, float] | None:
    """Return the lowest offset from UTC, in seconds, of the zones that instants were written in, and when; None: nothing tells it.

    Args:
        times: the requested time of each, and when its first file was stored, in epoch seconds; 0.0: that is unknown.

    Example:
        >>> stored = datetime(2026, 1, 1, 10, 0, 1, tzinfo=UTC).timestamp()
        >>> offset_of([("20260101153000000", stored)])[0] / 3600, offset_of([("20250101153000000", stored)])
        (5.5, None)
    """
    known = [(time, stored) for time, stored in times if stored]
    offsets = [(offset, stored) for time, stored in known if (offset := _offset(time, stored)) is not None]
    # The files of a copied table have the time of the copy: that one of them fits is chance.
    if 2 * len(offsets) < len(known) or not offsets:
        return None
    return min(offset for offset, _ in offsets), max(stored for _, stored in offsets)


def _offset(time: str, stored: float) -> int | None:
    try:
        ahead = parse_instant_time(time, UTC).timestamp() - stored
    except InvalidInputError:
        return None
    offset = -int(-(ahead + _EARLIEST) // _QUARTER) * _QUARTER
    is_zone = _EARLIEST <= offset - ahead <= _LATEST and offset in _offsets_at(int(stored) // _QUARTER)
    return offset if is_zone else None


def writing_zone(offset: int, stored: float, now: datetime) -> tzinfo:
    """Return a zone for new instants that no other writer's clock is behind.

    Args:
        offset: what :func:`offset_of` returned.
        stored: when the newest instant of it was stored.
        now: the time.

    Example:
        >>> before, after = (datetime(2026, month, 1, tzinfo=UTC) for month in (10, 11))
        >>> writing_zone(7200, before.timestamp(), after).utcoffset(None)
        datetime.timedelta(seconds=3600)
    """
    return timezone(timedelta(seconds=_lowest_now(offset, int(stored) // _QUARTER, int(now.timestamp()) // _QUARTER)))


def reading_zone(offset: int, stored: float) -> tzinfo | None:
    """Return the zone of times that a caller names; None: the machine's own, which has the same offset.

    Args:
        offset: what :func:`offset_of` returned.
        stored: when the newest instant of it was stored.
    """
    machine_offset = datetime.fromtimestamp(stored, UTC).astimezone().utcoffset()
    return None if machine_offset == timedelta(seconds=offset) else timezone(timedelta(seconds=offset))


@lru_cache(maxsize=64)
def _offsets_at(quarter: int) -> frozenset[int]:
    return frozenset(_by_zone(quarter).values())


@lru_cache(maxsize=64)
def _by_zone(quarter: int) -> dict[str, int]:
    """Return the offset of every zone in a quarter of an hour."""
    moment = datetime.fromtimestamp(quarter * _QUARTER, UTC)
    offsets = {name: moment.astimezone(zoneinfo.ZoneInfo(name)).utcoffset() for name in _names()}
    return {name: int(offset.total_seconds()) for name, offset in offsets.items() if offset is not None}


@lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    # Nobody writes tables at the one station whose clocks are set back by two hours; its zone would hold others back, too.
    return tuple(sorted(zoneinfo.available_timezones() - {"Factory", "localtime", "Antarctica/Troll"}))


@lru_cache(maxsize=256)
def _lowest_now(offset: int, then: int, now: int) -> int:
    if then == now:
        return offset
    later = _by_zone(now)
    return min((later[name] for name, each in _by_zone(then).items() if each == offset), default=offset)


PROPERTIES = ".hoodie/hoodie.properties"
BACKUP = ".hoodie/hoodie.properties.backup"
_MAX_BYTES = 16 * 1024 * 1024
#: How the line of a mark begins.
_MARK = "#lakefmt: "


#: Reads an object up to a number of bytes.
Read = Callable[[str, int], bytes]


def load_properties(store: ObjectStore, read: Read | None = None) -> dict[str, str]:
    """Return the table properties: the original, or the backup if an update was interrupted.

    Args:
        store: the table's store.
        read: reads from it; None: its own method.

    Raises:
        TableNotFound: neither file exists.
        CorruptFile: neither file is valid.
    """
    return _load_whole(store, read)[0]


def _load_whole(store: ObjectStore, read: Read | None = None) -> tuple[dict[str, str], str]:
    """Return the properties and the name of the valid file."""
    doubtful: tuple[dict[str, str], str] | None = None
    failures: dict[str, str] = {}
    cached_read = read or store.read
    # Hudi's update removes the file, writes it anew and then removes the backup: it may have done so between the two looks.
    for name, look in ((PROPERTIES, cached_read), (BACKUP, cached_read), (PROPERTIES, store.read)):
        if look is not cached_read and doubtful is not None:
            break
        try:
            properties = _read_valid(look, name)
        except ObjectNotFound:
            continue
        except CorruptFile as error:
            failures[name] = str(error)
            continue
        if CHECKSUM_KEY in properties:
            return properties, name
        # Without a checksum the file may be truncated: a backup with one is better.
        doubtful = doubtful or (properties, name)
    if doubtful is not None:
        return doubtful
    if failures:
        raise CorruptFile(f"{'; '.join(failures.values())}; put back a good copy of {PROPERTIES}")
    raise TableNotFound(
        f"no table at {store.url}: {PROPERTIES} is missing; check the path, or create the table (create_table, `lakefmt create`)"
    )


def _read_valid(read: Read, name: str) -> dict[str, str]:
    return dict(_decode_valid(read(name, _MAX_BYTES), name))


@lru_cache(maxsize=16)
def _decode_valid(data: bytes, name: str) -> Mapping[str, str]:
    # The file is read every time; parsing equal bytes is cached, because a commit reads it four
    # times.
    properties = decode_properties(data, what=name)
    if not properties:
        raise CorruptFile(f"{name} is empty")
    if not data.endswith((b"\n", b"\r")):
        # The checksum covers only the table name and does not detect a truncated line.
        raise CorruptFile(f"{name} is incomplete: its last line has no end (if nothing is missing, end it)")
    if not check_table_checksum(properties):
        raise CorruptFile(f"{name} is incomplete: its checksum does not match the table's name")
    return properties


def create_properties(
    store: ObjectStore, properties: Mapping[str, str], now: datetime, *, durable: bool, mark: str = ""
) -> bytes:
    """Write the properties of a new table, the last step of its creation; return the content of the file.

    Args:
        store: the table's store.
        properties: of the table.
        now: the present, for a comment in the file.
        durable: sync to disk.
        mark: a further comment, for :func:`load_mark`; changes of the properties by lakefmt keep it.

    Raises:
        TableExists: the table exists.
    """
    data = _render(properties, now, "Properties saved on", mark)
    if put_if_absent_confirmed(store, PROPERTIES, data, durable=durable) is PutOutcome.REFUSED:
        raise TableExists(f"there is a table at {store.url} already")
    return data


def update_properties(
    store: ObjectStore,
    changes: Mapping[str, str | None],
    now: datetime,
    *,
    durable: bool,
    keep: Callable[[str, bytes], object] | None = None,
) -> dict[str, str]:
    """Change properties (None removes one) under the table lock; return the new content.

    Args:
        store: the table's store.
        changes: new values.
        now: the present, for a comment in the file.
        durable: sync to disk.
        keep: takes the name and the content of the file.

    Raises:
        StorageError: the new file differs when read back; the backup keeps the old one.
    """
    old = recover_properties(store, durable=durable)
    new = {key: value for key, value in {**old, **changes}.items() if value is not None}
    if new == old:
        return old
    before = store.read(PROPERTIES, _MAX_BYTES)
    store.put(BACKUP, before, durable=durable)
    data = _render(new, now, "Updated at", _mark_of(before))
    store.put(PROPERTIES, data, durable=durable)
    written = _read_valid(store.read, PROPERTIES)
    if len(written) < len(new):
        store.delete([PROPERTIES])
        raise StorageError(f"{PROPERTIES} did not read back as written; the backup holds the old content")
    store.delete([BACKUP])
    if keep is not None:
        keep(PROPERTIES, data)
    return written


def property_reads(store: ObjectStore, read: Read | None = None) -> list[Callable[[], object]]:
    """Return the reads whose results :func:`recover_properties` takes; run them with others, under the lock."""
    return [lambda: _load_whole(store, read), lambda: store.info(BACKUP)]


def backup_among(objects: Iterable[ObjectInfo]) -> ObjectInfo | None:
    """Return what :func:`property_reads` finds out of the backup, from a listing of ``.hoodie``."""
    return next((info for info in objects if info.name == BACKUP), None)


def recover_properties(store: ObjectStore, reads: Sequence[object] = (), *, durable: bool) -> dict[str, str]:
    """Complete or undo an interrupted update: afterwards the original is valid and the backup is gone.

    Args:
        store: the table's store.
        reads: the results of :func:`property_reads`; empty: read now.
        durable: sync to disk.
    """
    loaded, backup = reads or map_concurrently(store, property_reads(store))
    properties, source = cast("tuple[dict[str, str], str]", loaded)
    if backup is not None:
        if source == BACKUP:
            store.put(PROPERTIES, store.read(BACKUP, _MAX_BYTES), durable=durable)
        store.delete([BACKUP])
    return properties


def load_mark(store: ObjectStore) -> str:
    """Return the comment that :func:`create_properties` was given; empty: none, or another engine changed the properties.

    Raises:
        ObjectNotFound: there is no table.
    """
    return _mark_of(store.read(PROPERTIES, _MAX_BYTES))


def _mark_of(data: bytes) -> str:
    for line in data.decode("ascii", "replace").splitlines():
        if not line.startswith("#"):
            break
        if line.startswith(_MARK):
            return line.removeprefix(_MARK)
    return ""


def _render(properties: Mapping[str, str], now: datetime, verb: str, mark: str = "") -> bytes:
    checksum = table_checksum(properties.get("hoodie.database.name"), properties["hoodie.table.name"])
    content = {**properties, CHECKSUM_KEY: checksum}
    comments = [f"{verb} {now:%Y-%m-%dT%H:%M:%S.%f}Z", properties_comment_date(now)]
    return encode_properties(content, [*comments, f"{_MARK[1:]}{mark}"] if mark else comments)
