"""DataFrames of Daft, read from tables and written into them (docs/daft.md). Needs ``lakefmt[daft]``."""

from __future__ import annotations

from lakefmt._core.integrations.daft_frames import read_daft, write_daft

__all__ = ["read_daft", "write_daft"]
