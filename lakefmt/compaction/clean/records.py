"""Content of the requested and completed files of a clean (docs/format.md, Clean). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakefmt.compaction.clean.plan import CleanPlan
from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile
from lakefmt.filegroups.model import join_path
from lakefmt.formats.names import parse_base_file, parse_log_file
from lakefmt.storage.api import ObjectStore
from lakefmt.values import InstantTime, PartitionPath

__all__ = ["FLOOR", "SAVEPOINTS_SEEN", "CleanJob", "clean_metadata_record", "clean_plan_record", "parse_clean_plan"]

#: Entries of the extra metadata: the savepoints that were honoured (Hudi's name), and the instant from which on every
#: state is readable, which registered consumers may have put below the policy's.
SAVEPOINTS_SEEN = "savepointed_timestamps"
FLOOR = "lakefmt.floor"


@dataclass(frozen=True, slots=True)
class CleanJob:
    """The plan of a clean as its requested file holds it, for its executor.

    Attributes:
        policy: name of the policy.
        earliest: the earliest commit whose state stays readable, "" when the policy promises none.
        last_completed: the newest commit that the planner had seen.
        files: names to delete, by partition.
        extra: further entries.
    """

    policy: str
    earliest: str
    last_completed: str
    files: Mapping[PartitionPath, tuple[str, ...]]
    extra: Mapping[str, str]

    @property
    def paths(self) -> list[str]:
        """The files to delete, relative to the table."""
        return [join_path(partition, name) for partition, names in self.files.items() for name in names]


def clean_plan_record(store: ObjectStore, plan: CleanPlan, extra: Mapping[str, str]) -> dict[str, object]:
    """Return the record of a requested clean."""
    from lakefmt.timeline.rollback import absolute_path

    earliest = plan.earliest
    instant = earliest and {"timestamp": earliest.time, "action": earliest.action.value, "state": earliest.state.name}
    return {
        "earliestInstantToRetain": instant,
        "lastCompletedCommitTimestamp": plan.last_completed or "",
        "policy": plan.rules.policy.value,
        "filesToBeDeletedPerPartition": {},
        "version": 2,
        "filePathsToBeDeletedPerPartition": {
            partition: [
                {"filePath": absolute_path(store, join_path(partition, name)), "isBootstrapBaseFile": False}
                for name in names
            ]
            for partition, names in plan.files.items()
        },
        "partitionsToBeDeleted": [],
        "extraMetadata": dict(extra),
    }


def parse_clean_plan(store: ObjectStore, record: Mapping[str, Any], what: str) -> CleanJob:
    """Return the plan in the record of a requested clean, whichever engine wrote it.

    Raises:
        CorruptFile: it names something that is no data file of its partition.
        UnsafePath: it names something outside the table.
    """
    from lakefmt.timeline.rollback import relative_path

    named: dict[PartitionPath, list[str]] = {}
    for partition, names in (record.get("filesToBeDeletedPerPartition") or {}).items():
        named.setdefault(partition, []).extend(join_path(partition, name.rpartition("/")[2]) for name in names)
    for partition, files in (record.get("filePathsToBeDeletedPerPartition") or {}).items():
        paths = (relative_path(store, str(file["filePath"] or "")) for file in files)
        named.setdefault(partition, []).extend(paths)
    earliest = record.get("earliestInstantToRetain") or {}
    return CleanJob(
        policy=str(record["policy"]),
        earliest=str(earliest.get("timestamp") or ""),
        last_completed=str(record.get("lastCompletedCommitTimestamp") or ""),
        files={PartitionPath(p): tuple(_data_file(p, path, what) for path in paths) for p, paths in named.items()},
        extra={str(k): str(v) for k, v in (record.get("extraMetadata") or {}).items()},
    )


def _data_file(partition: str, path: str, what: str) -> str:
    inside, _, name = path.rpartition("/")
    is_data = parse_base_file(name) is not None or parse_log_file(name) is not None
    if inside != partition or not is_data:
        raise CorruptFile(f"{what} would delete {path!r}, which is no data file of partition {partition!r}")
    return name


def clean_metadata_record(time: InstantTime, job: CleanJob, milliseconds: int) -> dict[str, object]:
    """Return the record of a completed clean."""
    return {
        "startCleanTime": time,
        "timeTakenInMillis": milliseconds,
        "totalFilesDeleted": len(job.paths),
        "earliestCommitToRetain": job.earliest,
        "lastCompletedCommitTimestamp": job.last_completed,
        "partitionMetadata": {
            partition: {
                "partitionPath": partition,
                "policy": job.policy,
                "deletePathPatterns": list(names),
                "successDeleteFiles": list(names),
                "failedDeleteFiles": [],
                "isPartitionDeleted": False,
            }
            for partition, names in job.files.items()
        },
        "version": 2,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": dict(job.extra),
    }
