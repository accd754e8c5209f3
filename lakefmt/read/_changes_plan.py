"""Where the changes of a commit stand (spec 9): per file group, in files that tell them or in the states around it. Pure.

The cases and their names are Hudi's. One is added: a base file that was written over another one in a table that captures
no changes; then the two are compared.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from lakefmt.filegroups.cdc.files import cdc_paths
from lakefmt.formats.names import parse_base_file
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.values import FileId, InstantTime, PartitionPath, WriteStat

__all__ = ["ChangeSource", "InferenceCase", "plan_sources"]


class InferenceCase(enum.Enum):
    """How the changes of one file group are found."""

    BASE_FILE_INSERT = "BASE_FILE_INSERT"
    BASE_FILE_DELETE = "BASE_FILE_DELETE"
    BASE_FILE_COMPARE = "BASE_FILE_COMPARE"
    LOG_FILE = "LOG_FILE"
    REPLACE_COMMIT = "REPLACE_COMMIT"
    AS_IS = "AS_IS"


@dataclass(frozen=True, slots=True)
class ChangeSource:
    """What one commit did to one file group.

    Attributes:
        case: how its changes are found.
        partition: the group's partition.
        file_id: the group.
        path: the base file that the commit wrote, relative to the table; "" when it wrote none.
        former: the instant of the base file before it; "null" when there was none.
        files: change files (``AS_IS``), or the logs that the commit wrote.
    """

    case: InferenceCase
    partition: PartitionPath
    file_id: FileId
    path: str = ""
    former: InstantTime | str = "null"
    files: tuple[str, ...] = ()


def plan_sources(commit: CommitMetadata) -> list[ChangeSource]:
    """Return where the changes of a commit stand, each file group once, replaced ones first.

    Args:
        commit: what it says.

    Spec 9.

    Example:
        >>> from lakefmt.values import WriteOperation
        >>> stat = WriteStat("f-0", "", "f-0_1-0-0_20260101000000000.parquet", num_writes=2, num_inserts=2)
        >>> [source.case.name for source in plan_sources(CommitMetadata(WriteOperation.INSERT, (stat,)))]
        ['BASE_FILE_INSERT']
    """
    found = [
        ChangeSource(InferenceCase.REPLACE_COMMIT, partition, one)
        for partition, ids in commit.replaced_file_ids.items()
        for one in ids
    ]
    logs: dict[tuple[PartitionPath, FileId], list[str]] = {}
    for stat in commit.stats:
        if not stat.path:
            continue
        if parse_base_file(stat.file_name) is None:
            logs.setdefault((stat.partition_path, stat.file_id), []).append(stat.path)
        else:
            found.append(_of_base(stat))
    found += [ChangeSource(InferenceCase.LOG_FILE, *key, files=tuple(paths)) for key, paths in logs.items()]
    return found


def _of_base(stat: WriteStat) -> ChangeSource:
    told = cdc_paths(stat)
    former = stat.prev_commit or "null"
    if told:
        case = InferenceCase.AS_IS
    elif former == "null":
        case = InferenceCase.BASE_FILE_INSERT
    elif not stat.num_writes:
        case = InferenceCase.BASE_FILE_DELETE
    else:
        case = InferenceCase.BASE_FILE_COMPARE
    return ChangeSource(case, stat.partition_path, stat.file_id, stat.path, former, told)
