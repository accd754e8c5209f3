"""What one decoding may cost, measured: memory of Python, numpy and Arrow, and time of the processor."""

from __future__ import annotations

import signal
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from lakefmt.errors import LakefmtError

#: Memory in terms of the file, as the decoders promise.
TIMES_THE_FILE = 4
#: Memory beside that. A decoder compiles the schema it finds (a quarter of a mebibyte for the widest of Hudi's), an
#: error carries its traceback, and compressed blocks may grow to a mebibyte in any case (`formats/avro.py`).
FREE_BYTES = 2 * 1024 * 1024 + 64 * 1024
#: No decoding of a few kilobytes takes a tenth of a second. Time of the processor: a busy machine changes nothing.
SECONDS = 10.0


class Hang(BaseException):
    """A decoder did not come back."""


@contextmanager
def no_hang() -> Iterator[None]:
    """Stop what uses the processor for too long. The timer is not the one that stops a whole test."""

    def stop(_signal: int, _frame: object) -> None:
        raise Hang(f"still running after {SECONDS} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@dataclass
class Meter:
    """Runs one decoding after the other and keeps the worst."""

    errors: tuple[type[Exception], ...]
    values: int = 0
    refusals: int = 0
    most_bytes: int = 0

    @staticmethod
    def _begin() -> int:
        """Return the memory in use; zero when nothing is traced, because that takes too long here."""
        if tracemalloc.is_tracing():
            tracemalloc.reset_peak()
        return tracemalloc.get_traced_memory()[0]

    def run(self, decode: Callable[[bytes], object], data: bytes, what: str) -> None:
        """Decode; a value and an expected error are fine.

        Raises:
            AssertionError: another error, too much memory or too much time.
        """
        limit = TIMES_THE_FILE * len(data) + FREE_BYTES
        python_bytes, arrow_bytes = self._taken(decode, data, what)
        if python_bytes + arrow_bytes > limit:
            # The first call may have imported modules, and threads that an earlier test has left may allocate, too.
            python_bytes = min(python_bytes, self._taken(decode, data, what)[0])
        used = python_bytes + arrow_bytes
        self.most_bytes = max(self.most_bytes, used)
        assert used <= limit, f"{what}: {used:,} bytes of memory for a file of {len(data):,}; {limit:,} are allowed"

    def _taken(self, decode: Callable[[bytes], object], data: bytes, what: str) -> tuple[int, int]:
        """Decode, and return the bytes that Python took at most, and those by which Arrow's peak rose."""
        pool = pa.default_memory_pool()
        arrow_before, arrow_peak = pool.bytes_allocated(), pool.max_memory()
        before = self._begin()
        try:
            with no_hang():
                decode(data)
            self.values += 1
        except self.errors as error:
            self.refusals += 1
            if isinstance(error, LakefmtError) and not str(error):
                raise AssertionError(f"{what}: an error without a message") from error
        except (Exception, Hang) as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        python_bytes = tracemalloc.get_traced_memory()[1] - before
        # Arrow's peak cannot be set back: what is above the highest one before was reached just now.
        return python_bytes, pool.max_memory() - arrow_before if pool.max_memory() > arrow_peak else 0
