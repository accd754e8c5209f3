"""Filters: Arrow expressions, tuples in disjunctive normal form, SQL text (pure).

All become one Arrow expression; that one prunes partitions, row groups and rows. SQL is parsed by a library and
translated term by term: nothing of it is ever evaluated as Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.errors import InvalidFilter

__all__ = ["Filter", "parse_filter"]

Filter = pc.Expression | str | Sequence[Any] | None

_COMPARISONS: dict[str, Callable[[Any, Any], pc.Expression]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def parse_filter(given: Filter, schema: pa.Schema) -> pc.Expression | None:
    """Return a filter as an Arrow expression over `schema`.

    Args:
        given: an expression; SQL text such as ``"city = 'sf' and fare > 10"``; or DNF: a list of ``(column, op,
            value)`` tuples that all must hold, or a list of such lists of which one must hold.
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
        return _checked(_parse_sql(given, schema), schema)
    return _checked(_parse_dnf(given, schema), schema)


def _checked(expression: pc.Expression, schema: pa.Schema) -> pc.Expression:
    try:
        # Binding finds unknown columns and impossible comparisons before any file is opened.
        import pyarrow.dataset as ds

        ds.InMemoryDataset(schema.empty_table()).scanner(filter=expression).to_table()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowKeyError) as error:
        first = str(error).splitlines()[0]
        raise InvalidFilter(f"the filter does not fit the table's columns {schema.names}: {first}") from error
    return expression


def _literal(value: object, name: str, schema: pa.Schema) -> pc.Expression:
    if name not in schema.names:
        raise InvalidFilter(f"the filter names the column {name!r}; the table has {schema.names}")
    kind = schema.field(name).type
    try:
        return pc.scalar(_scalar(value, kind))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError, InvalidOperation) as error:
        raise InvalidFilter(f"{value!r} cannot be compared with column {name!r} of type {kind}: {error}") from error


def _scalar(value: object, kind: pa.DataType) -> pa.Scalar:
    if isinstance(value, pa.Scalar):
        return value
    if isinstance(value, bool) or value is None:
        return pa.scalar(value)
    if isinstance(value, str) and not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return _from_text(value, kind)
    if isinstance(value, datetime | date) and (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        return pa.scalar(value).cast(kind)
    if isinstance(value, Decimal | float | int):
        return pa.scalar(value)  # wider than the column on purpose: 2.5 against an integer column must not round
    return pa.scalar(value, kind)


def _from_text(text: str, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_date(kind):
        return pa.scalar(date.fromisoformat(text), kind)
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(text)
        zone = kind.tz
        return (
            pa.scalar(moment.isoformat(), pa.string()).cast(pa.timestamp(kind.unit, zone))
            if moment.tzinfo
            else (pa.scalar(moment, pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind))
        )
    return pa.scalar(text).cast(kind)


def _parse_dnf(given: Sequence[Any], schema: pa.Schema) -> pc.Expression:
    if isinstance(given, tuple) and len(given) == 3 and isinstance(given[0], str):
        return _term(given, schema)
    if not given or not isinstance(given, list | tuple):
        raise InvalidFilter(f"{given!r} is not a filter: expected (column, op, value) tuples in a list")
    if all(isinstance(item, tuple) for item in given):
        return reduce(lambda a, b: a & b, [_term(item, schema) for item in given])
    return reduce(lambda a, b: a | b, [_parse_dnf(list(group), schema) for group in given])


def _term(term: tuple[Any, ...], schema: pa.Schema) -> pc.Expression:
    if len(term) != 3 or not isinstance(term[0], str):
        raise InvalidFilter(f"{term!r} is not a filter term: expected (column, op, value)")
    name, operator, value = term
    field = pc.field(name)
    op = str(operator).strip().lower()
    if op in ("in", "not in"):
        if isinstance(value, str) or not isinstance(value, list | tuple | set | frozenset):
            raise InvalidFilter(f"{op} needs a list of values, not {value!r}")
        return _is_in(name, list(value), schema, negated=op == "not in")
    if op in ("is", "is not") and value is None:
        return field.is_null() if op == "is" else field.is_valid()
    if op not in _COMPARISONS:
        raise InvalidFilter(f"unknown operator {operator!r}: expected one of {', '.join(_COMPARISONS)}, in, not in, is")
    if value is None and op in ("=", "==", "!="):
        return field.is_valid() if op == "!=" else field.is_null()
    return _COMPARISONS[op](field, _literal(value, name, schema))


def _is_in(name: str, values: list[object], schema: pa.Schema, *, negated: bool) -> pc.Expression:
    if name not in schema.names:
        raise InvalidFilter(f"the filter names the column {name!r}; the table has {schema.names}")
    kind = schema.field(name).type
    try:
        array = pa.array([_scalar(v, kind).cast(kind) for v in values if v is not None], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
        raise InvalidFilter(f"values of `in` do not fit column {name!r} of type {kind}: {error}") from error
    found = pc.field(name).isin(array)
    # As in SQL, a null is neither in a list nor not in it.
    return (~found & pc.field(name).is_valid()) if negated else found


def _parse_sql(text: str, schema: pa.Schema) -> pc.Expression:
    try:
        import sqlglot
        from sqlglot import errors, exp
    except ImportError:
        raise InvalidFilter(
            "filters as SQL text need the extra lakefmt[sql]; tuples and Arrow expressions need nothing"
        ) from None
    try:
        tree = sqlglot.parse_one(text, dialect="duckdb", into=exp.Condition)
    except (errors.ParseError, errors.TokenError, ValueError) as error:
        raise InvalidFilter(f"the filter {text!r} is not an SQL condition: {str(error).splitlines()[0]}") from error
    return _Translator(schema, text).condition(tree)


class _Translator:
    """SQL conditions, term by term; what is not listed here is refused."""

    def __init__(self, schema: pa.Schema, text: str) -> None:
        self._schema = schema
        self._text = text

    def _refuse(self, tree: Any) -> InvalidFilter:
        return InvalidFilter(
            f"the filter {self._text!r} holds {tree.sql()!r}, which is not supported: comparisons of a column with "
            "a literal, in, between, like, is null, and, or, not are"
        )

    def condition(self, tree: Any) -> pc.Expression:
        """Translate a condition."""
        from sqlglot import exp

        if isinstance(tree, exp.Paren):
            return self.condition(tree.this)
        if isinstance(tree, exp.And):
            return self.condition(tree.left) & self.condition(tree.right)
        if isinstance(tree, exp.Or):
            return self.condition(tree.left) | self.condition(tree.right)
        if isinstance(tree, exp.Not):
            return self._negation(tree.this)
        if isinstance(tree, exp.Is):
            return self._is(tree)
        if isinstance(tree, exp.In):
            return self._in(tree, negated=False)
        if isinstance(tree, exp.Between):
            name = self._column(tree.this)
            low, high = (_literal(self._value(tree.args[k]), name, self._schema) for k in ("low", "high"))
            return (pc.field(name) >= low) & (pc.field(name) <= high)
        if isinstance(tree, exp.Like):
            return pc.match_like(pc.field(self._column(tree.this)), str(self._value(tree.expression)))
        if isinstance(tree, exp.Column):
            return pc.field(self._column(tree))
        if isinstance(tree, exp.Boolean):
            return pc.scalar(bool(tree.this))
        return self._comparison(tree)

    def _negation(self, tree: Any) -> pc.Expression:
        from sqlglot import exp

        inner = tree.this if isinstance(tree, exp.Paren) else tree
        if isinstance(inner, exp.In):
            return self._in(inner, negated=True)
        return ~self.condition(inner)

    def _is(self, tree: Any) -> pc.Expression:
        from sqlglot import exp

        name = self._column(tree.this)
        if isinstance(tree.expression, exp.Null):
            return pc.field(name).is_null()
        if isinstance(tree.expression, exp.Boolean):
            wanted = pc.field(name) if tree.expression.this else ~pc.field(name)
            return wanted & pc.field(name).is_valid()
        raise self._refuse(tree)

    def _in(self, tree: Any, *, negated: bool) -> pc.Expression:
        values = [self._value(v) for v in tree.expressions]
        return _is_in(self._column(tree.this), values, self._schema, negated=negated)

    def _comparison(self, tree: Any) -> pc.Expression:
        from sqlglot import exp

        names = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
        operator = names.get(type(tree))
        if operator is None:
            raise self._refuse(tree)
        flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
        left, right = tree.left, tree.right
        if isinstance(left, exp.Column) and isinstance(right, exp.Column):
            return _COMPARISONS[operator](pc.field(self._column(left)), pc.field(self._column(right)))
        if not isinstance(left, exp.Column):
            left, right, operator = right, left, flipped.get(operator, operator)
        name = self._column(left)
        return _COMPARISONS[operator](pc.field(name), _literal(self._value(right), name, self._schema))

    def _column(self, tree: Any) -> str:
        from sqlglot import exp

        if not isinstance(tree, exp.Column) or tree.table:
            raise self._refuse(tree)
        name = tree.name
        if name in self._schema.names:
            return str(name)
        if not tree.this.quoted:
            same = [n for n in self._schema.names if n.lower() == name.lower()]
            if len(same) == 1:
                return str(same[0])
        raise InvalidFilter(f"the filter names the column {name!r}; the table has {self._schema.names}")

    def _value(self, tree: Any) -> object:
        from sqlglot import exp

        if isinstance(tree, exp.Neg):
            value = self._value(tree.this)
            if isinstance(value, int | Decimal):
                return -value
            raise self._refuse(tree)
        if isinstance(tree, exp.Literal):
            return tree.this if tree.is_string else _number(tree.this)
        if isinstance(tree, exp.Boolean):
            return bool(tree.this)
        if isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal) and tree.this.is_string:
            return tree.this.this  # date '2026-01-01', timestamp '…': the column's type decides
        if isinstance(tree, exp.Paren):
            return self._value(tree.this)
        raise self._refuse(tree)


def _number(text: str) -> int | float | Decimal:
    try:
        return int(text)
    except ValueError:
        return float(text) if "e" in text.lower() else Decimal(text)
