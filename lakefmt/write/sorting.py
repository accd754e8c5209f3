"""A global sort that spills: any amount of rows in bounded memory, by columns (effects on a temporary directory).

Runs are sorted in memory and written as Arrow files; splitters sampled from all runs cut the key space into ranges that
fit; each range is gathered from every run, batch by batch, sorted and handed on. No row is ever looked at in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["sort_stream"]

_SAMPLES_PER_RUN = 256
_BATCH_ROWS = 16 * 1024
SORT_KEY = "_lakefmt_sort_key"


@dataclass(frozen=True, slots=True)
class _Run:
    """A sorted file: keys sampled over it, and the first and last key of each of its batches."""

    path: Path
    num_bytes: int
    samples: pa.Array
    firsts: pa.Array
    lasts: pa.Array


def sort_stream(
    windows: Iterable[pa.Table], sort_key: Callable[[pa.Table], pa.Array], memory_bytes: int
) -> Iterator[pa.Table]:
    """Yield the rows of all windows in the order of `sort_key`, in tables of about a quarter of `memory_bytes`.

    Args:
        windows: tables that fit into memory one at a time.
        sort_key: gives each row a string; rows are ordered by its bytes.
        memory_bytes: what may be held.

    Example:
        >>> one, two = pa.table({"k": ["d", "a"]}), pa.table({"k": ["c", "b"]})
        >>> [t["k"].to_pylist() for t in sort_stream([one, two], lambda t: t["k"].combine_chunks(), 1 << 20)]
        [['a', 'b', 'c', 'd']]
    """
    with TemporaryDirectory(prefix="lakefmt-sort-") as directory:
        runs = [_spill(Path(directory) / f"{n}.arrow", w, sort_key(w)) for n, w in enumerate(windows) if w.num_rows]
        if not runs:
            return
        splitters = _splitters(runs, memory_bytes)
        for low, high in zip([None, *splitters], [*splitters, None], strict=True):
            pieces = [_between(run, low, high) for run in runs]
            table = pa.concat_tables([p for p in pieces if p.num_rows] or pieces[:1])
            if table.num_rows:
                yield table.take(pc.sort_indices(table.column(SORT_KEY))).drop_columns([SORT_KEY])


def _spill(path: Path, table: pa.Table, key: pa.Array) -> _Run:
    order = pc.sort_indices(key)
    ordered = table.take(order).append_column(SORT_KEY, key.take(order)).combine_chunks()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, ordered.schema) as writer:
        writer.write_table(ordered, max_chunksize=_BATCH_ROWS)
    keys, last = ordered.column(SORT_KEY).combine_chunks(), ordered.num_rows - 1
    at = np.linspace(0, last, min(_SAMPLES_PER_RUN, ordered.num_rows)).astype(np.int64)
    starts = np.arange(0, ordered.num_rows, _BATCH_ROWS)
    ends = np.minimum(starts + _BATCH_ROWS - 1, last)
    samples, firsts, lasts = (keys.take(pa.array(rows)) for rows in (at, starts, ends))
    return _Run(path, ordered.nbytes, samples, firsts, lasts)


def _splitters(runs: Sequence[_Run], memory_bytes: int) -> list[pa.Scalar]:
    total = sum(run.num_bytes for run in runs)
    ranges = max(1, -(-total * 4 // max(1, memory_bytes)))
    if ranges == 1:
        return []
    samples = pa.concat_arrays([run.samples for run in runs])
    ordered = samples.take(pc.sort_indices(samples))
    at = np.linspace(0, len(ordered) - 1, int(ranges) + 1)[1:-1].astype(np.int64)
    chosen = pc.unique(ordered.take(pa.array(at)))
    return [chosen[n] for n in range(len(chosen))]


def _between(run: _Run, low: pa.Scalar | None, high: pa.Scalar | None) -> pa.Table:
    """Read the rows of a run whose key is at least `low` and below `high`; only batches that hold some are read."""
    first = 0 if low is None else _count_below(run.lasts, low)
    last = len(run.firsts) if high is None else _count_below(run.firsts, high)
    with pa.OSFile(str(run.path)) as source, pa.ipc.open_file(source) as reader:
        table = pa.Table.from_batches([reader.get_batch(n) for n in range(first, last)], reader.schema)
    keys = table.column(SORT_KEY)
    begin = 0 if low is None else _count_below(keys, low)
    end = len(keys) if high is None else _count_below(keys, high)
    return table.slice(begin, end - begin)


def _count_below(keys: pa.Array | pa.ChunkedArray, bound: pa.Scalar) -> int:
    return int(pc.sum(pc.less(keys, bound)).as_py() or 0)
