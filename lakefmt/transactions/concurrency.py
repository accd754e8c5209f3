"""How writers of one table work beside each other, and which settings would lose data (pure)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from lakefmt.config.settings import Settings
from lakefmt.errors import InvalidInputError, UnknownSetting, UnsupportedFeature

__all__ = ["Concurrency", "FailedWrites", "check_concurrency", "is_beside"]

_MODE: Final = "hoodie.write.concurrency.mode"
_POLICY: Final = "hoodie.clean.failed.writes.policy"
_STRATEGY: Final = "hoodie.write.lock.conflict.resolution.strategy"
_TURN: Final = "lakefmt.write.turn.after.conflicts"
_STRATEGIES: Final = frozenset(
    {"SimpleConcurrentFileWritesConflictResolutionStrategy", "PreferWriterConflictResolutionStrategy"}
)
#: A write that takes its turn comes through at once; where it may not, because it takes long, some ten attempts are bad luck.
_RETRIES: Final = 20


class FailedWrites(enum.Enum):
    """What a write does about those that died."""

    EAGER = "eager"
    LAZY = "lazy"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How one writer behaves beside others.

    Attributes:
        beside: True when it begins beside live writers and does again what cannot stand; False: it wants to be alone.
        failed_writes: what it does about writes that died. Writes that are only slow are never touched.
        retries: how often it does its write again after a conflict.
        early: True when it looks for rivals before it writes files.
        turn_after: conflicts after which it holds the lock for a whole attempt; 0: never.
    """

    beside: bool
    failed_writes: FailedWrites
    retries: int
    early: bool
    turn_after: int = 0


def check_concurrency(settings: Settings, *, lock_reaches_all: bool) -> Concurrency:
    """Return how a writer behaves, or refuse settings under which writers could lose each other's rows.

    Args:
        settings: those of the call.
        lock_reaches_all: the lock excludes every process that may write: the store has locks between processes, or a
            provider was named.

    Raises:
        InvalidInputError: the settings could lose data together.
        UnsupportedFeature: a mode or strategy that lakefmt cannot keep.
        UnknownSetting: Hudi has no such strategy.

    Example:
        >>> from lakefmt.config.settings import resolve_settings
        >>> many = resolve_settings({"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"})
        >>> check_concurrency(many, lock_reaches_all=True).failed_writes.value
        'lazy'
    """
    mode = settings.text(_MODE)
    if mode == "non_blocking_concurrency_control":
        raise UnsupportedFeature(
            f"{_MODE}={mode} needs a merge-on-read table with a bucket index, where writers meet in logs only; lakefmt has "
            "no bucket index: use optimistic_concurrency_control"
        )
    _check_strategy(settings.text(_STRATEGY))
    beside = is_beside(settings)
    background = settings.flag("lakefmt.write.services.background")
    named = settings.text(_POLICY)
    if named == "eager" and (beside or background):
        others = f"{_MODE}={mode}" if beside else "lakefmt.write.services.background=true"
        raise InvalidInputError(
            f"{_POLICY}=eager means that whatever is pending has failed, but with {others} others may be at work: leave it "
            "unset, or say lazy"
        )
    if beside and not lock_reaches_all:
        raise InvalidInputError(
            f"{_MODE}={mode} needs a lock that every writer takes, and this store has none of its own: set "
            "hoodie.write.lock.provider (InProcessLockProvider when all writers are threads of this process)"
        )
    policy = FailedWrites(named) if named else FailedWrites.LAZY if beside or background else FailedWrites.EAGER
    asked = settings.values["hoodie.write.num.retries.on.conflict.failures"]
    retries = int(str(asked)) if asked is not None else _RETRIES if beside else 0
    early = settings.flag("hoodie.write.concurrency.early.conflict.detection.enable")
    return Concurrency(beside, policy, retries, early, settings.integer(_TURN) if beside else 0)


def is_beside(settings: Settings) -> bool:
    """Return whether a writer expects others at work.

    Example:
        >>> from lakefmt.config.settings import resolve_settings
        >>> is_beside(resolve_settings({}))
        False
    """
    return settings.text(_MODE) == "optimistic_concurrency_control"


def _check_strategy(named: str | None) -> None:
    if named is None or named.rsplit(".", 1)[-1] in _STRATEGIES:
        return
    if named.rsplit(".", 1)[-1] == "BucketIndexConcurrentFileWritesConflictResolutionStrategy":
        raise UnsupportedFeature(f"{_STRATEGY}={named} is for tables with a bucket index, which lakefmt does not have")
    raise UnknownSetting(f"{_STRATEGY} does not take {named!r}: expected one of {', '.join(sorted(_STRATEGIES))}")
