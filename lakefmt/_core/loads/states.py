"""The state machine of a transaction: which operation may follow which state, and when its time is over (pure)."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

__all__ = ["TRANSITIONS", "Operation", "State", "Times", "Verdict", "expiry", "transition"]


class State(enum.Enum):
    """The state of a transaction, by the names that clients read.

    UNKNOWN: there is none of that label. PREPARE: it is open and takes rows. PREPARED: its rows are durable and wait for a commit.
    COMMITTED: its first table has its rows and others not yet. VISIBLE: its rows are in its tables. ABORTED: its rows are gone.
    """

    UNKNOWN = "UNKNOWN"
    PREPARE = "PREPARE"
    PREPARED = "PREPARED"
    COMMITTED = "COMMITTED"
    VISIBLE = "VISIBLE"
    ABORTED = "ABORTED"


class Operation(enum.Enum):
    """What may be asked of a transaction; TIMEOUT is what its clock asks."""

    BEGIN = "begin"
    LOAD = "load"
    PREPARE = "prepare"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    TIMEOUT = "timeout"


class Verdict(enum.Enum):
    """What becomes of an operation: it is done, was done before, or is refused for a reason."""

    DO = "do"
    AGAIN = "again"
    DUPLICATE = "duplicate"
    MISSING = "missing"
    REFUSED = "refused"


class Step(NamedTuple):
    """A verdict, and the state afterwards."""

    verdict: Verdict
    state: State


_S, _O, _V = State, Operation, Verdict


def _row(state: State, **steps: Step) -> dict[Operation, Step]:
    """Return the steps of a state; what is not named is refused and changes nothing."""
    return {each: steps.get(each.value, Step(_V.REFUSED, state)) for each in Operation}


#: For every state and operation what happens.
TRANSITIONS: Final[dict[State, dict[Operation, Step]]] = {
    _S.UNKNOWN: {
        each: Step(_V.DO, _S.PREPARE) if each is _O.BEGIN else Step(_V.MISSING, _S.UNKNOWN) for each in Operation
    },
    _S.PREPARE: _row(
        _S.PREPARE,
        begin=Step(_V.DUPLICATE, _S.PREPARE),
        load=Step(_V.DO, _S.PREPARE),
        prepare=Step(_V.DO, _S.PREPARED),
        commit=Step(_V.DO, _S.VISIBLE),
        rollback=Step(_V.DO, _S.ABORTED),
        timeout=Step(_V.DO, _S.ABORTED),
    ),
    _S.PREPARED: _row(
        _S.PREPARED,
        begin=Step(_V.DUPLICATE, _S.PREPARED),
        prepare=Step(_V.AGAIN, _S.PREPARED),
        commit=Step(_V.DO, _S.VISIBLE),
        rollback=Step(_V.DO, _S.ABORTED),
        timeout=Step(_V.DO, _S.ABORTED),
    ),
    # One of its tables has its rows: all that is left is to give the others theirs.
    _S.COMMITTED: _row(_S.COMMITTED, begin=Step(_V.DUPLICATE, _S.COMMITTED), commit=Step(_V.DO, _S.VISIBLE)),
    _S.VISIBLE: _row(_S.VISIBLE, begin=Step(_V.DUPLICATE, _S.VISIBLE), commit=Step(_V.AGAIN, _S.VISIBLE)),
    _S.ABORTED: _row(_S.ABORTED, begin=Step(_V.DO, _S.PREPARE), rollback=Step(_V.AGAIN, _S.ABORTED)),
}


def transition(state: State, operation: Operation) -> Step:
    """Return what happens to a transaction.

    Example:
        >>> transition(State.PREPARED, Operation.COMMIT)
        Step(verdict=<Verdict.DO: 'do'>, state=<State.VISIBLE: 'VISIBLE'>)
    """
    return TRANSITIONS[state][operation]


class Times(NamedTuple):
    """The times of a transaction, in epoch milliseconds, and its limits in seconds.

    Attributes:
        begun: when it began.
        used: when its last load ended.
        prepared: when it was prepared; 0: it is not.
        timeout: from its begin until it is prepared.
        prepared_timeout: from then until it is committed.
        idle_timeout: without a load; 0: for as long as it likes.
    """

    begun: int
    used: int
    prepared: int = 0
    timeout: int = 600
    prepared_timeout: int = 86_400
    idle_timeout: int = 0

    def seen_at(self, now: int) -> Times:
        """Return the times by a clock that may have stepped back: nothing has happened later than now."""
        return self._replace(begun=min(self.begun, now), used=min(self.used, now), prepared=min(self.prepared, now))


def expiry(state: State, times: Times, now: int) -> str | None:
    """Return why the time of a transaction is over; None: it is not.

    Args:
        state: of the transaction.
        times: of it.
        now: epoch milliseconds.

    Example:
        >>> expiry(State.PREPARE, Times(begun=0, used=0, timeout=10), 10_001)
        'timeout: it was not prepared within 10 seconds'
        >>> expiry(State.PREPARED, Times(begun=0, used=0, prepared=9_000, timeout=10), 10_001) is None
        True
    """
    if state is State.PREPARED:
        if now - times.prepared > times.prepared_timeout * 1000:
            return f"prepared timeout: it was not committed within {times.prepared_timeout} seconds"
        return None
    if state is not State.PREPARE:
        return None
    if now - times.begun > times.timeout * 1000:
        return f"timeout: it was not prepared within {times.timeout} seconds"
    if times.idle_timeout and now - times.used > times.idle_timeout * 1000:
        return f"idle timeout: nothing was loaded for {times.idle_timeout} seconds"
    return None
