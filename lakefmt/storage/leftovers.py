"""What stores with temporary objects offer beside the common verbs."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from lakefmt.storage.api import Buffer, ObjectStore

__all__ = ["SupportsAbandoned", "SupportsLeftovers", "remove_abandoned"]


@runtime_checkable
class SupportsLeftovers(Protocol):
    """A store whose unfinished puts leave temporary objects when their process dies."""

    def remove_leftovers(self, older_than_epoch: float) -> int:
        """Remove temporary objects last written before `older_than_epoch` (epoch seconds); return how many."""
        ...

    def leave_temporary(self, name: str, data: Buffer) -> None:
        """Leave what a put of `name` leaves behind when its process dies half-way (for crash tests)."""
        ...


@runtime_checkable
class SupportsAbandoned(Protocol):
    """A store that can tell temporary objects of dead processes from those of living ones."""

    def remove_abandoned(self, prefix: str = "", *, recursive: bool = True) -> int:
        """Remove temporary objects below `prefix` whose process on this machine has ended; return how many."""
        ...


def remove_abandoned(store: ObjectStore, prefix: str = "", *, recursive: bool = True) -> int:
    """Remove what dead processes of this machine left unfinished; 0 where a store cannot tell."""
    return store.remove_abandoned(prefix, recursive=recursive) if isinstance(store, SupportsAbandoned) else 0
