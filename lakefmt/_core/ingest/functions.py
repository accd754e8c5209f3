"""Functions of the caller, by the name that a job gives (effects)."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

from lakefmt._core.arguments import foreign
from lakefmt.errors import InvalidInputError

__all__ = ["load_function"]


def load_function(name: str, what: str) -> Callable[..., Any]:
    """Return the function ``module:name``.

    Args:
        name: of the function.
        what: it is for, in messages.

    Raises:
        InvalidInputError: there is none.

    Example:
        >>> load_function("json:dumps", "a hook")([1])
        '[1]'
    """
    if ":" not in name:
        raise InvalidInputError(f"{what} is named module:function, not {name!r}")
    function = foreign(lambda: resolve_name(name), f"{what} {name!r} cannot be imported")
    if not callable(function):
        raise InvalidInputError(f"{what}: {name!r} is no function")
    return function  # type: ignore[no-any-return]
