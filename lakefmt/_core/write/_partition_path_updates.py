"""Keys that change partition under a global index: they leave the old file and enter a new one, in one commit.

Late rows do not move: under event-time ordering a row that loses against the stored one stays out altogether. Where the
index moves nothing, a row is written to the partition of its key, and has the values of that partition.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.config.merge_rule import Order
from lakefmt._core.config.table_config import TableConfig, merge_rule
from lakefmt._core.filegroups.merge.base import Mask
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.ordering import has_order, incoming_wins, ordering_columns, unordered_deletes
from lakefmt._core.index import Located
from lakefmt._core.keys import KeySpec, with_path_values
from lakefmt._core.schema import reconcile
from lakefmt._core.values import RECORD_KEY
from lakefmt._core.write._slice_state import SliceReader
from lakefmt._core.write.assign import Routes, rows_by_file_group
from lakefmt._core.write.files.meta_columns import deletes_among
from lakefmt._core.write.ingest import KeyedBatch, record_keys
from lakefmt.errors import UnsupportedFeature

__all__ = ["fill_from_stored", "partition_changed", "split_moves", "with_stored_partitions"]


def split_moves(
    batch: KeyedBatch,
    located: Located,
    slices: Sequence[FileSlice],
    config: TableConfig,
    reader: SliceReader,
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
    moved = partition_changed(batch, located, slices)
    stay = located.where(~moved)
    leave = Located(located.rows[moved], located.slices[moved])
    rule = merge_rule(config)
    if rule.needs_stored and len(leave.rows):
        raise UnsupportedFeature(
            f"{len(leave.rows)} rows would move to another partition, and the table completes rows from stored ones, "
            "which lakefmt does not do on the way: keep their partition, or write them with Spark"
        )
    if not has_order(rule.stored, batch.table.column_names) or not len(leave.rows):
        return Routes(stay, leave)
    wins = _wins(batch, leave, slices, rule.stored, reader)
    wins |= unordered_deletes(batch.table, deletes_among(batch.table, rule), rule)[leave.rows]
    # A key that is stored in the row's own partition, too, is changed there all the same.
    late = np.setdiff1d(leave.rows[~wins], stay.rows)
    return Routes(stay, Located(leave.rows[wins], leave.slices[wins]), late)


def partition_changed(batch: KeyedBatch, located: Located, slices: Sequence[FileSlice]) -> Mask:
    """Return for each row found whether its key is stored in another partition than its own."""
    stored = pa.array([file_slice.partition for file_slice in slices], pa.string())
    wanted_paths = batch.partitions.take(from_numpy(located.rows)).cast(pa.string())
    stored_paths = stored.take(from_numpy(located.slices))
    differs: Mask = pc.not_equal(wanted_paths, stored_paths).to_numpy(zero_copy_only=False)
    return differs


def with_stored_partitions(
    batch: KeyedBatch, located: Located, slices: Sequence[FileSlice], spec: KeySpec
) -> KeyedBatch:
    """Return the rows with the partition values of the places where their keys are stored.

    Apache Hudi leaves the values as they came, and its Spark reader shows those of the path in their stead. hudi-rs shows
    those of the file, and a filter on the partition column, which goes by paths, would find such a row under neither.

    Args:
        batch: the rows, none of which moves.
        located: where their keys are stored, in any partition.
        slices: the slices that `located` counts.
        spec: how partition paths are built. A value that a path does not tell stays as it came.
    """
    changed = partition_changed(batch, located, slices)
    if not changed.any():
        return batch
    numbers, codes = np.unique(located.slices[changed], return_inverse=True)
    source = np.full(batch.num_rows, -1, np.int64)
    source[located.rows[changed]] = codes
    stored = pa.array([slices[int(number)].partition for number in numbers], pa.string())
    paths = stored.take(pa.array(source, mask=source < 0))
    return KeyedBatch(with_path_values(batch.table, spec, paths), batch.keys, batch.partitions)


def _wins(batch: KeyedBatch, leave: Located, slices: Sequence[FileSlice], order: Order, reader: SliceReader) -> Mask:
    wins = np.ones(len(leave.rows), dtype=bool)
    keys = record_keys(batch)
    columns = list(dict.fromkeys(field.split(".", 1)[0] for field in order.fields))
    for number, pairs in rows_by_file_group(leave.slices, np.arange(len(leave.rows))):
        stored = reader.slice_rows(slices[number], [RECORD_KEY, *columns])
        rows = leave.rows[pairs]
        stored_rows = pc.index_in(keys.take(from_numpy(rows)), value_set=stored.column(RECORD_KEY).combine_chunks())
        new = ordering_columns(batch.table, order, rows)
        wins[pairs] = incoming_wins(new, ordering_columns(stored, order, stored_rows.to_numpy()))
    return wins


def fill_from_stored(
    batch: KeyedBatch, located: Located, slices: Sequence[FileSlice], schema: pa.Schema, reader: SliceReader
) -> KeyedBatch:
    """Return partial rows with every column of `schema`: what they lack comes from the stored rows, else it is null.

    A partial row that moves to another partition is written there as a whole, so it has to bring what was stored.

    Args:
        batch: rows that may lack columns.
        located: where their keys are stored, in any partition.
        slices: the slices that `located` counts.
        schema: the table's columns.
        reader: reads the stored rows.
    """
    names = set(batch.table.column_names)
    lacking = [field for field in schema if field.name not in names]
    keys = record_keys(batch)
    source = np.full(batch.num_rows, -1, np.int64)
    parts: list[pa.Table] = []
    count = 0
    for number, rows in rows_by_file_group(located.slices, located.rows):
        rows_there = reader.slice_rows(slices[number], [RECORD_KEY, *(f.name for f in lacking)])
        stored = reconcile(rows_there, _with_key(lacking))
        stored_rows = pc.index_in(keys.take(from_numpy(rows)), value_set=stored.column(RECORD_KEY).combine_chunks())
        parts.append(stored.take(stored_rows))
        source[rows] = np.arange(count, count + len(rows))
        count += len(rows)
    everything = pa.concat_tables([*parts, _with_key(lacking).empty_table()])
    stored_rows = pa.array(source, mask=source < 0)
    table = batch.table
    for field in lacking:
        table = table.append_column(field, everything.column(field.name).take(stored_rows))
    return KeyedBatch(table.select(schema.names), batch.keys, batch.partitions)


def _with_key(fields: Sequence[pa.Field]) -> pa.Schema:
    return pa.schema([pa.field(RECORD_KEY, pa.string()), *fields])
