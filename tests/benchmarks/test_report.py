"""The table of figures says what was reached, and never that something missing was."""

from __future__ import annotations

import pytest

from benchmarks import report, run
from benchmarks.report import ROWS, Goal, judge


def figure(*values, unit="s", note="", calm=None):
    ordered = sorted(values)
    made = {"values": list(values), "calm": calm or [True] * len(values), "unit": unit, "note": note}
    return made | ({"median": ordered[len(ordered) // 2], "min": ordered[0], "max": ordered[-1]} if values else {})


@pytest.mark.parametrize(
    ("goal", "ours", "theirs", "reached"),
    [
        (Goal("w", 1.6, "pyarrow"), (1.5, 1.6, 1.7), (1.0, 1.0, 1.0), True),
        (Goal("w", 1.6, "pyarrow"), (1.5, 1.7, 1.7), (1.0, 1.0, 1.0), False),
        (Goal("w", 1.6, "pyarrow"), (1.0, 1.0), (), None),
        (Goal("w", 1.6, "pyarrow"), (), (1.0,), None),
        (Goal("w", 8.0), (7.0, 8.0, 9.0), (), True),
        (Goal("w", 8.0), (7.0, 8.1, 9.0), (), False),
        (Goal("w", 4e6, at_least=True), (5e6, 3e6, 4e6), (), True),
        (Goal("w", 4e6, at_least=True), (5e6, 3e6, 3.9e6), (), False),
        (Goal("w", 12, "pyarrow", at_least=True), (1.0, 2.0), (12.0, 24.0), True),
        (Goal("w", 12, "pyarrow", at_least=True), (1.0, 2.0), (11.9, 23.9), False),
        (Goal("w", 1.0, "pyarrow", plus=30.0), (80.0, 90.0, 95.0), (60.0, 60.0, 60.0), True),
        (Goal("w", 1.0, "pyarrow", plus=30.0), (80.0, 91.0, 95.0), (60.0, 60.0, 60.0), False),
    ],
)
def test_a_goal_is_reached_by_the_median_of_its_runs(goal, ours, theirs, reached):
    figures = {"w": {"lakefmt": figure(*ours), "pyarrow": figure(*theirs)}}
    assert judge(goal, figures).reached is reached


def test_ratios_are_taken_inside_each_run():
    figures = {"w": {"lakefmt": figure(1.0, 20.0, 3.0), "pyarrow": figure(1.0, 10.0, 2.0)}}
    assert judge(Goal("w", 1.5, "pyarrow"), figures).values == (1.0, 2.0, 1.5)


def test_every_row_can_be_shown_without_figures_and_then_claims_nothing():
    asked = tuple(row for row in (*ROWS, *report.MOR_ROWS, *report.SPARK_ROWS, *report.COLD_ROWS) if row.goals)
    lines = report.table(asked, {})
    assert len(lines) == len(asked) + 2
    assert all("not measured" in line and "yes" not in line for line in lines[2:])
    assert all(line.count("|") == lines[0].count("|") for line in lines)


def results(**figures):
    machine = {"processor": "P", "cores": 2, "memory_gb": 24.0, "system": "S", "python": "3.11.0"}
    versions = {"lakefmt": {"versions": {"lakefmt": "0.1.0"}, "durability": "page cache"}}
    return {
        "machine": machine,
        "options": {"rows": 1000, "runs": 3},
        "versions": versions,
        "missing": {"pypaimon": "no such package"},
        "repeated": 4,
        "figures": figures,
    }


def test_a_page_names_machine_versions_and_who_is_missing():
    page = report.page(
        results(load={"lakefmt": figure(0.5), "deltalake": figure(0.05, 0.06, 0.07, calm=[True, False, True])})
    )
    assert "P, 2 cores, 24 GB" in page
    assert "4 runs were repeated" in page
    assert "| pypaimon | – | not measured: no such package |" in page
    row = next(line for line in page.splitlines() if line.startswith("| bulk load"))
    assert "deltalake 60.0 ms (50.0 ms–70.0 ms) [1 disturbed]" in row
    assert "**no**" in row
    assert "not measured" in row
    assert "≤ 0.9 × deltalake" in row
    assert "upsert" not in page


def test_a_peer_that_failed_says_why():
    page = report.page(results(load={"lakefmt": figure(0.5), "pyiceberg": figure(note="took too long")}))
    assert "pyiceberg – (took too long)" in page


def test_merge_on_read_and_spark_have_tables_of_their_own():
    page = report.page(
        results(
            **{
                "upsert (MOR)": {"lakefmt": figure(0.3), "pyarrow": figure(1.0), "ducklake": figure(0.2)},
                "compact (MOR)": {"lakefmt": figure(2.0), "pyarrow": figure(1.0)},
                "Avro rows, encode": {"lakefmt": figure(2.4e6, unit="rows/s")},
                "load (Spark)": {"lakefmt": figure(1.0), "hudi-spark": figure(12.5)},
            }
        )
        | {"minutes": {"mor": 2.25, "Spark": 3.0}}
    )
    rows = {line.split(" | ")[0]: line for line in page.splitlines() if line.startswith("| ")}
    assert "Minutes that each work took: mor 2.2; Spark 3.0." in page
    assert "yes<br>not measured<br>**no** |" in rows["| 1 % late upsert"]
    assert "≥ 0.6 × the speed of pyarrow | 0.50 ×" in rows["| compaction after ten 1 % upserts"]
    assert "≥ 2.50 M/s | 2.40 M/s" in rows["| Avro rows, encode"]
    assert rows["| bulk load"].endswith("| yes |")


def test_amounts():
    assert [
        report.amount(*given) for given in ((0.0123, "s"), (1.234, "s"), (12.34, "ms"), (4.5e6, "keys/s"), (1.2, "×"))
    ] == [
        "12.3 ms",
        "1.23 s",
        "12.3 ms",
        "4.50 M/s",
        "1.20×",
    ]


def test_charts_alone_leave_what_was_measured_before(tmp_path):
    path = tmp_path / "rows.json"
    measured = run.keep({"figures": {"load": {"lakefmt": 1.0}}}, path)
    assert run.keep({"figures": {}}, path) == measured
    assert run.keep({"figures": {"load": {"lakefmt": 2.0}}}, path) != measured
    assert "2.0" in path.read_text("utf-8")
