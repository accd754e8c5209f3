"""What the disk alone takes for the files of a commit: as many small files, each in a directory of its own.

Usage::

    python -m benchmarks.storage.bench_durable_files [--files 2500] [--bytes 4000] [--threads 2] [--rounds 5]

Nothing of lakefmt runs. "each synced" writes a temporary file, syncs it, renames it, and syncs its directory, which is what makes a file of
a commit durable before the commit is; "synced at the end" writes and renames, and syncs the file system once. The ways take turns;
seconds by the clock, median, least and most.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.harness.machine import describe


def store(data: bytes, folder: Path, *, each: bool) -> None:
    """Store one file; `each`: durably."""
    temporary, name = folder / "file.tmp", folder / "file"
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.write(descriptor, data)
    if each:
        os.fsync(descriptor)
    os.close(descriptor)
    temporary.rename(name)
    if each:
        directory = os.open(folder, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)


def measure(folder: Path, files: int, data: bytes, threads: int, *, each: bool) -> float:
    """Return the seconds that as many files take, in directories that are there."""
    folders = [folder / f"partition={number}" for number in range(files)]
    for one_folder in folders:
        one_folder.mkdir(parents=True)
    os.sync()
    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(partial(store, data, each=each), folders))
    if not each:
        os.sync()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2500)
    parser.add_argument("--bytes", type=int, default=4000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    ways: dict[str, list[float]] = {"each synced": [], "synced at the end": []}
    with tempfile.TemporaryDirectory() as work:
        print(describe(Path(work)))
        for number in range(asked.rounds):
            for way, seconds in ways.items():
                folder = Path(work) / f"{number}-{way}"
                data = os.urandom(asked.bytes)
                seconds.append(measure(folder, asked.files, data, asked.threads, each=way == "each synced"))
    for way, seconds in ways.items():
        print(f"{asked.files:,} files, {way}: {median(seconds):.2f} s ({min(seconds):.2f}–{max(seconds):.2f})")


if __name__ == "__main__":
    main()
