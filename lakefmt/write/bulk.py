"""A stream of new rows becomes files: window by window, partition by partition, in bounded memory (effects).

Three things go on at once: rows of one group of partitions are written, those of the next are taken out of the window,
and the thread that called reads and keys the next window. Each waits only for what it needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from functools import partial
from itertools import pairwise
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.filegroups.access import TableAccess
from lakefmt.keys import KeySpec
from lakefmt.values import RECORD_KEY, PartitionPath
from lakefmt.write.assign import FileSizing, new_file, stable_order
from lakefmt.write.files import FileInProgress, prepare
from lakefmt.write.hands import Hands, results, threads_of
from lakefmt.write.incoming import KeyedBatch, key_batch, with_keys
from lakefmt.write.sorting import gather_windows, sort_stream
from lakefmt.write.values import WriteContext, WriteStatus

__all__ = ["stream_files"]

Rows = npt.NDArray[np.int64]

#: Keys of open files take at most this part of the window's bytes; more of them wait on the disk. In a small window all
#: do: they are all that outlives a window's rows, and the allocator keeps those rows' pages for their sake.
_KEY_PARTS = 8
_HOLDS_KEYS = 96 << 20
#: Rows that are put in the order of their partitions together: a column of them stays in the processor's caches.
_CHUNK_ROWS = 1 << 16
#: A window's partitions are written in so many groups. The rows of three of them are held twice: one is taken out of the
#: window while one is written and the rest of the one before is.
_GROUPS = 8
_GROUPS_WRITTEN = 2
#: So many first rows show that a column is not the keys.
_TWINS_SHOW = 64


def stream_files(
    access: TableAccess,
    context: WriteContext,
    spec: KeySpec,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    sizing: Callable[[pa.Table], FileSizing],
    sort: str,
) -> tuple[list[WriteStatus], int]:
    """Write new files from a stream in bounded memory: one open file per partition; returns the rows that came in.

    Rows wait in a window until it is full; then each partition's part becomes a row group of its file.
    """
    window_bytes = context.settings.integer("lakefmt.write.window.bytes")
    allow_null = context.settings.text("lakefmt.write.null_list_elements") == "allow"
    keyed = partial(key_batch, spec, schema=schema, allow_null_elements=allow_null)
    statuses: list[WriteStatus] = []
    rows_in = 0
    # The hands are the inner ones: when something fails, nobody writes any more before the files are given up.
    with ExitStack() as stack, Hands(threads_of(context)) as hands:
        writer: _PartitionWriter | None = None
        windows: Iterator[tuple[pa.Table, bool]]
        # They are closed here: an error holds on to this frame, and it to a sort's temporary files.
        if sort == "global":
            ordered = stack.enter_context(
                closing(sort_stream(tables, lambda table: _sort_key(keyed(table)), window_bytes))
            )
            windows = map(_with_more, ordered)
        else:
            windows = stack.enter_context(closing(gather_windows(tables, window_bytes)))
        for window, last in windows:
            if writer is None:
                writer = _PartitionWriter(access, context, sizing(window), stack, hands)
            rows_in += window.num_rows
            writer.write(keyed(window), in_order=sort == "partition", last=last)
            # What is freed goes back to the system; what is still named would be held while the next rows gather.
            del window
            if sort == "global":
                statuses += writer.finish_passed()
        if writer is not None:
            statuses += writer.close()
    return statuses, rows_in


def _with_more(window: pa.Table) -> tuple[pa.Table, bool]:
    """Return a window that may not be the last one (a generator or a zip would hold on to it)."""
    return window, False


def _sort_key(batch: KeyedBatch) -> pa.Array:
    """Return each row's partition and key as one string: the order of a sorted bulk insert."""
    names = batch.partitions.cast(pa.string())
    return names if batch.keys is None else pc.binary_join_element_wise(names, batch.keys, "\x00")


class _Spread:
    """A window's rows, with their keys, by partition; a partition's stay in order.

    Chunk by chunk: each is put in the order of its partitions while it is in the processor's caches, and cut. Rows taken
    from the whole window, partition by partition, cost four times as much.
    """

    def __init__(self, batch: KeyedBatch, hands: Hands) -> None:
        table, self._twin = _without_twin(batch)
        table = with_keys(table, batch.keys)
        if table.num_columns and table.column(0).num_chunks * _CHUNK_ROWS > 4 * table.num_rows > 4 * _CHUNK_ROWS:
            table = table.combine_chunks()
        self._hands = hands
        self._chunks = table.to_batches(max_chunksize=_CHUNK_ROWS)
        self._names = [PartitionPath(name) for name in batch.partitions.dictionary.to_pylist()]  # partitions, not rows
        codes = batch.partitions.indices.to_numpy(zero_copy_only=False)
        self._counts = np.bincount(codes, minlength=len(self._names))
        ends = np.cumsum([len(chunk) for chunk in self._chunks])
        parts = np.split(codes, ends[:-1])
        self._orders = results([hands.give(self._order, part) for part in parts])

    @property
    def lends_rows(self) -> bool:
        """True when some groups are parts of the window itself, so that it is held as long as they are."""
        return any(order is None for order, _ in self._orders)

    def _order(self, codes: npt.NDArray[np.int32]) -> tuple[Rows | None, list[int]]:
        """Return the order of a chunk's rows, None when they are in order, and where each partition begins in it."""
        order = stable_order(codes) if (codes[1:] < codes[:-1]).any() else None
        ordered = codes if order is None else codes[order]
        return order, list(map(int, np.searchsorted(ordered, np.arange(len(self._names) + 1))))

    def groups(self) -> Iterator[list[tuple[PartitionPath, pa.Table]]]:
        """Yield the partitions that have rows, some at a time; the next ones are cut out meanwhile."""
        shares = np.cumsum(self._counts)[:-1] * _GROUPS // max(1, int(self._counts.sum()))
        ends = map(int, np.flatnonzero(np.diff(shares)) + 1)
        spans = list(pairwise([0, *ends, len(self._names)]))
        ahead = self._cuts(*spans[0])
        for at, (low, high) in enumerate(spans):
            cuts = results(ahead)
            ahead = self._cuts(*spans[at + 1]) if at + 1 < len(spans) else []
            found = ([piece for piece in mine if len(piece)] for mine in zip(*cuts, strict=True))
            del cuts
            group = zip(self._names[low:high], found, strict=False)
            yield [(name, self._whole(pieces)) for name, pieces in group if pieces]

    def _whole(self, pieces: list[pa.RecordBatch]) -> pa.Table:
        table = pa.Table.from_batches(pieces)
        if self._twin is None:
            return table
        at, field = self._twin
        return table.add_column(at, field, table.column(RECORD_KEY))

    def _cuts(self, low: int, high: int) -> list[Future[list[pa.RecordBatch]]]:
        return [self._hands.give(self._cut, low, high, number) for number in range(len(self._chunks))]

    def _cut(self, low: int, high: int, number: int) -> list[pa.RecordBatch]:
        """Return a chunk's rows of each of the partitions from `low` to `high`."""
        chunk, (order, starts) = self._chunks[number], self._orders[number]
        first, end = starts[low], starts[high]
        mine = chunk.slice(first, end - first) if order is None else chunk.take(pa.array(order[first:end]))
        return [mine.slice(at - first, to - at) for at, to in pairwise(starts[low : high + 1])]


def _without_twin(batch: KeyedBatch) -> tuple[pa.Table, tuple[int, pa.Field] | None]:
    """Return the rows without the column that equals their keys, and where it stands once the keys are the first column.

    The keys of most tables are a column's texts: the longest values of a row need not be taken twice.
    """
    for at, field in enumerate(batch.table.schema):
        if batch.keys is not None and field.type == batch.keys.type:
            column = batch.table.column(at)
            if column[:_TWINS_SHOW].equals(pa.chunked_array([batch.keys[:_TWINS_SHOW]])) and column.equals(
                pa.chunked_array([batch.keys])
            ):
                return batch.table.remove_column(at), (at + 1, field)
    return batch.table, None


class _PartitionWriter:
    """New files of a bulk insert, one open per partition; full ones are finished and followed by the next."""

    def __init__(
        self, access: TableAccess, context: WriteContext, sizing: FileSizing, stack: ExitStack, hands: Hands
    ) -> None:
        self._access = access
        self._context = context
        self._sizing = sizing
        self._stack = stack
        self._hands = hands
        self._open: dict[PartitionPath, FileInProgress] = {}
        self._next_sequence = 0
        self._starting = Lock()
        self._running: deque[list[Future[list[WriteStatus]]]] = deque()
        #: What is done last to each partition's file: rows of the next window come behind it.
        self._last: dict[PartitionPath, Future[list[WriteStatus]]] = {}
        self._done: list[WriteStatus] = []
        memory = context.settings.integer("lakefmt.write.window.bytes")
        self._key_bytes = memory // _KEY_PARTS if memory >= _HOLDS_KEYS else 0

    def write(self, batch: KeyedBatch, *, in_order: bool = False, last: bool = False) -> None:
        """Append a window's rows to their partitions' files; the last groups are still being written at the end.

        Args:
            batch: the rows.
            in_order: sort them by partition and key first.
            last: no other rows come, so that the files they are for are finished.
        """
        if in_order:
            batch = batch.take(pc.sort_indices(_sort_key(batch)))
        spread = _Spread(batch, self._hands)
        del batch
        for group in spread.groups():
            for partition, _ in group:
                if partition not in self._open:
                    self._open[partition] = self._start(partition)
            self._running.append([self._give(partition, rows, last=last) for partition, rows in group])
            del group
            self._settle(_GROUPS_WRITTEN - 1)
        if spread.lends_rows:
            self._settle()

    def _give(self, partition: PartitionPath, rows: pa.Table, *, last: bool) -> Future[list[WriteStatus]]:
        work = self._hands.give(self._append, partition, rows, self._last.get(partition), last)
        self._last[partition] = work
        return work

    def _settle(self, left: int = 0) -> None:
        """Wait until so many groups are left."""
        while len(self._running) > left:
            for finished in results(self._running.popleft()):
                self._done += finished
            pa.default_memory_pool().release_unused()

    def _append(
        self, partition: PartitionPath, rows: pa.Table, before: Future[list[WriteStatus]] | None, last: bool
    ) -> list[WriteStatus]:
        if before is not None:
            before.result()  # works are begun in their order, so whoever is waited for is at work
        finished = []
        while rows.num_rows:
            if partition not in self._open:
                self._open[partition] = self._start(partition)
            file = self._open[partition]
            room = self._sizing.room(file.size_bytes) if file.num_rows else self._sizing.rows_per_file
            if room:
                file.append(rows.slice(0, room))
                rows = rows.slice(room)
            # Filters that are made while others write cost half of those that are made side by side at the end: NumPy's
            # short steps then wait for each other.
            if file.size_bytes >= self._sizing.max_bytes or rows.num_rows or last:
                finished.append(file.finish())
                del self._open[partition]
            elif self._held_bytes() > self._key_bytes:
                file.spill()
        return finished

    def _held_bytes(self) -> int:
        return sum(file.held_bytes for file in list(self._open.values()))

    def _start(self, partition: PartitionPath) -> FileInProgress:
        with self._starting:
            sequence, self._next_sequence = self._next_sequence, self._next_sequence + 1
            assignment = new_file(partition, self._context.instant, sequence, self._access.ids.new_uuid, rows=None)
            prepare(self._access.store, self._context, assignment)
            return FileInProgress(self._access.store, self._context, assignment, self._stack)

    def finish_passed(self) -> list[WriteStatus]:
        """Finish the files of partitions that a sorted stream has left behind: their keys need not be held."""
        self._settle()
        passed = sorted(self._open)[:-1]
        if passed:
            pa.default_memory_pool().release_unused()  # what the rows took: filters are made now
        return self._finish(passed)

    def close(self) -> list[WriteStatus]:
        """Finish every open file."""
        self._settle()
        return self._finish(list(self._open))

    def _finish(self, partitions: Iterable[PartitionPath]) -> list[WriteStatus]:
        works = [self._hands.give(self._open.pop(partition).finish) for partition in partitions]
        done, self._done = self._done, []
        return [*done, *results(works)]
