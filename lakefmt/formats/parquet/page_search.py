"""The pages of a column in a row group: found, searched for texts, read without the others. Pure.

Arrow decodes a column of a row group whole. A look-up of a few texts needs a page or two of it: the bytes of a text stand
in a page of plain values as they are, so a page without them is decompressed and not decoded. Pages that are chosen are put
into a Parquet file in memory, whose footer Arrow has written for as many rows, and Arrow reads that.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt.data_classes import dataclass
from lakefmt.errors import InternalError
from lakefmt.formats.parquet._compact import (
    I64,
    STRUCT,
    Field,
    encode_integer,
    encode_struct,
    fields_of,
    integer_at,
    only_field,
)
from lakefmt.formats.parquet.duplicate_columns import (
    MAGIC,
    ChunkNote,
    ChunkPlace,
    chunk_notes,
    footer_of,
    place_chunks,
    with_length,
)

__all__ = ["CODECS", "ColumnPages", "Page", "ReadAt", "declared_alike", "encode_pages", "find_pages", "pages_with"]

#: Returns bytes from an offset on, as many as asked for, fewer only at the end.
ReadAt = Callable[[int, int], bytes | memoryview]
#: Codecs of pages by the names that a footer gives them, and as Arrow's writer and its codecs are asked for them.
CODECS: Final = {"UNCOMPRESSED": "none", "SNAPPY": "snappy", "GZIP": "gzip", "ZSTD": "zstd"}

#: Most headers are shorter; one with long statistics is read with the second number.
_HEADER_BYTES, _MOST_HEADER_BYTES = 128, 1 << 16
#: Writers end a page at a megabyte; what claims to be larger than this is left to Arrow.
_MOST_PAGE_BYTES = 64 << 20
_DATA, _DICTIONARY = 0, 2
_PLAIN, _OF_DICTIONARY = 0, (2, 8)
# Numbers of fields in parquet.thrift.
_KIND, _UNCOMPRESSED, _COMPRESSED, _CRC, _DATA_HEADER, _DICTIONARY_HEADER = 1, 2, 3, 4, 5, 7
_NUM_VALUES, _ENCODING = 1, 2
_CHUNK_OFFSET, _CHUNK_META = 2, 3
_META_KEPT, _META_UNCOMPRESSED, _META_COMPRESSED, _META_DATA_PAGE, _META_DICTIONARY_PAGE = range(1, 6), 6, 7, 9, 11


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a column, by the places of its bytes in the column's.

    Attributes:
        begin: of its header.
        content: where the header ends.
        end: where the page ends.
        uncompressed_size: bytes of its content once it is decompressed.
        crc: the checksum of its content; None: it has none.
        num_values: its rows, where the column is not nested; the values of a dictionary.
        encoding: of its values.
        is_dictionary: whether its values are those that the numbers in other pages stand for.
    """

    begin: int
    content: int
    end: int
    uncompressed_size: int
    crc: int | None
    num_values: int
    encoding: int
    is_dictionary: bool


@dataclass(frozen=True)
class ColumnPages:
    """The pages of a column that is not nested, in one row group.

    Attributes:
        dictionary: the page of its dictionary; None: it has none.
        pages: the others.
    """

    dictionary: Page | None
    pages: Sequence[Page]

    @property
    def num_rows(self) -> int:
        """The rows of all pages."""
        return sum(page.num_values for page in self.pages)

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first row of each page."""
        return np.cumsum([0, *(page.num_values for page in self.pages[:-1])])

    def chosen(self, numbers: Sequence[int]) -> ColumnPages:
        """Return some of the pages, with the dictionary."""
        return ColumnPages(self.dictionary, [self.pages[number] for number in numbers])


def find_pages(read_at: ReadAt, size: int) -> ColumnPages | None:
    """Return the pages of a column in a row group; None: they are not of the usual kinds, or damaged.

    Parameters:
        read_at: reads the bytes of the column.
        size: how many there are.
    """
    all_pages: list[Page] = []
    position = 0
    try:
        while position < size:
            all_pages.append(_page_at(read_at, position))
            position = all_pages[-1].end
    except (IndexError, InternalError, RecursionError):
        return None
    dictionary = all_pages[0] if all_pages and all_pages[0].is_dictionary else None
    pages = all_pages if dictionary is None else all_pages[1:]
    if position != size or any(page.is_dictionary for page in pages):
        return None
    return ColumnPages(dictionary, pages)


def _page_at(read_at: ReadAt, position: int) -> Page:
    """Return the page whose header begins at a byte.

    Raises:
        IndexError, InternalError, RecursionError: there is none, or one of another kind.
    """
    try:
        return _decoded_page(read_at(position, _HEADER_BYTES), position)
    except IndexError:
        return _decoded_page(read_at(position, _MOST_HEADER_BYTES), position)


def _decoded_page(data: bytes | memoryview, position: int) -> Page:
    fields = fields_of(data)
    numbers = _numbers(data, fields)
    kind, size, uncompressed = (numbers.get(field, -1) for field in (_KIND, _COMPRESSED, _UNCOMPRESSED))
    header = only_field(fields, _DATA_HEADER if kind == _DATA else _DICTIONARY_HEADER)
    own = _numbers(data, fields_of(data, header.start)) if header.kind == STRUCT else {}
    num_values, encoding = own.get(_NUM_VALUES, -1), own.get(_ENCODING, -1)
    if kind not in (_DATA, _DICTIONARY) or min(size, num_values, encoding) < 0:
        raise InternalError(f"a page of kind {kind} is not expected")
    if not 0 <= uncompressed <= _MOST_PAGE_BYTES:
        raise InternalError(f"a page of {uncompressed:,} bytes is not expected")
    content = position + (fields[-1].end + 1)
    crc = numbers.get(_CRC)
    checksum = None if crc is None else crc & 0xFFFFFFFF
    return Page(position, content, content + size, uncompressed, checksum, num_values, encoding, kind == _DICTIONARY)


def _numbers(data: bytes | memoryview, fields: Sequence[Field]) -> dict[int, int]:
    return {field.number: integer_at(data, field.start) for field in fields if field.kind in (4, 5, 6)}


def pages_with(
    column: ColumnPages, data: memoryview, codec: str, texts: Sequence[bytes], most: int
) -> list[int] | None:
    """Return the numbers of the pages that may have some texts; None: more than `most` may, or a page is damaged.

    Parameters:
        column: the pages of a column of texts.
        data: its bytes.
        codec: of its pages, one of :data:`CODECS`.
        texts: in UTF-8.
        most: more pages are read by Arrow sooner.
    """
    in_dictionary = column.dictionary is not None and _has(column.dictionary, data, codec, texts)
    if in_dictionary is None:
        return None
    numbers: list[int] = []
    for number, page in enumerate(column.pages):
        if page.encoding in _OF_DICTIONARY:
            holds: bool | None = in_dictionary
        else:
            holds = True if page.encoding != _PLAIN else _has(page, data, codec, texts)
        if holds:
            numbers.append(number)
        if holds is None or len(numbers) > most:
            return None
    return numbers


def _has(page: Page, data: memoryview, codec: str, texts: Sequence[bytes]) -> bool | None:
    """Return whether a page has the bytes of some texts; None: it is damaged."""
    content = data[page.content : page.end]
    if page.crc is not None and crc32(content) != page.crc:
        return None
    if CODECS[codec] == "none":
        plain = bytes(content)
    else:
        try:
            plain = pa.Codec(CODECS[codec]).decompress(content, page.uncompressed_size, asbytes=True)
        except (pa.ArrowException, OSError):
            return None
    if len(plain) != page.uncompressed_size:
        return None
    return any(plain.find(text) >= 0 for text in texts)


# ------------------------------------------------------------------------------------------------- a file of some pages


def declared_alike(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, int] | None:
    """Return the numbers that columns have in a file, by name; None: one is declared otherwise there, or has no nulls.

    Parameters:
        metadata: the file's footer.
        schema: the columns.
    """
    with _writer(io.BytesIO(), schema, "none") as writer:
        pass
    wanted = writer.writer.metadata.schema
    stored = {metadata.schema.column(number).path: number for number in range(metadata.num_columns)}
    places: dict[str, int] = {}
    for number, name in enumerate(schema.names):
        place = stored.get(name)
        if place is None or wanted.column(number).path != name:
            return None
        column = metadata.schema.column(place)
        if (column.max_definition_level, column.max_repetition_level) != (1, 0):
            return None
        if not column.equals(wanted.column(number)):
            return None
        places[name] = place
    return places


def _writer(sink: io.BytesIO, schema: pa.Schema, codec: str) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        schema,
        compression=codec,
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
        use_compliant_nested_type=True,
        version="2.6",
    )


def encode_pages(
    schema: pa.Schema, codec: str, columns: Mapping[str, ColumnPages], read: Mapping[str, ReadAt]
) -> bytes:
    """Return a Parquet file with some pages of columns, of as many rows each.

    Parameters:
        schema: the columns, as :func:`declared_alike` found them declared.
        codec: of the pages, one of :data:`CODECS`.
        columns: their pages.
        read: reads the bytes of each.

    Raises:
        InternalError: the columns have different numbers of rows.
    """
    counts = {columns[name].num_rows for name in schema.names}
    if len(counts) != 1:
        raise InternalError(f"pages of {sorted(counts)} rows do not make one row group")
    sink = io.BytesIO()
    with _writer(sink, schema, CODECS[codec]) as writer:
        writer.write_table(pa.table([pa.nulls(*counts, field.type) for field in schema], schema=schema))
    footer = footer_of(sink.getbuffer())
    placed: dict[int, ChunkPlace] = {}
    parts, position = [MAGIC], len(MAGIC)
    for number, (name, note) in enumerate(zip(schema.names, chunk_notes(footer)[0], strict=True)):
        if note is None:
            raise InternalError("Arrow has written more than pages")
        pages = columns[name]
        dictionary = [] if pages.dictionary is None else [pages.dictionary]
        made = [bytes(read[name](page.begin, page.end - page.begin)) for page in [*dictionary, *pages.pages]]
        described = _described(note, position, pages)
        placed[number] = ChunkPlace(described, name, position)
        parts += made
        position += described.size
    return b"".join([*parts, with_length(place_chunks(footer, {0: placed}))])


def _described(note: ChunkNote, begin: int, pages: ColumnPages) -> ChunkNote:
    """Return what a footer says of pages that begin at a byte, where it said something of others of the same column."""
    both = [*([] if pages.dictionary is None else [pages.dictionary]), *pages.pages]
    size = sum(page.end - page.begin for page in both)
    numbers = {
        _META_UNCOMPRESSED: size + sum(page.uncompressed_size - (page.end - page.content) for page in both),
        _META_COMPRESSED: size,
        _META_DATA_PAGE: begin,
    }
    if pages.dictionary is not None:
        behind = pages.dictionary.end - pages.dictionary.begin
        numbers |= {_META_DATA_PAGE: begin + behind, _META_DICTIONARY_PAGE: begin}
    chunk = note.described
    outer = fields_of(chunk)
    kept = [field for field in fields_of(chunk, only_field(outer, _CHUNK_META).start) if field.number in _META_KEPT]
    fields = [*kept, *(Field(number, I64, 0, 0, []) for number in numbers)]
    meta = encode_struct(chunk, fields, {number: encode_integer(value) for number, value in numbers.items()})
    offset = encode_integer(begin)
    return ChunkNote(encode_struct(chunk, outer, {_CHUNK_OFFSET: offset, _CHUNK_META: meta}), begin, size)
