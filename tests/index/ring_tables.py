"""Tables with consistent hashing, and the law that every row lies in the file group of its node."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.index.bucket_index import joined_values, xxhash32
from lakefmt._core.index.bucket_ring import LARGEST_HASH, HashRing
from lakefmt._core.index.bucket_ring_files import RingFiles
from lakefmt._core.values import PartitionPath

FAST = {"lakefmt.durability": "none"}
NUM, ENGINE = "hoodie.bucket.index.num.buckets", "hoodie.index.bucket.engine"


def rows(first: int, last: int, v: int, partitions: int = 2) -> pa.Table:
    numbers = range(first, last)
    columns = {"id": [f"k{n}" for n in numbers], "n": [n % 3 for n in numbers]}
    return pa.table({**columns, "p": [f"p{n // 3 % partitions}" for n in numbers], "v": [v] * len(numbers)})


def make(name: str, **how: object) -> lakefmt.Table:
    properties = {NUM: "4", ENGINE: "CONSISTENT_HASHING"}
    arguments = {
        "record_key": "id",
        "partition_by": "p",
        "index": "bucket",
        "table_type": "mor",
        "properties": properties,
    }
    place, schema = f"memory://consistent-{name}", rows(0, 1, 0).schema
    return lakefmt.create_table(place, schema=schema, **{"options": FAST, **arguments, **how})  # type: ignore[arg-type]


def rings_of(table: lakefmt.Table) -> dict[str, HashRing]:
    client = TableClient(table.client.store)
    files = RingFiles(client.at(client.load()), 4)
    partitions = {one.partition for one in table.file_groups()}
    found = {partition: files.stored_ring(PartitionPath(partition)) for partition in partitions}
    return {partition: ring for partition, ring in found.items() if ring is not None}


def check(table: lakefmt.Table, expected: dict[str, int], fields: list[str] | None = None) -> None:
    """Every row is stored once, in the file group of its node."""
    stored = table.read(meta_columns=True)
    found = dict(zip(stored["id"].to_pylist(), stored["v"].to_pylist(), strict=True))
    assert stored.num_rows == len(found)
    assert found == expected
    rings = rings_of(table)
    keys = stored["_hoodie_record_key"].combine_chunks().cast(pa.string())
    values = (xxhash32(joined_values(keys, fields or ["id"])) & np.uint32(LARGEST_HASH)).astype(np.int64)
    partitions = stored["_hoodie_partition_path"].to_pylist()
    names = stored["_hoodie_file_name"].to_pylist()
    for name, partition, value in zip(names, partitions, values, strict=True):
        ring = rings[partition]
        assert name.startswith(ring.nodes[ring.node_numbers(np.array([value]))[0]].file_id)
    ids = {partition: {node.file_id for node in ring.nodes} for partition, ring in rings.items()}
    assert all(group.file_id in ids[group.partition] for group in table.file_groups())
