"""The keys of many small files compared by one call with those that are looked for. Pure.

To ask a file of few keys costs its calls, not its keys: a range, a filter, statistics and a comparison.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.arrays import from_numpy

__all__ = ["match_small_files"]

Rows = npt.NDArray[np.int64]


def match_small_files(
    wanted: pa.StringArray, rows: Sequence[Rows], stored: Sequence[pa.ChunkedArray]
) -> list[tuple[Rows, Rows]] | None:
    """Return for each file the rows whose key it stores, and the row of the file; -1 where several rows have the key.

    Args:
        wanted: every key that is looked for.
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
    keys = wanted.take(from_numpy(all_rows))
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
    stored_rows, places = all_rows[key[first]], np.where(times > 1, -1, where[first] - starts[file])
    cuts = np.searchsorted(file, np.arange(1, len(stored)))
    return list(zip(np.split(stored_rows, cuts), np.split(places, cuts), strict=True))
