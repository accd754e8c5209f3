"""Measure files as a source: ``python -m benchmarks.ingest.bench_files [--rows N] [--files N]``.

* Rows per second of each kind of file into a new table (bulk insert, and upsert), beside DuckDB's bare read of the same file into Arrow, in turns.
* A folder of 100,000 files: the time to list and plan, and the largest resident size of a process that does nothing else.
* A round with nothing new, in a warm process: the median of a hundred.

Median of some runs and their spread; the machine is named.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.orc as orc
import pyarrow.parquet as pq

from benchmarks.harness.machine import describe
from lakefmt._core.ingest.options import resolve_table_job
from lakefmt._core.ingest.run import Ingester
from lakefmt.ingest import run

RUNS = 3
_PLAN = """
import sys, time
from lakefmt._core.ingest.files import FileSource
before = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
begun = time.perf_counter()
source = FileSource(sys.argv[1], min_age=0)
planned = source.plan(None, None)
first = time.perf_counter() - begun
begun = time.perf_counter()
assert source.plan(planned.checkpoint, None) is None
again = time.perf_counter() - begun
print(len(planned.files), round(first, 3), round(again, 3), before[0].split()[1], [line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1])
"""


def rows_of(count: int) -> pa.Table:
    numbers = pa.array(range(count), pa.int64())
    return pa.table(
        {
            "id": numbers.cast(pa.string()),
            "customer": pa.array([n % 9973 for n in range(count)], pa.int64()),
            "amount": pa.array([n % 1000 / 7 for n in range(count)], pa.float64()),
            "note": pa.array([f"note number {n}" for n in range(count)]),
        }
    )


def _json(rows: pa.Table, path: str) -> None:
    duckdb.execute(f"COPY (SELECT * FROM rows) TO '{path}' (FORMAT json)")


def _avro(rows: pa.Table, path: str) -> None:
    import fastavro

    fields = [("id", "string"), ("customer", "long"), ("amount", "double"), ("note", "string")]
    schema = {"type": "record", "name": "r", "fields": [{"name": n, "type": ["null", t]} for n, t in fields]}
    with Path(path).open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), rows.to_pylist(), codec="deflate")


KINDS: dict[str, tuple[Callable[[pa.Table, str], object], str | None]] = {
    "parquet": (pq.write_table, "read_parquet('{}')"),
    "csv": (csv.write_csv, "read_csv('{}')"),
    "jsonl": (_json, "read_json('{}')"),
    "orc": (orc.write_table, None),
    "avro": (_avro, None),
}


def seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def told(values: list[float], count: int) -> str:
    rates = sorted(count / value for value in values)
    return f"{statistics.median(rates):,.0f} rows/s ({rates[0]:,.0f}–{rates[-1]:,.0f})"


def measure_kinds(base: Path, count: int) -> None:
    rows = rows_of(count)
    for kind, (write, read) in KINDS.items():
        folder = base / kind
        folder.mkdir()
        write(rows, str(folder / f"a.{kind}"))
        result: dict[str, list[float]] = {"bulk_insert": [], "upsert": [], "DuckDB": []}
        for attempt in range(RUNS):
            for operation in ("bulk_insert", "upsert"):
                table = base / f"t-{kind}-{operation}-{attempt}"
                job = {"source": str(folder), "table": str(table), "key": "id", "operation": operation, "min_age": 0}
                result[operation].append(seconds(lambda job=job: run(job)))
            if read is not None:
                sql = f"SELECT * FROM {read.format(folder / f'a.{kind}')}"
                result["DuckDB"].append(seconds(lambda sql=sql: duckdb.sql(sql).to_arrow_table()))
        told_all = ", ".join(f"{name} {told(values, count)}" for name, values in result.items() if values)
        print(f"{kind}, {count:,} rows, {(folder / f'a.{kind}').stat().st_size:,} bytes: {told_all}")


def measure_listing(base: Path, count: int) -> None:
    folder = base / "many"
    for number in range(count):
        part = folder / f"p{number // 10_000}"
        if number % 10_000 == 0:
            part.mkdir(parents=True)
        (part / f"f{number}.jsonl").write_bytes(b'{"id":1}\n')
    done = subprocess.run([sys.executable, "-c", _PLAN, str(folder)], capture_output=True, text=True, check=True)
    files, first, again, before, after = done.stdout.split()
    grown = (int(after) - int(before)) / 1024
    print(
        f"{int(files):,} files: planned in {first} s, again in {again} s (nothing new), {grown:.0f} MiB more than before"
    )


def measure_idle(base: Path) -> None:
    folder = base / "idle"
    folder.mkdir()
    for number in range(10):
        (folder / f"f{number}.jsonl").write_text(f'{{"id":"{number}"}}\n')
    layers = [("bench", {"source": str(folder), "table": str(base / "idle-t"), "key": "id", "min_age": 0})]
    ingester = Ingester([resolve_table_job(layers)[0]])
    ingester.run()
    times = sorted(seconds(ingester.run) * 1000 for _ in range(100))
    print(f"a round with nothing new: {statistics.median(times):.2f} ms ({times[0]:.2f}–{times[-1]:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=100_000)
    asked = parser.parse_args()
    print(describe(Path(tempfile.gettempdir())))
    with tempfile.TemporaryDirectory() as folder:
        measure_idle(Path(folder))
        measure_listing(Path(folder), asked.files)
        measure_kinds(Path(folder), asked.rows)


if __name__ == "__main__":
    main()
