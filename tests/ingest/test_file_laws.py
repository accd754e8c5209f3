"""Every row of every file is in the table once, whatever comes when, and wherever the process dies.

A history is drawn: files of equal times, late ones, replaced ones, half-written ones, rounds that end well and rounds that die at an
effect of the table's store. The model is the set of rows that ought to be there.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
import lakefmt._core.ingest.sink as sinks
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.table import Table, create_table, open_table
from lakefmt.errors import LakefmtError
from lakefmt.storage import MemoryStore
from lakefmt.testing.stores import Fault, FaultMode, FaultStore, SimulatedCrash
from tests.example_counts import examples
from tests.ingest.ingest_kit import FAST, NOW, Clock, ingest, job, touch, write_rows

NUMBERS = itertools.count()
NAMES = st.sampled_from(["a", "b", "x/c", "x/d", "y=1/e"])
#: Seconds before now: few of them, so that times are equal.
AGES = st.sampled_from([2.0, 2.001, 3.0, 5.0, 8.0, 60.0])
PUT = st.tuples(st.just("put"), NAMES, AGES, st.integers(1, 3))
HALF = st.tuples(st.just("half"), NAMES, st.integers(1, 3))
#: A round: well, or the process dies at an effect of the store, which is done, or not.
ROUND = st.one_of(
    st.just(("round", 0, FaultMode.BEFORE)),
    st.tuples(
        st.just("round"), st.integers(1, 40), st.sampled_from([FaultMode.BEFORE, FaultMode.AFTER, FaultMode.TORN])
    ),
)
OTHER = st.just(("other writer",))
STORY = st.lists(st.one_of(PUT, PUT, HALF, ROUND, ROUND, OTHER), min_size=2, max_size=14)


class WritersGoOn(Clock):
    """A clock: while a job waits, those who write files go on."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._world.finish_halves()


class World:
    """A folder of files, the rows that were ever in it, and a table."""

    def __init__(self, base: Path, limit: int | None, keyed: bool) -> None:
        self.folder, self.table = base / "in", f"memory://ingest-law-{next(NUMBERS)}"
        self.folder.mkdir()
        self.clock = WritersGoOn(self)
        self.limit, self.keyed = limit, keyed
        self.ids = itertools.count()
        #: The rows of each file as it is now, and of files that were replaced.
        self.now: dict[str, list[int]] = {}
        self.replaced: list[int] = []
        self.others = 0

    def put(self, name: str, age: float, count: int) -> None:
        rows = [next(self.ids) for _ in range(count)]
        self.replaced += self.now.get(name, [])
        self.now[name] = rows
        data = [{"id": f"{n}", "pad": "x" * n} for n in rows]
        write_rows(self.folder / f"{name}.jsonl", data, self.clock.seconds - age)

    def half(self, name: str, count: int) -> None:
        """Begin a file whose writer goes on after the next listing."""
        self.put(name, 0.0, count)
        path = self.folder / f"{name}.jsonl"
        path.write_text(path.read_text()[:-5])
        touch(path, self.clock.seconds)

    def finish_halves(self) -> None:
        """End the files that are half-written; their time is the one of now."""
        for name, rows in self.now.items():
            path = self.folder / f"{name}.jsonl"
            if not path.read_text().endswith("}\n"):
                write_rows(path, [{"id": f"{n}", "pad": "x" * n} for n in rows], self.clock.seconds)

    def settings(self) -> dict[str, Any]:
        key: dict[str, Any] = {"key": "id"} if self.keyed else {"key": (), "operation": "insert"}
        misses = {"hoodie.client.heartbeat.tolerable.misses": 0}
        return {**key, "source_limit": self.limit, "settings": misses, "min_age": 1.0, "late_window": 3600.0}

    def round(self, number: int, mode: FaultMode, how: str = "once") -> None:
        """Do a round; with a number the process dies at that effect."""
        left = [number]

        def plan(_effect: object) -> Fault | None:
            left[0] -= 1
            return Fault(mode, crash=True) if left[0] == 0 else None

        def over(table: Table) -> Table:
            return Table(TableClient(FaultStore(table.client.store, plan), table.client.options))

        with pytest.MonkeyPatch.context() as patch, suppress(SimulatedCrash):
            if number:
                patch.setattr(sinks, "open_table", lambda *a, **k: over(open_table(*a, **k)))
                patch.setattr(sinks, "create_table", lambda *a, **k: over(create_table(*a, **k)))
            try:
                job(self.folder, self.table, self.clock, **self.settings()).run(how)
            except LakefmtError:
                if not number:
                    raise

    def other(self) -> None:
        """Another writer commits."""
        with suppress(LakefmtError):
            open_table(self.table).upsert([{"id": "other", "pad": str(self.others)}], options=FAST)
            self.others += 1

    def check(self) -> None:
        self.finish_halves()
        self.clock.seconds += 10
        self.round(0, FaultMode.BEFORE, "until_idle")
        if not self.now:
            return
        found = Counter(open_table(self.table).read(columns=["id"])["id"].to_pylist())
        found.pop("other", None)
        expected = {f"{n}" for rows in self.now.values() for n in rows}
        assert expected <= set(found), f"lost: {sorted(expected - set(found))}"
        assert set(found) <= expected | {f"{n}" for n in self.replaced}, "from nowhere"
        assert max(found.values(), default=1) == 1, f"repeated: {found}"
        again = job(self.folder, self.table, self.clock, **self.settings()).run("once")
        assert again.tables[0].commits == 0


@settings(max_examples=examples(40), deadline=None)
@given(STORY, st.sampled_from([None, 1, 60]), st.booleans())
def test_each_row_is_there_once(tmp_path_factory, story, limit, keyed):
    world = World(tmp_path_factory.mktemp("law"), limit, keyed)
    for step in story:
        match step:
            case ("put", name, age, count):
                world.put(name, age, count)
            case ("half", name, count):
                world.half(name, count)
            case ("round", number, mode):
                world.round(number, mode)
                world.finish_halves()
            case _:
                world.other()
        world.clock.seconds += 0.25
    world.check()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [FaultMode.BEFORE, FaultMode.AFTER, FaultMode.TORN])
@pytest.mark.parametrize("keyed", [True, False])
def test_a_process_that_dies_at_any_effect_of_a_round_loses_and_repeats_nothing(tmp_path, mode, keyed):
    number = effects = 0
    while number <= effects:
        base = tmp_path / str(number)
        base.mkdir()
        world = World(base, None, keyed)
        world.put("a", 5.0, 2)
        world.round(0, mode)
        world.put("b", 5.0, 2)
        if number:
            world.round(number, mode)
        else:
            effects = _effects(world)
        world.check()
        MemoryStore(world.table.removeprefix("memory://")).delete_tree("")
        number += 1
    assert effects > 3


def _effects(world: World) -> int:
    """Return how many effects a round has."""
    count = [0]

    def plan(_effect: object) -> None:
        count[0] += 1

    def over(table: Table) -> Table:
        return Table(TableClient(FaultStore(table.client.store, plan), table.client.options))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sinks, "open_table", lambda *a, **k: over(open_table(*a, **k)))
        job(world.folder, world.table, world.clock, **world.settings()).run("once")
    return count[0]


def test_the_law_sees_a_job_that_forgets_files_of_one_time(tmp_path, monkeypatch):
    """Sabotage: without the digests, as Hudi's own tool has it."""
    import lakefmt._core.ingest.files as module

    (tmp_path / "w").mkdir()
    world = World(tmp_path / "w", None, True)
    monkeypatch.setattr(
        module.FilesTaken,
        "are_known",
        lambda self, files: module.np.array([f.modified <= self.modified for f in files], bool),
    )
    world.put("a", 5.0, 1)
    world.round(0, FaultMode.BEFORE)
    world.put("b", 5.0, 1)
    with pytest.raises(AssertionError, match="lost"):
        world.check()


def test_the_law_sees_a_job_that_keeps_no_checkpoint(tmp_path, monkeypatch):
    (tmp_path / "w").mkdir()
    world = World(tmp_path / "w", None, False)
    monkeypatch.setattr(sinks, "CheckpointCommit", lambda *_: lambda _view: {})
    world.put("a", 5.0, 1)
    world.round(0, FaultMode.BEFORE)
    world.round(0, FaultMode.BEFORE)
    monkeypatch.undo()
    with pytest.raises(AssertionError, match="repeated"):
        world.check()


# --------------------------------------------------------------------------------------------------------- real processes

CHILD = """
import sys
from lakefmt.ingest import run
run({"source": sys.argv[1], "table": sys.argv[2], "operation": "insert", "min_age": 0, "source_limit": 1,
     "settings": {"lakefmt.durability": "none", "hoodie.client.heartbeat.tolerable.misses": 0}, "interval": 0.0},
    mode="continuous", on_round=lambda progress: print(progress.tables[0].commits, flush=True))
"""


@pytest.mark.slow
def test_a_process_that_is_killed_again_and_again_loses_and_repeats_nothing(tmp_path):
    """SIGKILL of a continuous run, each time after some commits, wherever the next one is."""
    for n in range(40):
        write_rows(tmp_path / f"in/f{n:03}.jsonl", [{"id": f"{n}"}], NOW - 1e8 + n)
    table = tmp_path / "t"
    for commits in (1, 3, 2, 5):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "in"), str(table)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) >= commits:
                break
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    how = {"operation": "insert", "key": (), "settings": {"hoodie.client.heartbeat.tolerable.misses": 0}}
    ingest(tmp_path / "in", table, **how)
    found = sorted(map(int, lakefmt.open_table(str(table)).read()["id"].to_pylist()))
    assert found == list(range(40))
