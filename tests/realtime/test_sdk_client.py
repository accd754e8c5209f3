"""The SDK's released client, unmodified, writes lakefmt tables through the gateway; others read them (§12.1 of the specification).

The client and the gateway run in the environment of tools/sdk_env.py. Neither the client nor its protocol was written here.
"""

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

import lakefmt
from lakefmt.realtime import connect
from tests.judges.hudi_rs import HudiRsJudge

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "realtime" / "gateway" / "programs.py"
PLAIN = (
    "CREATE TABLE plain (id INT, flag BOOLEAN, small SMALLINT, big BIGINT, ratio DOUBLE, price DECIMAL(10,2), code VARCHAR(6), "
    "note STRING, raw BINARY, day DATE, at TIMESTAMP_LTZ, tags ARRAY<INT>, place STRUCT<x: INT, y: STRING>)"
)
KEYED = "CREATE TABLE keyed (id STRING NOT NULL, name STRING, count INT, PRIMARY KEY (id))"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def sdk_python() -> str:
    """The interpreter that has the released client."""
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cursor = connect(base_path=tmp_path, schema="public").cursor()
    cursor.execute(PLAIN)
    cursor.execute(KEYED)
    return tmp_path


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


def by_id(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: row["id"])


def test_the_released_client_writes_plain_rows(sdk_python: str, folder: Path, hudi_rs_judge: HudiRsJudge) -> None:
    # No refusals here: the client flushes in the background, and waits for ever when two of its batches are refused while
    # its flush timer runs. Refused batches have a test of their own, in the mode that keeps their order.
    gateway = Gateway(sdk_python, folder)
    gateway.run("plain")
    counted = gateway.close()
    assert [batch["code"] for batch in counted["batches"]] == ["SUCCESS"] * 3, "batches of 9, 9 and 7 rows"
    table = folder / "public" / "plain"
    expected = [plain_row(number) for number in range(25)]
    assert by_id(lakefmt.open_table(table).read()) == expected
    assert by_id(hudi_rs_judge.snapshot(table)) == expected


def test_the_released_client_upserts_updates_and_deletes(
    sdk_python: str, folder: Path, hudi_rs_judge: HudiRsJudge
) -> None:
    gateway = Gateway(sdk_python, folder)
    gateway.run("keyed")
    counted = gateway.close()
    assert counted["commits"] >= 2, "the client asks for commits of tables with a key"
    table = folder / "public" / "keyed"
    expected = [
        *({"id": f"id{n}", "name": f"second {n}", "count": 100 + n} for n in range(2, 5)),
        *({"id": f"id{n}", "name": f"first {n}", "count": n} for n in range(5, 9)),
        # A partial update: the name stays.
        {"id": "id9", "name": "first 9", "count": 999},
    ]
    assert by_id(lakefmt.open_table(table).read()) == expected
    assert by_id(hudi_rs_judge.snapshot(table)) == expected
    # The judge notices one value that is not there.
    lakefmt.open_table(table).upsert(pa.table({"id": ["id9"], "name": ["other"], "count": pa.array([999], pa.int32())}))
    assert by_id(hudi_rs_judge.snapshot(table)) != expected


def test_the_released_client_is_refused_and_tries_again_in_order(sdk_python: str, folder: Path) -> None:
    gateway = Gateway(sdk_python, folder, "THROTTLED=2")
    gateway.run("retried")
    counted = gateway.close()
    assert [batch["id"] for batch in counted["batches"]] == [0, 0, 0, 1, 2, 3, 4]
    table = lakefmt.open_table(folder / "public" / "keyed")
    assert table.read().to_pylist() == [{"id": "same", "name": "name 4", "count": 4}]
