"""A test file that grows slow is named, on a machine that is slower at everything, too."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import durations  # noqa: E402
import run_tests  # noqa: E402

REPORT = """<testsuites><testsuite>
<testcase classname="tests.write.test_verbs" name="test_a[1]" time="1.5"/>
<testcase classname="tests.write.test_verbs.TestOfAClass" name="test_b" time="2.5"/>
<testcase classname="tests.read.test_scan" name="test_c" time="0.25"/>
<testcase classname="" name="tests.read" time="0"/>
</testsuite></testsuites>"""
BEFORE = {f"tests/read/test_{name}.py": 4.0 for name in "abc"}


def test_seconds_are_those_of_all_tests_of_a_file(tmp_path):
    report = tmp_path / "fast.xml"
    report.write_text(REPORT)
    assert durations.seconds_of(report) == {"tests/write/test_verbs.py": 4.0, "tests/read/test_scan.py": 0.25}


def test_a_file_that_takes_more_than_twice_as_long_is_named():
    assert durations.grown(BEFORE, BEFORE) == []
    assert durations.grown(BEFORE, BEFORE | {"tests/read/test_a.py": 7.9}) == []
    assert durations.grown(BEFORE, BEFORE | {"tests/read/test_a.py": 9.0}) == ["tests/read/test_a.py: 9 s, was 4 s"]


def test_a_busy_machine_is_no_growth():
    busy = {name: 5 * seconds for name, seconds in BEFORE.items()}
    assert durations.grown(BEFORE, busy) == []
    assert len(durations.grown(BEFORE, busy | {"tests/read/test_b.py": 50.0})) == 1


def test_small_files_do_not_count_and_new_ones_that_are_not_small_do():
    assert durations.grown({**BEFORE, "tests/x.py": 0.1}, {**BEFORE, "tests/x.py": 2.0}) == []
    assert durations.grown(BEFORE, {**BEFORE, "tests/x.py": 2.0}) == []
    assert durations.grown(BEFORE, {**BEFORE, "tests/x.py": 4.0}) == ["tests/x.py: 4 s, not recorded yet"]
    busy = {name: 5 * seconds for name, seconds in BEFORE.items()}
    assert durations.grown(BEFORE, {**busy, "tests/x.py": 12.0}) == []


def test_a_run_is_recorded_and_files_that_are_gone_are_forgotten(tmp_path, monkeypatch, capsys):
    report, recorded = tmp_path / "fast.xml", tmp_path / "durations.json"
    report.write_text(REPORT.replace("tests.write.test_verbs", "tests.architecture.test_durations"))
    recorded.write_text('{"tests/gone/test_gone.py": 3.0}')
    monkeypatch.setattr(durations, "RECORDED", recorded)
    assert durations.main(["--write", str(report)]) == 0
    assert (
        recorded.read_text() == '{\n"tests/architecture/test_durations.py": 4.0,\n"tests/read/test_scan.py": 0.2\n}\n'
    )
    assert durations.main([str(report)]) == 0
    assert capsys.readouterr().out == ""


def test_the_folders_that_other_dependencies_are_asked_are_there():
    assert set(run_tests.OF_ARROW) | set(run_tests.NO_DEPENDENCY) <= set(run_tests.folders_of_tests())
    assert not set(run_tests.OF_ARROW) & set(run_tests.NO_DEPENDENCY)
