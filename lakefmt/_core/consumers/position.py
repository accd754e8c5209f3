"""Positions of a stream, and the arguments of ``Table.stream`` as checked values. Pure.

A position says which commits, and which parts of later ones, were handed out. A stream reads a commit in parts, one for each file
group that the commit wrote. Parts of several commits may be read side by side, so a position says up to which commit everything
was handed out, and of later parts how many rows.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Final, TypeAlias

from lakefmt._core.arguments import foreign_items, shown
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.timeline.consumers import check_watermark
from lakefmt.errors import InvalidInputError

__all__ = [
    "EARLIEST",
    "WHOLE_PART",
    "BucketFilter",
    "End",
    "EndLike",
    "PositionTracker",
    "Start",
    "StartLike",
    "StreamPosition",
    "check_choice",
    "check_consumer_id",
    "check_shard",
    "decode_position",
    "encode_position",
    "parse_buckets",
    "parse_end",
    "parse_start",
    "part_key",
    "query_digest",
    "shard_of",
]

#: Before every commit.
EARLIEST: Final = "000"
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
        instant: the requested time of that commit; "" for none.
        parts: key of a later part → its rows that were handed out, :data:`WHOLE_PART` for all.
        whole: the table as of ``done`` is read first, and ``parts`` are parts of that.
        in_turn: buckets are dealt out to shards one after the other; False: as earlier releases did it.
    """

    done: str = EARLIEST
    instant: str = ""
    parts: Mapping[str, int] = field(default_factory=dict)
    whole: bool = False
    in_turn: bool = True


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
    named = {
        "instant": position.instant,
        "files": dict(position.parts),
        "whole": position.whole,
        "in_turn": position.in_turn,
    }
    return document | {name: value for name, value in named.items() if value}


def decode_position(document: Mapping[str, Any]) -> StreamPosition:
    """Return the position in a JSON object.

    Raises:
        InvalidInputError: it holds none.

    Example:
        >>> decode_position({"v": 1, "next_start": "000"})
        StreamPosition(done='000', instant='', parts={}, whole=False, in_turn=False)
    """
    done, parts = document.get("next_start"), document.get("files", {})
    instant, whole = document.get("instant", ""), document.get("whole", False)
    in_turn = document.get("in_turn", False)
    valid = document.get("v") == _POSITION_VERSION and isinstance(done, str) and done.isascii() and done.isdigit()
    valid = valid and isinstance(instant, str) and isinstance(whole, bool) and isinstance(parts, Mapping)
    valid = valid and isinstance(in_turn, bool)
    if not valid or not all(isinstance(key, str) and type(rows) is int and rows >= -1 for key, rows in parts.items()):
        raise InvalidInputError(f"{str(dict(document))[:80]} is no position of a stream")
    return StreamPosition(str(done), instant, dict(parts), whole, in_turn)


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
        left = {key for key in in_order if self._parts.get(key) != WHOLE_PART}
        self._waiting.append((time, instant, left, in_order))
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
            for _, _, left, _ in self._waiting:
                left.discard(key)
            self._advance()

    def forget(self) -> None:
        """Forget the commits that were expected and not read to their end."""
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
