"""The look-up that the classic indexes share: partition, key range, filter, and at last the keys themselves. Pure.

Each file goes all the way in one task, so that one file's keys are decoded while another file's footer is on its way,
and no more footers are held than there are tasks at work.

Which of many keys lie in a file's key range (docs/format.md, Parquet footer). Pure.

All keys of a look-up are sorted once; a file is then two binary searches, whatever the number of keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, compress
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.arrays import from_numpy
from lakefmt.data_classes import dataclass
from lakefmt.filegroups.model import BaseFile, FileSlice
from lakefmt.formats.parquet.base_file import BaseFileFooter, in_java_order, java_order_key
from lakefmt.index._bloom_probe import SharedHashes, StoredFilter, stored_filter
from lakefmt.index.api import (
    FilterTally,
    IndexKeys,
    KeyReader,
    Located,
    LookUpStep,
    PositionalKeyReader,
    SelectiveKeyReader,
    SmallKeyReader,
)

__all__ = [
    "I64",
    "Candidate",
    "KeyRanges",
    "LookUp",
    "Rows",
    "look_up_candidates",
    "look_up_keys",
    "ordered_pairs",
    "rows_by_partition",
]


#: Keys of a file below which Arrow has looked at each in less time than these calls take: measured with a tenth and a
#: hundredth of them looked for, 120 keys take it 0.01 ms instead of 0.18, 8,000 as long.
_FEW_STORED = 1 << 13


def _likely_rows(wanted: pa.StringArray, stored: pa.ChunkedArray) -> Rows | None:
    if len(stored) < _FEW_STORED:
        return None
    from lakefmt.index._key_prefilter import prefilter_rows  # for large files

    return prefilter_rows(wanted, stored)


I64 = npt.NDArray[np.int64]


class KeyRanges:
    """The keys of one look-up, ready to be compared with the ranges of files.

    A range is the ends of a file's keys in the order of Java's strings or, from Spark's row writer, in that of UTF-8
    bytes, and a footer does not say which. Where the two differ, a key is inside when it is by either.

    Args:
        keys: every key wanted.
        groups: the arrays of row numbers that will be asked about, each given as that very array.

    Example:
        >>> rows = np.arange(3)
        >>> KeyRanges(pa.array(["c", "a", "b"]), [rows]).inside(rows, "b", "z").tolist()
        [2, 0]
    """

    def __init__(self, keys: pa.StringArray, groups: Iterable[I64]) -> None:
        plain, java = keys.cast(pa.binary()), in_java_order(keys)
        distinct = {id(rows): rows for rows in groups}
        self._java = _Sorted(java, distinct)
        # Most keys sort alike in both orders.
        self._plain = self._java if java.equals(plain) else _Sorted(plain, distinct)

    def inside(self, rows: I64, low: str, high: str) -> I64:
        """Return those of `rows` whose key lies between `low` and `high`, the ends included."""
        ends = (java_order_key(low), java_order_key(high))
        inside = self._java.inside(rows, *ends)
        if self._plain is self._java and ends == (low.encode(), high.encode()):
            return inside
        return np.union1d(inside, self._plain.inside(rows, low.encode(), high.encode()))


class _Sorted:
    """Keys in one order, and each group's rows in the order of their keys."""

    def __init__(self, keys: pa.BinaryArray, groups: dict[int, I64]) -> None:
        order = pc.sort_indices(keys).to_numpy()
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        self._keys = _Texts(keys.take(from_numpy(order)))
        self._groups = {name: (rows[by := np.argsort(ranks[rows])], ranks[rows][by]) for name, rows in groups.items()}

    def inside(self, rows: I64, low: bytes, high: bytes) -> I64:
        ordered, ranks = self._groups[id(rows)]
        first, last = np.searchsorted(ranks, (bisect_left(self._keys, low), bisect_right(self._keys, high)))
        return ordered[first:last]


class _Texts(Sequence[bytes]):
    """An array as a sequence; a binary search looks at a few of its values, not at rows."""

    def __init__(self, values: pa.BinaryArray) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(place, slice):
            return _Texts(self._values[place])
        return bytes(self._values[place].as_buffer())


#: Threads that ask a reader which does not say how many it can take.
_THREADS = 4

#: Files that a thread takes at once: at most this number, and few enough that each thread takes new ones this often.
_MOST_AT_A_TIME = 8
_SHARES_PER_THREAD = 4

#: From this number of small files on their keys are compared together, by this number of files.
_MANY_SMALL = 32
_SMALL_AT_A_TIME = 64

#: Up to this number of keys a filter is asked about, however few rows its file has.
_ALWAYS_ASKED = 10_000

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may hold some of the wanted rows."""

    slice_number: int
    file: BaseFile
    rows: Rows


@dataclass(frozen=True, slots=True)
class LookUp:
    """What a look-up does before it compares keys.

    Attributes:
        is_global: whether it looks in every partition.
        ranges: whether it asks for key ranges.
        filters: whether it asks key filters.
        threads: how many files are looked at together; 0: as many as the reader likes.
    """

    is_global: bool = False
    ranges: bool = False
    filters: bool = False
    threads: int = 0


@dataclass(frozen=True, slots=True)
class _Seen:
    """What became of one file: pairs of key and file that were left after each step, and the rows found."""

    slice_number: int
    considered: int
    in_range: int
    passed: int
    has_filter: bool  # … and was asked
    opened: bool
    is_small: bool  # … and all its keys were compared at once
    found: Rows
    positions: Rows | None


def look_up_keys(how: LookUp, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
    """Return where the wanted keys are stored among `slices`.

    Raises:
        SnapshotExpired: a file is gone.
        CorruptFile: a footer, a filter or a key column is damaged.
    """
    return look_up_candidates(how, wanted, list(_partition_rows(wanted, slices, how.is_global)), reader)


def look_up_candidates(how: LookUp, wanted: IndexKeys, candidates: Sequence[Candidate], reader: KeyReader) -> Located:
    """Return where the wanted keys are stored, looking for each key only in the files that may hold it.

    Args:
        how: the steps before keys are compared.
        wanted: the keys.
        candidates: files, and which of the keys may be in each.
        reader: reads footers and keys.

    Raises:
        SnapshotExpired: a file is gone.
        CorruptFile: a footer, a filter or a key column is damaged.
    """
    task = _Task(how, wanted, candidates, reader)
    threads = how.threads or (reader.threads if isinstance(reader, SelectiveKeyReader) else _THREADS)
    small, others = _apart(how, candidates, reader)
    seen = [*_each(task.together, small, threads, _SMALL_AT_A_TIME), *_each(task.one_by_one, others, threads)]
    return ordered_pairs(
        [file.found for file in seen],
        [np.full(len(file.found), file.slice_number, dtype=np.int64) for file in seen],
        tuple(_steps(how, seen)),
        _tally(seen) if how.filters else None,
        [file.positions for file in seen],
    )


def _apart(
    how: LookUp, candidates: Sequence[Candidate], reader: KeyReader
) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
    """Return the small files that are looked at together, and the others."""
    if how.is_global or len(candidates) < _MANY_SMALL or not isinstance(reader, SmallKeyReader):
        return [], candidates
    are_small = [reader.is_small(candidate.file) for candidate in candidates]
    if sum(are_small) < _MANY_SMALL:
        return [], candidates
    return list(compress(candidates, are_small)), [
        c for c, small in zip(candidates, are_small, strict=True) if not small
    ]


def _each(
    work: Callable[[Sequence[Candidate]], list[_Seen]],
    items: Sequence[Candidate],
    threads: int,
    most: int = _MOST_AT_A_TIME,
) -> Iterator[_Seen]:
    # Some files at a time where there are many: to hand one over costs about as much as to find out that it is out of range.
    size = max(1, min(most, len(items) // (_SHARES_PER_THREAD * max(1, threads))))
    shares = [items[begin : begin + size] for begin in range(0, len(items), size)]
    if threads < 2 or len(shares) < 2:
        yield from chain.from_iterable(map(work, shares))
        return
    with ThreadPoolExecutor(min(threads, len(shares)), "lakefmt-index") as pool:
        yield from chain.from_iterable(pool.map(work, shares))


def _partition_rows(wanted: IndexKeys, slices: Sequence[FileSlice], is_global: bool) -> Iterator[Candidate]:
    """Yield each base file with the rows that may be in it by their partition (all rows for a global index)."""
    everything = np.arange(len(wanted), dtype=np.int64)
    by_partition = {} if is_global else dict(rows_by_partition(wanted))
    for number, file_slice in enumerate(slices):
        if file_slice.base is None:
            continue
        rows = everything if is_global else by_partition.get(file_slice.partition)
        if rows is not None and len(rows):
            yield Candidate(number, file_slice.base, rows)


def rows_by_partition(wanted: IndexKeys) -> Iterator[tuple[str, Rows]]:
    """Yield each partition with the rows that are meant for it, if any."""
    codes, names = wanted.partition_codes(), wanted.partition_names()
    order = np.argsort(codes, kind="stable").astype(np.int64)
    starts = np.searchsorted(codes[order], np.arange(len(names) + 1))
    for code, name in enumerate(names):
        yield name, order[starts[code] : starts[code + 1]]


class _Task:
    """The way of one file through a look-up; what all files share is made once."""

    def __init__(self, how: LookUp, wanted: IndexKeys, candidates: Sequence[Candidate], reader: KeyReader) -> None:
        self._how = how
        self._wanted = wanted
        self._reader = reader
        # Asked once: Python looks at every attribute of a protocol, and there are many files.
        self._placing = reader if isinstance(reader, PositionalKeyReader) else None
        self._selective = reader if isinstance(reader, SelectiveKeyReader) else None
        self._ranges = KeyRanges(wanted.keys, (c.rows for c in candidates)) if how.ranges and candidates else None
        # One file alone asks each key once: there is nothing to share.
        self._hashes = SharedHashes(wanted.keys, None if len(candidates) > 1 else 0)

    def one_by_one(self, candidates: Sequence[Candidate]) -> list[_Seen]:
        """Look at some files, one after the other."""
        return [self._look(candidate) for candidate in candidates]

    def together(self, candidates: Sequence[Candidate]) -> list[_Seen]:
        """Look at some small files by comparing all their keys at once."""
        from lakefmt.index._small_files import match_small_files  # for tables of many

        stored = [self._reader.keys(candidate.file) for candidate in candidates]
        matches = match_small_files(self._wanted.keys, [candidate.rows for candidate in candidates], stored)
        if matches is None:
            return self.one_by_one(candidates)
        return [
            _Seen(
                slice_number=candidate.slice_number,
                considered=len(candidate.rows),
                in_range=len(candidate.rows),
                passed=len(candidate.rows),
                has_filter=False,
                opened=True,
                is_small=True,
                found=rows,
                positions=positions,
            )
            for candidate, (rows, positions) in zip(candidates, matches, strict=True)
        ]

    def _look(self, candidate: Candidate) -> _Seen:
        """Take a file from step to step, as long as rows are left."""
        asks_footer = self._ranges is not None or self._how.filters
        footer = self._reader.footer(candidate.file) if asks_footer else None
        rows = in_range = self._in_range(candidate, footer)
        stored = _filter(footer, len(rows)) if footer is not None and self._how.filters and len(rows) else None
        if stored is not None:
            rows = rows[stored.contains(self._hashes, rows)]
        matches = self._found(candidate.file, rows) if len(rows) else None
        nothing = rows[:0]
        return _Seen(
            slice_number=candidate.slice_number,
            considered=len(candidate.rows),
            in_range=len(in_range),
            passed=len(rows),
            has_filter=stored is not None,
            opened=matches is not None,
            is_small=False,
            found=nothing if matches is None else matches[0],
            positions=nothing if matches is None else matches[1],
        )

    def _in_range(self, candidate: Candidate, footer: BaseFileFooter | None) -> Rows:
        if self._ranges is None or footer is None:
            return candidate.rows
        if not footer.num_rows:
            return candidate.rows[:0]
        if footer.min_key is None or footer.max_key is None:
            return candidate.rows
        return self._ranges.inside(candidate.rows, footer.min_key, footer.max_key)

    def _found(self, file: BaseFile, rows: Rows) -> tuple[Rows, Rows | None] | None:
        """Return the rows whose key is stored in the file, and where; None when the file need not be opened for that."""
        keys = self._wanted.keys.take(from_numpy(rows))
        if self._placing is not None:
            placed = self._placing.keys_with_positions(file, keys)
            if placed is None:
                return None
            flags, positions = _places(keys, *placed)
            return rows[flags], positions[flags]
        if self._selective is not None:
            stored = self._selective.keys_among(file, keys)
        else:
            stored = self._reader.keys(file)
        return None if stored is None else (rows[_present(keys, stored)], None)


def _filter(footer: BaseFileFooter, num_keys: int) -> StoredFilter | None:
    # The filter of a file with fewer rows than keys to ask about costs more than its keys do.
    return None if num_keys > max(_ALWAYS_ASKED, footer.num_rows) else stored_filter(footer)


def _present(wanted: pa.StringArray, stored: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return which of my keys are stored; the smaller side is hashed."""
    if len(wanted) < len(stored):
        likely = _likely_rows(wanted, stored)
        if likely is not None:
            stored = stored.take(from_numpy(likely))
        stored = stored.filter(pc.is_in(stored, value_set=wanted))
    flags: npt.NDArray[np.bool_] = pc.is_in(wanted, value_set=stored).to_numpy(zero_copy_only=False)
    return flags


def _places(wanted: pa.StringArray, stored: pa.ChunkedArray, numbers: Rows) -> tuple[npt.NDArray[np.bool_], Rows]:
    """Return which of my keys are stored, and the row of each; -1 where several rows have the key."""
    likely = _likely_rows(wanted, stored)
    if likely is not None:
        stored, numbers = stored.take(from_numpy(likely)), numbers[likely]
    is_wanted = pc.is_in(stored, value_set=wanted)
    matches, places = stored.filter(is_wanted).combine_chunks(), numbers[np.asarray(is_wanted)]
    match_numbers = pc.index_in(wanted, value_set=matches)
    flags: npt.NDArray[np.bool_] = match_numbers.is_valid().to_numpy(zero_copy_only=False)
    positions = np.full(len(wanted), -1, np.int64)
    positions[flags] = places[match_numbers.drop_null().to_numpy()]
    if len(matches) != np.count_nonzero(flags):
        first = pc.index_in(matches, value_set=matches).to_numpy()
        often = np.bincount(first, minlength=len(matches)) > 1
        positions[flags] = np.where(often[match_numbers.drop_null().to_numpy()], -1, positions[flags])
    return flags, positions


# ------------------------------------------------------------------------------------------------------- accounts


def _steps(how: LookUp, seen: Sequence[_Seen]) -> Iterator[LookUpStep]:
    yield _left("considered", [file.considered for file in seen])
    asked = [file for file in seen if not file.is_small]
    if len(asked) < len(seen):
        yield _left("small, compared at once", [file.considered for file in seen if file.is_small])
    if how.ranges:
        yield _left("left by key range", [file.in_range for file in asked])
    if how.filters:
        yield _left("left by bloom filter", [file.passed for file in asked])
    yield _left("opened", [file.passed for file in seen if file.opened])


def _left(name: str, pairs: Sequence[int]) -> LookUpStep:
    return LookUpStep(name, sum(n > 0 for n in pairs), sum(pairs))


def _tally(seen: Sequence[_Seen]) -> FilterTally:
    asked = [file for file in seen if file.has_filter]
    return FilterTally(
        sum(file.in_range for file in asked), sum(file.passed for file in asked), sum(len(file.found) for file in asked)
    )


def ordered_pairs(
    rows: Sequence[Rows],
    slices: Sequence[Rows],
    steps: tuple[LookUpStep, ...],
    tally: FilterTally | None,
    positions: Sequence[Rows | None],
) -> Located:
    """Join per-file answers into pairs ordered by row."""
    empty = np.empty(0, dtype=np.int64)
    all_rows, all_slices = np.concatenate([empty, *rows]), np.concatenate([empty, *slices])
    order = np.lexsort((all_slices, all_rows))
    with_places = [places for places in positions if places is not None]
    places = np.concatenate([empty, *with_places])[order] if len(with_places) == len(positions) else None
    return Located(all_rows[order], all_slices[order], steps, tally, places)
