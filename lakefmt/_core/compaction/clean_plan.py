"""Decide whether a clean is due and which files it deletes (docs/format.md, Clean).

One predicate, :func:`_is_needed`, decides about every file slice: a slice is deleted only when no query, savepoint, pending
plan or registered consumer can need it. For the same settings the rules keep at least what Hudi's cleaner keeps.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from datetime import timedelta, tzinfo
from typing import Any

from lakefmt._core.arguments import parse_member
from lakefmt._core.config.settings import Settings
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice, LogFile, join_path
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.formats.names import parse_base_file
from lakefmt._core.notebook import NotebookText
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.consumers import consumed_until
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, format_instant_time, parse_instant_time
from lakefmt._core.timeline.metadata_codec import BodyKind, decode_body, savepoints_of
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import FileId, InstantTime, PartitionPath, WriteOperation
from lakefmt.errors import InvalidInputError

__all__ = [
    "FLOOR",
    "SAVEPOINTS_SEEN",
    "CleanPlan",
    "CleanPolicy",
    "CleanRules",
    "GroupKey",
    "Needs",
    "clean_rules",
    "commits_since_clean",
    "consumers_floor",
    "earliest_now",
    "earliest_to_retain",
    "is_clean_due",
    "last_floor",
    "plan_clean",
    "with_change_files",
]

GroupKey = tuple[PartitionPath, FileId]
#: Entries of the extra metadata: the savepoints that were honoured (Hudi's name), and the instant from which on every
#: state is readable, which registered consumers may have put below the policy's.
SAVEPOINTS_SEEN = "savepointed_timestamps"
FLOOR = "lakefmt.floor"
#: Services whose base files replace file slices also where their statistics name no previous commit.
#: A thousand years: Python's dates begin with the year 1.
_MOST_HOURS = 1000 * 365 * 24
_REPLACING_SERVICES = frozenset({WriteOperation.COMPACT, WriteOperation.CLUSTER})


class CleanPolicy(enum.Enum):
    """What is kept, with Hudi's names."""

    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"


@dataclass(frozen=True, slots=True)
class CleanRules:
    """How many earlier states stay readable.

    Attributes:
        policy: which of the limits below applies.
        commits: commits whose state can still be read.
        versions: file slices kept per file group.
        hours: age, in hours, up to which commits can still be read.
    """

    policy: CleanPolicy = CleanPolicy.KEEP_LATEST_COMMITS
    commits: int = 10
    versions: int = 3
    hours: int = 24

    def __post_init__(self) -> None:
        if min(self.commits, self.versions, self.hours) < 1:
            raise InvalidInputError("a clean keeps at least one commit, one file version, one hour")


@dataclass(frozen=True, slots=True)
class Needs:
    """What is kept regardless of the rules.

    Attributes:
        saved: paths of files that savepoints name.
        planned: file groups that a pending compaction or clustering will read.
        consumed: completion times (requested times in version 6) up to which registered consumers have read.
    """

    saved: frozenset[str] = frozenset()
    planned: frozenset[GroupKey] = frozenset()
    consumed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CleanPlan(NotebookText):
    """What a clean deletes: prints one line per file.

    Attributes:
        rules: the policy and its limits.
        earliest: the earliest commit whose state stays readable; None under KEEP_LATEST_FILE_VERSIONS.
        last_completed: the newest commit that the plan has seen.
        files: names to delete, by partition.
        num_bytes: bytes that are freed.
        floor: the instant from which on every state stays readable; registered consumers may lower it.
    """

    rules: CleanRules
    earliest: Instant | None
    last_completed: InstantTime | None
    files: Mapping[PartitionPath, tuple[str, ...]] = field(default_factory=dict)
    num_bytes: int = 0
    floor: InstantTime | None = None

    @property
    def num_files(self) -> int:
        """How many files are deleted."""
        return sum(len(names) for names in self.files.values())

    @property
    def paths(self) -> list[str]:
        """The files that are deleted, relative to the table."""
        return [join_path(partition, name) for partition, names in self.files.items() for name in names]

    def __str__(self) -> str:
        note = "" if self.earliest is None else f", every state from {self.earliest.time} on stays readable"
        lines = [f"clean ({self.rules.policy.value}): delete {self.num_files} files, {self.num_bytes:,} bytes{note}"]
        return "\n".join([*lines, *(f"  {path}" for path in self.paths)])


def clean_rules(settings: Settings) -> CleanRules:
    """Return the rules that settings ask for; without a policy, the limit that is set decides, as in Hudi.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> clean_rules(resolve_settings({"hoodie.clean.hours.retained": 5})).policy.value
        'KEEP_LATEST_BY_HOURS'
    """
    policy_name = settings.text("hoodie.clean.policy")
    policy = CleanPolicy.KEEP_LATEST_COMMITS
    if policy_name is not None:
        policy = parse_member(CleanPolicy, policy_name, "clean policy")
    elif settings.origins["hoodie.clean.commits.retained"] == "default":
        if settings.origins["hoodie.clean.hours.retained"] != "default":
            policy = CleanPolicy.KEEP_LATEST_BY_HOURS
        elif settings.origins["hoodie.clean.fileversions.retained"] != "default":
            policy = CleanPolicy.KEEP_LATEST_FILE_VERSIONS
    return CleanRules(
        policy,
        settings.integer("hoodie.clean.commits.retained"),
        settings.integer("hoodie.clean.fileversions.retained"),
        settings.integer("hoodie.clean.hours.retained"),
    )


def earliest_to_retain(timeline: Timeline, rules: CleanRules, now: InstantTime, zone: tzinfo) -> Instant | None:
    """Return the earliest commit whose state must stay readable; None: all states, or the policy counts file versions.

    It is never later than the earliest pending commit, whose writer may still read the state it began with.

    Args:
        timeline: the active timeline.
        rules: the policy and its limits.
        now: the present as an instant time of the table.
        zone: the table's timeline zone.

    Example:
        >>> from datetime import UTC
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> names = [f"2026010100000{n}000_2026010100000{n}500.commit" for n in range(5)]
        >>> found = earliest_to_retain(timeline_from_names(names, 2), CleanRules(commits=2), names[4][:17], UTC)
        >>> found.time
        '20260101000003000'
    """
    if rules.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS:
        return None
    commits = timeline.commits
    if rules.policy is CleanPolicy.KEEP_LATEST_COMMITS:
        earliest = commits[-rules.commits] if len(commits) > rules.commits else None
    else:
        hours = min(rules.hours, _MOST_HOURS)
        oldest = format_instant_time(parse_instant_time(now, zone) - timedelta(hours=hours), zone)
        earliest = next((i for i in commits if i.time >= oldest), commits[-1] if commits else None)
    if earliest is None:
        return None
    first_pending = min((i.time for i in timeline.pending if i.action in COMMIT_ACTIONS), default=None)
    if first_pending is None or earliest.time < first_pending:
        return earliest
    return max((i for i in commits if i.time < first_pending), key=lambda i: i.time, default=None)


def earliest_now(table_at: TableAt, rules: CleanRules) -> Instant | None:
    """Return the earliest commit whose state stays readable, as of now."""
    moment = table_at.client.clock.now()
    zone = table_at.writing_zone()
    return earliest_to_retain(table_at.timeline, rules, format_instant_time(moment, zone), zone)


def consumers_floor(timeline: Timeline, consumed: Collection[str]) -> InstantTime | None:
    """Return the requested time of the first commit that a consumer has not read.

    Args:
        timeline: the active timeline.
        consumed: up to which instant each consumer has read.
    """
    if not consumed:
        return None
    slowest = min(consumed)
    return min((i.time for i in timeline.commits if i.order_time > slowest), default=None)


def commits_since_clean(timeline: Timeline) -> int:
    """Return the number of commits requested after the last completed clean."""
    last = max((instant.time for instant in timeline.completed_of(Action.CLEAN)), default="")
    return sum(instant.time > last for instant in timeline.commits)


def is_clean_due(table_at: TableAt, settings: Settings) -> bool:
    """Return whether a clean may find something to delete, without listing files and without the table lock.

    A file slice becomes unneeded when a commit replaced it and that commit left the retained ones. So a clean is due if one
    of the commits between the last clean's earliest retained commit and the present one replaced a slice. Commits that a
    handle has read or written are not read again.

    Args:
        table_at: the table as a commit left it.
        settings: of the call that committed.
    """
    rules, timeline = clean_rules(settings), table_at.timeline
    if any(instant.action is Action.CLEAN for instant in timeline.pending):
        return True
    earliest = earliest_now(table_at, rules)
    if earliest is None and rules.policy is not CleanPolicy.KEEP_LATEST_FILE_VERSIONS:
        return False
    floor = table_at.client.cache.cleaned_until.get((rules, savepoints_of(timeline))) or last_floor(table_at, rules)
    if floor is None:
        return True
    end = None if earliest is None else earliest.time
    replacing = (
        instant.time
        for instant in timeline.commits
        if floor <= instant.time and (end is None or instant.time < end)
        if _replaces_slices(table_at.commit_metadata(instant))
    )
    first = next(replacing, None)
    if first is None or end is None:
        return first is not None
    # What a consumer has not read stays, however old it is: then a clean would find nothing at every commit.
    unread = consumers_floor(timeline, consumed_until(table_at.client.store, table_at.client.clock.now()))
    return unread is None or first < unread


def _replaces_slices(commit: CommitMetadata) -> bool:
    """Return whether a commit may have replaced file slices: a log file replaces none, a new file group neither."""
    bases = [stat for stat in commit.stats if not stat.file_name.startswith(".")]
    return bool(
        commit.replaced_file_ids
        or commit.operation in _REPLACING_SERVICES
        or any(stat.prev_commit not in (None, "", "null") for stat in bases)
    )


def last_floor(table_at: TableAt, rules: CleanRules) -> str | None:
    """Return the floor of the last clean: "" when there was no clean, None when the floor cannot be used."""
    cleans = table_at.timeline.completed_of(Action.CLEAN)
    if not cleans:
        return ""
    body = table_at.read_body(cleans[-1])
    if not body:
        return None
    record: Mapping[str, Any] = decode_body(BodyKind.CLEAN_METADATA, body, what=cleans[-1].file_name)
    policies = {part["policy"] for part in record["partitionMetadata"].values()}
    extra = record.get("extraMetadata") or {}
    savepoints_seen = {time for time in str(extra.get(SAVEPOINTS_SEEN) or "").split(",") if time}
    if policies - {rules.policy.value} or not savepoints_seen <= {i.time for i in savepoints_of(table_at.timeline)}:
        return None
    return str(extra.get(FLOOR) or "") or None


def _is_needed(
    file_slice: FileSlice,
    successor: InstantTime | None,
    rank: int,
    rules: CleanRules,
    floor: InstantTime | None,
    needs: Needs,
) -> bool:
    """Return whether a file slice may still be needed.

    Args:
        file_slice: the slice.
        successor: the instant that replaced it: of the group's next slice, or of the replacecommit that hid the group;
            None: it is part of the newest snapshot.
        rank: number of newer slices of its group; a replacement counts as one.
        rules: the policy and its limits.
        floor: states from this instant on stay readable; None: the policy promises no state by time.
        needs: what savepoints, plans and consumers need.

    Example:
        >>> from lakefmt._core.filegroups.model import FileSlice
        >>> old = FileSlice("", "f-0", "20260101000000000", None)
        >>> _is_needed(old, "20260102000000000", 1, CleanRules(), "20260103000000000", Needs())
        False
        >>> _is_needed(old, "20260102000000000", 1, CleanRules(), "20260102000000000", Needs())
        True
    """
    if successor is None or (needs.planned and (file_slice.partition, file_slice.file_id) in needs.planned):
        return True
    if needs.saved and not needs.saved.isdisjoint(file_slice.paths):
        return True
    if rules.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS:
        # What a consumer has not read is kept under this policy, too.
        return rank < rules.versions or (floor is not None and successor >= floor)
    return floor is None or successor >= floor


def plan_clean(
    timeline: Timeline,
    slices: Iterable[FileSlice],
    replaced: Mapping[tuple[str, str], InstantTime],
    rules: CleanRules,
    needs: Needs,
    earliest: Instant | None,
) -> CleanPlan:
    """Return what a clean deletes.

    Args:
        timeline: the active timeline.
        slices: every committed slice of the file groups to look at, oldest first within a group.
        replaced: (partition, file id) → requested time of the replacecommit that hid the group.
        rules: the policy and its limits.
        needs: what is kept regardless of the rules.
        earliest: from :func:`earliest_to_retain`.
    """
    floors = [time for time in (earliest.time if earliest else None, consumers_floor(timeline, needs.consumed)) if time]
    by_time = rules.policy is not CleanPolicy.KEEP_LATEST_FILE_VERSIONS
    floor = min(floors, default=None) if earliest is not None or not by_time else None
    groups: dict[GroupKey, list[FileSlice]] = {}
    for file_slice in slices:
        groups.setdefault((file_slice.partition, file_slice.file_id), []).append(file_slice)
    doomed: dict[PartitionPath, list[str]] = {}
    size = 0
    # A group of one slice that was not replaced loses nothing; most groups are like that.
    for key in sorted(key for key, group in groups.items() if len(group) > 1 or key in replaced):
        for file_slice in _slices_not_needed(groups[key], replaced.get(key), rules, floor, needs):
            doomed.setdefault(file_slice.partition, []).extend(_names_of_slice(file_slice))
            size += file_slice.size_bytes
    latest = timeline.commits[-1].time if timeline.commits else None
    return CleanPlan(rules, earliest, latest, {p: tuple(names) for p, names in doomed.items()}, size, floor)


def _slices_not_needed(
    group: list[FileSlice],
    replaced_at: InstantTime | None,
    rules: CleanRules,
    floor: InstantTime | None,
    needs: Needs,
) -> list[FileSlice]:
    """Return the slices of one group that are not needed, oldest first."""
    doomed = []
    rank, successor = (0, None) if replaced_at is None else (1, replaced_at)
    for file_slice in reversed(group):
        if not _is_needed(file_slice, successor, rank, rules, floor, needs):
            doomed.append(file_slice)
        rank, successor = rank + 1, file_slice.instant
    return doomed[::-1]


def with_change_files(plan: CleanPlan, changes: Iterable[LogFile], *, every: bool = False) -> CleanPlan:
    """Return the plan that also deletes the change files of the slices it deletes (docs/format.md, Change files).

    Args:
        plan: the plan.
        changes: the change files of its partitions.
        every: all of them, also those of slices that stay.

    Example:
        >>> plan = CleanPlan(CleanRules(), None, None, {"": ("f-0_1-0-0_20260101000000000.parquet",)})
        >>> change = LogFile("", ".f-0_20260101000000000.log.1_1-0-0.cdc", "f-0", "20260101000000000", 1, 9)
        >>> with_change_files(plan, [change]).num_files
        2
    """
    parsed = ((p, parse_base_file(name)) for p, names in plan.files.items() for name in names)
    going = {(p, base.file_id, base.instant) for p, base in parsed if base is not None}
    doomed = [file for file in changes if every or (file.partition, file.file_id, file.instant) in going]
    files = {partition: list(names) for partition, names in plan.files.items()}
    for file in doomed:
        files.setdefault(file.partition, []).append(file.name)
    return replace(
        plan,
        files={p: tuple(names) for p, names in files.items()},
        num_bytes=plan.num_bytes + sum(file.size for file in doomed),
    )


def _names_of_slice(file_slice: FileSlice) -> list[str]:
    names = [log.name for log in file_slice.logs]
    return names if file_slice.base is None else [file_slice.base.name, *names]
