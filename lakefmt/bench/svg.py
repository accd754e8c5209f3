"""Charts as SVG text: points with a front, and bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from lakefmt.data_classes import dataclass

__all__ = ["ChartPoint", "bar_chart", "scatter_chart"]

_WIDTH, _HEIGHT = 860, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 15, 50
_BAR = 22


@dataclass(frozen=True)
class ChartPoint:
    """A point with its name; `marked` points are joined by a line."""

    name: str
    x: float
    y: float
    marked: bool = False


def scatter_chart(points: Sequence[ChartPoint], x_title: str, y_title: str) -> str:
    """Return a chart of points, both axes logarithmic; a point's name shows when it is pointed at, and where it is marked.

    Example:
        >>> "<svg" in scatter_chart([ChartPoint("a", 1.0, 2.0, True)], "x", "y")
        True
    """
    shown = [point for point in points if point.x > 0 and point.y > 0]
    if not shown:
        return "<p>No point to show.</p>"
    xs, ys = _Axis([point.x for point in shown]), _Axis([point.y for point in shown])

    def place(point: ChartPoint) -> tuple[float, float]:
        x = _LEFT + xs.share(point.x) * (_WIDTH - _LEFT - _RIGHT)
        return x, _HEIGHT - _BOTTOM - ys.share(point.y) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [_open(_HEIGHT, f"{y_title} against {x_title}")]
    floor, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for value in xs.ticks:
        x = _LEFT + xs.share(value) * (right - _LEFT)
        parts.append(f'<line class="axis" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{floor}"/>')
        parts.append(f'<text class="quiet" x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{value:g}</text>')
    for value in ys.ticks:
        y = floor - ys.share(value) * (floor - _TOP)
        parts.append(f'<line class="axis" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(f'<text class="quiet" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts.append(f'<text x="{right}" y="{_HEIGHT - 8}" text-anchor="end">{escape(x_title)}</text>')
    parts.append(f'<text x="{_LEFT + 6}" y="{_TOP + 12}">{escape(y_title)}</text>')
    front = sorted((place(point) for point in shown if point.marked), key=lambda pair: pair[0])
    if len(front) > 1:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in front)
        parts.append(f'<polyline class="front" points="{line}"/>')
    for point in shown:
        x, y = place(point)
        title = f"{point.name}: {point.x:.4g}, {point.y:.4g}"
        kind = "mark" if point.marked else "other"
        parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{escape(title)}</title></circle>')
        if point.marked:
            anchor, shift = ("end", -8) if x > _WIDTH / 2 else ("start", 8)
            parts.append(
                f'<text x="{x + shift:.1f}" y="{y - 7:.1f}" text-anchor="{anchor}">{escape(point.name)}</text>'
            )
    return "\n".join([*parts, "</svg>"])


def bar_chart(bars: Sequence[tuple[str, float]], unit: str) -> str:
    """Return a chart of horizontal bars, each with its name and value.

    Example:
        >>> "3 MB" in bar_chart([("a", 3.0)], " MB")
        True
    """
    most = max((value for _, value in bars), default=0.0) or 1.0
    height = _BAR * len(bars) + 10
    parts = [_open(height, "bars")]
    for number, (name, value) in enumerate(bars):
        y, length = 5 + number * _BAR, max(1.0, value / most * (_WIDTH - 420))
        parts.append(f'<text x="320" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="mark" x="330" y="{y + 3}" width="{length:.1f}" height="{_BAR - 7}"/>')
        parts.append(f'<text x="{336 + length:.1f}" y="{y + 15}">{value:,.3g}{escape(unit)}</text>')
    return "\n".join([*parts, "</svg>"])


def _open(height: int, label: str) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img" aria-label="{escape(label)}">'


class _Axis:
    """A logarithmic axis over some positive values."""

    def __init__(self, values: Sequence[float]) -> None:
        low, high = math.log10(min(values)), math.log10(max(values))
        room = max(0.06, 0.06 * (high - low))
        self._low, self._high = low - room, high + room
        steps = [base * 10.0**power for power in range(math.floor(low) - 1, math.ceil(high) + 1) for base in (1, 2, 5)]
        self.ticks = [step for step in steps if self._low <= math.log10(step) <= self._high]

    def share(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        return (math.log10(value) - self._low) / (self._high - self._low)
