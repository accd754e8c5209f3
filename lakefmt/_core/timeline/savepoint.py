"""Savepoints, and what their files hold (docs/format.md, Savepoint). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lakefmt._core.data_classes import dataclass
from lakefmt._core.notebook import NotebookText
from lakefmt._core.storage.object_names import check_name
from lakefmt._core.timeline.instant import Action, Instant
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import InstantTime, PartitionPath
from lakefmt.errors import CorruptFile, UnsafePath

__all__ = ["Savepoint", "parse_savepoint", "savepoint_record", "savepoints_of"]


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
