"""Properties text: what Java writes and reads, what it must refuse, and round trips."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats.properties import (
    check_table_checksum,
    decode_properties,
    encode_properties,
    properties_comment_date,
    table_checksum,
)
from lakefmt.errors import CorruptFile, InvalidInputError

# Java's own answers to these bytes (java.util.Properties of JDK 17), checked one by one.
JAVA_READS = {
    b"": {},
    b"\n \t\f\n\r\n": {},
    b"a=b": {"a": "b"},
    b"a:b": {"a": "b"},
    b"a b": {"a": "b"},
    b"a\tb": {"a": "b"},
    b"a\fb": {"a": "b"},
    b" a = b ": {"a": "b "},
    b"a  :  b": {"a": "b"},
    b"a = = b": {"a": "= b"},
    b"a::b": {"a": ":b"},
    b"a": {"a": ""},
    b"=b": {"": "b"},
    b"a=1\na=2": {"a": "2"},
    b"a=1\rb=2\r\nc=3\n": {"a": "1", "b": "2", "c": "3"},
    b"#a=1\n  !b=2\nc=#3": {"c": "#3"},
    b"#a=1\\\nb=2": {"b": "2"},
    b"a=1\\\n  2\\\r\n\t3": {"a": "123"},
    b"a=1\\\n\nb=2": {"a": "1", "b": "2"},
    b"a=1\\\n#2": {"a": "1#2"},
    b"a=1\\\\\nb=2": {"a": "1\\", "b": "2"},
    b"a=1\\\\\\\nb=2": {"a": "1\\b=2"},
    b"\\\n#a=1\nb=2": {"b": "2"},
    b"a=1\\": {"a": "1"},
    b"a\\ b\\=c\\:d=e": {"a b=c:d": "e"},
    b"a\\\\=b": {"a\\": "b"},
    b'a=\\t\\r\\n\\f\\q\\"': {"a": '\t\r\n\fq"'},
    b"a=\\u00e9\\u4E1C": {"a": "é东"},
    b"a=\\ud83d\\ude00": {"a": "😀"},
    b"a=\\u0000": {"a": "\0"},
    b"a=\xe9\x0b\x85": {"a": "é\x0b\x85"},
    b"\\u0061\\u003d=b": {"a=": "b"},
}


@pytest.mark.parametrize("data", JAVA_READS, ids=repr)
def test_reads_what_java_reads(data):
    assert decode_properties(data) == JAVA_READS[data]


@pytest.mark.parametrize("data", [b"a=\\u12", b"a=\\u12g4", b"\\u=1", b"a=\\\\\\u"], ids=repr)
def test_a_malformed_escape_is_refused(data):
    with pytest.raises(CorruptFile, match=r"conf: malformed escape.*four hexadecimal digits"):
        decode_properties(data, "conf")


@pytest.mark.parametrize("data", [b"a=\\ud83d", b"a=\\ude00\\ud83d", b"\\ud83d=1"], ids=repr)
def test_half_a_surrogate_pair_is_refused(data):
    with pytest.raises(CorruptFile):
        decode_properties(data)


@pytest.mark.parametrize("data", [b"\0", b"a=1\n\0\0\0\0", b"a\0=1"], ids=repr)
def test_a_torn_file_is_refused(data):
    with pytest.raises(CorruptFile, match=f"NUL byte at offset {data.index(0)}"):
        decode_properties(data)


def test_the_file_that_java_writes():
    written = encode_properties(
        {
            "hoodie.table.name": "événement",
            "hoodie.table.create.schema": '{"type":"record"}',
            "a b": " c=d #e! ",
            "tab": "\t\r\n\f\\",
            "smile": "😀",
        },
        ["Properties saved on 2025-10-24T20:50:36.123Z", "Fri Oct 24 16:50:36 EDT 2025"],
    )
    assert written.decode("ascii").splitlines() == [
        "#Properties saved on 2025-10-24T20:50:36.123Z",
        "#Fri Oct 24 16:50:36 EDT 2025",
        "hoodie.table.name=\\u00E9v\\u00E9nement",
        'hoodie.table.create.schema={"type"\\:"record"}',
        "a\\ b=\\ c\\=d \\#e\\! ",
        "tab=\\t\\r\\n\\f\\\\",
        "smile=\\uD83D\\uDE00",
    ]


def test_a_comment_stays_a_comment():
    data = encode_properties({}, ["one\ntwo=2\r\nthree\rfour 東"])
    assert data == b"#one\n#two=2\n#three\n#four \\u6771\n"
    assert decode_properties(data) == {}


def test_half_a_surrogate_pair_is_not_written():
    with pytest.raises(InvalidInputError):
        encode_properties({"a": "\ud83d"})


texts = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.slow
@given(st.dictionaries(texts, texts), st.lists(texts))
def test_what_is_written_is_read(values, comments):
    assert decode_properties(encode_properties(values, comments)) == values


syntax = st.lists(st.sampled_from([b"\\", b"\n", b"\r", b" ", b"=", b"#", b"a", b"\\u00e9", b"\\u"])).map(b"".join)


@given(st.binary() | syntax)
def test_any_bytes_are_a_value_or_an_error(data):
    try:
        values = decode_properties(data)
    except CorruptFile:
        return
    assert decode_properties(encode_properties(values)) == values


@pytest.mark.parametrize("piece", [b"\\\n", b"\\", b"\\:", b" ", b"\r", b"=\n", b"#\n"], ids=repr)
def test_long_runs_take_linear_time(piece):
    assert len(decode_properties(piece * 100_000)) <= 1


@pytest.mark.parametrize(
    ("database", "name", "checksum"),
    [
        (None, "t", "498511606"),
        ("", "t", "498511606"),
        ("default", "trips", "2200697520"),
        (None, "trips_metadata", "1249152950"),
        ("db1", "événement", "3640791293"),
    ],
)
def test_checksums_of_the_specification(database, name, checksum):
    assert table_checksum(database, name) == checksum
    props = {"hoodie.table.name": name, "hoodie.table.checksum": checksum}
    if database is not None:
        props["hoodie.database.name"] = database
    assert check_table_checksum(props)


def test_an_absent_checksum_is_right_and_a_wrong_one_is_not():
    assert check_table_checksum({"hoodie.table.name": "t"})
    assert not check_table_checksum({"hoodie.table.name": "u", "hoodie.table.checksum": "498511606"})
    assert not check_table_checksum({"hoodie.table.checksum": "498511606"})
    assert not check_table_checksum({"hoodie.table.name": "t", "hoodie.table.checksum": "x"})


def test_the_date_comment_is_javas():
    moment = datetime(2025, 10, 24, 16, 50, 36, tzinfo=timezone(timedelta(hours=-4)))
    assert properties_comment_date(moment) == "Fri Oct 24 20:50:36 UTC 2025"
    assert properties_comment_date(datetime(1970, 1, 1, tzinfo=UTC)) == "Thu Jan 01 00:00:00 UTC 1970"
    with pytest.raises(InvalidInputError):
        properties_comment_date(datetime(2025, 1, 1))
