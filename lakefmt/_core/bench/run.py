"""Runs cells one after the other, each in a process of its own, keeps their results, turns these into costs, and shows them.

A run ends after a number of minutes. Results are one JSON object per line of a file; a cell whose result is there is not run
again. Costs are fitted by least squares without negative ones, or are the shipped ones with the factors of this machine. Results are
shown as tables in the terminal and as one HTML page that needs no network.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from html import escape
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from lakefmt._core.advice.advise import Amounts, CostCurves, predict_amounts
from lakefmt._core.bench.cells import BenchCell
from lakefmt._core.bench.measure import seconds_per_commit
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import CorruptFile, InvalidInputError

if TYPE_CHECKING:
    from rich.table import Table as DrawnTable

__all__ = [
    "BenchReport",
    "CellRecord",
    "ChartPoint",
    "append_record",
    "bar_chart",
    "columns_of",
    "draw_table",
    "fit_curves",
    "load_records",
    "machine_factors",
    "machine_text",
    "measured_seconds",
    "nonnegative_fit",
    "page_of",
    "pareto_front",
    "rows_by_workload",
    "run_cells",
    "scatter_chart",
]

_MOST_RESULTS_BYTES: Final = 256 << 20
#: Measures one cell within a number of seconds: returns its figures, or the reason why there are none.
Measure = Callable[[BenchCell, float], dict[str, Any] | str]
_OUT_OF_TIME = "out of time"
#: Another machine is at most this much slower or quicker than the one whose costs are shipped.
_MOST_FACTOR: Final = 50.0
_LEAST_CELLS: Final = 4
#: Rounds of weighing, and the relative error below which all errors count alike.
_FIT_ROUNDS: Final = 10
_SMALL_FIT_ERROR: Final = 0.05


@dataclass(frozen=True)
class CellRecord:
    """A cell with its figures, or with the reason why it has none.

    Attributes:
        cell: what was measured.
        figures: numbers by name; empty where it failed.
        error: why it failed; empty where it did not.
        machine: which machine measured.
    """

    cell: BenchCell
    figures: dict[str, Any]
    error: str = ""
    machine: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the record as JSON holds it."""
        return {
            "id": self.cell.id,
            "cell": self.cell.as_json(),
            "figures": self.figures,
            "error": self.error,
            "machine": self.machine,
        }


@dataclass(frozen=True)
class BenchReport:
    """What a run of the suite found.

    Attributes:
        records: those of the asked cells, in the order of the cells.
        left: cells that were not measured because the minutes were over.
        resumed: the number of cells that were measured by an earlier run.
    """

    records: tuple[CellRecord, ...]
    left: tuple[BenchCell, ...] = ()
    resumed: int = 0
    seconds: float = 0.0
    files: list[str] = field(default_factory=list)


def run_cells(
    cells: Sequence[BenchCell],
    results_file: Path | None,
    *,
    minutes: float,
    resume: bool = True,
    report: Callable[[BenchCell, int], None] | None = None,
    measure: Measure | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> BenchReport:
    """Measure cells until all are done or the minutes are over.

    Args:
        cells: what to measure.
        results_file: the file of results; None: they are not kept.
        minutes: a cell that is not done by then is stopped and left.
        resume: whether results of earlier runs count; False: all cells are measured.
        report: called before each cell with its number, from 0.
        measure: measures one cell; default: in a process of its own.
        clock: seconds that rise.

    Returns:
        The records and what is left.
    """
    measure, begin = measure or measure_apart, clock()
    record_by_cell = (
        {record.cell.id: record for record in load_records(results_file)} if results_file is not None and resume else {}
    )
    record_by_cell = {name: record for name, record in record_by_cell.items() if not record.error}
    resumed = sum(cell.id in record_by_cell for cell in cells)
    unmeasured: list[BenchCell] = []
    for number, cell in enumerate(cells):
        if cell.id in record_by_cell:
            continue
        remaining = minutes * 60 - (clock() - begin)
        if remaining <= 0:
            unmeasured.append(cell)
            continue
        if report is not None:
            report(cell, number)
        figures = measure(cell, remaining)
        if figures == _OUT_OF_TIME:
            unmeasured.append(cell)
            continue
        failed = isinstance(figures, str)
        record = CellRecord(
            cell,
            {} if isinstance(figures, str) else figures,
            figures if isinstance(figures, str) else "",
            machine_text(),
        )
        record_by_cell[cell.id] = record
        if results_file is not None and not failed:
            append_record(results_file, record)
    records = tuple(record_by_cell[cell.id] for cell in cells if cell.id in record_by_cell)
    return BenchReport(records, tuple(unmeasured), resumed, clock() - begin)


def measure_apart(cell: BenchCell, seconds: float) -> dict[str, object] | str:
    """Measure a cell in a process of its own, so that memory and imports of one do not show in another."""
    with tempfile.TemporaryDirectory(prefix="lakefmt-bench-") as folder:
        command = [sys.executable, "-m", "lakefmt._core.bench.measure", str(Path(folder) / "tables")]
        try:
            process = subprocess.run(
                command, input=json.dumps(cell.as_json()), capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return _OUT_OF_TIME
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"ended with status {process.returncode}"]
        return lines[-1][:500]
    figures = json.loads(process.stdout)
    return figures if isinstance(figures, dict) else "the process answered with something else than figures"


# -------------------------------------------------------------------------------------------------------------- results


def append_record(path: Path, record: CellRecord) -> None:
    """Append a record as one line; a line that a process could not finish is closed first, and ignored by readers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(record.as_json(), sort_keys=True)
    with path.open("ab+") as file:
        size = file.seek(0, 2)
        torn = False
        if size:
            file.seek(size - 1)
            torn = file.read(1) != b"\n"
        file.write((b"\n" if torn else b"") + line.encode() + b"\n")


def load_records(path: Path) -> list[CellRecord]:
    """Return the records of a file, the newest of each cell; none if there is no file. Torn lines are ignored.

    Raises:
        CorruptFile: the file is larger than any that the suite writes, or has a line that is no record.
    """
    if not path.exists():
        return []
    if path.stat().st_size > _MOST_RESULTS_BYTES:
        raise CorruptFile(f"{path.name} is larger than {_MOST_RESULTS_BYTES:,} bytes: not a file of results")
    newest: dict[str, CellRecord] = {}
    for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1):
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the process ended while it wrote this line
        record = _parsed_record(document, f"{path.name}, line {number}")
        newest[record.cell.id] = record
    return list(newest.values())


def _parsed_record(document: object, location: str) -> CellRecord:
    if not isinstance(document, dict) or not isinstance(document.get("figures"), dict):
        raise CorruptFile(f"{location} is not a result of the suite")
    try:
        cell = BenchCell.from_json(document.get("cell"))
    except (InvalidInputError, TypeError) as error:
        raise CorruptFile(f"{location} is not a result of the suite: {error}") from None
    return CellRecord(cell, document["figures"], str(document.get("error", "")), str(document.get("machine", "")))


def machine_text() -> str:
    """Return which machine measures: figures without it say nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    model_name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    processor = model_name or platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


# ---------------------------------------------------------------------------------------------------------------- costs


def measured_seconds(record: CellRecord, clock: str = "clock") -> dict[str, float]:
    """Return the measured seconds of a record by operation, per commit or read."""
    figures, column = record.figures, 0 if clock == "clock" else 1
    writes = [each[column] for each in figures.get("write_seconds", [])]
    if not writes:
        return {}
    reads = [each[column] for each in figures["read_seconds"]]
    services = [each[column] for each in figures["service_seconds"]]
    seconds = {"write": median(writes), "read": sum(reads) / len(reads), "load": figures["load_seconds"][column]}
    if services:
        seconds["service"] = sum(services) / len(writes)
    return seconds


def fit_curves(records: Iterable[CellRecord], machine: str, clock: str = "clock") -> CostCurves:
    """Return the costs that explain the measured seconds best, each cell counting by its relative error.

    Args:
        records: measured cells of many profiles and choices.
        machine: which machine measured.
        clock: ``"clock"`` or ``"processor"``.
    """
    samples = _samples_by_operation(records, clock)
    seconds: dict[str, dict[str, float]] = {}
    for operation, rows in samples.items():
        names = sorted({name for amounts, _ in rows for name in amounts})
        matrix = np.array([[amounts.get(name, 0.0) for name in names] for amounts, _ in rows])
        target = np.array([value for _, value in rows])
        fitted = _robust_fit(matrix, target)
        seconds[operation] = {
            name: float(f"{value:.6g}") for name, value in zip(names, fitted, strict=True) if value > 0
        }
    return CostCurves(seconds, machine, {}, clock)


def _robust_fit(matrix: npt.NDArray[np.float64], target: npt.NDArray[np.float64]) -> Sequence[float]:
    """Fit relative errors, large ones by their size instead of its square: a cell that was disturbed counts for less."""
    base = 1.0 / np.maximum(target, 1e-6)
    weights = base
    fitted: Sequence[float] = []
    for _ in range(_FIT_ROUNDS):
        fitted = nonnegative_fit(matrix * weights[:, None], target * weights)
        errors = np.abs(matrix @ np.asarray(fitted) - target) * base
        weights = base / np.sqrt(np.maximum(errors, _SMALL_FIT_ERROR))
    return fitted


def machine_factors(records: Iterable[CellRecord], shipped: CostCurves, machine: str) -> CostCurves | None:
    """Return the shipped costs with factors for the machine that measured `records`; None with too few of them."""
    samples = _samples_by_operation(records, shipped.clock)
    factors: dict[str, float] = {}
    for operation, rows in samples.items():
        ratios = [
            value / expected_seconds
            for amounts, value in rows
            if (expected_seconds := shipped.of(operation, amounts)) > 0
        ]
        if len(ratios) >= _LEAST_CELLS:
            factors[operation] = float(f"{min(max(median(ratios), 1 / _MOST_FACTOR), _MOST_FACTOR):.4g}")
    return CostCurves(shipped.seconds, machine, factors, shipped.clock) if {"write", "read"} <= set(factors) else None


def _samples_by_operation(records: Iterable[CellRecord], clock: str) -> dict[str, list[tuple[Amounts, float]]]:
    """Return pairs of predicted amounts and measured seconds by operation."""
    samples: dict[str, list[tuple[Amounts, float]]] = {}
    for record in records:
        cell = record.cell
        if cell.kind != "choice" or record.error or cell.options or cell.fold_after:
            continue
        amounts = predict_amounts(cell.profile, cell.choice)
        for operation, value in measured_seconds(record, clock).items():
            samples.setdefault(operation, []).append((amounts[operation], value))
    return samples


def nonnegative_fit(
    matrix: npt.NDArray[np.float64], target: npt.NDArray[np.float64], steps: int = 500
) -> Sequence[float]:
    """Return the numbers of at least 0 whose sums of columns are nearest to the target (Lawson and Hanson's active set).

    Example:
        >>> import numpy as np
        >>> columns = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
        >>> [round(float(value), 6) for value in nonnegative_fit(columns, np.array([1.0, 3.0, 5.0]))]
        [1.0, 2.0]
    """
    scale = np.maximum(np.sqrt((matrix**2).sum(axis=0)), 1e-12)
    scaled = matrix / scale
    count = matrix.shape[1]
    free = np.zeros(count, bool)
    values = np.zeros(count)
    for _ in range(steps):
        gradient = scaled.T @ (target - scaled @ values)
        gradient[free] = -np.inf
        if not (~free).any() or gradient.max() <= 1e-9:
            break
        free[int(gradient.argmax())] = True
        while True:
            trial = np.zeros(count)
            trial[free] = np.linalg.lstsq(scaled[:, free], target, rcond=None)[0]
            if (trial[free] > 0).all():
                values = trial
                break
            negative = free & (trial <= 0)
            shares = values[negative] / np.maximum(values[negative] - trial[negative], 1e-300)
            values = values + float(shares.min()) * (trial - values)
            free &= values > 1e-12
            if not free.any():
                return list(np.zeros(count))
    return list(values / scale)


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
