"""What every test shares: repeatable properties, and judges that nobody can forget to mark."""

from __future__ import annotations

import faulthandler
import gc
import itertools
import os
import signal
import uuid
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis.core
import pytest
from hypothesis import HealthCheck, settings

from lakefmt._core.values import RandomIds
from tests.example_counts import seed_of_run
from tests.kit import THOROUGH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.remote import Producer

    from tests.scheduling import GroupScheduling

# Before the first test file imports it.
pytest.register_assert_rewrite("lakefmt.testing.suites")
pytest_plugins = ["tests.judges.plugin", "tests.compat.exemptions"]

# A run draws from the seed of its day and prints it: LAKEFMT_SEED repeats a run. `few` is for a second run on other
# dependencies, `thorough` (make test-all) asks 75 times as often; `explore` is for a person who hunts, with fresh
# randomness and a kept example base. What a seed may draw, too large or too often refused, is no finding.
_SHARED = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
}
settings.register_profile("usual", database=None, max_examples=8, **_SHARED)
settings.register_profile("few", database=None, max_examples=4, **_SHARED)
settings.register_profile("thorough", database=None, max_examples=600, **_SHARED)
settings.register_profile("explore", max_examples=2000, **_SHARED)
PROFILE = os.environ.get("LAKEFMT_HYPOTHESIS") or "usual"
settings.load_profile(PROFILE)
if PROFILE != "explore":
    hypothesis.core.global_force_seed = seed_of_run()

#: Fixtures that run PySpark itself.
SESSIONS = {"pyspark_4", "pyspark_oldest", "python_newest"}
#: Marker → the fixtures that bring its judge. A missing judge skips or fails in the fixture, with a closing line.
JUDGES = {
    "judge_spark": {
        "spark_judge",
        "spark_judge_102",
        "spark_judge_0150",
        "spark_with_metastore",
        "hive_metastore",
        *SESSIONS,
    },
    "judge_rs": {"hudi_rs_judge"},
}
#: The folders that may have tests of Spark: a run of them alone looks into no other.
SPARK_FOLDERS = {"check", "compat", "crash", "judges", "spark"}
#: A JVM that starts on a busy machine takes its time; a test that hangs is stopped all the same.
SECONDS_FOR_A_JUDGE = 420
#: A session of PySpark runs all its scenarios when the first test asks for it.
SECONDS_FOR_A_SESSION = 1600


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the folders without tests of Spark where a run is one of Spark alone: to read all tests takes 20 s."""
    only_spark = config.option.markexpr in ("judge_spark", "spark_release")
    only_spark = only_spark and collection_path.parent == Path(__file__).parent
    return True if only_spark and collection_path.is_dir() and collection_path.name not in SPARK_FOLDERS else None


def pytest_report_header() -> str:
    """Name the seed: with it a failure is seen again."""
    return f"drawn with LAKEFMT_SEED={seed_of_run()}, profile {PROFILE}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run ask part of the cases."""
    parser.addoption(
        "--cases-of-each", type=int, default=1, metavar="N", help="ask one in N of a test's cases, and the first one"
    )
    parser.addoption(
        "--file-ids",
        choices=["random", "rising", "falling"],
        default="random",
        help="ids of new file groups in this order: a test that expects rows in the order of its writes fails with falling ones",
    )


#: Folders whose tests have cases for types and encodings: all of them are asked, always.
OF_TYPES = {"formats", "keys", "realtime", "schema", "sorting", "spark"}


def _some_cases(items: list[pytest.Item], of_each: int) -> list[pytest.Item]:
    """Return one in so many of each test's cases, and the first: by their names, or a cycle of parameters would choose."""
    known: set[str] = set()
    kept = []
    for item in items:
        test, _, case = item.nodeid.partition("[")
        chosen = zlib.crc32(item.nodeid.encode()) % of_each == 0 or _folder(item) in OF_TYPES
        if chosen or not case or test not in known:
            kept.append(item)
        known.add(test)
    return kept


def _of_this_run(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """Leave out what only `make test-all` asks and whose turn it is not, unless a test is asked for by its name."""
    named = any("::" in argument for argument in config.getoption("file_or_dir") or ())
    if THOROUGH or named:
        return items
    marked = [item for item in items if item.get_closest_marker("test_all") is None]
    kept = {id(item) for item in marked} - {id(item) for item in _out_of_turn(marked, seed_of_run())}
    if later := [item for item in items if id(item) not in kept]:
        config.hook.pytest_deselected(items=later)
    return [item for item in items if id(item) in kept]


def _out_of_turn(items: list[pytest.Item], day: int) -> list[pytest.Item]:
    """Return the cases of tests marked `in_turn` or `every_second_day` that another day asks.

    Of each test, or group, that is asked on this day one case is left at least.
    """
    together: dict[tuple[int, str], list[pytest.Item]] = {}
    later = []
    for item in items:
        if (of_file := item.get_closest_marker("every_second_day")) is not None and (day + of_file.args[0]) % 2:
            later.append(item)
        elif (marker := item.get_closest_marker("in_turn")) is not None:
            turns, *group = marker.args
            together.setdefault((turns, group[0] if group else item.nodeid.partition("[")[0]), []).append(item)
    for (turns, group), cases in together.items():
        is_one_test = "::" in group
        places = _places(cases) if is_one_test else _days(cases)
        # In a file that is asked every second day, days in their order would ask the same cases each time.
        number = day // 2 if cases[0].get_closest_marker("every_second_day") else day
        out = [case for case, place in zip(cases, places, strict=True) if (place + number) % turns]
        later += out if len(out) < len(cases) else cases[: number % len(cases)] + cases[number % len(cases) + 1 :]
    return later


def _days(tests: list[pytest.Item]) -> list[int]:
    """Return of each test of a group the day that its marker names, or its number in the group."""
    arguments = [test.get_closest_marker("in_turn").args for test in tests]  # type: ignore[union-attr]
    return [each[2] if len(each) > 2 else number for number, each in enumerate(arguments)]


def _places(cases: list[pytest.Item]) -> list[int]:
    """Return of each case of a test the sum of the places that its values have in their lists.

    One in N sums has every value of a list beside each of another list of N values: of three lists of three values it has nine cases,
    in which each pair is, and no value is always beside the same.
    """
    known: list[dict[object, int]] = []
    sums = []
    for case in cases:
        params = dict(case.callspec.params)  # type: ignore[attr-defined]
        marks = (mark.args[0] for mark in case.iter_markers("parametrize"))
        together = [names.replace(" ", "").split(",") if isinstance(names, str) else names for names in marks]
        values = [tuple(id(params.pop(name)) for name in names) for names in together]
        values += [(id(value),) for value in params.values()]  # of fixtures
        known = known or [{} for _ in values]
        sums.append(sum(of_list.setdefault(value, len(of_list)) for of_list, value in zip(known, values, strict=True)))
    return sums


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test that asks a judge, and refuse a mark without one: such a test would judge nothing."""
    items[:] = _some_cases(items, config.getoption("cases_of_each"))
    for item in items:
        used = set(getattr(item, "fixturenames", ()))
        for marker, fixtures in JUDGES.items():
            if used & fixtures:
                item.add_marker(marker)
                item.add_marker(pytest.mark.timeout(SECONDS_FOR_A_SESSION if used & SESSIONS else SECONDS_FOR_A_JUDGE))
                _require_folder_of_spark(item, marker)
            elif item.get_closest_marker(marker) is not None:
                raise pytest.UsageError(f"{item.nodeid} is marked {marker} and uses none of {sorted(fixtures)}")
        if item.get_closest_marker("judge_spark") is None:
            _keep_together(item)
    items[:] = _of_this_run(config, items)


def _require_folder_of_spark(item: pytest.Item, marker: str) -> None:
    folder = _folder(item)
    if marker == "judge_spark" and folder not in SPARK_FOLDERS:
        raise pytest.UsageError(
            f"{item.nodeid} asks Spark outside {sorted(SPARK_FOLDERS)}: a run of Spark would miss it"
        )


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


def _keep_together(item: pytest.Item) -> None:
    """Have one process run the tests of a file that share what is made for all of them, or two would make it."""
    if item.get_closest_marker("xdist_group") is not None:
        return
    if _folder(item) == "architecture":
        item.add_marker(pytest.mark.xdist_group("architecture"))  # they read all modules, once
        return
    made = getattr(item, "_fixtureinfo", None)
    scopes = {of_name[-1].scope for of_name in made.name2fixturedefs.values()} if made is not None else set()
    if scopes & {"class", "module"}:
        item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    """Hand out tests by groups."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from tests.scheduling import GroupScheduling  # xdist is there: it asks

    return GroupScheduling(config, log)


#: Objects that a process makes before the collector looks at the youngest ones: tests make many and keep few.
OBJECTS_BEFORE_A_COLLECTION = 5_000


#: After its last test a process ends: fixtures of the session were closed with it, and no thread may keep it.
SECONDS_TO_END = 120


#: A test that does not end at its time limit, because C code waits or somebody catches everything, ends with its process.
SECONDS_BEHIND_THE_LIMIT = 60
#: The terminal, whatever pytest captures.
_terminal = 2


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A command that runs in a process leaves its handlers of signals: a forked child would not end by SIGTERM."""
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    yield
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


def _order_file_ids(step: int) -> None:
    """Let the ids of this process begin with a number that grows by `step`."""
    numbers = itertools.count(0x7FFFFFFF, step)

    def new_uuid() -> uuid.UUID:
        return uuid.UUID(f"{next(numbers):08x}{str(uuid.uuid4())[8:]}")

    RandomIds.__init__.__defaults__ = (new_uuid,)  # those that a simulation draws from its seed stay


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let files be in the order that the run asks for."""
    if (order := session.config.getoption("file_ids")) != "random":
        _order_file_ids(1 if order == "rising" else -1)


def pytest_configure() -> None:
    """Let a run that is stopped at its limit say where each of its processes stood: SIGUSR1 asks for their stacks."""
    global _terminal
    _terminal = os.dup(2)  # here nothing is captured
    if folder := os.environ.get("LAKEFMT_STACKS"):
        stacks = (Path(folder) / f"{os.getpid()}.txt").open("w", encoding="utf-8")
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process of a test far behind its time limit, with the stacks of its threads; xdist names the test and goes on."""
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker and marker.args else item.config.getini("timeout") or 0)
    limit = max(limit, float(item.config.getoption("timeout") or 0))
    if limit:
        faulthandler.dump_traceback_later(limit + SECONDS_BEHIND_THE_LIMIT, exit=True, file=_terminal)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """End a process that does not end by itself, with the stacks of its threads on the terminal."""
    faulthandler.dump_traceback_later(SECONDS_TO_END, exit=True, file=_terminal)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Take modules and collected tests, half a million objects, out of what the garbage collector walks through again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BEFORE_A_COLLECTION)


#: After so many tests what they have left, of caches and shared tables, is taken out, too.
TESTS_BEFORE_A_FREEZE = 50
_tests_done = itertools.count(1)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Keep whole collections short: a process keeps a million objects for its later tests, and some tests collect often."""
    if next(_tests_done) % TESTS_BEFORE_A_FREEZE == 0:
        gc.collect()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say at once why a test failed: a run that is stopped at its limit never comes to its closing lines."""
    if report.failed and os.environ.get("PYTEST_XDIST_WORKER") is None:
        print(f"\n--- {report.nodeid} ({report.when}, {report.duration:.0f} s)\n{report.longreprtext[-4000:]}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Repeat the seed, and name the blocks of the documentation that were not run, with their reasons."""
    terminalreporter.write_line(pytest_report_header())
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", ()):
            if name == "block not run":
                terminalreporter.write_line(f"block {value}")
