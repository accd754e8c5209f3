"""Follow the log of a MariaDB server: rows of tables wait until they are many, statements change tables, chunks come between.

The law that positions rest on: at a border with the transactions P, a table that is not read to its end has exactly its rows up to
`last_key`, as they were at P. So a chunk that was read at a place S of the log goes out when the log has come to S; changes of rows
behind `last_key` are left out, because a later chunk has them. Where the last state of each row is enough they go out, too: whole rows,
which a later chunk repeats.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.cdc.events import (
    Border,
    Event,
    Position,
    RowChanges,
    RowKind,
    SourceName,
    SourceTable,
    TableChanged,
    TableGone,
    TableLoaded,
    TableTruncated,
    is_followed,
)
from lakefmt._core.cdc.mysql.log import (
    ROWS,
    SILENT,
    Account,
    EventHeader,
    EventType,
    Gtid,
    GtidEvent,
    Gtids,
    LogStatement,
    LogStream,
    RowsEvent,
    Session,
    TablePosition,
    covers,
    is_covered,
    lost_position,
    lowest,
    parse_gtids,
    read_gtid,
    read_query,
    read_rotate,
    read_rows,
    read_xa_prepare,
)
from lakefmt._core.cdc.mysql.rows import LogColumn, RowBuffer, TableMap, read_table_map, read_table_name
from lakefmt._core.cdc.mysql.snapshot import Chunk, describe_table, keys_read, take_chunk
from lakefmt._core.cdc.mysql.statements import (
    HINTS,
    Altered,
    Created,
    DatabaseDropped,
    Dropped,
    Meaning,
    Renamed,
    RowsAsText,
    SourceColumn,
    Truncated,
    is_whole_number,
    read_statement,
    source_table,
)
from lakefmt.errors import InternalError, LakefmtError, SourceRefused

__all__ = [
    "FollowedTable",
    "FollowerSettings",
    "LogFollower",
    "LogPlace",
    "Shape",
    "followed_tables",
    "server_name",
]

#: The columns of a table, and the names of its key.
Shape = tuple[tuple[SourceColumn, ...], tuple[str, ...]]
_KINDS: Final = {
    "insert": (RowKind.INSERT.value,),
    "update": (RowKind.UPDATE_BEFORE.value, RowKind.UPDATE_AFTER.value),
    "delete": (RowKind.DELETE.value,),
}


class LogPlace(NamedTuple):
    """The position of an event of rows: its transaction and commit time, the number of the log file, the event's end in it."""

    transaction: str
    time: int
    file: int
    end: int


class _Event(NamedTuple):
    rows: int
    kind: str
    place: LogPlace


class FollowedTable:
    """A table and its state.

    Attributes:
        name: of the table.
        floor: transactions that its sink has: they are left out.
        is_read: all rows were read from the table.
        last_key: of the rows that were read; None: none was.
        epoch: see :class:`~lakefmt._core.cdc.mysql.log.TablePosition`.
        stored: the position it began with.
        hints: columns that the log shows as bytes, and are something else.
        shape: what its events look like; None: not known yet.
        announced: the table of its newest :class:`TableChanged`.
        chunk: rows that are being read.
        is_missing: the server does not have it; the log will tell when it went.
        reads_again: its sink has the rows, and all are read once more: no change is left out meanwhile.
        is_begun: its sink began without a position: it is told when all rows have been read.
    """

    def __init__(self, name: SourceName, epoch: int, stored: TablePosition | None = None) -> None:
        self.name, self.epoch, self.stored = name, epoch, stored
        self.floor: Gtids = stored.gtids if stored else {}
        self.is_read = stored is not None and stored.is_read
        self.last_key = stored.last_key if stored else None
        self.reads_again = stored is not None and stored.reads_again
        self.is_begun = stored is None or not (stored.is_read or stored.reads_again)
        self.shape: Shape | None = (stored.columns, stored.keys) if stored and stored.columns else None
        self.hints: dict[str, str] = {}
        self.announced: SourceTable | None = None
        self.chunk: Chunk | None = None
        self.is_missing = False
        self._renamed: dict[str, str] = {}
        self._dropped: set[str] = set()
        self._described: TableMap | None = None
        self._layout: tuple[LogColumn, ...] | None = None
        self._buffer: RowBuffer | None = None
        self._events: list[_Event] = []
        if stored:
            self.take_hints(stored.columns)

    @property
    def is_known(self) -> bool:
        """Whether the table that follows it may have rows already."""
        return self.announced is not None or self.stored is not None

    # --- its shape ------------------------------------------------------------------------------------------------

    def take_hints(self, columns: Sequence[SourceColumn]) -> None:
        """Take note of columns whose type only the server knows."""
        self.hints |= {column.name: column.type for column in columns if column.type in HINTS}

    def has_whole_numbers(self, names: Set[str]) -> bool:
        """Return whether columns, by their names before a statement, are known to have whole numbers."""
        columns = () if self.shape is None else self.shape[0]
        types = {self._renamed.get(column.name, column.name).casefold(): column.type for column in columns}
        return all(is_whole_number(types.get(name.casefold(), "")) for name in names)

    def note_names(self, altered: Altered) -> bool:
        """Take note of columns that a statement renamed or dropped, until rows show it.

        Returns:
            whether a column has the name of one that was dropped: of it no event tells the values in rows that are there.
        """
        # The server does not tell large letters from small ones.
        names = [column.name for column in self.shape[0]] if self.shape is not None else []
        now = {self._renamed.get(name, name).casefold(): name for name in names if name not in self._dropped}
        new_names = set(altered.added)
        renamed = dict[str, str]()
        for old, new in altered.renamed.items():
            if old.casefold() in now:
                renamed[now[old.casefold()]] = new
            else:
                new_names.add(new)
        for name in altered.dropped:
            if (dropped_name := now.get(name.casefold())) is not None:
                self._dropped.add(dropped_name)
                self._renamed.pop(dropped_name, None)
        self._renamed |= renamed
        self.hints |= {new: self.hints.pop(old) for old, new in altered.renamed.items() if old in self.hints}
        return not {name.casefold() for name in new_names}.isdisjoint(name.casefold() for name in self._dropped)

    def resume(self) -> None:
        """Take note of the names that were noted when the position was stored; call it when its columns have been told."""
        if self.stored is not None:
            self._renamed, self._dropped = dict(self.stored.renamed), set(self.stored.dropped)

    @property
    def noted_names(self) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
        """Columns that were renamed or dropped, and that no row has shown yet."""
        return tuple(self._renamed.items()), tuple(sorted(self._dropped))

    def changed(self, shape: Shape) -> Iterator[TableChanged]:
        """Return that the table looks like this from here on, if it did not so far."""
        if self.announced is not None and shape == self.shape:
            return
        before = self.announced
        names = {column.name for column in shape[0]}
        names_before = set() if before is None else set(before.columns.names)
        renamed = {old: new for old, new in self._renamed.items() if new in names and old in names_before}
        self._renamed.clear()
        self._dropped.clear()
        self._described = None
        self.shape = shape
        self.announced = source_table(self.name, *shape)
        yield TableChanged(self.announced, before, renamed)

    # --- rows of the log ------------------------------------------------------------------------------------------

    @property
    def waiting_rows(self) -> int:
        """How many rows wait."""
        return len(self._buffer) if self._buffer is not None else 0

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of the log wait."""
        return self._buffer.bytes if self._buffer is not None else 0

    def fits(self, described: TableMap) -> bool:
        """Return whether rows of this description may be buffered together with those that are."""
        if described is not self._described:
            is_same = self._layout == described.columns and self.announced is not None and described.shape == self.shape
            self._described = described if is_same else None
        return self._described is not None

    def fit(self, described: TableMap, charsets: dict[int, str]) -> None:
        """Take rows of this description from here on; none may wait."""
        self._described = described
        self._layout, self._buffer = described.columns, RowBuffer(described.columns, charsets)

    def add(self, event: RowsEvent, log_place: LogPlace) -> None:
        """Let the rows of an event wait."""
        if self._buffer is None:
            raise InternalError(f"rows of {self.name} before their description")
        with _refusing(self.name):
            added = self._buffer.add(event.body, event.begin)
        self._events.append(_Event(added, event.kind, log_place))

    def take(self) -> RowChanges | None:
        """Return the rows that wait, in one batch."""
        if self._buffer is None or self.announced is None or not self._events:
            return None
        events, self._events = self._events, []
        counts = np.array([event.rows for event in events])
        indices = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        row_kinds = [np.resize(np.array(_KINDS[event.kind], np.int8), event.rows) for event in events]
        times = np.repeat(np.array([event.place.time for event in events], np.int64), counts) * 1_000_000
        positions = [self.place_text(event.place.file, event.place.end) for event in events]
        within = pc.utf8_lpad(pa.array(indices).cast(pa.string()), 8, "0")
        with _refusing(self.name):
            columns = self._buffer.take()
        return RowChanges(
            self.name,
            pa.Table.from_arrays(columns, schema=self.announced.columns),
            pa.array(np.concatenate(row_kinds)),
            times=pa.array(times).cast(pa.timestamp("us", "UTC")),
            positions=pc.binary_join_element_wise(_repeated(positions, counts), within, "."),
            transactions=_repeated([event.place.transaction for event in events], counts),
            precedes_snapshot=not self.is_read,
        )

    def place_text(self, file: int, end: int) -> str:
        """Return a place of the log as a text that sorts."""
        return f"{self.epoch:010d}.{file:010d}.{end:012d}"

    # --- rows of now ----------------------------------------------------------------------------------------------

    def drop_chunk(self) -> None:
        """Discard the chunk that is being read."""
        if self.chunk is not None:
            self.chunk.close()
            self.chunk = None

    def selected(self, rows: pa.Table, file: int, position: int) -> RowChanges:
        """Return rows that were read from the table."""
        count = rows.num_rows
        return RowChanges(
            self.name,
            rows,
            pa.array(np.zeros(count, np.int8)),
            positions=_repeated([self.place_text(file, position) + ".00000000"], np.array([count])),
            is_snapshot=True,
        )


@contextlib.contextmanager
def _refusing(name: SourceName) -> Iterator[None]:
    """Add the table name to an error that the block raises."""
    try:
        yield
    except SourceRefused as error:
        raise SourceRefused(str(error), tables=[name]) from error


def _repeated(strings: Sequence[str], counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    indices = np.repeat(np.arange(len(strings)), counts)
    return pc.take(pa.array(strings, pa.string()), pa.array(indices))


#: Rows and bytes of the log that wait at most, and for how long, while the log has more.
_WAITING_ROWS: Final = 20_000
_WAITING_BYTES: Final = 32 << 20
_WAITING_SECONDS: Final = 0.2
_IGNORABLE: Final = 0x80
_MOST_MAPS: Final = 10_000


class FollowerSettings(NamedTuple):
    """What a follower is told.

    Attributes:
        account: of the reader.
        patterns: names of tables as `schema.table`, with `*`, `?` and `[…]`.
        server_id: of this reader, unlike all servers and readers.
        chunk_rows: most rows of a chunk.
        logs: every change goes out once.
        until_now: end at what is committed when the loop begins.
    """

    account: Account
    patterns: tuple[str, ...]
    server_id: int
    chunk_rows: int
    logs: bool = False
    until_now: bool = False


class _Transaction(NamedTuple):
    """The transaction that is being read: how it began, the server, and when."""

    begin: GtidEvent
    server: int
    time: int

    @property
    def text(self) -> str:
        return f"{self.begin.domain}-{self.server}-{self.begin.number}"


class _RowsOf(NamedTuple):
    """An event of rows: its table as it was then, and where its end is."""

    table: FollowedTable
    described: TableMap
    event: RowsEvent
    file: int
    end: int


class _HeldTransaction(NamedTuple):
    """Rows of a prepared transaction, and the position before it."""

    before: Gtids
    rows: list[_RowsOf]


def followed_tables(session: Session, patterns: Sequence[str]) -> list[SourceName]:
    """Return the present tables that are followed, by name."""
    rows = session.rows(
        "select table_schema, table_name from information_schema.tables where table_type in ('BASE TABLE', 'SYSTEM VERSIONED') "
        "and table_schema not in ('mysql', 'information_schema', 'performance_schema', 'sys')"
    )
    return sorted(name for name in (SourceName(*row) for row in rows) if is_followed(name, patterns))


def server_name(session: Session) -> str:
    """Return how a server names itself; it has no secret."""
    rows = dict(session.rows("show global variables where variable_name in ('server_id', 'server_uid')"))
    return f"{rows['server_id']} {rows.get('server_uid', '')}".strip()


class LogFollower:
    """Reads the log and the tables of one server; :meth:`events` is called once."""

    def __init__(self, settings: FollowerSettings, positions: Mapping[SourceName, Position]) -> None:
        self._settings = settings
        self._session = Session(settings.account)
        self._stream: LogStream | None = None
        self._is_closed = False
        self._server = server_name(self._session)
        self._charsets = {
            int(number): str(name)
            for number, name in self._session.rows(
                "select id, character_set_name from information_schema.collations where id is not null"
            )
        }
        self._tables: dict[SourceName, FollowedTable] = {}
        self._gtids: Gtids = {}
        self._file, self._file_name, self._place = 0, "", 0
        self._transaction: _Transaction | None = None
        self._held: dict[bytes, _HeldTransaction] = {}
        self._numbers: dict[int, tuple[SourceName, bytes]] = {}
        self._maps: dict[bytes, TableMap] = {}
        self._waits_since: float | None = None
        self._last_time: float | None = None
        self._is_border_due = False
        self.latest = parse_gtids(self._session.value("@@gtid_binlog_pos"))
        self._open_tables(positions)

    def _open_tables(self, positions: Mapping[SourceName, Position]) -> None:
        stored = {name: TablePosition.of_json(value) for name, value in positions.items()}
        for each in stored.values():
            error = lost_position(self.latest, each.gtids)
            if error is not None:
                raise error
        now = int(time.time())
        names = followed_tables(self._session, self._settings.patterns)
        for name in (*stored, *(name for name in names if name not in stored)):
            position = stored.get(name)
            epoch = now
            if position is not None:
                epoch = position.epoch if position.server == self._server else max(position.epoch + 1, now)
            table = self._tables[name] = FollowedTable(name, epoch, position)
            self._look_at(table)
        for row in self._session.rows(
            "select table_schema, table_name from information_schema.tables where table_type = 'SYSTEM VERSIONED'"
        ):
            if SourceName(*row) in self._tables:
                raise SourceRefused(_VERSIONED.format(name=SourceName(*row)), tables=[SourceName(*row)])

    def _look_at(self, table: FollowedTable) -> None:
        # What the log cannot say of the table's columns.
        with _refusing(table.name):
            server_table = describe_table(self._session, table.name)
        if server_table is not None:
            table.take_hints(server_table.columns)

    # --- the loop -------------------------------------------------------------------------------------------------

    def events(self) -> Iterator[Event]:
        """Return the events; see :class:`~lakefmt._core.cdc.events.SourceReader`."""
        target = self.latest if self._settings.until_now else None
        self._begin()
        for table in self._tables.values():
            if table.shape is not None:
                yield from table.changed(table.shape)
                table.resume()
        if self._is_closed:
            return
        self._stream = LogStream(self._settings.account, self._gtids, self._settings.server_id)
        for header, body in self._stream.events():
            try:
                yield from self._event(header, body)
            except (IndexError, KeyError, ValueError, struct.error) as error:
                if isinstance(error, LakefmtError):
                    raise
                raise SourceRefused(f"an event of the log cannot be read ({type(error).__name__}: {error})") from error
            if self._transaction is not None:
                continue
            yield from self._next_chunks()
            is_idle = header.type == EventType.HEARTBEAT
            is_done = target is not None and covers(self._gtids, target) and self._is_all_read()
            if is_done or is_idle or self._is_time(self._stream):
                yield from self._take_waiting()
                if is_done or is_idle or self._is_border_due:
                    yield self._border(caught_up=is_done or is_idle)
            if is_done:
                return

    def _begin(self) -> None:
        # Where the log is read from: before whatever a table lacks.
        stored = [table.stored.read_from for table in self._tables.values() if table.stored is not None]
        if stored:
            self._gtids = lowest(stored)
            return
        self._gtids = self.latest
        for table in self._tables.values():
            chunk = self._take_chunk(table)
            if chunk is not None:
                self._gtids = chunk.gtids
                return

    def _is_all_read(self) -> bool:
        return all(table.is_read or table.is_missing for table in self._tables.values())

    def _is_time(self, stream: LogStream) -> bool:
        # Rows wait while more come, so that batches are large where much is to be done.
        if self._waits_since is None and not self._is_border_due:
            return False
        if not stream.has_more():
            return True
        rows = sum(table.waiting_rows for table in self._tables.values())
        is_late = self._waits_since is not None and time.monotonic() - self._waits_since >= _WAITING_SECONDS
        return is_late or rows >= _WAITING_ROWS

    def _take_waiting(self) -> Iterator[RowChanges]:
        for table in self._tables.values():
            yield from self._take_changes(table)
        self._waits_since = None

    def _take_changes(self, table: FollowedTable) -> Iterator[RowChanges]:
        changes = table.take()
        if changes is not None and self._settings.logs and not table.is_read:
            changes = self._only_read(table, changes)
        if changes is not None and changes.rows.num_rows:
            yield changes

    def _border(self, *, caught_up: bool) -> Border:
        self._is_border_due = False
        gtids = dict(self._gtids)
        read_from = lowest([gtids, *(transaction.before for transaction in self._held.values())])
        of_tables = {name: self._position(table, gtids, read_from) for name, table in self._tables.items()}
        # A table that went, or is about to come, has no rows that were read.
        of_others = TablePosition(gtids, read_from, self._server, int(time.time()), False, None, (), ())
        return Border(_position_lookup(of_tables, of_others), self._last_time, caught_up)

    def _position(self, table: FollowedTable, gtids: Gtids, read_from: Gtids) -> TablePosition:
        if table.stored is not None and not covers(gtids, table.stored.gtids):
            return table.stored
        columns, keys = table.shape or ((), ())
        return TablePosition(
            gtids,
            read_from,
            self._server,
            table.epoch,
            table.is_read,
            table.last_key,
            columns,
            keys,
            table.reads_again,
            *table.noted_names,
        )

    # --- events of the log ----------------------------------------------------------------------------------------

    def _event(self, header: EventHeader, body: bytes) -> Iterator[Event]:
        code = header.type
        # MariaDB 11.4 leaves out where an event of a transaction ends; the one before it and its size tell.
        self._place = header.end or self._place + header.size
        if code in ROWS:
            yield from self._rows(header, body)
        elif code == EventType.TABLE_MAP:
            number, name, _ = read_table_name(body)
            self._numbers[number] = name, body
        elif code == EventType.GTID:
            self._transaction = _Transaction(read_gtid(body), header.server, header.time)
        elif code in (EventType.QUERY, EventType.QUERY_COMPRESSED):
            yield from self._query(read_query(body, compressed=code == EventType.QUERY_COMPRESSED))
        elif code == EventType.XID:
            self._end()
        elif code == EventType.XA_PREPARE:
            if read_xa_prepare(body) and self._transaction is not None:
                yield from self._release(self._transaction)
            self._end()
        elif code == EventType.ROTATE:
            self._file_name, self._place = read_rotate(body)
            self._file = _file_number(self._file_name)
            self._numbers.clear()
        elif code in (EventType.FORMAT, EventType.HEARTBEAT) or code in SILENT or header.flags & _IGNORABLE:
            return
        else:
            raise SourceRefused(
                f"the log has an event of the type {code} at {self._file_name}:{self._place}, which is not known here"
            )

    def _end(self) -> None:
        transaction = self._transaction
        self._transaction = None
        if transaction is None:
            return
        self._gtids = {**self._gtids, transaction.begin.domain: Gtid(transaction.server, transaction.begin.number)}
        self._last_time = float(transaction.time)
        self._is_border_due = True

    def _is_new(self, table: FollowedTable) -> bool:
        # Whether the table lacks the transaction that is being read.
        begin = self._transaction.begin if self._transaction is not None else None
        return begin is None or not is_covered(table.floor, begin.domain, begin.number)

    def _rows(self, header: EventHeader, body: bytes) -> Iterator[Event]:
        transaction = self._transaction
        name, map_body = self._numbers.get(int.from_bytes(body[:6], "little"), (None, b""))
        table = self._tables.get(name) if name is not None else None
        if table is None or transaction is None:
            return
        is_held = transaction.begin.prepares
        if not is_held and not self._is_new(table):
            return
        event = read_rows(header.type, body)
        described = self._map(table, map_body)
        if not event.is_complete or event.columns != len(described.columns):
            raise SourceRefused(
                f"a change of {table.name} in the log has not all columns: a session has binlog_row_image = MINIMAL or NOBLOB; "
                "SET GLOBAL binlog_row_image = FULL, end sessions that set it, and read the table anew",
                tables=[table.name],
            )
        rows = _RowsOf(table, described, event, self._file, self._place)
        if is_held:
            self._held.setdefault(transaction.begin.xid, _HeldTransaction(self._gtids, [])).rows.append(rows)
            return
        yield from self._add(transaction, rows)

    def _map(self, table: FollowedTable, body: bytes) -> TableMap:
        described = self._maps.get(body)
        if described is None:
            if len(self._maps) >= _MOST_MAPS:
                self._maps.clear()
            with _refusing(table.name):
                described = self._maps[body] = read_table_map(body, table.hints)
        return described

    def _add(self, transaction: _Transaction, rows: _RowsOf) -> Iterator[Event]:
        table, described, event, file, end = rows
        if not table.is_read and table.last_key is None and not table.reads_again:
            return  # the first chunk has it
        if not table.fits(described):
            yield from self._take_changes(table)
            yield from table.changed(described.shape)
            table.fit(described, self._charsets)
            yield from self._told_as_read(table)
        table.add(event, LogPlace(transaction.text, transaction.time, file, end))
        if self._waits_since is None:
            self._waits_since = time.monotonic()
        if table.waiting_bytes >= _WAITING_BYTES:
            yield from self._take_changes(table)

    def _told_as_read(self, table: FollowedTable) -> Iterator[TableLoaded]:
        if table.is_begun and table.is_read:
            table.is_begun = False
            yield TableLoaded(table.name)

    def _release(self, transaction: _Transaction) -> Iterator[Event]:
        prepared = self._held.pop(transaction.begin.xid, None)
        if prepared is None:
            if any(self._is_new(table) for table in self._tables.values()):
                raise SourceRefused(
                    "the log commits an XA transaction that was prepared before the log was read: its rows are missing; "
                    "read the tables anew"
                )
            return
        for rows in prepared.rows:
            if self._tables.get(rows.table.name) is rows.table and self._is_new(rows.table):
                yield from self._add(transaction, rows)

    # --- statements -----------------------------------------------------------------------------------------------

    def _query(self, query: LogStatement) -> Iterator[Event]:
        transaction = self._transaction
        sql = query.text.strip()
        word = sql[:12].upper()
        if word == "COMMIT":
            self._end()
            return
        if transaction is not None and transaction.begin.completes:
            if word.startswith("XA COMMIT"):
                yield from self._release(transaction)
            else:
                self._held.pop(transaction.begin.xid, None)
            self._end()
            return
        meanings = read_statement(sql, query.database)
        # Tables whose names are given to others in the same statement: such a name goes on with other rows.
        replaced = {meaning.new_name for meaning in meanings if isinstance(meaning, Renamed)}
        for meaning in meanings:
            yield from self._meaning(meaning, query, replaced)
        if transaction is not None and (transaction.begin.stands_alone or word == "ROLLBACK"):
            self._end()

    def _meaning(self, meaning: Meaning, query: LogStatement, replaced: Set[SourceName]) -> Iterator[Event]:
        if isinstance(meaning, RowsAsText):
            self._refuse_text(meaning, query.text.strip())
        elif isinstance(meaning, Created):
            yield from self._created(meaning)
        elif isinstance(meaning, DatabaseDropped):
            for name in [name for name in self._tables if name.schema == meaning.schema]:
                yield from self._end_table(name, None)
        elif isinstance(meaning, Dropped):
            yield from self._end_table(meaning.name, None)
        elif isinstance(meaning, Renamed):
            yield from self._renamed(meaning, replaced)
        else:
            yield from self._altered(meaning, is_strict=query.is_strict)

    def _refuse_text(self, meaning: RowsAsText, sql: str) -> None:
        if meaning.only is not None and meaning.only not in self._tables:
            return
        if not any(self._is_new(table) for table in self._tables.values()):
            return
        if meaning.word == "ROLLBACK" and not any(table.waiting_rows for table in self._tables.values()):
            return
        raise SourceRefused(
            f"the log has a change as a statement and not as rows ({meaning.word} …, {len(sql)} characters, in {self._file_name}): a session has "
            "binlog_format = STATEMENT or MIXED; SET GLOBAL binlog_format = ROW, end sessions that set it, and read the tables anew"
        )

    def _altered(self, meaning: Altered | Truncated, *, is_strict: bool) -> Iterator[Event]:
        table = self._tables.get(meaning.name)
        if table is None or not self._is_new(table):
            return
        if isinstance(meaning, Truncated):
            yield from self._take_changes(table)
            if table.is_known:
                yield TableTruncated(table.name)
            return
        if meaning.is_versioned:
            raise SourceRefused(_VERSIONED.format(name=table.name), tables=[table.name])
        self._maps.clear()
        self._look_at(table)
        changes_values = meaning.fills_rows or (bool(meaning.whole_numbers) and not is_strict)
        changes_values |= not table.has_whole_numbers(meaning.whole_numbers)
        changes_values |= table.note_names(meaning)
        if meaning.moves_rows:
            yield from self._read_anew(table)
        elif changes_values and not self._settings.logs:
            # No event tells the values of rows that are there.
            yield from self._take_changes(table)
            table.drop_chunk()
            table.is_read, table.last_key, table.reads_again = False, None, True

    def _created(self, meaning: Created) -> Iterator[Event]:
        table = self._tables.get(meaning.name)
        if table is None:
            if is_followed(meaning.name, self._settings.patterns):
                self._join(meaning.name, is_read=True)
        elif table.is_missing or (meaning.replaces and self._is_new(table)):
            yield from self._end_table(meaning.name, None)
            self._join(meaning.name, is_read=True)

    def _join(self, name: SourceName, *, is_read: bool) -> FollowedTable:
        # A table that the log created has no rows yet; one that got its name has.
        table = self._tables[name] = FollowedTable(name, int(time.time()))
        table.is_read = is_read
        self._look_at(table)
        self._maps.clear()
        return table

    def _end_table(self, name: SourceName, new_name: SourceName | None) -> Iterator[Event]:
        table = self._tables.get(name)
        if table is None or not self._is_new(table):
            return
        yield from self._take_changes(table)
        table.drop_chunk()
        del self._tables[name]
        if table.is_known:
            yield TableGone(name, new_name)

    def _renamed(self, meaning: Renamed, replaced: Set[SourceName]) -> Iterator[Event]:
        table = self._tables.get(meaning.name)
        if table is not None and not self._is_new(table):
            return
        if table is not None and meaning.name in replaced:
            yield from self._read_anew(table)
        else:
            yield from self._end_table(meaning.name, meaning.new_name)
        other = self._tables.get(meaning.new_name)
        if other is None and is_followed(meaning.new_name, self._settings.patterns):
            self._join(meaning.new_name, is_read=False)

    def _read_anew(self, table: FollowedTable) -> Iterator[Event]:
        # Rows came or went without events: begin with the rows of now.
        yield from self._take_changes(table)
        table.drop_chunk()
        if table.is_known:
            yield TableTruncated(table.name)
        table.is_read, table.last_key, table.is_begun = False, None, True

    # --- rows of now ----------------------------------------------------------------------------------------------

    def _take_chunk(self, table: FollowedTable) -> Chunk | None:
        table.chunk = take_chunk(
            self._settings.account, self._session, table.name, table.last_key, self._settings.chunk_rows
        )
        table.is_missing = table.chunk is None
        return table.chunk

    def _next_chunks(self) -> Iterator[Event]:
        for table in list(self._tables.values()):
            while not table.is_read and not table.is_missing:
                chunk = table.chunk or self._take_chunk(table)
                if chunk is None:
                    break
                if not covers(self._gtids, chunk.gtids):
                    return  # the log comes to it
                yield from self._chunk(table, chunk)
                yield from self._take_waiting()
                yield self._border(caught_up=False)

    def _chunk(self, table: FollowedTable, chunk: Chunk) -> Iterator[Event]:
        yield from self._take_changes(table)
        yield from table.changed(chunk.table.shape)
        table.take_hints(chunk.table.columns)
        count, last_key = 0, table.last_key
        file = _file_number(chunk.file)
        for rows, last in chunk.batches():
            count, last_key = count + rows.num_rows, last
            yield table.selected(rows, file, chunk.place)
        table.drop_chunk()
        table.last_key = last_key
        table.is_read = chunk.rows is None or count < chunk.rows
        if table.is_read:
            table.last_key, table.reads_again = None, False
            yield from self._told_as_read(table)

    def _only_read(self, table: FollowedTable, changes: RowChanges) -> RowChanges | None:
        # The changes of rows that were read so far; half of an update may be of a row that was not.
        now = describe_table(self._session, table.name)
        if now is None or table.last_key is None:
            return None
        read = np.array(keys_read(self._session, now, changes.rows, table.last_key), bool)
        row_kinds = changes.kinds.to_numpy(zero_copy_only=False).copy()
        befores = np.flatnonzero(row_kinds == RowKind.UPDATE_BEFORE.value)
        row_kinds[befores[~read[befores + 1]]] = RowKind.DELETE.value
        row_kinds[befores[~read[befores]] + 1] = RowKind.INSERT.value
        is_read = pa.array(read)
        return RowChanges(
            changes.name,
            changes.rows.filter(is_read),
            pa.array(row_kinds).filter(is_read),
            times=None if changes.times is None else changes.times.filter(is_read),
            positions=None if changes.positions is None else changes.positions.filter(is_read),
            transactions=None if changes.transactions is None else changes.transactions.filter(is_read),
            precedes_snapshot=True,
        )

    def lag(self) -> Mapping[str, float]:
        """Return how many tables are still being read, and what waits."""
        tables = list(self._tables.values())
        return {
            "tables_to_read": float(sum(not table.is_read for table in tables)),
            "rows_waiting": float(sum(table.waiting_rows for table in tables)),
            "prepared_transactions": float(len(self._held)),
        }

    def close(self) -> None:
        """End the loop; another thread may call this."""
        self._is_closed = True
        if self._stream is not None:
            self._stream.close()
        for table in list(self._tables.values()):
            table.drop_chunk()
        self._session.close()


_VERSIONED: Final = "{name} is system-versioned: the log shows its old rows as rows; ALTER TABLE … DROP SYSTEM VERSIONING, or leave the table out"


def _file_number(name: str) -> int:
    digits = name.rpartition(".")[2]
    return int(digits) if digits.isdigit() else 0


def _position_lookup(
    positions: Mapping[SourceName, TablePosition], default: TablePosition
) -> Callable[[SourceName], Position]:
    return lambda name: positions.get(name, default).to_json()
