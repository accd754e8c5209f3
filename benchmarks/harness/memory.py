"""Resident memory of this process, from Linux' /proc; None elsewhere."""

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


def _field(name: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text("ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(found[0]) * 1024 if found else None
