"""File groups and file slices as values (spec 4.3). Pure.

Which files make up the table: names and a timeline in, file slices out (spec 3.9, 4.4, 4.10). Pure.

The same function answers for now and for any moment in the past: the timeline that is handed in decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakefmt.formats.names import parse_log_file, split_base_file
from lakefmt.storage.api import ObjectInfo
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import FileId, InstantTime, PartitionPath

__all__ = [
    "BaseFile",
    "FileSlice",
    "LogFile",
    "all_slices",
    "build_slices",
    "join_path",
    "lacks_completions",
    "parse_files",
]


def join_path(partition: str, name: str) -> str:
    """Return a file's path relative to the table.

    Example:
        >>> join_path("", "a.parquet"), join_path("p=1", "a.parquet")
        ('a.parquet', 'p=1/a.parquet')
    """
    return f"{partition}/{name}" if partition else name


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A base file: columns of one file group at one instant. ``size`` in bytes."""

    partition: PartitionPath
    name: str
    file_id: FileId
    write_token: str
    instant: InstantTime
    size: int

    @property
    def path(self) -> str:
        """Relative to the table."""
        return join_path(self.partition, self.name)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file on top of a base file. ``size`` in bytes."""

    partition: PartitionPath
    name: str
    file_id: FileId
    instant: InstantTime
    version: int
    size: int

    @property
    def path(self) -> str:
        """Relative to the table."""
        return join_path(self.partition, self.name)


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One state of a file group: a base file and the logs on top of it, oldest first."""

    partition: PartitionPath
    file_id: FileId
    instant: InstantTime
    base: BaseFile | None
    logs: tuple[LogFile, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Its files, relative to the table, the base file first."""
        logs = tuple(log.path for log in self.logs)
        return logs if self.base is None else (self.base.path, *logs)

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        size = 0 if self.base is None else self.base.size
        return size + sum(log.size for log in self.logs) if self.logs else size


_Replaced = Mapping[tuple[str, str], InstantTime]


def parse_files(partition: PartitionPath, objects: Iterable[ObjectInfo]) -> tuple[list[BaseFile], list[LogFile]]:
    """Return the base and log files among a partition's objects; every other name is ignored.

    Example:
        >>> parse_files("", [ObjectInfo("f-0_1-0-0_20260101000000000.parquet", 9)])[0][0].size
        9
    """
    bases: list[BaseFile] = []
    logs: list[LogFile] = []
    for item in objects:
        name = item.name.rpartition("/")[2]
        base = split_base_file(name)
        if base is not None:
            bases.append(BaseFile(partition, name, *base[:3], item.size))
            continue
        log = parse_log_file(name)
        if log is not None and not log.is_cdc:
            logs.append(LogFile(partition, name, log.file_id, log.instant, log.version, item.size))
    return bases, logs


def all_slices(bases: Iterable[BaseFile], logs: Iterable[LogFile], timeline: Timeline) -> list[FileSlice]:
    """Return every committed slice of every group, oldest first within a group."""
    groups: dict[tuple[PartitionPath, FileId], dict[InstantTime, BaseFile]] = {}
    for base in bases:
        if timeline.is_committed(base.instant):
            known = groups.setdefault((base.partition, base.file_id), {})
            previous = known.get(base.instant)
            # Two attempts of one task would share group and instant; the larger token is the later attempt.
            if previous is None or base.write_token > previous.write_token:
                known[base.instant] = base
    hanging = _attach(groups, logs, timeline)
    slices = []
    for (partition, file_id), by_instant in groups.items():
        for instant in sorted(by_instant):
            attached = tuple(hanging.pop((partition, file_id, instant), ())) if hanging else ()
            slices.append(FileSlice(partition, file_id, instant, by_instant[instant], attached))
    if hanging:
        # A group may have begun with logs alone, whose slice is older than that of its first base file.
        slices += [FileSlice(*place, None, tuple(attached)) for place, attached in hanging.items()]
        slices.sort(key=lambda file_slice: file_slice.instant)
    return slices


def _attach(
    groups: Mapping[tuple[PartitionPath, FileId], Mapping[InstantTime, BaseFile]],
    logs: Iterable[LogFile],
    timeline: Timeline,
) -> dict[tuple[PartitionPath, FileId, InstantTime], list[LogFile]]:
    attached: dict[tuple[PartitionPath, FileId, InstantTime], list[LogFile]] = {}
    first_log: dict[tuple[PartitionPath, FileId], InstantTime] = {}
    place = _place_by_base_instant if timeline.layout == 1 else _place_by_completion
    for log in sorted(logs, key=lambda f: (f.instant, f.version, f.name)):
        group = (log.partition, log.file_id)
        instant = place(log, groups.get(group, {}), timeline)
        if instant is not None:
            attached.setdefault((*group, instant or first_log.setdefault(group, log.instant)), []).append(log)
    return attached


def _place_by_base_instant(
    log: LogFile, bases: Mapping[InstantTime, BaseFile], timeline: Timeline
) -> InstantTime | None:
    """Return the slice of a log of layout 1, whose name has the base instant; None when it is not visible.

    Logs written while a compaction is pending carry its instant; until it completes they belong to the slice before
    (spec 4.4). What a log holds is decided block by block, so pending instants do not hide it.
    """
    if log.instant in bases:
        return log.instant
    if timeline.bound is not None and log.instant > timeline.bound:
        return None
    return max((i for i in bases if i < log.instant), default=log.instant)


def _place_by_completion(log: LogFile, bases: Mapping[InstantTime, BaseFile], timeline: Timeline) -> InstantTime | None:
    """Return the slice of a log of layout 2: the last one begun before its commit completed (spec 4.4).

    None: not committed; ``""``: there is no base file, the first log begins the slice.
    """
    if not timeline.is_committed(log.instant):
        return None
    done = timeline.completion_of(log.instant)
    return max((i for i in bases if i <= done), default=InstantTime(""))


def lacks_completions(bases: Iterable[BaseFile], logs: Iterable[LogFile], timeline: Timeline) -> bool:
    """Return whether the archive has to tell where a log belongs.

    A write may complete after a compaction was requested that it began before: its log lies on top of that one's base file.
    Once its commit is archived the active timeline does not tell (Hudi's readers look into the history then, too).

    Args:
        bases: base files of whole file groups.
        logs: logs of the same.
        timeline: what is looked at.
    """
    doubtful = [log for log in logs if not timeline.tells_completion_of(log.instant)]
    if not doubtful:
        return False
    newest: dict[tuple[PartitionPath, FileId], InstantTime] = {}
    for base in bases:
        group = (base.partition, base.file_id)
        newest[group] = max(base.instant, newest.get(group, base.instant))
    return any(log.instant < newest.get((log.partition, log.file_id), InstantTime("")) for log in doubtful)


def build_slices(
    bases: Iterable[BaseFile], logs: Iterable[LogFile], timeline: Timeline, replaced: _Replaced
) -> list[FileSlice]:
    """Return the latest committed slice of every group that no replacecommit of `timeline` has replaced.

    Args:
        replaced: (partition, file id) → requested time of the replacecommit that hid the group.
    """
    latest: dict[tuple[PartitionPath, FileId], FileSlice] = {}
    for file_slice in all_slices(bases, logs, timeline):
        key = (file_slice.partition, file_slice.file_id)
        known = latest.get(key)
        if known is None or file_slice.instant > known.instant:
            latest[key] = file_slice
    kept = [file_slice for key, file_slice in latest.items() if key not in replaced]
    return sorted(kept, key=lambda s: (s.partition, s.file_id))
