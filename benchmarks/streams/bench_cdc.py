"""Measure a follower of MariaDB: ``python -m benchmarks.streams.bench_cdc [--rows N] [--seconds N]``.

* Rows of now: ``lakefmt cdc --once`` as a cold process, beside the same SELECT by PyMySQL's unbuffered cursor into Arrow, and beside dlt's SQL
  source as a cold process, which writes Parquet files without keys and follows nothing; in turns.
* The log: so many row images that wait are read and committed, beside the source alone, which decodes and forgets them.
* Delays: 1,000 changes a second for some seconds; the delay of a change is the time from its commit in the server to its commit here.
* Memory: the follower's largest resident size after one, two and four times the rows.

Every result is compared with the server. Five runs; median and spread.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

import lakefmt
from benchmarks.harness.machine import describe
from lakefmt._core.cdc.events import RowChanges, SourceName
from lakefmt._core.cdc.mysql.source import MySQLSource
from tests.judges.mariadb import READER_PASSWORD, MariaServer, mariadb_server

RUNS = 5
#: The command line, which says its largest resident size at the end: what the system tells of a child includes its parent's.
_FOLLOWER = """
import sys
from lakefmt._core.cli import main
try:
    main()
finally:
    print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
"""
#: dlt's loader of SQL tables, by its backend of Arrow tables.
_DLT = """
import sys, dlt
from dlt.sources.sql_database import sql_table
url, folder = sys.argv[1:]
table = sql_table(credentials=url, table="events", backend="pyarrow", chunk_size=50_000)
pipeline = dlt.pipeline("bench", destination=dlt.destinations.filesystem(folder), dataset_name="b", pipelines_dir=folder + "/state")
pipeline.run(table, loader_file_format="parquet", write_disposition="replace")
"""
_TABLE = (
    "create table events (id int primary key, customer int not null, kind varchar(20) not null, amount decimal(10,2), note varchar(80), "
    "at datetime(6) not null)"
)
_ROWS = (
    "insert into events select seq, seq % 9973, concat('kind ', seq % 7), seq % 1000 / 7, concat('note number ', seq), "
    "'2026-01-01' + interval seq second from seq_{first}_to_{last}"
)


def fill(server: MariaServer, first: int, last: int) -> None:
    """Insert rows in transactions of 10,000."""
    for begin in range(first, last + 1, 10_000):
        server.execute(_ROWS.format(first=begin, last=min(last, begin + 9_999)), database="b")


def follow_once(server: MariaServer, folder: Path) -> tuple[float, int]:
    """Follow until now in a cold process; return the seconds, and the largest resident size in MiB."""
    begun = time.perf_counter()
    url = f"mysql://reader@127.0.0.1:{server.port}/b"
    done = subprocess.run(
        [sys.executable, "-c", _FOLLOWER, "cdc", url, "--to", str(folder), "--once"],
        env={**os.environ, "LAKEFMT_CDC_PASSWORD": READER_PASSWORD},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"the follower ended with {done.returncode}: {done.stderr[-1000:]}")
    return seconds, int(done.stderr.split()[-2]) // 1024


def select_all(server: MariaServer) -> float:
    """Read all rows by SELECT into Arrow; return the seconds."""
    import pymysql

    begun = time.perf_counter()
    connection = server.connect("b", cursorclass=pymysql.cursors.SSCursor)
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("select * from events")
        while rows := cursor.fetchmany(50_000):
            pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=list("abcdef"))
    return time.perf_counter() - begun


def load_with_dlt(server: MariaServer, folder: Path, rows: int) -> float:
    """Load all rows by dlt into Parquet files; return the seconds."""
    begun = time.perf_counter()
    url = f"mysql+pymysql://reader:{quote(READER_PASSWORD)}@127.0.0.1:{server.port}/b"
    done = subprocess.run(
        [sys.executable, "-c", _DLT, url, str(folder)],
        env={**os.environ, "RUNTIME__DLTHUB_TELEMETRY": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"dlt ended with {done.returncode}: {done.stderr[-1000:]}")
    found = pads.dataset(folder / "b" / "events", format="parquet").count_rows()
    if found != rows:
        raise SystemExit(f"dlt has {found} rows, the server {rows}")
    return seconds


def decode_only(server: MariaServer, positions: dict[object, object]) -> tuple[float, int]:
    """Read the log from some positions on and forget it; return the seconds and the row images."""
    source = MySQLSource("127.0.0.1", server.port, user="reader", password=READER_PASSWORD, tables=["b.*"])
    begun, images = time.perf_counter(), 0
    with contextlib.closing(source):
        for event in source.events(positions, logs=False, until_now=True):  # type: ignore[arg-type]
            images += event.rows.num_rows if isinstance(event, RowChanges) else 0
    return time.perf_counter() - begun, images


def check(server: MariaServer, folder: Path) -> None:
    """Compare the number of rows and a sum with the server."""
    ((count, total),) = server.execute("select count(*), sum(amount) from events", database="b")
    rows = lakefmt.open_table(folder / "b" / "events").read(columns=["amount"])
    if (rows.num_rows, pc.sum(rows["amount"]).as_py()) != (count, total):
        raise SystemExit(f"the table has {rows.num_rows} rows, the server {count}")


def positions_of(folder: Path) -> dict[object, object]:
    with lakefmt.open_table(folder / "b" / "events").open_stream(writer_id="cdc") as stream:
        stored = stream.last_committed
        return {} if stored is None else {SourceName("b", "events"): stored.offset["position"]}


def line(name: str, values: list[float], unit: str) -> None:
    print(
        f"{name:<58} {statistics.median(values):>12,.1f} {unit:<8} ({min(values):,.1f} to {max(values):,.1f})",
        flush=True,
    )


def measure_rows(server: MariaServer, root: Path, rows: int) -> None:
    ours, theirs, others = [], [], []
    for run in range(RUNS):
        folder = root / f"rows-{run}"
        seconds, _ = follow_once(server, folder)
        ours.append(rows / seconds)
        check(server, folder)
        theirs.append(rows / select_all(server))
        others.append(rows / load_with_dlt(server, root / f"dlt-{run}", rows))
    line(f"{rows:,} rows of now, cold process, into a table", ours, "rows/s")
    line("the same by SELECT into Arrow", theirs, "rows/s")
    line("the same by dlt, cold process, into Parquet files", others, "rows/s")


def measure_log(server: MariaServer, root: Path, rows: int) -> None:
    follow_once(server, root / "log")
    images, ours, alone = 0, [], []
    for run in range(RUNS):
        before = positions_of(root / "log")
        server.execute(
            f"update events set note = 'changed {run}', amount = amount + 1 where id % 2 = {run % 2}",
            "delete from events where id % 100 = 7",
            database="b",
        )
        fill(server, rows + 1 + run * rows // 4, rows + (run + 1) * rows // 4)
        seconds, images = decode_only(server, before)
        alone.append(images / seconds)
        seconds, _ = follow_once(server, root / "log")
        ours.append(images / seconds)
        check(server, root / "log")
    line(f"{images:,} row images of the log, cold process, committed", ours, "images/s")
    line("the same, decoded and forgotten, in this process", alone, "images/s")


def measure_delays(server: MariaServer, root: Path, seconds: int) -> None:
    command = [
        sys.executable,
        "-m",
        "lakefmt",
        "cdc",
        f"mysql://reader@127.0.0.1:{server.port}/b",
        "--to",
        str(root / "delays"),
    ]
    environment = {**os.environ, "LAKEFMT_CDC_PASSWORD": READER_PASSWORD}
    process = subprocess.Popen(
        [*command, "--json", "--option", "commit_interval=1"], env=environment, stdout=subprocess.PIPE, text=True
    )
    lags: list[float] = []
    ready = threading.Event()

    def read() -> None:
        for text in process.stdout or ():
            lag = json.loads(text).get("currentFetchEventTimeLag")
            if lag is not None and ready.is_set():
                lags.append(lag)
            ready.set()

    threading.Thread(target=read, daemon=True).start()
    ready.wait(120)
    with contextlib.closing(server.connect("b")) as connection, connection.cursor() as cursor:
        end, number = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            begun = time.monotonic()
            number += 1
            cursor.execute(
                f"update events set amount = {number} where id between {number * 100 % 50_000} and {number * 100 % 50_000 + 99}"
            )
            time.sleep(max(0.0, 0.1 - (time.monotonic() - begun)))
    process.terminate()
    process.wait()
    line("lag at commits, 1,000 changes a second, commit_interval=1", lags, "s")


def measure_memory(server: MariaServer, root: Path, rows: int) -> None:
    for factor in (1, 2, 4):
        fill(server, rows * 10 + (factor // 2) * rows, rows * 10 + factor * rows - 1)
        _, peak = follow_once(server, root / f"memory-{factor}")
        ((count,),) = server.execute("select count(*) from events", database="b")
        print(f"{f'largest resident size, {count:,} rows of now':<58} {peak:>12,} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--seconds", type=int, default=20)
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="lakefmt-bench-cdc-"))
    print(describe(root))
    steps: list[Callable[[MariaServer], None]] = [
        lambda server: measure_rows(server, root, given.rows),
        lambda server: measure_log(server, root, given.rows),
        lambda server: measure_delays(server, root, given.seconds),
        lambda server: measure_memory(server, root, given.rows),
    ]
    try:
        for step in steps:
            with mariadb_server() as server:
                server.create_reader()
                server.execute("create database b", "use b", _TABLE)
                fill(server, 1, given.rows)
                step(server)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
