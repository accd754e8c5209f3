"""deltalake (delta-rs): Parquet under a JSON log; copy-on-write merge."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, WriterProperties, write_deltalake

from benchmarks.peers.base import Peer


class DeltaPeer(Peer):
    """No options."""

    packages: ClassVar[tuple[str, ...]] = ("deltalake", "pyarrow")
    _properties: ClassVar[Any] = WriterProperties(compression="ZSTD", compression_level=1)

    def create(self, schema: pa.Schema) -> None:
        self._table = DeltaTable.create(self.path, schema, partition_by=[self.partition])

    def open(self) -> None:
        self._table = DeltaTable(self.path)

    def load(self, data: pa.Table) -> None:
        write_deltalake(self._table, data, mode="append", writer_properties=self._properties)

    def load_stream(self, batches: Any) -> None:
        from benchmarks.peers.pyarrow_peer import _schema_first

        self.load(pa.RecordBatchReader.from_batches(*_schema_first(batches)))

    def upsert(self, data: pa.Table) -> None:
        (
            self._table.merge(
                data,
                predicate=f"s.{self.key} = t.{self.key} and s.{self.partition} = t.{self.partition}",
                source_alias="s",
                target_alias="t",
                writer_properties=self._properties,
            )
            .when_matched_update_all(predicate=f"s.{self.ordering} >= t.{self.ordering}")
            .when_not_matched_insert_all()
            .execute()
        )

    def scan(self) -> pa.Table:
        return self._table.to_pyarrow_table()

    def scan_stream(self) -> Any:
        return self._table.to_pyarrow_dataset().scanner().to_reader()

    def look_up(self, keys: pa.Array) -> pa.Table:
        return self._table.to_pyarrow_dataset().to_table(filter=pc.field(self.key).isin(keys))

    def files(self) -> list[str]:
        return list(self._table.file_uris())
