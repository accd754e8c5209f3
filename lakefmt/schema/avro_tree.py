"""Avro schemas as trees of :class:`AvroType`: the only reader of Avro schema text. Pure.

Schemas come from files and are hostile. The tree holds only types whose every value takes at least one byte and which
do not contain themselves. A reader of values can then check counts and lengths against the bytes left before it
allocates anything, and nesting has an end.

Malformed schemas are :class:`MalformedAvro` here; callers turn them into errors that name the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import NoReturn

from lakefmt.data_classes import dataclass, replace

__all__ = ["ABSENT", "AvroField", "AvroType", "MalformedAvro", "UnsupportedAvro", "avro_tree", "parse_avro_schema"]

_MAX_SCHEMA_CHARACTERS = 256 * 1024
_MAX_DEPTH = 32
_MAX_BRANCHES = 64
_MAX_FIXED_BYTES = 1024 * 1024
_MAX_NAME_CHARACTERS = 1_000

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_ITEM = {"array": "items", "map": "values"}


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
    text: str | bytes, *, max_characters: int = _MAX_SCHEMA_CHARACTERS, max_depth: int = _MAX_DEPTH
) -> AvroType:
    """Return the tree of an Avro schema in JSON.

    Parameters:
        text: the JSON text.
        max_characters: a longer text is refused before it is parsed.
        max_depth: levels of records, arrays and maps inside each other; a union is no level.

    Raises:
        MalformedAvro: the text is no JSON, or no Avro schema.
        UnsupportedAvro: its values could take no bytes, or could nest without end.

    Example:
        >>> parse_avro_schema('{"type": "array", "items": ["null", "long"]}').parts[0].kind
        'union'
    """
    if len(text) > max_characters:
        raise MalformedAvro(f"schema of {len(text):,} characters; at most {max_characters:,} are read")
    try:
        node = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise MalformedAvro("schema is nested too deeply") from None
    except ValueError as error:
        raise MalformedAvro(f"schema is no JSON: {error}") from None
    return avro_tree(node, max_depth=max_depth)


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def avro_tree(node: object, *, max_depth: int = _MAX_DEPTH) -> AvroType:
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
            raise MalformedAvro(f"{_place(path)} {node!r:.60} is not an Avro type")
        kind = node.get("type")
        if not isinstance(kind, str):
            return self.parse(kind, namespace, path, depth + 1)
        if kind in _PRIMITIVES:
            return AvroType(kind, attributes=node)
        if kind in _ITEM:
            inside = _join(path, "element" if kind == "array" else "value")
            item = self._value(_get(node, _ITEM[kind], path), namespace, inside, depth)
            return self._measured(AvroType(kind, parts=(item,), attributes=node), path)
        if kind in _NAMED:
            return self._define(node, kind, namespace, path, depth)
        return self._reference(kind, namespace, path)

    def _value(self, node: object, namespace: str, path: str, depth: int) -> AvroType:
        """Return the type of a field, item or map value: one that takes at least a byte."""
        made = self.parse(node, namespace, path, depth + 1)
        if made.kind == "null":
            raise UnsupportedAvro(f"{_place(path)} null stands outside a union: values without bytes are not read")
        return made

    def _union(self, nodes: Sequence[object], namespace: str, path: str, depth: int) -> AvroType:
        if not nodes:
            raise MalformedAvro(f"{_place(path)} union of no types")
        if len(nodes) > _MAX_BRANCHES:
            raise UnsupportedAvro(f"{_place(path)} union of {len(nodes)} types; at most {_MAX_BRANCHES} are read")
        # Looked for before parsing, too: a union is no level of nesting, so that only this bounds the recursion.
        nested = any(isinstance(node, list) for node in nodes)
        parts = () if nested else tuple([self.parse(node, namespace, path, depth) for node in nodes])
        if nested or any(part.kind == "union" for part in parts):
            raise UnsupportedAvro(f"{_place(path)} union directly inside a union")
        return self._measured(AvroType("union", parts=parts), path)

    def _reference(self, name: str, namespace: str, path: str) -> AvroType:
        full = _qualified(name, namespace)
        full = full if full in self.named else name
        if full not in self.named:
            raise MalformedAvro(f"{_place(path)} unknown type {name!r:.60}")
        definition = self.named[full]
        if definition is None:
            raise UnsupportedAvro(f"{_place(path)} type {name!r:.60} contains itself")
        return definition

    def _define(self, node: Mapping[str, object], kind: str, namespace: str, path: str, depth: int) -> AvroType:
        stated = node.get("namespace")
        namespace = _name({"namespace": stated}, "namespace", path) if stated else "" if stated == "" else namespace
        full = _qualified(_name(node, "name", path), namespace)
        if full in self.named:
            raise MalformedAvro(f"{_place(path)} type {full!r:.60} is defined twice")
        self.named[full] = None
        if kind == "enum":
            made = AvroType(kind, full, _accepted(node, full, path), symbols=_texts(node, "symbols", path))
        elif kind == "fixed":
            made = AvroType(kind, full, _accepted(node, full, path), size=_fixed_size(node, path))
        else:
            fields = self._fields(node, full.rpartition(".")[0], path, depth)
            made = AvroType("record", full, _accepted(node, full, path), fields)
        made = self.named[full] = self._measured(replace(made, attributes=node), path)
        return made

    def _fields(self, node: Mapping[str, object], namespace: str, path: str, depth: int) -> tuple[AvroField, ...]:
        entries = _list(node, "fields", path)
        if not entries and path:
            raise UnsupportedAvro(f"{_place(path)} record without fields: values without bytes are not read")
        fields = tuple([self._field(entry, namespace, path, depth) for entry in entries])
        if len({each.name for each in fields}) < len(fields):
            raise MalformedAvro(f"{_place(path)} record with two fields of one name")
        return fields

    def _field(self, entry: object, namespace: str, path: str, depth: int) -> AvroField:
        if not isinstance(entry, dict):
            raise MalformedAvro(f"{_place(path)} {entry!r:.60} is not a field")
        name, doc = _name(entry, "name", path), entry.get("doc")
        kind = self._value(_get(entry, "type", path), namespace, _join(path, name), depth)
        return AvroField(name, kind, entry.get("default", ABSENT), doc if isinstance(doc, str) else "")

    def _measured(self, made: AvroType, path: str) -> AvroType:
        """Return `made` with its height and nodes, which count through references as the depth of the text does not."""
        below = [*made.parts, *(each.type for each in made.fields)]
        height = max([each.height for each in below], default=0) + (made.kind != "union")
        if height > self.max_depth:
            raise self._too_deep(path)
        return replace(made, height=height, nodes=1 + sum([each.nodes for each in below]))

    def _too_deep(self, path: str) -> MalformedAvro:
        return MalformedAvro(f"{_place(path)} schema is nested more than {self.max_depth} levels deep")


def _place(path: str) -> str:
    return f"field {path[:200]!r}:" if path else "top level:"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _qualified(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _name(node: Mapping[str, object], key: str, path: str) -> str:
    value = node.get(key)
    if isinstance(value, str) and 0 < len(value) <= _MAX_NAME_CHARACTERS and not re.search("[\ud800-\udfff]", value):
        return value
    raise MalformedAvro(f"{_place(path)} {key!r} is {value!r:.60}, which is no Avro name")


def _accepted(node: Mapping[str, object], full: str, path: str) -> frozenset[str]:
    aliases = _texts(node, "aliases", path) if "aliases" in node else ()
    return frozenset(name.rpartition(".")[2] for name in (full, *aliases))


def _fixed_size(node: Mapping[str, object], path: str) -> int:
    size = node.get("size")
    if type(size) is not int or not 0 < size <= _MAX_FIXED_BYTES:
        raise MalformedAvro(f"{_place(path)} fixed of size {size!r:.60}")
    return size


def _get(node: Mapping[str, object], key: str, path: str) -> object:
    if key not in node:
        raise MalformedAvro(f"{_place(path)} schema without {key!r}")
    return node[key]


def _list(node: Mapping[str, object], key: str, path: str) -> list[object]:
    value = node.get(key)
    if not isinstance(value, list):
        raise MalformedAvro(f"{_place(path)} {key!r} is not a list")
    return value


def _texts(node: Mapping[str, object], key: str, path: str) -> tuple[str, ...]:
    entries = _list(node, key, path)
    if not entries:
        raise MalformedAvro(f"{_place(path)} {key!r} is empty")
    return tuple(entry if isinstance(entry, str) else str(entry) for entry in entries)
