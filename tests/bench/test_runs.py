"""The runs of the suite: resumed, bounded, honest about failures; figures that a store counted."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from lakefmt._core.advice.advise import predict_amounts
from lakefmt._core.advice.profile import TableChoice, TableProfile
from lakefmt._core.bench import measure
from lakefmt._core.bench.cells import SUITES, BenchCell, choices_to_try, plan_cells, workload
from lakefmt._core.bench.measure import measure_cell, seconds_per_commit
from lakefmt._core.bench.run import (
    BenchReport,
    CellRecord,
    append_record,
    load_records,
    measure_apart,
    page_of,
    pareto_front,
    rows_by_workload,
    run_cells,
)
from lakefmt.errors import CorruptFile, InternalError, InvalidInputError
from tests.kit import values_of_run

SMALL = TableProfile(rows=600, partitions=2, batch_rows=60, update_share=0.8, batch_partitions=2.0, hot_share=0.5)


def cell(choice: TableChoice | None = None, **more) -> BenchCell:
    return BenchCell("choice", "small", SMALL, choice or TableChoice(), **{"commits": 2, **more})


def figures(write: float = 1.0, read: float = 0.5) -> dict[str, object]:
    return {
        "load_seconds": [1.0, 1.0],
        "write_seconds": [[write, write]] * 2,
        "service_seconds": [],
        "read_seconds": [[read, read]] * 2,
        "look_up_seconds": [[0.1, 0.1]],
        "files_touched": 2,
        "memory_bytes": None,
        "commits_behind": 0,
    }


# ------------------------------------------------------------------------------------------------------- runs


def test_a_finished_cell_is_not_measured_again_and_a_failed_one_is(tmp_path):
    kept, asked = tmp_path / "kept.jsonl", []
    cells = [cell(label=name) for name in ("a", "b", "c")]

    def measured(each: BenchCell, seconds: float) -> dict[str, object] | str:
        asked.append(each.name)
        return "broken" if each.name == "b" and len(asked) < 4 else figures()

    first = run_cells(cells, kept, minutes=1, measure=measured)
    assert [record.error for record in first.records] == ["", "broken", ""]
    second = run_cells(cells, kept, minutes=1, measure=measured)
    assert asked == ["a", "b", "c", "b"]
    assert (second.resumed, second.left, [record.error for record in second.records]) == (2, (), ["", "", ""])


def test_the_minutes_bound_a_run_and_what_is_left_is_named(tmp_path):
    now = [0.0]

    def measured(each: BenchCell, seconds: float) -> dict[str, object] | str:
        assert seconds == 60 - now[0]
        now[0] += 25.0
        return figures() if now[0] <= 60 else "out of time"

    cells = [cell(label=str(number)) for number in range(5)]
    report = run_cells(cells, tmp_path / "k", minutes=1, measure=measured, clock=lambda: now[0])
    assert [record.cell.name for record in report.records] == ["0", "1"]
    assert [each.name for each in report.left] == ["2", "3", "4"]


def test_a_torn_line_is_measured_again_and_damages_no_other(tmp_path):
    kept = tmp_path / "kept.jsonl"
    append_record(kept, CellRecord(cell(label="a"), figures()))
    with kept.open("ab") as file:
        file.write(b'{"cell": {"ki')  # the process ended here
    append_record(kept, CellRecord(cell(label="b"), figures()))
    assert [record.cell.name for record in load_records(kept)] == ["a", "b"]


@pytest.mark.parametrize("line", ["[]", "{}", '{"figures": {}}', '{"figures": {}, "cell": {"kind": "x"}}', '"a"'])
def test_a_file_of_something_else_is_refused(line, tmp_path):
    (tmp_path / "k").write_text(line + "\n", "utf-8")
    with pytest.raises(CorruptFile, match="line 1"):
        load_records(tmp_path / "k")


def test_different_cells_have_different_names_for_resuming():
    cells = [
        each
        for suite in SUITES
        for name in ("facts", "events")
        for each in plan_cells(suite, {name: workload(name, 900)})
    ]
    assert len({each.id for each in cells}) == len(cells)
    assert cell().id == cell().id != replace(cell(), commits=3).id


def test_an_unknown_suite_is_refused():
    with pytest.raises(InvalidInputError):
        plan_cells("everything", {})


# ------------------------------------------------------------------------------------------------------- figures


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_bytes_are_those_that_the_store_moved(kind, tmp_path):
    found = measure_cell(cell(TableChoice(kind, compact_after=2 if kind == "mor" else 0)), tmp_path / "t")
    on_disk = sum(path.stat().st_size for path in (tmp_path / "t" / "counted").rglob("*") if path.is_file())
    assert found["space_bytes"] <= on_disk
    written = found["bytes_written"]
    assert 0 < written["write"] < on_disk  # the load is not among them
    assert ("service" in written) is (kind == "mor")
    total = sum(written.values())
    assert found["write_amplification"] == pytest.approx(total / found["bytes_given"], rel=1e-3)
    assert found["bytes_read"]["read"] > 0
    assert len(found["write_seconds"]) == len(found["read_seconds"]) == 2


def test_a_table_that_lost_rows_is_no_result(tmp_path, monkeypatch):
    whole = measure.RowSource.expected_rows
    monkeypatch.setattr(measure.RowSource, "expected_rows", property(lambda self: whole.fget(self) + 1))
    with pytest.raises(InternalError, match="rows after 1 commits"):
        measure_cell(cell(counted=False), tmp_path / "t")


def test_a_table_with_an_old_value_is_no_result(tmp_path, monkeypatch):
    whole = measure.RowSource.expected_total
    monkeypatch.setattr(measure.RowSource, "expected_total", property(lambda self: whole.fget(self) - 1))
    with pytest.raises(InternalError):
        measure_cell(cell(counted=False), tmp_path / "t")


@pytest.mark.slow
@pytest.mark.parametrize("suite", values_of_run(SUITES))
def test_every_cell_of_a_suite_runs(suite, tmp_path):
    profile = replace(SMALL, rows=300, batch_rows=20, delete_share=0.1)
    for number, each in enumerate(plan_cells(suite, {"small": profile}, commits=1)):
        found = measure_cell(each, tmp_path / str(number))
        assert json.loads(json.dumps(found)) == found, each.name


@pytest.mark.slow
def test_predicted_amounts_are_near_to_what_the_store_counts(tmp_path):
    profile = TableProfile(
        rows=40_000,
        row_bytes=130.0,
        partitions=4,
        batch_rows=400,
        update_share=1.0,
        batch_partitions=2.0,
        hot_share=0.5,
    )
    for choice in (TableChoice("cow"), TableChoice("mor", "bucket", buckets=1, compact_after=2)):
        found = measure_cell(BenchCell("choice", "x", profile, choice, commits=2), tmp_path / choice.table_type)
        amounts = predict_amounts(profile, choice)
        wanted = 1e6 * (amounts["write"].get("rewritten_mb", 0) + amounts["write"].get("avro_log_mb", 0))
        assert 0.5 < found["bytes_written"]["write"] / 2 / wanted < 2.5, choice  # the timeline is among the bytes
        read = 1e6 * (amounts["read"]["read_mb"] + amounts["read"].get("read_avro_log_mb", 0))
        assert 0.5 < found["bytes_read"]["read"] / 2 / read < 2.0, choice
        if choice.table_type == "mor":
            compacted = 1e6 * amounts["service"]["compacted_mb"] * 2
            assert 0.5 < found["bytes_written"]["service"] / compacted < 2.0


@pytest.mark.slow
def test_a_cell_runs_in_a_process_of_its_own_and_is_stopped_in_time():
    found = measure_apart(cell(counted=False), 60.0)
    assert isinstance(found, dict)
    assert len(found["write_seconds"]) == 2
    assert measure_apart(cell(), 0.001) == "out of time"
    wrong = BenchCell("filter", "small", SMALL, TableChoice(), options={"filter": "coffee"})
    assert "unknown filter" in str(measure_apart(wrong, 60.0))


def test_seconds_per_commit_count_services_and_reads():
    given = figures(2.0, 1.0) | {"service_seconds": [[4.0, 1.0]]}
    assert seconds_per_commit(given, 3.0) == {"write": 2.0, "service": 2.0, "read": 3.0, "total": 7.0}
    assert seconds_per_commit(given, 0.0, clock=1)["total"] == 2.5


def test_choices_to_try_are_all_different():
    tried = choices_to_try(workload("facts", 1000))
    assert len(set(tried)) == len(tried) >= 12


# ------------------------------------------------------------------------------------------------------- pictures


def report_of(*costs: tuple[float, float]) -> BenchReport:
    records = [
        CellRecord(cell(label=f"choice <{number}> & more"), figures(*pair), machine="a machine")
        for number, pair in enumerate(costs)
    ]
    return BenchReport(tuple(records))


def test_the_page_holds_everything_itself_and_names_the_front():
    page = page_of("index", report_of((1.0, 5.0), (2.0, 2.0), (3.0, 3.0)))
    assert not re.search(r"https?://|<script|src=|href=|@import|url\(", page)
    assert "choice &lt;0&gt; &amp; more" in page
    assert "<0>" not in page
    (chart,) = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    drawn = ET.fromstring(chart)
    circles = [each for each in drawn if each.tag == "circle"]
    assert [each.get("class") for each in circles] == ["mark", "mark", "other"]
    assert len([each for each in drawn if each.tag == "polyline"]) == 1


def test_the_front_is_what_no_other_choice_beats():
    costs = [(3.0, 1.0), (1.0, 3.0), (2.0, 2.0), (2.0, 2.5), (4.0, 1.0)]
    front = pareto_front(costs)
    beaten = {
        number for number, (x, y) in enumerate(costs) if any((a <= x and b < y) or (a < x and b <= y) for a, b in costs)
    }
    assert set(front) == set(range(len(costs))) - beaten


def test_a_failed_cell_and_a_missing_yardstick_show_as_such():
    failed = CellRecord(cell(label="bad"), {}, "it broke")
    missing = CellRecord(BenchCell("filter", "small", SMALL, TableChoice(), label="y"), {"missing": "not installed"})
    tables = rows_by_workload("index", BenchReport((failed, missing)))
    assert tables["small", "choice"][0][:2] == ["bad", "failed"]
    assert tables["small", "filter"][0][:2] == ["y", "not installed"]
    page_of("index", BenchReport((failed, missing)))
