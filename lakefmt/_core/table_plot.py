"""``table.plot``: pictures of a table as values, which notebooks show and files take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from lakefmt._core.arguments import check_flags, number_argument, text_argument
from lakefmt._core.drawing import (
    LANES,
    Bar,
    CommitCost,
    Picture,
    Tile,
    TimelineSpan,
    cost_picture,
    layout_picture,
    timeline_picture,
)
from lakefmt._core.filegroups.model import FileSlice
from lakefmt._core.filegroups.table_client import TableClient
from lakefmt._core.notebook import facts_html, text_html
from lakefmt._core.read.stats import TimelineEntry, TimelineView
from lakefmt._core.timeline.instant import parse_instant_time
from lakefmt._core.values import size_text
from lakefmt.errors import InvalidInputError, LakefmtError

__all__ = ["TablePlot", "table_html"]

_MEASURES: Final = ("bytes", "file_groups", "log_bytes")


class TablePlot:
    """The pictures of a table: SVG without scripts, in colours for light and dark.

    Example:
        >>> import lakefmt, pyarrow as pa
        >>> t = lakefmt.create_table("memory://doc-plot", data=pa.table({"id": ["a"]}), record_key="id")
        >>> _ = t.insert(pa.table({"id": ["a", "b"]}))
        >>> print(t.plot.timeline())
        Timeline: 1 instants
    """

    def __init__(self, client: TableClient) -> None:
        self._client = client

    def timeline(self, *, archived: bool = False, limit: int | None = 200, width: int = 960) -> Picture:
        """Return the picture of the newest instants: a lane per action, a bar from request to completion.

        Args:
            archived: also those in the archive.
            limit: how many; None: all.
            width: in CSS pixels.

        Raises:
            InvalidInputError: an argument is not valid.
            CorruptFile: a body of the timeline is damaged.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-plot-timeline", data=pa.table({"id": ["a"]}), record_key="id")
            >>> _ = t.insert(pa.table({"id": ["a", "b"]}))
            >>> "2 inserted" in t.plot.timeline().svg
            True
        """
        check_flags(archived=archived)
        wide = int(number_argument(width, "width", least=280))
        view = TimelineView.load(self._client, archived=archived, limit=limit)
        zone = self._client.reading_zone(self._client.known_config) or datetime.now().astimezone().tzinfo or UTC
        bars = [_bar(entry, parse_instant_time(entry.time, zone).timestamp()) for entry in view]
        if not bars:
            return timeline_picture([], [], TimelineSpan(0.0, 1.0, zone, str(zone), wide), "Timeline: no instants")
        start, end = bars[0].start, max(bar.end or bar.start for bar in bars)
        edge = max(end - start, 1.0) * 0.02
        span = TimelineSpan(start - edge, end + edge, zone, str(zone), wide)
        return timeline_picture(bars, [], span, f"Timeline: {len(bars):,} instants")

    def layout(self, by: str = "bytes", *, width: int = 960) -> Picture:
        """Return the picture of the partitions, or of the file groups of a table without partitions, by their size.

        Args:
            by: what the area says: ``"bytes"``, ``"file_groups"`` or ``"log_bytes"``.
            width: in CSS pixels.

        Raises:
            InvalidInputError: an argument is not valid.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> data = pa.table({"id": ["a", "b"], "city": ["sf", "oslo"]})
            >>> t = lakefmt.create_table("memory://doc-plot-layout", data=data, record_key="id", partition_by="city")
            >>> _ = t.insert(data)
            >>> print(t.plot.layout())
            2 partitions by bytes
        """
        if text_argument(by, "by") not in _MEASURES:
            raise InvalidInputError(f"by takes one of {', '.join(_MEASURES)}, not {by!r:.60}")
        wide = int(number_argument(width, "width", least=280))
        slices = self._client.at(self._client.load()).slices()
        by_path: dict[str, list[FileSlice]] = {}
        for each in slices:
            by_path.setdefault(str(each.partition), []).append(each)
        words = by.replace("_", " ")
        if set(by_path) == {""}:
            tiles = [_tile(str(each.file_id), [each], by) for each in slices]
            return layout_picture(tiles, f"{len(tiles):,} file groups by {words}", width=wide)
        tiles = [_tile(path, members, by) for path, members in by_path.items()]
        return layout_picture(tiles, f"{len(tiles):,} partitions by {words}", width=wide)

    def write_cost(self, *, limit: int = 100, width: int = 960) -> Picture:
        """Return the picture of what the newest commits wrote and how long they took, services among them.

        Args:
            limit: how many instants are looked at.
            width: in CSS pixels.

        Raises:
            InvalidInputError: an argument is not valid.
            CorruptFile: a body of the timeline is damaged.

        Example:
            >>> import lakefmt, pyarrow as pa
            >>> t = lakefmt.create_table("memory://doc-plot-cost", data=pa.table({"id": ["a"]}), record_key="id")
            >>> _ = t.insert(pa.table({"id": ["a", "b"]}))
            >>> print(t.plot.write_cost())
            What 1 commits wrote
        """
        most = int(number_argument(limit, "limit", least=1))
        wide = int(number_argument(width, "width", least=280))
        costs = [
            CommitCost(
                entry.time,
                entry.operation,
                entry.bytes_written,
                entry.seconds,
                entry.inserts + entry.updates + entry.deletes,
            )
            for entry in TimelineView.load(self._client, limit=most)
            if entry.operation
        ]
        return cost_picture(costs, f"What {len(costs):,} commits wrote", width=wide)


def table_html(client: TableClient, title: str) -> str:
    """Return what a notebook shows of a table; one that cannot be read says why.

    Args:
        client: the table.
        title: above it.
    """
    try:
        table_at = client.at()
        config, timeline, latest = table_at.config, table_at.timeline, table_at.timeline.latest_commit
        facts = [
            ("type", config.table_type.value),
            ("version", config.version.value),
            ("record key", ", ".join(config.record_key_fields or ()) or "none"),
            ("commits", f"{len(timeline.commits):,}"),
            ("pending", f"{len(timeline.pending):,}"),
            ("newest commit", "none" if latest is None else latest.time),
        ]
        return facts_html(title, facts, TablePlot(client).timeline(limit=60).svg)
    except LakefmtError as error:
        return text_html(title, str(error))


def _bar(entry: TimelineEntry, start: float) -> Bar:
    end = None if entry.seconds is None else start + entry.seconds
    counts = (("inserted", entry.inserts), ("updated", entry.updates), ("deleted", entry.deletes))
    parts = [f"{entry.operation or entry.action} {entry.time}", *(f"{n:,} {verb}" for verb, n in counts if n)]
    parts += [size_text(entry.bytes_written)] if entry.bytes_written else []
    parts += [f"{entry.seconds:.3f} s"] if entry.seconds is not None else []
    state = "failed" if entry.failed else entry.state
    lane = entry.action if entry.action in LANES else "commit"
    return Bar(entry.time, lane, start, end, entry.operation, state, "; ".join(parts), archived=entry.archived)


def _tile(name: str, slices: Sequence[FileSlice], by: str) -> Tile:
    size = sum(each.size_bytes for each in slices)
    log_bytes = sum(log.size for each in slices for log in each.logs)
    value = {"bytes": size, "file_groups": len(slices), "log_bytes": log_bytes}[by]
    label = f"{value:,} file groups" if by == "file_groups" else size_text(value)
    return Tile(name, float(value), label, log_bytes / size if size else 0.0)
