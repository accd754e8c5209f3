"""A column gets a wider type only for values that its own does not hold, and the result says so (docs/schema.md)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
from lakefmt._core.table import Table
from lakefmt.errors import SchemaMismatch

_NUMBERS = iter(range(100_000))
BIG = 2**53 + 1
NO_SMALL_FILES = {"hoodie.parquet.small.file.limit": 0}


def table(kind: pa.DataType, *, key: str = "id", **settings: Any) -> Table:
    schema = pa.schema([("id", pa.string()), ("v", kind)])
    return lakefmt.create_table(f"memory://widening-{next(_NUMBERS)}", schema=schema, record_key=key, **settings)


def rows(kind: pa.DataType, *values: object, first: str = "a") -> pa.Table:
    names = [chr(ord(first) + n) for n in range(len(values))]
    return pa.table({"id": names, "v": pa.array(values, kind)})


@pytest.mark.parametrize(
    ("stored", "data", "fitting", "other", "wider"),
    [
        (pa.int64(), pa.float64(), [5.0, None], 1.5, pa.float64()),
        (pa.int64(), pa.float64(), [-0.0, 2.0**53], float("nan"), pa.float64()),
        (pa.int32(), pa.float64(), [1.0], 2.0**31, pa.float64()),
        (pa.int32(), pa.int64(), [1], 2**31, pa.int64()),
        (pa.int32(), pa.float32(), [1.0, None], 0.5, pa.float64()),
        (pa.float32(), pa.float64(), [0.5, None], 0.1, pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), [Decimal("999.99")], Decimal("1000.00"), pa.decimal128(9, 2)),
        (pa.struct([("x", pa.int64())]), pa.struct([("x", pa.float64())]), [{"x": 1.0}], {"x": 1.5}, pa.struct([("x", pa.float64())])),
        (pa.list_(pa.int64()), pa.list_(pa.float64()), [[1.0], None], [1.5], pa.list_(pa.float64())),
    ],
    ids=lambda each: f"{each}" if isinstance(each, pa.DataType) else "",
)  # fmt: skip
def test_a_column_is_widened_only_for_values_that_it_does_not_hold(
    stored: pa.DataType, data: pa.DataType, fitting: list[Any], other: Any, wider: pa.DataType
) -> None:
    target = table(stored)
    kind = target.schema.field("v").type
    result = target.upsert(rows(data, *fitting))
    assert (target.schema.field("v").type, result.warnings) == (kind, ())
    assert target.read()["v"].to_pylist() == fitting
    strict = target.upsert(rows(data, *fitting), schema_change="strict")
    assert strict.num_updates == len(fitting)
    with pytest.raises(SchemaMismatch, match="strict"):
        target.upsert(rows(data, other, first="x"), schema_change="strict")
    (warning,) = target.upsert(rows(data, *fitting, other)).warnings
    assert str(target.schema.field("v").type) in warning
    assert kind != target.schema.field("v").type
    assert str(target.schema.field("v").type).replace("element", "item") == str(wider)


def test_a_null_among_the_whole_numbers_of_pandas_keeps_their_type() -> None:
    target = table(pa.int64())
    target.upsert(rows(pa.int64(), BIG))
    result = target.upsert(pd.DataFrame({"id": ["b", "c"], "v": [5, None]}))
    assert result.warnings == ()
    assert target.read().sort_by("id")["v"].to_pylist() == [BIG, 5, None]


@pytest.mark.slow
@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_numbers_of_older_files_are_rounded_as_in_spark(table_type: str, version: int) -> None:
    target = table(pa.int64(), table_type=table_type, table_version=version)
    target.upsert(rows(pa.int64(), BIG, 7), options=NO_SMALL_FILES)
    target.upsert(rows(pa.int64(), BIG), options=NO_SMALL_FILES)  # a log on merge-on-read
    assert target.upsert(rows(pa.float64(), 1.5, first="c"), options=NO_SMALL_FILES).warnings

    def values(read: pa.Table) -> list[float]:
        return read.sort_by("id")["v"].to_pylist()

    rounded = [float(BIG), 7.0, 1.5]
    assert values(target.read()) == rounded
    assert values(target.incremental("000")) == rounded
    for condition in ("v > 6", pc.field("v") > 6, "id in ('a', 'b') and v is not null"):
        assert values(target.read(filter=condition)) == rounded[:2]
    assert target.read(columns=["id"]).num_rows == 3
    assert not target.check("full").findings
    target.upsert(rows(pa.float64(), 8.0, first="b"), options=NO_SMALL_FILES)
    if table_type == "mor":
        target.compact()
    target.cluster("id")
    assert values(target.read()) == [float(BIG), 8.0, 1.5]


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("has_statistics", [False, True])
def test_a_filter_finds_a_number_of_an_older_file_by_its_rounded_value(
    table_type: str, version: int, has_statistics: bool
) -> None:
    names = ("enable", "index.column.stats.enable", "index.partition.stats.enable")
    target = lakefmt.create_table(
        f"memory://widening-{next(_NUMBERS)}",
        schema=rows(pa.int64()).schema,
        record_key="id",
        table_type=table_type,
        table_version=version,
        options={f"hoodie.metadata.{name}": has_statistics for name in names},
    )
    target.upsert(rows(pa.int64(), BIG, 5), options=NO_SMALL_FILES)
    target.upsert(rows(pa.float64(), 1.5, first="c"), options=NO_SMALL_FILES)
    number = float(BIG)
    for condition in (f"v = {int(number)}", f"v <= {int(number)} and v > 10", pc.field("v") == number):
        assert target.read(filter=condition)["id"].to_pylist() == ["a"]
        assert target.count(condition) == 1
    assert target.dataset().to_table(filter=pc.field("v") == number)["id"].to_pylist() == ["a"]


def test_columns_that_the_table_is_built_on_are_never_rounded() -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("v", pa.string())])
    target = lakefmt.create_table(f"memory://widening-{next(_NUMBERS)}", schema=schema, record_key="id", ordering="ts")
    target.upsert(pa.table({"id": [1.0], "ts": [2.0], "v": ["a"]}))
    for change in ({"id": [1.5]}, {"ts": [1.5]}):
        with pytest.raises(SchemaMismatch, match=next(iter(change))):
            target.upsert(pa.table({"id": [1], "ts": [3], "v": ["b"], **change}))
    assert target.read().to_pylist() == [{"id": 1, "ts": 2, "v": "a"}]


@pytest.mark.parametrize("door", ["upsert", "bulk_insert", "stored keys"])
def test_a_held_frame_widens_nothing_by_whatever_door(door: str) -> None:
    number = 2**53 + 1
    table = lakefmt.create_table(
        f"memory://held-{door}", data=pa.table({"id": ["big"], "v": [number]}), record_key="id"
    )
    table.upsert(pa.table({"id": ["big", "a"], "v": [number, 1]}))
    frame = pd.DataFrame({"id": ["a", "b"], "v": [1, None]})
    if door == "stored keys":
        frame = table.read(filter="id = 'a'", meta_columns=True).to_pandas().assign(v=[float("nan")])
    result = getattr(table, door.replace("stored keys", "upsert"))(frame)
    assert result.warnings == ()
    assert table.schema.field("v").type == pa.int64()
    assert number in table.read()["v"].to_pylist()
