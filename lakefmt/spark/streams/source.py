"""A table as the source of a stream: Spark asks a worker of its own for offsets, and tasks for rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import datasource

from lakefmt import open_table
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.read.incremental import EARLIEST, ReadPosition, is_rewrite, select_commits
from lakefmt._core.read.snapshot import planned_clusterings, with_archived_instants
from lakefmt._core.storage.time_source import SystemTimeSource
from lakefmt.errors import SnapshotExpired, UnsupportedFeature
from lakefmt.spark.options import parse_read_options
from lakefmt.spark.reading import PlannedScan, SparkSplit, open_scan
from lakefmt.spark.streams.offsets import (
    CommitSize,
    choose_end,
    commit_runs,
    decode_offset,
    encode_offset,
    position_in,
    position_up_to,
    take_source_options,
)

__all__ = ["TableStreamReader"]

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
        if start == "earliest":
            return encode_offset(ReadPosition(EARLIEST))
        if start == "latest":
            return encode_offset(self._end(ReadPosition(EARLIEST), None, None))
        _, state = self._load()
        return encode_offset(ReadPosition(start, start if state.timeline.layout == 1 else ""))

    def latestOffset(self, start: Mapping[str, object] | None = None, limit: object = None) -> dict[str, object]:  # noqa: N802
        """Return the end of the next batch; `start` when there is nothing new."""
        begin = ReadPosition(EARLIEST) if start is None else decode_offset(start)
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
        self._target = self._end(ReadPosition(EARLIEST), None, None).time

    def _end(self, offset: ReadPosition, max_files: int | None, max_bytes: int | None) -> ReadPosition:
        table_at, start = self._located(offset)
        sizes = []
        for instant in select_commits(table_at.timeline, start.time, self._target, planned_clusterings(table_at)):
            commit = table_at.commit_metadata(instant)
            if not is_rewrite(commit) and not start.has(instant):
                num_bytes = sum(stat.file_size_in_bytes for stat in commit.stats)
                sizes.append(CommitSize(instant.order_time, len(commit.stats), num_bytes))
        if not sizes:
            return offset  # Spark compares offsets to see whether there is something new
        readable_from = _readable_from(table_at)
        end = choose_end(sizes, start.time, max_files=max_files, max_bytes=max_bytes, readable_from=readable_from)
        return position_up_to(table_at.timeline, end, start)

    def _located(self, offset: ReadPosition) -> tuple[TableAt, ReadPosition]:
        """Return the table with its commits behind an offset, and the position of the offset in it."""
        client, state = self._load()
        table_at = client.at(with_archived_instants(client.at(state), offset.time))
        return table_at, position_in(table_at.timeline, offset)

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
        splits: list[datasource.InputPartition] = []
        for begin, last in self._ranges(decode_offset(start), decode_offset(end)):
            sides = {"begin": begin, "end": last}
            bounds = {f"hoodie.datasource.read.{side}.instanttime": time for side, time in sides.items()}
            try:
                plan = open_scan(self.path, {**self.query, **bounds}).plan(columns=self.names)
            except SnapshotExpired as error:
                raise SnapshotExpired(f"{error}; {_DATA_LOSS_HINT}") from None
            splits += [_Split(replace(plan, splits=()), split) for split in plan.splits]
        return splits

    def _ranges(self, start: ReadPosition, end: ReadPosition) -> list[tuple[str, str]]:
        """Return the times of the commits of a batch: one range, except where an upgrade changed the order of commits."""
        table_at, begin = self._located(start)
        last = position_in(table_at.timeline, end)
        if not self.options.fails_on_loss:
            begin = replace(begin, time=self._readable_start(begin.time, last.time))
        if not begin.requested and not last.requested:
            return [(begin.time, last.time)] if begin.time < last.time else []
        commits = select_commits(table_at.timeline, begin.time, None, planned_clusterings(table_at))
        return commit_runs(commits, begin, last)

    def _readable_start(self, start: str, end: str) -> str:
        """Return the start of what is left of a range."""
        client, state = self._load()
        oldest = _readable_from(client.at(state))
        readable_start = oldest if self._call.query == "cdc" else end
        if start >= oldest or (self._call.query != "cdc" and end >= oldest):
            return start
        _log.warning(
            "%s: changes after %s up to %s were cleaned away and are left out", self.path, start, readable_start
        )
        return readable_start

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
