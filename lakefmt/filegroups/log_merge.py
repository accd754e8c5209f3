"""A file slice with its logs merged (spec 7.9, 7.10). Pure, by columns.

The steps of one merge: deletes that take whatever is stored wipe out what came before them; the rows that are left are
combined to one per key, under the table's rule or, for partial updates, column by column; those meet the base file's rows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups.log_rows import LogRows
from lakefmt.filegroups.merge import Incoming, merge_into_base
from lakefmt.filegroups.merge_batch import combine_rows, order_ranks
from lakefmt.filegroups.merge_custom import fold_rows
from lakefmt.filegroups.merge_values import has_order, ordering_columns, to_mask
from lakefmt.schema import cast_rows
from lakefmt.values import IS_DELETED, RECORD_KEY
from lakefmt.values_merge import MergeRule
from lakefmt.values_mergers import CustomMerge

__all__ = ["merge_logs", "only_rows", "wipe", "with_delete_marks"]

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


def merge_logs(base: pa.Table, logs: LogRows, rule: MergeRule) -> pa.Table:
    """Return the rows of a file slice.

    Args:
        base: the base file's rows, or none; its columns are those of `logs`, in that order.
        logs: the rows of its logs.
        rule: how the table merges.

    Example:
        >>> from lakefmt.values import RECORD_KEY
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
        return _merge_called(base, logs, codes, encoded.dictionary, rule.custom)
    places = _places(base, logs, codes, encoded.dictionary)
    if logs.always.any():
        alive, gone = wipe(codes, logs.always, len(encoded.dictionary))
        if places is None:
            removed = encoded.dictionary.filter(pa.array(gone))
            keep = to_mask(pc.invert(pc.is_in(base.column(RECORD_KEY), value_set=removed)))
        else:
            keep = np.ones(base.num_rows, dtype=bool)
            keep[places[gone]] = False
            places = (np.cumsum(keep) - 1)[places]
        base = base.filter(pa.array(keep))
        logs, codes = only_rows(logs, alive), codes[alive]
    if not len(codes):
        return base
    if logs.is_partial:
        return _merge_partial(base, logs, codes, rule)
    rows = with_delete_marks(logs)
    combined = combine_rows(rows, codes, rule)
    table, deletes = (
        (logs.table, logs.deletes) if combined is None else (combined.table, logs.deletes[combined.winners])
    )
    if places is not None:
        places = places[codes if combined is None else codes[combined.winners]]
    incoming = Incoming(table.select(base.column_names), deletes)
    return merge_into_base(base, incoming, rule=rule, places=places).table


def _places(base: pa.Table, logs: LogRows, codes: Rows, keys: pa.Array) -> Rows | None:
    """Return the base file's row of each key that the logs have, None when their positions do not say it of all.

    Positions are believed where the base file has these keys there: a key that two rows of the logs place differently, or
    that is not where they say, is looked for as if there were none.
    """
    if logs.positions is None or not len(codes) or int(logs.positions.max()) >= base.num_rows:
        return None
    found = np.zeros(len(keys), np.int64)
    found[codes] = logs.positions
    if (found[codes] != logs.positions).any():
        return None
    stored = base.column(RECORD_KEY).take(pa.array(found))
    return found if to_mask(pc.fill_null(pc.equal(stored, keys), False)).all() else None


def wipe(codes: Rows, always: Mask, num_keys: int) -> tuple[Mask, Mask]:
    """Return the rows that no later unconditional delete of their key takes away, and the keys that it leaves without any.

    A row that comes after such a delete meets the base file's row as if there had been no delete: the logs are folded
    first, and what is left of them is a row with an ordering value. Hudi and hudi-rs do so, too (seen in real tables).
    """
    last = np.full(num_keys, -1, np.int64)
    at = np.flatnonzero(always)
    np.maximum.at(last, codes[at], at)
    alive = np.arange(len(codes)) > last[codes]
    gone = last >= 0
    gone[codes[alive]] = False
    return alive, gone


def only_rows(logs: LogRows, which: Mask) -> LogRows:
    """Return some of the rows."""
    table = logs.table.filter(pa.array(which))
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
    """Return the rows with every delete marked, so that combining sees those of delete blocks, too.

    A row that is no delete keeps the mark that is stored, null included.
    """
    marks = pa.array(logs.deletes)
    if IS_DELETED in logs.table.column_names:
        marks = pc.if_else(marks, True, logs.table.column(IS_DELETED))
        return logs.table.set_column(logs.table.schema.get_field_index(IS_DELETED), IS_DELETED, marks)
    return logs.table.append_column(IS_DELETED, marks)


def _merge_called(base: pa.Table, logs: LogRows, codes: Rows, keys: pa.Array, custom: CustomMerge) -> pa.Table:
    """Fold rows by the table's own function, from the base file's row on: nothing has to be associative."""
    if logs.is_partial:
        raise UnsupportedFeature(
            "logs with some of the columns only, which merge functions are not given: compact them"
        )
    found = pc.index_in(base.column(RECORD_KEY), value_set=keys).combine_chunks()
    stored = np.full(len(keys), -1, np.int64)
    stored[found.drop_null().to_numpy()] = np.flatnonzero(to_mask(pc.is_valid(found)))
    here = np.flatnonzero(stored >= 0)
    first = cast_rows(base.take(pa.array(stored[here])), logs.table.schema)
    chain = pa.concat_tables([first, logs.table.select(base.column_names)])
    deletes = np.concatenate([np.zeros(len(here), dtype=bool), logs.deletes])
    folded = fold_rows(custom, chain, np.concatenate([here, codes]), deletes)
    return merge_into_base(base, Incoming(folded.table, folded.deletes), rule=MergeRule()).table


# ------------------------------------------------------------------------------------------------------ partial updates


def _merge_partial(base: pa.Table, logs: LogRows, codes: Rows, rule: MergeRule) -> pa.Table:
    """Overlay columns: each comes from the newest row of its key that brings it, the base file's row being one of them."""
    keys = logs.table.column(RECORD_KEY).combine_chunks()
    distinct = keys.dictionary_encode().dictionary
    found = pc.index_in(base.column(RECORD_KEY), value_set=distinct).combine_chunks()
    stored = np.flatnonzero(to_mask(pc.is_valid(found)))
    here = base.take(pa.array(stored))
    numbers = pc.index_in(keys, value_set=distinct).to_numpy().astype(np.int64)
    chain = pa.concat_tables([cast_rows(here, logs.table.schema), logs.table.select(base.column_names)])
    group = np.concatenate([found.drop_null().to_numpy().astype(np.int64), numbers])
    deletes = np.concatenate([np.zeros(len(stored), dtype=bool), logs.deletes])
    brings = np.concatenate([np.full(len(stored), -1, np.int64), logs.brings])
    order = _newest_last(chain, group, rule, logs)
    resolved, dead = _overlaid(chain, order, group, deletes, brings, logs.columns)
    return merge_into_base(base, Incoming(resolved, dead), rule=MergeRule()).table


def _newest_last(chain: pa.Table, group: Rows, rule: MergeRule, logs: LogRows) -> Rows:
    """Return row numbers by key, within a key from the oldest to the newest under the rule."""
    names = frozenset(chain.column_names).intersection(*(names for names in logs.columns if names is not None))
    ranks = np.zeros(len(group), np.int64)
    if has_order(rule.stored, sorted(names)):
        ranks = order_ranks(ordering_columns(chain, rule.stored), len(group))
    return np.lexsort((np.arange(len(group)), ranks, group))


def _overlaid(
    chain: pa.Table,
    order: Rows,
    group: Rows,
    deletes: Mask,
    brings: Rows,
    kinds: tuple[frozenset[str] | None, ...],
) -> tuple[pa.Table, Mask]:
    """Return one row per key, and which of them are deletes."""
    sorted_group, places = group[order], np.arange(len(order))
    starts = np.flatnonzero(np.append(True, sorted_group[1:] != sorted_group[:-1]))
    ends = np.append(starts[1:], len(order)) - 1
    dead = deletes[order]
    # What came before a delete is not seen through it.
    begins = np.maximum.reduceat(np.where(dead, places + 1, -1), starts)
    visible = (places >= np.maximum(begins, starts)[np.cumsum(np.isin(places, starts)) - 1]) & ~dead
    kind = brings[order]
    columns = []
    for field in chain.schema:
        has = np.array([names is None or field.name in names for names in kinds] + [True])  # the last one: base rows
        source = np.maximum.reduceat(np.where(visible & has[kind], places, -1), starts)
        rows = pa.array(order[np.maximum(source, 0)], mask=source < 0)
        columns.append(chain.column(field.name).take(rows))
    keys = chain.column(RECORD_KEY).take(pa.array(order[ends]))
    at = chain.schema.get_field_index(RECORD_KEY)
    table = pa.table(columns, schema=chain.schema).set_column(at, chain.schema.field(at), keys)
    return table, dead[ends]
