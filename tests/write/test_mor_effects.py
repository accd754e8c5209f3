"""Every effect of a deltacommit, ended in every way: the state before or after, the next write works, no orphan.

The slice of ``tests/crash/test_every_effect.py`` for merge-on-read tables, whose updates and deletes are log files.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.markers import list_marked
from lakefmt.testing.invariants import check_no_orphans, check_visible
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import DIES, ENDINGS, LOST, Ending, sweep
from tests.kit import THOROUGH

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {
    "lakefmt.write.threads": 1,
    "lakefmt.durability": "none",
    "hoodie.client.heartbeat.tolerable.misses": 0,
}
#: A block for each row, a file for each block.
ROLLING: dict[str, object] = {"hoodie.logfile.data.block.max.size": 1, "hoodie.logfile.max.size": 1}
VERBS: dict[str, Callable[[Table], object]] = {
    "upsert": lambda t: t.upsert(rows(3, 9, ts=2)),
    "partial": lambda t: t.upsert(rows(3, 6, ts=2).drop_columns(["v"]), partial=True),
    "delete": lambda t: t.delete(["k1", "k2"]),
    "rolled": lambda t: t.upsert(rows(2, 5, ts=2), options=ROLLING),
    "rollback": lambda t: t.rollback(t.timeline.entries[-1].time),
}


def rows(first: int, last: int, ts: int) -> pa.Table:
    numbers = range(first, last)
    cities = [("sf", "oslo")[n % 2] for n in numbers]
    return pa.table(
        {"id": [f"k{n}" for n in numbers], "city": cities, "ts": [ts] * len(numbers), "v": list(numbers)}, schema=SCHEMA
    )


def over(store: MemoryStore | FaultStore) -> Table:
    return Table(TableClient(store, OPTIONS))


class Scene:
    """A table with base files and logs, and what a verb makes of it."""

    def __init__(self, verb: str, version: int) -> None:
        self.verb = VERBS[verb]
        made = MemoryStore(f"mor-effects-{next(NUMBERS)}")
        table = lakefmt.create_table(
            made.url,
            schema=SCHEMA,
            record_key="id",
            partition_by="city",
            ordering="ts",
            table_type="mor",
            table_version=version,
            options=OPTIONS,
        )
        table.upsert(rows(0, 6, ts=1))
        table.upsert(rows(2, 6, ts=1))
        self.before = table.read()
        self.origin = Repeatable(made)
        faulty = FaultStore(self.origin.copy())
        self.verb(self.origin.table(faulty, OPTIONS))
        self.after = over(faulty).read()
        self.effects = list(faulty.effects)


SCENES: dict[tuple[str, int], Scene] = {}


def scene(verb: str, version: int) -> Scene:
    if (verb, version) not in SCENES:
        SCENES[verb, version] = Scene(verb, version)
    return SCENES[verb, version]


def cases() -> list[object]:
    found: list[object] = []
    for verb, version, ending in itertools.product(VERBS, (6, 8, 9), ENDINGS):
        is_usual = (version == 9 and ending == LOST) or (verb == "upsert" and version != 8 and ending == DIES)
        if is_usual or THOROUGH:
            # One process asks all endings of a verb: it knows the states that it has checked.
            marks = [pytest.mark.xdist_group(f"mor-effects-{version}-{verb}")]
            # The oldest dependencies are asked about one writer that dies: which files it has left does not depend on them.
            marks += [] if (verb, version, ending) == ("upsert", 9, DIES) else [pytest.mark.slow]
            found.append(pytest.param(verb, version, ending, id=f"{version}-{verb}-{ending}", marks=marks))
    return found


def same(left: pa.Table, right: pa.Table) -> bool:
    return not multiset_difference(left, right)


@pytest.mark.parametrize(("verb", "version", "ending"), cases())
def test_before_or_after_and_no_orphan(verb: str, version: int, ending: Ending) -> None:
    setting = scene(verb, version)
    call = lambda store: setting.verb(setting.origin.table(store, OPTIONS))  # noqa: E731
    for left in sweep(setting.origin, call, len(setting.effects), ending):
        healthy = setting.origin.table(left.store, OPTIONS, process=1)
        found = healthy.read()
        assert same(found, setting.before) or same(found, setting.after), left.story
        healthy.upsert(rows(0, 12, ts=9))
        assert same(healthy.read(), rows(0, 12, ts=9)), left.story
        check_visible(healthy)
        check_no_orphans(healthy)


@pytest.mark.parametrize("version", [6, 9])
def test_the_verbs_write_logs(version: int) -> None:
    for verb in ("upsert", "partial", "delete", "rolled"):
        setting = scene(verb, version)
        logs = {effect.name for effect in setting.effects if ".log." in effect.name and ".marker." not in effect.name}
        assert len(logs) >= (3 if verb == "rolled" else 1), verb
        assert any(".log." in effect.name for effect in setting.effects if ".marker." not in effect.name), verb
        assert not same(setting.before, setting.after)


def test_a_log_that_is_left_would_be_seen() -> None:
    """The closing check of every case can say no: version 6, a dead write's log without its marker."""
    store = scene("upsert", 6).origin.copy()
    effects = enumerate(scene("upsert", 6).effects, 1)
    written = max(n for n, effect in effects if ".log." in effect.name and ".marker." not in effect.name)
    dead = FaultStore(store, fail_at(written + 1, FaultMode.BEFORE, crash=True))
    with contextlib.suppress(SimulatedCrash):
        scene("upsert", 6).verb(over(dead))
    healthy = over(store)
    (pending,) = healthy.client.load().timeline.pending
    logs = [path for path in list_marked(store, pending.time) or () if ".log." in path]
    assert logs
    assert all(store.info(path) for path in logs)
    kept = {path: store.read(path) for path in logs}
    healthy.upsert(rows(0, 2, ts=9))
    assert all(store.info(path) is None or store.read(path) != kept[path] for path in logs)
