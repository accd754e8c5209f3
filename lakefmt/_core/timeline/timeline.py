"""A timeline as a value: what happened, what is pending, what counts as committed (docs/format.md, Committed files). Pure.

A :class:`Timeline` never changes; loading it again gives a new one.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import cache, cached_property
from itertools import chain, islice, pairwise, repeat, takewhile
from operator import attrgetter

from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.timeline.instant import (
    COMMIT_ACTIONS,
    Action,
    Instant,
    State,
    comparable_action,
    completed_action,
    instant_file_name,
    parse_instant_file,
)
from lakefmt._core.values import InstantTime
from lakefmt.errors import InstantNotFound

__all__ = ["Timeline", "build_timeline", "extend_timeline", "timeline_from_names", "timeline_with"]

#: Up to this number of new names each is put into its place, above it all are sorted.
_FEW_NAMES = 16


def build_timeline(instants: Iterable[Instant], layout: int) -> Timeline:
    """Return the timeline of the files listed: the highest state of every action, ordered by time.

    Example:
        >>> build_timeline([], 2).instants
        ()
    """
    best: dict[tuple[InstantTime, Action], Instant] = {}
    files: dict[tuple[InstantTime, Action], list[Instant]] = {}
    for instant in instants:
        key = (instant.time, comparable_action(instant.action))
        files.setdefault(key, []).append(instant)
        highest = best.get(key)
        if highest is None or instant.state.rank > highest.state.rank:
            best[key] = instant
    ordered = tuple(sorted(best.values(), key=lambda i: (i.time, i.action.value)))
    return Timeline(layout, ordered, {key: tuple(group) for key, group in files.items()})


def timeline_from_names(names: Iterable[str], layout: int) -> Timeline:
    """Return the timeline of a directory's file names; names that are no instants are ignored.

    The same as :func:`build_timeline` in less time: the pending files of a completed action are not parsed.

    Example:
        >>> names = ["20260101000000000.inflight", "20260101000000000_20260101000000500.commit", "hoodie.properties"]
        >>> [str(instant) for instant in timeline_from_names(names, 2)]
        ['20260101000000000 commit completed']
    """
    listed = tuple(sorted(names))
    completed_instants, remaining = _whole_actions(listed) if layout == 2 else ([], listed)
    completed: dict[tuple[str, Action], Instant] = {}
    pending: list[tuple[str, Action, str]] = []
    completes_as = _COMPLETES_AS[layout]
    for name in remaining:
        time, _, suffix = name.partition(".")
        if (action := completes_as.get(suffix)) is not None:
            pending.append((time, action, name))
        elif (instant := parse_instant_file(name, layout)) is not None:
            completed.setdefault((instant.time, instant.action), instant)
    if pending or completed:
        completed |= {(instant.time, instant.action): instant for instant in completed_instants}
        completed_instants = [*completed.values()]
    waiting = [parse_instant_file(name, layout) for time, action, name in pending if (time, action) not in completed]
    pending_instants = build_timeline(filter(None, waiting), layout)
    # The sort is stable: of two actions with one time the completed one comes first.
    return Timeline(
        layout, tuple(sorted([*completed_instants, *pending_instants], key=attrgetter("time"))), names=listed
    )


def _whole_actions(listed: Sequence[str]) -> tuple[list[Instant], Sequence[str]]:
    """Return the completed instants of layout 2 of which all three files are listed, and the names of all other files.

    Most actions of a long timeline are of that kind. The names are searched as one text, which runs in C: in two thirds of
    the time that a loop over them takes.
    """
    # No name holds a slash.
    joined_names, instants = f"/{'/'.join(listed)}/", list[Instant]()
    for action in _WHOLE_ACTIONS:
        if f".{action.value}/" not in joined_names:
            continue
        others_and_groups = _whole_action(action).split(joined_names)
        times, files, completions = (others_and_groups[group::4] for group in (1, 2, 3))
        fields = zip(times, repeat(action), repeat(State.COMPLETED), completions, files, repeat(0), repeat(0.0))
        instants += map(Instant._make, fields)
        joined_names = "".join(others_and_groups[::4])
    return instants, [name for name in joined_names.split("/") if name]


def _pending_suffixes(layout: int) -> dict[str, Action]:
    """Return what follows the time in names of requested and inflight files, with the action that each completes as."""
    suffixes: dict[str, Action] = {}
    for action in Action:
        for state in (State.REQUESTED, State.INFLIGHT):
            name = instant_file_name(InstantTime(""), action, state, layout)
            suffixes[name.removeprefix(".")] = completed_action(action)
    return suffixes


_COMPLETES_AS = {layout: _pending_suffixes(layout) for layout in (1, 2)}


@cache
def _whole_action(action: Action) -> re.Pattern[str]:
    """Return the pattern of the names of all three files of an action in layout 2: two of it pending, then the completed one.

    It has three groups: the requested time, the name of the completed file, and the time of completion.
    """
    pending = "|".join(re.escape(suffix) for suffix, completed in _COMPLETES_AS[2].items() if completed is action)
    completed = rf"(\1_(\d{{17}})\.{action.value})"
    return re.compile(rf"(?<=/)(\d{{17}})\.(?:{pending})/\1\.(?:{pending})/{completed}/", re.ASCII)


_WHOLE_ACTIONS = tuple(action for action in Action if completed_action(action) is action)


def extend_timeline(view: Timeline, names: Iterable[str]) -> Timeline:
    """Return the timeline with more files on it: as :func:`timeline_from_names` of all of them, in less time.

    A writer meets a few new files on a long timeline; only their actions are looked at.

    Example:
        >>> begun = timeline_from_names(["20260101000000000.inflight"], 2)
        >>> str(extend_timeline(begun, ["20260101000000000_20260101000000500.commit"]).instants[0])
        '20260101000000000 commit completed'
    """
    ordered = list(view.instants)
    new = sorted(names)
    added, passed = list[Instant](), list[Instant]()
    for instant in filter(None, (parse_instant_file(name, view.layout) for name in new)):
        index = bisect_left(ordered, instant.time, key=attrgetter("time"))
        while (
            index < len(ordered) and ordered[index].time == instant.time and not _same_action(ordered[index], instant)
        ):
            index += 1
        if index == len(ordered) or ordered[index].time != instant.time:
            ordered.insert(index, instant)
        elif ordered[index].state.rank < instant.state.rank:
            passed.append(ordered[index])
            ordered[index] = instant
        else:
            continue
        added.append(instant)
    grown = Timeline(view.layout, tuple(ordered), names=_with_names(view.names, new))
    if view.bound is None and not view.archived:
        _take_over(view, grown, [instant for instant in added if instant not in passed], passed)
    return grown


def _with_names(names: tuple[str, ...], new: Sequence[str]) -> tuple[str, ...]:
    if len(new) > _FEW_NAMES:
        return tuple(sorted((*names, *new)))
    listed = list(names)
    for name in new:
        insort(listed, name)
    return tuple(listed)


def _take_over(view: Timeline, grown: Timeline, added: Sequence[Instant], passed: Sequence[Instant]) -> None:
    """Give a timeline what has been derived from the one before it, where what was added comes behind that.

    A write meets three or four timelines of hundreds of instants that differ by one.

    Args:
        view: the one before.
        grown: the same with more files.
        added: the instants that only the new one has.
        passed: the instants of the one before whose action has come to another state.
    """
    derived, attributes = vars(view), vars(grown)
    new_completed = [instant for instant in added if instant.is_completed]
    new_pending = [instant for instant in added if not instant.is_completed]
    waiting = [instant for instant in derived.get("pending", ()) if instant not in passed]
    if "pending" in derived and _is_rising((*waiting[-1:], *new_pending)):
        attributes["pending"] = (*waiting, *new_pending)
    if "highest_time" in derived:
        times = (time for instant in added for time in (instant.time, instant.completion) if time)
        attributes["highest_time"] = max((derived["highest_time"] or InstantTime(""), *times)) or None
    completed = derived.get("completed")
    if completed is None or not _is_rising((*completed[-1:], *new_completed)):
        return
    attributes["completed"] = (*completed, *new_completed) if new_completed else completed
    by_action = derived.get("_by_action")
    if by_action is not None:
        for instant in new_completed:
            by_action = {**by_action, instant.action: (*by_action.get(instant.action, ()), instant)}
        attributes["_by_action"] = by_action
        # A savepoint may keep an old commit from being the first.
        has_savepoint = Action.SAVEPOINT in by_action or any(instant.action is Action.SAVEPOINT for instant in added)
        if derived.get("first_active") is not None and not has_savepoint:
            attributes["first_active"] = derived["first_active"]
    commits = tuple(instant for instant in new_completed if instant.action in COMMIT_ACTIONS)
    if "commits" in derived:
        attributes["commits"] = (*derived["commits"], *commits) if commits else derived["commits"]
    if "latest_commit" in derived:
        latest = derived["latest_commit"]
        attributes["latest_commit"] = max(
            commits if latest is None else (latest, *commits), key=_by_completion, default=None
        )
    if "_commit_by_time" in derived:
        by_time = derived["_commit_by_time"]
        attributes["_commit_by_time"] = {**by_time, **{i.time: i for i in commits}} if commits else by_time


def _is_rising(instants: Sequence[Instant]) -> bool:
    return all(before.time < after.time for before, after in pairwise(instants))


def _by_completion(instant: Instant) -> tuple[InstantTime, InstantTime]:
    return instant.order_time, instant.time


def _same_action(instant: Instant, other: Instant) -> bool:
    return instant.action is other.action or comparable_action(instant.action) is comparable_action(other.action)


@dataclass(frozen=True)
class Timeline:
    """The active timeline of a table at one moment, and what was archived of it when that was asked for.

    Attributes:
        layout: 1 or 2.
        instants: one per action and time, in its highest state, ordered by requested time.
        files: every timeline file of an action (pending ones stay beside the completed one), when they were given.
        bound: commits requested after this time do not count; None counts all.
        archived: completed instants that have left the active timeline; empty unless :meth:`with_history` gave them.
        names: every timeline file, sorted, when only names are known.
    """

    layout: int
    instants: tuple[Instant, ...]
    files: dict[tuple[InstantTime, Action], tuple[Instant, ...]] = field(default_factory=dict, repr=False)
    bound: str | None = None
    archived: tuple[Instant, ...] = ()
    names: tuple[str, ...] = field(default=(), repr=False)

    def __iter__(self) -> Iterator[Instant]:
        return iter(self.instants)

    def __len__(self) -> int:
        return len(self.instants)

    @cached_property
    def completed(self) -> tuple[Instant, ...]:
        """Completed instants of every action, by requested time."""
        completed_state = State.COMPLETED
        return tuple([i for i in self.instants if i.state is completed_state])

    @cached_property
    def pending(self) -> tuple[Instant, ...]:
        """Requested and inflight instants, by requested time."""
        completed_state = State.COMPLETED
        waiting = len(self.completed) < len(self.instants)
        return tuple([i for i in self.instants if i.state is not completed_state]) if waiting else ()

    def completed_of(self, *actions: Action) -> tuple[Instant, ...]:
        """Return the completed instants of some actions, by requested time.

        Example:
            >>> clean = Instant(InstantTime("20260101000000000"), Action.CLEAN, State.COMPLETED)
            >>> timeline = build_timeline([clean], 1)
            >>> timeline.completed_of(Action.CLEAN) == (clean,), timeline.completed_of(Action.COMMIT)
            (True, ())
        """
        groups = [self._by_action[action] for action in actions if action in self._by_action]
        if len(groups) < 2:
            return groups[0] if groups else ()
        action_set = frozenset(actions)
        return tuple([i for i in self.completed if i.action in action_set])

    @cached_property
    def _by_action(self) -> dict[Action, tuple[Instant, ...]]:
        actions = set(map(attrgetter("action"), self.completed))
        if len(actions) == 1:
            return dict.fromkeys(actions, self.completed)
        return {action: tuple([i for i in self.completed if i.action is action]) for action in actions}

    @cached_property
    def commits(self) -> tuple[Instant, ...]:
        """Completed commits, deltacommits and replacecommits, by requested time; archived ones when they are known."""
        active = self.completed_of(*COMMIT_ACTIONS)
        if self.archived:
            older = (i for i in self.archived if i.action in COMMIT_ACTIONS)
            active = tuple(sorted((*older, *active), key=attrgetter("time")))
        return active if self.bound is None else tuple(i for i in active if i.time <= self.bound)

    @cached_property
    def commits_by_completion(self) -> tuple[Instant, ...]:
        """The same in the order in which they became visible."""
        return tuple(sorted(self.commits, key=_by_completion))

    @cached_property
    def _commit_by_time(self) -> dict[InstantTime, Instant]:
        return {i.time: i for i in self.commits}

    @cached_property
    def pending_times(self) -> frozenset[InstantTime]:
        """The requested times at which something is pending that may change files.

        Ask this, not :attr:`pending`, by time: a savepoint has the time of the commit that it keeps, and changes no file.

        Example:
            >>> names = ["20260101000000000_20260101000000500.commit", "20260101000000000.savepoint.inflight"]
            >>> view = timeline_from_names([*names, "20260102000000000.inflight"], 2)
            >>> len(view.pending), [str(time) for time in view.pending_times]
            (2, ['20260102000000000'])
        """
        return frozenset(i.time for i in self.pending if i.action is not Action.SAVEPOINT)

    @cached_property
    def first_active(self) -> InstantTime | None:
        """The requested time of the oldest commit that is not archived, whatever the bound."""
        # A savepoint may be older than everything else that is active, and with it its commit, when an engine archived
        # beyond it: neither marks the start, or what was archived after them would be lost (docs/format.md, Committed files).
        # So it is while a savepoint is being made or deleted, too.
        instants = (*self.completed_of(Action.SAVEPOINT), *self.pending)
        saved = {i.time for i in instants if i.action is Action.SAVEPOINT}
        commits = self.completed_of(*COMMIT_ACTIONS)
        return next((i.time for i in commits if i.time not in saved), commits[-1].time if commits else None)

    @cached_property
    def latest_commit(self) -> Instant | None:
        """The commit that became visible last, or None."""
        return max(self.commits, key=_by_completion, default=None)

    @cached_property
    def highest_time(self) -> InstantTime | None:
        """The largest requested or completion time on the timeline: every new instant is above it."""
        requested = [self.instants[-1].time] if self.instants else []
        return max(chain(requested, filter(None, map(attrgetter("completion"), self.completed))), default=None)

    def is_committed(self, time: InstantTime) -> bool:
        """Return whether data files of instant `time` are committed.

        They are when the instant completed, or when it is older than the first active commit and thus archived;
        a pending instant never is, however old (docs/format.md, Committed files).
        """
        if time in self._commit_by_time:
            return True
        first = self.first_active
        archived = first is not None and time < first and time not in self.pending_times
        return archived and (self.bound is None or time <= self.bound)

    def has_left(self, time: InstantTime) -> bool:
        """Return whether an instant is not on the timeline and was not archived: it was undone."""
        return time not in self.pending_times and not self.unbounded.is_committed(time)

    def completion_of(self, time: InstantTime) -> InstantTime:
        """Return when commit `time` became visible; without the history archived ones count with their requested time."""
        commit = self._commit_by_time.get(time)
        return time if commit is None else commit.order_time

    def tells_completion_of(self, time: InstantTime) -> bool:
        """Return whether it is known when commit `time` became visible; of archived ones the history tells."""
        return self.layout == 1 or bool(self.archived) or time in self._commit_by_time or not self.is_committed(time)

    def find(self, time: str) -> Instant:
        """Return the commit (else any instant) with requested or completion time `time`.

        Raises:
            InstantNotFound: there is none on this timeline.
        """
        matching = [i for i in (*self.archived, *self.instants) if time in (i.time, i.completion)]
        if not matching:
            where = "timeline" if self.archived else "active timeline"
            raise InstantNotFound(
                f"no instant {time} on the {where}: table.timeline or `lakefmt timeline` shows those there are"
            )
        return min(matching, key=lambda i: i.action not in COMMIT_ACTIONS)

    @cached_property
    def pending_clusterings(self) -> frozenset[InstantTime]:
        """The requested times of pending clusterings; in layout 1 also of overwrites, which have the same action."""
        return frozenset(i.time for i in self.pending if i.action in (Action.REPLACE_COMMIT, Action.CLUSTERING))

    @cached_property
    def _replacing(self) -> dict[InstantTime, Instant]:
        actions = (Action.REPLACE_COMMIT, Action.CLUSTERING)
        return {i.time: i for i in (*self.archived, *self.instants) if i.action in actions}

    def is_written_ahead(self, log_instant: InstantTime, commit: Instant) -> bool:
        """Return whether a log of a commit is a copy for the new buckets of a clustering that had not completed by then.

        The log is named by the clustering, and the rows are in the old buckets, too (docs/format.md, Clustering). In layout 1
        logs on top of a completed clustering have the same names: there only pending clusterings, and those that were undone,
        can be recognised.

        Args:
            log_instant: the instant in the log's name.
            commit: the commit that names the log.

        Example:
            >>> time = InstantTime("20260101000000000")
            >>> commit = Instant(InstantTime("20260102000000000"), Action.DELTA_COMMIT, State.COMPLETED)
            >>> waits = build_timeline([Instant(time, Action.CLUSTERING, State.REQUESTED), commit], 2)
            >>> waits.is_written_ahead(time, commit), waits.is_written_ahead(commit.time, commit)
            (True, False)
        """
        if log_instant == commit.time:
            return False
        replacing = self._replacing.get(log_instant)
        if replacing is None:
            return self.has_left(log_instant)
        if not replacing.is_completed:
            return True
        return self.layout > 1 and replacing.order_time > commit.order_time

    def files_of(self, instant: Instant) -> tuple[Instant, ...]:
        """Return every timeline file of the instant's action."""
        if not self.names:
            return self.files.get((instant.time, comparable_action(instant.action)), (instant,))
        from_time = islice(self.names, bisect_left(self.names, instant.time), None)
        names = takewhile(lambda name: name.startswith(instant.time), from_time)
        parsed = filter(None, (parse_instant_file(name, self.layout) for name in names))
        return tuple(i for i in parsed if i.time == instant.time and _same_action(i, instant)) or (instant,)

    def as_of(self, bound: str) -> Timeline:
        """Return the timeline whose commits were requested at or before `bound`.

        Requested and completion times both work as bounds, because a commit completes before the next one of the
        same writer is requested; this is what Hudi does too (docs/format.md, Queries).
        """
        return replace(self, bound=bound)

    @property
    def unbounded(self) -> Timeline:
        """The timeline with its later commits, too."""
        return self if self.bound is None else replace(self, bound=None)

    def with_history(self, archived: Iterable[Instant]) -> Timeline:
        """Return the timeline that also knows what was archived; what is still active is not taken twice.

        Example:
            >>> old = Instant(InstantTime("20260101000000000"), Action.COMMIT, State.COMPLETED)
            >>> build_timeline([], 1).with_history([old]).commits == (old,)
            True
        """
        active = {(i.time, comparable_action(i.action)) for i in self.instants}
        older = [i for i in archived if (i.time, comparable_action(i.action)) not in active]
        if not older and not self.archived:
            return self  # with what was derived from it, and with the files that were listed with it
        return replace(self, archived=tuple(sorted(older, key=lambda i: (i.time, i.action.value))))


def timeline_with(timeline: Timeline, time: InstantTime, action: Action, completion: InstantTime) -> Timeline:
    """Return a timeline on which a pending instant is complete.

    Args:
        timeline: the timeline on which it is pending.
        time: its requested time.
        action: what it does.
        completion: when it will have been completed, or any later time.
    """
    completed_instant = Instant(
        time, completed_action(action), State.COMPLETED, completion if timeline.layout == 2 else None
    )
    remaining = (instant for instant in timeline.instants if instant.time != time)
    extended = build_timeline([*remaining, completed_instant], timeline.layout)
    return replace(extended, bound=timeline.bound, archived=timeline.archived)
