"""Simulate several writers of a table in one thread, on a virtual clock, from a seed.

A *seed* determines everything: table type and lock, number of writers, their operations and services, the time of each
request, lost answers, pauses beyond every lease, and crashes. The same seed gives the same history. :func:`simulate`
creates one, :func:`check_history` checks it; :mod:`tests.simulation.serializability` describes the checks.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, TypeVar

import pyarrow as pa

from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.create import run_creation
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.storage.api import CasResult, ObjectInfo, ObjectStore, PutOutcome
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import RandomIds
from lakefmt.errors import AlreadyExistsError, InstantNotFound, LakefmtError, ObjectNotFound, StateError, StorageError
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.operations import TableShape, Verb
from lakefmt.testing.store_wrapper import SimulatedCrash, Step, WrapperStore
from lakefmt.testing.virtual_time import Process
from tests.simulation.green_clock import GreenletClock
from tests.simulation.serializability import Read, RecordedHistory, Tried, check_history

__all__ = ["Chances", "Scene", "SimulatedStore", "check_history", "scene_of", "simulate"]

T = TypeVar("T")

SCHEMA: Final = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
LOCKS: Final = ("InProcessLockProvider", "FileSystemBasedLockProvider", "StorageBasedLockProvider")
_LOCK_FILE: Final = ".hoodie/lock"
_LEAST_ACTIVE: Final = "hoodie.keep.min.commits"
_BEAT_SECONDS: Final = 1.0
_EXPIRY_SECONDS: Final = 2 * _BEAT_SECONDS
_LEASE_SECONDS: Final = 10.0
_SCENES: Final = tuple((version, kind, lock) for lock in LOCKS for kind in ("cow", "mor") for version in (6, 8, 9))
_HOMES: Final = {f"k{n}": ("sf", "oslo")[n % 2] for n in range(6)} | {f"n{n}": "sf" for n in range(3)}
_KEYS: Final = tuple(_HOMES)
_FIXED: Final = ("u0", "u1")
_METADATA: Final[Mapping[str, object]] = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.record.index.min.filegroup.count": 2,
    "hoodie.metadata.record.index.max.filegroup.count": 2,
    "hoodie.metadata.compact.max.delta.commits": 3,
}


@dataclass(frozen=True, slots=True)
class Chances:
    """The probability of each fault per effect.

    Attributes:
        lost: the answer or the request is lost.
        crash: the process dies before, after or in the middle.
        pause: the process sleeps beyond its leases before the effect.
        slow: the request takes twenty times as long.
    """

    lost: float = 0.008
    crash: float = 0.004
    pause: float = 0.004
    slow: float = 0.02


CALM: Final = Chances(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Scene:
    """The parameters of a history.

    Attributes:
        seed: the seed.
        shape: the table.
        lock: Hudi's class name of the lock.
        apart: new rows get their own file groups, so that only keys conflict.
        writers: number of writers.
        calls: number of calls per writer.
        chances: probabilities of faults.
        mode: ``hoodie.write.concurrency.mode``. Non-blocking writers only upsert, and no two rows have one event time, so
            that the order of their commits does not matter.
        metadata: the table has a metadata table with statistics and a record index, which is compacted often. Every process
            lists files by it, and what a reader sees is compared with what a listing of storage gives.
        savepoints: they are made and deleted, too.
        waiting: on merge-on-read tables compactions are planned, run and withdrawn apart, and meanwhile a few keys are deleted
            and written again.
    """

    seed: int
    shape: TableShape
    lock: str
    apart: bool
    writers: int
    calls: int
    chances: Chances
    mode: str = "optimistic_concurrency_control"
    metadata: bool = False
    savepoints: bool = False
    waiting: bool = False


def scene_of(seed: int, chances: Chances | None = None) -> Scene:
    """Return the parameters of a seed; eighteen consecutive seeds cover every version, table type and lock.

    Example:
        >>> scene_of(4).shape.table_version, scene_of(4).shape.table_type, scene_of(4).lock
        (8, 'mor', 'InProcessLockProvider')
    """
    dice = random.Random(f"scene {seed}")
    version, kind, lock = _SCENES[seed % len(_SCENES)]
    ordering = dice.choice((None, "ts"))
    shape = TableShape(SCHEMA, "id", "city", ordering, table_version=version, table_type=kind)
    likely = chances or dice.choice((CALM, Chances(), Chances(), Chances(pause=0.02), Chances(crash=0.02)))
    return Scene(seed, shape, lock, dice.random() < 0.5, dice.choice((2, 3, 4)), dice.choice((2, 3)), likely)


class _Place(str):
    """One text for all processes with a different hash key each: in-process locks are found by it."""

    process: int

    def __new__(cls, text: str, process: int) -> _Place:
        place = super().__new__(cls, text)
        place.process = process
        return place

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place) and other.process == self.process and str.__eq__(self, other)

    def __hash__(self) -> int:
        return hash((str.__hash__(self), self.process))


class SimulatedStore(WrapperStore):
    """The table's store as one process sees it: requests take time and may fail.

    Args:
        inner: the store.
        process: the process of the requests.
        dice: the random numbers for faults.
        chances: probabilities of faults.
        history: records the steps.
        shared: state of the processes of one machine, for a lock that they share.
        after_savepoint: called after each step of making or deleting a savepoint.
    """

    def __init__(
        self,
        inner: ObjectStore,
        process: Process,
        dice: random.Random,
        chances: Chances,
        history: RecordedHistory,
        shared: bool,
        after_savepoint: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(inner)
        self._after_savepoint = after_savepoint
        self._process = process
        self._dice = dice
        self._chances = chances
        self._history = history
        self._shared = shared
        self._stamp: bytes | None = None

    @property
    def url(self) -> str:
        """The inner store's base; each process has its own in-process locks for it, unless those are simulated."""
        return self.inner.url if self._shared else _Place(self.inner.url, self._process.number)

    def look(self, kind: str, name: str, run: Callable[[], T]) -> T:
        """Run a read after its latency."""
        if self._is_turn():
            self._travel(name)
        return run()

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """Return a listing as of one moment, however late it is consumed."""
        return iter([*super().list(prefix, recursive=recursive)])

    def perform(self, step: Step[T]) -> T:
        """Run an effect; request and answer take time and may be lost."""
        if not self._is_turn():
            return step.run()
        chances, dice = self._chances, self._dice
        if dice.random() < chances.pause and not self._is_last_step(step.name):
            self._pause(step)
        self._travel(step.name)
        luck = dice.random()
        if luck < chances.crash:
            self._die(step)
        if luck < chances.crash + chances.lost:
            return self._lose(step)
        answer = self._done(step)
        self._travel(step.name)
        return answer

    def _is_last_step(self, name: str) -> bool:
        # Between checking a lease and the put that completes, only a machine-wide stall could
        # outlast the lease: no lease can protect that moment, which docs/locks.md states.
        return not self._process_lock_is_kept and self._history.is_completion(name)

    @property
    def _process_lock_is_kept(self) -> bool:
        return self._history.scene_lock != "StorageBasedLockProvider"

    def _is_turn(self) -> bool:
        time = self._process.time
        self._check_alive()
        return isinstance(time, GreenletClock) and time.is_turn

    def _check_alive(self) -> None:
        if self._process.dead:
            raise SimulatedCrash(f"process {self._process.number} is dead")

    def _travel(self, name: str) -> None:
        seconds = 0.002 + 0.02 * self._dice.random()
        if self._dice.random() < self._chances.slow and not self._is_last_step(name):
            seconds *= 20
        self._process.sleep(seconds)
        self._check_alive()

    def _done(self, step: Step[T]) -> T:
        answer = step.run()
        applied = not isinstance(answer, PutOutcome) or answer is PutOutcome.DONE
        self._history.note(self._process.time.now, self._process.number, step.kind, step.name, applied)
        if step.name == _LOCK_FILE and answer is PutOutcome.DONE:
            self._stamp = self.inner.read(_LOCK_FILE)
        if self._after_savepoint is not None and "savepoint" in step.name:
            self._after_savepoint()
        return answer

    def _pause(self, step: Step[T]) -> None:
        self._history.say(self._process.time.now, self._process.number, f"paused before {step.kind} {step.name}")
        self._process.pause()
        self._process.sleep(_EXPIRY_SECONDS + _LEASE_SECONDS * 2 * self._dice.random())
        self._process.wake()

    def _lose(self, step: Step[T]) -> T:
        happened = self._dice.random() < 0.5
        if happened:
            self._done(step)
        what = "answer" if happened else "request"
        self._history.say(self._process.time.now, self._process.number, f"{what} lost: {step.kind} {step.name}")
        self._history.unlucky.add(self._process.number)
        self._travel(step.name)
        if isinstance(step.unknown, PutOutcome | CasResult):
            return step.unknown
        raise StorageError(f"simulated: {what} lost of {step.kind} {step.name!r}", transient=True)

    def _die(self, step: Step[T]) -> None:
        how = self._dice.choice(("before", "after", "half-way"))
        if how == "after":
            self._done(step)
        elif how == "half-way":
            step.tear()
        self._history.say(self._process.time.now, self._process.number, f"died {how} {step.kind} {step.name}")
        self._process.die()
        if self._stamp is not None:
            # An administrator sees that the file's holder is dead and removes the file, as the
            # error message advises.
            self._process.time.at(self._process.time.now + 1 + 4 * self._dice.random(), self._remove_lock_of_the_dead)
        self._check_alive()

    def _remove_lock_of_the_dead(self) -> None:
        try:
            if self.inner.read(_LOCK_FILE) == self._stamp:
                self.inner.delete([_LOCK_FILE])
        except ObjectNotFound:
            return


class _Clock:
    def __init__(self, process: Process) -> None:
        self._process = process

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._process.wall(), UTC)


class _World:
    """A history while it is created."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.time = GreenletClock()
        self.dice = random.Random(f"world {scene.seed}")
        self.store = MemoryStore(now=lambda: Process(self.time).wall())
        self.history = RecordedHistory(scene.seed, scene.shape, scene.lock)
        self.processes = 0

    def options(self) -> dict[str, object]:
        return {
            "hoodie.write.concurrency.mode": self.scene.mode,
            "hoodie.write.lock.provider": self.scene.lock,
            "hoodie.write.lock.storage.validity.timeout.secs": int(_LEASE_SECONDS),
            "hoodie.write.lock.storage.renew.interval.secs": 1,
            "hoodie.client.heartbeat.interval_in_ms": int(_BEAT_SECONDS * 1000),
            "lakefmt.write.turn.after.conflicts": 1,  # as often as possible
            "lakefmt.durability": "none",
            "lakefmt.write.threads": 1,
            "hoodie.archive.automatic": False,
            "hoodie.clean.automatic": False,
            **({"hoodie.parquet.small.file.limit": 0} if self.scene.apart else {}),
            **(_METADATA if self.scene.metadata else {}),
            **self.scene.shape.options(),
        }

    def table(self, chances: Chances) -> tuple[Table, Process]:
        """Return the table as a new process sees it."""
        self.processes += 1
        dice = random.Random(f"process {self.scene.seed} {self.processes}")
        process = _Beside(self.time, self.processes, dice)
        shared = self.scene.lock == "InProcessLockProvider"
        after = self.compare_listings if self.scene.metadata else None
        store = SimulatedStore(self.store, process, dice, chances, self.history, shared, after)
        ids = RandomIds(lambda: uuid.UUID(int=dice.getrandbits(128), version=4))
        listing = ListingByMetadata() if self.scene.metadata else None
        client = TableClient(store, self.options(), _Clock(process), ids, process, metadata_listing=listing)
        return Table(client), process

    def compare_listings(self) -> None:
        """Note what a reader sees at this moment by the metadata table and not by a listing of storage."""
        by_metadata = TableClient(self.store, {}, metadata_listing=ListingByMetadata())
        by_storage = TableClient(self.store, {"hoodie.metadata.enable": False})
        difference = multiset_difference(Table(by_metadata).read(), Table(by_storage).read())
        if difference:
            self.history.differences.append(f"{self.time.now:.3f}: by the metadata table and by storage: {difference}")

    def create(self) -> Table:
        table, _ = self.table(CALM)
        shape = self.scene.shape
        run_creation(
            table.client,
            shape.schema,
            record_key=shape.record_key,
            partition_by=shape.partition_by,
            ordering=shape.ordering,
            table_type=shape.table_type,
            table_version=shape.table_version,
            index=shape.index,
            merge=None,
            name="simulated",
            database=None,
            properties=shape.properties,
            settings=resolve_settings({"lakefmt.durability": "none"}),
            indexes=(),
        )
        return table


class _Beside(Process):
    """A process whose waits are spread by its own random numbers."""

    def __init__(self, time: GreenletClock, number: int, dice: random.Random) -> None:
        super().__init__(time, number)
        self._dice = dice

    def jitter(self) -> float:
        return self._dice.random()

    def acquire_lock(self, lock: threading.Lock, seconds: float) -> bool:
        deadline = self.time.now + seconds
        while not lock.acquire(blocking=False):
            if self.time.now >= deadline or self.dead:
                return False
            self.sleep(0.005 + 0.01 * self._dice.random())
        return True


class _Writer:
    """A writer: it calls operations and services in turn, and restarts after each crash."""

    def __init__(self, world: _World, name: str) -> None:
        self._world = world
        self._name = name
        self._dice = random.Random(f"writer {world.scene.seed} {name}")
        self._made = 0

    def run(self) -> None:
        table, process = self._world.table(self._world.scene.chances)
        for _ in range(self._world.scene.calls):
            process.sleep(0.1 * self._dice.random())
            try:
                self._call(table, process)
            except SimulatedCrash:
                self._world.time.sleep(3 * self._dice.random())
                table, process = self._world.table(self._world.scene.chances)

    def _call(self, table: Table, process: Process) -> None:
        luck = self._dice.random()
        if luck < 0.12:
            self._read(table)
        elif luck < (0.45 if self._world.scene.waiting else 0.3):
            self._serve(table, process)
        else:
            self._write(table, process)

    def _read(self, table: Table) -> None:
        begun = len(self._world.history.completions)
        try:
            rows = table.read()
        except LakefmtError as error:
            self._world.history.say(self._world.time.now, 0, f"read failed: {error!r}")
            self._world.history.failed_reads.append(error)
            return
        self._world.history.reads.append(Read(rows, begun, len(self._world.history.completions)))
        if self._world.scene.metadata:
            self._world.compare_listings()

    def _serve(self, table: Table, process: Process) -> None:
        shape = self._world.scene.shape
        services: dict[str, Callable[[], object]] = {
            "clean": lambda: table.clean(options={"hoodie.clean.commits.retained": self._dice.choice((1, 2, 3))})
        }
        if shape.table_type == "mor":
            services["compact"] = lambda: table.compact(
                options={"hoodie.compact.inline.max.delta.commits": 1}, schedule=self._dice.random() < 0.3
            )
        if shape.table_version > 6:
            services["archive"] = lambda: table.archive(options={_LEAST_ACTIVE: self._dice.choice((1, 2, 4))})
        if shape.index != "bucket":
            services["cluster"] = lambda: table.cluster(["v", "id"], order="zorder", schedule=self._dice.random() < 0.3)
        if self._world.scene.waiting and shape.table_type == "mor":
            services = {
                "plan": lambda: table.compact(schedule=True),
                "run": lambda: self._end_compactions(table, "run"),
                "withdraw": lambda: self._end_compactions(table, "abandon"),
            }
        if self._world.scene.savepoints:
            services["savepoint"] = lambda: self._save(table)
        name = self._dice.choice(sorted(services))
        self._try(Tried(f"{self._name}.{name}", None, process.number), services[name])

    def _save(self, table: Table) -> None:
        """Keep the newest commit, or delete a savepoint; another writer may be faster."""
        with suppress(AlreadyExistsError, InstantNotFound, StateError):
            kept = [savepoint.instant for savepoint in table.savepoints()]
            if kept and self._dice.random() < 0.5:
                table.delete_savepoint(self._dice.choice(kept))
            else:
                table.savepoint()

    def _end_compactions(self, table: Table, how: str) -> None:
        for pending in table.client.load().timeline.pending:
            if pending.action is Action.COMPACTION:
                with suppress(InstantNotFound):  # others end it, too
                    table.compact(**{how: pending.time})  # type: ignore[arg-type]

    def _write(self, table: Table, process: Process) -> None:
        self._made += 1
        name = f"{self._name}.{self._made}"
        verb = self._verb(name)
        verb = replace(verb, how={**verb.how, "commit_metadata": {"simulated": name}})
        self._try(Tried(name, verb, process.number), lambda: verb.run(self._world.scene.shape, table))

    def _try(self, tried: Tried, call: Callable[[], object]) -> None:
        history, time = self._world.history, self._world.time
        tried.begun = time.now
        history.tried.append(tried)
        history.say(time.now, tried.process, f"begins {tried.name} {'' if tried.verb is None else tried.verb.name}")
        try:
            call()
        except SimulatedCrash as error:
            tried.error = error
            raise
        except Exception as error:
            tried.error = error
        else:
            tried.acknowledged = True
        finally:
            tried.ended = time.now
            history.say(time.now, tried.process, f"{tried.name} {'done' if tried.acknowledged else repr(tried.error)}")

    def _verb(self, name: str) -> Verb:
        dice, shape = self._dice, self._world.scene.shape
        own = int.from_bytes(name.encode()[-6:], "big") % 1_000_000

        # A delete in a log keeps an event time, against which late rows lose until a compaction;
        # the model does not know that, so a history has either late rows or deletes.
        keeps_times = shape.table_type == "mor" and shape.ordering is not None
        is_late = not keeps_times or self._world.scene.seed % 2 == 0

        non_blocking = self._world.scene.mode == "non_blocking_concurrency_control"
        waiting = self._world.scene.waiting

        def row(key: str, city: str | None = None) -> Mapping[str, object]:
            time = dice.getrandbits(40) if non_blocking else dice.randint(1, 9) if is_late else 5
            return {"id": key, "city": city or _HOMES[key], "ts": time, "v": own}

        def some() -> list[str]:
            return dice.sample(*((_KEYS[:2], 1) if waiting else (_KEYS, dice.choice((1, 1, 2, 3)))))

        choices: list[Callable[[], Verb]] = [
            lambda: Verb("upsert", rows=tuple(map(row, some()))),
            lambda: Verb("upsert", rows=(*map(row, some()), row(f"{name}.own", dice.choice(("sf", "oslo"))))),
            lambda: Verb("upsert", rows=(row(f"{name}.own", "rome"),)),
            lambda: Verb("insert_new", rows=tuple(map(row, some()))),
            lambda: Verb("insert", rows=(row(f"{name}.in", dice.choice(("sf", "oslo", "rome"))),)),
            lambda: Verb("bulk_insert", rows=(row(f"{name}.a", "sf"), row(f"{name}.b", "rome"))),
            lambda: Verb("delete", keys=tuple(some())),
            lambda: Verb("update", where=("id", dice.choice(_FIXED)), values={"v": own}),
            lambda: Verb("insert_overwrite", rows=(row(f"{name}.over", "bern"),)),
        ]
        if non_blocking:
            return dice.choice(choices[:3])()
        deletes = 0 if keeps_times and is_late else 3
        weights = (9, 0, 0, 1, 0, 0, 2 * deletes, 1, 0) if waiting else (5, 4, 2, 2, 2, 1, deletes, 3, 1)
        return dice.choices(choices, weights=weights)[0]()


def simulate(scene: Scene | int) -> RecordedHistory:
    """Create the history of a seed, and clean up as the next writer would.

    Args:
        scene: a seed or its parameters.

    Example:
        >>> history = simulate(0)
        >>> check_history(history)
        >>> [line for line in simulate(0).trace] == history.trace
        True
    """
    scene = scene_of(scene) if isinstance(scene, int) else scene
    world = _World(scene)
    first = world.create()
    rows = [
        *({"id": key, "city": _HOMES[key], "ts": 1, "v": 0} for key in _KEYS[:2]),
        *({"id": key, "city": "rome", "ts": 1, "v": 0} for key in _FIXED),
    ]
    world.history.load(Verb("upsert", rows=tuple(rows), how={"commit_metadata": {"simulated": "load"}}), first)
    writers = [_Writer(world, f"w{number}") for number in range(scene.writers)]
    world.time.run([writer.run for writer in writers])
    # Long afterwards all writers have ended or died, and an administrator removes a dead holder's lock.
    world.time.now += 10_000
    world.store.delete([_LOCK_FILE])
    world.history.tidy(world.table(CALM)[0])
    return world.history
