"""Settings of a topic as a source: Hudi's names, the client's, and a few of lakefmt's own (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote

from lakefmt._core.arguments import shown
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import UnknownSetting

__all__ = ["FORMATS", "KafkaOptions", "parse_kafka_options"]

FORMATS: Final = ("json", "avro", "protobuf", "debezium", "text", "bytes")
#: The end of Hudi's class of a source → the format of its messages.
_SOURCE_CLASSES: Final = {
    "JsonKafkaSource": "json",
    "AvroKafkaSource": "avro",
    "ProtoKafkaSource": "protobuf",
    "MysqlDebeziumSource": "debezium",
    "PostgresDebeziumSource": "debezium",
}
_CLASS_NAMES: Final = (
    "source-class",
    "source_class",
    "hoodie.streamer.source.class",
    "hoodie.deltastreamer.source.class",
)
_OWN: Final = "lakefmt.ingest.kafka."
_HUDI: Final = "hoodie.streamer."
_OLDER: Final = "hoodie.deltastreamer."
_PASSED_ON: Final = "kafka."
#: Settings of the client that stand among Hudi's without a prefix.
_CLIENT: Final = re.compile(
    r"bootstrap\.servers|security\.protocol|(sasl|ssl|enable\.ssl)\..+|isolation\.level|client\.(id|rack)|group\.id|check\.crcs"
    r"|fetch\.(min|max)\.bytes|fetch\.wait\.max\.ms|max\.partition\.fetch\.bytes|(socket|reconnect|metadata|broker)\..+"
)
#: Of the Java client alone: what they are about is no matter here, or is decided here.
_JAVA_ALONE: Final = frozenset(
    {"sasl.client.callback.handler.class", "ssl.protocol", "ssl.enabled.protocols", "ssl.cipher.suites"}
)
_JAVA_STORES: Final = re.compile(
    r"ssl\.(truststore|keystore|key|trustmanager|keymanager)\.(location|password|type|algorithm)"
)
#: What the client is told here, whatever is given.
_DECIDED: Final = frozenset(
    {
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "auto.offset.reset",
        "partition.assignment.strategy",
    }
)
#: Messages of a round that may delete rows.
_MOST_WITH_DELETES: Final = 500_000
_URL: Final = re.compile(r"kafka://([^/@]+)/([^/]+)")
_JAAS: Final = re.compile(r"(username|password)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)')")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """What a topic is and how its messages become rows.

    Attributes:
        topic: its name.
        client: settings of librdkafka; they may hold secrets and are never shown.
        format: of the messages, one of :data:`FORMATS`.
        start: where a job without a checkpoint begins: ``earliest``, ``latest`` or ``group``, the group's offsets. Hudi's default is
            ``latest``; here no table can be made before there are rows, so every run would begin at another end.
        checkpoint_type: of a checkpoint that somebody gives: ``string``, ``timestamp`` or ``single_offset``.
        skips_lost: messages that are gone are left out; False: they end the job.
        most_messages: of one round; by default fewer where messages delete rows, for such a round is held in memory.
        commits_offsets: the group's offsets follow the table, for others to look at.
        registry: the URL of the schemas' registry; empty: none.
        subject: of the schemas of the values; empty: the topic's name with ``-value`` behind it.
        registry_headers: sent to it; they may hold secrets and are never shown.
        null_values: ``skip`` or ``delete``: what a message without a value does.
        has_offsets: the rows have the columns of Hudi's ``append.offsets``.
        has_headers: the rows have the messages' headers.
        key_column: the column that the message's key goes into; empty: none.
        value_column: the column of the value, in the formats text and bytes.
        descriptors: a file of descriptors, for Protobuf.
        message: the full name of a message in it.
        seconds: the longest time without an answer.
        batch_rows: the most rows of a batch.
        batch_bytes: about the most bytes of a batch's messages.
    """

    topic: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    format: str = "json"
    start: str = "earliest"
    checkpoint_type: str = "string"
    skips_lost: bool = False
    most_messages: int = 5_000_000
    commits_offsets: bool = False
    registry: str = ""
    subject: str = ""
    registry_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    null_values: str = "skip"
    has_offsets: bool = False
    has_headers: bool = False
    key_column: str = ""
    value_column: str = "value"
    descriptors: str = ""
    message: str = ""
    seconds: float = 60.0
    batch_rows: int = 50_000
    batch_bytes: int = 32 << 20


def _choice(*values: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.lower() not in values:
            raise ValueError(f"expected one of {', '.join(values)}")
        return value.lower()

    return parse


def _flag(value: str) -> bool:
    return _choice("true", "false")(value) == "true"


def _number(least: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", value) or int(value) < least:
            raise ValueError(f"expected a whole number of at least {least}")
        return int(value)

    return parse


#: Hudi's name behind its prefix → the option, and how its text is read.
_OF_HUDI: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "source.kafka.topic": ("topic", str),
    "source.kafka.checkpoint.type": ("checkpoint_type", _choice("string", "timestamp", "single_offset")),
    "source.kafka.enable.failOnDataLoss": ("skips_lost", lambda text: not _flag(text)),
    "source.kafka.enable.commit.offset": ("commits_offsets", _flag),
    "source.kafka.append.offsets": ("has_offsets", _flag),
    "source.kafka.fetch_partition.time.out": ("seconds", lambda text: _number(1)(text) / 1000),
    "kafka.source.maxEvents": ("most_messages", _number(1)),
}
_OF_LAKEFMT: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "format": ("format", _choice(*FORMATS)),
    "null.values": ("null_values", _choice("skip", "delete")),
    "headers": ("has_headers", _flag),
    "key.column": ("key_column", str),
    "value.column": ("value_column", str),
    "protobuf.descriptors": ("descriptors", str),
    "protobuf.message": ("message", str),
    "timeout.seconds": ("seconds", _number(1)),
    "batch.rows": ("batch_rows", _number(1)),
    "batch.bytes": ("batch_bytes", _number(1)),
}


def parse_kafka_options(properties: Mapping[str, str]) -> KafkaOptions:
    """Return the options of a topic from a job's properties; those of other parts of the job are passed over.

    Args:
        properties: ``hoodie.streamer.*`` and the older ``hoodie.deltastreamer.*``, settings of the client as Hudi has them, settings of
            librdkafka as ``kafka.*``, and ``lakefmt.ingest.kafka.*``.

    Raises:
        UnknownSetting: a setting is missing, unknown, or its text has no meaning.

    Example:
        >>> options = parse_kafka_options({
        ...     "hoodie.deltastreamer.source.kafka.topic": "orders", "bootstrap.servers": "localhost:9092",
        ...     "kafka.sasl.password": "s3cret", "auto.offset.reset": "earliest"})
        >>> options.topic, options.start, "s3cret" in repr(options)
        ('orders', 'earliest', False)
    """
    values: dict[str, Any] = {}
    for name, value in properties.items():
        if name.startswith((_HUDI, _OLDER)):
            rule = _OF_HUDI.get(name.removeprefix(_HUDI).removeprefix(_OLDER))
        elif name.startswith(_OWN):
            rule = _OF_LAKEFMT.get(name.removeprefix(_OWN))
            if rule is None:
                known = ", ".join(sorted(_OF_LAKEFMT))
                raise UnknownSetting(f"{shown(name)} is no setting: behind {_OWN} stands one of {known}")
        else:
            rule = ("start", _choice("latest", "earliest", "group")) if name == "auto.offset.reset" else None
        if rule is not None:
            values[rule[0]] = _parsed(name, value, rule[1])
    source_class = next((value for name, value in properties.items() if name in _CLASS_NAMES), "")
    if "format" not in values and (form := _SOURCE_CLASSES.get(source_class.rpartition(".")[2])):
        values["format"] = form
    if not values.get("topic"):
        raise UnknownSetting("a topic of Kafka needs hoodie.streamer.source.kafka.topic")
    client = _client_settings(properties)
    if address := _URL.fullmatch(values["topic"]):
        values["topic"], client["bootstrap.servers"] = address[2], address[1]
    if not client.get("bootstrap.servers"):
        raise UnknownSetting("a topic of Kafka needs bootstrap.servers, or kafka://host:9092/topic as its source")
    if values.get("start") == "group" and "group.id" not in client:
        raise UnknownSetting("auto.offset.reset=group needs group.id")
    registry, subject, headers = _registry(properties)
    if values.get("format") == "debezium" or values.get("null_values") == "delete":
        values.setdefault("most_messages", _MOST_WITH_DELETES)
    return KafkaOptions(
        **values,
        client=MappingProxyType(client),
        registry=registry,
        subject=subject,
        registry_headers=MappingProxyType(headers),
    )


def _parsed(name: str, value: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(value.strip())
    except ValueError as error:
        raise UnknownSetting(f"{name}={shown(value)}: {error}") from None


def _streamer_value(properties: Mapping[str, str], name: str) -> str | None:
    return properties.get(_HUDI + name) or properties.get(_OLDER + name)


def _client_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of librdkafka: what has no prefix first, so that ``kafka.*`` prevails."""
    client = {
        name: value.strip()
        for name, value in properties.items()
        if _CLIENT.fullmatch(name) and name not in _JAVA_ALONE and not _JAVA_STORES.fullmatch(name)
    }
    passed_on = {
        name.removeprefix(_PASSED_ON): value.strip()
        for name, value in properties.items()
        if name.startswith(_PASSED_ON)
    }
    stores = sorted(name for name in properties if _JAVA_STORES.fullmatch(name) and name.endswith(".location"))
    if stores and not {"ssl.ca.location", "ssl.ca.pem"} & {*client, *passed_on}:
        raise UnknownSetting(
            f"{stores[0]} names a store of Java, which librdkafka cannot read: give the certificates as a PEM file in "
            "kafka.ssl.ca.location (and kafka.ssl.certificate.location, kafka.ssl.key.location)"
        )
    jaas = client.pop("sasl.jaas.config", "") or passed_on.pop("sasl.jaas.config", "")
    login = {f"sasl.{match[1]}": match[2] or match[3] or "" for match in _JAAS.finditer(jaas)}
    decided = sorted(_DECIDED & passed_on.keys())
    if decided:
        raise UnknownSetting(f"kafka.{decided[0]} cannot be set: a table's commits say where its job is")
    return {**login, **client, **passed_on}


def _registry(properties: Mapping[str, str]) -> tuple[str, str, dict[str, str]]:
    """Return the registry's URL, the subject that it names, and its headers."""
    import base64

    url = properties.get("schema.registry.url") or _streamer_value(properties, "schemaprovider.registry.url") or ""
    url = url.split(",")[0].strip()
    login = properties.get("schema.registry.basic.auth.user.info") or properties.get("basic.auth.user.info") or ""
    inside = re.match(r"(https?://)([^/@]+)@", url)
    if inside is not None:
        url, login = url.replace(f"{inside[2]}@", "", 1), login or inside[2]
    # Hudi names the schema, as …/subjects/<name>/versions/latest; ids are looked up beside it.
    subject_match = re.search(r"/subjects/([^/]+)/versions/", url)
    subject = "" if subject_match is None else unquote(subject_match[1])
    url = re.sub(r"/subjects/.*$", "", url)
    return url, subject, {"Authorization": f"Basic {base64.b64encode(login.encode()).decode('ascii')}"} if login else {}
