"""The log of a PostgreSQL server: the slot that keeps it, the publication that says what is sent, and the stream itself."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.events import SourceName
from lakefmt._core.cdc.postgres.server import (
    SLOT_BUSY,
    PostgresConnection,
    PostgresSettings,
    Server,
    ask,
    identifier,
    psycopg2,
    source_errors,
    waiting,
)
from lakefmt.errors import PositionLost, SourceRefused, SourceUnavailable

__all__ = [
    "PARTITIONED_FROM",
    "ReplicationStream",
    "SlotRow",
    "await_slot",
    "ensure_publication",
    "ensure_slot",
    "entries",
    "find_candidates",
    "find_slot",
    "has_publication",
    "is_made_here",
]

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
_PUBLISHED: Final = """
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
    """Return the tables of the database that the patterns ask for."""
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
    there = {SourceName(*row) for row in ask(connection, _ENTERED if is_own else _PUBLISHED, settings.publication)}
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
