"""Encode and decode timeline bodies (docs/format.md, Timeline bodies). Pure.

Plans and metadata are Avro containers with one record; completed commits of version 6 are JSON. A
record is a dict with Hudi's field names. Decoding gives records of any release the shape of
:mod:`lakefmt.timeline._metadata_schemas`: unknown fields are dropped, missing ones get defaults,
and every value has its schema's type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from lakefmt.errors import CorruptFile, InvalidInputError
from lakefmt.formats.avro.container import MAGIC, decode_container, encode_container
from lakefmt.schema.avro import AvroType, parse_avro_schema
from lakefmt.timeline._metadata_schemas import BodyKind, body_schema, reader_schema, record_fields
from lakefmt.timeline.instant import Action, State

__all__ = [
    "WRITE_STAT_FIELDS",
    "BodyKind",
    "body_kind",
    "decode_body",
    "decode_commit_rows",
    "encode_body",
    "encode_json_commit",
]

#: Completed commits of version 6, and the profiles in their inflight files, are JSON.
_JSON_KINDS = frozenset({BodyKind.COMMIT, BodyKind.REPLACE_COMMIT})

#: In version 6 the requested file of an overwrite, and the completed file of an empty clean, may be
#: empty.
_EMPTY_KINDS = frozenset({BodyKind.REQUESTED_REPLACE, BodyKind.CLEAN_METADATA})

#: The fields of a write stat in schema order.
WRITE_STAT_FIELDS = record_fields("HoodieWriteStat")
_STATS = frozenset({"HoodieWriteStat"})

_KINDS: dict[tuple[Action, State], BodyKind] = {
    (Action.COMMIT, State.INFLIGHT): BodyKind.COMMIT,
    (Action.COMMIT, State.COMPLETED): BodyKind.COMMIT,
    (Action.DELTA_COMMIT, State.INFLIGHT): BodyKind.COMMIT,
    (Action.DELTA_COMMIT, State.COMPLETED): BodyKind.COMMIT,
    (Action.REPLACE_COMMIT, State.REQUESTED): BodyKind.REQUESTED_REPLACE,
    (Action.REPLACE_COMMIT, State.INFLIGHT): BodyKind.COMMIT,
    (Action.REPLACE_COMMIT, State.COMPLETED): BodyKind.REPLACE_COMMIT,
    (Action.CLUSTERING, State.REQUESTED): BodyKind.REQUESTED_REPLACE,
    (Action.COMPACTION, State.REQUESTED): BodyKind.COMPACTION_PLAN,
    (Action.LOG_COMPACTION, State.REQUESTED): BodyKind.COMPACTION_PLAN,
    (Action.CLEAN, State.REQUESTED): BodyKind.CLEANER_PLAN,
    (Action.CLEAN, State.INFLIGHT): BodyKind.CLEANER_PLAN,
    (Action.CLEAN, State.COMPLETED): BodyKind.CLEAN_METADATA,
    (Action.ROLLBACK, State.REQUESTED): BodyKind.ROLLBACK_PLAN,
    (Action.ROLLBACK, State.COMPLETED): BodyKind.ROLLBACK_METADATA,
    (Action.RESTORE, State.REQUESTED): BodyKind.RESTORE_PLAN,
    (Action.RESTORE, State.COMPLETED): BodyKind.RESTORE_METADATA,
    (Action.SAVEPOINT, State.COMPLETED): BodyKind.SAVEPOINT_METADATA,
    (Action.INDEXING, State.REQUESTED): BodyKind.INDEX_PLAN,
    (Action.INDEXING, State.COMPLETED): BodyKind.INDEX_COMMIT_METADATA,
}


def body_kind(action: Action, state: State) -> BodyKind | None:
    """Return the kind of a non-empty timeline file; None: the file is always empty, or has no such body.

    Source: docs/format.md, Timeline bodies.

    Example:
        >>> body_kind(Action.CLEAN, State.REQUESTED)
        <BodyKind.CLEANER_PLAN: 'HoodieCleanerPlan'>
    """
    return _KINDS.get((action, state))


def encode_body(kind: BodyKind, record: Mapping[str, object]) -> bytes:
    """Return a body as an Avro container; missing fields get defaults, mostly null.

    Raises:
        InvalidInputError: a field is missing, unknown or of another type.

    Source: docs/format.md, Timeline bodies; Avro records of the timeline.

    Example:
        >>> plan = {"instantToRollback": {"commitTime": "20260101000000000", "action": "commit"}}
        >>> decode_body(BodyKind.ROLLBACK_PLAN, encode_body(BodyKind.ROLLBACK_PLAN, plan))["instantToRollback"]
        {'commitTime': '20260101000000000', 'action': 'commit'}
    """
    return encode_container(body_schema(kind), record)


def decode_body(kind: BodyKind, data: bytes, *, what: str = "timeline body") -> dict[str, object]:
    """Return the record of a body: an Avro container, or JSON in version 6.

    Parameters:
        kind: the expected kind.
        data: the bytes of the file; if an empty one is allowed (docs/format.md, Timeline bodies)
            the record is empty.
        what: the file's name in errors.

    Raises:
        CorruptFile: the bytes are damaged, empty, or of another kind.
        UnsupportedFeature: the container has an unknown codec.

    Source: docs/format.md, Timeline bodies. See :func:`encode_body` for an example.
    """
    if data.startswith(MAGIC):
        return decode_container(data, reader=reader_schema(kind), what=what)
    if not data and kind in _EMPTY_KINDS:
        return {}
    if kind in _JSON_KINDS and _is_json(data):
        return _decode_json_commit(kind, data, what)
    raise _not_a(kind, data, what)


def decode_commit_rows(data: bytes, *, what: str = "commit") -> dict[str, object]:
    """Return a completed commit or replacecommit like :func:`decode_body`, with every stat as a tuple.

    A tuple has the values of :data:`WRITE_STAT_FIELDS` in order, None for missing ones.

    Raises:
        CorruptFile: the bytes are damaged, empty, or of another kind.
        UnsupportedFeature: the container has an unknown codec.

    Example:
        >>> body = encode_body(BodyKind.COMMIT, {"partitionToWriteStats": {"p": [{"fileId": "f-0", "numWrites": 3}]}})
        >>> decode_commit_rows(body)["partitionToWriteStats"]["p"][0][:4]
        ('f-0', None, None, 3)
    """
    kind = BodyKind.REPLACE_COMMIT  # it has all fields of a commit
    if data.startswith(MAGIC):
        return decode_container(data, reader=reader_schema(kind), as_tuples=_STATS, what=what)
    if not _is_json(data):
        raise _not_a(kind, data, what)
    record: dict[str, Any] = _decode_json_commit(kind, data, what)
    stats = record["partitionToWriteStats"] or {}
    record["partitionToWriteStats"] = {
        partition: [tuple(map(row.get, WRITE_STAT_FIELDS)) for row in rows] for partition, rows in stats.items()
    }
    return record


def _is_json(data: bytes) -> bool:
    return data.lstrip()[:1] == b"{"


def _not_a(kind: BodyKind, data: bytes, what: str) -> CorruptFile:
    actual = f"it begins with {data[:16]!r}" if data else "it is empty"
    return CorruptFile(f"{what} is no {kind.value}: {actual}")


# ------------------------------------------------------------------------------------------------------ JSON, version 6

# The line breaks of Java's printer at depth four; a stat is printed by one call.
_STAT_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",\n      ", " : ")).encode
_VALUE_JSON = json.JSONEncoder(ensure_ascii=False, separators=(", ", " : ")).encode

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def encode_json_commit(record: Mapping[str, object]) -> bytes:
    """Return a completed commit or replacecommit of version 6: JSON, one field per line.

    Null fields of stats and ``version`` are omitted: readers take absent numbers as 0.

    Raises:
        InvalidInputError: a value cannot be stored as JSON.

    Source: docs/format.md, JSON commits.

    Example:
        >>> print(encode_json_commit({"partitionToWriteStats": {}, "operationType": "UPSERT"}).decode())
        {
          "partitionToWriteStats" : { },
          "operationType" : "UPSERT"
        }
    """
    try:
        lines = [
            f"  {_VALUE_JSON(name)} : {_json_field(name, value)}" for name, value in record.items() if name != "version"
        ]
        return ("{\n" + ",\n".join(lines) + "\n}").encode()
    except (TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(f"commit cannot be stored as JSON: {error}") from None


def _json_field(name: str, value: object) -> str:
    if not isinstance(value, Mapping):
        return _VALUE_JSON(value)
    entry = _json_stats if name == "partitionToWriteStats" else _VALUE_JSON
    lines = [f"    {_VALUE_JSON(key)} : {entry(inner)}" for key, inner in value.items()]
    return "{\n" + ",\n".join(lines) + "\n  }" if lines else "{ }"


def _json_stats(stats: Iterable[Mapping[str, object]]) -> str:
    texts = [_STAT_JSON({name: value for name, value in stat.items() if value is not None}) for stat in stats]
    return "[ " + ", ".join(f"{{\n      {text[1:-1]}\n    }}" for text in texts) + " ]" if texts else "[ ]"


def _decode_json_commit(kind: BodyKind, data: bytes, what: str) -> dict[str, object]:
    try:
        record = json.loads(data.decode())
        if _SURROGATE_ESCAPE.search(data):
            json.dumps(record, ensure_ascii=False).encode()  # an unpaired surrogate could not be written again
        schema = _commit_schema(kind)
        _shape_column(schema, [record], kind.value)
        _check_commit(record)
    except RecursionError:
        raise CorruptFile(f"{what}: JSON is nested too deeply") from None
    except ValueError as error:
        raise CorruptFile(f"{what}: damaged JSON commit: {error}") from None
    return {field.name: record.get(field.name) for field in schema.fields}


def _check_commit(record: Mapping[str, Any]) -> None:
    if "partitionToWriteStats" not in record:
        raise ValueError("nothing in it is a commit's")
    stats = (record["partitionToWriteStats"] or {}).values()
    # An empty stat takes two bytes here, and two hundred times as many in memory.
    if any("fileId" not in stat for rows in stats for stat in rows):
        raise ValueError("a write stat without fileId")


@cache
def _commit_schema(kind: BodyKind) -> AvroType:
    return parse_avro_schema(body_schema(kind))


_JSON_TYPES: dict[str, type] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "string": str,
    "array": list,
    "map": dict,
    "record": dict,
}
_RANGES = {"int": range(-(1 << 31), 1 << 31), "long": range(-(1 << 63), 1 << 63)}


def _shape_column(node: AvroType, values: Sequence[Any], where: str) -> None:
    """Check that all `values` have one type, and drop unknown fields.

    A commit has one column per field and one value per file: checking columns is several times
    faster than checking stats one by one.
    """
    if node.kind == "union":
        other = next(part for part in node.parts if part.kind != "null")
        return _shape_column(other, [value for value in values if value is not None], where)
    wrong = set(map(type, values)) - {_JSON_TYPES[node.kind]}
    if wrong:
        raise ValueError(f"{where} is a {wrong.pop().__name__}, not a {node.kind}")
    if node.kind == "record":
        _shape_records(node, values)
    elif node.kind == "array":
        _shape_column(node.parts[0], [entry for value in values for entry in value], where)
    elif node.kind == "map":
        _shape_maps(node, values, where)
    elif node.kind in _RANGES and values:
        allowed = _RANGES[node.kind]
        if min(values) not in allowed or max(values) not in allowed:
            raise ValueError(f"{where} is too large a number")
    return None


def _shape_records(node: AvroType, records: Sequence[dict[str, Any]]) -> None:
    names = {field.name for field in node.fields}
    for record in records:
        if not names.issuperset(record):
            for name in record.keys() - names:
                del record[name]
    for field in node.fields:
        _shape_column(field.type, [record[field.name] for record in records if field.name in record], field.name)


def _shape_maps(node: AvroType, maps: Sequence[dict[str, Any]], where: str) -> None:
    """Check maps; drop entries without a value, which early releases wrote."""
    for entries in maps:
        for key in [key for key, value in entries.items() if value is None]:
            del entries[key]
    _shape_column(node.parts[0], [value for entries in maps for value in entries.values()], where)
