"""A write-only writer beside processes for services that are killed at random moments."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt import services
from lakefmt._core.timeline.instant import Action
from tests.judges.hudi_rs import HudiRsJudge
from tests.kit import SECONDS_FOR_A_CHILD, values_of_run
from tests.services.served import SCHEMA, WRITE_ONLY

pytestmark = pytest.mark.slow

#: Tells of every call of the store, and waits for a word before the one at which it is to die.
SERVICES = """
import os, sys
import lakefmt.services
from lakefmt._core.storage.local import LocalStore
left = int(sys.argv[2])
for name in ("put_if_absent", "put", "delete"):
    def counted(self, *args, _real=getattr(LocalStore, name), **named):
        global left
        left -= 1
        if left <= 0:  # another thread may have counted the last one
            os.kill(os.getpid(), 9)
        done = _real(self, *args, **named)
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), 9)
        return done
    setattr(LocalStore, name, counted)
options = {"lakefmt.durability": "none", "hoodie.compact.inline.max.delta.commits": 2, "hoodie.clean.commits.retained": 2,
           "hoodie.keep.min.commits": 4, "hoodie.keep.max.commits": 6}
state = "elsewhere"
while state == "elsewhere":  # the lease of the process killed before this one has not ended yet
    left = int(sys.argv[2])
    status = lakefmt.services.run(sys.argv[1], once=True, options=options, lease_seconds=0.5)
    state = status.tables[0].state
"""
OPTIONS = {
    "lakefmt.durability": "none",
    "hoodie.compact.inline.max.delta.commits": 2,
    "hoodie.clean.commits.retained": 2,
    "hoodie.keep.min.commits": 4,
    "hoodie.keep.max.commits": 6,
}


def batch(number: int) -> pa.Table:
    ids = [f"k{key:03d}" for key in range(number, number + 30)]
    return pa.table({"id": ids, "v": [number] * len(ids)}, schema=SCHEMA)


def expected(last: int) -> dict[str, int]:
    rows: dict[str, int] = {}
    for number in range(last + 1):
        rows.update(dict.fromkeys((f"k{key:03d}" for key in range(number, number + 30)), number))
    return rows


def held(table: pa.Table) -> dict[str, int]:
    assert len(set(table["id"].to_pylist())) == table.num_rows, "a key lives twice"
    return dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))


@pytest.mark.in_turn(2, "killed processes")
@pytest.mark.parametrize("seed", values_of_run([1, 2]))
def test_services_are_killed_at_random_beside_a_writer(tmp_path: Path, seed: int, hudi_rs_judge: HudiRsJudge) -> None:
    """Rows are right after every kill, nothing is pending in the end, and no file is left over."""
    dice = random.Random(seed)
    url = str(tmp_path / "t")
    table = lakefmt.create_table(url, schema=SCHEMA, record_key="id", table_type="mor", options=WRITE_ONLY)
    kills = 0
    for number in range(12):
        table.upsert(batch(number))
        if number % 2:
            killed = _run_until_killed(url, dice.randrange(1, 13))
            kills += killed
            assert held(table.read()) == expected(number)
    assert kills >= 4, "the dice let it live"
    table.upsert(batch(12))
    for _ in range(4):
        status = _served(url)
    assert not status.has_failed, str(status)
    fresh = lakefmt.open_table(url, options=WRITE_ONLY)
    assert not fresh.client.load().timeline.pending
    assert held(fresh.read()) == expected(12)
    assert held(hudi_rs_judge.snapshot(url)) == expected(12)
    assert fresh.check("full").is_clean, str(fresh.check("full"))


def _served(url: str) -> services.ServicesStatus:
    """Run a round; before it rounds that find the lease of the process that was just killed, which is about to end."""
    deadline = time.monotonic() + 30.0
    while True:
        status = services.run(url, once=True, options=OPTIONS, lease_seconds=60.0)
        if status.tables[0].state != "elsewhere" or time.monotonic() > deadline:
            return status


def _run_until_killed(url: str, calls: int) -> bool:
    """Run one round in a process that dies at one of its writes; True when it died."""
    ended = subprocess.run(
        [sys.executable, "-c", SERVICES, url, str(calls)],
        capture_output=True,
        text=True,
        timeout=SECONDS_FOR_A_CHILD,
        check=False,
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode == -signal.SIGKILL


def test_two_processes_and_a_writer_at_once(tmp_path: Path) -> None:
    """Two real processes with workers serve the table while it is written; one is killed, the other is stopped by SIGTERM."""
    url = str(tmp_path / "t")
    table = lakefmt.create_table(url, schema=SCHEMA, record_key="id", table_type="mor", options=WRITE_ONLY)
    page = tmp_path / "status.json"
    command = [
        *(
            sys.executable,
            "-m",
            "lakefmt",
            "services",
            url,
            "--interval",
            "0.05",
            "--lease",
            "0.5",
            "--workers",
            "2",
        ),
        *(f"--option={name}={value}" for name, value in OPTIONS.items()),
    ]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    first = subprocess.Popen([*command, f"--status-file={page}"], stdout=subprocess.PIPE, env=env)
    second = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env)
    try:
        number = 0
        table.upsert(batch(0))
        _wait_until(page.exists)  # the first one listens to SIGTERM, and has begun
        while number < 400 and not (number >= 15 and _has_compacted(page)):
            number += 1
            table.upsert(batch(number))
            if number == 8:
                second.kill()
        first.send_signal(signal.SIGTERM)
        out, _ = first.communicate(timeout=SECONDS_FOR_A_CHILD)
        assert first.returncode == 0, out
        assert b"stopping" in out
    finally:
        for each in (first, second):
            each.kill()
            each.communicate()  # a pipe left open is a warning, and an error in whatever test runs then
    for _ in range(3):
        services.run(url, once=True, options=OPTIONS, lease_seconds=60.0)
    assert held(table.read()) == expected(number)
    timeline = table.client.load().timeline
    assert not timeline.pending
    assert table.client.at(table.client.load()).with_history().timeline.completed_of(Action.CLEAN)
    assert table.check().is_clean


def _wait_until(is_there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_FOR_A_CHILD
    while not is_there():
        assert time.monotonic() < deadline, "the services do not begin"
        time.sleep(0.01)


def _has_compacted(page: Path) -> bool:
    if not page.exists():
        return False
    steps = json.loads(page.read_text())["tables"][0]["counts"]
    return bool(steps.get("compaction", {}).get("done"))
