"""Sort any amount of rows in bounded memory, and keep the keys of growing files, through temporary files.

Runs are sorted in memory and written as Arrow files; keys sampled from all runs cut the key space into ranges that
fit; each range is gathered from every run, batch by batch, sorted and handed on. No row is ever looked at in Python.
A run, and a range, is an eighth of what may be held, less what sorting and writing take whatever their rows: rows are
there up to three times while they are put in order, and their reader needs room, too.

A filter can be built only when the number of its keys is known, so a file's keys are kept until it is finished: with many
files open at a time they would outgrow every window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from operator import itemgetter, length_hint
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.bloom.bloom_filter import BloomFilter
from lakefmt._core.formats.parquet.base_file import key_range, outermost
from lakefmt._core.schema.cast import plain_columns
from lakefmt._core.storage.os_errors import os_failure
from lakefmt.errors import SchemaMismatch

__all__ = [
    "FileKeys",
    "gather_windows",
    "row_memory",
    "sort_stream",
    "spilling",
    "widened",
]

#: What a sort and writers of pages take however little they hold: code, pages of each column, what allocators keep.
_FIXED_SORT_BYTES = 30 << 20
_LEAST_MEMORY_PART = 4

#: A piece of spilled keys is this part of the memory, and the bits of a filter, as a byte each, are that part at most.
_KEY_PARTS, _FLAG_PARTS = 16, 2
#: The flags of a filter of fewer keys, 35 bytes for each, are in a cache.
_KEYS_WITH_CACHED_FLAGS = 1 << 17

_KEY_SCHEMA = pa.schema([("key", pa.string())])


def row_memory(limit_bytes: int) -> int:
    """Return how much of a limit is left for rows, keys and filters of a bounded load.

    Example:
        >>> [row_memory(limit << 20) >> 20 for limit in (8, 48, 128)]
        [2, 18, 98]
    """
    return max(limit_bytes - _FIXED_SORT_BYTES, limit_bytes // _LEAST_MEMORY_PART)


@contextmanager
def spilling() -> Iterator[None]:
    """Turn what the system raises while temporary files are written or read into a typed error.

    Raises:
        StorageError: the temporary directory could not take the bytes, or lost them.
    """
    try:
        yield
    except OSError as error:
        raise os_failure(error, "use", "a temporary file", _temporary_directory()) from error


def _temporary_directory() -> str:
    from tempfile import gettempdir

    try:
        return gettempdir()
    except OSError:  # none of those that Python tries can take files
        return "the temporary directory"


class FileKeys:
    """Number and range of a growing file's keys, and the keys themselves: in memory, until they are spilled.

    Example:
        >>> keys = FileKeys()
        >>> keys.add(pa.chunked_array([["b", "c"]]))
        >>> keys.spill()
        >>> keys.add(pa.chunked_array([["a"]]))
        >>> len(keys), keys.range, [file_slice.to_pylist() for file_slice in keys.pieces(1 << 20)]
        (3, ('a', 'c'), [['b', 'c', 'a']])
        >>> keys.close()
    """

    def __init__(self) -> None:
        self._held: list[pa.Array] = []
        self._count = 0
        self._bounds: list[str] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def range(self) -> tuple[str | None, str | None]:
        """The smallest and the largest key in Java's string order, None for no keys."""
        return (self._bounds[0], self._bounds[-1]) if self._bounds else (None, None)

    @property
    def held_bytes(self) -> int:
        """Bytes of the keys in memory."""
        return sum(chunk.nbytes for chunk in self._held)

    def add(self, keys: pa.ChunkedArray, *, copy: bool = False, ends: tuple[str, str] | None = None) -> None:
        """Take more keys.

        Args:
            keys: the keys, in file order.
            copy: keep a copy, because the keys are part of something larger that would stay with them.
            ends: the smallest and the largest of them, where that is known.
        """
        if copy and keys.num_chunks:
            # Concatenating copies just the arrays' own rows, and makes one of many.
            keys = pa.chunked_array([pa.concat_arrays(keys.chunks)])
        low, high = ends or key_range(keys)
        if low is None or high is None:
            return
        self._held += keys.chunks
        self._count += len(keys)
        self._bounds = list(outermost([*self._bounds, low, high]))

    def spill(self) -> None:
        """Move the keys in memory to a temporary file.

        Raises:
            StorageError: it could not take them.
        """
        from tempfile import TemporaryFile  # few writes spill keys

        with spilling():
            if self._writer is None:
                self._file = TemporaryFile(prefix="lakefmt-keys-")  # noqa: SIM115 (closed by close)
                self._writer = pa.ipc.new_stream(self._file, _KEY_SCHEMA)
            for chunk in self._held:
                self._writer.write_batch(pa.record_batch([chunk], schema=_KEY_SCHEMA))
        self._held = []

    def few(self, most: int) -> pa.ChunkedArray | None:
        """Return all keys when they are few enough and in memory, else None."""
        held = self._writer is None and 0 < self._count <= most
        return pa.chunked_array(self._held, pa.string()) if held else None

    def pieces(self, piece_bytes: int) -> Iterator[pa.ChunkedArray]:
        """Yield all keys, in file order, about `piece_bytes` of spilled ones at a time; nothing can be added afterwards."""
        if self._writer is None or self._file is None:
            yield pa.chunked_array(self._held, pa.string())
            return
        self.spill()
        self._writer.close()
        self._file.seek(0)
        waiting: list[pa.Array] = []
        size = 0
        for batch in pa.ipc.open_stream(self._file):
            waiting.append(batch.column(0))
            size += batch.nbytes
            if size >= piece_bytes:
                yield pa.chunked_array(waiting)
                waiting, size = [], 0
        if waiting:
            yield pa.chunked_array(waiting)

    def add_to(self, bloom: BloomFilter, memory_bytes: int) -> None:
        """Add all keys to a filter; nothing can be added here afterwards.

        Args:
            bloom: the filter.
            memory_bytes: what keys and flags may take.
        """
        # Flags that no cache holds are set in the order of their places: 14 ns each instead of 24 (Intel Xeon, 2.5 GHz).
        in_order = self._count > _KEYS_WITH_CACHED_FLAGS
        parts = self.pieces(max(1, memory_bytes // _KEY_PARTS))
        bloom.add_pieces(parts, memory_bytes // _FLAG_PARTS, in_order=in_order)

    def close(self) -> None:
        """Let go of the temporary file."""
        if self._file is not None:
            self._file.close()
        self._held = []


def widened(ends: tuple[str, str] | None, new: tuple[str, str] | None) -> tuple[str, str] | None:
    """Return the range of stored keys and new ones; None where that of the stored ones is not known for certain.

    Args:
        ends: what a footer says of the stored keys; None: nothing.
        new: the range of the new keys; None: there are none.

    Example:
        >>> widened(("b", "c"), ("a", "b")), widened(None, ("a", "b"))
        (('a', 'c'), None)
    """
    if ends is None or not (ends[0] + ends[1]).isascii():  # some writers compare beyond ASCII by bytes
        return None
    return ends if new is None else outermost([*ends, *new])


_SAMPLES_PER_RUN = 256
#: A run, and a range, is this part of the memory.
_MEMORY_PARTS_PER_RUN = 8
#: A batch of a run is this part of the memory: at the ends of a range, a part of a batch holds the whole of it.
_MEMORY_PARTS_PER_BATCH = 1024
_MIN_BATCH_BYTES = 16 << 10
_SORT_KEY = "_lakefmt_sort_key"


@dataclass(frozen=True, slots=True)
class _SpilledRun:
    """A sorted file: keys sampled over it, and the first and last key of each of its batches."""

    path: Path
    num_bytes: int
    samples: pa.Array
    firsts: pa.Array
    lasts: pa.Array


@dataclass(frozen=True, slots=True)
class _Cut:
    """A place in the order: before all rows with this key, or after them; no key: before or after everything."""

    key: pa.Scalar | None
    after: bool


def gather_windows(
    tables: Iterable[pa.Table], window_bytes: int, more_bytes: int = 0
) -> Generator[tuple[pa.Table, bool]]:
    """Yield the rows of a stream in tables of about `window_bytes`; nothing of one is held while the next is gathered.

    With each comes whether it is known to be the last one. After a full one that is not asked, for the answer might take long,
    but what hands the tables out may say by itself that none is left, as that of a list does.

    Args:
        tables: the rows.
        window_bytes: where a table of them is full.
        more_bytes: a table that is full takes in what is left of the table at hand, when it is no more than this: few rows
            of their own cost as many calls as a window of them.

    Raises:
        SchemaMismatch: a later table has other columns than the first.

    Example:
        >>> [(t.num_rows, last) for t, last in gather_windows([pa.table({"n": range(5)})] * 2, 48)]
        [(6, False), (4, True)]
        >>> [(t.num_rows, last) for t, last in gather_windows([pa.table({"n": range(5)})] * 2, 48, 32)]
        [(10, True)]
    """
    waiting: list[pa.Table] = []
    held = 0
    handed = iter(tables)
    for table in handed:
        row_bytes = max(1.0, table.nbytes / max(1, table.num_rows))
        start = 0
        while start < table.num_rows:
            rows = math.ceil((window_bytes - held) / row_bytes)
            if (table.num_rows - start - rows) * row_bytes <= more_bytes:
                rows = table.num_rows - start
            waiting.append(table.slice(start, rows))
            start += waiting[-1].num_rows
            held += max(1, waiting[-1].nbytes)
            if held >= window_bytes:
                yield _joined_and_emptied(waiting), start == table.num_rows and length_hint(handed, 1) == 0
                held = 0
        del table
    if waiting:
        yield _joined_and_emptied(waiting), True


def _joined_and_emptied(waiting: list[pa.Table]) -> pa.Table:
    try:
        whole = pa.concat_tables(waiting)
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(f"batches of one write must have one schema: {error}") from error
    waiting.clear()
    return whole


def sort_stream(
    tables: Iterable[pa.Table], sort_key: Callable[[pa.Table], pa.Array], memory_bytes: int
) -> Generator[pa.Table]:
    """Yield the rows of a stream in the order of `sort_key`, in tables of at most about an eighth of `memory_bytes`.

    Args:
        tables: the rows; a table that is not held by anybody else is let go as soon as it is read.
        sort_key: gives each row a string; rows are ordered by its bytes.
        memory_bytes: what may be held; the reader of the tables is left about a half of it.

    Raises:
        SchemaMismatch: a later table has other columns than the first.
        StorageError: the temporary directory could not take the rows, or lost them.

    Example:
        >>> one, two = pa.table({"k": ["d", "a"]}), pa.table({"k": ["c", "b"]})
        >>> [t["k"].to_pylist() for t in sort_stream([one, two], lambda t: t["k"].combine_chunks(), 1 << 20)]
        [['a', 'b', 'c', 'd']]
    """
    range_bytes = max(1, row_memory(memory_bytes) // _MEMORY_PARTS_PER_RUN)
    with ExitStack() as stack:
        with spilling():
            # What was in it may be gone by the end: some systems empty temporary directories.
            from tempfile import TemporaryDirectory  # few loads are sorted

            made = TemporaryDirectory(prefix="lakefmt-sort-", ignore_cleanup_errors=True)
            directory = stack.enter_context(made)
        runs: list[_SpilledRun] = []
        batch_bytes = max(_MIN_BATCH_BYTES, memory_bytes // _MEMORY_PARTS_PER_BATCH)
        columns: pa.Schema | None = None
        for window, _ in gather_windows(tables, range_bytes):
            columns = _checked_schema(window.schema, columns)
            path = Path(directory) / f"{len(runs)}.arrow"
            runs.append(_spill_run(path, window, sort_key(window), batch_bytes))
            del window
            _release_memory()
        for low, high in pairwise(_range_cuts(runs, range_bytes)):
            parts = (part for run in runs for part in _rows_between(run, low, high))
            if low.key is not None and low.key == high.key:
                rows = (part.drop_columns([_SORT_KEY]) for part in parts)
                yield from map(itemgetter(0), gather_windows(rows, range_bytes))  # a generator would hold on to each
            elif taken := list(parts):
                ordered = _joined_in_order(taken)
                _release_memory()
                yield ordered
                del ordered
            _release_memory()


def _checked_schema(schema: pa.Schema, first: pa.Schema | None) -> pa.Schema:
    """Return the columns of all windows.

    Raises:
        SchemaMismatch: a window has others than the first one.
    """
    if first is not None and not schema.equals(first):
        raise SchemaMismatch(
            f"batches of one write must have one schema: {', '.join(map(str, schema))} came after {', '.join(map(str, first))}"
        )
    return schema


def _release_memory() -> None:
    # Freed memory goes back to the system, or the next step's larger pieces come on top of it.
    pa.default_memory_pool().release_unused()


def _spill_run(path: Path, table: pa.Table, key: pa.Array, batch_bytes: int) -> _SpilledRun:
    order = pc.sort_indices(key)
    ordered = plain_columns(table).append_column(_SORT_KEY, key).take(order)
    rows = max(1, int(batch_bytes * ordered.num_rows / max(1, ordered.nbytes)))
    with spilling(), pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, ordered.schema) as writer:
        writer.write_table(ordered, max_chunksize=rows)
    keys, last = ordered.column(_SORT_KEY).combine_chunks(), ordered.num_rows - 1
    sampled = np.linspace(0, last, min(_SAMPLES_PER_RUN, ordered.num_rows)).astype(np.int64)
    starts = np.arange(0, ordered.num_rows, rows)
    ends = np.minimum(starts + rows - 1, last)
    samples, firsts, lasts = (keys.take(from_numpy(rows)) for rows in (sampled, starts, ends))
    return _SpilledRun(path, ordered.nbytes, samples, firsts, lasts)


def _range_cuts(runs: Sequence[_SpilledRun], range_bytes: int) -> list[_Cut]:
    """Return where the ranges begin and end; a key that fills a range has one of its own, where nothing is sorted."""
    ranges = -(-sum(run.num_bytes for run in runs) // range_bytes)
    cuts = [_Cut(None, after=False)]
    if ranges > 1:
        samples = pa.concat_arrays([run.samples for run in runs])
        ordered = samples.take(pc.sort_indices(samples))
        sampled = np.linspace(0, len(ordered) - 1, int(ranges) + 1)[1:-1].astype(np.int64)
        chosen = pc.value_counts(ordered.take(from_numpy(sampled)))
        for key, often in zip(chosen.field("values"), chosen.field("counts").to_numpy(), strict=True):
            cuts += [_Cut(key, after=False), _Cut(key, after=True)][: min(2, often)]
    return [*cuts, _Cut(None, after=True)]


def _rows_between(run: _SpilledRun, low: _Cut, high: _Cut) -> Iterator[pa.Table]:
    """Yield the rows of a run between two cuts; only batches that hold some are read."""
    first, last = _keys_below(run.lasts, low), _keys_below(run.firsts, high)
    if first >= last:
        return
    with spilling(), pa.OSFile(str(run.path)) as source, pa.ipc.open_file(source) as batches:
        for number in range(first, last):
            batch = batches.get_batch(number)
            keys = batch.column(_SORT_KEY)
            begin = _keys_below(keys, low) if number == first else 0
            end = _keys_below(keys, high) if number == last - 1 else len(keys)
            if end - begin == len(keys):
                yield pa.Table.from_batches([batch])
            elif begin < end:
                # A copy: a part would keep the whole batch, and of many runs a range takes just such parts.
                yield pa.Table.from_batches([batch.take(from_numpy(np.arange(begin, end)))])


def _keys_below(keys: pa.Array, cut: _Cut) -> int:
    if cut.key is None:
        return len(keys) if cut.after else 0
    compare = pc.less_equal if cut.after else pc.less
    return int(pc.sum(compare(keys, cut.key)).as_py() or 0)


def _joined_in_order(parts: list[pa.Table]) -> pa.Table:
    table = pa.concat_tables(parts)
    parts.clear()
    return table.take(pc.sort_indices(table.column(_SORT_KEY))).drop_columns([_SORT_KEY])
