"""Check the names in ``storage_options``; values are neither read nor shown."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Mapping
from typing import Final

from lakefmt.errors import InvalidInputError

__all__ = ["check_options", "misspelt", "unknown_option"]

#: Options of every fsspec driver, though no signature has them.
_COMMON: Final = frozenset({"listings_expiry_time", "max_paths", "skip_instance_cache", "use_listings_cache"})
#: Drivers that ignore unknown names, or fail at the first request.
_STRICT: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
_UNEXPECTED: Final = re.compile(r"unexpected keyword argument '([^']+)'")
_MAX_DEPTH: Final = 4


def check_options(driver: type, protocol: str, options: Mapping[str, object]) -> None:
    """Raise for option names that a driver does not accept.

    Args:
        driver: the file system class.
        protocol: of the URL.
        options: the storage options.

    Raises:
        InvalidInputError: a name is not a text, or the driver does not know it.
    """
    names: list[object] = list(options)
    strange = next((name for name in names if not isinstance(name, str)), None)
    if strange is not None:
        raise InvalidInputError(f"storage_options has the name {strange!r}: names are texts")
    if protocol not in _STRICT or options.get("session") is not None:
        return
    accepted = _names_of(driver) | _COMMON | (_session_names() if protocol.startswith("s3") else frozenset())
    unknown = next((name for name in options if name not in accepted), None)
    if unknown is not None:
        raise unknown_option(unknown, accepted, protocol)


def unknown_option(name: str, accepted: frozenset[str], protocol: str) -> InvalidInputError:
    """Return the error for an unknown option, with the most similar known name."""
    close = difflib.get_close_matches(name, sorted(accepted), n=1)
    hint = f": did you mean {close[0]!r}?" if close else ""
    return InvalidInputError(f"storage_options has {name!r}, which the driver of {protocol}:// does not know{hint}")


def _session_names() -> frozenset[str]:
    """Return the options that s3fs passes to its session, such as a profile."""
    return _names_of(importlib.import_module("botocore.session").Session)


def _names_of(kind: type) -> frozenset[str]:
    names: set[str] = set()
    for each in kind.__mro__:
        if "__init__" in vars(each):
            named = inspect.signature(vars(each)["__init__"]).parameters.values()
            names |= {p.name for p in named if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return frozenset(names - {"self"})


def misspelt(error: BaseException, options: Mapping[str, object]) -> str | None:
    """Return the option, nested or not, that a client library rejected; None for other errors.

    Example:
        >>> misspelt(TypeError("f() got an unexpected keyword argument 'regon'"), {"client_kwargs": {"regon": "x"}})
        'regon'
    """
    match = _UNEXPECTED.search(str(error)) if isinstance(error, TypeError) else None
    return match[1] if match is not None and _holds(options, match[1], 0) else None


def _holds(options: object, name: str, depth: int) -> bool:
    if not isinstance(options, Mapping) or depth > _MAX_DEPTH:
        return False
    return name in options or any(_holds(inner, name, depth + 1) for inner in options.values())
