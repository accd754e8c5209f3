"""DuckLake: Parquet under a DuckDB catalog; changed rows are written beside delete files (merge on read)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import duckdb_extension_ducklake
import pyarrow as pa

from benchmarks.peers.base import Peer

SETTINGS = {"parquet_compression": "zstd", "parquet_compression_level": "1", "data_inlining_row_limit": "0"}


class DuckLakePeer(Peer):
    """Options: ``defaults``: the compression is its own, too. Inlining of small commits into the catalog is off: every peer writes Parquet."""

    packages: ClassVar[tuple[str, ...]] = ("duckdb", "duckdb-extension-ducklake", "pyarrow")
    durability: ClassVar[str] = "catalog synced, files in the page cache"

    def __init__(self, path: str, columns: dict[str, str], options: dict[str, Any]) -> None:
        super().__init__(path, columns, options)
        self._connection: Any = None

    def create(self, schema: pa.Schema) -> None:
        Path(self.path).mkdir(parents=True)
        self.open()
        empty = schema.empty_table()  # found by duckdb under this name
        self._connection.register("empty", empty)
        self._run("CREATE TABLE lake.t AS SELECT * FROM empty")
        if self.partition:
            self._run(f"ALTER TABLE lake.t SET PARTITIONED BY ({self.partition})")
        if self.options.get("defaults"):
            return
        for name, value in SETTINGS.items():
            self._run(f"CALL lake.set_option('{name}', '{value}')")

    def open(self) -> None:
        self.close()
        package = Path(str(duckdb_extension_ducklake.__file__)).parent
        extension = next(package.glob("extensions/*/ducklake.duckdb_extension"))
        self._connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        self._run(f"LOAD '{extension}'")
        self._run(f"ATTACH 'ducklake:{self.path}/catalog.ducklake' AS lake (DATA_PATH '{self.path}/data/')")

    def _run(self, text: str, parameters: Any = None) -> Any:
        return self._connection.execute(text, parameters)

    def load(self, data: pa.Table) -> None:
        self._connection.register("incoming", data)
        self._run("INSERT INTO lake.t SELECT * FROM incoming")

    def load_stream(self, batches: Any) -> None:
        from benchmarks.peers.pyarrow_peer import _schema_first

        self.load(pa.RecordBatchReader.from_batches(*_schema_first(batches)))

    def upsert(self, data: pa.Table) -> None:
        self._connection.register("incoming", data)
        self._run(
            f"MERGE INTO lake.t t USING incoming s ON {self._same_key()} WHEN MATCHED AND s.{self.ordering} >= t.{self.ordering} THEN UPDATE"
            " WHEN NOT MATCHED THEN INSERT"
        )

    def _same_key(self) -> str:
        return " AND ".join(f"t.{name} = s.{name}" for name in (self.key, self.partition) if name)

    def delete(self, data: pa.Table) -> None:
        self._connection.register("incoming", data)
        self._run(f"DELETE FROM lake.t t USING incoming s WHERE {self._same_key()}")

    def scan(self) -> pa.Table:
        return self._run("SELECT * FROM lake.t").to_arrow_table()

    def scan_stream(self) -> Any:
        return self._run("SELECT * FROM lake.t").to_arrow_reader(100_000)

    def scan_columns(self, names: list[str]) -> Any:
        return self._run(f"SELECT {', '.join(names)} FROM lake.t").to_arrow_reader(100_000)

    def compact(self) -> None:
        self._run("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")
        self._run("CALL ducklake_merge_adjacent_files('lake', 't')")

    def look_up(self, keys: pa.Array) -> pa.Table:
        text = f"SELECT * FROM lake.t WHERE {self.key} IN (SELECT unnest(?))"
        return self._run(text, [keys.to_pylist()]).to_arrow_table()

    def close(self) -> None:
        if self._connection is not None:
            with suppress(duckdb.Error):
                self._run("DETACH lake")
            self._connection.close()
            self._connection = None
