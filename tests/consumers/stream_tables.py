"""Tables and helpers of the tests of streams."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

import lakefmt
from lakefmt._core.consumers.stream import StreamBatch
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.testing.virtual_time import Process, VirtualTime

_NUMBERS = itertools.count()
FAST = {"lakefmt.durability": "none", "lakefmt.write.threads": 1}
SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])


def append_table(options: dict[str, object] | None = None, **asked: object) -> lakefmt.Table:
    """A table without record keys, in memory."""
    asked.setdefault("schema", SCHEMA)
    asked.setdefault("partition_by", "p")
    return lakefmt.create_table(
        f"memory://streams/{next(_NUMBERS)}",
        options={**FAST, **(options or {})},
        **asked,  # type: ignore[arg-type]
    )


def keyed_table(**asked: object) -> lakefmt.Table:
    """A table with record keys, in memory."""
    return append_table(record_key="id", **asked)


def rows(*ids: int, p: str = "a") -> pa.Table:
    return pa.table({"id": list(ids), "p": [p] * len(ids)}, schema=SCHEMA)


def ids(batches: Iterable[StreamBatch]) -> list[int]:
    """The ids in the order of the stream."""
    return [value for batch in batches for value in batch.rows["id"].to_pylist()]


def bag(batches: Iterable[StreamBatch]) -> Counter[int]:
    return Counter(ids(batches))


def read_all(table: lakefmt.Table, start: object = "earliest", **asked: object) -> list[StreamBatch]:
    with table.stream(start, follow=False, **asked) as stream:  # type: ignore[arg-type]
        return list(stream)


class VirtualClock:
    """The wall clock of a process on virtual time."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now(self):  # type: ignore[no-untyped-def]
        from datetime import UTC, datetime

        return datetime.fromtimestamp(self._process.wall(), UTC)


def on_virtual_time(table: lakefmt.Table, time: VirtualTime) -> lakefmt.Table:
    """The table as a process on virtual time sees it."""
    process = Process(time)
    client = table.client
    moved = type(client)(
        client.store,
        dict(client.options),
        VirtualClock(process),  # type: ignore[arg-type]
        client.ids,
        process,
        metadata_listing=client.metadata_listing,
    )
    return lakefmt.Table(moved)


__all__ = [
    "FAST",
    "SCHEMA",
    "MemoryStore",
    "append_table",
    "bag",
    "ids",
    "keyed_table",
    "on_virtual_time",
    "read_all",
    "rows",
]
