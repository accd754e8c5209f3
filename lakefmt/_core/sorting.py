"""Sort keys of rows by columns or along a curve (pure), and sort any amount of rows in bounded memory (effects).

Runs are sorted in memory and written as Arrow files; keys sampled from all runs cut the key space into ranges that
fit; each range is gathered from every run, batch by batch, sorted and handed on. No row is ever looked at in Python.
A run, and a range, is an eighth of what may be held, less what sorting and writing take whatever their rows: rows are
there up to three times while they are put in order, and their reader needs room, too.

A filter can be built only when the number of its keys is known, so a file's keys are kept until it is finished: with many
files open at a time they would outgrow every window.

Values become numbers or bytes that compare like the values (docs/format.md, Clustering). Nulls come first, NaN comes last,
0.0 and -0.0 are one value. A number of 64 bits keeps the order of two values or makes them equal; bytes keep every
difference.

The z-order curve and the Hilbert curve walk through a space of as many dimensions as there are columns and keep neighbours
near each other, so that a file of rows that follow each other covers a small range of every column. The Hilbert curve never
jumps; its index is computed as by J. Skilling ("Programming the Hilbert curve", 2004), for all rows at a time.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from operator import itemgetter, length_hint
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import from_numpy
from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.bloom_filter import BloomFilter
from lakefmt._core.formats.parquet.base_file import key_range, outermost
from lakefmt._core.schema.cast import plain_columns
from lakefmt._core.storage.messages import os_failure
from lakefmt.errors import InvalidInputError, SchemaMismatch

__all__ = [
    "ColumnScale",
    "FileKeys",
    "Layout",
    "RowOrder",
    "check_order",
    "check_sortable",
    "column_scale",
    "gather_windows",
    "hilbert_places",
    "order_columns",
    "ordered_bytes",
    "ordered_numbers",
    "row_memory",
    "sort_keys",
    "sort_stream",
    "spilling",
    "widened",
    "zorder_places",
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


Places = npt.NDArray[np.uint8]

Numbers = npt.NDArray[np.uint64]

_SIGN_BIT = np.uint64(1 << 63)
_WORD_BYTES = 8
_SCALED_BITS = 32
_ABSENT, _PRESENT = b"\x00", b"\x01"


def check_sortable(name: str, data_type: pa.DataType) -> None:
    """Raise unless values of a type have an order.

    Raises:
        InvalidInputError: they have none.

    Example:
        >>> check_sortable("n", pa.int32())
    """
    if not (_is_fixed_width(data_type) or _is_string_or_binary(data_type)):
        raise InvalidInputError(
            f"rows cannot be ordered by {name!r} of type {data_type}: choose columns of single values"
        )


def _is_fixed_width(data_type: pa.DataType) -> bool:
    return bool(
        pt.is_boolean(data_type)
        or pt.is_integer(data_type)
        or pt.is_floating(data_type)
        or pt.is_decimal(data_type)
        or pt.is_temporal(data_type)
    )


def _is_string_or_binary(data_type: pa.DataType) -> bool:
    return bool(
        pt.is_string(data_type)
        or pt.is_large_string(data_type)
        or pt.is_binary(data_type)
        or pt.is_large_binary(data_type)
        or pt.is_fixed_size_binary(data_type)
    )


# ------------------------------------------------------------------------------------------------------------- numbers


@dataclass(frozen=True, slots=True)
class ColumnScale:
    """What a sample says of a column: its values become their rank in it, so that columns of any scale count alike.

    Attributes:
        prefix: what all sampled texts begin with; it tells nothing and is left out.
        sampled: the sampled values as numbers, ascending.
    """

    prefix: bytes
    sampled: Numbers


def column_scale(sample: pa.ChunkedArray) -> ColumnScale:
    """Return the scale of a column.

    Args:
        sample: some of its values.

    Example:
        >>> scale = column_scale(pa.chunked_array([["user-1", "user-3"]]))
        >>> scale.prefix, ordered_numbers(pa.chunked_array([["user-0", "user-2", "user-4"]]), scale) >> np.uint64(62)
        (b'user-', array([0, 1, 3], dtype=uint64))
    """
    present = _plain_array(sample).drop_null()
    prefix = _common_prefix(present) if _is_string_or_binary(present.type) else b""
    return ColumnScale(prefix, np.sort(_numbers_of(present, prefix)))


def ordered_numbers(column: pa.ChunkedArray, scale: ColumnScale | None = None) -> Numbers:
    """Return values as unsigned numbers of 64 bits in the same order; different values may become equal.

    Args:
        column: the values.
        scale: numbers are ranks in its sample; None: the values' own bits, of texts the first eight bytes.

    Example:
        >>> ordered_numbers(pa.chunked_array([[None, -1, 0, 1]])).argsort().tolist()
        [0, 1, 2, 3]
    """
    values = _plain_array(column)
    numbers = _numbers_of(values, b"" if scale is None else scale.prefix)
    if scale is not None:
        size = len(scale.sampled)
        ranks = (np.searchsorted(scale.sampled, numbers, "left") + np.searchsorted(scale.sampled, numbers, "right")) / 2
        top = float((1 << _SCALED_BITS) - 1)
        numbers = (ranks * (top / max(1, size))).astype(np.uint64) << np.uint64(64 - _SCALED_BITS)
    if values.null_count:
        numbers[np.asarray(values.is_null())] = 0
    return numbers


def _plain_array(column: pa.ChunkedArray) -> pa.Array:
    """Return one array without a dictionary; dates and times as numbers."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pt.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pt.is_temporal(values.type):
        bits = values.type.bit_width
        values = values.cast(pa.int64() if bits == 64 else pa.int32())
    return values


def _numbers_of(values: pa.Array, prefix: bytes) -> Numbers:
    data_type = values.type
    if _is_string_or_binary(data_type):
        return _text_words(values, prefix)
    if pt.is_decimal(data_type):
        values, data_type = values.cast(pa.float64()), pa.float64()
    if pt.is_floating(data_type):
        return _float_bits(values.cast(pa.float64()))
    if pt.is_unsigned_integer(data_type):
        return _zero_for_null(values.cast(pa.uint64())).astype(np.uint64)
    return _zero_for_null(values.cast(pa.int64())).astype(np.int64).view(np.uint64) ^ _SIGN_BIT


def _zero_for_null(values: pa.Array) -> npt.NDArray[np.generic]:
    full = pc.fill_null(values, 0) if values.null_count else values
    return np.array(full.to_numpy(zero_copy_only=False))


def _float_bits(values: pa.Array) -> Numbers:
    floats = _zero_for_null(values).astype(np.float64) + 0.0  # -0.0 becomes 0.0
    floats[np.isnan(floats)] = np.nan
    bits = floats.view(np.uint64)
    return np.where(bits & _SIGN_BIT != 0, ~bits, bits | _SIGN_BIT)


def _text_words(values: pa.Array, prefix: bytes) -> Numbers:
    """Return the eight bytes of each text that follow the prefix, as a number; texts beside the prefix at the ends."""
    binary = values.cast(pa.large_binary()) if len(values) else pa.array([], pa.large_binary())
    binary = pc.fill_null(binary, b"") if binary.null_count else binary
    offsets = np.frombuffer(binary.buffers()[1], np.int64)[binary.offset : binary.offset + len(binary) + 1]
    data = np.frombuffer(binary.buffers()[2] or b"", np.uint8)
    starts, ends = offsets[:-1], offsets[1:]
    numbers = np.zeros(len(binary), np.uint64)
    for offset in range(_WORD_BYTES):
        positions = starts + len(prefix) + offset
        there = positions < ends
        byte = np.zeros(len(binary), np.uint64)
        byte[there] = data[positions[there]]
        numbers = (numbers << np.uint64(8)) | byte
    if prefix:
        begins = pc.binary_slice(binary, 0, len(prefix))
        numbers[np.asarray(pc.less(begins, prefix))] = 0
        numbers[np.asarray(pc.greater(begins, prefix))] = np.iinfo(np.uint64).max
    return numbers


def _common_prefix(values: pa.Array) -> bytes:
    """Return what all texts begin with: what the smallest and the largest have in common."""
    if not len(values):
        return b""
    ends = pc.min_max(values.cast(pa.large_binary()))
    low, high = np.frombuffer(ends["min"].as_buffer(), np.uint8), np.frombuffer(ends["max"].as_buffer(), np.uint8)
    shared = min(len(low), len(high))
    different = np.flatnonzero(low[:shared] != high[:shared])
    return low[: different[0] if len(different) else shared].tobytes()


# --------------------------------------------------------------------------------------------------------------- bytes


def ordered_bytes(column: pa.ChunkedArray) -> pa.Array:
    """Return values as bytes that compare like them and that no other value's bytes begin with.

    Example:
        >>> made = ordered_bytes(pa.chunked_array([["b", None, "", "a"]]))
        >>> pc.sort_indices(made).to_pylist()
        [1, 2, 3, 0]
    """
    values = _plain_array(column)
    data_type = values.type
    if _is_string_or_binary(data_type):
        whole = values.cast(pa.binary())
        escaped = pc.replace_substring(whole, pattern=b"\x00", replacement=b"\x00\xff")
        body = pc.binary_join_element_wise(escaped, pa.scalar(b"\x00\x00"), pa.scalar(b""))
    elif pt.is_decimal(data_type):
        body = _decimal_bytes(values)
    else:
        body = _fixed_width_bytes(_numbers_of(values, b"").astype(">u8").tobytes(), _WORD_BYTES)
    present = pc.if_else(values.is_valid(), pa.scalar(_PRESENT), pa.scalar(_ABSENT))
    if values.null_count:
        body = pc.if_else(values.is_valid(), body, pa.scalar(b""))
    return pc.binary_join_element_wise(present, body, pa.scalar(b""))


def _decimal_bytes(values: pa.Array) -> pa.Array:
    width = values.type.byte_width
    raw = np.frombuffer(values.buffers()[1], np.uint8).reshape(-1, width)
    turned = raw[values.offset : values.offset + len(values), ::-1].copy()
    turned[:, 0] ^= 0x80
    return _fixed_width_bytes(turned.tobytes(), width)


def _fixed_width_bytes(data: bytes, width: int) -> pa.Array:
    count = len(data) // width
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


#: The bits of this many rows are spread out at a time, one byte for each.
_CURVE_CHUNK_ROWS = 1 << 14


def zorder_places(columns: Sequence[Numbers], bits: int = 64) -> Places:
    """Return the place of each row on the z-order curve: the bits of its numbers in turn, the highest first.

    Args:
        columns: the numbers of each column.
        bits: how many of their lowest bits count.

    Returns:
        One row of bytes for each row, of full bytes: lower bits are 0.

    Example:
        >>> x, y = np.array([0, 0, 1, 1], np.uint64), np.array([0, 1, 0, 1], np.uint64)
        >>> (zorder_places([x, y], bits=1) >> 6).tolist()
        [[0], [1], [2], [3]]
    """
    count, width = len(columns[0]), -(-bits * len(columns) // 8)
    places = np.empty((count, width), np.uint8)
    for start in range(0, count, _CURVE_CHUNK_ROWS):  # chunks, not rows
        part = np.stack([column[start : start + _CURVE_CHUNK_ROWS] for column in columns], axis=1)
        spread = np.unpackbits(part.astype(">u8")[..., None].view(np.uint8), axis=2)[:, :, 64 - bits :]
        in_turn = spread.transpose(0, 2, 1).reshape(len(part), -1)
        places[start : start + _CURVE_CHUNK_ROWS] = np.packbits(in_turn, axis=1)
    return places


def hilbert_places(columns: Sequence[Numbers], bits: int = 64) -> Places:
    """Return the place of each row on the Hilbert curve; arguments and result as of :func:`zorder_places`.

    Example:
        >>> x, y = np.array([0, 0, 1, 1], np.uint64), np.array([0, 1, 1, 0], np.uint64)
        >>> (hilbert_places([x, y], bits=1) >> 6).tolist()
        [[0], [1], [2], [3]]
    """
    axes = [np.array(column, np.uint64) for column in columns]
    for level in range(bits - 1, 0, -1):
        bit, below = np.uint64(1 << level), np.uint64((1 << level) - 1)
        for number, axis in enumerate(axes):
            is_set = axis & bit != 0
            swapped = np.where(is_set, np.uint64(0), (axes[0] ^ axis) & below)
            axes[number] = axis ^ swapped
            axes[0] = (
                axes[0] ^ np.where(is_set, below, swapped)
                if number
                else axes[0] ^ np.where(is_set, below, np.uint64(0))
            )
    for number in range(1, len(axes)):
        axes[number] ^= axes[number - 1]
    turned = np.zeros_like(axes[-1])
    for level in range(bits - 1, 0, -1):
        is_set = axes[-1] & np.uint64(1 << level) != 0
        turned ^= np.where(is_set, np.uint64((1 << level) - 1), np.uint64(0))
    return zorder_places([axis ^ turned for axis in axes], bits)


class Layout(enum.Enum):
    """How rows are ordered by several columns, with Hudi's names."""

    LINEAR = "linear"
    ZORDER = "zorder"
    HILBERT = "hilbert"


@dataclass(frozen=True, slots=True)
class RowOrder:
    """An order of rows; without columns rows stay as they are.

    Attributes:
        columns: what they are ordered by; a dot leads into a struct.
        layout: how.
    """

    columns: tuple[str, ...] = ()
    layout: Layout = Layout.LINEAR

    def __str__(self) -> str:
        return f"{self.layout.value} by {', '.join(self.columns)}" if self.columns else "as they are"


def check_order(order: RowOrder, schema: pa.Schema) -> None:
    """Raise unless rows of a schema can be put in an order.

    Raises:
        InvalidInputError: a column is missing, comes twice, or has values without an order.

    Example:
        >>> check_order(RowOrder(("n",)), pa.schema([("n", pa.int64())]))
    """
    if len(set(order.columns)) != len(order.columns):
        raise InvalidInputError(f"rows are ordered by a column twice: {', '.join(order.columns)}")
    for column in order.columns:
        names = column.split(".")
        field: pa.Field | None = None
        within: pa.Schema | pa.StructType = schema
        for name in names:
            index = within.get_field_index(name)
            if index < 0:
                raise InvalidInputError(f"rows cannot be ordered by {column!r}: the table has no such column")
            field = within.field(index)
            if name is not names[-1] and not pa.types.is_struct(field.type):
                raise InvalidInputError(f"rows cannot be ordered by {column!r}: {field.name!r} is no struct")
            within = field.type if pa.types.is_struct(field.type) else pa.schema([])
        if field is not None:
            check_sortable(column, field.type)


def order_columns(order: RowOrder) -> list[str]:
    """Return the columns of a table that an order needs.

    Example:
        >>> order_columns(RowOrder(("place.city", "n")))
        ['place', 'n']
    """
    return list(dict.fromkeys(column.split(".")[0] for column in order.columns))


def sort_keys(rows: pa.Table, order: RowOrder, scales: Mapping[str, ColumnScale] | None = None) -> pa.Array:
    """Return for each row bytes that compare as the rows are ordered.

    Args:
        rows: the rows.
        order: by which columns, and how.
        scales: of the columns of a curve, by name; without one the bits of its values count.

    Example:
        >>> rows = pa.table({"x": [0, 3, 1], "y": [0, 3, 0]})
        >>> [pc.sort_indices(sort_keys(rows, RowOrder(("x", "y"), layout))).to_pylist() for layout in Layout]
        [[0, 2, 1], [0, 2, 1], [0, 2, 1]]
    """
    columns = [order_column(rows, name) for name in order.columns]
    if order.layout is Layout.LINEAR or len(columns) == 1:
        return joined_bytes([ordered_bytes(column) for column in columns])
    by_name = scales or {}
    numbers = [ordered_numbers(column, by_name.get(name)) for column, name in zip(columns, order.columns, strict=True)]
    curve = zorder_places if order.layout is Layout.ZORDER else hilbert_places
    places = curve(numbers)
    width = places.shape[1]
    offsets = np.arange(0, (rows.num_rows + 1) * width, width, dtype=np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(places))]
    return pa.Array.from_buffers(pa.large_binary(), rows.num_rows, buffers).cast(pa.binary())


def order_column(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """Return a column of rows; a dot leads into a struct."""
    first, *inner = column.split(".")
    values = rows.column(first)
    return pc.struct_field(values, inner) if inner else values


def joined_bytes(parts: Sequence[pa.Array]) -> pa.Array:
    """Return the bytes of each row, part after part."""
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, pa.scalar(b""))
