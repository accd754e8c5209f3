"""Which row goes to which file (pure): updates go home, inserts fill small files before new ones are opened.

Counts in equal counts out: every routed row is in exactly one assignment per place where its key lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt.filegroups.model import FileSlice
from lakefmt.formats.names import base_file_name
from lakefmt.index.api import Located
from lakefmt.values import FileId, InstantTime, PartitionPath
from lakefmt.write.values import FileAssignment

__all__ = ["Assigned", "FileSizing", "assign_rows", "group_rows", "new_file", "rewrite_file"]

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FileSizing:
    """How large files should be.

    Attributes:
        max_bytes: no file is planned larger.
        small_bytes: files below take new rows; 0 switches filling off.
        record_bytes: bytes a stored row takes, learnt from earlier commits.
    """

    max_bytes: int
    small_bytes: int
    record_bytes: float

    @property
    def rows_per_file(self) -> int:
        """Rows a new file takes."""
        return max(1, int(self.max_bytes / max(self.record_bytes, 1e-3)))

    def room(self, size_bytes: int) -> int:
        """Rows that still fit into a file of that size."""
        return max(0, int((self.max_bytes - size_bytes) / max(self.record_bytes, 1e-3)))


@dataclass(frozen=True, slots=True)
class Assigned:
    """An assignment and the rows that go with it, as row numbers."""

    assignment: FileAssignment
    rows: Rows


def new_file(
    partition: PartitionPath, instant: InstantTime, sequence: int, new_uuid: Callable[[], str], *, rows: int | None
) -> FileAssignment:
    """Return the assignment of a new file group."""
    file_id = FileId(f"{new_uuid()}-0")
    name = base_file_name(file_id, f"{sequence}-0-0", instant)
    return FileAssignment(partition, file_id, name, None, False, rows, sequence, new_partition=True)


def rewrite_file(piece: FileSlice, instant: InstantTime, sequence: int, rows: int, *, match_keys: bool) -> FileAssignment:
    """Return the assignment that rewrites a slice's base file under the same file id."""
    name = base_file_name(piece.file_id, f"{sequence}-0-0", instant)
    return FileAssignment(piece.partition, piece.file_id, name, piece.base, match_keys, rows, sequence)


def assign_rows(
    partitions: pa.DictionaryArray,
    located: Located | None,
    slices: Sequence[FileSlice],
    sizing: FileSizing,
    instant: InstantTime,
    new_uuid: Callable[[], str],
) -> list[Assigned]:
    """Return the files to write.

    Args:
        partitions: the partition path of every row.
        located: where rows' keys are stored; None appends every row (plain inserts).
        slices: the latest file slices of the partitions touched.
        sizing: how large files should be.
        instant: the write's instant time.
        new_uuid: makes names for new file groups.
    """
    homes = dict(group_rows(located.slices, located.rows)) if located is not None else {}
    fresh = np.ones(len(partitions), dtype=bool)
    if located is not None:
        fresh[located.rows] = False
    inserts: dict[int, list[Rows]] = {}
    opened: list[tuple[PartitionPath, Rows]] = []
    for partition, rows in _by_partition(partitions, np.flatnonzero(fresh)):
        rest = _fill_small_files(rows, partition, slices, sizing, inserts)
        opened += [(partition, piece) for piece in _split(rest, sizing.rows_per_file)]
    assigned: list[Assigned] = []
    for number in sorted(homes.keys() | inserts.keys()):
        rows = np.concatenate([homes.get(number, np.empty(0, np.int64)), *inserts.get(number, [])])
        assigned.append(
            Assigned(
                rewrite_file(slices[number], instant, len(assigned), len(rows), match_keys=located is not None), rows
            )
        )
    for partition, rows in opened:
        assigned.append(Assigned(new_file(partition, instant, len(assigned), new_uuid, rows=len(rows)), rows))
    return assigned


def group_rows(numbers: npt.NDArray[np.int64], rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield each distinct number with its rows, numbers ascending, rows in the order given.

    Example:
        >>> [(n, r.tolist()) for n, r in group_rows(np.array([2, 1, 2]), np.array([10, 11, 12]))]
        [(1, [11]), (2, [10, 12])]
    """
    order = np.argsort(numbers, kind="stable")
    present, starts = np.unique(numbers[order], return_index=True)
    pieces = np.split(rows[order], starts)[1:]
    yield from zip(map(int, present), pieces, strict=True)


def _by_partition(partitions: pa.DictionaryArray, rows: Rows) -> Iterator[tuple[PartitionPath, Rows]]:
    codes = partitions.indices.to_numpy(zero_copy_only=False)[rows]
    names = partitions.dictionary.to_pylist()  # partitions, not rows
    for code, piece in group_rows(codes, rows):
        yield PartitionPath(names[code]), piece


def _fill_small_files(
    rows: Rows, partition: PartitionPath, slices: Sequence[FileSlice], sizing: FileSizing, inserts: dict[int, list[Rows]]
) -> Rows:
    small = [
        (piece.base.size, number)
        for number, piece in enumerate(slices)
        if piece.partition == partition and piece.base is not None and piece.base.size < sizing.small_bytes
    ]
    for size, number in sorted(small):
        if not len(rows):
            break
        room = sizing.room(size)
        if room:
            inserts.setdefault(number, []).append(rows[:room])
            rows = rows[room:]
    return rows


def _split(rows: Rows, size: int) -> Iterable[Rows]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
