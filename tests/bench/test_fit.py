"""Costs are found again from seconds that were made by them; a machine's factors are the medians of its ratios."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.advice.advise import CostCurves, predict_amounts
from lakefmt._core.bench.cells import WORKLOADS, BenchCell, choices_to_try, workload
from lakefmt._core.bench.run import CellRecord, fit_curves, machine_factors, nonnegative_fit

TRUE = CostCurves(
    {
        "write": {
            "commits": 0.02,
            "delta_commits": 0.02,
            "rewritten_mb": 0.03,
            "avro_log_mb": 0.1,
            "metadata_commits": 0.05,
        },
        "service": {"compactions": 0.03, "compacted_mb": 0.02},
        "read": {"reads": 0.01, "read_mb": 0.005, "merged_mb": 0.02},
        "load": {"load_mb": 0.02, "load_files": 0.003},
    },
    "made",
)


def records(curves: CostCurves, slower: float = 1.0) -> list[CellRecord]:
    made = []
    for name in WORKLOADS:
        for rows in (10_000, 300_000):
            profile = workload(name, rows)
            for choice in choices_to_try(profile):
                amounts = predict_amounts(profile, choice)
                seconds = {
                    each: slower * curves.of(each, amounts[each]) for each in ("write", "service", "read", "load")
                }
                figures = {
                    "write_seconds": [[seconds["write"]] * 2] * 2,
                    "read_seconds": [[seconds["read"]] * 2] * 2,
                    "service_seconds": [[2 * seconds["service"]] * 2] if seconds["service"] else [],
                    "load_seconds": [seconds["load"]] * 2,
                }
                made.append(CellRecord(BenchCell("choice", name, profile, choice), figures))
    return made


def test_the_costs_that_made_the_seconds_explain_them():
    fitted = fit_curves(records(TRUE), "x")
    for record in records(TRUE):
        amounts = predict_amounts(record.cell.profile, record.cell.choice)
        for operation in ("write", "read", "service", "load"):
            wanted = TRUE.of(operation, amounts[operation])
            assert fitted.of(operation, amounts[operation]) == pytest.approx(wanted, rel=0.02, abs=1e-6)


def test_a_machine_that_is_three_times_slower_has_factors_of_three():
    own = machine_factors(records(TRUE, 3.0), TRUE, "slow")
    assert own is not None
    assert own.factors == pytest.approx({"write": 3.0, "service": 3.0, "read": 3.0, "load": 3.0}, rel=1e-3)
    assert own.seconds == TRUE.seconds


def test_few_or_failed_cells_say_nothing_of_a_machine():
    assert machine_factors(records(TRUE)[:2], TRUE, "x") is None
    assert machine_factors([replace(each, error="broken") for each in records(TRUE)], TRUE, "x") is None


@given(st.integers(0, 10_000))
def test_a_fit_is_never_negative_and_no_step_along_one_column_makes_it_nearer(seed):
    rng = np.random.default_rng(seed)
    matrix, target = rng.random((12, 5)), rng.standard_normal(12)
    values = np.array(nonnegative_fit(matrix, target))
    assert (values >= 0).all()
    least = np.sum((matrix @ values - target) ** 2)
    for column in range(5):
        for step in (1e-3, -1e-3):
            moved = values.copy()
            moved[column] = max(0.0, moved[column] + step)
            assert np.sum((matrix @ moved - target) ** 2) >= least - 1e-9
