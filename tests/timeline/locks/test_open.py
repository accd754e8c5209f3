"""From settings to a lock: which one, with which patience, and what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.config.settings import resolve_settings
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import LocalStore, MemoryStore, open_store
from lakefmt._core.storage.remote import RemoteStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.locks.api import FencedLease, RetryPolicy
from lakefmt._core.timeline.locks.local import InProcessLock, LocalLock
from lakefmt._core.timeline.locks.objects import (
    FILE_SYSTEM_LOCK_NAME,
    STORAGE_LOCK_NAME,
    FileSystemLock,
    LockRecord,
    StorageLock,
    decode_lock_record,
    encode_lock_record,
)
from lakefmt._core.timeline.locks.open import LockOptions, default_lock_provider, lock_options, open_lock
from lakefmt.errors import CorruptFile, InvalidInputError, LeaseLost, LockUnavailable, UnsupportedFeature
from lakefmt.testing.store_wrapper import WrapperStore
from lakefmt.testing.virtual_time import Process, VirtualTime

PAGES = Path(__file__).parents[3] / "docs"
PACKAGE = "org.apache.hudi.client.transaction.lock."


def plain_remote():
    from fsspec.implementations.memory import MemoryFileSystem

    return RemoteStore(MemoryFileSystem(skip_instance_cache=True), "/t", url="sftp://host/t")


class Elsewhere(WrapperStore):
    """A store that is neither memory nor this machine's disk, and compares and swaps: as S3 is."""

    url = "s3://bucket/partition_changed"


def test_the_default_is_the_best_that_the_store_offers(tmp_path):
    local, remote = LocalStore(tmp_path), Elsewhere(MemoryStore())
    shared, alone = LockOptions(shared=True), LockOptions()
    assert isinstance(open_lock(local, shared, "w"), LocalLock)
    assert isinstance(open_lock(local, alone, "w"), LocalLock)
    assert isinstance(open_lock(MemoryStore(), shared, "w"), InProcessLock)
    assert isinstance(open_lock(remote, alone, "w"), InProcessLock)
    for store, fitting in ((remote, "StorageBasedLockProvider"), (plain_remote(), "ZookeeperBasedLockProvider")):
        assert default_lock_provider(store, shared=True) is None, "several writers on an object store name one"
        with pytest.raises(InvalidInputError, match=f"{fitting} for example, everywhere"):
            open_lock(store, shared, "w")


def several_writers(store, provider):
    """Return whether a table of this store takes several writers, with that provider or with none."""
    many = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
    client = TableClient(store, many if provider is None else {**many, "hoodie.write.lock.provider": provider})
    table = Table(client)
    try:
        table.upsert(pa.table({"id": ["a"]}))
        table.clean()
    except (InvalidInputError, UnsupportedFeature) as error:
        return "hoodie.write.lock.provider" not in str(error)
    return True


@pytest.mark.parametrize("kind", ["local disk", "memory", "object store"])
@pytest.mark.parametrize("provider", [None, "InProcessLockProvider", "StorageBasedLockProvider"])
def test_the_pages_say_who_may_write_beside_whom(kind, provider, tmp_path):
    inner = LocalStore(tmp_path / "t") if kind == "local disk" else open_store(f"memory://beside/{tmp_path.name}")
    lakefmt.create_table(inner.url, schema=pa.schema([("id", pa.string())]), record_key="id")
    store = Elsewhere(inner) if kind == "object store" else inner
    said = (PAGES / "locks.md").read_text("utf-8"), (PAGES / "concurrency.md").read_text("utf-8")
    refused = (
        "Several writers on an object store must name a provider",
        "several writers on an object store without a lock provider",
    )
    assert several_writers(store, provider) is not (kind == "object store" and provider is None)
    assert all(words in " ".join(page.split()) for words, page in zip(refused, said, strict=True))
    named = [line for line in said[0].splitlines() if line.startswith("| none, ")]
    assert [("local disk" in line, "several" in line) for line in named] == [(True, False), (False, False)]


@pytest.mark.parametrize("package", ["", PACKAGE])
def test_hudis_class_names(package, tmp_path):
    def opened(name):
        return open_lock(LocalStore(tmp_path), LockOptions(package + name), "w")

    assert isinstance(opened("InProcessLockProvider"), InProcessLock)
    assert isinstance(opened("FileSystemBasedLockProvider"), FileSystemLock)
    assert isinstance(opened("StorageBasedLockProvider"), StorageLock)


@pytest.mark.parametrize("name", ["StorageBasedLockProvider", "FileSystemBasedLockProvider"])
def test_a_store_without_conditional_puts_is_refused(name):
    with pytest.raises(UnsupportedFeature):
        open_lock(plain_remote(), LockOptions(name), "w")


def test_settings_become_patience():
    said = {
        "hoodie.write.lock.wait_time_ms": 700,
        "hoodie.write.lock.wait_time_ms_between_retry": 50,
        "hoodie.write.lock.num_retries": 3,
        "hoodie.write.lock.client.num_retries": 2,
        "hoodie.write.lock.client.wait_time_ms_between_retry": 250,
    }
    options = lock_options(resolve_settings(said))
    assert options.retry_policy == RetryPolicy(0.7, 0.05, 4, 3, 0.25)
    assert options.retry_policy.total == pytest.approx(2.6)
    process = Process(VirtualTime())
    assert len([*options.retry_policy.tries(process, 1.0)]) == 12
    assert process.monotonic() <= options.retry_policy.total


@given(st.floats(0.0, 30.0), st.none() | st.floats(0.001, 5.0), st.none() | st.integers(1, 20), st.floats(0.001, 1.0))
def test_patience_ends_in_time_and_not_before(seconds, pause, attempts, longest):
    process = Process(VirtualTime(), 7)
    tries = 0
    for _ in RetryPolicy(seconds, pause, attempts).tries(process, longest):
        tries += 1
        if tries > 2000:
            break  # short pauses, much time: the end is far
    assert process.monotonic() <= seconds + 1e-6
    if tries <= 2000:
        assert tries == attempts or process.monotonic() == pytest.approx(seconds)


# ---------------------------------------------------------------------------------------------------- Hudi's lock file


def file_options(path=None, expire=0):
    said = {"hoodie.write.lock.filesystem.expire": expire}
    return LockOptions(
        "FileSystemBasedLockProvider",
        retry_policy=RetryPolicy(0.0),
        settings=said | ({} if path is None else {"hoodie.write.lock.filesystem.path": path}),
    )


def test_the_lock_file_lives_where_it_is_told_to(tmp_path):
    base = tmp_path / "t"
    places = {
        None: base / ".hoodie/lock",
        f"{base}/.hoodie/.aux": base / ".hoodie/.aux/lock",
        f"file://{base}": base / "lock",
        str(tmp_path / "locks/"): tmp_path / "locks/lock",
    }
    for path, expected in places.items():
        with open_lock(LocalStore(base), file_options(path), "w").hold() as lease:
            lease.check()
            assert json.loads(expected.read_text())["owner"].startswith("w-")
        assert not expected.exists()
    for path in ("s3://bucket/locks", "locks"):
        with pytest.raises(InvalidInputError):
            open_lock(LocalStore(base), file_options(path), "w")


def test_an_old_file_is_taken_over_only_with_an_expiry(tmp_path):
    import os

    store = LocalStore(tmp_path)
    store.put(FILE_SYSTEM_LOCK_NAME, b"")  # Spark's
    old = time.time() - 121
    os.utime(tmp_path / ".hoodie/lock", (old, old))
    for expire in (0, 3):
        with pytest.raises(LockUnavailable), open_lock(store, file_options(expire=expire), "w").hold():
            pass
    with open_lock(store, file_options(expire=2), "w").hold() as lease:
        lease.check()
        assert isinstance(lease, FencedLease)
        store.put(FILE_SYSTEM_LOCK_NAME, b"")  # taken over in turn
        with pytest.raises(LeaseLost):
            lease.check()
    assert store.read(FILE_SYSTEM_LOCK_NAME) == b"", "and not removed by who lost it"


def test_a_holder_of_a_file_with_an_expiry_touches_it(tmp_path):
    import os

    store, process = LocalStore(tmp_path), Process(VirtualTime())
    with open_lock(store, file_options(expire=1), "w", process, time.time).hold() as lease:
        os.utime(tmp_path / ".hoodie/lock", (0, 0))
        process.sleep(50.0)
        lease.check()
        assert store.info(FILE_SYSTEM_LOCK_NAME).modified > 1


# ----------------------------------------------------------------------------------------------------- the lock object


@given(st.text(), st.integers(0, 2**53 - 1), st.booleans())
def test_a_record_comes_back(owner, until, expired):
    record = LockRecord(owner, until, expired)
    assert decode_lock_record(encode_lock_record(record)) == record
    assert {*json.loads(encode_lock_record(record))} == {"expired", "validUntil", "owner"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"owner":"a","validUntil":1}',
        b'{"owner":1,"validUntil":1,"expired":false}',
        b'{"owner":"a","validUntil":1.5,"expired":false}',
        b'{"owner":"a","validUntil":true,"expired":false}',
        b'{"owner":"a","validUntil":-1,"expired":false}',
        b'{"owner":"a","validUntil":99999999999999999999,"expired":false}',
        b'{"owner":"a","validUntil":1,"expired":"no"}',
    ],
)
def test_what_is_no_record_is_refused_and_left_alone(data):
    with pytest.raises(CorruptFile):
        decode_lock_record(data)
    store = MemoryStore()
    store.put(STORAGE_LOCK_NAME, data)
    with pytest.raises(CorruptFile), open_lock(store, LockOptions("StorageBasedLockProvider"), "w").hold():
        pass
    assert store.read(STORAGE_LOCK_NAME) == data


def test_a_holder_on_the_jvm_is_respected_until_its_time_is_over():
    store, process = MemoryStore(), Process(VirtualTime())
    options = LockOptions("StorageBasedLockProvider", retry_policy=RetryPolicy(0.5))
    until = int((process.wall() + 20) * 1000)
    store.put(STORAGE_LOCK_NAME, b'{"validUntil":%d,"owner":"6ee0-jvm","expired":false}' % until)
    lock = open_lock(store, options, "w", process, process.wall)
    with pytest.raises(LockUnavailable), lock.hold():
        pass
    process.sleep(19.4)  # a wait later it is over, but for the half second that clocks may differ
    with pytest.raises(LockUnavailable, match="ends by itself"), lock.hold():
        pass
    with lock.hold() as lease:
        lease.check()
        assert decode_lock_record(store.read(STORAGE_LOCK_NAME)).owner.startswith("w-")
        process.sleep(1000.0)
        lease.check()
        now = int(process.wall() * 1000)
        assert decode_lock_record(store.read(STORAGE_LOCK_NAME)).valid_until > now + 250_000, "it renews"
    last = decode_lock_record(store.read(STORAGE_LOCK_NAME))
    assert last.expired
    assert store.info(STORAGE_LOCK_NAME) is not None, "the object stays"


def test_hudis_rule_for_renewals():
    said = {
        "hoodie.write.lock.storage.validity.timeout.secs": 60,
        "hoodie.write.lock.storage.heartbeat.poll.secs": 10,
    }
    options = lock_options(resolve_settings(said | {"hoodie.write.lock.provider": "StorageBasedLockProvider"}))
    with pytest.raises(InvalidInputError, match="ten times"):
        open_lock(MemoryStore(), options, "w")


# --------------------------------------------------------------------------------------------------- through the verbs


def test_a_commit_whose_lock_object_was_taken_over_is_refused(tmp_path):
    import pyarrow as pa

    from lakefmt.testing.stores import WatchStore

    rows = pa.table({"id": ["a", "b"], "ts": [1, 1]})
    table = lakefmt.create_table(str(tmp_path / "t"), data=rows, record_key="id", ordering="ts")
    told = {"hoodie.write.lock.provider": PACKAGE + "StorageBasedLockProvider"}
    table.upsert(rows, options=told)
    assert decode_lock_record((tmp_path / "t" / STORAGE_LOCK_NAME).read_bytes()).expired
    before = table.snapshot().instant
    inner, taken = table.client.store, []

    def take_over(effect):
        if effect.kind == "put_if_match":
            taken.append(effect)
            if len(taken) == 3:  # choosing an instant took and gave the lock; now it is taken to complete
                inner.put(STORAGE_LOCK_NAME, encode_lock_record(LockRecord("somebody", 1 << 50, False)))

    table.client.store = WatchStore(inner, take_over)
    with pytest.raises(LeaseLost):
        table.upsert(rows, options=told | {"hoodie.write.lock.wait_time_ms": 50})
    assert decode_lock_record(inner.read(STORAGE_LOCK_NAME)).owner == "somebody", "and left alone"
    assert lakefmt.open_table(str(tmp_path / "t")).snapshot().instant == before
