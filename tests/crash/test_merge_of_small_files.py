"""Every effect of an append that is followed by a merge of small files, ended in two ways: no row lost, none doubled."""

from __future__ import annotations

import contextlib
import itertools

import pytest

import lakefmt
from lakefmt.errors import LakefmtError
from lakefmt.filegroups.table_client import TableClient
from lakefmt.storage.memory import MemoryStore
from lakefmt.table import Table
from lakefmt.testing.invariants import check_invariants, check_no_orphans
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from lakefmt.write.assign import MOST_SMALL_FILES
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


def copied(store: MemoryStore) -> MemoryStore:
    made = MemoryStore(f"merged-{next(NUMBERS)}")
    for found in store.list():
        made.put(found.name, store.read(found.name))
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "dies"), [(FaultMode.AFTER, True), (FaultMode.ANSWER_LOST, False)])
def test_a_merge_that_ends_anywhere_loses_and_doubles_no_row(mode: FaultMode, dies: bool) -> None:
    made = crowded()
    whole = FaultStore(copied(made))
    before = Table(TableClient(whole, OPTIONS)).read()
    effects = len(whole.effects)
    Table(TableClient(whole, OPTIONS)).insert(batch(100))
    after = Table(TableClient(whole, OPTIONS)).read()
    assert len(Table(TableClient(whole, OPTIONS)).file_groups()) < MOST_SMALL_FILES, (
        "the append was followed by a merge"
    )
    for number in range(effects + 1, len(whole.effects) + 1):
        store = copied(made)
        faulty = FaultStore(store, fail_at(number - effects, mode, crash=dies))
        with contextlib.suppress(LakefmtError, SimulatedCrash):
            Table(TableClient(faulty, OPTIONS)).insert(batch(100))
        healthy = Table(TableClient(store, OPTIONS))
        found = healthy.read()
        assert same(found, before) or same(found, after), f"effect {number}"
        healthy.upsert(batch(200))
        assert healthy.read().num_rows == found.num_rows + 2, f"effect {number}"
        check_invariants(healthy)
        check_no_orphans(healthy)
