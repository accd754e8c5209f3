"""What an error of a client library says about the request: its status, and whether it may have been carried out.

Rules of residence: nothing here imports a client library; errors are judged by status, errno and class name, so that
one table serves S3, Google Cloud Storage, Azure and whatever else speaks fsspec.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Final

from lakefmt.storage.failures import is_transient_code

__all__ = ["describe", "is_transient", "may_have_happened", "status_of"]

_RETRY_STATUS: Final = frozenset({408, 409, 425, 429})
#: Refused before any request left this machine, or understood and turned down by the store.
_CERTAIN: Final = (
    PermissionError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    NotImplementedError,
    TypeError,
    ValueError,
    ImportError,
)
_CERTAIN_NAMES: Final = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "ParamValidationError",
        "ProfileNotFound",
    }
)
_CERTAIN_CODES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG, errno.ENOSYS})


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that the store answered with, if it answered.

    Example:
        >>> status_of(TimeoutError()) is None
        True
    """
    for link in _chain(error):
        response = getattr(link, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        else:
            status = next(
                (getattr(link, name) for name in ("status", "status_code", "code") if hasattr(link, name)), None
            )
        if isinstance(status, int) and 100 <= status < 600:
            return status
    return None


def is_transient(error: BaseException) -> bool:
    """Return whether waiting may help.

    Example:
        >>> is_transient(TimeoutError()), is_transient(PermissionError())
        (True, False)
    """
    status = status_of(error)
    if status is not None:
        return status >= 500 or status in _RETRY_STATUS
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return is_transient_code(error.errno)
    return any(word in type(error).__name__ for word in ("Timeout", "Connect", "Disconnected", "Throttl"))


def may_have_happened(error: BaseException) -> bool:
    """Return whether a write that ended with `error` may have been carried out: the answer was lost, not the request.

    Example:
        >>> may_have_happened(ConnectionResetError()), may_have_happened(PermissionError())
        (True, False)
    """
    status = status_of(error)
    if status is not None:
        return status >= 500 or status in _RETRY_STATUS
    if isinstance(error, _CERTAIN) or type(error).__name__ in _CERTAIN_NAMES:
        return False
    return not (isinstance(error, OSError) and error.errno in _CERTAIN_CODES)


def describe(error: BaseException) -> str:
    """Return an error's class, status and words as one line of bounded length (to be redacted by the caller).

    Example:
        >>> describe(PermissionError("Access Denied"))
        'PermissionError: Access Denied'
    """
    status = status_of(error)
    words = " ".join(str(error).split())[:500]
    kind = type(error).__name__ + (f" (status {status})" if status is not None else "")
    return f"{kind}: {words}" if words else kind
