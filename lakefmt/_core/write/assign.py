"""Which row goes to which file (pure): updates go home, inserts fill small files before new ones are opened.

Counts in equal counts out: every routed row is in exactly one assignment per place where its key lives.

A row is written once when it comes in, and again with every file that is filled with newer rows or merged. ``fill`` is
Hudi's way: new rows go to small files first, so that a file is rewritten with every small commit. ``tiers`` fills a file
where it is rewritten anyway, or is small beside the rows that come in; other rows open files, and when a partition has too
many small ones, some of about the same size are merged into one. Both the files of a partition and the times a row is
rewritten stay few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arrays import distinct
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.formats.names import base_file_name, has_bucket_number
from lakefmt._core.index.api import KeyPlacement, Located
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt._core.write.context import FileAssignment, LogTarget

__all__ = [
    "MOST_SMALL_FILES",
    "Assigned",
    "FileSizing",
    "Logs",
    "Routes",
    "assign_placed_rows",
    "assign_rows",
    "change_file",
    "choose_files_to_merge",
    "crowded_partitions",
    "group_positions",
    "is_small",
    "is_worth_filling",
    "log_file",
    "new_file",
    "new_rows",
    "new_rows_by_partition",
    "open_file_group",
    "rewrite_file",
    "rows_by_file_group",
    "stable_order",
]

Rows = npt.NDArray[np.int64]


def choose_files_to_merge(sizes: Sequence[int], max_bytes: int, most: int) -> list[int]:
    """Return which files of a partition are merged into one; none while there are few, or where no two fit together.

    The smallest ones are merged, as many as make the fewest bytes written for each pair of files that are no longer there
    (of n files n - 1): a large file waits until others have grown.

    Args:
        sizes: bytes of the small files.
        max_bytes: no file is planned larger.
        most: how many files may stay.

    Example:
        >>> choose_files_to_merge([40, 9, 1, 1, 1], 100, most=4)
        [2, 3, 4]
        >>> choose_files_to_merge([40, 9, 1, 1], 100, most=4)
        []
    """
    order = sorted(range(len(sizes)), key=lambda number: sizes[number])
    chosen, least, total = 0, 0.0, 0
    for count, number in enumerate(order, 1):
        total += sizes[number]
        if total > max_bytes:
            break
        cost = total / max(count - 1, 1) ** 2
        if count > 1 and (not chosen or cost <= least):
            chosen, least = count, cost
    return sorted(order[:chosen]) if len(sizes) > most else []


def crowded_partitions(
    small: Iterable[PartitionPath], opened: Collection[PartitionPath], most: int
) -> frozenset[PartitionPath]:
    """Return the partitions in which a write opens file groups, and that then have too many small files.

    Args:
        small: the partition of each small file before the write.
        opened: the partition of each file group that it opens.
        most: how many may stay.

    Example:
        >>> crowded_partitions(["a", "a", "b"], ["a"], 2)
        frozenset({'a'})
    """
    counts = Counter(opened)
    before = Counter(path for path in small if path in counts)
    return frozenset(path for path, count in counts.items() if count + before[path] > most)


#: Small base files of a partition above which some are merged (:mod:`lakefmt._core.write.assign`).
MOST_SMALL_FILES: Final = 16
#: Bytes that are worth a file of their own, beside another new one of their partition.
_BYTES_WORTH_A_FILE = 8 << 20
#: A file is filled when its bytes are at most this share of those that come in.
_FILLED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class FileSizing:
    """How large files should be.

    Attributes:
        max_bytes: no file is planned larger.
        small_bytes: files below take new rows; 0 switches filling off.
        record_bytes: bytes a stored row takes, learnt from earlier commits.
        candidates: how many small files of a partition take new rows, the smallest first; None: all.
        tiered: only files that are rewritten anyway, or are small beside the new rows, take them (``tiers``).
        writers: how many files are written side by side: new rows of few partitions are spread over as many.
        fills: stored files take new rows; False: small files are only counted, to be merged after the write.
    """

    max_bytes: int
    small_bytes: int
    record_bytes: float
    candidates: int | None = None
    tiered: bool = False
    writers: int = 1
    fills: bool = True

    @property
    def rows_per_file(self) -> int:
        """Rows a new file takes."""
        return max(1, int(self.max_bytes / max(self.record_bytes, 1e-3)))

    def rows_side_by_side(self, num_rows: int, partitions: int) -> int:
        """Rows that each of some new files takes which are written at a time.

        Example:
            >>> FileSizing(100 << 20, 0, 100.0, writers=4).rows_side_by_side(1_000_000, 2)
            500000
        """
        files = min(self.writers // max(partitions, 1), int(num_rows * self.record_bytes / _BYTES_WORTH_A_FILE))
        return min(self.rows_per_file, -(-num_rows // max(files, 1)))

    def room(self, size_bytes: int) -> int:
        """Rows that still fit into a file of that size."""
        return max(0, int((self.max_bytes - size_bytes) / max(self.record_bytes, 1e-3)))


@dataclass(frozen=True, slots=True)
class Assigned:
    """An assignment and the rows that go with it, as row numbers.

    ``leaving`` marks rows whose key leaves this file for another partition; None: no row does. ``stored`` has columns of
    the stored rows that go along, one row for each of ``rows``. ``positions``, of a log, has for each of ``rows`` the row
    of the base file that it changes, -1 where that is not known.
    """

    assignment: FileAssignment
    rows: Rows
    leaving: npt.NDArray[np.bool_] | None = None
    stored: pa.Table | None = None
    positions: Rows | None = None


@dataclass(frozen=True, slots=True)
class Logs:
    """How changed rows go to log files: a merge-on-read table.

    Attributes:
        layout: 1 for version 6, 2 from version 8 on.
        compacting: in version 6, the instant of the pending compaction of a (partition, file id): new logs are named by it.
        positions: rows bring their place in the base file along, where it is known.
    """

    layout: int
    compacting: Mapping[tuple[PartitionPath, FileId], InstantTime] = field(default_factory=dict)
    positions: bool = False


def new_file(
    partition: PartitionPath, instant: InstantTime, sequence: int, new_uuid: Callable[[], str], *, rows: int | None
) -> FileAssignment:
    """Return the assignment of a new file group."""
    uuid = new_uuid()
    if has_bucket_number(uuid):  # one in some ten thousand: it would be taken for a bucket's
        uuid = "f" + uuid[1:]
    return open_file_group(partition, FileId(f"{uuid}-0"), instant, sequence, rows)


def rewrite_file(
    file_slice: FileSlice, instant: InstantTime, sequence: int, rows: int, *, match_keys: bool
) -> FileAssignment:
    """Return the assignment that rewrites a slice's base file under the same file id."""
    name = base_file_name(file_slice.file_id, f"{sequence}-0-0", instant)
    return FileAssignment(file_slice.partition, file_slice.file_id, name, file_slice.base, match_keys, rows, sequence)


def log_file(file_slice: FileSlice, instant: InstantTime, sequence: int, rows: int, logs: Logs) -> FileAssignment:
    """Return the assignment of a new log file on top of a slice (docs/format.md, Writing logs).

    Example:
        >>> file_slice = FileSlice("", "f-0", "20260101000000000", None)
        >>> log_file(file_slice, "20260102000000000", 3, 1, Logs(layout=2)).file_name
        '.f-0_20260102000000000.log.1_3-0-0'
        >>> log_file(file_slice, "20260102000000000", 3, 1, Logs(layout=1)).file_name
        '.f-0_20260101000000000.log.1_3-0-0'
    """
    base_instant, version = file_slice.instant, 1
    if logs.layout == 1:
        base_instant = logs.compacting.get((file_slice.partition, file_slice.file_id), file_slice.instant)
        version = max((log.version for log in file_slice.logs if log.instant == base_instant), default=0) + 1
    time = base_instant if logs.layout == 1 else instant
    # Logs of layout 1 are named by their slice: the last part of the token keeps two writers' logs apart.
    attempt = int(instant[-9:]) if logs.layout == 1 else 0
    name = f".{file_slice.file_id}_{time}.log.{version}_{sequence}-0-{attempt}"
    target = LogTarget(base_instant, version, tuple(log.name for log in file_slice.logs))
    return FileAssignment(
        file_slice.partition, file_slice.file_id, name, file_slice.base, True, rows, sequence, log=target
    )


def change_file(
    file_slice: FileSlice, instant: InstantTime, sequence: int, rows: int, logs: Logs | None
) -> FileAssignment:
    """Return the assignment that changes stored rows of a slice: a log where the table has them, else a rewrite."""
    if logs is None:
        return rewrite_file(file_slice, instant, sequence, rows, match_keys=True)
    return log_file(file_slice, instant, sequence, rows, logs)


@dataclass(frozen=True, slots=True)
class Routes:
    """What a look-up found, sorted by what to do with the rows.

    Attributes:
        stay: pairs whose row is written where its key is stored; None: nothing was looked up, every row is appended.
        leave: pairs whose key leaves that slice; the row is written anew in its own partition (global indexes).
        late: rows that lost against what is stored in another partition; they are not written.
    """

    stay: Located | None
    leave: Located | None = None
    late: Rows | None = None

    def num_routed(self, num_rows: int) -> int:
        """Return how many rows all assignments together must have, doubled and leaving ones included."""
        # A key that is stored twice (plain inserts) is routed to both places.
        doubled = 0 if self.stay is None else len(self.stay.rows) - len(distinct(self.stay.rows))
        left = 0 if self.leave is None else len(self.leave.rows)
        return num_rows + doubled + left - (0 if self.late is None else len(self.late))


def assign_rows(
    partitions: pa.DictionaryArray,
    routes: Routes,
    slices: Sequence[FileSlice],
    sizing: FileSizing,
    instant: InstantTime,
    new_uuid: Callable[[], str],
    logs: Logs | None = None,
    closed: frozenset[int] = frozenset(),
) -> list[Assigned]:
    """Return the files to write.

    In a merge-on-read table changes go to logs. A small base file without logs that takes new rows is rewritten, and its
    changes with it, as Hudi does.

    Args:
        partitions: the partition path of every row.
        routes: where rows' keys are stored.
        slices: the latest file slices of the partitions touched.
        sizing: how large files should be.
        instant: the write's instant time.
        new_uuid: makes names for new file groups.
        logs: how changes go to logs; None: base files are rewritten.
    """
    staying = _rows_of_located(routes.stay)
    left = _rows_of_located(routes.leave)
    positions_by_slice = group_positions(routes.stay, logs)
    inserts: dict[int, list[Rows]] = {}
    opened: list[tuple[PartitionPath, Rows]] = []
    by_partition = list(new_rows_by_partition(partitions, new_rows(len(partitions), routes)))
    small = _small_files(slices, sizing, closed) if by_partition and sizing.fills else {}
    rewritten = staying.keys() if logs is None else frozenset[int]()
    for partition, rows in by_partition:
        rest = _fill_small_files(rows, small.get(partition, []), sizing, inserts, rewritten)
        size = sizing.rows_side_by_side(len(rest), len(by_partition))
        opened += [(partition, part) for part in _split_rows(rest, size)]
    begun = {file_slice.partition for file_slice in slices}  # they have their partition file
    assigned: list[Assigned] = []
    for number in sorted(staying.keys() | inserts.keys() | left.keys()):
        leaving = left.get(number, np.empty(0, np.int64))
        rows = np.concatenate([staying.get(number, leaving[:0]), *inserts.get(number, []), leaving])
        marks = np.arange(len(rows)) >= len(rows) - len(leaving) if len(leaving) else None
        if number in inserts:
            file = rewrite_file(slices[number], instant, len(assigned), len(rows), match_keys=routes.stay is not None)
        else:
            file = change_file(slices[number], instant, len(assigned), len(rows), logs)
        # Rows that leave were found otherwise, and rows that come in are nowhere yet.
        positions = positions_by_slice.get(number) if number not in inserts and marks is None else None
        assigned.append(Assigned(file, rows, marks, positions=positions))
    for partition, rows in opened:
        file = new_file(partition, instant, len(assigned), new_uuid, rows=len(rows))
        assigned.append(Assigned(replace(file, new_partition=partition not in begun), rows))
    return assigned


def assign_placed_rows(
    placement: KeyPlacement,
    slices: Sequence[FileSlice],
    instant: InstantTime,
    *,
    match_keys: bool,
    logs: Logs | None = None,
    opens_with_logs: bool = False,
) -> list[Assigned]:
    """Return the files to write where an index has placed every key: one for each file group.

    Args:
        placement: the file group of every row.
        slices: the latest file slices of the partitions touched.
        instant: the write's instant time.
        match_keys: rows replace stored rows of the same key; False: they are appended to the base file.
        logs: how changes go to logs; None: base files are rewritten.
        opens_with_logs: in a merge-on-read table of version 8 or later, a new file group begins with a log.

    Example:
        >>> placement = KeyPlacement(np.array([1, 0, 1]), [("p", "f-0"), ("p", "g-0")])
        >>> stored = [FileSlice("p", "g-0", "20260101000000000", None)]
        >>> for one in assign_placed_rows(placement, stored, "20260102000000000", match_keys=True, logs=Logs(2)):
        ...     print(one.assignment.file_name, one.rows)
        f-0_0-0-0_20260102000000000.parquet [1]
        .g-0_20260102000000000.log.1_1-0-0 [0 2]
    """
    slices_by_group = {(file_slice.partition, file_slice.file_id): file_slice for file_slice in slices}
    assigned: list[Assigned] = []
    for number, rows in rows_by_file_group(placement.groups, np.arange(len(placement.groups))):
        partition, file_id = placement.file_groups[number]
        file_slice, sequence = slices_by_group.get((partition, file_id)), len(assigned)
        if file_slice is None:
            in_logs = logs if opens_with_logs else None
            file = open_file_group(partition, file_id, instant, sequence, len(rows), in_logs)
        elif logs is None:
            file = rewrite_file(file_slice, instant, sequence, len(rows), match_keys=match_keys)
        else:
            file = log_file(file_slice, instant, sequence, len(rows), logs)
        assigned.append(Assigned(replace(file, may_bring_keys=file.log is not None), rows))
    return assigned


def open_file_group(
    partition: PartitionPath,
    file_id: FileId,
    instant: InstantTime,
    sequence: int,
    rows: int | None,
    logs: Logs | None = None,
) -> FileAssignment:
    """Return the assignment of the first file of a file group whose id is given: a base file, or with `logs` a log."""
    if logs is None:
        name = base_file_name(file_id, f"{sequence}-0-0", instant)
        return FileAssignment(partition, file_id, name, None, False, rows, sequence, new_partition=True)
    nothing = FileSlice(partition, file_id, instant, None)
    return replace(log_file(nothing, instant, sequence, rows or 0, logs), num_rows=rows, new_partition=True)


def _rows_of_located(located: Located | None) -> dict[int, Rows]:
    return {} if located is None else dict(rows_by_file_group(located.slices, located.rows))


def group_positions(located: Located | None, logs: Logs | None) -> dict[int, Rows]:
    """Return for each slice the base file's rows of the pairs found in it, in the pairs' order; nothing if not wanted."""
    if located is None or located.positions is None or logs is None or not logs.positions:
        return {}
    return dict(rows_by_file_group(located.slices, located.positions))


def new_rows(num_rows: int, routes: Routes) -> Rows:
    """Return the rows that are written as new ones: their key is stored nowhere, or leaves for another partition."""
    fresh = np.ones(num_rows, dtype=bool)
    if routes.stay is not None:
        fresh[routes.stay.rows] = False
    if routes.late is not None:
        fresh[routes.late] = False
    return np.flatnonzero(fresh)


def rows_by_file_group(numbers: npt.NDArray[np.int64], rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield each distinct number with its rows, numbers ascending, rows in the order given.

    Example:
        >>> [(n, r.tolist()) for n, r in rows_by_file_group(np.array([2, 1, 2]), np.array([10, 11, 12]))]
        [(1, [11]), (2, [10, 12])]
    """
    if not len(numbers):
        return
    order = stable_order(numbers)
    ordered = numbers[order]
    starts = np.append(0, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
    groups = np.split(rows[order], starts)[1:]
    yield from zip(map(int, ordered[starts]), groups, strict=True)


def stable_order(numbers: npt.NDArray[np.signedinteger]) -> Rows:
    """Return the order that sorts numbers from 0 on; equal ones stay as they are.

    Example:
        >>> stable_order(np.array([2, 1, 2])).tolist()
        [1, 0, 2]
    """
    # Numpy sorts 16-bit numbers by radix, six times faster than wide ones.
    narrow = numbers.astype(np.uint16) if int(numbers.max(initial=0)) <= 0xFFFF else numbers
    return np.argsort(narrow, kind="stable")


def new_rows_by_partition(partitions: pa.DictionaryArray, rows: Rows) -> Iterator[tuple[PartitionPath, Rows]]:
    """Yield each partition with those of `rows` that are meant for it."""
    codes = partitions.indices.to_numpy(zero_copy_only=False)[rows]
    names = partitions.dictionary.to_pylist()  # partitions, not rows
    for code, file_slice in rows_by_file_group(codes, rows):
        yield PartitionPath(names[code]), file_slice


def is_small(file_slice: FileSlice, small_bytes: int) -> bool:
    """Return whether a file slice is a base file without logs below the limit."""
    return file_slice.base is not None and not file_slice.logs and file_slice.base.size < small_bytes


def is_worth_filling(file_bytes: int, incoming_bytes: float) -> bool:
    """Return whether rewriting a file costs little beside the rows that come in.

    Example:
        >>> is_worth_filling(1_000, 10_000.0), is_worth_filling(9_000, 10_000.0)
        (True, False)
    """
    return file_bytes <= _FILLED_SHARE * incoming_bytes


def _small_files(
    slices: Sequence[FileSlice], sizing: FileSizing, closed: frozenset[int]
) -> dict[PartitionPath, list[tuple[int, int]]]:
    """Return the size and the number of each small file, by partition."""
    by_partition: dict[PartitionPath, list[tuple[int, int]]] = {}
    for number, file_slice in enumerate(slices):
        if file_slice.base is not None and number not in closed and is_small(file_slice, sizing.small_bytes):
            by_partition.setdefault(file_slice.partition, []).append((file_slice.base.size, number))
    return by_partition


def _fill_small_files(
    rows: Rows,
    small: Sequence[tuple[int, int]],
    sizing: FileSizing,
    inserts: dict[int, list[Rows]],
    rewritten: Collection[int],
) -> Rows:
    if sizing.tiered and not _only_filling_helps([size for size, _ in small], sizing):
        incoming = len(rows) * sizing.record_bytes
        small = [each for each in small if each[1] in rewritten or is_worth_filling(each[0], incoming)]
    for size, number in sorted(small)[: sizing.candidates]:
        if not len(rows):
            break
        room = sizing.room(size)
        if room:
            inserts.setdefault(number, []).append(rows[:room])
            rows = rows[room:]
    return rows


def _only_filling_helps(sizes: Sequence[int], sizing: FileSizing) -> bool:
    """Return whether a partition has the most small files that it is to have, and no two of them fit into one."""
    if len(sizes) < MOST_SMALL_FILES:
        return False

    return not choose_files_to_merge(sizes, sizing.max_bytes, most=1)


def _split_rows(rows: Rows, size: int) -> Iterable[Rows]:
    for start in range(0, len(rows), max(size, 1)):
        yield rows[start : start + size]
