"""Parse a schema from one line of text: ``id:string!,ts:timestamp[us],tags:list<string>,price:decimal(10,2)`` (pure).

::

    schema  = field ("," field)*
    field   = name ":" type ["!"]                     "!": no nulls
    type    = word | "decimal(" precision "," scale ")" | "timestamp[" unit ["," zone] "]" | "time[" unit "]"
            | "list<" type ">" | "map<" type "," type ">" | "struct<" schema ">"
    name    = letters, digits and "_", not beginning with a digit
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError

__all__ = ["parse_schema"]

_MAX_TEXT = 1 << 20
_MAX_DEPTH = 32

_WORDS: dict[str, Callable[[], pa.DataType]] = {
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
_TOKEN = re.compile(r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>[0-9]{1,3})|(?P<sign>[:,!<>()\[\]]))")
_ZONE = "UTC"


def parse_schema(text: str) -> pa.Schema:
    """Return the schema of a text; a timestamp without a unit has microseconds and the zone UTC.

    Raises:
        InvalidInputError: a syntax error; the message contains its position.

    Example:
        >>> parse_schema("id:string!, tags:list<string>, at:timestamp").field("at").type
        TimestampType(timestamp[us, tz=UTC])
    """
    if len(text) > _MAX_TEXT:
        raise InvalidInputError(f"a schema of {len(text):,} characters is too long")
    reader = _Reader(text)
    fields = reader.fields()
    reader.expect_end()
    return pa.schema(fields)


@dataclass
class _Reader:
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
        kind = self.kind()
        return pa.field(name, kind, nullable=not self.accept("!"))

    def kind(self) -> pa.DataType:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise self.wrong(f"types are nested more than {_MAX_DEPTH} deep")
        word = self.take("word", "a type")
        reader = _NESTED.get(word)
        if reader is None and word not in _WORDS:
            raise self.wrong(f"unknown type {word!r}: expected one of {', '.join(sorted({*_WORDS, *_NESTED}))}")
        parsed = _WORDS[word]() if reader is None else reader(self)
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
            return pa.timestamp("us", _ZONE)
        unit = self.unit(("ms", "us"))
        zone = None
        if self.accept(","):
            zone = self.take("word", "a zone")
            if zone != _ZONE:
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

    def take(self, group: str, wanted: str) -> str:
        match = _TOKEN.match(self.text, self.place)
        if match is None or match[group] is None:
            raise self.wrong(f"expected {wanted}", self.place)
        self.began, self.place = match.start(group), match.end()
        return match[group]

    def accept(self, sign: str) -> bool:
        match = _TOKEN.match(self.text, self.place)
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

    def wrong(self, why: str, place: int | None = None) -> InvalidInputError:
        place = self.began if place is None else place
        rest = self.text[place : place + 20]
        return InvalidInputError(f"{why} at character {place + 1}" + (f", {rest!r}" if rest else ", the end"))


_NESTED: dict[str, Callable[[_Reader], pa.DataType]] = {
    "list": _Reader.list_,
    "map": _Reader.map_,
    "struct": _Reader.struct,
    "decimal": _Reader.decimal,
    "timestamp": _Reader.timestamp,
    "time": _Reader.time,
}
