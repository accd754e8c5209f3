"""A merge as one write: read the stored rows that it may concern, decide, and commit updates, deletes and inserts together.

The stored rows come in windows, and only what a clause changes is kept of them. Where the source has the record key, the
table's index names the file slices; elsewhere the values of the source's columns choose them, as a filter would.

The rows go the way of an upsert: the table's merge rule decides between an updated row and the stored one. A row that is
deleted goes along as it is stored, marked as one that leaves its file. A row whose key or partition changes leaves its place
and enters a new one, unless the index moves keys by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arrays import from_numpy, one_array
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.config.table_config import append_layout, merge_rule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.ordering import has_order, incoming_wins, ordering_columns, to_mask
from lakefmt._core.filegroups.stored_keys import asked_form, keyed_rows, stored_key_spec
from lakefmt._core.filegroups.table_client import TableAt, TableClient
from lakefmt._core.index import (
    Index,
    IndexKeys,
    capabilities_of,
    choose_index,
    key_files,
    locate_everywhere,
    moves_between_partitions,
    partitions_of_keys,
    partitions_to_list,
)
from lakefmt._core.keys import KeySpec, build_new_partition_paths, build_partition_paths, build_record_keys
from lakefmt._core.keys.generate import build_auto_keys
from lakefmt._core.read.snapshot import Snapshot, matching_slices, scan_slices
from lakefmt._core.schema import reconcile
from lakefmt._core.values import PARTITION_PATH, RECORD_KEY, CommitResult, PartitionPath, TableType, WriteOperation
from lakefmt._core.write.commit.conflict_resolution import Footprint
from lakefmt._core.write.commit.key_stats import slices_with_deletes
from lakefmt._core.write.context import MOVED_AWAY, WriteRequest
from lakefmt._core.write.ingest import KeyedBatch
from lakefmt._core.write.merge_rows import (
    Clause,
    MergePlan,
    When,
    WindowResult,
    join_rule,
    merge_window,
    plan_pairs,
    unmatched_inserts,
)
from lakefmt._core.write.mutations import slices_of_keys
from lakefmt._core.write.pipeline import LocatedRows
from lakefmt._core.write.slice_state import SliceReader, apply_log_deletes, find_stored
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.errors import DuplicateKey, UnsupportedFeature

__all__ = ["Merge", "plan_merge_write", "run_merge"]

Mask = npt.NDArray[np.bool_]
_Codes = npt.NDArray[np.int64]

#: Stored rows that are joined with the source at a time: as many as the source has, and at least these.
_FEWEST_ROWS = 1 << 18
#: Values of a column by which stored rows are chosen one by one; of more of them, the smallest and the largest.
_MOST_VALUES = 10_000
_UPDATE_PARTITION = tuple(f"hoodie.{name}.index.update.partition.path" for name in ("bloom", "simple", "record"))


@dataclass(frozen=True, slots=True)
class Merge:
    """What a merge was given.

    Attributes:
        source: its rows.
        on: which rows belong together (:func:`~lakefmt._core.write.merge_rows.join_rule`).
        clauses: in the caller's order.
        by_partition: a row's identity has its partition, as for an upsert, unless the index is global.
    """

    source: pa.Table
    on: str | Sequence[str] | None
    clauses: tuple[Clause, ...]
    by_partition: bool = False


@dataclass(frozen=True, slots=True)
class _Keys:
    """The identity of rows: record keys, and partition paths as texts."""

    keys: pa.StringArray
    paths: pa.StringArray

    def take(self, rows: npt.NDArray[np.int64]) -> _Keys:
        """Return those of some rows."""
        chosen = from_numpy(rows)
        return _Keys(self.keys.take(chosen), self.paths.take(chosen))

    @classmethod
    def joined(cls, many: Sequence[_Keys]) -> _Keys:
        """Return those of several tables, one after another."""
        empty = pa.array([], pa.string())
        return cls(
            pa.concat_arrays([empty, *(e.keys for e in many)]), pa.concat_arrays([empty, *(e.paths for e in many)])
        )

    @classmethod
    def none(cls, rows: int) -> _Keys:
        """Return those of rows whose keys are not generated yet."""
        return cls(pa.nulls(rows, pa.string()), pa.nulls(rows, pa.string()))

    def beside(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns by which a table that generates its keys tells them again."""
        return rows.append_column(RECORD_KEY, self.keys).append_column(PARTITION_PATH, self.paths)

    def codes(self, *, whole_table: bool) -> npt.NDArray[np.int64]:
        """Return a number for each row, the same for rows that are one: by key, and by partition unless `whole_table`."""
        codes: _Codes = self.keys.dictionary_encode().indices.to_numpy().astype(np.int64)
        if whole_table:
            return codes
        partitions = self.paths.dictionary_encode()
        numbers: _Codes = partitions.indices.to_numpy().astype(np.int64)
        return codes * max(1, len(partitions.dictionary)) + numbers


@dataclass(slots=True)
class _Found:
    """What the windows of stored rows came to: updated rows in their place, rows that move, and what leaves."""

    updated: list[pa.Table] = field(default_factory=list)
    updated_keys: list[_Keys] = field(default_factory=list)
    moved: list[pa.Table] = field(default_factory=list)
    left: list[pa.Table] = field(default_factory=list)
    left_keys: list[_Keys] = field(default_factory=list)
    num_late: int = 0


@dataclass(frozen=True, slots=True)
class _Changes:
    """The rows of a merge on their way into files.

    Attributes:
        rows: updated, deleted and inserted rows, in this order.
        deletes: which of them leave their file.
        keyless: how many of them, at the end, get generated keys.
        operation: how they are written.
        read: the file slices that were read.
        read_keys: the source's record keys, by which stored rows were looked up; None: other rows were read, too.
        options: of the call, and what the rows ask for.
        num_late: rows that would have moved and lost against what is stored.
    """

    rows: pa.Table
    deletes: Mask
    keyless: int
    operation: WriteOperation
    read: Sequence[FileSlice]
    read_keys: tuple[pa.StringArray, pa.DictionaryArray | None] | None
    options: Mapping[str, object]
    num_late: int


def run_merge(client: TableClient, request: WriteRequest, merge: Merge) -> CommitResult | None:
    """Merge and commit, upon the newest state; None: no row changes, and there is nothing to remember.

    Args:
        client: the table.
        request: what is asked for.
        merge: the source and the clauses.

    Raises:
        CommitConflict: another commit completed meanwhile that changed what was read.
        DuplicateKey: two source rows change one stored row, or two rows would have one key.
        SchemaMismatch: a value does not fit its column.
        UnsupportedFeature: rows of an append table would be changed.
    """
    state = client.load()
    changes = _Decision(client.at(state), request, merge).decide()
    if not changes.rows.num_rows and not request.keeps_empty:
        return CommitResult(None, operation=request.operation, num_late=changes.num_late) if changes.num_late else None
    request = replace(request, operation=changes.operation, options=changes.options)
    transaction = WriteTransaction.begin(client, request, changes.rows.schema, state, waits=False)
    transaction.leave_out(changes.num_late)
    with transaction.aborted_on_error():
        statuses = transaction.write(transaction.place(_located(transaction, changes)))
        return transaction.commit_unless_empty(statuses)


def plan_merge_write(client: TableClient, request: WriteRequest, merge: Merge) -> CommitResult:
    """Return what a merge would do; nothing in the store changes. Arguments and errors as for :func:`run_merge`."""
    state = client.load()
    changes = _Decision(client.at(state), request, merge).decide()
    request = replace(request, operation=changes.operation, options=changes.options)
    transaction = WriteTransaction.plan_only(client, request, changes.rows.schema)
    return transaction.plan(_located(transaction, changes))


def _footprint(changes: _Changes) -> Footprint:
    """Return what no other write may have changed: the file groups that were read, and the keys that were looked for."""
    groups = frozenset((each.partition, each.file_id) for each in changes.read)
    if changes.read_keys is None:
        return Footprint(read=groups, covers=None)
    partitions = changes.read_keys[1]
    # A few partitions, not rows.
    within = None if partitions is None else frozenset(map(PartitionPath, partitions.dictionary.to_pylist()))
    return Footprint((changes.read_keys,), within, groups)


def _located(transaction: WriteTransaction, changes: _Changes) -> LocatedRows:
    transaction.rely_on(_footprint(changes))
    keyed = transaction.key(_with_generated_keys(changes, transaction.context.instant), durable=True)
    if keyed.num_rows != changes.rows.num_rows:
        raise DuplicateKey("two rows of the merge have one key")
    if changes.deletes.any():
        marked = keyed.table.append_column(MOVED_AWAY, from_numpy(changes.deletes))
        keyed = KeyedBatch(marked, keyed.keys, keyed.partitions)
    return transaction.locate(keyed)


def _with_generated_keys(changes: _Changes, instant: str) -> pa.Table:
    rows = changes.rows
    if not changes.keyless or RECORD_KEY not in rows.column_names:
        return rows
    known = one_array(rows.column(RECORD_KEY).slice(0, rows.num_rows - changes.keyless))
    made = build_auto_keys(instant, 0, 0, changes.keyless)
    index = rows.schema.get_field_index(RECORD_KEY)
    return rows.set_column(index, rows.schema.field(index), pa.chunked_array([known, made], pa.string()))


# ------------------------------------------------------------------------------------------------------ the decision


class _Decision:
    """Decides about the rows of one merge upon one state of the table."""

    def __init__(self, table_at: TableAt, request: WriteRequest, merge: Merge) -> None:
        self.table_at, self.merge, self.request = table_at, merge, request
        client, config = table_at.client, table_at.config
        self.settings: Settings = resolve_settings({**client.options, **request.options}, None, config.properties)
        self.index: Index = choose_index(client, self.settings, config, table_at.state)
        self.spec: KeySpec = stored_key_spec(table_at, asked_form(self.settings), anywhere=self.index.is_global)
        key = () if self.spec.auto_keys else self.spec.record_key_fields
        stored = table_at.schema()
        rule = join_rule(merge.on, key, stored, merge.source.schema)
        self.plan: MergePlan = plan_pairs(rule, merge.clauses, stored, merge.source)
        if merge.by_partition and not self.index.is_global:
            paths = build_partition_paths(self.spec, merge.source).cast(pa.string())
            self.plan = replace(self.plan, source_paths=one_array(paths))
        self._check_append_table()
        self.has_moved = False
        self.read_keys: tuple[pa.StringArray, pa.DictionaryArray | None] | None = None
        self.options: Mapping[str, object] = request.options
        self.read: Sequence[FileSlice] = []

    def _check_append_table(self) -> None:
        changing = self.plan.actions[When.MATCHED] + self.plan.actions[When.NOT_MATCHED_BY_SOURCE]
        if changing and append_layout(self.table_at.config.properties) is not None:
            raise UnsupportedFeature(
                "an append table has no keys to update or delete by: its merge has when_not_matched clauses only"
            )

    # --- which stored rows are read ------------------------------------------------------------------------------

    def slices_and_filter(self) -> tuple[Sequence[FileSlice], object]:
        """Return the file slices to read, and a filter that lets no row pass that is not concerned."""
        snapshot = self._snapshot
        if self.plan.actions[When.NOT_MATCHED_BY_SOURCE]:
            return matching_slices(snapshot), None
        keys = self._source_keys()
        if keys is not None:
            names = keys.keys.unique()
            self.read_keys = (names, None) if keys.paths.null_count else (keys.keys, keys.paths.dictionary_encode())
            if not len(names):
                return [], None
            row_filter = [(RECORD_KEY, "in", names)] if len(names) <= _MOST_VALUES else pc.field(RECORD_KEY).isin(names)
            if not self.table_at.config.populate_meta_fields:  # files have no keys to compare
                row_filter = list(self._terms()) or None
            return self._slices_with(keys), row_filter
        terms = list(self._terms())
        return matching_slices(snapshot, terms or None), terms or None

    @property
    def _snapshot(self) -> Snapshot:
        return Snapshot(self.table_at.client, self.table_at.state)

    def _joined_columns(self) -> dict[str, str]:
        """Return by the column of the table the column of ``plan.source_keys`` that equals it."""
        return {".".join(ours): str(number) for number, (ours, _) in enumerate(self.plan.rule.equal)}

    def _source_keys(self) -> _Keys | None:
        """Return the record keys of the source's rows that have one, partition paths where known; None: it lacks columns."""
        joined = self._joined_columns()
        if self.spec.auto_keys or not all(name in joined for name in self.spec.record_key_fields):
            return None
        columns = {name: self.plan.source_keys.column(number) for name, number in joined.items()}
        rows = pa.table(_nested(columns)).filter(self._joinable())
        keys = one_array(build_record_keys(self.spec, rows))
        if self.plan.source_paths is not None:
            return _Keys(keys, self.plan.source_paths.filter(self._joinable()))
        partition_columns = [each.name for each in self.spec.partition_fields]
        if self.index.is_global or not all(name in joined for name in partition_columns):
            return _Keys(keys, pa.nulls(len(keys), pa.string()))
        return _Keys(keys, one_array(build_partition_paths(self.spec, rows).cast(pa.string())))

    def _joinable(self) -> pa.Array:
        """Return which source rows have no null among the columns by which they are joined."""
        flags = np.ones(self.plan.source.num_rows, bool)
        for column in self.plan.source_keys.columns:
            flags &= one_array(column.is_valid()).to_numpy(zero_copy_only=False)
        return from_numpy(flags)

    def _slices_with(self, keys: _Keys) -> Sequence[FileSlice]:
        table_at, index = self.table_at, self.index
        if not keys.paths.null_count:
            return slices_of_keys(table_at, self.request.options, keys.keys, keys.paths)
        names = keys.keys.unique()
        slices = table_at.slices(partitions_of_keys(index, names))
        located = locate_everywhere(index, names, slices, key_files(table_at.client, table_at.state))
        if table_at.config.table_type is TableType.MERGE_ON_READ and not capabilities_of(index).covers_logs:
            located = apply_log_deletes(table_at, index, names, None, located, slices, alive=True, every=True)
        return [slices[number] for number in np.unique(located.slices)]

    def _terms(self) -> Iterator[tuple[str, str, object]]:
        """Yield what holds for the columns of every stored row that has a partner."""
        stored = self.plan.stored
        for number, (ours, _) in enumerate(self.plan.rule.equal):
            if len(ours) > 1 or pt.is_nested(stored.field(ours[0]).type) or pt.is_boolean(stored.field(ours[0]).type):
                continue
            values = one_array(self.plan.source_keys.column(str(number))).drop_null().unique()
            if len(values) <= _MOST_VALUES:
                yield ours[0], "in", values
            else:
                ends = pc.min_max(values)
                yield ours[0], ">=", ends["min"]
                yield ours[0], "<=", ends["max"]

    def target_windows(self) -> Iterator[pa.Table]:
        """Yield the stored rows that may be concerned, with the columns that are needed of them."""
        slices, row_filter = self.slices_and_filter()
        self.read = slices
        if not slices:
            return
        reader = scan_slices(self._snapshot, slices, self._columns(), row_filter, meta_columns=True)
        least = max(_FEWEST_ROWS, self.plan.source.num_rows)
        held: list[pa.RecordBatch] = []
        for batch in reader:
            held.append(batch)
            if sum(each.num_rows for each in held) >= least:
                yield pa.Table.from_batches(held)
                held = []
        if held:
            yield pa.Table.from_batches(held)

    def _columns(self) -> list[str] | None:
        actions = self.plan.actions
        only_inserts = not actions[When.MATCHED] and not actions[When.NOT_MATCHED_BY_SOURCE]
        if not only_inserts or self.plan.condition is not None:
            return None
        return list(dict.fromkeys(ours[0] for ours, _ in self.plan.rule.equal)) or None

    # --- what becomes of them ------------------------------------------------------------------------------------

    def decide(self) -> _Changes:
        """Read the stored rows and return what is to be written."""
        found = _Found()
        matched = np.zeros(self.plan.source.num_rows, bool)
        for window in self.target_windows():
            result = merge_window(self.plan, window)
            matched |= result.matched
            self._add(found, window, result)
        inserted = self.plan.schema.empty_table()
        if self.plan.actions[When.NOT_MATCHED]:
            inserted = unmatched_inserts(self.plan, matched)
        return self._changes(found, inserted)

    def _add(self, found: _Found, window: pa.Table, result: WindowResult) -> None:
        if not len(result.updates) and not len(result.deletes):
            return
        there = keyed_rows(self.table_at, window)
        stored = _Keys(one_array(there.column(RECORD_KEY)), one_array(there.column(PARTITION_PATH)))
        old = stored.take(result.updates)
        new = self._keys_of(result.updated, old.keys if self.spec.auto_keys else None)
        moved = self._moved(old, new)
        late = self._late(window, result, moved)
        stays, moved = np.flatnonzero(~moved), moved & ~late
        self.has_moved |= bool(moved.any())
        found.updated.append(result.updated.take(from_numpy(stays)))
        found.updated_keys.append(new.take(stays))
        new_place = np.flatnonzero(moved)
        late_there = self._late_there(result.updated.take(from_numpy(new_place)), new.take(new_place))
        new_place = new_place[~late_there]
        found.num_late += int(late.sum()) + int(late_there.sum())
        found.moved.append(result.updated.take(from_numpy(new_place)))
        left = np.concatenate([result.deletes, result.updates[new_place]])
        data = window.select(self.plan.stored.names).take(from_numpy(left))
        found.left.append(reconcile(data, self.plan.schema))
        found.left_keys.append(stored.take(left))

    def _keys_of(self, rows: pa.Table, keys: pa.StringArray | None = None) -> _Keys:
        keys = one_array(build_record_keys(self.spec, rows)) if keys is None else keys
        return _Keys(keys, one_array(build_partition_paths(self.spec, rows).cast(pa.string())))

    def _moved(self, old: _Keys, new: _Keys) -> Mask:
        """Return which updated rows leave their place by a deletion; a global index moves a key by itself."""
        by_key = to_mask(pc.not_equal(old.keys, new.keys))
        by_path = to_mask(pc.not_equal(old.paths, new.paths))
        if not self.index.is_global:
            return by_key | by_path
        if by_path.any() and not moves_between_partitions(self.index):
            self.options = {**self.request.options, **dict.fromkeys(_UPDATE_PARTITION, "true")}
        return by_key

    def _late(self, window: pa.Table, result: WindowResult, moved: Mask) -> Mask:
        """Return which rows would move and lose against what is stored: they stay as they are.

        Raises:
            UnsupportedFeature: the table completes rows from stored ones.
        """
        late, rule = np.zeros(len(moved), bool), merge_rule(self.table_at.config)
        if not moved.any():
            return late
        if rule.needs_stored:
            raise UnsupportedFeature(
                f"{int(moved.sum())} rows would get another key or partition, and the table completes rows from stored ones, "
                "which lakefmt does not do on the way: keep their key and partition, or write them with Spark"
            )
        if has_order(rule.stored, self.plan.stored.names):
            rows = np.flatnonzero(moved)
            new = ordering_columns(result.updated, rule.stored, rows)
            late[rows] = ~incoming_wins(new, ordering_columns(window, rule.stored, result.updates[rows]))
        return late

    def _late_there(self, rows: pa.Table, keys: _Keys) -> Mask:
        """Return which rows that move would lose against a delete of their key, which the logs of the new place have.

        They would be nowhere then; so they stay where they are, as late rows do.
        """
        late, rule = np.zeros(rows.num_rows, bool), merge_rule(self.table_at.config)
        has_logs = self.table_at.config.table_type is TableType.MERGE_ON_READ
        if not rows.num_rows or not has_logs or not has_order(rule.stored, self.plan.stored.names):
            return late
        paths = [
            PartitionPath(path) for path in keys.paths.dictionary_encode().dictionary.to_pylist()
        ]  # partitions, not rows
        slices = self.table_at.slices(paths)
        reader = SliceReader(self.table_at, slices)
        for number in slices_with_deletes(self.table_at, slices):
            there = np.flatnonzero(to_mask(pc.equal(keys.paths, str(slices[number].partition))))
            deleted = reader.deletes(slices[number], keys.keys.take(from_numpy(there)))
            match = pc.index_in(keys.keys.take(from_numpy(there)), value_set=one_array(deleted.column(RECORD_KEY)))
            meeting = to_mask(match.is_valid())
            new = ordering_columns(rows, rule.stored, there[meeting])
            old = ordering_columns(deleted, rule.stored, match.drop_null().to_numpy().astype(np.int64))
            late[there[meeting]] |= ~incoming_wins(new, old)
        return late

    def _changes(self, found: _Found, inserted: pa.Table) -> _Changes:
        empty = self.plan.schema.empty_table()
        updated, left = pa.concat_tables([empty, *found.updated]), pa.concat_tables([empty, *found.left])
        arriving = pa.concat_tables([empty, *found.moved, inserted])
        updated_keys, left_keys = _Keys.joined(found.updated_keys), _Keys.joined(found.left_keys)
        operation = WriteOperation.UPSERT
        if self.spec.auto_keys:
            if updated.num_rows or left.num_rows:
                updated, left = updated_keys.beside(updated), left_keys.beside(left)
                arriving = _Keys.none(arriving.num_rows).beside(arriving)
            else:
                operation = WriteOperation.INSERT
        elif arriving.num_rows or updated.num_rows + left.num_rows > 1:
            updated, left = self._each_key_once(updated, updated_keys, left, left_keys, arriving)
        rows = pa.concat_tables([updated, left, arriving])
        deletes = np.zeros(rows.num_rows, bool)
        deletes[updated.num_rows : updated.num_rows + left.num_rows] = True
        keyless = arriving.num_rows if self.spec.auto_keys else 0
        return _Changes(rows, deletes, keyless, operation, self.read, self.read_keys, self.options, found.num_late)

    def _each_key_once(
        self, updated: pa.Table, updated_keys: _Keys, left: pa.Table, left_keys: _Keys, arriving: pa.Table
    ) -> tuple[pa.Table, pa.Table]:
        """Return the updated rows and those that leave, each key once and without those whose key an arriving row takes.

        Raises:
            DuplicateKey: an arriving row has the key of a row that stays, or of another arriving row.
        """
        if arriving.num_rows:
            build_new_partition_paths(self.spec, arriving)  # a value that cannot be one is refused
        arriving_keys = self._keys_of(arriving)
        counts = np.cumsum([len(updated_keys.keys), len(left_keys.keys)])
        codes = _Keys.joined([updated_keys, left_keys, arriving_keys]).codes(whole_table=self.index.is_global)
        of_updated, of_left, of_arriving = np.split(codes, counts)
        if len(np.unique(of_arriving)) < len(of_arriving) or np.isin(of_arriving, of_updated).any():
            raise DuplicateKey(
                f"rows that the merge inserts would have one record key: {_shown(arriving_keys, of_arriving)}"
            )
        if np.isin(of_left, of_updated).any():
            raise DuplicateKey(
                "the table holds a record key twice, and the merge updates one of its rows and deletes the other"
            )
        self._check_replaced(arriving, of_arriving, left, of_left)
        new = np.flatnonzero(~np.isin(of_arriving, of_left))
        if len(new) and not self._certainly_new:
            self._check_not_stored(arriving_keys.take(new))
        # Rows of one key that is stored several times are replaced, and deleted, together.
        last = _last_of_each(of_updated)
        leaving = _last_of_each(of_left)
        leaving = leaving[~np.isin(of_left[leaving], of_arriving)]
        return updated.take(from_numpy(last)), left.take(from_numpy(leaving))

    def _check_replaced(self, arriving: pa.Table, of_arriving: _Codes, left: pa.Table, of_left: _Codes) -> None:
        """Refuse arriving rows that the table's rule would not let stand in place of the row of their key that leaves.

        Raises:
            DuplicateKey: there is one.
        """
        order = np.argsort(of_left, kind="stable")
        position = np.minimum(np.searchsorted(of_left[order], of_arriving), max(len(of_left) - 1, 0))
        taking = np.flatnonzero(np.isin(of_arriving, of_left))
        rule = merge_rule(self.table_at.config)
        if not len(taking) or not (rule.needs_stored or has_order(rule.stored, self.plan.stored.names)):
            return
        there = order[position[taking]]
        new = ordering_columns(arriving, rule.stored, taking)
        if rule.needs_stored or not incoming_wins(new, ordering_columns(left, rule.stored, there)).all():
            raise DuplicateKey(
                "the merge inserts a record key that it deletes, and by the table's merge rule the new row would not replace "
                "the stored one: do it by two merges"
            )

    @property
    def _certainly_new(self) -> bool:
        """Whether a source row without a partner has a key that is stored nowhere, and no updated row gets another key."""
        keys = {".".join(ours) for ours, _ in self.plan.rule.equal}
        inserts_key = all(
            action.is_plain(self.spec.record_key_fields) for action in self.plan.actions[When.NOT_MATCHED]
        )
        return (
            self.plan.condition is None
            and keys == set(self.spec.record_key_fields)
            and inserts_key
            and not self.has_moved
        )

    def _check_not_stored(self, arriving: _Keys) -> None:
        table_at, index = self.table_at, self.index
        index_keys = IndexKeys(arriving.keys, arriving.paths.dictionary_encode())
        slices = table_at.slices(partitions_to_list(index, index_keys))
        located = find_stored(table_at, index, index_keys, slices, alive=True)
        if len(located.rows):
            raise DuplicateKey(
                f"the merge would insert a record key that is stored, in a row that its condition does not match: "
                f"{str(arriving.keys[int(located.rows[0])])!r:.200}"
            )


def _last_of_each(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of the last row of each code, ascending."""
    last = np.unique(codes[::-1], return_index=True)[1]
    return np.sort(len(codes) - 1 - last).astype(np.int64)


def _shown(keys: _Keys, codes: npt.NDArray[np.int64]) -> str:
    values, counts = np.unique(codes, return_counts=True)
    first = int(np.flatnonzero(codes == values[np.argmax(counts)])[0])
    return repr(str(keys.keys[first]))[:200]


def _nested(columns: Mapping[str, pa.ChunkedArray]) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Return columns by name, those of names with dots as structs: keys may be made of fields inside structs."""
    made: dict[str, pa.Array | pa.ChunkedArray] = {}
    inner: dict[str, dict[str, pa.ChunkedArray]] = {}
    for name, column in columns.items():
        first, _, rest = name.partition(".")
        if rest:
            inner.setdefault(first, {})[rest] = column
        else:
            made[name] = column
    for name, fields in inner.items():
        parts = {key: one_array(value) for key, value in _nested(fields).items()}
        made[name] = pa.StructArray.from_arrays(list(parts.values()), names=list(parts))
    return made
