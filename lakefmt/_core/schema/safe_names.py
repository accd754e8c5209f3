"""Names of columns that every engine stores, made of any names. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Final

from lakefmt.errors import InvalidInputError

__all__ = ["is_safe", "name_mapping", "safe_name"]

_SAFE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OTHERS: Final = re.compile(r"[^A-Za-z0-9_]+", re.ASCII)


def is_safe(name: str) -> bool:
    """Return whether every engine stores a column of that name: ASCII letters, digits and _, not a digit first.

    Example:
        >>> is_safe("order_id"), is_safe("Order ID"), is_safe("größe")
        (True, False, False)
    """
    return _SAFE.fullmatch(name) is not None


def safe_name(name: str) -> str:
    """Return the most similar name that every engine stores; ``column`` where nothing of it can stay.

    Example:
        >>> safe_name("Order ID"), safe_name("größe"), safe_name("Amount (EUR)"), safe_name("2024"), safe_name("客户")
        ('Order_ID', 'grosse', 'Amount_EUR', '_2024', 'column')
    """
    if is_safe(name):
        return name
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    plain = _OTHERS.sub("_", plain).strip("_") or "column"
    return f"_{plain}" if plain[0].isdigit() else plain


def name_mapping(names: Sequence[str], rename: Mapping[str, str] | bool) -> dict[str, str]:
    """Return the new name of each column that gets one.

    Args:
        names: of the columns.
        rename: new names by old ones; True: :func:`safe_name` of those that need it, with a number where that is taken.

    Raises:
        InvalidInputError: a column to be renamed is not there, or two columns would have one name.

    Example:
        >>> name_mapping(["id", "a b", "a-b"], True), name_mapping(["a b"], {"a b": "x"})
        ({'a b': 'a_b', 'a-b': 'a_b_2'}, {'a b': 'x'})
    """
    if isinstance(rename, Mapping):
        unknown = [name for name in rename if name not in names]
        if unknown:
            raise InvalidInputError(f"rename: there is no column {unknown[0]!r}; the columns are {', '.join(names)}")
        new = [rename.get(name, name) for name in names]
        twice = sorted({name for name in new if new.count(name) > 1})
        if twice:
            raise InvalidInputError(f"rename: two columns would be called {twice[0]!r}")
        return dict(rename)
    taken = {name.lower() for name in names if is_safe(name)}
    mapping: dict[str, str] = {}
    for name in names if rename else ():
        if is_safe(name):
            continue
        base = candidate = safe_name(name)
        number = 2
        while candidate.lower() in taken:
            candidate, number = f"{base}_{number}", number + 1
        taken.add(candidate.lower())
        mapping[name] = candidate
    return mapping
