"""Find the tables below a folder or URL (effects: lists directories, reads properties and timelines)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping

from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.read.stats import describe_slices
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.open import location_text, open_store
from lakefmt._core.values import TableType
from lakefmt.errors import LakefmtError, StorageError

__all__ = ["FoundTable", "find_tables", "list_tables"]

_LOG = logging.getLogger("lakefmt.tables")
#: Folders within folders that are looked into; partitions and hidden folders are not.
_MOST_LEVELS = 5
_PROPERTIES = ".hoodie/hoodie.properties"


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table below a folder.

    Attributes:
        path: the path or URL that opens it.
        name: its path below the folder; of the folder itself its last part.
        table_type: ``cow`` or ``mor``; None: it cannot be opened.
        version: the table version.
        latest_commit: requested time of the newest completed commit; None: there is none.
        rows: rows in base files, where they were counted.
        problem: why it cannot be opened; empty: it can.
    """

    path: str
    name: str
    table_type: str | None = None
    version: int | None = None
    latest_commit: str | None = None
    rows: int | None = None
    problem: str = ""


def find_tables(
    path: str | os.PathLike[str], *, storage_options: Mapping[str, object] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the path and the name of each table below a folder, in order; a table's own folders are not looked into.

    Folders below it that may not be listed are left out with a warning in the log.

    Args:
        path: a local path or URL; a table counts, too.
        storage_options: credentials and settings of the store.

    Raises:
        InvalidInputError: the path is none.
        StorageError: the folder cannot be listed.
    """
    for table_path, name, problem in _places_below(path, storage_options):
        if problem:
            _LOG.warning("tables below %s are left out: %s", table_path, problem)
        else:
            yield table_path, name


def _places_below(
    path: str | os.PathLike[str], storage_options: Mapping[str, object] | None
) -> Iterator[tuple[str, str, str]]:
    """Yield the path and the name of each table, and of each folder that cannot be listed with the reason."""
    root = location_text(path).rstrip("/") or "/"
    for directory, problem in _table_directories(open_store(root, storage_options), "", _MOST_LEVELS):
        below = (f"{root}/{directory}", directory) if directory else (root, root.rpartition("/")[2])
        yield *below, problem


def _table_directories(store: ObjectStore, directory: str, levels: int) -> Iterator[tuple[str, str]]:
    prefix = f"{directory}/" if directory else ""
    try:
        inside = sorted(name.rstrip("/").rpartition("/")[2] for name in store.list_directories(directory))
    except StorageError as error:
        if not directory or error.transient:
            raise
        yield directory, str(error)
        return
    if ".hoodie" in inside and _has_properties(store, prefix + _PROPERTIES):
        yield directory, ""
    elif levels:
        for name in inside:
            if not name.startswith((".", "_")) and "=" not in name:
                yield from _table_directories(store, prefix + name, levels - 1)


def _has_properties(store: ObjectStore, name: str) -> bool:
    try:
        return store.info(name) is not None
    except StorageError as error:
        if error.transient:
            raise
        return True  # whoever opens the table says why


def list_tables(
    path: str | os.PathLike[str], *, storage_options: Mapping[str, object] | None = None, count_rows: bool = False
) -> list[FoundTable]:
    """Return the tables below a folder or URL, of any engine, with their type, version and newest commit.

    What cannot be opened, and a folder below it that cannot be listed, has a `problem`.

    Args:
        path: a local path or URL.
        storage_options: credentials and settings of the store.
        count_rows: also count the rows of base files, for which every footer is read.

    Raises:
        InvalidInputError: the path is none.
        StorageError: the folder cannot be listed.

    Example:
        >>> import tempfile, lakefmt, pyarrow as pa
        >>> folder = tempfile.mkdtemp()
        >>> _ = lakefmt.write_table(f"{folder}/trips", pa.table({"id": ["a"]}), record_key="id")
        >>> [(found.name, found.table_type, found.rows) for found in list_tables(folder, count_rows=True)]
        [('trips', 'cow', 1)]
    """
    return [
        FoundTable(table_path, name, problem=problem)
        if problem
        else _described(table_path, name, storage_options, count_rows=count_rows)
        for table_path, name, problem in _places_below(path, storage_options)
    ]


def _described(path: str, name: str, storage_options: Mapping[str, object] | None, *, count_rows: bool) -> FoundTable:
    client = TableClient(open_store(path, storage_options))
    try:
        config = client.open()
        state = client.load()
        latest = state.timeline.latest_commit
        rows = None
        if count_rows:
            rows = describe_slices(client.at(state)).rows
    except LakefmtError as error:
        return FoundTable(path, name, problem=str(error))
    table_type = "cow" if config.table_type is TableType.COPY_ON_WRITE else "mor"
    time = None if latest is None else latest.time
    return FoundTable(path, name, table_type, config.version.value, time, rows)
