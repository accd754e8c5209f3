"""How many examples a property is asked for, by the profile of the run, and the seed that they are drawn with."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from hypothesis import settings

from tests.kit import THOROUGH

__all__ = ["count_in_turn", "examples", "in_turn", "seed_of_run", "seeds_of_run"]

T = TypeVar("T")

#: Numbers are chosen beside so many of a property that names none.
_BESIDE = 60


def examples(usual: int) -> int:
    """Return the number of examples in this run of a property that is worth `usual` of them.

    The usual run has two in fifteen of them, one on other dependencies half as many, a thorough one ten times as many; none has fewer
    than two.
    """
    return max(2, usual * settings().max_examples // _BESIDE)


def seed_of_run() -> int:
    """Return LAKEFMT_SEED, or the number of today, which every process of this run then has in its environment."""
    return int(os.environ.setdefault("LAKEFMT_SEED", f"{datetime.now(UTC):%Y%m%d}"))


def seeds_of_run(usual: int, every: int) -> range:
    """Return the numbers of the histories that this run plays: all of them in a thorough one, else some, others each day."""
    first = seed_of_run() * usual % every
    return range(every) if THOROUGH else range(first, first + usual)


def in_turn(values: Sequence[T], turns: int) -> list[T]:
    """Return one in `turns` of the values, others each day; all of them in a thorough run, and where there are fewer than that."""
    return list(values) if THOROUGH or len(values) < turns else list(values[seed_of_run() % turns :: turns])


def count_in_turn(first: int, turns: int) -> Iterator[int]:
    """Yield the numbers from `first` on, in a usual run one in `turns` of them, others each day."""
    return itertools.count(first) if THOROUGH else itertools.count(first + seed_of_run() % turns, turns)
