"""A consumer whose process dies at any effect of opening, of keeping its progress, of closing; stores that lose answers."""

from __future__ import annotations

import contextlib

import pytest

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.storage import ObjectStore
from lakefmt.errors import LakefmtError
from lakefmt.testing.store_wrapper import SimulatedCrash
from lakefmt.testing.stores import FaultMode, FaultStore, fail_at
from lakefmt.testing.virtual_time import VirtualTime
from tests.consumers.stream_tables import FAST, append_table, ids, on_virtual_time, rows
from tests.example_counts import in_turn
from tests.producers.stream.stream_kit import copied

#: Each commit has one file, so that a batch is a commit.
WRITTEN = 4


@pytest.fixture(scope="module")
def made() -> ObjectStore:
    table = append_table()
    for number in range(WRITTEN):
        table.insert(rows(number))
    return table.client.store


def opened(store: ObjectStore) -> lakefmt.Table:
    return on_virtual_time(lakefmt.Table(TableClient(store, FAST)), VirtualTime())


class Program:
    """Reads commit by commit as the consumer ``feed``; counts what was handed out and what was confirmed as kept."""

    def __init__(self, mode: str) -> None:
        self.mode, self.taken, self.kept = mode, list[int](), 0

    def run(self, store: ObjectStore) -> None:
        with opened(store).stream(consumer_id="feed", follow=False, mode=self.mode, takeover=True) as stream:
            for batch in stream:
                self.taken += ids([batch])
                if self.mode == "exactly_once":
                    stream.commit()
                    self.kept = len(self.taken)


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("fault", [FaultMode.BEFORE, FaultMode.AFTER, FaultMode.TORN])
def test_a_kill_at_any_effect_keeps_the_old_progress_or_the_new(made: ObjectStore, mode: str, fault: FaultMode) -> None:
    counted = FaultStore(copied(made))
    Program(mode).run(counted)
    assert len(counted.effects) >= WRITTEN
    for number in in_turn(range(1, len(counted.effects) + 1), 2):
        store = copied(made)
        first, second = Program(mode), Program(mode)
        with contextlib.suppress(SimulatedCrash):  # closing passes failures over
            first.run(FaultStore(store, fail_at(number, fault)))
        second.run(store)
        story = f"{fault.value} effect {number}: {counted.effects[number - 1]}"
        begins = WRITTEN - len(second.taken)
        assert second.taken == list(range(begins, WRITTEN)), story
        assert first.kept <= begins <= len(first.taken), story


@pytest.mark.parametrize("fault", [FaultMode.ANSWER_LOST, FaultMode.REQUEST_LOST])
def test_a_lost_answer_repeats_no_row_that_was_kept(made: ObjectStore, fault: FaultMode) -> None:
    counted = FaultStore(copied(made))
    Program("exactly_once").run(counted)
    for number in in_turn(range(1, len(counted.effects) + 1), 2):
        store = copied(made)
        first, second = Program("exactly_once"), Program("exactly_once")
        try:
            first.run(FaultStore(store, fail_at(number, fault, crash=False)))
        except LakefmtError:
            assert first.kept < WRITTEN
        second.run(store)
        story = f"{fault.value} effect {number}: {counted.effects[number - 1]}"
        assert first.kept <= WRITTEN - len(second.taken) <= len(first.taken), story
