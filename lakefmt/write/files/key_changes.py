"""Which keys a rewritten file gained and lost, from what was merged into it. Pure."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.filegroups.merge.base import Merged
from lakefmt.sorting.written_keys import FileKeyChange, keys_of, without
from lakefmt.write.context import FileAssignment

__all__ = ["key_change_of", "new_keys"]


def key_change_of(assignment: FileAssignment, merged: Merged, keys: pa.ChunkedArray) -> FileKeyChange:
    """Return the keys that a rewritten file has and the assigned base file has not, and the reverse.

    Args:
        assignment: the file.
        merged: what became of the rows.
        keys: of all rows of the file, the new ones last.
    """
    added, left = keys_of(merged.inserted_keys), keys_of(merged.removed_keys)
    if len(added) and not assignment.match_keys:
        # Rows that are appended may have keys that are stored.
        added = _without(added, keys.slice(0, len(keys) - len(added)))
    if len(left):
        # Of several rows with one key some may stay.
        left = _without(left, keys)
    return FileKeyChange(None if assignment.base is None else assignment.base.path, added, left)


def new_keys(keys: pa.ChunkedArray | None) -> FileKeyChange | None:
    """Return what the first file of a file group has; None: its keys are not at hand."""
    return None if keys is None else FileKeyChange(None, keys_of(keys), pa.array([], pa.string()))


def _without(few: pa.Array, keys: pa.ChunkedArray) -> pa.Array:
    """Return the values of a short array that are not in a long one."""
    return without(few, keys.filter(pc.is_in(keys, value_set=few)))
