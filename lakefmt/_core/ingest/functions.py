"""Functions of the caller, by the name that a job gives (effects)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
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
    module, colon, attribute = name.partition(":")
    if not colon:
        raise InvalidInputError(f"{what} is named module:function, not {name!r}")
    found = foreign(lambda: getattr(import_module(module), attribute, None), f"{what} {name!r} cannot be imported")
    if not callable(found):
        raise InvalidInputError(f"{what}: {name!r} is no function")
    return found  # type: ignore[no-any-return]
