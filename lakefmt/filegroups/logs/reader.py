"""A file slice's logs as rows: read, select, decode, in one table and one order (effects on reading only).

Rows come in the order of arrival, oldest first. Deletes are rows as well: they have a key, perhaps an ordering value, and a
mark. Nothing is merged here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt.config.merge_rule import MergeRule
from lakefmt.errors import (
    CorruptFile,
    InvalidInputError,
    LakefmtError,
    ObjectNotFound,
    SnapshotExpired,
    UnsupportedFeature,
)
from lakefmt.filegroups.logs._block_scanner import PlacedBlock, select_blocks
from lakefmt.filegroups.logs.log_inspection import LogInspection, scan_log_blocks
from lakefmt.filegroups.model import FileSlice, LogFile
from lakefmt.filegroups.ordering import has_order, marked_deletes, unordered_deletes
from lakefmt.filegroups.reader import reading
from lakefmt.filegroups.virtual_columns import VirtualColumns
from lakefmt.formats.log.blocks import MAX_LOG_BYTES, BlockKind, ReadAt, scan_blocks
from lakefmt.formats.log.data_block import (
    block_positions,
    decode_avro_content,
    decode_avro_contents,
    decode_parquet_content,
)
from lakefmt.formats.log.delete_block import DeleteRecords, decode_delete_content
from lakefmt.formats.log.reader import LogBlockReader, WholeBlock
from lakefmt.schema import avro_to_arrow, reconcile
from lakefmt.storage.api import ObjectStore
from lakefmt.storage.os_errors import raise_if_transient
from lakefmt.timeline.timeline import Timeline
from lakefmt.values import META_COLUMNS, PARTITION_PATH, RECORD_KEY, InstantTime

__all__ = ["LogRows", "find_unreadable_blocks", "read_log_look", "read_log_rows", "select_log_blocks"]

I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: A log file is read whole; Hudi rolls to a new one at one gigabyte.
#: Blocks are decoded together up to so many bytes: of larger ones it is the rows that take the time.
_RUN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class LogRows:
    """Rows of logs, in the order of arrival.

    Attributes:
        table: columns as asked for, the record key among them; what a row does not bring is null.
        deletes: which rows remove their key.
        always: which of those do so whatever is stored, and let any later row in again.
        brings: for rows of partial updates which columns they bring: a block's number per row into ``columns``.
        columns: the columns of each kind of block; None stands for all.
        positions: the row of the base file that each row meets; None: not every block says it for this base file.
        of_deletes: which rows come from delete blocks; None: they are told by having no commit time.
        known: the data columns that some block brings, those that were not asked for among them.
        num_blocks: how many blocks they come from.
        instants: the instants of these blocks, each once, oldest first.
    """

    table: pa.Table
    deletes: Mask
    always: Mask
    brings: npt.NDArray[np.int64]
    columns: tuple[frozenset[str] | None, ...]
    num_blocks: int = 0
    instants: tuple[str, ...] = ()
    positions: npt.NDArray[np.int64] | None = None
    of_deletes: Mask | None = None
    known: frozenset[str] = frozenset()

    @property
    def is_partial(self) -> bool:
        """Whether some rows bring some of the columns only."""
        return any(names is not None for names in self.columns)


def read_log_rows(
    store: ObjectStore,
    file_slice: FileSlice,
    schema: pa.Schema,
    rule: MergeRule,
    *,
    layout: int,
    is_committed: Callable[[str], bool],
    bound: str | None = None,
    positions: bool = False,
    unstored: VirtualColumns | None = None,
) -> LogRows:
    """Return the rows of a slice's logs.

    Args:
        store: the table.
        piece: the slice.
        schema: the columns wanted, as the table has them now; the record key and what `rule` compares among them.
        rule: how the table merges; it says what marks a delete.
        layout: 1 for version 6, 2 from version 8 on.
        is_committed: tells whether blocks of an instant count (version 6).
        bound: blocks of later instants do not count; None: all do.
        positions: also say which rows of the base file they meet, if the blocks do; for merging with the whole of it.
        unstored: what rows have and log blocks do not; rows get it back.

    Raises:
        SnapshotExpired: a log file is gone.
        CorruptFile: a block's content is damaged. Bytes that are no block are passed over, as Hudi does.
        UnsupportedFeature: a block of HFile records.
    """
    contents: dict[tuple[str, int], bytes | memoryview] = {}
    placed: list[PlacedBlock] = []
    for log in file_slice.logs:
        for whole in _blocks(store, log):
            placed.append(PlacedBlock(log, whole.block))
            contents[(log.path, whole.block.start)] = whole.content
    chosen = select_blocks(placed, layout=layout, is_committed=is_committed, bound=bound)
    parts, counts = [], list[int]()
    for run in _runs(chosen):
        part, rows = _decode(run, [contents[(p.file.path, p.block.start)] for p in run], schema, rule, unstored)
        parts.append(part)
        counts += rows
    return replace(
        _joined(parts, schema),
        num_blocks=len(chosen),
        instants=tuple(dict.fromkeys(p.block.instant_time or "" for p in chosen)),
        positions=_positions(file_slice, chosen, counts) if positions and layout > 1 else None,
    )


def _runs(chosen: Sequence[PlacedBlock]) -> list[list[PlacedBlock]]:
    """Return the blocks in runs that are decoded at once: blocks of Avro rows that have one schema, up to some bytes."""
    runs: list[list[PlacedBlock]] = []
    size = 0
    for placed in chosen:
        block = placed.block
        last = runs[-1][-1].block if runs else None
        alike = last is not None and block.kind is last.kind is BlockKind.AVRO_DATA
        if last is not None and alike and (block.schema, block.is_partial) == (last.schema, last.is_partial):
            size += block.content_size
            if size <= _RUN_BYTES:
                runs[-1].append(placed)
                continue
        runs.append([placed])
        size = block.content_size
    return runs


def _positions(file_slice: FileSlice, chosen: Sequence[PlacedBlock], counts: Sequence[int]) -> I64 | None:
    """Return the base file's row of every row; None when a block does not say it, or says it for another base file."""
    if file_slice.base is None:
        return None
    found = [np.zeros(0, np.int64)]
    for placed, count in zip(chosen, counts, strict=True):
        places = block_positions(placed.block, file_slice.base.instant, count, placed.file.path)
        if places is None:
            return None
        found.append(places)
    return np.concatenate(found)


def select_log_blocks(store: ObjectStore, file_slice: FileSlice, timeline: Timeline) -> list[PlacedBlock]:
    """Return the blocks of a slice's logs that count, oldest first; their contents are not read.

    Raises:
        SnapshotExpired: a log file is gone.
    """
    filesystem, prefix = store.arrow_filesystem()
    placed = []
    for log in file_slice.logs:
        with reading(log.path), filesystem.open_input_file(prefix + log.path) as source:
            placed += [PlacedBlock(log, block) for block in scan_blocks(_read_at(source), source.size(), log.path)]
    return select_blocks(
        placed,
        layout=timeline.layout,
        is_committed=lambda time: timeline.is_committed(InstantTime(time)),
        bound=timeline.bound,
    )


def read_log_look(store: ObjectStore, log: LogFile) -> LogInspection:
    """Return what a log's blocks tell; their contents are not read.

    Raises:
        SnapshotExpired: the log file is gone.
    """
    filesystem, prefix = store.arrow_filesystem()
    with reading(log.path), filesystem.open_input_file(prefix + log.path) as source:
        return scan_log_blocks(_read_at(source), source.size(), log.path)


def find_unreadable_blocks(store: ObjectStore, log: LogFile) -> tuple[tuple[int, InstantTime, str], ...]:
    """Return the blocks of a log whose keys cannot be decoded: where they begin, who wrote them, and why.

    Raises:
        SnapshotExpired: the log file is gone.
        UnsupportedFeature: a block has another format version, an unknown kind or an unknown header key.
    """
    found = []
    for whole in _blocks(store, log):
        try:
            _decode_keys(whole, log.path)
        except LakefmtError as error:
            raise_if_transient(error)
            found.append((whole.block.start, InstantTime(whole.block.instant_time or ""), str(error)))
    return tuple(found)


def _decode_keys(whole: WholeBlock, what: str) -> None:
    if whole.kind is BlockKind.DELETE:
        decode_delete_content(whole.content, what=what)
    if whole.kind not in (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA):
        return
    if whole.block.schema is None:
        raise CorruptFile(f"{what}: the block at byte {whole.block.start:,} has no schema")
    stored = avro_to_arrow(whole.block.schema).names
    wanted = [name for name in stored if name == RECORD_KEY] or stored[:1]
    if whole.kind is BlockKind.PARQUET_DATA:
        _parquet_rows(whole.content, wanted, what)
    else:
        decode_avro_content(whole.content, whole.block.schema, wanted, what=what)


def _read_at(source: pa.NativeFile) -> ReadAt:
    return lambda at, count: source.read_at(count, at)


def _blocks(store: ObjectStore, log: LogFile) -> Iterator[WholeBlock]:
    reader = LogBlockReader(log.path)
    try:
        reader.feed(store.read(log.path, MAX_LOG_BYTES))
    except ObjectNotFound:
        raise SnapshotExpired(
            f"{log.path} is gone: a clean removed it after this snapshot was taken; read again"
        ) from None
    return (found for found in reader.finish() if isinstance(found, WholeBlock))


def _decode(
    run: Sequence[PlacedBlock],
    contents: Sequence[bytes | memoryview],
    schema: pa.Schema,
    rule: MergeRule,
    unstored: VirtualColumns | None,
) -> tuple[LogRows, list[int]]:
    """Return the rows of a run of blocks, and how many each block has."""
    placed, content = run[0], contents[0]
    what, block = placed.file.path, placed.block
    if block.kind is BlockKind.DELETE:
        deleted = _delete_rows(decode_delete_content(content, what=what), schema, rule)
        return deleted, [deleted.table.num_rows]
    if block.kind is BlockKind.HFILE_DATA:
        raise UnsupportedFeature(f"{what} holds HFile records: only metadata tables have them")
    if block.schema is None:
        raise CorruptFile(f"{what}: the block at byte {block.start:,} has no schema")
    stored = set(avro_to_arrow(block.schema).names)
    needed = schema.names if unstored is None else unstored.needed(schema.names) or ()
    wanted = [name for name in needed if name in stored]
    if block.kind is BlockKind.PARQUET_DATA:
        rows = _parquet_rows(content, wanted, what)
        counts = [rows.num_rows]
    else:
        rows, counts = decode_avro_contents(contents, block.schema, wanted, what=[p.file.path for p in run])
    if unstored is not None:
        rows = unstored.complete(rows, placed.file.partition, schema.names)
    if RECORD_KEY not in rows.column_names:
        raise CorruptFile(f"{what}: the rows of the block at byte {block.start:,} have no record keys")
    table = reconcile(rows, _nullable(schema))
    brought = frozenset(stored | set(rows.column_names))
    deletes = marked_deletes(table, rule)
    none = np.zeros(table.num_rows, dtype=bool)
    # A partial row without the ordering column says nothing of its event time.
    always = unordered_deletes(table, deletes, rule) if has_order(rule.stored, rows.column_names) else none
    found = _plain(table, deletes, always, brought if block.is_partial else None, of_deletes=none)
    return replace(found, known=brought - set(META_COLUMNS)), counts


def _parquet_rows(content: bytes | memoryview, wanted: list[str], what: str) -> pa.Table:
    try:
        return decode_parquet_content(content, wanted, what=what)
    except InvalidInputError as error:
        # The header names them, and the file was written to fit it.
        raise CorruptFile(f"damaged Parquet block: {error}") from None


def _plain(table: pa.Table, deletes: Mask, always: Mask, names: frozenset[str] | None, *, of_deletes: Mask) -> LogRows:
    return LogRows(table, deletes, always, np.zeros(table.num_rows, np.int64), (names,), of_deletes=of_deletes)


def _nullable(schema: pa.Schema) -> pa.Schema:
    # Deletes bring keys only, so that every column may hold nulls until they are merged.
    return pa.schema([field.with_nullable(True) for field in schema])


def _delete_rows(records: DeleteRecords, schema: pa.Schema, rule: MergeRule) -> LogRows:
    count = len(records)
    ordering = {name: records.ordering(schema.field(name).type, n) for n, name in enumerate(_flat_order(schema, rule))}
    made = {RECORD_KEY: records.keys, PARTITION_PATH: records.partitions, **ordering}
    columns = [made[f.name].cast(f.type) if f.name in made else pa.nulls(count, f.type) for f in schema]
    first = next(iter(ordering.values()), None)
    # Without an ordering value, or with the int 0 that stands for none, whatever is stored goes (spec 7.6).
    unordered = first is None or rule.blocks_win
    always = np.ones(count, dtype=bool) if unordered else pc.is_null(first).to_numpy(zero_copy_only=False)
    table = pa.table(columns, schema=_nullable(schema))
    every = np.ones(count, dtype=bool)
    return _plain(table, every, always, None, of_deletes=every)


def _flat_order(schema: pa.Schema, rule: MergeRule) -> list[str]:
    return [name for name in rule.stored.fields if name in schema.names]


def _joined(parts: Sequence[LogRows], schema: pa.Schema) -> LogRows:
    kinds: dict[frozenset[str] | None, int] = {None: 0}
    numbers = []
    for part in parts:
        number = kinds.setdefault(part.columns[0], len(kinds))
        numbers.append(np.full(part.table.num_rows, number, np.int64))
    empty, none = _nullable(schema).empty_table(), np.zeros(0, dtype=bool)
    return LogRows(
        pa.concat_tables([part.table for part in parts] or [empty]),
        np.concatenate([part.deletes for part in parts] or [none]),
        np.concatenate([part.always for part in parts] or [none]),
        np.concatenate(numbers or [np.zeros(0, np.int64)]),
        tuple(kinds),
        of_deletes=np.concatenate([part.of_deletes for part in parts if part.of_deletes is not None] or [none]),
        known=frozenset().union(*(part.known for part in parts)),
    )
