"""How quick this machine writes to memory that its caches do not hold: measured once a process (effects)."""

from __future__ import annotations

import time
from functools import cache

import numpy as np

from lakefmt.formats.bloom.bloom_filter import zeroed

__all__ = ["far_writes_are_slow"]

#: Bytes that are written to, and how many times.
_BYTES_AS_BITS, _WRITES = 24, 1 << 16
#: From these seconds for a write on it pays to sort places first: sorted they take 14 ns, half of it the sorting (Intel Xeon,
#: 2.5 GHz; as they come 24).
_SLOW_SECONDS = 16e-9
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@cache
def far_writes_are_slow() -> bool:
    """Tell whether the bits of a large filter are set more quickly in the order of their places.

    Example:
        >>> far_writes_are_slow() in {True, False}
        True
    """
    memory = zeroed(1 << _BYTES_AS_BITS)
    memory[:: 1 << 12] = 1  # the system gives a page when it is written to
    places = (np.arange(_WRITES, dtype=np.uint64) * _SPREAD >> np.uint64(64 - _BYTES_AS_BITS)).astype(np.intp)
    begin = time.perf_counter()
    memory[places] = 1
    return (time.perf_counter() - begin) / _WRITES > _SLOW_SECONDS
