"""The grammar of data file names: base files, log files, markers (spec 4.1, 4.2, 8.1). Pure.

A file is data only when its name parses here; anything else in a partition is ignored, never touched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakefmt.values import FileId, InstantTime

__all__ = [
    "PARTITION_METADATA",
    "BaseFileName",
    "LogFileName",
    "MarkerType",
    "base_file_name",
    "has_bucket_number",
    "marker_name",
    "parse_base_file",
    "parse_log_file",
    "parse_marker",
    "split_base_file",
]

#: The file that makes a directory a partition (spec 2.3).
PARTITION_METADATA = ".hoodie_partition_metadata"

_BASE = re.compile(r"([A-Za-z0-9-]+)_(\d+-\d+-\d+)_(\d{14}|\d{17})\.(parquet|orc|hfile|lance|vortex)", re.ASCII)
_LOG = re.compile(r"\.([A-Za-z0-9-]+)_(\d{14}|\d{17})\.log\.(\d{1,9})(?:_(\d+-\d+-\d+))?(\.cdc)?", re.ASCII)
_BUCKET = re.compile(r"000\d{5}-", re.ASCII)
_MARKER = re.compile(r"(.+)\.marker\.(CREATE|MERGE|APPEND)")

MarkerType = str


@dataclass(frozen=True, slots=True)
class BaseFileName:
    """The parts of a base file's name."""

    file_id: FileId
    write_token: str
    instant: InstantTime
    extension: str


@dataclass(frozen=True, slots=True)
class LogFileName:
    """The parts of a log file's name. ``instant``: base instant in version 6, writing instant from version 8 on."""

    file_id: FileId
    instant: InstantTime
    version: int
    write_token: str | None
    is_cdc: bool


def base_file_name(file_id: FileId, write_token: str, instant: InstantTime, extension: str = "parquet") -> str:
    """Return the name of a base file.

    Example:
        >>> base_file_name("f-0", "1-0-0", "20260101000000000")
        'f-0_1-0-0_20260101000000000.parquet'
    """
    return f"{file_id}_{write_token}_{instant}.{extension}"


def parse_base_file(name: str) -> BaseFileName | None:
    """Return the parts of a base file's name, or None when it is not one.

    Example:
        >>> parse_base_file("f-0_1-0-0_20260101000000000.parquet").instant
        '20260101000000000'
    """
    found = split_base_file(name)
    return None if found is None else BaseFileName(*found)


def has_bucket_number(file_id: str) -> bool:
    """Return whether a file id begins as those of a bucket index do: with the bucket's number (spec 4.1).

    Example:
        >>> has_bucket_number("00000012-1a2b-4c3d-8e9f-012345678901-0"), has_bucket_number("0a000012-1a2b-0")
        (True, False)
    """
    return _BUCKET.match(file_id) is not None


def split_base_file(name: str) -> tuple[FileId, str, InstantTime, str] | None:
    """Return what :func:`parse_base_file` does as a plain tuple: for listings of many thousand names.

    Example:
        >>> split_base_file("f-0_1-0-0_20260101000000000.parquet")
        ('f-0', '1-0-0', '20260101000000000', 'parquet')
    """
    found = _BASE.fullmatch(name)
    if found is None:
        return None
    file_id, token, instant, extension = found.groups()
    return FileId(file_id), token, InstantTime(instant), extension


def parse_log_file(name: str) -> LogFileName | None:
    """Return the parts of a log file's name, or None when it is not one.

    Example:
        >>> parse_log_file(".f-0_20260101000000000.log.1_0-0-0").version
        1
    """
    found = _LOG.fullmatch(name)
    if found is None:
        return None
    file_id, instant, version, token, cdc = found.groups()
    return LogFileName(FileId(file_id), InstantTime(instant), int(version), token, cdc is not None)


def marker_name(path: str, marker: MarkerType) -> str:
    """Return the marker of a data file, relative to the instant's marker directory.

    Example:
        >>> marker_name("city=sf/f-0_1-0-0_20260101000000000.parquet", "CREATE")
        'city=sf/f-0_1-0-0_20260101000000000.parquet.marker.CREATE'
    """
    return f"{path}.marker.{marker}"


def parse_marker(path: str) -> tuple[str, MarkerType] | None:
    """Return the data file and the kind that a marker's path names, or None.

    Example:
        >>> parse_marker("a.parquet.marker.MERGE")
        ('a.parquet', 'MERGE')
    """
    found = _MARKER.fullmatch(path)
    return None if found is None else (found.group(1), found.group(2))
