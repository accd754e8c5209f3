"""Which keys files gained and lost against the files that they replace, kept from their writing until the commit (effects).

Who writes a file knows; later both files would have to be read. What is not kept is read: nothing relies on it.
"""

from __future__ import annotations

from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.data_classes import dataclass

__all__ = ["FileKeyChange", "WrittenKeys", "keys_of", "without"]

#: Bytes of keys that are kept of all files of a write.
_MOST_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class FileKeyChange:
    """Which keys a file has that another one has not, and the reverse; arrays of strings.

    Attributes:
        base: path of the other file, which it replaces; None: it is the first one of its file group.
        added: keys that only it has.
        left: keys that only the other one has.
    """

    base: str | None
    added: pa.Array
    left: pa.Array

    @property
    def num_bytes(self) -> int:
        """The bytes of both arrays."""
        return int(self.added.nbytes + self.left.nbytes)


class WrittenKeys:
    """What the writers of files record of their keys; thread-safe, and bounded: what does not fit is left out.

    Args:
        most_bytes: of the keys that are kept.

    Example:
        >>> written = WrittenKeys(most_bytes=100)
        >>> change = FileKeyChange("a", pa.array(["k1"]), pa.array([], pa.string()))
        >>> written.keep("b", change)
        >>> written.of_file("b") is change, written.of_file("c")
        (True, None)
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._by_path: dict[str, FileKeyChange] = {}
        self._lock = Lock()

    @property
    def free_bytes(self) -> int:
        """How many bytes of keys would still be kept."""
        return self._most - self._bytes

    def keep(self, path: str, change: FileKeyChange) -> None:
        """Record which keys a file gained and lost."""
        with self._lock:
            if change.num_bytes <= self.free_bytes and path not in self._by_path:
                self._by_path[path] = change
                self._bytes += change.num_bytes

    def of_file(self, path: str) -> FileKeyChange | None:
        """Return what its writer recorded of a file; None: nothing."""
        return self._by_path.get(path)


def keys_of(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of record keys as one array of strings, copied: it may be part of something larger."""
    return pa.concat_arrays([chunk.cast(pa.string()) for chunk in column.chunks] or [pa.array([], pa.string())])


def without(values: pa.Array, others: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the values that are not among others, in their order.

    Example:
        >>> without(pa.array(["a", "b", "a"]), pa.array(["b"])).to_pylist()
        ['a', 'a']
    """
    if not len(values) or not len(others):
        return values
    return values.filter(pc.invert(pc.is_in(values, value_set=others)))
