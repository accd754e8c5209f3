"""Follow the log of a PostgreSQL server from stored positions: rows of now first, then transactions.

A table's position says before which place of the log every transaction is in it. While its rows are read by parts, a
run that dies leaves a table of which some pages are there as of one place of the log. The next run takes a new
snapshot, behind that place. Rows that changed between both places are deleted and read anew from the new snapshot; all
others of the pages that were read are as they were; and the pages that were not read come from the new snapshot. So
changes never meet rows that are newer than they.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.events import (
    Border,
    Event,
    Position,
    SourceName,
    TableChanged,
    TableGone,
    TableLoaded,
    TableTruncated,
)
from lakefmt._core.cdc.postgres.rows import (
    Begin,
    ChangeBuffer,
    ColumnRow,
    ColumnTypes,
    Commit,
    Delete,
    Insert,
    KnownColumns,
    Message,
    Relation,
    Truncate,
    Update,
    changes_of_names,
    decode_message,
    numbers_of,
    snapshot_changes,
)
from lakefmt._core.cdc.postgres.server import (
    PARTITIONED,
    PostgresConnection,
    PostgresSettings,
    ReplicationStream,
    ServerCatalog,
    TableRow,
    ask,
    ensure_publication,
    ensure_slot,
    entries,
    lsn_number,
)
from lakefmt._core.cdc.postgres.snapshot import ExportedSnapshot, TableReader, TouchedRows
from lakefmt._core.data_classes import dataclass, replace
from lakefmt.errors import FormatError, InvalidInputError, PositionLost, SourceRefused

__all__ = [
    "LogPosition",
    "Origin",
    "PostgresRun",
    "Progress",
    "decode_log_position",
    "encode_log_position",
    "latest_position",
]

VERSION: Final = 1
_NAME: Final = "postgres"
_MOST_LSN: Final = 2**64


class Progress(NamedTuple):
    """How far the rows of a table were read.

    Attributes:
        page: the first page that was not read.
        file: the number of the file that has the pages.
    """

    page: int
    file: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where positions come from.

    Attributes:
        system: the number that the server's files have had since they were made.
        database: its name.
        slot: the slot that keeps the log.
    """

    system: str
    database: str
    slot: str


@dataclass(frozen=True, slots=True)
class LogPosition:
    """What a commit of a table has.

    Attributes:
        table_id: the table's object id: another one of the same name is another table; None: whichever has the name.
        lsn: the place in the log before which every transaction is in it.
        progress: its rows were read so far, and more are to come; None: all.
        leaves: of a partitioned table: the number of each partition with rows, of its file and of the transaction that made it one.
        entry: the number of the table's entry in the publication: behind another one changes may not have been sent; None: whichever it has.
        known: the columns that its sink was told last; None: they are not known.
    """

    table_id: int | None
    lsn: int
    progress: Progress | None = None
    entry: int | None = None
    leaves: tuple[tuple[int, int, int], ...] = ()
    known: KnownColumns | None = None


def encode_log_position(origin: Origin, position: LogPosition) -> dict[str, object]:
    """Return a position as a JSON value."""
    value: dict[str, object] = {
        "source": _NAME,
        "version": VERSION,
        "system": origin.system,
        "database": origin.database,
        "slot": origin.slot,
        "table": position.table_id,
        "lsn": position.lsn,
        "entry": position.entry,
    }
    if position.leaves:
        value["leaves"] = [list(leaf) for leaf in position.leaves]
    if position.known is not None:
        value["columns"] = [
            [n, *column] for n, column in zip(position.known.numbers, position.known.columns, strict=True)
        ]
        value["attributes"] = position.known.attributes
        value["storage"] = list(position.known.storage)
    if position.progress is not None:
        value["snapshot"] = {"page": position.progress.page, "file": position.progress.file}
    return value


def decode_log_position(value: object, origin: Origin) -> LogPosition:
    """Return what a commit stored.

    Args:
        value: the JSON value.
        origin: the server, database and slot that are followed now.

    Raises:
        InvalidInputError: it is no position of this version.
        PositionLost: it is one of another server, database or slot.
    """
    if not isinstance(value, Mapping) or value.get("source") != _NAME or value.get("version") != VERSION:
        raise InvalidInputError(f"{shown(value)} is no position of PostgreSQL of version {VERSION}")
    for name, now in (("system", origin.system), ("database", origin.database), ("slot", origin.slot)):
        if value.get(name) != now:
            raise PositionLost(f"the stored position is of {name} {shown(value.get(name))}, and this is {shown(now)}")
    progress = value.get("snapshot")
    table_id = value.get("table")
    entry = value.get("entry")
    fields = [0 if table_id is None else table_id, value.get("lsn"), 0 if entry is None else entry]
    fields += [progress.get("page"), progress.get("file")] if isinstance(progress, Mapping) else []
    leaves = value.get("leaves", [])
    if not isinstance(leaves, list) or not all(isinstance(leaf, list) and len(leaf) == 3 for leaf in leaves):
        raise InvalidInputError(f"{shown(value)} is no position of PostgreSQL: its partitions are none")
    pairs = [number for leaf in leaves for number in leaf]
    if not all(type(number) is int and 0 <= number < _MOST_LSN for number in [*fields, *pairs]):
        raise InvalidInputError(f"{shown(value)} is no position of PostgreSQL: its numbers are none")
    number, lsn, entered, *rest = (int(number or 0) for number in fields)
    return LogPosition(
        None if table_id is None else number,
        lsn,
        Progress(*rest) if rest else None,
        None if entry is None else entered,
        tuple((leaf[0], leaf[1], leaf[2]) for leaf in leaves),
        _decode_columns(value),
    )


def _decode_columns(value: Mapping[str, Any]) -> KnownColumns | None:
    """Return the columns in an encoded position; None if it was stored without them."""
    columns, attributes = value.get("columns"), value.get("attributes")
    if columns is None:
        return None
    is_known = isinstance(columns, list) and all(isinstance(each, list) for each in columns)
    types = [int, str, int, int]
    if not is_known or not isinstance(attributes, int) or any([*map(type, each)] != types for each in columns):
        raise InvalidInputError(f"{shown(value)} is no position of PostgreSQL: its columns are none")
    storage = value.get("storage", [0, 0])  # an earlier release did not store it
    if not isinstance(storage, list) or [*map(type, storage)] != [int, int]:
        raise InvalidInputError(f"{shown(value)} is no position of PostgreSQL: its storage is none")
    numbers, rows = tuple(each[0] for each in columns), tuple(ColumnRow(*each[1:]) for each in columns)
    return KnownColumns(numbers, rows, attributes, (storage[0], storage[1]))


#: A border at least so often.
_BORDER_SECONDS: Final = 1.0
#: Rows that came wait so long for others, or each would be a batch of its own.
_GATHER_SECONDS: Final = 0.05
#: How often tables are looked for that joined or left.
_LOOK_SECONDS: Final = 5.0
#: A server that has nothing to write may not write out the last bytes of its log; after this time it is made to.
_NUDGE_SECONDS: Final = 0.5
_TOUCHED_KEYS: Final = 5_000


class TrackedTable:
    """A table that is followed."""

    def __init__(
        self,
        row: TableRow,
        lsn: int,
        progress: Progress | None,
        entry: int | None,
        known: KnownColumns | None = None,
    ) -> None:
        self.row = row
        #: The columns that its sink was told last.
        self.known = known
        #: The number of its entry in the publication.
        self.entry = entry
        #: The place in the log before which every transaction is in what came.
        self.lsn = lsn
        #: How far its rows were read; None: all.
        self.progress = progress
        #: What its newest TableChanged said.
        self.shape: ColumnTypes | None = None
        self.buffer: ChangeBuffer | None = None
        #: The keys of changes between two snapshots, of a table whose rows were read in part.
        self.touched: TouchedRows | None = None
        #: The place before which all is durable here.
        self.durable = lsn
        #: The newest transaction of which events came.
        self.newest = -1

    @property
    def name(self) -> SourceName:
        """The name of the table."""
        return self.row.name

    def announce(self, shape: ColumnTypes) -> list[Event]:
        """Return what has to come before rows of a shape: rows of the shape before, and the change of columns."""
        numbers, storage = (None, (0, 0)) if shape.known is None else (shape.known.numbers, shape.known.storage)
        renamed, reason = changes_of_names(self.known, shape.columns, numbers, storage)
        self.known = shape.known
        if self.shape is not None and self.shape.table == shape.table and not (renamed or reason):
            self.shape = shape
            return []
        events: list[Event] = self.take()
        before = self.shape.table if self.shape is not None else None
        events.append(TableChanged(shape.table, before, renamed, shape.filled, reason))
        self.shape, self.buffer = shape, None
        return events

    def take(self) -> list[Event]:
        """Return the changes gathered so far."""
        return [self.buffer.take()] if self.buffer is not None and len(self.buffer) else []

    def take_touched(self) -> Iterator[Event]:
        """Yield the rows that changed between two snapshots, as the newer one has them."""
        if self.touched:
            yield from self.announce(self.touched.shape)
            yield from self.touched.take()


class PostgresRun:
    """A single run of the source that starts at the stored positions."""

    def __init__(
        self,
        settings: PostgresSettings,
        log: ReplicationStream,
        connection: PostgresConnection,
        *,
        logs: bool,
        opened: Callable[[PostgresConnection], None],
        is_closed: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._log = log
        self._connection = connection
        self._logs = logs
        self._opened = opened
        self._is_closed = is_closed
        self._catalog = ServerCatalog(connection, settings.as_text)
        self._origin = Origin(log.identify(), settings.server.database, settings.slot)
        #: Tables that are asked for and that the publication lacks, as a warning has said.
        self._not_published: set[SourceName] = set()
        self._tracked: dict[int, TrackedTable] = {}
        self._shapes: dict[int, ColumnTypes] = {}
        self._snapshot: ExportedSnapshot | None = None
        #: Tables that are gone once the log was read up to a place.
        self._leaving: dict[int, tuple[int, TableGone]] = {}
        self._lsn = 0
        self._at: float | None = None
        self._begin: Begin | None = None
        self._number = 0
        self._border_time = self._look_time = time.monotonic()
        self.chunks_read = self.chunks_left = 0

    # -------------------------------------------------------------------------------------------------- the whole run

    def events(self, positions: Mapping[SourceName, Position], *, until_now: bool) -> Iterator[Event]:
        """Yield the events from some positions on."""
        settings = self._settings
        stored = {
            name: decode_log_position(value, self._origin) for name, value in positions.items() if value is not None
        }
        self._check_not_ahead(stored)
        ensure_publication(self._connection, settings, self._not_published)
        for _ in ensure_slot(self._connection, self._log, settings, has_positions=bool(stored)):
            yield Border(positions.get)  # whoever follows may end here
        target = self._written() if until_now else None
        try:
            yield from self._track_all(stored)
            if not any(each.touched is not None for each in self._tracked.values()):
                yield from self._read_pending()
            begin = min((each.lsn for each in self._tracked.values()), default=0)
            self._log.start(settings.slot, settings.publication, begin)
            yield from self._follow(target)
        finally:
            if self._snapshot is not None:
                self._snapshot.close()

    def lag(self) -> dict[str, float]:
        """Return how far behind this is."""
        behind = max(0, self._written() - self._lsn) if self._lsn else 0
        return {"bytes": behind, "chunks_left": self.chunks_left, "chunks_read": self.chunks_read}

    def _written(self) -> int:
        return lsn_number(ask(self._connection, "SELECT pg_current_wal_flush_lsn()::text")[0][0])

    def _check_not_ahead(self, stored: Mapping[SourceName, LogPosition]) -> None:
        newest = max((position.lsn for position in stored.values()), default=0)
        if newest > self._written():
            raise PositionLost(
                "PostgreSQL: the stored position lies ahead of the server's log: it was restored from a backup, or fell back"
            )

    # ------------------------------------------------------------------------------------------------- tables and rows

    def _track_all(self, stored: Mapping[SourceName, LogPosition]) -> Iterator[Event]:
        rows = self._published()
        there = {row.name for row in rows.values()}
        entered = entries(self._connection, self._settings.publication, list(rows))
        self._check_entries(rows, stored, entered)
        for name, position in stored.items():
            if name not in there:
                renamed = rows.get(position.table_id or 0)
                yield TableGone(name, renamed.name if renamed is not None else None)
        for row in rows.values():
            stored_position = stored.get(row.name)
            if stored_position is not None and stored_position.table_id not in (None, row.id):
                yield TableTruncated(row.name)  # dropped and made again
                stored_position = None
            if (
                stored_position is not None
                and stored_position.progress is None
                and moves_rows(stored_position.leaves, row)
            ):
                yield TableTruncated(row.name)
                stored_position = None
            self._tracked[row.id] = self._tracked_at(row, stored_position, entered.get(row.id))
        self._take_snapshot()

    def _check_entries(
        self, rows: Mapping[int, TableRow], stored: Mapping[SourceName, LogPosition], entered: Mapping[int, int]
    ) -> None:
        """Refuse positions of tables that left the publication since, whose changes were not sent meanwhile.

        Raises:
            PositionLost: there are such tables.
        """
        lost = [
            row.name
            for row in rows.values()
            if (position := stored.get(row.name)) is not None
            and position.table_id == row.id
            and position.entry not in (None, entered.get(row.id))
        ]
        if lost:
            raise PositionLost(
                f"PostgreSQL: {', '.join(map(str, lost))} left the publication {shown(self._settings.publication)} for a while, as when a follower "
                "of this name and folder left it out: changes of that time were not sent",
                tables=lost,
            )

    def _published(self) -> dict[int, TableRow]:
        rows = self._catalog.published(self._settings.publication)
        return {number: row for number, row in rows.items() if self._settings.matches(row.name)}

    def _tracked_at(self, row: TableRow, position: LogPosition | None, entry: int | None) -> TrackedTable:
        if position is None or (position.progress is not None and position.progress.page == 0):
            return TrackedTable(row, 0, Progress(0, row.file), entry)
        if position.progress is not None and (self._logs or not row.keys):
            raise SourceRefused(
                f"{row.name}: its rows were read in part for a table of last states, and cannot be read on as a log of changes"
            )
        return TrackedTable(row, position.lsn, position.progress, entry, position.known)

    def _take_snapshot(self) -> None:
        """Take a snapshot for the tables whose rows are still to come."""
        pending = [each for each in self._tracked.values() if each.progress is not None]
        if not pending:
            return
        self._snapshot = ExportedSnapshot(self._settings.server, self._catalog, self._opened)
        rows = self._snapshot.catalog.tables([each.row.id for each in pending])
        for each in pending:
            if each.row.id not in rows:
                del self._tracked[each.row.id]
                continue
            each.row = rows[each.row.id]
            if each.progress is not None and each.progress.page:
                position = _snapshot_position(self._snapshot.lsn)
                each.touched = TouchedRows(self._reader(each.row), self._settings.odd_values, position)
            else:
                each.lsn = self._snapshot.lsn

    def _reader(self, row: TableRow) -> TableReader:
        assert self._snapshot is not None  # noqa: S101  (the caller took it)
        return TableReader(self._snapshot, row, self._settings.chunk_bytes)

    def _read_pending(self) -> Iterator[Event]:
        """Yield the rows that are still to come; all changes before the snapshot have come."""
        snapshot = self._snapshot
        if snapshot is None:
            return
        pending = [each for each in self._tracked.values() if each.progress is not None]
        readers = [(each, self._reader(each.row)) for each in pending]
        self.chunks_left += sum(reader.count_from(each.progress.page) for each, reader in readers if each.progress)
        for each, reader in readers:
            yield from self._read_table(each, reader, snapshot)
        snapshot.close()
        self._snapshot = None

    def _read_table(self, table: TrackedTable, reader: TableReader, snapshot: ExportedSnapshot) -> Iterator[Event]:
        table.lsn, table.touched = snapshot.lsn, None
        table.durable = table.durable or snapshot.lsn
        yield from table.announce(reader.shape)
        same_file = table.progress is not None and table.progress.file == table.row.file
        begin = table.progress.page if table.progress is not None and same_file else 0
        position = _snapshot_position(snapshot.lsn)
        for end, strings in reader.parts(begin):
            if len(strings[0]):
                yield snapshot_changes(reader.shape, strings, self._settings.odd_values, position)
            self.chunks_read, self.chunks_left = self.chunks_read + 1, max(0, self.chunks_left - 1)
            self._log.tell()
            # Rows that a log of changes has are read once: nothing of a table is committed before all of it has come.
            if end < reader.pages and not self._logs and table.row.keys:
                table.progress = Progress(end, table.row.file)
                yield self._border()
        table.progress = None
        yield TableLoaded(table.name)
        yield self._border()

    # --------------------------------------------------------------------------------------------------------- the log

    def _follow(self, target: int | None) -> Iterator[Event]:
        asked_at: float | None = None
        while not self._is_closed():
            body = self._log.read()
            if body is not None:
                message = decode_message(body)
                if isinstance(message, Insert | Update | Delete):
                    yield from self._row(message)
                else:
                    yield from self._events_of(message)
                continue
            if self._begin is None:
                self._lsn = max(self._lsn, self._log.end)
                if self._snapshot is not None and self._lsn >= self._snapshot.lsn:
                    yield from self._gathered()
                    yield from self._read_pending()
                is_done = target is not None and self._lsn >= target and self._snapshot is None
                yield from self._rest(is_done)
                if is_done:
                    return
            now = time.monotonic()
            if target is not None or self._snapshot is not None:
                asked_at = now if asked_at is None else asked_at
                self._log.tell(ask=True)
                if now - asked_at > _NUDGE_SECONDS and self._lsn < (target or 0):
                    self._nudge()
                    asked_at = now + 60
            self._log.wait(self._patience(now, target is not None))

    def _patience(self, now: float, is_hurried: bool) -> float:
        if is_hurried or self._snapshot is not None:
            return 0.02
        return min(
            _GATHER_SECONDS if self._has_gathered() else _BORDER_SECONDS, self._border_time + _BORDER_SECONDS - now
        )

    def _rest(self, is_done: bool) -> Iterator[Event]:
        """Yield what has gathered when nothing is left to read."""
        now = time.monotonic()
        if is_done or now - self._border_time >= (_GATHER_SECONDS if self._has_gathered() else _BORDER_SECONDS):
            yield from self._gathered()
            yield from self._look()
            yield self._border(caught_up=self._lsn >= self._written())
            self._log.tell(ask=True)

    def _nudge(self) -> None:
        """Make the server flush its log: commit a transaction with an empty message."""
        try:
            ask(self._connection, "SELECT pg_logical_emit_message(true, 'lakefmt', '')")
        except SourceRefused:
            return  # the account lacks the right; the next transaction flushes the log

    def _events_of(self, message: Message) -> Iterator[Event]:
        if isinstance(message, Begin):
            if self._snapshot is not None and message.lsn >= self._snapshot.lsn:
                yield from self._gathered()
                yield from self._read_pending()
            self._begin, self._number = message, 0
        elif isinstance(message, Commit):
            self._begin, self._lsn, self._at = None, message.end, message.micros / 1e6
            if time.monotonic() - self._border_time >= _BORDER_SECONDS or self._is_full():
                yield from self._gathered()
                yield from self._look()
                yield self._border()
        elif isinstance(message, Relation):
            yield from self._relation(message)
        elif isinstance(message, Truncate):
            for number in message.relations:
                yield from self._truncate(number)

    def _row(self, change: Insert | Update | Delete) -> Iterable[Event]:
        """Take a change; return what has to come now. No generator: there are many changes."""
        table, begin, shape = self._tracked.get(change.relation), self._begin, self._shapes.get(change.relation)
        if shape is None or begin is None:
            raise FormatError("PostgreSQL sent a row outside a transaction, or of a table that it did not describe")
        if table is None or begin.lsn < table.lsn:
            return ()
        table.newest = begin.lsn
        if table.touched is not None:
            table.touched.add(shape, change)
            return table.take_touched() if len(table.touched) >= _TOUCHED_KEYS else ()
        events: Sequence[Event] = ()
        if table.shape is not shape:
            shape = self._shapes[change.relation] = self._numbered(table, shape)
            events = table.announce(shape)
        if table.buffer is None:
            table.buffer = ChangeBuffer(shape, self._settings.odd_values)
        self._number += 1
        at = (f"{begin.lsn:016x}-{self._number:010d}", begin.micros, str(begin.xid))
        if isinstance(change, Insert):
            table.buffer.insert(change.new, at)
        elif isinstance(change, Update):
            table.buffer.update(change.old, change.is_key_only, change.new, at)
        else:
            table.buffer.delete(change.old, at)
        return [*events, *table.take()] if table.buffer.is_full else events

    def _numbered(self, table: TrackedTable, shape: ColumnTypes) -> ColumnTypes:
        """Return a shape with the numbers of its columns, as far as the catalog tells them now."""
        catalog, known = self._catalog.columns([table.row.id]).get(table.row.id, ()), table.known
        now = self._catalog.tables([table.row.id]).get(table.row.id)
        storage = (0, 0) if now is None or now.known is None else now.known.storage
        numbers = numbers_of(shape.columns, known, catalog)
        if numbers is None:
            return replace(shape, known=None)
        attributes = max((*numbers, 0 if known is None else known.attributes))
        return replace(shape, known=KnownColumns(numbers, tuple(shape.columns), attributes, storage))

    def _relation(self, message: Relation) -> Iterator[Event]:
        name = SourceName(message.schema, message.name)
        table = self._tracked.get(message.id)
        if table is not None and table.name != name and table.touched is None:
            yield from table.take()
            yield TableGone(table.name, name)
            del self._tracked[message.id]
            table = None
        columns = [ColumnRow(column.name, column.type_id, column.modifier) for column in message.columns]
        self._shapes[message.id] = self._catalog.shape_of(name, columns, self._keys_of(message), message.id)

    def _keys_of(self, message: Relation) -> tuple[str, ...]:
        """Return the key: of the columns of the identity, in the order of the index that the catalog has today."""
        row = self._catalog.tables([message.id]).get(message.id)
        today = row.keys if row is not None else ()
        if message.identity == "f":
            names = {column.name for column in message.columns}
            return today if names.issuperset(today) else ()
        flagged = tuple(column.name for column in message.columns if column.is_key)
        return today if set(today) == set(flagged) else flagged

    def _truncate(self, number: int) -> Iterator[Event]:
        table = self._tracked.get(number)
        if table is None or self._begin is None or self._begin.lsn < table.lsn:
            return
        if table.touched is not None:
            table.touched.clear()
            table.progress = Progress(0, 0)
        table.newest = self._begin.lsn
        yield from table.take()
        yield TableTruncated(table.name)

    # --------------------------------------------------------------------------------------------------------- borders

    def _has_gathered(self) -> bool:
        return any(each.buffer or each.touched for each in self._tracked.values())

    def _is_full(self) -> bool:
        return sum(each.buffer.bytes for each in self._tracked.values() if each.buffer) > self._settings.chunk_bytes

    def _gathered(self) -> Iterator[Event]:
        for each in self._tracked.values():
            yield from each.take()
            yield from each.take_touched()

    def confirm(self, positions: Mapping[SourceName, Position]) -> None:
        """Note what is durable."""
        for table in self._tracked.values():
            position = positions.get(table.name)
            if position is not None:
                table.durable = max(table.durable, decode_log_position(position, self._origin).lsn)
        self._forget()

    def _forget(self) -> None:
        """Let the server forget what is durable: a table without changes since its position is durable up to here."""
        positions = [self._lsn if each.newest < each.durable else each.durable for each in self._tracked.values()]
        self._log.confirmed = max(self._log.confirmed, min(positions, default=0))
        self._log.tell()

    def _border(self, *, caught_up: bool = False) -> Border:
        self._border_time = time.monotonic()
        self._forget()
        origin, positions = self._origin, {each.name: self._position(each) for each in self._tracked.values()}

        def position_of(name: SourceName) -> Position:
            return encode_log_position(origin, positions[name]) if name in positions else None

        return Border(position_of, self._at, caught_up)

    def _position(self, table: TrackedTable) -> LogPosition:
        lsn = self._lsn
        if table.progress is not None and self._snapshot is not None:
            lsn = min(lsn, self._snapshot.lsn)
        leaves = tuple(leaf.mark for leaf in table.row.leaves)
        return LogPosition(table.row.id, max(table.lsn, lsn), table.progress, table.entry, leaves, table.known)

    def _look(self) -> Iterator[Event]:
        """Yield what follows from tables that joined or left, between two transactions."""
        for number, (lsn, event) in [*self._leaving.items()]:
            if self._lsn >= lsn:
                del self._leaving[number]
                if self._tracked.pop(number, None) is not None:
                    yield event
        if time.monotonic() - self._look_time < self._settings.look_seconds or self._snapshot is not None:
            return
        self._look_time = time.monotonic()
        ensure_publication(self._connection, self._settings, self._not_published)
        rows = self._published()
        self._note_absent(rows)
        again = yield from self._look_at_leaves(rows)
        joining = [row for number, row in rows.items() if number not in self._tracked]
        if (joining or again) and not self._leaving:
            entered = entries(self._connection, self._settings.publication, [row.id for row in joining])
            self._tracked |= {
                row.id: TrackedTable(row, 0, Progress(0, row.file), entered.get(row.id)) for row in joining
            }
            self._take_snapshot()
            yield from self._read_pending()

    def _look_at_leaves(self, rows: Mapping[int, TableRow]) -> Generator[Event, None, bool]:
        """Restart the partitioned tables whose rows changed because a partition came or went; return whether there are any.

        The server sends no event for it.
        """
        again = False
        for number, table in self._tracked.items():
            now = rows.get(number)
            if now is None or now.kind != PARTITIONED or now.name != table.name or self._leaving:
                continue
            if moves_rows([leaf.mark for leaf in table.row.leaves], now):
                yield from table.take()
                yield TableTruncated(table.name)
                table.progress, again = Progress(0, 0), True
            table.row = now
        return again

    def _note_absent(self, rows: Mapping[int, TableRow]) -> None:
        """Note the tables that left: their last changes lie before what the server has written by now."""
        absent = [
            number
            for number, table in self._tracked.items()
            if number not in self._leaving and (number not in rows or rows[number].name != table.name)
        ]
        if not absent:
            return
        position, now = self._written(), self._catalog.tables(absent)
        for number in absent:
            name = self._tracked[number].name
            is_renamed = number in now and now[number].name != name
            self._leaving[number] = (position, TableGone(name, now[number].name if is_renamed else None))


def moves_rows(before: Iterable[tuple[int, int, int]], now: TableRow) -> bool:
    """Return whether rows of a partitioned table came or went with its partitions.

    Args:
        before: the marks of the partitions that it had.
        now: the table.
    """
    marks_before = set(before)
    attached = any(leaf.mark not in marks_before and not leaf.is_born for leaf in now.leaves)
    return attached or not marks_before <= {leaf.mark for leaf in now.leaves}


def latest_position(
    connection: PostgresConnection, log: ReplicationStream, settings: PostgresSettings
) -> dict[str, object]:
    """Return the position after everything that was committed so far, in any table."""
    ensure_publication(connection, settings)
    for _ in ensure_slot(connection, log, settings, has_positions=False):
        pass
    lsn = lsn_number(ask(connection, "SELECT pg_current_wal_flush_lsn()::text")[0][0])
    return encode_log_position(Origin(log.identify(), settings.server.database, settings.slot), LogPosition(None, lsn))


def _snapshot_position(lsn: int) -> str:
    """Return a position that is lower than those of all changes after a snapshot."""
    return f"{lsn:016x}-{0:010d}"
