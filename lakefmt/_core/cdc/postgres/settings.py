"""What a source of PostgreSQL was told."""

from __future__ import annotations

import fnmatch
from typing import Final

from lakefmt._core.cdc.events import SourceName
from lakefmt._core.cdc.postgres.server import Server
from lakefmt._core.cdc.postgres.types import OddValues
from lakefmt._core.data_classes import dataclass

__all__ = ["PostgresSettings"]

#: Schemas of the server itself.
_OWN_SCHEMAS: Final = ("pg_catalog", "information_schema", "pg_toast")


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """The options of a source.

    Attributes:
        server: the database.
        patterns: of the tables that are followed.
        publication: what the server sends.
        slot: what keeps its log.
        text_columns: patterns of columns that are read as text.
        odd_values: what happens to values that the type of their column cannot hold.
        chunk_bytes: about so many bytes of a table, and of changes, come at once.
        look_seconds: how often tables are looked for that joined or left.
    """

    server: Server
    patterns: tuple[str, ...]
    publication: str = "lakefmt"
    slot: str = "lakefmt"
    text_columns: tuple[str, ...] = ()
    odd_values: OddValues = "refuse"
    chunk_bytes: int = 8 << 20
    look_seconds: float = 5.0

    def matches(self, name: SourceName) -> bool:
        """Say whether a table is followed; a pattern without a dot is one of the schema ``public``."""
        return name.schema not in _OWN_SCHEMAS and any(
            fnmatch.fnmatchcase(str(name), each if "." in each or each == "*" else f"public.{each}")
            for each in self.patterns
        )

    def as_text(self, name: SourceName, column: str) -> bool:
        """Say whether a column is read as text."""
        return any(
            fnmatch.fnmatchcase(f"{name}.{column}", each if each.count(".") > 1 else f"public.{each}")
            for each in self.text_columns
        )
