"""The states of an instant as a transition table, for every action. Pure.

All transitions are data in this module, which does not know who changes a state and where it is
stored. A transition outside of the table is an error.
"""

from __future__ import annotations

from lakefmt.errors import IllegalTransition
from lakefmt.timeline.instant import Action, State

__all__ = ["TRANSITIONS", "check_transition", "transitions_table"]

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
