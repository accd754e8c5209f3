"""Loads over HTTP: one large file, many clients, commits, labels, JSON.

Usage::

    python -m benchmarks.loads.bench_loads [--mib 200] [--clients 16] [--rounds 4] [--labels 2000] [--whole] [--folder DIR]

*A file*: five columns of CSV into an append table, by a server in a process of its own, beside ``pyarrow.csv`` and ``bulk_insert`` in
another one; seconds, and the most memory that the process had. *Operators*: rows in no order,
with deletes and with a condition, upserted into a table that has a quarter of their keys. *JSON*: a part of the same rows, each rate in rows per second until they are
staged. *Clients*: so many at once, each loads 1 MB in a request and commits it. *Commits*: of ten rows, upserted into a table with keys, synced
to disk; the median of 100. *Labels*: what a begin costs after so many, beside the first. All rows are counted. ``--whole`` is what is asked:
1 GiB, 64 clients, 10,000 labels: ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

import lakefmt
from benchmarks.harness.machine import describe
from benchmarks.streams.asked import Figure, at_least, at_most, print_figures
from lakefmt.client import StreamLoad

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("fare", pa.float64()), ("number", pa.int64()), ("day", pa.date32())]
)
KEYED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
BATCH = 200_000
BESIDE = """
import sys, lakefmt, pyarrow as pa, pyarrow.csv as pacsv
from benchmarks.loads.bench_loads import SCHEMA, most_memory
import time
path, base = sys.argv[1:]
lakefmt.create_table(base, schema=SCHEMA, kind="append")
begin = time.perf_counter()
reader = pacsv.open_csv(path, pacsv.ReadOptions(column_names=SCHEMA.names), convert_options=pacsv.ConvertOptions(column_types=SCHEMA))
lakefmt.open_table(base).bulk_insert(pa.Table.from_batches([batch]) for batch in reader)
print(time.perf_counter() - begin, most_memory("self"))
"""


def rows(first: int) -> pa.Table:
    """Return rows of five columns."""
    chance = np.random.default_rng(first)
    days = pa.array(chance.integers(10_000, 20_000, BATCH).astype(np.int32)).cast(pa.date32())
    names = pa.array(np.char.add("name ", chance.integers(0, 1_000_000, BATCH).astype("U7")))
    return pa.table(
        [np.arange(first, first + BATCH), names, chance.random(BATCH), chance.integers(0, 10**9, BATCH), days],
        schema=SCHEMA,
    )


def write_csv(path: Path, mib: int) -> int:
    """Write a file of some size; return its rows."""
    count = 0
    options = pacsv.WriteOptions(include_header=False, quoting_style="none")
    with path.open("wb") as opened, pacsv.CSVWriter(opened, SCHEMA, write_options=options) as writer:
        while opened.tell() < mib << 20:
            writer.write(rows(count))
            count += BATCH
    return count


def most_memory(process: int | str) -> float:
    """Return the most memory that a process had, in MiB; 0 where the system does not say."""
    try:
        text = Path(f"/proc/{process}/status").read_text("utf-8")
    except OSError:
        return 0.0
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


@contextmanager
def server_of(base: Path) -> Iterator[tuple[str, int]]:
    """Start a server in a process of its own; its address and number."""
    command = [sys.executable, "-m", "lakefmt", "serve", "--base-path", str(base), "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield json.loads(next(iter(process.stdout or ())))["url"], process.pid
    finally:
        process.kill()
        process.communicate()


def measure_file(work: Path, mib: int) -> list[Figure]:
    """Load a file, and write the same without a server."""
    path = work / "rows.csv"
    count = write_csv(path, mib)
    command = [sys.executable, "-c", BESIDE, str(path), str(work / "beside")]
    seconds, memory = map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    base = work / "file"
    lakefmt.create_table(base / "db" / "t", schema=SCHEMA, kind="append")
    with server_of(base) as (url, process):
        begin = time.perf_counter()
        load = StreamLoad(url, "db", "t", timeout=3_600, connect_seconds=3_600)
        load.begin()
        with path.open("rb") as opened:
            load.load(opened, column_separator=",", lakefmt_operation="bulk_insert")
        staged, staged_memory = time.perf_counter() - begin, most_memory(process)
        load.prepare()
        load.commit()
        spent, own = time.perf_counter() - begin, most_memory(process)
    found = lakefmt.open_table(base / "db" / "t").read(columns=["id"]).num_rows
    assert found == count, (found, count)
    path.unlink()
    return [
        Figure(
            f"{mib} MiB of CSV, {count:,} rows, by pyarrow.csv and bulk_insert",
            "",
            f"{seconds:.1f} s, {memory:,.0f} MiB",
        ),
        at_most("the same over HTTP, as a multiple", 1.3, spent / seconds, "×", 2),
        Figure("  until it is staged", "", f"{staged:.1f} s, {staged_memory:,.0f} MiB"),
        at_most("  most memory of the server", 512, own, " MiB", 0),
    ]


def measure_operators(work: Path, mib: int) -> list[Figure]:
    """Load rows of which every tenth deletes its key, and rows with a condition, a file for each into a table that has their keys."""
    path, count = work / "operators.csv", 0
    with path.open("wb") as opened:
        while opened.tell() < mib << 20:
            keys = np.random.default_rng(count).permutation(BATCH) + count
            batch = pa.table(
                [keys, rows(count)["name"], pa.array(keys % 10 == 0).cast(pa.int8())], names=["id", "v", "o"]
            )
            pacsv.write_csv(batch, opened, pacsv.WriteOptions(include_header=False, quoting_style="none"))
            count += BATCH
    figures = []
    for name, headers in (
        ("a tenth of them deletes", {"columns": "id,name,__op"}),
        ("merge_condition", {"columns": "id,name,o", "merge_condition": "name"}),
    ):
        base = work / name.replace(" ", "-")
        stored = pa.table([pa.array(range(0, count, 4)), pa.array(["name 5"] * len(range(0, count, 4)))], schema=KEYED)
        lakefmt.create_table(base / "db" / "t", schema=KEYED, record_key="id").bulk_insert(stored)
        with server_of(base) as (url, process):
            begin = time.perf_counter()
            load = StreamLoad(url, "db", "t", timeout=3_600, connect_seconds=3_600)
            load.begin()
            with path.open("rb") as opened:
                load.load(opened, column_separator=",", **headers)
            load.prepare()
            staged = time.perf_counter() - begin
            load.commit()
            spent, own = time.perf_counter() - begin, most_memory(process)
        found = lakefmt.open_table(base / "db" / "t").read(columns=["id"]).num_rows
        assert found == (count if name == "merge_condition" else count - count // 10), (found, count)
        figures += [
            Figure(f"{mib} MiB of CSV, {count:,} rows, {name}", "", f"{spent:.1f} s, prepared after {staged:.1f} s"),
            at_most("  most memory of the server", 512, own, " MiB", 0),
        ]
    path.unlink()
    return figures


def measure_json(work: Path) -> list[Figure]:
    """Load the same rows as CSV and as JSON."""
    batch = rows(0)
    text = pa.BufferOutputStream()
    pacsv.write_csv(batch, text, pacsv.WriteOptions(include_header=False, quoting_style="none"))
    lines = batch.set_column(4, "day", batch["day"].cast(pa.string())).to_pylist()
    bodies = {"csv": bytes(text.getvalue()), "json": json.dumps(lines, separators=(",", ":")).encode()}
    rates = {}
    base = work / "json"
    lakefmt.create_table(base / "db" / "t", schema=SCHEMA, kind="append")
    with server_of(base) as (url, _):
        for name, body in bodies.items():
            how = {"format": name, "column_separator": ","}
            spent = []
            for _ in range(4):
                load = StreamLoad(url, "db", "t")
                load.begin()
                begin = time.perf_counter()
                load.load(body, **how)
                spent.append(time.perf_counter() - begin)
                load.rollback()
            rates[name] = BATCH / min(spent)
    bytes_of = {name: rates[name] * len(body) / BATCH / 2**20 for name, body in bodies.items()}
    return [
        Figure("CSV until it is staged", "", f"{rates['csv']:,.0f} rows/s, {bytes_of['csv']:.0f} MiB/s"),
        Figure("JSON, whose rows are longer", "", f"{rates['json']:,.0f} rows/s, {bytes_of['json']:.0f} MiB/s"),
        at_least("  its bytes, as a part of those of CSV", 0.5, bytes_of["json"] / bytes_of["csv"], "×", 2),
    ]


def measure_clients(work: Path, clients: int, rounds: int) -> list[Figure]:
    """Let clients load at once."""
    base = work / "clients"
    lakefmt.create_table(base / "db" / "t", schema=SCHEMA, kind="append")
    text = pa.BufferOutputStream()
    pacsv.write_csv(rows(0), text, pacsv.WriteOptions(include_header=False, quoting_style="none"))
    body = bytes(text.getvalue())
    body = body[: body.rfind(b"\n", 0, 1_000_000) + 1]
    times: list[float] = []
    with server_of(base) as (url, _):

        def work_of(client: int) -> int:
            count = 0
            for _ in range(rounds):
                begin = time.perf_counter()
                with StreamLoad(url, "db", "t", retries=20) as load:
                    count += load.load(body, column_separator=",").rows
                times.append(time.perf_counter() - begin)
            return count

        begin = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            count = sum(pool.map(work_of, range(clients)))
        spent = time.perf_counter() - begin
    assert lakefmt.open_table(base / "db" / "t").read(columns=["id"]).num_rows == count
    return [
        Figure(
            f"{clients} clients, {len(times)} loads of 1 MB, each a commit", "", f"{len(times) / spent:.1f} loads/s"
        ),
        Figure("  half of them within, 99 % within", "", f"{np.median(times):.2f} s, {np.percentile(times, 99):.2f} s"),
    ]


def measure_commits(work: Path, labels: int) -> list[Figure]:
    """Commit small loads; begin many."""
    base = work / "commits"
    lakefmt.create_table(base / "db" / "t", schema=KEYED, record_key="id")
    commits, first, last = list[float](), list[float](), list[float]()
    with server_of(base) as (url, _):
        for number in range(100):
            load = StreamLoad(url, "db", "t")
            load.begin()
            load.load("".join(f"{number * 10 + row},x\n" for row in range(10)).encode(), column_separator=",")
            load.prepare()
            begin = time.perf_counter()
            load.commit()
            commits.append(time.perf_counter() - begin)
        for number in range(labels):
            load = StreamLoad(url, "db", "t", label=f"label-{number}")
            begin = time.perf_counter()
            load.begin()
            (first if number < 100 else last).append(time.perf_counter() - begin)
            load.rollback()
    found = lakefmt.open_table(base / "db" / "t").read().num_rows
    assert found == 1_000, found
    return [
        at_most("commit of ten rows, prepared, the median", 50, 1e3 * float(np.median(commits)), " ms"),
        at_most(
            f"begin after {labels:,} labels, as a multiple of the first",
            1.5,
            float(np.median(last[-100:]) / np.median(first)),
            "×",
            2,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=200)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--labels", type=int, default=2_000)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the tables lie meanwhile")
    given = parser.parse_args()
    mib, clients, labels = (1_024, 64, 10_000) if given.whole else (given.mib, given.clients, given.labels)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        work = Path(folder)
        print(describe(work))
        figures = measure_file(work, mib)
        figures += measure_operators(work, mib)
        figures += measure_json(work)
        figures += measure_clients(work, clients, given.rounds)
        figures += measure_commits(work, labels)
    print_figures(figures)


if __name__ == "__main__":
    main()
