"""A write that announces its files together dies at every effect: the next write finds each file that it left."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.api import Capabilities, ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.store_wrapper import WrapperStore
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import DIES, LOST, Ending, endings_of_run, sweep
from tests.kit import THOROUGH

OPTIONS: dict[str, object] = {
    "lakefmt.write.threads": 1,
    "hoodie.client.heartbeat.tolerable.misses": 0,
    "hoodie.metadata.enable": False,
}
SMALL_WINDOWS = {"lakefmt.write.window.bytes": 1024}
VERBS: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(rows(0, 12, ts=2)),
    # The second window begins the file of a partition that the first one did not have.
    "windows": lambda table: table.bulk_insert(iter(in_windows()), options=SMALL_WINDOWS),
    "insert_overwrite": lambda table: table.insert_overwrite(rows(0, 4, ts=5)),
}
CASES = [*((verb, LOST) for verb in VERBS), ("upsert", DIES)]
if THOROUGH:
    CASES = [(verb, ending) for verb in VERBS for ending in endings_of_run()]


class FarStore(WrapperStore):
    """A store whose requests take long, as those of an object store do."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, low_latency=False)


def rows(first: int, last: int, ts: int) -> pa.Table:
    numbers = range(first, last)
    cities = [f"c{n % 4}" for n in numbers]
    return pa.table({"id": [f"k{n}" for n in numbers], "city": cities, "ts": [ts] * len(numbers)})


def in_windows() -> list[pa.Table]:
    many = rows(100, 300, ts=2)
    last = pc.equal(many["city"], "c3")
    return [many.filter(pc.invert(last)), many.filter(last)]


def over(store: ObjectStore) -> Table:
    return Table(TableClient(store, OPTIONS))


EVERY_ROW = rows(0, 300, ts=9)
ROLLING: dict[str, object] = {"hoodie.logfile.data.block.max.size": 64, "hoodie.logfile.max.size": 64}


@pytest.fixture(
    # One process asks all endings of a table: it knows the states that it has checked.
    params=[pytest.param(version, marks=pytest.mark.xdist_group(f"markers-{version}")) for version in (6, 9)],
)
def made_of_logs(request: pytest.FixtureRequest) -> Repeatable:
    """A merge-on-read table with files in four partitions."""
    return table_of_logs(request.param)


@functools.cache
def table_of_logs(version: int) -> Repeatable:
    """Make it, once in a process: other tests may run between those that ask for it."""
    store = MemoryStore(f"markers-together-{version}")
    table = lakefmt.create_table(
        store.url, schema=rows(0, 1, 1).schema, record_key="id", partition_by="city", ordering="ts", options=OPTIONS,
        table_type="mor", table_version=version,
    )  # fmt: skip
    table.upsert(rows(0, 12, ts=1))
    return Repeatable(store)


@pytest.fixture
def made() -> Repeatable:
    """A table with files in three of four partitions."""
    return table_of_files()


@functools.cache
def table_of_files() -> Repeatable:
    """Make it, once in a process: other tests may run between those that ask for it."""
    store = MemoryStore("markers-together")
    schema = rows(0, 1, 1).schema
    table = lakefmt.create_table(
        store.url, schema=schema, record_key="id", partition_by="city", ordering="ts", options=OPTIONS
    )
    table.upsert(rows(0, 3, ts=1))
    return Repeatable(store)


@pytest.mark.slow
@pytest.mark.xdist_group("markers-made")
@pytest.mark.parametrize(("verb", "ending"), CASES, ids=str)
def test_before_or_after_and_no_orphan(made: Repeatable, verb: str, ending: Ending) -> None:
    before = over(made.copy()).read()
    whole = FaultStore(FarStore(made.copy()))
    VERBS[verb](made.table(whole, OPTIONS))
    names = [effect.name.rpartition("/")[2] for effect in whole.effects]
    batches = {name for name in names if name.startswith("MARKERS") and name != "MARKERS.type"}
    assert len(batches) == (2 if verb == "windows" else 1), names
    assert not [name for name in names if ".marker." in name], "the markers of an instant have one form"
    after = over(whole.inner).read()
    call = lambda store: VERBS[verb](made.table(store, OPTIONS))  # noqa: E731
    for left in sweep(made, call, len(whole.effects), ending, what=lambda left: verb, under=FarStore):
        healthy, story = made.table(left.store, OPTIONS, process=1), f"{verb}, {left.story}"
        found = healthy.read()
        assert not multiset_difference(found, before) or not multiset_difference(found, after), story
        healthy.upsert(EVERY_ROW)
        assert not multiset_difference(healthy.read(), EVERY_ROW), story
        check_invariants(healthy)
        check_no_orphans(healthy)


@pytest.mark.slow
@pytest.mark.parametrize("ending", endings_of_run(), ids=str)
def test_logs_that_roll_over_are_announced_together(made_of_logs: Repeatable, ending: Ending) -> None:
    def write(store: ObjectStore) -> None:
        made_of_logs.table(store, OPTIONS).upsert(rows(0, 12, ts=2), options=ROLLING)

    before, after = over(made_of_logs.copy()).read(), rows(0, 12, ts=2)
    whole = FaultStore(FarStore(made_of_logs.copy()))
    write(whole)
    names = [effect.name.rpartition("/")[2] for effect in whole.effects]
    logs = {name for name in names if ".log." in name}
    assert len(logs) > 4 == len({name.split("_")[0] for name in logs})
    assert len({name for name in names if name.startswith("MARKERS")}) == 2 + len(logs) - 4, (
        "the type, 4 logs, the rest"
    )
    assert not [name for name in names if ".marker." in name], "the markers of an instant have one form"
    assert names.count("MARKERS.type") == 2, "made and deleted once"
    for left in sweep(made_of_logs, write, len(whole.effects), ending, under=FarStore):
        healthy, story = made_of_logs.table(left.store, OPTIONS, process=1), left.story
        found = healthy.read()
        assert not multiset_difference(found, before) or not multiset_difference(found, after), story
        healthy.upsert(rows(0, 12, ts=9))
        assert not multiset_difference(healthy.read(), rows(0, 12, ts=9)), story
        check_invariants(healthy)
        check_no_orphans(healthy)


def test_without_its_line_a_file_is_left_over(made: Repeatable) -> None:
    """The sabotage twin: what no marker names, no rollback finds."""
    store = made.copy()
    whole = FaultStore(FarStore(made.copy()))
    VERBS["upsert"](over(whole))
    last = next(effect.number for effect in whole.effects if effect.name.endswith(".commit"))
    with pytest.raises(SimulatedCrash):
        VERBS["upsert"](over(FaultStore(FarStore(store), fail_at(last, FaultMode.TORN))))
    (batch,) = (
        found.name for found in store.list(".hoodie/.temp") if "MARKERS" in found.name and ".type" not in found.name
    )
    store.put(batch, b"".join(store.read(batch).splitlines(keepends=True)[1:]))
    healthy = over(store)
    healthy.upsert(EVERY_ROW)
    with pytest.raises(AssertionError, match="orphan"):
        check_no_orphans(healthy)
