"""Which partitions are old (docs/append.md, Expiry). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, tzinfo

from lakefmt.arguments import shown
from lakefmt.errors import InvalidInputError
from lakefmt.timeline.instant import parse_instant_time
from lakefmt.values import InstantTime, PartitionPath

__all__ = ["old_partitions", "parse_cutoff", "partition_time"]


def parse_cutoff(older_than: object, now: datetime) -> datetime:
    """Return the moment before which a partition is old.

    Raises:
        InvalidInputError: it is no span of time and no moment.

    Example:
        >>> from datetime import UTC
        >>> parse_cutoff(timedelta(days=1), datetime(2026, 1, 2, tzinfo=UTC)).isoformat()
        '2026-01-01T00:00:00+00:00'
    """
    if isinstance(older_than, timedelta) and older_than >= timedelta(0):
        return now - older_than
    if isinstance(older_than, datetime) and older_than.tzinfo is not None:
        return older_than
    raise InvalidInputError(f"older_than takes a timedelta or a time with its zone, not {shown(older_than)}")


def partition_time(values: Mapping[str, object] | None, zone: tzinfo) -> datetime | None:
    """Return the time that the first dated value of a partition names; None: no value is a date.

    Example:
        >>> from datetime import UTC
        >>> partition_time({"city": "oslo", "day": "2026-01-31"}, UTC).isoformat()
        '2026-01-31T00:00:00+00:00'
    """
    for value in (values or {}).values():
        when = value
        if isinstance(value, str):
            try:
                when = datetime.fromisoformat(value.replace("/", "-"))
            except ValueError:
                continue
        if isinstance(when, datetime):
            return when if when.tzinfo is not None else when.replace(tzinfo=zone)
        if isinstance(when, date):
            return datetime.combine(when, time(0), zone)
    return None


def old_partitions(
    times: Mapping[PartitionPath, datetime | None],
    newest: Mapping[PartitionPath, InstantTime],
    cutoff: datetime,
    zone: tzinfo,
    by: str,
) -> tuple[PartitionPath, ...]:
    """Return the partitions that are older than a moment.

    Args:
        times: what the values of each partition name.
        newest: requested time of the last write to each partition.
        cutoff: the moment.
        zone: of instant times.
        by: ``"values"``: by the time that a partition's values name, and those without are kept; ``"update"``: by its last
            write.

    Raises:
        InvalidInputError: another word for `by`.
    """
    if by not in ("values", "update"):
        raise InvalidInputError(f"unknown by {shown(by)}: expected 'values' or 'update'")
    ages = times if by == "values" else {path: parse_instant_time(last, zone) for path, last in newest.items()}
    return tuple(sorted(path for path, when in ages.items() if when is not None and when < cutoff))
