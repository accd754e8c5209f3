"""Base files as an index reads them: footers kept, key columns by the row groups that matter (effects).

A footer is read once and kept, parsed, by name and size: its range and its filter's text answer most look-ups, and
a key column is then read without asking for the footer again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefmt._core.data_classes import replace
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.reader import BaseFileReader, Kept, KnownFooter, open_base_file, reading
from lakefmt._core.filegroups.table_client import TableClient, TableState
from lakefmt._core.formats.bloom_filter import BloomFilter
from lakefmt._core.formats.parquet.base_file import BaseFileFooter
from lakefmt._core.formats.parquet.duplicate_columns import parquet_schema
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.values import RECORD_KEY
from lakefmt.errors import CorruptFile

__all__ = ["KeyFiles", "key_files"]

#: Bytes of footers that are kept. Files by Hudi's defaults carry filters of 430 kB, so this is some hundred of them.
_KEPT_BYTES: Final = 128 << 20
#: Bytes of key columns that are kept. Base files of merge-on-read tables stay while commit after commit looks into them;
#: copy-on-write replaces the very files that were looked into, and decodes their keys once.
_KEPT_KEY_BYTES: Final = 64 << 20
#: The keys of local files up to this size are read with their footers: to open a file takes twice as long as its few keys.
_SMALL_BYTES: Final = 64 << 10
#: What a parsed footer takes beside its bytes, which Arrow holds twice, and the texts of its entries.
_OVERHEAD_BYTES: Final = 16 << 10
#: Threads that ask a store which is far away: they mostly wait.
_THREADS_FAR: Final = 16
#: Most threads that ask a local disk. They decode: measured on two cores, four take a quarter longer than two.
_THREADS_NEAR: Final = 8
#: Up to this number of keys are compared with every row group's bounds, more only as a whole.
_MOST_COMPARED: Final = 1 << 16
#: With its type, which Arrow would infer slowly (lakefmt._core.keys.generate).
_TRUE: Final = pa.scalar(True, pa.bool_())


class KeyFiles:
    """Reads footers and keys of one table's base files; any number of threads may ask.

    Args:
        store: the table's store.
        kept_bytes: bytes of footers that are kept.
        kept_key_bytes: bytes of whole key columns that are kept.

    Attributes:
        threads: how many threads it pays to ask with at once.
        kept: what is kept of files.
    """

    def __init__(self, store: ObjectStore, kept_bytes: int = _KEPT_BYTES, kept_key_bytes: int = 0) -> None:
        self._filesystem, self._prefix = store.arrow_filesystem()
        self._near = isinstance(self._filesystem, pafs.LocalFileSystem)
        self.threads = min(_THREADS_NEAR, os.cpu_count() or 1) if self._near else _THREADS_FAR
        self._known: Kept[KnownFooter] = Kept(kept_bytes)
        self._keys: Kept[pa.ChunkedArray] = Kept(kept_key_bytes)
        self.kept: tuple[Kept[Any], ...] = (self._known, self._keys)

    def footer(self, file: BaseFile) -> BaseFileFooter:
        """Return a file's footer.

        Raises:
            SnapshotExpired: the file is gone.
            CorruptFile: it is no Parquet file, or its footer is damaged.
        """
        return self._look(file).footer

    def bloom_filter(self, file: BaseFile) -> BloomFilter | None:
        """Return a file's key filter, decoded anew; None when it has none.

        Raises:
            CorruptFile: it is damaged.
        """
        return self.footer(file).bloom_filter()

    def keys(self, file: BaseFile) -> pa.ChunkedArray:
        """Return a file's record keys, in file order.

        Raises:
            SnapshotExpired: the file is gone.
            CorruptFile: it is damaged, or has no keys.
        """
        footer = self._look(file)
        return self._read(file, footer.metadata, range(footer.metadata.num_row_groups))

    def keys_with_positions(
        self, file: BaseFile, keys_to_find: pa.StringArray
    ) -> tuple[pa.ChunkedArray, npt.NDArray[np.int64]] | None:
        """Return the keys of the row groups that may hold some of `keys_to_find`, and the row of the file that each key is from.

        None when no group may.

        Raises:
            SnapshotExpired: the file is gone.
            CorruptFile: it is damaged, or has no keys.
        """
        metadata = self._look(file).metadata
        with reading(file.path):
            groups = _groups_for(metadata, _key_column(metadata, file), keys_to_find)
            counts = np.array([metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)], np.int64)
        if not groups:
            return None
        keys = self._read(file, metadata, groups)
        lengths, starts = counts[groups], (np.cumsum(counts) - counts)[groups]
        if int(lengths.sum()) != len(keys):
            raise CorruptFile(f"{file.path}: {len(keys):,} keys where the footer says {int(lengths.sum()):,}")
        return keys, np.arange(len(keys)) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)

    def known(self, file: BaseFile) -> KnownFooter | None:
        """Return a file's footer if it is kept, and its keys: a rewrite of the file need not read them again."""
        known_footer = self._known.get(file)
        if known_footer is None:
            return None
        keys = self._keys.take(file)  # the file is replaced
        whole = keys is not None and len(keys) == known_footer.footer.num_rows
        return replace(known_footer, keys=keys) if whole else known_footer

    def _look(self, file: BaseFile) -> KnownFooter:
        kept_footer = self._known.get(file)
        if kept_footer is None:
            with open_base_file(self._filesystem, self._prefix, file) as opened:
                footer = opened.footer()
                kept_footer = KnownFooter(opened.parquet.metadata, footer)
                if self.is_small(file):
                    self._keep_keys_of(file, opened.parquet)
            texts = sum(map(len, footer.entries.values()))
            self._known.keep(file, kept_footer, 2 * kept_footer.metadata.serialized_size + texts + _OVERHEAD_BYTES)
        return kept_footer

    def is_small(self, file: BaseFile) -> bool:
        """Tell whether a file is so small that its keys are read with its footer."""
        return self._near and bool(self._keys.most) and file.size <= _SMALL_BYTES

    def _keep_keys_of(self, file: BaseFile, parquet: pq.ParquetFile) -> None:
        """Keep the keys of a small file that is open; damage is named by the look-up that asks for its keys."""
        with suppress(CorruptFile, pa.ArrowException, OSError):
            metadata = parquet.metadata
            _key_column(metadata, file)
            keys = _as_text(parquet.read(columns=[RECORD_KEY], use_threads=False).column(0), file)
            if len(keys) == metadata.num_rows:
                self._keys.keep(file, keys, keys.nbytes)

    def _read(self, file: BaseFile, metadata: pq.FileMetaData, groups: Sequence[int]) -> pa.ChunkedArray:
        whole = len(groups) == metadata.num_row_groups
        cached_keys = self._keys.get(file) if whole else None
        if cached_keys is not None:
            return cached_keys
        _key_column(metadata, file)
        with open_base_file(self._filesystem, self._prefix, file, metadata) as opened:
            # Files are what threads share; there is one column here.
            column = opened.parquet.read_row_groups(list(groups), columns=[RECORD_KEY], use_threads=False).column(0)
            keys = _as_text(column, file)
        if whole:
            self._keys.keep(file, keys, keys.nbytes)
        return keys

    def keep_keys(self, kept_key_bytes: int) -> None:
        """Keep this number of bytes of key columns from now on."""
        self._keys.most = kept_key_bytes


def _as_text(keys: pa.ChunkedArray, file: BaseFile) -> pa.ChunkedArray:
    data_type = keys.type
    if pa.types.is_string(data_type):
        return keys
    data_type = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    if not (pa.types.is_string(data_type) or pa.types.is_large_string(data_type) or pa.types.is_binary(data_type)):
        raise CorruptFile(f"{file.path}: the column {RECORD_KEY} is of type {keys.type}, not text")
    return keys.cast(pa.string())


def _key_column(metadata: pq.FileMetaData, file: BaseFile) -> int:
    """Return the number of the key column among the leaves."""
    schema = parquet_schema(metadata)
    for number in range(metadata.num_columns):
        if schema.column(number).path == RECORD_KEY:
            return number
    raise CorruptFile(f"{file.path} has no column {RECORD_KEY}")


def _groups_for(metadata: pq.FileMetaData, column: int, keys: pa.StringArray) -> list[int]:
    """Return the row groups that may hold some of `keys`, by their statistics.

    Parquet bounds text by its UTF-8 bytes, which is how Arrow compares binary; a cut-off bound still is one.
    """
    texts = keys.cast(pa.binary())
    ends = pc.min_max(texts)
    groups = []
    for number in range(metadata.num_row_groups):
        statistics = metadata.row_group(number).column(column).statistics
        bounds = _bounds(statistics) if statistics is not None and statistics.has_min_max else None
        if bounds is None or _may_be_within(texts, ends, *bounds):
            groups.append(number)
    return groups


def _bounds(statistics: pq.Statistics) -> tuple[pa.BinaryScalar, pa.BinaryScalar] | None:
    low, high = statistics.min_raw, statistics.max_raw
    # Older releases of Arrow show an end that was too long to be stored as empty: it is no upper bound.
    if not isinstance(low, bytes) or not isinstance(high, bytes) or not high:
        return None
    return pa.scalar(low, pa.binary()), pa.scalar(high, pa.binary())


def _may_be_within(texts: pa.BinaryArray, ends: pa.StructScalar, first: pa.BinaryScalar, last: pa.BinaryScalar) -> bool:
    """Return whether a text may lie between `first` and `last`; `ends` are the smallest and the largest text."""
    if not (_is_true(pc.less_equal(ends["min"], last)) and _is_true(pc.greater_equal(ends["max"], first))):
        return False
    if len(texts) > _MOST_COMPARED:
        return True
    return _is_true(pc.any(pc.and_(pc.greater_equal(texts, first), pc.less_equal(texts, last))))


def _is_true(answer: pa.BooleanScalar) -> bool:
    return bool(answer.equals(_TRUE))


_known_tables: WeakKeyDictionary[BaseFileReader, KeyFiles] = WeakKeyDictionary()
_guard = Lock()


class MadeKeys:
    """Reads keys of files that hold none: they are made from the columns of each row.

    Args:
        reader: gives rows their keys.
        files: reads footers.

    Attributes:
        threads: how many threads it pays to ask with at once.
    """

    def __init__(self, reader: BaseFileReader, files: KeyFiles) -> None:
        self._reader = reader
        self.threads = files.threads
        self.footer = files.footer
        self.bloom_filter = files.bloom_filter
        self.known = files.known

    def keys(self, file: BaseFile) -> pa.ChunkedArray:
        """Return a file's record keys, in file order.

        Raises:
            SnapshotExpired: the file is gone.
            CorruptFile: it is damaged.
            InvalidKey: it lacks a key column, or a row has no key.
        """
        return self._reader.keys(file)


def key_files(client: TableClient, state: TableState | None = None) -> KeyFiles | MadeKeys:
    """Return the key files of an open table: one for all its look-ups, so that footers are read once.

    Args:
        client: the table.
        state: the table as it is now; None: its files hold their keys.
    """
    files = _kept_files(client)
    if state is not None:
        files.keep_keys(_KEPT_KEY_BYTES)
    if state is None or state.config.populate_meta_fields:
        return files
    return MadeKeys(client.at(state).row_reader(), files)


def _kept_files(client: TableClient) -> KeyFiles:
    with _guard:
        if client.reader not in _known_tables:
            _known_tables[client.reader] = made = KeyFiles(client.store)
            client.reader.kept += made.kept  # whatever lists the table drops what is gone
        return _known_tables[client.reader]
