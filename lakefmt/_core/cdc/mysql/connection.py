"""Connections to a server, and what its errors mean."""

from __future__ import annotations

import contextlib
import importlib
import ssl
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from lakefmt._core.arguments import library
from lakefmt.errors import SourceRefused, SourceUnavailable

__all__ = ["Account", "Session", "translated"]

_SECONDS_TO_CONNECT: Final = 15
#: A statement that says nothing for so long has lost its server.
_SECONDS_TO_ANSWER: Final = 600
#: Too many connections, server shuts down, connection killed, and all codes of the client from 2000 on.
_NO_TLS: Final = 2026
_PASSING: Final = frozenset((1040, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1213, 1226, 1317, 1927))
#: The session of a reader: times in UTC, no limit of a statement's time, text as it is stored.
_SESSION: Final = (
    "set time_zone = '+00:00', sql_mode = '', max_statement_time = 0, net_write_timeout = 600",
    "set session transaction isolation level repeatable read",
)


class Account(NamedTuple):
    """Where a server is, and who asks it."""

    host: str
    port: int
    user: str
    password: str
    tls: bool | str

    def __repr__(self) -> str:
        return f"Account({self.host!r}, {self.port}, {self.user!r})"


@contextlib.contextmanager
def translated(account: Account) -> Iterator[None]:
    """Turn errors of the client into those of a source.

    Raises:
        SourceUnavailable: the connection is lost, or there is none.
        SourceRefused: the server refuses what it was asked.
    """
    errors = library(lambda: importlib.import_module("pymysql.err"), "pymysql", "mysql")
    try:
        yield
    except (errors.OperationalError, errors.InterfaceError, OSError) as error:
        code, message = _parts(error)
        where = f"MariaDB at {account.host}:{account.port}"
        if code == _NO_TLS or isinstance(getattr(error, "original_exception", None), ssl.SSLCertVerificationError):
            raise SourceRefused(f"{where} is not trusted: {message} ({code})") from None
        if isinstance(error, errors.OperationalError) and code not in _PASSING and not 2000 <= code < 3000:
            raise SourceRefused(f"{where} refuses: {message} ({code})") from None
        raise SourceUnavailable(f"{where} cannot be reached: {message} ({code})") from None
    except errors.MySQLError as error:
        code, message = _parts(error)
        raise SourceRefused(f"MariaDB at {account.host}:{account.port} refuses: {message} ({code})") from error


def _parts(error: BaseException) -> tuple[int, str]:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    return code, str(error.args[-1]) if error.args else type(error).__name__


class Session:
    """A connection for statements; values come as text, or as bytes where their type is one of bytes."""

    def __init__(self, account: Account) -> None:
        self.account = account
        pymysql = library(lambda: importlib.import_module("pymysql"), "pymysql", "mysql")
        # Text of the server stays text: what it means is decided by column, in Arrow.
        plain = {key: value for key, value in pymysql.converters.conversions.items() if not isinstance(key, int)}
        with translated(account):
            self._connection = pymysql.connect(
                host=account.host,
                port=account.port,
                user=account.user,
                password=account.password,
                charset="utf8mb4",
                autocommit=True,
                conv=plain,
                connect_timeout=_SECONDS_TO_CONNECT,
                read_timeout=_SECONDS_TO_ANSWER,
                ssl=_context(account.tls),
                ssl_disabled=account.tls is False,
                program_name="lakefmt",
            )
        if account.tls is not False and not getattr(self._connection, "_secure", False):
            self.close()  # older clients go on without a word
            raise SourceRefused(f"the server at {account.host}:{account.port} has no TLS")
        version = str(self._connection.get_server_info())
        if "mariadb" not in version.lower():
            self.close()
            raise SourceRefused(
                f"the server at {account.host}:{account.port} is not MariaDB ({version}): the log of MySQL cannot be read"
            )
        for statement in _SESSION:
            self.rows(statement)

    @property
    def raw(self) -> Any:
        """The client's connection."""
        return self._connection

    def rows(self, statement: str, arguments: Sequence[object] = ()) -> Sequence[tuple[Any, ...]]:
        """Execute a statement and return all its rows.

        Raises:
            SourceUnavailable: the connection is lost.
            SourceRefused: the server refuses the statement.
        """
        with translated(self.account), self._connection.cursor() as cursor:
            cursor.execute(statement, tuple(arguments) or None)
            return tuple(cursor.fetchall())

    def value(self, expression: str) -> str:
        """Return the value of an expression; "" for null."""
        ((value,),) = self.rows(f"select {expression}")
        return "" if value is None else str(value)

    def close(self) -> None:
        """Close the connection, also amid the rows of a statement; a second call does nothing."""
        result = getattr(self._connection, "_result", None)
        if result is not None and getattr(result, "unbuffered_active", False):
            result.unbuffered_active = False  # or it reads all that is left when it goes
            self._connection._force_close()
        with contextlib.suppress(Exception):
            self._connection.close()


def _context(tls: bool | str) -> ssl.SSLContext | None:
    # True: the certificates that this machine trusts; a text: the file of the authority's certificate.
    if tls is False:
        return None
    return ssl.create_default_context(cafile=tls if isinstance(tls, str) else None)
