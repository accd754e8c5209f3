"""Errors: one line, one status, and never a secret."""

from __future__ import annotations

import json
import socket

import pytest

from lakefmt._core.cli import main
from lakefmt.errors import StorageError


def test_a_refusal_is_one_line_on_stderr(run, tmp_path):
    result = run("read", tmp_path / "nowhere", status=1)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("error[table_not_found]: ")


def test_a_refusal_is_an_object_with_json(run, tmp_path):
    result = run("read", tmp_path / "nowhere", "--json", status=1)
    assert result.stdout == ""
    error = json.loads(result.stderr)["error"]
    assert error["kind"] == "table_not_found"
    assert str(tmp_path) in error["message"]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_storage_error_says_whether_waiting_helps(run, trips, monkeypatch, as_json):
    def fail(self):
        raise StorageError("the store\nis tired \x1b[31m", transient=True)

    monkeypatch.setattr("lakefmt._core.table.Table.stats", fail)
    said = run("stats", trips, *(["--json"] if as_json else []), status=1).stderr
    if as_json:
        assert json.loads(said) == {
            "error": {"kind": "storage", "message": "the store is tired \\x1b[31m", "transient": True}
        }
    else:
        assert said == "error[storage]: the store is tired \\x1b[31m\n"


def test_an_unexpected_error_is_one_line_too(run, trips, monkeypatch):
    def fail(self):
        raise RuntimeError("oh")

    monkeypatch.setattr("lakefmt._core.table.Table.stats", fail)
    said = run("stats", trips, status=1).stderr
    assert said.startswith("error[internal]: RuntimeError: oh")
    monkeypatch.setenv("LAKEFMT_DEBUG", "1")
    assert "Traceback" in run("stats", trips, status=1).stderr


def test_a_file_that_cannot_be_written_is_named(run, trips, tmp_path):
    said = run("read", trips, "-O", tmp_path / "no" / "such" / "x.csv", status=1).stderr
    assert said.startswith("error[io]: No such file or directory: ")
    assert "x.csv" in said


@pytest.mark.parametrize(
    "words",
    [
        ["frobnicate"],
        ["read"],
        ["read", "T", "--limit", "-1"],
        ["read", "T", "--json", "--format", "csv"],
        ["read", "T", "-O", "x.unknown"],
        ["create", "T", "-k", "id"],
        ["create", "T", "--schema", "id:string", "--schema-from", "FILE", "-k", "id"],
        ["create", "T", "--schema", "id:no"],
        ["create", "T", "--schema-from", "NAMELESS"],
        ["write", "T"],
        ["write", "T", "no-such-file.csv"],
        ["write", "T", "FILE", "--delimiter", ",,"],
        ["write", "T", "FILE", "--operation", "insert", "--partial"],
        ["write", "T", "FILE", "--sort", "global"],
        ["write", "T", "FILE", "--operation", "merge"],
        ["write", "T", "FILE", "--drop-duplicates"],
        ["delete", "T"],
        ["delete", "T", "--key", "a", "--filter", "b = 1"],
        ["incremental", "T"],
        ["changes", "T"],
        ["rollback", "T"],
        ["timeline", "T", "--option", "no-sign"],
        ["timeline", "T", "--option", "a=1", "--option", "a=2"],
    ],
)
def test_wrong_usage_ends_with_two(run, trips, tmp_path, words):
    for name in ("x.csv", "nameless"):
        (tmp_path / name).write_text("id\na\n")
    meant = {"T": str(trips), "FILE": str(tmp_path / "x.csv"), "NAMELESS": str(tmp_path / "nameless")}
    said = run(*(meant.get(word, word) for word in words), status=2).stderr
    assert said.startswith("Usage: lakefmt")


SECRET = "hunter2-AKIA"


@pytest.mark.parametrize(
    "words",
    [
        ["read", "s3://bucket/t", "--storage-option", SECRET],
        ["read", "s3://bucket/t", "--storage-option", f"={SECRET}"],
        ["read", "s3://bucket/t", "--storage-option", f"secret={{{SECRET}"],
        ["read", "s3://bucket/t", "--storage-option", f"secret={SECRET}", "--storage-option", f"secret={SECRET}x"],
        ["read", "s3://bucket/t", "--storage-option", f"secret={SECRET}", "--limit", "x"],
        ["read", "nosuch://bucket/t", "--storage-option", f"secret={SECRET}"],
        ["read", "nosuch://bucket/t", "--storage-option", f"secret={SECRET}", "--json"],
        ["read", "/nowhere/t", "--storage-option", f'client_kwargs={{"secret": "{SECRET}"}}'],
    ],
)
def test_no_secret_is_shown(words, run, monkeypatch):
    monkeypatch.setenv("LAKEFMT_DEBUG", "1")
    from click.testing import CliRunner

    result = CliRunner().invoke(main, words)
    assert result.exit_code in (1, 2)
    assert SECRET not in result.output


def test_storage_options_reach_the_store_typed(run, monkeypatch):
    given = {}

    def note(path, *, options, storage_options):
        given.update(storage_options)
        raise StorageError("enough")

    monkeypatch.setattr("lakefmt._core.table.open_table", note)
    words = ["--storage-option", "anon=true", "--storage-option", "key=12", "--storage-option", 'more={"n": 1}']
    run("stats", "s3://bucket/t", *words, "--storage-option", "token=a=b", status=1)
    assert given == {"anon": True, "key": "12", "more": {"n": 1}, "token": "a=b"}


def test_every_command_and_option_explains_itself(run):
    names = [line.split()[0] for line in run("--help").stdout.split("Commands:")[1].strip().splitlines()]
    assert {"create", "write", "read", "incremental", "delete", "timeline", "files", "stats", "rollback"} <= set(names)
    for name in names:
        assert run(name, "--help").stdout.startswith(f"Usage: lakefmt {name} ")


def test_sql_says_that_the_query_comes_first(run, trips):
    assert "QUERY comes first" in run("sql", trips.name, "select 1", status=2).stderr


def test_a_page_of_a_folder_that_is_not_there_is_refused(run, tmp_path):
    assert "does not exist" in run("ui", tmp_path / "nowhere", "--port", "0", status=2).stderr


def test_a_port_that_is_taken_is_named(run, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = run("serve", "--base-path", tmp_path, "--port", port, status=1).stderr
    assert f"127.0.0.1:{port}" in said


@pytest.mark.parametrize("as_json", [True, False])
def test_warnings_of_a_job_are_lines_on_stderr(run, tmp_path, as_json):
    """A check that misspells a column holds for no row: without the warning nobody would see why."""
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.jsonl").write_text('{"id": "a", "n": 1}\n')
    config = tmp_path / "job.toml"
    config.write_text(
        f'[[table]]\nsource = "{source}"\ntable = "{tmp_path / "t"}"\nkey = "id"\nmin_age = 0\n'
        f'errors = "{tmp_path / "errors"}"\nchecks = {{ n = "nn > 0" }}\non_check_failed = "quarantine"\n'
    )
    result = run("ingest", config, *(["--json"] if as_json else []))
    line = result.stderr.splitlines()[0]
    assert "the column 'nn', which has had no value" in (json.loads(line)["warning"] if as_json else line)
    assert "1 rejected" in result.stdout or json.loads(result.stdout)["tables"][0]["rejected_rows"] == 1
