"""Measures one cell in this process and returns what it cost; run as a program, it reads the cell and prints its costs as JSON.

Every cell compares the table with the rows that it must hold; :class:`RowSource` makes these after the cell's profile. A
clustering is measured by what the filters of readers read before and after it, a bloom filter on its own: seconds to build and
to ask, false positives and bytes of lakefmt's filters and of two yardsticks. Memory is that of Linux' ``/proc``, None elsewhere.
"""

from __future__ import annotations

import gc
import io
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from statistics import mean, median
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakefmt._core.advice.profile import TableProfile
from lakefmt._core.bench.cells import BenchCell
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.formats.bloom_filter import BloomFilter
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.storage.open import open_store
from lakefmt._core.table import Table, create_table, open_table
from lakefmt.errors import InternalError, InvalidInputError
from lakefmt.testing.stores import CountingStore, Counts

__all__ = [
    "FILTER_RANGE",
    "KEY",
    "ORDERING",
    "PARTITION",
    "BatchOfRows",
    "RowSource",
    "Seconds",
    "answer_cell",
    "forget_peak",
    "measure_cell",
    "measure_clustering",
    "measure_filter",
    "peak_memory",
    "resident_memory",
    "timed",
]


KEY, PARTITION, ORDERING = "id", "part", "ts"
#: Values of the columns ``n`` and ``m``, which filters name, are from 0 to this.
FILTER_RANGE: Final = 1_000_000
_MOST_DOUBLES: Final = 200
#: Bytes of a row that are not of its key and its doubles: meta columns, partition, ordering, ``n``, ``m``.
_FIXED_ROW_BYTES: Final = 40
_Numbers = np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T")
#: Seconds by the clock, and of the processor over all threads.
Seconds = tuple[float, float]
#: The number of files to aim for; a filtered read has to have files that it can skip.
_CLUSTERED_FILES = 32
_LEAST_FILE_BYTES = 64 << 10
#: Keys of one filter: as many as a base file has, not a table.
_MOST_FILTER_KEYS = 200_000
#: The yardstick takes Python texts one by one.
_MOST_PYBLOOM_KEYS = 20_000
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
class _CellRun:
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
        arguments = {**creation, "properties": {**creation.get("properties", {}), **ring}} if ring else creation
        table = create_table(
            str(self.folder),
            schema=base.schema,
            record_key=KEY,
            partition_by=PARTITION,
            ordering=ORDERING,
            table_version=9 if cell.choice.index == "partitioned_record" else 8,
            options=self.options,
            **arguments,
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
    def options(self) -> dict[str, object]:
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
        results = [table.upsert(batch.rows)]
        if batch.deletes.num_rows:
            results.append(table.delete(batch.deletes))
        self.files.append(sum(len(each.files) for each in results))

    def serve(self, number: int) -> None:
        """Compact when the choice says so."""
        choice = self.cell.choice
        if choice.table_type == "mor" and choice.compact_after and number % choice.compact_after == 0:
            self.service(lambda table: table.compact())
        if self.cell.fold_after and number % self.cell.fold_after == 0:
            self.service(lambda table: table.compact(log=True))

    def service(self, work: object) -> None:
        raise NotImplementedError

    def read(self) -> pa.Table:
        raise NotImplementedError


@dataclass
class _TimedRun(_CellRun):
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

    def figures(self) -> dict[str, object]:
        """Run and return the figures; seconds as pairs of clock and processor."""
        self.run()
        return {
            "load_seconds": _rounded_seconds([self.loaded])[0],
            "write_seconds": _rounded_seconds(self.writes),
            "service_seconds": _rounded_seconds(self.services),
            "read_seconds": _rounded_seconds(self.reads),
            "look_up_seconds": _rounded_seconds(self.look_ups),
            "files_touched": round(mean(self.files), 2),
            "memory_bytes": max(self.rises, default=None),
            "commits_behind": round(mean(self.behind), 2) if self.behind else 0,
            "file_groups": len(self.open().file_groups()),
        }


@dataclass
class _CountedRun(_CellRun):
    """Counts the bytes that the store moves; it measures no time."""

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

    def figures(self) -> dict[str, object]:
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


def _rounded_seconds(seconds: list[Seconds]) -> list[list[float]]:
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


# ---------------------------------------------------------------------------------------------------------- clusterings


def measure_clustering(cell: BenchCell, folder: Path) -> dict[str, object]:
    """Load a table in no order, read by filters, cluster it, and read by the same filters.

    Returns:
        ``read_before`` and ``read_after``, each with ``bytes``, ``files`` and ``seconds`` of a filter on the average,
        ``service_seconds`` and ``bytes_written`` of the clustering, ``rows``.

    Raises:
        InternalError: a filter returned other rows after the clustering.
    """
    choice, source = cell.choice, RowSource(cell.profile)
    base = source.base()
    size = max(_LEAST_FILE_BYTES, round(cell.profile.rows * cell.profile.row_bytes / _CLUSTERED_FILES))
    options = {
        "lakefmt.durability": "none",
        "hoodie.parquet.max.file.size": size,
        "hoodie.parquet.small.file.limit": 0,
        "hoodie.clustering.plan.strategy.target.file.max.bytes": size,
        "hoodie.clustering.plan.strategy.small.file.limit": 1 << 40,
    }
    path = str(folder)
    create_table(
        path, schema=base.schema, record_key=KEY, partition_by=PARTITION, ordering=ORDERING, options=options
    ).bulk_insert(base)
    filters = _clustering_filters(cell)
    before, rows_before = _read_by_filters(path, options, filters)
    store = CountingStore(open_store(path))
    table = Table(TableClient(store, options))
    clustering, seconds = timed(lambda: table.cluster(list(choice.cluster_by), order=choice.cluster_order))
    after, rows_after = _read_by_filters(path, options, filters)
    if rows_before != rows_after:
        raise InternalError(f"{cell.name}: filters returned {rows_after} rows after clustering, {rows_before} before")
    return {
        "read_before": before,
        "read_after": after,
        "service_seconds": [[round(each, 6) for each in seconds]],
        "bytes_written": {"service": store.statistics().bytes_written},
        "newest_bytes": sum(each.size_bytes for each in open_table(path).file_groups()),
        "rows": clustering.num_rows,
    }


def _clustering_filters(cell: BenchCell, count: int = 8) -> list[str]:
    """Return filters over ``n`` and ``m`` that keep the profile's share of the rows."""
    rng = np.random.default_rng(5)
    width = int(FILTER_RANGE * float(np.sqrt(cell.profile.filter_share)))
    lows = rng.integers(0, FILTER_RANGE - width + 1, (count, 2))
    return [f"n >= {low[0]} and n < {low[0] + width} and m >= {low[1]} and m < {low[1] + width}" for low in lows]


def _read_by_filters(path: str, options: dict[str, object], filters: list[str]) -> tuple[dict[str, object], list[int]]:
    rows, files, read, seconds = [], [], [], []
    for each in filters:
        store = CountingStore(open_store(path))
        table = Table(TableClient(store, options))
        result = table.read(filter=each)
        rows.append(result.num_rows)
        read.append(store.statistics().bytes_read)
        plain = open_table(path, options=options)
        _, took = timed(lambda: plain.read(filter=each))  # noqa: B023 - called at once
        seconds.append(took)
        files.append(table.explain(each).steps[-1].files)
    clock, processor = mean(each[0] for each in seconds), mean(each[1] for each in seconds)
    averages = {"bytes": round(mean(read)), "files": mean(files), "seconds": [round(clock, 6), round(processor, 6)]}
    return averages, rows


# ------------------------------------------------------------------------------------------- bloom filters on their own


def measure_filter(cell: BenchCell) -> dict[str, object]:
    """Build the filter that the cell names over keys of its profile and ask it for as many keys that it does not have.

    Returns:
        ``build_seconds``, ``ask_seconds`` (clock, processor), ``false_rate``, ``filter_bytes`` and ``keys``; ``missing``
        where a yardstick is not installed.

    Raises:
        InvalidInputError: there is no such filter.
    """
    filter_type, rate = cell.options.get("filter", ""), float(cell.options.get("fpp", "0.01"))
    count = min(cell.profile.rows, _MOST_FILTER_KEYS)
    if filter_type == "pybloom-live":
        count = min(count, _MOST_PYBLOOM_KEYS)
    keys = RowSource(cell.profile).base()[KEY].combine_chunks()
    stored = keys.slice(0, count // 2)
    absent = keys.slice(count // 2, count // 2)
    if not len(stored):
        raise InvalidInputError("a filter needs at least two rows")
    if filter_type == "pybloom-live":
        return _measure_pybloom(stored, absent, rate)
    if filter_type == "parquet":
        return _measure_parquet_filter(stored, absent, rate)
    if filter_type not in ("SIMPLE", "DYNAMIC_V0"):
        raise InvalidInputError(f"unknown filter {filter_type!r}: expected SIMPLE, DYNAMIC_V0, pybloom-live or parquet")
    return _measure_own_filter(stored, absent, rate, filter_type, cell.options.get("entries", "all"))


def _measure_own_filter(
    stored: pa.Array, absent: pa.Array, rate: float, filter_type: str, entries: str
) -> dict[str, object]:
    sized = max(1, len(stored) // 2 if entries == "half" else len(stored))

    def build() -> BloomFilter:
        new_filter = (
            BloomFilter.simple(sized, rate) if filter_type == "SIMPLE" else BloomFilter.sized(sized, rate, len(stored))
        )
        new_filter.add(stored)
        return new_filter

    bloom_filter, build_seconds = timed(build)
    passed, ask_seconds = timed(lambda: bloom_filter.contains(absent))
    if not bool(np.all(bloom_filter.contains(stored))):
        raise InvalidInputError("a filter denied a key that it has")
    return _filter_figures(build_seconds, ask_seconds, float(np.mean(passed)), len(bloom_filter.encode()), len(stored))


def _measure_pybloom(stored: pa.Array, absent: pa.Array, rate: float) -> dict[str, object]:
    try:
        from pybloom_live import BloomFilter as Yardstick  # type: ignore[import-untyped]
    except ImportError:
        return {"missing": "pybloom-live is not installed: pip install 'lakefmt[bench]'"}
    inside, outside = stored.to_pylist(), absent.to_pylist()

    def build() -> Any:
        new_filter = Yardstick(len(inside), rate)
        for key in inside:
            new_filter.add(key)
        return new_filter

    yardstick, build_seconds = timed(build)
    passed, ask_seconds = timed(lambda: [key in yardstick for key in outside])
    return _filter_figures(build_seconds, ask_seconds, sum(passed) / len(passed), yardstick.num_bits // 8, len(inside))


def _measure_parquet_filter(stored: pa.Array, absent: pa.Array, rate: float) -> dict[str, object]:
    """Parquet's own filters: what they add to a file; Arrow writes them from release 24 on and does not offer to ask them."""
    table = pa.table({KEY: stored})

    def written(**more: object) -> int:
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="none", **more)
        return sink.tell()

    options = {"bloom_filter_options": {KEY: {"ndv": len(stored), "fpp": rate}}}
    try:
        size, build_seconds = timed(lambda: written(**options))
    except TypeError:
        return {"missing": "this Arrow does not write Parquet's filters"}
    plain, plain_seconds = timed(written)
    del absent
    took = (max(0.0, build_seconds[0] - plain_seconds[0]), max(0.0, build_seconds[1] - plain_seconds[1]))
    return _filter_figures(took, None, None, size - plain, len(stored))


def _filter_figures(
    build: tuple[float, float], ask: tuple[float, float] | None, rate: float | None, size: int, keys: int
) -> dict[str, object]:
    return {
        "build_seconds": [round(each, 6) for each in build],
        "ask_seconds": None if ask is None else [round(each, 6) for each in ask],
        "false_rate": rate,
        "filter_bytes": size,
        "keys": keys,
    }


# ------------------------------------------------------------------------------------------------- rows after a profile


@dataclass(frozen=True)
class BatchOfRows:
    """The input of one commit: rows to upsert, and keys to delete with their partitions."""

    rows: pa.Table
    deletes: pa.Table

    @property
    def num_bytes(self) -> int:
        """The bytes of the batch in Arrow."""
        return int(self.rows.nbytes + self.deletes.nbytes)


class RowSource:
    """Makes the rows of a profile; the same seed makes the same rows.

    It keeps which rows are stored and by which batch, so that what a table must hold is known without the table.

    Args:
        profile: what to imitate.
        seed: of the random numbers.

    Example:
        >>> source = RowSource(TableProfile(rows=100, batch_rows=10, update_share=0.5))
        >>> source.base().num_rows, source.batch(1).rows.num_rows, source.expected_rows
        (100, 10, 105)
    """

    def __init__(self, profile: TableProfile, seed: int = 1) -> None:
        self.profile = profile
        self._rng = np.random.default_rng(seed)
        rows, partitions = profile.rows, min(profile.partitions, max(1, profile.rows))
        numbers = np.arange(rows, dtype=np.int64)
        self.partitions = partitions
        self._partition_of: _Numbers = (
            numbers * partitions // max(1, rows) if profile.rising_keys else numbers % partitions
        )
        self._written: _Numbers = np.zeros(rows, np.int64)
        self._alive: _Numbers = np.ones(rows, bool)
        payload = (profile.row_bytes - min(profile.key_bytes, 64) - _FIXED_ROW_BYTES) / 8
        self._doubles = int(min(max(1, round(payload)), _MOST_DOUBLES))

    @property
    def expected_rows(self) -> int:
        """How many rows the table must hold now."""
        return int(self._alive.sum())

    @property
    def expected_total(self) -> int:
        """The sum of the column ``ts`` that the table must have now."""
        return int(self._written[self._alive].sum())

    def base(self) -> pa.Table:
        """Return the rows that the table begins with."""
        return self._table(np.arange(self.profile.rows), 0)

    def batch(self, number: int) -> BatchOfRows:
        """Return the rows of commit `number`, whose ordering values are this number.

        Args:
            number: from 1, rising.
        """
        updated_keys, new = [], []
        partition_order = self._rng.permutation(self.partitions - 1)
        spread, first = self.profile.spread, 0
        for count, rows in spread:
            # A table has no more partitions than rows, whatever the profile says.
            for _ in range(min(round(count), self.partitions - first)):
                partition = self.partitions - 1 if not first else int(partition_order[first - 1])
                first += 1
                updates = self._stored(partition, round(rows * self.profile.update_share))
                updated_keys.append(updates)
                new.append(np.full(max(0, round(rows) - len(updates)), partition))
        added = np.concatenate(new)
        numbers = len(self._written) + np.arange(len(added))
        self._partition_of = np.concatenate([self._partition_of, added])
        self._written = np.concatenate([self._written, np.zeros(len(added), np.int64)])
        self._alive = np.concatenate([self._alive, np.ones(len(added), bool)])
        written = np.concatenate([*updated_keys, numbers])
        self._rng.shuffle(written)
        self._written[written] = number
        rows_of_batch = self._table(written, number)
        return BatchOfRows(rows_of_batch, self._deletes())

    def _stored(self, partition: int, count: int) -> _Numbers:
        stored = np.flatnonzero(self._alive & (self._partition_of == partition))
        return self._rng.choice(stored, min(count, len(stored)), replace=False)

    def _deletes(self) -> pa.Table:
        count = round(self.profile.batch_rows * self.profile.delete_share)
        stored = np.flatnonzero(self._alive)
        numbers = self._rng.choice(stored, min(count, len(stored)), replace=False)
        self._alive[numbers] = False
        return pa.table({KEY: self._keys(numbers), PARTITION: self._partition_names(numbers)})

    def _table(self, numbers: _Numbers, ts: int) -> pa.Table:
        rows = len(numbers)
        columns: dict[str, object] = {
            KEY: self._keys(numbers),
            PARTITION: self._partition_names(numbers),
            ORDERING: pa.array(np.full(rows, ts, np.int64)),
            "n": pa.array(self._rng.integers(0, FILTER_RANGE, rows)),
            "m": pa.array(self._rng.integers(0, FILTER_RANGE, rows)),
        }
        columns |= {f"f{number}": pa.array(self._rng.random(rows)) for number in range(self._doubles)}
        return pa.table(columns)

    def _partition_names(self, numbers: _Numbers) -> pa.Array:
        names = pa.array([f"p{number:05d}" for number in range(self.partitions)])
        return names.take(pa.array(self._partition_of[numbers]))

    def _keys(self, numbers: _Numbers) -> pa.Array:
        length = max(min(self.profile.key_bytes, 64), 10)
        if self.profile.rising_keys:
            powers = 10 ** np.arange(min(length, 18) - 1, -1, -1, dtype=np.int64)
            digits = (numbers.astype(np.int64)[:, None] // powers % 10).astype(np.uint8) + ord("0")
            digits = np.pad(digits, ((0, 0), (length - digits.shape[1], 0)), constant_values=ord("0"))
        else:
            words = [_mixed_bits(numbers.astype(np.uint64) + np.uint64(part << 40)) for part in range(-(-length // 16))]
            shifts = np.arange(60, -4, -4, dtype=np.uint64)
            hexes = np.concatenate([(word[:, None] >> shifts & np.uint64(15)) for word in words], axis=1)
            digits = np.frombuffer(b"0123456789abcdef", np.uint8)[hexes[:, :length].astype(np.intp)]
        offsets = np.arange(len(numbers) + 1, dtype=np.int32) * length
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digits).reshape(-1))]
        return pa.Array.from_buffers(pa.string(), len(numbers), buffers)


def _mixed_bits(values: _Numbers) -> _Numbers:
    """Return 64 bits for each number, different for different numbers (the finalizer of SplitMix64)."""
    with np.errstate(over="ignore"):
        values = (values + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: _Numbers = values ^ (values >> np.uint64(31))
    return mixed


# --------------------------------------------------------------------------------------------------- seconds and memory


def timed(work: Callable[[], T]) -> tuple[T, Seconds]:
    """Return the result of `work` with its seconds by the clock and of the processor."""
    processor, begin = time.process_time(), time.perf_counter()
    result = work()
    return result, (time.perf_counter() - begin, time.process_time() - processor)


def resident_memory() -> int | None:
    """Return the bytes that are resident now."""
    return _memory_field("VmRSS")


def peak_memory() -> int | None:
    """Return the most bytes that were resident since the start or the last :func:`forget_peak`."""
    return _memory_field("VmHWM")


def forget_peak() -> bool:
    """Begin the peak anew; return whether the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    except OSError:
        return False
    return True


def _memory_field(name: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text("ascii", errors="replace").splitlines()
    except OSError:
        return None
    numbers = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(numbers[0]) * 1024 if numbers else None


def answer_cell() -> int:
    """Measure the cell that standard input names, in the folder that is the argument; the figures go to standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like an answer
    figures = measure_cell(BenchCell.from_json(json.loads(sys.stdin.read())), Path(sys.argv[1]))
    answers.write(json.dumps(figures))
    answers.close()
    return 0


if __name__ == "__main__":
    sys.exit(answer_cell())
