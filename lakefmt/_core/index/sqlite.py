"""An example of an index that keeps its locations elsewhere: in a SQLite file beside nothing of the table (effects).

It is what an index on an external key-value store looks like, and it is installed as one: as an entry point of the group
``lakefmt.indexes``. Such an index has to survive everything that happens to the table without it:

* a write that dies: locations are kept with the instant that made them, and count once that instant is seen complete;
* a rollback or restore: an instant that is no longer complete is forgotten, and the older location counts again;
* a commit of another engine: commits that are not known are read before keys are looked up;
* commits that were archived unseen, and a file that is lost or of another table: everything is read anew.

A location says where a key was brought in last. When the key was deleted since, the row goes to the same file group as a
new one, so that a key never has two places.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import numpy as np
import pyarrow as pa

from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.index.api import (
    IndexCapabilities,
    IndexCommit,
    IndexContext,
    IndexKeys,
    KeyFileGroups,
    KeyReader,
    Located,
    locations_in,
)
from lakefmt.errors import CorruptFile, UnknownSetting

__all__ = ["SqliteIndex", "open_sqlite_index"]

_PATH = "lakefmt.index.path"
_WAIT_SECONDS = 60.0
_TABLES = """
    create table if not exists notes (name text primary key, value text) without rowid;
    create table if not exists commits (time text primary key, is_complete integer not null) without rowid;
    create table if not exists places (
        partition text, key text, time text, file_id text not null, primary key (partition, key, time)
    ) without rowid;
    create temporary table wanted (number integer primary key, partition text, key text);
"""
_FIND = """
    select number, partition, file_id, max(time) from wanted join places using (partition, key) join commits using (time)
    where is_complete group by number order by number
"""


def open_sqlite_index(context: IndexContext) -> SqliteIndex:
    """Return the index of a table, in the file that ``lakefmt.index.path`` names.

    Raises:
        UnknownSetting: no file is named.
    """
    path = context.options.get(_PATH)
    if not path:
        raise UnknownSetting(f"the index 'sqlite' needs {_PATH}: a local file, which it creates")
    return SqliteIndex(str(path), context)


class SqliteIndex:
    """Knows the file group of every key of one table.

    Args:
        path: a local file of this table; it is created, and read anew from the table when it is empty.
        context: the table.
    """

    name = "sqlite"
    is_global = False
    capabilities = IndexCapabilities(needs_file_reader=False, on_commit=True)

    def __init__(self, path: str, context: IndexContext) -> None:
        self._path = path
        self._context = context

    def locate(self, index_keys: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return where the wanted keys are stored among `slices`; nothing is read from them."""
        return locations_in(self.key_locations(index_keys), slices)

    def key_locations(self, index_keys: IndexKeys) -> KeyFileGroups:
        """Return the file group of each known key, after reading the commits that are not known yet.

        Raises:
            CorruptFile: the index file is damaged.
        """
        with self._open() as store:
            self._catch_up(store)
            partitions = index_keys.partitions.cast(pa.string())
            rows = zip(range(len(index_keys)), partitions.to_pylist(), index_keys.keys.to_pylist(), strict=True)
            store.executemany("insert into wanted values (?, ?, ?)", rows)
            locations = store.execute(_FIND).fetchall()
        numbers, paths, file_ids, _ = zip(*locations, strict=True) if locations else ((), (), (), ())
        return KeyFileGroups(np.array(numbers, np.int64), pa.array(paths, pa.string()), pa.array(file_ids, pa.string()))

    def on_commit(self, commit: IndexCommit) -> None:
        """Keep the new keys of a commit; they count once the commit is seen complete.

        Raises:
            CorruptFile: the index file is damaged.
        """
        with self._open() as store:
            self._keep(store, commit, is_complete=False)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction, which an error undoes."""
        try:
            with closing(sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None)) as store:
                store.executescript(_TABLES)
                store.execute("begin immediate")
                yield store
                store.execute("commit")
        except sqlite3.Error as error:
            raise CorruptFile(
                f"the index file {self._path} cannot be used: {error}; when it is removed it is made anew from the table"
            ) from error

    def _catch_up(self, store: sqlite3.Connection) -> None:
        """Forget instants that are no longer complete, and read commits that are not known."""
        context = self._context
        notes = dict(store.execute("select name, value from notes"))
        recorded = dict(store.execute("select time, is_complete from commits"))
        first = min(context.commits, default="")
        # What was archived since may be unknown unless it was complete at the last look.
        if notes.get("url") != context.url or first > notes.get("seen_before", ""):
            self._build(store)
        else:
            complete = set(context.commits)
            undone = [(time,) for time in recorded if time >= first and time not in complete]
            store.executemany("delete from places where time = ?", undone)
            store.executemany("delete from commits where time = ?", undone)
            store.executemany("update commits set is_complete = 1 where time = ?", ((time,) for time in complete))
            for time in context.commits:
                if time not in recorded:
                    self._keep(store, context.commit(time), is_complete=True)
        newest = max(context.commits, default="")
        seen = {"url": context.url, "seen_before": min(newest, context.first_pending or newest)}
        store.executemany("insert or replace into notes values (?, ?)", seen.items())

    def _build(self, store: sqlite3.Connection) -> None:
        store.execute("delete from places")
        store.execute("delete from commits")
        for partition, file_id, time, keys in self._context.stored_keys():
            rows = ((partition, key, time, file_id) for chunk in keys.chunks for key in chunk.to_pylist())
            store.executemany("insert or replace into places values (?, ?, ?, ?)", rows)
        complete = (
            (time,) for time in {*self._context.commits, *(t for (t,) in store.execute("select time from places"))}
        )
        store.executemany("insert or replace into commits values (?, 1)", complete)

    def _keep(self, store: sqlite3.Connection, commit: IndexCommit, *, is_complete: bool) -> None:
        store.execute("insert or replace into commits values (?, ?)", (commit.time, int(is_complete)))
        for number, stat in enumerate(commit.stats):
            keys = commit.new_keys(number)
            if keys is None:
                continue
            location = (stat.partition_path, commit.time, stat.file_id)
            rows = ((location[0], key, *location[1:]) for chunk in keys.chunks for key in chunk.to_pylist())
            store.executemany("insert or replace into places values (?, ?, ?, ?)", rows)
