"""Merge the logs of a file slice into its base file, or with each other (docs/format.md, Reading a slice; Compaction). Pure.

Into the base file (docs/format.md, Partial updates): deletes without an event time discard the rows
before them; the remaining rows are combined to one per key, by the merge rule or, for partial
updates, column by column; the result is merged into the base file's rows.

With each other, for log compaction (:func:`merge_log_blocks`): the base file is not read. Deletes
stay deletes, and late rows compete only with rows of these logs. The result merges with the base
file and later logs exactly as the original logs do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy, rows_at
from lakefmt._core.config.merge_rule import CustomMerge, MergeRule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.log_reader import LogRows
from lakefmt._core.filegroups.merge import Incoming, fold_rows, grouped_rows, merge_into_base, split_groups
from lakefmt._core.filegroups.ordering import has_order, incoming_wins, ordering_columns, to_mask
from lakefmt._core.filegroups.precombine import Fold, combine_rows, order_ranks
from lakefmt._core.schema import cast_rows
from lakefmt._core.values import COMMIT_TIME, IS_DELETED, META_COLUMNS, RECORD_KEY
from lakefmt.errors import UnsupportedFeature

__all__ = [
    "MergedLogs",
    "check_can_merge",
    "count_late",
    "merge_log_blocks",
    "merge_logs",
    "merge_logs_of_slices",
    "only_rows",
    "with_delete_marks",
    "without_deleted",
]

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


def merge_logs(base: pa.Table, logs: LogRows, rule: MergeRule) -> pa.Table:
    """Return the rows of a file slice.

    Args:
        base: the base file's rows, possibly none; the columns of `logs` in the same order.
        logs: the rows of its logs.
        rule: the table's merge rule.

    Example:
        >>> from lakefmt._core.values import RECORD_KEY
        >>> base = pa.table({RECORD_KEY: ["a", "b"], "v": [1, 2]})
        >>> rows = pa.table({RECORD_KEY: ["b", "c", "a"], "v": [9, 3, None]})
        >>> flags = np.array([False, False, True])
        >>> logs = LogRows(rows, flags, flags, np.zeros(3, np.int64), (None,))
        >>> merge_logs(base, logs, MergeRule()).to_pylist()
        [{'_hoodie_record_key': 'b', 'v': 9}, {'_hoodie_record_key': 'c', 'v': 3}]
    """
    if not logs.table.num_rows:
        return base
    rule = rule.for_logs()
    if rule.deletes_win:
        logs = replace(logs, always=logs.always | logs.deletes)
    encoded = logs.table.column(RECORD_KEY).combine_chunks().dictionary_encode()
    codes: Rows = encoded.indices.to_numpy().astype(np.int64)
    if rule.custom is not None:
        return _merge_by_function(base, logs, codes, encoded.dictionary, rule.custom)
    stored_rows = _places_in_base(base, logs, codes, encoded.dictionary)
    if logs.always.any():
        alive, deleted_keys = without_deleted(codes, logs.always, len(encoded.dictionary))
        if stored_rows is None:
            removed = encoded.dictionary.filter(from_numpy(deleted_keys))
            keep = to_mask(pc.invert(pc.is_in(base.column(RECORD_KEY), value_set=removed)))
        else:
            keep = np.ones(base.num_rows, dtype=bool)
            keep[stored_rows[deleted_keys]] = False
            stored_rows = (np.cumsum(keep) - 1)[stored_rows]
        base = base.filter(from_numpy(keep))
        logs, codes = only_rows(logs, alive), codes[alive]
    if not len(codes):
        return base
    if logs.is_partial:
        return _merge_partial_rows(base, logs, codes, rule)
    rows = with_delete_marks(logs)
    combined = combine_rows(rows, codes, rule)
    table, deletes = logs.table, logs.deletes
    if combined is not None:
        # Without a partial rule the rows are those of the log, null delete markers included.
        table = rows_at(logs.table, combined.winners) if rule.partial is None else combined.table
        deletes = logs.deletes[combined.winners]
    if stored_rows is not None:
        stored_rows = stored_rows[codes if combined is None else codes[combined.winners]]
    incoming = Incoming(table.select(base.column_names), deletes)
    return merge_into_base(base, incoming, rule=rule, stored_rows=stored_rows).table


def count_late(base: pa.Table, logs: LogRows, rule: MergeRule) -> int | None:
    """Return how many rows and deletes of logs were late: an earlier row of their key had a larger ordering value.

    Args:
        base: the base file's rows, with their keys and ordering columns.
        logs: the rows of its logs.
        rule: the table's merge rule.

    Returns:
        None if a row that loses may change columns all the same, so that being late says nothing.

    Example:
        >>> from lakefmt._core.config.merge_rule import Order
        >>> base = pa.table({RECORD_KEY: ["a", "b"], "ts": [5, 5]})
        >>> rows = pa.table({RECORD_KEY: ["a", "b", "b", "c"], "ts": [4, 9, 7, 1]})
        >>> flags = np.zeros(4, dtype=bool)
        >>> logs = LogRows(rows, flags, flags, np.zeros(4, np.int64), (None,))
        >>> count_late(base, logs, MergeRule(Order(("ts",)), Order(("ts",))))
        2
    """
    rule = rule.for_logs()
    if rule.custom is not None or not logs.table.num_rows or not has_order(rule.stored, logs.table.column_names):
        return 0
    if rule.partial is not None or logs.is_partial:
        return None
    always = logs.always | logs.deletes if rule.deletes_win else logs.always
    keys = logs.table.column(RECORD_KEY).combine_chunks().dictionary_encode()
    codes: Rows = keys.indices.to_numpy().astype(np.int64)
    new = ordering_columns(logs.table, rule.stored)
    late = np.zeros(len(codes), dtype=bool)
    stored = np.full(len(keys.dictionary), -1, np.int64)
    match = pc.index_in(base.column(RECORD_KEY), value_set=keys.dictionary).combine_chunks()
    stored[match.drop_null().to_numpy()] = np.flatnonzero(to_mask(pc.is_valid(match)))
    met = np.flatnonzero(stored[codes] >= 0)
    if len(met):
        old = ordering_columns(base, rule.stored, stored[codes[met]])
        late[met] = ~incoming_wins([column.take(from_numpy(met)) for column in new], old)
    repeated = np.flatnonzero(np.bincount(codes)[codes] > 1)
    if len(repeated):
        ranks = order_ranks([column.take(from_numpy(repeated)) for column in new], len(repeated))
        late[repeated] |= _behind_earlier_rows(codes[repeated], ranks, always[repeated])
    return int((late & ~always).sum())


def _behind_earlier_rows(codes: Rows, ranks: Rows, always: Mask) -> Mask:
    """Return which rows are smaller than an earlier one of their key, since the key's last delete without an event time."""
    order = np.argsort(codes, kind="stable")
    follows = np.append(True, always[order][:-1])
    opens = np.append(True, np.diff(codes[order]) != 0) | follows
    # Groups ascend, so the running maximum restarts in each. Such a delete has no rank.
    height = np.cumsum(opens) * (int(ranks.max()) + 1) + np.where(always[order], 0, ranks[order])
    behind = np.empty(len(codes), dtype=bool)
    behind[order] = height < np.maximum.accumulate(height)
    return behind


def merge_logs_of_slices(
    base: pa.Table, base_rows: Sequence[int], logs: LogRows, log_rows: Sequence[int], rule: MergeRule
) -> pa.Table | None:
    """Return the rows of several file slices, one slice's behind the other's, as :func:`merge_logs` returns each one's.

    Args:
        base: the base files' rows one behind the other, as those of the logs.
        base_rows: the number of rows of each slice's base file.
        logs: the rows of the logs; none is partial.
        log_rows: the number of rows of each slice's logs.
        rule: the table's merge rule (:func:`~lakefmt._core.filegroups.merge.can_be_together`).

    Returns:
        None if a row has no key: then slices are merged one by one.
    """
    grouped, grouped_logs = grouped_rows(base, base_rows), grouped_rows(logs.table, log_rows)
    if grouped is None or grouped_logs is None:
        return None
    return split_groups(merge_logs(grouped, replace(logs, table=grouped_logs), rule), len(base_rows))[0]


def _places_in_base(base: pa.Table, logs: LogRows, codes: Rows, keys: pa.Array) -> Rows | None:
    """Return the base file's row of each log key; None if the positions do not give it for all keys.

    Positions count if the base file has these keys there. If two rows of a key have different
    positions, or a key is elsewhere, all keys are looked up.
    """
    if logs.positions is None or not len(codes) or int(logs.positions.max()) >= base.num_rows:
        return None
    positions = np.zeros(len(keys), np.int64)
    positions[codes] = logs.positions
    if (positions[codes] != logs.positions).any():
        return None
    stored = base.column(RECORD_KEY).take(from_numpy(positions))
    return positions if to_mask(pc.fill_null(pc.equal(stored, keys), False)).all() else None


def without_deleted(codes: Rows, always: Mask, num_keys: int) -> tuple[Mask, Mask]:
    """Return the rows after the last delete without an event time of their key, and the keys that have none left.

    A row after such a delete merges with the base file's row as if there had been no delete,
    because the logs are folded first. Hudi and hudi-rs do the same.
    """
    last = np.full(num_keys, -1, np.int64)
    delete_rows = np.flatnonzero(always)
    np.maximum.at(last, codes[delete_rows], delete_rows)
    alive = np.arange(len(codes)) > last[codes]
    deleted_keys = last >= 0
    deleted_keys[codes[alive]] = False
    return alive, deleted_keys


def only_rows(logs: LogRows, which: Mask) -> LogRows:
    """Return some of the rows."""
    table = logs.table.filter(from_numpy(which))
    return replace(
        logs,
        table=table,
        deletes=logs.deletes[which],
        always=logs.always[which],
        brings=logs.brings[which],
        positions=None if logs.positions is None else logs.positions[which],
        of_deletes=None if logs.of_deletes is None else logs.of_deletes[which],
    )


def with_delete_marks(logs: LogRows) -> pa.Table:
    """Return the rows with all deletes marked, so that combining also sees those of delete blocks.

    Other rows keep their stored marker, null included.
    """
    marks = from_numpy(logs.deletes)
    if IS_DELETED in logs.table.column_names:
        marks = pc.if_else(marks, True, logs.table.column(IS_DELETED))
        return logs.table.set_column(logs.table.schema.get_field_index(IS_DELETED), IS_DELETED, marks)
    return logs.table.append_column(IS_DELETED, marks)


def _merge_by_function(base: pa.Table, logs: LogRows, codes: Rows, keys: pa.Array, custom: CustomMerge) -> pa.Table:
    """Fold rows with the registered merge function, starting from the base file's row; it need not be associative."""
    if logs.is_partial:
        raise UnsupportedFeature(
            "logs with some of the columns only, which merge functions are not given: compact them"
        )
    match_index = pc.index_in(base.column(RECORD_KEY), value_set=keys).combine_chunks()
    stored = np.full(len(keys), -1, np.int64)
    stored[match_index.drop_null().to_numpy()] = np.flatnonzero(to_mask(pc.is_valid(match_index)))
    stored_keys = np.flatnonzero(stored >= 0)
    first = cast_rows(base.take(from_numpy(stored[stored_keys])), logs.table.schema)
    chain = pa.concat_tables([first, logs.table.select(base.column_names)])
    deletes = np.concatenate([np.zeros(len(stored_keys), dtype=bool), logs.deletes])
    folded = fold_rows(custom, chain, np.concatenate([stored_keys, codes]), deletes)
    return merge_into_base(base, Incoming(folded.table, folded.deletes), rule=MergeRule()).table


# ------------------------------------------------------------------------------------------------------ partial updates


def _merge_partial_rows(base: pa.Table, logs: LogRows, codes: Rows, rule: MergeRule) -> pa.Table:
    """Fold partial rows and merge the result into the base file's rows.

    As in Hudi, rows are folded in the order of arrival: the columns of the newer row replace those
    of the older one, and the larger event time stays. So a row older than the newest one so far
    changes no column, even if it is newer than the column's value. The result merges with the base
    file as one row with one event time.
    """
    names = frozenset(base.column_names).intersection(*(names for names in logs.columns if names is not None))
    compared = has_order(rule.stored, sorted(names))
    ordering = ordering_columns(logs.table, rule.stored) if compared else []
    fold = Fold(codes, order_ranks(ordering, len(codes)), logs.deletes)
    deleted, value_rows = logs.deletes[fold.winners], _rows_giving_values(fold, logs, [*base.column_names, *logs.known])
    # A deleted key has no values: its delete has its own event time.
    sources = {name: np.where(deleted, fold.winners, value_rows[name]) for name in base.column_names}
    # The newest row that gives a value defines the meta columns.
    changed = np.maximum.reduce([fold.winners, *(value_rows[name] for name in logs.known)])
    sources |= {name: changed for name in META_COLUMNS if name in sources}
    columns = [
        logs.table.column(name).take(pa.array(np.maximum(rows, 0), mask=rows < 0)) for name, rows in sources.items()
    ]
    schema = pa.schema([logs.table.schema.field(name) for name in sources])
    incoming = Incoming(
        pa.table(columns, schema=schema), deleted, lacks={name: rows < 0 for name, rows in sources.items()}
    )
    plain = MergeRule(rule.stored, rule.stored) if compared else MergeRule()
    return merge_into_base(base, incoming, rule=plain).table


def _rows_giving_values(fold: Fold, logs: LogRows, names: Sequence[str]) -> dict[str, Rows]:
    """Return for each column the rows that give its values; computed once for columns of the same blocks."""
    kinds = {name: tuple(some is None or name in some for some in logs.columns) for name in names}
    by_kind = {kind: fold.sources(np.array(kind)[logs.brings]) for kind in set(kinds.values())}
    return {name: by_kind[kind] for name, kind in kinds.items()}


# ------------------------------------------------------------------------------------------------- logs with each other


@dataclass(frozen=True, slots=True, eq=False)
class MergedLogs:
    """The merged content of logs, one record per key.

    Attributes:
        data: rows, including those that mark themselves deleted.
        deletes: keys, partition paths and, if present, ordering values of delete blocks.
    """

    data: pa.Table
    deletes: pa.Table


def check_can_merge(rule: MergeRule) -> None:
    """Raise if the logs cannot be merged without the base file.

    Raises:
        UnsupportedFeature: the table has a partial update mode or a registered merge function.

    Example:
        >>> check_can_merge(MergeRule())
    """
    if rule != MergeRule(rule.stored, rule.batch, delete=rule.delete):
        raise UnsupportedFeature(
            "the table's rows are completed from stored ones, or merged by a rule of its own: its logs say less without "
            "the base file, so they are not folded; compact the table instead"
        )


def merge_log_blocks(logs: LogRows, rule: MergeRule) -> MergedLogs:
    """Return the merged rows and deletes of logs.

    Args:
        logs: the rows with all columns of the table.
        rule: the table's merge rule.

    Raises:
        UnsupportedFeature: some rows lack columns, or see :func:`check_can_merge`.

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
    alive, deleted_keys = without_deleted(codes, logs.always, len(encoded.dictionary))
    # Deletes without an event time that no later row of the key follows are kept.
    last = np.full(len(encoded.dictionary), -1, np.int64)
    np.maximum.at(last, codes, np.where(logs.always, np.arange(len(codes)), -1))
    removed = logs.table.take(from_numpy(np.sort(last[deleted_keys])))
    remaining, codes = only_rows(logs, alive), codes[alive]
    table, from_deletes = remaining.table, remaining.of_deletes
    if from_deletes is None:
        # Rows of delete blocks have no commit time.
        from_deletes = np.asarray(table.column(COMMIT_TIME).is_null()) & remaining.deletes
    if len(codes):
        by_order = MergeRule(rule.stored, rule.stored, delete=rule.delete)
        combined = combine_rows(with_delete_marks(remaining), codes, by_order)
        if combined is not None:
            table, from_deletes = table.take(from_numpy(combined.winners)), from_deletes[combined.winners]
    explicit_deletes = table.filter(from_numpy(from_deletes))
    return MergedLogs(table.filter(from_numpy(~from_deletes)), pa.concat_tables([explicit_deletes, removed]))
