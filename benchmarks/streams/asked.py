"""What a figure should be, beside what it is: the table that each benchmark of this folder ends with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Figure", "at_least", "at_most", "print_figures"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure.

    Attributes:
        name: what was measured.
        asked: what it should be; empty: nothing is asked.
        measured: what it is.
        holds: whether it is as asked.
    """

    name: str
    asked: str
    measured: str
    holds: bool = True


def at_least(name: str, least: float, measured: float, unit: str = "", digits: int = 0) -> Figure:
    """Return a figure that should be large.

    Example:
        >>> at_least("rows", 40_000, 39_000.4, "/s")
        Figure(name='rows', asked='≥ 40,000/s', measured='39,000/s', holds=False)
    """
    return Figure(name, f"≥ {least:,.{digits}f}{unit}", f"{measured:,.{digits}f}{unit}", measured >= least)


def at_most(name: str, most: float, measured: float, unit: str = "", digits: int = 1) -> Figure:
    """Return a figure that should be small.

    Example:
        >>> at_most("append", 8, 6.25, " ms")
        Figure(name='append', asked='≤ 8.0 ms', measured='6.2 ms', holds=True)
    """
    return Figure(name, f"≤ {most:,.{digits}f}{unit}", f"{measured:,.{digits}f}{unit}", measured <= most)


def print_figures(figures: Sequence[Figure]) -> None:
    """Print figures as a table."""
    width = max(len(figure.name) for figure in figures)
    print(f"\n{'figure':{width}}  {'asked':>18}  {'measured':>18}")
    for figure in figures:
        mark = "" if not figure.asked else "  yes" if figure.holds else "  NO"
        print(f"{figure.name:{width}}  {figure.asked:>18}  {figure.measured:>18}{mark}")
