"""What an Arrow expression implies of the columns of the rows that it keeps: values, ranges and nulls (pure).

An expression cannot be walked, but it can be pickled: as an Arrow file, whose schema names calls, columns and literals one
behind the other (``Serialize`` in Arrow's ``expression.cc``), and which has the literals in their types. From them a
condition is made that holds for every row that the expression keeps. It takes no part in what is kept: that is Arrow's to
say. What is not known here, or what Arrow may compare otherwise than exactly, says nothing.

PyArrow gives the metadata of a schema as a dictionary, in which a name that is there twice is found once, so they are
decoded from Arrow's message. A message is a FlatBuffer: Arrow's ``Message.fbs`` and ``Schema.fbs`` have its tables, and
FlatBuffers' page on internals says how tables lie in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import islice
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt.data_classes import dataclass, replace
from lakefmt.errors import CorruptFile, InvalidFilter, LakefmtError
from lakefmt.read.filter_terms import Condition, all_of, any_of, compare, compare_columns, exactly, find_column, is_in

__all__ = [
    "Implied",
    "decode_schema_metadata",
    "implied_by",
]

#: In front of the length of a message, since Arrow 0.15.
_MESSAGE_MARK: Final = b"\xff\xff\xff\xff"
_MESSAGE_PREFIX_BYTES: Final = 8
#: Message.header_type, whose value for a schema is 1, and Message.header.
_HEADER_TYPE, _HEADER, _IS_SCHEMA = 1, 2, 1
_CUSTOM_METADATA: Final = 2
_KEY, _VALUE = 0, 1
_OFFSET_BYTES: Final = 4
_MOST_METADATA_ENTRIES: Final = 1_000_000


def decode_schema_metadata(message: bytes) -> list[tuple[str, str]]:
    """Return the names and values that a schema has beside its fields.

    Parameters:
        message: what ``pyarrow.Schema.serialize`` returns.

    Raises:
        CorruptFile: it is another thing, or damaged.

    Example:
        >>> import pyarrow as pa
        >>> decode_schema_metadata(pa.schema([], {"a": "1", "b": ""}).serialize().to_pybytes())
        [('a', '1'), ('b', '')]
    """
    if message[:4] != _MESSAGE_MARK:
        raise CorruptFile("an Arrow message does not begin as one")
    tables = _FlatBuffer(message[_MESSAGE_PREFIX_BYTES:])
    root = tables.number(0, 4)
    kind = tables.field(root, _HEADER_TYPE)
    if kind is None or tables.number(kind, 1) != _IS_SCHEMA:
        raise CorruptFile("an Arrow message is of no schema")
    schema = tables.followed(tables.field(root, _HEADER))
    entries = tables.field(schema, _CUSTOM_METADATA)
    if entries is None:
        return []
    return [
        (tables.text(tables.field(entry, _KEY)), tables.text(tables.field(entry, _VALUE)))
        for entry in tables.items(tables.followed(entries))
    ]


class _FlatBuffer:
    """The tables of a FlatBuffer. A place is that of a byte."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self, place: int, size: int) -> int:
        """Return the number of some bytes at a place."""
        if not 0 <= place <= len(self._data) - size:
            raise CorruptFile("an Arrow message ends too soon")
        return int.from_bytes(self._data[place : place + size], "little")

    def field(self, table: int, number: int) -> int | None:
        """Return where the value of a table's field is; None: it is left out."""
        # A table begins with how far its list of fields is before it, and that with its own length and the table's.
        back = self.number(table, 4)
        fields = table - (back - (1 << 32) if back >= 1 << 31 else back)
        entry = 4 + 2 * number
        offset = self.number(fields + entry, 2) if entry + 2 <= self.number(fields, 2) else 0
        return table + offset if offset else None

    def followed(self, place: int | None) -> int:
        """Return where what stands elsewhere begins."""
        if place is None:
            raise CorruptFile("an Arrow message leaves out what it has to say")
        return place + self.number(place, 4)

    def items(self, vector: int) -> list[int]:
        """Return where the tables of a vector begin."""
        count = self.number(vector, 4)
        first = vector + 4
        if count > _MOST_METADATA_ENTRIES or first + _OFFSET_BYTES * count > len(self._data):
            raise CorruptFile(f"an Arrow message has {count:,} items")
        return [self.followed(first + _OFFSET_BYTES * number) for number in range(count)]

    def text(self, place: int | None) -> str:
        """Return the text of a field."""
        begin = self.followed(place)
        size = self.number(begin, 4)
        if size > len(self._data) - begin - 4:
            raise CorruptFile("an Arrow message ends too soon")
        try:
            return self._data[begin + 4 : begin + 4 + size].decode()
        except UnicodeDecodeError as error:
            raise CorruptFile(f"an Arrow message has a text that is none: {error}") from None


_COMPARISONS: Final = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
#: Whether a call is true where all of its arguments are; otherwise it is where one is.
_IS_CONJUNCTION: Final = {"and_kleene": True, "and": True, "or_kleene": False, "or": False}
_MOST_LISTED_VALUES: Final = 10_000
#: Up to here whole numbers and doubles are the same numbers.
_MOST_EXACT_INTEGER: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class Implied:
    """What is known of the rows that an expression keeps.

    Attributes:
        condition: holds for all of them; None: nothing is known.
        may_fail: computing the expression may be an error.
    """

    condition: Condition | None
    may_fail: bool


@dataclass(frozen=True, slots=True)
class _Column:
    path: tuple[str, ...]
    expression: pc.Expression
    kind: pa.DataType

    @property
    def name(self) -> str:
        return ".".join(self.path)


#: An argument: a column, a literal, or what is known where a call is true or, if it stands in a negation, false.
_Argument: TypeAlias = "_Column | pa.Scalar | Condition | None"


@dataclass(slots=True)
class _Call:
    """A call whose arguments are read.

    Attributes:
        name: of the function.
        negated: the rows count where it is false.
        arguments: so far.
        options: of the function.
    """

    name: str
    negated: bool
    arguments: list[_Argument] = field(default_factory=list)
    options: pa.Scalar | None = None

    @property
    def joins_all(self) -> bool:
        """Whether a call that joins conditions counts where all hold."""
        return _IS_CONJUNCTION[self.name] != self.negated


def implied_by(given: pc.Expression, schema: pa.Schema) -> Implied:
    """Return what is known of the rows that an Arrow expression keeps.

    Parameters:
        given: the expression.
        schema: the columns.

    Example:
        >>> known = implied_by(~((pc.field("n") != 3) | (pc.list_value_length(pc.field("q")) > 1)),
        ...     pa.schema([("n", pa.int64()), ("q", pa.list_(pa.string()))]))
        >>> known.condition.values["n"].to_pylist(), known.condition.pruning, known.may_fail
        ([3], <pyarrow.compute.Expression (n == 3)>, True)
    """
    try:
        reader = _ExpressionReader(schema)
        return Implied(reader.read(_expression_parts(given)), reader.may_fail)
    except (LakefmtError, pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        return Implied(None, may_fail=True)  # a form that is not known: a filter can do without


def _expression_parts(given: pc.Expression) -> Iterator[tuple[str, object]]:
    """Yield the parts of an expression: their kinds, and names or literals."""
    _, (data,) = given.__reduce__()
    with pa.ipc.open_file(data) as file:
        literals = file.get_batch(0)
        for kind, text in decode_schema_metadata(file.schema.serialize().to_pybytes()):
            yield kind, literals.column(int(text))[0] if kind in ("literal", "options") else text


class _ExpressionReader:
    """Reads the parts of an expression once, from the first to the last: a long chain is a deep tree."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self.may_fail = False

    def read(self, parts: Iterator[tuple[str, Any]]) -> Condition | None:
        """Return what is known where the expression is true.

        Raises:
            CorruptFile: the parts are not those of an expression.
        """
        calls = [_Call("", negated=False)]
        for kind, value in parts:
            call = calls[-1]
            if kind == "call":
                calls.append(_Call(value, negated=call.negated != (call.name == "invert")))
            elif kind == "end" and call.name == value and len(calls) > 1:
                calls.pop()
                above = calls[-1]
                if call.name in _IS_CONJUNCTION and above.name in _IS_CONJUNCTION and call.joins_all == above.joins_all:
                    above.arguments += call.arguments  # one chain
                else:
                    above.arguments.append(self._known(call))
            elif kind == "options":
                call.options = value
            elif kind in ("literal", "field_ref", "nested_field_ref"):
                call.arguments.append(self._argument(kind, value, parts))
            else:
                raise CorruptFile(f"an expression has a part {kind!r:.80}")
        if len(calls) != 1 or len(calls[0].arguments) != 1:
            raise CorruptFile("an expression has no end")
        return self._truth(calls[0].arguments[0], negated=False)

    def _argument(self, kind: str, value: Any, parts: Iterator[tuple[str, Any]]) -> _Argument:
        if kind == "literal":
            return value
        path = (value,) if kind == "field_ref" else tuple(name for _, name in islice(parts, int(value)))
        column = find_column(self._schema, path) if path else None
        return None if column is None else _Column(path, *column)

    def _unknown(self) -> Condition | None:
        self.may_fail = True
        return None

    def _truth(self, argument: _Argument, *, negated: bool) -> Condition | None:
        """Return what is known where an argument is true, or false."""
        if isinstance(argument, _Column) and pt.is_boolean(argument.kind):
            return exactly(~argument.expression if negated else argument.expression)
        if isinstance(argument, pa.BooleanScalar):
            return exactly(pc.scalar(argument.is_valid and argument.as_py() != negated))
        return argument if isinstance(argument, Condition) else None

    def _known(self, call: _Call) -> Condition | None:
        """Return what is known where a call is true, or false where it is negated."""
        if call.name in _IS_CONJUNCTION:
            conditions = [self._truth(each, negated=call.negated) for each in call.arguments]
            some = [each for each in conditions if each is not None]
            if call.joins_all:
                return all_of(some) if some else None
            return any_of(some) if len(some) == len(conditions) else None
        if call.name == "invert" and len(call.arguments) == 1:
            return self._truth(call.arguments[0], negated=not call.negated)
        if call.name in _COMPARISONS and len(call.arguments) == 2:
            return self._comparison(_COMPARISONS[call.name], call.arguments, negated=call.negated)
        column = call.arguments[0] if len(call.arguments) == 1 else None
        if isinstance(column, _Column):
            if call.name in ("is_null", "is_valid"):
                return _null_condition(column, call)
            if call.name == "is_in" and isinstance(call.options, pa.StructScalar):
                return self._is_in(column, call.options, negated=call.negated)
        return self._unknown()

    def _comparison(self, operator: str, sides: Sequence[_Argument], *, negated: bool) -> Condition | None:
        left, right = sides
        if isinstance(left, pa.Scalar):
            left, right, operator = right, left, _FLIPPED.get(operator, operator)
        if isinstance(left, _Column) and isinstance(right, _Column) and left.kind.equals(right.kind):
            columns = [(each.expression, each.kind) for each in (left, right)]
            return compare_columns(columns[0], operator, columns[1], negated=negated)
        if not isinstance(left, _Column) or not isinstance(right, pa.Scalar) or not _is_exact(left.kind, right):
            return self._unknown()
        self.may_fail |= not _is_cast_safely(left.kind, right.type)
        try:
            condition = compare((left.expression, left.kind), operator, right, left.name, negated=negated)
        except InvalidFilter:
            return self._unknown()
        return self._named(left, condition)

    def _is_in(self, column: _Column, options: pa.StructScalar, *, negated: bool) -> Condition | None:
        values = options["value_set"].values
        self.may_fail |= not column.kind.equals(values.type)
        if negated or len(values) > _MOST_LISTED_VALUES or not _are_alike(column.kind, values.type):
            return None  # where it is false there may be a null
        if pt.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            return None  # Arrow finds NaN in a list that holds it
        try:
            condition = is_in((column.expression, column.kind), values.drop_null(), column.name, negated=False)
        except InvalidFilter:
            return self._unknown()
        listed = self._named(column, condition)
        return any_of([listed, exactly(column.expression.is_null())]) if values.null_count else listed

    def _named(self, column: _Column, condition: Condition) -> Condition:
        """Return a condition, without values where the column's name has several meanings."""
        is_plain = all("." not in part for part in column.path) and (
            len(column.path) == 1 or self._schema.get_field_index(column.name) < 0
        )
        return condition if is_plain else replace(condition, values={})


def _null_condition(column: _Column, call: _Call) -> Condition | None:
    """Return what is known where a column is null, or is not."""
    options = call.options
    counts_nan = isinstance(options, pa.StructScalar) and options["nan_is_null"].as_py() and pt.is_floating(column.kind)
    if (call.name == "is_null") != call.negated:
        return None if counts_nan else exactly(column.expression.is_null())
    return exactly(column.expression.is_valid())


def _is_exact(kind: pa.DataType, literal: pa.Scalar) -> bool:
    """Return whether Arrow compares a column with a literal as numbers, texts and moments are, whatever it casts."""
    if not literal.is_valid or _are_alike(kind, literal.type):
        return True
    if (pt.is_floating(kind) and pt.is_integer(literal.type)) or (pt.is_integer(kind) and pt.is_floating(literal.type)):
        return bool(abs(literal.as_py()) < _MOST_EXACT_INTEGER)
    return False


def _are_alike(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether values of two types are compared without loss."""
    if pt.is_timestamp(kind) and pt.is_timestamp(other):
        return (kind.tz is None) == (other.tz is None)
    if pt.is_decimal(kind) and pt.is_decimal(other):
        return bool(kind.scale == other.scale)  # with others Arrow 17 is wrong
    tests = (_is_text, _is_bytes, pt.is_boolean, pt.is_integer, pt.is_floating, pt.is_date32, pt.is_time)
    return any(test(kind) and test(other) for test in tests)


def _is_cast_safely(kind: pa.DataType, other: pa.DataType) -> bool:
    """Return whether no value of a type fails to be compared with a literal of another type."""
    tests = (_is_text, pt.is_signed_integer, pt.is_floating)
    return bool(kind.equals(other)) or any(test(kind) and test(other) for test in tests)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind))
