"""What the filters of readers read before and after a clustering, and what the clustering costs."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from lakefmt.bench.cells import BenchCell
from lakefmt.bench.resident import timed
from lakefmt.bench.rows import FILTER_RANGE, KEY, ORDERING, PARTITION, RowSource
from lakefmt.errors import InternalError
from lakefmt.filegroups.table_client import TableClient
from lakefmt.storage.open import open_store
from lakefmt.table import Table, create_table, open_table
from lakefmt.testing.stores import CountingStore

__all__ = ["measure_clustering"]

#: The table has about this number of files, so that there are files to leave out.
_FILES = 32
_LEAST_FILE_BYTES = 64 << 10


def measure_clustering(cell: BenchCell, folder: Path) -> dict[str, Any]:
    """Load a table in no order, read by filters, cluster it, and read by the same filters.

    Returns:
        ``read_before`` and ``read_after``, each with ``bytes``, ``files`` and ``seconds`` of a filter on the average,
        ``service_seconds`` and ``bytes_written`` of the clustering, ``rows``.

    Raises:
        InternalError: a filter returned other rows after the clustering.
    """
    choice, source = cell.choice, RowSource(cell.profile)
    base = source.base()
    size = max(_LEAST_FILE_BYTES, round(cell.profile.rows * cell.profile.row_bytes / _FILES))
    options = {
        "lakefmt.durability": "none",
        "hoodie.parquet.max.file.size": size,
        "hoodie.parquet.small.file.limit": 0,
        "hoodie.clustering.plan.strategy.target.file.max.bytes": size,
        "hoodie.clustering.plan.strategy.small.file.limit": 1 << 40,
    }
    place = str(folder)
    create_table(
        place, schema=base.schema, record_key=KEY, partition_by=PARTITION, ordering=ORDERING, options=options
    ).bulk_insert(base)
    filters = _filters(cell)
    before, rows_before = _read(place, options, filters)
    store = CountingStore(open_store(place))
    table = Table(TableClient(store, options))
    done, seconds = timed(lambda: table.cluster(list(choice.cluster_by), order=choice.cluster_order))
    after, rows_after = _read(place, options, filters)
    if rows_before != rows_after:
        raise InternalError(f"{cell.name}: filters returned {rows_after} rows after clustering, {rows_before} before")
    return {
        "read_before": before,
        "read_after": after,
        "service_seconds": [[round(each, 6) for each in seconds]],
        "bytes_written": {"service": store.statistics().bytes_written},
        "newest_bytes": sum(each.size_bytes for each in open_table(place).file_groups()),
        "rows": done.num_rows,
    }


def _filters(cell: BenchCell, count: int = 8) -> list[str]:
    """Return filters over ``n`` and ``m`` that keep the profile's share of the rows."""
    rng = np.random.default_rng(5)
    width = int(FILTER_RANGE * float(np.sqrt(cell.profile.filter_share)))
    lows = rng.integers(0, FILTER_RANGE - width + 1, (count, 2))
    return [f"n >= {low[0]} and n < {low[0] + width} and m >= {low[1]} and m < {low[1] + width}" for low in lows]


def _read(place: str, options: dict[str, Any], filters: list[str]) -> tuple[dict[str, Any], list[int]]:
    rows, files, read, seconds = [], [], [], []
    for each in filters:
        store = CountingStore(open_store(place))
        table = Table(TableClient(store, options))
        result = table.read(filter=each)
        rows.append(result.num_rows)
        read.append(store.statistics().bytes_read)
        plain = open_table(place, options=options)
        _, took = timed(lambda: plain.read(filter=each))  # noqa: B023 - called at once
        seconds.append(took)
        files.append(table.explain(each).steps[-1].files)
    clock, processor = mean(each[0] for each in seconds), mean(each[1] for each in seconds)
    shown = {"bytes": round(mean(read)), "files": mean(files), "seconds": [round(clock, 6), round(processor, 6)]}
    return shown, rows
