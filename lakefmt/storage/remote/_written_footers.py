"""Footers of Parquet files on their way to a store, kept until they are asked for (effects on reading local files only)."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import BinaryIO, Final

__all__ = ["WrittenFooters", "read_footer"]

_MAGIC: Final = b"PAR1"
_LENGTH_AND_MAGIC: Final = 8
_MOST_BYTES: Final = 8 << 20


def read_footer(file: BinaryIO, size: int) -> bytes | None:
    """Return the end of a Parquet file from the first byte of its footer on; None for another file, or a very large footer."""
    if size <= 2 * _LENGTH_AND_MAGIC:
        return None
    file.seek(size - _LENGTH_AND_MAGIC)
    end = file.read(_LENGTH_AND_MAGIC)
    length = int.from_bytes(end[:4], "little") + _LENGTH_AND_MAGIC
    if end[4:] != _MAGIC or length > min(size, _MOST_BYTES // 4):
        return None
    file.seek(size - length)
    return file.read(length)


class WrittenFooters:
    """The footers of the files that were put last, up to 8 MiB; each is handed out once.

    Example:
        >>> footers = WrittenFooters()
        >>> footers.keep("a", b"footer")
        >>> footers.take("a"), footers.take("a")
        (b'footer', None)
    """

    def __init__(self) -> None:
        self._footers: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def keep(self, name: str, footer: bytes) -> None:
        """Keep a footer."""
        with self._lock:
            self._footers[name] = footer
            self._bytes += len(footer)
            while self._bytes > _MOST_BYTES:
                self._bytes -= len(self._footers.popitem(last=False)[1])

    def take(self, name: str) -> bytes | None:
        """Return a footer and forget it; None: there is none."""
        with self._lock:
            footer = self._footers.pop(name, None)
            self._bytes -= len(footer or b"")
            return footer
