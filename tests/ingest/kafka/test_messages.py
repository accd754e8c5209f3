"""Messages as columns: what each decoder makes of values, and that no message reaches into another."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import re
import struct

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.cdc.debezium_messages import SchemaRegistry
from lakefmt._core.ingest.kafka.decoding import AvroMessages, BlobMessages, JsonMessages, columns_of_keys, merge_parts
from lakefmt.errors import FormatError, InvalidInputError, SourceUnavailable

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
#: One type for each column, as one producer writes them.
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(-(2**63), 2**63 - 1),
        "t": TEXTS,
        "time": st.sampled_from(["2024-01-01", "2024-01-01T00:00:00Z", "n/a", "10:00:00"]),
        "b": st.booleans(),
        "o": st.fixed_dictionaries({}, optional={"x": TEXTS, "y": st.lists(st.booleans(), min_size=1, max_size=2)}),
        "nothing": st.none(),
    },
)
#: Pieces of JSON that together could look like other messages.
POISON = st.sampled_from(
    [
        *(
            b"",
            b" ",
            b"null",
            b"1",
            b'"x"',
            b"[]",
            b"[1]",
            b"{",
            b"}",
            b'{"n":',
            b'{"n":1',
            b'}{"n":2}',
            b'{"n":1}{"n":2}',
        ),
        *(
            b'{"n":1},"n":0}\n{"v":{"n":2}',
            b'{"n":1},"n":0',
            b'{"n":1},"x":2',
            b'{"n":1},"v":{"n":2}',
            b'{"t":"a',
            b'b"}',
        ),
        *(
            b'{"n":1}\n{"n":2}',
            b"\xff",
            b'{"t":"\xff"}',
            b'{"t":"\x00"}',
            b'{"n":"text"}',
            b'{"t":1}',
            b'{"n":1,"n":2}',
            b"{]}",
        ),
        *(b'{"t":"\\ud800"}', b'{"n":1e400}', b'{"n":1}x', b"//", b'{"v":1}}', b",", b"\n", b"\r\n"),
    ]
)


def without_nulls(row):
    """A row as JSON has it: columns without a value are absent, and so are fields and objects that Arrow filled."""
    if isinstance(row, dict):
        return {name: inner for name, value in row.items() if (inner := without_nulls(value)) is not None}
    return row


@given(st.lists(st.one_of(OBJECTS.map(lambda row: json.dumps(row).encode()), POISON), max_size=30))
def test_json_reads_each_message_as_if_it_were_alone(values):
    found = JsonMessages().decode([None] * len(values), values)
    rejected = dict(found.rejected)
    assert sorted([*found.places.tolist(), *rejected]) == list(range(len(values)))
    assert (np.diff(found.places) > 0).all()
    for place, row in zip(found.places.tolist(), found.rows.to_pylist(), strict=True):
        assert without_nulls(row) == without_nulls(json.loads(values[place]))
    for place, reason in rejected.items():
        assert reason
        # A good message is never rejected, unless its types are others than those before.
        if values[place].startswith(b'{"') and _is_typed(values[place]):
            assert re.search("changed from|merge|convert|specified twice|without values|surrogate|too big", reason)


def _is_typed(value):
    try:
        row = json.loads(value)
    except ValueError:
        return False
    return isinstance(row, dict) and b'"n": "' not in value


@given(st.lists(st.lists(OBJECTS, max_size=6), min_size=1, max_size=5))
def test_json_in_many_calls_has_the_rows_of_one_call(batches):
    several, single = JsonMessages(), JsonMessages()
    encoded = [[json.dumps(row).encode() for row in batch] for batch in batches]
    rows = [row for batch in encoded for row in several.decode([None] * len(batch), batch).rows.to_pylist()]
    values = [value for batch in encoded for value in batch]
    whole = single.decode([None] * len(values), values)
    assert {why for _, why in whole.rejected} <= {"an object without values"}
    # An object without values is a row or is rejected, by what was known when it came.
    expected = [row for row in map(without_nulls, whole.rows.to_pylist()) if row]
    assert [row for row in map(without_nulls, rows) if row] == expected


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ([b'{"a":1}', b'{"a":2.5}'], {"a": pa.float64()}),
        ([b'{"a":"2024-01-01T00:00:00Z"}', b'{"a":"n/a"}'], {"a": pa.string()}),
        ([b'{"a":["2024-01-01"]}'], {"a": pa.list_(pa.string())}),
        ([b'{"a":null}', b'{"b":[]}', b'{"c":{"d":null}}', b'{"e":1}'], {"c": pa.struct([]), "e": pa.int64()}),
        ([b'{"a":{"b":[],"c":1}}'], {"a": pa.struct([("c", pa.int64())])}),
    ],
)
def test_columns_of_json_have_the_types_of_their_values(values, types):
    rows = JsonMessages().decode([None] * len(values), values).rows
    assert dict(zip(rows.column_names, rows.schema.types, strict=True)) == types
    assert rows.num_rows == len(values)


def test_an_object_without_a_value_is_a_row_of_nulls_unless_no_column_is_known():
    decoder = JsonMessages()
    assert decoder.decode([None] * 2, [b"{}", b'{"a":null}']).rejected == tuple(
        (place, "an object without values") for place in range(2)
    )
    assert decoder.decode([None] * 3, [b"{}", b"x", b'{"a":1}']).rows.to_pylist() == [{"a": None}, {"a": 1}]
    assert decoder.decode([None], [b"{}"]).rows.to_pylist() == [{"a": None}]


def test_a_type_that_was_seen_holds_in_later_calls():
    decoder = JsonMessages()
    decoder.decode([None], [b'{"a":"x","n":1}'])
    later = decoder.decode([None] * 3, [b'{"a":"2024-01-01"}', b'{"a":5}', b'{"n":1.5}'])
    assert later.rows.to_pylist() == [{"a": "2024-01-01", "n": None}, {"a": None, "n": 1.5}]
    assert [place for place, _ in later.rejected] == [1]


def test_a_whole_number_that_no_column_holds_is_rejected_and_never_rounded():
    values = [b'{"id":1234567890123456789,"x":0.5}', b'{"id":12345678901234567890}', b'{"id":-9223372036854775808}']
    found = JsonMessages().decode([None] * 3, values)
    assert found.rows.to_pylist() == [{"id": 1234567890123456789, "x": 0.5}, {"id": -(2**63), "x": None}]
    assert found.rejected == ((1, "a whole number of more than 64 bits, which only a column of decimals holds"),)
    decimals = JsonMessages()
    decimals.learn(pa.schema([("id", pa.decimal128(38, 0))]))
    assert [int(row["id"]) for row in decimals.decode([None], values[1:2]).rows.to_pylist()] == [12345678901234567890]


def test_times_of_the_table_are_read_from_text_and_from_numbers_of_their_unit():
    decoder = JsonMessages()
    decoder.learn(pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("local", pa.timestamp("ms"))]))
    values = [
        b'{"at":"2024-01-02T03:04:05.000006Z","day":"2024-01-02","local":"2024-01-02 03:04:05.006"}',
        b'{"at":"2024-01-02","day":null}',
        b'{"at":"yesterday"}',
        b'{"day":true}',
    ]
    found = decoder.decode([None] * 4, values)
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, 6, dt.UTC)
    assert found.rows.to_pylist() == [
        {"at": moment, "day": dt.date(2024, 1, 2), "local": dt.datetime(2024, 1, 2, 3, 4, 5, 6000)},
        {"at": dt.datetime(2024, 1, 2, tzinfo=dt.UTC), "day": None, "local": None},
    ]
    assert [place for place, _ in found.rejected] == [2, 3]
    numbers = JsonMessages()
    numbers.learn(pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32())]))
    micros, days = int(moment.timestamp()) * 1_000_000 + 6, (moment.date() - dt.date(1970, 1, 1)).days
    assert numbers.decode([None], [b'{"at":%d,"day":%d}' % (micros, days)]).rows.to_pylist() == [
        {"at": moment, "day": moment.date()}
    ]


def test_one_bad_message_among_many_costs_a_few_more_reads():
    values = [b'{"id":%d}' % number for number in range(20_000)]
    values[12_345] = b'{"id":'
    found = JsonMessages().decode([None] * len(values), values)
    assert found.rows.num_rows == 19_999
    assert [place for place, _ in found.rejected] == [12_345]


def test_keys_of_deletions_are_objects_or_a_column_of_text():
    assert columns_of_keys([b'{"id":1}', b'{"id":2}'], "").to_pylist() == [{"id": 1}, {"id": 2}]
    assert columns_of_keys([b"a"], "id").to_pylist() == [{"id": "a"}]
    with pytest.raises(InvalidInputError, match=r"lakefmt\.ingest\.kafka\.key\.column names its column"):
        columns_of_keys([b"a"], "")


def test_parts_of_a_batch_that_no_type_holds_are_an_error_of_the_input():
    with pytest.raises(InvalidInputError, match="do not go together"):
        merge_parts([pa.table({"a": ["x"]}), pa.table({"a": [1]})], [np.array([0]), np.array([1])])


def test_text_that_is_no_utf8_is_rejected_and_bytes_are_never():
    assert BlobMessages("v", is_text=True).decode([], [b"a", b"\xff", b""]).rows.to_pylist() == [{"v": "a"}, {"v": ""}]
    assert BlobMessages("v", is_text=False).decode([], [b"\xff"]).rows.to_pylist() == [{"v": b"\xff"}]


# ------------------------------------------------------------------------------------------------------------------ Avro

FIRST = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", "string"]}],
}
SECOND = {
    "type": "record",
    "name": "R",
    "fields": [*FIRST["fields"], {"name": "more", "type": ["null", "double"], "default": None}],
}


class Schemas(SchemaRegistry):
    """A registry without a server."""

    def __init__(self, schemas):
        super().__init__("http://127.0.0.1:1")
        self.known, self.asked = schemas, []

    def _ask(self, number):
        self.asked.append(number)
        found = self.known.get(number, FormatError(f"the registry has no schema {number}"))
        if isinstance(found, Exception):
            raise found
        return found


def encoded(number, schema, row):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return b"\0" + struct.pack(">I", number) + stream.getvalue()


ROWS = st.fixed_dictionaries({"id": st.integers(-(2**63), 2**63 - 1), "v": st.none() | TEXTS})


@given(st.lists(st.tuples(st.sampled_from([7, 9]), ROWS), max_size=20))
def test_two_versions_of_a_schema_in_one_batch_keep_their_order(rows):
    registry = Schemas({7: FIRST, 9: SECOND})
    values = [
        encoded(number, {7: FIRST, 9: SECOND}[number], {**row, "more": 0.5} if number == 9 else row)
        for number, row in rows
    ]
    found = AvroMessages(registry).decode([None] * len(values), values)
    assert found.places.tolist() == list(range(len(rows)))
    assert without_absent(found.rows.to_pylist()) == without_absent(
        [{**row, "more": 0.5 if number == 9 else None} for number, row in rows]
    )
    assert len(registry.asked) == len({number for number, _ in rows})


def without_absent(rows):
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def test_a_column_that_an_older_schema_lacks_has_the_default_of_the_newest_whatever_else_comes():
    more = [
        {"name": "n", "type": ["long", "null"], "default": 5},
        {"name": "x", "type": "double", "default": 0.25},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            "default": "\u0001\u0000",
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["a"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 1000},
        {"name": "none", "type": ["null", "string"], "default": None},
    ]
    newest = {**FIRST, "fields": [*FIRST["fields"], *more]}

    class Subjects(Schemas):
        def latest(self, subject):
            assert subject == "orders-value"
            return newest

    defaults = {
        "n": 5,
        "x": 0.25,
        "raw": b"\xff",
        "price": decimal.Decimal("2.56"),
        "tags": ["a"],
        "at": dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
    }
    old = encoded(7, FIRST, {"id": 1, "v": "x"})
    new = encoded(9, newest, {"id": 2, "v": None, **defaults, "n": None, "none": "y"})
    expected = [{"id": 1, "v": "x", **defaults}, {"id": 2, **defaults, "none": "y"}]
    del expected[1]["n"]
    for values in ([old], [old, new]):
        found = AvroMessages(Subjects({7: FIRST, 9: newest}), "orders-value").decode([None] * len(values), values)
        assert without_absent(found.rows.to_pylist()) == expected[: len(values)]
        assert not found.rejected


def test_messages_without_a_schema_of_an_unknown_one_and_damaged_ones_are_rejected():
    good = encoded(7, FIRST, {"id": 1, "v": "x"})
    values = [good, b"", b"\0\0", b'{"id":1}', encoded(8, FIRST, {"id": 2, "v": None}), good[:-1], good + b"\0", good]
    found = AvroMessages(Schemas({7: FIRST})).decode([None] * len(values), values)
    assert found.rows.to_pylist() == [{"id": 1, "v": "x"}] * 2
    assert found.places.tolist() == [0, 7]
    reasons = dict(found.rejected)
    assert sorted(reasons) == [1, 2, 3, 4, 5, 6]
    assert all(reasons[place] == "no number of a schema in front" for place in (1, 2, 3))
    assert "has no schema 8" in reasons[4]


def test_a_registry_that_is_down_ends_the_round_and_rejects_nothing():
    registry = Schemas({7: SourceUnavailable("the registry does not answer")})
    with pytest.raises(SourceUnavailable):
        AvroMessages(registry).decode([None], [encoded(7, FIRST, {"id": 1, "v": None})])


def test_a_schema_that_no_table_can_have_rejects_its_messages():
    odd = {"type": "record", "name": "R", "fields": [{"name": "u", "type": ["long", "string"]}]}
    found = AvroMessages(Schemas({7: odd})).decode([None], [encoded(7, odd, {"u": 1})])
    assert found.rows.num_rows == 0
    assert len(found.rejected) == 1


def test_schemas_that_refer_to_each_other_without_end_are_read_once(monkeypatch):
    answers = {
        "schemas/ids/1": {"schema": json.dumps(FIRST), "references": [{"name": "A", "subject": "a", "version": 1}]},
        "subjects/a/versions/1": {
            "schema": '{"type":"record","name":"A","fields":[{"name":"b","type":["null","B"]}]}',
            "references": [{"name": "B", "subject": "b/c", "version": 2}],
        },
        "subjects/b%2Fc/versions/2": {
            "schema": '{"type":"record","name":"B","fields":[{"name":"a","type":["null","A"]}]}',
            "references": [{"name": "A", "subject": "a", "version": 1}],
        },
    }
    asked = []
    registry = SchemaRegistry("http://127.0.0.1:1")
    monkeypatch.setattr(registry, "_get", lambda place, _what: asked.append(place) or answers[place])
    assert registry.schema(1) == {**FIRST, "fields": FIRST["fields"]}
    assert asked == list(answers)
    answers["schemas/ids/2"] = {
        "schema": "[]",
        "references": [{"name": f"N{n}", "subject": "s", "version": 1} for n in range(100)],
    }
    answers["subjects/s/versions/1"] = {"schema": '"long"'}
    with pytest.raises(FormatError, match="rests on more than 64 others"):
        registry.schema(2)
    answers["schemas/ids/3"] = {"schema": "message X {}", "schemaType": "PROTOBUF"}
    with pytest.raises(FormatError, match="none of Avro"):
        registry.schema(3)
