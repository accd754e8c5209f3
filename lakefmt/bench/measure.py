"""Runs one cell in this process and returns what it cost; every cell compares the table with the rows that it must hold."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from statistics import mean, median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.bench.cells import BenchCell
from lakefmt.bench.clustered_reads import measure_clustering
from lakefmt.bench.filters_alone import measure_filter
from lakefmt.bench.resident import Seconds, forget_peak, peak_memory, resident_memory, timed
from lakefmt.bench.rows import KEY, ORDERING, PARTITION, BatchOfRows, RowSource
from lakefmt.data_classes import dataclass
from lakefmt.errors import InternalError
from lakefmt.filegroups.table_client import TableClient
from lakefmt.metadata.reading.listing import ListingByMetadata
from lakefmt.storage.open import open_store
from lakefmt.table import Table, create_table
from lakefmt.testing.stores import CountingStore, Counts

__all__ = ["measure_cell"]

_NOT_DURABLE = {"lakefmt.durability": "none"}


def measure_cell(cell: BenchCell, folder: Path) -> dict[str, Any]:
    """Measure a cell and return its figures.

    Args:
        cell: what to measure.
        folder: an empty folder for its tables.

    Returns:
        Numbers by name, as JSON holds them.

    Raises:
        InternalError: the table did not hold the rows that it must hold.
    """
    if cell.kind == "filter":
        return measure_filter(cell)
    if cell.kind == "clustering":
        return measure_clustering(cell, folder)
    figures = _TimedRun(cell, folder / "timed").figures()
    if cell.counted:
        figures |= _CountedRun(cell, folder / "counted").figures()
    return figures


@dataclass
class _Run:
    """Commits and reads of one table; subclasses measure them in their way."""

    cell: BenchCell
    folder: Path
    given: int = 0
    returned: int = 0
    files: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Make the table, load it, and commit and read as the cell says."""
        cell, source = self.cell, RowSource(self.cell.profile)
        base = source.base()
        creation: Mapping[str, Any] = cell.choice.creation
        ring = {key: value for key, value in cell.options.items() if key.startswith("hoodie.index.bucket.")}
        made = {**creation, "properties": {**creation.get("properties", {}), **ring}} if ring else creation
        table = create_table(
            str(self.folder),
            schema=base.schema,
            record_key=KEY,
            partition_by=PARTITION,
            ordering=ORDERING,
            table_version=9 if cell.choice.index == "partitioned_record" else 8,
            options=self.options,
            **made,
        )
        self.load(table, base)
        del base
        for number in range(1, cell.commits + 1):
            batch = source.batch(number)
            self.given += batch.num_bytes
            gc.collect()
            self.commit(batch)
            self.serve(number)
            rows = self.read()
            self.returned += rows.nbytes
            total = pc.sum(rows[ORDERING]).as_py() or 0
            if (rows.num_rows, total) != (source.expected_rows, source.expected_total):
                raise InternalError(
                    f"{cell.name}: {rows.num_rows:,} rows after {number} commits, expected {source.expected_rows:,}"
                )

    @property
    def options(self) -> dict[str, Any]:
        """Settings of every handle; services are called by name, so that they are measured apart."""
        choice = {key: value for key, value in self.cell.choice.settings.items() if ".inline" not in key}
        more = {key: value for key, value in self.cell.options.items() if not key.startswith("hoodie.index.bucket.")}
        return {**_NOT_DURABLE, **choice, **more}

    def open(self) -> Table:
        """Open the table anew, as a process that begins does."""
        client = TableClient(open_store(str(self.folder)), self.options, metadata_listing=ListingByMetadata())
        return Table(client)

    def load(self, table: Table, base: pa.Table) -> None:
        table.bulk_insert(base)

    def commit(self, batch: BatchOfRows) -> None:
        raise NotImplementedError

    def write(self, table: Table, batch: BatchOfRows) -> None:
        """Upsert and delete a batch."""
        done = [table.upsert(batch.rows)]
        if batch.deletes.num_rows:
            done.append(table.delete(batch.deletes))
        self.files.append(sum(len(each.files) for each in done))

    def serve(self, number: int) -> None:
        """Compact when the choice says so."""
        choice = self.cell.choice
        if choice.table_type == "mor" and choice.compact_after and number % choice.compact_after == 0:
            self.service(lambda table: table.compact())
        if self.cell.fold_after and number % self.cell.fold_after == 0:
            self.service(lambda table: table.compact(log=True))

    def service(self, work: Any) -> None:
        raise NotImplementedError

    def read(self) -> pa.Table:
        raise NotImplementedError


@dataclass
class _TimedRun(_Run):
    """Measures seconds and memory, on the plain store."""

    loaded: Seconds = (0.0, 0.0)
    writes: list[Seconds] = field(default_factory=list)
    services: list[Seconds] = field(default_factory=list)
    reads: list[Seconds] = field(default_factory=list)
    look_ups: list[Seconds] = field(default_factory=list)
    rises: list[int] = field(default_factory=list)
    behind: list[int] = field(default_factory=list)

    def load(self, table: Table, base: pa.Table) -> None:
        _, self.loaded = timed(lambda: table.bulk_insert(base))

    def commit(self, batch: BatchOfRows) -> None:
        if self.cell.counted:
            self._look_up(batch)
        table = self.open()
        forget_peak()
        before = resident_memory()
        _, seconds = timed(lambda: self.write(table, batch))
        self.writes.append(seconds)
        peak = peak_memory()
        if before is not None and peak is not None:
            self.rises.append(max(0, peak - before))

    def _look_up(self, batch: BatchOfRows) -> None:
        """Look the batch's keys up without writing."""
        keys = batch.rows.select([KEY, PARTITION])
        table = self.open()
        _, seconds = timed(lambda: table.index.explain(keys))
        self.look_ups.append(seconds)

    def service(self, work: Any) -> None:
        table = self.open()
        _, seconds = timed(lambda: work(table))
        self.services.append(seconds)

    def read(self) -> pa.Table:
        if self.cell.counted and self.cell.choice.table_type == "mor":
            self.behind.append(_commits_behind(self.open()))
        table = self.open()
        rows, seconds = timed(table.read)
        self.reads.append(seconds)
        return rows

    def figures(self) -> dict[str, Any]:
        """Run and return the figures; seconds as pairs of clock and processor."""
        self.run()
        return {
            "load_seconds": _rounded([self.loaded])[0],
            "write_seconds": _rounded(self.writes),
            "service_seconds": _rounded(self.services),
            "read_seconds": _rounded(self.reads),
            "look_up_seconds": _rounded(self.look_ups),
            "files_touched": round(mean(self.files), 2),
            "memory_bytes": max(self.rises, default=None),
            "commits_behind": round(mean(self.behind), 2) if self.behind else 0,
            "file_groups": len(self.open().file_groups()),
        }


@dataclass
class _CountedRun(_Run):
    """Counts the bytes that the store moves; its seconds are not taken."""

    written: dict[str, int] = field(default_factory=dict)
    moved: dict[str, int] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    metadata: int = 0
    _last: CountingStore | None = None

    def open(self) -> Table:
        self._last = CountingStore(open_store(str(self.folder)))
        return Table(TableClient(self._last, self.options, metadata_listing=ListingByMetadata()))

    def _count(self, phase: str) -> None:
        if self._last is None:
            return
        counts: Counts = self._last.statistics()
        self.written[phase] = self.written.get(phase, 0) + counts.bytes_written
        self.moved[phase] = self.moved.get(phase, 0) + counts.bytes_read
        self.requests[phase] = self.requests.get(phase, 0) + sum(counts.by_kind.values())
        self.metadata += sum(
            access.size
            for access in self._last.log
            if "put" in access.kind and access.name.startswith(".hoodie/metadata/")
        )

    def commit(self, batch: BatchOfRows) -> None:
        self.write(self.open(), batch)
        self._count("write")

    def service(self, work: Any) -> None:
        work(self.open())
        self._count("service")

    def read(self) -> pa.Table:
        rows = self.open().read()
        self._count("read")
        return rows

    def figures(self) -> dict[str, Any]:
        """Run and return the figures."""
        self.run()
        store = open_store(str(self.folder))
        stored = sum(each.size for each in store.list())
        newest = sum(each.size_bytes for each in self.open().file_groups())
        written = self.written.get("write", 0) + self.written.get("service", 0)
        return {
            "bytes_given": self.given,
            "bytes_returned": self.returned,
            "bytes_written": self.written,
            "bytes_read": self.moved,
            "requests": self.requests,
            "metadata_bytes": self.metadata,
            "space_bytes": stored,
            "newest_bytes": newest,
            "write_amplification": round(written / max(1, self.given), 4),
            "read_amplification": round(self.moved.get("read", 0) / max(1, self.returned), 4),
        }


def _commits_behind(table: Table) -> int:
    """Return how many deltacommits a read-optimised query lacks rows of, where that is most."""
    oldest = min((part.oldest for part in table.stats().backlog if part.oldest), default=None)
    if oldest is None:
        return 0
    return sum(entry.action == "deltacommit" and entry.time >= oldest for entry in table.timeline.entries)


def _rounded(seconds: list[Seconds]) -> list[list[float]]:
    return [[round(wall, 6), round(processor, 6)] for wall, processor in seconds]


def seconds_per_commit(figures: Mapping[str, Any], reads_per_commit: float, clock: int = 0) -> dict[str, float]:
    """Return the seconds that a commit costs, by what they are spent on; ``total`` is their sum.

    Args:
        figures: of a cell of the kind ``"choice"``.
        reads_per_commit: full reads between two commits.
        clock: 0: by the clock; 1: of the processor.

    Example:
        >>> figures = {"write_seconds": [[1.0, 1.0]] * 2, "service_seconds": [[1.0, 1.0]], "read_seconds": [[0.5, 0.5]] * 2}
        >>> seconds_per_commit(figures, 2.0)
        {'write': 1.0, 'service': 0.5, 'read': 1.0, 'total': 2.5}
    """
    commits = len(figures["write_seconds"])
    # The median of the commits: one that another process disturbs does not count.
    write = median(each[clock] for each in figures["write_seconds"])
    service = sum(each[clock] for each in figures["service_seconds"]) / commits
    read = reads_per_commit * sum(each[clock] for each in figures["read_seconds"]) / commits
    return {"write": write, "service": service, "read": read, "total": write + service + read}
