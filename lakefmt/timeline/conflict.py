"""Can two commits stand beside each other: clean, rebase or abort? Pure.

``check_conflict`` compares what a write is about to commit with one commit that completed since it began. As in Hudi, both may not
touch one file group. Beyond Hudi: no key that this write promises to keep once may have come in elsewhere meanwhile, and
what a write covers as a whole (an overwritten partition) may not have changed. ``check_plan_conflict`` compares it with what is
planned and not done: a clustering takes the rows of its file groups elsewhere, a compaction those of version 6.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from lakefmt.timeline.commit import CommitMetadata
from lakefmt.timeline.instant import Action, Instant
from lakefmt.values import FileId, InstantTime, PartitionPath, WriteOperation, WriteStat

__all__ = [
    "Changes",
    "ConflictFinding",
    "Reason",
    "Verdict",
    "adds_rows",
    "changes_of",
    "check_conflict",
    "check_plan_conflict",
    "merge_schemas",
]

Group = tuple[PartitionPath, FileId]

_COMPACTIONS: Final = frozenset({WriteOperation.COMPACT, WriteOperation.LOG_COMPACT})
#: They bring rows to other files and no row that was not there.
_MOVERS: Final = frozenset({*_COMPACTIONS, WriteOperation.CLUSTER})
_NONE: Final[frozenset[PartitionPath]] = frozenset()


class Verdict(enum.Enum):
    """What becomes of a write that meets another one."""

    CLEAN = "clean"
    REBASE = "rebase"
    ABORT = "abort"


class Reason(enum.Enum):
    """Why two writes cannot stand beside each other: in words, and what would have avoided it."""

    GROUPS = (
        "completed meanwhile and changed the same file groups",
        "let writers work on partitions or keys of their own, or allow more of "
        "hoodie.write.num.retries.on.conflict.failures",
    )
    KEYS = (
        "completed meanwhile and added the same keys in other file groups",
        "let one writer alone bring a key, or allow more of hoodie.write.num.retries.on.conflict.failures",
    )
    COVERED = (
        "completed meanwhile and changed what this write replaces as a whole",
        "overwrite and delete partitions while nobody writes to them",
    )
    CLUSTERING = (
        "is a pending clustering that takes the rows of the same file groups elsewhere",
        "wait until it has completed, or cancel it with the engine that planned it; plan clusterings of partitions that "
        "are not written to",
    )
    COMPACTION = (
        "is a compaction that was planned meanwhile and would leave these changes behind",
        "plan compactions while no write is pending, or upgrade the table: from version 8 on logs stand on top of it",
    )
    SCHEMA = (
        "completed meanwhile and changed the table's schema",
        "add columns with one writer, before the others use them",
    )
    UNDONE = (
        "was undone meanwhile, and this write had built upon it",
        "roll back and restore while nobody writes",
    )

    @property
    def text(self) -> str:
        """What happened, as the end of a sentence that begins with the rival."""
        return self.value[0]

    @property
    def advice(self) -> str:
        """The choice that would have avoided it."""
        return self.value[1]


@dataclass(frozen=True)
class Changes:
    """What a commit changed, as far as others may mind.

    Attributes:
        operation: what it did.
        groups: file groups that it wrote or replaced.
        logs: those of them that it only added logs to, each with the instant of the slice that the log's name tells.
        rewritten: those of them that it gave a new base file on top of stored rows.
        read: file groups that it relied on and left alone.
        covers: partitions that it replaces as a whole; None: all there are.
        keys_in: partitions where a key of its own must not come in beside it; None: anywhere.
        added: the files that brought new rows.
    """

    operation: WriteOperation
    groups: frozenset[Group] = frozenset()
    logs: Mapping[Group, str] = field(default_factory=dict)
    rewritten: frozenset[Group] = frozenset()
    read: frozenset[Group] = frozenset()
    covers: frozenset[PartitionPath] | None = _NONE
    keys_in: frozenset[PartitionPath] | None = _NONE
    added: tuple[WriteStat, ...] = ()


@dataclass(frozen=True)
class ConflictFinding:
    """Why a write cannot stand as it is.

    Attributes:
        verdict: rebase or abort.
        reason: why.
        rival: who was faster, or is planned.
        file_groups: what both touch.
        partitions: where they meet, when not in file groups.
        doubtful: files of the rival that may hold a key of this write; when none does, there is no conflict.
    """

    verdict: Verdict
    reason: Reason
    rival: Instant
    file_groups: tuple[Group, ...] = ()
    partitions: tuple[PartitionPath, ...] = ()
    doubtful: tuple[WriteStat, ...] = ()

    def __str__(self) -> str:
        shown = [f"{p or '.'}/{f}" for p, f in self.file_groups[:3]] or [p or "." for p in self.partitions[:3]]
        more = max(len(self.file_groups), len(self.partitions)) - len(shown)
        where = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
        return f"{self.rival} {self.reason.text}" + (f" ({where})" if where else "")


def changes_of(
    commit: CommitMetadata,
    *,
    read: Iterable[Group] = (),
    covers: Collection[PartitionPath] | None = (),
    keys_in: Collection[PartitionPath] | None = (),
) -> Changes:
    """Return what a commit changed; the rest is what its writer alone knows.

    Args:
        commit: what it says.
        read: file groups that it relied on.
        covers: partitions that it replaces as a whole; None: all.
        keys_in: partitions where a key of its own must not come in beside it; None: anywhere.

    Example:
        >>> stat = WriteStat(FileId("f-0"), PartitionPath("p"), "p/f-0_1-0-0_20260101000000000.parquet", num_inserts=1)
        >>> changes_of(CommitMetadata(WriteOperation.INSERT, (stat,))).added == (stat,)
        True
    """
    bases = {(s.partition_path, s.file_id) for s in commit.stats if not s.log_files}
    logs = {(s.partition_path, s.file_id): s.prev_commit for s in commit.stats if s.log_files}
    return Changes(
        commit.operation,
        commit.file_ids(),
        {group: base for group, base in logs.items() if group not in bases},
        frozenset((s.partition_path, s.file_id) for s in commit.stats if not s.log_files and not _opens_group(s)),
        frozenset(read),
        None if covers is None else frozenset(covers),
        None if keys_in is None else frozenset(keys_in),
        () if commit.operation in _MOVERS else tuple(filter(adds_rows, commit.stats)),
    )


def _opens_group(stat: WriteStat) -> bool:
    return stat.prev_commit in ("", "null")


def adds_rows(stat: WriteStat) -> bool:
    """Return whether a file brought rows whose keys may be new.

    Example:
        >>> adds_rows(WriteStat(FileId("f-0"), PartitionPath("p"), "p/f-0_1-0-0_20260101000000000.parquet", num_writes=3))
        True
    """
    return stat.num_inserts > 0 or (_opens_group(stat) and stat.num_writes > 0)


def check_conflict(mine: Changes, rival: Instant, theirs: Changes, *, layout: int) -> ConflictFinding | None:
    """Return why `mine` cannot stand behind a commit that completed since it began; None: clean.

    Args:
        mine: what this write is about to commit.
        rival: the commit that completed.
        theirs: what it changed.
        layout: 1 for tables of version 6.

    Example:
        >>> from lakefmt.timeline.instant import State
        >>> rival = Instant(InstantTime("20260101000000000"), Action.COMMIT, State.COMPLETED)
        >>> group = frozenset([(PartitionPath("p"), FileId("f-0"))])
        >>> print(check_conflict(Changes(WriteOperation.UPSERT, group), rival, Changes(WriteOperation.UPSERT, group), layout=2))
        20260101000000000 commit completed completed meanwhile and changed the same file groups (p/f-0)
    """
    shared = (mine.groups | mine.read) & theirs.groups
    if theirs.operation in _COMPACTIONS:
        # It adds no row, and a log on top of what it makes stands (spec 4.4).
        shared = frozenset(group for group in shared if not _stands(mine, group, rival.time, layout))
    if shared:
        return ConflictFinding(Verdict.REBASE, Reason.GROUPS, rival, tuple(sorted(shared)))
    if theirs.operation in _COMPACTIONS:
        return None
    touched = {partition for partition, _ in theirs.groups} | {stat.partition_path for stat in theirs.added}
    covered = touched if mine.covers is None else touched & mine.covers
    if covered:
        return ConflictFinding(Verdict.REBASE, Reason.COVERED, rival, partitions=tuple(sorted(covered)))
    doubtful = tuple(s for s in theirs.added if mine.keys_in is None or s.partition_path in mine.keys_in)
    if doubtful:
        places = tuple(sorted({stat.partition_path for stat in doubtful}))
        return ConflictFinding(Verdict.REBASE, Reason.KEYS, rival, partitions=places, doubtful=doubtful)
    return None


def _stands(mine: Changes, group: Group, compaction: InstantTime, layout: int) -> bool:
    """Return whether a log counts on top of what a compaction made that completed while it was written."""
    # In version 6 its name says so; later the order of completion does.
    return group in mine.logs and (layout > 1 or mine.logs[group] == compaction)


def check_plan_conflict(
    mine: Changes, rival: Instant, planned: Collection[Group], *, newly: bool, layout: int
) -> ConflictFinding | None:
    """Return why `mine` cannot stand beside a service that is planned and not done; None: clean.

    Args:
        mine: what this write is about to commit.
        rival: the pending clustering or compaction.
        planned: the file groups that it takes in.
        newly: it was planned after this write began.
        layout: 1 for tables of version 6.
    """
    if rival.action in (Action.CLUSTERING, Action.REPLACE_COMMIT):
        shared = tuple(sorted(mine.groups & frozenset(planned)))
        return ConflictFinding(Verdict.ABORT, Reason.CLUSTERING, rival, shared) if shared else None
    if rival.action is not Action.COMPACTION or not newly:
        return None  # what began after the plan was made knows of it
    left = mine.rewritten & frozenset(planned)
    if layout == 1:
        left |= {g for g in mine.logs.keys() & frozenset(planned) if mine.logs[g] != rival.time}
    return ConflictFinding(Verdict.REBASE, Reason.COMPACTION, rival, tuple(sorted(left))) if left else None


def merge_schemas(mine: str, begun: str, time: InstantTime, rivals: Mapping[InstantTime, str]) -> str | None:
    """Return which of the schemas this write leaves behind; None: it has to be made again upon another one.

    Schemas are compared as they are given: the caller gives equal ones one name. The schema of a table is that of the
    commit with the largest requested time.

    Args:
        mine: the schema that the write made its files with.
        begun: the table's when it began.
        time: the write's requested time.
        rivals: requested time → schema, of the commits that completed since.

    Example:
        >>> merge_schemas("a", "a", "3", {"2": "a+b"}), merge_schemas("a+c", "a", "3", {"2": "a+b"})
        ('a+b', None)
        >>> merge_schemas("a+c", "a", "3", {"4": "a"}) is None  # would be hidden behind the rival's
        True
    """
    others = {schema for schema in rivals.values() if schema != begun}
    if mine == begun:
        return begun if not others else rivals[max(t for t, schema in rivals.items() if schema != begun)]
    hidden = any(other > time and schema != mine for other, schema in rivals.items())
    return None if hidden or others - {mine} else mine
