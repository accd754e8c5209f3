"""What the table must hold, computed by DuckDB from the raw file without lakefmt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefmt.errors import UnsupportedFeature

if TYPE_CHECKING:
    import duckdb

__all__ = ["Expected"]

_RAW = """
create table raw as
select * replace (time_hour::timestamptz as time_hour),
       (time_hour + to_minutes(minute))::timestamptz as scheduled
from read_csv($path, header = true, nullstr = 'NA', columns = {
    year: 'INTEGER', month: 'INTEGER', day: 'INTEGER', dep_time: 'INTEGER', sched_dep_time: 'INTEGER',
    dep_delay: 'INTEGER', arr_time: 'INTEGER', sched_arr_time: 'INTEGER', arr_delay: 'INTEGER', carrier: 'VARCHAR',
    flight: 'INTEGER', tailnum: 'VARCHAR', origin: 'VARCHAR', dest: 'VARCHAR', air_time: 'INTEGER',
    distance: 'INTEGER', hour: 'INTEGER', minute: 'INTEGER', time_hour: 'TIMESTAMP'})
where list_contains($months, month)
"""

# Every message about a flight, with the time it was known.
_MESSAGES = """
create view reports as select *, scheduled + interval 1 day as updated from raw;

create view plans as
select * replace (null::integer as dep_time, null::integer as dep_delay, null::integer as arr_time,
                  null::integer as arr_delay, null::integer as air_time),
       scheduled - interval 1 day as updated
from raw;

create view corrections as
select * replace (((((arr_time // 100 * 60 + arr_time % 100) - (sched_arr_time // 100 * 60 + sched_arr_time % 100))
                    + 720 + 1440) % 1440 - 720)::integer as arr_delay),
       scheduled + interval 45 day as updated
from raw
where arr_time is not null and arr_delay is null;
"""

_BEFORE = "select * from reports where month <> {late}"
_LATEST = """
select * exclude (place) from (
    select *, row_number() over (partition by carrier, flight, origin, scheduled order by updated desc) as place
    from (select * from reports union all select * from plans union all
          select * from corrections where month <> {late})
) where place = 1
"""
_NEVER_LEFT = "(select (carrier, flight, origin, scheduled) from raw where dep_time is null)"
_AFTER = f"{_LATEST} and (carrier, flight, origin, scheduled) not in {_NEVER_LEFT}"
_AFTER_ONCE = "create table after as " + _AFTER

# What was written after the first load and is still there: the late month, and what was corrected.
_CHANGED = "select * from after where month = {late} or updated = scheduled + interval 45 day"


class Expected:
    """DuckDB with the raw file loaded; every method returns a typed table."""

    def __init__(self, path: Path, months: Sequence[int]) -> None:
        """Load `months`; the last of them is the late one.

        Raises:
            UnsupportedFeature: DuckDB is not installed.
        """
        try:
            import duckdb
        except ImportError:
            raise UnsupportedFeature(
                "DuckDB is not installed, so the expected rows cannot be computed: pip install 'lakefmt[demo]', "
                "or --no-judges"
            ) from None
        self._late = int(months[-1])
        self._connection: duckdb.DuckDBPyConnection = duckdb.connect()
        self._connection.execute("set TimeZone = 'UTC'")
        self._connection.execute(_RAW, {"path": str(path), "months": [int(month) for month in months]})
        self._connection.execute(_MESSAGES)
        self._connection.execute(self._sql(_AFTER_ONCE))

    def before(self) -> pa.Table:
        """The table after the first load."""
        return self._ask(_BEFORE)

    def reports(self) -> pa.Table:
        """The report of every flight."""
        return self._ask("select * from reports")

    def after(self) -> pa.Table:
        """The table when everything has arrived."""
        return self._ask("select * from after")

    def changed(self) -> pa.Table:
        """The rows that were written after the first load and are still there."""
        return self._ask(_CHANGED)

    def per_month(self) -> dict[int, int]:
        """Number of flights of each month in the end."""
        rows = self._connection.execute("select month, count(*) from after group by month order by month").fetchall()
        return {int(month): int(count) for month, count in rows}

    def count_before(self) -> int:
        """Number of flights after the first load."""
        (count,) = self._connection.execute(self._sql(f"select count(*) from ({_BEFORE})")).fetchall()[0]
        return int(count)

    def _ask(self, query: str) -> pa.Table:
        answer: pa.Table = self._connection.sql(self._sql(query)).to_arrow_table()
        return answer

    def _sql(self, query: str) -> str:
        return query.format(late=self._late)
