"""Columns, not rows: no Python loop over rows on a path that carries user data."""

from __future__ import annotations

from pathlib import Path

import architecture_rules as rules
import pytest

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = Path(__file__).with_name("row_loops.toml")


def test_no_row_loops_but_those_with_a_reason():
    allowed = rules.Exceptions.load(ALLOWED)
    rules.check(rules.row_loops(ROOT, allowed))
    rules.check(allowed.complaints())


def loops(tmp_path, text: str, *entries: rules.Exception_) -> tuple[list[str], list[str]]:
    path = tmp_path / "lakefmt" / "write" / "x.py"
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    allowed = rules.Exceptions(list(entries))
    return rules.row_loops(tmp_path, allowed), allowed.complaints()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("def f(a):\n    return a.to_pylist()", "to_pylist"),
        ("def f(a):\n    return [x.as_py() for x in a]", "as_py"),
        ("def f(a):\n    return map(type(a).as_py, a)", "as_py"),
        ("def f(a):\n    for i, r in a.iterrows(): pass", "iterrows"),
        ("def f(a):\n    for r in a.itertuples(): pass", "itertuples"),
        ("import numpy as np\ndef f(a):\n    return np.vectorize(len)(a)", "vectorize"),
        ("def f(a):\n    return a.to_numpy().tolist()", "tolist"),
    ],
)
def test_a_row_loop_is_seen(tmp_path, text, name):
    found, _ = loops(tmp_path, text)
    assert len(found) == 1
    assert found[0].startswith("lakefmt/write/x.py::f ")
    assert found[0].endswith(name)


def test_an_exception_holds_for_its_place_and_name_only(tmp_path):
    entry = rules.Exception_("lakefmt/write/x.py::f", "one value per partition", ("as_py",))
    text = "def f(a):\n    return a.as_py()\ndef g(a):\n    return a.as_py()\n"
    found, complaints = loops(tmp_path, text, entry)
    assert found == ["lakefmt/write/x.py::g line 4: as_py"]
    assert complaints == []


def test_an_exception_without_use_or_reason_is_seen(tmp_path):
    entry = rules.Exception_("lakefmt/write/x.py::gone", "fast", ("as_py",))
    _, complaints = loops(tmp_path, "", entry)
    assert complaints == [
        "lakefmt/write/x.py::gone: a reason of 1 words",
        "lakefmt/write/x.py::gone: not needed any more",
    ]


def test_a_method_is_named_with_its_class(tmp_path):
    found, _ = loops(tmp_path, "class A:\n    def f(self, a):\n        return a.as_py()")
    assert found == ["lakefmt/write/x.py::A.f line 3: as_py"]
