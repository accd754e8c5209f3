"""The files of a queue in the order of their rows: of each bucket as its commits completed (effects: reads the archive)."""

from __future__ import annotations

from collections.abc import Iterable

from lakefmt.filegroups.model import FileSlice
from lakefmt.filegroups.table_client import TableAt
from lakefmt.formats.names import queue_position_of

__all__ = ["in_queue_order"]


def in_queue_order(table_at: TableAt, slices: Iterable[FileSlice]) -> list[FileSlice]:
    """Return slices so that the rows of each bucket come in their order; of a table that is no queue as they are.

    A file id tells when the commit of its first rows was requested. Commits that were requested earlier may complete later.

    Args:
        table_at: the table, at one moment.
        slices: of any partitions and buckets.
    """
    given = list(slices)
    firsts = [queue_position_of(each.file_id) for each in given]
    if not any(firsts):
        return given
    timeline = table_at.timeline
    if not all(first is None or timeline.tells_completion_of(first[0]) for first in firsts):
        timeline = table_at.with_history().timeline
    places = [
        (timeline.completion_of(each.instant), 0) if first is None else (timeline.completion_of(first[0]), first[1])
        for each, first in zip(given, firsts, strict=True)
    ]
    return [given[number] for number in sorted(range(len(given)), key=places.__getitem__)]
