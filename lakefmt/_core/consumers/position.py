"""Where a stream stands: which commits it has read, which come next, in which parts; and the arguments of ``Table.stream`` (pure).

A position says which commits, and which parts of later ones, were handed out. A stream reads a commit in parts, one for each file
group that the commit wrote. Parts of several commits may be read side by side, so a position says up to which commit everything
was handed out, and of later parts how many rows.

A step is one commit. Within a step, partitions come in the order of their creation, or of their values; the parts of one
bucket come in the order of the commit. Commits of table services change no row and give no part; those that overwrite
give parts only on request.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any, Final, TypeAlias

from lakefmt._core.arguments import foreign_items, shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile
from lakefmt._core.formats.names import has_bucket_number, parse_base_file, parse_log_file, queue_bucket_of
from lakefmt._core.read.changes import ChangeSource, changing_sources
from lakefmt._core.read.incremental import EARLIEST, is_rewrite
from lakefmt._core.timeline.commit import CommitMetadata, watermark_of
from lakefmt._core.timeline.consumers import check_watermark, next_watermark
from lakefmt._core.timeline.instant import Action, Instant
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import FileId, InstantTime, PartitionPath, WriteOperation
from lakefmt.errors import InvalidInputError

__all__ = [
    "WHOLE_PART",
    "BucketFilter",
    "End",
    "EndLike",
    "PositionTracker",
    "Start",
    "StartLike",
    "StreamPart",
    "StreamPosition",
    "StreamStep",
    "changed_parts",
    "check_choice",
    "check_consumer_id",
    "check_shard",
    "cut_at_watermark",
    "decode_position",
    "encode_position",
    "gives_rows",
    "lanes_of",
    "ordered_parts",
    "parse_buckets",
    "parse_end",
    "parse_start",
    "part_key",
    "partition_order",
    "position_behind",
    "query_digest",
    "shard_of",
    "slice_parts",
    "split_by_drift",
    "with_watermarks",
    "written_parts",
]

#: Instead of a number of rows: the whole part was handed out.
WHOLE_PART: Final = -1
_POSITION_VERSION: Final = 1
StartLike: TypeAlias = str | datetime | Mapping[str, Any]
EndLike: TypeAlias = str | datetime | Mapping[str, int] | None
BucketFilter: TypeAlias = Callable[[int | None], bool]
_CONSUMER_ID: Final = re.compile(r"[-\w.]{1,128}", re.ASCII)


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """How far a stream was read.

    Attributes:
        done: completion time (requested time in version 6) of the last commit that was handed out to its end.
        instant: the requested time of that commit; "" for none. A stream of version 6 that has read none has what ``done`` has: after an
            upgrade this tells a requested time from a completion time.
        parts: key of a later part → its rows that were handed out, :data:`WHOLE_PART` for all.
        whole: the table as of ``done`` is read first, and ``parts`` are parts of that.
        in_turn: buckets are dealt out to shards one after the other; False: as earlier releases did it.
    """

    done: str = EARLIEST
    instant: str = ""
    parts: Mapping[str, int] = field(default_factory=dict)
    whole: bool = False
    in_turn: bool = True


def position_behind(time: str, layout: int) -> StreamPosition:
    """Return the position of a stream that begins behind a time of its table.

    Args:
        time: a completion time, with timeline layout 1 a requested time.
        layout: of the timeline, 1 or 2.

    Example:
        >>> position_behind("20260101000000000", 2)
        StreamPosition(done='20260101000000000', instant='', parts={}, whole=False, in_turn=True)
    """
    return StreamPosition(time, time if layout == 1 and time != EARLIEST else "")


def part_key(instant: str, partition: str, file_id: str) -> str:
    """Return a short text for a part of a commit.

    Example:
        >>> part_key("20260101000000000", "p=1", "f-0") != part_key("20260101000000000", "p=2", "f-0")
        True
    """
    return hashlib.blake2b(f"{instant}/{partition}/{file_id}".encode(), digest_size=8).hexdigest()


def encode_position(position: StreamPosition) -> dict[str, object]:
    """Return a position as a JSON object, which ``start={"offset": …}`` takes.

    Example:
        >>> encode_position(StreamPosition("20260101000000000"))
        {'v': 1, 'next_start': '20260101000000000', 'in_turn': True}
    """
    document: dict[str, object] = {"v": _POSITION_VERSION, "next_start": position.done}
    optional_fields = {
        "instant": position.instant,
        "files": dict(position.parts),
        "whole": position.whole,
        "in_turn": position.in_turn,
    }
    return document | {name: value for name, value in optional_fields.items() if value}


def decode_position(document: Mapping[str, Any]) -> StreamPosition:
    """Return the position in a JSON object.

    Raises:
        InvalidInputError: it holds none.

    Example:
        >>> decode_position({"v": 1, "next_start": "000"})
        StreamPosition(done='000', instant='', parts={}, whole=False, in_turn=False)
    """
    completion_time, parts = document.get("next_start"), document.get("files", {})
    instant, whole = document.get("instant", ""), document.get("whole", False)
    in_turn = document.get("in_turn", False)
    valid = (
        document.get("v") == _POSITION_VERSION
        and isinstance(completion_time, str)
        and completion_time.isascii()
        and completion_time.isdigit()
    )
    valid = valid and isinstance(instant, str) and isinstance(whole, bool) and isinstance(parts, Mapping)
    valid = valid and isinstance(in_turn, bool)
    if not valid or not all(isinstance(key, str) and type(rows) is int and rows >= -1 for key, rows in parts.items()):
        raise InvalidInputError(f"{str(dict(document))[:80]} is no position of a stream")
    return StreamPosition(str(completion_time), instant, dict(parts), whole, in_turn)


class PositionTracker:
    """Follows which parts were handed out, and advances over commits that were handed out to their end.

    Example:
        >>> tracker = PositionTracker(StreamPosition())
        >>> tracker.expect("1", "i1", ["a", "b"])
        >>> tracker.hand_out("a", 10, is_last=True)
        >>> tracker.position.done, tracker.position.parts
        ('000', {'a': -1})
        >>> tracker.hand_out("b", 10, is_last=True)
        >>> tracker.position
        StreamPosition(done='1', instant='i1', parts={}, whole=False, in_turn=True)
    """

    def __init__(self, position: StreamPosition) -> None:
        self._done, self._instant, self._whole = position.done, position.instant, position.whole
        self._in_turn = position.in_turn
        self._parts = dict(position.parts)
        self._waiting: deque[tuple[str, str, set[str], tuple[str, ...]]] = deque()

    @property
    def position(self) -> StreamPosition:
        """How far the stream was read."""
        return StreamPosition(self._done, self._instant, dict(self._parts), self._whole, self._in_turn)

    @property
    def done(self) -> str:
        """The completion time up to which everything was handed out."""
        return self._done

    def rows_of(self, key: str) -> int:
        """Return how many rows of a part were handed out, :data:`WHOLE_PART` for all."""
        return self._parts.get(key, 0)

    def expect(self, time: str, instant: str, keys: Iterable[str]) -> None:
        """Add the next commit and the keys of its parts; parts that were handed out before do not count."""
        in_order = tuple(keys)
        unread = {key for key in in_order if self._parts.get(key) != WHOLE_PART}
        self._waiting.append((time, instant, unread, in_order))
        self._advance()

    def hand_out(self, key: str, rows: int, *, is_last: bool) -> None:
        """Note rows of a part that were handed out.

        Args:
            key: of the part.
            rows: how many of its rows were handed out in all.
            is_last: nothing of the part is left.
        """
        self._parts[key] = WHOLE_PART if is_last else rows
        if is_last:
            for _, _, unread, _ in self._waiting:
                unread.discard(key)
            self._advance()

    def forget(self) -> None:
        """Discard the expected commits that were not read to their end."""
        self._waiting.clear()

    def move(self, position: StreamPosition) -> None:
        """Continue at another position; the assignment of buckets to shards does not change."""
        self.__init__(replace(position, in_turn=self._in_turn))  # type: ignore[misc]

    def _advance(self) -> None:
        while self._waiting and not self._waiting[0][2]:
            self._done, self._instant, _, keys = self._waiting.popleft()
            self._whole = False
            for key in keys:
                self._parts.pop(key, None)


# ------------------------------------------------------------------------------------------------ arguments of a stream


@dataclass(frozen=True, slots=True)
class Start:
    """Where a stream begins: exactly one of these.

    Attributes:
        word: ``earliest``, ``latest`` or ``full``; "" if another is given.
        moment: an instant or time, after which commits are read.
        watermark: the first commit with a larger one is read first; in milliseconds.
        position: of another stream.
    """

    word: str = ""
    moment: str | datetime | None = None
    watermark: int | None = None
    position: StreamPosition | None = None


@dataclass(frozen=True, slots=True)
class End:
    """Where a stream ends; nothing given: nowhere.

    Attributes:
        newest: at the newest commit when the stream is opened.
        moment: an instant or time, included.
        watermark: before the first commit with a larger one; in milliseconds.
    """

    newest: bool = False
    moment: str | datetime | None = None
    watermark: int | None = None


def parse_start(start: object) -> Start:
    """Return where a stream begins.

    Raises:
        InvalidInputError: no such place.

    Example:
        >>> parse_start("latest").word, parse_start({"watermark": 5}).watermark
        ('latest', 5)
    """
    if isinstance(start, str):
        word = start.lower()
        return Start(word=word) if word in ("earliest", "latest", "full") else Start(moment=start)
    if isinstance(start, datetime):
        return Start(moment=start)
    if isinstance(start, Mapping) and len(start) == 1:
        (name, value) = next(iter(start.items()))
        if name == "watermark":
            return Start(watermark=check_watermark(value))
        if name == "offset" and isinstance(value, Mapping):
            return Start(position=decode_position(value))
    raise InvalidInputError(
        f"start={shown(start)}: 'earliest', 'latest', 'full', an instant or time, {{'watermark': milliseconds}} or "
        "{'offset': a stream's position} is expected"
    )


def parse_end(end: object, *, follow: bool) -> End:
    """Return where a stream ends.

    Args:
        end: None, ``"latest"``, an instant or time, or ``{"watermark": milliseconds}``.
        follow: False: at the newest commit when it is opened, at the latest.

    Raises:
        InvalidInputError: no such place.

    Example:
        >>> parse_end(None, follow=False).newest, parse_end({"watermark": 5}, follow=True).watermark
        (True, 5)
    """
    if end is None or (isinstance(end, str) and end.lower() == "latest"):
        return End(newest=end is not None or not follow)
    if isinstance(end, str | datetime):
        return End(newest=not follow, moment=end)
    if isinstance(end, Mapping) and set(end) == {"watermark"}:
        return End(newest=not follow, watermark=check_watermark(end["watermark"]))
    raise InvalidInputError(
        f"end={shown(end)}: None, 'latest', an instant or time, or {{'watermark': milliseconds}} is expected"
    )


def check_choice(value: object, name: str, choices: Collection[str]) -> str:
    """Return a word that is one of several.

    Raises:
        InvalidInputError: it is not.

    Example:
        >>> check_choice("commit", "order", ["commit", "bucket"])
        'commit'
    """
    if not isinstance(value, str) or value not in choices:
        raise InvalidInputError(f"{name}={shown(value)}: one of {', '.join(choices)} is expected")
    return value


def check_consumer_id(value: object) -> str:
    """Return the id of a consumer: 1 to 128 letters, digits, ``-``, ``_`` and dots.

    Raises:
        InvalidInputError: another text.

    Example:
        >>> check_consumer_id("daily-report.v2")
        'daily-report.v2'
    """
    if not isinstance(value, str) or not _CONSUMER_ID.fullmatch(value) or value.startswith("."):
        raise InvalidInputError(
            f"consumer id {shown(value)}: 1 to 128 letters, digits, '-', '_' and '.' are expected, '.' not first"
        )
    return value


def check_shard(shard: object) -> tuple[int, int] | None:
    """Return which part of the buckets a stream reads: number i of n, from 0.

    Raises:
        InvalidInputError: no such part.

    Example:
        >>> check_shard((0, 4))
        (0, 4)
    """
    if shard is None:
        return None
    if isinstance(shard, tuple | list) and len(shard) == 2:
        number, count = shard
        if type(number) is int and type(count) is int and 0 <= number < count <= 10_000:
            return number, count
    raise InvalidInputError(f"shard={shown(shard)}: (i, n) with 0 <= i < n is expected")


def shard_of(partition: str, bucket: int | None, file_id: str, count: int, *, in_turn: bool = True) -> int:
    """Return which of `count` shards reads a part: by partition and bucket, without buckets by file group.

    Args:
        partition: its partition path.
        bucket: the number of its bucket; None without buckets.
        file_id: its file group.
        count: how many shards there are.
        in_turn: the buckets of a partition go to one shard after the other; False: by a checksum of partition and bucket, as
            progress that was stored before has it.

    Example:
        >>> [shard_of("p", bucket, "f-0", 2) for bucket in range(4)]
        [1, 0, 1, 0]
    """
    if in_turn and bucket is not None:
        return (zlib.crc32(partition.encode()) + bucket) % count
    name = f"{partition}/{file_id}" if bucket is None else f"{partition}/{bucket}"
    return zlib.crc32(name.encode()) % count


def parse_buckets(buckets: object) -> BucketFilter | None:
    """Return which buckets are read, as a predicate; None: all.

    Raises:
        InvalidInputError: neither numbers nor a function.

    Example:
        >>> parse_buckets([1, 2])(3)
        False
    """
    if buckets is None:
        return None
    if callable(buckets):
        return lambda bucket: bool(buckets(bucket))
    if isinstance(buckets, Iterable) and not isinstance(buckets, str | bytes):
        bucket_numbers = list(foreign_items(buckets, "buckets cannot be read"))
        if all(type(number) is int and number >= 0 for number in bucket_numbers):
            bucket_set = frozenset(bucket_numbers)
            return lambda bucket: bucket in bucket_set
    raise InvalidInputError(f"buckets={shown(buckets)}: bucket numbers, or a function of one, are expected")


def query_digest(filter: object) -> str:
    """Return a short text that changes with the filter, and with it the number of rows of a part.

    Example:
        >>> query_digest(None), query_digest("a > 1") == query_digest("a > 2")
        ('', False)
    """
    return "" if filter is None else hashlib.blake2b(str(filter).encode(), digest_size=8).hexdigest()


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
        file_group_key = (files.partition, files.file_id)
        earlier = parts.get(file_group_key)
        if earlier is not None and earlier.file_slice is not None:
            files = _joined(earlier.file_slice, files)
        parts[file_group_key] = StreamPart(
            part_key(instant.time, *file_group_key),
            *file_group_key,
            bucket_number(files.file_id),
            files,
            adds_only and earlier is None,
        )
    return list(parts.values())


def _joined(file_slice: FileSlice, more: FileSlice) -> FileSlice:
    logs = tuple(sorted({*file_slice.logs, *more.logs}, key=lambda log: (log.instant, log.version, log.name)))
    return replace(file_slice, base=more.base or file_slice.base, logs=logs)


def changed_parts(
    timeline: Timeline,
    instant: Instant,
    commit: CommitMetadata,
    replaced: Mapping[tuple[str, str], InstantTime],
    *,
    apart: bool = False,
) -> list[StreamPart]:
    """Return the parts of a commit of a table with record keys: changes, by file group.

    A commit that deletes rows and writes several partitions may have moved keys between them. It is one part, in which
    deletes come first.

    Args:
        timeline: the table's.
        instant: the commit.
        commit: its metadata.
        replaced: the file groups that are replaced, with the instants that did it.
        apart: buckets are read apart from each other: a part has changes of one bucket of one partition.
    """
    sources = changing_sources(timeline, instant, commit, replaced)
    partitions = {source.partition for source in sources}
    deletes = bool(commit.replaced_file_ids) or any(stat.num_deletes for stat in commit.stats)
    if len(sources) > 1 and deletes and (len(partitions) > 1 or commit.replaced_file_ids):
        if apart and all(bucket_number(source.file_id) is not None for source in sources):
            return _parts_of_buckets(instant, sources)
        partition = next(iter(partitions)) if len(partitions) == 1 else ""
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


def _parts_of_buckets(instant: Instant, sources: Iterable[ChangeSource]) -> list[StreamPart]:
    """Return one part per bucket: a key stays in its bucket when its file group is replaced."""
    groups: dict[tuple[str, int | None], list[ChangeSource]] = {}
    for source in sources:
        groups.setdefault((source.partition, bucket_number(source.file_id)), []).append(source)
    return [
        StreamPart(
            part_key(instant.time, partition, f"bucket {bucket}"), partition, "", bucket, sources=tuple(of_bucket)
        )
        for (partition, bucket), of_bucket in groups.items()
    ]


def slice_parts(time: str, slices: Iterable[FileSlice]) -> list[StreamPart]:
    """Return the parts of a table as of a moment; a part has another key when what was committed up to then is undone."""
    return [
        StreamPart(
            part_key(f"as of {time}", each.partition, " ".join([each.file_id, *each.paths])),
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
        by_bucket: one list for each bucket; without buckets for each file group, but for changes: a key may change its file group.

    Example:
        >>> two = StreamStep(None, (StreamPart("k1", "p", "a", 0), StreamPart("k2", "p", "b", 1)))
        >>> [len(lane) for lane in lanes_of([two, two], by_bucket=True)], len(lanes_of([two], by_bucket=False))
        ([2, 2], 1)
    """
    lanes: dict[object, list[tuple[StreamStep, StreamPart]]] = {}
    steps = list(steps)
    by_bucket = by_bucket and not any(part.sources and part.bucket is None for step in steps for part in step.parts)
    for step in steps:
        for part in step.parts:
            bucket_or_file = part.file_id if part.bucket is None else part.bucket
            lanes.setdefault((part.partition, bucket_or_file) if by_bucket else None, []).append((step, part))
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
