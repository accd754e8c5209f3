"""A client of HTTP two-phase loads (docs/http-loads.md): of ``lakefmt serve``, and of StarRocks."""

from __future__ import annotations

from lakefmt._core.loads.client import LoadReply, StreamLoad

__all__ = ["LoadReply", "StreamLoad"]
