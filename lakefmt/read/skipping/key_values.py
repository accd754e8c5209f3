"""Which record keys, or values of an indexed column, the rows of a condition have. Pure."""

from __future__ import annotations

from math import prod

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.keys import KeySpec, build_record_keys
from lakefmt.read._filter_conditions import Condition
from lakefmt.schema.types import field_at
from lakefmt.values import RECORD_KEY

__all__ = ["indexed_values", "record_keys_of_condition"]

#: More keys are not looked up: a scan costs less.
_MOST_KEYS = 10_000


def record_keys_of_condition(condition: Condition, spec: KeySpec, schema: pa.Schema) -> pa.Array | None:
    """Return the record keys of which every selected row has one; None: any key may be selected.

    Parameters:
        condition: the filter.
        spec: how the table makes keys.
        schema: the table's columns.

    Example:
        >>> from lakefmt.keys import plan_key_spec
        >>> from lakefmt.read.filters import parse_filter
        >>> schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
        >>> condition = parse_filter("a in (1, 2) and b = 'x'", schema)
        >>> record_keys_of_condition(condition, plan_key_spec(["a", "b"], None), schema).to_pylist()
        ['a:1,b:x', 'a:2,b:x']
    """
    if RECORD_KEY in condition.values:
        return condition.values[RECORD_KEY].cast(pa.string())
    names = spec.record_key_fields
    if not names or spec.unsupported or spec.prefixed is None:
        return None
    # Engines differ in the texts of dates.
    columns = [
        None if values is None or pt.is_date(values.type) else values
        for values in (_lookable(condition, name, schema) for name in names)
    ]
    named = [column for column in columns if column is not None]
    if len(named) < len(names) or not 0 < prod(map(len, named)) <= _MOST_KEYS:
        return None
    places = np.indices([len(column) for column in named]).reshape(len(named), -1)
    rows = [column.take(pa.array(numbers)) for column, numbers in zip(named, places, strict=True)]
    return build_record_keys(spec, pa.table(rows, names=list(names)))


def indexed_values(condition: Condition, column: str, schema: pa.Schema) -> pa.Array | None:
    """Return the values of an indexed column of which every selected row has one; None: any value may be selected.

    Parameters:
        condition: the filter.
        column: its name, with dots when it is nested.
        schema: the table's columns.
    """
    values = _lookable(condition, column, schema)
    return values if values is not None and len(values) <= _MOST_KEYS else None


def _lookable(condition: Condition, name: str, schema: pa.Schema) -> pa.Array | None:
    """Return the values that a condition names of a column whose values have one text each."""
    values, field = condition.values.get(name), field_at(schema, name)
    if values is None or field is None or not values.type.equals(field.type):
        return None
    if pt.is_string(field.type) or pt.is_large_string(field.type):
        # An empty text has another form in some keys.
        return None if pc.index(values, "").as_py() >= 0 else values.cast(pa.string())
    return values if pt.is_int32(field.type) or pt.is_int64(field.type) or pt.is_date32(field.type) else None
