"""Watermarks in commits: up to which event time rows are complete (docs/consumers.md, Watermarks). Pure.

A watermark is a number of milliseconds since 1970-01-01 UTC. A commit keeps it as text in its extra metadata
(:mod:`lakefmt.timeline.commit_entries`). It never falls from one commit to the next; a commit without one has that of the
commit before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.errors import InvalidInputError
from lakefmt.timeline.commit_entries import watermark_of

__all__ = [
    "ALLOWED_DELAY",
    "EVENT_TIME_COLUMN",
    "batch_watermark",
    "check_watermark",
    "event_time_maximum",
    "newest_watermark",
    "next_watermark",
    "watermark_of_rows",
]

#: The table property that names the column of event times.
EVENT_TIME_COLUMN: Final = "lakefmt.event.time.column"
#: The table property that says by how many milliseconds rows may be late.
ALLOWED_DELAY: Final = "lakefmt.allowed.delay"

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_PER_MILLISECOND = {"us": 1_000, "ns": 1_000_000}
_MILLISECONDS = {"s": 1_000, "ms": 1}
_DAY = 86_400_000


def next_watermark(given: int | None, newest: int | None) -> int | None:
    """Return the watermark of a commit.

    Args:
        given: that of the writer, in milliseconds; None: it has none.
        newest: that of the newest completed commit; None: none has one.

    Example:
        >>> next_watermark(5, None), next_watermark(5, 9), next_watermark(None, 9), next_watermark(None, None)
        (5, 9, 9, None)
    """
    if given is None or newest is None:
        return newest if given is None else given
    return max(given, newest)


def batch_watermark(maximum: int | None, delay: int = 0) -> int | None:
    """Return what a writer promises after rows whose largest event time is `maximum`.

    Args:
        maximum: in milliseconds; None: no row has an event time.
        delay: by how many milliseconds later rows may be late.

    Example:
        >>> batch_watermark(10_000, 5_000), batch_watermark(None)
        (5000, None)
    """
    return None if maximum is None else max(_LOWEST, maximum - delay)


def watermark_of_rows(properties: Mapping[str, str], rows: pa.Table) -> int | None:
    """Return what the commit of some rows promises by the properties of their table.

    Args:
        properties: they name the column of event times, and the delay of late rows.
        rows: in the table's columns, or some of them.

    Raises:
        InvalidInputError: the column holds no times, or the delay is no number of milliseconds.

    Example:
        >>> properties = {"lakefmt.event.time.column": "at", "lakefmt.allowed.delay": "5"}
        >>> watermark_of_rows(properties, pa.table({"at": [10, 30, 20]})), watermark_of_rows({}, pa.table({"at": [10]}))
        (25, None)
    """
    name, delay = properties.get(EVENT_TIME_COLUMN), properties.get(ALLOWED_DELAY) or "0"
    if name is None or name not in rows.column_names:
        return None
    if not (delay.isascii() and delay.isdigit()):
        raise InvalidInputError(f"{ALLOWED_DELAY}={delay[:40]!r}: milliseconds as a whole number are expected")
    return batch_watermark(event_time_maximum(rows.column(name), name), int(delay))


def check_watermark(value: object, name: str = "watermark") -> int:
    """Return a watermark that a caller gave.

    Raises:
        InvalidInputError: no number of milliseconds.

    Example:
        >>> check_watermark(0)
        0
    """
    if isinstance(value, bool) or not isinstance(value, int) or not _LOWEST <= value <= _HIGHEST:
        raise InvalidInputError(f"{name}={value!r:.60}: milliseconds since 1970 as a whole number are expected")
    return value


def newest_watermark(extras: Iterable[Mapping[str, str]]) -> int | None:
    """Return the watermark of the newest commit.

    Args:
        extras: the extra metadata of commits, the newest first; commits of other engines have none and are passed over.

    Example:
        >>> newest_watermark([{}, {"lakefmt.watermark": "4"}, {"lakefmt.watermark": "3"}])
        4
    """
    return next((value for value in map(watermark_of, extras) if value is not None), None)


def event_time_maximum(column: pa.Array | pa.ChunkedArray, name: str = "event time") -> int | None:
    """Return the largest event time of a column in milliseconds, rounded down; None: it holds nulls only.

    Args:
        column: timestamps, dates, or whole numbers of milliseconds.
        name: of the column, for messages.

    Raises:
        InvalidInputError: the column holds no times.

    Example:
        >>> event_time_maximum(pa.array([1_999, None, 2_500], pa.timestamp("us"))), event_time_maximum(pa.array([7]))
        (2, 7)
    """
    kind = column.type
    if pa.types.is_date(kind):
        column, unit = column.cast(pa.date32()).cast(pa.int32()), _DAY
    elif pa.types.is_timestamp(kind):
        column, unit = column.cast(pa.int64()), _MILLISECONDS.get(kind.unit, 0)
    elif pa.types.is_integer(kind):
        unit = 1
    else:
        raise InvalidInputError(
            f"the column {name!r} has the type {kind}: event times are timestamps, dates or milliseconds"
        )
    largest = pc.max(column).as_py()
    if largest is None:
        return None
    return int(largest) * unit if unit else int(largest) // _PER_MILLISECOND[kind.unit]
