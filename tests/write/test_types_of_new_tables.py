"""New tables have types that Spark can upsert, with the same values; existing columns keep their type."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, time
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
import pytest
from hypothesis import given

import lakefmt
from lakefmt._core.schema import normalise_schema, unreadable_by_spark, with_spark_types
from lakefmt.errors import InvalidInputError
from tests.schema.test_schema_laws import SCHEMAS

_NUMBERS = itertools.count()
_MS = pa.timestamp("ms", "UTC")
_AT = datetime(2026, 1, 1, 1, 2, 3, 4000, UTC)


def make(data: pa.Table, **asked: Any) -> lakefmt.Table:
    return lakefmt.create_table(f"memory://types-of-new-tables/{next(_NUMBERS)}", data=data, record_key="id", **asked)


def leaves(kind: pa.DataType) -> list[pa.DataType]:
    children = [kind.field(i).type for i in range(kind.num_fields)]
    return [leaf for child in children for leaf in leaves(child)] if children else [kind]


@pytest.mark.slow
@given(SCHEMAS)
def test_law_spark_can_upsert_or_the_column_is_named(schema: pa.Schema) -> None:
    stored = with_spark_types(normalise_schema(schema))
    named = unreadable_by_spark(stored)
    for field in stored:
        for kind in leaves(field.type):
            assert not pt.is_fixed_size_binary(kind)
            assert not (pt.is_timestamp(kind) and kind.unit != "us")
            assert not pt.is_time(kind) or field.name in named
    assert with_spark_types(stored) == stored
    assert normalise_schema(stored) == stored


ROWS = pa.table(
    {
        "id": ["a", "b"],
        "at": pa.array([_AT, None], _MS),
        "hash": pa.array([b"abc", None], pa.binary(3)),
        "deep": pa.array([[{"at": _AT}], None], pa.list_(pa.struct([("at", _MS)]))),
    }
)


def test_values_stay_and_types_change() -> None:
    table = make(ROWS)
    table.upsert(ROWS)
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table.schema.field("hash").type == pa.binary()
    assert table.schema.field("deep").type.value_type.field("at").type == pa.timestamp("us", "UTC")
    assert table.read().sort_by("id").to_pylist() == ROWS.to_pylist()


def test_one_setting_keeps_the_types_and_later_writes_do_not_change_them() -> None:
    table = make(ROWS, options={"lakefmt.create.types": "exact"})
    table.upsert(ROWS)
    again = lakefmt.open_table(table.client.store.url)
    again.upsert(ROWS)
    assert (again.schema.field("at").type, again.schema.field("hash").type) == (_MS, pa.binary(3))
    assert again.read().sort_by("id").to_pylist() == ROWS.to_pylist()


def test_columns_that_are_added_have_the_types_of_new_tables() -> None:
    table = make(ROWS.select(["id"]), options={"lakefmt.create.types": "exact"})
    table.upsert(ROWS)
    assert table.schema.field("at").type == pa.timestamp("us", "UTC")
    assert table.read().sort_by("id").to_pylist() == ROWS.to_pylist()


def test_time_columns_are_named_once_in_the_result() -> None:
    rows = pa.table({"id": ["a"], "opens": [time(8)]})
    table = make(rows)
    assert table.upsert(rows).warnings == (
        "Spark cannot read the time columns opens: store timestamps or numbers instead",
    )
    assert table.upsert(rows).warnings == ()


def test_partitions_by_time_follow_the_stored_unit() -> None:
    table = make(ROWS.slice(0, 1), partition_by=lakefmt.day("at"))
    table.upsert(ROWS.slice(0, 1))
    assert [str(path) for path in table.partitions()] == ["at=2026%2F01%2F01"]
    with pytest.raises(InvalidInputError, match=r"'at' is stored in microseconds.*lakefmt.day\('at'\)"):
        make(ROWS, partition_by="at:timestamp(yyyy, EPOCHMILLISECONDS)")
    kept = make(ROWS, partition_by="at:timestamp(yyyy, EPOCHMILLISECONDS)", options={"lakefmt.create.types": "exact"})
    assert kept.schema.field("at").type == _MS
