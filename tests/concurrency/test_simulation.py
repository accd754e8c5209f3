"""Several writers on a virtual clock: hundreds of histories from seeds, and builds that are broken on purpose.

A run plays thirty seeds, others each day; ``LAKEFMT_HYPOTHESIS=thorough`` (`make test-all`) ten thousand.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import lakefmt._core.transactions.client as services
import lakefmt._core.write.commit.conflict_resolution as rivals
import lakefmt._core.write.slice_state as slice_state
from lakefmt._core.data_classes import replace
from lakefmt._core.timeline.heartbeat import Liveness
from tests.example_counts import seeds_of_run
from tests.kit import SECONDS_FOR_A_CHILD, THOROUGH
from tests.simulation.serializability import RecordedHistory
from tests.simulation.simulator import Chances, check_history, scene_of, simulate

SEEDS = seeds_of_run(30, 10_000)
PARTS = 100 if THOROUGH else 4

#: Seeds that found a fault when its cure was taken out. A seed's steps move with every effect that writers make: these have
#: moved since (the inflight file comes after the lock now), so look for other seeds before relying on them.
FOUND = {
    11: "a marker whose request was lost: the file was written without one, and a rollback did not find it",
    268: "a writer taken for dead put a file whose marker the rollback had removed: nobody removed it again",
    411: "a rollback that somebody taken for dead had finished meanwhile was an error",
    1041: "a key that a log had deleted was brought back by one writer and inserted as new by another: it was there twice",
    8750: "files that a slow writer had announced after the plan of its rollback lost their markers, and stayed",
}
#: Seeds that found faults in steps that have moved since: a claim that went while it was asked for its age; a compaction
#: that somebody else completed while it was looked for, and a writer that nobody could tidy up after; a write
#: whose turn was lost, and which its own lock refused to undo; a completed write that a sleeper rolled back (tests of their
#: own: test_undone_beside.py); a straddling log whose commit was archived (test_straddling.py); an id like a bucket's; a
#: writer that went on behind its rollback, taken for a commit whose file is gone, and a plan of a clustering that came late,
#: beside another one of the same file groups (test_frozen_and_archived.py); a clean that two processes executed, of which
#: the second was told that it had been rolled back; a file of a process that lost a clustering, in the plan of the next
#: one; a write that listed the table when a clean had removed what it began with (test_frozen_and_archived.py, too).
FOUND_ONCE = (172, 220, 1089, 7145, 7302, 7822, 8436, 9017, 64650, 81048, 90625, 102636, 113515)


@pytest.mark.slow
@pytest.mark.timeout(1500 if THOROUGH else 150)
@pytest.mark.parametrize("part", range(PARTS))
def test_what_writers_leave_is_what_they_do_one_after_the_other(part: int) -> None:
    for seed in SEEDS[part::PARTS]:
        check_history(simulate(seed))


@pytest.mark.parametrize("seed", [*FOUND, *FOUND_ONCE])
def test_what_a_seed_has_found_stays_mended(seed: int) -> None:
    check_history(simulate(seed))


@pytest.mark.slow
@pytest.mark.timeout(1500 if THOROUGH else 150)
@pytest.mark.parametrize("part", range(PARTS))
def test_keys_deleted_and_written_again_while_compactions_wait_are_there_once(part: int) -> None:
    for seed in SEEDS[: len(SEEDS) // 2][part::PARTS]:
        if scene_of(seed).shape.table_type == "mor":
            metadata = seed % 4 == 1
            scene = replace(scene_of(seed), waiting=True, calls=8, writers=2, metadata=metadata)
            check_history(simulate(scene))


def test_a_seed_says_everything() -> None:
    first, again = simulate(28), simulate(28)
    assert first.trace == again.trace
    assert len(first.trace) > 200


def test_a_seed_says_the_same_in_another_process() -> None:
    script = "import sys, hashlib; from tests.simulation.simulator import simulate; " + (
        "print([hashlib.sha256(chr(10).join(simulate(int(n)).trace).encode()).hexdigest() for n in sys.argv[1:]])"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "4711"}
    seeds = ["3", "28"]
    done = subprocess.run(
        [sys.executable, "-c", script, *seeds], env=environ, capture_output=True, text=True, timeout=SECONDS_FOR_A_CHILD
    )
    mine = [hashlib.sha256("\n".join(simulate(int(seed)).trace).encode()).hexdigest() for seed in seeds]
    assert done.stdout.strip() == str(mine), done.stderr


def test_seeds_are_spread_over_tables_and_locks() -> None:
    scenes = [scene_of(seed) for seed in range(100)]
    kinds = Counter((s.shape.table_version, s.shape.table_type, s.lock) for s in scenes)
    assert len(kinds) == 18
    assert min(kinds.values()) >= 5
    assert Counter(s.apart for s in scenes)[True] > 30


# --- builds that are broken on purpose --------------------------------------------------------------------------------


class _NoLock:
    @contextmanager
    def hold(self) -> Iterator[_NoLock]:
        yield self

    def check(self) -> None:
        pass


def _first_caught(seeds: range) -> tuple[int, str]:
    for seed in seeds:
        try:
            check_history(simulate(seed))
        except Exception as error:
            return seed, str(error)
    pytest.fail(f"none of {len(seeds)} histories told of it")


def test_without_a_lock_a_history_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "open_lock", lambda *_, **__: _NoLock())
    seed, story = _first_caught(range(30))
    assert f"seed {seed} (version" in story, story
    assert "begins w" in story, "the last steps are told"


def test_without_comparing_keys_a_key_is_there_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rivals, "_file_with_key", lambda *_, **__: None)
    _, story = _first_caught(range(60))
    assert "too many" in story


@pytest.mark.slow
def test_without_minding_a_waiting_compaction_a_key_is_there_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_state, "is_compaction_pending", lambda _: False)
    calm = [replace(scene_of(seed, Chances(0, 0, 0, 0)), waiting=True, calls=30, writers=1) for seed in range(40)]
    stories = []
    for scene in (scene for scene in calm if scene.shape.table_type == "mor" and scene.shape.ordering is None):
        try:
            check_history(simulate(scene))
        except AssertionError as error:
            stories.append(str(error))
            break
    assert stories, "no history told of it"
    assert "too many" in stories[0]


def test_undoing_a_slow_writer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "is_alive", lambda *_: Liveness(False, "it has not finished yet"))
    _, story = _first_caught(range(10))
    assert "was undone while it showed signs of life" in story


def _tampered(change: Callable[[RecordedHistory], object]) -> str:
    history = simulate(1)
    check_history(history)
    change(history)
    with pytest.raises(AssertionError) as caught:
        check_history(history)
    return str(caught.value)


def test_the_judge_sees_a_lost_commit_a_wrong_read_and_a_false_answer() -> None:
    def forget(history: RecordedHistory) -> None:
        history.completions.remove(next(t for t in history.completions[1:]))

    def lie(history: RecordedHistory) -> None:
        next(t for t in history.tried if t.verb is None or t.name == "w0.1").acknowledged = False
        history.tried[-1].name = "nothing of that name"

    assert "seed 1" in _tampered(forget)
    assert "was acknowledged, and is not on the timeline" in _tampered(lie)
