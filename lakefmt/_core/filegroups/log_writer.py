"""Write rows as log files: blocks of bounded size, files that roll over (effects; docs/format.md, Writing logs).

A file is created only if absent and never appended to; a full file is followed by the next version
of its name. A repeated attempt adopts existing files one by one: their blocks tell how many rows
they contain, and the remaining rows follow.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt._core.arrays import from_numpy
from lakefmt._core.config.settings import Settings
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import join_path
from lakefmt._core.filegroups.ordering import ordering_values
from lakefmt._core.formats.log_blocks import MAX_LOG_BYTES, BlockKind, LogBlockReader, WholeBlock
from lakefmt._core.formats.log_data_block import (
    BlockHeader,
    EncodedRows,
    decode_avro_content,
    decode_parquet_content,
    encode_data_block,
    encode_parquet_block,
    encode_record_block,
)
from lakefmt._core.formats.log_delete_block import (
    decode_delete_content,
    delete_records,
    encode_delete_block,
    storable_orderings,
)
from lakefmt._core.formats.names import parse_log_file
from lakefmt._core.storage.api import ObjectStore, ObjectWriter, PutBatch, PutOutcome
from lakefmt._core.values import PARTITION_PATH, RECORD_KEY, InstantTime
from lakefmt.errors import CorruptFile, InternalError, StorageError

__all__ = ["LogForm", "LogRowsOut", "LogToWrite", "WrittenLog", "log_form", "write_logs", "write_logs_at_once"]

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class LogRowsOut:
    """The rows to write to the logs of one file group.

    Attributes:
        data: rows with meta columns, in the columns of the data blocks.
        deletes: rows to delete, with at least keys, partition paths and ordering columns.
        partial: `data` has only some of the table's columns.
        data_positions: rows of the base file that `data` replace, ascending int64; None: unknown.
        delete_positions: the same for `deletes`.
        records: `data` as Avro records, if the rows of several logs were encoded together.
        fits_block: the rows are known to be fewer bytes than a block may have.
    """

    data: pa.Table
    deletes: pa.Table
    partial: bool = False
    data_positions: I64 | None = None
    delete_positions: I64 | None = None
    records: EncodedRows | None = None
    fits_block: bool = False


@dataclass(frozen=True, slots=True)
class LogForm:
    """How rows are divided into blocks and files.

    Attributes:
        instant: requested time of the write.
        data_schema: Avro JSON of the data blocks, meta columns included.
        delete_schema: Avro JSON in the header of delete blocks.
        ordering: the ordering fields stored in deletes, with dots where they are nested.
        base_instant: the base file that positions refer to; None: no positions.
        replaces: instants whose blocks the new ones replace (log compaction).
        parquet: write Parquet data blocks instead of Avro ones.
        codec: compression codec of Parquet blocks.
        level: compression level.
        block_bytes: Arrow bytes of rows per block.
        file_bytes: size in bytes after which the next file begins.
        durable: sync files to disk.
    """

    instant: InstantTime
    data_schema: str
    delete_schema: str
    ordering: tuple[str, ...] = ()
    base_instant: InstantTime | None = None
    replaces: tuple[InstantTime, ...] = ()
    parquet: bool = False
    codec: str = "zstd"
    level: int = 1
    block_bytes: int = 256 << 20
    file_bytes: int = 1 << 30
    durable: bool = False


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """A log file that exists.

    Attributes:
        name: the file name.
        size: in bytes.
        rows: number of rows in data blocks.
        deletes: number of records in delete blocks.
        adopted: an earlier attempt wrote the file.
    """

    name: str
    size: int
    rows: int
    deletes: int
    adopted: bool = False


def log_form(
    settings: Settings, instant: InstantTime, data_schema: str, delete_schema: str, ordering: tuple[str, ...]
) -> LogForm:
    """Return the form that the settings define.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> log_form(resolve_settings({}), "20260101000000000", "{}", "{}", ()).block_bytes
        268435456
    """
    return LogForm(
        instant,
        data_schema,
        delete_schema,
        ordering,
        parquet=settings.values.get("hoodie.logfile.data.block.format") == "parquet",
        codec=settings.text("hoodie.parquet.compression.codec") or "zstd",
        level=settings.integer("lakefmt.parquet.compression.level"),
        block_bytes=settings.integer("hoodie.logfile.data.block.max.size"),
        file_bytes=settings.integer("hoodie.logfile.max.size"),
        durable=settings.text("lakefmt.durability") == "fsync",
    )


def _nth_log_name(first: str, number: int) -> str:
    """Return the name of the log file that is `number` roll-overs after `first`.

    Example:
        >>> _nth_log_name(".f-0_20260101000000000.log.1_3-0-0", 2)
        '.f-0_20260101000000000.log.3_3-0-0'
    """
    parts = parse_log_file(first)
    if parts is None or parts.write_token is None:
        raise InternalError(f"{first} is no name of a log that lakefmt writes")
    return f".{parts.file_id}_{parts.instant}.log.{parts.version + number}_{parts.write_token}"


@dataclass(frozen=True, slots=True)
class LogToWrite:
    """A log of one or more files.

    Attributes:
        partition: the partition.
        first: the name of the first file.
        out: the rows.
        form: of the log.
        mark: makes the marker of a further file, given its path; that of the first file is there.
    """

    partition: str
    first: str
    out: LogRowsOut
    form: LogForm
    mark: Callable[[str], None]


def write_logs(store: ObjectStore, log: LogToWrite) -> tuple[WrittenLog, ...]:
    """Write rows to one or more log files, or adopt existing ones.

    Args:
        store: the table's store.
        log: the log.

    Raises:
        InvalidInputError: a block would be too large for readers.
        CorruptFile: a file exists and another write made it.
        StorageError: the store does not confirm a file.
    """
    return _put_each(_files(store, log))


def write_logs_at_once(store: ObjectStore, logs: Sequence[LogToWrite], batch: PutBatch) -> list[tuple[WrittenLog, ...]]:
    """Write logs as :func:`write_logs` does each, their first files put at once."""
    written: dict[int, tuple[WrittenLog, ...]] = {}
    waiting: list[tuple[int, _Files]] = []
    with ExitStack() as stack:
        for number, log in enumerate(logs):
            files = _files(store, log)
            stack.callback(files.close)
            try:
                batch.add(next(files))
            except StopIteration as end:  # an earlier attempt wrote all of it
                written[number] = end.value
            else:
                waiting.append((number, files))
        for (number, files), outcome in zip(waiting, batch.put_if_absent(), strict=True):
            written[number] = _put_each(files, outcome)
    return [written[number] for number in range(len(logs))]


#: Yields each file when it is complete, and is sent what putting it said.
_Files = Generator[ObjectWriter, PutOutcome, tuple[WrittenLog, ...]]


def _put_each(files: _Files, outcome: PutOutcome | None = None) -> tuple[WrittenLog, ...]:
    try:
        file = next(files) if outcome is None else files.send(outcome)
        while True:
            file = files.send(file.put_if_absent())
    except StopIteration as end:
        written: tuple[WrittenLog, ...] = end.value
        return written


def _files(store: ObjectStore, log: LogToWrite) -> _Files:
    logs: list[WrittenLog] = []
    form, out = log.form, _ordered_first(log.out, log.form)
    rows = deletes = 0
    while not logs or rows < out.data.num_rows or deletes < out.deletes.num_rows:
        path = join_path(log.partition, _nth_log_name(log.first, len(logs)))
        if logs:
            log.mark(path)
        left = (out.data.num_rows - rows, out.deletes.num_rows - deletes)
        written = _adopt(store, path, form, left)
        if written is None:
            written = yield from _one_file(store, path, form, _blocks(out, form, rows, deletes), left)
        logs.append(written)
        rows, deletes = rows + written.rows, deletes + written.deletes
    return tuple(logs)


# --------------------------------------------------------------------------------------------------------- one file

_Block = tuple[bytes, int, int]


def _one_file(
    store: ObjectStore, path: str, form: LogForm, blocks: Iterator[_Block], left: tuple[int, int]
) -> Generator[ObjectWriter, PutOutcome, WrittenLog]:
    rows = deletes = 0
    with store.create(path, durable=form.durable) as sink:
        for data, more_rows, more_deletes in blocks:
            if sink.size and sink.size + len(data) > MAX_LOG_BYTES:
                break
            sink.file.write(data)
            rows, deletes = rows + more_rows, deletes + more_deletes
            if sink.size > form.file_bytes:  # as Hudi: the block that exceeds the limit is the last one of the file
                break
        outcome = yield sink
        size = sink.size
    if outcome is PutOutcome.DONE:
        return WrittenLog(path.rpartition("/")[2], size, rows, deletes)
    existing = _adopt(store, path, form, left)
    if existing is None:
        raise StorageError(f"the store does not say whether {path} was written", transient=True)
    return existing


def _blocks(out: LogRowsOut, form: LogForm, rows: int, deletes: int) -> Iterator[_Block]:
    """Yield blocks with their numbers of rows and deletes, starting at the given offsets: rows first, as Hudi does."""
    block_bytes = None if out.fits_block else form.block_bytes
    for start, part, positions in _cut(out.data, out.data_positions, rows, block_bytes):
        header = _header(form, form.data_schema, positions, is_partial=out.partial)
        if form.parquet:
            yield encode_parquet_block(part, header, form.codec, form.level), part.num_rows, 0
        elif out.records is not None:
            yield encode_record_block(out.records.slice(start, part.num_rows), header), part.num_rows, 0
        else:
            yield encode_data_block(part, header), part.num_rows, 0
    for _, part, positions in _cut(out.deletes, out.delete_positions, deletes, block_bytes):
        # hudi-rs cannot read a block in which only some records have an ordering value.
        first = int(np.count_nonzero(_with_order(part, form)))
        for start, count in ((0, first), (first, part.num_rows - first)):
            if count:
                some = None if positions is None else positions[start : start + count]
                yield _delete_block(part.slice(start, count), some, form), 0, count


def _delete_block(part: pa.Table, positions: I64 | None, form: LogForm) -> bytes:
    # A delete whose ordering value cannot be stored deletes any stored row.
    orderings = storable_orderings([ordering_values(part, name) for name in form.ordering])
    records = delete_records(part.column(RECORD_KEY), part.column(PARTITION_PATH), *orderings)
    return encode_delete_block(records, _header(form, form.delete_schema, positions))


def _with_order(deletes: pa.Table, form: LogForm) -> npt.NDArray[np.bool_]:
    """Return which deletes have an ordering value in their records."""
    has_value: npt.NDArray[np.bool_] = np.zeros(deletes.num_rows, dtype=bool)
    for column in storable_orderings([ordering_values(deletes, name) for name in form.ordering]):
        has_value |= column.is_valid().to_numpy(zero_copy_only=False)
    return has_value


def _ordered_first(out: LogRowsOut, form: LogForm) -> LogRowsOut:
    """Return the rows with deletes that have an ordering value before the others."""
    if not out.deletes.num_rows:
        return out
    missing = ~_with_order(out.deletes, form)
    if missing.all() or not missing.any():
        return out
    order = np.argsort(missing, kind="stable")
    positions = None if out.delete_positions is None else out.delete_positions[order]
    return replace(out, deletes=out.deletes.take(from_numpy(order)), delete_positions=positions)


def _header(form: LogForm, schema: str, positions: I64 | None, *, is_partial: bool = False) -> BlockHeader:
    return BlockHeader(
        form.instant,
        schema,
        positions=positions,
        base_instant_time=None if positions is None else form.base_instant,
        is_partial=is_partial,
        compacted_block_times=form.replaces,
    )


def _cut(
    table: pa.Table, positions: I64 | None, first: int, block_bytes: int | None
) -> Iterator[tuple[int, pa.Table, I64 | None]]:
    """Yield the rows of each block with the number of its first row and its positions; without a size there is one block."""
    step = max(1, table.num_rows)
    if block_bytes is not None:
        step = max(1, int(table.num_rows * block_bytes / max(block_bytes, table.nbytes)))
    for start in range(first, table.num_rows, step):
        yield start, table.slice(start, step), None if positions is None else positions[start : start + step]


# --------------------------------------------------------------------------------------------------------- adopting


def _adopt(store: ObjectStore, path: str, form: LogForm, left: tuple[int, int]) -> WrittenLog | None:
    """Return the log that an earlier attempt wrote, or None."""
    info = store.info(path)
    if info is None:
        return None
    reader = LogBlockReader(path)
    reader.feed(store.read(path, MAX_LOG_BYTES))
    rows = deletes = 0
    for whole in reader.finish():
        if not isinstance(whole, WholeBlock) or whole.block.instant_time != form.instant:
            raise CorruptFile(f"{path} exists and was not written by this write")
        count = _COUNT.get(whole.block.kind, _count_avro)(whole, path)
        if whole.block.kind is BlockKind.DELETE:
            deletes += count
        else:
            rows += count
    if rows > left[0] or deletes > left[1] or (rows + deletes == 0 and left != (0, 0)):
        raise CorruptFile(f"{path} exists and holds other rows than this write has for it")
    return WrittenLog(path.rpartition("/")[2], info.size, rows, deletes, adopted=True)


def _count_deletes(whole: WholeBlock, what: str) -> int:
    return len(decode_delete_content(whole.content, what=what))


def _count_parquet(whole: WholeBlock, what: str) -> int:
    return int(decode_parquet_content(whole.content, [RECORD_KEY], what=what).num_rows)


def _count_avro(whole: WholeBlock, what: str) -> int:
    return int(decode_avro_content(whole.content, whole.block.schema or "", [RECORD_KEY], what=what).num_rows)


_COUNT: dict[BlockKind, Callable[[WholeBlock, str], int]] = {
    BlockKind.DELETE: _count_deletes,
    BlockKind.PARQUET_DATA: _count_parquet,
}
