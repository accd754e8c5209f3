"""File groups before and after a commit: their files, and whether those still exist.

Pure except :meth:`FileHistory.load`. Files that a clean removed are known by name, so that a state
that needs one is an error instead of a smaller state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from lakefmt.data_classes import dataclass
from lakefmt.errors import SnapshotExpired
from lakefmt.filegroups.model import BaseFile, FileSlice, LogFile, all_slices
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.formats.names import parse_log_file
from lakefmt.read.change_sources import ChangeSource
from lakefmt.read.snapshot_files import cleaned_files, cleans_beyond_promise
from lakefmt.timeline.instant import Instant
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import InstantTime, PartitionPath

__all__ = ["FileHistory", "GroupFiles"]

_Key = tuple[str, str]


@dataclass(slots=True)
class GroupFiles:
    """All files that a file group has or had; ``gone`` has the paths of removed ones."""

    bases: list[BaseFile] = field(default_factory=list)
    logs: list[LogFile] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class FileHistory:
    """The file groups of a table at any commit.

    Attributes:
        timeline: all commits, with the relevant archived ones.
        groups: (partition, file id) → its files.
    """

    timeline: Timeline
    groups: dict[_Key, GroupFiles]

    @classmethod
    def load(
        cls, client: TableClient, state: TableState, first: InstantTime, partitions: Sequence[PartitionPath]
    ) -> FileHistory:
        """List the partitions, and the files that cleans removed from them since the commit `first`."""
        bases, logs = client.listing(state.config).files(partitions)
        groups: dict[_Key, GroupFiles] = {}
        for base in bases:
            groups.setdefault((base.partition, base.file_id), GroupFiles()).bases.append(base)
        for log in logs:
            groups.setdefault((log.partition, log.file_id), GroupFiles()).logs.append(log)
        present, wanted = {base.path for base in bases} | {log.path for log in logs}, set(partitions)
        for removed in _removed(client, state, first):
            if removed.partition in wanted and removed.path not in present:
                group = groups.setdefault((removed.partition, removed.file_id), GroupFiles())
                if removed.path not in group.gone:
                    group.gone.add(removed.path)
                    if isinstance(removed, BaseFile):
                        group.bases.append(removed)
                    else:
                        group.logs.append(removed)
        timeline = state.timeline
        if not all(timeline.tells_completion_of(log.instant) for group in groups.values() for log in group.logs):
            timeline = client.with_history(state).timeline  # it decides what a commit saw
        return cls(timeline, groups)

    def base(self, source: ChangeSource, instant: str) -> FileSlice:
        """Return a group's base file at an instant, as a slice.

        Raises:
            SnapshotExpired: the file was cleaned.
        """
        group = self.groups.get((source.partition, source.file_id), GroupFiles())
        base = max((b for b in group.bases if b.instant == instant), key=lambda b: b.write_token, default=None)
        if base is None or base.path in group.gone:
            where = f"{source.partition}/{source.file_id}".lstrip("/")
            raise SnapshotExpired(f"the base file of {where} at {instant} is gone: a clean removed it")
        return FileSlice(source.partition, source.file_id, InstantTime(instant), base)

    def slice_at(self, source: ChangeSource, commit: Instant, *, after: bool) -> tuple[FileSlice | None, Timeline]:
        """Return a group's slice just before or just after a commit, and the timeline to read it with.

        Raises:
            SnapshotExpired: a file of the slice was cleaned.
        """
        group = self.groups.get((source.partition, source.file_id), GroupFiles())
        by_request = self.timeline.layout == 1 or _has_shared_logs(source, commit)
        timeline = self._timeline_at(commit, after=after) if by_request else self.timeline
        bases, logs = group.bases, group.logs
        if not by_request:
            bases = [b for b in bases if self._is_seen(b.instant, commit, after=after)]
            logs = [log for log in logs if self._is_seen(log.instant, commit, after=after)]
        slices = all_slices(bases, logs, timeline)
        latest = max(slices, key=lambda file_slice: file_slice.instant, default=None)
        lost = [] if latest is None else [path for path in latest.paths if path in group.gone]
        if lost:
            raise SnapshotExpired(f"{lost[0]} is gone: a clean removed it")
        return latest, timeline

    def _is_seen(self, time: InstantTime, commit: Instant, *, after: bool) -> bool:
        """Return whether an instant's files were visible around a commit, by completion order."""
        if time == commit.time:
            return after
        done = self.timeline.completion_of(time)
        return (done, time) < (commit.order_time, commit.time)

    def _timeline_at(self, commit: Instant, *, after: bool) -> Timeline:
        """Return the timeline up to a commit or just before it, by requested times."""
        if after:
            return self.timeline.as_of(commit.time)
        return self.timeline.as_of(_before(commit.time))


def _has_shared_logs(source: ChangeSource, commit: Instant) -> bool:
    """Return whether a commit wrote logs of version 6: named by their slice, they outlive an upgrade and its layout.

    Such a log may hold blocks of other commits, too, and is found by the commit's requested time. So were the commits:
    an upgrade gives them completion times in that order.
    """
    names = (parse_log_file(path.rpartition("/")[2]) for path in source.files)
    return any(name is not None and not name.is_cdc and name.instant != commit.time for name in names)


def _before(time: str) -> str:
    """Return a bound below an instant time and above every earlier one.

    Example:
        >>> _before("20260101000000000"), _before("20260101000000001")
        ('20260100999999999', '20260101000000000')
    """
    return str(int(time) - 1).rjust(len(time), "0")


def _removed(client: TableClient, state: TableState, first: InstantTime) -> Iterable[BaseFile | LogFile]:
    """Yield the base files and logs that cleans removed since a commit; none if the cleans promise to have kept them all.

    What a commit met is told by completion: a service that was requested before it and completed after it does not count.
    """
    now = TableState(state.config, client.timeline_store(state.config).load())
    begun = next((i.order_time for i in state.timeline.commits if i.time == first), first)
    earliest = min((i.time for i in now.timeline.commits if i.order_time >= begun), default=first)
    for _, record in cleans_beyond_promise(client, now, first, min(first, earliest)):
        bases, logs = cleaned_files(record)
        yield from bases
        yield from logs
