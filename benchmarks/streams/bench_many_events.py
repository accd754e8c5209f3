"""Measure a follower over millions of changes: ``python -m benchmarks.streams.bench_many_events [--events N] [--interval S]``.

A source that makes up its changes, 8 of 10 of them new rows, the others updates and deletes of earlier ones, is followed into one table.
Printed after each million: the largest resident size until then, and what is resident now; in the end the changes a second and the
seconds of processor, of which the source alone takes a part that is measured before. The rows are counted, and their sum is compared.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakefmt
from benchmarks.harness.machine import describe
from lakefmt._core.cdc.events import (
    Border,
    Event,
    RowChanges,
    RowKind,
    SourceFinding,
    SourceName,
    SourceTable,
    TableChanged,
    TableLoaded,
)

NAME = SourceName("b", "events")
COLUMNS = pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("note", pa.string()), ("amount", pa.float64())])
#: Changes of a transaction: of ten, eight rows are new, one is changed and one is deleted.
CHANGES = 10_000
NEW = 8 * CHANGES // 10


def resident() -> tuple[int, int]:
    """Return the resident size of this process now and at its largest, in MiB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text("ascii").splitlines())
    return int(lines["VmRSS"].split()[0]) >> 10, int(lines["VmHWM"].split()[0]) >> 10


def transaction(number: int) -> RowChanges:
    """Return the changes of a transaction: updates of ids that end with 1, deletes of those that end with 2, of the transaction before."""
    new = np.arange(number * NEW, (number + 1) * NEW)
    if number:
        before = new - NEW
        changed, deleted = before[before % 8 == 1], before[before % 8 == 2]
    else:
        changed = deleted = new[:0]
    ids = np.concatenate([new, changed, deleted])
    kinds = np.repeat(
        np.array([RowKind.INSERT.value, RowKind.UPDATE_AFTER.value, RowKind.DELETE.value], np.int8),
        [len(new), len(changed), len(deleted)],
    )
    rows = pa.table(
        {
            "id": ids,
            "customer": ids % 9973,
            "note": pc.binary_join_element_wise("note number", pa.array(ids).cast(pa.string()), " "),
            "amount": np.where(kinds == RowKind.UPDATE_AFTER.value, -1.0, ids / 7),
        },
        COLUMNS,
    )
    return RowChanges(NAME, rows, pa.array(kinds))


class MadeUpSource:
    """A source of some transactions; it says what is resident as it goes on."""

    identity = "made-up://events"

    def __init__(self, transactions: int) -> None:
        self.transactions = transactions

    def preflight(self) -> Sequence[SourceFinding]:
        return ()

    def tables(self) -> Sequence[SourceTable]:
        return [SourceTable(NAME, COLUMNS, ("id",))]

    def latest(self) -> Any:
        return {"log": self.transactions}

    def confirm(self, positions: Mapping[SourceName, Any]) -> None:
        pass

    def lag(self) -> Mapping[str, float]:
        return {}

    def close(self) -> None:
        pass

    def events(self, positions: Mapping[SourceName, Any], *, logs: bool, until_now: bool) -> Iterator[Event]:
        begin = positions[NAME]["log"] if NAME in positions else 0
        yield TableChanged(self.tables()[0])
        if NAME not in positions:
            yield TableLoaded(NAME)
        for number in range(begin, self.transactions):
            yield transaction(number)
            yield Border(lambda _, done=number + 1: {"log": done}, at=time.time())  # type: ignore[misc]
            if not (number + 1) % (1_000_000 // CHANGES):
                now, largest = resident()
                print(f"{(number + 1) * CHANGES:>12,} changes: {now:>6,} MiB, at most {largest:,}", flush=True)
        yield Border(lambda _: {"log": self.transactions}, caught_up=True)


def expected(transactions: int) -> tuple[int, float]:
    """Return how many rows are left, and the sum of their amounts."""
    count, total = 0, 0.0
    for number in range(transactions):
        ids = np.arange(number * NEW, (number + 1) * NEW)
        if number + 1 < transactions:
            ids = ids[ids % 8 != 2]
            total += np.where(ids % 8 == 1, -1.0, ids / 7).sum()
        else:
            total += (ids / 7).sum()
        count += len(ids)
    return count, float(total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--interval", type=float, default=60.0, help="commit_interval")
    given = parser.parse_args()
    transactions = given.events // CHANGES
    root = Path(tempfile.mkdtemp(prefix="lakefmt-bench-events-"))
    print(describe(root))
    begun = time.process_time()
    for number in range(min(100, transactions)):
        transaction(number)
    alone = (time.process_time() - begun) * transactions / min(100, transactions)
    try:
        begun, processor = time.perf_counter(), time.process_time()
        progress = lakefmt.cdc.follow(
            lambda: MadeUpSource(transactions),
            tables={"b.events": root / "events"},
            until_now=True,
            commit_interval=given.interval,
        )
        seconds, processor = time.perf_counter() - begun, time.process_time() - processor
        commits = sum(table.commits for table in progress.tables.values())
        now, largest = resident()
        rows = lakefmt.open_table(root / "events")
        found = (rows.count(), pc.sum(rows.read(columns=["amount"])["amount"]).as_py())
        count, total = expected(transactions)
        if found[0] != count or abs(found[1] - total) > abs(total) * 1e-9:
            raise SystemExit(f"the table has {found}, the source {(count, total)}")
        print(
            f"{transactions * CHANGES:,} changes in {commits} commits: {seconds:,.0f} s, {processor:,.0f} s of processor ({alone:,.0f} s of them "
            f"the source's), {transactions * CHANGES / seconds:,.0f} changes/s; {now:,} MiB, at most {largest:,}"
        )
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
