"""Messages of Debezium by cases: every operation, every form, and what is none."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import threading
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.cdc.debezium_decoder import DebeziumDecoder
from lakefmt._core.cdc.debezium_messages import SchemaRegistry
from lakefmt._core.cdc.events import RowChanges, RowKind, SourceName, TableChanged, TableTruncated
from lakefmt.errors import InvalidInputError, SourceUnavailable
from tests.cdc.applier import Applied

TOPIC = "server.shop.items"
ITEMS = SourceName("shop", "items")
SOURCE = {
    "connector": "mariadb",
    "db": "shop",
    "table": "items",
    "file": "binlog.000009",
    "pos": 4,
    "row": 0,
    "ts_ms": 1_700_000_000_123,
}
POSTGRES = {"connector": "postgresql", "db": "d", "schema": "shop", "table": "items", "lsn": 7, "txId": 3, "ts_ms": 5}
HIDDEN = "__debezium_unavailable_value"


def message(op: str, before: Any = None, after: Any = None, key: Any = None, topic: str = TOPIC, **more: Any) -> tuple:
    key = key if key is not None else {"id": (after or before or {"id": None})["id"]}
    value = {"op": op, "before": before, "after": after, "source": SOURCE, "ts_ms": 5, **more}
    return topic, json.dumps(key).encode(), json.dumps(value).encode()


def wrapped(op: str, before: Any, after: Any, fields: list[dict], key: Any, source: dict = SOURCE) -> tuple:
    row = {"type": "struct", "fields": fields, "optional": True}
    schema = {
        "type": "struct",
        "fields": [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}],
    }
    value = {"schema": schema, "payload": {"op": op, "before": before, "after": after, "source": source}}
    whole_key = {"schema": {"type": "struct", "fields": []}, "payload": key}
    return TOPIC, json.dumps(whole_key).encode(), json.dumps(value).encode()


def changes_of(*messages: tuple) -> list[tuple[str, dict]]:
    """What each message became: short form and row, in order."""
    decoder = DebeziumDecoder()
    found = []
    for event in decoder.decode(messages):
        if isinstance(event, RowChanges):
            found += list(
                zip([RowKind(code).short for code in event.kinds.to_pylist()], event.rows.to_pylist(), strict=True)
            )
    assert decoder.take_rejected() == []
    return found


OLD, NEW = {"id": 1, "v": "a"}, {"id": 1, "v": "b"}


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([message("c", after=OLD)], [("+I", OLD)]),
        ([message("r", after=OLD)], [("+I", OLD)]),
        ([message("u", OLD, NEW)], [("-U", OLD), ("+U", NEW)]),
        ([message("u", None, NEW)], [("+U", NEW)]),
        ([message("d", OLD)], [("-D", OLD)]),
        ([message("c", after=OLD), message("d", None, key={"id": 1})], [("+I", OLD), ("-D", {"id": 1, "v": None})]),
        ([message("c", after=OLD), message("d", {"id": 1, "v": None})], [("+I", OLD), ("-D", {"id": 1, "v": None})]),
        ([message("d", OLD), (TOPIC, b'{"id": 1}', None)], [("-D", OLD)]),
        ([message("m", after=None)], []),
        ([message("c", after={**OLD, "n": None})], [("+I", OLD)]),  # a column of nulls alone has no type yet
    ],
    ids=["c", "r", "u", "u without before", "d", "d by key", "d with nulls", "tombstone", "m", "only nulls"],
)
def test_an_operation_is_a_kind_of_change(messages, found):
    assert changes_of(*messages) == found


def test_what_changes_no_row_is_counted_and_left_out():
    decoder = DebeziumDecoder()
    events = decoder.decode(
        [
            ("__debezium-heartbeat.server", b'{"serverName": "server"}', b'{"ts_ms": 1}'),
            (
                "server",
                b'{"databaseName": "shop"}',
                b'{"source": {}, "databaseName": "shop", "ddl": "CREATE TABLE items", "tableChanges": []}',
            ),
            (
                "server.transaction",
                b'{"id": "1"}',
                b'{"status": "BEGIN", "id": "1", "event_count": null, "data_collections": null}',
            ),
            (TOPIC, b'{"id": 1}', None),
            (TOPIC, b'{"schema": null, "payload": null}', b'{"schema": null, "payload": null}'),
            message("m", after=None),
        ]
    )
    assert (events, decoder.take_rejected()) == ([], [])
    assert decoder.skipped == {
        "heartbeat": 1,
        "schema change": 1,
        "transaction": 1,
        "tombstone": 2,
        "logical message": 1,
    }


def test_an_emptied_table_is_told_between_the_rows_around_it():
    decoder = DebeziumDecoder()
    events = decoder.decode([message("c", after=OLD), message("t", key={}), message("c", after=NEW)])
    assert [type(event) for event in events] == [TableChanged, RowChanges, TableTruncated, RowChanges]


def test_rows_of_the_table_and_rows_of_the_log_are_different_batches():
    events = DebeziumDecoder().decode(
        [message("r", after=OLD), message("c", after={**OLD, "id": 2}), message("r", after={**OLD, "id": 3})]
    )
    assert [event.is_snapshot for event in events if isinstance(event, RowChanges)] == [True, False, True]


def test_every_change_has_its_place_its_time_and_its_transaction():
    late = {**SOURCE, "file": "binlog.000010", "gtid": "0-1-5"}
    (_, changes) = DebeziumDecoder().decode([message("u", OLD, NEW), message("c", after=OLD, source=late)])
    positions = changes.positions.to_pylist()
    assert positions == sorted(positions)
    assert len(set(positions)) == 3
    assert changes.times.to_pylist() == [dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, dt.UTC)] * 3
    assert changes.transactions.to_pylist() == [None, None, "0-1-5"]


# ------------------------------------------------------------------------------------------------------ large values


def test_a_value_that_was_not_sent_is_not_among_those_that_were():
    (_, changes) = DebeziumDecoder().decode(
        [message("u", None, {"id": 1, "v": "x", "big": HIDDEN}), message("u", None, {"id": 2, "v": HIDDEN, "big": "b"})]
    )
    assert [json.loads(text) for text in changes.sent.to_pylist()] == [["id", "v"], ["id", "big"]]
    assert changes.rows["big"].to_pylist() == [None, "b"]


def test_a_whole_row_before_brings_what_was_not_sent():
    assert changes_of(message("u", {"id": 1, "big": "whole"}, {"id": 1, "big": HIDDEN}))[1] == (
        "+U",
        {"id": 1, "big": "whole"},
    )


def test_a_new_key_whose_large_value_was_not_sent_takes_it_from_the_old_key():
    applied, decoder = Applied(), DebeziumDecoder()
    applied.apply_all(
        decoder.decode(
            [
                message("c", after={"id": 1, "v": "a", "big": "large"}),
                message("d", {"id": 1, "v": None, "big": None}),
                (TOPIC, b'{"id": 1}', None),
                message("c", after={"id": 2, "v": "b", "big": HIDDEN}),
            ]
        )
    )
    assert applied.rows[ITEMS] == {(2,): {"id": 2, "v": "b", "big": "large"}}


@pytest.mark.parametrize("nothing", ["", "{}", 0, [], {}, False, "AA==", {"scale": 0, "value": "AA=="}])
def test_what_fills_a_required_column_of_a_row_that_goes_is_no_value_of_it(nothing):
    """PostgreSQL sends the key alone, and Debezium fills up the rest: of a row that goes nothing but the key is known."""
    applied, decoder = Applied(), DebeziumDecoder()
    messages = [
        message("c", after={"id": 1, "v": "a", "big": "large"}, source=POSTGRES),
        message("d", {"id": 1, "v": None, "big": nothing}, source=POSTGRES),
        message("c", after={"id": 2, "v": "b", "big": HIDDEN}, source=POSTGRES),
        message("d", {"id": 2, "v": None, "big": nothing}, source=POSTGRES),
        message("u", {"id": 3, "v": None, "big": nothing}, {"id": 3, "v": "c", "big": HIDDEN}, source=POSTGRES),
    ]
    applied.apply_all(decoder.decode(messages[:1]))
    applied.apply_all(decoder.decode(messages[1:3]))
    assert applied.rows[ITEMS] == {(2,): {"id": 2, "v": "b", "big": "large"}}
    (changes,) = [event for event in decoder.decode(messages[3:]) if isinstance(event, RowChanges)]
    assert [row["big"] for row in changes.rows.to_pylist()] == [None, None, None]
    assert [None if text is None else json.loads(text) for text in changes.sent.to_pylist()] == [
        None,
        None,
        ["id", "v"],
    ]


@pytest.mark.parametrize("calls", [1, 2])
def test_a_new_key_takes_a_large_value_from_the_whole_row_before_in_whichever_call_it_came(calls):
    applied, decoder = Applied(), DebeziumDecoder()
    messages = [message("d", {"id": 1, "big": "large"}), message("c", after={"id": 2, "big": HIDDEN})]
    for part in [messages] if calls == 1 else [messages[:1], messages[1:]]:
        applied.apply_all(decoder.decode(part))
    assert applied.rows[ITEMS] == {(2,): {"id": 2, "big": "large"}}


def test_a_new_key_whose_old_row_went_in_another_call_is_rejected_where_that_row_has_no_value():
    decoder = DebeziumDecoder()
    first = message("c", after={"id": 7, "big": "x"})
    decoder.decode([first, message("d", {"id": 1, "big": None})])
    assert decoder.decode([message("c", after={"id": 2, "big": HIDDEN})]) == []
    (rejected,) = decoder.take_rejected()
    assert "another call" in rejected.reason


@pytest.mark.parametrize(
    "before",
    [
        [],
        [message("c", after={"id": 5, "big": "x"})],
        [message("d", {"id": 1, "big": "x"}, source={**SOURCE, "pos": 1})],
    ],
)
def test_an_insertion_without_its_large_value_and_its_old_row_is_rejected_and_nothing_else(before):
    decoder = DebeziumDecoder()
    lost = message("c", after={"id": 2, "big": HIDDEN})
    events = decoder.decode([*before, lost, message("c", after={"id": 9, "big": "y"})])
    (rejected,) = decoder.take_rejected()
    assert (rejected.place, rejected.value) == (len(before), lost[2])
    assert "leaves out a large value" in rejected.reason
    assert sum(event.rows.num_rows for event in events if isinstance(event, RowChanges)) == len(before) + 1


# ------------------------------------------------------------------------------------------------------ flattened rows


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"id": 1, "v": "a", "__op": "c", "__deleted": "false"}, ("+I", OLD)),
        ({"id": 1, "v": "a", "__op": "u", "__source_ts_ms": 7}, ("+U", OLD)),
        ({"id": 1, "v": "a"}, ("+U", OLD)),
        ({"id": 1, "v": "a", "__deleted": "true"}, ("-D", OLD)),
        ({"id": 1, "v": "a", "__op": "d", "__deleted": True}, ("-D", OLD)),
        (
            {
                "id": 1,
                "v": "a",
                "_change_operation_type": "d",
                "_event_seq": "9.4",
                "_event_bin_file": "binlog.000009",
                "_event_pos": 4,
            },
            ("-D", OLD),
        ),
        (
            {
                "id": 1,
                "v": "a",
                "_change_operation_type": "u",
                "_event_lsn": 77,
                "_event_xmin": None,
                "_event_tx_id": 4,
            },
            ("+U", OLD),
        ),
    ],
)
def test_a_flattened_row_tells_by_what_the_transform_added(row, found):
    assert changes_of((TOPIC, b'{"id": 1}', json.dumps(row).encode())) == [found]


def test_a_flattened_row_may_name_its_table():
    row = {"id": 1, "__db": "db", "__schema": "s", "__table": "t", "__op": "c"}
    (changed, _) = DebeziumDecoder().decode([("any", b'{"id": 1}', json.dumps(row).encode())])
    assert changed.table.name == SourceName("s", "t")


# ---------------------------------------------------------------------------------------------------------------- types


def field(type_name: str, name: str = "", **parameters: Any) -> dict:
    return {"field": "v", "type": type_name, "optional": True, "name": name, "parameters": parameters}


def digits(unscaled: int) -> str:
    return base64.b64encode(unscaled.to_bytes(17, "big", signed=True)).decode()


TYPES = {
    "int16": (field("int16"), 7, pa.int32(), 7),
    "int64": (field("int64"), 2**63 - 1, pa.int64(), 2**63 - 1),
    "boolean": (field("boolean"), True, pa.bool_(), True),
    "float": (field("float"), 1.5, pa.float32(), 1.5),
    "double": (field("double"), 0.1, pa.float64(), 0.1),
    "a double that is whole": (field("double"), 3, pa.float64(), 3.0),
    "bytes": (field("bytes"), "AP8=", pa.binary(), b"\x00\xff"),
    "precise": (
        field("bytes", "org.apache.kafka.connect.data.Decimal", scale="2", **{"connect.decimal.precision": "10"}),
        digits(-12345),
        pa.decimal128(10, 2),
        Decimal("-123.45"),
    ),
    "more digits than decimals have": (
        field("bytes", "org.apache.kafka.connect.data.Decimal", scale="2", **{"connect.decimal.precision": "60"}),
        digits(10**39 + 5),
        pa.string(),
        "1" + "0" * 36 + "0.05",
    ),
    "any scale": (
        {**field("struct", "io.debezium.data.VariableScaleDecimal"), "fields": []},
        {"scale": 3, "value": digits(-1)},
        pa.string(),
        "-0.001",
    ),
    "decimals as text": (field("string"), "1.10", pa.string(), "1.10"),
    "days": (field("int32", "io.debezium.time.Date"), 19782, pa.date32(), dt.date(2024, 2, 29)),
    "milliseconds": (
        field("int64", "io.debezium.time.Timestamp"),
        1,
        pa.timestamp("us"),
        dt.datetime(1970, 1, 1, 0, 0, 0, 1000),
    ),
    "microseconds": (
        field("int64", "io.debezium.time.MicroTimestamp"),
        -1,
        pa.timestamp("us"),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    ),
    "nanoseconds": (
        field("int64", "io.debezium.time.NanoTimestamp"),
        5000,
        pa.timestamp("us"),
        dt.datetime(1970, 1, 1, 0, 0, 0, 5),
    ),
    "with a zone": (
        field("string", "io.debezium.time.ZonedTimestamp"),
        "2024-03-31T02:30:00.123456+02:00",
        pa.timestamp("us", "UTC"),
        dt.datetime(2024, 3, 31, 0, 30, 0, 123_456, dt.UTC),
    ),
    "a time of MySQL": (
        field("int64", "io.debezium.time.MicroTime"),
        -3_020_399_000_000,
        pa.int64(),
        -3_020_399_000_000,
    ),
    "json": (field("string", "io.debezium.data.Json"), '{"a": 1.50}', pa.string(), '{"a": 1.50}'),
    "a struct": (
        {**field("struct", "io.debezium.data.geometry.Point"), "fields": []},
        {"x": 1, "y": "é"},
        pa.string(),
        '{"x": 1, "y": "é"}',
    ),
    "array": (
        {**field("array"), "items": {"type": "int32", "optional": True}},
        [1, None],
        pa.list_(pa.int32()),
        [1, None],
    ),
}
KEY_FIELD = {"field": "id", "type": "int32", "optional": False}


@pytest.mark.parametrize("name", TYPES)
def test_a_type_with_a_schema_is_exact(name):
    described, value, arrow, found = TYPES[name]
    rows = [
        wrapped("c", None, {"id": n, "v": each}, [KEY_FIELD, described], {"id": n})
        for n, each in enumerate((value, None))
    ]
    decoder = DebeziumDecoder()
    changed, changes = decoder.decode(rows)
    assert changed.table.columns == pa.schema([pa.field("id", pa.int32(), nullable=False), ("v", arrow)])
    assert changed.table.keys == ("id",)
    assert changes.rows["v"].to_pylist() == [found, None]


@pytest.mark.parametrize(
    ("described", "value"),
    [
        (field("int32"), 2**31),
        (field("int32"), 1.5),
        (field("int64"), True),
        (field("boolean"), 1),
        (field("string"), 5),
        (field("bytes"), "no base64"),
        (field("double"), 10**400),
        (field("int32", "io.debezium.time.Date"), -2147472692),  # infinity, as one release of the connector has it
        (field("int64", "io.debezium.time.MicroTimestamp"), 9223371331200000000),
        (field("int64", "io.debezium.time.NanoTimestamp"), 5001),
        (field("string", "io.debezium.time.ZonedTimestamp"), "tomorrow"),
        (
            field("bytes", "org.apache.kafka.connect.data.Decimal", scale="2", **{"connect.decimal.precision": "4"}),
            digits(10**6),
        ),
        ({**field("array"), "items": {"type": "int32"}}, "[1]"),
    ],
)
def test_a_value_that_is_not_as_its_schema_says_rejects_its_message_alone(described, value):
    decoder = DebeziumDecoder()
    good, bad = ({"id": 1, "v": None}, {"id": 2, "v": value})
    events = decoder.decode(
        [wrapped("c", None, row, [KEY_FIELD, described], {"id": row["id"]}) for row in (good, bad, {**good, "id": 3})]
    )
    (rejected,) = decoder.take_rejected()
    assert rejected.place == 1
    assert "column 'v'" in rejected.reason
    assert events[1].rows["id"].to_pylist() == [1, 3]
    assert decoder.take_rejected() == []


@pytest.mark.parametrize(
    ("values", "arrow", "found"),
    [
        ([1, None, -(2**63)], pa.int64(), [1, None, -(2**63)]),
        ([1, 0.1, 1e300], pa.float64(), [1.0, 0.1, 1e300]),
        ([True, None], pa.bool_(), [True, None]),
        (["a", 1], pa.string(), ["a", "1"]),
        ([2**63, 1], pa.string(), [str(2**63), "1"]),
        ([{"a": [1]}, "b"], pa.string(), ['{"a": [1]}', "b"]),
    ],
)
def test_a_type_without_a_schema_holds_all_values_exactly(values, arrow, found):
    changed, changes = DebeziumDecoder().decode(
        [message("c", after={"id": n, "v": value}) for n, value in enumerate(values)]
    )
    assert changed.table.columns.field("v").type == arrow
    assert changes.rows["v"].to_pylist() == found


def test_digits_that_a_double_does_not_have_stay_as_text():
    body = b'{"op": "c", "after": {"id": 1, "v": 1234567890.12345678901234567890}, "source": {"db": "shop", "table": "items"}}'
    (_, changes) = DebeziumDecoder().decode([(TOPIC, b'{"id": 1}', body)])
    assert changes.rows["v"].to_pylist() == ["1234567890.12345678901234567890"]


def test_columns_that_change_are_told_with_what_they_were():
    decoder = DebeziumDecoder()
    events = decoder.decode(
        [
            wrapped("c", None, {"id": 1}, [KEY_FIELD], {"id": 1}),
            wrapped("c", None, {"id": 2, "v": 5}, [KEY_FIELD, field("int32")], {"id": 2}),
            wrapped("c", None, {"id": 3, "v": 6}, [KEY_FIELD, field("int64")], {"id": 3}),
        ]
    )
    told = [event for event in events if isinstance(event, TableChanged)]
    assert [event.before for event in told] == [None, told[0].table, told[1].table]
    assert [event.table.columns.names for event in told] == [["id"], ["id", "v"], ["id", "v"]]
    assert [event.rows.to_pylist() for event in events if isinstance(event, RowChanges)] == [
        [{"id": 1}],
        [{"id": 2, "v": 5}],
        [{"id": 3, "v": 6}],
    ]


# --------------------------------------------------------------------------------------------------------------- poison


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"no json",
        b"[1]",
        b'"text"',
        b'{"op": "x", "after": {"id": 1}}',
        b'{"op": ["c"], "after": {"id": 1}}',
        b'{"op": "c", "after": null, "source": {}}',
        b'{"op": "c", "after": [1], "source": {}}',
        b'{"op": "c", "after": {"id": 1}',
        b'{"op": "d", "before": null, "source": {}}',
        b'{"schema": {"type": "struct", "fields": [{}]}, "payload": {"op": "c", "after": {"id": 1}}}',
        b"[" * 100_000,
        b'{"op": "c", "after": {"id": ' + b"9" * 5000 + b'}, "source": {}}',
        b"\xff\xfe",
    ],
)
def test_a_message_that_is_none_is_rejected_with_its_reason_and_the_others_are_not(value):
    decoder = DebeziumDecoder()
    events = decoder.decode([message("c", after=OLD), (TOPIC, None, value), message("c", after={**OLD, "id": 2})])
    (rejected,) = decoder.take_rejected()
    assert (rejected.place, rejected.topic, rejected.value) == (1, TOPIC, value)
    assert rejected.reason
    assert [event.rows["id"].to_pylist() for event in events if isinstance(event, RowChanges)] == [[1, 2]]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "op",
                    "after",
                    "before",
                    "source",
                    "schema",
                    "payload",
                    "id",
                    "type",
                    "fields",
                    "field",
                    "name",
                    "ts_ms",
                ]
            )
            | st.text(max_size=3),
            inner,
            max_size=6,
        )
    ),
    max_leaves=8,
)


def test_a_row_of_nulls_without_a_schema_is_counted():
    decoder = DebeziumDecoder()
    assert decoder.decode([(TOPIC, None, b'{"op": null}'), (TOPIC, None, b'{"a": null, "b": null}')]) == []
    assert decoder.skipped == {"row of nulls": 2}


@given(
    st.lists(st.tuples(st.sampled_from([TOPIC, "a", "__debezium-heartbeat.x"]), st.none() | JSON, JSON | st.binary()))
)
def test_no_message_breaks_the_decoder(drawn):
    """Each is a change, none of a row, or rejected."""
    messages = [
        (
            topic,
            None if key is None else json.dumps(key).encode(),
            value if isinstance(value, bytes) else json.dumps(value).encode(),
        )
        for topic, key, value in drawn
    ]
    decoder = DebeziumDecoder(registry="http://127.0.0.1:1")
    messages = [each for each in messages if each[2][:1] != b"\0" and (each[1] or b" ")[:1] != b"\0"]
    events = decoder.decode(messages)
    emptied = sum(isinstance(event, TableTruncated) for event in events)
    images = [code for event in events if isinstance(event, RowChanges) for code in event.kinds.to_pylist()]
    changes = len(images) - images.count(RowKind.UPDATE_BEFORE.value)
    assert changes + emptied + sum(decoder.skipped.values()) + len(decoder.take_rejected()) == len(messages)


# ----------------------------------------------------------------------------------------------------------------- Avro

ROW = {
    "type": "record",
    "name": "Value",
    "namespace": "server.shop.items",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "v", "type": ["null", "string"], "default": None},
        {
            "name": "price",
            "type": [
                "null",
                {
                    "type": "bytes",
                    "scale": 2,
                    "precision": 10,
                    "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
                    "connect.name": "org.apache.kafka.connect.data.Decimal",
                    "logicalType": "decimal",
                },
            ],
        },
        {"name": "day", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
        {"name": "moment", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
        {"name": "many", "type": ["null", {"type": "array", "items": ["null", "int"]}]},
        {"name": "short", "type": {"type": "int", "connect.type": "int16"}},
    ],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "server.shop.items",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [
                    {"name": "connector", "type": "string"},
                    {"name": "db", "type": "string"},
                    {"name": "table", "type": "string"},
                ],
            },
        },
        {"name": "op", "type": "string"},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}


@pytest.fixture(scope="module")
def registry():
    """A registry of Confluent's protocol with three schemas, and some that are none."""
    answers = {
        1: {"schema": json.dumps(KEY)},
        2: {"schema": json.dumps(ENVELOPE)},
        4: {"schema": "no json"},
        5: {"schema": json.dumps(ENVELOPE), "references": [{"name": "x"}]},
        6: {"schema": '{"type": "record"}'},
        7: ["nothing"],
    }
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            number = int(self.path.rpartition("/")[2])
            if number in (8, 9):
                self.send_response(302 if number == 8 else 500)
                self.send_header("Location", "/schemas/ids/2")
                self.end_headers()
                return
            body = json.dumps(answers.get(number)).encode()
            self.send_response(200 if number in answers else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def avro(number: int, schema: dict, value: dict) -> bytes:
    import fastavro

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


def avro_message(number: int, op: str = "c", **more: Any) -> tuple:
    row = {
        "id": number,
        "v": "a",
        "price": Decimal("-1.25"),
        "day": 19782,
        "moment": 5,
        "many": [1, None],
        "short": 3,
        **more,
    }
    source = {"connector": "postgresql", "db": "shop", "table": "items"}
    value = {"before": None, "after": row, "source": source, "op": op}
    return TOPIC, avro(1, KEY, {"id": number}), avro(2, ENVELOPE, value)


def test_a_message_in_avro_says_what_one_in_json_says(registry):
    url, asked = registry
    decoder = DebeziumDecoder(registry=url)
    (changed, changes) = decoder.decode([avro_message(1), avro_message(2, "u", v=HIDDEN, price=None)])
    assert decoder.take_rejected() == []
    assert changed.table.keys == ("id",)
    assert changed.table.columns == pa.schema(
        [
            pa.field("id", pa.int32(), nullable=False),
            ("v", pa.string()),
            ("price", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("moment", pa.timestamp("us")),
            ("many", pa.list_(pa.int32())),
            ("short", pa.int32()),
        ]
    )
    assert changes.rows.to_pylist()[0] == {
        "id": 1,
        "v": "a",
        "price": Decimal("-1.25"),
        "day": dt.date(2024, 2, 29),
        "moment": dt.datetime(1970, 1, 1, 0, 0, 0, 5),
        "many": [1, None],
        "short": 3,
    }
    assert "v" not in json.loads(changes.sent[1].as_py())
    assert len(asked) == len(set(asked)) == 2  # a schema is asked for once


@pytest.mark.parametrize("number", [3, 4, 5, 6, 7])
def test_a_schema_that_is_none_rejects_its_messages(registry, number):
    topic, key, value = avro_message(1)
    decoder = DebeziumDecoder(registry=registry[0])
    assert decoder.decode([(topic, key, b"\0" + number.to_bytes(4, "big") + value[5:])]) == []
    (rejected,) = decoder.take_rejected()
    assert f"schema {number}" in rejected.reason


@pytest.mark.parametrize("number", [8, 9])
def test_a_registry_that_does_not_answer_stops_and_nothing_is_taken_for_poison(registry, number):
    topic, key, value = avro_message(1)
    decoder = DebeziumDecoder(registry=registry[0])
    with pytest.raises(SourceUnavailable, match=f"schema {number}"):
        decoder.decode([avro_message(1), (topic, key, b"\0" + number.to_bytes(4, "big") + value[5:])])
    assert decoder.take_rejected() == []
    (_, changes) = decoder.decode([avro_message(7)])  # the rows of the call that failed come again with its messages
    assert changes.rows["id"].to_pylist() == [7]


def test_bytes_in_avro_that_are_cut_or_longer_are_rejected(registry):
    topic, key, value = avro_message(1)
    decoder = DebeziumDecoder(registry=registry[0])
    for damaged in [value[:end] for end in range(1, len(value))] + [value + b"\0"]:
        assert decoder.decode([(topic, key, damaged)]) == []
        assert len(decoder.take_rejected()) == 1


def test_avro_without_a_registry_and_a_registry_with_a_password_are_refused():
    with pytest.raises(InvalidInputError, match="registry"):
        DebeziumDecoder().decode([avro_message(1)])
    for url in ("http://me:secret@db:1", "file:///etc/passwd", "db:8081"):
        with pytest.raises(InvalidInputError) as raised:
            SchemaRegistry(url)
        assert "secret" not in str(raised.value)
    assert "secret" not in repr(SchemaRegistry("http://db:1", {"Authorization": "secret"}))
