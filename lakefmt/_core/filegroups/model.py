"""File groups and file slices as values, built from file names and a timeline. Pure.

The timeline decides which files are committed, so the same functions serve the present and any earlier time
(docs/format.md, Committed files; File slices).

"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.names import parse_log_file, split_base_file
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import FileId, InstantTime, PartitionPath

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
    """A base file: one file group at one instant; ``size`` in bytes."""

    partition: PartitionPath
    name: str
    file_id: FileId
    write_token: str
    instant: InstantTime
    size: int

    @property
    def path(self) -> str:
        """The path relative to the table."""
        return join_path(self.partition, self.name)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file; ``size`` in bytes."""

    partition: PartitionPath
    name: str
    file_id: FileId
    instant: InstantTime
    version: int
    size: int

    @property
    def path(self) -> str:
        """The path relative to the table."""
        return join_path(self.partition, self.name)


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A file slice: a base file, or none, and its logs, oldest first."""

    partition: PartitionPath
    file_id: FileId
    instant: InstantTime
    base: BaseFile | None
    logs: tuple[LogFile, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of its files relative to the table, the base file first."""
        logs = tuple(log.path for log in self.logs)
        return logs if self.base is None else (self.base.path, *logs)

    @property
    def size_bytes(self) -> int:
        """The size of all its files in bytes."""
        size = 0 if self.base is None else self.base.size
        return size + sum(log.size for log in self.logs) if self.logs else size


_Replaced = Mapping[tuple[str, str], InstantTime]


def parse_files(partition: PartitionPath, objects: Iterable[ObjectInfo]) -> tuple[list[BaseFile], list[LogFile]]:
    """Return the base and log files among a partition's objects; ignore other names.

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
    """Return the committed slices of all file groups, oldest first within a group."""
    slices_by_group: dict[tuple[PartitionPath, FileId], dict[InstantTime, BaseFile]] = {}
    committed: dict[InstantTime, bool] = {}
    for base in bases:
        if base.instant not in committed:
            committed[base.instant] = timeline.is_committed(base.instant)
        if committed[base.instant]:
            bases_by_instant = slices_by_group.setdefault((base.partition, base.file_id), {})
            previous = bases_by_instant.get(base.instant)
            # Two attempts of one task share group and instant; the larger token is the later attempt.
            if previous is None or base.write_token > previous.write_token:
                bases_by_instant[base.instant] = base
    hanging = _attach(slices_by_group, logs, timeline)
    slices = []
    for (partition, file_id), bases_by_instant in slices_by_group.items():
        for instant in sorted(bases_by_instant):
            attached = tuple(hanging.pop((partition, file_id, instant), ())) if hanging else ()
            slices.append(FileSlice(partition, file_id, instant, bases_by_instant[instant], attached))
    if hanging:
        # A group may begin with logs only; that slice is older than the first base file.
        slices += [FileSlice(*slice_key, None, tuple(attached)) for slice_key, attached in hanging.items()]
        slices.sort(key=lambda file_slice: file_slice.instant)
    return slices


def _attach(
    groups: Mapping[tuple[PartitionPath, FileId], Mapping[InstantTime, BaseFile]],
    logs: Iterable[LogFile],
    timeline: Timeline,
) -> dict[tuple[PartitionPath, FileId, InstantTime], list[LogFile]]:
    attached: dict[tuple[PartitionPath, FileId, InstantTime], list[LogFile]] = {}
    first_log: dict[tuple[PartitionPath, FileId], InstantTime] = {}
    placement = _place_by_base_instant if timeline.layout == 1 else _place_by_completion
    for log in sorted(logs, key=lambda f: (f.instant, f.version, f.name)):
        group = (log.partition, log.file_id)
        instant = placement(log, groups.get(group, {}), timeline)
        if instant is not None:
            attached.setdefault((*group, instant or first_log.setdefault(group, log.instant)), []).append(log)
    return attached


def _place_by_base_instant(
    log: LogFile, bases: Mapping[InstantTime, BaseFile], timeline: Timeline
) -> InstantTime | None:
    """Return the base instant of the slice of a layout 1 log.

    None: it is not visible. ``""``: the group has no older base file, and the slice is that of its first log.

    Logs written during a pending compaction name the compaction's instant and belong to the slice before it
    until it completes (docs/format.md, File slices). Blocks of pending instants are filtered later, one by
    one.
    """
    if log.instant in bases:
        return log.instant
    if timeline.bound is not None and log.instant > timeline.bound:
        return None
    if log.instant in timeline.pending_clusterings or timeline.has_left(log.instant):
        return None  # a copy for a new bucket, whose rows are in the old one, too
    return max((i for i in bases if i < log.instant), default=InstantTime(""))


def _place_by_completion(log: LogFile, bases: Mapping[InstantTime, BaseFile], timeline: Timeline) -> InstantTime | None:
    """Return the base instant of the slice of a layout 2 log (docs/format.md, File slices).

    None: the log is not committed. ``""``: the group has no base file and this log starts a slice.
    """
    if not timeline.is_committed(log.instant):
        return None
    done = timeline.completion_of(log.instant)
    return max((i for i in bases if i <= done), default=InstantTime(""))


def lacks_completions(bases: Iterable[BaseFile], logs: Iterable[LogFile], timeline: Timeline) -> bool:
    """Return whether the archive is needed to assign logs to slices.

    A write that began before a compaction was requested may complete after it; its log belongs to the new
    slice. Once its commit is archived, only the archive has its completion time.

    Args:
        bases: all base files of some file groups.
        logs: all logs of the same file groups.
        timeline: the active timeline.
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
    """Return the latest committed slice of every file group that is not replaced.

    Args:
        replaced: (partition, file id) → requested time of the replacecommit that hid the group.
    """
    if not logs:
        return _newest_bases(bases, timeline, replaced)
    latest: dict[tuple[PartitionPath, FileId], FileSlice] = {}
    for file_slice in all_slices(bases, logs, timeline):
        key = (file_slice.partition, file_slice.file_id)
        newest = latest.get(key)
        if newest is None or file_slice.instant > newest.instant:
            latest[key] = file_slice
    live_slices = [file_slice for key, file_slice in latest.items() if key not in replaced]
    return sorted(live_slices, key=lambda s: (s.partition, s.file_id))


def _newest_bases(bases: Iterable[BaseFile], timeline: Timeline, replaced: _Replaced) -> list[FileSlice]:
    """Return the same as :func:`build_slices` where there are no logs: only the slices that are returned are made."""
    newest: dict[tuple[PartitionPath, FileId], BaseFile] = {}
    committed: dict[InstantTime, bool] = {}
    for base in bases:
        group = (base.partition, base.file_id)
        if group in replaced:
            continue
        is_committed = committed.get(base.instant)
        if is_committed is None:
            committed[base.instant] = is_committed = timeline.is_committed(base.instant)
        if is_committed:
            before = newest.get(group)
            if before is None or (before.instant, before.write_token) < (base.instant, base.write_token):
                newest[group] = base
    return [FileSlice(*group, newest[group].instant, newest[group]) for group in sorted(newest)]
