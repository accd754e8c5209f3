"""The status as a page, as JSON and as metrics, in a file and on a port of this machine."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakefmt.errors import InvalidInputError
from lakefmt.services.status import (
    ServicesStatus,
    ServiceStep,
    TableStatus,
    metrics_text,
    serve_pages,
    status_json,
    with_steps,
    write_status_file,
)

DONE = ServiceStep("compaction", "done", "20260101000000000", "one file", 0.25, 1000)
TABLE = with_steps(
    TableStatus('t"1\\', "idle", datetime(2026, 1, 2, tzinfo=UTC), commits=7, pending=("x requested",)),
    [DONE, ServiceStep("clean", "failed", None, "no\nluck"), ServiceStep("clean", "nothing")],
)
STATUS = ServicesStatus("me", 3, (TABLE, TableStatus("t2", "failed", message="gone")))
SAMPLE = re.compile(r'lakefmt_services_[a-z_]+(\{([a-z]+="([^"\\]|\\.)*",?)+\})? -?[0-9.e+]+')


def test_metrics_have_the_text_format_of_prometheus() -> None:
    lines = metrics_text(STATUS).splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert len(samples) > 10
    assert all(SAMPLE.fullmatch(line) for line in samples), samples
    names = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {re.split(r"[{ ]", line)[0] for line in samples} <= names
    assert 'lakefmt_services_steps_total{table="t\\"1\\\\",service="clean",result="failed"} 1' in samples
    assert not SAMPLE.fullmatch('lakefmt_services_commits{table="a"b"} 1'), "the pattern refuses what is not escaped"


def test_the_status_tells_the_newest_of_each_service() -> None:
    assert TABLE.steps["clean"].result == "nothing", "after a failure it is worth saying that all is well"
    again = with_steps(TABLE, [ServiceStep("compaction", "nothing")])
    assert again.steps["compaction"] is DONE
    assert again.counts["compaction"] == {"done": 1, "nothing": 1}
    assert STATUS.has_failed
    assert not ServicesStatus("me", 1, (TABLE,)).has_failed
    assert "compaction: done, one file" in str(STATUS)


def test_pages_and_files_show_the_same(tmp_path: Path) -> None:
    write_status_file(tmp_path / "s.json", STATUS)
    write_status_file(tmp_path / "s.txt", STATUS)
    assert json.loads((tmp_path / "s.json").read_text()) == json.loads(json.dumps(status_json(STATUS)))
    assert (tmp_path / "s.txt").read_text() == f"{STATUS}\n"
    assert {path.name for path in tmp_path.iterdir()} == {"s.json", "s.txt"}
    with serve_pages(0, lambda: STATUS) as port:
        base = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{base}/status.json") as answer:
            assert json.load(answer) == json.loads(json.dumps(status_json(STATUS)))
        with urllib.request.urlopen(f"{base}/metrics") as answer:
            assert answer.read().decode() == metrics_text(STATUS)
        with urllib.request.urlopen(base) as answer:
            assert answer.read().decode() == f"{STATUS}\n"
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{base}/else")
        with pytest.raises(InvalidInputError, match="cannot be served"), serve_pages(port, lambda: STATUS):
            pass
