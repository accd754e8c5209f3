"""Mergers of one's own: Python functions over Arrow tables, known by name (spec 1.7).

A table names its merger by an id, made from the function's name, that no other engine knows: those refuse the table, or
take a merger that somebody has given the same id. Code is never stored. A process has the function because it registered
it, or because a caller's options name it as ``module:function``; nothing that a table says is ever imported.
"""

from __future__ import annotations

import pkgutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from lakefmt.arguments import shown, text_argument
from lakefmt.errors import InvalidInputError, MergerMissing

__all__ = [
    "FUNCTION",
    "CustomMerge",
    "MergeFunction",
    "adopt_merger",
    "find_merger",
    "merger_name",
    "register_merger",
    "strategy_id",
    "with_merger",
]

#: The option that names a function, and the note beside the table that remembers which.
FUNCTION: Final = "lakefmt.merge.function"
#: Ids of mergers are made under it; it was drawn once and never changes.
_NAMESPACE: Final = uuid.UUID("5b0b5a0e-7c5c-5d2e-9a4f-8e1f3d6c2a71")

#: ``(older, newer) -> merged`` or ``-> (merged, deletes)``: tables of equal length and schema, aligned by key.
MergeFunction = Callable[[pa.Table, pa.Table], "pa.Table | tuple[pa.Table, object]"]

_known: dict[str, CustomMerge] = {}


@dataclass(frozen=True, slots=True)
class CustomMerge:
    """A merger.

    Attributes:
        name: what it is registered under.
        function: what it does; two of one name count as the same.
        fixed: columns that it must leave as they are: those of key and partition.
    """

    name: str
    function: MergeFunction = field(compare=False, repr=False)
    fixed: tuple[str, ...] = ()


def strategy_id(name: str) -> str:
    """Return the id by which tables name a merger: the same for the same name, everywhere.

    Example:
        >>> strategy_id("shop:add") == strategy_id("shop:add") != strategy_id("shop:keep")
        True
    """
    return str(uuid.uuid5(_NAMESPACE, name))


def register_merger(name: str, function: MergeFunction) -> None:
    """Make a merge function known to this process, under a name that tables remember.

    Args:
        name: not empty; a new behaviour wants a new name, because tables written with the old one are merged by it.
        function: called with two tables of equal length and schema, row by row of the same key, the older and the newer
            ones; it returns the merged rows, or these and a mask of rows to delete.

    Raises:
        InvalidInputError: the name cannot be one, or `function` cannot be called.

    Example:
        >>> register_merger("doc-keep-old", lambda older, newer: older)
        >>> find_merger(strategy_id("doc-keep-old")).name
        'doc-keep-old'
    """
    if not text_argument(name, "name") or not name.isprintable() or len(name) > 200 or not callable(function):
        raise InvalidInputError(f"{shown(name)} and {type(function).__name__}: a merger is a short name and a function")
    _known[strategy_id(name)] = CustomMerge(name, function)


def merger_name(merge: str | MergeFunction) -> str:
    """Return the name of a merger that a caller gives, and make it known.

    Args:
        merge: a function of a module's top level, a registered name, or ``module:function``.

    Raises:
        InvalidInputError: a function without a name of its own (a lambda, or one made inside another).
        MergerMissing: nothing is registered under the name, and it names no function that can be imported.

    Example:
        >>> register_merger("doc-add", lambda older, newer: newer)
        >>> merger_name("doc-add")
        'doc-add'
    """
    if isinstance(merge, str):
        text_argument(merge, "merge")
        if strategy_id(merge) not in _known:
            register_merger(merge, _imported(merge))
        return merge
    name = f"{getattr(merge, '__module__', '')}:{getattr(merge, '__qualname__', '')}"
    known = next((found.name for found in _known.values() if found.function is merge), None)
    if known is None and ("<" in name or name.startswith(":") or name.endswith(":")):
        raise InvalidInputError(
            "the merge function has no name of its own: register_merger(name, function) gives it one"
        )
    register_merger(known or name, merge)
    return known or name


def with_merger(options: Mapping[str, object], merge: str | MergeFunction | None) -> dict[str, object]:
    """Return a handle's options, in which a function is named, so that workers find it by its name.

    Raises:
        InvalidInputError: `merge` is neither a mode nor a merger.

    Example:
        >>> with_merger({}, "event_time"), with_merger({}, "os:getcwd")
        ({}, {'lakefmt.merge.function': 'os:getcwd'})
    """
    if merge is None or (isinstance(merge, str) and merge in ("event_time", "commit_time")):
        return dict(options)
    try:
        return {**options, FUNCTION: merger_name(merge)}
    except MergerMissing as error:
        raise InvalidInputError(
            f"unknown merge {shown(merge)}: neither 'event_time' nor 'commit_time', and {error}"
        ) from None


def adopt_merger(options: Mapping[str, object]) -> None:
    """Make the function known that a caller's options name; without the option nothing happens.

    Raises:
        MergerMissing: it cannot be imported.

    Example:
        >>> adopt_merger({})
    """
    name = options.get(FUNCTION)
    if name:
        merger_name(str(name))


def find_merger(identifier: str) -> CustomMerge:
    """Return the merger of an id.

    Raises:
        MergerMissing: this process does not have it.
    """
    if identifier not in _known:
        raise MergerMissing(
            f"the table merges records by merger {identifier}, which this process does not have: its base files are read, "
            f"logs are not merged and nothing is written. If lakefmt made the table, .hoodie/.lakefmt/table.json names "
            f"the function: register_merger(name, function), or options={{'{FUNCTION}': 'module:function'}}; else use "
            "the engine that made it"
        )
    return _known[identifier]


def _imported(name: str) -> MergeFunction:
    """Return the function that a caller names as ``module:function``."""
    try:
        if ":" not in name:
            raise ValueError("no registered name, and not module:function")
        found: MergeFunction = pkgutil.resolve_name(name)
        if not callable(found):
            raise TypeError("not a function")
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise MergerMissing(f"the merge function {name!r} is not there: {error}") from None
    return found
