"""Read base files: footers, keys, rows, and the columns that rows have and files lack (effects on reading only).

Footers are cached by partition, name and size (:class:`Kept`). A small file is read at once
(:func:`read_small_file`): a scanner of Arrow for it costs more than its rows.

A table may drop its partition columns from its files
(``hoodie.datasource.write.drop.partition.columns``) or leave the meta columns empty
(``hoodie.populate.meta.fields=false``; docs/format.md, Meta columns). Readers add both from the
path and the key columns; writers remove them. Files from before a change of columns are read by column ids.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefmt._core.config.table_config import TableConfig
from lakefmt._core.data_classes import dataclass
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.formats.bloom_filter import BloomFilter, are_in_text
from lakefmt._core.formats.parquet.base_file import (
    BLOOM_TYPE_KEY,
    BaseFileFooter,
    check_row_counts,
    decode_footer,
    dictionary_column_names,
    dictionary_schema,
)
from lakefmt._core.formats.parquet.duplicate_columns import (
    ChunkNote,
    Pages,
    Span,
    are_within,
    find_duplicate_column,
)
from lakefmt._core.formats.parquet.footers import (
    BLOOM_KEY,
    LARGE_FOOTER,
    LEGACY_BLOOM_KEY,
    ReadBytes,
    ShortFooter,
    in_memory,
    read_short_footer,
)
from lakefmt._core.keys import KeySpec, build_record_keys, key_spec_from_properties, parse_partition_values
from lakefmt._core.schema import avro_to_arrow, reconcile, without_meta_columns
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.messages import is_transient_code
from lakefmt._core.values import META_COLUMNS, RECORD_KEY, PartitionPath
from lakefmt.errors import CorruptFile, InvalidKey, ObjectNotFound, SnapshotExpired, StorageError, UnsupportedFeature

if TYPE_CHECKING:
    from lakefmt._core.schema.column_ids import ColumnIds, ColumnPlaces

__all__ = [
    "SMALL_BYTES",
    "BaseFileReader",
    "FilePart",
    "FileParts",
    "InSchema",
    "Kept",
    "KnownFooter",
    "OpenBaseFile",
    "VirtualColumns",
    "dropped_values",
    "open_base_file",
    "parquet_file",
    "read_small_file",
    "reading",
    "short_footer",
    "stored_schema",
    "virtual_columns_of",
    "with_partition_columns",
]

#: Maximum bytes of cached footers. The key filter of a million keys takes 6 MB of a footer; most footers take a few kilobytes.
_CACHED_FOOTER_BYTES = 64 << 20
#: Bytes of a cached footer besides the strings of its entries, mostly its schema.
_FOOTER_BYTES = 16 << 10
#: In a smaller file decoding the keys twice takes less time than comparing their bytes with those of a column.
_WORTH_COMPARING = 64 << 10


#: A file of more bytes, of more rows, or whose columns are larger once they are decoded, is not small.
SMALL_BYTES: Final = 1 << 20
_SMALL_ROWS, _SMALL_DECODED_BYTES = 1 << 17, 16 << 20


#: The filter of a smaller footer is not worth looking for where the footer goes with the file: Arrow reads it in half the time.
_LARGE_FOR_A_WHILE: Final = 4 * LARGE_FOOTER

T = TypeVar("T")

#: Partition, name and size of a file.
_FileKey = tuple[PartitionPath, str, int]


class Kept(Generic[T]):
    """A bounded LRU cache of values read from immutable files; thread-safe.

    Args:
        most: the maximum total weight.

    Example:
        >>> from lakefmt._core.filegroups.model import parse_files
        >>> from lakefmt._core.storage.api import ObjectInfo
        >>> (file,), _ = parse_files(PartitionPath("p"), [ObjectInfo("p/f-0_1-0-0_20260101000000000.parquet", 9)])
        >>> kept = Kept[str](most=100)
        >>> kept.keep(file, "footer", 10)
        >>> kept.get(file), len(kept)
        ('footer', 1)
        >>> kept.forget_absent([PartitionPath("p")], [])
        >>> kept.get(file), kept.weight
        (None, 0)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.weight = 0
        self._values: OrderedDict[_FileKey, tuple[T, int, PartitionPath]] = OrderedDict()
        self._names_by_partition: dict[PartitionPath, set[_FileKey]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, file: BaseFile) -> T | None:
        """Return the cached value of a file, or None."""
        name = (file.partition, file.name, file.size)
        with self._lock:
            if name not in self._values:
                return None
            self._values.move_to_end(name)
            return self._values[name][0]

    def keep(self, file: BaseFile, value: T, weight: int) -> None:
        """Cache the value of a file if it fits."""
        name = (file.partition, file.name, file.size)
        with self._lock:
            # Another thread may have read the same file. A value larger than the cache would evict all
            # others.
            if name in self._values or weight > self.most:
                return
            self._values[name] = (value, weight, file.partition)
            self._names_by_partition.setdefault(file.partition, set()).add(name)
            self.weight += weight
            while self.weight > self.most:
                self._drop(next(iter(self._values)))

    def forget_absent(self, partitions: Collection[PartitionPath] | None, present: Iterable[BaseFile]) -> None:
        """Drop the values of files that a listing did not return: a clean removed them.

        Args:
            partitions: the listed partitions; None: the whole table.
            present: the files in the listing.
        """
        with self._lock:
            listed = [
                p
                for p in (self._names_by_partition if partitions is None else partitions)
                if p in self._names_by_partition
            ]
            if not listed:
                return
            looked_into = set(listed)
            there = {(file.partition, file.name, file.size) for file in present if file.partition in looked_into}
            for partition in listed:
                for name in self._names_by_partition.get(partition, set()) - there:
                    self._drop(name)

    def take(self, file: BaseFile) -> T | None:
        """Return the cached value of a file, or None, and let go of it."""
        name = (file.partition, file.name, file.size)
        with self._lock:
            if name not in self._values:
                return None
            value = self._values[name][0]
            self._drop(name)
            return value

    def _drop(self, name: _FileKey) -> None:
        _, weight, partition = self._values.pop(name)
        self.weight -= weight
        self._names_by_partition[partition].discard(name)
        if not self._names_by_partition[partition]:
            del self._names_by_partition[partition]


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Translate Arrow's errors while reading the file `path`.

    Raises:
        SnapshotExpired: the file no longer exists.
        CorruptFile: the file is damaged.
        StorageError: the store failed.
    """
    try:
        yield
    except (FileNotFoundError, ObjectNotFound):
        raise SnapshotExpired(f"{path} is gone: a clean removed it after this snapshot was taken; read again") from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, UnicodeDecodeError) as error:
        raise CorruptFile(f"{path} cannot be read: {error}") from error
    except pa.ArrowException as error:
        raise CorruptFile(f"{path} cannot be read: {error}") from error
    except OSError as error:
        # Arrow reports damaged pages and failed decompression as OSError without errno.
        if error.errno is None:
            raise CorruptFile(f"{path} cannot be read: {error}") from error
        raise StorageError(f"{path} cannot be read: {error}", transient=is_transient_code(error.errno)) from error


#: Opens a Parquet file; takes its footer if known.
parquet_file = partial(pq.ParquetFile, pre_buffer=False, page_checksum_verification=True)


def short_footer(source: pa.NativeFile, *, near: bool, least: int = LARGE_FOOTER) -> ShortFooter | None:
    """Return the footer of a file without its key filter; None: Arrow reads it as it is.

    Args:
        source: the file.
        near: a read of a few bytes costs little; else the footer is read as Arrow reads it, in one or two parts.
        least: a footer of fewer bytes in a file that is near is left to Arrow.
    """
    read_at, size = read_bytes(source), source.size()
    return read_short_footer(read_at, size, least) if near else read_short_footer(in_memory(read_at, size), size, 0)


def read_bytes(source: pa.NativeFile) -> ReadBytes:
    """Return what reads bytes of an open file."""
    return lambda offset, count: bytes(source.read_at(count, offset))


class OpenBaseFile:
    """A base file that is open.

    Args:
        source: the file.
        parquet: the same, as Arrow reads it.
        short: its footer without its key filter; None: Arrow has the whole one.
    """

    def __init__(self, source: pa.NativeFile, parquet: pq.ParquetFile, short: ShortFooter | None) -> None:
        self._source, self._short = source, short
        self.parquet = parquet

    def footer(self) -> BaseFileFooter:
        """Return the footer of the file, key filter included.

        Raises:
            CorruptFile: it is damaged.
        """
        left_out = None if self._short is None else self._short.texts(read_bytes(self._source))
        return decode_footer(self.parquet.metadata, self.parquet.schema_arrow, left_out)

    def may_have(self, hashes_of: Callable[[int], npt.NDArray[np.uint32]]) -> npt.NDArray[np.bool_] | None:
        """Return which keys the file may have, by its key filter; None: it does not tell.

        Args:
            hashes_of: returns a number of chained hashes of each key.
        """
        entries = self.parquet.metadata.metadata or {}
        left_out = {} if self._short is None else self._short.texts(read_bytes(self._source))
        texts = (left_out.get(name) or entries.get(name.encode()) for name in (BLOOM_KEY, LEGACY_BLOOM_KEY))
        text = next(filter(None, texts), None)
        kind = entries.get(BLOOM_TYPE_KEY.encode())
        return (
            None
            if text is None
            else are_in_text(text, None if kind is None else kind.decode(errors="replace"), hashes_of)
        )

    def coded(self, columns: Collection[str]) -> pq.ParquetFile:
        """Return the file as Arrow reads it with dictionaries for those of some columns that are stored so."""
        metadata = self.parquet.metadata
        return parquet_file(self._source, metadata=metadata, read_dictionary=dictionary_column_names(metadata, columns))


@contextmanager
def open_base_file(
    filesystem: pafs.FileSystem, prefix: str, file: BaseFile, metadata: pq.FileMetaData | None = None
) -> Iterator[OpenBaseFile]:
    """Open a base file; its key filter is read when it is asked for. Errors inside the block are those of :func:`reading`.

    Args:
        filesystem: where it is.
        prefix: of the table's paths there.
        file: the file.
        metadata: its footer, where it is known.
    """
    with reading(file.path), filesystem.open_input_file(prefix + file.path) as source:
        near = isinstance(filesystem, pafs.LocalFileSystem)
        short = short_footer(source, near=near, least=_LARGE_FOR_A_WHILE) if metadata is None else None
        with parquet_file(source, metadata=metadata if short is None else short.metadata) as parquet:
            yield OpenBaseFile(source, parquet, short)


@dataclass(frozen=True, slots=True)
class KnownFooter:
    """The footer of a base file.

    Attributes:
        metadata: Arrow's form; row counts are checked.
        footer: Hudi's footer entries.
        keys: all record keys of the file, in file order, if already read.
    """

    metadata: pq.FileMetaData
    footer: BaseFileFooter
    keys: pa.ChunkedArray | None = None


def _as_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


@dataclass(frozen=True, slots=True)
class FileParts:
    """The rows of an open base file, part by part.

    Attributes:
        known: the file's footer.
        is_cut: there are several parts.
        parts: the rows, read while they are asked for.
    """

    known: KnownFooter
    is_cut: bool
    parts: Iterator[FilePart]


class FilePart(NamedTuple):
    """Rows of a base file, and its row group with all of them and no others; None where there is no such row group."""

    rows: pa.Table
    group: int | None


class InSchema:
    """The parts of a base file in a schema without dictionaries, one after the other; `group` is that of the last one."""

    def __init__(self, schema: pa.Schema, parts: Iterator[FilePart]) -> None:
        self._schema, self._parts = schema, parts
        self.group: int | None = None

    def __iter__(self) -> Iterator[pa.Table]:
        return self

    def __next__(self) -> pa.Table:
        rows, self.group = next(self._parts)
        return reconcile(rows, dictionary_schema(self._schema, rows.schema))


@dataclass(frozen=True, slots=True)
class _PlannedPart:
    """Row groups that are read together, or one that is read in pieces of `rows` rows."""

    groups: list[int]
    rows: int | None = None


def _planned_parts(metadata: pq.FileMetaData, part_bytes: int) -> list[_PlannedPart]:
    """Return how to read a file in parts of about `part_bytes`, which are its row groups where these are as large; none: as a whole."""
    parts: list[_PlannedPart] = []
    together = part_bytes + 1
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        # Arrow holds a row group's pages while it is read in pieces: of one row it would hold them for nothing.
        cuts = min(max(1, round(group.total_byte_size / part_bytes)), max(1, group.num_rows))
        if cuts > 1:
            parts.append(_PlannedPart([number], -(-group.num_rows // cuts)))
            together = part_bytes + 1
        elif together + group.total_byte_size <= part_bytes:
            parts[-1].groups.append(number)
            together += group.total_byte_size
        else:
            parts.append(_PlannedPart([number]))
            together = group.total_byte_size
    return parts if len(parts) > 1 or any(part.rows for part in parts) else []


def _bytes_at(source: pa.NativeFile, span: Span) -> pa.Buffer:
    source.seek(span.offset)
    return source.read_buffer(span.size)


class BaseFileReader:
    """Reads the base files of one table.

    Args:
        store: the table's store.
        unstored: columns that files lack, or have in another form; rows and keys get them.
    """

    def __init__(self, store: ObjectStore, unstored: VirtualColumns | None = None) -> None:
        self._virtual_columns = unstored
        self._filesystem, self._prefix = store.arrow_filesystem()
        self._footers: Kept[BaseFileFooter] = Kept(_CACHED_FOOTER_BYTES)
        #: The caches of this reader and of readers derived from it.
        self.kept: list[Kept[Any]] = [self._footers]

    def completing(self, unstored: VirtualColumns | None) -> BaseFileReader:
        """Return a reader that adds columns that files lack, with the same footer cache."""
        if unstored is None:
            return self
        reader = copy(self)
        reader._virtual_columns = unstored
        return reader

    @contextmanager
    def _open(self, file: BaseFile, metadata: pq.FileMetaData | None = None) -> Iterator[OpenBaseFile]:
        with open_base_file(self._filesystem, self._prefix, file, metadata) as opened:
            if metadata is None:
                check_row_counts(opened.parquet.metadata)
            yield opened

    def footer(self, file: BaseFile) -> BaseFileFooter:
        """Return a file's footer."""
        footer = self._footers.get(file)
        if footer is None:
            with self._open(file) as opened:
                footer = opened.footer()
            self._footers.keep(file, footer, sum(map(len, footer.entries.values())) + _FOOTER_BYTES)
        return footer

    def bloom_filter(self, file: BaseFile) -> BloomFilter | None:
        """Return a file's bloom filter, or None."""
        return self.footer(file).bloom_filter()

    def rows_and_keys(
        self, file: BaseFile, hashes_of: Callable[[int], npt.NDArray[np.uint32]]
    ) -> tuple[int, npt.NDArray[np.bool_] | None]:
        """Return the number of rows of a file, and which keys it may have; arguments as for :meth:`OpenBaseFile.may_have`."""
        with self._open(file) as opened:
            return int(opened.parquet.metadata.num_rows), opened.may_have(hashes_of)

    def forget_absent(self, partitions: Collection[PartitionPath] | None, present: Sequence[BaseFile]) -> None:
        """Drop the cached footers of files that a listing did not return.

        Args:
            partitions: the listed partitions; None: the whole table.
            present: the files in the listing.
        """
        for cache in self.kept:
            cache.forget_absent(partitions, present)

    def keys(self, file: BaseFile) -> pa.ChunkedArray:
        """Return a file's record keys in file order; reads one column.

        Raises:
            CorruptFile: the file has no key column.
        """
        if self._virtual_columns is not None and self._virtual_columns.makes_keys:
            return self.rows(file, [RECORD_KEY]).column(0)
        with self._open(file) as opened:
            parquet = opened.parquet
            if RECORD_KEY not in parquet.schema_arrow.names:
                raise CorruptFile(f"{file.path} has no column {RECORD_KEY}")
            return parquet.read(columns=[RECORD_KEY]).column(0)

    def rows(self, file: BaseFile, columns: Sequence[str] | None = None, *, use_threads: bool = True) -> pa.Table:
        """Return a file's rows: all columns, or those of the named ones that it has."""
        with self._open(file) as opened:
            return self._read(opened.parquet, file, columns, use_threads=use_threads)

    def row_groups(
        self,
        file: BaseFile,
        columns: Sequence[str] | None,
        choose: Callable[[pq.ParquetFile], Sequence[int]] | None = None,
    ) -> Iterator[pa.Table]:
        """Yield a file's rows, with those of the named columns that it has, row group by row group: all, or the chosen ones."""
        with self._open(file) as opened:
            parquet = opened.parquet
            file_columns, made = self._file_columns(parquet, file, columns), self._virtual_columns
            for number in range(parquet.num_row_groups) if choose is None else choose(parquet):
                rows = parquet.read_row_group(number, columns=file_columns)
                yield rows if made is None else made.complete(rows, file.partition, file.instant, columns)

    def first_rows(self, file: BaseFile, columns: Sequence[str], count: int) -> pa.Table | None:
        """Return at most `count` rows from the beginning of a file, with those of the named columns that it has; None: no rows."""
        with self._open(file) as opened:
            parquet = opened.parquet
            if not parquet.num_row_groups:
                return None
            file_columns, virtual = self._file_columns(parquet, file, columns), self._virtual_columns
            batch = next(parquet.iter_batches(count, [0], columns=file_columns, use_threads=False), None)
            if batch is None or virtual is None:
                return None if batch is None else _as_table(batch)
            return virtual.complete(_as_table(batch), file.partition, file.instant, columns)

    def rows_and_footer(
        self,
        file: BaseFile,
        columns: Sequence[str],
        *,
        use_threads: bool,
        coded: Collection[str] = (),
        known_footer: KnownFooter | None = None,
    ) -> tuple[pa.Table, BaseFileFooter]:
        """Return a file's rows, with those of the named columns that it has, and its footer.

        Opens the file once: reading a footer with a filter costs as much as decoding two columns.

        Args:
            file: the file.
            columns: names.
            use_threads: decode columns in parallel.
            coded: text columns to return as dictionaries if the file stores them so.
            known_footer: the footer, if already read.

        Raises:
            CorruptFile: it is damaged.
        """
        with self.in_parts(
            file, columns, None, use_threads=use_threads, coded=coded, known_footer=known_footer
        ) as parts:
            return next(parts.parts).rows, parts.known.footer

    @contextmanager
    def in_parts(
        self,
        file: BaseFile,
        columns: Sequence[str],
        part_bytes: int | None,
        *,
        use_threads: bool,
        coded: Collection[str] = (),
        known_footer: KnownFooter | None = None,
    ) -> Iterator[FileParts]:
        """Open a file to read its rows part by part; arguments and errors are those of :meth:`rows_and_footer`.

        Args:
            part_bytes: a part has about this number of bytes; None: the file is one part.
        """
        with self._open(file, None if known_footer is None else known_footer.metadata) as opened:
            parquet = opened.coded(coded) if coded else opened.parquet
            plan = [] if part_bytes is None else _planned_parts(parquet.metadata, part_bytes)
            duplicate = self._duplicate_of_keys(file, parquet.metadata) if RECORD_KEY in columns else None
            keys = None if known_footer is None or self._virtual_columns is not None else known_footer.keys
            have = {duplicate} if keys is None else {duplicate, RECORD_KEY}
            names = [name for name in columns if name not in have]
            first = 0

            def completed(part: FilePart) -> FilePart:
                nonlocal first
                rows = part.rows
                if keys is not None:
                    rows = rows.append_column(RECORD_KEY, keys.slice(first, rows.num_rows))
                    first += rows.num_rows
                if duplicate in columns:
                    rows = rows.append_column(duplicate, rows.column(RECORD_KEY))
                return FilePart(rows, part.group)

            # No frame holds a part that its taker has let go, while the next one is read.
            parts = map(completed, self._read_parts(parquet, file, names, plan, use_threads=use_threads))
            if known_footer is None:
                known_footer = KnownFooter(parquet.metadata, opened.footer())
            yield FileParts(known_footer, is_cut=bool(plan), parts=parts)

    def pages(self, file: BaseFile, notes: Mapping[str, ChunkNote]) -> dict[str, Pages]:
        """Return the pages of some columns, as a local file has them.

        Args:
            file: the file.
            notes: what its footer says of them, by their names.

        Raises:
            CorruptFile: the file ends before they do.
        """
        with reading(file.path), self._filesystem.open_input_file(self._prefix + file.path) as source:
            pages = {name: Pages(note, _bytes_at(source, Span(note.begin, note.size))) for name, note in notes.items()}
        if any(len(each.data) != each.note.size for each in pages.values()):
            raise CorruptFile(f"{file.path} ends before the pages that its footer names")
        return pages

    @property
    def is_local(self) -> bool:
        """Whether bytes are read from a local disk, where reading them twice costs less than encoding them."""
        return isinstance(self._filesystem, pafs.LocalFileSystem)

    def _duplicate_of_keys(self, file: BaseFile, metadata: pq.FileMetaData) -> str | None:
        """Return the column of a local file whose bytes are those of its record keys, or None: far away, decoding costs less."""
        if self._virtual_columns is not None or not self.is_local or file.size < _WORTH_COMPARING:
            return None

        if (match := find_duplicate_column(metadata, RECORD_KEY)) is None:
            return None
        name, pairs = match
        with self._filesystem.open_input_file(self._prefix + file.path) as source:
            size = source.size()
            if not are_within([span for pair in pairs for span in pair], size):
                return None
            same = all(
                _bytes_at(source, column_span).equals(_bytes_at(source, key_span)) for column_span, key_span in pairs
            )
        return name if same else None

    def _read_parts(
        self,
        parquet: pq.ParquetFile,
        file: BaseFile,
        columns: Sequence[str],
        plan: Sequence[_PlannedPart],
        *,
        use_threads: bool,
    ) -> Iterator[FilePart]:
        if not plan:
            group = 0 if parquet.num_row_groups == 1 else None
            yield FilePart(self._read(parquet, file, columns, use_threads=use_threads), group)
            return
        file_columns, virtual = self._file_columns(parquet, file, columns), self._virtual_columns

        def completed(rows: pa.Table, group: int | None = None) -> FilePart:
            complete = rows if virtual is None else virtual.complete(rows, file.partition, file.instant, columns)
            return FilePart(complete, group)

        for part in plan:
            if part.rows is None:
                whole = part.groups[0] if len(part.groups) == 1 else None
                yield completed(
                    parquet.read_row_groups(part.groups, columns=file_columns, use_threads=use_threads), whole
                )
            else:
                batches = parquet.iter_batches(part.rows, part.groups, columns=file_columns, use_threads=use_threads)
                yield from map(completed, map(_as_table, batches))

    def _read(
        self, parquet: pq.ParquetFile, file: BaseFile, columns: Sequence[str] | None, *, use_threads: bool
    ) -> pa.Table:
        file_columns = self._file_columns(parquet, file, columns)
        rows = parquet.read(columns=file_columns, use_threads=use_threads)
        virtual = self._virtual_columns
        return rows if virtual is None else virtual.complete(rows, file.partition, file.instant, columns)

    def _file_columns(self, parquet: pq.ParquetFile, file: BaseFile, columns: Sequence[str] | None) -> list[str] | None:
        """Return the columns to read for the named ones; None: all."""
        names, virtual = set(parquet.schema_arrow.names), self._virtual_columns
        needed = columns if virtual is None else virtual.needed(columns, file.instant)
        return None if needed is None else [name for name in needed if name in names]


def read_small_file(store: ObjectStore, file: BaseFile, fields: Sequence[pa.Field]) -> pa.Table | None:
    """Return columns of a base file; None: it is not small, or does not have each of them in its type.

    Args:
        store: the table's.
        file: the file.
        fields: the columns, at least one.

    Raises:
        SnapshotExpired: the file no longer exists.
        CorruptFile: it is damaged.
        StorageError: the store failed.
    """
    if not 0 < file.size <= SMALL_BYTES:
        return None
    filesystem, prefix = store.arrow_filesystem()
    with reading(file.path):
        with filesystem.open_input_file(prefix + file.path) as source:
            size = source.size()  # the commit may name another one
            if size > SMALL_BYTES:
                return None
            data = source.read_buffer(size)
        with parquet_file(pa.BufferReader(data)) as parquet:
            check_row_counts(parquet.metadata)
            if not (_is_small_decoded(parquet.metadata) and _has_columns(parquet.schema_arrow, fields)):
                return None
            names = [field.name for field in fields]
            return parquet.read(columns=names, use_threads=False).select(names)


def _is_small_decoded(metadata: pq.FileMetaData) -> bool:
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    return bool(
        metadata.num_rows <= _SMALL_ROWS and sum(group.total_byte_size for group in groups) <= _SMALL_DECODED_BYTES
    )


def _has_columns(stored: pa.Schema, fields: Sequence[pa.Field]) -> bool:
    """Return whether a file has each of some columns once, in its type."""
    indices = map(stored.get_field_index, (field.name for field in fields))
    return all(
        index >= 0 and stored.field(index).type.equals(field.type) for index, field in zip(indices, fields, strict=True)
    )


def stored_schema(config: TableConfig, schema: pa.Schema) -> pa.Schema:
    """Return the columns that base files have of the table `schema`.

    Example:
        >>> from lakefmt._core.config.table_config import parse_table_config
        >>> dropping = parse_table_config({"hoodie.table.name": "t", "hoodie.table.type": "COPY_ON_WRITE",
        ...     "hoodie.table.version": "6", "hoodie.table.recordkey.fields": "id",
        ...     "hoodie.table.partition.fields": "city",
        ...     "hoodie.datasource.write.drop.partition.columns": "true"})
        >>> stored_schema(dropping, pa.schema([("id", pa.string()), ("city", pa.string())])).names
        ['id']
    """
    if not config.drop_partition_columns:
        return schema
    dropped = {field.name for field in key_spec_from_properties(config.properties).partition_fields}
    return pa.schema([field for field in schema if field.name not in dropped], metadata=schema.metadata)


def with_partition_columns(config: TableConfig, schema: pa.Schema) -> pa.Schema:
    """Return a commit's `schema` with the partition columns that files lack.

    Commits of other engines omit them. The types come from the create schema; without one they are
    text, as in Hudi.

    Args:
        config: of a table that keeps its partition columns only in paths.
        schema: the columns that files have.
    """
    fields = key_spec_from_properties(config.properties).partition_fields
    missing = [field.name for field in fields if field.name not in schema.names]
    if not missing:
        return schema
    made = without_meta_columns(avro_to_arrow(config.create_schema)) if config.create_schema else pa.schema([])
    # In the order of the create schema, as far as it has them.
    for name in sorted(missing, key=made.get_field_index):
        index = made.get_field_index(name)
        if index < 0:
            schema = schema.append(pa.field(name, pa.string()))
        else:
            schema = schema.insert(min(index, len(schema)), made.field(index).with_nullable(True))
    return schema


def dropped_values(spec: KeySpec, partition: str, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """Return the values of the partition columns, parsed from the partition path.

    Raises:
        UnsupportedFeature: the path does not determine the values.
    """
    values = parse_partition_values(spec, partition, schema) or {}
    names = [field.name for field in spec.partition_fields]
    unknown = [name for name in names if name not in values or name not in schema.names]
    if unknown or not names:
        raise UnsupportedFeature(
            f"the table keeps its partition columns only in paths, and {partition!r} does not determine "
            f"{', '.join(unknown) or 'any'}"
        )
    return {name: pa.scalar(values[name], schema.field(name).type) for name in names}


@dataclass(frozen=True, slots=True)
class VirtualColumns:
    """How to add the columns that files lack, and how to remove them.

    Attributes:
        spec: how record keys and partition paths are built.
        schema: the table's columns, without meta columns.
        drops_partitions: partition columns exist only in paths.
        makes_keys: meta columns are empty; record keys are built from columns.
        ids: the columns by id; None: older files have the same names.
    """

    spec: KeySpec
    schema: pa.Schema
    drops_partitions: bool
    makes_keys: bool
    ids: ColumnIds | None = None

    def places(self, instant: str) -> ColumnPlaces | None:
        """Return where the columns lie in the files of an instant; None: names are right."""
        return None if self.ids is None else self.ids.at(instant)

    def needed(self, columns: Sequence[str] | None, instant: str) -> Sequence[str] | None:
        """Return the columns to read for `columns` from a file of `instant`; None means all."""
        if columns is None:
            return None
        keyed = self.makes_keys and RECORD_KEY in columns
        # One column that every file has keeps the row count if all others are virtual.
        extra = [*(_tops(self.spec.record_key_fields) if keyed else ()), RECORD_KEY]
        all_columns = list(dict.fromkeys([*columns, *extra]))
        column_places = self.places(instant)
        return all_columns if column_places is None else column_places.stored_names(all_columns)

    def complete(self, rows: pa.Table, partition: str, instant: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows of a file of `instant` with the missing columns added; `columns` None means all."""
        column_places = self.places(instant)
        if column_places is not None:
            rows = column_places.current(rows)
        if self.drops_partitions:
            for name, value in dropped_values(self.spec, partition, self.schema).items():
                # Some Hudi files have the column with nulls for rows from files without it: the
                # path decides.
                field, index = self.schema.field(name).with_nullable(True), rows.schema.get_field_index(name)
                made = pa.repeat(value, rows.num_rows)
                rows = rows.append_column(field, made) if index < 0 else rows.set_column(index, field, made)
        if self.makes_keys and (columns is None or RECORD_KEY in columns):
            keys = self.record_keys(rows)
            index = rows.schema.get_field_index(RECORD_KEY)
            rows = rows.append_column(RECORD_KEY, keys) if index < 0 else rows.set_column(index, RECORD_KEY, keys)
        if columns is None:
            return rows
        held = set(rows.column_names)
        return rows.select([name for name in columns if name in held])

    def record_keys(self, rows: pa.Table) -> pa.Array:
        """Return the record keys of rows, built from their columns.

        Raises:
            InvalidKey: a column is missing, or a row has no key.
        """
        names = [name for name in _tops(self.spec.record_key_fields) if name in rows.column_names]
        fields = [
            self.schema.field(name).with_nullable(True) if name in self.schema.names else rows.schema.field(name)
            for name in names
        ]
        keys = build_record_keys(self.spec, reconcile(rows.select(names), pa.schema(fields)))
        return keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys

    def stored(self, rows: pa.Table, partition: str, schema: pa.Schema) -> pa.Table:
        """Return complete rows in the columns of a file with `schema`.

        Raises:
            InvalidKey: a partition value differs from the one that its path gives back.
        """
        if self.drops_partitions and rows.num_rows:
            self._check_paths(rows, partition)
        columns = [
            pa.nulls(rows.num_rows, field.type)
            if self.makes_keys and field.name in META_COLUMNS
            else rows.column(field.name)
            for field in schema
        ]
        return pa.table(columns, schema=schema)

    def _check_paths(self, rows: pa.Table, partition: str) -> None:
        for name, value in dropped_values(self.spec, partition, self.schema).items():
            column = rows.column(name)
            same = pc.equal(column, value).fill_null(False) if value.is_valid else pc.is_null(column)
            wrong = column.filter(pc.invert(same))
            if len(wrong):
                raise InvalidKey(
                    f"{len(wrong)} rows of partition {partition!r} have {name}={str(wrong[0])!r}, which would come back as "
                    f"{str(value)!r}: the table keeps its partition columns only in paths; write another value"
                )


def _tops(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name.split(".", 1)[0] for name in names))


def virtual_columns_of(config: TableConfig, schema: pa.Schema, ids: ColumnIds | None = None) -> VirtualColumns | None:
    """Return the virtual columns of a table; None if files have all columns, under their names.

    Args:
        config: the table's properties.
        schema: its columns, without meta columns.
        ids: its columns by id, where it has ids.
    """
    ids = ids if ids is not None and ids.is_needed else None
    if config.stores_every_column and ids is None:
        return None
    spec = key_spec_from_properties(config.properties)
    return VirtualColumns(spec, schema, config.drop_partition_columns, not config.populate_meta_fields, ids)
