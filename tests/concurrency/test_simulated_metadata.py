"""The simulated histories on tables with a metadata table and a record index, both kept by every writer.

Every process lists files by the metadata table: what a reader sees, also while a savepoint is being made, is what storage has.
After each history the listing is the storage, the statistics are those of the files, and the record index has the keys.
A run plays a few seeds, others each day; ``LAKEFMT_HYPOTHESIS=thorough`` (`make test-all`) ten thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import lakefmt._core.config.settings as config_settings
import lakefmt._core.metadata.observer as observer
import lakefmt._core.metadata.reader as reader
from lakefmt._core.metadata.timeline import MetadataTimeline
from lakefmt._core.timeline.timeline import Timeline
from lakefmt.errors import LakefmtError
from tests.example_counts import seeds_of_run
from tests.kit import THOROUGH
from tests.metadata.metadata_content import check_metadata_table
from tests.simulation.simulator import check_history, scene_of, simulate

SEEDS = seeds_of_run(8, 10_000)
PARTS = 100 if THOROUGH else 2

#: Seeds that found a fault. Their steps move with every effect that writers make.
FOUND = {
    67: "a writer lost the lock, and recorded an instant that was rolled back meanwhile: its deltacommit stayed",
    285: "a compaction of such a writer took in what was recorded and not complete: nobody could roll that back",
    1164: "in version 6 such a writer wrote over a log of another one: both had the name of the same base file",
    3002: "statistics of a partition were widened from those of a writer that began later and was done earlier",
    2641: "a writer that lost the lock while it slept rolled back an instant that was completed meanwhile",
    4692: "in version 6 a clustering planned by a writer that lost the lock hid what was committed before the plan was stored",
    5844: "in version 6 a clustering that another process had run meanwhile left the files of the slower one, which counted",
    9301: "a clustering that another process had run meanwhile wrote files: the next one was planned over them",
    372: "two writers completed one compaction of the metadata table: the second ended with an internal error",
}


def play(seed: int) -> None:
    history = simulate(replace(scene_of(seed), metadata=True, savepoints=seed % 2 == 1))
    check_history(history)
    assert history.table is not None
    try:
        check_metadata_table(history.table)
    except (AssertionError, KeyError, LakefmtError) as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error


def play_all(seeds: range) -> None:
    for seed in seeds:
        play(seed)


@pytest.mark.slow
@pytest.mark.timeout(3000 if THOROUGH else 150)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_metadata_table_is_right_after_every_history(part: int) -> None:
    play_all(SEEDS[part::PARTS])


@pytest.mark.parametrize("seed", FOUND)
def test_what_a_seed_has_found_stays_mended(seed: int) -> None:
    play(seed)


#: Seeds that found a fault with log compaction of the metadata table.
FOUND_FOLDED = {
    2211: "a log compaction took in what a writer without the lock had recorded, and stayed when that was removed",
    2291: "the same, in the record index",
    3459: "a log compaction that was removed in part left a log, which counted again with the next one of its time",
    5889: "in version 6 the instant of a log compaction, then of a compaction, lay above the one that was about to be recorded",
    3849: "two writers completed one log compaction: the second ended with an internal error",
}


@pytest.mark.parametrize("seed", FOUND_FOLDED)
def test_what_a_seed_has_found_with_log_compaction_stays_mended(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "hoodie.metadata.log.compaction"
    for name, value in ((f"{key}.enable", True), (f"{key}.blocks.threshold", 2)):
        monkeypatch.setitem(config_settings._DEFAULTS, name, value)
    config_settings._resolved.cache_clear()
    try:
        play(seed)
    finally:
        config_settings._resolved.cache_clear()


def test_an_index_that_is_not_kept_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "updates_of_clean", lambda *_: [])
    with pytest.raises(AssertionError, match="seed"):
        play_all(range(20))


def test_a_savepoint_that_hides_its_commit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reader._validity

    def by_time_alone(timeline: Timeline, data: Timeline, loaded: MetadataTimeline) -> Callable[[str], bool]:
        is_valid, waiting = right(timeline, data, loaded), {instant.time for instant in data.pending}
        return lambda time: time not in waiting and is_valid(time)

    monkeypatch.setattr(reader, "_validity", by_time_alone)
    with pytest.raises(AssertionError, match="by the metadata table"):
        play_all(range(11, 20))
