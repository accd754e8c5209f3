"""Where the tables of a connection are."""

from __future__ import annotations

import re
from typing import Final, Protocol, runtime_checkable

from lakefmt.arguments import shown
from lakefmt.realtime.errors import ProgrammingError

__all__ = ["FolderCatalog", "TableCatalog"]

#: A name becomes a part of a path, so it must not leave the folder.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_$-]{0,254}", re.ASCII)


@runtime_checkable
class TableCatalog(Protocol):
    """Says where a table is. A program may hand its own to ``connect(catalog=…)``."""

    def location(self, schema: str, table: str) -> str:
        """Return the path or URL of a table, whether it exists or not."""


class FolderCatalog:
    """Tables in folders: ``<base path>/<schema>/<table>``.

    Args:
        base_path: a local path or any fsspec URL.

    Example:
        >>> FolderCatalog("s3://lake/tables/").location("sales", "orders")
        's3://lake/tables/sales/orders'
    """

    def __init__(self, base_path: str) -> None:
        self._base = base_path.rstrip("/") or "/"

    def location(self, schema: str, table: str) -> str:
        """Return the path or URL of a table.

        Raises:
            ProgrammingError: a name has characters other than letters, digits, ``_``, ``-`` and ``$``.
        """
        for what, name in (("schema", schema), ("table", table)):
            if not _NAME.fullmatch(name):
                raise ProgrammingError(f"{shown(name)} is no name of a {what}: letters, digits, _, - and $ are allowed")
        return f"{self._base}/{schema}/{table}"
