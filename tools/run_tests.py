"""Run the test stages and close with what was and was not proved: ``python tools/run_tests.py fast``.

Every stage runs, also after a failed one; its output goes straight to the terminal, its counts come from pytest's own
report file, never from a pipe. The environments of later stages are made while earlier ones run: that waits for a network.
Stages that repeat tests on other dependencies run beside the others, with one process of a lower priority: a tenth of a
run the processors would wait for files, for other processes and for the last test of a stage. What they print comes in the end.
The exit status is 0 only when every stage passed and nothing that had to be judged was left out. With ``CI=true`` a missing
judge is a failure; elsewhere the closing lines name it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / ".cache" / "reports"
SPARK_ENVIRONMENT = ROOT / ".cache" / "spark_env.json"
UNJUDGED = "NOT JUDGED BY SPARK"
KILL_AFTER_SECONDS = 15.0
SECONDS_FOR_STACKS = 3.0
#: How much lower the priority of a stage beside others is: they get three quarters of a processor that all want, but where the system shares
#: it out by sessions.
NICE = 5
#: What one of its tests may take there.
SECONDS_BESIDE = 600
#: A folder in memory, where Linux has one: a run writes 1.1 GB of small tables, and would wait for a disk with each of them.
MEMORY = Path("/dev/shm")
#: What has to be free there before a run uses it.
MEMORY_BYTES = 8 << 30


#: Folders of tests that make the same calls of Arrow and NumPy as others, in other orders.
NO_DEPENDENCY = (
    "advice",
    "architecture",
    "bench",
    "benchmarks",
    "check",
    "cli",
    "compaction",
    "concurrency",
    "config",
    "consumers",
    "crash",
    "documentation",
    "examples",
    "fuzz",
    "growth",
    "integrations",
    "judges",
    "services",
    "stateful",
    "testing_kit",
    "transactions",
    "undo",
    "upgrade",
)
#: Folders of tests of what touches Arrow and stores, and of schemas: what other versions of dependencies could change.
OF_ARROW = ("filegroups", "formats", "keys", "read", "realtime", "schema", "sorting", "spark", "storage", "write")


def folders_of_tests() -> list[str]:
    """Return the names of the folders that hold tests."""
    return sorted(path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.rglob("test_*.py")))


@dataclass(frozen=True)
class Stage:
    """One pytest run: what it is for, the interpreter, its arguments, its limit, and the make target of its environment.

    One that `is_beside` runs beside the others, if there are any; one that `needs_releases` needs every release of PySpark.
    """

    name: str
    purpose: str
    python: str
    arguments: tuple[str, ...]
    limit_seconds: float
    needs_spark: bool = False
    environment: str = ""
    is_beside: bool = False
    needs_releases: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a stage ended: `line` is its row of the closing summary, empty when it could not run; what it had to miss."""

    stage: Stage
    passed: bool
    line: str
    missing: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether the run may end well: in CI nothing may be missing, elsewhere a missing judge is only named."""
        return (self.passed and not self.missing) or (not in_ci() and (self.passed or not self.line))


def stages(workers: str) -> dict[str, Stage]:
    """Return every stage by name; `workers` is the number of processes for tests without a JVM."""
    venv, oldest, newest = (f".venv{name}/bin/python" for name in ("", "-oldest", "-newest"))
    spread = ("-n", workers, "--dist", "loadgroup")
    # Per change only what touches Arrow, stores and schemas, laws with few examples and other tests a third of their cases; a thorough
    # run asks what else calls a dependency. What is left out then, too, makes the same calls in other orders.
    thorough = os.environ.get("LAKEFMT_HYPOTHESIS") == "thorough"
    left_out = NO_DEPENDENCY if thorough else tuple(name for name in folders_of_tests() if name not in OF_ARROW)
    few_examples = () if os.environ.get("LAKEFMT_HYPOTHESIS") else ("--hypothesis-profile=few", "--cases-of-each=3")
    # To write asserts anew takes a third of a minute, and these tests have passed or failed with them in the first stage.
    quickly = ("--assert=plain", *few_examples)
    touching_dependencies = (*quickly, *(f"--ignore=tests/{name}" for name in left_out))
    rows = [
        Stage(
            "fast",
            "everything that needs no JVM",
            venv,
            (*spread, "-m", "not judge_spark"),
            3600,
            environment="fast-env",
        ),
        Stage(
            "oldest",
            "what touches a dependency, without slow tests, on the oldest ones declared",
            oldest,
            (*spread, "-m", "not judge_spark and not slow and not newest_only", *touching_dependencies),
            2700,
            environment="venv-oldest",
            is_beside=True,
        ),
        Stage(
            "newest",
            "the same on the newest Python of this machine and the releases of constraints/newest.txt",
            newest,
            (*spread, "-m", "not judge_spark and not slow", *touching_dependencies),
            2700,
            environment="venv-newest",
            is_beside=True,
        ),
        Stage(
            "spark",
            "Apache Hudi on Spark as judge",
            venv,
            (*spread, "--no-loadscope-reorder", "-m", "judge_spark"),
            3000,
            needs_spark=True,
        ),
        Stage(
            "releases",
            "sessions of the releases of PySpark in constraints/pyspark.txt",
            venv,
            (*spread, "--no-loadscope-reorder", "-m", "spark_release"),
            3000,
            needs_spark=True,
            needs_releases=True,
        ),
    ]
    return {stage.name: stage for stage in rows}


def in_ci() -> bool:
    """Say whether a missing judge has to fail the run."""
    return os.environ.get("CI", "").lower() in {"true", "1", "yes"}


@dataclass(frozen=True)
class Prepared:
    """What making a stage's environment said, whether the stage may run, and what it will miss."""

    said: str = ""
    is_there: bool = True
    missing: list[str] = field(default_factory=list)


def prepare(stage: Stage) -> Prepared:
    """Make what the stage needs; what is there already costs nothing."""
    if stage.needs_spark:
        return prepare_spark(stage.needs_releases)
    if not stage.environment:
        return Prepared()
    status, said = _run_quietly(["make", "--no-print-directory", stage.environment])
    return Prepared(said, status == 0)


def prepare_spark(releases: bool = False) -> Prepared:
    """Make the judge's environment, with `releases` those of other releases of PySpark, too; say what is missing of it."""
    more = ["--releases"] if releases else []
    if not releases:  # a stage that runs already reads what was found for it
        SPARK_ENVIRONMENT.unlink(missing_ok=True)
    status, said = _run_quietly([sys.executable, str(ROOT / "tools" / "spark_env.py"), *more])
    if status or not SPARK_ENVIRONMENT.exists():
        return Prepared(said, can_judge(), [f"tools/spark_env.py ended with {status}"])
    missing = [str(name) for name in json.loads(SPARK_ENVIRONMENT.read_text("utf-8"))["missing"]]
    status, said_of_client = _run_quietly([sys.executable, str(ROOT / "tools" / "sdk_env.py")])
    missing += [f"the real-time SDK's client: tools/sdk_env.py ended with {status}"] * (status != 0)
    return Prepared(said + said_of_client, can_judge(), missing)


def _run_quietly(command: list[str]) -> tuple[int, str]:
    # The installer that came with .venv is quick: let the scripts find it.
    environ = {**os.environ, "PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environ,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def prepare_ahead(chosen: Sequence[Stage]) -> dict[str, Future[Prepared]]:
    """Begin to make what the stages need, one after another, while the first of them runs already."""
    worker = ThreadPoolExecutor(1, "prepare")
    try:
        return {stage.name: worker.submit(prepare, stage) for stage in chosen}
    finally:
        worker.shutdown(wait=False)


def can_judge() -> bool:
    """Say whether the judge can be asked at all: an interpreter, a Java and at least one of Hudi's bundles."""
    if not SPARK_ENVIRONMENT.exists():
        return False
    found = json.loads(SPARK_ENVIRONMENT.read_text("utf-8"))
    return bool(found["python"] and found["java"] and found["bundles"])


def environment_of_tests(folder: str = "", stacks: str = "") -> dict[str, str]:
    """Return the variables of a test run, whose files go to `folder` and whose processes write stacks to the folder `stacks`.

    Python keeps what it compiled, for every process that the tests start imports it.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | ({"TMPDIR": folder} if folder else {}) | ({"LAKEFMT_STACKS": stacks} if stacks else {})


def has_memory(folder: Path, needed: int) -> bool:
    """Say whether `folder` is there, may be written to and has `needed` bytes free, in its file system and in the machine."""
    if not (folder.is_dir() and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= needed):
        return False
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return False
    return any(line.startswith("MemAvailable:") and int(line.split()[1]) << 10 >= needed for line in lines)


@contextlib.contextmanager
def folder_of_files() -> Iterator[str]:
    """Make the folder for a stage's files in memory and remove it; yield "" where the usual folder has to do."""
    if "TMPDIR" in os.environ or not has_memory(MEMORY, MEMORY_BYTES):
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="lakefmt-tests-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        yield folder


def run_bounded(command: list[str], limit_seconds: float, folder: str = "", beside: Beside | None = None) -> int:
    """Run `command` and return its exit status; 124 when it had to be stopped at the limit, with the stacks of its processes.

    It prints on this terminal, or into the file of a run `beside` others.
    """
    with (
        tempfile.TemporaryDirectory(prefix="lakefmt-stacks-", ignore_cleanup_errors=True) as stacks,
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment_of_tests(folder, stacks),
            stdin=subprocess.DEVNULL,
            stdout=None if beside is None else beside.output,
            stderr=None if beside is None else subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        if beside is not None:
            beside.began(process)
        try:
            return process.wait(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            _show_stacks(process, Path(stacks))
            _stop(process, signal.SIGTERM)
            return 124
        except KeyboardInterrupt:
            _stop(process, signal.SIGINT)
            raise


def _show_stacks(process: subprocess.Popen[bytes], stacks: Path) -> None:
    # Processes that do not know the signal, servers and JVMs, end by it: they would be stopped next.
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGUSR1)
        process.wait(timeout=SECONDS_FOR_STACKS)
    for path in sorted(stacks.iterdir()):
        print(f"\n--- stacks of process {path.stem}\n{path.read_text('utf-8', 'replace')}", flush=True)


@dataclass
class Beside:
    """A run beside others: the file of what it prints, and its process, which is stopped when the others are."""

    output: IO[bytes]
    process: subprocess.Popen[bytes] | None = None
    is_stopped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def began(self, process: subprocess.Popen[bytes]) -> None:
        """Take note of the process and give the others precedence."""
        with self.lock:
            self.process = process
            if self.is_stopped:
                _stop(process, signal.SIGINT)
        with contextlib.suppress(OSError):
            own = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PGRP, process.pid, own + NICE)

    def stop(self) -> None:
        """End the run, also one that begins only now."""
        with self.lock:
            self.is_stopped = True
            if self.process is not None and self.process.poll() is None:
                _stop(self.process, signal.SIGINT)


def _stop(process: subprocess.Popen[bytes], first: signal.Signals) -> None:
    # The stage leads a session of its own: its workers, servers and JVM go with it, those that do not listen too.
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, first)
        process.wait(timeout=KILL_AFTER_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def read_counts(report: Path) -> dict[str, int]:
    """Return pytest's counts (tests, failures, errors, skipped) from its JUnit file; empty when there is none."""
    if not report.exists():
        return {}
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for suite in ElementTree.parse(report).getroot().iter("testsuite"):
        for name in totals:
            totals[name] += int(suite.get(name, "0"))
    return totals


def describe(counts: dict[str, int], status: int, seconds: float) -> str:
    """Return one line on a finished stage."""
    if status == 124:
        return f"stopped at its limit after {seconds:.0f} s"
    if status == 5:
        return "no test was selected"
    if not counts:
        return f"ended with status {status} after {seconds:.0f} s and left no report"
    bad = counts["failures"] + counts["errors"]
    passed = counts["tests"] - bad - counts["skipped"]
    words = [f"{passed} passed"]
    words += [f"{bad} failed"] if bad else []
    words += [f"{counts['skipped']} skipped or expected to fail"] if counts["skipped"] else []
    return ", ".join(words) + f" in {seconds:.0f} s"


def run_stage(stage: Stage, prepared: Prepared, extra: list[str], beside: Beside | None = None) -> Outcome:
    """Run one stage, whose environment has been made, and say how it ended."""
    if prepared.said:
        print(prepared.said, end="", flush=True)
    if not prepared.is_there:
        line = "" if stage.needs_spark else f"make {stage.environment} failed"
        return Outcome(stage, False, line, prepared.missing)
    report = REPORTS / f"{stage.name}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    begin = time.monotonic()
    limit = stage.limit_seconds * (4 if os.environ.get("LAKEFMT_HYPOTHESIS") == "thorough" else 1)
    alone = () if beside is None else ("-n", "1", f"--timeout={SECONDS_BESIDE}")
    command = [stage.python, "-m", "pytest", *stage.arguments, *alone, f"--junitxml={report}", *extra]
    with folder_of_files() as folder:
        status = run_bounded(command, limit, folder, beside)
    line = describe(read_counts(report), status, time.monotonic() - begin)
    return Outcome(stage, status == 0, line, prepared.missing)


def run_stages(chosen: Sequence[Stage], extra: list[str]) -> list[Outcome]:
    """Run the stages one after another, also after a failed one, and beside them those that may."""
    waiting, outcomes = prepare_ahead(chosen), {}
    besides = [stage for stage in chosen if stage.is_beside] if len(chosen) > 1 else []
    with ThreadPoolExecutor(1, "beside") as pool, contextlib.ExitStack() as stack:
        runs = {}
        for stage in besides:
            beside = Beside(stack.enter_context(tempfile.TemporaryFile()))
            stack.callback(beside.stop)  # does nothing to a run that has ended
            runs[stage.name] = beside, pool.submit(_run_prepared, stage, waiting[stage.name], extra, beside)
        for stage in chosen:
            if stage.name not in runs:
                _say(stage)
                outcomes[stage.name] = run_stage(stage, waiting[stage.name].result(), extra)
        for stage in besides:
            beside, run = runs[stage.name]
            outcomes[stage.name] = run.result()
            _say(stage)
            beside.output.seek(0)
            print(beside.output.read().decode(errors="replace"), end="", flush=True)
    return [outcomes[stage.name] for stage in chosen]


def _run_prepared(stage: Stage, waiting: Future[Prepared], extra: list[str], beside: Beside) -> Outcome:
    return run_stage(stage, waiting.result(), extra, beside)


def _say(stage: Stage) -> None:
    print(f"\n=== {stage.name}: {stage.purpose} ===", flush=True)


def close(outcomes: list[Outcome], write: Callable[[str], object] = print) -> int:
    """Write the closing lines and return the exit status."""
    write("\n=== closing ===")
    for outcome in outcomes:
        word = "not run" if not outcome.line else "passed" if outcome.passed else "FAILED"
        write(f"{outcome.stage.name:8} {word:8} {outcome.line}")
    for outcome in outcomes:
        for name in outcome.missing:
            write(f"{UNJUDGED}{' in part' if outcome.line else ''}: missing {name}")
        if outcome.missing and in_ci():
            write("with CI=true a missing judge is a failure")
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


def main(arguments: list[str]) -> int:
    """Run the stages that are named, in that order."""
    known = stages(os.environ.get("LAKEFMT_TEST_WORKERS", "2"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stages", nargs="+", choices=sorted(known))
    parser.add_argument("--pytest", default="", help="more arguments for pytest, in one string")
    given = parser.parse_args(arguments)
    return close(run_stages([known[name] for name in given.stages], given.pytest.split()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
