"""Schemas with column ids: numbering, places of changed columns, type changes, and what is no such schema."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.schema import normalise_schema, with_meta_columns
from lakefmt._core.schema.alter import convert_stored, is_followed_by_name
from lakefmt._core.schema.column_ids import ColumnIds, Place
from lakefmt._core.schema.history import (
    InternalSchema,
    SchemaHistory,
    columns_text,
    first_history,
    number_columns,
    parse_history,
    parse_internal_schema,
)
from lakefmt.errors import CorruptFile
from lakefmt.testing.strategies import schemas

Field = tuple[int, str, Any]


def record(*fields: Field) -> dict[str, Any]:
    return {"type": "record", "fields": [{"id": i, "name": n, "optional": True, "type": t} for i, n, t in fields]}


def array(number: int, element: Any) -> dict[str, Any]:
    return {"type": "array", "element_id": number, "element": element, "element_optional": True}


def mapping(key: int, value: int, kind: Any) -> dict[str, Any]:
    return {"type": "map", "key_id": key, "key": "string", "value_id": value, "value": kind, "value_optional": True}


def schema(version: int, *fields: Field) -> InternalSchema:
    return parse_internal_schema(json.dumps({"max_column_id": 99, "version_id": version, **record(*fields)}), "a test")


BEFORE: tuple[Field, ...] = (
    (0, "id", "string"),
    (1, "n", "int"),
    (2, "s", record((5, "p", "int"), (6, "q", "string"))),
    (3, "l", array(7, record((8, "e", "int")))),
    (4, "m", mapping(9, 10, record((11, "v", "int")))),
)
ID, N, S, L, M = BEFORE
#: What became of the columns, and where those that changed lie in files from before; None: names tell.
CASES: dict[str, tuple[tuple[Field, ...], dict[str, Place | None]]] = {
    "nothing": (BEFORE, {}),
    "added": ((*BEFORE, (12, "x", "string")), {}),
    "added in between": ((ID, (12, "x", "string"), *BEFORE[1:]), {}),
    "added inside": ((ID, N, (2, "s", record((5, "p", "int"), (6, "q", "string"), (12, "x", "int"))), L, M), {}),
    "dropped": ((ID, S, L, M), {}),
    "dropped inside": ((ID, N, (2, "s", record((6, "q", "string"))), L, M), {}),
    "other order": ((M, L, S, N, ID), {}),
    "renamed": ((ID, (1, "k", "int"), S, L, M), {"k": Place("k", "n")}),
    "another case": ((ID, (1, "N", "int"), S, L, M), {"N": Place("N", "n")}),
    "renamed inside": (
        (ID, N, (2, "s", record((5, "z", "int"), (6, "q", "string"))), L, M),
        {"s": Place("s", "s", None, (Place("z", "p"), Place("q", "q")))},
    ),
    "a struct renamed": ((ID, N, (2, "z", S[2]), L, M), {"z": Place("z", "s")}),
    "renamed in a list": (
        (ID, N, S, (3, "l", array(7, record((8, "z", "int")))), M),
        {"l": Place("l", "l", None, (Place("element", "element", None, (Place("z", "e"),)),))},
    ),
    "renamed in a map": (
        (ID, N, S, L, (4, "m", mapping(9, 10, record((11, "z", "int"))))),
        {"m": Place("m", "m", None, (Place("value", "value", None, (Place("z", "v"),)),))},
    ),
    "two swapped": ((ID, (1, "s", "int"), (2, "n", S[2]), L, M), {"s": Place("s", "n"), "n": Place("n", "s")}),
    "dropped and added": ((ID, S, L, M, (12, "n", "int")), {"n": None}),
    "dropped and added inside": (
        (ID, N, (2, "s", record((6, "q", "string"), (12, "p", "int"))), L, M),
        {"s": Place("s", "s", None, (Place("q", "q"),))},
    ),
    "another took its name": ((ID, S, L, M, (12, "k", "int"), (13, "n", "string")), {"n": None}),
    "another type": ((ID, (1, "n", "string"), S, L, M), {"n": Place("n", "n", "string")}),
}


def ids(*known: InternalSchema) -> ColumnIds:
    return ColumnIds(SchemaHistory("", known))


@pytest.mark.parametrize("name", list(CASES))
def test_where_columns_lie_in_older_files(name: str) -> None:
    fields, changed = CASES[name]
    columns = ids(schema(7, *fields), schema(0, *BEFORE))
    assert columns.at("7") is None, "files of the change and later ones"
    assert columns.changed == set(changed)
    assert columns.is_needed is bool(changed)
    places = columns.at("6")
    if not changed:
        assert places is None
        return
    assert places is not None
    found = {place.name: place for place in places.places}
    assert {name: found.get(name) for name in changed} == changed
    assert all(place.is_same for name, place in found.items() if name not in changed)


def test_a_file_is_of_the_newest_schema_before_its_instant() -> None:
    was, now, later = schema(0, *BEFORE), schema(7, ID, (1, "k", "int"), S, L, M), schema(9, *BEFORE)
    columns = ids(later, now, was)
    assert columns.at("5") is None, "renamed and renamed back"
    assert columns.at("8") is not None
    assert columns.at("9") is None
    assert ids(now, was).at("5") is not None
    assert ids(schema(7, *BEFORE)).history.at("5").version == 7, "older than the history: its first schema"


ROWS = pa.table(
    {
        "id": ["a", "b"],
        "n": pa.array([1, None], pa.int32()),
        "s": pa.array([{"p": 1, "q": "x"}, None], pa.struct([("p", pa.int32()), ("q", pa.string())])),
        "l": pa.array([[{"e": 1}, {"e": None}], None], pa.list_(pa.struct([("e", pa.int32())]))),
        "m": pa.array([[("k", {"v": 1})], None], pa.map_(pa.string(), pa.struct([("v", pa.int32())]))),
    }
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("renamed", {"k": [1, None]}),
        ("renamed inside", {"s": [{"z": 1, "q": "x"}, None]}),
        ("renamed in a list", {"l": [[{"z": 1}, {"z": None}], None]}),
        ("renamed in a map", {"m": [[("k", {"z": 1})], None]}),
        ("two swapped", {"s": [1, None], "n": [{"p": 1, "q": "x"}, None]}),
        ("dropped and added", {"id": ["a", "b"]}),
        ("dropped and added inside", {"s": [{"q": "x"}, None]}),
        ("another type", {"n": ["1", None]}),
    ],
)
def test_rows_get_the_names_and_types_of_the_table(name: str, expected: dict[str, list[object]]) -> None:
    fields, changed = CASES[name]
    places = ids(schema(7, *fields), schema(0, *BEFORE)).at("0")
    assert places is not None
    for rows in (ROWS, pa.concat_tables([ROWS.slice(0, 1), ROWS.slice(1)]), ROWS.slice(0, 0)):
        current = places.current(rows)
        assert set(current.column_names) == {each[1] for each in fields if each[0] <= 11}
        for column, values in expected.items():
            assert current.column(column).to_pylist() == values[: rows.num_rows]
        lost = {column for column, place in changed.items() if place is None}
        assert not lost & set(current.column_names)
    assert places.stored_names(["id"]) == ["id"]
    assert places.current_names(ROWS.column_names) == set(current.column_names)


#: Types that a column may have, in the words of Hudi, and the changes after which stored values read as Spark reads them.
TYPES = (
    *("boolean", "int", "long", "float", "double", "date", "time", "timestamp", "string", "uuid", "binary"),
    *("timestamp-millis", "fixed[4]", "decimal(6, 2)", "decimal(9, 2)", "decimal(9, 3)", "decimal_fixed(9, 2)[5]"),
    *("decimal_bytes(9, 2)", "decimal(5, 2)"),
)
ALIKE = ("decimal(9, 2)", "decimal_fixed(9, 2)[5]", "decimal_bytes(9, 2)")
WIDER = {
    ("int", "long"),
    ("int", "double"),
    *((a, b) for a in ("decimal(5, 2)", "decimal(6, 2)", *ALIKE) for b in ALIKE),
    ("decimal(5, 2)", "decimal(6, 2)"),
}


def test_which_changes_of_type_names_can_follow() -> None:
    for old, new in itertools.product(TYPES, repeat=2):
        assert is_followed_by_name(old, new) is (old == new or (old, new) in WIDER), (old, new)


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([1, None], pa.int32()), "long", [1, None]),
        (pa.array([16777217], pa.int64()), "float", [16777216.0]),
        (pa.array([1.1, float("inf")], pa.float32()), "double", [1.1, float("inf")]),
        (pa.array([1.0, 1e10]), "string", ["1.0", "1.0E10"]),
        (pa.array([3], pa.int32()), "decimal(12, 2)", ["3.00"]),
        (pa.array([1.105, None]), "decimal(6, 2)", ["1.11", None]),
        (pa.array(["1.5", "x", "-2e1"]), "decimal_fixed(6, 2)[3]", ["1.50", None, "-20.00"]),
        (pa.array(["2026-01-02", "2026"]), "date", ["2026-01-02", None]),
        (pa.array([1], pa.date32()), "string", ["1970-01-02"]),
        (pa.array(["1.25"]).cast(pa.decimal128(6, 2)), "decimal(9, 3)", ["1.250"]),
        (pa.array(["1.25"]).cast(pa.decimal128(6, 2)), "string", ["1.25"]),
    ],
)
def test_stored_values_become_what_hudi_makes_of_them(values: pa.Array, kind: str, expected: list[object]) -> None:
    found = convert_stored(values, kind)
    shown = found.cast(pa.string()).to_pylist() if isinstance(expected[0], str) else found.to_pylist()
    assert shown == expected


@given(schemas(), st.integers(0, 2**40))
def test_numbering_a_schema_and_its_text_lose_nothing(columns: pa.Schema, version: int) -> None:
    stored = with_meta_columns(normalise_schema(columns))
    numbered = number_columns(None, stored, version)
    everything = [number for column in numbered.columns for number in column.numbers()]
    assert sorted(everything) == list(range(numbered.most + 1)), "every id once, from zero on"
    assert [column.number for column in numbered.columns] == list(range(len(stored))), "a level before those below"
    assert parse_internal_schema(numbered.text(), "t") == numbered
    assert number_columns(numbered, stored, version) == numbered, "known names keep their ids"
    grown = number_columns(numbered, stored.append(pa.field("zzz", pa.int32())), version + 1)
    assert grown.columns[:-1] == numbered.columns
    assert grown.columns[-1].number == grown.most == numbered.most + 1
    history = first_history(stored).with_schema(grown)
    assert parse_history(history.text, "t") == history


def test_a_dropped_id_is_not_given_again() -> None:
    first = number_columns(None, pa.schema([("a", pa.int32()), ("b", pa.int32())]), 0)
    dropped = number_columns(first, pa.schema([("a", pa.int32())]), 1)
    again = number_columns(dropped, pa.schema([("a", pa.int32()), ("b", pa.int32())]), 2)
    assert [column.number for column in again.columns] == [0, 2]


def test_ids_of_a_real_table_of_spark() -> None:
    """What Hudi 1.2.0 gave to these columns (tests/data/evolved)."""
    columns = pa.schema(
        [("id", pa.int32()), ("d", pa.decimal128(6, 2)), ("s", pa.struct([("p", pa.int32())])), ("ts", pa.int64())]
    )
    found = {c.name: c for c in number_columns(None, with_meta_columns(columns), 0).columns}
    assert found["id"].number == 5
    assert (found["ts"].number, found["s"].fields[0].number) == (8, 9)
    assert found["d"].kind == "decimal_fixed(6, 2)[3]"
    older = number_columns(None, with_meta_columns(columns), 0, fixed_decimals=False)
    assert {c.name: c.kind for c in older.columns}["d"] == "decimal(6, 2)"


def test_a_history_as_of_one_of_its_schemas() -> None:
    versions = [schema(n, *BEFORE) for n in (9, 7, 0)]
    history = SchemaHistory(columns_text(versions), tuple(versions))
    assert history.as_of(versions[1]).schemas == tuple(versions[1:])


HOSTILE = [
    "",
    "{",
    "[]",
    "7",
    '"x"',
    "null",
    "{}",
    '{"fields":7}',
    '{"fields":[7]}',
    '{"fields":[{"id":"x","name":"n","type":"int"}]}',
    '{"fields":[{"id":1,"name":"n"}]}',
    '{"fields":[{"id":1,"name":"n","type":{"type":"odd"}}]}',
    '{"fields":[{"id":1,"name":"n","type":{"type":"array"}}]}',
    '{"version_id":"x","fields":[]}',
    '{"version_id":1e999,"fields":[]}',
    '{"fields":[{"id":1,"name":"n","type":'
    + '{"type":"array","element_id":1,"element":' * 99
    + '"int"'
    + "}" * 99
    + "}]}",
    "[" * 100_000,
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_what_is_no_schema(number: int) -> None:
    with pytest.raises(CorruptFile, match="a test"):
        parse_internal_schema(HOSTILE[number], "a test")
    with pytest.raises(CorruptFile, match="a test"):
        parse_history('{"schemas":[' + HOSTILE[number] + "]}" if number not in (0,) else "", "a test")
