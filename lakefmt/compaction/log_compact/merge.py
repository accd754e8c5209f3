"""The operations of a log compaction: merge the logs of a slice into one log (docs/format.md, Log blocks).

Memory is bounded by the logs of the slices that are merged at once. Rows keep their commit time and sequence number.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count

from lakefmt.compaction.compact.merge import SliceFiles, slice_of
from lakefmt.compaction.compact.pending import partitions_of
from lakefmt.compaction.compact.plan import CompactionOperation, CompactionPlan
from lakefmt.config.settings import Settings
from lakefmt.config.table_config import merge_rule
from lakefmt.data_classes import dataclass, replace
from lakefmt.filegroups.logs.reader import LogRows, read_log_rows
from lakefmt.filegroups.logs.writer import LogRowsOut, LogToWrite, WrittenLog, log_form, write_logs
from lakefmt.filegroups.merge.log_compaction_merge import merge_log_blocks
from lakefmt.filegroups.model import FileSlice, join_path
from lakefmt.filegroups.ordering import has_order
from lakefmt.filegroups.table_client import TableClient, TableState
from lakefmt.formats.names import MarkerType
from lakefmt.schema import avro_to_arrow
from lakefmt.timeline.markers import create_marker
from lakefmt.values import InstantTime, WriteStat

__all__ = ["LogMerge"]

#: The logs of a slice are held in memory while they are merged, so only a few slices are merged at once.
_MOST_THREADS = 4


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
        asked = self.settings.integer("lakefmt.write.threads") or _MOST_THREADS
        with ThreadPoolExecutor(max(1, min(asked, cpu_count() or 1, len(plan.operations)))) as pool:
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
        unstored = self.client.virtual_columns(self.client.columns_at(self.state, self.time))
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
        written = write_logs(self.client.store, LogToWrite(operation.partition, name, out, form, mark))
        return [self._stat(operation, file_slice, logs, written, n) for n in range(len(written))]

    def _name(self, number: int, operation: CompactionOperation, files: SliceFiles) -> str:
        time, version = self.time, 1
        if self.state.timeline.layout == 1:
            time = operation.base_instant
            taken = [
                log.version for log in files[1].values() if (log.file_id, log.instant) == (operation.file_id, time)
            ]
            version = max(taken, default=0) + 1
        return f".{operation.file_id}_{time}.log.{version}_{number}-{self.attempt}-0"

    def _stat(
        self,
        operation: CompactionOperation,
        file_slice: FileSlice,
        logs: LogRows,
        written: tuple[WrittenLog, ...],
        number: int,
    ) -> WriteStat:
        log, layout = written[number], self.state.timeline.layout
        names = tuple(earlier.name for earlier in written[: number + 1])
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
