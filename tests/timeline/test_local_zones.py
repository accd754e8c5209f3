"""Two writers in any two zones on one LOCAL timeline: an instant is never ahead of the other writer's clock."""

from __future__ import annotations

import datetime as dt
import time
import zoneinfo
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.timeline.instant import format_instant_time
from lakefmt._core.timeline.store import LOWEST_ZONE, NEWEST, next_instant_time, offset_of, reading_zone, writing_zone

ZONES = [
    "UTC",
    "Europe/Berlin",
    "Africa/Lagos",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",  # half an hour of daylight saving
    "Pacific/Kiritimati",
    "Etc/GMT+12",
    "Africa/Casablanca",
    "Pacific/Chatham",
]
#: Moments about which clocks change somewhere, and others.
CHANGES = [
    dt.datetime(2026, 3, 29, 1, tzinfo=UTC),
    dt.datetime(2026, 10, 25, 1, tzinfo=UTC),
    dt.datetime(2026, 11, 1, 6, tzinfo=UTC),
]
MOMENTS = st.builds(
    lambda at, seconds: at + dt.timedelta(seconds=seconds), st.sampled_from(CHANGES), st.integers(-90_000, 90_000)
)
STEPS = st.lists(st.tuples(st.booleans(), st.integers(1, 40_000), st.integers(0, 1500)), min_size=1, max_size=12)


@pytest.mark.slow
@given(st.sampled_from(ZONES), MOMENTS, STEPS)
def test_an_instant_is_never_ahead_of_the_other_writers_clock(zone, begin, steps):
    other = zoneinfo.ZoneInfo(zone)
    now, timeline = begin, list[tuple[str, float]]()
    for is_ours, gap, delay in [(False, 0, 0), *steps]:
        now += dt.timedelta(seconds=gap)
        theirs, highest = format_instant_time(now, other), max((t for t, _ in timeline), default="")
        made = theirs
        if is_ours:
            newest = sorted(timeline)[-NEWEST:]
            told = offset_of(newest)
            ours = LOWEST_ZONE if told is None else writing_zone(*told, now)
            made = format_instant_time(now, ours)
            assert made <= theirs
        timeline.append(
            (
                made if made > highest else next_instant_time(highest),
                (now + dt.timedelta(milliseconds=delay)).timestamp(),
            )
        )


@pytest.mark.slow
@given(st.sampled_from(ZONES), MOMENTS, st.integers(1, 10))
def test_the_offset_is_that_of_the_newest_instants(zone, begin, count):
    other, times = zoneinfo.ZoneInfo(zone), []
    for number in range(count):
        now = begin + dt.timedelta(seconds=40 * number)
        times.append((format_instant_time(now, other), now.timestamp() + 0.3))
    told = offset_of(times)
    offsets = {begin.astimezone(other).utcoffset(), now.astimezone(other).utcoffset()}
    assert told is not None
    assert dt.timedelta(seconds=told[0]) == min(offsets)


@pytest.mark.slow
@given(st.sampled_from(ZONES), MOMENTS, st.integers(3, 8), st.integers(3600, 10**7))
def test_a_copied_table_tells_no_offset(zone, begin, count, later):
    other = zoneinfo.ZoneInfo(zone)
    copied = begin.timestamp() + later + 3600 * count
    times = [(format_instant_time(begin + dt.timedelta(seconds=701 * n), other), copied) for n in range(count)]
    assert offset_of(times) is None


def test_times_that_are_not_known_tell_nothing():
    assert offset_of([("20260101000000000", 0.0), ("002", 5.0)]) is None
    assert offset_of([]) is None


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process is in a zone ahead of the other writer's."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_caller_in_the_zone_of_the_table_has_its_daylight_saving(in_tokyo):
    stored = dt.datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    assert reading_zone(9 * 3600, stored) is None
    assert reading_zone(0, stored) == UTC


@pytest.mark.slow
@pytest.mark.parametrize(("version", "kind"), [(v, k) for v in (6, 8, 9) for k in ("cow", "mor")])
def test_what_the_other_writer_wrote_last_is_read(tmp_path: Path, in_tokyo, version, kind):
    rows = pa.table({"id": ["a", "b"], "v": [0, 0]})
    path = tmp_path / "t"
    lakefmt.create_table(path, data=rows, record_key="id", table_version=version, table_type=kind)
    properties = path / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text().replace("timezone=UTC", "timezone=LOCAL"))

    def other() -> lakefmt.Table:
        """A writer whose machine is in UTC."""
        table = lakefmt.open_table(path)
        table.client.writing_zone = lambda config, timeline: UTC
        return table

    between = []
    for number in range(1, 7):
        writer = other() if number % 2 else lakefmt.open_table(path)
        writer.upsert(pa.table({"id": ["a"], "v": [number]}))
        assert lakefmt.open_table(path).read()["v"].to_pylist() == [number]
        # The next instant may begin within this millisecond, and an instant has no finer time.
        between.append((number, dt.datetime.now(UTC) - dt.timedelta(milliseconds=1)))
    table = lakefmt.open_table(path)
    for number, moment in between:
        assert table.snapshot(as_of=moment).read()["v"].to_pylist() == [number]
    assert table.read()["v"].to_pylist() == [6]


def test_partitions_that_were_written_just_now_do_not_expire_on_a_local_timeline(tmp_path: Path) -> None:
    path = tmp_path / "t"
    schema = pa.schema([("p", pa.string()), ("v", pa.int64())])
    lakefmt.create_table(path, schema=schema, kind="append", partition_by="p")
    properties = path / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text("utf-8").replace("timezone=UTC", "timezone=LOCAL"), "utf-8")
    table = lakefmt.open_table(path)
    table.append(pa.table({"p": ["a"], "v": [1]}))
    assert table.expire_partitions(dt.timedelta(hours=2), by="update") == ()
    assert table.read().num_rows == 1
