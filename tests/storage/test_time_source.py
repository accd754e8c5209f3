"""Real time: what is repeated begins when it is due, each thing for itself, and a commit starts no thread of its own."""

from __future__ import annotations

import os
import threading

import pytest

from lakefmt._core.storage.time_source import SystemTimeSource

SOON = 0.01
#: Nobody waits that long unless something is broken.
LONG = 20.0


def test_what_is_far_off_starts_one_thread_for_all() -> None:
    time_source, before = SystemTimeSource(), set(threading.enumerate())
    stops = [time_source.schedule_periodic(3600.0, lambda: None, f"job {number}") for number in range(50)]
    mine = set(threading.enumerate()) - before
    assert {thread.name for thread in mine} <= {"lakefmt-alarm"}
    for stop in stops:
        stop()


def test_it_is_repeated_until_it_is_stopped() -> None:
    enough, done = threading.Event(), []

    def work() -> None:
        done.append(threading.current_thread().name)
        if len(done) == 3:
            enough.set()

    far = SystemTimeSource().schedule_periodic(
        3600.0, lambda: None, "far off"
    )  # the thread sleeps for this one already
    stop = SystemTimeSource().schedule_periodic(SOON, work, "near")
    assert enough.wait(LONG)
    stop()
    stop()
    far()
    assert set(done) == {"near"}


def test_a_slow_one_keeps_no_other_waiting() -> None:
    begun, go_on, other = threading.Event(), threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        go_on.wait(LONG)

    stops = [SystemTimeSource().schedule_periodic(SOON, slow, "slow")]
    assert begun.wait(LONG)
    stops.append(SystemTimeSource().schedule_periodic(SOON, other.set, "other"))
    assert other.wait(LONG)
    go_on.set()
    for stop in stops:
        stop()


def test_what_is_stopped_before_it_is_due_never_begins() -> None:
    begun, later = [], threading.Event()
    stop = SystemTimeSource().schedule_periodic(SOON, lambda: begun.append(1), "stopped")
    stop()
    after = SystemTimeSource().schedule_periodic(SOON * 2, later.set, "later")
    assert later.wait(LONG)
    after()
    assert not begun


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_an_alarm_of_its_own() -> None:
    stop = SystemTimeSource().schedule_periodic(3600.0, lambda: None, "the parent's")
    child = os.fork()
    if not child:  # pragma: no cover - the other process
        heard = threading.Event()
        SystemTimeSource().schedule_periodic(SOON, heard.set, "the child's")
        os._exit(0 if heard.wait(LONG) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stop()
