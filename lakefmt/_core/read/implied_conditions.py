"""Ranges that follow from computed conditions (pure).

A range holds for every row for which its condition holds, so that partitions, statistics and row groups can be compared
with it.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.read.filter_terms import Condition, all_of, any_of, compare, find_column, matches_like
from lakefmt._core.read.sql_values import COMPARISONS, FLIPPED, literal_of

if TYPE_CHECKING:
    from sqlglot.expressions import Column as SqlColumn
    from sqlglot.expressions import Expr

__all__ = ["implied_condition"]

_OPPOSITE: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def implied_condition(tree: Expr, negated: bool, schema: pa.Schema) -> Condition | None:
    """Return a condition on a column that holds in all rows in which a tree, or its opposite, holds; None: none is known."""
    name = type(tree).__name__
    if name in COMPARISONS:
        operator, left, right = COMPARISONS[name], tree.this, tree.expression
        if literal_of(left) is not None:
            left, right, operator = right, left, FLIPPED.get(operator, operator)
        return _of_comparison(left, _OPPOSITE[operator] if negated else operator, right, schema)
    if negated:
        return None
    if name == "Between":
        ends = [(">=", tree.args["low"]), ("<=", tree.args["high"])]
        parts = [part for operator, end in ends if (part := _of_comparison(tree.this, operator, end, schema))]
        return all_of(parts) if parts else None
    if name == "In" and tree.expressions:
        each_of = [_of_comparison(tree.this, "=", item, schema) for item in tree.expressions]
        known = [condition for condition in each_of if condition is not None]
        return any_of(known) if len(known) == len(each_of) else None
    if name == "StartsWith":
        return _of_prefix(tree.this, literal_of(tree.expression), schema)
    return None


def _of_comparison(left: Expr, operator: str, right: Expr, schema: pa.Schema) -> Condition | None:
    name, given = type(left).__name__, right
    while type(given).__name__ in ("Cast", "Paren"):  # date '2026-01-01'
        given = given.this
    value = literal_of(given)
    if value is None or isinstance(value, bool):
        return None
    if name in ("Date", "TsOrDsToDate") or (name == "Cast" and _type_name(left.args["to"]) == "DATE"):
        return _of_span(left.this, operator, _day(value), schema)
    if name == "Year" or (name == "Extract" and str(left.this.name).upper() == "YEAR"):
        return _of_span(left.expression if name == "Extract" else left.this, operator, _year(value), schema)
    if operator == "=" and (name == "Left" or (name == "Substring" and literal_of(left.args["start"]) == 1)):
        return _of_prefix(left.this, value, schema)
    return None


def _type_name(tree: Expr) -> str:
    return str(getattr(tree.this, "name", tree.this)).upper()


def _day(value: object) -> tuple[date, date] | None:
    """Return a day and the next one."""
    try:
        day = date.fromisoformat(value) if isinstance(value, str) else None
        return None if day is None else (day, day + timedelta(days=1))
    except (ValueError, OverflowError):
        return None


def _year(value: object) -> tuple[date, date] | None:
    """Return the first days of a year and of the next one."""
    if not isinstance(value, int) or not 1 <= value < 9999:
        return None
    return date(value, 1, 1), date(value + 1, 1, 1)


def _of_span(tree: Expr, operator: str, span: tuple[date, date] | None, schema: pa.Schema) -> Condition | None:
    """Return the range of a time column whose day or year compares so with one."""
    column = _column(tree, schema)
    if column is None or span is None:
        return None
    expression, data_type, name = column
    if not (pt.is_timestamp(data_type) or pt.is_date(data_type)):
        return None
    first, after = (datetime(end.year, end.month, end.day) for end in span)

    def at(operator: str, moment: datetime) -> Condition:
        return compare((expression, data_type), operator, moment, name)

    if operator == "=":
        return all_of([at(">=", first), at("<", after)])
    if operator == "!=":
        return any_of([at("<", first), at(">=", after)])
    return at(*{"<": ("<", first), "<=": ("<", after), ">": (">=", after), ">=": (">=", first)}[operator])


def _of_prefix(tree: Expr, prefix: object, schema: pa.Schema) -> Condition | None:
    """Return that a text column begins with something."""
    column = _column(tree, schema)
    if column is None or not isinstance(prefix, str) or not prefix or not pt.is_string(column[1]):
        return None
    escaped = "".join(f"!{letter}" if letter in "%_!" else letter for letter in prefix)
    return matches_like(column[:2], f"{escaped}%", "!", column[2], any_case=False)


def _column(tree: Expr, schema: pa.Schema) -> tuple[pc.Expression, pa.DataType, str] | None:
    """Return the column that a tree names: expression, type and name."""
    if type(tree).__name__ != "Column":
        return None
    parts = cast("SqlColumn", tree).parts
    path = tuple(str(part.name) for part in parts)
    found = find_column(schema, path)
    if found is None and not parts[0].args.get("quoted"):
        same = [name for name in schema.names if name.lower() == path[0].lower()]
        found = find_column(schema, (same[0], *path[1:])) if len(same) == 1 else None
    return None if found is None else (*found, ".".join(path))
