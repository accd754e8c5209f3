"""What sweeps over deaths rely on: the same calls leave the same bytes, and nothing that differs counts as checked."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.crash.repeatable import Repeatable

OPTIONS: dict[str, object] = {"lakefmt.write.threads": 1, "hoodie.client.heartbeat.tolerable.misses": 0}
ROWS = pa.table({"id": ["a", "b"], "city": ["x", "y"]})


@pytest.fixture(params=["cow", "mor"])
def origin(request: pytest.FixtureRequest) -> Repeatable:
    store = MemoryStore(f"repeatable-{request.param}")
    store.delete_tree("")
    lakefmt.create_table(
        store.url, schema=ROWS.schema, record_key="id", partition_by="city", table_type=request.param, options=OPTIONS
    )
    return Repeatable(store)


def died(origin: Repeatable, number: int, mode: FaultMode) -> MemoryStore:
    store = origin.copy()
    with pytest.raises(SimulatedCrash):
        origin.table(FaultStore(store, fail_at(number, mode)), OPTIONS).upsert(ROWS)
    return store


def test_a_death_after_an_effect_is_one_before_the_next(origin: Repeatable) -> None:
    whole = FaultStore(origin.copy())
    origin.table(whole, OPTIONS).upsert(ROWS)
    assert len(whole.effects) > 5
    for effect, following in itertools.pairwise(whole.effects):
        assert origin.is_new(died(origin, effect.number, FaultMode.AFTER)), effect
        # Whoever dies at a large object also leaves what was written of it.
        differs = any(each.kind.startswith("sink.") for each in (effect, following))
        assert origin.is_new(died(origin, following.number, FaultMode.BEFORE)) is differs, following


def test_whatever_differs_is_checked(origin: Repeatable) -> None:
    store = origin.copy()
    assert origin.is_new(store)
    assert not origin.is_new(origin.copy())
    assert origin.is_new(store, "another check")
    (name, *_) = sorted(found.name for found in store.list())
    store.leave_temporary_object(name, b"")
    assert origin.is_new(store), "a list would leave it out"
    changed = origin.copy()
    changed.put(name, changed.read(name) + b"\n")
    assert origin.is_new(changed)
    less = origin.copy()
    less.delete([name])
    assert origin.is_new(less)


def test_processes_do_not_make_the_same_names(origin: Repeatable) -> None:
    store = origin.copy()
    for process in (0, 0.01, 1, 2):
        origin.table(store, OPTIONS, process).bulk_insert(ROWS.set_column(0, "id", pa.array([f"{process}", "c"])))
    groups = [group.file_id for group in lakefmt.Table(origin.client(store, OPTIONS, 3)).file_groups()]
    assert len(groups) == len(set(groups)) == 8
