"""What a caller of ``Table.stream`` asks for, as checked values. Pure."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from lakefmt.arguments import foreign_items, shown
from lakefmt.consumers.position import StreamPosition, decode_position
from lakefmt.data_classes import dataclass
from lakefmt.errors import InvalidInputError
from lakefmt.timeline.watermarks import check_watermark

__all__ = [
    "BucketFilter",
    "End",
    "EndLike",
    "Start",
    "StartLike",
    "check_choice",
    "check_consumer_id",
    "check_shard",
    "parse_buckets",
    "parse_end",
    "parse_start",
    "query_digest",
    "shard_of",
]

StartLike: TypeAlias = str | datetime | Mapping[str, Any]
EndLike: TypeAlias = str | datetime | Mapping[str, int] | None
BucketFilter: TypeAlias = Callable[[int | None], bool]

_ID: Final = re.compile(r"[-\w.]{1,128}", re.ASCII)


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
    if not isinstance(value, str) or not _ID.fullmatch(value) or value.startswith("."):
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
        wanted = list(foreign_items(buckets, "buckets cannot be read"))
        if all(type(number) is int and number >= 0 for number in wanted):
            chosen = frozenset(wanted)
            return lambda bucket: bucket in chosen
    raise InvalidInputError(f"buckets={shown(buckets)}: bucket numbers, or a function of one, are expected")


def query_digest(filter: object) -> str:
    """Return a short text that changes with the filter, and with it the number of rows of a part.

    Example:
        >>> query_digest(None), query_digest("a > 1") == query_digest("a > 2")
        ('', False)
    """
    return "" if filter is None else hashlib.blake2b(str(filter).encode(), digest_size=8).hexdigest()
