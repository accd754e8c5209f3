"""Which files of a file group of the metadata table belong together: its newest file slice. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakefmt.data_classes import dataclass
from lakefmt.metadata.layout import MetadataFileName
from lakefmt.metadata.timeline import MetadataTimeline

__all__ = ["MetadataSlice", "instants_of_bases", "newest_slices"]


@dataclass(frozen=True, slots=True)
class MetadataSlice:
    """A base file and the logs on top of it.

    Attributes:
        file_id: the file group.
        base: the base file; None while there are logs only.
        logs: oldest first.
    """

    file_id: str
    base: MetadataFileName | None
    logs: tuple[MetadataFileName, ...]


def newest_slices(
    files: Iterable[MetadataFileName], timeline: MetadataTimeline, layout: int
) -> dict[str, MetadataSlice]:
    """Return the newest file slice of every file group.

    A log of layout 2 belongs to the last base file whose instant is not later than the log's completion; one of layout 1
    names the base file's instant. Files of instants that are not complete do not count.

    Parameters:
        files: of one partition of the metadata table.
        timeline: the metadata table's.
        layout: its timeline layout, 1 or 2.
    """
    groups: dict[str, list[MetadataFileName]] = {}
    for file in files:
        groups.setdefault(file.file_id, []).append(file)
    return {file_id: _newest(file_id, own, timeline, layout) for file_id, own in sorted(groups.items())}


def instants_of_bases(slices: Mapping[str, MetadataSlice]) -> dict[str, str]:
    """Return the instant of the base file of each file slice, by file group; the empty text for none."""
    return {file_id: "" if each.base is None else each.base.instant for file_id, each in slices.items()}


def _newest(file_id: str, files: list[MetadataFileName], timeline: MetadataTimeline, layout: int) -> MetadataSlice:
    def completion(file: MetadataFileName) -> str | None:
        return timeline.completion_of(file.instant)

    bases = [file for file in files if file.version is None and completion(file) is not None]
    base = max(bases, key=lambda file: (file.instant, file.write_token), default=None)
    logs = [(completion(file), file) for file in files if file.version is not None]
    if layout == 1:
        begins = base.instant if base is not None else min((file.instant for _, file in logs), default="")
        chosen = [file for _, file in logs if file.instant == begins]
        return MetadataSlice(file_id, base, tuple(sorted(chosen, key=lambda file: (file.version or 0, file.name))))
    since = "" if base is None else base.instant
    placed = [(done, file) for done, file in logs if done is not None and done >= since]
    placed.sort(key=lambda pair: (pair[0], pair[1].version or 0, pair[1].write_token))
    return MetadataSlice(file_id, base, tuple(file for _, file in placed))
