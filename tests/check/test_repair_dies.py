"""A repair that dies at any of its effects, run again: the table is mended to the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from lakefmt._core.check.findings import RepairPlan
from lakefmt._core.check.repair import repair_table
from lakefmt._core.check.run import check_table
from lakefmt.errors import LakefmtError
from lakefmt.testing.invariants import check_footers, check_unique_keys
from lakefmt.testing.multiset import multiset_difference
from lakefmt.testing.stores import FaultMode, SimulatedCrash, fail_at, no_faults
from tests.check.kit import SABOTAGE, Scene, rows, scene
from tests.example_counts import in_turn

#: One kind of damage for each kind of step.
SCENES = [
    "orphan_file",
    "orphan_markers",
    "stray_attempt",
    "stray_group",
    "missing_newest",
    "cut_only",
    "partition_metadata",
    "stuck_inflight",
    "half_rollback",
    "counted_rows",
    "filter_denies",
    "wrong_partition",
    "twice_in_a_partition",
    "checksum",
    "properties_gone",
    "notes_lost",
]
ENDINGS = [(FaultMode.BEFORE, True), (FaultMode.TORN, True), (FaultMode.AFTER, True), (FaultMode.ANSWER_LOST, False)]


@dataclass(frozen=True)
class Died:
    """A repair that died at one of its effects.

    Attributes:
        number: the effect's, from 1.
        story: what happened.
        plan: what it was to do.
        wanted: the table's rows after a repair that lived.
    """

    number: int
    story: str
    plan: RepairPlan
    wanted: pa.Table


def dying(scene: Scene) -> Iterator[Died]:
    """Repair a table so that it dies at each of its effects in turn, the damage put back before each."""
    objects = scene.listed()
    client, counting = scene.over(no_faults)
    plan = check_table(client, "full").plan
    assert repair_table(client, plan, check_table, accept_loss=True).is_clean
    wanted = scene.open().read()
    assert len(counting.effects) >= 1
    for number in in_turn(range(1, len(counting.effects) + 1), 3):
        mode, crash = ENDINGS[number % len(ENDINGS)]
        faulty, store = scene.put_back(objects).over(fail_at(number, mode, crash=crash))
        with contextlib.suppress(SimulatedCrash, LakefmtError):
            repair_table(faulty, plan, check_table, accept_loss=True)
        yield Died(number, f"effect {number} ({store.effects[number - 1]}), {mode.value}", plan, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENES)
def test_dying_anywhere_and_again(name: str) -> None:
    table = scene(8)
    SABOTAGE[name](table, lambda options: options[0])
    for died in dying(table):
        number, wanted = died.number, died.wanted
        # Who comes next may have the old plan, or look anew.
        client = table.open().client
        again = died.plan if number % 2 else check_table(client, "full").plan
        done = repair_table(client, again, check_table, accept_loss=True)
        if not done.is_clean:
            # What the dead repair itself left is in no old plan.
            done = repair_table(client, done.after.plan, check_table, accept_loss=True)
        assert done.is_clean, f"{died.story}\n{done}"
        assert not multiset_difference(table.open().read(), wanted), died.story
        if number % 5 == 0:
            check_footers(table.open())
            check_unique_keys(table.open())
            table.open().upsert(rows(0, 30, ts=20))
            assert not multiset_difference(table.open().read(filter="ts = 20"), rows(0, 30, ts=20)), died.story
