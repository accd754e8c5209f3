"""Ray Data and Dagster, each in an environment of its own (`make workers-env`): tables that their tasks read and write."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lakefmt
from tests.judges.plugin import _refuse

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.test_all, pytest.mark.xdist_group("workers"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def python(request: pytest.FixtureRequest) -> str:
    """The interpreter that has both, made where it is not there."""
    (ROOT / ".cache").mkdir(exist_ok=True)
    with (ROOT / ".cache/workers_env.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = subprocess.run(
            [sys.executable, "tools/venv.py", ".venv-workers", "--group", "workers"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    if made.returncode:
        _refuse(request.config, "WORKERS", made.stdout[-300:] + made.stderr[-300:])
    return str(ROOT / ".venv-workers/bin/python")


def run(python: str, *words: str) -> str:
    done = subprocess.run(
        [python, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=850,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_ray_reads_and_writes(python: str, tmp_path: Path) -> None:
    said = run(python, "tests/integrations/ray_scenario.py", str(tmp_path))
    results = [json.loads(line.removeprefix("RESULT ")) for line in said.splitlines() if line.startswith("RESULT ")]
    went = {
        f"{table_type}: {name}": well
        for each in results
        for table_type, all_ in each.items()
        for name, well in all_.items()
    }
    assert len(went) == 26
    assert [name for name, well in went.items() if not well] == []
    for table_type in ("cow", "mor"):
        table = lakefmt.open_table(tmp_path / table_type)
        assert table.check("full").is_clean


def test_assets_of_dagster_are_tables(python: str, tmp_path: Path) -> None:
    """The second run of a day replaced its rows; an asset with a record key was updated."""
    run(python, "-m", "examples.dagster_assets", str(tmp_path / "lake"))
    rides = lakefmt.open_table(tmp_path / "lake/rides")
    assert rides.count() == 6
    assert [each.operation for each in rides.timeline.entries] == ["insert_overwrite"] * 3
    assert {row["city"]: row["earned"] for row in lakefmt.open_table(tmp_path / "lake/earned").read().to_pylist()} == {
        "oslo": 8.0,
        "rom": 13.0,
    }
