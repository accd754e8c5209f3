"""A handle keeps what it read of files only as long as they are there, whoever removes them."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.reader import Kept
from lakefmt._core.index import key_reader as index_files
from lakefmt._core.index.key_reader import key_files
from lakefmt._core.table import Table
from lakefmt._core.values import FileId, InstantTime, PartitionPath

NUMBERS = itertools.count()
COMMITS = 200
RETAINED = 2


def rows(ts: int) -> pa.Table:
    return pa.table({"id": ["a", "b"], "city": ["x", "y"], "ts": [ts, ts]})


def kept_of(table: Table) -> dict[str, int]:
    """Return how many entries each cache of a handle has."""
    key_files(table.client)
    counts = {f"files {number}": len(kept) for number, kept in enumerate(table.client.reader.kept)}
    return {**counts, "commits": len(table.client.cache.commits)}


def files_of(table: Table) -> int:
    return len([item for item in table.client.store.list() if item.name.endswith(".parquet") and "city=" in item.name])


@pytest.mark.slow
@pytest.mark.parametrize("cleaner", ["this handle", "another handle"])
def test_two_hundred_commits_with_cleaning_leave_little(cleaner: str) -> None:
    little = {
        "hoodie.clean.automatic": cleaner == "this handle",
        "hoodie.clean.commits.retained": RETAINED,
        "hoodie.keep.min.commits": 4,
        "hoodie.keep.max.commits": 8,
    }
    url = f"memory://kept-{next(NUMBERS)}"
    table = lakefmt.create_table(url, data=rows(0), record_key="id", partition_by="city", ordering="ts", options=little)
    other = lakefmt.open_table(url, options=little)
    for number in range(COMMITS):
        table.upsert(rows(number))
        if number % 10 == 9:
            table.read(filter=[("id", "=", "a")])
            table.check()
            if cleaner == "another handle":
                other.clean()
    table.upsert(rows(COMMITS))
    # What is there, and what was there at the last look but one.
    most = files_of(table) + 2 * (RETAINED + 1)
    assert {name: count for name, count in kept_of(table).items() if name != "commits" and count > most} == {}
    assert kept_of(table)["commits"] <= 4 * 8


def file(partition: str, name: str, size: int = 1) -> BaseFile:
    return BaseFile(PartitionPath(partition), name, FileId(name), "0-0-0", InstantTime("20260101000000000"), size)


def test_what_was_not_listed_stays() -> None:
    kept = Kept[str](100)
    for partition, name in itertools.product("pq", "ab"):
        kept.keep(file(partition, name), partition + name, 10)
    kept.forget_absent([PartitionPath("p"), PartitionPath("none")], [file("p", "a"), file("p", "new")])
    assert [kept.get(file(p, n)) for p, n in itertools.product("pq", "ab")] == ["pa", None, "qa", "qb"]
    kept.forget_absent([PartitionPath("p")], [file("p", "a", size=2)])
    assert kept.get(file("p", "a")) is None, "another file of that name"
    kept.forget_absent(None, [file("q", "b")])
    assert (len(kept), kept.weight) == (1, 10)


def test_the_bound_holds_as_before() -> None:
    kept = Kept[int](25)
    for number in range(5):
        kept.keep(file("p", str(number)), number, 10)
        kept.get(file("p", "0"))
    assert [number for number in range(5) if kept.get(file("p", str(number))) is not None] == [0, 4]
    kept.keep(file("p", "huge"), 1, 26)
    assert (len(kept), kept.weight) == (2, 20)


def test_the_count_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_files.Kept, "forget_absent", lambda *_: None)
    with pytest.raises(AssertionError):
        test_what_was_not_listed_stays()
