"""What a check knows of a table, and what it finds: facts, findings, and the steps of a repair. Pure.

A finding has what is wrong, where, the consequence and the remedy, and the repair step if there is
one. A plan has the steps of all findings in order, with at most one rewrite per file group.

Facts are names, the timeline, heartbeats, footers and keys; they are not judged here: :mod:`lakefmt._core.check.rules` decides
what is wrong.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from lakefmt._core.check._collect_keys import DuplicateKeys, KeyFacts
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.log_reader import LogInspection
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile, all_slices, build_slices
from lakefmt._core.formats.names import parse_base_file, parse_log_file
from lakefmt._core.notebook import NotebookText
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.heartbeat import Liveness
from lakefmt._core.timeline.instant import Action, Instant
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import FileId, InstantTime, PartitionPath, WriteStat

__all__ = [
    "LOST_KEY",
    "AcceptLoss",
    "CheckReport",
    "CorrectCounts",
    "DeleteFiles",
    "Finding",
    "FooterFacts",
    "Kind",
    "MarkPartition",
    "NotesFacts",
    "Outcome",
    "PropertiesFacts",
    "RebuildIndexes",
    "RepairPlan",
    "RepairReport",
    "RestoreNotes",
    "RestoreProperties",
    "RewriteFile",
    "RewriteLog",
    "SetAside",
    "Step",
    "SweepTemporary",
    "TableFacts",
    "UndoWrites",
    "plan_repair",
]

Rows = npt.NDArray[np.int64]
#: The entry of commit metadata with files that were given up: a JSON array of paths.
LOST_KEY = "lakefmt.repair.lost"


class Kind(enum.Enum):
    """The kinds of findings."""

    PROPERTIES = "properties"
    LEFT_BACKUP = "left_backup"
    NOTES = "notes"
    ORPHAN_FILE = "orphan_file"
    ORPHAN_TEMPORARY = "orphan_temporary"
    ORPHAN_MARKERS = "orphan_markers"
    ORPHAN_HEARTBEAT = "orphan_heartbeat"
    ORPHAN_SAVED_WRITE = "orphan_saved_write"
    STRAY_FILE = "stray_file"
    MISSING_FILE = "missing_file"
    CORRUPT_FILE = "corrupt_file"
    CORRUPT_SEGMENT = "corrupt_segment"
    CORRUPT_INSTANT = "corrupt_instant"
    STUCK_INSTANT = "stuck_instant"
    MISSING_COMPLETION = "missing_completion"
    COUNTS = "counts"
    FOOTERS = "footers"
    BLOOM_FILTER = "bloom_filter"
    KEY_RANGE = "key_range"
    PARTITION_METADATA = "partition_metadata"
    META_COLUMNS = "meta_columns"
    RECORD_KEYS = "record_keys"
    WRONG_PARTITION = "wrong_partition"
    DUPLICATE_KEYS = "duplicate_keys"
    METADATA_TABLE = "metadata_table"


# --------------------------------------------------------------------------------------------------------------- steps


@dataclass(frozen=True, slots=True)
class RestoreProperties:
    """Restore ``hoodie.properties`` from its backup, or write its content with a right checksum."""

    order: ClassVar[int] = 0
    from_backup: bool
    loses: str = ""

    def __str__(self) -> str:
        how = "from its backup" if self.from_backup else "with the checksum that its content has"
        return f"restore .hoodie/hoodie.properties {how}"


@dataclass(frozen=True, slots=True)
class RestoreNotes:
    """Rewrite lakefmt's table file; a copy is kept."""

    order: ClassVar[int] = 1
    index: str
    loses: str = ""

    def __str__(self) -> str:
        return f"write .hoodie/.lakefmt/table.json anew with index {self.index!r}"


@dataclass(frozen=True, slots=True)
class UndoWrites:
    """Roll back failed writes, remove claims and markers; with `loses`, a complete write without its completed file."""

    order: ClassVar[int] = 2
    instants: tuple[InstantTime, ...] = ()
    loses: str = ""

    def __str__(self) -> str:
        instant_list = f" {', '.join(self.instants)}" if self.instants else " nothing"
        return f"roll back{instant_list}; sweep claims and markers of writes that ended"


@dataclass(frozen=True, slots=True)
class SweepTemporary:
    """Remove temporary files of ended processes."""

    order: ClassVar[int] = 3
    loses: str = ""

    def __str__(self) -> str:
        return "remove temporary files of processes that ended"


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Delete data files without an instant that no reader sees."""

    order: ClassVar[int] = 4
    names: tuple[str, ...]
    loses: str = ""

    def __str__(self) -> str:
        return "\n".join([f"delete {len(self.names)} files that no instant names", *(f"  {n}" for n in self.names)])


@dataclass(frozen=True, slots=True)
class SetAside:
    """Move a file away that exists next to the one in its commit; its bytes are kept.

    Attributes:
        name: the file.
        named: the file of the same group and instant in the commit; empty without one, as for a
            log.
    """

    order: ClassVar[int] = 4
    name: str
    named: str
    loses: str = ""

    def __str__(self) -> str:
        why = f"its commit names {self.named}" if self.named else "its commit does not name it"
        return f"move {self.name} to .hoodie/.lakefmt/repaired: {why}"


@dataclass(frozen=True, slots=True)
class RewriteLog:
    """Rewrite an unreadable log of `size` bytes with its intact blocks, except those at offsets `drop`; keep a copy."""

    order: ClassVar[int] = 4
    name: str
    loses: str = ""
    drop: tuple[int, ...] = ()
    size: int = 0

    def __str__(self) -> str:
        but = f", without that at byte {', '.join(map(str, self.drop))}" if self.drop else ""
        return f"write {self.name} anew with its whole blocks alone{but}"


@dataclass(frozen=True, slots=True)
class MarkPartition:
    """Write a missing partition metadata file."""

    order: ClassVar[int] = 5
    partition: PartitionPath
    instant: InstantTime
    loses: str = ""

    def __str__(self) -> str:
        return f"put .hoodie_partition_metadata into {self.partition or '.'}"


@dataclass(frozen=True)
class CorrectCounts:
    """Rewrite a completed commit's body with the counts of its files; a copy is kept.

    Attributes:
        counts: file path → name of the count → right value.
    """

    order: ClassVar[int] = 6
    instant: Instant
    counts: Mapping[str, Mapping[str, int]]
    loses: str = ""

    def __str__(self) -> str:
        lines = [f"correct the counts in {self.instant.file_name}"]
        for path, numbers in self.counts.items():
            lines.append(f"  {path}: {', '.join(f'{name}={value}' for name, value in numbers.items())}")
        return "\n".join(lines)


@dataclass(frozen=True)
class RewriteFile:
    """Write a file group's rows as a new slice, by a commit.

    Attributes:
        source: the base file with the rows: the latest one, or the newest that can be read.
        latest: path of the group's latest base file when the plan was made.
        rekey: rebuild record keys from their columns.
        move: move rows to the partition of their values.
        drop: row numbers in `source` that lose to another row with their key.
        gives_up: files that cannot be restored; the commit names them.
    """

    order: ClassVar[int] = 7
    source: BaseFile
    latest: str
    why: str
    rekey: bool = False
    move: bool = False
    drop: Rows | None = field(default=None, compare=False, repr=False)
    gives_up: tuple[str, ...] = ()
    loses: str = ""

    def __str__(self) -> str:
        return f"rewrite {self.source.path} as a new slice: {self.why}"

    @property
    def keeps_rows(self) -> bool:
        """Whether every row of the group keeps its key and place."""
        drops = self.drop is not None and len(self.drop) > 0
        return self.source.path == self.latest and not (self.rekey or self.move or drops or self.gives_up)


@dataclass(frozen=True, slots=True)
class AcceptLoss:
    """Commit that files are lost; groups without a readable file are hidden, their bytes stay."""

    order: ClassVar[int] = 8
    lost: tuple[str, ...]
    hides: tuple[tuple[PartitionPath, FileId], ...] = ()
    loses: str = ""

    def __str__(self) -> str:
        hidden = f", and hide {len(self.hides)} file groups without a readable file" if self.hides else ""
        return "\n".join([f"give {len(self.lost)} files up for lost{hidden}", *(f"  {name}" for name in self.lost)])


@dataclass(frozen=True, slots=True)
class RebuildIndexes:
    """Make indexes of the metadata table anew: damaged ones, or those taken away before files were changed in their place."""

    order: ClassVar[int] = 9
    indexes: tuple[str, ...]
    loses: str = ""

    def __str__(self) -> str:
        return f"make the metadata table anew: {', '.join(self.indexes)}"


Step = (
    RestoreProperties
    | RestoreNotes
    | UndoWrites
    | SweepTemporary
    | DeleteFiles
    | SetAside
    | RewriteLog
    | MarkPartition
    | CorrectCounts
    | RewriteFile
    | AcceptLoss
    | RebuildIndexes
)

# ------------------------------------------------------------------------------------------------------------ findings


@dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        kind: the kind.
        where: the file, directory or instant, relative to the table.
        what: what is wrong.
        consequence: the effect on readers and writers.
        remedy: what helps.
        steps: the steps of ``table.repair``; empty: lakefmt cannot repair it.

    Example:
        >>> print(Finding(Kind.ORPHAN_FILE, "p/f.parquet", "no instant names it", "it takes room", "delete it"))
        orphan_file p/f.parquet: no instant names it
            it takes room; delete it
    """

    kind: Kind
    where: str
    what: str
    consequence: str
    remedy: str
    steps: tuple[Step, ...] = field(default=(), compare=False, repr=False)

    @property
    def loses(self) -> str:
        """The losses of the repair; empty if there are none."""
        return "; ".join(dict.fromkeys(step.loses for step in self.steps if step.loses))

    def __str__(self) -> str:
        loss = f" (loses {self.loses})" if self.loses else ""
        return f"{self.kind.value} {self.where}: {self.what}\n    {self.consequence}; {self.remedy}{loss}"


@dataclass(frozen=True)
class RepairPlan(NotebookText):
    """The steps of ``table.repair`` in order; prints one line each.

    Attributes:
        steps: the steps in order.
        level: the level of the check.
        partitions: the partitions of the check.
        basis: file name of the newest commit at that time; rows are rewritten only if it still is
            the newest.

    Example:
        >>> print(RepairPlan())
        repair: nothing to do
    """

    steps: tuple[Step, ...] = ()
    level: str = "fast"
    partitions: tuple[PartitionPath, ...] | None = None
    basis: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there are no steps."""
        return not self.steps

    @property
    def losing(self) -> tuple[Step, ...]:
        """The steps that lose rows or the means to restore them: they need ``accept_loss=True``."""
        return tuple(step for step in self.steps if step.loses)

    def __str__(self) -> str:
        if not self.steps:
            return "repair: nothing to do"
        lines = ["repair:"]
        for step in self.steps:
            lines += [f"  {line}" for line in str(step).split("\n")]
            if step.loses:
                lines.append(f"    LOSES {step.loses}: runs only with accept_loss=True")
        return "\n".join(lines)


@dataclass(frozen=True)
class CheckReport(NotebookText):
    """The result of a check; prints a line or two per finding.

    Attributes:
        findings: what is wrong.
        notes: what may be intended, such as duplicate keys of plain inserts.
        files: number of examined base files and logs.
        skipped: rules that do not apply, and why.
        partitions: the checked partitions; None: all.
        basis: file name of the newest commit.

    Example:
        >>> print(CheckReport("memory://t", "fast", files=3))
        memory://t: nothing wrong (fast check of 3 files)
    """

    url: str
    level: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    files: int = 0
    skipped: tuple[str, ...] = ()
    partitions: tuple[PartitionPath, ...] | None = None
    basis: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    @property
    def plan(self) -> RepairPlan:
        """The plan that ``table.repair`` would execute."""
        return replace(plan_repair(self.findings), level=self.level, partitions=self.partitions, basis=self.basis)

    def __str__(self) -> str:
        summary = f"{len(self.findings)} findings" if self.findings else "nothing wrong"
        lines = [f"{self.url}: {summary} ({self.level} check of {self.files:,} files)"]
        lines += [f"  {line}" for finding in self.findings for line in str(finding).split("\n")]
        lines += [f"  note: {line}" for note in self.notes for line in str(note).split("\n")[:1]]
        return "\n".join([*lines, *(f"  not asked: {why}" for why in self.skipped)])


@dataclass(frozen=True)
class Outcome:
    """The outcome of a step: ``done``, ``refused`` (it loses rows), ``passed`` (not needed any more) or ``failed``."""

    step: Step
    state: str
    why: str = ""

    def __str__(self) -> str:
        title, *rest = str(self.step).split("\n")
        return "\n".join([f"{self.state}: {title}{f' ({self.why})' if self.why else ''}", *rest])


@dataclass(frozen=True)
class RepairReport(NotebookText):
    """The outcomes of a repair, and the check after it."""

    outcomes: tuple[Outcome, ...]
    after: CheckReport

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong any more."""
        return self.after.is_clean

    def __str__(self) -> str:
        lines = [f"  {line}" for outcome in self.outcomes for line in str(outcome).split("\n")]
        return "\n".join(["repaired:", *(lines or ["  nothing to do"]), str(self.after)])


# ---------------------------------------------------------------------------------------------------------------- plan


def plan_repair(findings: Iterable[Finding]) -> RepairPlan:
    """Return the steps for findings: each once, in order; those of one file group become one rewrite.

    Example:
        >>> bad = Finding(Kind.LEFT_BACKUP, "x", "is left", "none", "remove it", (RestoreProperties(True),))
        >>> print(plan_repair([bad, bad]))
        repair:
          restore .hoodie/hoodie.properties from its backup
    """
    single: dict[str, Step] = {}
    rewrites: dict[tuple[str, str], RewriteFile] = {}
    undoing: dict[bool, UndoWrites] = {}
    doomed: list[str] = []
    counts: dict[str, CorrectCounts] = {}
    lost: list[AcceptLoss] = []
    indexes: list[str] = []
    for step in (step for finding in findings for step in finding.steps):
        if isinstance(step, RewriteFile):
            group = (step.source.partition, step.source.file_id)
            rewrites[group] = _joined_rewrite(rewrites[group], step) if group in rewrites else step
        elif isinstance(step, UndoWrites):
            undone = undoing.get(bool(step.loses), UndoWrites())
            undoing[bool(step.loses)] = _joined_undo(undone, step)
        elif isinstance(step, DeleteFiles):
            doomed += [name for name in step.names if name not in doomed]
        elif isinstance(step, CorrectCounts):
            planned = counts.get(step.instant.file_name)
            counts[step.instant.file_name] = step if planned is None else _joined_counts(planned, step)
        elif isinstance(step, AcceptLoss):
            lost.append(step)
        elif isinstance(step, RebuildIndexes):
            indexes += step.indexes
        else:
            single[str(step)] = step
    steps: list[Step] = [*single.values(), *undoing.values(), *counts.values(), *rewrites.values()]
    steps += [DeleteFiles(tuple(sorted(doomed)))] if doomed else []
    steps += [_joined_loss(lost)] if lost else []
    steps += [RebuildIndexes(tuple(dict.fromkeys(indexes)))] if indexes else []
    return RepairPlan(tuple(sorted(steps, key=lambda step: (step.order, str(step)))))


def _joined_rewrite(first: RewriteFile, other: RewriteFile) -> RewriteFile:
    if first.source != other.source:
        # If the latest file is unreadable, its other findings do not matter.
        return first if first.gives_up else other
    why = first.why if other.why in first.why else f"{first.why}; {other.why}"
    dropped = [rows for rows in (first.drop, other.drop) if rows is not None]
    return replace(
        first,
        why=why,
        rekey=first.rekey or other.rekey,
        move=first.move or other.move,
        drop=np.unique(np.concatenate(dropped)) if dropped else None,
        gives_up=tuple(dict.fromkeys((*first.gives_up, *other.gives_up))),
        loses="; ".join(dict.fromkeys(filter(None, (first.loses, other.loses)))),
    )


def _joined_counts(first: CorrectCounts, other: CorrectCounts) -> CorrectCounts:
    counts = dict(first.counts)
    for path, numbers in other.counts.items():
        counts[path] = {**counts.get(path, {}), **numbers}
    loses = "; ".join(dict.fromkeys(filter(None, (first.loses, other.loses))))
    return CorrectCounts(first.instant, counts, loses)


def _joined_undo(first: UndoWrites, other: UndoWrites) -> UndoWrites:
    instants = tuple(dict.fromkeys((*first.instants, *other.instants)))
    return UndoWrites(instants, "; ".join(dict.fromkeys(filter(None, (first.loses, other.loses)))))


def _joined_loss(losses: Sequence[AcceptLoss]) -> AcceptLoss:
    lost = sorted({name for step in losses for name in step.lost})
    hides = sorted({group for step in losses for group in step.hides})
    description = "; ".join(dict.fromkeys(step.loses for step in losses if step.loses))
    return AcceptLoss(tuple(lost), tuple(hides), description)


# ---------------------------------------------------------------------------------------------------------------- facts


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


#: What `bases`, `logs`, `commits`, `before` and `partitions` tell alone, which are known from the beginning.
_OF_NAMES = frozenset({"bases_of", "expected", "groups_of_logs", "latest", "present", "replaced", "slices_of", "stats"})


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

    def remembering(self, earlier: TableFacts) -> TableFacts:
        """Return these facts with what was computed of names and commits for `earlier`, which had the same."""
        self.__dict__.update({name: earlier.__dict__[name] for name in _OF_NAMES & earlier.__dict__.keys()})
        return self

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
    def bases_of(self) -> dict[tuple[PartitionPath, FileId], list[BaseFile]]:
        """All existing base files by file group."""
        groups: dict[tuple[PartitionPath, FileId], list[BaseFile]] = {}
        for file in self.bases:
            groups.setdefault((file.partition, file.file_id), []).append(file)
        return groups

    @cached_property
    def groups_of_logs(self) -> frozenset[tuple[PartitionPath, FileId]]:
        """The file groups that have logs."""
        return frozenset((log.partition, log.file_id) for log in self.logs)

    @cached_property
    def sorted_removed(self) -> list[str]:
        """The files that cleans removed, in the order of their paths."""
        return sorted(self.removed)

    @cached_property
    def known_times(self) -> frozenset[InstantTime]:
        """The times of all instants that are on the timeline or known from the archive."""
        return frozenset(instant.time for instant in (*self.before, *self.after)) | self.archived_times

    @cached_property
    def oldest_archived(self) -> InstantTime | None:
        """The oldest time that is known from the archive."""
        return min(self.archived_times, default=None)

    @cached_property
    def pending_times(self) -> frozenset[InstantTime]:
        """The times of all instants that were pending before or after the listing."""
        return self.before.pending_times | self.after.pending_times

    @cached_property
    def living(self) -> frozenset[InstantTime]:
        """The instants whose writers may be alive."""
        return frozenset(time for time, life in self.alive.items() if life.alive)

    @cached_property
    def targets_of(self) -> dict[tuple[str, str], frozenset[InstantTime]]:
        """The instants that command blocks of a file group's logs undo."""
        return {
            group: frozenset(time for look in looks.values() for time in look.targets)
            for group, looks in self.looks_by_group.items()
        }

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
                partition = PartitionPath(path.rpartition("/")[0])
                files[path] = BaseFile(
                    partition,
                    stat.file_name,
                    parsed.file_id,
                    parsed.write_token,
                    parsed.instant,
                    stat.file_size_in_bytes,
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
            partition, name = PartitionPath(path.rpartition("/")[0]), path.rpartition("/")[2]
            log = parse_log_file(name)
            if log is not None and not log.is_cdc and self.is_wanted(partition) and not self._is_withdrawn(log.instant):
                missing[path] = LogFile(partition, name, log.file_id, log.instant, log.version, 0)
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
