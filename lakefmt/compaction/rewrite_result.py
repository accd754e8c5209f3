"""What the results of services that rewrite file slices have in common (pure)."""

from __future__ import annotations

from typing import Generic, TypeVar

from lakefmt.data_classes import dataclass
from lakefmt.values import InstantTime, WriteStat

__all__ = ["RewriteResult"]

Plan_co = TypeVar("Plan_co", covariant=True)


@dataclass(frozen=True, slots=True)
class RewriteResult(Generic[Plan_co]):
    """What a compaction, log compaction or clustering did.

    Attributes:
        instant: its requested time; None: there was nothing to rewrite, or it is only a plan.
        plan: what was to be rewritten.
        completion_time: when it became visible; None: it did not.
        files: the new files, in the order of the plan.
        finished: pending instants of the service that were executed before.
        seconds: how long it took.
    """

    instant: InstantTime | None
    plan: Plan_co
    completion_time: InstantTime | None = None
    files: tuple[WriteStat, ...] = ()
    finished: tuple[InstantTime, ...] = ()
    seconds: float = 0.0

    @property
    def num_rows(self) -> int:
        """Rows in the new files."""
        return sum(stat.num_writes for stat in self.files)

    @property
    def bytes_written(self) -> int:
        """Bytes of the new files."""
        return sum(stat.total_write_bytes for stat in self.files)
