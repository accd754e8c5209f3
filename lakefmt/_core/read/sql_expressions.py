"""Translate SQL scalar expressions to Arrow compute expressions: arithmetic, functions, casts, CASE (pure).

sqlglot parses the text; every node and every argument that is not listed here is refused by its name, and nothing is
evaluated as Python. The result is exact, or an error: integers that overflow, a division by zero and a cast that would cut
digits fail when they are computed. Nulls behave as in SQL, and a comparison with null is null.

CASE, COALESCE, AND and OR do not compute what they do not need: an operation that may fail gets nulls in the rows that
an earlier branch has decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.read.filter_terms import Column, compare, find_column, is_in, matches_like
from lakefmt._core.read.sql_values import (
    COMPARISONS,
    FLIPPED,
    TIMESTAMP,
    TIMESTAMP_OF,
    Value,
    as_decimal,
    assigned,
    cast_type,
    converted,
    interval_of,
    is_moment,
    joined_numbers,
    literal_of,
    null_of,
    null_value,
    scalar_of_literal,
    where_valid,
)
from lakefmt._core.schema.types import is_number, is_string
from lakefmt.errors import InvalidExpression, InvalidFilter

if TYPE_CHECKING:
    from sqlglot.expressions import Column as SqlColumn
    from sqlglot.expressions import Expr

__all__ = ["ExpressionTranslator", "SqlExpression", "compute_expressions", "parse_expression"]

_MAX_TEXT: Final = 1_000_000
#: Of decimals.
_MOST_DIGITS: Final = 76
_ARROW_COMPARISONS: Final[dict[str, Callable[[pc.Expression, pc.Expression], pc.Expression]]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_DATE_PARTS: Final = ("year", "quarter", "month", "day", "hour", "minute", "second")
_TRUNCATED_UNITS: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
_TEXT_FUNCTIONS: Final = {"Lower": pc.utf8_lower, "Upper": pc.utf8_upper}
_SEARCHES: Final = {"StartsWith": pc.starts_with, "EndsWith": pc.ends_with, "Contains": pc.match_substring}
#: What an unsupported node is called in a message.
_NODE_NAMES: Final = {
    "BitwiseAnd": "& (bitwise and; write: and)",
    "BitwiseOr": "| (bitwise or; write: or)",
    "Subquery": "a subquery",
    "Select": "a subquery",
    "Exists": "a subquery",
    "TryCast": "try_cast of a column",
    "Star": "*",
    "Any": "any()",
    "Tuple": "a list of values in parentheses",
    "Collate": "collate",
    "Bracket": "access by [ ]",
    "Interval": "an interval on its own",
    "CurrentTimestamp": "the time of now (write the moment itself)",
    "CurrentDate": "the date of today (write the day itself)",
    "now": "now() (write the moment itself)",
}
#: Arguments that a node may have beside its flags without effect; another one is refused.
_ARGUMENTS: Final[dict[str, frozenset[str]]] = {
    name: frozenset(arguments.split())
    for names, arguments in (
        ("Add Sub Mul IntDiv Mod Is NullSafeEQ NullSafeNEQ And Or Nullif Left Right StartsWith", "this expression"),
        ("EQ NEQ LT LTE GT GTE EndsWith Contains Escape Dot", "this expression"),
        ("Like ILike", "this expression negate"),
        ("Div", "this expression typed safe"),
        ("DPipe", "this expression safe"),
        ("Paren Not Neg Boolean Null Lower Upper Length Abs Floor Ceil IsNan Date TsOrDsToDate Sqrt", "this"),
        ("Year Month Day Hour Minute Second Quarter", "this"),
        ("In", "this expressions"),
        ("Between", "this low high"),
        ("Cast", "this to"),
        ("Literal", "this is_string"),
        ("Case", "this ifs default"),
        ("If", "this true false"),
        ("Coalesce", "this expressions"),
        ("Greatest Least", "this expressions ignore_nulls"),
        ("Concat", "expressions safe coalesce"),
        ("Trim", "this position"),
        ("Substring", "this start length"),
        ("Replace", "this expression replacement"),
        ("Round", "this decimals"),
        ("Extract", "this expression"),
        ("TimestampTrunc DateTrunc", "this unit"),
        ("Interval", "this unit"),
        ("Column", "this table db catalog"),
        ("Identifier", "this quoted"),
        ("Anonymous", "this expressions"),
    )
    for name in names.split()
}


@dataclass(frozen=True, slots=True)
class SqlExpression:
    """A translated expression.

    Attributes:
        text: the SQL text.
        expression: of Arrow; it may raise ``pyarrow.ArrowInvalid`` when it is computed.
        type: of its values.
    """

    text: str
    expression: pc.Expression
    type: pa.DataType


#: Returns the expression and type of a column by the parts of its name; None: there is none.
FindColumn = Callable[[tuple[str, ...]], Column | None]


def parse_expression(
    sql: str, schema: pa.Schema, find: FindColumn | None = None, target: pa.DataType | None = None
) -> SqlExpression:
    """Return the Arrow expression of an SQL scalar expression over columns.

    Args:
        sql: such as ``"fare * 2"``, ``"case when n > 1 then upper(city) else city end"`` or ``"null"``.
        schema: the columns, for their types and for messages.
        find: returns the expression and type of a column by the parts of its name, such as ``("source", "fare")``; None: the
            column or nested field of `schema`.
        target: the type of the column that is assigned (:func:`~lakefmt._core.read.sql_values.assigned`); None: no column.

    Raises:
        InvalidExpression: the text is not an expression, or names an unknown column or an unsupported function.

    Example:
        >>> parsed = parse_expression("fare * 2", pa.schema([("fare", pa.float64())]))
        >>> parsed.type, compute_expressions(pa.table({"fare": [1.5]}), {"fare": parsed}).to_pylist()
        (DataType(double), [{'fare': 3.0}])
    """
    # Imported on first use: the import is slow and few programs use SQL.
    import sqlglot
    from sqlglot import errors, exp

    if len(sql) > _MAX_TEXT:
        raise InvalidExpression(f"the expression has {len(sql):,} characters; at most {_MAX_TEXT:,} are read")
    try:
        tree = sqlglot.parse_one(sql, dialect="duckdb", into=exp.Condition)
        value = ExpressionTranslator(schema, find).value(tree)
        if target is not None:
            value = assigned(value, target)
    except (errors.ParseError, errors.TokenError) as error:
        first = str(error).splitlines()[0]
        raise InvalidExpression(f"{sql!r:.200} is not an SQL expression: {first}") from error
    except RecursionError:
        raise InvalidExpression(f"the expression {sql!r:.200} is nested too deeply") from None
    except InvalidFilter as error:
        raise InvalidExpression(f"the expression {sql!r:.200}: {error}") from error
    return SqlExpression(sql, value.expression, value.type)


def compute_expressions(rows: pa.Table, expressions: dict[str, SqlExpression]) -> pa.Table:
    """Return a table with one column for each expression, computed over rows in their order.

    Raises:
        InvalidExpression: an expression cannot be computed for every row.
    """
    import pyarrow.dataset as ds  # slow import

    columns: dict[str, pa.ChunkedArray] = {}
    source = ds.InMemoryDataset(rows)
    for name, each in expressions.items():
        try:
            computed = source.to_table(columns={"value": each.expression}, use_threads=False)["value"]
        except pa.ArrowException as error:
            first = str(error).splitlines()[0]
            raise InvalidExpression(
                f"the expression {each.text!r:.200} cannot be computed for every row: {first}"
            ) from error
        columns[name] = computed if computed.type.equals(each.type) else computed.cast(each.type)
    return pa.table(columns) if columns else rows.select([])


class ExpressionTranslator:
    """Translates the trees of one text; a method is named after the class of the nodes that it translates."""

    def __init__(self, schema: pa.Schema, find: FindColumn | None = None) -> None:
        self._schema = schema
        self._find = find or self._in_schema
        # Rows for which the node at hand is needed; None: all.
        self._needed: pc.Expression | None = None

    def value(self, tree: Expr) -> Value:
        """Return the value of a tree.

        Raises:
            InvalidExpression: a node is not supported, or types do not fit.
        """
        name = type(tree).__name__
        allowed = _ARGUMENTS.get(name)
        if allowed is None:
            raise InvalidExpression(f"{self._called(tree)} is not supported, in {tree.sql('duckdb')!r:.200}")
        surplus = [argument for argument, given in tree.args.items() if given and argument not in allowed]
        if surplus == ["query"]:
            raise InvalidExpression(f"a subquery is not supported, in {tree.sql('duckdb')!r:.200}")
        if surplus:
            raise InvalidExpression(
                f"{surplus[0]} of {self._called(tree)} is not supported: {tree.sql('duckdb')!r:.200}"
            )
        if name in COMPARISONS:
            return self._comparison(tree)
        if name.lower() in _DATE_PARTS:
            return self._of(tree, *self._part(tree.this, name.lower()))
        if name in _TEXT_FUNCTIONS:
            return self._of(tree, _TEXT_FUNCTIONS[name](self._text(tree.this)), pa.string())
        if name in _SEARCHES:
            found = _SEARCHES[name](self._text(tree.this), self._constant(tree.expression))
            return self._of(tree, found, pa.bool_())
        translate = getattr(self, f"_{name.lower()}", None)
        if translate is None:
            raise InvalidExpression(f"{self._called(tree)} is not supported here: {tree.sql('duckdb')!r:.200}")
        expression, data_type = translate(tree)
        return self._of(tree, expression, data_type)

    def condition(self, tree: Expr) -> pc.Expression:
        """Return a boolean expression: true, false or null.

        Raises:
            InvalidExpression: it is of another type.
        """
        value = self.value(tree)
        if not (pt.is_boolean(value.type) or value.is_null):
            raise InvalidExpression(f"{value.text!r:.200} is of type {value.type}: a condition is expected")
        return null_of(pa.bool_()) if value.is_null else value.expression

    @contextmanager
    def needed_where(self, condition: pc.Expression) -> Iterator[None]:
        """Compute what may fail only in rows in which a condition is true."""
        before = self._needed
        certain = pc.coalesce(condition, pc.scalar(False))
        self._needed = certain if before is None else before & certain
        try:
            yield
        finally:
            self._needed = before

    # ----------------------------------------------------------------------------------------------- names and literals

    def _called(self, tree: Expr) -> str:
        name = type(tree).__name__
        if name == "Anonymous":
            return _NODE_NAMES.get(str(tree.this).lower(), f"the function {str(tree.this).lower()}")
        if name in _NODE_NAMES:
            return _NODE_NAMES[name]
        names = getattr(tree, "sql_names", None)
        return f"the function {names()[0].lower()}" if names is not None else f"the operator {name.lower()}"

    def _of(self, tree: Expr, expression: pc.Expression, data_type: pa.DataType) -> Value:
        return Value(expression, data_type, literal_of(tree), tree.sql("duckdb"))

    def _literal(self, tree: Expr) -> Column:
        value = scalar_of_literal(literal_of(tree))
        return pc.scalar(value), value.type

    def _boolean(self, tree: Expr) -> Column:
        return pc.scalar(bool(tree.this)), pa.bool_()

    def _null(self, _tree: object) -> Column:
        return pc.scalar(None), pa.null()

    def _paren(self, tree: Expr) -> Column:
        return self.value(tree.this).column

    def _in_schema(self, path: tuple[str, ...]) -> Column | None:
        return find_column(self._schema, path)

    def _column(self, tree: Expr) -> Column:
        parts = cast("SqlColumn", tree).parts
        return self._named([str(part.name) for part in parts], quoted=bool(parts[0].args.get("quoted")))

    def _dot(self, tree: Expr) -> Column:
        parts: list[Expr] = []
        while type(tree).__name__ == "Dot":
            parts.insert(0, tree.expression)
            tree = tree.this
        if type(tree).__name__ != "Column":
            raise InvalidExpression(f"a field of {tree.sql('duckdb')!r:.200} is not supported")
        parts = [*cast("SqlColumn", tree).parts, *parts]
        return self._named([str(part.name) for part in parts], quoted=bool(parts[0].args.get("quoted")))

    def _named(self, path: Sequence[str], *, quoted: bool) -> Column:
        column = self._find(tuple(path))
        if column is None and not quoted:
            same = [name for name in self._schema.names if name.lower() == path[0].lower()]
            column = self._find((same[0], *path[1:])) if len(same) == 1 else None
        if column is None:
            hint = "; a text stands in single quotes" if quoted else ""
            raise InvalidExpression(f"there is no column {'.'.join(path)!r}; there are {self._schema.names}{hint}")
        expression, data_type = column
        if pt.is_dictionary(data_type):
            return expression.cast(data_type.value_type), data_type.value_type
        return expression, data_type

    # ------------------------------------------------------------------------------------------------------- arithmetic

    def _checked(self, value: Value, data_type: pa.DataType) -> pc.Expression:
        """Return a value in a type; null in rows that do not need it."""
        expression = self._as(value, data_type)
        if self._needed is None or value.literal is not None:
            return expression
        return pc.if_else(self._needed, expression, null_of(data_type))

    def _operands(self, tree: Expr) -> tuple[Value, Value]:
        return self.value(tree.this), self.value(tree.expression)

    def _in_common(self, tree: Expr, left: Value, right: Value) -> pa.DataType:
        """Return the type in which two numbers are computed with."""
        for value in (left, right):
            if not (is_number(value.type) or value.is_null):
                raise InvalidExpression(
                    f"{value.text!r:.200} is of type {value.type}: a number is expected, in {tree.sql()!r:.200}"
                )
        common = self._common([left, right], tree)
        return pa.int64() if pt.is_integer(common) or pt.is_null(common) else common

    def _arithmetic(self, tree: Expr, operands: tuple[Value, Value], function: Callable[..., pc.Expression]) -> Column:
        left, right = operands
        common = self._in_common(tree, left, right)
        if pt.is_decimal(common):
            return self._decimals(tree, left, right, function)
        return self._applied(function, [self._checked(left, common), self._checked(right, common)], common), common

    def _decimals(self, tree: Expr, left: Value, right: Value, function: Callable[..., pc.Expression]) -> Column:
        """Add, subtract or multiply decimals, exactly; the result has as many digits as it needs."""
        types = [as_decimal(value.type) for value in (left, right)]
        (p1, s1), (p2, s2) = ((each.precision, each.scale) for each in types)
        if function is pc.multiply_checked:
            scale, precision = s1 + s2, p1 + p2 + 1
        else:
            scale = max(s1, s2)
            precision = max(p1 - s1, p2 - s2) + scale + 1
        if precision > _MOST_DIGITS:
            raise InvalidExpression(
                f"{tree.sql()!r:.200} needs {precision} digits; at most {_MOST_DIGITS} are computed with"
            )
        if precision > 38:
            types = [pa.decimal256(each.precision, each.scale) for each in types]
        made = _decimal(precision, scale)
        operands = [self._checked(value, target) for value, target in zip((left, right), types, strict=True)]
        return self._applied(function, operands, made), made

    def _applied(
        self, function: Callable[..., pc.Expression], operands: Sequence[pc.Expression], data_type: pa.DataType
    ) -> pc.Expression:
        """Return what a function that may fail gives.

        Args:
            function: of the operands.
            operands: its arguments.
            data_type: of its result.
        """
        return function(*operands)

    def _converted(self, values: pc.Expression, source: pa.DataType, target: pa.DataType) -> pc.Expression:
        """Return values in another type; a cast to it may fail."""
        return values.cast(target, safe=not pt.is_floating(target))

    def _add(self, tree: Expr) -> Column:
        return self._sum(tree, 1, pc.add_checked)

    def _sub(self, tree: Expr) -> Column:
        return self._sum(tree, -1, pc.subtract_checked)

    def _sum(self, tree: Expr, sign: int, function: Callable[..., pc.Expression]) -> Column:
        """Return a time plus or minus an interval, a date plus or minus days, or a sum or difference of numbers."""
        if type(tree.expression).__name__ == "Interval":
            moment, amount = self._moment(tree.this), interval_of(tree.expression) * sign
            unit = moment.type.unit if pt.is_timestamp(moment.type) else "us"
            data_type = moment.type if pt.is_timestamp(moment.type) else pa.timestamp("us")
            step = pc.scalar(pa.scalar(amount, pa.duration(unit)))
            return self._applied(pc.add_checked, [self._checked(moment, data_type), step], data_type), data_type
        left, right = operands = self._operands(tree)
        if pt.is_date32(left.type) and pt.is_integer(right.type):
            days = self._as(left, pa.date32()).cast(pa.int32()).cast(pa.int64())
            shifted = self._applied(function, [days, self._checked(right, pa.int64())], pa.int64())
            return self._converted(shifted, pa.int64(), pa.int32()).cast(pa.date32()), pa.date32()
        return self._arithmetic(tree, operands, function)

    def _mul(self, tree: Expr) -> Column:
        return self._arithmetic(tree, self._operands(tree), pc.multiply_checked)

    def _div(self, tree: Expr) -> Column:
        operands = self._operands(tree)
        self._in_common(tree, *operands)
        floats = [self._checked(each, pa.float64()) for each in operands]
        return self._applied(pc.divide_checked, floats, pa.float64()), pa.float64()

    def _whole(self, tree: Expr) -> tuple[pc.Expression, pc.Expression]:
        left, right = self._operands(tree)
        common = self._in_common(tree, left, right)
        if not pt.is_integer(common):
            raise InvalidExpression(f"{tree.sql('duckdb')!r:.200} needs whole numbers, not {common}")
        return self._checked(left, common), self._checked(right, common)

    def _intdiv(self, tree: Expr) -> Column:
        return self._applied(pc.divide_checked, self._whole(tree), pa.int64()), pa.int64()

    def _mod(self, tree: Expr) -> Column:
        left, right = self._whole(tree)
        # The lowest number divided by -1 overflows, and its remainder is that of a division by 1.
        divisor = pc.if_else(right == pc.scalar(-1), pc.scalar(1), right)
        quotient = self._applied(pc.divide_checked, [left, divisor], pa.int64())
        return pc.subtract_checked(left, pc.multiply_checked(quotient, divisor)), pa.int64()

    def _neg(self, tree: Expr) -> Column:
        value = self._number(tree.this)
        opposite = literal_of(tree)
        if opposite is not None:
            number = scalar_of_literal(opposite)
            return pc.scalar(number), number.type
        data_type = pa.int64() if pt.is_integer(value.type) else value.type
        return self._applied(pc.negate_checked, [self._checked(value, data_type)], data_type), data_type

    def _number(self, tree: Expr) -> Value:
        value = self.value(tree)
        if value.is_null:
            return Value(null_of(pa.int64()), pa.int64(), None, value.text)
        if not is_number(value.type):
            raise InvalidExpression(f"{value.text!r:.200} is of type {value.type}: a number is expected")
        return value

    def _abs(self, tree: Expr) -> Column:
        value = self._number(tree.this)
        data_type = pa.int64() if pt.is_integer(value.type) else value.type
        return self._applied(pc.abs_checked, [self._checked(value, data_type)], data_type), data_type

    def _sqrt(self, tree: Expr) -> Column:
        value = self._checked(self._number(tree.this), pa.float64())
        return self._applied(pc.sqrt_checked, [value], pa.float64()), pa.float64()

    def _floor(self, tree: Expr) -> Column:
        return self._rounded(tree, pc.floor)

    def _ceil(self, tree: Expr) -> Column:
        return self._rounded(tree, pc.ceil)

    def _rounded(self, tree: Expr, function: Callable[..., pc.Expression]) -> Column:
        value = self._number(tree.this)
        if pt.is_integer(value.type):
            return value.column
        checked, data_type = self._checked(value, value.type), value.type
        if not pt.is_decimal(data_type):
            return function(checked), data_type
        # Arrow may give 0 for one that is rounded to more digits than its type has.
        wide = _decimal(min(data_type.precision + 1, _MOST_DIGITS), data_type.scale)
        return self._converted(function(checked.cast(wide)), wide, data_type), data_type

    def _round(self, tree: Expr) -> Column:
        digits = 0 if tree.args.get("decimals") is None else self._constant_whole(tree.args["decimals"])
        value = self._number(tree.this)
        if pt.is_integer(value.type) and digits < 0:
            data_type = pa.int64() if pt.is_signed_integer(value.type) else value.type
            return pc.round(self._checked(value, data_type), digits, "half_towards_infinity"), data_type
        return self._rounded(tree, lambda each: pc.round(each, digits, "half_towards_infinity"))

    def _isnan(self, tree: Expr) -> Column:
        value = self._number(tree.this)
        return pc.is_nan(self._as(value, pa.float64())), pa.bool_()

    # ------------------------------------------------------------------------------------------------------------ texts

    def _text(self, tree: Expr) -> pc.Expression:
        value = self.value(tree)
        if not (is_string(value.type) or value.is_null):
            raise InvalidExpression(f"{value.text!r:.200} is of type {value.type}: a text is expected")
        return self._as(value, pa.string())

    def _constant(self, tree: Expr) -> str:
        value = self.value(tree)
        if not isinstance(value.literal, str):
            raise InvalidExpression(f"{value.text!r:.200}: a text in quotes is expected here")
        return value.literal

    def _constant_whole(self, tree: Expr) -> int:
        value = self.value(tree)
        if not isinstance(value.literal, int) or isinstance(value.literal, bool) or abs(value.literal) > 1 << 30:
            raise InvalidExpression(f"{value.text!r:.200}: a whole number is expected here")
        return value.literal

    def _length(self, tree: Expr) -> Column:
        return pc.utf8_length(self._text(tree.this)).cast(pa.int64()), pa.int64()

    def _dpipe(self, tree: Expr) -> Column:
        texts = [self._text(tree.this), self._text(tree.expression)]
        return pc.binary_join_element_wise(*texts, pc.scalar("")), pa.string()

    def _concat(self, tree: Expr) -> Column:
        texts = [pc.coalesce(self._text(each), pc.scalar("")) for each in tree.expressions]
        return pc.binary_join_element_wise(*texts, pc.scalar("")), pa.string()

    def _trim(self, tree: Expr) -> Column:
        side = str(tree.args.get("position") or "BOTH").upper()
        function = {"LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim}.get(side, pc.utf8_trim)
        return function(self._text(tree.this), " "), pa.string()

    def _substring(self, tree: Expr) -> Column:
        start = self._constant_whole(tree.args["start"])
        length = None if tree.args.get("length") is None else self._constant_whole(tree.args["length"])
        if start < 1 or (length is not None and length < 0):
            raise InvalidExpression(
                f"{tree.sql('duckdb')!r:.200}: a start from 1 on and a length from 0 on are expected"
            )
        stop = None if length is None else start - 1 + length
        return pc.utf8_slice_codeunits(self._text(tree.this), start - 1, stop), pa.string()

    def _left(self, tree: Expr) -> Column:
        length = self._constant_whole(tree.expression)
        return pc.utf8_slice_codeunits(self._text(tree.this), 0, length), pa.string()

    def _right(self, tree: Expr) -> Column:
        length = self._constant_whole(tree.expression)
        if length < 1:
            raise InvalidExpression(f"{tree.sql('duckdb')!r:.200}: a length from 1 on is expected")
        return pc.utf8_slice_codeunits(self._text(tree.this), -length, None), pa.string()

    def _replace(self, tree: Expr) -> Column:
        text = self._text(tree.this)
        old, new = self._constant(tree.expression), self._constant(tree.args["replacement"])
        return (pc.replace_substring(text, old, new) if old else text), pa.string()

    # ------------------------------------------------------------------------------------------------------------ times

    def _moment(self, tree: Expr) -> Value:
        value = self.value(tree)
        if isinstance(value.literal, str):
            return Value(self._as(value, TIMESTAMP), TIMESTAMP, None, value.text)
        if value.is_null:
            return Value(null_of(TIMESTAMP), TIMESTAMP, None, value.text)
        if not (pt.is_timestamp(value.type) or pt.is_date32(value.type)):
            raise InvalidExpression(f"{value.text!r:.200} is of type {value.type}: a date or a timestamp is expected")
        if pt.is_timestamp(value.type) and value.type.tz not in (None, "UTC"):
            data_type = pa.timestamp(value.type.unit, "UTC")
            return Value(value.expression.cast(data_type), data_type, None, value.text)
        return value

    def _part(self, tree: Expr, part: str) -> Column:
        moment = self._moment(tree)
        if part in ("hour", "minute", "second") and pt.is_date32(moment.type):
            return pc.if_else(moment.expression.is_valid(), pc.scalar(0), null_of(pa.int64())), pa.int64()
        return getattr(pc, part)(moment.expression), pa.int64()

    def _extract(self, tree: Expr) -> Column:
        part = str(tree.this.name).lower()
        if part not in _DATE_PARTS:
            raise InvalidExpression(f"extract({part}) is not supported: {', '.join(_DATE_PARTS)} are")
        return self._part(tree.expression, part)

    def _anonymous(self, tree: Expr) -> Column:
        name, arguments = str(tree.this).lower(), list(tree.expressions)
        if name == "date_part" and len(arguments) == 2 and self._constant(arguments[0]).lower() in _DATE_PARTS:
            return self._part(arguments[1], self._constant(arguments[0]).lower())
        if name in _DATE_PARTS and len(arguments) == 1:  # older releases of sqlglot
            return self._part(arguments[0], name)
        search = _SEARCHES.get(name.title().replace("_", ""))
        if search is not None and len(arguments) == 2:  # older releases of sqlglot
            return search(self._text(arguments[0]), self._constant(arguments[1])), pa.bool_()
        if name == "replace" and len(arguments) == 3:
            old, new = self._constant(arguments[1]), self._constant(arguments[2])
            text = self._text(arguments[0])
            return (pc.replace_substring(text, old, new) if old else text), pa.string()
        raise InvalidExpression(f"{self._called(tree)} is not supported, in {tree.sql('duckdb')!r:.200}")

    def _timestamptrunc(self, tree: Expr) -> Column:
        unit = str(tree.args["unit"].name).lower()
        if unit not in _TRUNCATED_UNITS:
            raise InvalidExpression(f"date_trunc('{unit}') is not supported: {', '.join(_TRUNCATED_UNITS)} are")
        moment = self._moment(tree.this)
        data_type = moment.type if pt.is_timestamp(moment.type) else pa.timestamp("us")
        return pc.floor_temporal(self._as(moment, data_type), 1, unit, week_starts_monday=True), data_type

    def _datetrunc(self, tree: Expr) -> Column:
        return self._timestamptrunc(tree)

    def _date(self, tree: Expr) -> Column:
        return self._cast_to(self.value(tree.this), pa.date32()), pa.date32()

    def _tsordstodate(self, tree: Expr) -> Column:
        return self._date(tree)

    # ------------------------------------------------------------------------------------------------------------ casts

    def _cast(self, tree: Expr) -> Column:
        target = cast_type(tree.args["to"])
        return self._cast_to(self.value(tree.this), target), target

    def _cast_to(self, value: Value, target: pa.DataType) -> pc.Expression:
        source = value.type
        if source.equals(target) or value.is_null or value.literal is not None:
            return self._as(value, target)
        if pt.is_nested(source) or (pt.is_binary(target) != pt.is_binary(source) and not is_string(source)):
            raise InvalidExpression(f"{value.text!r:.200} of type {source} cannot be cast to {target}")
        checked = self._checked(value, source)
        if pt.is_timestamp(source) and pt.is_date32(target):
            of_unit = TIMESTAMP_OF[source.unit]
            return self._converted(self._as(Value(checked, source, None, value.text), of_unit), of_unit, target)
        if is_string(target) and (pt.is_floating(source) or pt.is_timestamp(source)):
            raise InvalidExpression(
                f"{value.text!r:.200}: engines write a {source} as different texts; it is not cast to text"
            )
        if is_number(target) and pt.is_temporal(source) and not pt.is_floating(target):
            raise InvalidExpression(f"{value.text!r:.200} of type {source} cannot be cast to {target}")
        if pt.is_integer(source) and pt.is_decimal(target):
            # Arrow refuses all numbers where the type of some has more digits.
            wide = _decimal(as_decimal(source).precision + target.scale, target.scale)
            return self._converted(checked.cast(wide), wide, target)
        return self._converted(checked, source, target)

    # ------------------------------------------------------------------------------------------------------- conditions

    def _comparison(self, tree: Expr) -> Value:
        operator = COMPARISONS[type(tree).__name__]
        return self._of(
            tree, self._compared(tree, self.value(tree.this), operator, self.value(tree.expression)), pa.bool_()
        )

    def _compared(self, tree: Expr, left: Value, operator: str, right: Value) -> pc.Expression:
        if left.is_null or right.is_null:
            return null_of(pa.bool_())
        if left.literal is not None and right.literal is None:
            left, right, operator = right, left, FLIPPED.get(operator, operator)
        if left.literal is None and right.literal is not None:
            holds = compare(left.column, operator, right.literal, left.text).exact
            return where_valid([left.expression], holds)
        common = self._common([left, right], tree)
        if pt.is_nested(common):
            raise InvalidExpression(f"{tree.sql('duckdb')!r:.200} compares values of type {common}")
        return _ARROW_COMPARISONS[operator](self._as(left, common), self._as(right, common))

    def _not(self, tree: Expr) -> Column:
        return ~self.condition(tree.this), pa.bool_()

    def _and(self, tree: Expr) -> Column:
        left = self.condition(tree.this)
        with self.needed_where(pc.coalesce(left, pc.scalar(True))):
            return left & self.condition(tree.expression), pa.bool_()

    def _or(self, tree: Expr) -> Column:
        left = self.condition(tree.this)
        with self.needed_where(~pc.coalesce(left, pc.scalar(False))):
            return left | self.condition(tree.expression), pa.bool_()

    def _is(self, tree: Expr) -> Column:
        value, name = self.value(tree.this), type(tree.expression).__name__
        if name == "Null":
            return value.expression.is_null(), pa.bool_()
        if name != "Boolean":
            raise InvalidExpression(f"{tree.sql('duckdb')!r:.200}: is null, is true and is false are supported")
        holds = self.condition(tree.this)
        return pc.coalesce(holds if tree.expression.this else ~holds, pc.scalar(False)), pa.bool_()

    def _nullsafeeq(self, tree: Expr) -> Column:
        left, right = self.value(tree.this), self.value(tree.expression)
        both_null = left.expression.is_null() & right.expression.is_null()
        return pc.coalesce(self._compared(tree, left, "=", right), both_null), pa.bool_()

    def _nullsafeneq(self, tree: Expr) -> Column:
        return ~self._nullsafeeq(tree)[0], pa.bool_()

    def _between(self, tree: Expr) -> Column:
        value = self.value(tree.this)
        ends = [(">=", self.value(tree.args["low"])), ("<=", self.value(tree.args["high"]))]
        low, high = (self._compared(tree, value, operator, end) for operator, end in ends)
        return low & high, pa.bool_()

    def _in(self, tree: Expr) -> Column:
        if not tree.expressions:
            raise InvalidExpression(f"a subquery is not supported, in {tree.sql('duckdb')!r:.200}")
        value, items = self.value(tree.this), [self.value(each) for each in tree.expressions]
        if value.literal is None and all(item.literal is not None or item.is_null for item in items):
            held = [item.literal for item in items if not item.is_null]
            found = is_in(value.column, held, value.text, negated=False).exact
            if len(held) < len(items):
                found = pc.if_else(pc.coalesce(found, pc.scalar(False)), pc.scalar(True), null_of(pa.bool_()))
            return where_valid([value.expression], found), pa.bool_()
        return reduce(lambda a, b: a | b, (self._compared(tree, value, "=", item) for item in items)), pa.bool_()

    def _like(self, tree: Expr, escape: str | None = None, any_case: bool = False) -> Column:
        text, pattern = self._text(tree.this), self._constant(tree.expression)
        holds = matches_like((text, pa.string()), pattern, escape, tree.this.sql(), any_case=any_case).exact
        return where_valid([text], ~holds if tree.args.get("negate") else holds), pa.bool_()

    def _ilike(self, tree: Expr) -> Column:
        return self._like(tree, any_case=True)

    def _escape(self, tree: Expr) -> Column:
        name = type(tree.this).__name__
        if name not in ("Like", "ILike"):
            raise InvalidExpression(f"{tree.sql('duckdb')!r:.200}: escape belongs to like")
        return self._like(tree.this, self._constant(tree.expression), any_case=name == "ILike")

    # -------------------------------------------------------------------------------------------------------- branches

    def _case(self, tree: Expr) -> Column:
        ifs = tree.args["ifs"]
        subject = None if tree.this is None else self.value(tree.this)
        conditions: list[pc.Expression] = []
        values: list[Value] = []

        def branch(index: int) -> None:
            if index == len(ifs):
                default = tree.args.get("default")
                values.append(null_value() if default is None else self.value(default))
                return
            each = ifs[index]
            if subject is None:
                holds = self.condition(each.this)
            else:
                holds = self._compared(tree, subject, "=", self.value(each.this))
            holds = pc.coalesce(holds, pc.scalar(False))
            conditions.append(holds)
            with self.needed_where(holds):
                values.append(self.value(each.args["true"]))
            with self.needed_where(~holds):
                branch(index + 1)

        branch(0)
        return self._chosen(tree, conditions, values)

    def _if(self, tree: Expr) -> Column:
        holds = pc.coalesce(self.condition(tree.this), pc.scalar(False))
        with self.needed_where(holds):
            first = self.value(tree.args["true"])
        with self.needed_where(~holds):
            other = null_value() if tree.args.get("false") is None else self.value(tree.args["false"])
        return self._chosen(tree, [holds], [first, other])

    def _chosen(self, tree: Expr, conditions: Sequence[pc.Expression], values: Sequence[Value]) -> Column:
        common = self._common(values, tree)
        if pt.is_null(common):
            return pc.scalar(None), common
        expression = self._as(values[-1], common)
        for holds, value in zip(reversed(conditions), reversed(values[:-1]), strict=True):
            expression = pc.if_else(holds, self._as(value, common), expression)
        return expression, common

    def _coalesce(self, tree: Expr) -> Column:
        values = [self.value(tree.this)]
        for each in tree.expressions:
            with self.needed_where(reduce(lambda a, b: a & b, (value.expression.is_null() for value in values))):
                values.append(self.value(each))
        common = self._common(values, tree)
        if pt.is_null(common):
            return pc.scalar(None), common
        return pc.coalesce(*(self._as(value, common) for value in values)), common

    def _nullif(self, tree: Expr) -> Column:
        value, other = self.value(tree.this), self.value(tree.expression)
        if value.is_null:
            return value.column
        same = pc.coalesce(self._compared(tree, value, "=", other), pc.scalar(False))
        return pc.if_else(same, null_of(value.type), value.expression), value.type

    def _greatest(self, tree: Expr) -> Column:
        return self._extreme(tree, pc.max_element_wise)

    def _least(self, tree: Expr) -> Column:
        return self._extreme(tree, pc.min_element_wise)

    def _extreme(self, tree: Expr, function: Callable[..., pc.Expression]) -> Column:
        values = [self.value(each) for each in (tree.this, *tree.expressions)]
        common = self._common(values, tree)
        if pt.is_null(common):
            return pc.scalar(None), common
        return function(*(self._as(value, common) for value in values)), common

    # ------------------------------------------------------------------------------------------------------------ types

    def _as(self, value: Value, target: pa.DataType) -> pc.Expression:
        """Return a value in another type of the same values; literals are converted here."""
        if value.is_null:
            return null_of(target)
        if value.literal is not None:
            return pc.scalar(converted(value, target))
        if value.type.equals(target):
            return value.expression
        return self._converted(value.expression, value.type, target)

    def _common(self, values: Sequence[Value], tree: Expr) -> pa.DataType:
        """Return the type that holds all values; a text literal takes the type of a date or a time beside it."""
        firm = [value for value in values if value.literal is None and not value.is_null]
        soft = [value for value in values if value.literal is not None]
        others = [value.type for value in soft if not (firm and isinstance(value.literal, str))]
        common = reduce(lambda a, b: self._joined(a, b, tree), [*(value.type for value in firm), *others], pa.null())
        for value in soft:
            converted(value, common)
        return common

    def _joined(self, a: pa.DataType, b: pa.DataType, tree: Expr) -> pa.DataType:
        if a.equals(b) or pt.is_null(a):
            return b
        if is_number(a) and is_number(b):
            return joined_numbers(a, b)
        if is_string(a) and is_string(b):
            return pa.string()
        if is_moment(a) and is_moment(b):
            units = [each.unit for each in (a, b) if pt.is_timestamp(each)]
            zoned = any(pt.is_timestamp(each) and each.tz for each in (a, b))
            return pa.timestamp("ns" if "ns" in units else "us", "UTC" if zoned else None)
        raise InvalidExpression(f"{tree.sql('duckdb')!r:.200} has values of type {a} and of type {b} in one place")


def _decimal(precision: int, scale: int) -> pa.DataType:
    return (pa.decimal256 if precision > 38 else pa.decimal128)(precision, scale)
