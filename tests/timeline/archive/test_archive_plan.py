"""Which instants an archive step moves: laws over random timelines, then the barriers one by one."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.timeline.archive import ArchiveEdges, ArchiveRules, plan_archive
from lakefmt._core.timeline.instant import COMMIT_ACTIONS, Action, Instant, State
from lakefmt._core.timeline.timeline import build_timeline, timeline_from_names
from lakefmt.errors import InvalidInputError

KINDS = [
    *["commit"] * 3, *["deltacommit"] * 2, "replacecommit", "clean", "rollback", "restore", "savepoint", "late", "pending",
    "pending-clean",
]  # fmt: skip


def at(n: int) -> str:
    return f"202601010000{n:05d}"


def name(n: int, kind: str) -> str:
    if kind == "pending":
        return f"{at(n)}.inflight"
    if kind == "late":  # it was begun at `n` and completed six later, behind others that began after it
        return f"{at(n)}_{at(n + 6)}.commit"
    return f"{at(n)}.clean.inflight" if kind == "pending-clean" else f"{at(n)}_{at(n)}.{kind}"


def timeline(kinds, layout=2):
    names = [name(n, kind) for n, kind in enumerate(kinds)]
    return timeline_from_names(names if layout == 2 else [re.sub("_[0-9]+", "", one) for one in names], layout)


def may_leave(view, instant, kinds, rules, edges):
    """What a commit has to fulfil, barrier by barrier, asked of the commit alone (metadata note 7.3)."""
    time, writes = instant.time, ("commit", "late", "deltacommit", "replacecommit")
    waiting = [at(n) for n, kind in enumerate(kinds) if kind == "pending"]
    for begun in waiting[:1]:
        if time >= begun or (instant.completion or "") > begun:
            return False
        if not any(time < at(n) < begun for n, kind in enumerate(kinds) if kind in writes):
            return False
    if any(kind == "savepoint" and at(n) <= time for n, kind in enumerate(kinds)):
        return False
    if edges.retained_from is not None and time >= edges.retained_from:
        return False
    if any(time >= one for one in edges.hiding):
        return False
    if edges.has_metadata_table and (edges.metadata_compacted is None or instant.order_time > edges.metadata_compacted):
        return False
    if rules.delta_commits:
        compacted = [n for n, kind in enumerate(kinds) if kind in ("commit", "late")][-1:]
        deltas = [n for n, kind in enumerate(kinds) if kind == "deltacommit" and n > max(compacted, default=-1)]
        counted = deltas[-rules.delta_commits :]
        if counted and (at(counted[0]) <= time or (len(deltas) < rules.delta_commits and time in map(at, compacted))):
            return False
    return True


@given(
    st.lists(st.sampled_from(KINDS), max_size=40),
    st.integers(1, 5),
    st.integers(1, 5),
    st.none() | st.integers(0, 40),
    st.sets(st.integers(0, 40), max_size=2),
    st.none() | st.integers(0, 40),
    st.integers(0, 4),
    st.booleans(),
)
def test_a_prefix_leaves_of_which_each_commit_may(kinds, least, more, retained, hiding, compacted, deltas, force):
    view, rules = timeline(kinds), ArchiveRules(least, least + more, deltas)
    edges = ArchiveEdges(
        None if retained is None else at(retained),
        hiding=[at(n) for n in hiding],
        has_metadata_table=compacted is not None and compacted % 3 > 0,
        metadata_compacted=None if compacted is None or compacted % 3 == 1 else at(compacted),
    )
    plan = plan_archive(view, rules, edges, force=force)
    commits = [i for i in view.completed if i.action in COMMIT_ACTIONS]
    gone = [i for i in plan.instants if i.action in COMMIT_ACTIONS]
    due = len(commits) > (rules.min_commits if force else rules.max_commits)
    wanted = commits[: max(0, len(commits) - rules.min_commits)] if due else []
    allowed = list(itertools.takewhile(lambda i: may_leave(view, i, kinds, rules, edges), wanted))
    assert gone == allowed
    assert bool(plan.barrier) == (allowed != wanted), plan
    # Others go with them, never before and never without them.
    cleans = [i for i in view.completed if i.action is Action.CLEAN]
    with_them = (Action.CLEAN, Action.ROLLBACK, Action.RESTORE)
    assert [i for i in plan.instants if i not in gone] == [
        i for i in view.completed if gone and i.action in with_them and i.time < gone[-1].time and i not in cleans[-1:]
    ]


@given(
    st.lists(st.sampled_from([*KINDS, *["clean", "rollback"] * 6]), min_size=12, max_size=40),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
)
def test_layout_1_counts_each_action_by_itself(kinds, least, more, force):
    view, rules = timeline(kinds, layout=1), ArchiveRules(least, least + more)
    plan = plan_archive(view, rules, force=force)
    commits = [i for i in view.completed if i.action in COMMIT_ACTIONS]
    gone = [i for i in plan.instants if i.action in COMMIT_ACTIONS]
    assert gone == commits[: len(gone)]
    assert all(i.is_completed for i in plan.instants)
    for action in (Action.CLEAN, Action.ROLLBACK):
        there = [i for i in view.completed if i.action is action]
        leaving = len(there) - least if len(there) > (least if force else least + more) else 0
        assert [i for i in plan.instants if i.action is action] == there[:leaving]
    # Its archive has no field for a restore, and a savepoint goes with nobody.
    assert {i.action for i in plan.instants} <= {*COMMIT_ACTIONS, Action.CLEAN, Action.ROLLBACK}


def test_a_commit_that_completed_after_a_pending_write_began_is_kept_for_its_conflict_check():
    kinds = ["commit", "late", "commit", "commit", "pending", *["commit"] * 6]
    plan = plan_archive(timeline(kinds), ArchiveRules(1, 2))
    assert [i.time for i in plan.instants] == [at(0)]
    # Version 6 does not store completion times: there the time at which the file was made is asked.
    files = [
        (at(n), Action.COMMIT, State.INFLIGHT if kind == "pending" else State.COMPLETED) for n, kind in enumerate(kinds)
    ]
    made = [6.0 if kind == "late" else float(n) for n, kind in enumerate(kinds)]
    old = build_timeline((Instant(*file, modified=when) for file, when in zip(files, made, strict=True)), 1)
    assert [i.time for i in plan_archive(old, ArchiveRules(1, 2)).instants] == [at(0)]


def test_without_barriers_the_count_decides():
    plan = plan_archive(timeline(["commit", "rollback", "clean"] * 10 + ["clean"]), ArchiveRules(2, 3))
    assert plan.num_commits == 8
    assert len(plan.instants) == 8 + 7 + 7
    assert str(plan).startswith("archive 22 instants, 8 of them commits\n  ")


@pytest.mark.parametrize(
    ("kinds", "extra", "reason"),
    [
        (["commit", "commit", "pending", "commit", "commit"], {}, "inflight"),
        (["commit", "commit", "savepoint", "commit", "commit"], {}, "savepoint"),
        (["commit"] * 5, {"retained_from": "20260101000000001"}, "clean keeps"),
        (["commit"] * 5, {"hiding": ["20260101000000001"]}, "replaced files"),
        (["commit"] * 5, {"straddling": ["20260101000000001"]}, "whose logs lie on"),
        (["commit"] * 5, {"has_metadata_table": True}, "metadata table"),
        (["commit"] * 5, {"has_metadata_table": True, "metadata_compacted": at(1)}, "metadata table"),
    ],
)
def test_each_barrier_is_named(kinds, extra, reason):
    plan = plan_archive(timeline(kinds), ArchiveRules(1, 2), ArchiveEdges(**extra))
    assert reason in plan.barrier
    assert all(i.time < at(2) for i in plan.instants)


def test_deltacommits_that_a_trigger_counts_stay():
    kinds = ["deltacommit", "commit", *["deltacommit"] * 4]
    assert [i.time for i in plan_archive(timeline(kinds), ArchiveRules(1, 2, 5)).instants] == [at(0)]
    plan = plan_archive(timeline(kinds), ArchiveRules(1, 2, 3))
    assert [i.time for i in plan.instants] == [at(0), at(1), at(2)]
    assert "trigger of compactions" in plan.barrier


def test_the_least_is_below_the_most():
    with pytest.raises(InvalidInputError, match=r"keep\.min\.commits=3"):
        ArchiveRules(3, 3)
