"""The oldest environment holds exactly the lower bounds that pyproject.toml declares."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECKED_EXTRAS = ("cli", "ui", "s3", "gcs", "dynamodb", "mysql")


def declared(project: dict[str, object]) -> dict[str, str]:
    """Return name → lower bound of the core dependencies and the checked extras."""
    lines = [*project["dependencies"], *(line for e in CHECKED_EXTRAS for line in project["optional-dependencies"][e])]
    return dict(re.fullmatch(r"([A-Za-z0-9_-]+)>=([0-9.]+)", line).groups() for line in lines)


def pinned(text: str) -> dict[str, str]:
    """Return name → version of the pins that hold for the oldest Python."""
    rows = [line.split("#")[0].strip() for line in text.splitlines()]
    rows = [row for row in rows if row and not re.search(r'== "3\.1[2-9]"|>= "3\.1[2-9]"', row)]
    return dict(row.split(";")[0].strip().split("==") for row in rows)


def test_oldest_pins_are_the_declared_lower_bounds():
    bounds = declared(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"])
    pins = pinned((ROOT / "constraints" / "oldest.txt").read_text("utf-8"))
    assert len(bounds) >= 7
    assert {name: pins.get(name) for name in bounds} == bounds


def test_newest_pins_are_newer_than_the_oldest():
    oldest = pinned((ROOT / "constraints" / "oldest.txt").read_text("utf-8"))
    newest = pinned((ROOT / "constraints" / "newest.txt").read_text("utf-8"))
    assert {"pandas", "polars", "duckdb", "pyarrow", "numpy"} <= set(oldest) <= set(newest)
    assert {name for name in oldest if _numbers(newest[name]) <= _numbers(oldest[name])} == set()


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def test_every_python_that_is_declared_is_looked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    declared_minors = {name.rsplit(" ", 1)[1] for name in project["classifiers"] if ":: Python :: 3." in name}
    tested = runpy.run_path(str(ROOT / "tools" / "venv.py"))["TESTED"]
    assert declared_minors <= set(tested)
    assert list(tested) == sorted(tested, key=_numbers, reverse=True)


def test_the_newest_python_is_one_that_starts(tmp_path, monkeypatch):
    for folder, name, text in (
        ("bin", "python3.14", "exit 127"),  # a shim without a version behind it
        ("pyenv/versions/3.14.2/bin", "python3.14", "exit 0"),
        ("pyenv/versions/3.13.9/bin", "python3.13", "exit 0"),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_text(f"#!/bin/sh\n{text}\n", "utf-8")
        (tmp_path / folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    find = runpy.run_path(str(ROOT / "tools" / "venv.py"))["find_newest_python"]
    assert find() == str(tmp_path / "pyenv/versions/3.14.2/bin/python3.14")


def test_a_plain_installation_reads_filters_that_are_text():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert any(line.startswith("sqlglot>=") for line in project["dependencies"])
    assert project["optional-dependencies"]["sql"] == [], "installations that name the former extra go on"


def test_a_bound_that_moved_is_seen():
    none = {extra: [] for extra in CHECKED_EXTRAS}
    bounds = declared({"dependencies": ["a>=2.0"], "optional-dependencies": none})
    assert bounds == {"a": "2.0"}
    assert pinned('a==1.0; python_version < "3.13"\na==3.0; python_version >= "3.14"\n# a==9\n') == {"a": "1.0"}


def test_no_extra_wants_boto3():
    """Each of its releases wants one release of botocore, and s3fs another one: together they cannot be installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ]
    assert not [line for line in wanted if re.match(r"(aio)?boto3\b", line)]
    bounds = {line for line in wanted if line.startswith("botocore")}
    assert len(bounds) == 1, "one bound for both extras"


def test_what_environments_are_made_from_stands_before_the_tables_of_tools():
    """The stamp of an environment is a digest of what comes before them."""
    project = (ROOT / "pyproject.toml").read_text("utf-8").split("\n[tool.")[0]
    assert {"dependency-groups", "project"} <= tomllib.loads(project).keys()


def test_every_extra_is_installed_by_the_check():
    module = runpy.run_path(str(ROOT / "tools" / "extras.py"))
    found = module["sets_of_extras"]((ROOT / "pyproject.toml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    assert {(), ("s3", "dynamodb")} <= set(found)
    assert {each for each in found if len(each) == 1} == {(extra,) for extra in extras}
    assert set(found[-1]) == extras, "all of them together, too"
