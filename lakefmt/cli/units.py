"""Numbers and foreign texts as a person reads them (pure)."""

from __future__ import annotations

__all__ = ["printable", "size_text"]

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_UNITS = ("KiB", "MiB", "GiB", "TiB")


def size_text(size: int) -> str:
    """Return a number of bytes with three digits or so.

    Example:
        >>> size_text(999), size_text(1536), size_text(12_345_678)
        ('999 B', '1.50 KiB', '11.8 MiB')
    """
    if size < 1024:
        return f"{size} B"
    value, unit = float(size), "B"
    for unit in _UNITS:  # noqa: B007 - the unit it ends with is wanted
        value /= 1024
        if value < 1000:
            break
    return f"{value:.3g} {unit}" if value >= 100 else f"{value:.{2 if value < 10 else 1}f} {unit}"


def printable(text: str) -> str:
    r"""Return `text` on one line and without orders to a terminal: names of files and columns come from anywhere.

    Example:
        >>> printable("a\nb"), printable("\x1b[31m")
        ('a b', '\\x1b[31m')
    """
    return " ".join(text.split()).translate(_CONTROLS)
