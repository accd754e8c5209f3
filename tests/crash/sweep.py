"""One engine for all sweeps over effects: a call fails at each of its effects in turn, and a test looks at what is left.

Per change every third effect of a call is asked one ending on one version, the others the next days: its answer is lost, the hardest
to tell, for the caller lives and has to find out whether the effect is there. `make test-all` asks all endings on all versions and types.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from lakefmt._core.storage import ObjectStore
from lakefmt._core.storage.memory import MemoryStore
from lakefmt.errors import LakefmtError
from lakefmt.testing.store_wrapper import Effect
from lakefmt.testing.stores import FaultMode, FaultStore, SimulatedCrash, fail_at
from tests.crash.repeatable import Repeatable
from tests.crash.roles import first_of_each_role
from tests.example_counts import in_turn
from tests.kit import THOROUGH

__all__ = [
    "DIES",
    "ENDINGS",
    "LOST",
    "PER_CHANGE",
    "Ending",
    "Left",
    "endings_of_run",
    "numbers_of_run",
    "sweep",
    "versions_and_endings",
]


@dataclass(frozen=True)
class Ending:
    """How an effect fails, and whether its process dies of it."""

    mode: FaultMode
    crash: bool

    def __str__(self) -> str:
        return f"{self.mode.value}-{'dies' if self.crash else 'error'}"


LOST = Ending(FaultMode.ANSWER_LOST, crash=False)
DIES = Ending(FaultMode.AFTER, crash=True)
#: All of them: a lost answer or request is told to a living process, everything else may also kill it.
ENDINGS = [
    *(Ending(mode, crash=False) for mode in FaultMode),
    *(Ending(mode, crash=True) for mode in FaultMode if mode not in (FaultMode.ANSWER_LOST, FaultMode.REQUEST_LOST)),
]
#: What every sweep is asked per change.
PER_CHANGE = LOST


def endings_of_run(also: Iterable[Ending] = ()) -> list[Ending]:
    """Return the endings that this run asks a sweep: all of them in a thorough run, else one and `also`."""
    return ENDINGS if THOROUGH else [*also, PER_CHANGE]


def versions_and_endings(group: str, versions: Sequence[int] = (6, 8, 9)) -> pytest.MarkDecorator:
    """Ask a sweep every ending on every version in a thorough run, else one ending on the newest and deaths on the oldest.

    Args:
        group: names the sweep; one process asks all endings of a version, for it knows the states that it has checked.
        versions: of tables, from the oldest.
    """
    usual = [(versions[0], DIES), (versions[-1], PER_CHANGE)]
    every = [(version, ending) for version in versions for ending in ENDINGS]
    cases = [
        pytest.param(version, ending, id=f"{version}-{ending}", marks=pytest.mark.xdist_group(f"{group}-{version}"))
        for version, ending in (every if THOROUGH else usual)
    ]
    return pytest.mark.parametrize(("version", "ending"), cases)


def numbers_of_run(effects: Sequence[Effect], ending: Ending) -> list[int]:
    """Return the numbers of the effects that are made to fail: all, but of deaths in a usual run the first of each role."""
    return first_of_each_role(effects) if ending == DIES and not THOROUGH else list(range(1, len(effects) + 1))


@dataclass(frozen=True)
class Left:
    """What a call left behind that failed at one of its effects.

    Attributes:
        number: the effect's, from one.
        store: the table as it is now.
        result: what the call returned; None when it raised.
        story: what happened, for the message of a failed test.
    """

    number: int
    store: MemoryStore
    result: Any
    story: str


def sweep(
    origin: Repeatable,
    call: Callable[[ObjectStore], object],
    effects: int | Iterable[int],
    ending: Ending,
    *,
    what: Callable[[Left], object] = lambda left: None,
    under: Callable[[ObjectStore], ObjectStore] = lambda store: store,
) -> Iterator[Left]:
    """Make a call fail at its effects, on a fresh copy each time; yield what is left where it is new.

    All effects in a thorough run; in a usual one answers are lost of every third one, the others the next days.

    Args:
        origin: the table before.
        call: what is done with a copy.
        effects: how many effects the call has, or the numbers of those that are to fail.
        ending: how they fail.
        what: tells what the test's checks depend on beside the state; a state that was met with it before is left out.
        under: wraps the copy below the faults.
    """
    numbers = list(range(1, effects + 1) if isinstance(effects, int) else effects)
    for number in in_turn(numbers, 3) if ending == PER_CHANGE else numbers:
        store, result = origin.copy(), None
        faulty = FaultStore(under(store), fail_at(number, ending.mode, crash=ending.crash))
        with contextlib.suppress(LakefmtError, SimulatedCrash):
            result = call(faulty)
        reached = faulty.effects[number - 1] if len(faulty.effects) >= number else "not reached"
        left = Left(number, store, result, f"effect {number} ({reached}), {ending}")
        if origin.is_new(store, what(left)):
            yield left
