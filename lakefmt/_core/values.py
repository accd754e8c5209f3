"""Shared values: frozen, checked on construction, without I/O.

A type belongs here if two or more layers use it. Nothing here reads a clock, draws random numbers
or accesses a store; :class:`Clock` and :class:`IdSource` are passed in.
"""

from __future__ import annotations

import enum
import operator
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, NewType, Protocol, TypeAlias, cast

from lakefmt._core.data_classes import dataclass
from lakefmt._core.notebook import facts_html, text_html
from lakefmt.errors import InvalidInputError, UnsupportedVersion

if TYPE_CHECKING:
    import pyarrow.compute as pc

__all__ = [
    "DELETING_OPERATIONS",
    "META_COLUMNS",
    "OPERATION",
    "Clock",
    "CommitResult",
    "FileId",
    "Filter",
    "IdSource",
    "InstantTime",
    "MergeMode",
    "Moment",
    "PartitionPath",
    "Partitions",
    "RandomIds",
    "SystemClock",
    "TableType",
    "TableVersion",
    "WriteOperation",
    "WriteStat",
    "check_instant_time",
    "instant_of",
    "printable",
    "size_text",
    "sum_of_known",
]

#: An instant time: 17 digits ``yyyyMMddHHmmssSSS`` (14 in tables of old releases). Compared as
#: text.
InstantTime = NewType("InstantTime", str)

#: The id of a file group, unique in its partition.
FileId = NewType("FileId", str)

#: A partition path relative to the table; ``""`` for an unpartitioned table.
PartitionPath = NewType("PartitionPath", str)
#: Partitions as arguments: paths, values, tuples of values or mappings, one or several
#: (docs/partitions.md).
Partitions: TypeAlias = str | int | float | Decimal | date | Mapping[str, object] | Iterable[object]
#: Filters as arguments: an Arrow expression, SQL text or DNF tuples; None: all rows (docs/filters.md).
Filter: TypeAlias = "pc.Expression | str | Sequence[object] | None"

COMMIT_TIME = "_hoodie_commit_time"
COMMIT_SEQNO = "_hoodie_commit_seqno"
RECORD_KEY = "_hoodie_record_key"
PARTITION_PATH = "_hoodie_partition_path"
FILE_NAME = "_hoodie_file_name"

#: The five meta columns, always first and in this order (docs/format.md, Meta columns).
META_COLUMNS: tuple[str, ...] = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)

#: The sixth meta column of tables with ``hoodie.allow.operation.metadata.field``: what a row of a changelog does.
OPERATION = "_hoodie_operation"
#: Its values of rows that delete: the row itself, and the row before an update.
DELETING_OPERATIONS: tuple[str, ...] = ("D", "-U")

#: A boolean data column: true deletes the row (docs/format.md, Meta columns).
IS_DELETED = "_hoodie_is_deleted"

_INSTANT = re.compile(r"[0-9]{14}(?:[0-9]{3})?")


def check_instant_time(instant: str) -> InstantTime:
    """Return `instant` as an instant time.

    Raises:
        InvalidInputError: `instant` is not 14 or 17 digits.

    Example:
        >>> check_instant_time("20260101000000000")
        '20260101000000000'
    """
    if not _INSTANT.fullmatch(instant):
        raise InvalidInputError(f"{instant!r} is not an instant time: 17 digits yyyyMMddHHmmssSSS are expected")
    return InstantTime(instant)


class TableType(enum.Enum):
    """How a table stores changed rows."""

    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"

    @classmethod
    def parse(cls, name: str) -> TableType:
        """Return the type `name`: ``cow``, ``mor`` or Hudi's long names, in any case."""
        short = {"COW": cls.COPY_ON_WRITE, "MOR": cls.MERGE_ON_READ}
        upper = name.upper()
        if upper in short:
            return short[upper]
        try:
            return cls(upper)
        except ValueError:
            raise InvalidInputError(f"unknown table type {name!r}: expected 'cow' or 'mor'") from None


class TableVersion(enum.IntEnum):
    """The supported table versions (docs/format.md, Table versions)."""

    SIX = 6
    EIGHT = 8
    NINE = 9

    @property
    def layout(self) -> int:
        """The timeline layout: 1 for version 6, 2 from version 8 on."""
        return 1 if self is TableVersion.SIX else 2

    @classmethod
    def parse(cls, value: object) -> TableVersion:
        """Return the version with the number `value`.

        Raises:
            UnsupportedVersion: lakefmt does not support that version.
        """
        try:
            return cls(int(value) if isinstance(value, str) else operator.index(cast("int", value)))
        except (TypeError, ValueError):
            given = f"{value!r:.40}".strip("'") if isinstance(value, (str, int)) else f"of type {type(value).__name__}"
            raise UnsupportedVersion(
                f"table version {given} is not supported: lakefmt reads and writes versions 6, 8 and 9"
            ) from None


class MergeMode(enum.Enum):
    """Which of two records with one key wins (docs/format.md, Merge modes)."""

    COMMIT_TIME_ORDERING = "COMMIT_TIME_ORDERING"
    EVENT_TIME_ORDERING = "EVENT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class WriteOperation(enum.Enum):
    """Hudi's write operations (docs/format.md, Values in timeline bodies)."""

    INSERT = "INSERT"
    UPSERT = "UPSERT"
    BULK_INSERT = "BULK_INSERT"
    DELETE = "DELETE"
    INSERT_OVERWRITE = "INSERT_OVERWRITE"
    INSERT_OVERWRITE_TABLE = "INSERT_OVERWRITE_TABLE"
    DELETE_PARTITION = "DELETE_PARTITION"
    CLUSTER = "CLUSTER"
    COMPACT = "COMPACT"
    LOG_COMPACT = "LOG_COMPACT"
    INDEX = "INDEX"
    ALTER_SCHEMA = "ALTER_SCHEMA"
    BOOTSTRAP = "BOOTSTRAP"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class WriteStat:
    """A write stat: the entry of a commit for one file (docs/format.md, Values in timeline bodies).

    Numbers count rows or bytes; ``path`` is relative to the table.
    """

    file_id: FileId
    partition_path: PartitionPath
    path: str
    prev_commit: str = "null"
    num_writes: int = 0
    num_inserts: int = 0
    num_update_writes: int = 0
    num_deletes: int = 0
    total_write_bytes: int = 0
    file_size_in_bytes: int = 0
    total_write_errors: int = 0
    prev_base_file: str | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    log_version: int | None = None
    log_offset: int | None = None
    extra: Mapping[str, object] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """The last part of ``path``."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a write; prints as one line, and one more for each warning.

    Attributes:
        instant: the commit's requested time, which ``as_of`` takes; None: there was nothing to commit.
        completion_time: when it became visible, which ``incremental`` and ``changes`` take as their start. Both verbs take the
            result itself, too.
        num_late: rows that changed nothing, because the stored row of their key has a larger ordering value; of a key that is
            stored more than once each stored row counts, as in ``num_updates``. None: not known, since rows went to logs
            without a look at what is stored; the compaction counts those (``CompactionResult.num_late``).
        files: a write stat for each file.
        skipped: nothing was written, since the commit `instant` has these rows already.
    """

    instant: InstantTime | None
    completion_time: InstantTime | None = None
    action: str | None = None
    operation: WriteOperation = WriteOperation.UNKNOWN
    num_inserts: int = 0
    num_updates: int = 0
    num_deletes: int = 0
    files: tuple[WriteStat, ...] = ()
    bytes_written: int = 0
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    skipped: bool = False
    num_late: int | None = 0

    def __repr__(self) -> str:
        return f"CommitResult({self._line()})"

    def __str__(self) -> str:
        return "\n".join([self._line(), *(f"warning: {warning}" for warning in self.warnings)])

    def _repr_html_(self) -> str:
        title, _, warnings = str(self).partition("\n")
        facts = [
            ("instant", self.instant or "none"),
            ("inserted", f"{self.num_inserts:,}"),
            ("updated", f"{self.num_updates:,}"),
            ("deleted", f"{self.num_deletes:,}"),
            ("files", f"{len(self.files):,}"),
            ("written", size_text(self.bytes_written)),
            ("took", f"{self.seconds:.3f} s"),
        ]
        return facts_html(title, facts, text_html("warnings", warnings) if warnings else "")

    def _line(self) -> str:
        if self.skipped:
            return f"{self.operation.value.lower()}: skipped, instant {self.instant or 'unknown'} has these rows"
        if self.instant is None:
            return f"{self.operation.value.lower()}: no rows, no instant"
        return (
            f"{self.operation.value.lower()} {self.instant}: {self.num_inserts:,} inserted, "
            f"{self.num_updates:,} updated, {self.num_deletes:,} deleted{f', {self.num_late:,} late' if self.num_late else ''} "
            f"in {len(self.files):,} files, "
            f"{self.bytes_written:,} bytes, {self.seconds:.3f} s"
        )


def sum_of_known(counts: Iterable[int | None]) -> int | None:
    """Return the sum of counts, None when one of them is not known.

    Example:
        >>> sum_of_known([1, 2]), sum_of_known([1, None])
        (3, None)
    """
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


#: A moment of a table's timeline as an argument: the digits of an instant, an aware datetime, ISO text, or what a commit returned.
Moment: TypeAlias = str | datetime | CommitResult


def instant_of(moment: Moment, *, visible: bool = False) -> str | datetime:
    """Return the instant of what a commit returned; other moments are returned as they are.

    Args:
        moment: any.
        visible: the time at which the commit became visible, from which incremental reads count; False: its requested time.

    Raises:
        InvalidInputError: the call made no commit.

    Example:
        >>> done = CommitResult(InstantTime("20260101000000000"), InstantTime("20260101000000500"))
        >>> instant_of(done), instant_of(done, visible=True), instant_of("20260101")
        ('20260101000000000', '20260101000000500', '20260101')
    """
    if not isinstance(moment, CommitResult):
        return moment
    if moment.instant is None:
        raise InvalidInputError(f"the call ({moment}) made no commit, so it names no moment")
    return (moment.completion_time or moment.instant) if visible else moment.instant


class Clock(Protocol):
    """A source of time, passed in so that tests control it."""

    def now(self) -> datetime:
        """Return the current time with a zone."""
        ...


class IdSource(Protocol):
    """A source of identifiers, passed in so that tests control it."""

    def new_uuid(self) -> str:
        """Return a new lower-case UUID of 36 characters."""
        ...


class SystemClock:
    """The system clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)


class RandomIds:
    """Random UUIDs (version 4)."""

    def __init__(self, make: Callable[[], uuid.UUID] = uuid.uuid4) -> None:
        self._make = make

    def new_uuid(self) -> str:
        """Return a new UUID."""
        return str(self._make())


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_UNITS = ("KiB", "MiB", "GiB", "TiB")


def size_text(size: int) -> str:
    """Return a size in bytes as text with about three digits.

    Example:
        >>> size_text(999), size_text(1536), size_text(12_345_678)
        ('999 B', '1.50 KiB', '11.8 MiB')
    """
    if size < 1024:
        return f"{size} B"
    value, unit = float(size), "B"
    for unit in _UNITS:  # noqa: B007 - the unit it ends with is wanted
        value /= 1024
        if value < 1000:
            break
    return f"{value:.3g} {unit}" if value >= 100 else f"{value:.{2 if value < 10 else 1}f} {unit}"


def printable(text: str) -> str:
    r"""Return `text` on one line without control characters: names of files and columns may have any origin.

    Example:
        >>> printable("a\nb"), printable("\x1b[31m")
        ('a b', '\\x1b[31m')
    """
    return " ".join(text.split()).translate(_CONTROLS)
