"""Resident memory of this process and its processor time; memory is Linux' ``/proc``, None elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

__all__ = ["Seconds", "forget_peak", "peak_memory", "resident_memory", "timed"]

T = TypeVar("T")
#: Seconds by the clock, and of the processor over all threads.
Seconds = tuple[float, float]


def timed(work: Callable[[], T]) -> tuple[T, Seconds]:
    """Return the result of `work` with its seconds by the clock and of the processor."""
    processor, begin = time.process_time(), time.perf_counter()
    result = work()
    return result, (time.perf_counter() - begin, time.process_time() - processor)


def resident_memory() -> int | None:
    """Return the bytes that are resident now."""
    return _status_field("VmRSS")


def peak_memory() -> int | None:
    """Return the most bytes that were resident since the start or the last :func:`forget_peak`."""
    return _status_field("VmHWM")


def forget_peak() -> bool:
    """Begin the peak anew; return whether the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    except OSError:
        return False
    return True


def _status_field(name: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text("ascii", errors="replace").splitlines()
    except OSError:
        return None
    numbers = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(numbers[0]) * 1024 if numbers else None
