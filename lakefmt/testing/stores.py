"""Stores around a store, for tests: they count, watch, fail, freeze and delay what passes through.

Each of them takes any :class:`~lakefmt.storage.api.ObjectStore` and is one, so they can be stacked. Effects (see
:mod:`lakefmt.testing.store_wrapper`) are numbered from 1 in the order in which they begin.
"""

from __future__ import annotations

import builtins
import enum
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from lakefmt.errors import StorageError
from lakefmt.storage.api import Capabilities, ObjectStore, ObjectWriter
from lakefmt.storage.arrow_filesystem import arrow_view
from lakefmt.storage.arrow_lifetime import track_arrow_use
from lakefmt.storage.object_names import object_names
from lakefmt.testing.store_wrapper import Effect, SimulatedCrash, Step, WrapperStore

__all__ = [
    "Access",
    "CountingStore",
    "Counts",
    "DelayStore",
    "Effect",
    "Fault",
    "FaultMode",
    "FaultStore",
    "FreezeStore",
    "Plan",
    "SimulatedCrash",
    "Step",
    "WatchStore",
    "WrapperStore",
    "fail_at",
    "no_faults",
]

T = TypeVar("T")


# ------------------------------------------------------------------------------------------------------------ counting


@dataclass(frozen=True, slots=True)
class Access:
    """One thing that was done: its kind, object or directory, bytes moved, and where in the object they begin."""

    kind: str
    name: str
    size: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Counts:
    """How often each kind of access happened, and how many bytes moved."""

    by_kind: Mapping[str, int]
    bytes_read: int
    bytes_written: int

    def of(self, *kinds: str) -> int:
        """Return how often accesses of these kinds happened, taken together."""
        return sum(self.by_kind.get(kind, 0) for kind in kinds)


_READING: Final = frozenset({"read", "range"})


class CountingStore(WrapperStore):
    """Writes down every effect and every read, the ranges that Arrow reads included (kind ``range``).

    Example:
        >>> from lakefmt.storage import MemoryStore
        >>> store = CountingStore(MemoryStore())
        >>> store.put("a", b"four")
        >>> _ = store.read("a")
        >>> store.statistics().bytes_read, [access.kind for access in store.log]
        (4, ['put', 'read'])
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self._log: list[Access] = []

    @property
    def log(self) -> builtins.list[Access]:
        """Everything so far, in order of completion."""
        with self._lock:
            return [*self._log]

    def statistics(self) -> Counts:
        """Return the log in numbers."""
        log = self.log
        read = sum(client.size for client in log if client.kind in _READING)
        written = sum(client.size for client in log if "put" in client.kind)
        return Counts(Counter(client.kind for client in log), read, written)

    def reset(self) -> None:
        """Forget what was written down."""
        with self._lock:
            self._log.clear()

    def _note(self, *accesses: Access) -> None:
        with self._lock:
            self._log.extend(accesses)

    def perform(self, step: Step[T]) -> T:
        """Carry out one effect and write it down, also when it fails."""
        try:
            return step.run()
        finally:
            self._note(Access(step.kind, step.name, step.size))

    def look(self, kind: str, name: str, run: Callable[[], T]) -> T:
        """Carry out one read and write it down, also when it fails."""
        size = 0
        try:
            found = run()
            size = len(found) if isinstance(found, bytes) else 0
        finally:
            self._note(Access(kind, name, size))
        return found

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects in one call, as the inner store likes it; each name is written down."""
        wanted = object_names(names)
        try:
            self.inner.delete(wanted)
        finally:
            self._note(*(Access("delete", name) for name in wanted))

    def arrow_filesystem(self) -> tuple[pafs.FileSystem, str]:
        """Return an Arrow file system that writes down every range read."""
        opener = _watched_opener(self.inner, lambda name, at, size: self._note(Access("range", name, size, at)))
        return arrow_view(self, opener), ""


def _watched_opener(inner: ObjectStore, seen: Callable[[str, int, int], None]) -> Callable[[str], pa.NativeFile]:
    fs, prefix = inner.arrow_filesystem()

    def open_watched(name: str) -> pa.NativeFile:
        file = fs.open_input_file(prefix + name)
        return pa.PythonFile(track_arrow_use(_WatchedFile(file, lambda at, size: seen(name, at, size))), mode="r")

    return open_watched


class _WatchedFile:
    """A readable file that tells of every range read; Arrow asks one thing at a time of it."""

    def __init__(self, file: pa.NativeFile, seen: Callable[[int, int], None]) -> None:
        self._file = file
        self._seen = seen

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def close(self) -> None:
        self._file.close()

    def read(self, size: int = -1) -> bytes:
        at = self._file.tell()
        data: bytes = self._file.read(None if size < 0 else size)
        self._seen(at, len(data))
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        return int(self._file.seek(position, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True


# ------------------------------------------------------------------------------------------------------------- failing


class FaultMode(enum.Enum):
    """How one effect goes wrong."""

    BEFORE = "before"  # it is not done, then the failure
    AFTER = "after"  # it is done, then the failure
    TORN = "torn"  # half of it is done (of an atomic put: a temporary object stays), then the failure
    ANSWER_LOST = "answer_lost"  # it is done, and nobody learns that
    REQUEST_LOST = "request_lost"  # it is not done, and nobody learns that


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one effect; `crash`: the process dies of it, otherwise it gets a transient StorageError.

    A lost answer or request kills nobody: puts-if-absent answer UNKNOWN, everything else a transient StorageError.
    """

    mode: FaultMode
    crash: bool = True


#: Decides the fate of each effect.
Plan = Callable[[Effect], Fault | None]


def no_faults(effect: Effect) -> Fault | None:
    """Let every effect pass: the plan of the run that counts them."""
    return None


def fail_at(number: int, mode: FaultMode, *, crash: bool = True) -> Plan:
    """Return the plan that lets the effect with that `number` (from 1) fail and no other.

    Example:
        >>> fail_at(2, FaultMode.AFTER)(Effect(2, "put", "a")).mode
        <FaultMode.AFTER: 'after'>
    """
    return lambda effect: Fault(mode, crash) if effect.number == number else None


class FaultStore(WrapperStore):
    """Lets effects fail as `plan` says; after a crash nothing passes any more, in either direction.

    Look at the damage through `inner`, as the next process would.

    Example:
        >>> from lakefmt.storage import MemoryStore
        >>> store = FaultStore(MemoryStore(), fail_at(1, FaultMode.ANSWER_LOST))
        >>> store.put_if_absent("a", b"x"), store.read("a")
        (<PutOutcome.UNKNOWN: 'unknown'>, b'x')
    """

    def __init__(self, inner: ObjectStore, plan: Plan = no_faults) -> None:
        super().__init__(inner)
        self._plan = plan
        self._lock = threading.Lock()
        self._effects: list[Effect] = []
        self._crashed = False

    @property
    def crashed(self) -> bool:
        """Whether the process that used this store is dead."""
        return self._crashed

    @property
    def effects(self) -> builtins.list[Effect]:
        """The effects that were begun, in order."""
        with self._lock:
            return [*self._effects]

    def look(self, kind: str, name: str, run: Callable[[], T]) -> T:
        """Carry out one read, unless the process is dead."""
        self._check_alive()
        return run()

    def create(self, name: str, *, durable: bool = False) -> AbstractContextManager[ObjectWriter]:
        """Open a sink, unless the process is dead."""
        self._check_alive()
        return super().create(name, durable=durable)

    def perform(self, step: Step[T]) -> T:
        """Carry out one effect as the plan says."""
        with self._lock:
            self._check_alive()
            effect = Effect(len(self._effects) + 1, step.kind, step.name, step.size)
            self._effects.append(effect)
        fault = self._plan(effect)
        return step.run() if fault is None else self._fail(step, effect, fault)

    def _fail(self, step: Step[T], effect: Effect, fault: Fault) -> T:
        if fault.mode in (FaultMode.AFTER, FaultMode.ANSWER_LOST):
            step.run()
        elif fault.mode is FaultMode.TORN:
            step.tear()
        is_lost = fault.mode in (FaultMode.ANSWER_LOST, FaultMode.REQUEST_LOST)
        if is_lost and step.unknown is not None:
            return step.unknown
        if fault.crash and not is_lost:
            self._crashed = True
            raise SimulatedCrash(f"{fault.mode.value} effect {effect.number}: {effect.kind} {effect.name!r}")
        raise StorageError(f"simulated: {fault.mode.value} {effect.kind} of {effect.name!r}", transient=True)

    def _check_alive(self) -> None:
        if self._crashed:
            raise SimulatedCrash("the process is dead")


# --------------------------------------------------------------------------------------- watching, freezing, delaying


class WatchStore(WrapperStore):
    """Calls `seen` after every effect, also after one that failed.

    Example:
        >>> from lakefmt.storage import MemoryStore
        >>> names = []
        >>> store = WatchStore(MemoryStore(), lambda effect: names.append((effect.number, effect.kind, effect.name)))
        >>> store.put("a", b"x")
        >>> names
        [(1, 'put', 'a')]
    """

    def __init__(self, inner: ObjectStore, seen: Callable[[Effect], object]) -> None:
        super().__init__(inner)
        self._seen = seen
        self._lock = threading.Lock()
        self._begun = 0

    def perform(self, step: Step[T]) -> T:
        """Carry out one effect, then tell of it; others wait meanwhile."""
        with self._lock:
            self._begun += 1
            try:
                return step.run()
            finally:
                self._seen(Effect(self._begun, step.kind, step.name, step.size))


class FreezeStore(WrapperStore):
    """Stops the effect with the number `at` (from 1) before it is done, until :meth:`release`; others pass by it.

    It plays the writer that sleeps at the worst moment and wakes up when the world has moved on.

    Example:
        >>> from lakefmt.storage import MemoryStore
        >>> store = FreezeStore(MemoryStore(), at=2)
        >>> sleeper = threading.Thread(target=lambda: (store.put("a", b"1"), store.put("b", b"2")))
        >>> sleeper.start(); store.wait_until_frozen(), store.inner.info("b")
        (True, None)
        >>> store.release(); sleeper.join(); store.read("b")
        b'2'
    """

    def __init__(self, inner: ObjectStore, at: int) -> None:
        super().__init__(inner)
        self._at = at
        self._lock = threading.Lock()
        self._begun = 0
        self._frozen = threading.Event()
        self._released = threading.Event()

    def perform(self, step: Step[T]) -> T:
        """Carry out one effect; the chosen one waits."""
        with self._lock:
            self._begun += 1
            waits = self._begun == self._at
        if waits:
            self._frozen.set()
            self._released.wait()
        return step.run()

    def wait_until_frozen(self, timeout_seconds: float = 30.0) -> bool:
        """Wait until the chosen effect is reached; False when it was not in time."""
        return self._frozen.wait(timeout_seconds)

    def release(self) -> None:
        """Let the frozen effect go on."""
        self._released.set()


def _twenty_milliseconds(kind: str, name: str, size: int) -> float:
    return 0.02


class DelayStore(WrapperStore):
    """Calls `sleep` with the seconds that `seconds` gives for (kind, name, bytes), once per effect and read.

    With a sleeper that only adds up, a test tells how long a remote store would have taken. Effects wait before they
    are done; reads and the ranges that Arrow reads (kind ``range``) afterwards, when their size is known.

    Example:
        >>> from lakefmt.storage import MemoryStore
        >>> slept = []
        >>> store = DelayStore(MemoryStore(), slept.append)
        >>> store.put("a", b"x")
        >>> slept
        [0.02]
    """

    def __init__(
        self,
        inner: ObjectStore,
        sleep: Callable[[float], object],
        seconds: Callable[[str, str, int], float] = _twenty_milliseconds,
    ) -> None:
        super().__init__(inner)
        self._sleep = sleep
        self._seconds = seconds

    @property
    def capabilities(self) -> Capabilities:
        """The inner store's promises, but that it is far away."""
        return replace(self.inner.capabilities, low_latency=False)

    def _wait(self, kind: str, name: str, size: int) -> None:
        self._sleep(self._seconds(kind, name, size))

    def perform(self, step: Step[T]) -> T:
        """Wait, then carry out one effect."""
        self._wait(step.kind, step.name, step.size)
        return step.run()

    def look(self, kind: str, name: str, run: Callable[[], T]) -> T:
        """Carry out one read, then wait."""
        found = run()
        self._wait(kind, name, len(found) if isinstance(found, bytes) else 0)
        return found

    def delete(self, names: Iterable[str]) -> None:
        """Wait once, then remove objects in one call."""
        wanted = object_names(names)
        self._wait("delete", wanted[0] if wanted else "", 0)
        self.inner.delete(wanted)

    def arrow_filesystem(self) -> tuple[pafs.FileSystem, str]:
        """Return an Arrow file system in which every range read waits."""
        return arrow_view(self, _watched_opener(self.inner, lambda name, _, size: self._wait("range", name, size))), ""
