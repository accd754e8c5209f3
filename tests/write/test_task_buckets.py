"""Tasks write the buckets of consistent hashing that one process has decided on, those of pending plans included."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.names import RING_DIRECTORY
from lakefmt._core.index.bucket_index import ConsistentBucketIndex
from lakefmt._core.index.bucket_ring import LARGEST_HASH, HashNode, HashRing
from lakefmt._core.index.bucket_ring_files import RingFiles
from lakefmt._core.storage.open import open_store
from lakefmt._core.values import CommitResult, PartitionPath, WriteOperation
from lakefmt._core.write.context import WriteRequest
from lakefmt._core.write.files.bucket_copies import BucketCopies, SharedBuckets
from lakefmt._core.write.tasks import (
    SharedWrite,
    TaskResult,
    TaskRows,
    TasksTransaction,
    TaskWriter,
    key_rows,
    run_tasks_and_commit,
    split_rows,
)
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.errors import CommitConflict, InvalidInputError
from tests.compaction.test_bucket_copies import TWICE, copies, first_model, planned, whole
from tests.compaction.test_cluster import Later, pending
from tests.compaction.test_cluster_buckets import made
from tests.index.ring_tables import FAST, check, make, rings_of, rows
from tests.index.test_resized_buckets import LEAST, MERGE_ALL, SPLIT_ALL
from tests.write.test_task_writer import delete_anywhere

MERGE = {**MERGE_ALL, LEAST: 2}
NUMBERS = itertools.count()
PARTS = 3


def parts_of(shared: SharedWrite, index: ConsistentBucketIndex, data: pa.Table) -> list[pa.Table]:
    """Return the rows of each task, as the session of Spark hands them out."""
    (batch,) = key_rows(shared, [data])
    numbers = split_rows(batch, PARTS, index, shared.buckets)
    return [batch.table.filter(pa.array(numbers == part)) for part in range(PARTS)]


def run_tasks(table: lakefmt.Table, data: pa.Table, attempts: int, shared: SharedWrite) -> list[TaskResult]:
    """Let tasks write rows, each as often as said."""
    shared = pickle.loads(pickle.dumps(shared))
    assert shared.buckets is not None
    place = partial(open_store, shared.context.url)
    whole_index = WriteTransaction.plan_only(table.client, WriteRequest(shared.context.operation)).index
    index = pickle.loads(pickle.dumps(shared.buckets.index_for(whole_index, place)))
    results = []
    for task, mine in enumerate(parts_of(shared, index, data)):
        for _ in range(attempts if mine.num_rows else 0):
            writer = TaskWriter(shared, task)
            writer.write(mine)
            last = pickle.loads(pickle.dumps(writer.result()))
        assert attempts == 1 or not mine.num_rows or all(each.adopted for each in last.statuses), "not adopted"
        results += [last] if mine.num_rows else []
    return results


def write(
    table: lakefmt.Table,
    data: pa.Table,
    operation: str = "upsert",
    options: dict[str, object] | None = None,
    attempts: int = 2,
    run: Callable[..., list[TaskResult]] = run_tasks,
) -> CommitResult | None:
    """Write rows by tasks and commit."""
    request = WriteRequest(
        WriteOperation(operation.upper()), {**FAST, **(options or {})}, partial=operation == "delete"
    )
    partitions = frozenset(PartitionPath(f"p={value}") for value in set(data["p"].to_pylist()))
    given_rows = TaskRows(data.num_rows, partitions)
    schema = rows(0, 1, 0).schema
    return run_tasks_and_commit(table.client, request, schema, given_rows, partial(run, table, data, attempts))


def upsert(table: lakefmt.Table, model: dict[str, int], first: int, last: int, v: int, **how: object) -> None:
    model |= {f"k{n}": v for n in range(first, last)}
    write(table, rows(first, last, v), **how)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 8, 9])
def test_tasks_write_rows_into_the_file_group_of_their_node(version: int) -> None:
    table, model = make(f"tasks-{next(NUMBERS)}", table_version=version), dict[str, int]()
    upsert(table, model, 0, 60, 1)
    whole(table, model)
    upsert(table, model, 40, 90, 2)
    table.upsert(rows(80, 100, 3))  # one process goes on
    model |= {f"k{n}": 3 for n in range(80, 100)}
    table.cluster(options=SPLIT_ALL)
    upsert(table, model, 90, 120, 4)
    write(table, rows(0, 10, 0), "delete")
    model = {key: v for key, v in model.items() if key not in {f"k{n}" for n in range(10)}}
    whole(table, model)
    assert {len(ring.nodes) for ring in rings_of(table).values()} == {8}


def test_rows_that_replace_others_get_new_file_groups_and_the_ring_is_settled() -> None:
    table, model = make(f"tasks-{next(NUMBERS)}"), dict[str, int]()
    upsert(table, model, 0, 60, 1)
    before = rings_of(table)
    result = write(table, rows(0, 30, 2), "insert_overwrite_table")
    assert result is not None
    check(table, {f"k{n}": 2 for n in range(30)})
    for partition, ring in rings_of(table).items():
        assert (ring.instant, ring.sequence) == (result.instant, before[partition].sequence + 1)
        marked = f"{RING_DIRECTORY}/{partition}/{result.instant}.commit"
        assert table.client.store.info(marked) is not None
    upsert(table, {}, 0, 30, 3)
    whole(table, {f"k{n}": 3 for n in range(30)})


@pytest.mark.slow
@pytest.mark.in_turn(2)
@pytest.mark.parametrize("how", [SPLIT_ALL, MERGE], ids=["split", "merge"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_rows_go_to_the_old_and_the_new_buckets_while_a_plan_waits(version: int, how: dict[str, object]) -> None:
    table, model = made(version), first_model()
    instant = planned(table, how)
    for first, last, v in ((20, 70, 3), (60, 90, 4)):
        known = set(copies(table, instant))
        upsert(table, model, first, last, v, options=TWICE)
        new = Counter(name.rpartition("_")[0].partition(".log.")[0] for name in set(copies(table, instant)) - known)
        assert set(new.values()) == {1}  # a second attempt made no other copy
        whole(table, model)
    write(table, rows(0, 5, 0), "delete", TWICE)
    for n in range(5):
        del model[f"k{n}"]
    whole(table, model)
    table.cluster(run=instant)
    assert pending(table) == []
    whole(table, model)
    upsert(table, model, 0, 100, 5)
    table.compact()
    whole(table, model)


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 8, 9])
def test_keys_that_do_not_say_their_partition_are_looked_up_in_the_ring_of_each(version: int) -> None:
    table, model = make(f"tasks-{next(NUMBERS)}", table_version=version), dict[str, int]()
    upsert(table, model, 0, 60, 1)
    table.cluster(options=SPLIT_ALL)
    upsert(table, model, 40, 90, 2)
    keys = pa.table({"id": [f"k{n}" for n in (*range(0, 90, 7), 777)]})
    result = delete_anywhere(table, keys, FAST, attempts=2)
    assert result is not None
    assert result.num_deletes == 13
    whole(table, {key: v for key, v in model.items() if key not in keys["id"].to_pylist()})


@pytest.mark.parametrize("more", [{}, TWICE], ids=["refused", "to both"])
def test_keys_that_do_not_say_their_partition_are_not_deleted_by_tasks_while_a_plan_waits(
    more: dict[str, object],
) -> None:
    """The session of Spark leaves it to one process; where the plan is made meanwhile the commit is refused."""
    table, model = made(), first_model()
    planned(table, SPLIT_ALL)
    with pytest.raises(CommitConflict, match="pending clustering"):
        delete_anywhere(table, pa.table({"id": ["k1", "k40"]}), {**FAST, **more})
    whole(table, model)
    assert len(pending(table)) == 1


def test_tasks_that_do_not_write_to_both_are_refused() -> None:
    table, model = made(), first_model()
    planned(table, SPLIT_ALL)
    with pytest.raises(CommitConflict, match="pending clustering"):
        upsert(table, dict(model), 0, 3, 9)
    whole(table, model)
    assert len(pending(table)) == 1


@pytest.mark.parametrize("operation", ["upsert", "insert_overwrite_table"])
def test_a_driver_that_dies_after_it_has_stored_the_rings_is_no_obstacle(operation: str) -> None:
    table, model = make(f"tasks-{next(NUMBERS)}"), dict[str, int]()
    upsert(table, model, 0, 30, 1)
    request = WriteRequest(WriteOperation(operation.upper()), FAST)
    data = rows(0, 60, 2, 3)
    transaction = TasksTransaction.begin(table.client, request, data.schema)
    run_tasks(table, data, 1, transaction.decide([PartitionPath(f"p=p{n}") for n in range(3)]))
    transaction._abandon()
    table = lakefmt.Table(TableClient(table.client.store, FAST, clock=Later()))
    model |= {f"k{n}": 3 for n in range(20, 60)}
    write(table, rows(20, 60, 3))
    whole(table, model)
    assert pending(table) == []


def test_two_drivers_that_begin_one_partition_agree_on_its_ring_or_the_second_begins_again() -> None:
    table = make(f"tasks-{next(NUMBERS)}")
    beside: dict[str, object] = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control", **FAST}
    beside["hoodie.clean.failed.writes.policy"] = "LAZY"
    request = WriteRequest(WriteOperation.UPSERT, beside)
    begun = [TasksTransaction.begin(table.client, request, rows(0, 1, 0).schema) for _ in range(2)]
    first, second = (each.decide([PartitionPath("p=p0")]).buckets for each in begun)
    assert first is not None
    assert second is not None
    assert first.rings == second.rings
    # A writer without the table's properties, as Hudi's, that has looked before the ring was there.
    late = TasksTransaction.begin(table.client, request, rows(0, 1, 0).schema)
    rings = RingFiles(table.client.at(late.state), 2)
    rings.stored_ring = lambda partition: None  # type: ignore[method-assign]
    late.index.rings = rings  # type: ignore[attr-defined]
    with pytest.raises(CommitConflict, match="another number of buckets"):
        late.decide([PartitionPath("p=p0")])
    for each in (*begun, late):
        each.abort()


def test_rows_of_a_partition_that_was_not_counted_are_refused() -> None:
    table = make(f"tasks-{next(NUMBERS)}")

    def other_rows(table: lakefmt.Table, data: pa.Table, attempts: int, shared: SharedWrite) -> list[TaskResult]:
        writer = TaskWriter(shared, 0)
        writer.write(rows(0, 60, 2, 3))
        return [writer.result()]

    with pytest.raises(InvalidInputError, match=r"no row of partition 'p=p2' was counted"):
        write(table, rows(0, 60, 1, 2), run=other_rows)
    check(table, {})
    assert pending(table) == []


def test_a_task_asks_for_no_listing_of_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which ring counts is decided once: what others do to the rings meanwhile does not part the tasks of a write."""
    table, model = make(f"tasks-{next(NUMBERS)}"), dict[str, int]()
    upsert(table, model, 0, 60, 1)
    table.cluster(options=SPLIT_ALL)

    def other_ring_appears(
        table: lakefmt.Table, data: pa.Table, attempts: int, shared: SharedWrite
    ) -> list[TaskResult]:
        with monkeypatch.context() as changed:
            changed.setattr("lakefmt._core.index.bucket_ring_files.RingFiles.stored_ring", lambda self, partition: None)
            return run_tasks(table, data, attempts, shared)

    write(table, rows(30, 90, 2), run=other_ring_appears)
    whole(table, model | {f"k{n}": 2 for n in range(30, 90)})


VALUES = st.sets(st.integers(0, 40), min_size=1, max_size=8)


@given(VALUES, VALUES, st.booleans())
def test_nodes_move_together_where_a_later_node_has_hashes_of_both(
    before: set[int], after: set[int], ends: bool
) -> None:
    now, later = (
        HashRing(PartitionPath("p"), "0", 1, 0, tuple(HashNode(value, f"n{value}") for value in sorted(values)))
        for values in (before | ({LARGEST_HASH} if ends else set()), after)
    )
    hashes = np.array([*range(42), LARGEST_HASH], np.int64)
    pairs = set(zip(now.node_numbers(hashes).tolist(), later.node_numbers(hashes).tolist(), strict=True))
    together = {number: {number} for number in range(len(now.nodes))}
    for _ in now.nodes:  # what is connected with what is connected
        for (one, a), (other, b) in itertools.product(pairs, pairs):
            if a == b:
                joint = together[one] | together[other]
                for number in joint:
                    together[number] = joint
    numbers = now.moving_together(later)
    for one, other in itertools.product(range(len(now.nodes)), repeat=2):
        assert (numbers[one] == numbers[other]) == (other in together[one])


def test_without_the_versions_of_earlier_copies_a_second_attempt_makes_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test above can fail: a task that looks for itself takes the first attempt's copies for an earlier write's."""
    table, model = made(), first_model()
    planned(table, SPLIT_ALL)
    init = BucketCopies.__init__

    def looks_itself(self: BucketCopies, *given_values: object) -> None:
        init(self, *given_values[:4])  # type: ignore[arg-type]

    monkeypatch.setattr(BucketCopies, "__init__", looks_itself)
    with pytest.raises(AssertionError, match="not adopted"):
        upsert(table, model, 20, 70, 3, options=TWICE)


def test_merged_buckets_in_two_tasks_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: buckets that are merged must be one task's."""
    table, model = made(), first_model()
    planned(table, MERGE)
    monkeypatch.setattr(SharedBuckets, "numbers", lambda self, index, wanted: index.node_numbers(wanted, {}))
    with pytest.raises(InvalidInputError, match="written twice"):
        upsert(table, dict(model), 20, 70, 3, options=TWICE)
