"""Packing of files ends: what a clustering has filled is not packed again, whatever the limits and the size of filters."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

import lakefmt

NUMBERS = itertools.count()
TARGET = 1 << 16
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "lakefmt.write.threads": 1,
    "hoodie.clean.automatic": False,
    "hoodie.clustering.plan.strategy.target.file.max.bytes": TARGET,
}
BATCHES, ROWS = 30, 1500


@pytest.mark.parametrize(
    "settings",
    [
        {},  # small files are those below 300 MiB
        {"hoodie.clustering.plan.strategy.small.file.limit": TARGET // 4},
        {"hoodie.parquet.bloom.filter.enabled": False},
        {"hoodie.index.bloom.fpp": 0.1},
        {"hoodie.index.bloom.num_entries": 100, "hoodie.bloom.index.filter.dynamic.max.entries": 100},
        {"hoodie.clustering.plan.strategy.max.bytes.per.group": 3 * TARGET},
    ],
    ids=["limit above the target", "limit", "no filters", "small filters", "full filters", "small groups"],
)
@pytest.mark.parametrize("order", [None, "v"])
def test_what_is_full_is_not_packed_again(settings: dict[str, object], order: str | None) -> None:
    """Each run wrote every file again."""
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    table = lakefmt.create_table(
        f"memory://cluster-ends-{next(NUMBERS)}", schema=schema, record_key="id", options={**OPTIONS, **settings}
    )
    values = np.random.default_rng(7).integers(0, 1 << 40, (BATCHES, ROWS))
    for number in range(BATCHES):
        table.bulk_insert(pa.table({"id": [f"{number:02}-{row:04}" for row in range(ROWS)], "v": values[number]}))
    total = sum(each.base.size for each in table.file_groups())
    written = 0
    for _ in range(10):
        result = table.cluster(order)
        if result.instant is None:
            break
        written += result.bytes_written
    else:
        pytest.fail("packing does not end")
    assert written <= 3 * total
    assert len(table.file_groups()) <= -(-total // TARGET) + 1
    assert sorted(table.read()["v"].to_pylist()) == sorted(values.ravel().tolist())
