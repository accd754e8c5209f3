"""Build and parse the names of base files, log files, markers and rings (docs/format.md, File ids; File names; Markers). Pure.

A file is data only if its name parses here; other files are ignored and never changed.

Tables that keep the order of rows in a bucket have file ids of their own (:func:`queue_file_id`; docs/dev/append.md, File ids). Such
an id looks like a UUID of version 8, which no Hudi writer makes: ``b`` and seven digits of the bucket's number, then
the requested time of the commit whose rows come first, and six random digits; behind the last ``-`` the file's number
in its commit. Hudi's own bucket numbers are eight digits, so Hudi does not take these for buckets of its index.
"""

from __future__ import annotations

import re
from functools import lru_cache

from lakefmt._core.data_classes import dataclass
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt.errors import InvalidInputError

__all__ = [
    "MOST_BUCKETS",
    "PARTITION_METADATA",
    "PARTITION_METADATA_NAMES",
    "RING_DIRECTORY",
    "BaseFileName",
    "LogFileName",
    "MarkerType",
    "base_file_name",
    "has_bucket_number",
    "marker_name",
    "parse_base_file",
    "parse_log_file",
    "parse_marker",
    "queue_bucket_of",
    "queue_file_id",
    "queue_position_of",
    "ring_directory",
    "ring_files",
    "split_base_file",
]

#: The partition metadata file (docs/format.md, Partition metadata file).
PARTITION_METADATA = ".hoodie_partition_metadata"

#: The same as text and in the base file format.
PARTITION_METADATA_NAMES = (PARTITION_METADATA, f"{PARTITION_METADATA}.parquet", f"{PARTITION_METADATA}.orc")

#: Where the rings of consistent hashing are kept (docs/format.md, Bucket index).
RING_DIRECTORY = ".hoodie/.bucket_index/consistent_hashing_metadata"

_BASE_FILE = re.compile(r"([A-Za-z0-9-]+)_(\d+-\d+-\d+)_(\d{14}|\d{17})\.(parquet|orc|hfile|lance|vortex)", re.ASCII)
_LOG_FILE = re.compile(r"\.([A-Za-z0-9-]+)_(\d{14}|\d{17})\.log\.(\d{1,9})(?:_(\d+-\d+-\d+))?(\.cdc)?", re.ASCII)
_BUCKET_FILE_ID = re.compile(r"000\d{5}-", re.ASCII)
_MARKER_PATH = re.compile(r"(.+)\.marker\.(CREATE|MERGE|APPEND)")


#: A bucket's number has seven digits.
MOST_BUCKETS = 10_000_000
_QUEUE_FILE_ID = re.compile(r"b(\d{7})-(\d{4})-8(\d{3})-(\d{4})-(\d{6})[0-9a-f]{6}-(\d{1,9})", re.ASCII)


#: A handle lists the same names with every commit: these are parsed once.
_KEPT_NAMES = 1 << 14

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
    """The parts of a log file's name; ``instant`` is the base instant in version 6, else the writing instant."""

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
    """Return the parts of a base file's name; None for other names.

    Example:
        >>> parse_base_file("f-0_1-0-0_20260101000000000.parquet").instant
        '20260101000000000'
    """
    parts = split_base_file(name)
    return None if parts is None else BaseFileName(*parts)


def has_bucket_number(file_id: str) -> bool:
    """Return whether a file id begins with a bucket number (docs/format.md, File ids).

    Example:
        >>> has_bucket_number("00000012-1a2b-4c3d-8e9f-012345678901-0"), has_bucket_number("0a000012-1a2b-0")
        (True, False)
    """
    return _BUCKET_FILE_ID.match(file_id) is not None


@lru_cache(maxsize=_KEPT_NAMES)
def split_base_file(name: str) -> tuple[FileId, str, InstantTime, str] | None:
    """Return :func:`parse_base_file` as a plain tuple, for listings of many thousand names.

    Example:
        >>> split_base_file("f-0_1-0-0_20260101000000000.parquet")
        ('f-0', '1-0-0', '20260101000000000', 'parquet')
    """
    match = _BASE_FILE.fullmatch(name)
    if match is None:
        return None
    file_id, token, instant, extension = match.groups()
    return FileId(file_id), token, InstantTime(instant), extension


@lru_cache(maxsize=_KEPT_NAMES)
def parse_log_file(name: str) -> LogFileName | None:
    """Return the parts of a log file's name; None for other names.

    Example:
        >>> parse_log_file(".f-0_20260101000000000.log.1_0-0-0").version
        1
    """
    match = _LOG_FILE.fullmatch(name)
    if match is None:
        return None
    file_id, instant, version, token, cdc = match.groups()
    return LogFileName(FileId(file_id), InstantTime(instant), int(version), token, cdc is not None)


def marker_name(path: str, marker: MarkerType) -> str:
    """Return the marker of a data file, relative to the instant's marker directory.

    Example:
        >>> marker_name("city=sf/f-0_1-0-0_20260101000000000.parquet", "CREATE")
        'city=sf/f-0_1-0-0_20260101000000000.parquet.marker.CREATE'
    """
    return f"{path}.marker.{marker}"


def parse_marker(path: str) -> tuple[str, MarkerType] | None:
    """Return the data file and the type of a marker's path; None for other paths.

    Example:
        >>> parse_marker("a.parquet.marker.MERGE")
        ('a.parquet', 'MERGE')
    """
    match = _MARKER_PATH.fullmatch(path)
    return None if match is None else (match.group(1), match.group(2))


def ring_directory(partition: PartitionPath) -> str:
    """Return where the rings of a partition are kept."""
    return f"{RING_DIRECTORY}/{partition}" if partition else RING_DIRECTORY


def ring_files(partition: PartitionPath, instant: str) -> tuple[str, str]:
    """Return the names of the mark and of the ring that an instant brings to a partition, in the order of their removal.

    Example:
        >>> ring_files(PartitionPath("p"), "20260101000000000")[0].rpartition("/")[2]
        '20260101000000000.commit'
    """
    # Hudi refuses a mark without its ring.
    directory = ring_directory(partition)
    return f"{directory}/{instant}.commit", f"{directory}/{instant}.hashing_meta"


def queue_file_id(bucket: int, first: InstantTime, random_digits: str, number: int) -> FileId:
    """Return the id of a file group of a bucket.

    Args:
        bucket: its number.
        first: requested time of the commit whose rows come first in it.
        random_digits: six hexadecimal digits, which tell it from others of the bucket and the commit.
        number: the file's number in its commit: of one bucket the smaller number comes first.

    Raises:
        InvalidInputError: the bucket has no seven digits, or the time no seventeen.

    Example:
        >>> queue_file_id(3, "20260102030405678", "abcdef", 0)
        'b0000003-2026-8010-2030-405678abcdef-0'
    """
    if not 0 <= bucket < MOST_BUCKETS or len(first) != 17:
        raise InvalidInputError(f"no file id has the bucket {bucket} and the instant {first}")
    return FileId(f"b{bucket:07d}-{first[:4]}-8{first[4:7]}-{first[7:11]}-{first[11:]}{random_digits[:6]}-{number}")


def queue_bucket_of(file_id: str) -> int | None:
    """Return the bucket of a file group; None: its id names none.

    Example:
        >>> queue_bucket_of("b0000003-2026-8010-2030-405678abcdef-0"), queue_bucket_of("1a2b3c4d-1a2b-4c3d-8e9f-0-0")
        (3, None)
    """
    match = _QUEUE_FILE_ID.fullmatch(file_id)
    return None if match is None else int(match[1])


def queue_position_of(file_id: str) -> tuple[InstantTime, int] | None:
    """Return the commit whose rows come first in a file group, and the file's number; None: its id names no bucket.

    Example:
        >>> queue_position_of("b0000003-2026-8010-2030-405678abcdef-4")
        ('20260102030405678', 4)
    """
    match = _QUEUE_FILE_ID.fullmatch(file_id)
    return None if match is None else (InstantTime("".join(match.group(2, 3, 4, 5))), int(match[6]))
