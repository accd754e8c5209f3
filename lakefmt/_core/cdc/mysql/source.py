"""MariaDB as a source of changes, and what a server lacks to be one."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.events import Event, Position, SourceFinding, SourceName, SourceTable, left_out, whole_pattern
from lakefmt._core.cdc.mysql.following import FollowerSettings, LogFollower, followed_tables, server_name
from lakefmt._core.cdc.mysql.log import Account, Session, TablePosition, parse_gtids
from lakefmt._core.cdc.mysql.rows import codec_of
from lakefmt._core.cdc.mysql.snapshot import describe_table
from lakefmt._core.cdc.mysql.statements import source_table
from lakefmt.errors import InvalidInputError, SourceRefused, SourceUnavailable

__all__ = [
    "MySQLSource",
    "findings",
]

_OLDEST: Final = (10, 5)


def findings(session: Session, tables: Sequence[SourceName], patterns: Sequence[str]) -> list[SourceFinding]:
    """Return what the server and the tables lack."""
    version = session.value("version()")
    return [
        *_of_version(version),
        *_of_settings(session),
        *_of_rights(session),
        *_of_tables(session, tables, patterns),
    ]


def _of_version(version: str) -> Iterator[SourceFinding]:
    release = tuple(int(part) for part in version.split("-")[0].split(".")[:2])
    if release < _OLDEST:
        yield SourceFinding(f"MariaDB {version} does not name columns in its log: 10.5 or newer is needed")


def _of_settings(session: Session) -> Iterator[SourceFinding]:
    names = "log_bin binlog_format binlog_row_image binlog_row_metadata gtid_strict_mode expire_logs_days binlog_expire_logs_seconds"
    quoted = ", ".join(f"'{name}'" for name in names.split())
    variables = dict(session.rows(f"show global variables where variable_name in ({quoted})"))
    if variables.get("log_bin") != "ON":
        yield SourceFinding(
            "the server writes no log", "[mariadb] log_bin in the server's configuration, and a restart"
        )
        return
    for name, value, purpose in (
        ("binlog_format", "ROW", "the log has statements where it needs rows"),
        ("binlog_row_image", "FULL", "the log has not all columns of a changed row"),
        ("binlog_row_metadata", "FULL", "the log does not name the columns of tables"),
    ):
        if variables.get(name) != value:
            yield SourceFinding(f"{purpose}: {name} is {variables.get(name)}", f"SET GLOBAL {name} = {value}")
    if variables.get("gtid_strict_mode") != "ON":
        message = "transactions may be out of order after a fail-over: gtid_strict_mode is OFF"
        yield SourceFinding(message, "SET GLOBAL gtid_strict_mode = ON", stops=False)
    seconds = float(variables.get("binlog_expire_logs_seconds") or 0)
    if 0 < seconds < 86_400:
        message = f"the server keeps its log for {seconds:.0f} s: a reader that pauses for longer loses its position"
        yield SourceFinding(message, "SET GLOBAL binlog_expire_logs_seconds = 604800", stops=False)


def _of_rights(session: Session) -> Iterator[SourceFinding]:
    for statement, right in (
        ("show binary logs", "BINLOG MONITOR"),
        ("show status like 'binlog_snapshot_file'", ""),
    ):
        try:
            session.rows(statement)
        except SourceRefused:
            if right:
                yield SourceFinding(f"the account lacks {right}", _grant(session, right))
    grants = " ".join(str(row[0]).upper() for row in session.rows("show grants"))
    if "REPLICATION SLAVE" not in grants and "ALL PRIVILEGES ON *.*" not in grants:
        yield SourceFinding("the account lacks REPLICATION SLAVE", _grant(session, "REPLICATION SLAVE"))


def _grant(session: Session, right: str) -> str:
    user, _, host = session.value("current_user()").rpartition("@")
    return f"GRANT {right} ON *.* TO '{user}'@'{host}'"


def _of_tables(session: Session, tables: Sequence[SourceName], patterns: Sequence[str]) -> Iterator[SourceFinding]:
    if not tables:
        yield SourceFinding(f"no table is called {' or '.join(patterns)}, or the account may not read it", stops=False)
    described = {
        SourceName(row[0], row[1]): (row[2], row[3])
        for row in session.rows(
            "select table_schema, table_name, table_type, ifnull(engine, '') from information_schema.tables"
        )
    }
    for name in tables:
        table_type, engine = described.get(name, ("", ""))
        if table_type == "SYSTEM VERSIONED":
            mend = f"ALTER TABLE {name} DROP SYSTEM VERSIONING"
            yield SourceFinding(f"{name} is system-versioned: the log shows its old rows as rows", mend, table=name)
        if engine.lower() != "innodb":
            message = f"{name} is a table of {engine}: its rows are not read at one moment"
            yield SourceFinding(message, f"ALTER TABLE {name} ENGINE = InnoDB", stops=False)
        yield from _of_columns(session, name)
    yield from _of_cascades(session, tables)


def _of_columns(session: Session, name: SourceName) -> Iterator[SourceFinding]:
    try:
        table = describe_table(session, name)
    except SourceRefused as error:
        yield SourceFinding(f"{name}: {error}", table=name)
        return
    if table is not None and not table.keys:
        yield SourceFinding(f"{name} has no primary key: its rows are read in one transaction", stops=False)
    rows = session.rows(
        "select column_name, character_set_name from information_schema.columns where table_schema = %s and table_name = %s "
        "and character_set_name is not null",
        name,
    )
    for column, charset in rows:
        if codec_of(charset) is None:
            message = f"{name}.{column} has the character set {charset}, which cannot be decoded"
            yield SourceFinding(message, table=name)


def _of_cascades(session: Session, tables: Sequence[SourceName]) -> Iterator[SourceFinding]:
    rows = session.rows(
        "select constraint_schema, table_name, constraint_name from information_schema.referential_constraints "
        "where delete_rule in ('CASCADE', 'SET NULL', 'SET DEFAULT') or update_rule in ('CASCADE', 'SET NULL', 'SET DEFAULT')"
    )
    followed = set(tables)
    for schema, table, constraint in rows:
        if SourceName(schema, table) in followed:
            message = f"{schema}.{table}: the log does not have the changes that the foreign key {constraint} makes"
            yield SourceFinding(message, stops=False)


_PORT: Final = 3306
CHUNK_ROWS: Final = 50_000
_SCHEMES: Final = ("mysql", "mariadb")


class MySQLSource:
    """Reads the tables of a MariaDB server and its log. See :class:`~lakefmt._core.cdc.events.SourceReader`."""

    def __init__(
        self,
        host: str,
        port: int = _PORT,
        *,
        user: str,
        password: str = "",
        tables: Sequence[str],
        server_id: int | None = None,
        tls: bool | str = False,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        """Describe the source; nothing is connected yet.

        Args:
            host: of the server.
            port: of the server.
            user: the account; it needs SELECT, REPLICATION SLAVE and BINLOG MONITOR.
            password: of the account.
            tables: names as `database.table`, with `*`, `?` and `[…]`.
            server_id: of this reader; no server and no other reader may have it. None: a random one.
            tls: encrypt, and trust the authorities of this machine, or the one in this file.
            chunk_rows: most rows that are read from a table in one transaction.

        Raises:
            InvalidInputError: a value is none of its type.
        """
        if not tables or any("." not in pattern for pattern in tables):
            raise InvalidInputError(f"tables are named database.table, such as shop.*: {shown(list(tables))}")
        if chunk_rows < 1:
            raise InvalidInputError("chunk_rows must be at least 1")
        self._account = Account(host, int(port), user, password, tls)
        # Large ones: servers have small ones.
        self._server_id = server_id if server_id is not None else (1 << 31) + secrets.randbelow(1 << 30)
        self._settings = FollowerSettings(self._account, tuple(tables), self._server_id, chunk_rows)
        self._follower: LogFollower | None = None
        self._is_closed = False

    @classmethod
    def from_url(cls, url: str, *, password: str = "", tables: Sequence[str], **options: Any) -> MySQLSource:
        """Return the source of an address such as ``mysql://reader@db.example:3306/shop``.

        Args:
            url: of the server; a database in it stands before patterns without one, and tables are left out of its tables. Behind a
                question mark `tls` (``true`` or the file of an authority's certificate), `server_id` and `chunk_rows` as of the class.
            password: of the account; one in the address is refused, because addresses are shown.
            tables: see :class:`MySQLSource`.
            options: more of its options.

        Raises:
            InvalidInputError: the address is none.
        """
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise InvalidInputError("the address of a source is such as mysql://user@host:3306/database")
        if parts.password is not None:
            raise InvalidInputError("the address of a source has a password: give it apart from the address")
        options = {**_url_options(parts.query), **options}
        database = unquote(parts.path.strip("/"))
        full = [whole_pattern(pattern, database) for pattern in tables]
        if database and all(pattern.startswith("!") for pattern in full):
            full.insert(0, f"{database}.*")
        user = unquote(parts.username or "")
        return cls(parts.hostname, parts.port or _PORT, user=user, password=password, tables=full, **options)

    def __repr__(self) -> str:
        return f"MySQLSource({self.identity!r}, tables={list(self._settings.patterns)!r})"

    @property
    def identity(self) -> str:
        """The identity of this server."""
        return f"mariadb://{self._account.host}:{self._account.port}"

    def preflight(self) -> Sequence[SourceFinding]:
        """Return what the server and the tables lack."""
        with contextlib.closing(Session(self._account)) as session:
            return findings(session, followed_tables(session, self._settings.patterns), self._settings.patterns)

    def leave_out(self, names: Sequence[SourceName]) -> None:
        """Exclude tables from those that are followed."""
        patterns = (*self._settings.patterns, *left_out(names))
        self._settings = self._settings._replace(patterns=patterns)

    def tables(self) -> Sequence[SourceTable]:
        """Return the tables that are followed, as they are now."""
        with contextlib.closing(Session(self._account)) as session:
            server_tables = [
                (name, describe_table(session, name)) for name in followed_tables(session, self._settings.patterns)
            ]
        return [source_table(name, *table.shape) for name, table in server_tables if table is not None]

    def events(self, positions: Mapping[SourceName, Position], *, logs: bool, until_now: bool) -> Iterator[Event]:
        """Return the events from some positions on."""
        follower = self._follower = LogFollower(self._settings._replace(logs=logs, until_now=until_now), positions)
        try:
            if not self._is_closed:
                yield from follower.events()
        except SourceUnavailable:
            if not self._is_closed:
                raise
        finally:
            follower.close()

    def latest(self) -> Position:
        """Return the current position of the log; a table whose rows are not read begins there."""
        import time

        with contextlib.closing(Session(self._account)) as session:
            gtids = parse_gtids(session.value("@@gtid_binlog_pos"))
            position = TablePosition(gtids, gtids, server_name(session), int(time.time()), True, None, (), ())
        return position.to_json()

    def confirm(self, positions: Mapping[SourceName, Position]) -> None:
        """Do nothing: the server's own settings decide how long it keeps its log."""

    def lag(self) -> Mapping[str, float]:
        """Return the tables whose rows are still being read, and open prepared transactions."""
        return {} if self._follower is None else self._follower.lag()

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
        self._is_closed = True
        if self._follower is not None:
            self._follower.close()


def _url_options(query: str) -> dict[str, object]:
    """Return what an address says of the source; what it does not know, such as another name for TLS, is refused."""
    query_fields = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(query_fields.keys() - {"tls", "server_id", "chunk_rows"}):
        raise InvalidInputError(f"the address of a source has {shown(unknown[0])}: give tls, server_id or chunk_rows")
    options: dict[str, object] = {}
    for name, value in query_fields.items():
        if name == "tls":
            options[name] = {"true": True, "false": False}.get(value, value)
        elif value.isdecimal():
            options[name] = int(value)
        else:
            raise InvalidInputError(f"the address of a source has {name}={shown(value)}: give a whole number")
    if options.get("tls") == "":
        raise InvalidInputError("the address of a source has tls without a value: give true, false or a file")
    return options
