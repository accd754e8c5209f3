"""The log of a PostgreSQL server: the slot that keeps it, the publication that says what is sent, and the stream itself."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.events import SourceName
from lakefmt._core.cdc.postgres.server import (
    SLOT_BUSY,
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
    "ReplicationStream",
    "SlotRow",
    "ensure_publication",
    "ensure_slot",
    "find_candidates",
    "find_slot",
    "has_publication",
]

_log = logging.getLogger("lakefmt.cdc")

#: How long a slot may be in use by a reader that has just gone, and how often it is looked at.
_SECONDS_TO_LEAVE: Final = 3.0
_SECONDS_TO_LOOK: Final = 0.05


class ReplicationStream:
    """A connection that follows the log through a slot, from a place on."""

    def __init__(self, server: Server, opened: Callable[[Any], None], wakes: socket.socket) -> None:
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
                select.select([self._wakes], [], [], _SECONDS_TO_LOOK)
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
            select.select([self._cursor, self._wakes], [], [], max(seconds, 0.0))

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
_PUBLISHED: Final = """
SELECT (SELECT array_agg(ARRAY[t.schemaname::text, t.tablename::text]) FROM pg_catalog.pg_publication_tables t WHERE t.pubname = %s),
       (SELECT obj_description(p.oid, 'pg_publication') FROM pg_catalog.pg_publication p WHERE p.pubname = %s)"""
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


def find_slot(connection: Any, slot: str) -> SlotRow | None:
    """Return the slot of a name; None: there is none."""
    rows = ask(connection, _SLOT, slot)
    return SlotRow(*rows[0]) if rows else None


def has_publication(connection: Any, publication: str) -> bool:
    """Say whether a publication is there."""
    return bool(ask(connection, "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = %s", publication))


def find_candidates(connection: Any, settings: PostgresSettings) -> list[SourceName]:
    """Return the tables of the database that the patterns ask for."""
    return [name for row in ask(connection, _CANDIDATES) if settings.matches(name := SourceName(*row))]


def ensure_publication(connection: Any, settings: PostgresSettings, told: set[SourceName] | None = None) -> None:
    """Make the publication of the tables that are asked for, or add those that it lacks if a follower made it.

    Args:
        connection: to the database.
        settings: which tables, and the publication's name.
        told: the tables of which a warning said that they are not in it, which gets more of them.

    Raises:
        SourceRefused: there is no publication, and no table that is asked for.
    """
    names = find_candidates(connection, settings)
    if has_publication(connection, settings.publication):
        _add_tables(connection, settings, names, set() if told is None else told)
        return
    if not names:
        raise SourceRefused(
            f"PostgreSQL: no table of {shown(settings.server.database)} is one of {shown(settings.patterns)}"
        )
    ask(connection, publication_statement(settings.publication, names))
    ask(connection, f"COMMENT ON PUBLICATION {identifier(settings.publication)} IS %s", _MADE_HERE)


def _add_tables(
    connection: Any, settings: PostgresSettings, names: Sequence[SourceName], told: set[SourceName]
) -> None:
    """Add tables that joined to a publication that a follower made; of somebody else's, or without the right, say what is missing."""
    found, comment = ask(connection, _PUBLISHED, *[settings.publication] * 2)[0]
    there = {SourceName(*each) for each in found or ()}
    missing = [name for name in names if name not in there and name not in told]
    if not missing:
        return
    tables = ", ".join(identifier(*name) for name in missing)
    statement = f"ALTER PUBLICATION {identifier(settings.publication)} ADD TABLE {tables}"
    if comment == _MADE_HERE:
        try:
            ask(connection, statement)
        except SourceRefused as error:
            _log.warning("%s: these tables are not followed: %s", error, statement)
        else:
            return
    else:
        _log.warning("tables that are asked for are not in the publication, and are not followed: %s", statement)
    told.update(missing)


def publication_statement(publication: str, names: list[SourceName]) -> str:
    """Return the statement that makes a publication of tables."""
    return f"CREATE PUBLICATION {identifier(publication)} FOR TABLE {', '.join(identifier(*name) for name in names)}"


def ensure_slot(
    connection: Any, log: ReplicationStream, settings: PostgresSettings, *, has_positions: bool
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
