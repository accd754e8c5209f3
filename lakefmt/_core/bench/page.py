"""Shows the results of a run: as one HTML page with charts, and as tables for the terminal, one per workload. Pure.

The page holds everything itself and opens without a network; its charts are SVG text: points with a front, and bars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Any

from lakefmt._core.bench.measure import seconds_per_commit
from lakefmt._core.bench.run import BenchReport, CellRecord
from lakefmt._core.data_classes import dataclass

if TYPE_CHECKING:
    from rich.table import Table as DrawnTable

__all__ = [
    "ChartPoint",
    "bar_chart",
    "columns_of",
    "draw_table",
    "page_of",
    "pareto_front",
    "rows_by_workload",
    "scatter_chart",
]

_CHART_WIDTH, _CHART_HEIGHT = 860, 420
_MARGIN_LEFT, _MARGIN_RIGHT, _MARGIN_TOP, _MARGIN_BOTTOM = 70, 20, 15, 50
_BAR_HEIGHT = 22
Figures = Mapping[str, Any]
Column = tuple[str, Callable[[Figures, CellRecord], str]]
_PAGE_STYLE = """
:root { --ink: #1d2733; --quiet: #5c6b7a; --line: #d8dee5; --paper: #ffffff; --mark: #1769aa; --other: #b4530a; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6ebf0; --quiet: #9fb0c0; --line: #35414d; --paper: #12181e; --mark: #62b0ec; --other: #f0a35e; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 70rem;
  margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; } p.about { color: var(--quiet); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } svg { max-width: 100%; height: auto; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg .quiet { fill: var(--quiet); }
svg .axis { stroke: var(--line); } svg .front { stroke: var(--mark); fill: none; stroke-width: 1.5; }
svg .mark { fill: var(--mark); } svg .other { fill: var(--other); }
"""


def page_of(suite: str, report: BenchReport) -> str:
    """Return the page.

    Args:
        suite: ``"index"``, ``"compaction"`` or ``"clustering"``.
        report: of :func:`lakefmt._core.bench.run.run_cells`.
    """
    machines = sorted({record.machine for record in report.records if record.machine})
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>lakefmt bench {escape(suite)}</title><style>{_PAGE_STYLE}</style></head><body>",
        f"<h1>lakefmt bench {escape(suite)}</h1>",
        f'<p class="about">{escape("; ".join(machines))}. {len(report.records)} measured, {len(report.left)} left. '
        "Seconds are per commit; costs of reads are those of the profile's reads per commit.</p>",
    ]
    tables = rows_by_workload(suite, report)
    for workload, records in groupby(report.records, key=lambda record: record.cell.workload):
        cell_records = list(records)
        parts.append(f"<h2>{escape(workload)}</h2>")
        parts.append(f'<p class="about">{escape(_profile_text(cell_records[0]))}</p>')
        parts += _html_charts(cell_records)
        for (name, kind), rows in tables.items():
            if name == workload:
                parts.append(_html_table([title for title, _ in columns_of(suite, kind)], rows))
    parts.append("</body></html>")
    return "\n".join(parts) + "\n"


def _profile_text(record: CellRecord) -> str:
    profile = record.cell.profile
    return (
        f"{profile.rows:,} rows of {profile.row_bytes:.0f} bytes in {profile.partitions:,} partitions; "
        f"{record.cell.commits} commits of {profile.batch_rows:,} rows, {profile.update_share:.0%} updates, "
        f"in {profile.batch_partitions:.3g} partitions; {profile.reads_per_commit:.3g} reads per commit"
    )


def _html_charts(records: Sequence[CellRecord]) -> Iterable[str]:
    complete_records = [
        record for record in records if record.cell.kind == "choice" and record.figures.get("write_seconds")
    ]
    costs = [_cost_of(record) for record in complete_records]
    if costs:
        front = pareto_front([(cost.write, cost.read) for cost in costs])
        points = [
            ChartPoint(cost.record.cell.name, 1e3 * cost.write, 1e3 * cost.read, number in front)
            for number, cost in enumerate(costs)
        ]
        yield "<h3>Cost of writing against cost of reading</h3>"
        yield scatter_chart(points, "write and services, ms per commit", "reads, ms per commit")
        amplified = [
            (r.cell.name, float(r.figures["write_amplification"]))
            for r in complete_records
            if "write_amplification" in r.figures
        ]
        if amplified:
            yield "<h3>Bytes written per byte of input</h3>"
            yield bar_chart(amplified, "")
    clustered = [record for record in records if record.cell.kind == "clustering" and record.figures]
    if clustered:
        bars = [("before", clustered[0].figures["read_before"]["bytes"] / 1e6)]
        bars += [(record.cell.name, record.figures["read_after"]["bytes"] / 1e6) for record in clustered]
        yield "<h3>Read by a filter, MB</h3>"
        yield bar_chart(bars, " MB")


@dataclass(frozen=True)
class _RecordCost:
    record: CellRecord
    write: float
    read: float


def _cost_of(record: CellRecord) -> _RecordCost:
    seconds = seconds_per_commit(record.figures, record.cell.profile.reads_per_commit)
    return _RecordCost(record, seconds["write"] + seconds["service"], seconds["read"])


def pareto_front(costs: Sequence[tuple[float, float]]) -> list[int]:
    """Return the numbers of the pairs that no other pair beats in both values, by rising first value.

    Example:
        >>> pareto_front([(1.0, 5.0), (2.0, 2.0), (3.0, 3.0), (4.0, 1.0)])
        [0, 1, 3]
    """
    front: list[int] = []
    best = float("inf")
    for number in sorted(range(len(costs)), key=lambda each: costs[each]):
        if costs[number][1] < best:
            best = costs[number][1]
            front.append(number)
    return front


def _html_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in ("", *titles))
    body = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in texts) + "</tr>" for texts in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


# --------------------------------------------------------------------------------------------------------------- tables


def _milliseconds_text(value: float | None) -> str:
    return "–" if value is None else f"{1e3 * value:,.1f}"


def _size_text(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1e6:,.2f} MB" if value >= 1e5 else f"{value / 1e3:,.1f} kB"


def _cost_per_commit(figures: Figures, name: str, record: CellRecord) -> str:
    return _milliseconds_text(seconds_per_commit(figures, record.cell.profile.reads_per_commit)[name])


def _moved_per_commit(figures: Figures, figure: str, phase: str) -> float | None:
    return figures[figure].get(phase, 0) / len(figures["write_seconds"]) if figure in figures else None


_COST_COLUMNS: tuple[Column, ...] = (
    ("write ms", lambda f, r: _cost_per_commit(f, "write", r)),
    ("services ms", lambda f, r: _cost_per_commit(f, "service", r)),
    ("read ms", lambda f, r: _cost_per_commit(f, "read", r)),
)
_INDEX_COLUMNS: tuple[Column, ...] = (
    (
        "look-up ms",
        lambda f, r: _milliseconds_text(
            median(each[0] for each in f["look_up_seconds"]) if f["look_up_seconds"] else None
        ),
    ),
    *_COST_COLUMNS,
    ("files touched", lambda f, r: f"{f['files_touched']:,.1f}"),
    ("read by a commit", lambda f, r: _size_text(_moved_per_commit(f, "bytes_read", "write"))),
    ("written by a commit", lambda f, r: _size_text(_moved_per_commit(f, "bytes_written", "write"))),
    (
        "of it metadata",
        lambda f, r: _size_text(f["metadata_bytes"] / len(f["write_seconds"]) if "metadata_bytes" in f else None),
    ),
    ("memory", lambda f, r: _size_text(f["memory_bytes"])),
)
_COMPACTION_COLUMNS: tuple[Column, ...] = (
    ("until visible ms", lambda f, r: _cost_per_commit(f, "write", r)),
    ("services ms", lambda f, r: _cost_per_commit(f, "service", r)),
    ("read ms", lambda f, r: _cost_per_commit(f, "read", r)),
    ("write ampl.", lambda f, r: f"{f.get('write_amplification', 0):,.1f}"),
    ("read ampl.", lambda f, r: f"{f.get('read_amplification', 0):,.2f}"),
    ("commits behind", lambda f, r: f"{f['commits_behind']:,.1f}"),
    ("space", lambda f, r: _size_text(f.get("space_bytes"))),
)
_CLUSTERING_COLUMNS: tuple[Column, ...] = (
    ("bytes before", lambda f, r: _size_text(f["read_before"]["bytes"])),
    ("after", lambda f, r: _size_text(f["read_after"]["bytes"])),
    ("files before", lambda f, r: f"{f['read_before']['files']:,.1f}"),
    ("files after", lambda f, r: f"{f['read_after']['files']:,.1f}"),
    ("read ms before", lambda f, r: _milliseconds_text(f["read_before"]["seconds"][0])),
    ("read ms after", lambda f, r: _milliseconds_text(f["read_after"]["seconds"][0])),
    ("clustering ms", lambda f, r: _milliseconds_text(f["service_seconds"][0][0])),
    ("written", lambda f, r: _size_text(f["bytes_written"]["service"])),
)
_FILTER_COLUMNS: tuple[Column, ...] = (
    ("keys", lambda f, r: f"{f['keys']:,}"),
    ("build ms", lambda f, r: _milliseconds_text(f["build_seconds"][0])),
    ("ask ms", lambda f, r: _milliseconds_text(None if f["ask_seconds"] is None else f["ask_seconds"][0])),
    ("false positives", lambda f, r: "–" if f["false_rate"] is None else f"{f['false_rate']:.2g}"),
    ("size", lambda f, r: _size_text(f["filter_bytes"])),
)


def columns_of(suite: str, kind: str) -> tuple[Column, ...]:
    """Return the columns of a table: title, and the text of a record's figures."""
    if kind == "filter":
        return _FILTER_COLUMNS
    if kind == "clustering":
        return _CLUSTERING_COLUMNS
    return _COMPACTION_COLUMNS if suite == "compaction" else _INDEX_COLUMNS


def rows_by_workload(suite: str, report: BenchReport) -> dict[tuple[str, str], list[list[str]]]:
    """Return the texts of each table by workload and kind of cell; failed cells say so."""
    tables: dict[tuple[str, str], list[list[str]]] = {}
    for record in report.records:
        columns = columns_of(suite, record.cell.kind)
        if record.error or "missing" in record.figures:
            texts = [str(record.figures.get("missing") or "failed"), *[""] * (len(columns) - 1)]
        else:
            texts = [text(record.figures, record) for _, text in columns]
        tables.setdefault((record.cell.workload, record.cell.kind), []).append([record.cell.name, *texts])
    return tables


def draw_table(suite: str, report: BenchReport) -> Iterator[DrawnTable]:
    """Yield one table per workload and kind of cell."""
    from rich.table import Table as DrawnTable

    for (workload, kind), rows in rows_by_workload(suite, report).items():
        title = f"{workload}: bloom filters on their own" if kind == "filter" else workload
        drawn = DrawnTable(title=title, title_justify="left")
        drawn.add_column("")
        for name, _ in columns_of(suite, kind):
            drawn.add_column(name, justify="right")
        for texts in rows:
            drawn.add_row(*texts)
        yield drawn


# --------------------------------------------------------------------------------------------------------------- charts


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
    visible = [point for point in points if point.x > 0 and point.y > 0]
    if not visible:
        return "<p>No point to show.</p>"
    xs, ys = _LogAxis([point.x for point in visible]), _LogAxis([point.y for point in visible])

    def place(point: ChartPoint) -> tuple[float, float]:
        x = _MARGIN_LEFT + xs.share(point.x) * (_CHART_WIDTH - _MARGIN_LEFT - _MARGIN_RIGHT)
        return x, _CHART_HEIGHT - _MARGIN_BOTTOM - ys.share(point.y) * (_CHART_HEIGHT - _MARGIN_TOP - _MARGIN_BOTTOM)

    parts = [_open_svg(_CHART_HEIGHT, f"{y_title} against {x_title}")]
    floor, right = _CHART_HEIGHT - _MARGIN_BOTTOM, _CHART_WIDTH - _MARGIN_RIGHT
    for value in xs.ticks:
        x = _MARGIN_LEFT + xs.share(value) * (right - _MARGIN_LEFT)
        parts.append(f'<line class="axis" x1="{x:.1f}" y1="{_MARGIN_TOP}" x2="{x:.1f}" y2="{floor}"/>')
        parts.append(f'<text class="quiet" x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{value:g}</text>')
    for value in ys.ticks:
        y = floor - ys.share(value) * (floor - _MARGIN_TOP)
        parts.append(f'<line class="axis" x1="{_MARGIN_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(f'<text class="quiet" x="{_MARGIN_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    parts.append(f'<text x="{right}" y="{_CHART_HEIGHT - 8}" text-anchor="end">{escape(x_title)}</text>')
    parts.append(f'<text x="{_MARGIN_LEFT + 6}" y="{_MARGIN_TOP + 12}">{escape(y_title)}</text>')
    front = sorted((place(point) for point in visible if point.marked), key=lambda pair: pair[0])
    if len(front) > 1:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in front)
        parts.append(f'<polyline class="front" points="{line}"/>')
    for point in visible:
        x, y = place(point)
        title = f"{point.name}: {point.x:.4g}, {point.y:.4g}"
        css_class = "mark" if point.marked else "other"
        parts.append(
            f'<circle class="{css_class}" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{escape(title)}</title></circle>'
        )
        if point.marked:
            anchor, shift = ("end", -8) if x > _CHART_WIDTH / 2 else ("start", 8)
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
    height = _BAR_HEIGHT * len(bars) + 10
    parts = [_open_svg(height, "bars")]
    for number, (name, value) in enumerate(bars):
        y, length = 5 + number * _BAR_HEIGHT, max(1.0, value / most * (_CHART_WIDTH - 420))
        parts.append(f'<text x="320" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="mark" x="330" y="{y + 3}" width="{length:.1f}" height="{_BAR_HEIGHT - 7}"/>')
        parts.append(f'<text x="{336 + length:.1f}" y="{y + 15}">{value:,.3g}{escape(unit)}</text>')
    return "\n".join([*parts, "</svg>"])


def _open_svg(height: int, label: str) -> str:
    return f'<svg viewBox="0 0 {_CHART_WIDTH} {height}" width="{_CHART_WIDTH}" role="img" aria-label="{escape(label)}">'


class _LogAxis:
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
