"""The kit can fail: locks that are broken on purpose do not pass it, and the test that should see it does."""

from __future__ import annotations

import itertools
from contextlib import contextmanager

import pytest

from lakefmt._core.storage import MemoryStore
from lakefmt._core.storage.api import CasResult, PutOutcome, with_versions
from lakefmt._core.timeline.locks.lease import LeasedLock
from lakefmt._core.timeline.locks.objects import (
    FILE_SYSTEM_LOCK_NAME,
    STORAGE_LOCK_NAME,
    FileLockBackend,
    FileLockHandle,
    StorageLockBackend,
    StorageLockHandle,
)
from lakefmt.errors import LakefmtError
from lakefmt.testing.locks import LockKind, LockSuite
from lakefmt.testing.store_wrapper import WrapperStore
from lakefmt.testing.stores import FaultMode
from lakefmt.testing.virtual_time import RequestStore, VirtualTime

numbers = itertools.count()

#: The tests of the kit, with what they are asked for.
TESTS = {
    "slow": lambda suite, kind: suite.test_slow_work_keeps_the_lock(kind, VirtualTime()),
    "one": lambda suite, kind: suite.test_one_at_a_time(kind, VirtualTime()),
    "failure": lambda suite, kind: suite.test_a_failure_inside_gives_the_lock_back(kind, VirtualTime()),
    "outlives": lambda suite, kind: suite.test_a_holder_that_outlives_its_lease_cannot_commit(kind, VirtualTime()),
    "over": lambda suite, kind: suite.test_a_lease_that_is_over_stays_over(kind, VirtualTime()),
    "early": lambda suite, kind: suite.test_nobody_is_early(kind, VirtualTime()),
    "lost": lambda suite, kind: suite.test_a_lost_answer_makes_no_second_holder(kind, FaultMode.ANSWER_LOST),
    "dead": lambda suite, kind: suite.test_a_dead_holder_does_not_hold_for_ever(kind, FaultMode.AFTER),
    "skew": lambda suite, kind: suite.test_clocks_that_differ_make_no_second_commit(kind, VirtualTime(), 3600.0),
    "drift": lambda suite, kind: suite.test_clocks_that_differ_make_no_second_commit(kind, VirtualTime(), 0.45),
    "everybody": lambda suite, kind: suite.test_everybody_gets_the_lock(kind),
    "random": lambda suite, kind: [suite.test_no_commit_is_lost_whatever_happens(kind, seed) for seed in range(8)],
}


def failing(make_kind):
    """Return which tests of the kit a lock does not pass."""
    failed = set()
    for name, test in TESTS.items():
        try:
            test(LockSuite(), make_kind())
        except (AssertionError, pytest.fail.Exception, LakefmtError):
            failed.add(name)
        except pytest.skip.Exception:
            pass
    return failed


def storage_kind(make_keeper=StorageLockBackend, wrap=lambda store: store, lock_class=LeasedLock):
    store = MemoryStore()

    def open_lock(process, retry_policy):
        seen = wrap(RequestStore(store, process))
        owner = f"w{process.number}-{next(numbers)}"
        backend = make_keeper(seen, with_versions(seen), owner, process.wall, valid_seconds=30.0, beat_seconds=3.0)
        return lock_class(backend, seen.url, retry_policy, process)

    return LockKind(open_lock, 30.0, 31.0)


@pytest.mark.slow
def test_an_honest_lock_passes():
    assert failing(storage_kind) == set()


class Careless(WrapperStore):
    """A store that forgets to compare before it swaps."""

    def put_if_match(self, name, data, mark):
        self.put(name, data)
        found = self.read_version(name, 1 << 16)
        return CasResult(PutOutcome.DONE, found.mark)


def test_no_compare_and_swap():
    failed = failing(lambda: storage_kind(wrap=Careless))
    assert failed >= {"outlives", "everybody"}
    assert "random" in failed


class FreeForAll(StorageLockBackend):
    """Takes whatever is there."""

    def acquire(self):
        seen = self._swapping.read_version(STORAGE_LOCK_NAME, 1 << 16)
        handle = StorageLockHandle(self._swapping, self._owner, self._now, self._valid, self._beat)
        return handle if handle.put(seen.mark if seen else None) else None


def test_no_look_at_the_holder():
    assert failing(lambda: storage_kind(FreeForAll)) >= {"one", "slow", "early", "drift"}


class Trusting(LeasedLock):
    """Believes in its lease whatever happened."""

    @contextmanager
    def hold(self):
        with super().hold() as lease:
            lease.check = lambda: None
            yield lease


def test_a_lease_that_is_never_checked():
    assert failing(lambda: storage_kind(lock_class=Trusting)) >= {"outlives", "over", "skew", "random"}


class Silent(LeasedLock):
    """Forgets to renew."""

    def _acquire(self):
        lease = super()._acquire()
        lease.start = lambda: lambda: None
        return lease


@pytest.mark.slow
def test_no_heartbeat():
    assert failing(lambda: storage_kind(lock_class=Silent)) >= {"slow"}


class NoOwner(FileLockHandle):
    """Removes the file without looking whose it is."""

    def release(self):
        self._store.delete([FILE_SYSTEM_LOCK_NAME])


class NoOwnerKeeper(FileLockBackend):
    def acquire(self):
        handle = super().acquire()
        if handle is not None:
            handle.__class__ = NoOwner
        return handle


def file_kind(keeper_class):
    times = []
    store = MemoryStore(now=lambda: 1_800_000_000.0 + times[0].now)

    def open_lock(process, retry_policy):
        times[:] = [process.time]
        seen = RequestStore(store, process)
        backend = keeper_class(seen, f"w{process.number}-{next(numbers)}", process.wall, expire_seconds=60.0)
        return LeasedLock(backend, seen.url, retry_policy, process)

    return LockKind(open_lock, 60.0, 61.0, renewed=False)


@pytest.mark.slow
def test_a_release_without_looking_at_the_owner():
    assert failing(lambda: file_kind(FileLockBackend)) == set()
    assert "outlives" in failing(lambda: file_kind(NoOwnerKeeper))
