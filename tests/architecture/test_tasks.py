"""The tasks tell the truth: a failed stage, a missing judge or a stopped run never ends well."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import types
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(f"task_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


runner = load(ROOT / "tools" / "run_tests.py")
STAGE = runner.Stage("spark", "a judge", "python", (), 10.0, needs_spark=True)


def closing(*outcomes) -> tuple[int, str]:
    lines: list[str] = []
    status = runner.close(list(outcomes), lines.append)
    return status, "\n".join(lines)


@pytest.fixture
def ci(monkeypatch):
    """Return a function that says whether the run is one in CI."""
    return lambda value: monkeypatch.setenv("CI", "true") if value else monkeypatch.delenv("CI", raising=False)


def test_a_failed_stage_fails_the_run(ci):
    ci(False)
    good = runner.Outcome(STAGE, True, "3 passed in 1 s")
    assert closing(good, good)[0] == 0
    status, text = closing(good, runner.Outcome(STAGE, False, "2 passed, 1 failed in 1 s"))
    assert status == 1
    assert "FAILED   2 passed, 1 failed in 1 s" in text


@pytest.mark.parametrize("in_ci", [False, True])
def test_a_missing_judge_is_named_and_fails_in_ci(ci, in_ci):
    ci(in_ci)
    status, text = closing(runner.Outcome(STAGE, False, "", ["Java 17"]))
    assert status == in_ci
    assert "NOT JUDGED BY SPARK: missing Java 17" in text


@pytest.mark.parametrize("in_ci", [False, True])
def test_a_judge_that_misses_a_part_is_named_and_fails_in_ci(ci, in_ci):
    ci(in_ci)
    status, text = closing(runner.Outcome(STAGE, True, "9 passed in 1 s", ["bundle 1.0.2"]))
    assert status == in_ci
    assert "NOT JUDGED BY SPARK in part: missing bundle 1.0.2" in text
    assert closing(runner.Outcome(STAGE, False, "1 failed in 1 s", ["bundle 1.0.2"]))[0] == 1


def test_counts_come_from_the_report(tmp_path):
    report = tmp_path / "report.xml"
    assert runner.read_counts(report) == {}
    report.write_text('<testsuites><testsuite tests="9" failures="1" errors="1" skipped="2"/></testsuites>', "utf-8")
    counts = runner.read_counts(report)
    assert runner.describe(counts, 1, 3.2) == "5 passed, 2 failed, 2 skipped or expected to fail in 3 s"
    assert runner.describe({}, 3, 3.2) == "ended with status 3 after 3 s and left no report"
    assert runner.describe({}, 5, 3.2) == "no test was selected"


@pytest.mark.slow
def test_a_stage_that_hangs_is_stopped_with_its_children(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        hang = f"import os, signal; f = open({str(pipe)!r}, 'wb', 0); f.write(b'x'); os.fork(); signal.pause()"
        assert runner.run_bounded([sys.executable, "-c", hang], 1.0) == 124
        os.set_blocking(reader, True)
        assert os.read(reader, 9) == b"x"
        assert os.read(reader, 9) == b""  # the end comes when nobody holds the other side any more
    finally:
        os.close(reader)


@pytest.mark.slow
def test_a_stage_that_is_stopped_at_its_limit_says_where_it_stood(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(runner, "SECONDS_FOR_STACKS", 5.0)  # it usually ends with the signal
    program = "import signal, tests.conftest as c\nc.pytest_configure()\ndef waits(): print(); signal.pause()\nwaits()"
    environ = runner.environment_of_tests(stacks=str(tmp_path)) | {"PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, start_new_session=True) as process:
        process.stdout.readline()
        runner._show_stacks(process, tmp_path)
        process.kill()
    assert "in waits" in capfd.readouterr().out


class Making:
    """Stands in for `make` and for pytest: says in which order both were called, and fails for one environment."""

    def __init__(self, monkeypatch, fails: str = "") -> None:
        self.called: list[str] = []
        self.fails = fails
        monkeypatch.setattr(runner, "_run_quietly", self.make)
        monkeypatch.setattr(runner, "run_bounded", self.test)

    def make(self, command: list[str]) -> tuple[int, str]:
        self.called.append(command[-1])
        return (2 if command[-1] == self.fails else 0), f"made {command[-1]}\n"

    def test(self, command: list[str], limit_seconds: float, folder: str, beside: object) -> int:
        self.called.append(command[0])
        return 5


def named(name: str, environment: str) -> runner.Stage:
    return runner.Stage(name, "tests", f"python of {name}", (), 10.0, environment=environment)


@pytest.mark.parametrize("in_ci", [False, True])
def test_a_stage_runs_once_its_environment_is_made(monkeypatch, tmp_path, ci, in_ci):
    ci(in_ci)
    monkeypatch.setattr(runner, "REPORTS", tmp_path)
    making = Making(monkeypatch, fails="venv-b")
    outcomes = runner.run_stages([named("a", "venv-a"), named("b", "venv-b"), named("c", "venv-c")], [])
    assert [outcome.line for outcome in outcomes] == [
        "no test was selected",
        "make venv-b failed",
        "no test was selected",
    ]
    assert closing(*outcomes)[0] == 1
    for name in ("a", "c"):
        assert making.called.index(f"venv-{name}") < making.called.index(f"python of {name}")
    assert "python of b" not in making.called


def test_stages_on_other_dependencies_run_beside_the_others(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(runner, "REPORTS", tmp_path)
    monkeypatch.setattr(runner, "_run_quietly", lambda command: (0, ""))
    began, ended = threading.Event(), threading.Event()

    def test(command: list[str], limit_seconds: float, folder: str, beside: object) -> int:
        if beside is None:
            assert began.wait(60), "nothing runs beside"
            print("first")
            ended.set()
            return 0
        began.set()
        assert ended.wait(60), "nobody waits for what runs beside"
        assert command[-3:-1] == ["1", "--timeout=600"]
        beside.output.write(b"second\n")
        return 1

    monkeypatch.setattr(runner, "run_bounded", test)
    other = replace(named("other", "venv-other"), is_beside=True)
    outcomes = runner.run_stages([other, named("main", "venv")], [])
    assert [(outcome.stage.name, outcome.passed) for outcome in outcomes] == [("other", False), ("main", True)]
    assert capsys.readouterr().out == "\n=== main: tests ===\nfirst\n\n=== other: tests ===\nsecond\n"

    monkeypatch.setattr(runner, "run_bounded", lambda command, limit, folder, beside: 7 if beside is None else 8)
    assert runner.run_stages([other], [])[0].line.startswith("ended with status 7")  # alone it runs as every stage does


def test_what_runs_beside_gives_precedence_and_is_stopped_with_the_others():
    own = os.getpriority(os.PRIO_PROCESS, 0)
    program = f"import os; p = lambda: os.getpriority(0, 0)\nwhile p() == {own}: os.sched_yield()\nprint(p() - {own})"
    with tempfile.TemporaryFile() as output:
        beside = runner.Beside(output)
        assert runner.run_bounded([sys.executable, "-c", program], 60.0, "", beside) == 0
        output.seek(0)
        assert int(output.read()) == runner.NICE
        beside.stop()
        hangs = [sys.executable, "-c", "import signal; signal.pause()"]
        assert runner.run_bounded(hangs, 60.0, "", beside) not in (0, 124)  # stopped before it began
        beside = runner.Beside(output)
        worker = threading.Thread(target=stop_once_begun, args=(beside,))
        worker.start()
        assert runner.run_bounded(hangs, 60.0, "", beside) not in (0, 124)
        worker.join()


def stop_once_begun(beside) -> None:
    while beside.process is None:
        os.sched_yield()
    beside.stop()


def test_a_stage_keeps_its_exit_status():
    assert runner.run_bounded([sys.executable, "-c", "raise SystemExit(3)"], 30.0) == 3


def test_what_python_compiled_is_kept_for_the_processes_of_the_tests(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    program = "import sys; raise SystemExit(9 if sys.dont_write_bytecode else 0)"
    assert runner.run_bounded([sys.executable, "-c", program], 30.0) == 0


def test_files_of_a_stage_go_to_memory_where_there_is_enough_of_it(monkeypatch, tmp_path):
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(runner, "MEMORY", tmp_path)
    monkeypatch.setattr(runner, "MEMORY_BYTES", 1)
    program = (
        "import pathlib, sys, tempfile; sys.exit(pathlib.Path(tempfile.mkdtemp()).parent != pathlib.Path(sys.argv[1]))"
    )
    with runner.folder_of_files() as folder:
        assert Path(folder).parent == tmp_path
        assert runner.run_bounded([sys.executable, "-c", program, folder], 30.0, folder) == 0
        assert len(list(Path(folder).iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lacks", ["the folder", "bytes", "nothing: a person has chosen another folder"])
def test_files_of_a_stage_go_to_the_usual_folder_where_memory_lacks(monkeypatch, tmp_path, lacks):
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(runner, "MEMORY", tmp_path / "absent" if lacks == "the folder" else tmp_path)
    monkeypatch.setattr(runner, "MEMORY_BYTES", 1 << 60 if lacks == "bytes" else 1)
    if lacks.startswith("nothing"):
        monkeypatch.setenv("TMPDIR", str(tmp_path))
    with runner.folder_of_files() as folder:
        assert folder == ""
    assert list(tmp_path.iterdir()) == []


#: A run that asks all cases.
ALL_CASES = types.SimpleNamespace(getoption={"cases_of_each": 1}.get)


@pytest.mark.parametrize(
    ("fixtures", "marks", "gets"),
    [
        ({"tmp_path"}, set(), set()),
        ({"spark_judge", "tmp_path"}, set(), {"judge_spark"}),
        ({"spark_judge_102"}, {"judge_spark"}, {"judge_spark"}),
        ({"hudi_rs_judge"}, set(), {"judge_rs"}),
    ],
)
def test_who_asks_a_judge_is_marked(fixtures, marks, gets):
    shared, marked = load(ROOT / "tests" / "conftest.py"), set(marks)

    def mark(added: str | pytest.MarkDecorator) -> None:
        marked.add(added if isinstance(added, str) else added.name)

    item = types.SimpleNamespace(
        nodeid="test_x",
        path=ROOT / "tests" / "compat" / "test_x.py",
        fixturenames=fixtures,
        add_marker=mark,
        get_closest_marker=lambda n: n if n in marks else None,
    )
    shared.pytest_collection_modifyitems(ALL_CASES, [item])
    assert marked == gets | ({"timeout"} if gets else set())


def test_a_run_of_some_cases_asks_the_first_of_each_test_and_all_that_are_of_types():
    shared = load(ROOT / "tests" / "conftest.py")
    items = [
        types.SimpleNamespace(nodeid=f"{folder}::test_{test}[{case}]", path=ROOT / "tests" / folder / "test_x.py")
        for folder in ("read", "formats")
        for test in range(20)
        for case in range(9)
    ]
    some = shared._some_cases(items, 3)
    assert shared._some_cases(items, 1) == items
    assert {item.nodeid.partition("[")[0] for item in some} == {item.nodeid.partition("[")[0] for item in items}
    assert sum(item.path.parent.name == "formats" for item in some) == 180
    assert 50 <= sum(item.path.parent.name == "read" for item in some) <= 90


def test_a_mark_without_a_judge_is_refused():
    shared = load(ROOT / "tests" / "conftest.py")
    item = types.SimpleNamespace(nodeid="test_x", fixturenames={"tmp_path"}, get_closest_marker=lambda name: name)
    with pytest.raises(pytest.UsageError, match="test_x is marked judge_spark"):
        shared.pytest_collection_modifyitems(ALL_CASES, [item])


def test_spark_is_asked_in_its_folders_only():
    shared = load(ROOT / "tests" / "conftest.py")
    item = types.SimpleNamespace(
        nodeid="test_x",
        path=ROOT / "tests" / "read" / "test_x.py",
        fixturenames={"spark_judge"},
        add_marker=lambda mark: None,
        get_closest_marker=lambda name: None,
    )
    with pytest.raises(pytest.UsageError, match="test_x asks Spark outside"):
        shared.pytest_collection_modifyitems(ALL_CASES, [item])


@pytest.mark.parametrize("marks", ["judge_spark", "spark_release", "not judge_spark", ""])
def test_a_run_of_spark_alone_looks_into_its_folders_only(marks):
    shared = load(ROOT / "tests" / "conftest.py")
    config = types.SimpleNamespace(option=types.SimpleNamespace(markexpr=marks))
    left_out = {
        path.name
        for path in (ROOT / "tests").iterdir()
        if path.is_dir() and shared.pytest_ignore_collect(path, config) is not None
    }
    assert ("read" in left_out) is (marks in ("judge_spark", "spark_release"))
    assert not left_out & shared.SPARK_FOLDERS
    assert shared.pytest_ignore_collect(ROOT / "tests" / "conftest.py", config) is None


def ci_run(tmp_path: Path, fails: str, tells: str = "") -> subprocess.CompletedProcess[str]:
    """Run a copy of .ci/run with a `make` that fails for one target."""
    tmp_path /= "project"
    (tmp_path / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    fake = tmp_path / "bin" / "make"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\n{tells}\nfor each; do [ "$each" = "{fails}" ] && exit 2; done\nexit 0\n', "utf-8")
    fake.chmod(0o755)
    environ = {**os.environ, "PATH": f"{fake.parent}{os.pathsep}{os.environ['PATH']}"}
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for command in (("init", "--quiet"), ("add", ".ci"), (*identity, "commit", "--quiet", "--message=x")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return subprocess.run([str(tmp_path / ".ci" / "run")], env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("step", ["test", "lint", "types"])
def test_every_step_of_ci_counts(tmp_path, step):
    done = ci_run(tmp_path, step)
    assert done.returncode == 1
    summary = done.stdout.split("##### summary")[1]
    assert summary.count("passed") == 1
    assert step in next(line for line in summary.splitlines() if "FAILED " in line)


def test_ci_ends_well_when_every_step_does(tmp_path):
    done = ci_run(tmp_path, "nothing")
    assert done.returncode == 0
    assert "all passed in" in done.stdout


def test_ci_runs_in_a_clone_that_stands_alone_and_then_reads_the_tables_beside_it(tmp_path):
    (tmp_path / "shared" / "fixtures").mkdir(parents=True)
    fake = 'pwd; ls -d ../shared; echo "$@"'
    done = ci_run(tmp_path, "nothing", fake)
    where, _, *_ = done.stdout.split("##### test: ")[1].splitlines()[1:]
    assert not where.startswith(str(tmp_path))
    assert "../shared\n" not in done.stdout
    assert f"test-real-tables LAKEFMT_REAL_TABLES={tmp_path / 'shared' / 'fixtures'}" in done.stdout
    assert done.stdout.count("passed ") == 4


def test_an_environment_is_made_anew_when_what_it_is_made_from_changes(tmp_path, monkeypatch):
    venv = load(ROOT / "tools" / "venv.py")
    (tmp_path / "pyproject.toml").write_text("a", "utf-8")
    pins = tmp_path / "pins.txt"
    pins.write_text("x==1", "utf-8")
    monkeypatch.setattr(venv, "ROOT", tmp_path)
    first = venv.digest(tmp_path / "v", sys.executable, "dev", pins)
    assert venv.digest(tmp_path / "v", sys.executable, "dev", pins) == first
    assert venv.digest(tmp_path / "w", sys.executable, "dev", pins) != first
    assert venv.digest(tmp_path / "v", sys.executable, "test", pins) != first
    (tmp_path / "pyproject.toml").write_text("a\n[tool.ruff]\nline-length = 9", "utf-8")
    assert venv.digest(tmp_path / "v", sys.executable, "dev", pins) == first
    pins.write_text("x==2", "utf-8")
    assert venv.digest(tmp_path / "v", sys.executable, "dev", pins) != first


def test_an_environment_behind_a_link_is_not_emptied(tmp_path, monkeypatch):
    venv = load(ROOT / "tools" / "venv.py")
    (tmp_path / "pyproject.toml").write_text("a", "utf-8")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    (tmp_path / "v").symlink_to(tmp_path / "other")
    monkeypatch.setattr(venv, "ROOT", tmp_path)
    with pytest.raises(venv.SetupError, match="is a link"):
        venv.ensure(tmp_path / "v", "dev", None)
    assert (tmp_path / "other" / "kept").exists()
