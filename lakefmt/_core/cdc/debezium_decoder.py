"""Debezium's messages as the events of a source: envelopes and flattened rows become changes of tables."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from lakefmt._core.cdc.debezium_messages import (
    Converter,
    DecodedMessage,
    Fields,
    MessageReader,
    SchemaRegistry,
    find_connect_type,
    infer_type,
    inferred_values,
)
from lakefmt._core.cdc.events import Event, RowChanges, RowKind, SourceName, SourceTable, TableChanged, TableTruncated
from lakefmt._core.data_classes import dataclass
from lakefmt.errors import FormatError

__all__ = [
    "Change",
    "DebeziumDecoder",
    "Emptied",
    "RejectedMessage",
    "Unrelated",
    "read_message",
]

_HEARTBEAT: Final = "__debezium-heartbeat"
#: Columns that the unwrapping transform adds, and those that Hudi's flattening adds.
_ADDED: Final = re.compile(r"__(op|deleted|table|db|schema|lsn|txId|ts_ms|ts_us|ts_ns|source_.*)")
_HUDI: Final = frozenset(
    {
        *(
            "_change_operation_type",
            "_upstream_event_processed_ts_ms",
            "db_shard_source_partition",
            "_event_origin_ts_ms",
        ),
        *("_event_tx_id", "_event_bin_file", "_event_pos", "_event_row", "_event_seq", "_event_lsn", "_event_xmin"),
    }
)
_KINDS: Final[Mapping[str, RowKind]] = {
    "c": RowKind.INSERT,
    "r": RowKind.INSERT,
    "u": RowKind.UPDATE_AFTER,
    "d": RowKind.DELETE,
}


class Unrelated(NamedTuple):
    """A message that changes no row: a tombstone, a heartbeat, a change of a schema, a border of a transaction."""

    reason: str


class Emptied(NamedTuple):
    """A table lost all its rows."""

    name: SourceName


class Change(NamedTuple):
    """A change of a row.

    Attributes:
        name: the table.
        kind: what happened; of an update: `UPDATE_AFTER`.
        before: the row before, as far as the message has it.
        after: the row after; None: it was deleted.
        key: the message's key, which has the key columns in order.
        fields: the schema of the row; None: it came without one.
        connector: of Debezium, such as ``mysql``.
        position: a text that sorts as the changes of a row happened.
        micros: when it was committed, since 1970.
        transaction: its id.
        is_snapshot: the row was read from the table.
    """

    name: SourceName
    kind: RowKind
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None
    key: Mapping[str, object]
    fields: Fields | None
    connector: str
    position: str | None
    micros: int | None
    transaction: str | None
    is_snapshot: bool


def read_message(topic: str, key: DecodedMessage | None, value: DecodedMessage | None) -> Change | Emptied | Unrelated:
    """Classify a message: a change of a row, a truncation, or something unrelated.

    Raises:
        FormatError: it is none of Debezium's.
    """
    if value is None or value.value is None:
        return Unrelated("tombstone")
    if topic.startswith(_HEARTBEAT):
        return Unrelated("heartbeat")
    body = value.value
    if not isinstance(body, Mapping):
        raise FormatError(f"a value of {type(body).__name__}, where a struct belongs")
    if "op" in body and ("source" in body or "after" in body or "before" in body):
        return _read_envelope(topic, _key_of(key), body, value.schema)
    if "status" in body and "event_count" in body:
        return Unrelated("transaction")
    if "ddl" in body or "tableChanges" in body:
        return Unrelated("schema change")
    if body.keys() <= {"ts_ms", "ts_us", "ts_ns"}:
        return Unrelated("heartbeat")
    return _read_flat(topic, _key_of(key), body, value.schema)


def _key_of(key: DecodedMessage | None) -> Mapping[str, object]:
    return key.value if key is not None and isinstance(key.value, Mapping) else {}


def _read_envelope(
    topic: str, key: Mapping[str, object], body: Mapping[str, object], schema: Fields | None
) -> Change | Emptied | Unrelated:
    source = body.get("source")
    source = source if isinstance(source, Mapping) else {}
    op = body["op"]
    if op == "m":
        return Unrelated("logical message")
    name = _name_of(topic, source)
    if op == "t":
        return Emptied(name)
    row_kind = _KINDS.get(op) if isinstance(op, str) else None
    if row_kind is None:
        raise FormatError(f"an operation {op!r:.40} that Debezium does not have")
    before, after = _row(body.get("before")), _row(body.get("after"))
    if row_kind is RowKind.DELETE:
        after = None
    elif after is None:
        raise FormatError(f"an operation {op} without the row after it")
    is_snapshot = op == "r"
    transaction = body.get("transaction")
    tx_id = (
        source.get("txId")
        or source.get("gtid")
        or (transaction.get("id") if isinstance(transaction, Mapping) else None)
    )
    return Change(
        name,
        row_kind,
        before if row_kind is not RowKind.INSERT else None,
        after,
        key,
        _fields_of_row(schema),
        str(source.get("connector") or ""),
        _position(source),
        None if is_snapshot else _micros(source, body),
        None if tx_id is None else str(tx_id),
        is_snapshot,
    )


def _row(value: object) -> Mapping[str, object] | None:
    if value is not None and not isinstance(value, Mapping):
        raise FormatError(f"a row of {type(value).__name__}, where a struct belongs")
    return value


def _fields_of_row(schema: Fields | None) -> Fields | None:
    for name in ("after", "before"):
        field_type = (schema or {}).get(name)
        if isinstance(field_type, tuple) and field_type[1] is not None:
            return field_type[1]
    return None


def _name_of(topic: str, source: Mapping[str, object]) -> SourceName:
    schema, table = source.get("schema") or source.get("db"), source.get("table")
    if isinstance(schema, str) and isinstance(table, str) and table and "," not in table:
        return SourceName(schema, table)
    parts = topic.split(".")
    if len(parts) < 2 or not all(parts):
        raise FormatError(f"the topic {topic!r:.80} names no table")
    return SourceName(parts[-2], parts[-1])


# ------------------------------------------------------------------------------------------------------------ the order


def _position(source: Mapping[str, object]) -> str | None:
    """Return a text that sorts: PostgreSQL's place of the commit before and of the change, MySQL's file, place and row."""
    lsn = source.get("lsn")
    if isinstance(lsn, int):
        try:
            sequence = source.get("sequence")
            last = json.loads(sequence) if isinstance(sequence, str | bytes) and sequence else []
            commit = int(last[0] or 0) if last else 0
        except (ValueError, TypeError, IndexError):
            commit = 0
        return f"{commit:016x}-{lsn:016x}"
    return _log_position(source.get("file"), source.get("pos"), source.get("row"))


def _log_position(file: object, pos: object, row: object) -> str | None:
    number = re.search(r"(\d+)$", file) if isinstance(file, str) else None
    if number is None or not isinstance(pos, int):
        return None
    return f"{int(number[1][-18:]):010d}-{pos:020d}-{row if isinstance(row, int) else 0:010d}"


def _micros(source: Mapping[str, object], body: Mapping[str, object]) -> int | None:
    micros, millis = source.get("ts_us"), source.get("ts_ms", body.get("ts_ms"))
    timestamp = micros if isinstance(micros, int) else millis * 1000 if isinstance(millis, int) else None
    return timestamp if timestamp is not None and 0 < timestamp < 2**62 else None


# -------------------------------------------------------------------------------------------------------- flattened rows


def _read_flat(
    topic: str, key: Mapping[str, object], body: Mapping[str, object], schema: Fields | None
) -> Change | Emptied:
    """Read a row that a transform took out of its envelope; what it added tells what happened."""
    added = {name: value for name, value in body.items() if name in _HUDI or _ADDED.fullmatch(name)}
    row = {name: value for name, value in body.items() if name not in added}
    source = {
        "schema": added.get("__schema") or added.get("__source_schema"),
        "db": added.get("__db") or added.get("__source_db"),
        "table": added.get("__table") or added.get("__source_table"),
    }
    name = _name_of(topic, source)
    op = added.get("__op", added.get("_change_operation_type"))
    if op == "t":
        return Emptied(name)
    if str(added.get("__deleted")).lower() == "true":
        op = "d"
    row_kind = RowKind.UPDATE_AFTER if op is None else _KINDS.get(op) if isinstance(op, str) else None
    if row_kind is None:
        raise FormatError(f"an operation {op!r:.40} that Debezium does not have")
    is_delete = row_kind is RowKind.DELETE
    return Change(
        name,
        row_kind,
        row if is_delete else None,
        None if is_delete else row,
        key,
        None if schema is None else {each: field_type for each, field_type in schema.items() if each not in added},
        "mysql" if "_event_bin_file" in added else str(added.get("__source_connector") or ""),
        _flat_position(added),
        _micros({"ts_ms": added.get("__source_ts_ms") or added.get("_event_origin_ts_ms")}, {}),
        None,
        op == "r",
    )


def _flat_position(added: Mapping[str, object]) -> str | None:
    lsn = next(
        (added[name] for name in ("__lsn", "__source_lsn", "_event_lsn") if isinstance(added.get(name), int)), None
    )
    if lsn is not None:
        return f"{lsn:016x}"
    file = added.get("__source_file") or added.get("_event_bin_file")
    pos, row = added.get("__source_pos", added.get("_event_pos")), added.get("__source_row", added.get("_event_row"))
    return _log_position(file, pos, row)


#: What Debezium writes for a large value of PostgreSQL that did not change.
PLACEHOLDER: Final = "__debezium_unavailable_value"

Row = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RejectedMessage:
    """A message that could not be read; the others were.

    Attributes:
        place: where it stood among the messages of its call.
        topic: where it came from.
        key: its key.
        value: its value.
        reason: why.
    """

    place: int
    topic: str
    key: bytes | None
    value: bytes | None
    reason: str


class Image(NamedTuple):
    """A row before or after a change, ready for its columns.

    Attributes:
        kind: what the row is.
        values: by name; of columns with a schema as Arrow takes them.
        sent: the names of the columns that were sent, as JSON; None: all.
        position: see `RowChanges`.
        micros: when it was committed.
        transaction: its id.
    """

    kind: RowKind
    values: Row
    sent: str | None
    position: str | None
    micros: int | None
    transaction: str | None


class Columns:
    """The columns of a table, by the newest message's schema, or as its values have shown so far."""

    def __init__(self, fields: Fields | None, connector: str) -> None:
        self.fields = fields
        self.types: dict[str, pa.DataType] = {}
        self.converters: dict[str, Converter] = {}
        for name, field_type in (fields or {}).items():
            connect_type = field_type[0] if isinstance(field_type, tuple) else field_type
            self.types[name], self.converters[name] = find_connect_type(connect_type, connector)

    def schema(self, keys: Sequence[str]) -> pa.Schema:
        """Return them as a schema: deletions may have nulls in all columns but the key."""
        return pa.schema(
            [pa.field(name, data_type, nullable=name not in keys) for name, data_type in self.types.items()]
        )


class TableRows:
    """The images of one table that are not given out yet."""

    def __init__(self, name: SourceName, skipped: dict[str, int]) -> None:
        self.name, self._skipped = name, skipped
        self.table: SourceTable | None = None
        self.columns: Columns | None = None
        self.keys: tuple[str, ...] = ()
        self.is_snapshot = False
        self.images: list[Image] = []
        #: The newest image of a call before.
        self.last: Image | None = None

    def events(self) -> Iterator[Event]:
        """Yield the images as one batch, behind the change of columns that they need; and begin anew."""
        images, self.images = self.images, []
        if not images or self.columns is None:
            return
        self.last = images[-1]
        if self.columns.fields is None:
            self._widen(images)
        if not self.columns.types:
            # Without a schema and without a value no column has a type.
            rows = sum(image.kind is not RowKind.UPDATE_BEFORE for image in images)
            self._skipped["row of nulls"] = self._skipped.get("row of nulls", 0) + rows
            return
        table = SourceTable(self.name, self.columns.schema(self.keys), self.keys)
        if self.table is None or self.table != table:
            yield TableChanged(table, self.table)
            self.table = table
        yield RowChanges(
            self.name,
            pa.table([self._array(name, images) for name in self.columns.types], schema=table.columns),
            pa.array([image.kind.value for image in images], pa.int8()),
            sent=_texts([image.sent for image in images]),
            times=_optional([image.micros for image in images], pa.timestamp("us", "UTC")),
            positions=_texts([image.position for image in images], all_of_them=True),
            transactions=_texts([image.transaction for image in images]),
            is_snapshot=self.is_snapshot,
        )

    def _widen(self, images: Sequence[Image]) -> None:
        """Infer the types of values without a schema; a column of nulls alone has no type yet."""
        assert self.columns is not None  # noqa: S101  (the caller looked)
        names = dict.fromkeys([*self.columns.types, *(name for image in images for name in image.values)])
        types = {
            name: infer_type([image.values.get(name) for image in images], self.columns.types.get(name))
            for name in names
        }
        self.columns.types = {name: data_type for name, data_type in types.items() if data_type is not None}

    def _array(self, name: str, images: Sequence[Image]) -> pa.Array:
        assert self.columns is not None  # noqa: S101  (the caller looked)
        values, data_type = [image.values.get(name) for image in images], self.columns.types[name]
        return pa.array(inferred_values(values, data_type) if self.columns.fields is None else values, data_type)


def _texts(values: list[str | None], *, all_of_them: bool = False) -> pa.Array | None:
    known = all if all_of_them else any
    return pa.array(values, pa.string()) if known(value is not None for value in values) else None


def _optional(values: list[int | None], data_type: pa.DataType) -> pa.Array | None:
    return pa.array(values, data_type) if any(value is not None for value in values) else None


class DebeziumDecoder:
    """Turns messages of Debezium into events of tables, whichever client read them.

    Envelopes and flattened rows are told apart by each message, JSON and Avro, too. Positions are the client's: what `decode` returned
    may be committed with the offsets behind its messages.

    Example:
        >>> decoder = DebeziumDecoder()
        >>> value = b'{"op": "c", "after": {"id": 1}, "source": {"db": "shop", "table": "items"}}'
        >>> [type(event).__name__ for event in decoder.decode([("s.shop.items", b'{"id": 1}', value), ("s.shop.items", b"{}", None)])]
        ['TableChanged', 'RowChanges']
    """

    def __init__(self, *, registry: SchemaRegistry | str | None = None, placeholder: str = PLACEHOLDER) -> None:
        """Begin with no table known.

        Args:
            registry: of the schemas of messages in Avro, or its URL.
            placeholder: the connector's `unavailable.value.placeholder`: such a value did not change and was not sent.
        """
        self._reader = MessageReader(SchemaRegistry(registry) if isinstance(registry, str) else registry)
        as_base64 = base64.b64encode(placeholder.encode()).decode("ascii")
        self._unsent = (placeholder, placeholder.encode(), as_base64)
        self._unsent_parts = (
            *([each] for each in self._unsent),
            list(placeholder.encode()),
            {placeholder: placeholder},
        )
        self._tables: dict[SourceName, TableRows] = {}
        self._rejected: list[RejectedMessage] = []
        #: Messages that change no row, by what they are.
        self.skipped: dict[str, int] = {}

    def take_rejected(self) -> list[RejectedMessage]:
        """Return the messages that could not be read since the last call."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def decode(self, messages: Sequence[tuple[str, bytes | None, bytes | None]]) -> list[Event]:
        """Return the events of messages: topic, key and value, in the order of their partitions.

        Raises:
            SourceUnavailable: the registry of schemas does not answer; nothing of the call is done.
            InvalidInputError: messages in Avro came, and there is no registry, or fastavro is not installed.
        """
        events: list[Event] = []
        try:
            for message_number, (topic, key, value) in enumerate(messages):
                try:
                    events += self._events_of(topic, key, value)
                except (FormatError, ValueError, ArithmeticError, KeyError, TypeError) as error:
                    if not isinstance(error, FormatError) and _is_of_lakefmt(error):
                        raise
                    self._rejected.append(
                        RejectedMessage(message_number, topic, key, value, str(error) or type(error).__name__)
                    )
        except BaseException:
            for table in self._tables.values():
                table.images.clear()
            raise
        for table in self._tables.values():
            events += table.events()
        return events

    def _events_of(self, topic: str, key: bytes | None, value: bytes | None) -> list[Event]:
        parsed = None if value is None else self._reader.parse(value)
        read = read_message(topic, self._key(key), parsed)
        if isinstance(read, Unrelated):
            self.skipped[read.reason] = self.skipped.get(read.reason, 0) + 1
            return []
        table = self._tables.setdefault(read.name, TableRows(read.name, self.skipped))
        if isinstance(read, Emptied):
            return [*table.events(), TableTruncated(read.name)]
        return self._add(table, read)

    def _key(self, key: bytes | None) -> DecodedMessage | None:
        if not key:
            return None
        parsed = self._reader.parse(key)
        if not isinstance(parsed.value, Mapping):
            return None
        return parsed

    def _add(self, table: TableRows, change: Change) -> list[Event]:
        """Take the images of a change; return the events of those before, if it needs other columns."""
        events: list[Event] = []
        keys = tuple(change.key) or table.keys
        if change.kind is RowKind.DELETE and not (change.key or change.before):
            raise FormatError("a deletion that names no row")
        columns = self._columns(table, change)
        images = self._images(columns, change)
        is_moved = change.kind is RowKind.INSERT and images[-1].sent is not None
        if is_moved:
            images = [completed(images[-1], table.images[-1] if table.images else table.last)]
            is_moved = images[0].sent is not None
        is_other = columns is not table.columns or keys != table.keys or change.is_snapshot != table.is_snapshot
        if is_moved and (is_other or not table.images):
            raise FormatError(
                "an insertion leaves out a large value, and the deletion of its old key came in another call"
            )
        if is_other:
            events += table.events()
            table.columns, table.keys, table.is_snapshot = columns, keys, change.is_snapshot
        if is_moved:  # the row before is the deletion of the old key, whose row has the value
            table.images[-1] = table.images[-1]._replace(kind=RowKind.UPDATE_BEFORE)
            images = [images[0]._replace(kind=RowKind.UPDATE_AFTER)]
        table.images += images
        return events

    def _columns(self, table: TableRows, change: Change) -> Columns:
        if table.columns is None:
            return Columns(change.fields, change.connector)
        if table.columns.fields is change.fields or table.columns.fields == change.fields:
            return table.columns
        return Columns(change.fields, change.connector)

    def _images(self, columns: Columns, change: Change) -> list[Image]:
        change = change._replace(before=_known_of_before(change))
        if change.after is None:
            return [self._image(columns, change, RowKind.DELETE, {**(change.before or {}), **change.key}, None)]
        images = []
        if change.before is not None:
            images.append(self._image(columns, change, RowKind.UPDATE_BEFORE, change.before, None))
        return [*images, self._image(columns, change, change.kind, change.after, change.before)]

    def _image(self, columns: Columns, change: Change, row_kind: RowKind, row: Row, before: Row | None) -> Image:
        values, unsent = {}, set()
        for name in columns.types if columns.fields is not None else row:
            value = row.get(name)
            if value is not None and self._is_unsent(value):
                value = before.get(name) if before is not None else None
                # A large value is never one that stands for nothing.
                value = None if _is_nothing(value) or self._is_unsent(value) else value
                unsent |= {name} if value is None else set()
            convert = columns.converters.get(name)
            try:
                values[name] = value if value is None or convert is None else convert(value)
            except (ValueError, ArithmeticError, KeyError, TypeError) as error:
                raise FormatError(f"column {name!r:.60}: {error}") from error
        is_partial = unsent and row_kind in (RowKind.INSERT, RowKind.UPDATE_AFTER)
        sent = json.dumps([name for name in values if name not in unsent], ensure_ascii=False) if is_partial else None
        is_first = row_kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE)
        position = None if change.position is None else f"{change.position}-{0 if is_first else 1}"
        return Image(row_kind, values, sent, position, change.micros, change.transaction)

    def _is_unsent(self, value: object) -> bool:
        if isinstance(value, str | bytes):
            return value in self._unsent
        return isinstance(value, list | dict) and value in self._unsent_parts


def _known_of_before(change: Change) -> Row | None:
    """Return the row before a change as far as it is known: the key alone where everything else stands for nothing.

    PostgreSQL sends the key alone unless a table has ``REPLICA IDENTITY FULL``. Debezium fills up the row: nulls, and in columns that must
    not be null the empty text, zero, and the like. A row that is really so is looked up.
    """
    before = change.before
    if before is None or not change.key or change.connector in ("mysql", "mariadb"):
        return before
    non_key_columns = [name for name in before if name not in change.key]
    if not non_key_columns or not all(_is_nothing(before[name]) for name in non_key_columns):
        return before
    return {**before, **dict.fromkeys(non_key_columns)}


def _is_nothing(value: object) -> bool:
    """Return whether a value is null, or what Debezium puts in the place of one that must not be null."""
    if isinstance(value, Mapping):
        return all(map(_is_nothing, value.values()))
    return not value or value in _NOTHING or (isinstance(value, str) and value.startswith("1970-01-01T00:00:00"))


#: Empty JSON; the number zero as the bytes of a decimal, and as they stand in JSON.
_NOTHING: Final = ("{}", b"\x00", "AA==", "0")


def completed(image: Image, before: Image | None) -> Image:
    """Return an insertion with the values that were not sent, as far as the deletion of its old key before it has them.

    Raises:
        FormatError: no such deletion precedes it.
    """
    same = before is not None and before.kind is RowKind.DELETE and before.transaction == image.transaction
    if before is None or not same or _position_of_change(before.position) != _position_of_change(image.position):
        raise FormatError("an insertion leaves out a large value, and the deletion of its old key does not precede it")
    sent = json.loads(image.sent or "[]")
    old = {name: None if _is_nothing(value) else value for name, value in before.values.items()}
    values = {name: value if name in sent else old.get(name) for name, value in image.values.items()}
    is_whole = all(values[name] is not None for name in values if name not in sent)
    return image._replace(values=values, sent=None) if is_whole else image


def _position_of_change(position: str | None) -> str | None:
    return None if position is None else position.rpartition("-")[0]


def _is_of_lakefmt(error: Exception) -> bool:
    return hasattr(error, "kind")
