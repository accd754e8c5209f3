"""The flights of 2013 as a table of daily commits, each made at the end of its day by a clock of that year."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import lakefmt
from examples.quickstart.flights import KEY, SCHEMA
from lakefmt import Table

__all__ = ["FlightClock", "daily_flights", "make_table", "write_day"]

#: The table keeps its whole year on the active timeline; it is compacted and cleaned as it grows.
_SETTINGS = {
    "hoodie.archive.automatic": "false",
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "10",
    "lakefmt.durability": "none",
}
#: A second of the writer is so many of 2013: how long commits took is seen on the axis of a year.
_PACE = 20_000.0


class FlightClock:
    """The clock of a writer in 2013: it is set to the end of each day, and runs on from there."""

    def __init__(self) -> None:
        self._begin, self._set = datetime(2013, 1, 1, tzinfo=UTC), time.monotonic()

    def set(self, day: date) -> None:
        """Go to 23 o'clock of a day."""
        self._begin, self._set = datetime(day.year, day.month, day.day, 23, tzinfo=UTC), time.monotonic()

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return self._begin + timedelta(seconds=(time.monotonic() - self._set) * _PACE)


def daily_flights(reports: pa.Table) -> Iterator[tuple[date, pa.Table]]:
    """Yield the days of some reports with their flights, in order."""
    days = pc.add(pc.multiply(reports["month"], 100), reports["day"])
    for number in sorted(days.unique().to_pylist()):
        yield date(2013, number // 100, number % 100), reports.filter(pc.equal(days, number))


def make_table(path: Path) -> tuple[Table, FlightClock]:
    """Make the empty table, with its clock.

    Args:
        path: of the table; there is none yet.
    """
    table = lakefmt.create_table(
        str(path),
        schema=SCHEMA,
        record_key=KEY,
        partition_by="month",
        ordering="updated",
        table_type="mor",
        options=_SETTINGS,
    )
    clock = FlightClock()
    table.client.clock = clock
    return table, clock


def write_day(table: Table, clock: FlightClock, day: date, flights: pa.Table) -> str:
    """Commit the flights of a day; at the end of a month the small files are clustered. Return the instant."""
    clock.set(day)
    done = table.upsert(flights, commit_metadata={"demo.day": day.isoformat()})
    if (day + timedelta(days=1)).day == 1 and day.month % 3 == 0:
        table.savepoint(done.instant, comment=f"end of quarter {day.month // 3}", user="demo")
    return str(done.instant)
