"""Bad rows, names and calls: one typed error each, and everything stays as it was."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakefmt
from lakefmt._core.table import Table
from lakefmt.errors import (
    InstantNotFound,
    InvalidFilter,
    InvalidInputError,
    InvalidKey,
    LakefmtError,
    SchemaMismatch,
    UnknownSetting,
    UnsafePath,
    UnsupportedFeature,
)
from tests.bad_input.kit import OPTIONS, SCHEMA, Lake, changes, check_next_write, check_said, rows, same_rows

Call = Callable[[Table], object]


def put(column: str, values: pa.Array) -> pa.Table:
    base = rows(10, 12)
    return base.set_column(base.schema.get_field_index(column), column, values)


def without(column: str) -> pa.Table:
    return rows(10, 12).drop_columns([column])


def also(column: str, values: pa.Array) -> pa.Table:
    return rows(10, 12).append_column(column, values)


#: Two texts of which the first is no UTF-8, as a careless producer hands them over.
NOT_UTF8 = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.array([0, 2, 4], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfeok")]
)
BIG = decimal.Decimal(10**39)

#: name → (call, error, what its message names)
ROWS: dict[str, tuple[Call, type[LakefmtError], str]] = {
    "missing key column": (lambda t: t.upsert(without("id")), SchemaMismatch, "id"),
    "missing ordering column": (lambda t: t.upsert(without("ts")), SchemaMismatch, "ts"),
    "missing partition column": (lambda t: t.upsert(without("city")), SchemaMismatch, "city"),
    "schema lost a column": (lambda t: t.upsert(without("n")), SchemaMismatch, "partial=True"),
    "duplicate key column": (lambda t: t.upsert(also("id", pa.array(["a", "b"]))), SchemaMismatch, "id"),
    "duplicate column": (lambda t: t.upsert(also("n", pa.array([1, 2]))), SchemaMismatch, "n"),
    "null key": (lambda t: t.upsert(put("id", pa.array(["a", None]))), InvalidKey, "row 1"),
    "empty key": (lambda t: t.upsert(put("id", pa.array(["a", ""]))), InvalidKey, "row 1"),
    "null key to delete": (lambda t: t.delete([None]), InvalidKey, "id"),
    "key to delete of another type": (lambda t: t.delete([1, 2]), SchemaMismatch, "'id'"),
    "delete without key column": (lambda t: t.delete(pa.table({"x": ["a"]})), SchemaMismatch, "id"),
    "binary key for a text key": (lambda t: t.upsert(put("id", pa.array([b"\xff", b"a"]))), SchemaMismatch, "'id'"),
    "key that is not UTF-8": (lambda t: t.upsert(put("id", NOT_UTF8)), SchemaMismatch, "'id'"),
    "partition that is not UTF-8": (lambda t: t.upsert(put("city", NOT_UTF8)), SchemaMismatch, "'city'"),
    "new column that is not UTF-8": (lambda t: t.upsert(also("note", NOT_UTF8)), SchemaMismatch, "'note'"),
    "unknown column, strict": (
        lambda t: t.upsert(also("extra", pa.array([1, 2])), schema_change="strict"),
        SchemaMismatch,
        "extra",
    ),
    "unknown column read": (lambda t: t.read(["extra"]), InvalidInputError, "extra"),
    "unknown column in SQL": (lambda t: t.read(filter="extra = 1"), InvalidFilter, "extra"),
    "unknown column in DNF": (lambda t: t.read(filter=[("extra", "=", 1)]), InvalidFilter, "extra"),
    "unknown column updated": (lambda t: t.update("id = 'k1'", {"extra": 1}), InvalidInputError, "extra"),
    "column name that cannot be stored": (lambda t: t.upsert(also("a b", pa.array([1, 2]))), SchemaMismatch, "a b"),
    "text for a number": (lambda t: t.upsert(put("n", pa.array(["x", "y"]))), SchemaMismatch, "'n'"),
    "number for a list": (lambda t: t.upsert(put("tags", pa.array([1, 2]))), SchemaMismatch, "'tags'"),
    "text for a number, updated": (lambda t: t.update("id = 'k1'", {"n": "x"}), SchemaMismatch, "'n'"),
    "integer overflow, strict": (
        lambda t: t.upsert(put("n", pa.array([1, 2**40])), schema_change="strict"),
        SchemaMismatch,
        "n",
    ),
    "unsigned overflow": (lambda t: t.upsert(put("ts", pa.array([2**63 + 1, 1], pa.uint64()))), SchemaMismatch, "'ts'"),
    "integer overflow, updated": (lambda t: t.update("id = 'k1'", {"n": 2**40}), SchemaMismatch, "'n'"),
    "integer overflow, computed": (
        lambda t: t.update("id = 'k1'", {"n": pc.field("n") + pa.scalar(2**40)}),
        SchemaMismatch,
        "'n'",
    ),
    "integer of dicts": (
        lambda t: t.upsert([{"id": "a", "city": "b", "ts": 2**70, "n": 1, "price": None, "tags": []}]),
        SchemaMismatch,
        "too large",
    ),
    "decimal overflow": (
        lambda t: t.upsert(put("price", pa.array([BIG, None], pa.decimal256(60, 2)))),
        SchemaMismatch,
        "'price'",
    ),
    "decimal scale": (
        lambda t: t.upsert(put("price", pa.array([decimal.Decimal("1.675"), None], pa.decimal128(10, 3)))),
        SchemaMismatch,
        "'price'",
    ),
    "decimal overflow, strict": (
        lambda t: t.upsert(
            put("price", pa.array([decimal.Decimal("12345.67"), None], pa.decimal128(10, 2))), schema_change="strict"
        ),
        SchemaMismatch,
        "price",
    ),
    "key column updated": (lambda t: t.update("id = 'k1'", {"id": "x"}), InvalidInputError, "delete the row"),
    "partition column updated": (lambda t: t.update("id = 'k1'", {"city": "x"}), InvalidInputError, "delete the row"),
    "no Arrow data": (lambda t: t.upsert(42), InvalidInputError, "int"),
    "no Arrow data in the middle": (lambda t: t.upsert(iter([rows(10, 12), 17])), InvalidInputError, "int"),
    "batches that differ": (lambda t: t.upsert(iter([rows(10, 12), without("n")])), SchemaMismatch, "one schema"),
    "stream that differs": (lambda t: t.bulk_insert(iter([rows(10, 12), without("n")])), SchemaMismatch, "one schema"),
    "null key late in a stream": (
        lambda t: t.bulk_insert(iter([rows(10, 12), put("id", pa.array(["a", None]))])),
        InvalidKey,
        "id",
    ),
    "unknown schema_change": (lambda t: t.upsert(rows(10, 12), schema_change="x"), InvalidInputError, "'add'"),
    "unknown setting": (
        lambda t: t.upsert(rows(10, 12), options={"hoodie.index.typo": "x"}),
        UnknownSetting,
        "did you mean hoodie.index.type",
    ),
    "setting of another type": (
        lambda t: t.upsert(rows(10, 12), options={"lakefmt.write.threads": "many"}),
        UnknownSetting,
        "many",
    ),
    "setting below its minimum": (
        lambda t: t.upsert(rows(10, 12), options={"hoodie.parquet.max.file.size": -1}),
        UnknownSetting,
        "1024",
    ),
    "setting that contradicts the table": (
        lambda t: t.upsert(rows(10, 12), options={"hoodie.datasource.write.recordkey.field": "city"}),
        UnknownSetting,
        "contradicts",
    ),
    "setting that is not kept": (
        lambda t: t.upsert(rows(10, 12), options={"hoodie.datasource.hive_sync.create_managed_table": "true"}),
        UnsupportedFeature,
        "DROP TABLE",
    ),
    "partition outside, deleted": (lambda t: t.delete_partitions(["../neighbour"]), InvalidInputError, "neighbour"),
    "partition outside, searched": (lambda t: t.delete(["k1"], partitions=["../neighbour"]), UnsafePath, "neighbour"),
    "partition from the root": (lambda t: t.delete(["k1"], partitions=["/etc"]), UnsafePath, "/etc"),
    "partition outside, listed": (lambda t: t.file_groups(["../neighbour"]), UnsafePath, "neighbour"),
    "no instant": (lambda t: t.read(as_of="garbage"), InvalidInputError, "garbage"),
    "no instant to pull from": (lambda t: t.incremental("garbage"), InvalidInputError, "garbage"),
    "rollback of a path": (lambda t: t.rollback("../x"), InstantNotFound, "../x"),
}


@pytest.fixture(scope="module")
def shared(lake_of: Callable[[int], Lake]) -> Lake:
    """One table for all refusals of this module: each of them leaves it as it was."""
    return lake_of(8)


@pytest.mark.parametrize("case", list(ROWS))
def test_a_bad_call_is_refused_and_nothing_changes(shared: Lake, case: str) -> None:
    call, error, names = ROWS[case]
    table = shared.open()
    stored, before = table.read(), shared.picture()
    with pytest.raises(error) as caught:
        call(table)
    check_said(caught.value, names)
    assert same_rows(table.read(), stored)
    assert changes(before, shared.picture()) == []


def test_after_all_refusals_the_next_write_works_and_hudi_rs_reads(shared: Lake, hudi_rs_judge) -> None:  # type: ignore[no-untyped-def]
    table = shared.open()
    check_next_write(table, table.read())
    assert same_rows(hudi_rs_judge.snapshot(shared.base), table.read())


# ------------------------------------------------------------------------------------------------------ partition values

REFUSED_PLAIN = [".", "..", "/x", "a/../b", "a/", "a//b", "a\0b", "a\nb", "a\\b", "x" * 300, "ü" * 200]
REFUSED_PLAIN += [".hoodie", ".hoodie/x", ".hoodie_x", "a/.hoodie"]
#: value → its directory in a table with encoded partition paths.
ENCODED = {
    ".": "city=.",
    "..": "city=..",
    "/x": "city=%2Fx",
    "a/../b": "city=a%2F..%2Fb",
    "a\0b": "city=a%00b",
    "a\x01\nb": "city=a%01%0Ab",
    "a\\b": "city=a%5Cb",
    "a%2Fb": "city=a%252Fb",
    "Zürich-東京": "city=Zürich-東京",
    "": "city=__HIVE_DEFAULT_PARTITION__",
    ".hoodie": "city=.hoodie",
}
PLAIN = {"hoodie.datasource.write.hive_style_partitioning": "false"}
PLAIN |= {"hoodie.datasource.write.partitionpath.urlencode": "false"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A table whose partition paths are the bare values."""
    lake = Lake(tmp_path_factory.mktemp("plain"))
    made = lakefmt.create_table(
        str(lake.base), schema=SCHEMA, record_key="id", partition_by="city", options=OPTIONS, properties=PLAIN
    )
    made.upsert(rows(0, 4))
    return lake


@pytest.mark.parametrize("value", REFUSED_PLAIN, ids=lambda v: ascii(v)[:20])
def test_values_that_would_leave_the_table_or_hide_are_refused(plain: Lake, value: str) -> None:
    table = plain.open()
    stored, before = table.read(), plain.picture()
    with pytest.raises(InvalidKey) as caught:
        table.upsert(put("city", pa.array([value, "sf"])))
    check_said(caught.value, repr(value)[1:20].rstrip("'"))
    assert same_rows(table.read(), stored)
    assert changes(before, plain.picture()) == []


@pytest.mark.parametrize("value", ["x" * 300, "ü" * 200], ids=["300 letters", "400 bytes"])
def test_values_too_long_for_a_directory_are_refused(shared: Lake, value: str) -> None:
    before = shared.picture()
    with pytest.raises(InvalidKey) as caught:
        shared.open().upsert(put("city", pa.array([value, "sf"])))
    check_said(caught.value, "255 bytes")
    assert changes(before, shared.picture()) == []


def test_encoded_values_stay_in_directories_of_their_own(lake: Lake) -> None:
    values = list(ENCODED)
    numbers = range(20, 20 + len(values))
    more = rows(20, 20 + len(values)).set_column(1, SCHEMA.field("city"), pa.array(values))
    table = lake.open()
    stored, before = table.read(), lake.picture()
    table.upsert(more)
    assert set(table.partitions()) == {"city=sf", "city=oslo", *ENCODED.values()}
    assert same_rows(table.read(), pa.concat_tables([stored, more]))
    new = [line.removeprefix("new ") for line in changes(before, lake.picture())]
    assert all(name.startswith(("t/city=", "t/.hoodie/timeline/")) for name in new), new
    assert table.delete([f"k{n}" for n in numbers]).num_deletes == len(values)
    check_next_write(table, stored)


def test_binary_keys_that_are_not_utf8_are_kept_apart(tmp_path) -> None:  # type: ignore[no-untyped-def]
    schema = pa.schema([("id", pa.binary()), ("v", pa.int64())])
    table = lakefmt.create_table(str(tmp_path / "t"), schema=schema, record_key="id", options=OPTIONS)
    first = pa.table({"id": [b"\xff\xfe", b"\xff\xfd", b"\xc3\xbf"], "v": [1, 2, 3]}, schema=schema)
    table.upsert(first)
    table.upsert(pa.table({"id": [b"\xff\xfd"], "v": [20]}, schema=schema))
    expected = pa.table({"id": [b"\xff\xfe", b"\xff\xfd", b"\xc3\xbf"], "v": [1, 20, 3]}, schema=schema)
    assert same_rows(table.read(), expected)


@pytest.mark.parametrize("index", ["bloom", "global_bloom"])
def test_a_row_moves_to_another_partition_only_under_a_global_index(tmp_path, index: str) -> None:  # type: ignore[no-untyped-def]
    table = lakefmt.create_table(
        str(tmp_path / "t"), schema=SCHEMA, record_key="id", partition_by="city", index=index, options=OPTIONS
    )
    table.upsert(rows(0, 1))
    table.upsert(rows(0, 1).set_column(1, SCHEMA.field("city"), pa.array(["oslo"])))
    cities = sorted(table.read(["city"]).column(0).to_pylist())
    assert cities == (["oslo"] if index == "global_bloom" else ["oslo", "sf"])


# -------------------------------------------------------------------------------------------------------------- creation

CREATIONS: dict[str, tuple[dict[str, object], type[LakefmtError]]] = {
    "key not a column": ({"record_key": "x"}, InvalidKey),
    "key twice": ({"record_key": ["id", "id"]}, InvalidKey),
    "partition not a column": ({"partition_by": "x"}, InvalidKey),
    "ordering not a column": ({"ordering": "x"}, SchemaMismatch),
    "column twice": ({"schema": pa.schema([("id", pa.string()), ("id", pa.string())])}, SchemaMismatch),
    "type that cannot be stored": (
        {"schema": pa.schema([("id", pa.string()), ("d", pa.duration("s"))])},
        SchemaMismatch,
    ),
    "decimal too wide": ({"schema": pa.schema([("id", pa.string()), ("d", pa.decimal256(60, 2))])}, SchemaMismatch),
    "event time without ordering": ({"merge": "event_time"}, InvalidInputError),
    "two ordering columns in version 8": ({"ordering": ["ts", "n"]}, InvalidInputError),
    "unknown merge": ({"merge": "x"}, InvalidInputError),
    "unknown index": ({"index": "x"}, UnknownSetting),
    "unknown table type": ({"table_type": "x"}, InvalidInputError),
    "unknown setting": ({"options": {"hoodie.x": 1}}, UnknownSetting),
    "properties contradict the arguments": ({"properties": {"hoodie.table.version": "6"}}, InvalidInputError),
    "timeline outside": ({"properties": {"hoodie.timeline.path": "../x"}}, InvalidInputError),
    "unknown if_exists": ({"if_exists": "x"}, InvalidInputError),
}


@pytest.mark.parametrize("case", list(CREATIONS))
def test_a_table_that_cannot_be_is_not_begun(tmp_path, case: str) -> None:  # type: ignore[no-untyped-def]
    arguments, error = CREATIONS[case]
    with pytest.raises(error) as caught:
        lakefmt.create_table(str(tmp_path / "t"), **{"schema": SCHEMA, "record_key": "id", **arguments})  # type: ignore[arg-type]
    check_said(caught.value)
    assert list(tmp_path.rglob("*")) == []


#: What people give first, and the words that say what to give instead.
FIRST_ATTEMPTS: dict[str, tuple[Call, tuple[str, ...]]] = {
    "columns as a dict": (lambda t: t.upsert({"id": ["k1"]}), ("list of dicts", "pyarrow.table")),
    "a row as a dict": (lambda t: t.upsert({"id": "k1"}), ("list of dicts",)),
    "rows as a generator": (lambda t: t.upsert({"id": key} for key in "ab"), ("give a list",)),
    "the path of a file": (lambda t: t.upsert("rows.csv"), ("read a file first",)),
    "one key that is a number": (lambda t: t.delete(12), ("[12]",)),
    "one key that is a name": (lambda t: t.delete("k1"), ("keys are given in a list",)),
    "one key that is no condition": (lambda t: t.delete("12"), ("keys are given in a list",)),
    "another library's filter": (lambda t: t.read(filter=object()), ("SQL text", "Arrow expression", "tuples")),  # type: ignore[arg-type]
    "a filter as a dict": (lambda t: t.read(filter={"id": "k1"}), ("SQL text", "Arrow expression", "tuples")),  # type: ignore[arg-type]
    "a column fewer": (
        lambda t: t.upsert(without("n")),
        ("partial=True", "hoodie.write.set.null.for.missing.columns=true"),
    ),
    "the number of a version": (lambda t: t.read(as_of=0), ("no version numbers", "what a commit returned")),  # type: ignore[arg-type]
    "the time of this machine": (lambda t: t.read(as_of=datetime(2026, 1, 1)), ("datetime.now(UTC)",)),
    "an instant of another table": (lambda t: t.restore("2020"), ("table.timeline", "lakefmt timeline")),
}


@pytest.mark.parametrize("case", list(FIRST_ATTEMPTS))
def test_a_refusal_says_what_to_give_instead(shared: Lake, case: str) -> None:
    call, words = FIRST_ATTEMPTS[case]
    with pytest.raises(LakefmtError) as caught:
        call(shared.open())
    check_said(caught.value)
    assert [word for word in words if word not in str(caught.value)] == []
