"""Convert errors of the operating system and client libraries to StorageError."""

from __future__ import annotations

import errno
import os
from typing import TypeGuard

from lakefmt.errors import LakefmtError, StorageError

__all__ = ["is_full", "is_transient_code", "os_failure", "raise_if_transient"]

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
