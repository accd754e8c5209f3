"""The results of a run as tables for the terminal, one per workload."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

from lakefmt.bench.measure import seconds_per_commit
from lakefmt.bench.records import CellRecord
from lakefmt.bench.run import BenchReport

if TYPE_CHECKING:
    from rich.table import Table as DrawnTable

__all__ = ["columns_of", "draw_table", "rows_by_workload"]

Figures = Mapping[str, Any]
Column = tuple[str, Callable[[Figures, CellRecord], str]]


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{1e3 * value:,.1f}"


def _bytes(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1e6:,.2f} MB" if value >= 1e5 else f"{value / 1e3:,.1f} kB"


def _per_commit(figures: Figures, name: str, record: CellRecord) -> str:
    return _milliseconds(seconds_per_commit(figures, record.cell.profile.reads_per_commit)[name])


def _moved(figures: Figures, kind: str, phase: str) -> float | None:
    return figures[kind].get(phase, 0) / len(figures["write_seconds"]) if kind in figures else None


_COMMON: tuple[Column, ...] = (
    ("write ms", lambda f, r: _per_commit(f, "write", r)),
    ("services ms", lambda f, r: _per_commit(f, "service", r)),
    ("read ms", lambda f, r: _per_commit(f, "read", r)),
)
_INDEX: tuple[Column, ...] = (
    (
        "look-up ms",
        lambda f, r: _milliseconds(median(each[0] for each in f["look_up_seconds"]) if f["look_up_seconds"] else None),
    ),
    *_COMMON,
    ("files touched", lambda f, r: f"{f['files_touched']:,.1f}"),
    ("read by a commit", lambda f, r: _bytes(_moved(f, "bytes_read", "write"))),
    ("written by a commit", lambda f, r: _bytes(_moved(f, "bytes_written", "write"))),
    (
        "of it metadata",
        lambda f, r: _bytes(f["metadata_bytes"] / len(f["write_seconds"]) if "metadata_bytes" in f else None),
    ),
    ("memory", lambda f, r: _bytes(f["memory_bytes"])),
)
_COMPACTION: tuple[Column, ...] = (
    ("until visible ms", lambda f, r: _per_commit(f, "write", r)),
    ("services ms", lambda f, r: _per_commit(f, "service", r)),
    ("read ms", lambda f, r: _per_commit(f, "read", r)),
    ("write ampl.", lambda f, r: f"{f.get('write_amplification', 0):,.1f}"),
    ("read ampl.", lambda f, r: f"{f.get('read_amplification', 0):,.2f}"),
    ("commits behind", lambda f, r: f"{f['commits_behind']:,.1f}"),
    ("space", lambda f, r: _bytes(f.get("space_bytes"))),
)
_CLUSTERING: tuple[Column, ...] = (
    ("bytes before", lambda f, r: _bytes(f["read_before"]["bytes"])),
    ("after", lambda f, r: _bytes(f["read_after"]["bytes"])),
    ("files before", lambda f, r: f"{f['read_before']['files']:,.1f}"),
    ("files after", lambda f, r: f"{f['read_after']['files']:,.1f}"),
    ("read ms before", lambda f, r: _milliseconds(f["read_before"]["seconds"][0])),
    ("read ms after", lambda f, r: _milliseconds(f["read_after"]["seconds"][0])),
    ("clustering ms", lambda f, r: _milliseconds(f["service_seconds"][0][0])),
    ("written", lambda f, r: _bytes(f["bytes_written"]["service"])),
)
_FILTER: tuple[Column, ...] = (
    ("keys", lambda f, r: f"{f['keys']:,}"),
    ("build ms", lambda f, r: _milliseconds(f["build_seconds"][0])),
    ("ask ms", lambda f, r: _milliseconds(None if f["ask_seconds"] is None else f["ask_seconds"][0])),
    ("false positives", lambda f, r: "–" if f["false_rate"] is None else f"{f['false_rate']:.2g}"),
    ("size", lambda f, r: _bytes(f["filter_bytes"])),
)


def columns_of(suite: str, kind: str) -> tuple[Column, ...]:
    """Return the columns of a table: title, and the text of a record's figures."""
    if kind == "filter":
        return _FILTER
    if kind == "clustering":
        return _CLUSTERING
    return _COMPACTION if suite == "compaction" else _INDEX


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
