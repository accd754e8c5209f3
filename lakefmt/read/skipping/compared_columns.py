"""The columns that a filter compares and of which statistics may tell. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.config.table_config import TableConfig
from lakefmt.read._filter_conditions import Condition
from lakefmt.read.filters import filter_columns
from lakefmt.schema.statistic_names import StatisticNames
from lakefmt.values import COMMIT_TIME, META_COLUMNS, RECORD_KEY

__all__ = ["Leaf", "statistic_columns"]


class Leaf(NamedTuple):
    """A column, or a nested field, that may have statistics.

    Attributes:
        altered: the names of columns at any time; None: this one's statistics are under its name in every file.
    """

    name: str
    expression: pc.Expression
    kind: pa.DataType
    altered: StatisticNames | None = None


def statistic_columns(
    condition: Condition | None, schema: pa.Schema, config: TableConfig, *, merged: bool
) -> list[Leaf]:
    """Return the columns and nested fields that a condition compares and that may have statistics.

    Parameters:
        condition: of the rows that are read.
        schema: the columns that it may name.
        config: the table's properties.
        merged: some slices have logs, whose rows do not say themselves when they were written.
    """
    if condition is None or condition.pruning is None:
        return []
    used = filter_columns(condition.pruning, schema)
    meta = {RECORD_KEY} if merged else {RECORD_KEY, COMMIT_TIME}
    left_out = {*META_COLUMNS} - (meta if config.populate_meta_fields else set())
    fields = [field for field in schema if field.name in used - left_out and "." not in field.name]
    return [leaf for field in fields for leaf in _leaves((field.name,), field.type)]


def _leaves(path: tuple[str, ...], kind: pa.DataType) -> Iterator[Leaf]:
    if pt.is_struct(kind):
        for number in range(kind.num_fields):
            if "." not in kind.field(number).name:
                yield from _leaves((*path, kind.field(number).name), kind.field(number).type)
    elif not (pt.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)):
        yield Leaf(".".join(path), pc.field(path[0]) if len(path) == 1 else pc.field(*path), kind)
