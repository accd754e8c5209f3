"""A table as the source of a stream: Spark asks a worker of its own for offsets, and tasks for rows.

An offset is the completion time of the last commit that was read (the requested time in version 6), as JSON
``{"completion": "20260102030405006", "v": 1}``. A batch is the commits after one offset, up to and with the next.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import datasource

from lakefmt import open_table
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.read.incremental import is_rewrite, select_commits
from lakefmt._core.read.snapshot import planned_clusterings, with_archived_instants
from lakefmt._core.storage.time_source import SystemTimeSource
from lakefmt.errors import InvalidInputError, SnapshotExpired, UnknownSetting, UnsupportedFeature
from lakefmt.spark.options import parse_read_options
from lakefmt.spark.scan import PlannedScan, SparkSplit, open_scan

__all__ = [
    "EARLIEST",
    "CommitSize",
    "SourceOptions",
    "TableStreamReader",
    "choose_end",
    "decode_offset",
    "encode_offset",
    "take_source_options",
]

EARLIEST: Final = "000"
_OFFSET_VERSION: Final = 1
_FILES, _BYTES, _LOSS = "maxfilespertrigger", "maxbytespertrigger", "failondataloss"
_START_OPTION: Final = "hoodie.datasource.streaming.startoffset"
_QUERY_OPTION: Final = "hoodie.datasource.query.type"
_FORMAT_OPTION: Final = "hoodie.datasource.query.incremental.format"
_FALLBACK_OPTION: Final = "hoodie.datasource.read.incr.fallback.fulltablescan.enable"


@dataclass(frozen=True, slots=True)
class CommitSize:
    """One commit that a batch may end with.

    Attributes:
        time: its completion time (its requested time in version 6).
        files: the files that it wrote.
        num_bytes: their bytes.
    """

    time: str
    files: int = 0
    num_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How a stream reads a table.

    Attributes:
        start: ``earliest``, ``latest``, or the time after which a query without a checkpoint begins.
        max_files: about how many files one batch reads; None: no limit.
        max_bytes: about how many bytes one batch reads; None: no limit.
        fails_on_loss: what a clean removed is an error; False: it is left out with a warning.
    """

    start: str = "earliest"
    max_files: int | None = None
    max_bytes: int | None = None
    fails_on_loss: bool = True


def encode_offset(time: str) -> dict[str, object]:
    """Return an offset as Spark keeps it.

    Example:
        >>> encode_offset("20260102030405006")
        {'completion': '20260102030405006', 'v': 1}
    """
    return {"completion": time, "v": _OFFSET_VERSION}


def decode_offset(offset: Mapping[str, object]) -> str:
    """Return the time of an offset.

    Raises:
        InvalidInputError: the checkpoint folder holds something else.

    Example:
        >>> decode_offset({"completion": "000", "v": 1})
        '000'
    """
    time = offset.get("completion")
    if offset.get("v") != _OFFSET_VERSION or not isinstance(time, str) or not (time.isascii() and time.isdigit()):
        raise InvalidInputError(
            f"the checkpoint holds no offset of lakefmt: {str(dict(offset))[:80]}; a new checkpoint folder begins anew"
        )
    return time


def choose_end(
    commits: Sequence[CommitSize],
    start: str,
    *,
    max_files: int | None = None,
    max_bytes: int | None = None,
    readable_from: str = "",
) -> str:
    """Return the end of the next batch.

    A batch takes at least one commit, however large. It does not end before the oldest state that cleans have left: such
    an end could not be read.

    Args:
        commits: those after `start`, oldest first; table services change no row and are no end.
        start: the offset so far, returned when there is nothing new.
        max_files: about how many files the batch may have.
        max_bytes: about how many bytes the batch may have.
        readable_from: the oldest time as of which the table can still be read.

    Example:
        >>> commits = [CommitSize("1", 2), CommitSize("2", 2), CommitSize("3", 2)]
        >>> choose_end(commits, "0", max_files=4), choose_end(commits, "0", max_files=1, readable_from="3")
        ('2', '3')
    """
    end, files, num_bytes = start, 0, 0
    for commit in commits:
        files, num_bytes = files + commit.files, num_bytes + commit.num_bytes
        is_full = (max_files is not None and files > max_files) or (max_bytes is not None and num_bytes > max_bytes)
        if is_full and end > start and end >= readable_from:
            break
        end = commit.time
    return end


def take_source_options(options: Mapping[str, str]) -> tuple[SourceOptions, dict[str, str]]:
    """Return the source's own options, and those of the queries of its batches.

    Raises:
        UnknownSetting: a value that an option does not take.
        UnsupportedFeature: a query that is no stream.

    Example:
        >>> took, query = take_source_options({"maxFilesPerTrigger": "10"})
        >>> took.max_files, query["hoodie.datasource.query.type"]
        (10, 'incremental')
    """
    given = {name.lower() if not name.lower().startswith("storage.") else name: v for name, v in options.items()}
    start = given.pop(_START_OPTION, "earliest").lower()
    if start not in ("earliest", "latest") and not (start.isascii() and start.isdigit()):
        raise UnknownSetting(
            f"hoodie.datasource.streaming.startOffset takes earliest, latest or an instant time, not {start[:40]!r}"
        )
    files, num_bytes = (_parse_limit(name, given.pop(name, None)) for name in (_FILES, _BYTES))
    loss = given.pop(_LOSS, "true").lower()
    if loss not in ("true", "false"):
        raise UnknownSetting(f"failOnDataLoss takes true or false, not {loss[:40]!r}")
    if given.get(_FORMAT_OPTION, "").lower() == "cdc" and given.get(_QUERY_OPTION, "").lower() != "incremental":
        raise UnsupportedFeature(f"{_FORMAT_OPTION}=cdc needs {_QUERY_OPTION}=incremental, as in Hudi")
    if given.get(_QUERY_OPTION, "snapshot").lower() == "read_optimized" or "as.of.instant" in given:
        raise UnsupportedFeature(
            "a stream reads what commits add: read_optimized and as.of.instant are for batch reads"
        )
    if any(f"hoodie.datasource.read.{side}.instanttime" in given for side in ("begin", "end")):
        raise UnsupportedFeature("a stream has no end, and hoodie.datasource.streaming.startOffset names its start")
    given[_QUERY_OPTION] = "incremental"
    given.setdefault(_FALLBACK_OPTION, "false")
    return SourceOptions(start, files, num_bytes, loss == "true"), given


def _parse_limit(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) == 0:
        raise UnknownSetting(f"{name} takes a number from 1 on, not {text[:40]!r}")
    return int(text)


try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark before 4.2 asks for the newest offset alone
    ReadLimit = ReadAllAvailable = ReadMaxBytes = ReadMaxFiles = SupportsTriggerAvailableNow = object


_log = logging.getLogger("lakefmt.spark")
#: Spark asks for offsets without pause; the timeline is listed this often.
_LISTING_SECONDS: Final = 1.0
_DATA_LOSS_HINT: Final = (
    "failOnDataLoss=false leaves out what a clean removed; with a new checkpoint folder "
    "hoodie.datasource.streaming.startOffset names another start"
)


@dataclass
class _Split(datasource.InputPartition):
    plan: PlannedScan
    split: SparkSplit


class TableStreamReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the commits of a table, a range of them in each batch.

    Args:
        path: the table.
        options: as Spark hands them.
        names: the columns that the query reads.

    Raises:
        UnsupportedFeature: the options ask for a limit, and this release of PySpark has none.
    """

    def __init__(self, path: str, options: Mapping[str, str], names: Sequence[str]) -> None:
        self.path, self.names = path, tuple(names)
        self.options, self.query = take_source_options(options)
        if ReadLimit is object and (self.options.max_files or self.options.max_bytes):
            raise UnsupportedFeature(
                "maxFilesPerTrigger and maxBytesPerTrigger need PySpark 4.2: before, Spark asks a data source in Python for "
                "everything that is there; leave them out"
            )
        self._call = parse_read_options(self.query)
        self._target: str | None = None
        self._listed: tuple[float, TableState] | None = None
        self._client: TableClient | None = None
        self._clock = SystemTimeSource()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_listed": None, "_client": None}

    # ------------------------------------------------------------------------------------------------------- offsets

    def initialOffset(self) -> dict[str, object]:  # noqa: N802 - the names are those of Spark
        """Return where a query without a checkpoint begins."""
        start = self.options.start
        if start == "latest":
            start = self._end(EARLIEST, None, None)
        return encode_offset(EARLIEST if start == "earliest" else start)

    def latestOffset(self, start: Mapping[str, object] | None = None, limit: object = None) -> dict[str, object]:  # noqa: N802
        """Return the end of the next batch; `start` when there is nothing new."""
        begin = EARLIEST if start is None else decode_offset(start)
        # Each kind of limit has one of these.
        files, num_bytes = getattr(limit, "max_files", None), getattr(limit, "max_bytes", None)
        return encode_offset(self._end(begin, files, num_bytes))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the options ask for; Spark passes it on, unless the trigger takes all."""
        if self.options.max_files is not None:
            return ReadMaxFiles(self.options.max_files)
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query: what is there now."""
        self._target = self._end(EARLIEST, None, None)

    def _end(self, start: str, max_files: int | None, max_bytes: int | None) -> str:
        client, state = self._load()
        state = with_archived_instants(client.at(state), start)
        sizes = []
        for instant in select_commits(state.timeline, start, self._target, planned_clusterings(client.at(state))):
            commit = client.at(state).commit_metadata(instant)
            if not is_rewrite(commit):
                num_bytes = sum(stat.file_size_in_bytes for stat in commit.stats)
                sizes.append(CommitSize(instant.order_time, len(commit.stats), num_bytes))
        return choose_end(
            sizes, start, max_files=max_files, max_bytes=max_bytes, readable_from=_readable_from(client.at(state))
        )

    def _load(self) -> tuple[TableClient, TableState]:
        """Return the table, listed anew when the last listing is old."""
        now = self._clock.monotonic()
        if self._client is None:
            table = open_table(self.path, options=self._call.settings, storage_options=self._call.storage)
            self._client = table.client
        if self._listed is None or now - self._listed[0] >= _LISTING_SECONDS:
            self._listed = (now, self._client.load())
        return self._client, self._listed[1]

    # ---------------------------------------------------------------------------------------------------------- rows

    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> Sequence[datasource.InputPartition]:
        """Return what the tasks of a batch read."""
        begin, last = decode_offset(start), decode_offset(end)
        if not self.options.fails_on_loss:
            begin = self._readable_start(begin, last)
        if begin >= last:
            return []
        sides = {"begin": begin, "end": last}
        bounds = {f"hoodie.datasource.read.{side}.instanttime": time for side, time in sides.items()}
        try:
            plan = open_scan(self.path, {**self.query, **bounds}).plan(columns=self.names)
        except SnapshotExpired as error:
            raise SnapshotExpired(f"{error}; {_DATA_LOSS_HINT}") from None
        return [_Split(replace(plan, splits=()), split) for split in plan.splits]

    def _readable_start(self, start: str, end: str) -> str:
        """Return the start of what is left of a range."""
        client, state = self._load()
        oldest = _readable_from(client.at(state))
        left = oldest if self._call.query == "cdc" else end
        if start >= oldest or (self._call.query != "cdc" and end >= oldest):
            return start
        _log.warning("%s: changes after %s up to %s were cleaned away and are left out", self.path, start, left)
        return left

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split."""
        if isinstance(partition, _Split):
            try:
                yield from partition.plan.read(partition.split)
            except SnapshotExpired as error:
                raise SnapshotExpired(f"{error}; {_DATA_LOSS_HINT}") from None


def _readable_from(table_at: TableAt) -> str:
    """Return the oldest completion time as of which the table can be read for sure."""
    oldest = table_at.retained_from()
    return "" if oldest is None else table_at.timeline.completion_of(oldest)
