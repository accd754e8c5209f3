"""The whole harness at 2,000 rows: processes, tables, checks. Peers from other environments take part elsewhere."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import ClassVar

import pytest

import lakefmt
from benchmarks import charts, report, run
from benchmarks.harness import cold, commits, growth, logs, rounds, single
from benchmarks.harness.child import Child, NotOffered, PeerFailed
from benchmarks.harness.data import prepare
from benchmarks.harness.field import Field
from benchmarks.harness.measure import Referee
from benchmarks.harness.rounds import SAME_FILES, STEPS, Rounds
from benchmarks.index import bench_family, bench_key_filters
from benchmarks.metadata import bench_commit_cost, bench_lookup, bench_skipping
from benchmarks.services import bench_clustering
from benchmarks.timeline import bench_many_commits
from benchmarks.write import bench_small_appends

pytestmark = pytest.mark.slow
ROWS = 2_000


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("data"), ROWS, small=30, upserts=20)


class Lent(Child):
    """A process that goes to whoever asks next instead of ending: most of a small run would be starting them."""

    idle: ClassVar[dict[str, list[Lent]]] = {}

    def close(self):
        if self._process.poll() is not None:
            super().close()
        else:
            self.ask("close")
            self.idle.setdefault(self.peer, []).append(self)


class Lending(Field):
    """A field whose processes come back."""

    def _started(self, peer, python):
        idle = Lent.idle.get(peer)
        return idle.pop() if idle else Lent(peer, python, self.work / "logs" / f"{peer}.log")


@pytest.fixture(scope="module", autouse=True)
def processes():
    yield
    for child in [child for idle in Lent.idle.values() for child in idle]:
        Child.close(child)
    Lent.idle.clear()


@pytest.fixture
def stage(tmp_path):
    pythons = dict.fromkeys(("lakefmt", "pyarrow"), sys.executable)
    calm = Referee(attempts=1, job=lambda: 1.0)
    field = Lending(tmp_path / "work", pythons, {}, calm, 1, lambda text: None)
    field.work.mkdir()
    yield field
    field.retire()


def test_rounds_fill_every_work_and_check_every_table(stage, data, tmp_path):
    Rounds(stage, data, ["lakefmt", "pyarrow"]).run()
    assert set(stage.figures) == set(STEPS)
    for work, figures in stage.figures.items():
        also = {SAME_FILES} if work in ("scan", "look_up") else set()
        assert set(figures) == {"lakefmt", "pyarrow"} | also
        assert all(len(figure.values) == 1 and not figure.note for figure in figures.values())
    assert not stage.failures()
    names = {"machine": run.machine.describe(tmp_path), "versions": stage.versions, "missing": {}, "repeated": 0}
    figures = {work: {label: each.as_json() for label, each in found.items()} for work, found in stage.figures.items()}
    page = report.page(names | {"options": {"rows": ROWS, "runs": 1}, "figures": json.loads(json.dumps(figures))})
    assert "| 100-row upsert commit |" in page


def test_wrong_rows_are_no_figure(stage, data):
    one = Rounds(stage, data, ["pyarrow"])
    one._upserted = "2000:0000000000000000"
    one.run()
    for work in ("upsert", "tiny"):
        assert "WrongRows" in stage.figures[work]["pyarrow"].note
        assert not stage.figures[work]["pyarrow"].values
    assert stage.figures["scan"]["pyarrow"].values


@pytest.mark.test_all
def test_a_slow_load_is_not_repeated_and_the_other_works_still_get_their_table(stage, data, monkeypatch):
    slow = Rounds._ask

    def ask(self, child, step):
        return slow(self, child, step) | ({"seconds": 99.0} if step == "load" else {})

    monkeypatch.setattr(Rounds, "_ask", ask)
    monkeypatch.setattr(rounds, "ALWAYS", frozenset())
    Rounds(stage, data, ["pyarrow"]).run()
    assert stage.figures["load"]["pyarrow"].values == [99.0]
    assert "not repeated" in stage.figures["load"]["pyarrow"].note
    assert [stage.figures[work]["pyarrow"].note for work in STEPS[1:]] == [""] * 4


@pytest.mark.test_all
def test_a_disturbed_run_begins_from_the_same_table(stage, data):
    times = iter([1.0, 2.0, 1.0, 1.0] * 99)
    stage.referee = Referee(attempts=2, job=lambda: next(times), quickest=1.0)
    Rounds(stage, data, ["lakefmt"]).run()
    assert stage.referee.repeated == len(STEPS)
    assert not stage.failures()
    assert [len(stage.figures[work]["lakefmt"].values) for work in STEPS] == [1] * 5


@pytest.mark.test_all
def test_appends_and_opens(stage, data, monkeypatch):
    monkeypatch.setattr(commits, "APPENDERS", (commits.APPENDERS[0], commits.APPENDERS[4]))
    first = commits.run_appends(stage, data, 25)
    assert {label: len(each) for label, each in first.items()} == {"lakefmt, durability none": 25, "pyarrow": 25}
    assert stage.figures["append, last ten over first ten"]["pyarrow"].unit == "×"
    stage.retire()
    commits.run_opens(stage, data, (3, 5))
    assert set(stage.figures) >= {"open, 3 commits", "open, 5 commits"}
    assert not stage.failures()


@pytest.fixture
def few(monkeypatch):
    """Heaps of three upserts, not ten."""
    monkeypatch.setattr(logs, "HEAP", 3)


@pytest.mark.test_all
def test_merge_on_read_fills_every_work_and_checks_every_table(stage, data, few):
    logs.run_upserts(stage, data)
    logs.Heaps(stage, data).run()
    works = ("upsert (MOR)", "tiny (MOR)", "tenths (MOR)", "compact (MOR)")
    assert not stage.failures()
    assert {work: set(stage.figures[work]) for work in works} == {work: {"lakefmt", "pyarrow"} for work in works}
    assert set(stage.figures["scan (MOR)"]) == {"lakefmt", logs.COMPACTED}
    assert all(len(each.values) == 1 and not each.note for found in stage.figures.values() for each in found.values())
    table = lakefmt.open_table(stage.table("heap lakefmt"))
    assert table.stats().log_files == 0  # the last round has compacted it
    assert lakefmt.open_table(stage.table("heap lakefmt") + ".kept").stats().log_files >= logs.HEAP


@pytest.mark.test_all
def test_wrong_rows_behind_logs_are_no_figure(stage, data, few):
    heaps = logs.Heaps(stage, data)
    heaps.wanted = "2000:0000000000000000"
    heaps.run()
    for label in ("lakefmt", logs.COMPACTED):
        assert "WrongRows" in stage.figures["scan (MOR)"][label].note
        assert not stage.figures["scan (MOR)"][label].values


@pytest.mark.test_all
def test_log_blocks_have_a_figure_each(stage, data):
    single.run_log_blocks(stage, 500)
    asked = {row.work for row in report.MOR_ROWS if row.work.startswith(("Avro", "Parquet"))}
    assert set(stage.figures) == asked
    assert len(asked) == 10


@pytest.mark.test_all
def test_growth_has_points_for_every_kind_and_commit(stage, data, monkeypatch):
    monkeypatch.setattr(growth, "KINDS", {k: growth.KINDS[k] for k in ("copy-on-write", "Avro logs, compacted")})
    panels = growth.measure(stage, data, 6)
    assert not stage.failures()
    for panel in set(growth.PANELS) - {"bytes-read"}:  # only Linux tells what was read
        assert set(panels[panel]) == set(growth.KINDS)
        assert all([x for x, _ in pairs] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0] for pairs in panels[panel].values())
    assert [y for _, y in panels["behind"]["copy-on-write"]] == [0] * 6
    assert [y for _, y in panels["behind"]["Avro logs, compacted"]] == [1, 2, 3, 4, 0, 1]


def test_a_chart_says_who_stopped_early():
    lines = charts.in_tens({"one": [0.001] * 30, "two": [0.002] * 20}, 30)
    assert lines == {"one": [(1.0, 1.0), (11.0, 1.0), (21.0, 1.0)], "two (stopped after 20)": [(1.0, 2.0), (11.0, 2.0)]}


@pytest.mark.test_all
def test_memory_is_told_where_the_system_tells(stage, data):
    child = stage.child("lakefmt")
    stage.fresh(child, "lakefmt", data)
    answer = child.ask("resident", job="stream_in", rows=500)
    if answer["peak"] is None:
        pytest.skip("this system does not tell resident memory")
    assert answer["peak"] > 10_000_000
    assert answer["rise"] > -1_000_000  # Linux counts pages per thread and sums them up later: a few may be missing
    assert child.ask("resident", job="stream_out")["rows"] == 500


@pytest.mark.test_all
def test_every_point_of_a_chart_begins_from_the_loaded_table(stage, data, monkeypatch):
    monkeypatch.setattr(charts, "UPSERTERS", charts.UPSERTERS[1:2])
    lines = {}
    charts._upserts(stage, lines, data, {n: charts._batch(data, n) for n in (10, 20)}, charts._seconds, warm=True)
    assert [x for x, _ in lines["lakefmt, merge-on-read"]] == [10.0, 20.0]
    assert not stage.figures
    table = lakefmt.open_table(stage.table("lakefmt, merge-on-read"))
    assert len(table.timeline.entries) == 2  # the load and the last upsert: each point begins anew


@pytest.mark.test_all
def test_memory_of_an_upsert_begins_from_the_loaded_table(stage, data):
    stage.runs, stage.pythons = 2, {"lakefmt": sys.executable}
    single.run_memory(stage, data)
    assert not stage.failures()
    found = stage.figures.get("memory, upsert", {}).get("lakefmt")
    if found is None:
        pytest.skip("this system does not tell resident memory")
    assert len(found.values) == 2
    assert len(lakefmt.open_table(stage.table("memory lakefmt")).timeline.entries) == 2


@pytest.mark.test_all
def test_cold_works_are_measured_and_their_rows_compared(stage, data, monkeypatch):
    by_name = {work.name: work for work in cold.WORKS}
    tiny = replace(by_name["cold, tiny"], rows=20)
    chosen = [by_name["cold, random delete"], tiny, replace(by_name["cold, tiny (MOR)"], rows=20)]
    monkeypatch.setattr(cold, "WORKS", chosen)
    run = cold.Cold(stage, data)
    run.run()
    assert not stage.failures()
    assert {name: sorted(stage.figures[name]) for name in stage.figures} == {
        work.name: ["lakefmt", "pyarrow"] for work in chosen
    }
    assert all(len(figure.values) == 1 for figures in stage.figures.values() for figure in figures.values())
    assert run.digests["cold, random delete"].startswith(f"{ROWS - ROWS // 100}:")
    run.digests["cold, tiny"] = "other rows"
    monkeypatch.setattr(cold, "WORKS", [tiny])
    stage.figures.clear()
    run.run()
    assert "other rows" in stage.figures["cold, tiny"]["lakefmt"].note


@pytest.mark.test_all
def test_what_a_peer_cannot_do_is_said(stage, data):
    child = stage.child("pyarrow")
    with pytest.raises(PeerFailed, match="no table is open"):
        child.ask("scan")
    with pytest.raises(PeerFailed, match="AttributeError"):
        child.ask("dance")
    stage.fresh(child, "pyarrow", data)
    with stage.attempt("some work", "pyarrow"):
        raise NotOffered("it")
    assert stage.is_done("some work", "pyarrow")


@pytest.mark.test_all
def test_a_process_that_ends_is_said(stage, tmp_path):
    child = stage.child("pyarrow")
    child.kill()
    with pytest.raises(PeerFailed, match="the process ended"):
        child.ask("versions")


def test_the_command_line_refuses_what_it_does_not_know(capsys):
    with pytest.raises(SystemExit):
        run.arguments(["--works", "lode"])
    assert "there are load" in capsys.readouterr().err
    asked = run.arguments(["--quick", "--peers", "pyarrow"])
    assert (asked.rows, asked.peers) == (20_000, ["lakefmt", "pyarrow"])


def test_the_charts_that_are_there_are_shown(tmp_path):
    assert run.charts_shown(tmp_path) == ""
    for name in ("memory", "commits", "choice"):
        (tmp_path / f"{name}.svg").write_text("<svg/>", "utf-8")
    shown = run.charts_shown(tmp_path)
    assert "choice" not in shown  # another page has it
    assert shown.index("![commits](charts/commits.svg)") < shown.index("![memory](charts/memory.svg)")


def test_a_page_gets_its_measured_part(tmp_path):
    page = tmp_path / "speed.md"
    page.write_text(f"a\n{run.MARKS[0]}old\n{run.MARKS[1]}\nb\n", "utf-8")
    run.write_page("new\n", page)
    assert page.read_text("utf-8") == f"a\n{run.MARKS[0]}new\n{run.MARKS[1]}\nb\n"


@pytest.mark.test_all
def test_the_page_of_the_project_has_a_place_for_either_number_of_rows(tmp_path):
    page = tmp_path / "speed.md"
    page.write_text(run.PAGE.read_text("utf-8"), "utf-8")
    for marks in (run.MARKS, run.OTHER_MARKS, run.COLD_MARKS):
        run.write_page("new\n", page, marks)
        assert f"{marks[0]}new\n{marks[1]}" in page.read_text("utf-8")


@pytest.mark.test_all
@pytest.mark.parametrize("work", ["append", "upsert"])
def test_what_the_metadata_table_costs_is_measured_and_checked(work, tmp_path):
    kinds = list(bench_commit_cost.KINDS)
    for warm in (True, False):
        taken = bench_commit_cost.measure(tmp_path / f"{warm}", kinds, work, 3, warm=warm)
        assert {kind: len(one.clock) for kind, one in taken.items()} == dict.fromkeys(kinds, 3)


@pytest.mark.test_all
def test_small_appends_are_measured_and_checked(tmp_path):
    tiers, fill = (bench_small_appends.measure(tmp_path / way, way, 3, "none") for way in ("tiers", "fill"))
    assert (tiers.most_files, fill.most_files) == (3, 1)
    assert tiers.written == tiers.kept < fill.written


@pytest.mark.test_all
def test_many_commits_are_measured_and_their_rows_counted(tmp_path):
    first, last = bench_many_commits.measure(tmp_path / "t", 12, 2, "none")
    assert (first.commits, last.commits, last.files) == (6, 12, 12)


@pytest.mark.test_all
def test_a_metadata_table_that_lists_other_files_has_no_figure(tmp_path):
    table = bench_commit_cost.make(tmp_path / "t", "statistics", "append")
    bench_commit_cost.write(table, "append", bench_commit_cost.batch("append", 0))
    (written,) = (tmp_path / "t").glob("[!.]*/*.parquet")
    copy = f"{'0' * 8}{written.name[8:]}"
    (written.parent / copy).write_bytes(written.read_bytes())
    with pytest.raises(SystemExit, match="lists other files"):
        bench_commit_cost.check(table, "statistics", bench_commit_cost.ROWS)


@pytest.mark.test_all
def test_reads_with_a_filter():
    figures = bench_skipping.measured("lakefmt", ROWS, 3, 1)
    low, high = bench_skipping.bounds(ROWS)
    assert figures["range"][2] == figures["range without skipping"][2] == sum(range(low, high))
    assert figures["key"][2] == figures["key without skipping"][2]


@pytest.mark.test_all
def test_a_clustering_leaves_out_files():
    figures = bench_clustering.measured("hilbert", 4 * ROWS, 40_000, 3)
    assert figures.files[1] > 4
    assert figures.times > 1


@pytest.mark.test_all
def test_look_ups_in_a_record_index_are_measured_and_checked(tmp_path):
    bench_lookup.make(tmp_path / "t", 500, 2)
    bench_lookup.check(tmp_path / "t", 500)
    assert len(bench_lookup.measure(tmp_path / "t", 500, 40, 1)) == 5
    with pytest.raises(SystemExit, match="500 keys in the index"):
        bench_lookup.check(tmp_path / "t", 501)


@pytest.mark.test_all
def test_every_index_takes_part_in_the_comparison(tmp_path):
    asked = bench_family.participants(["mor"])
    results = bench_family.measure(tmp_path, 2_000, 2, asked, {"lakefmt": sys.executable})
    assert results.pop("pypaimon") == results.pop("deltalake") == "not installed"
    assert list(results) == [f"lakefmt, mor, {index}" for index in bench_family.INDEXES]
    assert all(len(taken) == 1 for taken in results.values())


@pytest.mark.test_all
def test_filters_of_keys_are_compared():
    lines = bench_key_filters.main(ROWS, 1e-3)
    assert {"Hudi's, by columns", "a set, by Arrow"} <= {line[0] for line in lines}
    assert all(false < ROWS // 100 for _, _, _, false, _ in lines)
