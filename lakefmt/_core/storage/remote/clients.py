"""What the clients of all remote stores share: the bytes of an upload, and what an error says about the request.

Nothing here imports a client library; errors are judged by status, errno and class name, so that
one table serves S3, Google Cloud Storage, Azure and whatever else speaks fsspec. Locks and catalogs that a service keeps use
the same table (:func:`ask_service`): their client library may be missing, and its errors may hold secrets.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Final, TypeVar

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import PutOutcome
from lakefmt._core.storage.os_errors import is_transient_code
from lakefmt._core.storage.redaction import Redactor, has_password
from lakefmt.errors import InvalidInputError, LakefmtError, StorageError, UnsupportedFeature

__all__ = [
    "Payload",
    "answer_of_put",
    "ask_service",
    "check_length",
    "describe",
    "import_extra",
    "is_throttled",
    "is_transient",
    "is_transient_word",
    "may_have_happened",
    "status_of",
    "without_password",
]

T = TypeVar("T")

_log = logging.getLogger("lakefmt.storage")
#: User information and queries go from every message; credentials themselves are never handed in as settings.
_redact_urls = Redactor({})

_RETRY_STATUS: Final = frozenset({408, 409, 425, 429})
#: S3 answers these with status 400: the request, or a part of it, did not arrive as it was sent.
_RETRY_CODES: Final = frozenset(
    {
        "BadDigest",
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "XAmzContentSHA256Mismatch",
    }
)
_SLOWER_STATUS: Final = frozenset({429, 503})
_SLOWER_CODES: Final = frozenset({"SlowDown", "Throttling", "ThrottlingException"})
#: Beside these words in a class name an attribute ``code`` is the status of an answer; elsewhere it is a client's own number.
_ANSWERS: Final = frozenset(
    {"HttpError", "HTTPError", "HttpResponseError", "ClientResponseError", "GoogleAPICallError"}
)
#: A client could not take an answer apart; the status that it puts into such an error is its own.
_UNREADABLE: Final = frozenset({"HttpProcessingError", "ResponseParserError", "JSONDecodeError", "ParseError"})
#: The connection, or the answer on it, was cut; by the names of the clients' classes and of those above them.
_CUT: Final = _UNREADABLE | {
    "BodyCut",
    "ChecksumError",
    "ChunkedEncodingError",
    "ClientPayloadError",
    "ContentDecodingError",
    "HTTPClientError",
    "IncompleteRead",
    "IncompleteReadError",
    "NetworkError",
    "ProxyError",
    "RemoteProtocolError",
    "ResponseStreamingError",
    "TransportError",
}
_TRANSIENT_WORDS: Final = ("Timeout", "Connect", "Disconnected", "Throttl")
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


class BodyCut(Exception):
    """The body of an answer was shorter than the answer said."""


def check_length(data: bytes, length: int, name: str) -> bytes:
    """Return `data` when it has the length that the store told.

    Raises:
        BodyCut: it is shorter or longer; to be asked for again.

    Example:
        >>> check_length(b"abc", 3, "a")
        b'abc'
    """
    if len(data) != length:
        raise BodyCut(f"{len(data):,} of {length:,} bytes of {name!r} arrived")
    return data


def _chain(error: BaseException) -> Iterator[BaseException]:
    visited: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in visited:
        visited.add(id(current))
        yield current
        current = current.__cause__


def _is_called(error: BaseException | None, names: frozenset[str]) -> bool:
    return error is not None and any(error_type.__name__ in names for error_type in type(error).__mro__)


def _is_answer(error: BaseException) -> bool:
    """Return whether the numbers in an error are those of an answer that the client could read."""
    return not (_is_called(error, _UNREADABLE) or _is_called(error.__cause__, _UNREADABLE))


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that the store answered with, if it answered.

    Example:
        >>> status_of(TimeoutError()) is None
        True
    """
    for link in _chain(error):
        status = _status(link) if _is_answer(link) else None
        if isinstance(status, int) and 300 <= status < 600:
            return int(status)
    return None


def _status(error: BaseException) -> object:
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    names = ["status", "status_code"] + (["code"] if _is_called(error, _ANSWERS) else [])
    return next((status for name in names if isinstance(status := getattr(error, name, None), int)), None)


def _code_of(error: BaseException) -> str | None:
    """Return the word for the failure in an S3 answer."""
    for link in _chain(error):
        response = getattr(link, "response", None)
        if isinstance(response, dict):
            code = (response.get("Error") or {}).get("Code")
            return None if code is None else str(code)
    return None


def _is_to_be_repeated(error: BaseException, status: int) -> bool:
    return status >= 500 or status in _RETRY_STATUS or is_transient_word(_code_of(error))


def is_transient_word(code: str | None) -> bool:
    """Return whether a store that answers with this word of S3 may answer otherwise when it is asked again.

    Example:
        >>> is_transient_word("SlowDown"), is_transient_word("AccessDenied")
        (True, False)
    """
    return code in _RETRY_CODES


def is_transient(error: BaseException) -> bool:
    """Return whether waiting may help.

    Example:
        >>> is_transient(TimeoutError()), is_transient(PermissionError())
        (True, False)
    """
    status = status_of(error)
    if status is not None:
        return _is_to_be_repeated(error, status)
    return any(_passes(link) for link in _chain(error))


def is_throttled(error: BaseException) -> bool:
    """Return whether the store asked for fewer requests.

    The status and the class are asked, never the text: the name of an object may hold any number and any word.

    Example:
        >>> is_throttled(TimeoutError("429"))
        False
    """
    if status_of(error) in _SLOWER_STATUS or _code_of(error) in _SLOWER_CODES:
        return True
    return any("Throttl" in error_type.__name__ for link in _chain(error) for error_type in type(link).__mro__)


def _passes(error: BaseException) -> bool:
    if isinstance(error, TimeoutError | ConnectionError) or _is_called(error, _CUT):
        return True
    if isinstance(error, OSError) and error.errno is not None and is_transient_code(error.errno):
        return True
    return any(word in error_type.__name__ for error_type in type(error).__mro__ for word in _TRANSIENT_WORDS)


def may_have_happened(error: BaseException) -> bool:
    """Return whether a write that ended with `error` may have taken effect: the answer was lost, not the request.

    Example:
        >>> may_have_happened(ConnectionResetError()), may_have_happened(PermissionError())
        (True, False)
    """
    status = status_of(error)
    if status is not None:
        return _is_to_be_repeated(error, status)
    if any(_is_called(link, _CUT) for link in _chain(error)):
        return True
    if isinstance(error, _CERTAIN) or type(error).__name__ in _CERTAIN_NAMES:
        return False
    return not (isinstance(error, OSError) and error.errno in _CERTAIN_CODES)


def answer_of_put(error: Exception, name: str) -> PutOutcome:
    """Return that the outcome of a put is unknown, because its answer was lost; raise an error that says what happened.

    Example:
        >>> answer_of_put(ConnectionResetError(), "a.parquet").name
        'UNKNOWN'
    """
    if not may_have_happened(error):
        raise error
    # The words are for people only; they may hold an address, never an option's value, and are cut by class.
    _log.warning("the answer to a put of %r was lost (%s)", name, type(error).__name__)
    return PutOutcome.UNKNOWN


def describe(error: BaseException) -> str:
    """Return an error's class, status and words as one line of bounded length (to be redacted by the caller).

    Example:
        >>> describe(PermissionError("Access Denied"))
        'PermissionError: Access Denied'
    """
    status = status_of(error)
    words = " ".join(str(error).split())[:500]
    label = type(error).__name__ + (f" (status {status})" if status is not None else "")
    return f"{label}: {words}" if words else label


@dataclass(frozen=True, slots=True, repr=False)
class Payload:
    """Either `data`, or the first `size` bytes of the file at `path`.

    Example:
        >>> Payload.of(b"hello").read(1, 3)
        b'ell'
    """

    data: bytes | None
    path: str | None
    size: int

    @classmethod
    def of(cls, data: bytes) -> Payload:
        """Return the payload of some bytes."""
        return cls(data, None, len(data))

    @classmethod
    def of_file(cls, path: str) -> Payload:
        """Return the payload of a finished file."""
        return cls(None, path, os.path.getsize(path))

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on, fewer at the end; from several threads at once if need be."""
        if self.data is not None:
            return self.data if offset == 0 and length >= self.size else self.data[offset : offset + length]
        with open(str(self.path), "rb") as file:
            file.seek(offset)
            return file.read(min(length, max(0, self.size - offset)))


def import_extra(load: Callable[[], ModuleType], provider: str, extra: str) -> ModuleType:
    """Return a module of an optional package, which `load` imports.

    Raises:
        UnsupportedFeature: the package is not installed; the message names the extra that brings it.
    """
    try:
        return load()
    except ImportError:
        raise UnsupportedFeature(f"{provider} needs lakefmt[{extra}]: install it with pip") from None


def without_password(setting: str, address: str) -> str:
    """Return an address that carries no password.

    Raises:
        InvalidInputError: it does; it would end up in messages and in the settings that are shown.

    Example:
        >>> without_password("hoodie.write.lock.dynamodb.endpoint_url", "http://127.0.0.1:8000")
        'http://127.0.0.1:8000'
    """
    if has_password(address) or has_password(f"any://{address}"):
        raise InvalidInputError(f"{setting} holds a password: credentials belong into the environment")
    return address


def ask_service(what: str, doing: str, act: Callable[[], T]) -> T:
    """Return what `act` returns; whatever a client library raises becomes a StorageError without secrets.

    Raises:
        StorageError: transient, because a lock that cannot be asked for now may be later.
    """
    answer = run_foreign(act)
    if not isinstance(answer, Raised):
        return answer
    error = answer.error
    if isinstance(error, LakefmtError):
        raise error
    # The original, whose text may hold what must not be shown, is not chained to it.
    message = f"cannot {doing} {what}: {_redact_urls(describe(error))}"
    raise StorageError(message, transient=True, throttled=is_throttled(error))
