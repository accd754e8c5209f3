"""Which commits a stream hands out, in which parts, and in which order. Pure.

A step is one commit. Within a step, partitions come in the order of their creation, or of their values; the parts of one
bucket come in the order of the commit. Commits of table services change no row and give no part; those that overwrite
give parts only on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lakefmt._core.consumers.position import part_key
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile
from lakefmt._core.formats.names import has_bucket_number, parse_base_file, parse_log_file, queue_bucket_of
from lakefmt._core.read.changes import ChangeSource, changing_sources
from lakefmt._core.read.incremental import is_rewrite
from lakefmt._core.timeline.commit import CommitMetadata, watermark_of
from lakefmt._core.timeline.consumers import next_watermark
from lakefmt._core.timeline.instant import Action, Instant
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import FileId, InstantTime, PartitionPath, WriteOperation

__all__ = [
    "StreamPart",
    "StreamStep",
    "bucket_number",
    "changed_parts",
    "cut_at_watermark",
    "gives_rows",
    "lanes_of",
    "ordered_parts",
    "partition_order",
    "slice_parts",
    "split_by_drift",
    "with_watermarks",
    "written_parts",
]

_OVERWRITES = frozenset(
    {WriteOperation.INSERT_OVERWRITE, WriteOperation.INSERT_OVERWRITE_TABLE, WriteOperation.DELETE_PARTITION}
)


@dataclass(frozen=True, slots=True)
class StreamPart:
    """What is read at once: the rows of one commit in one file group.

    Attributes:
        key: names it in positions.
        partition: its partition path.
        file_id: its file group; "" for changes of several.
        bucket: the number of its bucket; None without a bucket index.
        file_slice: the files that the rows are in; None for changes.
        adds_only: every row of the files is new.
        sources: where the changes are, for tables with record keys.
    """

    key: str
    partition: str
    file_id: str
    bucket: int | None = None
    file_slice: FileSlice | None = None
    adds_only: bool = True
    sources: tuple[ChangeSource, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamStep:
    """One commit as a stream sees it.

    Attributes:
        instant: the commit.
        parts: what it hands out, in order.
        watermark: in milliseconds; None: neither it nor an earlier commit has one.
        num_bytes: the bytes of its files.
        is_hidden: it hands out nothing.
    """

    instant: Instant
    parts: tuple[StreamPart, ...] = ()
    watermark: int | None = None
    num_bytes: int = 0
    is_hidden: bool = False


def bucket_number(file_id: str) -> int | None:
    """Return the bucket of a file group; None without one.

    Example:
        >>> bucket_number("00000012-1a2b-4c3d-8e9f-012345678901-0"), bucket_number("f-0")
        (12, None)
    """
    return int(file_id[:8]) if has_bucket_number(file_id) else queue_bucket_of(file_id)


def gives_rows(instant: Instant, commit: CommitMetadata, *, overwrites: bool) -> bool:
    """Return whether a commit hands out rows.

    Args:
        instant: the commit.
        commit: its metadata.
        overwrites: hand out what overwrites wrote, too.

    Example:
        >>> done = Instant("20260101000000000", Action.COMMIT, "completed")
        >>> gives_rows(done, CommitMetadata(WriteOperation.COMPACT), overwrites=True)
        False
    """
    if is_rewrite(commit):
        return False
    replaces = commit.operation in _OVERWRITES or instant.action is Action.REPLACE_COMMIT
    return overwrites or not replaces


def written_parts(instant: Instant, commit: CommitMetadata) -> list[StreamPart]:
    """Return the parts of a commit of a table without record keys, in the order of its stats."""
    parts: dict[tuple[PartitionPath, FileId], StreamPart] = {}
    for stat in commit.stats:
        if not stat.path:
            continue
        base, log = parse_base_file(stat.file_name), parse_log_file(stat.file_name)
        if base is not None:
            file = BaseFile(
                stat.partition_path,
                stat.file_name,
                base.file_id,
                base.write_token,
                base.instant,
                stat.file_size_in_bytes,
            )
            files = FileSlice(stat.partition_path, base.file_id, base.instant, file)
            adds_only = stat.prev_commit == "null"
        elif log is not None and not log.is_cdc:
            written = LogFile(
                stat.partition_path, stat.file_name, log.file_id, log.instant, log.version, stat.file_size_in_bytes
            )
            files = FileSlice(stat.partition_path, log.file_id, log.instant, None, (written,))
            adds_only = False
        else:
            continue
        place = (files.partition, files.file_id)
        earlier = parts.get(place)
        if earlier is not None and earlier.file_slice is not None:
            files = _joined(earlier.file_slice, files)
        parts[place] = StreamPart(
            part_key(instant.time, *place), *place, bucket_number(files.file_id), files, adds_only and earlier is None
        )
    return list(parts.values())


def _joined(file_slice: FileSlice, more: FileSlice) -> FileSlice:
    logs = tuple(sorted({*file_slice.logs, *more.logs}, key=lambda log: (log.instant, log.version, log.name)))
    return replace(file_slice, base=more.base or file_slice.base, logs=logs)


def changed_parts(
    timeline: Timeline, instant: Instant, commit: CommitMetadata, replaced: Mapping[tuple[str, str], InstantTime]
) -> list[StreamPart]:
    """Return the parts of a commit of a table with record keys: changes, by file group.

    A commit that deletes rows and writes several partitions may have moved keys between them. It is one part, in which
    deletes come first.
    """
    sources = changing_sources(timeline, instant, commit, replaced)
    places = {source.partition for source in sources}
    deletes = bool(commit.replaced_file_ids) or any(stat.num_deletes for stat in commit.stats)
    if len(sources) > 1 and deletes and (len(places) > 1 or commit.replaced_file_ids):
        partition = next(iter(places)) if len(places) == 1 else ""
        return [StreamPart(part_key(instant.time, "", "*"), partition, "", sources=tuple(sources))]
    return [
        StreamPart(
            part_key(instant.time, source.partition, f"{source.file_id} {source.case.value}"),
            source.partition,
            source.file_id,
            bucket_number(source.file_id),
            sources=(source,),
        )
        for source in sources
    ]


def slice_parts(time: str, slices: Iterable[FileSlice]) -> list[StreamPart]:
    """Return the parts of a table as of a moment."""
    return [
        StreamPart(
            part_key(f"as of {time}", each.partition, each.file_id),
            each.partition,
            each.file_id,
            bucket_number(each.file_id),
            each,
        )
        for each in slices
    ]


def partition_order(
    values: Mapping[str, tuple[Any, ...] | None], created: Mapping[str, str], *, by_value: bool
) -> dict[str, int]:
    """Return the rank of each partition in a step.

    Args:
        values: partition path → its typed values; None where the path does not tell them.
        created: partition path → when its first commit completed.
        by_value: the smaller value first, null before every value; else the partition created earlier.

    Example:
        >>> values = {"n=10": (10,), "n=9": (9,), "n=x": (None,)}
        >>> partition_order(values, {}, by_value=True)
        {'n=x': 0, 'n=9': 1, 'n=10': 2}
    """

    def key(path: str) -> tuple[Any, ...]:
        if not by_value:
            return (created.get(path, "9" * 17), path)
        parsed = values[path]
        if parsed is None:
            return (1, path)
        return (0, *((value is not None, value if value is not None else 0) for value in parsed), path)

    try:
        ordered = sorted(values, key=key)
    except TypeError:  # values of several types: the paths decide
        ordered = sorted(values)
    return {path: rank for rank, path in enumerate(ordered)}


def ordered_parts(parts: Sequence[StreamPart], ranks: Mapping[str, int]) -> list[StreamPart]:
    """Return the parts of a step by partition and bucket; those of one bucket keep their order.

    Example:
        >>> two = [StreamPart("k2", "p", "b", 1), StreamPart("k1", "p", "a", 0)]
        >>> [part.key for part in ordered_parts(two, {"p": 0})]
        ['k1', 'k2']
    """
    return sorted(parts, key=lambda part: (ranks.get(part.partition, 0), -1 if part.bucket is None else part.bucket))


def lanes_of(steps: Iterable[StreamStep], *, by_bucket: bool) -> list[list[tuple[StreamStep, StreamPart]]]:
    """Return what is read one after the other: everything, or what is in one bucket.

    Args:
        steps: in commit order.
        by_bucket: one list for each bucket; without buckets for each file group.

    Example:
        >>> two = StreamStep(None, (StreamPart("k1", "p", "a", 0), StreamPart("k2", "p", "b", 1)))
        >>> [len(lane) for lane in lanes_of([two, two], by_bucket=True)], len(lanes_of([two], by_bucket=False))
        ([2, 2], 1)
    """
    lanes: dict[object, list[tuple[StreamStep, StreamPart]]] = {}
    for step in steps:
        for part in step.parts:
            place = part.file_id if part.bucket is None else part.bucket
            lanes.setdefault((part.partition, place) if by_bucket else None, []).append((step, part))
    return list(lanes.values())


def with_watermarks(
    commits: Iterable[tuple[Instant, CommitMetadata]], before: int | None
) -> list[tuple[Instant, CommitMetadata, int | None]]:
    """Return commits with their watermarks; one without takes that of the commit before it.

    Args:
        commits: in completion order.
        before: the watermark of the commit before them.
    """
    marked = []
    for instant, commit in commits:
        before = next_watermark(watermark_of(commit.extra_metadata), before)
        marked.append((instant, commit, before))
    return marked


def cut_at_watermark(
    steps: Sequence[StreamStep], bound: int | None, *, include_boundary: bool
) -> tuple[list[StreamStep], bool]:
    """Return the steps before the one that ends a bounded stream, and whether there is one.

    Args:
        steps: in commit order, those that hand out nothing included.
        bound: the step with a larger watermark ends the stream; None: no end.
        include_boundary: the step that ends the stream is handed out, too.

    Example:
        >>> steps = [StreamStep(None, watermark=1), StreamStep(None, watermark=3), StreamStep(None, watermark=4)]
        >>> [len(cut_at_watermark(steps, 2, include_boundary=more)[0]) for more in (False, True)]
        [1, 2]
    """
    if bound is not None:
        for number, step in enumerate(steps):
            if step.watermark is not None and step.watermark > bound:
                return list(steps[: number + include_boundary]), True
    return list(steps), False


def split_by_drift(steps: Sequence[StreamStep], drift: int | None, most: int) -> list[list[StreamStep]]:
    """Return the steps in groups that are read side by side.

    Args:
        steps: in commit order.
        drift: by how many milliseconds the watermarks of one group may differ; None: by any.
        most: the most steps of a group.

    Example:
        >>> steps = [StreamStep(None, watermark=mark) for mark in (1, 3, 9)]
        >>> [len(group) for group in split_by_drift(steps, 5, 10)]
        [2, 1]
    """
    groups: list[list[StreamStep]] = []
    for step in steps:
        if groups and len(groups[-1]) < most and not _is_ahead(groups[-1], step, drift):
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _is_ahead(group: Sequence[StreamStep], step: StreamStep, drift: int | None) -> bool:
    first = next((each.watermark for each in group if each.watermark is not None), None)
    return drift is not None and first is not None and step.watermark is not None and step.watermark > first + drift
