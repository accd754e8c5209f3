"""What a table consists of as Arrow tables: its files, partitions and schemas; of its instants ``stats`` tells."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.timeline.commit import SCHEMA_KEY

__all__ = ["files_table", "partitions_table", "schema_history_table"]

_FILES: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("instant", pa.string()),
        ("base_file", pa.string()),
        ("base_bytes", pa.int64()),
        ("log_files", pa.list_(pa.string())),
        ("log_bytes", pa.int64()),
    ]
)
_PARTITIONS: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("num_file_groups", pa.int64()),
        ("num_log_files", pa.int64()),
        ("bytes", pa.int64()),
        ("newest_instant", pa.string()),
    ]
)
_SCHEMAS: Final = pa.schema(
    [
        ("instant", pa.string()),
        ("operation", pa.string()),
        ("columns", pa.list_(pa.string())),
        ("types", pa.list_(pa.string())),
        ("added", pa.list_(pa.string())),
        ("dropped", pa.list_(pa.string())),
        ("changed", pa.list_(pa.string())),
    ]
)


def files_table(slices: list[FileSlice]) -> pa.Table:
    """Return the file slices of a table, one row each."""
    columns = [
        [str(each.partition) for each in slices],
        [str(each.file_id) for each in slices],
        [each.instant for each in slices],
        [None if each.base is None else each.base.path for each in slices],
        [0 if each.base is None else each.base.size for each in slices],
        [[log.path for log in each.logs] for each in slices],
        [sum(log.size for log in each.logs) for each in slices],
    ]
    return _table(columns, _FILES)


def partitions_table(slices: list[FileSlice]) -> pa.Table:
    """Return the partitions of a table that hold file slices, one row each, by path."""
    by_path: dict[str, list[FileSlice]] = {}
    for each in slices:
        by_path.setdefault(str(each.partition), []).append(each)
    paths = sorted(by_path)
    columns = [
        paths,
        [len(by_path[path]) for path in paths],
        [sum(len(each.logs) for each in by_path[path]) for path in paths],
        [sum(each.size_bytes for each in by_path[path]) for path in paths],
        [max(time for each in by_path[path] for time in _instants(each)) for path in paths],
    ]
    return _table(columns, _PARTITIONS)


def schema_history_table(table_at: TableAt) -> pa.Table:
    """Return the commits that changed the columns of a table, oldest first, the first commit included; the archive is read.

    Raises:
        CorruptFile: a commit or the archive is damaged.
    """
    table_at = table_at.with_history()
    rows: list[tuple[object, ...]] = []
    before: dict[str, str] = {}
    text_before = ""
    for commit in table_at.timeline.commits:
        metadata = table_at.commit_metadata(commit)
        text = metadata.extra_metadata.get(SCHEMA_KEY, "")
        if not text or text == text_before:
            continue
        text_before = text
        columns = {field.name: str(field.type) for field in table_at.client.cache.parse_schema(text)}
        if columns == before and rows:
            continue
        added, dropped = [n for n in columns if n not in before], [n for n in before if n not in columns]
        changed = [n for n in columns if before.get(n, columns[n]) != columns[n]]
        operation = metadata.operation.value.lower()
        rows.append((commit.time, operation, list(columns), list(columns.values()), added, dropped, changed))
        before = columns
    return _table([list(column) for column in zip(*rows, strict=True)] or [[] for _ in _SCHEMAS], _SCHEMAS)


def _table(columns: list[list[object]] | list[object], schema: pa.Schema) -> pa.Table:
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _instants(file_slice: FileSlice) -> list[str]:
    return [file_slice.instant, *(log.instant for log in file_slice.logs)]
