"""A process that sleeps at any effect while others take it for dead, undo it and archive its time: rows are right.

It wakes and goes on until it learns that it lost, or it dies right behind the effect at which it slept.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.storage import ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.errors import LakefmtError
from lakefmt.events import subscribe
from lakefmt.testing.store_wrapper import SimulatedCrash, Step, WrapperStore
from tests.kit import THOROUGH

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64())])
NUMBERS = itertools.count()
T = TypeVar("T")
#: Two writers; heartbeats of minutes, which nobody renews in a test.
MANY: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "InProcessLockProvider",
    "hoodie.write.lock.wait_time_ms": 1,
    "hoodie.write.lock.num_retries": 0,
    "hoodie.client.heartbeat.interval_in_ms": 100000,
    "hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.clean.automatic": False,
    "hoodie.archive.automatic": False,
}
IMPATIENT: dict[str, object] = {**MANY, "hoodie.client.heartbeat.tolerable.misses": 0}
KEEP_ONE: dict[str, object] = {
    "hoodie.keep.min.commits": 1,
    "hoodie.keep.max.commits": 2,
    "hoodie.clean.commits.retained": 1,
    "hoodie.compact.inline.max.delta.commits": 1,
}


def rows(ids: list[str], v: int, partitions: str = "xy") -> pa.Table:
    number = len(partitions)
    columns = {"id": ids * number, "p": [p for p in partitions for _ in ids], "v": [v] * number * len(ids)}
    return pa.table(columns, schema=SCHEMA)


class SleepingStore(WrapperStore):
    """Calls what happens `meanwhile` before the effects of these numbers, and ends the process behind the last one if `dies`."""

    def __init__(self, inner: ObjectStore, meanwhile: dict[int, Callable[[], object]], *, dies: bool = False) -> None:
        super().__init__(inner)
        self.begun, self.is_dead = 0, False
        self._meanwhile, self._dies = meanwhile, dies

    def perform(self, step: Step[T]) -> T:
        """Perform an effect, late or never."""
        if self.is_dead:
            raise SimulatedCrash("the process is dead")
        self.begun += 1
        self._meanwhile.get(self.begun, lambda: None)()
        result = step.run()
        if self._dies and self.begun >= max(self._meanwhile):
            self.is_dead = True
            raise SimulatedCrash(f"behind {step.kind} {step.name}")
        return result


CALLS: dict[str, Callable[[Table], object]] = {
    "cluster": lambda t: t.cluster(),
    "compact": lambda t: t.compact(options={"hoodie.compact.inline.max.delta.commits": 1}),
    "log_compact": lambda t: t.compact(log=True, options={"hoodie.log.compaction.blocks.threshold": 1}),
    "clean": lambda t: t.clean(options=KEEP_ONE),
    "upsert": lambda t: t.upsert(rows(["a", "n"], 7)),
    "delete": lambda t: t.delete(["a"]),
    "overwrite": lambda t: t.insert_overwrite(rows(["n"], 7, "x")),
}
ROWS_AFTER: dict[str, set[str]] = {"upsert": {"xn", "yn"}}


def empty(kind: str, version: int) -> lakefmt.Table:
    return lakefmt.create_table(
        f"memory://frozen-{kind}-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="p",
        table_type=kind,
        table_version=version,
        options=MANY,
    )


def made(kind: str, version: int) -> lakefmt.Table:
    table = empty(kind, version)
    table.insert(rows(["a"], 1))
    table.insert(rows(["b"], 1))
    if kind == "mor":
        table.upsert(rows(["a"], 2))
        table.upsert(rows(["a"], 2))  # two logs, which a log compaction folds
    return table


def in_another_thread(work: Callable[[], None]) -> bool:
    """Run what another process does meanwhile; False: it could not, as the sleeper holds the table lock."""
    done: list[bool] = []

    def run() -> None:
        with suppress(LakefmtError):
            work()
            done.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return bool(done)


def slept(kind: str, version: int, call: str, at: int, *, dies: bool, early: bool) -> str | None:
    """Play one night; return what is wrong afterwards, or None when there was no such effect."""
    table = made(kind, version)
    url = table.client.store.url
    other = lakefmt.open_table(url, options=IMPATIENT)
    nights: list[bool] = []

    def writes() -> None:
        # A change of its rows withdraws a clustering; what a write has left is not hidden by a later row.
        other.upsert(rows(["a"] if call == "cluster" else ["z"], 3))

    def archives() -> None:
        for value in range(4):
            other.upsert(rows(["z"], value))
        other.clean(options=KEEP_ONE)
        other.archive(options=KEEP_ONE)

    def night() -> None:
        nights.append(in_another_thread(writes))
        if early and nights[-1]:
            archives()

    store = SleepingStore(MemoryStore(url.removeprefix("memory://")), {at: night}, dies=dies)
    sleeper = Table(TableClient(store, dict(MANY), metadata_listing=ListingByMetadata()))
    with suppress(LakefmtError, SimulatedCrash):
        CALLS[call](sleeper)
    if not nights:
        return None
    if not nights[0]:
        return ""
    archives()
    # What is put after the archive went over it is found by a check alone.
    return judged(call, url, f"effect {at}, dies {dies}, early {early}", repairable=dies and early)


def judged(call: str, url: str, night: str, *, repairable: bool) -> str:
    """Return what is wrong with the rows of a table: those of the call are all there, or none is."""
    read = [(row["p"] + row["id"], row["v"]) for row in lakefmt.open_table(url).read().to_pylist()]
    found = dict(read)
    old = 3 if call == "cluster" else 2 if "frozen-mor" in url else 1
    before = {p + i: {"a": old, "b": 1, "z": 3}[i] for p in "xy" for i in "abz"}
    after = {
        "upsert": {**before, "xa": 7, "ya": 7, "xn": 7, "yn": 7},
        "delete": {key: value for key, value in before.items() if key[1] != "a"},
        "overwrite": {"xn": 7, "xz": 3, **{key: value for key, value in before.items() if key[0] == "y"}},
    }
    if len(found) == len(read) and found in (before, after.get(call, before)):
        return ""
    named = lakefmt.open_table(url).check("full")
    if repairable and any("neither on the timeline nor in the archive" in f.what for f in named.findings):
        if not named.plan.steps:  # a clean took the files below: nothing is removed that is nowhere else
            return "" if before.keys() <= found.keys() else f"{night}: {sorted(read)}"
        lakefmt.open_table(url, options=IMPATIENT).repair(named.plan, accept_loss=True)
        return judged(call, url, f"{night}, repaired", repairable=False)
    return f"{night}: {sorted(read)}"


#: Each kind of table and each call once; a thorough run has all of them.
USUAL = [
    ("cow", 6, "cluster"),
    ("mor", 8, "cluster"),
    ("cow", 8, "upsert"),
    ("mor", 6, "upsert"),
    ("mor", 9, "delete"),
    ("cow", 9, "overwrite"),
]
ALL = [(kind, version, call) for kind in ("cow", "mor") for version in (6, 8, 9) for call in CALLS]
ALL = [(kind, version, call) for kind, version, call in ALL if kind == "mor" or "compact" not in call]


@pytest.mark.slow
@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("kind", "version", "call"), ALL if THOROUGH else USUAL)
def test_a_sleeper_that_lost_leaves_nothing_that_is_read(kind: str, version: int, call: str) -> None:
    number = USUAL.index((kind, version, call)) if (kind, version, call) in USUAL else 0
    endings = list(itertools.product((False, True), (False, True)))
    for dies, early in endings if THOROUGH else endings[number % 4 :][:1]:
        nights = 0
        for nights in itertools.count():
            fault = slept(kind, version, call, nights + 1, dies=dies, early=early)
            if fault is None:
                break
            assert not fault
        assert nights > 3


def test_a_clustering_that_another_process_completed_is_not_there_twice_after_the_archive_went_over_it() -> None:
    table = made("cow", 8)
    other = lakefmt.open_table(table.client.store.url, options=IMPATIENT)
    # The fifth effect is the first file that the clustering puts.
    memory = MemoryStore(table.client.store.url.removeprefix("memory://"))
    store = SleepingStore(memory, {5: other.cluster}, dies=True)
    with pytest.raises(SimulatedCrash, match="parquet"):
        Table(TableClient(store, dict(MANY))).cluster()
    assert "stray_file" in {finding.kind.value for finding in other.check("full").findings}
    for value in range(4):
        other.upsert(rows(["z"], value))
    other.clean(options=KEEP_ONE)
    other.archive(options=KEEP_ONE)
    read = sorted(row["p"] + row["id"] for row in lakefmt.open_table(table.client.store.url).read().to_pylist())
    assert read == ["xa", "xb", "xz", "ya", "yb", "yz"]


def test_a_check_names_the_file_of_a_writer_that_died_behind_its_put_after_the_archive_went_over_it() -> None:
    table = made("cow", 8)
    url = table.client.store.url
    for value in range(4):
        table.upsert(rows(["z"], value))
    begun = table.timeline.timeline.commits[2].time
    table.archive(options=KEEP_ONE)
    late = f"p=x/f-0_0-7-0_{int(begun) + 1}.parquet"
    copied = next(each.base for each in table.file_groups() if each.partition == "p=x" and each.base is not None)
    table.client.store.put(late, table.client.store.read(copied.path))
    assert len(lakefmt.open_table(url).read()) > len({(r["p"], r["id"]) for r in table.read().to_pylist()})
    report = table.check("full")
    assert [f.where for f in report.findings if "nor in the archive" in f.what] == [late]
    table.repair(report.plan, accept_loss=True)
    assert lakefmt.open_table(url).check("full").is_clean
    assert table.client.store.info(late) is None


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("late_first", [True, False])
def test_two_plans_of_one_clustering_leave_each_row_once(kind: str, version: int, late_first: bool) -> None:
    table = made(kind, version)
    store, before = table.client.store, sorted(table.read(meta_columns=False).to_pylist(), key=str)
    # A planner that sleeps before it puts its plan.
    late = str(table.cluster(schedule=True).instant)
    [name] = [each.name for each in store.list(".hoodie") if late in each.name and each.name.endswith("requested")]
    plan = store.read(name)
    store.delete([name])
    usual = str(table.cluster(schedule=True).instant)
    store.put(name, plan)
    for instant in (late, usual) if late_first else (usual, late):
        with suppress(LakefmtError):
            table.cluster(run=instant)
    assert sorted(table.read(meta_columns=False).to_pylist(), key=str) == before
    table.cluster()
    assert sorted(lakefmt.open_table(store.url).read(meta_columns=False).to_pylist(), key=str) == before


@pytest.mark.slow
@pytest.mark.in_turn(3)
@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize(("kind", "call"), [("cow", "upsert"), ("mor", "upsert"), ("cow", "overwrite")])
def test_a_writer_that_goes_on_behind_its_rollback_and_dies_blocks_nobody(kind: str, version: int, call: str) -> None:
    table = made(kind, version)
    url = table.client.store.url
    effects = 0
    for effects in itertools.count(3):
        writer = SleepingStore(MemoryStore(url.removeprefix("memory://")), {effects: lambda: None}, dies=True)
        with suppress(SimulatedCrash):
            CALLS[call](Table(TableClient(writer, dict(MANY))))
            break
        pending = [i for i in table.timeline.timeline.pending if i.state.value == "inflight"]
        store = table.client.store
        left = {f.name: store.read(f.name) for f in store.list("") if pending and pending[0].time in f.name}
        other = lakefmt.open_table(url, options=IMPATIENT)
        other.upsert(rows(["z"], effects))  # rolls the writer back
        # What it put while others took it for dead: its inflight file and data files, whose markers others have removed.
        for name, content in left.items():
            if name.endswith((".parquet", ".inflight")) or ".log." in name:
                store.put(name, content)
        other.upsert(rows(["z"], effects))
        assert {(r["p"] + r["id"], r["v"]) for r in other.read().to_pylist() if r["id"] == "z"} == {
            ("xz", effects),
            ("yz", effects),
        }
        assert not other.timeline.timeline.pending
    assert effects > 5


def plan_again(table: Table, call: str) -> None:
    """Plan what a second process does next; of a compaction there is something to do."""
    if call == "cluster":
        table.cluster(schedule=True)
        return
    table.upsert(rows(["a"], 2))
    options = {"hoodie.compact.inline.max.delta.commits": 1, "hoodie.log.compaction.blocks.threshold": 1}
    table.compact(schedule=True, log=call == "log_compact", options=options)


def slept_beside_the_winner(kind: str, version: int, call: str, later: str, at: int) -> bool | None:
    """Let another process complete the plan of one that sleeps, or roll its write back, and plan behind its next effect.

    Returns:
        Whether the other one could complete it; None: there was no such effect.
    """
    table = made(kind, version)
    url = table.client.store.url
    other = lakefmt.open_table(url, options=IMPATIENT)
    before = sorted(other.read(meta_columns=False).to_pylist(), key=str)
    nights: list[bool] = []

    def complete() -> None:
        # A write is rolled back by another one; both store what is there.
        winner = CALLS[call] if call in CALLS else lambda table: table.upsert(rows(["a"], 2))
        nights.append(in_another_thread(lambda: winner(other)))

    def read_and_plan() -> None:
        assert sorted(lakefmt.open_table(url).read(meta_columns=False).to_pylist(), key=str) == before
        in_another_thread(lambda: plan_again(other, later))

    store = SleepingStore(MemoryStore(url.removeprefix("memory://")), {at: complete, at + 1: read_and_plan})
    sleeper = Table(TableClient(store, dict(MANY), metadata_listing=ListingByMetadata()))
    with suppress(LakefmtError):
        CALLS.get(call, lambda table: table.upsert(rows(["b"], 1)))(sleeper)
    if not nights:
        return None
    for service in (
        sorted({call, later}.intersection(CALLS)) * 2
    ):  # in version 6 a pending clustering has to be executed first
        CALLS[service](other)
    assert not other.timeline.timeline.pending
    assert sorted(lakefmt.open_table(url).read(meta_columns=False).to_pylist(), key=str) == before
    return nights[0]


@pytest.mark.slow
@pytest.mark.in_turn(3)
@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize(
    ("kind", "call", "later"),
    [
        ("cow", "cluster", "cluster"),
        ("mor", "cluster", "cluster"),
        ("mor", "cluster", "compact"),
        ("mor", "compact", "compact"),
        ("mor", "compact", "cluster"),
        ("mor", "log_compact", "compact"),
        ("mor", "log_compact", "log_compact"),
        ("mor", "write", "compact"),
        ("mor", "write", "log_compact"),
        ("mor", "write", "cluster"),
    ],
)
def test_what_a_sleeper_puts_and_takes_back_is_in_no_read_and_blocks_no_plan(
    kind: str, version: int, call: str, later: str
) -> None:
    nights = (slept_beside_the_winner(kind, version, call, later, effect) for effect in itertools.count(1))
    assert sum(itertools.takewhile(lambda night: night is not None, nights)) > 3


OVERTAKEN: dict[str, tuple[Callable[[Table], object], dict[str, int | None]]] = {
    "upsert": (lambda t: t.upsert(rows(["a"], 7)), {"a": 7}),
    "partial": (lambda t: t.upsert(rows(["a"], 7), partial=True), {"a": 7}),
    "delete": (lambda t: t.delete(["a"]), {"a": None}),
    "filter": (lambda t: t.delete("id = 'a'"), {"a": None}),
    "update": (lambda t: t.update("id = 'a'", {"v": 7}), {"a": 7}),
    "merge": (lambda t: t.merge(rows(["a"], 7), on=["id", "p"]).when_matched(update="all").execute(), {"a": 7}),
}


class PausedWrite:
    """A write of another process that sleeps before an effect until it is woken."""

    def __init__(self, url: str, write: Callable[[Table], object], at: int) -> None:
        self._reached, self._go = threading.Event(), threading.Event()
        store = SleepingStore(MemoryStore(url.removeprefix("memory://")), {at: self._sleep})
        table = Table(TableClient(store, dict(MANY), metadata_listing=ListingByMetadata()))
        self.succeeded = False

        def run() -> None:
            with suppress(LakefmtError):
                write(table)
                self.succeeded = True

        self._thread = threading.Thread(target=run)
        self._thread.start()
        self._reached.wait()

    def _sleep(self) -> None:
        self._reached.set()
        self._go.wait()

    def wake(self) -> None:
        """Let it go on to its end."""
        self._go.set()
        self._thread.join()


#: Older writes: what they do to a table of which type, and what its rows are then.
SLOW: dict[str, tuple[str, Callable[[Table], object], dict[str, int]]] = {
    "upsert": ("cow", lambda t: t.upsert(rows(["b"], 2)), {"b": 2}),
    "overwrite": ("mor", lambda t: t.insert_overwrite(rows(["a", "b"], 2)), {"a": 2, "b": 2}),
    "compact": ("mor", CALLS["compact"], {}),
}


def overtaken(older: str, version: int, call: str, at: int) -> bool | None:
    """Begin a write beside an older one, and before an effect of it complete that and clean what the write began with.

    Returns:
        Whether the older one completed; None: there was no such effect.
    """
    table_type, slow_write, slow_changes = SLOW[older]
    table = empty(table_type, version)
    table.insert(rows(["a", "b"], 1))
    if older == "compact":
        table.upsert(rows(["a", "b"], 1))
    url = table.client.store.url
    slow = PausedWrite(url, slow_write, 4)
    for value in range(3):
        table.upsert(rows(["z"], value, "z"))  # cleans count commits by their requested times
    nights: list[bool] = []

    def complete_and_clean() -> None:
        slow.wake()
        table.clean(options=KEEP_ONE)

    write, changed = OVERTAKEN[call]
    night = {at: lambda: nights.append(in_another_thread(complete_and_clean))}
    store = SleepingStore(MemoryStore(url.removeprefix("memory://")), night)
    error = None
    try:
        write(Table(TableClient(store, dict(MANY), metadata_listing=ListingByMetadata())))
    except LakefmtError as failed:
        error = failed
    slow.wake()
    slow_changed = slow_changes if slow.succeeded else {}
    expected = {"a": 1, "b": 1, **slow_changed, **(changed if error is None else {})}
    outcomes = [expected, {**expected, **slow_changed}]  # one behind the other
    read = sorted((row["p"] + row["id"], row["v"]) for row in lakefmt.open_table(url).read().to_pylist())
    allowed = [sorted((p + key, v) for p in "xy" for key, v in each.items() if v is not None) for each in outcomes]
    assert read[:-1] in allowed, (at, error)
    return slow.succeeded if nights else None


@pytest.mark.slow
@pytest.mark.in_turn(6)  # each call once
@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("older", SLOW)
@pytest.mark.parametrize("call", OVERTAKEN)
def test_a_write_whose_files_were_cleaned_before_it_listed_them_stores_no_key_twice(
    older: str, version: int, call: str
) -> None:
    nights = (overtaken(older, version, call, effect) for effect in itertools.count(1))
    assert sum(itertools.takewhile(lambda night: night is not None, nights)) > 1


@pytest.mark.slow
@pytest.mark.in_turn(2)
@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("call", ["upsert", "partial", "delete"])
def test_a_write_that_found_its_files_before_they_were_cleaned_is_no_conflict(version: int, call: str) -> None:
    conflicts: list[str] = []
    unsubscribe = subscribe(lambda event: conflicts.append(str(event)) if event.name == "conflict" else None)
    try:
        nights = (overtaken("compact", version, call, effect) for effect in itertools.count(1))
        assert sum(itertools.takewhile(lambda night: night is not None, nights)) > 3
    finally:
        unsubscribe()
    assert len(conflicts) == 1, conflicts  # there is one effect between the load of the timeline and the listing
