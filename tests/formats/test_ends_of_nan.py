"""Columns with NaN: a footer does not tell ends that leave NaN out, which Spark takes for the largest number."""

from __future__ import annotations

import io
import math
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakefmt
from lakefmt._core.formats.parquet.base_file import BaseFileWriter
from lakefmt._core.metadata.index_readers import read_stats
from lakefmt._core.metadata.layout import PartitionKind
from lakefmt._core.metadata.listing import open_metadata_table
from lakefmt._core.metadata.statistics import row_ranges
from lakefmt._core.values import RECORD_KEY

NAN, INF = math.nan, math.inf
STRUCT = pa.struct([("x", pa.float64()), ("n", pa.int32())])
SCHEMA = pa.schema(
    [(RECORD_KEY, pa.string()), ("id", pa.string()), ("f", pa.float64()), ("g", pa.float32()), ("s", STRUCT)]
)


def rows(keys: str, f: list[float | None], g: list[float | None], x: list[float | None]) -> pa.Table:
    structs = [None if each is None else {"x": each, "n": 1} for each in x]
    return pa.table([[*keys], [*keys], f, g, structs], schema=SCHEMA)


def written(*parts: pa.Table, group_rows: int = 1 << 20) -> bytes:
    sink = io.BytesIO()
    writer = BaseFileWriter(sink, SCHEMA)
    for part in parts:
        writer.write(part, group_rows)
    writer.close({"a": "b"})
    return sink.getvalue()


def told(data: bytes) -> list[dict[str, tuple[bool, int]]]:
    """Return of each row group and column whether its ends are told, and its number of nulls."""
    metadata = pq.read_metadata(io.BytesIO(data))
    chunks = [
        [metadata.row_group(g).column(c) for c in range(metadata.num_columns)] for g in range(metadata.num_row_groups)
    ]
    return [{c.path_in_schema: (c.statistics.has_min_max, c.statistics.null_count) for c in group} for group in chunks]


def test_a_row_group_with_nan_tells_no_ends_and_the_nulls() -> None:
    table = rows("abcd", [1.0, NAN, 3.0, 4.0], [None, 1.0, NAN, None], [NAN, None, 5.0, 6.0])
    data = written(table, group_rows=2)
    keys = {RECORD_KEY: (True, 0), "id": (True, 0)}
    assert told(data) == [
        {**keys, "f": (False, 0), "g": (True, 1), "s.x": (False, 1), "s.n": (True, 1)},
        {**keys, "f": (True, 0), "g": (False, 1), "s.x": (True, 0), "s.n": (True, 0)},
    ]
    again = pq.read_table(io.BytesIO(data))
    assert str(again.to_pylist()) == str(table.to_pylist())
    assert pq.read_metadata(io.BytesIO(data)).metadata[b"a"] == b"b"


def test_nan_may_come_later(tmp_path: Path) -> None:
    """What is known when the file is begun does not matter; DuckDB, for which NaN is the largest, too, finds the row."""
    data = written(rows("ab", [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]), rows("c", [NAN], [NAN], [NAN]))
    assert [group["f"][0] for group in told(data)] == [True, False]
    (tmp_path / "f.parquet").write_bytes(data)
    found = duckdb.sql(f"select id from read_parquet('{tmp_path}/f.parquet') where f > 5").fetchall()
    assert found == [("c",)]


@pytest.mark.parametrize(
    ("values", "ends"),
    [([1.0, NAN], (1.0, INF)), ([INF, NAN, None], (INF, INF)), ([NAN], (INF, INF)), ([-INF, 2.0], (-INF, 2.0))],
)
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_counts_as_the_largest_number_of_rows(
    values: list[float | None], ends: tuple[float, float], kind: pa.DataType
) -> None:
    found = row_ranges(pa.table({"v": pa.array(values, kind)}), ["v"])["v"]
    assert str((found.minimum, found.maximum)) == str(ends)


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_statistics_of_files_and_partitions_reach_over_nan(kind: str, version: int) -> None:
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("f", pa.float64())])
    table = lakefmt.create_table(
        f"memory://ends-of-nan-{kind}-{version}",
        schema=schema,
        record_key="id",
        partition_by="p",
        table_type=kind,
        table_version=version,
        options={"lakefmt.durability": "none", "hoodie.metadata.enable": True, "hoodie.parquet.small.file.limit": 0},
    )
    table.insert(pa.table([["a", "b"], ["x", "x"], [1.0, NAN]], schema=schema))
    table.insert(pa.table([["c"], ["x"], [7.0]], schema=schema))
    table.upsert(pa.table([["c"], ["x"], [NAN]], schema=schema))
    state = table.client.load()
    metadata = open_metadata_table(table.client, state.config)
    assert metadata is not None
    maxima = read_stats(metadata, PartitionKind.COLUMN_STATS, "f", pa.float64())["max"].to_pylist()
    assert sorted(maxima) == [7.0, INF, INF]
    if version > 6:
        (maximum,) = read_stats(metadata, PartitionKind.PARTITION_STATS, "f", pa.float64())["max"].to_pylist()
        assert maximum == INF
    assert table.read(filter="f > 0")["id"].to_pylist() == ["a"]
    assert table.index.check().is_clean
    assert not table.check("full").findings
