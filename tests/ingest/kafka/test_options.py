"""Settings of a topic: Hudi's names in both prefixes, the Java client's, librdkafka's, and that secrets are never shown."""

from __future__ import annotations

import base64

import pytest

from lakefmt._core.ingest.kafka.options import parse_kafka_options
from lakefmt.errors import UnknownSetting

TOPIC = {"hoodie.streamer.source.kafka.topic": "t", "bootstrap.servers": "b:1"}


@pytest.mark.parametrize("prefix", ["hoodie.streamer.", "hoodie.deltastreamer."])
@pytest.mark.parametrize(
    ("name", "text", "option", "value"),
    [
        ("source.kafka.topic", "u", "topic", "u"),
        ("source.kafka.checkpoint.type", "TIMESTAMP", "checkpoint_type", "timestamp"),
        ("source.kafka.enable.failOnDataLoss", "false", "skips_lost", True),
        ("source.kafka.enable.failOnDataLoss", "true", "skips_lost", False),
        ("source.kafka.enable.commit.offset", "true", "commits_offsets", True),
        ("source.kafka.append.offsets", "true", "has_offsets", True),
        ("source.kafka.fetch_partition.time.out", "5000", "seconds", 5.0),
        ("kafka.source.maxEvents", "7", "most_messages", 7),
    ],
)
def test_hudis_names_are_understood_with_either_prefix(prefix, name, text, option, value):
    given = {"bootstrap.servers": "b:1", f"{prefix}source.kafka.topic": "t", f"{prefix}{name}": text}
    assert getattr(parse_kafka_options(given), option) == value


@pytest.mark.parametrize(
    ("source_class", "form"),
    [
        ("org.apache.hudi.utilities.sources.JsonKafkaSource", "json"),
        ("org.apache.hudi.utilities.sources.AvroKafkaSource", "avro"),
        ("org.apache.hudi.utilities.sources.ProtoKafkaSource", "protobuf"),
        ("org.apache.hudi.utilities.sources.debezium.PostgresDebeziumSource", "debezium"),
        ("org.apache.hudi.utilities.sources.debezium.MysqlDebeziumSource", "debezium"),
    ],
)
@pytest.mark.parametrize("name", ["source-class", "source_class"])
def test_hudis_class_of_a_source_says_the_format_unless_something_else_does(name, source_class, form):
    assert parse_kafka_options({**TOPIC, name: source_class}).format == form
    assert parse_kafka_options({**TOPIC, name: source_class, "lakefmt.ingest.kafka.format": "text"}).format == "text"


def test_settings_of_the_client_are_passed_on_and_those_of_java_alone_are_not():
    options = parse_kafka_options(
        {
            **TOPIC,
            "security.protocol": "SASL_SSL",
            "sasl.jaas.config": 'o.a.k.PlainLoginModule required username="me" password="s3c\'ret";',
            "ssl.truststore.location": "/trust.jks",
            "ssl.truststore.password": "s3cret",
            "kafka.ssl.ca.location": "/ca.pem",
            "kafka.fetch.wait.max.ms": "7",
            "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
            "max.poll.records": "500",
            "hoodie.datasource.write.recordkey.field": "id",
        }
    )
    assert dict(options.client) == {
        "sasl.username": "me",
        "sasl.password": "s3c'ret",
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/ca.pem",
        "fetch.wait.max.ms": "7",
    }
    assert "s3c" not in repr(options)


def test_a_store_of_java_without_certificates_that_can_be_read_is_refused():
    with pytest.raises(UnknownSetting, match=r"ssl\.truststore\.location names a store of Java"):
        parse_kafka_options({**TOPIC, "ssl.truststore.location": "/trust.jks"})


def test_a_url_names_brokers_and_topic():
    options = parse_kafka_options({"hoodie.streamer.source.kafka.topic": "kafka://a:1,b:2/orders"})
    assert (options.client["bootstrap.servers"], options.topic) == ("a:1,b:2", "orders")


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"schema.registry.url": "http://r:1/,http://s:2"}, "http://r:1/"),
        (
            {"hoodie.deltastreamer.schemaprovider.registry.url": "http://r:1/subjects/t-value/versions/latest"},
            "http://r:1",
        ),
        ({"hoodie.streamer.schemaprovider.registry.url": "https://me:s3cret@r/x/subjects/t/versions/1"}, "https://r/x"),
    ],
)
def test_a_registry_is_where_its_schemas_have_ids(given, url):
    options = parse_kafka_options({**TOPIC, **given})
    assert options.registry == url
    assert "s3cret" not in repr(options)
    if "me:" in str(given):
        login = base64.b64encode(b"me:s3cret").decode()
        assert dict(options.registry_headers) == {"Authorization": f"Basic {login}"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lakefmt.ingest.kafka.colour": "red"}, "is no setting: behind lakefmt.ingest.kafka. stands one of"),
        ({"lakefmt.ingest.kafka.format": "xml"}, "expected one of json"),
        ({"auto.offset.reset": "never"}, "expected one of latest"),
        ({"auto.offset.reset": "group"}, "needs group.id"),
        ({"hoodie.streamer.source.kafka.enable.failOnDataLoss": "maybe"}, "expected one of true, false"),
        ({"hoodie.streamer.kafka.source.maxEvents": "0"}, "a whole number of at least 1"),
        ({"kafka.enable.auto.commit": "true"}, "a table's commits say where its job is"),
        ({"kafka.auto.offset.reset": "latest"}, "cannot be set"),
    ],
)
def test_settings_without_a_meaning_are_refused(given, message):
    with pytest.raises(UnknownSetting) as raised:
        parse_kafka_options({**TOPIC, **given})
    assert message in str(raised.value)
