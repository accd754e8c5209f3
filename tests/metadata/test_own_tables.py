"""What lakefmt writes into a metadata table, it reads there: files, places of keys, ends of columns, after every write."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
from lakefmt._core.filegroups.model import build_slices
from lakefmt._core.metadata.index_readers import read_stats, scan_locations
from lakefmt._core.metadata.layout import PartitionKind
from lakefmt._core.metadata.listing import MetadataListing, open_metadata_table
from lakefmt.errors import InvalidInputError

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])
OPTIONS = {
    "lakefmt.durability": "none",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.compact.max.delta.commits": "4",
}


def rows(first: int, last: int, ts: int) -> pa.Table:
    numbers = list(range(first, last))
    return pa.table(
        {
            "id": [f"k{number:03d}" for number in numbers],
            "city": [["sf", "são paulo", "a/b"][number % 3] for number in numbers],
            "ts": [ts] * len(numbers),
            "fare": [number * 0.5 + ts for number in numbers],
        },
        SCHEMA,
    )


def check_same(table: lakefmt.Table) -> None:
    """Compare what the metadata table says with storage and with the rows."""
    client = table.client
    state = client.load()
    listing = client.listing(state.config)
    assert isinstance(listing, MetadataListing)
    by_storage = {one.paths: one.size_bytes for one in slices_of(table, client.storage_listing(state.config))}
    assert {one.paths: one.size_bytes for one in slices_of(table, listing)} == by_storage
    stored = table.read(meta_columns=True)
    metadata = open_metadata_table(client, state.config)
    assert metadata is not None
    locations = scan_locations(metadata)
    assert pairs(locations, "key", "partition") == pairs(stored, "_hoodie_record_key", "_hoodie_partition_path")
    assert pairs(locations, "partition", "file_id") <= {
        (one.partition, one.file_id) for one in client.at(state).slices()
    }
    stats = {
        row["name"]: row for row in read_stats(metadata, PartitionKind.COLUMN_STATS, "fare", pa.float64()).to_pylist()
    }
    names = {path.rpartition("/")[2] for paths in by_storage for path in paths}
    assert names <= stats.keys()
    if not metadata.has("partition_stats"):
        assert state.config.version.value == 6
        with pytest.raises(InvalidInputError, match="partition_stats"):
            read_stats(metadata, PartitionKind.PARTITION_STATS, "ts", pa.int64())
        return
    for row in read_stats(metadata, PartitionKind.PARTITION_STATS, "ts", pa.int64()).to_pylist():
        values = stored.filter(pc.equal(stored["_hoodie_partition_path"], row["name"]))["ts"]
        assert not len(values) or row["min"] <= pc.min(values).as_py() <= pc.max(values).as_py() <= row["max"]


def slices_of(table: lakefmt.Table, listing):
    state = table.client.load()
    bases, logs = listing.files(None)
    return build_slices(bases, logs, table.client.at(state).slicing(bases, logs), table.client.at(state).replaced())


def pairs(rows_: pa.Table, *names: str) -> set[tuple[str, str]]:
    return set(zip(*(rows_[name].to_pylist() for name in names), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_every_write_is_read_in_the_metadata_table(tmp_path: Path, version: int, table_type: str):
    table = lakefmt.create_table(
        str(tmp_path / "t"),
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        ordering="ts",
        table_type=table_type,
        table_version=version,
        options=OPTIONS,
    )
    for number in range(6):
        table.upsert(rows(10 * number, 10 * number + 20, number + 1))
        check_same(table)
    table.delete([f"k{number:03d}" for number in range(5, 25)])
    check_same(table)
    table.clean(options={"hoodie.clean.commits.retained": "1"})
    check_same(table)
    table.upsert(rows(0, 30, 9))
    check_same(table)
    assert table.read().num_rows == len(set(table.read()["id"].to_pylist()))
