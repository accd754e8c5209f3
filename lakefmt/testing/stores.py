"""Store wrappers for tests: they count, watch, fail, freeze and delay accesses.

Each wraps any :class:`~lakefmt._core.storage.api.ObjectStore` and is one, so they can be stacked. Effects
(see :mod:`lakefmt.testing.store_wrapper`) are numbered from 1 in the order of their start.
"""

from __future__ import annotations

import builtins
import enum
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.api import Capabilities, ObjectStore, ObjectWriter, object_names
from lakefmt._core.storage.arrow_filesystem import arrow_view, track_arrow_use
from lakefmt._core.table import Table
from lakefmt.errors import StorageError
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
    "table_on",
]

T = TypeVar("T")


def table_on(store: ObjectStore) -> Table:
    """Open the table whose files are in `store`, for example one that fails.

    Raises:
        TableNotFound: at the first call of a verb, where the store holds no table.

    Example:
        >>> import lakefmt
        >>> _ = lakefmt.create_table("memory://doc-table-on", data=pa.table({"id": ["a"]}), record_key="id")
        >>> from lakefmt.storage import MemoryStore
        >>> table_on(CountingStore(MemoryStore("doc-table-on"))).read().num_rows
        0
    """
    return Table(TableClient(store))


# ------------------------------------------------------------------------------------------------------------ counting


@dataclass(frozen=True, slots=True)
class Access:
    """One access: kind, object or directory, bytes moved, and offset in the object."""

    kind: str
    name: str
    size: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Counts:
    """The number of accesses of each kind, and the bytes moved."""

    by_kind: Mapping[str, int]
    bytes_read: int
    bytes_written: int

    def of(self, *kinds: str) -> int:
        """Return the total number of accesses of these kinds."""
        return sum(self.by_kind.get(kind, 0) for kind in kinds)


_READING: Final = frozenset({"read", "range"})


class CountingStore(WrapperStore):
    """Records every effect and every read, range reads by Arrow included (kind ``range``).

    Example:
        >>> from lakefmt._core.storage import MemoryStore
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
        """All accesses so far, in order of completion."""
        with self._lock:
            return [*self._log]

    def statistics(self) -> Counts:
        """Return the log's totals."""
        log = self.log
        read = sum(client.size for client in log if client.kind in _READING)
        written = sum(client.size for client in log if "put" in client.kind)
        return Counts(Counter(client.kind for client in log), read, written)

    def reset(self) -> None:
        """Clear the log."""
        with self._lock:
            self._log.clear()

    def _note(self, *accesses: Access) -> None:
        with self._lock:
            self._log.extend(accesses)

    def perform(self, step: Step[T]) -> T:
        """Perform and record one effect, also if it fails."""
        try:
            return step.run()
        finally:
            self._note(Access(step.kind, step.name, step.size))

    def look(self, kind: str, name: str, run: Callable[[], T]) -> T:
        """Perform and record one read, also if it fails."""
        size = 0
        try:
            result = run()
            size = len(result) if isinstance(result, bytes) else 0
        finally:
            self._note(Access(kind, name, size))
        return result

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects in one call of the inner store; each name is recorded."""
        object_keys = object_names(names)
        try:
            self.inner.delete(object_keys)
        finally:
            self._note(*(Access("delete", name) for name in object_keys))

    def arrow_filesystem(self) -> tuple[pafs.FileSystem, str]:
        """Return an Arrow file system that records every range read."""
        opener = _watched_opener(self.inner, lambda name, offset, size: self._note(Access("range", name, size, offset)))
        return arrow_view(self, opener), ""


def _watched_opener(inner: ObjectStore, seen: Callable[[str, int, int], None]) -> Callable[[str], pa.NativeFile]:
    fs, prefix = inner.arrow_filesystem()

    def open_watched(name: str) -> pa.NativeFile:
        file = fs.open_input_file(prefix + name)
        return pa.PythonFile(
            track_arrow_use(_WatchedFile(file, lambda offset, size: seen(name, offset, size))), mode="r"
        )

    return open_watched


class _WatchedFile:
    """A readable file that reports every range read; Arrow calls it sequentially."""

    def __init__(self, file: pa.NativeFile, seen: Callable[[int, int], None]) -> None:
        self._file = file
        self._seen = seen

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)

    def close(self) -> None:
        self._file.close()

    def read(self, size: int = -1) -> bytes:
        offset = self._file.tell()
        data: bytes = self._file.read(None if size < 0 else size)
        self._seen(offset, len(data))
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
    """How an effect fails."""

    BEFORE = "before"  # not done, then the error
    AFTER = "after"  # done, then the error
    TORN = "torn"  # half done (an atomic put leaves a temporary object), then the error
    ANSWER_LOST = "answer_lost"  # done, the answer is lost
    REQUEST_LOST = "request_lost"  # not done, the answer is lost


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of one effect; `crash`: the process dies, else the effect raises a transient StorageError.

    A lost answer or request does not crash: puts-if-absent return UNKNOWN, everything else raises a
    transient StorageError.
    """

    mode: FaultMode
    crash: bool = True


#: Chooses the fault of each effect.
Plan = Callable[[Effect], Fault | None]


def no_faults(effect: Effect) -> Fault | None:
    """Choose no fault: the plan of a run that counts effects."""
    return None


def fail_at(number: int, mode: FaultMode, *, crash: bool = True) -> Plan:
    """Return the plan that fails only the effect `number` (from 1).

    Example:
        >>> fail_at(2, FaultMode.AFTER)(Effect(2, "put", "a")).mode
        <FaultMode.AFTER: 'after'>
    """
    return lambda effect: Fault(mode, crash) if effect.number == number else None


class FaultStore(WrapperStore):
    """Makes effects fail as `plan` says; after a crash nothing passes in either direction.

    Examine the damage through `inner`, as the next process would.

    Example:
        >>> from lakefmt._core.storage import MemoryStore
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
        """Whether the process that used this store has crashed."""
        return self._crashed

    @property
    def effects(self) -> builtins.list[Effect]:
        """The started effects in order."""
        with self._lock:
            return [*self._effects]

    def look(self, kind: str, name: str, run: Callable[[], T]) -> T:
        """Perform a read, unless the process has crashed."""
        self._check_alive()
        return run()

    def create(self, name: str, *, durable: bool = False) -> AbstractContextManager[ObjectWriter]:
        """Open a writer, unless the process has crashed."""
        self._check_alive()
        return super().create(name, durable=durable)

    def perform(self, step: Step[T]) -> T:
        """Perform an effect as the plan says."""
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
    """Calls `seen` after every effect, also a failed one.

    Example:
        >>> from lakefmt._core.storage import MemoryStore
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
        """Perform an effect and report it; others wait meanwhile."""
        with self._lock:
            self._begun += 1
            try:
                return step.run()
            finally:
                self._seen(Effect(self._begun, step.kind, step.name, step.size))


class FreezeStore(WrapperStore):
    """Blocks the effect with the number `at` (from 1) before it runs, until :meth:`release`; others pass.

    It simulates a writer that stalls at the worst moment and continues later.

    Example:
        >>> from lakefmt._core.storage import MemoryStore
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
        """Perform an effect; the chosen one blocks."""
        with self._lock:
            self._begun += 1
            waits = self._begun == self._at
        if waits:
            self._frozen.set()
            self._released.wait()
        return step.run()

    def wait_until_frozen(self, timeout_seconds: float = 30.0) -> bool:
        """Wait until the chosen effect blocks; False on a timeout."""
        return self._frozen.wait(timeout_seconds)

    def release(self) -> None:
        """Unblock the effect."""
        self._released.set()


def _twenty_milliseconds(kind: str, name: str, size: int) -> float:
    return 0.02


class DelayStore(WrapperStore):
    """Calls `sleep` with the result of `seconds` for (kind, name, bytes), once per effect and read.

    With a sleeper that only adds up, a test computes the time of a remote store. Effects wait
    before they run; reads and Arrow's range reads (kind ``range``) afterwards, when their size is
    known.

    Example:
        >>> from lakefmt._core.storage import MemoryStore
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
        """The inner store's guarantees, without low latency."""
        return replace(self.inner.capabilities, low_latency=False)

    def _wait(self, kind: str, name: str, size: int) -> None:
        self._sleep(self._seconds(kind, name, size))

    def perform(self, step: Step[T]) -> T:
        """Wait, then perform an effect."""
        self._wait(step.kind, step.name, step.size)
        return step.run()

    def look(self, kind: str, name: str, run: Callable[[], T]) -> T:
        """Perform a read, then wait."""
        result = run()
        self._wait(kind, name, len(result) if isinstance(result, bytes) else 0)
        return result

    def delete(self, names: Iterable[str]) -> None:
        """Wait once, then remove objects in one call."""
        object_keys = object_names(names)
        self._wait("delete", object_keys[0] if object_keys else "", 0)
        self.inner.delete(object_keys)

    def arrow_filesystem(self) -> tuple[pafs.FileSystem, str]:
        """Return an Arrow file system in which every range read waits."""
        return arrow_view(self, _watched_opener(self.inner, lambda name, _, size: self._wait("range", name, size))), ""
