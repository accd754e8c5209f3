"""A stream of new rows becomes files: window by window, partition by partition, in bounded memory (effects).

Three things go on at once: rows of one group of partitions are written, those of the next are taken out of the window,
and the thread that called reads and keys the next window. Each waits only for what it needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.errors import LakefmtError
from lakefmt.filegroups.table_client import TableClient
from lakefmt.formats.bloom.bloom_filter import BloomFilter
from lakefmt.keys import KeySpec
from lakefmt.sorting.external_sort import gather_windows, sort_stream
from lakefmt.values import PartitionPath
from lakefmt.write.assign import FileSizing, new_file
from lakefmt.write.bound_context import BoundContext, announce, prepare
from lakefmt.write.bulk._partition_splitter import PartitionSplitter, partition_constants
from lakefmt.write.context import FileAssignment, WriteStatus
from lakefmt.write.files.base_file import FileInProgress
from lakefmt.write.files.key_filters import bloom_filters_of_parts
from lakefmt.write.files.small_new_files import (
    FEWEST_NEW_FILES,
    MOST_NEW_ROWS,
    can_be_written_together,
    files_at_a_time,
    write_small_files,
)
from lakefmt.write.files.workers import WorkerPool, results
from lakefmt.write.ingest import KeyedBatch

__all__ = ["stream_files"]

#: Keys of open files take at most this part of the window's bytes; more of them wait on the disk. In a small window all
#: do: they are all that outlives a window's rows, and the allocator keeps those rows' pages for their sake.
_KEY_PARTS = 8
_HOLDS_KEYS = 96 << 20
#: A rest of a table that is no more than this part of a window joins it: a row group of few rows of each partition costs
#: half as many calls again (a tenth of the time, where a sixth of the rows was left).
_REST_PARTS = 4
#: Batches below this number of rows are keyed by one thread.
_PART_ROWS = 1 << 16
#: Groups of a window's partitions that are written at a time.
_GROUPS_WRITTEN = 2
#: Bytes of rows that are worth a file of their own, beside another one of their partition.
_LANE_BYTES = 16 << 20

#: A partition, and which of its open files.
_Lane = tuple[PartitionPath, int]


def stream_files(
    client: TableClient,
    bound: BoundContext,
    spec: KeySpec,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    keyed: Callable[[pa.Table], KeyedBatch],
    sizing: Callable[[pa.Table], FileSizing],
    sort: str,
) -> list[WriteStatus]:
    """Write new files from a stream in bounded memory: one open file per partition, or some where partitions are few.

    Rows wait in a window until it is full; then each partition's part becomes a row group of its file. Rows of more
    partitions than files may be open are put in the order of their partitions first, through temporary files.
    """
    window_bytes = bound.settings.integer("lakefmt.write.window.bytes")
    most_open = bound.settings.integer("lakefmt.write.open.files")
    is_ordered = sort not in ("none", "partition")
    statuses: list[WriteStatus] = []
    # The pool is the inner context: when something fails, its threads end before the files are discarded.
    with ExitStack() as stack, WorkerPool(bound.threads) as workers:
        writer: _PartitionWriter | None = None
        windows: Iterator[tuple[pa.Table, bool]]
        # They are closed here: an error holds on to this frame, and it to a sort's temporary files.
        if is_ordered:
            keys = _sort_key if sort == "global" else _keys_by_columns(sort, schema)
            ordered = stack.enter_context(closing(sort_stream(tables, lambda table: keys(keyed(table)), window_bytes)))
            windows = map(_with_more, ordered)
        else:
            windows = stack.enter_context(closing(gather_windows(tables, window_bytes, window_bytes // _REST_PARTS)))
            begun = list(islice(windows, 1))
            is_ordered = len(begun) == 1 and not begun[0][1] and _num_partitions(keyed, begun[0][0]) > most_open
            windows = chain(_emptied(begun), windows)
            if is_ordered:
                by_partition = sort_stream(
                    map(itemgetter(0), windows), lambda table: keyed(table).partitions.cast(pa.string()), window_bytes
                )
                windows = map(_with_more, stack.enter_context(closing(by_partition)))
        for window, last in windows:
            # All threads key the first window: they have nothing to write yet.
            parts = 1 if writer is not None or sort != "none" else bound.threads
            if writer is None:
                constants = partial(partition_constants, spec, schema) if bound.virtual_columns is None else _nothing
                writer = _PartitionWriter(client, bound, sizing(window), stack, workers, constants)
            batches = _keyed_parts(keyed, window, workers, parts)
            lanes = bound.threads if sort == "none" and not is_ordered else 1
            writer.write(batches, in_order=sort == "partition", lanes=lanes, last=last, ordered=is_ordered)
            del batches
            # What is freed goes back to the system; what is still named would be held while the next rows gather.
            del window
            if is_ordered:
                statuses += writer.finish_passed()
        if writer is not None:
            statuses += writer.close()
    return statuses


def _keys_by_columns(sort: str, schema: pa.Schema) -> Callable[[KeyedBatch], pa.Array]:
    # Imported here: few loads are ordered by columns.
    from lakefmt.write.bulk.row_order import OrderInPartitions, parse_sort

    order = parse_sort(sort)
    return _sort_key if order is None else OrderInPartitions(order, schema).keys


def _num_partitions(keyed: Callable[[pa.Table], KeyedBatch], window: pa.Table) -> int:
    """Return how many partitions the first rows of a window are for."""
    return len(keyed(window.slice(0, _PART_ROWS)).partitions.dictionary)


def _with_more(window: pa.Table) -> tuple[pa.Table, bool]:
    """Return a window that may not be the last one (a generator or a zip would hold on to it)."""
    return window, False


def _emptied(windows: list[tuple[pa.Table, bool]]) -> Iterator[tuple[pa.Table, bool]]:
    """Yield windows without holding on to them."""
    while windows:
        yield windows.pop(0)


def _nothing(_: PartitionPath) -> Mapping[str, str]:
    return {}


def _keyed_parts(
    keyed: Callable[[pa.Table], KeyedBatch], window: pa.Table, workers: WorkerPool, parts: int
) -> list[KeyedBatch]:
    """Return a window's rows with their keys, in at most `parts` parts.

    Raises:
        SchemaMismatch: a value does not fit its column.
        InvalidKey: a key or partition value cannot be used.
    """
    step = max(_PART_ROWS, -(-window.num_rows // parts))
    if window.num_rows <= step:
        return [keyed(window)]
    works = [workers.submit(keyed, window.slice(start, step)) for start in range(0, window.num_rows, step)]
    try:
        return results(works)
    except LakefmtError:
        keyed(window)  # says the same of the whole: which row it is, and how many
        raise


def _sort_key(batch: KeyedBatch) -> pa.Array:
    """Return each row's partition and key as one string: the order of a sorted bulk insert."""
    names = batch.partitions.cast(pa.string())
    return names if batch.keys is None else pc.binary_join_element_wise(names, batch.keys, "\x00")


class _PartitionWriter:
    """New files of a bulk insert; full ones are finished and followed by the next.

    One is open per partition, unless there are fewer partitions than threads: then each thread has one (a lane).
    """

    def __init__(
        self,
        client: TableClient,
        bound: BoundContext,
        sizing: FileSizing,
        stack: ExitStack,
        workers: WorkerPool,
        constants: Callable[[PartitionPath], Mapping[str, str]],
    ) -> None:
        self._client = client
        self._bound = bound
        self._sizing = sizing
        self._stack = stack
        self._workers = workers
        self._constants = constants
        self._open: dict[_Lane, FileInProgress] = {}
        self._next_sequence = 0
        #: Files that are not begun yet, and what announcing them together said.
        self._announced: dict[PartitionPath, FileAssignment] = {}
        self._first_attempt: bool | None = None
        self._together = self._has_files = False
        self._starting = Lock()
        self._running: deque[list[Future[list[WriteStatus]]]] = deque()
        #: What is done last to each partition's file: rows of the next window come behind it.
        self._last: dict[_Lane, Future[list[WriteStatus]]] = {}
        self._done: list[WriteStatus] = []
        #: What the rows of a group took goes back to the system, unless there is but one window: its groups use one
        #: another's memory, and asking for new pages was a twentieth of the time.
        self._more_come = False
        memory = bound.settings.integer("lakefmt.write.window.bytes")
        self._key_bytes = memory // _KEY_PARTS if memory >= _HOLDS_KEYS else 0
        self._most_open = bound.settings.integer("lakefmt.write.open.files")

    def write(
        self,
        batches: Sequence[KeyedBatch],
        *,
        in_order: bool = False,
        lanes: int = 1,
        last: bool = False,
        ordered: bool = False,
    ) -> None:
        """Append a window's rows to their partitions' files; the last groups are still being written at the end.

        Where more files would be open than may be, those are finished that were written to longest ago.

        Args:
            batches: the rows, one batch's behind the other's.
            in_order: sort those of each by partition and key first.
            lanes: how many files may be written side by side.
            last: no other rows come, so that the files they are for are finished.
            ordered: the windows come in the order of partitions: no other rows come for any but the last one.
        """
        if in_order:
            batches = [batch.take(pc.sort_indices(_sort_key(batch))) for batch in batches]
        self._more_come |= not last
        together = last and can_be_written_together(self._bound)
        spread = PartitionSplitter(batches, self._workers, self._constants, self._are_small if together else None)
        del batches
        begun = {partition for partition, _ in self._open}
        self._announce([partition for partition in spread.partitions if partition not in begun])
        going_on = max(spread.partitions, default=None) if ordered and not last else None
        for group in spread.groups(max(1, self._most_open // (_GROUPS_WRITTEN + 1))):
            parts = [part for partition, rows in group for part in _in_lanes(partition, rows, lanes // len(group))]
            self._make_room(parts)
            new = [(lane, rows) for lane, rows in parts if lane not in self._open]
            # Of files that get no other rows the filters can be made together.
            blooms = bloom_filters_of_parts(self._bound, [rows for _, rows in new]) if last else [None] * len(new)
            for (lane, _), bloom in zip(new, blooms, strict=True):
                self._open[lane] = self._start(lane[0], bloom)
            del new, blooms
            ends = [last or (ordered and lane[0] != going_on) for lane, _ in parts]
            self._running.append([self._give(*part, last=end) for part, end in zip(parts, ends, strict=True)])
            del group, parts
            self._settle(_GROUPS_WRITTEN - 1)
        most = files_at_a_time(spread.num_small, self._bound.threads)
        self._running.append([self._give_together(spread, span) for span in spread.small_spans(most)])
        if spread.shares_rows:
            self._settle()

    def _are_small(self, partitions: Sequence[PartitionPath], counts: Sequence[int]) -> list[bool]:
        """Return which partitions of the last window are written together: many with few rows, and without an open file."""
        most, begun = min(MOST_NEW_ROWS, self._sizing.rows_per_file), {partition for partition, _ in self._open}
        small = [0 < rows <= most and name not in begun for name, rows in zip(partitions, counts, strict=True)]
        return small if sum(small) >= FEWEST_NEW_FILES else [False] * len(small)

    def _give_together(self, spread: PartitionSplitter, span: range) -> Future[list[WriteStatus]]:
        with self._starting:
            assigned = [self._next_file(partition) for partition in spread.names_of(span)]
        # A file behind the one that made room for others was announced by itself.
        announced = all(first_attempt for _, first_attempt in assigned) if self._together else None

        def write() -> list[WriteStatus]:
            rows, counts = spread.rows_of(span)
            return write_small_files(self._bound, [each for each, _ in assigned], counts, rows, announced=announced)

        return self._workers.submit(write)

    def _make_room(self, parts: Sequence[tuple[_Lane, pa.Table]]) -> None:
        """Finish the files that were written to longest ago, where these parts would open more than may be."""
        coming = {lane for lane, _ in parts}
        if len(self._open.keys() | coming) <= self._most_open:
            return
        self._settle()
        others = [lane for lane in self._open if lane not in coming]
        for lane in coming & self._open.keys():
            self._open[lane] = self._open.pop(lane)  # written to last
        self._done = self._finish(others[: max(0, len(others) + len(coming) - self._most_open)])

    def _give(self, lane: _Lane, rows: pa.Table, *, last: bool) -> Future[list[WriteStatus]]:
        work = self._workers.submit(self._append, lane, rows, self._last.get(lane), last)
        self._last[lane] = work
        return work

    def _settle(self, left: int = 0) -> None:
        """Wait until at most `left` groups are being written."""
        while len(self._running) > left:
            for finished in results(self._running.popleft()):
                self._done += finished
            if self._more_come:
                pa.default_memory_pool().release_unused()

    def _append(
        self, lane: _Lane, rows: pa.Table, before: Future[list[WriteStatus]] | None, last: bool
    ) -> list[WriteStatus]:
        if before is not None:
            before.result()  # tasks start in their order, so the one waited for is running
        finished = []
        while rows.num_rows:
            if lane not in self._open:
                self._open[lane] = self._start(lane[0])
            file = self._open[lane]
            room = self._sizing.room(file.size_bytes) if file.num_rows else self._sizing.rows_per_file
            if room:
                file.append(rows.slice(0, room))
                rows = rows.slice(room)
            # Filters that are made while others write cost half of those that are made side by side at the end: NumPy's
            # short steps then wait for each other.
            if file.size_bytes >= self._sizing.max_bytes or rows.num_rows or last:
                finished.append(file.finish())
                del self._open[lane]
            elif self._held_bytes() > self._key_bytes:
                file.spill()
        return finished

    def _held_bytes(self) -> int:
        return sum(file.held_bytes for file in list(self._open.values()))

    def _announce(self, partitions: Sequence[PartitionPath]) -> None:
        """Announce the files that a window begins, many at once."""
        with self._starting:
            if not partitions or (self._has_files and not self._together):
                return  # how its first files were announced holds for the whole write
            files = {partition: self._assign(partition) for partition in partitions}
            self._first_attempt = announce(self._bound, list(files.values()), more=self._together)
            self._together = self._first_attempt is not None
            self._announced |= files

    def _assign(self, partition: PartitionPath) -> FileAssignment:
        sequence, self._next_sequence = self._next_sequence, self._next_sequence + 1
        return new_file(partition, self._bound.instant, sequence, self._client.ids.new_uuid, rows=None)

    def _start(self, partition: PartitionPath, bloom: BloomFilter | None = None) -> FileInProgress:
        with self._starting:
            assignment, announced = self._next_file(partition)
            prepare(self._bound, assignment, announced=announced)
            return FileInProgress(self._bound, assignment, self._stack, bloom)

    def _next_file(self, partition: PartitionPath) -> tuple[FileAssignment, bool | None]:
        """Return a partition's next file, and what announcing it together with others said."""
        assignment, announced = self._announced.pop(partition, None), self._first_attempt
        if assignment is None:
            assignment = self._assign(partition)
            announced = announce(self._bound, [assignment], more=True) if self._together else None
        self._has_files = True
        return assignment, announced

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

    def _finish(self, lanes: Iterable[_Lane]) -> list[WriteStatus]:
        works = [self._workers.submit(self._open.pop(lane).finish) for lane in lanes]
        done, self._done = self._done, []
        return [*done, *results(works)]


def _in_lanes(partition: PartitionPath, rows: pa.Table, lanes: int) -> list[tuple[_Lane, pa.Table]]:
    """Return a partition's rows in at most `lanes` parts, each for a file of its own; few rows stay together.

    Example:
        >>> [(lane, part.num_rows) for lane, part in _in_lanes(PartitionPath("p"), pa.table({"v": [1, 2]}), 2)]
        [(('p', 0), 2)]
    """
    # To count the bytes of few rows takes longer than to slice them, and a write of many partitions has one lane for each.
    count = max(1, min(lanes, rows.nbytes // _LANE_BYTES)) if lanes > 1 else 1
    step = max(1, -(-rows.num_rows // count))
    starts = range(0, max(1, rows.num_rows), step)  # fewer than asked for, where no row would be left for the last ones
    return [((partition, number), rows.slice(start, step)) for number, start in enumerate(starts)]
