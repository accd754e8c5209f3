"""A write whose steps many tasks do is the write that one process does; a second attempt adopts what the first one wrote."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.index.bucket_index import BucketIndex
from lakefmt._core.values import CommitResult, PartitionPath, WriteOperation
from lakefmt._core.write.context import WriteRequest
from lakefmt._core.write.grouped_rows import FoundRows
from lakefmt._core.write.ingest import KeyedBatch
from lakefmt._core.write.tasks import (
    SharedWrite,
    TaskResult,
    TaskRows,
    TaskWriter,
    check_conservation,
    find_keys,
    key_again,
    key_rows,
    run_tasks_and_commit,
    split_rows,
)
from lakefmt._core.write.transaction import WriteTransaction
from lakefmt.errors import CommitConflict, InstantNotPending, InvalidInputError
from lakefmt.spark.writing.distributed import plan_handing
from tests.example_counts import examples

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
#: Key → (city, value): what a batch or a table says.
BATCHES = st.lists(
    st.dictionaries(st.integers(0, 12), st.tuples(st.sampled_from("abc"), st.integers(0, 9)), min_size=1, max_size=10),
    min_size=1,
    max_size=3,
)


def rows_of(said: dict[int, tuple[str, int]], ts: int) -> pa.Table:
    """Return a batch."""
    rows = [{"id": f"k{key}", "city": city, "v": v, "ts": ts} for key, (city, v) in said.items()]
    return pa.Table.from_pylist(rows, SCHEMA)


def table_of(**how) -> lakefmt.Table:
    """Return a new table in memory."""
    keys = {"record_key": "id", "partition_by": "city", "ordering": "ts"}
    return lakefmt.create_table(f"memory://tasks/{uuid4().hex}", schema=SCHEMA, **{**keys, **how})


def content(table: lakefmt.Table) -> list[tuple]:
    """Return the rows of a table in order."""
    return sorted(zip(*table.read(["id", "city", "v"]).to_pydict().values(), strict=True))


def by_city(rows: pa.Table, tasks: int) -> list[pa.Table]:
    """Return the rows of each task: all of a partition in one."""
    task = np.array([ord(city) % tasks for city in rows["city"].to_pylist()])
    return [rows.filter(pa.array(task == number)) for number in range(tasks)]


def write_by_partition(table: lakefmt.Table, rows: pa.Table, operation: str = "upsert", attempts: int = 1) -> None:
    """Write by tasks that have all rows of their partitions, each as often as said."""

    def run(shared: SharedWrite) -> list[TaskResult]:
        shared = pickle.loads(pickle.dumps(shared))
        results = []
        for task, mine in enumerate(by_city(rows, 2)):
            for _ in range(attempts):
                writer = TaskWriter(shared, task)
                writer.write(mine)
                last = pickle.loads(pickle.dumps(writer.result()))
            results.append(last)
        return results

    request = WriteRequest(WriteOperation(operation.upper()))
    cities = frozenset(PartitionPath(city) for city in rows["city"].to_pylist())
    run_tasks_and_commit(table.client, request, SCHEMA, TaskRows(rows.num_rows, cities), run)


def write_by_look_up(
    table: lakefmt.Table, rows: pa.Table, attempts: int = 1, options: dict[str, object] | None = None
) -> None:
    """Write by tasks that look up parts of the rows, and by others that write file groups."""

    def run(shared: SharedWrite) -> list[TaskResult]:
        number = np.array([int(key[1:]) % 3 for key in rows["id"].to_pylist()])
        found: dict[tuple[str, str], list[pa.Table]] = {}
        for task in range(3):
            mine = rows.filter(pa.array(number == task))
            for one, _, some in TaskWriter(shared, task).locate(mine) if mine.num_rows else ():
                found.setdefault((one.partition, one.file_id), []).append(some)
        results = written_groups(shared, found, attempts)
        check_conservation(sum(table.num_rows for some in found.values() for table in some), results)
        return results

    request = WriteRequest(WriteOperation.UPSERT, options or {})
    cities = frozenset(PartitionPath(city) for city in rows["city"].to_pylist())
    run_tasks_and_commit(table.client, request, SCHEMA, TaskRows(None, cities), run)


def written_groups(shared: SharedWrite, found, attempts: int) -> list[TaskResult]:
    """Write rows by file group, each task as often as it is tried."""
    counted = [FoundRows(*where, sum(t.num_rows for t in some)) for where, some in sorted(found.items())]
    groups = TaskWriter(shared, 0).plan(counted, 100.0)
    handing = plan_handing(groups, 100.0, 300, 2)
    results = []
    for slot in range(handing.num_slots):
        for _ in range(attempts):
            writer = TaskWriter(shared, slot)
            for n, group in enumerate(groups):
                if handing.slots[n] == slot:
                    writer.write_group(group, tables_for(found, handing, n))
        results.append(writer.result())
    return results


def tables_for(found, handing, number: int) -> list[pa.Table]:
    """Return the rows of one file: those that it has, and new ones where it takes them (small tables: it takes them all)."""
    file = handing.groups[number].assignment
    tables = list(found.get((file.partition, file.file_id), ()))
    takers, _ = handing.shares.get(file.partition, ((), ()))
    assert len(takers) <= 1
    return tables + (found.get((file.partition, ""), []) if takers == (number,) else [])


@pytest.mark.slow
@given(BATCHES, st.sampled_from(["cow", "mor"]), st.sampled_from([None, "simple", "bucket"]))
@settings(max_examples=examples(12), deadline=None)
def test_tasks_that_have_whole_partitions_write_what_one_process_writes(batches, kind, index):
    how = {"table_type": kind, "properties": {} if index is None else {"hoodie.index.type": index.upper()}}
    if index == "bucket":
        how["properties"]["hoodie.bucket.index.num.buckets"] = "2"
    ours, plain = table_of(**how), table_of(**how)
    for number, said in enumerate(batches):
        rows = rows_of(said, number)
        write_by_partition(ours, rows, attempts=1 + number % 2)
        plain.upsert(rows)
    assert content(ours) == content(plain)
    assert not ours.check().findings


def write_by_own_index(
    table: lakefmt.Table, rows: pa.Table, options: dict[str, object], operation: str = "upsert", attempts: int = 1
) -> CommitResult | None:
    """Write by tasks that combine rows, and by others that write file groups; between them keys are looked up here."""
    transactions: list[WriteTransaction] = []

    def run(shared: SharedWrite) -> list[TaskResult]:
        shared = pickle.loads(pickle.dumps(shared))
        assert not shared.finds_keys
        number = np.array([int(key[1:]) % 3 for key in rows["id"].to_pylist()])
        found: dict[tuple[str, str], list[pa.Table]] = {}
        for task in range(3):
            mine = rows.filter(pa.array(number == task))
            batch, _ = TaskWriter(shared, task).combine(mine) if mine.num_rows else (None, 0)
            if batch is not None:
                for one, numbers in find_keys(transactions[-1], batch.keys, batch.partitions, rows.column_names):
                    some = batch.table.take(pa.array(numbers))
                    found.setdefault((one.partition, one.file_id), []).append(some)
        return written_groups(shared, found, attempts) if found else []

    request = WriteRequest(WriteOperation(operation.upper()), options, partial=operation == "delete")
    cities = frozenset(PartitionPath(city) for city in rows["city"].to_pylist())
    given_rows = TaskRows(None, cities)
    return run_tasks_and_commit(table.client, request, rows.schema, given_rows, run, transactions.append)


@pytest.mark.slow
@given(BATCHES, st.sampled_from(["cow", "mor"]), st.sampled_from([6, 9]))
@settings(max_examples=examples(12), deadline=None)
def test_tasks_write_where_an_own_index_of_the_driver_finds_keys(batches, kind, version):
    how = {"table_type": kind, "table_version": version}
    ours, plain = table_of(**how), table_of(**how)
    own = {"hoodie.index.class": "tests.spark.own_index:ByFile"}
    for number, said in enumerate(batches):
        rows = rows_of(said, number)
        write_by_own_index(ours, rows, own, attempts=1 + number % 2)
        plain.upsert(rows, options=own)
        gone = rows.slice(0, 1 + number)
        write_by_own_index(ours, gone, own, "delete")
        plain.delete(gone, options=own)
    assert content(ours) == content(plain)
    assert not ours.check().findings


def test_the_index_of_an_external_store_hears_of_what_tasks_wrote(tmp_path):
    table = table_of()
    stored: dict[str, object] = {"hoodie.index.type": "sqlite", "lakefmt.index.path": str(tmp_path / "keys.sqlite")}
    write_by_own_index(table, rows_of({n: ("ab"[n % 2], 1) for n in range(6)}, 0), stored)
    table.insert(rows_of({7: ("b", 1)}, 1))  # not told: the index reads the commit when it is next asked
    result = write_by_own_index(table, rows_of({n: ("ab"[n % 2], 2) for n in range(4, 10)}, 2), stored)
    assert (result.num_updates, result.num_inserts) == (3, 3)
    assert content(table) == [(f"k{n}", "ab"[n % 2], 1 + (n >= 4)) for n in range(10)]


def test_an_own_index_is_not_loaded_by_tasks(monkeypatch):
    table = table_of()
    own: dict[str, object] = {"hoodie.index.class": "tests.spark.own_index:ByFile"}
    write_by_own_index(table, rows_of({1: ("a", 1)}, 0), own)
    opened = TaskWriter.__init__

    def without_the_module(self, *given_values, **more):
        with monkeypatch.context() as worker:
            worker.setattr(
                "lakefmt._core.index.registry.load_index", lambda name: pytest.fail("a task loads the index")
            )
            opened(self, *given_values, **more)
            assert self._transaction.index.name == "simple"

    monkeypatch.setattr(TaskWriter, "__init__", without_the_module)
    write_by_own_index(table, rows_of({1: ("a", 2), 2: ("b", 2)}, 1), own)
    assert content(table) == [("k1", "a", 2), ("k2", "b", 2)]


@pytest.mark.slow
@given(BATCHES, st.sampled_from(["cow", "mor"]), st.sampled_from(["BLOOM", "GLOBAL_BLOOM", "GLOBAL_SIMPLE"]))
@settings(max_examples=examples(12), deadline=None)
def test_tasks_that_look_keys_up_write_what_one_process_writes(batches, kind, index):
    how = {"table_type": kind, "properties": {"hoodie.index.type": index}}
    ours, plain = table_of(**how), table_of(**how)
    for number, said in enumerate(batches):
        rows = rows_of(said, number)
        write_by_look_up(ours, rows, attempts=1 + number % 2)
        plain.upsert(rows)
    assert content(ours) == content(plain)
    assert not ours.check().findings


def keys_of(numbers: list[int], city: str | None = None) -> pa.Table:
    """Return keys to delete, with a partition column if asked for."""
    columns = {"id": [f"k{number}" for number in numbers]}
    return pa.table(columns if city is None else {**columns, "city": [city] * len(numbers)})


def delete_anywhere(
    table: lakefmt.Table,
    keys: pa.Table,
    options: dict[str, object] | None = None,
    attempts: int = 1,
    beside: Callable[[], object] = lambda: None,
) -> CommitResult | None:
    """Delete keys wherever they are, by tasks that look up parts of them and others that write file groups."""
    transactions: list[WriteTransaction] = []

    def run(shared: SharedWrite) -> list[TaskResult]:
        shared = pickle.loads(pickle.dumps(shared))
        half = keys.num_rows // 2
        handed: list[list[pa.Table]] = [[], [], []]
        for batch in key_rows(shared, [keys.slice(0, half), keys.slice(half)]):
            numbers = split_rows(key_again(shared, batch.table), 3, None)
            for task, tables in enumerate(handed):
                tables.append(batch.table.filter(pa.array(numbers == task)))
        found: dict[tuple[str, str], list[pa.Table]] = {}
        for task, rows in enumerate(map(pa.concat_tables, handed)):
            if shared.finds_keys:
                pairs = [(where, some) for where, _, some in TaskWriter(shared, task).locate(rows)]
            else:
                batch, _ = TaskWriter(shared, task).combine(rows)
                places = find_keys(transactions[-1], batch.keys, None, keys.column_names)
                pairs = [(where, batch.table.take(pa.array(numbers))) for where, numbers in places]
            for where, some in pairs:
                found.setdefault((where.partition, where.file_id), []).append(some)
        beside()
        results = written_groups(shared, found, attempts) if found else []
        check_conservation(sum(some.num_rows for tables in found.values() for some in tables), results)
        return results

    request = WriteRequest(WriteOperation.DELETE, options or {}, partial=True)
    given_rows = TaskRows(None, None)
    return run_tasks_and_commit(table.client, request, keys.schema, given_rows, run, transactions.append)


BUCKETS = {"hoodie.bucket.index.num.buckets": "2"}
RINGS = {**BUCKETS, "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("index", "properties", "kinds", "versions"),
    [
        ("simple", {}, ["cow", "mor"], [6, 8, 9]),
        ("bloom", {}, ["cow", "mor"], [6, 8, 9]),
        ("global_simple", {}, ["cow", "mor"], [6, 8, 9]),
        ("global_bloom", {}, ["cow", "mor"], [6, 8, 9]),
        ("record", {}, ["cow", "mor"], [8, 9]),
        ("partitioned_record", {}, ["cow", "mor"], [9]),
        ("bucket", BUCKETS, ["cow", "mor"], [6, 8, 9]),
        ("bucket", RINGS, ["mor"], [6, 8, 9]),
        ("tests.spark.own_index:ByFile", {}, ["cow"], [6, 8, 9]),
        ("tests.spark.own_index:ByFileEverywhere", {}, ["cow"], [6, 8, 9]),
    ],
)
@given(BATCHES, st.lists(st.integers(0, 14), min_size=1, max_size=12), st.data())
@settings(max_examples=examples(8), deadline=None)
def test_tasks_delete_keys_in_every_partition_as_one_process_does(
    index, properties, kinds, versions, batches, numbers, data
):
    is_own = ":" in index
    how = {"table_type": data.draw(st.sampled_from(kinds)), "table_version": data.draw(st.sampled_from(versions))}
    how |= {"properties": properties} if is_own else {"properties": properties, "index": index}
    own: dict[str, object] = {"hoodie.index.class": index} if is_own else {}
    ours, plain = table_of(**how), table_of(**how)
    # Inserts store a key in several partitions, or twice in one; upserts and deletes make logs.
    verbs = [data.draw(st.sampled_from(["insert", "upsert"])) for _ in batches]
    first = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=2))
    for table in (ours, plain):
        for number, (verb, batch) in enumerate(zip(verbs, batches, strict=True)):
            getattr(table, verb)(rows_of(batch, number), options=own)
        table.delete(keys_of(first), options=own)
    city = data.draw(st.sampled_from([None, "a"])) if index in GLOBAL else None
    result = delete_anywhere(ours, keys_of(numbers, city), own, attempts=2)
    expected = plain.delete(keys_of(numbers, city), options=own)
    told = (0, 0) if result is None else (result.num_deletes, len(result.files))
    assert told == (expected.num_deletes, len(expected.files))
    assert (result is None) == (expected.instant is None)
    assert content(ours) == content(plain)
    assert not ours.check().findings


#: Their keys go wherever they are, also where rows say a partition.
GLOBAL = ("global_simple", "global_bloom", "record", "tests.spark.own_index:ByFileEverywhere")


def test_keys_that_are_not_stored_make_no_file_and_no_commit():
    table = table_of()
    table.insert(rows_of({1: ("a", 1)}, 0))
    before = table.client.load().timeline.instants
    assert delete_anywhere(table, keys_of([7, 8, 8])) is None
    assert table.client.load().timeline.instants == before
    assert sum(each.name.endswith(".parquet") for each in table.client.store.list("")) == 1


BESIDE: dict[str, object] = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.num.retries.on.conflict.failures": 2,
}


@pytest.mark.parametrize(
    ("kind", "index"), [("cow", "simple"), ("mor", "bloom"), ("mor", "bucket"), ("cow", "global_simple")]
)
def test_a_key_that_another_write_brings_to_any_partition_meanwhile_is_deleted_there_too(kind, index):
    table = table_of(table_type=kind, index=index, properties=BUCKETS if index == "bucket" else {})
    table.insert(rows_of({1: ("a", 1), 2: ("b", 1)}, 0))
    looked: list[int] = []

    def bring() -> None:
        looked.append(1)
        if len(looked) == 1:
            other = lakefmt.open_table(table.client.store.url)
            other.insert(rows_of({2: ("c", 2), 3: ("c", 2)}, 1), options=BESIDE)

    result = delete_anywhere(table, keys_of([2, 9]), BESIDE, beside=bring)
    assert (len(looked), result.num_deletes) == (2, 2)
    assert content(table) == [("k1", "a", 1), ("k3", "c", 2)]


@pytest.mark.parametrize("verb", ["upsert", "delete"])
def test_keys_that_tasks_look_up_withdraw_a_clustering_that_waits_where_settings_say_so(verb):
    table = table_of(index="simple")
    table.upsert(rows_of({1: ("a", 1), 2: ("b", 1)}, 0))
    table.cluster("v", schedule=True)
    allow: dict[str, object] = {"hoodie.clustering.updates.strategy": "SparkAllowUpdateStrategy"}
    if verb == "upsert":
        write_by_look_up(table, rows_of({1: ("a", 2)}, 1), options=allow)
    else:
        delete_anywhere(table, keys_of([1]), allow)
    assert content(table) == [*([("k1", "a", 2)] if verb == "upsert" else []), ("k2", "b", 1)]
    assert not table.client.load().timeline.pending


def test_keys_that_tasks_look_up_are_refused_before_a_file_is_written_where_a_clustering_waits(monkeypatch):
    table = table_of(index="simple")
    table.upsert(rows_of({1: ("a", 1), 2: ("b", 1)}, 0))
    table.cluster("v", schedule=True)
    monkeypatch.setattr(TaskWriter, "write_group", lambda *given_values: pytest.fail("a file is written"))
    with pytest.raises(CommitConflict, match="pending clustering"):
        delete_anywhere(table, keys_of([1]))
    with pytest.raises(CommitConflict, match="pending clustering"):
        write_by_look_up(table, rows_of({1: ("a", 2)}, 1))


@pytest.mark.parametrize(("kind", "version"), [("cow", 9), ("mor", 9), ("mor", 6)])
def test_a_second_attempt_adopts_every_file_of_the_first(kind, version):
    table = table_of(table_type=kind, table_version=version)
    table.upsert(rows_of(dict.fromkeys(range(5), ("a", 1)), 0))
    transaction = WriteTransaction.begin(table.client, WriteRequest(WriteOperation.UPSERT), SCHEMA)
    shared, rows = (
        SharedWrite(transaction.context, transaction.state, transaction.key_spec),
        rows_of({3: ("a", 2), 9: ("b", 2)}, 1),
    )
    results = []
    for order in (slice(None), slice(None, None, -1)):  # rows may come in another order
        writer = TaskWriter(shared, 7)
        writer.write(rows.take(pa.array(range(2)[order])))
        results.append(writer.result())
    first, second = ([status.stat.path for status in result.statuses] for result in results)
    assert first == second
    assert all(status.adopted for status in results[1].statuses)
    assert transaction.commit(list(results[1].statuses)).num_inserts == 1
    assert content(table)[-1] == ("k9", "b", 2)


def test_a_second_attempt_with_other_rows_is_refused():
    table = table_of()
    transaction = WriteTransaction.begin(table.client, WriteRequest(WriteOperation.UPSERT), SCHEMA)
    shared = SharedWrite(transaction.context, transaction.state, transaction.key_spec)
    TaskWriter(shared, 0).write(rows_of({1: ("a", 1)}, 0))
    with pytest.raises(InvalidInputError, match="not repeatable"):
        TaskWriter(shared, 0).write(rows_of({2: ("a", 1)}, 0))
    transaction.abort()
    assert content(table) == []


def test_a_late_attempt_at_a_write_that_was_aborted_writes_nothing():
    table = table_of()
    transaction = WriteTransaction.begin(table.client, WriteRequest(WriteOperation.UPSERT), SCHEMA)
    shared = SharedWrite(transaction.context, transaction.state, transaction.key_spec)
    transaction.abort()
    with pytest.raises(InstantNotPending):
        TaskWriter(shared, 0).write(rows_of({1: ("a", 1)}, 0))
    assert not [name for name in table.client.store.list("") if name.name.endswith(".parquet")]


def test_lost_rows_leave_the_table_as_it_was():
    table = table_of()
    table.upsert(rows_of({1: ("a", 1)}, 0))
    rows = rows_of({1: ("a", 5), 2: ("b", 5)}, 1)

    def lose(shared: SharedWrite) -> list[TaskResult]:
        writer = TaskWriter(shared, 0)
        writer.write(rows.slice(0, 1))
        return [writer.result()]

    request, given_rows = WriteRequest(WriteOperation.UPSERT), TaskRows(2, frozenset())
    with pytest.raises(InvalidInputError, match="2 rows were counted and 1 came"):
        run_tasks_and_commit(table.client, request, SCHEMA, given_rows, lose)
    assert content(table) == [("k1", "a", 1)]
    assert not table.client.load().timeline.pending


def test_a_task_that_answers_twice_is_seen():
    with pytest.raises(InvalidInputError, match="twice"):
        check_conservation(2, [TaskResult(1, (), 1), TaskResult(1, (), 1)])


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 7), st.booleans())
def test_rows_of_one_key_and_of_one_bucket_are_in_one_part(keys, parts, buckets):
    names = pa.array([f"k{key}" for key in keys])
    batch = KeyedBatch(pa.table({"id": names}), names, pa.array(["p"] * len(keys)).dictionary_encode())
    index = BucketIndex(4, ["id"]) if buckets else None
    numbers = split_rows(batch, parts, index)
    assert ((numbers >= 0) & (numbers < parts)).all()
    assert len({(key, number) for key, number in zip(keys, numbers.tolist(), strict=True)}) == len(set(keys))
    if index is not None and parts >= 4:
        assert len(np.unique(numbers)) <= 4
