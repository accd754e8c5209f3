"""What commits wrote, as bars of bytes with a curve of seconds: services have round bars and their letter. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lakefmt._core.data_classes import dataclass
from lakefmt._core.drawing.pictures import Picture, drawn_kind, element, opening, short_text
from lakefmt._core.values import size_text

__all__ = ["CommitCost", "cost_picture"]

_TOP: Final = 26.0
_BOTTOM: Final = 22.0
_LEFT: Final = 72.0
_RIGHT: Final = 66.0


@dataclass(frozen=True, slots=True)
class CommitCost:
    """What one commit cost.

    Attributes:
        time: its requested time.
        operation: its operation.
        num_bytes: that it wrote.
        seconds: that it took; None: not known.
        rows: that were given to it.
        href: where it leads; empty: nowhere.
    """

    time: str
    operation: str
    num_bytes: int
    seconds: float | None
    rows: int = 0
    href: str = ""


def cost_picture(costs: Sequence[CommitCost], title: str, *, width: int = 960, height: int = 240) -> Picture:
    """Return the picture of what commits wrote and how long they took.

    Args:
        costs: by time.
        title: of the whole, to be read aloud.
        width: in CSS pixels.
        height: in CSS pixels.

    Example:
        >>> picture = cost_picture([CommitCost("20260101000000000", "insert", 2048, 0.5)], "one")
        >>> "2.00 KiB" in picture.markup, picture.markup.count("lf-bar")
        (True, 1)
    """
    most = max((cost.num_bytes for cost in costs), default=0) or 1
    longest = max((cost.seconds or 0.0 for cost in costs), default=0.0) or 1.0
    floor, step = height - _BOTTOM, min(56.0, (width - _LEFT - _RIGHT) / max(len(costs), 1))
    room = floor - _TOP
    parts = [element("rect", class_="lf-paper", width=width, height=height)]
    for share in (0.0, 0.5, 1.0):
        y = floor - room * share
        parts.append(element("line", class_="lf-line", x1=_LEFT, x2=width - _RIGHT, y1=y, y2=y))
        parts.append(element("text", size_text(int(most * share)), class_="lf-soft lf-end", x=_LEFT - 6, y=y + 4))
        seconds = _duration(longest * share)
        parts.append(element("text", seconds, class_="lf-mark-text", x=width - _RIGHT + 6, y=y + 4))
    points = []
    for number, cost in enumerate(costs):
        x = _LEFT + number * step
        parts.append(_drawn_cost(cost, x, step, floor, room * cost.num_bytes / most))
        if cost.seconds is not None:
            points.append(f"{x + step / 2:.1f},{floor - room * cost.seconds / longest:.1f}")
    parts.append(element("polyline", class_="lf-curve", points=" ".join(points)))
    parts.append(element("text", "bytes written (bars), seconds (line)", class_="lf-soft", x=_LEFT, y=14))
    if costs:
        parts.append(element("text", short_text(costs[0].time, 20), class_="lf-soft", x=_LEFT, y=height - 6))
        last = _LEFT + step * len(costs)
        if last > _LEFT + 260:  # beside each other, not on each other
            parts.append(element("text", short_text(costs[-1].time, 20), class_="lf-soft lf-end", x=last, y=height - 6))
    head = opening(width, height, title, is_linked=any(cost.href for cost in costs))
    return Picture("".join([head, *parts, "</svg>"]), title)


def _duration(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 36_000 else f"{seconds / 3600:.3g} h"


def _drawn_cost(cost: CommitCost, x: float, step: float, floor: float, tall: float) -> str:
    kind = drawn_kind(cost.operation, "commit")
    tall = max(tall, 1.5)
    is_service = cost.operation in ("compact", "cluster", "log_compact")
    gap = min(6.0, step * 0.2)
    took = "" if cost.seconds is None else f", {cost.seconds:.3f} s"
    words = f"{kind.title} {cost.time}: {size_text(cost.num_bytes)}, {cost.rows:,} rows{took}"
    shape = element(
        "rect",
        class_="lf-shape",
        x=x + gap / 2,
        y=floor - tall,
        width=max(step - gap, 1.0),
        height=tall,
        rx=min(5.0, step / 3) if is_service else 0,
    )
    letter = (
        element("text", kind.letter, class_="lf-on", aria_hidden="true", x=x + step / 2, y=floor - 4)
        if step > 13 and tall > 15
        else ""
    )
    inner = element("title", short_text(words, 200)) + shape + letter
    if not cost.href:
        return element("g", inner, class_=f"lf-bar {kind.hue}", role="img", aria_label=words)
    return element("a", inner, class_=f"lf-bar {kind.hue}", href=cost.href, aria_label=words)
