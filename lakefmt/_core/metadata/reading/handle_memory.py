"""What the handles of one process keep of a metadata table on a local disk, for the next handle of the table (effects: one stat).

A job that opens the table for every commit would decode the same files again each time. All that is kept is of files and
commits that never change, and a handle that stays open keeps it while other processes write; so it is right for the next
handle too, as long as the metadata table is the same one: not dropped, and made anew under the same names.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from threading import Lock
from typing import Any, Final, TypeVar, cast
from weakref import WeakKeyDictionary, finalize

from lakefmt._core.filegroups.reader import BaseFileReader
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.metadata.layout import METADATA_DIRECTORY
from lakefmt._core.storage.api import ObjectStore, SupportsIdentities

__all__ = ["HandleMemory", "handle_memory"]

_PROPERTIES: Final = f"{METADATA_DIRECTORY}/.hoodie/hoodie.properties"
#: Metadata tables of which something is kept without a handle, and bytes that are kept of one of them.
_MOST_TABLES: Final = 4
_MOST_BYTES: Final = 16 << 20

K = TypeVar("K")


class HandleMemory:
    """What is kept of one metadata table, an object of each kind; for any number of handles and threads.

    Example:
        >>> memory = HandleMemory()
        >>> memory.of(dict) is memory.of(dict)
        True
    """

    def __init__(self) -> None:
        self._kept: dict[type[Any], Any] = {}
        self._lock = Lock()

    def of(self, kind: type[K]) -> K:
        """Return what is kept of a kind, which is empty at first."""
        with self._lock:
            if kind not in self._kept:
                self._kept[kind] = kind()
            return cast("K", self._kept[kind])

    @property
    def nbytes(self) -> int:
        """Bytes of what knows its own; takes no lock."""
        return sum(int(getattr(each, "nbytes", 0)) for each in tuple(self._kept.values()))


#: Process and identity of a metadata table. A forked process begins anew: a lock might be held in its copy.
_Key = tuple[int, str]
_by_table: OrderedDict[_Key, HandleMemory] = OrderedDict()
_by_handle: WeakKeyDictionary[BaseFileReader, HandleMemory] = WeakKeyDictionary()
_guard = Lock()


def handle_memory(client: TableClient) -> HandleMemory:
    """Return what a table's handle keeps of the metadata table: on a local disk that of the handles before it."""
    reader = client.reader
    with _guard:
        memory = _by_handle.get(reader)
    if memory is not None:
        return memory
    identity = _identity(client.store)
    with _guard:
        memory = _by_handle.get(reader)
        if memory is None:
            _by_handle[reader] = memory = HandleMemory() if identity is None else _of_table((os.getpid(), identity))
            if identity is not None:
                finalize(reader, _forget_large, (os.getpid(), identity))
        return memory


def _identity(store: ObjectStore) -> str | None:
    return store.identity(_PROPERTIES) if isinstance(store, SupportsIdentities) else None


def _of_table(key: _Key) -> HandleMemory:
    if key not in _by_table:
        _by_table[key] = HandleMemory()
        while len(_by_table) > _MOST_TABLES:
            _by_table.popitem(last=False)
    _by_table.move_to_end(key)
    return _by_table[key]


def _forget_large(key: _Key) -> None:
    """Forget what is large once a handle of it is gone; other handles keep theirs. Takes no lock: Python calls it anywhere."""
    memory = _by_table.get(key)
    if memory is not None and memory.nbytes > _MOST_BYTES:
        _by_table.pop(key, None)
