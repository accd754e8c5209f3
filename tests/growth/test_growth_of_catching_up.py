"""A stream that is far behind reads the commits that it missed once, however many plans that takes."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest

from lakefmt._core.consumers import planning, stream
from lakefmt._core.table import Table
from tests.growth import tables
from tests.growth.kit import LINEAR, MEASURES, Cost, copy_of, counted, slope

#: One, two and three plans, when the first one has eight commits.
SIZES = (8, 40, 168)


def caught_up(table: Table, behind: int) -> Cost:
    """Return what it costs to read a table's commits as a stream, few of them at once."""
    copy, store = copy_of(table)
    with patch.object(planning, "_FIRST_COMMITS", 8), patch.object(stream, "_MOST_STEPS_AT_ONCE", 8):
        found: list[str] = []
        cost = counted(lambda: found.extend(batch.instant for batch in copy.stream(follow=False, threads=1)), store)
    assert len(set(found)) == behind
    return cost


@pytest.mark.slow
@pytest.mark.in_turn(2)
@pytest.mark.parametrize(
    "make", [tables.commits, lambda size: tables.logs(size - 1)], ids=["commits", "logs of a slice"]
)
def test_to_catch_up_costs_as_much_as_was_missed(make: Callable[[int], Table]) -> None:
    caught_up(make(SIZES[0]), SIZES[0])  # it also imports
    costs = [caught_up(make(size), size) for size in SIZES]
    slopes = {name: slope(SIZES, [getattr(cost, name) for cost in costs]) for name in MEASURES}
    names = slopes.pop("names")
    assert max(slopes.values()) <= LINEAR, (slopes, costs)
    assert names <= 1.2, costs  # each plan lists the timeline, and there are as many plans as the logarithm says


def test_a_plan_has_no_more_parts_than_its_bound() -> None:
    copy, _ = copy_of(tables.commits(40))
    with patch.object(planning, "_FIRST_COMMITS", 2), patch.object(planning, "_MOST_PARTS", 8):
        finder, done, sizes = planning.CommitFinder(copy.client), "", list[int]()
        while not (coming := finder.find(done)).is_all:
            sizes.append(len(coming.steps))
            done = coming.steps[-1].instant.order_time
    assert sizes == [2, 8, 8, 8, 8]
