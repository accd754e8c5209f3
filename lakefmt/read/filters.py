"""Parse filters: Arrow expressions, tuples in disjunctive normal form, SQL text. Pure.

All become one condition, which prunes partitions, row groups and rows. SQL is parsed by sqlglot and
translated term by term (:mod:`lakefmt.read._filter_sql`); no text is evaluated as Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.errors import InvalidFilter, LakefmtError
from lakefmt.read._filter_conditions import Condition, all_of, any_of, exactly, holds_floats

if TYPE_CHECKING:
    from lakefmt.read._filter_terms import Column

__all__ = ["Filter", "computing", "filter_columns", "is_filter", "keep_rows", "parse_filter"]

Filter: TypeAlias = "pc.Expression | str | Sequence[Any] | None"

_SPELLINGS = {"==": "=", "<>": "!="}
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_WORDS = ("in", "not in", "like", "not like", "is", "is not")
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


def parse_filter(given: Filter, schema: pa.Schema) -> Condition | None:
    """Return the condition of a filter over the columns of `schema`.

    Nulls behave as in SQL: no comparison with null is true, and neither is ``not in``. Times
    without a zone are UTC. NaN is not equal to, smaller or larger than anything, so the opposite of
    such a comparison is true for it.

    Args:
        given: an expression; SQL text such as ``"city = 'sf' and fare > 10"``; or DNF: a list of ``(column, op,
            value)`` tuples that all must hold, or a list of such lists of which one must hold. Operators: ``= == != <>
            < <= > >=``, ``in``, ``not in``, ``like``, ``not like``, ``is``, ``is not`` (with None; ``= None`` means
            the same). A nested field is ``"address.zip"``.
        schema: the available columns; literals take their types.

    Raises:
        InvalidFilter: the filter is not valid, or names an unknown column.

    Example:
        >>> parse_filter([("a", ">", 1)], pa.schema([("a", pa.int64())])).exact
        <pyarrow.compute.Expression (a > 1)>
    """
    if given is None:
        return None
    try:
        return _checked(_parsed(given, schema), schema)
    except LakefmtError:
        raise
    except UnicodeEncodeError as error:
        raise InvalidFilter(f"the filter holds text that cannot be encoded: {error}") from error
    except Exception as error:
        # Objects of any class may be passed, and their methods may raise anything.
        raise InvalidFilter(f"the filter cannot be understood: {type(error).__name__}: {_said(error)}") from error


def _said(error: Exception) -> str:
    try:
        return str(error)[:200]
    except Exception:  # noqa: BLE001 - an error of a class that is not known
        return "no message"


def _parsed(given: object, schema: pa.Schema) -> Condition:
    from lakefmt.read._filter_sql import parse_sql
    from lakefmt.read._filter_values import plain_value

    if isinstance(given, pc.Expression):
        return _of_expression(given, schema)
    if isinstance(given, str):
        return parse_sql(str(plain_value(given)), schema)
    return _parse_dnf(given, schema)


def _of_expression(given: pc.Expression, schema: pa.Schema) -> Condition:
    """Return the condition of an Arrow expression; over floats Arrow itself must not ask statistics."""
    from lakefmt.read.skipping.implied_conditions import implied_by

    if "FieldPath(" in _QUOTED.sub("", str(given)):
        raise InvalidFilter("the filter gives a column by its number, which differs between files: name the column")
    _bind(given, schema)
    implied = implied_by(given, schema)
    values = {} if implied.condition is None else implied.condition.values
    floats = filter_columns(given, pa.schema([field for field in schema if holds_floats(field.type)]), schema)
    pruning = given if not floats else None if implied.condition is None else implied.condition.pruning
    return Condition(given, pruning, implied.may_fail, values=values)


def _checked(condition: Condition, schema: pa.Schema) -> Condition:
    _bind(condition.exact, schema)
    return condition


def _bind(expression: pc.Expression, schema: pa.Schema) -> None:
    """Raise for unknown columns and impossible comparisons before any file is opened."""
    import pyarrow.dataset as ds  # slow import, needed only for filters

    try:
        ds.InMemoryDataset(schema.empty_table()).scanner(filter=expression, use_threads=False).to_table()
    except pa.ArrowException as error:
        first = str(error).splitlines()[0]
        raise InvalidFilter(f"the filter does not fit the table's columns {schema.names}: {first}") from error


def filter_columns(expression: pc.Expression, asked: pa.Schema, schema: pa.Schema | None = None) -> set[str]:
    """Return the columns of `asked` that a filter over `schema` (default: the same) uses.

    Example:
        >>> sorted(filter_columns(pc.field("a") > pc.field("b"), pa.schema([(n, pa.int64()) for n in "abc"])))
        ['a', 'b']
    """
    if not len(asked):
        return set()
    import pyarrow.dataset as ds

    empty = (asked if schema is None else schema).empty_table()

    def named_among(names: list[str]) -> set[str]:
        # Arrow does not expose an expression's columns; binding fails without a column that it
        # uses.
        try:
            ds.InMemoryDataset(empty.drop_columns(names)).scanner(filter=expression)
        except pa.ArrowException:
            half = len(names) // 2
            return {*names} if not half else named_among(names[:half]) | named_among(names[half:])
        return set()

    return named_among(asked.names)


@contextmanager
def computing() -> Iterator[None]:
    """Translate Arrow's errors while a filter is evaluated.

    Raises:
        InvalidFilter: the filter cannot be evaluated for some row.
    """
    try:
        yield
    except pa.ArrowException as error:
        first = str(error).splitlines()[0]
        raise InvalidFilter(f"the filter cannot be computed for every row: {first}") from error


def keep_rows(rows: pa.Table, condition: Condition | None) -> pa.Table:
    """Return the rows that satisfy a condition.

    Raises:
        InvalidFilter: the filter cannot be evaluated for some row.

    Example:
        >>> keep_rows(pa.table({"a": [1, 2]}), exactly(pc.field("a") > 1)).to_pylist()
        [{'a': 2}]
    """
    if condition is None:
        return rows
    with computing():
        return rows.filter(condition.exact)


def _parse_dnf(given: object, schema: pa.Schema) -> Condition:
    if isinstance(given, tuple) and len(given) == 3 and isinstance(given[0], str):
        return _term(given, schema)
    if not isinstance(given, list | tuple) or not given:
        raise InvalidFilter(f"{given!r:.200} is not a filter: expected (column, op, value) tuples in a list")
    if all(isinstance(item, tuple) for item in given):
        return all_of([_term(item, schema) for item in given])
    groups = [item if isinstance(item, list) else [item] for item in given]
    if any(not isinstance(item, tuple) for group in groups for item in group) or not all(groups):
        raise InvalidFilter(f"{given!r:.200} is not a filter: expected lists of (column, op, value) tuples")
    return any_of([_parse_dnf(group, schema) for group in groups])


def is_filter(value: object, levels: int = 2) -> bool:
    """Return whether a tuple, or lists of tuples in so many levels, have the form of a filter.

    Example:
        >>> is_filter(("a", "=", "x")), is_filter([("a", "is not", None)]), is_filter(("a", "b", "c"))
        (True, True, False)
    """
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[0], str) and isinstance(value[1], str):
        return _operator(value[1]) in (*_OPERATORS, *_WORDS)
    if not isinstance(value, list | tuple) or not value or not levels:
        return False
    return all(isinstance(part, list | tuple) and is_filter(part, levels - 1) for part in value)


def _operator(given: object) -> str:
    op = " ".join(str(given).lower().split())
    return _SPELLINGS.get(op, op)


def _term(term: tuple[Any, ...], schema: pa.Schema) -> Condition:
    from lakefmt.read._filter_terms import compare, is_in, matches_like
    from lakefmt.read._filter_values import list_of, plain_value

    if len(term) != 3 or not isinstance(term[0], str):
        raise InvalidFilter(f"{term!r:.200} is not a filter term: expected (column, op, value)")
    name, operator, value = term
    column = _column(name, schema)
    op = _operator(operator)
    if op in ("in", "not in"):
        return is_in(column, list_of(value), name, negated=op == "not in")
    if op in ("is", "=", "is not", "!=") and plain_value(value) is None:
        return exactly(column[0].is_null() if op in ("is", "=") else column[0].is_valid())
    if op in ("like", "not like"):
        return matches_like(column, value, None, name, any_case=False, negated=op == "not like")
    if op not in _OPERATORS:
        raise InvalidFilter(
            f"unknown operator {operator!r:.40}: expected one of {', '.join(_OPERATORS)}, in, not in, like, not like, is"
        )
    return compare(column, op, value, name)


def _column(name: str, schema: pa.Schema) -> Column:
    from lakefmt.read._filter_terms import find_column

    column = find_column(schema, (name,)) or find_column(schema, tuple(name.split(".")))
    if column is None:
        raise InvalidFilter(f"the filter names the column {name!r}; the table has {schema.names}")
    return column
