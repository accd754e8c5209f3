"""Apache Hudi on Spark beside lakefmt: rounds of their own, since one of them takes a minute."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness.data import Dataset
from benchmarks.harness.field import Field
from benchmarks.harness.rounds import Rounds

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = "1.2.0"
SUFFIX = " (Spark)"


def run_spark(stage: Field, data: Dataset) -> None:
    """Measure load, upsert and 100-row upserts of lakefmt and of Hudi on Spark; without Spark, say what is missing."""
    found, home = _tool("spark_env.py"), _tool("bench_env.py", "spark")
    bundle, python = found["bundles"].get(BUNDLE), home["python"].get("spark")
    if not (python and found["java"] and bundle):
        lacking = [*found["missing"], *home["missing"].values()]
        stage.missing["hudi-spark"] = f"not found: {', '.join(lacking)}"
        stage.say(f"hudi-spark takes no part: {stage.missing['hudi-spark']}")
        return
    scratch = stage.work / "spark"
    scratch.mkdir(exist_ok=True)
    stage.pythons["hudi-spark"] = python
    stage.environ["hudi-spark"] = {
        "JAVA_HOME": found["java"],
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(scratch),
        "LAKEFMT_BENCH_HUDI": bundle,
        "LAKEFMT_BENCH_SCRATCH": str(scratch),
    }
    # The scan checks the load; its own time is that of a detour over Parquet, and no figure.
    Rounds(stage, data, ["lakefmt", "hudi-spark"], ("load", "scan", "upsert", "tiny"), SUFFIX, patient=True).run()
    stage.figures.pop(f"scan{SUFFIX}", None)
    stage.versions.get("hudi-spark", {}).get("versions", {})["hudi-spark3.5-bundle"] = BUNDLE
    stage.retire()


def _tool(*command: str) -> dict[str, Any]:
    """Run one of the tools that prepare an environment and return what it found."""
    program = [sys.executable, str(ROOT / "tools" / command[0]), *command[1:]]
    return dict(json.loads(subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True).stdout))
