"""A catalog in memory, for tests and for a look at what a sync would write."""

from __future__ import annotations

from collections.abc import Sequence

from lakefmt._core.catalogs.api import CatalogPartition, CatalogTable
from lakefmt._core.data_classes import replace

__all__ = ["MemoryCatalog"]


class MemoryCatalog:
    """Databases, entries and partitions as dictionaries.

    Example:
        >>> catalog = MemoryCatalog()
        >>> catalog.create_database("trips")
        >>> catalog.has_database("trips"), catalog.list_tables()
        (True, [])
    """

    what = "a catalog in memory"

    def __init__(self) -> None:
        self._databases: dict[str, dict[str, CatalogTable]] = {}
        self._partitions: dict[tuple[str, str], dict[tuple[str, ...], CatalogPartition]] = {}

    def has_database(self, database: str) -> bool:
        """Return whether there is such a database."""
        return database in self._databases

    def create_database(self, database: str) -> None:
        """Make a database."""
        self._databases.setdefault(database, {})

    def load_table(self, database: str, name: str) -> CatalogTable | None:
        """Return an entry."""
        return self._databases.get(database, {}).get(name)

    def create_table(self, table: CatalogTable) -> None:
        """Make an entry."""
        self._databases[table.database].setdefault(table.name, table)

    def replace_table(self, table: CatalogTable) -> None:
        """Put an entry in the place of the stored one."""
        self._databases[table.database][table.name] = table

    def list_tables(self, database: str | None = None) -> list[CatalogTable]:
        """Return the entries of a database; None: of all."""
        databases = self._databases if database is None else {database: self._databases.get(database, {})}
        return [table for tables in databases.values() for table in tables.values()]

    def list_partitions(self, table: CatalogTable) -> list[CatalogPartition]:
        """Return the partitions of an entry."""
        return [*self._of(table).values()]

    def add_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Add partitions."""
        for partition in partitions:
            self._of(table).setdefault(partition.values, _with_columns(table, partition))

    def replace_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Change partitions."""
        self._of(table).update({each.values: _with_columns(table, each) for each in partitions})

    def drop_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Remove partitions."""
        for partition in partitions:
            self._of(table).pop(partition.values, None)

    def close(self) -> None:
        """There is no connection."""

    def _of(self, table: CatalogTable) -> dict[tuple[str, ...], CatalogPartition]:
        return self._partitions.setdefault((table.database, table.name), {})


def _with_columns(table: CatalogTable, partition: CatalogPartition) -> CatalogPartition:
    return replace(partition, columns=table.columns, input_format=table.input_format)
