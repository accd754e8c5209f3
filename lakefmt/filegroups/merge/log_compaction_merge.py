"""Merge several logs into one: rows and deletes, one per key (docs/format.md, Compaction). Pure.

The base file is not read: deletes stay deletes, and late rows compete only with rows of these logs.
The result merges with the base file and later logs exactly as the original logs do.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakefmt.arrays import from_numpy
from lakefmt.config.merge_rule import MergeRule
from lakefmt.data_classes import dataclass
from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups.logs.reader import LogRows
from lakefmt.filegroups.merge.merged_slice import only_rows, with_delete_marks, without_deleted
from lakefmt.filegroups.merge.precombine import combine_rows
from lakefmt.values import COMMIT_TIME, RECORD_KEY

__all__ = ["MergedLogs", "check_can_merge", "merge_log_blocks"]


@dataclass(frozen=True, slots=True, eq=False)
class MergedLogs:
    """The merged content of logs, one record per key.

    Attributes:
        data: rows, including those that mark themselves deleted.
        deletes: keys, partition paths and, if present, ordering values of delete blocks.
    """

    data: pa.Table
    deletes: pa.Table


def check_can_merge(rule: MergeRule) -> None:
    """Raise if the logs cannot be merged without the base file.

    Raises:
        UnsupportedFeature: the table has a partial update mode or a registered merge function.

    Example:
        >>> check_can_merge(MergeRule())
    """
    if rule != MergeRule(rule.stored, rule.batch, delete=rule.delete):
        raise UnsupportedFeature(
            "the table's rows are completed from stored ones, or merged by a rule of its own: its logs say less without "
            "the base file, so they are not folded; compact the table instead"
        )


def merge_log_blocks(logs: LogRows, rule: MergeRule) -> MergedLogs:
    """Return the merged rows and deletes of logs.

    Args:
        logs: the rows with all columns of the table.
        rule: the table's merge rule.

    Raises:
        UnsupportedFeature: some rows lack columns, or see :func:`check_can_merge`.

    Example:
        >>> rows = pa.table({RECORD_KEY: ["a", "a", "b"], COMMIT_TIME: ["1", "2", None], "v": [1, 2, None]})
        >>> deletes = np.array([False, False, True])
        >>> folded = merge_log_blocks(LogRows(rows, deletes, deletes, np.zeros(3, np.int64), (None,)), MergeRule())
        >>> folded.data["v"].to_pylist(), folded.deletes[RECORD_KEY].to_pylist()
        ([2], ['b'])
    """
    check_can_merge(rule)
    if logs.is_partial:
        raise UnsupportedFeature(
            "logs with partial rows say less without the base file, so they are not folded; compact the table instead"
        )
    encoded = logs.table.column(RECORD_KEY).combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy().astype(np.int64)
    alive, deleted_keys = without_deleted(codes, logs.always, len(encoded.dictionary))
    # Deletes without an event time that no later row of the key follows are kept.
    last = np.full(len(encoded.dictionary), -1, np.int64)
    np.maximum.at(last, codes, np.where(logs.always, np.arange(len(codes)), -1))
    removed = logs.table.take(from_numpy(np.sort(last[deleted_keys])))
    remaining, codes = only_rows(logs, alive), codes[alive]
    table, from_deletes = remaining.table, remaining.of_deletes
    if from_deletes is None:
        # Rows of delete blocks have no commit time.
        from_deletes = np.asarray(table.column(COMMIT_TIME).is_null()) & remaining.deletes
    if len(codes):
        by_order = MergeRule(rule.stored, rule.stored, delete=rule.delete)
        combined = combine_rows(with_delete_marks(remaining), codes, by_order)
        if combined is not None:
            table, from_deletes = table.take(from_numpy(combined.winners)), from_deletes[combined.winners]
    explicit_deletes = table.filter(from_numpy(from_deletes))
    return MergedLogs(table.filter(from_numpy(~from_deletes)), pa.concat_tables([explicit_deletes, removed]))
