"""The locks that live in a store, or in this machine, pass the kit."""

from __future__ import annotations

import itertools

import pytest

from lakefmt._core.storage import LocalStore, MemoryStore
from lakefmt._core.storage.api import with_versions
from lakefmt._core.timeline.locks.local import InProcessLock, LocalLock
from lakefmt._core.timeline.locks.objects import FILE_SYSTEM_LOCK_NAME, FileSystemLock, StorageLock
from lakefmt.testing.locks import LockKind, LockSuite
from lakefmt.testing.virtual_time import RequestStore

numbers = itertools.count()


class TestInProcess(LockSuite):
    @pytest.fixture
    def kind(self):
        url = f"memory://lock-kit-{next(numbers)}"
        return LockKind(lambda process, retry_policy: InProcessLock(url, retry_policy.total, process), 0.5, asks=False)


class TestLocal(LockSuite):
    @pytest.fixture
    def kind(self, tmp_path):
        def open_lock(process, retry_policy):
            store = LocalStore(tmp_path / "t")
            seen = RequestStore(store, process)  # another process: another queue of threads
            return LocalLock(seen, store, retry_policy.total, process)

        return LockKind(open_lock, 0.5, asks=False)


def file_lock(store, expire):
    def open_lock(process, retry_policy):
        seen = RequestStore(store, process)
        owner = f"writer-{process.number}-{next(numbers)}"
        return FileSystemLock(seen, owner, retry_policy, process, process.wall, expire_seconds=expire)

    return open_lock


class TestHudisFile(LockSuite):
    @pytest.fixture
    def kind(self):
        self.store = MemoryStore()
        return LockKind(file_lock(self.store, 0.0))

    def _tidy(self, writer):
        self.store.delete([FILE_SYSTEM_LOCK_NAME])


def clock_of(process_time):
    return lambda: 1_800_000_000.0 + process_time[0].now if process_time else 0.0


class TestHudisFileWithExpiry(LockSuite):
    @pytest.fixture
    def kind(self):
        times = []

        def open_lock(process, retry_policy):
            times[:] = [process.time]
            return file_lock(store, 60.0)(process, retry_policy)

        store = MemoryStore(now=clock_of(times))
        return LockKind(open_lock, lease_seconds=60.0, recovery_seconds=61.0, renewed=False)


def storage_lock(store):
    def open_lock(process, retry_policy):
        seen = RequestStore(store, process)
        owner = f"writer-{process.number}-{next(numbers)}"
        return StorageLock(
            seen, with_versions(seen), owner, retry_policy, process, process.wall, valid_seconds=30.0, beat_seconds=3.0
        )

    return open_lock


class TestStorageBased(LockSuite):
    @pytest.fixture(params=["memory", "local"])
    def kind(self, request, tmp_path):
        store = MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "t")
        return LockKind(storage_lock(store), lease_seconds=30.0, recovery_seconds=31.0)
