"""Rows after a profile: different keys, the shares that were asked, and the rows that a table must hold after each batch."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.advice.profile import TableProfile
from lakefmt._core.bench.cells import WORKLOADS, workload
from lakefmt._core.bench.measure import KEY, ORDERING, PARTITION, RowSource
from lakefmt.errors import InvalidInputError
from tests.example_counts import examples
from tests.kit import values_of_run

PROFILES = st.builds(
    TableProfile,
    rows=st.integers(1, 300),
    partitions=st.integers(1, 8),
    key_bytes=st.integers(1, 70),
    rising_keys=st.booleans(),
    batch_rows=st.integers(1, 60),
    update_share=st.floats(0, 1),
    delete_share=st.floats(0, 0.5),
    batch_partitions=st.floats(1, 9),
    hot_share=st.floats(0, 1),
)


@settings(max_examples=examples(60), deadline=None)
@given(PROFILES)
def test_c20_the_expected_rows_are_those_of_a_dictionary(profile):
    source = RowSource(profile)
    rows: dict[str, tuple[str, int]] = {}

    def put(table: pa.Table) -> None:
        rows.update({r[KEY]: (r[PARTITION], r[ORDERING]) for r in table.select([KEY, PARTITION, ORDERING]).to_pylist()})

    base = source.base()
    put(base)
    assert len(rows) == base.num_rows == profile.rows
    for number in range(1, 4):
        batch = source.batch(number)
        keys = batch.rows[KEY].to_pylist()
        assert len(set(keys)) == len(keys)
        assert all(
            rows[key][0] == part
            for key, part in zip(keys, batch.rows[PARTITION].to_pylist(), strict=True)
            if key in rows
        )
        put(batch.rows)
        for key in batch.deletes[KEY].to_pylist():
            del rows[key]
        assert source.expected_rows == len(rows)
        assert source.expected_total == sum(ts for _, ts in rows.values())


def test_c20_a_batch_has_the_shares_of_its_profile():
    profile = TableProfile(
        rows=20_000,
        partitions=10,
        batch_rows=1000,
        update_share=0.6,
        delete_share=0.1,
        batch_partitions=5,
        hot_share=0.5,
    )
    source = RowSource(profile)
    stored = source.base()[KEY]
    batch = source.batch(1)
    parts = Counter(batch.rows[PARTITION].to_pylist())
    assert len(parts) == 5
    assert max(parts.values()) == 500
    assert pc.sum(pc.is_in(batch.rows[KEY], value_set=stored.combine_chunks())).as_py() == 600
    assert batch.deletes.num_rows == 100


def test_c20_the_same_seed_makes_the_same_rows_and_another_seed_others():
    profile = workload("facts", 500)
    same = [RowSource(profile, seed).base() for seed in (1, 1, 2)]
    assert same[0].equals(same[1])
    assert not same[0].equals(same[2])
    assert RowSource(replace(profile, rising_keys=True)).base()[KEY].to_pylist() == sorted(
        RowSource(replace(profile, rising_keys=True)).base()[KEY].to_pylist()
    )


@pytest.mark.parametrize("name", values_of_run(WORKLOADS))
def test_c20_the_three_workloads_run_through_a_table(name):
    source = RowSource(workload(name, 2000))
    base = source.base()
    table = lakefmt.create_table(
        f"memory://workload-{name}", schema=base.schema, record_key=KEY, partition_by=PARTITION, ordering=ORDERING
    )
    table.bulk_insert(base)
    for number in (1, 2):
        batch = source.batch(number)
        table.upsert(batch.rows)
        if batch.deletes.num_rows:
            table.delete(batch.deletes)
    rows = table.read()
    assert rows.num_rows == source.expected_rows
    assert pc.sum(rows[ORDERING]).as_py() == source.expected_total


def test_c20_an_unknown_workload_is_refused():
    with pytest.raises(InvalidInputError, match="facts, events, dimension"):
        workload("nothing", 10)
