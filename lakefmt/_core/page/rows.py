"""What the page says of rows: a bounded read beside its explanation, changes between instants, schemas, statistics of columns."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from lakefmt._core.arrow_texts import cell_texts, json_texts
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.page.tables import PageTable
from lakefmt._core.timeline.instant import COMMIT_ACTIONS
from lakefmt._core.values import META_COLUMNS
from lakefmt.errors import LakefmtError, NotFoundError, StateError

__all__ = ["MOST_ROWS", "RowQuery", "change_facts", "column_facts", "explain_facts", "row_facts", "schema_facts"]

Facts = dict[str, Any]

MOST_ROWS: Final = 1000
#: A read that finds few rows in a large table ends after this many seconds, and says so.
_READ_SECONDS: Final = 10.0
_MOST_CELL: Final = 300
_MOST_JSON_CELL: Final = 64 << 10
#: Files whose footers statistics of columns are taken from.
_MOST_FOOTERS: Final = 64
#: Reads of rows that go on at a time: each may hold a row group per file.
_READS: Final = threading.BoundedSemaphore(2)


@dataclass(frozen=True, slots=True)
class RowQuery:
    """Which rows are read.

    Attributes:
        where: SQL text; empty: all rows.
        columns: their names; empty: all.
        limit: how many rows.
        as_of: an instant or ISO text; empty: now.
        meta_columns: with the ``_hoodie_*`` columns.
    """

    where: str = ""
    columns: tuple[str, ...] = ()
    limit: int = 50
    as_of: str = ""
    meta_columns: bool = False


def row_facts(table: PageTable, query: RowQuery) -> Facts:
    """Return at most :data:`MOST_ROWS` rows, each value as JSON text; the read stops at a time limit.

    Raises:
        LakefmtError: the filter, a column or the moment is not valid.
    """
    limit = max(0, min(query.limit, MOST_ROWS))
    opened, clock = table.table, table.client.time_source
    if not _READS.acquire(timeout=_READ_SECONDS):
        raise StateError("other reads of this page are at work: try again")
    try:
        reader = opened.scan(
            list(query.columns) or None,
            query.where or None,
            query.as_of or None,
            meta_columns=query.meta_columns,
            limit=limit,
        )
        until = clock.monotonic() + _READ_SECONDS
        batches: list[pa.RecordBatch] = []
        ended = True
        for batch in reader:
            batches.append(batch)
            if clock.monotonic() > until:
                ended = False
                break
    finally:
        _READS.release()
    rows = pa.Table.from_batches(batches, reader.schema).slice(0, limit)
    return {"ended": ended, **table_facts(rows)}


def table_facts(rows: pa.Table) -> Facts:
    """Return a small Arrow table: columns with types, and cells as people and as programs read them."""
    columns = [{"name": field.name, "type": str(field.type)} for field in rows.schema]
    return {
        "columns": columns,
        "num_rows": rows.num_rows,
        "cells": _by_row(
            [_texts(rows.column(i), cell_texts, _MOST_CELL) for i in range(rows.num_columns)], rows.num_rows
        ),
        "values": _by_row([_values(rows.column(i)) for i in range(rows.num_columns)], rows.num_rows),
    }


def _by_row(columns: Sequence[Sequence[object]], num_rows: int) -> list[list[object]]:
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in range(num_rows)]


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _texts(column: pa.ChunkedArray, texts: Any, widest: int) -> list[object]:
    try:
        return list(texts(_one_array(column), widest).to_pylist())
    except LakefmtError as error:
        return [str(error)] * len(column)


def _values(column: pa.ChunkedArray) -> list[object]:
    """Return the values of a column as texts of JSON."""
    try:
        texts = json_texts(_one_array(column)).to_pylist()
    except LakefmtError as error:
        return [str(error)] * len(column)
    return [text if len(text) <= _MOST_JSON_CELL else f"{text[:_MOST_JSON_CELL]}…" for text in texts]


def explain_facts(table: PageTable, query: RowQuery) -> Facts:
    """Return what the same read opens, and which step left out the rest.

    Raises:
        LakefmtError: the filter or the moment is not valid.
    """
    with table.alone():
        report = table.table.explain(query.where or None, query.as_of or None)
    steps = [
        {
            "name": step.name,
            "partitions": step.partitions,
            "file_groups": step.file_groups,
            "files": step.files,
            "bytes": step.size_bytes,
        }
        for step in report.steps
    ]
    unused = [{"name": index.name, "reason": index.reason} for index in report.unused]
    return {"instant": report.instant, "steps": steps, "unused": unused, "text": str(report)}


def change_facts(table: PageTable, start: str, end: str, limit: int) -> Facts:
    """Return what changed between two instants of a table, the later one included: numbers, and the first rows.

    Args:
        table: the table.
        start: the earlier instant; its own changes do not count.
        end: the later instant.
        limit: rows that are shown.

    Raises:
        NotFoundError: one of them is no commit of the timeline.
        LakefmtError: the files with the changes are gone.
    """
    first, last = sorted((_commit_keys(table, start), _commit_keys(table, end)))
    changed = table.table.changes(first[1], last[1]).replace_schema_metadata(None)
    counts = {entry["values"]: entry["counts"] for entry in changed.column("op").value_counts().to_pylist()}
    flat = changed.slice(0, max(0, min(limit, MOST_ROWS)))
    return {
        "start": first[2],
        "end": last[2],
        "num_changes": changed.num_rows,
        "inserts": counts.get("i", 0),
        "updates": counts.get("u", 0),
        "deletes": counts.get("d", 0),
        "rows": table_facts(flat),
    }


def _commit_keys(table: PageTable, time: str) -> tuple[str, str, str]:
    """Return what orders a commit, what a range of changes begins with, and its requested time."""
    table_at = table.at()
    commits = {str(i.time): i for i in table_at.timeline.commits}
    if time not in commits and table_at.has_history:
        commits = {str(i.time): i for i in table_at.with_history().timeline.commits}
    commit = commits.get(time)
    if commit is None or commit.action not in COMMIT_ACTIONS:
        raise NotFoundError(f"{time[:20]} is no completed commit of this table: mark two commits")
    return str(commit.order_time), str(commit.order_time), str(commit.time)


def schema_facts(table: PageTable) -> Facts:
    """Return the columns of a table with their ids, and the commits that changed them, newest first.

    Raises:
        LakefmtError: the table cannot be read.
    """
    table_at = table.at()
    keys = table_at.config.record_key_fields
    history = table_at.schema_history()
    ids = {} if history is None else {column.name: column.number for column in history.latest.columns}
    columns = [
        {
            "name": field.name,
            "type": str(field.type),
            "nullable": field.nullable,
            "id": ids.get(field.name),
            "is_key": field.name in (keys or ()),
        }
        for field in table_at.columns()
    ]
    with table.alone():
        changes = table.table.schema_history().to_pylist()
    return {"columns": columns, "has_ids": history is not None, "history": changes[::-1]}


def column_facts(table: PageTable) -> Facts:
    """Return statistics of columns from the footers of base files: nulls, least and largest value, bytes; of many files some.

    Raises:
        LakefmtError: the table cannot be read.
    """
    import pyarrow.parquet as pq

    bases = [each.base for each in table.slices() if each.base is not None]
    sums: dict[str, Facts] = {}
    rows = 0
    file_system, root = table.client.store.arrow_filesystem()
    problems: list[str] = []
    for base in bases[:_MOST_FOOTERS]:
        try:
            with file_system.open_input_file(f"{root}/{base.path}") as file:
                metadata = pq.ParquetFile(file).metadata
        except (OSError, pa.ArrowException) as error:
            problems.append(table.redact(f"{_short(base)}: {error}")[:_MOST_CELL])
            continue
        rows += metadata.num_rows
        _add_statistics(sums, metadata)
    for facts in sums.values():
        if facts.pop("is_unbounded", False):
            facts["least"] = facts["largest"] = None
    # The bounds as values may be large, and of any type.
    columns = [
        {key: value for key, value in facts.items() if key != "_range"}
        for name, facts in sums.items()
        if name not in META_COLUMNS
    ]
    return {
        "columns": columns,
        "rows": rows,
        "files": min(len(bases), _MOST_FOOTERS),
        "all_files": len(bases),
        "problems": problems,
    }


def _short(base: BaseFile) -> str:
    return base.path if len(base.path) < 120 else f"…{base.path[-120:]}"


def _add_statistics(sums: dict[str, Facts], metadata: Any) -> None:
    """Add what the row groups of a file say of their columns."""
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for column_number in range(row_group.num_columns):
            chunk = row_group.column(column_number)
            facts = sums.setdefault(
                chunk.path_in_schema,
                {
                    "name": chunk.path_in_schema,
                    "nulls": 0,
                    "bytes": 0,
                    "plain_bytes": 0,
                    "least": None,
                    "largest": None,
                    "known": True,
                },
            )
            facts["bytes"] += chunk.total_compressed_size
            facts["plain_bytes"] += chunk.total_uncompressed_size
            statistics = chunk.statistics if chunk.is_stats_set else None
            if statistics is None or not statistics.has_null_count:
                facts["known"] = False
            else:
                facts["nulls"] += statistics.null_count
            if statistics is not None and statistics.has_min_max:
                try:
                    least, largest = statistics.min, statistics.max
                except (OverflowError, ValueError):
                    facts["is_unbounded"] = True  # a date outside of Python's years
                else:
                    _widen(facts, least, largest)


def _widen(facts: Facts, least: Any, largest: Any) -> None:
    try:
        known = facts.get("_range")
        facts["_range"] = (least, largest) if known is None else (min(known[0], least), max(known[1], largest))
    except TypeError:
        return  # files of different types of one column
    facts["least"], facts["largest"] = (str(value)[:_MOST_CELL] for value in facts["_range"])
