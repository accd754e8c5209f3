"""The protocol of a catalog of your own, and one in memory: docs/catalogs.md."""

from lakefmt._core.catalogs.entries import CatalogColumn, CatalogPartition, CatalogTable, MemoryCatalog, Metastore
from lakefmt._core.catalogs.sync import EntryChange, SyncResult, open_catalog

__all__ = [
    "CatalogColumn",
    "CatalogPartition",
    "CatalogTable",
    "EntryChange",
    "MemoryCatalog",
    "Metastore",
    "SyncResult",
    "open_catalog",
]
