"""Open a source by its URL (effects)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.events import SourceReader
from lakefmt._core.storage.open import location_text
from lakefmt.errors import InvalidInputError

__all__ = ["PASSWORD_VARIABLE", "follower_text", "slot_name_of", "source_opener"]

#: The environment variable that has the password of a source.
PASSWORD_VARIABLE: Final = "LAKEFMT_CDC_PASSWORD"  # noqa: S105  (a name)
_SCHEMES: Final = ("mysql", "mariadb", "postgres", "postgresql")


def source_opener(
    url: str, tables: Sequence[str], password: str | None, follower: str = ""
) -> Callable[[], SourceReader]:
    """Return a function that opens a source.

    Args:
        url: with the user, the host, the port and the database; never with a password.
        tables: names or patterns of names; empty: all tables of the database.
        password: None: that of the environment.
        follower: what tells it from others that follow the same database: a server that keeps its log for one reader keeps it for this one.

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

    # Two followers of one slot would take changes from each other.
    slot = {} if "slot" in dict(parse_qsl(parts.query)) else {"slot": slot_name_of(follower)}
    return lambda: PostgresSource.from_url(url, password=secret, tables=patterns, **slot)


def slot_name_of(follower: str) -> str:
    """Return the name of a follower's slot where the URL names none.

    Example:
        >>> slot_name_of("cdc /lake"), slot_name_of("cdc /other")
        ('lakefmt_b8bdd5c5', 'lakefmt_a9e9a1e3')
    """
    return f"lakefmt_{hashlib.sha256(follower.encode()).hexdigest()[:8]}"


def follower_text(name: str, base_path: str | None, paths: Mapping[str, object]) -> str:
    """Return what tells a follower from others: its name, and where its tables lie."""
    base = "" if base_path is None else location_text(base_path)
    own = "" if "://" in base or not base else os.path.abspath(base)  # noqa: PTH100  (a text, also of a bytes path)
    return " ".join([name, own or base, *(() if base else sorted(map(str, paths.values())))])
