"""What a person at a terminal sees besides: a question, a bar, as many columns as fit."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.cli import formatters, plans
from lakefmt._core.cli.formatters import printable, size_text


@pytest.fixture
def terminal(monkeypatch):
    """Streams of the command line in this process say that they are a terminal of 40 columns."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _self: True)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize(("answer", "left"), [("y\n", 3), ("n\n", 2), ("\n", 2)])
@pytest.mark.usefixtures("terminal")
def test_rollback_asks(run, trips, answer, left):
    run("delete", trips, "--key", "a")
    result = run("rollback", trips, "latest", stdin=answer, status=0 if left == 3 else 1)
    assert "delete 1 files" in result.stdout
    assert "Proceed?" in result.stderr
    assert lakefmt.open_table(str(trips)).read(["id"]).num_rows == left


@pytest.mark.usefixtures("terminal")
def test_parquet_is_not_for_a_terminal(run, trips):
    assert "cannot be printed on a terminal" in run("read", trips, "--format", "parquet", status=2).stderr


class Terminal(io.BytesIO):
    def isatty(self):
        return True


def test_a_table_shows_as_many_columns_as_fit(monkeypatch, capfdbinary):
    monkeypatch.setenv("COLUMNS", "24")
    batch = pa.record_batch({"name": ["x" * 10], "number": [7], "wide": ["y" * 30], "more": [1]})
    target = Terminal()
    sink = formatters._TerminalTable(batch.schema, target, True)
    sink.write(batch)
    sink.end(complete=True)
    assert target.getvalue().decode().splitlines() == [
        "name        number",
        "──────────  ──────",
        "xxxxxxxxxx       7",
        "(1 row; 2 more columns: select with --columns)",
    ]


@pytest.mark.parametrize(
    ("widths", "room", "kept"), [([5, 5], 0, 2), ([5, 5], 12, 2), ([5, 5], 11, 1), ([50, 5], 10, 1), ([], 10, 0)]
)
def test_columns_that_fit(widths, room, kept):
    assert formatters._columns_that_fit(widths, room) == kept


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_for_those_who_wait(monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    bar = plans._ProgressBar("writing", 10, "rows")
    bar.advance(4)
    bar._show()  # what the timer does after a second
    bar.advance(3)
    bar.end()
    assert "writing" in screen.getvalue()
    assert "7 rows" in screen.getvalue()


def test_no_bar_for_those_who_do_not_wait_or_look(monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    with plans.progress("writing") as count:
        count(5)
    ended = plans._ProgressBar("writing", None, "rows")
    ended.end()
    ended._show()
    assert screen.getvalue() == ""
    with plans.progress("writing") as count:
        assert count(5) is None


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (102_400, "100 KiB"),
        (1_048_575, "1.00 MiB"),
        (5 << 40, "5.00 TiB"),
    ],
)
def test_sizes(size, text):
    assert size_text(size) == text


def test_foreign_text_is_made_printable():
    assert printable("a\n b\x00\x9b") == "a b\\x00\\x9b"
    assert json.loads(json.dumps(printable("é →"))) == "é →"
