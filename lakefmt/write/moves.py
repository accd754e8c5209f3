"""Keys that change partition under a global index: they leave the old file and enter a new one, in one commit.

Late rows do not move: under event-time ordering a row that loses against the stored one stays out altogether.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.filegroups.merge import Mask, incoming_wins
from lakefmt.filegroups.model import FileSlice
from lakefmt.filegroups.reader import BaseFileReader
from lakefmt.index import Located
from lakefmt.table_config import TableConfig
from lakefmt.values import RECORD_KEY, MergeMode
from lakefmt.write.assign import Routes, group_rows
from lakefmt.write.incoming import KeyedBatch, record_keys

__all__ = ["split_moves"]


def split_moves(
    batch: KeyedBatch,
    located: Located,
    slices: Sequence[FileSlice],
    config: TableConfig,
    reader: BaseFileReader,
    *,
    update_partition: bool,
) -> Routes:
    """Tell rows that stay in their partition from those that move.

    Args:
        batch: the rows.
        located: where their keys are stored, in any partition.
        slices: the slices that `located` counts.
        config: the table's merge rule.
        reader: reads stored ordering values of keys that would move.
        update_partition: False writes a row to the partition where its key already is.
    """
    if not update_partition:
        return Routes(located)
    elsewhere = _elsewhere(batch, located, slices)
    stay = Located(located.rows[~elsewhere], located.slices[~elsewhere], located.steps)
    leave = Located(located.rows[elsewhere], located.slices[elsewhere])
    if config.merge_mode is not MergeMode.EVENT_TIME_ORDERING or not len(leave.rows):
        return Routes(stay, leave)
    wins = _wins(batch, leave, slices, config.ordering_fields, reader)
    return Routes(stay, Located(leave.rows[wins], leave.slices[wins]), np.unique(leave.rows[~wins]))


def _elsewhere(batch: KeyedBatch, located: Located, slices: Sequence[FileSlice]) -> Mask:
    stored = pa.array([piece.partition for piece in slices], pa.string())
    mine = batch.partitions.take(pa.array(located.rows)).cast(pa.string())
    theirs = stored.take(pa.array(located.slices))
    differs: Mask = pc.not_equal(mine, theirs).to_numpy(zero_copy_only=False)
    return differs


def _wins(
    batch: KeyedBatch, leave: Located, slices: Sequence[FileSlice], ordering: Sequence[str], reader: BaseFileReader
) -> Mask:
    wins = np.ones(len(leave.rows), dtype=bool)
    keys = record_keys(batch)
    for number, pairs in group_rows(leave.slices, np.arange(len(leave.rows))):
        base = slices[number].base
        if base is None or any(name not in batch.table.column_names for name in ordering):
            continue
        stored = reader.rows(base, [RECORD_KEY, *ordering])
        rows = pa.array(leave.rows[pairs])
        at = pc.index_in(keys.take(rows), value_set=stored.column(RECORD_KEY).combine_chunks())
        new = [batch.table.column(name).take(rows).combine_chunks() for name in ordering]
        old = [stored.column(name).take(at).combine_chunks() for name in ordering]
        wins[pairs] = incoming_wins(new, old)
    return wins
