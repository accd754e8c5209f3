"""What a process has opened costs the next table nothing, and what it no longer holds is given back."""

from __future__ import annotations

import gc
from collections import Counter
from pathlib import Path

import pytest

import lakefmt
from lakefmt._core.table import Table
from tests.growth import tables
from tests.growth.kit import CONSTANT, Cost, copy_of, counted, slope

SIZES = (4, 8, 16)
WORKS = ("open", "read", "upsert", "append to a stream")


def _used(size: int) -> list[Table]:
    """Open so many tables, and use each of them for reads, commits and a check."""
    opened = []
    for _ in range(size):
        table, _store = copy_of(tables.plain(8))
        table.upsert(tables.small())
        table.read(filter="ts > 3")
        table.check()
        opened.append(table)
    return opened


def _cost(work: str) -> Cost:
    table, store = copy_of(tables.plain(8))
    if work == "open":
        return counted(lambda: table.schema, store)
    if work == "read":
        return counted(table.read, store)
    if work == "upsert":
        return counted(lambda: table.upsert(tables.small()), store)

    def stream() -> None:
        with table.open_stream(commit_interval=10**7, flush_interval=10**7) as opened:
            opened.upsert({"id": "k000000001", "city": "c000000", "ts": 9, "v000000": 1.0})

    return counted(stream, store)


@pytest.mark.parametrize("work", WORKS)
def test_the_next_table_costs_the_same_however_many_are_open(work: str):
    opened = _used(1)
    _cost(work)  # imports
    found: list[Cost] = []
    for size in SIZES:
        opened += _used(size - len(opened))
        costs = [_cost(work) for _ in range(2)]
        found.append(
            Cost(*(min(values) for values in zip(*(tuple(vars(cost).values()) for cost in costs), strict=True)))
        )
    assert len(opened) == SIZES[-1]
    for name in ("steps", "requests", "names", "read", "written"):
        counts = [int(getattr(cost, name)) for cost in found]
        assert slope(SIZES, counts) <= CONSTANT, (name, counts)


def _objects() -> Counter[str]:
    gc.collect()
    return Counter(
        f"{type(each).__module__}.{type(each).__qualname__}"
        for each in gc.get_objects()
        if type(each).__module__.startswith("lakefmt._core")
    )


def test_tables_that_nobody_holds_leave_nothing_behind(tmp_path: Path):
    def use(size: int) -> None:
        for table in _used(size):
            assert table.client is not None
        for number in range(size):
            path = tmp_path / f"{size}-{number}"
            local = lakefmt.create_table(str(path), data=tables.small(), record_key="id", partition_by="city")
            local.upsert(tables.small())
            lakefmt.open_table(str(path)).read()

    use(2)
    before = _objects()
    use(4)
    few = _objects() - before
    use(24)
    many = _objects() - before
    many.pop("lakefmt._core.config.settings.Settings", None)  # the last 64 that were resolved
    grown = {name: count for name, count in many.items() if count - few.get(name, 0) >= 12}
    assert grown == {}
