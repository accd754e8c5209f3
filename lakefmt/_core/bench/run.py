"""Runs cells one after the other, each in a process of its own, keeps their results, and turns these into costs.

A run ends after a number of minutes. Results are one JSON object per line of a file; a cell whose result is there is not run
again. Costs are fitted by least squares without negative ones, or are the shipped ones with the factors of this machine.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lakefmt._core.advice.advise import Amounts, CostCurves, predict_amounts
from lakefmt._core.bench.cells import BenchCell
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import CorruptFile, InvalidInputError

__all__ = [
    "BenchReport",
    "CellRecord",
    "append_record",
    "fit_curves",
    "load_records",
    "machine_factors",
    "machine_text",
    "measured_seconds",
    "nonnegative_fit",
    "run_cells",
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
