"""Steps that several indexes share: files of a row's partition, range pruning, filters, the exact key check (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.filegroups.model import BaseFile, FileSlice
from lakefmt.formats.parquet import in_java_order, java_order_key
from lakefmt.index.api import (
    Everywhere,
    FilterTally,
    Index,
    IndexKeys,
    KeyReader,
    Located,
    LookUpStep,
    SelectiveKeyReader,
)
from lakefmt.index.filters import SharedHashes, stored_filter

__all__ = [
    "Candidate",
    "Checked",
    "check_keys",
    "left_after",
    "locate_everywhere",
    "partition_rows",
    "prune_by_filter",
    "prune_by_range",
    "threads_for",
    "to_located",
]

#: Threads that ask a reader which does not say how many it can take.
_THREADS = 4

Rows = npt.NDArray[np.int64]
T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may hold some of the wanted rows; ``filtered``: its filter said so."""

    slice_number: int
    file: BaseFile
    rows: Rows
    filtered: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """A candidate whose keys were compared: the rows really stored there, and whether its key column was read."""

    candidate: Candidate
    rows: Rows
    opened: bool


def _each(work: Callable[[T], U], items: Sequence[T], threads: int) -> Iterator[U]:
    """Yield `work` of every item, in order; threads run while others wait for a store or for Arrow."""
    if threads < 2 or len(items) < 2:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(min(threads, len(items)), "lakefmt-index") as pool:
        yield from pool.map(work, items)


def threads_for(reader: KeyReader, chosen: int = 0) -> int:
    """Return how many threads ask `reader`: those chosen; 0: what it says itself."""
    return chosen or (reader.threads if isinstance(reader, SelectiveKeyReader) else _THREADS)


def left_after(name: str, candidates: Sequence[Candidate]) -> LookUpStep:
    """Return the step that left these candidates."""
    return LookUpStep(name, len(candidates), sum(len(c.rows) for c in candidates))


# ---------------------------------------------------------------------------------------------------- partitions


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


# -------------------------------------------------------------------------------------------------------- ranges


@dataclass(frozen=True, slots=True)
class _Range:
    """A file's number of rows and key range, as bytes in one order; None where the footer is silent."""

    num_rows: int
    low: str | None
    high: str | None


def prune_by_range(
    wanted: IndexKeys, candidates: Sequence[Candidate], reader: KeyReader, threads: int = 1
) -> list[Candidate]:
    """Keep, per file, the rows whose key lies between the file's smallest and largest key.

    Keys and bounds are ranked together once; after that each file is two binary searches in its partition's
    sorted ranks, whatever the number of keys.

    Bounds are the ends of a file's keys in the order of Java's strings or, from Spark's row writer, in that of UTF-8
    bytes, and a footer does not say which. Where the two differ, a key stays when it is inside by either.
    """

    def read(candidate: Candidate) -> _Range:
        footer = reader.footer(candidate.file)
        return _Range(footer.num_rows, footer.min_key, footer.max_key)

    ranges = list(_each(read, candidates, threads))
    orders = [_Ranks(in_java_order(wanted.keys), ranges, java_order_key)]
    if _orders_differ(wanted.keys, ranges):
        orders.append(_Ranks(wanted.keys.cast(pa.binary()), ranges, str.encode))
    kept = []
    for number, (candidate, found) in enumerate(zip(candidates, ranges, strict=True)):
        if not found.num_rows:
            continue
        rows = candidate.rows
        if found.low is not None and found.high is not None:
            rows = _either([order.inside(number, candidate.rows) for order in orders])
        if len(rows):
            kept.append(replace(candidate, rows=rows))
    return kept


def _orders_differ(keys: pa.StringArray, ranges: Sequence[_Range]) -> bool:
    bounds = (text for found in ranges for text in (found.low, found.high) if text is not None)
    moved = any(java_order_key(text) != text.encode() for text in bounds)
    return moved or not in_java_order(keys).equals(keys.cast(pa.binary()))


def _either(answers: Sequence[Rows]) -> Rows:
    return answers[0] if len(answers) == 1 else np.union1d(answers[0], answers[1])


class _Ranks:
    """Keys and bounds of files ranked together in one order of texts."""

    def __init__(self, keys: pa.BinaryArray, ranges: Sequence[_Range], encode: Callable[[str], bytes]) -> None:
        known = [n for n, found in enumerate(ranges) if found.low is not None and found.high is not None]
        bounds = [encode(t) for n in known for t in (ranges[n].low, ranges[n].high) if t is not None]
        joined = pa.concat_arrays([keys, pa.array(bounds, pa.binary())])
        ranks = pc.rank(joined, tiebreaker="dense").to_numpy(zero_copy_only=False)
        self._keys = ranks[: len(keys)]
        self._bounds = dict(zip(known, ranks[len(keys) :].reshape(-1, 2), strict=True))
        # Candidates of one partition share one array of rows, which is alive as long as they are.
        self._sorted: dict[int, tuple[Rows, npt.NDArray[np.uint64]]] = {}

    def inside(self, number: int, rows: Rows) -> Rows:
        """Return those of `rows` whose key lies in the range of file `number`."""
        if id(rows) not in self._sorted:
            order = rows[np.argsort(self._keys[rows], kind="stable")]
            self._sorted[id(rows)] = (order, self._keys[order])
        order, ranks = self._sorted[id(rows)]
        low, high = self._bounds[number]
        return order[np.searchsorted(ranks, low, "left") : np.searchsorted(ranks, high, "right")]


# ------------------------------------------------------------------------------------------------------- filters


def prune_by_filter(
    wanted: IndexKeys, candidates: Sequence[Candidate], reader: KeyReader, threads: int = 1
) -> list[Candidate]:
    """Keep, per file, the rows of which the file's filter says "maybe"; a file without a filter is kept whole."""
    pairs = sum(len(c.rows) for c in candidates)
    # Hashing is shared when keys are asked about more than once.
    hashes = SharedHashes(wanted.keys, None if pairs > len(wanted) else 0)

    def ask(candidate: Candidate) -> Candidate:
        stored = stored_filter(reader.footer(candidate.file))
        if stored is None:
            return candidate
        return replace(candidate, rows=candidate.rows[stored.contains(hashes, candidate.rows)], filtered=True)

    return [left for left in _each(ask, candidates, threads) if len(left.rows)]


# ---------------------------------------------------------------------------------------------------------- keys


def check_keys(
    wanted: IndexKeys, candidates: Sequence[Candidate], reader: KeyReader, threads: int = 1
) -> Iterator[Checked]:
    """Yield of every candidate the rows that are really stored there: key columns are read and compared."""
    stored_keys = _key_source(reader)
    everything = np.arange(len(wanted), dtype=np.int64)

    def check(candidate: Candidate) -> Checked:
        is_whole = len(candidate.rows) == len(wanted)
        rows = everything if is_whole else candidate.rows
        mine = wanted.keys if is_whole else wanted.keys.take(pa.array(rows))
        stored = stored_keys(candidate.file, mine)
        if stored is None:
            return Checked(candidate, rows[:0], opened=False)
        return Checked(candidate, rows[_present(mine, stored)], opened=True)

    yield from _each(check, candidates, threads)


def _key_source(reader: KeyReader) -> Callable[[BaseFile, pa.StringArray], pa.ChunkedArray | None]:
    if isinstance(reader, SelectiveKeyReader):
        return reader.keys_among
    return lambda file, _: reader.keys(file)


def _present(mine: pa.StringArray, stored: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return which of my keys are stored. The smaller side is hashed."""
    if len(mine) < len(stored):
        stored = stored.filter(pc.is_in(stored, value_set=mine))
    flags: npt.NDArray[np.bool_] = pc.is_in(mine, value_set=stored).to_numpy(zero_copy_only=False)
    return flags


def to_located(
    checked: Iterable[Checked], steps: Sequence[LookUpStep] = (), asked: Sequence[Candidate] | None = None
) -> Located:
    """Join per-file answers into pairs ordered by row.

    Args:
        checked: the candidates, their keys compared.
        steps: what was done before.
        asked: the candidates that filters were asked about; None: there are no filters to judge.
    """
    done = list(checked)
    steps = [*steps, left_after("opened", [one.candidate for one in done if one.opened])]
    tally = None if asked is None else _tally(asked, done)
    rows = [one.rows for one in done]
    slices = [np.full(len(one.rows), one.candidate.slice_number, dtype=np.int64) for one in done]
    return _ordered(rows, slices, tuple(steps), tally)


def _tally(asked: Sequence[Candidate], done: Sequence[Checked]) -> FilterTally:
    without = {one.candidate.slice_number for one in done if not one.candidate.filtered}
    return FilterTally(
        asked=sum(len(c.rows) for c in asked if c.slice_number not in without),
        passed=sum(len(one.candidate.rows) for one in done if one.candidate.filtered),
        right=sum(len(one.rows) for one in done if one.candidate.filtered),
    )


def _ordered(
    rows: Sequence[Rows], slices: Sequence[Rows], steps: tuple[LookUpStep, ...], tally: FilterTally | None
) -> Located:
    empty = np.empty(0, dtype=np.int64)
    all_rows, all_slices = np.concatenate([empty, *rows]), np.concatenate([empty, *slices])
    order = np.lexsort((all_slices, all_rows))
    return Located(all_rows[order], all_slices[order], steps, tally)


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
