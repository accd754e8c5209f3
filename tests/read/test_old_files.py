"""Files written under older schemas read as the table's schema says today: by columns, widened, filled with nulls."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.table import Table, open_table
from lakefmt.errors import CorruptFile

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def with_old_file(root: Path, new: pa.DataType, old: pa.Array) -> Table:
    """A table whose column `v` is of type `new`, with a second file that holds `old`."""
    schema = pa.schema([("id", pa.string()), ("v", new)])
    table = lakefmt.create_table(str(root), schema=schema, record_key="id")
    table.insert(pa.table({"id": ["new"], "v": pa.nulls(1, new)}, schema=schema))
    table.bulk_insert(pa.table({"id": ["old"], "v": pa.nulls(1, new)}, schema=schema))
    file = sorted(root.glob("*.parquet"), key=lambda p: p.name.rpartition("_")[2])[-1]
    content = pq.read_table(file, partitioning=None)
    at = content.schema.get_field_index("v")
    pq.write_table(content.set_column(at, "v", old), file, store_schema=False)
    return open_table(str(root))


@pytest.mark.parametrize(
    ("new", "old", "value"),
    [
        (pa.int64(), pa.array([7], pa.int32()), 7),
        (pa.float64(), pa.array([7], pa.int32()), 7.0),
        (pa.float64(), pa.array([7], pa.int64()), 7.0),
        (pa.float64(), pa.array([0.5], pa.float32()), 0.5),
        (pa.string(), pa.array([7], pa.int64()), "7"),
        (pa.string(), pa.array([b"x"], pa.binary()), "x"),
        (pa.binary(), pa.array(["x"], pa.string()), b"x"),
        (pa.decimal128(12, 2), pa.array([Decimal("7.25")], pa.decimal128(5, 2)), Decimal("7.25")),
        (pa.timestamp("us", "UTC"), pa.array([NOW], pa.timestamp("ms", "UTC")), NOW),
        (pa.struct([("a", pa.int64()), ("b", pa.string())]), pa.array([{"a": 7}], pa.struct([("a", pa.int32())])), {"a": 7, "b": None}),
        (pa.list_(pa.int64()), pa.array([[7]], pa.list_(pa.int32())), [7]),
        (pa.map_(pa.string(), pa.int64()), pa.array([[("k", 7)]], pa.map_(pa.string(), pa.int32())), [("k", 7)]),
    ],
)  # fmt: skip
def test_widened_columns(tmp_path: Path, new: pa.DataType, old: pa.Array, value: object) -> None:
    table = with_old_file(tmp_path / "t", new, old)
    for found in (table.read(), table.scan().read_all(), table.incremental("000")):
        assert found.schema.field("v").type == new
        assert {row["id"]: row["v"] for row in found.to_pylist()} == {"new": None, "old": value}
    assert table.read(["id"], [("v", "is not", None)])["id"].to_pylist() == ["old"]
    if pa.types.is_integer(new) or pa.types.is_floating(new) or pa.types.is_decimal(new):
        assert table.read(["id"], [("v", ">", 0)])["id"].to_pylist() == ["old"]


def test_a_column_that_cannot_be_what_the_table_says_is_told(tmp_path: Path) -> None:
    table = with_old_file(tmp_path / "t", pa.int64(), pa.array(["x"]))
    for read in (table.read, lambda: table.scan().read_all()):
        with pytest.raises(CorruptFile):
            read()


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"\x00" * 400])
def test_a_damaged_file_is_told(tmp_path: Path, damage: bytes) -> None:
    table = with_old_file(tmp_path / "t", pa.int64(), pa.array([1], pa.int32()))
    next((tmp_path / "t").glob("*.parquet")).write_bytes(damage)
    for read in (table.read, lambda: table.scan().read_all(), lambda: table.incremental("000")):
        with pytest.raises(CorruptFile):
            read()
