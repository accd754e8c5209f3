"""What a check knows of a table before it judges: names, timeline, signs of life, footers, key columns. Values only.

Everything is as it was found; whether it is wrong is decided in ``check_find``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from lakefmt.check._collect_keys import DuplicateKeys, KeyFacts
from lakefmt.config.table_config import TableConfig
from lakefmt.filegroups.logs.log_inspection import LogInspection
from lakefmt.filegroups.model import BaseFile, FileSlice, LogFile, all_slices, build_slices
from lakefmt.formats.names import parse_base_file, parse_log_file
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.timeline.heartbeat import Liveness
from lakefmt.timeline.instant import Action, Instant
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import FileId, InstantTime, PartitionPath, WriteStat

__all__ = ["FooterFacts", "NotesFacts", "PropertiesFacts", "TableFacts"]


@dataclass(frozen=True, slots=True)
class PropertiesFacts:
    """The state of ``hoodie.properties``.

    Attributes:
        problem: what is wrong with the file; empty when it is whole.
        checksum_only: True when all that is wrong is that its checksum is not that of its content.
        backup: None without a backup; else what is wrong with it, empty when it is whole.
        values: the properties, from whichever is whole; None when neither is.
    """

    problem: str = ""
    checksum_only: bool = False
    backup: str | None = None
    values: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class NotesFacts:
    """The state of lakefmt's own notes: what is wrong, and the index that the bytes still tell."""

    problem: str = ""
    index: str | None = None


@dataclass(frozen=True, slots=True)
class FooterFacts:
    """What a base file's footer tells; `problem` when it cannot be read.

    Attributes:
        stat: what its writer counted, when that was lakefmt.
        filter_problem: what is wrong with the text of its filter.
    """

    rows: int = 0
    low: str | None = None
    high: str | None = None
    has_filter: bool = False
    has_meta: bool = True
    stat: Mapping[str, int] | None = None
    filter_problem: str = ""
    problem: str = ""


@dataclass(frozen=True)
class TableFacts:
    """A table as a check found it.

    Attributes:
        before: the timeline before files were listed: what it names must be among them.
        after: the timeline after files were listed: what it does not name, nobody was writing.
        bases: base files in directories that are partitions, or are named as such, committed or not.
        misplaced_partitions: partitions whose metadata file is not there.
        commits: what completed commits say, by requested time.
        unreadable: completed instants whose content cannot be read, and why.
        removed: base files and logs that cleans have removed or are about to.
        lost: files that were given up.
        spare: base files of compactions that are gone, and of which readers miss no row.
        alive: signs of life of every pending instant, claim and marker directory.
        claims: instants with a heartbeat file.
        marked: instants with a marker directory.
        were_complete: pending instants that were complete, and whose completed file is gone.
        planned: pending replacecommits of version 6 that hold the plan of a clustering.
        temporaries: temporary files whose process has ended.
        logs: log files in the same directories as `bases`.
        log_looks: by path; of the logs of the newest slices and of those that no commit names, in a full check of all.
        slicing: `before` with the history, where that has to tell which slice a log is of.
        archived_owners: archived commits that name logs which no active one names, where that was asked.
        footers: by path; of every latest file, and of the newest readable one behind a file that is gone.
        keys: by path; empty unless key columns were read.
    """

    config: TableConfig
    before: Timeline
    after: Timeline
    properties: PropertiesFacts = PropertiesFacts()
    notes: NotesFacts = NotesFacts()
    bases: tuple[BaseFile, ...] = ()
    misplaced_partitions: Mapping[PartitionPath, InstantTime] = field(default_factory=dict)
    commits: Mapping[InstantTime, CommitMetadata] = field(default_factory=dict)
    unreadable: Mapping[Instant, str] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    spare: frozenset[str] = frozenset()
    alive: Mapping[InstantTime, Liveness] = field(default_factory=dict)
    claims: frozenset[InstantTime] = frozenset()
    marked: frozenset[InstantTime] = frozenset()
    were_complete: frozenset[InstantTime] = frozenset()
    planned: frozenset[InstantTime] = frozenset()
    temporaries: tuple[str, ...] = ()
    logs: tuple[LogFile, ...] = ()
    log_looks: Mapping[str, LogInspection] = field(default_factory=dict)
    archived_owners: Mapping[str, Sequence[tuple[InstantTime, WriteStat]]] = field(default_factory=dict)
    footers: Mapping[str, FooterFacts] = field(default_factory=dict)
    keys: Mapping[str, KeyFacts] = field(default_factory=dict)
    key_problems: Mapping[str, str] = field(default_factory=dict)
    duplicates: tuple[DuplicateKeys, ...] = ()
    wants_filters: bool = True
    partitions: frozenset[PartitionPath] | None = None
    slicing: Timeline | None = None

    @cached_property
    def present(self) -> frozenset[str]:
        """The paths of all base files that are there."""
        return frozenset(file.path for file in self.bases)

    @cached_property
    def looks_by_group(self) -> dict[tuple[str, str], dict[str, LogInspection]]:
        """What was seen of each file group's logs, by path."""
        found: dict[tuple[str, str], dict[str, LogInspection]] = {}
        for log in self.logs:
            if log.path in self.log_looks:
                found.setdefault((log.partition, log.file_id), {})[log.path] = self.log_looks[log.path]
        return found

    @cached_property
    def replaced(self) -> dict[tuple[str, str], InstantTime]:
        """File groups that replacecommits have hidden."""
        by_time = {instant.time: instant for instant in self.before.commits}
        return {
            (partition, file_id): time
            for time, commit in self.commits.items()
            if time in by_time and by_time[time].action is Action.REPLACE_COMMIT
            for partition, ids in commit.replaced_file_ids.items()
            for file_id in ids
        }

    @cached_property
    def stats(self) -> dict[str, tuple[InstantTime, WriteStat]]:
        """Every file that a commit names, with the commit."""
        return {stat.path: (time, stat) for time, commit in self.commits.items() for stat in commit.stats if stat.path}

    @cached_property
    def expected(self) -> dict[str, BaseFile]:
        """Every base file that a commit names."""
        found = {}
        for path, (_, stat) in self.stats.items():
            parsed = parse_base_file(stat.file_name)
            if parsed is not None and self.is_wanted(PartitionPath(path.rpartition("/")[0])):
                place = PartitionPath(path.rpartition("/")[0])
                found[path] = BaseFile(
                    place, stat.file_name, parsed.file_id, parsed.write_token, parsed.instant, stat.file_size_in_bytes
                )
        return found

    @cached_property
    def missing(self) -> dict[str, BaseFile]:
        """Base files that a commit names, that no clean removed, and that are not there."""
        gone = self.expected.keys() - self.present - self.removed - self.lost
        # What was rolled back while files were listed is no loss.
        return {
            path: self.expected[path] for path in sorted(gone) if self.after.is_committed(self.expected[path].instant)
        }

    @cached_property
    def latest(self) -> tuple[FileSlice, ...]:
        """The slices that readers see."""
        return tuple(build_slices(self.bases, [], self.before, self.replaced))

    @cached_property
    def slices_of(self) -> dict[tuple[PartitionPath, FileId], list[FileSlice]]:
        """Every committed slice of every group, oldest first, of files that are there."""
        groups: dict[tuple[PartitionPath, FileId], list[FileSlice]] = {}
        for file_slice in all_slices(self.bases, [], self.before):
            groups.setdefault((file_slice.partition, file_slice.file_id), []).append(file_slice)
        return groups

    @cached_property
    def log_owners(self) -> dict[str, list[tuple[InstantTime, WriteStat]]]:
        """Every log that a commit names which is still there, with these commits, oldest first."""
        found: dict[str, list[tuple[InstantTime, WriteStat]]] = {}
        for time, commit in sorted(self.commits.items()):
            if self.after.is_committed(time):
                for stat in commit.stats:
                    if stat.path and parse_log_file(stat.file_name) is not None:
                        found.setdefault(stat.path, []).append((time, stat))
        for path, owners in self.archived_owners.items():
            found.setdefault(path, [*owners])
        return found

    @cached_property
    def missing_logs(self) -> dict[str, LogFile]:
        """Logs that a commit names, that no clean removed, and that are not there."""
        gone = self.log_owners.keys() - {log.path for log in self.logs} - self.removed - self.lost
        found = {}
        for path in sorted(gone):
            place, name = PartitionPath(path.rpartition("/")[0]), path.rpartition("/")[2]
            log = parse_log_file(name)
            if log is not None and not log.is_cdc and self.is_wanted(place):
                found[path] = LogFile(place, name, log.file_id, log.instant, log.version, 0)
        return found

    @cached_property
    def latest_logs(self) -> frozenset[str]:
        """The paths of the logs, there or missing, that the newest slices consist of."""
        bases = (*self.bases, *(self.expected[path] for path in self.missing))
        logs = (*self.logs, *self.missing_logs.values())
        timeline = self.before if self.slicing is None else self.slicing
        return frozenset(
            log.path for file_slice in build_slices(bases, logs, timeline, self.replaced) for log in file_slice.logs
        )

    def is_wanted(self, partition: PartitionPath) -> bool:
        """Return whether a partition was asked about."""
        return self.partitions is None or partition in self.partitions
