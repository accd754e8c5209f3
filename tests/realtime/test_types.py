"""What a row stores for a value, one test per line of the table of types."""

from __future__ import annotations

import datetime as dt
import math
import os
import random
import time
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.producers.stream.options import RowOperator
from lakefmt._core.producers.stream.rows import RowChecker
from lakefmt._core.schema import normalise_schema
from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature
from lakefmt.realtime import CastFailed, NotSupportedError
from lakefmt.realtime.connection import as_python, typed_columns
from lakefmt.realtime.rows import ConversionNotes, ConversionRules, Row, RowLayout
from lakefmt.realtime.statements import (
    CreateTable,
    SqlField,
    SqlKind,
    SqlType,
    arrow_type,
    decode_types,
    encode_types,
    parse_statement,
)
from tests.realtime.type_cases import EAST, INEXACT, LINES, NOON, WEST, Line


def layout_of(sql: str, rules: ConversionRules | None = None, *, required: bool = False) -> RowLayout:
    text = f"CREATE TABLE t (k INT, c {sql}{' NOT NULL' if required else ''})"
    statement = parse_statement(text)
    assert isinstance(statement, CreateTable)
    schema = normalise_schema(
        pa.schema([pa.field(f.name, arrow_type(f.type, f.name), f.nullable) for f in statement.columns])
    )
    fields = decode_types(encode_types(statement.columns), schema)
    assert [f.type for f in fields] == [f.type for f in statement.columns]
    return RowLayout("t", fields, RowChecker(schema, ()), rules or ConversionRules())


def stored(layout: RowLayout, *values: object) -> list[object]:
    """Return what a SELECT returns for values of column `c`, by way of Arrow."""
    rows = []
    for value in values:
        row = Row(layout, RowOperator.INSERT)
        row.set_value("c", value)
        rows.append(row.taken()[0][1])
    column = pa.chunked_array([pa.array(rows, layout.checker.schema.field("c").type)])
    table = typed_columns(pa.table({"c": column}), layout.fields[1:])
    return [value for (value,) in as_python(table)]


@pytest.mark.parametrize("name", LINES)
def test_what_is_stored(name: str) -> None:
    line = LINES[name]
    given_values, expected = zip(*line.stored, strict=True)
    assert stored(layout_of(line.sql), *given_values) == list(expected)


@pytest.mark.parametrize("name", LINES)
def test_what_is_refused(name: str) -> None:
    line = LINES[name]
    layout = layout_of(line.sql)
    for value in line.refused:
        row = Row(layout, RowOperator.INSERT)
        with pytest.raises(ValueError, match=r"^Failed to cast value for column 'c' of table 't'") as caught:
            row.set_value("c", value)
        assert isinstance(caught.value, CastFailed)
        assert len(str(caught.value)) < 400
        assert row.is_null_at(1), "a refused value leaves the row as it was"


@pytest.mark.parametrize("name", LINES)
def test_null_where_the_column_allows_it(name: str) -> None:
    line = LINES[name]
    assert stored(layout_of(line.sql), None) == [None]
    row = Row(layout_of(line.sql, required=True), RowOperator.INSERT)
    with pytest.raises(ValueError, match=r"^Failed to cast value for column 'c'.*NOT NULL"):
        row.set_value("c", None)


def test_every_line_of_the_table_has_cases() -> None:
    kinds = {layout_of(line.sql).fields[1].type.kind for line in LINES.values()}
    assert kinds == set(SqlKind) - {SqlKind.INTERVAL_YEAR_MONTH}


def test_an_interval_of_years_and_months_is_refused_and_named() -> None:
    with pytest.raises(NotSupportedError, match="'c' has type INTERVAL YEAR TO MONTH"):
        layout_of("INTERVAL YEAR TO MONTH")
    with pytest.raises(UnsupportedFeature, match="column 'c' has type INTERVAL_YEAR_MONTH"):
        arrow_type(SqlType(SqlKind.INTERVAL_YEAR_MONTH), "c")


def test_floats_keep_nan() -> None:
    for sql in ("FLOAT", "DOUBLE"):
        (value,) = stored(layout_of(sql), float("nan"))
        assert isinstance(value, float)
        assert math.isnan(value)


def test_twenty_thousand_random_instants_are_exact() -> None:
    source = random.Random(25)
    first, last = dt.datetime(1900, 1, 1, tzinfo=dt.UTC), dt.datetime(2200, 1, 1, tzinfo=dt.UTC)
    span = (last - first) // dt.timedelta(microseconds=1)
    zones = [dt.UTC, EAST, WEST, ZoneInfo("Europe/Berlin")]
    instants = [
        (first + dt.timedelta(microseconds=source.randrange(span))).astimezone(source.choice(zones))
        for _ in range(20_000)
    ]
    # By way of a float some are wrong: without that, the test would show nothing.
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert any(int(i.timestamp() * 1_000_000) != (i - epoch) // dt.timedelta(microseconds=1) for i in instants)
    assert stored(layout_of("TIMESTAMP_LTZ"), *instants) == instants
    walls = [instant.replace(tzinfo=None) for instant in instants]
    assert stored(layout_of("TIMESTAMP_NTZ"), *walls) == walls


@pytest.fixture
def process_zone() -> Iterator[None]:
    before = os.environ.get("TZ")
    yield
    if before is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("process_zone")
@pytest.mark.parametrize("sql", ["TIMESTAMP_NTZ", "TIMESTAMP_LTZ"])
def test_the_zone_of_the_process_changes_nothing(sql: str) -> None:
    seen = []
    for zone in ("Asia/Shanghai", "America/New_York", "UTC"):
        os.environ["TZ"] = zone
        time.tzset()
        assert dt.datetime(2026, 3, 4, 12).astimezone().utcoffset() is not None
        seen.append(stored(layout_of(sql), NOON))
    assert seen[0] == seen[1] == seen[2]


def test_an_instant_without_a_zone_is_taken_in_the_session_s_zone_with_one_warning() -> None:
    said: list[str] = []
    notes = ConversionNotes(on_naive=said.append)
    rules = ConversionRules(zone=ZoneInfo("Asia/Shanghai"), notes=notes)
    layout = layout_of("TIMESTAMP_LTZ", rules)
    assert stored(layout, NOON, NOON) == [NOON.replace(tzinfo=EAST)] * 2
    assert said == ["Asia/Shanghai"]


def test_truncated_texts_are_counted_or_refused() -> None:
    notes = ConversionNotes()
    assert stored(layout_of("VARCHAR(2)", ConversionRules(notes=notes)), "abc", "ab", "xyz") == ["ab", "ab", "xy"]
    assert notes.truncated == 2
    with pytest.raises(CastFailed, match="holds at most 2 characters"):
        stored(layout_of("VARCHAR(2)", ConversionRules(refuse_overlong=True)), "abc")


def test_json_is_validated_on_request() -> None:
    rules = ConversionRules(validate_json=True)
    assert stored(layout_of("JSON", rules), "[1]") == ["[1]"]
    with pytest.raises(CastFailed, match="valid JSON"):
        stored(layout_of("JSON", rules), "[1")


def test_fields_that_a_struct_does_not_have_are_ignored_on_request() -> None:
    rules = ConversionRules(ignore_extra=True)
    assert stored(layout_of("STRUCT<a: INT>", rules), {"a": 1, "z": 2}) == [{"a": 1}]


def test_nested_types_convert_what_they_hold() -> None:
    sql = "ARRAY<STRUCT<at: TIMESTAMP_LTZ, m: MAP<STRING, DECIMAL(4,1)>>>"
    value = [{"at": INEXACT, "m": {"x": "1.25"}}, None, (1, {})]
    epoch = dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)
    assert stored(layout_of(sql), value) == [
        [{"at": INEXACT, "m": [("x", Decimal("1.3"))]}, None, {"at": epoch, "m": []}]
    ]
    with pytest.raises(CastFailed, match="DECIMAL"):
        stored(layout_of(sql), [{"at": INEXACT, "m": {"x": 12345}}])


def test_a_required_field_of_a_struct_must_not_be_null() -> None:
    layout = layout_of("STRUCT<a: INT NOT NULL>")
    with pytest.raises(CastFailed, match="field 'a' must not be null"):
        stored(layout, {"a": None})


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=6))
def test_decimals_round_half_up_or_are_refused(value: Decimal) -> None:
    layout = layout_of("DECIMAL(8,3)")
    expected = value.quantize(Decimal("0.001"), ROUND_HALF_UP)
    if abs(expected) >= 10**5:
        with pytest.raises(CastFailed):
            stored(layout, value)
    else:
        assert stored(layout, value) == [expected]


@given(st.text(), st.integers(1, 20))
def test_texts_are_cut_by_code_points(text: str, most: int) -> None:
    layout = layout_of(f"VARCHAR({most})")
    if text.encode("utf-8", "replace").decode() == text:
        assert stored(layout, text) == [text[:most]]
    else:
        with pytest.raises(CastFailed):
            stored(layout, text)


class Hostile:
    """A value whose every method fails."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("hostile")

    def __hash__(self) -> int:
        raise TypeError("hostile")

    def __repr__(self) -> str:
        raise RuntimeError("hostile")


@pytest.mark.parametrize("name", LINES)
def test_a_hostile_value_is_refused_like_any_other(name: str) -> None:
    row = Row(layout_of(LINES[name].sql), RowOperator.INSERT)
    with pytest.raises(CastFailed, match=r"^Failed to cast value for column .c."):
        row.set_value("c", Hostile())


def test_an_unknown_column_is_named() -> None:
    row = Row(layout_of("INT"), RowOperator.INSERT)
    for column in ("C", "d", 2, -1, None, [], 1.5):
        with pytest.raises(ValueError, match="table 't' has no column") as caught:
            row.set_value(column, 1)  # type: ignore[arg-type]
        assert isinstance(caught.value, InvalidInputError)
        assert str(column) in str(caught.value)
    row.set_value(1, 5)
    assert row.as_dict() == {"c": 5}


def test_types_of_a_table_that_remembers_none_follow_what_is_stored() -> None:
    schema = pa.schema(
        [
            ("a", pa.int32()),
            ("b", pa.timestamp("ms", "UTC")),
            ("c", pa.decimal128(5, 1)),
            ("d", pa.list_(pa.string())),
            ("e", pa.map_(pa.string(), pa.date32())),
            ("f", pa.binary(4)),
        ]
    )
    assert [str(f.type) for f in decode_types(None, schema)] == [
        "INT32",
        "TIMESTAMP_LTZ",
        "DECIMAL(5,1)",
        "ARRAY<STRING>",
        "MAP<STRING, DATE>",
        "BINARY",
    ]
    layout = RowLayout("t", decode_types(None, schema), RowChecker(schema, ()), ConversionRules())
    row = Row(layout, RowOperator.INSERT)
    row.set_value("b", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC))
    assert row.as_dict()["b"] == 1000
    with pytest.raises(CastFailed, match="whole milliseconds"):
        row.set_value("b", INEXACT)
    with pytest.raises(CastFailed, match="exactly 4 bytes"):
        row.set_value("f", b"abc")
    with pytest.raises(UnsupportedFeature, match="column 'g'"):
        decode_types(None, pa.schema([("g", pa.time64("us"))]))


def test_a_remembered_type_that_no_longer_fits_gives_way_to_what_is_stored() -> None:
    remembered = encode_types((SqlField("a", SqlType(SqlKind.VARCHAR, length=3)),))
    assert str(decode_types(remembered, pa.schema([("a", pa.int64())]))[0].type) == "INT64"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "1", '{"a":1}', '{"a":{"kind":"X"}}', '{"a":{"kind":"CHAR","length":-1}}', '{"a":{"kind":"ARRAY","inner":[1]}}',
     '{"a":' + '{"kind":"ARRAY","inner":[["e",' * 40 + '{"kind":"INT32"}' + ",true]]}" * 40 + "}", "[" * 10_000],
)  # fmt: skip
def test_a_damaged_memory_of_types_is_a_typed_error(text: str) -> None:
    with pytest.raises(CorruptFile, match=r"lakefmt\.sql\.types"):
        decode_types(text, pa.schema([("a", pa.int64())]))


def test_a_sabotaged_case_is_noticed() -> None:
    line = LINES["DECIMAL"]
    wrong = Line(line.sql, ((Decimal("1.005"), Decimal("1.00")),), ())
    assert stored(layout_of(wrong.sql), wrong.stored[0][0]) != [wrong.stored[0][1]]
