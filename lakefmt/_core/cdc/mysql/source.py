"""MariaDB as a source of changes."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.events import Event, Position, SourceFinding, SourceName, SourceTable
from lakefmt._core.cdc.mysql.columns import source_table
from lakefmt._core.cdc.mysql.connection import Account, Session
from lakefmt._core.cdc.mysql.following import FollowerSettings, LogFollower, followed_tables, server_name
from lakefmt._core.cdc.mysql.positions import TablePosition, parse_gtids
from lakefmt._core.cdc.mysql.preflight import findings
from lakefmt._core.cdc.mysql.snapshot import describe_table
from lakefmt.errors import InvalidInputError, SourceUnavailable

__all__ = ["MySQLSource"]

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
            url: of the server; a database in it stands before patterns without one.
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
        database = unquote(parts.path.strip("/"))
        full = [pattern if "." in pattern or not database else f"{database}.{pattern}" for pattern in tables]
        user = unquote(parts.username or "")
        return cls(parts.hostname, parts.port or _PORT, user=user, password=password, tables=full, **options)

    def __repr__(self) -> str:
        return f"MySQLSource({self.identity!r}, tables={list(self._settings.patterns)!r})"

    @property
    def identity(self) -> str:
        """What tells this server from others."""
        return f"mariadb://{self._account.host}:{self._account.port}"

    def preflight(self) -> Sequence[SourceFinding]:
        """Return what the server and the tables lack."""
        with contextlib.closing(Session(self._account)) as session:
            return findings(session, followed_tables(session, self._settings.patterns), self._settings.patterns)

    def tables(self) -> Sequence[SourceTable]:
        """Return the tables that are followed, as they are now."""
        with contextlib.closing(Session(self._account)) as session:
            found = [
                (name, describe_table(session, name)) for name in followed_tables(session, self._settings.patterns)
            ]
        return [source_table(name, *table.shape) for name, table in found if table is not None]

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
        """Return the position of now, for a table whose rows are not read."""
        import time

        with contextlib.closing(Session(self._account)) as session:
            gtids = parse_gtids(session.value("@@gtid_binlog_pos"))
            position = TablePosition(gtids, gtids, server_name(session), int(time.time()), True, None, (), ())
        return position.to_json()

    def confirm(self, positions: Mapping[SourceName, Position]) -> None:
        """Do nothing: the server keeps its log for as long as it is told."""

    def lag(self) -> Mapping[str, float]:
        """Return the tables whose rows are still being read, and open prepared transactions."""
        return {} if self._follower is None else self._follower.lag()

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
        self._is_closed = True
        if self._follower is not None:
            self._follower.close()
