"""Partitions, or file groups, as a treemap: the area is the size, the hue and a word say how much waits in logs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lakefmt._core.data_classes import dataclass
from lakefmt._core.drawing.pictures import Picture, element, opening, short_text

__all__ = ["Tile", "layout_picture"]

#: Tiles of a picture; the smallest ones become one.
_MOST_TILES: Final = 160
#: Share of logs up to which a hue goes, with its words.
_SHARES: Final = ((0.0, "lf-blue"), (0.25, "lf-teal"), (0.5, "lf-amber"), (1.0, "lf-red"))


@dataclass(frozen=True, slots=True)
class Tile:
    """A part of the whole.

    Attributes:
        name: of the partition or file group.
        value: what its area says.
        value_text: the same in words.
        log_share: logs among its bytes, 0 to 1.
        href: where it leads; empty: nowhere.
    """

    name: str
    value: float
    value_text: str
    log_share: float = 0.0
    href: str = ""


@dataclass(frozen=True, slots=True)
class _Box:
    x: float
    y: float
    width: float
    height: float


def layout_picture(tiles: Sequence[Tile], title: str, *, width: int = 960, height: int = 380) -> Picture:
    """Return the picture of parts by their size, the largest first.

    Args:
        tiles: the parts, in any order.
        title: of the whole, to be read aloud.
        width: in CSS pixels.
        height: in CSS pixels.

    Example:
        >>> picture = layout_picture([Tile("a", 3, "3 B"), Tile("b", 1, "1 B")], "two")
        >>> picture.markup.count("lf-tile"), "a, 3 B" in picture.markup
        (2, True)
    """
    placed = sorted((tile for tile in tiles if tile.value > 0), key=lambda tile: (-tile.value, tile.name))
    if len(placed) > _MOST_TILES:
        rest = placed[_MOST_TILES - 1 :]
        value = sum(tile.value for tile in rest)
        share = sum(tile.log_share * tile.value for tile in rest) / value
        placed = [*placed[: _MOST_TILES - 1], Tile(f"{len(rest):,} smaller ones", value, "together", share)]
    boxes = _squarified([tile.value for tile in placed], _Box(0.0, 0.0, float(width), float(height)))
    drawn = [_drawn_tile(tile, box) for tile, box in zip(placed, boxes, strict=True)]
    head = opening(width, height, title, is_linked=any(tile.href for tile in placed))
    paper = element("rect", class_="lf-paper", width=width, height=height)
    nothing = "" if placed else element("text", "no files", class_="lf-soft lf-middle", x=width / 2, y=height / 2)
    return Picture("".join([head, paper, *drawn, nothing, "</svg>"]), title)


def _squarified(values: Sequence[float], whole: _Box) -> list[_Box]:
    """Return a box of each value, largest first, as square as rows allow (Bruls, Huizing, van Wijk 2000)."""
    total = sum(values)
    scale = whole.width * whole.height / total if total else 0.0
    areas = [value * scale for value in values]
    boxes: list[_Box] = []
    free, first = whole, 0
    while first < len(areas):
        side = max(min(free.width, free.height), 1e-9)
        last, row_sum = first + 1, areas[first]
        worst = _worst(areas[first], areas[first], row_sum, side)
        while last < len(areas):
            longer = _worst(areas[first], areas[last], row_sum + areas[last], side)
            if longer > worst:
                break
            worst, row_sum, last = longer, row_sum + areas[last], last + 1
        row, free = _placed_row(areas[first:last], row_sum, free)
        boxes += row
        first = last
    return boxes


def _worst(largest: float, smallest: float, total: float, side: float) -> float:
    square = side * side
    return max(square * largest / (total * total), total * total / max(square * smallest, 1e-12))


def _placed_row(areas: Sequence[float], total: float, free: _Box) -> tuple[list[_Box], _Box]:
    boxes = []
    if free.width >= free.height:
        thick = total / max(free.height, 1e-9)
        y = free.y
        for area in areas:
            boxes.append(_Box(free.x, y, thick, area / max(thick, 1e-9)))
            y += boxes[-1].height
        return boxes, _Box(free.x + thick, free.y, max(free.width - thick, 0.0), free.height)
    thick = total / max(free.width, 1e-9)
    x = free.x
    for area in areas:
        boxes.append(_Box(x, free.y, area / max(thick, 1e-9), thick))
        x += boxes[-1].width
    return boxes, _Box(free.x, free.y + thick, free.width, max(free.height - thick, 0.0))


def _drawn_tile(tile: Tile, box: _Box) -> str:
    hue = next(hue for most, hue in _SHARES if min(tile.log_share, 1.0) <= most)
    logs = f", {tile.log_share:.0%} in logs" if tile.log_share else ""
    words = f"{tile.name[:300]}, {tile.value_text}{logs}"
    shape = element("rect", class_="lf-shape", x=box.x, y=box.y, width=box.width, height=box.height)
    parts = [element("title", short_text(words, 320)), shape]
    letters = int((box.width - 12) / 7.6)
    if letters >= 3 and box.height >= 18:
        parts.append(element("text", short_text(tile.name, letters), x=box.x + 6, y=box.y + 15))
    if letters >= 5 and box.height >= 34:
        below = short_text(f"{tile.value_text}{logs}", letters)
        parts.append(element("text", below, class_="lf-small", x=box.x + 6, y=box.y + 29))
    inner = "".join(parts)
    if not tile.href:
        return element("g", inner, class_=f"lf-tile {hue}", role="img", aria_label=words)
    # Its name is that of the title: a label beside texts that are cut would say something else than what is seen.
    return element("a", inner, class_=f"lf-tile {hue}", href=tile.href)
