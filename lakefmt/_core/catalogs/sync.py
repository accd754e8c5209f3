"""``table.sync``: make the entries of a table in a catalog equal to what the table says now; and open a catalog by its address.

What is there is compared with what must be there, and only what differs is changed, so a sync that died is made good by the next
one, and a repeated one changes nothing. The time up to which an entry is synced is written last: Hudi's own sync, which goes on
from that time, finds what a dead sync left undone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

from lakefmt._core.arguments import shown
from lakefmt._core.catalogs.entries import (
    OWNED_PREFIX,
    SYNCED,
    CatalogPartition,
    CatalogTable,
    Metastore,
    SyncOptions,
    TableEntries,
    catalogs_asked,
    parse_sync_options,
    request_batches,
    table_entries,
)
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StorageError

if TYPE_CHECKING:
    from lakefmt._core.catalogs.entries import Metastore

__all__ = [
    "EntryChange",
    "SyncResult",
    "catalog_tables",
    "divide_address",
    "is_catalog",
    "is_glue",
    "is_hudi",
    "open_catalog",
    "same_place",
    "sync_entries",
    "sync_table",
    "sync_to",
    "sync_to_catalogs",
]

_log = logging.getLogger("lakefmt.catalogs")
#: A sync is repeated this often at most; later commits have syncs of their own.
_MOST_REPEATS: Final = 10
#: Names of one protocol.
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "az": "abfss"}


@dataclass(frozen=True, slots=True)
class EntryChange:
    """What a sync did to one entry.

    Attributes:
        name: database and table, with a dot.
        created: it was not there.
        columns: columns, types or comments changed.
        properties: something else of the entry changed, times apart.
        partitions_added: their number; ``partitions_changed``: of those with another location, format or other columns;
            ``partitions_dropped``: of those that the table has no more.
    """

    name: str
    created: bool = False
    columns: bool = False
    properties: bool = False
    partitions_added: int = 0
    partitions_changed: int = 0
    partitions_dropped: int = 0

    @property
    def is_change(self) -> bool:
        """Whether anything but times changed."""
        return self != EntryChange(self.name)

    def __str__(self) -> str:
        words = [word for word in ("created", "columns", "properties") if getattr(self, word)]
        counts = {"+": self.partitions_added, "~": self.partitions_changed, "-": self.partitions_dropped}
        counted = " ".join(f"{sign}{count:,}" for sign, count in counts.items() if count)
        words += [f"partitions {counted}"] if counted else []
        return f"{self.name}: {', '.join(words) or 'as before'}"


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a sync did; prints as a line for each entry.

    Attributes:
        catalog: the catalog, for people.
        entries: what was done to each entry.
        commit: requested time of the newest commit that the entries show; None: the table has none.
    """

    catalog: str
    entries: tuple[EntryChange, ...]
    commit: str | None = None

    @property
    def is_change(self) -> bool:
        """Whether anything but times changed."""
        return any(entry.is_change for entry in self.entries)

    def __str__(self) -> str:
        return "\n".join(str(entry) for entry in self.entries)


def sync_to_catalogs(client: TableClient, settings: Settings) -> list[SyncResult]:
    """Sync a table to all catalogs that the settings name.

    Raises:
        LakefmtError: as :func:`sync_table`.
    """
    results = []
    for address in catalogs_asked(settings):
        with closing(open_catalog(address, settings)) as catalog:
            results.append(sync_table(client, catalog, parse_sync_options(settings, glue=is_glue(address))))
    return results


def sync_to(
    client: TableClient,
    catalog: str | Metastore,
    database: str | None,
    name: str | None,
    options: Mapping[str, object],
) -> SyncResult:
    """Sync a table to one catalog; see ``Table.sync``."""
    settings = resolve_settings(options, client.options, client.load_config().properties)
    sync_options = parse_sync_options(settings, glue=isinstance(catalog, str) and is_glue(catalog))
    sync_options = replace(sync_options, database=database or sync_options.database, table=name or sync_options.table)
    if not isinstance(catalog, str):
        if not hasattr(catalog, "replace_table"):
            raise InvalidInputError(f"catalog takes the address of a catalog, or one of your own, not {shown(catalog)}")
        return sync_table(client, catalog, sync_options)
    with closing(open_catalog(catalog, settings)) as opened:
        return sync_table(client, opened, sync_options)


def sync_table(client: TableClient, catalog: Metastore, options: SyncOptions) -> SyncResult:
    """Make a catalog's entries of a table equal to what the table says now.

    Raises:
        AlreadyExistsError: the catalog has something else under that name; it was not changed.
        NotFoundError: there is no such database, and none is to be made.
        InvalidInputError: the options contradict the table.
        StorageError: the catalog failed; the next sync goes on.
    """
    state = client.load()
    result = sync_entries(catalog, table_entries(client.at(state), options), options)
    for _ in range(_MOST_REPEATS):
        # The sync of a newer commit may have passed this one, which has then undone what it wrote.
        now = client.load()
        if now.timeline.commits == state.timeline.commits:
            break
        state = now
        result = _joined(result, sync_entries(catalog, table_entries(client.at(state), options), options))
    return result


def _joined(first: SyncResult, second: SyncResult) -> SyncResult:
    """Return what two syncs did, one after the other."""
    before = {entry.name: entry for entry in first.entries}
    entries = [
        EntryChange(
            entry.name,
            earlier.created or entry.created,
            earlier.columns or entry.columns,
            earlier.properties or entry.properties,
            earlier.partitions_added + entry.partitions_added,
            earlier.partitions_changed + entry.partitions_changed,
            earlier.partitions_dropped + entry.partitions_dropped,
        )
        for entry in second.entries
        for earlier in (before.get(entry.name, EntryChange(entry.name)),)
    ]
    return replace(second, entries=tuple(entries))


def sync_entries(catalog: Metastore, entries: TableEntries, options: SyncOptions) -> SyncResult:
    """Make entries in a catalog what they must be, as :func:`sync_table`."""
    database = entries.tables[0].database
    if not catalog.has_database(database):
        if not options.creates_database:
            raise NotFoundError(f"{catalog.what} has no database {database}, and none is to be made")
        catalog.create_database(database)
    changes = tuple(_sync_entry(catalog, table, entries, options) for table in entries.tables)
    result = SyncResult(catalog.what, changes, entries.synced.get(SYNCED[0]))
    _log.info("synced to %s: %s", catalog.what, "; ".join(map(str, changes)))
    return result


def _sync_entry(catalog: Metastore, table: CatalogTable, entries: TableEntries, options: SyncOptions) -> EntryChange:
    change = EntryChange(f"{table.database}.{table.name}")
    stored = catalog.load_table(table.database, table.name)
    if stored is None:
        catalog.create_table(table)
        change = replace(change, created=True)
        stored = catalog.load_table(table.database, table.name)
        if stored is None:
            raise StorageError(f"{catalog.what} does not show {change.name}, which was made", transient=True)
    _check_ours(catalog, stored, table)
    merged = _merged(stored, table)
    if not _same_entry(stored, merged):
        catalog.replace_table(merged)
        if not change.created:
            columns = stored.columns != merged.columns
            change = replace(
                change, columns=columns, properties=not _same_entry(replace(stored, columns=merged.columns), merged)
            )
    change = (
        _sync_partitions(catalog, merged, entries.partitions, change, options.batch) if table.partition_keys else change
    )
    if any(merged.properties.get(key) != value for key, value in entries.synced.items()) and not (
        options.only_changes and not change.is_change
    ):
        catalog.replace_table(replace(merged, properties={**merged.properties, **entries.synced}))
    return change


def _check_ours(catalog: Metastore, stored: CatalogTable, table: CatalogTable) -> None:
    """Raise unless an entry is of this table."""
    name = f"{catalog.what} has another table named {stored.database}.{stored.name}"
    if not same_place(stored.location, table.location):
        raise AlreadyExistsError(
            f"{name}, at {stored.location or 'no location'}: choose another name, or drop that entry"
        )
    if not is_hudi(stored):
        raise AlreadyExistsError(f"{name}, which is no Hudi table: choose another name, or drop that entry")
    if [key.name for key in stored.partition_keys] != [key.name for key in table.partition_keys]:
        there = ", ".join(key.name for key in stored.partition_keys) or "none"
        raise AlreadyExistsError(f"{name}, whose partition keys are {there}: drop that entry, and sync again")


def same_place(first: str, second: str) -> bool:
    """Return whether two locations are the same folder.

    Example:
        >>> same_place("s3a://box/trips/", "s3://box/trips"), same_place("file:/a/b", "/a/b"), same_place("/a", "/b")
        (True, True, False)
    """
    return _parse_location(first) == _parse_location(second)


def _parse_location(location: str) -> tuple[str, str, str]:
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme or scheme == "file":
        return "file", "", f"/{(rest if colon and '/' not in scheme else location).lstrip('/')}".rstrip("/")
    authority, _, path = rest.removeprefix("//").partition("/") if rest.startswith("//") else ("", "", rest.lstrip("/"))
    return _SCHEMES.get(scheme, scheme), authority, f"/{path}".rstrip("/")


def _merged(stored: CatalogTable, table: CatalogTable) -> CatalogTable:
    """Return the entry as it must be: what others wrote into it stays."""
    required = dict(table.properties)
    if stored.is_external:
        required.pop("EXTERNAL", None)  # catalogs say that in a place of its own, too
    foreign = {key: value for key, value in stored.properties.items() if not key.startswith(OWNED_PREFIX)}
    if _spark_schema(stored) == _spark_schema(table) is not None:
        # Hudi writes the same schema with other blanks, which stay.
        required |= {key: value for key, value in stored.properties.items() if key in _schema_keys(stored)}
    path = stored.serde_properties.get("path")
    decoder = {**stored.serde_properties, **table.serde_properties}
    if path is not None and "path" in table.serde_properties and same_place(path, table.serde_properties["path"]):
        decoder["path"] = path
    return replace(
        stored,
        columns=table.columns,
        partition_keys=table.partition_keys,
        input_format=table.input_format,
        output_format=table.output_format,
        serde=table.serde,
        serde_properties=decoder,
        properties={**foreign, **required},
        is_external=True,
    )


def _schema_keys(table: CatalogTable) -> list[str]:
    """Return the properties that hold the text of Spark's schema.

    Raises:
        ValueError: their number is none.
    """
    number = table.properties.get(f"{OWNED_PREFIX}numParts", "0")
    # A number of more parts than there are properties is wrong, whatever it is.
    count = min(int(number), len(table.properties))
    return [f"{OWNED_PREFIX}numParts", *(f"{OWNED_PREFIX}part.{part}" for part in range(count))]


def _spark_schema(table: CatalogTable) -> object:
    """Return Spark's schema of an entry; None: the entry says none that can be understood."""
    try:
        _, *parts = _schema_keys(table)
        return json.loads("".join(table.properties.get(key, "") for key in parts))
    except (ValueError, RecursionError):
        return None


def _same_entry(first: CatalogTable, second: CatalogTable) -> bool:
    return replace(first, record=None) == replace(second, record=None)


# ---------------------------------------------------------------------------------------------------------- partitions


def _sync_partitions(
    catalog: Metastore, table: CatalogTable, partitions: Sequence[CatalogPartition], change: EntryChange, batch: int
) -> EntryChange:
    stored = {partition.values: partition for partition in catalog.list_partitions(table)}
    present = {partition.values for partition in partitions}
    added = [partition for partition in partitions if partition.values not in stored]
    moved = [
        replace(there, location=partition.location)
        for partition in partitions
        if (there := stored.get(partition.values)) is not None and _differs(table, there, partition)
    ]
    # A partition that lies elsewhere was added by somebody else.
    dropped = [each for values, each in stored.items() if values not in present and _lies_in(table, each)]
    for request_batch in request_batches(added, batch):
        catalog.add_partitions(table, request_batch)
    for request_batch in request_batches(moved, batch):
        catalog.replace_partitions(table, request_batch)
    for request_batch in request_batches(dropped, batch):
        catalog.drop_partitions(table, request_batch)
    return replace(change, partitions_added=len(added), partitions_changed=len(moved), partitions_dropped=len(dropped))


def _differs(table: CatalogTable, stored: CatalogPartition, partition: CatalogPartition) -> bool:
    return (
        not same_place(stored.location, partition.location)
        or stored.columns != table.columns
        or stored.input_format != table.input_format
    )


def _lies_in(table: CatalogTable, partition: CatalogPartition) -> bool:
    table_location, inside = _parse_location(table.location), _parse_location(partition.location)
    return inside[:2] == table_location[:2] and inside[2].startswith(f"{table_location[2]}/")


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
