"""Messages in Protobuf, by descriptors: types, absent fields, frames, and what cannot be read."""

from __future__ import annotations

import datetime as dt
import json
import urllib.request
from decimal import Decimal

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.ingest.kafka.decoding import ProtobufMessages, RegisteredMessages, without_frame
from lakefmt._core.ingest.kafka.source import open_kafka_source
from lakefmt.errors import FormatError, InvalidInputError, UnknownSetting, UnsupportedFeature

F = descriptor_pb2.FieldDescriptorProto


def field(name, number, kind, *, repeated=False, optional=None, type_name=None):
    made = F(name=name, number=number, type=kind, label=F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL)
    if optional is not None:
        made.proto3_optional, made.oneof_index = True, optional
    if type_name is not None:
        made.type_name = type_name
    return made


def descriptors():
    """shop.Order, as `protoc --include_imports` writes it."""
    order = descriptor_pb2.DescriptorProto(name="Order")
    order.field.extend(
        [
            field("id", 1, F.TYPE_INT64),
            field("note", 2, F.TYPE_STRING, optional=0),
            field("tags", 3, F.TYPE_STRING, repeated=True),
            field("at", 4, F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp"),
            field("place", 5, F.TYPE_MESSAGE, type_name=".shop.Order.Place"),
            field("state", 6, F.TYPE_ENUM, type_name=".shop.State"),
            field("big", 7, F.TYPE_UINT64),
            field("raw", 8, F.TYPE_BYTES),
            field("counts", 9, F.TYPE_MESSAGE, repeated=True, type_name=".shop.Order.CountsEntry"),
            field("price", 10, F.TYPE_MESSAGE, type_name=".google.protobuf.DoubleValue"),
            field("small", 11, F.TYPE_UINT32),
            field("ok", 12, F.TYPE_BOOL),
        ]
    )
    order.oneof_decl.add(name="_note")
    place = order.nested_type.add(name="Place")
    place.field.extend([field("city", 1, F.TYPE_STRING), field("x", 2, F.TYPE_FLOAT)])
    entry = order.nested_type.add(name="CountsEntry")
    entry.field.extend([field("key", 1, F.TYPE_STRING), field("value", 2, F.TYPE_INT32)])
    entry.options.map_entry = True
    shop = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    shop.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    shop.message_type.append(order)
    loop = shop.message_type.add(name="Loop")
    loop.field.append(field("next", 1, F.TYPE_MESSAGE, type_name=".shop.Loop"))
    state = shop.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    files = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    files.file.append(shop)
    return files


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("protobuf") / "shop.desc"
    path.write_bytes(descriptors().SerializeToString())
    return str(path)


@pytest.fixture(scope="module")
def order_class():
    pool = descriptor_pool.DescriptorPool()
    for each in descriptors().file:
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_each_type_of_a_field_has_its_type_here(file, order_class):
    order = order_class(id=7, note="", tags=["a", "b"], state=1, big=2**64 - 1, raw=b"\xff", small=2**32 - 1, ok=True)
    order.at.FromDatetime(dt.datetime(2024, 1, 2, 3, 4, 5, 6))
    order.place.city, order.place.x = "Zürich", 0.5
    order.counts["k"] = -3
    order.price.value = 1.25
    found = ProtobufMessages(file, "shop.Order").decode([None], [order.SerializeToString()])
    assert found.rows.to_pylist() == [
        {
            "id": 7,
            "note": "",
            "tags": ["a", "b"],
            "at": dt.datetime(2024, 1, 2, 3, 4, 5, 6, dt.UTC),
            "place": {"city": "Zürich", "x": 0.5},
            "state": "PAID",
            "big": Decimal(2**64 - 1),
            "raw": b"\xff",
            "counts": [("k", -3)],
            "price": 1.25,
            "small": 2**32 - 1,
            "ok": True,
        }
    ]
    assert found.rows.schema.field("big").type == pa.decimal128(20, 0)


def test_absent_fields_are_null_where_absence_can_be_told_and_defaults_elsewhere(file):
    (row,) = ProtobufMessages(file, "shop.Order").decode([None], [b""]).rows.to_pylist()
    assert {name for name, value in row.items() if value is None} == {"note", "at", "place", "price"}
    assert (row["id"], row["state"], row["tags"], row["ok"]) == (0, "NEW", [], False)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(exclude_categories=("Cs",))))))
def test_rows_are_those_that_were_written_with_and_without_frames(file, order_class, rows):
    frames = [b"", b"\0\0\0\0\x07\0", b"\0\0\0\0\x07\x02\x00"]
    values = [
        frames[n % 3] + order_class(id=each, note=text).SerializeToString() for n, (each, text) in enumerate(rows)
    ]
    found = ProtobufMessages(file, "shop.Order").decode([None] * len(values), values)
    assert [(row["id"], row["note"]) for row in found.rows.to_pylist()] == rows
    assert not found.rejected


def test_what_is_no_such_message_is_rejected(file, order_class):
    good = order_class(id=1).SerializeToString()
    values = [good, b"\x0a", b"\0\0\0", b"\0\0\0\0\1\xff\xff\xff\xff\xff", b"\xff\xff", good]
    found = ProtobufMessages(file, "shop.Order").decode([None] * len(values), values)
    assert found.places.tolist() == [0, 5]
    assert [place for place, _ in found.rejected] == [1, 2, 3, 4]
    with pytest.raises(FormatError, match="cut off"):
        without_frame(b"\0\0\0\0\1")


def test_descriptors_that_are_none_and_messages_that_no_table_has_are_refused(file, tmp_path):
    with pytest.raises(InvalidInputError, match=r"has no message 'shop\.Nothing'"):
        ProtobufMessages(file, "shop.Nothing")
    with pytest.raises(UnsupportedFeature, match="holds itself"):
        ProtobufMessages(file, "shop.Loop")
    (tmp_path / "junk").write_bytes(b"junk" * 10)
    with pytest.raises(InvalidInputError):
        ProtobufMessages(str(tmp_path / "junk"), "shop.Order")
    with pytest.raises(InvalidInputError, match="is no file"):
        ProtobufMessages(str(tmp_path / "nowhere"), "shop.Order")
    with pytest.raises(UnknownSetting, match=r"protobuf\.descriptors"):
        open_kafka_source(
            {
                "hoodie.streamer.source.kafka.topic": "t",
                "bootstrap.servers": "b",
                "lakefmt.ingest.kafka.format": "protobuf",
            }
        )


@pytest.mark.slow
def test_a_topic_of_protobuf(kafka, file, order_class):
    topic = kafka.create_topic()
    kafka.send_values(topic, [order_class(id=number).SerializeToString() for number in range(1, 6)] + [b"\x0a"])
    source = open_kafka_source(
        {
            "hoodie.streamer.source.kafka.topic": topic,
            "bootstrap.servers": kafka.address,
            "source-class": "org.apache.hudi.utilities.sources.ProtoKafkaSource",
            "lakefmt.ingest.kafka.protobuf.descriptors": file,
            "lakefmt.ingest.kafka.protobuf.message": "shop.Order",
        }
    )
    (batch,) = source.plan(None, None).batches()
    assert batch.rows["id"].to_pylist() == [1, 2, 3, 4, 5]
    assert batch.rejected["origin"].to_pylist() == [f"{topic}-0@5"]


# ------------------------------------------------------------------------------------------------- schemas of a registry

COMMON = 'syntax = "proto3"; package shop.common; message City { string name = 1; }'
FIRST = """syntax = "proto3"; package shop; import "shop/common.proto"; import "google/protobuf/timestamp.proto";
message Other { int64 x = 1; message Inner { bool ok = 1; } }
message Sale { int64 id = 1; shop.common.City city = 2; google.protobuf.Timestamp at = 3; }"""
SECOND = FIRST.replace("at = 3; }", "at = 3; optional string note = 4; }")


class Texts:
    """A registry."""

    def __init__(self, schemas):
        self._schemas, self.asked = schemas, []

    def texts(self, number):
        self.asked.append(number)
        if number not in self._schemas:
            raise FormatError(f"the registry has no schema {number}")
        return self._schemas[number]


def framed(number, path, body):
    return b"\0" + number.to_bytes(4, "big") + path + body


def test_messages_of_a_registry_are_read_by_their_schema_and_its_place():
    pytest.importorskip("grpc_tools", reason="protoc compiles the texts of a registry: pip install grpcio-tools")
    registry = Texts(
        {7: {"": FIRST, "shop/common.proto": COMMON}, 9: {"": SECOND, "shop/common.proto": COMMON}, 5: {"": "no"}}
    )
    sale, inner = b"\x08\x05\x12\x06\x0a\x04Oslo", b"\x08\x01"
    values = [
        framed(7, b"\x02\x02", sale),
        framed(9, b"\x02\x02", sale + b"\x22\x01n"),
        framed(8, b"\0", sale),
        framed(7, b"\x02\x08", sale),
        sale,
        framed(5, b"\0", sale),
        framed(7, b"\x02\x02", b"\x08"),
    ]
    messages = RegisteredMessages(registry)
    found = messages.decode([None] * len(values), values)
    city = {"name": "Oslo"}
    assert [{k: v for k, v in row.items() if v is not None} for row in found.rows.to_pylist()] == [
        {"id": 5, "city": city},
        {"id": 5, "city": city, "note": "n"},
    ]
    assert found.places.tolist() == [0, 1]
    reasons = dict(found.rejected)
    assert sorted(reasons) == [2, 3, 4, 5, 6]
    assert "has no schema 8" in reasons[2]
    assert "no message at [4]" in reasons[3]
    assert reasons[4] == "no number of a schema in front"
    assert "cannot be compiled" in reasons[5]
    nested = messages.decode([None], [framed(7, b"\x04\x00\x00", inner)])
    assert nested.rows.to_pylist() == [{"ok": True}]
    assert registry.asked.count(7) == 1


@pytest.mark.parametrize("name", ["/etc/x.proto", "../x.proto", "a/../../x.proto", "lakefmt_main.proto", "x"])
def test_an_import_leaves_no_folder(name):
    pytest.importorskip("grpc_tools", reason="protoc compiles the texts of a registry: pip install grpcio-tools")
    messages = RegisteredMessages(Texts({1: {"": FIRST, name: COMMON}}))
    found = messages.decode([None], [framed(1, b"\0", b"")])
    assert "is no name of a file" in found.rejected[0][1]


def test_protoc_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UnsupportedFeature, match="pip install grpcio-tools"):
        RegisteredMessages(Texts({}))


@pytest.mark.slow
@pytest.mark.test_all
def test_protobuf_with_a_real_registry(kafka, registry):
    pytest.importorskip("grpc_tools", reason="protoc compiles the texts of a registry: pip install grpcio-tools")

    def register(subject, text, references=()):
        body = json.dumps({"schema": text, "schemaType": "PROTOBUF", "references": list(references)}).encode()
        asked = urllib.request.Request(
            f"{registry}/subjects/{subject}/versions", body, {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return int(json.load(answer)["id"])

    topic = kafka.create_topic()
    register(f"{topic}-common", COMMON)
    to_common = {"name": "shop/common.proto", "subject": f"{topic}-common", "version": 1}
    number = register(f"{topic}-value", FIRST, [to_common])
    kafka.send_values(topic, [framed(number, b"\x02\x02", b"\x08\x05\x12\x06\x0a\x04Oslo")])
    source = open_kafka_source(
        {
            "hoodie.streamer.source.kafka.topic": topic,
            "bootstrap.servers": kafka.address,
            "lakefmt.ingest.kafka.format": "protobuf",
            "schema.registry.url": registry,
        }
    )
    (batch,) = source.plan(None, None).batches()
    assert batch.rows.to_pylist() == [{"id": 5, "city": {"name": "Oslo"}, "at": None}]
