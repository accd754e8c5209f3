"""What a row of a stream does to its key, under the name that callers import; see :mod:`lakefmt.segments.operators`."""

from __future__ import annotations

from lakefmt.segments.operators import DELETES, STRICT, WHOLE_ROWS, RowOperator, parse_operator

__all__ = ["DELETES", "STRICT", "WHOLE_ROWS", "RowOperator", "parse_operator"]
