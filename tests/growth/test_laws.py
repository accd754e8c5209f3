"""The laws of growth and their page: what is counted, what a broken law looks like, and that the page is of today."""

from __future__ import annotations

import doctest
from dataclasses import replace
from pathlib import Path

import pytest

import lakefmt
from lakefmt._core.table import Table
from tests.growth import kit, measure, tables
from tests.growth.kit import (
    CONSTANT,
    GROWING,
    LINEAR,
    MEASURES,
    Line,
    broken_laws,
    copy_of,
    counted,
    exponent,
    measured,
)
from tests.growth.lines import AREAS
from tests.growth.measure import markdown, recorded

ROOT = Path(__file__).resolve().parents[2]
NAMES = [(area, line.name) for area, lines in AREAS.items() for line in lines]
PLAIN = Line("read", "rows", tables.plain, lambda table, size: table.read, frozenset(), None, (4, 8, 16))


def test_every_line_is_recorded_and_nothing_else():
    assert sorted(NAMES) == sorted((area, name) for area, lines in recorded().items() for name in lines)
    assert len({*NAMES}) == len(NAMES)


def test_what_is_recorded_keeps_the_laws():
    powers = [
        (name, measure, power)
        for lines in recorded().values()
        for name, found in lines.items()
        for measure, power in found.items()
    ]
    assert [each for each in powers if each[2] > GROWING] == []
    assert {measure for _, measure, _ in powers} == {*MEASURES}


def test_the_page_is_the_recorded_one():
    page = (ROOT / "docs" / "dev" / "growth.md").read_text("utf-8")
    assert markdown(recorded()) in page, "docs/dev/growth.md is out of date, run `make docs-write`"


def test_the_examples_of_the_kit_hold():
    assert [doctest.testmod(module).failed for module in (kit, measure)] == [0, 0]


def test_a_call_counts_the_same_each_time():
    table, store = copy_of(tables.plain(8))
    table.read()
    costs = [counted(table.read, store) for _ in range(3)]
    assert costs[0] == costs[1] == costs[2]
    assert costs[0].steps > 100
    assert costs[0].requests > 2
    assert costs[0].read > 1000
    assert costs[0].written == 0


def test_a_loop_counts_each_time_round():
    table, store = copy_of(tables.plain(8))
    assert table.schema.names[0] == "id"  # from now on it is remembered
    found = [counted(lambda size=size: [table.schema for _ in range(size)], store).steps for size in (10, 20, 40)]  # type: ignore[misc]
    assert exponent([10, 20, 40], found) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(
    ("counts", "linear", "law"),
    [
        ([100, 200, 400], "steps", None),
        ([100, 100, 101], "", None),
        ([100, 200, 400], "", "stay as it is"),
        ([100, 400, 1600], "steps", "grow as its size"),
        ([10_016, 10_064, 10_256], "steps", None),
        ([1_016, 1_064, 1_256], "steps", "grow as its size"),
    ],
)
def test_what_breaks_a_law_is_named(counts: list[int], linear: str, law: str | None):
    line = replace(PLAIN, linear=frozenset(linear.split()))
    broken = broken_laws(line, {"steps": counts}, {"steps": 1.0})
    assert len(broken) == (law is not None)
    assert law is None or law in broken[0]


def test_what_did_not_grow_when_it_was_recorded_must_not_grow():
    line = replace(PLAIN, linear=frozenset(MEASURES))
    assert broken_laws(line, {"read": [100, 200, 400]}, {"read": 0.0})
    assert not broken_laws(line, {"read": [100, 200, 400]}, {"read": 0.99})


def test_a_call_of_quadratic_work_is_found():
    def squared(table: Table, size: int) -> object:
        return lambda: [table.read(columns=[name]) for name in table.schema.names]

    line = replace(PLAIN, make=tables.columns, call=squared, linear=frozenset(MEASURES))
    assert any("grow as its size" in each for each in broken_laws(line, measured(line), {}))


def test_the_limits_are_those_of_the_page():
    page = (ROOT / "docs" / "dev" / "growth.md").read_text("utf-8")
    assert all(f"{limit}" in page for limit in (CONSTANT, LINEAR, GROWING))
    assert lakefmt.__name__ in page
