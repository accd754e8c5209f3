"""Schemas with column ids, which Spark writes for changed columns (docs/format.md, Schema history). Pure.

With ``hoodie.schema.on.read.enable`` every commit has an *internal schema*: columns with permanent
ids. Spark reads older files by ids. lakefmt reads by names and checks here that names give the same
result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakefmt.errors import CorruptFile

__all__ = ["LATEST_SCHEMA", "InternalSchema", "parse_internal_schema", "parse_schema_history", "why_names_fail"]

#: The key of a commit's extra metadata with the internal schema.
LATEST_SCHEMA: Final = "latest_schema"
_MOST_DEPTH: Final = 64
_DECIMAL: Final = re.compile(r"decimal(?:_bytes|_fixed)?\((\d{1,3}),\s*(-?\d{1,3})\).*")
#: Type changes after which stored values read as in Spark. Float to double is not one: Spark takes
#: the double of the shortest text, 1.1 and not 1.100000023841858.
_WIDENED: Final = frozenset({("int", "long"), ("int", "double")})


@dataclass(frozen=True, slots=True)
class InternalSchema:
    """A schema with column ids.

    Attributes:
        version: the instant from which it is valid, as a number; 0 for the first one.
        columns: id → full name and type, parents before their fields; nested types are ``record``,
            ``array``, ``map``.
    """

    version: int
    columns: Mapping[int, tuple[str, str]]


def parse_internal_schema(text: str, what: str) -> InternalSchema:
    """Return the internal schema of a commit.

    Args:
        text: JSON.
        what: its place, for errors.

    Raises:
        CorruptFile: not an internal schema.

    Example:
        >>> parse_internal_schema('{"version_id":7,"fields":[{"id":0,"name":"k","type":"string"}]}', "t").columns
        {0: ('k', 'string')}
    """
    return _schema(_loaded(text, what), what)


def parse_schema_history(text: str, what: str) -> tuple[InternalSchema, ...]:
    """Return the schemas of a history file; arguments and errors as for :func:`parse_internal_schema`.

    Example:
        >>> parse_schema_history('{"schemas":[]}', "t")
        ()
    """
    schemas = _loaded(text, what).get("schemas")
    if not isinstance(schemas, list):
        raise CorruptFile(f"{what} holds no list of schemas")
    return tuple(_schema(schema, what) for schema in schemas)


def why_names_fail(current: InternalSchema, older: Sequence[InternalSchema]) -> str | None:
    """Return why older files cannot be read by the names of the current schema; None if they can.

    Args:
        current: the current schema.
        older: the earlier schemas; those later than `current` are ignored.

    Example:
        >>> was, now = (InternalSchema(n, {0: (name, "int")}) for n, name in ((0, "a"), (5, "b")))
        >>> why_names_fail(now, [was])
        "column 'b' was called 'a' before"
        >>> why_names_fail(now, [])
    """
    for past in older:
        if past.version >= current.version:
            continue
        taken = {name for name, _ in past.columns.values()}
        for number, (name, kind) in current.columns.items():
            reason = _why(name, kind, past.columns.get(number), taken)
            if reason is not None:
                return reason
    return None


def _why(name: str, kind: str, was: tuple[str, str] | None, taken: set[str]) -> str | None:
    if was is None:
        again = f"column {name!r} was dropped and added again: files from before hold values of the dropped one"
        return again if name in taken else None
    if was[0] != name:
        return f"column {name!r} was called {was[0]!r} before"
    if was[1] != kind and not _is_widened(was[1], kind):
        return f"column {name!r} was {was[1]} before and is {kind} now"
    return None


def _is_widened(old: str, new: str) -> bool:
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if before is not None and after is not None:
        return before[2] == after[2] and int(before[1]) <= int(after[1])
    return (old, new) in _WIDENED


# ------------------------------------------------------------------------------------------------------------ from JSON


def _loaded(text: str, what: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{what} is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise CorruptFile(f"{what} is no JSON object")
    return document


def _schema(document: Any, what: str) -> InternalSchema:
    try:
        version = document.get("version_id", 0)
        columns = {number: (name, kind) for number, name, kind in _fields(document["fields"], "", 0)}
        return InternalSchema(int(version), columns)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorruptFile(f"{what} holds no schema with column ids: {error!r}") from None


def _fields(fields: Any, prefix: str, depth: int) -> Iterator[tuple[int, str, str]]:
    for entry in fields:
        name = prefix + str(entry["name"])
        yield from _column(int(entry["id"]), name, entry["type"], depth)


def _column(number: int, name: str, kind: Any, depth: int) -> Iterator[tuple[int, str, str]]:
    if depth > _MOST_DEPTH:
        raise ValueError(f"more than {_MOST_DEPTH} levels")
    if isinstance(kind, str):
        yield number, name, kind.lower()
        return
    nested = str(kind["type"])
    yield number, name, nested
    if nested == "record":
        yield from _fields(kind["fields"], f"{name}.", depth + 1)
    elif nested == "array":
        yield from _column(int(kind["element_id"]), f"{name}.element", kind["element"], depth + 1)
    elif nested == "map":
        yield from _column(int(kind["key_id"]), f"{name}.key", kind["key"], depth + 1)
        yield from _column(int(kind["value_id"]), f"{name}.value", kind["value"], depth + 1)
    else:
        raise ValueError(f"type {nested!r}")
