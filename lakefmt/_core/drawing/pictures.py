"""A picture as a value, and what all pictures share: texts, kinds of operations with their letters, axes of time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from html import escape
from pathlib import Path
from typing import Final

from lakefmt._core.data_classes import dataclass
from lakefmt._core.values import printable

__all__ = [
    "KINDS",
    "STYLE",
    "DrawnKind",
    "Picture",
    "Tick",
    "drawn_kind",
    "element",
    "moment_text",
    "opening",
    "short_text",
    "ticks_of",
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
    """How an operation or action is drawn: never by its hue alone.

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
        """The picture as a document of its own: no script, no request, colours for light and dark."""
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
