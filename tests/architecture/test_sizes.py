"""Functions fit a screen and modules can be read in one sitting; what is longer says why."""

from __future__ import annotations

import statistics
from pathlib import Path

import architecture_rules as rules

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = Path(__file__).with_name("sizes.toml")


def test_nothing_is_too_long_without_a_reason():
    allowed = rules.Exceptions.load(ALLOWED)
    rules.check(rules.oversized(ROOT, allowed))
    rules.check(allowed.complaints())


def test_most_functions_are_short():
    lengths = sorted(rules.function_sizes(ROOT).values())
    assert statistics.median(lengths) <= 10
    assert lengths[int(len(lengths) * 0.9)] < 30


def write(root: Path, text: str) -> Path:
    path = root / "lakefmt" / "x.py"
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    return root


def test_a_long_function_is_seen_and_its_docstring_is_not_counted(tmp_path):
    body = "    a = 1\n" * 60
    docstring = '    """Say.\n' + "    more\n" * 30 + '    """\n'
    root = write(tmp_path, f"def short():\n{docstring}{body[:-10]}\ndef long():\n{docstring}{body}")
    assert rules.oversized(root, rules.Exceptions()) == ["lakefmt/x.py::long: 61 lines, 60 are allowed"]


def test_a_long_module_is_seen_and_an_exception_has_a_ceiling(tmp_path):
    root = write(tmp_path, "a = 1\n" * 901)
    assert rules.oversized(root, rules.Exceptions()) == ["lakefmt/x.py: 901 lines, 900 are allowed"]
    enough = rules.Exceptions([rules.Exception_("lakefmt/x.py", "a table of constants", lines=901)])
    assert rules.oversized(root, enough) == []
    outgrown = rules.Exceptions([rules.Exception_("lakefmt/x.py", "a table of constants", lines=900)])
    assert len(rules.oversized(root, outgrown)) == 1


def test_the_report_names_the_longest(tmp_path):
    root = write(tmp_path, "def f():\n    pass\ndef g():\n    a = 1\n    return a\n")
    report = rules.size_report(root)
    assert "2 functions, median 2 lines" in report
    assert "3 lakefmt/x.py::g" in report
