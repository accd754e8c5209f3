"""A drop and a repair of an index die at every effect: what the properties advertise is whole, and the next one mends the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from lakefmt._core.check.index_contents import IndexDamage
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.layout import METADATA_DIRECTORY
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.errors import LakefmtError
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.check.index_damage import OPTIONS, Damage, copied, make_table, rows
from tests.metadata.metadata_content import check_metadata_table

ACTS: dict[str, Callable[[Table], object]] = {
    "drop": lambda table: table.index.drop("record_index"),
    "drop statistics": lambda table: table.index.drop("column_stats"),
    "drop all": lambda table: table.index.drop("files"),
    "repair": lambda table: table.index.check(repair=True),
    "create": lambda table: table.index.create("secondary_index", "city"),
}


def over(store: object) -> Table:
    """The table on a store; its writers are dead as soon as they do nothing."""
    return Table(TableClient(store, {**OPTIONS, "hoodie.client.heartbeat.tolerable.misses": 0}))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS)
def test_dying_anywhere_leaves_what_is_advertised_whole(act: str) -> None:
    made = make_table()
    if act == "repair":
        damage = Damage(made)
        damage.narrow_range(0)
        damage.apply()
    faulty = FaultStore(copied(made).client.store)
    ACTS[act](over(faulty))
    before = set(made.properties.metadata_partitions)
    step = 3 if act == "repair" else 1
    for number in range(1, len(faulty.effects) + 1, step):
        store = copied(made).client.store
        assert isinstance(store, MemoryStore)
        with contextlib.suppress(LakefmtError, SimulatedCrash):
            ACTS[act](over(FaultStore(store, fail_at(number, FaultMode.AFTER, crash=True))))
        table = over(store)
        story = f"effect {number}: {faulty.effects[number - 1]}"
        advertised = set(table.properties.metadata_partitions)
        for name in advertised:
            assert any(store.list(f"{METADATA_DIRECTORY}/{name}")), f"{story}: {name} is advertised and gone"
        assert table.read().num_rows == made.read().num_rows, story
        if act != "repair":
            kinds = {finding.kind for finding in table.index.check().findings}
            assert kinds <= {IndexDamage.NOT_ADVERTISED}, story
        if number % 5:
            continue
        result = table.upsert(rows(0, 2, 9))
        gone = before - advertised
        if act == "repair" and gone:
            assert result.warnings, story
        assert table.index.check(repair=True).is_clean, story
        if table.properties.metadata_partitions:
            check_metadata_table(table)
