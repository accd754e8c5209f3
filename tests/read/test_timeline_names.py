"""A timeline from names alone is the timeline from files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.timeline.instant import Action, State, instant_file_name, parse_instant_file
from lakefmt._core.timeline.timeline import build_timeline, timeline_from_names
from lakefmt._core.values import InstantTime

TIMES = st.sampled_from([InstantTime(f"2026010{day}000000000") for day in range(1, 5)])

# One of two deeds that complete as a commit, so that two of them often have one time.
ACTIONS = st.sampled_from([Action.COMMIT, Action.COMPACTION]) | st.sampled_from(list(Action))


@st.composite
def names(draw: st.DrawFn, layout: int) -> list[str]:
    made = []
    for _ in range(draw(st.integers(0, 12))):
        action, state = draw(ACTIONS), draw(st.sampled_from(list(State)))
        time = draw(TIMES)
        done = InstantTime(f"{time[:-3]}5{'00' if action is Action.SAVEPOINT else '01'}") if layout == 2 else None
        made.append(instant_file_name(time, action, state, layout, done))
        if draw(st.booleans()):  # the whole deed, as a commit that completed leaves it
            made += [instant_file_name(time, action, one, layout, done) for one in State]
    noise = st.sampled_from(
        ["hoodie.properties", "history", "20260101000000000.dance", ".x.crc", "2026.commit", "a_b.commit"]
    )
    return draw(st.permutations(sorted({*made, *draw(st.lists(noise, max_size=3))})))


@given(st.sampled_from([1, 2]).flatmap(lambda layout: st.tuples(st.just(layout), names(layout))))
def test_names_give_the_timeline_that_files_give(drawn: tuple[int, list[str]]) -> None:
    layout, listed = drawn
    files = [instant for name in listed if (instant := parse_instant_file(name, layout)) is not None]
    whole, quick = build_timeline(files, layout), timeline_from_names(listed, layout)
    assert set(quick) == set(whole)
    assert sorted(map(str, quick)) == sorted(map(str, whole))
    assert set(quick.commits) == set(whole.commits)
    assert quick.first_active == whole.first_active
    assert quick.highest_time == whole.highest_time
    assert [i.time for i in quick] == sorted(i.time for i in quick)
    for instant in whole:
        assert set(quick.files_of(instant)) == set(whole.files_of(instant))


T = "20260101000000000"


@pytest.mark.parametrize(
    ("layout", "listed"),
    [
        (2, [f"{T}.commit.requested", f"{T}.compaction.inflight", f"{T}.compaction.requested", f"{T}_{T}.commit"]),
        (2, [f"{T}.clean.inflight", f"{T}.clean.requested", f"{T}_{T}.clean", f"{T}_{T[:-1]}1.clean"]),
        (1, [f"{T}.commit", f"{T}.compaction.inflight", f"{T}.compaction.requested", f"{T}.inflight"]),
    ],
)
def test_a_deed_counts_once_however_many_files_tell_of_it(layout: int, listed: list[str]) -> None:
    assert [str(instant).partition(" ")[2] for instant in timeline_from_names(listed, layout)] in (
        ["commit completed"],
        ["clean completed"],
    )
