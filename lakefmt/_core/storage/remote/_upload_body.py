"""The bytes of one object on their way to a remote store: in memory, or in a file of this machine."""

from __future__ import annotations

import os

from lakefmt._core.data_classes import dataclass

__all__ = ["Payload"]


@dataclass(frozen=True, slots=True, repr=False)
class Payload:
    """Either `data`, or the first `size` bytes of the file at `path`.

    Example:
        >>> Payload.of(b"hello").read(1, 3)
        b'ell'
    """

    data: bytes | None
    path: str | None
    size: int

    @classmethod
    def of(cls, data: bytes) -> Payload:
        """Return the payload of some bytes."""
        return cls(data, None, len(data))

    @classmethod
    def of_file(cls, path: str) -> Payload:
        """Return the payload of a finished file."""
        return cls(None, path, os.path.getsize(path))

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset` on, fewer at the end; from several threads at once if need be."""
        if self.data is not None:
            return self.data if offset == 0 and length >= self.size else self.data[offset : offset + length]
        with open(str(self.path), "rb") as file:
            file.seek(offset)
            return file.read(min(length, max(0, self.size - offset)))
