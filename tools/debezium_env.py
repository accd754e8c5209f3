"""Fetch Debezium's engine, a judge of change data capture: ``python tools/debezium_env.py``; ``--find`` only looks.

Maven copies the engine, its connectors and what they need (45 MB) to ``.cache/debezium``. The folder and the Java are printed as JSON; what
cannot be had is named under ``missing`` and the exit code stays 0: the tests that need it say so. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from installing import alone

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "debezium"
STAMP = FOLDER / "complete"
#: The connector of MariaDB has no later release in Maven's central repository.
RELEASE = "3.5.0.Final"
ARTIFACTS = (
    *(
        ("io.debezium", f"debezium-{part}", RELEASE)
        for part in ("api", "embedded", "connector-mariadb", "connector-postgres")
    ),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
SECONDS = 900


def pom() -> str:
    """Return what Maven is asked for."""
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{release}</version></dependency>"
        for group, name, release in ARTIFACTS
    )
    head = '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    own = "<groupId>lakefmt</groupId><artifactId>debezium-judge</artifactId><version>1</version>"
    return f"{head}{own}<dependencies>{wanted}</dependencies></project>\n"


def is_made() -> bool:
    """Return whether the jars are there, of the releases that are wanted today."""
    return STAMP.is_file() and STAMP.read_text("utf-8") == pom()


def make() -> str | None:
    """Fetch the jars; return None or why that failed."""
    maven = shutil.which("mvn")
    if maven is None:
        return "mvn not found"
    begin = time.monotonic()
    print("debezium_env: making .cache/debezium (45 MB, half a minute)", file=sys.stderr, flush=True)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    (FOLDER / "pom.xml").write_text(pom(), "utf-8")
    copy = [
        maven,
        "-q",
        "-B",
        "-f",
        str(FOLDER / "pom.xml"),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={FOLDER / 'lib'}",
    ]
    try:
        done = subprocess.run(
            copy, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return " | ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
    STAMP.write_text(pom(), "utf-8")  # last: a half-made folder has no stamp
    print(f"debezium_env: made in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return None


def main() -> int:
    """Read the command line, prepare, tell."""
    parser = argparse.ArgumentParser(description="Fetch Debezium's engine, a judge of change data capture.")
    parser.add_argument("--find", action="store_true", help="look only, fetch nothing")
    given = parser.parse_args()
    missing: dict[str, str] = {}
    with alone("debezium_env"):
        if not is_made():
            failed = "not made: make debezium-env" if given.find else make()
            missing |= {} if failed is None else {"debezium": failed}
    java, compiler = shutil.which("java"), shutil.which("javac")
    if java is None or compiler is None:
        missing["java"] = "a Java with its compiler, 17 or newer (Debian's openjdk-17-jdk-headless)"
    print(json.dumps({"java": java, "jars": str(FOLDER / "lib"), "missing": missing}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
