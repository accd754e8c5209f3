"""Where lakefmt saves what a write remembers, so that another process can commit or abort it.

docs/format.md, lakefmt's own files: ``.hoodie/.lakefmt/writes/<instant>.json`` and, where keys are remembered, ``<instant>.keys``.
Other engines ignore them. The files go with the instant: at its commit, its abort, its rollback.
"""

from __future__ import annotations

from lakefmt.storage.api import ObjectStore
from lakefmt.values import InstantTime

__all__ = ["SAVED_WRITES", "remove_saved_writes", "saved_keys_name", "saved_write_name", "saved_write_time"]

#: The directory of saved writes, relative to the table.
SAVED_WRITES = ".hoodie/.lakefmt/writes"


def saved_write_name(time: InstantTime) -> str:
    """Return the file that says what the write at `time` remembers, relative to the table.

    Example:
        >>> saved_write_name("20260101000000000")
        '.hoodie/.lakefmt/writes/20260101000000000.json'
    """
    return f"{SAVED_WRITES}/{time}.json"


def saved_keys_name(time: InstantTime) -> str:
    """Return the file of the keys that the write at `time` remembers, relative to the table."""
    return f"{SAVED_WRITES}/{time}.keys"


def saved_write_time(name: str) -> InstantTime:
    """Return the instant of a file of a saved write; no digits if the file is none.

    Example:
        >>> saved_write_time(".hoodie/.lakefmt/writes/20260101000000000.json")
        '20260101000000000'
    """
    return InstantTime(name.rpartition("/")[2].partition(".")[0])


def remove_saved_writes(store: ObjectStore, *times: InstantTime) -> None:
    """Remove what writes have saved; files that are not there are fine."""
    store.delete([name for time in times for name in (saved_write_name(time), saved_keys_name(time))])
