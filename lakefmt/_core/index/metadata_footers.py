"""Key ranges and bloom filters of base files, read from the metadata table in place of the files' footers.

The column statistics of the record key have the range and the rows of each file, and ``bloom_filters`` has the text of its
filter (docs/format.md, Metadata table). A look-up then opens only the files that may hold a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.formats.bloom_filter import BloomFilter
from lakefmt._core.formats.parquet.base_file import BLOOM_TYPE_KEY, MAX_KEY, MIN_KEY, BaseFileFooter
from lakefmt._core.formats.parquet.footers import BLOOM_KEY
from lakefmt._core.index.api import KeyReader, SelectiveKeyReader
from lakefmt._core.metadata.index_readers import read_stats
from lakefmt._core.metadata.layout import PartitionKind, bloom_filter_key
from lakefmt._core.metadata.listing import reading_newest
from lakefmt._core.metadata.reader import MetadataTable, newest_records
from lakefmt._core.metadata.records import decode_record
from lakefmt._core.values import RECORD_KEY
from lakefmt.errors import CorruptFile

__all__ = ["FOOTER_PARTITIONS", "MetadataFooters", "metadata_footers"]


_STATS_PARTITION = PartitionKind.COLUMN_STATS.value


_FILTERS_PARTITION = PartitionKind.BLOOM_FILTERS.value


#: Partitions of the metadata table that stand in for footers.
FOOTER_PARTITIONS = (_STATS_PARTITION, _FILTERS_PARTITION)


_NO_SCHEMA = pa.schema([])


_ROWS_ENTRY = "rows"


class MetadataFooters:
    """A reader of keys whose footers come from the metadata table, as far as that knows the files.

    Args:
        reader: reads keys, and footers that the metadata table does not know.
        footers: by the path of a file.

    Attributes:
        threads: how many threads it pays to ask with at once.
    """

    def __init__(self, reader: SelectiveKeyReader, footers: Mapping[str, BaseFileFooter]) -> None:
        self._reader = reader
        self._footers = footers
        self.threads = reader.threads

    def footer(self, file: BaseFile) -> BaseFileFooter:
        """Return rows, key range and filter text of a file."""
        return self._footers.get(file.path) or self._reader.footer(file)

    def bloom_filter(self, file: BaseFile) -> BloomFilter | None:
        """Return a file's key filter, None when it has none."""
        return self.footer(file).bloom_filter()

    def keys(self, file: BaseFile) -> pa.ChunkedArray:
        """Return a file's record keys, in file order."""
        return self._reader.keys(file)

    def keys_with_positions(
        self, file: BaseFile, keys_to_find: pa.StringArray
    ) -> tuple[pa.ChunkedArray, npt.NDArray[np.int64]] | None:
        """Return the keys of the parts of a file that may hold some of `keys_to_find`, and the row of each; None: no part does."""
        return self._reader.keys_with_positions(file, keys_to_find)


def metadata_footers(
    open_table: Callable[[], MetadataTable], keys: pa.StringArray, slices: Sequence[FileSlice], reader: KeyReader
) -> KeyReader:
    """Return a reader that knows the footers of base files from the metadata table; `reader` where that cannot be.

    Args:
        open_table: opens the metadata table.
        keys: the keys that are looked up: filters of files beyond them are not read.
        slices: the file slices whose base files are looked into.
        reader: reads the files.

    Raises:
        CorruptFile: the metadata table is damaged.
    """
    bases = [file_slice.base for file_slice in slices if file_slice.base is not None]
    if not bases or not isinstance(reader, SelectiveKeyReader):
        return reader
    return reading_newest(lambda: MetadataFooters(reader, _footers_of_files(open_table(), keys, bases)))


def _footers_of_files(
    table: MetadataTable, keys: pa.StringArray, bases: Sequence[BaseFile]
) -> dict[str, BaseFileFooter]:
    entries = _key_ranges(table, bases)
    ends = pc.min_max(keys.cast(pa.binary()))
    near = [file for file in bases if file.path in entries and _range_meets(entries[file.path], ends)]
    for path, texts in _filter_texts(table, near).items():
        entries[path] |= texts
    return {path: BaseFileFooter(entry.pop(_ROWS_ENTRY), _NO_SCHEMA, entry) for path, entry in entries.items()}


def _key_ranges(table: MetadataTable, bases: Sequence[BaseFile]) -> dict[str, dict[str, Any]]:
    """Return rows and key range of each file that has statistics, as entries of a footer."""
    stats = read_stats(
        table, PartitionKind.COLUMN_STATS, RECORD_KEY, pa.string(), dict.fromkeys(file.partition for file in bases)
    )
    columns = [stats.column(name).to_pylist() for name in ("name", "min", "max", "value_count")]  # files, not rows
    rows = dict[str, dict[str, Any]]()
    twice = set[str]()
    for name, low, high, count in zip(*columns, strict=True):
        if name in rows:
            twice.add(name)  # in two partitions: the statistics do not say which is which
        elif count is not None and (count == 0 or (low is not None and high is not None)):
            rows[name] = {_ROWS_ENTRY: count} | ({} if not count else {MIN_KEY: low, MAX_KEY: high})
    return {file.path: dict(rows[file.name]) for file in bases if file.name in rows and file.name not in twice}


def _range_meets(entry: Mapping[str, object], ends: pa.StructScalar) -> bool:
    """Return whether the range of a file meets that of the keys; a file that it misses is not asked for its filter."""
    if MIN_KEY not in entry or not ends["min"].is_valid:
        return False
    low, high = bytes(ends["min"].as_buffer()), bytes(ends["max"].as_buffer())
    return bool(str(entry[MIN_KEY]).encode() <= high and str(entry[MAX_KEY]).encode() >= low)


def _filter_texts(table: MetadataTable, files: Sequence[BaseFile]) -> dict[str, dict[str, str]]:
    """Return the text of each file's filter, as entries of a footer; files without one are left out."""
    paths = {bloom_filter_key(file.partition, file.name): file.path for file in files}
    newest, schemas = newest_records(
        table.lookup(_FILTERS_PARTITION, pa.array([key.encode() for key in paths], pa.binary()))
    )
    entries = dict[str, dict[str, str]]()
    columns = [newest.column(name).to_pylist() for name in ("key", "value", "schema")]  # files, not rows
    for key, value, number in zip(*columns, strict=True):
        record = decode_record(value, schemas[number], "a record of bloom_filters").bloom_filter
        if record is None:
            raise CorruptFile("a record of the metadata table's bloom_filters has no filter")
        if not record.is_deleted:
            encoded = record.content.decode("ascii", "replace")  # what is no Base64 is found out when it is asked
            entries[paths[key.decode()]] = {BLOOM_KEY: encoded, BLOOM_TYPE_KEY: record.type_code}
    return entries
