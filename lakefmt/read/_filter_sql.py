"""Translate SQL conditions to filters. Pure.

sqlglot parses the text; the tree is translated term by term, and everything that is not listed here
is refused. *Not* is pushed down to the terms, which know their opposite under nulls
(:mod:`lakefmt.read._filter_terms`).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.errors import InvalidFilter
from lakefmt.read._filter_conditions import Condition, all_of, any_of, exactly
from lakefmt.read._filter_terms import Column, compare, compare_columns, find_column, is_in, matches_like
from lakefmt.read._filter_values import parse_number

__all__ = ["parse_sql"]

_MAX_TEXT: Final = 1_000_000
_OPERATORS: Final = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

#: Arguments that a tree node may have. A new argument of a later parser release must be refused,
#: not ignored.
_SIDES: Final = frozenset({"this", "expression"})
_ARGUMENTS: Final = {
    **dict.fromkeys(("And", "Or", "Is", "Escape", "Dot", *_OPERATORS), _SIDES),
    **dict.fromkeys(("Like", "ILike"), _SIDES | {"negate"}),
    **dict.fromkeys(("Paren", "Not", "Neg", "Boolean", "Null"), frozenset({"this"})),
    "In": frozenset({"this", "expressions"}),
    "Between": frozenset({"this", "low", "high"}),
    "Column": frozenset({"this", "table", "db", "catalog"}),
    "Identifier": frozenset({"this", "quoted"}),
    "Literal": frozenset({"this", "is_string"}),
    "Cast": frozenset({"this", "to"}),
    "TryCast": frozenset({"this", "to"}),
}


def parse_sql(text: str, schema: pa.Schema) -> Condition:
    """Return the condition of an SQL text.

    Raises:
        InvalidFilter: the text is not a condition, uses an unsupported feature, or names an unknown
            column.

    Example:
        >>> parse_sql("a > 1 and b is not null", pa.schema([("a", pa.int32()), ("b", pa.string())])).exact
        <pyarrow.compute.Expression ((a > 1) and is_valid(b))>
    """
    # Imported on first use: the import is slow and few programs filter by SQL.
    import sqlglot
    from sqlglot import errors, exp

    if len(text) > _MAX_TEXT:
        raise InvalidFilter(f"the filter has {len(text):,} characters; at most {_MAX_TEXT:,} are read")
    try:
        tree = sqlglot.parse_one(text, dialect="duckdb", into=exp.Condition)
        return _Translator(schema, text).condition(tree, negated=False)
    except (errors.ParseError, errors.TokenError) as error:
        first = str(error).splitlines()[0]
        raise InvalidFilter(f"the filter {text!r:.200} is not an SQL condition: {first}") from error
    except RecursionError:
        raise InvalidFilter(f"the filter {text!r:.200} is nested too deeply") from None


class _Translator:
    """Translates the tree of one text."""

    def __init__(self, schema: pa.Schema, text: str) -> None:
        self._schema = schema
        self._text = text

    def _refuse(self, tree: Any) -> InvalidFilter:
        return InvalidFilter(
            f"the filter {self._text!r:.200} holds {tree.sql()!r:.200}, which is not supported: comparisons of a column "
            "with a literal or a column, in, between, like, is null, and, or, not are"
        )

    def _check(self, tree: Any) -> None:
        """Raise for a node of an unknown kind or with an unknown argument."""
        allowed = _ARGUMENTS.get(type(tree).__name__)
        if allowed is None or any(value for name, value in tree.args.items() if name not in allowed):
            raise self._refuse(tree)

    def condition(self, tree: Any, *, negated: bool) -> Condition:
        """Translate a condition or its negation."""
        self._check(tree)
        translate = getattr(self, f"_{type(tree).__name__.lower()}", None)
        if translate is not None:
            condition: Condition = translate(tree, negated)
            return condition
        if type(tree).__name__ in _OPERATORS:
            return self._comparison(tree, negated)
        raise self._refuse(tree)

    # Each method is named after the node class that it translates.

    def _paren(self, tree: Any, negated: bool) -> Condition:
        return self.condition(tree.this, negated=negated)

    def _not(self, tree: Any, negated: bool) -> Condition:
        return self.condition(tree.this, negated=not negated)

    def _and(self, tree: Any, negated: bool) -> Condition:
        join = any_of if negated else all_of
        return join([self.condition(each, negated=negated) for each in self._operands(tree)])

    def _or(self, tree: Any, negated: bool) -> Condition:
        join = all_of if negated else any_of
        return join([self.condition(each, negated=negated) for each in self._operands(tree)])

    def _operands(self, tree: Any) -> list[Any]:
        """Return the operands of a chain of one operator, in order; a long chain is a deep tree."""
        operands, waiting = [], [tree]
        while waiting:
            each = waiting.pop()
            if type(each) is type(tree):
                self._check(each)
                waiting += [each.right, each.left]
            else:
                operands.append(each)
        return operands

    def _boolean(self, tree: Any, negated: bool) -> Condition:
        return exactly(pc.scalar(bool(tree.this) != negated))

    def _null(self, _tree: Any, _negated: bool) -> Condition:
        return exactly(pc.scalar(False))

    def _column(self, tree: Any, negated: bool) -> Condition:
        (field, kind), _ = self._find(tree)
        if not pt.is_boolean(kind):
            raise self._refuse(tree)
        return exactly(~field if negated else field)

    def _dot(self, tree: Any, negated: bool) -> Condition:
        return self._column(tree, negated)

    def _is(self, tree: Any, negated: bool) -> Condition:
        (field, kind), _ = self._find(tree.this)
        wanted = tree.expression
        if type(wanted).__name__ == "Null":
            return exactly(field.is_valid() if negated else field.is_null())
        if type(wanted).__name__ != "Boolean" or not pt.is_boolean(kind):
            raise self._refuse(tree)
        holds = (field if wanted.this else ~field) & field.is_valid()
        return exactly(~holds if negated else holds)

    def _in(self, tree: Any, negated: bool) -> Condition:
        if not tree.expressions:
            raise self._refuse(tree)
        column, name = self._find(tree.this)
        return is_in(column, [self._value(value) for value in tree.expressions], name, negated=negated)

    def _between(self, tree: Any, negated: bool) -> Condition:
        column, name = self._find(tree.this)
        low, high = (self._value(tree.args[end]) for end in ("low", "high"))
        join = any_of if negated else all_of
        return join([compare(column, op, end, name, negated=negated) for op, end in ((">=", low), ("<=", high))])

    def _like(self, tree: Any, negated: bool, escape: str | None = None, any_case: bool = False) -> Condition:
        column, name = self._find(tree.this)
        pattern = self._value(tree.expression)
        negated = negated != bool(tree.args.get("negate"))
        return matches_like(column, pattern, escape, name, any_case=any_case, negated=negated)

    def _ilike(self, tree: Any, negated: bool, escape: str | None = None) -> Condition:
        return self._like(tree, negated, escape, any_case=True)

    def _escape(self, tree: Any, negated: bool) -> Condition:
        kind = type(tree.this).__name__
        if kind not in ("Like", "ILike"):
            raise self._refuse(tree)
        self._check(tree.this)
        return self._like(tree.this, negated, str(self._value(tree.expression)), any_case=kind == "ILike")

    def _comparison(self, tree: Any, negated: bool) -> Condition:
        operator = _OPERATORS[type(tree).__name__]
        left, right = tree.left, tree.right
        if not _is_column(left):
            left, right, operator = right, left, _FLIPPED.get(operator, operator)
        column, name = self._find(left)
        if _is_column(right):
            other, _ = self._find(right)
            return compare_columns(column, operator, other, negated=negated)
        return compare(column, operator, self._value(right), name, negated=negated)

    def _find(self, tree: Any) -> tuple[Column, str]:
        """Return a column's expression and its name."""
        if not _is_column(tree):
            raise self._refuse(tree)
        parts = _parts(tree)
        for part in (tree, *parts):
            self._check(part)
        path = tuple(str(part.name) for part in parts)
        name = ".".join(path)
        column = find_column(self._schema, path)
        if column is None and not parts[0].quoted:
            same = [other for other in self._schema.names if other.lower() == path[0].lower()]
            if len(same) == 1:
                path = (same[0], *path[1:])
                column = find_column(self._schema, path)
        if column is None:
            raise InvalidFilter(f"the filter names the column {name!r}; the table has {self._schema.names}")
        return column, ".".join(path)

    def _value(self, tree: Any) -> object:
        self._check(tree)
        kind = type(tree).__name__
        if kind == "Literal":
            return str(tree.this) if tree.is_string else parse_number(tree.this)
        if kind == "Neg":
            value = self._value(tree.this)
            if isinstance(value, Decimal):
                return value.copy_negate()  # negation could round
            if isinstance(value, int) and not isinstance(value, bool):
                return -value
        if kind == "Boolean":
            return bool(tree.this)
        if kind == "Null":
            return None
        if kind == "Paren":
            return self._value(tree.this)
        if kind in ("Cast", "TryCast") and type(tree.this).__name__ == "Literal" and tree.this.is_string:
            return str(tree.this.this)  # date '2026-01-01', timestamp '…': the column's type decides
        raise self._refuse(tree)


def _is_column(tree: Any) -> bool:
    kind = type(tree).__name__
    return kind == "Column" or (
        kind == "Dot" and _is_column(tree.this) and type(tree.expression).__name__ == "Identifier"
    )


def _parts(tree: Any) -> list[Any]:
    """Return the names of a column and its nested fields, outermost first."""
    if type(tree).__name__ == "Dot":
        return [*_parts(tree.this), tree.expression]
    return list(tree.parts)
