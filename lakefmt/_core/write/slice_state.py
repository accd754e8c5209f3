"""File slices with their logs merged, as far as a write depends on them.

An index looks into base files. In a merge-on-read table a key may be in logs only, or deleted by a log while the base file
still has it. Both cases are resolved here, for the slices and rows that they concern.

A compaction that waits drops the keys that logs deleted before it was planned, and leaves the logs on top of it. A key that is
written again in between would be in such a log alone, where no index of another engine finds it: it is written as a new row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import distinct, from_numpy
from lakefmt._core.config.table_config import merge_rule
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.filegroups.ordering import Mask, has_order, ordering_columns, to_mask
from lakefmt._core.filegroups.pending_plans import compacting_groups
from lakefmt._core.filegroups.precombine import order_ranks
from lakefmt._core.filegroups.reader import BaseFileReader
from lakefmt._core.filegroups.table_client import TableAt, TableState
from lakefmt._core.index import Index, IndexKeys, KeyReader, Located, capabilities_of, key_files, places_new_keys
from lakefmt._core.schema import reconcile, with_meta_columns
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import IS_DELETED, RECORD_KEY, InstantTime, PartitionPath, TableType
from lakefmt._core.write.assign import Assigned, Logs, new_rows_by_partition, rows_by_file_group
from lakefmt._core.write.commit.key_stats import slices_with_deletes, slices_with_own_keys

if TYPE_CHECKING:
    from lakefmt._core.filegroups.log_reader import LogRows

__all__ = [
    "SliceReader",
    "apply_log_deletes",
    "fetch_missing_columns",
    "find_stored",
    "is_compaction_pending",
    "log_placing",
    "without_dead",
]

Rows = npt.NDArray[np.int64]

_THREADS = 4
#: Of file groups that are asked for and not opened.
_NO_UUID = "00000000-0000-0000-0000-000000000000"


def log_placing(table_at: TableAt, *, positions: bool = False) -> Logs | None:
    """Return how changes go to logs, from version 8 on with record positions if asked for; None: copy-on-write."""
    if table_at.config.table_type is not TableType.MERGE_ON_READ:
        return None
    if table_at.timeline.layout > 1:
        return Logs(table_at.timeline.layout, positions=positions)
    return Logs(1, compacting_groups(table_at))


def is_compaction_pending(state: TableState) -> bool:
    """Return whether a compaction waits or runs."""
    return any(pending.action is Action.COMPACTION for pending in state.timeline.pending)


class SliceReader(BaseFileReader):
    """Gives the rows of base files as they are with their logs merged in.

    Args:
        table_at: the table, at one moment.
        slices: the slices whose base files will be asked for.

    Attributes:
        rule: how the table merges.
    """

    def __init__(self, table_at: TableAt, slices: Sequence[FileSlice]) -> None:
        self._made = table_at.virtual_columns()
        super().__init__(table_at.client.store, self._made)
        self._client = table_at.client
        self._state = table_at.state
        self._by_base = {file_slice.base.path: file_slice for file_slice in slices if file_slice.base is not None}
        self._schema = with_meta_columns(table_at.schema())
        self.rule = merge_rule(table_at.config)

    def rows(self, file: BaseFile, columns: Sequence[str] | None = None, *, use_threads: bool = True) -> pa.Table:
        """Return the rows of a file's slice, all columns or those named that the table has."""
        file_slice = self._by_base.get(file.path)
        if file_slice is None or not file_slice.logs:
            return super().rows(file, columns, use_threads=use_threads)
        return self.merged(file_slice, columns)

    def slice_rows(self, file_slice: FileSlice, columns: Sequence[str]) -> pa.Table:
        """Return the rows of a slice, which may have no base file, with those of the columns named that the table has."""
        if file_slice.base is None or file_slice.logs:
            return self.merged(file_slice, columns)
        return super().rows(file_slice.base, columns)

    def merged(
        self,
        file_slice: FileSlice,
        columns: Sequence[str] | None = None,
        keys: pa.Array | None = None,
        *,
        base: bool = True,
    ) -> pa.Table:
        """Return a slice's rows, of all keys or those given; with `base` False only of keys that its logs have."""
        from lakefmt._core.filegroups.merged_slice import merge_logs

        names = self._schema.names if columns is None else [n for n in self._schema.names if n in columns]
        needed = {RECORD_KEY, IS_DELETED, *names, *(field.split(".", 1)[0] for field in self.rule.stored.fields)}
        if self.rule.delete is not None:
            needed.add(self.rule.delete.field)
        if self.rule.custom is not None and file_slice.logs:
            needed |= set(self._schema.names)
        schema = pa.schema([field for field in self._schema if field.name in needed])
        rows = schema.empty_table()
        if base and file_slice.base is not None:
            rows = reconcile(super().rows(file_slice.base, schema.names), schema)
            rows = rows if keys is None else rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=keys))
        if not file_slice.logs:
            return rows.select(names)
        logs = self._log_rows(file_slice, schema)
        if keys is not None:
            logs = _of_keys(logs, keys)
        if not base and logs.is_partial:
            # Partial rows of keys that are in the base file only complete those.
            logs = replace(logs, columns=(None,) * len(logs.columns))
        return merge_logs(rows, logs, self.rule).select(names)

    def deletes(self, file_slice: FileSlice, keys: pa.Array) -> pa.Table:
        """Return the ordering columns of the deletes that a slice's logs have of some keys, the largest of a key first.

        A delete without an event time is not among them: a row that comes after it is no late one.
        """
        order = self.rule.stored
        needed = {RECORD_KEY, IS_DELETED, *(field.split(".", 1)[0] for field in order.fields)}
        schema = pa.schema([field for field in self._schema if field.name in needed])
        logs = _of_keys(self._log_rows(file_slice, schema), keys)
        found = logs.table.filter(from_numpy(logs.deletes & ~logs.always))
        ranks = order_ranks(ordering_columns(found, order), found.num_rows)
        return found.take(from_numpy(np.argsort(-ranks, kind="stable")))

    def _log_rows(self, file_slice: FileSlice, schema: pa.Schema) -> LogRows:
        from lakefmt._core.filegroups.log_reader import read_log_rows

        timeline = self._state.timeline
        return read_log_rows(
            self._client.store,
            file_slice,
            schema,
            self.rule,
            layout=timeline.layout,
            is_committed=lambda time: timeline.is_committed(InstantTime(time)),
            unstored=self._made,
        )


def _of_keys(logs: LogRows, keys: pa.Array) -> LogRows:
    from lakefmt._core.filegroups.log_reader import LogRows

    mask = to_mask(pc.is_in(logs.table.column(RECORD_KEY), value_set=keys))
    table = logs.table.filter(from_numpy(mask))
    columns, has_positions = logs.columns, logs.known
    return LogRows(table, logs.deletes[mask], logs.always[mask], logs.brings[mask], columns, known=has_positions)


def find_stored(
    table_at: TableAt,
    index: Index,
    index_keys: IndexKeys,
    slices: Sequence[FileSlice],
    *,
    alive: bool,
    every: bool = False,
) -> Located:
    """Return where keys are stored, logs considered.

    Args:
        table_at: the table, at one moment.
        index: looks into the base files.
        index_keys: the keys.
        slices: the slices to look into.
        alive: as for :func:`apply_log_deletes`.
        every: as for :func:`apply_log_deletes`.
    """
    reader, capabilities = key_files(table_at.client, table_at.state), capabilities_of(index)
    located = index.locate(index_keys, slices, reader)
    if alive and not (capabilities.needs_file_reader or capabilities.covers_logs):
        # It may remember where a key was that is deleted since.
        located = _in_base_files(index_keys.keys, located, slices, reader)
    if table_at.config.table_type is not TableType.MERGE_ON_READ or capabilities.covers_logs:
        return located
    partitions = None if index.is_global else index_keys.partitions
    return apply_log_deletes(table_at, index, index_keys.keys, partitions, located, slices, alive=alive, every=every)


def _in_base_files(keys: pa.StringArray, located: Located, slices: Sequence[FileSlice], reader: KeyReader) -> Located:
    """Return the pairs whose key the base file of their slice has."""
    stored_mask = np.zeros(len(located.rows), bool)
    for number in distinct(located.slices):  # files, not rows
        base = slices[number].base
        if base is not None:
            pairs = np.flatnonzero(located.slices == number)
            found = pc.is_in(keys.take(from_numpy(located.rows[pairs])), value_set=reader.keys(base))
            stored_mask[pairs] = found.to_numpy(zero_copy_only=False)
    return located.where(stored_mask)


def apply_log_deletes(
    table_at: TableAt,
    index: Index,
    keys: pa.StringArray,
    partitions: pa.DictionaryArray | None,
    located: Located,
    slices: Sequence[FileSlice],
    *,
    alive: bool,
    every: bool = False,
    until_compacted: bool = True,
) -> Located:
    """Return what an index found in base files, put right by what the logs say.

    Args:
        table_at: the table, at one moment.
        index: the index.
        keys: the keys that were looked up.
        partitions: the partition of each; None: any.
        located: what the index found.
        slices: the slices that it looked into.
        alive: keys that a log has deleted are not stored; else one place of each still counts, so that a late row
            meets the delete.
        every: every copy of a key counts; else logs are asked for keys only that may live nowhere else.
        until_compacted: a delete that a waiting compaction forgets is forgotten.
    """
    if not any(file_slice.logs for file_slice in slices):
        return located
    reader = SliceReader(table_at, slices)
    slice_numbers = slices_with_own_keys(table_at, slices)
    if slice_numbers:
        certain = None if every else _certain_slices(table_at, slices)
        fresh = _keys_to_ask(len(keys), located, certain)
        located = _with_log_keys(reader, index, keys, partitions, located, slices, slice_numbers, fresh)
    counts = np.bincount(located.rows, minlength=len(keys))
    forgotten = _forgotten(table_at, slices)[located.slices] if until_compacted and not alive else None
    doubtful = np.full(len(located.rows), alive) | (counts[located.rows] > 1)
    if forgotten is not None:
        doubtful |= forgotten
    dead = _dead(reader, keys, located, slices, doubtful)
    if not alive:
        # A row whose every place is dead keeps the newest: that is where its key lived last.
        num_alive = np.bincount(located.rows[~dead], minlength=len(keys))
        keeps = _newest(located, slices) & (num_alive[located.rows] == 0)
        dead &= ~(keeps if forgotten is None else keeps & ~forgotten)
    return _without(located, dead)


def _forgotten(table_at: TableAt, slices: Sequence[FileSlice]) -> Mask:
    """Return of which slices a pending compaction will forget the deletes."""
    forgotten = np.zeros(len(slices), dtype=bool)
    deleting = slices_with_deletes(table_at, slices) if is_compaction_pending(table_at.state) else []
    compacting = compacting_groups(table_at) if deleting else {}
    forgotten[[n for n in deleting if (slices[n].partition, slices[n].file_id) in compacting]] = True
    return forgotten


def _certain_slices(table_at: TableAt, slices: Sequence[FileSlice]) -> Mask:
    """Return in which slices every key of the base file is alive."""
    certain = np.ones(len(slices), dtype=bool)
    certain[slices_with_deletes(table_at, slices)] = False
    return certain


def _keys_to_ask(num_keys: int, located: Located, certain: Mask | None) -> Rows:
    """Return the keys that logs have to be asked for: all of them, or those of which no slice certainly has a row."""
    fresh = np.ones(num_keys, dtype=bool)
    if certain is not None:
        fresh[located.rows[certain[located.slices]]] = False
    return np.flatnonzero(fresh)


def without_dead(
    table_at: TableAt, keys: pa.StringArray, located: Located, slices: Sequence[FileSlice], which: Mask
) -> Located:
    """Return pairs without those of `which` whose key a log has deleted; arguments as for :func:`apply_log_deletes`."""
    if not any(file_slice.logs for file_slice in slices):
        return located
    return _without(located, _dead(SliceReader(table_at, slices), keys, located, slices, which))


def _dead(
    reader: SliceReader, keys: pa.StringArray, located: Located, slices: Sequence[FileSlice], which: Mask
) -> Mask:
    """Return which pairs, among those of `which`, name a slice whose logs have deleted the key."""
    dead = np.zeros(len(located.rows), dtype=bool)
    pairs = {n: p for n, p in rows_by_file_group(located.slices, np.arange(len(located.rows))) if slices[n].logs}
    work = {n: p[which[p]] for n, p in pairs.items() if which[p].any()}

    def look(number: int) -> Rows:
        wanted_keys = keys.take(from_numpy(located.rows[work[number]]))
        stored = reader.merged(slices[number], [RECORD_KEY], wanted_keys).column(RECORD_KEY)
        return work[number][~to_mask(pc.is_in(wanted_keys, value_set=stored))]

    with ThreadPoolExecutor(_THREADS) as pool:
        for dead_pairs in pool.map(look, work):
            dead[dead_pairs] = True
    return dead


def _without(located: Located, dead: Mask) -> Located:
    return located.where(~dead)


def _newest(located: Located, slices: Sequence[FileSlice]) -> Mask:
    """Return which pairs are those of their row's newest slice, one for each row."""
    age = np.unique(np.array([file_slice.instant for file_slice in slices], dtype=str), return_inverse=True)[1]
    by_age = np.lexsort((located.slices, age[located.slices], located.rows))
    rows = located.rows[by_age]
    newest = np.zeros(len(rows), dtype=bool)
    newest[by_age[np.append(rows[1:] != rows[:-1], True)[: len(rows)]]] = True
    return newest


def _with_log_keys(
    reader: SliceReader,
    index: Index,
    keys: pa.StringArray,
    places: pa.DictionaryArray | None,
    located: Located,
    slices: Sequence[FileSlice],
    slice_numbers: Sequence[int],
    fresh: Rows,
) -> Located:
    """Add the places where the keys `fresh` live in logs of the slices `slice_numbers` and not in their base files."""
    lookups = dict(_rows_by_slice(index, keys, places, slices, slice_numbers, fresh))
    found = {number: located.rows[located.slices == number] for number in lookups}
    lookups = {number: rows[~np.isin(rows, found[number])] for number, rows in lookups.items()}
    lookups = {number: rows for number, rows in lookups.items() if len(rows)}
    if not lookups:
        return located

    def look(number: int) -> Rows:
        rows = lookups[number]
        wanted_keys = keys.take(from_numpy(rows))
        stored = reader.merged(slices[number], [RECORD_KEY], wanted_keys, base=False).column(RECORD_KEY)
        return rows[to_mask(pc.is_in(wanted_keys, value_set=stored))]

    with ThreadPoolExecutor(_THREADS) as pool:
        rows_by_slice = list(zip(lookups, pool.map(look, lookups), strict=True))
    rows = np.concatenate([located.rows, *(stored_there for _, stored_there in rows_by_slice)])
    numbers = np.concatenate(
        [located.slices, *(np.full(len(stored_there), n, np.int64) for n, stored_there in rows_by_slice)]
    )
    order = np.lexsort((numbers, rows))
    places = located.positions
    if places is not None:  # keys of logs have none
        places = np.concatenate([places, np.full(len(rows) - len(places), -1, np.int64)])[order]
    return Located(rows[order], numbers[order], located.steps, located.filters, places)


def _rows_by_slice(
    index: Index,
    keys: pa.StringArray,
    partitions: pa.DictionaryArray | None,
    slices: Sequence[FileSlice],
    slice_numbers: Sequence[int],
    fresh: Rows,
) -> Iterator[tuple[int, Rows]]:
    """Yield each slice to ask with those of the keys `fresh` that may be in it, by their partition and their bucket."""
    by_partition = {} if partitions is None else dict(new_rows_by_partition(partitions, fresh))
    own: dict[PartitionPath, list[int]] = {}
    for number in slice_numbers:
        own.setdefault(slices[number].partition, []).append(number)
    for partition, numbers in own.items():
        rows = fresh if partitions is None else by_partition.get(partition, fresh[:0])
        if not len(rows):
            continue
        if not places_new_keys(index):
            yield from ((number, rows) for number in numbers)
            continue
        meant = pa.DictionaryArray.from_arrays(from_numpy(np.zeros(len(rows), np.int32)), pa.array([partition]))
        stored = [file_slice for file_slice in slices if file_slice.partition == partition]
        placed = index.place(IndexKeys(keys.take(from_numpy(rows)), meant), stored, lambda: _NO_UUID)
        for group, its_rows in rows_by_file_group(placed.groups, rows):
            yield from ((n, its_rows) for n in numbers if (partition, slices[n].file_id) == placed.file_groups[group])


def fetch_missing_columns(
    reader: SliceReader,
    assigned: Sequence[Assigned],
    slices: Sequence[FileSlice],
    keys: pa.StringArray,
    columns: Sequence[pa.Field],
) -> list[Assigned]:
    """Return assignments whose logs' rows bring columns of the stored rows along, typed as asked for.

    Of a key that a slice has several times the row that wins over the others by event time is taken.
    """
    by_group = {(file_slice.partition, file_slice.file_id): file_slice for file_slice in slices}
    order = reader.rule.stored

    def complete(changed: Assigned) -> Assigned:
        file = changed.assignment
        if file.log is None:
            return changed
        row_keys = keys.take(from_numpy(changed.rows))
        names = [RECORD_KEY, *(field.name for field in columns), *(name.split(".", 1)[0] for name in order.fields)]
        stored = reader.merged(by_group[file.partition, file.file_id], names, row_keys)
        held = set(stored.column_names)
        fields = [field.with_nullable(True) for field in columns if field.name in held]
        if has_order(order, stored.column_names):
            ranks = order_ranks(ordering_columns(stored, order), stored.num_rows)
            stored = stored.take(from_numpy(np.argsort(-ranks, kind="stable")))
        stored_rows = pc.index_in(row_keys, value_set=stored.column(RECORD_KEY).combine_chunks())
        return replace(changed, stored=reconcile(stored.take(stored_rows), pa.schema(fields)))

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(complete, assigned))
