"""Which instants leave the active timeline for the archive (metadata note 7.3). Pure.

The active timeline is kept between a least and a most number of completed commits. What is archived is a prefix of it: files
older than the first active commit count as committed, so nothing that is pending, hidden or kept by name may fall behind.
Cleans and rollbacks leave with the commits before which they happened; on layout 1 they are counted by themselves, each
action between the same least and most, and restores stay: its archive has no field for them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lakefmt.errors import InvalidInputError
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import InstantTime

__all__ = ["ArchiveEdges", "ArchivePlan", "ArchiveRules", "plan_archive"]

#: What leaves together with the commits before which it happened.
_COMPANIONS = frozenset({Action.CLEAN, Action.ROLLBACK, Action.RESTORE, Action.INDEXING})
#: What layout 1 counts by itself.
_COUNTED = (Action.CLEAN, Action.ROLLBACK)


@dataclass(frozen=True, slots=True)
class ArchiveRules:
    """How long the active timeline may be: completed commits after an archive step, and before one is due.

    Attributes:
        min_commits: what a step leaves.
        max_commits: beyond so many one is due.
        delta_commits: of a merge-on-read table whose compactions are triggered by number: so many of its last deltacommits
            stay, and with fewer the last compaction, because the trigger counts them; 0 for every other table.
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
    """What the timeline's names do not tell of what has to stay.

    Attributes:
        retained_from: the earliest commit whose state the last clean keeps; it and what is newer stays.
        straddling: deltacommits that completed after something was requested that began behind them, and whose logs are
            there: where these lie depends on when they completed, and not every reader asks the history.
        hiding: replacecommits whose replaced file groups still have files: only they keep those rows hidden.
        has_metadata_table: the table has one; what it was not compacted with stays.
        metadata_compacted: the newest compaction of the metadata table; None when there was none yet.
    """

    retained_from: InstantTime | None = None
    straddling: Collection[InstantTime] = ()
    hiding: Collection[InstantTime] = ()
    has_metadata_table: bool = False
    metadata_compacted: InstantTime | None = None


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """What an archive step moves: prints one line per instant.

    Attributes:
        instants: completed instants, oldest first.
        barrier: why no more of them go, in words; "" when the count alone decided.
    """

    instants: tuple[Instant, ...] = ()
    barrier: str = ""

    @property
    def num_commits(self) -> int:
        """How many of them are commits."""
        return sum(instant.action in COMMIT_ACTIONS for instant in self.instants)

    def __str__(self) -> str:
        stopped = f"; stopped by {self.barrier}" if self.barrier else ""
        lines = [f"archive {len(self.instants)} instants, {self.num_commits} of them commits{stopped}"]
        return "\n".join([*lines, *(f"  {instant}" for instant in self.instants)])


def plan_archive(
    timeline: Timeline, rules: ArchiveRules, edges: ArchiveEdges | None = None, *, force: bool = False
) -> ArchivePlan:
    """Return which instants leave the active timeline.

    Args:
        timeline: the active timeline.
        rules: its length.
        edges: what else has to stay.
        force: also when the timeline is not longer than its most.

    Example:
        >>> from lakefmt.timeline.timeline import timeline_from_names
        >>> names = [f"202601010000{n:05d}_202601010000{n:05d}.commit" for n in range(10)]
        >>> plan = plan_archive(timeline_from_names(names, 2), ArchiveRules(2, 4))
        >>> plan.num_commits, plan.instants[-1].time
        (8, '20260101000000007')
    """
    known = edges or ArchiveEdges()
    commits, barrier = _leaving(timeline, rules, known, force)
    found = (*commits, *_companions(timeline, rules, known, commits[-1].time if commits else None, force))
    return ArchivePlan(tuple(sorted(found, key=lambda i: (i.time, i.action.value))), barrier)


def _leaving(timeline: Timeline, rules: ArchiveRules, edges: ArchiveEdges, force: bool) -> tuple[list[Instant], str]:
    """Return the commits that leave, and what keeps more of them from it."""
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
    # The newest clean stays: it says from which instant on every state can be read.
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
    """Return the first instant that has to stay active, and why."""
    found = [*_waiting_edge(timeline), *_compaction_edge(timeline, rules), *_metadata_edge(timeline, edges)]
    saved = [i.time for i in timeline.completed_of(Action.SAVEPOINT)]
    found += [(time, f"the savepoint of {time}") for time in saved]
    found += [(time, f"the replacecommit {time}, whose replaced files are not cleaned yet") for time in edges.hiding]
    found += [
        (time, f"the deltacommit {time}, whose logs lie on what was requested before it completed")
        for time in edges.straddling
    ]
    if edges.retained_from is not None:
        found.append((edges.retained_from, f"{edges.retained_from}, from which on the last clean keeps every state"))
    return min(found, default=(None, ""), key=lambda pair: pair[0] or "")


_Edge = tuple[InstantTime, str]


def _waiting_edge(timeline: Timeline) -> list[_Edge]:
    """The oldest pending write or plan, and what its writer still has to find when it looks for conflicts.

    That is every commit that completed since it began, however old its request, and as in Hudi the last one before it.
    """
    waiting = next((i for i in timeline.pending if i.action not in _COMPANIONS), None)
    if waiting is None:
        return []
    began = min((file.modified for file in timeline.files_of(waiting)), default=0.0)
    commits = timeline.completed_of(*COMMIT_ACTIONS)
    before = [i.time for i in commits if i.time < waiting.time][-1:]
    # Version 6 does not store when a commit completed: what is known is when its file was made.
    late = [
        i.time for i in commits if (i.completion or "") > waiting.time or (i.completion is None and i.modified > began)
    ]
    return [(min((*before, *late, waiting.time)), str(waiting))]


def _compaction_edge(timeline: Timeline, rules: ArchiveRules) -> list[_Edge]:
    """What a trigger that counts deltacommits has to see."""
    if not rules.delta_commits:
        return []
    compacted = max((i.time for i in timeline.completed_of(Action.COMMIT)), default=None)
    deltas = [i.time for i in timeline.completed_of(Action.DELTA_COMMIT) if i.time > (compacted or "")]
    kept = deltas[-rules.delta_commits :]
    if not kept:
        return []
    first = compacted if compacted is not None and len(deltas) < rules.delta_commits else kept[0]
    return [(first, f"{first}, from which on the trigger of compactions counts deltacommits")]


def _metadata_edge(timeline: Timeline, edges: ArchiveEdges) -> list[_Edge]:
    """The first instant that the metadata table has in logs only: its readers ask this timeline whether it counts."""
    if not edges.has_metadata_table:
        return []
    compacted = edges.metadata_compacted
    first = next((i.time for i in timeline.completed if compacted is None or i.order_time > compacted), None)
    return [] if first is None else [(first, "the metadata table, which was not compacted since")]
