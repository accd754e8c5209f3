"""Profiles are taken from commits and footers; what they say is compared with how the rows were made."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.advice.profile import TableChoice, TableProfile
from lakefmt._core.advice.profiling import profile_table
from lakefmt._core.bench.measure import KEY, ORDERING, PARTITION, RowSource
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import MemoryStore
from lakefmt._core.table import Table
from lakefmt.errors import InvalidInputError
from lakefmt.testing.stores import CountingStore

PROFILES = st.builds(
    TableProfile,
    rows=st.integers(1, 10**9),
    row_bytes=st.floats(1, 1e5),
    partitions=st.integers(1, 10**4),
    key_bytes=st.integers(1, 200),
    rising_keys=st.booleans(),
    batch_rows=st.integers(1, 10**7),
    update_share=st.floats(0, 1),
    delete_share=st.floats(0, 1),
    batch_partitions=st.floats(1, 100),
    hot_share=st.floats(0, 1),
    reads_per_commit=st.floats(0, 100),
    today=st.builds(TableChoice, table_type=st.sampled_from(["cow", "mor"]), compact_after=st.integers(0, 50)),
)


@given(PROFILES)
def test_c20_a_profile_comes_back_from_json(profile):
    assert TableProfile.from_json(json.loads(json.dumps(profile.as_json()))) == profile


@given(PROFILES)
def test_c20_the_partitions_of_a_batch_hold_all_its_rows(profile):
    assert sum(count * rows for count, rows in profile.spread) == pytest.approx(profile.batch_rows)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": -1},
        {"rows": True},
        {"rows": 1.5},
        {"rows": 10, "update_share": 1.1},
        {"rows": 10, "update_share": float("nan")},
        {"rows": 10, "row_bytes": 0},
        {"rows": 10, "partitions": 0},
        {"rows": 10, "key_bytes": "36"},
        {"rows": 10, "rising_keys": 1},
        {"rows": 10, "filter_columns": ["a"]},
        {"rows": 10, "today": "cow"},
    ],
)
def test_c20_a_profile_of_impossible_numbers_is_refused(wrong):
    with pytest.raises(InvalidInputError):
        TableProfile(**wrong)


@pytest.mark.parametrize("wrong", [None, [], {"rows": 1, "more": 2}, {}, {"rows": 1, "today": {"index": "magic"}}])
def test_c20_json_that_is_no_profile_is_refused(wrong):
    with pytest.raises(InvalidInputError):
        TableProfile.from_json(wrong)


def made(profile: TableProfile, store: CountingStore, **more) -> Table:
    source = RowSource(profile)
    base = source.base()
    url = f"memory://profiles/{id(store)}"
    table = lakefmt.create_table(
        url, schema=base.schema, record_key=KEY, partition_by=PARTITION, ordering=ORDERING, **more
    )
    table = Table(TableClient(store_of(store, table), {}))
    table.bulk_insert(base)
    for number in range(1, 6):
        table.upsert(source.batch(number).rows)
    return table


def store_of(store: CountingStore, table: Table) -> CountingStore:
    for each in table.client.store.list():
        store.put(each.name, table.client.store.read(each.name))
    return store


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_c20_the_profile_of_a_table_is_that_of_its_rows(table_type):
    wanted = TableProfile(
        rows=4000,
        partitions=4,
        key_bytes=24,
        batch_rows=400,
        update_share=0.75,
        batch_partitions=3.0,
        hot_share=0.5,
        late_share=0.5,
    )
    table = made(wanted, CountingStore(MemoryStore()), table_type=table_type)
    profile = profile_table(table.client, reads_per_commit=3, filter_columns=["n"])
    assert profile.partitions == 4
    assert profile.rows == pytest.approx(4500, rel=0.05)
    assert profile.key_bytes == 24
    assert not profile.rising_keys
    assert profile.batch_rows == pytest.approx(400, rel=0.02)
    assert profile.update_share == pytest.approx(0.75, abs=0.02)
    assert profile.batch_partitions == 3.0
    assert profile.hot_share == pytest.approx(0.5, abs=0.02)
    assert profile.late_share == pytest.approx(0.5, abs=0.02)
    assert (profile.reads_per_commit, profile.filter_columns) == (3, ("n",))
    assert (profile.today.table_type, profile.today.index) == (table_type, "bloom")


def test_c20_rising_keys_are_seen_by_the_ranges_of_files():
    wanted = TableProfile(rows=2000, partitions=5, rising_keys=True, key_bytes=18, batch_rows=50, update_share=0.0)
    assert profile_table(made(wanted, CountingStore(MemoryStore())).client).rising_keys


def test_c20_no_row_is_read_for_a_profile():
    wanted = TableProfile(rows=20_000, partitions=2, batch_rows=500, row_bytes=200.0)
    store = CountingStore(MemoryStore())
    table = made(wanted, store)
    fresh = CountingStore(store.inner)
    profile_table(Table(TableClient(fresh, {})).client)
    read = fresh.statistics().bytes_read
    data = sum(each.size_bytes for each in table.file_groups())
    assert read < data / 5
    # The twin: a read of the rows moves more than that.
    again = CountingStore(store.inner)
    Table(TableClient(again, {})).read()
    assert again.statistics().bytes_read > data / 2


def test_c20_a_table_without_rows_has_no_profile():
    table = lakefmt.create_table("memory://profile-empty", schema=pa.schema([("id", pa.string())]), record_key="id")
    with pytest.raises(InvalidInputError, match="no base file with rows"):
        table.advise()


@pytest.mark.parametrize(
    "given", [{"reads_per_commit": -1}, {"reads_per_commit": "x"}, {"filter_columns": "n"}, {"filter_columns": ["zz"]}]
)
def test_c20_arguments_of_advise_that_cannot_be_are_refused(given):
    data = pa.table({"id": ["a"], "n": [1]})
    table = lakefmt.create_table("memory://profile-arguments", data=data, record_key="id", if_exists="open")
    table.upsert(data)
    with pytest.raises(InvalidInputError):
        table.advise(**given)


def test_c20_a_bucket_index_and_its_number_are_seen():
    data = pa.table({"id": [str(n) for n in range(50)]})
    table = lakefmt.create_table(
        "memory://profile-bucket",
        data=data,
        record_key="id",
        table_type="mor",
        index="bucket",
        properties={"hoodie.bucket.index.num.buckets": "3"},
        options={"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 7},
    )
    table.upsert(data)
    table.upsert(data)
    table.compact()
    today = profile_table(table.client).today
    assert (today.index, today.buckets, today.table_type, today.compact_after) == ("bucket", 3, "mor", 7)
