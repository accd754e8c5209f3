"""The types of columns that a secondary index may be on, and the texts of their values."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.metadata.layout import secondary_index_values
from lakefmt.errors import UnsupportedFeature

OPTIONS: dict[str, object] = {"lakefmt.durability": "none", "hoodie.metadata.enable": True}
SCHEMA = pa.schema([("id", pa.string()), ("v", pa.float64())])


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_numbers_have_the_texts_of_java(kind: pa.DataType) -> None:
    """Hudi looks for ``Double.toString``."""
    values = pa.array([7.0, 1e10, 0.5, -0.0, 1e-5, math.nan, math.inf, None], kind)
    texts = ["7.0", "1.0E10", "0.5", "-0.0", "1.0E-5", "NaN", "Infinity", "\0"]
    assert secondary_index_values(values).to_pylist() == texts


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_an_index_on_doubles_follows_its_rows(table_type: str) -> None:
    table = lakefmt.create_table(
        f"memory://secondary-doubles-{table_type}",
        schema=SCHEMA,
        record_key="id",
        table_type=table_type,
        index="record",
        options=OPTIONS,
    )
    table.upsert(pa.table([["a", "b", "c"], [1.0, math.nan, None]], schema=SCHEMA))
    table.index.create("secondary_index", "v")
    for values in ([None, 1.0, math.nan], [-0.0, 0.0, 1e300], [1.0, math.nan, None]):
        table.upsert(pa.table([["a", "b", "c"], values], schema=SCHEMA))
        assert table.index.check().is_clean
    table.delete(["a", "b"])
    table.upsert(pa.table([["b"], [1.0]], schema=SCHEMA))
    assert table.index.check().is_clean
    assert table.read(filter="v = 1")["id"].to_pylist() == ["b"]


@pytest.mark.parametrize(
    "kind",
    [pa.struct([("x", pa.int32())]), pa.list_(pa.int32()), pa.map_(pa.string(), pa.int32()), pa.binary()],
    ids=["struct", "list", "map", "binary"],
)
def test_a_column_without_texts_has_no_index(kind: pa.DataType) -> None:
    """An empty table took it, and then no row."""
    schema = pa.schema([("id", pa.string()), ("v", kind)])
    table = lakefmt.create_table(f"memory://secondary-of-{kind}", schema=schema, record_key="id", options=OPTIONS)
    before = [index.name for index in table.index.list()]
    with pytest.raises(UnsupportedFeature, match=r"'v'.*cannot hold"):
        table.index.create("secondary_index", "v")
    assert [index.name for index in table.index.list()] == before
    table.upsert(pa.table([["a"], pa.nulls(1, kind)], schema=schema))
