"""Writes whose keys tasks look up first (effects): find file groups, plan their files, hand the rows out, write.

For rows of a partition path that are more than one task takes, and for keys that may be in any partition path.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.data_classes import dataclass
from lakefmt.formats.bloom.murmur import murmur_hadoop
from lakefmt.spark.writing.packed_rows import line_of, pack, sorted_tables, unpack
from lakefmt.spark.writing.plan import FILES_OF_A_TASK
from lakefmt.spark.writing.tasks import Task, done_batch, task_rows
from lakefmt.values import RECORD_KEY, FileId, PartitionPath
from lakefmt.write.task_groups import NEW, FoundRows, GroupToWrite
from lakefmt.write.task_writer import SharedWrite, TaskWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "HANDED",
    "LOCATED",
    "LOCATED_ROWS",
    "Handing",
    "found_rows",
    "group_task",
    "hand_out_task",
    "locate_task",
    "plan_handing",
]

#: Rows of one file group, or new ones of one partition path; and a line that says how many rows a task was given.
LOCATED: Final = (
    "partition string, file string, source int, number int, rows bigint, given bigint, size double, data binary"
)
#: Rows of one file group.
HANDED: Final = "slot int, file_group int, source int, number int, rows bigint, data binary"

LOCATED_ROWS: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("file", pa.string()),
        ("source", pa.int32()),
        ("number", pa.int32()),
        ("rows", pa.int64()),
        ("given", pa.int64()),
        ("size", pa.float64()),
        ("data", pa.binary()),
    ]
)
_HANDED: Final = pa.schema(
    [
        ("slot", pa.int32()),
        ("file_group", pa.int32()),
        ("source", pa.int32()),
        ("number", pa.int32()),
        ("rows", pa.int64()),
        ("data", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Handing:
    """Which rows go where: made on the driver from counts.

    Attributes:
        groups: the files to write.
        slots: the task of each.
        num_slots: how many tasks there are.
        numbers: the file of rows whose key is in a file group, by partition path and file id.
        shares: of new rows: by partition path the files that take them, and up to which hash each does.
    """

    groups: Sequence[GroupToWrite]
    slots: Sequence[int]
    num_slots: int
    numbers: Mapping[tuple[str, str], int]
    shares: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]


def plan_handing(groups: Sequence[GroupToWrite], record_bytes: float, task_bytes: int, tasks: int) -> Handing:
    """Return which rows go where (pure).

    Args:
        groups: the files to write.
        record_bytes: the bytes that a stored row takes.
        task_bytes: what a task should get, rows and stored files together.
        tasks: no more tasks.
    """
    weights = [
        task_bytes // FILES_OF_A_TASK
        + int((group.found_rows + group.new_rows) * record_bytes)
        + (0 if group.assignment.base is None else group.assignment.base.size)
        for group in groups
    ]
    num_slots = max(1, min(tasks, len(groups), -(-sum(weights) // task_bytes)))
    slots, load = [0] * len(groups), [(0, slot) for slot in range(num_slots)]
    for number in sorted(range(len(groups)), key=lambda n: -weights[n]):  # the largest first, each to the least loaded
        taken, slot = heapq.heappop(load)
        slots[number] = slot
        heapq.heappush(load, (taken + weights[number], slot))
    numbers: dict[tuple[str, str], int] = {
        (g.assignment.partition, g.assignment.file_id): n for n, g in enumerate(groups)
    }
    taking: dict[str, list[int]] = {}
    for number, group in enumerate(groups):
        if group.new_rows:
            taking.setdefault(group.assignment.partition, []).append(number)
    shares = {
        partition: (tuple(some), _bounds([groups[n].new_rows for n in some])) for partition, some in taking.items()
    }
    return Handing(groups, slots, num_slots, numbers, shares)


def _bounds(counts: Sequence[int]) -> tuple[int, ...]:
    """Return up to which 32-bit hash each file takes new rows.

    Example:
        >>> _bounds([1, 1]) == (1 << 31, 1 << 32)
        True
    """
    ends = np.cumsum(np.array(counts, np.float64))
    bounds = np.ceil(ends / ends[-1] * (1 << 32)).astype(np.int64)
    bounds[-1] = 1 << 32
    return tuple(map(int, bounds))


def found_rows(located: DataFrame) -> tuple[list[FoundRows], int, float]:
    """Return what tasks have found, how many rows they were given, and the bytes of a stored row."""
    from pyspark.sql import functions as f

    sums = [f.sum("rows").alias("rows"), f.sum("given").alias("given"), f.max("size").alias("size")]
    counted = located.groupBy("partition", "file").agg(*sums).collect()
    located = [
        FoundRows(PartitionPath(row["partition"]), FileId(row["file"]), row["rows"]) for row in counted if row["rows"]
    ]
    located.sort(key=lambda each: (each.partition, each.file_id))
    return located, sum(row["given"] for row in counted), max((row["size"] for row in counted), default=0.0)


def locate_task(shared: SharedWrite, storage: Mapping[str, object], slot_of: Callable[[int], int]) -> Task:
    """Return the task that looks up the keys of its rows."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task, tables in task_rows(batches, slot_of):
            writer, rows = TaskWriter(shared, task, storage), pa.concat_tables(tables)
            number = -1
            for number, (located, size, table) in enumerate(writer.locate(rows)):
                line = (located.partition, located.file_id, task, number, located.rows, 0, size, pack(table))
                yield line_of(line, LOCATED_ROWS)
            yield line_of(("", "", task, number + 1, 0, rows.num_rows, 0.0, b""), LOCATED_ROWS)

    return run


def hand_out_task(handing: Handing, images: Sequence[int]) -> Task:
    """Return the task that tells located rows their file and its task; new rows are spread by their keys."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():  # packed rows, not rows
                if not row["rows"]:
                    continue
                for number, table in _files(row):
                    data = row["data"] if table is None else pack(table)
                    rows = row["rows"] if table is None else table.num_rows
                    line = (images[handing.slots[number]], number, row["source"], row["number"], rows, data)
                    yield line_of(line, _HANDED)

    def _files(row: Mapping[str, Any]) -> list[tuple[int, pa.Table | None]]:
        partition, file_id = row["partition"], row["file"]
        if file_id != NEW:
            return [(handing.numbers[partition, file_id], None)]
        files, bounds = handing.shares[partition]
        if len(files) == 1:
            return [(files[0], None)]
        rows = unpack(row["data"])
        hashes = murmur_hadoop(rows.column(RECORD_KEY), 2).astype(np.int64)
        share = np.searchsorted(np.array(bounds), hashes, side="right")
        return [(files[n], rows.filter(pa.array(share == n))) for n in map(int, np.unique(share))]

    return run


def group_task(
    handing: Handing, shared: SharedWrite, storage: Mapping[str, object], slot_of: Callable[[int], int]
) -> Task:
    """Return the task that writes its files, one file group after the other."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        slots = {slot for batch in held for slot in batch.column("slot").unique().to_pylist()}
        for slot in sorted(slots):
            writer = TaskWriter(shared, slot_of(slot), storage)
            own_rows = pa.Table.from_batches(held).filter(pc.field("slot") == slot)
            for number in sorted(own_rows.column("file_group").unique().to_pylist()):  # files, not rows
                packed = own_rows.filter(pc.field("file_group") == number)
                writer.write_group(handing.groups[number], sorted_tables(packed.to_batches()))
            yield done_batch(writer.result())

    return run
