"""Writes whose keys the driver looks up, because it has the index alone (effects): combine, ask, tell the rows their file group.

Tasks combine rows and send their keys; the driver asks the index for some of them at a time, and sends back one line for each
piece of rows. So it holds keys of some pieces and the answers to all, never rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from lakefmt.spark.writing.lookup import LOCATED, LOCATED_ROWS
from lakefmt.spark.writing.packed_rows import by_partition, line_of, pack, unpack
from lakefmt.spark.writing.tasks import Task, task_rows
from lakefmt.values import RECORD_KEY
from lakefmt.write.task_writer import SharedWrite, TaskWriter, find_keys
from lakefmt.write.transaction import WriteTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["COMBINED", "combine_task", "join_answers", "look_up_here"]

#: Rows of one partition path, and their keys; and a line that says how many rows a task was given.
COMBINED: Final = (
    "partition string, source int, number int, rows bigint, given bigint, size double, keys binary, data binary"
)
#: How many rows one answer is about.
_PIECE_ROWS: Final = 1 << 16
#: Packed keys and answers take less than they do unpacked, and an index needs room of its own.
_PACKED_SHARE: Final = 8

_COMBINED: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("source", pa.int32()),
        ("number", pa.int32()),
        ("rows", pa.int64()),
        ("given", pa.int64()),
        ("size", pa.float64()),
        ("keys", pa.binary()),
        ("data", pa.binary()),
    ]
)
_ANSWERS: Final = "source int, number int, answer binary"

Answer = tuple[int, int, bytearray]


def combine_task(shared: SharedWrite, storage: Mapping[str, object], slot_of: Callable[[int], int]) -> Task:
    """Return the task that keys and combines its rows, and packs their keys beside them."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task, tables in task_rows(batches, slot_of):
            writer, rows, number = TaskWriter(shared, task, storage), pa.concat_tables(tables), 0
            batch, size = writer.combine(rows)
            for partition, own_rows in by_partition(batch):
                for start in range(0, own_rows.num_rows, _PIECE_ROWS):  # pieces, not rows
                    part = own_rows.slice(start, _PIECE_ROWS)
                    keys = pack(part.select([RECORD_KEY]))
                    yield line_of((partition, task, number, part.num_rows, 0, size, keys, pack(part)), _COMBINED)
                    number += 1
            yield line_of(("", task, number, 0, rows.num_rows, 0.0, b"", b""), _COMBINED)

    return run


def look_up_here(
    transaction: WriteTransaction,
    combined: DataFrame,
    names: Sequence[str],
    most_bytes: int,
    *,
    anywhere: bool = False,
) -> list[Answer]:
    """Ask the index of a write for the keys of all pieces.

    Args:
        transaction: the write.
        combined: what :func:`combine_task` answers; kept by Spark.
        names: the columns of the rows.
        most_bytes: of keys that are held at once, about.
        anywhere: the keys are deleted wherever they are.

    Returns:
        For each piece the file groups of its rows, packed.
    """
    answers: list[Answer] = []
    held: list[Any] = []
    held_bytes = 0
    for line in combined.where("rows > 0").select("partition", "source", "number", "keys").toLocalIterator():
        held.append(line)
        held_bytes += len(line["keys"])
        if held_bytes >= most_bytes // _PACKED_SHARE:
            answers += _answers(transaction, held, names, anywhere=anywhere)
            held, held_bytes = [], 0
    answers += _answers(transaction, held, names, anywhere=anywhere) if held else ()
    return answers


def _answers(
    transaction: WriteTransaction, lines: Sequence[Any], names: Sequence[str], *, anywhere: bool
) -> Iterable[Answer]:
    """Yield the answers to some pieces: for each pair of row and file group the row's number and the group's path."""
    parts = [unpack(line["keys"])[RECORD_KEY].combine_chunks() for line in lines]
    ends = np.cumsum([len(part) for part in parts])
    codes = {name: code for code, name in enumerate(dict.fromkeys(line["partition"] for line in lines))}
    indices = np.repeat(np.array([codes[line["partition"]] for line in lines], np.int32), [len(part) for part in parts])
    partitions = pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(list(codes), pa.string()))
    meant_for = None if anywhere else partitions
    groups_of_rows = list(find_keys(transaction, pa.concat_arrays(parts), meant_for, names))
    rows = np.concatenate([np.empty(0, np.int64), *(some for _, some in groups_of_rows)])
    files = np.repeat(np.arange(len(groups_of_rows), dtype=np.int32), [len(some) for _, some in groups_of_rows])
    order = np.argsort(rows, kind="stable")
    rows, files = rows[order], files[order]
    paths = pa.array([f"{each.partition}/{each.file_id}" for each, _ in groups_of_rows], pa.string())
    for line, begin, end in zip(lines, [0, *ends[:-1]], ends, strict=True):
        first, last = np.searchsorted(rows, [begin, end])
        numbers, own_ids = np.unique(files[first:last], return_inverse=True)
        groups = pa.DictionaryArray.from_arrays(pa.array(own_ids.astype(np.int32)), paths.take(pa.array(numbers)))
        answer = pa.table({"row": pa.array((rows[first:last] - begin).astype(np.int32)), "file": groups})
        yield line["source"], line["number"], bytearray(pack(answer))


def join_answers(combined: DataFrame, answers: Sequence[Answer]) -> DataFrame:
    """Return rows by file group, as the look-up by tasks does.

    Args:
        combined: what :func:`combine_task` answers.
        answers: what :func:`look_up_here` found.
    """
    from pyspark.sql import functions as f

    answered = f.broadcast(combined.sparkSession.createDataFrame(answers, _ANSWERS))
    rows = combined.drop("keys").join(answered, ["source", "number"], "left")
    names = [name for name in _COMBINED.names if name != "keys"]
    return rows.select(*names, "answer").mapInArrow(_split_by_answer, LOCATED)


def _split_by_answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of each file group."""
    for batch in batches:
        for line in batch.to_pylist():  # packed rows, not rows
            if not line["rows"]:
                yield line_of(("", "", line["source"], line["number"], 0, line["given"], 0.0, b""), LOCATED_ROWS)
                continue
            rows, answer = unpack(line["data"]), unpack(line["answer"])
            groups = answer["file"].combine_chunks()
            codes, numbers = groups.indices.to_numpy(), answer["row"].to_numpy()
            for code, path in enumerate(groups.dictionary.to_pylist()):  # file groups, not rows
                own_rows = rows.take(pa.array(numbers[codes == code]))
                partition, _, file_id = path.rpartition("/")
                where = (partition, file_id, line["source"], line["number"])
                yield line_of((*where, own_rows.num_rows, 0, line["size"], pack(own_rows)), LOCATED_ROWS)
