"""One base file from rows that are whole already: its row groups, its key filter, its footers, its name (effects).

What every road that writes base files has in common; which rows go into the file is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

import pyarrow as pa

from lakefmt.config.settings import Settings
from lakefmt.errors import InvalidInputError, StateError, StorageError
from lakefmt.formats.bloom.bloom_filter import DYNAMIC, BloomFilter
from lakefmt.formats.parquet.base_file import BaseFileWriter, KeySummary, key_footers, key_range
from lakefmt.storage.api import ObjectStore, PutOutcome
from lakefmt.values import FILE_NAME, RECORD_KEY

__all__ = ["grown_filter", "named_rows", "new_filter", "repeated", "rows_per_row_group", "write_base_file"]

#: Bytes of rows that make up a row group, before it is encoded: who writes or reads one holds all of it.
_ROW_GROUP_BYTES = 32 << 20

_MIN_FILTER_KEYS = 1000
#: A filter has room for one key in so many more.
_ROOM = 8
#: A filter with more room than so many times that of a fresh one is not kept: every look-up would read its bits.
_MOST_ROOM = 2
_CONSTANT_ROWS = 8192


def write_base_file(
    store: ObjectStore,
    path: str,
    rows: pa.Table,
    avro_schema: str,
    settings: Settings,
    *,
    bloom: BloomFilter | None = None,
    footers: Mapping[str, str] | None = None,
    keyed: bool = True,
) -> int:
    """Write a base file; return its bytes. Nothing is visible before it is whole.

    Args:
        store: the table.
        path: the file's name, relative to the table.
        rows: its rows with their meta columns, in the columns of `avro_schema`.
        avro_schema: the schema for the footer, meta columns included, as Avro JSON.
        settings: codec, filter and durability.
        bloom: a filter that has all the keys; None: one is made.
        footers: further footer entries.
        keyed: the rows hold their keys; False: the footers say nothing of them (spec 4.5).

    Raises:
        StateError: another file has that name.
        StorageError: the store failed, or does not say whether the file is there.
    """
    keys = rows.column(RECORD_KEY)
    if not keyed or not settings.flag("hoodie.parquet.bloom.filter.enabled"):
        bloom = None
    elif bloom is None:
        bloom = new_filter(settings, len(keys))
        bloom.add(keys)
    low, high = key_range(keys) if keyed else (None, None)
    entries = {**key_footers(KeySummary(low, high, bloom), avro_schema), **(footers or {})}
    with ExitStack() as stack:
        durable = settings.text("lakefmt.durability") == "fsync"
        sink = stack.enter_context(store.create(path, durable=durable))
        codec = settings.text("hoodie.parquet.compression.codec") or "zstd"
        level = settings.integer("lakefmt.parquet.compression.level")
        writer = BaseFileWriter(sink.file, rows.schema, codec, level)
        stack.callback(writer.discard)
        if rows.num_rows:
            writer.write(rows, rows_per_row_group(rows))
        writer.close(entries)
        size = sink.size
        outcome = sink.put_if_absent()
    if outcome is PutOutcome.UNKNOWN:
        found = store.info(path)
        if found is None or found.size != size:
            raise StorageError(f"the store does not say whether {path} was written", transient=True)
    elif outcome is PutOutcome.REFUSED:
        raise StateError(f"{path} exists already: somebody else is writing it; nothing was replaced")
    return size


def rows_per_row_group(rows: pa.Table) -> int:
    """Return how many of some rows make a row group.

    Example:
        >>> rows_per_row_group(pa.table({"n": range(1000)}))
        1000
    """
    # The bytes of whole buffers are known at once, those of the rows themselves are counted chunk by chunk.
    if rows.get_total_buffer_size() <= _ROW_GROUP_BYTES:
        return max(1, int(rows.num_rows))
    return max(1, int(rows.num_rows * _ROW_GROUP_BYTES / max(1, rows.nbytes)))


def named_rows(rows: pa.Table, file_name: str) -> pa.Table:
    """Return rows that say they are in the file `file_name`; every other column, meta columns too, stays.

    Example:
        >>> named_rows(pa.table({FILE_NAME: ["old", None]}), "new").column(0).to_pylist()
        ['new', 'new']
    """
    at = rows.schema.get_field_index(FILE_NAME)
    return rows.set_column(at, rows.schema.field(at), repeated(file_name, rows.num_rows))


def repeated(text: str, count: int) -> pa.ChunkedArray:
    """Return a column of one text; its chunks share their bytes, a file name's column would outweigh the data's.

    Example:
        >>> repeated("a", 3).to_pylist()
        ['a', 'a', 'a']
    """
    chunk = pa.repeat(pa.scalar(text), min(count, _CONSTANT_ROWS))
    whole, rest = divmod(count, _CONSTANT_ROWS)
    return pa.chunked_array([*([chunk] * whole if count >= _CONSTANT_ROWS else []), chunk.slice(0, rest)], pa.string())


def new_filter(settings: Settings, num_keys: int) -> BloomFilter:
    """Return an empty key filter for a file of `num_keys` keys.

    Unless its size is set it has room for an eighth more: the next upserts then add their few new keys to it, and do not
    hash all the others again. That takes an eighth more bits, one byte per key, and as often fewer false answers.
    """
    planned = settings.integer("hoodie.index.bloom.num_entries") or _planned(num_keys)
    most = max(planned, settings.integer("hoodie.bloom.index.filter.dynamic.max.entries"))
    return BloomFilter.sized(planned, settings.number("hoodie.index.bloom.fpp"), most)


def grown_filter(
    old: BloomFilter | None,
    old_rows: int,
    num_keys: int,
    new_keys: pa.Array | pa.ChunkedArray,
    settings: Settings,
) -> BloomFilter | None:
    """Return the filter that a file had with keys added, None when a fresh one is better.

    While no key goes, it is byte for byte what all keys would make in a filter of that size. Bits of keys that went stay
    (a filter may only err towards "present") and count as keys, so that they do not fill it unseen.

    Args:
        old: it is changed: do not hand in one that others hold.
        old_rows: how many rows the old file has: a filter that counts fewer keys cannot be that file's.
        num_keys: how many keys the new file has.
        new_keys: those that the old file does not have.
        settings: a filter of another size or strength than they ask for is not kept.
    """
    if old is None or old.type_code != DYNAMIC or old.num_keys is None or old.num_keys < old_rows:
        return None
    if old.num_keys + len(new_keys) > old.capacity or not _is_wanted_size(old, num_keys, settings):
        return None
    if len(new_keys):
        old.add(new_keys)
    return old


def _is_wanted_size(old: BloomFilter, num_keys: int, settings: Settings) -> bool:
    """Tell whether a decoded filter is as large as the settings say, or, where they leave it open, not far larger."""
    planned, per_row = settings.integer("hoodie.index.bloom.num_entries"), old.capacity // old.rows
    if planned:
        if per_row != planned:
            return False
    elif old.rows > 1 or per_row > _MOST_ROOM * _planned(num_keys):
        return False
    try:
        fresh = BloomFilter.sized(per_row, settings.number("hoodie.index.bloom.fpp"))
    except InvalidInputError:  # above 2^31 bits
        return False
    return (old.k, old.m) == (fresh.k, fresh.m)


def _planned(num_keys: int) -> int:
    return max(_MIN_FILTER_KEYS, num_keys + num_keys // _ROOM)
