"""Joda patterns and zones on arrays of times."""

from __future__ import annotations

import datetime
import zoneinfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.keys import build_partition_paths, plan_key_spec
from lakefmt._core.keys.joda import compile_pattern, format_times, parse_times, to_instants, to_local
from lakefmt.errors import InvalidKey, UnsupportedFeature

AT = datetime.datetime(2024, 2, 9, 3, 4, 5, 67_000, tzinfo=datetime.UTC)


def millis(moment: datetime.datetime) -> int:
    return (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(milliseconds=1)


def text(moment: datetime.datetime, pattern: str) -> str:
    at = np.array([millis(moment)])
    return format_times(at, at, compile_pattern(pattern)).to_pylist()[0]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("yyyy/MM/dd HH:mm:ss.SSS", "2024/02/09 03:04:05.067"),
        ("y-M-d H:m:s.S", "2024-2-9 3:4:5.0"),
        ("yyyyy YYYY DDD D", "02024 2024 040 40"),
        ("SS SSSSSS", "06 067000"),
        ("yyyyMMddHH", "2024020903"),
        ("yyyy'T'''HH''''", "2024T'03''"),
        ("'year='yyyy/'month='MM", "year=2024/month=02"),
        ("HH:00", "03:00"),
        ("'a''b'yyyy", "a'b2024"),
        ("yyyy'x''", "2024x'"),
        ("yyyy'open", "2024open"),
        ("y'-'M", "2024-2"),
        ("yyyy年MM月", "2024年02月"),
        ("yyyy Z ZZ", "2024 +0000 +00:00"),
        ("'constant'", "constant"),
        ("", ""),
    ],
)
def test_a_time_is_printed(pattern, expected):
    assert text(AT, pattern) == expected


@pytest.mark.parametrize("pattern", ["EEE", "MMM", "yy", "YY", "a", "h", "q", "ZZZ", "w", "y" * 10, "d" * 300])
def test_other_patterns_are_refused(pattern):
    with pytest.raises(UnsupportedFeature, match="date pattern"):
        compile_pattern(pattern)


def test_offsets_are_printed():
    at = np.array([0, 0])
    local = np.array([int(5.5 * 3_600_000), -3 * 3_600_000])
    found = format_times(at, local, compile_pattern("HH:mmZ ZZ")).to_pylist()
    assert found == ["05:30+0530 +05:30", "21:00-0300 -03:00"]


@pytest.mark.parametrize("beyond", [-62_135_596_800_001, 253_402_300_800_000])
def test_years_outside_1_to_9999_are_refused(beyond):
    with pytest.raises(InvalidKey, match="1 times lie outside"):
        format_times(np.array([0, beyond]), np.array([0, beyond]), compile_pattern("yyyy"))


@given(st.lists(st.integers(-62_135_596_800_000, 253_402_300_799_999), min_size=1, max_size=20))
def test_what_is_printed_is_read(instants):
    at = np.array(instants)
    for form in ("yyyy-MM-dd'T'HH:mm:ss.SSSZ", "yyyyMMddHHmmssSSS", "SSS ss/mm/HH dd.MM.yyyy", "yyyy DDD HH:mm:ss.SSS"):
        pattern = compile_pattern(form)
        parsed = parse_times(format_times(at, at, pattern), pattern)
        assert parsed.fits.all()
        assert (parsed.local == at).all()
    assert parsed.offset is None


@given(st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)))
def test_printing_agrees_with_the_standard_library(moment):
    found = text(moment.replace(tzinfo=datetime.UTC), "yyyy MM dd DDD HH mm ss")
    year, rest = f"{moment.year:04}", moment.strftime("%m %d %j %H %M %S")
    assert found == f"{year} {rest}"


@pytest.mark.parametrize("zone", ["UTC", "GMT", "Asia/Shanghai", "America/New_York", "Europe/London"])
@given(st.lists(st.datetimes(datetime.datetime(1980, 1, 1), datetime.datetime(2030, 1, 1)), min_size=1, max_size=5))
def test_zones_agree_with_the_standard_library(zone, moments):
    instants = np.array([millis(moment.replace(tzinfo=datetime.UTC)) for moment in moments])
    local = to_local(instants, zone)
    for moment, shown in zip(moments, local, strict=True):
        there = moment.replace(tzinfo=datetime.UTC).astimezone(zoneinfo.ZoneInfo(zone))
        assert int(shown) == millis(there.replace(tzinfo=datetime.UTC))
    back = to_instants(local, zone)
    # In the hour that happens twice the earlier instant is taken.
    assert ((back == instants) | (back == instants - 3_600_000)).all()


@pytest.mark.parametrize(
    ("zone", "hours"), [("GMT+8", 8), ("GMT+08:00", 8), ("GMT+0530", 5.5), ("GMT-3:00", -3), ("UTC+0100", 0), ("Z", 0)]
)
def test_fixed_offsets_are_zones(zone, hours):
    at = np.array([0])
    assert to_local(at, zone)[0] == hours * 3_600_000
    assert to_instants(to_local(at, zone), zone)[0] == 0


def test_zones_that_are_none_and_times_that_are_none():
    with pytest.raises(UnsupportedFeature, match="Nowhere"):
        to_local(np.array([0]), "Asia/Nowhere")
    with pytest.raises(UnsupportedFeature, match="Nowhere"):
        to_instants(np.array([0]), "Asia/Nowhere")
    with pytest.raises(InvalidKey, match="does not exist"):
        to_instants(np.array([millis(datetime.datetime(2023, 3, 12, 2, 30, tzinfo=datetime.UTC))]), "America/New_York")


@pytest.mark.parametrize(
    ("pattern", "given_text", "expected"),
    [
        ("yyyy-MM-dd", "2023-4-3", "2023-04-03 00:00"),
        ("yyyy-MM-dd", "+2023-04-03", "2023-04-03 00:00"),
        ("yyyyMMdd", "2023043", "2023-04-03 00:00"),
        ("yyyyMd", "20230403", "2023-04-03 00:00"),
        ("yyyy-DDD", "2024-366", "2024-12-31 00:00"),
        ("yyyy-MM-dd'T'HH", "2023-04-03t12", "2023-04-03 12:00"),
        ("HH:mm", "12:30", "1970-01-01 12:30"),
        ("DDD", "7", "2000-01-07 00:00"),
        ("MM-dd", "2-29", "2000-02-29 00:00"),
        ("HHH", "012", "1970-01-01 12:00"),
        ("yyyyMd", "202343", None),
        ("yyyy.MM (dd)", "2023.04 (03)", "2023-04-03 00:00"),
        ("yyyy-MM-dd", "2023-004-03", None),
        ("yyyy-MM-dd", "2023-04-03x", None),
        ("yyyy-MM-dd", "", None),
        ("yyyyMMdd", "202304", None),
        ("yyyy.MM", "2023x04", None),
        ("ss.SSS", "01.1234", None),
        ("yyyy", "²⁰²³", None),
    ],
)
def test_a_text_is_read(pattern, given_text, expected):
    parsed = parse_times(pa.array([given_text]), compile_pattern(pattern))
    assert bool(parsed.fits[0]) is (expected is not None)
    if expected is not None:
        assert format_times(parsed.local, parsed.local, compile_pattern("yyyy-MM-dd HH:mm")).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("pattern", "given_text"),
    [
        ("yyyy-MM-dd", "2023-02-29"),
        ("yyyy-MM-dd", "2023-13-01"),
        ("yyyy-MM-dd", "0000-01-01"),
        ("yyyy-DDD", "2023-366"),
        ("HH:mm", "24:00"),
        ("HH:mm", "23:60"),
    ],
)
def test_a_text_that_is_no_time_is_refused(pattern, given_text):
    with pytest.raises(InvalidKey):
        parse_times(pa.array([given_text]), compile_pattern(pattern))


def test_a_letter_twice_cannot_be_read():
    with pytest.raises(UnsupportedFeature, match="twice"):
        parse_times(pa.array(["1 1"]), compile_pattern("d d"))


# -------------------------------------------------------------------------------------------- whole partition columns


def paths(column: pa.Array, pattern: str, **settings: str) -> list[str]:
    properties = {f"hoodie.keygen.timebased.{key.replace('__', '.')}": text for key, text in settings.items()}
    table = pa.table({"k": pa.nulls(len(column), pa.string()), "t": column})
    spec = plan_key_spec("k", f"t:timestamp({pattern})", False, False, properties, table.schema)
    return build_partition_paths(spec, table).to_pylist()


def test_many_times_of_a_day_are_one_path():
    column = pa.array(np.arange(1_700_000_000_000_000, 1_700_000_050_000_000, 7_000_001)).cast(
        pa.timestamp("us", "UTC")
    )
    table = pa.table({"k": pa.nulls(len(column), pa.string()), "t": column})
    found = build_partition_paths(plan_key_spec("k", "t:timestamp(yyyy/MM/dd)", schema=table.schema), table)
    assert found.dictionary.to_pylist() == ["t=2023%2F11%2F14"]
    assert len(found) == len(column)


@pytest.mark.parametrize(
    ("column", "settings"),
    [
        (pa.array([1_700_000_000]), {"timestamp__type": "UNIX_TIMESTAMP"}),
        (pa.array([1_700_000_000.9]), {"timestamp__type": "UNIX_TIMESTAMP"}),
        (pa.array([1_700_000_000_123]), {"timestamp__type": "EPOCHMILLISECONDS"}),
        (pa.array(["1700000000123"]), {"timestamp__type": "EPOCHMILLISECONDS"}),
        (pa.array([1_700_000_000_123_456]), {"timestamp__type": "EPOCHMICROSECONDS"}),
        (pa.array([19_675]), {"timestamp__type": "SCALAR", "timestamp__scalar__time__unit": "DAYS"}),
        (pa.array([19_675], pa.int32()).cast(pa.date32()), {}),
        (pa.array([1_700_000_000_123]).cast(pa.timestamp("ms")), {}),
        (pa.array(["2023-11-14T22"]).dictionary_encode(), {"input__dateformat": "yyyy-MM-dd,yyyy-MM-dd'T'HH"}),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_a_column_of_times(column, settings):
    assert paths(column, "yyyy/MM/dd", **settings) == ["2023/11/14"]


def test_missing_times_are_the_first():
    assert paths(pa.array([None], pa.int64()), "yyyy/MM/dd HH:mm:ss", timestamp__type="UNIX_TIMESTAMP") == [
        "1970/01/01 00:00:01"
    ]
    assert paths(pa.array([None], pa.string()), "yyyy/MM/dd", input__dateformat="yyyy-MM-dd") == ["1970/01/01"]


@pytest.mark.parametrize(
    ("column", "settings", "said"),
    [
        (pa.array(["2023-11-14", "14.11.2023"]), {"input__dateformat": "yyyy-MM-dd"}, "1 values .*'14.11.2023'"),
        (pa.array(["x"]), {"timestamp__type": "EPOCHMILLISECONDS"}, "texts where numbers"),
        (pa.array([1]), {"input__dateformat": "yyyy"}, "DATE_STRING reads texts"),
        (pa.array([True]), {"timestamp__type": "EPOCHMILLISECONDS"}, "does not hold times"),
        (pa.array([float("nan")]), {"timestamp__type": "EPOCHMILLISECONDS"}, "no time"),
        (pa.array([2**62]), {"timestamp__type": "UNIX_TIMESTAMP"}, "outside the years"),
        (pa.array([-(2**63)]), {"timestamp__type": "EPOCHMICROSECONDS"}, "outside the years"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_what_is_no_time_is_refused(column, settings, said):
    with pytest.raises(InvalidKey, match=said):
        paths(column, "yyyy/MM/dd", **settings)
