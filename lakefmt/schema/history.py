"""Schemas with column ids, as Spark leaves them when it renames, drops or adds columns of a table. Pure.

With ``hoodie.schema.on.read.enable`` every commit names its *internal schema*: columns with ids that never change. A file
that was written before a change is read by ids. lakefmt reads by names; here it is decided whether names say the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakefmt.errors import CorruptFile

__all__ = ["LATEST_SCHEMA", "InternalSchema", "parse_internal_schema", "parse_schema_history", "why_names_fail"]

#: The key of a commit's extra metadata that holds the internal schema.
LATEST_SCHEMA: Final = "latest_schema"
_MOST_DEPTH: Final = 64
_DECIMAL: Final = re.compile(r"decimal(?:_bytes|_fixed)?\((\d{1,3}),\s*(-?\d{1,3})\).*")
#: Changes of type after which a value that was stored before reads as Spark reads it. A float that became a double is none:
#: Spark takes the double of its shortest text, 1.1 and not 1.100000023841858.
_WIDENED: Final = frozenset({("int", "long"), ("int", "double")})


@dataclass(frozen=True, slots=True)
class InternalSchema:
    """A schema with column ids.

    Attributes:
        version: the instant since which it holds, as a number; 0 for the first one.
        columns: id → full name, parents before their fields, and type; nested types are ``record``, ``array``, ``map``.
    """

    version: int
    columns: Mapping[int, tuple[str, str]]


def parse_internal_schema(text: str, what: str) -> InternalSchema:
    """Return the schema that a commit names.

    Args:
        text: JSON.
        what: where it stands, for the error.

    Raises:
        CorruptFile: it is no internal schema.

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
    found = _loaded(text, what).get("schemas")
    if not isinstance(found, list):
        raise CorruptFile(f"{what} holds no list of schemas")
    return tuple(_schema(one, what) for one in found)


def why_names_fail(current: InternalSchema, older: Sequence[InternalSchema]) -> str | None:
    """Return why files of older schemas cannot be read by the names of the current one; None: they can.

    Args:
        current: the schema that the table has.
        older: those that it had before; later ones than `current` do not count.

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
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"{what} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise CorruptFile(f"{what} is no JSON object")
    return found


def _schema(found: Any, what: str) -> InternalSchema:
    try:
        version = found.get("version_id", 0)
        columns = {number: (name, kind) for number, name, kind in _fields(found["fields"], "", 0)}
        return InternalSchema(int(version), columns)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorruptFile(f"{what} holds no schema with column ids: {error!r}") from None


def _fields(fields: Any, prefix: str, depth: int) -> Iterator[tuple[int, str, str]]:
    for one in fields:
        name = prefix + str(one["name"])
        yield from _column(int(one["id"]), name, one["type"], depth)


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
