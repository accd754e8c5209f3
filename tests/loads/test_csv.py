"""CSV: the rules of separators, enclosing, nulls and bad rows (T9, TX-15, TX-16), wherever a body is cut into blocks."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import lakefmt._core.loads.csv_rows as csv_rows
from lakefmt._core.keys import KeyGeneratorType, KeySpec
from lakefmt._core.loads.csv_rows import CsvReader
from lakefmt._core.loads.expressions import Computed, convert_texts, fit_values, local_times
from lakefmt._core.loads.protocol import LoadCounts, LoadParameters, Refusal, parse_load, separator_bytes
from lakefmt._core.loads.shape import Shaper, Target
from tests.example_counts import examples
from tests.loads.loads_kit import Base, Client, loaded

NAMES = ["a", "b"]


def blocks(data: bytes, size: int) -> Iterator[bytes]:
    for begin in range(0, len(data), size):
        yield data[begin : begin + size]


def read(
    data: bytes, names: Sequence[str] = NAMES, size: int = 1 << 20, **how: Any
) -> tuple[list[tuple[str | None, ...]], int]:
    """The rows of a body as texts, and how many are bad."""
    reader = CsvReader(LoadParameters(**{"separator": b",", **how}), list(names), {})
    found = [decode() for decode in reader.read(blocks(data, size))]
    rows = [tuple(row.values()) for each in found for row in each.rows.to_pylist()]
    return rows, sum(each.bad for each in found)


CASES: dict[str, tuple[bytes, dict[str, Any], list[tuple[str | None, ...]], int]] = {
    "null is a backslash and an N": (b"1,\\N\n\\N,x\n", {}, [("1", None), (None, "x")], 0),
    "an empty field is an empty text": (b",\n", {}, [("", "")], 0),
    "quotes are data without enclose": (b'1,"x"\n', {}, [("1", '"x"')], 0),
    "blank rows are skipped": (b"\n1,2\n\n\n3,4\n", {}, [("1", "2"), ("3", "4")], 0),
    "the last row needs no delimiter": (b"1,2\n3,4", {}, [("1", "2"), ("3", "4")], 0),
    "too few and too many fields": (b"1\n1,2\n1,2,3\n", {}, [("1", "2")], 2),
    "nothing": (b"", {}, [], 0),
    "only blank rows": (b"\n\n", {}, [], 0),
    "CR stays in the last field": (b"1,2\r\n3,4\r\n", {}, [("1", "2\r"), ("3", "4\r")], 0),
    "CRLF as delimiter": (b"1,2\r\n3,4\r\n", {"delimiter": b"\r\n"}, [("1", "2"), ("3", "4")], 0),
    "CRLF as delimiter, and LF as data": (b"1,2\n\r\n3,4\r\n", {"delimiter": b"\r\n"}, [("1", "2\n"), ("3", "4")], 0),
    "separators of many bytes": (b"1||x|y\n2||z\n", {"separator": b"||"}, [("1", "x|y"), ("2", "z")], 0),
    "separators that overlap": (b"1|||x\n", {"separator": b"||"}, [("1", "|x")], 0),
    "a delimiter of many bytes": (b"1,x\ny;;2,z;;", {"delimiter": b";;"}, [("1", "x\ny"), ("2", "z")], 0),
    "a delimiter that has the separator": (b"1,x,;2,y,;", {"delimiter": b",;"}, [("1", "x"), ("2", "y")], 0),
    "separators that are no ASCII": ("1é2\n".encode(), {"separator": "é".encode()}, [("1", "2")], 0),
    "control characters": (
        b"1\x012\x023\x014\x02",
        {"separator": b"\x01", "delimiter": b"\x02"},
        [("1", "2"), ("3", "4")],
        0,
    ),
    "NUL is data": (b"1,x\x00y\n", {}, [("1", "x\x00y")], 0),
    "invalid UTF-8 is a bad row": (b"1,\xff\n2,\xc3\xa9\n3,\xc3,\n\xe2\x82,4\n", {}, [("2", "é")], 3),
    "enclosed separators and line ends": (b'1,"x,\ny"\n', {"enclose": b'"'}, [("1", "x,\ny")], 0),
    "a doubled quote": (b'1,"x""y"\n"""",""\n', {"enclose": b'"'}, [("1", 'x"y'), ('"', "")], 0),
    "an enclosed null is a text": (b'1,"\\N"\n', {"enclose": b'"'}, [("1", "\\N")], 0),
    "a quote inside a plain field": (b'1,x"y\n2,5" disk\n', {"enclose": b'"'}, [("1", 'x"y'), ("2", '5" disk')], 0),
    "other quotes": (b"1,'x,y'\n", {"enclose": b"'"}, [("1", "x,y")], 0),
    "escapes": (b"1,x\\,y\n2,x\\\ny\n3,\\\\\n", {"escape": b"\\"}, [("1", "x,y"), ("2", "x\ny"), ("3", "\\")], 0),
    "null beside an escape": (b"1,\\N\n2,\\\\N\n", {"escape": b"\\"}, [("1", None), ("2", "\\N")], 0),
    "an escaped quote": (
        b'1,"x\\"y,"\n2,"a""b"\n',
        {"enclose": b'"', "escape": b"\\"},
        [("1", 'x"y,'), ("2", 'a"b')],
        0,
    ),
    "an escaped separator of many bytes": (b"1||x\\||y\n", {"separator": b"||", "escape": b"\\"}, [("1", "x||y")], 0),
    "enclosed separators of many bytes": (b'1||"x||y"\n', {"separator": b"||", "enclose": b'"'}, [("1", "x||y")], 0),
    "blanks are trimmed": (b" 1 , x y \n 2,  \\N\n", {"trim_space": True}, [("1", "x y"), ("2", None)], 0),
    "blanks outside quotes are trimmed": (
        b' 1 , " x " \n2, "y,z"\n',
        {"trim_space": True, "enclose": b'"'},
        [("1", " x "), ("2", "y,z")],
        0,
    ),
    "rows at the start are skipped": (b"a,b\nc,d\n1,2\n", {"skip_header": 2}, [("1", "2")], 0),
    "an enclosed header": (b'"a\n",b\n1,2\n', {"skip_header": 1, "enclose": b'"'}, [("1", "2")], 0),
    "a header alone": (b"a,b", {"skip_header": 1}, [], 0),
}


@pytest.mark.parametrize("case", list(CASES))
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_t9_rules(case: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_rows, "_BLOCK_BYTES", size)
    data, how, rows, bad = CASES[case]
    assert read(data, size=size, **how) == (rows, bad)


FIELD = st.text(st.sampled_from(['"', ",", "\n", "a", "é", " ", "\\", "N"]), max_size=5)
TABLE = st.lists(st.tuples(FIELD, FIELD), max_size=8)


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(TABLE, st.integers(1, 40), st.booleans())
def test_t9_what_python_writes_is_read(rows: list[tuple[str, str]], size: int, escapes: bool) -> None:
    """The rules of Python's csv with everything quoted are a part of ours."""
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    how: dict[str, Any] = {"enclose": b'"'}
    data = written.getvalue()
    if escapes:
        how["escape"], data = b"\\", data.replace("\\", "\\\\")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_rows, "_BLOCK_BYTES", size)
        assert read(data.encode(), size=size, **how) == (rows, 0)


PLAIN = st.text(st.sampled_from(["a", "é", " ", "|", '"', "1", "\t"]), min_size=1, max_size=4)


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(
    st.lists(st.tuples(PLAIN, PLAIN), max_size=8),
    st.sampled_from([",", ";;", "§", "<>x"]),
    st.sampled_from(["\n", "\r\n", "@@"]),
)
def test_t9_every_way_of_reading_has_the_same_rows(rows: list[tuple[str, str]], separator: str, delimiter: str) -> None:
    """Sabotage of this law: fields that are cut elsewhere are not joined to the same body."""
    data = "".join(f"{a}{separator}{b}{delimiter}" for a, b in rows).encode()
    how: dict[str, Any] = {"separator": separator.encode(), "delimiter": delimiter.encode()}
    expected = [row for row in rows if row != ("", "")]
    assert read(data, **how) == (expected, 0)
    # An escape that never comes makes no difference, and is another way through the code.
    assert read(data, escape=b"^", **how) == (expected, 0)


RAW = st.text(st.sampled_from(['"', ",", "\n", "\n", "a", "é", " ", "\\", "N", "\r", "|", ";"]), max_size=24)


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(
    RAW,
    st.integers(1, 6),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.sampled_from([b",", b"||"]),
    st.sampled_from([b"\n", b"\r\n", b";;"]),
    st.integers(0, 2),
)
def test_t9_any_body_has_the_same_rows_wherever_it_is_cut_and_by_each_way(
    text: str, size: int, signs: tuple[bool, bool, bool], separator: bytes, delimiter: bytes, skip: int
) -> None:
    enclosed, escaped, trimmed = signs
    how: dict[str, Any] = {"separator": separator, "delimiter": delimiter, "trim_space": trimmed, "skip_header": skip}
    how |= {"enclose": b'"'} if enclosed else {}
    how |= {"escape": b"\\"} if escaped else {}
    whole = read(text.encode(), **how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_rows, "_BLOCK_BYTES", size)
        assert read(text.encode(), size=size, **how) == whole
    if not escaped:  # one that never comes is another way through the code
        assert read(text.encode(), **{**how, "escape": b"^"}) == whole


def _byte_by_byte(data: bytes, parameters: LoadParameters) -> tuple[list[tuple[str | None, ...]], int]:
    """The rules of docs/http-loads.md, one byte after the other."""
    separator, delimiter, quote, escape = (
        parameters.separator,
        parameters.delimiter,
        parameters.enclose,
        parameters.escape,
    )
    rows, bad, fields, at = [], 0, list[tuple[bytes, bytes, bool]](), 0
    while at < len(data) or fields:
        begin = at
        while parameters.trim_space and data[at : at + 1] == b" ":
            at += 1
        quoted = bool(quote) and data.startswith(quote, at)
        at, value, open_quote = (at + 1, b"", True) if quoted else (begin, b"", False)
        while at < len(data):
            if escape and data.startswith(escape, at) and at + 1 < len(data):
                value, at = value + data[at + 1 : at + 2], at + 2
            elif open_quote and data.startswith(quote * 2, at):
                value, at = value + quote, at + 2
            elif open_quote and data.startswith(quote, at):
                open_quote, at = False, at + 1
            elif not open_quote and data.startswith((separator, delimiter), at):
                break
            else:
                blank_outside = quoted and not open_quote and parameters.trim_space and data[at : at + 1] == b" "
                value, at = value + (b"" if blank_outside else data[at : at + 1]), at + 1
        if open_quote:
            return rows, bad + 1
        fields.append((data[begin:at], value, quoted))
        if data.startswith(delimiter, at) or at >= len(data):
            at += len(delimiter)
            if len(fields) > 1 or fields[0][0]:
                made = [_value(raw, value, parameters, quoted=quoted) for raw, value, quoted in fields]
                is_good = len(fields) == len(NAMES) and "?" not in made
                rows += [tuple(made)] if is_good else []
                bad += not is_good
            fields = []
        else:
            at += len(separator)
    return rows, bad


def _value(raw: bytes, value: bytes, parameters: LoadParameters, *, quoted: bool) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "?"
    if parameters.trim_space:
        raw, text = raw.strip(b" "), text if quoted else text.strip(" ")
    return None if raw == b"\\N" else text


SIGNS = [
    b'"',
    b'"',
    b",",
    b"|",
    b"||",
    b";",
    b";;",
    b"\n",
    b"\r\n",
    b"a",
    "é".encode(),
    b" ",
    b"\\",
    b"\\N",
    b"\xa7",
    b"\x01",
]


@settings(max_examples=examples(1500), deadline=None)
@given(
    st.lists(st.sampled_from(SIGNS), max_size=16).map(b"".join),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.sampled_from([b",", b"||", b"\xa7", b"|;"]),
    st.sampled_from([b"\n", b"\r\n", b";;", b";", b"|"]),
    st.integers(1, 6),
)
@example(b'"a\r\nb"||c\r\n', (True, False, False), b"||", b"\r\n", 4)
@example(b"a\\|||b\n", (False, True, False), b"||", b"\n", 4)
@example(b"a,b;;;,c;;", (False, False, False), b",", b";;", 6)
@example(b" \\\\N,b\n", (False, True, True), b",", b"\n", 6)
def test_every_byte_means_what_the_rules_say(
    data: bytes, signs: tuple[bool, bool, bool], separator: bytes, delimiter: bytes, size: int
) -> None:
    """What is between quotes is data, a delimiter of several bytes, too; an escape protects one byte."""
    enclosed, escaped, trimmed = signs
    assume(set(separator).isdisjoint(delimiter))
    how: dict[str, Any] = {"separator": separator, "delimiter": delimiter, "trim_space": trimmed}
    how |= {"enclose": b'"'} if enclosed else {}
    how |= {"escape": b"\\"} if escaped else {}
    expected = _byte_by_byte(data, LoadParameters(**how))
    with pytest.MonkeyPatch.context() as patch:
        assert read(data, **how) == expected
        patch.setattr(csv_rows, "_BLOCK_BYTES", size)
        assert read(data, size=size, **how) == expected


@pytest.mark.parametrize("escape", [b"", b"\\"])
def test_a_quote_that_is_not_closed_is_a_bad_row(escape: bytes) -> None:
    assert read(b'1,a\n2,"b\n3,c\n', enclose=b'"', escape=escape) == ([("1", "a")], 1)


def test_a_row_that_is_too_long_ends_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_rows, "_BLOCK_BYTES", 10)
    monkeypatch.setattr(csv_rows, "_MAX_ROW_BYTES", 100)
    with pytest.raises(Refusal, match="more than 100 bytes"):
        read(b"x" * 200, size=20)
    with pytest.raises(Refusal, match="more than 100 bytes"):
        read(b'"' + b"x\n" * 100, size=20, enclose=b'"')


def test_tx15_tx16_warnings() -> None:
    reader = CsvReader(LoadParameters(separator=b","), NAMES, {})
    list(reader.read([b"1,2\n"]))
    assert reader.warnings == 0
    list(reader.read([b"1,2"]))
    assert reader.warnings == 1
    list(reader.read([b"1,2\r\n"]))
    assert reader.warnings == 2


def test_tx15_the_bodies_of_two_loads_are_not_glued() -> None:
    reader = CsvReader(LoadParameters(separator=b","), NAMES, {})
    rows = [row for body in (b"1,2", b"3,4") for decode in reader.read([body]) for row in decode().rows.to_pylist()]
    assert [tuple(row.values()) for row in rows] == [("1", "2"), ("3", "4")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("\\x01", b"\x01"),
        ("0x0102", b"\x01\x02"),
        ("\\x7c\\x7C", b"||"),
        ("\\t", b"\t"),
        ("\\r\\n", b"\r\n"),
        ("|", b"|"),
    ],
)
def test_forms_of_separators(text: str, found: bytes) -> None:
    assert separator_bytes(text, b"", "x") == found


@pytest.mark.parametrize(
    "headers",
    [
        {"column_separator": "\\xzz"},
        {"column_separator": "0x0"},
        {"column_separator": "x" * 51},
        {"column_separator": "\\n"},
        {"enclose": "ab"},
        {"enclose": "\\t"},
        {"max_filter_ratio": "2"},
        {"max_filter_ratio": "nan"},
        {"strict_mode": "maybe"},
        {"skip_header": "-1"},
        {"format": "parquet"},
        {"compression": "rar"},
        {"compression": "gzip", "content-encoding": "gzip"},
        {"partitions": "a", "temporary_partitions": "b"},
        {"lakefmt_operation": "drop"},
        {"partial_update_mode": "x"},
    ],
)
def test_headers_that_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Refusal):
        parse_load(headers)


SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("i", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.decimal128(5, 2)),
        ("b", pa.bool_()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("s", pa.string()),
        ("l", pa.list_(pa.int64())),
    ]
)
GOOD = b"1|-128|1e2|2.345|true|2026-02-28|2026-02-28 10:00:00.25|x|[1,2]\n"


def test_values_of_every_type() -> None:
    rows, _ = loaded(GOOD, SCHEMA, column_separator="|", timezone="Europe/Oslo")
    assert [str(value) for value in rows[0]] == [
        "1",
        "-128",
        "100.0",
        "2.35",
        "True",
        "2026-02-28",
        "2026-02-28 09:00:00.250000+00:00",
        "x",
        "[1, 2]",
    ]


@pytest.mark.parametrize(
    ("data_type", "text", "expected"),
    [
        (pa.timestamp("ms"), "1969-12-31 23:59:59.9999", "1969-12-31 23:59:59.999000"),
        (pa.timestamp("ms"), "2026-02-28 10:00:00.1239", "2026-02-28 10:00:00.123000"),
        (pa.timestamp("ms", "UTC"), "1969-12-31 23:59:59.9999", "1969-12-31 23:59:59.999000+00:00"),
        (pa.timestamp("us", "UTC"), "2026-02-28 10:00:00+14:00", "2026-02-27 20:00:00+00:00"),
        (pa.timestamp("us", "UTC"), "2026-02-28 10:00:00+15:00", "None"),
        (pa.timestamp("us", "UTC"), "2026-02-28 10:00:00+01:60", "None"),
        (pa.decimal128(10, 2), ".5e3", "500.00"),
        (pa.decimal128(10, 2), ".e3", "None"),
    ],
)
def test_values_of_texts_are_those_of_the_rules(data_type: pa.DataType, text: str, expected: str) -> None:
    assert str(convert_texts(pa.chunked_array([[text]]), data_type)[0][0].as_py()) == expected


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(1, 2000), st.integers(0, 2000), st.integers(0, 100))
@example(100, 29, 29)
def test_a_ratio_of_bad_rows_is_exact(selected: int, filtered: int, hundredths: int) -> None:
    filtered = min(filtered, selected)
    counts = LoadCounts(total=selected + 3, filtered=filtered, unselected=3)
    assert counts.exceeds(hundredths / 100) == (Fraction(filtered, selected) > Fraction(hundredths, 100))


BAD = b"2|2147483648|x|1000|maybe|2026-02-30|later|y|{\n"


def test_lenient_values_become_null_and_strict_ones_end_their_row() -> None:
    rows, reply = loaded(GOOD + BAD, SCHEMA, column_separator="|")
    assert rows[1] == (2, None, None, None, None, None, None, "y", None)
    assert reply["NumberFilteredRows"] == 0
    rows, reply = loaded(GOOD + BAD, SCHEMA, column_separator="|", strict_mode="true", max_filter_ratio="0.5")
    assert len(rows) == 1
    assert (reply["NumberTotalRows"], reply["NumberFilteredRows"]) == (2, 1)


@pytest.mark.parametrize("strict", ["true", "false"])
def test_null_in_a_column_that_must_have_a_value_ends_the_row(strict: str) -> None:
    rows, reply = loaded(b"\\N,a,1\nx,b,1\n3,c,1\n", column_separator=",", strict_mode=strict, max_filter_ratio="1")
    assert rows == [(3, "c", 1.0)]
    assert reply["NumberFilteredRows"] == 2


COLUMNS: dict[str, tuple[dict[str, str], bytes, list[tuple[Any, ...]]]] = {
    "another order": ({"columns": "n,id,v"}, b"1.5,7,x\n", [(7, "x", 1.5)]),
    "a field that is left out": ({"columns": "id,unused,v"}, b"7,u,x\n", [(7, "x", None)]),
    "an expression": ({"columns": "id,raw,v=upper(raw),n=id*2"}, b"7,x\n", [(7, "X", 14.0)]),
    "a text that is a number": ({"columns": "id,raw,n=raw+1"}, b"7,2\n", [(7, None, 3.0)]),
    "a condition": ({"where": "id > 1 and v is not null"}, b"1,a,1\n2,b,2\n3,\\N,3\n", [(2, "b", 2.0)]),
    "a condition on a field": (
        {"columns": "id,v,tag", "where": "tag = 'keep'"},
        b"1,a,keep\n2,b,no\n",
        [(1, "a", None)],
    ),
    "functions": (
        {"columns": "id,a,b,v=concat(coalesce(a,'-'),substr(trim(b),1,2)),n=if(a='x',1,2)"},
        b"1,x, yz \n2,\\N,q\n",
        [(1, "xyz", 1.0), (2, "-q", 2.0)],
    ),
    "quoted names": ({"columns": "`id`, `v`"}, b"7,x\n", [(7, "x", None)]),
}


@pytest.mark.parametrize("case", list(COLUMNS))
def test_tx8_columns_and_conditions(case: str) -> None:
    headers, body, expected = COLUMNS[case]
    rows, reply = loaded(body, column_separator=",", **headers)
    assert rows == expected, reply


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"columns": "id,v=sleep(1)"}, "sleep"),
        ({"columns": "id,other=v"}, "no column 'other'"),
        ({"columns": "v,n"}, "column 'id' gets no value"),
        ({"columns": "id,id"}, "named twice"),
        ({"columns": "id,,v"}, "Invalid columns"),
        ({"columns": "id,v=nothing"}, "nothing"),
        ({"columns": "id,v=(select 1)"}, "Invalid expression"),
        ({"where": "id"}, "is no condition"),
        ({"where": "id ="}, "Invalid expression"),
        ({"where": "drop table t"}, "Invalid expression"),
        ({"merge_condition": "other"}, "Invalid merge_condition"),
        ({"timezone": "Mars/Base"}, "Invalid timezone"),
    ],
)
def test_tx8_columns_that_are_refused(headers: dict[str, str], message: str) -> None:
    _, reply = loaded(b"1,a,1\n", column_separator=",", **headers)
    assert reply["Status"] == "FAILED"
    assert message in reply["Message"]


def test_counts_of_unselected_and_bad_rows() -> None:
    body = b"1,a,1\n2,b,2\nx\n3,c,3\n"
    rows, reply = loaded(body, column_separator=",", where="id < 2", max_filter_ratio="0.5")
    assert rows == [(1, "a", 1.0)]
    assert [reply[f"Number{name}Rows"] for name in ("Total", "Loaded", "Filtered", "Unselected")] == [4, 1, 1, 2]
    _, reply = loaded(body, column_separator=",", where="id < 2", max_filter_ratio="0.4")
    assert reply["prepare"]["Message"] == "too many filtered rows"


VALUES: dict[pa.DataType, list[str]] = {
    pa.float64(): [
        "1e00001",
        "1.5",
        "nan",
        "-inf",
        "Infinity",
        "1e400",
        "1e-400",
        "+5",
        " 7 ",
        ".5",
        "5.",
        "",
        "x",
        "0x10",
    ],
    pa.float32(): ["1.00000017881393432617187499", "1e39", "inf", "16777217", "0.1", "x"],
    pa.int64(): [
        "0x1F",
        "+5",
        "-0",
        "007",
        " 9 ",
        "9223372036854775807",
        "9223372036854775808",
        "1.0",
        "1e3",
        "",
        "x",
        "0" * 40 + "7",
    ],
    pa.int8(): ["127", "128", "0x7f", "-128", "-129", "x"],
    pa.bool_(): ["true", "tRUE", "t", "2", "1", "0", "FALSE", ""],
    pa.date32(): [
        "2026-1-5",
        "2026-02-28",
        "2026-02-30",
        "2026-02-28 10:00:00",
        "20260228",
        "2026-13-01",
        "10000-01-01",
    ],
    pa.timestamp("ms"): ["1969-12-31 23:59:59.9999", "2026-02-28 10:00:00.1239", "2026-02-28 10:00:00.123", "x"],
    pa.timestamp("us", "UTC"): [
        *(
            "2026-02-28 10:00:00+05:30",
            "2026-02-28 10:00:00+99:99",
            "2026-02-28 10:00:00-00:60",
            "2026-02-28T10:00:00Z",
        ),
        *("2026-02-28", "x"),
    ],
    pa.timestamp("us"): [
        *(
            "2026-02-28",
            "2026-02-28 10",
            "2026-02-28 10:07",
            "2026-02-28T10:07:01",
            "2026-02-28 10:00:60",
            "2026-2-8 1:2:3",
        ),
        *("2026-02-28 24:00:00", "2026-02-28 10:00:00.1234567", "1960-01-01 00:00:00.25", "2026-02-28 10:00:00Z", "x"),
    ],
    pa.decimal128(10, 2): [
        "1e2",
        "1.5E-1",
        "1.005",
        "-1.005",
        "99999999.994",
        "99999999.995",
        "1e19",
        ".",
        "",
        "x",
        "1e40",
    ],
}


@settings(max_examples=examples(200), derandomize=True, deadline=None)
@given(st.data())
def test_a_value_does_not_depend_on_the_values_beside_it(data: st.DataObject) -> None:
    """A row comes to the same alone, among others in one block, and by each of the ways to read it."""
    data_type = data.draw(st.sampled_from(list(VALUES)))
    texts = data.draw(st.lists(st.sampled_from(VALUES[data_type]), min_size=1, max_size=5))

    def values(rows: Sequence[str], **how: Any) -> list[str]:
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", data_type)])
        shaper = Shaper(
            LoadParameters(separator=b",", **how),
            Target(schema, ("id",), KeySpec(("id",), (), KeyGeneratorType.SIMPLE)),
        )
        body = "".join(f"{number},{text}\n" for number, text in enumerate(rows)).encode()
        return [
            repr(value)
            for decode in shaper.reader.read([body])
            for value in shaper.shape(decode()).rows["v"].to_pylist()
        ]

    alone = [value for text in texts for value in values([text])]
    assert values(texts) == alone
    assert values(texts, escape=b"^") == alone
    assert [repr(convert_texts(pa.chunked_array([[text]]), data_type)[0][0].as_py()) for text in texts] == alone


NUMBERS = st.one_of(
    st.floats(), st.integers(-(2**70), 2**70).map(float), st.sampled_from([0.5, -0.5, 2.0**63, -(2.0**63), 1e16, 14.5])
)


@settings(max_examples=examples(200), derandomize=True, deadline=None)
@given(
    st.lists(NUMBERS, min_size=1, max_size=5),
    st.sampled_from([pa.int8(), pa.int64(), pa.uint32(), pa.decimal128(10, 2)]),
)
def test_a_number_that_an_expression_gives_becomes_that_of_its_column(
    numbers: list[float], data_type: pa.DataType
) -> None:
    """As a cast of SQL: towards zero for whole numbers; what does not fit is null, and takes no other along."""
    made, bad = fit_values(pa.chunked_array([numbers]), data_type)
    for number, value, is_bad in zip(numbers, made.to_pylist(), bad, strict=True):
        least, most = (-(10**8), 10**8) if pa.types.is_decimal(data_type) else BOUNDS[data_type]
        if not math.isfinite(number):
            expected = None
        elif pa.types.is_decimal(data_type):
            expected = None if not least < number < most else value
            assert value is None or abs(float(value) - number) <= 0.0051
        else:
            expected = math.trunc(number) if least <= math.trunc(number) <= most else None
        if not (pa.types.is_decimal(data_type) and abs(abs(number) - most) < 0.01):
            assert value == expected
        assert is_bad == (value is None)


BOUNDS = {pa.int8(): (-128, 127), pa.int64(): (-(2**63), 2**63 - 1), pa.uint32(): (0, 2**32 - 1)}


@pytest.mark.parametrize(
    ("columns", "body", "expected"),
    [
        ("id,n=id%0", b"1\n", [(1, None, None)]),
        ("id,n=mod(id + 1, id - 1)", b"1\n3\n", [(1, None, None), (3, None, 0.0)]),
        ("id,n=id div (id - 1)", b"1\n3\n", [(1, None, None), (3, None, 1.0)]),
        ("id,raw,n=raw/(id-1)", b"1,4\n3,4\n", [(1, None, None), (3, None, 2.0)]),
        ("id,raw,n=sqrt(raw)", b"1,-4\n3,4\n", [(1, None, None), (3, None, 2.0)]),
        ("id,raw,n=raw+1", b"1,1e999\n3,4\n", [(1, None, None), (3, None, 5.0)]),
        ("id,raw,n=cast(raw as int)", b"1,x\n3,4\n", [(1, None, None), (3, None, 4.0)]),
        (
            "id,raw,v=from_unixtime(raw)",
            b"1,-1\n2,999999999999\n3,5\n",
            [(1, None, None), (2, None, None), (3, "1970-01-01 00:00:05", None)],
        ),
    ],
)
def test_what_has_no_value_is_null_and_ends_no_load(columns: str, body: bytes, expected: list[tuple[Any, ...]]) -> None:
    assert loaded(body, column_separator=",", columns=columns)[0] == expected


@pytest.mark.parametrize("how", [{}, {"escape": "^"}])
def test_a_byte_order_mark_is_no_part_of_the_first_field_and_a_part_of_others(how: dict[str, str]) -> None:
    rows, _ = loaded("\ufeff1,\ufeffa,1\n".encode(), column_separator=",", **how)
    assert rows == [(1, "\ufeffa", 1.0)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_rows, "_BLOCK_BYTES", 4)
        assert read("a,b\n\ufeffc,d\n".encode(), size=4) == ([("a", "b"), ("\ufeffc", "d")], 0)


def test_rejected_rows_are_written_down_when_a_load_asks_for_them() -> None:
    base = Base()
    client = Client(base.service())
    told = {"column_separator": ",", "strict_mode": "true", "max_filter_ratio": "1", "log_rejected_record_num": "3"}
    client.transaction("begin", "l")
    body = b"1,a,1\n2,b\nx,c,3\n4,d,y\n5,e,z\n"
    reply = client.transaction("load", "l", body, **told)
    assert (reply["NumberLoadedRows"], reply["NumberFilteredRows"]) == (1, 4)
    store = client.service.transactions.journal.store
    rows = store.read(reply["RejectedRecordPath"], 1 << 20).decode().splitlines()
    assert [row.split("\t")[0] for row in rows] == ["2,b", "x,c,3", "4,d,y"]
    assert all("\t" in row for row in rows)
    shown = client.ask("GET", "/api/_load_error_log", query={"file": reply["ErrorURL"].rpartition("=")[2]})
    assert "2,b" not in shown["text"]  # over HTTP no value is shown
    assert client.transaction("prepare", "l")["RejectedRecordPath"] == reply["RejectedRecordPath"]
    # Without the header none is written, and with it they are no more than the server takes.
    client.transaction("begin", "m")
    assert "RejectedRecordPath" not in client.transaction("load", "m", body, **{**told, "log_rejected_record_num": "0"})
    client.transaction("begin", "n")
    many = b"".join(b"%d,%s\n" % (number, b"x" * 3_000) for number in range(9_000))
    reply = client.transaction("load", "n", many, **{**told, "log_rejected_record_num": "-1"})
    assert reply["NumberFilteredRows"] == 9_000
    data = store.read(reply["RejectedRecordPath"], 1 << 26)
    assert 5_000 < data.count(b"\n") < 9_000
    assert len(data) < 17 << 20


DATE_FORMATS = ["%Y-%m-%d", "%d/%m/%Y", "%Y%m%d", "%e.%c.%Y", "%d %b %Y", "%d%% %M %Y"]


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1971, 2100), st.integers(1, 12), st.integers(1, 31)), min_size=1, max_size=4),
    st.sampled_from(DATE_FORMATS),
)
@example([(2026, 2, 30)], "%Y-%m-%d")
def test_a_day_that_there_is_not_is_null_by_any_format(days: list[tuple[int, int, int]], date_format: str) -> None:
    """The judge is Python's calendar."""

    def date_of(day: tuple[int, int, int]) -> datetime | None:
        try:
            return datetime(*day)
        except ValueError:
            return None

    month_names = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October"]
    month_names += ["November", "December"]
    texts = []
    for year, month, day in days:
        signs = {"%Y": f"{year}", "%m": f"{month:02}", "%d": f"{day:02}", "%e": f"{day}", "%c": f"{month}", "%%": "%"}
        signs |= {"%b": month_names[month - 1][:3], "%M": month_names[month - 1]}
        texts.append(re.sub("%.", lambda found, signs=signs: signs[found[0]], date_format))
    computed = Computed(f"str_to_date(v, '{date_format}')", pa.schema([("v", pa.string())]))
    assert computed.values(pa.table({"v": texts})).to_pylist() == [date_of(day) for day in days]


def test_a_second_that_there_is_not_is_null() -> None:
    computed = Computed("str_to_date(v, '%Y-%m-%d %T')", pa.schema([("v", pa.string())]))
    found = computed.values(pa.table({"v": ["2026-01-05 10:00:60", "2026-01-05 10:00:59"]})).to_pylist()
    assert found == [None, datetime(2026, 1, 5, 10, 0, 59)]


@pytest.mark.parametrize("zone", ["", "Asia/Shanghai", "America/New_York", "+08:00", "-03:30"])
def test_seconds_are_the_moment_that_they_were_in_any_zone(zone: str) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC")), ("v", pa.string())]
    )
    told = {"column_separator": ",", "columns": "id, s, at = from_unixtime(s), v = from_unixtime(s)", "timezone": zone}
    rows, _ = loaded(b"1,1767225600\n", schema, **told)
    assert rows[0][1] == datetime(2026, 1, 1, tzinfo=UTC)
    local = {
        "": "2026-01-01 00:00:00",
        "Asia/Shanghai": "2026-01-01 08:00:00",
        "America/New_York": "2025-12-31 19:00:00",
        "+08:00": "2026-01-01 08:00:00",
        "-03:30": "2025-12-31 20:30:00",
    }
    assert rows[0][2] == local[zone]


ZONES = [
    "Europe/Oslo",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/Sao_Paulo",
]


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.datetimes(datetime(1970, 1, 3), datetime(9999, 12, 31, 23)), min_size=1, max_size=4),
    st.sampled_from([*map(ZoneInfo, ZONES), timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=9))]),
)
@example([datetime(2050, 7, 1), datetime(2026, 7, 1)], ZoneInfo("Europe/Oslo"))
def test_times_of_a_zone_are_those_of_its_calendar(times: list[datetime], zone: tzinfo) -> None:
    """The judge is Python's zoneinfo: in any year, also after 2037, for which Arrow knows no summer time."""

    def is_told_once(time: datetime) -> bool:
        offsets = {time.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1)}
        return len(offsets) == 1

    times = [time for time in times if is_told_once(time)]
    texts = pa.chunked_array([pa.array([str(time) for time in times], pa.string())])
    moments = convert_texts(texts, pa.timestamp("us", "UTC"), zone)[0].cast(pa.timestamp("us"))
    offsets = [time.replace(tzinfo=zone).utcoffset() for time in times]
    expected = pc.subtract(pa.array(times, pa.timestamp("us")), pa.array(offsets, pa.duration("us")))
    assert moments.cast(pa.int64()).to_pylist() == expected.cast(pa.int64()).to_pylist()
    assert local_times(moments, zone).to_pylist() == times


@pytest.mark.parametrize(
    "name", ["nowhere", "Factory", "../UTC", "posixrules", "Europe", "+15:00", "08:00", "+8:00", "+08:60"]
)
def test_zones_that_are_none_are_refused(name: str) -> None:
    _, reply = loaded(b"1,a,1\n", column_separator=",", timezone=name)
    assert "Invalid timezone" in reply["Message"]


DIGITS = st.text("0123456789", min_size=0, max_size=40) | st.integers(0, 42).map(lambda count: "9" * count)
WRITTEN = st.tuples(st.sampled_from(["", "-", "+"]), DIGITS, st.sampled_from(["", "."]), DIGITS)


@settings(max_examples=examples(300), deadline=None)
@given(WRITTEN, st.integers(1, 38), st.integers(0, 38), st.sampled_from(["", "e3", "E-4", "e+30", "e-40"]))
def test_a_decimal_is_exact_or_none(
    written: tuple[str, str, str, str], precision: int, scale: int, exponent: str
) -> None:
    """Python's decimals say what it is, rounded half away from zero; Arrow's rounding of 32 nines is wrong."""
    scale = min(scale, precision)
    text = "".join(written) + exponent
    value, bad = convert_texts(pa.chunked_array([[text]]), pa.decimal128(precision, scale))
    if not written[1] and not written[3]:
        assert bad[0]
        return
    with localcontext(prec=200):
        wanted = Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        fits = abs(wanted) < Decimal(10) ** (precision - scale)
    assert value.to_pylist() == [wanted if fits else None]
    assert bad.tolist() == [not fits]
    if fits:  # the same out of an expression
        wide = pa.chunked_array([pa.array([wanted], pa.decimal256(76, 38))])
        assert fit_values(wide, pa.decimal128(precision, scale))[0].to_pylist() == [wanted]
        whole = int(wanted)
        number = fit_values(wide, pa.int64())[0].to_pylist()
        assert number == [whole if -(2**63) <= whole < 2**63 else None]


@pytest.mark.parametrize("strict", [False, True])
def test_an_expression_that_overflows_concerns_its_row_alone(strict: bool) -> None:
    told = {"columns": "id,a,n=cast(a as bigint) * 2,v=a", "column_separator": ",", "strict_mode": str(strict).lower()}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("n", pa.int64())])
    body = b"1,5\n2,9223372036854775807\n3,-4611686018427387904\n4,6\n"
    rows, reply = loaded(body, schema, max_filter_ratio="0.5", **told)
    assert reply["commit"]["Status"] == "OK"
    overflown = [] if strict else [(2, "9223372036854775807", None)]
    assert rows == sorted(
        [(1, "5", 10), *overflown, (3, "-4611686018427387904", -9223372036854775808), (4, "6", 12)], key=repr
    )
    assert reply["NumberFilteredRows"] == int(strict)
    rows, reply = loaded(body, schema, max_filter_ratio="0.5", where="cast(v as bigint) + 1 > 0", **told)
    assert (reply["NumberFilteredRows"], reply["NumberUnselectedRows"], len(rows)) == (1, 1, 2)
