"""Avro schemas as trees of :class:`AvroType`.

Schemas come from files and are hostile. Accepted are only those whose every value takes at least one byte and which do
not contain themselves: then whoever reads values can check counts and lengths against the bytes left, and nesting has
an end, before anything is allocated. Logical types, docs and orders are left out: a value is the one that is stored.

Malformed schemas are :class:`MalformedAvro` here; :mod:`lakefmt.formats.avro.container` turns them into errors that name the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

__all__ = ["ABSENT", "AvroField", "AvroType", "MalformedAvro", "parse_avro_schema"]

_MAX_SCHEMA_BYTES = 256 * 1024
MAX_DEPTH = 32
_MAX_BRANCHES = 64
_MAX_FIXED_BYTES = 1024 * 1024

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})


class MalformedAvro(ValueError):
    """A schema, or the bytes of a value, or a value, is not what Avro asks for; private to these modules."""


class _Absent:
    """Stands for a value that is not there: a field without a default."""

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
        height: levels of nesting below and with this node.
    """

    kind: str
    name: str = ""
    accepts: frozenset[str] = frozenset()
    fields: tuple[AvroField, ...] = ()
    parts: tuple[AvroType, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    height: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class AvroField:
    """One field of a record; ``default`` is :data:`ABSENT` when there is none."""

    name: str
    type: AvroType
    default: object = ABSENT


# --------------------------------------------------------------------------------------------------------- schemas


def parse_avro_schema(text: str) -> AvroType:
    """Return the tree of an Avro schema in JSON.

    Raises:
        ValueError: the text is no JSON.
        MalformedAvro: it is not a schema, or one that could make values without bytes or without end.

    Example:
        >>> parse_avro_schema('{"type": "array", "items": ["null", "long"]}').parts[0].kind
        'union'
    """
    if len(text) > _MAX_SCHEMA_BYTES:
        raise MalformedAvro(f"schema of {len(text):,} characters; at most {_MAX_SCHEMA_BYTES:,} are read")
    try:
        node = json.loads(text)
    except RecursionError:
        raise MalformedAvro("schema is nested too deeply") from None
    return _SchemaParser().parse(node, "", 0)


@dataclass
class _SchemaParser:
    """Remembers the named types of one schema, and which of them are still being read."""

    named: dict[str, AvroType | None] = field(default_factory=dict)

    def parse(self, node: object, namespace: str, depth: int) -> AvroType:
        if depth > MAX_DEPTH:
            raise MalformedAvro(f"schema is nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, str):
            return AvroType(node) if node in _PRIMITIVES else self._reference(node, namespace)
        if isinstance(node, list):
            return self._union(node, namespace, depth)
        if not isinstance(node, dict):
            raise MalformedAvro(f"{node!r:.60} is not an Avro type")
        kind = node.get("type")
        if kind in ("array", "map"):
            return _checked(AvroType(kind, parts=(self._value(_get(node, _ITEM[kind]), namespace, depth),)))
        if isinstance(kind, str) and kind in _NAMED:
            return self._define(node, kind, namespace, depth)
        return self.parse(kind, namespace, depth + 1)

    def _value(self, node: object, namespace: str, depth: int) -> AvroType:
        """Return the type of a field, item or map value: one that takes at least a byte."""
        found = self.parse(node, namespace, depth + 1)
        if found.kind == "null":
            raise MalformedAvro("null stands outside a union: values without bytes are not read")
        return found

    def _union(self, nodes: Sequence[object], namespace: str, depth: int) -> AvroType:
        if not 0 < len(nodes) <= _MAX_BRANCHES:
            raise MalformedAvro(f"union of {len(nodes)} branches")
        parts = tuple(self.parse(node, namespace, depth + 1) for node in nodes)
        if any(part.kind == "union" for part in parts):
            raise MalformedAvro("union directly inside a union")
        return _checked(AvroType("union", parts=parts))

    def _reference(self, name: str, namespace: str) -> AvroType:
        full = _full_name(name, namespace)
        known = full if full in self.named else name
        if known not in self.named:
            raise MalformedAvro(f"unknown type {name!r:.60}")
        found = self.named[known]
        if found is None:
            raise MalformedAvro(f"type {name!r:.60} contains itself")
        return found

    def _define(self, node: Mapping[str, object], kind: str, namespace: str, depth: int) -> AvroType:
        full = _full_name(_text(node, "name"), str(node.get("namespace") or namespace))
        if full in self.named:
            raise MalformedAvro(f"type {full!r:.60} is defined twice")
        self.named[full] = None
        made = _checked(self._body(node, kind, full, depth))
        self.named[full] = made
        return made

    def _body(self, node: Mapping[str, object], kind: str, full: str, depth: int) -> AvroType:
        if kind == "enum":
            return AvroType("enum", full, _accepted(node, full), symbols=_texts(node, "symbols"))
        if kind == "fixed":
            size = node.get("size")
            if type(size) is not int or not 0 < size <= _MAX_FIXED_BYTES:
                raise MalformedAvro(f"fixed of size {size!r:.60}")
            return AvroType("fixed", full, _accepted(node, full), size=size)
        fields = tuple(self._field(entry, full.rpartition(".")[0], depth) for entry in _entries(node, "fields"))
        if len({one.name for one in fields}) < len(fields):
            raise MalformedAvro(f"record {full!r:.60} has two fields of one name")
        return AvroType("record", full, _accepted(node, full), fields)

    def _field(self, entry: object, namespace: str, depth: int) -> AvroField:
        if not isinstance(entry, dict):
            raise MalformedAvro(f"{entry!r:.60} is not a field")
        kind = self._value(_get(entry, "type"), namespace, depth)
        return AvroField(_text(entry, "name"), kind, entry.get("default", ABSENT))


_ITEM = {"array": "items", "map": "values"}


def _checked(made: AvroType) -> AvroType:
    """Return `made` with its height, which counts through references as the depth of the text does not."""
    below = [part.height for part in made.parts] + [one.type.height for one in made.fields]
    height = 1 + max(below, default=0)
    if height > MAX_DEPTH:
        raise MalformedAvro(f"schema is nested more than {MAX_DEPTH} levels deep")
    return replace(made, height=height)


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _accepted(node: Mapping[str, object], full: str) -> frozenset[str]:
    aliases = _texts(node, "aliases") if "aliases" in node else ()
    return frozenset(name.rpartition(".")[2] for name in (full, *aliases))


def _get(node: Mapping[str, object], key: str) -> object:
    if key not in node:
        raise MalformedAvro(f"schema without {key!r}")
    return node[key]


def _text(node: Mapping[str, object], key: str) -> str:
    value = node.get(key)
    if not isinstance(value, str) or not value:
        raise MalformedAvro(f"{key!r} is {value!r:.60}")
    return value


def _entries(node: Mapping[str, object], key: str) -> list[object]:
    value = node.get(key)
    if not isinstance(value, list) or not value:
        raise MalformedAvro(f"{key!r} is not a list of at least one entry")
    return value


def _texts(node: Mapping[str, object], key: str) -> tuple[str, ...]:
    return tuple(entry if isinstance(entry, str) else str(entry) for entry in _entries(node, key))
