"""The results of a run as one HTML page with charts; it holds everything itself and opens without a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from lakefmt.bench.measure import seconds_per_commit
from lakefmt.bench.records import CellRecord
from lakefmt.bench.run import BenchReport
from lakefmt.bench.svg import ChartPoint, bar_chart, scatter_chart
from lakefmt.bench.table_text import columns_of, rows_by_workload
from lakefmt.data_classes import dataclass

__all__ = ["page_of", "pareto_front"]

_STYLE = """
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


@dataclass(frozen=True)
class _Cost:
    record: CellRecord
    write: float
    read: float


def page_of(suite: str, report: BenchReport) -> str:
    """Return the page.

    Args:
        suite: ``"index"``, ``"compaction"`` or ``"clustering"``.
        report: of :func:`lakefmt.bench.run.run_cells`.
    """
    machines = sorted({record.machine for record in report.records if record.machine})
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>lakefmt bench {escape(suite)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>lakefmt bench {escape(suite)}</h1>",
        f'<p class="about">{escape("; ".join(machines))}. {len(report.records)} measured, {len(report.left)} left. '
        "Seconds are per commit; costs of reads are those of the profile's reads per commit.</p>",
    ]
    tables = rows_by_workload(suite, report)
    for workload, records in groupby(report.records, key=lambda record: record.cell.workload):
        chosen = list(records)
        parts.append(f"<h2>{escape(workload)}</h2>")
        parts.append(f'<p class="about">{escape(_profile_text(chosen[0]))}</p>')
        parts += _charts(chosen)
        for (name, kind), rows in tables.items():
            if name == workload:
                parts.append(_table([title for title, _ in columns_of(suite, kind)], rows))
    parts.append("</body></html>")
    return "\n".join(parts) + "\n"


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


def _profile_text(record: CellRecord) -> str:
    profile = record.cell.profile
    return (
        f"{profile.rows:,} rows of {profile.row_bytes:.0f} bytes in {profile.partitions:,} partitions; "
        f"{record.cell.commits} commits of {profile.batch_rows:,} rows, {profile.update_share:.0%} updates, "
        f"in {profile.batch_partitions:.3g} partitions; {profile.reads_per_commit:.3g} reads per commit"
    )


def _charts(records: Sequence[CellRecord]) -> Iterable[str]:
    whole = [record for record in records if record.cell.kind == "choice" and record.figures.get("write_seconds")]
    costs = [_cost(record) for record in whole]
    if costs:
        front = pareto_front([(cost.write, cost.read) for cost in costs])
        points = [
            ChartPoint(cost.record.cell.name, 1e3 * cost.write, 1e3 * cost.read, number in front)
            for number, cost in enumerate(costs)
        ]
        yield "<h3>Cost of writing against cost of reading</h3>"
        yield scatter_chart(points, "write and services, ms per commit", "reads, ms per commit")
        amplified = [
            (r.cell.name, float(r.figures["write_amplification"])) for r in whole if "write_amplification" in r.figures
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


def _cost(record: CellRecord) -> _Cost:
    seconds = seconds_per_commit(record.figures, record.cell.profile.reads_per_commit)
    return _Cost(record, seconds["write"] + seconds["service"], seconds["read"])


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in ("", *titles))
    body = "\n".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in texts) + "</tr>" for texts in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'
