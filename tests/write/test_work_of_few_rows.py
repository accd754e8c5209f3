"""What a commit of few rows does beside writing its rows: counted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.filegroups.log_writer import LogToWrite, write_logs
from lakefmt._core.formats.names import parse_log_file
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.table import Table
from lakefmt._core.write.files import base_file
from lakefmt.errors import StorageError

BUCKETS = 4


def rows(first: int, count: int, value: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"id": [f"k{number}" for number in numbers], "v": [value] * count})


def make(folder: Path, durability: str) -> Table:
    return lakefmt.create_table(
        str(folder / "t"),
        data=rows(0, 1, 0),
        record_key="id",
        table_type="mor",
        index="bucket",
        properties={"hoodie.bucket.index.num.buckets": str(BUCKETS)},
        options={
            "lakefmt.durability": durability,
            "lakefmt.write.threads": 4,
            "hoodie.compact.inline": False,
            "hoodie.metadata.enable": False,
        },
    )


@pytest.mark.parametrize(
    ("durability", "count", "threads"), [("none", 100, 1), ("fsync", 100, 1), ("none", 3000, 4), ("fsync", 3000, 4)]
)
def test_few_rows_of_logs_start_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str, count: int, threads: int
) -> None:
    table = make(tmp_path, durability)
    table.upsert(rows(0, count, 1))
    started: list[int] = []
    init = base_file.WorkerPool.__init__

    def begin(self: base_file.WorkerPool, number: int) -> None:
        started.append(number)
        init(self, number)

    monkeypatch.setattr(base_file.WorkerPool, "__init__", begin)
    table.upsert(rows(0, count, 2))
    assert started == [threads]
    assert table.read().num_rows == count
    assert set(table.read()["v"].to_pylist()) == {2}


def test_a_write_of_few_rows_that_fails_in_the_middle_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path, "none")
    table.upsert(rows(0, 100, 1))
    before = {item.name for item in table.client.store.list()}
    calls: list[object] = []
    original = write_logs

    def write(store: ObjectStore, log: LogToWrite) -> object:
        calls.append(log)
        if len(calls) == 3:
            raise StorageError("no space", transient=False)
        return original(store, log)

    with monkeypatch.context() as patch:
        patch.setattr("lakefmt._core.write.files.log_payloads.write_logs", write)
        with pytest.raises(StorageError):
            table.upsert(rows(0, 100, 2))
    assert len(calls) == 3
    assert not {item.name for item in table.client.store.list() if ".log." in item.name} - before
    assert set(table.read()["v"].to_pylist()) == {1}
    table.upsert(rows(0, 100, 3))
    assert set(table.read()["v"].to_pylist()) == {3}


def test_a_name_is_parsed_once(tmp_path: Path) -> None:
    table = make(tmp_path, "none")
    for value in range(3):
        table.upsert(rows(0, 100, value))
    before = parse_log_file.cache_info().misses
    table.upsert(rows(0, 100, 9))
    # New are the logs of the commit before, and names that are no logs.
    assert parse_log_file.cache_info().misses - before <= 2 * BUCKETS
