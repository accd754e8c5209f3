"""Parse filters given as SQL text, as tuples in disjunctive normal form, or as Arrow expressions (pure).

All become one condition, which prunes partitions, row groups and rows. sqlglot parses SQL; its tree is translated term by
term, and everything that is not listed here is refused: no text is evaluated as Python. *Not* is pushed down to the
terms, which know their opposite under nulls (:mod:`lakefmt._core.read.filter_terms`). What compares more than a column with a
value, such as ``lower(city) = 'sf'``, is computed (:mod:`lakefmt._core.read.sql_expressions`); where a range of a column follows
from it, as from ``date(ts) = …``, that prunes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.arguments import foreign
from lakefmt._core.read.filter_terms import (
    Column,
    Condition,
    all_of,
    any_of,
    compare,
    compare_columns,
    exactly,
    find_column,
    holds_floats,
    is_in,
    list_of,
    matches_like,
    parse_number,
    plain_value,
)
from lakefmt._core.read.sql_values import COMPARISONS, FLIPPED, literal_of
from lakefmt._core.values import Filter
from lakefmt.errors import InvalidExpression, InvalidFilter

if TYPE_CHECKING:
    from sqlglot.expressions import Column as SqlColumn
    from sqlglot.expressions import Expr

__all__ = [
    "Filter",
    "computing",
    "filter_columns",
    "implied_condition",
    "is_filter",
    "keep_rows",
    "parse_filter",
    "parse_sql",
]

_MAX_TEXT: Final = 1_000_000
_EXPECTED: Final = (
    "expected SQL text, an Arrow expression, or (column, op, value) tuples in a list, or in lists in a list"
)
_SQL_OPERATORS: Final = {"EQ": "=", "NEQ": "!=", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

#: Arguments that a tree node may have. A new argument of a later parser release must be refused,
#: not ignored.
_BINARY_ARGUMENTS: Final = frozenset({"this", "expression"})
_NODE_ARGUMENTS: Final = {
    **dict.fromkeys(("And", "Or", "Is", "Escape", "Dot", *_SQL_OPERATORS), _BINARY_ARGUMENTS),
    **dict.fromkeys(("Like", "ILike"), _BINARY_ARGUMENTS | {"negate"}),
    **dict.fromkeys(("Paren", "Not", "Neg", "Boolean", "Null"), frozenset({"this"})),
    "In": frozenset({"this", "expressions"}),
    "Between": frozenset({"this", "low", "high"}),
    "Column": frozenset({"this", "table", "db", "catalog"}),
    "Identifier": frozenset({"this", "quoted"}),
    "Literal": frozenset({"this", "is_string"}),
    "Cast": frozenset({"this", "to"}),
    "TryCast": frozenset({"this", "to"}),
}


def _what_is_expected(sql: str, schema: pa.Schema) -> str:
    """Return what mends a text that is no condition."""
    from sqlglot.dialects.duckdb import DuckDB

    if "`" in sql:
        return "names stand in double quotes, not in backticks"
    words = {word.upper() for word in re.findall(r'(?<!["\w])[A-Za-z_]\w*(?!["\w])', sql)}
    reserved = [name for name in schema.names if name.upper() in words & DuckDB.Tokenizer.KEYWORDS.keys()]
    if reserved:
        return f'{reserved[0]} is a word of SQL: the column is written "{reserved[0]}", in double quotes'
    return "one condition is expected, such as \"city = 'sf' and fare > 10\", without clauses such as limit"


def parse_sql(sql: str, schema: pa.Schema) -> Condition:
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

    if len(sql) > _MAX_TEXT:
        raise InvalidFilter(f"the filter has {len(sql):,} characters; at most {_MAX_TEXT:,} are read")
    try:
        tree = sqlglot.parse_one(sql, dialect="duckdb", into=exp.Condition)
        return _Translator(schema, sql).condition(tree, negated=False)
    except (errors.ParseError, errors.TokenError) as error:
        first = str(error).splitlines()[0]
        what = _what_is_expected(sql, schema) if first.startswith("Failed to parse") else first
        raise InvalidFilter(f"the filter {sql!r:.200} is not an SQL condition: {what}") from error
    except InvalidExpression as error:
        raise InvalidFilter(f"the filter {sql!r:.200}: {error}") from error
    except RecursionError:
        raise InvalidFilter(f"the filter {sql!r:.200} is nested too deeply") from None


def columns_of_sql(sql: str) -> list[str]:
    """Return the names of the top-level columns in an SQL condition; a text that is no condition has none.

    Example:
        >>> columns_of_sql("address.zip = '1' and a > b")
        ['a', 'address', 'b']
    """
    import sqlglot
    from sqlglot import errors, exp

    try:
        tree = sqlglot.parse_one(sql, dialect="duckdb", into=exp.Condition)
    except (errors.ParseError, errors.TokenError, RecursionError):
        return []
    return sorted({str(_column_parts(each)[0].name) for each in tree.find_all(exp.Column)})


class _NotATerm(Exception):
    """A tree is more than a comparison of a column: it is computed."""


class _Translator:
    """Translates the tree of one text."""

    def __init__(self, schema: pa.Schema, sql: str) -> None:
        self._schema = schema
        self._text = sql
        # What is joined before the tree at hand, and whether all of it must hold.
        self._before: list[tuple[bool, list[Condition]]] = []

    def _check(self, tree: Expr) -> None:
        """Raise for a node of an unknown type or with an unknown argument."""
        allowed = _NODE_ARGUMENTS.get(type(tree).__name__)
        if allowed is None or any(value for name, value in tree.args.items() if name not in allowed):
            raise _NotATerm

    def condition(self, tree: Expr, *, negated: bool) -> Condition:
        """Translate a condition or its negation."""
        name = type(tree).__name__
        if name in ("And", "Or", "Not", "Paren"):
            self._check(tree)
            joined: Condition = getattr(self, f"_{name.lower()}")(tree, negated)
            return joined
        try:
            self._check(tree)
            translate = getattr(self, f"_{name.lower()}", None)
            if translate is not None:
                condition: Condition = translate(tree, negated)
                return condition
            if name in _SQL_OPERATORS:
                return self._comparison(tree, negated)
        except _NotATerm:
            pass
        return self._computed(tree, negated)

    def _computed(self, tree: Expr, negated: bool) -> Condition:
        """Return a condition that is computed for every row, with what prunes beside it."""
        # Imported here: few filters compute.
        from lakefmt._core.read.sql_expressions import ExpressionTranslator

        computing_terms = ExpressionTranslator(self._schema)
        with ExitStack() as needed:
            for all_must_hold, conditions in self._before:
                if conditions:
                    join = all_of if all_must_hold else any_of
                    holds = pc.coalesce(join(conditions).exact, pc.scalar(False))
                    needed.enter_context(computing_terms.needed_where(holds if all_must_hold else ~holds))
            exact = computing_terms.condition(tree)
        implied = implied_condition(tree, negated, self._schema)
        return Condition(~exact if negated else exact, None if implied is None else implied.exact, may_fail=True)

    # Each method is named after the node class that it translates.

    def _paren(self, tree: Expr, negated: bool) -> Condition:
        return self.condition(tree.this, negated=negated)

    def _not(self, tree: Expr, negated: bool) -> Condition:
        return self.condition(tree.this, negated=not negated)

    def _and(self, tree: Expr, negated: bool) -> Condition:
        return self._joined(tree, negated, all_must_hold=not negated)

    def _or(self, tree: Expr, negated: bool) -> Condition:
        return self._joined(tree, negated, all_must_hold=negated)

    def _joined(self, tree: Expr, negated: bool, *, all_must_hold: bool) -> Condition:
        conditions: list[Condition] = []
        self._before.append((all_must_hold, conditions))
        for each in self._operands(tree):
            conditions += [self.condition(each, negated=negated)]
        self._before.pop()
        return (all_of if all_must_hold else any_of)(conditions)

    def _operands(self, tree: Expr) -> list[Expr]:
        """Return the operands of a chain of one operator, in order; a long chain is a deep tree."""
        operands, waiting = [], [tree]
        while waiting:
            each = waiting.pop()
            if type(each) is type(tree):
                self._check(each)
                waiting += [each.expression, each.this]
            else:
                operands.append(each)
        return operands

    def _boolean(self, tree: Expr, negated: bool) -> Condition:
        return exactly(pc.scalar(bool(tree.this) != negated))

    def _null(self, _tree: Expr, _negated: bool) -> Condition:
        return exactly(pc.scalar(False))

    def _column(self, tree: Expr, negated: bool) -> Condition:
        (field, data_type), _ = self._find(tree)
        if not pt.is_boolean(data_type):
            raise _NotATerm
        return exactly(~field if negated else field)

    def _dot(self, tree: Expr, negated: bool) -> Condition:
        return self._column(tree, negated)

    def _is(self, tree: Expr, negated: bool) -> Condition:
        (field, data_type), _ = self._find(tree.this)
        operand = tree.expression
        if type(operand).__name__ == "Null":
            return exactly(field.is_valid() if negated else field.is_null())
        if type(operand).__name__ != "Boolean" or not pt.is_boolean(data_type):
            raise _NotATerm
        holds = (field if operand.this else ~field) & field.is_valid()
        return exactly(~holds if negated else holds)

    def _in(self, tree: Expr, negated: bool) -> Condition:
        if not tree.expressions:
            raise _NotATerm
        column, name = self._find(tree.this)
        return is_in(column, [self._value(value) for value in tree.expressions], name, negated=negated)

    def _between(self, tree: Expr, negated: bool) -> Condition:
        column, name = self._find(tree.this)
        low, high = (self._value(tree.args[end]) for end in ("low", "high"))
        join = any_of if negated else all_of
        return join([compare(column, op, end, name, negated=negated) for op, end in ((">=", low), ("<=", high))])

    def _like(self, tree: Expr, negated: bool, escape: str | None = None, any_case: bool = False) -> Condition:
        column, name = self._find(tree.this)
        pattern = self._value(tree.expression)
        negated = negated != bool(tree.args.get("negate"))
        return matches_like(column, pattern, escape, name, any_case=any_case, negated=negated)

    def _ilike(self, tree: Expr, negated: bool, escape: str | None = None) -> Condition:
        return self._like(tree, negated, escape, any_case=True)

    def _escape(self, tree: Expr, negated: bool) -> Condition:
        node_type = type(tree.this).__name__
        if node_type not in ("Like", "ILike"):
            raise _NotATerm
        self._check(tree.this)
        return self._like(tree.this, negated, str(self._value(tree.expression)), any_case=node_type == "ILike")

    def _comparison(self, tree: Expr, negated: bool) -> Condition:
        operator = _SQL_OPERATORS[type(tree).__name__]
        left, right = tree.this, tree.expression
        if not _is_column(left):
            left, right, operator = right, left, _FLIPPED.get(operator, operator)
        column, name = self._find(left)
        if _is_column(right):
            other, _ = self._find(right)
            return compare_columns(column, operator, other, negated=negated)
        return compare(column, operator, self._value(right), name, negated=negated)

    def _find(self, tree: Expr) -> tuple[Column, str]:
        """Return a column's expression and its name."""
        if not _is_column(tree):
            raise _NotATerm
        parts = _column_parts(tree)
        for part in (tree, *parts):
            self._check(part)
        path = tuple(str(part.name) for part in parts)
        name = ".".join(path)
        column = find_column(self._schema, path)
        if column is None and not parts[0].args.get("quoted"):
            same = [other for other in self._schema.names if other.lower() == path[0].lower()]
            if len(same) == 1:
                path = (same[0], *path[1:])
                column = find_column(self._schema, path)
        if column is None:
            hint = "; a text stands in single quotes" if parts[0].args.get("quoted") else ""
            raise InvalidFilter(f"the filter names the column {name!r}; the table has {self._schema.names}{hint}")
        return column, ".".join(path)

    def _value(self, tree: Expr) -> object:
        self._check(tree)
        node_type = type(tree).__name__
        if node_type == "Literal":
            return str(tree.this) if tree.is_string else parse_number(tree.this)
        if node_type == "Neg":
            value = self._value(tree.this)
            if isinstance(value, Decimal):
                return value.copy_negate()  # negation could round
            if isinstance(value, int) and not isinstance(value, bool):
                return -value
        if node_type == "Boolean":
            return bool(tree.this)
        if node_type == "Null":
            return None
        if node_type == "Paren":
            return self._value(tree.this)
        if node_type in ("Cast", "TryCast") and type(tree.this).__name__ == "Literal" and tree.this.is_string:
            return str(tree.this.this)  # date '2026-01-01', timestamp '…': the column's type decides
        raise _NotATerm


def _is_column(tree: Expr) -> bool:
    node_type = type(tree).__name__
    return node_type == "Column" or (
        node_type == "Dot" and _is_column(tree.this) and type(tree.expression).__name__ == "Identifier"
    )


def _column_parts(tree: Expr) -> list[Expr]:
    """Return the names of a column and its nested fields, outermost first."""
    if type(tree).__name__ == "Dot":
        return [*_column_parts(tree.this), tree.expression]
    return list(cast("SqlColumn", tree).parts)


_OPERATOR_SPELLINGS = {"==": "=", "<>": "!="}
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_WORD_OPERATORS = ("in", "not in", "like", "not like", "is", "is not")
_QUOTED_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


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

    def parsed() -> Condition:
        try:
            return _checked_condition(_parse_any(given, schema), schema)
        except UnicodeEncodeError as error:
            raise InvalidFilter(f"the filter holds text that cannot be encoded: {error}") from error

    # Objects of any class may be passed, and their methods may raise anything.
    return foreign(parsed, "the filter cannot be understood", InvalidFilter)


def _parse_any(given: object, schema: pa.Schema) -> Condition:

    if isinstance(given, pc.Expression):
        return _condition_of_expression(given, schema)
    if isinstance(given, str):
        return parse_sql(str(plain_value(given)), schema)
    return _parse_dnf(given, schema)


def _condition_of_expression(given: pc.Expression, schema: pa.Schema) -> Condition:
    """Return the condition of an Arrow expression, which names no values; over floats statistics must not be compared."""
    if "FieldPath(" in _QUOTED_TEXT.sub("", str(given)):
        raise InvalidFilter("the filter gives a column by its number, which differs between files: name the column")
    _check_expression(given, schema)
    # Arrow takes statistics for bounds of NaN, too.
    floats = filter_columns(given, pa.schema([field for field in schema if holds_floats(field.type)]), schema)
    return Condition(given, None if floats else given, may_fail=True)


def _checked_condition(condition: Condition, schema: pa.Schema) -> Condition:
    _check_expression(condition.exact, schema)
    return condition


def _check_expression(expression: pc.Expression, schema: pa.Schema) -> None:
    """Raise for unknown columns and impossible comparisons before any file is opened."""
    import pyarrow.dataset as ds  # slow import, needed only for filters

    try:
        ds.InMemoryDataset(schema.empty_table()).scanner(filter=expression, use_threads=False).to_table()
    except pa.ArrowException as error:
        first = str(error).splitlines()[0]
        raise InvalidFilter(f"the filter does not fit the table's columns {schema.names}: {first}") from error


def filter_columns(expression: pc.Expression, subset: pa.Schema, schema: pa.Schema | None = None) -> set[str]:
    """Return the columns of `subset` that a filter over `schema` (default: the same) uses.

    Example:
        >>> sorted(filter_columns(pc.field("a") > pc.field("b"), pa.schema([(n, pa.int64()) for n in "abc"])))
        ['a', 'b']
    """
    if not len(subset):
        return set()
    import pyarrow.dataset as ds

    whole = subset if schema is None else schema
    empty, printed_expression = whole.empty_table(), str(expression)

    def named_among(names: list[str]) -> set[str]:
        # Arrow does not expose an expression's columns; binding fails without a column that it
        # uses.
        without = set(names)
        rest = empty.select([index for index, name in enumerate(whole.names) if name not in without])
        try:
            ds.InMemoryDataset(rest).scanner(columns=[], filter=expression)
        except pa.ArrowException:
            half = len(names) // 2
            return {*names} if not half else named_among(names[:half]) | named_among(names[half:])
        return set()

    # The text names every column that is used, and mostly no other one: few are left to search among.
    shown = {name for name in subset.names if name in printed_expression}
    hidden = [name for name in subset.names if name not in shown]
    return named_among(hidden) | named_among([name for name in subset.names if name in shown])


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
        return _parse_term(given, schema)
    if not isinstance(given, list | tuple) or not given:
        raise InvalidFilter(f"{given!r:.200} is not a filter: {_EXPECTED}")
    if all(isinstance(item, tuple) for item in given):
        return all_of([_parse_term(item, schema) for item in given])
    groups = [item if isinstance(item, list) else [item] for item in given]
    if any(not isinstance(item, tuple) for group in groups for item in group) or not all(groups):
        raise InvalidFilter(f"{given!r:.200} is not a filter: {_EXPECTED}")
    return any_of([_parse_dnf(group, schema) for group in groups])


def is_filter(value: object, levels: int = 2) -> bool:
    """Return whether a tuple, or lists of tuples in so many levels, have the form of a filter.

    Example:
        >>> is_filter(("a", "=", "x")), is_filter([("a", "is not", None)]), is_filter(("a", "b", "c"))
        (True, True, False)
    """
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[0], str) and isinstance(value[1], str):
        return _normal_operator(value[1]) in (*_OPERATORS, *_WORD_OPERATORS)
    if not isinstance(value, list | tuple) or not value or not levels:
        return False
    return all(isinstance(part, list | tuple) and is_filter(part, levels - 1) for part in value)


def _normal_operator(given: object) -> str:
    op = " ".join(str(given).lower().split())
    return _OPERATOR_SPELLINGS.get(op, op)


def _parse_term(term: tuple[object, ...], schema: pa.Schema) -> Condition:

    name = term[0] if len(term) == 3 else None
    if not isinstance(name, str):
        raise InvalidFilter(f"{term!r:.200} is not a filter term: expected (column, op, value)")
    operator, value = term[1:]
    column = _named_column(name, schema)
    op = _normal_operator(operator)
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


def _named_column(name: str, schema: pa.Schema) -> Column:

    column = find_column(schema, (name,)) or find_column(schema, tuple(name.split(".")))
    if column is None:
        raise InvalidFilter(f"the filter names the column {name!r}; the table has {schema.names}")
    return column


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
