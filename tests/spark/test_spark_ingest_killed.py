"""A job by Spark that is killed by signal 9 at each stage of a round, and goes on: each row is there once.

``LAKEFMT_SPARK_INGEST_SECONDS`` (such as 600) kills it at drawn moments for so long, while files come.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import lakefmt
from tests.example_counts import seed_of_run
from tests.ingest.test_jobs_are_killed import Writers, working

SECONDS = float(os.environ.get("LAKEFMT_SPARK_INGEST_SECONDS", "0"))


def begun(folder: Path, table: Path, variables: Mapping[str, str], *more: str) -> subprocess.Popen[bytes]:
    command = [variables["PYSPARK_PYTHON"], "-m", "lakefmt", "ingest", "--engine", "spark", "--operation", "insert"]
    command += ["--source", str(folder), "--table", str(table), "--interval", "0", "--option", "min_age=0.3", *more]
    with (table.parent / "log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=dict(variables), start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a job, and the JVM that it started, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 500
    while not condition():
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        assert time.monotonic() < until, "the stage did not come"
        time.sleep(0.002)


def ids_of(table: Path) -> Counter[int]:
    return Counter(map(int, lakefmt.open_table(str(table)).read(columns=["id"])["id"].to_pylist()))


def commits_of(table: Path) -> int:
    return len(list(table.glob(".hoodie/timeline/*.commit")))


@pytest.mark.test_all
@pytest.mark.judge_spark
@pytest.mark.slow
@pytest.mark.timeout(2 * int(SECONDS) + 1500)
def test_a_job_by_spark_that_is_killed_has_each_row_once(tmp_path, spark_command_variables):
    variables = spark_command_variables
    folder, table, log = tmp_path / "in", tmp_path / "t", tmp_path / "log"
    folder.mkdir()
    writers = Writers(folder, random.Random(seed_of_run()))
    if SECONDS:
        _kill_at_drawn_moments(folder, table, variables, writers)
    else:
        for stage in ("requested", "inflight", "data", "completed"):
            for _ in range(6):
                writers.step()
            time.sleep(0.4)  # the least age of a file
            before = {path.name for path in table.rglob("*")}

            def reached(stage: str = stage, before: frozenset[str] = frozenset(before)) -> bool:
                names = {path.name for path in table.rglob("*") if path.name not in before}
                if stage == "data":
                    return any(name.endswith(".parquet") for name in names)
                if stage == "completed":
                    return any(name.endswith(".commit") for name in names)
                return any(name.endswith(f".{stage}") for name in names)

            process = begun(folder, table, variables, "--continuous")
            wait_for(reached, process, log)
            kill(process)
    process = begun(folder, table, variables, "--until-idle")
    assert process.wait(500 + SECONDS) == 0, log.read_text(errors="replace")[-3000:]
    assert ids_of(table) == writers.ids


def _kill_at_drawn_moments(folder: Path, table: Path, variables: Mapping[str, str], writers: Writers) -> None:
    """Kill jobs some seconds after their first commit, or after their start."""
    draw, end, kills = random.Random(seed_of_run() + 1), time.monotonic() + SECONDS, 0
    with working(writers):
        while time.monotonic() < end:
            done = commits_of(table)
            process = begun(folder, table, variables, "--continuous", "--source-limit", "2000000")
            if draw.random() < 0.6:  # it gets on, also where a session takes a minute to start
                wait_for(lambda done=done: commits_of(table) > done, process, table.parent / "log")
            time.sleep(draw.uniform(0, 20))
            assert process.poll() is None, (table.parent / "log").read_text(errors="replace")[-3000:]
            kill(process)
            kills += 1
    commits = len(lakefmt.open_table(str(table)).client.load().timeline.commits)
    print(json.dumps({"kills": kills, "rows": len(writers.ids), "commits": commits}))
