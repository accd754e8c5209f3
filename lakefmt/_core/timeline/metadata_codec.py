"""Encode and decode timeline bodies (docs/format.md, Timeline bodies; Avro records of the timeline; Savepoint). Pure.

Plans and metadata are Avro containers with one record; completed commits of version 6 are JSON. A record is a dict with
Hudi's field names. Decoding gives records of any release the shape of :data:`RECORDS`: unknown fields are dropped, missing
ones get defaults, and every value has its schema's type.

:data:`RECORDS` has one line per field: name, type, default. Notation of types::

    ?T          null or T, default null
    T?          T or null (the order is part of the format)

The fields are those of Hudi 1.0.2 to 1.2.0, whose schemas in real files are equal. Older readers (0.14, 0.15) skip unknown
fields, because Avro readers use the schema of the file.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.avro.container import MAGIC, decode_container, encode_container
from lakefmt._core.notebook import NotebookText
from lakefmt._core.schema.avro import AvroType, parse_avro_schema
from lakefmt._core.storage.api import check_name
from lakefmt._core.timeline.instant import Action, Instant, State
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import InstantTime, PartitionPath
from lakefmt.errors import CorruptFile, InvalidInputError, UnsafePath

__all__ = [
    "RECORDS",
    "WRITE_STAT_FIELDS",
    "BodyKind",
    "Savepoint",
    "body_kind",
    "body_schema",
    "decode_body",
    "decode_commit_rows",
    "encode_body",
    "encode_json_commit",
    "parse_savepoint",
    "reader_schema",
    "record_fields",
    "savepoint_record",
    "savepoints_of",
]

NAMESPACE = "org.apache.hudi.avro.model"


class BodyKind(enum.Enum):
    """The kinds of timeline bodies; the value is the name of the Avro record."""

    COMMIT = "HoodieCommitMetadata"
    REPLACE_COMMIT = "HoodieReplaceCommitMetadata"
    REQUESTED_REPLACE = "HoodieRequestedReplaceMetadata"
    CLUSTERING_PLAN = "HoodieClusteringPlan"
    COMPACTION_PLAN = "HoodieCompactionPlan"
    CLEANER_PLAN = "HoodieCleanerPlan"
    CLEAN_METADATA = "HoodieCleanMetadata"
    ROLLBACK_PLAN = "HoodieRollbackPlan"
    ROLLBACK_METADATA = "HoodieRollbackMetadata"
    RESTORE_PLAN = "HoodieRestorePlan"
    RESTORE_METADATA = "HoodieRestoreMetadata"
    SAVEPOINT_METADATA = "HoodieSavepointMetadata"
    INDEX_PLAN = "HoodieIndexPlan"
    INDEX_COMMIT_METADATA = "HoodieIndexCommitMetadata"
    LSM_TIMELINE_INSTANT = "HoodieLSMTimelineInstant"


RECORDS: dict[str, str] = {
    "HoodieWriteStat": """
        fileId                        ?string
        path                          ?string
        prevCommit                    ?string
        numWrites                     ?long
        numDeletes                    ?long
        numUpdateWrites               ?long
        totalWriteBytes               ?long
        totalWriteErrors              ?long
        partitionPath                 ?string
        totalLogRecords               ?long
        totalLogFiles                 ?long
        totalUpdatedRecordsCompacted  ?long
        numInserts                    ?long
        totalLogBlocks                ?long
        totalCorruptLogBlock          ?long
        totalRollbackBlocks           ?long
        fileSizeInBytes               ?long
        logVersion                    ?int
        logOffset                     ?long
        baseFile                      ?string
        logFiles                      ?[string]
        cdcStats                      ?{long}
        prevBaseFile                  ?string
        minEventTime                  ?long
        maxEventTime                  ?long
        runtimeStats                  ?HoodieRuntimeStats
        totalLogFilesCompacted        ?long
        totalLogReadTimeMs            ?long
        totalLogSizeCompacted         ?long
        tempPath                      ?string
        numUpdates                    ?long
    """,
    "HoodieRuntimeStats": """
        totalScanTime                 ?long
        totalCreateTime               ?long
        totalUpsertTime               ?long
    """,
    "HoodieCommitMetadata": """
        partitionToWriteStats         ?{[HoodieWriteStat]}
        compacted                     ?boolean
        extraMetadata                 ?{string}
        version                       int? = 1
        operationType                 ?string
    """,
    "HoodieReplaceCommitMetadata": """
        partitionToWriteStats         ?{[HoodieWriteStat]}
        compacted                     ?boolean
        extraMetadata                 ?{string}
        version                       int? = 1
        operationType                 ?string
        partitionToReplaceFileIds     ?{[string]}
    """,
    "HoodieRequestedReplaceMetadata": """
        operationType                 ?string
        clusteringPlan                ?HoodieClusteringPlan
        extraMetadata                 ?{string}
        version                       int? = 1
    """,
    "HoodieClusteringPlan": """
        inputGroups                   ?[HoodieClusteringGroup]
        strategy                      ?HoodieClusteringStrategy
        extraMetadata                 ?{string}
        version                       int? = 1
        preserveHoodieMetadata        ?boolean
        missingSchedulePartitions     ?[string]
    """,
    "HoodieClusteringGroup": """
        slices                        ?[HoodieSliceInfo]
        metrics                       ?{double}
        numOutputFileGroups           int? = 1
        extraMetadata                 ?{string}
        version                       int? = 1
    """,
    "HoodieSliceInfo": """
        dataFilePath                  ?string
        deltaFilePaths                ?[string]
        fileId                        ?string!
        partitionPath                 ?string
        bootstrapFilePath             ?string
        version                       int? = 1
    """,
    "HoodieClusteringStrategy": """
        strategyClassName             ?string
        strategyParams                ?{string}
        version                       int? = 1
    """,
    "HoodieCompactionPlan": """
        operations                    ?[HoodieCompactionOperation]
        extraMetadata                 ?{string}
        version                       int? = 1
        strategy                      ?HoodieCompactionStrategy
        preserveHoodieMetadata        boolean? = false
        missingSchedulePartitions     ?[string]
    """,
    "HoodieCompactionOperation": """
        baseInstantTime               ?string!
        deltaFilePaths                ?[string]
        dataFilePath                  ?string
        fileId                        ?string!
        partitionPath                 ?string
        metrics                       ?{double}
        bootstrapFilePath             ?string
    """,
    "HoodieCompactionStrategy": """
        compactorClassName            ?string
        strategyParams                ?{string}
        version                       int? = 1
    """,
    "HoodieCleanerPlan": """
        earliestInstantToRetain       ?HoodieActionInstant
        lastCompletedCommitTimestamp  string = ""
        policy                        string
        filesToBeDeletedPerPartition  ?{[string]}
        version                       int? = 1
        filePathsToBeDeletedPerPartition ?{[HoodieCleanFileInfo]}
        partitionsToBeDeleted         ?[string]
        extraMetadata                 ?{string}
    """,
    "HoodieActionInstant": """
        timestamp                     string
        action                        string
        state                         string
    """,
    "HoodieCleanFileInfo": """
        filePath                      ?string
        isBootstrapBaseFile           ?boolean
    """,
    "HoodieCleanMetadata": """
        startCleanTime                string
        timeTakenInMillis             long
        totalFilesDeleted             int
        earliestCommitToRetain        string
        lastCompletedCommitTimestamp  string = ""
        partitionMetadata             {HoodieCleanPartitionMetadata}
        version                       int? = 1
        bootstrapPartitionMetadata    ?{HoodieCleanPartitionMetadata}
        extraMetadata                 ?{string}
    """,
    "HoodieCleanPartitionMetadata": """
        partitionPath                 string
        policy                        string
        deletePathPatterns            [string]
        successDeleteFiles            [string]
        failedDeleteFiles             [string]
        isPartitionDeleted            ?boolean
    """,
    "HoodieInstantInfo": """
        commitTime                    string
        action                        string
    """,
    "HoodieRollbackPlan": """
        instantToRollback             ?HoodieInstantInfo
        RollbackRequests              ?[HoodieRollbackRequest]
        version                       int? = 1
    """,
    "HoodieRollbackRequest": """
        partitionPath                 string
        fileId                        ?string
        latestBaseInstant             ?string
        filesToBeDeleted              [string] = []
        logBlocksToBeDeleted          ?{long}
    """,
    "HoodieRollbackMetadata": """
        startRollbackTime             string
        timeTakenInMillis             long
        totalFilesDeleted             int
        commitsRollback               [string]
        partitionMetadata             {HoodieRollbackPartitionMetadata}
        version                       int? = 1
        instantsRollback              [HoodieInstantInfo] = []
    """,
    "HoodieRollbackPartitionMetadata": """
        partitionPath                 string
        successDeleteFiles            [string]
        failedDeleteFiles             [string]
        rollbackLogFiles              ?{long}
        logFilesFromFailedCommit      ?{long}
    """,
    "HoodieRestorePlan": """
        instantsToRollback            [HoodieInstantInfo] = []
        version                       int? = 2
        savepointToRestoreTimestamp   ?string
    """,
    "HoodieRestoreMetadata": """
        startRestoreTime              string
        timeTakenInMillis             long
        instantsToRollback            [string]
        hoodieRestoreMetadata         {[?HoodieRollbackMetadata]}
        version                       int? = 1
        restoreInstantInfo            [HoodieInstantInfo] = []
    """,
    "HoodieSavepointMetadata": """
        savepointedBy                 string
        savepointedAt                 long
        comments                      string
        partitionMetadata             {HoodieSavepointPartitionMetadata}
        version                       int? = 1
    """,
    "HoodieSavepointPartitionMetadata": """
        partitionPath                 string
        savepointDataFile             [string]
    """,
    "HoodieIndexPlan": """
        version                       int? = 1
        indexPartitionInfos           ?[HoodieIndexPartitionInfo]
    """,
    "HoodieIndexPartitionInfo": """
        version                       int? = 1
        metadataPartitionPath         ?string
        indexUptoInstant              ?string
        extraMetadata                 ?{string}
    """,
    "HoodieIndexCommitMetadata": """
        version                       int? = 1
        operationType                 ?string
        indexPartitionInfos           ?[HoodieIndexPartitionInfo]
    """,
    "HoodieLSMTimelineInstant": """
        instantTime                   ?string
        completionTime                ?string
        action                        ?string
        metadata                      ?bytes
        plan                          ?bytes
        version                       int = 1
    """,
}


@cache
def body_schema(kind: BodyKind) -> str:
    """Return the writer schema of a body as Avro JSON.

    Source: docs/format.md, Avro records of the timeline.

    Example:
        >>> body_schema(BodyKind.INDEX_PLAN)[:73]
        '{"type":"record","name":"HoodieIndexPlan","namespace":"org.apache.hudi.av'
    """
    return _schema_text(_record_schema(kind))


@cache
def reader_schema(kind: BodyKind) -> str:
    """Return the reader schema of a body: the writer schema with aliases.

    A replace commit may be stored as a plain commit: Hudi does so until it completes.

    Example:
        >>> "aliases" in reader_schema(BodyKind.REPLACE_COMMIT)
        True
    """
    aliases = {"aliases": [BodyKind.COMMIT.value]} if kind is BodyKind.REPLACE_COMMIT else {}
    return _schema_text({**_record_schema(kind), **aliases})


def record_fields(name: str) -> tuple[str, ...]:
    """Return the field names of a record in order.

    Example:
        >>> record_fields("HoodieInstantInfo")
        ('commitTime', 'action')
    """
    return tuple(line.split(None, 1)[0] for line in RECORDS[name].strip().splitlines())


def _schema_text(schema: object) -> str:
    return json.dumps(schema, separators=(",", ":"))


def _record_schema(kind: BodyKind) -> dict[str, object]:
    return {
        "type": "record",
        "name": kind.value,
        "namespace": NAMESPACE,
        "fields": _fields_of_record(kind.value, set()),
    }


def _fields_of_record(name: str, defined: set[str]) -> list[dict[str, object]]:
    defined.add(name)
    lines = [line.split(None, 1) for line in RECORDS[name].strip().splitlines()]
    return [_field_of_line(field, rest.strip(), defined) for field, rest in lines]


def _field_of_line(name: str, rest: str, defined: set[str]) -> dict[str, object]:
    notation, _, default = (part.strip() for part in rest.partition("="))
    field: dict[str, object] = {"name": name, "type": _type_of_notation(notation.removesuffix("!"), defined)}
    if default:
        field["default"] = json.loads(default)
    elif notation.startswith("?") and not notation.endswith("!"):
        field["default"] = None
    return field


def _type_of_notation(notation: str, defined: set[str]) -> object:
    """Return the Avro type of a notation; a record is defined at its first use."""
    if notation.startswith("?"):
        return ["null", _type_of_notation(notation[1:], defined)]
    if notation.endswith("?"):
        return [_type_of_notation(notation[:-1], defined), "null"]
    if notation.startswith("["):
        return {"type": "array", "items": _type_of_notation(notation[1:-1], defined)}
    if notation.startswith("{"):
        # Java uses its own strings for texts and map keys only with this entry.
        return {"type": "map", "values": _type_of_notation(notation[1:-1], defined), "avro.java.string": "String"}
    if notation == "string":
        return {"type": "string", "avro.java.string": "String"}
    if notation in RECORDS and notation not in defined:
        return {"type": "record", "name": notation, "fields": _fields_of_record(notation, defined)}
    return notation


#: Completed commits of version 6, and the profiles in their inflight files, are JSON.
_JSON_KINDS = frozenset({BodyKind.COMMIT, BodyKind.REPLACE_COMMIT})

#: In version 6 the requested file of an overwrite, and the completed file of an empty clean, may be
#: empty.
_EMPTY_KINDS = frozenset({BodyKind.REQUESTED_REPLACE, BodyKind.CLEAN_METADATA})

#: The fields of a write stat in schema order.
WRITE_STAT_FIELDS = record_fields("HoodieWriteStat")
_RECORDS_AS_ROWS = frozenset({"HoodieWriteStat"})

_BODY_KINDS: dict[tuple[Action, State], BodyKind] = {
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
    return _BODY_KINDS.get((action, state))


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
    raise _not_of_kind(kind, data, what)


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
        return decode_container(data, reader=reader_schema(kind), as_tuples=_RECORDS_AS_ROWS, what=what)
    if not _is_json(data):
        raise _not_of_kind(kind, data, what)
    record: dict[str, Any] = _decode_json_commit(kind, data, what)
    stats = record["partitionToWriteStats"] or {}
    record["partitionToWriteStats"] = {
        partition: [tuple(map(row.get, WRITE_STAT_FIELDS)) for row in rows] for partition, rows in stats.items()
    }
    return record


def _is_json(data: bytes) -> bool:
    return data.lstrip()[:1] == b"{"


def _not_of_kind(kind: BodyKind, data: bytes, what: str) -> CorruptFile:
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
_INTEGER_RANGES = {"int": range(-(1 << 31), 1 << 31), "long": range(-(1 << 63), 1 << 63)}


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
    elif node.kind in _INTEGER_RANGES and values:
        allowed = _INTEGER_RANGES[node.kind]
        if min(values) not in allowed or max(values) not in allowed:
            raise ValueError(f"{where} is too large a number")
    return None


def _shape_records(node: AvroType, records: Sequence[dict[str, object]]) -> None:
    names = {field.name for field in node.fields}
    for record in records:
        if not names.issuperset(record):
            for name in record.keys() - names:
                del record[name]
    for field in node.fields:
        _shape_column(field.type, [record[field.name] for record in records if field.name in record], field.name)


def _shape_maps(node: AvroType, maps: Sequence[dict[str, object]], where: str) -> None:
    """Check maps; drop entries without a value, which early releases wrote."""
    for entries in maps:
        for key in [key for key, value in entries.items() if value is None]:
            del entries[key]
    _shape_column(node.parts[0], [value for entries in maps for value in entries.values()], where)


@dataclass(frozen=True, slots=True)
class Savepoint(NotebookText):
    """A commit whose state is kept: cleans do not delete its files, and archiving stops before it. Prints as one line.

    Attributes:
        instant: requested time of the commit.
        user: who made it.
        comment: why.
        created: when; None when the time is out of range.
        files: the files of the state, relative to the table.
    """

    instant: InstantTime
    user: str = ""
    comment: str = ""
    created: datetime | None = None
    files: tuple[str, ...] = ()

    def __str__(self) -> str:
        when = "" if self.created is None else f" at {self.created:%Y-%m-%d %H:%M:%S}Z"
        who = f" by {self.user}" if self.user else ""
        why = f": {self.comment}" if self.comment else ""
        return f"savepoint {self.instant}, {len(self.files):,} files, made{when}{who}{why}"


def savepoints_of(timeline: Timeline) -> tuple[Instant, ...]:
    """Return the completed savepoints of a timeline, by the time of their commits.

    Example:
        >>> from lakefmt._core.timeline.timeline import timeline_from_names
        >>> names = ["20260101000000000_20260101000000500.savepoint", "20260102000000000.savepoint.inflight"]
        >>> [str(instant) for instant in savepoints_of(timeline_from_names(names, 2))]
        ['20260101000000000 savepoint completed']
    """
    return timeline.completed_of(Action.SAVEPOINT)


def savepoint_record(
    user: str, comment: str, created: datetime, files: Mapping[PartitionPath, tuple[str, ...]]
) -> dict[str, object]:
    """Return the content of a savepoint's completed file.

    Args:
        user: who makes it.
        comment: why.
        created: the present.
        files: names of the files of the state, by partition.
    """
    return {
        "savepointedBy": user,
        "savepointedAt": int(created.timestamp() * 1000),
        "comments": comment,
        "partitionMetadata": {
            partition: {"partitionPath": partition, "savepointDataFile": list(names)}
            for partition, names in files.items()
        },
        "version": 1,
    }


def parse_savepoint(instant: InstantTime, record: Mapping[str, Any], what: str) -> Savepoint:
    """Return the savepoint in the content of a completed file.

    Args:
        instant: requested time of its commit.
        record: the decoded content.
        what: name of the file in errors.

    Raises:
        CorruptFile: the content is not that of a savepoint.
        UnsafePath: it names a file outside the table.

    Example:
        >>> record = savepoint_record("ann", "before the move", datetime(2026, 1, 2, tzinfo=UTC), {"p": ("f-0_1.parquet",)})
        >>> print(parse_savepoint("20260101000000000", record, "savepoint"))
        savepoint 20260101000000000, 1 files, made at 2026-01-02 00:00:00Z by ann: before the move
    """
    files: list[str] = []
    for partition, part in record["partitionMetadata"].items():
        files += [f"{partition}/{name}" if partition else name for name in part["savepointDataFile"]]
    try:
        checked = tuple(check_name(path) for path in files)
    except UnsafePath as error:
        raise UnsafePath(f"{what}: {error}") from None
    if not isinstance(record["savepointedAt"], int):
        raise CorruptFile(f"{what}: savepointedAt is {record['savepointedAt']!r}, no number")
    return Savepoint(
        instant, str(record["savepointedBy"]), str(record["comments"]), _moment_of(record["savepointedAt"]), checked
    )


def _moment_of(milliseconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


# -------------------------------------------------------------------------------------------------- content of the files
