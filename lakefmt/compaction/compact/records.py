"""Content of the requested file of a compaction, encoded and checked (docs/format.md, Compaction). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakefmt.compaction.compact.plan import CompactionOperation, CompactionPlan
from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature
from lakefmt.formats.names import parse_base_file, parse_log_file
from lakefmt.storage.api import ObjectStore
from lakefmt.storage.object_names import check_name
from lakefmt.timeline.rollback import relative_path
from lakefmt.values import FileId, InstantTime, PartitionPath, check_instant_time

__all__ = ["compaction_plan_record", "parse_compaction_plan"]

#: Version 2 of a plan holds names only; version 1 held whole paths.
_PLAN_VERSION = 2
#: Hudi's strategy in the plan of a log compaction; releases before 1.0 load the class by its name.
_LOG_STRATEGY = {
    "compactorClassName": "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper",
    "strategyParams": {},
    "version": 1,
}


def compaction_plan_record(plan: CompactionPlan) -> dict[str, object]:
    """Return the record of a requested compaction.

    Example:
        >>> compaction_plan_record(CompactionPlan(None))["version"]
        2
    """
    return {
        "operations": [
            {
                "baseInstantTime": operation.base_instant,
                "deltaFilePaths": list(operation.log_names),
                "dataFilePath": operation.base_name,
                "fileId": operation.file_id,
                "partitionPath": operation.partition,
                # Hudi reads every metric without a check: a missing one is a null pointer there.
                "metrics": dict(operation.metrics),
                "bootstrapFilePath": None,
            }
            for operation in plan.operations
        ],
        "extraMetadata": None,
        "version": _PLAN_VERSION,
        "strategy": _LOG_STRATEGY if plan.log else None,
        "preserveHoodieMetadata": plan.log,
        "missingSchedulePartitions": None,
    }


def parse_compaction_plan(store: ObjectStore, record: Mapping[str, Any], what: str) -> CompactionPlan:
    """Return the plan in the record of a requested compaction, whichever engine wrote it.

    Args:
        store: the table; absolute paths must be below it.
        record: the decoded body.
        what: name of the file in errors.

    Raises:
        CorruptFile: it names something that is no base file or log of its file group, or a group twice.
        UnsafePath: it names something outside the table.
        UnsupportedFeature: an operation has a bootstrap file.
    """
    operations = tuple(_operation(store, entry, what) for entry in record.get("operations") or ())
    groups = {(o.partition, o.file_id) for o in operations}
    if len(groups) != len(operations):
        raise CorruptFile(f"{what} plans a file group twice")
    return CompactionPlan(None, operations)


def _operation(store: ObjectStore, entry: Mapping[str, Any], what: str) -> CompactionOperation:
    if entry.get("bootstrapFilePath"):
        raise UnsupportedFeature(f"{what} merges a bootstrap file: bootstrap tables are not supported")
    partition = PartitionPath(str(entry.get("partitionPath") or ""))
    if partition:
        check_name(partition)
    file_id = FileId(str(entry.get("fileId") or ""))
    try:
        instant = check_instant_time(str(entry.get("baseInstantTime") or ""))
    except InvalidInputError as error:
        raise CorruptFile(f"{what} plans a slice of {error}") from None
    base_name = _name(store, partition, entry.get("dataFilePath"), what)
    logs = [_name(store, partition, path, what) for path in entry.get("deltaFilePaths") or ()]
    _check_base(base_name, file_id, instant, what)
    return CompactionOperation(
        partition,
        file_id,
        instant,
        base_name,
        tuple(_checked_log(name, file_id, what) for name in logs),
        {str(name): float(value) for name, value in (entry.get("metrics") or {}).items()},
    )


def _name(store: ObjectStore, partition: str, path: object, what: str) -> str | None:
    """Return a file's name in its partition; plans of version 1 hold whole paths."""
    text = str(path or "")
    if "/" not in text:
        return check_name(text) if text else None
    inside, _, name = relative_path(store, text).rpartition("/")
    if inside != partition:
        raise CorruptFile(f"{what} names {text!r}, which is not in partition {partition!r}")
    return name


def _check_base(name: str | None, file_id: FileId, instant: InstantTime, what: str) -> None:
    base = None if name is None else parse_base_file(name)
    if name is not None and (base is None or base.file_id != file_id or base.instant != instant):
        raise CorruptFile(f"{what} names {name!r}, which is no base file of group {file_id!r} at {instant}")


def _checked_log(name: str | None, file_id: FileId, what: str) -> str:
    log = None if name is None else parse_log_file(name)
    if name is None or log is None or log.file_id != file_id or log.is_cdc:
        raise CorruptFile(f"{what} names {name!r}, which is no log of file group {file_id!r}")
    return name
