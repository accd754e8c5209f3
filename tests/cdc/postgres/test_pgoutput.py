"""Messages of PostgreSQL's log as a server sent them, and what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.cdc.postgres.rows import (
    UNSENT,
    Begin,
    Commit,
    Delete,
    Insert,
    Other,
    Relation,
    RelationColumn,
    Truncate,
    TypeRow,
    Update,
    decode_message,
    find_type,
    to_arrow,
)
from lakefmt.errors import FormatError

MESSAGES = {
    name: bytes.fromhex(digits)
    for name, digits in json.loads((Path(__file__).parents[2] / "data/cdc/pgoutput.json").read_text("utf-8")).items()
}
ITEMS, WHOLE = 16389, 16396
SAID = {
    "table with a key": Relation(
        ITEMS,
        "public",
        "größe",
        "d",
        (
            RelationColumn("id", True, 23, -1),
            RelationColumn("v", False, 25, -1),
            RelationColumn("big", False, 25, -1),
            RelationColumn("m", False, 16386, -1),
        ),
    ),
    "table of whole rows": Relation(
        WHOLE,
        "public",
        "whole",
        "f",
        (RelationColumn("id", True, 23, -1), RelationColumn("v", True, 1700, ((10 << 16) | 2) + 4)),
    ),
    "type": Other("Y"),
    "insertion": Insert(ITEMS, [b"2", None, b"", None]),
    "update without the large value": Update(ITEMS, None, False, [b"1", b"b", UNSENT, b"sad"]),
    "update of the key": Update(ITEMS, [b"1", None, None, None], True, [b"3", b"b", UNSENT, b"sad"]),
    "update of a whole row": Update(WHOLE, [b"1", b"1.50"], False, [b"1", b"2.00"]),
    "deletion by key": Delete(ITEMS, [b"2", None, None, None], True),
    "deletion of a whole row": Delete(WHOLE, [b"1", b"2.00"], False),
    "truncation of two tables": Truncate((WHOLE, ITEMS)),
}


@pytest.mark.parametrize("name", SAID)
def test_a_message_says_what_the_server_did(name):
    assert decode_message(MESSAGES[name]) == SAID[name]


def test_a_transaction_has_its_place_its_time_and_its_number():
    begin, commit = decode_message(MESSAGES["begin"]), decode_message(MESSAGES["commit"])
    assert isinstance(begin, Begin)
    assert isinstance(commit, Commit)
    assert begin.lsn == commit.lsn < commit.end
    assert begin.micros == commit.micros
    assert 1.7e15 < begin.micros < 2e15
    assert begin.xid == 731


@pytest.mark.parametrize("name", [name for name in MESSAGES if name != "type"])
def test_a_message_that_is_cut_or_longer_is_refused(name):
    body = MESSAGES[name]
    for end in range(len(body)):
        with pytest.raises(FormatError):
            decode_message(body[:end])
    with pytest.raises(FormatError):
        decode_message(body + b"\0")


@given(st.lists(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))))
def test_an_array_of_texts_is_read_as_the_server_writes_it(arrays):
    value_type = find_type(1009, -1, {1009: TypeRow("_text", 0, -1, 25), 25: TypeRow("text", 0, -1, 0)})
    texts = pa.array([literal(array) for array in arrays], pa.string())
    assert to_arrow(texts, value_type, "refuse", "c").to_pylist() == arrays


def literal(array: list[str | None]) -> str:
    """An array as PostgreSQL writes it: quotes around what would be read otherwise."""

    def item(text: str | None) -> str:
        if text is None:
            return "NULL"
        plain = text and text.upper() != "NULL" and not set(text) & set('{}," \\\t\n\r\v\f')
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return text if plain else f'"{escaped}"'

    return "{" + ",".join(map(item, array)) + "}"


@given(st.lists(st.none() | st.binary()))
def test_bytes_are_read_from_their_digits(values):
    texts = pa.array([None if value is None else "\\x" + value.hex() for value in values], pa.string())
    found = to_arrow(texts, find_type(17, -1, {}), "refuse", "c")
    found.validate(full=True)
    assert found.to_pylist() == values
    part = texts.slice(1)
    assert to_arrow(part, find_type(17, -1, {}), "refuse", "c").to_pylist() == values[1:]
