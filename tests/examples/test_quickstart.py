"""The quickstart on two months: all comparisons agree, and one differs when one value is wrong."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import lakefmt
from examples.quickstart import comparison, expected, quickstart
from examples.quickstart.__main__ import main
from examples.quickstart.flights import deliveries, extract_flights, first_load, read_flights
from examples.quickstart.output import draw_directory
from examples.quickstart.quickstart import run_quickstart
from lakefmt._core.cli.formatters import plain_console
from lakefmt.errors import InternalError, InvalidInputError, TableExists, UnsupportedFeature
from tests.kit import values_of_run

MONTHS = (1, 12)


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    return extract_flights(tmp_path_factory.mktemp("raw"))


@pytest.fixture(scope="module")
def reports(raw):
    return read_flights(raw, MONTHS)


@pytest.fixture
def quick(monkeypatch, raw):
    """The quickstart without unpacking the file anew."""
    monkeypatch.setattr(quickstart, "extract_flights", lambda _folder: raw)
    return run_quickstart


@pytest.mark.slow
def test_all_judges_agree_on_two_months(quick, tmp_path, monkeypatch, hudi_rs_judge):
    monkeypatch.chdir(tmp_path)
    report = quick(Path("demo_output"), months=MONTHS)
    assert report.agrees
    assert [(check.judge, check.agrees) for check in report.checks] == [("DuckDB", True)] * 3 + [("hudi-rs", True)] * 2
    assert len({check.digest for check in report.checks}) == 3
    assert [result.operation.value for result in report.commits] == ["BULK_INSERT", *["UPSERT"] * 4, "DELETE"]
    table = lakefmt.open_table("demo_output/flights")
    assert table.read(["month"]).num_rows == report.rows
    assert hudi_rs_judge.snapshot(tmp_path / report.path).num_rows == report.rows
    assert sorted(table.partitions()) == ["month=1", "month=12"]


@pytest.mark.test_all
@pytest.mark.slow
def test_a_second_run_replaces_the_table_of_the_first(quick, tmp_path):
    first = quick(tmp_path, months=MONTHS, judges=False)
    (tmp_path / "mine.txt").write_text("stays")
    again = quick(tmp_path, months=MONTHS, judges=False)
    assert first.rows == again.rows
    assert len(lakefmt.open_table(again.path).timeline) == 6
    assert (tmp_path / "mine.txt").read_text() == "stays"
    assert again.agrees
    assert not again.checks


def test_a_table_of_somebody_else_is_left_alone(quick, tmp_path):
    (tmp_path / "flights").mkdir()
    (tmp_path / "flights" / "mine").write_text("stays")
    with pytest.raises(TableExists, match="was not made by a quickstart"):
        quick(tmp_path, months=MONTHS, judges=False)
    assert (tmp_path / "flights" / "mine").read_text() == "stays"


def test_one_month_is_too_few(tmp_path):
    with pytest.raises(InvalidInputError, match="two months"):
        run_quickstart(tmp_path, months=(1,))


# ------------------------------------------------------------------------------------------ the judges can say no


def _with_one_other_distance(table):
    first = pc.equal(pa.array(range(table.num_rows)), 0)
    values = pc.if_else(first, pa.scalar(-1, pa.int32()), table["distance"])
    return table.set_column(table.column_names.index("distance"), table.schema.field("distance"), values)


@pytest.mark.slow
@pytest.mark.parametrize("broken", values_of_run(["now", "past", "increment"]))
def test_duckdb_sees_one_wrong_value(quick, tmp_path, monkeypatch, broken):
    """One value of the many is another one; only the comparison it belongs to fails."""
    method = {"now": "after", "past": "before", "increment": "changed"}[broken]
    right = getattr(expected.Expected, method)

    monkeypatch.setattr(expected.Expected, method, lambda self: _with_one_other_distance(right(self)))
    report = quick(tmp_path, months=MONTHS)
    assert not report.agrees
    assert len([check for check in report.checks if not check.agrees]) == 1
    assert "1 rows only in lakefmt, 1 only in the other" in str(
        next(check for check in report.checks if not check.agrees)
    )


@pytest.mark.test_all
@pytest.mark.slow
def test_hudi_rs_sees_one_wrong_value(quick, tmp_path, monkeypatch, hudi_rs_judge):
    read = quickstart.read_with_hudi_rs

    def sabotaged(path, as_of=None):
        base = max(path.glob("month=12/*.parquet"), key=lambda file: file.name.rsplit("_", 1)[-1])
        pq.write_table(_with_one_other_distance(pq.read_table(base, partitioning=None)), base)
        return read(path, as_of)

    monkeypatch.setattr(quickstart, "read_with_hudi_rs", sabotaged)
    report = quick(tmp_path, months=MONTHS)
    assert [(check.what, check.judge) for check in report.checks if not check.agrees] == [("the table now", "hudi-rs")]
    assert hudi_rs_judge.snapshot(report.path, columns=["distance"])["distance"].to_pylist().count(-1) == 1


@pytest.mark.slow
def test_a_table_that_hudi_rs_refuses_is_our_fault(quick, tmp_path):
    report = quick(tmp_path, months=MONTHS, judges=False)
    (tmp_path / "flights" / ".hoodie" / "hoodie.properties").write_text("nonsense")
    with pytest.raises(InternalError, match="hudi-rs cannot read what was written"):
        comparison.read_with_hudi_rs(Path(report.path))


@pytest.mark.slow
def test_a_difference_ends_with_status_one(tmp_path, monkeypatch):
    report = quickstart.QuickstartReport(
        str(tmp_path), checks=[comparison.Check("the table now", "DuckDB", 1, 2, "a", "b", "why")]
    )
    monkeypatch.setattr("examples.quickstart.__main__.run_quickstart", lambda *_args, **_how: report)
    result = CliRunner().invoke(main, ["--path", str(tmp_path)])
    assert result.exit_code == 1
    assert "1 of 1 comparisons differ" in result.output


@pytest.mark.parametrize(("module", "name"), [("duckdb", "DuckDB"), ("hudi", "hudi-rs")])
def test_a_missing_judge_is_named_before_anything_is_made(quick, tmp_path, monkeypatch, module, name):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    monkeypatch.setattr(quickstart, "_YEAR", MONTHS)
    with pytest.raises(UnsupportedFeature, match=f"{name} is not installed.*--no-judges"):
        quick(tmp_path / "new", months=MONTHS)
    assert not (tmp_path / "new").exists()


def test_missing_flights_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr("examples.quickstart.flights.find_spec", lambda _name: None)
    with pytest.raises(UnsupportedFeature, match=r"pip install 'lakefmt\[demo\]'"):
        run_quickstart(tmp_path)


@pytest.mark.test_all
@pytest.mark.slow
def test_the_steps_are_printed(quick, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "examples.quickstart.__main__.run_quickstart", lambda folder, **how: quick(folder, months=MONTHS, **how)
    )
    result = CliRunner().invoke(main, ["--path", str(tmp_path), "--no-judges"])
    assert result.exit_code == 0
    assert "NOT COMPARED" in result.output
    assert result.output.count("●") == 6
    assert "month=12/" in result.output


# ------------------------------------------------------------------------------------------------------ the data


def test_outdated_plans_are_among_the_deliveries(reports):
    upserts, never_left = deliveries(reports, MONTHS)
    reported = reports.group_by(["carrier", "flight", "origin", "scheduled"]).aggregate([("updated", "max")])
    loaded = first_load(reports, 12)
    assert set(loaded["month"].unique().to_pylist()) == {1}
    joined = upserts[0].rows.join(reported, ["carrier", "flight", "origin", "scheduled"])
    outdated = pc.sum(pc.less(joined["updated"], joined["updated_max"])).as_py()
    assert 0 < outdated < upserts[0].rows.num_rows
    assert pc.min(upserts[0].rows["month"]).as_py() == 1
    assert never_left.num_rows == reports["dep_time"].null_count


def test_a_correction_is_the_difference_of_two_times(reports):
    upserts, _ = deliveries(reports, MONTHS)
    corrected = upserts[-1].rows
    assert corrected["arr_delay"].null_count == 0
    for row in corrected.slice(0, 20).to_pylist():
        arrived, due = (row[name] // 100 * 60 + row[name] % 100 for name in ("arr_time", "sched_arr_time"))
        assert (arrived - due - row["arr_delay"]) % 1440 == 0
        assert -720 <= row["arr_delay"] < 720


def test_the_files_of_a_folder_with_a_strange_name_are_drawn(tmp_path, capsys):
    for name in ("month=10", "month=2", "\x1b[31mred"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_bytes(b"x" * 2048)
    plain_console().print(draw_directory(tmp_path, ["month=2"]))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].endswith("3 files, 6.00 KiB")
    assert [line.split()[1] for line in lines[1:]] == ["\\x1b[31mred/", "month=2/", "└──", "month=10/"]
