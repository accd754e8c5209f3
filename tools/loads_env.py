"""Fetch StarRocks' own Java client, a judge of loads over HTTP: ``python tools/loads_env.py``; ``--find`` only looks.

Maven copies the connector of Flink that has the client in it, and what it logs with (13 MB), to ``.cache/starrocks``. The folder and the Java are printed as JSON; what
cannot be had is named under ``missing`` and the exit code stays 0: the tests that need it say so. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "starrocks"
STAMP = FOLDER / "complete"
#: The client is shaded into the connector; lz4 is what Flink would bring.
ARTIFACTS = (
    ("com.starrocks", "flink-connector-starrocks", "1.2.10_flink-1.18"),
    ("org.lz4", "lz4-java", "1.8.0"),
    ("org.slf4j", "slf4j-api", "1.7.36"),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
#: Nothing of what they name.
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
SECONDS = 900


def pom() -> str:
    """Return what Maven is asked for."""
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{release}</version>{ALONE}</dependency>"
        for group, name, release in ARTIFACTS
    )
    head = '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    own = "<groupId>lakefmt</groupId><artifactId>starrocks-judge</artifactId><version>1</version>"
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
    print("loads_env: making .cache/starrocks (13 MB)", file=sys.stderr, flush=True)
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
    print(f"loads_env: made in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return None


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Let one process at a time of this clone fetch."""
    FOLDER.parent.mkdir(exist_ok=True)
    with open(FOLDER.parent / "loads_env.lock", "w") as handle:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Read the command line, prepare, tell."""
    parser = argparse.ArgumentParser(description="Fetch StarRocks' own Java client, a judge of loads over HTTP.")
    parser.add_argument("--find", action="store_true", help="look only, fetch nothing")
    given = parser.parse_args()
    missing: dict[str, str] = {}
    with alone():
        if not is_made():
            failed = "not made: make loads-env" if given.find else make()
            missing |= {} if failed is None else {"starrocks": failed}
    java, compiler = shutil.which("java"), shutil.which("javac")
    if java is None or compiler is None:
        missing["java"] = "a Java with its compiler, 17 or newer (Debian's openjdk-17-jdk-headless)"
    print(json.dumps({"java": java, "jars": str(FOLDER / "lib"), "missing": missing}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
