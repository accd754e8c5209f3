"""Partition fields by time: ``partition_by=lakefmt.day("ts")``. Pure."""

from __future__ import annotations

from lakefmt.arguments import is_encodable, shown
from lakefmt.errors import InvalidKey

__all__ = ["day", "hour", "month", "year"]


def year(column: str) -> str:
    """Return the partition field with one partition for each year of a timestamp or date column.

    Args:
        column: the column's name.

    Example:
        >>> year("ts")
        'ts:timestamp(yyyy)'
    """
    return _period(column, "yyyy")


def month(column: str) -> str:
    """Return the partition field with one partition for each month: ``2026/01``.

    Args:
        column: the column's name.

    Example:
        >>> month("ts")
        'ts:timestamp(yyyy/MM)'
    """
    return _period(column, "yyyy/MM")


def day(column: str) -> str:
    """Return the partition field with one partition for each day: ``2026/01/31``.

    Args:
        column: the column's name.

    Example:
        >>> day("ts")
        'ts:timestamp(yyyy/MM/dd)'
    """
    return _period(column, "yyyy/MM/dd")


def hour(column: str) -> str:
    """Return the partition field with one partition for each hour: ``2026/01/31/23``.

    Args:
        column: the column's name.

    Example:
        >>> hour("ts")
        'ts:timestamp(yyyy/MM/dd/HH)'
    """
    return _period(column, "yyyy/MM/dd/HH")


def _period(column: object, pattern: str) -> str:
    is_name = isinstance(column, str) and is_encodable(column) and column.strip()
    if not is_name or any(mark in str(column) for mark in ":(),"):
        raise InvalidKey(f"{shown(column)} cannot be partitioned by time: the name of one column is expected")
    return f"{column}:timestamp({pattern})"
