"""One table lock: who may choose instants and complete them right now (docs/format.md, Locks).

All locks keep one protocol (:mod:`lakefmt._core.timeline.locks.api`) and go by Hudi's class names:

* ``InProcessLockProvider``: threads of one process; the default for memory and for object stores with one writer.
* ``FileSystemBasedLockProvider``: Hudi's own file ``.hoodie/lock``, shared with Spark writers.
* ``StorageBasedLockProvider``: Hudi's lock object, by conditional puts.
* ``ZookeeperBasedLockProvider``, ``DynamoDBBasedLockProvider``, ``HiveMetastoreBasedLockProvider``: services, by extras.

On a local disk the default is a file locked by the operating system, which frees it when its holder dies. Several writers on
an object store must name a provider: a lock that only some of them take excludes none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from lakefmt._core.config.settings import SETTINGS, Settings
from lakefmt._core.storage.api import ObjectStore, with_versions
from lakefmt._core.storage.local import LocalStore
from lakefmt._core.storage.open import local_path
from lakefmt._core.storage.process_lock import process_locks
from lakefmt._core.storage.time_source import SystemTimeSource, TimeSource
from lakefmt._core.timeline.locks.api import Lease, LockBackend, LockOptions, RetryPolicy, TableLock
from lakefmt._core.timeline.locks.local import InProcessLock, LocalLock
from lakefmt.errors import InvalidInputError, UnsupportedFeature

if TYPE_CHECKING:
    from lakefmt._core.timeline.locks.objects import FileSystemLock, StorageLock

__all__ = ["Lease", "LockOptions", "TableLock", "default_lock_provider", "lock_options", "open_lock"]

#: The class names that are known, without their packages.
_LOCK_PROVIDERS = (
    "InProcessLockProvider",
    "FileSystemBasedLockProvider",
    "StorageBasedLockProvider",
    "ZookeeperBasedLockProvider",
    "DynamoDBBasedLockProvider",
    "HiveMetastoreBasedLockProvider",
)
_LEAST_BEATS_PER_VALIDITY = 10


def default_lock_provider(store: ObjectStore, *, shared: bool) -> str | None:
    """Return the provider that is used when none is named; None: several writers on this store must name one.

    Args:
        store: the table's.
        shared: several processes write.

    Example:
        >>> from lakefmt._core.storage import MemoryStore
        >>> default_lock_provider(MemoryStore(), shared=True)
        'InProcessLockProvider'
    """
    if process_locks(store) is not None:
        return "LocalLock"
    return "InProcessLockProvider" if not shared or store.url.startswith("memory://") else None


@cache
def _lock_keys() -> tuple[str, ...]:
    return tuple(key for key in SETTINGS if key.startswith("hoodie.write.lock."))


def lock_options(settings: Settings, table_name: Callable[[], str] = str) -> LockOptions:
    """Return what the settings of a call say about the lock.

    Args:
        settings: ``hoodie.write.lock.*`` and ``hoodie.write.concurrency.mode``.
        table_name: tells ``hoodie.table.name``; asked only when a provider needs it.
    """
    prefix = "hoodie.write.lock."

    def optional(key: str) -> float | None:
        value = settings.values[prefix + key]
        return None if value is None else settings.number(prefix + key)

    pause, attempts = optional("wait_time_ms_between_retry"), optional("num_retries")
    retry_policy = RetryPolicy(
        settings.number(prefix + "wait_time_ms") / 1000,
        None if pause is None else pause / 1000,
        None if attempts is None else int(attempts) + 1,
        settings.integer(prefix + "client.num_retries") + 1,
        settings.number(prefix + "client.wait_time_ms_between_retry") / 1000,
    )
    lock_settings = {key: value for key in _lock_keys() if (value := settings.values.get(key)) is not None}
    shared = settings.text("hoodie.write.concurrency.mode") != "single_writer"
    return LockOptions(settings.text(prefix + "provider"), shared, retry_policy, lock_settings, table_name)


def open_lock(
    store: ObjectStore,
    options: LockOptions,
    owner: str,
    time_source: TimeSource | None = None,
    now: Callable[[], float] = time.time,
) -> TableLock:
    """Return the table's lock.

    Args:
        store: the table's.
        options: what was said about the lock.
        owner: the writer's stamp; each lock makes a name of its own from it.
        time_source: how waiting is done.
        now: epoch seconds by the writer's clock.

    Raises:
        UnsupportedFeature: the provider is unknown, cannot work on this store, or its package or settings are missing.
        InvalidInputError: a setting of it cannot be understood, or several writers of an object store name no provider.
    """
    time_source = time_source or SystemTimeSource()
    name = options.short_name or default_lock_provider(store, shared=options.shared)
    wait = options.retry_policy.total
    # No other request has this name, so that what is found under it is a request of ours whose answer was lost.
    unique = f"{owner}-{os.urandom(4).hex()}"
    if name == "InProcessLockProvider":
        return InProcessLock(store.url, wait, time_source)
    locks = process_locks(store)
    if name == "LocalLock" and locks is not None:
        return LocalLock(store, locks, wait, time_source)
    if name == "FileSystemBasedLockProvider":
        return _file_system_lock(store, options, unique, time_source, now)
    if name == "StorageBasedLockProvider":
        return _storage_lock(store, options, unique, time_source, now)
    if name is None:
        fitting = "StorageBasedLockProvider" if with_versions(store) is not None else "ZookeeperBasedLockProvider"
        raise InvalidInputError(
            f"several writers of {store.url} need a lock that every one of them takes: set hoodie.write.lock.provider, "
            f"{fitting} for example, everywhere"
        )
    retry_policy = options.retry_policy
    if name == "DynamoDBBasedLockProvider":
        # A dead holder's lease is over only after it was watched for its whole length, as Amazon's client does.
        retry_policy = RetryPolicy(
            retry_policy.seconds * 2,
            retry_policy.pause,
            retry_policy.attempts,
            retry_policy.rounds,
            retry_policy.between,
        )
    from lakefmt._core.timeline.locks.lease import LeasedLock  # few tables have a lock of a service

    return LeasedLock(_service(name, options, unique, time_source), store.url, retry_policy, time_source)


def _service(name: str, options: LockOptions, owner: str, time_source: TimeSource) -> LockBackend:
    if name == "ZookeeperBasedLockProvider":
        from lakefmt._core.timeline.locks.services import open_zookeeper_backend

        return open_zookeeper_backend(options)
    if name == "DynamoDBBasedLockProvider":
        from lakefmt._core.timeline.locks.services import open_dynamodb_backend

        return open_dynamodb_backend(options, owner, time_source)
    if name == "HiveMetastoreBasedLockProvider":
        from lakefmt._core.timeline.locks.services import open_hive_backend

        return open_hive_backend(options)
    raise UnsupportedFeature(f"lock provider {name!r} is not known; there are {', '.join(_LOCK_PROVIDERS)}")


def _file_system_lock(
    store: ObjectStore, options: LockOptions, owner: str, time_source: TimeSource, now: Callable[[], float]
) -> FileSystemLock:
    from lakefmt._core.timeline.locks.objects import FileSystemLock

    where, name = _lock_file(store, options.text("filesystem.path"))
    if not where.capabilities.put_if_absent:
        raise UnsupportedFeature(
            f"{where.url} cannot create files exclusively: choose another hoodie.write.lock.provider"
        )
    expire = options.number("filesystem.expire", 0) * 60
    return FileSystemLock(where, owner, options.retry_policy, time_source, now, name=name, expire_seconds=expire)


def _lock_file(store: ObjectStore, path: str | None) -> tuple[ObjectStore, str]:
    """Return the store and name of the lock file for ``hoodie.write.lock.filesystem.path``."""
    from lakefmt._core.timeline.locks.objects import FILE_SYSTEM_LOCK_NAME

    if path is None:
        return store, FILE_SYSTEM_LOCK_NAME
    plain = local_path(path) if path.startswith("file:") else path
    plain, base = plain.rstrip("/"), store.url.rstrip("/")
    if plain == base or plain.startswith(f"{base}/"):
        return store, f"{plain[len(base) :]}/lock".lstrip("/")
    if plain.startswith("/") and process_locks(store) is not None:
        return LocalStore(plain), "lock"
    raise InvalidInputError(
        "hoodie.write.lock.filesystem.path is a directory below the table, or an absolute one of the same machine"
    )


def _storage_lock(
    store: ObjectStore, options: LockOptions, owner: str, time_source: TimeSource, now: Callable[[], float]
) -> StorageLock:
    from lakefmt._core.timeline.locks.objects import StorageLock

    swapping = with_versions(store)
    if swapping is None:
        raise UnsupportedFeature(f"{store.url} has no conditional puts, which StorageBasedLockProvider needs")
    valid = options.number("storage.validity.timeout.secs", 300)
    beat = options.number("storage.renew.interval.secs", 30)
    if valid < beat * _LEAST_BEATS_PER_VALIDITY:
        raise InvalidInputError(
            "hoodie.write.lock.storage.validity.timeout.secs must be at least ten times "
            f"hoodie.write.lock.storage.renew.interval.secs, as Hudi demands: {valid:g} and {beat:g} were given"
        )
    return StorageLock(
        store, swapping, owner, options.retry_policy, time_source, now, valid_seconds=valid, beat_seconds=beat
    )
