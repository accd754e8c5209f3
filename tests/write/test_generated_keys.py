"""A table that generates its keys: rows that were read with their meta columns change the rows that they were read from."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.storage.open import open_store
from lakefmt._core.values import RECORD_KEY
from lakefmt.errors import InvalidKey, SchemaMismatch
from tests.example_counts import examples

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64()), ("ts", pa.int64())])
STEP = st.tuples(st.sampled_from(["insert", "upsert", "update", "delete", "write", "copy"]), st.integers(0, 5))
TABLES = st.fixed_dictionaries(
    {
        "table_type": st.sampled_from(["cow", "mor"]),
        "table_version": st.sampled_from([6, 8, 9]),
        "partition_by": st.sampled_from(["city", None]),
        "ordering": st.sampled_from(["ts", None]),
        "index": st.sampled_from(["bloom", "simple", "global_simple"]),
    }
)


def rows_of(count: int, first: int = 0) -> pa.Table:
    rows = [{"id": f"r{n}", "city": f"c{n % 2}", "n": 0, "ts": 1} for n in range(first, first + count)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def with_n(rows: pa.Table, value: int) -> pa.Table:
    """Return rows with another value of ``n``, and their meta columns."""
    place = rows.schema.get_field_index("n")
    return rows.set_column(place, "n", pa.array([value] * rows.num_rows, pa.int64()))


def new_table(**how: object) -> lakefmt.Table:
    open_store("memory://generated").delete_tree("")
    return lakefmt.create_table("memory://generated", schema=SCHEMA, **how)


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(how=TABLES, steps=st.lists(STEP, min_size=1, max_size=6))
def test_rows_that_bring_their_key_are_changed_and_others_added(how, steps):
    """Whatever verbs take turns, the table holds what a list of rows holds that is changed in the same way."""
    table, expected, made = new_table(**how), {}, 0
    for number, (verb, which) in enumerate([("insert", 0), *steps], 1):
        read = table.read(meta_columns=True)
        chosen = read.filter(
            pa.array([name in (f"r{which}", f"r{which + 1}") for name in read["id"].to_pylist()], pa.bool_())
        )
        names = chosen["id"].to_pylist()
        if verb == "insert":
            table.insert(rows_of(3, made))
            expected |= {f"r{n}": 0 for n in range(made, made + 3)}
            made += 3
        elif verb == "delete":
            assert table.delete(chosen).num_deletes == len(names)
            expected = {name: n for name, n in expected.items() if name not in names}
        elif verb == "update":
            assert table.update(f"id = 'r{which}'", {"n": number}).num_updates == names.count(f"r{which}")
            expected |= {f"r{which}": number} if f"r{which}" in expected else {}
        elif verb == "copy":  # without their keys they are new rows
            table.insert(with_n(chosen, number))
            table.delete(table.read(meta_columns=True, filter=f"n = {number}"))
        else:
            changed = with_n(chosen, number)
            if verb == "upsert":
                result = table.upsert(changed)
            else:
                result = lakefmt.write_table("memory://generated", iter(changed.to_batches()), mode="append")
            assert (result.num_updates, result.num_inserts) == (len(names), 0)
            expected |= dict.fromkeys(names, number)
    rows = table.read()
    assert rows.num_rows == len(expected)
    assert dict(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_more_rows_than_a_window_keep_the_keys_that_they_bring(table_type):
    table = new_table(table_type=table_type, partition_by="city")
    table.bulk_insert(rows_of(600))
    window = {"lakefmt.write.window.bytes": 20_000}

    def batches() -> Iterator[pa.RecordBatch]:
        return iter(with_n(table.read(meta_columns=True), 7).to_batches(max_chunksize=100))

    result = table.upsert(batches(), options=window)
    assert (result.num_updates, result.num_inserts) == (600, 0)
    assert set(table.read()["n"].to_pylist()) == {7}
    assert table.delete(batches(), options=window).num_deletes == 600


def test_what_rows_must_bring():
    table = new_table(partition_by="city")
    table.insert(rows_of(4))
    read = table.read(meta_columns=True)
    with pytest.raises(InvalidKey, match=r"updated where they bring the _hoodie_record_key"):
        table.upsert(rows_of(4))
    with pytest.raises(SchemaMismatch, match=r"rows that bring the _hoodie_record_key"):
        table.delete(rows_of(4))
    moved = read.set_column(read.schema.get_field_index("city"), "city", pa.array(["c9"] * 4))
    with pytest.raises(InvalidKey, match="4 rows have other partition columns than when they were read"):
        table.upsert(moved)
    lacking = read.set_column(read.schema.get_field_index(RECORD_KEY), RECORD_KEY, pa.nulls(4, pa.string()))
    with pytest.raises(InvalidKey, match="4 of 4 rows have no _hoodie_record_key"):
        table.upsert(lacking)
    assert table.read().sort_by("id") == rows_of(4)


def test_a_table_with_a_record_key_takes_no_other():
    table = lakefmt.create_table("memory://keyed-beside-generated", schema=SCHEMA, record_key="id")
    table.upsert(rows_of(2))
    read = table.read(meta_columns=True)
    wrong = read.set_column(read.schema.get_field_index(RECORD_KEY), RECORD_KEY, pa.array(["x", "y"]))
    assert table.upsert(wrong).num_updates == 2
    assert table.delete(wrong).num_deletes == 2
    table.client.store.delete_tree("")


def test_keys_that_are_given_as_dicts(tmp_path):
    table = lakefmt.create_table(tmp_path / "t", schema=SCHEMA)
    table.insert(rows_of(3))
    keys = [{RECORD_KEY: key} for key in table.read(meta_columns=True, filter="id = 'r1'")[RECORD_KEY].to_pylist()]
    assert table.delete(json.loads(json.dumps(keys))).num_deletes == 1
    assert sorted(table.read()["id"].to_pylist()) == ["r0", "r2"]
