"""Positions of a stream: which commits, and which parts of later ones, were handed out. Pure.

A stream reads a commit in parts, one for each file group that the commit wrote. Parts of several commits may be read side by
side, so a position says up to which commit everything was handed out, and of later parts how many rows.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from lakefmt.data_classes import dataclass, replace
from lakefmt.errors import InvalidInputError

__all__ = [
    "EARLIEST",
    "WHOLE_PART",
    "PositionTracker",
    "StreamPosition",
    "decode_position",
    "encode_position",
    "part_key",
]

#: Before every commit.
EARLIEST: Final = "000"
#: Instead of a number of rows: the whole part was handed out.
WHOLE_PART: Final = -1
_VERSION: Final = 1


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
    document: dict[str, object] = {"v": _VERSION, "next_start": position.done}
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
    valid = document.get("v") == _VERSION and isinstance(done, str) and done.isascii() and done.isdigit()
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
