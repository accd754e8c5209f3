"""`run` calls the command line in this process; tables are local ones in the test's own folder."""

from __future__ import annotations

import inspect

import pytest
from click.testing import CliRunner, Result

from lakefmt._core.cli import main

TRIPS = "id:string!, city:string, fare:double, tags:list<string>, at:timestamp"
ROWS = (
    '{"id": "a", "city": "sf", "fare": 1.5, "tags": ["x", "y"], "at": "2026-01-01T10:00:00Z"}\n'
    '{"id": "b", "city": "nyc", "fare": 2.0, "tags": null, "at": "2026-01-01 11:00:00"}\n'
    '{"id": "c", "city": "sf", "fare": null, "tags": [], "at": null}\n'
)


@pytest.fixture
def run():
    """Return a function that calls `lakefmt` with words and gives back exit code, stdout and stderr."""
    # Before click 8.2 the two streams came mixed unless one asked.
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    runner = CliRunner(**apart)

    def call(*words: object, stdin: str | bytes | None = None, status: int = 0) -> Result:
        result = runner.invoke(main, [str(word) for word in words], input=stdin)
        assert result.exit_code == status, f"{result.exit_code}: {result.stdout}{result.stderr}{result.exception!r}"
        return result

    return call


@pytest.fixture
def trips(run, tmp_path):
    """Return the path of a table with three rows in two partitions, made with the command line."""
    path = tmp_path / "trips"
    run("create", path, "--schema", TRIPS, "-k", "id", "-p", "city")
    run("write", path, "--format", "jsonl", stdin=ROWS)
    return path
