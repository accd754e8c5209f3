"""Locks that Spark writers and lakefmt share: each is refused while the other holds, and goes on when it lets go.

Hudi's own provider classes are asked in the judge's JVM, which also plays ZooKeeper and Hive's metastore.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from lakefmt._core.storage import LocalStore, MemoryStore
from lakefmt._core.timeline.locks.api import FencedLease, RetryPolicy, TableLock
from lakefmt._core.timeline.locks.open import LockOptions, open_lock
from lakefmt.errors import LeaseLost, LockUnavailable
from tests.compat.tables import make_plain_table, plain_rows
from tests.judges.compare import assert_same_multiset
from tests.judges.spark import JudgeError, SparkJudge

pytestmark = [pytest.mark.judge_spark, pytest.mark.every_second_day(1)]

LOCKS = "org.apache.hudi.client.transaction.lock"
QUICK = {
    "hoodie.write.lock.filesystem.expire": "0",
    "hoodie.write.lock.wait_time_ms": "300",
    "hoodie.write.lock.num_retries": "1",
    "hoodie.write.lock.wait_time_ms_between_retry": "100",
    "hoodie.write.lock.max_wait_time_ms_between_retry": "100",
    "hoodie.write.lock.client.num_retries": "1",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
}


def ours(provider: str, settings: dict[str, str], where: Path | None = None) -> TableLock:
    store = MemoryStore() if where is None else LocalStore(where)
    said = {key: int(value) if value.isdigit() else value for key, value in settings.items()}
    return open_lock(store, LockOptions(provider, True, RetryPolicy(1.0), said), "lakefmt")


def by_turns(
    judge: SparkJudge, provider: str, settings: dict[str, str], where: Path | None = None, wait_ms: int = 1000
) -> None:
    """We hold, Hudi's provider is refused; it holds, we are refused; each goes on when the other lets go."""
    lock = ours(provider, settings, where)
    theirs = {"provider": provider, "settings": {**QUICK, **settings}, "name": "theirs", "wait_ms": wait_ms}
    with lock.hold() as lease:
        lease.check()
        assert not judge.request("lock", **theirs)["held"]
        lease.check()
    assert judge.request("lock", **theirs)["held"]
    with pytest.raises(LockUnavailable), lock.hold():
        pass
    judge.request("unlock", name="theirs")
    with lock.hold() as lease:
        lease.check()


def test_a_spark_writer_and_we_share_hudis_lock_file(tmp_path: Path, spark_judge: SparkJudge) -> None:
    provider = f"{LOCKS}.FileSystemBasedLockProvider"
    table = make_plain_table(tmp_path / "t", 10, version=8)
    modes = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control", "hoodie.write.lock.provider": provider}
    lazy = {"hoodie.cleaner.policy.failed.writes": "LAZY", "hoodie.clean.failed.writes.policy": "LAZY"}
    options = {**QUICK, **modes, **lazy}
    by_turns(spark_judge, provider, {"hoodie.base.path": str(tmp_path / "t")}, tmp_path / "t")
    with ours(provider, {}, tmp_path / "t").hold() as lease:
        with pytest.raises(JudgeError) as refused:
            spark_judge.write(tmp_path / "t", plain_rows(10, ts=2), index="BLOOM", options=options)
        lease.check()  # this release leaves the holder's file alone
    assert "lock" in str(refused.value).lower()
    spark_judge.write(tmp_path / "t", plain_rows(10, ts=3), index="BLOOM", options=options)
    assert_same_multiset(table.read(), plain_rows(10, ts=3), what="after Spark got the lock")
    (tmp_path / "t/.hoodie/lock").write_bytes(b"")  # as a Spark writer holds it
    told = {"hoodie.write.lock.provider": provider, "hoodie.write.lock.wait_time_ms": 50}
    with pytest.raises(LockUnavailable):
        table.upsert(plain_rows(10, ts=4), options=told)
    (tmp_path / "t/.hoodie/lock").unlink()
    table.upsert(plain_rows(10, ts=4), options=told)
    with ours(provider, {}, tmp_path / "t").hold():
        left = (tmp_path / "t/.hoodie/lock").read_bytes()
    (tmp_path / "t/.hoodie/lock").write_bytes(left)  # as we leave it when we die
    note = tmp_path / "t/.hoodie/.lakefmt/lock_holder-left"  # with what lets the system vouch for us
    note.write_bytes(b"")
    asked = {**QUICK, "hoodie.base.path": str(tmp_path / "t"), "hoodie.write.lock.filesystem.expire": "1"}
    theirs = {"provider": provider, "settings": asked, "name": "theirs", "wait_ms": 1000}
    assert not spark_judge.request("lock", **theirs)["held"]
    os.utime(tmp_path / "t/.hoodie/lock", (time.time() - 61, time.time() - 61))
    assert spark_judge.request("lock", **theirs)["held"], "it has expired"
    spark_judge.request("unlock", name="theirs")
    spark_judge.assert_same_rows(tmp_path / "t", plain_rows(10, ts=4), what="after we got the lock")
    spark_judge.write(tmp_path / "t", plain_rows(10, ts=5), index="BLOOM", options=options)
    assert note.exists(), "Hudi's provider does not know it"
    assert_same_multiset(table.read(), plain_rows(10, ts=5), what="Spark beside the note")


def test_we_share_curators_mutex(spark_judge: SparkJudge) -> None:
    pytest.importorskip("kazoo")
    port = spark_judge.request("zookeeper", tick_ms=2000)["port"]
    settings = {
        "hoodie.write.lock.zookeeper.url": f"127.0.0.1:{port}",
        "hoodie.write.lock.zookeeper.base_path": "/hudi/locks",
        "hoodie.write.lock.zookeeper.lock_key": "trips",
    }
    provider = f"{LOCKS}.ZookeeperBasedLockProvider"
    by_turns(spark_judge, provider, settings)
    tokens, inside, most = [], [], []

    def work() -> None:
        patient = LockOptions(provider, True, RetryPolicy(30.0), settings)
        with open_lock(MemoryStore(), patient, "lakefmt").hold() as lease:
            inside.append(1)
            most.append(len(inside))
            lease.check()
            assert isinstance(lease, FencedLease)
            tokens.append(int(lease.token.rpartition("-")[2]))
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 6
    assert tokens == sorted(tokens), "in the order in which they came"
    impatient = settings | {"hoodie.write.lock.zookeeper.connection_timeout_ms": "1000"}
    with ours(provider, impatient).hold() as lease:
        spark_judge.request("stop_zookeeper")
        with pytest.raises(LeaseLost):
            lease.check()


def test_we_share_hives_lock(spark_judge: SparkJudge) -> None:
    pytest.importorskip("thrift")
    port = spark_judge.request("metastore", timeout="300s")["port"]
    settings = {
        "hoodie.write.lock.hivemetastore.database": "default",
        "hoodie.write.lock.hivemetastore.table": "trips",
        "hoodie.write.lock.hivemetastore.uris": f"thrift://127.0.0.1:{port}",
    }
    provider = "org.apache.hudi.hive.transaction.lock.HiveMetastoreBasedLockProvider"
    lock, other = ours(provider, settings), ours(provider, settings)
    with lock.hold() as lease:
        lease.check()
        with pytest.raises(LockUnavailable), other.hold():
            pass
        lease.check()
    with other.hold() as lease:
        lease.check()
    # A request that Hudi's provider gave up for lost would stay in the metastore's queue: it may take its time.
    by_turns(spark_judge, provider, settings, wait_ms=30_000)
