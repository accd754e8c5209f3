"""What the page says of files and rows: partitions, file groups, a bounded read and its explanation, changes, schemas, statistics."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from lakefmt._core.arrow_texts import cell_texts, json_texts
from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.config.table_config import KIND
from lakefmt._core.data_classes import dataclass
from lakefmt._core.drawing import Picture, Tile, layout_picture
from lakefmt._core.filegroups.model import BaseFile, FileSlice, all_slices
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.page.tables import PageTable
from lakefmt._core.timeline.instant import COMMIT_ACTIONS
from lakefmt._core.values import META_COLUMNS, PartitionPath, TableType, size_text
from lakefmt.errors import CorruptFile, LakefmtError, NotFoundError, SnapshotExpired, StateError

__all__ = [
    "MEASURES",
    "MOST_ROWS",
    "PartitionList",
    "RowQuery",
    "change_facts",
    "column_facts",
    "explain_facts",
    "file_facts",
    "layout_svg",
    "partition_facts",
    "plan_facts",
    "printed_plan",
    "row_facts",
    "schema_facts",
    "service_plans",
    "size_facts",
]

Facts = dict[str, Any]

#: What the area of a partition, and the order of the list, may say.
MEASURES: Final = ("bytes", "file_groups", "log_bytes", "partition")
#: File groups up to which rows are counted, one footer each.
_MOST_COUNTED: Final = 500
#: Steps of a plan that are shown; their number is told in any case.
_MOST_STEPS: Final = 200
_MOST_STEP_TEXT: Final = 400


@dataclass(frozen=True, slots=True)
class PartitionList:
    """Which partitions, or file groups of one, are listed.

    Attributes:
        by: one of :data:`MEASURES`.
        offset: of the first one.
        limit: how many.
        contains: only partitions whose path has this text.
    """

    by: str = "bytes"
    offset: int = 0
    limit: int = 50
    contains: str = ""


@dataclass(slots=True)
class _PartitionSize:
    """The content of a partition."""

    file_groups: int = 0
    log_files: int = 0
    bytes: int = 0
    log_bytes: int = 0
    small: int = 0
    oversized: int = 0
    newest: str = ""


def _settings(table: PageTable, table_at: TableAt) -> Settings:
    return resolve_settings({}, table.client.options, table_at.config.properties)


def _limits(table: PageTable, table_at: TableAt) -> tuple[int, int]:
    """Return below which size a base file is small, and above which it is oversized."""
    settings = _settings(table, table_at)
    most = settings.integer("hoodie.parquet.max.file.size")
    # Without filling of small files the limit is zero; a file below a quarter of the target is small all the same.
    return settings.integer("hoodie.parquet.small.file.limit") or most // 4, most * 3 // 2


def _sizes(table: PageTable) -> dict[str, _PartitionSize]:
    """Return what each partition holds; computed once per state of the table."""
    slices = table.slices()
    known = table.remembered.get("sizes")
    if known is not None and known[0] is slices:
        return dict(known[1])
    small, oversized = _limits(table, table.at())
    sizes: dict[str, _PartitionSize] = {}
    for each in slices:
        size = sizes.setdefault(str(each.partition), _PartitionSize())
        base = 0 if each.base is None else each.base.size
        log_bytes = sum(log.size for log in each.logs) if each.logs else 0
        size.file_groups += 1
        size.log_files += len(each.logs)
        size.bytes += base + log_bytes
        size.log_bytes += log_bytes
        size.small += each.base is not None and base < small
        size.oversized += base > oversized
        size.newest = max(size.newest, str(each.logs[-1].instant if each.logs else each.instant))
    table.remembered["sizes"] = (slices, sizes)
    return sizes


def size_facts(table: PageTable) -> Facts:
    """Return how large the table is: of its latest file slices, rows apart.

    Raises:
        LakefmtError: the table cannot be read.
    """
    sizes = _sizes(table).values()
    groups = sum(size.file_groups for size in sizes)
    return {
        "rows": _all_rows(table) if groups <= _MOST_COUNTED else None,
        "partitions": len(sizes),
        "file_groups": groups,
        "log_files": sum(size.log_files for size in sizes),
        "bytes": sum(size.bytes for size in sizes),
        "log_bytes": sum(size.log_bytes for size in sizes),
        "small": sum(size.small for size in sizes),
        "oversized": sum(size.oversized for size in sizes),
    }


def file_facts(table: PageTable, query: PartitionList) -> Facts:
    """Return the partitions of a table with what they hold, and the sum of all.

    Raises:
        LakefmtError: the table cannot be read.
    """
    sizes = _sizes(table)
    small, oversized = _limits(table, table.at())
    matches = [(path, size) for path, size in sizes.items() if query.contains in path]
    order: Callable[[tuple[str, _PartitionSize]], Any] = (
        (lambda pair: pair[0])
        if query.by == "partition"
        else (lambda pair: (-int(getattr(pair[1], query.by)), pair[0]))
    )
    matches.sort(key=order)
    page = matches[query.offset : query.offset + query.limit]
    return {
        "total": size_facts(table),
        "matching": len(matches),
        "offset": query.offset,
        "by": query.by,
        "small_bytes": small,
        "oversized_bytes": oversized,
        "partitions": [_size_facts(path, size) for path, size in page],
    }


def _size_facts(path: str, size: _PartitionSize) -> Facts:
    return {
        "partition": path,
        "file_groups": size.file_groups,
        "log_files": size.log_files,
        "bytes": size.bytes,
        "log_bytes": size.log_bytes,
        "small": size.small,
        "oversized": size.oversized,
        "newest": size.newest,
    }


def layout_svg(table: PageTable, by: str, width: int, link: Callable[[str], str]) -> Picture:
    """Return the treemap of a table's partitions; of a table without partitions that of its file groups.

    Args:
        table: the table.
        by: one of :data:`MEASURES`.
        width: of the picture in CSS pixels.
        link: returns the address of a partition.
    """
    sizes = _sizes(table)
    height = 380 if width >= 600 else 300
    if set(sizes) == {""}:
        tiles = [_slice_tile(each, link("")) for each in table.slices()]
        return layout_picture(tiles, f"{len(tiles):,} file groups by bytes", width=width, height=height)
    measure = by if by in MEASURES[:3] else "bytes"
    words = {"bytes": "bytes", "file_groups": "file groups", "log_bytes": "bytes in logs"}[measure]
    tiles = [
        Tile(
            path or "(no partition)",
            float(getattr(size, measure)),
            size_text(size.bytes) if measure == "bytes" else f"{getattr(size, measure):,} {words}",
            size.log_bytes / size.bytes if size.bytes else 0.0,
            link(path),
        )
        for path, size in sizes.items()
    ]
    return layout_picture(tiles, f"{len(tiles):,} partitions by {words}", width=width, height=height)


def _slice_tile(each: FileSlice, href: str) -> Tile:
    size = each.size_bytes
    logs = sum(log.size for log in each.logs)
    return Tile(str(each.file_id), float(size), size_text(size), logs / size if size else 0.0, href)


def partition_facts(table: PageTable, partition: str, query: PartitionList) -> Facts:
    """Return the file groups of a partition, the largest first, each with its slices over time and the rows of the latest.

    Raises:
        NotFoundError: the table has no such partition with files.
    """
    sizes = _sizes(table)
    if partition not in sizes:
        raise NotFoundError(f"no partition {partition[:200]!r} with files")
    table_at = table.at()
    path = PartitionPath(partition)
    bases, logs = table_at.listing().files([path])
    bases = table_at.without_lost_attempts(bases)
    latest = {each.file_id: each for each in table.slices() if each.partition == path}
    history: dict[str, list[FileSlice]] = {}
    for each in all_slices(bases, logs, table_at.slicing(bases, logs)):
        history.setdefault(str(each.file_id), []).append(each)
    groups = sorted(latest.values(), key=lambda each: (-each.size_bytes, each.file_id))
    small, oversized = _limits(table, table_at)
    page = groups[query.offset : query.offset + query.limit]
    return {
        **_size_facts(partition, sizes[partition]),
        "offset": query.offset,
        "matching": len(groups),
        "groups": [_group_facts(table_at, each, history, small, oversized) for each in page],
        "replaced": len(set(history) - {str(file_id) for file_id in latest}),
    }


def _group_facts(
    table_at: TableAt, latest: FileSlice, history: Mapping[str, Sequence[FileSlice]], small: int, oversized: int
) -> Facts:
    base = 0 if latest.base is None else latest.base.size
    slices = history.get(str(latest.file_id), [latest])
    return {
        "file_id": str(latest.file_id),
        "bytes": latest.size_bytes,
        "rows": _rows(table_at, latest),
        "mark": "small" if latest.base is not None and base < small else "oversized" if base > oversized else "",
        "slices": [
            {
                "instant": str(each.instant),
                "base": None if each.base is None else {"file": each.base.name, "bytes": each.base.size},
                "logs": [{"file": log.name, "bytes": log.size, "instant": str(log.instant)} for log in each.logs[:50]],
                "num_logs": len(each.logs),
                "bytes": each.size_bytes,
            }
            for each in reversed(slices[-50:])
        ],
        "num_slices": len(slices),
    }


def _all_rows(table: PageTable) -> int | None:
    """Return the rows of the latest base files, from their footers; None: one of them cannot be read."""
    known = table.remembered.get("rows")
    slices = table.slices()
    if known is None or known[0] is not slices:
        rows = [_rows(table.at(), each) for each in slices if each.base is not None]
        known = (slices, None if None in rows else sum(row or 0 for row in rows))
        table.remembered["rows"] = known
    return known[1]


def _rows(table_at: TableAt, latest: FileSlice) -> int | None:
    """Return the rows of a base file; None: there is none, or it cannot be read."""
    if latest.base is None:
        return None
    try:
        return int(table_at.client.reader.footer(latest.base).num_rows)
    except (CorruptFile, SnapshotExpired, OSError):
        return None


# --- what services would do ---------------------------------------------------------------------------------------


def service_plans(table: PageTable) -> dict[str, Callable[[], object]]:
    """Return the services that a table may have, with what plans each of them; nothing is changed by a plan."""
    config = table.at().config
    opened = table.table
    plans: dict[str, Callable[[], object]] = {"clean": lambda: opened.clean(dry_run=True).plan}
    if config.table_type is TableType.MERGE_ON_READ:
        plans["compaction"] = lambda: opened.compact(dry_run=True).plan
    plans["packing" if config.properties.get(KIND) == "append" else "clustering"] = lambda: (
        opened.cluster(dry_run=True).plan
    )
    plans["archive"] = lambda: opened.archive(dry_run=True).plan
    return plans


def plan_facts(table: PageTable, services: Iterable[str] | None = None) -> list[Facts]:
    """Return what services would do now: their plans, as they print.

    Args:
        table: the table.
        services: their names; None: all.
    """
    plans = []
    for name, plan in service_plans(table).items():
        if services is None or name in services:
            try:
                with table.alone():
                    plans.append(printed_plan(name, plan()))
            except LakefmtError as error:
                plans.append(
                    {"service": name, "title": "", "steps": [], "num_steps": 0, "problem": table.redact(str(error))}
                )
    return plans


def printed_plan(name: str, plan: object) -> Facts:
    r"""Return a plan as its title and steps.

    Example:
        >>> printed_plan("clean", "delete 2 files\n  a\n  b")["steps"]
        ['a', 'b']
    """
    title, *steps = str(plan).split("\n")
    printed_steps = [step.strip()[:_MOST_STEP_TEXT] for step in steps[:_MOST_STEPS]]
    return {"service": name, "title": title, "steps": printed_steps, "num_steps": len(steps), "problem": ""}


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
