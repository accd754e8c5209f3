"""The expressions of the headers ``columns`` and ``where``: StarRocks' SQL as expressions of Arrow (pure).

sqlglot reads them, and :mod:`lakefmt._core.read.sql_expressions` translates what it lists; another function is refused by its name, and no
text is evaluated. Two things are added: fields of a CSV file are texts, and are numbers where a number is needed; and the functions
``from_unixtime`` and ``str_to_date``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.loads.conversions import convert_texts, local_times
from lakefmt._core.loads.csv_rows import Mask
from lakefmt._core.loads.protocol import Refusal
from lakefmt._core.read.sql_expressions import compute_expressions, parse_expression
from lakefmt.errors import InvalidExpression

if TYPE_CHECKING:
    from datetime import tzinfo

    from sqlglot.expressions import DataType, Expr

__all__ = ["ColumnList", "Computed", "parse_columns"]

_MAX_ITEMS: Final = 10_000
#: Rows of a block for which an expression may fail.
_MOST_FAILING: Final = 1_000
_OWN: Final = re.compile(
    r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\b(from_unixtime|str_to_date|substr|replace)(?=\s*\()", re.IGNORECASE
)
_OWN_PREFIX: Final = "lakefmt_"
_NAME = re.compile(r"`([^`]+)`|([^\s`=()',\"]+)")
#: Nodes whose texts are numbers.
_NUMERIC: Final = frozenset(
    {"Add", "Sub", "Mul", "Div", "IntDiv", "Mod", "Neg", "Abs", "Round", "Floor", "Ceil", "Sqrt"}
)
_COMPARED: Final = frozenset({"EQ", "NEQ", "LT", "LTE", "GT", "GTE", "Between", "In"})
#: MySQL's signs of a date format, as Arrow has them; others are the same.
_DATE_SIGNS: Final = {"%i": "%M", "%s": "%S", "%T": "%H:%M:%S", "%k": "%H", "%e": "%d", "%c": "%m", "%M": "%B"}


@dataclass(frozen=True, slots=True)
class ColumnList:
    """The header ``columns``.

    Attributes:
        names: of the fields of a row, in their order.
        expressions: columns that are computed.
    """

    names: tuple[str, ...]
    expressions: Mapping[str, str]


def parse_columns(header_value: str) -> ColumnList:
    """Return what the header says.

    Raises:
        Refusal: it is no list of names and expressions, or names one twice.

    Example:
        >>> parse_columns("id, `v`, w = concat(v, ', '), __op")
        ColumnList(names=('id', 'v', '__op'), expressions={'w': "concat(v, ', ')"})
    """
    names, expressions = list[str](), dict[str, str]()
    for item in _items(header_value):
        match = _NAME.match(item)
        rest = "" if match is None else item[match.end() :].strip()
        if match is None or (rest and not rest.startswith("=")) or rest == "=":
            raise Refusal(
                f"Invalid columns: {item[:80]!r} is neither a name nor a name with an expression", rolls_back=True
            )
        name = match[1] or match[2]
        if name in expressions or (name in names and not rest):
            raise Refusal(f"Invalid columns: {name!r} is named twice", rolls_back=True)
        if rest:
            expressions[name] = rest[1:].strip()
        else:
            names.append(name)
    if not names:
        raise Refusal("Invalid columns: no field of the rows is named", rolls_back=True)
    return ColumnList(tuple(names), expressions)


def _items(header_value: str) -> list[str]:
    """Return the parts between commas that are outside quotes and parentheses."""
    items, depth, begin = list[str](), 0, 0
    for match in re.finditer(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|[(),]", header_value):
        sign = match[0]
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            items.append(header_value[begin : match.start()].strip())
            begin = match.end()
    items.append(header_value[begin:].strip())
    if items and not items[-1]:
        items.pop()
    if len(items) > _MAX_ITEMS or not all(items):
        raise Refusal("Invalid columns: a name is missing between commas, or there are too many", rolls_back=True)
    return items


class Computed:
    """An expression over the fields of a load, ready to be computed.

    Args:
        expression: of it.
        schema: the fields; those of CSV are texts.
        zone: of times that name none, and of those that are made of seconds; None: UTC.

    Raises:
        Refusal: it cannot be understood, names an unknown column or an unsupported function.

    Example:
        >>> Computed("a + 1", pa.schema([("a", pa.string())])).values(pa.table({"a": ["1", "x"]})).to_pylist()
        [2.0, None]
    """

    def __init__(self, expression: str, schema: pa.Schema, zone: tzinfo | None = None) -> None:
        self.text, self._schema, self._zone = expression, schema, zone
        #: Columns that are made before the expression is computed, in their order.
        self._made: list[tuple[str, Callable[[pa.Table], pa.ChunkedArray]]] = []
        self._numbers: dict[str, str] = {}
        import sqlglot  # slow import
        from sqlglot import errors

        own = _OWN.sub(_called, expression)
        try:
            tree = sqlglot.parse_one(own, dialect="mysql", into=sqlglot.exp.Condition)
            prepared = self._prepared(tree)
            self._expression = parse_expression(prepared.sql("duckdb"), self._schema)
        except (errors.SqlglotError, RecursionError) as error:
            raise Refusal(
                f"Invalid expression {expression[:200]!r}: {str(error).splitlines()[0][:200]}", rolls_back=True
            ) from None
        except InvalidExpression as error:
            raise Refusal(f"Invalid expression {expression[:200]!r}: {error}", rolls_back=True) from None

    @property
    def type(self) -> pa.DataType:
        """The type of its values."""
        return self._expression.type

    @property
    def columns(self) -> Sequence[str]:
        """The fields that there are."""
        return list(map(str, self._schema.names))

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return its value for each row.

        Raises:
            Refusal: it cannot be computed for a row.
        """
        for name, make in self._made:
            rows = rows.append_column(name, make(rows))
        try:
            return compute_expressions(rows, {"value": self._expression}).column("value")
        except InvalidExpression as error:
            raise Refusal(str(error), rolls_back=True) from None

    def tried(self, rows: pa.Table) -> tuple[pa.ChunkedArray, Mask]:
        """Return its value for each row, and which rows have none since it cannot be computed, such as by an overflow; there it is null.

        Raises:
            Refusal: there are too many of these.
        """
        attempts = [_MOST_FAILING]

        def attempt(some: pa.Table) -> list[tuple[pa.ChunkedArray, bool]]:
            try:
                return [(self.values(some), False)]
            except Refusal:
                attempts[0] -= some.num_rows == 1
                if some.num_rows < 1 or attempts[0] < 0:
                    raise
            if some.num_rows == 1:
                return [(pa.chunked_array([pa.nulls(1, self.type)]), True)]
            half = some.num_rows // 2
            return [*attempt(some.slice(0, half)), *attempt(some.slice(half))]

        parts = attempt(rows)
        values = pa.chunked_array([chunk for part, _ in parts for chunk in part.chunks], parts[0][0].type)
        return values, np.repeat([fails for _, fails in parts], [len(part) for part, _ in parts])

    # --- what the translator does not know ---------------------------------------------------------------------------------

    def _prepared(self, tree: Expr) -> Expr:
        from sqlglot import exp

        def change(node: Expr) -> Expr:
            if isinstance(node, exp.Anonymous) and node.this == f"{_OWN_PREFIX}replace":
                if len(node.expressions) != 3:
                    raise InvalidExpression("replace has three arguments")
                searched, old, new = node.expressions
                return exp.Replace(this=searched, expression=old, replacement=new)
            if isinstance(node, exp.Length):
                # MySQL's counts bytes; filters have characters only.
                return exp.Length(this=node.this)
            if isinstance(node, exp.Anonymous) and str(node.this).startswith(_OWN_PREFIX):
                return exp.column(self._own(str(node.this)[len(_OWN_PREFIX) :], node.expressions), quoted=True)
            if isinstance(node, exp.Mod | exp.IntDiv) and not isinstance(node.expression, exp.Nullif):
                # By zero comes to null.
                divisor = exp.Nullif(this=node.expression.copy(), expression=exp.Literal.number(0))
                node.set("expression", divisor)
            if isinstance(node, exp.Sqrt) and not isinstance(node.this, exp.Case):
                negative = exp.LT(this=node.this.copy(), expression=exp.Literal.number(0))
                node.set("this", exp.Case(ifs=[exp.If(this=negative, true=exp.Null())], default=node.this.copy()))
            if isinstance(node, exp.Cast | exp.TsOrDsToDate) and self._is_text(node.this):
                target = exp.DataType.build("date") if isinstance(node, exp.TsOrDsToDate) else node.to
                return exp.column(self._cast(node.this, target), quoted=True)
            if isinstance(node, exp.Column) and self._is_number(node):
                return exp.column(self._number(node.name), quoted=True)
            return node

        # From the inside out: what a function of ours gets may have one.
        for node in reversed(list(tree.walk())):
            changed = change(node)
            if changed is not node:
                if node is tree:
                    return changed
                node.replace(changed)
        return tree

    def _is_number(self, column: Expr) -> bool:
        """Return whether the text of a field stands where a number is needed."""
        if not self._is_text(column):
            return False
        parent: Any = column.parent
        while type(parent).__name__ == "Paren":
            parent = parent.parent
        class_name = type(parent).__name__
        if class_name in _NUMERIC:
            return True
        others = [part for part in parent.iter_expressions() if part is not column] if class_name in _COMPARED else []
        return any(type(part).__name__ == "Literal" and not part.is_string for part in others)

    def _is_text(self, node: Expr) -> bool:
        if type(node).__name__ == "Column":
            index = self._schema.get_field_index(node.name)
            return index >= 0 and bool(pt.is_string(self._schema.field(index).type))
        if type(node).__name__ == "Literal":
            return False
        try:
            return bool(pt.is_string(parse_expression(node.sql("duckdb"), self._schema).type))
        except InvalidExpression:
            return False  # the whole expression is refused for it

    def _cast(self, node: Expr, target: DataType) -> str:
        """Return the column that a cast of a text makes: what is no such value is null."""
        data_type = parse_expression(f"cast(null as {target.sql('duckdb')})", self._schema).type
        argument = self._argument(node)
        return self._add(data_type, lambda rows: convert_texts(argument(rows), data_type, self._zone)[0])

    def _argument(self, node: Expr) -> Callable[[pa.Table], pa.ChunkedArray]:
        """Return what computes an argument of a function of ours."""
        inner, before = parse_expression(node.sql("duckdb"), self._schema), tuple(self._made)

        def argument(rows: pa.Table) -> pa.ChunkedArray:
            for name, make in before:
                rows = rows if name in rows.column_names else rows.append_column(name, make(rows))
            return compute_expressions(rows, {"value": inner}).column("value")

        return argument

    def _add(self, data_type: pa.DataType, make: Callable[[pa.Table], pa.ChunkedArray]) -> str:
        name = f"_lakefmt_{len(self._made)}"
        self._made.append((name, make))
        self._schema = self._schema.append(pa.field(name, data_type))
        return name

    def _number(self, name: str) -> str:
        if name not in self._numbers:

            def numbers(rows: pa.Table) -> pa.ChunkedArray:
                return convert_texts(rows.column(name), pa.float64())[0]

            self._numbers[name] = self._add(pa.float64(), numbers)
        return self._numbers[name]

    def _own(self, function: str, arguments: Sequence[Expr]) -> str:
        if not 1 <= len(arguments) <= 2 or (function == "str_to_date" and len(arguments) != 2):
            raise InvalidExpression(f"{function} has another number of arguments")
        pattern = _DATE_FORMAT if len(arguments) == 1 else _format_of(function, arguments[1])
        argument = self._argument(arguments[0])
        if function == "str_to_date":
            return self._add(pa.timestamp("us"), lambda rows: _dates(argument(rows).cast(pa.string()), pattern))

        def moments(rows: pa.Table) -> pa.ChunkedArray:
            seconds = argument(rows)
            if pt.is_string(seconds.type):
                good = pc.match_substring_regex(seconds, r"^-?[0-9]{1,12}$")
                seconds = pc.if_else(pc.fill_null(good, False), seconds, None)
            elif pt.is_floating(seconds.type):
                seconds = pc.floor(seconds)
            seconds = seconds.cast(pa.int64())
            is_in_range = pc.and_(pc.greater_equal(seconds, 0), pc.less_equal(seconds, _LAST_SECOND))
            good = pc.if_else(is_in_range, seconds, None).cast(pa.timestamp("s")).cast(pa.timestamp("us"))
            return pc.strftime(local_times(good, self._zone).cast(pa.timestamp("s")), pattern)

        return self._add(pa.string(), moments)


#: The last one of the year 9999.
_LAST_SECOND: Final = 253_402_300_799


def _dates(strings: pa.ChunkedArray, date_format: str) -> pa.ChunkedArray:
    """Return the times of texts; of a day or second that there is not there is none, and strptime gives the next one."""
    moments = pc.strptime(strings, date_format, "s", error_is_null=True)
    pattern = _date_pattern(date_format)
    parts = pc.extract_regex(strings, pattern)
    for group, part in (("d", pc.day), ("S", pc.second)):
        if f"<{group}>" in pattern:
            number = pc.struct_field(parts, group).cast(pa.int64())
            is_other = pc.fill_null(pc.not_equal(number, part(moments)), False)
            moments = pc.if_else(is_other, pa.scalar(None, moments.type), moments)
    return moments.cast(pa.timestamp("us"))


def _date_pattern(date_format: str) -> str:
    r"""Return a regular expression of texts of a format, whose groups are the numbers of the day and the second.

    Example:
        >>> _date_pattern("%d/%m %%")
        '^(?P<d>[0-9]{1,2})/[0-9]{1,2}\\s*%$'
    """
    date_format = date_format.replace("%T", "%H:%M:%S").replace("%r", "%I:%M:%S %p")
    parts, groups = list[str](), set[str]()
    for match in re.finditer(r"%(.)|\s+|[^%\s]+|%", date_format, re.DOTALL):
        sign = match[1]
        if sign in ("d", "S") and sign not in groups:
            groups.add(sign)
            parts.append(f"(?P<{sign}>[0-9]{{1,2}})")
        elif sign in _DIGITS:
            parts.append(f"[0-9]{{1,{_DIGITS[sign]}}}")
        elif sign is None or sign == "%":
            parts.append(r"\s*" if match[0].isspace() else re.escape("%" if sign else match[0]))
        else:
            parts.append(".+?")
    return f"^{''.join(parts)}{'' if groups else '(?P<all>)'}$"


#: Signs of a date format that are numbers, and of how many digits.
_DIGITS: Final = {"Y": 4, **dict.fromkeys("ymdHIMS", 2), "j": 3}


def _called(match: re.Match[str]) -> str:
    """Return a name of a function as it is parsed; texts between quotes stay."""
    if not match[1]:
        return match[0]
    name = match[0].lower()
    return "substring" if name == "substr" else _OWN_PREFIX + name


_DATE_FORMAT: Final = "%Y-%m-%d %H:%M:%S"


def _format_of(function: str, node: Expr) -> str:
    if type(node).__name__ != "Literal" or not node.is_string:
        raise InvalidExpression(f"the format of {function} is a text")
    date_format = str(node.this).replace("yyyy", "%Y").replace("MM", "%m").replace("dd", "%d").replace("HH", "%H")
    date_format = date_format.replace("mm", "%i").replace("ss", "%s")
    return re.sub("%.", lambda found: _DATE_SIGNS.get(found[0], found[0]), date_format)
