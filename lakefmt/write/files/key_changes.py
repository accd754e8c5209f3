"""Which keys a rewritten file gained and lost, from what was merged into it. Pure."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.filegroups.merge.base import Merged
from lakefmt.sorting.written_keys import FileKeyChange
from lakefmt.write.context import FileAssignment

__all__ = ["key_change_of", "new_keys"]


def key_change_of(assignment: FileAssignment, merged: Merged, keys: pa.ChunkedArray) -> FileKeyChange:
    """Return the keys that a rewritten file has and the assigned base file has not, and the reverse.

    Args:
        assignment: the file.
        merged: what became of the rows.
        keys: of all rows of the file, the new ones last.
    """
    added, left = _one_array(merged.inserted_keys), _one_array(merged.removed_keys)
    if len(added) and not assignment.match_keys:
        # Rows that are appended may have keys that are stored.
        added = _without(added, keys.slice(0, len(keys) - len(added)))
    if len(left):
        # Of several rows with one key some may stay.
        left = _without(left, keys)
    return FileKeyChange(None if assignment.base is None else assignment.base.path, added, left)


def new_keys(keys: pa.ChunkedArray | None) -> FileKeyChange | None:
    """Return what the first file of a file group has; None: its keys are not at hand."""
    return None if keys is None else FileKeyChange(None, _one_array(keys), pa.array([], pa.string()))


def _without(few: pa.Array, keys: pa.ChunkedArray) -> pa.Array:
    """Return the values of a short array that are not in a long one."""
    others = keys.filter(pc.is_in(keys, value_set=few))
    return few.filter(pc.invert(pc.is_in(few, value_set=others))) if len(others) else few


def _one_array(keys: pa.ChunkedArray) -> pa.Array:
    # A copy: they may be part of something larger that would stay with them.
    return pa.concat_arrays([chunk.cast(pa.string()) for chunk in keys.chunks] or [pa.array([], pa.string())])
