"""Counts what a call costs, at a few sizes of one thing, and tells how the cost grows.

Nothing is timed: a count is the same on every machine, and small sizes tell as much as large ones. What a count cannot see is
work inside one call of Arrow, NumPy or Python itself; ``python -m tests.growth.measure`` therefore also times larger sizes.
"""

from __future__ import annotations

import gc
import itertools
import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import lakefmt
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.listing import ListingByMetadata
from lakefmt._core.storage.api import ObjectInfo
from lakefmt._core.storage.memory import MemoryStore
from lakefmt._core.table import Table
from lakefmt.testing.stores import CountingStore

__all__ = [
    "CONSTANT",
    "MEASURES",
    "Cost",
    "Line",
    "broken_laws",
    "copy_of",
    "cost_of",
    "counted",
    "exponent",
    "growth",
    "measured",
    "slope",
]

_PACKAGE = str(Path(lakefmt.__file__).parent)
#: What stands for a real store, what counts, and what threads of Arrow call, one time here and one time there.
_NOT_COUNTED = tuple(
    f"{_PACKAGE}/{path}"
    for path in (
        "testing",
        "_core/storage/memory.py",
        "_core/storage/arrow_filesystem.py",
        "_core/storage/object_names.py",
    )
)

#: What is counted of a call: its name here, and in the table of the documentation.
MEASURES = {
    "steps": "Python",
    "requests": "requests",
    "names": "names listed",
    "read": "bytes read",
    "written": "bytes written",
}


@dataclass(frozen=True)
class Cost:
    """What one call cost.

    Attributes:
        steps: lines of lakefmt's Python that ran; a loop counts each time round, a call at least once.
        requests: requests to the store.
        names: names that its listings returned.
        read: bytes read.
        written: bytes written.
    """

    steps: int
    requests: int
    names: int
    read: int
    written: int


class GrowthStore(CountingStore):
    """Counts the names of listings, too."""

    names = 0

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """Yield the objects of a listing."""
        for found in super().list(prefix, recursive=recursive):
            self.names += 1
            yield found

    def list_directories(self, prefix: str = "") -> list[str]:
        """Return the directories of a listing."""
        found = super().list_directories(prefix)
        self.names += len(found)
        return found


def copy_of(table: Table) -> tuple[Table, GrowthStore]:
    """Return a new handle on a copy of a table in memory, and the store that counts."""
    store, stored = MemoryStore(), table.client.store
    for found in stored.list():
        store.put(found.name, stored.read(found.name))
    counting = GrowthStore(store)
    client = TableClient(counting, table.client.options, metadata_listing=ListingByMetadata())
    return Table(client), counting


def counted(work: Callable[[], object], store: GrowthStore) -> Cost:
    """Run `work` and return what it cost, in every thread that begins meanwhile."""
    steps = itertools.count()

    def line(frame: FrameType, event: str, argument: object) -> Any:
        del frame, argument
        if event == "line":
            next(steps)
        return line

    def call(frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        name = frame.f_code.co_filename
        return line if name.startswith(_PACKAGE) and not name.startswith(_NOT_COUNTED) else None

    store.reset()
    store.names = 0
    gc.collect()  # what earlier tests left is not ended in here
    gc.disable()
    before = sys.gettrace()
    threading.settrace(call)
    sys.settrace(call)
    try:
        work()
    finally:
        gc.enable()
        sys.settrace(before)
        threading.settrace(before)  # type: ignore[arg-type]
    found = store.statistics()
    return Cost(next(steps), sum(found.by_kind.values()), store.names, found.bytes_read, found.bytes_written)


#: What does not grow: at most so steep on log-log paper, between the largest two sizes.
CONSTANT = 0.1
#: What grows as its size does, at most.
LINEAR = 1.05
#: The same without what does not grow, where the constant hides a little at small sizes: of squares it is 2.
GROWING = 1.25


def slope(sizes: Sequence[int], counts: Sequence[int]) -> float:
    """Return how steep a count is on log-log paper, between the largest two sizes.

    Example:
        >>> slope([10, 20, 40], [100, 200, 400])
        1.0
    """
    return math.log(max(counts[-1], 1) / max(counts[-2], 1)) / math.log(sizes[-1] / sizes[-2])


def growth(sizes: Sequence[int], counts: Sequence[int]) -> float:
    """Return the power of the size that a count grows with, without what does not grow.

    That would hide what grows with the square: of ``a + b * size ** p`` this is ``p``. A count that hardly grows at all has
    its slope.

    Example:
        >>> growth([10, 20, 40], [100 + n * n for n in (10, 20, 40)]), round(growth([10, 20, 40], [100, 100, 101]), 2)
        (2.0, 0.01)
    """
    small, middle, large = counts[-3:]
    steep = slope(sizes, counts)
    if steep <= CONSTANT or middle <= small:
        return steep
    return math.log((large - middle) / (middle - small)) / math.log(sizes[-1] / sizes[-2])


def exponent(sizes: Sequence[int], counts: Sequence[int]) -> float:
    """Return the slope of a count, or its growth where that is more."""
    return round(max(0.0, slope(sizes, counts), growth(sizes, counts)), 2)


@dataclass(frozen=True)
class Line:
    """One line of the table: a call, what grows, and the law of each measure.

    Attributes:
        verb: what is called.
        grows: what grows.
        make: makes the table of a size.
        call: returns the call on a table of a size.
        linear: the measures that may grow with the size; the others stay as they are.
        warm: what is called before with the handle that is counted, which may remember it; None: the handle is new.
        sizes: three or four, in geometric progression.
    """

    verb: str
    grows: str
    make: Callable[[int], Table]
    call: Callable[[Table, int], Callable[[], object]]
    linear: frozenset[str]
    warm: Callable[[Table, int], object] | None
    sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        """What is called, and what grows."""
        return f"{self.verb} / {self.grows}"


def measured(line: Line) -> dict[str, list[int]]:
    """Return measure → the counts of a line at its sizes."""
    costs = [cost_of(line, size) for size in (line.sizes[0], *line.sizes)][1:]  # the first one also imports
    return {name: [getattr(cost, name) for cost in costs] for name in MEASURES}


def cost_of(line: Line, size: int) -> Cost:
    """Return what a line's call costs at a size."""
    table, store = copy_of(line.make(size))
    if line.warm is not None:
        line.warm(table, size)
    return counted(line.call(table, size), store)


def laws_broken_by(line: Line, recorded: Mapping[str, float]) -> list[str]:
    """Return what grows more than it may. How threads share work depends on the moment: of two measurements the smaller counts hold."""
    counts = measured(line)
    if not broken_laws(line, counts, recorded):
        return []
    again = measured(line)
    return broken_laws(line, {name: list(map(min, found, again[name])) for name, found in counts.items()}, recorded)


def broken_laws(line: Line, counts: Mapping[str, Sequence[int]], recorded: Mapping[str, float]) -> list[str]:
    """Return what grows more than it may.

    Args:
        line: the line; what its author says does not grow must not.
        counts: measure → what was counted at the line's sizes.
        recorded: measure → the recorded exponent; what did not grow then must not grow now.
    """
    broken = []
    for name, found in counts.items():
        steep, power = slope(line.sizes, found), growth(line.sizes, found)
        may_grow = name in line.linear and recorded.get(name, 1.0) > CONSTANT
        is_linear = power <= GROWING and min(steep, power) <= LINEAR
        if not (is_linear if may_grow else steep <= CONSTANT):
            law = "grow as its size" if may_grow else "stay as it is"
            broken.append(
                f"{MEASURES[name]} should {law}, and is {found} at {line.grows} {list(line.sizes)}: {steep:.2f}"
            )
    return broken
