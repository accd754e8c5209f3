"""Services beside writes in one process: nothing is lost, nothing is silent, and whoever closes has waited for it."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import lowlevel
from lakefmt._core.compaction import scheduler
from lakefmt._core.compaction.scheduler import BackgroundServices
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import MemoryStore, ObjectStore
from lakefmt._core.storage.time_source import SystemTimeSource
from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt._core.values import WriteOperation
from lakefmt.errors import CommitConflict, InstantNotFound, InvalidInputError, ServicesFailed, StateError
from lakefmt.testing.store_wrapper import WrapperStore
from lakefmt.testing.stores import FaultMode, FaultStore, FreezeStore, SimulatedCrash, fail_at, no_faults
from tests.compaction.held import Later
from tests.example_counts import in_turn
from tests.judges.compare import assert_same_multiset
from tests.kit import SECONDS_FOR_A_CHILD

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
OFTEN: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "lakefmt.write.services.background": True,
    "hoodie.compact.inline.max.delta.commits": 2,
    "hoodie.clean.automatic": True,
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.max.commits": 4,
    "hoodie.keep.min.commits": 2,
}
#: Logs are folded more often than they are compacted.
FOLDING: dict[str, object] = {
    **OFTEN,
    "hoodie.compact.inline.max.delta.commits": 9,
    "hoodie.log.compaction.inline": True,
    "hoodie.log.compaction.blocks.threshold": 2,
    "hoodie.keep.max.commits": 40,
    "hoodie.keep.min.commits": 30,
}
NUMBERS = itertools.count()


class ByHand(SystemTimeSource):
    """Starts no thread: what is due is done when the test says so."""

    def __init__(self) -> None:
        self.rounds: list[Callable[[], None]] = []

    def schedule_periodic(self, seconds: float, work: Callable[[], None], name: str) -> Callable[[], None]:
        if name != "lakefmt-services":
            return lambda: None
        self.rounds.append(work)
        return lambda: self.rounds.remove(work)

    def tick(self) -> None:
        for work in [*self.rounds]:
            work()


def rows(v: int, *keys: str) -> pa.Table:
    return pa.table({"id": [*(keys or ("a", "b"))], "v": [v] * len(keys or ("a", "b"))}, schema=SCHEMA)


def make(version: int = 8, table_type: str = "mor") -> MemoryStore:
    store = MemoryStore(f"background-{next(NUMBERS)}")
    lakefmt.create_table(store.url, schema=SCHEMA, record_key="id", table_type=table_type, table_version=version)
    return store


def over(
    store: ObjectStore, time_source: SystemTimeSource | None = None, options: dict[str, object] = OFTEN, **client: Any
) -> Table:
    return Table(TableClient(store, options, time_source=time_source or ByHand(), **client))


def actions(table: Table) -> set[Action]:
    state = table.client.load()
    timeline = table.client.at(state).with_history().timeline
    archived = {Action.COMMIT if i.action is Action.COMPACTION else i.action for i in timeline.archived}
    return {i.action for i in timeline.completed} | archived


@pytest.mark.parametrize(("version", "table_type"), [(6, "mor"), (8, "mor"), (9, "mor"), (8, "cow")])
def test_services_run_beside_writes(version: int, table_type: str) -> None:
    """Real threads: a writer that never pauses, and services that follow it."""
    table = over(make(version, table_type), SystemTimeSource())
    with table.services():
        for v in range(25):
            keys = ("a",) if v % 5 else ("a", f"k{v}")
            assert table.upsert(rows(v, *keys)).warnings == ()
    expected = pa.concat_tables([rows(24, "a"), *(rows(v, f"k{v}") for v in range(0, 25, 5))])
    assert_same_multiset(table.read(), expected)
    timeline = table.client.load().timeline
    assert not timeline.pending
    assert Action.CLEAN in actions(table)
    if table_type == "mor":
        assert Action.COMMIT in actions(table)
    if version > 6:
        assert len(timeline.commits) <= 6, "archived in the background"


class PassedStore(WrapperStore):
    """Lets something happen once, before the files of a partition are listed."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.happens: list[Callable[[], object]] = []

    def look(self, kind: str, name: str, run: Callable[[], Any]) -> Any:
        if kind.startswith("list") and not name.startswith(".hoodie") and self.happens:
            self.happens.pop()()
        return super().look(kind, name, run)


@pytest.mark.parametrize("version", [8, 9])  # in version 6 no compaction begins while a write is pending
def test_a_write_that_services_pass_is_done_again(version: int) -> None:
    inner = make(version)
    store = PassedStore(inner)
    writer, services = (over(each, ByHand()) for each in (store, inner))
    for v in range(3):
        writer.upsert(rows(v, "a"))
    newest_files = {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1}

    def pass_it() -> None:
        services.compact()
        services.clean(options=newest_files)

    store.happens.append(pass_it)
    result = writer.upsert(rows(3, "a"))
    assert not store.happens
    assert (result.num_inserts, result.num_updates) == (0, 1)
    assert_same_multiset(writer.read(), rows(3, "a"))


def test_a_commit_only_plans() -> None:
    time_source = ByHand()
    table = over(make(), time_source)
    for v in range(2):
        table.upsert(rows(v))
    waiting = table.client.load().timeline.pending
    assert {i.action for i in waiting} == {Action.COMPACTION}
    time_source.tick()
    assert time_source.rounds == [], "nothing is due: the thread ends"
    assert not table.client.load().timeline.pending
    assert_same_multiset(table.read(query="read_optimized"), rows(1))


def folds(table: Table) -> int:
    """How many log compactions have completed."""
    state = table.client.load()
    return sum(
        i.action is Action.DELTA_COMMIT
        and table.client.at(state).commit_metadata(i).operation is WriteOperation.LOG_COMPACT
        for i in state.timeline.commits
    )


@pytest.mark.parametrize("version", [6, 8, 9])
def test_logs_are_folded_beside_writes(version: int) -> None:
    """Real threads again; in version 6 the call folds, because its logs are ordered by number."""
    table = over(make(version), SystemTimeSource(), FOLDING)
    with table.services():
        for v in range(12):
            keys = ("a",) if v % 5 else ("a", f"k{v}")
            assert table.upsert(rows(v, *keys)).warnings == ()
    expected = pa.concat_tables([rows(11, "a"), *(rows(v, f"k{v}") for v in range(0, 11, 5))])
    assert_same_multiset(table.read(), expected)
    assert not table.client.load().timeline.pending
    assert folds(table) >= 1


def test_a_commit_only_plans_a_log_compaction() -> None:
    time_source = ByHand()
    table = over(make(), time_source, FOLDING)
    for v in range(3):
        table.upsert(rows(v))
    pending = table.client.load().timeline.pending
    assert Action.LOG_COMPACTION in {i.action for i in pending}
    assert folds(table) == 0
    table.upsert(rows(3))
    now = table.client.load().timeline.pending
    assert [i for i in now if i.action is Action.LOG_COMPACTION] == [
        i for i in pending if i.action is Action.LOG_COMPACTION
    ], "one waits, and what came on top of it does not matter"
    time_source.tick()
    assert time_source.rounds == []
    assert not table.client.load().timeline.pending
    assert folds(table) == 1
    assert_same_multiset(table.read(), rows(3))


@pytest.mark.parametrize("error", [CommitConflict("a compaction overtook it"), InstantNotFound("withdrawn")])
def test_a_log_compaction_that_others_overtook_is_no_failure(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    time_source = ByHand()
    table = over(make(), time_source, FOLDING)
    for v in range(3):
        table.upsert(rows(v))

    def overtaken(*_: object, run: str) -> None:
        raise error

    monkeypatch.setattr("lakefmt._core.compaction.log_compact.run_log_compaction", overtaken)
    time_source.tick()
    assert table.services().take_failures() == ()
    assert_same_multiset(table.read(), rows(2))


@pytest.mark.parametrize("version", [6, 8])
def test_a_writer_keeps_the_files_it_reads(version: int) -> None:
    """Between its begin and its look at the files a compaction completes and a clean takes what that replaced."""
    store, time_source = make(version), ByHand()
    table = over(store, time_source)
    for v in range(3):
        table.upsert(rows(v))
    writer = over(store)
    begun = lowlevel.begin_write(writer, "upsert")
    seen = {o.name for o in store.list() if not o.name.startswith(".hoodie/")}
    time_source.tick()
    assert seen <= {o.name for o in store.list()}, "what it may read is there"
    assert table.services().take_failures() == ()
    assert Action.COMMIT in actions(table), "compacted"
    written = [lowlevel.write_files(begun, one, batches) for one, batches in lowlevel.assign(begun, rows(9))]
    lowlevel.commit(begun, written)
    assert_same_multiset(table.read(), rows(9))


# ----------------------------------------------------------------------------------------------------- what goes wrong


def failing(store: ObjectStore, mode: FaultMode = FaultMode.BEFORE) -> tuple[Table, ByHand, list[bool]]:
    """A table whose compactions fail at their base file while the switch is on."""
    switch, time_source = [False], ByHand()
    fault = lambda e: fail_at(e.number, mode, crash=False)(e) if switch[0] and e.name.endswith(".parquet") else None  # noqa: E731
    return over(FaultStore(store, fault), time_source), time_source, switch


def test_the_next_commit_tells_what_failed() -> None:
    store = make()
    table, time_source, switch = failing(store)
    for v in range(3):
        table.upsert(rows(v))
    switch[0] = True
    time_source.tick()
    switch[0] = False
    told = table.upsert(rows(3))
    assert len(told.warnings) == 1
    assert "compaction after the commit failed" in told.warnings[0]
    later = over(store, clock=Later())
    later.services().wake()
    later.services().close()
    assert_same_multiset(table.read(), rows(3))
    assert not table.client.load().timeline.pending, "it was taken up again"


def fails_in_the_block(services: BackgroundServices) -> None:
    with services:
        services.wake()
        _ = 1 // 0


def test_the_end_tells_what_no_commit_has_told(caplog: pytest.LogCaptureFixture) -> None:
    table, time_source, switch = failing(make())
    services = table.services()
    for v in range(3):
        table.upsert(rows(v))
    switch[0] = True
    with pytest.raises(ServicesFailed, match="compaction after the commit failed"):
        services.close()
    assert "compaction after the commit failed" in caplog.text
    assert_same_multiset(table.read(), rows(2))
    with pytest.raises(ZeroDivisionError) as raised:
        fails_in_the_block(services := table.services())
    assert "compaction after the commit failed" in raised.value.__notes__[0]
    assert not time_source.rounds
    with pytest.raises(StateError, match="closed"):
        services.wake()


@pytest.mark.parametrize("error", [RuntimeError("a defect"), KeyboardInterrupt("a signal")])
def test_a_defect_is_told_too(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def breaks(*_: object) -> tuple[str, ...]:
        raise error

    monkeypatch.setattr(scheduler, "run_waiting_services", breaks)
    time_source = ByHand()
    table = over(make(), time_source)
    table.upsert(rows(0))
    time_source.tick()
    (told,) = table.upsert(rows(1)).warnings
    assert f"{type(error).__name__}: {error}" in told


def test_settings_that_could_lose_rows_are_refused() -> None:
    table = Table(TableClient(make(), {"hoodie.clean.failed.writes.policy": "eager"}))
    with pytest.raises(InvalidInputError, match="eager"), table.services():
        table.upsert(rows(1))
    assert table.upsert(rows(1)).num_inserts == 2, "afterwards services run in the calls again"


def test_closing_waits_for_what_is_at_work() -> None:
    store = make()
    counted = FaultStore(store, no_faults)
    for v in range(3):
        over(counted).upsert(rows(v))
    frozen = FreezeStore(store, at=1)
    services = BackgroundServices(TableClient(frozen, OFTEN))
    services.wake()
    assert frozen.wait_until_frozen()
    closing = threading.Thread(target=services.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    frozen.release()
    closing.join(60)
    assert not closing.is_alive()
    assert not over(store).client.load().timeline.pending


# --------------------------------------------------------------------------------------------------------------- dying


Waiting = Callable[[int], tuple[MemoryStore, dict[str, object]]]


def a_compaction_and_a_clean(version: int) -> tuple[MemoryStore, dict[str, object]]:
    """A table of rows(3) where these wait."""
    store, time_source = make(version), ByHand()
    table = over(store, time_source)
    for v in range(4):
        table.upsert(rows(v))
        if v == 1:
            time_source.tick()
    pending = {i.action for i in over(store).client.load().timeline.pending}
    assert pending == {Action.COMPACTION, Action.CLEAN}
    return store, OFTEN


def a_log_compaction(version: int) -> tuple[MemoryStore, dict[str, object]]:
    store = make(version)
    options = {**FOLDING, "hoodie.clean.automatic": False}
    table = over(store, ByHand(), options)
    for v in range(4):
        table.upsert(rows(v))
    assert {i.action for i in over(store).client.load().timeline.pending} == {Action.LOG_COMPACTION}
    return store, options


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("mode", [FaultMode.BEFORE, FaultMode.AFTER])
@pytest.mark.parametrize(
    ("version", "waiting"), [(6, a_compaction_and_a_clean), (8, a_compaction_and_a_clean), (8, a_log_compaction)]
)
def test_dying_at_every_effect_of_the_thread(version: int, waiting: Waiting, mode: FaultMode) -> None:
    """Of the services alone; every effect of writes and of compactions has tests of its own."""
    prepared, options = waiting(version)
    objects = {item.name: prepared.read(item.name) for item in prepared.list()}
    counted = FaultStore(prepared, no_faults)
    services = BackgroundServices(TableClient(counted, options, time_source=ByHand()))
    services.wake()
    services.close()
    assert len(counted.effects) >= 7
    for n in in_turn(range(1, len(counted.effects) + 1), 2):
        # As it was, in the same place: plans have whole paths.
        store = prepared
        store.delete_tree("")
        for name, data in objects.items():
            store.put(name, data)
        time_source = ByHand()
        dying = BackgroundServices(TableClient(FaultStore(store, fail_at(n, mode)), options, time_source=time_source))
        dying.wake()
        time_source.tick()
        (told,) = dying.take_failures()
        assert SimulatedCrash.__name__ in told, f"effect {n}"
        assert_same_multiset(over(store).read(), rows(3), what=f"effect {n}")
        later = over(store, options=options, clock=Later())
        later.upsert(rows(9, "z"))
        later.services().close()
        assert_same_multiset(later.read(), pa.concat_tables([rows(3), rows(9, "z")]), what=f"effect {n}")
        assert not later.client.load().timeline.pending, f"effect {n}"


def test_a_process_that_ends_lets_no_service_begin_and_waits_for_the_one_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(scheduler, "_services_at_work", WeakSet())
    monkeypatch.setattr(scheduler, "run_waiting_services", lambda *given: begun.append(given) or ())
    time_source = ByHand()
    services = BackgroundServices(TableClient(make(), {}, time_source=time_source))
    assert scheduler.hold_all(0.0)  # nobody has woken them
    services.wake()
    services._busy.acquire()  # as whoever carries services out
    assert not scheduler.hold_all(0.0)
    services._busy.release()
    assert scheduler.hold_all(0.0)
    time_source.tick()
    assert not begun


PROGRAM = """
import os, sys
import pyarrow as pa
import lakefmt
table = lakefmt.open_table(sys.argv[1], options={"lakefmt.write.services.background": True,
    "hoodie.compact.inline.max.delta.commits": 1, "hoodie.clean.automatic": True, "hoodie.clean.commits.retained": 1})
for v in range(6):
    table.upsert(pa.table({"id": ["a", "b"], "v": [v, v]}))
    print(v, flush=True)
if sys.argv[2] == "killed":
    os._exit(0)
"""


@pytest.mark.parametrize("ending", ["ended", "killed"])
def test_a_process_may_end_without_closing(tmp_path: Path, ending: str) -> None:
    root = str(tmp_path / "t")
    lakefmt.create_table(root, schema=SCHEMA, record_key="id", table_type="mor")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, root, ending],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS_FOR_A_CHILD,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(v) for v in range(6)]
    table = lakefmt.open_table(root, options=OFTEN)
    assert_same_multiset(table.read(), rows(5))
    table.upsert(rows(7, "a"))
    table.services().close()
    assert_same_multiset(table.read(), pa.concat_tables([rows(7, "a"), rows(5, "b")]))
    assert not table.client.load().timeline.pending
