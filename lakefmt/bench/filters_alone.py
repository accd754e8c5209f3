"""Bloom filters on their own: seconds to build and to ask, false positives and bytes; lakefmt's and two yardsticks."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt.bench.cells import BenchCell
from lakefmt.bench.resident import timed
from lakefmt.bench.rows import KEY, RowSource
from lakefmt.errors import InvalidInputError
from lakefmt.formats.bloom.bloom_filter import BloomFilter

__all__ = ["measure_filter"]

#: Keys of one filter: as many as a base file has, not a table.
_MOST_KEYS = 200_000
#: The yardstick takes Python texts one by one.
_MOST_PYBLOOM_KEYS = 20_000


def measure_filter(cell: BenchCell) -> dict[str, Any]:
    """Build the filter that the cell names over keys of its profile and ask it for as many keys that it does not have.

    Returns:
        ``build_seconds``, ``ask_seconds`` (clock, processor), ``false_rate``, ``filter_bytes`` and ``keys``; ``missing``
        where a yardstick is not installed.

    Raises:
        InvalidInputError: there is no such filter.
    """
    kind, rate = cell.options.get("filter", ""), float(cell.options.get("fpp", "0.01"))
    count = min(cell.profile.rows, _MOST_KEYS)
    if kind == "pybloom-live":
        count = min(count, _MOST_PYBLOOM_KEYS)
    keys = RowSource(cell.profile).base()[KEY].combine_chunks()
    stored = keys.slice(0, count // 2)
    absent = keys.slice(count // 2, count // 2)
    if not len(stored):
        raise InvalidInputError("a filter needs at least two rows")
    if kind == "pybloom-live":
        return _pybloom(stored, absent, rate)
    if kind == "parquet":
        return _parquet(stored, absent, rate)
    if kind not in ("SIMPLE", "DYNAMIC_V0"):
        raise InvalidInputError(f"unknown filter {kind!r}: expected SIMPLE, DYNAMIC_V0, pybloom-live or parquet")
    return _own(stored, absent, rate, kind, cell.options.get("entries", "all"))


def _own(stored: pa.Array, absent: pa.Array, rate: float, kind: str, entries: str) -> dict[str, Any]:
    sized = max(1, len(stored) // 2 if entries == "half" else len(stored))

    def build() -> BloomFilter:
        made = BloomFilter.simple(sized, rate) if kind == "SIMPLE" else BloomFilter.sized(sized, rate, len(stored))
        made.add(stored)
        return made

    made, build_seconds = timed(build)
    passed, ask_seconds = timed(lambda: made.contains(absent))
    if not bool(np.all(made.contains(stored))):
        raise InvalidInputError("a filter denied a key that it has")
    return _figures(build_seconds, ask_seconds, float(np.mean(passed)), len(made.encode()), len(stored))


def _pybloom(stored: pa.Array, absent: pa.Array, rate: float) -> dict[str, Any]:
    try:
        from pybloom_live import BloomFilter as Yardstick  # type: ignore[import-untyped]
    except ImportError:
        return {"missing": "pybloom-live is not installed: pip install 'lakefmt[bench]'"}
    inside, outside = stored.to_pylist(), absent.to_pylist()

    def build() -> Any:
        made = Yardstick(len(inside), rate)
        for key in inside:
            made.add(key)
        return made

    made, build_seconds = timed(build)
    passed, ask_seconds = timed(lambda: [key in made for key in outside])
    return _figures(build_seconds, ask_seconds, sum(passed) / len(passed), made.num_bits // 8, len(inside))


def _parquet(stored: pa.Array, absent: pa.Array, rate: float) -> dict[str, Any]:
    """Parquet's own filters: what they add to a file; Arrow writes them from release 24 on and does not offer to ask them."""
    table = pa.table({KEY: stored})

    def written(**more: Any) -> int:
        sink = io.BytesIO()
        pq.write_table(table, sink, compression="none", **more)
        return sink.tell()

    options = {"bloom_filter_options": {KEY: {"ndv": len(stored), "fpp": rate}}}
    try:
        size, build_seconds = timed(lambda: written(**options))
    except TypeError:
        return {"missing": "this Arrow does not write Parquet's filters"}
    plain, plain_seconds = timed(written)
    del absent
    took = (max(0.0, build_seconds[0] - plain_seconds[0]), max(0.0, build_seconds[1] - plain_seconds[1]))
    return _figures(took, None, None, size - plain, len(stored))


def _figures(
    build: tuple[float, float], ask: tuple[float, float] | None, rate: float | None, size: int, keys: int
) -> dict[str, Any]:
    return {
        "build_seconds": [round(each, 6) for each in build],
        "ask_seconds": None if ask is None else [round(each, 6) for each in ask],
        "false_rate": rate,
        "filter_bytes": size,
        "keys": keys,
    }
