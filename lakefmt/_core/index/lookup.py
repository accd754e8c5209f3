"""Look keys up in base files, as the indexes simple and bloom do: by partition, key range, filter, and at last the keys themselves.

Each file goes all the way in one task, so that one file's keys are decoded while another file's footer is on its way,
and no more footers are held than there are tasks at work.

* Key ranges (docs/format.md, Parquet footer): all keys of a look-up are sorted once; a file is then two binary searches, whatever
  the number of keys.
* Filters (docs/format.md, Bloom filter bytes): a filter is Base64 text in a footer, some hundred kilobytes; a look-up wants some
  dozen of its bits. Each of these bits lies in exactly one character, so the text is asked as it stands and never decoded. Whatever
  is unusual about a text is left to :func:`~lakefmt._core.formats.bloom_filter.decode_bloom_filter`, which decodes all of it or
  says what is wrong. Keys are hashed once for all filters (:class:`SharedHashes`): a hash does not depend on a filter's size.
* Keys (:func:`prefilter_rows`): to hash a key whole costs ten times as much as to look at one word of it, and of a base file's keys
  nearly all are not looked for. So the last bytes are compared first: keys that count up differ there.
* Small files (:func:`match_small_files`): to ask a file of few keys costs its calls, not its keys: a range, a filter, statistics
  and a comparison. So the keys of many small files are compared by one call.
"""

from __future__ import annotations

import base64
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, compress
from threading import Lock
from typing import Final, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import common_length, from_numpy, text_offsets
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.formats.bloom_filter import DYNAMIC, SIMPLE, BloomFilter, decode_bloom_filter
from lakefmt._core.formats.murmur import HashChain, KeyBlock, key_arrays, key_blocks
from lakefmt._core.formats.parquet.base_file import BLOOM_TYPE_KEY, BaseFileFooter, in_java_order, java_order_key
from lakefmt._core.formats.parquet.footers import BLOOM_KEY, LEGACY_BLOOM_KEY
from lakefmt._core.index.api import (
    FilterTally,
    IndexKeys,
    KeyReader,
    Located,
    LookUpStep,
    SelectiveKeyReader,
    SmallKeyReader,
    ordered_pairs,
)
from lakefmt.errors import CorruptFile

__all__ = [
    "I64",
    "Candidate",
    "KeyRanges",
    "LookUp",
    "Rows",
    "SharedHashes",
    "StoredFilter",
    "look_up_candidates",
    "look_up_keys",
    "match_small_files",
    "prefilter_rows",
    "rows_by_partition",
    "stored_filter",
]

Rows = npt.NDArray[np.int64]


U64 = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]


#: Threads that ask a reader which does not say how many it can take.
_USUAL_THREADS = 4
#: Files that a thread takes at once: at most this number, and few enough that each thread takes new ones this often.
_MOST_AT_A_TIME = 8
_SHARES_PER_THREAD = 4
#: From this number of small files on their keys are compared together, by this number of files.
_MANY_SMALL = 32
_SMALL_AT_A_TIME = 64
#: Up to this number of keys a filter is asked about, however few rows its file has.
_KEYS_ALWAYS_ASKED = 10_000


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
class _FileLookUp:
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


def look_up_keys(how: LookUp, index_keys: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
    """Return where keys are stored among `slices`: each key is looked for in its partition, or by a global index in all.

    Raises:
        SnapshotExpired: a file is gone.
        CorruptFile: a footer, a filter or a key column is damaged.
    """
    everything = np.arange(len(index_keys), dtype=np.int64)
    by_partition = {} if how.is_global else dict(rows_by_partition(index_keys))
    candidates = []
    for number, file_slice in enumerate(slices):
        rows = everything if how.is_global else by_partition.get(file_slice.partition)
        if file_slice.base is not None and rows is not None and len(rows):
            candidates.append(Candidate(number, file_slice.base, rows))
    return look_up_candidates(how, index_keys, candidates, reader)


def look_up_candidates(
    how: LookUp, index_keys: IndexKeys, candidates: Sequence[Candidate], reader: KeyReader
) -> Located:
    """Return where the wanted keys are stored, looking for each key only in the files that may hold it.

    Args:
        how: the steps before keys are compared.
        index_keys: the keys.
        candidates: files, and which of the keys may be in each.
        reader: reads footers and keys.

    Raises:
        SnapshotExpired: a file is gone.
        CorruptFile: a footer, a filter or a key column is damaged.
    """
    task = _FileTask(how, index_keys, candidates, reader)
    threads = how.threads or (reader.threads if isinstance(reader, SelectiveKeyReader) else _USUAL_THREADS)
    small, others = _small_and_others(how, candidates, reader)
    seen = [
        *_look_at_shares(task.together, small, threads, _SMALL_AT_A_TIME),
        *_look_at_shares(task.one_by_one, others, threads),
    ]
    return ordered_pairs(
        [file.found for file in seen],
        [np.full(len(file.found), file.slice_number, dtype=np.int64) for file in seen],
        tuple(_look_up_steps(how, seen)),
        _filter_tally(seen) if how.filters else None,
        [file.positions for file in seen],
    )


def _small_and_others(
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


def _look_at_shares(
    work: Callable[[Sequence[Candidate]], list[_FileLookUp]],
    items: Sequence[Candidate],
    threads: int,
    most: int = _MOST_AT_A_TIME,
) -> Iterator[_FileLookUp]:
    # Some files at a time where there are many: to hand one over costs about as much as to find out that it is out of range.
    size = max(1, min(most, len(items) // (_SHARES_PER_THREAD * max(1, threads))))
    shares = [items[begin : begin + size] for begin in range(0, len(items), size)]
    if threads < 2 or len(shares) < 2:
        yield from chain.from_iterable(map(work, shares))
        return
    with ThreadPoolExecutor(min(threads, len(shares)), "lakefmt-index") as pool:
        yield from chain.from_iterable(pool.map(work, shares))


def rows_by_partition(index_keys: IndexKeys) -> Iterator[tuple[str, Rows]]:
    """Yield each partition with the rows that are meant for it, if any."""
    codes, names = index_keys.partition_codes(), index_keys.partition_names()
    order = np.argsort(codes, kind="stable").astype(np.int64)
    starts = np.searchsorted(codes[order], np.arange(len(names) + 1))
    for code, name in enumerate(names):
        yield name, order[starts[code] : starts[code + 1]]


class _FileTask:
    """The way of one file through a look-up; what all files share is made once."""

    def __init__(self, how: LookUp, index_keys: IndexKeys, candidates: Sequence[Candidate], reader: KeyReader) -> None:
        self._how = how
        self._index_keys = index_keys
        self._reader = reader
        # Asked once: Python looks at every attribute of a protocol, and there are many files.
        self._selective = reader if isinstance(reader, SelectiveKeyReader) else None
        self._ranges = KeyRanges(index_keys.keys, (c.rows for c in candidates)) if how.ranges and candidates else None
        # One file alone asks each key once: there is nothing to share.
        self._hashes = SharedHashes(index_keys.keys, None if len(candidates) > 1 else 0)

    def one_by_one(self, candidates: Sequence[Candidate]) -> list[_FileLookUp]:
        """Look at some files, one after the other."""
        return [self._look(candidate) for candidate in candidates]

    def together(self, candidates: Sequence[Candidate]) -> list[_FileLookUp]:
        """Look at some small files by comparing all their keys at once."""
        stored = [self._reader.keys(candidate.file) for candidate in candidates]
        matches = match_small_files(self._index_keys.keys, [candidate.rows for candidate in candidates], stored)
        if matches is None:
            return self.one_by_one(candidates)
        return [
            _FileLookUp(
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

    def _look(self, candidate: Candidate) -> _FileLookUp:
        """Take a file from step to step, as long as rows are left."""
        asks_footer = self._ranges is not None or self._how.filters
        footer = self._reader.footer(candidate.file) if asks_footer else None
        rows = in_range = self._in_range(candidate, footer)
        stored = None
        # The filter of a file with fewer rows than keys to ask about costs more than its keys do.
        if footer is not None and self._how.filters and 0 < len(rows) <= max(_KEYS_ALWAYS_ASKED, footer.num_rows):
            stored = stored_filter(footer)
        if stored is not None:
            rows = rows[stored.contains(self._hashes, rows)]
        matches = self._found(candidate.file, rows) if len(rows) else None
        nothing = rows[:0]
        return _FileLookUp(
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
        keys = self._index_keys.keys.take(from_numpy(rows))
        if self._selective is None:
            return rows[_stored_flags(keys, self._reader.keys(file))], None
        placed = self._selective.keys_with_positions(file, keys)
        if placed is None:
            return None
        flags, positions = _stored_flags_and_rows(keys, *placed)
        return rows[flags], positions[flags]


def _stored_flags(keys: pa.StringArray, stored: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return which of my keys are stored; the smaller side is hashed."""
    if len(keys) < len(stored):
        likely = _likely_rows(keys, stored)
        if likely is not None:
            stored = stored.take(from_numpy(likely))
        stored = stored.filter(pc.is_in(stored, value_set=keys))
    flags: npt.NDArray[np.bool_] = pc.is_in(keys, value_set=stored).to_numpy(zero_copy_only=False)
    return flags


def _stored_flags_and_rows(
    keys: pa.StringArray, stored: pa.ChunkedArray, numbers: Rows
) -> tuple[npt.NDArray[np.bool_], Rows]:
    """Return which of my keys are stored, and the row of each; -1 where several rows have the key."""
    likely = _likely_rows(keys, stored)
    if likely is not None:
        stored, numbers = stored.take(from_numpy(likely)), numbers[likely]
    is_wanted = pc.is_in(stored, value_set=keys)
    matches, matched_rows = stored.filter(is_wanted).combine_chunks(), numbers[np.asarray(is_wanted)]
    match_numbers = pc.index_in(keys, value_set=matches)
    flags: npt.NDArray[np.bool_] = match_numbers.is_valid().to_numpy(zero_copy_only=False)
    positions = np.full(len(keys), -1, np.int64)
    positions[flags] = matched_rows[match_numbers.drop_null().to_numpy()]
    if len(matches) != np.count_nonzero(flags):
        first = pc.index_in(matches, value_set=matches).to_numpy()
        often = np.bincount(first, minlength=len(matches)) > 1
        positions[flags] = np.where(often[match_numbers.drop_null().to_numpy()], -1, positions[flags])
    return flags, positions


#: Keys of a file below which Arrow has looked at each in less time than these calls take: measured with a tenth and a
#: hundredth of them looked for, 120 keys take it 0.01 ms instead of 0.18, 8,000 as long.
_FEW_STORED = 1 << 13


def _likely_rows(keys: pa.StringArray, stored: pa.ChunkedArray) -> Rows | None:
    if len(stored) < _FEW_STORED:
        return None

    return prefilter_rows(keys, stored)


# ------------------------------------------------------------------------------------------------------------- accounts


def _look_up_steps(how: LookUp, seen: Sequence[_FileLookUp]) -> Iterator[LookUpStep]:
    yield _step_of_pairs("considered", [file.considered for file in seen])
    large_files = [file for file in seen if not file.is_small]
    if len(large_files) < len(seen):
        yield _step_of_pairs("small, compared at once", [file.considered for file in seen if file.is_small])
    if how.ranges:
        yield _step_of_pairs("left by key range", [file.in_range for file in large_files])
    if how.filters:
        yield _step_of_pairs("left by bloom filter", [file.passed for file in large_files])
    yield _step_of_pairs("opened", [file.passed for file in seen if file.opened])


def _step_of_pairs(name: str, pairs: Sequence[int]) -> LookUpStep:
    return LookUpStep(name, sum(n > 0 for n in pairs), sum(pairs))


def _filter_tally(seen: Sequence[_FileLookUp]) -> FilterTally:
    files_with_filter = [file for file in seen if file.has_filter]
    return FilterTally(
        sum(file.in_range for file in files_with_filter),
        sum(file.passed for file in files_with_filter),
        sum(len(file.found) for file in files_with_filter),
    )


# --------------------------------------------------------------------------------------------- keys by their last bytes

_WORD_BYTES = 8
#: Spreads words over the highest bits: the odd number next to 2^64 divided by the golden ratio.
_SPREADING_FACTOR = np.uint64(0x9E3779B97F4A7C15)
#: Places of the table: this number for every key that is looked for, within these bounds.
_PLACES_PER_KEY, _LEAST_TABLE_BITS, _MOST_TABLE_BITS = 64, 12, 22
#: Keys of a file for each that is looked for, below which there is little to leave out.
_WORTH_PREFILTERING = 8
#: Keys that are looked at together: what is made of them stays in the cache, and in memory that is there already.
_PREFILTERED_AT_ONCE = 1 << 13


def prefilter_rows(keys: pa.StringArray, stored: pa.ChunkedArray) -> Rows | None:
    """Return the rows of `stored` that may hold a key of `keys`; None where it does not pay to tell, or cannot be told.

    Example:
        >>> stored = pa.chunked_array([[f"key-{number:05}" for number in range(100)]])
        >>> prefilter_rows(pa.array(["key-00007", "key-00042"]), stored).tolist()
        [7, 42]
    """
    if not len(keys) or len(stored) < _WORTH_PREFILTERING * len(keys) or stored.type != pa.string():
        return None
    if keys.null_count or stored.null_count:
        return None
    words = _last_words(keys, short=False)
    if words is None:
        return None
    bits = min(_MOST_TABLE_BITS, max(_LEAST_TABLE_BITS, (_PLACES_PER_KEY * len(keys)).bit_length()))
    table = np.zeros(1 << bits, np.bool_)
    table[_candidate_places(words, bits)] = True
    last_words = (_last_words(part, short=True) for part in _parts_of_keys(stored))
    return np.flatnonzero(
        np.concatenate([table.take(_candidate_places(each, bits)) for each in last_words if each is not None])
    )


def _parts_of_keys(keys: pa.ChunkedArray) -> Iterator[pa.StringArray]:
    for chunk in keys.chunks:
        for start in range(0, len(chunk), _PREFILTERED_AT_ONCE):
            yield chunk.slice(start, _PREFILTERED_AT_ONCE)


def _candidate_places(words: U64, bits: int) -> Rows:
    spread = words * _SPREADING_FACTOR
    spread >>= np.uint64(64 - bits)
    return spread.view(np.int64)


def _last_words(keys: pa.StringArray, *, short: bool) -> U64 | None:
    """Return the last eight bytes of each key; of a shorter one any eight, or None for all without `short`."""
    data, ends = keys.buffers()[2], text_offsets(keys)
    if not short and np.diff(ends).min() < _WORD_BYTES:
        return None
    if data is None or data.size < _WORD_BYTES:
        return np.zeros(len(keys), np.uint64)
    raw = np.frombuffer(data, np.uint8)
    length = common_length(ends)
    if length is not None and length >= _WORD_BYTES:
        return np.ndarray((len(keys),), "<u8", raw, int(ends[1]) - _WORD_BYTES, (length,))
    overlapping = np.ndarray((len(raw) - _WORD_BYTES + 1,), "<u8", raw, 0, (1,))  # a word from every byte on
    words: U64 = overlapping[np.maximum(ends[1:], _WORD_BYTES) - _WORD_BYTES]
    return words


# ---------------------------------------------------------------------------------------------------------- small files


def match_small_files(
    all_keys: pa.StringArray, rows: Sequence[Rows], stored: Sequence[pa.ChunkedArray]
) -> list[tuple[Rows, Rows]] | None:
    """Return for each file the rows whose key it stores, and the row of the file; -1 where several rows have the key.

    Args:
        all_keys: every key that is looked for.
        rows: for each file the rows, by number, whose key may be in it; files of one partition share one array.
        stored: for each file all its keys, as text.

    Returns:
        None where one key is looked for in two partitions.

    Example:
        >>> both = np.array([0, 2])
        >>> files = [pa.chunked_array([["x", "a"]]), pa.chunked_array([["c", "b"]])]
        >>> [(found.tolist(), at.tolist()) for found, at in match_small_files(pa.array(["a", "b", "c"]), [both, both], files)]
        [([0], [1]), ([2], [0])]
    """
    groups = {id(each): each for each in rows}
    number_of = {each: number for number, each in enumerate(groups)}
    all_rows = np.concatenate(list(groups.values()))
    keys = all_keys.take(from_numpy(all_rows))
    if len(keys.unique()) < len(keys):
        return None
    joined = pa.chunked_array([chunk for each in stored for chunk in each.chunks], pa.string())
    matches = pc.index_in(joined, value_set=keys)
    where, key = np.flatnonzero(np.asarray(matches.is_valid())), matches.drop_null().to_numpy()
    starts = np.cumsum([0, *map(len, stored)])
    file = np.searchsorted(starts, where, side="right") - 1
    group_of_key = np.repeat(np.arange(len(groups)), [len(each) for each in groups.values()])
    group_of_file = np.array([number_of[id(each)] for each in rows])
    meant = group_of_file[file] == group_of_key[key]
    where, key, file = where[meant], key[meant], file[meant]
    _, first, times = np.unique(file * len(keys) + key, return_index=True, return_counts=True)
    file = file[first]
    stored_rows, file_rows = all_rows[key[first]], np.where(times > 1, -1, where[first] - starts[file])
    cuts = np.searchsorted(file, np.arange(1, len(stored)))
    return list(zip(np.split(stored_rows, cuts), np.split(file_rows, cuts), strict=True))


# -------------------------------------------------------------------------------------------------------------- filters

_FILTER_HEADER: Final = struct.Struct(">iiBi")  # marker, hashes, kind of hash, bits
_FILTER_COUNTERS: Final = struct.Struct(">iii")  # keys per row, keys in the last row, rows
_FILTER_MARKER: Final = -1
_MURMUR_HASH: Final = 1
_MAX_HASHES: Final = 64
_MAX_FILTER_ROWS: Final = 64
#: Positions are 32-bit numbers of bits.
_MAX_FILTER_TEXT: Final = 1 << 28

#: Hashes that a first round asks about; of keys that are not in the file one in sixteen is left after it.
_FIRST_HASHES: Final = 4
#: Hashes of one look-up that are kept, and how many at most of one key: what a filter of one in 10^9 has. Keys that are
#: in a file are asked about to the end: hashed anew for every file, ten thousand of them cost thirty files' worth of calls.
_SHARED_HASHES: Final = 1 << 22
_SHARED_PER_KEY: Final = 30
#: Keys that are out are dropped when no more than this share is left: to drop some costs about as much as one hash.
_WORTH_DROPPING: Final = 0.75
#: Keys that one row of a filter is asked about at a time.
_KEYS_AT_A_TIME: Final = 1 << 15

_NO_CHARACTER: Final = 0xFF
_BASE64_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BASE64_VALUES: Final = np.full(256, _NO_CHARACTER, np.uint8)
_BASE64_VALUES[np.frombuffer(_BASE64_ALPHABET, np.uint8)] = np.arange(64, dtype=np.uint8)


class SharedHashes:
    """The keys of one look-up and, of each, the first hashes of its chain (docs/format.md, Bloom filter hash), made when first asked for.

    A few keys are hashed as often as any usual filter asks for. When there are many keys, only what the first round needs is kept;
    the few that are left after it are hashed anew.

    Args:
        keys: every key wanted.
        rounds: hashes to keep of each; None: as many as are worth it.
    """

    def __init__(self, keys: pa.StringArray, rounds: int | None = None) -> None:
        self.keys = keys
        if rounds is None:
            rounds = min(_SHARED_PER_KEY, max(_FIRST_HASHES, _SHARED_HASHES // max(1, len(keys))))
        self.rounds = rounds
        self._made: U32 | None = None
        self._lock = Lock()

    def of(self, rows: I64, first: int, last: int) -> U32:
        """Return hashes number `first` to `last` of the keys `rows`, shape (hashes, keys)."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
        return self._made[first:last].take(rows, axis=1)

    def _make(self) -> U32:
        made = np.empty((self.rounds, len(self.keys)), np.uint32)
        start = 0
        for chunk in key_arrays(self.keys):
            target = made[:, start : start + len(chunk)]
            for block in key_blocks(chunk):
                HashChain(block).advance_into(target)
            start += len(chunk)
        return made


class StoredFilter:
    """A key filter as the text it is stored as.

    Example:
        >>> stored = StoredFilter("/////wAAAAcBAAAAYKAgAEFgYERQhAKAGA==")
        >>> stored.contains(SharedHashes(pa.array(["é", "e"])), np.array([0, 1])).tolist()
        [True, False]
    """

    def __init__(self, encoded_filter: str, type_code: str | None = None) -> None:
        """Take a filter's text; `type_code` None means SIMPLE.

        Raises:
            CorruptFile: the text is not a filter of that type.
            UnsupportedFeature: an unknown type or hash.
        """
        self._text = encoded_filter
        layout = _filter_layout(encoded_filter, type_code)
        self._decoded: BloomFilter | None = None if layout else decode_bloom_filter(encoded_filter, type_code)
        if layout:
            self._characters = np.frombuffer(encoded_filter.encode("ascii"), np.uint8)
            self._hashes, self._bits, self._begins = layout

    def contains(self, keys: SharedHashes, rows: I64) -> Flags:
        """Return for each of `rows` whether its key may be in the file; False is certain.

        Raises:
            CorruptFile: a character that was looked at is no Base64.
        """
        if self._decoded is not None:
            return self._decoded.contains(keys.keys.take(from_numpy(rows)))
        answer = np.zeros(len(rows), np.bool_)
        step = max(1, _KEYS_AT_A_TIME // len(self._begins))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            answer[start : start + step][self._maybe_here(keys, some)] = True
        return answer

    def _maybe_here(self, keys: SharedHashes, rows: I64) -> I64:
        """Return the positions in `rows` of keys that may be in the file."""
        left = np.arange(len(rows))
        alive = np.ones((len(self._begins), len(rows)), np.bool_)
        shared = min(keys.rounds, self._hashes)
        first = min(_FIRST_HASHES, shared)
        for low, high in ((0, first), (first, shared)):
            if low < high and len(left):
                alive &= self._bits_at(_remainders(keys.of(rows[left], low, high), self._bits)).all(axis=1)
                survivors = np.flatnonzero(alive.any(axis=0))
                left, alive = left[survivors], alive[:, survivors]
        if shared < self._hashes and len(left):
            left = left[self._hash_anew(keys.keys.take(from_numpy(rows[left])))]
        return left

    def _hash_anew(self, keys: pa.StringArray) -> Flags:
        answer = np.zeros(len(keys), np.bool_)
        start = 0
        for chunk in key_arrays(keys):
            target = answer[start : start + len(chunk)]
            for block in key_blocks(chunk):
                left, hits = self._survivors(block)
                target[left.rows] = hits
            start += len(chunk)
        return answer

    def _survivors(self, block: KeyBlock) -> tuple[KeyBlock, Flags]:
        """Return the keys of a block that were asked to the end, and which of them may be in the file."""
        chain = HashChain(block)
        alive = np.ones((len(self._begins), block.size), np.bool_)
        for _ in range(self._hashes):
            chain.advance()
            alive &= self._bits_at(chain.positions(self._bits)[np.newaxis])[:, 0]
            survivors = np.flatnonzero(alive.any(axis=0))
            if len(survivors) <= _WORTH_DROPPING * alive.shape[1]:
                chain.keep(survivors)
                alive = alive[:, survivors]
                if not len(survivors):
                    break
        hits: Flags = np.logical_or.reduce(alive, axis=0)
        return chain.block, hits

    def _bits_at(self, positions: U32) -> Flags:
        """Return the bits at `positions` of shape (hashes, keys), of every row of bits: shape (rows, hashes, keys)."""
        # Within a byte, bits count from the least significant one; within a stream of characters from the most.
        bit_offsets = self._begins + (positions ^ np.uint32(7))
        words_at = bit_offsets // np.uint32(6)
        values = _BASE64_VALUES.take(self._characters.take(words_at))
        if values.size and int(values.max()) == _NO_CHARACTER:
            raise CorruptFile("a bloom filter is not Base64 text")
        down = (np.uint32(5) - (bit_offsets - words_at * np.uint32(6))).astype(np.uint8)
        bits: Flags = (np.right_shift(values, down) & np.uint8(1)).view(np.bool_)
        return bits


def stored_filter(footer: BaseFileFooter) -> StoredFilter | None:
    """Return the key filter of a file, ready to be asked; None when the file has none (docs/format.md, Parquet footer).

    Raises:
        CorruptFile: it is damaged.
        UnsupportedFeature: an unknown type or hash.
    """
    encoded_filter = footer.entries.get(BLOOM_KEY) or footer.entries.get(LEGACY_BLOOM_KEY)
    return None if encoded_filter is None else StoredFilter(encoded_filter, footer.entries.get(BLOOM_TYPE_KEY))


def _remainders(hashes: U32, bits: int) -> U32:
    """Return |hash| modulo `bits`, the hash being a signed number as in Java."""
    magnitude = np.minimum(hashes, np.negative(hashes))
    remainders: U32 = magnitude % np.uint32(bits)
    return remainders


def _filter_layout(encoded: str, type_code: str | None) -> tuple[int, int, U32] | None:
    """Return hashes, bits and the first bit of every row in the text; None when the text is not plainly a filter."""
    if (
        len(encoded) % 4
        or len(encoded) > _MAX_FILTER_TEXT
        or not encoded.isascii()
        or type_code not in (None, SIMPLE, DYNAMIC)
    ):
        return None
    size = len(encoded) // 4 * 3 - encoded[-2:].count("=")
    is_dynamic = type_code == DYNAMIC
    head = _decoded_bytes_at(encoded, 0, _FILTER_HEADER.size + (_FILTER_COUNTERS.size if is_dynamic else 0))
    if head is None:
        return None
    marker, hashes, hash_type, bits = _FILTER_HEADER.unpack_from(head)
    if (marker, hash_type) != (_FILTER_MARKER, _MURMUR_HASH) or not 1 <= hashes <= _MAX_HASHES or bits < 1:
        return None
    width = (bits + 7) // 8
    begins = np.array([_FILTER_HEADER.size])
    if is_dynamic:
        rows = _filter_rows(encoded, head, width)
        if rows is None:
            return None
        width += _FILTER_HEADER.size
        begins = len(head) + _FILTER_HEADER.size + np.arange(rows) * width
    if size != (_FILTER_HEADER.size if not is_dynamic else len(head)) + len(begins) * width:
        return None
    return hashes, bits, (8 * begins).astype(np.uint32).reshape(-1, 1, 1)


def _filter_rows(encoded: str, head: bytes, width: int) -> int | None:
    """Return the number of rows of bits; None when there are many, or one of them does not repeat the header."""
    per_row, in_row, rows = _FILTER_COUNTERS.unpack_from(head, _FILTER_HEADER.size)
    if per_row < 1 or in_row < 0 or not 1 <= rows <= _MAX_FILTER_ROWS:
        return None
    for row in range(rows):
        offset = len(head) + row * (_FILTER_HEADER.size + width)
        if _decoded_bytes_at(encoded, offset, _FILTER_HEADER.size) != head[: _FILTER_HEADER.size]:
            return None
    return int(rows)


def _decoded_bytes_at(encoded: str, start: int, size: int) -> bytes | None:
    """Return `size` decoded bytes from byte `start`; None when the text ends before, or is no Base64 there."""
    first, last = start // 3 * 4, -(-(start + size) // 3) * 4
    try:
        decoded = base64.b64decode(encoded[first:last], validate=True)[start % 3 :][:size]
    except ValueError:
        return None
    return decoded if len(decoded) == size else None


# ----------------------------------------------------------------------------------------------------------- key ranges


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
        self._java = _SortedKeys(java, distinct)
        # Most keys sort alike in both orders.
        self._plain = self._java if java.equals(plain) else _SortedKeys(plain, distinct)

    def inside(self, rows: I64, low: str, high: str) -> I64:
        """Return those of `rows` whose key lies between `low` and `high`, the ends included."""
        ends = (java_order_key(low), java_order_key(high))
        inside = self._java.inside(rows, *ends)
        if self._plain is self._java and ends == (low.encode(), high.encode()):
            return inside
        return np.union1d(inside, self._plain.inside(rows, low.encode(), high.encode()))


class _SortedKeys:
    """Keys in one order, and each group's rows in the order of their keys."""

    def __init__(self, keys: pa.BinaryArray, groups: dict[int, I64]) -> None:
        order = pc.sort_indices(keys).to_numpy()
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        self._keys = _TextSequence(keys.take(from_numpy(order)))
        self._groups = {name: (rows[by := np.argsort(ranks[rows])], ranks[rows][by]) for name, rows in groups.items()}

    def inside(self, rows: I64, low: bytes, high: bytes) -> I64:
        ordered, ranks = self._groups[id(rows)]
        first, last = np.searchsorted(ranks, (bisect_left(self._keys, low), bisect_right(self._keys, high)))
        return ordered[first:last]


class _TextSequence(Sequence[bytes]):
    """An array as a sequence; a binary search looks at a few of its values, not at rows."""

    def __init__(self, values: pa.BinaryArray) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return _TextSequence(self._values[index])
        return bytes(self._values[index].as_buffer())
