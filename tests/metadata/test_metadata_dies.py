"""A writer of a table with a metadata table dies at every effect: the state before or after, and the next write is right.

The metadata table is judged by the files and rows of the table, after the death as far as its instants are complete, and
whole after the next write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache

import pytest

import lakefmt._core.metadata.observer as dead_instants
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.layout import METADATA_DIRECTORY
from lakefmt._core.metadata.timeline import MetadataTimelineStore
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.errors import LakefmtError, StateError
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.stores import Fault, FaultMode, FaultStore, SimulatedCrash
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import DIES, LOST, Ending, endings_of_run, numbers_of_run, sweep
from tests.kit import THOROUGH
from tests.metadata.metadata_content import check_metadata_table
from tests.metadata.metadata_indexes import create_expression_index, create_metadata_index
from tests.metadata.test_metadata_table import NUMBERS, OPTIONS, make, rows

#: Keys are looked up in the record index: what a death leaves of it must not double one.
DEADLY: dict[str, object] = {
    **OPTIONS,
    "hoodie.client.heartbeat.tolerable.misses": 0,
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.record.index.update.partition.path": True,
}

VERBS: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(rows(3, 9, 9)),
    "delete": lambda table: table.delete(["k1", "k2"]),
    "insert_overwrite": lambda table: table.insert_overwrite(rows(0, 2, 9)),
    "rollback": lambda table: table.rollback(table.timeline.entries[-1].time),
    "restore": lambda table: table.restore(table.timeline.entries[0].time),
    "clean": lambda table: table.clean(options={"hoodie.clean.commits.retained": 1}),
}


def copy_of(made: ObjectStore) -> MemoryStore:
    store = MemoryStore(f"metadata-dies-{next(NUMBERS)}")
    for found in made.list():
        store.put(found.name, made.read(found.name))
    return store


def _table(store: object) -> Table:
    return Table(TableClient(store, DEADLY))  # type: ignore[arg-type]


_DIES = Fault(FaultMode.AFTER, crash=True)

#: A write with a compaction of the metadata table in it has more than a hundred effects.
CASES = [
    *((verb, "cow", 9, LOST) for verb in VERBS),
    ("upsert", "mor", 9, DIES),
    ("upsert", "mor", 6, DIES),
]
if THOROUGH:
    CASES = [
        *((verb, "cow", version, ending) for verb in VERBS for version in (8, 9) for ending in endings_of_run()),
        *(("upsert", "mor", version, ending) for version in (6, 8, 9) for ending in endings_of_run()),
    ]


@cache
def origin_of(verb: str, kind: str, version: int) -> Repeatable:
    table = make(kind, version, {"hoodie.metadata.compact.max.delta.commits": 2 if verb == "upsert" else 50})
    table.upsert(rows(0, 4, 1))
    if version == 9 or verb in ("clean", "restore", "rollback"):
        create_expression_index(
            table.client, "expr_index_id", "id", "substring", function_options={"pos": "2", "len": "9"}
        )
    table.upsert(rows(2, 6, 2))
    return Repeatable(table.client.store)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("metadata-dies")  # one process knows the states that it has checked
@pytest.mark.parametrize(("verb", "kind", "version", "ending"), CASES)
def test_dying_anywhere_leaves_the_state_before_or_after(verb: str, kind: str, version: int, ending: Ending) -> None:
    origin = origin_of(verb, kind, version)
    before = _table(origin.copy()).read()
    whole = FaultStore(origin.copy())
    VERBS[verb](origin.table(whole, DEADLY))
    after = _table(whole).read()
    asked = numbers_of_run(whole.effects, ending)
    for left in sweep(origin, lambda store: VERBS[verb](origin.table(store, DEADLY)), asked, ending):
        healthy, story = origin.table(left.store, DEADLY, process=1), left.story
        found = healthy.read()
        assert not multiset_difference(found, before) or not multiset_difference(found, after), story
        healthy.upsert(rows(0, 12, 20))
        assert not multiset_difference(healthy.read(), rows(0, 12, 20)), story
        try:
            content = check_metadata_table(healthy)
        except (AssertionError, KeyError, LakefmtError) as error:
            raise AssertionError(f"{story}: {error!r}") from error
        assert set(content["record_index"]) == {f"k{n}" for n in range(12)}, story


def test_an_instant_that_is_recorded_twice_is_recorded_anew() -> None:
    """A process dies between the deltacommit and the instant; the next one begins with what the first one wrote."""
    table = make()
    table.upsert(rows(0, 4, 1))
    made = table.client.store
    assert isinstance(made, MemoryStore)
    store = copy_of(made)
    dying = FaultStore(store, lambda effect: _DIES if effect.name.endswith(".deltacommit") else None)
    with contextlib.suppress(LakefmtError, SimulatedCrash):
        _table(dying).upsert(rows(3, 9, 9))
    assert dying.effects[-1].name.startswith(METADATA_DIRECTORY)
    healthy = _table(store)
    assert not multiset_difference(healthy.read(), rows(0, 4, 1))
    healthy.upsert(rows(5, 7, 30))
    content = check_metadata_table(healthy)
    assert set(content["record_index"]) == {"k0", "k1", "k2", "k3", "k5", "k6"}


@pytest.mark.parametrize(("version", "heals"), [(6, True), (9, True), (9, False)])
def test_what_a_writer_records_after_its_instant_was_rolled_back_is_removed(
    version: int, heals: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that was taken for dead wakes after its last proof of the lock, and completes its deltacommit."""
    table = make(version=version)
    table.upsert(rows(0, 4, 1))
    before = {each.name for each in table.client.store.list(METADATA_DIRECTORY)}
    table.upsert(rows(2, 8, 2))
    time = table.timeline.entries[-1].time
    late = {each.name for each in table.client.store.list(METADATA_DIRECTORY)} - before
    written = {name: table.client.store.read(name) for name in late}
    table.rollback(time)
    for name in written:
        table.client.store.put(name, written[name])
    if not heals:
        monkeypatch.setattr(dead_instants, "_undone_deltacommits", lambda *_: [])
    table.upsert(rows(1, 3, 3))
    with contextlib.nullcontext() if heals else pytest.raises(AssertionError):
        check_metadata_table(table)


@pytest.mark.parametrize("version", [6, 8])
def test_what_a_dead_writer_recorded_half_way_is_removed(version: int) -> None:
    table = make(version=version)
    table.upsert(rows(0, 4, 1))
    store = table.client.store
    directory = MetadataTimelineStore(store, table.properties.version, durable=False).directory
    store.put(f"{directory}/20260101000000000.deltacommit.requested", b"")
    store.put(f"{directory}/20260101000000001.compaction.requested", b"")
    table.upsert(rows(1, 3, 3))
    assert not [each.name for each in store.list(directory) if "/2026010100000000" in each.name]
    check_metadata_table(table)


@pytest.mark.parametrize("version", [6, 8])
@pytest.mark.parametrize("how", ["compacted", "made"])
def test_what_base_files_hold_is_not_rolled_back_but_restored(version: int, how: str) -> None:
    """The refusal comes before the first effect: Hudi's comes after the data files are deleted."""
    more: dict[str, object] = {
        "hoodie.metadata.compact.max.delta.commits": 2 if how == "compacted" else 50,
        "hoodie.metadata.record.index.enable": "false",
        "hoodie.clean.automatic": "false",
    }
    table = make("cow", version, more)
    for number in range(4):
        table.upsert(rows(number, number + 4, number))
    wanted, newest = table.timeline.timeline.commits[-2].time, table.timeline.timeline.commits[-1].time
    if how == "made":
        create_metadata_index(table.client, "record_index")
    else:
        table.clean(options={"hoodie.clean.commits.retained": 1})
    faulty = FaultStore(table.client.store)
    before = _table(faulty).read()
    with pytest.raises(StateError, match="cannot be rolled back"):
        _table(faulty).rollback(newest)
    touched = [effect.name for effect in faulty.effects if "lock" not in effect.name and "heartbeat" not in effect.name]
    assert not touched
    assert not multiset_difference(table.read(), before)
    table.restore(wanted)
    check_metadata_table(table)
