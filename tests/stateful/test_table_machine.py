"""Random verbs and services against a model: snapshot and increments after every step, time travel and the laws of files in
turn after every second one, all commits and hudi-rs at every tenth.

Clean, archive and (on merge-on-read tables) compaction change nothing that is promised: the rows of every commit that the
last clean has kept stay readable, older ones are refused with a typed error or still right.

Thirty runs of thirty steps and more, in `make test-all` a thousand, over table versions, stores, indexes and columns of
every type, drawn with the seed of the day; what ran is counted, and the last test of this file refuses a run in which a verb
was not tried often enough. The machines share that count, so one process runs them all.

A failing run is printed with its steps, but not shrunk where nobody waits: one step costs some 30 ms, a shrink takes
hundreds of runs, and CI would be stopped before it could print anything. `LAKEFMT_HYPOTHESIS=explore` shrinks.
"""

from __future__ import annotations

import collections
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import lakefmt
from benchmarks.storage.s3_server import options_of, s3_server
from lakefmt._core.storage import ObjectStore
from lakefmt.errors import CommitConflict, SnapshotExpired
from lakefmt.testing.invariants import View, check_invariants, check_no_orphans, check_partitions
from lakefmt.testing.model import ModelTable
from lakefmt.testing.operations import VERBS, TableShape, Verb, perform
from lakefmt.testing.strategies import shapes, verbs
from tests.example_counts import seed_of_run
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge

#: Some steps of a run find nothing to do: no partition to delete, nothing to undo.
STEPS = 34
PROFILE = os.environ.get("LAKEFMT_HYPOTHESIS", "")
MANY = PROFILE in ("thorough", "explore")
RUNS_WANTED, STEPS_WANTED, EACH_WANTED = (100, 3000, 50) if MANY else (30, 900, 5)
EXPLORES = PROFILE == "explore"
COUNTED: collections.Counter[str] = collections.Counter()
RAN: set[str] = set()
NUMBERS = itertools.count()

#: What is counted beside the verbs.
SERVICES = ("upgrade", "reopen", "clean", "archive", "compact", "expired")

OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
}
#: What another handle may be opened with at any time.
CHANGES: list[dict[str, object]] = [
    {},
    {"hoodie.parquet.small.file.limit": 0},
    {"hoodie.parquet.max.file.size": 10_000, "hoodie.parquet.small.file.limit": 8_000},
    {"hoodie.parquet.compression.codec": "snappy", "lakefmt.write.threads": 2},
    {"hoodie.logfile.data.block.max.size": 200, "hoodie.logfile.max.size": 500},
    {"hoodie.bloom.index.prune.by.ranges": False, "lakefmt.write.window.bytes": 65_536},
]


@dataclass(frozen=True)
class Machine:
    """One table version on one store, how many runs of how many steps it gets, and where its randomness begins.

    Seeds differ, so that no machine repeats what another did; to each the seed of the day is added.
    """

    version: int
    store: str
    runs: int
    steps: int = STEPS
    seed: int = 0
    table_type: str = "cow"

    def __str__(self) -> str:
        return f"{self.version}-{self.store}-{self.table_type}-{self.seed}"


# In parts: a test that takes over two minutes, on however busy a machine, has its stacks dumped while it runs.
MACHINES = [
    *(Machine(8, "memory", 10, seed=part) for part in (1, 2)),
    *(Machine(6, "memory", 10, seed=part) for part in (11, 12)),
    *(Machine(9, "memory", 10, seed=part) for part in (21, 22)),
    Machine(8, "local", 5, seed=31),
    Machine(6, "local", 5, seed=32),
    Machine(9, "local", 5, seed=33),
    # A step that asks a thousand requests of a server in this process takes a second.
    *(Machine(8, "memory", 6, seed=part, table_type="mor") for part in (51, 52)),
    *(Machine(9, "memory", 6, seed=part, table_type="mor") for part in (61, 62)),
    *(Machine(6, "memory", 6, seed=part, table_type="mor") for part in (71, 72)),
    Machine(8, "local", 4, seed=81, table_type="mor"),
    Machine(8, "s3", 1, 10, seed=41),
    *([Machine(6, "s3", 1, 10, seed=42)] if MANY else []),
]


class TableMachine(RuleBasedStateMachine):
    """A table and its model; `address` gives the URL and storage options of a fresh table."""

    version: ClassVar[int] = 8
    table_type: ClassVar[str] = "cow"
    address: ClassVar[Callable[[], tuple[str, dict[str, Any]]]]
    judge: ClassVar[HudiRsJudge]

    @initialize(shape=shapes())
    def create(self, shape: TableShape) -> None:
        self.shape = replace(shape, table_version=self.version, table_type=self.table_type)
        self.url, self.secrets = type(self).address()
        self.options: dict[str, object] = dict(OPTIONS)
        self.table = self.shape.create(self.url, self.options, storage_options=self.secrets)
        self.model: ModelTable = self.shape.model()
        # Hypothesis takes longer to make a strategy than to draw from one.
        asked = [name for name in VERBS if name not in self.left_out()]
        self.strategies = {name: verbs(self.shape, [name], max_rows=5) for name in asked}
        self.instants: list[tuple[str, str]] = []
        self.view: View | None = None
        self.pulled = self.steps = self.compared = 0
        self.kept_from = 0  # commits from this one on are readable, whatever was cleaned
        self.services = 0
        self.doubled = False  # whether a key is, or was, stored twice
        self.null_event_times = False  # whether a row without event time was written
        COUNTED["runs"] += 1

    def left_out(self) -> set[str]:
        """Verbs that this table has no use for, or of which the model does not know enough."""
        # A delete in a log keeps an event time, against which late rows lose until a compaction forgets it. A late whole row
        # gives the columns that a newer partial row in a log lacks, and the model knows whole rows.
        unknown = {"delete", "delete_where", "partial_upsert"} if self.is_mor and self.shape.ordering else set()
        return unknown if self.shape.partition_by else {*unknown, "delete_partitions"}

    @property
    def is_mor(self) -> bool:
        return self.shape.table_type == "mor"

    def teardown(self) -> None:
        if not hasattr(self, "url"):
            return
        if self.steps == self.compared:  # no step has failed
            self.end()
            if not self.is_mor:
                self.keep_laws()
        check_no_orphans(self.table)
        if not self.url.startswith(("memory:", "s3:")):
            shutil.rmtree(self.url, ignore_errors=True)

    def end(self) -> None:
        """Every run ends with what is drawn too rarely: a dropped partition, and the way to the newest version."""
        if self.shape.partition_by and self.model.places():
            self.act(Verb("delete_partitions", places=(sorted(self.model.places(), key=str)[0],)))
        if self.may_upgrade():
            self.upgrade_to(9)
        for log in (False, True):
            if self.table.client.load().timeline.pending:
                self.compact(schedule=False, log=log)

    def may_upgrade(self) -> bool:
        return self.table.properties.version.value < 9

    # --- verbs

    def act(self, drawn: Verb) -> None:
        verb = drawn.fitted(self.model)
        if verb is None:
            return
        if verb.name in self.left_out() or (verb.name == "rollback" and not self.may_roll_back()):
            return
        self.compared = -1
        written = (*verb.rows, verb.values, dict.fromkeys(verb.columns))
        self.null_event_times |= any(row.get(self.shape.ordering, 0) is None for row in written)
        result = perform(verb, self.shape, self.table, self.model)
        if verb.name == "rollback":
            self.instants.pop()
            self.pulled = min(self.pulled, len(self.instants))
        elif result.instant is not None:
            self.instants.append((result.instant, result.completion_time or result.instant))
        assert len(self.instants) == self.model.commits
        COUNTED[verb.name] += result.instant is not None
        self.compare(verb.name)

    @precondition(lambda self: self.steps >= 4 and self.may_upgrade())
    @rule(far=st.booleans())
    def upgrade(self, far: bool) -> None:
        """The table becomes one of a newer version; then increments go by completion times."""
        self.upgrade_to(8 if self.table.properties.version.value == 6 and not far else 9)

    def upgrade_to(self, to: int) -> None:
        self.table.upgrade(to)
        assert self.table.properties.version.value == to
        client = self.table.client
        commits = client.at(client.load()).with_history().timeline.commits  # long runs have archived some
        mine = {time for time, _ in self.instants}
        assert mine <= {i.time for i in commits}, "an upgrade keeps every instant"
        self.instants = [(i.time, i.order_time) for i in commits if i.time in mine]
        COUNTED["upgrade"] += 1
        self.compare("upgrade")

    @rule(change=st.sampled_from(CHANGES), index=st.sampled_from(["bloom", "simple"]))
    def reopen(self, change: Mapping[str, object], index: str) -> None:
        """Another handle goes on, with other settings; the index may be called by its other kind."""
        kind = f"global_{index}" if self.shape.is_global else index
        self.options = {**OPTIONS, **self.shape.options(), "hoodie.index.type": kind.upper(), **change}
        self.table = lakefmt.open_table(self.url, options=self.options, storage_options=self.secrets)
        self.steps, self.compared = self.steps + 1, self.compared + 1
        COUNTED["steps"] += 1
        COUNTED["reopen"] += 1

    # --- services

    @precondition(lambda self: self.instants)
    @rule(retained=st.integers(1, 6))
    def clean(self, retained: int) -> None:
        """Files that only commits before the last few need go."""
        self.compared = -1
        self.table.clean(options={"hoodie.clean.commits.retained": retained})
        self.served("clean")

    @precondition(lambda self: self.instants and self.table.properties.version.value > 6)
    @rule(least=st.integers(1, 8))
    def archive(self, least: int) -> None:
        """Old instants move into the history, and are found there."""
        self.compared = -1
        self.table.archive(options={"hoodie.keep.min.commits": least, "hoodie.keep.max.commits": least + 1})
        self.served("archive")

    @precondition(lambda self: self.is_mor and self.instants)
    @rule(schedule=st.booleans(), log=st.booleans())
    def compact(self, schedule: bool, log: bool = False) -> None:
        """Logs become base files, or one log, at once or at the next turn."""
        self.compared = -1
        options = {"hoodie.log.compaction.blocks.threshold": 2}
        with suppress(CommitConflict):  # version 6: a log came on top of the plan, which is withdrawn
            self.table.compact(schedule=schedule, log=log, options=options)
        self.served("compact")

    def served(self, name: str) -> None:
        COUNTED[name] += 1
        self.services += 1
        client = self.table.client
        state = client.load()
        oldest = client.at(state).retained_from() or ""
        self.kept_from = next(
            (at for at, (time, _) in enumerate(self.instants, 1) if time >= oldest), len(self.instants)
        )
        self.compare(name)

    def may_roll_back(self) -> bool:
        """Whether the newest commit can be undone: a service has not built on it, nor taken what was before it."""
        state = self.table.client.load()
        newest = state.timeline.latest_commit
        if newest is None or not self.instants or newest.time != self.instants[-1][0]:
            return False
        if any(waiting.time > newest.time for waiting in state.timeline.pending):
            return False
        return self.services == 0 or (len(self.instants) - 1 > self.kept_from and newest != state.timeline.commits[0])

    # --- comparing

    def compare(self, what: str) -> None:
        self.steps += 1
        COUNTED["steps"] += 1
        # Images that a log has deleted or changed stay in the base file, which hudi-rs merges otherwise.
        self.doubled = self.doubled or self.model.has_duplicates
        self.same(self.table.read(), self.model.rows(), f"after {what}")
        # Laws of the files hold for all that is stored, whichever step stored it: every second step shows which one broke one.
        if self.steps % (2 if not self.url.startswith("s3:") else 4) == 0 and not self.is_mor:
            self.keep_laws()
        if self.steps % 2:
            self.look_back([self.steps * 7 % (len(self.instants) + 1)])
        self.pull(self.steps * 5 % (len(self.instants) + 1))
        if self.steps % 10 == 0:
            self.look_back(range(1, len(self.instants) + 1))
            self.ask_hudi_rs()
        self.compared = self.steps

    def keep_laws(self) -> None:
        view = self.view = View.of(self.table, self.view)
        check_invariants(view, keys_unique=self.shape.is_global, global_keys=self.shape.is_global)
        if self.shape.moves:
            check_partitions(view)

    def look_back(self, commits: Any) -> None:
        for number in commits:
            if number:
                found = self.unless_cleaned(number, partial(self.table.read, as_of=self.instants[number - 1][0]))
                if found is not None:
                    self.same(found, self.model.as_of(number), "time travel")

    def unless_cleaned(self, number: int, read: Callable[[], pa.Table]) -> pa.Table | None:
        """Read what commit `number` left; None when a clean took it and the table says so."""
        try:
            return read()
        except SnapshotExpired:
            assert number < self.kept_from, f"commit {number} must be readable, files are kept from {self.kept_from} on"
            COUNTED["expired"] += 1
            return None

    def pull(self, start: int) -> None:
        """A puller goes on where the last one ended; every other time also an increment from anywhere to anywhere."""
        if self.steps % 2:
            end = start + (len(self.instants) - start) // 2
            pull = partial(self.table.incremental, self.moment(start), self.moment(end) if end else "000")
            some = self.unless_cleaned(end, pull)
            if some is not None:
                self.same(some, self.model.incremental(start, end), f"increment {start}..{end}")
        found = self.table.incremental(self.moment(self.pulled))
        self.same(found, self.model.incremental(self.pulled), f"pull from {self.pulled}")
        self.pulled = self.model.next_start(self.pulled)
        told = found.schema.metadata[b"lakefmt.next_start"].decode()
        # Compactions are commits that bring nothing: a puller may go past them.
        compacted = [i.order_time for i in self.table.client.load().timeline.commits] if self.is_mor else []
        assert told == max([self.moment(self.pulled), *compacted]), "where the next pull begins"

    def moment(self, commit: int) -> str:
        return self.instants[commit - 1][1] if commit else "000"

    def ask_hudi_rs(self) -> None:
        if self.is_mor and (self.doubled or self.null_event_times):
            # Of a key that plain inserts have stored twice it merges a log's row with one image only; a later null event time
            # wins there (docs/limits.md).
            return
        if self.shape.table_version == 6 and self.table.client.load().timeline.pending:
            return  # it passes over the logs behind a pending compaction (docs/limits.md)
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "t"
            copy_out(self.table.client.store, root)
            self.same(self.judge.snapshot(root), self.model.rows(), "hudi-rs")
        COUNTED["hudi-rs"] += 1

    def same(self, found: pa.Table, rows: list[Any], what: str) -> None:
        expected = self.shape.as_table(rows)
        # A few rows are soon compared as texts; where these differ the judge decides, and tells what differs.
        if found.schema.types != expected.schema.types or texts(found) != texts(expected):
            assert_same_multiset(found, expected, what=what)


def rule_of(name: str) -> Any:
    """Return the rule that draws a verb of that name and does it."""

    def act(self: TableMachine, data: st.DataObject) -> None:
        self.act(data.draw(self.strategies[name], label=name))

    act.__name__ = name
    wanted = rule(data=st.data())(act)
    rare = name in ("delete", "delete_where", "delete_partitions", "partial_upsert")
    return precondition(lambda self: name in self.strategies)(wanted) if rare else wanted


for each in VERBS:
    setattr(TableMachine, each, rule_of(each))


def texts(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def copy_out(store: ObjectStore, root: Path) -> None:
    """Copy a table to the disk, where judges can read it."""
    for found in store.list():
        path = root / found.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.read(found.name))


def how_often(runs: int, steps: int) -> settings:
    """Return the settings of a machine: those of the profile, with what a machine needs."""
    factor = {"thorough": 10, "explore": 30}.get(PROFILE, 0.3)
    patient = (Phase.shrink,) if EXPLORES else ()
    return settings(
        max_examples=max(1, round(runs * factor)),
        stateful_step_count=steps,
        deadline=None,
        derandomize=False,  # the seed does that; derandomized, all machines would do the same
        database=None,
        print_blob=True,
        phases=(Phase.generate, *patient),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


def run(machine: Machine, address: Callable[[], tuple[str, dict[str, Any]]], judge: HudiRsJudge) -> None:
    names = {
        "version": machine.version,
        "table_type": machine.table_type,
        "address": staticmethod(address),
        "judge": judge,
    }
    made = type(f"Machine{machine.version}{machine.store}", (TableMachine,), names)
    if not EXPLORES:
        made = seed(1000 * seed_of_run() + machine.seed)(made)
    run_state_machine_as_test(made, settings=how_often(machine.runs, machine.steps))


@pytest.fixture
def address(request: pytest.FixtureRequest) -> Iterator[Callable[[], tuple[str, dict[str, Any]]]]:
    """Where fresh tables of a kind of store go."""
    kind = request.param
    if kind == "s3":
        yield from _on_s3()
        return
    folder = tempfile.mkdtemp()
    if kind == "memory":
        yield lambda: (f"memory://machine-{next(NUMBERS)}", {})
    else:
        yield lambda: (f"{folder}/{next(NUMBERS)}/t", {})
    shutil.rmtree(folder, ignore_errors=True)


def _on_s3() -> Iterator[Callable[[], tuple[str, dict[str, Any]]]]:
    s3fs = pytest.importorskip("s3fs")
    with s3_server() as server:
        options = options_of(server)
        s3fs.S3FileSystem(**options, skip_instance_cache=True).call_s3("create_bucket", Bucket="machines")
        yield lambda: (f"s3://machines/{next(NUMBERS)}/t", options)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("machines")
@pytest.mark.parametrize(
    ("machine", "address"),
    [pytest.param(m, m.store, id=str(m), marks=[pytest.mark.s3] if m.store == "s3" else []) for m in MACHINES],
    indirect=["address"],
)
def test_random_verbs_equal_the_model(machine: Machine, address: Any, hudi_rs_judge: HudiRsJudge) -> None:
    run(machine, address, hudi_rs_judge)
    RAN.add(str(machine))


@pytest.mark.slow
@pytest.mark.xdist_group("machines")
def test_every_verb_ran_often_enough() -> None:
    missing = [str(m) for m in MACHINES if str(m) not in RAN]
    assert not missing, (
        f"this test counts what the whole file did; these machines did not end well here: {missing}; {dict(COUNTED)}"
    )
    assert COUNTED["runs"] >= RUNS_WANTED, f"{COUNTED['runs']} runs, {RUNS_WANTED} are wanted"
    assert COUNTED["steps"] >= STEPS_WANTED, f"{COUNTED['steps']} steps, {STEPS_WANTED} are wanted"
    assert COUNTED["hudi-rs"] >= STEPS_WANTED // 10 - RUNS_WANTED, f"hudi-rs read {COUNTED['hudi-rs']} states"
    rare = {name: COUNTED[name] for name in (*VERBS, *SERVICES) if COUNTED[name] < EACH_WANTED}
    # Hypothesis leaves some rules out of each run on purpose: of a few runs now and then a verb is missing.
    assert len(rare) <= (0 if MANY else len(VERBS) // 4), (
        f"each verb has to run {EACH_WANTED} times; too rare: {rare} of {dict(COUNTED)}"
    )


@pytest.mark.parametrize("address", ["memory"], indirect=True)
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_few_random_verbs_equal_the_model(
    version: int, table_type: str, address: Any, hudi_rs_judge: HudiRsJudge
) -> None:
    """What the oldest dependencies are asked, too."""
    run(Machine(version, "memory", runs=3, steps=12, table_type=table_type), address, hudi_rs_judge)
