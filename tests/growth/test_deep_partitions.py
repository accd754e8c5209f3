"""Partition trees of a thousand levels are refused by a typed error, and nothing of the table is lost."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.errors import InvalidKey, StorageError

LEVELS = 1000


def test_a_value_of_a_thousand_levels_is_refused(tmp_path: Path):
    rows = pa.table({"id": ["a"], "place": ["x"]})
    table = lakefmt.create_table(tmp_path / "t", data=rows, record_key="id", partition_by="place")
    table.upsert(rows)
    with pytest.raises(InvalidKey, match="more than 255 bytes"):
        table.upsert(pa.table({"id": ["b"], "place": ["/".join(["x"] * LEVELS)]}))
    assert table.read().num_rows == 1
    assert table.upsert(pa.table({"id": ["c"], "place": ["y"]})).num_inserts == 1


@pytest.mark.slow
def test_a_thousand_partition_columns_are_refused_where_the_path_is_too_long(tmp_path: Path):
    names = [f"c{number}" for number in range(LEVELS)]
    rows = pa.table({"id": ["a"], **{name: ["x"] for name in names}})
    table = lakefmt.create_table(tmp_path / "t", data=rows, record_key="id", partition_by=names)
    with pytest.raises(StorageError, match="too long"):
        table.upsert(rows)
    assert table.read().num_rows == 0
