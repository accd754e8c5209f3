"""One program with the names of pypaimon's builders, on lakefmt and on pypaimon, where that has the feature.

Usage::

    python -m benchmarks.streams.bench_builders [--peer .cache/bench/paimon/bin/python] [--appends 200] [--rows 500000] [--quick]

Each library runs in a process of its own, by turns, twice; the smaller figure counts. Appends of 100 rows to a table without order
and to a queue of 16 buckets; a large append to a queue, and its rows read split by split; an append to 300 partitions; what a stream
read by polling adds to the cost of a commit. Seconds of the processor, all threads, and on the wall. Both have to return the same
rows. ``--quick``: 60 appends, 100,000 rows, once. Without an environment that has pypaimon (``python tools/bench_env.py``) lakefmt
alone is measured.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema([("p", pa.string()), ("key", pa.int64()), ("n", pa.int64()), ("v", pa.float64())])
ROOT = Path(__file__).resolve().parents[2]


def rows(first: int, count: int, partitions: int = 1) -> pa.Table:
    """Return rows: numbers from `first` on."""
    numbers = range(first, first + count)
    columns = [[f"p{n % partitions:04d}" for n in numbers], [n % 997 for n in numbers], list(numbers)]
    return pa.table([*columns, [n * 0.5 for n in numbers]], schema=SCHEMA)


def commit(table: Any, data: pa.Table) -> None:
    """Append rows with the builders."""
    builder = table.new_batch_write_builder()
    writer, committer = builder.new_write(), builder.new_commit()
    writer.write_arrow(data)
    committer.commit(writer.prepare_commit())
    writer.close()
    committer.close()


def read(table: Any) -> tuple[int, int]:
    """Return how many rows the splits of a table have, and the sum of their numbers."""
    builder = table.new_read_builder()
    count = total = 0
    for split in builder.new_scan().plan().splits():
        part = builder.new_read().to_arrow([split])
        count += part.num_rows
        total += sum(part.column("n").to_pylist())
    return count, total


def program(module: str, folder: str, appends: int, many: int) -> dict[str, Any]:
    """Run the program with a library; return its seconds, and the rows that it read."""
    library = importlib.import_module(module)
    catalog = library.CatalogFactory.create({"warehouse": folder})
    catalog.create_database("db", True)
    got: dict[str, Any] = {}

    def make(name: str, partitioned: bool = False, **options: str) -> Any:
        keys = ["p"] if partitioned else None
        told = {name.replace("_", "-"): value for name, value in options.items()}
        schema = library.Schema.from_pyarrow_schema(SCHEMA, partition_keys=keys, options=told)
        catalog.create_table(f"db.{name}", schema, False)
        return catalog.get_table(f"db.{name}")

    def timed(name: str, work: Callable[[], Any], times: int = 1) -> Any:
        wall, own = time.perf_counter(), time.process_time()
        result = work()
        got[name] = [(time.process_time() - own) / times, (time.perf_counter() - wall) / times]
        return result

    small = [rows(number * 100, 100) for number in range(appends)]
    for name, options in (("plain", {"bucket": "-1"}), ("queue", {"bucket": "16", "bucket_key": "key"})):
        table = make(name, **options)
        commit(table, rows(10**6, 1))
        timed(f"append of 100 rows, {name}", lambda table=table: [commit(table, each) for each in small], appends)
        got[f"rows of {name}"] = read(table)
    table, data = make("large", bucket="16", bucket_key="key"), rows(0, many)
    timed(f"append of {many:,} rows to a queue", lambda: commit(table, data))
    got["rows of large"] = timed(f"read of {many:,} rows, split by split", lambda: read(table))
    table, data = make("wide", partitioned=True, bucket="-1"), rows(0, 3_000, 300)
    timed("append to 300 partitions", lambda: commit(table, data))
    got["rows of wide"] = read(table)
    return got


def run(python: str, module: str, appends: int, many: int) -> dict[str, Any]:
    """Run the program in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [
            python,
            "-m",
            "benchmarks.streams.bench_builders",
            "--child",
            module,
            folder,
            str(appends),
            str(many),
        ]
        told = subprocess.run(arguments, check=True, capture_output=True, text=True, cwd=ROOT)
    return json.loads(told.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, default=ROOT / ".cache/bench/paimon/bin/python")
    parser.add_argument("--appends", type=int, default=200)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child is not None:
        module, folder, appends, many = asked.child
        print(json.dumps(program(module, folder, int(appends), int(many))))
        return
    appends, many = (60, 100_000) if asked.quick else (asked.appends, asked.rows)
    runs: dict[str, list[dict[str, Any]]] = {"lakefmt": [], "pypaimon": []}
    for _ in range(1 if asked.quick else 2):
        runs["lakefmt"].append(run(sys.executable, "lakefmt.builders", appends, many))
        if asked.peer.exists():
            runs["pypaimon"].append(run(str(asked.peer), "pypaimon", appends, many))
    print(f"{'ms of the processor (on the wall)':44}{'lakefmt':>20}{'pypaimon':>20}")
    for name, value in runs["lakefmt"][0].items():
        if name.startswith("rows of"):
            if any(each[name] != value for each in (*runs["lakefmt"], *runs["pypaimon"])):
                raise SystemExit(f"{name}: the libraries differ")
            continue
        shown = ""
        for each in runs.values():
            best = [1e3 * min(one[name][place] for one in each) for place in (0, 1)] if each else []
            shown += f"{f'{best[0]:,.1f} ({best[1]:,.1f})' if best else '–':>20}"
        print(f"{name:44}{shown}")


if __name__ == "__main__":
    main()
