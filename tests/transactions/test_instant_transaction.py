"""Every action completes through :class:`InstantTransaction`: its observers, its order of steps, its only caller."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import lakefmt
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import ObjectStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.commit import decode_commit
from lakefmt._core.timeline.heartbeat import heartbeat_name
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.observer import CommitObserver, PendingCompletion
from lakefmt._core.transactions.client import open_write_client
from lakefmt._core.transactions.instant import InstantTransaction
from lakefmt._core.values import InstantTime, TableType
from lakefmt.errors import InstantNotPending, LakefmtError, LeaseLost
from lakefmt.testing.invariants import check_invariants
from lakefmt.testing.stores import Effect, Fault, FaultMode, FaultStore, SimulatedCrash
from tests.kit import product_or_diagonal, rows
from tests.undo.scenarios import OPTIONS, copy, make, over, same

CLEAN: dict[str, object] = {"hoodie.clean.commits.retained": 1}
FOLD: dict[str, object] = {"hoodie.log.compaction.blocks.threshold": 2}


@dataclass(frozen=True)
class Case:
    """An operation that completes an instant of one action.

    `undoes`: it changes files before it completes, and the next writer finishes it; everything else is undone.
    """

    action: Action
    call: Callable[[Table], object]
    table_type: str = "cow"
    undoes: bool = False
    is_service: bool = False


CASES = {
    "commit": Case(Action.COMMIT, lambda t: t.upsert(rows(3, 9, ts=5))),
    "deltacommit": Case(Action.DELTA_COMMIT, lambda t: t.upsert(rows(3, 9, ts=5)), "mor"),
    "replacecommit": Case(Action.REPLACE_COMMIT, lambda t: t.insert_overwrite(rows(0, 2, ts=5))),
    "compaction": Case(Action.COMPACTION, lambda t: t.compact(), "mor", is_service=True),
    "log compaction": Case(Action.LOG_COMPACTION, lambda t: t.compact(log=True, options=FOLD), "mor", is_service=True),
    "clean": Case(Action.CLEAN, lambda t: t.clean(options=CLEAN), is_service=True),
    "rollback": Case(Action.ROLLBACK, lambda t: t.rollback(t.timeline.entries[-1].time), undoes=True),
    "restore": Case(Action.RESTORE, lambda t: t.restore(t.timeline.entries[0].time), undoes=True),
    "savepoint": Case(Action.SAVEPOINT, lambda t: t.savepoint(comment="why"), is_service=True),
}
VERSIONS = (6, 9)


class Refused(LakefmtError):
    """An observer refuses."""


@dataclass
class Recorder:
    """Records every call, with its name; `then` acts in the middle of completions of one action."""

    calls: list[tuple[str, object]] = field(default_factory=list)
    name: str = "recorder"
    action: Action | None = None
    then: Callable[[PendingCompletion], object] = lambda pending: None
    refuses_rollbacks: bool = False

    def before_completion(self, pending: PendingCompletion) -> None:
        self.calls.append((self.name, pending))
        if self.action in (None, pending.action):
            self.then(pending)

    def before_rollback(self, config: TableConfig, targets: Sequence[Instant]) -> None:
        self.calls.append((f"{self.name} before rollback", tuple(targets)))
        if self.refuses_rollbacks:
            raise Refused("no rollback")


def refuse(pending: PendingCompletion) -> None:
    raise Refused(f"no {pending.action.value}")


MADE: dict[tuple[int, str], ObjectStore] = {}


def fresh(version: int, table_type: str) -> ObjectStore:
    """Return a table of its own with four commits; a merge-on-read table has two logs in every file group."""
    if (version, table_type) not in MADE:
        table = make(version, table_type)
        table.upsert(rows(0, 4, ts=1))
        table.upsert(rows(2, 6, ts=2))
        table.upsert(rows(2, 6, ts=3))
        table.upsert(rows(2, 6, ts=4))
        MADE[version, table_type] = table.client.store
    return copy(MADE[version, table_type])


def observed(store: ObjectStore, *observers: CommitObserver) -> Table:
    return Table(TableClient(store, OPTIONS, observers=observers))


def content(store: ObjectStore) -> dict[str, bytes]:
    return {item.name: store.read(item.name) for item in store.list()}


def data_files(store: ObjectStore) -> set[str]:
    names = [item.name for item in store.list()]
    return {name for name in names if not name.startswith(".hoodie/") and ".hoodie_partition_metadata" not in name}


def check_next_writer(case: Case, store: ObjectStore) -> None:
    """The next writer recovers and goes on; nothing of the failed instant is left."""
    healthy = over(store)
    healthy.upsert(rows(0, 30, ts=9))
    assert same(healthy.read(), rows(0, 30, ts=9))
    if case.is_service:
        case.call(healthy)
    assert same(healthy.read(), rows(0, 30, ts=9))
    check_nothing_left(healthy)


def check_nothing_left(table: Table) -> None:
    """No instant is pending, and every data file is named by a completed commit."""
    client = table.client
    state = client.load()
    assert not state.timeline.pending
    commits = [client.at(state).commit_metadata(instant) for instant in state.timeline.commits]
    named = {stat.path for commit in commits for stat in commit.stats}
    assert data_files(client.store) <= named
    if state.config.table_type is TableType.COPY_ON_WRITE:
        check_invariants(table)


# ------------------------------------------------------------------------------------------- what an observer is given


@product_or_diagonal(name=CASES, version=VERSIONS)
def test_every_observer_sees_the_completion_before_it_is_visible(name: str, version: int) -> None:
    case = CASES[name]
    store = fresh(version, case.table_type)
    visible: list[bool] = []
    handed_out: list[InstantTime] = []

    def look(pending: PendingCompletion) -> None:
        state = over(store).client.load()
        visible.append(any(i.time == pending.time and i.action is pending.action for i in state.timeline.completed))
        handed_out.append(pending.next_time())

    calls: list[tuple[str, object]] = []
    case.call(observed(store, Recorder(calls, "first", then=look), Recorder(calls, "second")))
    completions = [(who, p) for who, p in calls if isinstance(p, PendingCompletion) and p.action is case.action]
    assert [who for who, _ in completions] == ["first", "second"]
    assert visible == [False]
    pending = completions[0][1]
    assert (pending.time, pending.action, State.INFLIGHT) in {(i.time, i.action, i.state) for i in pending.timeline}
    client = over(store).client
    state = client.load()
    done = next(i for i in state.timeline.completed if i.time == pending.time and is_result(i.action, case.action))
    assert client.at(state).read_body(done) == pending.body
    if case.action in (Action.CLEAN, Action.ROLLBACK, Action.RESTORE, Action.SAVEPOINT):
        assert pending.commit is None
    else:
        assert pending.commit is not None
        said = decode_commit(pending.body, done.file_name)
        assert {stat.path for stat in pending.commit.stats} == {stat.path for stat in said.stats}
    if version > 6:
        assert done.completion is not None
        assert pending.time < handed_out[0] < done.completion


def is_result(completed: Action, action: Action) -> bool:
    results = {Action.COMPACTION: Action.COMMIT, Action.LOG_COMPACTION: Action.DELTA_COMMIT}
    return completed in (action, results.get(action))


@pytest.mark.parametrize("name", ["rollback", "restore"])
def test_observers_are_asked_before_a_rollback(name: str) -> None:
    case = CASES[name]
    store = fresh(8, "cow")
    recorder = Recorder()
    before = over(store).client.load().timeline
    case.call(observed(store, recorder))
    who, targets = recorder.calls[0]
    assert who == "recorder before rollback"
    expected = before.commits[-1:] if name == "rollback" else before.commits[:0:-1]
    assert isinstance(targets, tuple)
    assert [target.time for target in targets] == [instant.time for instant in expected]


# ------------------------------------------------------------------------------------------------------------- refusal


@product_or_diagonal(name=CASES, version=VERSIONS)
def test_a_refused_completion_leaves_the_state_before(name: str, version: int) -> None:
    case = CASES[name]
    store = fresh(version, case.table_type)
    before, files, timeline = over(store).read(), data_files(store), over(store).client.load().timeline
    with pytest.raises(Refused):
        case.call(observed(store, Recorder(action=case.action, then=refuse)))
    after = over(store)
    completed = after.client.load().timeline.completed
    assert not {i.action for i in completed if i not in timeline.completed} - {Action.ROLLBACK}
    if case.undoes:
        assert data_files(store) < files  # nothing brings deleted files back: the next writer finishes it
    else:
        assert same(after.read(), before)
        assert data_files(store) <= files if case.action is Action.CLEAN else data_files(store) == files
    check_next_writer(case, store)


@pytest.mark.parametrize("name", ["rollback", "restore"])
def test_a_refused_rollback_changes_nothing(name: str) -> None:
    store = fresh(8, "cow")
    before = content(store)
    with pytest.raises(Refused):
        CASES[name].call(observed(store, Recorder(refuses_rollbacks=True)))
    assert content(store) == before


def test_a_refused_rollback_of_a_dead_write_changes_nothing() -> None:
    """Recovery asks, too: the write that would roll the dead one back does not begin."""
    store = fresh(8, "cow")
    with pytest.raises(SimulatedCrash):
        CASES["commit"].call(die_after_observer(store, Action.COMMIT))
    before = content(store)
    with pytest.raises(Refused):
        observed(store, Recorder(refuses_rollbacks=True)).upsert(rows(0, 2, ts=7))
    assert content(store) == before
    check_next_writer(CASES["commit"], store)


# --------------------------------------------------------------------------------------------------------------- death


def die_after_observer(store: ObjectStore, action: Action) -> Table:
    """Return a table whose process dies before the first effect that follows the observer of an action."""
    dying: list[bool] = []

    def plan(effect: Effect) -> Fault | None:
        return Fault(FaultMode.BEFORE, crash=True) if dying else None

    return observed(FaultStore(store, plan), Recorder(action=action, then=lambda pending: dying.append(True)))


@product_or_diagonal(name=CASES, version=VERSIONS)
def test_a_process_that_dies_after_its_observer_is_recovered_from(name: str, version: int) -> None:
    case = CASES[name]
    store = fresh(version, case.table_type)
    before = over(store).read()
    with pytest.raises(SimulatedCrash):
        case.call(die_after_observer(store, case.action))
    assert any(i.action is case.action for i in over(store).client.load().timeline.pending)
    assert case.undoes or same(over(store).read(), before)
    check_next_writer(case, store)


# --------------------------------------------------------------------------------------------------------- the one life


@dataclass
class StubLease:
    """Records when it is checked; `lost`: the check fails."""

    calls: list[tuple[str, object]]
    lost: bool = False

    def check(self) -> None:
        self.calls.append(("lease", None))
        if self.lost:
            raise LeaseLost("lost")


def test_the_lease_is_proved_after_the_last_observer() -> None:
    store = fresh(8, "cow")
    calls: list[tuple[str, object]] = []
    client = observed(store, Recorder(calls, "first"), Recorder(calls, "second")).client
    write_client, state = open_write_client(client), client.load()
    with write_client.lock.hold() as lease:
        transaction = InstantTransaction.claim(write_client.at(state), Action.COMMIT, lease)
        timeline = write_client.timeline(state.config).load()
        with pytest.raises(LeaseLost):
            transaction.complete(StubLease(calls, lost=True), state.config, timeline, b"{}")
    assert [who for who, _ in calls] == ["first", "second", "lease"]
    assert transaction.time not in {i.time for i in client.load().timeline.completed}
    transaction.abandon()
    check_next_writer(CASES["commit"], store)


def test_an_instant_that_is_not_inflight_does_not_complete() -> None:
    store = fresh(8, "cow")
    recorder = Recorder()
    client = observed(store, recorder).client
    write_client, state = open_write_client(client), client.load()
    with write_client.lock.hold() as lease:
        transaction = InstantTransaction.claim(write_client.at(state), Action.COMMIT, lease, start=False)
        timeline = write_client.timeline(state.config).load()
        with pytest.raises(InstantNotPending):
            transaction.complete(lease, state.config, timeline, b"{}")
    assert not recorder.calls
    transaction.abandon()


def test_a_block_that_raises_abandons_its_instant() -> None:
    store = fresh(8, "cow")
    client = over(store).client
    write_client, state = open_write_client(client), client.load()
    with (
        pytest.raises(ZeroDivisionError),
        write_client.lock.hold() as lease,
        InstantTransaction.claim(write_client.at(state), Action.COMMIT, lease) as transaction,
    ):
        raise ZeroDivisionError
    assert store.info(heartbeat_name(transaction.time)) is not None  # as a dead process leaves it
    check_next_writer(CASES["commit"], store)


# -------------------------------------------------------------------------------------------------- the only caller


#: Names of variables and attributes that hold an :class:`InstantTransaction`, and objects whose method of that name completes columns.
TRANSACTIONS = frozenset({"transaction", "restore", "rollback", "write.instant"})
COLUMNS = frozenset({"unstored", "self._virtual_columns", "virtual", "made"})


def callers_of_complete(sources: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the module and the receiver of every call of a method ``complete`` that may be the timeline store's."""
    for module, source in sources.items():
        if ".complete" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Attribute) and node.attr == "complete":
                receiver = ast.unparse(node.value)
                if receiver not in TRANSACTIONS | COLUMNS:
                    yield module, receiver


def test_one_place_completes_instants() -> None:
    root = Path(lakefmt.__file__).parent / "_core"
    sources = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.py")}
    assert list(callers_of_complete(sources)) == [("transactions/instant.py", "self.write_client.timeline(config)")]


def test_a_second_place_would_be_seen() -> None:
    sabotage = {"compaction/other.py": "def run(timeline_store):\n    timeline_store.complete(1, 2, 3, 4)\n"}
    assert list(callers_of_complete(sabotage)) == [("compaction/other.py", "timeline_store")]
