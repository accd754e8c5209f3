"""Which file the rows of a table go to that keeps their order in a bucket (docs/append.md, Order). Pure.

Every commit opens file groups of its own, at least one for each bucket that its rows are for. No row is put in front of
another one of its bucket, and no stored file is touched: writers never conflict.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lakefmt.config.table_config import AppendLayout
from lakefmt.formats.names import queue_file_id
from lakefmt.keys.key_buckets import key_buckets
from lakefmt.values import InstantTime, PartitionPath
from lakefmt.write.assign import Assigned, open_file_group, rows_by_file_group
from lakefmt.write.ingest import KeyedBatch

__all__ = ["assign_queue_rows"]


def assign_queue_rows(
    batch: KeyedBatch,
    layout: AppendLayout,
    rows_per_file: int,
    instant: InstantTime,
    first: int,
    new_uuid: Callable[[], str],
) -> list[Assigned]:
    """Return the files to write.

    Args:
        batch: the rows.
        layout: the buckets.
        rows_per_file: a file takes no more.
        instant: the write's instant time.
        first: the number of the commit's first file among these; earlier parts of its rows have smaller ones.
        new_uuid: makes digits that tell file groups apart.

    Example:
        >>> import pyarrow as pa
        >>> rows = pa.table({"v": ["a", "b", "a"]})
        >>> homes = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0], pa.int32()), pa.array([""]))
        >>> layout = AppendLayout(True, ("v",), 4)
        >>> files = assign_queue_rows(KeyedBatch(rows, None, homes), layout, 9, "20260101000000000", 0, lambda: "a" * 36)
        >>> [(each.assignment.file_id, each.rows.tolist()) for each in files]
        [('b0000002-2026-8010-1000-000000aaaaaa-0', [0, 2]), ('b0000003-2026-8010-1000-000000aaaaaa-1', [1])]
    """
    codes = batch.partitions.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    names = batch.partitions.dictionary.to_pylist()  # partitions, not rows
    buckets = (
        key_buckets(batch.table, layout.bucket_key, layout.buckets)
        if layout.bucket_key
        else np.zeros(batch.num_rows, np.int64)
    )
    numbers, groups = np.unique(codes * layout.buckets + buckets, return_inverse=True)
    assigned: list[Assigned] = []
    for group, rows in rows_by_file_group(groups.astype(np.int64), np.arange(batch.num_rows)):
        code, bucket = divmod(int(numbers[group]), layout.buckets)
        for start in range(0, len(rows), rows_per_file):
            sequence, part = first + len(assigned), rows[start : start + rows_per_file]
            file_id = queue_file_id(bucket, instant, new_uuid()[-6:], sequence)
            file = open_file_group(PartitionPath(names[code]), file_id, instant, sequence, len(part))
            assigned.append(Assigned(file, part))
    return assigned
