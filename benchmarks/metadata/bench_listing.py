"""How long the files of a table take to list: through its metadata table, and on storage that takes 5 ms for each request.

Usage::

    python -m benchmarks.metadata.bench_listing [--files 10000] [--partitions 200] [--large 100000] [--repeat 5]

The files are one byte each; they are listed, not read. Storage is walked with as many threads as lakefmt takes, and with
16. A table of many files is then opened, and a read of one partition planned, on the local disk. Best of some runs, by
the clock and in processor seconds. Both listings are compared.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import lakefmt
from lakefmt._core.filegroups import listing as storage_listing
from lakefmt._core.filegroups.listing import FileListing
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.listing import ListingByMetadata, MetadataListing
from lakefmt._core.storage import LocalStore
from lakefmt._core.values import PartitionPath
from lakefmt.testing.stores import DelayStore

OPTIONS = {
    "lakefmt.durability": "none",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "false",
}
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string())])
REQUEST_SECONDS = 0.005


def make_table(root: Path, files: int, partitions: int) -> None:
    """Make a table of many files that one commit wrote, and its metadata table."""
    table = lakefmt.create_table(str(root), schema=SCHEMA, record_key="id", partition_by="part", options=OPTIONS)
    plain = {**OPTIONS, "hoodie.metadata.enable": "false"}
    instant = table.upsert(pa.table({"id": ["a"], "part": ["last"]}, SCHEMA), options=plain).instant
    metadata = (root / "part=last" / ".hoodie_partition_metadata").read_bytes()
    for number in range(partitions):
        directory = root / f"part={number:05d}"
        directory.mkdir()
        (directory / ".hoodie_partition_metadata").write_bytes(metadata)
        for at in range(files // partitions):
            name = f"{number:08x}-0000-4000-8000-{at:012x}-0_0-1-2_{instant}.parquet"
            (directory / name).write_bytes(b"x")
    table.upsert(pa.table({"id": ["b"], "part": ["last"]}, SCHEMA))


def seconds(run: Callable[[], object], repeat: int) -> str:
    """Return the seconds that a run takes by the clock, and those of the processor, as text."""
    clock = processor = float("inf")
    for _ in range(repeat):
        begin, used = time.perf_counter(), time.process_time()
        run()
        clock, processor = min(clock, time.perf_counter() - begin), min(processor, time.process_time() - used)
    return f"{clock:8.3f} s, processor {processor:8.3f} s"


def sizes(listing: FileListing) -> dict[str, int]:
    bases, logs = listing.files(None)
    return {file.path: file.size for file in (*bases, *logs)}


def far_client(root: Path) -> TableClient:
    store = DelayStore(LocalStore(root), time.sleep, lambda kind, name, size: REQUEST_SECONDS)
    return TableClient(store, {}, metadata_listing=ListingByMetadata())


def measure_far(root: Path, files: int, repeat: int) -> None:
    client = far_client(root)
    config = client.load_config()
    storage = client.storage_listing(config)
    if not isinstance(client.listing(config), MetadataListing) or sizes(client.listing(config)) != sizes(storage):
        raise SystemExit("the listings differ")
    print(f"{files:,} files, 5 ms for each request")
    print(f"  through the metadata table, for the first time {seconds(lambda: far_listing(root), repeat)}")
    print(
        f"  again                                         {seconds(lambda: client.listing(config).files(None), repeat)}"
    )
    for threads in (1, 8, 16):
        storage_listing._LISTING_THREADS = threads
        took = seconds(lambda: storage.files(None), 1 if threads == 1 else repeat)
        print(f"  storage with {threads:2} threads                        {took}")


def far_listing(root: Path) -> None:
    client = far_client(root)
    client.listing(client.load_config()).files(None)


def measure_plan(root: Path, files: int, repeat: int) -> None:
    def plan() -> int:
        return len(lakefmt.open_table(str(root)).snapshot().file_slices([PartitionPath("part=00007")]))

    if not plan():
        raise SystemExit("no files were planned")
    print(f"{files:,} files: open and plan a read of one partition {seconds(plan, repeat)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=200)
    parser.add_argument("--large", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_table(Path(folder) / "t", options.files, options.partitions)
        measure_far(Path(folder) / "t", options.files, options.repeat)
    with tempfile.TemporaryDirectory() as folder:
        make_table(Path(folder) / "t", options.large, 10 * options.partitions)
        measure_plan(Path(folder) / "t", options.large, options.repeat)


if __name__ == "__main__":
    main()
