"""Markers, which announce data files before they are written (effects; docs/format.md, Markers).

A rollback, lakefmt's or Hudi's, finds the files of a failed write by its markers, without listing
the table.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakefmt.errors import CorruptFile
from lakefmt.formats.names import MarkerType, marker_name, parse_marker
from lakefmt.storage.api import ObjectStore, PutOutcome
from lakefmt.storage.object_names import check_name
from lakefmt.timeline.store import put_if_absent_confirmed
from lakefmt.values import InstantTime

__all__ = ["create_marker", "list_marked", "marker_directory", "remove_markers"]

_MAX_MARKER_FILE = 64 * 1024 * 1024


def marker_directory(time: InstantTime) -> str:
    """Return the directory of an instant's markers relative to the table."""
    return f".hoodie/.temp/{time}"


def create_marker(store: ObjectStore, time: InstantTime, path: str, marker: MarkerType) -> bool:
    """Create the marker of the data file `path`; False if an earlier attempt may have created it.

    Raises:
        StorageError: the store does not confirm the marker; a rollback would miss the file.
    """
    name = f"{marker_directory(time)}/{marker_name(path, marker)}"
    outcome = store.put_if_absent(name, b"")
    if outcome is PutOutcome.UNKNOWN:
        put_if_absent_confirmed(store, name, b"", durable=False)
    return outcome is PutOutcome.DONE


def list_marked(store: ObjectStore, time: InstantTime) -> list[str] | None:
    """Return the data files with markers, DIRECT or of a timeline server; None without any marker."""
    directory = marker_directory(time)
    paths: set[str] = set()
    any_marker = False
    for item in store.list(directory):
        any_marker = True
        relative = item.name[len(directory) + 1 :]
        paths.update(_paths(store, item.name, relative))
    return sorted(paths) if any_marker else None


def _paths(store: ObjectStore, name: str, relative: str) -> Iterator[str]:
    if relative.startswith("MARKERS"):
        if relative != "MARKERS.type":
            yield from _server_based(store, name)
        return
    parsed = parse_marker(relative)
    if parsed is not None:
        yield check_name(parsed[0])


def _server_based(store: ObjectStore, name: str) -> Iterator[str]:
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
