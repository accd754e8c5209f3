"""Steps that several indexes share: files of a row's partition, range pruning, the exact key check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.filegroups.model import BaseFile, FileSlice
from lakefmt.formats.parquet import in_java_order, java_order_key
from lakefmt.index.api import IndexKeys, KeyReader, Located, LookUpStep

__all__ = ["Candidate", "check_keys", "partition_rows", "prune_by_range", "to_located"]

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may hold some of the wanted rows."""

    slice_number: int
    file: BaseFile
    rows: Rows


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


def prune_by_range(wanted: IndexKeys, candidates: Sequence[Candidate], reader: KeyReader) -> list[Candidate]:
    """Keep, per file, the rows whose key lies between the file's smallest and largest key.

    Keys and bounds are ranked together once; after that each file is two binary searches in its partition's
    sorted ranks, whatever the number of keys.
    """
    bounds = [(reader.footer(c.file).min_key, reader.footer(c.file).max_key) for c in candidates]
    texts = [java_order_key(text) for pair in bounds for text in pair if text is not None]
    joined = pa.concat_arrays([in_java_order(wanted.keys), pa.array(texts, pa.binary())])
    ranks = pc.rank(joined, tiebreaker="dense").to_numpy(zero_copy_only=False)
    key_ranks = ranks[: len(wanted)]
    bound_ranks = iter(ranks[len(wanted) :])
    sorted_rows: dict[int, tuple[Rows, npt.NDArray[np.uint64]]] = {}
    kept = []
    for candidate, (low, high) in zip(candidates, bounds, strict=True):
        first = next(bound_ranks) if low is not None else None
        last = next(bound_ranks) if high is not None else None
        if reader.footer(candidate.file).num_rows == 0:
            continue
        if first is None or last is None:
            kept.append(candidate)
            continue
        identity = id(candidate.rows)
        if identity not in sorted_rows:
            order = candidate.rows[np.argsort(key_ranks[candidate.rows], kind="stable")]
            sorted_rows[identity] = (order, key_ranks[order])
        rows, row_ranks = sorted_rows[identity]
        inside = rows[np.searchsorted(row_ranks, first, "left") : np.searchsorted(row_ranks, last, "right")]
        if len(inside):
            kept.append(Candidate(candidate.slice_number, candidate.file, inside))
    return kept


def check_keys(
    wanted: IndexKeys, candidates: Sequence[Candidate], reader: KeyReader, threads: int = 4
) -> Iterator[tuple[int, Rows]]:
    """Yield (slice number, rows really stored there): the key column of every candidate is read and compared."""

    def check(candidate: Candidate) -> tuple[int, Rows]:
        stored = reader.keys(candidate.file)
        mine = wanted.keys.take(pa.array(candidate.rows))
        hit = pc.is_in(mine, value_set=stored).to_numpy(zero_copy_only=False)
        return candidate.slice_number, candidate.rows[hit]

    if len(candidates) < 2:
        yield from map(check, candidates)
        return
    with ThreadPoolExecutor(min(threads, len(candidates))) as pool:
        yield from pool.map(check, candidates)


def to_located(found: Iterator[tuple[int, Rows]], steps: Sequence[LookUpStep] = ()) -> Located:
    """Join per-file answers into pairs ordered by row."""
    rows: list[Rows] = []
    slices: list[Rows] = []
    for number, hits in found:
        if len(hits):
            rows.append(hits)
            slices.append(np.full(len(hits), number, dtype=np.int64))
    if not rows:
        empty = np.empty(0, dtype=np.int64)
        return Located(empty, empty, tuple(steps))
    all_rows, all_slices = np.concatenate(rows), np.concatenate(slices)
    order = np.lexsort((all_slices, all_rows))
    return Located(all_rows[order], all_slices[order], tuple(steps))
