"""Open a source by its URL (effects)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.events import SourceReader
from lakefmt.errors import InvalidInputError

__all__ = ["PASSWORD_VARIABLE", "source_opener"]

#: The environment variable that has the password of a source.
PASSWORD_VARIABLE: Final = "LAKEFMT_CDC_PASSWORD"  # noqa: S105  (a name)
_SCHEMES: Final = ("mysql", "mariadb", "postgres", "postgresql")


def source_opener(url: str, tables: Sequence[str], password: str | None) -> Callable[[], SourceReader]:
    """Return a function that opens a source.

    Args:
        url: with the user, the host, the port and the database; never with a password.
        tables: names or patterns of names; empty: all tables of the database.
        password: None: that of the environment.

    Raises:
        InvalidInputError: there is no such source, or the URL has a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise InvalidInputError(f"{shown(parts.scheme)} is no source: give mysql://, mariadb:// or postgresql://")
    if parts.password is not None:
        raise InvalidInputError(
            f"a URL with a password ends up in logs: give it as password=, or in the environment variable {PASSWORD_VARIABLE}"
        )
    secret = password if password is not None else os.environ.get(PASSWORD_VARIABLE, "")
    patterns = list(tables) or ["*"]
    if parts.scheme in ("mysql", "mariadb"):
        from lakefmt._core.cdc.mysql.source import MySQLSource

        return lambda: MySQLSource.from_url(url, password=secret, tables=patterns)
    from lakefmt._core.cdc.postgres.source import PostgresSource

    return lambda: PostgresSource.from_url(url, password=secret, tables=patterns)
