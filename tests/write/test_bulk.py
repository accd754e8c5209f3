"""A large load, keyed and written by several hands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt.errors import InvalidKey

ROWS = 150_000


def rows(null_keys: list[int]) -> pa.Table:
    keys = np.array([f"k{row}" for row in range(ROWS)], object)
    keys[null_keys] = None
    homes = pa.array(["a", "b", "c"]).take(pa.array(np.arange(ROWS) % 3))
    return pa.table({"key": pa.array(keys, pa.string()), "home": homes, "n": np.arange(ROWS)})


def made(path: Path) -> lakefmt.Table:
    return lakefmt.create_table(str(path), schema=rows([]).schema, record_key="key", partition_by="home")


def test_what_is_wrong_is_named_by_its_row_of_the_whole(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    with pytest.raises(InvalidKey, match=r"^2 rows have a null or empty record key .*first is row 140000$"):
        table.bulk_insert(rows([140_000, 140_001]))
    assert table.read().num_rows == 0
    assert not list((tmp_path / "t").rglob("*.parquet"))


def test_a_column_that_the_path_tells_is_stored_like_any_other(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.bulk_insert(rows([]))
    files = sorted((tmp_path / "t").rglob("*.parquet"))
    assert len(files) == 3
    for file, home in zip(files, "abc", strict=True):
        stored = pq.ParquetFile(file)
        assert stored.schema_arrow.field("home").type == pa.string()
        assert stored.read()["home"].to_pylist() == [home] * (ROWS // 3)
        told = stored.metadata.row_group(0).column(stored.schema_arrow.get_field_index("home")).statistics
        assert (told.min, told.max, told.null_count) == (home, home, 0)
    assert table.read(columns=["key", "home", "n"]).sort_by("n").equals(rows([]))
