"""Open a catalog by its address."""

from __future__ import annotations

from contextlib import closing
from typing import Final

from lakefmt._core.arguments import shown
from lakefmt._core.catalogs.api import CatalogTable, Metastore
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt.errors import InvalidInputError

__all__ = ["catalog_tables", "divide_address", "is_catalog", "is_glue", "is_hudi", "open_catalog"]

_GLUE: Final = "glue:"
_THRIFT: Final = "thrift://"
#: Where the Java classes of Hudi tables are, now and before it was Apache's.
_HUDI_CLASSES: Final = ("org.apache.hudi.", "com.uber.hoodie.")


def is_catalog(address: str) -> bool:
    """Return whether a text is the address of a catalog, and no folder or URL.

    Example:
        >>> is_catalog("thrift://host:9083"), is_catalog("glue:"), is_catalog("s3://box/trips")
        (True, True, False)
    """
    return address.startswith((_GLUE, _THRIFT))


def is_glue(address: str) -> bool:
    """Return whether an address is of Glue."""
    return address.startswith(_GLUE)


def open_catalog(address: str, settings: Settings | None = None) -> Metastore:
    """Return a catalog.

    Args:
        address: ``thrift://host:9083`` of a Hive metastore, several with commas; ``glue:``, ``glue://region`` or
            ``glue://account@region`` of AWS Glue.
        settings: of the call.

    Raises:
        InvalidInputError: it is no such address, or carries a password.
        UnsupportedFeature: the package for that catalog is not installed.
        StorageError: the catalog does not answer.
    """
    settings = settings or resolve_settings({})
    # Few processes have a catalog, and each kind brings a client along.
    if address.startswith(_THRIFT):
        from lakefmt._core.catalogs.hive import open_hive_catalog

        return open_hive_catalog(address)
    if address.startswith(_GLUE):
        from lakefmt._core.catalogs.glue import open_glue_catalog

        account, at, region = address.removeprefix(_GLUE).removeprefix("//").rpartition("@")
        return open_glue_catalog(
            region or None,
            account if at else None,
            keeps_versions=not settings.flag("hoodie.datasource.meta.sync.glue.skip_table_archive"),
        )
    raise InvalidInputError(f"{shown(address)} is no catalog: thrift://host:9083 and glue:, glue://region are")


def catalog_tables(address: str) -> list[CatalogTable]:
    """Return the Hudi tables of a catalog.

    Args:
        address: as for :func:`open_catalog`, with or without a database behind a slash: ``thrift://host:9083/trips``.

    Raises:
        InvalidInputError: it is no such address.
        StorageError: the catalog failed.
    """
    catalog_address, database = divide_address(address)
    with closing(open_catalog(catalog_address)) as catalog:
        tables = catalog.list_tables(database)
    return [table for table in tables if is_hudi(table)]


def divide_address(address: str) -> tuple[str, str | None]:
    """Return an address of a catalog and the database behind its last slash.

    Example:
        >>> divide_address("thrift://a:9083,thrift://b:9083/trips"), divide_address("glue:")
        (('thrift://a:9083,thrift://b:9083', 'trips'), ('glue:', None))
    """
    catalog_address, slash, database = address.rpartition("/")
    return (
        (catalog_address, database or None) if slash and not catalog_address.endswith(("/", ":")) else (address, None)
    )


def is_hudi(table: CatalogTable) -> bool:
    """Return whether an entry is of a Hudi table."""
    says = table.properties.get("spark.sql.sources.provider", "").lower()
    return says == "hudi" or table.input_format.startswith(_HUDI_CLASSES)
