"""Strict operators, updates and `insert_ignore` find stored rows by the table's index, and read no other file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.producers.stream import committing
from lakefmt._core.producers.stream.options import FlushMode
from lakefmt._core.read.snapshot import rows_of_keys
from lakefmt.errors import DuplicateKey, FlushFailed, KeyNotFound
from tests.kit import product_or_diagonal
from tests.producers.stream.stream_kit import make, table_over

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("p", pa.string()), ("v", pa.int64())])
QUICK = {"flush_mode": FlushMode.AUTO_FLUSH_SYNC, "flush_interval": 0, "commit_interval": 60_000}
PARTITIONS, KEYS = 3, 8


@product_or_diagonal(
    index=["bloom", "simple", "global_bloom", "global_simple", "bucket", "record_index"], table_type=["cow", "mor"]
)
def test_only_files_of_the_keys_are_read(index: str, table_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more: dict[str, Any] = {"properties": {"hoodie.bucket.index.num.buckets": "4"}} if index == "bucket" else {}
    store = make(schema=SCHEMA, partition_by="p", index=index, table_type=table_type, **more)
    table = table_over(store)
    for first in range(0, KEYS, 2):  # in one partition, keys of other commits are in other files or in logs
        table.upsert(
            [{"id": f"k{p}{n}", "p": f"p{p}", "v": n} for n in (first, first + 1) for p in range(PARTITIONS)],
            options={"hoodie.parquet.small.file.limit": 0},
        )
    expected = {row["id"]: row["v"] for row in table.read().to_pylist()}
    read: list[int] = []

    def counted(snapshot: Any, keys: pa.Array, columns: Any, slices: Sequence[FileSlice]) -> pa.Table:
        read.append(len({(each.partition, each.file_id) for each in slices}))
        return rows_of_keys(snapshot, keys, columns, slices)

    monkeypatch.setattr(committing, "rows_of_keys", counted)
    with table_over(store).open_stream(**QUICK) as stream:
        stream.update({"id": "k02", "p": "p0", "v": 20})
        stream.extend([{"id": "k14", "p": "p1"}], "delete")
        stream.insert({"id": "new", "p": "p0", "v": 1})
        stream.extend([{"id": "k00", "p": "p0", "v": 99}, {"id": "n2", "p": "p0", "v": 2}], "insert_ignore")
        stream.flush()
        stream.commit()
    expected |= {"k02": 20, "new": 1, "n2": 2}
    del expected["k14"]
    assert {row["id"]: row["v"] for row in table_over(store).read().to_pylist()} == expected
    assert len(read) == 2, "one look-up of the flush, one of the commit"
    assert max(read) <= 4 < len(table.file_groups()), "the files of three stored keys, and those a bucket may be in"
    for wrong, error in (
        (("insert", {"id": "k02", "p": "p0"}), DuplicateKey),
        (("update", {"id": "k14"}), KeyNotFound),
    ):
        stream = table_over(store).open_stream(**QUICK)
        stream.extend([{"p": "p1", "v": 0, **wrong[1]}], wrong[0])
        with pytest.raises(FlushFailed) as caught:
            stream.flush()
        assert isinstance(caught.value.__cause__, error)
        stream.close(discard=True)
