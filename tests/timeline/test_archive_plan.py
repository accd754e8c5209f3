"""Which instants an archive step moves: laws over random timelines, then the barriers one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt.errors import InvalidInputError
from lakefmt.timeline.archive_plan import ArchiveRules, plan_archive
from lakefmt.timeline.instant import COMMIT_ACTIONS, Action
from lakefmt.timeline.view import timeline_from_names

KINDS = ["commit", "commit", "commit", "replacecommit", "clean", "rollback", "savepoint", "pending", "pending-clean"]


def name(n: int, kind: str) -> str:
    time = f"202601010000{n:05d}"
    if kind == "pending":
        return f"{time}.inflight"
    return f"{time}.clean.inflight" if kind == "pending-clean" else f"{time}_{time}.{kind}"


def timeline(kinds):
    return timeline_from_names([name(n, kind) for n, kind in enumerate(kinds)], 2)


@given(
    st.lists(st.sampled_from(KINDS), max_size=40),
    st.integers(1, 5),
    st.integers(1, 5),
    st.none() | st.integers(0, 40),
    st.sets(st.integers(0, 40), max_size=2),
    st.booleans(),
)
def test_only_a_prefix_behind_every_barrier_leaves(kinds, least, more, retained, hiding, force):
    view, rules = timeline(kinds), ArchiveRules(least, least + more)
    edge = None if retained is None else f"202601010000{retained:05d}"
    hidden = [f"202601010000{n:05d}" for n in hiding]
    plan = plan_archive(view, rules, retained_from=edge, hiding=hidden, force=force)
    commits = [i for i in view.completed if i.action in COMMIT_ACTIONS]
    gone = [i for i in plan.instants if i.action in COMMIT_ACTIONS]
    assert gone == commits[: len(gone)], "a prefix"
    assert all(i.is_completed and i.action is not Action.SAVEPOINT for i in plan.instants)
    if gone:
        assert len(commits) - len(gone) >= rules.min_commits
        assert len(commits) > rules.max_commits or force
        last = gone[-1].time
        assert all(i.time > last for i in view.pending if i.action is not Action.CLEAN)
        assert all(i.time > last for i in view.completed if i.action is Action.SAVEPOINT)
        assert edge is None or last < edge
        assert not [time for time in hidden if time <= last]
        assert all(i.time <= last for i in plan.instants), "nothing newer goes with them"
    else:
        assert not plan.instants
    cleans = [i for i in view.completed if i.action is Action.CLEAN]
    assert not cleans or cleans[-1] not in plan.instants, "the newest clean tells what can be read"
    stopped = not gone or len(commits) - len(gone) > rules.min_commits
    due = len(commits) > (rules.min_commits if force else rules.max_commits)
    assert bool(plan.barrier) == (due and stopped), plan


def test_without_barriers_the_count_decides():
    plan = plan_archive(timeline(["commit", "rollback", "clean"] * 10 + ["clean"]), ArchiveRules(2, 3))
    assert plan.num_commits == 8
    assert len(plan.instants) == 8 + 7 + 7
    assert str(plan).startswith("archive 22 instants, 8 of them commits\n  ")


@pytest.mark.parametrize(
    ("kinds", "extra", "reason"),
    [
        (["commit", "pending", "commit", "commit", "commit"], {}, "inflight"),
        (["commit", "commit", "savepoint", "commit", "commit"], {}, "savepoint"),
        (["commit"] * 5, {"retained_from": "20260101000000001"}, "clean keeps"),
        (["commit"] * 5, {"hiding": ["20260101000000001"]}, "replaced files"),
    ],
)
def test_each_barrier_is_named(kinds, extra, reason):
    plan = plan_archive(timeline(kinds), ArchiveRules(1, 2), **extra)
    assert reason in plan.barrier
    assert all(i.time < "20260101000000002" for i in plan.instants)


def test_the_least_is_below_the_most():
    with pytest.raises(InvalidInputError, match=r"keep\.min\.commits=3"):
        ArchiveRules(3, 3)
