"""Schemas and types as one line of text: ``id:string!,ts:timestamp``. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from lakefmt._core.data_classes import dataclass
from lakefmt.errors import InvalidInputError

__all__ = ["parse_schema", "parse_type"]

_MAX_SCHEMA_TEXT = 1 << 20
_MAX_TYPE_DEPTH = 32
_TYPE_WORDS: dict[str, Callable[[], pa.DataType]] = {
    "string": pa.string,
    "binary": pa.binary,
    "bool": pa.bool_,
    "boolean": pa.bool_,
    "int": pa.int32,
    "int32": pa.int32,
    "long": pa.int64,
    "int64": pa.int64,
    "float": pa.float32,
    "float32": pa.float32,
    "double": pa.float64,
    "float64": pa.float64,
    "date": pa.date32,
}
_SCHEMA_TOKEN = re.compile(r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>[0-9]{1,3})|(?P<sign>[:,!<>()\[\]]))")
_SCHEMA_ZONE = "UTC"


def parse_schema(text: str) -> pa.Schema:
    """Return the schema of a text such as ``id:string!,ts:timestamp[us],tags:list<string>,price:decimal(10,2)``. Pure.

    A timestamp without a unit has microseconds and the zone UTC. The grammar::

        schema  = field ("," field)*
        field   = name ":" type ["!"]                     "!": no nulls
        type    = word | "decimal(" precision "," scale ")" | "timestamp[" unit ["," zone] "]" | "time[" unit "]"
                | "list<" type ">" | "map<" type "," type ">" | "struct<" schema ">"
        name    = letters, digits and "_", not beginning with a digit

    Raises:
        InvalidInputError: a syntax error; the message contains its position.

    Example:
        >>> parse_schema("id:string!, tags:list<string>, at:timestamp").field("at").type
        TimestampType(timestamp[us, tz=UTC])
    """
    if len(text) > _MAX_SCHEMA_TEXT:
        raise InvalidInputError(f"a schema of {len(text):,} characters is too long")
    reader = _SchemaReader(text)
    fields = reader.fields()
    reader.expect_end()
    return pa.schema(fields)


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type of a text such as ``long`` or ``list<string>``, as :func:`parse_schema` reads types. Pure.

    Raises:
        InvalidInputError: a syntax error; the message contains its position.

    Example:
        >>> parse_type("decimal(10,2)")
        Decimal128Type(decimal128(10, 2))
    """
    reader = _SchemaReader(text)
    parsed = reader.kind()
    reader.expect_end()
    return parsed


@dataclass
class _SchemaReader:
    """Reads a text from left to right; each method moves `place` past what it has read."""

    text: str
    place: int = 0
    began: int = 0
    depth: int = 0

    def fields(self) -> list[pa.Field]:
        members = [self.field()]
        while self.accept(","):
            members.append(self.field())
        names = [field.name for field in members]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise self.wrong(f"column {twice[0]} appears twice", self.place)
        return members

    def field(self) -> pa.Field:
        name = self.take("word", "a column name")
        self.expect(":")
        data_type = self.kind()
        return pa.field(name, data_type, nullable=not self.accept("!"))

    def kind(self) -> pa.DataType:
        self.depth += 1
        if self.depth > _MAX_TYPE_DEPTH:
            raise self.wrong(f"types are nested more than {_MAX_TYPE_DEPTH} deep")
        word = self.take("word", "a type")
        reader = _NESTED_TYPES.get(word)
        if reader is None and word not in _TYPE_WORDS:
            raise self.wrong(
                f"unknown type {word!r}: expected one of {', '.join(sorted({*_TYPE_WORDS, *_NESTED_TYPES}))}"
            )
        parsed = _TYPE_WORDS[word]() if reader is None else reader(self)
        self.depth -= 1
        return parsed

    def list_(self) -> pa.DataType:
        self.expect("<")
        item = self.kind()
        self.expect(">")
        return pa.list_(item)

    def map_(self) -> pa.DataType:
        self.expect("<")
        key = self.kind()
        self.expect(",")
        value = self.kind()
        self.expect(">")
        return pa.map_(key, value)

    def struct(self) -> pa.DataType:
        self.expect("<")
        fields = self.fields()
        self.expect(">")
        return pa.struct(fields)

    def decimal(self) -> pa.DataType:
        self.expect("(")
        precision = int(self.take("number", "a precision"))
        self.expect(",")
        scale = int(self.take("number", "a scale"))
        self.expect(")")
        if not (1 <= precision <= 38 and scale <= precision):
            raise self.wrong(
                f"decimal({precision},{scale}) is not a decimal type: precision is 1 to 38, scale at most the precision"
            )
        return pa.decimal128(precision, scale)

    def timestamp(self) -> pa.DataType:
        if not self.accept("["):
            return pa.timestamp("us", _SCHEMA_ZONE)
        unit = self.unit(("ms", "us"))
        zone = None
        if self.accept(","):
            zone = self.take("word", "a zone")
            if zone != _SCHEMA_ZONE:
                raise self.wrong(f"zone {zone!r} is not supported: tables store timestamps in UTC")
        self.expect("]")
        return pa.timestamp(unit, zone)

    def time(self) -> pa.DataType:
        unit = "us"
        if self.accept("["):
            unit = self.unit(("ms", "us"))
            self.expect("]")
        return pa.time64("us") if unit == "us" else pa.time32("ms")

    def unit(self, units: tuple[str, ...]) -> str:
        unit = self.take("word", "a unit")
        if unit not in units:
            raise self.wrong(f"unknown unit {unit!r}: expected {' or '.join(units)}")
        return unit

    # --- signs ---------------------------------------------------------------------------------------------------

    def take(self, group: str, expected_token: str) -> str:
        match = _SCHEMA_TOKEN.match(self.text, self.place)
        if match is None or match[group] is None:
            raise self.wrong(f"expected {expected_token}", self.place)
        self.began, self.place = match.start(group), match.end()
        return match[group]

    def accept(self, sign: str) -> bool:
        match = _SCHEMA_TOKEN.match(self.text, self.place)
        if match is None or match["sign"] != sign:
            return False
        self.place = match.end()
        return True

    def expect(self, sign: str) -> None:
        if not self.accept(sign):
            raise self.wrong(f"expected {sign!r}", self.place)

    def expect_end(self) -> None:
        if self.text[self.place :].strip():
            raise self.wrong("expected ',' or the end", self.place)

    def wrong(self, why: str, position: int | None = None) -> InvalidInputError:
        position = self.began if position is None else position
        rest = self.text[position : position + 20]
        return InvalidInputError(f"{why} at character {position + 1}" + (f", {rest!r}" if rest else ", the end"))


_NESTED_TYPES: dict[str, Callable[[_SchemaReader], pa.DataType]] = {
    "list": _SchemaReader.list_,
    "map": _SchemaReader.map_,
    "struct": _SchemaReader.struct,
    "decimal": _SchemaReader.decimal,
    "timestamp": _SchemaReader.timestamp,
    "time": _SchemaReader.time,
}
