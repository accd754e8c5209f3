"""Select the instants to archive (docs/format.md, Archived timeline). Pure.

The active timeline has between a minimum and a maximum of completed commits. A prefix of it is
archived: files older than the first active commit count as committed, so no pending, hiding or
protected instant may fall behind. Cleans and rollbacks are archived with the commits after them. On
layout 1 they are counted separately, each action by the same limits, and restores stay: the archive
has no field for them.
"""

from __future__ import annotations

from collections.abc import Collection

from lakefmt._core.data_classes import dataclass
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import InstantTime
from lakefmt.errors import InvalidInputError

__all__ = ["ArchiveEdges", "ArchivePlan", "ArchiveRules", "plan_archive"]

#: Actions archived together with the commits after them.
_COMPANIONS = frozenset({Action.CLEAN, Action.ROLLBACK, Action.RESTORE, Action.INDEXING})
#: Actions that layout 1 counts separately.
_COUNTED = (Action.CLEAN, Action.ROLLBACK)


@dataclass(frozen=True, slots=True)
class ArchiveRules:
    """The limits of the active timeline, in completed commits.

    Attributes:
        min_commits: the number after an archive step.
        max_commits: above this number an archive step is due.
        delta_commits: for merge-on-read tables whose compactions are triggered by number: this
            number of latest deltacommits stays, and with fewer the last compaction, because the
            trigger counts them; 0 for other tables.
    """

    min_commits: int = 20
    max_commits: int = 30
    delta_commits: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.min_commits < self.max_commits:
            raise InvalidInputError(
                f"the active timeline keeps between hoodie.keep.min.commits={self.min_commits} and "
                f"hoodie.keep.max.commits={self.max_commits} commits: the first must be the smaller one"
            )


@dataclass(frozen=True, slots=True)
class ArchiveEdges:
    """Limits that are not in the names of the timeline.

    Attributes:
        retained_from: earliest commit that the last clean retained; it and newer ones stay.
        straddling: deltacommits that overlap a compaction request and whose logs exist: their
            completion time places the logs, and some readers do not read the archive.
        hiding: replacecommits whose replaced file groups still have files: only they hide those
            rows.
        has_metadata_table: instants that the metadata table has not compacted stay.
        metadata_compacted: newest compaction of the metadata table; None without one.
        others: further instants that stay with all newer ones, and why.
    """

    retained_from: InstantTime | None = None
    straddling: Collection[InstantTime] = ()
    hiding: Collection[InstantTime] = ()
    has_metadata_table: bool = False
    metadata_compacted: InstantTime | None = None
    others: tuple[tuple[InstantTime, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """The instants of an archive step; prints one line each.

    Attributes:
        instants: completed instants, oldest first.
        barrier: why no more instants are archived; "" if only the count limits them.
    """

    instants: tuple[Instant, ...] = ()
    barrier: str = ""

    @property
    def num_commits(self) -> int:
        """The number of commits among them."""
        return sum(instant.action in COMMIT_ACTIONS for instant in self.instants)

    def __str__(self) -> str:
        stopped = f"; stopped by {self.barrier}" if self.barrier else ""
        lines = [f"archive {len(self.instants)} instants, {self.num_commits} of them commits{stopped}"]
        return "\n".join([*lines, *(f"  {instant}" for instant in self.instants)])


def plan_archive(
    timeline: Timeline, rules: ArchiveRules, edges: ArchiveEdges | None = None, *, force: bool = False
) -> ArchivePlan:
    """Return the instants to archive.

    Args:
        timeline: the active timeline.
        rules: the limits.
        edges: further limits.
        force: archive also below the maximum.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> names = [f"202601010000{n:05d}_202601010000{n:05d}.commit" for n in range(10)]
        >>> plan = plan_archive(timeline_from_names(names, 2), ArchiveRules(2, 4))
        >>> plan.num_commits, plan.instants[-1].time
        (8, '20260101000000007')
    """
    known_edges = edges or ArchiveEdges()
    commits, barrier = _leaving(timeline, rules, known_edges, force)
    leaving = (*commits, *_companions(timeline, rules, known_edges, commits[-1].time if commits else None, force))
    return ArchivePlan(tuple(sorted(leaving, key=lambda i: (i.time, i.action.value))), barrier)


def _leaving(timeline: Timeline, rules: ArchiveRules, edges: ArchiveEdges, force: bool) -> tuple[list[Instant], str]:
    """Return the commits to archive, and what keeps the others."""
    commits = timeline.completed_of(*COMMIT_ACTIONS)
    if len(commits) <= (rules.min_commits if force else rules.max_commits):
        return [], ""
    candidates = commits[: len(commits) - rules.min_commits]
    limit, barrier = _barrier(timeline, rules, edges)
    leaving = [i for i in candidates if limit is None or i.time < limit]
    return leaving, barrier if len(leaving) < len(candidates) else ""


def _companions(
    timeline: Timeline, rules: ArchiveRules, edges: ArchiveEdges, last: InstantTime | None, force: bool
) -> list[Instant]:
    # The newest clean stays: it records the earliest readable state.
    newest_clean = max((i.time for i in timeline.completed_of(Action.CLEAN)), default=None)
    if timeline.layout == 1:
        by_action = [timeline.completed_of(action) for action in _COUNTED]
        enough = rules.min_commits if force else rules.max_commits
        counted = [i for group in by_action if len(group) > enough for i in group[: len(group) - rules.min_commits]]
        edge = _metadata_edge(timeline, edges)[:1]
        return [i for i in counted if all(i.time < time for time, _ in edge)]
    if last is None:
        return []
    before = (i for i in timeline.completed if i.action in _COMPANIONS and i.time < last)
    return [i for i in before if i.action is not Action.CLEAN or i.time != newest_clean]


def _barrier(timeline: Timeline, rules: ArchiveRules, edges: ArchiveEdges) -> tuple[InstantTime | None, str]:
    """Return the first instant that must stay active, and the reason."""
    barriers = [*_waiting_edge(timeline), *_compaction_edge(timeline, rules), *_metadata_edge(timeline, edges)]
    barriers += edges.others
    saved = [i.time for i in timeline.completed_of(Action.SAVEPOINT)]
    barriers += [(time, f"the savepoint of {time}") for time in saved]
    barriers += [(time, f"the replacecommit {time}, whose replaced files are not cleaned yet") for time in edges.hiding]
    barriers += [
        (time, f"the deltacommit {time}, whose logs lie on what was requested before it completed")
        for time in edges.straddling
    ]
    if edges.retained_from is not None:
        barriers.append((edges.retained_from, f"{edges.retained_from}, from which on the last clean keeps every state"))
    return min(barriers, default=(None, ""), key=lambda pair: pair[0] or "")


_Edge = tuple[InstantTime, str]


def _waiting_edge(timeline: Timeline) -> list[_Edge]:
    """The limits by the oldest pending write or plan, and by the commits that its conflict check reads.

    These are all commits that completed since it began, and, as in Hudi, the last one before it.
    """
    waiting = next((i for i in timeline.pending if i.action not in _COMPANIONS), None)
    if waiting is None:
        return []
    began = min((file.modified for file in timeline.files_of(waiting)), default=0.0)
    commits = timeline.completed_of(*COMMIT_ACTIONS)
    before = [i.time for i in commits if i.time < waiting.time][-1:]
    # Version 6 has no completion times: file times are used.
    late = [
        i.time for i in commits if (i.completion or "") > waiting.time or (i.completion is None and i.modified > began)
    ]
    return [(min((*before, *late, waiting.time)), str(waiting))]


def _compaction_edge(timeline: Timeline, rules: ArchiveRules) -> list[_Edge]:
    """The limit by compaction triggers that count deltacommits."""
    if not rules.delta_commits:
        return []
    compacted = max((i.time for i in timeline.completed_of(Action.COMMIT)), default=None)
    deltas = [i.time for i in timeline.completed_of(Action.DELTA_COMMIT) if i.time > (compacted or "")]
    latest_deltas = deltas[-rules.delta_commits :]
    if not latest_deltas:
        return []
    first = compacted if compacted is not None and len(deltas) < rules.delta_commits else latest_deltas[0]
    return [(first, f"{first}, from which on the trigger of compactions counts deltacommits")]


def _metadata_edge(timeline: Timeline, edges: ArchiveEdges) -> list[_Edge]:
    """The first instant that the metadata table has only in logs: its readers look for it on this timeline."""
    if not edges.has_metadata_table:
        return []
    compacted = edges.metadata_compacted
    first = next((i.time for i in timeline.completed if compacted is None or i.order_time > compacted), None)
    return [] if first is None else [(first, "the metadata table, which was not compacted since")]
