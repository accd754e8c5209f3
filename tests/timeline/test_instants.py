"""File names of instants, the transition table, and what a timeline says (docs/format.md, Timeline file names; Committed files; Queries)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.timeline import store as store_module
from lakefmt._core.timeline import timeline as timeline_module
from lakefmt._core.timeline.instant import (
    TRANSITIONS,
    Action,
    Instant,
    State,
    check_transition,
    completed_action,
    format_instant_time,
    instant_file_name,
    parse_instant_file,
    parse_instant_time,
)
from lakefmt._core.timeline.store import InstantClock, TimelineStore, next_instant_time
from lakefmt._core.timeline.timeline import build_timeline, extend_timeline, timeline_from_names
from lakefmt._core.values import InstantTime
from lakefmt.errors import IllegalTransition, InstantNotFound, InvalidInputError

R, C = InstantTime("20260101000000000"), InstantTime("20260101000000500")

moments = st.datetimes(datetime(2000, 1, 1), datetime(2199, 12, 31)).map(
    lambda d: d.replace(microsecond=d.microsecond // 1000 * 1000, tzinfo=UTC)
)


@pytest.mark.parametrize(
    ("name", "layout", "action", "state"),
    [
        ("20260101000000000.commit.requested", 2, Action.COMMIT, State.REQUESTED),
        ("20260101000000000.inflight", 2, Action.COMMIT, State.INFLIGHT),
        ("20260101000000000_20260101000000500.commit", 2, Action.COMMIT, State.COMPLETED),
        ("20260101000000000.commit", 1, Action.COMMIT, State.COMPLETED),
        ("20260101000000000.replacecommit.inflight", 1, Action.REPLACE_COMMIT, State.INFLIGHT),
        ("20260101000000000.compaction.requested", 2, Action.COMPACTION, State.REQUESTED),
        ("20260101000000.clean", 1, Action.CLEAN, State.COMPLETED),
        ("20260101000000000.savepoint.inflight", 2, Action.SAVEPOINT, State.INFLIGHT),
    ],
)
def test_real_names_are_understood(name: str, layout: int, action: Action, state: State) -> None:
    found = parse_instant_file(name, layout)
    assert found is not None
    assert (found.action, found.state, found.file_name) == (action, state, name)


@pytest.mark.parametrize(
    "name",
    [
        "hoodie.properties",
        "20260101000000000.commit",  # layout 2 without a completion time: a migrated legacy file, not a commit
        "20260101000000000_2026.commit",
        "2026_20260101000000500.commit",
        "20260101000000000_20260101000000500.inflight",
        "20260101000000000.commit.inflight",
        "20260101000000000.savepoint.requested",
        ".20260101000000000.inflight.crc",
        "２０２６０１０１０００００００００.inflight",
        "history",
        "",
    ],
)
def test_other_names_are_ignored(name: str) -> None:
    assert parse_instant_file(name, 2) is None


@given(moments, moments, st.sampled_from(Action), st.sampled_from(State), st.sampled_from([1, 2]))
def test_names_round_trip(requested: datetime, done: datetime, action: Action, state: State, layout: int) -> None:
    if action is Action.SAVEPOINT and state is State.REQUESTED:
        return
    time, completion = format_instant_time(requested), format_instant_time(done)
    found = parse_instant_file(instant_file_name(time, action, state, layout, completion), layout)
    assert found is not None
    assert found.time == time
    assert found.state is state
    assert found.action is (completed_action(action) if state is State.COMPLETED else action)
    assert found.completion == (completion if state is State.COMPLETED and layout == 2 else None)


@given(moments)
def test_instant_times_are_moments(moment: datetime) -> None:
    assert parse_instant_time(format_instant_time(moment)) == moment
    zone = timezone(timedelta(hours=5, minutes=30))
    assert parse_instant_time(format_instant_time(moment, zone), zone) == moment


@pytest.mark.parametrize("text", ["", "2026", "20261301000000000", "20260101000000abc", "2026010100000000０"])
def test_bad_instant_times_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_instant_time(text)


def test_every_action_can_be_begun_completed_and_undone() -> None:
    for action, moves in TRANSITIONS.items():
        path = [None, State.INFLIGHT] if action is Action.SAVEPOINT else [None, State.REQUESTED, State.INFLIGHT]
        for before, after in zip(path, [*path[1:], State.COMPLETED], strict=True):
            check_transition(action, before, after)
        assert None in moves[State.INFLIGHT], f"a pending {action.value} must be removable"


@given(st.sampled_from(Action), st.sampled_from([None, *State]), st.sampled_from([None, *State]))
def test_moves_outside_the_table_are_errors(action: Action, before: State | None, after: State | None) -> None:
    if after in TRANSITIONS[action].get(before, frozenset()):
        check_transition(action, before, after)
    else:
        with pytest.raises(IllegalTransition):
            check_transition(action, before, after)
    assert State.COMPLETED not in TRANSITIONS[action][None], "nothing is visible at once"


def _timeline(*names: str, layout: int = 2):  # type: ignore[no-untyped-def]
    found = [parse_instant_file(name, layout) for name in names]
    return build_timeline([i for i in found if i is not None], layout)


def test_the_highest_state_counts_and_all_files_are_kept() -> None:
    view = _timeline(f"{R}.compaction.requested", f"{R}.compaction.inflight", f"{R}_{C}.commit")
    (only,) = view.instants
    assert only.action is Action.COMMIT
    assert only.is_completed
    assert len(view.files_of(only)) == 3


def test_pending_instants_are_never_committed_however_old() -> None:
    later = InstantTime("20260102000000000")
    view = _timeline(f"{R}.commit.requested", f"{R}.inflight", f"{later}_{later}.commit")
    assert not view.is_committed(R)
    assert view.is_committed(later)
    assert view.is_committed(InstantTime("20250101000000000")), "older than the timeline: archived, hence committed"
    assert not view.is_committed(InstantTime("20270101000000000"))


def test_an_empty_timeline_commits_nothing() -> None:
    assert not _timeline().is_committed(R)


def test_commits_are_ordered_by_completion() -> None:
    view = _timeline(
        "20260101000000001_20260101000000009.commit",
        "20260101000000002_20260101000000005.commit",
        "20260101000000003_20260101000000004.clean",
    )
    assert [i.time[-1] for i in view.commits_by_completion] == ["2", "1"]
    assert view.highest_time == "20260101000000009"
    assert view.latest_commit is not None
    assert view.latest_commit.time == "20260101000000001"


def test_as_of_keeps_what_was_requested_by_then() -> None:
    view = _timeline("20260101000000001_20260101000000002.commit", "20260101000000003_20260101000000004.commit")
    for bound in ("20260101000000001", "20260101000000002"):
        cut = view.as_of(bound)
        assert [i.time[-1] for i in cut.commits] == ["1"]
        assert not cut.is_committed(InstantTime("20260101000000003"))
    before = view.as_of("20250101000000000")
    assert not before.commits
    assert not before.is_committed(InstantTime("20260101000000001"))
    assert before.is_committed(InstantTime("20240101000000000")), "archived files stay readable as of their time"


def test_find_prefers_the_commit_to_its_savepoint() -> None:
    view = _timeline(f"{R}_{C}.commit", f"{R}_{C}.savepoint")
    assert view.find(R).action is Action.COMMIT
    assert view.find(C).action is Action.COMMIT
    with pytest.raises(InstantNotFound):
        view.find("20990101000000000")


class _Clock:
    def __init__(self, *moments: datetime) -> None:
        self._moments = list(moments)

    def now(self) -> datetime:
        return self._moments.pop(0)


@given(st.lists(moments, min_size=1, max_size=20), moments)
def test_new_instants_rise_whatever_the_clock_does(times: list[datetime], floor: datetime) -> None:
    clock = InstantClock(_Clock(*times))
    handed_out = [clock.next(format_instant_time(floor)) for _ in times]
    assert handed_out == sorted(set(handed_out))
    assert handed_out[0] > format_instant_time(floor)


def test_a_second_later_is_a_calendar_step() -> None:
    assert next_instant_time(InstantTime("20240228235959999")) == "20240229000000000"


def test_instants_print_as_one_line() -> None:
    assert str(Instant(R, Action.CLEAN, State.INFLIGHT)) == f"{R} clean inflight"


files = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from(Action), st.sampled_from(State)).filter(
        lambda f: (f[1], f[2]) != (Action.SAVEPOINT, State.REQUESTED)
    ),
    max_size=12,
)


@given(files, st.integers(0, 12))
def test_a_timeline_that_grows_equals_one_built_at_once(found: list[tuple[int, Action, State]], cut: int) -> None:
    names = list(dict.fromkeys(instant_file_name(InstantTime(f"2026010100000000{n}"), a, s, 2, C) for n, a, s in found))
    grown = extend_timeline(timeline_from_names(names[:cut], 2), names[cut:])
    parsed = [parse_instant_file(name, 2) for name in names]
    whole = build_timeline([i for i in parsed if i is not None], 2)
    assert {(i.time, completed_action(i.action), i.state) for i in grown.instants} == {
        (i.time, completed_action(i.action), i.state) for i in whole.instants
    }
    assert [i.time for i in grown.instants] == [i.time for i in whole.instants]
    assert {f.file_name for i in grown.instants for f in grown.files_of(i)} == set(names)


_DERIVED = (
    *("completed", "pending", "commits", "latest_commit", "first_active", "highest_time"),
    *("_by_action", "_commit_by_time", "commits_by_completion"),
)

actions = st.lists(
    st.tuples(st.integers(1, 9), st.sampled_from(Action), st.sampled_from(State), st.integers(1, 9)).filter(
        lambda f: (f[1], f[2]) != (Action.SAVEPOINT, State.REQUESTED)
    ),
    max_size=24,
)


@given(actions, st.lists(st.integers(0, 24), max_size=6), st.sets(st.sampled_from(_DERIVED)))
def test_what_a_growing_timeline_takes_over_is_what_it_would_derive(
    found: list[tuple[int, Action, State, int]], cuts: list[int], asked: set[str]
) -> None:
    made = {
        (n, completed_action(a), s): instant_file_name(
            InstantTime(f"2026010100000000{n}"), a, s, 2, InstantTime(f"2026010100000001{c}")
        )
        for n, a, s, c in found
    }
    names = list(dict.fromkeys(made.values()))
    grown, start = timeline_from_names([], 2), 0
    for cut in [*sorted(cuts), len(names)]:
        for name in asked:
            getattr(grown, name)
        grown, start = extend_timeline(grown, names[start:cut]), max(start, cut)
        alone = replace(grown)
        assert {name: getattr(grown, name) for name in _DERIVED} == {name: getattr(alone, name) for name in _DERIVED}


def test_the_first_active_commit_is_looked_for_again_where_all_have_savepoints() -> None:
    view = timeline_from_names([f"{R}_{C}.commit", f"{R}_{C}.savepoint"], 2)
    assert view.first_active == R
    assert view.completed_of(Action.COMMIT)
    later = InstantTime("20260101000001000")
    assert extend_timeline(view, [f"{later}_20260101000001500.commit"]).first_active == later


def test_a_timeline_of_many_commits_that_grows_by_one_derives_nothing_again() -> None:
    names = [f"{R[:-3]}{n:03d}_{C[:-3]}{n:03d}.commit" for n in range(100, 900)]
    view = timeline_from_names(names, 2)
    for name in _DERIVED:
        getattr(view, name)
    grown = extend_timeline(view, [f"{R[:-3]}900_{C[:-3]}900.commit"])
    taken = set(vars(grown)) & set(_DERIVED)
    assert taken == {*_DERIVED} - {"commits_by_completion"}
    assert len(grown.commits) == 801
    assert grown.latest_commit is grown.instants[-1]
    pending = extend_timeline(grown, [f"{R[:-3]}901.commit.requested", f"{R[:-3]}901.inflight"])
    assert pending.commits is grown.commits, "a write that begins changes no commit"
    assert [str(i) for i in pending.pending] == [f"{R[:-3]}901 commit inflight"]


_ODD_NAMES = st.sampled_from(
    [
        f"{R}_{C}.inflight",
        f"{R}_{C}.compaction",
        f"{R}_{C}.commit.tmp",
        f"{R[:14]}_{C}.commit",
        f"{R}_2026010100000050x.commit",
        f"{R[:-1]}\u0663_{C}.commit",
        f"{R}_{C[:-1]}\u0663.commit",
        f"{R}_{C[:-1]}9.commit",
        f"{R[:-1]}x.commit.requested",
        "hoodie.properties",
    ]
)


@given(
    files, st.lists(st.tuples(st.integers(0, 4), st.sampled_from(Action)), max_size=4), st.lists(_ODD_NAMES, max_size=4)
)
def test_actions_with_all_their_files_are_read_at_once_with_the_same_result(
    some: list[tuple[int, Action, State]], whole: list[tuple[int, Action]], odd: list[str]
) -> None:
    complete = [(n, a, s) for n, a in whole for s in State if (a, s) != (Action.SAVEPOINT, State.REQUESTED)]
    names = {instant_file_name(InstantTime(f"2026010100000000{n}"), a, s, 2, C) for n, a, s in [*some, *complete]}
    found = timeline_from_names([*names, *odd], 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline_module, "_WHOLE_ACTIONS", ())
        one_by_one = timeline_from_names([*names, *odd], 2)
    done = [instant.time for instant in one_by_one.instants if instant.is_completed]
    assume(len(set(done)) == len(done))  # a time is that of one action
    assert (found.instants, found.names) == (one_by_one.instants, one_by_one.names)


@pytest.mark.parametrize(
    "third", [f"{R}_2026010100000050x.commit", f"{R}_{C[:-1]}\u0663.commit", f"{R}_{C}.clean", f"{R}_{C}.inflight"]
)
@pytest.mark.parametrize(
    "pending",
    [
        (f"{R}.commit.requested", f"{R}.inflight"),
        (f"{R}.clean.requested", f"{R}.commit.requested"),
        (f"{R}.clean.inflight", f"{R}.clean.requested"),
        (f"{R}.clean.inflight", f"{R}.savepoint"),
        ("20251231000000000.clean.inflight", f"{R}.clean.requested"),
        (f"{R[:-1]}/.clean.inflight", f"{R}.clean.requested"),
    ],
)
def test_files_that_are_not_of_one_action_are_read_one_by_one(pending: tuple[str, str], third: str) -> None:
    names = [*pending, third]
    found = timeline_from_names(names, 2).instants
    parsed = [parse_instant_file(name, 2) for name in names]
    assert found == build_timeline([instant for instant in parsed if instant is not None], 2).instants


def test_names_of_whole_actions_are_not_parsed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = (Action.COMMIT, Action.DELTA_COMMIT, Action.COMPACTION, Action.CLUSTERING, Action.CLEAN)
    names = [
        instant_file_name(InstantTime(f"2026010100000000{n}"), action, state, 2, C)
        for n, action in enumerate(actions)
        for state in State
    ]
    monkeypatch.setattr(timeline_module, "parse_instant_file", lambda *_: pytest.fail("a name was parsed"))
    assert [i.action for i in timeline_from_names(names, 2)] == [completed_action(action) for action in actions]


def test_what_was_archived_beyond_a_savepoint_stays_committed() -> None:
    """Another engine may archive past a savepointed commit: the hole behind it is no start of the timeline."""
    first, hole, next_ = (f"2026010100000{n}000" for n in (1, 2, 3))
    names = [f"{time}_{time}.commit" for time in (first, next_)]
    view = _timeline(*names, f"{first}_{first}.savepoint")
    assert view.first_active == next_
    assert view.is_committed(InstantTime(hole))
    assert view.is_committed(InstantTime(first))
    assert not _timeline(*names).is_committed(InstantTime(hole))
    assert not _timeline(*names, f"{first}_{first}.savepoint", f"{hole}.inflight").is_committed(InstantTime(hole))
    # Nothing but savepointed commits: the newest of them starts it.
    saved = _timeline(*names, *(f"{time}_{time}.savepoint" for time in (first, next_)))
    assert saved.first_active == next_
    assert saved.is_committed(InstantTime(hole))


def test_a_listing_that_says_the_same_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(1, 99))
    store = MemoryStore(now=lambda: float(next(moments)))
    timeline, parsed = TimelineStore(store, ".hoodie/timeline", 2, durable=False), []
    parse = store_module.parse_instant_file
    monkeypatch.setattr(store_module, "parse_instant_file", lambda *given: parsed.append(given[0]) or parse(*given))
    pending = ".hoodie/timeline/20260101000000000.inflight"
    store.put(pending, b"")
    first = timeline.load()
    assert timeline.load() is first
    assert len(parsed) == 1
    # Whatever a listing tells of a file is looked at: its size, its time, that it is gone.
    for change in (lambda: store.put(pending, b"x"), lambda: store.put(pending, b"y"), lambda: store.delete([pending])):
        before = timeline.load()
        change()
        after = timeline.load()
        assert after is not before
        assert [(i.size, i.modified) for i in after.instants] == [
            (found.size, found.modified) for found in store.list(".hoodie/timeline")
        ]
