"""Translate Avro schema text to Arrow schemas and back (docs/format.md, Column types). Pure.

The text comes from other engines and from damaged files: its length, its depth and the number of types it unfolds to are
bounded before anything is built, and names that refer back to themselves are refused. It is parsed here only, to a tree of
:class:`AvroType`, in which every value takes at least one byte and which does not contain itself. A reader of values can
then check counts and lengths against the bytes left before it allocates anything, and nesting has an end. Malformed schemas
are :class:`MalformedAvro` here; callers turn them into errors that name the file.

What Avro can say and Arrow cannot (an enum's symbols, a uuid, a decimal over bytes, a default) travels in the metadata of
the Arrow field under :data:`_AVRO_TYPE`, :data:`AVRO_DEFAULT` and :data:`AVRO_DOC`, so that a commit of ours repeats it
instead of quietly changing the table's schema for its other writers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Final, NoReturn, Union, cast

import pyarrow as pa
import pyarrow.types as pt

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.schema.types import MAX_DEPTH, list_type, map_type, struct_fields, with_meta_columns
from lakefmt._core.values import META_COLUMNS
from lakefmt.errors import CorruptFile, SchemaMismatch, UnsupportedFeature

__all__ = [
    "ABSENT",
    "AVRO_DEFAULT",
    "AVRO_DOC",
    "AvroField",
    "AvroType",
    "MalformedAvro",
    "UnsupportedAvro",
    "arrow_columns",
    "arrow_to_avro",
    "avro_to_arrow",
    "avro_tree",
    "check_known",
    "decimal_bytes",
    "parse_avro_schema",
    "unknown_column",
]

# Some 18,000 columns.
_MAX_SCHEMA_CHARACTERS = 1 << 20
_MAX_TREE_DEPTH = 32
_MAX_BRANCHES = 64
_MAX_FIXED_BYTES = 1024 * 1024
_MAX_NAME_CHARACTERS = 1_000

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED_KINDS = frozenset({"record", "error", "enum", "fixed"})
_ITEM_KEYS = {"array": "items", "map": "values"}


class MalformedAvro(ValueError):
    """A schema, the bytes of a value, or a value does not follow the Avro specification."""


class UnsupportedAvro(MalformedAvro):
    """A schema is valid Avro, but its values could take no bytes or could nest without end."""


class _Absent:
    """The default of a field that has none."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()


@dataclass(frozen=True, slots=True, eq=False)
class AvroType:
    """One node of a schema.

    Attributes:
        kind: primitive name, ``record``, ``enum``, ``fixed``, ``array``, ``map`` or ``union``.
        name: full name of a named type.
        accepts: short names of the writer's types that this type reads: its own and its aliases.
        fields: of a record.
        parts: branches of a union; the one type of items or values of an array or map.
        symbols: of an enum.
        size: bytes of a fixed.
        attributes: the JSON object that defines the type, with its logical type; empty for a plain name or a union.
        height: levels of nesting below and with this node; a union is no level of its own.
        nodes: nodes below and with this node, each reference to a named type counted anew.
    """

    kind: str
    name: str = ""
    accepts: frozenset[str] = frozenset()
    fields: tuple[AvroField, ...] = ()
    parts: tuple[AvroType, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    attributes: Mapping[str, object] = field(default_factory=dict)
    height: int = 1
    nodes: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class AvroField:
    """One field of a record; ``default`` is :data:`ABSENT` and ``doc`` empty when there is none."""

    name: str
    type: AvroType
    default: object = ABSENT
    doc: str = ""


def parse_avro_schema(
    json_text: str | bytes, *, max_characters: int = _MAX_SCHEMA_CHARACTERS, max_depth: int = _MAX_TREE_DEPTH
) -> AvroType:
    """Return the tree of an Avro schema in JSON.

    Parameters:
        json_text: the JSON text.
        max_characters: a longer text is refused before it is parsed.
        max_depth: levels of records, arrays and maps inside each other; a union is no level.

    Raises:
        MalformedAvro: the text is no JSON, or no Avro schema.
        UnsupportedAvro: its values could take no bytes, or could nest without end.

    Example:
        >>> parse_avro_schema('{"type": "array", "items": ["null", "long"]}').parts[0].kind
        'union'
    """
    if len(json_text) > max_characters:
        raise MalformedAvro(f"schema of {len(json_text):,} characters; at most {max_characters:,} are read")
    try:
        node = json.loads(json_text, parse_constant=_refuse_constant)
    except RecursionError:
        raise MalformedAvro("schema is nested too deeply") from None
    except ValueError as error:
        raise MalformedAvro(f"schema is no JSON: {error}") from None
    return avro_tree(node, max_depth=max_depth)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def avro_tree(node: object, *, max_depth: int = _MAX_TREE_DEPTH) -> AvroType:
    """Return the tree of an Avro schema that is parsed JSON; otherwise like :func:`parse_avro_schema`.

    Example:
        >>> avro_tree({"type": "fixed", "name": "md5", "size": 16}).size
        16
    """
    return _SchemaParser(max_depth).parse(node, "", "", 0)


@dataclass
class _SchemaParser:
    """Remembers the named types of one schema, and which of them are still being read (None)."""

    max_depth: int
    named: dict[str, AvroType | None] = field(default_factory=dict)

    def parse(self, node: object, namespace: str, path: str, depth: int) -> AvroType:
        if depth > self.max_depth:
            raise self._too_deep(path)
        if isinstance(node, str):
            return AvroType(node) if node in _PRIMITIVES else self._reference(node, namespace, path)
        if isinstance(node, list):
            return self._union(node, namespace, path, depth)
        if not isinstance(node, dict):
            raise MalformedAvro(f"{_place_in_schema(path)} {node!r:.60} is not an Avro type")
        avro_type = node.get("type")
        if not isinstance(avro_type, str):
            return self.parse(avro_type, namespace, path, depth + 1)
        if avro_type in _PRIMITIVES:
            return AvroType(avro_type, attributes=node)
        if avro_type in _ITEM_KEYS:
            inside = _join_path(path, "element" if avro_type == "array" else "value")
            item = self._value(_required_attribute(node, _ITEM_KEYS[avro_type], path), namespace, inside, depth)
            return self._measured(AvroType(avro_type, parts=(item,), attributes=node), path)
        if avro_type in _NAMED_KINDS:
            return self._define(node, avro_type, namespace, path, depth)
        return self._reference(avro_type, namespace, path)

    def _value(self, node: object, namespace: str, path: str, depth: int) -> AvroType:
        """Return the type of a field, item or map value: one that takes at least a byte."""
        avro_type = self.parse(node, namespace, path, depth + 1)
        if avro_type.kind == "null":
            raise UnsupportedAvro(
                f"{_place_in_schema(path)} null stands outside a union: values without bytes are not read"
            )
        return avro_type

    def _union(self, nodes: Sequence[object], namespace: str, path: str, depth: int) -> AvroType:
        if not nodes:
            raise MalformedAvro(f"{_place_in_schema(path)} union of no types")
        if len(nodes) > _MAX_BRANCHES:
            raise UnsupportedAvro(
                f"{_place_in_schema(path)} union of {len(nodes)} types; at most {_MAX_BRANCHES} are read"
            )
        # Looked for before parsing, too: a union is no level of nesting, so that only this bounds the recursion.
        nested = any(isinstance(node, list) for node in nodes)
        parts = () if nested else tuple([self.parse(node, namespace, path, depth) for node in nodes])
        if nested or any(part.kind == "union" for part in parts):
            raise UnsupportedAvro(f"{_place_in_schema(path)} union directly inside a union")
        return self._measured(AvroType("union", parts=parts), path)

    def _reference(self, name: str, namespace: str, path: str) -> AvroType:
        full = _qualified_name(name, namespace)
        full = full if full in self.named else name
        if full not in self.named:
            raise MalformedAvro(f"{_place_in_schema(path)} unknown type {name!r:.60}")
        definition = self.named[full]
        if definition is None:
            raise UnsupportedAvro(f"{_place_in_schema(path)} type {name!r:.60} contains itself")
        return definition

    def _define(self, node: Mapping[str, object], type_name: str, namespace: str, path: str, depth: int) -> AvroType:
        stated = node.get("namespace")
        namespace = (
            _name_of_node({"namespace": stated}, "namespace", path) if stated else "" if stated == "" else namespace
        )
        full = _qualified_name(_name_of_node(node, "name", path), namespace)
        if full in self.named:
            raise MalformedAvro(f"{_place_in_schema(path)} type {full!r:.60} is defined twice")
        self.named[full] = None
        if type_name == "enum":
            definition = AvroType(
                type_name, full, _accepted_names(node, full, path), symbols=_strings_attribute(node, "symbols", path)
            )
        elif type_name == "fixed":
            definition = AvroType(type_name, full, _accepted_names(node, full, path), size=_fixed_size(node, path))
        else:
            fields = self._fields(node, full.rpartition(".")[0], path, depth)
            definition = AvroType("record", full, _accepted_names(node, full, path), fields)
        definition = self.named[full] = self._measured(replace(definition, attributes=node), path)
        return definition

    def _fields(self, node: Mapping[str, object], namespace: str, path: str, depth: int) -> tuple[AvroField, ...]:
        entries = _list_attribute(node, "fields", path)
        if not entries and path:
            raise UnsupportedAvro(f"{_place_in_schema(path)} record without fields: values without bytes are not read")
        fields = tuple([self._field(entry, namespace, path, depth) for entry in entries])
        if len({each.name for each in fields}) < len(fields):
            raise MalformedAvro(f"{_place_in_schema(path)} record with two fields of one name")
        return fields

    def _field(self, entry: object, namespace: str, path: str, depth: int) -> AvroField:
        if not isinstance(entry, dict):
            raise MalformedAvro(f"{_place_in_schema(path)} {entry!r:.60} is not a field")
        name, doc = _name_of_node(entry, "name", path), entry.get("doc")
        field_type = self._value(_required_attribute(entry, "type", path), namespace, _join_path(path, name), depth)
        return AvroField(name, field_type, entry.get("default", ABSENT), doc if isinstance(doc, str) else "")

    def _measured(self, avro_type: AvroType, path: str) -> AvroType:
        """Return `avro_type` with its height and nodes, which count through references as the depth of the text does not."""
        below = [*avro_type.parts, *(each.type for each in avro_type.fields)]
        height = max([each.height for each in below], default=0) + (avro_type.kind != "union")
        if height > self.max_depth:
            raise self._too_deep(path)
        return replace(avro_type, height=height, nodes=1 + sum([each.nodes for each in below]))

    def _too_deep(self, path: str) -> MalformedAvro:
        return MalformedAvro(f"{_place_in_schema(path)} schema is nested more than {self.max_depth} levels deep")


def _place_in_schema(path: str) -> str:
    return f"field {path[:200]!r}:" if path else "top level:"


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _qualified_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _name_of_node(node: Mapping[str, object], key: str, path: str) -> str:
    value = node.get(key)
    if isinstance(value, str) and 0 < len(value) <= _MAX_NAME_CHARACTERS and not re.search("[\ud800-\udfff]", value):
        return value
    raise MalformedAvro(f"{_place_in_schema(path)} {key!r} is {value!r:.60}, which is no Avro name")


def _accepted_names(node: Mapping[str, object], full: str, path: str) -> frozenset[str]:
    aliases = _strings_attribute(node, "aliases", path) if "aliases" in node else ()
    return frozenset(name.rpartition(".")[2] for name in (full, *aliases))


def _fixed_size(node: Mapping[str, object], path: str) -> int:
    size = node.get("size")
    if type(size) is not int or not 0 < size <= _MAX_FIXED_BYTES:
        raise MalformedAvro(f"{_place_in_schema(path)} fixed of size {size!r:.60}")
    return size


def _required_attribute(node: Mapping[str, object], key: str, path: str) -> object:
    if key not in node:
        raise MalformedAvro(f"{_place_in_schema(path)} schema without {key!r}")
    return node[key]


def _list_attribute(node: Mapping[str, object], key: str, path: str) -> list[object]:
    value = node.get(key)
    if not isinstance(value, list):
        raise MalformedAvro(f"{_place_in_schema(path)} {key!r} is not a list")
    return value


def _strings_attribute(node: Mapping[str, object], key: str, path: str) -> tuple[str, ...]:
    entries = _list_attribute(node, key, path)
    if not entries:
        raise MalformedAvro(f"{_place_in_schema(path)} {key!r} is empty")
    return tuple(entry if isinstance(entry, str) else str(entry) for entry in entries)


_AVRO_TYPE: Final = b"avro.type"
AVRO_DEFAULT: Final = b"avro.default"
AVRO_DOC: Final = b"avro.doc"
#: Why a column cannot be read.
_WHY_UNKNOWN: Final = b"avro.unknown"

#: Characters of a table's schema; nodes that it unfolds to.
_MAX_TABLE_SCHEMA_CHARACTERS: Final = 16 << 20
_MAX_TABLE_TYPES: Final = 100_000
#: The record of the table is one level more than its columns have.
_MAX_TABLE_LEVELS: Final = MAX_DEPTH + 1

Json = Union[None, bool, int, float, str, list["Json"], dict[str, "Json"]]  # noqa: UP007  (it names itself)

_ARROW_OF_PRIMITIVE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_ARROW_OF_LOGICAL: Final[dict[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_AVRO_OF_ARROW: Final[dict[str, Json]] = {
    **{str(arrow): name for name, arrow in _ARROW_OF_PRIMITIVE.items()},
    **{str(arrow): {"type": name, "logicalType": logical} for (name, logical), arrow in _ARROW_OF_LOGICAL.items()},
}
#: Reading these as what lies below them would give wrong values.
_UNREADABLE_LOGICAL: Final = frozenset({"timestamp-nanos", "local-timestamp-nanos"})


# ---------------------------------------------------------------------------------------------------- Arrow to Avro

_MOST_CACHED_TEXTS: Final = 64
_cached_texts: dict[tuple[bytes, str, bool], str] = {}


def arrow_to_avro(schema: pa.Schema, table_name: str, with_meta: bool = False) -> str:
    """Return the Avro JSON text of `schema`, named as Hudi names it (docs/format.md, Avro schema names).

    `schema` is normalised (:func:`lakefmt._core.schema.normalise_schema`); `with_meta` puts the meta fields in front.

    Raises:
        SchemaMismatch: a type without an Avro counterpart.

    Example:
        >>> arrow_to_avro(pa.schema([("id", pa.int64())]), "a-b")[:62]
        '{"type":"record","name":"a__b_record","namespace":"hoodie.a__b'
    """
    # A commit asks twice, and the schema rarely changes; its bytes hold the metadata that equality leaves out.
    key = (schema.serialize().to_pybytes(), table_name, with_meta)
    avro_json = _cached_texts.get(key)
    if avro_json is None:
        safe = _avro_name(table_name)
        fields = list(with_meta_columns(schema) if with_meta else schema)
        avro_json = _dumps(_AvroWriter().record(fields, f"{safe}_record", f"hoodie.{safe}", ""))
        if len(_cached_texts) >= _MOST_CACHED_TEXTS:
            _cached_texts.clear()
        _cached_texts[key] = avro_json
    return avro_json


def _avro_name(name: str) -> str:
    """Return `name` with every character that is illegal in an Avro name replaced by two underscores.

    Example:
        >>> _avro_name("1-fish"), _avro_name("trips")
        ('____fish', 'trips')
    """
    return re.sub(r"^[0-9]|[^A-Za-z0-9_]", "__", name)


@dataclass
class _AvroWriter:
    """Arrow fields to Avro values; remembers the named types that the text has already defined."""

    defined: dict[str, Json] = field(default_factory=dict)

    def record(self, fields: list[pa.Field], name: str, namespace: str, path: str) -> Json:
        inner = f"{namespace}.{name}"
        members: list[Json] = [self.member(each, inner, _join_path(path, each.name)) for each in fields]
        return {"type": "record", "name": name, "namespace": namespace, "fields": members}

    def member(self, member: pa.Field, namespace: str, path: str) -> Json:
        notes = member.metadata or {}
        default = _loads(notes[AVRO_DEFAULT]) if AVRO_DEFAULT in notes else None
        avro_json = self.optional(member, member.name, namespace, path)
        if default is not None and member.nullable:
            # The type of a default is the first of the union.
            avro_json = list(reversed(cast("list[Json]", avro_json)))
        entry: dict[str, Json] = {"name": member.name, "type": avro_json}
        if AVRO_DOC in notes or member.name in META_COLUMNS:
            entry["doc"] = notes.get(AVRO_DOC, b"").decode("utf-8", "replace")
        if default is not None or member.nullable:
            entry["default"] = default
        return entry

    def optional(self, member: pa.Field, name: str, namespace: str, path: str) -> Json:
        avro_json = self.kept(member) or self.type(member.type, name, namespace, path)
        return ["null", avro_json] if member.nullable else avro_json

    def kept(self, member: pa.Field) -> Json:
        """Return the Avro type that the field was read from, if that still is the field's type."""
        json_text = (member.metadata or {}).get(_AVRO_TYPE)
        avro_json = None if json_text is None else _loads(json_text)
        if not isinstance(avro_json, dict):
            return None
        try:
            tree = avro_tree(avro_json, max_depth=_MAX_TABLE_LEVELS)
        except MalformedAvro:
            return None
        if not _is_avro_of(tree, member.type):
            return None
        if not tree.name or self.defined.setdefault(tree.name, avro_json) is avro_json:
            return avro_json
        return tree.name if self.defined[tree.name] == avro_json else None

    def type(self, arrow_type: pa.DataType, name: str, namespace: str, path: str) -> Json:
        if pt.is_struct(arrow_type):
            return self.record(struct_fields(arrow_type), name, namespace, path)
        if pt.is_list(arrow_type):
            return {
                "type": "array",
                "items": self.optional(arrow_type.value_field, name, namespace, _join_path(path, "element")),
            }
        if pt.is_map(arrow_type) and pt.is_string(arrow_type.key_type):
            return {
                "type": "map",
                "values": self.optional(arrow_type.item_field, name, namespace, _join_path(path, "value")),
            }
        return _avro_of_leaf(arrow_type, f"{namespace}.{name}", path)


def _avro_of_leaf(arrow_type: pa.DataType, namespace: str, path: str) -> Json:
    if pt.is_timestamp(arrow_type) and arrow_type.tz is not None:
        arrow_type = pa.timestamp(arrow_type.unit, "UTC")
    if str(arrow_type) in _AVRO_OF_ARROW:
        return _AVRO_OF_ARROW[str(arrow_type)]
    fixed: dict[str, Json] = {"type": "fixed", "name": "fixed", "namespace": namespace}
    if pt.is_decimal128(arrow_type) and 0 <= arrow_type.scale <= arrow_type.precision:
        logical: dict[str, Json] = {
            "logicalType": "decimal",
            "precision": arrow_type.precision,
            "scale": arrow_type.scale,
        }
        return {**fixed, "size": decimal_bytes(arrow_type.precision), **logical}
    if pt.is_fixed_size_binary(arrow_type) and not pt.is_decimal(arrow_type):
        return {**fixed, "size": arrow_type.byte_width}
    raise SchemaMismatch(
        f"column {path!r} has type {arrow_type}, which has no Avro counterpart: normalise the schema first"
    )


def decimal_bytes(precision: int) -> int:
    """Return how many bytes hold every number of `precision` decimal digits (two's complement).

    Example:
        >>> [decimal_bytes(p) for p in (5, 10, 15, 18, 38)]
        [3, 5, 7, 8, 16]
    """
    return int(10**precision - 1).bit_length() // 8 + 1


def _is_avro_of(avro_type: AvroType, arrow: pa.DataType) -> bool:
    try:
        return bool(_arrow_type(avro_type, "").type == arrow)
    except (CorruptFile, UnsupportedFeature):
        return False


# ---------------------------------------------------------------------------------------------------- Avro to Arrow


@lru_cache(maxsize=64)
def avro_to_arrow(avro_json: str, *, all_known: bool = True) -> pa.Schema:
    """Return the Arrow schema of the Avro record that `avro_json` describes (docs/format.md, Column types).

    Args:
        avro_json: JSON.
        all_known: every column has a type that is known here; False: in the place of others stands :func:`unknown_column`.

    Raises:
        CorruptFile: `avro_json` is no Avro record, or too large or too deep to be one that a table has.
        UnsupportedFeature: a union of several types, a type that holds itself, or a logical type unknown here.

    Example:
        >>> avro_to_arrow('{"type":"record","name":"r","fields":[{"name":"id","type":["null","long"]}]}')
        id: int64
    """
    try:
        record = parse_avro_schema(avro_json, max_characters=_MAX_TABLE_SCHEMA_CHARACTERS, max_depth=_MAX_TABLE_LEVELS)
    except UnsupportedAvro as error:
        raise UnsupportedFeature(f"Avro schema that no table can have: {error}") from None
    except MalformedAvro as error:
        raise CorruptFile(f"damaged Avro schema: {error}") from None
    columns = arrow_columns(record)
    if all_known:
        check_known(columns)
    return columns


def arrow_columns(record: AvroType) -> pa.Schema:
    """Return the Arrow schema of an Avro record's tree: one column for each field, in their order.

    A column whose type is not known here has the type null: :func:`unknown_column` tells why.

    Raises:
        CorruptFile: it is no record, or unfolds to too many types.

    Example:
        >>> arrow_columns(parse_avro_schema('{"type":"record","name":"r","fields":[{"name":"id","type":"long"}]}'))
        id: int64 not null
    """
    if record.kind != "record":
        raise CorruptFile("the Avro schema of a table must be a record")
    if record.nodes > _MAX_TABLE_TYPES:
        raise CorruptFile(
            f"an Avro schema unfolds to too many types: {record.nodes:,}, at most {_MAX_TABLE_TYPES:,} are read"
        )
    return pa.schema([_column_or_unknown(each) for each in record.fields])


def _column_or_unknown(member: AvroField) -> pa.Field:
    try:
        return _arrow_field(member, member.name)
    except UnsupportedFeature as error:
        return pa.field(member.name, pa.null(), metadata={_WHY_UNKNOWN: str(error).encode("utf-8", "replace")})


def unknown_column(field: pa.Field) -> str:
    """Return why a column of :func:`arrow_columns` cannot be read; empty: it can."""
    return (field.metadata or {}).get(_WHY_UNKNOWN, b"").decode() if pt.is_null(field.type) else ""


def check_known(schema: pa.Schema) -> None:
    """Raise if a column has a type that is not known here.

    Raises:
        UnsupportedFeature: it has; the message names the column and the type.
    """
    for column in schema:
        if why := unknown_column(column):
            raise UnsupportedFeature(why)


def _loads(json_text: str | bytes) -> Json:
    try:
        return cast("Json", json.loads(json_text))
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"an Avro schema is no JSON: {error}") from None


def _dumps(avro: Json) -> str:
    # ASCII only: a lone surrogate in a field's doc could not be encoded later.
    return json.dumps(avro, separators=(",", ":"))


@dataclass(frozen=True)
class _ArrowType:
    """The Arrow type of a node, and its Avro definition when Arrow cannot express all of it."""

    type: pa.DataType
    nullable: bool = False
    kept: Json = None

    def field(self, name: str, notes: Mapping[bytes, bytes] | None = None) -> pa.Field:
        metadata = dict(notes or {})
        if self.kept is not None:
            metadata[_AVRO_TYPE] = _dumps(self.kept).encode()
        return pa.field(name, self.type, self.nullable, metadata or None)


def _arrow_type(node: AvroType, path: str) -> _ArrowType:
    """Return the Arrow type of a node; `path` names the column in errors."""
    if node.kind == "union":
        return _arrow_of_union(node, path)
    if node.kind == "enum":
        return _ArrowType(pa.string(), kept=_full_definition(node))
    if node.kind == "fixed":
        return _arrow_of_fixed(node, path)
    if node.kind in _ARROW_OF_PRIMITIVE:
        return _arrow_of_primitive(node, path)
    if node.kind == "null":
        raise UnsupportedFeature(f"column {path!r} has the Avro type null, which holds nothing")
    # What a logical type makes of a record (a VARIANT), a list or a map is passed on as it is stored.
    definition = (
        None
        if _logical_type(node, path) is None
        else _full_definition(node)
        if node.name
        else cast("Json", node.attributes)
    )
    if node.kind == "record":
        return _ArrowType(
            pa.struct([_arrow_field(each, _join_path(path, each.name)) for each in node.fields]), kept=definition
        )
    inside = _join_path(path, "element" if node.kind == "array" else "value")
    item = _arrow_type(node.parts[0], inside).field("element")
    return _ArrowType(list_type(item) if node.kind == "array" else map_type(item), kept=definition)


def _arrow_field(member: AvroField, path: str) -> pa.Field:
    notes = {}
    if member.default is not ABSENT and member.default is not None:
        notes[AVRO_DEFAULT] = _dumps(cast("Json", member.default)).encode()
    if member.doc:
        notes[AVRO_DOC] = member.doc.encode("utf-8", "replace")
    return _arrow_type(member.type, path).field(member.name, notes)


def _arrow_of_union(node: AvroType, path: str) -> _ArrowType:
    stored = [part for part in node.parts if part.kind != "null"]
    if len(stored) != 1 or len(node.parts) > 2:
        raise UnsupportedFeature(f"column {path!r} is a union of {len(node.parts)} types: only [null, T] can be read")
    return replace(_arrow_type(stored[0], path), nullable=len(node.parts) == 2)


def _arrow_of_primitive(node: AvroType, path: str) -> _ArrowType:
    logical = _logical_type(node, path)
    if logical is None:
        return _ArrowType(_ARROW_OF_PRIMITIVE[node.kind])
    definition = cast("Json", node.attributes)
    if node.kind == "bytes" and logical == "decimal":
        return _ArrowType(_arrow_of_decimal(node, path), kept=definition)
    arrow = _ARROW_OF_LOGICAL.get((node.kind, logical))
    # Avro ignores a logical type that it does not know; but it must not get lost.
    return _ArrowType(arrow) if arrow is not None else _ArrowType(_ARROW_OF_PRIMITIVE[node.kind], kept=definition)


def _arrow_of_fixed(node: AvroType, path: str) -> _ArrowType:
    if _logical_type(node, path) == "decimal":
        arrow = _arrow_of_decimal(node, path)
        return _ArrowType(arrow, kept=None if node.size == decimal_bytes(arrow.precision) else _full_definition(node))
    return _ArrowType(pa.binary(node.size), kept=_full_definition(node))


def _arrow_of_decimal(node: AvroType, path: str) -> pa.DataType:
    precision, scale = node.attributes.get("precision"), node.attributes.get("scale", 0)
    if (
        type(precision) is not int
        or type(scale) is not int
        or not 1 <= precision <= 1 << 20
        or not 0 <= scale <= precision
    ):
        raise CorruptFile(f"the Avro decimal at {path!r} has precision {precision!r} and scale {scale!r}")
    if precision > 38:
        raise UnsupportedFeature(f"column {path!r} has {precision} decimal digits: at most 38 can be read")
    return pa.decimal128(precision, scale)


def _logical_type(node: AvroType, path: str) -> str | None:
    logical = node.attributes.get("logicalType")
    if logical is not None and not isinstance(logical, str):
        raise CorruptFile(f"the Avro logical type of {path!r} is no text")
    if logical in _UNREADABLE_LOGICAL:
        raise UnsupportedFeature(f"column {path!r} has the logical type {logical!r:.100}, which is not known here")
    return logical


def _full_definition(node: AvroType) -> Json:
    """Return the definition of a named type with its full name, so that it may stand anywhere."""
    space, _, name = node.name.rpartition(".")
    return cast("Json", {**node.attributes, "name": name, "namespace": space})
