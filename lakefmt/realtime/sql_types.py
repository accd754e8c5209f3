"""SQL types of columns: how they are stored, and how a table remembers them. Pure.

A table stores fewer types than SQL names: ``INT8`` is stored as a 32-bit integer, ``VARCHAR(10)`` as
text. The property :data:`SQL_TYPES` of a table keeps the names, as JSON by column; a column without an
entry has the SQL type that its stored type suggests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile, UnsupportedFeature

__all__ = [
    "MOST_CHARACTERS",
    "SQL_TYPES",
    "SqlField",
    "SqlKind",
    "SqlType",
    "arrow_type",
    "decode_types",
    "encode_types",
]

#: The property of a table that keeps the SQL types of its columns.
SQL_TYPES: Final = "lakefmt.sql.types"
#: The longest CHAR or VARCHAR, and the largest VECTOR.
MOST_CHARACTERS: Final = 1 << 30
_DEEPEST: Final = 32


class SqlKind(StrEnum):
    """The name of an SQL type, without its parameters."""

    BOOLEAN = "BOOLEAN"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    CHAR = "CHAR"
    VARCHAR = "VARCHAR"
    STRING = "STRING"
    JSON = "JSON"
    BINARY = "BINARY"
    DATE = "DATE"
    TIMESTAMP_LTZ = "TIMESTAMP_LTZ"
    TIMESTAMP_NTZ = "TIMESTAMP_NTZ"
    INTERVAL_DAY_TIME = "INTERVAL_DAY_TIME"
    INTERVAL_YEAR_MONTH = "INTERVAL_YEAR_MONTH"
    ARRAY = "ARRAY"
    MAP = "MAP"
    STRUCT = "STRUCT"
    VECTOR = "VECTOR"


@dataclass(frozen=True, slots=True)
class SqlType:
    """The SQL type of a column, an element or a field.

    Attributes:
        kind: its name.
        length: the most characters of CHAR and VARCHAR, the dimension of VECTOR; 0 elsewhere.
        precision: digits of DECIMAL; 0 elsewhere.
        scale: digits of DECIMAL behind the point.
        inner: the element of ARRAY and VECTOR; key and value of MAP; the fields of STRUCT.
    """

    kind: SqlKind
    length: int = 0
    precision: int = 0
    scale: int = 0
    inner: tuple[SqlField, ...] = ()

    def __str__(self) -> str:
        if self.kind is SqlKind.DECIMAL:
            return f"DECIMAL({self.precision},{self.scale})"
        if self.kind in (SqlKind.CHAR, SqlKind.VARCHAR):
            return f"{self.kind.value}({self.length})"
        if self.kind is SqlKind.VECTOR:
            return f"VECTOR({self.inner[0].type}, {self.length})"
        if self.kind is SqlKind.STRUCT:
            return f"STRUCT<{', '.join(f'{field.name}: {field.type}' for field in self.inner)}>"
        if self.inner:
            return f"{self.kind.value}<{', '.join(str(field.type) for field in self.inner)}>"
        return str(self.kind.value)


@dataclass(frozen=True, slots=True)
class SqlField:
    """A column, an element or a field: its name, SQL type and whether it may be null."""

    name: str
    type: SqlType
    nullable: bool = True


#: Kinds without parameters and the Arrow types that lakefmt stores for them.
_PLAIN: Final = {
    SqlKind.BOOLEAN: pa.bool_(),
    SqlKind.INT8: pa.int32(),
    SqlKind.INT16: pa.int32(),
    SqlKind.INT32: pa.int32(),
    SqlKind.INT64: pa.int64(),
    SqlKind.FLOAT: pa.float32(),
    SqlKind.DOUBLE: pa.float64(),
    SqlKind.CHAR: pa.string(),
    SqlKind.VARCHAR: pa.string(),
    SqlKind.STRING: pa.string(),
    SqlKind.JSON: pa.string(),
    SqlKind.BINARY: pa.binary(),
    SqlKind.DATE: pa.date32(),
    SqlKind.TIMESTAMP_LTZ: pa.timestamp("us", "UTC"),
    # The wall clock is stored as if it were UTC: hudi-rs does not read Avro's local timestamps.
    SqlKind.TIMESTAMP_NTZ: pa.timestamp("us", "UTC"),
    SqlKind.INTERVAL_DAY_TIME: pa.int64(),
}


def arrow_type(kind: SqlType, path: str = "") -> pa.DataType:
    """Return the Arrow type that a table stores for an SQL type; `path` is the column in errors.

    Raises:
        UnsupportedFeature: no column can have that type.

    Example:
        >>> arrow_type(SqlType(SqlKind.DECIMAL, precision=10, scale=2))
        Decimal128Type(decimal128(10, 2))
        >>> arrow_type(SqlType(SqlKind.ARRAY, inner=(SqlField("element", SqlType(SqlKind.INT8)),)))
        ListType(list<element: int32>)
    """
    if kind.kind is SqlKind.INTERVAL_YEAR_MONTH:
        raise UnsupportedFeature(
            f"column {path!r} has type INTERVAL_YEAR_MONTH, which cannot be stored: store a number of months"
        )
    if kind.kind is SqlKind.DECIMAL:
        return pa.decimal128(kind.precision, kind.scale)
    if not kind.inner:
        return _PLAIN[kind.kind]
    fields = [
        pa.field(inner.name, arrow_type(inner.type, f"{path}.{inner.name}"), inner.nullable) for inner in kind.inner
    ]
    if kind.kind is SqlKind.STRUCT:
        return pa.struct(fields)
    if kind.kind is not SqlKind.MAP:
        return pa.list_(fields[0].with_name("element"))
    if pt.is_string(fields[0].type):
        return pa.map_(pa.string(), fields[1].with_name("value"))
    # Avro's maps have text keys only.
    return pa.list_(
        pa.field("element", pa.struct([fields[0].with_name("key").with_nullable(False), fields[1]]), nullable=False)
    )


def encode_types(fields: tuple[SqlField, ...]) -> str:
    """Return the value of :data:`SQL_TYPES` for a table with these columns.

    Example:
        >>> encode_types((SqlField("a", SqlType(SqlKind.VARCHAR, length=3)),))
        '{"a":{"kind":"VARCHAR","length":3}}'
    """
    return json.dumps({field.name: _document(field.type) for field in fields}, separators=(",", ":"))


def _document(kind: SqlType) -> dict[str, Any]:
    document: dict[str, Any] = {"kind": kind.kind.value}
    document |= {name: getattr(kind, name) for name in ("length", "precision", "scale") if getattr(kind, name)}
    if kind.inner:
        document["inner"] = [[field.name, _document(field.type), field.nullable] for field in kind.inner]
    return document


def decode_types(text: str | None, schema: pa.Schema) -> tuple[SqlField, ...]:
    """Return the SQL types of a table's columns: those remembered where they fit what is stored, else the stored type's.

    Args:
        text: the table's property :data:`SQL_TYPES`; None where it has none.
        schema: the columns of the table.

    Raises:
        CorruptFile: the text is not what :func:`encode_types` returns.
        UnsupportedFeature: a column has a stored type without an SQL type.

    Example:
        >>> schema = pa.schema([("a", pa.string()), ("b", pa.int64())])
        >>> [str(field.type) for field in decode_types('{"a":{"kind":"VARCHAR","length":3}}', schema)]
        ['VARCHAR(3)', 'INT64']
    """
    remembered = {} if text is None else _remembered(text)
    return tuple(
        SqlField(field.name, _declared_or_stored(remembered.get(field.name), field), field.nullable) for field in schema
    )


def _remembered(text: str) -> dict[str, SqlType]:
    try:
        document = json.loads(text)
        if not isinstance(document, Mapping):
            raise TypeError("not an object")
        return {name: _sql_type(value, _DEEPEST) for name, value in document.items()}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptFile(
            f"the table's property {SQL_TYPES} does not say the SQL types of its columns ({error}): mend or remove it"
        ) from None


def _sql_type(document: object, depth: int) -> SqlType:
    if depth == 0:
        raise ValueError("nested too deeply")
    if not isinstance(document, Mapping):
        raise TypeError("a type is not an object")
    numbers = [document.get(name, 0) for name in ("length", "precision", "scale")]
    if not all(isinstance(number, int) and 0 <= number <= MOST_CHARACTERS for number in numbers):
        raise ValueError("a length, precision or scale is not a number in range")
    inner = tuple(
        SqlField(str(name), _sql_type(each, depth - 1), bool(nullable))
        for name, each, nullable in document.get("inner", ())
    )
    length, precision, scale = numbers
    return SqlType(SqlKind(document["kind"]), length, precision, scale, inner)


def _declared_or_stored(declared: SqlType | None, field: pa.Field) -> SqlType:
    # A column that was dropped and added again, or widened by another engine, has the type that is stored now.
    if declared is not None and _fits(declared, field.type):
        return declared
    return _stored(field.type, field.name)


def _fits(declared: SqlType, stored: pa.DataType) -> bool:
    try:
        return bool(arrow_type(declared) == stored or _shape(arrow_type(declared)) == _shape(stored))
    except (UnsupportedFeature, KeyError, ValueError, IndexError, pa.ArrowInvalid):
        return False


def _shape(kind: pa.DataType) -> str:
    """Return a type's text without names of elements and nullability, which engines write differently."""
    if pt.is_struct(kind):
        return (
            "{" + ",".join(f"{kind.field(i).name}:{_shape(kind.field(i).type)}" for i in range(kind.num_fields)) + "}"
        )
    if pt.is_map(kind):
        return f"map<{_shape(kind.item_type)}>"
    return f"[{_shape(kind.value_type)}]" if pt.is_list(kind) else str(kind)


_STORED: Final = {
    "bool": SqlKind.BOOLEAN,
    "int32": SqlKind.INT32,
    "int64": SqlKind.INT64,
    "float": SqlKind.FLOAT,
    "double": SqlKind.DOUBLE,
    "string": SqlKind.STRING,
    "binary": SqlKind.BINARY,
    "date32[day]": SqlKind.DATE,
}


def _stored(kind: pa.DataType, path: str) -> SqlType:
    plain = _STORED.get(str(kind))
    if plain is not None:
        return SqlType(plain)
    if pt.is_fixed_size_binary(kind) and not pt.is_decimal(kind):
        return SqlType(SqlKind.BINARY)
    if pt.is_timestamp(kind):
        return SqlType(SqlKind.TIMESTAMP_LTZ if kind.tz else SqlKind.TIMESTAMP_NTZ)
    if pt.is_decimal(kind):
        return SqlType(SqlKind.DECIMAL, precision=kind.precision, scale=kind.scale)
    if pt.is_list(kind):
        return SqlType(SqlKind.ARRAY, inner=(_inner(kind.value_field, f"{path}.element"),))
    if pt.is_map(kind):
        return SqlType(SqlKind.MAP, inner=(_inner(kind.key_field, path), _inner(kind.item_field, f"{path}.value")))
    if pt.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return SqlType(SqlKind.STRUCT, inner=tuple(_inner(field, f"{path}.{field.name}") for field in fields))
    raise UnsupportedFeature(
        f"column {path!r} has type {kind}, for which rows have no SQL type: write it as Arrow data"
    )


def _inner(field: pa.Field, path: str) -> SqlField:
    return SqlField(field.name, _stored(field.type, path), field.nullable)
