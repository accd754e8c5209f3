"""Python's own values on their way in: checked before Arrow sees them, and told in messages whatever they are. Pure.

Values of a caller run code of their own: ``__iter__``, ``__str__``, ``__arrow_c_stream__``. What that code raises becomes an
error of lakefmt with the first one as its cause. Arrow ends the process on a list that holds itself, so the depth of
values whose type Arrow has to find out is looked at first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeGuard, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from lakefmt.errors import InvalidInputError, LakefmtError, SchemaMismatch
from lakefmt.values import PartitionPath

__all__ = [
    "arrow_array",
    "arrow_scalar",
    "check_flags",
    "check_levels",
    "check_texts",
    "field_names",
    "flag_argument",
    "foreign",
    "foreign_items",
    "instance_argument",
    "is_encodable",
    "mapping_argument",
    "partitions_argument",
    "shown",
    "text_argument",
    "texts_argument",
    "told",
]

T = TypeVar("T")

#: Lists and dicts in one another deeper than this are refused; a type nested deeper cannot be stored either.
_MAX_LEVELS: Final = 64

_LONGEST: Final = 100
_CONTAINERS: Final = (list, tuple, dict, set, frozenset, np.ndarray)
#: What asks the process to end is not caught; panics of other languages are no `Exception`, and are.
_ENDS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)


def shown(value: object) -> str:
    r"""Return what a message shows of a value, short, whatever the value is.

    Example:
        >>> shown("k1"), shown("\ud800"), len(shown("x" * 999))
        ("'k1'", "'\\ud800'", 103)
    """
    try:
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    except Exception:  # noqa: BLE001 - a value's own code
        return f"a value of type {type(value).__name__}"


def told(error: BaseException) -> str:
    r"""Return what another library's error says, on one line, whatever its own code does.

    Example:
        >>> told(ValueError("one\ntwo"))
        'ValueError: one'
    """
    try:
        lines = str(error).splitlines()
    except Exception:  # noqa: BLE001 - an error's own code
        lines = []
    text = lines[0].encode("utf-8", "backslashreplace").decode()[:500] if lines else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def foreign(act: Callable[[], T], what: str, error: type[LakefmtError] = InvalidInputError) -> T:
    """Return what a call into somebody else's code gives.

    Args:
        act: the call.
        what: begins the message of an error, such as ``"the rows cannot be read"``.
        error: what everything becomes that is not lakefmt's own error.

    Example:
        >>> foreign(lambda: 1 // 0, "no number")
        Traceback (most recent call last):
            ...
        lakefmt.errors.InvalidInputError: no number: ZeroDivisionError: integer division or modulo by zero
    """
    try:
        return act()
    except (LakefmtError, *_ENDS):
        raise
    except BaseException as raised:
        raise error(f"{what}: {told(raised)}") from raised


def foreign_items(items: Iterable[T], what: str, error: type[LakefmtError] = InvalidInputError) -> Iterator[T]:
    """Yield the items of somebody else's iterable; what it raises becomes `error`."""
    nothing: Any = object()
    iterator = foreign(lambda: iter(items), what, error)
    while (item := foreign(lambda: next(iterator, nothing), what, error)) is not nothing:
        yield item


def check_levels(values: Iterable[object], name: str) -> None:
    """Refuse values that are nested too deeply, or hold themselves.

    Args:
        values: a column's values; of texts and numbers nothing is asked but what they are.
        name: the column, for the message.

    Raises:
        SchemaMismatch: a value is nested deeper than any column can be.

    Example:
        >>> check_levels([1, [2, {"a": [3]}]], "x")
        >>> endless = []
        >>> endless.append(endless)
        >>> check_levels([endless], "x")
        Traceback (most recent call last):
            ...
        lakefmt.errors.SchemaMismatch: column 'x' has values nested deeper than 64 levels, or a value that holds itself
    """
    level: Iterable[object] = values
    for _ in range(_MAX_LEVELS):
        # Each container once: one that holds itself twice would be looked at twice as often on every level.
        found = {id(value): value for value in level if _holds_values(value)}
        if not found:
            return
        level = chain.from_iterable(each.values() if isinstance(each, dict) else each for each in found.values())
    raise SchemaMismatch(
        f"column {name!r} has values nested deeper than {_MAX_LEVELS} levels, or a value that holds itself"
    )


def _holds_values(value: object) -> TypeGuard[Collection[object]]:
    if not isinstance(value, _CONTAINERS):
        return False
    return not isinstance(value, np.ndarray) or (value.dtype.kind == "O" and value.ndim > 0)


def arrow_array(values: Sequence[object], kind: pa.DataType | None, name: str) -> pa.Array:
    """Return Python values as an Arrow array.

    Args:
        values: the values of one column.
        kind: what they are meant to be; None, and of texts and bytes: the type that they show.
        name: the column, for messages.

    Raises:
        SchemaMismatch: they do not fit together, or do not fit the type.

    Example:
        >>> arrow_array(["a", 1], None, "x")
        Traceback (most recent call last):
            ...
        lakefmt.errors.SchemaMismatch: the values of column 'x' do not fit together: ArrowTypeError: Expected bytes, got a \
'int' object
    """
    if kind is not None and (pt.is_string(kind) or pt.is_binary(kind)):
        # Arrow takes bytes for a text and a text for bytes; the type that the values show tells them apart.
        kind = None
    if kind is None:
        check_levels(values, name)
    fit = "together" if kind is None else f"its type {kind}"
    found = foreign(lambda: pa.array(values, kind), f"the values of column {name!r} do not fit {fit}", SchemaMismatch)
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def arrow_scalar(value: object, kind: pa.DataType, name: str) -> pa.Scalar:
    """Return a Python value as an Arrow scalar of a column's type.

    Raises:
        SchemaMismatch: it does not fit.

    Example:
        >>> arrow_scalar("x", pa.int64(), "n")
        Traceback (most recent call last):
            ...
        lakefmt.errors.SchemaMismatch: 'x' does not fit column 'n' of type int64: ArrowInvalid: Could not convert 'x' with \
type str: tried to convert to int64
    """
    unfit = f"{shown(value)} does not fit column {name!r} of type {kind}"
    # Arrow takes bytes for a text and a text for bytes.
    others = (bytes, bytearray, memoryview) if pt.is_string(kind) else (str,) if pt.is_binary(kind) else ()
    if isinstance(value, others):
        raise SchemaMismatch(unfit)
    return foreign(lambda: pa.scalar(value, kind), unfit, SchemaMismatch)


def field_names(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the names of the fields of rows, in the order in which they come.

    Raises:
        SchemaMismatch: a name is no text.

    Example:
        >>> field_names([{"a": 1}, {"b": 2, "a": 3}])
        ['a', 'b']
    """
    names = list(dict.fromkeys(chain.from_iterable(rows)))
    for name in names:
        if not isinstance(name, str):
            raise SchemaMismatch(f"rows given as dicts have a field named {shown(name)}: names are texts")
    return names


# -------------------------------------------------------------------------------------------------------- arguments


def text_argument(value: object, name: str) -> str:
    """Return an argument that has to be a text.

    Raises:
        InvalidInputError: it is none, or holds half a surrogate pair, which cannot be stored.

    Example:
        >>> text_argument(5, "instant")
        Traceback (most recent call last):
            ...
        lakefmt.errors.InvalidInputError: instant takes a text, not 5
    """
    if not isinstance(value, str):
        raise InvalidInputError(f"{name} takes a text, not {shown(value)}")
    if not is_encodable(value):
        raise InvalidInputError(f"{name} {shown(value)} cannot be stored: it holds half a surrogate pair")
    return value


def is_encodable(text: str) -> bool:
    r"""Say whether a text can be stored as UTF-8.

    Example:
        >>> is_encodable("é"), is_encodable("\ud800")
        (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def texts_argument(value: object, name: str) -> list[str]:
    """Return an argument that has to be texts, in any container but a text.

    Raises:
        InvalidInputError: it is no container, or holds something else.

    Example:
        >>> texts_argument(("a", "b"), "columns")
        ['a', 'b']
        >>> texts_argument("ab", "columns")
        Traceback (most recent call last):
            ...
        lakefmt.errors.InvalidInputError: columns takes a list of texts, not 'ab'
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidInputError(f"{name} takes a list of texts, not {shown(value)}")
    return [text_argument(item, name) for item in foreign_items(value, f"{name} takes a list of texts")]


def mapping_argument(value: object, name: str) -> dict[str, Any]:
    """Return an argument that has to be a mapping whose keys are texts; None: an empty one.

    Raises:
        InvalidInputError: it is none, or a key is no text.

    Example:
        >>> mapping_argument(None, "options"), mapping_argument({"a": 1}, "options")
        ({}, {'a': 1})
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"{name} takes a dict of names and values, not {shown(value)}")
    found = foreign(lambda: dict(value), f"{name} cannot be read")
    for key in found:
        text_argument(key, f"a key of {name}")
    return found


def instance_argument(value: object, kind: type[T], name: str) -> T:
    """Return an argument that has to be of a class.

    Raises:
        InvalidInputError: it is not.

    Example:
        >>> instance_argument(5, dict, "plan")
        Traceback (most recent call last):
            ...
        lakefmt.errors.InvalidInputError: plan takes a dict, not 5
    """
    if not isinstance(value, kind):
        raise InvalidInputError(f"{name} takes a {kind.__name__}, not {shown(value)}")
    return value


def check_texts(**given: object) -> None:
    """Refuse arguments, by name, that are no texts; None passes.

    Example:
        >>> check_texts(run=None, abandon=5)
        Traceback (most recent call last):
            ...
        lakefmt.errors.InvalidInputError: abandon takes a text, not 5
    """
    for name, value in given.items():
        if value is not None:
            text_argument(value, name)


def check_flags(**given: object) -> None:
    """Refuse arguments, by name, that are neither true nor false, such as arrays.

    Example:
        >>> check_flags(dry_run=True, force=None)
    """
    for name, value in given.items():
        flag_argument(value, name)


def partitions_argument(value: object) -> list[PartitionPath] | None:
    """Return partition paths that a caller names, in any container; None: all partitions.

    Example:
        >>> partitions_argument(("city=sf",))
        ['city=sf']
    """
    return None if value is None else [PartitionPath(path) for path in texts_argument(value, "partitions")]


def flag_argument(value: object, name: str) -> bool:
    """Return an argument that has to be true or false; None counts as false.

    Raises:
        InvalidInputError: it has no truth of its own, such as an array.

    Example:
        >>> flag_argument(1, "dry_run"), flag_argument(None, "dry_run")
        (True, False)
    """
    return foreign(lambda: bool(value), f"{name} takes True or False, not {shown(value)}")
