"""pypaimon with its Rust runtime: a primary-key table, one bucket per partition; changed rows only (merge on read)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pypaimon import CatalogFactory, Schema

from benchmarks.peers.base import Peer

NATIVE = {"write.native.enabled": "true", "commit.native.enabled": "true", "read.native.enabled": "true"}


class PaimonPeer(Peer):
    """No options. The larger ordering value wins (``sequence.field``)."""

    packages: ClassVar[tuple[str, ...]] = ("pypaimon", "pypaimon-rust", "pyarrow")
    durability: ClassVar[str] = "snapshot synced, files in the page cache"

    def create(self, schema: pa.Schema) -> None:
        Path(self.path).mkdir(parents=True)
        catalog = CatalogFactory.create({"warehouse": self.path})
        catalog.create_database("b", True)
        keys = [self.partition, self.key]
        table = Schema.from_pyarrow_schema(
            _keys_required(schema, keys),
            partition_keys=[self.partition],
            primary_keys=keys,
            options={
                "bucket": "1",
                "sequence.field": self.ordering,
                "file.format": "parquet",
                "file.compression": "zstd",
                "file.compression.zstd-level": "1",
            },
        )
        catalog.create_table("b.t", table, False)
        self.open()

    def open(self) -> None:
        self._table = CatalogFactory.create({"warehouse": self.path}).get_table("b.t").copy(NATIVE)

    def load(self, data: pa.Table) -> None:
        builder = self._table.new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        try:
            writer.write_arrow(data.cast(_keys_required(data.schema, [self.partition, self.key])))
            commit.commit(writer.prepare_commit())
        finally:
            writer.close()
            commit.close()

    def upsert(self, data: pa.Table) -> None:
        self.load(data)

    def scan(self) -> pa.Table:
        return self._read(self._table.new_read_builder())

    def _read(self, builder: Any) -> pa.Table:
        return builder.new_read().to_arrow(builder.new_scan().plan().splits())

    def look_up(self, keys: pa.Array) -> pa.Table:
        builder = self._table.new_read_builder()
        wanted = builder.new_predicate_builder().is_in(self.key, keys.to_pylist())
        return self._read(self._table.new_read_builder().with_filter(wanted))


def _keys_required(schema: pa.Schema, keys: list[str]) -> pa.Schema:
    return pa.schema([field.with_nullable(field.name not in keys) for field in schema])
