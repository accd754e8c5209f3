"""Modules that decide take nothing from outside: no clock, no randomness, no files, no stores."""

from __future__ import annotations

import tomllib
from pathlib import Path

import architecture_rules as rules
import pytest

ROOT = Path(__file__).resolve().parents[2]
LISTED = Path(__file__).with_name("purity.toml")
_RULES = tomllib.loads(LISTED.read_text("utf-8"))
PURE, ACTING = _RULES["pure"], _RULES["acting"]


def test_pure_modules_are_pure():
    allowed = rules.Exceptions.load(LISTED)
    rules.check(rules.impurities(ROOT, PURE, allowed, ACTING))
    rules.check(allowed.complaints())


def test_every_listed_module_exists():
    rules.check(rules.absent(ROOT, PURE))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import os", "os"),
        ("import os.path", "os.path"),
        ("import mmap", "mmap"),
        ("import pkgutil", "pkgutil"),
        ("from concurrent.futures import ThreadPoolExecutor", "concurrent.futures"),
        ("def f():\n    from time import monotonic", "time"),
        ("import random", "random"),
        ("from datetime import datetime\ndatetime.now()", "datetime.now"),
        ("import datetime\ndatetime.datetime.utcnow()", "datetime.utcnow"),
        ("import uuid\nuuid.uuid4()", "uuid.uuid4"),
        ("import numpy as np\nnp.random.default_rng()", "np.random"),
        ("open('x')", "open"),
        ("from lakefmt._core.storage.local import LocalStore", "lakefmt._core.storage.local"),
        ("from lakefmt._core.storage import local", "lakefmt._core.storage.local"),
        ("from lakefmt._core.storage.api import ObjectStore", "lakefmt._core.storage.api.ObjectStore"),
        ("from uuid import uuid4", "uuid.uuid4"),
    ],
)
def test_an_impurity_is_seen(tmp_path, text, name):
    path = tmp_path / "lakefmt" / "x.py"
    path.parent.mkdir()
    path.write_text(text, "utf-8")
    found = rules.impurities(tmp_path, ["lakefmt.x"], rules.Exceptions())
    assert [row.rsplit(" ", 1)[-1] for row in found] == [name]
    assert rules.impurities(tmp_path, ["lakefmt.y"], rules.Exceptions()) == []


def test_what_a_pure_module_may_use(tmp_path):
    path = tmp_path / "lakefmt" / "x.py"
    path.parent.mkdir()
    path.write_text(
        "import numpy as np\nfrom lakefmt._core.storage.api import check_name\nfrom datetime import datetime\n"
        "def f(clock, text):\n    return clock.now(), datetime.fromisoformat(text), np.sum(text)\nopen = 1\n",
        "utf-8",
    )
    assert rules.impurities(tmp_path, ["lakefmt.x"], rules.Exceptions()) == []


def test_a_listed_module_that_is_gone_is_seen(tmp_path):
    (tmp_path / "lakefmt").mkdir()
    assert rules.absent(tmp_path, ["lakefmt.gone"]) == ["lakefmt.gone"]


def test_a_function_that_acts_in_a_module_that_decides_is_named(tmp_path):
    path = tmp_path / "lakefmt" / "x.py"
    path.parent.mkdir()
    path.write_text(
        "import time as t\nfrom lakefmt._core.storage.api import ObjectStore\ndef load(store: ObjectStore):\n    return t.time()\n"
        "def plan(rows):\n    return t.time()\ndef idle():\n    return 1\n",
        "utf-8",
    )
    found = rules.impurities(tmp_path, ["lakefmt.x"], rules.Exceptions(), {"lakefmt.x": ["load", "idle"]})
    assert found == [
        "lakefmt/x.py::plan line 6: time",
        "lakefmt.x.idle takes nothing from outside: it is no exception",
    ]
