"""Change data of a write: which files tell it, and what the commit says of them (spec 9; effects).

A base file that is rewritten gets a change file beside it, written first; new file groups and replaced ones need none, the
commit says all there is. On merge-on-read tables changes that go to logs are told by the logs and the slices below them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from lakefmt.config.table_config import cdc_mode
from lakefmt.errors import UnsupportedFeature
from lakefmt.filegroups.cdc.files import cdc_file_name, write_change_file
from lakefmt.filegroups.cdc.rows import ChangedRows, changes_of_merge
from lakefmt.filegroups.merge.base import Merged
from lakefmt.filegroups.model import join_path
from lakefmt.formats.names import parse_base_file
from lakefmt.storage.api import ObjectStore
from lakefmt.write.context import FileAssignment, WriteContext

__all__ = ["cdc_stats", "log_changes", "log_no_changes", "refuse_silent_rewrites"]

#: What a base file's own count says of its change file.
_BYTES = "cdc_bytes"


def log_changes(
    store: ObjectStore, context: WriteContext, assignment: FileAssignment, base: pa.Table, merged: Merged
) -> dict[str, int]:
    """Write down what a merge changed, where the table wants it; return what counts of it.

    Raises:
        StorageError: the store failed; the call may be repeated.
    """
    return _log(store, context, assignment, lambda: changes_of_merge(base, merged))


def log_no_changes(
    store: ObjectStore, context: WriteContext, assignment: FileAssignment, rows: pa.Table
) -> dict[str, int]:
    """Write down that a rewrite changes no row, where the table wants it: Spark asks for a change file all the same.

    Args:
        store: the table.
        context: the write.
        assignment: the rewritten file.
        rows: its rows, for their columns.

    Raises:
        StorageError: the store failed; the call may be repeated.
    """
    none = rows.slice(0, 0)
    return _log(store, context, assignment, lambda: ChangedRows(none, none, none, none))


def _log(
    store: ObjectStore, context: WriteContext, assignment: FileAssignment, changes: Callable[[], ChangedRows]
) -> dict[str, int]:
    mode = cdc_mode(context.properties)
    if mode is None:
        return {}
    size = write_change_file(
        store,
        _path(context, assignment),
        changes(),
        mode=mode,
        instant=context.instant,
        table_schema=context.schema_text,
        settings=context.settings,
    )
    return {_BYTES: size}


def _path(context: WriteContext, assignment: FileAssignment) -> str:
    parsed = parse_base_file(assignment.file_name)
    token = f"{assignment.sequence}-0-0" if parsed is None else parsed.write_token
    return join_path(assignment.partition, cdc_file_name(assignment.file_id, context.instant, token))


def cdc_stats(context: WriteContext, assignment: FileAssignment, counts: Mapping[str, int]) -> dict[str, object]:
    """Return what the commit's entry for a base file says of its change file."""
    return {"cdcStats": {_path(context, assignment): counts[_BYTES]}} if _BYTES in counts else {}


def refuse_silent_rewrites(context: WriteContext) -> None:
    """Raise where rows would be changed without the change data that the table promises.

    Raises:
        UnsupportedFeature: the table captures changes.
    """
    if cdc_mode(context.properties) is not None:
        raise UnsupportedFeature(
            "hoodie.table.cdc.enabled=true: this repair would change rows in a way that change data cannot "
            "tell (they name keys: one of two rows with a key, or rows of a damaged file). Nothing was changed"
        )
