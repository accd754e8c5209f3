"""A topic of Kafka as a source: rounds between offsets, and their messages as rows (effects)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arguments import shown
from lakefmt._core.cdc.debezium_messages import SchemaRegistry
from lakefmt._core.cdc.events import RowKind
from lakefmt._core.ingest.api import Checkpoint, SourceBatch, rejected_records
from lakefmt._core.ingest.kafka.client import (
    KafkaClient,
    MessageBatch,
    OffsetRange,
    begin_offsets,
    checkpoint_text,
    parse_offsets,
    parse_single_offset,
    parse_timestamp,
    plan_ranges,
)
from lakefmt._core.ingest.kafka.decoding import (
    AvroMessages,
    BlobMessages,
    DebeziumMessages,
    Decoded,
    Decoder,
    JsonMessages,
    ProtobufMessages,
    RegisteredMessages,
    columns_of_keys,
    merge_parts,
)
from lakefmt._core.ingest.kafka.options import KafkaOptions, parse_kafka_options
from lakefmt.errors import PositionLost, SourceRefused, UnknownSetting

__all__ = ["KafkaRound", "KafkaSource", "MessageRows", "open_kafka_source"]

_LOG: Final = logging.getLogger("lakefmt.kafka")
#: Of commits: which topic a checkpoint is of, where one of the same name came after it.
TOPIC_ID: Final = "lakefmt.ingest.kafka.topic.id"
#: Hudi's columns of a message's origin.
_OFFSET, _PARTITION, _TIMESTAMP, _KEY = (
    "_hoodie_kafka_source_offset",
    "_hoodie_kafka_source_partition",
    "_hoodie_kafka_source_timestamp",
    "_hoodie_kafka_source_key",
)
#: Of its headers; Hudi has none.
_HEADERS: Final = "_kafka_headers"
_HEADERS_TYPE: Final = pa.map_(pa.string(), pa.binary())


def open_kafka_source(properties: Mapping[str, str]) -> KafkaSource:
    """Return a topic as a source; the brokers are asked when it plans.

    Args:
        properties: of the job, see :func:`~lakefmt._core.ingest.kafka.options.parse_kafka_options`.

    Raises:
        UnknownSetting: a setting is missing, unknown, or its text has no meaning.
        UnsupportedFeature: confluent-kafka is not installed.
    """
    return KafkaSource(parse_kafka_options(properties))


class MessageRows:
    """Makes rows of messages, wherever they were read.

    Args:
        options: of the topic.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._decoder = _decoder(options)
        self._table_schema: pa.Schema | None = None
        #: Messages that made no row, by what they are.
        self.skipped: dict[str, int] = {}

    @property
    def table_schema(self) -> pa.Schema | None:
        """The columns of the table, whose types JSON is read with; None: there is no table yet."""
        return self._table_schema

    @table_schema.setter
    def table_schema(self, schema: pa.Schema | None) -> None:
        if schema is not None and schema != self._table_schema and isinstance(self._decoder, JsonMessages):
            self._decoder.learn(schema)
        self._table_schema = schema

    def decode(self, messages: MessageBatch) -> Iterator[SourceBatch]:
        """Yield the rows of some messages, and what is rejected.

        Raises:
            SourceUnavailable: the registry of schemas does not answer.
        """
        if isinstance(self._decoder, DebeziumMessages):
            decoded = self._decoder.decode(messages.keys, messages.values)
            table, kinds, rejected = decoded.rows, decoded.kinds, list(decoded.rejected)
        else:
            table, kinds, rejected = self._rows(messages, self._decoder)
        records = _rejected(self._options.topic, messages, rejected)
        if not table.num_rows and records is None:
            return
        low = 0
        batches = table.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        for number, batch in enumerate(batches):
            high = low + batch.num_rows
            yield SourceBatch(batch, None if kinds is None else kinds[low:high], records if number == 0 else None)
            low = high

    def _rows(
        self, messages: MessageBatch, decoder: Decoder
    ) -> tuple[pa.Table, npt.NDArray[np.int8] | None, list[tuple[int, str]]]:
        """Return rows with their kinds, and what is rejected."""
        values = [value for value in messages.values if value is not None]
        deletes = self._options.null_values != "skip"
        if len(values) == len(messages.values):
            decoded = decoder.decode(messages.keys, values)
            # Where keys are deleted a message is the newest row of its key, whichever messages are read beside it.
            kinds = np.full(len(decoded.places), RowKind.UPDATE_AFTER.value, np.int8) if deletes else None
            return self._with_origins(decoded.rows, messages, decoded.places), kinds, list(decoded.rejected)
        message_numbers = np.flatnonzero(np.array([value is not None for value in messages.values]))
        nulls = np.flatnonzero(np.array([value is None for value in messages.values]))
        decoded = decoder.decode([messages.keys[index] for index in message_numbers], values)
        rejected = [(int(message_numbers[index]), why) for index, why in decoded.rejected]
        decoded = Decoded(
            self._with_origins(decoded.rows, messages, message_numbers[decoded.places]), message_numbers[decoded.places]
        )
        if not deletes:
            self.skipped["null values"] = self.skipped.get("null values", 0) + len(nulls)
            return decoded.rows, None, rejected
        table, order, more = self._with_deletions(decoded, messages, nulls)
        is_null = np.array([value is None for value in messages.values])[order]
        kinds = np.where(is_null, RowKind.DELETE.value, RowKind.UPDATE_AFTER.value).astype(np.int8)
        return table, kinds, sorted([*rejected, *more])

    def _with_deletions(
        self, decoded: Decoded, messages: MessageBatch, nulls: npt.NDArray[np.int64]
    ) -> tuple[pa.Table, npt.NDArray[np.int64], list[tuple[int, str]]]:
        """Return rows with those of the keys that messages without a value delete, in order."""
        keys = [messages.keys[message_number] for message_number in nulls]
        has_key = np.array([key is not None for key in keys])
        rejected = [(int(message_number), "neither a key nor a value") for message_number in nulls[~has_key]]
        if not has_key.any():
            return decoded.rows, decoded.places, rejected
        deletions = columns_of_keys([key for key in keys if key is not None], self._options.key_column)
        parts = [
            (decoded.rows, decoded.places),
            (self._with_origins(deletions, messages, nulls[has_key]), nulls[has_key]),
        ]
        parts = [(rows, message_numbers) for rows, message_numbers in parts if len(message_numbers)]
        table, order = merge_parts([rows for rows, _ in parts], [message_numbers for _, message_numbers in parts])
        return table, order, rejected

    def _with_origins(self, rows: pa.Table, messages: MessageBatch, message_numbers: npt.NDArray[np.int64]) -> pa.Table:
        """Add the columns that tell where each row came from, as far as the settings want them."""
        options = self._options
        columns: dict[str, pa.Array] = {}
        if options.has_offsets:
            columns[_OFFSET] = pa.array(messages.offsets, pa.int64())
            columns[_PARTITION] = pa.array(messages.partitions, pa.int32())
            columns[_TIMESTAMP] = pa.array(messages.timestamps, pa.int64())
            columns[_KEY] = _texts(messages.keys)
        if options.key_column and options.key_column not in rows.column_names:
            columns[options.key_column] = _texts(messages.keys)
        if options.has_headers:
            columns[_HEADERS] = pa.array(messages.headers, _HEADERS_TYPE)
        for name, column in columns.items():
            rows = rows.append_column(name, column.take(pa.array(message_numbers)))
        return rows


class KafkaSource:
    """A topic, read by explicit assignment: consumer groups and their rebalances play no part."""

    def __init__(self, options: KafkaOptions) -> None:
        self.options = self._options = options
        self._client = KafkaClient(options)
        self._rows = MessageRows(options)
        self._first_ends: dict[int, int] | None = None

    @property
    def name(self) -> str:
        """Return the topic and where it is."""
        return f"kafka://{self._client.address}/{self._options.topic}"

    def schema(self) -> pa.Schema | None:
        """Return None: only messages tell it."""
        return None

    @property
    def table_schema(self) -> pa.Schema | None:
        """The columns of the table, whose types JSON is read with; None: there is no table yet."""
        return self._rows.table_schema

    @table_schema.setter
    def table_schema(self, schema: pa.Schema | None) -> None:
        self._rows.table_schema = schema

    @property
    def skipped(self) -> dict[str, int]:
        """The number of messages that made no row, by reason."""
        return self._rows.skipped

    def plan(self, after: Checkpoint | None, limit: int | None) -> KafkaRound | None:
        """Choose the offsets of the next round; None: there is nothing new.

        Args:
            after: of the newest commit that has one; None: the settings say where to begin.
            limit: the most messages.

        Raises:
            SourceUnavailable: the brokers do not answer.
            PositionLost: the topic no longer has what comes next, or is another one.
            SourceRefused: the checkpoint is none of this topic, or the brokers refuse.
        """
        options, topic = self._options, self._options.topic
        state = self._client.topic_state()
        stored_id = "" if after is None else after.details.get(TOPIC_ID, "")
        if stored_id and state.id and stored_id != state.id:
            raise PositionLost(
                f"the topic {shown(topic)} was deleted and made anew since the checkpoint; begin with another checkpoint"
            )
        latest = self._client.latest(state.partitions)
        begins, is_new = self._begins(after, state.partitions, latest)
        # Behind an open transaction there may be messages that were read when transactions did not count.
        ends = {partition: max(latest[partition], begins[partition]) for partition in begins}
        most = options.most_messages if limit is None else min(limit, options.most_messages)
        ranges = plan_ranges(begins, ends, most)
        checkpoint = checkpoint_text(topic, {each.partition: each.end for each in ranges})
        if not is_new and after is not None and checkpoint == after.text:
            return None
        return KafkaRound(self, Checkpoint(checkpoint, {TOPIC_ID: state.id} if state.id else {}), ranges)

    def _begins(
        self, after: Checkpoint | None, partitions: Sequence[int], latest: Mapping[int, int]
    ) -> tuple[dict[int, int], bool]:
        """Return where each partition begins, and whether that is not what the last commit says."""
        client, options = self._client, self._options
        if after is None:
            if options.start == "latest":
                if self._first_ends is None:
                    _LOG.info("%s: begins at the end: what is there already is not taken", self.name)
                    self._first_ends = dict(latest)
                # Until a table has a checkpoint, every round of this process goes on from the first round's end.
                return {each: self._first_ends.get(each, 0) for each in latest}, True
            earliest = client.earliest(partitions)
            return earliest | (client.group_offsets(partitions) if options.start == "group" else {}), True
        if options.checkpoint_type == "timestamp" and (millis := parse_timestamp(after.text)) is not None:
            offsets = client.at_time(partitions, millis)
            return {each: latest[each] if offset < 0 else offset for each, offset in offsets.items()}, True
        stored = self._stored(after.text, partitions)
        ahead = [each for each in stored if each in latest and stored[each] > latest[each]]
        known = dict(latest)
        if ahead:  # behind an open transaction, perhaps, or the topic lost messages
            known |= client.latest(ahead, of_open_transactions=True)
        earliest = client.earliest(partitions)
        begins = begin_offsets(options.topic, stored, earliest, known, skips_lost=options.skips_lost)
        for partition, begin in begins.items():
            if (lost := begin - stored.get(partition, 0)) > 0:
                _LOG.warning("%s: partition %d: %d offsets are gone and left out", self.name, partition, lost)
        return begins, False

    def _stored(self, checkpoint: str, partitions: Sequence[int]) -> dict[int, int]:
        offset = parse_single_offset(checkpoint) if self._options.checkpoint_type == "single_offset" else None
        if offset is None:
            return parse_offsets(checkpoint, self._options.topic)
        if len(partitions) != 1:
            raise SourceRefused(
                f"a checkpoint of one offset is for a topic of one partition; {shown(self._options.topic)} has {len(partitions)}"
            )
        return {partitions[0]: offset}

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[SourceBatch]:
        """Yield the rows of some ranges."""
        for messages in self._client.read(ranges):
            yield from self._rows.decode(messages)

    def committed(self, checkpoint: Checkpoint) -> None:
        """Take note of a commit of the table: by option the group's offsets follow it."""
        if self._options.commits_offsets:
            self._client.commit_group_offsets(parse_offsets(checkpoint.text, self._options.topic))

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
        self._client.close()


class KafkaRound:
    """The messages of a topic for one commit."""

    def __init__(self, source: KafkaSource, checkpoint: Checkpoint, ranges: tuple[OffsetRange, ...]) -> None:
        self._source, self._checkpoint, self._ranges = source, checkpoint, ranges

    @property
    def checkpoint(self) -> Checkpoint:
        """Return where the source is once the round is committed."""
        return self._checkpoint

    @property
    def source(self) -> KafkaSource:
        """Return the topic."""
        return self._source

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """Return the offsets of each partition."""
        return self._ranges

    @property
    def summary(self) -> str:
        """Return the range of the round for people."""
        read = [f"{each.partition}: {each.begin}–{each.end}" for each in self._ranges if each.end > each.begin]
        return f"{self._source.name} {', '.join(read) or 'nothing'}"

    @property
    def expected_rows(self) -> int | None:
        """Return how many offsets it has: marks of transactions and compacted messages are among them."""
        return sum(each.end - each.begin for each in self._ranges)

    def batches(self) -> Iterator[SourceBatch]:
        """Read the round; another call reads the same rows again."""
        return self._source.read(self._ranges)


def _decoder(options: KafkaOptions) -> Any:
    registry = SchemaRegistry(options.registry, options.registry_headers) if options.registry else None
    if options.format == "avro":
        if registry is None:
            raise UnknownSetting("messages in Avro need schema.registry.url")
        return AvroMessages(registry, options.subject or f"{options.topic}-value")
    if options.format == "protobuf":
        if registry is not None and not options.descriptors:
            return RegisteredMessages(registry)
        if not options.descriptors or not options.message:
            raise UnknownSetting(
                "messages in Protobuf need schema.registry.url, or lakefmt.ingest.kafka.protobuf.descriptors, a file of protoc "
                "--include_imports --descriptor_set_out, and lakefmt.ingest.kafka.protobuf.message, the full name of their type"
            )
        return ProtobufMessages(options.descriptors, options.message)
    if options.format == "debezium":
        if options.has_offsets or options.has_headers:
            raise UnknownSetting("an update of Debezium is two rows: they have no columns of their message's origin")
        return DebeziumMessages(options.topic, registry)
    if options.format in ("text", "bytes"):
        return BlobMessages(options.value_column, is_text=options.format == "text")
    return JsonMessages()


def _texts(keys: Sequence[bytes | None]) -> pa.Array:
    """Return keys as text; bytes that are not UTF-8 are replaced."""
    column = pa.array(keys, pa.binary())
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if key is None else key.decode("utf-8", "replace") for key in keys], pa.string())


def _rejected(topic: str, messages: MessageBatch, rejected: Sequence[tuple[int, str]]) -> pa.RecordBatch | None:
    if not rejected:
        return None
    return rejected_records(
        [why for _, why in rejected],
        [
            f"{topic}-{messages.partitions[message_number]}@{messages.offsets[message_number]}"
            for message_number, _ in rejected
        ],
        [messages.values[message_number] for message_number, _ in rejected],
    )
