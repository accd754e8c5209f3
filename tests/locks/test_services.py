"""The locks that services keep pass the kit, over services that are played (the wires have tests of their own)."""

from __future__ import annotations

import itertools

import pytest

from lakefmt.testing.locks import LockKind, LockSuite
from lakefmt.timeline.locks.dynamodb import DynamoKeeper
from lakefmt.timeline.locks.hive import HiveKeeper
from lakefmt.timeline.locks.lease import LeasedLock
from lakefmt.timeline.locks.zookeeper import ZooKeeperKeeper
from tests.locks.fakes import FakeDynamo, FakeHiveSession, FakeMetastore, FakeZooKeeper, FakeZooKeeperSession

numbers = itertools.count()


def lock_of(keeper, process, patience):
    return LeasedLock(keeper, f"process-{process.number}-{next(numbers)}", patience, process)


class TestZooKeeper(LockSuite):
    @pytest.fixture
    def kind(self):
        server = FakeZooKeeper(20.0)

        def open_lock(process, patience):
            keeper = ZooKeeperKeeper("/locks/trips", lambda: FakeZooKeeperSession(server, process))
            return lock_of(keeper, process, patience)

        return LockKind(open_lock, lease_seconds=20.0, recovery_seconds=21.0)


class TestDynamoDB(LockSuite):
    @pytest.fixture
    def kind(self):
        cell = {}

        def open_lock(process, patience):
            keeper = DynamoKeeper(FakeDynamo(cell, process), f"w{process.number}-{next(numbers)}", 20.0, process)
            return lock_of(keeper, process, patience)

        return LockKind(open_lock, lease_seconds=20.0, recovery_seconds=22.0)


class TestHive(LockSuite):
    @pytest.fixture
    def kind(self):
        server = FakeMetastore(20.0)

        def open_lock(process, patience):
            keeper = HiveKeeper("a pretended metastore", lambda: FakeHiveSession(server, process), 5.0)
            return lock_of(keeper, process, patience)

        return LockKind(open_lock, lease_seconds=20.0, recovery_seconds=21.0)
