"""Stored Arrow types, the conversion of all others, and types as text (docs/format.md, Column types). Pure.

Every stored type has an Avro counterpart, so the modules for values (``cast``) and for Avro text
(``avro``) need no checks.

Also makes names that every engine stores of any column names (:func:`safe_names`).

Schemas and types as one line of text: ``id:string!,ts:timestamp``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass
from lakefmt._core.values import IS_DELETED, META_COLUMNS, OPERATION
from lakefmt.errors import InvalidInputError, SchemaMismatch

__all__ = [
    "MAX_DEPTH",
    "all_nullable",
    "check_avro_names",
    "field_at",
    "holds_type",
    "is_binary",
    "is_list_like",
    "is_number",
    "is_string",
    "list_type",
    "map_type",
    "name_mapping",
    "normalise_field",
    "normalise_schema",
    "parse_schema",
    "parse_type",
    "spark_type",
    "split_meta",
    "storage_type",
    "struct_fields",
    "unreadable_by_spark",
    "with_meta_columns",
    "with_spark_types",
    "without_meta_columns",
]

_SAFE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_]+", re.ASCII)


def is_safe(name: str) -> bool:
    """Return whether every engine stores a column of that name: ASCII letters, digits and _, not a digit first.

    Example:
        >>> is_safe("order_id"), is_safe("Order ID"), is_safe("größe")
        (True, False, False)
    """
    return _SAFE.fullmatch(name) is not None


def safe_name(name: str) -> str:
    """Return the most similar name that every engine stores; ``column`` where nothing of it can stay.

    Example:
        >>> safe_name("Order ID"), safe_name("größe"), safe_name("Amount (EUR)"), safe_name("2024"), safe_name("客户")
        ('Order_ID', 'grosse', 'Amount_EUR', '_2024', 'column')
    """
    if is_safe(name):
        return name
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    plain = _OTHERS.sub("_", plain).strip("_") or "column"
    return f"_{plain}" if plain[0].isdigit() else plain


def name_mapping(names: Sequence[str], rename: Mapping[str, str] | bool) -> dict[str, str]:
    """Return the new name of each column that gets one.

    Args:
        names: of the columns.
        rename: new names by old ones; True: :func:`safe_name` of those that need it, with a number where that is taken.

    Raises:
        InvalidInputError: a column to be renamed is not there, or two columns would have one name.

    Example:
        >>> name_mapping(["id", "a b", "a-b"], True), name_mapping(["a b"], {"a b": "x"})
        ({'a b': 'a_b', 'a-b': 'a_b_2'}, {'a b': 'x'})
    """
    if isinstance(rename, Mapping):
        unknown = [name for name in rename if name not in names]
        if unknown:
            raise InvalidInputError(f"rename: there is no column {unknown[0]!r}; the columns are {', '.join(names)}")
        new = [rename.get(name, name) for name in names]
        twice = sorted({name for name in new if new.count(name) > 1})
        if twice:
            raise InvalidInputError(f"rename: two columns would be called {twice[0]!r}")
        return dict(rename)
    used_names = {name.lower() for name in names if is_safe(name)}
    mapping: dict[str, str] = {}
    for name in names if rename else ():
        if is_safe(name):
            continue
        base = candidate = safe_name(name)
        number = 2
        while candidate.lower() in used_names:
            candidate, number = f"{base}_{number}", number + 1
        used_names.add(candidate.lower())
        mapping[name] = candidate
    return mapping


#: Deeper types are refused: readers of nested types recurse.
MAX_DEPTH: Final = 64

_META_FIELDS: Final = tuple(pa.field(name, pa.string()) for name in META_COLUMNS)
#: Extension types whose storage type keeps all information. Other labels cannot be expressed in
#: Avro.
_PLAIN_EXTENSIONS: Final = frozenset({"arrow.json", "arrow.uuid"})
_SMALLEST_DATETIMES: Final = {"time32[s]": pa.time32("ms"), "time64[ns]": pa.time64("us"), "date64[ms]": pa.date32()}
_WIDER: Final = {
    "int8": pa.int32(),
    "int16": pa.int32(),
    "uint8": pa.int32(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20, 0),
    "halffloat": pa.float32(),
}
_UNCHANGED: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pt.is_boolean,
    pt.is_int32,
    pt.is_int64,
    pt.is_float32,
    pt.is_float64,
    pt.is_date32,
    pt.is_fixed_size_binary,
)


def normalise_schema(schema: pa.Schema) -> pa.Schema:
    """Return `schema` as a table stores it (docs/format.md, Column types).

    Dictionaries, views and large types become plain; unsigned and small integers widen; timestamps
    become microseconds (milliseconds stay) in UTC, and without a zone are taken as UTC; the null
    type becomes string.

    Raises:
        SchemaMismatch: a type without an Avro counterpart, a map without text keys, or a name that
            is empty, repeated, illegal in Avro or reserved for meta columns. The message names the
            field.

    Example:
        >>> normalise_schema(pa.schema([("n", pa.uint16()), ("at", pa.timestamp("ns"))])).types
        [DataType(int32), TimestampType(timestamp[us, tz=UTC])]
    """
    if not len(schema):
        raise SchemaMismatch("a table needs at least one column")
    reserved = [name for name in schema.names if name in (*META_COLUMNS, OPERATION)]
    if reserved:
        raise SchemaMismatch(
            f"columns {', '.join(reserved)} are reserved for the table's own meta columns: drop or rename them"
        )
    check_avro_names(schema.names, "")
    fields = [normalise_field(field, field.name, MAX_DEPTH) for field in schema]
    for field in fields:
        if field.name == IS_DELETED and not pt.is_boolean(field.type):
            raise SchemaMismatch(f"column {IS_DELETED} marks deleted rows: it must be boolean, not {field.type}")
    return pa.schema(fields)


def with_spark_types(schema: pa.Schema) -> pa.Schema:
    """Return a stored schema with the types that Spark can upsert, at every depth.

    Spark has one timestamp type, of microseconds, and no bytes of fixed length. Hudi's schema check refuses its rows for a
    ``timestamp-millis`` or ``fixed`` column (SchemaBackwardsCompatibilityException). The new types hold the same values.

    Example:
        >>> with_spark_types(pa.schema([("at", pa.timestamp("ms", "UTC")), ("hash", pa.binary(16))])).types
        [TimestampType(timestamp[us, tz=UTC]), DataType(binary)]
    """
    return pa.schema([field.with_type(spark_type(field.type)) for field in schema], metadata=schema.metadata)


def spark_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type that Spark can upsert for a stored type, as :func:`with_spark_types`."""
    if pt.is_timestamp(data_type) and data_type.unit == "ms":
        return pa.timestamp("us", data_type.tz)
    if pt.is_fixed_size_binary(data_type):
        return pa.binary()
    if pt.is_struct(data_type):
        return pa.struct([field.with_type(spark_type(field.type)) for field in struct_fields(data_type)])
    if pt.is_map(data_type):
        return map_type(data_type.item_field.with_type(spark_type(data_type.item_type)))
    if pt.is_list(data_type):
        return list_type(data_type.value_field.with_type(spark_type(data_type.value_type)))
    return data_type


def unreadable_by_spark(schema: pa.Schema) -> list[str]:
    """Return the columns that Spark cannot read: those with times of day, at any depth.

    Example:
        >>> unreadable_by_spark(pa.schema([("a", pa.int32()), ("b", pa.list_(pa.time64("us")))]))
        ['b']
    """
    return [field.name for field in schema if holds_type(field.type, pt.is_time)]


def holds_type(data_type: pa.DataType, check: Callable[[pa.DataType], bool]) -> bool:
    """Return whether `check` is true of a type or of any type nested in it.

    Example:
        >>> holds_type(pa.list_(pa.map_(pa.string(), pa.int64())), pt.is_map)
        True
    """
    return check(data_type) or any(holds_type(data_type.field(i).type, check) for i in range(data_type.num_fields))


def check_avro_names(names: Sequence[str], inside: str) -> None:
    """Raise for repeated names and names illegal in Avro; `inside` is the path of the struct, empty at the top.

    Raises:
        SchemaMismatch: names the field.
    """
    where = f" inside {inside!r}" if inside else ""
    for name in names:
        if not is_safe(name):
            raise SchemaMismatch(
                f"column name {name!r}{where} cannot be stored for all engines: they agree on the letters a to z, digits and _, "
                f"not a digit first. Name it {safe_name(name)!r}: write_table(…, rename=True), `lakefmt write --rename`, or a "
                "mapping of names"
            )
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if list(names).count(name) > 1})
        raise SchemaMismatch(f"column names appear more than once{where}: {', '.join(twice)}")


def normalise_field(field: pa.Field, path: str, depth: int = MAX_DEPTH) -> pa.Field:
    """Return `field` as a table stores it; `path` is its name in errors, `depth` the remaining levels."""
    return pa.field(field.name, _normalise_type(field.type, path, depth), field.nullable, field.metadata)


def _normalise_type(data_type: pa.DataType, path: str, depth: int = MAX_DEPTH) -> pa.DataType:
    """Return the stored type of `data_type`.

    Raises:
        SchemaMismatch: no stored type exists; the message names `path`.
    """
    if depth <= 0:
        raise SchemaMismatch(f"column {path!r} is nested deeper than {MAX_DEPTH} levels")
    data_type = storage_type(data_type)
    if pt.is_struct(data_type):
        return _struct(data_type, path, depth)
    if pt.is_map(data_type):
        return _map(data_type, path, depth)
    if is_list_like(data_type):
        element = data_type.value_field
        return list_type(
            pa.field("element", _normalise_type(element.type, f"{path}.element", depth - 1), element.nullable)
        )
    return _scalar(data_type, path)


def storage_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type under dictionaries and plain extension types.

    Example:
        >>> storage_type(pa.dictionary(pa.int8(), pa.string()))
        DataType(string)
    """
    while True:
        if pt.is_dictionary(data_type):
            data_type = data_type.value_type
        elif isinstance(data_type, pa.BaseExtensionType) and data_type.extension_name in _PLAIN_EXTENSIONS:
            data_type = data_type.storage_type
        else:
            return data_type


def is_number(data_type: pa.DataType) -> bool:
    """Return whether values of a type are numbers: integers, floating point or decimal."""
    return bool(pt.is_integer(data_type) or pt.is_floating(data_type) or pt.is_decimal(data_type))


def is_string(data_type: pa.DataType) -> bool:
    """Return whether values of a type are strings."""
    return bool(pt.is_string(data_type) or pt.is_large_string(data_type))


def is_binary(data_type: pa.DataType) -> bool:
    """Return whether values of a type are bytes, of any or of a fixed length."""
    return bool(pt.is_binary(data_type) or pt.is_large_binary(data_type) or pt.is_fixed_size_binary(data_type))


def is_list_like(data_type: pa.DataType) -> bool:
    """Return whether `data_type` is a list of any form: plain, large, fixed-size or view."""
    checks = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view)
    return any(check(data_type) for check in checks)


def list_type(element: pa.Field) -> pa.DataType:
    """Return the list type with the element name ``element``, as in Parquet (docs/format.md, Lists and maps)."""
    return pa.list_(element.with_name("element"))


def map_type(value: pa.Field) -> pa.DataType:
    """Return the map type with string keys."""
    return pa.map_(pa.string(), value.with_name("value"))


def struct_fields(data_type: pa.DataType) -> list[pa.Field]:
    """Return the fields of a struct type."""
    return [data_type.field(i) for i in range(data_type.num_fields)]


def field_at(schema: pa.Schema, name: str) -> pa.Field | None:
    """Return the field `name`, with dots for nested fields; None if it does not exist.

    Example:
        >>> field_at(pa.schema([("a", pa.struct([("b", pa.int32())]))]), "a.b").type
        DataType(int32)
    """
    if schema.names.count(name) == 1:
        return schema.field(name)
    first, *rest = name.split(".")
    if schema.names.count(first) != 1:
        return None
    field = schema.field(first)
    for part in rest:
        index = field.type.get_field_index(part) if pt.is_struct(field.type) else -1
        if index < 0:
            return None
        field = field.type.field(index)
    return field


def _struct(data_type: pa.DataType, path: str, depth: int) -> pa.DataType:
    fields = struct_fields(data_type)
    if not fields:
        raise SchemaMismatch(f"column {path!r} is a struct without fields, which Parquet cannot store")
    check_avro_names([field.name for field in fields], path)
    return pa.struct([normalise_field(field, f"{path}.{field.name}", depth - 1) for field in fields])


def _map(data_type: pa.DataType, path: str, depth: int) -> pa.DataType:
    if _text_or_bytes(storage_type(data_type.key_type)) != pa.string():
        raise SchemaMismatch(
            f"column {path!r} is a map with keys of type {data_type.key_type}: only string keys can be stored"
        )
    value = data_type.item_field
    return map_type(pa.field("value", _normalise_type(value.type, f"{path}.value", depth - 1), value.nullable))


def _scalar(data_type: pa.DataType, path: str) -> pa.DataType:
    if pt.is_fixed_size_binary(data_type) and not data_type.byte_width:
        raise SchemaMismatch(
            f"column {path!r} has type {data_type}: bytes of no length cannot be stored, take pa.binary()"
        )
    if any(check(data_type) for check in _UNCHANGED):
        return data_type
    if pt.is_null(data_type):
        return pa.string()
    stored = _text_or_bytes(data_type) or _WIDER.get(str(data_type)) or _moment(data_type) or _decimal(data_type, path)
    if stored is None:
        raise SchemaMismatch(f"column {path!r} has type {data_type}, which a table cannot store: cast it first")
    return stored


def _text_or_bytes(data_type: pa.DataType) -> pa.DataType | None:
    if pt.is_string(data_type) or pt.is_large_string(data_type) or pt.is_string_view(data_type):
        return pa.string()
    if pt.is_binary(data_type) or pt.is_large_binary(data_type) or pt.is_binary_view(data_type):
        return pa.binary()
    return None


def _moment(data_type: pa.DataType) -> pa.DataType | None:
    if pt.is_timestamp(data_type):
        # Times without a zone are stored as UTC: hudi-rs fails on Avro's local timestamps
        # (docs/format.md, Column types).
        return pa.timestamp("ms" if data_type.unit == "ms" else "us", "UTC")
    if pt.is_time(data_type):
        return _SMALLEST_DATETIMES.get(str(data_type), data_type)
    return _SMALLEST_DATETIMES.get(str(data_type))


def _decimal(data_type: pa.DataType, path: str) -> pa.DataType | None:
    if not pt.is_decimal(data_type):
        return None
    if not 0 <= data_type.scale <= data_type.precision <= 38:
        raise SchemaMismatch(
            f"column {path!r} has type {data_type}: at most 38 digits and a scale between 0 and the precision can be stored"
        )
    return pa.decimal128(data_type.precision, data_type.scale)


def all_nullable(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns may all be null.

    Example:
        >>> all_nullable(pa.schema([pa.field("a", pa.int8(), nullable=False)])).field("a").nullable
        True
    """
    return pa.schema([field.with_nullable(True) for field in schema])


def with_meta_columns(schema: pa.Schema) -> pa.Schema:
    """Return `schema` with the five meta columns in front (docs/format.md, Meta columns).

    Example:
        >>> with_meta_columns(pa.schema([("id", pa.int64())])).names[-2:]
        ['_hoodie_file_name', 'id']
    """
    return pa.schema([*_META_FIELDS, *without_meta_columns(schema)], metadata=schema.metadata)


def without_meta_columns(schema: pa.Schema) -> pa.Schema:
    """Return `schema` without the five meta columns, wherever they are.

    Example:
        >>> without_meta_columns(with_meta_columns(pa.schema([("id", pa.int64())]))).names
        ['id']
    """
    return pa.schema([field for field in schema if field.name not in META_COLUMNS], metadata=schema.metadata)


def split_meta(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the meta columns and the data columns of `table` as two tables.

    Example:
        >>> meta, data = split_meta(pa.table({"_hoodie_record_key": ["a"], "id": [1]}))
        >>> meta.column_names, data.column_names
        (['_hoodie_record_key'], ['id'])
    """
    return _chosen(table, META_COLUMNS), _chosen(table, [n for n in table.column_names if n not in META_COLUMNS])


def _chosen(table: pa.Table, names: Iterable[str]) -> pa.Table:
    present = set(table.column_names)
    return table.select([name for name in names if name in present])


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
