"""How many cases a run asks: all of a product, or every value once; what only `make test-all` asks is left out."""

from __future__ import annotations

import collections
import itertools
import re
import types
from pathlib import Path

import pytest

from lakefmt._core.storage.memory import MemoryStore
from tests.conftest import _of_this_run, _out_of_turn
from tests.crash.repeatable import Repeatable
from tests.crash.sweep import DIES, ENDINGS, LOST, endings_of_run, sweep
from tests.example_counts import count_in_turn, in_turn
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
        types.SimpleNamespace(get_closest_marker=lambda name, marks=marks: marks.get(name))
        for marks in ({}, {"test_all": True})
    )
    asked = ["tests"]
    config = types.SimpleNamespace(hook=hook, getoption=lambda name: asked)
    assert _of_this_run(config, [kept, later]) == [kept]
    assert told == [later]
    asked[:] = ["tests/a.py::test_one"]
    assert _of_this_run(config, [kept, later]) == [kept, later]


def items_in_turn(turns, **axes):
    """The cases of one test of `axes`; the first of them is that of a fixture, the others are its own."""
    marks = [pytest.mark.parametrize(name.replace("_and_", ", "), values).mark for name, values in axes.items()]
    marker = pytest.mark.in_turn(turns).mark
    for case in itertools.product(*axes.values()):
        params = {}
        for names, value in zip(axes, case, strict=True):
            params |= dict(zip(names.split("_and_"), value, strict=True)) if "_and_" in names else {names: value}
        yield types.SimpleNamespace(
            nodeid=f"tests/a.py::test_law[{'-'.join(map(str, case))}]",
            callspec=types.SimpleNamespace(params=params),
            iter_markers=lambda name: marks[1:],
            get_closest_marker=lambda name: marker if name == "in_turn" else None,
        )


@pytest.mark.parametrize("turns", [2, 3, 4, 7])
@pytest.mark.parametrize(
    "axes", [{"a": "xyz"}, {"a": "xyz", "b": "uv"}, {"a": "wxyz", "b_and_c": ["xu", "xv", "yv"]}], ids=str
)
def test_cases_in_turn_are_all_asked_within_so_many_days_and_some_each_day(turns, axes):
    items = list(items_in_turn(turns, **axes))
    days = []
    for day in range(20261130, 20261130 + turns * len(items)):
        later = {item.nodeid for item in _out_of_turn(items, day)}
        days.append({item.nodeid for item in items} - later)
    assert all(days)
    assert set().union(*days) == {item.nodeid for item in items}
    assert collections.Counter(map(len, days)).most_common()[0][0] <= -(-len(items) // turns) + 1


def test_each_value_has_its_turn_beside_others_on_the_same_day():
    items = list(items_in_turn(3, version=[6, 8, 9], kind=["cow", "mor", "append"], twice=[False, True]))
    for day in range(3):
        later = {id(item) for item in _out_of_turn(items, day)}
        asked = [item.callspec.params for item in items if id(item) not in later]
        assert len(asked) == 6
        assert len({(each["version"], each["kind"]) for each in asked}) == 6
        assert {each["twice"] for each in asked} == {False, True}
        for name in ("version", "kind"):
            assert len({each[name] for each in asked}) == 3


def test_tests_of_a_group_take_turns_and_one_that_is_alone_is_always_asked():
    marker = pytest.mark.in_turn(2, "killed processes").mark
    items = [
        types.SimpleNamespace(nodeid=f"tests/{name}.py::test_law", get_closest_marker={"in_turn": marker}.get)
        for name in "abcd"
    ]
    days = [{item.nodeid for item in _out_of_turn(items, day)} for day in (0, 1)]
    assert [len(day) for day in days] == [2, 2]
    assert not days[0] & days[1]
    assert _out_of_turn(items[:1], 0) == _out_of_turn(items[:1], 1) == []


def test_tests_of_a_group_that_name_a_day_are_asked_on_it():
    markers = {"abcde"[n]: pytest.mark.in_turn(2, "sessions", day).mark for n, day in enumerate([0, 1, 1, 1, 0])}
    items = [
        types.SimpleNamespace(nodeid=f"tests/{name}.py::test_law", get_closest_marker={"in_turn": mark}.get)
        for name, mark in markers.items()
    ]
    assert ["".join(item.nodeid[6] for item in _out_of_turn(items, day)) for day in (0, 1)] == ["bcd", "ae"]


def test_files_of_every_second_day_are_asked_on_it_and_their_cases_in_turn_there():
    marks = {
        "a": {"every_second_day": pytest.mark.every_second_day(0).mark},
        "b": {"every_second_day": pytest.mark.every_second_day(1).mark},
        "c": {},
    }
    items = []
    for name, of_file in marks.items():
        for case in items_in_turn(2, of="xy"):
            found = {**of_file, "in_turn": case.get_closest_marker("in_turn")}
            nodeid = case.nodeid.replace("a.py", f"{name}.py")
            items.append(types.SimpleNamespace(**{**vars(case), "nodeid": nodeid, "get_closest_marker": found.get}))
    days = []
    for day in range(20261201, 20261205):
        later = {item.nodeid for item in _out_of_turn(items, day)}
        days.append(" ".join(item.nodeid[6] + item.nodeid[-2] for item in items if item.nodeid not in later))
    assert [day[0] for day in days] == ["b", "a", "b", "a"]
    asked = " ".join(days).split()
    assert {name: asked.count(name) for name in set(asked)} == {"ax": 1, "ay": 1, "bx": 1, "by": 1, "cx": 2, "cy": 2}


@pytest.mark.skipif(THOROUGH, reason="this run asks them all")
@pytest.mark.parametrize("turns", [2, 3])
def test_values_and_numbers_have_their_turns(turns, monkeypatch):
    asked = [[], []]
    for day in range(20261130, 20261130 + turns):
        monkeypatch.setenv("LAKEFMT_SEED", str(day))
        asked[0] += in_turn("abc", turns)
        asked[1] += itertools.takewhile(lambda number: number < 9, count_in_turn(1, turns))
        assert in_turn("a", turns) == ["a"]
    assert sorted(asked[0]) == list("abc")
    assert sorted(asked[1]) == list(range(1, 9))


@pytest.mark.skipif(THOROUGH, reason="this run asks them all")
def test_answers_of_all_effects_are_lost_within_three_days(monkeypatch):
    origin = Repeatable(MemoryStore())
    asked = []
    for day in (20261128, 20261129, 20261130):
        monkeypatch.setenv("LAKEFMT_SEED", str(day))

        def call(store):
            for number in range(5):
                store.put(str(number), b"")

        asked.append([left.number for left in sweep(origin, call, 5, LOST, what=lambda left: left.story)])
    assert [left.number for left in sweep(origin, call, [1, 4, 5], DIES)] == [1, 4, 5]
    assert sorted(asked) == [[1, 4], [2, 5], [3]]


def test_the_small_table_holds_its_rows():
    assert content(table(rows(0, 2), rows(1, 3, ts=2)), "id", "ts") == [("k0", 1), ("k1", 2), ("k2", 2)]


def test_a_numbered_name_of_a_store_in_memory_is_used_in_one_file():
    # The store of a name is there until the process ends: two files of one process would meet in it.
    files = collections.defaultdict(set)
    for path in Path(__file__).resolve().parents[1].rglob("*.py"):
        for name in re.findall(r'(?:memory://|MemoryStore\(f?")([A-Za-z][\w-]*)\{next', path.read_text("utf-8")):
            files[name].add(path.name)
    assert len(files) > 20
    assert {name: sorted(each) for name, each in files.items() if len(each) > 1} == {}
