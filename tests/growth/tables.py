"""Tables of a size, made once: rows, files, partitions, commits and so on grow apart from each other."""

from __future__ import annotations

import functools
import itertools
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import lakefmt
from lakefmt._core.formats.parquet import base_file
from lakefmt._core.table import Table

__all__ = [
    "appended",
    "archived",
    "buckets",
    "columns",
    "commits",
    "files",
    "foreign",
    "logs",
    "partitions",
    "plain",
    "row_groups",
    "rows",
    "small",
    "with_index",
]

_NUMBERS = itertools.count()
#: No service runs after a commit, unless a line asks for it.
_OPTIONS = {"lakefmt.durability": "none", "lakefmt.write.only": "true", "lakefmt.write.threads": "1"}


def rows(count: int, first: int = 0, city: int = 0, columns: int = 1, ts: int = 1) -> pa.Table:
    """Return rows with keys that follow each other, in one partition."""
    numbers = range(first, first + count)
    fixed = {
        "id": pa.array([f"k{number:09}" for number in numbers]),
        "city": pa.array([f"c{city:06}"] * count, pa.string()),
        "ts": pa.array([ts] * count, pa.int64()),
    }
    return pa.table(fixed | {f"v{place:06}": pa.array([float(n) for n in numbers]) for place in range(columns)})


def small(first: int = 0, count: int = 7, **more: int) -> pa.Table:
    """Return the rows of a small commit."""
    return rows(count, first, ts=9, **more)


def _table(schema: pa.Schema, **more: Any) -> Table:
    usual: dict[str, Any] = {"schema": schema, "record_key": "id", "partition_by": "city", "ordering": "ts"}
    options = _OPTIONS | more.pop("options", {})
    return lakefmt.create_table(f"memory://growth-{next(_NUMBERS)}", **(usual | more), options=options)


@functools.cache
def plain(count: int, kind: str = "cow", columns: int = 1, index: str = "bloom") -> Table:
    """Return a table of one file, with so many rows and columns."""
    data = rows(count, columns=columns)
    table = _table(data.schema, table_type=kind, index=index)
    table.bulk_insert(data)
    return table


def columns(count: int, kind: str = "cow") -> Table:
    """Return a table with so many columns."""
    return plain(20, kind, count)


@functools.cache
def files(count: int, kind: str = "cow", metadata: bool = False) -> Table:
    """Return a table of one partition with so many files of one commit, each with ten rows in the order of their keys."""
    data = rows(10 * count)
    table = _table(data.schema, table_type=kind, indexes=["column_stats"] if metadata else None)
    few = {"hoodie.parquet.max.file.size": "1024", "hoodie.copyonwrite.record.size.estimate": "102"}
    table.bulk_insert(data, options=few)
    return table


@functools.cache
def partitions(count: int, kind: str = "cow", metadata: bool = False) -> Table:
    """Return a table of so many partitions, each of one file, of one commit."""
    data = pa.concat_tables([rows(10, 10 * number, number) for number in range(count)])
    table = _table(data.schema, table_type=kind, indexes=["column_stats"] if metadata else None)
    table.bulk_insert(data)
    return table


@functools.cache
def damaged(count: int) -> Table:
    """Return a table of so many files, each cut off before its footer."""
    table = _copy(files(count))
    store = table.client.store
    for found in [*store.list()]:
        if found.name.endswith(".parquet"):
            store.put(found.name, store.read(found.name)[:-9])
    return table


@functools.cache
def unnamed(count: int) -> Table:
    """Return a table of so many files, with as many beside them that no commit names: a third with the times of commits."""
    table = _copy(files(count))
    store = table.client.store
    for number, found in enumerate([*store.list()]):
        name, ends = found.name.rpartition("_")[::2]
        if ends.endswith(".parquet"):
            time = ends.removesuffix(".parquet")
            other = (f"{name}9_{time}", f"{name}_{int(time) + 1}", f"{name}_{int(time) - 1}")[number % 3]
            store.put(f"{other}.parquet", store.read(found.name))
    return table


def _copy(table: Table) -> Table:
    made = _table(small().schema)
    for found in table.client.store.list():
        made.client.store.put(found.name, table.client.store.read(found.name))
    return made


@functools.cache
def row_groups(count: int) -> Table:
    """Return a table of one file with so many row groups."""
    data = rows(10 * count)
    table = _table(data.schema)
    with patch.object(base_file, "_MOST_GROUP_ROWS", 10):
        table.bulk_insert(data)
    return table


@functools.cache
def commits(count: int, kind: str = "cow", metadata: bool = False) -> Table:
    """Return a table with so many active commits, each of the same seven rows."""
    table = _table(small().schema, table_type=kind, indexes=["column_stats"] if metadata else None)
    for number in range(count):
        table.upsert(rows(7, ts=number))
    return table


@functools.cache
def logs(count: int, apart: bool = False) -> Table:
    """Return a table of one file slice with so many logs, of the same keys or each of its own."""
    data = rows(7 * (count if apart else 1))
    table = _table(data.schema, table_type="mor")
    table.bulk_insert(data)
    for number in range(count):
        table.upsert(rows(7, 7 * number if apart else 0, ts=2 + number))
    return table


def empty() -> Table:
    """Return a table without rows."""
    return _table(small().schema)


@functools.cache
def twice(count: int) -> Table:
    """Return a table of so many files that were written twice."""
    made = _copy(partitions(count))
    made.upsert(pa.concat_tables([rows(10, 10 * number, number, ts=5) for number in range(count)]))
    return made


@functools.cache
def logged(count: int) -> Table:
    """Return a table of so many file slices with a log each."""
    data = pa.concat_tables([rows(10, 10 * number, number) for number in range(count)])
    table = _table(data.schema, table_type="mor")
    table.bulk_insert(data)
    table.upsert(data)
    return table


@functools.cache
def archived(count: int, kind: str = "cow") -> Table:
    """Return a table with so many archived instants, and a few active ones."""
    table = _table(small().schema, table_type=kind)
    few = {"hoodie.keep.min.commits": "4", "hoodie.keep.max.commits": "5", "hoodie.clean.commits.retained": "2"}
    for number in range(count + 4):
        table.upsert(rows(7, ts=number))
        if number % 8 == 7:
            if kind == "mor":
                table.compact(options={"hoodie.compact.inline.max.delta.commits": "1"})
            table.clean(options=few)
            table.archive(options=few)
    return table


@functools.cache
def foreign(count: int, kind: str = "cow") -> Table:
    """Return a table with so many files beside its own that no instant names, in the folder of its partition."""
    table = _table(small().schema, table_type=kind)
    table.upsert(small())
    for number in range(count):
        table.client.store.put(f"city=c000000/notes-{number:06}.txt", b"x")
    return table


@functools.cache
def buckets(count: int) -> Table:
    """Return a table of a bucket index with so many buckets."""
    data = rows(20 * count)
    table = _table(data.schema, index="bucket", properties={"hoodie.bucket.index.num.buckets": str(count)})
    table.bulk_insert(data)
    return table


@functools.cache
def with_index(count: int, index: str) -> Table:
    """Return a table of one file with so many rows, which finds keys by an index."""
    data = rows(count)
    table = _table(data.schema, index=index)
    table.bulk_insert(data)
    return table


@functools.cache
def appended(count: int) -> Table:
    """Return an append table of so many commits."""
    table = _table(small().schema, kind="append", record_key=None, ordering=None)
    for number in range(count):
        table.append(small(7 * number))
    return table
