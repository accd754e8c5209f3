"""Sessions of PySpark that run the scenarios: one for each release and whole run, since a JVM takes its time to start.

Where several processes run the tests, the first that needs a session's answers asks for them; the others wait and read them.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.quickstart.flights import extract_flights, read_flights
from examples.spark.demo import store_batches
from tests.judges.spark import spark_environment
from tests.judges.spark_settings import hudi_defaults

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: The releases of PySpark 4 before the newest one.
RELEASES = re.findall(r"^pyspark==(\S+)", (ROOT / "constraints" / "pyspark.txt").read_text("utf-8"), re.MULTILINE)
#: The flights of the demonstration that the newest release writes; the last month arrives late.
MONTHS = (2, 9)
#: PySpark 3.5 among the releases that serve Spark Connect; what else it answers is :func:`pyspark_oldest`.
CONNECT_3_5 = "3.5"


def run_scenarios(python: str, folder: Path, *names: str) -> dict[str, dict]:
    """Run scenarios, all without names, in a session of their own and return what they answered."""
    if not names:
        store_batches(folder / "batches", read_flights(extract_flights(folder), MONTHS), MONTHS)
    environment = spark_environment()
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON", "COV"))}
    variables |= {"JAVA_HOME": str(environment.java), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONWARNINGS": "ignore"}
    # This tree's lakefmt, in Spark's workers, too; the processes that fork them import pyarrow before.
    variables |= {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE / "preloaded")))}
    if {"same_job_of_hudi", "guides_of_hudi"} & set(names):
        variables["LAKEFMT_HUDI_BUNDLE"] = environment.bundles["1.2.0"]
        variables["HUDI_CONF_DIR"] = str(hudi_defaults(folder))
    if "connect" in names:
        variables["LAKEFMT_CONNECT_JAR"] = required(environment.connect)
    answers = folder / "answers.json"
    command = [python, str(HERE / "scenarios.py"), str(folder), str(answers), *names]
    with (folder / "log").open("w") as log:
        subprocess.run(command, stdout=log, stderr=log, timeout=1500, env=variables, cwd=folder, check=False)
    assert answers.exists(), (folder / "log").read_text("utf-8")[-4000:]
    return json.loads(answers.read_text("utf-8"))


def asked_once(python: str | None, folder: Path, *names: str) -> dict[str, dict]:
    """Return what a session answers that is run once for all processes of a run."""
    program, done = required(python), folder / "complete"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            done.write_text(json.dumps(run_scenarios(program, folder, *names)), "utf-8")
        return json.loads(done.read_text("utf-8"))


def folder_of_run(factory: pytest.TempPathFactory, name: str) -> Path:
    """Return a folder that all processes of a run share."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder


def required(file: str | None) -> str:
    """Return an interpreter with pyspark, or a JAR, or say that there is none."""
    if file is None or spark_environment().java is None:
        pytest.fail("pyspark, Java or a JAR is missing: run python tools/spark_env.py --releases")
    return file


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let a run of `spark_release` ask the sessions of all its releases; any other asks that of the newest one."""
    if "release" in metafunc.fixturenames and metafunc.config.option.markexpr == "spark_release":
        asked = [*RELEASES, *([CONNECT_3_5] if "connected" in metafunc.fixturenames else [])]
        releases = [pytest.param(release, marks=pytest.mark.spark_release) for release in asked]
        metafunc.parametrize("release", releases, indirect=True, scope="session")


@pytest.fixture(scope="session")
def release(request: pytest.FixtureRequest) -> str:
    """A release of PySpark 4, or 3.5 for Spark Connect; empty: the newest."""
    return getattr(request, "param", "")


@pytest.fixture(scope="session")
def folder_4(tmp_path_factory: pytest.TempPathFactory, release: str) -> Path:
    """Where the tables of a release of PySpark 4 are."""
    return folder_of_run(tmp_path_factory, f"pyspark-{release or 'newest'}")


@pytest.fixture(scope="session")
def pyspark_4(folder_4: Path, release: str) -> dict[str, dict]:
    """What a release of PySpark 4 answers, with the data source that it finds on its own."""
    environment = spark_environment()
    if release == CONNECT_3_5:
        return asked_once(environment.python, folder_4, "connect")
    return asked_once(environment.releases.get(release) if release else environment.newest, folder_4)


@pytest.fixture(scope="session")
def connected(pyspark_4: dict[str, dict]) -> dict[str, dict]:
    """What a client of Spark Connect was answered."""
    return pyspark_4["connect"]


@pytest.fixture(scope="session")
def python_newest() -> str:
    """An interpreter that has the newest release of PySpark."""
    return required(spark_environment().newest)


#: Of the command line: Python alone, so those of this environment serve any other.
COMMAND_LINE = ("click", "rich", "pygments", "markdown_it", "mdurl")


@pytest.fixture
def spark_command_variables(tmp_path: Path, python_newest: str) -> Mapping[str, str]:
    """The variables with which the newest PySpark runs lakefmt's command line, in two threads of this machine."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in COMMAND_LINE:
        found = find_spec(name)
        assert found is not None
        assert found.origin is not None
        (packages / name).symlink_to(Path(found.origin).parent)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON", "COV"))}
    return kept | {
        "JAVA_HOME": str(spark_environment().java),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python_newest,
        "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false pyspark-shell",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE / "preloaded"), str(packages)]),
        "PYTHONWARNINGS": "ignore",
    }


@pytest.fixture(scope="session")
def folder_oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tables of PySpark 3.5 are."""
    return folder_of_run(tmp_path_factory, "oldest")


@pytest.fixture(scope="session")
def pyspark_oldest(request: pytest.FixtureRequest, folder_oldest: Path) -> dict[str, dict]:
    """What PySpark 3.5, which has no data sources in Python, answers in a session that has Hudi's JAR, too.

    It is asked the scenarios that the tests of this run name by `pytest.mark.scenarios`.
    """
    names = {name for item in request.session.items for mark in item.iter_markers("scenarios") for name in mark.args}
    return asked_once(spark_environment().python, folder_oldest, *sorted(names))
