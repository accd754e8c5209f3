"""Decide whether two commits conflict. Pure.

``check_conflict`` compares a write with a commit that completed since it began. As in Hudi, both
may not change the same file group. Stricter than Hudi: a key that the write must keep unique may
not have been inserted elsewhere, and partitions that the write replaces as a whole may not have
changed. ``check_plan_conflict`` compares it with pending plans: a clustering moves the rows of its
file groups, a compaction those of version 6.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from typing import Final

from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.names import has_bucket_number
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.instant import Action, Instant
from lakefmt._core.values import FileId, InstantTime, PartitionPath, WriteOperation, WriteStat

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
#: Compactions move rows and add none.
_MOVERS: Final = frozenset({*_COMPACTIONS, WriteOperation.CLUSTER})
_NONE: Final[frozenset[PartitionPath]] = frozenset()


class Verdict(enum.Enum):
    """The outcome for a write that meets another one."""

    CLEAN = "clean"
    REBASE = "rebase"
    ABORT = "abort"


class Reason(enum.Enum):
    """Why two writes conflict: a text, and advice."""

    GROUPS = (
        "completed meanwhile and changed the same file groups",
        "let writers work on partitions or keys of their own, or allow more of "
        "hoodie.write.num.retries.on.conflict.failures",
    )
    CLEANED = (
        "completed meanwhile, and a clean removed what this write began with in the same file groups",
        "retain more commits (hoodie.clean.commits.retained) than complete while a write runs",
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
        "wait until it has completed; of a maker that died table.cluster() finishes it and table.cluster(abandon=…) withdraws it; "
        "plan clusterings of partitions that are not written to",
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
        """The conflict, as the end of a sentence that begins with the other instant."""
        return self.value[0]

    @property
    def advice(self) -> str:
        """The advice for avoiding the conflict."""
        return self.value[1]


@dataclass(frozen=True)
class Changes:
    """The changes of a commit, as far as conflict detection needs them.

    Attributes:
        operation: the write operation.
        groups: written or replaced file groups.
        logs: file groups that only got logs → base instant in the log's name.
        rewritten: file groups with a new base file over stored rows.
        read: file groups that the write depends on and did not change.
        covers: partitions replaced as a whole; None: all.
        keys_in: partitions in which no other write may insert a key of this one; None: all.
        added: the files with new rows.
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
    """A conflict.

    Attributes:
        verdict: rebase or abort.
        other: the completed or pending instant.
        file_groups: the file groups that both change.
        partitions: the common partitions, if not file groups.
        doubtful: files of the other commit that may have a key of this write; if none has, there is
            no conflict.
    """

    verdict: Verdict
    reason: Reason
    other: Instant
    file_groups: tuple[Group, ...] = ()
    partitions: tuple[PartitionPath, ...] = ()
    doubtful: tuple[WriteStat, ...] = ()

    def __str__(self) -> str:
        examples = [f"{p or '.'}/{f}" for p, f in self.file_groups[:3]] or [p or "." for p in self.partitions[:3]]
        more = max(len(self.file_groups), len(self.partitions)) - len(examples)
        where = ", ".join(examples) + (f" and {more} more" if more > 0 else "")
        return f"{self.other} {self.reason.text}" + (f" ({where})" if where else "")


def changes_of(
    commit: CommitMetadata,
    *,
    read: Iterable[Group] = (),
    covers: Collection[PartitionPath] | None = (),
    keys_in: Collection[PartitionPath] | None = (),
) -> Changes:
    """Return the changes of a commit.

    Args:
        commit: its metadata.
        read: file groups that the write depends on.
        covers: partitions replaced as a whole; None: all.
        keys_in: partitions in which no other write may insert a key of this one; None: all.

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
    """Return whether a file has rows with new keys.

    Example:
        >>> adds_rows(WriteStat(FileId("f-0"), PartitionPath("p"), "p/f-0_1-0-0_20260101000000000.parquet", num_writes=3))
        True
    """
    return stat.num_inserts > 0 or (_opens_group(stat) and stat.num_writes > 0)


def check_conflict(
    changes: Changes, other: Instant, other_changes: Changes, *, layout: int, non_blocking: bool = False
) -> ConflictFinding | None:
    """Return the conflict of `changes` with a commit that completed since the write began, or None.

    Args:
        changes: the changes of this write.
        other: the commit that completed.
        other_changes: the changes of that commit.
        layout: 1 for tables of version 6.
        non_blocking: two writes that both only add logs to a file group do not conflict there.

    Example:
        >>> from lakefmt._core.timeline.instant import State
        >>> other = Instant(InstantTime("20260101000000000"), Action.COMMIT, State.COMPLETED)
        >>> group = frozenset([(PartitionPath("p"), FileId("f-0"))])
        >>> print(check_conflict(Changes(WriteOperation.UPSERT, group), other, Changes(WriteOperation.UPSERT, group), layout=2))
        20260101000000000 commit completed completed meanwhile and changed the same file groups (p/f-0)
    """
    shared = (changes.groups | changes.read) & other_changes.groups
    shared |= _in_shared_buckets(changes.groups, other_changes.groups)
    if non_blocking:
        shared -= changes.logs.keys() & other_changes.logs.keys()
    if other_changes.operation in _COMPACTIONS:
        # A compaction adds no row, and logs on top of its result stay valid (docs/format.md, File
        # slices).
        shared = frozenset(group for group in shared if not _log_stays_valid(changes, group, other.time, layout))
    if shared:
        return ConflictFinding(Verdict.REBASE, Reason.GROUPS, other, tuple(sorted(shared)))
    if other_changes.operation in _COMPACTIONS:
        return None
    touched = {partition for partition, _ in other_changes.groups} | {
        stat.partition_path for stat in other_changes.added
    }
    covered = touched if changes.covers is None else touched & changes.covers
    if covered:
        return ConflictFinding(Verdict.REBASE, Reason.COVERED, other, partitions=tuple(sorted(covered)))
    doubtful = tuple(s for s in other_changes.added if changes.keys_in is None or s.partition_path in changes.keys_in)
    if doubtful:
        partitions = tuple(sorted({stat.partition_path for stat in doubtful}))
        return ConflictFinding(Verdict.REBASE, Reason.KEYS, other, partitions=partitions, doubtful=doubtful)
    return None


def _in_shared_buckets(groups: Collection[Group], other_groups: Collection[Group]) -> frozenset[Group]:
    """Return the file groups whose bucket is also among those of another commit: each writer may have opened it by an own id.

    Example:
        >>> groups, other_groups = (PartitionPath("p"), FileId("00000003-aa-0")), (PartitionPath("p"), FileId("00000003-bb-0"))
        >>> len(_in_shared_buckets([groups], [other_groups]))
        1
    """
    buckets = {(partition, file_id[:8]) for partition, file_id in other_groups if has_bucket_number(file_id)}
    if not buckets:
        return frozenset()
    return frozenset(group for group in groups if has_bucket_number(group[1]) and (group[0], group[1][:8]) in buckets)


def _log_stays_valid(changes: Changes, group: Group, compaction: InstantTime, layout: int) -> bool:
    """Return whether a log stays valid on top of a compaction that completed meanwhile."""
    # In version 6 its name must say so; later versions order by completion time.
    return group in changes.logs and (layout > 1 or changes.logs[group] == compaction)


def check_plan_conflict(
    changes: Changes, other: Instant, planned: Collection[Group], *, newly: bool, layout: int
) -> ConflictFinding | None:
    """Return the conflict of `changes` with a pending clustering or compaction, or None.

    Args:
        changes: the changes of this write.
        other: the pending clustering or compaction.
        planned: the file groups of the plan.
        newly: the plan was made after this write began.
        layout: 1 for tables of version 6.
    """
    if other.action in (Action.CLUSTERING, Action.REPLACE_COMMIT):
        shared = tuple(sorted(changes.groups & frozenset(planned)))
        return ConflictFinding(Verdict.ABORT, Reason.CLUSTERING, other, shared) if shared else None
    if other.action is not Action.COMPACTION or not newly:
        return None  # writes that began later know the plan
    conflicting = changes.rewritten & frozenset(planned)
    if layout == 1:
        conflicting |= {g for g in changes.logs.keys() & frozenset(planned) if changes.logs[g] != other.time}
    return (
        ConflictFinding(Verdict.REBASE, Reason.COMPACTION, other, tuple(sorted(conflicting))) if conflicting else None
    )


def merge_schemas(
    written_schema: str, begun: str, time: InstantTime, other_schemas: Mapping[InstantTime, str]
) -> str | None:
    """Return the schema to commit; None: the write must be repeated with a newer schema.

    Schemas are compared as texts: the caller gives equal ones the same text. The schema of a table
    is that of the commit with the largest requested time.

    Args:
        written_schema: the schema of the write's files.
        begun: the table schema when the write began.
        time: the write's requested time.
        other_schemas: requested time → schema of the commits that completed since.

    Example:
        >>> merge_schemas("a", "a", "3", {"2": "a+b"}), merge_schemas("a+c", "a", "3", {"2": "a+b"})
        ('a+b', None)
        >>> merge_schemas("a+c", "a", "3", {"4": "a"}) is None  # would be hidden behind the other one
        True
    """
    other_texts = {schema for schema in other_schemas.values() if schema != begun}
    if written_schema == begun:
        return (
            begun
            if not other_texts
            else other_schemas[max(t for t, schema in other_schemas.items() if schema != begun)]
        )
    hidden = any(other > time and schema != written_schema for other, schema in other_schemas.items())
    return None if hidden or other_texts - {written_schema} else written_schema
