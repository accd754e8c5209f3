"""Columns of a table of MariaDB, by the names of their types and by the Arrow types that their values have here (pure)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from lakefmt._core.cdc.events import SourceName, SourceTable
from lakefmt.errors import SourceRefused

__all__ = ["HINTS", "SourceColumn", "column_of_server", "is_whole_number", "source_table", "value_type"]

#: Types that the log shows as bytes: only the server says what they are.
HINTS: Final = frozenset(("uuid", "inet4", "inet6"))
#: Decimals of more digits are strings: neither Avro nor Parquet's readers know them.
_MOST_DIGITS: Final = 38
_STRINGS: Final = frozenset(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json"))
_BINARIES: Final = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
_GEOMETRIES: Final = frozenset(
    (
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
    )
)
_INTEGERS: Final = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint"))
_ARROW_TYPES: Final = {
    **{name: pa.int32() for name in ("tinyint", "smallint", "mediumint", "int", "year")},
    **{f"{name} unsigned": pa.int32() for name in ("tinyint", "smallint", "mediumint")},
    "int unsigned": pa.int64(),
    "bigint": pa.int64(),
    "bigint unsigned": pa.decimal128(20, 0),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "time": pa.int64(),
    "enum": pa.string(),
    "set": pa.list_(pa.string()),
    "string": pa.string(),
    "binary": pa.binary(),
    "geometry": pa.binary(),
    "uuid": pa.string(),
    "inet4": pa.string(),
    "inet6": pa.string(),
}


class SourceColumn(NamedTuple):
    """A column; `type` is a name of this module: one of the server's, without what changes no value's type."""

    name: str
    type: str
    is_nullable: bool

    def to_json(self) -> list[object]:
        """Return what :meth:`of_json` makes a column of."""
        return [self.name, self.type, int(self.is_nullable)]

    @classmethod
    def of_json(cls, value: Sequence[object]) -> SourceColumn:
        """Return the column of a position."""
        name, type_name, is_nullable = value
        return cls(str(name), str(type_name), bool(is_nullable))


def value_type(type: str) -> pa.DataType:
    """Return the type that values of a column have here.

    Example:
        >>> value_type("decimal(10,2)"), value_type("bit(1)"), value_type("bit(9)")
        (Decimal128Type(decimal128(10, 2)), DataType(bool), DataType(binary))
    """
    if type.startswith("decimal("):
        digits, scale = map(int, type[8:-1].split(","))
        return pa.decimal128(digits, scale) if digits <= _MOST_DIGITS else pa.string()
    if type.startswith("bit("):
        return pa.bool_() if type == "bit(1)" else pa.binary()
    return _ARROW_TYPES[type]


def is_whole_number(type: str) -> bool:
    """Return whether the values of a column are whole numbers to the server, too: a time is one here alone.

    Example:
        >>> is_whole_number("int unsigned"), is_whole_number("time")
        (True, False)
    """
    return type.removesuffix(" unsigned") in _INTEGERS or type == "year"


def column_of_server(name: str, data_type: str, column_type: str, *, is_nullable: bool) -> SourceColumn:
    """Return a column as `information_schema.columns` describes it.

    Raises:
        SourceRefused: its type is not known.

    Example:
        >>> column_of_server("n", "int", "int(8) unsigned zerofill", is_nullable=False).type
        'int unsigned'
    """
    type_name = data_type.lower()
    if type_name in _INTEGERS:
        type_name += " unsigned" * ("unsigned" in column_type.lower())
    elif type_name in ("decimal", "bit"):
        digits = re.search(r"\(([\d,]+)\)", column_type)
        type_name += f"({digits[1] if digits else '1'})"
    elif type_name in _STRINGS:
        type_name = "string"
    elif type_name in _BINARIES:
        type_name = "binary"
    elif type_name in _GEOMETRIES:
        type_name = "geometry"
    elif type_name not in _ARROW_TYPES:
        raise SourceRefused(f"column {name} has the type {column_type}, which cannot be read")
    return SourceColumn(name, type_name, is_nullable)


def source_table(name: SourceName, columns: Sequence[SourceColumn], keys: Sequence[str]) -> SourceTable:
    """Return the table that a sink sees."""
    fields = [pa.field(column.name, value_type(column.type), column.is_nullable) for column in columns]
    return SourceTable(name, pa.schema(fields), tuple(keys))
