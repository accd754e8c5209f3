"""Files that belong to a write in progress: the markers of its data files, and what it saves for other processes.

Markers announce data files before they are written (docs/format.md, Markers). A rollback, lakefmt's or Hudi's, finds the
files of a failed write by its markers, without listing the table.

A write that another process may commit or abort saves ``.hoodie/.lakefmt/writes/<instant>.json`` and, where keys are
remembered, ``<instant>.keys`` (docs/format.md, lakefmt's own files). Other engines ignore them. They go with the instant: at
its commit, its abort, its rollback.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final
from zlib import crc32

from lakefmt._core.formats.names import MarkerType, marker_name, parse_marker
from lakefmt._core.storage.api import ObjectStore, PutOutcome, check_name
from lakefmt._core.timeline.store import put_if_absent_confirmed
from lakefmt._core.values import InstantTime
from lakefmt.errors import CorruptFile

__all__ = [
    "SAVED_WRITES",
    "OwnMarkers",
    "create_marker",
    "create_markers",
    "list_marked",
    "list_markers",
    "marker_directory",
    "remove_markers",
    "remove_saved_writes",
    "saved_keys_name",
    "saved_write_name",
    "saved_write_time",
]


class OwnMarkers:
    """The markers that one process has created for one write, so that they need not be listed at its end.

    Attributes:
        names: of the marker files.
        paths: of the data files that they announce.
        is_complete: no other attempt, and nothing else of the write, can have created one.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.paths: list[str] = []
        self.is_complete = True

    def tell(self, paths: Collection[str]) -> bool:
        """Return whether these are all markers of a write that has written the files of `paths`."""
        return self.is_complete and bool(self.names) and set(paths) <= set(self.paths)


_MAX_MARKER_FILE = 64 * 1024 * 1024
_BATCH_PREFIX: Final = "MARKERS"
_BATCH_TYPE: Final = "MARKERS.type"


def marker_directory(time: InstantTime) -> str:
    """Return the directory of an instant's markers relative to the table."""
    return f".hoodie/.temp/{time}"


def create_marker(
    store: ObjectStore, time: InstantTime, path: str, marker: MarkerType, own: OwnMarkers | None = None
) -> bool:
    """Create the marker of the data file `path`; False if an earlier attempt may have created it.

    Args:
        store: the table's store.
        time: the instant.
        path: of the data file.
        marker: its type.
        own: takes what is created here.

    Raises:
        StorageError: the store does not confirm the marker; a rollback would miss the file.
    """
    name = f"{marker_directory(time)}/{marker_name(path, marker)}"
    outcome = store.put_if_absent(name, b"")
    if outcome is PutOutcome.UNKNOWN:
        put_if_absent_confirmed(store, name, b"", durable=False)
    if own is not None:
        own.names.append(name)
        own.paths.append(path)
        own.is_complete &= outcome is PutOutcome.DONE
    return outcome is PutOutcome.DONE


def create_markers(
    store: ObjectStore,
    time: InstantTime,
    marked: Sequence[tuple[str, MarkerType]],
    *,
    more: bool = False,
    own: OwnMarkers | None = None,
) -> bool:
    """Create the markers of many data files in one file, in the form of Hudi's timeline server.

    All markers of an instant have one form: where a file tells that they are in batches, Hudi looks for no others.

    Args:
        store: the table's store.
        time: the instant.
        marked: the path and the type of each data file.
        more: this call follows one that returned, of the same instant.
        own: takes what is created here.

    Returns:
        False if an earlier attempt may have created them.

    Raises:
        StorageError: the store does not confirm the markers; a rollback would miss the files.
    """
    directory = marker_directory(time)
    content = "".join(f"{marker_name(path, marker)}\n" for path, marker in marked).encode()
    if not more:
        put_if_absent_confirmed(store, f"{directory}/{_BATCH_TYPE}", b"TIMELINE_SERVER_BASED", durable=False)
    # Hudi reads every file of that name and takes a number at its end: here one that another attempt finds, too.
    number = crc32(content)
    while True:
        name = f"{directory}/{_BATCH_PREFIX}{number}"
        outcome = store.put_if_absent(name, content)
        if outcome is PutOutcome.DONE:
            if own is not None:
                own.names += [name] if more else [f"{directory}/{_BATCH_TYPE}", name]
                own.paths += [path for path, _ in marked]
            return True
        if own is not None:
            own.is_complete = False
        if outcome is PutOutcome.UNKNOWN:
            outcome = put_if_absent_confirmed(store, name, content, durable=False)
        if outcome is PutOutcome.DONE or store.read(name, _MAX_MARKER_FILE) == content:
            return False
        number += 1  # taken by the markers of other files


def list_marked(store: ObjectStore, time: InstantTime) -> list[str] | None:
    """Return the data files with markers, DIRECT or of a timeline server; None without any marker."""
    names, paths = list_markers(store, time)
    return paths if names else None


def list_markers(store: ObjectStore, time: InstantTime) -> tuple[list[str], list[str]]:
    """Return the names of an instant's markers, single and in batches, and the data files that they announce."""
    directory = marker_directory(time)
    names = [item.name for item in store.list(directory)]
    return names, sorted({path for name in names for path in _marked_paths(store, name, name[len(directory) + 1 :])})


def _marked_paths(store: ObjectStore, name: str, relative: str) -> Iterator[str]:
    if relative.startswith(_BATCH_PREFIX) and "/" not in relative and parse_marker(relative) is None:
        if relative != _BATCH_TYPE:
            yield from _paths_in_batch(store, name)
        return
    parsed = parse_marker(relative)
    if parsed is not None:
        yield check_name(parsed[0])


def _paths_in_batch(store: ObjectStore, name: str) -> Iterator[str]:
    try:
        lines = store.read(name, _MAX_MARKER_FILE).decode().splitlines()
    except UnicodeDecodeError:
        raise CorruptFile(f"{name} is not text") from None
    for line in lines:
        parsed = parse_marker(line.strip())
        if parsed is not None:
            yield check_name(parsed[0])


def remove_markers(store: ObjectStore, time: InstantTime) -> None:
    """Remove an instant's markers, after its commit or rollback."""
    store.delete_tree(marker_directory(time))


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
