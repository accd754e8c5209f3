"""Rows per second into a stream: the row interface, dict rows, Arrow batches beside a bulk insert; how long a call takes.

Usage::

    python -m benchmarks.streams.bench_rows [--rows 200000] [--repeats 3] [--quick]

Three columns into a local table without keys, whose segments are synced to disk as the default asks. "row" is the SDK's own loop
(create_row, set_value per column, apply), "dict" is ``insert``, "dicts" is ``extend`` of a list, "arrow" is ``write_arrow`` of
batches of 10,000 rows with buffers of that size. All end with a flush; the best of the repeats counts. The calls of "row" and
"dict" are timed one by one in a run of their own: the 50th, 99th and 99.9th percentile of those outside back-pressure. All
rows are counted at the end. Rates are on the wall; those of the processor, all threads together, stand beside them. ``--quick``:
100,000 rows, twice, under a minute.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakefmt
from benchmarks.harness.machine import describe
from benchmarks.streams.asked import Figure, at_least, at_most, print_figures
from lakefmt._core.producers.stream.stream import Stream
from lakefmt.realtime import RealtimeOperation, connect

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.float64())])
BATCH = 10_000
COMMIT = 3_600_000


def data(rows: int) -> pa.Table:
    """Return rows of three columns."""
    numbers = np.arange(rows)
    ids = pa.array(np.char.add("key-", numbers.astype("U12")))
    return pa.table([ids, pa.array(numbers), pa.array(numbers * 0.5)], schema=SCHEMA)


def into_stream(folder: Path, rows: int, put: Callable[[Stream], None], **options: object) -> float:
    """Put rows into a stream of a new table; return the seconds until they are durable."""
    table = lakefmt.create_table(str(folder), schema=SCHEMA, record_key=None)
    stream = table.open_stream(writer_id="bench", commit_interval=COMMIT, **options)
    begun = time.perf_counter()
    put(stream)
    stream.flush()
    seconds = time.perf_counter() - begun
    stream.close()
    check(table, rows)
    return seconds


def check(table: lakefmt.Table, rows: int) -> None:
    """End the measurement when rows are missing."""
    found = table.read(columns=["id"]).num_rows
    if found != rows:
        raise SystemExit(f"{found} rows, where {rows} were put")


def by_row(folder: Path, values: list[tuple[str, int, float]], timed: list[float] | None = None) -> float:
    """Put rows with the loop of the SDK; return the seconds until they are durable."""
    with connect(base_path=str(folder), schema="bench") as connection:
        connection.cursor().execute("CREATE TABLE t (id STRING, ts BIGINT, v DOUBLE)")
        stream = connection.get_realtime_stream(RealtimeOperation.APPEND_ONLY, table="t")
        clock = time.perf_counter
        begun = clock()
        if timed is None:
            for key, ts, v in values:
                row = stream.create_row()
                row.set_value("id", key)
                row.set_value("ts", ts)
                row.set_value("v", v)
                stream.apply(row)
        else:
            for key, ts, v in values:
                row = stream.create_row()
                row.set_value("id", key)
                row.set_value("ts", ts)
                row.set_value("v", v)
                at = clock()
                stream.apply(row)
                timed.append(clock() - at)
        stream.flush()
        seconds = clock() - begun
        stream.close()
        check(connection.open_table("t"), len(values))
    return seconds


def by_dict(rows: list[dict[str, object]], timed: list[float] | None = None) -> Callable[[Stream], None]:
    """Return what puts dict rows one by one."""

    def put(stream: Stream) -> None:
        clock = time.perf_counter
        for row in rows:
            at = clock()
            stream.insert(row)
            if timed is not None:
                timed.append(clock() - at)

    return put


def bulk(folder: Path, table_data: pa.Table) -> float:
    """Return the seconds of a bulk insert of the same rows."""
    table = lakefmt.create_table(str(folder), schema=SCHEMA, record_key=None)
    begun = time.perf_counter()
    table.bulk_insert(table_data)
    return time.perf_counter() - begun


def rate(way: Callable[[], float], rows: int, repeats: int) -> tuple[float, float]:
    """Return rows per second on the wall and of the processor: the best of some runs."""
    wall, own = 0.0, 0.0
    for _ in range(repeats):
        processor = time.process_time()
        wall = max(wall, rows / way())
        own = max(own, rows / (time.process_time() - processor))
    return wall, own


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    count, repeats = (100_000, 2) if asked.quick else (asked.rows, asked.repeats)
    rows = data(count)
    dicts = rows.to_pylist()
    values = [tuple(row.values()) for row in dicts]
    large = {"mutation_buffer_lines_num": BATCH}
    batches = [rows.slice(start, BATCH) for start in range(0, count, BATCH)]
    with tempfile.TemporaryDirectory() as work:
        print(describe(Path(work)))
        numbers = iter(range(10_000))

        def place() -> Path:
            return Path(work) / f"t{next(numbers)}"

        ways: dict[str, Callable[[], float]] = {
            "row": lambda: by_row(place(), values),
            "dict": lambda: into_stream(place(), count, by_dict(dicts)),
            "dicts": lambda: into_stream(place(), count, lambda stream: stream.extend(dicts)),
            "arrow": lambda: into_stream(
                place(), count, lambda stream: [stream.write_arrow(each) for each in batches] and None, **large
            ),
            "bulk_insert": lambda: bulk(place(), rows),
        }
        rates = {name: rate(way, count, repeats) for name, way in ways.items()}
        calls: dict[str, list[float]] = {"row": [], "dict": []}
        part = min(count, 50_000)
        by_row(place(), values[:part], calls["row"])
        into_stream(place(), part, by_dict(dicts[:part], calls["dict"]))
    print_figures(
        [
            at_least("row: create, set, apply", 40_000, rates["row"][0], "/s"),
            at_least("dict: insert", 80_000, rates["dict"][0], "/s"),
            Figure("dicts: extend", "", f"{rates['dicts'][0]:,.0f}/s"),
            Figure("arrow: write_arrow", "", f"{rates['arrow'][0]:,.0f}/s"),
            Figure("bulk_insert", "", f"{rates['bulk_insert'][0]:,.0f}/s"),
            at_least("arrow / bulk_insert", 0.5, rates["arrow"][0] / rates["bulk_insert"][0], " ×", 2),
            *(Figure(f"{name}, of the processor", "", f"{own:,.0f}/s") for name, (_, own) in rates.items()),
            *(
                figure
                for name, timed in calls.items()
                for figure in (
                    Figure(f"a call, {name}, 50 %", "", f"{1e3 * float(np.percentile(timed, 50)):.3f} ms"),
                    at_most(f"a call, {name}, 99 %", 1.0, 1e3 * float(np.percentile(timed, 99)), " ms", 3),
                    Figure(f"a call, {name}, 99.9 %", "", f"{1e3 * float(np.percentile(timed, 99.9)):.3f} ms"),
                )
            ),
        ]
    )


if __name__ == "__main__":
    main()
