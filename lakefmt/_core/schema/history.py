"""Schemas with column ids and their history (docs/format.md, Schema history). Pure.

With ``hoodie.schema.on.read.enable`` every commit has an *internal schema* (Hudi: InternalSchema): columns with permanent
ids. Files are read by them, so that a column keeps its values under another name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.schema.avro import AVRO_DOC, decimal_bytes
from lakefmt._core.schema.types import struct_fields
from lakefmt._core.values import META_COLUMNS
from lakefmt.errors import CorruptFile

__all__ = [
    "LATEST_SCHEMA",
    "Column",
    "InternalSchema",
    "SchemaHistory",
    "columns_text",
    "decimal_of",
    "first_history",
    "kind_of",
    "number_columns",
    "parse_history",
    "parse_internal_schema",
]

#: The key of a commit's extra metadata with the internal schema.
LATEST_SCHEMA: Final = "latest_schema"
_MOST_DEPTH: Final = 64
_BEGIN: Final = '{"schemas":['
_RECORD, _ARRAY, _MAP = "record", "array", "map"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column, a nested field, the element of a list, or the key or value of a map.

    Attributes:
        number: its id, which it keeps for ever.
        kind: the type in Hudi's words; of nested types ``record``, ``array`` or ``map``.
        fields: of a record its fields, of an array its ``element``, of a map its ``key`` and ``value``.
    """

    number: int
    name: str
    kind: str
    optional: bool = True
    doc: str | None = None
    fields: tuple[Column, ...] = ()

    def numbers(self) -> Iterator[int]:
        """Yield the ids of the column and of all that it holds."""
        yield self.number
        for field in self.fields:
            yield from field.numbers()


@dataclass(frozen=True, slots=True)
class InternalSchema:
    """A schema with column ids.

    Attributes:
        version: the instant from which it is valid, as a number; 0 for the first one.
        columns: with the meta columns, where the table stores them.
        most: the largest id that was ever given.
    """

    version: int
    columns: tuple[Column, ...]
    most: int

    def text(self) -> str:
        """Return the JSON text, as Hudi writes it.

        Example:
            >>> InternalSchema(7, (Column(0, "k", "string", False),), 0).text()
            '{"max_column_id":0,"version_id":7,"type":"record","fields":[{"id":0,"name":"k","optional":false,"type":"string"}]}'
        """
        entry = {"max_column_id": self.most, "version_id": self.version, **_json_record(self.columns)}
        return json.dumps(entry, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """The schemas of a table, newest first.

    Attributes:
        text: the content of a history file.
        schemas: what it holds; the first is the table's.
    """

    text: str
    schemas: tuple[InternalSchema, ...]

    @property
    def latest(self) -> InternalSchema:
        """The schema of the table."""
        return self.schemas[0]

    def at(self, instant: str) -> InternalSchema:
        """Return the schema of the files of an instant; the earliest one for files from before the history.

        Example:
            >>> schemas = tuple(InternalSchema(version, (), 0) for version in (20260101000000002, 0))
            >>> SchemaHistory("", schemas).at("20260101000000001").version
            0
        """
        number = int(instant) if instant.isdecimal() else 0
        fitting = (schema for schema in self.schemas if schema.version <= number)
        return next(fitting, self.schemas[-1])

    def with_schema(self, schema: InternalSchema) -> SchemaHistory:
        """Return the history after a change."""
        return SchemaHistory(f"{_BEGIN}{schema.text()},{self.text[len(_BEGIN) :]}", (schema, *self.schemas))

    def as_of(self, latest: InternalSchema) -> SchemaHistory:
        """Return the history up to a schema, which is the table's then."""
        if latest == self.latest:
            return self
        earlier = tuple(schema for schema in self.schemas if schema.version < latest.version)
        return SchemaHistory(columns_text((latest, *earlier)), (latest, *earlier))


def first_history(schema: pa.Schema, *, fixed_decimals: bool = True) -> SchemaHistory:
    """Return the history of a table whose columns get ids for the first time.

    Args:
        schema: its columns, with meta columns where the table stores them.
        fixed_decimals: as for :func:`number_columns`.
    """
    first = number_columns(None, schema, 0, fixed_decimals=fixed_decimals)
    return SchemaHistory(columns_text((first,)), (first,))


def columns_text(schemas: Sequence[InternalSchema]) -> str:
    """Return the content of a history file."""
    return f"{_BEGIN}{','.join(schema.text() for schema in schemas)}]}}"


# ------------------------------------------------------------------------------------------------------------ from JSON


def parse_internal_schema(json_text: str, what: str) -> InternalSchema:
    """Return the internal schema of a commit.

    Args:
        json_text: JSON.
        what: its place, for errors.

    Raises:
        CorruptFile: not an internal schema.

    Example:
        >>> parse_internal_schema('{"version_id":7,"fields":[{"id":0,"name":"k","type":"string"}]}', "t").columns
        (Column(number=0, name='k', kind='string', optional=True, doc=None, fields=()),)
    """
    return _schema(_loaded(json_text, what), what)


def parse_history(json_text: str, what: str) -> SchemaHistory:
    """Return the schemas of a history file; arguments and errors as for :func:`parse_internal_schema`.

    Example:
        >>> parse_history('{"schemas":[{"version_id":7,"fields":[{"id":0,"name":"k","type":"string"}]}]}', "t").latest.version
        7
    """
    schemas = _loaded(json_text, what).get("schemas")
    if not isinstance(schemas, list) or not schemas:
        raise CorruptFile(f"{what} holds no list of schemas")
    parsed = tuple(_schema(schema, what) for schema in schemas)
    newest_first = tuple(sorted(parsed, key=lambda schema: -schema.version))
    is_kept = json_text.startswith(_BEGIN) and newest_first == parsed
    return SchemaHistory(json_text if is_kept else columns_text(newest_first), newest_first)


def _loaded(json_text: str, what: str) -> Json:
    try:
        document = json.loads(json_text)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{what} is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise CorruptFile(f"{what} is no JSON object")
    return document


def _schema(document: Any, what: str) -> InternalSchema:
    try:
        columns = _parsed_fields(document["fields"], 0)
        most = max((number for column in columns for number in column.numbers()), default=-1)
        return InternalSchema(
            int(document.get("version_id", 0)), columns, max(most, int(document.get("max_column_id", most)))
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorruptFile(f"{what} holds no schema with column ids: {error!r}") from None


def _parsed_fields(fields: Any, depth: int) -> tuple[Column, ...]:
    return tuple(
        _parsed(
            int(entry["id"]), str(entry["name"]), entry["type"], entry.get("optional", True), entry.get("doc"), depth
        )
        for entry in fields
    )


def _parsed(number: int, name: str, type_node: Any, optional: Any, doc: Any, depth: int) -> Column:
    if depth > _MOST_DEPTH:
        raise ValueError(f"more than {_MOST_DEPTH} levels")
    doc = None if doc is None else str(doc)
    if isinstance(type_node, str):
        return Column(number, name, type_node.lower(), bool(optional), doc)
    nested = str(type_node["type"])
    if nested == _RECORD:
        fields = _parsed_fields(type_node["fields"], depth + 1)
    elif nested == _ARRAY:
        fields = (_part(type_node, "element", depth),)
    elif nested == _MAP:
        fields = (_part(type_node, "key", depth), _part(type_node, "value", depth))
    else:
        raise ValueError(f"type {nested!r}")
    return Column(number, name, nested, bool(optional), doc, fields)


def _part(type_node: Any, name: str, depth: int) -> Column:
    """Return the element, key or value of a nested type."""
    return _parsed(
        int(type_node[f"{name}_id"]),
        name,
        type_node[name],
        type_node.get(f"{name}_optional", name != "key"),
        None,
        depth + 1,
    )


# -------------------------------------------------------------------------------------------------------------- to JSON


def _json_record(columns: Sequence[Column]) -> Json:
    return {"type": _RECORD, "fields": [_json_field(column) for column in columns]}


def _json_field(column: Column) -> Json:
    entry: Json = {"id": column.number, "name": column.name, "optional": column.optional, "type": _json_type(column)}
    return entry if column.doc is None else {**entry, "doc": column.doc}


def _json_type(column: Column) -> object:
    if column.kind == _RECORD:
        return _json_record(column.fields)
    if column.kind == _ARRAY:
        (element,) = column.fields
        return {
            "type": _ARRAY,
            "element_id": element.number,
            "element": _json_type(element),
            "element_optional": element.optional,
        }
    if column.kind == _MAP:
        key, value = column.fields
        return {
            "type": _MAP,
            "key_id": key.number,
            "key": _json_type(key),
            "value_id": value.number,
            "value": _json_type(value),
            "value_optional": value.optional,
        }
    return column.kind


# ------------------------------------------------------------------------------------------------------------ numbering


def number_columns(
    earlier: InternalSchema | None, schema: pa.Schema, version: int, *, fixed_decimals: bool = True
) -> InternalSchema:
    """Return a schema with ids: columns that are known by name keep theirs, others get the next ones, as Hudi gives them.

    Args:
        earlier: the schema before; None: no column has an id.
        schema: every column of the new schema in its order.
        version: the instant of the change.
        fixed_decimals: name the bytes of decimals, which Hudi can read from 1.1 on.

    Example:
        >>> number_columns(None, pa.schema([("s", pa.struct([("x", pa.int32())])), ("n", pa.int64())]), 0).columns[1].number
        1
    """
    numbering = _Numbering(-1 if earlier is None else earlier.most, fixed_decimals)
    columns = numbering.fields(list(schema), () if earlier is None else earlier.columns)
    return InternalSchema(version, columns, numbering.most)


@dataclass
class _Numbering:
    """Gives ids; those of one level come before those of the levels below."""

    most: int
    fixed_decimals: bool

    def fields(self, fields: Sequence[pa.Field], earlier: Sequence[Column]) -> tuple[Column, ...]:
        by_name = {column.name: column for column in earlier}
        numbers = [self._number(by_name.get(field.name)) for field in fields]
        return tuple(
            self.column(number, field, by_name.get(field.name)) for number, field in zip(numbers, fields, strict=True)
        )

    def _number(self, earlier: Column | None) -> int:
        if earlier is not None:
            return earlier.number
        self.most += 1
        return self.most

    def column(self, number: int, field: pa.Field, earlier: Column | None) -> Column:
        hudi_type = kind_of(field)
        before = earlier.fields if earlier is not None and earlier.kind == hudi_type else ()
        fields = self.fields(_parts(field.type), before)
        if decimal_of(hudi_type) is not None:  # Hudi has three ways to write one type
            if earlier is not None and decimal_of(earlier.kind) == decimal_of(hudi_type):
                hudi_type = earlier.kind
            elif not self.fixed_decimals:
                hudi_type = hudi_type.replace("decimal_fixed", "decimal").partition("[")[0]
        return Column(number, field.name, hudi_type, field.nullable, _doc(field), fields)


def _parts(data_type: pa.DataType) -> list[pa.Field]:
    if pt.is_struct(data_type):
        return struct_fields(data_type)
    if pt.is_list(data_type):
        return [data_type.value_field.with_name("element")]
    if pt.is_map(data_type):
        return [data_type.key_field.with_name("key"), data_type.item_field.with_name("value")]
    return []


def _doc(field: pa.Field) -> str | None:
    if field.name in META_COLUMNS:
        return ""
    doc = (field.metadata or {}).get(AVRO_DOC)
    return None if doc is None else doc.decode("utf-8", "replace")


_KINDS: Final = {
    "bool": "boolean",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date32[day]": "date",
    "time32[ms]": "time-millis",
    "time64[us]": "time",
    "timestamp[us, tz=UTC]": "timestamp",
    "timestamp[ms, tz=UTC]": "timestamp-millis",
    "timestamp[us]": "local-timestamp-micros",
    "timestamp[ms]": "local-timestamp-millis",
}


def kind_of(field: pa.Field) -> str:
    """Return a stored type in Hudi's words.

    Example:
        >>> kind_of(pa.field("d", pa.decimal128(6, 2))), kind_of(pa.field("n", pa.int64()))
        ('decimal_fixed(6, 2)[3]', 'long')
    """
    data_type = field.type
    if pt.is_struct(data_type):
        return _RECORD
    if pt.is_list(data_type):
        return _ARRAY
    if pt.is_map(data_type):
        return _MAP
    if pt.is_decimal(data_type):
        return f"decimal_fixed({data_type.precision}, {data_type.scale})[{decimal_bytes(data_type.precision)}]"
    if pt.is_fixed_size_binary(data_type):
        return f"fixed[{data_type.byte_width}]"
    return _KINDS[str(data_type)]


def decimal_of(hudi_type: str) -> tuple[int, int] | None:
    """Return precision and scale of a decimal type in Hudi's words; None for others.

    Example:
        >>> decimal_of("decimal(6, 2)"), decimal_of("decimal_fixed(6, 2)[3]"), decimal_of("long")
        ((6, 2), (6, 2), None)
    """
    name, _, rest = hudi_type.partition("(")
    if name not in ("decimal", "decimal_fixed", "decimal_bytes"):
        return None
    precision, _, scale = rest.partition(")")[0].partition(",")
    try:
        return int(precision), int(scale)
    except ValueError:
        return None
