"""The structure stays readable: small folders, private modules, one meaning for a name, no circles, short ways."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import architecture_rules as rules
import pytest
import structure_measures as measures

ROOT = Path(__file__).resolve().parents[2]

#: What a warm upsert of seven rows may pass through: (modules, crossings).
WAYS = {"cow upsert": (79, 850), "mor upsert": (88, 890), "cow read": (30, 150), "mor read": (46, 375)}


def test_private_modules_are_imported_inside_their_package_only():
    rules.check(rules.private_imports(ROOT))


def test_a_private_module_that_is_imported_from_outside_is_seen(tmp_path):
    for name, text in {
        "__init__.py": "",
        "read/__init__.py": "",
        "read/_terms.py": "",
        "read/filters.py": "import lakefmt.read._terms",
        "write/__init__.py": "",
        "write/x.py": "from lakefmt.read import _terms",
    }.items():
        path = tmp_path / "lakefmt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    assert rules.private_imports(tmp_path) == ["lakefmt.write.x imports lakefmt.read._terms at line 1"]


def test_a_name_has_one_meaning():
    assert measures.names_defined_twice(ROOT) == {}


def test_a_name_with_two_meanings_is_seen(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / "lakefmt").mkdir(exist_ok=True)
        (tmp_path / "lakefmt" / name).write_text("def plan():\n    pass\ndef _own():\n    pass\n", "utf-8")
    assert measures.names_defined_twice(tmp_path) == {"plan": ["lakefmt.a", "lakefmt.b"]}


def test_a_table_at_one_moment_is_one_argument():
    assert measures.handed_on(ROOT) == []


def test_a_client_and_a_state_as_two_arguments_are_seen(tmp_path):
    (tmp_path / "lakefmt").mkdir()
    (tmp_path / "lakefmt/a.py").write_text(
        "def f(client: TableClient, state: TableState): ...\ndef g(state: TableState): ...\n"
    )
    assert measures.handed_on(tmp_path) == ["lakefmt.a.f"]


def test_no_import_of_any_kind_makes_a_circle():
    assert measures.circles_of_any_kind(ROOT) == []


def test_a_circle_through_a_function_is_seen(tmp_path):
    texts = {
        "a": "import lakefmt.b",
        "b": "def f():\n    from lakefmt import c",
        "c": "from lakefmt.a import x",
        "d": "import lakefmt.a",
    }
    (tmp_path / "lakefmt").mkdir()
    for name, text in texts.items():
        (tmp_path / "lakefmt" / f"{name}.py").write_text(text, "utf-8")
    assert measures.circles_of_any_kind(tmp_path) == [["lakefmt.a", "lakefmt.b", "lakefmt.c"]]


@pytest.fixture(scope="module")
def traces() -> dict[str, measures.Trace]:
    return measures.traces()


@pytest.mark.slow
@pytest.mark.parametrize("name", list(WAYS))
def test_a_call_passes_through_no_more_than_before(traces, name):
    modules, crossings = WAYS[name]
    assert len(traces[name].modules) <= modules
    assert traces[name].crossings <= crossings


def test_a_package_says_what_it_is_for_and_names_modules_that_exist():
    for path in (ROOT / "lakefmt").rglob("__init__.py"):
        text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        assert 3 <= len(text.splitlines()) <= 10, path
        named = re.findall(r"``([a-z_0-9]+)``", text)
        modules = {module.stem if module.suffix else module.name for module in path.parent.rglob("*")}
        gone = [name for name in named if name not in modules]
        assert set(gone) <= {"lakefmt", "hypothesis"}, path
