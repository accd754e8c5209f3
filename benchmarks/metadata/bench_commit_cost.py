"""What the metadata table adds to a commit of 100 rows, over many commits.

Usage::

    python -m benchmarks.metadata.bench_commit_cost [--commits 500] [--kinds none,statistics,record-index] [--works append]

The works are ``append`` (new keys, a new file per commit) and ``upsert`` (stored keys of a merge-on-read table, a log per
commit). The tables of all kinds take turns commit by commit, so that a busy machine disturbs them alike. "warm" writes
through one handle, "cold" opens the table anew for each commit, with nothing remembered. Small-file filling is off and
durability "none". Milliseconds by the clock and of the processor: the median of all commits, of the first and of the last
hundred, and the mean, in which the compactions of the metadata table are. At the end the rows are counted, and what the
metadata table lists is compared with the storage and the keys.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

import numpy as np
import pyarrow as pa

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.index_readers import scan_locations
from lakefmt._core.metadata.listing import MetadataListing, open_metadata_table

ROWS = 100
STORED = 10_000
OPTIONS: dict[str, object] = {
    "lakefmt.durability": "none",
    "hoodie.parquet.small.file.limit": 0,
    "hoodie.compact.inline": False,
    "hoodie.metadata.enable": False,
}
STATISTICS: dict[str, object] = {"hoodie.metadata.enable": True, "hoodie.metadata.index.column.stats.enable": True}
KINDS: dict[str, dict[str, object]] = {
    "none": {},
    "statistics": STATISTICS,
    "record-index": {**STATISTICS, "hoodie.metadata.global.record.level.index.enable": True},
}


@dataclass
class Taken:
    """Milliseconds of the commits of one table, by the clock and of the processor."""

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def rows(numbers: np.ndarray, order: int) -> pa.Table:
    """Rows with these keys, in one partition."""
    texts = pa.array(numbers).cast(pa.string())
    rng = np.random.default_rng(order)
    count = len(numbers)
    return pa.table(
        {
            "uuid": pa.compute.binary_join_element_wise(pa.compute.utf8_lpad(texts, 12, "0"), "-0000-0000-key", ""),
            "day": pa.array(["2026-01-01"]).take(pa.array(np.zeros(count, np.int64))),
            "ts": pa.array(np.full(count, order)),
            **{name: pa.array(rng.random(count)) for name in ("x", "y", "z")},
            **{name: pa.array(rng.integers(0, 1000, count)) for name in ("a", "b", "c")},
            "s": pa.array(["a text", "another"]).take(pa.array(rng.integers(0, 2, count))),
        }
    )


def make(path: Path, kind: str, work: str) -> lakefmt.Table:
    """Make a table; an upserted one has rows."""
    options = OPTIONS | KINDS[kind]
    first = rows(np.arange(STORED), 0)
    table_type = "mor" if work == "upsert" else "cow"
    table = lakefmt.create_table(
        str(path),
        data=first,
        record_key="uuid",
        partition_by="day",
        ordering="ts",
        table_type=table_type,
        options=options,
    )
    if work == "upsert":
        table.bulk_insert(first)
    return table


def batch(work: str, number: int) -> pa.Table:
    if work == "append":
        return rows(np.arange(number * ROWS, (number + 1) * ROWS), number)
    return rows(np.random.default_rng(number).choice(STORED, ROWS, replace=False), number)


def write(table: lakefmt.Table, work: str, data: pa.Table) -> None:
    (table.insert if work == "append" else table.upsert)(data)


def measure(folder: Path, kinds: Sequence[str], work: str, commits: int, *, warm: bool) -> dict[str, Taken]:
    """Write the same commits to a table of each kind, in turn; check the tables."""
    tables = {kind: make(folder / kind, kind, work) for kind in kinds}
    taken = {kind: Taken() for kind in kinds}
    for number in range(commits):
        data = batch(work, number)
        for kind, table in tables.items():
            begin, used = time.perf_counter(), time.process_time()
            used_table = table if warm else lakefmt.open_table(str(folder / kind), options=OPTIONS | KINDS[kind])
            write(used_table, work, data)
            taken[kind].clock.append(1e3 * (time.perf_counter() - begin))
            taken[kind].processor.append(1e3 * (time.process_time() - used))
    for kind, table in tables.items():
        check(table, kind, commits * ROWS if work == "append" else STORED)
    return taken


def check(table: lakefmt.Table, kind: str, count: int) -> None:
    """Raise where the table has other rows, or its metadata table says something else than the storage."""
    found = table.read(columns=["uuid"]).num_rows
    if found != count:
        raise SystemExit(f"{kind}: {found} rows, where {count} were written")
    client = TableClient(table.client.store)
    config = client.load_config()
    metadata = open_metadata_table(client, config)
    if (metadata is None) != (kind == "none"):
        raise SystemExit(f"{kind}: the metadata table is {'missing' if metadata is None else 'there'}")
    if metadata is None:
        return
    storage = client.storage_listing(config)
    listed = MetadataListing(client, lambda: metadata, storage)
    if [sorted(file.path for file in files) for files in listed.files(None)] != [
        sorted(file.path for file in files) for files in storage.files(None)
    ]:
        raise SystemExit(f"{kind}: the metadata table lists other files than the storage")
    if kind == "record-index" and len(scan_locations(metadata)["key"].unique()) != count:
        raise SystemExit(f"{kind}: the record index has other keys than the table")


def shown(label: str, values: Sequence[float]) -> str:
    part = min(100, max(1, len(values) // 2))
    figures = (median(values), median(values[:part]), median(values[-part:]), mean(values))
    return f"{label:32}" + "".join(f"{one:9.1f}" for one in figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=500)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--works", default="append,upsert")
    options = parser.parse_args()
    print(f"{'milliseconds of a commit':32}{'median':>9}{'first':>9}{'last':>9}{'mean':>9}")
    for work in options.works.split(","):
        for warm in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                found = measure(Path(folder), options.kinds.split(","), work, options.commits, warm=warm)
            for kind, taken in found.items():
                label = f"{work}, {kind}, {'warm' if warm else 'cold'}"
                print(shown(label, taken.clock))
                print(shown("  of the processor", taken.processor))


if __name__ == "__main__":
    main()
