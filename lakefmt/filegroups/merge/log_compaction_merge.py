"""Several logs folded into what one log says in their place: rows and deletes, one per key (spec 7.9, 10.6). Pure.

Nothing of the base file is looked at, so that a delete stays a delete and late rows are decided among themselves only.
What is left meets the base file, and logs that come later, exactly as the logs did that it stands for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakefmt.config.merge_rule import MergeRule
from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups.logs.reader import LogRows
from lakefmt.filegroups.merge.merged_slice import only_rows, with_delete_marks, without_deleted
from lakefmt.filegroups.merge.precombine import combine_rows
from lakefmt.values import COMMIT_TIME, RECORD_KEY

__all__ = ["MergedLogs", "check_can_merge", "merge_log_blocks"]


@dataclass(frozen=True, slots=True, eq=False)
class MergedLogs:
    """What logs say, once for each key.

    Attributes:
        data: rows, those among them that mark themselves deleted.
        deletes: what delete blocks said: keys, partition paths, and ordering values where the deletes have one.
    """

    data: pa.Table
    deletes: pa.Table


def check_can_merge(rule: MergeRule) -> None:
    """Raise when what rows say depends on the rows below them, so that logs cannot be folded without the base file.

    Raises:
        UnsupportedFeature: the table completes rows from stored ones, or merges by a rule of its own.

    Example:
        >>> check_can_merge(MergeRule())
    """
    if rule != MergeRule(rule.stored, rule.batch, delete=rule.delete):
        raise UnsupportedFeature(
            "the table's rows are completed from stored ones, or merged by a rule of its own: its logs say less without "
            "the base file, so they are not folded; compact the table instead"
        )


def merge_log_blocks(logs: LogRows, rule: MergeRule) -> MergedLogs:
    """Return what the rows of logs say together.

    Args:
        logs: their rows, every column of the table.
        rule: how the table merges.

    Raises:
        UnsupportedFeature: some rows bring some of the columns only, or see :func:`check_can_merge`.

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
    alive, gone = without_deleted(codes, logs.always, len(encoded.dictionary))
    # Of the deletes that take whatever is stored, those after which nothing came: they are said again.
    last = np.full(len(encoded.dictionary), -1, np.int64)
    np.maximum.at(last, codes, np.where(logs.always, np.arange(len(codes)), -1))
    removed = logs.table.take(pa.array(np.sort(last[gone])))
    rest, codes = only_rows(logs, alive), codes[alive]
    table, unsaid = rest.table, rest.of_deletes
    if unsaid is None:
        # Rows of delete blocks were committed by nobody.
        unsaid = np.asarray(table.column(COMMIT_TIME).is_null()) & rest.deletes
    if len(codes):
        by_order = MergeRule(rule.stored, rule.stored, delete=rule.delete)
        combined = combine_rows(with_delete_marks(rest), codes, by_order)
        if combined is not None:
            table, unsaid = table.take(pa.array(combined.winners)), unsaid[combined.winners]
    said = table.filter(pa.array(unsaid))
    return MergedLogs(table.filter(pa.array(~unsaid)), pa.concat_tables([said, removed]))
