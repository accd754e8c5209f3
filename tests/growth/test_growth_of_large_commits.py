"""Large commits and streams cost as much as they are given: each line of docs/dev/growth.md holds."""

from __future__ import annotations

import pytest

from tests.growth.kit import Line, laws_broken_by
from tests.growth.lines import AREAS
from tests.growth.measure import recorded

CASES = [
    pytest.param(area, line, id=f"{area}: {line.name}")
    for area in (
        "Large commits",
        "Streams",
    )
    for line in AREAS[area]
]
# The tables of a size are made once in a process.
pytestmark = pytest.mark.xdist_group("growth of large_commits")


@pytest.mark.in_turn(2)
@pytest.mark.parametrize(("area", "line"), CASES)
def test_what_grows_is_what_may_grow(area: str, line: Line):
    assert not laws_broken_by(line, recorded()[area][line.name])
