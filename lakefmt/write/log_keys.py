"""Which file slices may have keys in their logs that their base files do not have (a pure rule, and its look at commits).

Indexes that look keys up put new ones into base files; bucket indexes put all of them into logs, and count them as updates.
lakefmt's own commits say that their logs got stored keys only, so that these need not be read for others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from lakefmt.filegroups.access import TableAccess, TableState
from lakefmt.filegroups.model import FileSlice
from lakefmt.formats.names import parse_base_file
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.timeline.instant import Action
from lakefmt.values import FileId, PartitionPath, WriteStat

__all__ = ["LOG_NOTE", "groups_given_keys", "may_hold_own_keys", "note_log_keys", "slices_with_own_keys"]

#: Extra metadata of commits, under a name of lakefmt's own.
LOG_NOTE: Final = "lakefmt.log.keys"
_COUNTED: Final = "counted"


def slices_with_own_keys(access: TableAccess, state: TableState, slices: Sequence[FileSlice]) -> list[int]:
    """Return the numbers of the slices whose logs have to be asked for keys that no base file has.

    Raises:
        CorruptFile: a commit is damaged.
    """
    if not any(piece.logs and piece.base is not None for piece in slices):
        return [number for number, piece in enumerate(slices) if piece.logs]
    deltas = (i for i in state.timeline.commits if i.action is Action.DELTA_COMMIT)
    given = groups_given_keys(access.commit_metadata(state, instant) for instant in deltas)
    first = state.timeline.first_active
    return [number for number, piece in enumerate(slices) if may_hold_own_keys(piece, first, given)]


def note_log_keys(stats: Iterable[WriteStat]) -> dict[str, str]:
    """Return the extra metadata of a commit that looked its keys up and counted those that logs got as new ones.

    Example:
        >>> stat = WriteStat(FileId("f-0"), PartitionPath(""), ".f-0_1.log.1_0-0-0", num_writes=2, num_update_writes=2)
        >>> note_log_keys([stat])
        {'lakefmt.log.keys': 'counted'}
    """
    return {LOG_NOTE: _COUNTED} if any(map(_is_log, stats)) else {}


def groups_given_keys(commits: Iterable[CommitMetadata]) -> frozenset[tuple[PartitionPath, FileId]]:
    """Return the file groups whose logs some of these commits may have given new keys.

    Example:
        >>> from lakefmt.values import WriteOperation
        >>> stat = WriteStat(FileId("f-0"), PartitionPath(""), ".f-0_1.log.1_0-0-0", num_writes=2, num_update_writes=2)
        >>> ours = CommitMetadata(WriteOperation.UPSERT, (stat,), extra_metadata=note_log_keys([stat]))
        >>> groups_given_keys([ours]), len(groups_given_keys([CommitMetadata(WriteOperation.UPSERT, (stat,))]))
        (frozenset(), 1)
    """
    return frozenset(
        (stat.partition_path, stat.file_id)
        for commit in commits
        for stat in commit.stats
        if _is_log(stat) and (stat.num_inserts or commit.extra_metadata.get(LOG_NOTE) != _COUNTED)
    )


def may_hold_own_keys(
    piece: FileSlice, first_active: str | None, given: Collection[tuple[PartitionPath, FileId]]
) -> bool:
    """Return whether a slice's logs may have keys that its base file lacks.

    Args:
        piece: the slice.
        first_active: the oldest commit that is not archived; older ones are not asked, so that their logs have to be.
        given: the file groups that were given new keys since.
    """
    if not piece.logs:
        return False
    if piece.base is None or first_active is None or (piece.partition, piece.file_id) in given:
        return True
    return min(piece.base.instant, *(log.instant for log in piece.logs)) < first_active


def _is_log(stat: WriteStat) -> bool:
    return parse_base_file(stat.file_name) is None
