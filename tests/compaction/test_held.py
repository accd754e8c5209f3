"""A compaction held at every effect while two deltacommits finish: it goes on, or dies and the next one takes it up."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefmt._core.table import Table
from lakefmt._core.timeline.instant import Action
from lakefmt.testing.stores import FaultMode
from tests.compaction.held import Later, Story, count_effects, hold
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge
from tests.kit import product_or_diagonal, values_of_run


def compact(table: Table) -> object:
    return table.compact()


def effects(version: int) -> range:
    found = count_effects(version, compact)
    assert found > 8
    return range(1, found + 1)


def check(story: Story, what: str) -> None:
    """The rows are the model's, nothing is pending, and the next compaction leaves nothing to merge."""
    table = story.open()
    assert_same_multiset(table.read(), story.expected, what=what)
    assert not table.client.load().timeline.pending, what
    bases, _ = table.client.listing().files(None)
    assert len({(base.partition, base.file_id, base.instant) for base in bases}) == len(bases), (
        f"{what}: a file too many"
    )
    table.compact(verify=True)
    assert_same_multiset(table.read(), story.expected, what=f"{what}, compacted again")
    assert_same_multiset(table.read(query="read_optimized"), story.expected, what=f"{what}, base files")


@pytest.mark.parametrize("version", values_of_run([6, 8, 9]))
def test_held_and_released(version: int) -> None:
    finished = []
    for n in effects(version):
        story = Story(version)
        finished.append(hold(story, compact, n))
        compacted = [i for i in story.open().client.load().timeline.commits if i.action is Action.COMMIT]
        assert len(compacted) == 1, f"effect {n}: the held compaction completed"
        check(story, f"version {version}, held at effect {n}")
    assert sum(finished) >= len(finished) // 3, "outside the lock nobody waits for a compaction"
    assert not all(finished), "inside the lock they do"


@product_or_diagonal(version=[6, 8, 9], mode=[FaultMode.BEFORE, FaultMode.AFTER])
def test_held_and_dead(version: int, mode: FaultMode) -> None:
    # Version 9 differs from 8 in properties only: every third effect there, others before than after.
    step, first = (3, mode is FaultMode.AFTER) if version == 9 else (1, 0)
    for n in effects(version)[first::step]:
        what = f"version {version}, dead {mode.value} effect {n}"
        story = Story(version)
        hold(story, compact, n, dies=mode)
        assert_same_multiset(story.open().read(), story.expected, what=what)
        story.open(clock=Later()).compact(verify=True)
        check(story, what)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_hudi_rs_reads_what_the_held_one_left(version: int, hudi_rs_judge: HudiRsJudge, tmp_path: Path) -> None:
    for n in effects(version)[::3]:
        story = Story(version)
        hold(story, compact, n)
        judged = hudi_rs_judge.snapshot(story.dump(tmp_path / str(n)))
        assert_same_multiset(judged, story.expected, what=f"hudi-rs: version {version}, held at effect {n}")
