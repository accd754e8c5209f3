"""Whatever a database does and whenever the reader dies: the table is what SELECT says, and a log has every change once."""

from __future__ import annotations

import itertools
import random

import pytest

from lakefmt._core.cdc.events import Border, RowKind, SourceName
from tests.cdc.applier import Applied, rows_in
from tests.cdc.postgres.kit import select, source_of
from tests.cdc.postgres.workload import TABLES, Workload
from tests.example_counts import seeds_of_run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("postgres at work")]

NAMES = [SourceName("public", table) for table in TABLES]


def run_and_die(server, work: Workload, database: str, applied: Applied, *, logs: bool, after: int | None) -> Applied:
    """Apply events until `after` of them have come, while the database changes; return what was committed by then."""
    source = source_of(server, database, chunk_bytes=8192)
    committed = applied.committed()
    try:
        events = source.events(applied.positions, logs=logs, until_now=True)
        for event in itertools.islice(events, after):
            applied.apply(event)
            if after is not None and work.random.random() < 0.4:
                work.transaction()
            # Whoever reads need not commit at each border: then the server has to keep what came since.
            if isinstance(event, Border) and (after is None or work.random.random() < 0.6):
                committed = applied.committed()
                source.confirm(applied.positions)
        events.close()
    finally:
        source.close()
    return committed


@pytest.mark.parametrize("full_identity", [False, True], ids=["key", "whole row"])
@pytest.mark.parametrize("seed", seeds_of_run(2, 40))
def test_a_random_workload_ends_equal_whenever_the_reader_dies(postgres, shop, seed, full_identity):
    draw = random.Random(seed)
    connection = postgres.connect(shop)
    work = Workload(seed, connection, full_identity=full_identity)
    work.create()
    applied = Applied()
    for _ in range(12):
        applied = run_and_die(postgres, work, shop, applied, logs=False, after=draw.randrange(12))
        for _ in range(draw.randrange(8)):
            work.transaction()
    applied = run_and_die(postgres, work, shop, applied, logs=False, after=None)
    for name in NAMES:
        columns = ", ".join(applied.tables[name].columns.names) if name in applied.tables else "*"
        assert rows_in(applied, name) == select(postgres, shop, f"SELECT {columns} FROM {name}"), (name, seed)
    connection.close()


@pytest.mark.parametrize("seed", seeds_of_run(2, 40))
def test_a_log_has_every_change_once_whenever_the_reader_dies(postgres, shop, seed):
    draw = random.Random(seed)
    connection = postgres.connect(shop)
    work = Workload(seed, connection, full_identity=True, alters=False)
    work.create()
    applied = Applied()
    for _ in range(10):
        applied = run_and_die(postgres, work, shop, applied, logs=True, after=draw.randrange(12))
        for _ in range(draw.randrange(8)):
            work.transaction()
    applied = run_and_die(postgres, work, shop, applied, logs=True, after=None)
    for name in NAMES:
        assert rows_of_log(applied.log[name]) == select(postgres, shop, f"SELECT * FROM {name}"), (name, seed)
    connection.close()


def rows_of_log(log: list) -> list[tuple]:
    """The rows that are left of a log, where whole rows before every change must be those that the log has."""
    rows: dict[int, dict] = {}
    positions = [position for _, _, position in log]
    assert positions == sorted(positions)
    for kind, row, _ in log:
        if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            assert row["id"] not in rows, "a change came twice, or one before it was left out"
            rows[row["id"]] = row
        else:
            assert rows.pop(row["id"]) == row, "a change came twice, or one before it was left out"
    return sorted((tuple(row.values()) for row in rows.values()), key=repr)
