"""A topic's partitions and offsets, and its messages between two offsets; checkpoints in Hudi's form.

The library is confluent-kafka over librdkafka: it reads ten times as fast as the clients in Python and has
transactions, compression and every kind of login. It writes its log to standard error unless a logger takes it; here
one of lakefmt's does.
"""

from __future__ import annotations

import importlib
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from lakefmt._core.arguments import library, shown
from lakefmt._core.ingest.kafka.options import KafkaOptions, parse_kafka_options
from lakefmt.errors import PositionLost, SourceRefused, SourceUnavailable

__all__ = [
    "KafkaClient",
    "MessageBatch",
    "OffsetRange",
    "TopicState",
    "begin_offsets",
    "checkpoint_text",
    "list_topics",
    "parse_offsets",
    "parse_single_offset",
    "parse_timestamp",
    "plan_ranges",
    "share_limit",
]

_LOG: Final = logging.getLogger("lakefmt.kafka")
#: A consumer without a group's name cannot be made; this one is never joined.
_GROUP: Final = "lakefmt-ingest"
_MOST_AT_ONCE: Final = 5_000
#: Of messages that are taken from the client's queue at once, by the size of those before.
_BYTES_AT_ONCE: Final = 8 << 20
#: The client's own queue, in kilobytes.
_QUEUE: Final = "32768"
_SECONDS_OF_A_STEP: Final = 0.5
#: A topic's id where brokers are too old to have ids.
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"


class TopicState(NamedTuple):
    """A topic as it is.

    Attributes:
        id: which another topic of the same name does not have; empty: the brokers do not know it.
        partitions: their numbers.
    """

    id: str
    partitions: tuple[int, ...]


class MessageBatch(NamedTuple):
    """Messages in the order of their partitions, one entry in each list for each.

    Attributes:
        partitions: where each came from.
        offsets: where it stands in its partition.
        keys: their keys.
        values: their values; None: the key is deleted.
        timestamps: milliseconds since 1970; -1: not known.
        headers: names and values; empty: nobody wants them.
    """

    partitions: list[int]
    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[list[tuple[str, bytes | None]] | None]


class ClientError(Protocol):
    """The methods of a confluent_kafka error that lakefmt calls."""

    def code(self) -> int: ...
    def fatal(self) -> bool: ...
    def str(self) -> str: ...


class Message(Protocol):
    """The methods of a confluent_kafka message that lakefmt calls."""

    def __len__(self) -> int: ...
    def error(self) -> ClientError | None: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...


class KafkaClient:
    """Connections to the brokers of one topic, made when they are needed; one thread uses it."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._topic = options.topic
        self._kafka = library(lambda: importlib.import_module("confluent_kafka"), "confluent_kafka", "kafka")
        self._admin: Any = None
        self._consumer: Any = None
        self._trouble = ""

    @property
    def address(self) -> str:
        """The addresses of the brokers."""
        return self._options.client["bootstrap.servers"]

    # ------------------------------------------------------------------------------------------------ questions

    def topic_state(self) -> TopicState:
        """Return what the topic is now.

        Raises:
            SourceRefused: there is no such topic, or it may not be read.
            SourceUnavailable: the brokers do not answer.
        """
        answer = self._administrator().describe_topics(
            self._kafka.TopicCollection([self._topic]), request_timeout=self._options.seconds
        )
        description = self._result(answer[self._topic])
        number = str(getattr(description, "topic_id", None) or "")
        return TopicState("" if number == _NO_ID else number, tuple(sorted(part.id for part in description.partitions)))

    def topics(self) -> list[str]:
        """Return the names of all topics that may be seen, without the brokers' own.

        Raises:
            SourceUnavailable: the brokers do not answer.
            SourceRefused: they refuse.
        """
        try:
            names = self._administrator().list_topics(timeout=self._options.seconds).topics
        except self._kafka.KafkaException as error:
            raise self._error(error.args[0]) from None
        return sorted(name for name in names if not name.startswith("__"))

    def earliest(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return the first offset that each partition still has."""
        return self._list(dict.fromkeys(partitions, self._admin_module().OffsetSpec.earliest()))

    def latest(self, partitions: Sequence[int], *, of_open_transactions: bool = False) -> dict[int, int]:
        """Return the offset behind the last message of each partition, and before its first open transaction unless those count."""
        return self._list(
            dict.fromkeys(partitions, self._admin_module().OffsetSpec.latest()),
            uncommitted=of_open_transactions,
        )

    def at_time(self, partitions: Sequence[int], millis: int) -> dict[int, int]:
        """Return the first offset of each partition that is not older than a time; -1: there is none."""
        return self._list(dict.fromkeys(partitions, self._admin_module().OffsetSpec.for_timestamp(millis)))

    def _list(self, specifications: Mapping[int, Any], *, uncommitted: bool = False) -> dict[int, int]:
        if not specifications:
            return {}
        level = self._kafka.IsolationLevel
        is_uncommitted = uncommitted or self._options.client.get("isolation.level") == "read_uncommitted"
        answer = self._administrator().list_offsets(
            {
                self._topic_partition(partition, None): specification
                for partition, specification in specifications.items()
            },
            isolation_level=level.READ_UNCOMMITTED if is_uncommitted else level.READ_COMMITTED,
            request_timeout=self._options.seconds,
        )
        return {
            topic_partition.partition: int(self._result(future).offset) for topic_partition, future in answer.items()
        }

    def group_offsets(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return what the group of the settings has committed, of the partitions of which it has."""
        try:
            topic_partitions = self._reader().committed(
                [self._topic_partition(partition, None) for partition in partitions], timeout=self._options.seconds
            )
        except self._kafka.KafkaException as error:
            raise self._error(error.args[0]) from None
        return {
            topic_partition.partition: topic_partition.offset
            for topic_partition in topic_partitions
            if topic_partition.offset >= 0
        }

    def commit_group_offsets(self, offsets: Mapping[int, int]) -> None:
        """Tell the group's offsets to the brokers, for people who look at lags; what goes wrong is logged."""
        topic_partitions = [self._topic_partition(partition, offset) for partition, offset in offsets.items()]
        try:
            self._reader().commit(offsets=topic_partitions, asynchronous=False)
        except self._kafka.KafkaException as error:
            _LOG.warning("the group's offsets are not committed: %s", error.args[0].str())

    # ------------------------------------------------------------------------------------------------- messages

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[MessageBatch]:
        """Yield the messages of some ranges, in batches of bounded size.

        The end of a range need not be a message's offset: marks of transactions and what compaction removed have offsets, too. A range
        is done when its last message, one behind it, or the partition's end behind it was seen.

        Raises:
            PositionLost: messages of a range were removed since it was planned.
            SourceUnavailable: nothing comes any more.
            SourceRefused: the topic is gone, or may not be read.
        """
        end_by_partition = {each.partition: each.end for each in ranges if each.end > each.begin}
        if not end_by_partition:
            return
        consumer = self._reader()
        consumer.assign(
            [self._topic_partition(each.partition, each.begin) for each in ranges if each.partition in end_by_partition]
        )
        try:
            yield from self._read(consumer, end_by_partition)
        finally:
            if self._consumer is consumer:
                # Partitions stay paused beyond their assignment.
                consumer.resume(
                    [self._topic_partition(each.partition, None) for each in ranges if each.end > each.begin]
                )
                consumer.unassign()

    def _read(self, consumer: Any, end_by_partition: dict[int, int]) -> Iterator[MessageBatch]:
        messages: list[Message] = []
        size = number = 0
        deadline = time.monotonic() + self._options.seconds
        at_once = 500
        while end_by_partition:
            arrivals = consumer.consume(1, _SECONDS_OF_A_STEP)
            if not arrivals:
                if time.monotonic() > deadline:
                    raise SourceUnavailable(self._silence(end_by_partition))
                continue
            deadline = time.monotonic() + self._options.seconds
            arrivals += consumer.consume(at_once, 0)
            new_messages, size_of_them = self._take(consumer, arrivals, end_by_partition)
            messages += new_messages
            size += size_of_them
            number += len(arrivals)
            at_once = max(1, min(_MOST_AT_ONCE, _BYTES_AT_ONCE * len(arrivals) // (size_of_them + 1)))
            if len(messages) >= self._options.batch_rows or size >= self._options.batch_bytes:
                yield self._batch(messages)
                messages, size = [], 0
        if messages:
            yield self._batch(messages)

    def _take(
        self, consumer: Any, arrivals: Sequence[Message], end_by_partition: dict[int, int]
    ) -> tuple[list[Message], int]:
        """Return the messages that belong to the ranges, and their bytes; finished ranges leave `end_by_partition`."""
        messages = []
        size = 0
        for message in arrivals:
            partition, offset = message.partition(), message.offset()
            error = message.error()
            if error is not None and error.code() != self._kafka.KafkaError._PARTITION_EOF:
                self._look_at(error, partition, end_by_partition)
                continue
            end = end_by_partition.get(partition)
            if end is None:
                continue
            if error is None and offset < end:
                messages.append(message)
                size += len(message)
                offset += 1  # the next one
            if offset >= end:
                del end_by_partition[partition]
                consumer.pause([self._topic_partition(partition, None)])
        return messages, size

    def _look_at(self, error: ClientError, partition: int, end_by_partition: Mapping[int, int]) -> None:
        """Raise what an error means, unless the client tries again by itself."""
        code, codes = error.code(), self._kafka.KafkaError
        if code in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE) and partition in end_by_partition:
            raise PositionLost(
                f"partition {partition} of {shown(self._topic)}: messages before offset {end_by_partition[partition]} were removed while they were read"
            )
        raised = self._error(error)
        if isinstance(raised, SourceRefused):
            raise raised
        self._trouble = error.str()

    def _silence(self, end_by_partition: Mapping[int, int]) -> str:
        partition, end = next(iter(end_by_partition.items()))
        because = f": {self._trouble}" if self._trouble else ""
        return (
            f"Kafka at {self.address}: nothing came for {self._options.seconds:g} s, and partition {partition} of "
            f"{shown(self._topic)} is not read up to offset {end}{because}"
        )

    def _batch(self, messages: Sequence[Message]) -> MessageBatch:
        return MessageBatch(
            [message.partition() for message in messages],
            [message.offset() for message in messages],
            [message.key() for message in messages],
            [message.value() for message in messages],
            [message.timestamp()[1] for message in messages] if self._options.has_offsets else [],
            [message.headers() for message in messages] if self._options.has_headers else [],
        )

    # ---------------------------------------------------------------------------------------------- connections

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
        consumer, self._consumer, self._admin = self._consumer, None, None
        if consumer is not None:
            consumer.close()

    def _admin_module(self) -> Any:
        return importlib.import_module("confluent_kafka.admin")

    def _administrator(self) -> Any:
        if self._admin is None:
            self._admin = self._make_client(self._admin_module().AdminClient, {})
        self._admin.poll(0)  # its log is given out here
        return self._admin

    def _reader(self) -> Any:
        if self._consumer is None:
            decided = {
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                # An offset that is gone is an error, never another offset.
                "auto.offset.reset": "error",
            }
            usual = {
                "group.id": _GROUP,
                "isolation.level": "read_committed",
                "queued.max.messages.kbytes": _QUEUE,
                # The end of a partition is told when a request returns, and a round waits for it.
                "fetch.wait.max.ms": "50",
            }
            self._consumer = self._make_client(self._kafka.Consumer, {**usual, **self._options.client, **decided})
        return self._consumer

    def _make_client(self, client_class: Any, settings: Mapping[str, object]) -> Any:
        client_options = dict(self._options.client)
        if not settings:  # the administrator is no consumer, and warns of a consumer's settings
            client_options = {
                name: value for name, value in client_options.items() if not _OF_CONSUMERS.fullmatch(name)
            }
        try:
            return client_class({**client_options, **settings, "logger": _LOG, "error_cb": self._note})
        except self._kafka.KafkaException as error:
            message = error.args[0].str()
            name = re.search(r"property:? \"([\w.]+)\"", message)
            # The whole message may show the value, which may be a secret.
            raise SourceRefused(
                f"librdkafka refuses the setting {name[1] if name else 'of the client'}: "
                f"{'there is no such setting' if 'No such' in message else 'its value has no meaning'}"
            ) from None

    def _note(self, error: ClientError) -> None:
        self._trouble = error.str()

    def _topic_partition(self, partition: int, offset: int | None) -> Any:
        where = (self._topic, partition)
        return self._kafka.TopicPartition(*where) if offset is None else self._kafka.TopicPartition(*where, offset)

    def _result(self, future: Any) -> Any:
        try:
            return future.result(self._options.seconds + 5)
        except self._kafka.KafkaException as error:
            self._administrator().poll(0.1)  # what the connections met is told by a callback
            raise self._error(error.args[0]) from None
        except TimeoutError:
            raise SourceUnavailable(f"Kafka at {self.address} does not answer") from None

    def _error(self, error: ClientError) -> SourceRefused | SourceUnavailable:
        """Return an error of the client as one of a source."""
        codes = self._kafka.KafkaError
        if error.code() in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC, codes._UNKNOWN_PARTITION):
            return SourceRefused(
                f"Kafka at {self.address} has no topic {shown(self._topic)}, or not all its partitions"
            )
        refused = (
            *(codes.TOPIC_AUTHORIZATION_FAILED, codes.GROUP_AUTHORIZATION_FAILED, codes.CLUSTER_AUTHORIZATION_FAILED),
            *(codes.SASL_AUTHENTICATION_FAILED, codes._AUTHENTICATION, codes._SSL, codes.TOPIC_EXCEPTION),
        )
        if error.code() in refused or error.fatal():
            return SourceRefused(f"Kafka at {self.address} refuses: {error.str()}")
        trouble = f"; {self._trouble}" if self._trouble else ""
        return SourceUnavailable(f"Kafka at {self.address}: {error.str()}{trouble}")


_OF_CONSUMERS: Final = re.compile(
    r"group\..+|isolation\.level|fetch\..+|queued\..+|max\.partition\.fetch\.bytes|check\.crcs|session\..+|heartbeat\..+|max\.poll\..+|consume\..+"
)


def list_topics(properties: Mapping[str, str]) -> list[str]:
    """Return the names of all topics of the brokers that properties name, as for a source.

    Raises:
        SourceUnavailable: the brokers do not answer.
    """
    client = KafkaClient(parse_kafka_options(properties))
    try:
        return client.topics()
    finally:
        client.close()


_PLACE: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,19})")
_MOST: Final = 2**63 - 1
#: Longer texts are none of ours: a topic has at most some hundred thousand partitions.
_MOST_CHARACTERS: Final = 8 << 20


class OffsetRange(NamedTuple):
    """What a round takes of a partition.

    Attributes:
        partition: its number.
        begin: the first offset.
        end: the offset behind the last one; equal to `begin`: nothing.
    """

    partition: int
    begin: int
    end: int


def checkpoint_text(topic: str, offsets: Mapping[int, int]) -> str:
    """Return the checkpoint of next offsets, as Hudi writes it.

    Example:
        >>> checkpoint_text("orders", {1: 7, 0: 12})
        'orders,0:12,1:7'
    """
    return ",".join([topic, *(f"{partition}:{offsets[partition]}" for partition in sorted(offsets))])


def parse_offsets(checkpoint: str, topic: str) -> dict[int, int]:
    """Return the next offset of each partition in a checkpoint.

    Raises:
        SourceRefused: it is none of Kafka, or of another topic.

    Example:
        >>> parse_offsets("orders,0:12,1:7", "orders")
        {0: 12, 1: 7}
    """
    name, *parts = checkpoint[:_MOST_CHARACTERS].split(",")
    parsed = [_PLACE.fullmatch(item) for item in parts]
    offsets = {int(match[1]): int(match[2]) for match in parsed if match is not None}
    if not parts or len(checkpoint) > _MOST_CHARACTERS or len(offsets) < len(parts) or max(offsets.values()) > _MOST:
        raise SourceRefused(
            f"the checkpoint {shown(checkpoint)} is none of a topic of Kafka, such as '{topic},0:12,1:7': "
            "it comes from a source of another kind, or from another type of checkpoint"
        )
    if name != topic:
        raise SourceRefused(f"the checkpoint is of the topic {shown(name)}, and the job reads {shown(topic)}")
    return offsets


def parse_timestamp(checkpoint: str) -> int | None:
    """Return the milliseconds since 1970 of a checkpoint of 10 digits (seconds) or 13 (milliseconds); None: it is no such time.

    Example:
        >>> parse_timestamp("1700000000"), parse_timestamp("1700000000123"), parse_timestamp("orders,0:1")
        (1700000000000, 1700000000123, None)
    """
    if not re.fullmatch(r"[0-9]{10}|[0-9]{13}", checkpoint):
        return None
    return int(checkpoint) * (1000 if len(checkpoint) == 10 else 1)


def parse_single_offset(checkpoint: str) -> int | None:
    """Return the next offset of a topic's only partition; None: the text is no number."""
    return int(checkpoint) if re.fullmatch(r"[0-9]{1,18}", checkpoint) else None


def begin_offsets(
    topic: str,
    stored: Mapping[int, int],
    earliest: Mapping[int, int],
    latest: Mapping[int, int],
    *,
    skips_lost: bool,
) -> dict[int, int]:
    """Return where each partition of the topic goes on.

    Args:
        topic: its name.
        stored: the checkpoint's offsets; a partition that it does not have begins at 0.
        earliest: the first offset that the topic still has, of each partition.
        latest: the offset behind its last message.
        skips_lost: messages that the topic no longer has are left out, in their partitions alone.

    Raises:
        PositionLost: a partition no longer has the messages behind its offset, or is not the one that the checkpoint was made of.

    Example:
        >>> begin_offsets("orders", {0: 12}, {0: 0, 1: 0}, {0: 20, 1: 5}, skips_lost=False)
        {0: 12, 1: 0}
    """
    missing = sorted(set(stored) - set(latest))
    if missing:
        raise PositionLost(
            f"the topic {shown(topic)} has no partition {missing[0]}, of which the checkpoint has offset {stored[missing[0]]}: "
            "it was made anew; begin with another checkpoint"
        )
    begins = {partition: stored.get(partition, 0) for partition in sorted(latest)}
    for partition, begin in begins.items():
        if begin > latest[partition]:
            raise PositionLost(
                f"partition {partition} of {shown(topic)}: the checkpoint is at offset {begin}, and the topic ends at {latest[partition]}: "
                "it was made anew or lost messages; begin with another checkpoint"
            )
        if begin < earliest[partition] and not skips_lost:
            raise PositionLost(
                f"partition {partition} of {shown(topic)}: the checkpoint is at offset {begin}, and the topic begins at "
                f"{earliest[partition]}: {earliest[partition] - begin} offsets are gone, by retention or deletion; "
                "hoodie.streamer.source.kafka.enable.failOnDataLoss=false goes on behind them"
            )
    return {partition: max(begin, earliest[partition]) for partition, begin in begins.items()}


def share_limit(available: Mapping[int, int], limit: int) -> dict[int, int]:
    """Return how many messages of each partition a limited round takes, as Hudi shares them: evenly, again and again.

    A limit that is smaller than the number of partitions serves those with the most messages first, so that none waits for ever.

    Args:
        available: the messages that each partition has.
        limit: the most of all together.

    Example:
        >>> share_limit({0: 10, 1: 2, 2: 10}, 9)
        {0: 4, 1: 2, 2: 3}
    """
    order = sorted(available)
    if limit < sum(1 for count in available.values() if count):
        order.sort(key=lambda partition: -available[partition])
    shares = dict.fromkeys(sorted(available), 0)
    remaining = min(limit, sum(available.values()))
    unfilled = order
    while remaining > 0:
        share = -(-remaining // len(unfilled))
        for partition in unfilled:
            portion = min(share, available[partition] - shares[partition], remaining)
            shares[partition] += portion
            remaining -= portion
        unfilled = [partition for partition in unfilled if shares[partition] < available[partition]]
    return shares


def plan_ranges(begins: Mapping[int, int], latest: Mapping[int, int], limit: int | None) -> tuple[OffsetRange, ...]:
    """Return the ranges of a round, one for each partition, also of those without news.

    Args:
        begins: where each partition goes on.
        latest: the offset behind its last message.
        limit: the most messages; None: all there are.

    Example:
        >>> plan_ranges({0: 12, 1: 0}, {0: 20, 1: 5}, 8)
        (OffsetRange(partition=0, begin=12, end=16), OffsetRange(partition=1, begin=0, end=4))
    """
    available = {partition: latest[partition] - begin for partition, begin in begins.items()}
    shares = available if limit is None else share_limit(available, limit)
    return tuple(
        OffsetRange(partition, begins[partition], begins[partition] + shares[partition]) for partition in sorted(begins)
    )
