"""What a catalog holds and can do: the protocol that Hive, Glue and a catalog of your own follow, and a catalog in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Protocol, TypeVar

from lakefmt._core.data_classes import dataclass, replace

__all__ = ["CatalogColumn", "CatalogPartition", "CatalogTable", "MemoryCatalog", "Metastore", "request_batches"]

T = TypeVar("T")


def request_batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield up to `size` items at a time: a catalog takes only so many in one request."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column as a catalog knows it.

    Attributes:
        name: in small letters.
        data_type: in Hive's words, such as ``map<string,int>``.
        comment: empty when there is none.
    """

    name: str
    data_type: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The entry of a table.

    Attributes:
        database: its database.
        name: its name.
        location: the folder or URL of the table.
        columns: those that are no partition keys.
        partition_keys: the columns that partitions are told apart by.
        input_format: the Java class by which Hive reads it; ``output_format``: writes it; ``serde``: decodes rows.
        serde_properties: properties of the decoder.
        properties: properties of the table.
        is_external: whether the catalog leaves the files alone when the entry is dropped.
        record: what the catalog itself keeps of the entry; it is handed back with a change.
    """

    database: str
    name: str
    location: str
    columns: tuple[CatalogColumn, ...]
    partition_keys: tuple[CatalogColumn, ...] = ()
    input_format: str = ""
    output_format: str = ""
    serde: str = ""
    serde_properties: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    is_external: bool = True
    record: object = None


@dataclass(frozen=True, slots=True)
class CatalogPartition:
    """The entry of a partition.

    Attributes:
        values: one text for each partition key.
        location: its folder or URL.
        columns: of the entry, where the catalog keeps them for each partition.
        input_format: the Java class by which Hive reads it.
        record: what the catalog itself keeps of the entry; it is handed back with a change.
    """

    values: tuple[str, ...]
    location: str
    columns: tuple[CatalogColumn, ...] = ()
    input_format: str = ""
    record: object = None


class Metastore(Protocol):
    """A catalog. Everything may raise StorageError; a request that failed may have taken effect all the same."""

    @property
    def what(self) -> str:
        """The catalog, for people."""
        ...

    def has_database(self, database: str) -> bool:
        """Return whether there is such a database."""
        ...

    def create_database(self, database: str) -> None:
        """Make a database; one that is there already is fine."""
        ...

    def load_table(self, database: str, name: str) -> CatalogTable | None:
        """Return an entry; None: there is none."""
        ...

    def create_table(self, table: CatalogTable) -> None:
        """Make an entry; one of that name that is there already stays as it is."""
        ...

    def replace_table(self, table: CatalogTable) -> None:
        """Put an entry in the place of the one that was loaded, with all of its record that is not said here."""
        ...

    def list_tables(self, database: str | None = None) -> list[CatalogTable]:
        """Return the entries of a database; None: of all."""
        ...

    def list_partitions(self, table: CatalogTable) -> list[CatalogPartition]:
        """Return the partitions of an entry."""
        ...

    def add_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Add partitions with the columns of the entry; those that are there already stay as they are."""
        ...

    def replace_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Give partitions, as they were listed but for their location, that location and the columns of the entry."""
        ...

    def drop_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        """Remove the entries of partitions, never files; those that are gone are fine."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


# --------------------------------------------------------------------------------- a catalog in memory


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
        """Do nothing: a catalog in memory has no connection."""

    def _of(self, table: CatalogTable) -> dict[tuple[str, ...], CatalogPartition]:
        return self._partitions.setdefault((table.database, table.name), {})


def _with_columns(table: CatalogTable, partition: CatalogPartition) -> CatalogPartition:
    return replace(partition, columns=table.columns, input_format=table.input_format)
