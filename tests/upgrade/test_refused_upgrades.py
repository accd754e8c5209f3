"""An upgrade that is refused leaves the table as it was, with its metadata table."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.timeline.instant import State
from lakefmt.errors import LakefmtError

NUMBERS = itertools.count()
ROWS = pa.table({"id": ["a", "b"], "v": [1, 2]})
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "hoodie.metadata.enable": True,
    "hoodie.clean.automatic": False,
    "hoodie.clean.commits.retained": 1,
    "hoodie.parquet.small.file.limit": 0,
}
PLANS: dict[str, Callable[[lakefmt.Table], Any]] = {
    "clustering": lambda table: table.cluster(schedule=True),
    "indexing": lambda table: table.index.schedule("bloom_filters"),
    "clean": lambda table: table.clean(schedule=True),
}


@pytest.mark.parametrize("plan", sorted(PLANS))
@pytest.mark.parametrize("version", [6, 8])
def test_a_plan_that_waits_refuses_the_upgrade_and_no_index_is_lost(version: int, plan: str) -> None:
    table = lakefmt.create_table(
        f"memory://refused-{next(NUMBERS)}",
        data=ROWS,
        record_key="id",
        table_version=version,
        index="record",
        options=OPTIONS,
    )
    for number in range(3):
        table.insert(pa.table({"id": [f"k{number}"], "v": [1]}))
        table.upsert(ROWS)
    PLANS[plan](table)
    assert [pending.state for pending in table.client.load().timeline.pending] == [State.REQUESTED]
    before = [index.name for index in table.index.list()]
    assert "record_index" in before
    with pytest.raises(LakefmtError, match="pending"):
        table.upgrade(9)
    assert [index.name for index in table.index.list()] == before
    assert table.properties.version == version
    result = table.insert(pa.table({"id": ["new"], "v": [3]}))
    assert not result.warnings
    assert table.index.check().is_clean
