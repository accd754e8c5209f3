"""Bulk insert: a stream of new rows becomes files, window by window, partition by partition, in bounded memory.

Three things go on at once: rows of one group of partitions are written, those of the next are taken out of the window,
and the thread that called reads and keys the next window. Each waits only for what it needs.

In a table that keeps the order of rows in a bucket (docs/append.md, Order) every commit opens file groups of its own, at
least one for each bucket that its rows are for. No row is put in front of another one of its bucket, and no stored file is
touched: writers never conflict.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain, islice, pairwise
from operator import itemgetter
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arguments import comma_separated, parse_member, shown, text_argument
from lakefmt._core.arrays import from_numpy
from lakefmt._core.config.table_config import AppendLayout
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.names import queue_file_id
from lakefmt._core.formats.parquet.base_file import same_text, with_dictionaries
from lakefmt._core.formats.parquet.duplicate_columns import equal_column
from lakefmt._core.keys import KeySpec, parse_partition_values
from lakefmt._core.keys.generate import key_buckets
from lakefmt._core.sorting import (
    ColumnScale,
    Layout,
    RowOrder,
    check_order,
    column_scale,
    gather_windows,
    order_column,
    sort_keys,
    sort_stream,
)
from lakefmt._core.values import RECORD_KEY, InstantTime, PartitionPath
from lakefmt._core.write.assign import Assigned, FileSizing, new_file, open_file_group, rows_by_file_group, stable_order
from lakefmt._core.write.context import Announcements, BoundContext, FileAssignment, WriteStatus, prepare
from lakefmt._core.write.files.base_file import FileInProgress, WorkerPool, append_rows, results
from lakefmt._core.write.files.bundles import (
    MOST_NEW_ROWS,
    can_be_written_together,
    files_at_a_time,
    write_small_files,
)
from lakefmt._core.write.ingest import KeyedBatch, handed_out, with_keys
from lakefmt.errors import InvalidInputError, LakefmtError

__all__ = [
    "OrderInPartitions",
    "PartitionSplitter",
    "assign_queue_rows",
    "parse_sort",
    "partition_constants",
    "sort_text_of",
    "stream_files",
]

#: A partition, and which of its open files.
_Lane = tuple[PartitionPath, int]

Rows = npt.NDArray[np.int64]

#: Rows that are put in the order of their partitions together: a column of them stays in the processor's caches.
_SORTED_CHUNK_ROWS = 1 << 16
#: A window's partitions are handed out in this number of groups. The rows of three of them are held twice: one is taken out of the
#: window while one is written and the rest of the one before is.
_PARTITION_GROUPS = 8


def partition_constants(spec: KeySpec, schema: pa.Schema, partition: PartitionPath) -> Mapping[str, str]:
    """Return the columns of text whose one value in all rows of a partition its path tells.

    Args:
        spec: how the table makes paths.
        schema: the table's, without meta columns.
        partition: the path.

    Example:
        >>> from lakefmt._core.keys import plan_key_spec
        >>> schema = pa.schema([("id", pa.int64()), ("city", pa.string())])
        >>> partition_constants(plan_key_spec("id", "city"), schema, PartitionPath("city=s%2Ff"))
        {'city': 's/f'}
    """
    values = parse_partition_values(spec, partition, schema) or {}
    texts = {field.name for field in schema if pt.is_string(field.type)}
    return {name: value for name, value in values.items() if name in texts and isinstance(value, str)}


class PartitionSplitter:
    """A window's rows, with their keys, by partition; a partition's stay in order.

    Chunk by chunk: each is put in the order of its partitions while it is in the processor's caches, and cut. Rows taken
    from the whole window, partition by partition, cost four times as much.

    Args:
        batches: the rows, one batch's behind the other's, all of one schema.
        workers: the threads that do the work.
        constants_of: gives the columns of text whose one value a partition's path tells (:func:`partition_constants`).
        are_small: tells of the partitions and their numbers of rows which ones :meth:`small_spans` has.
    """

    def __init__(
        self,
        batches: Sequence[KeyedBatch],
        workers: WorkerPool,
        constants_of: Callable[[PartitionPath], Mapping[str, str]],
        are_small: Callable[[Sequence[PartitionPath], Sequence[int]], Sequence[bool]] | None = None,
    ) -> None:
        partitions = pa.chunked_array([batch.partitions for batch in batches]).unify_dictionaries().combine_chunks()
        names = [PartitionPath(name) for name in partitions.dictionary.to_pylist()]  # partitions, not rows
        codes = partitions.indices.to_numpy(zero_copy_only=False)
        counts = np.bincount(codes, minlength=len(names)) if len(names) != 1 else np.array([len(codes)])
        small = np.zeros(len(names), np.bool_)
        if are_small is not None:
            small[:] = are_small(names, counts.tolist())
        #: How many partitions are small: they are the first ones.
        self.num_small = int(small.sum())
        if 0 < self.num_small < len(names):
            order = np.argsort(~small, kind="stable")
            codes = np.argsort(order).astype(codes.dtype)[codes]
            names, counts = [names[index] for index in order], counts[order]
        self._names, self._counts = names, counts
        self._constants = {name: constants_of(name) for name in self._names}
        self._copy_of_keys = _duplicate_of(batches)
        whole = pa.concat_tables([with_keys(batch.table, batch.keys) for batch in batches])
        self._schema = whole.schema
        table = whole.select(self._taken())
        chunks, rows = max((column.num_chunks for column in table.columns), default=0), 4 * table.num_rows
        # Small chunks are one where there are many, and where their ends in each partition would be more than their rows.
        if chunks * _SORTED_CHUNK_ROWS > rows > 4 * _SORTED_CHUNK_ROWS or (chunks > 1 and chunks * len(names) > rows):
            table = table.combine_chunks()
        self._workers = workers
        self._chunks = table.to_batches(max_chunksize=_SORTED_CHUNK_ROWS)
        ends = np.cumsum([len(chunk) for chunk in self._chunks])
        parts = np.split(codes, ends[:-1])
        self._orders = results([workers.submit(self._order, part) for part in parts])

    def _taken(self) -> list[str]:
        """Return the columns that are taken out of the window; the others follow from the key and the partition."""
        constants = (
            set.intersection(*(set(columns) for columns in self._constants.values())) if self._constants else set()
        )
        names = [name for name in self._schema.names if name not in constants and name != self._copy_of_keys]
        return names or self._schema.names[:1]  # rows without columns would be no rows

    @property
    def shares_rows(self) -> bool:
        """True when some groups are parts of the window itself, so that it is held as long as they are."""
        return any(order is None for order, _ in self._orders)

    @property
    def partitions(self) -> list[PartitionPath]:
        """The partitions that have rows."""
        return [self._names[code] for code in np.flatnonzero(self._counts)]

    def _order(self, codes: npt.NDArray[np.int32]) -> tuple[Rows | None, list[int]]:
        """Return the order of a chunk's rows, None when they are in order, and where each partition begins in it."""
        order = stable_order(codes) if (codes[1:] < codes[:-1]).any() else None
        ordered = codes if order is None else codes[order]
        return order, list(map(int, np.searchsorted(ordered, np.arange(len(self._names) + 1))))

    def small_spans(self, most: int) -> list[range]:
        """Return the numbers of the small partitions, `most` at a time."""
        return [range(first, min(first + most, self.num_small)) for first in range(0, self.num_small, most)]

    def names_of(self, span: range) -> list[PartitionPath]:
        """Return the partitions of one of :meth:`small_spans`."""
        return self._names[span.start : span.stop]

    def rows_of(self, span: range) -> tuple[pa.Table, list[int]]:
        """Return the rows of one of :meth:`small_spans`, one partition's behind the other's, and how many are each one's."""
        low, high = span.start, span.stop
        batches, codes = [], []
        for number, (_, starts) in enumerate(self._orders):
            if starts[high] > starts[low]:
                batches.append(self._rows(number, starts[low], starts[high]))
                codes.append(np.repeat(np.arange(len(span)), np.diff(starts[low : high + 1])))
        rows, counts = pa.Table.from_batches(batches), self._counts[low:high].tolist()
        if len(batches) > 1:
            rows = rows.combine_chunks().take(from_numpy(stable_order(np.concatenate(codes))))
        numbers = from_numpy(np.repeat(np.arange(len(span)), counts))
        stored = frozenset(rows.column_names)

        def constant(column: str) -> pa.Array | None:
            if column in stored:  # not the same in all partitions of the window
                return None
            texts = [self._constants[name][column] for name in self.names_of(span)]
            return pa.array(texts, pa.string()).take(numbers)

        return pa.Table.from_arrays(self._with_constants(rows, constant), schema=self._schema), counts

    def groups(self, most: int = 1 << 20) -> Iterator[list[tuple[PartitionPath, pa.Table]]]:
        """Yield the other partitions that have rows, some at a time; the next ones are cut out meanwhile.

        Columns of one text come as dictionaries, in a partition all its rows or none of them.

        Args:
            most: partitions at a time.
        """
        begin, counts = self.num_small, self._counts[self.num_small :]
        if not counts.any():
            return
        shares = np.cumsum(counts)[:-1] * _PARTITION_GROUPS // int(counts.sum())
        ends = map(int, np.flatnonzero(np.diff(shares)) + 1 + begin)
        spans = [
            (first, min(first + most, high))
            for low, high in pairwise([begin, *ends, len(self._names)])
            for first in range(low, max(high, low + 1), most)
        ]
        ahead = self._cuts(*spans[0])
        for number, (low, high) in enumerate(spans):
            cuts = results(ahead)
            ahead = self._cuts(*spans[number + 1]) if number + 1 < len(spans) else []
            cut_out = ([part for part in parts if len(part)] for parts in zip(*cuts, strict=True))
            del cuts
            group = zip(self._names[low:high], cut_out, strict=False)
            yield [(name, self._whole(name, batches)) for name, batches in group if batches]

    def _whole(self, name: PartitionPath, batches: list[pa.RecordBatch]) -> pa.Table:
        table, constants = pa.Table.from_batches(batches), self._constants[name]

        def constant(column: str) -> pa.Array | None:
            return same_text(constants[column], table.num_rows) if column in constants else None

        columns = self._with_constants(table, constant)
        return pa.Table.from_arrays(columns, schema=with_dictionaries(self._schema, columns))

    def _with_constants(
        self, rows: pa.Table, constant: Callable[[str], pa.Array | None]
    ) -> list[pa.Array | pa.ChunkedArray]:
        """Return all columns of rows that were taken out of the window; `constant` has those that the path tells, else None."""

        def column(name: str) -> pa.Array | pa.ChunkedArray:
            if name == self._copy_of_keys:
                return rows.column(RECORD_KEY)
            made = constant(name)
            return rows.column(name) if made is None else made

        return list(map(column, self._schema.names))

    def _cuts(self, low: int, high: int) -> list[Future[list[pa.RecordBatch]]]:
        return [self._workers.submit(self._cut, low, high, number) for number in range(len(self._chunks))]

    def _cut(self, low: int, high: int, number: int) -> list[pa.RecordBatch]:
        """Return a chunk's rows of each of the partitions from `low` to `high`."""
        starts = self._orders[number][1][low : high + 1]
        rows = self._rows(number, starts[0], starts[-1])
        return [rows.slice(begin - starts[0], to - begin) for begin, to in pairwise(starts)]

    def _rows(self, number: int, first: int, end: int) -> pa.RecordBatch:
        """Return some of a chunk's rows, counted in their order."""
        chunk, order = self._chunks[number], self._orders[number][0]
        if order is None:
            return chunk.slice(first, end - first)
        return pc.take(chunk, from_numpy(order[first:end]), boundscheck=False)


def _duplicate_of(batches: Sequence[KeyedBatch]) -> str | None:
    """Return the column that equals the keys in all rows.

    The keys of most tables are a column's texts: the longest values of a row need not be taken twice.
    """
    names = batches[0].table.column_names
    return next((name for name in names if all(_is_duplicate(batch, name) for batch in batches)), None)


def _is_duplicate(batch: KeyedBatch, name: str) -> bool:
    return batch.keys is not None and equal_column(batch.table, pa.chunked_array([batch.keys]), [name]) is not None


def assign_queue_rows(
    batch: KeyedBatch,
    layout: AppendLayout,
    rows_per_file: int,
    instant: InstantTime,
    first: int,
    new_uuid: Callable[[], str],
) -> list[Assigned]:
    """Return the files to write.

    Args:
        batch: the rows.
        layout: the buckets.
        rows_per_file: a file takes no more.
        instant: the write's instant time.
        first: the number of the commit's first file among these; earlier parts of its rows have smaller ones.
        new_uuid: makes digits that tell file groups apart.

    Example:
        >>> import pyarrow as pa
        >>> rows = pa.table({"v": ["a", "b", "a"]})
        >>> homes = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0], pa.int32()), pa.array([""]))
        >>> layout = AppendLayout(True, ("v",), 4)
        >>> files = assign_queue_rows(KeyedBatch(rows, None, homes), layout, 9, "20260101000000000", 0, lambda: "a" * 36)
        >>> [(each.assignment.file_id, each.rows.tolist()) for each in files]
        [('b0000002-2026-8010-1000-000000aaaaaa-0', [0, 2]), ('b0000003-2026-8010-1000-000000aaaaaa-1', [1])]
    """
    codes = batch.partitions.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    names = batch.partitions.dictionary.to_pylist()  # partitions, not rows
    buckets = (
        key_buckets(batch.table, layout.bucket_key, layout.buckets)
        if layout.bucket_key
        else np.zeros(batch.num_rows, np.int64)
    )
    numbers, groups = np.unique(codes * layout.buckets + buckets, return_inverse=True)
    assigned: list[Assigned] = []
    for group, rows in rows_by_file_group(groups.astype(np.int64), np.arange(batch.num_rows)):
        code, bucket = divmod(int(numbers[group]), layout.buckets)
        for start in range(0, len(rows), rows_per_file):
            sequence, part = first + len(assigned), rows[start : start + rows_per_file]
            file_id = queue_file_id(bucket, instant, new_uuid()[-6:], sequence)
            file = open_file_group(PartitionPath(names[code]), file_id, instant, sequence, len(part))
            assigned.append(Assigned(file, part))
    return assigned


def sort_text_of(columns: object, order: object) -> str:
    """Return how a write request names an order.

    Raises:
        InvalidInputError: the arguments are no names of columns, or of an order.

    Example:
        >>> sort_text_of(["a", "b"], "zorder")
        'zorder:a,b'
    """
    given = [columns] if isinstance(columns, str) else columns
    if not isinstance(given, Sequence) or not given:
        raise InvalidInputError(f"columns are names of columns, not {shown(columns)}")
    names = [text_argument(name, "columns") for name in given]
    if any("," in name or not name for name in names):
        raise InvalidInputError(f"columns are names of columns without commas, not {shown(columns)}")
    return f"{parse_member(Layout, text_argument(order, 'order'), 'order').value}:{','.join(names)}"


def parse_sort(sort: str) -> RowOrder | None:
    """Return the order that a write request names; None: it names none by columns.

    Raises:
        UnknownSetting: there is no such order.
        InvalidInputError: it names no column.

    Example:
        >>> parse_sort("linear:a"), parse_sort("global")
        (RowOrder(columns=('a',), layout=<Layout.LINEAR: 'linear'>), None)
    """
    layout, colon, names = sort.partition(":")
    if not colon:
        return None
    columns = comma_separated(names)
    if not columns:
        raise InvalidInputError(f"sort={sort!r} names no column to order rows by")
    return RowOrder(columns, parse_member(Layout, layout, "order"))


class OrderInPartitions:
    """Sort keys of a stream: by partition, then by columns. The first rows are the sample that scales columns of a curve.

    Args:
        order: the columns, and how.
        schema: the table's columns.

    Raises:
        InvalidInputError: rows of the table cannot be ordered so.
    """

    def __init__(self, order: RowOrder, schema: pa.Schema) -> None:
        check_order(order, schema)
        self._order = order
        self._scales: dict[str, ColumnScale] | None = None

    def keys(self, batch: KeyedBatch) -> pa.Array:
        """Return each row's partition and place in the order as one text of bytes."""
        if self._scales is None:
            columns = self._order.columns if self._order.layout is not Layout.LINEAR else ()
            self._scales = {name: column_scale(order_column(batch.table, name)) for name in columns}
        partitions = batch.partitions.cast(pa.string()).cast(pa.binary())
        return pc.binary_join_element_wise(partitions, sort_keys(batch.table, self._order, self._scales), b"\x00")


#: Keys of open files take at most this part of the window's bytes; more of them wait on the disk. In a small window all
#: do: they are all that outlives a window's rows, and the allocator keeps those rows' pages for their sake.
_KEY_MEMORY_PARTS = 8
_HOLDS_KEYS = 96 << 20
#: A rest of a table that is no more than this part of a window joins it: a row group of few rows of each partition costs
#: half as many calls again (a tenth of the time, where a sixth of the rows was left).
_REST_WINDOW_PARTS = 4
#: Batches below this number of rows are keyed by one thread.
_KEYED_PART_ROWS = 1 << 16
#: Groups of a window's partitions that are written at a time.
_GROUPS_WRITTEN = 2
#: Bytes of rows that are worth a file of their own, beside another one of their partition.
_LANE_BYTES = 16 << 20


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
    with ExitStack() as stack, WorkerPool(bound.threads) as workers, WorkerPool(bound.small_file_threads) as others:
        writer: _PartitionWriter | None = None
        windows: Iterator[tuple[pa.Table, bool]]
        # They are closed here: an error holds on to this frame, and it to a sort's temporary files.
        if is_ordered:
            keys = KeyedBatch.partitions_and_keys if sort == "global" else _keys_by_columns(sort, schema)
            ordered = stack.enter_context(closing(sort_stream(tables, lambda table: keys(keyed(table)), window_bytes)))
            windows = map(_window_with_more, ordered)
        else:
            windows = stack.enter_context(
                closing(gather_windows(tables, window_bytes, window_bytes // _REST_WINDOW_PARTS))
            )
            begun = list(islice(windows, 1))
            is_ordered = len(begun) == 1 and not begun[0][1] and _num_partitions(keyed, begun[0][0]) > most_open
            windows = chain(handed_out(begun), windows)
            if is_ordered:
                by_partition = sort_stream(
                    map(itemgetter(0), windows), lambda table: keyed(table).partitions.cast(pa.string()), window_bytes
                )
                windows = map(_window_with_more, stack.enter_context(closing(by_partition)))
        for window, last in windows:
            # All threads key the first window: they have nothing to write yet.
            parts = 1 if writer is not None or sort != "none" else bound.threads
            if writer is None:
                constants = (
                    partial(partition_constants, spec, schema) if bound.virtual_columns is None else _no_constants
                )
                writer = _PartitionWriter(client, bound, sizing(window), stack, (workers, others), constants)
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
    order = parse_sort(sort)
    return KeyedBatch.partitions_and_keys if order is None else OrderInPartitions(order, schema).keys


def _num_partitions(keyed: Callable[[pa.Table], KeyedBatch], window: pa.Table) -> int:
    """Return how many partitions the first rows of a window are for."""
    return len(keyed(window.slice(0, _KEYED_PART_ROWS)).partitions.dictionary)


def _window_with_more(window: pa.Table) -> tuple[pa.Table, bool]:
    """Return a window that may not be the last one (a generator or a zip would hold on to it)."""
    return window, False


def _no_constants(_: PartitionPath) -> Mapping[str, str]:
    return {}


def _keyed_parts(
    keyed: Callable[[pa.Table], KeyedBatch], window: pa.Table, workers: WorkerPool, parts: int
) -> list[KeyedBatch]:
    """Return a window's rows with their keys, in at most `parts` parts.

    Raises:
        SchemaMismatch: a value does not fit its column.
        InvalidKey: a key or partition value cannot be used.
    """
    step = max(_KEYED_PART_ROWS, -(-window.num_rows // parts))
    if window.num_rows <= step:
        return [keyed(window)]
    works = [workers.submit(keyed, window.slice(start, step)) for start in range(0, window.num_rows, step)]
    try:
        return results(works)
    except LakefmtError:
        keyed(window)  # says the same of the whole: which row it is, and how many
        raise


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
        workers: tuple[WorkerPool, WorkerPool],
        constants: Callable[[PartitionPath], Mapping[str, str]],
    ) -> None:
        self._client = client
        self._bound = bound
        self._sizing = sizing
        self._stack = stack
        #: Those that write files of few rows are the second: together they hold as many rows as the first would.
        self._workers, self._small_file_workers = workers
        self._constants = constants
        self._open: dict[_Lane, FileInProgress] = {}
        self._next_sequence = 0
        self._announcements = Announcements(bound)
        #: Files that are not begun yet, and what announcing them together said.
        self._announced: dict[PartitionPath, tuple[FileAssignment, bool | None]] = {}
        self._starting = Lock()
        self._running: deque[list[Future[list[WriteStatus]]]] = deque()
        #: What is done last to each partition's file: rows of the next window come behind it.
        self._last: dict[_Lane, Future[list[WriteStatus]]] = {}
        self._done: list[WriteStatus] = []
        #: What the rows of a group took goes back to the system, unless there is but one window: its groups use one
        #: another's memory, and asking for new pages was a twentieth of the time.
        self._more_come = False
        memory = bound.settings.integer("lakefmt.write.window.bytes")
        self._key_bytes = memory // _KEY_MEMORY_PARTS if memory >= _HOLDS_KEYS else 0
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
            batches = [batch.take(pc.sort_indices(batch.partitions_and_keys())) for batch in batches]
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
            new = [lane for lane, _ in parts if lane not in self._open]
            for lane in new:
                self._open[lane] = self._start(lane[0])
            ends = [last or (ordered and lane[0] != going_on) for lane, _ in parts]
            self._running.append([self._give(*part, last=end) for part, end in zip(parts, ends, strict=True)])
            del group, parts
            self._settle(_GROUPS_WRITTEN - 1)
        most = files_at_a_time(spread.num_small, self._bound.small_file_threads)
        self._running.append([self._give_together(spread, span) for span in spread.small_spans(most)])
        if spread.shares_rows:
            self._settle()

    def _are_small(self, partitions: Sequence[PartitionPath], counts: Sequence[int]) -> list[bool]:
        """Return which partitions of the last window are written together: many with few rows, and without an open file."""
        most, begun = min(MOST_NEW_ROWS, self._sizing.rows_per_file), {partition for partition, _ in self._open}
        return [0 < rows <= most and name not in begun for name, rows in zip(partitions, counts, strict=True)]

    def _give_together(self, spread: PartitionSplitter, span: range) -> Future[list[WriteStatus]]:
        with self._starting:
            assigned = [self._next_file(partition) for partition in spread.names_of(span)]
        # A file behind the one that made room for others was announced by itself.
        announced = None if self._announcements.each_alone else all(first_attempt for _, first_attempt in assigned)

        def write() -> list[WriteStatus]:
            rows, counts = spread.rows_of(span)
            return write_small_files(self._bound, [each for each, _ in assigned], counts, rows, announced=announced)

        return self._small_file_workers.submit(write)

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
                append_rows(file, rows.slice(0, room))
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
            if not partitions or self._announcements.each_alone:
                return
            files = {partition: self._assign(partition) for partition in partitions}
            first_attempt = self._announcements.announce(list(files.values()))
            self._announced |= {partition: (file, first_attempt) for partition, file in files.items()}

    def _assign(self, partition: PartitionPath) -> FileAssignment:
        sequence, self._next_sequence = self._next_sequence, self._next_sequence + 1
        return new_file(partition, self._bound.instant, sequence, self._client.ids.new_uuid, rows=None)

    def _start(self, partition: PartitionPath) -> FileInProgress:
        with self._starting:
            assignment, announced = self._next_file(partition)
            prepare(self._bound, assignment, announced=announced)
            return FileInProgress(self._bound, assignment, self._stack)

    def _next_file(self, partition: PartitionPath) -> tuple[FileAssignment, bool | None]:
        """Return a partition's next file, and what announcing it together with others said."""
        if partition in self._announced:
            return self._announced.pop(partition)
        assignment = self._assign(partition)
        return assignment, self._announcements.announce([assignment])

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
