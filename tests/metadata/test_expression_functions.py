"""The functions of expression indexes give what a plain computation of Spark's rules gives, value by value."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.metadata.expressions import (
    FUNCTIONS,
    compile_time_pattern,
    find_expression,
    format_local_times,
)
from lakefmt._core.metadata.layout import IndexDefinition
from lakefmt.errors import UnsupportedFeature

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MOMENT = pa.timestamp("us", "UTC")
TEXTS = st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("ßİΣσς ŉAz\ue000")))
MOMENTS = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
ZONES = st.sampled_from(["UTC", "Asia/Tokyo", "America/New_York", "Asia/Kolkata"])


def computed(
    function: str, values: list[object], kind: pa.DataType, zone: str = "UTC", **options: str
) -> tuple[list[object], pa.DataType]:
    definition = IndexDefinition("expr_index_x", "column_stats", function, ("c",), {"expr": function, **options})
    expression = find_expression(definition, pa.schema([("c", kind)]), zone)
    # In two pieces, the second a slice: buffers begin anywhere.
    whole = pa.array(values, kind)
    pieces = pa.chunked_array([whole[: len(whole) // 2], whole[len(whole) // 2 :]], kind)
    found = expression.values(pieces)
    assert found.type == expression.result
    return found.to_pylist(), found.type


def each(values: list[object], model: Callable[..., object]) -> list[object]:
    return [None if value is None else model(value) for value in values]


@given(TEXTS)
def test_texts_change_case_as_in_java(values: list[object]) -> None:
    assert computed("upper", values, pa.string())[0] == each(values, str.upper)
    assert computed("lower", values, pa.string())[0] == each(values, str.lower)


def test_letters_that_become_several_and_letters_at_the_end_of_a_word() -> None:
    assert computed("upper", ["straße", "ŉ", "ﬃ"], pa.string())[0] == ["STRASSE", "ʼN", "FFI"]
    assert computed("lower", ["ΟΔΟΣ", "Σ", "ΑΣ", "ΣΑ", "İ"], pa.string())[0] == ["οδος", "σ", "ας", "σα", "i̇"]


@given(TEXTS, st.sampled_from([None, "x", " a", ""]))
def test_texts_are_trimmed_of_blanks_or_named_characters(values: list[object], characters: str | None) -> None:
    options = {} if characters is None else {"trimString": characters}
    cut = " " if characters is None else characters
    for function, model in (("trim", str.strip), ("ltrim", str.lstrip), ("rtrim", str.rstrip)):
        found = computed(function, values, pa.string(), **options)[0]
        assert found == each(values, lambda text, model=model: model(text, cut) if cut else text)


@given(TEXTS, st.integers(-6, 6), st.integers(-2, 6))
def test_parts_of_texts_begin_at_one_and_count_from_the_end_below_zero(
    values: list[object], position: int, length: int
) -> None:
    def model(text: str) -> str:
        start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
        return text[max(start, 0) : max(start + length, 0)] if length > 0 else ""

    assert computed("substring", values, pa.string(), pos=str(position), len=str(length))[0] == each(values, model)


@given(TEXTS)
def test_lengths_count_characters(values: list[object]) -> None:
    assert computed("length", values, pa.string()) == (each(values, len), pa.int32())


def test_a_long_part_of_a_text_goes_to_its_end() -> None:
    found = computed("substring", ["abc", None], pa.string(), pos="2", len=str(2**31 - 1))
    assert found[0] == ["bc", None]


@given(st.lists(st.none() | MOMENTS), ZONES)
def test_parts_of_moments_are_those_of_the_zone(values: list[object], zone: str) -> None:
    moments = each(values, lambda value: value.replace(tzinfo=dt.UTC))
    local = each(moments, lambda value: value.astimezone(ZoneInfo(zone)))
    for function, model in {
        "year": lambda value: value.year,
        "month": lambda value: value.month,
        "day": lambda value: value.day,
        "hour": lambda value: value.hour,
        "to_date": lambda value: value.date(),
    }.items():
        assert computed(function, moments, MOMENT, zone)[0] == each(local, model), function
    pattern = "yyyy-MM-dd'T'H:mm:ss.SSSSSS"
    assert computed("date_format", moments, MOMENT, zone, format=pattern)[0] == each(
        local, lambda v: f"{v.year:04}-{v.month:02}-{v.day:02}T{v.hour}:{v.minute:02}:{v.second:02}.{v.microsecond:06}"
    )
    seconds = each(moments, lambda value: (value - EPOCH) // dt.timedelta(seconds=1))
    assert computed("unix_timestamp", moments, MOMENT, zone)[0] == seconds
    assert computed("from_unixtime", seconds, pa.int64(), zone)[0] == each(
        local, lambda v: f"{v.year:04}-{v.month:02}-{v.day:02} {v.hour:02}:{v.minute:02}:{v.second:02}"
    )


@given(st.lists(st.none() | st.dates(dt.date(1, 2, 1), dt.date(9999, 11, 1))), st.integers(-20, 20))
def test_dates_need_no_zone(values: list[object], days: int) -> None:
    for zone in ("UTC", "Asia/Tokyo"):
        assert computed("year", values, pa.date32(), zone)[0] == each(values, lambda value: value.year)
        moved = each(values, lambda value: value + dt.timedelta(days=days))
        assert computed("date_add", values, pa.date32(), zone, days=str(days))[0] == moved
        assert computed("date_sub", values, pa.date32(), zone, days=str(-days))[0] == moved
        text = each(values, lambda v: f"{v.year:04}{v.month:02}")
        assert computed("date_format", values, pa.date32(), zone, format="yyyyMM")[0] == text


def test_years_beyond_four_digits_and_before_christ_have_their_sign() -> None:
    pattern = compile_time_pattern("yyyy y")
    days = [(year - 1970) * 365.2425 + 100 for year in (12345, 9999, 0, -1, -12345)]
    found = format_local_times(np.array(days).astype(np.int64) * 86_400_000_000, pattern)
    assert found.to_pylist() == ["+12345 12345", "9999 9999", "0000 0", "-0001 -1", "-12345 -12345"]


def test_too_large_a_number_of_seconds_wraps_around() -> None:
    seconds = 2**63 - 1
    wrapped = (seconds * 10**6 + 2**63) % 2**64 - 2**63
    expected = EPOCH + dt.timedelta(microseconds=wrapped)
    assert computed("from_unixtime", [seconds, None], pa.int64())[0] == [f"{expected:%Y-%m-%d %H:%M:%S}", None]


@pytest.mark.parametrize("kind", [pa.string(), pa.int32(), pa.bool_(), pa.date32(), pa.decimal128(9, 2), MOMENT])
def test_a_column_itself_stays_as_it_is(kind: pa.DataType) -> None:
    values = pa.nulls(3, kind).to_pylist()
    assert computed("identity", values, kind) == (values, kind)


@pytest.mark.parametrize(
    ("function", "kind", "options"),
    [
        ("identity", pa.float64(), {}),
        ("hour", pa.date32(), {}),
        ("date_format", pa.date32(), {"format": "HH"}),
        ("date_format", MOMENT, {}),
        ("date_format", MOMENT, {"format": "MMM"}),
        ("to_date", pa.string(), {}),
        ("to_timestamp", pa.string(), {"format": "yyyy"}),
        ("unix_timestamp", pa.date32(), {}),
        ("substring", pa.string(), {"pos": "1", "len": "99999999999"}),
        ("date_add", pa.date32(), {}),
        ("regexp_replace", pa.string(), {"pattern": "a", "replacement": "b"}),
    ],
)
def test_what_is_not_certain_is_refused(function: str, kind: pa.DataType, options: dict[str, str]) -> None:
    with pytest.raises(UnsupportedFeature, match="expr_index_x"):
        computed(function, [], kind, **options)


def test_every_function_is_named_in_its_refusal() -> None:
    with pytest.raises(UnsupportedFeature, match=r"not 'split' of c") as refused:
        computed("split", [], pa.string(), pattern=",")
    assert all(name in str(refused.value) for name in FUNCTIONS)
