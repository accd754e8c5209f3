"""Which way rows take into files, and which task gets which rows: decided from counts."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.index import IndexCapabilities, open_index
from lakefmt._core.index.custom import CheckedIndex
from lakefmt._core.values import InstantTime, PartitionPath, WriteOperation
from lakefmt._core.write.assign import FileSizing
from lakefmt._core.write.context import APPENDING, REPLACING
from lakefmt._core.write.grouped_rows import NEW, FoundRows, plan_groups
from lakefmt._core.write.tasks import key_rows
from lakefmt.errors import InvalidInputError, InvalidKey, UnknownSetting
from lakefmt.spark.options import WriteCall
from lakefmt.spark.writing.distributed import SparkWrite, error_in, plan_handing, typed_errors, why_alone
from lakefmt.spark.writing.plan import (
    Limits,
    PartitionRows,
    SparkWritePlan,
    WriteFacts,
    plan_spark_write,
    take_limits,
    take_sort,
)
from lakefmt.spark.writing.staging import _murmur3, pre_images
from tests.compaction.test_bucket_copies import planned
from tests.compaction.test_cluster_buckets import made
from tests.index.test_resized_buckets import SPLIT_ALL
from tests.spark.own_index import ByFile

LIMITS = Limits(driver_rows=10, driver_bytes=1000, task_bytes=100, task_max_bytes=300, tasks=9)
UPSERT = WriteFacts("upsert", keeps_keys=True)
COUNTED = st.lists(
    st.builds(PartitionRows, st.text("abc", min_size=1, max_size=3), st.integers(1, 99), st.integers(1, 2000)),
    min_size=1,
    max_size=12,
    unique_by=lambda one: one.partition,
)


@pytest.mark.parametrize(
    ("facts", "rows", "num_bytes", "stored", "way"),
    [
        (UPSERT, 10, 1000, True, "driver"),
        (UPSERT, 11, 1000, False, "partition"),
        (UPSERT, 10, 1001, False, "partition"),
        (UPSERT, 11, 300, True, "partition"),
        (UPSERT, 11, 301, True, "lookup"),
        (UPSERT, 11, 9999, False, "partition"),
        (WriteFacts("insert", keeps_keys=False), 11, 9999, True, "partition"),
        (WriteFacts("upsert", keeps_keys=True, places=True), 11, 9999, True, "bucket"),
        (WriteFacts("upsert", keeps_keys=True, is_global=True), 11, 20, False, "lookup"),
        (WriteFacts("upsert", keeps_keys=True, asked_here=True), 11, 20, False, "lookup"),
        (WriteFacts("delete", keeps_keys=True, anywhere=True, places=True), 11, 20, True, "lookup"),
        (WriteFacts("delete", keeps_keys=True, anywhere=True), 10, 20, True, "driver"),
        (WriteFacts("insert", keeps_keys=False, asked_here=True), 11, 20, True, "partition"),
        (WriteFacts("bulk_insert", keeps_keys=False, appends=True), 0, 0, False, "direct"),
        (WriteFacts("delete", keeps_keys=True, alone="the keys do not say"), 99, 9999, True, "driver"),
    ],
)
def test_the_way_of_a_write(facts, rows, num_bytes, stored, way):
    counted = [PartitionRows("a", rows, num_bytes, 50 if stored else 0, stored)]
    plan = plan_spark_write(facts, counted, LIMITS)
    assert plan.way == way
    assert f"by {way}: {plan.why}" in str(plan)


@given(COUNTED, st.booleans(), st.booleans())
def test_every_partition_has_tasks_of_its_own_or_shares_one(counted, keeps_keys, places):
    facts = WriteFacts("upsert", keeps_keys=keeps_keys, places=places)
    plan = plan_spark_write(facts, counted, Limits(driver_rows=0, driver_bytes=0, task_bytes=100, tasks=9))
    assert set(plan.places) == {one.partition for one in counted}
    taken = [range(place.first, place.first + place.parts) for place in plan.places.values()]
    assert {task for some in taken for task in some} == set(range(plan.tasks))
    for some in taken:
        if len(some) > 1:  # the tasks of a partition that is split have no rows of others
            assert sum(bool(set(some) & set(others)) for others in taken) == 1
    assert len(plan.later_parts) == sum(len(some) - 1 for some in taken)


@given(st.integers(1, 60))
def test_an_image_lies_in_its_slot(slots):
    assert [_murmur3(image) % slots for image in pre_images(slots)] == list(range(slots))


def test_the_hash_is_sparks():
    assert [_murmur3(n) for n in (0, 1, 42)] == [933211791, -559580957, 29417773]  # select hash(0), hash(1), hash(42)


@pytest.mark.parametrize(
    ("operation", "drops", "is_global", "places", "why"),
    [
        ("UPSERT", False, False, False, ""),
        ("DELETE", False, False, False, ""),
        ("INSERT", False, True, False, ""),
        ("INSERT_OVERWRITE", False, True, False, ""),
        ("UPSERT", False, True, False, "global"),
        ("DELETE", False, True, False, ""),
        ("UPSERT", False, False, True, "places keys"),
        ("INSERT", False, False, True, "places keys"),
        ("BULK_INSERT", False, False, True, "places keys"),
        ("INSERT", True, False, False, "dropped"),
    ],
)
def test_what_the_driver_writes_of_tables_with_an_own_index(operation, drops, is_global, places, why):
    class Own(ByFile):
        capabilities = IndexCapabilities(places_new_keys=places)

        def place(self, *given_values):
            """Place keys."""

    index = Own()
    index.is_global = is_global
    schema = pa.schema([("id", pa.string()), ("p", pa.string())])
    table = lakefmt.create_table(
        "memory://own-plans", schema=schema, record_key="id", partition_by="p", if_exists="open"
    )
    kind = WriteOperation(operation)
    keeps_keys = drops or kind not in {*APPENDING, *REPLACING}
    told = why_alone(table, kind, CheckedIndex(index), schema, keeps_keys=keeps_keys, combines=False)
    assert bool(told) == bool(why)
    assert why in told


@pytest.mark.parametrize("operation", ["INSERT", "BULK_INSERT", "INSERT_OVERWRITE"])
@pytest.mark.parametrize(
    ("index", "combines", "is_alone"),
    [("simple", True, False), ("global_simple", True, True), ("global_simple", False, False)],
)
def test_rows_of_one_key_in_several_partitions_are_combined_by_one_process(operation, index, combines, is_alone):
    schema = pa.schema([("id", pa.string()), ("p", pa.string())])
    table = lakefmt.create_table(
        "memory://own-plans", schema=schema, record_key="id", partition_by="p", if_exists="open"
    )
    kind = WriteOperation(operation)
    told = why_alone(table, kind, open_index(index), schema, keeps_keys=False, combines=combines)
    assert bool(told) == is_alone


@pytest.mark.parametrize("combines", [True, False])
def test_tasks_combine_rows_of_one_key_before_an_upsert_only_where_that_is_asked_for(combines):
    schema = pa.schema([("id", pa.string()), ("p", pa.string())])
    table = lakefmt.create_table(
        "memory://own-plans", schema=schema, record_key="id", partition_by="p", if_exists="open"
    )
    call = WriteCall("upsert", {}, {"hoodie.combine.before.upsert": str(combines).lower()})
    write = SparkWrite(cast(Any, None), "memory://own-plans", "append", schema, call, Limits(), table)
    rows = pa.table({"id": ["a", "a"], "p": ["x", "x"]}, schema=schema)
    (batch,) = key_rows(write._planned, [rows])
    assert batch.num_rows == (1 if combines else 2)


def planned_delete(table: lakefmt.Table, schema: pa.Schema, index: str, rows: int = 11) -> SparkWritePlan:
    """Return the plan of a delete."""
    call = WriteCall("delete", {}, {"hoodie.index.type": index})
    write = SparkWrite(cast(Any, None), table.client.store.url, "append", schema, call, LIMITS, table)
    return plan_spark_write(write._facts, [PartitionRows("", rows, 250)], LIMITS)


@pytest.mark.parametrize("index", ["SIMPLE", "BLOOM", "BUCKET", "GLOBAL_SIMPLE", "GLOBAL_BLOOM"])
def test_keys_that_do_not_say_their_partition_are_looked_up_in_all_of_them(index):
    schema = pa.schema([("id", pa.string()), ("place", pa.struct([("p", pa.string()), ("q", pa.string())]))])
    kinds = {"record_key": "id", "partition_by": "place.p", "index": index.lower(), "if_exists": "open"}
    table = lakefmt.create_table(f"memory://nested-plans-{index}", schema=schema, **kinds)
    other_field = pa.schema([("id", pa.string()), ("place", pa.struct([("q", pa.string())]))])
    is_global = index.startswith("GLOBAL")
    for some, is_lacking in ((schema, False), (schema.remove(1), True), (other_field, True)):
        plan = planned_delete(table, some, index)
        anywhere = is_lacking or is_global
        assert (plan.way, plan.anywhere) == ("lookup", True) if anywhere else plan.way != "lookup"
        assert ("  partitions  all" in str(plan)) == anywhere
        if is_lacking and not is_global:
            assert plan.why == "the keys to delete do not say their partition: each is looked up in all of them"
            assert plan.tasks == 3
    assert planned_delete(table, schema.remove(1), index, rows=10).way == "driver"


def test_keys_that_do_not_say_their_partition_are_one_process_while_a_clustering_of_buckets_waits():
    table = made()
    keys = pa.schema([("id", pa.string())])
    assert planned_delete(table, keys, "BUCKET").way == "lookup"
    planned(table, SPLIT_ALL)
    plan = planned_delete(table, keys, "BUCKET")
    assert (plan.way, plan.why) == (
        "driver",
        "a clustering of buckets waits, and the keys to delete do not say their partition",
    )
    assert planned_delete(table, table.schema, "BUCKET").way == "bucket"


def test_keys_that_a_table_generates_are_deleted_by_one_process():
    schema = pa.schema([("v", pa.string()), ("p", pa.string())])
    table = lakefmt.create_table("memory://generated-plans", schema=schema, partition_by="p", if_exists="open")
    told = why_alone(table, WriteOperation.DELETE, open_index("simple"), schema, keeps_keys=True, combines=True)
    assert told == "the table generates its keys: a row does not say its own"


def test_limits_and_the_order_are_taken_out_of_the_options():
    options = {"lakefmt.spark.task.bytes": "7", "hoodie.upsert.shuffle.parallelism": "3", "other": "1"}
    limits = take_limits(options)
    assert (limits.task_bytes, limits.tasks, "lakefmt.spark.task.bytes" in options) == (7, 3, False)
    for name, text in (("lakefmt.spark.task.bytes", "0"), ("lakefmt.spark.driver.max.rows", "-1")):
        with pytest.raises(InvalidInputError):
            take_limits({name: text})
    with pytest.raises(UnknownSetting, match="GLOBAL_SORT"):
        take_sort({"hoodie.bulkinsert.sort.mode": "RANDOM"})


def test_errors_of_tasks_are_errors_of_the_caller():
    text = "PythonException: Traceback (most recent call last):\n  File x\nlakefmt.errors.InvalidKey: 1 of 3 keys are null\n\tat"
    with pytest.raises(InvalidKey, match="1 of 3"), typed_errors():
        raise RuntimeError(text)
    assert error_in("lakefmt.errors.NoSuch: x") is None
    with pytest.raises(RuntimeError, match="else"), typed_errors():
        raise RuntimeError("something else")


def test_many_small_partitions_are_shared_by_tasks_for_their_files():
    """Each has a file to write, so their bytes alone do not say how much a task has to do."""
    counted = [PartitionRows(f"p{n}", 2, 80) for n in range(5000)]
    plan = plan_spark_write(UPSERT, counted, Limits(driver_rows=0))
    partitions = Counter(place.first for place in plan.places.values())
    assert (plan.way, plan.tasks) == ("partition", 20)
    assert set(partitions.values()) == {250}
    assert plan_spark_write(UPSERT, counted, Limits(driver_rows=0, tasks=2)).tasks == 2


def test_few_rows_of_many_partitions_are_not_the_drivers():
    counted = [PartitionRows(f"p{n}", 2, 80) for n in range(1001)]
    assert plan_spark_write(UPSERT, counted, Limits()).way == "partition"
    assert plan_spark_write(UPSERT, counted[1:], Limits()).way == "driver"
    everywhere = WriteFacts("upsert", keeps_keys=True, is_global=True)
    assert plan_spark_write(everywhere, counted, Limits()).way == "lookup"


def test_many_small_file_groups_are_shared_by_tasks_for_their_files():
    ids = (f"{n:08d}-0000-4000-8000-000000000000" for n in count())
    new = [FoundRows(PartitionPath(f"p{n}"), NEW, 2) for n in range(1000)]
    sizing = FileSizing(1000, 0, 40.0)
    groups = plan_groups(new, [], sizing, InstantTime("20260101000000000"), ids.__next__, None, appends=False)
    handing = plan_handing(groups, 40.0, 64 << 20, 200)
    assert (handing.num_slots, set(Counter(handing.slots).values())) == (4, {250})
