"""The record index: 1 % of the rows at random (a dimension's update) beside bloom and simple, and one key alone.

    python benchmarks/index/bench_record.py [rows] [rounds]

Prints the median and the quartiles of each on the clock, and the median of processor time, which other work on the machine
changes less. The indexes take turns within a round, on tables of the same rows, whose keys are in no order.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakefmt

#: Several files, as a table of this size has them.
FILES = 8
OPTIONS: dict[str, object] = {"lakefmt.durability": "none", "hoodie.compact.inline": False}


def keys_of(numbers: np.ndarray) -> pa.Array:
    """Keys of 24 characters whose order is none of the rows': the digits are turned around."""
    texts = pc.utf8_reverse(pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 12, "0"))
    return pc.binary_join_element_wise(texts, pa.scalar("customer-key"), "")


def rows(numbers: np.ndarray, value: int) -> pa.Table:
    columns = {"id": keys_of(numbers), "v": pa.array(np.full(len(numbers), value)), "x": pa.array(numbers * 0.5)}
    return pa.table(columns)


def make(folder: Path, index: str, kind: str, count: int) -> lakefmt.Table:
    data = rows(np.arange(count), 0)
    options = {**OPTIONS, "hoodie.parquet.max.file.size": max(100_000, 40 * count // FILES)}
    table = lakefmt.create_table(
        str(folder / f"{index}-{kind}"), data=data, record_key="id", table_type=kind, index=index, options=options
    )
    table.bulk_insert(data)
    return table


class Taken:
    """Seconds on the clock and of the processor."""

    def __init__(self) -> None:
        self.clock: list[float] = []
        self.processor: list[float] = []

    def run(self, work: Callable[[], object], *, counts: bool) -> None:
        begun = time.perf_counter(), time.process_time()
        work()
        if counts:
            self.clock.append(time.perf_counter() - begun[0])
            self.processor.append(time.process_time() - begun[1])

    def __str__(self) -> str:
        low, middle, high = (1000 * q for q in statistics.quantiles(self.clock, n=4))
        processor = 1000 * statistics.median(self.processor)
        return f"{middle:7.1f} ms ({low:.1f} to {high:.1f}), processor {processor:.1f} ms"


def updates(folder: Path, kind: str, count: int, rounds: int, rng: np.random.Generator) -> None:
    tables = {index: make(folder, index, kind, count) for index in ("record", "bloom", "simple")}
    taken = {index: Taken() for index in tables}
    for number in range(rounds + 1):
        data = rows(rng.choice(count, count // 100, replace=False), number)
        for index, table in tables.items():
            taken[index].run(lambda table=table, data=data: table.upsert(data), counts=number > 0)
    for index, each in taken.items():
        print(f"{kind}, 1 % of {count:,} rows at random, {index:7}: {each}")


def one_key(folder: Path, count: int, rounds: int, rng: np.random.Generator) -> None:
    table = make(folder, "record", "cow", count)
    alone, with_row = Taken(), Taken()
    for number in range(rounds + 1):
        key = keys_of(rng.choice(count, 1))[0].as_py()
        alone.run(lambda key=key: table.index.explain(key), counts=number > 0)
        with_row.run(lambda key=key: table.read(filter=f"id = '{key}'"), counts=number > 0)
    print(f"one key of {count:,}, index alone: {alone}")
    print(f"one key of {count:,}, with the row: {with_row}")


def main(count: int, rounds: int) -> None:
    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        one_key(Path(folder) / "one", count, rounds, rng)
        for kind in ("cow", "mor"):
            updates(Path(folder), kind, count, rounds, rng)


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    main(*(given if len(given) == 2 else (1_000_000, 15)))
