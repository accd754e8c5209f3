"""Read the rows of a base file in which a column has one of a few texts, and little else of the file (effects: reads, threads).

Pages are searched side by side, in this thread and in others that are kept for the next search
(:func:`do_side_by_side`). To start a thread takes longer than to search a page, on a busy machine some milliseconds: it is
waited for until it runs. A kept one that has not begun when all is done is not waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field
from functools import partial
from itertools import product
from threading import Lock
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.reader import parquet_file, reading, short_footer
from lakefmt._core.formats.parquet.base_file import check_row_counts
from lakefmt._core.formats.parquet.duplicate_columns import Span, are_within, chunk_span
from lakefmt._core.formats.parquet.page_search import (
    CODECS,
    ColumnPages,
    ReadAt,
    declared_alike,
    encode_pages,
    find_pages,
    pages_with,
)
from lakefmt._core.storage.api import ObjectStore

__all__ = [
    "MOST_TEXTS",
    "NamedTexts",
    "do_side_by_side",
    "read_named_rows",
]

A = TypeVar("A")
B = TypeVar("B")

#: More threads wait for memory.
_MOST_SEARCH_THREADS: Final = 4


class _KeptThreads:
    """The threads that are kept; they are started when they are needed first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, work: Callable[[], None], count: int) -> list[Future[None]]:
        """Begin a work in some threads; in none while the interpreter ends."""
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_MOST_SEARCH_THREADS - 1, "lakefmt-search")
            try:
                return [self._pool.submit(work) for _ in range(count)]
            except RuntimeError:
                return []

    def forget(self) -> None:
        """Forget the threads of the process that this one was forked from."""
        self._lock, self._pool = Lock(), None


_kept_threads = _KeptThreads()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_kept_threads.forget)


def do_side_by_side(act: Callable[[A], B], parts: Sequence[A]) -> list[B]:
    """Return what a function returns for each part, as ``map`` does; the first error of a thread is raised.

    Parameters:
        act: called with each part, by several threads at the same time.
        parts: each is taken by the thread that is ready first.

    Example:
        >>> do_side_by_side(len, ["a", "bc"])
        [1, 2]
    """
    done: list[B | None] = [None] * len(parts)
    left = iter(range(len(parts)))

    def work() -> None:
        for number in left:
            done[number] = act(parts[number])

    others = min(_MOST_SEARCH_THREADS, os.cpu_count() or 1, len(parts)) - 1
    begun = _kept_threads.begin(work, others) if others > 0 else []
    try:
        work()
    finally:
        running = [future for future in begun if not future.cancel()]
        errors = [future.exception() for future in running]
    for error in errors:
        if error is not None:
            raise error
    return done  # type: ignore[return-value]


#: For more texts than this, a page is decoded sooner than it is searched.
MOST_TEXTS: Final = 4
#: Columns of fewer bytes, once they are decompressed, Arrow decodes as soon, by several threads.
_FEW_DECODED_BYTES: Final = 3 << 20
#: And as many more for each of them: a page of every column is decoded in any case.
_DECODED_BYTES_PER_COLUMN: Final = 256 << 10
#: Where more than every fourth page may have the texts, Arrow reads all of them, by several threads.
_SEARCHED_SHARE: Final = 4
#: Columns of up to this number of bytes are read at once, others page by page.
_READ_AT_ONCE: Final = 512 << 10
#: Java orders texts with characters from this one on by other numbers than UTF-8 does.
_ORDERED_DIFFERENTLY: Final = "\ue000"

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NamedTexts:
    """What a filter says of one column.

    Attributes:
        column: its name.
        texts: rows with others are not asked for.
    """

    column: str
    texts: pa.Array


def read_named_rows(
    store: ObjectStore,
    file: BaseFile,
    fields: Sequence[pa.Field],
    named: NamedTexts,
    choose: Callable[[pq.ParquetFile], Sequence[int]] | None,
) -> pa.Table | None:
    """Return the rows with some texts; None: the file is better read in another way, or has to be.

    Parameters:
        store: the table's; only a local one answers a request for a page as soon as one for all of them.
        file: the file.
        fields: the columns to return, that of the texts among them.
        named: the texts.
        choose: chooses row groups by all that is asked of the rows; None: that is no more than the texts.

    Raises:
        SnapshotExpired: the file no longer exists.
        CorruptFile: it is damaged.
        StorageError: the store failed.
    """
    filesystem, prefix = store.arrow_filesystem()
    if not isinstance(filesystem, pafs.LocalFileSystem):
        return None
    with reading(file.path), filesystem.open_input_file(prefix + file.path) as source:
        footer = short_footer(source, near=True)
        with parquet_file(source, metadata=None if footer is None else footer.metadata) as parquet:
            metadata = parquet.metadata
            check_row_counts(metadata)
            stored = parquet.schema_arrow
            if any(
                stored.get_field_index(field.name) < 0 or not stored.field(field.name).type.equals(field.type)
                for field in fields
            ):
                return None
            column_numbers = declared_alike(metadata, pa.schema(fields))
            if column_numbers is None:
                return None
            groups = [
                n
                for n in range(metadata.num_row_groups)
                if _may_have_texts(metadata, n, column_numbers[named.column], named)
            ]
            if choose is not None and groups:
                groups = sorted({*groups}.intersection(choose(parquet)))
        if (
            0
            < _decoded_bytes(metadata, groups, column_numbers.values())
            < _FEW_DECODED_BYTES + len(column_numbers) * _DECODED_BYTES_PER_COLUMN
        ):
            return None
        parts = [pa.schema(fields).empty_table()]
        for number in groups:
            group = _SearchedRowGroup(
                source, metadata.row_group(number), column_numbers, {field.name: field for field in fields}
            )
            rows = group.rows_of(named)
            if rows is None:
                return None
            parts.append(rows)
    return pa.concat_tables(parts)


@dataclass(frozen=True)
class _SearchedRowGroup:
    """A row group of an open file.

    Attributes:
        source: the file.
        metadata: what its footer says of the group.
        places: the numbers of its columns.
        fields: their types.
    """

    source: pa.NativeFile
    metadata: pq.RowGroupMetaData
    places: Mapping[str, int]
    fields: Mapping[str, pa.Field]
    _readers: dict[str, ReadAt] = field(default_factory=dict)

    def rows_of(self, named: NamedTexts) -> pa.Table | None:
        """Return the rows with some texts; None: Arrow is to read the file."""
        chunk = self._chunk(named.column)
        if chunk.compression not in CODECS or any(
            self._chunk(name).compression != chunk.compression for name in self.fields
        ):
            return None
        if not are_within(map(chunk_span, map(self._chunk, self.fields)), self.source.size()):
            return None
        span = chunk_span(chunk)
        data = memoryview(self.source.read_at(span.size, span.offset))
        self._readers[named.column] = lambda offset, count: data[offset : offset + count]
        own = self._pages(named.column)
        if own is None:
            return None
        texts = [text.encode() for text in named.texts.to_pylist()]
        most = max(MOST_TEXTS, len(own.pages) // _SEARCHED_SHARE)
        by_page = pages_with(own, data, chunk.compression, texts, most, do_side_by_side)
        if by_page is None:
            return None
        if not by_page:
            return pa.schema(list(self.fields.values())).empty_table()
        numbers = list(by_page)
        row_numbers = [own.starts[number] + rows for number, rows in by_page.items() if rows is not None]
        if len(row_numbers) == len(by_page) and len(texts) == 1:
            rows = np.concatenate(row_numbers)
            return self._at(rows, {named.column: pa.chunked_array([pa.repeat(named.texts[0], len(rows))])})
        keys = self._decoded({named.column: own.chosen(numbers)})
        counts = np.array([page.num_values for page in own.pages])[numbers]
        if len(keys) != counts.sum():
            return None
        matching = np.flatnonzero(pc.is_in(keys.column(0), value_set=named.texts).to_numpy())
        rows = np.arange(len(keys)) + np.repeat(own.starts[numbers] - (np.cumsum(counts) - counts), counts)
        return self._at(rows[matching], {named.column: keys.take(from_numpy(matching)).column(0)})

    def _at(self, rows: I64, matched: Mapping[str, pa.ChunkedArray]) -> pa.Table | None:
        """Return the rows of some numbers, ascending, by the pages that have them."""
        by_count: dict[int, dict[str, tuple[ColumnPages, I64]]] = {}
        columns = dict(matched)
        for name in self.fields.keys() - matched.keys():
            pages = self._pages(name)
            if pages is None:
                return None
            starts = pages.starts
            of_row = np.searchsorted(starts, rows, "right") - 1
            numbers, page_indices = np.unique(of_row, return_inverse=True)
            some = pages.chosen(numbers.tolist())
            by_count.setdefault(some.num_rows, {})[name] = some, rows - starts[of_row] + some.starts[page_indices]
        for count, alike in by_count.items() if len(rows) else ():
            decoded = self._decoded({name: pages for name, (pages, _) in alike.items()})
            if len(decoded) != count:
                return None
            for name, (_, indices) in alike.items():
                columns[name] = decoded.column(name).take(from_numpy(indices))
        empty = pa.chunked_array([], pa.null())
        table = {name: columns.get(name, empty.cast(field.type)) for name, field in self.fields.items()}
        return pa.table(table, schema=pa.schema(list(self.fields.values())))

    def _pages(self, name: str) -> ColumnPages | None:
        """Return the pages of a column; None: they are not those of its rows."""
        chunk = self._chunk(name)
        pages = find_pages(self._reads(name), chunk_span(chunk).size)
        if pages is None or not pages.num_rows == chunk.num_values == self.metadata.num_rows:
            return None
        return pages

    def _decoded(self, pages: Mapping[str, ColumnPages]) -> pa.Table:
        schema = pa.schema([self.fields[name] for name in pages])
        codec = self._chunk(schema.names[0]).compression
        data = encode_pages(schema, codec, pages, {name: self._reads(name) for name in pages})
        with parquet_file(pa.BufferReader(data)) as parquet:
            return parquet.read(use_threads=False).cast(schema)

    def _chunk(self, name: str) -> pq.ColumnChunkMetaData:
        return self.metadata.column(self.places[name])

    def _reads(self, name: str) -> ReadAt:
        """Return what reads the bytes of a column: those of a small one are read once."""
        if name not in self._readers:
            span = chunk_span(self._chunk(name))
            if span.size > _READ_AT_ONCE:
                self._readers[name] = partial(_read_in_span, self.source, span)
            else:
                data = memoryview(self.source.read_at(span.size, span.offset))
                self._readers[name] = lambda offset, count: data[offset : offset + count]
        return self._readers[name]


def _may_have_texts(metadata: pq.FileMetaData, group: int, column: int, named: NamedTexts) -> bool:
    """Return whether a row group may have one of some texts, by the ends of its column."""
    try:
        statistics = metadata.row_group(group).column(column).statistics
        if statistics is None or not statistics.has_min_max:
            return True
        low, high = statistics.min, statistics.max
    except (pa.ArrowException, ValueError):
        return True  # text that is no text
    texts = named.texts.to_pylist()
    if not low <= high < _ORDERED_DIFFERENTLY or max(texts, default="") >= _ORDERED_DIFFERENTLY:
        return True
    return any(low <= text <= high for text in texts)


def _decoded_bytes(metadata: pq.FileMetaData, groups: Iterable[int], columns: Iterable[int]) -> int:
    chunks = (metadata.row_group(group).column(column) for group, column in product(groups, columns))
    return sum(chunk.total_uncompressed_size for chunk in chunks)


def _read_in_span(source: pa.NativeFile, span: Span, offset: int, count: int) -> bytes:
    return bytes(source.read_at(max(0, min(count, span.size - offset)), span.offset + offset))
