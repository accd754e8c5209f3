"""`lakefmt report` writes one file without scripts; `lakefmt ui` serves until it is told to end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from lakefmt._core.cli import main
from lakefmt._core.page.html import report_html
from lakefmt._core.page.tables import PageTables
from tests.kit import SECONDS_FOR_A_CHILD
from tests.page.kit import make_hostile_table, make_table, unpack


@pytest.mark.slow
def test_a_report_is_one_file_without_scripts_and_requests(tmp_path):
    make_table(tmp_path / "tables" / "trips")
    make_hostile_table(tmp_path / "tables" / "hostile")
    unpack("read/v8_mor_archived_120", tmp_path / "tables")
    done = CliRunner().invoke(main, ["report", str(tmp_path / "tables"), "-o", str(tmp_path / "report.html"), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    text = (tmp_path / "report.html").read_text()
    assert (told["tables"], told["bytes"]) == (3, (tmp_path / "report.html").stat().st_size)
    assert "<script" not in text
    assert "<img" not in text
    assert not re.search(r"(?:src|href)=\"(?!#)", text), "nothing is loaded"
    assert "default-src 'none'" in text
    assert text.count("<svg") >= 9
    for name in ("trips", "hostile", "v8_mor_archived_120"):
        assert name in text


def test_a_report_says_what_the_library_says(tmp_path):
    table = make_table(tmp_path / "t")
    tables, _ = PageTables([str(tmp_path / "t")]).listed()
    text = report_html(tables, datetime(2026, 1, 2, 3, 4, tzinfo=UTC))
    assert "2026-01-02 03:04 UTC" in text
    assert f"{table.stats().rows:,}" in text
    assert len(re.findall(r'class="lf-bar', text)) == len(table.timeline) + sum(
        bool(e.operation) for e in table.timeline
    )


def test_a_damaged_table_has_its_place_in_a_report(tmp_path):
    make_table(tmp_path / "good", commits=1)
    make_table(tmp_path / "bad", commits=1)
    (tmp_path / "bad" / ".hoodie" / "hoodie.properties").write_bytes(b"\xff")
    tables, _ = PageTables([str(tmp_path)]).listed()
    text = report_html(tables, datetime(2026, 1, 1, tzinfo=UTC))
    assert "good" in text
    assert "cannot be read" in text


def test_a_report_of_nothing_is_refused(tmp_path):
    done = CliRunner().invoke(main, ["report", f"file://{tmp_path}/none/at/all", "-o", str(tmp_path / "r.html")])
    text = (tmp_path / "r.html").read_text() if done.exit_code == 0 else ""
    assert done.exit_code == 1 or "cannot be read" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "give a token"),
        (["--token", "short"], "at least 16"),
        (["--allow-actions", "--audit-log", "/nowhere/at/all/log"], "cannot be written"),
    ],
)
def test_a_page_that_is_not_safe_does_not_start(tmp_path, arguments, said):
    done = CliRunner().invoke(main, ["ui", str(tmp_path), "--port", "0", *arguments])
    assert done.exit_code == 1
    assert said in done.output


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_serves_until_it_is_told_to_end(tmp_path, number):
    import urllib.request

    make_table(tmp_path / "trips", commits=1)
    command = [sys.executable, "-m", "lakefmt", "ui", str(tmp_path), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
        try:
            told = json.loads(process.stdout.readline())
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with opener.open(told["url"], timeout=60) as page:
                assert b"trips" in page.read()
            process.send_signal(number)
            assert process.wait(SECONDS_FOR_A_CHILD) == 0
        finally:
            process.kill()
