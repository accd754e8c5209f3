"""Every example in a docstring runs."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from lakefmt._core.storage import memory

ROOT = Path(__file__).resolve().parents[2]
#: Environments of their own import them (tests/spark, tests/integrations/test_workers.py); they have no examples.
WITHOUT_EXAMPLES = {
    "lakefmt.ray",
    "lakefmt.spark.data_source",
    "lakefmt.spark.streams.source",
}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.REPORT_ONLY_FIRST_FAILURE


def module_names() -> list[str]:
    """Return every module of the package but scripts (`__main__`)."""
    paths = [path.relative_to(ROOT).with_suffix("") for path in sorted((ROOT / "lakefmt").rglob("*.py"))]
    names = [".".join(p.parts[:-1] if p.name == "__init__" else p.parts) for p in paths if p.name != "__main__"]
    return [name for name in names if name not in WITHOUT_EXAMPLES]


@pytest.mark.parametrize("name", module_names())
def test_the_examples_of_a_module_run(name, tmp_path, monkeypatch, capsys):
    module = importlib.import_module(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memory, "_spaces", {})  # memory:// as in a new process
    result = doctest.testmod(module, optionflags=FLAGS)
    assert result.failed == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(WITHOUT_EXAMPLES))
def test_what_is_left_out_has_no_example(name):
    assert ">>>" not in (ROOT / (name.replace(".", "/") + ".py")).read_text("utf-8")


def test_a_wrong_example_is_seen():
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner(optionflags=FLAGS)

    def double():
        """Say two.

        >>> 1 + 1
        3
        """

    for test in finder.find(double, "double", globs={}):
        runner.run(test, out=lambda text: None)
    assert runner.failures == 1
