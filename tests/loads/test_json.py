"""JSON: lines, arrays, paths, and the rules of values (T10, TX-17, TX-18), wherever a body is cut into blocks."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt._core.loads.json_rows as json_rows
from lakefmt._core.keys import KeyGeneratorType, KeySpec
from lakefmt._core.loads.json_rows import JsonReader
from lakefmt._core.loads.protocol import LoadParameters, Refusal
from lakefmt._core.loads.shape import Shaper, Target
from tests.example_counts import examples
from tests.loads.loads_kit import Base, Client, loaded
from tests.loads.test_csv import blocks

TYPES = {"a": pa.int64(), "b": pa.string()}


def read(data: bytes, size: int = 1 << 20, types: Any = TYPES, **how: Any) -> tuple[list[tuple[Any, ...]], int]:
    """The rows of a body, and how many are bad."""
    reader = JsonReader(LoadParameters(format="json", **how), list(types), types)
    found = [decode() for decode in reader.read(blocks(data, size))]
    rows = [tuple(row.values()) for each in found for row in each.rows.to_pylist()]
    return rows, sum(each.bad for each in found)


CASES: dict[str, tuple[bytes, dict[str, Any], list[tuple[Any, ...]], int]] = {
    "one object": (b'{"a":1,"b":"x"}', {}, [(1, "x")], 0),
    "lines": (b'{"a":1,"b":"x"}\n{"b":"y","a":2}\n', {}, [(1, "x"), (2, "y")], 0),
    "objects without blanks between": (b'{"a":1,"b":"x"}{"a":2}', {}, [(1, "x"), (2, None)], 0),
    "an array": (b' [ {"a":1,"b":"x"} , {"a":2} ] ', {}, [(1, "x"), (2, None)], 0),
    "an empty array": (b"[]", {}, [], 0),
    "nothing": (b" \n ", {}, [], 0),
    "a byte order mark": (b'\xef\xbb\xbf{"a":1}', {}, [(1, None)], 0),
    "unknown names": (b'{"a":1,"c":[1,{"b":2}]}', {}, [(1, None)], 0),
    "brackets and quotes in texts": (b'[{"a":1,"b":"}],\\"{"},{"a":2,"b":"\\\\"}]', {}, [(1, '}],"{'), (2, "\\")], 0),
    "line ends inside an object": (b'{\n"a":\r\n1\n}\n{"a":2}', {}, [(1, None), (2, None)], 0),
    "unicode": ('{"a":1,"b":"é\\u00e9\\ud83d\\ude00"}'.encode(), {}, [(1, "éé😀")], 0),
}
#: What is decoded record by record comes as texts.
TEXTS: dict[str, tuple[bytes, dict[str, Any], list[tuple[Any, ...]], int]] = {
    "numbers for texts keep their form": (b'{"a":1,"b":1.50}', {}, [("1", "1.50")], 0),
    "texts for numbers": (b'{"a":"7","b":"x"}', {}, [("7", "x")], 0),
    "objects for texts": (b'{"a":1,"b":{"x":[1.0,null,true,"\xc3\xa9"]}}', {}, [("1", '{"x":[1.0,null,true,"é"]}')], 0),
    "the last of two names": (b'{"a":1,"a":2,"b":"x"}', {}, [("2", "x")], 0),
    "numbers that are too large": (
        b'{"a":1e400}{"a":99999999999999999999}',
        {},
        [("1e400", None), ("99999999999999999999", None)],
        0,
    ),
    "an open array": (b'[{"a":1},{"a":2}', {}, [("1", None), ("2", None)], 1),
    "an open object": (b'{"a":1}{"a":2', {}, [("1", None)], 1),
    "junk": (b'{"a":1} junk', {}, [("1", None)], 1),
    "no object": (b"5", {}, [], 1),
    "values that are no JSON": (b'{"a":NaN}{"a":2}{"a":}', {}, [("2", None)], 2),
    "an array in an array": (b'[[{"a":1}]]', {}, [("1", None)], 0),
    "invalid UTF-8": (b'{"a":1,"b":"\xff"}{"a":2}', {}, [("2", None)], 1),
    **{
        f"{depth} deep": (b'{"a":' + b"[" * depth + b"]" * depth + b'}{"a":2}', {}, [("2", None)], 1)
        for depth in (990, 5000)
    },
    "half of a pair of surrogates": (b'{"a":1,"b":"\\ud83d"}{"a":2,"c":"\\uDe00"}', {}, [("2", None)], 1),
    "paths": (b'{"x":{"y":3},"z":["q"]}', {"jsonpaths": '["$.x.y","$.z[0]"]'}, [("3", "q")], 0),
    "paths that lead nowhere": (b'{"x":3}', {"jsonpaths": '["$.x.y","$.z[0]"]'}, [(None, None)], 0),
    "a root": (b'{"data":[{"a":1},{"a":2}]}', {"json_root": "$.data"}, [("1", None), ("2", None)], 0),
}


@pytest.mark.parametrize("case", [*CASES, *TEXTS])
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_t10_rules(case: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "_BLOCK_BYTES", size)
    data, how, rows, bad = {**CASES, **TEXTS}[case]
    found, wrong = read(data, size, **how)
    if size == 100_000:
        assert (found, wrong) == (rows, bad)
    as_texts = lambda rows: [tuple(None if value is None else str(value) for value in row) for row in rows]  # noqa: E731
    assert (as_texts(found), min(wrong, 1)) == (as_texts(rows), min(bad, 1))


VALUES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=4), st.lists(st.integers(0, 9), max_size=2)
)
RECORD = st.fixed_dictionaries(
    {}, optional={"a": st.integers(-(2**63), 2**63 - 1), "b": st.text(max_size=6), "c": VALUES}
)


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(st.lists(RECORD, max_size=6), st.integers(1, 60), st.booleans(), st.booleans(), st.booleans())
def test_t10_what_python_writes_is_read(
    records: list[dict[str, Any]], size: int, is_array: bool, ascii_only: bool, indented: bool
) -> None:
    texts = [json.dumps(each, ensure_ascii=ascii_only, indent=1 if indented else None) for each in records]
    data = (f"[{','.join(texts)}]" if is_array else "\n".join(texts)).encode("utf-8", "surrogatepass")
    expected = [tuple(None if each.get(name) is None else str(each[name]) for name in TYPES) for each in records]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_rows, "_BLOCK_BYTES", size)
        found, bad = read(data, size)
    assert [tuple(None if value is None else str(value) for value in row) for row in found] == expected
    assert bad == 0


PIECES = [
    *("{", "}", "[", "]", '"', ",", "\\", " ", "\n", ":", "junk"),
    '{"a":1}',
    '{"a":2,"b":"x"}',
    '{"a":"3"}',
    '{"b":"}"}',
    '{"a":[1]}',
]


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8), st.integers(1, 9), st.sampled_from(["", "$.a"]))
def test_t10_any_body_has_the_same_rows_wherever_it_is_cut(pieces: list[str], size: int, root: str) -> None:
    """What is no record is a bad row in every block, as it is in the last one."""
    data = "".join(pieces).encode()
    how: dict[str, Any] = {"json_root": root} if root else {}

    def as_texts(size: int) -> tuple[list[list[str | None]], int]:
        rows, bad = read(data, size, **how)
        return [[None if value is None else str(value) for value in row] for row in rows], min(bad, 1)

    whole = as_texts(1 << 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_rows, "_BLOCK_BYTES", size)
        assert as_texts(size) == whole


def test_tx17_large_bodies_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "_MAX_BODY_BYTES", 100)
    with pytest.raises(Refusal, match="ignore_json_size"):
        read(b'{"a":1}' * 20, 10)
    assert len(read(b'{"a":1}' * 20, 10, ignore_json_size=True)[0]) == 20


def test_a_record_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "_BLOCK_BYTES", 10)
    monkeypatch.setattr(json_rows, "_MAX_RECORD_BYTES", 50)
    with pytest.raises(Refusal, match="a record has more than 50 bytes"):
        read(b'{"b":"' + b"x" * 100, 10)


@pytest.mark.parametrize("text", ["x", "[]", "[1]", '["a"]', '["$.a..b"]', '["$.a[x]"]', '["$.a"]'])
def test_paths_that_are_refused(text: str) -> None:
    with pytest.raises(Refusal):
        read(b"{}", jsonpaths=text)


def test_tx18_the_array_of_the_java_client_with_operators() -> None:
    base = Base()
    client = Client(base.service())
    json_of = {"format": "json", "ignore_json_size": "true"}
    rows = b'[{"__op":0,"id":1,"v":"a"},{"__op":0,"id":2,"v":"b"},{"__op":1,"id":1}]'
    assert client.whole("l", rows, **json_of) == ["OK"] * 4
    assert base.rows() == [(2, "b", None)]
    assert client.whole("m", b'{"id":2,"__op":"DELETE"}{"id":3,"v":"c","__op":"upsert"}', **json_of) == ["OK"] * 4
    assert base.rows() == [(3, "c", None)]


def test_json_with_columns_and_expressions() -> None:
    rows, reply = loaded(
        b'{"k":7,"name":"x"}{"k":8,"name":"y"}',
        format="json",
        jsonpaths='["$.k","$.name"]',
        columns="id,name,v=upper(name)",
        where="id < 8",
    )
    assert rows == [(7, "X", None)], reply


def test_json_values_of_types_that_arrow_reads_otherwise() -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("d", pa.decimal128(6, 2)), ("t", pa.timestamp("us", "UTC"))]
    )
    rows, _ = loaded(b'{"id":1,"d":1.005,"t":"2026-01-02 03:04:05"}{"id":2,"d":"7"}', schema, format="json")
    assert [[str(value) for value in row] for row in rows] == [
        ["1", "1.01", "2026-01-02 03:04:05+00:00"],
        ["2", "7.00", "None"],
    ]


TOKENS = [
    "1",
    "-0",
    "-0.0",
    "1.0",
    "1e2",
    "1E400",
    "1e-400",
    "1e00002",
    "9223372036854775807",
    "9223372036854775808",
    "0.1",
]
TOKENS += [
    "123456789012345678901234567890",
    "true",
    "null",
    '"x"',
    '"1"',
    '""',
    '" 1"',
    '"true"',
    "[1]",
    '{"a":1}',
    "{}",
    "[]",
]
TOKENS += [
    "NaN",
    "Infinity",
    "-Infinity",
    "0x10",
    "01",
    "+1",
    ".5",
    "1.",
    "1.e2",
    "nul",
    '"\\ud800"',
    '"\\u0000"',
    '"\\ud83d\\ude00"',
]
TOKENS += ['"2026-01-05"', '"\\x"', "'x'", "1 2", "16777217", "0.1e1", '"a\tb"', '"\u2028"']


@settings(max_examples=examples(1500), deadline=None)
@given(
    st.sampled_from([pa.int64(), pa.int8(), pa.float64(), pa.float32(), pa.bool_(), pa.string(), pa.date32()]),
    st.lists(st.tuples(st.sampled_from(TOKENS), st.sampled_from([*TOKENS, ""])), min_size=1, max_size=5),
)
def test_a_value_does_not_depend_on_the_values_beside_it(data_type: pa.DataType, rows: list[tuple[str, str]]) -> None:
    """A row comes to the same alone and among others, and by paths, which are another way through the code."""

    def values(rows: list[tuple[str, str]], **how: Any) -> list[str]:
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", data_type)])
        target = Target(schema, ("id",), KeySpec(("id",), (), KeyGeneratorType.SIMPLE))
        shaper = Shaper(LoadParameters(format="json", **how), target)
        records = [f'{{"id":1,"v":{token}{other and f", {chr(34)}c{chr(34)}:{other}"}}}' for token, other in rows]
        shaped = [shaper.shape(decode()) for decode in shaper.reader.read(["\n".join(records).encode("utf-8")])]
        return [repr(value) for each in shaped for value in each.rows["v"].to_pylist()]

    alone = [value for row in rows for value in values([row])]
    assert values(rows) == alone
    assert values(rows, jsonpaths='["$.id","$.v"]', columns="id,v") == alone


LEAF = st.sampled_from(
    [
        '"x"',
        '"7"',
        "7",
        "-1.50",
        "1e3",
        "01",
        "1.",
        "-",
        "+1",
        "true",
        "null",
        "nul",
        "NaN",
        '"\\u00e9"',
        '"\\ud800"',
        '"a\\"1,{"',
    ]
)
VALUE = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(lambda parts: "[" + ",".join(parts) + "]"),
        st.lists(st.tuples(st.sampled_from("ab"), inner), max_size=3).map(
            lambda pairs: "{" + ", ".join(f'"{name}":{value}' for name, value in pairs) + "}"
        ),
    ),
    max_leaves=4,
)
RECORD = st.lists(st.tuples(st.sampled_from("abc"), VALUE), max_size=3).map(
    lambda pairs: "{" + ",".join(f'"{name}" : {value}' for name, value in pairs) + "}"
)
PATHS = st.sampled_from(["$.a", "$.b", "$.a.b", "$.a.a", "$.c.a.b", "$.a[0]", "$.a[0].b"])


@settings(max_examples=examples(400), deadline=None)
@given(
    st.lists(RECORD, min_size=1, max_size=4),
    st.lists(PATHS, min_size=1, max_size=3),
    st.sampled_from(["", "$.a", "$.c.b"]),
    st.booleans(),
)
def test_values_decoded_by_columns_are_those_of_each_record(
    records: list[str], paths: list[str], root: str, is_array: bool
) -> None:
    names = [f"n{number}" for number in range(len(paths))]
    body = "[" + ",\n".join(records) + "]" if is_array else "\n".join(records)
    how = LoadParameters(format="json", jsonpaths=json.dumps(paths), json_root=root)

    def read() -> list[Any]:
        found = [decode() for decode in JsonReader(how, names, {}).read([body.encode()])]
        return [(each.rows.to_pylist(), each.bad) for each in found]

    by_columns = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JsonReader, "_read_as_texts", lambda *given: None)
        assert by_columns == read()


@pytest.mark.parametrize(
    ("record", "paths", "root"),
    [
        ('{"id": 1, "__op": 0, "n": "12"}', ["$.id", "$.__op", "$.n"], ""),
        ('{"a": {"b": 1, "c": true}, "d": null}', ["$.a.b", "$.a.c", "$.d"], ""),
        ('{"r": {"s": {"a": 1.50}}, "more": [1, {"x": []}]}', ["$.a"], "$.r.s"),
    ],
)
def test_no_record_is_decoded_alone(record: str, paths: list[str], root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of other types than their columns, and paths into records, are decoded by columns."""
    monkeypatch.setattr(JsonReader, "_texts", None)
    names = [f"n{number}" for number in range(len(paths))]
    how = LoadParameters(format="json", jsonpaths=json.dumps(paths), json_root=root)
    (decode,) = JsonReader(how, names, dict.fromkeys(names, pa.int64())).read([b"\n".join([record.encode()] * 3)])
    assert decode().rows.num_rows == 3
