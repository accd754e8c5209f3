"""Invariants of a table as functions; each raises AssertionError with details.

| invariant | function |
|---|---|
| nothing is visible before its commit completes | :func:`check_visible`, and :class:`Watched` at every effect of a write |
| files in commits exist until a clean | :func:`check_reachable` |
| a key is unique in its partition or in the table | :func:`check_unique_keys` |
| a key changes its file group only by a replacement or delete | :func:`check_file_ids` |
| the counts of commits are right | :func:`check_counts` |
| meta columns match names, keys and partitions | :func:`check_meta_columns` |
| footers have the key range and a filter with every key | :func:`check_footers` |
| every file is in a commit | :func:`check_no_orphans` |
| rows are in the partition of their columns | :func:`check_partitions` |
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.cdc import cdc_paths
from lakefmt._core.filegroups.model import BaseFile, build_slices
from lakefmt._core.filegroups.reader import BaseFileReader
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.formats.names import PARTITION_METADATA
from lakefmt._core.keys import build_partition_paths, build_record_keys
from lakefmt._core.table import Table
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.instant import Instant
from lakefmt._core.values import (
    COMMIT_SEQNO,
    COMMIT_TIME,
    FILE_NAME,
    META_COLUMNS,
    PARTITION_PATH,
    RECORD_KEY,
    WriteOperation,
    WriteStat,
)
from lakefmt.testing.store_wrapper import Effect

__all__ = [
    "View",
    "Watched",
    "check_counts",
    "check_file_ids",
    "check_footers",
    "check_invariants",
    "check_meta_columns",
    "check_no_orphans",
    "check_partitions",
    "check_reachable",
    "check_unique_keys",
    "check_visible",
]

#: Number of rows or files that the message shows.
_SHOWN = 5
_HOODIE = ".hoodie/"
#: The checksum of a timeline file's temporary name. A JVM renames the file first: if it is killed then, this one stays.
_OF_A_RENAMED_FILE = re.compile(r"\.hoodie/(?:timeline/)?\.\d{14,17}(?:_\d+)?\.[a-z.]+\.[0-9a-f-]{36}\.crc")
#: Where a write leaves its temporary files.
_TRACES = (".hoodie/.temp/", ".hoodie/.heartbeat/")
#: Operations that move rows: afterwards a key may be in another file group.
_REARRANGE = frozenset({WriteOperation.CLUSTER})


def check_invariants(table: Table | View, *, keys_unique: bool = True, global_keys: bool = False) -> None:
    """Check all invariants that hold while no write is active.

    Args:
        table: the table to check.
        keys_unique: whether keys are unique (plain inserts allow duplicates).
        global_keys: unique in the table instead of the partition (a global index).

    Raises:
        AssertionError: an invariant is violated.

    Example:
        >>> import lakefmt
        >>> rows = pa.table({"id": ["a", "b"]})
        >>> table = lakefmt.create_table("memory://laws", data=rows, record_key="id")
        >>> _ = table.upsert(rows)
        >>> check_invariants(table)
    """
    view = View.of(table)
    check_visible(view)
    check_meta_columns(view)
    check_footers(view)
    check_counts(view)
    check_reachable(view)
    check_file_ids(view, last=1)
    if keys_unique:
        check_unique_keys(view, global_keys=global_keys)


def check_visible(table: Table | View) -> None:
    """Every visible file is named by a completed commit, and every row in it was written by one."""
    view = View.of(table)
    done = pa.array([i.time for i in view.state.timeline.commits], pa.string())
    named = view.named
    strangers = [file.path for file in view.visible() if file.path not in named]
    _law(not strangers, f"visible, and no completed commit names it: {strangers[:_SHOWN]}")
    for file in view.unchecked("visible") if view.state.config.populate_meta_fields else ():
        written = view.client.reader.rows(file, [COMMIT_TIME]).column(COMMIT_TIME)
        strange = pc.unique(written.filter(pc.invert(pc.is_in(written, value_set=done))))
        _law(not len(strange), f"{file.path} shows rows of instants that are not completed: {_some(strange)}")


def check_reachable(table: Table | View) -> None:
    """Every file of completed commits exists, back to what the last clean retained."""
    view = View.of(table)
    oldest = view.client.at(view.state).retained_from() or ""
    present = {*view.present, *view.logs}
    for instant, commit in view.commits:
        missing = [] if instant.time < oldest else [s.path for s in commit.stats if s.path and s.path not in present]
        _law(not missing, f"commit {instant.time} can be read and needs {missing[:_SHOWN]}, which are gone")


def check_unique_keys(table: Table | View, *, global_keys: bool = False) -> None:
    """A key is unique in its partition; with `global_keys` in the table."""
    view = View.of(table)
    files = view.visible()
    if not files:
        return
    all_keys = pa.chunked_array([chunk for file in files for chunk in view.keys(file).chunks], pa.string())
    if not global_keys:
        partition_paths = [pa.array([str(file.partition)] * len(view.keys(file)), pa.string()) for file in files]
        all_keys = pc.binary_join_element_wise(pa.chunked_array(partition_paths, pa.string()), all_keys, "\x00")
    counted = pc.value_counts(all_keys.combine_chunks())
    twice = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    where = "in the table" if global_keys else "in one partition"
    _law(not len(twice), f"{len(twice)} keys live more than once {where}: {_some(twice)}")


def check_file_ids(table: Table | View, last: int | None = None) -> None:
    """From commit to commit a key stays in its file group, unless that is replaced or the key is deleted.

    Args:
        table: the table to check.
        last: number of newest commits to compare with their predecessors; None: all readable ones.
    """
    view = View.of(table)
    oldest = view.client.at(view.state).retained_from() or ""
    pairs = [(i, c) for i, c in view.commits if i.time >= oldest]
    for (before, _), (after, commit) in list(itertools.pairwise(pairs))[-last if last else 0 :]:
        if commit.operation in _REARRANGE:
            continue
        replaced = [f for ids in commit.replaced_file_ids.values() for f in ids]
        old, new = view.file_groups_of_keys(before), view.file_groups_of_keys(after)
        old = old.filter(pc.invert(pc.is_in(old.column("file_id"), value_set=pa.array(replaced, pa.string()))))
        still = old.join(new.select(["partition", "key"]), ["partition", "key"], join_type="left semi")
        moved = still.join(new, ["partition", "key", "file_id"], join_type="left anti")
        _law(not moved.num_rows, f"commit {after.time}: {moved.num_rows} keys left their file group: {_some(moved)}")


def check_counts(table: Table | View) -> None:
    """The counts of commits are right: file sizes, rows in footers, rows in and rows out.

    A rewritten file has the rows of its predecessor, plus inserts, minus deletes; a new one its
    inserts.
    """
    view = View.of(table)
    for _, commit in view.commits:
        for stat in commit.stats:
            file = view.present.get(stat.path)
            if file is None:
                continue
            rows = view.client.reader.footer(file).num_rows
            bytes_said = stat.file_size_in_bytes
            _law(bytes_said == file.size, f"{stat.path}: {bytes_said} bytes said, {file.size} found")
            _law(stat.num_writes == rows, f"{stat.path}: {stat.num_writes} rows said, {rows} found")
            before = view.predecessor(stat)
            if before is None:
                continue
            equation = f"{before} before + {stat.num_inserts} inserted - {stat.num_deletes} deleted"
            _law(before + stat.num_inserts - stat.num_deletes == rows, f"{stat.path}: {equation}, but {rows} are there")


def check_meta_columns(table: Table | View) -> None:
    """The meta columns of every row match its file's name, its key, its partition and the timeline.

    In a table that does not populate them they exist and are null.
    """
    view = View.of(table)
    config = view.state.config
    if not config.populate_meta_fields:
        for file in view.unchecked("meta columns"):
            values = view.client.reader.rows(file, META_COLUMNS)
            filled = [name for name in META_COLUMNS if values.column(name).null_count < values.num_rows]
            _law(not filled, f"{file.path}: {', '.join(filled)} are filled, and the table says that they are not")
        return
    spec = view.client.key_spec(config)
    for file in view.unchecked("meta columns"):
        rows = view.reader.rows(file)
        if not rows.num_rows:
            continue
        for column, value in ((FILE_NAME, file.name), (PARTITION_PATH, str(file.partition))):
            values = pc.unique(rows.column(column))
            _law(values.equals(pa.array([value])), f"{file.path}: {column} says {values}")
        newest = pc.max(rows.column(COMMIT_TIME))
        _law(str(newest) <= file.instant, f"{file.path}: rows newer than the file")
        # A duplicate key of plain inserts is updated in both rows, with one sequence number.
        numbers, pairs = (
            rows.group_by(names).aggregate([]).num_rows for names in ([COMMIT_SEQNO], [COMMIT_SEQNO, RECORD_KEY])
        )
        _law(numbers == pairs, f"{file.path}: rows of different keys share a {COMMIT_SEQNO}")
        if spec.auto_keys:
            continue
        keys = _flat(build_record_keys(spec, rows))
        _law(keys.equals(_flat(rows.column(RECORD_KEY))), f"{file.path}: {RECORD_KEY} is not the key of its row")


def check_partitions(table: Table | View) -> None:
    """Every row is in the partition of its columns; does not hold if rows stay with their keys."""
    view = View.of(table)
    spec = view.client.key_spec(view.state.config)
    for file in view.unchecked("partitions"):
        rows = view.reader.rows(file)
        made = pc.unique(_flat(build_partition_paths(spec, rows)).cast(pa.string()))
        _law(not rows.num_rows or made.equals(pa.array([str(file.partition)])), f"{file.path}: rows of {made}")


def check_footers(table: Table | View) -> None:
    """Every footer has its key range and a filter with every key; without meta columns neither."""
    view = View.of(table)
    for file in view.unchecked("footers"):
        if not view.state.config.populate_meta_fields:
            footer = view.client.reader.footer(file)
            has_entries = footer.min_key is not None or footer.max_key is not None or footer.bloom_filter() is not None
            _law(not has_entries, f"{file.path} tells of keys, and its rows have none")
            continue
        keys = view.keys(file)
        footer, bloom = view.client.reader.footer(file), view.client.reader.bloom_filter(file)
        _law(bloom is not None, f"{file.path} has no bloom filter")
        if bloom is not None and len(keys):
            _law(bool(bloom.contains(keys).all()), f"{file.path}: a stored key misses its filter")
        _law((footer.min_key is None) == (len(keys) == 0), f"{file.path}: key range and rows disagree")


def check_no_orphans(table: Table | View) -> None:
    """While no write is active, every file is named by a completed commit, and there are no temporary files."""
    view = View.of(table)
    names = {info.name for info in view.client.store.list()}
    named = view.named
    orphans = sorted(name for name in names if not _has_reason(name, named, names))
    _law(not orphans, f"orphans: {orphans[:_SHOWN]}")
    traces = sorted(name for name in names if name.startswith(_TRACES))
    _law(not traces, f"traces of a write that is over: {traces[:_SHOWN]}")
    _law(not view.state.timeline.pending, f"pending: {[str(i) for i in view.state.timeline.pending]}")


def _has_reason(name: str, named: Mapping[str, object], names: set[str]) -> bool:
    directory, _, last = name.rpartition("/")
    if last.startswith(".") and last.endswith(".crc"):  # Hadoop's checksum file
        is_of_renamed = _OF_A_RENAMED_FILE.fullmatch(name) is not None
        return is_of_renamed or f"{directory}/{last[1:-4]}".removeprefix("/") in names
    return name.startswith(_HOODIE) or name in named or last.startswith(PARTITION_METADATA)


# ------------------------------------------------------------------------------------------------------ while it writes


@dataclass
class Watched:
    """Observes a table after every effect of a write: nothing may be visible before the commit completes.

    Pass :meth:`look` to a :class:`~lakefmt.testing.stores.WatchStore`, write through it, then call
    :meth:`check`.

    Attributes:
        see: returns what a separate reader sees now, as a comparable value.
        completes: whether an effect makes the write visible.

    Example:
        >>> import lakefmt
        >>> from lakefmt._core.storage import MemoryStore
        >>> from lakefmt.testing.stores import WatchStore
        >>> rows = pa.table({"id": ["a", "b"]})
        >>> reader = lakefmt.create_table("memory://watched", data=rows, record_key="id")
        >>> watched = Watched(lambda: reader.read().num_rows)
        >>> writer = Table(TableClient(WatchStore(MemoryStore("watched"), watched.look)))
        >>> _ = writer.upsert(rows)
        >>> watched.check()
    """

    see: Callable[[], object]
    completes: Callable[[Effect], bool] = field(default=lambda effect: _is_completion(effect.name))
    _seen: list[tuple[Effect, object]] = field(default_factory=list)
    _before: object = None

    def __post_init__(self) -> None:
        self._before = self.see()

    def look(self, effect: Effect) -> None:
        """Record what is visible after an effect."""
        self._seen.append((effect, self.see()))

    def check(self) -> None:
        """Compare the records: the old state until the completing effect, one new state after it.

        Raises:
            AssertionError: something was visible early or changed later, or no effect completed
                anything.
        """
        after = [seen for effect, seen in self._seen if self.completes(effect)]
        _law(len(after) == 1, f"{len(after)} effects completed a commit, not one")
        expected = self._before
        for effect, seen in self._seen:
            expected = after[0] if self.completes(effect) else expected
            story = f"after effect {effect.number}, {effect.kind} {effect.name}: {seen!r} is seen, not {expected!r}"
            _law(seen == expected, story)


def _is_completion(name: str) -> bool:
    last = name.rpartition("/")[2]
    return name.startswith(_HOODIE) and last[:1].isdigit() and last.endswith((".commit", ".replacecommit"))


# ------------------------------------------------------------------------------------------------- what there is to see


@dataclass
class View:
    """A table at one moment with its archived commits, and the existing files.

    Every invariant accepts one instead of the table, so that several share the reads.

    Attributes:
        client: the table client.
        state: properties and timeline.
        present: path → base file of a full listing.
        logs: paths of the log files of the same listing.
    """

    client: TableClient
    state: TableState
    present: dict[str, BaseFile]
    logs: frozenset[str]
    _keys: dict[str, pa.ChunkedArray] = field(default_factory=dict, repr=False)
    _lawful: set[tuple[str, str]] = field(default_factory=set, repr=False)

    @classmethod
    def of(cls, table: Table | View, since: View | None = None) -> View:
        """Read a table; a view is returned unchanged.

        Args:
            table: the table, or a view of it.
            since: an earlier view: base files that passed there are not read again, because they
                never change.
        """
        if isinstance(table, View):
            return table
        state = table.client.at(table.client.load()).with_history().state
        bases, logs = table.client.storage_listing(state.config).files(None)
        present = {file.path: file for file in bases}
        paths = frozenset(file.path for file in logs)
        return cls(table.client, state, present, paths, *((since._keys, since._lawful) if since else ()))

    @cached_property
    def reader(self) -> BaseFileReader:
        """Reads complete rows."""
        return self.client.at(self.state).row_reader()

    @cached_property
    def commits(self) -> list[tuple[Instant, CommitMetadata]]:
        """All completed commits with their metadata, by requested time."""
        return [(i, self.client.at(self.state).commit_metadata(i)) for i in self.state.timeline.commits]

    @cached_property
    def named(self) -> dict[str, WriteStat]:
        """All files in completed commits, by path."""
        stats = [stat for _, commit in self.commits for stat in commit.stats]
        return {path: stat for stat in stats for path in (stat.path, *cdc_paths(stat))}

    @cached_property
    def _by_group(self) -> dict[tuple[str, str, str], BaseFile]:
        return {(file.partition, file.file_id, file.instant): file for file in self.present.values()}

    def visible(self, commit: Instant | None = None) -> list[BaseFile]:
        """Return the visible files, now or after a commit."""
        state = self.state if commit is None else self.state.as_of(commit.time)
        slices = build_slices(self.present.values(), [], state.timeline, self.client.at(state).replaced())
        return [file_slice.base for file_slice in slices if file_slice.base is not None]

    def unchecked(self, law: str) -> Iterator[BaseFile]:
        """Return the visible files that have not passed an invariant; they pass when the next one is requested."""
        for file in self.visible():
            if (law, file.path) not in self._lawful:
                yield file
                self._lawful.add((law, file.path))

    def keys(self, file: BaseFile) -> pa.ChunkedArray:
        """Return a file's record keys, cached."""
        if file.path not in self._keys:
            self._keys[file.path] = self.reader.keys(file)
        return self._keys[file.path]

    def predecessor(self, stat: WriteStat) -> int | None:
        """Return the row count of the file that this one replaced: 0 for a new group, None if it is missing."""
        if stat.prev_commit in ("", "null"):
            return 0
        file = self._by_group.get((stat.partition_path, stat.file_id, stat.prev_commit))
        return None if file is None else self.client.reader.footer(file).num_rows

    def file_groups_of_keys(self, commit: Instant) -> pa.Table:
        """Return the file group of each key after a commit; duplicates once."""
        schema = pa.schema([(name, pa.string()) for name in ("partition", "key", "file_id")])
        tables = [schema.empty_table()]
        for file in self.visible(commit):
            keys = self.keys(file)
            where = [pa.array([str(text)] * len(keys), pa.string()) for text in (file.partition, file.file_id)]
            tables.append(pa.table([where[0], keys, where[1]], schema=schema))
        return pa.concat_tables(tables).group_by(["partition", "key", "file_id"]).aggregate([])


def _flat(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _some(values: pa.Table | pa.Array) -> str:
    columns = values.columns if isinstance(values, pa.Table) else [values]
    return "; ".join(" ".join(str(column[:_SHOWN]).split()) for column in columns)


def _law(holds: bool, story: str) -> None:
    if not holds:
        raise AssertionError(story)
