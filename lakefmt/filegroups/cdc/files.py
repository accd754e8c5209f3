"""Write, list and read change files (effects; docs/format.md, Change files).

File group, instant and write token determine the name, and the file is created only if absent: a
repeated attempt adopts the file of an earlier one. The change file is written before the base file
whose stat names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from lakefmt.config.settings import Settings
from lakefmt.config.table_config import CdcMode
from lakefmt.errors import CorruptFile, ObjectNotFound, SnapshotExpired, StorageError
from lakefmt.filegroups.cdc.rows import ChangedRows, build_cdc_rows
from lakefmt.filegroups.model import LogFile
from lakefmt.formats.log.blocks import MAX_LOG_BYTES, BlockKind
from lakefmt.formats.log.cdc import build_cdc_schema, decode_cdc_content, encode_cdc_blocks
from lakefmt.formats.log.reader import LogBlockReader, WholeBlock
from lakefmt.formats.names import parse_log_file
from lakefmt.storage.api import ObjectStore, PutOutcome
from lakefmt.timeline.markers import create_marker
from lakefmt.values import FileId, InstantTime, PartitionPath, WriteStat

__all__ = ["cdc_file_name", "cdc_paths", "list_change_files", "read_change_file", "write_change_file"]


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
    _check_own(store, path, instant, rows.num_rows)
    return info.size


def _check_own(store: ObjectStore, path: str, instant: InstantTime, expected: int) -> None:
    """Raise if an existing file with our name does not contain our changes."""
    num_changes = 0
    for whole in _blocks(store, path):
        if whole.block.instant_time != instant:
            raise CorruptFile(f"{path} exists and was not written by this write")
        num_changes += decode_cdc_content(whole.content, whole.block.schema or "", what=path).num_rows
    if num_changes != expected:
        raise CorruptFile(
            f"{path} exists with {num_changes} changes and this write makes {expected}: it was not written by it"
        )


def read_change_file(store: ObjectStore, path: str) -> list[pa.Table]:
    """Yield the changes of a file, block by block.

    Raises:
        SnapshotExpired: the file no longer exists.
        CorruptFile: the file is damaged or not a change file.
    """
    try:
        whole = _blocks(store, path)
    except ObjectNotFound:
        raise SnapshotExpired(f"{path} is gone: a clean removed it") from None
    return [decode_cdc_content(each.content, each.block.schema or "", what=path) for each in whole]


def _blocks(store: ObjectStore, path: str) -> list[WholeBlock]:
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
