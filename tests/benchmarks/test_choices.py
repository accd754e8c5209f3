"""The tables of docs/dev/choices.md: the advice beside the best choice of all tried, and the results of the suite."""

from __future__ import annotations

import pytest

from benchmarks.choices.check_advice import LIMIT, check
from benchmarks.choices.check_advice import markdown as advice_markdown
from benchmarks.choices.write_results import joined
from benchmarks.choices.write_results import markdown as results_markdown
from lakefmt._core.advice.advise import advise_choice
from lakefmt._core.advice.profile import TableProfile
from lakefmt._core.advice.profiling import shipped_curves
from lakefmt._core.bench.cells import BenchCell, choices_to_try
from lakefmt._core.bench.run import CellRecord, append_record

PROFILE = TableProfile(rows=600, partitions=2, batch_rows=60, update_share=0.8, batch_partitions=2.0, hot_share=0.5)


def record(choice, seconds: float, label: str = "") -> CellRecord:
    cell = BenchCell("choice", "small", PROFILE, choice, label=label, commits=2)
    figures = {
        "load_seconds": [1.0, 1.0],
        "write_seconds": [[seconds, seconds]] * 2,
        "service_seconds": [],
        "read_seconds": [[0.0, 0.0]] * 2,
        "look_up_seconds": [[0.1, 0.1]],
        "files_touched": 2,
        "memory_bytes": None,
        "commits_behind": 0,
    }
    return CellRecord(cell, figures, machine="a machine")


@pytest.mark.parametrize(("advised_seconds", "misses"), [(1.0, 0), (LIMIT + 0.01, 1)])
def test_advice_that_costs_more_than_its_limit_is_a_miss(advised_seconds: float, misses: int) -> None:
    tried = choices_to_try(PROFILE)
    advised = advise_choice(PROFILE, shipped_curves(), tried).choice
    best = next(choice for choice in tried if choice != advised)
    records = [record(each, advised_seconds if each == advised else 1.0 if each == best else 9.0) for each in tried]
    checked = check([*records, *records], shipped_curves(), "clock")  # two rounds: medians count
    assert [(each.advised, each.tried, each.is_miss) for each in checked] == [(advised, len(tried), bool(misses))]
    assert checked[0].ratio == pytest.approx(advised_seconds)
    text = advice_markdown(checked, "clock", "a machine")
    assert text.startswith(f"{1 - misses} of 1 within {LIMIT}")
    assert ("a miss" in text) == bool(misses)


def test_results_are_written_by_suite_and_rows(tmp_path) -> None:
    for rows in (5000, 100):
        path = tmp_path / f"choices-index-{rows}.jsonl"
        for each in choices_to_try(PROFILE)[:2]:
            append_record(path, record(each, rows / 1e3, label=str(each)))
    lines = results_markdown(sorted(tmp_path.iterdir())).splitlines()
    assert [line for line in lines if line.startswith("#")] == ["### index, 100 rows", "### index, 5,000 rows"]
    cells = [line.split(" | ") for line in lines if "bloom index" in line or line.startswith("| cow")]
    assert {row[2] for row in cells} == {"100.0", "5,000.0"}  # milliseconds of a write
    with pytest.raises(ValueError, match="not called"):
        results_markdown([tmp_path / "other.jsonl"])


def test_results_of_other_suites_and_rows_stay() -> None:
    before = "### index, 1,000,000 rows\n\n| a |\n\n### clustering, 1,000,000 rows\n\n| c |"
    now = "### index, 5,000,000 rows\n\n| b |\n\n### clustering, 1,000,000 rows\n\n| d |"
    assert joined(before, now) == (
        "### index, 1,000,000 rows\n\n| a |\n\n### index, 5,000,000 rows\n\n| b |\n\n### clustering, 1,000,000 rows\n\n| d |"
    )
    assert joined("", now) == now
    assert joined(now, now) == now
