"""Statistics of data partitions by Spark count every row under every column."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakefmt._core.metadata.index_readers import read_stats
from lakefmt._core.metadata.layout import PartitionKind
from lakefmt._core.values import RECORD_KEY
from tests.metadata.metadata_fixtures import PARTITION_STATISTICS, client_of, metadata_of, unpack


@pytest.mark.parametrize("packed", PARTITION_STATISTICS, ids=lambda packed: packed.stem)
def test_spark_counts_every_row_under_every_column(packed: Path, tmp_path: Path) -> None:
    """What the comparison with record keys relies on, in tables by Spark of both types: nothing was altered in them."""
    root = unpack(packed, tmp_path)
    client = client_of(root)
    metadata, kind = metadata_of(root), PartitionKind.PARTITION_STATS

    def counted(column: str, of: pa.DataType) -> dict[str, int]:
        stats = read_stats(metadata, kind, column, of)
        assert pc.all(stats["is_tight"], min_count=0).as_py()
        return dict(zip(stats["name"].to_pylist(), stats["value_count"].to_pylist(), strict=True))

    keys = counted(RECORD_KEY, pa.string())
    columns = [field for field in client.at(client.load()).schema() if not pa.types.is_nested(field.type)]
    counts = {field.name: counted(field.name, field.type) for field in columns}
    assert keys
    assert {name: each for name, each in counts.items() if each not in (keys, {})} == {}
