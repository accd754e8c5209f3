"""What the page says of files: partitions by size, file groups with their slices, and what services would take of them now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from lakefmt._core.config.settings import Settings, resolve_settings
from lakefmt._core.config.table_config import KIND
from lakefmt._core.data_classes import dataclass
from lakefmt._core.drawing import Picture, Tile, layout_picture
from lakefmt._core.filegroups.model import FileSlice, all_slices
from lakefmt._core.filegroups.table_client import TableAt
from lakefmt._core.page.tables import PageTable
from lakefmt._core.values import PartitionPath, TableType, size_text
from lakefmt.errors import CorruptFile, LakefmtError, NotFoundError, SnapshotExpired

__all__ = [
    "MEASURES",
    "PartitionList",
    "file_facts",
    "layout_svg",
    "partition_facts",
    "plan_facts",
    "printed_plan",
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
