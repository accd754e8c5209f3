"""How many cases a run asks: all of a product, or every value once; what only `make test-all` asks is left out."""

from __future__ import annotations

import types

import pytest

from tests.conftest import _of_this_run
from tests.crash.sweep import ENDINGS, endings_of_run
from tests.kit import THOROUGH, cases_of, content, rows, table, values_of_run

AXES = {"version": [6, 8, 9], "kind": [pytest.param("cow", marks=pytest.mark.slow), "mor"], "twice": [False, True]}


def values(cases):
    return [case.values for case in cases]


def test_a_thorough_run_asks_every_combination():
    assert len({*values(cases_of(AXES, thorough=True))}) == 12


def test_a_usual_run_asks_every_value_once_and_the_last_ones_together():
    asked = values(cases_of(AXES, thorough=False))
    assert len(asked) == 3
    assert asked[-1] == (9, "mor", True)
    for place, name in enumerate(AXES):
        assert len({case[place] for case in asked}) == len(AXES[name])


def test_marks_and_names_of_a_value_stay_with_it():
    cases = cases_of({"a": [pytest.param(1, id="one", marks=pytest.mark.slow)], "b": ["x"]}, thorough=False)
    assert [(case.id, [mark.name for mark in case.marks]) for case in cases] == [("one-x", ["slow"])]
    slow = {case.values[1] for case in cases_of(AXES, thorough=True) if case.marks}
    assert slow == {"cow"}


@pytest.mark.skipif(THOROUGH, reason="a usual run asks less")
def test_a_usual_run_asks_less():
    assert values_of_run([6, 8, 9]) == [9]
    assert len(endings_of_run()) == 1 < len(ENDINGS)


@pytest.mark.skipif(THOROUGH, reason="this run asks them all")
def test_what_only_test_all_asks_is_left_out_and_counted():
    told = []
    hook = types.SimpleNamespace(pytest_deselected=lambda items: told.extend(items))
    kept, later = (
        types.SimpleNamespace(get_closest_marker=lambda name, is_later=is_later: is_later or None)
        for is_later in (False, True)
    )
    asked = ["tests"]
    config = types.SimpleNamespace(hook=hook, getoption=lambda name: asked)
    assert _of_this_run(config, [kept, later]) == [kept]
    assert told == [later]
    asked[:] = ["tests/a.py::test_one"]
    assert _of_this_run(config, [kept, later]) == [kept, later]


def test_the_small_table_holds_its_rows():
    assert content(table(rows(0, 2), rows(1, 3, ts=2)), "id", "ts") == [("k0", 1), ("k1", 2), ("k2", 2)]
