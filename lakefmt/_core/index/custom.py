"""Indexes of one's own: a class, or an entry point of an installed package; and an example of one, over SQLite (effects).

The name comes from a setting of the call or the handle, never from a stored file: a person who can write a table's files
must not choose what code runs.

The class is named by the caller, and its answers are checked.

The example keeps its locations in a SQLite file outside of the table, as an index on an external key-value store would,
and is installed as an entry point of the group ``lakefmt.indexes``. Such an index has to survive everything that
happens to the table without it:

* a write that dies: locations are kept with the instant that made them, and count once that instant is seen complete;
* a rollback or restore: an instant that is no longer complete is forgotten, and the older location counts again;
* a commit of another engine: commits that are not known are read before keys are looked up;
* commits that were archived unseen, and a file that is lost or of another table: everything is read anew.

A location says where a key was brought in last. When the key was deleted since, the row goes to the same file group as a
new one, so that a key never has two places.
"""

from __future__ import annotations

import pkgutil
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arguments import foreign
from lakefmt._core.arrays import distinct
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.formats.names import base_file_name, parse_base_file
from lakefmt._core.index.api import (
    Index,
    IndexCapabilities,
    IndexCommit,
    IndexContext,
    IndexKeys,
    KeyFileGroups,
    KeyPlacement,
    KeyReader,
    Located,
    SupportsCommit,
    SupportsKeyLocations,
    capabilities_of,
    locations_in,
    places_new_keys,
)
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt.errors import CorruptFile, InvalidInputError, UnknownSetting

__all__ = [
    "ENTRY_POINTS",
    "INDEX_CLASS",
    "CheckedIndex",
    "SqliteIndex",
    "load_index",
    "load_installed_index",
    "open_sqlite_index",
]

#: The setting that names an index of one's own.
INDEX_CLASS: Final = "hoodie.index.class"

#: Installed packages offer indexes under this name.
ENTRY_POINTS: Final = "lakefmt.indexes"

#: An instant time, to see whether a file id can stand in a file name.
_SOME_TIME: Final = InstantTime("20260101000000000")
_LONGEST_ID: Final = 100

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

I64 = npt.NDArray[np.int64]


def load_index(name: str) -> Index:
    """Return the index that ``module:Class`` makes when it is called without arguments.

    Args:
        name: a module that can be imported and, after the colon, a class or function in it.

    Raises:
        UnknownSetting: there is no such module or class, it fails, or what it makes is no
            :class:`~lakefmt._core.index.api.Index`.

    Example:
        >>> load_index("lakefmt._core.index.bloom:SimpleIndex").name
        'simple'
    """
    if not _NAME.fullmatch(name):
        raise UnknownSetting(
            f"{INDEX_CLASS} does not take {name!r}: expected module:Class, for example my_index:MyIndex"
        )
    made = foreign(lambda: pkgutil.resolve_name(name)(), f"{INDEX_CLASS}={name} cannot be used", UnknownSetting)
    lacks = _lacks(made)
    if lacks:
        raise UnknownSetting(f"{INDEX_CLASS}={name} makes no index: {', '.join(lacks)}")
    return CheckedIndex(made)


def load_installed_index(name: str, context: Callable[[], IndexContext]) -> Index | None:
    """Return the index that an installed package offers under a name; None: no package does.

    Args:
        name: of an entry point of the group ``lakefmt.indexes``, which names an :data:`~lakefmt._core.index.api.IndexFactory`.
        context: makes what the index is given of the table.

    Raises:
        UnknownSetting: the entry point fails, or what it makes is no index.
    """
    from importlib.metadata import entry_points

    points = [point for point in entry_points(group=ENTRY_POINTS) if point.name == name]
    if not points:
        return None
    what = f"the index {name!r} ({points[0].value}) cannot be used"
    made = foreign(lambda: points[0].load()(context()), what, UnknownSetting)
    lacks = _lacks(made)
    if lacks:
        raise UnknownSetting(f"the index {name!r} ({points[0].value}) is no index: {', '.join(lacks)}")
    return CheckedIndex(made)


def _lacks(made: object) -> list[str]:
    """Return what an object lacks of an index."""
    lacks = []
    if not isinstance(getattr(made, "name", None), str):
        lacks.append("it has no text `name`")
    if not isinstance(getattr(made, "is_global", None), bool):
        lacks.append("it has no `is_global` that is True or False")
    capabilities = getattr(made, "capabilities", IndexCapabilities())
    if not isinstance(capabilities, IndexCapabilities):
        lacks.append("its `capabilities` are no lakefmt._core.index.IndexCapabilities")
        capabilities = IndexCapabilities()
    needed = {
        "locate": True,
        "place": capabilities.places_new_keys,
        "key_locations": not capabilities.needs_file_reader,
        "on_commit": capabilities.on_commit,
    }
    lacks += [
        f"it has no method `{name}`"
        for name, is_needed in needed.items()
        if is_needed and not callable(getattr(made, name, None))
    ]
    return lacks


class CheckedIndex:
    """An index whose answers are checked for what can be checked without reading files.

    Attributes:
        name: the index's own.
        is_global: the index's own.
        update_partition_path: the index's own; True when it does not say.
        capabilities: the index's own.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        #: What only built-in indexes do is not asked of it.
        self.capabilities = replace(capabilities_of(index), on_place=False, splits_buckets=False, in_tasks=False)
        self.name = index.name
        self.is_global = index.is_global
        self.update_partition_path = bool(getattr(index, "update_partition_path", True))

    def locate(self, index_keys: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
        """Return the index's answer, ordered by row and without repetitions.

        Raises:
            InvalidInputError: the answer points to rows or slices that there are not, to a slice without a base file,
                or, from an index that is not global, to another partition than a row's own.
        """
        answer: object = (
            self._index.locate(index_keys, slices, reader)
            if self.capabilities.needs_file_reader
            else locations_in(self.key_locations(index_keys), slices)
        )
        if not isinstance(answer, Located):
            raise self._wrong(f"answers with {type(answer).__name__}, not with Located")
        rows, numbers = (
            self._numbers("rows", answer.rows, len(index_keys)),
            self._numbers("slices", answer.slices, len(slices)),
        )
        if len(rows) != len(numbers):
            raise self._wrong(f"names {len(rows)} rows and {len(numbers)} slices, which should be pairs")
        in_logs = any(slices[number].base is None for number in distinct(numbers))
        if in_logs and not self.capabilities.covers_logs:
            raise self._wrong("names a slice without a base file")
        if (
            not self.is_global
            and (index_keys.partition_codes()[rows] != _partitions_in(index_keys, slices)[numbers]).any()
        ):
            raise self._wrong("names another partition than a row's own, though it is not global")
        return Located(*_pairs(rows, numbers, len(slices)), answer.steps, answer.filters)

    def place(self, index_keys: IndexKeys, slices: Sequence[FileSlice], new_uuid: Callable[[], str]) -> KeyPlacement:
        """Return the index's placement.

        Raises:
            InvalidInputError: a key has no file group, a file group is not in the key's partition or named twice, or a
                file id cannot stand in a file name.
        """
        if not places_new_keys(self._index):
            raise self._wrong("places no keys")
        placed: object = self._index.place(index_keys, slices, new_uuid)
        if not isinstance(placed, KeyPlacement):
            raise self._wrong(f"places with {type(placed).__name__}, not with KeyPlacement")
        file_groups = [self._file_group(each) for each in placed.file_groups]
        groups = self._numbers("file groups", placed.groups, len(file_groups))
        if len(groups) != len(index_keys):
            raise self._wrong(f"places {len(groups)} of {len(index_keys)} keys")
        if len(set(file_groups)) != len(file_groups):
            raise self._wrong("names a file group twice")
        partitions = pa.array([partition for partition, _ in file_groups], pa.string())
        if (index_keys.partition_codes() != _codes_of(index_keys, partitions)[groups]).any():
            raise self._wrong("places a key in another partition than its own")
        return KeyPlacement(groups, file_groups)

    def _file_group(self, given: object) -> tuple[PartitionPath, FileId]:
        if isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, str) for part in given):
            name = parse_base_file(base_file_name(FileId(given[1]), "0-0-0", _SOME_TIME))
            if name is not None and len(given[1]) <= _LONGEST_ID:
                return PartitionPath(given[0]), FileId(given[1])
        raise self._wrong("names a file group that is no partition with a file id of letters, digits and hyphens")

    def key_locations(self, index_keys: IndexKeys) -> KeyFileGroups:
        """Return the index's answer.

        Raises:
            InvalidInputError: its columns have different lengths or wrong types, or it names rows that there are not.
        """
        if not isinstance(self._index, SupportsKeyLocations):
            raise self._wrong("knows no locations")
        answer: object = self._index.key_locations(index_keys)
        if not isinstance(answer, KeyFileGroups):
            raise self._wrong(f"answers with {type(answer).__name__}, not with KeyFileGroups")
        rows = self._numbers("rows", answer.rows, len(index_keys))
        for texts in (answer.partitions, answer.file_ids):
            if not isinstance(texts, pa.StringArray) or texts.null_count or len(texts) != len(rows):
                raise self._wrong(f"names partitions or file ids that are not {len(rows)} texts")
        return KeyFileGroups(rows, answer.partitions, answer.file_ids)

    def on_commit(self, commit: IndexCommit) -> None:
        """Tell the index of a commit."""
        if isinstance(self._index, SupportsCommit):
            self._index.on_commit(commit)

    def _numbers(self, what: str, given: object, limit: int) -> I64:
        numbers = np.asarray(given)
        if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and len(numbers)):
            raise self._wrong(f"names {what} that are not one array of whole numbers")
        numbers = numbers.astype(np.int64)
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < limit:
            raise self._wrong(f"names {what} beyond the {limit} there are")
        return numbers

    def _wrong(self, what: str) -> InvalidInputError:
        return InvalidInputError(
            f"the index {self.name!r} ({type(self._index).__qualname__}) {what}; nothing is written"
        )


def _partitions_in(index_keys: IndexKeys, slices: Sequence[FileSlice]) -> I64:
    """Return each slice's partition as a code of the wanted partitions; -1 when no row is meant for it."""
    return _codes_of(index_keys, pa.array([file_slice.partition for file_slice in slices], pa.string()))


def _codes_of(index_keys: IndexKeys, partitions: pa.StringArray) -> I64:
    codes = pc.fill_null(pc.index_in(partitions, value_set=index_keys.partitions.dictionary), -1)
    numbers: I64 = codes.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _pairs(rows: I64, numbers: I64, num_slices: int) -> tuple[I64, I64]:
    """Return pairs ordered by row and slice, each once."""
    joined = distinct(rows * max(1, num_slices) + numbers)
    return joined // max(1, num_slices), joined % max(1, num_slices)


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
