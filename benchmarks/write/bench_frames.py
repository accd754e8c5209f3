"""Frames of pandas and Polars on their way into a table, beside Arrow's own conversion: ``python -m benchmarks.write.bench_frames [--rows N]``.

Whole numbers, floating point numbers, times and texts, half of them in columns of objects; milliseconds of the processor, the median and the
spread of five conversions in turns, and the bytes that Arrow allocated. Rows are compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from lakefmt._core.write.ingest import open_stream


def frames(rows: int) -> dict[str, tuple[object, Callable[[], pa.Table]]]:
    """Return frames by name, each with Arrow's own conversion."""
    random = np.random.default_rng(7)
    numbers = {f"n{n}": random.integers(0, 1 << 40, rows) for n in range(5)}
    numbers |= {f"v{n}": random.random(rows) for n in range(5)}
    numbers |= {"at": np.datetime64("2026-01-01", "us") + np.arange(rows)}
    texts = np.char.add("text ", random.integers(0, 10_000, rows).astype("U5"))
    plain = pd.DataFrame(numbers)
    objects = plain.assign(word=pd.Series(texts.astype(object)), other=pd.Series(texts[::-1].astype(object)))
    polars = pl.DataFrame({**numbers, "word": texts.tolist()})
    return {
        "pandas, numbers": (plain, lambda: pa.Table.from_pandas(plain, preserve_index=False)),
        "pandas, two columns of text objects more": (
            objects,
            lambda: pa.Table.from_pandas(objects, preserve_index=False),
        ),
        "Polars": (polars, polars.to_arrow),
    }


def ours(frame: object) -> pa.Table:
    """Return a frame as a write takes it."""
    schema, tables = open_stream(frame)
    return pa.concat_tables([schema.empty_table(), *tables])


def measured(convert: Callable[[], pa.Table]) -> tuple[float, int]:
    """Return milliseconds of the processor and the bytes that Arrow allocated."""
    before, begin = pa.total_allocated_bytes(), time.process_time()
    table = convert()
    spent, taken = time.process_time() - begin, pa.total_allocated_bytes() - before
    del table
    return spent * 1e3, taken


def main() -> None:
    """Print a table of both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows = parser.parse_args().rows
    print(f"{rows:,} rows\n| frame | Arrow | lakefmt |\n|---|---|---|")
    for name, (frame, arrow) in frames(rows).items():
        expected = arrow()
        if not ours(frame).cast(expected.schema).equals(expected):
            raise SystemExit(f"{name}: other rows")
        del expected
        ways = (arrow, lambda frame=frame: ours(frame))
        figures = [[measured(way) for way in ways] for _ in range(5)]
        cells = []
        for of_way in zip(*figures, strict=True):
            spent = sorted(each[0] for each in of_way)
            cells.append(
                f"{statistics.median(spent):.1f} ms ({spent[0]:.1f}–{spent[-1]:.1f}), {of_way[0][1] / 1e6:.0f} MB"
            )
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
