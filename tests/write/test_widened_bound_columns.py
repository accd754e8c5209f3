"""Rows of a wider type than a column of keys, paths or indexes: refused where the texts of stored values would be others."""

from __future__ import annotations

import decimal
import itertools

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
from lakefmt.errors import SchemaMismatch

NUMBERS = itertools.count()
OPTIONS: dict[str, object] = {"lakefmt.durability": "none", "hoodie.metadata.enable": True}


def made(kinds: dict[str, pa.DataType], table_type: str, index: str = "bloom") -> tuple[lakefmt.Table, pa.Table]:
    schema = pa.schema([(name, kinds.get(name, pa.int32())) for name in ("id", "p", "o", "v")])
    data = pa.Table.from_pylist([dict.fromkeys(schema.names, 1), dict.fromkeys(schema.names, 2)], schema)
    table = lakefmt.create_table(
        f"memory://bound-{next(NUMBERS)}",
        data=data,
        record_key="id",
        partition_by="p",
        ordering="o",
        table_type=table_type,
        table_version=9,
        index=index,
        options=OPTIONS,
    )
    table.upsert(data)
    return table, data


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize(
    ("column", "old", "new"),
    [
        ("id", pa.int32(), pa.float64()),
        ("id", pa.int64(), pa.float64()),
        ("id", pa.float32(), pa.float64()),
        ("p", pa.int32(), pa.float64()),
        ("v", pa.int32(), pa.float64()),
    ],
)
def test_numbers_with_other_texts_are_refused(column: str, old: pa.DataType, new: pa.DataType, table_type: str) -> None:
    """A key of 1 was stored once more as 1.0."""
    table, data = made({column: old}, table_type, "record")
    if column == "v":
        table.index.create("secondary_index", "v")
    before = table.read().sort_by("id")
    index = data.schema.get_field_index(column)
    with pytest.raises(SchemaMismatch, match=f"would make column '{column}' double.*cast the data to {old}"):
        table.upsert(data.set_column(index, column, pc.add(data[column].cast(new), 0.1)))
    assert table.read().sort_by("id").equals(before)
    assert table.upsert(data.set_column(index, column, data[column].cast(new))).num_updates == 2
    assert table.schema.field(column).type == old
    assert not table.client.load().timeline.pending


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize(
    ("column", "old", "new"),
    [
        ("id", pa.int32(), pa.int64()),
        ("p", pa.int32(), pa.int64()),
        ("v", pa.int32(), pa.int64()),
        ("o", pa.int32(), pa.int64()),
        ("id", pa.decimal128(4, 1), pa.decimal128(9, 1)),
    ],
)
def test_those_with_the_same_texts_are_taken(column: str, old: pa.DataType, new: pa.DataType, table_type: str) -> None:
    table, data = made({column: old}, table_type, "record")
    if column == "v":
        table.index.create("secondary_index", "v")
    index = data.schema.get_field_index(column)
    wide = data.set_column(index, column, data[column].cast(new))
    beyond = decimal.Decimal("99999.5") if pa.types.is_decimal(new) else 2**40
    more = pa.Table.from_pylist([{**dict.fromkeys(wide.column_names, 3), column: beyond}], wide.schema)
    result = table.upsert(pa.concat_tables([wide, more]))
    assert (result.num_inserts, result.num_updates) == (1, 2)
    assert table.schema.field(column).type == new
    one = decimal.Decimal("1.0") if pa.types.is_decimal(new) else 1
    assert table.read(filter=[(column, "=", one)]).num_rows == 1
    assert table.index.check().is_clean
