"""What stores with temporary objects offer beside the common verbs."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from lakefmt.storage.api import Buffer

__all__ = ["SupportsLeftovers"]


@runtime_checkable
class SupportsLeftovers(Protocol):
    """A store whose unfinished puts leave temporary objects when their process dies."""

    def remove_leftovers(self, older_than_epoch: float) -> int:
        """Remove temporary objects last written before `older_than_epoch` (epoch seconds); return how many."""
        ...

    def leave_temporary(self, name: str, data: Buffer) -> None:
        """Leave what a put of `name` leaves behind when its process dies half-way (for crash tests)."""
        ...
