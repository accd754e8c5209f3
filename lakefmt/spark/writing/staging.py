"""Rows of a write on their way between Spark's tasks, and from them to the process that commits.

Between stages rows are packed as Arrow streams into a column of bytes. So a row keeps the type of the table's column, and a
shuffle moves a few large values instead of many rows.

Without a shuffle every task stages its rows in objects below ``.hoodie/.lakefmt/stage/<id>/``; the process that commits
reads those of the attempts that Spark names, and removes them all. No other engine looks there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.write.ingest import KeyedBatch
from lakefmt.errors import UnsupportedFeature

__all__ = [
    "COUNTED",
    "MAX_BYTES",
    "PREPARED",
    "ROUTED",
    "STAGE",
    "StagedRows",
    "by_partition",
    "check_size",
    "line_of",
    "new_stage",
    "pack",
    "pre_images",
    "read_staged",
    "remove_stage",
    "sorted_tables",
    "stage_rows",
    "unpack",
]

#: Rows of one partition path: where they come from, how many they are, and the rows.
PREPARED: Final = "partition string, source int, number int, rows bigint, bytes bigint, data binary"
#: How many rows a partition path has in one task, and packed rows.
COUNTED: Final = "partition string, rows bigint, bytes bigint, source int, number int, data binary"
#: Rows of one task.
ROUTED: Final = "slot int, source int, number int, rows bigint, data binary"


def pack(table: pa.Table) -> bytes:
    """Return rows as one Arrow stream.

    Example:
        >>> unpack(pack(pa.table({"n": [1, 2]}))).num_rows
        2
    """
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema, options=ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def unpack(data: Any) -> pa.Table:
    """Return the rows of :func:`pack`."""
    with ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


def line_of(values: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Return one line of packed rows, with what is said of them.

    Example:
        >>> line_of((1, b""), pa.schema([("rows", pa.int64()), ("data", pa.binary())])).to_pylist()
        [{'rows': 1, 'data': b''}]
    """
    columns = {name: [value] for name, value in zip(schema.names, values, strict=True)}
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def by_partition(batch: KeyedBatch) -> Iterator[tuple[str, pa.Table]]:
    """Yield each partition path with its rows, in their order."""
    codes = batch.partitions.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    distinct, starts = np.unique(codes[order], return_index=True)
    ends = np.append(starts[1:], len(codes))
    names = batch.partitions.dictionary
    alone = len(distinct) == 1
    for code, start, end in zip(distinct, starts, ends, strict=True):  # partitions, not rows
        yield names[int(code)].as_py(), batch.table if alone else batch.table.take(pa.array(order[start:end]))


def pre_images(slots: int) -> list[int]:
    """Return for each slot an integer that Spark's hash partitioning puts there: ``repartition(slots, column)``.

    Example:
        >>> pre_images(4)
        [12, 6, 2, 0]
    """
    images: dict[int, int] = {}
    number = 0
    while len(images) < slots:
        images.setdefault(_murmur3(number) % slots, number)
        number += 1
    return [images[slot] for slot in range(slots)]


def _murmur3(value: int) -> int:
    """Return Spark's hash of an integer: Murmur3 of four bytes, seed 42, as a signed number."""
    mask = 0xFFFFFFFF
    k = value * 0xCC9E2D51 & mask
    k = (k << 15 | k >> 17) * 0x1B873593 & mask
    h = 42 ^ k
    h = ((h << 13 | h >> 19) & mask) * 5 + 0xE6546B64 & mask
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def sorted_tables(batches: Iterable[pa.RecordBatch]) -> list[pa.Table]:
    """Return the rows of packed batches in the order of their sources."""
    packed = pa.Table.from_batches(list(batches)).sort_by([("source", "ascending"), ("number", "ascending")])
    return [unpack(value.as_buffer()) for value in packed.column("data")]


STAGE: Final = ".hoodie/.lakefmt/stage"
#: More rows, as Arrow holds them, than one process may take by default.
MAX_BYTES: Final = 1 << 30
#: Rows are put when they have this many bytes.
_STAGED_OBJECT_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What one attempt of a task has staged.

    Attributes:
        names: its objects, in the order of their rows.
        rows: their rows.
        num_bytes: the bytes of the rows, as Arrow holds them.
    """

    names: tuple[str, ...] = ()
    rows: int = 0
    num_bytes: int = 0


def new_stage() -> str:
    """Return the directory of a new write, relative to the table."""
    return f"{STAGE}/{uuid4().hex}"


def stage_rows(
    store: ObjectStore, stage: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema, limit: int = MAX_BYTES
) -> StagedRows:
    """Put the rows of one attempt of a task; its objects have names of their own.

    Args:
        store: the table's.
        stage: from :func:`new_stage`.
        batches: the rows.
        schema: what they are cast to.
        limit: bytes that one attempt may stage.

    Raises:
        UnsupportedFeature: there are more rows than one process should take.
    """
    attempt = uuid4().hex
    names: list[str] = []
    pending: list[pa.RecordBatch] = []
    held_bytes = rows = total = 0
    for batch in batches:
        pending.append(batch.select(schema.names).cast(schema))
        held_bytes += pending[-1].nbytes
        rows, total = rows + batch.num_rows, total + pending[-1].nbytes
        check_size(total, limit)
        if held_bytes >= _STAGED_OBJECT_BYTES:
            names.append(_put_staged(store, f"{stage}/{attempt}-{len(names)}.arrow", pending, schema))
            pending, held_bytes = [], 0
    if rows and pending:
        names.append(_put_staged(store, f"{stage}/{attempt}-{len(names)}.arrow", pending, schema))
    return StagedRows(tuple(names), rows, total)


def check_size(num_bytes: int, limit: int) -> None:
    """Raise when a write has more bytes of rows than one process should take.

    Raises:
        UnsupportedFeature: it has.
    """
    if num_bytes > limit:
        raise UnsupportedFeature(
            f"the rows of this write take more than {limit:,} bytes, and one process writes them: split the write, or raise "
            "lakefmt.spark.stage.max.bytes if that process has the memory"
        )


def _put_staged(store: ObjectStore, name: str, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> str:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, schema, options=ipc.IpcWriteOptions(compression="lz4")) as writer:
        for batch in batches:
            writer.write_batch(batch)
    store.put(name, sink.getvalue())
    return name


def read_staged(store: ObjectStore, staged: Iterable[StagedRows]) -> Iterator[pa.Table]:
    """Yield the rows of the attempts that count, object by object."""
    for part in staged:
        for name in part.names:
            with ipc.open_stream(pa.py_buffer(store.read(name))) as reader:
                yield reader.read_all()


def remove_stage(store: ObjectStore, stage: str) -> None:
    """Remove everything that a write has staged; twice is fine."""
    store.delete_tree(stage)
