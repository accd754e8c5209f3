"""Change files: find which rows of a file group a write changed, and write, list and read them (docs/format.md, Change files).

Changes come from a merge (:func:`changes_of_merge`) or from comparing a slice before and after
(:func:`compare_rows`). A row has changed if its sequence number differs; under rules that let a
late row fill a stored one, also if its values differ.

File group, instant and write token determine the name, and the file is created only if absent: a
repeated attempt adopts the file of an earlier one. The change file is written before the base file
whose stat names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.arrays import from_numpy
from lakefmt._core.config.settings import Settings
from lakefmt._core.config.table_config import CdcMode
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.merge import Merged
from lakefmt._core.filegroups.model import LogFile
from lakefmt._core.filegroups.ordering import to_mask
from lakefmt._core.formats.avro.columnar.codec import encode_rows
from lakefmt._core.formats.log_blocks import MAX_LOG_BYTES, BlockKind, LogBlockReader, WholeBlock
from lakefmt._core.formats.log_data_block import (
    AFTER,
    BEFORE,
    KEY,
    OP,
    TS_MS,
    build_cdc_schema,
    decode_cdc_content,
    encode_cdc_blocks,
)
from lakefmt._core.formats.names import parse_log_file
from lakefmt._core.schema import arrow_to_avro, without_meta_columns
from lakefmt._core.storage.api import ObjectStore, PutOutcome
from lakefmt._core.timeline.markers import create_marker
from lakefmt._core.values import COMMIT_SEQNO, COMMIT_TIME, RECORD_KEY, FileId, InstantTime, PartitionPath, WriteStat
from lakefmt.errors import CorruptFile, ObjectNotFound, SnapshotExpired, StorageError

__all__ = [
    "DELETE",
    "INSERT",
    "UPDATE",
    "ChangedRows",
    "build_cdc_rows",
    "cdc_file_name",
    "cdc_paths",
    "changes_of_merge",
    "compare_rows",
    "images",
    "list_change_files",
    "match_keys",
    "operations",
    "read_change_file",
    "write_change_file",
]

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

INSERT, UPDATE, DELETE = "i", "u", "d"


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The changes; all tables have one schema.

    Attributes:
        deleted: the deleted rows.
        before: the updated rows, before.
        after: the updated rows, after; same order as `before`.
        inserted: the new rows.
    """

    deleted: pa.Table
    before: pa.Table
    after: pa.Table
    inserted: pa.Table

    @property
    def num_rows(self) -> int:
        """The number of changes."""
        return int(self.deleted.num_rows + self.after.num_rows + self.inserted.num_rows)


def changes_of_merge(base: pa.Table, merged: Merged) -> ChangedRows:
    """Return the changes that a merge made.

    Args:
        base: the rows before the merge.
        merged: the result of the merge.

    Example:
        >>> from lakefmt._core.filegroups.merge import Incoming, merge_into_base
        >>> base = pa.table({RECORD_KEY: ["a", "b"], "v": [1, 2]})
        >>> incoming = Incoming(pa.table({RECORD_KEY: ["b", "c"], "v": [9, 3]}), np.zeros(2, dtype=bool))
        >>> found = changes_of_merge(base, merge_into_base(base, incoming))
        >>> found.before["v"].to_pylist(), found.after["v"].to_pylist(), found.inserted["v"].to_pylist()
        ([2], [9], [3])
    """
    moved = merged.replaced - np.searchsorted(merged.removed, merged.replaced)
    return ChangedRows(
        base.take(from_numpy(merged.removed)),
        base.take(from_numpy(merged.replaced)),
        merged.table.take(from_numpy(moved)),
        merged.table.slice(merged.table.num_rows - merged.inserted),
    )


def compare_rows(before: pa.Table, after: pa.Table, *, by_value: bool = False) -> ChangedRows:
    """Return the changes between two states of a file group.

    The n-th row of a duplicate key is compared with the n-th row of the same key.

    Args:
        before: rows with key, commit time and sequence number.
        after: the same columns.
        by_value: also compare values: partial rules may change rows that keep their sequence
            number.

    Example:
        >>> rows = lambda keys, times: pa.table({COMMIT_TIME: times, COMMIT_SEQNO: times, RECORD_KEY: keys})
        >>> found = compare_rows(rows(["a", "b", "c"], ["1", "1", "1"]), rows(["b", "c", "d"], ["1", "2", "2"]))
        >>> [part[RECORD_KEY].to_pylist() for part in (found.deleted, found.after, found.inserted)]
        [['a'], ['c'], ['d']]
    """
    old, new = _key_ids(before.column(RECORD_KEY), after.column(RECORD_KEY))
    match = pc.index_in(new, value_set=old)
    is_stored = to_mask(pc.is_valid(match))
    after_rows = np.flatnonzero(is_stored)
    before_rows = match.drop_null().to_numpy().astype(np.int64)
    removed = np.ones(before.num_rows, dtype=bool)
    removed[before_rows] = False
    changed = np.zeros(len(after_rows), dtype=bool)
    for name in (COMMIT_TIME, COMMIT_SEQNO):
        changed |= _are_unequal(
            before.column(name).take(from_numpy(before_rows)), after.column(name).take(from_numpy(after_rows))
        )
    if by_value:
        same = np.flatnonzero(~changed)
        changed[same] = _rows_differ(
            before.take(from_numpy(before_rows[same])), after.take(from_numpy(after_rows[same]))
        )
    return ChangedRows(
        before.filter(from_numpy(removed)),
        before.take(from_numpy(before_rows[changed])),
        after.take(from_numpy(after_rows[changed])),
        after.filter(from_numpy(~is_stored)),
    )


def match_keys(keys: pa.ChunkedArray, stored: pa.ChunkedArray) -> pa.Array:
    """Return the stored row of each key, null without one; the n-th occurrence of a key gets its n-th stored row.

    Example:
        >>> match_keys(pa.chunked_array([["a", "x", "a"]]), pa.chunked_array([["b", "a", "a"]])).to_pylist()
        [1, None, 2]
    """
    key_ids, stored_ids = _key_ids(keys, stored)
    return pc.index_in(key_ids, value_set=stored_ids)


def _key_ids(old: pa.ChunkedArray, new: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
    """Return ids of the keys; with duplicates, of key and occurrence number."""
    joined = pa.chunked_array([*old.chunks, *new.chunks], old.type).combine_chunks()
    codes: Rows = joined.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    parts = codes[: len(old)], codes[len(old) :]
    if all(np.bincount(part).max(initial=0) <= 1 for part in parts):
        return from_numpy(parts[0]), from_numpy(parts[1])
    numbers = [_occurrences(part) for part in parts]
    width = int(max(part.max(initial=0) for part in numbers)) + 1
    first, second = (from_numpy(part * width + number) for part, number in zip(parts, numbers, strict=True))
    return first, second


def _occurrences(codes: Rows) -> Rows:
    """Return for each code the number of equal codes before it.

    Example:
        >>> _occurrences(np.array([7, 8, 7, 7])).tolist()
        [0, 0, 1, 2]
    """
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.append(True, ordered[1:] != ordered[:-1])[: len(codes)]
    row_numbers = np.arange(len(codes))
    counted = np.empty(len(codes), np.int64)
    counted[order] = row_numbers - np.maximum.accumulate(np.where(starts, row_numbers, 0))
    return counted


def _are_unequal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> Mask:
    return ~to_mask(pc.fill_null(pc.equal(left, right), False))


def _rows_differ(left: pa.Table, right: pa.Table) -> Mask:
    """Compare rows by their Avro encoding, which covers nested values and NaN."""
    if not left.num_rows:
        return np.zeros(0, dtype=bool)
    schema = without_meta_columns(left.schema)
    avro_schema = arrow_to_avro(schema, "row")
    packed = []
    for table in (left, right):
        data, offsets = encode_rows(table.select(schema.names), avro_schema)
        packed.append(
            pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), data])
        )
    return to_mask(pc.not_equal(*packed))


# -------------------------------------------------------------------------------------------------------- change files


def build_cdc_rows(changes: ChangedRows, mode: CdcMode, instant: str) -> pa.Table:
    """Return changes as a change file stores them: deletes, then updates, then inserts.

    Args:
        changes: in the table's columns, with meta columns.
        mode: the supplemental logging mode.
        instant: requested time of the write.

    Example:
        >>> rows = pa.table({RECORD_KEY: ["a"], "v": [1]})
        >>> changes = ChangedRows(rows, rows[:0], rows[:0], rows[:0])
        >>> build_cdc_rows(changes, CdcMode.DATA_BEFORE, "20260101000000000").to_pylist()
        [{'op': 'd', 'record_key': 'a', 'before': {'v': 1}}]
    """
    deleted, before, after, inserted = changes.deleted, changes.before, changes.after, changes.inserted
    columns = {OP: operations(changes)}
    if mode is CdcMode.DATA_BEFORE_AFTER:
        columns[TS_MS] = pa.repeat(pa.scalar(instant, pa.string()), changes.num_rows)
    else:
        keys = [part.column(RECORD_KEY) for part in (deleted, after, inserted)]
        columns[KEY] = pa.chunked_array([chunk for key in keys for chunk in key.chunks], pa.string())
    image_type = pa.struct(list(without_meta_columns(deleted.schema)))
    if mode is not CdcMode.OP_KEY_ONLY:
        columns[BEFORE] = images([deleted, before, inserted.num_rows], image_type)
    if mode is CdcMode.DATA_BEFORE_AFTER:
        columns[AFTER] = images([deleted.num_rows, after, inserted], image_type)
    return pa.table(columns)


def operations(changes: ChangedRows) -> pa.ChunkedArray:
    """Return the ``op`` value of each change: deletes, updates, inserts."""
    counts = ((DELETE, changes.deleted), (UPDATE, changes.after), (INSERT, changes.inserted))
    return pa.chunked_array([pa.repeat(pa.scalar(op), part.num_rows) for op, part in counts], pa.string())


def images(parts: list[pa.Table | int], image_type: pa.DataType) -> pa.ChunkedArray:
    """Return rows as one struct column; a number stands for that many nulls.

    Args:
        parts: tables with the columns of `image_type`, or numbers of nulls.
        image_type: the struct type.

    Example:
        >>> images([1, pa.table({"v": [1]})], pa.struct({"v": pa.int64()})).to_pylist()
        [None, {'v': 1}]
    """
    chunks: list[pa.Array] = []
    for part in parts:
        if isinstance(part, int):
            chunks.append(pa.nulls(part, image_type))
            continue
        names = [image_type.field(number).name for number in range(image_type.num_fields)]
        batches = part.select(names).combine_chunks().to_batches()
        chunks += [pa.StructArray.from_arrays(batch.columns, fields=list(image_type)) for batch in batches]
    return pa.chunked_array(chunks, image_type)


def cdc_file_name(file_id: str, instant: str, token: str) -> str:
    """Return the name of the change file of an instant in a file group.

    Example:
        >>> cdc_file_name("f-0", "20260101000000000", "1-0-0")
        '.f-0_20260101000000000.log.1_1-0-0.cdc'
    """
    return f".{file_id}_{instant}.log.1_{token}.cdc"


def cdc_paths(stat: WriteStat) -> tuple[str, ...]:
    """Return the change files in a write stat, relative to the table.

    Example:
        >>> cdc_paths(WriteStat("f-0", "p", "p/a.parquet", extra={"cdcStats": {"p/.a.cdc": 1}}))
        ('p/.a.cdc',)
    """
    sizes = stat.extra.get("cdcStats")
    return tuple(map(str, sizes)) if isinstance(sizes, Mapping) else ()


def write_change_file(
    store: ObjectStore,
    path: str,
    changes: ChangedRows,
    *,
    mode: CdcMode,
    instant: InstantTime,
    table_schema: str,
    settings: Settings,
) -> int:
    """Write a change file, or adopt the one of an earlier attempt; return its size in bytes.

    Args:
        store: the table.
        path: relative to the table.
        changes: rows with meta columns, in the table's columns.
        mode: the supplemental logging mode.
        instant: requested time of the write.
        table_schema: Avro JSON without meta columns.
        settings: durability.

    Raises:
        CorruptFile: the file exists and another write made it.
        StorageError: the store failed, or does not confirm the file.
    """
    create_marker(store, instant, path, "CREATE")
    rows, schema = build_cdc_rows(changes, mode, instant), build_cdc_schema(table_schema, mode)
    durable = settings.text("lakefmt.durability") == "fsync"
    with store.create(path, durable=durable) as sink:
        for block in encode_cdc_blocks(rows, instant, schema):
            sink.file.write(block)
        outcome, size = sink.put_if_absent(), sink.size
    if outcome is PutOutcome.DONE:
        return size
    info = store.info(path)
    if info is None:
        raise StorageError(f"the store does not say whether {path} was written", transient=True)
    _check_own_changes(store, path, instant, rows.num_rows)
    return info.size


def _check_own_changes(store: ObjectStore, path: str, instant: InstantTime, expected: int) -> None:
    """Raise if an existing file with our name does not contain our changes."""
    num_changes = 0
    for whole in _read_change_blocks(store, path):
        if whole.block.instant_time != instant:
            raise CorruptFile(f"{path} exists and was not written by this write")
        num_changes += decode_cdc_content(whole.content, whole.block.schema or "", what=path).num_rows
    if num_changes != expected:
        raise CorruptFile(
            f"{path} exists with {num_changes} changes and this write makes {expected}: it was not written by it"
        )


def read_change_file(store: ObjectStore, path: str) -> list[pa.Table]:
    """Return the changes of a file, block by block.

    Raises:
        SnapshotExpired: the file no longer exists.
        CorruptFile: the file is damaged or not a change file.
    """
    try:
        whole = _read_change_blocks(store, path)
    except ObjectNotFound:
        raise SnapshotExpired(f"{path} is gone: a clean removed it") from None
    return [decode_cdc_content(each.content, each.block.schema or "", what=path) for each in whole]


def _read_change_blocks(store: ObjectStore, path: str) -> list[WholeBlock]:
    reader = LogBlockReader(path)
    reader.feed(store.read(path, MAX_LOG_BYTES))
    blocks = []
    for each in reader.finish():
        # Lost changes cannot be restored: unlike in logs, damaged bytes are an error.
        if not isinstance(each, WholeBlock) or each.block.kind is not BlockKind.CDC_DATA:
            raise CorruptFile(f"{path} holds something that is no block of changes")
        blocks.append(each)
    return blocks


def list_change_files(store: ObjectStore, partitions: Iterable[PartitionPath]) -> list[LogFile]:
    """Return the change files of partitions."""
    files = []
    for partition in partitions:
        for item in store.list(partition, recursive=False):
            name = item.name.rpartition("/")[2]
            parsed = parse_log_file(name)
            if parsed is not None and parsed.is_cdc:
                file_id, instant = FileId(parsed.file_id), InstantTime(parsed.instant)
                files.append(LogFile(partition, name, file_id, instant, parsed.version, item.size))
    return files
