"""What takes part in every completion of an instant: the protocol of commit observers, and the keys that they are told of.

The metadata table is one: its deltacommit of the same instant completes before the data table's instant does. It must know which keys
files gained and lost against the files that they replace. Who writes a file knows; later both files would have to be read. So
:class:`WrittenKeys` keeps them from their writing until the commit. What is not kept is read: nothing relies on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.table_directory import TableDirectory
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.instant import Action, Instant
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import InstantTime

__all__ = ["CommitObserver", "FileKeyChange", "PendingCompletion", "WrittenKeys", "keys_of", "without"]


#: Bytes of keys that are kept of all files of a write.
_MOST_BYTES = 32 << 20


def _unproved() -> None:
    """Nothing can be lost: the caller needs no lock."""


@dataclass(frozen=True, slots=True)
class PendingCompletion:
    """An instant that is about to be completed, under the table lock.

    Attributes:
        time: the requested time of the instant.
        action: what it does.
        config: the table's properties, read under this lock.
        timeline: the table's timeline, listed under this lock; the instant is pending on it.
        body: what the completed file will say, encoded.
        commit: the same as values, for commits, deltacommits, replacecommits and compactions; None for other actions.
        next_time: hands out instant times above everything on the timeline. The completion time of the instant is taken
            from it after every observer has returned.
        prove_lock: raises when the table lock was lost. A completion that another writer could miss is proved first.
        directory: what is below ``.hoodie``, listed under this lock; None: its parts are listed where they are needed.
        written_keys: what this process recorded of the keys of files that it wrote for the instant.
    """

    time: InstantTime
    action: Action
    config: TableConfig
    timeline: Timeline
    body: bytes
    commit: CommitMetadata | None
    next_time: Callable[[], InstantTime]
    prove_lock: Callable[[], None] = _unproved
    directory: TableDirectory | None = None
    written_keys: WrittenKeys | None = None

    def proved_time(self) -> InstantTime:
        """Return the next instant time after the lock was proved: for completions of an observer's own.

        Raises:
            LeaseLost: the lock was lost.
        """
        self.prove_lock()
        return self.next_time()


class CommitObserver(Protocol):
    """Takes part in completions. It runs under the table lock and may be called again for an instant that it knows.

    The instant is invisible until every observer has returned. When one raises, the instant is not completed; what the
    observer has written for it by then must be invisible to readers until the instant is complete, and must go when the
    instant is rolled back.
    """

    def before_completion(self, pending: PendingCompletion) -> None:
        """Write what belongs to the instant; raise to refuse its completion."""
        ...

    def before_rollback(self, config: TableConfig, targets: Sequence[Instant]) -> None:
        """Raise to refuse that completed or pending instants are rolled back; nothing is changed before it returns."""
        ...


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
