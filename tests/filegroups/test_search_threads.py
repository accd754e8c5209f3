"""A work is done by this thread and by kept ones: every part once, in any process, and none is waited for in vain."""

from __future__ import annotations

import os
import threading
import time

import pytest

from lakefmt._core.filegroups import named_rows
from lakefmt._core.filegroups.named_rows import do_side_by_side


@pytest.fixture(autouse=True)
def _four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_rows.os, "cpu_count", lambda: 4)


def test_every_part_is_done_once_and_results_are_in_order() -> None:
    seen: list[int] = []

    def act(number: int) -> int:
        seen.append(number)
        time.sleep(0.001)
        return -number

    for count in (0, 1, 2, 3, 100):
        seen.clear()
        assert do_side_by_side(act, range(count)) == [-number for number in range(count)]
        assert sorted(seen) == list(range(count))


def test_several_threads_work_at_the_same_time() -> None:
    met = threading.Barrier(3, timeout=30)
    assert len({*do_side_by_side(lambda _: (met.wait(), threading.get_ident())[1], range(3))}) == 3


@pytest.mark.parametrize("failing", [0, 1, 7])
def test_the_error_of_any_thread_is_raised_when_all_have_ended(failing: int) -> None:
    working = [0]

    def act(number: int) -> None:
        working[0] += 1
        time.sleep(0.005)
        working[0] -= 1
        if number == failing:
            raise ValueError(f"part {number}")

    for _ in range(5):
        with pytest.raises(ValueError, match=f"part {failing}"):
            do_side_by_side(act, range(8))
        assert not working[0]


def test_a_thread_that_has_not_begun_is_not_waited_for() -> None:
    others, go = named_rows._kept_threads, threading.Event()
    busy = others.begin(lambda: (go.wait(30), None)[1], named_rows._MOST_SEARCH_THREADS - 1)
    try:
        assert do_side_by_side(str, range(5)) == ["0", "1", "2", "3", "4"]
    finally:
        go.set()
    assert [future.result() for future in busy] == [None] * len(busy)


def test_a_process_that_was_forked_has_threads_of_its_own() -> None:
    assert do_side_by_side(str, range(9))
    child = os.fork()
    if not child:
        met = threading.Barrier(2, timeout=20)
        try:
            do_side_by_side(lambda _: met.wait(), range(2))
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_while_the_interpreter_ends_this_thread_does_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    do_side_by_side(str, range(3))
    monkeypatch.setattr(named_rows._kept_threads._pool, "submit", ended)
    assert do_side_by_side(str, range(3)) == ["0", "1", "2"]
