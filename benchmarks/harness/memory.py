"""Resident memory of this process, and what it has read, from Linux' /proc; None elsewhere."""

from __future__ import annotations

from pathlib import Path


def resident() -> int | None:
    """Return the bytes that are resident now."""
    return _field("VmRSS")


def peak() -> int | None:
    """Return the most bytes that were resident since the start or the last :func:`forget_peak`."""
    return _field("VmHWM")


def forget_peak() -> bool:
    """Let the peak begin anew from what is resident now; return whether the system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    except OSError:
        return False
    return True


def bytes_read() -> int | None:
    """Return the bytes that this process has read from files so far, those of memory maps left out."""
    return _field("rchar", Path("/proc/self/io"), 1)


def _field(name: str, path: Path = Path("/proc/self/status"), unit: int = 1024) -> int | None:
    try:
        lines = path.read_text("ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(found[0]) * unit if found else None
