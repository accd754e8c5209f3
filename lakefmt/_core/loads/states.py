"""The state machine of a transaction: which operation may follow which state, and when its time is over (pure)."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

__all__ = ["TRANSITIONS", "Answer", "LoadState", "Operation", "Times", "expiry", "transition"]


class LoadState(enum.Enum):
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
    """What may be done to a transaction; TIMEOUT comes from its clock."""

    BEGIN = "begin"
    LOAD = "load"
    PREPARE = "prepare"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    TIMEOUT = "timeout"


class Answer(enum.Enum):
    """What becomes of an operation: it is done, was done before, or is refused for a reason."""

    DO = "do"
    AGAIN = "again"
    DUPLICATE = "duplicate"
    MISSING = "missing"
    REFUSED = "refused"


class NextState(NamedTuple):
    """A verdict, and the state afterwards."""

    verdict: Answer
    state: LoadState


_S, _O, _V = LoadState, Operation, Answer


def _row(state: LoadState, **steps: NextState) -> dict[Operation, NextState]:
    """Return the steps of a state; what is not named is refused and changes nothing."""
    return {each: steps.get(each.value, NextState(_V.REFUSED, state)) for each in Operation}


#: For every state and operation what happens.
TRANSITIONS: Final[dict[LoadState, dict[Operation, NextState]]] = {
    _S.UNKNOWN: {
        each: NextState(_V.DO, _S.PREPARE) if each is _O.BEGIN else NextState(_V.MISSING, _S.UNKNOWN)
        for each in Operation
    },
    _S.PREPARE: _row(
        _S.PREPARE,
        begin=NextState(_V.DUPLICATE, _S.PREPARE),
        load=NextState(_V.DO, _S.PREPARE),
        prepare=NextState(_V.DO, _S.PREPARED),
        commit=NextState(_V.DO, _S.VISIBLE),
        rollback=NextState(_V.DO, _S.ABORTED),
        timeout=NextState(_V.DO, _S.ABORTED),
    ),
    _S.PREPARED: _row(
        _S.PREPARED,
        begin=NextState(_V.DUPLICATE, _S.PREPARED),
        prepare=NextState(_V.AGAIN, _S.PREPARED),
        commit=NextState(_V.DO, _S.VISIBLE),
        rollback=NextState(_V.DO, _S.ABORTED),
        timeout=NextState(_V.DO, _S.ABORTED),
    ),
    # One of its tables has its rows: all that is left is to give the others theirs.
    _S.COMMITTED: _row(_S.COMMITTED, begin=NextState(_V.DUPLICATE, _S.COMMITTED), commit=NextState(_V.DO, _S.VISIBLE)),
    _S.VISIBLE: _row(_S.VISIBLE, begin=NextState(_V.DUPLICATE, _S.VISIBLE), commit=NextState(_V.AGAIN, _S.VISIBLE)),
    _S.ABORTED: _row(_S.ABORTED, begin=NextState(_V.DO, _S.PREPARE), rollback=NextState(_V.AGAIN, _S.ABORTED)),
}


def transition(state: LoadState, operation: Operation) -> NextState:
    """Return what happens to a transaction.

    Example:
        >>> transition(LoadState.PREPARED, Operation.COMMIT)
        NextState(verdict=<Answer.DO: 'do'>, state=<LoadState.VISIBLE: 'VISIBLE'>)
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


def expiry(state: LoadState, times: Times, now: int) -> str | None:
    """Return why the time of a transaction is over; None: it is not.

    Args:
        state: of the transaction.
        times: of it.
        now: epoch milliseconds.

    Example:
        >>> expiry(LoadState.PREPARE, Times(begun=0, used=0, timeout=10), 10_001)
        'timeout: it was not prepared within 10 seconds'
        >>> expiry(LoadState.PREPARED, Times(begun=0, used=0, prepared=9_000, timeout=10), 10_001) is None
        True
    """
    if state is LoadState.PREPARED:
        if now - times.prepared > times.prepared_timeout * 1000:
            return f"prepared timeout: it was not committed within {times.prepared_timeout} seconds"
        return None
    if state is not LoadState.PREPARE:
        return None
    if now - times.begun > times.timeout * 1000:
        return f"timeout: it was not prepared within {times.timeout} seconds"
    if times.idle_timeout and now - times.used > times.idle_timeout * 1000:
        return f"idle timeout: nothing was loaded for {times.idle_timeout} seconds"
    return None
