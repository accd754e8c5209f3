"""Rows of several file groups in one table, so that they are merged by one call. Pure.

A merge of a few rows costs its calls, not its rows. Keys are only unique within a file group, so each key is
preceded by the number of its group while the rows are together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.arrays import from_numpy
from lakefmt.config.merge_rule import MergeRule
from lakefmt.schema import reconcile
from lakefmt.values import RECORD_KEY

__all__ = ["GROUP_NUMBER", "can_be_together", "grouped_rows", "joined_in_schema", "split_groups", "stored_keys"]

#: A column of the rows while they are together: the number of the file group.
GROUP_NUMBER = "_lakefmt_group_number"
#: Characters of a group's number before each key.
_WIDTH = 4
_MOST_GROUPS = 16**_WIDTH


def can_be_together(rule: MergeRule, groups: int) -> bool:
    """Return whether a rule compares and replaces whole rows by their keys, and nothing else."""
    return rule.custom is None and rule.partial is None and not rule.is_own and 1 < groups <= _MOST_GROUPS


def joined_in_schema(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return tables one behind the other in the current `schema` (:func:`~lakefmt.schema.reconcile`)."""
    if all(table.schema.equals(tables[0].schema) for table in tables):
        return reconcile(pa.concat_tables(tables), schema)
    return pa.concat_tables([reconcile(table, schema) for table in tables])


def grouped_rows(rows: pa.Table, counts: Sequence[int]) -> pa.Table | None:
    """Return the rows of several file groups with numbers in front of their keys, and with the column of numbers.

    Args:
        rows: one group's rows behind the other's.
        counts: the number of rows of each group.

    Returns:
        None if a row has no key.

    Example:
        >>> grouped_rows(pa.table({RECORD_KEY: ["a", "a"]}), [1, 1]).to_pydict()
        {'_hoodie_record_key': ['0000a', '0001a'], '_lakefmt_group_number': [0, 1]}
    """
    index = rows.schema.get_field_index(RECORD_KEY)
    keys = rows.column(index)
    if keys.null_count:
        return None
    numbers = from_numpy(np.repeat(np.arange(len(counts), dtype=np.int32), counts))
    texts = pa.array([f"{number:0{_WIDTH}x}" for number in range(len(counts))], pa.string())
    marked = pc.binary_join_element_wise(texts.take(numbers), keys, pa.scalar("", pa.string()))
    return rows.set_column(index, rows.schema.field(index), marked).append_column(GROUP_NUMBER, numbers)


def split_groups(rows: pa.Table, groups: int) -> tuple[pa.Table, list[int]]:
    """Return merged rows ordered by group, their keys as they were, and the number of rows of each group.

    Example:
        >>> rows = pa.table({RECORD_KEY: ["0000a", "0001a", "0000b"], GROUP_NUMBER: [0, 1, 0]})
        >>> ordered, counts = split_groups(rows, 2)
        >>> ordered.to_pydict(), counts
        ({'_hoodie_record_key': ['a', 'b', 'a']}, [2, 1])
    """
    numbers = rows.column(GROUP_NUMBER).to_numpy()
    rows = rows.drop_columns([GROUP_NUMBER])
    if (np.diff(numbers) < 0).any():  # rows that are new in their group come last
        rows = rows.take(from_numpy(np.argsort(numbers, kind="stable")))
    index = rows.schema.get_field_index(RECORD_KEY)
    keys = stored_keys(rows.column(index))
    counts = np.bincount(numbers, minlength=groups)
    return rows.set_column(index, rows.schema.field(index), keys), list(map(int, counts))


def stored_keys(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return keys without the numbers of their groups."""
    return pc.utf8_slice_codeunits(keys, _WIDTH)
