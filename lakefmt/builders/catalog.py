"""Tables under a warehouse folder, by the names of pypaimon's catalog (effects)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

import pyarrow as pa

from lakefmt.builders.reading import ReadBuilder
from lakefmt.builders.streaming import StreamReadBuilder
from lakefmt.builders.writing import BatchWriteBuilder
from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError, TableNotFound
from lakefmt.producers.append.tags import Tag
from lakefmt.storage.open import open_store
from lakefmt.table import Table, create_table, open_table
from lakefmt.undo.restore import RestoreResult

__all__ = ["BuilderTable", "Catalog", "CatalogFactory", "Schema"]

_NAME = re.compile(r"[\w][-\w]{0,127}")


@dataclass(frozen=True, slots=True)
class Schema:
    """What a new table is made of.

    Attributes:
        columns: its columns.
        partition_keys: the columns that make partitions.
        primary_keys: the columns that make a row's key; none: an append table.
        options: Paimon's table options, or properties of Hudi and lakefmt.
    """

    columns: pa.Schema
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_pyarrow_schema(
        cls,
        pa_schema: pa.Schema,
        partition_keys: Sequence[str] | None = None,
        primary_keys: Sequence[str] | None = None,
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> Schema:
        """Return a schema; the comment is not kept."""
        return cls(pa_schema, tuple(partition_keys or ()), tuple(primary_keys or ()), dict(options or {}))


class CatalogFactory:
    """Opens catalogs."""

    @staticmethod
    def create(catalog_options: Mapping[str, str]) -> Catalog:
        """Return the catalog of a folder.

        Args:
            catalog_options: ``warehouse``: a local path or URL; other entries are settings of the store.

        Raises:
            InvalidInputError: there is no warehouse, or the catalog is of another kind than folders.
        """
        options = dict(catalog_options)
        warehouse = options.pop("warehouse", None)
        if not warehouse or options.pop("metastore", "filesystem") != "filesystem":
            raise InvalidInputError(
                "a catalog here is a folder: give its path or URL as 'warehouse', and no other metastore"
            )
        return Catalog(str(warehouse).rstrip("/"), options)


class Catalog:
    """The tables of a folder: ``<warehouse>/<database>.db/<table>``."""

    def __init__(self, warehouse: str, storage_options: Mapping[str, object]) -> None:
        self._warehouse = warehouse
        self._storage = dict(storage_options)

    def create_database(self, name: str, ignore_if_exists: bool, properties: Mapping[str, str] | None = None) -> None:
        """Check the name of a database; its folder is made with its first table."""
        _checked(name)

    def create_table(self, identifier: str, schema: Schema, ignore_if_exists: bool) -> None:
        """Make a table: of a schema without primary keys an append table.

        Raises:
            TableExists: there is one already.
        """
        partition_by = list(schema.partition_keys) or None
        place, exists = self._path(identifier), "open" if ignore_if_exists else "error"
        if schema.primary_keys:
            create_table(
                place,
                schema=schema.columns,
                record_key=list(schema.primary_keys),
                partition_by=partition_by,
                properties=dict(schema.options),
                storage_options=self._storage,
                if_exists=exists,
            )
            return
        create_table(
            place,
            schema=schema.columns,
            partition_by=partition_by,
            properties=dict(schema.options),
            storage_options=self._storage,
            if_exists=exists,
            kind="append",
        )

    def get_table(self, identifier: str) -> BuilderTable:
        """Open a table.

        Raises:
            TableNotFound: there is none.
        """
        return BuilderTable(open_table(self._path(identifier), storage_options=self._storage))

    def list_tables(self, database_name: str) -> list[str]:
        """Return the names of the tables of a database."""
        place = f"{self._warehouse}/{_checked(database_name)}.db"
        try:
            folders = open_store(place, self._storage).list_directories()
        except TableNotFound:
            return []
        return sorted(folders)

    def _path(self, identifier: str) -> str:
        database, dot, table = str(identifier).partition(".")
        if not dot:
            raise InvalidInputError(f"a table is named 'database.table', not {str(identifier)[:80]!r}")
        return f"{self._warehouse}/{_checked(database)}.db/{_checked(table)}"


def _checked(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInputError(f"a name has letters, digits, '_' and '-', unlike {str(name)[:80]!r}")
    return name


class BuilderTable:
    """A table with the builders of pypaimon; ``table`` is the lakefmt table below."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def new_batch_write_builder(self) -> BatchWriteBuilder:
        """Return what makes a batch write."""
        return BatchWriteBuilder(self.table)

    def new_read_builder(self) -> ReadBuilder:
        """Return what makes a batch read."""
        return ReadBuilder(self.table)

    def new_stream_read_builder(self) -> StreamReadBuilder:
        """Return what makes a stream read."""
        return StreamReadBuilder(self.table)

    def create_tag(self, tag_name: str, snapshot_id: str | None = None) -> Tag:
        """Name the state of a commit."""
        return self.table.tags.create(tag_name, snapshot_id)

    def delete_tag(self, tag_name: str) -> bool:
        """Delete a tag."""
        self.table.tags.delete(tag_name)
        return True

    def list_tags(self) -> list[str]:
        """Return the names of the tags."""
        return [tag.name for tag in self.table.tags.list()]

    def rollback_to(self, target: str) -> RestoreResult:
        """Bring back the state of a tag or an instant; later commits are undone."""
        if target in self.list_tags():
            return self.table.tags.restore(target)
        return self.table.restore(target)
