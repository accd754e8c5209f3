"""The sources of a commit's changes (docs/format.md, Change files). Pure.

The cases are those of Hudi's CDC inference, and one more: a base file that replaces another in a
table without change capture; both are compared.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from lakefmt.data_classes import dataclass
from lakefmt.filegroups.cdc import cdc_paths
from lakefmt.filegroups.pending_plans import is_copied_log
from lakefmt.formats.names import parse_base_file
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.timeline.instant import Instant
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import FileId, InstantTime, PartitionPath, WriteStat

__all__ = ["ChangeSource", "InferenceCase", "changing_sources", "plan_sources"]


class InferenceCase(enum.Enum):
    """How the changes of a file group are determined."""

    BASE_FILE_INSERT = "BASE_FILE_INSERT"
    BASE_FILE_DELETE = "BASE_FILE_DELETE"
    BASE_FILE_COMPARE = "BASE_FILE_COMPARE"
    LOG_FILE = "LOG_FILE"
    REPLACE_COMMIT = "REPLACE_COMMIT"
    AS_IS = "AS_IS"


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """The changes of one commit in one file group.

    Attributes:
        case: how the changes are determined.
        partition: partition path.
        path: base file of the commit, relative to the table; "" without one.
        former: instant of the previous base file; "null" without one.
        files: change files (``AS_IS``), or the logs of the commit.
    """

    case: InferenceCase
    partition: PartitionPath
    file_id: FileId
    path: str = ""
    former: InstantTime | str = "null"
    files: tuple[str, ...] = ()


def changing_sources(
    timeline: Timeline, instant: Instant, commit: CommitMetadata, replaced: Mapping[tuple[str, str], InstantTime]
) -> list[ChangeSource]:
    """Return the sources of a commit, where rows went to old and to new buckets of a clustering those of one.

    These are the old buckets. In version 6 the timeline does not say whether the clustering completed before the commit: once it
    has completed, it counts as older, and the new buckets tell.

    Args:
        timeline: the table's.
        instant: the commit.
        commit: its metadata.
        replaced: the file groups that are replaced, with the instants that did it.
    """

    def tells(source: ChangeSource) -> bool:
        if source.case is not InferenceCase.LOG_FILE:
            return True
        if timeline.layout == 1 and replaced.get((source.partition, source.file_id), instant.time) < instant.time:
            return False
        return not all(is_copied_log(timeline, instant, path.rpartition("/")[2]) for path in source.files)

    return [source for source in plan_sources(commit) if tells(source)]


def plan_sources(commit: CommitMetadata) -> list[ChangeSource]:
    """Return the change sources of a commit, one per file group, replaced groups first.

    Args:
        commit: its metadata.

    Source: docs/format.md, Change files.

    Example:
        >>> from lakefmt.values import WriteOperation
        >>> stat = WriteStat("f-0", "", "f-0_1-0-0_20260101000000000.parquet", num_writes=2, num_inserts=2)
        >>> [source.case.name for source in plan_sources(CommitMetadata(WriteOperation.INSERT, (stat,)))]
        ['BASE_FILE_INSERT']
    """
    sources = [
        ChangeSource(InferenceCase.REPLACE_COMMIT, partition, file_id)
        for partition, ids in commit.replaced_file_ids.items()
        for file_id in ids
    ]
    logs: dict[tuple[PartitionPath, FileId], list[str]] = {}
    for stat in commit.stats:
        if not stat.path:
            continue
        if parse_base_file(stat.file_name) is None:
            logs.setdefault((stat.partition_path, stat.file_id), []).append(stat.path)
        else:
            sources.append(_of_base(stat))
    sources += [ChangeSource(InferenceCase.LOG_FILE, *key, files=tuple(paths)) for key, paths in logs.items()]
    return sources


def _of_base(stat: WriteStat) -> ChangeSource:
    change_files = cdc_paths(stat)
    former = stat.prev_commit or "null"
    if change_files:
        case = InferenceCase.AS_IS
    elif former == "null":
        case = InferenceCase.BASE_FILE_INSERT
    elif not stat.num_writes:
        case = InferenceCase.BASE_FILE_DELETE
    else:
        case = InferenceCase.BASE_FILE_COMPARE
    return ChangeSource(case, stat.partition_path, stat.file_id, stat.path, former, change_files)
