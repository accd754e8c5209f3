"""Four steps of a write: key (rows in the table's schema, combined), locate (where keys are stored), place (a file for every row), write (the files).

Under a global index keys may change partition: they leave the old file and enter a new one, in one commit. Late rows do
not move: under event-time ordering a row that loses against the stored one stays out altogether. Where the index moves
nothing, a row is written to the partition of its key, and has the values of that partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import distinct, from_numpy, other_rows
from lakefmt._core.config.merge_rule import Order
from lakefmt._core.config.table_config import TableConfig, merge_rule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.merge import Mask
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.filegroups.ordering import has_order, incoming_wins, ordering_columns, unordered_deletes
from lakefmt._core.filegroups.reader import KnownFooter
from lakefmt._core.filegroups.table_client import TableAt, TableClient
from lakefmt._core.formats.names import has_bucket_number
from lakefmt._core.index import (
    Index,
    IndexKeys,
    Located,
    PlacingIndex,
    capabilities_of,
    key_files,
    locate_everywhere,
    moves_between_partitions,
    open_index,
    partitions_of_keys,
    partitions_to_list,
    places_new_keys,
)
from lakefmt._core.index.api import ordered_pairs
from lakefmt._core.keys import KeySpec, check_colliding_keys, with_path_values
from lakefmt._core.schema import field_at, reconcile
from lakefmt._core.storage.api import SupportsPutBatch
from lakefmt._core.transactions.client import is_non_blocking
from lakefmt._core.values import RECORD_KEY, FileId, InstantTime, PartitionPath, TableType, WriteOperation
from lakefmt._core.write.assign import (
    Assigned,
    FileSizing,
    Logs,
    Routes,
    assign_placed_rows,
    assign_rows,
    new_rows,
    rows_by_file_group,
)
from lakefmt._core.write.commit.conflict_resolution import Footprint
from lakefmt._core.write.context import (
    APPENDING,
    MOVED_AWAY,
    OVERWRITES,
    REPLACING,
    Announcements,
    BoundContext,
    WriteStatus,
)
from lakefmt._core.write.files.base_file import WorkerPool, results
from lakefmt._core.write.files.bundles import BundleSource, bundle_limits, plan_bundles
from lakefmt._core.write.files.meta_columns import deletes_among
from lakefmt._core.write.ingest import KeyedBatch, combine, in_no_partition, key_batch, record_keys
from lakefmt._core.write.mutations import DeleteKeys
from lakefmt._core.write.slice_state import (
    SliceReader,
    apply_log_deletes,
    fetch_missing_columns,
    find_stored,
    is_compaction_pending,
    log_placing,
    without_dead,
)
from lakefmt.errors import InternalError, UnsupportedFeature

__all__ = [
    "LocatedRows",
    "PlacedRows",
    "check_unknown_buckets",
    "combine_batch",
    "combines_keys",
    "complete_log_rows",
    "file_sizing",
    "ignores_deleted_keys",
    "key_in_schema",
    "locate_batch",
    "locate_deletes",
    "place_rows",
    "write_assigned_files",
]


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


Rows = npt.NDArray[np.int64]

_FIRST_GUESS_OF_COMPRESSION = 0.4
_LEARN_FROM_COMMITS = 10
_LEARN_FROM_BYTES = 256 * 1024
#: Rows and base files of so many bytes may all be held at once.
_FEW_BYTES = 16 << 20
#: Up to this number of rows a thread takes longer to start than the logs take to be encoded.
_FEW_ROWS_FOR_THREADS = 2000
#: Of rows that open no file by their number.
_NO_SIZING = FileSizing(1, 0, 1.0)


def file_sizing(
    table_at: TableAt,
    bound: BoundContext,
    sample: pa.Table,
    index: Index | None,
    is_followed: bool,
    *,
    keeps_order: bool,
) -> FileSizing:
    """Return how large files should be; the size of a row is learnt from the latest commits that wrote enough.

    Args:
        table_at: the table, at one moment.
        bound: the write.
        sample: some of its rows.
        index: the index of the write, where it has been chosen.
        is_followed: what follows a write by this process, such as a merge of small files, can be done after it.
        keeps_order: every commit opens file groups of its own.
    """
    config, settings = table_at.config, bound.settings
    estimate = float(settings.integer("hoodie.copyonwrite.record.size.estimate"))
    if not estimate:
        estimate = _learnt_record_bytes(table_at) or _guessed_record_bytes(sample)
    merge_on_read = config.table_type is TableType.MERGE_ON_READ
    candidates = settings.values.get("hoodie.merge.small.file.group.candidates.limit", 1)
    # New rows of an append table stay out of stored files, so that writers and services beside each other never conflict.
    writes_only = settings.flag("lakefmt.write.only")
    never_fills = config.properties.get("lakefmt.table.kind") == "append" and (bound.beside or writes_only)
    tiered = (
        is_followed
        and settings.text("lakefmt.write.small.files") == "tiers"
        and not settings.flag("lakefmt.write.services.background")
        and not (writes_only and never_fills)
        and table_at.timeline.layout > 1
        and config.populate_meta_fields
        and bound.cdc is None
        and not (index is not None and capabilities_of(index).on_commit)
    )
    small_bytes = settings.integer("hoodie.parquet.small.file.limit")
    fills = not (keeps_order or never_fills)
    # New rows stay out of files that a pending clustering replaces.
    if (fills and table_at.timeline.pending_clusterings) or not (fills or tiered):
        small_bytes = 0
    return FileSizing(
        max_bytes=settings.integer("hoodie.parquet.max.file.size"),
        small_bytes=small_bytes,
        record_bytes=estimate,
        candidates=int(str(candidates)) if merge_on_read else None,
        tiered=tiered,
        writers=bound.threads if tiered else 1,
        fills=fills,
    )


def _learnt_record_bytes(table_at: TableAt) -> float:
    for instant in reversed(table_at.timeline.commits[-_LEARN_FROM_COMMITS:]):
        stats = [s for s in table_at.commit_metadata(instant).stats if not s.log_files]  # rows of logs are larger
        total, rows = sum(s.total_write_bytes for s in stats), sum(s.num_writes for s in stats)
        if rows and total >= _LEARN_FROM_BYTES:
            return total / rows
    return 0.0


def _guessed_record_bytes(sample: pa.Table) -> float:
    if not sample.num_rows:
        return 1024.0
    # Meta columns and filter bits take about a hundred bytes a row before compression.
    row_bytes = float(sample.nbytes) / float(sample.num_rows)
    return max(8.0, (row_bytes + 100) * _FIRST_GUESS_OF_COMPRESSION)


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """Where the keys of a batch are stored.

    Attributes:
        batch: the rows; of keys to delete only the keys.
        slices: the latest file slices of the partitions that the batch may touch.
        routes: what happens to each row; its slices are positions in `slices`.
        logs: how changes go to logs; None: base files are rewritten.
        sizing: how large files should be.
        placing: the index that decides the file of every row; None: small files are filled, then new ones are opened.
        footprint: what the rows rely on in other files.
    """

    batch: KeyedBatch
    slices: Sequence[FileSlice]
    routes: Routes
    logs: Logs | None
    sizing: FileSizing
    placing: PlacingIndex | None = None
    footprint: Footprint = Footprint()


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Rows, and the file of each of them."""

    batch: KeyedBatch
    assigned: Sequence[Assigned]


def key_in_schema(bound: BoundContext, spec: KeySpec, table: pa.Table, *, durable: bool = False) -> KeyedBatch:
    """Return rows in the table's schema with their keys.

    Args:
        bound: the write.
        spec: how record keys and partition paths are made.
        table: the rows.
        durable: they passed a door before, and are committed whatever partition values new rows may have.

    Raises:
        SchemaMismatch: the rows do not fit the table.
        InvalidKey: a key or partition value cannot be used.
    """
    schema = bound.schema
    if bound.context.partial:
        names = set(table.column_names)
        schema = pa.schema([field for field in schema if field.name in names])
    allow = bound.settings.text("lakefmt.write.null_list_elements") == "allow"
    stores = bound.operation is not WriteOperation.DELETE and not durable
    return key_batch(spec, table, schema, allow_null_elements=allow, new_rows=stores)


def combines_keys(bound: BoundContext, index: Index) -> bool:
    """Return whether rows of one key become one before they are written."""
    settings = bound.settings
    if bound.operation is WriteOperation.DELETE:
        return settings.flag("hoodie.combine.before.delete")
    if bound.operation is WriteOperation.UPSERT:  # one row says where a key that moves goes
        return settings.flag("hoodie.combine.before.upsert") or moves_between_partitions(index)
    return bound.context.drop_duplicates or settings.flag("hoodie.combine.before.insert")


def combine_batch(table_at: TableAt, bound: BoundContext, spec: KeySpec, batch: KeyedBatch, index: Index) -> KeyedBatch:
    """Return rows of one key combined where the operation asks for it, and partial rows that may move completed.

    Raises:
        InvalidKey: rows whose keys are looked up have none, or different rows have keys that read the same.
    """
    operation, partial_rows = bound.operation, bound.context.partial
    if operation not in APPENDING:
        record_keys(batch)
    combines = combines_keys(bound, index)
    if combines or operation is WriteOperation.UPSERT:
        _check_collisions(bound, spec, batch, index)
    if combines:
        rule = bound.rule
        if operation is WriteOperation.DELETE:
            rule = replace(rule, custom=None)  # keys to delete are no rows
        batch = combine(batch, rule, across_partitions=index.is_global, whole=not partial_rows)
    if partial_rows and moves_between_partitions(index):
        return _completed(table_at, bound, batch, index)
    return batch


def _check_collisions(bound: BoundContext, spec: KeySpec, batch: KeyedBatch, index: Index) -> None:
    """Refuse different rows that would be merged because their record keys read the same."""
    if bound.settings.text("lakefmt.write.colliding_keys") == "merge" or batch.keys is None:
        return
    if bound.operation is not WriteOperation.DELETE:
        check_colliding_keys(spec, batch.table, batch.keys, None if index.is_global else batch.partitions)


def _completed(table_at: TableAt, bound: BoundContext, batch: KeyedBatch, index: Index) -> KeyedBatch:
    """Give partial rows the stored values they lack, when some of them move to another partition."""
    index_keys = IndexKeys(record_keys(batch), batch.partitions)
    slices = table_at.slices(partitions_to_list(index, index_keys))
    located = find_stored(table_at, index, index_keys, slices, alive=True)
    if not partition_changed(batch, located, slices).any():
        return batch
    return fill_from_stored(batch, located, slices, bound.schema, SliceReader(table_at, slices))


def locate_batch(
    table_at: TableAt, bound: BoundContext, batch: KeyedBatch, index: Index, sizing: Callable[[pa.Table], FileSizing]
) -> LocatedRows:
    """Return where the keys of a batch are stored, unless its rows are only appended.

    Args:
        table_at: the table, at one moment.
        bound: the write.
        batch: the rows.
        index: the index of the write.
        sizing: returns how large files of such rows should be.
    """
    operation, drops = bound.operation, bound.context.drop_duplicates
    footprint = Footprint()
    # An index that places new keys has two writers of a key write to one file group; a delete of a key that is nowhere to none.
    meets_in_files = places_new_keys(index) and operation is not WriteOperation.DELETE
    if (drops or operation not in APPENDING) and not meets_in_files:
        keys_in = None if index.is_global else frozenset(_partitions_of(batch))
        footprint = Footprint(((record_keys(batch), batch.partitions),), keys_in)
    if drops:
        batch, relied_on = _without_stored(table_at, bound, batch, index)
        footprint += relied_on
    if places_new_keys(index) and operation is not WriteOperation.DELETE:
        return replace(_locate_by_index(table_at, bound, batch, index), footprint=footprint)
    size = sizing(batch.table)
    if operation in OVERWRITES or operation is WriteOperation.BULK_INSERT:
        check_unknown_buckets(table_at)
        return LocatedRows(batch, [], Routes(None), None, size, footprint=footprint)
    if operation in APPENDING:
        return replace(_locate_appended(table_at, bound, batch, size), footprint=footprint)
    if bound.config.table_type is TableType.MERGE_ON_READ:
        forgets = is_compaction_pending(table_at.state) or ignores_deleted_keys(bound, batch)
        if index.is_global or forgets:
            footprint += _relied_on_deletes(table_at, bound, index, record_keys(batch), batch.partitions)
    return replace(_locate_rows(table_at, bound, batch, index, size), footprint=footprint)


def _without_stored(
    table_at: TableAt, bound: BoundContext, batch: KeyedBatch, index: Index
) -> tuple[KeyedBatch, Footprint]:
    """Return the rows whose key is not stored, and what that relies on."""
    index_keys = IndexKeys(record_keys(batch), batch.partitions)
    slices = table_at.slices(partitions_to_list(index, index_keys))
    located = find_stored(table_at, index, index_keys, slices, alive=True)
    stored = Footprint(read=_groups_of(located, slices))
    stays = batch.take(from_numpy(other_rows(batch.num_rows, located.rows)))
    return stays, stored + _relied_on_deletes(table_at, bound, index, index_keys.keys, batch.partitions)


def _groups_of(located: Located, slices: Sequence[FileSlice]) -> frozenset[tuple[PartitionPath, FileId]]:
    return frozenset((slices[n].partition, slices[n].file_id) for n in distinct(located.slices))


def _relied_on_deletes(
    table_at: TableAt, bound: BoundContext, index: Index, keys: pa.StringArray, partitions: pa.DictionaryArray | None
) -> Footprint:
    """Return the file groups that may get keys which a write takes for absent.

    Of an index that places keys these are the groups of the keys, of others the groups whose logs have deleted them. Another write
    may bring such a key in, and its commit does not say so: a row that goes to a log counts as an update.
    """
    if not bound.beside or bound.config.table_type is not TableType.MERGE_ON_READ:
        return Footprint()
    if places_new_keys(index):
        return Footprint(read=_groups_of_keys(table_at, index, keys, partitions))
    if capabilities_of(index).covers_logs:
        return Footprint()
    slices, reader = [each for each in table_at.slices() if each.logs], key_files(table_at.client, table_at.state)
    if partitions is None or index.is_global:
        located, lookup_partitions = locate_everywhere(index, keys, slices, reader), None
    else:
        located, lookup_partitions = index.locate(IndexKeys(keys, partitions), slices, reader), partitions
    located = apply_log_deletes(
        table_at, index, keys, lookup_partitions, located, slices, alive=False, until_compacted=False
    )
    return Footprint(read=_groups_of(located, slices))


def _groups_of_keys(
    table_at: TableAt, index: PlacingIndex, keys: pa.StringArray, partitions: pa.DictionaryArray | None
) -> frozenset[tuple[PartitionPath, FileId]]:
    """Return the stored file groups to which an index gives keys; `partitions` None: in every partition."""
    paths = None if partitions is None else [PartitionPath(path) for path in partitions.dictionary.to_pylist()]
    by_partition: dict[PartitionPath, list[FileSlice]] = {}
    for file_slice in table_at.slices(paths):
        by_partition.setdefault(file_slice.partition, []).append(file_slice)
    names = None if partitions is None else partitions.cast(pa.string())
    groups = set[tuple[PartitionPath, FileId]]()
    for partition, slices in by_partition.items():
        own = keys if names is None else keys.filter(pc.equal(names, partition))
        codes = from_numpy(np.zeros(len(own), np.int32))
        index_keys = IndexKeys(own, pa.DictionaryArray.from_arrays(codes, pa.array([partition], pa.string())))
        placed = index.place(index_keys, slices, table_at.client.ids.new_uuid).file_groups
        groups |= {(each.partition, each.file_id) for each in slices}.intersection(placed)
    return frozenset(groups)


def _locate_appended(table_at: TableAt, bound: BoundContext, batch: KeyedBatch, sizing: FileSizing) -> LocatedRows:
    """Return rows that are appended without a look-up, and the files among which small ones may take them."""
    slices: list[FileSlice] = []
    if sizing.small_bytes:
        slices = table_at.slices(_partitions_of(batch))
    else:
        check_unknown_buckets(table_at)
    return LocatedRows(batch, slices, Routes(None), _logs_of_changes(table_at, bound), sizing)


def _logs_of_changes(table_at: TableAt, bound: BoundContext) -> Logs | None:
    """Return how changes go to logs; None: base files are rewritten."""
    return log_placing(table_at, positions=bound.settings.flag("hoodie.write.record.positions"))


def _locate_rows(
    table_at: TableAt, bound: BoundContext, batch: KeyedBatch, index: Index, sizing: FileSizing
) -> LocatedRows:
    """Return where the keys of a batch are stored."""
    index_keys = IndexKeys(record_keys(batch), batch.partitions)
    slices = table_at.slices(partitions_to_list(index, index_keys))
    logs = _logs_of_changes(table_at, bound)
    is_delete = bound.operation is WriteOperation.DELETE
    if logs is None:
        located = index.locate(index_keys, slices, key_files(table_at.client, table_at.state))
    else:
        alive = ignores_deleted_keys(bound, batch)
        located = find_stored(table_at, index, index_keys, slices, alive=alive, every=is_delete)
    routes = Routes(located)
    if is_delete:
        routes = _routes_of_deletes(located, batch.num_rows)
    elif index.is_global:
        moves = moves_between_partitions(index)
        reader = SliceReader(table_at, slices)
        if logs is not None:
            # A key that a log has deleted is nowhere: it neither leaves that partition, nor is its row written there.
            away = partition_changed(batch, located, slices)
            if not capabilities_of(index).covers_logs:
                located = without_dead(table_at, record_keys(batch), located, slices, away)
        routes = split_moves(batch, located, slices, table_at.config, reader, update_partition=moves)
        if not moves:
            batch = with_stored_partitions(batch, located, slices, table_at.key_spec())
    return LocatedRows(batch, slices, routes, logs, sizing)


def place_rows(table_at: TableAt, bound: BoundContext, located: LocatedRows) -> list[Assigned]:
    """Give every row of a batch its file.

    Raises:
        InternalError: a row was given no file, or one too many.
    """
    if located.placing is not None:
        return _place_by_index(table_at, bound, located, located.placing)
    batch, slices, routes, logs = located.batch, located.slices, located.routes, located.logs
    new_uuid = table_at.client.ids.new_uuid
    closed = frozenset[int]()
    if logs is not None and routes.stay is not None and MOVED_AWAY in batch.table.column_names:
        # A delete stays in a log, which remembers its event time: a base file that takes new rows would forget it.
        deletes = batch.table.column(MOVED_AWAY).to_numpy(zero_copy_only=False).astype(bool)
        closed = frozenset(distinct(routes.stay.slices[deletes[routes.stay.rows]]).tolist())
    assigned = assign_rows(batch.partitions, routes, slices, located.sizing, bound.instant, new_uuid, logs, closed)
    routed, expected = sum(len(a.rows) for a in assigned), routes.num_routed(batch.num_rows)
    if routed != expected:
        raise InternalError(f"{batch.num_rows} rows came in and {routed} of {expected} were routed; nothing is written")
    _check_no_buckets(table_at.client, batch, routes, slices)
    if logs is None:
        return assigned
    return complete_log_rows(table_at, bound, assigned, slices, batch.keys, batch.table.column_names)


def _check_no_buckets(client: TableClient, batch: KeyedBatch, routes: Routes, slices: Sequence[FileSlice]) -> None:
    """Raise when new rows go to partitions whose file groups are the buckets of an index that is not asked."""
    if not any(has_bucket_number(file_slice.file_id) for file_slice in slices):
        return
    from lakefmt._core.index.bucket_index import check_no_buckets

    codes = distinct(batch.partitions.indices.to_numpy(zero_copy_only=False)[new_rows(batch.num_rows, routes)])
    if len(codes):
        names = _partitions_of(batch)
        check_no_buckets(slices, {names[code] for code in codes})


def check_unknown_buckets(table_at: TableAt) -> None:
    """Raise when a write would open file groups in a table that another engine has written with a bucket index.

    Raises:
        UnsupportedFeature: it would.
    """
    if (
        "index" not in table_at.client.load_notes()
    ):  # lakefmt has not created the table, and Hudi has no property for the index
        from lakefmt._core.index.bucket_index import check_no_buckets

        slices = table_at.slices()
        check_no_buckets(slices, {file_slice.partition for file_slice in slices})


def _locate_by_index(table_at: TableAt, bound: BoundContext, batch: KeyedBatch, index: PlacingIndex) -> LocatedRows:
    """Return rows whose files the index decides: stored keys are not looked up."""
    # An overwrite hides the stored file groups under their own ids: new groups are base files with ids of their own.
    replaces = bound.operation in REPLACING
    slices = [] if replaces else table_at.slices(_partitions_of(batch))
    logs = None if replaces else log_placing(table_at)
    return LocatedRows(batch, slices, Routes(None), logs, _NO_SIZING, index)


def _place_by_index(
    table_at: TableAt, bound: BoundContext, located: LocatedRows, index: PlacingIndex
) -> list[Assigned]:
    """Give every row the file that its index decides; an append keeps stored rows of the same key beside them."""
    batch, slices = located.batch, located.slices
    index_keys = IndexKeys(record_keys(batch), batch.partitions)
    replaces = bound.operation in REPLACING
    non_blocking = not replaces and is_non_blocking(bound.settings)
    new_uuid = partial(_agreed_uuid, table_at.replaced().values()) if non_blocking else table_at.client.ids.new_uuid
    placement = index.place(index_keys, slices, new_uuid)
    match_keys = bound.operation not in APPENDING
    # Non-blocking writers may open one file group at the same time, so they open it with logs.
    in_logs = is_non_blocking(bound.settings)
    assigned = assign_placed_rows(
        placement, slices, bound.instant, match_keys=match_keys, logs=located.logs, opens_with_logs=in_logs
    )
    if sum(len(each.rows) for each in assigned) != batch.num_rows:
        raise InternalError(f"{batch.num_rows} rows came in and not all were placed once; nothing is written")
    names = set(batch.table.column_names)
    lacking = [field for field in bound.schema if field.name not in names]
    if not lacking or all(each.assignment.log is None for each in assigned):
        return assigned
    # A row that a log has deleted cannot be written anywhere else: rows are completed here, or the readers would complete
    # them from what was there before the delete.
    return fetch_missing_columns(SliceReader(table_at, slices), assigned, slices, index_keys.keys, lacking)


def _agreed_uuid(replaced: Iterable[InstantTime]) -> str:
    """Return the UUID that every non-blocking writer gives a new file group, so that they open the same one.

    Hudi uses zeros. Replaced file groups stay hidden under their ids: then the newest replacing instant is used.

    Example:
        >>> _agreed_uuid([]), _agreed_uuid([InstantTime("20261123090115378")])
        ('00000000-0000-0000-0000-000000000000', '00000000-0000-0002-0261-123090115378')
    """
    digits = f"{max(replaced, default=InstantTime('')):0>24}"
    return f"{'0' * 8}-{digits[:4]}-{digits[4:8]}-{digits[8:12]}-{digits[12:]}"


def ignores_deleted_keys(bound: BoundContext, batch: KeyedBatch) -> bool:
    """Return whether rows whose key a log has deleted are new rows, and not changes of that file slice."""
    # On top of a delete in a log a partial row would find what was there before it.
    partial_rows = not set(bound.schema.names).issubset(batch.table.column_names)
    if partial_rows or bound.operation is WriteOperation.DELETE:
        return True
    return _forgets_deletes(bound) or _deletes_without_times(bound)


def _deletes_without_times(bound: BoundContext) -> bool:
    """Tell whether a delete by key may carry no event time: a late row on top of it would bring back what it removed."""
    from lakefmt._core.formats.log_delete_block import stores_every_ordering

    fields = [field_at(bound.schema, name) for name in bound.rule.stored.fields]
    return any(field is not None and not stores_every_ordering(field.type) for field in fields)


def _forgets_deletes(bound: BoundContext) -> bool:
    """Tell whether a row on top of a delete in a log would meet what was there before the delete.

    It would be completed from that, or, where delete blocks have no event time, lose against it: the row that was deleted
    would come back.
    """
    rule = bound.rule
    return rule.blocks_win or (rule.partial is not None and not rule.stored.fields)


def complete_log_rows(
    table_at: TableAt,
    bound: BoundContext,
    assigned: list[Assigned],
    slices: Sequence[FileSlice],
    keys: pa.StringArray | None,
    names: Sequence[str],
) -> list[Assigned]:
    """Let rows for logs bring what they lack from the stored rows.

    A delete by key, and a partial row without an event time, take that of the stored row, so that they win over it and
    lose against what is newer. Where logs hold whole rows only they bring every column.
    """
    from lakefmt._core.write.files.log_payloads import holds_whole_rows

    schema, rule = bound.schema, bound.rule
    order = {name.split(".", 1)[0] for name in rule.stored.fields}
    if bound.operation is WriteOperation.DELETE:
        lacking = [field for field in schema if field.name in order]
    elif holds_whole_rows(table_at.timeline.layout, rule, schema.names):
        lacking = [field for field in schema if field.name not in names]
    else:
        lacking = [field for field in schema if field.name in order and field.name not in names]
    if not lacking or keys is None or all(each.assignment.log is None for each in assigned):
        return assigned
    return fetch_missing_columns(SliceReader(table_at, slices), assigned, slices, keys, lacking)


def locate_deletes(table_at: TableAt, bound: BoundContext, delete_keys: DeleteKeys, index: Index) -> LocatedRows:
    """Return where keys to delete are stored."""
    keys, own_partitions = delete_keys.keys, delete_keys.homes
    listed = delete_keys.listed()
    slices = table_at.slices(partitions_of_keys(index, keys) if listed is None else listed)
    if own_partitions is None:
        located = locate_everywhere(index, keys, slices, key_files(table_at.client, table_at.state))
    else:
        located = index.locate(IndexKeys(keys, own_partitions), slices, key_files(table_at.client, table_at.state))
    logs = _logs_of_changes(table_at, bound)
    if logs is not None and not capabilities_of(index).covers_logs:
        located = apply_log_deletes(table_at, index, keys, own_partitions, located, slices, alive=True, every=True)
    if own_partitions is not None and index.is_global:
        located = _in_own_partitions(table_at, IndexKeys(keys, own_partitions), located, slices)
    footprint = _relied_on_deletes(table_at, bound, index, keys, own_partitions)
    if not delete_keys.selected:
        # Given by key they are gone afterwards: no other write may bring one in meanwhile.
        footprint += Footprint(((keys, own_partitions),), None if listed is None else frozenset(listed))
    routes = _routes_of_deletes(located, len(keys))
    batch = KeyedBatch(pa.table({}), keys, in_no_partition(len(keys)))
    return LocatedRows(batch, slices, routes, logs, _NO_SIZING, footprint=footprint)


def _routes_of_deletes(located: Located, num_keys: int) -> Routes:
    """Return the routes of keys to delete: keys that are not stored are written to no file."""
    return Routes(located, late=other_rows(num_keys, located.rows))


def _in_own_partitions(table_at: TableAt, keys: IndexKeys, located: Located, slices: Sequence[FileSlice]) -> Located:
    """Return where keys are stored in the partition of each, whatever others a global index names.

    A key may be stored in several partitions, by plain inserts. A filter selected the rows of these.
    """
    homes, paths = keys.partitions.cast(pa.string()), pa.array([each.partition for each in slices], pa.string())
    is_own = pc.equal(homes.take(from_numpy(located.rows)), paths.take(from_numpy(located.slices)))
    located = located.where(is_own.to_numpy(zero_copy_only=False))
    missing = other_rows(len(keys.keys), located.rows)
    if not len(missing):
        return located
    others = IndexKeys(keys.keys.take(from_numpy(missing)), keys.partitions.take(from_numpy(missing)))
    found = find_stored(table_at, open_index("simple"), others, slices, alive=True, every=True)
    rows, positions = missing[found.rows], [located.positions, found.positions]
    return ordered_pairs([located.rows, rows], [located.slices, found.slices], located.steps, None, positions)


def _partitions_of(batch: KeyedBatch) -> list[PartitionPath]:
    return [PartitionPath(name) for name in batch.partitions.dictionary.to_pylist()]  # partitions, not rows


def _num_threads(bound: BoundContext, assigned: Sequence[Assigned], num_bytes: int) -> int:
    only_logs = all(each.assignment.log for each in assigned)
    # Logs that are put at once wait for the disk once.
    waits = bound.durable and not (only_logs and isinstance(bound.store, SupportsPutBatch))
    waits |= not bound.store.capabilities.low_latency
    rows = sum(len(each.rows) for each in assigned)
    bases = sum(each.assignment.base.size for each in assigned if each.assignment.base is not None)
    most = bound.small_file_threads if num_bytes + bases <= _FEW_BYTES else bound.threads
    if only_logs and rows <= _FEW_ROWS_FOR_THREADS and not waits:
        return 1
    return max(1, min(most, len(assigned)))


def write_assigned_files(
    bound: BoundContext,
    batch: KeyedBatch,
    assigned: Sequence[Assigned],
    footer_of: Callable[[BaseFile], KnownFooter | None],
    announcements: Announcements | None = None,
) -> list[WriteStatus]:
    """Write every assigned file, in bundles of which each thread writes one at a time.

    Args:
        bound: the write.
        batch: its rows.
        assigned: the files, and the positions of their rows.
        footer_of: returns the footer of a base file, where the look-up has read it.
        announcements: of a write that writes files in several calls; None: this is the only one.

    Returns:
        The status of each file, in the order of `assigned`.
    """
    announced = (announcements or Announcements(bound)).announce([each.assignment for each in assigned])
    threads = _num_threads(bound, assigned, batch.table.nbytes)
    bundles = plan_bundles(assigned, bundle_limits(bound, batch.table, threads))
    if threads > 1:
        pa.default_memory_pool().release_unused()  # what the look-up took
    source = BundleSource(bound, batch, footer_of, announced, is_alone=len(assigned) == 1)
    with WorkerPool(threads) as workers:
        works = results([workers.submit(bundle.write, source) for bundle in bundles])
    statuses = {
        n: status
        for bundle, some in zip(bundles, works, strict=True)
        for n, status in zip(bundle.positions, some, strict=True)
    }
    return [statuses[position] for position in range(len(assigned))]
