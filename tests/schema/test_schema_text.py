"""The small schema language: strict, bounded, and the same both ways."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.schema.types import parse_schema
from lakefmt.errors import InvalidInputError


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("string", pa.string()),
        ("bool", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("date", pa.date32()),
        ("binary", pa.binary()),
        ("time", pa.time64("us")),
        ("time[ms]", pa.time32("ms")),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp[us]", pa.timestamp("us")),
        ("timestamp[ms, UTC]", pa.timestamp("ms", "UTC")),
        ("decimal(38, 0)", pa.decimal128(38, 0)),
        ("list<map<string, list<int>>>", pa.list_(pa.map_(pa.string(), pa.list_(pa.int32())))),
        (
            "struct<a: int!, b: struct<c: date>>",
            pa.struct([pa.field("a", pa.int32(), False), ("b", pa.struct([("c", pa.date32())]))]),
        ),
    ],
)
def test_types(text, kind):
    assert parse_schema(f"x: {text}").field("x").type == kind


def test_required_columns():
    schema = parse_schema(" id :string ! , n:int")
    assert [field.nullable for field in schema] == [False, True]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a column name at character 1, the end"),
        ("id", "expected ':' at character 3"),
        ("id:strin", r"unknown type 'strin': .* at character 4, 'strin'"),
        ("id:string,", "expected a column name at character 11"),
        ("id:string x", "expected ',' or the end"),
        ("id:string,id:int", "column id appears twice"),
        ("1d:string", "expected a column name"),
        ("t:timestamp[ns]", "unknown unit 'ns'"),
        ("t:timestamp[us,Europe]", "zone 'Europe' is not supported"),
        ("d:decimal(39,2)", r"decimal\(39,2\) is not a decimal type"),
        ("d:decimal(2,3)", r"decimal\(2,3\) is not a decimal type"),
        ("d:decimal(0,0)", r"decimal\(0,0\) is not a decimal type"),
        ("d:decimal(99999,2)", "expected"),
        ("l:list<int", "expected '>'"),
        ("s:struct<>", "expected a column name"),
        ("x:" + "list<" * 100 + "int" + ">" * 100, "nested more than 32 deep"),
        ("x:int," * 300_000, "too long"),
    ],
)
def test_what_is_not_a_schema_is_refused_with_its_place(text, said):
    with pytest.raises(InvalidInputError, match=said):
        parse_schema(text)


@given(st.text("abi:,<>()[]!nt mstrguclepd0129_", max_size=40))
def test_any_text_is_a_schema_or_refused(text):
    try:
        schema = parse_schema(text)
    except InvalidInputError:
        return
    assert schema.names
    assert all(name in text for name in schema.names)


NAMES = st.lists(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True), min_size=1, max_size=3, unique=True)
FLAT = st.sampled_from(["string", "long", "date", "timestamp[us]", "timestamp[us,UTC]", "decimal(10,2)", "time[ms]"])


def _nested(inner):
    structs = st.tuples(NAMES, inner).map(lambda two: "struct<" + ",".join(f"{name}:{two[1]}" for name in two[0]) + ">")
    return inner.map("list<{}>".format) | inner.map("map<string,{}>".format) | structs


KINDS = FLAT | _nested(FLAT) | _nested(_nested(FLAT))


@given(NAMES, KINDS, st.sampled_from(["", " ", "  "]))
def test_blanks_mean_nothing(names, kind, blank):
    plain = ",".join(f"{name}:{kind}!" for name in names)
    spaced = plain
    for sign in ",:<>()[]!":
        spaced = spaced.replace(sign, f"{blank}{sign}{blank}")
    schema = parse_schema(plain)
    assert parse_schema(spaced) == schema
    assert schema.names == names
    assert not any(field.nullable for field in schema)
