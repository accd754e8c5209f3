"""A timeline from names alone is the timeline from files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakefmt.timeline.instant import Action, State, instant_file_name, parse_instant_file
from lakefmt.timeline.view import build_timeline, timeline_from_names
from lakefmt.values import InstantTime

TIMES = st.sampled_from([InstantTime(f"2026010{day}000000000") for day in range(1, 5)])


@st.composite
def names(draw: st.DrawFn, layout: int) -> list[str]:
    made = []
    for _ in range(draw(st.integers(0, 12))):
        action, state = draw(st.sampled_from(list(Action))), draw(st.sampled_from(list(State)))
        time = draw(TIMES)
        done = InstantTime(f"{time[:-3]}5{'00' if action is Action.SAVEPOINT else '01'}") if layout == 2 else None
        made.append(instant_file_name(time, action, state, layout, done))
    noise = st.sampled_from(
        ["hoodie.properties", "history", "20260101000000000.dance", ".x.crc", "2026.commit", "a_b.commit"]
    )
    return draw(st.permutations(sorted({*made, *draw(st.lists(noise, max_size=3))})))


@given(st.sampled_from([1, 2]).flatmap(lambda layout: st.tuples(st.just(layout), names(layout))))
def test_names_give_the_timeline_that_files_give(drawn: tuple[int, list[str]]) -> None:
    layout, listed = drawn
    files = [instant for name in listed if (instant := parse_instant_file(name, layout)) is not None]
    whole, quick = build_timeline(files, layout), timeline_from_names(listed, layout)
    assert sorted(map(str, quick)) == sorted(map(str, whole))
    assert set(quick.commits) == set(whole.commits)
    assert quick.first_active == whole.first_active
    assert quick.highest_time == whole.highest_time
    assert [i.time for i in quick] == sorted(i.time for i in quick)
    for instant in whole:
        assert set(quick.files_of(instant)) == set(whole.files_of(instant))
