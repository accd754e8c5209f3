"""Registered merge functions: Python functions over Arrow tables (docs/format.md, Merge modes).

A table names its merger by an id derived from the function's name. Other engines refuse the table,
unless someone registered a merger with that id. Code is never stored. A process has a function
because it registered it, or because the caller's options name it as ``module:function``; nothing in
a table is ever imported.
"""

from __future__ import annotations

import pkgutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final

import pyarrow as pa

from lakefmt.arguments import shown, text_argument
from lakefmt.data_classes import dataclass
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

#: The option with the function's name, and its key in lakefmt's table file.
FUNCTION: Final = "lakefmt.merge.function"
#: The UUID namespace of merger ids; it never changes.
_NAMESPACE: Final = uuid.UUID("5b0b5a0e-7c5c-5d2e-9a4f-8e1f3d6c2a71")

#: ``(older, newer) -> merged`` or ``-> (merged, deletes)``: tables of equal length and schema,
#: aligned by key.
MergeFunction = Callable[[pa.Table, pa.Table], "pa.Table | tuple[pa.Table, object]"]

_known: dict[str, CustomMerge] = {}


@dataclass(frozen=True, slots=True)
class CustomMerge:
    """A registered merge function.

    Attributes:
        name: its registered name.
        function: the function; two with one name are equal.
        fixed: the key and partition columns, which it must not change.
    """

    name: str
    function: MergeFunction = field(compare=False, repr=False)
    fixed: tuple[str, ...] = ()


def strategy_id(name: str) -> str:
    """Return the strategy id of a merger's name, the same everywhere.

    Example:
        >>> strategy_id("shop:add") == strategy_id("shop:add") != strategy_id("shop:keep")
        True
    """
    return str(uuid.uuid5(_NAMESPACE, name))


def register_merger(name: str, function: MergeFunction) -> None:
    """Register a merge function under a name that tables store.

    Args:
        name: not empty; a new behaviour needs a new name, because tables written with the old one
            are merged by it.
        function: called with two tables of equal length and schema, aligned by key, the older and
            the newer rows; returns the merged rows, or these and a mask of rows to delete.

    Raises:
        InvalidInputError: the name is not valid, or `function` is not callable.

    Example:
        >>> register_merger("doc-keep-old", lambda older, newer: older)
        >>> find_merger(strategy_id("doc-keep-old")).name
        'doc-keep-old'
    """
    if not text_argument(name, "name") or not name.isprintable() or len(name) > 200 or not callable(function):
        raise InvalidInputError(f"{shown(name)} and {type(function).__name__}: a merger is a short name and a function")
    _known[strategy_id(name)] = CustomMerge(name, function)


def merger_name(merge: str | MergeFunction) -> str:
    """Return the name of the caller's merger, and register it.

    Args:
        merge: a module level function, a registered name, or ``module:function``.

    Raises:
        InvalidInputError: a function without an importable name (a lambda, or a nested function).
        MergerMissing: the name is neither registered nor importable.

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
    registered = next((merger.name for merger in _known.values() if merger.function is merge), None)
    if registered is None and ("<" in name or name.startswith(":") or name.endswith(":")):
        raise InvalidInputError(
            "the merge function has no name of its own: register_merger(name, function) gives it one"
        )
    register_merger(registered or name, merge)
    return registered or name


def with_merger(options: Mapping[str, object], merge: str | MergeFunction | None) -> dict[str, object]:
    """Return the options with the merger's name, by which worker processes find the function.

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
    """Register the function in the caller's options, if there is one.

    Raises:
        MergerMissing: it cannot be imported.

    Example:
        >>> adopt_merger({})
    """
    name = options.get(FUNCTION)
    if name:
        merger_name(str(name))


def find_merger(identifier: str) -> CustomMerge:
    """Return the merger of a strategy id.

    Raises:
        MergerMissing: it is not registered in this process.
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
    """Import the function ``module:function`` that the caller names."""
    try:
        if ":" not in name:
            raise ValueError("no registered name, and not module:function")
        function: MergeFunction = pkgutil.resolve_name(name)
        if not callable(function):
            raise TypeError("not a function")
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise MergerMissing(f"the merge function {name!r} is not there: {error}") from None
    return function
