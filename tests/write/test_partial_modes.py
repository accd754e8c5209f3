"""Tables that complete rows, or mark deletes in a column of their own: what the verbs do with them."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakefmt
from lakefmt._core.config.merge_rule import DeleteMark, MergeRule, Order, PartialMode, plan_merge_rule
from lakefmt._core.config.table_config import check_readable, check_writable, merge_rule, parse_table_config
from lakefmt._core.filegroups.merge import Incoming, merge_into_base
from lakefmt._core.filegroups.precombine import combine_rows
from lakefmt._core.values import RECORD_KEY, MergeMode
from lakefmt.errors import InvalidInputError, SchemaMismatch, UnsupportedFeature
from tests.compat.payload_tables import (
    COLUMNS,
    MODEL,
    PARTIAL_MODE,
    PAYLOAD,
    PROPERTY,
    make_table,
    marked_by,
    of_payload,
)
from tests.kit import content, product_or_diagonal

NUMBERS = itertools.count()
SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.int64()), ("op", pa.string())]
)
IGNORES = {PARTIAL_MODE: "IGNORE_DEFAULTS"}
TYPES = pytest.mark.parametrize("table_type", ["cow", "mor"])


def rows(*values: tuple[str, str, int, int | None, str | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], schema=SCHEMA)


def make(properties: dict[str, str], **arguments: object) -> lakefmt.Table:
    given: dict[str, object] = {
        "schema": SCHEMA,
        "record_key": "id",
        "partition_by": "city",
        "ordering": "ts",
        "table_version": 9,
        "properties": properties,
        # New keys go to files of their own, so that what is stored stays there and changes of it go to logs.
        "options": {"hoodie.parquet.small.file.limit": 0},
        **arguments,
    }
    return lakefmt.create_table(f"memory://partial-{next(NUMBERS)}", **given)  # type: ignore[arg-type]


@TYPES
def test_a_new_table_of_version_9_completes_rows(table_type: str) -> None:
    table = make(IGNORES, table_type=table_type)
    table.upsert(rows(("a", "sf", 2, 1, None), ("a", "sf", 1, None, "x"), ("b", "sf", 5, None, "y")))
    assert content(table) == [("a", "sf", 2, 1, "x"), ("b", "sf", 5, None, "y")], "rows of one batch"
    result = table.upsert(rows(("a", "sf", 3, None, "z"), ("b", "sf", 4, 7, "late"), ("c", "sf", 1, None, None)))
    assert (result.num_updates, result.num_inserts) == (2, 1)
    assert content(table) == [("a", "sf", 3, 1, "z"), ("b", "sf", 5, 7, "y"), ("c", "sf", 1, None, None)]
    late = table.upsert(rows(("b", "sf", 1, 9, "late")))
    assert late.num_updates == (table_type == "mor"), "a late row that brings nothing new; a log takes it unseen"
    assert content(table) == [("a", "sf", 3, 1, "z"), ("b", "sf", 5, 7, "y"), ("c", "sf", 1, None, None)]


@TYPES
def test_a_null_gives_way_in_every_verb_that_merges(table_type: str) -> None:
    table = make(IGNORES, merge="commit_time", table_type=table_type)
    table.upsert(rows(("a", "sf", 2, 1, "x")))
    table.update("v = 1", {"v": None, "op": "y"})
    assert content(table) == [("a", "sf", 2, 1, "y")]
    table.delete(["a"])
    table.upsert(rows(("a", "sf", 1, None, "new")))
    assert content(table) == [("a", "sf", 1, None, "new")], "nothing of a deleted row comes back"
    table.insert_overwrite(rows(("a", "sf", 0, None, None)))
    assert content(table) == [("a", "sf", 0, None, None)]


@TYPES
def test_a_partial_upsert_of_a_table_that_completes_rows(table_type: str) -> None:
    table = make(IGNORES, table_type=table_type)
    table.upsert(rows(("a", "sf", 2, 1, "x")))
    table.upsert(rows(("a", "sf", 3, None, None)).drop_columns(["op"]), partial=True)
    assert content(table) == [("a", "sf", 3, 1, "x")]
    table.upsert(rows(("a", "sf", 0, 5, None)).drop_columns(["ts"]), partial=True)
    assert content(table) == [("a", "sf", 3, 5, "x")], "without the ordering column the later write wins"


@TYPES
def test_rows_that_mark_deletes_in_a_column_of_the_table(table_type: str) -> None:
    table = make(marked_by("op", "D"), table_type=table_type)
    table.upsert(rows(("a", "sf", 2, 1, "I"), ("b", "sf", 2, 1, "d"), ("gone", "sf", 1, 1, "D")))
    assert content(table) == [("a", "sf", 2, 1, "I"), ("b", "sf", 2, 1, "d")], "the mark is compared as it is"
    result = table.upsert(rows(("a", "sf", 1, 0, "D"), ("b", "sf", 3, 0, "D")))
    assert result.num_deletes == (1 if table_type == "cow" else 2), "a log takes the late one unseen"
    assert [row[0] for row in content(table)] == ["a"], "a late delete loses"


def test_a_key_that_would_move_is_not_completed_on_the_way() -> None:
    table = make(IGNORES)
    table.upsert(rows(("a", "sf", 2, 1, "x")))
    moves = {"hoodie.index.type": "GLOBAL_BLOOM"}
    with pytest.raises(UnsupportedFeature, match="move to another partition"):
        table.upsert(rows(("a", "rio", 3, None, "y")), options=moves)
    assert content(table) == [("a", "sf", 2, 1, "x")]
    table.upsert(rows(("a", "sf", 3, None, "y")), options=moves)
    assert content(table) == [("a", "sf", 3, 1, "y")]


@TYPES
@pytest.mark.parametrize("version", [6, 8])
def test_a_table_of_an_older_payload_class(tmp_path: Path, version: int, table_type: str) -> None:
    schema = SCHEMA.append(pa.field("_event_lsn", pa.int64()))
    properties = of_payload("debezium.PostgresDebeziumAvroPayload", version)
    table = make_table(tmp_path / "t", version, "_event_lsn", properties, schema, table_type)
    gone = "__debezium_unavailable_value"

    def one(lsn: int | None, text: str) -> pa.Table:
        return rows(("a", "sf", 0, lsn, text)).append_column(schema.field("_event_lsn"), pa.array([lsn], pa.int64()))

    table.upsert(one(5, "full"))
    table.upsert(one(6, gone))
    table.upsert(one(4, "late"))
    assert table.read(columns=["v", "op"]).to_pylist() == [{"v": 6, "op": "full"}]
    with pytest.raises(InvalidInputError, match="_event_lsn is null"):
        table.upsert(one(None, "x"))
    assert table.read(columns=["v", "op"]).to_pylist() == [{"v": 6, "op": "full"}]


# --- deleted rows stay deleted -----------------------------------------------------------------------------------------

PAYLOADS = {
    "PartialUpdateAvroPayload": "ts",
    "OverwriteNonDefaultsWithLatestAvroPayload": "ts",
    "AWSDmsAvroPayload": "ts",
    "debezium.MySqlDebeziumAvroPayload": "_event_seq",
    "debezium.PostgresDebeziumAvroPayload": "_event_lsn",
}


def event(key: str, ts: int, a: int | None, s: str, *, deleted: bool = False) -> dict[str, object]:
    marks = {"Op": "D", "_change_operation_type": "d"} if deleted else {"Op": "I", "_change_operation_type": "c"}
    order = {"ts": ts, "_event_lsn": ts, "_event_seq": f"1.{ts}"}
    return {**dict.fromkeys(COLUMNS.names), "id": key, "a": a, "s": s, "_hoodie_is_deleted": deleted, **order, **marks}


@pytest.mark.slow
@product_or_diagonal(payload=list(PAYLOADS), version=[6, 8], how=["by key", "by mark"])
def test_nothing_of_a_deleted_row_comes_back(tmp_path: Path, payload: str, version: int, how: str) -> None:
    """Whatever comes after the delete, older or newer: the same as in a copy-on-write table."""
    seen = []
    for table_type in ("cow", "mor"):
        root = tmp_path / table_type
        table = make_table(root, version, PAYLOADS[payload], of_payload(payload, version), table_type=table_type)

        def put(*events: dict[str, object], into: lakefmt.Table = table) -> None:
            into.upsert(pa.Table.from_pylist(list(events), schema=COLUMNS))

        keys = [f"k{ts}" for ts in (3, 5, 6, 7)]
        put(event("other", 5, 1, "stays"), *(event(key, 5, 1, "old") for key in keys))
        if how == "by key":
            assert table.delete(keys).num_deletes == 4
        else:
            put(*(event(key, 6, None, "gone", deleted=True) for key in keys))
        assert table.read(columns=["id"]).to_pylist() == [{"id": "other"}]
        put(*(event(key, int(key[1:]), None, "new") for key in keys))
        seen.append(sorted(table.read(columns=["id", "ts", "a", "s"]).to_pylist(), key=lambda row: str(row["id"])))
        if table_type == "mor":
            table.compact(options={"hoodie.compact.inline.max.delta.commits": 1})
            again = table.read(columns=["id", "ts", "a", "s"]).to_pylist()
            assert sorted(again, key=lambda row: str(row["id"])) == seen[-1]
    assert seen[0] == seen[1]
    assert all(row["s"] != "old" and row["a"] in (None, 1 if row["id"] == "other" else None) for row in seen[1])


# --- what create_table is asked for -----------------------------------------------------------------------------------

UNHEARD = [
    *((v, {PAYLOAD: "com.shop.Mine"}) for v in (6, 8, 9)),
    *((v, {"hoodie.table.legacy.payload.class": MODEL + "PartialUpdateAvroPayload"}) for v in (6, 8, 9)),
    *((v, {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}) for v in (6, 8, 9)),
    *((v, {"hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000"}) for v in (6, 8, 9)),
    *((v, {"hoodie.payload.ordering.field": "v"}) for v in (6, 8, 9)),
    *((v, {"hoodie.payload.event.time.field": "v"}) for v in (6, 8, 9)),
    *((v, {"hoodie.table.ordering.fields": "v"}) for v in (6, 8, 9)),
    *((v, {"hoodie.table.precombine.field": "v"}) for v in (6, 8, 9)),
    *((v, IGNORES) for v in (6, 8)),
]


@pytest.mark.parametrize(("version", "properties"), UNHEARD)
def test_a_way_of_merging_that_a_new_table_would_not_have(version: int, properties: dict[str, str]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(properties))):
        make(properties, table_version=version)


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        (marked_by("missing", "D"), SchemaMismatch),
        ({PROPERTY + "hoodie.payload.delete.field": "op"}, UnsupportedFeature),
        ({PARTIAL_MODE: "KEEP_VALUES"}, UnsupportedFeature),
    ],
)
def test_a_rule_that_nobody_could_follow_makes_no_table(properties: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        make(properties)


# --- what the properties say ------------------------------------------------------------------------------------------

PLAIN = {"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE", "hoodie.table.precombine.field": "ts"}
LAYOUTS = {6: "1", 8: "2", 9: "2"}


def rule_of(version: int, properties: dict[str, str]) -> MergeRule:
    of_version = {"hoodie.table.version": str(version), "hoodie.timeline.layout.version": LAYOUTS[version]}
    config = parse_table_config({**PLAIN, **of_version, **properties})
    check_writable(config)
    return merge_rule(config)


def test_payload_classes_become_rules() -> None:
    ts, ours = Order(("ts",)), of_payload
    assert rule_of(6, {PAYLOAD: MODEL + "OverwriteWithLatestAvroPayload"}) == MergeRule()
    assert rule_of(6, {PAYLOAD: MODEL + "EventTimeAvroPayload"}) == MergeRule(ts, ts)
    dms = rule_of(6, ours("AWSDmsAvroPayload", 6))
    assert (dms.stored, dms.batch, dms.delete) == (Order(), ts, DeleteMark("Op", "D", any_case=True))
    for version in (6, 8):
        partial = rule_of(version, ours("PartialUpdateAvroPayload", version))
        assert partial.partial is not None
        assert (partial.partial.mode, partial.deletes_win, partial.stored) == (PartialMode.IGNORE_NULLS, True, ts)
        mysql = rule_of(version, ours("debezium.MySqlDebeziumAvroPayload", version))
        assert mysql.stored == Order(("_event_seq",), numbered=True, required=True)
        reverse = rule_of(version, ours("ReverseOrderHoodieRecordPayload", version))
        assert reverse.stored == reverse.batch == Order(("ts",), required=True, reverse=True)
    stated = {"hoodie.record.merge.mode": "EVENT_TIME_ORDERING", **IGNORES}
    assert rule_of(8, stated).partial is None, "below version 9 nobody looks at the mode"
    assert rule_of(9, stated).partial is not None


MOMENT = dt.datetime(2026, 1, 2)
ORDERED = [
    (pa.int8(), [-128, 0, 127]),
    (pa.uint64(), [0, 1, 2**64 - 1]),
    (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    (pa.float64(), [float("-inf"), -0.5, float("inf")]),
    (pa.decimal128(6, 2), [decimal.Decimal("-9.5"), decimal.Decimal(0), decimal.Decimal("9.5")]),
    (pa.date32(), [dt.date(1969, 1, 1), dt.date(1970, 1, 1), dt.date(2026, 1, 1)]),
    (pa.timestamp("us", "UTC"), [MOMENT - dt.timedelta(days=1), MOMENT, MOMENT + dt.timedelta(microseconds=1)]),
]


@pytest.mark.parametrize(
    ("kind", "values"), ORDERED, ids=lambda value: str(value) if isinstance(value, pa.DataType) else ""
)
def test_the_smaller_ordering_value_wins_and_the_later_row_of_equal_ones(kind: pa.DataType, values: list[Any]) -> None:
    rule = rule_of(8, of_payload("ReverseOrderHoodieRecordPayload", 8))
    column = pa.array(values, kind)
    for stored, brought in itertools.product(range(3), repeat=2):
        pair = pa.table({"ts": column.take([stored, brought]), "v": [0, 1]})
        combined = combine_rows(pair, np.zeros(2, np.int64), rule)
        assert combined is not None
        assert combined.winners.tolist() == [int(brought <= stored)], "in one batch"
        base, new = (pair.slice(n, 1).append_column(RECORD_KEY, pa.array(["a"])) for n in (0, 1))
        merged = merge_into_base(base, Incoming(new, np.array([False])), rule=rule)
        assert merged.table["v"].to_pylist() == [int(brought <= stored)], "against the stored row"
    nothing = pa.table({RECORD_KEY: ["a"], "ts": pa.nulls(1, kind), "v": [1]})
    some = pa.table({RECORD_KEY: ["a"], "ts": column.slice(0, 1), "v": [0]})
    assert merge_into_base(nothing, Incoming(some, np.array([False])), rule=rule).table["v"].to_pylist() == [0]
    with pytest.raises(InvalidInputError, match="ts is null in 1 rows"):
        merge_into_base(some, Incoming(nothing, np.array([False])), rule=rule)


def test_texts_are_not_ordered_in_reverse() -> None:
    rule = rule_of(8, of_payload("ReverseOrderHoodieRecordPayload", 8))
    with pytest.raises(UnsupportedFeature, match="ts is string"):
        combine_rows(pa.table({"ts": ["a", "b"]}), np.zeros(2, np.int64), rule)


@TYPES
def test_a_table_that_keeps_the_oldest(tmp_path: Path, table_type: str) -> None:
    table = make_table(
        tmp_path / "t", 9, "ts", of_payload("ReverseOrderHoodieRecordPayload", 9), SCHEMA, table_type=table_type
    )
    table.upsert(
        rows(("a", "sf", 5, 1, None), ("b", "sf", 5, 1, None), ("b", "sf", 4, 2, None), ("c", "sf", 5, 3, None))
    )
    table.upsert(rows(("a", "sf", 9, 7, "newer"), ("b", "sf", 4, 8, "equal"), ("c", "sf", 1, 9, "older")))
    expected = [("a", "sf", 5, 1, None), ("b", "sf", 4, 8, "equal"), ("c", "sf", 1, 9, "older")]
    assert content(table) == expected
    table.delete(["b"])
    assert content(table) == [expected[0], expected[2]]
    if table_type == "mor":
        table.compact(verify=True)
        assert content(table) == [expected[0], expected[2]]


@pytest.mark.parametrize(
    ("version", "properties", "what"),
    [
        (6, {PAYLOAD: "com.example.MyPayload"}, "com.example.MyPayload"),
        (6, {PAYLOAD: "com.example.PartialUpdateAvroPayload"}, "com.example"),
        (8, of_payload("ExpressionPayload", 8), "ExpressionPayload"),
        (8, of_payload("AWSDmsAvroPayload", 8) | {"hoodie.record.merge.strategy.id": "1897ef5f"}, "merger 1897ef5f"),
        (9, {"hoodie.record.merge.mode": "CUSTOM"}, "merger"),
        (9, {PARTIAL_MODE: "KEEP_VALUES"}, "KEEP_VALUES"),
        (9, {PROPERTY + "hoodie.payload.delete.field": "op"}, "only one of"),
        (8, {"hoodie.payload.delete.marker": "D"}, "only one of"),
    ],
)
def test_rules_that_nobody_here_knows_are_read_not_written(version: int, properties: dict[str, str], what: str) -> None:
    of_version = {"hoodie.table.version": str(version), "hoodie.timeline.layout.version": LAYOUTS[version]}
    config = parse_table_config({**PLAIN, **of_version, **properties})
    check_readable(config)
    with pytest.raises(UnsupportedFeature, match=what):
        check_writable(config)


def test_a_rule_without_order_is_the_later_row() -> None:
    rule = plan_merge_rule({}, MergeMode.EVENT_TIME_ORDERING, ("ts",))
    assert (rule.stored, rule.without_order()) == (Order(("ts",)), MergeRule())
