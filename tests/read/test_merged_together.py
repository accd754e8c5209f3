"""Small file slices are merged together: the rows are those of slices that are merged one by one, in the same order."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups import log_reader as logs_reader
from lakefmt._core.filegroups.reader import OpenBaseFile
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


def test_a_count_is_that_of_the_rows(written, monkeypatch):
    table, stored = written
    monkeypatch.setattr(mor_scan, "_LARGE_BYTES", 0)
    assert table.count() == len(stored)


def updated(path: Path, **more: object) -> lakefmt.Table:
    """A table whose logs have rows of two keys that their base files have, and no others."""
    some = pa.table({"id": ["a", "b", "c", "d"] * 2, "part": ["x"] * 4 + ["y"] * 4, "v": range(8)})
    table = lakefmt.create_table(
        str(path), schema=some.schema, record_key="id", partition_by="part", table_type="mor", **more
    )
    table.insert(some)
    table.upsert(some.take([0, 2, 5, 6]))
    assert all(each.logs for each in table.file_groups())
    return table


def test_updates_are_counted_without_reading_keys(tmp_path, monkeypatch):
    table = updated(tmp_path / "t")
    monkeypatch.setattr(mor_scan, "_LARGE_BYTES", 0)
    monkeypatch.setattr(mor_scan, "_stored_rows", None)
    assert table.count() == 8


@pytest.mark.parametrize("change", ["delete", "marked", "insert", "other key", "beyond the end", "no filter"])
def test_what_may_change_the_number_of_rows_is_merged(tmp_path, monkeypatch, change):
    one_bucket = {"index": "bucket", "properties": {"hoodie.bucket.index.num.buckets": "1"}}
    table = updated(tmp_path / "t", **(one_bucket if change == "insert" else {}))
    monkeypatch.setattr(mor_scan, "_LARGE_BYTES", 0)
    one = pa.table({"id": ["b"], "part": ["x"], "v": [9]})
    if change == "delete":
        table.delete(one.select(["id", "part"]))
    elif change == "marked":
        table.upsert(one.append_column("_hoodie_is_deleted", pa.array([True])))
    elif change == "insert":
        table.upsert(one.set_column(0, "id", pa.array(["new"])))
        assert any(len(each.logs) > 1 for each in table.file_groups())
    elif change == "no filter":
        monkeypatch.setattr(OpenBaseFile, "may_have", lambda opened, hashes_of: None)
    else:
        # A log tells the position of a key that the base file does not have, or one that is not in the file.
        decode = logs_reader._rows_of_blocks

        def other(*arguments):
            rows, counts = decode(*arguments)
            keys = rows.table.column("_hoodie_record_key").to_pylist()
            keys = [f"new {key}" for key in keys] if change == "other key" else keys
            index = rows.table.schema.get_field_index("_hoodie_record_key")
            return replace(rows, table=rows.table.set_column(index, "_hoodie_record_key", pa.array(keys))), counts

        monkeypatch.setattr(logs_reader, "_rows_of_blocks", other)
        if change == "beyond the end":
            positions = logs_reader._positions_in_base
            monkeypatch.setattr(logs_reader, "_positions_in_base", lambda *given: positions(*given) + 100)
    merged = []
    plain = mor_scan._count_together
    monkeypatch.setattr(mor_scan, "_count_together", lambda *given: merged.append(1) or plain(*given))
    assert (
        table.count()
        == table.read().num_rows
        == {"insert": 9, "other key": 12}.get(change, 8 - (change in ("delete", "marked")))
    )
    assert merged
