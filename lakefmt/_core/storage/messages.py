"""What messages of stores say: errors of the operating system as StorageError, and texts without secrets.

Secrets are option values, user information and queries of URLs.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeGuard

from lakefmt.errors import LakefmtError, StorageError

__all__ = [
    "Redactor",
    "has_password",
    "is_full",
    "is_transient_code",
    "os_failure",
    "printable_url",
    "raise_if_transient",
]

#: A password may have slashes and at signs that nobody encoded: it ends at the last at sign. Digits before a slash are a port.
_USER: Final = re.compile(r"(?<=://)(?:[^/\s@:]*:(?!\d*(?:/|\s|$))[^\s'\"<>]*@|[^/\s@]+@)")
_QUERY: Final = re.compile(r"(?<=\S)\?[^\s'\"<>)\]]+")
_PASSWORD: Final = re.compile(r"^[A-Za-z][\w+.-]*://[^/@:]*:(?!\d*(?:/|$)).*@")
#: Protocols that write ``container@account`` where others have a user.
_AT_IS_ADDRESS: Final = frozenset({"abfs", "abfss", "az", "adl", "wasb", "wasbs"})
_HIDDEN: Final = "***"
_MAX_DEPTH: Final = 8
# A shorter value is replaced only as a whole word, or every "s3" and "1" of a message would be
# removed.
_SHORT: Final = 6


def has_password(url: str) -> bool:
    """Return whether a URL has ``user:password@``.

    Example:
        >>> has_password("s3://KEY:SECRET@bucket/t"), has_password("abfs://box@account/t")
        (True, False)
    """
    return _PASSWORD.match(url) is not None


def printable_url(url: str) -> str:
    """Return a URL without user information and query.

    Example:
        >>> printable_url("https://me:secret@host/t?sig=abc")
        'https://host/t'
    """
    protocol, separator, _ = url.partition("://")
    if not separator:
        return url
    keeps_user = protocol.lower() in _AT_IS_ADDRESS and not has_password(url)
    shown = url if keeps_user else _USER.sub("", url)
    return shown.partition("?")[0]


class Redactor:
    """Removes the values of `options`, nested ones too, and everything that looks like credentials.

    Example:
        >>> Redactor({"secret": "hunter22"})("bad key hunter22 at https://host/x?sig=1")
        'bad key *** at https://host/x?***'
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        values = {secret for secret in _texts(options, 0) if secret}
        # Longest first: one value may be part of another.
        patterns = [_pattern(value) for value in sorted(values, key=len, reverse=True)]
        self._values = re.compile("|".join(patterns)) if patterns else None

    def __call__(self, text: str) -> str:
        """Return `text` with secrets replaced by stars."""
        if self._values is not None:
            text = self._values.sub(_HIDDEN, text)
        return _QUERY.sub(f"?{_HIDDEN}", _USER.sub("", text))

    def __repr__(self) -> str:
        return "Redactor()"


def _pattern(value: str) -> str:
    exact = re.escape(value)
    return rf"(?<!\w){exact}(?!\w)" if len(value) < _SHORT else exact


def _texts(value: object, depth: int) -> Iterator[str]:
    if value is None or isinstance(value, bool) or depth > _MAX_DEPTH:
        return
    if isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, str | int | float):
        yield str(value)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from _texts(inner, depth + 1)


_TRANSIENT = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTUNREACH,
        errno.EINTR,
        errno.EMFILE,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENFILE,
        errno.ENOBUFS,
        errno.EPIPE,
        errno.ETIMEDOUT,
        getattr(errno, "ESTALE", errno.EAGAIN),
        getattr(errno, "EREMOTEIO", errno.EAGAIN),
    }
)

_ADVICE = {
    errno.ENOSPC: "the disk is full",
    getattr(errno, "EDQUOT", errno.ENOSPC): "the disk quota is used up",
    errno.EACCES: "permission denied; check who owns the table's directory",
    errno.EPERM: "the file system does not permit it",
    errno.EROFS: "the file system is read-only",
    errno.ENAMETOOLONG: "the name is too long for this file system",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EISDIR: "a directory has that name",
    errno.ENOTEMPTY: "something was added meanwhile",
    errno.ESTALE: "the network file system lost the file",
}


def is_transient_code(code: int | None) -> bool:
    """Return whether an errno may succeed on retry.

    Example:
        >>> is_transient_code(errno.ETIMEDOUT), is_transient_code(errno.ENOSPC)
        (True, False)
    """
    return code in _TRANSIENT


def raise_if_transient(error: LakefmtError) -> None:
    """Raise if the store only did not answer: such an error says nothing about the object.

    Raises:
        StorageError: the given one.

    Example:
        >>> raise_if_transient(StorageError("permission denied"))
    """
    if isinstance(error, StorageError) and error.transient:
        raise error


def is_full(error: BaseException | None) -> TypeGuard[OSError]:
    """Return whether an error on our file means a full or failing disk.

    Example:
        >>> is_full(OSError(errno.ENOSPC, "x")), is_full(ValueError())
        (True, False)
    """
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def os_failure(error: OSError, doing: str, name: str, base: str) -> StorageError:
    """Return the StorageError for a failed operation on an object.

    Example:
        >>> print(os_failure(OSError(errno.ENOSPC, "x"), "write", "a.parquet", "/data/trips"))
        cannot write 'a.parquet' in /data/trips: the disk is full
    """
    code = error.errno
    why = _ADVICE.get(code) if code is not None else None
    why = why or (os.strerror(code) if code is not None else str(error) or type(error).__name__)
    what = repr(name) if name else "the base directory"
    return StorageError(f"cannot {doing} {what} in {base}: {why}", transient=is_transient_code(code))
