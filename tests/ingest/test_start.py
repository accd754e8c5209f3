"""What a job says before it takes a row: settings that cannot be are refused at the start, and errors are told when they come."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import lakefmt.ingest
import lakefmt.services
from lakefmt._core.cli import main
from lakefmt._core.ingest.options import TableJob
from lakefmt._core.ingest.run import Ingester, _ingester
from lakefmt.errors import InvalidInputError, LakefmtError, SchemaMismatch, TableNotFound
from lakefmt.server import LoadService
from tests.ingest.ingest_kit import NOW, ingest, job, write_rows
from tests.ingest.test_jobs import Scripted


def run_cli(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


@pytest.mark.parametrize("modes", [("--once", "--continuous"), ("--until-idle", "--once"), ("--continuous",) * 2])
def test_two_ways_to_run_are_refused(tmp_path: Path, modes: tuple[str, ...]) -> None:
    (tmp_path / "in").mkdir()
    done = run_cli("ingest", "--source", tmp_path / "in", "--table", tmp_path / "t", "--key", "id", "--dry-run", *modes)
    assert done.exit_code == (2 if len(set(modes)) > 1 else 0)
    assert ("one of them says how long" in done.output) == (len(set(modes)) > 1)


WRONG = ["n >", "drop table t", "n in (select 1)", "foo(n) > 1", "n > 0; n < 9", "", "n + 1", "regexp_matches(id, 'a')"]
RIGHT = ["n > 0", "a.b.c is null", "year(ts) = 2026", "ts - interval 1 day > '2026-01-01'", "id like 'a%'", "ok"]


@pytest.mark.parametrize("condition", [*WRONG, *RIGHT])
def test_a_check_that_cannot_be_read_is_refused_before_a_row_comes(tmp_path: Path, condition: str) -> None:
    """Its columns may come later, of whatever types."""
    (tmp_path / "in").mkdir()
    told = {"source": str(tmp_path / "in"), "table": str(tmp_path / "t"), "key": "id", "checks": {"mine": condition}}
    for call in (lambda: lakefmt.ingest.plan(told), lambda: lakefmt.ingest.run(told)):
        if condition in RIGHT:
            call()
        else:
            with pytest.raises(InvalidInputError, match="mine"):
                call()
    assert not (tmp_path / "t").exists()


def test_a_check_over_a_date_that_no_row_has_is_true_of_none(tmp_path: Path) -> None:
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a"}])
    how = {"checks": {"new": "year(ts) > 2000"}, "on_check_failed": "quarantine", "errors": str(tmp_path / "e")}
    assert job(tmp_path / "in", tmp_path / "t", **how).run().tables[0].rejected_rows == 1


def test_sql_of_a_transformer_that_cannot_be_read_is_refused_before_a_row_comes(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be read"):
        job(Scripted([]), tmp_path / "t", transformers=["SELECT FROM FROM <SRC>"])


def test_the_error_of_one_table_of_many_is_printed_once_when_it_comes(tmp_path: Path) -> None:
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a"}])
    tables = [("in", "good"), ("none", "bad")]
    (tmp_path / "job.toml").write_text(
        "".join(
            f'[[table]]\nsource = "{tmp_path / source}"\ntable = "{tmp_path / name}"\nkey = "id"\n'
            for source, name in tables
        )
    )
    done = run_cli("ingest", tmp_path / "job.toml", "--max-retry-count", 0)
    assert done.exit_code == 1
    assert done.stderr.count("error: bad: ") == 1
    alone = run_cli(
        "ingest", "--source", tmp_path / "none", "--table", tmp_path / "x", "--key", "id", "--max-retry-count", 0
    )
    assert alone.exit_code == 1
    assert alone.stderr.count("none") == 1


def test_a_folder_that_is_not_there_is_refused_by_what_would_wait_for_ever(tmp_path: Path) -> None:
    missing = tmp_path / "lake"
    with pytest.raises(TableNotFound, match="is not there"):
        lakefmt.services.run(str(missing), once=True)
    with pytest.raises(InvalidInputError, match="is not there"):
        LoadService(str(missing))
    for command in (["services", missing], ["serve", "--base-path", missing, "--port", "0"]):
        done = run_cli(*command)
        assert done.exit_code == 1
        assert "is not there" in done.stderr
    assert not missing.exists()
    missing.mkdir()
    assert lakefmt.services.run(str(missing), once=True).tables[0].state == "failed"  # tables may come later


def test_a_type_that_does_not_fit_is_told_with_table_and_column(tmp_path: Path) -> None:
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    ingest(tmp_path / "in", tmp_path / "t")
    write_rows(tmp_path / "in/b.jsonl", [{"id": "b", "n": "many"}], NOW - 50)
    with pytest.raises(SchemaMismatch) as caught:
        ingest(tmp_path / "in", tmp_path / "t")
    assert str(caught.value).startswith(f"{tmp_path / 't'}: column 'n' is int64")


@pytest.mark.parametrize("spelling", ["{}", "{}/", "file://{}", "{}/../t", "local://{}"])
def test_one_place_is_one_place_however_it_is_spelt(tmp_path: Path, spelling: str) -> None:
    (tmp_path / "in").mkdir()
    table = str(tmp_path / "t")
    other = spelling.format(table)
    one = {"source": str(tmp_path / "in"), "table": table, "key": "id"}
    two = {**one, "table": other}
    wrong: list[dict[str, Any]] = [
        {"table": [one, two]},
        {**one, "errors": other},
        {"table": [one, {**one, "table": str(tmp_path / "u"), "errors": other}]},
        {**one, "source": other, "source_kind": "table"},
        {**one, "source": spelling.format(tmp_path / "t"), "table": str(tmp_path / "t/lake")},
        {**one, "source": other, "errors": str(tmp_path / "t/e"), "table": str(tmp_path / "u")},
    ]
    for told in wrong:
        with pytest.raises(
            InvalidInputError, match=r"two jobs|rejected rows would|read and written|would lie in the folder"
        ):
            lakefmt.ingest.plan(told)
    lakefmt.ingest.plan({**one, "table": str(tmp_path / "in/_lake"), "errors": str(tmp_path / "in/.errors")})


HOSTILE: list[Any] = [
    None, True, -1, 0, 10**30, 1.5, math.nan, math.inf, "", " ", "\x00", "x" * 10_000, "\ud800", [], [[]], [None],
    {"": ""}, {"a": None}, {"a": {"b": [1]}}, object(),
]  # fmt: skip


@pytest.mark.parametrize("name", [*TableJob.__dataclass_fields__, "interval", "table.x", "unknown"])
def test_a_setting_of_any_value_is_taken_or_refused_with_a_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)  # a value may be taken for a path
    write_rows(tmp_path / "in/a.jsonl", [{"id": "a", "n": 1}])
    for number, value in enumerate(HOSTILE):
        told = {"source": str(tmp_path / "in"), "table": f"memory://hostile-{name}-{number}", "key": "id", name: value}
        for call in (Ingester.plans, Ingester.run):
            with suppress(LakefmtError):
                ingester = _ingester(told, None)
                ingester._attempts = 0
                call(ingester)
