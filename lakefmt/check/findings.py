"""What can be wrong with a table, as values: findings, and the steps that mend them. Pure.

A finding says what is wrong, where, what comes of it and what helps; where a step helps, it carries the step. A plan is
the steps of many findings, in the order in which they are carried out, each file group rewritten once at most. Looking
is the work of ``read``, mending that of ``write``; both speak these values.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from lakefmt.filegroups.model import BaseFile
from lakefmt.timeline.instant import Instant
from lakefmt.values import FileId, InstantTime, PartitionPath

__all__ = [
    "LOST_KEY",
    "AcceptLoss",
    "CheckReport",
    "CorrectCounts",
    "DeleteFiles",
    "Finding",
    "Kind",
    "MarkPartition",
    "Outcome",
    "RepairPlan",
    "RepairReport",
    "RestoreNotes",
    "RestoreProperties",
    "RewriteFile",
    "RewriteLog",
    "SetAside",
    "Step",
    "SweepTemporary",
    "UndoWrites",
    "plan_repair",
]

Rows = npt.NDArray[np.int64]

#: The entry of a commit's extra metadata that names files given up for lost: a JSON array of paths.
LOST_KEY = "lakefmt.repair.lost"


class Kind(enum.Enum):
    """What is wrong."""

    PROPERTIES = "properties"
    LEFT_BACKUP = "left_backup"
    NOTES = "notes"
    ORPHAN_FILE = "orphan_file"
    ORPHAN_TEMPORARY = "orphan_temporary"
    ORPHAN_MARKERS = "orphan_markers"
    ORPHAN_HEARTBEAT = "orphan_heartbeat"
    STRAY_FILE = "stray_file"
    MISSING_FILE = "missing_file"
    CORRUPT_FILE = "corrupt_file"
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


# --------------------------------------------------------------------------------------------------------------- steps


@dataclass(frozen=True, slots=True)
class RestoreProperties:
    """Make ``hoodie.properties`` whole: from its backup, or with its own content under a checksum that fits."""

    order: ClassVar[int] = 0
    from_backup: bool
    loses: str = ""

    def __str__(self) -> str:
        how = "from its backup" if self.from_backup else "with the checksum that its content has"
        return f"restore .hoodie/hoodie.properties {how}"


@dataclass(frozen=True, slots=True)
class RestoreNotes:
    """Write lakefmt's own notes anew; a copy of what is there is kept."""

    order: ClassVar[int] = 1
    index: str
    loses: str = ""

    def __str__(self) -> str:
        return f"write .hoodie/.lakefmt/table.json anew with index {self.index!r}"


@dataclass(frozen=True, slots=True)
class UndoWrites:
    """Undo what dead writers left pending, sweep claims and markers; with `loses`, what was complete and lost the file for it."""

    order: ClassVar[int] = 2
    instants: tuple[InstantTime, ...] = ()
    loses: str = ""

    def __str__(self) -> str:
        named = f" {', '.join(self.instants)}" if self.instants else " nothing"
        return f"roll back{named}; sweep claims and markers of writes that ended"


@dataclass(frozen=True, slots=True)
class SweepTemporary:
    """Remove temporary files whose process has ended."""

    order: ClassVar[int] = 3
    loses: str = ""

    def __str__(self) -> str:
        return "remove temporary files of processes that ended"


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Delete data files that no instant names and no reader sees."""

    order: ClassVar[int] = 4
    names: tuple[str, ...]
    loses: str = ""

    def __str__(self) -> str:
        return "\n".join([f"delete {len(self.names)} files that no instant names", *(f"  {n}" for n in self.names)])


@dataclass(frozen=True, slots=True)
class SetAside:
    """Take a file away that stands beside the one which its commit names; its bytes are kept.

    Attributes:
        name: the file.
        named: the file of the same group and instant that the commit names; empty when there is none, as for a log.
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
    """Leave of a log of `size` bytes that engines refuse its whole blocks, but those at `drop`; a copy is kept."""

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
    """Put back the file that makes a directory a partition."""

    order: ClassVar[int] = 5
    partition: PartitionPath
    instant: InstantTime
    loses: str = ""

    def __str__(self) -> str:
        return f"put .hoodie_partition_metadata into {self.partition or '.'}"


@dataclass(frozen=True)
class CorrectCounts:
    """Write a completed commit's body anew with the numbers of its files; a copy of the old body is kept.

    Attributes:
        counts: file path → name of the statistic → what is true.
    """

    order: ClassVar[int] = 6
    instant: Instant
    counts: Mapping[str, Mapping[str, int]]
    loses: str = ""

    def __str__(self) -> str:
        lines = [f"correct the counts in {self.instant.file_name}"]
        for path, said in self.counts.items():
            lines.append(f"  {path}: {', '.join(f'{name}={value}' for name, value in said.items())}")
        return "\n".join(lines)


@dataclass(frozen=True)
class RewriteFile:
    """Write a file group's rows as a new slice, by an ordinary commit.

    Attributes:
        source: the base file whose rows are taken; it is the group's latest one, or the newest that can be read.
        latest: the path of the group's latest base file when the plan was made.
        rekey: make the record key column anew from the columns it is made of.
        move: rows that belong into other partitions go there.
        drop: row numbers in `source` that lose against another row with their key.
        gives_up: files that cannot be had back; the commit says so.
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
        """Whether every row of the group stays, under its key and where it is."""
        drops = self.drop is not None and len(self.drop) > 0
        return self.source.path == self.latest and not (self.rekey or self.move or drops or self.gives_up)


@dataclass(frozen=True, slots=True)
class AcceptLoss:
    """Say in a commit that files are lost; groups without any readable file are hidden, their bytes stay."""

    order: ClassVar[int] = 8
    lost: tuple[str, ...]
    hides: tuple[tuple[PartitionPath, FileId], ...] = ()
    loses: str = ""

    def __str__(self) -> str:
        hidden = f", and hide {len(self.hides)} file groups without a readable file" if self.hides else ""
        return "\n".join([f"give {len(self.lost)} files up for lost{hidden}", *(f"  {name}" for name in self.lost)])


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
)


# ------------------------------------------------------------------------------------------------------------ findings


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        kind: what it is.
        where: the file, directory or instant, relative to the table.
        what: what was found.
        consequence: what comes of it for readers and writers.
        remedy: what helps.
        steps: what ``table.repair`` does about it; empty: nothing that lakefmt can do.

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
        """What mending it gives up; empty when nothing."""
        return "; ".join(dict.fromkeys(step.loses for step in self.steps if step.loses))

    def __str__(self) -> str:
        loss = f" (loses {self.loses})" if self.loses else ""
        return f"{self.kind.value} {self.where}: {self.what}\n    {self.consequence}; {self.remedy}{loss}"


@dataclass(frozen=True)
class RepairPlan:
    """What ``table.repair`` would do, in order; prints a line per step.

    Attributes:
        steps: what to do, in this order.
        level: of the check that found what they mend.
        partitions: of that check.
        basis: the file name of the newest commit at that time; rows are rewritten only when it still is.

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
        """True when there is nothing to do."""
        return not self.steps

    @property
    def losing(self) -> tuple[Step, ...]:
        """The steps by which rows, or the means to have them back, are lost: they need ``accept_loss=True``."""
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
class CheckReport:
    """What a check saw; prints a line or two per finding.

    Attributes:
        findings: what is wrong.
        notes: what may be meant, such as keys that plain inserts stored twice.
        files: base files and logs looked at.
        skipped: rules that could not be asked, and why.
        partitions: those asked about; None: all.
        basis: the file name of the newest commit that was seen.

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
        """True when nothing is wrong."""
        return not self.findings

    @property
    def plan(self) -> RepairPlan:
        """What ``table.repair`` would do about the findings."""
        return replace(plan_repair(self.findings), level=self.level, partitions=self.partitions, basis=self.basis)

    def __str__(self) -> str:
        said = f"{len(self.findings)} findings" if self.findings else "nothing wrong"
        lines = [f"{self.url}: {said} ({self.level} check of {self.files:,} files)"]
        lines += [f"  {line}" for finding in self.findings for line in str(finding).split("\n")]
        lines += [f"  note: {line}" for note in self.notes for line in str(note).split("\n")[:1]]
        return "\n".join([*lines, *(f"  not asked: {why}" for why in self.skipped)])


@dataclass(frozen=True)
class Outcome:
    """What became of a step: ``done``, ``refused`` (it loses rows), ``passed`` (the table has moved on) or ``failed``."""

    step: Step
    state: str
    why: str = ""

    def __str__(self) -> str:
        title, *rest = str(self.step).split("\n")
        return "\n".join([f"{self.state}: {title}{f' ({self.why})' if self.why else ''}", *rest])


@dataclass(frozen=True)
class RepairReport:
    """What a repair did, and what a check saw afterwards."""

    outcomes: tuple[Outcome, ...]
    after: CheckReport

    @property
    def is_clean(self) -> bool:
        """True when nothing is wrong any more."""
        return self.after.is_clean

    def __str__(self) -> str:
        lines = [f"  {line}" for outcome in self.outcomes for line in str(outcome).split("\n")]
        return "\n".join(["repaired:", *(lines or ["  nothing to do"]), str(self.after)])


# ---------------------------------------------------------------------------------------------------------------- plan


def plan_repair(findings: Iterable[Finding]) -> RepairPlan:
    """Return the steps that mend findings: each once, in order; what hits one file group becomes one rewriting.

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
            known = counts.get(step.instant.file_name)
            counts[step.instant.file_name] = step if known is None else _joined_counts(known, step)
        elif isinstance(step, AcceptLoss):
            lost.append(step)
        else:
            single[str(step)] = step
    steps: list[Step] = [*single.values(), *undoing.values(), *counts.values(), *rewrites.values()]
    steps += [DeleteFiles(tuple(sorted(doomed)))] if doomed else []
    steps += [_joined_loss(lost)] if lost else []
    return RepairPlan(tuple(sorted(steps, key=lambda step: (step.order, str(step)))))


def _joined_rewrite(one: RewriteFile, other: RewriteFile) -> RewriteFile:
    if one.source != other.source:
        # A latest file that cannot be read: what else was said of it does not matter.
        return one if one.gives_up else other
    why = one.why if other.why in one.why else f"{one.why}; {other.why}"
    dropped = [rows for rows in (one.drop, other.drop) if rows is not None]
    return replace(
        one,
        why=why,
        rekey=one.rekey or other.rekey,
        move=one.move or other.move,
        drop=np.unique(np.concatenate(dropped)) if dropped else None,
        gives_up=tuple(dict.fromkeys((*one.gives_up, *other.gives_up))),
        loses="; ".join(dict.fromkeys(filter(None, (one.loses, other.loses)))),
    )


def _joined_counts(one: CorrectCounts, other: CorrectCounts) -> CorrectCounts:
    counts = dict(one.counts)
    for path, said in other.counts.items():
        counts[path] = {**counts.get(path, {}), **said}
    loses = "; ".join(dict.fromkeys(filter(None, (one.loses, other.loses))))
    return CorrectCounts(one.instant, counts, loses)


def _joined_undo(one: UndoWrites, other: UndoWrites) -> UndoWrites:
    instants = tuple(dict.fromkeys((*one.instants, *other.instants)))
    return UndoWrites(instants, "; ".join(dict.fromkeys(filter(None, (one.loses, other.loses)))))


def _joined_loss(losses: Sequence[AcceptLoss]) -> AcceptLoss:
    lost = sorted({name for step in losses for name in step.lost})
    hides = sorted({group for step in losses for group in step.hides})
    said = "; ".join(dict.fromkeys(step.loses for step in losses if step.loses))
    return AcceptLoss(tuple(lost), tuple(hides), said)
