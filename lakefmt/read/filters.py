"""Filters: Arrow expressions, tuples in disjunctive normal form, SQL text (pure).

All become one Arrow expression; that one prunes partitions, row groups and rows. SQL is parsed by a library and
translated term by term (:mod:`lakefmt.read.filter_sql`): nothing of it is ever evaluated as Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.errors import InvalidFilter
from lakefmt.read.filter_sql import parse_sql
from lakefmt.read.filter_terms import Column, compare, find_column, is_in, matches_like

__all__ = ["Filter", "filter_columns", "parse_filter"]

Filter: TypeAlias = "pc.Expression | str | Sequence[Any] | None"

_SPELLINGS = {"==": "=", "<>": "!="}
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


def parse_filter(given: Filter, schema: pa.Schema) -> pc.Expression | None:
    """Return a filter as an Arrow expression over `schema`.

    Nulls count as in SQL: no comparison with null is true, neither is ``not in``. Times without a zone are UTC; NaN is
    neither equal to, smaller nor larger than anything.

    Args:
        given: an expression; SQL text such as ``"city = 'sf' and fare > 10"``; or DNF: a list of ``(column, op,
            value)`` tuples that all must hold, or a list of such lists of which one must hold. Operators: ``= == != <>
            < <= > >=``, ``in``, ``not in``, ``like``, ``not like``, ``is``, ``is not`` (with None; ``= None`` means
            the same). A nested field is ``"address.zip"``.
        schema: the columns that may be named; literals take their types.

    Raises:
        InvalidFilter: it cannot be understood, or names a column that is not there.

    Example:
        >>> parse_filter([("a", ">", 1)], pa.schema([("a", pa.int64())]))
        <pyarrow.compute.Expression (a > 1)>
    """
    if given is None:
        return None
    if isinstance(given, pc.Expression):
        return _checked(given, schema)
    if isinstance(given, str):
        return _checked(parse_sql(given, schema), schema)
    return _checked(_parse_dnf(given, schema), schema)


def _checked(expression: pc.Expression, schema: pa.Schema) -> pc.Expression:
    import pyarrow.dataset as ds  # takes long to import, and who does not filter needs none

    try:
        # Binding finds unknown columns and impossible comparisons before any file is opened.
        ds.InMemoryDataset(schema.empty_table()).scanner(filter=expression).to_table()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError) as error:
        first = str(error).splitlines()[0]
        raise InvalidFilter(f"the filter does not fit the table's columns {schema.names}: {first}") from error
    return expression


def filter_columns(expression: pc.Expression, schema: pa.Schema) -> set[str]:
    """Return the columns that a filter looks at.

    Example:
        >>> sorted(filter_columns(pc.field("a") > pc.field("b"), pa.schema([(n, pa.int64()) for n in "abc"])))
        ['a', 'b']
    """
    import pyarrow.dataset as ds

    empty = schema.empty_table()
    named = set()
    for field in schema:
        # Arrow shows no tree of an expression; without a column that it names it cannot be bound.
        try:
            ds.InMemoryDataset(empty.drop_columns([field.name])).scanner(filter=expression)
        except pa.ArrowInvalid:
            named.add(field.name)
    return named


def _parse_dnf(given: Sequence[Any], schema: pa.Schema) -> pc.Expression:
    if isinstance(given, tuple) and len(given) == 3 and isinstance(given[0], str):
        return _term(given, schema)
    if not given or not isinstance(given, list | tuple):
        raise InvalidFilter(f"{given!r:.200} is not a filter: expected (column, op, value) tuples in a list")
    if all(isinstance(item, tuple) for item in given):
        return reduce(lambda a, b: a & b, [_term(item, schema) for item in given])
    groups = [item if isinstance(item, list) else [item] for item in given]
    if any(not isinstance(item, tuple) for group in groups for item in group) or not all(groups):
        raise InvalidFilter(f"{given!r:.200} is not a filter: expected lists of (column, op, value) tuples")
    return reduce(lambda a, b: a | b, [_parse_dnf(group, schema) for group in groups])


def _term(term: tuple[Any, ...], schema: pa.Schema) -> pc.Expression:
    if len(term) != 3 or not isinstance(term[0], str):
        raise InvalidFilter(f"{term!r:.200} is not a filter term: expected (column, op, value)")
    name, operator, value = term
    column = _column(name, schema)
    op = " ".join(str(operator).lower().split())
    op = _SPELLINGS.get(op, op)
    if value is None and op in ("is", "=", "is not", "!="):
        return column[0].is_null() if op in ("is", "=") else column[0].is_valid()
    if op in ("in", "not in"):
        if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
            raise InvalidFilter(f"{op} needs a list of values, not {value!r:.200}")
        return is_in(column, value, name, negated=op == "not in")
    if op in ("like", "not like"):
        found = matches_like(column, value, None, name, any_case=False)
        return ~found if op == "not like" else found
    if op not in _OPERATORS:
        raise InvalidFilter(
            f"unknown operator {operator!r:.40}: expected one of {', '.join(_OPERATORS)}, in, not in, like, not like, is"
        )
    return compare(column, op, value, name)


def _column(name: str, schema: pa.Schema) -> Column:
    found = find_column(schema, (name,)) or find_column(schema, tuple(name.split(".")))
    if found is None:
        raise InvalidFilter(f"the filter names the column {name!r}; the table has {schema.names}")
    return found
