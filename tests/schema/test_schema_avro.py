"""Avro schema text: real tables, docs/format.md and what damaged text must not do."""

from __future__ import annotations

import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from lakefmt._core.schema import arrow_to_avro, avro_to_arrow, normalise_schema, with_meta_columns
from lakefmt._core.schema.avro import AVRO_DOC, decimal_bytes
from lakefmt.errors import CorruptFile, SchemaMismatch, UnsupportedFeature

DATA = Path(__file__).resolve().parents[1] / "data" / "keys"
REAL = [json.loads(line) for line in (DATA / "avro_schemas.jsonl").read_text("utf-8").splitlines()]


def record(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "r", "namespace": "n", "fields": list(fields)})


def typed(avro: object) -> str:
    return record({"name": "c", "type": avro})


def read(avro: object) -> pa.Field:
    return avro_to_arrow(typed(avro)).field("c")


# ------------------------------------------------------------------------------------------------------- real tables


@pytest.mark.parametrize("sample", REAL, ids=lambda sample: sample["from"])
def test_a_real_schema_survives(sample):
    schema = avro_to_arrow(sample["text"])
    name = json.loads(sample["text"])["namespace"].removeprefix("hoodie.")
    assert normalise_schema(schema) == schema
    written = arrow_to_avro(schema, name)
    assert avro_to_arrow(written) == schema
    if sample["from"].endswith("commit"):
        # What Spark wrote into the commit, byte for byte.
        assert written == sample["text"]


def test_every_type_of_spark_is_read():
    text = next(s["text"] for s in REAL if s["from"] == "v9_mor_types_deletes_120 commit")
    schema = avro_to_arrow(text)
    assert {f.name: str(f.type) for f in schema} == {
        "id": "string",
        "city": "string",
        "ts": "int64",
        "b": "int32",
        "sh": "int32",
        "i": "int32",
        "f": "float",
        "d": "double",
        "flag": "bool",
        "name": "string",
        "raw": "binary",
        "day": "date32[day]",
        "at": "timestamp[us, tz=UTC]",
        "d5": "decimal128(5, 2)",
        "d15": "decimal128(15, 4)",
        "d38": "decimal128(38, 10)",
        "nums": "list<element: int32>",
        "items": "list<element: struct<sku: string, qty: int32>>",
        "attrs": "map<string, string>",
        "stock": "map<string, struct<n: int32, at: timestamp[us, tz=UTC]>>",
        "loc": "struct<lat: double, lon: double, geo: struct<zone: string, code: int32>>",
        "_hoodie_is_deleted": "bool",
    }
    assert all(field.nullable for field in schema)


# ------------------------------------------------------------------------------------------------------------ writing


def test_names_are_those_of_hudi():
    kind = pa.struct([("amount", pa.decimal128(10, 2)), ("inner", pa.struct([("x", pa.int32())]))])
    text = json.loads(arrow_to_avro(pa.schema([("s", pa.list_(kind))]), "a-b.c"))
    assert (text["name"], text["namespace"]) == ("a__b__c_record", "hoodie.a__b__c")
    struct = text["fields"][0]["type"][1]["items"][1]
    assert (struct["name"], struct["namespace"]) == ("s", "hoodie.a__b__c.a__b__c_record")
    amount, inner = (field["type"][1] for field in struct["fields"])
    assert (amount["name"], amount["namespace"]) == ("fixed", "hoodie.a__b__c.a__b__c_record.s.amount")
    assert (inner["name"], inner["namespace"]) == ("inner", "hoodie.a__b__c.a__b__c_record.s")


@pytest.mark.parametrize(("precision", "size"), [(1, 1), (2, 1), (3, 2), (5, 3), (10, 5), (15, 7), (18, 8), (38, 16)])
def test_decimals_take_the_fewest_bytes(precision, size):
    assert decimal_bytes(precision) == size
    assert -(1 << (8 * size - 1)) <= -(10**precision - 1)
    text = json.loads(arrow_to_avro(pa.schema([("d", pa.decimal128(precision, 1))]), "t"))
    assert text["fields"][0]["type"][1]["size"] == size


def test_meta_fields_are_written_as_hudi_writes_them():
    text = json.loads(arrow_to_avro(pa.schema([("id", pa.int64())]), "t", with_meta=True))
    assert text["fields"][0] == {
        "name": "_hoodie_commit_time",
        "type": ["null", "string"],
        "doc": "",
        "default": None,
    }
    assert [field["name"] for field in text["fields"]] == with_meta_columns(pa.schema([("id", pa.int64())])).names


def test_a_required_field_has_neither_union_nor_default():
    text = json.loads(arrow_to_avro(pa.schema([pa.field("id", pa.int64(), nullable=False)]), "t"))
    assert text["fields"] == [{"name": "id", "type": "long"}]


def test_zone_less_times_are_local_timestamps():
    schema = pa.schema([("a", pa.timestamp("us")), ("b", pa.timestamp("ms")), ("c", pa.timestamp("us", "Asia/Tokyo"))])
    text = json.loads(arrow_to_avro(schema, "t"))
    found = [field["type"][1]["logicalType"] for field in text["fields"]]
    assert found == ["local-timestamp-micros", "local-timestamp-millis", "timestamp-micros"]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.large_string(), pa.timestamp("ns", "UTC"), pa.null(), pa.date64()], ids=str
)
def test_what_is_not_normalised_is_not_written(kind):
    with pytest.raises(SchemaMismatch, match=r"'s\.x'"):
        arrow_to_avro(pa.schema([("s", pa.struct([("x", kind)]))]), "t")


# ------------------------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize(
    ("avro", "kind"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("bytes", pa.binary()),
        ({"type": "int"}, pa.int32()),
        ({"type": {"type": "int", "logicalType": "date"}}, pa.date32()),
        ({"type": "string", "avro.java.string": "String"}, pa.string()),
        ({"type": "fixed", "name": "f", "size": 4}, pa.binary(4)),
        ({"type": "fixed", "name": "f", "size": 16, "logicalType": "decimal", "precision": 5}, pa.decimal128(5, 0)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, pa.decimal128(10, 2)),
        ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms")),
        ({"type": "long", "logicalType": "time-micros"}, pa.time64("us")),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC")),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC")),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("ms")),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
        ({"type": "string", "logicalType": "uuid"}, pa.string()),
        ({"type": "fixed", "name": "f", "size": 12, "logicalType": "duration"}, pa.binary(12)),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, pa.string()),
        ({"type": "array", "items": "int"}, pa.list_(pa.field("element", pa.int32(), nullable=False))),
        ({"type": "map", "values": ["null", "int"]}, pa.map_(pa.string(), pa.int32())),
        (["string"], pa.string()),
    ],
    ids=str,
)
def test_a_type_is_read(avro, kind):
    found = read(avro)
    assert found.type == kind
    assert not found.nullable
    for union in (["null", avro], [avro, "null"]):
        if not isinstance(avro, list):
            assert read(union).type == kind
            assert read(union).nullable


@pytest.mark.parametrize(
    "avro",
    [
        {"type": "enum", "name": "e", "namespace": "x", "symbols": ["A", "B"]},
        {"type": "string", "logicalType": "uuid"},
        {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        {"type": "fixed", "name": "md5", "namespace": "x", "size": 16},
        {
            "type": "fixed",
            "name": "d",
            "namespace": "x",
            "size": 16,
            "logicalType": "decimal",
            "precision": 5,
            "scale": 1,
        },
        {"type": "int", "logicalType": "somebody-elses"},
    ],
    ids=lambda avro: avro.get("logicalType", avro["type"]),
)
def test_what_arrow_cannot_say_is_repeated(avro):
    for text in (typed(["null", avro]), typed({"type": "array", "items": avro})):
        again = json.loads(arrow_to_avro(avro_to_arrow(text), "t"))["fields"][0]["type"]
        assert (again[1] if isinstance(again, list) else again["items"]) == avro


def test_a_named_type_used_twice_is_defined_once():
    enum = {"type": "enum", "name": "e", "namespace": "x", "symbols": ["A"]}
    text = record({"name": "a", "type": enum}, {"name": "b", "type": "x.e"})
    again = arrow_to_avro(avro_to_arrow(text), "t")
    fastavro.parse_schema(json.loads(again))
    assert [field["type"] for field in json.loads(again)["fields"]] == [enum, "x.e"]


def test_a_kept_type_is_dropped_when_the_column_changed():
    field = avro_to_arrow(typed(["null", {"type": "string", "logicalType": "uuid"}])).field("c")
    text = json.loads(arrow_to_avro(pa.schema([field.with_type(pa.int64())]), "t"))
    assert text["fields"][0]["type"] == ["null", "long"]


def test_docs_and_defaults_survive():
    text = record(
        {"name": "a", "type": ["int", "null"], "doc": "caf\u00e9", "default": 0},
        {"name": "b", "type": "string", "default": "x"},
        {"name": "c", "type": ["null", "string"], "default": None},
    )
    schema = avro_to_arrow(text)
    assert schema.field("a").metadata[AVRO_DOC] == "café".encode()
    again = json.loads(arrow_to_avro(schema, "t"))
    assert again["fields"] == json.loads(text)["fields"]
    fastavro.parse_schema(again)


def test_names_are_found_in_their_namespace():
    inner = {"type": "record", "name": "p", "namespace": "x.y", "fields": [{"name": "v", "type": ["null", "int"]}]}
    for reference in ("x.y.p",):
        schema = avro_to_arrow(record({"name": "a", "type": inner}, {"name": "b", "type": ["null", reference]}))
        assert schema.field("b").type == schema.field("a").type == pa.struct([("v", pa.int32())])
    bare = {"type": "record", "name": "p", "fields": [{"name": "v", "type": "int"}]}
    schema = avro_to_arrow(
        record({"name": "a", "type": bare}, {"name": "b", "type": "p"}, {"name": "c", "type": "n.p"})
    )
    assert schema.field("a").type == schema.field("b").type == schema.field("c").type
    fastavro.parse_schema(json.loads(arrow_to_avro(schema, "t")))


# --------------------------------------------------------------------------------------------- what cannot be a table


@pytest.mark.parametrize(
    ("avro", "stored"),
    [
        (
            {"type": "record", "name": "v", "logicalType": "variant", "fields": [{"name": "m", "type": "bytes"}]},
            pa.struct([pa.field("m", pa.binary(), nullable=False)]),
        ),
        ({"type": "fixed", "name": "v", "size": 8, "logicalType": "vector", "dimension": 2}, pa.binary(8)),
        (
            {"type": "array", "items": "int", "logicalType": "of tomorrow"},
            pa.list_(pa.field("element", pa.int32(), False)),
        ),
        ({"type": "map", "values": "int", "logicalType": "of tomorrow"}, None),
        ({"type": "long", "logicalType": "of tomorrow"}, pa.int64()),
    ],
    ids=str,
)
def test_newer_types_are_passed_on_as_they_are_stored(avro, stored):
    text = json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": "c", "type": ["null", avro], "default": None}]}
    )
    schema = avro_to_arrow(text)
    assert stored is None or schema.field("c").type == stored
    written = json.loads(arrow_to_avro(schema, "t"))["fields"][0]["type"][1]
    assert avro.items() <= written.items()


@pytest.mark.parametrize(
    "avro",
    [
        ["null", "int", "string"],
        ["int", "string"],
        ["null"],
        ["null", ["null", "int"]],
        "null",
        {"type": "long", "logicalType": "timestamp-nanos"},
        {"type": "bytes", "logicalType": "decimal", "precision": 39},
        {"type": "record", "name": "r2", "fields": [{"name": "again", "type": ["null", "r2"]}]},
        {"type": "record", "name": "empty", "fields": []},
        ["null", "n.r"],
    ],
    ids=str,
)
def test_what_cannot_be_read_is_named(avro):
    with pytest.raises(UnsupportedFeature, match="'c"):
        read(avro)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        '"string"',
        "[]",
        "{}",
        '{"type": "record"}',
        '{"type": "record", "name": "r"}',
        '{"type": "record", "name": "r", "fields": {}}',
        '{"type": "record", "name": "r", "fields": [1]}',
        '{"type": "record", "name": 1, "fields": []}',
        '{"type": "record", "name": "r", "namespace": 1, "fields": []}',
        '{"type": "enum", "name": "r", "symbols": []}',
        record({"name": "c"}),
        record({"type": "int"}),
        record({"name": "", "type": "int"}),
        record({"name": "\ud800", "type": "int"}),
        record({"name": "x" * 2000, "type": "int"}),
        record({"name": "a", "type": "int"}, {"name": "a", "type": "int"}),
        typed(None),
        typed([]),
        typed(7),
        typed({}),
        typed({"type": None}),
        typed("partition_changed"),
        typed({"type": "partition_changed"}),
        typed({"type": "array"}),
        typed({"type": "map"}),
        typed({"type": "int", "logicalType": ["date"]}),
        typed({"type": "fixed", "name": "f"}),
        typed({"type": "fixed", "name": "f", "size": 0}),
        typed({"type": "fixed", "name": "f", "size": True}),
        typed({"type": "fixed", "name": "f", "size": 1 << 40}),
        typed({"type": "fixed", "name": "f", "size": "4"}),
        typed({"type": "fixed", "size": 4}),
        typed({"type": "bytes", "logicalType": "decimal"}),
        typed({"type": "bytes", "logicalType": "decimal", "precision": 0}),
        typed({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 6}),
        typed({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": -1}),
        typed({"type": "bytes", "logicalType": "decimal", "precision": 5.5}),
        '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int", "default": NaN}]}',
        record(
            {"name": "a", "type": {"type": "fixed", "name": "f", "size": 4}},
            {"name": "b", "type": {"type": "fixed", "name": "f", "size": 5}},
        ),
    ],
)
def test_malformed_text_is_refused(text):
    with pytest.raises(CorruptFile):
        avro_to_arrow(text)


def test_text_that_is_too_long_is_not_parsed():
    with pytest.raises(CorruptFile, match="characters"):
        avro_to_arrow(" " * (17 << 20))


@pytest.mark.parametrize("depth", [100, 5_000, 200_000])
def test_depth_is_bounded(depth):
    for opening, closing in (('{"type":"array","items":', "}"), ('{"type":', "}"), ("[", "]")):
        text = (
            f'{{"type":"record","name":"r","fields":[{{"name":"c","type":{opening * depth}"int"{closing * depth}}}]}}'
        )
        with pytest.raises((CorruptFile, UnsupportedFeature)):
            avro_to_arrow(text)


def test_names_that_multiply_are_bounded():
    kind: dict[str, object] = {"type": "record", "name": "r0", "fields": [{"name": "v", "type": "int"}]}
    for level in range(1, 40):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"r{level - 1}"}]
        kind = {"type": "record", "name": f"r{level}", "fields": fields}
    with pytest.raises(CorruptFile, match="too many types"):
        avro_to_arrow(json.dumps(kind))
