"""How concurrent writers of one table behave, and which settings would lose data. Pure."""

from __future__ import annotations

import enum
from typing import Final

from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.values import TableType
from lakefmt.errors import InvalidInputError, UnknownSetting

__all__ = ["Concurrency", "FailedWrites", "check_concurrency", "check_non_blocking", "is_beside", "is_non_blocking"]

_MODE: Final = "hoodie.write.concurrency.mode"
_POLICY: Final = "hoodie.clean.failed.writes.policy"
_STRATEGY: Final = "hoodie.write.lock.conflict.resolution.strategy"
_TURN: Final = "lakefmt.write.turn.after.conflicts"
#: The last one compares buckets, which :func:`lakefmt._core.timeline.conflict.check_conflict` does wherever file groups have them.
_STRATEGIES: Final = frozenset(
    {
        "SimpleConcurrentFileWritesConflictResolutionStrategy",
        "PreferWriterConflictResolutionStrategy",
        "BucketIndexConcurrentFileWritesConflictResolutionStrategy",
    }
)
_OPTIMISTIC: Final = "optimistic_concurrency_control"
_NON_BLOCKING: Final = "non_blocking_concurrency_control"
#: A write that may keep the lock succeeds soon. One that takes too long for that may lose ten attempts by bad luck.
_RETRIES: Final = 20


class FailedWrites(enum.Enum):
    """When failed writes are rolled back, as in ``hoodie.clean.failed.writes.policy``."""

    EAGER = "eager"
    LAZY = "lazy"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How one writer behaves beside others.

    Attributes:
        beside: True: it begins beside live writers and repeats its write after a conflict. False: it needs to be alone.
        background: services run beside it, in a thread of its process; it repeats its write after a conflict with them, too.
        failed_writes: when it rolls back writes whose writer is dead. Live writers are never rolled back.
        retries: attempts after a conflict.
        early: whether it looks for conflicts before it writes files (early conflict detection).
        turn_after: conflicts after which it holds the lock for a whole attempt; 0: never.
    """

    beside: bool
    background: bool
    failed_writes: FailedWrites
    retries: int
    early: bool
    turn_after: int = 0


def check_concurrency(settings: Settings, *, lock_reaches_all: bool) -> Concurrency:
    """Return how a writer behaves, or refuse settings under which writers could lose each other's rows.

    Args:
        settings: of the call.
        lock_reaches_all: whether the lock excludes every process that may write: the store has locks between processes,
            or a lock provider is set.

    Raises:
        InvalidInputError: the settings could lose data together.
        UnknownSetting: Hudi has no such strategy.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> many = resolve_settings({"hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL"})
        >>> check_concurrency(many, lock_reaches_all=True).failed_writes.value
        'lazy'
    """
    mode = settings.text(_MODE)
    strategy = settings.text(_STRATEGY)
    if strategy is not None and strategy.rsplit(".", 1)[-1] not in _STRATEGIES:
        raise UnknownSetting(
            f"{_STRATEGY} does not take {strategy!r}: expected one of {', '.join(sorted(_STRATEGIES))}"
        )
    beside = is_beside(settings)
    background = settings.flag("lakefmt.write.services.background")
    policy_name = settings.text(_POLICY)
    if policy_name == "eager" and (beside or background):
        cause = f"{_MODE}={mode}" if beside else "lakefmt.write.services.background=true"
        raise InvalidInputError(
            f"{_POLICY}=eager means that whatever is pending has failed, but with {cause} others may be at work: leave it "
            "unset, or say lazy"
        )
    if beside and not lock_reaches_all:
        raise InvalidInputError(
            f"{_MODE}={mode} needs a lock that every writer takes, and this store has none of its own: set "
            "hoodie.write.lock.provider (InProcessLockProvider when all writers are threads of this process)"
        )
    policy = (
        FailedWrites(policy_name) if policy_name else FailedWrites.LAZY if beside or background else FailedWrites.EAGER
    )
    retry_setting = settings.values["hoodie.write.num.retries.on.conflict.failures"]
    retries = int(str(retry_setting)) if retry_setting is not None else _RETRIES if beside or background else 0
    early = settings.flag("hoodie.write.concurrency.early.conflict.detection.enable")
    return Concurrency(beside, background, policy, retries, early, settings.integer(_TURN) if beside else 0)


def is_beside(settings: Settings) -> bool:
    """Return whether a writer expects others at work.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> is_beside(resolve_settings({}))
        False
    """
    return settings.text(_MODE) in (_OPTIMISTIC, _NON_BLOCKING)


def is_non_blocking(settings: Settings) -> bool:
    """Return whether writers of one file group do not conflict, because each of them only adds logs.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> is_non_blocking(resolve_settings({"hoodie.write.concurrency.mode": "non_blocking_concurrency_control"}))
        True
    """
    return settings.text(_MODE) == _NON_BLOCKING


def check_non_blocking(settings: Settings, config: TableConfig, *, places_keys: bool) -> None:
    """Raise when non-blocking writers of a table would not meet in logs only.

    Args:
        settings: of the call.
        config: of the table. From version 8 on each commit writes log files of its own.
        places_keys: whether its index gives every key one file group, whatever writer it is.

    Raises:
        InvalidInputError: the mode is non-blocking and one of these is missing.
    """
    own_logs = config.table_type is TableType.MERGE_ON_READ and config.version.layout > 1
    if is_non_blocking(settings) and not (own_logs and places_keys):
        raise InvalidInputError(
            f"{_MODE}={_NON_BLOCKING} needs a merge-on-read table of version 8 or 9 with a bucket index of a fixed "
            f"number of buckets, where writers meet in logs only: use {_OPTIMISTIC}"
        )
