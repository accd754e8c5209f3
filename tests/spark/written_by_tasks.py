"""What the tables of `write_scenarios.py` must hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import lakefmt

#: Table → the way of its upsert.
WAYS = {
    "partition": "partition",
    "lookup": "lookup",
    "bucket": "bucket",
    "consistent": "bucket",
    "splitting": "bucket",
    "global": "lookup",
    "own": "lookup",
    "record": "lookup",
}


def expected_rows(name: str) -> list[tuple[str, str, float]]:
    """Return id, city and v of a table's rows, in order."""
    rows = {n: (f"k{n}", f"c{n % 3}", n * (1.5 if n < 50 else 2.0)) for n in range(4, 70)}
    if name == "global":
        rows |= {n: (f"k{n}", "c9", -1.0) for n in (4, 5)}
    return sorted(rows.values())


def rows_after_deletes(name: str) -> list[tuple[str, str, float]]:
    """Return id, city and v of what is left of a table whose odd keys from 3 on were deleted wherever they were."""
    left = [n for n in range(60) if n % 2 == 0 or n < 3]
    again = [] if name == "global" else [(f"k{n}", "c9", -1.0) for n in left if n < 6]
    return sorted([*((f"k{n}", f"c{n % 3}", n * 1.5) for n in left), *again])


def in_order(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Return id, city and v of rows, in order."""
    return sorted(zip(*rows.select(["id", "city", "v"]).to_pydict().values(), strict=True))


def check_written_by_tasks(told: dict[str, list[Any]], folder: Path) -> None:
    """Compare what one release wrote."""
    for name, (inserted, changed, deleted, way, line) in told.items():
        assert (inserted, changed, deleted, way) == (60, 20, 4, WAYS[name]), name
        assert line.startswith("upsert: 20 rows")
        table = lakefmt.open_table(folder / f"tasks_{name}")
        assert in_order(table.read()) == expected_rows(name)
        assert not table.check().findings


def check_faults(told: dict[str, list[Any]]) -> None:
    """Compare what was refused, and what went on."""
    for name, reason in {
        "lost": "31 rows were counted and 30 came",
        "lost in look-up": "31 rows were counted and 30 came",
        "lost keys": "31 rows were counted and 30 came",
        "lost after look-up": "30 rows were counted and",
        "changing": "not repeatable",
        "commit": "the commit fails",
        "key": "null",
    }.items():
        said, commits, pending = told[name]
        assert reason in said, name
        assert (commits, pending) == (0, []), name
    assert told["key"][0].startswith("InvalidKey")
    rows = sorted([f"k{n}", n * (1.5 if n < 20 else 2.0)] for n in range(40))
    for name in ("retried", "retried look-up", "retried buckets", "retried split"):
        # Tasks failed after their files; every file group has one file of this instant, and the commit names it.
        assert told[name] == [True, 0, 0, rows], name
