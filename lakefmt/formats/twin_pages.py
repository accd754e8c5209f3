"""Writing the record keys and the column they come from once, and storing them twice (effects on the sink only).

To encode and compress keys is an eighth of writing a base file, and Arrow does it for both columns. Here one of them is
written into memory by itself; Arrow is given nulls in the place of both, the pages are put behind its own, twice, and the footer
is told where they are (spec 5.1). The nulls stay in the file as some dozen bytes that nothing points to.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt.errors import InternalError
from lakefmt.formats.parquet_footer import ChunkPlace, footer_of, note_chunk, place_chunks, with_length
from lakefmt.formats.twins import equal_column, leaf_paths
from lakefmt.values import META_COLUMNS, RECORD_KEY

__all__ = ["PageSink", "TwinPages", "key_twin"]

#: Of fewer bytes of keys it takes longer to put the pages into the file than to make them again.
_WORTH_BYTES = 192 << 10


def key_twin(rows: pa.Table) -> str | None:
    """Return the column that is stored with the record keys; None when there is none, or too little to win.

    Example:
        >>> keys = [f"key-{number:09}" for number in range(20_000)]
        >>> key_twin(pa.table({RECORD_KEY: keys, "n": range(20_000), "id": keys})), key_twin(pa.table({"id": keys}))
        ('id', None)
    """
    at = rows.schema.get_field_index(RECORD_KEY)
    if at < 0 or not rows.num_rows:
        return None
    keys, field = rows.column(at), rows.schema.field(at)
    if not (pa.types.is_string(field.type) and field.nullable) or keys.nbytes < _WORTH_BYTES:
        return None
    # A name with a dot could be that of a field of a struct, too: a footer tells columns by their paths.
    texts = (f.name for f in rows.schema if f.type == field.type and f.nullable and "." not in f.name)
    return equal_column(rows, keys, [name for name in texts if name not in META_COLUMNS])


class PageSink(io.RawIOBase):
    """What Arrow writes a file into: hands bytes on until the footer comes, which is held back.

    Args:
        sink: takes the file's bytes; it stays open.
    """

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._held: list[bytes] | None = None

    def writable(self) -> bool:
        """Say that it takes bytes."""
        return True

    def write(self, data: Any) -> int:
        """Take bytes."""
        if self._held is None:
            return self._sink.write(data)
        self._held.append(bytes(data))
        return len(data)

    def hold(self) -> None:
        """Hold back what comes from now on."""
        self._held = []

    def let_go(self) -> bytes:
        """Return what was held back, and hold nothing back any more."""
        held, self._held = self._held or [], None
        return b"".join(held)


class TwinPages:
    """The pages of a file that are stored twice.

    Args:
        sink: takes the file's bytes.
        options: how columns without a dictionary are stored, as ``pyarrow.parquet.ParquetWriter`` takes it.
    """

    def __init__(self, sink: BinaryIO, options: Mapping[str, Any]) -> None:
        self._sink = PageSink(sink)
        #: Where Arrow and this object write: it knows how many bytes there are already.
        self.stream = pa.PythonFile(self._sink, mode="w")
        self._options = options
        self._placed: dict[int, list[ChunkPlace]] = {}

    def write(self, writer: pq.ParquetWriter, rows: pa.Table, twin: str, group: int) -> None:
        """Write a row group.

        Args:
            writer: Arrow's, of this file, that writes into `stream`.
            rows: the group's.
            twin: the column that equals the record keys.
            group: the number of the row group.
        """
        at = rows.schema.get_field_index(twin)
        field, keys = rows.schema.field(at), rows.column(at)
        pages = io.BytesIO()
        with pq.ParquetWriter(pages, pa.schema([field]), **self._options) as alone:
            alone.write_table(pa.Table.from_arrays([keys], schema=pa.schema([field])), row_group_size=len(keys))
        file = pages.getbuffer()
        note = note_chunk(footer_of(file))
        nulls = pa.nulls(len(keys), field.type)
        for number in (at, rows.schema.get_field_index(RECORD_KEY)):
            rows = rows.set_column(number, rows.schema.field(number), nulls)
        writer.write_table(rows, row_group_size=rows.num_rows)
        self._placed[group] = []
        for name in (RECORD_KEY, twin):
            self._placed[group].append(ChunkPlace(note, name, self.stream.tell()))
            self.stream.write(file[note.pages])

    def close(self, writer: pq.ParquetWriter, groups: int) -> None:
        """Finish the file: its footer tells where the pages are.

        Args:
            writer: Arrow's.
            groups: how many row groups it was given.

        Raises:
            InternalError: it made others of them.
        """
        if not self._placed:
            writer.close()
            return
        self._sink.hold()
        writer.close()
        metadata = writer.writer.metadata
        if metadata.num_row_groups != groups:
            raise InternalError(f"a base file has {metadata.num_row_groups} row groups, and {groups} were written")
        leaves = leaf_paths(metadata)
        placed = {g: {leaves.index(place.name): place for place in places} for g, places in self._placed.items()}
        footer = footer_of(memoryview(self._sink.let_go()))
        self.stream.write(with_length(place_chunks(footer, placed)))
