"""What a message of Debezium means (pure): a change of a row, an emptied table, or nothing of either."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from lakefmt._core.cdc.debezium.messages import DecodedMessage, Fields
from lakefmt._core.cdc.events import RowKind, SourceName
from lakefmt.errors import FormatError

__all__ = ["Change", "Emptied", "Unrelated", "read_message"]

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
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    key: Mapping[str, Any]
    fields: Fields | None
    connector: str
    position: str | None
    micros: int | None
    transaction: str | None
    is_snapshot: bool


def read_message(topic: str, key: DecodedMessage | None, value: DecodedMessage | None) -> Change | Emptied | Unrelated:
    """Return what a message means.

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


def _key_of(key: DecodedMessage | None) -> Mapping[str, Any]:
    return key.value if key is not None and isinstance(key.value, Mapping) else {}


def _read_envelope(
    topic: str, key: Mapping[str, Any], body: Mapping[str, Any], schema: Fields | None
) -> Change | Emptied | Unrelated:
    source = body.get("source")
    source = source if isinstance(source, Mapping) else {}
    op = body["op"]
    if op == "m":
        return Unrelated("logical message")
    name = _name_of(topic, source)
    if op == "t":
        return Emptied(name)
    kind = _KINDS.get(op) if isinstance(op, str) else None
    if kind is None:
        raise FormatError(f"an operation {op!r:.40} that Debezium does not have")
    before, after = _row(body.get("before")), _row(body.get("after"))
    if kind is RowKind.DELETE:
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
        kind,
        before if kind is not RowKind.INSERT else None,
        after,
        key,
        _fields_of_row(schema),
        str(source.get("connector") or ""),
        _position(source),
        None if is_snapshot else _micros(source, body),
        None if tx_id is None else str(tx_id),
        is_snapshot,
    )


def _row(value: Any) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise FormatError(f"a row of {type(value).__name__}, where a struct belongs")
    return value


def _fields_of_row(schema: Fields | None) -> Fields | None:
    for name in ("after", "before"):
        found = (schema or {}).get(name)
        if isinstance(found, tuple) and found[1] is not None:
            fields: Fields = found[1]
            return fields
    return None


def _name_of(topic: str, source: Mapping[str, Any]) -> SourceName:
    schema, table = source.get("schema") or source.get("db"), source.get("table")
    if isinstance(schema, str) and isinstance(table, str) and table and "," not in table:
        return SourceName(schema, table)
    parts = topic.split(".")
    if len(parts) < 2 or not all(parts):
        raise FormatError(f"the topic {topic!r:.80} names no table")
    return SourceName(parts[-2], parts[-1])


# ------------------------------------------------------------------------------------------------------------ the order


def _position(source: Mapping[str, Any]) -> str | None:
    """Return a text that sorts: PostgreSQL's place of the commit before and of the change, MySQL's file, place and row."""
    lsn = source.get("lsn")
    if isinstance(lsn, int):
        try:
            last = json.loads(source.get("sequence") or "[]")
            commit = int(last[0] or 0) if last else 0
        except (ValueError, TypeError, IndexError):
            commit = 0
        return f"{commit:016x}-{lsn:016x}"
    return _log_position(source.get("file"), source.get("pos"), source.get("row"))


def _log_position(file: Any, pos: Any, row: Any) -> str | None:
    number = re.search(r"(\d+)$", file) if isinstance(file, str) else None
    if number is None or not isinstance(pos, int):
        return None
    return f"{int(number[1][-18:]):010d}-{pos:020d}-{row if isinstance(row, int) else 0:010d}"


def _micros(source: Mapping[str, Any], body: Mapping[str, Any]) -> int | None:
    micros, millis = source.get("ts_us"), source.get("ts_ms", body.get("ts_ms"))
    found = micros if isinstance(micros, int) else millis * 1000 if isinstance(millis, int) else None
    return found if found is not None and 0 < found < 2**62 else None


# -------------------------------------------------------------------------------------------------------- flattened rows


def _read_flat(topic: str, key: Mapping[str, Any], body: Mapping[str, Any], schema: Fields | None) -> Change | Emptied:
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
    if op is not None and op not in _KINDS:
        raise FormatError(f"an operation {op!r:.40} that Debezium does not have")
    kind = RowKind.UPDATE_AFTER if op is None else _KINDS[op]
    is_delete = kind is RowKind.DELETE
    return Change(
        name,
        kind,
        row if is_delete else None,
        None if is_delete else row,
        key,
        None if schema is None else {each: kind for each, kind in schema.items() if each not in added},
        "mysql" if "_event_bin_file" in added else str(added.get("__source_connector") or ""),
        _flat_position(added),
        _micros({"ts_ms": added.get("__source_ts_ms") or added.get("_event_origin_ts_ms")}, {}),
        None,
        op == "r",
    )


def _flat_position(added: Mapping[str, Any]) -> str | None:
    lsn = next(
        (added[name] for name in ("__lsn", "__source_lsn", "_event_lsn") if isinstance(added.get(name), int)), None
    )
    if lsn is not None:
        return f"{lsn:016x}"
    file = added.get("__source_file") or added.get("_event_bin_file")
    pos, row = added.get("__source_pos", added.get("_event_pos")), added.get("__source_row", added.get("_event_row"))
    return _log_position(file, pos, row)
