"""Measurements of one job: repeated while the machine is disturbed, told as median and spread, compared run by run."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

#: A calibration that takes this much longer than the quickest one so far says that somebody else was at work.
DISTURBED = 1.25
_BLOCK = bytes(12 << 20)


def calibrate() -> float:
    """Run the fixed job, the same hash on two threads, and return its seconds."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: hashlib.blake2b(_BLOCK).digest(), range(2)))
    return time.perf_counter() - begin


@dataclass
class Figure:
    """What one participant did in one work: a value per run, and which of them were measured on a calm machine.

    `unit` is s, ms, MB or keys/s; `note` says why values are missing or fewer.
    """

    values: list[float] = field(default_factory=list)
    calm: list[bool] = field(default_factory=list)
    unit: str = "s"
    note: str = ""

    def add(self, value: float, calm: bool = True) -> None:
        """Append one run."""
        self.values.append(value)
        self.calm.append(calm)

    def forget(self) -> None:
        """Drop every run: what was measured was not the work."""
        self.values.clear()
        self.calm.clear()

    @property
    def median(self) -> float | None:
        """The median of all runs, None without one."""
        return median(self.values) if self.values else None

    def as_json(self) -> dict[str, Any]:
        """Return the figure as JSON holds it, with median, smallest and largest value."""
        spread = {"median": self.median, "min": min(self.values), "max": max(self.values)} if self.values else {}
        return asdict(self) | spread


@dataclass
class Referee:
    """Decides whether a run was disturbed, by the calibrations around it, and repeats it a bounded number of times.

    `spare` seconds are all that repetitions may take together: on a machine that is never calm a run still ends.
    """

    attempts: int = 3
    spare: float = 180.0
    job: Callable[[], float] = calibrate
    quickest: float = float("inf")
    repeated: int = 0

    def settle(self) -> None:
        """Find the quickest calibration before anything is measured."""
        for _ in range(8):
            self._calibrated()

    def _calibrated(self) -> float:
        taken = self.job()
        self.quickest = min(self.quickest, taken)
        return taken

    def run(self, job: Callable[[], Any], restore: Callable[[], object] | None = None) -> tuple[Any, bool]:
        """Return the job's answer and whether the machine was calm; `restore` makes a repetition possible."""
        for attempt in range(1, self.attempts + 1):
            begin = time.monotonic()
            before = self._calibrated()
            answer = job()
            calm = max(before, self._calibrated()) <= DISTURBED * self.quickest
            if attempt > 1:
                self.spare -= time.monotonic() - begin
            if calm or attempt == self.attempts or self.spare <= 0:
                return answer, calm
            self.repeated += 1
            if restore is not None:
                begin = time.monotonic()
                restore()
                self.spare -= time.monotonic() - begin
        raise AssertionError("attempts is at least 1")


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return our value over theirs, run by run; a peer that ran once is the same in every run."""
    if not ours or not theirs:
        return []
    if len(theirs) == 1:
        theirs = list(theirs) * len(ours)
    return [own / other for own, other in zip(ours, theirs, strict=False) if other]


def slope(each: Sequence[float], edge: int = 10) -> float | None:
    """Return the median of the last `edge` commits over that of the first, the very first left out (it warms up)."""
    if len(each) < 2 * edge + 1:
        return None
    return median(each[-edge:]) / median(each[1 : edge + 1])
