"""Fixtures that bring the judges into any test, and the closing lines that say whether they judged.

Registered once, by `tests/conftest.py`: ``pytest_plugins = ["tests.judges.plugin"]``.

* ``spark_judge`` (Hudi 1.2.0), ``spark_judge_102`` (Hudi 1.0.2), ``spark_judge_0150``, ``hudi_rs_judge``: one each per session, started by
  the first request. Tests of the older releases run after all others, so that JVMs need not take turns.
* A judge that is missing fails its tests where ``CI=true``; elsewhere they are skipped, and the closing lines say
  ``NOT JUDGED BY …`` and why.
* With ``--dist loadgroup --no-loadscope-reorder`` one process runs a file's tests of Spark, one all those of an older
  release, and one all those of a session of PySpark: two processes have two JVMs side by side from the first test to the
  last, at the end one of either older release. What takes longest comes first, so that both end together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.judges.hudi_rs import HudiRsJudge, hudi_rs_missing
from tests.judges.mariadb import MariaServer, mariadb_missing, mariadb_server
from tests.judges.spark import SparkJudge, spark_environment

BUNDLE_OF = {"spark_judge": "1.2.0", "spark_judge_102": "1.0.2", "spark_judge_0150": "0.15.0"}
#: Sessions of PySpark itself, in which many tests' calls run once.
SESSIONS = {"pyspark_4", "pyspark_oldest", "python_newest"}
#: What brings a JVM.
JVM_OF = {*BUNDLE_OF, *SESSIONS, "spark_with_metastore", "hive_metastore"}
#: Groups that take longest, in the order in which they are handed out; all others come after them.
FIRST = (
    "pyspark_4",
    "pyspark_oldest",
    "tests/compat/test_spark_metadata.py",
    "tests/compat/test_spark_bucket_clustering.py",
    "tests/compat/test_spark_bucket.py",
    "tests/compat/test_spark_evolved.py",
    "tests/crash/test_kills_with_spark.py",
)
LEDGER = pytest.StashKey["Ledger"]()


class Ledger:
    """Who judged and who could not: requests and versions by judge, reasons by judge."""

    def __init__(self) -> None:
        self.judged: dict[str, dict[str, int]] = {}
        self.missing: dict[str, list[str]] = {}

    def add(self, judge: str, version: str, requests: int) -> None:
        versions = self.judged.setdefault(judge, {})
        versions[version] = versions.get(version, 0) + requests

    def lack(self, judge: str, reason: str) -> None:
        reasons = self.missing.setdefault(judge, [])
        if reason not in reasons:
            reasons.append(reason)

    def merge(self, other: dict[str, Any]) -> None:
        for judge, versions in other["judged"].items():
            for version, requests in versions.items():
                self.add(judge, version, requests)
        for judge, reasons in other["missing"].items():
            for reason in reasons:
                self.lack(judge, reason)

    def lines(self) -> list[str]:
        said = []
        for judge, versions in sorted(self.judged.items()):
            named = ", ".join(f"{version}: {n}" for version, n in sorted(versions.items()))
            said.append(f"JUDGED BY {judge}: {sum(versions.values())} requests ({named})")
        return said + [f"NOT JUDGED BY {judge}: {'; '.join(r)}" for judge, r in sorted(self.missing.items())]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEDGER] = Ledger()
    config.addinivalue_line("markers", "xdist_group(name): tests that one process runs (known to xdist where it is)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: (release_number(item), place(item)))  # stable: all else keeps its order
    for item in items:
        if JVM_OF & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(group_of(item)))


def group_of(item: pytest.Item) -> str:
    """The tests that one process runs after another: of a session, of an older release, or of a file."""
    sessions = SESSIONS & set(getattr(item, "fixturenames", ()))
    if sessions:
        release = item.callspec.params.get("release", "") if hasattr(item, "callspec") else ""
        return " and ".join(
            (*sorted(sessions), *filter(None, [release]))
        )  # all answer by files that whoever asks waits for
    number = release_number(item)
    return f"Hudi {[*BUNDLE_OF.values()][number]}" if number else item.nodeid.partition("::")[0]


def place(item: pytest.Item) -> int:
    """The place of a test's group in the queue."""
    asked = JVM_OF & set(getattr(item, "fixturenames", ()))
    name = group_of(item) if asked else ""
    return FIRST.index(name) if name in FIRST else len(FIRST)


def release_number(item: pytest.Item) -> int:
    """The place of the release that an item asks in the order in which they are asked."""
    names = set(getattr(item, "fixturenames", ()))
    return max((number for number, name in enumerate(BUNDLE_OF) if name in names), default=0)


def _refuse(config: pytest.Config, judge: str, reason: str) -> None:
    config.stash[LEDGER].lack(judge, reason)
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"NOT JUDGED BY {judge}: {reason}", pytrace=False)
    pytest.skip(f"not judged by {judge}: {reason}")


def _spark(request: pytest.FixtureRequest, bundle: str) -> Iterator[SparkJudge]:
    environment = spark_environment()
    lacking = environment.missing(bundle)
    if lacking:
        _refuse(request.config, "SPARK", f"{bundle}: {lacking}")
    with SparkJudge(bundle, environment) as judge:
        yield judge
        request.config.stash[LEDGER].add("SPARK", f"Hudi {bundle}", judge.requests)


@pytest.fixture(scope="session")
def spark_judge(request: pytest.FixtureRequest) -> Iterator[SparkJudge]:
    """Apache Hudi 1.2.0 on Spark."""
    yield from _spark(request, BUNDLE_OF["spark_judge"])


@pytest.fixture(scope="session")
def spark_judge_102(request: pytest.FixtureRequest) -> Iterator[SparkJudge]:
    """Apache Hudi 1.0.2 on Spark; its first request ends the JVM of 1.2.0."""
    yield from _spark(request, BUNDLE_OF["spark_judge_102"])


@pytest.fixture(scope="session")
def spark_judge_0150(request: pytest.FixtureRequest) -> Iterator[SparkJudge]:
    """Apache Hudi 0.15.0 on Spark (table version 6); its first request ends the JVM before it."""
    yield from _spark(request, BUNDLE_OF["spark_judge_0150"])


@pytest.fixture(scope="session")
def mariadb(request: pytest.FixtureRequest) -> Iterator[MariaServer]:
    """A MariaDB server; a test that uses it makes a database of its own."""
    lacking = mariadb_missing()
    if lacking:
        _refuse(request.config, "MARIADB", lacking)
    with mariadb_server() as server:
        yield server
        request.config.stash[LEDGER].add("MARIADB", str(server.execute("select version()")[0][0]), 1)


@pytest.fixture(scope="session")
def hive_metastore(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a real Hive metastore."""
    from tests.judges.metastore import running_metastore  # few tests ask it

    environment = spark_environment()
    if environment.python is None or environment.java is None:
        _refuse(request.config, "HIVE", "pyspark or Java 17 not found; run python tools/spark_env.py")
    with running_metastore(environment) as address:
        yield address
        request.config.stash[LEDGER].add("HIVE", "Hive metastore 2.3.9", 1)


@pytest.fixture(scope="module")
def spark_with_metastore(request: pytest.FixtureRequest, hive_metastore: str) -> Iterator[SparkJudge]:
    """Apache Hudi 1.2.0 on Spark, which has the metastore's tables by name; its first request ends another JVM of Spark."""
    environment = spark_environment()
    lacking = environment.missing("1.2.0")
    if lacking:
        _refuse(request.config, "SPARK", f"1.2.0: {lacking}")
    with SparkJudge("1.2.0", environment, metastore=hive_metastore) as judge:
        yield judge
        request.config.stash[LEDGER].add("SPARK", "Hudi 1.2.0 with a Hive metastore", judge.requests)


@pytest.fixture(scope="session")
def hudi_rs_judge(request: pytest.FixtureRequest) -> Iterator[HudiRsJudge]:
    """hudi-rs, in this process."""
    lacking = hudi_rs_missing()
    if lacking:
        _refuse(request.config, "HUDI-RS", lacking)
    judge = HudiRsJudge()
    yield judge
    request.config.stash[LEDGER].add("HUDI-RS", f"hudi-rs {judge.version}", judge.requests)


# --- the closing lines --------------------------------------------------------------------------------------------


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)  # an xdist worker hands its ledger to the controller
    if output is not None:
        ledger = session.config.stash[LEDGER]
        output["judges"] = {"judged": ledger.judged, "missing": ledger.missing}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    told = getattr(node, "workeroutput", {}).get("judges")
    if told:
        node.config.stash[LEDGER].merge(told)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash[LEDGER].lines():
        terminalreporter.write_line(line, red=line.startswith("NOT"), bold=True)
