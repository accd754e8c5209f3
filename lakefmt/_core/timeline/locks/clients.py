"""What locks kept by a service share: a client library may be missing, and its errors may hold secrets."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

from lakefmt._core.arguments import Raised, run_foreign
from lakefmt._core.storage.redaction import Redactor, has_password
from lakefmt._core.storage.remote.clients import describe, is_throttled
from lakefmt.errors import InvalidInputError, LakefmtError, StorageError, UnsupportedFeature

__all__ = ["ask_service", "import_extra", "without_password"]

T = TypeVar("T")


#: User information and queries go from every message; credentials themselves are never handed in as settings.
_redact_urls = Redactor({})


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
