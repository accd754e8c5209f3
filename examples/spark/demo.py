"""The steps of the demonstration: batches of flights, a job of Spark that writes them, readers that must agree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from examples.quickstart.comparison import Check, Checks, read_with_hudi_rs, require_hudi_rs
from examples.quickstart.expected import Expected
from examples.quickstart.flights import SCHEMA, deliveries, extract_flights, first_load, read_flights
from examples.quickstart.output import Output
from lakefmt import open_table
from lakefmt.errors import InternalError, UnsupportedFeature

__all__ = ["SparkPlace", "find_spark", "run_demo", "store_batches"]

ROOT = Path(__file__).resolve().parents[2]
_JOB = Path(__file__).with_name("job.py")
_BUNDLE = "1.2.0"


@dataclass(frozen=True)
class SparkPlace:
    """Where Spark is.

    Attributes:
        newest: an interpreter with the newest PySpark, which writes.
        python: an interpreter with PySpark 3.5, which reads with Hudi's JAR.
        java: Java's home.
        bundle: Hudi's JAR.
    """

    newest: str
    python: str
    java: str
    bundle: str


def find_spark() -> SparkPlace:
    """Return what ``tools/spark_env.py`` finds or installs.

    Raises:
        UnsupportedFeature: something is missing.
    """
    program = [sys.executable, str(ROOT / "tools" / "spark_env.py")]
    found = json.loads(subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True).stdout)
    parts = (found.get("newest"), found.get("python"), found.get("java"), found.get("bundles", {}).get(_BUNDLE))
    if not all(parts):
        raise UnsupportedFeature(f"the demonstration needs Spark: {', '.join(found['missing'])} not found")
    return SparkPlace(*map(str, parts))


def run_demo(folder: Path, spark: SparkPlace, *, months: Sequence[int], output: Output | None = None) -> list[Check]:
    """Write the flights of some months by Spark and lakefmt, and compare what four readers see with what DuckDB expects.

    Args:
        folder: the table is made in ``folder/flights``; what is there is replaced.
        spark: where Spark is.
        months: in order; the last one arrives late.
        output: prints the steps; None: nothing is printed.

    Returns:
        The comparisons.

    Raises:
        InternalError: a job of Spark failed.
        UnsupportedFeature: hudi-rs or the flights are missing.
    """
    require_hudi_rs()
    output, table = output or Output(quiet=True), folder / "flights"
    shutil.rmtree(table, ignore_errors=True)
    checks = Checks(output.check)
    with TemporaryDirectory() as scratch:
        raw = extract_flights(Path(scratch))
        store_batches(Path(scratch) / "batches", read_flights(raw, months), months)
        after = Expected(raw, months).after()
        output.heading('PySpark writes: df.write.format("lakefmt")')
        for line in _run(spark.newest, spark, ["write", str(table), f"{scratch}/batches"]).splitlines():
            output.line(line)
        output.heading("four readers read the same directory")
        checks.compare("DuckDB's rows", after, "lakefmt", open_table(str(table)).read())
        checks.compare("DuckDB's rows", after, "hudi-rs", read_with_hudi_rs(table))
        for name, python, more in (
            ("lakefmt", spark.newest, {}),
            ("hudi", spark.python, {"LAKEFMT_HUDI_BUNDLE": spark.bundle}),
        ):
            found = Path(scratch) / name
            _run(python, spark, ["read", name, str(table), str(found)], more)
            checks.compare("DuckDB's rows", after, f'Spark, format("{name}")', _rows(found))
    return checks.done


def store_batches(folder: Path, reports: pa.Table, months: Sequence[int]) -> None:
    """Store the batches in which the flights arrive, each under its number and operation.

    Args:
        folder: is made.
        reports: the flights of the months.
        months: in order; the last one arrives late.
    """
    upserts, never_left = deliveries(reports, months)
    gone = reports.join(never_left, never_left.column_names, join_type="left semi").select(SCHEMA.names)
    batches = [("bulk_insert", first_load(reports, months[-1]))]
    batches += [*(("upsert", delivery.rows) for delivery in upserts), ("delete", gone)]
    folder.mkdir()
    for number, (operation, rows) in enumerate(batches):
        pq.write_table(rows.cast(SCHEMA), folder / f"{number:02d}-{operation}.parquet")


def _run(python: str, spark: SparkPlace, arguments: Sequence[str], more: Mapping[str, str] | None = None) -> str:
    """Run the job in an interpreter with PySpark and return what it printed.

    Raises:
        InternalError: it failed.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    variables = {
        **kept,
        "JAVA_HOME": spark.java,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": str(ROOT),
        **(more or {}),
    }
    command = [python, str(_JOB), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=900, check=False)
    if done.returncode:
        raise InternalError(f"the job of Spark failed: {done.stderr[-2000:]}")
    return done.stdout


def _rows(folder: Path) -> pa.Table:
    return pq.read_table(folder).replace_schema_metadata(None)
