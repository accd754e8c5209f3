"""StarRocks' released client loads into our server: rows, retries, lost replies, a server that is killed (T4, T8, T11)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.loads.transactions import Transactions
from lakefmt.errors import StorageError
from lakefmt.server import LoadOptions, LoadServer, serve
from tests.judges.hudi_rs import HudiRsJudge
from tests.judges.starrocks import StarRocksClient, starrocks_missing
from tests.loads.proxies import LossyProxy
from tests.loads.test_http import Process

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
COLUMNS = "id,v,__op"
QUICK = LoadOptions(durable=False, settings={"lakefmt.durability": "none"})
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("starrocks")]


@pytest.fixture(autouse=True)
def _judge() -> None:
    if reason := starrocks_missing():
        if os.environ.get("CI") == "true":
            pytest.fail(f"StarRocks' client is missing: {reason}")
        pytest.skip(f"StarRocks' client is missing: {reason}")


@pytest.fixture
def base(tmp_path: Path) -> str:
    lakefmt.create_table(str(tmp_path / "db" / "t"), schema=SCHEMA, record_key="id")
    return str(tmp_path)


@pytest.fixture
def server(base: str) -> Iterator[LoadServer]:
    started = serve(base, port=0, options=QUICK)
    yield started
    started.stop()


def rows(base: str) -> dict[int, str]:
    return {row["id"]: row["v"] for row in lakefmt.open_table(f"{base}/db/t").read().to_pylist()}


def written(number: int, how: str, op: int = 0) -> str:
    if how == "csv":
        return f"write {number},v{number},{op}"
    return f'write {{"__op": {op}, "id": {number}, "v": "v{number}"}}'


@pytest.mark.judge_rs
@pytest.mark.parametrize("how", ["csv", "json", pytest.param("lz4", marks=pytest.mark.test_all)])
def test_t11_it_loads_upserts_and_deletes(
    base: str, server: LoadServer, tmp_path: Path, how: str, hudi_rs_judge: HudiRsJudge
) -> None:
    with StarRocksClient(server.url, how, "t", COLUMNS, tmp_path) as client:
        for number in range(4):
            assert client.do(written(number, how)) == "done"
        client.do(written(1, how, 1))
        assert client.do("flush") == "null"
        assert rows(base) == {}
        assert client.do("prepare") == "true"
        assert client.do("commit") == "true"
        assert rows(base) == {0: "v0", 2: "v2", 3: "v3"}
        client.do(written(2, how, 1))
        assert client.do("prepare") == "true"
        assert client.do("commit") == "true"
    found = hudi_rs_judge.snapshot(f"{base}/db/t").to_pylist()
    assert {row["id"]: row["v"] for row in found} == {0: "v0", 3: "v3"}


def test_t4_a_server_killed_between_prepare_and_commit(base: str, tmp_path: Path) -> None:
    with Process(base) as first:
        port = int(first.url.rpartition(":")[2])
        with StarRocksClient(first.url, "csv", "t", COLUMNS, tmp_path) as client:
            client.do(written(1, "csv"))
            assert client.do("prepare") == "true"
            first.kill()
            with Process(base, port):
                assert client.do("commit") == "true"
    assert rows(base) == {1: "v1"}


def test_t11_the_lost_reply_of_a_commit_is_no_lost_row(base: str, server: LoadServer, tmp_path: Path) -> None:
    with LossyProxy(server.address, lambda line, count: "/commit " in line and not count) as proxy:
        with StarRocksClient(proxy.url, "csv", "t", COLUMNS, tmp_path) as client:
            client.do(written(1, "csv"))
            assert client.do("prepare") == "true"
            # This release says that it does not know; who uses it, a checkpoint of Flink, commits again.
            assert client.do("commit") != "true"
            assert client.do("commit") == "true"
        assert len(proxy.lost) == 1
    assert rows(base) == {1: "v1"}


@pytest.mark.test_all
def test_t11_the_lost_reply_of_a_prepare_rolls_back(base: str, server: LoadServer, tmp_path: Path) -> None:
    with LossyProxy(server.address, lambda line, count: "/prepare " in line and not count) as proxy:
        with StarRocksClient(proxy.url, "csv", "t", COLUMNS, tmp_path) as client:
            client.do(written(1, "csv"))
            assert client.do("prepare") != "true"
        assert len(proxy.lost) == 1
    assert rows(base) == {}


@pytest.mark.test_all
def test_t11_a_failure_is_told_and_nothing_half_is_left(
    base: str, server: LoadServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, failures = Transactions.load, [StorageError("busy", transient=True)]

    def fails_once(*arguments: object) -> object:
        if failures:
            raise failures.pop()
        return load(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Transactions, "load", fails_once)
    with StarRocksClient(server.url, "csv", "t", COLUMNS, tmp_path) as client:
        client.do(written(1, "csv"))
        # This release repeats nothing by itself: it rolls back, and who uses it begins anew.
        assert "busy" in client.do("flush")
    with StarRocksClient(server.url, "csv", "t", COLUMNS, tmp_path) as client:
        client.do(written(1, "csv"))
        assert client.do("prepare") == "true"
        assert client.do("commit") == "true"
        assert rows(base) == {1: "v1"}
        client.do("write 1")  # a field is missing
        said = client.do("prepare")
        assert "error" in said or said == "false"
    assert rows(base) == {1: "v1"}


def test_sabotage_a_row_that_the_server_drops_is_seen(
    base: str, server: LoadServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakefmt._core.loads.journal import Staged

    monkeypatch.setattr(Staged, "add", lambda self, rows: None)
    with StarRocksClient(server.url, "csv", "t", COLUMNS, tmp_path) as client:
        client.do(written(1, "csv"))
        client.do("prepare")
        client.do("commit")
    assert rows(base) != {1: "v1"}
