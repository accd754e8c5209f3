"""T12: a job of Flink writes into our server by StarRocks' sink, exactly once, while the server is killed; the sink asks our MySQL port for columns."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.loads.mysql_port import column_rows
from tests.example_counts import seed_of_run
from tests.judges.starrocks import FlinkJob, starrocks_missing

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
ROWS = 6_000
KILLS = 4


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        return int(opened.getsockname()[1])


def start(base: Path, port: int, mysql_port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lakefmt", "serve", "--base-path", str(base), "--json"]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--mysql-port", str(mysql_port)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "url" in process.stdout.readline()
    return process


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_what_is_said_of_columns() -> None:
    schema = pa.schema(
        [("id", pa.int32()), ("t", pa.timestamp("us")), ("f", pa.float32()), ("l", pa.list_(pa.int64()))]
    )
    said = column_rows(schema, ["id"])
    assert [row[:4] for row in said] == [
        ("id", 1, "PRI", "int"),
        ("t", 2, "", "datetime"),
        ("f", 3, "", "float"),
        ("l", 4, "", "json"),
    ]


@pytest.mark.slow
@pytest.mark.test_all
@pytest.mark.xdist_group("starrocks")
@pytest.mark.parametrize("how", ["csv", "json"])
def test_t12_flink_writes_exactly_once_while_the_server_is_killed(tmp_path: Path, how: str) -> None:
    if reason := starrocks_missing(flink=True):
        if os.environ.get("CI") == "true":
            pytest.fail(f"Flink is missing: {reason}")
        pytest.skip(f"Flink is missing: {reason}")
    chance, base = random.Random(seed_of_run()), tmp_path / "lake"
    lakefmt.create_table(base / "db" / "t", schema=SCHEMA, kind="append")
    port, mysql_port = free_port(), free_port()
    server = start(base, port, mysql_port)
    try:
        with FlinkJob(f"http://127.0.0.1:{port}", mysql_port, ROWS, how, tmp_path) as job:
            deadline = time.monotonic() + 120
            # A job that has not begun does not know how to wait.
            while not lakefmt.open_table(base / "db" / "t").timeline.entries:
                assert time.monotonic() < deadline
                assert job.process.poll() is None
                time.sleep(0.2)
            for _ in range(KILLS):
                time.sleep(3 + 3 * chance.random())
                stop(server)
                time.sleep(2 * chance.random())
                server = start(base, port, mysql_port)
            job.process.wait(200)
    finally:
        stop(server)
    found = sorted(lakefmt.open_table(base / "db" / "t").read()["id"].to_pylist())
    assert found == list(range(1, ROWS + 1))
