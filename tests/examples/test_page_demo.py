"""The demo of the page on two months: what a browser would see is what the table says, and a writer beside it is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from examples.page.__main__ import main

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_two_months_are_shown_while_a_writer_goes_on(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--path", str(tmp_path), "--months", "2", "--headless"])
    assert done.exit_code == 0, done.output
    assert "31 days of 2013" in done.output
    assert "the page says that" in done.output
    assert "✓ the page says what the table says" in done.output
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_picture_of_the_readme_is_made(tmp_path: Path) -> None:
    chart = tmp_path / "timeline.svg"
    done = CliRunner().invoke(main, ["--path", str(tmp_path), "--months", "2", "--chart", str(chart)])
    assert done.exit_code == 0, done.output
    assert chart.read_text().startswith("<svg")
