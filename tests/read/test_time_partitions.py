"""A filter on times leaves out partitions of other days, hours, months and years, and never a row."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.keys import plan_key_spec, time_guarantees, timestamp
from lakefmt._core.read.file_selection import ReadReport
from lakefmt._core.read.filters import keep_rows, parse_filter
from tests.kit import content

PERIODS = {"year": lakefmt.year, "month": lakefmt.month, "day": lakefmt.day, "hour": lakefmt.hour}
ZONES = ["", "UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia", "GMT+8"]
NUMBERS = itertools.count()
KINDS = {
    "us": (pa.timestamp("us", "UTC"), ""),
    "local": (pa.timestamp("us"), ""),
    "date": (pa.date32(), ""),
    "seconds": (pa.int64(), ", UNIX_TIMESTAMP"),
    "millis": (pa.int64(), ", EPOCHMILLISECONDS"),
}
UNITS = {"us": 1_000_000, "local": 1_000_000, "seconds": 1, "millis": 1_000}
DAY = 86_400
#: The epoch, both changes of the clock in New York and on Lord Howe, a day that Samoa did not have, ends of years and months.
EDGES = [
    int(datetime(*moment, tzinfo=UTC).timestamp())
    for moment in [
        (1970, 1, 1),
        (1969, 12, 31),
        (2024, 3, 10, 7),
        (2024, 11, 3, 6),
        (2024, 4, 6, 15),
        (2024, 10, 5, 15, 30),
        (2011, 12, 30, 10),
        (2023, 12, 31, 23),
        (2024, 2, 29),
        (2050, 7, 1),
    ]
]
moments = st.one_of(
    st.builds(lambda edge, shift: edge + shift, st.sampled_from(EDGES), st.integers(-2 * DAY, 2 * DAY)),
    st.builds(lambda edge, hour: edge + 3600 * hour, st.sampled_from(EDGES), st.integers(-30, 30)),
)


def stored(kind: str, moment: int, micros: int = 0) -> Any:
    """Return a moment as the value of a column."""
    if kind == "date":
        return date(1970, 1, 1) + timedelta(days=moment // DAY)
    if kind in ("us", "local"):
        return datetime.fromtimestamp(moment, UTC).replace(tzinfo=UTC if kind == "us" else None) + timedelta(
            microseconds=micros
        )
    return moment * UNITS[kind] + (micros // 1000 if kind == "millis" else 0)


def literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"'{value}'"


@st.composite
def conditions(draw: st.DrawFn, kind: str) -> str:
    """Return a condition on the times, or on another column."""
    value = st.builds(
        lambda at, micros: literal(stored(kind, at, micros)), moments, st.sampled_from([0, 0, 1, 999_999])
    )
    form = draw(st.sampled_from(["ts {} {}", "ts in ({}, {})", "ts is null", "ts is not null", "n >= 3", "n < 7"]))
    if form.startswith("ts {"):
        form = form.format(draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="])), draw(value))
    elif "in" in form:
        form = form.format(draw(value), draw(value))
    return f"not ({form})" if draw(st.booleans()) else form


@st.composite
def filters(draw: st.DrawFn, kind: str) -> str:
    """Return conditions joined by and, and by or."""
    parts = draw(st.lists(conditions(kind), min_size=1, max_size=3))
    joints = [draw(st.sampled_from([" and ", " or "])) for _ in parts[1:]]
    return parts[0] + "".join(joint + part for joint, part in zip(joints, parts[1:], strict=True))


def made(kind: str, period: str, zone: str, rows: pa.Table, **more: Any) -> lakefmt.Table:
    of_type = KINDS[kind][1]
    partition = PERIODS[period]("ts").removesuffix(")") + f"{of_type})"
    properties = {"hoodie.keygen.timebased.timezone": zone} if zone else {}
    options = {"lakefmt.durability": "none", "lakefmt.write.threads": 1}
    return lakefmt.create_table(
        f"memory://time-partitions-{next(NUMBERS)}",
        schema=rows.schema,
        record_key="id",
        partition_by=partition,
        properties=properties,
        options=options,
        **more,
    )


def in_memory(rows: pa.Table, condition: Any) -> pa.Table:
    return keep_rows(rows, parse_filter(condition, rows.schema))


@given(st.data())
def test_a_filter_reads_the_rows_that_it_selects_in_memory(data: st.DataObject) -> None:
    kind, period = data.draw(st.sampled_from(list(KINDS))), data.draw(st.sampled_from(list(PERIODS)))
    zone = data.draw(st.sampled_from(ZONES))
    table_type = data.draw(st.sampled_from(["cow", "mor"]))
    count = data.draw(st.integers(1, 12))
    micros = st.sampled_from([0, 0, 1, 999_000, 999_999])
    value = st.one_of(
        st.none(), st.builds(lambda at, part: stored(kind, at, part), moments, micros), st.just(stored(kind, 0, 1))
    )
    times = data.draw(st.lists(value, min_size=count, max_size=count))
    schema = pa.schema([("id", pa.string()), ("ts", KINDS[kind][0]), ("n", pa.int64())])
    rows = pa.table([[f"k{i}" for i in range(count)], times, range(count)], schema=schema)
    table = made(kind, period, zone, rows, table_type=table_type)
    table.insert(rows)
    whole = table.read()
    for condition in data.draw(st.lists(filters(kind), min_size=1, max_size=4)):
        assert content(table.read(filter=condition)) == content(in_memory(whole, condition)), condition


def month_of_days(**more: Any) -> tuple[lakefmt.Table, pa.Table]:
    at = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=6 * number) for number in range(4 * 31)]
    rows = pa.table(
        {"id": [f"k{n}" for n in range(len(at))], "ts": pa.array(at, pa.timestamp("us", "UTC")), "n": range(len(at))}
    )
    table = made("us", "day", "", rows, **more)
    table.insert(rows)
    return table, rows


def partitions_read(report: ReadReport) -> tuple[int, int]:
    return report.steps[0].partitions, report.steps[-1].partitions


@pytest.mark.in_turn(3)
@pytest.mark.parametrize("table_version", [6, 8, 9])
@pytest.mark.parametrize("metadata", [True, False])
@pytest.mark.parametrize(
    ("condition", "days"),
    [
        ("ts >= '2024-01-10' and ts < '2024-01-12'", 2),
        ("ts = '2024-01-10 06:00:00'", 1),
        ("ts > '2024-01-30 12:00:00'", 2),
        pytest.param(
            "ts in ('2024-01-01', '2024-01-31 18:00:00')",
            2,
            marks=pytest.mark.newest_only(
                "the oldest sqlglot reads other literals there: nothing is left out, no row is lost"
            ),
        ),
        ("not (ts < '2024-01-31')", 1),
        ("ts < '2024-01-02' or ts >= '2024-01-31'", 2),
        ("ts is null", 0),
        ("ts < '2024-01-03' and n > 6", 2),
        ("n > 6", 31),
    ],
)
def test_days_are_left_out(condition: str, days: int, metadata: bool, table_version: int) -> None:
    table, rows = month_of_days(table_version=table_version, **({} if metadata else {"indexes": []}))
    step = {one.name: one.partitions for one in table.explain(filter=condition).steps}
    assert step["stored"] == 31
    assert step["partition values"] == days
    assert content(table.read(filter=condition)) == content(in_memory(rows, condition))


LATE = datetime(2024, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize("table_type", ["cow", "mor"])
@pytest.mark.parametrize(
    ("creation", "options"),
    [
        ({"index": "record"}, {}),
        ({"index": "global_simple"}, {"hoodie.simple.index.update.partition.path": "false"}),
        ({}, {"hoodie.index.type": "GLOBAL_BLOOM", "hoodie.bloom.index.update.partition.path": "false"}),
    ],
)
def test_a_row_that_stays_in_its_partition_is_found_by_its_new_time(
    creation: Any, options: Any, table_type: str
) -> None:
    table, rows = month_of_days(table_type=table_type, **creation)
    reader = lakefmt.open_table(table.client.store.url)
    assert partitions_read(reader.explain(filter="ts >= '2024-01-31'"))[1] in (1, 31)
    moved = rows.slice(5, 1).set_column(1, rows.schema.field("ts"), pa.array([LATE], pa.timestamp("us", "UTC")))
    table.upsert(moved, options=options)
    for each in (table, reader, lakefmt.open_table(table.client.store.url)):
        found = each.read(filter="ts >= '2024-02-01'")
        assert found["id"].to_pylist() == ["k5"]
    assert not table.check("full").findings  # it lies where the index left it


def test_a_row_that_moves_is_found_and_days_are_left_out() -> None:
    table, rows = month_of_days(index="global_simple")
    moved = rows.slice(5, 1).set_column(1, rows.schema.field("ts"), pa.array([LATE], pa.timestamp("us", "UTC")))
    table.upsert(moved)
    assert table.read(filter="ts >= '2024-02-01'")["id"].to_pylist() == ["k5"]
    assert partitions_read(table.explain(filter="ts >= '2024-02-01'"))[1] == 1


def test_a_planned_write_notes_nothing() -> None:
    table, rows = month_of_days(index="global_simple")
    names = sorted(info.name for info in table.client.store.list(""))
    table.upsert(rows, options={"hoodie.simple.index.update.partition.path": "false"}, dry_run=True)
    assert sorted(info.name for info in table.client.store.list("")) == names


def test_paths_of_another_rule_tell_nothing() -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    spec = plan_key_spec("id", lakefmt.day("ts"), schema=schema)
    paths = [
        "ts=2024%2F01%2F02",
        "ts=2024%2F1%2F2",
        "ts=__HIVE_DEFAULT_PARTITION__",
        "2024/01/02",
        "ts=1970%2F01%2F01",
        "",
    ]
    told = [guarantee is not None for guarantee in time_guarantees(spec, paths, schema)]
    assert told == [True, False, False, False, False, False]


def test_the_law_finds_a_period_that_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = timestamp._numbers_before
    monkeypatch.setattr(timestamp, "_numbers_before", lambda millis, unit: whole(millis, unit) - 6 * 3600 * 1_000_000)
    table, rows = month_of_days()
    condition = "ts = '2024-01-10 18:00:00'"
    assert content(table.read(filter=condition)) != content(in_memory(rows, condition))
