"""A test suite for table locks.

Subclass :class:`LockSuite`; its fixture `kind` says how a process opens the lock and what the lock
guarantees. Time is virtual, so nothing sleeps and every history is reproducible.
"""

# ruff: noqa: D102 - the names of tests are sentences

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lakefmt._core.data_classes import dataclass
from lakefmt._core.timeline.locks.api import FencedLease, Lease, RetryPolicy, TableLock
from lakefmt.errors import LeaseLost, LockUnavailable, StorageError
from lakefmt.testing.store_wrapper import SimulatedCrash
from lakefmt.testing.stores import Fault, FaultMode
from lakefmt.testing.virtual_time import Process, VirtualTime

__all__ = ["LockKind", "LockSuite", "Writer"]

_QUICK = RetryPolicy(0.2, pause=0.1)
_LONGEST_REQUESTS = 40


@dataclass(frozen=True)
class LockKind:
    """A lock under test.

    Attributes:
        open: opens it in a process with a retry policy; processes may share state.
        lease_seconds: the minimum lease of a silent holder; work is paced in thirds of it; any
            number for locks without a lease.
        recovery_seconds: the maximum time until another process gets the lock of a silent holder;
            None: never.
        renewed: a live holder keeps the lock as long as it works.
        asks: it uses requests of :class:`Process`, so answers can be lost.
    """

    open: Callable[[Process, RetryPolicy], TableLock]
    lease_seconds: float = 30.0
    recovery_seconds: float | None = None
    asks: bool = True
    renewed: bool = True

    def retry_policy(self, seconds: float) -> RetryPolicy:
        """Return a retry policy that polls just often enough for this lock."""
        return RetryPolicy(seconds, pause=self.lease_seconds / 60)


class Writer:
    """A process with an opened lock."""

    def __init__(
        self, kind: LockKind, time: VirtualTime, number: int, *, skew: float = 0.0, latency: float = 0.0
    ) -> None:
        self.process = Process(time, number, skew=skew, latency=latency)
        self._kind = kind
        self._context = kind.open(self.process, _QUICK).hold()

    def take(self, retry_policy: RetryPolicy = _QUICK) -> Lease:
        """Acquire and keep the lock."""
        self._context = self._kind.open(self.process, retry_policy).hold()
        return self._context.__enter__()

    def give(self) -> None:
        """Release the lock; a dead process fails to."""
        with contextlib.suppress(SimulatedCrash):
            self._context.__exit__(None, None, None)

    def can_take(self) -> bool:
        """Return whether the lock can be acquired; release it again."""
        try:
            self.take()
        except LockUnavailable:
            return False
        self.give()
        return True


@contextmanager
def refused() -> Iterator[None]:
    """Expect that a commit in the block is refused."""
    with pytest.raises(LeaseLost):
        yield


def is_good(lease: Lease) -> bool:
    """Return whether a commit may complete now."""
    try:
        lease.check()
    except LeaseLost:
        return False
    return True


class LockSuite:
    """The contract of a :class:`~lakefmt._core.timeline.locks.api.TableLock`.

    Example:
        >>> from lakefmt._core.timeline.locks.local import InProcessLock
        >>> class TestMine(LockSuite):
        ...     @pytest.fixture
        ...     def kind(self):
        ...         return LockKind(lambda process, retry_policy: InProcessLock("mine", retry_policy.total, process), asks=False)
    """

    @pytest.fixture
    def kind(self) -> LockKind:
        """Return the lock under test, to be overridden. At each call it is free."""
        raise NotImplementedError("override the fixture `kind`")

    @pytest.fixture
    def time(self) -> VirtualTime:
        """Return a clock."""
        return VirtualTime()

    # ------------------------------------------------------------------------------------------------- one at a time

    def test_one_at_a_time(self, kind: LockKind, time: VirtualTime) -> None:
        first, second = Writer(kind, time, 1), Writer(kind, time, 2)
        for _ in range(3):
            lease = first.take()
            lease.check()
            assert not second.can_take()
            lease.check()
            first.give()
            assert second.can_take()

    def test_each_tenure_has_a_token_of_its_own(self, kind: LockKind, time: VirtualTime) -> None:
        writers = [Writer(kind, time, number) for number in (1, 2, 1, 2)]
        tokens = []
        for writer in writers:
            lease = writer.take()
            if isinstance(lease, FencedLease):
                tokens.append(lease.token)
            writer.give()
        assert len({*tokens}) == len(tokens)

    def test_a_lease_that_was_given_back_is_no_lease(self, kind: LockKind, time: VirtualTime) -> None:
        writer = Writer(kind, time, 1)
        lease = writer.take()
        writer.give()
        if isinstance(lease, FencedLease):
            with refused():
                lease.check()

    def test_a_failure_inside_gives_the_lock_back(self, kind: LockKind, time: VirtualTime) -> None:
        first, second = Writer(kind, time, 1), Writer(kind, time, 2)
        lock = kind.open(first.process, _QUICK)
        with pytest.raises(KeyError), lock.hold():
            raise KeyError("the work failed")
        assert second.can_take()

    # ------------------------------------------------------------------------------------------ delay, pause, expiry

    def test_slow_work_keeps_the_lock(self, kind: LockKind, time: VirtualTime) -> None:
        first, second = Writer(kind, time, 1), Writer(kind, time, 2)
        lease = first.take()
        if not kind.renewed:
            first.give()
            pytest.skip("this lock is not renewed: slow work loses it, which the next tests look at")
        for _ in range(12):
            time.sleep(kind.lease_seconds / 3)
            assert not second.can_take(), f"taken away from a living holder after {time.now:g} s"
            lease.check()
        first.give()
        assert second.can_take()

    def test_a_holder_that_outlives_its_lease_cannot_commit(self, kind: LockKind, time: VirtualTime) -> None:
        first, second, third = (Writer(kind, time, number) for number in (1, 2, 3))
        lease = first.take()
        first.process.pause()
        if kind.recovery_seconds is None:
            time.sleep(20 * kind.lease_seconds)
            assert not second.can_take()
            first.process.wake()
            lease.check()
            return
        second_lease = second.take(kind.retry_policy(kind.recovery_seconds + 2))
        first.process.wake()
        with refused():
            lease.check()
        first.give()
        second_lease.check()
        assert not third.can_take(), "the holder that was late has taken away what is not its own"
        second.give()
        assert third.can_take()

    def test_a_lease_that_is_over_stays_over(self, kind: LockKind, time: VirtualTime) -> None:
        if kind.recovery_seconds is None:
            pytest.skip("this lock has no end")
        first, second = Writer(kind, time, 1), Writer(kind, time, 2)
        lease = first.take()
        first.process.pause()
        time.sleep(kind.recovery_seconds + 1)
        first.process.wake()
        with refused():
            lease.check()
        time.sleep(kind.lease_seconds)
        with refused():
            lease.check()
        first.give()
        assert second.can_take()

    def test_nobody_is_early(self, kind: LockKind, time: VirtualTime) -> None:
        first, second = Writer(kind, time, 1), Writer(kind, time, 2)
        lease = first.take()
        first.process.pause()
        while time.now < kind.lease_seconds * 3:
            if second.can_take():
                assert not is_good(lease), f"two holders at {time.now:g} s"
                assert time.now >= kind.lease_seconds - 1
                break
            time.sleep(kind.lease_seconds / 30)
        first.give()

    # ------------------------------------------------------------------------------------------- lost answers, death

    @pytest.mark.parametrize("mode", [FaultMode.ANSWER_LOST, FaultMode.REQUEST_LOST])
    def test_a_lost_answer_makes_no_second_holder(self, kind: LockKind, mode: FaultMode) -> None:
        for request in range(1, _LONGEST_REQUESTS) if kind.asks else ():
            time = VirtualTime()
            first, second = Writer(kind, time, 2 * request), Writer(kind, time, 2 * request + 1)
            first.process.faults = fault_at(request, Fault(mode, crash=False))
            try:
                lease = first.take()
            except (LockUnavailable, StorageError):
                pass
            else:
                time.sleep(kind.lease_seconds / 2)
                assert not (is_good(lease) and second.can_take()), f"two holders after a fault at request {request}"
                first.give()
            if kind.recovery_seconds is not None:
                second.take(kind.retry_policy(kind.recovery_seconds + 2)).check()
                second.give()
            if first.process.requests < request:
                return
            if kind.recovery_seconds is None:
                first.process.faults = lambda number: None
                self._tidy(first)

    def _tidy(self, writer: Writer) -> None:
        """Free a lock that needs an administrator, to be overridden where that exists."""

    @pytest.mark.parametrize("mode", [FaultMode.BEFORE, FaultMode.AFTER])
    def test_a_dead_holder_does_not_hold_for_ever(self, kind: LockKind, mode: FaultMode) -> None:
        for number in range(1, _LONGEST_REQUESTS) if kind.asks else ():
            time = VirtualTime()
            first, second = Writer(kind, time, 2 * number), Writer(kind, time, 2 * number + 1)
            first.process.faults = fault_at(number, Fault(mode))
            with contextlib.suppress(SimulatedCrash):
                lease = first.take()
                with contextlib.suppress(SimulatedCrash):
                    lease.check()
                first.give()
            if kind.recovery_seconds is None:
                self._tidy(second)
            second.take(kind.retry_policy((kind.recovery_seconds or 0.0) + 2)).check()
            second.give()
            if first.process.requests < number:
                return

    # ----------------------------------------------------------------------------------------------------- clock skew

    @pytest.mark.parametrize("skew", [-0.45, 0.45, -3600.0, 3600.0])
    def test_clocks_that_differ_make_no_second_commit(self, kind: LockKind, time: VirtualTime, skew: float) -> None:
        first, second = Writer(kind, time, 1), Writer(kind, time, 2, skew=skew)
        lease = first.take()
        first.process.pause()
        while time.now < kind.lease_seconds * 2:
            if second.can_take():
                assert not is_good(lease), f"two holders at {time.now:g} s with clocks {skew:g} s apart"
                # Clocks within the guaranteed skew do not end the lease early either.
                assert abs(skew) > 1 or time.now >= kind.lease_seconds - 1
                break
            time.sleep(kind.lease_seconds / 40)
        first.give()

    # ------------------------------------------------------------------------------------------------ many, at random

    @pytest.mark.parametrize("seed", range(8))
    def test_no_commit_is_lost_whatever_happens(self, kind: LockKind, seed: int) -> None:
        dice = random.Random(seed)
        time, table = VirtualTime(), LockedTable()
        writers = [
            Writer(kind, time, 100 * seed + n, skew=dice.uniform(-0.2, 0.2), latency=dice.choice([0.0, 0.02, 0.3]))
            for n in range(4)
        ]
        for writer in writers:
            if kind.recovery_seconds is not None:
                writer.process.faults = random_faults(random.Random(dice.random()))
        dices = [random.Random(dice.random()) for _ in writers]
        time.run([functools.partial(table.write, kind, *pair) for pair in zip(writers, dices, strict=True)])
        assert table.commits > 0

    def test_everybody_gets_the_lock(self, kind: LockKind) -> None:
        time, table = VirtualTime(), LockedTable()
        writers = [Writer(kind, time, 900 + n, latency=0.02) for n in range(5)]
        retry_policy = RetryPolicy(60.0)

        def work(writer: Writer) -> None:
            for _ in range(10):
                table.commit(writer, retry_policy, lambda: writer.process.sleep(0.05))

        time.run([functools.partial(work, writer) for writer in writers])
        assert table.commits == 50
        assert table.longest_wait < 30.0, f"somebody waited for {table.longest_wait:g} s of 50 short turns"


class LockedTable:
    """Writers under the lock: read the state, work, and replace the state if it is unchanged."""

    def __init__(self) -> None:
        self.commits = 0
        self.longest_wait = 0.0

    def commit(self, writer: Writer, retry_policy: RetryPolicy, work: Callable[[], None]) -> None:
        """Commit once; a commit that replaces an unseen one fails the test."""
        begin = writer.process.monotonic()
        lease = writer.take(retry_policy)
        self.longest_wait = max(self.longest_wait, writer.process.monotonic() - begin)
        seen = self.commits
        try:
            work()
            lease.check()
            assert self.commits == seen, f"writer {writer.process.number} replaces a commit that it has not seen"
            self.commits += 1
        finally:
            writer.give()

    def write(self, kind: LockKind, writer: Writer, dice: random.Random) -> None:
        """Commit several times, sometimes slowly, sometimes after too long a pause."""
        for _ in range(4):

            def work() -> None:
                if kind.recovery_seconds is not None and dice.random() < 0.3:
                    writer.process.pause()
                    writer.process.sleep(dice.uniform(0.1, 2.0) * kind.recovery_seconds)
                    writer.process.wake()
                writer.process.sleep(dice.uniform(0.0, kind.lease_seconds / 2))

            try:
                self.commit(writer, kind.retry_policy(kind.lease_seconds * 10), work)
            except (LeaseLost, LockUnavailable, StorageError):
                writer.process.sleep(dice.random())


def fault_at(failing: int, fault: Fault) -> Callable[[int], Fault | None]:
    """Return faults that fail only the request with the number `failing` (from 1)."""
    return lambda number: fault if number == failing else None


def random_faults(dice: random.Random) -> Callable[[int], Fault | None]:
    """Return faults that lose one request or answer in twelve."""
    modes = [FaultMode.ANSWER_LOST, FaultMode.REQUEST_LOST]
    return lambda number: Fault(dice.choice(modes), crash=False) if dice.random() < 1 / 12 else None
