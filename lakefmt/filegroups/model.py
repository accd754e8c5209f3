"""File groups and file slices as values (spec 4.3). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lakefmt.values import FileId, InstantTime, PartitionPath

__all__ = ["BaseFile", "FileSlice", "LogFile", "join_path"]


def join_path(partition: str, name: str) -> str:
    """Return a file's path relative to the table.

    Example:
        >>> join_path("", "a.parquet"), join_path("p=1", "a.parquet")
        ('a.parquet', 'p=1/a.parquet')
    """
    return f"{partition}/{name}" if partition else name


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A base file: columns of one file group at one instant. ``size`` in bytes."""

    partition: PartitionPath
    name: str
    file_id: FileId
    write_token: str
    instant: InstantTime
    size: int

    @property
    def path(self) -> str:
        """Relative to the table."""
        return join_path(self.partition, self.name)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file on top of a base file. ``size`` in bytes."""

    partition: PartitionPath
    name: str
    file_id: FileId
    instant: InstantTime
    version: int
    size: int

    @property
    def path(self) -> str:
        """Relative to the table."""
        return join_path(self.partition, self.name)


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One state of a file group: a base file and the logs on top of it, oldest first."""

    partition: PartitionPath
    file_id: FileId
    instant: InstantTime
    base: BaseFile | None
    logs: tuple[LogFile, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Its files, relative to the table, the base file first."""
        logs = tuple(log.path for log in self.logs)
        return logs if self.base is None else (self.base.path, *logs)

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        size = 0 if self.base is None else self.base.size
        return size + sum(log.size for log in self.logs) if self.logs else size
