"""The SDK's released client and the gateway it writes through, as processes of their own; the tables and rows of its programs."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakefmt.realtime import connect

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(__file__).resolve().parent / "programs.py"
PLAIN = (
    "CREATE TABLE plain (id INT, flag BOOLEAN, small SMALLINT, big BIGINT, ratio DOUBLE, price DECIMAL(10,2), code VARCHAR(6), "
    "note STRING, raw BINARY, day DATE, at TIMESTAMP_LTZ, tags ARRAY<INT>, place STRUCT<x: INT, y: STRING>)"
)
KEYED = "CREATE TABLE keyed (id STRING NOT NULL, name STRING, count INT, PRIMARY KEY (id))"


def find_client() -> str:
    """Return the interpreter that has the released client; a test that needs it is skipped where it is not."""
    said = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "sdk_env.py"), "--find"], capture_output=True, text=True, check=True
    )
    found = json.loads(said.stdout)
    if found["python"] is None:
        pytest.skip(f"the SDK's released client is not there: {found['missing']}")
    return str(found["python"])


class Gateway:
    """A gateway that runs, and what it counted when it ended."""

    def __init__(self, python: str, folder: Path, *refusals: str) -> None:
        self.python = python
        self.environ = {**os.environ, "PYTHONPATH": str(ROOT), "NO_PROXY": "*", "no_proxy": "*"}
        refuse = [word for refusal in refusals for word in ("--refuse", refusal)]
        self.process = subprocess.Popen(
            [python, "-m", "tests.realtime.gateway.gateway", str(folder), *refuse],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=self.environ,
        )
        assert self.process.stdout is not None
        self.service = str(json.loads(self.process.stdout.readline())["service"])

    def run(self, program: str) -> None:
        """Run a user's program against it."""
        done = subprocess.run(
            [self.python, str(PROGRAMS), program, self.service],
            capture_output=True,
            text=True,
            env=self.environ,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.strip().endswith("done")

    def close(self) -> dict[str, Any]:
        """End it, and return what it counted."""
        said, _ = self.process.communicate(timeout=60)
        return dict(json.loads(said.strip().splitlines()[-1]))


def make_tables(folder: Path) -> None:
    """Make the tables that the programs write to."""
    cursor = connect(base_path=folder, schema="public").cursor()
    cursor.execute(PLAIN)
    cursor.execute(KEYED)


def plain_row(number: int) -> dict[str, Any]:
    """Return what the program `plain` sends."""
    return {
        "id": number,
        "flag": number % 2 == 0,
        "small": number - 100,
        "big": number * 10**15,
        "ratio": number / 8,
        "price": Decimal(number) / 4,
        "code": f"code-{number}"[:6],
        "note": None if number % 5 == 0 else f"note ü {number}",
        "raw": bytes([number]),
        "day": dt.date(2026, 1, 1) + dt.timedelta(days=number),
        "at": dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=1_700_000_000_000_000 + number),
        "tags": [number, number + 1],
        "place": {"x": number, "y": f"y{number}"},
    }


def rows_of_keyed() -> list[dict[str, Any]]:
    """Return what the program `keyed` leaves."""
    return [
        *({"id": f"id{n}", "name": f"second {n}", "count": 100 + n} for n in range(2, 5)),
        *({"id": f"id{n}", "name": f"first {n}", "count": n} for n in range(5, 9)),
        # A partial update: the name stays.
        {"id": "id9", "name": "first 9", "count": 999},
    ]


def by_id(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows in the order of their `id`."""
    return sorted(rows.to_pylist(), key=lambda row: row["id"])
