"""What takes part in every completion of an instant: the protocol of commit observers. Pure declarations.

The metadata table is one: its deltacommit of the same instant completes before the data table's instant does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.sorting.written_keys import WrittenKeys
from lakefmt._core.storage.table_directory import TableDirectory
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.instant import Action, Instant
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import InstantTime

__all__ = ["CommitObserver", "PendingCompletion"]


def _unproved() -> None:
    """Nothing can be lost: the caller needs no lock."""


@dataclass(frozen=True, slots=True)
class PendingCompletion:
    """An instant that is about to be completed, under the table lock.

    Attributes:
        time: the requested time of the instant.
        action: what it does.
        config: the table's properties, read under this lock.
        timeline: the table's timeline, listed under this lock; the instant is pending on it.
        body: what the completed file will say, encoded.
        commit: the same as values, for commits, deltacommits, replacecommits and compactions; None for other actions.
        next_time: hands out instant times above everything on the timeline. The completion time of the instant is taken
            from it after every observer has returned.
        prove_lock: raises when the table lock was lost. A completion that another writer could miss is proved first.
        directory: what is below ``.hoodie``, listed under this lock; None: its parts are listed where they are needed.
        written_keys: what this process recorded of the keys of files that it wrote for the instant.
    """

    time: InstantTime
    action: Action
    config: TableConfig
    timeline: Timeline
    body: bytes
    commit: CommitMetadata | None
    next_time: Callable[[], InstantTime]
    prove_lock: Callable[[], None] = _unproved
    directory: TableDirectory | None = None
    written_keys: WrittenKeys | None = None

    def proved_time(self) -> InstantTime:
        """Return the next instant time after the lock was proved: for completions of an observer's own.

        Raises:
            LeaseLost: the lock was lost.
        """
        self.prove_lock()
        return self.next_time()


class CommitObserver(Protocol):
    """Takes part in completions. It runs under the table lock and may be called again for an instant that it knows.

    The instant is invisible until every observer has returned. When one raises, the instant is not completed; what the
    observer has written for it by then must be invisible to readers until the instant is complete, and must go when the
    instant is rolled back.
    """

    def before_completion(self, pending: PendingCompletion) -> None:
        """Write what belongs to the instant; raise to refuse its completion."""
        ...

    def before_rollback(self, config: TableConfig, targets: Sequence[Instant]) -> None:
        """Raise to refuse that completed or pending instants are rolled back; nothing is changed before it returns."""
        ...
