"""From measured cells to costs: least squares without negative costs, and the factors of another machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, Final

import numpy as np

from lakefmt.advice.amounts import Amounts, CostCurves, predict_amounts
from lakefmt.bench.records import CellRecord

__all__ = ["fit_curves", "machine_factors", "measured_seconds", "nonnegative_fit"]

#: Another machine is at most this much slower or quicker than the one whose costs are shipped.
_MOST_FACTOR: Final = 50.0
_LEAST_CELLS: Final = 4
#: Rounds of weighing, and the relative error below which all errors count alike.
_ROUNDS: Final = 10
_SMALL_ERROR: Final = 0.05


def measured_seconds(record: CellRecord, clock: str = "clock") -> dict[str, float]:
    """Return the measured seconds of a record by operation, per commit or read."""
    figures, column = record.figures, 0 if clock == "clock" else 1
    writes = [each[column] for each in figures.get("write_seconds", [])]
    if not writes:
        return {}
    reads = [each[column] for each in figures["read_seconds"]]
    services = [each[column] for each in figures["service_seconds"]]
    shown = {"write": median(writes), "read": sum(reads) / len(reads), "load": figures["load_seconds"][column]}
    if services:
        shown["service"] = sum(services) / len(writes)
    return shown


def fit_curves(records: Iterable[CellRecord], machine: str, clock: str = "clock") -> CostCurves:
    """Return the costs that explain the measured seconds best, each cell counting by its relative error.

    Args:
        records: measured cells of many profiles and choices.
        machine: which machine measured.
        clock: ``"clock"`` or ``"processor"``.
    """
    samples = _samples(records, clock)
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


def _robust_fit(matrix: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Sequence[float]:
    """Fit relative errors, large ones by their size instead of its square: a cell that was disturbed counts for less."""
    base = 1.0 / np.maximum(target, 1e-6)
    weights = base
    fitted: Sequence[float] = []
    for _ in range(_ROUNDS):
        fitted = nonnegative_fit(matrix * weights[:, None], target * weights)
        errors = np.abs(matrix @ np.asarray(fitted) - target) * base
        weights = base / np.sqrt(np.maximum(errors, _SMALL_ERROR))
    return fitted


def machine_factors(records: Iterable[CellRecord], shipped: CostCurves, machine: str) -> CostCurves | None:
    """Return the shipped costs with factors for the machine that measured `records`; None with too few of them."""
    samples = _samples(records, shipped.clock)
    factors: dict[str, float] = {}
    for operation, rows in samples.items():
        ratios = [value / wanted for amounts, value in rows if (wanted := shipped.of(operation, amounts)) > 0]
        if len(ratios) >= _LEAST_CELLS:
            factors[operation] = float(f"{min(max(median(ratios), 1 / _MOST_FACTOR), _MOST_FACTOR):.4g}")
    return CostCurves(shipped.seconds, machine, factors, shipped.clock) if {"write", "read"} <= set(factors) else None


def _samples(records: Iterable[CellRecord], clock: str) -> dict[str, list[tuple[Amounts, float]]]:
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


def nonnegative_fit(matrix: np.ndarray[Any, Any], target: np.ndarray[Any, Any], steps: int = 500) -> Sequence[float]:
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
