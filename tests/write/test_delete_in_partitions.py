"""`delete` of rows: with their partition columns a key goes there only, without them wherever it is; a dictionary says what stays."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.table import Table
from lakefmt.errors import SchemaMismatch

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("day", pa.date32()), ("v", pa.int64())])
OPTIONS = {"lakefmt.write.threads": 1, "lakefmt.durability": "none"}
CITIES = ("sf", "oslo", None)
NUMBERS = itertools.count()
Pair = tuple[str, str | None]


def make(pairs: list[Pair], table_type: str = "cow", index: str = "bloom") -> Table:
    """Return a table with these keys in these partitions."""
    table = lakefmt.create_table(
        f"memory://delete-in-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        index=index,
        options=OPTIONS,
    )
    table.insert(rows(pairs))
    return table


def rows(pairs: list[Pair]) -> pa.Table:
    return pa.table(
        {
            "id": [key for key, _ in pairs],
            "city": pa.array([city for _, city in pairs], pa.string()),
            "day": pa.nulls(len(pairs), pa.date32()),
            "v": list(range(len(pairs))),
        },
        schema=SCHEMA,
    )


def stored(table: Table) -> list[Pair]:
    found = table.read(["id", "city"]).to_pylist()
    return sorted(((row["id"], row["city"]) for row in found), key=repr)


#: How a caller may hold rows of key and partition.
HOLDERS: dict[str, Callable[[pa.Table], object]] = {
    "table": lambda found: found,
    "whole rows": lambda found: rows([(row["id"], row["city"]) for row in found.to_pylist()]),
    "dicts": lambda found: found.to_pylist(),
    "iterator of dicts": lambda found: iter(found.to_pylist()),
    "batches": lambda found: found.to_batches(),
    "reader": lambda found: found.to_reader(),
    "struct array": lambda found: pa.array(found.to_pylist(), pa.struct(found.schema)),
    "pandas": lambda found: found.to_pandas(),
    "pandas categories": lambda found: found.to_pandas().astype("category"),
    "polars": pl.DataFrame,
    "polars categories": lambda found: pl.DataFrame(found).with_columns(pl.all().cast(pl.Categorical)),
}


@pytest.mark.parametrize("holder", list(HOLDERS))
@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_rows_with_their_partition_are_deleted_there_only(table_type: str, holder: str) -> None:
    table = make([("a", "sf"), ("a", "oslo"), ("b", "sf")], table_type)
    unwanted = pa.table({"id": ["a"], "city": ["sf"]})
    result = table.delete(HOLDERS[holder](unwanted))
    assert result.num_deletes == 1
    assert stored(table) == [("a", "oslo"), ("b", "sf")]


@pytest.mark.parametrize(
    "keys",
    [
        *(["a"], {"a"}, ("a",), iter(["a"]), {"a": 1}.keys(), [{"id": "a"}]),
        *(pd.Series(["a"]), pd.Index(["a"]), pd.Series(["a"], dtype="category")),
        *(pl.Series(["a"]), pl.Series(["a"], dtype=pl.Categorical)),
        *(
            pa.array(["a"]),
            pa.table({"id": ["a"]}),
            pa.array(["a"]).dictionary_encode(),
            pa.array(["a"], pa.large_string()),
        ),
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_keys_without_their_partition_go_wherever_they_are(keys: object) -> None:
    table = make([("a", "sf"), ("a", "oslo"), ("b", "sf")])
    assert table.delete(keys).num_deletes == 2
    assert stored(table) == [("b", "sf")]


@pytest.mark.slow
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("index", ["bloom", "simple"])
@given(
    pairs=st.sets(st.tuples(st.sampled_from("abcd"), st.sampled_from(CITIES)), min_size=1).map(
        lambda s: sorted(s, key=repr)
    ),
    unwanted=st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(CITIES)), max_size=5),
    named=st.booleans(),
    partitions=st.none() | st.sets(st.sampled_from(["city=sf", "city=oslo", "city=__HIVE_DEFAULT_PARTITION__"])),
)
def test_what_stays_is_what_a_dictionary_says(
    table_type: str, index: str, pairs: list[Pair], unwanted: list[Pair], named: bool, partitions: set[str] | None
) -> None:
    table = make(pairs, table_type, index)
    given_rows = rows(unwanted).select(["id", "city"] if named else ["id"])
    table.delete(given_rows, partitions=partitions)
    looked = {f"city={'__HIVE_DEFAULT_PARTITION__' if city is None else city}": city for city in CITIES}
    cities = set(CITIES) if partitions is None else {looked[path] for path in partitions}
    gone = set(unwanted) if named else {(key, city) for key, _ in unwanted for city in CITIES}
    assert stored(table) == sorted([p for p in pairs if p not in gone or p[1] not in cities], key=repr)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("index", ["global_bloom", "global_simple"])
def test_with_a_global_index_a_key_is_one_row_wherever_it_is(table_type: str, index: str) -> None:
    """As in Hudi: its global indexes tag a delete with the place of the stored row, whatever partition it names."""
    table = make([("a", "sf"), ("b", "oslo"), ("c", "sf")], table_type, index)
    assert table.delete(pa.table({"id": ["a", "b"], "city": ["sf", "sf"]})).num_deletes == 2
    assert stored(table) == [("c", "sf")]
    assert table.delete(pa.table({"id": ["c"], "city": ["sf"]}), partitions=["city=oslo"]).num_deletes == 0


def test_rows_of_which_some_lack_the_partition_are_refused() -> None:
    table = make([("a", "sf"), ("a", "oslo")])
    with pytest.raises(SchemaMismatch, match="'city'"):
        table.delete([{"id": "a", "city": "sf"}, {"id": "a"}])
    assert len(stored(table)) == 2
    assert table.delete([{"id": "x", "v": 1}, {"id": "a"}]).num_deletes == 2  # what is no key column is not looked at


def test_one_of_two_partition_columns_is_not_enough_to_tell_where() -> None:
    table = lakefmt.create_table(
        "memory://delete-in-two", schema=SCHEMA, record_key="id", partition_by=["city", "v"], options=OPTIONS
    )
    table.insert(rows([("a", "sf"), ("a", "sf"), ("b", "sf")]))
    assert table.delete([{"id": "a", "city": "sf", "v": 1}]).num_deletes == 1
    assert table.delete([{"id": "a", "city": "sf"}]).num_deletes == 1
    assert stored(table) == [("b", "sf")]


def test_a_plan_looks_in_the_named_partition_only() -> None:
    table = make([("a", "sf"), ("a", "oslo")])
    plan = table.delete([{"id": "a", "city": "sf"}], dry_run=True)
    assert [str(one.partition) for one in plan.assignments] == ["city=sf"]


@pytest.mark.parametrize(
    "keys",
    [[b"a"], b"a", pa.array([b"a"]), pa.array([1]), [1], ["a", b"b"], pa.array([b"a"]).dictionary_encode(), [["a"]]],
    ids=lambda keys: type(keys).__name__,
)
def test_keys_of_another_type_are_refused(keys: object) -> None:
    table = make([("a", "sf")])
    with pytest.raises(lakefmt.errors.InvalidInputError):
        table.delete(keys)
    assert stored(table) == [("a", "sf")]
