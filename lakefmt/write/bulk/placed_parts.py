"""A stream of rows in parts that share no file group, or no key (effects: temporary files).

Where an index decides where a row goes, every file group is written once by a bulk insert, so all its rows have to be there.
Where rows of one key become one, all of these have to be. A stream that is more than a window is sorted on the disk, and
handed out part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.arrays import from_numpy
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.index import IndexKeys, PlacingIndex
from lakefmt.sorting.external_sort import gather_windows, sort_stream
from lakefmt.values import PartitionPath
from lakefmt.write.context import MOVED_AWAY
from lakefmt.write.ingest import KeyedBatch, handed_out, read_all, record_keys

__all__ = ["combined_rows", "group_names", "parts_by_key", "placed_parts"]

#: Rows that are no more than this part of the memory are not sorted: writing them takes as much again.
_PARTS: Final = 4
_NO_UUID: Final = "00000000-0000-0000-0000-000000000000"


def group_names(
    client: TableClient,
    state: TableState,
    index: PlacingIndex,
    keyed: Callable[[pa.Table], KeyedBatch],
    replaces: bool,
    table: pa.Table,
) -> pa.Array:
    """Return for each row a text that names its file group, the same one in every call.

    Args:
        client: the table.
        state: its properties and timeline.
        index: decides where a row goes.
        keyed: makes the keys of rows.
        replaces: the write replaces what is stored.
        table: the rows.
    """
    batch = keyed(table)
    partitions = [PartitionPath(name) for name in batch.partitions.dictionary.to_pylist()]  # partitions, not rows
    slices = [] if replaces else client.slices(state, partitions)
    placed = index.place(IndexKeys(record_keys(batch), batch.partitions), slices, lambda: _NO_UUID)
    names = pa.array([f"{partition}\x00{file_id}" for partition, file_id in placed.file_groups], pa.string())
    return names.take(from_numpy(placed.groups))


def placed_parts(
    tables: Iterable[pa.Table], names: Callable[[pa.Table], pa.Array], memory_bytes: int
) -> Generator[pa.Table]:
    """Yield the rows of a stream in tables; no file group has rows in two of them.

    Args:
        tables: the rows.
        names: gives each row a text that names its file group.
        memory_bytes: what may be held. A table holds about an eighth of it, or the rows of one file group if these are more.

    Raises:
        StorageError: the temporary directory could not take the rows.

    Example:
        >>> rows = [pa.table({"g": ["a", "b"]}), pa.table({"g": ["a"]})]
        >>> [t["g"].to_pylist() for t in placed_parts(rows, lambda t: t["g"].combine_chunks(), 1 << 20)]
        [['a', 'b', 'a']]
    """
    with closing(gather_windows(tables, memory_bytes // _PARTS)) as windows:
        first, is_last = next(windows, (None, True))
        if first is None:
            return
        second = None if is_last else next(windows, None)
        if second is None:
            yield first
            return
        begun = [first, second[0]]
        del first, second
        rest = chain(handed_out(begun), (window for window, _ in windows))
        with closing(sort_stream(rest, names, memory_bytes)) as ordered:
            yield from _whole_groups(ordered, names)


def combined_rows(
    key: Callable[[pa.Table], KeyedBatch],
    keyed: Callable[[pa.Table], KeyedBatch],
    tables: Iterable[pa.Table],
    memory_bytes: int,
    *,
    across_partitions: bool,
) -> Generator[pa.Table]:
    """Yield the rows of a stream in the order of their keys, those of one key combined.

    Args:
        key: combines the rows of each key of a table.
        keyed: makes the keys of rows, as they come.
        tables: the rows.
        memory_bytes: what may be held.
        across_partitions: a key is one row of the whole table.

    Raises:
        StorageError: the temporary directory could not take the rows.
    """
    with closing(parts_by_key(keyed, tables, memory_bytes, across_partitions=across_partitions)) as parts:
        for part in parts:
            rows = key(part).table
            if MOVED_AWAY in rows.column_names:  # rows that a table's own function deletes
                stays = pc.invert(rows.column(MOVED_AWAY))
                rows = rows.filter(stays).drop_columns([MOVED_AWAY])
            yield rows


def parts_by_key(
    keyed: Callable[[pa.Table], KeyedBatch], tables: Iterable[pa.Table], memory_bytes: int, *, across_partitions: bool
) -> Generator[pa.Table]:
    """Return the rows of a stream in tables; no key has rows in two of them. Arguments as for :func:`combined_rows`."""
    conformed = (keyed(table).table for table in tables)
    return placed_parts(conformed, lambda table: _key_order(keyed(table), across_partitions), memory_bytes)


def _key_order(batch: KeyedBatch, across_partitions: bool) -> pa.Array:
    """Return each row's partition and key as one text; with a key of the whole table the key alone."""
    keys = record_keys(batch)
    if across_partitions:
        return keys
    return pc.binary_join_element_wise(batch.partitions.cast(pa.string()), keys, "\x00")


def _whole_groups(ordered: Iterable[pa.Table], names: Callable[[pa.Table], pa.Array]) -> Iterator[pa.Table]:
    """Join tables of one file group that follow each other: a sort hands these out in several tables."""
    waiting: list[pa.Table] = []
    group: str | None = None
    for table in ordered:
        ends = names(pa.concat_tables([table.slice(0, 1), table.slice(table.num_rows - 1)])).to_pylist()
        if waiting and ends[0] != group:
            yield _joined(waiting)
        waiting.append(table)
        del table
        group = ends[1]
    if waiting:
        yield _joined(waiting)


def _joined(waiting: list[pa.Table]) -> pa.Table:
    whole = waiting[0] if len(waiting) == 1 else read_all(waiting[0].schema, list(waiting))
    waiting.clear()
    return whole
