"""The protocols of table locks: the lock, its handle while it is held, and the backend that keeps it.

A :class:`TableLock` is what writers use. A :class:`LockBackend` is where a lock lives – a file, an object, a lock service –
and answers single requests without waiting; :class:`lakefmt._core.timeline.locks.lease.LeasedLock` makes the one of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import field
from typing import Protocol, TypeVar, runtime_checkable

from lakefmt._core.data_classes import dataclass
from lakefmt._core.storage.time_source import TimeSource
from lakefmt.errors import UnsupportedFeature

__all__ = ["FencedLease", "Lease", "LockBackend", "LockHandle", "LockOptions", "RetryPolicy", "TableLock"]

T = TypeVar("T")

_FIRST_PAUSE_SECONDS = 0.002
_PAUSE_GROWTH = 1.6
_PATIENT_SHARE = 8


class Lease(Protocol):
    """A lock that is held."""

    def check(self) -> None:
        """Raise LeaseLost unless the lock is still ours; asked right before the put that completes a commit."""
        ...


@runtime_checkable
class FencedLease(Lease, Protocol):
    """A lease that can be lost while it is held: by time, or because another writer took the lock."""

    @property
    def token(self) -> str:
        """What this tenure, and no other, is called where the lock lives (the fencing token)."""
        ...

    @property
    def expires(self) -> float | None:
        """Seconds of the pacing's monotonic clock at which it ends unless it is renewed; None: the service knows."""
        ...


class TableLock(Protocol):
    """Mutual exclusion of everybody who writes one table."""

    def hold(self) -> AbstractContextManager[Lease]:
        """Wait for the lock (bounded), hold it inside the ``with`` block.

        Raises:
            LockUnavailable: it could not be had in time.
        """
        ...


class LockHandle(Protocol):
    """A lock in our hands, as its keeper sees it; nothing here waits."""

    @property
    def token(self) -> str:
        """What this tenure, and no other, is called."""
        ...

    @property
    def valid_seconds(self) -> float | None:
        """How long it lasts from the request that gained or renewed it; None when only its keeper knows."""
        ...

    @property
    def beat_seconds(self) -> float | None:
        """How often it wants to be renewed; None when it cannot be, or need not."""
        ...

    def renew(self) -> bool:
        """Make it last from now on; False when another holder has it, a StorageError when that is not known."""
        ...

    def prove(self) -> bool:
        """Ask the keeper whether it is still ours."""
        ...

    def release(self) -> None:
        """Give it back if it is still ours; another holder's is left alone."""
        ...


class LockBackend(Protocol):
    """Where one table's lock lives."""

    @property
    def what(self) -> str:
        """The lock for people: a file, a key, an address without secrets."""
        ...

    @property
    def hint(self) -> str:
        """What to do when it cannot be had."""
        ...

    @property
    def longest_pause(self) -> float:
        """Seconds between two requests that cost its service little."""
        ...

    def acquire(self) -> LockHandle | None:
        """Ask once; None while another holder has it."""
        ...

    def close(self) -> None:
        """Let go of connections and places in a queue; :meth:`acquire` may be asked again."""
        ...


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a lock is waited for: `rounds` times `seconds`, `between` seconds apart.

    Attributes:
        seconds: one round (``hoodie.write.lock.wait_time_ms``).
        pause: longest pause between two attempts; None: what suits the keeper.
        attempts: most attempts in one round; None: as many as fit.
        rounds: rounds (``hoodie.write.lock.client.num_retries`` + 1).
        between: seconds between two rounds.
    """

    seconds: float = 60.0
    pause: float | None = None
    attempts: int | None = None
    rounds: int = 1
    between: float = 0.0

    @property
    def total(self) -> float:
        """Seconds that all rounds take together."""
        return self.seconds * self.rounds + self.between * (self.rounds - 1)

    def tries(self, time_source: TimeSource, longest: float) -> Iterator[None]:
        """Yield once per attempt and pause in between; the last attempt is at the end of the time, not before it."""
        for number in range(self.rounds):
            if number:
                time_source.sleep(self.between)
            yield from self._round(time_source, longest if self.pause is None else self.pause)

    def _round(self, time_source: TimeSource, longest: float) -> Iterator[None]:
        begin, pause, attempts = time_source.monotonic(), _FIRST_PAUSE_SECONDS, 0
        while True:
            yield
            attempts += 1
            remaining = begin + self.seconds - time_source.monotonic()
            if remaining <= 0 or attempts == self.attempts:
                return
            # Who has waited for half of its time asks more often than newcomers do, so that none starves; chance
            # keeps equals from asking in step for ever.
            next_pause = (
                pause
                if self.pause is not None or remaining > self.seconds / 2
                else min(pause, longest / _PATIENT_SHARE)
            )
            time_source.sleep(min(next_pause * (0.5 + time_source.jitter() / 2), remaining))
            pause = min(pause * _PAUSE_GROWTH, longest)


@dataclass(frozen=True, slots=True)
class LockOptions:
    """What was said about the lock of one table.

    Attributes:
        provider: Hudi's class name, with or without its package; None: the best that the store offers.
        shared: several processes write (``optimistic_concurrency_control``): a lock of this process is not enough.
        patience: how long it is waited for.
        settings: the ``hoodie.write.lock.*`` keys that were set (their values are not shown).
        table_name: tells the table's name, which some providers use as the lock's.
    """

    provider: str | None = None
    shared: bool = False
    retry_policy: RetryPolicy = RetryPolicy()
    settings: Mapping[str, object] = field(default_factory=dict, repr=False)
    table_name: Callable[[], str] = field(default=str, repr=False)

    @property
    def short_name(self) -> str:
        """The provider's class name without its package; empty when none was named."""
        return (self.provider or "").rpartition(".")[2]

    def text(self, key: str) -> str | None:
        """Return ``hoodie.write.lock.<key>``, None when it is not set."""
        value = self.settings.get(f"hoodie.write.lock.{key}")
        return None if value is None or value == "" else str(value)

    def required(self, key: str) -> str:
        """Return ``hoodie.write.lock.<key>``.

        Raises:
            UnsupportedFeature: it is not set.
        """
        value = self.text(key)
        if value is None:
            raise UnsupportedFeature(f"{self.short_name} needs the setting hoodie.write.lock.{key}")
        return value

    def number(self, key: str, default: float) -> float:
        """Return ``hoodie.write.lock.<key>`` as a number."""
        value = self.settings.get(f"hoodie.write.lock.{key}")
        return float(value) if isinstance(value, int | float) else default
