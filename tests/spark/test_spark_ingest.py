"""`lakefmt ingest --engine spark`: the same checkpoints, in turns with the job without Spark."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import lakefmt
import lakefmt.ingest
from tests.judges.spark import spark_environment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.mark.judge_spark
@pytest.mark.slow
def test_a_job_by_spark_takes_turns_with_the_job_without_it(tmp_path, python_newest):
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON", "COV"))}
    variables |= {
        "JAVA_HOME": str(spark_environment().java),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python_newest,
    }
    variables |= {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE / "preloaded"))), "PYTHONWARNINGS": "ignore"}
    command = [python_newest, str(HERE / "ingest_scenario.py"), str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=variables, cwd=tmp_path, timeout=280, check=False
    )
    lines = [line.partition("answers:")[2] for line in done.stdout.splitlines() if "answers:" in line]
    assert lines, done.stderr[-3000:]
    answers = json.loads(lines[0])
    assert answers["rows"] == [3, 0, 2, 0, 1]
    assert answers["refused"] == ["RowsRejected", "UnsupportedFeature", "UnsupportedFeature"]
    assert answers["commits"] == 3
    assert answers["table"] == [
        {"id": "a", "n": 1, "day": "1", "new": None},
        {"id": "b", "n": 3, "day": "2", "new": None},
        {"id": "c", "n": 4, "day": "2", "new": None},
        {"id": "d", "n": 10, "day": "2", "new": 1.5},
        {"id": "x", "n": 9, "day": "1", "new": None},
    ]
    assert answers["by_spark"] == answers["by_python"]
    assert [row["n"] for row in answers["by_spark"][1] if row["id"] in ("007", "p")] == [4, 2**53 + 1]
    assert len(answers["by_spark"][2]) == 4
    assert answers["bad alone"] == [0, 0, 5]


@pytest.mark.judge_spark
@pytest.mark.slow
def test_hudis_own_reader_of_checkpoints_understands_ours(tmp_path, python_newest):
    """``CheckpointUtils`` of Hudi 1.2.0 on commits of versions 6, 8 and 9, of files and of a table."""
    environment = spark_environment()
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"id": "a", "n": 1}\n')
    os.utime(tmp_path / "in/a.jsonl", (1_700_000_000, 1_700_000_000))
    for version in (6, 8, 9):
        job = {
            "source": str(tmp_path / "in"),
            "table": str(tmp_path / f"v{version}"),
            "key": "id",
            "table_version": version,
        }
        lakefmt.ingest.run({**job, "checkpoint": "5"} if version == 9 else job)
    pull = {"source": str(tmp_path / "v8"), "source_kind": "table", "table": str(tmp_path / "pulled"), "key": "id"}
    lakefmt.ingest.run(pull)
    (planned,) = lakefmt.ingest.plan(pull)
    jars = subprocess.run(
        [environment.python, "-c", "import pyspark, os; print(os.path.dirname(pyspark.__file__))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    classes = f"{environment.bundles['1.2.0']}:{jars}/jars/*"
    tables = [str(tmp_path / name) for name in ("v6", "v8", "v9", "pulled")]
    command = [f"{environment.java}/bin/java", "-Xmx500m", "-cp", classes, str(HERE / "StoredCheckpoint.java"), *tables]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    answers = [line.removeprefix("answer ") for line in done.stdout.splitlines() if line.startswith("answer ")]
    assert answers == [
        "StreamerCheckpointV1 1700000000000 null",
        "StreamerCheckpointV1 1700000000000 null",
        "StreamerCheckpointV1 1700000000000 5",
        f"StreamerCheckpointV2 {planned.after} null",
    ]
