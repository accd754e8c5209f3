"""Open a source by its URL (effects)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.events import SourceReader, whole_pattern
from lakefmt._core.cdc.options import table_settings
from lakefmt._core.storage.open import location_text
from lakefmt.errors import InvalidInputError

__all__ = ["PASSWORD_VARIABLE", "follower_text", "slot_name_of", "source_opener", "whole_names"]

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

    # Two followers of one slot would take changes from each other; a slot has one database, and its name is the server's.
    default_slot = slot_name_of(f"{follower} {unquote(parts.path.strip('/'))}")
    slot = {} if "slot" in dict(parse_qsl(parts.query)) else {"slot": default_slot}
    return lambda: PostgresSource.from_url(url, password=secret, tables=patterns, **slot)


def whole_names(source: object, tables: Mapping[str, object]) -> dict[str, object]:
    """Return what is said of tables under whole names: those without a dot are of the URL's database, or of the schema ``public``.

    Args:
        source: the URL; anything else knows whole names alone.
        tables: names or patterns of names → what is said of them.

    Example:
        >>> whole_names("mysql://me@db/shop", {"orders": "/lake/o", "!audit": None, "other.*": None})
        {'shop.orders': '/lake/o', '!shop.audit': None, 'other.*': None}
    """
    parts = urlsplit(source) if isinstance(source, str) else None
    if parts is None or parts.scheme not in _SCHEMES:
        return dict(tables)
    is_mysql = parts.scheme in ("mysql", "mariadb")
    schema = unquote(parts.path.strip("/")) if is_mysql else "public"
    # Of PostgreSQL, "*" is all schemas of the database.
    return {
        name if name.removeprefix("!") == "*" and not is_mysql else whole_pattern(name, schema): settings
        for name, settings in tables.items()
    }


def slot_name_of(follower: str) -> str:
    """Return the name of a follower's slot where the URL names none.

    Example:
        >>> slot_name_of("cdc /lake"), slot_name_of("cdc /other")
        ('lakefmt_b8bdd5c5', 'lakefmt_a9e9a1e3')
    """
    return f"lakefmt_{hashlib.sha256(follower.encode()).hexdigest()[:8]}"


def follower_text(name: str, base_path: str | None, tables: Mapping[str, object]) -> str:
    """Return the identity of a follower: its name, and the path of its tables, or of the first one."""
    paths = [base_path, *(table_settings(settings, table).path for table, settings in tables.items())]
    first = next((location_text(path) for path in paths if path is not None), "")
    root = first if "://" in first or not first else os.path.abspath(first)  # noqa: PTH100  (a text, also of a bytes path)
    return f"{name} {root.rstrip('/')}"
