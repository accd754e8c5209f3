"""The look-up that the classic indexes share: partition, key range, filter, and at last the keys themselves. Pure.

Each file goes all the way in one task, so that one file's keys are decoded while another file's footer is on its way,
and no more footers are held than there are tasks at work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.filegroups.model import BaseFile, FileSlice
from lakefmt.index.api import (
    Everywhere,
    FilterTally,
    Index,
    IndexKeys,
    KeyReader,
    Located,
    LookUpStep,
    PlacingKeyReader,
    SelectiveKeyReader,
)
from lakefmt.index.filters import SharedHashes, StoredFilter, stored_filter
from lakefmt.index.ranges import KeyRanges
from lakefmt.index.sieve import likely_rows

__all__ = ["Candidate", "LookUp", "locate_everywhere", "look_up", "partition_rows"]

#: Threads that ask a reader which does not say how many it can take.
_THREADS = 4

#: Files that a thread takes at once: at most so many, and so few that each thread comes back for more this often.
_MOST_AT_A_TIME = 8
_SHARES_PER_THREAD = 4

#: Up to so many keys a filter is asked about, however few rows its file has.
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
    found: Rows
    positions: Rows | None


def look_up(how: LookUp, wanted: IndexKeys, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
    """Return where the wanted keys are stored among `slices`.

    Raises:
        SnapshotExpired: a file is gone.
        CorruptFile: a footer, a filter or a key column is damaged.
    """
    candidates = list(partition_rows(wanted, slices, how.is_global))
    task = _Task(how, wanted, candidates, reader)
    threads = how.threads or (reader.threads if isinstance(reader, SelectiveKeyReader) else _THREADS)
    seen = list(_each(task, candidates, threads))
    return _ordered(
        [one.found for one in seen],
        [np.full(len(one.found), one.slice_number, dtype=np.int64) for one in seen],
        tuple(_steps(how, seen)),
        _tally(seen) if how.filters else None,
        [one.positions for one in seen],
    )


def _each(work: Callable[[Candidate], _Seen], items: Sequence[Candidate], threads: int) -> Iterator[_Seen]:
    if threads < 2 or len(items) < 2:
        yield from map(work, items)
        return
    # Some files at a time where there are many: to hand one over costs about as much as to find out that it is out of range.
    size = max(1, min(_MOST_AT_A_TIME, len(items) // (_SHARES_PER_THREAD * threads)))
    shares = [items[at : at + size] for at in range(0, len(items), size)]
    with ThreadPoolExecutor(min(threads, len(shares)), "lakefmt-index") as pool:
        for share in pool.map(lambda some: [work(item) for item in some], shares):
            yield from share


def partition_rows(wanted: IndexKeys, slices: Sequence[FileSlice], is_global: bool) -> Iterator[Candidate]:
    """Yield each base file with the rows that may be in it by their partition (all rows for a global index)."""
    everything = np.arange(len(wanted), dtype=np.int64)
    by_partition = {} if is_global else dict(_rows_by_partition(wanted.partitions))
    for number, piece in enumerate(slices):
        if piece.base is None:
            continue
        rows = everything if is_global else by_partition.get(piece.partition)
        if rows is not None and len(rows):
            yield Candidate(number, piece.base, rows)


def _rows_by_partition(partitions: pa.DictionaryArray) -> Iterator[tuple[str, Rows]]:
    codes = partitions.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable").astype(np.int64)
    starts = np.searchsorted(codes[order], np.arange(len(partitions.dictionary) + 1))
    # Partitions, not rows.
    for code, name in enumerate(partitions.dictionary.to_pylist()):
        yield name, order[starts[code] : starts[code + 1]]


class _Task:
    """The way of one file through a look-up; what all files share is made once."""

    def __init__(self, how: LookUp, wanted: IndexKeys, candidates: Sequence[Candidate], reader: KeyReader) -> None:
        self._how = how
        self._wanted = wanted
        self._reader = reader
        # Asked once: Python looks at every attribute of a protocol, and there are many files.
        self._placing = reader if isinstance(reader, PlacingKeyReader) else None
        self._selective = reader if isinstance(reader, SelectiveKeyReader) else None
        self._ranges = KeyRanges(wanted.keys, (c.rows for c in candidates)) if how.ranges and candidates else None
        # One file alone asks each key once: there is nothing to share.
        self._hashes = SharedHashes(wanted.keys, None if len(candidates) > 1 else 0)

    def __call__(self, candidate: Candidate) -> _Seen:
        """Take a file from step to step, as long as rows are left."""
        rows = in_range = self._in_range(candidate)
        stored = self._filter(candidate.file, len(rows)) if self._how.filters and len(rows) else None
        if stored is not None:
            rows = rows[stored.contains(self._hashes, rows)]
        found = self._found(candidate.file, rows) if len(rows) else None
        nothing = rows[:0]
        return _Seen(
            slice_number=candidate.slice_number,
            considered=len(candidate.rows),
            in_range=len(in_range),
            passed=len(rows),
            has_filter=stored is not None,
            opened=found is not None,
            found=nothing if found is None else found[0],
            positions=nothing if found is None else found[1],
        )

    def _in_range(self, candidate: Candidate) -> Rows:
        if self._ranges is None:
            return candidate.rows
        footer = self._reader.footer(candidate.file)
        if not footer.num_rows:
            return candidate.rows[:0]
        if footer.min_key is None or footer.max_key is None:
            return candidate.rows
        return self._ranges.inside(candidate.rows, footer.min_key, footer.max_key)

    def _filter(self, file: BaseFile, num_keys: int) -> StoredFilter | None:
        footer = self._reader.footer(file)
        # The filter of a file with fewer rows than keys to ask about costs more than its keys do.
        return None if num_keys > max(_ALWAYS_ASKED, footer.num_rows) else stored_filter(footer)

    def _found(self, file: BaseFile, rows: Rows) -> tuple[Rows, Rows | None] | None:
        """Return the rows whose key is stored in the file, and where; None when the file need not be opened for that."""
        mine = self._wanted.keys.take(pa.array(rows))
        if self._placing is not None:
            placed = self._placing.placed_keys(file, mine)
            if placed is None:
                return None
            flags, positions = _places(mine, *placed)
            return rows[flags], positions[flags]
        if self._selective is not None:
            stored = self._selective.keys_among(file, mine)
        else:
            stored = self._reader.keys(file)
        return None if stored is None else (rows[_present(mine, stored)], None)


def _present(mine: pa.StringArray, stored: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return which of my keys are stored; the smaller side is hashed."""
    if len(mine) < len(stored):
        likely = likely_rows(mine, stored)
        if likely is not None:
            stored = stored.take(pa.array(likely))
        stored = stored.filter(pc.is_in(stored, value_set=mine))
    flags: npt.NDArray[np.bool_] = pc.is_in(mine, value_set=stored).to_numpy(zero_copy_only=False)
    return flags


def _places(mine: pa.StringArray, stored: pa.ChunkedArray, numbers: Rows) -> tuple[npt.NDArray[np.bool_], Rows]:
    """Return which of my keys are stored, and the row of each; -1 where several rows have the key."""
    likely = likely_rows(mine, stored)
    if likely is not None:
        stored, numbers = stored.take(pa.array(likely)), numbers[likely]
    known = pc.is_in(stored, value_set=mine)
    found, places = stored.filter(known).combine_chunks(), numbers[np.asarray(known)]
    at = pc.index_in(mine, value_set=found)
    flags: npt.NDArray[np.bool_] = at.is_valid().to_numpy(zero_copy_only=False)
    positions = np.full(len(mine), -1, np.int64)
    positions[flags] = places[at.drop_null().to_numpy()]
    if len(found) != np.count_nonzero(flags):
        first = pc.index_in(found, value_set=found).to_numpy()
        often = np.bincount(first, minlength=len(found)) > 1
        positions[flags] = np.where(often[at.drop_null().to_numpy()], -1, positions[flags])
    return flags, positions


# ------------------------------------------------------------------------------------------------------- accounts


def _steps(how: LookUp, seen: Sequence[_Seen]) -> Iterator[LookUpStep]:
    yield _left("considered", [one.considered for one in seen])
    if how.ranges:
        yield _left("left by key range", [one.in_range for one in seen])
    if how.filters:
        yield _left("left by bloom filter", [one.passed for one in seen])
    yield _left("opened", [one.passed for one in seen if one.opened])


def _left(name: str, pairs: Sequence[int]) -> LookUpStep:
    return LookUpStep(name, sum(n > 0 for n in pairs), sum(pairs))


def _tally(seen: Sequence[_Seen]) -> FilterTally:
    asked = [one for one in seen if one.has_filter]
    return FilterTally(
        sum(one.in_range for one in asked), sum(one.passed for one in asked), sum(len(one.found) for one in asked)
    )


def _ordered(
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
    told = [places for places in positions if places is not None]
    places = np.concatenate([empty, *told])[order] if len(told) == len(positions) else None
    return Located(all_rows[order], all_slices[order], steps, tally, places)


# --------------------------------------------------------------------------------------------- partitions unknown


def locate_everywhere(index: Index, keys: pa.StringArray, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
    """Return where keys are stored among `slices`, whatever their partitions are (a delete by key, an explanation).

    An index that knows only partitions is asked for each of them in turn.
    """
    everywhere = index.everywhere() if isinstance(index, Everywhere) else index
    if everywhere.is_global:
        return everywhere.locate(_meant_for(keys, ""), slices, reader)
    numbers: dict[str, list[int]] = {}
    for number, piece in enumerate(slices):
        numbers.setdefault(piece.partition, []).append(number)
    answers = [
        (np.array(mine, dtype=np.int64), everywhere.locate(_meant_for(keys, p), [slices[n] for n in mine], reader))
        for p, mine in numbers.items()
    ]
    return _ordered(
        [found.rows for _, found in answers],
        [mine[found.slices] for mine, found in answers],
        _joined_steps([found.steps for _, found in answers]),
        _joined_tallies([found.filters for _, found in answers]),
        [found.positions for _, found in answers],
    )


def _meant_for(keys: pa.StringArray, partition: str) -> IndexKeys:
    codes = pa.array(np.zeros(len(keys), np.int32))
    return IndexKeys(keys, pa.DictionaryArray.from_arrays(codes, pa.array([partition], pa.string())))


def _joined_steps(many: Iterable[tuple[LookUpStep, ...]]) -> tuple[LookUpStep, ...]:
    joined: dict[str, LookUpStep] = {}
    for step in (step for steps in many for step in steps):
        known = joined.get(step.name, LookUpStep(step.name, 0))
        joined[step.name] = LookUpStep(step.name, known.files + step.files, known.candidates + step.candidates)
    return tuple(joined.values())


def _joined_tallies(many: Iterable[FilterTally | None]) -> FilterTally | None:
    known = [tally for tally in many if tally is not None]
    return sum(known, FilterTally()) if known else None
