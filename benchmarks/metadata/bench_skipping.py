"""How long a read with a selective filter on a sorted column takes, beside deltalake and DuckLake.

Usage::

    python -m benchmarks.metadata.bench_skipping [--rows 1000000] [--files 20] [--repeat 7] [--peers lakefmt,deltalake,ducklake]

Every peer loads the same rows in as many commits as there are files, sorted by a number, in a process and environment of
its own (tools/bench_env.py). Then the table is opened, and 0.1 % of the rows are read by a range of that number, and one row
by its key, which is in no order. Each figure is the best of some runs, by the clock and in processor seconds. lakefmt is
measured with and without data skipping, and on a table without a metadata table, which is the default on a local disk. The rows
are compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROOT = Path(__file__).resolve().parents[2]
PEERS = ("lakefmt", "deltalake", "ducklake")
OPTIONS = {
    "lakefmt.durability": "none",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.parquet.small.file.limit": "0",
}
Queries = dict[str, Callable[[], pa.Table]]


def batches(rows: int, files: int) -> Iterator[pa.Table]:
    """Yield the rows of each file, sorted by ``number``."""
    keys = np.random.default_rng(18).permutation(rows)
    for part in np.array_split(np.arange(rows), files):
        texts = pc.binary_join_element_wise("key-", pa.array(keys[part]).cast(pa.string()), "")
        columns = {"id": texts, "number": part, "value": part * 0.5, "text": pa.array(part % 1000).cast(pa.string())}
        yield pa.table(columns)


def bounds(rows: int) -> tuple[int, int]:
    """Return the range that is read: 0.1 % of the rows, inside of a file."""
    first = rows * 3 // 10 + rows // 100
    return first, first + max(1, rows // 1000)


def of_lakefmt(path: str, rows: int, files: int) -> Queries:
    """Load two tables of lakefmt, with a metadata table and as the defaults create one; return their queries."""
    import lakefmt

    kinds = {path: OPTIONS, f"{path}-default": {key: OPTIONS[key] for key in OPTIONS if ".metadata." not in key}}
    for place, options in kinds.items():
        data = batches(rows, files)
        first = next(data)
        table = lakefmt.create_table(place, schema=first.schema, record_key="id", options=options)
        table.bulk_insert(first)
        for more in data:
            table.bulk_insert(more)
    low, high = bounds(rows)
    span = [("number", ">=", low), ("number", "<", high)]
    key = [("id", "=", "key-7")]

    def read(query: list[Any], skipping: str = "true", place: str = path) -> pa.Table:
        return lakefmt.open_table(place, options={"hoodie.enable.data.skipping": skipping}).read(filter=query)

    return {
        "range": lambda: read(span),
        "key": lambda: read(key),
        "range without skipping": lambda: read(span, "false"),
        "key without skipping": lambda: read(key, "false"),
        "range, no metadata table": lambda: read(span, place=f"{path}-default"),
        "key, no metadata table": lambda: read(key, place=f"{path}-default"),
    }


def of_deltalake(path: str, rows: int, files: int) -> Queries:
    """Load a table of deltalake; return its queries."""
    from deltalake import DeltaTable, write_deltalake

    for data in batches(rows, files):
        write_deltalake(path, data, mode="append")
    low, high = bounds(rows)
    span = (pc.field("number") >= low) & (pc.field("number") < high)

    def read(query: pc.Expression) -> pa.Table:
        return DeltaTable(path).to_pyarrow_dataset().to_table(filter=query)

    return {"range": lambda: read(span), "key": lambda: read(pc.field("id") == "key-7")}


def of_ducklake(path: str, rows: int, files: int) -> Queries:
    """Load a table of DuckLake; return its queries."""
    import duckdb
    import duckdb_extension_ducklake

    package = Path(str(duckdb_extension_ducklake.__file__)).parent
    extension = next(package.glob("extensions/*/ducklake.duckdb_extension"))
    Path(path).mkdir()

    def opened() -> Any:
        connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        connection.execute(f"LOAD '{extension}'")
        connection.execute(f"ATTACH 'ducklake:{path}/catalog.ducklake' AS lake (DATA_PATH '{path}/data/')")
        return connection

    connection = opened()
    for number, data in enumerate(batches(rows, files)):
        connection.register("incoming", data)
        begin = "INSERT INTO lake.t" if number else "CREATE TABLE lake.t AS"
        connection.execute(f"{begin} SELECT * FROM incoming")
    connection.close()
    low, high = bounds(rows)

    def read(condition: str) -> pa.Table:
        connection = opened()
        rows_read = connection.execute(f"SELECT * FROM lake.t WHERE {condition}").to_arrow_table()
        connection.close()
        return rows_read

    return {"range": lambda: read(f"number >= {low} AND number < {high}"), "key": lambda: read("id = 'key-7'")}


def measured(peer: str, rows: int, files: int, repeat: int) -> dict[str, list[float]]:
    """Return the seconds of each query of a peer: by the clock, of the processor, and the sum of the numbers read."""
    load = {"lakefmt": of_lakefmt, "deltalake": of_deltalake, "ducklake": of_ducklake}[peer]
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, query in load(f"{folder}/t", rows, files).items():
            total = float(pc.sum(query()["number"]).as_py())
            clock = processor = float("inf")
            for _ in range(repeat):
                begin, used = time.perf_counter(), time.process_time()
                query()
                clock, processor = min(clock, time.perf_counter() - begin), min(processor, time.process_time() - used)
            figures[name] = [clock, processor, total]
    return figures


def environments(peers: list[str]) -> dict[str, str]:
    """Return the Python of each peer whose environment is there."""
    from benchmarks.harness.field import pythons

    if peers == ["lakefmt"]:
        return {"lakefmt": sys.executable}
    command = [sys.executable, str(ROOT / "tools" / "bench_env.py"), "--find"]
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    available, missing = pythons(peers, json.loads(answer.stdout))
    for peer, reason in missing.items():
        print(f"{peer:10} not measured: {reason}")
    return available


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--alone", help="measure this peer in this process, and print JSON")
    options = parser.parse_args(given)
    if options.alone:
        print(json.dumps(measured(options.alone, options.rows, options.files, options.repeat)))
        return
    wanted = options.peers.split(",")
    sums: dict[str, float] = {}
    for peer, python in environments(wanted).items():
        command = [python, "-m", "benchmarks.metadata.bench_skipping", "--alone", peer, "--rows", str(options.rows)]
        command += ["--files", str(options.files), "--repeat", str(options.repeat)]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        for name, (clock, processor, total) in json.loads(done.stdout).items():
            if sums.setdefault(name.split()[0].rstrip(","), total) != total:
                raise SystemExit(f"{peer} reads other rows: {name}")
            print(f"{peer:10} {name:24} {clock * 1000:8.1f} ms, processor {processor * 1000:8.1f} ms")


if __name__ == "__main__":
    main()
