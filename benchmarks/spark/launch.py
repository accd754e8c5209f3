"""Start a script in the interpreter that has PySpark and Hudi's JAR."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = "1.2.0"


def find_spark() -> dict[str, Any] | None:
    """Return where PySpark, Java and the bundles are; None, and a line on the terminal, where one is missing."""
    program = [sys.executable, str(ROOT / "tools" / "spark_env.py")]
    paths: dict[str, Any] = json.loads(subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True).stdout)
    if paths["python"] and paths["java"] and paths["bundles"].get(BUNDLE):
        return paths
    print(f"Spark is missing: {', '.join(paths['missing'])}")
    return None


def run_work(paths: Mapping[str, Any], script: Path, *arguments: str) -> None:
    """Run `script` with PySpark 3.5, Hudi's JAR named in its environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    variables = {**kept, "JAVA_HOME": str(paths["java"]), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    variables["LAKEFMT_HUDI_BUNDLE"] = paths["bundles"][BUNDLE]
    subprocess.run([str(paths["python"]), str(script), *arguments], env=variables, check=True)
