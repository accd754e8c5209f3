"""A timeline as a picture: one lane per action, a bar from request to completion, a letter and a hue for the operation. Pure.

Where it is known when the work of an instant began, its bar begins there, and a thin line shows how long it was requested before.

Of more instants than fit beside each other counts are drawn, in columns of time: a year of ten thousand commits is one picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, tzinfo
from typing import Final

from lakefmt._core.data_classes import dataclass
from lakefmt._core.drawing.pictures import (
    KINDS,
    Picture,
    drawn_kind,
    element,
    moment_text,
    opening,
    short_text,
    ticks_of,
)

__all__ = ["LANES", "Bar", "CountColumn", "TimelineSpan", "legend_of", "timeline_picture"]

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
_TOP: Final = 30.0
_BOTTOM: Final = 26.0


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
    y = _TOP
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
    height = y + _BOTTOM
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
    text = element(
        "text",
        letter if room >= 26 or not sign else sign,
        class_="lf-on",
        aria_hidden="true",
        x=left + room / 2,
        y=y + 15,
    )
    words = bar.words or f"{kind.title} {bar.time}, {bar.state}"
    classes = f"lf-bar {kind.hue} lf-{bar.state}{' lf-archived' if bar.archived else ''}"
    inner = element("title", short_text(words, 400)) + waited + shape + text
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
        parts.append(element("line", class_="lf-line", x1=x, x2=x, y1=_TOP - 4, y2=bottom))
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
            parts.append(element("line", class_="lf-mark", x1=x, x2=x, y1=_TOP - 8, y2=bottom))
            parts.append(element("text", short_text(words, 20), class_="lf-mark-text", x=x + 3, y=_TOP - 10))
    return parts


def legend_of(operations: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return letter, hue and words of operations and actions, each once.

    Example:
        >>> legend_of(["upsert", "compact", "compaction", "?"])
        [('U', 'lf-teal', 'upsert'), ('M', 'lf-green', 'compaction')]
    """
    kinds = dict.fromkeys(KINDS[each] for each in operations if each in KINDS)
    return [(kind.letter, kind.hue, kind.title) for kind in kinds]
