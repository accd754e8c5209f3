"""How many files a filter of two columns touches before and after a clustering, and what the clustering costs.

Usage::

    python -m benchmarks.services.bench_clustering [--rows 5000000] [--file-mb 4] [--filters 20]

One table is loaded for each order: a whole number, a text with a common beginning, and a value, all at random, in files of
about the same size as those that clustering writes. The filters ask for 3 % of the whole numbers and 3 % of the texts, and
what `table.explain` says is left after statistics and footers is counted. Seconds are of the processor, all threads.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakefmt

ORDERS = ("linear", "zorder", "hilbert")
PART = 0.03
NUMBERS = 1_000_000_000


@dataclass(frozen=True)
class Figures:
    """What one order did.

    Attributes:
        files: how many files there are before and after the clustering.
        both: the share of them that a filter of both columns touches, before and after.
        second: the same for a filter of the second column alone.
        seconds: of the processor, for the clustering.
    """

    files: tuple[int, int]
    both: tuple[float, float]
    second: tuple[float, float]
    seconds: float

    @property
    def times(self) -> float:
        """How many times smaller the share of files is that a filter of both columns touches."""
        return self.both[0] / self.both[1]


def batch(rows: int, first: int) -> pa.Table:
    """Return rows whose values are at random; the keys begin at `first`."""
    generator = np.random.default_rng(first)
    texts = pa.array(generator.integers(0, NUMBERS, rows)).cast(pa.string())
    return pa.table(
        {
            "id": pa.array(np.arange(first, first + rows)).cast(pa.string()),
            "number": generator.integers(0, 50_000, rows),
            "customer": pc.binary_join_element_wise("customer-", pc.utf8_lpad(texts, 10, "0"), ""),
            "value": generator.random(rows),
        }
    )


def touched(table: lakefmt.Table, filters: int) -> tuple[float, float]:
    """Return the share of files that a filter of both columns touches, and one of the second column, on the average."""
    generator = np.random.default_rng(5)
    stored = len(table.file_groups())
    counts: list[tuple[float, float]] = []
    for _ in range(filters):
        low = int(generator.integers(0, int(50_000 * (1 - PART))))
        start = int(generator.integers(0, int(NUMBERS * (1 - PART))))
        ends = [f"customer-{place:010d}" for place in (start, start + int(NUMBERS * PART))]
        second = f"customer >= '{ends[0]}' and customer < '{ends[1]}'"
        both = f"number >= {low} and number < {low + int(50_000 * PART)} and {second}"
        left_of_both, left_of_second = (table.explain(asked).steps[-1].files for asked in (both, second))
        counts.append((left_of_both / stored, left_of_second / stored))
    return sum(share for share, _ in counts) / filters, sum(share for _, share in counts) / filters


def measured(order: str, rows: int, file_bytes: int, filters: int) -> Figures:
    """Load a table, cluster it, and count."""
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "lakefmt.durability": "none",
            "hoodie.parquet.small.file.limit": "0",
            "hoodie.parquet.max.file.size": file_bytes,
            "hoodie.clustering.plan.strategy.target.file.max.bytes": file_bytes,
            "hoodie.clean.automatic": "false",
        }
        step = max(1, rows // 10)
        table = lakefmt.create_table(f"{folder}/t", schema=batch(1, 0).schema, record_key="id", options=options)
        table.bulk_insert(batch(step, first) for first in range(0, rows, step))
        files, before = len(table.file_groups()), touched(table, filters)
        begun = time.process_time()
        done = table.cluster(["number", "customer"], order=order)
        seconds = time.process_time() - begun
        assert done.num_rows == step * 10
        after = touched(table, filters)
        return Figures((files, len(done.files)), (before[0], after[0]), (before[1], after[1]), seconds)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--file-mb", type=float, default=4)
    parser.add_argument("--filters", type=int, default=20)
    parser.add_argument("--orders", default=",".join(ORDERS))
    options = parser.parse_args(given)
    for order in options.orders.split(","):
        found = measured(order, options.rows, int(options.file_mb * (1 << 20)), options.filters)
        shares = " and ".join(
            f"of {name} {before:.0%} of {found.files[0]} files before, {after:.1%} of {found.files[1]} after"
            for name, (before, after) in (("both columns", found.both), ("the second column", found.second))
        )
        print(
            f"{order:8} a filter {shares}; {found.times:.1f}×; clustering {found.seconds:.1f} s of processor",
            flush=True,
        )


if __name__ == "__main__":
    main()
