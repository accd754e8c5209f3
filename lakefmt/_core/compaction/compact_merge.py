"""Merges one slice: its base file and logs into a new base file, or its logs alone into one log (docs/format.md, Compaction).

The first is an operation of a compaction, the second one of a log compaction (docs/format.md, Log blocks). Memory is bounded by
the logs of the slices that are merged at once: a base file is merged and written part by part. Rows keep their commit time and
sequence number; of a new base file only the file name in them changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from os import cpu_count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.compaction.compact_plan import CompactionOperation, CompactionPlan, partitions_of
from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import cdc_mode, merge_rule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.base_writer import (
    NewBaseFile,
    columns_but_name,
    grown_filter,
    named_rows,
    row_group_bytes,
)
from lakefmt._core.filegroups.cdc import cdc_file_name, compare_rows, write_change_file
from lakefmt._core.filegroups.log_reader import LogRows, read_log_rows
from lakefmt._core.filegroups.log_writer import LogRowsOut, LogToWrite, WrittenLog, log_form, write_logs
from lakefmt._core.filegroups.merged_slice import count_late, merge_log_blocks, merge_logs, only_rows
from lakefmt._core.filegroups.model import BaseFile, FileSlice, LogFile, join_path
from lakefmt._core.filegroups.ordering import has_order, to_mask
from lakefmt._core.filegroups.reader import BaseFileReader, VirtualColumns
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.formats.names import MarkerType, base_file_name
from lakefmt._core.formats.parquet.base_file import BaseFileFooter
from lakefmt._core.schema import arrow_to_avro, avro_to_arrow, reconcile, with_meta_columns, without_meta_columns
from lakefmt._core.timeline.markers import create_marker
from lakefmt._core.values import COMMIT_SEQNO, FILE_NAME, RECORD_KEY, InstantTime, PartitionPath, WriteStat
from lakefmt.errors import CorruptFile, InternalError, SnapshotExpired

__all__ = [
    "LATE_ROWS",
    "LogMerge",
    "SliceFiles",
    "SliceMerge",
    "same_rows",
    "slice_of",
]

#: What a stat says beside Hudi's fields until its commit is made of it: how many rows of the logs lost; None: not known.
LATE_ROWS = "late"
SliceFiles = tuple[dict[str, BaseFile], dict[str, LogFile]]
#: The logs of a slice are held in memory while they are merged, so only a few slices are merged at once.
_MOST_SLICES_AT_ONCE = 4


@dataclass(frozen=True)
class SliceMerge:
    """What the operations of one compaction have in common.

    Attributes:
        client: the table.
        state: its properties and timeline when the plan was made.
        settings: codec, filter and durability of the new files.
        time: the compaction's requested time.
        schema_text: the schema of the new files, meta columns included, as Avro JSON.
        attempt: a number that no other attempt at this compaction has.
        verify: read every new file and its slice again, and compare.
        before_put: called before a file is written; raises when it must not be.
        adopts: a file of the name that another attempt at the operation wrote is taken as it is.
    """

    client: TableClient
    state: TableState
    settings: Settings
    time: InstantTime
    schema_text: str
    attempt: int
    verify: bool = False
    before_put: Callable[[], None] | None = None
    adopts: bool = False

    def run(self, number: int, operation: CompactionOperation, files: SliceFiles) -> WriteStat:
        """Merge a slice and write its new base file.

        Args:
            number: index of the operation in its plan.
            operation: the slice.
            files: base files and logs of its partition, by name.

        Raises:
            SnapshotExpired: a file of the plan does not exist any more.
            CorruptFile: a file or block is damaged.
            InternalError: the new file does not hold the rows of the slice.
        """
        file_slice = slice_of(operation, files)
        token = f"{number}-{self.attempt}-0"
        name = base_file_name(operation.file_id, token, self.time)
        path = join_path(operation.partition, name)
        unstored, rule = self._virtual_columns(), merge_rule(self.state.config)
        keyed = unstored is None or not unstored.makes_keys
        counts, change_file = _Counts(), None
        with ExitStack() as stack:
            base = stack.enter_context(self._base(file_slice))
            logs = _LogsInParts(self._logs(file_slice), base.num_rows, is_cut=base.is_cut)
            create_marker(self.client.store, self.time, path, "CREATE" if file_slice.base is None else "MERGE")
            file = NewBaseFile(
                stack,
                self.client.store,
                path,
                avro_to_arrow(self.schema_text),
                self.schema_text,
                self.settings,
                keyed=keyed,
                adopts=self.adopts,
            )
            for part in base.parts:
                beside, new_beside = logs.beside(part)
                rows = merge_logs(part, beside, rule)
                counts += _Counts(*_count_changes(part, beside, rows), count_late(part, new_beside, rule))
                change_file = self._log_changes(operation, token, part, rows)  # of the whole slice: it is not cut
                del part, beside, new_beside  # the merged rows are as large
                file.append(self._to_store(rows, operation.partition, name))
                del rows
            logs.check_complete(path if file_slice.base is None else file_slice.base.path)
            bloom, num_rows = None, file.num_rows
            if base.footer is not None and keyed:
                new_keys = logs.absent_keys() if counts.inserted else pa.array([], pa.string())
                old_filter = base.footer.bloom_filter()
                bloom = grown_filter(old_filter, base.num_rows, num_rows, new_keys, self.settings)
            size = file.finish(bloom, before_put=self.before_put)
        if self.verify:
            base_file = BaseFile(operation.partition, name, operation.file_id, token, self.time, size)
            self._verify(file_slice, base_file)
        stat = _stat_of_base_file(file_slice, path, num_rows, size, logs.rows, counts)
        stat = replace(stat, extra={**stat.extra, LATE_ROWS: counts.late})
        return stat if change_file is None else replace(stat, extra={**stat.extra, "cdcStats": change_file})

    def _to_store(self, rows: pa.Table, partition: PartitionPath, name: str) -> pa.Table:
        file_rows, unstored = named_rows(rows, name), self._virtual_columns()
        return file_rows if unstored is None else unstored.stored(file_rows, partition, avro_to_arrow(self.schema_text))

    def _virtual_columns(self) -> VirtualColumns | None:
        return self.client.at(self.state).columns_at(self.time).virtual_columns()

    def _log_changes(
        self, operation: CompactionOperation, token: str, base: pa.Table, rows: pa.Table
    ) -> dict[str, int] | None:
        """Write a change file with what the logs changed, where the table captures changes, as Hudi's compactions do."""
        mode = cdc_mode(self.state.config.properties)
        if mode is None:
            return None
        if self.before_put is not None:
            self.before_put()
        path = join_path(operation.partition, cdc_file_name(operation.file_id, self.time, token))
        schema = arrow_to_avro(without_meta_columns(avro_to_arrow(self.schema_text)), self.state.config.name)
        size = write_change_file(
            self.client.store,
            path,
            compare_rows(base, rows),
            mode=mode,
            instant=self.time,
            table_schema=schema,
            settings=self.settings,
        )
        return {path: size}

    def _schema(self) -> pa.Schema:
        unstored = self._virtual_columns()
        return avro_to_arrow(self.schema_text) if unstored is None else with_meta_columns(unstored.schema)

    @contextmanager
    def _base(self, file_slice: FileSlice) -> Iterator[_BaseRows]:
        """Open the base file of a slice; its rows come in parts where what is made of them does not need them all."""
        schema, rule = self._schema(), merge_rule(self.state.config)
        if file_slice.base is None:
            yield _BaseRows(0, False, iter([schema.empty_table()]))
            return
        # A merge function of the table's own is given all columns and all rows, and change data is made of all rows.
        names = columns_but_name(schema) if rule.custom is None else schema.names
        may_be_cut = rule.custom is None and cdc_mode(self.state.config.properties) is None
        reader = BaseFileReader(self.client.store, self._virtual_columns())
        part_bytes = row_group_bytes() if may_be_cut else None
        with reader.in_parts(file_slice.base, names, part_bytes, use_threads=True) as parts:
            footer = parts.known.footer
            # Files of other writers may have dictionaries where logs have none.
            rows = (reconcile(part, schema) for part, _ in parts.parts)
            yield _BaseRows(footer.num_rows, parts.is_cut, rows, footer)

    def _logs(self, file_slice: FileSlice) -> LogRows:
        timeline = self.state.timeline
        return read_log_rows(
            self.client.store,
            file_slice,
            self._schema(),
            merge_rule(self.state.config),
            layout=timeline.layout,
            is_committed=lambda time: timeline.is_committed(InstantTime(time)),
            bound=self.time,
            positions=True,
            unstored=self._virtual_columns(),
        )

    def _verify(self, file_slice: FileSlice, base_file: BaseFile) -> None:
        with self._base(file_slice) as base:
            before = merge_logs(pa.concat_tables(base.parts), self._logs(file_slice), merge_rule(self.state.config))
        after = BaseFileReader(self.client.store, self._virtual_columns()).rows(base_file)
        if not same_rows(before, reconcile(after, before.schema), ignoring=FILE_NAME):
            raise InternalError(
                f"{base_file.path} does not hold the rows of its slice ({before.num_rows:,} before, {after.num_rows:,} "
                "after); the compaction is not completed and the slice is as it was"
            )


@dataclass(frozen=True, slots=True)
class _BaseRows:
    """The rows of a base file: how many, whether they come in several parts, the parts; the footer, None without a file."""

    num_rows: int
    is_cut: bool
    parts: Iterator[pa.Table]
    footer: BaseFileFooter | None = None


class _LogsInParts:
    """The rows of a slice's logs, which are merged with one part of its base file after the other.

    Merged part by part the rows are those of :func:`merge_logs`, in its order: each key is merged with its own rows only, and those
    that the base file lacks come behind its last row. A key that the base file has in two parts is beside both.

    Args:
        rows: of the logs.
        num_rows: how many rows the base file has.
        is_cut: it has several parts.
    """

    def __init__(self, rows: LogRows, num_rows: int, *, is_cut: bool) -> None:
        self.rows, self._num_rows, self._is_cut = rows, num_rows, is_cut
        encoded = rows.table.column(RECORD_KEY).combine_chunks().dictionary_encode()
        self._keys, self._codes = encoded.dictionary, encoded.indices.to_numpy()
        self._met = np.zeros(len(self._keys), dtype=bool)
        self._passed = 0

    def beside(self, part: pa.Table) -> tuple[LogRows, LogRows]:
        """Return the rows that are merged into the next part, and which of them were in no earlier part."""
        begin, self._passed = self._passed, self._passed + part.num_rows
        index = pc.index_in(part.column(RECORD_KEY), value_set=self._keys).drop_null()
        here = np.zeros(len(self._keys), dtype=bool)
        here[index.to_numpy()] = True
        again, self._met = here & self._met, here | self._met
        if not self._is_cut:
            return self.rows, self.rows
        if self._passed == self._num_rows and part.num_rows:
            here |= ~self._met
        beside = only_rows(self.rows, here[self._codes])
        if beside.positions is not None:
            positions = beside.positions - begin
            inside = not len(positions) or (positions.min() >= 0 and positions.max() < part.num_rows)
            beside = replace(beside, positions=positions if inside else None)
        return beside, only_rows(beside, ~again[self._codes[here[self._codes]]]) if again.any() else beside

    def check_complete(self, path: str) -> None:
        """Raise CorruptFile if fewer or more rows were read than the footer of the base file says."""
        if self._passed != self._num_rows:
            raise CorruptFile(f"{path}: {self._passed:,} rows came of a file whose footer says {self._num_rows:,}")

    def absent_keys(self) -> pa.Array:
        """Return the keys that were in no part."""
        return self._keys.filter(from_numpy(~self._met))


@dataclass(frozen=True, slots=True)
class _Counts:
    """How many rows logs inserted, updated and deleted, and how many changed nothing; None: that is not known."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    late: int | None = 0

    def __add__(self, other: _Counts) -> _Counts:
        late = None if self.late is None or other.late is None else self.late + other.late
        return _Counts(self.inserted + other.inserted, self.updated + other.updated, self.deleted + other.deleted, late)


@dataclass(frozen=True)
class LogMerge:
    """What the operations of one log compaction have in common.

    Attributes:
        client: the table.
        state: its properties and timeline when the plan was made.
        settings: block format, sizes and durability of the new logs.
        time: the log compaction's requested time.
        schema_text: the schema of the new logs, meta columns included, as Avro JSON.
        attempt: a number that no other attempt has.
        before_put: called before a file is written; raises when it must not be.
    """

    client: TableClient
    state: TableState
    settings: Settings
    time: InstantTime
    schema_text: str
    attempt: int
    before_put: Callable[[], None] | None = None

    def run(self, plan: CompactionPlan) -> tuple[WriteStat, ...]:
        """Merge the logs of every slice of a plan, a few slices at a time; the stats are in the order of the plan.

        Raises:
            SnapshotExpired: a file of the plan does not exist any more.
            CorruptFile: a block is damaged.
            UnsupportedFeature: the logs of a slice cannot be merged without the base file.
        """
        bases, logs = self.client.storage_listing(self.state.config).files(partitions_of(plan))
        files: dict[str, SliceFiles] = {}
        for base in bases:
            files.setdefault(base.partition, ({}, {}))[0][base.name] = base
        for log in logs:
            files.setdefault(log.partition, ({}, {}))[1][log.name] = log
        max_threads = self.settings.integer("lakefmt.write.threads") or _MOST_SLICES_AT_ONCE
        with ThreadPoolExecutor(max(1, min(max_threads, cpu_count() or 1, len(plan.operations)))) as pool:
            futures = [
                pool.submit(self.run_one, number, operation, files.get(operation.partition, ({}, {})))
                for number, operation in enumerate(plan.operations)
            ]
            try:
                return tuple(stat for future in futures for stat in future.result())
            except BaseException:
                for waiting in futures:
                    waiting.cancel()
                raise

    def run_one(self, number: int, operation: CompactionOperation, files: SliceFiles) -> list[WriteStat]:
        """Merge the logs of one slice; logs of an earlier attempt of the same number are taken as they are.

        Args:
            number: index of the operation in its plan.
            operation: the slice.
            files: base files and logs of its partition, by name.
        """
        # The base file may have been cleaned since and is not needed.
        file_slice = slice_of(replace(operation, base_name=None), files)
        rule, timeline = merge_rule(self.state.config), self.state.timeline
        unstored = self.client.at(self.state).columns_at(self.time).virtual_columns()
        logs = read_log_rows(
            self.client.store,
            file_slice,
            avro_to_arrow(self.schema_text),
            rule,
            layout=timeline.layout,
            is_committed=lambda time: timeline.is_committed(InstantTime(time)),
            bound=self.time,
            unstored=unstored,
        )
        folded = merge_log_blocks(logs, rule)
        order = rule.stored.fields if has_order(rule.stored, folded.deletes.column_names) else ()
        form = log_form(self.settings, self.time, self.schema_text, self.schema_text, order)
        form = replace(form, replaces=tuple(InstantTime(time) for time in logs.instants))
        name = self._name(number, operation, files)
        if self.before_put is not None:
            self.before_put()
        marker: MarkerType = "APPEND" if timeline.layout == 1 else "CREATE"

        def mark(path: str) -> None:
            create_marker(self.client.store, self.time, path, marker)

        mark(join_path(operation.partition, name))
        data = folded.data
        if unstored is not None:
            # Logs hold partition columns, also where base files drop them, and no meta columns where the table has none.
            data = unstored.stored(data, operation.partition, data.schema)
        out = LogRowsOut(data, folded.deletes)
        log_files = write_logs(self.client.store, LogToWrite(operation.partition, name, out, form, mark))
        return [self._stat(operation, file_slice, logs, log_files, n) for n in range(len(log_files))]

    def _name(self, number: int, operation: CompactionOperation, files: SliceFiles) -> str:
        time, version = self.time, 1
        if self.state.timeline.layout == 1:
            time = operation.base_instant
            versions = [
                log.version for log in files[1].values() if (log.file_id, log.instant) == (operation.file_id, time)
            ]
            version = max(versions, default=0) + 1
        return f".{operation.file_id}_{time}.log.{version}_{number}-{self.attempt}-0"

    def _stat(
        self,
        operation: CompactionOperation,
        file_slice: FileSlice,
        logs: LogRows,
        log_files: tuple[WrittenLog, ...],
        number: int,
    ) -> WriteStat:
        log, layout = log_files[number], self.state.timeline.layout
        names = tuple(earlier.name for earlier in log_files[: number + 1])
        counts = {
            "totalLogRecords": logs.table.num_rows,
            "totalLogBlocks": logs.num_blocks,
            "totalLogFilesCompacted": len(file_slice.logs),
            "totalLogSizeCompacted": sum(log.size for log in file_slice.logs),
        }
        return WriteStat(
            file_id=operation.file_id,
            partition_path=operation.partition,
            path=join_path(operation.partition, log.name),
            prev_commit=operation.base_instant,
            num_writes=log.rows,
            num_update_writes=log.rows,
            num_deletes=log.deletes,
            total_write_bytes=log.size,
            file_size_in_bytes=log.size,
            base_file=operation.base_name or "" if layout == 1 else "",
            log_files=(*operation.log_names, *names) if layout == 1 else (log.name,),
            log_version=int(log.name.rpartition(".log.")[2].partition("_")[0]),
            log_offset=0,
            # The counts of what was read belong to the first of the written files.
            extra=counts if number == 0 else {},
        )


def slice_of(operation: CompactionOperation, files: SliceFiles) -> FileSlice:
    """Return the slice of an operation, as it was planned.

    Raises:
        SnapshotExpired: one of its files does not exist any more.
    """
    bases, logs = files
    try:
        base = None if operation.base_name is None else bases[operation.base_name]
        named_logs = [logs[name] for name in operation.log_names]
    except KeyError as error:
        raise SnapshotExpired(
            f"{join_path(operation.partition, str(error.args[0]))} is gone, and a pending compaction needs it: "
            "abandon that compaction, then compact again"
        ) from None
    ordered = sorted(named_logs, key=lambda log: (log.instant, log.version, log.name))
    return FileSlice(operation.partition, operation.file_id, operation.base_instant, base, tuple(ordered))


def _count_changes(base: pa.Table, logs: LogRows, rows: pa.Table) -> tuple[int, int, int]:
    """Return how many rows the logs inserted, updated and deleted.

    Example:
        >>> import numpy as np
        >>> made = lambda keys, numbers: pa.table({RECORD_KEY: keys, COMMIT_SEQNO: numbers})
        >>> flags = np.zeros(3, dtype=bool)
        >>> logs = LogRows(made(["b", "c", "d"], ["4", "5", "6"]), flags, flags, np.zeros(3, np.int64), (None,))
        >>> _count_changes(made(["a", "b", "c"], ["1", "2", "3"]), logs, made(["a", "b", "d"], ["1", "4", "6"]))
        (1, 1, 1)
    """
    # Only rows whose key is in the logs can differ; these are few as a rule.
    keys = pc.unique(logs.table.column(RECORD_KEY))
    before, after = (
        table.select([RECORD_KEY, COMMIT_SEQNO]).filter(pc.is_in(table.column(RECORD_KEY), value_set=keys))
        for table in (base, rows)
    )
    stayed = to_mask(pc.is_in(after.column(RECORD_KEY), value_set=before.column(RECORD_KEY).combine_chunks()))
    sequence_numbers = (
        before.column(COMMIT_SEQNO).combine_chunks().drop_null()
    )  # without meta columns every row counts as updated
    same = to_mask(pc.is_in(after.column(COMMIT_SEQNO), value_set=sequence_numbers))
    survivors = to_mask(pc.is_in(before.column(RECORD_KEY), value_set=after.column(RECORD_KEY).combine_chunks()))
    return int((~stayed).sum()), int((stayed & ~same).sum()), int((~survivors).sum())


def _stat_of_base_file(
    file_slice: FileSlice, path: str, num_rows: int, size: int, logs: LogRows, counts: _Counts
) -> WriteStat:
    return WriteStat(
        file_id=file_slice.file_id,
        partition_path=PartitionPath(file_slice.partition),
        path=path,
        prev_commit="null" if file_slice.base is None else file_slice.base.instant,
        num_writes=num_rows,
        num_inserts=counts.inserted,
        num_update_writes=counts.updated,
        num_deletes=counts.deleted,
        total_write_bytes=size,
        file_size_in_bytes=size,
        prev_base_file=None if file_slice.base is None else file_slice.base.name,
        extra={
            "totalLogRecords": logs.table.num_rows,
            "totalLogBlocks": logs.num_blocks,
            "totalLogFiles": len(file_slice.logs),
            "totalUpdatedRecordsCompacted": counts.updated,
            "totalLogFilesCompacted": len(file_slice.logs),
            "totalLogSizeCompacted": sum(log.size for log in file_slice.logs),
        },
    )


# -------------------------------------------------------------------------------------------------------- verification


def same_rows(first: pa.Table, other: pa.Table, *, ignoring: str = "") -> bool:
    """Return whether two tables hold the same rows in the same order; NaN equals NaN.

    Args:
        first: a table.
        other: a table with the same columns.
        ignoring: a column that may differ.

    Example:
        >>> nan = pa.table({"v": [float("nan"), 1.0]})
        >>> same_rows(nan, nan), same_rows(nan, pa.table({"v": [1.0, 1.0]}))
        (True, False)
    """
    if first.column_names != other.column_names or first.num_rows != other.num_rows:
        return False
    names = [name for name in first.column_names if name != ignoring]
    return all(_same_values(first.column(n).combine_chunks(), other.column(n).combine_chunks()) for n in names)


def _same_values(first: pa.Array, other: pa.Array) -> bool:
    """Compare arrays of one type; floats by their bits, because NaN is not equal to itself."""
    if first.equals(other):
        return True
    if first.type != other.type or not first.is_valid().equals(other.is_valid()):
        return False
    if pa.types.is_map(first.type):
        entry = pa.struct([first.type.key_field, first.type.item_field])
        first, other = first.cast(pa.list_(entry)), other.cast(pa.list_(entry))
    if pa.types.is_struct(first.type):
        return all(_same_values(left, right) for left, right in zip(first.flatten(), other.flatten(), strict=True))
    if pa.types.is_list(first.type) or pa.types.is_large_list(first.type):
        alike = pc.list_value_length(first).equals(pc.list_value_length(other))
        return alike and _same_values(first.flatten(), other.flatten())
    if not pa.types.is_floating(first.type):
        return False
    bits = pa.int32() if first.type == pa.float32() else pa.int64()
    return bool(first.drop_null().view(bits).equals(other.drop_null().view(bits)))
