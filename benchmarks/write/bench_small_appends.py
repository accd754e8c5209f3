"""Many appends of 100 rows with default settings: what one costs, what is written again, how many files there are.

Usage::

    python -m benchmarks.write.bench_small_appends [--commits 1000] [--ways tiers,fill] [--durability none]

The rows of bench_commit_cost go into one partition of a copy-on-write table through one handle. "tiers" is the default of
``lakefmt.write.small.files``, "fill" is Hudi's way. Milliseconds by the clock and of the processor: the median of the
first and of the last fifth, the mean of all (merges, cleans and archiving in it), and the 99th percentile. Bytes are those
of data files, written and kept; files are the most that a partition had after a commit. All rows are counted at the end.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import lakefmt
from benchmarks.metadata.bench_commit_cost import ROWS, batch, rows


@dataclass
class Appends:
    """What the appends of one table took."""

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    written: int = 0
    kept: int = 0
    most_files: int = 0


def measure(folder: Path, way: str, commits: int, durability: str) -> Appends:
    """Append to a new table; check its rows."""
    options: dict[str, object] = {"lakefmt.durability": durability, "lakefmt.write.small.files": way}
    table = lakefmt.create_table(
        str(folder), data=rows(np.arange(1), 0), record_key="uuid", partition_by="day", ordering="ts", options=options
    )
    taken, seen = Appends(), set[str]()
    for number in range(commits):
        data = batch("append", number)
        begin, used = time.perf_counter(), time.process_time()
        table.insert(data)
        taken.clock.append(1e3 * (time.perf_counter() - begin))
        taken.processor.append(1e3 * (time.process_time() - used))
        present = {path.name: path.stat().st_size for path in folder.glob("[!.]*/*.parquet")}
        taken.written += sum(size for name, size in present.items() if name not in seen)
        seen |= present.keys()
        taken.most_files = max(taken.most_files, len(table.file_groups()))
    taken.kept = sum(each.base.size for each in table.file_groups() if each.base is not None)
    found = len(table.read(columns=["uuid"])["uuid"].unique())
    if found != commits * ROWS:
        raise SystemExit(f"{way}: {found} keys, where {commits * ROWS} were written")
    return taken


def fewest_rewrites(commits: int, files: int) -> float:
    """Return how often a row is rewritten on average by the best way of merging that leaves at most so many files.

    Each commit opens one file of equal size and may merge the newest ones. The oldest file is made last by one of the
    commits, of everything there is then; the later commits have one file less.
    """
    least = np.full((files + 1, commits + 1), np.inf)
    least[:, 0] = 0
    for most in range(1, files + 1):
        one_file = np.full(commits + 1, np.inf)
        for count in range(1, commits + 1):
            one_file[count] = 0 if count == 1 else count + least[most, count - 1]
            made_last = np.arange(1, count + 1)
            least[most, count] = (one_file[made_last] + least[most - 1, count - made_last]).min()
    return float(least[files, commits]) / commits


def shown(values: list[float]) -> str:
    fifth = max(1, len(values) // 5)
    figures = (*(float(np.median(part)) for part in (values[:fifth], values[-fifth:])), float(np.mean(values)))
    return "".join(f"{one:9.1f}" for one in (*figures, float(np.percentile(values, 99))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--ways", default="tiers,fill")
    parser.add_argument("--durability", default="none", choices=("none", "fsync"))
    options = parser.parse_args()
    print(f"{'milliseconds of an append':26}{'first':>9}{'last':>9}{'mean':>9}{'99 %':>9}")
    for way in options.ways.split(","):
        with tempfile.TemporaryDirectory() as folder:
            taken = measure(Path(folder) / "t", way, options.commits, options.durability)
        print(f"{way:26}{shown(taken.clock)}")
        print(f"{'  of the processor':26}{shown(taken.processor)}")
        ratio = taken.written / taken.kept
        print(
            f"  {taken.written:,} bytes written, {taken.kept:,} kept: {ratio:.1f}; most files {taken.most_files}",
            flush=True,
        )
    print(f"rewrites of a row that 16 files need at least: {fewest_rewrites(options.commits, 16):.2f}")


if __name__ == "__main__":
    main()
