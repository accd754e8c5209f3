"""The Avro schemas of timeline bodies (docs/format.md, Avro records of the timeline).

One line per field: name, type, default. Notation of types::

    ?T          null or T, default null
    T?          T or null (the order is part of the format)

The fields are those of Hudi 1.0.2 to 1.2.0, whose schemas in real files are equal. Older readers
(0.14, 0.15) skip unknown fields, because Avro readers use the schema of the file.
"""

from __future__ import annotations

import enum
import json
from functools import cache

__all__ = ["RECORDS", "BodyKind", "body_schema", "reader_schema", "record_fields"]

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
    return _text(_schema(kind))


@cache
def reader_schema(kind: BodyKind) -> str:
    """Return the reader schema of a body: the writer schema with aliases.

    A replace commit may be stored as a plain commit: Hudi does so until it completes.

    Example:
        >>> "aliases" in reader_schema(BodyKind.REPLACE_COMMIT)
        True
    """
    aliases = {"aliases": [BodyKind.COMMIT.value]} if kind is BodyKind.REPLACE_COMMIT else {}
    return _text({**_schema(kind), **aliases})


def record_fields(name: str) -> tuple[str, ...]:
    """Return the field names of a record in order.

    Example:
        >>> record_fields("HoodieInstantInfo")
        ('commitTime', 'action')
    """
    return tuple(line.split(None, 1)[0] for line in RECORDS[name].strip().splitlines())


def _text(schema: object) -> str:
    return json.dumps(schema, separators=(",", ":"))


def _schema(kind: BodyKind) -> dict[str, object]:
    return {"type": "record", "name": kind.value, "namespace": NAMESPACE, "fields": _fields(kind.value, set())}


def _fields(name: str, defined: set[str]) -> list[dict[str, object]]:
    defined.add(name)
    lines = [line.split(None, 1) for line in RECORDS[name].strip().splitlines()]
    return [_field(field, rest.strip(), defined) for field, rest in lines]


def _field(name: str, rest: str, defined: set[str]) -> dict[str, object]:
    notation, _, default = (part.strip() for part in rest.partition("="))
    field: dict[str, object] = {"name": name, "type": _type(notation.removesuffix("!"), defined)}
    if default:
        field["default"] = json.loads(default)
    elif notation.startswith("?") and not notation.endswith("!"):
        field["default"] = None
    return field


def _type(notation: str, defined: set[str]) -> object:
    """Return the Avro type of a notation; a record is defined at its first use."""
    if notation.startswith("?"):
        return ["null", _type(notation[1:], defined)]
    if notation.endswith("?"):
        return [_type(notation[:-1], defined), "null"]
    if notation.startswith("["):
        return {"type": "array", "items": _type(notation[1:-1], defined)}
    if notation.startswith("{"):
        # Java uses its own strings for texts and map keys only with this entry.
        return {"type": "map", "values": _type(notation[1:-1], defined), "avro.java.string": "String"}
    if notation == "string":
        return {"type": "string", "avro.java.string": "String"}
    if notation in RECORDS and notation not in defined:
        return {"type": "record", "name": notation, "fields": _fields(notation, defined)}
    return notation
