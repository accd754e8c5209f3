"""File groups of a write whose keys tasks have looked up (pure): what was found, counted, becomes the files to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from lakefmt.arrays import from_numpy
from lakefmt.data_classes import dataclass, replace
from lakefmt.filegroups.model import FileSlice
from lakefmt.formats.names import base_file_name
from lakefmt.index import Located
from lakefmt.values import FileId, InstantTime, PartitionPath
from lakefmt.write.assign import FileSizing, Logs, Routes, assign_rows
from lakefmt.write.context import FileAssignment, LogTarget

__all__ = ["NEW", "FoundRows", "GroupToWrite", "numbered_file", "plan_groups"]

#: The file id of rows whose key is not stored.
NEW = FileId("")


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows that go to one file group, or to new ones.

    Attributes:
        partition: of the file group.
        file_id: of the file group; :data:`NEW`: the keys are new.
        rows: how many.
    """

    partition: PartitionPath
    file_id: FileId
    rows: int


@dataclass(frozen=True, slots=True)
class GroupToWrite:
    """One file to write.

    Attributes:
        assignment: the file.
        file_slice: what is stored of its file group; None: nothing.
        found_rows: rows whose key it has.
        new_rows: rows with new keys that it takes, as far as their number was known.
    """

    assignment: FileAssignment
    file_slice: FileSlice | None
    found_rows: int
    new_rows: int


def plan_groups(
    located_rows: Sequence[FoundRows],
    slices: Sequence[FileSlice],
    sizing: FileSizing,
    instant: InstantTime,
    new_uuid: Callable[[], str],
    logs: Logs | None,
    *,
    appends: bool,
) -> list[GroupToWrite]:
    """Return the files to write, by the planner of every write (:func:`~lakefmt.write.assign.assign_rows`).

    Args:
        located_rows: what the look-up found; of a file group one entry.
        slices: the latest file slices of the partitions.
        sizing: how large files should be.
        instant: the write's instant time.
        new_uuid: makes names for new file groups.
        logs: how changes go to logs; None: base files are rewritten.
        appends: no key was looked for.

    Example:
        >>> ids = iter(["1c1e4c0f-0000-4000-8000-000000000000"])
        >>> sizing = FileSizing(1000, 0, 1.0)
        >>> (group,) = plan_groups(
        ...     [FoundRows("p", NEW, 7)], [], sizing, "20260101000000000", lambda: next(ids), None, appends=False
        ... )
        >>> group.new_rows, group.assignment.file_name
        (7, '1c1e4c0f-0000-4000-8000-000000000000-0_0-0-0_20260101000000000.parquet')
    """
    numbers = {(each.partition, each.file_id): number for number, each in enumerate(slices)}
    new = [each for each in located_rows if each.file_id == NEW]
    old = [each for each in located_rows if each.file_id != NEW]
    names = list(dict.fromkeys(each.partition for each in located_rows))
    codes = {name: code for code, name in enumerate(names)}
    # One row stands for all that a file group has; of new ones the planner wants each.
    counts = [each.rows for each in new] + [1] * len(old)
    indices = np.repeat(np.array([codes[each.partition] for each in [*new, *old]], np.int32), counts)
    partitions = pa.DictionaryArray.from_arrays(from_numpy(indices), pa.array(names, pa.string()))
    num_new = len(indices) - len(old)
    stay = Located(
        np.arange(num_new, len(indices)), np.array([numbers[each.partition, each.file_id] for each in old], np.int64)
    )
    routes = Routes(None) if appends else Routes(stay)
    rows_of = {(each.partition, each.file_id): each.rows for each in old}
    return [
        GroupToWrite(
            replace(each.assignment, num_rows=None),
            _slice_of(each.assignment, slices, numbers),
            rows_of.get((each.assignment.partition, each.assignment.file_id), 0),
            int(np.count_nonzero(each.rows < num_new)),
        )
        for each in assign_rows(partitions, routes, slices, sizing, instant, new_uuid, logs)
    ]


def _slice_of(
    file: FileAssignment, slices: Sequence[FileSlice], numbers: Mapping[tuple[PartitionPath, FileId], int]
) -> FileSlice | None:
    number = numbers.get((file.partition, file.file_id))
    return None if number is None else slices[number]


def numbered_file(file: FileAssignment, instant: InstantTime, number: int) -> FileAssignment:
    """Return an assignment whose file has a sequence number of its own in the write.

    Args:
        file: the file.
        instant: the write's instant time.
        number: its sequence number.

    Example:
        >>> file = FileAssignment("p", "f-0", "f-0_0-0-0_20260101000000000.parquet", None, False, 1, 0)
        >>> numbered_file(file, "20260101000000000", 7).file_name
        'f-0_7-0-0_20260101000000000.parquet'
    """
    if file.log is None:
        name = base_file_name(file.file_id, f"{number}-0-0", instant)
        return replace(file, file_name=name, sequence=number)
    head, _, token = file.file_name.rpartition("_")
    token = f"{number}-{token.partition('-')[2]}"
    return _as_before(replace(file, file_name=f"{head}_{token}", sequence=number), file.log, token)


def _as_before(file: FileAssignment, log: LogTarget, token: str) -> FileAssignment:
    """Return an assignment of a log under the name that an earlier attempt gave it.

    Logs of version 6 are named by their slice and counted: that of an earlier attempt is among them, and is not another
    write's.
    """
    begin = file.file_name.rpartition(".log.")[0]
    own = [name for name in log.older if name.startswith(f"{begin}.log.") and name.endswith(f"_{token}")]
    if not own:
        return file
    versions = {name: int(name.removeprefix(f"{begin}.log.").partition("_")[0]) for name in own}
    first = min(own, key=versions.__getitem__)
    older = tuple(name for name in log.older if name not in versions)
    return replace(file, file_name=first, log=replace(log, version=versions[first], older=older))
