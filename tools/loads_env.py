"""Fetch clients of others, judges of loads over HTTP: ``python tools/loads_env.py``; ``--find`` only looks.

Maven copies the connector of Flink that has StarRocks' own Java client in it, and what it logs with (13 MB), to ``.cache/starrocks``; pip puts a client in Python (0.2 MB)
into ``.cache/doris``. The folders and the Java are printed as JSON; what
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
CACHE = ROOT / ".cache"
#: The client is shaded into the connector; lz4 is what Flink would bring.
ARTIFACTS = (
    ("com.starrocks", "flink-connector-starrocks", "1.2.10_flink-1.18"),
    ("org.lz4", "lz4-java", "1.8.0"),
    ("org.slf4j", "slf4j-api", "1.7.36"),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
#: Nothing of what they name.
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
FLINK = "1.19.3"
#: Flink itself, with all that it names, and the sink of its own release: 130 MB, for `make test-all`.
FLINK_ARTIFACTS = (
    *(
        ("org.apache.flink", f"flink-{part}", FLINK)
        for part in (
            *("clients", "table-api-java-bridge", "table-planner-loader", "table-runtime"),
            *("connector-base", "connector-datagen"),
        )
    ),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
FLINK_SINK = ("com.starrocks", "flink-connector-starrocks", "1.2.10_flink-1.19")
#: Flink CDC, which reads MariaDB's log, with all that it needs but MySQL's driver.
FLINK_CDC = (
    ("org.apache.flink", "flink-sql-connector-mysql-cdc", "3.2.1"),
    ("com.mysql", "mysql-connector-j", "8.0.33"),
)
#: Folder of the cache → what Maven is asked for.
WANTED = {
    "starrocks": tuple((artifact, ALONE) for artifact in ARTIFACTS),
    "flink": (*((artifact, "") for artifact in FLINK_ARTIFACTS), (FLINK_SINK, ALONE)),
    "flink_cdc": tuple((artifact, ALONE) for artifact in FLINK_CDC),
}
#: Sends what Doris and StarRocks have in common, a load in one request, by requests; it needs PyMySQL, too.
PYTHON_CLIENT = "DorisClient==1.2.22"
SECONDS = 900


def dependency(artifact: tuple[str, str, str], more: str = "") -> str:
    """Return an artifact as Maven names it."""
    group, name, release = artifact
    return f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{release}</version>{more}</dependency>"


def pom(which: str) -> str:
    """Return what Maven is asked for, for a folder."""
    wanted = "".join(dependency(artifact, more) for artifact, more in WANTED[which])
    head = '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    own = "<groupId>lakefmt</groupId><artifactId>starrocks-judge</artifactId><version>1</version>"
    return f"{head}{own}<dependencies>{wanted}</dependencies></project>\n"


def text_of(which: str) -> str:
    """Return what a folder has to have."""
    return PYTHON_CLIENT if which == "doris" else pom(which)


def is_made(which: str) -> bool:
    """Return whether the clients are there, of the releases that are wanted today."""
    stamp = CACHE / which / "complete"
    return stamp.is_file() and stamp.read_text("utf-8") == text_of(which)


def make(which: str) -> str | None:
    """Fetch the jars, or the client in Python; return None or why that failed."""
    maven = shutil.which("mvn")
    if maven is None and which != "doris":
        return "mvn not found"
    begin, folder = time.monotonic(), CACHE / which
    print(
        f"loads_env: making .cache/{which} (13 MB; flink 150 MB, flink_cdc 24 MB, doris 0.2 MB)",
        file=sys.stderr,
        flush=True,
    )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if which == "doris":
        copy = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--target",
            str(folder / "lib"),
            PYTHON_CLIENT,
        ]
    else:
        (folder / "pom.xml").write_text(pom(which), "utf-8")
        copy = [str(maven), "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
        copy += [f"-DoutputDirectory={folder / 'lib'}", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(
            copy, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return " | ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
    (folder / "complete").write_text(text_of(which), "utf-8")  # last: a half-made folder has no stamp
    print(f"loads_env: made in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return None


def main() -> int:
    """Read the command line, prepare, tell."""
    parser = argparse.ArgumentParser(description="Fetch clients of others, judges of loads over HTTP.")
    parser.add_argument("--find", action="store_true", help="look only, fetch nothing")
    parser.add_argument("--flink", action="store_true", help="fetch Flink with its sink and Flink CDC, too")
    given = parser.parse_args()
    missing: dict[str, str] = {}
    with alone("loads_env"):
        for which in (*(WANTED if given.flink else ("starrocks",)), "doris"):
            if not is_made(which):
                failed = "not made: make loads-env" if given.find else make(which)
                missing |= {} if failed is None else {which: failed}
    java, compiler = shutil.which("java"), shutil.which("javac")
    if java is None or compiler is None:
        missing["java"] = "a Java with its compiler, 17 or newer (Debian's openjdk-17-jdk-headless)"
    jars = {which: str(CACHE / which / "lib") for which in WANTED}
    told = {"java": java, "jars": jars["starrocks"], "flink": jars["flink"], "flink_cdc": jars["flink_cdc"]}
    told["doris"] = str(CACHE / "doris" / "lib")
    print(json.dumps({**told, "missing": missing}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
