"""S3 behind a network that cuts, splits, refuses and drops: the right result, or a StorageError that says try again."""

from __future__ import annotations

import asyncio
import logging
import re
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from benchmarks.storage.s3_server import s3_server
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import remote_s3
from lakefmt._core.storage.remote import RemoteStore
from lakefmt._core.table import Table
from lakefmt._core.timeline.locks.objects import STORAGE_LOCK_NAME, LockRecord, encode_lock_record
from lakefmt.errors import LakefmtError, StorageError
from tests.example_counts import examples
from tests.judges.faulty_network import FAULTS, HARMLESS, FaultyNetwork, Plan, all_from, cut_anywhere, every, one_of
from tests.kit import THOROUGH, product_or_diagonal

pytestmark = [pytest.mark.s3, pytest.mark.slow]

BUCKET = "faults"
ACCESS = {"key": "made-up", "secret": "very-secret-text", "client_kwargs": {"region_name": "us-east-1"}}
SHARED = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "StorageBasedLockProvider",
    "hoodie.write.lock.wait_time_ms": 50,
    "hoodie.clean.automatic": False,
}


@dataclass(eq=False)
class Network:
    """One service, reached directly and through the network that fails; and tables as they were made."""

    faulty: FaultyNetwork
    direct_fs: Any
    faulty_fs: Any
    backend: Any

    def table(self, name: str, *, direct: bool = False, **options: object) -> Table:
        """Return a handle that has seen nothing yet."""
        fs = self.direct_fs if direct else self.faulty_fs
        return Table(TableClient(RemoteStore(fs, f"{BUCKET}/{name}"), {**SHARED, **options}))

    def copy(self, name: str, to: str) -> None:
        """Make another table of the same objects, inside the service."""
        keys = self.backend.buckets[BUCKET].keys
        for key in [key for key in keys if key.startswith(f"{to}/")]:
            self.backend.delete_object(BUCKET, key)
        for key in [key for key in keys if key.startswith(f"{name}/")]:
            self.backend.put_object(BUCKET, to + key.removeprefix(name), keys[key].value)


def rows(first: int, last: int, ts: int) -> pa.Table:
    numbers = range(first, last)
    columns = {"id": [f"k{n}" for n in numbers], "city": ["sf"] * len(numbers), "ts": [ts] * len(numbers)}
    return pa.table(columns)


async def without_pause(seconds: float) -> None:
    """What clients wait between two attempts is not waited here."""


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    s3fs = pytest.importorskip("s3fs")
    from moto.s3.models import s3_backends

    hurried = types.SimpleNamespace(**{**vars(asyncio), "sleep": without_pause})

    def connect(endpoint: str) -> Any:
        return s3fs.S3FileSystem(
            **ACCESS,
            endpoint_url=endpoint,
            config_kwargs={"retries": {"max_attempts": 0}},
            skip_instance_cache=True,
            use_listings_cache=False,
        )

    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        host, port = server.get_host_and_port()
        faulty = FaultyNetwork(host, port)
        patch.setattr(s3fs.S3FileSystem, "retries", 1)  # what the client repeats by itself hides the answer
        patch.setattr(s3fs.core, "asyncio", hurried)
        patch.setattr(remote_s3, "asyncio", hurried, raising=False)
        direct = connect(f"http://{host}:{port}")
        direct.call_s3("create_bucket", Bucket=BUCKET)
        account = next(iter(s3_backends))
        made = Network(faulty, direct, connect(faulty.endpoint), s3_backends[account]["aws"])
        for kind in ("cow", "mor"):
            lakefmt.create_table(
                f"s3://{BUCKET}/{kind}",
                schema=rows(0, 1, 1).schema,
                record_key="id",
                partition_by="city",
                ordering="ts",
                table_type=kind,
                storage_options={**ACCESS, "endpoint_url": f"http://{host}:{port}"},
            )
            for part in (rows(0, 10, 1), rows(5, 15, 2)):
                made.table(kind, direct=True).upsert(part)
        logging.disable(logging.CRITICAL)  # the clients tell of every fault
        yield made
        logging.disable(logging.NOTSET)
        faulty.close()


def in_order(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=str)


READS: dict[str, Callable[[Table], object]] = {
    "read": lambda table: in_order(table.read()),
    "scan": lambda table: in_order(table.scan(columns=["id"], filter=[("ts", ">", 1)]).read_all()),
    "incremental": lambda table: in_order(table.incremental("000")),
    "changes": lambda table: in_order(table.changes("000")),
    "stats": lambda table: re.sub(r"stale for \d+ \w+", "stale", str(table.stats())),  # seconds pass between two calls
    "check": lambda table: [str(finding) for finding in table.check("full").findings],
}
WRITES: dict[str, Callable[[Table], object]] = {
    "upsert": lambda table: table.upsert(rows(8, 18, 3)),
    "delete": lambda table: table.delete(["k1", "k2"]),
    "overwrite": lambda table: table.insert_overwrite(rows(20, 24, 1)),
    "compact": lambda table: table.compact(),
    "clean": lambda table: table.clean(options={"hoodie.clean.commits.retained": 1}),
}


def outcome(
    act: Callable[[Table], object], table: Table, network: Network, plan: Plan
) -> tuple[object, StorageError | None]:
    """Return the answer, or the error that says that it may be had later; everything else fails the test."""
    with network.faulty.planned(plan):
        try:
            return act(table), None
        except StorageError as error:
            failure = error
    assert failure.transient, failure
    assert "remove it" not in str(failure)
    return None, failure


@cache
def right_read(network: Network, kind: str, verb: str) -> tuple[object, int]:
    """Return what a read gives when nothing fails, and how many requests it takes."""
    with network.faulty.planned(lambda request: None) as requests:
        return READS[verb](network.table(kind)), len(requests)


@cache
def right_write(network: Network, kind: str, verb: str) -> tuple[object, object, int]:
    """Return the rows before and after a write that nothing disturbs, and how many requests it takes."""
    network.copy(kind, "right")
    before = in_order(network.table("right", direct=True).read())
    with network.faulty.planned(lambda request: None) as requests:
        WRITES[verb](network.table("right"))
    return before, in_order(network.table("right", direct=True).read()), len(requests)


def some(verbs: Iterable[str], fault: str, count: int) -> list[str]:
    """Return some verbs, others for each fault; all of them in a thorough run."""
    known = sorted(verbs)
    first = [*FAULTS].index(fault)
    return known if THOROUGH else [known[(first * count + n) % len(known)] for n in range(count)]


# ----------------------------------------------------------------------------------------------------------------- reads


# Of the eleven faults those that reads meet today writes meet tomorrow.
@pytest.mark.in_turn(2, "faults of S3")
@product_or_diagonal(kind=["cow", "mor"], fault=FAULTS)
def test_reads_are_right_or_said_to_be_tried_again(network: Network, kind: str, fault: str) -> None:
    for number, verb in enumerate(some(READS, fault, 2)):
        right, total = right_read(network, kind, verb)
        act, met = READS[verb], FAULTS[fault]
        if fault in HARMLESS:
            assert outcome(act, network.table(kind), network, every(met)) == (right, None)
            continue
        at = (number * 7 + len(fault) * 3 + len(kind)) % total
        for plan in (one_of(at, met), all_from(at, met)):
            found, error = outcome(act, network.table(kind), network, plan)
            assert error is not None or found == right


@settings(max_examples=examples(10))
@given(share=st.floats(0, 1), at=st.integers(0, 15), kind=st.sampled_from(["cow", "mor"]))
def test_a_read_cut_at_any_byte(network: Network, share: float, at: int, kind: str) -> None:
    found, error = outcome(READS["read"], network.table(kind), network, one_of(at, cut_anywhere(share)))
    assert error is not None or found == right_read(network, kind, "read")[0]


def test_a_body_that_is_cut_once_is_read_again(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(network.faulty_fs), "retries", 5)
    right, total = right_read(network, "cow", "read")
    for at in range(0, total, 1 if THOROUGH else 3):
        found = outcome(READS["read"], network.table("cow"), network, one_of(at, FAULTS["cut in the body"]))
        assert found == (right, None)


# ---------------------------------------------------------------------------------------------------------------- writes


@pytest.mark.in_turn(2, "faults of S3")
@pytest.mark.parametrize("fault", FAULTS)
def test_writes_are_done_or_said_to_be_tried_again(network: Network, fault: str) -> None:
    for verb in some(WRITES, fault, 2):
        kind = "mor" if verb == "compact" or len(fault) % 2 else "cow"
        before, after, total = right_write(network, kind, verb)
        network.copy(kind, "tried")
        act, met = WRITES[verb], FAULTS[fault]
        at = (len(verb) * 11 + len(fault) * 7) % total
        plan = every(met) if fault in HARMLESS else one_of(at, met)
        _, error = outcome(act, network.table("tried"), network, plan)
        found = in_order(network.table("tried", direct=True).read())
        assert found == after if error is None else found in (before, after)
        assert error is None or fault not in HARMLESS


# ------------------------------------------------------------------------------------------------------------------ lock


@pytest.mark.newest_only("the oldest botocore has no If-Match; there the lock is refused with a typed error")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_lock_whose_object_comes_late_or_cut_is_no_strange_object(network: Network, fault: str) -> None:
    network.copy("cow", "locked")
    store = network.table("locked", direct=True).client.store
    store.put(STORAGE_LOCK_NAME, encode_lock_record(LockRecord("a writer on the JVM", 1 << 50, False)))

    def meet_the_lock(request: Any) -> Any:
        return FAULTS[fault] if request.method == "GET" and STORAGE_LOCK_NAME in request.target else None

    with network.faulty.planned(meet_the_lock), pytest.raises(LakefmtError) as caught:
        network.table("locked").upsert(rows(0, 1, 3))
    assert caught.value.kind == "lock_unavailable" or (
        isinstance(caught.value, StorageError) and caught.value.transient
    )
    assert "remove it" not in str(caught.value)
    assert store.read(STORAGE_LOCK_NAME) == encode_lock_record(LockRecord("a writer on the JVM", 1 << 50, False))
    if fault in HARMLESS:
        assert caught.value.kind == "lock_unavailable"


def test_the_kit_can_fail(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that takes the first piece of a body for the whole is found out."""

    async def first_piece(answer: Any, limit: int | None, key: str) -> bytes:
        return bytes(await answer["Body"].read(16))  # however much has come by now

    monkeypatch.setattr(remote_s3, "_whole_body", first_piece)
    with pytest.raises((AssertionError, LakefmtError)):
        test_reads_are_right_or_said_to_be_tried_again(network, "cow", "in many pieces")
    with pytest.raises((AssertionError, LakefmtError)):
        test_a_lock_whose_object_comes_late_or_cut_is_no_strange_object(network, "in many pieces")
