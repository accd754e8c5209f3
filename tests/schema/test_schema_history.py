"""Schemas with column ids: which changes names can follow, and what is no such schema."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from lakefmt.errors import CorruptFile
from lakefmt.schema.history import InternalSchema, parse_internal_schema, parse_schema_history, why_names_fail

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
#: What became of the columns, and a part of the reason; None: names say the same.
CASES: dict[str, tuple[tuple[Field, ...], str | None]] = {
    "nothing": (BEFORE, None),
    "added": ((*BEFORE, (12, "x", "string")), None),
    "added in between": ((ID, (12, "x", "string"), *BEFORE[1:]), None),
    "added inside": ((ID, N, (2, "s", record((5, "p", "int"), (6, "q", "string"), (12, "x", "int"))), L, M), None),
    "dropped": ((ID, S, L, M), None),
    "dropped inside": ((ID, N, (2, "s", record((6, "q", "string"))), L, M), None),
    "other order": ((M, L, S, N, ID), None),
    "renamed": ((ID, (1, "k", "int"), S, L, M), "column 'k' was called 'n' before"),
    "another case": ((ID, (1, "N", "int"), S, L, M), "column 'N' was called 'n' before"),
    "renamed inside": (
        (ID, N, (2, "s", record((5, "z", "int"), (6, "q", "string"))), L, M),
        "'s.z' was called 's.p' before",
    ),
    "a struct renamed": ((ID, N, (2, "z", S[2]), L, M), "'z' was called 's' before"),
    "renamed in a list": ((ID, N, S, (3, "l", array(7, record((8, "z", "int")))), M), "'l.element.z' was called"),
    "renamed in a map": ((ID, N, S, L, (4, "m", mapping(9, 10, record((11, "z", "int"))))), "'m.value.z' was called"),
    "two swapped": ((ID, (1, "s", "int"), (2, "n", S[2]), L, M), "'s' was called 'n' before"),
    "dropped and added": ((ID, S, L, M, (12, "n", "int")), "'n' was dropped and added again"),
    "dropped and added inside": (
        (ID, N, (2, "s", record((6, "q", "string"), (12, "p", "int"))), L, M),
        "'s.p' was dropped and added again",
    ),
    "another took its name": ((ID, S, L, M, (12, "k", "int"), (13, "n", "string")), "'n' was dropped and added again"),
}


@pytest.mark.parametrize("name", list(CASES))
def test_which_changes_names_can_follow(name: str) -> None:
    fields, reason = CASES[name]
    found = why_names_fail(schema(7, *fields), [schema(7, *fields), schema(0, *BEFORE)])
    assert (found is None) is (reason is None)
    assert reason is None or reason in str(found)


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
        found = why_names_fail(schema(7, (0, "c", new)), [schema(0, (0, "c", old))])
        assert (found is None) is (old == new or (old, new) in WIDER), found


def test_only_what_was_before_counts() -> None:
    now, later = schema(7, *BEFORE), schema(9, ID, (1, "k", "int"), S, L, M)
    assert why_names_fail(now, [later, schema(0, *BEFORE)]) is None, "as of a moment before the change"
    assert why_names_fail(later, [later, now]) == "column 'k' was called 'n' before"
    back = schema(11, *BEFORE)
    assert why_names_fail(back, [later, now]) is not None, (
        "renamed and renamed back: files in between have the other name"
    )


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
        parse_schema_history('{"schemas":[' + HOSTILE[number] + "]}" if number not in (0,) else "", "a test")
