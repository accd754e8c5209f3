"""What every group of verbs on a table shares: the way to the table, and the turn of its writes."""

from __future__ import annotations

from contextlib import AbstractContextManager

from lakefmt.filegroups.access import TableAccess

__all__ = ["TableHandle"]


class TableHandle:
    """The base of the groups of verbs that make up ``Table``."""

    access: TableAccess
    #: Held while a verb of this handle writes.
    _writing: AbstractContextManager[object]
