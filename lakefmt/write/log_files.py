"""Writing one assigned log: what goes to data blocks and what to delete blocks, and what the commit says of it.

The first name is fixed by the assignment; files that follow when a log rolls over count on from its version. How rows
become blocks and files is said by :mod:`~lakefmt.filegroups.log_writer` (spec 7.5, 7.6, 10.4; effects at the end).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.filegroups.log_writer import I64, LogForm, LogRowsOut, WrittenLog, log_form, write_logs
from lakefmt.filegroups.merge_values import Mask
from lakefmt.filegroups.model import join_path
from lakefmt.formats.names import MarkerType
from lakefmt.schema import arrow_to_avro, avro_to_arrow, without_meta_columns
from lakefmt.storage.api import ObjectStore
from lakefmt.table_config import cdc_mode, merge_rule
from lakefmt.values import WriteStat
from lakefmt.values_merge import MergeRule
from lakefmt.write.values import FileAssignment, LogTarget, WriteContext, WriteStatus

__all__ = ["split_deletes", "write_log"]


def split_deletes(
    rows: pa.Table,
    deletes: Mask,
    marked: Mask,
    rule: MergeRule,
    brought: frozenset[str],
    positions: I64 | None = None,
) -> LogRowsOut:
    """Return rows as a log holds them. Pure.

    A row that marks itself deleted and has no ordering value that a delete block could say (none, or the int 0, which
    there stands for "whatever is stored") stays a row with its mark: readers take it for a delete with its own order.
    So does every one where the rule compares rows and a delete block would win over all of them.

    Args:
        rows: rows with every column of the table, meta columns first.
        deletes: which of them remove their key.
        marked: which of these say so by a column of their own.
        rule: how the table merges.
        brought: the columns that the rows bring; others are left out of the data.
        positions: the row of the base file that each of them stands for, ascending; None: not known.
    """
    weak = np.zeros(rows.num_rows, dtype=bool)
    order = _flat_order(rows, rule)
    for name in order[:1]:
        column = rows.column(name)
        silent = pc.is_null(column)
        if pt.is_integer(column.type) and column.type.bit_width <= 32:
            silent = pc.or_(silent, pc.fill_null(pc.equal(column, 0), True))
        weak = deletes & marked & silent.to_numpy()
    if rule.blocks_win and not rule.deletes_win:
        weak = deletes & marked
    as_records = deletes & ~weak
    names = [field.name for field in rows.schema if field.name in brought]
    return LogRowsOut(
        rows.filter(pa.array(~as_records)).select(names),
        rows.filter(pa.array(as_records)),
        len(names) < rows.num_columns,
        None if positions is None else positions[~as_records],
        None if positions is None else positions[as_records],
    )


def _flat_order(rows: pa.Table, rule: MergeRule) -> list[str]:
    return [name for name in rule.stored.fields if name in rows.column_names]


def write_log(
    store: ObjectStore, context: WriteContext, assignment: FileAssignment, out: LogRowsOut, marker: MarkerType
) -> WriteStatus:
    """Write an assigned log, in one file or several, or adopt what is there.

    Raises:
        InvalidInputError: a block would be too large to be read.
        CorruptFile: a file of that name is there and was not written by this write.
        StorageError: the store does not say whether a file is there.
    """
    form = _form(context, assignment, out)
    written = write_logs(store, assignment.partition, assignment.file_name, out, form, marker)
    stats = [_stat(context, assignment, written, number) for number in range(len(written))]
    rows_in = out.data.num_rows + out.deletes.num_rows
    adopted = all(one.adopted for one in written)
    return WriteStatus(context.instant, stats[0], rows_in, adopted=adopted, rolled=tuple(stats[1:]))


def _form(context: WriteContext, assignment: FileAssignment, out: LogRowsOut) -> LogForm:
    schema = context.file_schema_text
    if context.config.drop_partition_columns:  # from base files only
        schema = arrow_to_avro(avro_to_arrow(context.schema_text), context.config.name, with_meta=True)
    if out.partial:
        schema = arrow_to_avro(without_meta_columns(out.data.schema), context.config.name, with_meta=True)
    order = tuple(_flat_order(out.deletes, merge_rule(context.config)))
    form = log_form(context.settings, context.instant, schema, context.file_schema_text, order)
    return form if assignment.base is None else replace(form, base_instant=assignment.base.instant)


def _stat(context: WriteContext, assignment: FileAssignment, written: tuple[WrittenLog, ...], number: int) -> WriteStat:
    log = assignment.log or LogTarget(context.instant, 1)
    # Change data is told by a log and the slice below it: then later versions name that slice, too (spec 9).
    whole = context.config.version.layout == 1 or cdc_mode(context.properties) is not None
    one = written[number]
    rolled = tuple(earlier.name for earlier in written[:number])
    return WriteStat(
        file_id=assignment.file_id,
        partition_path=assignment.partition,
        path=join_path(assignment.partition, one.name),
        # What real tables say: version 6 names the slice and all its logs, later versions the new log alone.
        prev_commit=log.base_instant if whole else context.instant,
        num_writes=one.rows,
        num_update_writes=one.rows,
        num_deletes=one.deletes,
        total_write_bytes=one.size,
        file_size_in_bytes=one.size,
        base_file=assignment.base.name if whole and assignment.base is not None else "",
        log_files=(*log.older, *rolled, one.name) if whole else (one.name,),
        log_version=log.version + number,
        log_offset=0,
    )
