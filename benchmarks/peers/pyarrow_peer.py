"""Plain pyarrow: no table format, no commits, no isolation: the limit of what any of the others can reach.

Load writes one file per partition. An upsert reads the files of the partitions it touches, joins them with the batch by
key, and writes them anew; files in which no key is found stay, new rows go into the partition's first file. An append
writes one file more. Files appear by rename; nothing is synced.
"""

from __future__ import annotations

import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.peers.base import Peer

ZSTD: dict[str, Any] = {"compression": "zstd", "compression_level": 1}


class PyarrowPeer(Peer):
    """Options: ``files`` and ``columns``: read these files instead of the table at the path."""

    packages: ClassVar[tuple[str, ...]] = ("pyarrow",)

    def create(self, schema: pa.Schema) -> None:
        Path(self.path).mkdir(parents=True)
        self.open()

    def open(self) -> None:
        """Nothing to open: the folder is the table."""

    def _layout(self) -> Any:
        if not self.partition:
            return None
        return ds.partitioning(pa.schema([(self.partition, pa.string())]), flavor="hive")

    def load(self, data: pa.Table) -> None:
        ds.write_dataset(
            data,
            self.path,
            format="parquet",
            partitioning=self._layout(),
            file_options=ds.ParquetFileFormat().make_write_options(**ZSTD),
            min_rows_per_group=1 << 20,  # one row group per file, as the others write them; also the fastest
            max_rows_per_group=1 << 20,
            max_partitions=1024,
            basename_template=f"{uuid.uuid4()}-{{i}}.parquet",
            existing_data_behavior="overwrite_or_ignore",
        )

    def load_stream(self, batches: Any) -> None:
        reader = pa.RecordBatchReader.from_batches(*_schema_first(batches))
        ds.write_dataset(
            reader,
            self.path,
            format="parquet",
            partitioning=self._layout(),
            file_options=ds.ParquetFileFormat().make_write_options(**ZSTD),
            max_partitions=1024,
        )

    def append(self, data: pa.Table) -> None:
        for value, part in self._by_partition(data):
            folder = self._folder(value)
            self._store(part, folder / f"{uuid.uuid4()}.parquet")

    def upsert(self, data: pa.Table) -> None:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda item: self._rewrite(*item), self._by_partition(data)))

    def _folder(self, value: str) -> Path:
        folder = Path(self.path) / f"{self.partition}={value}" if self.partition else Path(self.path)
        folder.mkdir(exist_ok=True)
        return folder

    def delete(self, data: pa.Table) -> None:
        """Rewrite the files that hold one of the keys."""
        keys = data[self.key].combine_chunks()

        def without(path: Path) -> None:
            stored = pq.read_table(path, partitioning=None)
            kept = stored.filter(pc.invert(pc.is_in(stored[self.key], value_set=keys)))
            if kept.num_rows < stored.num_rows:
                self._store(kept, path)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(without, map(Path, self.files())))

    def _by_partition(self, data: pa.Table) -> list[tuple[str, pa.Table]]:
        if not self.partition:
            return [("", data)]
        values = pc.unique(data[self.partition]).to_pylist()
        bare = data.drop_columns([self.partition])
        if len(values) == 1:
            return [(values[0], bare)]
        return [(value, bare.filter(pc.equal(data[self.partition], value))) for value in values]

    def _rewrite(self, value: str, batch: pa.Table) -> None:
        folder = self._folder(value)
        paths = sorted(folder.glob("*.parquet"))
        batch = batch.combine_chunks()
        keys = batch[self.key].combine_chunks()
        taken = pa.array([False] * len(keys))
        rest: list[tuple[Path, pa.Table, pa.ChunkedArray]] = []
        for path in paths:
            stored = pq.read_table(path, partitioning=None)
            match = pc.index_in(stored[self.key], value_set=keys)
            rest.append((path, stored, match))
            taken = pc.or_(taken, pc.is_in(keys, value_set=stored[self.key].combine_chunks()))
        new = batch.filter(pc.invert(taken))
        for number, (path, stored, match) in enumerate(rest):
            found = pc.is_valid(match)
            changed = pc.any(found).as_py()
            if not changed and not (number == 0 and len(new)):
                continue
            incoming = batch[self.ordering].take(match)
            wins = pc.fill_null(pc.greater_equal(incoming, stored[self.ordering]), False)
            pieces = [stored.filter(pc.invert(wins)), batch.take(match.filter(wins))]
            self._store(pa.concat_tables([*pieces, new] if number == 0 else pieces), path)
        if not rest and len(new):
            self._store(new, folder / f"{uuid.uuid4()}.parquet")

    def compact(self) -> None:
        """Read each file and write its rows into a new one beside it: what any compaction has to do at least."""

        def anew(path: Path) -> None:
            pq.write_table(pq.read_table(path, partitioning=None), path.with_suffix(".new"), **ZSTD)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(anew, map(Path, self.files())))

    def _store(self, table: pa.Table, path: Path) -> None:
        beside = path.with_suffix(f".{uuid.uuid4()}.tmp")
        pq.write_table(table, beside, **ZSTD)
        beside.replace(path)

    def _dataset(self) -> Any:
        if "files" in self.options:
            return ds.dataset(self.options["files"], format="parquet")
        return ds.dataset(self.path, format="parquet", partitioning=self._layout())

    def scan(self) -> pa.Table:
        return self._dataset().to_table(columns=self.options.get("columns"))

    def scan_stream(self) -> Any:
        return self._dataset().scanner().to_reader()

    def look_up(self, keys: pa.Array) -> pa.Table:
        return self._dataset().to_table(columns=self.options.get("columns"), filter=pc.field(self.key).isin(keys))

    def files(self) -> list[str]:
        return sorted(map(str, Path(self.path).rglob("*.parquet")))


def _schema_first(batches: Any) -> tuple[pa.Schema, Any]:
    import itertools

    batches = iter(batches)
    first = next(batches)
    return first.schema, itertools.chain([first], batches)
