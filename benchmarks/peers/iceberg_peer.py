"""PyIceberg with a SQLite catalog: Parquet under manifests; copy-on-write."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In
from pyiceberg.transforms import IdentityTransform

from benchmarks.peers.base import Peer

PROPERTIES = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "1"}


class IcebergPeer(Peer):
    """No options. Its upsert knows no ordering value: the batch always wins, which these batches would anyway."""

    packages: ClassVar[tuple[str, ...]] = ("pyiceberg", "pyarrow")
    durability: ClassVar[str] = "catalog synced, files in the page cache"

    def _catalog(self) -> Any:
        return SqlCatalog("b", uri=f"sqlite:///{self.path}/catalog.db", warehouse=f"file://{self.path}")

    def create(self, schema: pa.Schema) -> None:
        Path(self.path).mkdir(parents=True)
        catalog = self._catalog()
        catalog.create_namespace("b")
        self._table = catalog.create_table("b.t", schema=schema, properties=PROPERTIES)
        with self._table.update_spec() as spec:
            spec.add_field(self.partition, IdentityTransform(), self.partition)

    def open(self) -> None:
        self._table = self._catalog().load_table("b.t")

    def load(self, data: pa.Table) -> None:
        self._table.append(data)

    def upsert(self, data: pa.Table) -> None:
        self._table.upsert(data, join_cols=[self.key])

    def scan(self) -> pa.Table:
        return self._table.scan().to_arrow()

    def look_up(self, keys: pa.Array) -> pa.Table:
        return self._table.scan(row_filter=In(self.key, keys.to_pylist())).to_arrow()
