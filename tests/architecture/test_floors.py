"""A part imports only from the floors below it, and no two parts import each other."""

from __future__ import annotations

from pathlib import Path

import architecture_rules as rules
import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_part_has_a_floor():
    rules.check(rules.without_floor(ROOT))


def test_runtime_imports_go_down():
    rules.check(rules.upward_imports(ROOT, for_types=False))


def test_imports_for_types_go_down():
    rules.check(rules.upward_imports(ROOT, for_types=True))


def test_no_two_parts_import_each_other():
    rules.check(rules.mutual_parts(ROOT))


def test_no_modules_import_in_a_circle():
    rules.check(rules.circles(ROOT))


def test_every_import_can_be_read():
    rules.check(rules.unreadable_imports(ROOT))


def test_the_tree_is_really_read():
    found = {(i.importer, i.imported) for i in rules.imports(ROOT)}
    assert ("lakefmt._core.values", "lakefmt.errors") in found
    assert len(rules.modules(ROOT)) > 3


# --------------------------------------------------------------------------------------------- the rules can say no


@pytest.fixture
def house(tmp_path):
    """Return a function that writes a small sound house, with the files given over it, and returns its folder."""

    def build(files: dict[str, str] | None = None) -> Path:
        sound = {
            "__init__.py": "from lakefmt.table import Table",
            "errors.py": "",
            "values.py": "from lakefmt.errors import LakefmtError",
            "storage/__init__.py": "",
            "storage/api.py": "from lakefmt import errors",
            "timeline/__init__.py": "",
            "timeline/view.py": "from lakefmt.storage.api import ObjectStore",
            "write/__init__.py": "",
            "write/assign.py": "import lakefmt.timeline.timeline",
            "read/__init__.py": "",
            "table.py": "from lakefmt.write.assign import assign\nfrom lakefmt.read import scan",
            "testing/__init__.py": "import lakefmt.table",
            "cli/__init__.py": "import lakefmt.testing\nfrom lakefmt import Table",
        }
        for name, text in {**sound, **(files or {})}.items():
            path = tmp_path / "lakefmt" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        return tmp_path

    return build


def test_violations_fail_and_are_all_named():
    with pytest.raises(AssertionError, match=r"2 violations:\n  one\n  two"):
        rules.check(["one", "two"])
    rules.check([])


def all_violations(root: Path) -> list[str]:
    return [
        *rules.without_floor(root),
        *rules.upward_imports(root, for_types=False),
        *rules.upward_imports(root, for_types=True),
        *rules.mutual_parts(root),
        *rules.circles(root),
        *rules.unreadable_imports(root),
    ]


def test_a_sound_house_has_no_violation(house):
    assert all_violations(house()) == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("storage/x.py", "import lakefmt.table", "lakefmt.storage.x imports lakefmt.table at line 1"),
        ("storage/x.py", "def f():\n    from lakefmt.table import Table", "imports lakefmt.table at line 2"),
        ("storage/x.py", "from lakefmt import Table", "lakefmt.storage.x imports lakefmt at line 1"),
        ("storage/x.py", "import importlib\nimportlib.import_module('lakefmt.table')", "imports lakefmt.table"),
        ("timeline/x.py", "from .. import table", "lakefmt.timeline.x imports lakefmt.table"),
        ("timeline/x.py", "from ..write.assign import assign", "lakefmt.timeline.x imports lakefmt.write.assign"),
        ("timeline/__init__.py", "from ..table import Table", "lakefmt.timeline imports lakefmt.table"),
        ("read/x.py", "from lakefmt.write import assign", "lakefmt.read.x imports lakefmt.write.assign"),
        ("write/x.py", "from lakefmt.testing import faults", "lakefmt.write.x imports lakefmt.testing"),
        ("errors.py", "from lakefmt.storage import api", "lakefmt.errors imports lakefmt.storage.api"),
    ],
)
def test_an_upward_import_is_seen(house, name, text, said):
    found = rules.upward_imports(house({name: text}), for_types=False)
    assert len(found) == 1
    assert said in found[0]


def test_an_upward_import_for_types_is_listed_separately(house):
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lakefmt.table import Table"
    root = house({"timeline/x.py": text})
    assert rules.upward_imports(root, for_types=False) == []
    assert "(for types only)" in rules.upward_imports(root, for_types=True)[0]


def test_a_part_without_a_floor_is_seen(house):
    assert rules.without_floor(house({"attic/box.py": ""})) == ["attic has no floor"]


def test_mutual_parts_are_seen(house):
    root = house({"read/x.py": "import lakefmt.write.assign", "write/y.py": "def f():\n    import lakefmt.read.x"})
    assert rules.mutual_parts(root) == ["read and write import each other"]


def test_a_circle_within_a_part_is_seen(house):
    root = house(
        {
            "timeline/timeline.py": "def f():\n    import lakefmt.timeline.x",
            "timeline/x.py": "import lakefmt.timeline.timeline",
        }
    )
    assert rules.circles(root) == ["lakefmt.timeline.timeline ⇄ lakefmt.timeline.x"]


def test_a_computed_import_is_seen(house):
    root = house({"write/x.py": "from importlib import import_module\nimport_module('lakefmt.' + name)"})
    assert rules.unreadable_imports(root) == ["lakefmt.write.x line 2: import_module of something computed"]
