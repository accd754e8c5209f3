"""What PySpark writes and reads through lakefmt is what plain lakefmt and Apache Hudi on Spark read."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import lakefmt
from lakefmt.values import META_COLUMNS
from tests.judges.spark import spark_environment

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: k0, k1 and k2 were changed, the keys from k27 on deleted.
ROWS = sorted([f"k{n}", -1.0 if n < 3 else n * 1.5] for n in range(27))
ALL_ROWS = sorted([f"k{n}", n * 1.5] for n in range(30))


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
    run = subprocess.run(command, capture_output=True, text=True, timeout=400, env=variables, cwd=folder, check=False)
    assert answers.exists(), run.stderr[-4000:]
    return json.loads(answers.read_text("utf-8"))


def required(python: str | None) -> str:
    """Return an interpreter with pyspark, or say that there is none."""
    if python is None or spark_environment().java is None:
        pytest.fail("pyspark or Java is missing: run python tools/spark_env.py")
    return python


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tables of the newest release are."""
    return tmp_path_factory.mktemp("newest")


@pytest.fixture(scope="module")
def pyspark_newest(folder: Path) -> dict[str, dict]:
    """What the newest release of PySpark answers, with the data source that it finds on its own."""
    return run_scenarios(required(spark_environment().newest), folder)


@pytest.fixture(scope="module")
def pyspark_oldest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What PySpark 3.5, which has no data sources in Python, answers."""
    folder = tmp_path_factory.mktemp("oldest")
    return run_scenarios(required(spark_environment().python), folder, "functions", "registered")


def test_every_verb_and_query(pyspark_newest, folder):
    told = pyspark_newest["verbs"]
    assert told["rows"] == ROWS
    assert told["first"] == ALL_ROWS
    assert told["partitions"] == [["c0"], ["c1"], ["c2"]]
    assert (told["increment"], told["changes"]) == (27, [["d", 3], ["i", 30], ["u", 3]])
    assert told["columns"][:5] == list(META_COLUMNS)
    assert (told["types"]["at"], told["types"]["local"]) == ("timestamp", "timestamp")
    assert told["moment"] == "2026-01-02T08:04:05+00:00"
    assert json.loads(told["nested"]) == {
        "list": [5, None],
        "struct": {"a": 5},
        "map": {"m": 5},
        "price": 5.00,
        "day": "2026-01-02",
    }
    rows = lakefmt.open_table(folder / "verbs").read(["id", "v"])
    assert sorted(map(list, zip(*rows.to_pydict().values(), strict=True))) == ROWS


def test_apache_hudi_reads_and_upserts_what_pyspark_wrote(pyspark_newest, folder, spark_judge):
    assert "failed" not in pyspark_newest["verbs"]
    rows = spark_judge.snapshot(folder / "verbs", meta_columns=True)
    assert sorted(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True)) == [tuple(row) for row in ROWS]
    assert set(rows["_hoodie_partition_path"].to_pylist()) == {"c0", "c1", "c2"}


def test_logs_are_merged_by_the_tasks(pyspark_newest):
    assert pyspark_newest["merge_on_read"] == {"merged": 5, "base": 0}


def test_overwrites(pyspark_newest):
    assert pyspark_newest["overwrites"] == {
        "partition": [["c0", 1], ["c1", 3], ["c2", 3]],
        "dropped": [["c0", 1], ["c2", 3]],
        "table": [["c2", 3]],
    }


def test_sql_on_temporary_views(pyspark_newest):
    assert pyspark_newest["views"]["rows"] == [["k4"], ["k9"]]
    assert "needs a path" in pyspark_newest["views"]["catalog"]


def test_refusals_leave_nothing(pyspark_newest):
    told = pyspark_newest["refusals"]
    assert "did you mean 'hoodie.datasource.write.operation'" in told["unknown"]
    assert "does not sync to a catalog" in told["sync"]
    assert "record key field 'nope' is not a column" in told["key"]
    assert "more than 10 bytes" in told["large"]
    assert "more than 10 bytes" in told["late"]
    assert "a task fails" in told["task"]
    assert "contradicts the table property" in told["contradiction"]
    assert (told["exists"], told["rows"], told["staged"]) == (False, 50, [])


def check_functions_and_registration(told: dict[str, dict]) -> None:
    """Compare what a release answers."""
    modes, functions = told["registered"], told["functions"]
    assert "TableExists" in modes["again"]
    assert "partitionpath.field" in modes["partition_by"]
    assert "catalog table" in modes["catalog"]
    assert (modes["rows"], modes["plain"], modes["after"], modes["last"]) == (5, 5, 5, 5)
    assert (functions["created"], functions["changed"]) == (30, 3)
    assert functions["rows"] == ALL_ROWS
    assert functions["empty"] == ["id", 0]


def test_functions_and_registered_formats(pyspark_newest):
    check_functions_and_registration(pyspark_newest)


def test_functions_and_registered_formats_of_3_5(pyspark_oldest):
    check_functions_and_registration(pyspark_oldest)
