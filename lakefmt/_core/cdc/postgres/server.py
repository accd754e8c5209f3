"""A PostgreSQL server: its connections, its catalog and its log.

The log has the slot that keeps it, the publication that says what is sent, and the stream itself.
"""

from __future__ import annotations

import contextlib
import fnmatch
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import field
from types import ModuleType
from typing import Any, BinaryIO, Final, Literal, NamedTuple, Protocol, Self, overload

import pyarrow as pa

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.events import SourceName, is_followed
from lakefmt._core.cdc.postgres.rows import (
    TEXT,
    AttributeRow,
    ColumnRow,
    ColumnTypes,
    KnownColumns,
    OddValues,
    TypeRow,
    find_type,
    to_arrow,
)
from lakefmt._core.data_classes import dataclass, replace
from lakefmt.errors import InvalidInputError, PositionLost, SourceRefused, SourceUnavailable

__all__ = [
    "PARTITIONED",
    "PARTITIONED_FROM",
    "SLOT_BUSY",
    "PartitionRow",
    "PostgresSettings",
    "ReplicationStream",
    "Server",
    "ServerCatalog",
    "SlotRow",
    "TableRow",
    "ask",
    "await_slot",
    "ensure_publication",
    "ensure_slot",
    "entries",
    "find_candidates",
    "find_slot",
    "has_publication",
    "identifier",
    "is_made_here",
    "lsn_number",
    "lsn_text",
    "psycopg2",
    "source_errors",
]

#: Texts of values are then the same in every session, whatever server, database and role have as their settings; row_security makes
#: a query fail that a policy would filter.
_SETTINGS: Final[Mapping[str, str]] = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "row_security": "off",
}
#: What the server answers, by SQLSTATE.
SLOT_BUSY: Final = "55006"
_WRONG_STATE: Final = "55000"
_FILE_GONE: Final = "58P01"
#: The log of a removed segment, and a slot that the server gave up, have no code of their own.
_LOST_TEXTS: Final = (
    "has already been removed",
    "can no longer",
    "invalidated",
    "cannot read from logical replication slot",
)


def psycopg2() -> ModuleType:
    """Return the client library.

    Raises:
        InvalidInputError: it is not installed.
    """
    try:
        import psycopg2 as module
        import psycopg2.extras
    except ImportError as error:
        raise InvalidInputError("PostgreSQL needs psycopg2: pip install 'lakefmt[postgres]'") from error
    return module  # type: ignore[no-any-return]


#: Refusals of a connection have no code either.
_REFUSED_TEXTS: Final = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "certificate verify failed",
    "does not match host name",
    "does not support SSL",
    "root certificate file",
)


@contextlib.contextmanager
def source_errors(doing: str) -> Iterator[None]:
    """Turn the client library's errors into those of a source; its texts hold no password."""
    module = psycopg2()
    try:
        yield
    except (module.OperationalError, module.InterfaceError) as error:
        raise _error_of(doing, error, SourceUnavailable) from error
    except module.DatabaseError as error:
        is_refused = error.pgcode or isinstance(error, module.ProgrammingError)
        raise _error_of(doing, error, SourceRefused if is_refused else SourceUnavailable) from error


def _error_of(doing: str, error: BaseException, otherwise: type[Exception]) -> Exception:
    message = " ".join(str(error).split()) or type(error).__name__
    code = getattr(error, "pgcode", None) or ""
    is_lost = code == _FILE_GONE or any(part in message for part in _LOST_TEXTS)
    is_refused = not code and any(part in message for part in _REFUSED_TEXTS)
    error_class = (
        SourceUnavailable
        if code == SLOT_BUSY
        else PositionLost
        if is_lost
        else SourceRefused
        if is_refused
        else otherwise
    )
    return error_class(f"PostgreSQL, {doing}: {message}")


class PostgresCursor(Protocol):
    """The methods of a psycopg2 cursor that lakefmt calls; `fetchone` only after a statement that returns a row."""

    @property
    def description(self) -> object: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> object: ...
    def execute(self, query: str, values: Sequence[object] | None = None, /) -> object: ...
    def fetchone(self) -> tuple[Any, ...]: ...
    def fetchall(self) -> Sequence[tuple[Any, ...]]: ...
    def mogrify(self, query: str, values: Sequence[object], /) -> bytes: ...
    def copy_expert(self, query: str, file: BinaryIO, /) -> object: ...


class LogMessage(Protocol):
    """A message of the log."""

    payload: bytes


class ReplicationCursor(PostgresCursor, Protocol):
    """The methods of a psycopg2 replication cursor that lakefmt calls."""

    @property
    def wal_end(self) -> int: ...
    def fileno(self) -> int: ...
    def read_message(self) -> LogMessage | None: ...
    def start_replication(
        self, *, slot_name: str, start_lsn: int, options: Mapping[str, str], decode: bool
    ) -> object: ...
    def send_feedback(self, *, write_lsn: int, flush_lsn: int, apply_lsn: int, reply: bool, force: bool) -> object: ...


class PostgresConnection(Protocol):
    """The methods of a psycopg2 connection that lakefmt calls."""

    @property
    def closed(self) -> int: ...
    @property
    def server_version(self) -> int: ...
    def cursor(self) -> PostgresCursor: ...
    def cancel(self) -> object: ...
    def close(self) -> object: ...


class ReplicationConnection(PostgresConnection, Protocol):
    """The methods of a psycopg2 replication connection that lakefmt calls."""

    def cursor(self) -> ReplicationCursor: ...


@dataclass(frozen=True, slots=True)
class Server:
    """Where a database is and who asks.

    Attributes:
        host: name or address.
        port: of the server.
        user: the role.
        database: its name.
        parameters: more of the client library's, such as ``sslmode``.
        password: never shown.
    """

    host: str
    port: int
    user: str
    database: str
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False)
    password: str = field(default="", repr=False)

    @property
    def identity(self) -> str:
        """The server and the database, without a secret."""
        return f"postgresql://{self.host}:{self.port}/{self.database}"

    @overload
    def connect(self, *, replication: Literal[True]) -> ReplicationConnection: ...
    @overload
    def connect(self) -> PostgresConnection: ...
    def connect(self, *, replication: bool = False) -> PostgresConnection:
        """Return a connection, by default one of statements that commit by themselves."""
        module = psycopg2()
        options = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        more = {"connection_factory": module.extras.LogicalReplicationConnection} if replication else {}
        parameters = {"connect_timeout": "30", "application_name": "lakefmt", **self.parameters}
        with source_errors(f"connecting to {self.host}:{self.port}"):
            connection = module.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password or None,
                dbname=self.database,
                options=options,
                client_encoding="UTF8",
                **parameters,
                **more,
            )
            if not replication:
                connection.autocommit = True
        typed_connection: PostgresConnection = connection
        return typed_connection


#: Seconds after which the caller of a waiting call may act, again and again.
_SECONDS_BETWEEN_LOOKS: Final = 1.0


def waiting(connection: PostgresConnection, call: Callable[[], object]) -> Iterator[None]:
    """Make a call that may wait for other transactions; yield now and then until it has returned.

    The client library waits inside C code, where no signal is handled. So the call is made in a thread, and this one waits in Python: a
    signal, another thread that closes the source, or a caller that goes no further ends it.
    """
    outcome: Future[object] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001  (handed to the thread that waits)
            outcome.set_exception(error)

    threading.Thread(target=run, name="lakefmt-postgres", daemon=True).start()
    try:
        while True:
            try:
                outcome.result(_SECONDS_BETWEEN_LOOKS)
            except TimeoutError:
                if outcome.done():
                    raise
                yield
            else:
                return
    finally:
        if not outcome.done():
            with contextlib.suppress(psycopg2().Error):
                connection.cancel()


def wait_for(connection: PostgresConnection, call: Callable[[], object]) -> None:
    """Make a call that may wait for other transactions; a signal ends it."""
    for _ in waiting(connection, call):
        pass


def ask(connection: PostgresConnection, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Return the rows that a statement answers; none if it answers nothing."""
    with source_errors("asking its catalog"), connection.cursor() as cursor:
        cursor.execute(query, values or None)
        return list(cursor.fetchall()) if cursor.description else []


def identifier(*names: str) -> str:
    """Return names as SQL has them.

    Example:
        >>> identifier("public", "Odd name")
        '"public"."Odd name"'
    """
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def lsn_number(lsn: str) -> int:
    """Return a place in the log as a number.

    Example:
        >>> lsn_number("1/A0"), lsn_text(4294967456)
        (4294967456, '1/A0')
    """
    high, _, low = lsn.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(number: int) -> str:
    """Return a place in the log as the server writes it."""
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


# ----------------------------------------------------------------------------------------------------------- catalog


class PartitionRow(NamedTuple):
    """A partition that has rows, of a partitioned table or of one of its partitions.

    Attributes:
        id: its object id.
        name: its name.
        file: the number of its file.
        entered: the number of the transaction that made it a partition.
        is_born: it was made as a partition, without rows, and not attached with those that it had.
    """

    id: int
    name: SourceName
    file: int
    entered: int
    is_born: bool

    @property
    def mark(self) -> tuple[int, int, int]:
        """A value that changes when the rows of the partition came or went without an event."""
        return self.id, self.file, self.entered


class TableRow(NamedTuple):
    """A table as the catalog has it.

    Attributes:
        id: its object id.
        name: its name.
        identity: of its changes: ``d`` the primary key, ``f`` the whole row, ``i`` an index, ``n`` nothing.
        kind: ``r`` a table, ``p`` a partitioned one.
        file: the number of its file: another one means that the table was rewritten or emptied.
        columns: its columns but the generated ones, which are not in the log.
        primary_key: in order.
        identity_key: the columns of the index that is its identity.
        leaves: of a partitioned table: the partitions that have its rows.
        known: the numbers of its columns.
    """

    id: int
    name: SourceName
    identity: str
    kind: str
    file: int
    columns: tuple[ColumnRow, ...]
    primary_key: tuple[str, ...]
    identity_key: tuple[str, ...]
    leaves: tuple[PartitionRow, ...] = ()
    known: KnownColumns | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that every change of a row names: those of its identity, or the primary key where the identity has all."""
        return self.identity_key if self.identity == "i" else self.primary_key


#: The kind of a partitioned table.
PARTITIONED: Final = "p"
_TABLES: Final = """
SELECT c.oid, n.nspname, c.relname, c.relreplident::text, c.relkind::text, c.relfilenode::int8,
  (SELECT sum(a.xmin::text::int8)::int8 FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY(%s::oid[])"""
_COLUMNS: Final = """
SELECT attrelid, attnum, attisdropped, NOT attisdropped AND attgenerated = '', attname, atttypid, atttypmod
FROM pg_catalog.pg_attribute WHERE attrelid = ANY(%s::oid[]) AND attnum > 0 ORDER BY attrelid, attnum"""
_KEYS: Final = """
SELECT i.indrelid, i.indisprimary, i.indisreplident, array_agg(a.attname::text ORDER BY k.place)
FROM pg_catalog.pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(num, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.num
WHERE i.indrelid = ANY(%s::oid[]) AND (i.indisprimary OR i.indisreplident) AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid, i.indrelid, i.indisprimary, i.indisreplident"""
_TYPES: Final = """
SELECT t.oid, t.typname::text, t.typbasetype, t.typtypmod, coalesce(e.oid, 0)
FROM pg_catalog.pg_type t LEFT JOIN pg_catalog.pg_type e ON e.typarray = t.oid WHERE t.oid = ANY(%s::oid[])"""
_PUBLISHED: Final = """
SELECT c.oid FROM pg_catalog.pg_publication_tables p
JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename WHERE p.pubname = %s"""

_NAMED: Final = """
SELECT c.oid FROM unnest(%s::text[], %s::text[]) AS k(space, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = k.space JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = k.name"""


_TREE: Final = """
WITH RECURSIVE tree(root, id, entered) AS (
  SELECT o, o, '0'::xid FROM unnest(%s::oid[]) o
  UNION ALL SELECT t.root, i.inhrelid, i.xmin FROM tree t JOIN pg_catalog.pg_inherits i ON i.inhparent = t.id
  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition)"""
#: As the transaction sees them. A table and its row type are made together, and attaching it leaves the type as it is.
_LEAVES: Final = (
    _TREE
    + """
SELECT t.root, c.oid, n.nspname, c.relname, c.relfilenode, t.entered::text::int8, y.xmin = t.entered
FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.id JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_type y ON y.oid = c.reltype WHERE t.id <> t.root AND c.relkind <> 'p' ORDER BY 2"""
)
#: An array of one value, as text, for each column that older rows lack, of a table or of its partitions.
_MISSING_VALUES: Final = (
    _TREE
    + """
SELECT DISTINCT ON (a.attname) a.attname, (a.attmissingval::text::text[])[1]
FROM tree t JOIN pg_catalog.pg_attribute a ON a.attrelid = t.id WHERE a.atthasmissing AND NOT a.attisdropped ORDER BY 1, t.id"""
)


class ServerCatalog:
    """Tables and types of the catalog, as the transaction of one connection sees them."""

    def __init__(
        self,
        connection: PostgresConnection,
        as_text: Callable[[SourceName, str], bool],
        types: dict[int, TypeRow] | None = None,
    ) -> None:
        self._connection = connection
        #: Says whether a column is read as text.
        self.as_text = as_text
        #: Types by object id, known so far; connections of one source share them.
        self.types: dict[int, TypeRow] = {} if types is None else types

    def published(self, publication: str) -> dict[int, TableRow]:
        """Return the tables of a publication by object id."""
        return self.tables([row[0] for row in ask(self._connection, _PUBLISHED, publication)])

    def tables_named(self, names: Sequence[SourceName]) -> dict[int, TableRow]:
        """Return the tables of some names by object id."""
        rows = ask(self._connection, _NAMED, [name.schema for name in names], [name.table for name in names])
        return self.tables([row[0] for row in rows])

    def tables(self, ids: Sequence[int]) -> dict[int, TableRow]:
        """Return tables by object id; those that are gone are left out."""
        columns = self.columns(ids)
        primary: dict[int, tuple[str, ...]] = {}
        identity: dict[int, tuple[str, ...]] = {}
        for table_id, is_primary, is_identity, names in ask(self._connection, _KEYS, list(ids)):
            if is_primary:
                primary[table_id] = tuple(names)
            if is_identity:
                identity[table_id] = tuple(names)
        rows = ask(self._connection, _TABLES, list(ids))
        leaves: dict[int, list[PartitionRow]] = {}
        roots = [row[0] for row in rows if row[4] == PARTITIONED]
        for root, number, schema, name, *rest in ask(self._connection, _LEAVES, roots) if roots else ():
            leaves.setdefault(root, []).append(PartitionRow(number, SourceName(schema, name), *rest))
        return {
            table_id: TableRow(
                table_id,
                SourceName(schema, name),
                replica_identity,
                relation_kind,
                file,
                tuple(each.column for each in columns.get(table_id, ()) if each.is_sent),
                primary.get(table_id, ()),
                identity.get(table_id, ()),
                tuple(leaves.get(table_id, ())),
                _known(columns.get(table_id, ()), (file, altered or 0)),
            )
            for table_id, schema, name, replica_identity, relation_kind, file, altered in rows
        }

    def columns(self, ids: Sequence[int]) -> dict[int, list[AttributeRow]]:
        """Return all columns that tables have or had, by the object id of the table."""
        columns: dict[int, list[AttributeRow]] = {}
        for table_id, number, is_dropped, is_sent, *column in ask(self._connection, _COLUMNS, list(ids)):
            columns.setdefault(table_id, []).append(AttributeRow(number, ColumnRow(*column), is_dropped, is_sent))
        return columns

    def _learn(self, ids: set[int]) -> None:
        unknown = ids - self.types.keys()
        while unknown:
            rows = {row[0]: TypeRow(*row[1:]) for row in ask(self._connection, _TYPES, sorted(unknown))}
            # A type that was dropped since: its values are texts.
            self.types |= {each: rows.get(each, TypeRow(str(each), 0, -1, 0)) for each in unknown}
            below = {number for row in rows.values() for number in (row.base, row.element) if number}
            unknown = below - self.types.keys()

    def shape_of(
        self, name: SourceName, columns: Sequence[ColumnRow], keys: tuple[str, ...], table_id: int | None = None
    ) -> ColumnTypes:
        """Return a table's columns with the types that values have here.

        Args:
            name: of the table.
            columns: of the table.
            keys: of the table.
            table_id: also tell the values that columns have in rows that are older than they.
        """
        self._learn({column.type_id for column in columns})
        types = [
            TEXT if self.as_text(name, column.name) else find_type(column.type_id, column.modifier, self.types)
            for column in columns
        ]
        shape = replace(ColumnTypes.of(name, [column.name for column in columns], types, keys), columns=tuple(columns))
        # The server does not write older rows anew, and no event tells.
        missing_values = {} if table_id is None else dict(ask(self._connection, _MISSING_VALUES, [table_id]))
        filled = {
            column.name: to_arrow(
                pa.array([missing_values[column.name]], pa.string()), value_type, "null", column.name
            )[0]
            for column, value_type in zip(columns, types, strict=True)
            if missing_values.get(column.name) is not None
        }
        return replace(shape, filled=filled) if filled else shape


def _known(columns: Sequence[AttributeRow], storage: tuple[int, int]) -> KnownColumns:
    """Return the columns that the log has, as the catalog tells them at one moment."""
    sent = [each for each in columns if each.is_sent]
    attributes = max((each.number for each in columns), default=0)
    return KnownColumns(tuple(each.number for each in sent), tuple(each.column for each in sent), attributes, storage)


#: Schemas of the server itself.
_OWN_SCHEMAS: Final = ("pg_catalog", "information_schema", "pg_toast")


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """The options of a source.

    Attributes:
        server: the database.
        patterns: of the tables that are followed.
        publication: what the server sends.
        slot: what keeps its log.
        text_columns: patterns of columns that are read as text.
        odd_values: what happens to values that the type of their column cannot hold.
        chunk_bytes: about so many bytes of a table, and of changes, come at once.
        look_seconds: how often tables are looked for that joined or left.
    """

    server: Server
    patterns: tuple[str, ...]
    publication: str = "lakefmt"
    slot: str = "lakefmt"
    text_columns: tuple[str, ...] = ()
    odd_values: OddValues = "refuse"
    chunk_bytes: int = 8 << 20
    look_seconds: float = 5.0

    def matches(self, name: SourceName) -> bool:
        """Return whether a table is followed; a pattern without a dot is one of the schema ``public``."""
        return name.schema not in _OWN_SCHEMAS and is_followed(name, self.patterns, "public")

    def as_text(self, name: SourceName, column: str) -> bool:
        """Return whether a column is read as text."""
        return any(
            fnmatch.fnmatchcase(f"{name}.{column}", each if each.count(".") > 1 else f"public.{each}")
            for each in self.text_columns
        )


_log = logging.getLogger("lakefmt.cdc")

#: How long a slot may be in use by a reader that has just gone, and how often it is looked at.
_SECONDS_TO_LEAVE: Final = 3.0
_SECONDS_TO_LOOK: Final = 0.05


class HasFileno(Protocol):
    """What the system can wait for."""

    def fileno(self) -> int: ...


class ReplicationStream:
    """A connection that follows the log through a slot, from a place on."""

    def __init__(self, server: Server, opened: Callable[[PostgresConnection], None], wakes: socket.socket) -> None:
        """Connect.

        Args:
            server: the database.
            opened: is told of the connection, so that another thread can end it.
            wakes: becomes readable when the source is closed.
        """
        self._connection = server.connect(replication=True)
        opened(self._connection)
        self._cursor = self._connection.cursor()
        self._errors: type[Exception] = psycopg2().Error
        self._wakes = wakes
        self._is_started = False
        #: Where the log may be forgotten: every commit behind it is durable here.
        self.confirmed = 0

    def identify(self) -> str:
        """Return the number that the server's files have had since they were made."""
        with source_errors("asking who it is"):
            self._cursor.execute("IDENTIFY_SYSTEM")
            return str(self._cursor.fetchone()[0])

    def create_slot(self, slot: str) -> Iterator[None]:
        """Have the server keep its log from now on; yield while it waits for the transactions that are open."""
        with source_errors(f"making the slot {slot}"):
            statement = f"CREATE_REPLICATION_SLOT {identifier(slot)} LOGICAL pgoutput NOEXPORT_SNAPSHOT"
            yield from waiting(self._connection, lambda: self._cursor.execute(statement))

    def start(self, slot: str, publication: str, lsn: int) -> None:
        """Begin to follow, at the place that was confirmed last or at `lsn`, whichever is later."""
        deadline = time.monotonic() + _SECONDS_TO_LEAVE
        while True:
            try:
                self._start(slot, publication, lsn)
                break
            except SourceUnavailable as error:
                # The server takes a moment to see that the reader before has gone.
                is_busy = getattr(error.__cause__, "pgcode", None) == SLOT_BUSY
                if not is_busy or time.monotonic() > deadline:
                    raise
                _wait_for([self._wakes], _SECONDS_TO_LOOK)
        self._is_started = True

    def _start(self, slot: str, publication: str, lsn: int) -> None:
        with source_errors(f"following the slot {slot}"):
            self._cursor.start_replication(
                slot_name=slot,
                start_lsn=lsn,
                options={"proto_version": "1", "publication_names": identifier(publication)},
                decode=False,
            )

    def read(self) -> bytes | None:
        """Return the next message; None: nothing has come."""
        try:
            message = self._cursor.read_message()
        except self._errors:
            with source_errors("following its log"):  # not around each message: there are many
                raise
        return None if message is None else bytes(message.payload)

    @property
    def end(self) -> int:
        """How far the server has read its log; everything before has come when nothing is left to read."""
        return int(self._cursor.wal_end)

    def wait(self, seconds: float) -> None:
        """Wait until something comes, the source is closed or the time is over."""
        with source_errors("waiting for its log"):
            _wait_for([self._cursor, self._wakes], max(seconds, 0.0))

    def tell(self, *, ask: bool = False) -> None:
        """Tell the server what is confirmed and that somebody is there; `ask` it to tell how far it is."""
        if not self._is_started:
            return
        with source_errors("confirming"):
            self._cursor.send_feedback(
                write_lsn=self.confirmed, flush_lsn=self.confirmed, apply_lsn=self.confirmed, reply=ask, force=True
            )

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(Exception):
            self._connection.close()


_SLOT: Final = """
SELECT plugin::text, database::text, active, wal_status, slot_type FROM pg_catalog.pg_replication_slots WHERE slot_name = %s"""
#: The comment of a publication that a follower made.
_MADE_HERE: Final = "made by lakefmt"
_COMMENT: Final = """
SELECT coalesce(obj_description(p.oid, 'pg_publication'), '') FROM pg_catalog.pg_publication p WHERE p.pubname = %s"""
_PUBLISHED_NAMES: Final = """
SELECT t.schemaname::text, t.tablename::text FROM pg_catalog.pg_publication_tables t WHERE t.pubname = %s"""
_ENTERED: Final = """
SELECT n.nspname::text, c.relname::text
FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_catalog.pg_class c ON c.oid = r.prrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %s"""
_CANDIDATES: Final = """
SELECT n.nspname::text, c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition ORDER BY 1, 2"""


class SlotRow(NamedTuple):
    """A slot as the server has it."""

    plugin: str | None
    database: str | None
    is_active: bool
    wal_status: str | None
    type: str

    @property
    def is_lost(self) -> bool:
        """The server gave up what it kept."""
        return self.wal_status == "lost"


def find_slot(connection: PostgresConnection, slot: str) -> SlotRow | None:
    """Return the slot of a name; None: there is none."""
    rows = ask(connection, _SLOT, slot)
    return SlotRow(*rows[0]) if rows else None


def has_publication(connection: PostgresConnection, publication: str) -> bool:
    """Say whether a publication is there."""
    return bool(ask(connection, "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = %s", publication))


def find_candidates(connection: PostgresConnection, settings: PostgresSettings) -> list[SourceName]:
    """Return the tables of the database that match the patterns."""
    return [name for row in ask(connection, _CANDIDATES) if settings.matches(name := SourceName(*row))]


def is_made_here(connection: PostgresConnection, publication: str) -> bool:
    """Say whether a follower made a publication, so that its tables are those of the follower."""
    rows = ask(connection, _COMMENT, publication)
    return bool(rows) and rows[0][0] == _MADE_HERE


def ensure_publication(
    connection: PostgresConnection, settings: PostgresSettings, warned_tables: set[SourceName] | None = None
) -> None:
    """Make the publication of the tables that are asked for, or let one that a follower made have just these.

    A table that is not asked for leaves it: the log is let go without it, and who asks for it again has to find out
    (:func:`entries`).

    Args:
        connection: to the database.
        settings: which tables, and the publication's name.
        warned_tables: the tables of which a warning said that they are not in it, which gets more of them.

    Raises:
        SourceRefused: there is no publication, and no table that is asked for.
    """
    names, publication = find_candidates(connection, settings), identifier(settings.publication)
    warned_tables = set() if warned_tables is None else warned_tables
    if not has_publication(connection, settings.publication):
        if not names:
            raise SourceRefused(
                f"PostgreSQL: no table of {shown(settings.server.database)} is one of {shown(settings.patterns)}"
            )
        ask(connection, publication_statement(connection, settings.publication, names))
        ask(connection, f"COMMENT ON PUBLICATION {publication} IS %s", _MADE_HERE)
        return
    is_own = is_made_here(connection, settings.publication)
    there = {
        SourceName(*row) for row in ask(connection, _ENTERED if is_own else _PUBLISHED_NAMES, settings.publication)
    }
    changes = {"ADD": [name for name in names if name not in there and name not in warned_tables]}
    if is_own:
        changes["DROP"] = sorted(name for name in there if not settings.matches(name))
    for verb, tables in changes.items():
        if not tables:
            continue
        statement = f"ALTER PUBLICATION {publication} {verb} TABLE {', '.join(identifier(*each) for each in tables)}"
        if is_own:
            try:
                ask(connection, statement)
            except SourceRefused as error:
                _log.warning("%s: these tables do not join or leave: %s", error, statement)
            else:
                continue
        else:
            _log.warning("tables that are asked for are not in the publication, and are not followed: %s", statement)
        warned_tables.update(tables)


_ENTRIES: Final = """
SELECT c.oid, coalesce(r.oid, s.oid, p.oid)
FROM pg_catalog.pg_publication p CROSS JOIN pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid
LEFT JOIN {schemas} s ON s.pnpubid = p.oid AND s.pnnspid = c.relnamespace
WHERE p.pubname = %s AND c.oid = ANY(%s::oid[])"""
#: The first release that publishes partitioned tables.
PARTITIONED_FROM: Final = 130_000
#: The first release that publishes whole schemas.
_SCHEMAS_FROM: Final = 150_000


def entries(connection: PostgresConnection, publication: str, tables: Sequence[int]) -> dict[int, int]:
    """Return the number of each table's entry in a publication, by object id. A table that leaves and comes back gets a new one."""
    schemas = "pg_catalog.pg_publication_namespace"
    if connection.server_version < _SCHEMAS_FROM:
        schemas = "(SELECT 0::oid AS oid, 0::oid AS pnpubid, 0::oid AS pnnspid WHERE false)"
    return dict(ask(connection, _ENTRIES.format(schemas=schemas), publication, list(tables)))


def publication_statement(connection: PostgresConnection, publication: str, names: list[SourceName]) -> str:
    """Return the statement that makes a publication of tables; a partitioned one is sent as one table."""
    options = " WITH (publish_via_partition_root = true)" if connection.server_version >= PARTITIONED_FROM else ""
    tables = ", ".join(identifier(*name) for name in names)
    return f"CREATE PUBLICATION {identifier(publication)} FOR TABLE {tables}{options}"


def _wait_for(sources: Iterable[HasFileno], seconds: float) -> None:
    """Wait until one of them can be read or the time is over; `select` takes no file above number 1,023."""
    with selectors.DefaultSelector() as selector:
        for source in sources:
            selector.register(source, selectors.EVENT_READ)
        selector.select(seconds)


def await_slot(connection: PostgresConnection, slot: str, wakes: socket.socket) -> None:
    """Wait until nobody reads a slot; the server takes a moment to see that the reader before has gone.

    Raises:
        SourceUnavailable: somebody does.
    """
    deadline = time.monotonic() + _SECONDS_TO_LEAVE
    while (row := find_slot(connection, slot)) is not None and row.is_active:
        if time.monotonic() > deadline:
            raise SourceUnavailable(f"PostgreSQL: the slot {slot} is active: another reader uses it")
        _wait_for([wakes], _SECONDS_TO_LOOK)


def ensure_slot(
    connection: PostgresConnection, log: ReplicationStream, settings: PostgresSettings, *, has_positions: bool
) -> Iterator[None]:
    """Make the slot unless it is there; yield while that waits.

    Args:
        connection: to the database.
        log: a connection for the log.
        settings: of the source.
        has_positions: tables have positions that lie in its log.

    Raises:
        PositionLost: positions were stored, and the slot or what it kept is gone.
        SourceRefused: the slot is another's.
    """
    row = find_slot(connection, settings.slot)
    if row is not None and (row.plugin, row.database) != ("pgoutput", settings.server.database):
        raise SourceRefused(
            f"PostgreSQL: the slot {shown(settings.slot)} is one of {shown(row.plugin)} in {shown(row.database)}; choose another name"
        )
    if row is not None and row.is_lost:
        if has_positions:
            raise PositionLost(
                f"PostgreSQL: the slot {shown(settings.slot)} lost its log: it grew larger than max_slot_wal_keep_size"
            )
        ask(connection, "SELECT pg_drop_replication_slot(%s)", settings.slot)
        row = None
    if row is None:
        if has_positions:
            raise PositionLost(
                f"PostgreSQL: the slot {shown(settings.slot)} is gone, and with it the log behind the positions"
            )
        _log.info("the slot %s keeps the log of %s", settings.slot, settings.server.identity)
        yield from log.create_slot(settings.slot)
