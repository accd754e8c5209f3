"""The law of snapshots: a scan begun before commit, compaction, clean and archive shows the old rows, or says that they are gone.

Systematically: after every batch of the scan, each chain of writes and services happens; then the rest is drained.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakefmt
from lakefmt.errors import SnapshotExpired

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
NUMBERS = itertools.count()
CITIES = [f"c{n}" for n in range(4)]
OPTIONS: dict[str, object] = {
    "hoodie.parquet.small.file.limit": 0,
    "lakefmt.durability": "none",
    "hoodie.clean.automatic": False,
}


def rows(n: int, first: int = 0, last: int = 12) -> pa.Table:
    ids = range(first, last)
    made = {"id": [f"k{i}" for i in ids], "city": [CITIES[i % 4] for i in ids], "n": [n] * len(ids)}
    return pa.table(made, schema=SCHEMA)


def make(table_type: str, version: int, place: str) -> lakefmt.Table:
    table = lakefmt.create_table(
        place or f"memory://law-{next(NUMBERS)}",
        schema=SCHEMA,
        record_key="id",
        partition_by="city",
        table_type=table_type,
        table_version=version,
        options=OPTIONS,
    )
    table.upsert(rows(1))
    table.upsert(rows(2, 0, 7))
    table.delete(["k0", "k11"])
    return table


def commit(table: lakefmt.Table) -> None:
    table.upsert(rows(3, 2, 14))


def compact(table: lakefmt.Table) -> None:
    if table.properties.table_type.value == "MERGE_ON_READ":
        table.compact()


def clean(table: lakefmt.Table) -> None:
    table.clean(options={"hoodie.clean.commits.retained": 1})


def archive(table: lakefmt.Table) -> None:
    if table.properties.version.value != 6:
        table.archive(options={"hoodie.keep.min.commits": 1, "hoodie.keep.max.commits": 2})


def overwrite(table: lakefmt.Table) -> None:
    table.insert_overwrite(rows(4, 0, 2))


Verb = Callable[[lakefmt.Table], None]
CHAINS: dict[str, list[Verb]] = {
    "commit": [commit],
    "compact": [commit, compact],
    "clean": [commit, compact, commit, clean],
    "archive": [commit, compact, commit, compact, commit, clean, archive],
    "overwritten": [overwrite, commit, commit, clean],
}


def multiset(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def check_law(make_one: Callable[[], lakefmt.Table], chain: list[Verb], columns: list[str] | None, after: int) -> str:
    """Run the chain after so many batches; return what became of the scan: how many batches it had, or that it ended."""
    table = make_one()
    pinned = table.snapshot()
    before = multiset(table.read(columns))
    stream = pinned.scan(columns)
    batches = list(itertools.islice(stream, after))
    for verb in chain:
        verb(table)
    try:
        batches += list(stream)
        assert multiset(pa.Table.from_batches(batches, stream.schema)) == before, "a mix, or fewer rows"
        outcome = "whole"
    except SnapshotExpired:
        seen = multiset(pa.Table.from_batches(batches, stream.schema))
        assert not seen - before, "what came before the error is of the old state"
        outcome = "expired"
    try:
        assert multiset(pinned.read(columns)) == before, "the snapshot read again"
    except SnapshotExpired:
        assert outcome == "expired" or "clean" in [verb.__name__ for verb in chain]
    return outcome


@pytest.mark.slow
@pytest.mark.in_turn(3)
@pytest.mark.parametrize("chain", list(CHAINS))
@pytest.mark.parametrize(("table_type", "version"), [("cow", 8), ("mor", 6), ("mor", 8)])
def test_a_scan_is_of_one_state_or_expires(table_type: str, version: int, chain: str) -> None:
    outcomes = [
        check_law(lambda: make(table_type, version, ""), CHAINS[chain], columns, after)
        for after, columns in ((0, None), (1, ["n"]), (3, None), (5, ["n"]))
    ]
    if chain in ("commit", "compact"):
        assert set(outcomes) == {"whole"}, "nothing was removed"
    elif table_type == "mor":
        assert outcomes[0] == "expired", "the check is one: files of it are gone"


@pytest.mark.parametrize("table_type", ["cow", "mor"])
def test_the_same_on_a_disk(tmp_path: Any, table_type: str) -> None:
    for after in (0, 2):
        place = str(tmp_path / f"{table_type}{after}")
        check_law(lambda place=place: make(table_type, 8, place), CHAINS["archive"], None, after)  # type: ignore[misc]
