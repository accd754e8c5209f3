"""The records of a file slice of the metadata table, with its logs merged onto its base file.

Records are merged by columns: of most keys the newest entry is taken as it is. Entries are decoded only where a key has
several and its partition has a rule of its own, and where a file has another schema (docs/format.md, Metadata table).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefmt.arrays import from_numpy
from lakefmt.data_classes import dataclass, replace
from lakefmt.errors import CorruptFile, UnsupportedFeature
from lakefmt.filegroups.logs.reader import PlacedBlock, select_blocks
from lakefmt.filegroups.model import LogFile
from lakefmt.formats.hfile.reader import HFileReader
from lakefmt.formats.log.blocks import BlockKind, scan_blocks
from lakefmt.formats.log.delete_block import decode_delete_content
from lakefmt.metadata.layout import METADATA_DIRECTORY, MetadataFileName, PartitionKind, kind_of_partition
from lakefmt.metadata.merge import combine_log_records, combine_records, is_replacing
from lakefmt.metadata.reading.written_groups import CommittedLog, log_damage, log_problem
from lakefmt.metadata.record_schema import RecordFormat, same_layout
from lakefmt.metadata.records import MetadataRecord, decode_record, encode_record
from lakefmt.values import FileId, InstantTime, PartitionPath

__all__ = ["Entries", "LogRecords", "base_entries", "log_entries", "merge_entries", "merge_log_entries"]

I64 = npt.NDArray[np.int64]
Combine = Callable[[MetadataRecord, MetadataRecord], MetadataRecord]

#: Of their keys the newest entry does not simply replace the older ones.
_COMBINED = frozenset(
    {
        PartitionKind.FILES,
        PartitionKind.COLUMN_STATS,
        PartitionKind.PARTITION_STATS,
        PartitionKind.EXPRESSION_INDEX,
    }
)


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of a base file or of a log block, in their order.

    Attributes:
        keys: an array of bytes.
        values: encoded records, an array of bytes; None: the entries delete their keys.
        schema: of the values.
        what: how the file is named in errors.
        instant: that wrote the block; the empty text for a base file.
    """

    keys: pa.Array
    values: pa.Array | None
    schema: str
    what: str
    instant: str = ""


def base_entries(data: bytes, what: str) -> Entries:
    """Return the entries of a base file.

    Parameters:
        data: the whole file.
        what: how it is named in errors.

    Raises:
        CorruptFile: it is damaged, or names no schema.
    """
    return _hfile_entries(data, None, what)


def _hfile_entries(data: bytes | memoryview, schema: str | None, what: str) -> Entries:
    reader = HFileReader.from_bytes(data, what)
    named = schema or reader.schema
    if named is None:
        raise CorruptFile(f"{what} names no schema of its records")
    table = reader.read()
    return Entries(_one(table.column("key")), _one(table.column("value")), named, what)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([chunk.cast(pa.binary()) for chunk in column.chunks] or [pa.array([], pa.binary())])


def log_entries(
    partition: str,
    logs: Iterable[tuple[MetadataFileName, bytes]],
    layout: int,
    counts: Callable[[str], bool],
    committed: Mapping[str, CommittedLog] = MappingProxyType({}),
) -> list[Entries]:
    """Return the entries of the logs of a file slice, block by block; what was log-compacted comes once.

    Parameters:
        partition: the metadata table's partition.
        logs: the log files, oldest first, each with its bytes.
        layout: the timeline layout, 1 or 2.
        counts: tells whether the blocks of an instant count.
        committed: what commits say of the logs, in layout 1.

    Raises:
        CorruptFile: a block's content is damaged, or a log has lost one.
        UnsupportedFeature: a block of a kind that the metadata table does not have.
    """
    directory = PartitionPath(f"{METADATA_DIRECTORY}/{partition}")
    placed: list[PlacedBlock] = []
    contents: dict[str, bytes] = {}
    for name, data in logs:
        log = LogFile(
            directory, name.name, FileId(name.file_id), InstantTime(name.instant), name.version or 0, len(data)
        )
        contents[log.path] = data
        blocks = [PlacedBlock(log, block) for block in scan_blocks(partial(_slice, data), len(data), log.path)]
        _check_whole(log, blocks, counts, committed.get(name.name), layout)
        placed += blocks
    chosen = select_blocks(placed, layout=layout, is_committed=counts, bound=None)
    return [_block_entries(each, contents[each.file.path]) for each in chosen]


def _check_whole(
    log: LogFile,
    blocks: Sequence[PlacedBlock],
    counts: Callable[[str], bool],
    committed: CommittedLog | None,
    layout: int,
) -> None:
    """Raise for a log that lost something: what is merged or folded without it could not be seen to lack it any more."""
    if layout > 1 and not counts(log.instant):
        return
    whole = [each.block.instant_time for each in blocks if each.block.kind is not BlockKind.CORRUPT]
    is_whole = len(whole) == len(blocks)
    problem = log_problem(log.instant, log.size, whole, committed, layout=layout, is_whole=is_whole)
    if problem is not None:
        raise log_damage(log.path, problem)


def _slice(data: bytes, begin: int, size: int) -> bytes:
    return data[begin : begin + size]


def _block_entries(placed: PlacedBlock, data: bytes) -> Entries:
    block, what = placed.block, placed.file.path
    content = data[block.content_start : block.content_start + block.content_size]
    instant = block.instant_time or ""
    if block.kind is BlockKind.HFILE_DATA:
        return replace(_hfile_entries(content, block.schema, what), instant=instant)
    if block.kind is BlockKind.DELETE:
        return Entries(decode_delete_content(content, what=what).keys.cast(pa.binary()), None, "", what, instant)
    raise UnsupportedFeature(f"{what}: a block of kind {block.kind.name} in a log of the metadata table")


@dataclass(frozen=True, slots=True)
class LogRecords:
    """What the logs of a file slice say together, to be written as one log.

    Attributes:
        begun_anew: keys that were deleted and written again, or whose older records were replaced; what the base file has of
            them is not merged.
        keys: of the records.
        values: the records, encoded.
        deleted: keys that are deleted.
    """

    begun_anew: pa.Array
    keys: pa.Array
    values: pa.Array
    deleted: pa.Array


def merge_log_entries(partition: str, entries: Iterable[Entries], form: RecordFormat) -> LogRecords:
    """Return what the entries of logs say together, without the base file that they lie on.

    Parameters:
        partition: the metadata table's partition.
        entries: oldest first.
        form: the schema that is wanted.
    """
    parts = list(entries)
    keys, codes, last_delete, alive = _numbered(parts)
    last_record = np.full(len(last_delete), -1)
    np.maximum.at(last_record, codes[alive], alive)
    deleted = last_delete[(last_delete >= 0) & (last_record < 0)]
    # Of other partitions a newer record replaces what is below it anyway.
    combined = kind_of_partition(partition) in _COMBINED
    anew = last_delete[(last_delete >= 0) & (last_record >= 0)] if combined else deleted[:0]
    merged_keys, values, replaced = _merged(partition, parts, form, combine_log_records)
    begun_anew = pa.concat_arrays([keys.take(from_numpy(anew)), replaced]).unique()
    return LogRecords(begun_anew, merged_keys, values, keys.take(from_numpy(deleted)))


def _numbered(parts: list[Entries]) -> tuple[pa.Array, I64, I64, I64]:
    """Return the keys of all entries, a number for each different key, its last delete (or -1), and the entries that live."""
    keys = pa.concat_arrays([part.keys for part in parts] or [pa.array([], pa.binary())])
    deletes = np.repeat(np.array([part.values is None for part in parts], bool), [len(part.keys) for part in parts])
    codes = keys.dictionary_encode().indices.to_numpy().astype(np.int64)
    last_delete = np.full(int(codes.max(initial=-1)) + 1, -1)
    np.maximum.at(last_delete, codes[deletes], np.flatnonzero(deletes))
    alive = np.flatnonzero(~deletes & (np.arange(len(codes)) > last_delete[codes]))
    return keys, codes, last_delete, alive


def merge_entries(partition: str, entries: Iterable[Entries], form: RecordFormat) -> tuple[pa.Array, pa.Array]:
    """Return the live records of a file slice, by their keys in any order, in one schema.

    Parameters:
        partition: the metadata table's partition.
        entries: of the base file, then of the logs, oldest first.
        form: the schema that is wanted.

    Returns:
        Keys and encoded records, arrays of bytes.
    """
    keys, values, _ = _merged(partition, list(entries), form, combine_records)
    return keys, values


def _merged(
    partition: str, parts: list[Entries], form: RecordFormat, combine: Combine
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return keys and encoded records, and the keys of which an older record than the newest replaced all before it."""
    keys, codes, last_delete, alive = _numbered(parts)
    values = _values(parts, form)
    newest = np.full(len(last_delete), -1)
    np.maximum.at(newest, codes[alive], alive)
    rows = np.sort(newest[newest >= 0])
    if kind_of_partition(partition) not in _COMBINED:
        return keys.take(from_numpy(rows)), values.take(from_numpy(rows)), keys[:0]
    return _combined(keys, values, codes, alive, rows, form, combine)


def _values(parts: list[Entries], form: RecordFormat) -> pa.Array:
    """Return the values of all entries in one schema; those of deletes are empty."""
    arrays = [
        pa.array([b""], pa.binary()).take(from_numpy(np.zeros(len(part.keys), np.int64)))
        if part.values is None
        else _recoded(part, part.values, form)
        for part in parts
    ]
    return pa.concat_arrays(arrays or [pa.array([], pa.binary())])


def _recoded(part: Entries, values: pa.Array, form: RecordFormat) -> pa.Array:
    if same_layout(part.schema, form.schema_version):
        return values
    # Of the many values of an index few are different.
    encoded = values.dictionary_encode()
    changed = [
        encode_record(decode_record(value, part.schema, part.what), form.schema_version)
        for value in encoded.dictionary.to_pylist()
    ]
    return pa.array(changed, pa.binary()).take(encoded.indices)


def _combined(
    keys: pa.Array,
    values: pa.Array,
    codes: I64,
    alive: I64,
    rows: I64,
    form: RecordFormat,
    combine: Combine,
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the records of keys with several entries put together by their partition's rule."""
    several = np.flatnonzero(np.bincount(codes[alive], minlength=int(codes.max(initial=-1)) + 1) > 1)
    singles = rows[~np.isin(codes[rows], several)]
    repeated = alive[np.isin(codes[alive], several)]
    folded: dict[int, MetadataRecord] = {}
    places: dict[int, int] = {}
    replaced: set[int] = set()
    for row, code, value in zip(repeated, codes[repeated], values.take(from_numpy(repeated)).to_pylist(), strict=True):
        record = decode_record(value, form.schema)
        folded[code] = combine(folded[code], record) if code in folded else record
        places[code] = int(row)
        if is_replacing(record):
            replaced.add(code)
    merged = pa.array([encode_record(record, form.schema_version) for record in folded.values()], pa.binary())
    both = np.concatenate([singles, np.array(list(places.values()), np.int64)])
    hidden = [places[code] for code in replaced if not is_replacing(folded[code])]
    return (
        keys.take(from_numpy(both)),
        pa.concat_arrays([values.take(from_numpy(singles)), merged]),
        keys.take(pa.array(hidden, pa.int64())),
    )
