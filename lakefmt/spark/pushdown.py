"""Spark's pushed filters as filters of lakefmt (pure).

A pushed filter only leaves out what cannot match: Spark evaluates every filter again. So a filter whose meaning differs is
not pushed: Spark takes NaN as the largest number, and as equal to itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

__all__ = ["PushedFilter", "translate_filters"]

#: A term of a filter of lakefmt: column, operator, value.
PushedFilter = tuple[str, str, Any]

_COMPARISONS: Final = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "In": "in",
    "IsNull": "is",
    "IsNotNull": "is not",
    "StringStartsWith": "like",
}
_OPPOSITES: Final = {"=": "!=", "in": "not in"}
#: Types whose values Spark and Arrow compare alike.
_COMPARED_ALIKE: Final = (
    pt.is_string,
    pt.is_integer,
    pt.is_date,
    pt.is_timestamp,
    pt.is_decimal,
    pt.is_boolean,
)


def translate_filters(filters: Iterable[Any], schema: pa.Schema) -> list[PushedFilter]:
    """Return the terms, all of which must hold, of Spark's filters; filters without a counterpart are left out.

    Args:
        filters: of ``pyspark.sql.datasource``; all must hold.
        schema: the columns as Spark sees them.

    Example:
        >>> from collections import namedtuple
        >>> EqualTo = namedtuple("EqualTo", "attribute value")
        >>> translate_filters([EqualTo(("city",), "sf"), EqualTo(("v",), 1.5)],
        ...     pa.schema([("city", pa.string()), ("v", pa.float64())]))
        [('city', '=', 'sf')]
    """
    terms = (_term(each, schema) for each in filters)
    return [term for term in terms if term is not None]


def _term(given: Any, schema: pa.Schema) -> PushedFilter | None:
    negated = type(given).__name__ == "Not"
    inner = given.child if negated else given
    operator = _COMPARISONS.get(type(inner).__name__)
    if negated and (type(inner).__name__ == "EqualNullSafe" or operator not in _OPPOSITES):
        return None
    path: tuple[str, ...] = inner.attribute if operator else ()
    if operator is None or len(path) != 1 or path[0] not in schema.names:
        return None
    if not any(is_kind(schema.field(path[0]).type) for is_kind in _COMPARED_ALIKE):
        return None
    value: Any = getattr(inner, "value", None)
    if operator == "like":
        return None if any(sign in value for sign in "%_\\") else (path[0], operator, f"{value}%")
    if operator == "in":
        value = list(value)
    elif value is None and operator not in ("is", "is not"):
        return (path[0], "is", None) if type(inner).__name__ == "EqualNullSafe" else None
    return path[0], _OPPOSITES[operator] if negated else operator, value
