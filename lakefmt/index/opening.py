"""From a name to an index. The four classic kinds; later kinds are added to the table here."""

from __future__ import annotations

from collections.abc import Callable

from lakefmt.errors import UnknownSetting
from lakefmt.index.api import Index
from lakefmt.index.bloom import BloomIndex
from lakefmt.index.simple import SimpleIndex

__all__ = ["INDEX_NAMES", "open_index"]

_KINDS: dict[str, Callable[[bool], Index]] = {
    "bloom": lambda is_global: BloomIndex(is_global=is_global),
    "simple": lambda is_global: SimpleIndex(is_global=is_global),
}

INDEX_NAMES = tuple(_KINDS)


def open_index(name: str, *, is_global: bool = False) -> Index:
    """Return the index called `name` (Hudi's upper-case spellings work too).

    Args:
        name: one of :data:`INDEX_NAMES`.
        is_global: look in every partition, whatever partition a row is meant for.

    Raises:
        UnknownSetting: lakefmt has no such index.

    Example:
        >>> open_index("BLOOM").name
        'bloom'
    """
    kind = _KINDS.get(name.lower().removeprefix("global_"))
    if kind is None or (name.lower() not in INDEX_NAMES and not is_global):
        raise UnknownSetting(f"unknown index {name!r}: expected one of {', '.join(INDEX_NAMES)}")
    return kind(is_global)
