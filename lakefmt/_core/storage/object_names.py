"""Check the names of objects and directories, and recognize temporary names. Pure.

All stores use these functions, so they refuse and hide the same names.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakefmt._core.storage.api import Buffer
from lakefmt.errors import InvalidInputError, UnsafePath

__all__ = [
    "TEMPORARY_PREFIX",
    "as_bytes",
    "check_name",
    "directory_name",
    "is_addressable",
    "is_temporary",
    "object_name",
    "object_names",
]

_FORBIDDEN_PARTS = frozenset({"", ".", ".."})
#: The prefix of temporary names. The leading dot and the missing ``.log.`` or extension keep them
#: from parsing as base file, log file, instant or properties file (docs/format.md, File names;
#: lakefmt's own files).
TEMPORARY_PREFIX = ".lakefmt-tmp-"


def is_temporary(name: str) -> bool:
    """Return whether `name` is that of an unfinished put.

    Example:
        >>> is_temporary("city=sf/.lakefmt-tmp-1a2b-77-0"), is_temporary("city=sf/a.parquet")
        (True, False)
    """
    # The substring search comes first: it settles nearly every name.
    return TEMPORARY_PREFIX in name and name.rpartition("/")[2].startswith(TEMPORARY_PREFIX)


def check_name(name: str) -> str:
    """Return `name` if it stays below the base.

    Raises:
        UnsafePath: the name is empty or absolute, or has ``.``, ``..``, empty parts, a drive letter
            or NUL.

    Example:
        >>> check_name("city=sf/a.parquet")
        'city=sf/a.parquet'
    """
    if "\x00" in name or not _FORBIDDEN_PARTS.isdisjoint(name.split("/")):
        raise UnsafePath(f"path {name!r} is not a plain path below the table")
    return name


def object_name(name: str) -> str:
    """Return `name` if an object may have it.

    Raises:
        UnsafePath: the name leaves the base (see :func:`check_name`) or is not
            valid Unicode.
        InvalidInputError: the name is reserved for temporary objects.

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
    """Return all names after checking each.

    Raises:
        InvalidInputError: `names` is one text, whose letters would be taken as names.
        UnsafePath: a name leaves the base.

    Example:
        >>> object_names(("a", "b/c"))
        ['a', 'b/c']
    """
    if isinstance(names, str):
        raise InvalidInputError(f"a collection of names is expected, not the text {names!r}")
    return [object_name(name) for name in names]


def directory_name(prefix: str) -> str:
    """Return `prefix` if it is a directory below the base; empty means the base.

    Raises:
        UnsafePath: the directory is outside of the base.

    Example:
        >>> directory_name(""), directory_name(".hoodie/timeline")
        ('', '.hoodie/timeline')
    """
    if prefix:
        check_name(prefix)
        _check_unicode(prefix)
    return prefix


def is_addressable(name: str) -> bool:
    """Return whether a listed name is valid; others belong to no table.

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
    """Return `data` as bytes, without a copy if it is bytes already.

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
