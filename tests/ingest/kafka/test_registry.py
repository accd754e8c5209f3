"""Avro with a real registry: Apicurio, through its API that Confluent's clients use."""

from __future__ import annotations

import json
import urllib.request

import pytest

from lakefmt._core.ingest.kafka.source import open_kafka_source
from lakefmt.errors import SourceUnavailable
from tests.ingest.kafka.test_messages import FIRST, SECOND, encoded
from tests.judges.kafka import free_port

pytestmark = [pytest.mark.slow, pytest.mark.test_all]


def register(url, subject, schema):
    body = json.dumps({"schema": json.dumps(schema)}).encode()
    asked = urllib.request.Request(
        f"{url}/subjects/{subject}/versions", body, {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    )
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return int(json.load(answer)["id"])


def rows_of(kafka, topic, url):
    source = open_kafka_source(
        {
            "hoodie.deltastreamer.source.kafka.topic": topic,
            "bootstrap.servers": kafka.address,
            "auto.offset.reset": "earliest",
            "source-class": "org.apache.hudi.utilities.sources.AvroKafkaSource",
            "hoodie.deltastreamer.schemaprovider.registry.url": f"{url}/subjects/{topic}-value/versions/latest",
        }
    )
    batches = list(source.plan(None, None).batches())
    rejected = [record for batch in batches if batch.rejected is not None for record in batch.rejected.to_pylist()]
    return [row for batch in batches for row in batch.rows.to_pylist()], rejected


def test_two_versions_of_a_schema_and_an_unknown_one(kafka, registry):
    topic = kafka.create_topic()
    first, second = register(registry, f"{topic}-value", FIRST), register(registry, f"{topic}-value", SECOND)
    assert first != second
    kafka.send_values(
        topic,
        [
            encoded(first, FIRST, {"id": 1, "v": "a"}),
            encoded(second, SECOND, {"id": 2, "v": None, "more": 0.5}),
            encoded(first, FIRST, {"id": 3, "v": "c"}),
            encoded(second + 1000, FIRST, {"id": 4, "v": "d"}),
        ],
    )
    rows, rejected = rows_of(kafka, topic, registry)
    assert rows == [
        {"id": 1, "v": "a", "more": None},
        {"id": 2, "v": None, "more": 0.5},
        {"id": 3, "v": "c", "more": None},
    ]
    assert [record["origin"] for record in rejected] == [f"{topic}-0@3"]
    assert f"has no schema {second + 1000}" in rejected[0]["reason"]


# Confluent's client of the registry leaves its connection to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_confluents_serializer_wrote_is_read(kafka, registry):
    schema_registry = pytest.importorskip("confluent_kafka.schema_registry", reason="needs confluent-kafka[avro]")
    avro = pytest.importorskip("confluent_kafka.schema_registry.avro", reason="needs confluent-kafka[avro]")
    from confluent_kafka.serialization import MessageField, SerializationContext

    topic = kafka.create_topic()
    serialize = avro.AvroSerializer(schema_registry.SchemaRegistryClient({"url": registry}), json.dumps(SECOND))
    context = SerializationContext(topic, MessageField.VALUE)
    rows = [{"id": number, "v": f"v{number}", "more": number / 4} for number in range(50)]
    kafka.send_values(topic, [serialize(row, context) for row in rows])
    assert rows_of(kafka, topic, registry) == (rows, [])


def test_a_registry_that_is_down_is_unavailable(kafka):
    topic = kafka.create_topic()
    kafka.send_values(topic, [encoded(1, FIRST, {"id": 1, "v": "a"})])
    with pytest.raises(SourceUnavailable, match=r"the registry .* cannot be asked"):
        rows_of(kafka, topic, f"http://127.0.0.1:{free_port()}")
