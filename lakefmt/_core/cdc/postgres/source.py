"""PostgreSQL as a source of changes, and what a server lacks to be one."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.events import Event, Position, SourceFinding, SourceName, SourceTable, left_out
from lakefmt._core.cdc.postgres.follow import PostgresRun, latest_position
from lakefmt._core.cdc.postgres.rows import OddValues
from lakefmt._core.cdc.postgres.server import (
    PARTITIONED,
    PARTITIONED_FROM,
    PostgresConnection,
    PostgresSettings,
    ReplicationStream,
    Server,
    ServerCatalog,
    TableRow,
    ask,
    await_slot,
    find_candidates,
    find_slot,
    has_publication,
    identifier,
    is_made_here,
    psycopg2,
    publication_statement,
)
from lakefmt._core.data_classes import replace
from lakefmt.errors import InvalidInputError, SourceUnavailable

__all__ = [
    "PostgresSource",
    "find_lacks",
]

#: Generated columns and publications as they are asked for here are known from this release on.
_OLDEST: Final = 120_000
_SERVER: Final = """
SELECT current_setting('server_version_num')::int, current_setting('wal_level'), pg_is_in_recovery(),
  current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_catalog.pg_replication_slots),
  current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_catalog.pg_stat_replication),
  current_setting('server_encoding'), coalesce(current_setting('max_slot_wal_keep_size', true), ''),
  (SELECT rolsuper OR rolreplication FROM pg_catalog.pg_roles WHERE rolname = current_user), current_user::text"""
_PUBLICATION: Final = """
SELECT pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot FROM pg_catalog.pg_publication WHERE pubname = %s"""
#: Rows and columns that a publication leaves out, from release 15 on.
_LEFT_OUT: Final = """
SELECT r.prrelid FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
WHERE p.pubname = %s AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL)"""


def find_lacks(connection: PostgresConnection, settings: PostgresSettings) -> Iterator[SourceFinding]:
    """Yield what the server, the publication, the slot and the tables lack."""
    yield from _of_server(connection, settings)
    catalog = ServerCatalog(connection, settings.as_text)
    candidates = find_candidates(connection, settings)
    if has_publication(connection, settings.publication):
        candidate_rows = catalog.tables_named(candidates)
        yield from _of_publication(connection, settings, list(candidate_rows.values()))
        published_rows = catalog.published(settings.publication)
        is_own = is_made_here(connection, settings.publication)
        if is_own:  # they join when it is followed
            published_rows |= candidate_rows
        rows = [row for row in published_rows.values() if settings.matches(row.name)]
        absent = sorted(
            set(candidates)
            - {row.name for row in rows}
            - {row.name for row in candidate_rows.values() if row.kind == PARTITIONED}
        )
        if absent:
            names = ", ".join(identifier(*name) for name in absent)
            yield SourceFinding(
                f"the publication {shown(settings.publication)} lacks tables that are asked for: they are not followed",
                f"ALTER PUBLICATION {identifier(settings.publication)} ADD TABLE {names}",
                stops=False,
            )
    else:
        rows = list(catalog.tables_named(candidates).values())
        if rows:
            yield from _of_new_publication(connection, settings, candidates)
    if not rows:
        yield SourceFinding(f"no table of {shown(settings.server.database)} is one of {shown(list(settings.patterns))}")
    for row in sorted(rows, key=lambda row: row.name):
        yield from _of_table(connection, row)


def _of_server(connection: PostgresConnection, settings: PostgresSettings) -> Iterator[SourceFinding]:
    version, level, is_standby, slots, senders, encoding, keep_size, may_replicate, role = ask(connection, _SERVER)[0]
    if version < _OLDEST:
        yield SourceFinding(f"PostgreSQL {version // 10_000} is too old: 12 is the first that can be followed")
    if level != "logical":
        yield SourceFinding(
            f"wal_level is {level}: the log has no rows",
            "ALTER SYSTEM SET wal_level = 'logical'  -- and restart the server",
        )
    if is_standby:
        yield SourceFinding("the server is a standby: follow the primary")
    if not may_replicate:
        yield SourceFinding(f"the role {role} may not replicate", f"ALTER ROLE {identifier(role)} REPLICATION")
    if encoding == "SQL_ASCII":
        yield SourceFinding("the database has the encoding SQL_ASCII: its texts have no meaning for others")
    slot = find_slot(connection, settings.slot)
    if slots < (1 if slot is not None else 2):
        yield SourceFinding(
            "max_replication_slots leaves none free: a source needs its own, and another one while rows of tables are read",
            "ALTER SYSTEM SET max_replication_slots = 10  -- and restart the server",
        )
    if senders < 2:
        yield SourceFinding(
            "max_wal_senders leaves none free: a source needs one, and another one while rows of tables are read",
            "ALTER SYSTEM SET max_wal_senders = 10  -- and restart the server",
        )
    if keep_size in ("", "-1"):
        yield SourceFinding(
            "max_slot_wal_keep_size has no limit: the log of a source that has stopped fills the server's disk",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'",
            stops=False,
        )
    if slot is not None and (slot.plugin, slot.database) != ("pgoutput", settings.server.database):
        yield SourceFinding(f"the slot {shown(settings.slot)} is another's: one of {slot.plugin} in {slot.database}")
    elif slot is not None and slot.is_lost:
        yield SourceFinding(
            f"the slot {shown(settings.slot)} lost its log; a run without positions makes it anew", stops=False
        )


def _of_publication(
    connection: PostgresConnection, settings: PostgresSettings, rows: Sequence[TableRow]
) -> Iterator[SourceFinding]:
    name = identifier(settings.publication)
    inserts, updates, deletes, truncates, is_via_root = ask(connection, _PUBLICATION, settings.publication)[0]
    if not (inserts and updates and deletes):
        yield SourceFinding(
            f"the publication {shown(settings.publication)} leaves out insertions, updates or deletions",
            f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')",
        )
    elif not truncates:
        yield SourceFinding(
            f"the publication {shown(settings.publication)} leaves out truncations: rows that they remove stay",
            f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')",
            stops=False,
        )
    parents = [row.name for row in rows if row.kind == PARTITIONED]
    if parents and not is_via_root:
        yield SourceFinding(
            f"the publication {shown(settings.publication)} sends the partitions of {', '.join(map(str, parents))} as tables of their own",
            f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true)",
            stops=False,
        )
    if connection.server_version >= 150_000:
        for (number,) in ask(connection, _LEFT_OUT, settings.publication):
            for row in ServerCatalog(connection, settings.as_text).tables([number]).values():
                yield SourceFinding(
                    f"the publication {shown(settings.publication)} leaves out rows or columns of {row.name}",
                    f"ALTER PUBLICATION {name} SET TABLE {identifier(*row.name)}",
                    table=row.name,
                )


def _of_new_publication(
    connection: PostgresConnection, settings: PostgresSettings, names: list[SourceName]
) -> Iterator[SourceFinding]:
    may_create = ask(connection, "SELECT has_database_privilege(current_database(), 'CREATE')")[0][0]
    owned = ask(
        connection,
        "SELECT bool_and(pg_has_role(c.relowner, 'USAGE')) FROM pg_catalog.pg_class c WHERE c.oid = ANY(%s::oid[])",
        [row.id for row in ServerCatalog(connection, settings.as_text).tables_named(names).values()],
    )[0][0]
    if not (may_create and owned):
        yield SourceFinding(
            f"there is no publication {shown(settings.publication)}, and the role may not make it",
            publication_statement(connection, settings.publication, names),
        )


def _of_table(connection: PostgresConnection, row: TableRow) -> Iterator[SourceFinding]:
    name = identifier(*row.name)
    if not ask(connection, "SELECT has_table_privilege(%s::oid, 'SELECT')", row.id)[0][0]:
        role = ask(connection, "SELECT current_user::text")[0][0]
        mend = f"GRANT SELECT ON {name} TO {identifier(role)}"
        yield SourceFinding(f"the role {role} may not read {row.name}", mend, table=row.name)
    if not row.columns:
        yield SourceFinding(f"{row.name} has no column", table=row.name)
    if row.kind == PARTITIONED and connection.server_version < PARTITIONED_FROM:
        message = f"{row.name} is partitioned: PostgreSQL 13 is the first that publishes such tables"
        yield SourceFinding(message, table=row.name)
    if row.identity == "n" or (row.identity == "d" and not row.primary_key):
        yield SourceFinding(
            f"{row.name} has no replica identity: the server refuses its updates and deletions while it is published",
            f"ALTER TABLE {name} REPLICA IDENTITY FULL",
            table=row.name,
        )


_SCHEMES: Final = ("postgresql", "postgres")
_PORT: Final = 5432
#: What a URL may say of the source itself; all else is the client library's.
_URL_OPTIONS: Final = ("publication", "slot", "text_columns", "odd_values")


class PostgresSource:
    """Tables of a PostgreSQL database, and their changes.

    The server keeps its log for the slot until :meth:`confirm`. The publication is made of the tables that match where there is none of
    its name, and then has just these whenever it is followed; tables that are added to another one later join.
    """

    def __init__(
        self,
        host: str,
        port: int = _PORT,
        user: str = "postgres",
        password: str = "",
        database: str = "postgres",
        *,
        tables: Sequence[str] = ("public.*",),
        publication: str = "",
        slot: str = "lakefmt",
        text_columns: Sequence[str] = (),
        odd_values: OddValues = "refuse",
        chunk_bytes: int = 8 << 20,
        look_seconds: float = 5.0,
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a source; nothing is connected yet.

        Args:
            host: name or address of the server.
            port: of the server.
            user: a role that may replicate and read the tables.
            password: of the role.
            database: its name.
            tables: patterns such as ``public.*``; a pattern without a dot is one of the schema ``public``.
            publication: what the server sends; empty: one that is called as the slot is.
            slot: what keeps the server's log for this source alone.
            text_columns: patterns such as ``public.orders.paid_at`` of columns that are read as text.
            odd_values: what happens to values that the type of their column cannot hold, such as ``infinity`` in dates and ``NaN`` in
                ``numeric(10,2)``: ``"refuse"`` stops, ``"null"`` makes them null.
            chunk_bytes: about so many bytes of a table's rows come at once.
            look_seconds: how often tables are looked for that joined or left.
            parameters: more for the connection, such as ``{"sslmode": "verify-full"}``.
        """
        psycopg2()
        if odd_values not in ("refuse", "null"):
            raise InvalidInputError(f"odd_values is {shown(odd_values)}: give 'refuse' or 'null'")
        server = Server(host, port, user, database, dict(parameters or {}), password)
        self._settings = PostgresSettings(
            server, tuple(tables), publication or slot, slot, tuple(text_columns), odd_values, chunk_bytes, look_seconds
        )
        self._lock = threading.Lock()
        self._is_closed = False
        self._connections: list[PostgresConnection] = []
        self._woken, self._waker = socket.socketpair()
        self._follower: PostgresRun | None = None
        self._asking: PostgresConnection | None = None

    @classmethod
    def from_url(cls, url: str, password: str = "", **options: Any) -> PostgresSource:
        """Describe a source by a URL such as ``postgresql://reader@db.example:5432/shop?sslmode=require``.

        Args:
            url: user, server, database, and behind a question mark `publication`, `slot`, `text_columns` (with commas) and `odd_values`
                as of the class, and parameters of the connection. A password is refused, for URLs are seen and kept.
            password: of the role.
            options: as of the class.

        Raises:
            InvalidInputError: it is no such URL, or has a password.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or _PORT
        except ValueError as error:
            raise InvalidInputError(f"the URL of the source cannot be read: {error}") from error
        if parts.password is not None:
            raise InvalidInputError("the URL of the source has a password: give it apart")
        if parts.scheme not in _SCHEMES or not parts.hostname or not parts.path.strip("/"):
            raise InvalidInputError(f"{shown(url)} is no URL like postgresql://user@host:5432/database")
        query_fields = dict(parse_qsl(parts.query))
        if any("password" in name for name in query_fields):
            raise InvalidInputError("the URL of the source has a password: give it apart")
        url_options: dict[str, Any] = {name: query_fields.pop(name) for name in _URL_OPTIONS if name in query_fields}
        if "text_columns" in url_options:
            url_options["text_columns"] = url_options["text_columns"].split(",")
        options = {**url_options, **options, "parameters": {**query_fields, **(options.get("parameters") or {})}}
        user = unquote(parts.username or "postgres")
        return cls(parts.hostname, port, user, password, unquote(parts.path.strip("/")), **options)

    def __repr__(self) -> str:
        return f"PostgresSource({self.identity!r}, slot={self._settings.slot!r})"

    @property
    def identity(self) -> str:
        """Server and database, without a secret."""
        return self._settings.server.identity

    def preflight(self) -> Sequence[SourceFinding]:
        """Return what the server and the tables lack."""
        return tuple(find_lacks(self._ask_connection(), self._settings))

    def leave_out(self, names: Sequence[SourceName]) -> None:
        """Exclude tables from those that are followed."""
        patterns = (*self._settings.patterns, *left_out(names))
        self._settings = replace(self._settings, patterns=patterns)

    def tables(self) -> Sequence[SourceTable]:
        """Return the tables that are followed, as they are now."""
        connection = self._ask_connection()
        catalog = ServerCatalog(connection, self._settings.as_text)
        rows = catalog.published(self._settings.publication)
        if not rows or is_made_here(connection, self._settings.publication):
            rows |= catalog.tables_named(find_candidates(connection, self._settings))
        matching_rows = [row for row in rows.values() if self._settings.matches(row.name)]
        return [
            catalog.shape_of(row.name, row.columns, row.keys).table
            for row in sorted(matching_rows, key=lambda row: row.name)
        ]

    def events(self, positions: Mapping[SourceName, Position], *, logs: bool, until_now: bool) -> Iterator[Event]:
        """Return the events from some positions on, in order; a table without a position begins with its present rows."""
        log = ReplicationStream(self._settings.server, self._opened, self._woken)
        try:
            await_slot(self._ask_connection(), self._settings.slot, self._woken)
            follower = PostgresRun(
                self._settings,
                log,
                self._ask_connection(),
                logs=logs,
                opened=self._opened,
                is_closed=lambda: self._is_closed,
            )
            self._follower = follower
            yield from follower.events(positions, until_now=until_now)
        except SourceUnavailable:
            if not self._is_closed:  # or another thread closed the connections on purpose
                raise
        finally:
            self._follower = None
            log.close()

    def confirm(self, positions: Mapping[SourceName, Position]) -> None:
        """Let the server forget the log before all of some positions."""
        if self._follower is not None:
            self._follower.confirm(positions)

    def latest(self) -> Position:
        """Return the present position; a slot that was dropped or lost its log is made again."""
        log = ReplicationStream(self._settings.server, self._opened, self._woken)
        try:
            return latest_position(self._ask_connection(), log, self._settings)
        finally:
            log.close()

    def lag(self) -> Mapping[str, float]:
        """Return the bytes of log that are still to come, and the parts of tables that were read and are left."""
        return self._follower.lag() if self._follower is not None else {}

    def close(self) -> None:
        """Close the connections; :meth:`events` ends."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            connections, self._connections = self._connections, []
        self._waker.send(b"\0")
        for connection in connections:
            with contextlib.suppress(Exception):
                connection.cancel()  # the one call that another thread may make; who uses it closes it
        if self._follower is None:
            for connection in connections:
                with contextlib.suppress(Exception):
                    connection.close()

    def _opened(self, connection: PostgresConnection) -> None:
        with self._lock:
            if self._is_closed:
                connection.close()
                raise SourceUnavailable("the source was closed")
            self._connections = [each for each in self._connections if not each.closed]
            self._connections.append(connection)

    def _ask_connection(self) -> PostgresConnection:
        if self._asking is None or self._asking.closed:
            self._asking = self._settings.server.connect()
            self._opened(self._asking)
        return self._asking
