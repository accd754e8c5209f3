"""Writing one assigned log, and what the commit says of it (spec 7.5, 7.6, 10.4; effects).

The first name is fixed by the assignment; files that follow when a log rolls over count on from its version. What goes
into it is said by :mod:`~lakefmt.write.log_works`, how that becomes blocks and files by
:mod:`~lakefmt.filegroups.log_writer`.
"""

from __future__ import annotations

from lakefmt.filegroups.log_writer import WrittenLog, write_logs
from lakefmt.filegroups.model import join_path
from lakefmt.formats.names import MarkerType
from lakefmt.storage.api import ObjectStore
from lakefmt.table_config import cdc_mode
from lakefmt.values import WriteStat
from lakefmt.write.log_works import LogWork
from lakefmt.write.values import FileAssignment, LogTarget, WriteContext, WriteStatus

__all__ = ["write_log"]


def write_log(store: ObjectStore, context: WriteContext, work: LogWork, marker: MarkerType) -> WriteStatus:
    """Write an assigned log, in one file or several, or adopt what is there.

    Raises:
        InvalidInputError: a block would be too large to be read.
        CorruptFile: a file of that name is there and was not written by this write.
        StorageError: the store does not say whether a file is there.
    """
    assignment, out = work.assignment, work.out
    written = write_logs(store, assignment.partition, assignment.file_name, out, work.form, marker)
    stats = [_stat(context, assignment, written, number) for number in range(len(written))]
    rows_in = out.data.num_rows + out.deletes.num_rows
    adopted = all(one.adopted for one in written)
    return WriteStatus(context.instant, stats[0], rows_in, adopted=adopted, rolled=tuple(stats[1:]))


def _stat(context: WriteContext, assignment: FileAssignment, written: tuple[WrittenLog, ...], number: int) -> WriteStat:
    log = assignment.log or LogTarget(context.instant, 1)
    # Change data is told by a log and the slice below it: then later versions name that slice, too (spec 9).
    whole = context.config.version.layout == 1 or cdc_mode(context.properties) is not None
    one = written[number]
    rolled = tuple(earlier.name for earlier in written[:number])
    return WriteStat(
        file_id=assignment.file_id,
        partition_path=assignment.partition,
        path=join_path(assignment.partition, one.name),
        # What real tables say: version 6 names the slice and all its logs, later versions the new log alone.
        prev_commit=log.base_instant if whole else context.instant,
        num_writes=one.rows,
        num_update_writes=one.rows,
        num_deletes=one.deletes,
        total_write_bytes=one.size,
        file_size_in_bytes=one.size,
        base_file=assignment.base.name if whole and assignment.base is not None else "",
        log_files=(*log.older, *rolled, one.name) if whole else (one.name,),
        log_version=log.version + number,
        log_offset=0,
    )
