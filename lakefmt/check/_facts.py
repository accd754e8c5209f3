"""The facts about a table that a check collects: names, timeline, heartbeats, footers, keys. Values only.

Facts are not judged here; :mod:`lakefmt.check.rules` decides what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property

from lakefmt.check._collect_keys import DuplicateKeys, KeyFacts
from lakefmt.config.table_config import TableConfig
from lakefmt.data_classes import dataclass
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
        problem: what is wrong with the file; empty if it is valid.
        checksum_only: only the checksum is wrong.
        backup: None without a backup; else its problem, empty if it is valid.
        values: the properties of the valid file; None if neither is valid.
    """

    problem: str = ""
    checksum_only: bool = False
    backup: str | None = None
    values: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class NotesFacts:
    """The state of lakefmt's table file: its problem, and the index that its bytes still show."""

    problem: str = ""
    index: str | None = None


@dataclass(frozen=True, slots=True)
class FooterFacts:
    """The content of a base file's footer; `problem` if it cannot be read.

    Attributes:
        stat: the write stat in the footer, if lakefmt wrote the file.
        filter_problem: what is wrong with its bloom filter.
    """

    rows: int = 0
    low: str | None = None
    high: str | None = None
    has_filter: bool = False
    has_meta: bool = True
    stat: Mapping[str, int] | None = None
    filter_problem: str = ""
    problem: str = ""
    is_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why the rows of a file cannot be read here; no damage."""

    reason: str


@dataclass(frozen=True)
class TableFacts:
    """The facts about a table.

    Attributes:
        before: the timeline read before the listing: its files must exist.
        after: the timeline read after the listing: files outside of it belong to no active writer.
        bases: base files in partitions, with or without metadata file, committed or not.
        misplaced_partitions: partitions without a metadata file.
        commits: requested time → metadata of completed commits.
        unreadable: completed instants with an unreadable body → reason.
        unknown: files, by name, that hold what is not known here → what it is. That is no damage: another release of Hudi
            may have written it.
        removed: base files and logs that cleans removed or will remove.
        lost: files that repairs gave up.
        spare: missing base files of compactions without missing rows.
        alive: liveness of every pending instant, claim and marker directory.
        claims: instants with a heartbeat.
        marked: instants with a marker directory.
        were_complete: pending instants that were complete and lost their completed file.
        planned: pending clusterings of version 6.
        temporaries: temporary files of ended processes.
        saved: instants with a saved write.
        logs: log files in the same directories as `bases`.
        log_looks: path → block headers of the newest slices' logs and of logs that no commit names;
            in a full check of all.
        slicing: `before`, with the archive if needed to place logs.
        archived_owners: archived commits of logs that no active commit names, if needed.
        archived_times: the times of archived commits, where files have times that are older than the active timeline; a fast
            check does not read them.
        footers: path → footer of the latest files, and of the newest readable file before a missing
            one.
        keys: path → facts about keys; empty unless key columns were read.
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
    unknown: Mapping[str, str] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    spare: frozenset[str] = frozenset()
    alive: Mapping[InstantTime, Liveness] = field(default_factory=dict)
    claims: frozenset[InstantTime] = frozenset()
    marked: frozenset[InstantTime] = frozenset()
    saved: frozenset[InstantTime] = frozenset()
    were_complete: frozenset[InstantTime] = frozenset()
    planned: frozenset[InstantTime] = frozenset()
    temporaries: tuple[str, ...] = ()
    logs: tuple[LogFile, ...] = ()
    log_looks: Mapping[str, LogInspection] = field(default_factory=dict)
    archived_owners: Mapping[str, Sequence[tuple[InstantTime, WriteStat]]] = field(default_factory=dict)
    archived_times: frozenset[InstantTime] = frozenset()
    footers: Mapping[str, FooterFacts] = field(default_factory=dict)
    keys: Mapping[str, KeyFacts] = field(default_factory=dict)
    key_problems: Mapping[str, str] = field(default_factory=dict)
    duplicates: tuple[DuplicateKeys, ...] = ()
    wants_filters: bool = True
    partitions: frozenset[PartitionPath] | None = None
    slicing: Timeline | None = None

    @cached_property
    def not_known(self) -> dict[str, str]:
        """All files with content that is not known here, by name."""
        footers = {path: footer.problem for path, footer in self.footers.items() if footer.is_unknown}
        logs = {path: look.unknown for path, look in self.log_looks.items() if look.unknown}
        return {**self.unknown, **footers, **logs}

    @cached_property
    def present(self) -> frozenset[str]:
        """The paths of all existing base files."""
        return frozenset(file.path for file in self.bases)

    @cached_property
    def looks_by_group(self) -> dict[tuple[str, str], dict[str, LogInspection]]:
        """The block headers of each file group's logs by path."""
        looks: dict[tuple[str, str], dict[str, LogInspection]] = {}
        for log in self.logs:
            if log.path in self.log_looks:
                looks.setdefault((log.partition, log.file_id), {})[log.path] = self.log_looks[log.path]
        return looks

    @cached_property
    def replaced(self) -> dict[tuple[str, str], InstantTime]:
        """The replaced file groups."""
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
        """All files in commits, with the commit."""
        return {stat.path: (time, stat) for time, commit in self.commits.items() for stat in commit.stats if stat.path}

    @cached_property
    def expected(self) -> dict[str, BaseFile]:
        """All base files in commits."""
        files = {}
        for path, (_, stat) in self.stats.items():
            parsed = parse_base_file(stat.file_name)
            if parsed is not None and self.is_wanted(PartitionPath(path.rpartition("/")[0])):
                place = PartitionPath(path.rpartition("/")[0])
                files[path] = BaseFile(
                    place, stat.file_name, parsed.file_id, parsed.write_token, parsed.instant, stat.file_size_in_bytes
                )
        return files

    @cached_property
    def missing(self) -> dict[str, BaseFile]:
        """The base files in commits that do not exist and that no clean removed."""
        absent = self.expected.keys() - self.present - self.removed - self.lost
        # Files that were rolled back during the listing are not missing.
        return {
            path: self.expected[path] for path in sorted(absent) if self.after.is_committed(self.expected[path].instant)
        }

    @cached_property
    def latest(self) -> tuple[FileSlice, ...]:
        """The slices that readers see."""
        return tuple(build_slices(self.bases, [], self.before, self.replaced))

    @cached_property
    def slices_of(self) -> dict[tuple[PartitionPath, FileId], list[FileSlice]]:
        """All committed slices of existing files by file group, oldest first."""
        groups: dict[tuple[PartitionPath, FileId], list[FileSlice]] = {}
        for file_slice in all_slices(self.bases, [], self.before):
            groups.setdefault((file_slice.partition, file_slice.file_id), []).append(file_slice)
        return groups

    @cached_property
    def log_owners(self) -> dict[str, list[tuple[InstantTime, WriteStat]]]:
        """The existing logs in commits, with these commits, oldest first."""
        commits: dict[str, list[tuple[InstantTime, WriteStat]]] = {}
        for time, commit in sorted(self.commits.items()):
            if self.after.is_committed(time):
                for stat in commit.stats:
                    if stat.path and parse_log_file(stat.file_name) is not None:
                        commits.setdefault(stat.path, []).append((time, stat))
        for path, owners in self.archived_owners.items():
            commits.setdefault(path, [*owners])
        return commits

    @cached_property
    def missing_logs(self) -> dict[str, LogFile]:
        """The logs in commits that do not exist and that no clean removed."""
        absent = self.log_owners.keys() - {log.path for log in self.logs} - self.removed - self.lost
        missing = {}
        for path in sorted(absent):
            place, name = PartitionPath(path.rpartition("/")[0]), path.rpartition("/")[2]
            log = parse_log_file(name)
            if log is not None and not log.is_cdc and self.is_wanted(place) and not self._is_withdrawn(log.instant):
                missing[path] = LogFile(place, name, log.file_id, log.instant, log.version, 0)
        return missing

    def _is_withdrawn(self, time: InstantTime) -> bool:
        """Return whether a clustering went, and with it the logs that writers had copied to its new buckets."""
        return not self.before.is_committed(time) and time not in self.before.pending_times

    @cached_property
    def latest_logs(self) -> frozenset[str]:
        """The paths of the newest slices' logs, existing or missing."""
        bases = (*self.bases, *(self.expected[path] for path in self.missing))
        logs = (*self.logs, *self.missing_logs.values())
        timeline = self.before if self.slicing is None else self.slicing
        return frozenset(
            log.path for file_slice in build_slices(bases, logs, timeline, self.replaced) for log in file_slice.logs
        )

    def is_wanted(self, partition: PartitionPath) -> bool:
        """Return whether a partition is part of the check."""
        return self.partitions is None or partition in self.partitions
