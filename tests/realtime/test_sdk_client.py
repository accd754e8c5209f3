"""The SDK's released client, unmodified, writes lakefmt tables through the gateway; others read them (§12.1 of the specification).

The client and the gateway run in the environment of tools/sdk_env.py. Neither the client nor its protocol was written here.
Spark reads the same tables in tests/compat/test_spark_sdk_client.py.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from tests.judges.hudi_rs import HudiRsJudge
from tests.realtime.gateway.client import Gateway, by_id, find_client, make_tables, plain_row, rows_of_keyed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def sdk_python() -> str:
    return find_client()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_tables(tmp_path)
    return tmp_path


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
    expected = rows_of_keyed()
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
