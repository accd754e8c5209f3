"""The verb that syncs a table to a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakefmt._core.arguments import check_texts, mapping_argument, shown
from lakefmt._core.filegroups.table_client import TableVerbs
from lakefmt.errors import InvalidInputError

if TYPE_CHECKING:
    from lakefmt._core.catalogs.api import Metastore
    from lakefmt._core.catalogs.sync import SyncResult

__all__ = ["CatalogVerbs"]


class CatalogVerbs(TableVerbs):
    """The verb of a table that concerns catalogs."""

    def sync(
        self,
        catalog: str | Metastore,
        *,
        database: str | None = None,
        name: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> SyncResult:
        """Make the table's entries in a catalog say what the table says now; repeated, it changes nothing.

        Args:
            catalog: ``thrift://host:9083`` of a Hive metastore, ``glue:`` or ``glue://region``, or a catalog of your own.
            database: the database of the entries; default: the table's, or ``default``.
            name: the name of the entries; default: the table's.
            options: ``hoodie.datasource.hive_sync.*`` and ``hoodie.meta.sync.*`` (docs/catalogs.md).

        Raises:
            AlreadyExistsError: the catalog has something else under that name; it was not changed.
            NotFoundError: there is no such database, and none is to be made.
            InvalidInputError: the options contradict the table.
            StorageError: the catalog failed; the next sync goes on.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> from lakefmt.catalogs import MemoryCatalog
            >>> data = pa.table({"id": ["a", "b"], "city": ["sf", "oslo"]})
            >>> t = lakefmt.create_table("memory://doc-sync", data=data, record_key="id", partition_by="city")
            >>> _ = t.insert(data)
            >>> print(t.sync(MemoryCatalog(), database="trips", name="rides"))
            trips.rides: created, partitions +2
        """
        from lakefmt._core.catalogs.sync import sync_to  # few tables have an entry in a catalog

        check_texts(database=database, name=name)
        if not isinstance(catalog, str) and not hasattr(catalog, "replace_partitions"):
            raise InvalidInputError(
                f"{shown(catalog)} is no catalog: give an address, or an object of the protocol Metastore"
            )
        return sync_to(self.client, catalog, database, name, mapping_argument(options, "options"))
