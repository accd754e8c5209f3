"""Every effect of an append that is followed by a merge of small files, ended in two ways: no row lost, none doubled."""

from __future__ import annotations

import itertools

import pytest

import lakefmt
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.write.assign import MOST_SMALL_FILES
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from lakefmt.testing.stores import FaultStore
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import Ending, endings_of_run, sweep
from tests.crash.test_every_effect import OPTIONS, same
from tests.kit import SCHEMA, rows

NUMBERS = itertools.count()


def batch(number: int):  # type: ignore[no-untyped-def]
    """Two rows of one partition."""
    data = rows(4 * number, 4 * number + 4, ts=1)
    return data.take([0, 2])


def crowded() -> MemoryStore:
    """A table with as many small files as a partition is to have."""
    store = MemoryStore(f"merged-{next(NUMBERS)}")
    table = lakefmt.create_table(
        store.url, schema=SCHEMA, record_key="id", partition_by="city", ordering="ts", options=OPTIONS
    )
    for number in range(MOST_SMALL_FILES):
        table.insert(batch(number))
    return store


@pytest.mark.slow
@pytest.mark.parametrize("ending", endings_of_run(), ids=str)
def test_a_merge_that_ends_anywhere_loses_and_doubles_no_row(ending: Ending) -> None:
    origin = Repeatable(crowded())
    whole = FaultStore(origin.copy())
    before = origin.table(whole, OPTIONS).read()
    origin.table(whole, OPTIONS).insert(batch(100))
    effects = len(whole.effects)
    after = origin.table(whole, OPTIONS).read()
    assert len(origin.table(whole, OPTIONS).file_groups()) < MOST_SMALL_FILES, "the append was followed by a merge"
    for left in sweep(origin, lambda store: origin.table(store, OPTIONS).insert(batch(100)), effects, ending):
        healthy, number = origin.table(left.store, OPTIONS, process=1), left.number
        found = healthy.read()
        assert same(found, before) or same(found, after), f"effect {number}"
        healthy.upsert(batch(200))
        assert healthy.read().num_rows == found.num_rows + 2, f"effect {number}"
        check_invariants(healthy)
        check_no_orphans(healthy)
