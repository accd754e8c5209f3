"""deltalake (delta-rs): Parquet under a JSON log; copy-on-write merge."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, WriterProperties, write_deltalake

from benchmarks.peers.base import Peer


class DeltaPeer(Peer):
    """Options: ``defaults``: the writer's own, instead of zstd."""

    packages: ClassVar[tuple[str, ...]] = ("deltalake", "pyarrow")
    _properties: ClassVar[Any] = WriterProperties(compression="ZSTD", compression_level=1)

    def _writer(self) -> Any:
        return None if self.options.get("defaults") else self._properties

    def _same_key(self) -> str:
        return " and ".join(f"s.{name} = t.{name}" for name in (self.key, self.partition) if name)

    def create(self, schema: pa.Schema) -> None:
        self._table = DeltaTable.create(self.path, schema, partition_by=[self.partition] if self.partition else None)

    def open(self) -> None:
        self._table = DeltaTable(self.path)

    def load(self, data: pa.Table) -> None:
        write_deltalake(self._table, data, mode="append", writer_properties=self._writer())

    def load_stream(self, batches: Any) -> None:
        from benchmarks.peers.pyarrow_peer import _schema_first

        self.load(pa.RecordBatchReader.from_batches(*_schema_first(batches)))

    def upsert(self, data: pa.Table) -> None:
        (
            self._table.merge(
                data,
                predicate=self._same_key(),
                source_alias="s",
                target_alias="t",
                writer_properties=self._writer(),
            )
            .when_matched_update_all(predicate=f"s.{self.ordering} >= t.{self.ordering}")
            .when_not_matched_insert_all()
            .execute()
        )

    def delete(self, data: pa.Table) -> None:
        merged = self._table.merge(
            data, self._same_key(), source_alias="s", target_alias="t", writer_properties=self._writer()
        )
        merged.when_matched_delete().execute()

    def scan(self) -> pa.Table:
        return self._table.to_pyarrow_table()

    def scan_stream(self) -> Any:
        return self._table.to_pyarrow_dataset().scanner().to_reader()

    def scan_columns(self, names: list[str]) -> Any:
        return self._table.to_pyarrow_dataset().scanner(columns=names).to_reader()

    def compact(self) -> None:
        self._table.optimize.compact(writer_properties=self._writer())

    def cluster(self, name: str) -> None:
        self._table.optimize.z_order([name], writer_properties=self._writer())

    def look_up(self, keys: pa.Array) -> pa.Table:
        return self._table.to_pyarrow_dataset().to_table(filter=pc.field(self.key).isin(keys))

    def files(self) -> list[str]:
        return list(self._table.file_uris())
