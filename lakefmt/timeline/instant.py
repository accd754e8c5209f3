"""Instants and the grammar of their file names in both timeline layouts (spec 3.1, 3.2). Pure.

An instant is one action at one time in one state. Its file name says everything but its content, so a timeline
is known from one listing.
"""

from __future__ import annotations

import enum
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from lakefmt.errors import InvalidInputError
from lakefmt.values import InstantTime

__all__ = [
    "COMMIT_ACTIONS",
    "Action",
    "Instant",
    "State",
    "comparable_action",
    "completed_action",
    "format_instant_time",
    "instant_file_name",
    "parse_instant_file",
    "parse_instant_time",
]


class Action(enum.Enum):
    """What an instant does."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    REPLACE_COMMIT = "replacecommit"
    CLUSTERING = "clustering"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLEAN = "clean"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    SAVEPOINT = "savepoint"
    INDEXING = "indexing"
    SCHEMA_COMMIT = "schemacommit"

    # Members are single objects: their identity hashes them in C, where Enum's own hash is a Python call.
    __hash__ = object.__hash__


class State(enum.Enum):
    """How far an instant has come."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"

    __hash__ = object.__hash__

    @property
    def rank(self) -> int:
        """0 requested, 1 inflight, 2 completed."""
        return _RANK[self]


_RANK = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}

#: Completed actions that add or replace data.
COMMIT_ACTIONS = frozenset({Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT})

_COMPLETES_AS = {
    Action.COMPACTION: Action.COMMIT,
    Action.LOG_COMPACTION: Action.DELTA_COMMIT,
    Action.CLUSTERING: Action.REPLACE_COMMIT,
}


def completed_action(action: Action) -> Action:
    """Return the action in the completed file's name (a compaction completes as a commit)."""
    return _COMPLETES_AS.get(action, action)


#: Two instants with one time are the same deed when their comparable actions agree (spec 3.2).
comparable_action = completed_action


class Instant(NamedTuple):
    """One action at one time in one state.

    A named tuple, because opening a table makes thousands of them and a frozen dataclass takes three times as long.

    Attributes:
        time: requested time.
        action: as in the file name (a completed compaction is a commit).
        state: requested, inflight or completed.
        completion: completion time; None unless completed in layout 2.
        file_name: the file that says so.
        size: its size in bytes.
        modified: its modification time in epoch seconds (0.0 when the store does not say).
    """

    time: InstantTime
    action: Action
    state: State
    completion: InstantTime | None = None
    file_name: str = ""
    size: int = 0
    modified: float = 0.0

    @property
    def is_completed(self) -> bool:
        """True when the action is visible."""
        return self.state is State.COMPLETED

    @property
    def order_time(self) -> InstantTime:
        """The time by which commits become visible: completion time, else requested time."""
        return self.completion or self.time

    def __str__(self) -> str:
        return f"{self.time} {self.action.value} {self.state.value}"


def _suffixes() -> dict[str, tuple[Action, State]]:
    table: dict[str, tuple[Action, State]] = {"inflight": (Action.COMMIT, State.INFLIGHT)}
    for action in Action:
        table[action.value] = (action, State.COMPLETED)
        table[f"{action.value}.inflight"] = (action, State.INFLIGHT)
        table[f"{action.value}.requested"] = (action, State.REQUESTED)
    del table["commit.inflight"]  # a commit's inflight file has no action word
    del table["savepoint.requested"]
    return table


_SUFFIXES = _suffixes()


def parse_instant_file(name: str, layout: int, size: int = 0, modified: float = 0.0) -> Instant | None:
    """Return the instant that a timeline file stands for, or None when the name is not one.

    Layout 2 ignores completed files without a completion time: they would be migrated legacy files, which
    lakefmt never meets on tables of versions 8 and 9 (spec 3.2).

    Example:
        >>> parse_instant_file("20260101000000000_20260101000000500.commit", 2).completion
        '20260101000000500'
    """
    head, _, suffix = name.partition(".")
    meaning = _SUFFIXES.get(suffix)
    if meaning is None:
        return None
    time, _, completion = head.partition("_")
    if not (_is_time(time) and (not completion or _is_time(completion))):
        return None
    completed_in_layout_2 = layout == 2 and meaning[1] is State.COMPLETED
    if completed_in_layout_2 != bool(completion):
        return None
    done = InstantTime(completion) if completion else None
    return Instant(InstantTime(time), meaning[0], meaning[1], done, name, size, modified)


def _is_time(text: str) -> bool:
    return len(text) in (14, 17) and text.isascii() and text.isdigit()


def instant_file_name(
    time: InstantTime, action: Action, state: State, layout: int, completion: InstantTime | None = None
) -> str:
    """Return the timeline file's name of an instant in `layout`.

    Raises:
        ValueError: a completed instant of layout 2 comes without its completion time.

    Example:
        >>> instant_file_name("20260101000000000", Action.COMMIT, State.INFLIGHT, 2)
        '20260101000000000.inflight'
    """
    if state is not State.COMPLETED:
        if action is Action.COMMIT and state is State.INFLIGHT:
            return f"{time}.inflight"
        return f"{time}.{action.value}.{state.value}"
    if layout == 1:
        return f"{time}.{completed_action(action).value}"
    if completion is None:
        raise ValueError("a completed instant of timeline layout 2 needs a completion time")
    return f"{time}_{completion}.{completed_action(action).value}"


def format_instant_time(moment: datetime, zone: tzinfo = UTC) -> InstantTime:
    """Return the instant time of a moment in the table's zone, to the millisecond.

    Example:
        >>> format_instant_time(datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC))
        '20260102030405678'
    """
    local = moment.astimezone(zone)
    return InstantTime(f"{local:%Y%m%d%H%M%S}{local.microsecond // 1000:03d}")


def parse_instant_time(text: str, zone: tzinfo = UTC) -> datetime:
    """Return the moment of an instant time (14 digits are completed with 999 ms, spec 3.1).

    Raises:
        InvalidInputError: `text` is not an instant time, or no calendar date.

    Example:
        >>> parse_instant_time("20260102030405678").isoformat()
        '2026-01-02T03:04:05.678000+00:00'
    """
    if not _is_time(text):
        raise InvalidInputError(f"{text!r} is not an instant time: 17 digits yyyyMMddHHmmssSSS are expected")
    digits = text if len(text) == 17 else text + "999"
    try:
        moment = datetime.strptime(digits[:14], "%Y%m%d%H%M%S").replace(tzinfo=zone)
    except ValueError:
        raise InvalidInputError(f"{text!r} is not an instant time: no such date") from None
    return moment + timedelta(milliseconds=int(digits[14:]))
