"""The content of assigned logs, and writing one of them (docs/format.md, Writing logs).

A batch that touches thirty file groups writes thirty logs of some hundred rows. Their rows are prepared and encoded
together, because for few rows a call costs more than its work. The assignment fixes the name of a log; files that follow
when a log rolls over count on from its version. :mod:`~lakefmt._core.filegroups.log_writer` makes blocks and files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import from_numpy
from lakefmt._core.config.merge_rule import MergeRule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.log_writer import (
    LogForm,
    LogRowsOut,
    LogToWrite,
    WrittenLog,
    log_form,
    write_logs,
    write_logs_at_once,
)
from lakefmt._core.filegroups.model import join_path
from lakefmt._core.filegroups.ordering import (
    Mask,
    has_order,
    marked_deletes,
    ordering_columns,
    ordering_values,
    refuse_nulls,
)
from lakefmt._core.filegroups.reader import VirtualColumns
from lakefmt._core.formats.log_data_block import encode_records
from lakefmt._core.formats.log_delete_block import storable_orderings
from lakefmt._core.schema import arrow_to_avro, with_meta_columns, without_meta_columns
from lakefmt._core.storage.api import SupportsPutBatch
from lakefmt._core.timeline.markers import create_marker, create_markers
from lakefmt._core.values import IS_DELETED, META_COLUMNS, WriteOperation, WriteStat
from lakefmt._core.write.context import BoundContext, FileAssignment, LogTarget, WriteStatus, marker_of, prepare
from lakefmt._core.write.files.meta_columns import POSITION, routed_deletes, with_meta_of
from lakefmt.errors import InternalError

__all__ = ["LogPayload", "build_log_payloads", "holds_whole_rows", "write_log_files"]

#: The most logs that are put at once.
_MOST_AT_ONCE = 64


I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class LogPayload:
    """One log to write: what goes into it, and in which form."""

    assignment: FileAssignment
    out: LogRowsOut
    form: LogForm


def build_log_payloads(
    bound: BoundContext, assignments: Sequence[FileAssignment], counts: Sequence[int], rows: pa.Table
) -> list[LogPayload]:
    """Return what each of some logs takes.

    Args:
        bound: the write.
        assignments: the logs.
        counts: how many of the rows are each one's.
        rows: routed rows with their record keys, one log's behind the other's.

    Raises:
        InternalError: more or fewer rows came than were assigned.
        InvalidInputError: an ordering value is null where the table's merger needs one.
        SchemaMismatch: the rows do not fit the table's schema.
    """
    for log, count in zip(assignments, counts, strict=True):
        if log.num_rows is not None and count != log.num_rows:
            raise InternalError(f"{log.path}: {log.num_rows} rows were assigned and {count} came; nothing is written")
    rule, unstored = bound.rule, bound.virtual_columns
    schema = bound.file_schema if unstored is None else with_meta_columns(unstored.schema)
    rows, positions, are_placed = _by_position(rows, counts)
    deletes = routed_deletes(bound, rows)
    if rule.stored.required and has_order(rule.stored, rows.column_names):
        refuse_nulls(ordering_columns(rows, rule.stored), rule.stored)  # what is in a log could not be merged
    # A delete by key marks nothing, whatever its rows say.
    by_key = bound.operation is WriteOperation.DELETE
    marked = np.zeros(rows.num_rows, dtype=bool) if by_key else marked_deletes(rows, rule)
    complete = with_meta_of(bound.instant, assignments, counts, rows, schema)
    # What partial rows lack was brought from stored rows.
    whole = holds_whole_rows(bound.config.version.layout, rule, schema.names)
    brought = frozenset(schema.names if whole else (*META_COLUMNS, *rows.column_names))
    as_records = _told_by_blocks(complete, deletes, marked, rule)
    out = _split(complete, as_records, brought, positions)
    form = _form(bound, out)
    if unstored is None and not form.parquet:
        out = replace(out, records=encode_records(out.data, form.data_schema))
    # Whole buffers know their size; to count the bytes of a slice takes a tenth of a millisecond for each log.
    bytes_of_all = out.data.get_total_buffer_size() + out.deletes.get_total_buffer_size()
    out = replace(out, fits_block=bytes_of_all <= form.block_bytes)
    parts = _cut(out, counts, as_records, are_placed)
    if unstored is not None:
        parts = (_virtual_columns(part, unstored, log, schema) for part, log in zip(parts, assignments, strict=True))
    return [LogPayload(log, part, _on(form, log)) for log, part in zip(assignments, parts, strict=True)]


def _by_position(rows: pa.Table, counts: Sequence[int]) -> tuple[pa.Table, I64 | None, npt.NDArray[np.bool_]]:
    """Return rows, those of a log in the order of the base file's, with their places, and the logs whose are known.

    Where not every place of a log's rows is known, or one is there twice, its rows stay as they came.
    """
    nowhere = np.zeros(len(counts), dtype=bool)
    if POSITION not in rows.column_names:
        return rows, None, nowhere
    positions = rows.column(POSITION).to_numpy()
    rows = rows.drop_columns([POSITION])
    logs = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((positions, logs))
    ordered, same = positions[order], np.diff(logs) == 0
    unknown = np.zeros(len(positions), dtype=bool)
    unknown[:] = ordered < 0
    unknown[1:] |= same & (np.diff(ordered) <= 0)
    are_placed = np.bincount(logs, minlength=len(counts)) > 0
    are_placed[logs[unknown]] = False
    order = np.lexsort((np.where(are_placed[logs], positions, np.arange(len(positions))), logs))
    if (np.diff(order) != 1).any():
        rows = rows.take(from_numpy(order))
    return rows, positions[order], are_placed


def holds_whole_rows(layout: int, rule: MergeRule, names: Sequence[str]) -> bool:
    """Return whether logs of a table hold whole rows only, so that partial rows are completed before they are written.

    Version 6 has no partial rows, and a rule of the table's own takes whole rows only. A column that marks deletes is looked
    for by Hudi 1.2.0 in every row of a log, at its place in the table's schema: it fails on blocks without it.

    Example:
        >>> holds_whole_rows(2, MergeRule(), ["id", "v"]), holds_whole_rows(2, MergeRule(), ["id", "_hoodie_is_deleted"])
        (False, True)
    """
    return layout == 1 or rule.is_own or rule.delete is not None or IS_DELETED in names


def _told_by_blocks(rows: pa.Table, deletes: Mask, marked: Mask, rule: MergeRule) -> Mask:
    """Return which rows become records of a delete block.

    A row that marks itself deleted and has no ordering value that a delete block could say (none, none of one of several
    fields, one that does not fit, or the int 0, which there stands for "whatever is stored") stays a row with its mark: readers
    take it for a delete with its own order. So does every one where the rule compares rows and a delete block would win over
    all of them.

    Args:
        rows: rows with every column of the table, meta columns first.
        deletes: which of them remove their key.
        marked: which of these say so by a column of their own.
        rule: how the table merges.
    """
    weak = np.zeros(rows.num_rows, dtype=bool)
    order = _stored_order(rows, rule)
    if order and (deletes & marked).any():
        columns = storable_orderings([ordering_values(rows, name) for name in order])
        silent = reduce(pc.or_, [column.is_null() for column in columns])
        # Dates and some times of day are 32-bit numbers there, too; of several fields 0 is a value like others.
        if len(columns) == 1 and pt.is_integer(columns[0].type) and columns[0].type.bit_width <= 32:
            silent = pc.or_(silent, pc.fill_null(pc.equal(columns[0], 0), True))
        weak = deletes & marked & silent.to_numpy(zero_copy_only=False)
    if rule.blocks_win and not rule.deletes_win:
        weak = deletes & marked
    as_records: Mask = deletes & ~weak
    return as_records


def _split(rows: pa.Table, as_records: Mask, brought: frozenset[str], positions: I64 | None) -> LogRowsOut:
    names = [field.name for field in rows.schema if field.name in brought]
    data = rows.select(names)
    return LogRowsOut(
        data.filter(from_numpy(~as_records)) if as_records.any() else data,
        rows.filter(from_numpy(as_records)),
        len(names) < rows.num_columns,
        None if positions is None else positions[~as_records],
        None if positions is None else positions[as_records],
    )


def _cut(
    out: LogRowsOut, counts: Sequence[int], as_records: Mask, are_placed: npt.NDArray[np.bool_]
) -> Iterator[LogRowsOut]:
    """Yield what is each log's; `are_placed` says which ones' places are."""
    ends = np.cumsum([0, *counts])
    deletes = np.concatenate([[0], np.cumsum(as_records)])[ends]
    data = ends - deletes
    for number in range(len(counts)):
        first, last = int(data[number]), int(data[number + 1])
        begin, end = int(deletes[number]), int(deletes[number + 1])
        placed = bool(are_placed[number])
        yield LogRowsOut(
            out.data.slice(first, last - first),
            out.deletes.slice(begin, end - begin),
            out.partial,
            out.data_positions[first:last] if placed and out.data_positions is not None else None,
            out.delete_positions[begin:end] if placed and out.delete_positions is not None else None,
            None if out.records is None else out.records.slice(first, last - first),
            out.fits_block,
        )


def _virtual_columns(
    out: LogRowsOut, unstored: VirtualColumns, assignment: FileAssignment, schema: pa.Schema
) -> LogRowsOut:
    # Logs hold partition columns, even those that base files drop: so do Hudi's, and 0.15.0 shows nulls without them.
    names = set(out.data.column_names)
    held = pa.schema([field for field in schema if field.name in names])
    return replace(out, data=unstored.stored(out.data, assignment.partition, held))


def _stored_order(rows: pa.Table, rule: MergeRule) -> tuple[str, ...]:
    """Return the ordering fields of which delete blocks hold the values: all of them, or none where rows lack one."""
    return rule.stored.fields if has_order(rule.stored, rows.column_names) else ()


def _form(bound: BoundContext, out: LogRowsOut) -> LogForm:
    schema = bound.context.file_schema_text
    if bound.config.drop_partition_columns:  # from base files only
        schema = arrow_to_avro(bound.schema, bound.config.name, with_meta=True)
    if out.partial:
        schema = arrow_to_avro(without_meta_columns(out.data.schema), bound.config.name, with_meta=True)
    order = _stored_order(out.deletes, bound.rule)
    return log_form(bound.settings, bound.instant, schema, bound.context.file_schema_text, order)


def _on(form: LogForm, assignment: FileAssignment) -> LogForm:
    return form if assignment.base is None else replace(form, base_instant=assignment.base.instant)


def write_log_files(
    bound: BoundContext,
    files: Sequence[FileAssignment],
    counts: Sequence[int],
    rows: pa.Table,
    *,
    announced: bool | None = None,
) -> list[WriteStatus]:
    """Write assigned logs, each in one file or several, or adopt what is there.

    A durable write waits for the disk once for some of them, not for each.

    Args:
        bound: the write.
        files: the logs.
        counts: the number of rows of each log.
        rows: routed rows with their record keys, those of one log after those of the one before.
        announced: what :class:`~lakefmt._core.write.context.Announcements` said of the write's files.

    Raises:
        InvalidInputError: a block would be too large to be read.
        CorruptFile: a file of that name is there and was not written by this write.
        StorageError: the store does not say whether a file is there; the call may be repeated.
    """
    payloads, store = build_log_payloads(bound, files, counts, rows), bound.store
    if len(payloads) == 1 or not bound.durable or not isinstance(store, SupportsPutBatch):
        return [
            _status(bound, payload, write_logs(store, _announced_log(bound, payload, announced)))
            for payload in payloads
        ]
    statuses: list[WriteStatus] = []
    for first in range(0, len(payloads), _MOST_AT_ONCE):
        some = payloads[first : first + _MOST_AT_ONCE]
        logs = [_announced_log(bound, payload, announced) for payload in some]
        written = write_logs_at_once(store, logs, store.put_batch())
        statuses += [_status(bound, *each) for each in zip(some, written, strict=True)]
    return statuses


def _announced_log(bound: BoundContext, work: LogPayload, announced: bool | None) -> LogToWrite:
    """Announce a log, and return it with what announces the files that it rolls over into."""
    assignment = work.assignment
    marker, own = marker_of(bound, assignment), bound.own_markers

    def mark(path: str) -> None:
        if announced is None:
            create_marker(bound.store, bound.instant, path, marker, own)
        else:
            create_markers(bound.store, bound.instant, [(path, marker)], more=True, own=own)

    prepare(bound, assignment, announced=announced)
    return LogToWrite(assignment.partition, assignment.file_name, work.out, work.form, mark)


def _status(bound: BoundContext, work: LogPayload, written: tuple[WrittenLog, ...]) -> WriteStatus:
    assignment, out = work.assignment, work.out
    stats = [_stat(bound, assignment, written, number) for number in range(len(written))]
    return WriteStatus(
        bound.instant,
        stats[0],
        out.data.num_rows + out.deletes.num_rows,
        None if _may_lose(bound, assignment, out) else 0,
        adopted=all(file.adopted for file in written),
        rolled=tuple(stats[1:]),
        counts_new_keys=not assignment.may_bring_keys,
        is_copy=assignment.is_copy,
    )


def _may_lose(bound: BoundContext, assignment: FileAssignment, out: LogRowsOut) -> bool:
    """Return whether rows of a log may lose to stored ones when they are merged; the look-up does not read ordering values."""
    # A delete by key and a row without an event time take the event time of the stored row, so they are never late.
    ordered = any(has_order(bound.rule.stored, rows.column_names) for rows in (out.data, out.deletes))
    if not ordered or bound.rule.custom is not None or bound.operation is WriteOperation.DELETE:
        return False
    # Writers that do not block each other may open one file group at the same time, and appended rows may share a key.
    return assignment.may_bring_keys or not assignment.opens_file_group


def _stat(bound: BoundContext, assignment: FileAssignment, written: tuple[WrittenLog, ...], number: int) -> WriteStat:
    log = assignment.log or LogTarget(bound.instant, 1)
    # Readers derive change data from a log and the slice below it: then later versions name that slice, too.
    whole = bound.config.version.layout == 1 or bound.cdc is not None
    file = written[number]
    rolled = tuple(earlier.name for earlier in written[:number])
    return WriteStat(
        file_id=assignment.file_id,
        partition_path=assignment.partition,
        path=join_path(assignment.partition, file.name),
        # What real tables say: version 6 names the slice and all its logs, later versions the new log alone.
        prev_commit=log.base_instant if whole else bound.instant,
        num_writes=file.rows,
        num_update_writes=file.rows,
        num_deletes=file.deletes,
        total_write_bytes=file.size,
        file_size_in_bytes=file.size,
        base_file=assignment.base.name if whole and assignment.base is not None else "",
        log_files=(*log.older, *rolled, file.name) if whole else (file.name,),
        log_version=log.version + number,
        log_offset=0,
    )
