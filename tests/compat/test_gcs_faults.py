"""Google Cloud Storage behind a network that cuts, splits, refuses and drops: the right result, or try again."""

from __future__ import annotations

import asyncio
import itertools
import logging
import types
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.remote import RemoteStore
from lakefmt._core.table import Table, create_table
from lakefmt._core.timeline.locks.objects import STORAGE_LOCK_NAME, LockRecord, encode_lock_record
from lakefmt.errors import LakefmtError, StorageError
from tests.judges.faulty_network import FAULTS, HARMLESS, FaultyNetwork, all_from, every, one_of
from tests.judges.gcs import gcs_options, gcs_service

pytestmark = [pytest.mark.gcs, pytest.mark.slow]
NUMBERS = itertools.count()
TOLD = [name for name in FAULTS if not name.startswith("400")]
MANY = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "StorageBasedLockProvider",
    "hoodie.write.lock.wait_time_ms": 50,
}


async def without_pause(seconds: float) -> None:
    """What clients wait between two attempts is not waited here."""


@pytest.fixture(scope="module")
def network() -> Iterator[tuple[FaultyNetwork, Any, Any]]:
    """The network, and the service reached directly and through it."""
    with gcs_service() as endpoint, pytest.MonkeyPatch.context() as patch:
        import gcsfs  # after the service has said in the environment how

        where = urlsplit(endpoint)
        faulty = FaultyNetwork(str(where.hostname), int(where.port or 80))
        patch.setattr(
            gcsfs.retry, "asyncio", types.SimpleNamespace(**{**vars(asyncio), "sleep": without_pause}), raising=False
        )

        def connect(address: str) -> Any:
            return gcsfs.GCSFileSystem(**gcs_options(address), skip_instance_cache=True, use_listings_cache=False)

        direct = connect(endpoint)
        direct.call("POST", "b", json={"name": "faults"}, project="made-up", json_out=True)
        rows = pa.table({"id": ["a", "b"], "v": [1, 2]})
        create_table("gs://faults/t", data=rows, record_key="id", storage_options=gcs_options(endpoint)).upsert(rows)
        logging.disable(logging.CRITICAL)  # the client tells of every fault
        yield faulty, direct, connect(faulty.endpoint)
        logging.disable(logging.NOTSET)
        faulty.close()


def table(fs: Any, **options: object) -> Table:
    return Table(TableClient(RemoteStore(fs, "faults/t"), options))


@pytest.mark.parametrize("fault", TOLD)
def test_reads_are_right_or_said_to_be_tried_again(network: tuple[FaultyNetwork, Any, Any], fault: str) -> None:
    faulty, direct, through = network
    right = table(direct).read()
    with faulty.planned(every(FAULTS["in two pieces"])) as requests:
        assert table(through).read().equals(right)
    at = len(fault) % (len(requests) // 2)
    with faulty.planned(one_of(at, FAULTS[fault])):
        assert table(through).read().equals(right), "the client asks again by itself"
    with faulty.planned(all_from(at, FAULTS[fault])):
        if fault in HARMLESS:
            assert table(through).read().equals(right)
            return
        with pytest.raises(StorageError) as caught:
            table(through).read()
        assert caught.value.transient


@pytest.mark.newest_only("the oldest gcsfs has no condition; there the lock is refused with a typed error")
@pytest.mark.parametrize("fault", TOLD)
def test_a_lock_whose_object_comes_late_or_cut_is_no_strange_object(
    network: tuple[FaultyNetwork, Any, Any], fault: str
) -> None:
    faulty, direct, through = network
    lock = encode_lock_record(LockRecord("a writer on the JVM", 1 << 50, False))
    table(direct).client.store.put(STORAGE_LOCK_NAME, lock)
    name = STORAGE_LOCK_NAME.rpartition("/")[2]

    def meet_the_lock(request: Any) -> Any:
        return FAULTS[fault] if request.method == "GET" and name in request.target else None

    with faulty.planned(meet_the_lock), pytest.raises(LakefmtError) as caught:
        table(through, **MANY).upsert(pa.table({"id": ["a"], "v": [3]}))
    error = caught.value
    assert error.kind == "lock_unavailable" or (isinstance(error, StorageError) and error.transient), error
    assert "remove it" not in str(error)
