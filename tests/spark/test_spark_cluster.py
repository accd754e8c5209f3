"""Writes by tasks on a cluster of two hosts: tasks that fail, are slow, are killed; lost drivers; drivers side by side.

`make test-all` asks for it.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.judges.spark import spark_environment

HERE = Path(__file__).parent
THOROUGH = os.environ.get("LAKEFMT_HYPOTHESIS") == "thorough"
FAULTS = (
    "task fails",
    "task is slow",
    "executor is killed",
    "executor is killed in the look-up",
    "executor is killed after the look-up",
    "commit fails",
    "driver is lost",
)


def run_script(python: str, script: str, folder: Path) -> dict:
    """Run a script with the newest release of PySpark and return what it answers."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON", "COV"))}
    variables |= {"JAVA_HOME": str(spark_environment().java), "PYTHONWARNINGS": "ignore"}
    variables |= {"PYTHONPATH": f"{HERE.parents[1]}{os.pathsep}{HERE}"}
    answers = folder / "answers.json"
    command = [python, str(HERE / script), str(folder), str(answers)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900, env=variables, cwd=folder, check=False)
    assert answers.exists(), run.stderr[-4000:]
    return json.loads(answers.read_text("utf-8"))


@pytest.fixture(scope="module")
def cluster(python_newest: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What writes left on a cluster of the newest release of PySpark."""
    return run_script(python_newest, "cluster_faults.py", tmp_path_factory.mktemp("cluster"))


@pytest.mark.skipif(not THOROUGH, reason="takes minutes and six JVMs: make test-all asks for it")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_leaves_one_file_for_each_file_group_and_right_rows(cluster, fault):
    told = cluster[fault]
    assert told == {"happened": 1, "rows": True, "files": True, "groups": True, "pending": [], "findings": []}


@pytest.mark.skipif(not THOROUGH, reason="takes a minute and two JVMs: make test-all asks for it")
@pytest.mark.timeout(900)
def test_two_drivers_and_a_plain_process_upsert_one_table(python_newest, tmp_path):
    told = run_script(python_newest, "three_writers.py", tmp_path)
    assert told.pop("conflicts") is not None
    assert told == {
        "codes": [0, 0, 0],
        "own": True,
        "shared": [3],
        "keys": 65,
        "commits": 13,
        "pending": [],
        "findings": [],
    }


@pytest.fixture(scope="module")
def strange(python_newest: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What workers answer that have no lakefmt, another release of it, or may not write."""
    return run_script(python_newest, "strange_cluster.py", tmp_path_factory.mktemp("strange"))


#: Kind of workers → what errors of writes say, and of reads, which need no right to write.
STRANGE = {
    "without": ("Spark's workers have no lakefmt: install it", "Spark's workers have no lakefmt: install it"),
    "another": ("Spark's workers run lakefmt 0.0.9, this process", "Spark's workers run lakefmt 0.0.9, this process"),
    "denied": ("permission denied; check who owns the table's directory", ""),
}


@pytest.mark.skipif(not THOROUGH, reason="takes minutes and six JVMs: make test-all asks for it")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", STRANGE)
def test_workers_that_cannot_write_are_told_of_in_one_sentence_and_nothing_is_written(strange, kind):
    answers, (write, read) = strange[kind], STRANGE[kind]
    for call in ("new", "upsert", "save"):
        assert write in answers[call]["text"], call
        assert answers[call]["type"] == ("StorageError" if kind == "denied" else "UnsupportedFeature"), call
    assert read in answers["read"]["text"]
    assert bool(answers["read"]["type"]) is bool(read)
    # Of a table that was to be made there is nothing, or nothing in it.
    assert not answers["made"]["rows"]
    assert answers["left"] == {"rows": 60, "commits": 1, "pending": [], "findings": []}
    assert answers["after"] == {"rows": 80, "commits": 2, "pending": [], "findings": []}
