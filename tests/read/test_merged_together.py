"""Small file slices are merged together: the rows are those of slices that are merged one by one, in the same order."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.read import mor_scan

PARTITIONS = ("a", "b", "c", "d")
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
Stored = dict[tuple[str, str], tuple[int, float]]


def rows(random: np.random.Generator, numbers: range, ts: range) -> pa.Table:
    """Return rows whose keys are in several partitions."""
    pairs = [(f"k{number}", part) for number in numbers for part in PARTITIONS if random.random() < 0.5]
    picked = [(*pair, int(random.integers(ts.start, ts.stop)), float(random.random())) for pair in pairs]
    return pa.table(list(zip(*picked, strict=True)), schema=SCHEMA)


def put(stored: Stored, some: pa.Table) -> None:
    for row in some.to_pylist():
        pair = row["id"], row["part"]
        if pair not in stored or stored[pair][0] <= row["ts"]:
            stored[pair] = row["ts"], row["v"]


@pytest.fixture(params=itertools.product((6, 9), ("bloom", "bucket")), ids=lambda pair: f"{pair[1]}-{pair[0]}")
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[lakefmt.Table, Stored]:
    """A table with late rows, new rows, deletes and deleted rows that came back, and what it should hold."""
    version, index = request.param
    table = lakefmt.create_table(
        str(tmp_path / "t"),
        schema=SCHEMA,
        record_key="id",
        partition_by="part",
        ordering="ts",
        table_type="mor",
        table_version=version,
        index=index,
        properties={"hoodie.bucket.index.num.buckets": "2"} if index == "bucket" else None,
        options={"lakefmt.durability": "none"},
    )
    random, stored = np.random.default_rng(version), Stored()
    for numbers, ts in ((range(20), range(10, 20)), (range(10, 30), range(5, 25))):
        some = rows(random, numbers, ts)
        table.upsert(some)
        put(stored, some)
    gone = [pair for pair in stored if random.random() < 0.3]
    table.delete(pa.table(list(zip(*gone, strict=True)), names=["id", "part"]))
    for pair in gone:
        del stored[pair]
    some = rows(random, range(15), range(100, 110))
    table.upsert(some)
    put(stored, some)
    return table, stored


def test_rows_are_those_of_slices_that_are_merged_one_by_one(written, monkeypatch):
    table, stored = written
    together = table.read(meta_columns=True)
    found = {(row["id"], row["part"]): (row["ts"], row["v"]) for row in together.to_pylist()}
    assert found == stored
    assert len(found) == together.num_rows
    monkeypatch.setattr(mor_scan, "_MOST_SLICES", 1)
    assert together.equals(table.read(meta_columns=True))


def test_a_filter_is_applied_after_the_merge(written):
    table, stored = written
    late = table.read(columns=["id", "part"], filter="ts >= 100")
    assert sorted(map(tuple, zip(*late.to_pydict().values(), strict=True))) == sorted(
        pair for pair, (ts, _) in stored.items() if ts >= 100
    )


def test_what_is_merged_alone_starts_no_threads(written, monkeypatch):
    table, stored = written
    monkeypatch.setattr(mor_scan, "ThreadPoolExecutor", lambda _: pytest.fail("a pool of threads was made"))
    assert table.read().num_rows == len(stored)  # all slices are small, and merged together
