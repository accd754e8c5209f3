"""Write one base file: row groups, bloom filter, footers, name (effects).

The rows arrive complete, with their meta columns. Callers decide which rows go into the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack

import pyarrow as pa

from lakefmt._core.config.settings import Settings
from lakefmt._core.formats.bloom_filter import DYNAMIC, BloomFilter, filter_size
from lakefmt._core.formats.parquet.base_file import (
    BaseFileWriter,
    KeySummary,
    key_footers,
)
from lakefmt._core.sorting import FileKeys, row_memory
from lakefmt._core.storage.api import ObjectStore, PutOutcome
from lakefmt._core.values import (
    FILE_NAME,
    RECORD_KEY,
)
from lakefmt.errors import InvalidInputError, StateError, StorageError

__all__ = [
    "NewBaseFile",
    "carried_filter",
    "columns_but_name",
    "filter_bytes",
    "grown_filter",
    "named_rows",
    "new_filter",
    "repeated",
    "row_group_bytes",
    "rows_per_row_group",
    "write_base_file",
]

#: Arrow bytes per row group: a writer or reader holds one row group in memory.
_ROW_GROUP_BYTES = 32 << 20

_MIN_FILTER_KEYS = 128
#: A filter of more keys has half the hashes, which take longer than all else of it, for a fifth more bits.
_FEW_HASHES_ABOVE = 1 << 14
#: Its rate, unless the settings say another one. Every reader of the footer reads its bits; this rate saves a third of them,
#: and one of a million new keys is looked for in vain. (Hudi's own filter stops growing at ``dynamic.max.entries`` keys: in a
#: file of 500,000 it takes one absent key in three for stored.)
_RATE_OF_LARGE = 1e-6
#: A filter for this many keys is no waste in any file.
_ALWAYS_REUSED_KEYS = 2000
#: A new filter has room for 1/8 more keys than the file.
_ROOM = 8
#: A filter larger than this multiple of a new one is not reused: each look-up would read its bits.
_MOST_ROOM = 2
_CONSTANT_ROWS = 8192
#: Keys of a file beyond this wait on the disk.
_HELD_KEY_BYTES = 64 << 20


class NewBaseFile:
    """A base file that is written part by part; nothing of it is there before :meth:`finish`.

    Args:
        stack: what is opened is closed with it, and thrown away where the file was not finished.
        store: the table.
        path: relative to the table.
        schema: the columns, meta columns included.
        avro_schema: the same as Avro JSON, for the footer.
        settings: compression codec, bloom filter, memory and durability.
        keyed: the rows have record keys; False: write no key footers (docs/format.md, Meta columns).
        adopts: a file of the name with the size of this one was written by an earlier attempt, and is taken as it is.
        memory_bytes: what keys and filter may take; None: as the settings say of a write.
    """

    def __init__(
        self,
        stack: ExitStack,
        store: ObjectStore,
        path: str,
        schema: pa.Schema,
        avro_schema: str,
        settings: Settings,
        *,
        keyed: bool = True,
        adopts: bool = False,
        memory_bytes: int | None = None,
    ) -> None:
        self._store, self._path, self._avro_schema, self._settings = store, path, avro_schema, settings
        self._keyed, self._adopts = keyed, adopts
        self._memory_bytes = memory_bytes or row_memory(settings.integer("lakefmt.write.window.bytes"))
        durable = settings.text("lakefmt.durability") == "fsync"
        self._sink = stack.enter_context(store.create(path, durable=durable))
        codec = settings.text("hoodie.parquet.compression.codec") or "zstd"
        level = settings.integer("lakefmt.parquet.compression.level")
        self._writer = BaseFileWriter(self._sink.file, schema, codec, level)
        stack.callback(self._writer.discard)
        self._keys = FileKeys()
        stack.callback(self._keys.close)

    @property
    def num_rows(self) -> int:
        """Rows written so far."""
        return self._writer.num_rows

    @property
    def size(self) -> int:
        """Bytes written so far, with what the key filter will take."""
        return int(self._sink.size) + filter_bytes(self._settings, len(self._keys))

    def append(self, rows: pa.Table) -> None:
        """Write the next rows; their columns are the file's.

        Raises:
            StorageError: the file, or the temporary file of its keys, could not take them.
        """
        if not rows.num_rows:
            return
        if self._keyed:
            self._keys.add(rows.column(RECORD_KEY), copy=True)
            if self._keys.held_bytes > _HELD_KEY_BYTES:
                self._keys.spill()
        self._writer.write(rows, rows_per_row_group(rows))

    def finish(
        self,
        bloom: BloomFilter | None = None,
        footers: Mapping[str, str] | None = None,
        before_put: Callable[[], None] | None = None,
    ) -> int:
        """Give the file its footers and its name; return its size in bytes.

        Args:
            bloom: a filter that contains all keys; None: make one.
            footers: further footer entries.
            before_put: called before the file gets its name; raises when it must not get it.

        Raises:
            StateError: the file exists.
            StorageError: the store failed, or does not say whether the file is there.
        """
        low, high = self._keys.range
        summary = KeySummary(low, high, self._filter(bloom))
        self._writer.close({**key_footers(summary, self._avro_schema), **(footers or {})})
        self._keys.close()
        if before_put is not None:
            before_put()
        outcome, size = self._sink.put_if_absent(), int(self._sink.size)
        if outcome is PutOutcome.DONE:
            return size
        existing = self._store.info(self._path)
        is_same = existing is not None and existing.size == size
        if outcome is PutOutcome.UNKNOWN and not is_same:
            raise StorageError(f"the store does not say whether {self._path} was written", transient=True)
        if outcome is PutOutcome.REFUSED and not (self._adopts and is_same):
            raise StateError(f"{self._path} exists already: somebody else is writing it; nothing was replaced")
        return size

    def _filter(self, bloom: BloomFilter | None) -> BloomFilter | None:
        if not self._keyed or not self._settings.flag("hoodie.parquet.bloom.filter.enabled"):
            return None
        if bloom is None:
            bloom = new_filter(self._settings, len(self._keys))
            self._keys.add_to(bloom, self._memory_bytes)
        return bloom


def write_base_file(
    store: ObjectStore, path: str, rows: pa.Table, avro_schema: str, settings: Settings, *, keyed: bool = True
) -> int:
    """Write a base file of rows that are there, and return its size in bytes; arguments and errors are those of :class:`NewBaseFile`."""
    with ExitStack() as stack:
        file = NewBaseFile(stack, store, path, rows.schema, avro_schema, settings, keyed=keyed)
        file.append(rows)
        return file.finish()


def row_group_bytes() -> int:
    """Return the number of bytes of a row group."""
    return _ROW_GROUP_BYTES


def rows_per_row_group(rows: pa.Table) -> int:
    """Return the number of rows per row group.

    Example:
        >>> rows_per_row_group(pa.table({"n": range(1000)}))
        1000
    """
    # Whole buffers know their size; sliced rows are counted chunk by chunk.
    if rows.get_total_buffer_size() <= _ROW_GROUP_BYTES:
        return max(1, int(rows.num_rows))
    return max(1, int(rows.num_rows * _ROW_GROUP_BYTES / max(1, rows.nbytes)))


def named_rows(rows: pa.Table, file_name: str) -> pa.Table:
    """Return `rows` with `file_name` in ``_hoodie_file_name``; all other columns stay.

    Example:
        >>> named_rows(pa.table({FILE_NAME: ["old", None]}), "new").column(0).to_pylist()
        ['new', 'new']
    """
    index = rows.schema.get_field_index(FILE_NAME)
    return rows.set_column(index, rows.schema.field(index), repeated(file_name, rows.num_rows))


def columns_but_name(schema: pa.Schema) -> list[str]:
    """Return the columns to read of rows that get the name of another file: the old one is as long as the rest of a row.

    Example:
        >>> columns_but_name(pa.schema([(FILE_NAME, pa.string()), ("v", pa.int64())]))
        ['v']
    """
    return [name for name in schema.names if name != FILE_NAME]


def repeated(text: str, count: int) -> pa.ChunkedArray:
    """Return a column that repeats one text; its chunks share one buffer.

    Example:
        >>> repeated("a", 3).to_pylist()
        ['a', 'a', 'a']
    """
    chunk = pa.repeat(pa.scalar(text, pa.string()), min(count, _CONSTANT_ROWS))
    whole, rest = divmod(count, _CONSTANT_ROWS)
    return pa.chunked_array([*([chunk] * whole if count >= _CONSTANT_ROWS else []), chunk.slice(0, rest)], pa.string())


def new_filter(settings: Settings, num_keys: int) -> BloomFilter:
    """Return an empty bloom filter for a file of `num_keys` keys.

    Unless the settings fix the size, the filter has room for 1/8 more keys. So the next upserts can add a few
    keys without hashing all stored ones again. The cost is 1/8 more bits, one byte per key.

    A large filter has a third of the hashes of a small one (docs/format.md, Bloom filter size).
    """
    planned = settings.integer("hoodie.index.bloom.num_entries") or _planned(num_keys)
    most = max(planned, settings.integer("hoodie.bloom.index.filter.dynamic.max.entries"))
    rate, few_hashes = _strength(settings, planned)
    return BloomFilter.sized(planned, rate, most, few_hashes=few_hashes)


def filter_bytes(settings: Settings, num_keys: int) -> int:
    """Return about how many bytes of a file the filter of its keys takes, as text.

    Example:
        >>> from lakefmt._core.config.settings import resolve_settings
        >>> filter_bytes(resolve_settings({}), 1000)
        8087
    """
    if not num_keys or not settings.flag("hoodie.parquet.bloom.filter.enabled"):
        return 0
    planned = settings.integer("hoodie.index.bloom.num_entries") or _planned(num_keys)
    most = max(planned, settings.integer("hoodie.bloom.index.filter.dynamic.max.entries"))
    rows = -(-min(num_keys, most) // planned)
    rate, few_hashes = _strength(settings, planned)
    bits, _ = filter_size(planned, rate, few_hashes=few_hashes)
    return rows * bits // 6  # a character holds six


def grown_filter(
    old: BloomFilter | None,
    old_rows: int,
    num_keys: int,
    new_keys: pa.Array | pa.ChunkedArray,
    settings: Settings,
) -> BloomFilter | None:
    """Return a file's filter with keys added; None if a new filter is better.

    Without deletes the result is byte for byte the filter of all keys at that size. Bits of deleted keys stay
    (a filter may err towards "present") and count as keys, so that they do not fill the filter unnoticed.

    Args:
        old: the filter to extend; it is modified, so pass no shared one.
        old_rows: rows of the old file; a filter that counts fewer keys cannot belong to it.
        num_keys: keys of the new file.
        new_keys: the keys that the old file lacks.
        settings: a filter of another size or false positive rate is not reused.
    """
    carried = carried_filter(old, old_rows, num_keys, len(new_keys), settings)
    if carried is not None and len(new_keys):
        carried.add(new_keys)
    return carried


def carried_filter(
    old: BloomFilter | None, old_rows: int, num_keys: int, num_new: int, settings: Settings
) -> BloomFilter | None:
    """Return a file's filter if `num_new` keys may be added to it, None if a new filter is better (:func:`grown_filter`)."""
    counted = None if old is None or old.type_code != DYNAMIC else old.num_keys
    if old is None or counted is None or counted < old_rows:
        return None
    capacity = old.capacity
    if counted + num_new > capacity or not _is_wanted_size(old, capacity, num_keys, settings):
        return None
    return old


def _is_wanted_size(old: BloomFilter, capacity: int, num_keys: int, settings: Settings) -> bool:
    """Return whether a filter has the size that the settings ask for, or is not much larger than a new one."""
    planned, rows = settings.integer("hoodie.index.bloom.num_entries"), old.rows
    per_row = capacity // rows
    if planned:
        if per_row != planned:
            return False
    elif rows > 1 or per_row > max(_ALWAYS_REUSED_KEYS, _MOST_ROOM * _planned(num_keys)):
        return False
    rate, few_hashes = _strength(settings, per_row)
    try:
        return (old.m, old.k) == filter_size(per_row, rate, few_hashes=few_hashes)
    except InvalidInputError:  # above 2**31 bits
        return False


def _strength(settings: Settings, planned: int) -> tuple[float, bool]:
    """Return the rate of a filter that is planned for this number of keys, and whether it has few hashes."""
    rate = settings.number("hoodie.index.bloom.fpp")
    if settings.integer("hoodie.index.bloom.num_entries"):
        return rate, False
    is_large = planned > _FEW_HASHES_ABOVE
    if is_large and settings.origins["hoodie.index.bloom.fpp"] == "default":
        rate = _RATE_OF_LARGE
    return rate, is_large


def _planned(num_keys: int) -> int:
    return max(_MIN_FILTER_KEYS, num_keys + num_keys // _ROOM)
