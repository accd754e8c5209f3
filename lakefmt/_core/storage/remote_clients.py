"""What the clients of all remote stores share: names of options, bytes of an upload, meanings of errors.

Nothing here imports a client library; errors are judged by status, errno and class name, so that
one table serves S3, Google Cloud Storage, Azure and whatever else speaks fsspec. Locks and catalogs that a service keeps use
the same table (:func:`ask_service`): their client library may be missing, and its errors may hold secrets.

Names in ``storage_options`` are those of fsspec's drivers; those of deltalake, Polars and object_store become them. Values are neither
read nor shown when names are checked.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import inspect
import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Final, TypeVar

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import PutOutcome
from lakefmt._core.storage.messages import Redactor, has_password, is_transient_code
from lakefmt.errors import InvalidInputError, LakefmtError, StorageError, UnsupportedFeature

__all__ = [
    "Payload",
    "answer_of_put",
    "ask_service",
    "check_length",
    "check_options",
    "describe",
    "import_extra",
    "is_throttled",
    "is_transient",
    "is_transient_word",
    "may_have_happened",
    "misspelt",
    "status_of",
    "unknown_option",
    "with_driver_names",
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


#: A driver's option, and how its value is made of a text.
_Target = tuple[str, Callable[[object], object]]


def _same(value: object) -> object:
    return value


def _flag(value: object) -> bool:
    return value is True or str(value).lower() in ("true", "1", "yes", "on", "y", "t")


def _json(value: object) -> object:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise InvalidInputError("storage_options: the key of the service account is no JSON") from None


def _each(names: str, target: str, convert: Callable[[object], object] = _same) -> dict[str, _Target]:
    return dict.fromkeys(names.split(), (target, convert))


#: Names without effect here: conditional puts are always asked for, and the scheme of the endpoint says whether it is http.
_INERT: Final = "-"

_S3: Final[dict[str, _Target]] = {
    **_each("aws_access_key_id access_key_id", "key"),
    **_each("aws_secret_access_key secret_access_key", "secret"),
    **_each("aws_session_token session_token aws_token", "token"),
    **_each("aws_region aws_default_region region default_region region_name", "region_name"),
    **_each("aws_endpoint aws_endpoint_url aws_endpoint_url_s3 endpoint endpoint_url", "endpoint_url"),
    **_each("aws_skip_signature skip_signature", "anon", _flag),
    **_each("aws_profile", "profile"),
    **_each("aws_virtual_hosted_style_request virtual_hosted_style_request", "virtual_hosted", _flag),
    **_each("aws_allow_http allow_http aws_conditional_put conditional_put aws_s3_allow_unsafe_rename", _INERT),
}
_GCS: Final[dict[str, _Target]] = {
    **_each("google_service_account google_service_account_path service_account service_account_path", "token"),
    **_each("google_application_credentials application_credentials", "token"),
    **_each("google_service_account_key service_account_key", "token", _json),
    **_each("google_skip_signature skip_signature", "anon", _flag),
    **_each("google_base_url", "endpoint_url"),
    **_each("allow_http", _INERT),
}
_AZURE: Final[dict[str, _Target]] = {
    **_each("azure_storage_account_name", "account_name"),
    **_each(
        "azure_storage_account_key azure_storage_access_key azure_storage_master_key access_key master_key",
        "account_key",
    ),
    **_each("azure_storage_client_id azure_client_id", "client_id"),
    **_each("azure_storage_client_secret azure_client_secret", "client_secret"),
    **_each(
        "azure_storage_tenant_id azure_storage_authority_id azure_tenant_id azure_authority_id authority_id",
        "tenant_id",
    ),
    **_each("azure_storage_sas_token azure_storage_sas_key sas_key", "sas_token"),
    **_each("azure_storage_connection_string", "connection_string"),
    **_each("azure_storage_endpoint azure_endpoint endpoint", "endpoint"),
    **_each("azure_skip_signature skip_signature", "anon", _flag),
    **_each("azure_allow_http allow_http", _INERT),
}
_BY_PROTOCOL: Final = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    **dict.fromkeys(("gs", "gcs"), _GCS),
    **dict.fromkeys(("abfs", "abfss", "az"), _AZURE),
}


def with_driver_names(protocol: str, options: Mapping[str, object]) -> dict[str, object]:
    """Return storage options under the names of the protocol's driver; names that it does not translate stay.

    Args:
        protocol: of the URL.
        options: as the caller gave them; of object_store's names upper and lower case mean the same.

    Raises:
        InvalidInputError: one option was given under two names, or the key of a service account is no JSON.

    Example:
        >>> with_driver_names("s3", {"AWS_ACCESS_KEY_ID": "k", "aws_region": "eu-west-1"})
        {'key': 'k', 'client_kwargs': {'region_name': 'eu-west-1'}}
    """
    names = _BY_PROTOCOL.get(protocol, {})
    driver_options: dict[str, object] = {}
    origins: dict[str, str] = {}
    for name, value in options.items():
        target, convert = names.get(str(name).lower(), (name, _same))
        if target == _INERT:
            continue
        if target in origins:
            raise InvalidInputError(f"storage_options has {origins[target]!r} and {name!r}, which mean the same")
        origins[target] = name
        driver_options[target] = convert(value)
    if names is _S3:
        return _with_client_settings(driver_options)
    if names is _GCS and driver_options.pop("anon", False):
        driver_options.setdefault("token", "anon")
    return _with_connection_string(driver_options) if names is _AZURE else driver_options


def _with_client_settings(driver_options: dict[str, object]) -> dict[str, object]:
    """Move what s3fs takes in dictionaries for its client there."""
    region, virtual = driver_options.pop("region_name", None), driver_options.pop("virtual_hosted", None)
    if region is not None:
        settings = driver_options.get("client_kwargs")
        driver_options["client_kwargs"] = {**(settings if isinstance(settings, Mapping) else {}), "region_name": region}
    if virtual is not None:
        settings = driver_options.get("config_kwargs")
        style = {"addressing_style": "virtual" if virtual else "path"}
        driver_options["config_kwargs"] = {**(settings if isinstance(settings, Mapping) else {}), "s3": style}
    return driver_options


def _with_connection_string(driver_options: dict[str, object]) -> dict[str, object]:
    """Turn an endpoint into a connection string: adlfs has no option for it."""
    endpoint = driver_options.pop("endpoint", None)
    if endpoint is None:
        return driver_options
    account, key, token = (driver_options.pop(name, None) for name in ("account_name", "account_key", "sas_token"))
    secret = f"AccountKey={key}" if key is not None else f"SharedAccessSignature={token}"
    if account is None or (key is None and token is None):
        raise InvalidInputError(
            "storage_options: an endpoint of Azure needs the account's name and its key or SAS token"
        )
    driver_options["connection_string"] = f"AccountName={account};{secret};BlobEndpoint={endpoint}"
    return driver_options


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


def _names_of(client_class: type) -> frozenset[str]:
    names: set[str] = set()
    for each in client_class.__mro__:
        if "__init__" in vars(each):
            parameters = inspect.signature(vars(each)["__init__"]).parameters.values()
            names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
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
