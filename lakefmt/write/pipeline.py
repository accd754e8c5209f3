"""The path of a batch, room by room: keys → combine → look-up → assign → write → commit.

Each room takes a value and leaves a value; the two last ones have effects. ``table`` opens the seventh room, services.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt.config.settings import Settings
from lakefmt.config.table_config import merge_rule
from lakefmt.errors import InternalError
from lakefmt.filegroups.model import BaseFile, FileSlice
from lakefmt.filegroups.reader import KnownFooter
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.formats.log.delete_block import stores_every_ordering
from lakefmt.index import Index, IndexKeys, key_files, locate_everywhere, moves_between_partitions
from lakefmt.schema import avro_to_arrow, field_at
from lakefmt.storage.api import ObjectStore
from lakefmt.values import IdSource, PartitionPath, TableType, WriteOperation
from lakefmt.write._partition_path_updates import partition_changed, split_moves
from lakefmt.write._slice_state import (
    SliceReader,
    apply_log_deletes,
    fetch_missing_columns,
    find_stored,
    log_placing,
    reject_bucket_layout,
    without_dead,
)
from lakefmt.write.assign import (
    Assigned,
    FileSizing,
    Routes,
    assign_rows,
    bundle_logs,
    change_file,
    group_positions,
    joined,
    rows_by_file_group,
)
from lakefmt.write.context import MOVED_AWAY, WriteContext, WriteStatus
from lakefmt.write.files.base_file import bloom_filters_of_small_files, write_assigned, write_assigned_log
from lakefmt.write.files.log_payloads import build_log_payloads, holds_whole_rows
from lakefmt.write.files.meta_columns import POSITION
from lakefmt.write.files.workers import WorkerPool, results, thread_count
from lakefmt.write.ingest import KeyedBatch, record_keys, with_keys
from lakefmt.write.mutations import DeleteKeys

__all__ = [
    "append_files",
    "assign_batch",
    "assign_deletes",
    "file_sizing",
    "ignores_deleted_keys",
    "route",
    "write_assigned_files",
]

Rows = npt.NDArray[np.int64]
T = TypeVar("T")
U = TypeVar("U")

_FIRST_GUESS_OF_COMPRESSION = 0.4
_LEARN_FROM_COMMITS = 10
_LEARN_FROM_BYTES = 256 * 1024


def file_sizing(client: TableClient, state: TableState, settings: Settings, sample: pa.Table | None) -> FileSizing:
    """Return how large files should be; the size of a row is learnt from the latest commits that wrote enough."""
    estimate = float(settings.integer("hoodie.copyonwrite.record.size.estimate"))
    if not estimate:
        estimate = _learnt_record_bytes(client, state) or _guessed_record_bytes(sample)
    merge_on_read = state.config.table_type is TableType.MERGE_ON_READ
    candidates = settings.values.get("hoodie.merge.small.file.group.candidates.limit", 1)
    return FileSizing(
        max_bytes=settings.integer("hoodie.parquet.max.file.size"),
        small_bytes=settings.integer("hoodie.parquet.small.file.limit"),
        record_bytes=estimate,
        candidates=int(str(candidates)) if merge_on_read else None,
    )


def _learnt_record_bytes(client: TableClient, state: TableState) -> float:
    for instant in reversed(state.timeline.commits[-_LEARN_FROM_COMMITS:]):
        stats = [s for s in client.commit_metadata(state, instant).stats if not s.log_files]  # rows of logs are larger
        total, rows = sum(s.total_write_bytes for s in stats), sum(s.num_writes for s in stats)
        if rows and total >= _LEARN_FROM_BYTES:
            return total / rows
    return 0.0


def _guessed_record_bytes(sample: pa.Table | None) -> float:
    if sample is None or not sample.num_rows:
        return 1024.0
    # Meta columns and filter bits take about a hundred bytes a row before compression.
    row_bytes = float(sample.nbytes) / float(sample.num_rows)
    return max(8.0, (row_bytes + 100) * _FIRST_GUESS_OF_COMPRESSION)


def assign_batch(
    client: TableClient,
    context: WriteContext,
    state: TableState,
    batch: KeyedBatch,
    index: Index | None,
    sizing: FileSizing,
) -> list[Assigned]:
    """Look the keys up and give every row its file; `index` None appends without looking."""
    partitions = _partitions_to_list(client, batch, index)
    # Plain inserts look for small files only.
    slices = [] if index is None and not sizing.small_bytes else client.slices(state, partitions)
    logs = log_placing(client, state, positions=context.settings.flag("hoodie.write.record.positions"))
    routes = Routes(None)
    if index is not None:
        wanted = IndexKeys(record_keys(batch), batch.partitions)
        alive = ignores_deleted_keys(context, state, batch)
        located = find_stored(client, state, index, wanted, slices, alive=alive)
        routes = Routes(located)
        if context.operation is WriteOperation.DELETE:
            # Keys that are nowhere need no file.
            routes = Routes(located, late=np.setdiff1d(np.arange(batch.num_rows), located.rows))
        elif index.is_global:
            moves = moves_between_partitions(index)
            reader = client.row_reader(state)
            if logs is not None:
                reader = SliceReader(client, state, slices)
                away = partition_changed(batch, located, slices) & moves
                located = without_dead(client, state, record_keys(batch), located, slices, away)
            routes = split_moves(batch, located, slices, state.config, reader, update_partition=moves)
    assigned = assign_rows(batch.partitions, routes, slices, sizing, context.instant, client.ids.new_uuid, logs)
    routed, expected = sum(len(a.rows) for a in assigned), routes.num_routed(batch.num_rows)
    if routed != expected:
        raise InternalError(f"{batch.num_rows} rows came in and {routed} of {expected} were routed; nothing is written")
    if logs is None:
        return assigned
    reject_bucket_layout(slices, assigned)
    return _fetch_missing_columns(client, context, state, assigned, slices, batch.keys, batch.table.column_names)


def ignores_deleted_keys(context: WriteContext, state: TableState, batch: KeyedBatch) -> bool:
    """Return whether rows whose key a log has deleted are new rows, and not changes of that file slice."""
    # On top of a delete in a log a partial row would find what was there before it.
    schema = avro_to_arrow(context.schema_text)
    partial_rows = not set(schema.names).issubset(batch.table.column_names)
    if partial_rows or context.operation is WriteOperation.DELETE:
        return True
    return _forgets_deletes(state) or _deletes_without_times(state, schema)


def _deletes_without_times(state: TableState, schema: pa.Schema) -> bool:
    """Tell whether a delete by key may carry no event time: a late row on top of it would bring back what it removed."""
    fields = [field_at(schema, name) for name in merge_rule(state.config).stored.fields]
    return any(field is not None and not stores_every_ordering(field.type) for field in fields)


def _forgets_deletes(state: TableState) -> bool:
    """Tell whether a row on top of a delete in a log would meet what was there before the delete.

    It would be completed from that, or, where delete blocks have no event time, lose against it: the row that was deleted
    would come back.
    """
    rule = merge_rule(state.config)
    return rule.blocks_win or (rule.partial is not None and not rule.stored.fields)


def _fetch_missing_columns(
    client: TableClient,
    context: WriteContext,
    state: TableState,
    assigned: list[Assigned],
    slices: Sequence[FileSlice],
    keys: pa.StringArray | None,
    names: Sequence[str],
) -> list[Assigned]:
    """Let rows for logs bring what they lack from the stored rows.

    A delete by key, and a partial row without an event time, take that of the stored row, so that they win over it and
    lose against what is newer. Where logs hold whole rows only they bring every column.
    """
    schema, rule = avro_to_arrow(context.schema_text), merge_rule(state.config)
    order = {name.split(".", 1)[0] for name in rule.stored.fields}
    if context.operation is WriteOperation.DELETE:
        lacking = [field for field in schema if field.name in order]
    elif holds_whole_rows(state.timeline.layout, rule, schema.names):
        lacking = [field for field in schema if field.name not in names]
    else:
        lacking = [field for field in schema if field.name in order and field.name not in names]
    if not lacking or keys is None or all(one.assignment.log is None for one in assigned):
        return assigned
    return fetch_missing_columns(SliceReader(client, state, slices), assigned, slices, keys, lacking)


def assign_deletes(
    client: TableClient,
    context: WriteContext,
    state: TableState,
    delete_keys: DeleteKeys,
    index: Index,
) -> list[Assigned]:
    """Return the rewrites that remove keys; rows of the assignments are numbers into them, keys that are nowhere are in none."""
    slices = client.slices(state, delete_keys.listed())
    if delete_keys.homes is None:
        located = locate_everywhere(index, delete_keys.keys, slices, key_files(client, state))
    else:
        located = index.locate(IndexKeys(delete_keys.keys, delete_keys.homes), slices, key_files(client, state))
    logs = log_placing(client, state, positions=context.settings.flag("hoodie.write.record.positions"))
    if logs is not None:
        located = apply_log_deletes(client, state, delete_keys.keys, delete_keys.homes, located, slices, alive=True)
    places = group_positions(located, logs)
    assigned = [
        Assigned(change_file(slices[number], context.instant, at, len(rows), logs), rows, positions=places.get(number))
        for at, (number, rows) in enumerate(rows_by_file_group(located.slices, located.rows))
    ]
    return (
        assigned
        if logs is None
        else _fetch_missing_columns(client, context, state, assigned, slices, delete_keys.keys, ())
    )


def _partitions_to_list(client: TableClient, batch: KeyedBatch, index: Index | None) -> list[PartitionPath]:
    if index is not None and index.is_global:
        return client.listing().partitions()
    return [PartitionPath(name) for name in batch.partitions.dictionary.to_pylist()]  # partitions, not rows


def append_files(context: WriteContext, batch: KeyedBatch, sizing: FileSizing, ids: IdSource) -> list[Assigned]:
    """Give every row a new file, whatever is stored (overwrites)."""
    return assign_rows(batch.partitions, Routes(None), [], sizing, context.instant, ids.new_uuid)


def route(batch: KeyedBatch, assigned: Assigned) -> pa.Table:
    """Return an assignment's rows with their record keys, the way the workers take them."""
    table = _pick(batch, assigned.rows)
    if assigned.leaving is not None:
        table = table.append_column(MOVED_AWAY, pa.array(assigned.leaving))
    if assigned.positions is not None:
        table = table.append_column(POSITION, pa.array(assigned.positions))
    stored = pa.table({}) if assigned.stored is None else assigned.stored
    for name in stored.column_names:
        at = table.schema.get_field_index(name)
        table = (
            table.append_column(name, stored.column(name))
            if at < 0
            else table.set_column(at, name, stored.column(name))
        )
    return table


def _pick(batch: KeyedBatch, rows: Rows) -> pa.Table:
    """Return rows by number with their record keys; rows that follow one another are not copied."""
    if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
        first = int(rows[0])
        table = batch.table.slice(first, len(rows))
        keys = None if batch.keys is None else batch.keys.slice(first, len(rows))
    else:
        numbers = pa.array(rows)
        table = batch.table.take(numbers)
        keys = None if batch.keys is None else batch.keys.take(numbers)
    return with_keys(table, keys)


def write_assigned_files(
    store: ObjectStore,
    context: WriteContext,
    batch: KeyedBatch,
    assigned: Sequence[Assigned],
    known: Callable[[BaseFile], KnownFooter | None],
) -> list[WriteStatus]:
    """Write every assigned file; threads run where Arrow lets them.

    Args:
        store: the table.
        context: the write.
        batch: its rows.
        assigned: the files, and their rows by number.
        known: tells the footer of a base file, where the look-up has read it.
    """
    blooms = bloom_filters_of_small_files(context, batch.keys, assigned)

    def write(number: int) -> WriteStatus:
        one, bloom = assigned[number], blooms.get(number)
        rows, base = route(batch, one), one.assignment.base
        footer = None if base is None else known(base)
        alone = len(assigned) == 1
        return write_assigned(store, context, one.assignment, [rows], alone=alone, bloom=bloom, known=footer)

    if len(assigned) < 2:
        return [write(number) for number in range(len(assigned))]
    pa.default_memory_pool().release_unused()  # what the look-up took
    works: dict[int, Future[WriteStatus]] = {}
    with WorkerPool(min(thread_count(context), len(assigned))) as workers:
        bundles = bundle_logs(assigned, batch.table)
        bundled = {number for bundle in bundles for number in bundle}
        for number in range(len(assigned)):
            if number not in bundled:
                works[number] = workers.submit(write, number)
        for bundle in bundles:
            some = [assigned[number] for number in bundle]
            counts = [len(one.rows) for one in some]
            made = build_log_payloads(context, [one.assignment for one in some], counts, route(batch, joined(some)))
            for number, work in zip(bundle, made, strict=True):
                works[number] = workers.submit(write_assigned_log, store, context, work)
            wait([works[number] for number in bundle])  # or else all bundles' records would be held at once
        return results(works[number] for number in range(len(assigned)))
