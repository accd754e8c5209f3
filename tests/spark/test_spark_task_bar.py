"""What a write shows of its steps and tasks; Spark's part is played."""

from __future__ import annotations

import io
from dataclasses import dataclass
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from lakefmt.spark.writing.plan import SilentSteps, WriteSteps, count_tasks


@dataclass
class Stage:
    """What Spark says of a stage."""

    numTasks: int  # noqa: N815 - as Spark calls it
    numCompletedTasks: int  # noqa: N815 - as Spark calls it


class Tracker:
    """Answers one state after another, then the last one; says when all were asked for."""

    def __init__(self, *states: dict[int, Stage], fails: bool = False) -> None:
        self._states, self._fails, self._asked = list(states), fails, 0
        self.all_asked = Event()

    @property
    def _now(self) -> dict[int, Stage]:
        return self._states[min(self._asked, len(self._states)) - 1]

    def getActiveStageIds(self) -> list[int]:
        self._asked += 1
        if self._asked > len(self._states):
            self.all_asked.set()
        if self._fails and self._asked > 1:
            self.all_asked.set()
            raise RuntimeError("the session has ended")
        return list(self._now)

    def getStageInfo(self, stage: int) -> Stage | None:
        return self._now.get(stage)


class Terminal(io.StringIO):
    """Keeps what is shown."""

    def isatty(self) -> bool:
        return True


def session(tracker: Tracker | None) -> Any:
    return SimpleNamespace(_sc=None if tracker is None else SimpleNamespace(statusTracker=lambda: tracker))


def terminal() -> tuple[Terminal, Console]:
    shown = Terminal()
    return shown, Console(file=shown, force_terminal=True, width=120, color_system=None)


def test_tasks_of_stages_that_run_and_that_have_ended_are_counted():
    ended: dict[int, int] = {}
    others = frozenset({1})
    tracker = SimpleNamespace(getActiveStageIds=lambda: list(now), getStageInfo=lambda stage: now[stage])
    now: dict[int, Stage | None] = {1: Stage(50, 20), 2: Stage(4, 1)}
    assert count_tasks(tracker, others, ended) == (1, 4)
    now = {2: Stage(4, 3), 3: Stage(8, 0), 4: None}  # one that has just ended is told of no more
    assert count_tasks(tracker, others, ended) == (3, 12)
    now = {3: Stage(8, 5)}
    assert count_tasks(tracker, others, ended) == (9, 12)
    now = {}
    assert count_tasks(tracker, others, ended) == (12, 12)


def test_a_terminal_gets_a_line_for_each_step_and_a_bar_of_its_tasks():
    tracker = Tracker({7: Stage(9, 9)}, {7: Stage(9, 9), 8: Stage(6, 2)}, {8: Stage(6, 5)})
    shown, console = terminal()
    with WriteSteps(console, poll_seconds=0).step(session(tracker), "look up the keys"):
        assert tracker.all_asked.wait(60)
    lines = shown.getvalue()
    assert lines.startswith("lakefmt: look up the keys\n")
    assert "5/6" in lines
    assert "/9" not in lines, "tasks of another job"


def test_without_a_terminal_there_are_lines_alone(capsys: pytest.CaptureFixture[str]):
    steps = WriteSteps()
    steps.say("30 files")
    with steps.step(session(Tracker({1: Stage(2, 1)})), "write files by partition"):
        pass
    assert capsys.readouterr().err == "lakefmt: 30 files\nlakefmt: write files by partition\n"
    with SilentSteps().step(session(None), "write"):
        SilentSteps().say("nothing")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("tracker", [None, Tracker({}, fails=True)])
def test_a_session_that_tells_nothing_loses_the_count_alone(tracker: Tracker | None):
    """Spark Connect has no tracker, and a session may end."""
    shown, console = terminal()
    ran = False
    with WriteSteps(console, poll_seconds=0).step(session(tracker), "write files"):
        assert tracker is None or tracker.all_asked.wait(60)
        ran = True
    assert ran
    assert "lakefmt: write files" in shown.getvalue()
    assert "0/?" in shown.getvalue()


def test_an_error_of_a_step_comes_through():
    _, console = terminal()
    with (
        pytest.raises(ValueError, match="a task failed"),
        WriteSteps(console, poll_seconds=0).step(session(Tracker({})), "write"),
    ):
        raise ValueError("a task failed")
