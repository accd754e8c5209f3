"""How the records of a metadata table are written: as the newest file of its file listing has them (effects on reading only)."""

from __future__ import annotations

from collections.abc import Sequence

from lakefmt.filegroups.table_client import TableClient
from lakefmt.formats.hfile.reader import HFileReader
from lakefmt.formats.log.blocks import MAX_LOG_BYTES, scan_blocks
from lakefmt.metadata.layout import METADATA_DIRECTORY, MetadataFileName, PartitionKind
from lakefmt.metadata.reading.handle_memory import handle_memory
from lakefmt.metadata.reading.metadata_files import MetadataFileCache
from lakefmt.metadata.record_schema import RecordFormat
from lakefmt.storage.api import ObjectStore
from lakefmt.storage.table_directory import TableDirectory
from lakefmt.values import TableVersion

__all__ = ["KnownForms", "known_forms", "load_record_form"]

_DIRECTORY = f"{METADATA_DIRECTORY}/{PartitionKind.FILES.value}"


class KnownForms(dict[str, str]):
    """The schema of the newest file of the file listing, by the name of the file."""


def known_forms(client: TableClient) -> KnownForms:
    """Return the schema of the newest file of the file listing, where a handle that this one knows of wrote it."""
    return handle_memory(client).of(KnownForms)


def load_record_form(
    store: ObjectStore,
    version: TableVersion,
    files: Sequence[MetadataFileName],
    forms: dict[str, str],
    cache: MetadataFileCache | None = None,
    directory: TableDirectory | None = None,
) -> RecordFormat:
    """Return how records are written.

    Parameters:
        store: the data table's store.
        version: the table version.
        files: of the file listing.
        forms: schemas of files that need not be read, by name.
        cache: keeps what is read.
        directory: shows which files are those that were kept.
    """
    for file in sorted(files, key=lambda file: (file.instant, file.version or 0), reverse=True):
        schema = forms.get(file.name) or _schema_of(store, file, cache, directory)
        if schema is not None:
            return RecordFormat.of_schema(version, schema)
    return RecordFormat.of_new_table(version)


def _schema_of(
    store: ObjectStore, file: MetadataFileName, cache: MetadataFileCache | None, directory: TableDirectory | None
) -> str | None:
    """Return the schema that a file names; None for a log without records."""
    path = f"{_DIRECTORY}/{file.name}"
    info = None if directory is None else directory.info(path)
    data = None if cache is None or info is None else cache.bytes_of(path, info.mark)
    if data is None:
        data = store.read(path, MAX_LOG_BYTES)
        if cache is not None:
            cache.keep_bytes(path, data)
    if file.version is None:
        return HFileReader.from_bytes(data, path).schema
    blocks = scan_blocks(lambda offset, size: data[offset : offset + size], len(data), path)
    return next((block.schema for block in blocks if block.schema is not None), None)
