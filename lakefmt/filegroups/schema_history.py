"""Load and store the history of a table's schemas (effects), ``.hoodie/.schema`` (docs/format.md, Schema history).

Every commit of a table whose columns have ids stores the whole history under its own instant, because Hudi takes the
newest file of a commit that is on the active timeline. A file of an instant that was never completed does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lakefmt.errors import UnsupportedFeature
from lakefmt.schema.history import SchemaHistory, parse_history
from lakefmt.storage.api import ObjectStore
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import InstantTime

__all__ = [
    "SCHEMAS",
    "choose_history_file",
    "load_schema_history",
    "schema_file_instant",
    "store_schema_history",
    "unneeded_history_files",
]

SCHEMAS: Final = ".hoodie/.schema"
_SUFFIX: Final = ".schemacommit"
_MOST_BYTES: Final = 256 << 20


def load_schema_history(store: ObjectStore, timeline: Timeline) -> SchemaHistory:
    """Return the newest history.

    Args:
        store: the table's.
        timeline: tells which files count.

    Raises:
        CorruptFile: the file is damaged.
        UnsupportedFeature: there is none.
    """
    names = [info.name for info in store.list(SCHEMAS, recursive=False)]
    newest = choose_history_file(names, timeline)
    if newest is None:
        raise UnsupportedFeature(
            f"the table's columns have ids and their history is not in {SCHEMAS}: whether older files have the same "
            "names cannot be told; read and write the table with Spark"
        )
    return parse_history(store.read(newest, _MOST_BYTES).decode("utf-8", "replace"), newest)


def choose_history_file(names: Iterable[str], timeline: Timeline) -> str | None:
    """Return the newest history of a commit that was completed; None: there is none. Pure.

    Args:
        names: the files of the directory.
        timeline: with the commits that are active; older ones are archived.
    """
    active = {instant.time for instant in timeline.unbounded.commits}
    first = timeline.first_active or ""
    files = sorted((name for name in names if name.endswith(_SUFFIX)), key=schema_file_instant)
    completed = [name for name in files if schema_file_instant(name) in active]
    archived = [name for name in files if schema_file_instant(name) < first]
    return next(iter([*completed[::-1], *archived[::-1]]), None)


def unneeded_history_files(names: Iterable[str], first_active: str) -> list[str]:
    """Return the histories of archived commits but for the newest, which counts where no active commit has one. Pure.

    Args:
        names: the files of the directory.
        first_active: the first instant of the active timeline.

    Example:
        >>> unneeded_history_files([f".hoodie/.schema/2026010100000000{n}.schemacommit" for n in range(4)], "20260101000000003")
        ['.hoodie/.schema/20260101000000000.schemacommit', '.hoodie/.schema/20260101000000001.schemacommit']
    """
    files = sorted((name for name in names if name.endswith(_SUFFIX)), key=schema_file_instant)
    return [name for name in files if schema_file_instant(name) < first_active][:-1]


def schema_file_instant(name: str) -> str:
    """Return the instant of a history file.

    Example:
        >>> schema_file_instant(".hoodie/.schema/20260101000000001_20260101000000002.schemacommit")
        '20260101000000001'
    """
    return name.rpartition("/")[2].partition(".")[0].partition("_")[0]


def store_schema_history(
    store: ObjectStore, history: SchemaHistory, instant: InstantTime, completion: str | None
) -> None:
    """Store the history of a commit that is about to be completed.

    Args:
        store: the table's.
        history: with the table's schema after the commit.
        instant: the commit's.
        completion: when the file is stored, from version 8 on; None: of version 6.
    """
    name = f"{SCHEMAS}/{instant}{_SUFFIX}" if completion is None else f"{SCHEMAS}/{instant}_{completion}{_SUFFIX}"
    store.put(name, history.text.encode())
