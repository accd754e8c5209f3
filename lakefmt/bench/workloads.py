"""The three workloads of Hudi's index guide, as profiles of a table of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lakefmt.advice.profile import TableProfile
from lakefmt.errors import InvalidInputError

__all__ = ["WORKLOADS", "workload"]


def _facts(rows: int) -> TableProfile:
    return TableProfile(
        rows=rows,
        row_bytes=130.0,
        partitions=30,
        key_bytes=36,
        batch_rows=max(1, rows // 100),
        update_share=0.7,
        batch_partitions=8.0,
        hot_share=0.5,
        late_share=0.5,
    )


def _events(rows: int) -> TableProfile:
    return TableProfile(
        rows=rows,
        row_bytes=90.0,
        partitions=30,
        key_bytes=18,
        rising_keys=True,
        batch_rows=max(1, rows // 100),
        update_share=0.05,
        batch_partitions=2.0,
        hot_share=0.95,
        late_share=0.05,
    )


def _dimension(rows: int) -> TableProfile:
    return TableProfile(
        rows=rows,
        row_bytes=130.0,
        key_bytes=36,
        batch_rows=max(1, rows // 100),
        update_share=0.95,
        delete_share=0.02,
    )


WORKLOADS: Final[dict[str, Callable[[int], TableProfile]]] = {
    "facts": _facts,
    "events": _events,
    "dimension": _dimension,
}


def workload(name: str, rows: int) -> TableProfile:
    """Return the profile of a workload.

    Args:
        name: ``"facts"``: late-arriving updates to facts; ``"events"``: de-duplication of an event stream;
            ``"dimension"``: random updates and deletes to a dimension.
        rows: of the table.

    Raises:
        InvalidInputError: there is no such workload.

    Example:
        >>> workload("events", 1000).batch_rows
        10
    """
    if name not in WORKLOADS:
        raise InvalidInputError(f"unknown workload {name!r}: expected one of {', '.join(WORKLOADS)}")
    return WORKLOADS[name](rows)
