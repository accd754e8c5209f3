"""Questions of Polars and DuckDB to a table, beside deltalake: one partition and two columns, a key, a range, a count, ten rows.

    python benchmarks/reading/bench_lazy.py [--rows N] [--rounds N] [--delta PYTHON]

The same rows lie in a copy-on-write table, in a merge-on-read table with small logs in every partition, and in a Delta table,
all with zstd level 1. Each question is asked in a process of its own, which has imported what it needs: milliseconds of processor
time are those of the first question and the median of the rounds behind it, each of which opens the table anew; memory is how far
the process's peak rises with the first. Python may keep its bytecode, as that of an installed package is kept, and a process goes
ahead that makes it. DuckDB reads a Delta table by deltalake's Arrow dataset (its own extension is downloaded when first used).
PYTHON is an environment with deltalake, polars, duckdb and pyarrow; without it there are no such lines.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DAYS = 30
QUESTIONS = ("partition", "key", "range", "count", "head")
ENGINES = ("polars", "duckdb")


def rows(count: int) -> Any:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    random = np.random.default_rng(7)
    numbers = np.arange(count)
    numbered = {f"v{column}": random.random(count) for column in range(4)}
    whole = {f"n{column}": random.integers(0, 1 << 40, count) for column in range(3)}
    texts = pa.array([f"text {number:03}" for number in range(200)])
    return pa.table(
        {
            "id": pc.binary_join_element_wise(
                pa.scalar("key-"), pa.array(numbers * 7919 % count).cast(pa.string()), ""
            ),
            "day": pc.binary_join_element_wise(
                pa.scalar("2026-01-"), pa.array(10 + numbers * DAYS // count).cast(pa.string()), ""
            ),
            "ts": pa.array(numbers),
            **numbered,
            **whole,
            "word": texts.take(pa.array(random.integers(0, 200, count))),
        }
    )


def make_tables(folder: Path, count: int, delta: str | None) -> None:
    import pyarrow.parquet as pq

    import lakefmt

    data = rows(count)
    for table_type in ("cow", "mor"):
        table = lakefmt.create_table(
            str(folder / table_type),
            data=data,
            record_key="id",
            partition_by="day",
            table_type=table_type,
            options={"lakefmt.durability": "none", "hoodie.compact.inline": False},
            indexes=["column_stats", "record_index"],
        )
        table.bulk_insert(data, sort="partition")
        if table_type == "mor":
            table.upsert(data.take(list(range(0, count, max(1, count // 300)))))
    if delta is not None:
        pq.write_table(data, folder / "rows.parquet")
        subprocess.run([delta, __file__, "--write-delta", str(folder)], check=True)


def write_delta(folder: Path) -> None:
    import pyarrow.parquet as pq
    from deltalake import WriterProperties, write_deltalake

    data = pq.read_table(folder / "rows.parquet")
    properties = WriterProperties(compression="ZSTD", compression_level=1)
    write_deltalake(str(folder / "delta"), data, partition_by=["day"], writer_properties=properties)


def polars_question(name: str, open_frame: Callable[[], Any]) -> object:
    import polars as pl

    frame = open_frame()
    asked = {
        "partition": lambda: frame.filter(pl.col("day") == "2026-01-15").select("v0", "n0").sum(),
        "key": lambda: frame.filter(pl.col("id") == "key-777").select("v0", "word"),
        "range": lambda: frame.filter(pl.col("ts") < 5_000).select("v0", "n0").sum(),
        "count": lambda: frame.select(pl.len()),
        "head": lambda: frame.head(10),
    }[name]()
    answer = asked.collect()
    return (
        answer.height
        if name == "head"
        else [round(value, 3) if isinstance(value, float) else value for value in answer.row(0)]
    )


def duckdb_question(name: str, open_dataset: Callable[[], Any]) -> object:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("rows", open_dataset())
        query = {
            "partition": "select sum(v0), sum(n0)::bigint from rows where day = '2026-01-15'",
            "key": "select v0, word from rows where id = 'key-777'",
            "range": "select sum(v0), sum(n0)::bigint from rows where ts < 5000",
            "count": "select count(*) from rows",
            "head": "select * from rows limit 10",
        }[name]
        found = connection.execute(query).fetchall()
    return (
        len(found) if name == "head" else [round(value, 3) if isinstance(value, float) else value for value in found[0]]
    )


def opener(engine: str, table: str, path: str) -> Callable[[], Any]:
    if table == "delta":
        import polars as pl
        from deltalake import DeltaTable

        return (lambda: pl.scan_delta(path)) if engine == "polars" else (lambda: DeltaTable(path).to_pyarrow_dataset())
    import lakefmt

    return (
        (lambda: lakefmt.open_table(path).scan_polars())
        if engine == "polars"
        else (lambda: lakefmt.open_table(path).dataset())
    )


def peak_kilobytes() -> int:
    return int(
        next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")).split()[1]
    )


def ask(engine: str, question: str, table: str, path: str, rounds: int) -> dict[str, Any]:
    import duckdb
    import polars
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401

    question_of = polars_question if engine == "polars" else duckdb_question
    open_table = opener(engine, table, path)
    # What an engine loads with its first question of all is not the table's.
    polars.DataFrame({"a": [1]}).lazy().select(polars.len()).collect()
    duckdb.connect().execute("select 1").fetchall()
    before = peak_kilobytes()
    seconds, answer, rise = [], None, 0
    for number in range(rounds + 1):
        start = time.process_time()
        answer = question_of(question, open_table)
        seconds.append(time.process_time() - start)
        rise = peak_kilobytes() - before if number == 0 else rise
    median = statistics.median(seconds[1:])
    return {"median": median, "first": seconds[0], "megabytes": rise / 1024, "answer": answer}


def measure(folder: Path, delta: str | None, rounds: int) -> None:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(
        [sys.executable, __file__, "--ask", "polars", "count", "mor", str(folder / "mor"), "--rounds", "1"],
        check=True,
        capture_output=True,
        env=environment,
    )
    print(
        "| engine, question | Delta: first, ms, MB | copy-on-write (ratio) | merge-on-read (ratio) |\n|---|---|---|---|"
    )
    for engine in ENGINES:
        for question in QUESTIONS:
            found: dict[str, dict[str, Any]] = {}
            for table in (["delta"] if delta else []) + ["cow", "mor"]:
                python = delta if table == "delta" and delta else sys.executable
                arguments = ["--ask", engine, question, table, str(folder / table), "--rounds", str(rounds)]
                try:
                    done = subprocess.run(
                        [python, __file__, *arguments],
                        check=True,
                        capture_output=True,
                        text=True,
                        env=environment,
                        timeout=300,
                    )
                except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
                    if table != "delta":
                        raise
                    continue  # DuckDB that stops after ten rows ends or holds the process in Arrow's scanner of a Delta table
                found[table] = json.loads(done.stdout.splitlines()[-1])
            answers = {json.dumps(each["answer"]) for each in found.values()}
            if len(answers) > 1:
                raise SystemExit(f"{engine} {question}: {answers}")
            cells = []
            for table, each in found.items():
                cell = f"{each['first'] * 1e3:.0f}, {each['median'] * 1e3:.0f}, {each['megabytes']:.0f}"
                if "delta" in found and table != "delta":
                    cell += f" ({each['median'] / found['delta']['median']:.2f})"
                cells.append(cell)
            print(
                f"| {engine}, {question} | " + " | ".join(cells if "delta" in found else ["–", *cells]) + " |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--delta", default=None)
    parser.add_argument("--ask", nargs=4, default=None)
    parser.add_argument("--write-delta", default=None)
    given = parser.parse_args()
    if given.write_delta:
        write_delta(Path(given.write_delta))
    elif given.ask:
        engine, question, table, path = given.ask
        print(json.dumps(ask(engine, question, table, path, given.rounds)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            make_tables(Path(folder), given.rows, given.delta)
            measure(Path(folder), given.delta, given.rounds)


if __name__ == "__main__":
    main()
