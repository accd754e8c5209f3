"""lakefmt: a table of version 8, copy-on-write unless told otherwise, bloom index, without metadata table."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

import lakefmt
from benchmarks.peers.base import Peer


class LakefmtPeer(Peer):
    """Options: ``defaults``: none of the following but the table type; ``durability`` (none, fsync; default none); ``filling`` of small files and ``archiving`` (default True);
    ``table_type`` (cow, mor; default cow); ``index`` (default bloom); ``properties`` of the table and ``settings``, by
    Hudi's names."""

    packages: ClassVar[tuple[str, ...]] = ("lakefmt", "pyarrow")

    @property
    def syncs(self) -> bool:  # type: ignore[override]
        return self._settings().get("lakefmt.durability", "fsync") == "fsync"

    def _settings(self) -> dict[str, Any]:
        if self.options.get("defaults"):
            return {}
        settings: dict[str, Any] = {"lakefmt.durability": self.options.get("durability", "none")}
        if not self.options.get("filling", True):
            settings["hoodie.parquet.small.file.limit"] = 0
        if not self.options.get("archiving", True):
            settings["hoodie.archive.automatic"] = False
        return settings | self.options.get("settings", {})

    def create(self, schema: pa.Schema) -> None:
        lakefmt.create_table(
            self.path,
            schema=schema,
            record_key=self.key,
            partition_by=self.partition or None,
            ordering=self.ordering,
            table_version=8,
            index=self.options.get("index", "bloom"),
            table_type=self.options.get("table_type", "cow"),
            properties=self.options.get("properties"),
            options=self._settings(),
        )
        self.open()

    def open(self) -> None:
        self._table = lakefmt.open_table(self.path, options=self._settings())

    def load(self, data: pa.Table) -> None:
        self._table.bulk_insert(data)

    def load_stream(self, batches: Any) -> None:
        self._table.bulk_insert(batches)

    def append(self, data: pa.Table) -> None:
        self._table.insert(data)

    def upsert(self, data: pa.Table) -> None:
        self._table.upsert(data)

    def delete(self, data: pa.Table) -> None:
        self._table.delete(data[self.key])

    def compact(self) -> None:
        self._table.compact()

    def behind(self) -> int:
        """Return how many commits a read-optimised query lacks rows of, where that is most."""
        oldest = min((part.oldest for part in self._table.stats().backlog if part.oldest), default=None)
        if oldest is None:
            return 0
        return sum(entry.action == "deltacommit" and entry.time >= oldest for entry in self._table.timeline.entries)

    def scan(self) -> pa.Table:
        return self._table.read()

    def scan_stream(self) -> Any:
        return self._table.scan()

    def scan_columns(self, names: list[str]) -> Any:
        return self._table.scan(columns=names)

    def cluster(self, name: str) -> None:
        self._table.cluster(name, options={"hoodie.clustering.plan.strategy.max.num.groups": 1_000})

    def look_up(self, keys: pa.Array) -> pa.Table:
        return self._table.read(filter=pc.field(self.key).isin(keys))

    def files(self) -> list[str]:
        return [f"{self.path}/{piece.base.path}" for piece in self._table.file_groups() if piece.base is not None]
