"""A file slice with its logs merged (spec 7.9, 7.10). Pure, by columns.

The steps of one merge: deletes that take whatever is stored wipe out what came before them; the rows that are left are
combined to one per key, under the table's rule or, for partial updates, column by column; those meet the base file's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.config.merge_rule import MergeRule
from lakefmt.config.mergers import CustomMerge
from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups.logs.reader import LogRows
from lakefmt.filegroups.merge._custom import fold_rows
from lakefmt.filegroups.merge.base import Incoming, merge_into_base
from lakefmt.filegroups.merge.precombine import Fold, combine_rows, order_ranks
from lakefmt.filegroups.ordering import has_order, ordering_columns, to_mask
from lakefmt.schema import cast_rows
from lakefmt.values import IS_DELETED, META_COLUMNS, RECORD_KEY

__all__ = ["merge_logs", "only_rows", "with_delete_marks", "without_deleted"]

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
        alive, gone = without_deleted(codes, logs.always, len(encoded.dictionary))
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
    table, deletes = logs.table, logs.deletes
    if combined is not None:
        # Rows that nothing completes are those of the log, a mark that is null among them.
        table = logs.table.take(pa.array(combined.winners)) if rule.partial is None else combined.table
        deletes = logs.deletes[combined.winners]
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


def without_deleted(codes: Rows, always: Mask, num_keys: int) -> tuple[Mask, Mask]:
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
    """Fold rows that bring some of the columns, and overlay the base file's rows with what comes out.

    Two rows become one in the order of arrival, as in Hudi: the columns of the newer one over those of the older one, with
    the larger event time. So a column keeps its value when a row comes that is older than the newest row so far, even if
    that row is newer than the column's value. What comes out meets the base file's row as one row with one event time.
    """
    names = frozenset(base.column_names).intersection(*(names for names in logs.columns if names is not None))
    compared = has_order(rule.stored, sorted(names))
    ordering = ordering_columns(logs.table, rule.stored) if compared else []
    fold = Fold(codes, order_ranks(ordering, len(codes)), logs.deletes)
    dead, given = logs.deletes[fold.winners], _sources(fold, logs, [*base.column_names, *logs.known])
    # A key that is gone has no values: its delete is met with the event time that it has.
    found = {name: np.where(dead, fold.winners, given[name]) for name in base.column_names}
    # The row was changed last by the newest of the rows that give it a value: its meta columns say so.
    changed = np.maximum.reduce([fold.winners, *(given[name] for name in logs.known)])
    found |= {name: changed for name in META_COLUMNS if name in found}
    columns = [
        logs.table.column(name).take(pa.array(np.maximum(rows, 0), mask=rows < 0)) for name, rows in found.items()
    ]
    schema = pa.schema([logs.table.schema.field(name) for name in found])
    incoming = Incoming(pa.table(columns, schema=schema), dead, lacks={name: rows < 0 for name, rows in found.items()})
    plain = MergeRule(rule.stored, rule.stored) if compared else MergeRule()
    return merge_into_base(base, incoming, rule=plain).table


def _sources(fold: Fold, logs: LogRows, names: Sequence[str]) -> dict[str, Rows]:
    """Return for each column which rows give its values; columns that the same blocks bring share the answer."""
    kinds = {name: tuple(some is None or name in some for some in logs.columns) for name in names}
    found = {kind: fold.sources(np.array(kind)[logs.brings]) for kind in set(kinds.values())}
    return {name: found[kind] for name, kind in kinds.items()}
