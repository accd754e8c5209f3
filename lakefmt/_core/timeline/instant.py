"""Instants, timeline file names and the transition table (docs/format.md, Instant times; Timeline file names). Pure.

An instant is one action at one time in one state. File names contain all of it, so one listing
gives the timeline. Which states may follow each other is data (:data:`TRANSITIONS`), which does not
know who changes a state and where it is stored; a transition outside of the table is an error.
"""

from __future__ import annotations

import enum
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple

from lakefmt._core.values import InstantTime
from lakefmt.errors import IllegalTransition, InvalidInputError

__all__ = [
    "COMMIT_ACTIONS",
    "TRANSITIONS",
    "Action",
    "Instant",
    "State",
    "check_transition",
    "comparable_action",
    "completed_action",
    "format_instant_time",
    "instant_file_name",
    "millisecond_before",
    "parse_instant_file",
    "parse_instant_time",
    "transitions_table",
]


class Action(enum.Enum):
    """The actions of a timeline."""

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

    # Members are singletons: hashing by identity avoids Enum's slower Python hash.
    __hash__ = object.__hash__


class State(enum.Enum):
    """The states of an instant."""

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
    """Return the action of the completed file (a compaction completes as a commit)."""
    return _COMPLETES_AS.get(action, action)


#: Instants of one time are the same if their comparable actions are equal (docs/format.md, Timeline
#: file names).
comparable_action = completed_action


class Instant(NamedTuple):
    """One action at one time in one state.

    A named tuple: opening a table creates thousands, and a frozen dataclass takes three times as
    long.

    Attributes:
        time: requested time.
        action: as in the file name (a completed compaction is a commit).
        state: requested, inflight or completed.
        completion: completion time; None unless completed in layout 2.
        file_name: the name of its file.
        size: its size in bytes.
        modified: its modification time in epoch seconds; 0.0 if unknown.
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
        """Whether the action is complete."""
        return self.state is State.COMPLETED

    @property
    def order_time(self) -> InstantTime:
        """The time that orders commits: completion time, else requested time."""
        return self.completion or self.time

    def __str__(self) -> str:
        return f"{self.time} {self.action.value} {self.state.value}"


def _suffixes() -> dict[str, tuple[Action, State]]:
    table: dict[str, tuple[Action, State]] = {"inflight": (Action.COMMIT, State.INFLIGHT)}
    for action in Action:
        table[action.value] = (action, State.COMPLETED)
        table[f"{action.value}.inflight"] = (action, State.INFLIGHT)
        table[f"{action.value}.requested"] = (action, State.REQUESTED)
    del table["commit.inflight"]  # a commit's inflight file has no action in its name
    del table["savepoint.requested"]
    return table


_SUFFIXES = _suffixes()


def parse_instant_file(name: str, layout: int, size: int = 0, modified: float = 0.0) -> Instant | None:
    """Return the instant of a timeline file name; None for other names.

    In layout 2 completed files without completion time (migrated instants) are ignored; tables of
    versions 8 and 9 do not have them (docs/format.md, Timeline file names).

    Example:
        >>> parse_instant_file("20260101000000000_20260101000000500.commit", 2).completion
        '20260101000000500'
    """
    head, _, suffix = name.partition(".")
    time, _, completion = head.partition("_")
    meaning = _SUFFIXES.get(suffix)
    if meaning is None or not _is_time(time) or (completion and not _is_time(completion)):
        return None
    action, state = meaning
    if (layout == 2 and state is State.COMPLETED) != bool(completion):
        return None
    return Instant._make((time, action, state, completion or None, name, size, modified))


#: Those of a first commit that has no time of its own, and of bootstraps, without and with copied rows.
_RESERVED_TIMES: Final = frozenset({"00000000000000", "00000000000001", "00000000000002"})


def _is_time(instant_time: str) -> bool:
    return len(instant_time) in (14, 17) and instant_time.isascii() and instant_time.isdigit()


def instant_file_name(
    time: InstantTime, action: Action, state: State, layout: int, completion: InstantTime | None = None
) -> str:
    """Return the timeline file name of an instant in `layout`.

    Raises:
        ValueError: a completed instant of layout 2 has no completion time.

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
    """Return the instant time of a moment in the table's zone, truncated to milliseconds.

    Example:
        >>> format_instant_time(datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC))
        '20260102030405678'
    """
    local = moment.astimezone(zone)
    return InstantTime(f"{local:%Y%m%d%H%M%S}{local.microsecond // 1000:03d}")


def parse_instant_time(instant_time: str, zone: tzinfo = UTC) -> datetime:
    """Return the moment of an instant time; 14 digits get 999 ms, and reserved times are long ago (docs/format.md, Instant times).

    Raises:
        InvalidInputError: `instant_time` is not an instant time or not a calendar date.

    Example:
        >>> parse_instant_time("20260102030405678").isoformat()
        '2026-01-02T03:04:05.678000+00:00'
        >>> parse_instant_time("00000000000001").isoformat()
        '1970-01-01T00:00:00+00:00'
    """
    if instant_time in _RESERVED_TIMES:
        return datetime(1970, 1, 1, tzinfo=zone)
    if not _is_time(instant_time):
        raise InvalidInputError(f"{instant_time!r} is not an instant time: 17 digits yyyyMMddHHmmssSSS are expected")
    digits = instant_time if len(instant_time) == 17 else instant_time + "999"
    try:
        moment = datetime.strptime(digits[:14], "%Y%m%d%H%M%S").replace(tzinfo=zone)
    except ValueError:
        raise InvalidInputError(f"{instant_time!r} is not an instant time: no such date") from None
    return moment + timedelta(milliseconds=int(digits[14:]))


def millisecond_before(instant_time: str) -> InstantTime:
    """Return the instant time a millisecond earlier.

    Example:
        >>> millisecond_before("20260102000000000")
        '20260101235959999'
    """
    return format_instant_time(parse_instant_time(instant_time) - timedelta(milliseconds=1))


# -------------------------------------------------------------------------------------------------- transitions

#: The state before an instant exists, and after its rollback.
ABSENT = None

_PLANNED: dict[State | None, frozenset[State | None]] = {
    ABSENT: frozenset({State.REQUESTED}),
    State.REQUESTED: frozenset({State.INFLIGHT, ABSENT}),
    State.INFLIGHT: frozenset({State.COMPLETED, ABSENT}),
    # A completed commit becomes inflight only while a rollback or restore removes it.
    State.COMPLETED: frozenset({State.INFLIGHT}),
}
_SERVICE_WITH_PLAN: dict[State | None, frozenset[State | None]] = {
    **_PLANNED,
    # A failed compaction or clustering keeps its plan: inflight returns to requested.
    State.INFLIGHT: frozenset({State.COMPLETED, State.REQUESTED, ABSENT}),
}
_FINAL: dict[State | None, frozenset[State | None]] = {**_PLANNED, State.COMPLETED: frozenset()}
_SAVEPOINT: dict[State | None, frozenset[State | None]] = {
    ABSENT: frozenset({State.INFLIGHT}),
    State.INFLIGHT: frozenset({State.COMPLETED, ABSENT}),
    State.COMPLETED: frozenset({State.INFLIGHT}),
}

#: action → state → the states that may follow; None: no such instant.
TRANSITIONS: dict[Action, dict[State | None, frozenset[State | None]]] = {
    Action.COMMIT: _PLANNED,
    Action.DELTA_COMMIT: _PLANNED,
    Action.REPLACE_COMMIT: _PLANNED,
    Action.CLUSTERING: _SERVICE_WITH_PLAN,
    Action.COMPACTION: _SERVICE_WITH_PLAN,
    Action.LOG_COMPACTION: _SERVICE_WITH_PLAN,
    Action.CLEAN: _FINAL,
    Action.ROLLBACK: _FINAL,
    Action.RESTORE: _FINAL,
    Action.SAVEPOINT: _SAVEPOINT,
    Action.INDEXING: _FINAL,
    Action.SCHEMA_COMMIT: _FINAL,
}


def check_transition(action: Action, before: State | None, after: State | None) -> None:
    """Raise unless an instant of `action` may change from `before` to `after`.

    Raises:
        IllegalTransition: the table does not have the transition.

    Example:
        >>> check_transition(Action.COMMIT, State.REQUESTED, State.INFLIGHT)
    """
    if after not in TRANSITIONS[action].get(before, frozenset()):
        raise IllegalTransition(f"a {action.value} may not go from {_word(before)} to {_word(after)}")


def transitions_table() -> str:
    """Return the table as Markdown, as the documentation shows it.

    Example:
        >>> transitions_table().splitlines()[0]
        '| action | from | to |'
    """
    order = (ABSENT, State.REQUESTED, State.INFLIGHT, State.COMPLETED)
    rows = [
        f"| {action.value} | {_word(before)} | {', '.join(_word(s) for s in order if s in moves[before])} |"
        for action, moves in TRANSITIONS.items()
        for before in order
        if moves.get(before)
    ]
    return "\n".join(["| action | from | to |", "|---|---|---|", *rows])


def _word(state: State | None) -> str:
    return "absent" if state is None else state.value
