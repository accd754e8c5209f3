"""The gate for names: what may be the name of an object, of a directory, and what is a temporary object.

Rules of residence: pure functions over text, used by every store, so that all of them refuse and hide the same names.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakefmt.errors import InvalidInputError, UnsafePath
from lakefmt.storage.api import Buffer, check_name

__all__ = [
    "TEMPORARY_PREFIX",
    "as_bytes",
    "directory_name",
    "is_addressable",
    "is_temporary",
    "object_name",
    "object_names",
]

#: How the last part of a temporary object's name begins. The leading dot and the missing ``.log.`` or extension keep it
#: from parsing as a base file, log file, instant or property file (spec 2.1, 4.1).
TEMPORARY_PREFIX = ".lakefmt-tmp-"


def is_temporary(name: str) -> bool:
    """Return whether `name` is one that unfinished puts use.

    Example:
        >>> is_temporary("city=sf/.lakefmt-tmp-1a2b-77-0"), is_temporary("city=sf/a.parquet")
        (True, False)
    """
    # The plain search comes first: it is the cheap answer for nearly every name.
    return TEMPORARY_PREFIX in name and name.rpartition("/")[2].startswith(TEMPORARY_PREFIX)


def object_name(name: str) -> str:
    """Return `name` when an object may be called so.

    Raises:
        UnsafePath: it leaves the base (see :func:`lakefmt.storage.api.check_name`) or is not valid Unicode.
        InvalidInputError: it is kept for temporary objects.

    Example:
        >>> object_name("city=sf/a.parquet")
        'city=sf/a.parquet'
    """
    check_name(name)
    _check_unicode(name)
    if is_temporary(name):
        raise InvalidInputError(
            f"{name!r} is a name for unfinished objects: names beginning {TEMPORARY_PREFIX!r} are kept"
        )
    return name


def object_names(names: Iterable[str]) -> list[str]:
    """Return every name, checked, before any of them is acted upon.

    Raises:
        InvalidInputError: `names` is one text (its letters would be taken for names).
        UnsafePath: a name leaves the base.

    Example:
        >>> object_names(("a", "b/c"))
        ['a', 'b/c']
    """
    if isinstance(names, str):
        raise InvalidInputError(f"a collection of names is expected, not the text {names!r}")
    return [object_name(name) for name in names]


def directory_name(prefix: str) -> str:
    """Return `prefix` when it is a directory below the base; empty means the base itself.

    Raises:
        UnsafePath: it leaves the base.

    Example:
        >>> directory_name(""), directory_name(".hoodie/timeline")
        ('', '.hoodie/timeline')
    """
    if prefix:
        check_name(prefix)
        _check_unicode(prefix)
    return prefix


def is_addressable(name: str) -> bool:
    """Return whether a name that a store showed us can be handed back to it: others are not part of any table.

    Example:
        >>> is_addressable("a/b"), is_addressable("a//b")
        (True, False)
    """
    try:
        check_name(name)
        _check_unicode(name)
    except UnsafePath:
        return False
    return True


def as_bytes(data: Buffer) -> bytes:
    """Return `data` as immutable bytes, without a copy when it is that already.

    Example:
        >>> as_bytes(memoryview(b"abc"))
        b'abc'
    """
    return data if isinstance(data, bytes) else bytes(data)


def _check_unicode(name: str) -> None:
    if name.isascii():
        return
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UnsafePath(f"path {name!r} is not valid Unicode") from None
