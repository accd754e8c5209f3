"""``columns=[]`` tells how many rows there are: engines push ``count(*)`` down as a read of no columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
from lakefmt._core.read.snapshot import NEXT_START
from lakefmt._core.table import Table
from lakefmt._core.values import META_COLUMNS

NARROW = pa.struct([("x", pa.int32())])
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("n", pa.int64()),
        ("d", pa.float64()),
        ("s", NARROW),
    ]
)


def rows(first: int, last: int, width: pa.DataType = NARROW) -> pa.Table:
    numbers = range(first, last)
    return pa.table(
        {
            "id": [f"k{n}" for n in numbers],
            "part": [f"p{n % 2}" for n in numbers],
            "n": list(numbers),
            "d": [n / 2 for n in numbers],
            "s": pa.array([{"x": n} for n in numbers], width),
        }
    )


def empty(url: str, **how: Any) -> Table:
    return lakefmt.create_table(url, schema=SCHEMA, record_key="id", options={"lakefmt.write.threads": 1}, **how)


def merged(url: str, **how: Any) -> Table:
    table = empty(url, table_type="mor", partition_by="part", **how)
    table.upsert(rows(0, 10))
    table.upsert(rows(5, 8))
    table.delete(["k1"])
    return table


def plain(url: str, **how: Any) -> Table:
    table = empty(url, **how)
    table.upsert(rows(0, 6))
    table.insert(rows(6, 9))
    return table


def evolved(url: str) -> Table:
    """Older files lack a nested field, and are read one by one."""
    table = plain(url, partition_by="part")
    table.upsert(rows(0, 9, pa.struct([("x", pa.int32()), ("y", pa.string())])).filter(pc.field("part") == "p0"))
    return table


TABLES: dict[str, Callable[[str], Table]] = {
    "nothing": empty,
    "base files": plain,
    "partitioned": lambda url: plain(url, partition_by="part"),
    "version 6": lambda url: plain(url, table_version=6),
    "logs": merged,
    "logs, version 6": lambda url: merged(url, table_version=6),
    "logs, version 9": lambda url: merged(url, table_version=9),
    "evolved structs": evolved,
    "partition columns in paths only": lambda url: plain(
        url, partition_by="part", properties={"hoodie.datasource.write.drop.partition.columns": "true"}
    ),
    "no meta columns": lambda url: plain(url, properties={"hoodie.populate.meta.fields": "false"}),
}
FILTERS: list[Any] = [None, "n > 2", "d > 1", "not (d > 1)", "s.x < 4", "part = 'p0'", "false", pc.field("d") > 1]


@pytest.mark.parametrize("name", TABLES)
def test_the_number_of_rows_stays(name: str) -> None:
    table = TABLES[name](f"memory://no-columns/{name}")
    for condition in FILTERS:
        expected = table.read(filter=condition).num_rows
        assert expected or name == "nothing" or str(condition) == "false"
        found = table.read([], condition)
        assert (found.num_rows, found.num_columns) == (expected, 0), condition
        assert table.snapshot().read([], condition).num_rows == expected
        batches = list(table.scan([], condition))
        assert sum(batch.num_rows for batch in batches) == expected
        assert table.scan([], condition).read_all().num_rows == expected
        assert len(table.to_pandas(columns=[], filter=condition)) == expected
        assert table.read([], condition, query="read_optimized").num_columns == 0
        meta = table.read([], condition, meta_columns=True)
        assert (meta.num_rows, meta.column_names) == (expected, list(META_COLUMNS))


@pytest.mark.parametrize("name", [name for name in TABLES if name != "no meta columns"])
def test_increments_keep_their_number_of_rows(name: str) -> None:
    table = TABLES[name](f"memory://no-columns/increment {name}")
    for condition in FILTERS:
        whole = table.incremental("000", filter=condition)
        counted = table.incremental("000", columns=[], filter=condition)
        assert (counted.num_rows, counted.num_columns) == (whole.num_rows, 0), condition
        assert counted.schema.metadata[NEXT_START] == whole.schema.metadata[NEXT_START]


def test_the_past_counts_too() -> None:
    table = plain("memory://no-columns/past")
    first = table.timeline.entries[0].time
    assert table.read([], as_of=first).num_rows == 6
    assert table.snapshot(as_of=first).scan([]).read_all().num_rows == 6
