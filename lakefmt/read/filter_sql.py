"""SQL conditions as filters. Pure.

The text is parsed by a library; the tree is translated term by term, and what is not listed here is refused. *Not* is
carried down to the terms, which know what their opposite is with nulls (:mod:`lakefmt.read.filter_terms`).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.errors import InvalidFilter
from lakefmt.read.filter_terms import OPPOSITE, Column, compare, compare_columns, find_column, is_in, matches_like

__all__ = ["parse_sql"]

_MAX_TEXT: Final = 1_000_000
_OPERATORS: Final = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

#: What a part of a tree may say. A release of the parser that says more in a new argument must be refused, not ignored.
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


def parse_sql(text: str, schema: pa.Schema) -> pc.Expression:
    """Return the Arrow expression of an SQL condition.

    Raises:
        InvalidFilter: it is no condition, holds something that is not supported, or names an unknown column.

    Example:
        >>> parse_sql("a > 1 and b is not null", pa.schema([("a", pa.int32()), ("b", pa.string())]))
        <pyarrow.compute.Expression ((a > 1) and is_valid(b))>
    """
    try:
        import sqlglot
        from sqlglot import errors, exp
    except ImportError:
        raise InvalidFilter(
            "filters as SQL text need the extra lakefmt[sql]; tuples and Arrow expressions need nothing"
        ) from None
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
    """Translates the trees of one text."""

    def __init__(self, schema: pa.Schema, text: str) -> None:
        self._schema = schema
        self._text = text

    def _refuse(self, tree: Any) -> InvalidFilter:
        return InvalidFilter(
            f"the filter {self._text!r:.200} holds {tree.sql()!r:.200}, which is not supported: comparisons of a column "
            "with a literal or a column, in, between, like, is null, and, or, not are"
        )

    def _check(self, tree: Any) -> None:
        """Refuse a part of a kind that is not known, or that says something which is not."""
        known = _ARGUMENTS.get(type(tree).__name__)
        if known is None or any(value for name, value in tree.args.items() if name not in known):
            raise self._refuse(tree)

    def condition(self, tree: Any, *, negated: bool) -> pc.Expression:
        """Translate a condition, or its opposite."""
        self._check(tree)
        translate = getattr(self, f"_{type(tree).__name__.lower()}", None)
        if translate is not None:
            found: pc.Expression = translate(tree, negated)
            return found
        if type(tree).__name__ in _OPERATORS:
            return self._comparison(tree, negated)
        raise self._refuse(tree)

    # Each is named like the kind of tree that it translates.

    def _paren(self, tree: Any, negated: bool) -> pc.Expression:
        return self.condition(tree.this, negated=negated)

    def _not(self, tree: Any, negated: bool) -> pc.Expression:
        return self.condition(tree.this, negated=not negated)

    def _and(self, tree: Any, negated: bool) -> pc.Expression:
        left, right = (self.condition(side, negated=negated) for side in (tree.left, tree.right))
        return left | right if negated else left & right

    def _or(self, tree: Any, negated: bool) -> pc.Expression:
        left, right = (self.condition(side, negated=negated) for side in (tree.left, tree.right))
        return left & right if negated else left | right

    def _boolean(self, tree: Any, negated: bool) -> pc.Expression:
        return pc.scalar(bool(tree.this) != negated)

    def _null(self, _tree: Any, _negated: bool) -> pc.Expression:
        return pc.scalar(False)

    def _column(self, tree: Any, negated: bool) -> pc.Expression:
        (field, kind), _ = self._find(tree)
        if not pt.is_boolean(kind):
            raise self._refuse(tree)
        return ~field if negated else field

    def _dot(self, tree: Any, negated: bool) -> pc.Expression:
        return self._column(tree, negated)

    def _is(self, tree: Any, negated: bool) -> pc.Expression:
        (field, kind), _ = self._find(tree.this)
        wanted = tree.expression
        if type(wanted).__name__ == "Null":
            return field.is_valid() if negated else field.is_null()
        if type(wanted).__name__ != "Boolean" or not pt.is_boolean(kind):
            raise self._refuse(tree)
        holds = (field if wanted.this else ~field) & field.is_valid()
        return ~holds if negated else holds

    def _in(self, tree: Any, negated: bool) -> pc.Expression:
        if not tree.expressions:
            raise self._refuse(tree)
        column, name = self._find(tree.this)
        return is_in(column, [self._value(value) for value in tree.expressions], name, negated=negated)

    def _between(self, tree: Any, negated: bool) -> pc.Expression:
        column, name = self._find(tree.this)
        low, high = (self._value(tree.args[end]) for end in ("low", "high"))
        if negated:
            return self._negatable(column, ">=", low, name, True) | self._negatable(column, "<=", high, name, True)
        return compare(column, ">=", low, name) & compare(column, "<=", high, name)

    def _like(self, tree: Any, negated: bool, escape: str | None = None, any_case: bool = False) -> pc.Expression:
        column, name = self._find(tree.this)
        pattern = self._value(tree.expression)
        negated = negated != bool(tree.args.get("negate"))
        found = matches_like(column, pattern, escape, name, any_case=any_case)
        return ~found if negated and pattern is not None else found

    def _ilike(self, tree: Any, negated: bool, escape: str | None = None) -> pc.Expression:
        return self._like(tree, negated, escape, any_case=True)

    def _escape(self, tree: Any, negated: bool) -> pc.Expression:
        kind = type(tree.this).__name__
        if kind not in ("Like", "ILike"):
            raise self._refuse(tree)
        self._check(tree.this)
        return self._like(tree.this, negated, str(self._value(tree.expression)), any_case=kind == "ILike")

    def _comparison(self, tree: Any, negated: bool) -> pc.Expression:
        operator = _OPERATORS[type(tree).__name__]
        left, right = tree.left, tree.right
        if not _is_column(left):
            left, right, operator = right, left, _FLIPPED.get(operator, operator)
        column, name = self._find(left)
        if _is_column(right):
            other, _ = self._find(right)
            # The opposite of `<` is not `>=` where NaN can be.
            if negated and pt.is_floating(column[1]):
                return ~compare_columns(column, operator, other)
            return compare_columns(column, OPPOSITE[operator] if negated else operator, other)
        return self._negatable(column, operator, self._value(right), name, negated)

    @staticmethod
    def _negatable(column: Column, operator: str, value: object, name: str, negated: bool) -> pc.Expression:
        if negated and pt.is_floating(column[1]) and value is not None:
            return ~compare(column, operator, value, name)
        return compare(column, OPPOSITE[operator] if negated else operator, value, name)

    def _find(self, tree: Any) -> tuple[Column, str]:
        """Return the column that a name stands for, and how it is called."""
        if not _is_column(tree):
            raise self._refuse(tree)
        parts = _parts(tree)
        for part in (tree, *parts):
            self._check(part)
        path = tuple(str(part.name) for part in parts)
        name = ".".join(path)
        found = find_column(self._schema, path)
        if found is None and not parts[0].quoted:
            same = [known for known in self._schema.names if known.lower() == path[0].lower()]
            found = find_column(self._schema, (same[0], *path[1:])) if len(same) == 1 else None
        if found is None:
            raise InvalidFilter(f"the filter names the column {name!r}; the table has {self._schema.names}")
        return found, name

    def _value(self, tree: Any) -> object:
        self._check(tree)
        kind = type(tree).__name__
        if kind == "Literal":
            return str(tree.this) if tree.is_string else _number(tree.this)
        if kind == "Neg":
            value = self._value(tree.this)
            if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
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


def _number(text: str) -> int | Decimal:
    return int(text) if text.isdigit() and len(text) < 1000 else Decimal(text)
