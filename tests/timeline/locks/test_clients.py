"""The locks that services keep pass the kit, over services that are played (the wires have tests of their own)."""

from __future__ import annotations

import itertools

import pytest

from lakefmt._core.timeline.locks.lease import LeasedLock
from lakefmt._core.timeline.locks.services import DynamoDBLockBackend, HiveLockBackend, ZooKeeperLockBackend
from lakefmt.testing.locks import LockKind, LockSuite
from tests.timeline.locks.fakes import FakeDynamo, FakeHiveSession, FakeMetastore, FakeZooKeeper, FakeZooKeeperSession

numbers = itertools.count()


def lock_of(backend, process, retry_policy):
    return LeasedLock(backend, f"process-{process.number}-{next(numbers)}", retry_policy, process)


class TestZooKeeper(LockSuite):
    @pytest.fixture
    def kind(self):
        server = FakeZooKeeper(20.0)

        def open_lock(process, retry_policy):
            backend = ZooKeeperLockBackend("/locks/trips", lambda: FakeZooKeeperSession(server, process))
            return lock_of(backend, process, retry_policy)

        return LockKind(open_lock, lease_seconds=20.0, recovery_seconds=21.0)


class TestDynamoDB(LockSuite):
    @pytest.fixture
    def kind(self):
        cell = {}

        def open_lock(process, retry_policy):
            backend = DynamoDBLockBackend(
                FakeDynamo(cell, process), f"w{process.number}-{next(numbers)}", 20.0, process
            )
            return lock_of(backend, process, retry_policy)

        return LockKind(open_lock, lease_seconds=20.0, recovery_seconds=22.0)


class TestHive(LockSuite):
    @pytest.fixture
    def kind(self):
        server = FakeMetastore(20.0)

        def open_lock(process, retry_policy):
            backend = HiveLockBackend("a pretended metastore", lambda: FakeHiveSession(server, process), 5.0)
            return lock_of(backend, process, retry_policy)

        return LockKind(open_lock, lease_seconds=20.0, recovery_seconds=21.0)
