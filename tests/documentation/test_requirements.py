"""Every numbered requirement of streams and append tables has a test named after it, or a line of docs/limits.md."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: How many numbers each letter has: requirements and scenarios of streams (RS, C), of append tables (AP, A).
NUMBERS = {"rs": 36, "c": 32, "ap": 35, "a": 15}
FOLDERS = ("producers", "realtime", "consumers", "segments", "services", "check", "sorting", "cli", "compat")
#: Not built yet: the line of docs/limits.md that says so.
NOT_BUILT = {"ap_27": "`clustering.incremental`", "ap_33": "`partition.mark-done-action`"}


def lacking(tests: Iterable[str], limits: str) -> list[str]:
    """Return the requirements that no test is named after, and no line of the limits is about."""
    named = {match for name in tests for match in re.findall(r"(?<=_)(?:rs|c|ap|a)_?\d+(?=_|$)", name)}
    wanted = {
        f"{letters}_{number}": (letters, number) for letters, last in NUMBERS.items() for number in range(1, last + 1)
    }
    return [
        name
        for name, (letters, number) in wanted.items()
        if not named & {name, f"{letters}{number}"} and not (name in NOT_BUILT and NOT_BUILT[name] in limits)
    ]


def test_every_requirement_has_a_test_or_a_limit() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / "tests" / folder).rglob("test_*.py")]
    tests = [name for path in files for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))]
    assert lacking(tests, (ROOT / "docs" / "limits.md").read_text("utf-8")) == []
    assert len(lacking([], "")) == sum(NUMBERS.values())


@pytest.mark.parametrize(("name", "found"), [("test_x", "c_1"), ("test_y", "rs_3"), ("test_a2", "a_2")])
def test_a_name_is_read_whole(name: str, found: str) -> None:
    missing = lacking([name], "")
    assert found not in missing
    assert f"{found}0" in missing or found in ("a_2", "rs_3")
    assert len(missing) == sum(NUMBERS.values()) - name.count("_a2") - 1
