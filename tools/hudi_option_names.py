"""Ask Hudi's JARs which options they publish, and say what lakefmt does not know: the tool behind lakefmt/_core/config/hudi_options.py.

    python tools/hudi_option_names.py              what no module of lakefmt knows, of every JAR that `make spark-env` found
    python tools/hudi_option_names.py 1.2.0        all options of one release: name, older names, default value and class

A name that is missing goes into lakefmt/_core/config/hudi_options.py below its reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from lakefmt._core.config.hudi_options import find_published
from lakefmt._core.config.settings import SETTINGS
from lakefmt.spark.options import ALIASES, find_option

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "tools" / "OptionNames.java"
SUMMARY = ROOT / ".cache" / "spark_env.json"


def options_of(java: str, bundle: str, spark_jars: str) -> list[list[str]]:
    """Return the options that a JAR's classes declare: name, older names with commas, default value, class.

    Args:
        java: the folder of a JDK.
        bundle: Hudi's JAR.
        spark_jars: the folder of Spark's JARs, whose classes those of Hudi need.
    """
    command = [
        str(Path(java) / "bin" / "java"),
        "-XX:TieredStopAtLevel=1",
        "-cp",
        os.pathsep.join((bundle, f"{spark_jars}/*")),
        str(PROGRAM),
        bundle,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def names_of(rows: list[list[str]]) -> set[str]:
    """Return all names, older ones included."""
    return {row[0] for row in rows} | {older for row in rows for older in row[1].split(",") if older}


def is_known_to_spark(name: str) -> bool:
    """Return whether Spark's reader and writer know an option, honoured, inert or refused."""
    small = name.lower()
    return bool(find_option(small) or small in ALIASES or is_known_in_python(name))


def is_known_in_python(name: str) -> bool:
    """Return whether a call of a table knows an option, honoured, inert or refused."""
    return name in SETTINGS or find_published(name) is not None


def spark_jars(python: str) -> str:
    """Return the folder of the JARs that an interpreter's pyspark has."""
    text = "import pyspark, pathlib; print(pathlib.Path(pyspark.__file__).parent / 'jars')"
    return subprocess.run([python, "-c", text], capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Print what is asked for; the exit code says whether something is missing."""
    environment = json.loads(SUMMARY.read_text("utf-8"))
    jars, missing = spark_jars(environment["python"]), set()
    for release, bundle in environment["bundles"].items():
        if sys.argv[1:] in ([], [release]):
            rows = options_of(environment["java"], bundle, jars)
            missing |= {name for name in names_of(rows) if not (is_known_in_python(name) and is_known_to_spark(name))}
            if sys.argv[1:]:
                print("\n".join("\t".join(row) for row in rows))
    print("\n".join(sorted(missing)) or "no name is missing", file=sys.stderr)
    return bool(missing)


if __name__ == "__main__":
    raise SystemExit(main())
