"""`lakefmt advise` says what `Table.advise` says; `lakefmt bench` measures, shows, resumes and writes a page."""

from __future__ import annotations

import json

import pytest

import lakefmt
from lakefmt._core.advice.profiling import cache_path, load_curves, shipped_curves


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Keep costs in the test's folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_advise_says_what_the_method_says(run, trips):
    shown = run("advise", trips, "--reads-per-commit", "4", "--filter-column", "fare").stdout
    advice = lakefmt.open_table(trips).advise(reads_per_commit=4, filter_columns=["fare"])
    assert shown == f"{advice}\n"
    assert json.loads(run("advise", trips, "--json").stdout)["reasons"][0].startswith("A usual commit brings")


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("--filter-column", "none"), 1, "no column 'none'"),
        (("--reads-per-commit", "-1"), 2, "is not in the range"),
        (("--reads-per-commit", "many"), 2, "is not a valid float"),
    ],
)
def test_advise_refuses_what_cannot_be(run, trips, words, status, says):
    assert says in run("advise", trips, *words, status=status).stderr


def test_advise_of_no_table_is_one_line(run, tmp_path):
    assert run("advise", tmp_path / "none", status=1).stderr.startswith("error[table_not_found]")


@pytest.mark.slow
def test_bench_measures_resumes_and_writes_a_page(run, tmp_path):
    words = ("bench", "clustering", "--workload", "dimension", "--rows", "500", "--commits", "1")
    shown = run(*words, "--resume", tmp_path / "r.jsonl", "--html", tmp_path / "page.html", "--minutes", "5").stdout
    assert "4 of 4 measured, 0 of them before" in shown
    assert "hilbert by n, m" in shown
    assert "<svg" in (tmp_path / "page.html").read_text("utf-8")
    again = json.loads(run(*words, "--resume", tmp_path / "r.jsonl", "--json").stdout)
    assert (len(again["records"]), again["left"]) == (4, 0)
    assert len((tmp_path / "r.jsonl").read_text("utf-8").splitlines()) == 4


def test_bench_without_minutes_measures_nothing_and_names_what_is_left(run):
    done = run("bench", "index", "--workload", "facts", "--rows", "500", "--minutes", "0")
    assert "0 of" in done.stdout
    assert "were left" in done.stderr
    assert not cache_path().exists()


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("bench", "speed"), 2, "is not one of"),
        (("bench", "index", "--workload", "nothing"), 2, "is not one of"),
        (("bench", "index", "--rows", "1"), 2, "is not in the range"),
        (("bench", "index", "--like", "t", "--workload", "facts"), 2, "not both"),
        (("bench", "index", "--like", "nowhere"), 1, "error[table_not_found]"),
    ],
)
def test_bench_refuses_what_cannot_be(run, words, status, says):
    assert says in run(*words, status=status).stderr


def test_bench_refuses_a_file_that_is_none_of_its_own(run, tmp_path):
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n', "utf-8")
    said = run(
        "bench", "index", "--workload", "facts", "--resume", tmp_path / "other.jsonl", "--minutes", "0", status=1
    )
    assert "is not a result of the suite" in said.stderr
    assert (tmp_path / "other.jsonl").read_text("utf-8") == '{"a": 1}\n'


@pytest.mark.slow
def test_bench_like_a_table_imitates_it_and_keeps_the_costs_of_this_machine(run, trips, tmp_path, monkeypatch):
    from lakefmt._core.bench import run as runs

    asked = []

    def measured(cell, seconds):
        asked.append(cell)
        return {
            "load_seconds": [2.0, 2.0],
            "write_seconds": [[1.0, 1.0]] * 2,
            "service_seconds": [],
            "read_seconds": [[1.0, 1.0]] * 2,
            "look_up_seconds": [],
            "files_touched": 1,
            "memory_bytes": None,
            "commits_behind": 0,
        }

    monkeypatch.setattr(runs, "measure_apart", measured)
    run("bench", "compaction", "--like", trips, "--resume", tmp_path / "r.jsonl", "--json")
    profile = asked[0].profile
    assert (profile.rows, profile.partitions) == (3, 2)
    assert cache_path().exists()
    assert load_curves().factors
    assert not shipped_curves().factors
