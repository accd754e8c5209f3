"""Which instants leave the active timeline for the archive (metadata note 7.3). Pure.

The active timeline is kept between a least and a most number of completed commits. What is archived is a prefix of it: files
older than the first active commit count as committed, so nothing that is pending, hidden or kept by name may fall behind.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lakefmt.errors import InvalidInputError
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action, Instant
from lakefmt.timeline.view import Timeline
from lakefmt.values import InstantTime

__all__ = ["ArchivePlan", "ArchiveRules", "plan_archive"]

#: What leaves together with the commits before which it happened.
_COMPANIONS = frozenset({Action.CLEAN, Action.ROLLBACK, Action.RESTORE, Action.INDEXING})


@dataclass(frozen=True, slots=True)
class ArchiveRules:
    """How long the active timeline may be: completed commits after an archive step, and before one is due."""

    min_commits: int = 20
    max_commits: int = 30

    def __post_init__(self) -> None:
        if not 1 <= self.min_commits < self.max_commits:
            raise InvalidInputError(
                f"the active timeline keeps between hoodie.keep.min.commits={self.min_commits} and "
                f"hoodie.keep.max.commits={self.max_commits} commits: the first must be the smaller one"
            )


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
    timeline: Timeline,
    rules: ArchiveRules,
    *,
    retained_from: InstantTime | None = None,
    hiding: Collection[InstantTime] = (),
    force: bool = False,
) -> ArchivePlan:
    """Return which instants leave the active timeline.

    Args:
        timeline: the active timeline.
        rules: its length.
        retained_from: the earliest commit whose state the last clean keeps; it and what is newer stays.
        hiding: replacecommits whose replaced file groups still have files: only they keep those rows hidden.
        force: also when the timeline is not longer than its most.

    Example:
        >>> from lakefmt.timeline.view import timeline_from_names
        >>> names = [f"202601010000{n:05d}_202601010000{n:05d}.commit" for n in range(10)]
        >>> plan = plan_archive(timeline_from_names(names, 2), ArchiveRules(2, 4))
        >>> plan.num_commits, plan.instants[-1].time
        (8, '20260101000000007')
    """
    commits = [i for i in timeline.completed if i.action in COMMIT_ACTIONS]
    if len(commits) <= (rules.min_commits if force else rules.max_commits):
        return ArchivePlan()
    candidates = commits[: len(commits) - rules.min_commits]
    limit, barrier = _barrier(timeline, retained_from, hiding)
    leaving = [i for i in candidates if limit is None or i.time < limit]
    if not leaving:
        return ArchivePlan(barrier=barrier)
    last = leaving[-1].time
    companions = [i for i in timeline.completed if i.action in _COMPANIONS and i.time < last]
    # The newest clean stays: it says from which instant on every state can be read.
    newest_clean = max((i.time for i in timeline.completed if i.action is Action.CLEAN), default=None)
    companions = [i for i in companions if i.action is not Action.CLEAN or i.time != newest_clean]
    stopped = barrier if len(leaving) < len(candidates) else ""
    return ArchivePlan(tuple(sorted((*leaving, *companions), key=lambda i: (i.time, i.action.value))), stopped)


def _barrier(
    timeline: Timeline, retained_from: InstantTime | None, hiding: Collection[InstantTime]
) -> tuple[InstantTime | None, str]:
    """Return the first instant that has to stay active, and why."""
    waiting = [i for i in timeline.pending if i.action not in _COMPANIONS]
    saved = [i.time for i in timeline.completed if i.action is Action.SAVEPOINT]
    found = [(i.time, str(i)) for i in waiting] + [(time, f"the savepoint of {time}") for time in saved]
    found += [(time, f"the replacecommit {time}, whose replaced files are not cleaned yet") for time in hiding]
    if retained_from is not None:
        found.append((retained_from, f"{retained_from}, from which on the last clean keeps every state"))
    return min(found, default=(None, ""), key=lambda pair: pair[0] or "")
