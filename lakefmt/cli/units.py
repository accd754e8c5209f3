"""Numbers and foreign texts as a person reads them."""

from __future__ import annotations

from lakefmt.values import printable, size_text

__all__ = ["printable", "size_text"]
