"""What only Azure can do wrong while it creates and swaps: lost answers and repeated requests; tables and locks on it."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.storage import PutOutcome, open_store
from lakefmt._core.storage.remote import RemoteStore
from lakefmt.errors import InvalidInputError, StorageError, TableExists
from tests.judges.azure import ACCOUNT, KEY, azure_options

pytestmark = [pytest.mark.azure, pytest.mark.slow]

NAME = ".hoodie/.locks/table_lock.json"
numbers = itertools.count()


@pytest.fixture
def store(azure_filesystem, azure_container):
    made = RemoteStore(azure_filesystem, f"{azure_container}/swaps-{next(numbers)}")
    made.put(NAME, b"one")
    return made


@contextmanager
def uploads(act: Callable[[Callable[[], Awaitable[object]]], Awaitable[object]]) -> Iterator[None]:
    """Let `act` carry out, or not carry out, every upload."""
    from azure.storage.blob.aio import BlobClient

    upload = BlobClient.upload_blob

    async def patched(self, *data, **told):
        return await act(lambda: upload(self, *data, **told))

    with mock.patch.object(BlobClient, "upload_blob", patched):
        yield


async def lost(send):
    await send()
    raise ConnectionResetError("the answer is lost")


async def never_sent(send):
    raise PermissionError("no")


async def repeated(send):
    await send()
    return await send()


def mark(store):
    return store.read_version(NAME, 100).mark


def test_a_put_repeated_by_the_client_is_done(store):
    with uploads(repeated):
        answer = store.put_if_match(NAME, b"two", mark(store))
        assert store.put_if_absent("new", b"three") is PutOutcome.DONE
    assert answer == (PutOutcome.DONE, mark(store))
    assert (store.read(NAME), store.read("new")) == (b"two", b"three")


def test_a_lost_answer_is_told(store):
    seen = mark(store)
    with uploads(lost):
        assert store.put_if_match(NAME, b"two", seen).outcome is PutOutcome.UNKNOWN
        assert store.put_if_absent("new", b"three") is PutOutcome.UNKNOWN
    assert (store.read(NAME), store.read("new")) == (b"two", b"three")
    assert store.put_if_match(NAME, b"four", seen).outcome is PutOutcome.REFUSED


def test_what_was_turned_down_is_an_error(store):
    with uploads(never_sent), pytest.raises(StorageError, match="cannot replace"):
        store.put_if_match(NAME, b"two", mark(store))
    assert store.read(NAME) == b"one"


def test_what_is_gone_is_not_replaced(store):
    seen = mark(store)
    store.delete([NAME])
    assert store.put_if_match(NAME, b"two", seen).outcome is PutOutcome.REFUSED
    assert store.read_version(NAME, 100) is None


def test_an_empty_object_has_an_etag(store):
    store.put(NAME, b"")
    found = store.read_version(NAME, 100)
    assert found.data == b""
    assert store.put_if_match(NAME, b"two", found.mark).outcome is PutOutcome.DONE


@pytest.mark.parametrize("scheme", ["abfss", "az", "abfs"])
def test_a_table_lies_on_azure(scheme, azure_endpoint, azure_container):
    url = f"{scheme}://{azure_container}/tables/t-{next(numbers)}"
    place = {"storage_options": azure_options(azure_endpoint)}
    rows = pa.table({"id": ["a", "b"], "city": ["sf", "oslo"]})
    lakefmt.write_table(url, rows, record_key="id", partition_by="city", **place)
    with pytest.raises(TableExists):
        lakefmt.write_table(url, rows, record_key="id", partition_by="city", **place)
    table = lakefmt.open_table(url, **place)
    table.upsert(pa.table({"id": ["b", "c"], "city": ["oslo", "oslo"]}))
    table.delete(["a"])
    assert sorted(table.read()["id"].to_pylist()) == ["b", "c"]
    assert table.check().is_clean


def test_writers_beside_each_other_lose_nothing(azure_endpoint, azure_container):
    from concurrent.futures import ThreadPoolExecutor

    url = f"abfss://{azure_container}/tables/beside-{next(numbers)}"
    place = {"storage_options": azure_options(azure_endpoint)}
    options = {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.write.lock.provider": "StorageBasedLockProvider",
    }
    lakefmt.create_table(url, schema=pa.schema([("id", pa.string())]), record_key="id", **place)

    def write(writer: int) -> None:
        table = lakefmt.open_table(url, options=options, **place)
        for number in range(3):
            table.upsert(pa.table({"id": [f"{writer}-{number}"]}))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(2)))
    assert lakefmt.open_table(url, **place).read().num_rows == 6


def test_option_names_of_other_libraries_are_understood(azure_endpoint, azure_container):
    options = {
        "azure_storage_account_name": ACCOUNT,
        "azure_storage_account_key": KEY,
        "azure_storage_endpoint": f"{azure_endpoint}/{ACCOUNT}",
    }
    store = open_store(f"az://{azure_container}/named", options)
    store.put("a", b"x")
    assert store.read("a") == b"x"


def test_an_unknown_option_is_named():
    with pytest.raises(InvalidInputError, match="account_nam"):
        open_store("abfss://c/t", {"account_nam": "x"})
