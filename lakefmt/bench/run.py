"""Runs cells one after the other, each in a process of its own, within a number of minutes; finished cells are not repeated."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from lakefmt.bench.cells import BenchCell
from lakefmt.bench.records import CellRecord, append_record, load_records
from lakefmt.data_classes import dataclass

__all__ = ["BenchReport", "machine_text", "run_cells"]

#: Measures one cell within a number of seconds: returns its figures, or the reason why there are none.
Measure = Callable[[BenchCell, float], dict[str, Any] | str]
_OUT_OF_TIME = "out of time"


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
    kept: Path | None,
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
        kept: the file of results; None: they are not kept.
        minutes: a cell that is not done by then is stopped and left.
        resume: whether results of earlier runs count; False: all cells are measured.
        report: called before each cell with its number, from 0.
        measure: measures one cell; default: in a process of its own.
        clock: seconds that rise.

    Returns:
        The records and what is left.
    """
    measure, begin = measure or measure_apart, clock()
    done = {record.cell.id: record for record in load_records(kept)} if kept is not None and resume else {}
    done = {name: record for name, record in done.items() if not record.error}
    resumed = sum(cell.id in done for cell in cells)
    left: list[BenchCell] = []
    for number, cell in enumerate(cells):
        if cell.id in done:
            continue
        remaining = minutes * 60 - (clock() - begin)
        if remaining <= 0:
            left.append(cell)
            continue
        if report is not None:
            report(cell, number)
        figures = measure(cell, remaining)
        if figures == _OUT_OF_TIME:
            left.append(cell)
            continue
        failed = isinstance(figures, str)
        record = CellRecord(
            cell,
            {} if isinstance(figures, str) else figures,
            figures if isinstance(figures, str) else "",
            machine_text(),
        )
        done[cell.id] = record
        if kept is not None and not failed:
            append_record(kept, record)
    records = tuple(done[cell.id] for cell in cells if cell.id in done)
    return BenchReport(records, tuple(left), resumed, clock() - begin)


def measure_apart(cell: BenchCell, seconds: float) -> dict[str, Any] | str:
    """Measure a cell in a process of its own, so that memory and imports of one do not show in another."""
    with tempfile.TemporaryDirectory(prefix="lakefmt-bench-") as folder:
        command = [sys.executable, "-m", "lakefmt.bench.child", str(Path(folder) / "tables")]
        try:
            done = subprocess.run(
                command, input=json.dumps(cell.as_json()), capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return _OUT_OF_TIME
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        return lines[-1][:500]
    figures = json.loads(done.stdout)
    return figures if isinstance(figures, dict) else "the process answered with something else than figures"


def machine_text() -> str:
    """Return which machine measures: figures without it say nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    processor = named or platform.processor() or platform.machine()
    return f"{processor}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
