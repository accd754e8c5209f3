"""How long the record index of a metadata table takes to make, and to find keys; every key is checked.

Usage::

    python -m benchmarks.metadata.bench_lookup [--keys 5000000] [--lookups 100000] [--shards 10] [--repeat 5]

A table is loaded, then the record index is made from it, by one call. Half of the keys that are looked up are stored, at
random places. "cold" opens the table anew, with nothing remembered; "warm" looks up again. One key is looked up in the
index alone, and its row is read with a filter. Best of some runs, by the clock and of the processor. The files are
compressed, as Hudi writes them; benchmarks/formats/bench_hfile.py has the look-ups in files that are not.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.index_readers import lookup_locations, scan_locations
from lakefmt._core.metadata.listing import open_metadata_table
from lakefmt._core.metadata.reader import MetadataTable
from lakefmt._core.storage import LocalStore

PER_COMMIT = 500_000


@dataclass(frozen=True)
class Seconds:
    """The best of some runs, by the clock and of the processor."""

    clock: float
    processor: float

    def __str__(self) -> str:
        return f"{1e3 * self.clock:9.1f} ms, processor {1e3 * self.processor:9.1f} ms"


def keys(numbers: np.ndarray) -> pa.Array:
    """Keys of 36 characters without an order, the same ones for the same numbers."""
    mixed = (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
    head = pc.utf8_lpad(pa.array(mixed).cast(pa.string()), 20, "0")
    return pc.binary_join_element_wise(head, pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 15, "0"), "-")


def rows(begin: int, end: int) -> pa.Table:
    numbers = np.arange(begin, end)
    return pa.table({"uuid": keys(numbers), "v": pa.array(numbers)})


def best(run: Callable[[], object], repeat: int) -> Seconds:
    clock = processor = float("inf")
    for _ in range(repeat):
        begin, used = time.perf_counter(), time.process_time()
        run()
        clock, processor = min(clock, time.perf_counter() - begin), min(processor, time.process_time() - used)
    return Seconds(clock, processor)


def make(root: Path, count: int, shards: int) -> tuple[lakefmt.Table, Seconds]:
    """Load a table and make its record index; return what that took."""
    options: dict[str, object] = {
        "lakefmt.durability": "none",
        "hoodie.metadata.enable": True,
        "hoodie.metadata.index.column.stats.enable": False,
        "hoodie.metadata.global.record.level.index.min.filegroup.count": shards,
        "hoodie.metadata.global.record.level.index.max.filegroup.count": shards,
    }
    table = lakefmt.create_table(str(root), data=rows(0, 1), record_key="uuid", options=options)
    for begin in range(0, count, PER_COMMIT):
        table.bulk_insert(rows(begin, min(count, begin + PER_COMMIT)))
    return table, best(lambda: table.index.create("record_index"), 1)


def opened(root: Path) -> MetadataTable:
    """Return the metadata table with nothing remembered."""
    client = TableClient(LocalStore(root))
    table = open_metadata_table(client, client.load_config())
    if table is None:
        raise SystemExit("the table has no metadata table")
    return table


def check(root: Path, count: int) -> None:
    """Raise unless every key is in the record index, and once."""
    stored = scan_locations(opened(root))["key"]
    if len(stored) != count or len(pc.unique(stored)) != count:
        raise SystemExit(f"{len(stored)} keys in the index, {len(pc.unique(stored))} distinct, {count} in the table")


def measure(root: Path, count: int, lookups: int, repeat: int) -> dict[str, Seconds]:
    """Look up keys of a table; check how many were found."""
    rng = np.random.default_rng(5)
    present = rng.choice(count, min(count, lookups // 2), replace=False)
    asked = pa.concat_arrays([keys(present), keys(count + np.arange(lookups // 2))])
    one = keys(np.array([count // 3]))

    def look_up(table: MetadataTable, wanted: pa.Array, expected: int) -> None:
        found = lookup_locations(table, wanted).num_rows
        if found != expected:
            raise SystemExit(f"{found} keys were found, where {expected} are stored")

    def read_row() -> None:
        found = lakefmt.open_table(str(root)).read(filter=f"uuid = '{one[0].as_py()}'")
        if found["v"].to_pylist() != [count // 3]:
            raise SystemExit(f"another row was read: {found['v'].to_pylist()}")

    warm = opened(root)
    look_up(warm, one, 1)
    return {
        f"{lookups:,} keys, cold": best(lambda: look_up(opened(root), asked, len(present)), repeat),
        f"{lookups:,} keys, warm": best(lambda: look_up(warm, asked, len(present)), repeat),
        "one key, cold": best(lambda: look_up(opened(root), one, 1), repeat),
        "one key, warm": best(lambda: look_up(warm, one, 1), repeat),
        "one key and its row, table opened anew": best(read_row, repeat),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--lookups", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        _, made = make(root, options.keys, options.shards)
        print(f"{options.keys:,} keys: record index made in {made}", flush=True)
        check(root, options.keys)
        for what, taken in measure(root, options.keys, options.lookups, options.repeat).items():
            print(f"{what:40} {taken}", flush=True)


if __name__ == "__main__":
    main()
