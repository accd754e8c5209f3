"""Who is alive, who is dead, who holds the lock: heartbeats, locks, leases (docs/format.md, Locks; Heartbeats)."""

from __future__ import annotations

import itertools
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakefmt._core.storage.local import LocalStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.storage.time_source import SystemTimeSource
from lakefmt._core.timeline.heartbeat import Heartbeat, heartbeat_name, is_alive
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.locks.api import RetryPolicy
from lakefmt._core.timeline.locks.local import LocalLock
from lakefmt._core.timeline.locks.objects import FILE_SYSTEM_LOCK_NAME, FileSystemLock
from lakefmt._core.timeline.locks.open import LockOptions, open_lock
from lakefmt._core.timeline.timeline import build_timeline
from lakefmt._core.values import InstantTime
from lakefmt.errors import LeaseLost, LockUnavailable

R = InstantTime("20260101000000000")
TIMELINE = ".hoodie/timeline"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Ticking(SystemTimeSource):
    """Every look at the clock is a second later, and nobody waits."""

    def __init__(self) -> None:
        self._ticks = itertools.count()

    def monotonic(self) -> float:
        return float(next(self._ticks))

    def sleep(self, seconds: float) -> None:
        assert seconds > 0


def pending(modified: float = 0.0) -> tuple[Instant, object]:
    instant = Instant(R, Action.COMMIT, State.INFLIGHT, file_name=f"{R}.inflight", modified=modified)
    return instant, build_timeline([instant], 2)


def test_a_time_is_claimed_once(tmp_path: Path) -> None:
    for store in (LocalStore(tmp_path), MemoryStore()):
        first, second = (Heartbeat(store, R, owner, 60, SystemTimeSource()) for owner in ("one", "two"))
        assert first.claim()
        assert not second.claim()
        first.stop()
        assert store.info(heartbeat_name(R)) is None
        assert second.claim()
        second.stop()


def test_a_slow_writer_of_this_machine_is_alive_however_old_its_beat(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    beat = Heartbeat(store, R, "slow", 3600, SystemTimeSource())
    beat.claim()
    instant, timeline = pending()
    later = NOW.replace(year=2099)
    assert is_alive(store, timeline, instant, TIMELINE, lambda: later, 1.0).alive  # type: ignore[arg-type]
    beat.abandon()
    found = is_alive(store, timeline, instant, TIMELINE, lambda: later, 1e12)  # type: ignore[arg-type]
    assert not found.alive, "its process let go: dead at once, whatever the clock says"


@pytest.mark.parametrize(("age", "alive"), [(10, True), (599, True), (601, False)])
def test_elsewhere_the_age_of_the_last_beat_decides(age: int, alive: bool) -> None:
    store = MemoryStore(now=lambda: NOW.timestamp())
    store.put(heartbeat_name(R), b"")
    instant, timeline = pending()
    moment = NOW + timedelta(seconds=age)
    assert is_alive(store, timeline, instant, TIMELINE, lambda: moment, 600).alive is alive  # type: ignore[arg-type]


@pytest.mark.parametrize(("age", "alive"), [(599, True), (601, False)])
def test_without_a_heartbeat_the_newest_file_decides(age: int, alive: bool) -> None:
    store = MemoryStore(now=lambda: NOW.timestamp())
    instant, timeline = pending()
    store.put(f".hoodie/.temp/{R}/p/f.parquet.marker.CREATE", b"")
    moment = NOW + timedelta(seconds=age)
    assert is_alive(store, timeline, instant, TIMELINE, lambda: moment, 600).alive is alive  # type: ignore[arg-type]


def test_sparks_empty_heartbeat_proves_nothing_by_its_lock(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put(heartbeat_name(R), b"")
    instant, timeline = pending()
    assert is_alive(store, timeline, instant, TIMELINE, lambda: datetime.now(UTC), 600).alive  # type: ignore[arg-type]


def test_two_handles_exclude_each_other_and_two_tables_do_not(tmp_path: Path) -> None:
    one, again, other = (
        open_lock(LocalStore(tmp_path / n), LockOptions(retry_policy=RetryPolicy(0.05)), "o") for n in ("a", "a", "b")
    )
    with one.hold():
        with other.hold():
            pass
        with pytest.raises(LockUnavailable), again.hold():
            pass
    with again.hold():
        pass


def test_another_process_is_excluded_and_a_dead_one_is_not(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    held = store.hold(".hoodie/.lakefmt/lock")  # as another process would
    assert held is not None
    lock = LocalLock(store, store, 0.01, Ticking())
    with pytest.raises(LockUnavailable), lock.hold():
        pass
    held.release()  # the system does that when a process dies
    with lock.hold():
        pass


def test_hudis_lock_file_is_respected_and_released() -> None:
    store = MemoryStore()
    store.put(FILE_SYSTEM_LOCK_NAME, b"")  # Spark holds it: an empty file
    lock = FileSystemLock(store, "me", RetryPolicy(5.0), Ticking())
    with pytest.raises(LockUnavailable), lock.hold():
        pass
    assert store.read(FILE_SYSTEM_LOCK_NAME) == b"", "somebody else's file is left alone"
    store.delete([FILE_SYSTEM_LOCK_NAME])
    with lock.hold() as lease:
        lease.check()
        assert store.info(FILE_SYSTEM_LOCK_NAME) is not None
    assert store.info(FILE_SYSTEM_LOCK_NAME) is None


@pytest.mark.parametrize("other", [None, b"", b'{"owner": "another"}'])
def test_a_lock_file_that_was_taken_away_refuses_the_commit(other: bytes | None) -> None:
    store = MemoryStore()
    lock = FileSystemLock(store, "me", RetryPolicy(1.0))
    with lock.hold() as lease:
        store.delete([FILE_SYSTEM_LOCK_NAME])  # what Hudi 1.0.2 does when it fails to get the lock
        if other is not None:
            store.put(FILE_SYSTEM_LOCK_NAME, other)
        with pytest.raises(LeaseLost):
            lease.check()
    assert (store.info(FILE_SYSTEM_LOCK_NAME) is None) == (other is None), "never somebody else's"


def test_threads_queue(tmp_path: Path) -> None:
    lock, inside, most = open_lock(LocalStore(tmp_path), LockOptions(retry_policy=RetryPolicy(30.0)), "o"), [], []

    def work() -> None:
        with lock.hold():
            inside.append(1)
            most.append(len(inside))
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 8
