"""Any file of a table with any byte changed, or cut anywhere: a check says something or raises a typed error, quickly.

Whatever a repair then does: it ends, and what it leaves is not worse than what it found.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakefmt._core.check.repair import repair_table
from lakefmt._core.check.run import check_table
from lakefmt.errors import LakefmtError
from tests.check.kit import scene
from tests.example_counts import examples


@pytest.mark.slow
@pytest.mark.parametrize("how", ["flip", "cut"])
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow])
@given(version=st.sampled_from((6, 8, 9)), pick=st.integers(0, 10_000), at=st.floats(0, 1), bit=st.integers(0, 7))
def test_any_file_any_byte(how: str, version: int, pick: int, at: float, bit: int) -> None:
    table = scene(version)
    objects = table.listed()
    names = sorted(name for name, data in objects.items() if data)
    name = names[pick % len(names)]
    data = bytearray(objects[name])
    place = min(len(data) - 1, int(at * len(data)))
    if how == "cut":
        data = data[:place]
    else:
        data[place] ^= 1 << bit
    table.store.put(name, bytes(data))
    client = table.open().client
    try:
        report = check_table(client, "full")
        before = {(f.kind, f.where) for f in report.findings}
        assert str(report)
        done = repair_table(client, report.plan, check_table, accept_loss=True)
        assert str(done)
    except LakefmtError:
        return
    left = {(f.kind, f.where) for f in done.after.findings}
    mendable = {(f.kind, f.where) for f in report.findings if f.steps}
    assert left <= before, f"{name}: {done}"
    if all(outcome.state == "done" for outcome in done.outcomes):
        assert not left & mendable, f"{name}: {done}"
