"""Pictures of tables as SVG, values in and text out: timelines, the layout of files, and what commits wrote. Pure.

No script is needed to see them, texts are data, and each part has a name to be read aloud. What they share comes first: the picture
itself, texts, operations with their letters, axes of time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from html import escape
from pathlib import Path
from typing import Final

from lakefmt._core.data_classes import dataclass
from lakefmt._core.values import printable, size_text

__all__ = [
    "KINDS",
    "LANES",
    "STYLE",
    "Bar",
    "CommitCost",
    "CountColumn",
    "DrawnKind",
    "Picture",
    "Tick",
    "Tile",
    "TimelineSpan",
    "cost_picture",
    "drawn_kind",
    "element",
    "layout_picture",
    "legend_of",
    "moment_text",
    "opening",
    "short_text",
    "ticks_of",
    "timeline_picture",
]

#: Colours of every picture, light and dark; the page has the same text as a file, since it allows no styles within markup.
#: Hues differ in lightness, too, and each carries white or black text at AA contrast.
STYLE: Final = """
.lf-picture { --lf-paper: #ffffff; --lf-ink: #1d2330; --lf-soft: #596275; --lf-line: #d8dce5; --lf-band: #f4f6f9;
  --lf-blue: #1f5fb4; --lf-teal: #0b6e69; --lf-green: #2c6e2f; --lf-amber: #8a5300; --lf-red: #b3261e; --lf-violet: #6b3fa0;
  --lf-pink: #a02864; --lf-grey: #586072; --lf-mark: #c2410c; --lf-on: #ffffff; }
@media (prefers-color-scheme: dark) { .lf-picture { --lf-paper: #14181f; --lf-ink: #e6e9ef; --lf-soft: #a3adbf;
  --lf-line: #343c4a; --lf-band: #1b212b; --lf-blue: #7fb2f5; --lf-teal: #5fc9c2; --lf-green: #86cf8a; --lf-amber: #f0b45a;
  --lf-red: #ff8f87; --lf-violet: #c3a3f2; --lf-pink: #f29ac4; --lf-grey: #a9b3c4; --lf-mark: #ff9d5c; --lf-on: #10141a; } }
:root[data-theme="light"] .lf-picture { --lf-paper: #ffffff; --lf-ink: #1d2330; --lf-soft: #596275; --lf-line: #d8dce5;
  --lf-band: #f4f6f9; --lf-blue: #1f5fb4; --lf-teal: #0b6e69; --lf-green: #2c6e2f; --lf-amber: #8a5300; --lf-red: #b3261e;
  --lf-violet: #6b3fa0; --lf-pink: #a02864; --lf-grey: #586072; --lf-mark: #c2410c; --lf-on: #ffffff; }
:root[data-theme="dark"] .lf-picture { --lf-paper: #14181f; --lf-ink: #e6e9ef; --lf-soft: #a3adbf; --lf-line: #343c4a;
  --lf-band: #1b212b; --lf-blue: #7fb2f5; --lf-teal: #5fc9c2; --lf-green: #86cf8a; --lf-amber: #f0b45a; --lf-red: #ff8f87;
  --lf-violet: #c3a3f2; --lf-pink: #f29ac4; --lf-grey: #a9b3c4; --lf-mark: #ff9d5c; --lf-on: #10141a; }
.lf-picture { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; color: var(--lf-ink); max-width: 100%; }
.lf-picture text { fill: var(--lf-ink); unicode-bidi: isolate; }
.lf-paper { fill: var(--lf-paper); }
.lf-band { fill: var(--lf-band); }
.lf-line { stroke: var(--lf-line); stroke-width: 1; }
.lf-picture .lf-soft { fill: var(--lf-soft); font-size: 11px; }
.lf-picture .lf-on { fill: var(--lf-on); font-weight: 600; font-size: 11px; text-anchor: middle; pointer-events: none; }
.lf-picture .lf-end { text-anchor: end; }
.lf-picture .lf-middle { text-anchor: middle; }
.lf-blue { --lf-hue: var(--lf-blue); } .lf-teal { --lf-hue: var(--lf-teal); } .lf-green { --lf-hue: var(--lf-green); }
.lf-amber { --lf-hue: var(--lf-amber); } .lf-red { --lf-hue: var(--lf-red); } .lf-violet { --lf-hue: var(--lf-violet); }
.lf-pink { --lf-hue: var(--lf-pink); } .lf-grey { --lf-hue: var(--lf-grey); }
.lf-shape { fill: var(--lf-hue); stroke: var(--lf-hue); stroke-width: 1.5; }
.lf-wait { fill: var(--lf-hue); fill-opacity: 0.55; }
.lf-requested .lf-shape, .lf-inflight .lf-shape, .lf-failed .lf-shape { fill: var(--lf-paper); }
.lf-inflight .lf-shape { stroke-dasharray: 5 2; } .lf-requested .lf-shape { stroke-dasharray: 1.5 2; }
.lf-picture .lf-requested .lf-on, .lf-picture .lf-inflight .lf-on, .lf-picture .lf-failed .lf-on { fill: var(--lf-hue); }
.lf-archived .lf-shape { fill-opacity: 0.75; stroke-opacity: 0.75; }
.lf-bar:focus, .lf-tile:focus { outline: none; }
.lf-bar:focus .lf-shape, .lf-tile:focus .lf-shape { stroke: var(--lf-ink); stroke-width: 3; stroke-dasharray: none; }
.lf-marked .lf-shape { stroke: var(--lf-mark); stroke-width: 3; }
.lf-bar:hover .lf-shape, .lf-tile:hover .lf-shape { stroke: var(--lf-ink); }
.lf-mark { stroke: var(--lf-mark); stroke-width: 2; } .lf-picture .lf-mark-text { fill: var(--lf-mark); font-weight: 600; }
.lf-tile .lf-shape { stroke: var(--lf-paper); stroke-width: 2; }
.lf-picture .lf-tile text { fill: var(--lf-on); pointer-events: none; } .lf-picture .lf-tile .lf-small { font-size: 10.5px; }
.lf-curve { fill: none; stroke: var(--lf-mark); stroke-width: 1.5; }
"""


@dataclass(frozen=True, slots=True)
class DrawnKind:
    """How an operation or action is drawn: a letter tells it apart as well as its hue.

    Attributes:
        letter: in its bar.
        hue: class of its colour.
        title: its words.
    """

    letter: str
    hue: str
    title: str


#: Operation of a commit, or action → how it is drawn.
KINDS: Final[dict[str, DrawnKind]] = {
    "insert": DrawnKind("I", "lf-blue", "insert"),
    "upsert": DrawnKind("U", "lf-teal", "upsert"),
    "bulk_insert": DrawnKind("B", "lf-blue", "bulk insert"),
    "delete": DrawnKind("D", "lf-red", "delete"),
    "delete_partition": DrawnKind("P", "lf-red", "delete partition"),
    "insert_overwrite": DrawnKind("O", "lf-pink", "insert overwrite"),
    "insert_overwrite_table": DrawnKind("W", "lf-pink", "insert overwrite table"),
    "cluster": DrawnKind("G", "lf-violet", "clustering"),
    "clustering": DrawnKind("G", "lf-violet", "clustering"),
    "compact": DrawnKind("M", "lf-green", "compaction"),
    "compaction": DrawnKind("M", "lf-green", "compaction"),
    "log_compact": DrawnKind("L", "lf-green", "log compaction"),
    "logcompaction": DrawnKind("L", "lf-green", "log compaction"),
    "clean": DrawnKind("C", "lf-grey", "clean"),
    "rollback": DrawnKind("R", "lf-amber", "rollback"),
    "restore": DrawnKind("T", "lf-amber", "restore"),
    "savepoint": DrawnKind("S", "lf-amber", "savepoint"),
    "index": DrawnKind("N", "lf-violet", "indexing"),
    "indexing": DrawnKind("N", "lf-violet", "indexing"),
    "alter_schema": DrawnKind("A", "lf-pink", "schema change"),
    "schemacommit": DrawnKind("A", "lf-pink", "schema change"),
    "commit": DrawnKind("c", "lf-blue", "commit"),
    "deltacommit": DrawnKind("d", "lf-teal", "deltacommit"),
    "replacecommit": DrawnKind("r", "lf-pink", "replacecommit"),
}
_UNKNOWN: Final = DrawnKind("?", "lf-grey", "unknown operation")


def drawn_kind(operation: str, action: str) -> DrawnKind:
    """Return how an instant is drawn: by its operation, where that is known.

    Example:
        >>> drawn_kind("upsert", "commit").letter, drawn_kind("", "clean").letter, drawn_kind("unknown", "commit").letter
        ('U', 'C', 'c')
    """
    return KINDS.get(operation) or KINDS.get(action) or _UNKNOWN


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that notebooks show and files take.

    Attributes:
        markup: the SVG element without its styles.
        title: what it shows, in words.
    """

    markup: str
    title: str

    @property
    def svg(self) -> str:
        """The picture as a standalone SVG document, without scripts or requests, with colours for light and dark."""
        return self.markup.replace(">", f"><style>{STYLE}</style>", 1)

    def save(self, path: str | Path) -> None:
        """Write the picture to a file.

        Args:
            path: of an ``.svg`` file.
        """
        Path(path).write_text(f"{self.svg}\n", encoding="utf-8")

    def __str__(self) -> str:
        return self.title

    def __repr__(self) -> str:
        return f"Picture({printable(self.title)[:80]!r}, {len(self.markup):,} characters)"

    def _repr_html_(self) -> str:
        return f'<div class="lakefmt">{self.svg}</div>'

    def _repr_svg_(self) -> str:
        return self.svg


def element(name: str, /, *content: str, **attributes: object) -> str:
    """Return an element of markup; attribute values are escaped, the content is markup already.

    Example:
        >>> element("text", "a", x=3, class_="lf-soft", aria_label='"')
        '<text x="3" class="lf-soft" aria-label="&quot;">a</text>'
    """
    parts = [name]
    for key, value in attributes.items():
        if value is not None and value != "":
            shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
            parts.append(f'{key.rstrip("_").replace("_", "-")}="{escape(printable(shown))}"')
    return f"<{' '.join(parts)}>{''.join(content)}</{name}>"


def opening(width: float, height: float, title: str, *, is_linked: bool) -> str:
    """Return the beginning of a picture: its size, and its words for those who do not see it.

    Args:
        width: in CSS pixels.
        height: in CSS pixels.
        title: what it shows.
        is_linked: it has links inside: a group, and no single image.
    """
    role = "group" if is_linked else "img"
    whole = element(
        "svg",
        xmlns="http://www.w3.org/2000/svg",
        class_="lf-picture",
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        role=role,
        aria_label=title,
    )
    return whole.removesuffix("</svg>")


#: Characters that turn the direction of what follows: shown as what they are, or a name could look like another one.
_DIRECTIONS: Final = {
    code: f"\\u{code:04x}" for code in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def short_text(text: str, most: int) -> str:
    """Return a text of at most `most` characters as markup, its middle left out; it cannot change the direction around it.

    Example:
        >>> short_text("abcdefghij", 5), short_text("<b>", 9)
        ('ab…ij', '&lt;b&gt;')
    """
    is_plain = text.isascii()
    text = text.translate(_DIRECTIONS)
    line = printable(text[: 4 * most] if len(text) <= 4 * most else f"{text[: 2 * most]}{text[-2 * most :]}")
    if len(line) > most:
        head = (most - 1) // 2
        line = f"{line[: most - 1 - head]}…{line[len(line) - head :] if head else ''}"
    shown = escape(line)
    return shown if is_plain else f"\N{FIRST STRONG ISOLATE}{shown}\N{POP DIRECTIONAL ISOLATE}"


# --- time ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """A place on an axis of time: epoch seconds, and its words."""

    at: float
    text: str


_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR
_STEPS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, _HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
)
#: Days and months of a step, in order; years follow.
_CALENDAR_STEPS: Final = ((1, 0), (2, 0), (7, 0), (14, 0), (0, 1), (0, 3), (0, 6), (0, 12), (0, 24), (0, 60), (0, 120))


def moment_text(at: float, zone: tzinfo) -> str:
    """Return a moment as people read it, in a zone.

    Example:
        >>> moment_text(0.25, UTC)
        '1970-01-01 00:00:00.250'
    """
    moment = datetime.fromtimestamp(at, UTC).astimezone(zone)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"


def ticks_of(start: float, end: float, zone: tzinfo, most: int) -> list[Tick]:
    """Return the places of an axis at round times of a zone, `most` at most; a day is one of the calendar, of 23 to 25 hours.

    Args:
        start: epoch seconds.
        end: epoch seconds, later.
        zone: in which times are round.
        most: as many fit beside each other.

    Example:
        >>> [tick.text for tick in ticks_of(0.0, 4 * 3600.0, UTC, 5)]
        ['00:00', '01:00', '02:00', '03:00', '04:00']
        >>> [tick.text for tick in ticks_of(0.0, 100 * 86400.0, UTC, 5)]
        ['Jan 1970', 'Feb 1970', 'Mar 1970', 'Apr 1970']
    """
    span = max(end - start, 1e-3)
    for step in _STEPS:
        if span / step <= most:
            return [Tick(at, _clock_text(at, step, zone)) for at in _clock_places(start, end, step, zone)]
    for days, months in _CALENDAR_STEPS:
        if span / (days * _DAY or months * 30.4 * _DAY) <= most:
            return [
                Tick(m.timestamp(), _date_text(m, months)) for m in _calendar_places(start, end, days, months, zone)
            ]
    months = 12 * int(span / (most * 365.25 * _DAY) + 1)
    return [Tick(m.timestamp(), f"{m:%Y}") for m in _calendar_places(start, end, 0, months, zone)][: most + 1]


def _clock_places(start: float, end: float, step: float, zone: tzinfo) -> Iterator[float]:
    first = datetime.fromtimestamp(start, UTC).astimezone(zone)
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    number = -int(-(start - midnight) // step)
    while (at := midnight + number * step) <= end:
        yield round(at, 3)
        number += 1


def _clock_text(at: float, step: float, zone: tzinfo) -> str:
    moment = datetime.fromtimestamp(round(at, 3), UTC).astimezone(zone)
    if step < 1:
        return f"{moment:%S}.{round(moment.microsecond / 1000):03d}"
    return f"{moment:%H:%M:%S}" if step < 60 else f"{moment:%H:%M}"


def _date_text(moment: datetime, months: int) -> str:
    if months >= 12:
        return f"{moment:%Y}"
    return f"{moment:%b %Y}" if months else f"{moment.day} {moment:%b}"


def _calendar_places(start: float, end: float, days: int, months: int, zone: tzinfo) -> Iterator[datetime]:
    at = datetime.fromtimestamp(start, UTC).astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    later: Callable[[datetime], datetime]
    if months:
        number = at.year * 12 + at.month - 1
        at = _month(at, number - number % months)
        later = lambda moment: _month(moment, moment.year * 12 + moment.month - 1 + months)  # noqa: E731
    else:
        later = lambda moment: _later_days(moment, days)  # noqa: E731
    while at.timestamp() <= end:
        if at.timestamp() >= start:
            yield at
        if at.year >= 9900:
            return
        at = later(at)


def _month(moment: datetime, number: int) -> datetime:
    return moment.replace(year=max(1, number // 12), month=number % 12 + 1, day=1)


def _later_days(moment: datetime, days: int) -> datetime:
    # Arithmetic on the wall clock: the next midnight, however long the day is.
    return moment + timedelta(days=days)


# ------------------------------------------------------------------------------------ costs of commits


_BARS_TOP: Final = 26.0
_BARS_BOTTOM: Final = 22.0
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
    floor, step = height - _BARS_BOTTOM, min(56.0, (width - _LEFT - _RIGHT) / max(len(costs), 1))
    room = floor - _BARS_TOP
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


# ------------------------------------------------------------------------------------- layout of files


#: Tiles of a picture; the smallest ones become one.
_MOST_TILES: Final = 160
_LEAST_SHARE: Final = 1e-9
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
    # By shares of the first one: the square of a much smaller value, or a quotient by it, is no number any more.
    shares = [max(value / values[0], _LEAST_SHARE) for value in values]
    areas = [share * (whole.width * whole.height / sum(shares)) for share in shares]
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


# ------------------------------------------------------------------------------------------- timelines
#
# Where it is known when the work of an instant began, its bar begins there, and a thin line shows how long it was requested before.
#
# Of more instants than fit beside each other counts are drawn, in columns of time: a year of ten thousand commits is one picture.


#: Lanes from top to bottom, with their words.
LANES: Final[dict[str, str]] = {
    "commit": "commits",
    "deltacommit": "deltacommits",
    "replacecommit": "replacecommits",
    "compaction": "compaction",
    "logcompaction": "log compaction",
    "clustering": "clustering",
    "clean": "clean",
    "rollback": "rollback",
    "restore": "restore",
    "savepoint": "savepoint",
    "indexing": "indexing",
    "schemacommit": "schema",
}
_SIGNS: Final = {"requested": "○", "inflight": "◐", "failed": "✗"}
_ROW: Final = 22.0
_GAP: Final = 10.0
_MOST_ROWS: Final = 4
_LEAST_WIDTH: Final = 14.0
#: A shorter wait is not drawn.
_LEAST_WAIT: Final = 2.0
_LANES_TOP: Final = 30.0
_LANES_BOTTOM: Final = 26.0


@dataclass(frozen=True, slots=True)
class Bar:
    """An instant.

    Attributes:
        time: its requested time, which names it.
        lane: its action, one of :data:`LANES`.
        start: epoch seconds of the request.
        end: of the completion; None: it is not completed, or not known.
        operation: of a commit; empty: not known.
        state: requested, inflight, completed or failed.
        words: what it is, to be read aloud.
        href: where it leads; empty: nowhere.
        archived: it is in the archived timeline.
        inflight: epoch seconds when the work began; until then it was requested and waited. None: not known.
    """

    time: str
    lane: str
    start: float
    end: float | None
    operation: str = ""
    state: str = "completed"
    words: str = ""
    href: str = ""
    archived: bool = False
    inflight: float | None = None


@dataclass(frozen=True, slots=True)
class CountColumn:
    """The instants of a lane between two moments, of which only the number is drawn.

    Attributes:
        lane: their action.
        start: epoch seconds.
        end: epoch seconds.
        count: how many.
        failed: how many of them are pending without a writer.
        href: where it leads.
    """

    lane: str
    start: float
    end: float
    count: int
    failed: int = 0
    href: str = ""


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """What part of a timeline is drawn, and how wide.

    Attributes:
        start: epoch seconds.
        end: epoch seconds.
        zone: of the times on the axis.
        zone_name: its words.
        width: in CSS pixels.
        marks: moments that are marked, with their words.
    """

    start: float
    end: float
    zone: tzinfo = UTC
    zone_name: str = "UTC"
    width: int = 960
    marks: tuple[tuple[float, str], ...] = ()

    @property
    def gutter(self) -> float:
        """The room for the names of lanes."""
        return 112.0 if self.width >= 600 else 84.0

    def x(self, at: float) -> float:
        """Return where a moment lies."""
        room = self.width - self.gutter - 12
        return self.gutter + room * (at - self.start) / max(self.end - self.start, 1e-6)


def timeline_picture(bars: Sequence[Bar], columns: Sequence[CountColumn], span: TimelineSpan, title: str) -> Picture:
    """Return the picture of a part of a timeline.

    Args:
        bars: instants, by time.
        columns: where there are too many, their numbers.
        span: what part is drawn.
        title: of the whole, to be read aloud.

    Example:
        >>> bar = Bar("20260101000000000", "commit", 10.0, 12.0, "insert", words="insert of 3 rows")
        >>> picture = timeline_picture([bar], [], TimelineSpan(0.0, 60.0), "a minute")
        >>> picture.markup.count("lf-bar"), "insert of 3 rows" in picture.markup
        (1, True)
    """
    used = {bar.lane for bar in bars} | {column.lane for column in columns}
    lanes = [lane for lane in LANES if lane in used] or ["commit"]
    parts: list[str] = []
    y = _LANES_TOP
    most = max((column.count for column in columns), default=1)
    for number, lane in enumerate(lanes):
        rows = _rows_of([bar for bar in bars if bar.lane == lane], span)
        height = max(1, len(rows)) * _ROW + _GAP
        parts.append(_lane(lane, number, y, height, span))
        counted = [column for column in columns if column.lane == lane]
        parts += [_drawn_column(column, y + _GAP / 2, most, span) for column in counted]
        for row, members in enumerate(rows):
            parts += [_drawn_bar(bar, y + _GAP / 2 + row * _ROW, span) for bar in members]
        y += height
    height = y + _LANES_BOTTOM
    is_linked = any(bar.href for bar in bars) or any(column.href for column in columns)
    head = opening(span.width, height, title, is_linked=is_linked)
    paper = element("rect", class_="lf-paper", width=span.width, height=height)
    return Picture("".join([head, paper, *_axis(span, y), *parts, *_marks(span, y), "</svg>"]), title)


def _rows_of(bars: Sequence[Bar], span: TimelineSpan) -> list[list[Bar]]:
    """Return the bars of a lane in rows in which none covers another, as far as rows go."""
    rows: list[list[Bar]] = []
    ends: list[float] = []
    for bar in bars:
        left, right = _edges(bar, span)
        row = next((number for number, end in enumerate(ends) if end <= left), None)
        if row is None and len(rows) < _MOST_ROWS:
            rows.append([])
            ends.append(0.0)
            row = len(rows) - 1
        elif row is None:
            row = ends.index(min(ends))
        rows[row].append(bar)
        ends[row] = right + 1
    return rows


def _edges(bar: Bar, span: TimelineSpan) -> tuple[float, float]:
    # A bar that begins before the visible span or ends after it is clipped.
    left = max(span.x(bar.start), span.gutter)
    # A savepoint has the time of the commit that it keeps, which may be long before it was made.
    right = span.x(bar.start if bar.end is None or bar.lane == "savepoint" else bar.end)
    return left, min(max(right, left + _LEAST_WIDTH), float(span.width))


def _lane(lane: str, number: int, y: float, height: float, span: TimelineSpan) -> str:
    band = "" if number % 2 else element("rect", class_="lf-band", y=y, width=span.width, height=height)
    return band + element("text", short_text(LANES[lane], 16 if span.width >= 600 else 12), x=8, y=y + _GAP / 2 + 15)


def _drawn_bar(bar: Bar, y: float, span: TimelineSpan) -> str:
    kind = drawn_kind(bar.operation, bar.lane)
    left, right = _edges(bar, span)
    # Data are rectangles, services have round ends, what goes back is cut: shapes, beside the hue.
    is_service = bar.lane in ("compaction", "logcompaction", "clustering", "clean", "indexing")
    radius = 8 if is_service or bar.operation in ("compact", "cluster", "log_compact") else 2
    begin = left if bar.inflight is None else min(max(span.x(bar.inflight), left), right - _LEAST_WIDTH)
    waited = ""
    if begin - left >= _LEAST_WAIT:
        # While it was requested it waited: a thin line before the bar of the work.
        waited = element("rect", class_="lf-wait", x=left + 1, y=y + _ROW / 2 - 2, width=begin - left, height=4)
        left = begin
    shape = element(
        "rect", class_="lf-shape", x=left + 1, y=y + 2, width=max(right - left - 2, 4), height=_ROW - 4, rx=radius
    )
    sign = _SIGNS.get(bar.state, "")
    room = right - left
    letter = kind.letter + (sign if sign and room >= 26 else "")
    letter_element = element(
        "text",
        letter if room >= 26 or not sign else sign,
        class_="lf-on",
        aria_hidden="true",
        x=left + room / 2,
        y=y + 15,
    )
    words = bar.words or f"{kind.title} {bar.time}, {bar.state}"
    classes = f"lf-bar {kind.hue} lf-{bar.state}{' lf-archived' if bar.archived else ''}"
    inner = element("title", short_text(words, 400)) + waited + shape + letter_element
    if not bar.href:
        return element("g", inner, class_=classes, role="img", aria_label=words[:400])
    return element("a", inner, class_=classes, href=bar.href, aria_label=words[:400], data_instant=bar.time)


def _drawn_column(column: CountColumn, y: float, most: int, span: TimelineSpan) -> str:
    left, right = span.x(column.start), span.x(column.end)
    kind = drawn_kind("", column.lane)
    share = (column.count / max(most, 1)) ** 0.5
    height = max(3.0, (_ROW - 2) * share)
    words = (
        f"{column.count:,} {LANES[column.lane]}, {moment_text(column.start, span.zone)[:16]} to "
        f"{moment_text(column.end, span.zone)[:16]} {span.zone_name}"
        + (f", {column.failed:,} without a writer" if column.failed else "")
    )
    shape = element(
        "rect", class_="lf-shape", x=left, y=y + _ROW - height, width=max(right - left - 1.0, 1.0), height=height
    )
    failed = element("text", "✗", x=left, y=y + 10, class_="lf-mark-text") if column.failed else ""
    inner = element("title", short_text(words, 200)) + shape + failed
    if not column.href:
        return element("g", inner, class_=f"lf-bar {kind.hue}", role="img", aria_label=words)
    return element("a", inner, class_=f"lf-bar {kind.hue}", href=column.href, aria_label=words)


def _axis(span: TimelineSpan, bottom: float) -> list[str]:
    parts = []
    most = max(2, int((span.width - span.gutter) / 84))
    for tick in ticks_of(span.start, span.end, span.zone, most):
        x = span.x(tick.at)
        parts.append(element("line", class_="lf-line", x1=x, x2=x, y1=_LANES_TOP - 4, y2=bottom))
        if x < span.width - 28:
            parts.append(element("text", tick.text, class_="lf-soft lf-middle", x=max(x, span.gutter), y=bottom + 16))
    dates = f"{moment_text(span.start, span.zone)[:19]} – {moment_text(span.end, span.zone)[:19]} {span.zone_name}"
    parts.append(element("text", short_text(dates, 64), class_="lf-soft lf-end", x=span.width - 8, y=16))
    return parts


def _marks(span: TimelineSpan, bottom: float) -> list[str]:
    parts = []
    for at, words in span.marks:
        if span.start <= at <= span.end:
            x = span.x(at)
            parts.append(element("line", class_="lf-mark", x1=x, x2=x, y1=_LANES_TOP - 8, y2=bottom))
            parts.append(element("text", short_text(words, 20), class_="lf-mark-text", x=x + 3, y=_LANES_TOP - 10))
    return parts


def legend_of(operations: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return letter, hue and words of operations and actions, each once.

    Example:
        >>> legend_of(["upsert", "compact", "compaction", "?"])
        [('U', 'lf-teal', 'upsert'), ('M', 'lf-green', 'compaction')]
    """
    kinds = dict.fromkeys(KINDS[each] for each in operations if each in KINDS)
    return [(kind.letter, kind.hue, kind.title) for kind in kinds]
