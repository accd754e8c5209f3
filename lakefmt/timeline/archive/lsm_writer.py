"""Write the LSM timeline: files, manifests, merges (effects).

A file is valid once ``_version_`` names a manifest with it; before that the next run removes or
replaces it. A crash between manifest and ``_version_`` leaves an unused manifest, whose number the
next one takes. Call under the table lock: two writers would lose each other's files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt.errors import StateError, StorageError
from lakefmt.formats.parquet.base_file import check_row_counts
from lakefmt.storage.api import ObjectStore, ObjectWriter
from lakefmt.timeline.archive._lsm_files import (
    check_group,
    load_manifest,
    manifest_numbers,
    open_archived,
    place_archived,
    read_manifest,
)
from lakefmt.timeline.archive.lsm_timeline import (
    HISTORY_SCHEMA,
    HistoryEntry,
    HistoryFile,
    HistoryMerge,
    encode_manifest,
    entry_batch,
    history_file_name,
    history_footers,
    obsolete_names,
    plan_merge,
)

__all__ = ["HistoryWriter"]

#: A row group ends when it reaches this size: it bounds the memory, and a reader reads it for one
#: body.
_GROUP_BYTES = 8 * 1024 * 1024
_GROUP_ROWS = 1000
#: Bodies do not repeat.
_DICTIONARY = ["action", "version"]
_STATISTICS = ["instantTime", "completionTime", "action", "version"]

_Write = Callable[[pa.RecordBatch], None]


class HistoryWriter:
    """Writes the archive directory of one table.

    Example:
        >>> from lakefmt.storage import MemoryStore
        >>> from lakefmt.timeline.instant import parse_instant_file
        >>> writer = HistoryWriter(MemoryStore(), ".hoodie/timeline/history", durable=False)
        >>> done = parse_instant_file("20260101000000000_20260101000000500.commit", 2)
        >>> writer.append([HistoryEntry(done, b"body")]).name
        '20260101000000000_20260101000000000_0.parquet'
        >>> writer.load()[0]
        1
    """

    def __init__(self, store: ObjectStore, directory: str, *, durable: bool = True) -> None:
        self._store = store
        self._directory = directory
        self._durable = durable

    def load(self) -> tuple[int, list[HistoryFile]]:
        """Return the number of the current manifest, 0 without one, and its files.

        Raises:
            CorruptFile: the manifest is damaged.
            ObjectNotFound: the manifest that ``_version_`` names does not exist.
        """
        return load_manifest(self._store, self._directory)

    def write(self, name: str, entries: Iterable[HistoryEntry]) -> HistoryFile:
        """Write an archive file, which becomes valid with a manifest; replaces a file of the same name.

        Args:
            name: a result of :func:`~lakefmt.timeline.archive.lsm_timeline.history_file_name`.
            entries: the instants by requested time; streamed.

        Raises:
            StorageError: the store failed; the call may be repeated.
        """

        def fill(write: _Write) -> None:
            group: list[HistoryEntry] = []
            size = 0
            for entry in entries:
                group.append(entry)
                size += len(entry.metadata or b"") + len(entry.plan or b"")
                if size >= _GROUP_BYTES or len(group) >= _GROUP_ROWS:
                    write(entry_batch(group))
                    group, size = [], 0
            if group:
                write(entry_batch(group))

        return self._write(name, fill)

    def publish(self, number: int, files: Iterable[HistoryFile]) -> None:
        """Write a manifest with these files and make it current.

        Args:
            number: of the new manifest, one above the current one.
            files: all valid files.

        Raises:
            StorageError: the store failed, and the current manifest is unknown; load again.
        """
        self._store.put(self._path(f"manifest_{number}"), encode_manifest(files), durable=self._durable)
        self._store.put(self._path("_version_"), str(number).encode(), durable=self._durable)

    def append(self, entries: Iterable[HistoryEntry]) -> HistoryFile:
        """Archive instants in a new level 0 file; a repeated call changes nothing.

        Args:
            entries: one or more instants, held in memory: pass a few hundred at a time.

        Raises:
            StorageError: the store failed; the call may be repeated.
            StateError: a file of that range has other instants.
        """
        ordered = sorted(entries, key=lambda entry: (entry.instant.time, entry.instant.action.value))
        number, files = self.load()
        name = history_file_name(ordered[0].instant.time, ordered[-1].instant.time, 0)
        for existing in files:
            if existing.name == name:
                self._check_same(existing, len(ordered))
                return existing
        written = self.write(name, ordered)
        self.publish(number + 1, [*files, written])
        return written

    def merge(self) -> tuple[HistoryMerge, ...]:
        """Run the due merges from level 0 up, and remove files outside of the kept manifests.

        Returns:
            The merges; empty if none was due, and then nothing is removed.

        Raises:
            StorageError: the store failed; the call may be repeated.
            CorruptFile: a file of the archive is damaged.
            StateError: a valid file has the name of a merge result.
        """
        done: list[HistoryMerge] = []
        number, files = self.load()
        while merge := plan_merge(files, len(done)):
            if any(file.name == merge.target for file in files):
                raise StateError(f"{self._path(merge.target)} counts already and would be written over")
            written = self._write(merge.target, partial(self._copy, merge))
            files = [file for file in files if file not in merge.sources] + [written]
            number += 1
            self.publish(number, files)
            done.append(merge)
        if done:
            self._remove_obsolete(len(done))
        return tuple(done)

    # -------------------------------------------------------------------------------------------------------- inside

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"

    def _check_same(self, existing: HistoryFile, count: int) -> None:
        # The caller deletes the instants afterwards: one that is missing in the file would be lost.
        with open_archived(self._store, self._path(existing.name)) as source, pq.ParquetFile(source) as table:
            if table.metadata.num_rows != count:
                raise StateError(
                    f"{self._path(existing.name)} holds {table.metadata.num_rows} instants, and not {count}"
                )

    def _copy(self, merge: HistoryMerge, write: _Write) -> None:
        for file in merge.sources:
            with open_archived(self._store, self._path(file.name)) as source, pq.ParquetFile(source) as table:
                check_row_counts(table.metadata)
                for number in range(table.num_row_groups):
                    check_group(table, number, self._path(file.name))
                    rows = table.read_row_group(number, columns=HISTORY_SCHEMA.names)
                    for batch in rows.cast(HISTORY_SCHEMA).to_batches():
                        write(batch)

    def _remove_obsolete(self, merged_levels: int) -> None:
        names = [item.name.rpartition("/")[2] for item in self._store.list(self._directory, recursive=False)]
        numbers = manifest_numbers(names)
        manifests = {number: read_manifest(self._store, self._directory, number) for number in numbers}
        self._store.delete([self._path(name) for name in obsolete_names(names, manifests, merged_levels)])

    def _write(self, name: str, fill: Callable[[_Write], None]) -> HistoryFile:
        path = self._path(name)
        # An interrupted run left this unused file.
        self._store.delete([path])
        with self._store.create(path, durable=self._durable) as sink:
            with _parquet_writer(sink) as writer:
                fill(lambda batch: writer.write_batch(batch, row_group_size=batch.num_rows))
                writer.add_key_value_metadata(history_footers())
                writer.close()
            size = place_archived(self._store, sink, path)
        return HistoryFile(name, size)


@contextmanager
def _parquet_writer(sink: ObjectWriter) -> Iterator[pq.ParquetWriter]:
    writer = pq.ParquetWriter(
        sink.file,
        HISTORY_SCHEMA,
        version="1.0",
        compression="gzip",
        use_dictionary=_DICTIONARY,
        write_statistics=_STATISTICS,
        store_schema=False,
    )
    try:
        yield writer
    except OSError as error:
        raise StorageError(f"writing the archive failed: {error}") from error
    finally:
        if writer.is_open:
            # The rest goes to an unread temporary object.
            with suppress(OSError, ValueError, pa.ArrowException):
                writer.close()
