"""`lakefmt ingest --engine spark`: the same checkpoints, in turns with the job without Spark."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

import lakefmt
import lakefmt.ingest
from tests.example_counts import seed_of_run
from tests.judges.spark import spark_environment
from tests.kit import THOROUGH

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def answers_of(python: str, scenario: str, folder: Path, *arguments: str, seconds: int = 280) -> dict[str, Any]:
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON", "COV"))}
    variables |= {
        "JAVA_HOME": str(spark_environment().java),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
    }
    variables |= {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE / "preloaded"))), "PYTHONWARNINGS": "ignore"}
    command = [python, str(HERE / scenario), str(folder), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, env=variables, cwd=folder, timeout=seconds, check=False
    )
    lines = [line.partition("answers:")[2] for line in done.stdout.splitlines() if "answers:" in line]
    assert lines, done.stderr[-3000:]
    return json.loads(lines[0])  # type: ignore[no-any-return]


@pytest.mark.judge_spark
@pytest.mark.slow
def test_a_job_by_spark_takes_turns_with_the_job_without_it(tmp_path, python_newest):
    answers = answers_of(python_newest, "ingest_scenario.py", tmp_path)
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
@pytest.mark.timeout(900)
def test_rounds_that_delete_rows_are_one_commit_with_the_rows_of_the_job_without_spark(tmp_path, python_newest):
    """Drawn messages in three rounds, by Spark, without it, in turns; and a round that dies at effects of its commit."""
    every = 1 if THOROUGH else 5
    arguments = (str(seed_of_run()), str(every))
    answers = answers_of(python_newest, "ingest_deletes_scenario.py", tmp_path, *arguments, seconds=800)
    for effects, ended in answers.pop("deaths"):
        assert effects > 3
        for rows, checkpoints in ended:
            assert rows == [{"id": "b", "n": 2}]
            assert checkpoints == ["t,0:2", "t,0:6"]
    assert len(answers) == 5
    for name, (by_spark, by_python, *in_turns) in answers.items():
        assert by_spark == by_python, name
        assert in_turns in ([], [by_python]), name
        rows, checkpoints = by_spark
        assert rows
        assert len(set(checkpoints) - {None}) == 3


@pytest.mark.test_all
@pytest.mark.judge_spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_documented_spark_submit_commits_and_finds_modules_of_ones_own(tmp_path, spark_command_variables):
    """The command of docs/ingest.md, without the connector, which files do not need; a module may have a name that lakefmt has, too."""
    text = (ROOT / "docs/ingest.md").read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("spark-submit "))
    words = shlex.split(line)
    assert words[1] == "--packages"
    assert words[3] == ".../site-packages/lakefmt/__main__.py"
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/events.py").write_text("def doubled(rows):\n    return rows.append_column('m', rows['n'])\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"id": "a", "n": 1}\n{"id": "b", "n": 2}\n')
    job = {"source": str(tmp_path / "in"), "table": str(tmp_path / "t"), "transformers": ["python:events:doubled"]}
    settings = "".join(f"{name} = {json.dumps(value)}\n" for name, value in {**job, "key": "id", "min_age": 0}.items())
    (tmp_path / "job.toml").write_text(f"[[table]]\n{settings}")
    variables = dict(spark_command_variables)
    variables["PYTHONPATH"] += f"{os.pathsep}{tmp_path / 'modules'}"
    submit = str(Path(variables["PYSPARK_PYTHON"]).with_name("spark-submit"))
    command = [submit, "--conf", "spark.ui.enabled=false", str(ROOT / "lakefmt/__main__.py"), *words[4:]]
    done = subprocess.run(
        command, capture_output=True, text=True, env=variables, cwd=tmp_path, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = lakefmt.open_table(str(tmp_path / "t")).read().to_pylist()
    assert rows == [{"id": "a", "n": 1, "m": 1}, {"id": "b", "n": 2, "m": 2}]


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
