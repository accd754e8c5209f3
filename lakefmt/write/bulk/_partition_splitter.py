"""A window's rows by partition, taken out of it as few times and as few columns as can be (threads, no other effects)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.arrays import from_numpy
from lakefmt.formats.parquet.dictionary_columns import same_text, with_dictionaries
from lakefmt.formats.parquet.duplicate_columns import equal_column
from lakefmt.keys import KeySpec, parse_partition_values
from lakefmt.values import RECORD_KEY, PartitionPath
from lakefmt.write.assign import stable_order
from lakefmt.write.files.workers import WorkerPool, results
from lakefmt.write.ingest import KeyedBatch, with_keys

__all__ = ["PartitionSplitter", "partition_constants"]

Rows = npt.NDArray[np.int64]

#: Rows that are put in the order of their partitions together: a column of them stays in the processor's caches.
_CHUNK_ROWS = 1 << 16
#: A window's partitions are handed out in this number of groups. The rows of three of them are held twice: one is taken out of the
#: window while one is written and the rest of the one before is.
_GROUPS = 8


def partition_constants(spec: KeySpec, schema: pa.Schema, partition: PartitionPath) -> Mapping[str, str]:
    """Return the columns of text whose one value in all rows of a partition its path tells.

    Args:
        spec: how the table makes paths.
        schema: the table's, without meta columns.
        partition: the path.

    Example:
        >>> from lakefmt.keys import plan_key_spec
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
            places = np.argsort(~small, kind="stable")
            codes = np.argsort(places).astype(codes.dtype)[codes]
            names, counts = [names[place] for place in places], counts[places]
        self._names, self._counts = names, counts
        self._constants = {name: constants_of(name) for name in self._names}
        self._copy_of_keys = _duplicate_of(batches)
        whole = pa.concat_tables([with_keys(batch.table, batch.keys) for batch in batches])
        self._schema = whole.schema
        table = whole.select(self._taken())
        if table.num_columns and table.column(0).num_chunks * _CHUNK_ROWS > 4 * table.num_rows > 4 * _CHUNK_ROWS:
            table = table.combine_chunks()
        self._workers = workers
        self._chunks = table.to_batches(max_chunksize=_CHUNK_ROWS)
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

        def constant(column: str) -> pa.Array | None:
            if column in rows.column_names:  # not the same in all partitions of the window
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
        shares = np.cumsum(counts)[:-1] * _GROUPS // int(counts.sum())
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
