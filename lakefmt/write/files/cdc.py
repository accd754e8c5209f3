"""Change files of a write, and their entries in the commit (docs/format.md, Change files).

A base file that is rewritten gets a change file, which is written first. New and replaced file groups need none: readers
derive their changes from the commit. On merge-on-read tables readers derive changes from logs and the slices below them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups.merge.base import Merged
from lakefmt.filegroups.model import join_path
from lakefmt.formats.names import parse_base_file
from lakefmt.write.bound_context import BoundContext
from lakefmt.write.context import FileAssignment

if TYPE_CHECKING:
    from lakefmt.filegroups.cdc import ChangedRows

__all__ = ["cdc_stats", "log_changes", "log_no_changes", "refuse_silent_rewrites"]

#: What a base file's own count says of its change file.
_BYTES = "cdc_bytes"


def log_changes(bound: BoundContext, assignment: FileAssignment, base: pa.Table, merged: Merged) -> dict[str, int]:
    """Write down what a merge changed, where the table wants it; return what counts of it.

    Raises:
        StorageError: the store failed; the call may be repeated.
    """
    from lakefmt.filegroups.cdc import changes_of_merge

    return _log(bound, assignment, lambda: changes_of_merge(base, merged))


def log_no_changes(bound: BoundContext, assignment: FileAssignment, rows: pa.Table) -> dict[str, int]:
    """Write down that a rewrite changes no row, where the table wants it: Spark asks for a change file all the same.

    Args:
        bound: the write.
        assignment: the rewritten file.
        rows: its rows, for their columns.

    Raises:
        StorageError: the store failed; the call may be repeated.
    """
    from lakefmt.filegroups.cdc import ChangedRows

    none = rows.slice(0, 0)
    return _log(bound, assignment, lambda: ChangedRows(none, none, none, none))


def _log(bound: BoundContext, assignment: FileAssignment, changes: Callable[[], ChangedRows]) -> dict[str, int]:
    from lakefmt.filegroups.cdc import write_change_file

    if bound.cdc is None:
        return {}
    size = write_change_file(
        bound.store,
        _path(bound, assignment),
        changes(),
        mode=bound.cdc,
        instant=bound.instant,
        table_schema=bound.context.schema_text,
        settings=bound.settings,
    )
    return {_BYTES: size}


def _path(bound: BoundContext, assignment: FileAssignment) -> str:
    from lakefmt.filegroups.cdc import cdc_file_name

    parsed = parse_base_file(assignment.file_name)
    token = f"{assignment.sequence}-0-0" if parsed is None else parsed.write_token
    return join_path(assignment.partition, cdc_file_name(assignment.file_id, bound.instant, token))


def cdc_stats(bound: BoundContext, assignment: FileAssignment, counts: Mapping[str, int]) -> dict[str, object]:
    """Return what the commit's entry for a base file says of its change file."""
    return {"cdcStats": {_path(bound, assignment): counts[_BYTES]}} if _BYTES in counts else {}


def refuse_silent_rewrites(bound: BoundContext) -> None:
    """Raise where rows would be changed without the change data that the table promises.

    Raises:
        UnsupportedFeature: the table captures changes.
    """
    if bound.cdc is not None:
        raise UnsupportedFeature(
            "hoodie.table.cdc.enabled=true: this repair would change rows in a way that change data cannot "
            "tell (they name keys: one of two rows with a key, or rows of a damaged file). Nothing was changed"
        )
