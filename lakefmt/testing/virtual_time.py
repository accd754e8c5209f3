"""Virtual time: processes wait on one clock, run in a fixed order, pause, and die.

A :class:`VirtualTime` advances only when a program waits. Used directly, waiting advances it and
runs what is due; with :meth:`VirtualTime.run` several programs wait concurrently, one running at a
time, so that every history is reproducible.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from collections.abc import Callable
from typing import TypeVar

from lakefmt._core.storage.api import CasResult, ObjectStore, PutOutcome
from lakefmt.errors import StorageError
from lakefmt.testing.store_wrapper import SimulatedCrash, Step, WrapperStore
from lakefmt.testing.stores import Fault, FaultMode

__all__ = ["Process", "RequestStore", "VirtualTime"]

T = TypeVar("T")

_EPOCH = 1_800_000_000.0
_POLL_SECONDS = 0.01
_STEP_LIMIT = 200_000


class VirtualTime:
    """A clock in seconds from 0.

    Example:
        >>> time = VirtualTime()
        >>> one = Process(time)
        >>> stop = one.schedule_periodic(2.0, lambda: print("beat at", time.now), "heart")
        >>> one.sleep(5.0); stop(); time.now
        beat at 2.0
        beat at 4.0
        5.0
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._programs: dict[threading.Thread, _Program] = {}
        self._failures: list[BaseException] = []

    def at(self, moment: float, act: Callable[[], None]) -> None:
        """Schedule a call; calls of one moment run in the order of scheduling."""
        heapq.heappush(self._due, (moment, next(self._numbers), act))

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`."""
        program = self._programs.get(threading.current_thread())
        if program is not None:
            self.at(self.now + max(seconds, 0.0), program.resume)
            program.wait()
            return
        until = self.now + max(seconds, 0.0)
        while self._due and self._due[0][0] <= until:
            self._next()
        self.now = max(self.now, until)

    def _next(self) -> None:
        moment, _, act = heapq.heappop(self._due)
        self.now = max(self.now, moment)
        act()

    def run(self, programs: list[Callable[[], None]]) -> None:
        """Run programs concurrently until all have ended; raise the first failure."""
        self._failures.clear()
        begun = [self._begin(program) for program in programs]
        for _ in range(_STEP_LIMIT):
            if self._failures or all(program.ended for program in begun):
                break
            self._next()
        else:
            raise AssertionError(f"the programs have not ended after {_STEP_LIMIT:,} steps")
        if self._failures:
            raise self._failures[0]

    def spawn(self, work: Callable[[], None]) -> None:
        """Run `work` concurrently while programs run, else at once."""
        if self._programs:
            self._begin(work)
        else:
            work()

    def _begin(self, work: Callable[[], None]) -> _Program:
        program = _Program(self, work)
        self._programs[program.thread] = program
        self.at(self.now, program.resume)
        return program

    def ended(self, thread: threading.Thread, failure: BaseException | None) -> None:
        """Record the end of a program."""
        del self._programs[thread]
        if failure is not None and not isinstance(failure, SimulatedCrash):
            self._failures.append(failure)


class _Program:
    """A thread that runs only while all others wait."""

    def __init__(self, time: VirtualTime, work: Callable[[], None]) -> None:
        self._time = time
        self._work = work
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self.ended = False
        self.thread = threading.Thread(target=self._run, daemon=True, name="lakefmt-program")
        self.thread.start()

    def _run(self) -> None:
        self._go.acquire()
        failure: BaseException | None = None
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - re-raised by run()
            failure = error
        self.ended = True
        self._time.ended(threading.current_thread(), failure)
        self._back.release()

    def resume(self) -> None:
        """Run it until it waits or ends."""
        self._go.release()
        self._back.acquire()

    def wait(self) -> None:
        """Yield until resumed."""
        self._back.release()
        self._go.acquire()


class Process:
    """A process on a virtual clock: its waits, its wall clock, its requests and their faults.

    `skew` is how far its wall clock is ahead, in seconds; `latency` the maximum time of a request
    and of an answer.

    Example:
        >>> one = Process(VirtualTime(), latency=0.5)
        >>> one.request("read", lambda: "answer"), 0 < one.monotonic() <= 1.0
        ('answer', True)
    """

    def __init__(self, time: VirtualTime, number: int = 0, *, skew: float = 0.0, latency: float = 0.0) -> None:
        self.time = time
        self.number = number
        self.faults: Callable[[int], Fault | None] = lambda number: None
        self.requests = 0
        self._skew = skew
        self._latency = latency
        self._random = random.Random(number)
        self._silent_since: float | None = None
        self._silences: list[tuple[float, float]] = []
        self.dead = False

    # ------------------------------------------------------------------------------------------------------- pacing

    def monotonic(self) -> float:
        """Return seconds of a monotonic clock."""
        return self.time.now

    def wall(self) -> float:
        """Return epoch seconds of its own clock."""
        return _EPOCH + self.time.now + self._skew

    def sleep(self, seconds: float) -> None:
        """Wait `seconds`."""
        self.time.sleep(seconds)

    def acquire_lock(self, lock: threading.Lock, seconds: float) -> bool:
        """Acquire a lock; False after `seconds`."""
        deadline = self.time.now + seconds
        while not lock.acquire(blocking=False):
            if self.time.now >= deadline:
                return False
            self.sleep(min(_POLL_SECONDS, seconds))
        return True

    def jitter(self) -> float:
        """Return the next number of a fixed sequence in [0, 1)."""
        return self._random.random()

    def schedule_periodic(self, seconds: float, work: Callable[[], None], name: str) -> Callable[[], None]:
        """Call `work` every `seconds` unless the process is paused or dead; the returned function stops it."""
        running = [True]

        def beat() -> None:
            if running[0] and not self.dead:
                self.time.at(self.time.now + seconds, beat)
                if self._silent_since is None:
                    self.time.spawn(work)

        def stop() -> None:
            running[0] = False

        self.time.at(self.time.now + seconds, beat)
        return stop

    # ------------------------------------------------------------------------------------------- pauses, faults, death

    def pause(self) -> None:
        """Stop its background work, as if the process slept."""
        if self._silent_since is None:
            self._silent_since = self.time.now

    def wake(self) -> None:
        """End a pause."""
        if self._silent_since is not None:
            self._silences.append((self._silent_since, self.time.now))
            self._silent_since = None

    def die(self) -> None:
        """End the process: its requests fail from now on."""
        self.dead = True
        self.pause()

    def was_silent(self, since: float, seconds: float) -> bool:
        """Return whether it was paused or dead for more than `seconds` at a stretch after the moment `since`."""
        running = [] if self._silent_since is None else [(self._silent_since, self.time.now)]
        return any(end - max(begin, since) > seconds for begin, end in [*self._silences, *running])

    def request(self, kind: str, run: Callable[[], T], unknown: T | None = None) -> T:
        """Send a request, which takes time and may fail on either way.

        `unknown` is the result for a lost answer; without one, a lost request or answer raises a
        transient StorageError.
        """
        self._check_alive()
        self.requests += 1
        fault = self.faults(self.requests)
        self._travel()
        if fault is not None and fault.mode in (FaultMode.BEFORE, FaultMode.REQUEST_LOST, FaultMode.TORN):
            answer = unknown
        else:
            answer = run()
        self._travel()
        if fault is None:
            return answer  # type: ignore[return-value]  # it was run
        if fault.crash and fault.mode in (FaultMode.BEFORE, FaultMode.AFTER):
            self.die()
            self._check_alive()
        if unknown is not None:
            return unknown
        raise StorageError(f"simulated: {fault.mode.value} {kind}", transient=True)

    def _travel(self) -> None:
        if self._latency:
            self.sleep(self._latency * self._random.random())
            self._check_alive()

    def _check_alive(self) -> None:
        if self.dead:
            raise SimulatedCrash(f"process {self.number} is dead")


class RequestStore(WrapperStore):
    """A store as one process sees it: every effect and read is a request of it.

    Example:
        >>> from lakefmt._core.storage import MemoryStore
        >>> process = Process(VirtualTime())
        >>> RequestStore(MemoryStore(), process).put("a", b"x"); process.requests
        1
    """

    def __init__(self, inner: ObjectStore, process: Process) -> None:
        super().__init__(inner)
        self._process = process

    @property
    def url(self) -> str:
        """The inner store's base and the process, shared by the threads of one process only."""
        return f"{self.inner.url}#{self._process.number}"

    def perform(self, step: Step[T]) -> T:
        """Perform an effect as a request."""
        unknown = step.unknown if isinstance(step.unknown, PutOutcome | CasResult) else None
        return self._process.request(step.kind, step.run, unknown)

    def look(self, kind: str, name: str, run: Callable[[], T]) -> T:
        """Perform a read as a request."""
        return self._process.request(kind, run)
