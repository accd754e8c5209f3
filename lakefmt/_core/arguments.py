"""Check the caller's Python values before Arrow sees them, and show them safely in messages. Pure.

Values may run code of the caller: ``__iter__``, ``__str__``, ``__arrow_c_stream__``. Its errors
become lakefmt errors with the original as cause. Arrow crashes on a list that contains itself, so
the depth of values with a type to infer is checked first.
"""

from __future__ import annotations

import enum
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import chain
from types import ModuleType
from typing import Any, Final, TypeGuard, TypeVar

import numpy as np

from lakefmt._core.data_classes import dataclass
from lakefmt._core.values import PartitionPath
from lakefmt.errors import InvalidInputError, LakefmtError, SchemaMismatch, UnknownSetting, UnsupportedFeature

__all__ = [
    "Raised",
    "check_flags",
    "check_keywords",
    "check_levels",
    "check_texts",
    "comma_separated",
    "error_text",
    "field_names",
    "flag_argument",
    "foreign",
    "foreign_items",
    "instance_argument",
    "is_encodable",
    "library",
    "mapping_argument",
    "names_argument",
    "number_argument",
    "parse_member",
    "partitions_argument",
    "run_foreign",
    "shown",
    "text_argument",
    "texts_argument",
]

T = TypeVar("T")
Member = TypeVar("Member", bound=enum.Enum)

#: Classes of Hudi begin with the engine that they are for.
_ENGINES: Final = ("spark", "java", "flink")

#: Deeper lists and dicts are refused; deeper types cannot be stored either.
_MAX_LEVELS: Final = 64

_LONGEST: Final = 100
_CONTAINERS: Final = (list, tuple, Mapping, set, frozenset, np.ndarray)
#: Requests to exit are not caught; panics of other languages are not `Exception` and are caught.
_ENDS: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)


def shown(value: object) -> str:
    r"""Return a short text of a value for messages; never raises.

    Example:
        >>> shown("k1"), shown("\ud800"), len(shown("x" * 999))
        ("'k1'", "'\\ud800'", 103)
    """
    representation = run_foreign(lambda: repr(value))
    if isinstance(representation, Raised):
        return f"a value of type {type(value).__name__}"
    return representation if len(representation) <= _LONGEST else f"{representation[:_LONGEST]}..."


def error_text(error: BaseException) -> str:
    r"""Return another library's error as one line; never raises.

    Example:
        >>> error_text(ValueError("one\ntwo"))
        'ValueError: one'
    """
    said = run_foreign(lambda: str(error))
    lines = [] if isinstance(said, Raised) else said.splitlines()
    first_line = lines[0].encode("utf-8", "backslashreplace").decode()[:500] if lines else ""
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


@dataclass(frozen=True, slots=True)
class Raised:
    """What a call raised, as a value (:func:`run_foreign`).

    Attributes:
        error: as it was raised, with its traceback.
    """

    error: Exception


def run_foreign(act: Callable[[], T]) -> T | Raised:
    """Return the result of a call, or what it raised.

    It is for calls that may raise anything, because they run a client library or code of the user, and whose failure is an outcome like
    another: a commit stands whatever its observer does, and a put whose answer was lost may have happened. What the caller does with the
    error it does outside a handler, so that an original whose text may hold a secret is not chained to the error that is raised.

    Example:
        >>> run_foreign(lambda: 1 + 1), run_foreign(lambda: 1 // 0)
        (2, Raised(error=ZeroDivisionError('integer division or modulo by zero')))
    """
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - it is handed to the caller whole
        return Raised(error)


def foreign(act: Callable[[], T], what: str, error: type[LakefmtError] = InvalidInputError) -> T:
    """Return the result of a call into foreign code.

    Args:
        act: the call.
        what: the beginning of the error message, such as ``"the rows cannot be read"``.
        error: the class of errors for everything that is not lakefmt's own error.

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
        raise error(f"{what}: {error_text(raised)}") from raised


def foreign_items(items: Iterable[T], what: str, error: type[LakefmtError] = InvalidInputError) -> Iterator[T]:
    """Yield the items of a foreign iterable; its errors become `error`."""
    nothing: Any = object()
    iterator = foreign(lambda: iter(items), what, error)
    while (item := foreign(lambda: next(iterator, nothing), what, error)) is not nothing:
        yield item


def check_levels(values: Iterable[object], name: str) -> None:
    """Raise for values that are nested too deeply or contain themselves.

    Args:
        values: a column's values; texts and numbers need only a type check.
        name: the column, for messages.

    Raises:
        SchemaMismatch: a value is nested deeper than any column type.

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
        # Each container once: one that contains itself twice would double the work on each level.
        containers = {id(value): value for value in level if _holds_values(value)}
        if not containers:
            return
        level = chain.from_iterable(
            each.values() if isinstance(each, Mapping) else each for each in containers.values()
        )
    raise SchemaMismatch(
        f"column {name!r} has values nested deeper than {_MAX_LEVELS} levels, or a value that holds itself"
    )


def _holds_values(value: object) -> TypeGuard[Collection[object]]:
    if not isinstance(value, _CONTAINERS):
        return False
    return not isinstance(value, np.ndarray) or (value.dtype.kind == "O" and value.ndim > 0)


def field_names(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the field names of rows in order of first appearance.

    Raises:
        SchemaMismatch: a name is not a text.

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


def comma_separated(names: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list, without blanks around them.

    Example:
        >>> comma_separated("a, b,"), comma_separated("")
        (('a', 'b'), ())
    """
    return tuple(filter(None, (name.strip() for name in names.split(","))))


def text_argument(value: object, name: str) -> str:
    """Return a text argument.

    Raises:
        InvalidInputError: not a text, or it has an unpaired surrogate, which cannot be stored.

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
    r"""Return whether a text can be stored as UTF-8.

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
    """Return an argument that is a container of texts, but not a text itself.

    Raises:
        InvalidInputError: not a container, or other items.

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


def names_argument(value: object, name: str) -> list[str] | None:
    """Return an argument that is a text or a container of texts as a list; None stays None.

    Raises:
        InvalidInputError: not a text and not a container, or other items.

    Example:
        >>> names_argument("a", "partition_by"), names_argument(("a", "b"), "partition_by"), names_argument(None, "x")
        (['a'], ['a', 'b'], None)
    """
    if value is None:
        return None
    return texts_argument([value] if isinstance(value, str) else value, name)


def mapping_argument(value: object, name: str) -> dict[str, Any]:
    """Return a mapping argument with text keys; None: an empty one.

    Raises:
        InvalidInputError: not a mapping, or a key is not a text.

    Example:
        >>> mapping_argument(None, "options"), mapping_argument({"a": 1}, "options")
        ({}, {'a': 1})
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"{name} takes a dict of names and values, not {shown(value)}")
    mapping = foreign(lambda: dict(value), f"{name} cannot be read")
    for key in mapping:
        text_argument(key, f"a key of {name}")
    return mapping


def number_argument(value: object, name: str, least: float, most: float = sys.float_info.max) -> float:
    """Return a number within bounds; it stays an int if it is one.

    Raises:
        InvalidInputError: it is none, not finite, or outside.

    Example:
        >>> number_argument(2, "max_batches", 0)
        2
        >>> number_argument(float("nan"), "share", 0, 1)
        Traceback (most recent call last):
            ...
        lakefmt.errors.InvalidInputError: share=nan: a number from 0 to 1 is expected
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        bound = "on" if most == sys.float_info.max else f"to {most:g}"
        raise InvalidInputError(f"{name}={shown(value)}: a number from {least:g} {bound} is expected")
    return value


def instance_argument(value: object, required_class: type[T], name: str) -> T:
    """Return an argument of a class.

    Raises:
        InvalidInputError: another class.

    Example:
        >>> instance_argument(5, dict, "plan")
        Traceback (most recent call last):
            ...
        lakefmt.errors.InvalidInputError: plan takes a dict, not 5
    """
    if not isinstance(value, required_class):
        raise InvalidInputError(f"{name} takes a {required_class.__name__}, not {shown(value)}")
    return value


def check_texts(**given: object) -> None:
    """Raise for arguments that are not texts; None is accepted.

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
    """Raise for arguments that are neither true nor false, such as arrays.

    Example:
        >>> check_flags(dry_run=True, force=None)
    """
    for name, value in given.items():
        flag_argument(value, name)


def partitions_argument(value: object) -> list[PartitionPath] | None:
    """Return the named partition paths from any container; None: all partitions.

    Example:
        >>> partitions_argument(("city=sf",))
        ['city=sf']
    """
    return None if value is None else [PartitionPath(path) for path in texts_argument(value, "partitions")]


def check_keywords(verb: Callable[..., object], call: Mapping[str, object], known: Collection[str]) -> None:
    """Raise for keyword arguments that a function with ``**call`` does not take, as Python does for others.

    Args:
        verb: the function; its own arguments are named in the message.
        call: what it was given beside them.
        known: what it takes beside them.

    Raises:
        TypeError: an argument is not known; the nearest one is named.

    Example:
        >>> def upsert(data, *, partial=False, **call): check_keywords(upsert, call, {"options", "dry_run"})
        >>> upsert([], optons={})
        Traceback (most recent call last):
            ...
        TypeError: upsert() takes no argument 'optons', did you mean 'options'? It takes data, partial, dry_run, options
    """
    unknown = [name for name in call if name not in known]
    if not unknown:
        return
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    own = [name for name, one in inspect.signature(verb).parameters.items() if name != "self" and one.kind not in kinds]
    names = [*own, *sorted(known)]
    near = [get_close_matches(name, names, 1) for name in unknown]
    hints = [
        f"{name!r}{f', did you mean {found[0]!r}?' if found else ','}"
        for name, found in zip(unknown, near, strict=True)
    ]
    joined_hints = " ".join(hints).removesuffix(",")
    end = " It takes" if joined_hints.endswith("?") else ". It takes"
    owner = getattr(verb, "__self__", None)
    called = verb.__name__ if owner is None else f"{type(owner).__name__}.{verb.__name__}"
    raise TypeError(f"{called}() takes no argument {joined_hints}{end} {', '.join(names)}")


def flag_argument(value: object, name: str) -> bool:
    """Return a boolean argument; None counts as false.

    Raises:
        InvalidInputError: it has no truth value, such as an array.

    Example:
        >>> flag_argument(1, "dry_run"), flag_argument(None, "dry_run")
        (True, False)
    """
    return foreign(lambda: bool(value), f"{name} takes True or False, not {shown(value)}")


def parse_member(members: type[Member], name: str, what: str) -> Member:
    """Return the member of an enumeration that a setting or an argument names.

    Args:
        members: the enumeration; its values are strings.
        name: the value of a member in any case; a class of Hudi with or without its package and the engine before it.
        what: the noun of the error message.

    Raises:
        UnknownSetting: there is none of that name.

    Example:
        >>> import enum
        >>> Strategy = enum.Enum("Strategy", {"SIZE_BASED": "SizeBasedPlanStrategy"})
        >>> parse_member(Strategy, "org.apache.hudi.x.SparkSizeBasedPlanStrategy", "plan strategy").name
        'SIZE_BASED'
    """
    short = name.rpartition(".")[2].casefold()
    for member in members:
        value = str(member.value).casefold()
        if short in (value, *(engine + value for engine in _ENGINES)):
            return member
    names = ", ".join(str(member.value) for member in members)
    raise UnknownSetting(f"unknown {what} {name!r}: expected one of {names}")


def library(load: Callable[[], ModuleType], name: str, extra: str) -> Any:
    """Return a library that an extra of lakefmt brings, which `load` imports.

    Raises:
        UnsupportedFeature: it is not installed.

    Example:
        >>> library(lambda: sys, "sys", "pandas") is sys
        True
    """
    try:
        return load()
    except ImportError as error:
        if error.name != name:
            raise
        raise UnsupportedFeature(f"{name} is not installed: pip install 'lakefmt[{extra}]'") from None
