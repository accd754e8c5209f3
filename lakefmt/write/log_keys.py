"""Which file slices may have keys in their logs that their base files do not have (a pure rule, and its look at commits).

Spark's bloom and simple indexes, and lakefmt, put new keys into base files; bucket, state and record indexes put them into
logs. Commits tell which it was, so that logs need not be read for keys they cannot have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from lakefmt.filegroups.access import TableAccess, TableState
from lakefmt.filegroups.model import FileSlice
from lakefmt.formats.names import parse_base_file
from lakefmt.timeline.commit import CommitMetadata
from lakefmt.timeline.instant import Action
from lakefmt.values import FileId, PartitionPath, WriteOperation, WriteStat

__all__ = ["groups_given_keys", "may_hold_own_keys", "slices_with_own_keys"]


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


def groups_given_keys(commits: Iterable[CommitMetadata]) -> frozenset[tuple[PartitionPath, FileId]]:
    """Return the file groups whose logs some of these commits may have given new keys.

    Example:
        >>> stat = WriteStat(FileId("f-0"), PartitionPath(""), ".f-0_1.log.1_0-0-0", num_writes=2, num_update_writes=2)
        >>> groups_given_keys([CommitMetadata(WriteOperation.UPSERT, (stat,))])
        frozenset()
    """
    return frozenset(
        (stat.partition_path, stat.file_id)
        for commit in commits
        for stat in commit.stats
        # What a log compaction folds together it did not look up.
        if commit.operation is WriteOperation.LOG_COMPACT or _may_bring_keys(stat)
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


def _may_bring_keys(stat: WriteStat) -> bool:
    # What went into a base file is found there. An engine that does not tell inserts from updates has counted neither.
    in_log = parse_base_file(stat.file_name) is None
    return in_log and (stat.num_inserts > 0 or stat.num_writes > stat.num_update_writes)
