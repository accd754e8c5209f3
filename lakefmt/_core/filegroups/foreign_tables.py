"""Recognise the tables of other formats by what lies in their directory (effects: a few small requests)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from lakefmt._core.storage.api import ObjectStore

__all__ = ["foreign_hint", "format_of_directory", "table_format_of_directory"]

#: Directories that only one format has, with the format's name and what reads it.
_BY_DIRECTORY: Final = {
    "_delta_log": ("a Delta table", "deltalake"),
    "_spark_metadata": ("the output of a Spark stream", "Spark"),
    "_versions": ("a Lance dataset", "Lance"),
}
#: Directories that Paimon tables have together.
_PAIMON: Final = ("schema", "snapshot")
_ICEBERG: Final = "metadata"
_ICEBERG_ENDS: Final = (".metadata.json", "version-hint.text")
#: Files of rows; Hudi's own lie beside a partition metadata file, which is looked for before.
_ROW_FILES: Final = (".parquet", ".parq", ".orc")
#: How many partition directories are looked into for row files.
_PLACES_TO_LOOK_AT: Final = 3


def table_format_of_directory(store: ObjectStore, directories: Iterable[str] | None = None) -> str | None:
    """Return which table of another format the directory of a store holds, with an article; None: none that is known.

    Args:
        store: its base is the directory.
        directories: those directly in it; None: they are asked for one by one.

    Raises:
        StorageError: the store failed.
    """
    has = _has(store, directories)
    for directory, (format_name, _) in _BY_DIRECTORY.items():
        if has(directory):
            return format_name
    if has(_ICEBERG) and any(item.name.endswith(_ICEBERG_ENDS) for item in store.list(_ICEBERG, recursive=False)):
        return "an Iceberg table"
    if all(map(has, _PAIMON)) and store.info("schema/schema-0") is not None:
        return "a Paimon table"
    return None


def format_of_directory(store: ObjectStore, directories: Iterable[str]) -> str | None:
    """Return what another format keeps in the directory of a store: a table, or files of rows; None: nothing known.

    Args:
        store: its base is the directory.
        directories: those directly in it.

    Raises:
        StorageError: the store failed.

    Example:
        >>> from lakefmt._core.storage.memory import MemoryStore
        >>> store = MemoryStore("doc-foreign")
        >>> store.put("_delta_log/00000000000000000000.json", b"{}")
        >>> format_of_directory(store, store.list_directories())
        'a Delta table'
    """
    names = sorted(directories)
    foreign = table_format_of_directory(store, names)
    if foreign is not None:
        return foreign
    partitions = [name for name in names if "=" in name]
    for place in ("", *partitions[:_PLACES_TO_LOOK_AT]):
        for item in store.list(place, recursive=False):
            name = item.name.lower()
            if name.endswith(_ROW_FILES):
                file_format = "ORC" if name.endswith(".orc") else "Parquet"
                return f"a folder of {file_format} files of no Hudi table, such as {item.name}"
    return None


def foreign_hint(store: ObjectStore) -> str:
    """Return a sentence on what lies where a Hudi table was looked for; empty: nothing that is known.

    Raises:
        StorageError: the store failed.
    """
    directories = store.list_directories()
    foreign = None if ".hoodie" in directories else format_of_directory(store, directories)
    if foreign is None:
        return ""
    reader = next((reader for name, reader in _BY_DIRECTORY.values() if name == foreign), None)
    return f"it is {foreign}" + (f", which {reader} reads" if reader else "")


def _has(store: ObjectStore, directories: Iterable[str] | None) -> Callable[[str], bool]:
    if directories is not None:
        return frozenset(name.strip("/") for name in directories).__contains__
    return lambda name: next(iter(store.list(name, recursive=False)), None) is not None
