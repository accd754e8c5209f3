"""Read the facts of an instant that the metadata table needs from the data table's files (effects on reading only).

What a commit wrote is in its metadata; statistics and bloom filters are in the footers of its files. A footer that this process
has just put on a store is not read again (:func:`written_ranges`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakefmt._core.arrays import from_numpy
from lakefmt._core.config.table_config import merge_rule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.listing import StorageListing
from lakefmt._core.filegroups.log_reader import LogRows, read_log_rows
from lakefmt._core.filegroups.merged_slice import merge_logs, only_rows
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile, build_slices, join_path, parse_files
from lakefmt._core.filegroups.reader import (
    BaseFileReader,
    Kept,
    VirtualColumns,
    parquet_file,
    reading,
    stored_schema,
    virtual_columns_of,
)
from lakefmt._core.filegroups.table_client import TableAt, TableClient, TableState
from lakefmt._core.formats.parquet.base_file import BLOOM_TYPE_KEY, check_row_counts
from lakefmt._core.formats.parquet.footers import BLOOM_KEY, LEGACY_BLOOM_KEY
from lakefmt._core.metadata.records import MetadataRecord
from lakefmt._core.metadata.statistics import ColumnRange, footer_ranges, leaf_values, merged_ranges, row_ranges
from lakefmt._core.metadata.updates import DataFile
from lakefmt._core.schema import reconcile, with_meta_columns
from lakefmt._core.schema.history import parse_internal_schema
from lakefmt._core.schema.types import field_at
from lakefmt._core.storage.api import ObjectInfo, ObjectStore, SupportsWrittenFooters
from lakefmt._core.timeline.commit import CommitMetadata
from lakefmt._core.timeline.instant import parse_instant_time
from lakefmt._core.timeline.observer import WrittenKeys
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import IS_DELETED, RECORD_KEY, InstantTime, PartitionPath

if TYPE_CHECKING:
    from lakefmt._core.schema.column_ids import ColumnIds

__all__ = [
    "FactCollector",
    "files_of_commit",
    "files_of_slice",
    "instant_millis",
    "written_ranges",
]


#: Returns the records of a partition of the metadata table that have some keys, by key.
StoredRecords = Callable[[Sequence[str]], Mapping[str, MetadataRecord]]
#: Returns those of some record keys that the record index has in a file group, given with its data partition.
IndexedKeys = Callable[[pa.Array, str, str], pa.Array]
#: Returns the committed files of some data partitions, or None.
KnownFiles = Callable[[Collection[PartitionPath]], tuple[list[BaseFile], list[LogFile]] | None]

_SIMPLE_BLOOM = "SIMPLE"
#: Columns of files whose statistics a handle keeps.
_MOST_KEPT_RANGES = 100_000
#: Bytes of a log's rows, above which they are not kept while an instant is recorded.
_MOST_KEPT_LOG_BYTES = 1 << 20
#: The columns that were asked for, and their statistics.
_FileStatistics = tuple[tuple[str, ...], Mapping[str, ColumnRange]]


def files_of_commit(commit: CommitMetadata) -> dict[str, dict[str, int]]:
    """Return the files that a commit wrote, by data partition the names and their sizes in bytes. Pure.

    Parameters:
        commit: the metadata of the commit; files of change data are among its files.
    """
    files: dict[str, dict[str, int]] = {}
    for stat in commit.stats:
        sizes = files.setdefault(stat.partition_path, {})
        if stat.path:
            sizes[stat.file_name] = max(stat.file_size_in_bytes, sizes.get(stat.file_name, 0))
        changes = stat.extra.get("cdcStats")
        if isinstance(changes, Mapping):
            sizes.update({str(path).rpartition("/")[2]: int(size) for path, size in changes.items()})
    return files


def files_of_slice(file_slice: FileSlice) -> tuple[BaseFile | LogFile, ...]:
    """Return the files of a file slice, the base file first. Pure."""
    return file_slice.logs if file_slice.base is None else (file_slice.base, *file_slice.logs)


_statistics_by_reader: WeakKeyDictionary[BaseFileReader, Kept[_FileStatistics]] = WeakKeyDictionary()
_statistics_guard = Lock()


def _kept_statistics(reader: BaseFileReader) -> Kept[_FileStatistics]:
    """Return the statistics that a table's handle keeps; a listing drops those of files that are gone."""
    with _statistics_guard:
        if reader not in _statistics_by_reader:
            _statistics_by_reader[reader] = Kept(_MOST_KEPT_RANGES)
            reader.kept.append(_statistics_by_reader[reader])
        return _statistics_by_reader[reader]


@dataclass
class FactCollector:
    """Reads what the metadata table needs to know of one instant.

    Attributes:
        client: the data table.
        before: the table without the instant.
        after: the table with the instant.
        time: the requested time of the instant.
        schema: the table's columns with the instant, without meta columns.
        columns: whose statistics are kept.
        with_bloom_filters: whether bloom filters are kept.
        remembered_statistics: returns them where nothing has to be read; None: they have to be.
        stored_statistics: returns the records of ``partition_stats`` with some keys, as they are without the instant.
        indexed_keys: asks the record index as it is without the instant; None: it cannot be asked.
        written_keys: what the writers of files recorded of their keys; None: nothing.
        listed_partitions: returns those of some data partitions that the metadata table lists without the instant.
        known_files: returns the files of data partitions without listing them; None: they are to be listed.
        time_zone: in which expression indexes read times.
        stored_only: a log has no statistics of columns that its rows were written without, as base files have none.
        internal_schema: the columns and their ids with the instant; None: it changes none.
    """

    client: TableClient
    before: TableState
    after: TableState
    time: InstantTime
    schema: pa.Schema
    columns: Sequence[str] = ()
    with_bloom_filters: bool = False
    remembered_statistics: Callable[[Sequence[str]], Mapping[str, MetadataRecord] | None] | None = None
    stored_statistics: StoredRecords | None = None
    indexed_keys: IndexedKeys | None = None
    written_keys: WrittenKeys | None = None
    listed_partitions: Callable[[Collection[str]], frozenset[str]] | None = None
    known_files: KnownFiles | None = None
    time_zone: str = "UTC"
    stored_only: bool = False
    internal_schema: str | None = None

    def __post_init__(self) -> None:
        self._schema = with_meta_columns(self.schema)
        self._ranges: dict[str, Mapping[str, ColumnRange]] = {}
        self._read_logs: dict[str, tuple[frozenset[str], LogRows]] = {}

    @property
    def before_at(self) -> TableAt:
        """The table before the commit."""
        return self.client.at(self.before)

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The types of the table's columns, and of the nested fields whose statistics are kept."""
        nested = {name: field_at(self._schema, name) for name in self.columns}
        return {
            **{column.name: column.type for column in self._schema},
            **{name: field.type for name, field in nested.items() if field is not None},
        }

    @property
    def _virtual_columns(self) -> VirtualColumns | None:
        return virtual_columns_of(self.before.config, self.schema, self._column_ids)

    @cached_property
    def _column_ids(self) -> ColumnIds | None:
        """The columns by id, with the instant: a column that it adds is none of that name in older files."""
        history = self.before_at.schema_history()
        if history is None or self.internal_schema is None:
            return self.before_at.column_ids()
        from lakefmt._core.schema.column_ids import ColumnIds  # few tables are altered

        latest = parse_internal_schema(self.internal_schema, f"the columns of {self.time}")
        return self.before_at.column_ids() if latest == history.latest else ColumnIds(history.with_schema(latest))

    def _top(self, name: str) -> str:
        """Return the column that a column or nested field is in."""
        return name if name in self._schema.names else name.split(".", 1)[0]

    # -------------------------------------------------------------------------------------------------------- slices

    def slices(self, partitions: Iterable[str], commit: CommitMetadata) -> tuple[list[FileSlice], list[FileSlice]]:
        """Return the file slices of some data partitions without and with the instant.

        Parameters:
            partitions: paths.
            commit: what the instant wrote and replaced.
        """
        paths = [PartitionPath(path) for path in partitions]
        committed = self.known_files(paths) if self.known_files is not None and paths else None
        bases, logs = committed or (StorageListing(self.client.store).files(paths) if paths else ([], []))
        listed = {file.path for file in bases} | {file.path for file in logs}
        for path, sizes in files_of_commit(commit).items():
            objects = [ObjectInfo(join_path(path, name), size) for name, size in sizes.items()]
            more_bases, more_logs = parse_files(PartitionPath(path), objects)
            bases += [file for file in more_bases if file.path not in listed]
            logs += [file for file in more_logs if file.path not in listed]
        bases = self.before_at.without_lost_attempts(bases)
        hidden = self.before_at.replaced()
        slicing = self.before_at.slicing(bases, logs)
        before = build_slices(bases, logs, slicing, hidden)
        replaced_at: dict[tuple[str, str], InstantTime] = {
            (path, file_id): self.time for path, ids in commit.replaced_file_ids.items() for file_id in ids
        }
        after = build_slices(bases, logs, _with_archived(self.after.timeline, slicing), {**hidden, **replaced_at})
        return before, after

    def written_slices(self, commit: CommitMetadata) -> list[FileSlice]:
        """Return every file that a commit wrote as a slice of its own, without a listing.

        Parameters:
            commit: what it wrote.
        """
        written = {stat.path for stat in commit.stats}
        slices = []
        for path, sizes in files_of_commit(commit).items():
            objects = [ObjectInfo(join_path(path, name), size) for name, size in sizes.items()]
            bases, logs = parse_files(PartitionPath(path), [item for item in objects if item.name in written])
            slices += [FileSlice(base.partition, base.file_id, base.instant, base) for base in bases]
            slices += [FileSlice(log.partition, log.file_id, log.instant, None, (log,)) for log in logs]
        return slices

    def new_files(self, slices: Iterable[FileSlice], commit: CommitMetadata) -> list[DataFile]:
        """Return what the metadata table keeps of the files that a commit wrote.

        Parameters:
            slices: the slices with it.
            commit: what it wrote.
        """
        written = {stat.path for stat in commit.stats}
        return [self.data_file(file) for each in slices for file in files_of_slice(each) if file.path in written]

    def files_of(self, slices: Iterable[FileSlice]) -> list[DataFile]:
        """Return what the metadata table keeps of all files of some slices."""
        return [self.data_file(file) for each in slices for file in files_of_slice(each)]

    # ---------------------------------------------------------------------------------------------------- statistics

    def data_file(self, file: BaseFile | LogFile) -> DataFile:
        """Return what the metadata table keeps of a base file or log file."""
        ranges = self.ranges(file)
        bloom = self._bloom_filter(file) if self.with_bloom_filters and isinstance(file, BaseFile) else None
        return DataFile(file.partition, file.name, file.size, file.instant, ranges, bloom)

    def ranges(self, file: BaseFile | LogFile) -> Mapping[str, ColumnRange]:
        """Return the statistics of a file's indexed columns."""
        if not self.columns:
            return {}
        if isinstance(file, BaseFile):
            return self._kept_ranges(file)
        if file.path not in self._ranges:
            self._ranges[file.path] = self._log_ranges(file)
        return self._ranges[file.path]

    def _kept_ranges(self, file: BaseFile) -> Mapping[str, ColumnRange]:
        """Return the statistics of a base file, which are kept for the next instant: files never change."""
        ids = self._column_ids
        # A column of the same name is another one after it was dropped and added again.
        columns = (*self.columns, "" if ids is None else str(ids.history.latest.version))
        cached_statistics = _kept_statistics(self.client.reader)
        ranges = cached_statistics.get(file)
        if ranges is None or ranges[0] != columns:
            ranges = (columns, self._base_ranges(file))
            cached_statistics.keep(file, ranges, len(columns))
        return ranges[1]

    def partition_ranges(self, slices: Iterable[FileSlice]) -> dict[str, dict[str, ColumnRange]]:
        """Return the statistics of data partitions over all files of their slices."""
        parts: dict[str, dict[str, list[ColumnRange]]] = {}
        for file_slice in slices:
            columns = parts.setdefault(file_slice.partition, {})
            for file in files_of_slice(file_slice):
                for name, ranges in self.ranges(file).items():
                    columns.setdefault(name, []).append(ranges)
        merged = {
            path: {name: merged_ranges(ranges) for name, ranges in columns.items()} for path, columns in parts.items()
        }
        return {
            path: {name: joined for name, joined in ranges.items() if joined is not None}
            for path, ranges in merged.items()
        }

    def _base_ranges(self, file: BaseFile) -> dict[str, ColumnRange]:
        virtual = self._virtual_columns
        if virtual is not None and virtual.places(file.instant) is not None:
            # Its footer has other names or types: the values tell.
            # Partition columns that only paths keep have no statistics, as where the footer tells.
            held = {*stored_schema(self.before.config, self._schema).names}
            indexed = [name for name in self.columns if self._top(name) in held]
            columns = list(dict.fromkeys(map(self._top, indexed)))
            stored = self.client.reader.completing(virtual).rows(file, columns)
            named = pa.schema([self._schema.field(name) for name in columns])
            # As in a footer, a column has no statistics that the file is without.
            present = [name for name in indexed if leaf_values(stored, name) is not None]
            return row_ranges(reconcile(stored, named), present)
        if (written := written_ranges(self.client.store, file, self.columns, self.types)) is not None:
            return written
        filesystem, prefix = self.client.store.arrow_filesystem()
        with reading(file.path), filesystem.open_input_file(prefix + file.path) as source:
            parquet = parquet_file(source)
            check_row_counts(parquet.metadata)
            ranges, unknown = footer_ranges(parquet.metadata, self.columns, self.types)
            if unknown:
                tops = dict.fromkeys(map(self._top, unknown))
                rows = reconcile(
                    parquet.read(columns=list(unknown)), pa.schema([self._schema.field(name) for name in tops])
                )
                for name, exact in row_ranges(rows, unknown).items():
                    ranges[name] = replace(
                        ranges[name], minimum=exact.minimum, maximum=exact.maximum, null_count=exact.null_count
                    )
            return ranges

    def _log_ranges(self, file: LogFile) -> dict[str, ColumnRange]:
        rows = self.log_rows(file)
        lacking = {*self.schema.names} - rows.known if self.stored_only and rows.known else set[str]()
        columns = [name for name in self.columns if self._top(name) not in lacking]
        return row_ranges(rows.table.filter(from_numpy(~rows.deletes)), columns)

    def log_rows(self, file: LogFile) -> LogRows:
        """Return what a log says of its keys, and of the columns whose statistics are kept."""
        rule = merge_rule(self.before.config)
        names = {
            RECORD_KEY,
            IS_DELETED,
            *map(self._top, self.columns),
            *(name.split(".", 1)[0] for name in rule.stored.fields),
        }
        if rule.delete is not None:
            names.add(rule.delete.field)
        earlier_read = self._read_logs.get(file.path)
        if earlier_read is not None and earlier_read[0] >= names:
            return earlier_read[1]
        schema = pa.schema([field for field in self._schema if field.name in names])
        alone = FileSlice(file.partition, file.file_id, file.instant, None, (file,))
        rows = read_log_rows(
            self.client.store,
            alone,
            schema,
            rule,
            layout=self.before.timeline.layout,
            is_committed=lambda _: True,
            unstored=self._virtual_columns,
        )
        # Statistics and keys are taken from the same log; a large one is not held, but read again.
        if rows.table.nbytes <= _MOST_KEPT_LOG_BYTES:
            self._read_logs[file.path] = frozenset(names), rows
        return rows

    def column(self, file: BaseFile | LogFile, name: str) -> pa.ChunkedArray:
        """Return a column of a file's rows; of a log's rows the newest of every key, those that are deleted left out."""
        if isinstance(file, LogFile):
            alone = FileSlice(file.partition, file.file_id, file.instant, None, (file,))
            return self.rows(self.after, alone, [name]).column(name)
        reader = self.client.reader.completing(self._virtual_columns)
        return reconcile(reader.rows(file, [name]), pa.schema([self._schema.field(name)])).column(name)

    def _bloom_filter(self, file: BaseFile) -> tuple[str, str] | None:
        entries = self.client.reader.footer(file).entries
        encoded_filter = entries.get(BLOOM_KEY) or entries.get(LEGACY_BLOOM_KEY)
        return None if encoded_filter is None else (entries.get(BLOOM_TYPE_KEY) or _SIMPLE_BLOOM, encoded_filter)

    def rows(
        self,
        state: TableState,
        file_slice: FileSlice | None,
        columns: Sequence[str] = (),
        keys: pa.Array | None = None,
    ) -> pa.Table:
        """Return the record keys of a file slice, and columns beside them.

        Parameters:
            state: the table without or with the instant.
            file_slice: None gives no rows.
            columns: names, with dots for nested fields.
            keys: only these; None: all.
        """
        output_columns = [RECORD_KEY, *columns]
        rule = merge_rule(self.before.config)
        tops = {*map(self._top, output_columns)}
        names = {*tops, IS_DELETED, *(name.split(".", 1)[0] for name in rule.stored.fields)}
        if rule.delete is not None:
            names.add(rule.delete.field)
        has_logs = file_slice is not None and bool(file_slice.logs)
        if rule.custom is not None and has_logs:
            names |= set(self._schema.names)
        schema = pa.schema([field for field in self._schema if field.name in (names if has_logs else tops)])
        rows = schema.empty_table()
        unstored = self._virtual_columns
        if file_slice is not None and file_slice.base is not None:
            rows = reconcile(self.client.reader.completing(unstored).rows(file_slice.base, schema.names), schema)
            rows = rows if keys is None else rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=keys))
        if file_slice is not None and has_logs:
            timeline = state.timeline
            logs = read_log_rows(
                self.client.store,
                file_slice,
                schema,
                rule,
                layout=timeline.layout,
                is_committed=lambda time: timeline.is_committed(InstantTime(time)),
                unstored=unstored,
            )
            rows = merge_logs(rows, logs if keys is None else _rows_of_keys(logs, keys), rule)
        return pa.table({name: leaf_values(rows, name) for name in output_columns})


def _rows_of_keys(logs: LogRows, keys: pa.Array) -> LogRows:
    """Return the rows of some keys."""
    return only_rows(logs, pc.is_in(logs.table.column(RECORD_KEY), value_set=keys).to_numpy())


def _with_archived(timeline: Timeline, other: Timeline) -> Timeline:
    """Return a timeline with the archived instants of another one."""
    return timeline if not other.archived else replace(timeline, archived=other.archived)


def instant_millis(instant: InstantTime, state: TableState) -> int:
    """Return an instant's time in milliseconds since 1970, read in the zone of the table's timeline. Pure."""
    naive = parse_instant_time(instant)
    moment = naive if state.config.zone is not None else naive.replace(tzinfo=None).astimezone()
    return int(np.round(moment.timestamp() * 1000))


def written_ranges(
    store: ObjectStore, file: BaseFile, columns: Iterable[str], types: Mapping[str, pa.DataType]
) -> dict[str, ColumnRange] | None:
    """Return the statistics of a file whose footer its writer kept; None: the file has to be read.

    Parameters:
        store: the data table's store.
        file: written by the instant that is recorded.
        columns: whose statistics are asked for.
        types: of the columns in the table.

    Raises:
        CorruptFile: the footer is damaged.
    """
    footer = store.take_footer(file.path) if isinstance(store, SupportsWrittenFooters) else None
    if footer is None:
        return None
    with reading(file.path):
        metadata = pq.read_metadata(pa.BufferReader(footer))
    check_row_counts(metadata)
    ranges, unknown = footer_ranges(metadata, columns, types)
    return None if unknown else ranges
