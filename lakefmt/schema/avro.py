"""Avro schema text ↔ Arrow schemas (spec 5.3, 5.5). Pure.

The text comes from other engines and from damaged files: its length, its depth and the number of types it unfolds to
are bounded before anything is built, and names that refer back to themselves are refused.

What Avro can say and Arrow cannot (an enum's symbols, a uuid, a decimal over bytes, a default) travels in the metadata
of the Arrow field under :data:`_AVRO_TYPE`, :data:`AVRO_DEFAULT` and :data:`AVRO_DOC`, so that a commit of ours repeats
it instead of quietly changing the table's schema for its other writers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NoReturn, Union, cast

import pyarrow as pa
import pyarrow.types as pt

from lakefmt.errors import CorruptFile, SchemaMismatch, UnsupportedFeature
from lakefmt.schema.types import MAX_DEPTH, list_type, map_type, struct_fields, with_meta_columns
from lakefmt.values import META_COLUMNS

__all__ = ["AVRO_DEFAULT", "AVRO_DOC", "arrow_to_avro", "avro_to_arrow", "decimal_bytes"]

_AVRO_TYPE: Final = b"avro.type"
AVRO_DEFAULT: Final = b"avro.default"
AVRO_DOC: Final = b"avro.doc"

_MAX_TEXT: Final = 16 << 20
_MAX_TYPES: Final = 100_000
_MAX_NAME: Final = 1_000
_MAX_FIXED: Final = 1 << 20

Json = Union[None, bool, int, float, str, list["Json"], dict[str, "Json"]]  # noqa: UP007  (it names itself)

_PLAIN: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL: Final[dict[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_AVRO_OF: Final[dict[str, Json]] = {
    **{str(arrow): name for name, arrow in _PLAIN.items()},
    **{str(arrow): {"type": name, "logicalType": logical} for (name, logical), arrow in _LOGICAL.items()},
}
#: Reading these as what lies below them would give wrong values.
_NOT_READABLE: Final = frozenset({"timestamp-nanos", "local-timestamp-nanos", "variant", "vector", "blob"})
_NULL: Final[tuple[Json, ...]] = ("null", {"type": "null"})


# ---------------------------------------------------------------------------------------------------- Arrow to Avro

_KEPT_TEXTS: Final = 64
_texts: dict[tuple[bytes, str, bool], str] = {}


def arrow_to_avro(schema: pa.Schema, table_name: str, with_meta: bool = False) -> str:
    """Return the Avro JSON text of `schema`, named as Hudi names it (spec 5.5).

    `schema` is normalised (:func:`lakefmt.schema.normalise_schema`); `with_meta` puts the meta fields in front.

    Raises:
        SchemaMismatch: a type without an Avro counterpart.

    Example:
        >>> arrow_to_avro(pa.schema([("id", pa.int64())]), "a-b")[:62]
        '{"type":"record","name":"a__b_record","namespace":"hoodie.a__b'
    """
    # A commit asks twice, and the schema rarely changes; its bytes hold the metadata that equality leaves out.
    key = (schema.serialize().to_pybytes(), table_name, with_meta)
    text = _texts.get(key)
    if text is None:
        safe = _avro_name(table_name)
        fields = list(with_meta_columns(schema) if with_meta else schema)
        text = _dumps(_Writer().record(fields, f"{safe}_record", f"hoodie.{safe}", ""))
        if len(_texts) >= _KEPT_TEXTS:
            _texts.clear()
        _texts[key] = text
    return text


def _avro_name(text: str) -> str:
    """Return `text` with every character that is illegal in an Avro name replaced by two underscores.

    Example:
        >>> _avro_name("1-fish"), _avro_name("trips")
        ('____fish', 'trips')
    """
    return re.sub(r"^[0-9]|[^A-Za-z0-9_]", "__", text)


@dataclass
class _Writer:
    """Arrow fields to Avro values; remembers the named types that the text has already defined."""

    defined: dict[str, Json] = field(default_factory=dict)

    def record(self, fields: list[pa.Field], name: str, namespace: str, path: str) -> Json:
        inner = f"{namespace}.{name}"
        members: list[Json] = [self.member(each, inner, _join(path, each.name)) for each in fields]
        return {"type": "record", "name": name, "namespace": namespace, "fields": members}

    def member(self, member: pa.Field, namespace: str, path: str) -> Json:
        notes = member.metadata or {}
        default = _loads(notes[AVRO_DEFAULT]) if AVRO_DEFAULT in notes else None
        kind = self.optional(member, member.name, namespace, path)
        if default is not None and member.nullable:
            # The type of a default is the first of the union.
            kind = list(reversed(cast("list[Json]", kind)))
        found: dict[str, Json] = {"name": member.name, "type": kind}
        if AVRO_DOC in notes or member.name in META_COLUMNS:
            found["doc"] = notes.get(AVRO_DOC, b"").decode("utf-8", "replace")
        if default is not None or member.nullable:
            found["default"] = default
        return found

    def optional(self, member: pa.Field, name: str, namespace: str, path: str) -> Json:
        kind = self.kept(member) or self.type(member.type, name, namespace, path)
        return ["null", kind] if member.nullable else kind

    def kept(self, member: pa.Field) -> Json:
        """Return the Avro type that the field was read from, if that still is the field's type."""
        text = (member.metadata or {}).get(_AVRO_TYPE)
        kind = None if text is None else _loads(text)
        if not isinstance(kind, dict) or not _describes(kind, member.type):
            return None
        if not isinstance(kind.get("name"), str):
            return kind
        full, _ = _full_name(kind, "", member.name)
        if self.defined.setdefault(full, kind) is kind:
            return kind
        return full if self.defined[full] == kind else None

    def type(self, kind: pa.DataType, name: str, namespace: str, path: str) -> Json:
        if pt.is_struct(kind):
            return self.record(struct_fields(kind), name, namespace, path)
        if pt.is_list(kind):
            return {"type": "array", "items": self.optional(kind.value_field, name, namespace, _join(path, "element"))}
        if pt.is_map(kind) and pt.is_string(kind.key_type):
            return {"type": "map", "values": self.optional(kind.item_field, name, namespace, _join(path, "value"))}
        return _leaf(kind, f"{namespace}.{name}", path)


def _leaf(kind: pa.DataType, namespace: str, path: str) -> Json:
    if pt.is_timestamp(kind) and kind.tz is not None:
        kind = pa.timestamp(kind.unit, "UTC")
    if str(kind) in _AVRO_OF:
        return _AVRO_OF[str(kind)]
    fixed: dict[str, Json] = {"type": "fixed", "name": "fixed", "namespace": namespace}
    if pt.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        logical: dict[str, Json] = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {**fixed, "size": decimal_bytes(kind.precision), **logical}
    if pt.is_fixed_size_binary(kind) and not pt.is_decimal(kind):
        return {**fixed, "size": kind.byte_width}
    raise SchemaMismatch(f"column {path!r} has type {kind}, which has no Avro counterpart: normalise the schema first")


def decimal_bytes(precision: int) -> int:
    """Return how many bytes hold every number of `precision` decimal digits (two's complement).

    Example:
        >>> [decimal_bytes(p) for p in (5, 10, 15, 18, 38)]
        [3, 5, 7, 8, 16]
    """
    return int(10**precision - 1).bit_length() // 8 + 1


def _describes(avro: Json, kind: pa.DataType) -> bool:
    try:
        found = _Reader().read(avro, "", "", MAX_DEPTH)
    except (CorruptFile, UnsupportedFeature):
        return False
    return bool(found.type == kind)


# ---------------------------------------------------------------------------------------------------- Avro to Arrow


@lru_cache(maxsize=64)
def avro_to_arrow(text: str) -> pa.Schema:
    """Return the Arrow schema of the Avro record that `text` describes (spec 5.3).

    Raises:
        CorruptFile: `text` is no Avro record, or too large or too deep to be one that a table has.
        UnsupportedFeature: a union of several types, a type that holds itself, or a logical type unknown here.

    Example:
        >>> avro_to_arrow('{"type":"record","name":"r","fields":[{"name":"id","type":["null","long"]}]}')
        id: int64
    """
    if len(text) > _MAX_TEXT:
        raise CorruptFile(f"an Avro schema of {len(text)} characters is not read: at most {_MAX_TEXT} are")
    root = _loads(text)
    if not isinstance(root, dict) or root.get("type") not in ("record", "error"):
        raise CorruptFile("the Avro schema of a table must be a record")
    return pa.schema(struct_fields(_Reader().read(root, "", "", MAX_DEPTH + 1).type))


def _loads(text: str | bytes) -> Json:
    try:
        return cast("Json", json.loads(text, parse_constant=_no_constant))
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"an Avro schema is no JSON: {error}") from None


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _dumps(avro: Json) -> str:
    # ASCII only: a lone surrogate in somebody's doc could not be encoded later.
    return json.dumps(avro, separators=(",", ":"))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@dataclass(frozen=True)
class _Found:
    """A type as it was read: what Arrow calls it, and the Avro value when Arrow cannot say all of it."""

    type: pa.DataType
    nullable: bool = False
    kept: Json = None

    def field(self, name: str, notes: Mapping[bytes, bytes] | None = None) -> pa.Field:
        metadata = dict(notes or {})
        if self.kept is not None:
            metadata[_AVRO_TYPE] = _dumps(self.kept).encode()
        return pa.field(name, self.type, self.nullable, metadata or None)


@dataclass
class _Reader:
    """Avro values to Arrow types. `names` holds the definitions met so far, `open` those that are being unfolded."""

    names: dict[str, tuple[dict[str, Json], str]] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)
    types: int = 0

    def read(self, avro: Json, namespace: str, path: str, depth: int) -> _Found:
        self.types += 1
        if depth < 0 or self.types > _MAX_TYPES:
            raise CorruptFile(f"the Avro schema is nested too deeply or unfolds to too many types at {path[:200]!r}")
        if isinstance(avro, str):
            return self.named(avro, namespace, path, depth)
        if isinstance(avro, list):
            return self.union(avro, namespace, path, depth)
        if not isinstance(avro, dict):
            raise CorruptFile(f"the Avro type of {path!r} is neither a name, a union nor an object")
        return self.described(avro, namespace, path, depth)

    def described(self, avro: dict[str, Json], namespace: str, path: str, depth: int) -> _Found:
        kind = avro.get("type")
        if isinstance(kind, list | dict):
            return self.read(kind, namespace, path, depth - 1)
        if kind in ("record", "error", "enum", "fixed"):
            return self.definition(avro, namespace, path, depth)
        if kind == "array":
            return _Found(list_type(self.inside(avro, "items", namespace, _join(path, "element"), depth)))
        if kind == "map":
            return _Found(map_type(self.inside(avro, "values", namespace, _join(path, "value"), depth)))
        if isinstance(kind, str):
            return _primitive(avro, kind, path) if kind in _PLAIN else self.named(kind, namespace, path, depth)
        raise CorruptFile(f"the Avro type of {path!r} has no name")

    def union(self, branches: list[Json], namespace: str, path: str, depth: int) -> _Found:
        some = [branch for branch in branches if branch not in _NULL]
        if len(some) != 1 or len(branches) > 2 or isinstance(some[0], list):
            raise UnsupportedFeature(f"column {path!r} is a union of {len(branches)} types: only [null, T] can be read")
        found = self.read(some[0], namespace, path, depth)
        return _Found(found.type, found.nullable or len(branches) == 2, found.kept)

    def named(self, name: str, namespace: str, path: str, depth: int) -> _Found:
        if name in _PLAIN:
            return _Found(_PLAIN[name])
        if name == "null":
            raise UnsupportedFeature(f"column {path!r} has the Avro type null, which holds nothing")
        for full in (_qualified(name, namespace), name):
            if full in self.names:
                definition, around = self.names[full]
                return self.definition(definition, around, path, depth)
        raise CorruptFile(f"the Avro type of {path!r} is {name[:100]!r}, which nothing defines")

    def definition(self, avro: dict[str, Json], namespace: str, path: str, depth: int) -> _Found:
        full, inner = _full_name(avro, namespace, path)
        if full in self.open:
            raise UnsupportedFeature(f"column {path!r} has the type {full!r}, which holds itself")
        if self.names.setdefault(full, (avro, namespace))[0] is not avro:
            raise CorruptFile(f"the Avro type {full!r} is defined twice, again at {path!r}")
        if avro["type"] == "enum":
            return _Found(pa.string(), kept=_rooted(avro, full))
        if avro["type"] == "fixed":
            return _fixed(avro, full, path)
        _refuse_logical(avro, path)
        self.open.add(full)
        members = self.record(avro, inner, path, depth)
        if path and not members:
            raise UnsupportedFeature(f"column {path!r} is a record without fields, which Parquet cannot store")
        self.open.discard(full)
        return _Found(pa.struct(members))

    def record(self, avro: dict[str, Json], namespace: str, path: str, depth: int) -> list[pa.Field]:
        members = avro.get("fields")
        if not isinstance(members, list):
            raise CorruptFile(f"the Avro record at {path or 'the top'!r} has no list of fields")
        found = [self.member(each, namespace, path, depth) for each in members]
        if len({each.name for each in found}) != len(found):
            raise CorruptFile(f"the Avro record at {path or 'the top'!r} names a field twice")
        return found

    def member(self, avro: Json, namespace: str, path: str, depth: int) -> pa.Field:
        if not isinstance(avro, dict) or "type" not in avro:
            raise CorruptFile(f"the Avro record at {path or 'the top'!r} has a field without a type")
        name = _name(avro.get("name"), path)
        notes = {}
        if avro.get("default") is not None:
            notes[AVRO_DEFAULT] = _dumps(avro["default"]).encode()
        doc = avro.get("doc")
        if isinstance(doc, str) and doc:
            notes[AVRO_DOC] = doc.encode("utf-8", "replace")
        return self.read(avro["type"], namespace, _join(path, name), depth - 1).field(name, notes)

    def inside(self, avro: dict[str, Json], key: str, namespace: str, path: str, depth: int) -> pa.Field:
        _refuse_logical(avro, path)
        if key not in avro:
            raise CorruptFile(f"an Avro {avro['type']} does not say what it holds at {path!r}")
        return self.read(avro[key], namespace, path, depth - 1).field("element")


def _primitive(avro: dict[str, Json], kind: str, path: str) -> _Found:
    logical = _logical(avro, path)
    if logical is None:
        return _Found(_PLAIN[kind])
    if kind == "bytes" and logical == "decimal":
        return _Found(_decimal(avro, path), kept=avro)
    known = _LOGICAL.get((kind, logical))
    # A logical type that nobody here knows counts for nothing, says Avro; but it must not get lost.
    return _Found(known) if known is not None else _Found(_PLAIN[kind], kept=avro)


def _fixed(avro: dict[str, Json], full: str, path: str) -> _Found:
    size = avro.get("size")
    if not _is_int(size, 1, _MAX_FIXED):
        raise CorruptFile(f"the Avro fixed at {path!r} has the size {size!r}")
    if _logical(avro, path) == "decimal":
        kind = _decimal(avro, path)
        return _Found(kind, kept=None if size == decimal_bytes(kind.precision) else _rooted(avro, full))
    return _Found(pa.binary(cast("int", size)), kept=_rooted(avro, full))


def _decimal(avro: dict[str, Json], path: str) -> pa.DataType:
    precision, scale = avro.get("precision"), avro.get("scale", 0)
    if not _is_int(precision, 1, 1 << 20) or not _is_int(scale, 0, cast("int", precision)):
        raise CorruptFile(f"the Avro decimal at {path!r} has precision {precision!r} and scale {scale!r}")
    if cast("int", precision) > 38:
        raise UnsupportedFeature(f"column {path!r} has {precision} decimal digits: at most 38 can be read")
    return pa.decimal128(cast("int", precision), cast("int", scale))


def _is_int(value: Json, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _logical(avro: dict[str, Json], path: str) -> str | None:
    logical = avro.get("logicalType")
    if logical is not None and not isinstance(logical, str):
        raise CorruptFile(f"the Avro logical type of {path!r} is no text")
    if logical in _NOT_READABLE:
        _refuse_logical(avro, path)
    return logical


def _refuse_logical(avro: dict[str, Json], path: str) -> None:
    if avro.get("logicalType") is not None:
        raise UnsupportedFeature(
            f"column {path!r} has the logical type {avro['logicalType']!r}, which is not known here"
        )


def _name(name: Json, path: str) -> str:
    if isinstance(name, str) and 0 < len(name) <= _MAX_NAME and not re.search("[\ud800-\udfff]", name):
        return name
    raise CorruptFile(f"an Avro field or type at {path or 'the top'!r} has no name, or one that is none")


def _qualified(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _full_name(avro: dict[str, Json], namespace: str, path: str) -> tuple[str, str]:
    """Return a definition's full name and the namespace that holds inside it."""
    stated = avro.get("namespace", namespace)
    full = _qualified(_name(avro.get("name"), path), _name(stated, path) if stated else "")
    return full, full.rpartition(".")[0]


def _rooted(avro: dict[str, Json], full: str) -> dict[str, Json]:
    """Return a definition that says its full name wherever it is put."""
    space, _, name = full.rpartition(".")
    return {**avro, "name": name, "namespace": space}
