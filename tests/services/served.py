"""Tables on a virtual clock for the tests of services."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage.open import open_store
from lakefmt._core.table import Table
from lakefmt.testing.virtual_time import Process, VirtualTime

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
WRITE_ONLY = {"lakefmt.write.only": True, "lakefmt.durability": "none"}


class WallClock:
    """The wall clock of a process on virtual time."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._process.wall(), UTC)


def rows(ids: range, v: int = 0) -> pa.Table:
    return pa.table({"id": [f"k{i:05d}" for i in ids], "v": [v] * len(ids)}, schema=SCHEMA)


def opened(url: str, process: Process) -> Table:
    """A handle whose clock and waits are those of a virtual process."""
    return Table(TableClient(open_store(url), dict(WRITE_ONLY), WallClock(process), time_source=process))


def keyed(url: str, process: Process, commits: int = 0) -> Table:
    """A merge-on-read table with so many deltacommits of its writer, which runs no service."""
    lakefmt.create_table(url, schema=SCHEMA, record_key="id", table_type="mor", options=WRITE_ONLY)
    table = opened(url, process)
    for number in range(commits):
        process.sleep(1.0)
        table.upsert(rows(range(20), number))
    return table


def append_table(url: str, process: Process, partition_by: str | None = None) -> Table:
    """A table without keys that services pack."""
    lakefmt.create_table(url, schema=SCHEMA, kind="append", partition_by=partition_by, options=WRITE_ONLY)
    return opened(url, process)


def process() -> Process:
    return Process(VirtualTime())
