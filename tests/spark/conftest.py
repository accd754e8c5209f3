"""Sessions of PySpark that run the scenarios: one for each release and whole run, since a JVM takes its time to start."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from examples.quickstart.flights import extract_flights, read_flights
from examples.spark.demo import store_batches
from tests.judges.spark import spark_environment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: The flights of the demonstration that the newest release writes; the last month arrives late.
MONTHS = (2, 9)
#: What PySpark 3.5 is asked, in a session that has Hudi's JAR, too.
OLDEST = (
    "functions",
    "registered",
    "written_by_tasks",
    "faults",
    "same_job_of_lakefmt",
    "same_job_of_hudi",
    "each_goes_on",
    "buckets_by_turns",
    "sinks",
    "takeovers",
)


def run_scenarios(python: str, folder: Path, *names: str) -> dict[str, dict]:
    """Run scenarios in a session of their own and return what they answered."""
    environment = spark_environment()
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON", "COV"))}
    variables |= {"JAVA_HOME": str(environment.java), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONWARNINGS": "ignore"}
    variables |= {"PYTHONPATH": str(ROOT)}  # this tree's lakefmt, in Spark's workers, too
    if "same_job_of_hudi" in names:
        variables["LAKEFMT_HUDI_BUNDLE"] = environment.bundles["1.2.0"]
    answers = folder / "answers.json"
    command = [python, str(HERE / "scenarios.py"), str(folder), str(answers), *names]
    with (folder / "log").open("w") as log:
        subprocess.run(command, stdout=log, stderr=log, timeout=1500, env=variables, cwd=folder, check=False)
    assert answers.exists(), (folder / "log").read_text("utf-8")[-4000:]
    return json.loads(answers.read_text("utf-8"))


def required(python: str | None) -> str:
    """Return an interpreter with pyspark, or say that there is none."""
    if python is None or spark_environment().java is None:
        pytest.fail("pyspark or Java is missing: run python tools/spark_env.py")
    return python


@pytest.fixture(scope="session")
def folder_newest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tables of the newest release are."""
    return tmp_path_factory.mktemp("newest")


@pytest.fixture(scope="session")
def pyspark_newest(folder_newest: Path) -> dict[str, dict]:
    """What the newest release of PySpark answers, with the data source that it finds on its own."""
    raw = extract_flights(folder_newest)
    store_batches(folder_newest / "batches", read_flights(raw, MONTHS), MONTHS)
    return run_scenarios(required(spark_environment().newest), folder_newest)


@pytest.fixture(scope="session")
def folder_oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tables of PySpark 3.5 are."""
    return tmp_path_factory.mktemp("oldest")


@pytest.fixture(scope="session")
def pyspark_oldest(folder_oldest: Path) -> dict[str, dict]:
    """What PySpark 3.5, which has no data sources in Python, answers."""
    return run_scenarios(required(spark_environment().python), folder_oldest, *OLDEST)
