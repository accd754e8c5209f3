"""Read the logs of a file slice: choose the blocks that count, decode their rows, and inspect a log by its block headers.

Blocks are chosen as docs/format.md says (Reading a slice). Rows are ordered by arrival, oldest first.
A delete is a row, too, with a key, possibly an ordering value, and a delete flag. Nothing is merged here.

A log's name does not say who wrote it in layout 1: it has the base instant, and each block names
its own deltacommit (docs/format.md, File slices). So visibility is decided from the blocks.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakefmt._core.config.merge_rule import MergeRule
from lakefmt._core.data_classes import dataclass, replace
from lakefmt._core.filegroups.model import FileSlice, LogFile
from lakefmt._core.filegroups.ordering import has_order, marked_deletes, to_mask, unordered_deletes
from lakefmt._core.filegroups.reader import VirtualColumns, reading
from lakefmt._core.formats.avro.columnar.plan import plan_rows
from lakefmt._core.formats.log_blocks import (
    MAGIC,
    MAX_LOG_BYTES,
    BlockKind,
    HeaderKey,
    LogBlock,
    LogBlockReader,
    ReadAt,
    WholeBlock,
    scan_blocks,
)
from lakefmt._core.formats.log_data_block import (
    block_positions,
    decode_avro_content,
    decode_avro_contents,
    decode_parquet_content,
)
from lakefmt._core.formats.log_delete_block import DeleteRecords, decode_delete_content
from lakefmt._core.schema import reconcile
from lakefmt._core.schema.types import all_nullable, field_at, struct_fields
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.messages import raise_if_transient
from lakefmt._core.timeline.timeline import Timeline
from lakefmt._core.values import DELETING_OPERATIONS, META_COLUMNS, OPERATION, PARTITION_PATH, RECORD_KEY, InstantTime
from lakefmt.errors import (
    CorruptFile,
    InvalidInputError,
    LakefmtError,
    ObjectNotFound,
    SnapshotExpired,
    UnsupportedError,
    UnsupportedFeature,
)

if TYPE_CHECKING:
    from lakefmt._core.schema.column_ids import ColumnPlaces

__all__ = [
    "LogInspection",
    "LogRows",
    "PlacedBlock",
    "Standing",
    "find_unreadable_blocks",
    "inspect_log",
    "read_log_look",
    "read_log_rows",
    "read_log_rows_by_instant",
    "read_logs_of_slices",
    "scan_log_blocks",
    "select_blocks",
    "select_log_blocks",
]


I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_Contents: TypeAlias = dict[tuple[str, int], bytes | memoryview]
#: Up to this number of bytes blocks are decoded together; larger blocks spend their time on rows.
_RUN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PlacedBlock:
    """A block and the log file that contains it."""

    file: LogFile
    block: LogBlock


def select_blocks(
    blocks: Iterable[PlacedBlock], *, layout: int, is_committed: Callable[[str], bool], bound: str | None
) -> list[PlacedBlock]:
    """Return the data and delete blocks that a reader merges, oldest first.

    Dropped are blocks of uncommitted instants and of instants after the bound; blocks that a
    command block of version 6 rolls back; and blocks of all but one attempt at a write. A
    log-compacted block takes the place of the last block that it replaces.

    Args:
        blocks: all intact blocks of the slice, log by log in order.
        layout: 1 for version 6, 2 from version 8 on.
        is_committed: whether an instant is committed.
        bound: the last instant that counts; None: no bound.

    Example:
        >>> log = LogFile("", ".f-0_1.log.1", "f-0", "1", 1, 9)
        >>> one = PlacedBlock(log, LogBlock(BlockKind.AVRO_DATA, 0, 9, {HeaderKey.INSTANT_TIME: "1"}))
        >>> undo = PlacedBlock(log, LogBlock(BlockKind.COMMAND, 9, 18, {HeaderKey.TARGET_INSTANT_TIME: "1"}))
        >>> [len(select_blocks(b, layout=1, is_committed=lambda t: True, bound=None)) for b in ([one], [one, undo])]
        [1, 0]
    """
    visible_blocks: list[PlacedBlock] = []
    for placed in blocks:
        if placed.block.kind is BlockKind.COMMAND:
            target = placed.block.header.get(HeaderKey.TARGET_INSTANT_TIME)
            visible_blocks = [other for other in visible_blocks if other.block.instant_time != target]
        elif placed.block.kind not in (BlockKind.CDC_DATA, BlockKind.CORRUPT):
            visible_blocks.append(placed)
    visible_blocks = [p for p in visible_blocks if _is_visible(p.block.instant_time or "", is_committed, bound)]
    if layout > 1 and any(p.block.instant_time != p.file.instant for p in visible_blocks):
        # Copies for the new buckets of a clustering have one instant in their names, and Hudi gives all of them one version.
        visible_blocks.sort(key=lambda p: (p.file.instant, p.block.instant_time or ""))
    return _in_place_of_replaced(_one_attempt(visible_blocks) if layout == 1 else visible_blocks)


def _is_visible(time: str, is_committed: Callable[[str], bool], bound: str | None) -> bool:
    if bound is not None and time > bound:
        return False
    # Also from version 8 on, where a log has one instant, in its name: logs from before an upgrade
    # have other names.
    return is_committed(time)


def _one_attempt(blocks: Sequence[PlacedBlock]) -> list[PlacedBlock]:
    """Keep the latest complete attempt of each task, by block identifiers (docs/format.md, Block headers)."""
    attempts: dict[str, dict[int, list[int]]] = {}
    for placed in blocks:
        identifier = _block_identifier(placed.block)
        if identifier is not None:
            attempts.setdefault(placed.block.instant_time or "", {}).setdefault(identifier[0], []).append(identifier[1])
    attempt_by_time = {time: _best_attempt(numbers) for time, numbers in attempts.items() if len(numbers) > 1}
    return [p for p in blocks if _is_chosen_attempt(p.block, attempt_by_time)]


def _best_attempt(attempts: dict[int, list[int]]) -> int:
    complete = {number: sorted(parts) == list(range(len(parts))) for number, parts in attempts.items()}
    return max(attempts, key=lambda number: (complete[number], len(attempts[number]), number))


def _is_chosen_attempt(block: LogBlock, attempt_by_time: dict[str, int]) -> bool:
    identifier = _block_identifier(block)
    return identifier is None or attempt_by_time.get(block.instant_time or "", identifier[0]) == identifier[0]


def _block_identifier(block: LogBlock) -> tuple[int, int] | None:
    attempt, _, sequence = block.header.get(HeaderKey.BLOCK_IDENTIFIER, "").partition(",")
    try:
        return int(attempt), int(sequence)
    except ValueError:
        return None


def _in_place_of_replaced(blocks: Sequence[PlacedBlock]) -> list[PlacedBlock]:
    """Put log-compacted blocks in the place of the last block that they replace."""
    replaced_by: dict[str, str] = {}
    for placed in blocks:
        for time in placed.block.compacted_block_times:
            # A log-compacted block may itself have been replaced: the later one stands for all of
            # it.
            replaced_by[time] = placed.block.instant_time or ""
    if not replaced_by:
        return list(blocks)
    final = {
        n: _last_replacement(p, replaced_by)
        for n, p in enumerate(blocks)
        if (p.block.instant_time or "") in replaced_by
    }
    last = {time: number for number, time in final.items()}
    standing: dict[str, list[PlacedBlock]] = {}
    for placed in blocks:
        if placed.block.compacted_block_times and placed.block.instant_time in last:
            standing.setdefault(placed.block.instant_time or "", []).append(placed)
    order: list[PlacedBlock] = []
    for number, placed in enumerate(blocks):
        if number in final:
            order += standing.get(final[number], []) if last[final[number]] == number else []
        elif placed.block.instant_time not in standing:
            order.append(placed)
    return order


def _last_replacement(placed: PlacedBlock, replaced_by: dict[str, str]) -> str:
    time = placed.block.instant_time or ""
    seen = {time}
    while time in replaced_by and replaced_by[time] not in seen:
        time = replaced_by[time]
        seen.add(time)
    return time


@dataclass(frozen=True, slots=True)
class LogInspection:
    """The block headers of a log file.

    Attributes:
        size: size of the file in bytes.
        writers: the instants of its data, delete and change blocks.
        targets: the instants that its command blocks roll back (version 6).
        stands_for: the instants whose blocks it replaces (log compaction).
        damaged: byte ranges ``(start, end)`` outside of blocks, in order.
        unreadable: offset, instant and reason of intact blocks whose content cannot be decoded;
            empty unless contents were read.
        opens: whether the file begins with the block magic; engines refuse a file that does not.
        problem: why the blocks cannot be scanned; empty if they can.
        unknown: what another release of Hudi may have written and is not known here, which is no damage; empty if
            everything is known.
    """

    size: int
    writers: frozenset[InstantTime] = frozenset()
    targets: frozenset[InstantTime] = frozenset()
    stands_for: frozenset[InstantTime] = frozenset()
    damaged: tuple[tuple[int, int], ...] = ()
    unreadable: tuple[tuple[int, InstantTime, str], ...] = ()
    opens: bool = True
    problem: str = ""
    unknown: str = ""


class Standing(enum.Enum):
    """The state of a log file that no commit names."""

    SEEN = "seen"
    TAKEN = "taken"
    UNDONE = "undone"
    UNSEEN = "unseen"


def scan_log_blocks(read_at: ReadAt, size: int, what: str) -> LogInspection:
    """Return the block headers of a log; damaged ranges are part of the result.

    Args:
        read_at: reads ``count`` bytes at an offset.
        size: bytes of the file.
        what: how the file is named in messages.

    Source: docs/format.md, Log blocks; Block headers.

    Example:
        >>> scan_log_blocks(lambda at, count: b"#HUDI#"[at : at + count], 6, "a.log").damaged
        ((0, 6),)
    """
    blocks: list[LogBlock] = []
    problem = ""
    try:
        blocks += scan_blocks(read_at, size, what)
    except UnsupportedFeature as error:
        problem = str(error)
    sound = [block for block in blocks if block.kind is not BlockKind.CORRUPT]
    commands = [block for block in sound if block.kind is BlockKind.COMMAND]
    return LogInspection(
        size,
        frozenset(InstantTime(b.instant_time or "") for b in sound if b.kind is not BlockKind.COMMAND),
        frozenset(InstantTime(b.header.get(HeaderKey.TARGET_INSTANT_TIME, "")) for b in commands),
        frozenset(InstantTime(time) for block in sound for time in block.compacted_block_times),
        tuple((block.start, block.end) for block in blocks if block.kind is BlockKind.CORRUPT),
        opens=not size or read_at(0, len(MAGIC)) == MAGIC,
        problem=problem,
        unknown=problem,
    )


def inspect_log(
    log: LogFile,
    look: LogInspection,
    timeline: Timeline,
    *,
    is_taken: Callable[[InstantTime], bool],
    is_busy: bool,
    undone: Collection[InstantTime] = (),
) -> Standing:
    """Return the state of a log file that no commit names.

    Args:
        log: the file.
        look: its block headers.
        timeline: decides which instants are committed.
        is_taken: whether the writer of an instant may be alive, or its rollback is pending.
        is_busy: whether any writer may be active: a block that is being written has no instant yet.
        undone: the instants that command blocks of the file group roll back.

    Example:
        >>> from lakefmt._core.timeline.timeline import build_timeline
        >>> log = LogFile("", ".f-0_1.log.1", "f-0", "1", 1, 9)
        >>> how = dict(timeline=build_timeline([], 1), is_taken=lambda time: False, is_busy=False)
        >>> inspect_log(log, LogInspection(9, frozenset({"5"})), **how), inspect_log(log, LogInspection(9, targets={"5"}), **how)
        (<Standing.UNSEEN: 'unseen'>, <Standing.UNDONE: 'undone'>)
    """
    if timeline.layout > 1 and not timeline.is_committed(log.instant):
        # Its name hides it, whatever it contains.
        return Standing.TAKEN if is_taken(log.instant) else Standing.UNSEEN
    if look.problem or any(timeline.is_committed(time) for time in look.writers):
        return Standing.SEEN
    if any(is_taken(time) for time in look.writers) or (is_busy and not (look.writers or look.targets)):
        return Standing.TAKEN
    if look.targets or (look.writers and look.writers.issubset(undone)):
        return Standing.UNDONE
    return Standing.UNSEEN


@dataclass(frozen=True, slots=True, eq=False)
class LogRows:
    """The rows of logs, in the order of arrival.

    Attributes:
        table: the requested columns, the record key among them; null where a row lacks a value.
        deletes: ``(n_rows,)`` bool; the row deletes its key.
        always: ``(n_rows,)`` bool; a delete without an event time.
        brings: ``(n_rows,) int64``; the entry of ``columns`` for each row.
        columns: the columns of partial blocks; None means all columns.
        positions: ``(n_rows,) int64``, the row of the base file; None: some block has no positions
            for this base file.
        of_deletes: ``(n_rows,)`` bool; the row is from a delete block; None: such rows have no
            commit time.
        known: the data columns of all blocks, also those that were not requested.
        num_blocks: the number of blocks.
        instants: the distinct instants of the blocks, oldest first.
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
        """Whether some rows have only some of the columns."""
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
        file_slice: its logs are read.
        schema: the requested columns with their current types; the record key and the columns that
            `rule` compares are among them.
        rule: the merge rule; defines delete markers.
        layout: 1 for version 6, 2 from version 8 on.
        is_committed: whether an instant is committed (version 6).
        bound: the last instant that counts; None: no bound.
        positions: also return positions in the base file if the blocks have them; for merging with
            the whole base file.
        unstored: columns that log blocks lack; they are added to the rows.

    Raises:
        SnapshotExpired: a log file is gone.
        CorruptFile: the content of a block is damaged. Bytes outside of blocks are ignored, as in
            Hudi.
        UnsupportedFeature: a block of HFile records.
    """
    blocks, contents = _chosen_blocks(store, file_slice, layout, is_committed, bound)
    rows, counts = _rows_of_blocks(blocks, contents, schema, rule, unstored)
    return replace(rows, positions=_positions_in_base(file_slice, blocks, counts) if positions and layout > 1 else None)


def read_log_rows_by_instant(
    store: ObjectStore,
    file_slice: FileSlice,
    schema: pa.Schema,
    rule: MergeRule,
    *,
    layout: int,
    is_committed: Callable[[str], bool],
    bound: str | None = None,
) -> tuple[LogRows, list[tuple[str, int]]] | None:
    """Return the rows of a slice's logs, and instant and number of rows of each block.

    The arguments are those of :func:`read_log_rows`.

    Returns:
        None if the logs do not hold the rows of each instant, whole and apart from others: some rows lack columns, a log has
        rows of another instant than its own, or stands for others.
    """
    blocks, contents = _chosen_blocks(store, file_slice, layout, is_committed, bound)
    if any(
        placed.block.is_partial
        or placed.block.compacted_block_times
        or placed.block.instant_time != placed.file.instant
        for placed in blocks
    ):
        return None
    rows, counts = _rows_of_blocks(blocks, contents, schema, rule, None)
    return rows, [(placed.file.instant, count) for placed, count in zip(blocks, counts, strict=True)]


def read_logs_of_slices(
    store: ObjectStore,
    slices: Sequence[FileSlice],
    base_rows: Sequence[int],
    schema: pa.Schema,
    rule: MergeRule,
    *,
    layout: int,
    is_committed: Callable[[str], bool],
    bound: str | None = None,
) -> tuple[LogRows, list[int]] | None:
    """Return the rows of several slices' logs, decoded together, and the number of rows of each slice.

    The arguments are those of :func:`read_log_rows`; no columns are virtual, and `base_rows` are the numbers of rows of
    the base files. Positions are those in the rows of these files one behind the other.

    Returns:
        None if rows have some of the columns only: these are read slice by slice.
    """
    selected_blocks: list[PlacedBlock] = []
    contents: _Contents = {}
    ends: list[int] = []
    for file_slice in slices:
        blocks, of_slice = _chosen_blocks(store, file_slice, layout, is_committed, bound)
        selected_blocks += blocks
        contents |= of_slice
        ends.append(len(selected_blocks))
    if any(placed.block.is_partial for placed in selected_blocks):
        return None
    rows, counts = _rows_of_blocks(selected_blocks, contents, schema, rule, None)
    spans = [slice(begin, end) for begin, end in pairwise([0, *ends])]
    positions: list[I64] | None = [] if layout > 1 else None
    first = 0
    for file_slice, span, in_base in zip(slices, spans, base_rows, strict=True):
        slice_positions = (
            None if positions is None else _positions_in_base(file_slice, selected_blocks[span], counts[span])
        )
        positions = None if positions is None or slice_positions is None else [*positions, slice_positions + first]
        first += in_base
    joined = None if positions is None else np.concatenate(positions)
    return replace(rows, positions=joined), [sum(counts[span]) for span in spans]


def _chosen_blocks(
    store: ObjectStore, file_slice: FileSlice, layout: int, is_committed: Callable[[str], bool], bound: str | None
) -> tuple[list[PlacedBlock], _Contents]:
    """Return the blocks of a slice that count, and the contents of its blocks."""
    contents: _Contents = {}
    placed: list[PlacedBlock] = []
    for log in file_slice.logs:
        for whole in _read_blocks(store, log):
            placed.append(PlacedBlock(log, whole.block))
            contents[(log.path, whole.block.start)] = whole.content
    return select_blocks(placed, layout=layout, is_committed=is_committed, bound=bound), contents


def _rows_of_blocks(
    blocks: Sequence[PlacedBlock],
    contents: _Contents,
    schema: pa.Schema,
    rule: MergeRule,
    unstored: VirtualColumns | None,
) -> tuple[LogRows, list[int]]:
    """Return the rows of blocks, and the number of rows of each block."""
    parts, counts = [], list[int]()
    for run in _runs_of_one_form(blocks, unstored):
        part, rows = _decode_run(run, [contents[(p.file.path, p.block.start)] for p in run], schema, rule, unstored)
        parts.append(part)
        counts += rows
    instants = tuple(dict.fromkeys(p.block.instant_time or "" for p in blocks))
    return replace(_joined_rows(parts, schema), num_blocks=len(blocks), instants=instants), counts


def _runs_of_one_form(blocks: Sequence[PlacedBlock], unstored: VirtualColumns | None) -> list[list[PlacedBlock]]:
    """Return runs of blocks to decode together: Avro blocks of one schema, up to a number of bytes."""
    column_places: dict[str, ColumnPlaces | None] = {}
    if unstored is not None:
        column_places = {instant: unstored.places(instant) for instant in {p.block.instant_time or "" for p in blocks}}
    runs: list[list[PlacedBlock]] = []
    size = 0
    for placed in blocks:
        block = placed.block
        last = runs[-1][-1].block if runs else None
        alike = last is not None and block.kind is last.kind is BlockKind.AVRO_DATA
        if last is not None and alike and _decoding_form(block, column_places) == _decoding_form(last, column_places):
            size += block.content_size
            if size <= _RUN_BYTES:
                runs[-1].append(placed)
                continue
        runs.append([placed])
        size = block.content_size
    return runs


def _decoding_form(block: LogBlock, column_places: Mapping[str, ColumnPlaces | None]) -> tuple[object, ...]:
    """Return what blocks have to share to be decoded together."""
    return block.schema, block.is_partial, column_places.get(block.instant_time or "") if column_places else None


def _positions_in_base(file_slice: FileSlice, blocks: Sequence[PlacedBlock], counts: Sequence[int]) -> I64 | None:
    """Return the base file's row of every row; None if a block has no positions for this base file."""
    if file_slice.base is None:
        return None
    positions = [np.zeros(0, np.int64)]
    for placed, count in zip(blocks, counts, strict=True):
        rows_in_base = block_positions(placed.block, file_slice.base.instant, count, placed.file.path)
        if rows_in_base is None:
            return None
        positions.append(rows_in_base)
    return np.concatenate(positions)


def select_log_blocks(store: ObjectStore, file_slice: FileSlice, timeline: Timeline) -> list[PlacedBlock]:
    """Return the blocks of a slice's logs that a reader merges, oldest first, without their contents.

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
    """Return the block headers of a log.

    Raises:
        SnapshotExpired: the log file is gone.
    """
    filesystem, prefix = store.arrow_filesystem()
    with reading(log.path), filesystem.open_input_file(prefix + log.path) as source:
        return scan_log_blocks(_read_at(source), source.size(), log.path)


def find_unreadable_blocks(store: ObjectStore, log: LogFile) -> tuple[tuple[tuple[int, InstantTime, str], ...], str]:
    """Return offset, instant and reason of the blocks whose keys cannot be decoded, and what of a block is not known here.

    Raises:
        SnapshotExpired: the log file is gone.
        UnsupportedFeature: a block has another format version, an unknown kind or an unknown header key.
    """
    unreadable, unknown = [], ""
    for whole in _read_blocks(store, log):
        try:
            _decode_keys(whole, log.path)
        except UnsupportedError as error:
            unknown = str(error)
        except LakefmtError as error:
            raise_if_transient(error)
            unreadable.append((whole.block.start, InstantTime(whole.block.instant_time or ""), str(error)))
    return tuple(unreadable), unknown


def _decode_keys(whole: WholeBlock, what: str) -> None:
    if whole.kind is BlockKind.DELETE:
        decode_delete_content(whole.content, what=what)
    if whole.kind not in (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA):
        return
    if whole.block.schema is None:
        raise CorruptFile(f"{what}: the block at byte {whole.block.start:,} has no schema")
    stored = [part.path for part in plan_rows(whole.block.schema, what).parts]
    key_columns = [name for name in stored if name == RECORD_KEY] or stored[:1]
    if whole.kind is BlockKind.PARQUET_DATA:
        _parquet_rows(whole.content, key_columns, what)
    else:
        decode_avro_content(whole.content, whole.block.schema, key_columns, what=what)


def _read_at(source: pa.NativeFile) -> ReadAt:
    return lambda offset, count: source.read_at(count, offset)


def _read_blocks(store: ObjectStore, log: LogFile) -> Iterator[WholeBlock]:
    reader = LogBlockReader(log.path)  # a log file is read whole; Hudi starts a new file at 1 GiB
    try:
        reader.feed(store.read(log.path, MAX_LOG_BYTES))
    except ObjectNotFound:
        raise SnapshotExpired(
            f"{log.path} is gone: a clean removed it after this snapshot was taken; read again"
        ) from None
    return (block for block in reader.finish() if isinstance(block, WholeBlock))


def _decode_run(
    run: Sequence[PlacedBlock],
    contents: Sequence[bytes | memoryview],
    schema: pa.Schema,
    rule: MergeRule,
    unstored: VirtualColumns | None,
) -> tuple[LogRows, list[int]]:
    """Return the rows of a run of blocks, and the number of rows of each block."""
    placed, content = run[0], contents[0]
    what, block = placed.file.path, placed.block
    if block.kind is BlockKind.DELETE:
        deleted = _delete_rows(decode_delete_content(content, what=what), schema, rule)
        return deleted, [deleted.table.num_rows]
    if block.kind is BlockKind.HFILE_DATA:
        raise UnsupportedFeature(f"{what} holds HFile records: only metadata tables have them")
    if block.schema is None:
        raise CorruptFile(f"{what}: the block at byte {block.start:,} has no schema")
    stored = {part.path for part in plan_rows(block.schema, what).parts}
    written = "" if unstored is None else block.instant_time or ""
    needed = schema.names if unstored is None else unstored.needed(schema.names, written) or ()
    columns = [name for name in dict.fromkeys((*needed, OPERATION)) if name in stored]
    if block.kind is BlockKind.PARQUET_DATA:
        rows = _parquet_rows(content, columns, what)
        counts = [rows.num_rows]
    else:
        rows, counts = decode_avro_contents(contents, block.schema, columns, what=[p.file.path for p in run])
    withdrawn = _deleting_operations(rows)
    if OPERATION in rows.column_names and OPERATION not in needed:
        rows = rows.drop_columns([OPERATION])
    if unstored is not None:
        rows = unstored.complete(rows, placed.file.partition, written, schema.names)
    if RECORD_KEY not in rows.column_names:
        raise CorruptFile(f"{what}: the rows of the block at byte {block.start:,} have no record keys")
    table = reconcile(rows, all_nullable(schema))
    column_places = None if unstored is None else unstored.places(written)
    brought = (frozenset(stored) if column_places is None else column_places.current_names(stored)) | set(
        rows.column_names
    )
    deletes = marked_deletes(table, rule) | withdrawn
    none = np.zeros(table.num_rows, dtype=bool)
    # A partial row without the ordering column has no event time.
    always = unordered_deletes(table, deletes, rule) if has_order(rule.stored, rows.column_names) else none
    log_rows = _log_rows(table, deletes, always, brought if block.is_partial else None, of_deletes=none)
    return replace(log_rows, known=brought - set(META_COLUMNS)), counts


def _deleting_operations(rows: pa.Table) -> Mask:
    """Return which rows of a changelog delete: a meta column says it, which is not among the table's columns."""
    if OPERATION not in rows.column_names or not pt.is_string(rows.schema.field(OPERATION).type):
        return np.zeros(rows.num_rows, dtype=bool)
    return to_mask(pc.is_in(rows.column(OPERATION), pa.array(DELETING_OPERATIONS)))


def _parquet_rows(content: bytes | memoryview, columns: list[str], what: str) -> pa.Table:
    try:
        return decode_parquet_content(content, columns, what=what)
    except InvalidInputError as error:
        # The header names them; the file is written to match.
        raise CorruptFile(f"damaged Parquet block: {error}") from None


def _log_rows(
    table: pa.Table, deletes: Mask, always: Mask, names: frozenset[str] | None, *, of_deletes: Mask
) -> LogRows:
    return LogRows(table, deletes, always, np.zeros(table.num_rows, np.int64), (names,), of_deletes=of_deletes)


def _delete_rows(records: DeleteRecords, schema: pa.Schema, rule: MergeRule) -> LogRows:
    count = len(records)
    order = rule.stored.fields if has_order(rule.stored, schema.names) else ()
    ordering = {
        tuple(name.split(".")): records.ordering(_type_at(schema, name), number) for number, name in enumerate(order)
    }
    made = {RECORD_KEY: records.keys, PARTITION_PATH: records.partitions}
    columns = [
        made[f.name].cast(f.type) if f.name in made else _with_ordering(f, ordering, count)
        for f in all_nullable(schema)
    ]
    # A delete without an ordering value, or with int 0, which `DeleteRecords.ordering` makes null, deletes any stored row
    # (docs/format.md, Delete blocks).
    always = np.ones(count, dtype=bool)
    for values in () if rule.blocks_win else ordering.values():
        always &= values.is_null().to_numpy(zero_copy_only=False)
    table = pa.table(columns, schema=all_nullable(schema))
    every = np.ones(count, dtype=bool)
    return _log_rows(table, every, always, None, of_deletes=every)


def _type_at(schema: pa.Schema, name: str) -> pa.DataType:
    field = field_at(schema, name)
    if field is None:
        raise UnsupportedFeature(f"rows are ordered by {name!r}, which is no column of the table")
    return field.type


def _with_ordering(field: pa.Field, ordering: Mapping[tuple[str, ...], pa.Array], count: int) -> pa.Array:
    """Return a column of deletes: the ordering values in it, at any depth, and nulls."""
    inside = {path[1:]: values for path, values in ordering.items() if path[0] == field.name}
    if not inside:
        return pa.nulls(count, field.type)
    if () in inside:
        return inside[()].cast(field.type)
    children = [_with_ordering(child, inside, count) for child in struct_fields(field.type)]
    # Without a look at which of them may be null: a delete has nothing but its key and its order.
    return pa.StructArray.from_buffers(field.type, count, [None], children=children)


def _joined_rows(parts: Sequence[LogRows], schema: pa.Schema) -> LogRows:
    kinds: dict[frozenset[str] | None, int] = {None: 0}
    numbers = []
    for part in parts:
        number = kinds.setdefault(part.columns[0], len(kinds))
        numbers.append(np.full(part.table.num_rows, number, np.int64))
    empty, none = all_nullable(schema).empty_table(), np.zeros(0, dtype=bool)
    return LogRows(
        pa.concat_tables([part.table for part in parts] or [empty]),
        np.concatenate([part.deletes for part in parts] or [none]),
        np.concatenate([part.always for part in parts] or [none]),
        np.concatenate(numbers or [np.zeros(0, np.int64)]),
        tuple(kinds),
        of_deletes=np.concatenate([part.of_deletes for part in parts if part.of_deletes is not None] or [none]),
        known=frozenset().union(*(part.known for part in parts)),
    )
