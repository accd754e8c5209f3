"""Hudi's storage-based lock as an object of a service: the same test for each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.timeline.locks.objects import LockRecord, decode_lock_record, encode_lock_record
from lakefmt.errors import LockUnavailable

PROVIDER = {"hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider"}
NAME = ".hoodie/.locks/table_lock.json"


def assert_lock_object_is_kept(url: str, options: dict[str, Any], rows: Callable[[int, int, int], pa.Table]) -> None:
    """Check that we wait for a writer on the JVM, take over its lock once its lease is over, and give ours back."""
    table = lakefmt.create_table(url, data=rows(0, 1, 1), record_key="id", ordering="ts", storage_options=options)
    told = {**PROVIDER, "hoodie.write.lock.wait_time_ms": 300}
    store = table.client.store
    store.put(NAME, encode_lock_record(LockRecord("a writer on the JVM", 1 << 50, False)))
    with pytest.raises(LockUnavailable):
        table.upsert(rows(0, 10, 1), options=told)
    store.put(NAME, encode_lock_record(LockRecord("a writer on the JVM", 17, False)))  # its lease is over
    table.upsert(rows(0, 10, 1), options=told)
    lakefmt.open_table(url, storage_options=options).upsert(rows(5, 15, 2), options=told)
    assert decode_lock_record(store.read(NAME)).expired, "given back, and not removed"
    assert table.read().num_rows == 15
