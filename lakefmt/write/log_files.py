"""Writing one assigned log file: a data block, a delete block, one object (spec 7.5, 7.6, 10.4; effects at the end).

The name is fixed by the assignment and the file appears by put-if-absent, as base files do. Whoever comes second adopts
what is there: its blocks tell how many rows they hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.errors import CorruptFile, InvalidInputError, StorageError
from lakefmt.filegroups.merge_values import Mask
from lakefmt.formats.log_blocks import BlockKind
from lakefmt.formats.log_data import (
    BlockHeader,
    decode_avro_content,
    decode_parquet_content,
    encode_data_block,
    encode_parquet_block,
)
from lakefmt.formats.log_deletes import decode_delete_content, delete_records, encode_delete_block
from lakefmt.formats.log_reader import LogBlockReader, WholeBlock
from lakefmt.schema import arrow_to_avro, without_meta_columns
from lakefmt.storage.api import ObjectStore, PutOutcome
from lakefmt.table_config import merge_rule
from lakefmt.values import PARTITION_PATH, RECORD_KEY, WriteStat
from lakefmt.values_merge import MergeRule
from lakefmt.write.values import FileAssignment, LogTarget, WriteContext, WriteStatus

__all__ = ["LogRowsOut", "adopt_log", "split_deletes", "write_log"]

#: Bytes of rows in one data block, before they are encoded; Hudi's default.
_BLOCK_BYTES = 256 << 20
_MAX_LOG_BYTES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class LogRowsOut:
    """What goes to one log file.

    Attributes:
        data: rows with their meta columns, in the columns of the data block.
        deletes: rows whose keys are removed: keys, partition paths and ordering columns at least.
        partial: `data` has some of the table's columns only.
    """

    data: pa.Table
    deletes: pa.Table
    partial: bool = False


def split_deletes(rows: pa.Table, deletes: Mask, marked: Mask, rule: MergeRule, brought: frozenset[str]) -> LogRowsOut:
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
    data = rows.filter(pa.array(~as_records)).select(names)
    return LogRowsOut(data, rows.filter(pa.array(as_records)), len(names) < rows.num_columns)


def _flat_order(rows: pa.Table, rule: MergeRule) -> list[str]:
    return [name for name in rule.stored.fields if name in rows.column_names]


def write_log(store: ObjectStore, context: WriteContext, assignment: FileAssignment, out: LogRowsOut) -> WriteStatus:
    """Write an assigned log file, or adopt the one that is there.

    Raises:
        InvalidInputError: the log would be too large to be read.
        CorruptFile: a file of that name is there and was not written by this write.
        StorageError: the store does not say whether the file is there.
    """
    durable = context.settings.text("lakefmt.durability") == "fsync"
    with store.create(assignment.path, durable=durable) as sink:
        for block in _blocks(context, out):
            sink.file.write(block)
        if sink.size > _MAX_LOG_BYTES:
            raise InvalidInputError(
                f"{assignment.path} would have {sink.size:,} bytes, and no reader takes more than {_MAX_LOG_BYTES:,}: "
                "write the batch in parts"
            )
        outcome, size = sink.put_if_absent(), sink.size
    if outcome is PutOutcome.DONE:
        return _status(context, assignment, out.data.num_rows, out.deletes.num_rows, size, adopted=False)
    found = adopt_log(store, context, assignment)
    if found is None:
        raise StorageError(f"the store does not say whether {assignment.path} was written", transient=True)
    return found


def _blocks(context: WriteContext, out: LogRowsOut) -> Iterator[bytes]:
    schema = context.file_schema_text
    if out.data.num_rows:
        if out.partial:
            schema = arrow_to_avro(without_meta_columns(out.data.schema), context.config.name, with_meta=True)
        header = BlockHeader(context.instant, schema, is_partial=out.partial)
        settings = context.settings
        as_parquet = settings.values.get("hoodie.logfile.data.block.format") == "parquet"
        codec = settings.text("hoodie.parquet.compression.codec") or "zstd"
        level = settings.integer("lakefmt.parquet.compression.level")
        step = max(1, int(out.data.num_rows * _BLOCK_BYTES / max(_BLOCK_BYTES, out.data.nbytes)))
        for start in range(0, out.data.num_rows, step):
            part = out.data.slice(start, step)
            yield encode_parquet_block(part, header, codec, level) if as_parquet else encode_data_block(part, header)
    if out.deletes.num_rows:
        rows, rule = out.deletes, merge_rule(context.config)
        orderings = [_as_stored(rows.column(name)) for name in _flat_order(rows, rule)]
        records = delete_records(rows.column(RECORD_KEY), rows.column(PARTITION_PATH), *orderings)
        yield encode_delete_block(records, BlockHeader(context.instant, context.file_schema_text))


def _as_stored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates and times as the numbers that records hold: Java compares those, not dates."""
    if pt.is_temporal(column.type):
        return column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return column


def adopt_log(store: ObjectStore, context: WriteContext, assignment: FileAssignment) -> WriteStatus | None:
    """Return the status of a log that an earlier attempt wrote, None when there is none.

    Raises:
        CorruptFile: the file is there and was not written by this write.
    """
    info = store.info(assignment.path)
    if info is None:
        return None
    reader = LogBlockReader(assignment.path)
    reader.feed(store.read(assignment.path, _MAX_LOG_BYTES))
    updates = deletes = 0
    for found in reader.finish():
        if not isinstance(found, WholeBlock) or found.block.instant_time != context.instant:
            raise CorruptFile(f"{assignment.path} exists and was not written by this write")
        if found.block.kind is BlockKind.DELETE:
            deletes += len(decode_delete_content(found.content, what=assignment.path))
        elif found.block.kind is BlockKind.PARQUET_DATA:
            updates += decode_parquet_content(found.content, [RECORD_KEY], what=assignment.path).num_rows
        else:
            schema = found.block.schema or ""
            updates += decode_avro_content(found.content, schema, [RECORD_KEY], what=assignment.path).num_rows
    return _status(context, assignment, updates, deletes, info.size, adopted=True)


def _status(
    context: WriteContext, assignment: FileAssignment, updates: int, deletes: int, size: int, *, adopted: bool
) -> WriteStatus:
    log = assignment.log or LogTarget(context.instant, 1)
    layout = context.config.version.layout
    name = assignment.file_name
    stat = WriteStat(
        file_id=assignment.file_id,
        partition_path=assignment.partition,
        path=assignment.path,
        # What real tables say: version 6 names the slice and all its logs, later versions the new log alone.
        prev_commit=log.base_instant if layout == 1 else context.instant,
        num_writes=updates,
        num_update_writes=updates,
        num_deletes=deletes,
        total_write_bytes=size,
        file_size_in_bytes=size,
        base_file=assignment.base.name if layout == 1 and assignment.base is not None else "",
        log_files=(*log.older, name) if layout == 1 else (name,),
        log_version=log.version,
        log_offset=0,
    )
    return WriteStatus(context.instant, stat, updates + deletes, adopted=adopted)
