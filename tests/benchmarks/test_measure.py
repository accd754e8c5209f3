"""Medians, ratios inside one run, and the rule by which a disturbed run is repeated."""

from __future__ import annotations

import pytest

from benchmarks.harness.measure import Figure, Referee, ratios, slope


def referee(times, attempts=3):
    queue = iter(times)
    return Referee(attempts=attempts, job=lambda: next(queue), quickest=1.0)


def counted():
    calls = []

    def job():
        calls.append(len(calls))
        return len(calls)

    return calls, job


def test_a_calm_run_is_run_once():
    calls, job = counted()
    assert referee([1.0, 1.1]).run(job) == (1, True)
    assert calls == [0]


@pytest.mark.parametrize("times", [[2.0, 1.0, 1.0, 1.0], [1.0, 2.0, 1.0, 1.0]])
def test_a_disturbed_run_is_restored_and_repeated(times):
    calls, job = counted()
    restored = []
    judge = referee(times)
    assert judge.run(job, lambda: restored.append(1)) == (2, True)
    assert (calls, restored, judge.repeated) == ([0, 1], [1], 1)


def test_repetitions_are_bounded_and_the_last_one_says_that_it_was_disturbed():
    calls, job = counted()
    judge = referee([2.0] * 6)
    assert judge.run(job) == (3, False)
    assert calls == [0, 1, 2]
    assert judge.repeated == 2


def test_all_repetitions_together_have_seconds_to_spend():
    calls, job = counted()
    judge = referee([2.0] * 8)
    judge.run(job)
    assert judge.spare < Referee.spare
    judge.spare = 0.0
    assert judge.run(job) == (4, False)
    assert calls == [0, 1, 2, 3]


def test_the_quickest_calibration_is_the_measure():
    judge = referee([1.0, 0.5, 0.5, 0.5])
    assert judge.run(lambda: None) == (None, False) or judge.quickest == 0.5
    assert judge.quickest == 0.5


def test_a_figure_knows_median_and_spread():
    figure = Figure()
    assert figure.median is None
    assert "min" not in figure.as_json()
    for value in (3.0, 1.0, 2.0):
        figure.add(value)
    figure.add(10.0, calm=False)
    assert figure.as_json() == {
        "values": [3.0, 1.0, 2.0, 10.0],
        "calm": [True, True, True, False],
        "unit": "s",
        "note": "",
        "median": 2.5,
        "min": 1.0,
        "max": 10.0,
    }


def test_ratios_pair_the_runs_and_a_single_run_with_all():
    assert ratios([1.0, 4.0], [2.0, 2.0]) == [0.5, 2.0]
    assert ratios([1.0, 4.0], [2.0]) == [0.5, 2.0]
    assert ratios([1.0], []) == [] == ratios([], [1.0])


def test_a_slope_compares_the_last_with_the_first_but_the_very_first():
    each = [99.0] + [1.0] * 10 + [5.0] * 30 + [2.0] * 10
    assert slope(each) == 2.0
    assert slope([99.0, 1.0, 5.0, 2.0], edge=1) == 2.0
    assert slope([1.0] * 20) is None
