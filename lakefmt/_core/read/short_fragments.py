"""Arrow dataset fragments of local files, with footers that lack the key filters (effects: reads).

An Arrow dataset reads the whole footer of each file and holds it as long as it lives: 6 MB for a file of 400,000 rows, whose filter
has 2.6 MB. A dataset that is made from a ``_metadata`` file takes the footers from there instead of from the files. That file is
written to memory only.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.reader import reading, short_footer
from lakefmt._core.formats.parquet.base_file import check_row_counts
from lakefmt._core.formats.parquet.duplicate_columns import parquet_schema
from lakefmt._core.formats.parquet.footers import LARGE_FOOTER
from lakefmt._core.storage.api import ObjectStore
from lakefmt._core.storage.arrow_filesystem import arrow_view, track_arrow_use

__all__ = ["short_fragments"]

#: Of fewer files Arrow may hold the footers.
_SEVERAL_FILES = 4
_ALL_FOOTERS = "_metadata"
_ARROW_SCHEMA = b"ARROW:schema"


def short_fragments(
    store: ObjectStore, files: Sequence[BaseFile], layout: ds.ParquetFileFormat
) -> dict[BaseFile, ds.ParquetFileFragment]:
    """Return fragments of those files that have a large key filter, without it; their row counts are checked.

    Args:
        store: the table's.
        files: of other files none is returned.
        layout: how they are read.

    Raises:
        SnapshotExpired: a file no longer exists.
        CorruptFile: a footer contradicts itself.
    """
    filesystem, prefix = store.arrow_filesystem()
    large = [file for file in files if file.size > LARGE_FOOTER]
    if len(large) < _SEVERAL_FILES or not isinstance(filesystem, pafs.LocalFileSystem):
        return {}
    alike: list[tuple[pq.FileMetaData, dict[str, BaseFile]]] = []
    for file in large:
        with reading(file.path):
            with filesystem.open_input_file(prefix + file.path) as source:
                short = short_footer(source, near=True)
            if short is None or not short.metadata.num_row_groups:
                continue
            check_row_counts(short.metadata)
        short.metadata.set_file_path(file.path)
        for metadata, named in alike:
            if _same_columns(metadata, short.metadata):
                metadata.append_row_groups(short.metadata)
                named[file.path] = file
                break
        else:
            alike.append((short.metadata, {file.path: file}))
    found: dict[BaseFile, ds.ParquetFileFragment] = {}
    for metadata, named in alike:
        fragments = _fragments_of(store, filesystem, prefix, metadata, layout)
        found |= {named[each.path]: each for each in fragments if each.path in named}
    return found


def _same_columns(metadata: pq.FileMetaData, other: pq.FileMetaData) -> bool:
    declared = [(each.metadata or {}).get(_ARROW_SCHEMA) for each in (metadata, other)]
    return declared[0] == declared[1] and bool(parquet_schema(metadata).equals(parquet_schema(other)))


def _fragments_of(
    store: ObjectStore,
    filesystem: pafs.LocalFileSystem,
    prefix: str,
    metadata: pq.FileMetaData,
    layout: ds.ParquetFileFormat,
) -> list[ds.ParquetFileFragment]:
    sink = pa.BufferOutputStream()
    metadata.write_metadata_file(sink)
    footers = sink.getvalue()

    def opened(path: str) -> pa.NativeFile:
        return pa.BufferReader(footers) if path == _ALL_FOOTERS else filesystem.open_input_file(prefix + path)

    view = arrow_view(store, opened)
    track_arrow_use(view.handler)
    return list(ds.ParquetDatasetFactory(_ALL_FOOTERS, view, layout).finish().get_fragments())
