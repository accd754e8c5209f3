"""Reading base files: footers, keys, rows (effects). Footers are immutable bytes and are cached by name and size."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefmt.errors import CorruptFile, ObjectNotFound, SnapshotExpired, StorageError
from lakefmt.filegroups.kept import Kept
from lakefmt.filegroups.model import BaseFile
from lakefmt.filegroups.virtual_columns import VirtualColumns
from lakefmt.formats.bloom.bloom_filter import BloomFilter
from lakefmt.formats.parquet.base_file import BaseFileFooter, check_row_counts, decode_footer
from lakefmt.formats.parquet.dictionary_columns import dictionary_column_names
from lakefmt.formats.parquet.duplicate_columns import Span, find_duplicate_column
from lakefmt.storage.api import ObjectStore
from lakefmt.storage.os_errors import is_transient_code
from lakefmt.values import RECORD_KEY, PartitionPath

__all__ = ["BaseFileReader", "KnownFooter", "parquet_file", "reading"]

_CACHED_FOOTERS = 2048


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn what Arrow raises while reading the file `path` into typed errors.

    Raises:
        SnapshotExpired: the file is gone.
        CorruptFile: it is not what it should be.
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
        # Arrow reports damaged pages and failed decompression as OSError without an error number.
        if error.errno is None:
            raise CorruptFile(f"{path} cannot be read: {error}") from error
        raise StorageError(f"{path} cannot be read: {error}", transient=is_transient_code(error.errno)) from error


#: Opens a base file that Arrow has open; takes its footer when that is known.
parquet_file = partial(pq.ParquetFile, pre_buffer=False, page_checksum_verification=True)


@dataclass(frozen=True, slots=True)
class KnownFooter:
    """A base file's footer that has been read.

    Attributes:
        metadata: as Arrow has it, its numbers of rows checked.
        footer: the same as Hudi has it.
    """

    metadata: pq.FileMetaData
    footer: BaseFileFooter


def _bytes_at(source: pa.NativeFile, span: Span) -> pa.Buffer:
    source.seek(span.offset)
    return source.read_buffer(span.size)


class BaseFileReader:
    """Reads the base files of one table.

    Args:
        store: the table's store.
        unstored: what rows have and files do not; rows and keys get it back.
    """

    def __init__(self, store: ObjectStore, unstored: VirtualColumns | None = None) -> None:
        self._virtual_columns = unstored
        self._filesystem, self._prefix = store.arrow_filesystem()
        self._footers: Kept[tuple[BaseFileFooter, BloomFilter | None]] = Kept(_CACHED_FOOTERS)
        #: What this reader, and whoever reads the same files, keeps of them.
        self.kept: list[Kept[Any]] = [self._footers]

    def completing(self, unstored: VirtualColumns | None) -> BaseFileReader:
        """Return a reader that gives rows what files do not hold, and shares the footers that are known."""
        if unstored is None:
            return self
        reader = copy(self)
        reader._virtual_columns = unstored
        return reader

    @contextmanager
    def _open(
        self, file: BaseFile, coded: Collection[str] = (), metadata: pq.FileMetaData | None = None
    ) -> Iterator[pq.ParquetFile]:
        with reading(file.path), self._filesystem.open_input_file(self._prefix + file.path) as source:
            if metadata is None:
                metadata = parquet_file(source).metadata
                check_row_counts(metadata)
            names = dictionary_column_names(metadata, coded) if coded else []
            with parquet_file(source, metadata=metadata, read_dictionary=names) as parquet:
                yield parquet

    def footer(self, file: BaseFile) -> BaseFileFooter:
        """Return a file's footer."""
        return self._cached(file)[0]

    def bloom_filter(self, file: BaseFile) -> BloomFilter | None:
        """Return a file's key filter; None when it has none. Do not change it: it is shared."""
        return self._cached(file)[1]

    def _cached(self, file: BaseFile) -> tuple[BaseFileFooter, BloomFilter | None]:
        known = self._footers.get(file)
        if known is None:
            with self._open(file) as parquet:
                footer = decode_footer(parquet.metadata)
            known = (footer, footer.bloom_filter())
            self._footers.keep(file, known, 1)
        return known

    def forget_absent(self, partitions: Collection[PartitionPath] | None, present: Sequence[BaseFile]) -> None:
        """Drop what is kept of files that a listing did not show: a handle would hold the footers of all that was cleaned.

        Args:
            partitions: what was listed; None: the whole table.
            present: the files that are there.
        """
        for kept in self.kept:
            kept.forget_absent(partitions, present)

    def keys(self, file: BaseFile) -> pa.ChunkedArray:
        """Return a file's record keys, in file order: one column is read.

        Raises:
            CorruptFile: the file has no key column.
        """
        if self._virtual_columns is not None and self._virtual_columns.makes_keys:
            return self.rows(file, [RECORD_KEY]).column(0)
        with self._open(file) as parquet:
            if RECORD_KEY not in parquet.schema_arrow.names:
                raise CorruptFile(f"{file.path} has no column {RECORD_KEY}")
            return parquet.read(columns=[RECORD_KEY]).column(0)

    def rows(self, file: BaseFile, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a file's rows, all columns or those named that it has."""
        with self._open(file) as parquet:
            return self._read(parquet, file, columns, use_threads=True)

    def rows_and_footer(
        self,
        file: BaseFile,
        columns: Sequence[str],
        *,
        use_threads: bool,
        coded: Collection[str] = (),
        known: KnownFooter | None = None,
    ) -> tuple[pa.Table, BaseFileFooter]:
        """Return a file's rows, those of the named columns that it has, and its footer.

        The file is opened once: to read a footer with a filter takes as long as to decode two of its columns.

        Args:
            file: the file.
            columns: names.
            use_threads: decode columns side by side.
            coded: columns of text that may come as dictionaries, if that is how the file stores them.
            known: its footer, where that has been read.

        Raises:
            CorruptFile: it is damaged.
        """
        with self._open(file, coded, None if known is None else known.metadata) as parquet:
            twin = self._twin(file, parquet.metadata) if RECORD_KEY in columns else None
            found = self._read(parquet, file, [name for name in columns if name != twin], use_threads=use_threads)
            if twin in columns:
                field = parquet.schema_arrow.field(twin)
                found = found.append_column(field, found.column(RECORD_KEY))
            return found, decode_footer(parquet.metadata) if known is None else known.footer

    def _twin(self, file: BaseFile, metadata: pq.FileMetaData) -> str | None:
        """Return the column whose bytes in the file are those of the record keys, None when there is none.

        Asked of local files only: elsewhere to read bytes twice takes longer than to decode them.
        """
        if self._virtual_columns is not None or not isinstance(self._filesystem, pafs.LocalFileSystem):
            return None
        found = find_duplicate_column(metadata, RECORD_KEY)
        if found is None:
            return None
        name, pairs = found
        with self._filesystem.open_input_file(self._prefix + file.path) as source:
            size = source.size()
            if not all(span.is_within(size) for pair in pairs for span in pair):
                return None
            same = all(_bytes_at(source, mine).equals(_bytes_at(source, theirs)) for mine, theirs in pairs)
        return name if same else None

    def _read(
        self, parquet: pq.ParquetFile, file: BaseFile, columns: Sequence[str] | None, *, use_threads: bool
    ) -> pa.Table:
        names = parquet.schema_arrow.names
        needed = columns if self._virtual_columns is None else self._virtual_columns.needed(columns)
        wanted = None if needed is None else [name for name in needed if name in names]
        found = parquet.read(columns=wanted, use_threads=use_threads)
        return (
            found if self._virtual_columns is None else self._virtual_columns.complete(found, file.partition, columns)
        )
