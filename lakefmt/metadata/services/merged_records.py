"""The records of a file slice of the metadata table, with its logs merged onto its base file.

Records are merged by columns: of most keys the newest entry is taken as it is. Entries are decoded only where a key has
several and its partition has a rule of its own, and where a file has another schema (docs/format.md, Metadata table).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakefmt.errors import CorruptFile, UnsupportedFeature
from lakefmt.formats.hfile.reader import HFileReader
from lakefmt.formats.log.blocks import BlockKind, scan_blocks
from lakefmt.formats.log.delete_block import decode_delete_content
from lakefmt.metadata.layout import PartitionKind, kind_of_partition
from lakefmt.metadata.merge import combine_records
from lakefmt.metadata.record_schema import RecordFormat, same_layout
from lakefmt.metadata.records import MetadataRecord, decode_record, encode_record

__all__ = ["Entries", "base_entries", "log_entries", "merge_entries"]

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
    """

    keys: pa.Array
    values: pa.Array | None
    schema: str
    what: str


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


def log_entries(data: bytes, what: str, counts: Callable[[str], bool]) -> list[Entries]:
    """Return the entries of a log file, block by block.

    Parameters:
        data: the whole file.
        what: how it is named in errors.
        counts: tells whether the blocks of an instant count.

    Raises:
        CorruptFile: a block's content is damaged.
        UnsupportedFeature: a block of a kind that the metadata table does not have.
    """
    found: list[Entries] = []
    for block in scan_blocks(lambda at, size: data[at : at + size], len(data), what):
        if block.kind is BlockKind.CORRUPT or not counts(block.instant_time or ""):
            continue
        content = data[block.content_start : block.content_start + block.content_size]
        if block.kind is BlockKind.HFILE_DATA:
            found.append(_hfile_entries(content, block.schema, what))
        elif block.kind is BlockKind.DELETE:
            keys = decode_delete_content(content, what=what).keys
            found.append(Entries(keys.cast(pa.binary()), None, "", what))
        else:
            raise UnsupportedFeature(f"{what}: a block of kind {block.kind.name} in a log of the metadata table")
    return found


def merge_entries(partition: str, entries: Iterable[Entries], form: RecordFormat) -> tuple[pa.Array, pa.Array]:
    """Return the live records of a file slice, by their keys in any order, in one schema.

    Parameters:
        partition: the metadata table's partition.
        entries: of the base file, then of the logs, oldest first.
        form: the schema that is wanted.

    Returns:
        Keys and encoded records, arrays of bytes.
    """
    parts = list(entries)
    keys = pa.concat_arrays([part.keys for part in parts] or [pa.array([], pa.binary())])
    counts = [len(part.keys) for part in parts]
    deletes = np.repeat(np.array([part.values is None for part in parts], bool), counts)
    codes = keys.dictionary_encode().indices.to_numpy()
    last_delete = np.full(int(codes.max(initial=-1)) + 1, -1)
    np.maximum.at(last_delete, codes[deletes], np.flatnonzero(deletes))
    alive = np.flatnonzero(~deletes & (np.arange(len(codes)) > last_delete[codes]))
    values = _values(parts, form)
    newest = np.full(len(last_delete), -1)
    np.maximum.at(newest, codes[alive], alive)
    rows = np.sort(newest[newest >= 0])
    if kind_of_partition(partition) not in _COMBINED:
        return keys.take(pa.array(rows)), values.take(pa.array(rows))
    return _combined(keys, values, codes, alive, rows, form)


def _values(parts: list[Entries], form: RecordFormat) -> pa.Array:
    """Return the values of all entries in one schema; those of deletes are empty."""
    arrays = [
        pa.array([b""], pa.binary()).take(pa.array(np.zeros(len(part.keys), np.int64)))
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
    codes: np.ndarray[tuple[int], np.dtype[np.int64]],
    alive: np.ndarray[tuple[int], np.dtype[np.int64]],
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
    form: RecordFormat,
) -> tuple[pa.Array, pa.Array]:
    """Return the records of keys with several entries put together by their partition's rule."""
    several = np.flatnonzero(np.bincount(codes[alive], minlength=int(codes.max(initial=-1)) + 1) > 1)
    singles = rows[~np.isin(codes[rows], several)]
    found = alive[np.isin(codes[alive], several)]
    folded: dict[int, MetadataRecord] = {}
    places: dict[int, int] = {}
    for row, code, value in zip(found, codes[found], values.take(pa.array(found)).to_pylist(), strict=True):
        record = decode_record(value, form.schema)
        folded[code] = combine_records(folded[code], record) if code in folded else record
        places[code] = int(row)
    merged = pa.array([encode_record(record, form.schema_version) for record in folded.values()], pa.binary())
    both = np.concatenate([singles, np.array(list(places.values()), np.int64)])
    return keys.take(pa.array(both)), pa.concat_arrays([values.take(pa.array(singles)), merged])
