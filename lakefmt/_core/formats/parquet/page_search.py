"""Search the pages of a column in a row group for texts, and read some pages without the others. Pure.

Arrow decodes a column of a row group whole. A look-up of a few texts needs a page or two of it: the bytes of a text stand
in a page of plain values as they are, so a page without them is decompressed and not decoded. Pages that are chosen are put
into a Parquet file in memory, whose footer Arrow has written for as many rows, and Arrow reads that.

Pages are found by their headers, which are structs of Thrift's compact protocol. A look-up goes through those of some columns, a
few dozen each, so they are gone through in one loop here, without the steps that :mod:`~lakefmt._core.formats.parquet._compact` has
for any struct.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt._core.arrays import distinct
from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.parquet._compact import (
    BINARY,
    I64,
    STRUCT,
    Field,
    encode_integer,
    encode_struct,
    fields_of,
    only_field,
)
from lakefmt._core.formats.parquet.duplicate_columns import (
    MAGIC,
    ChunkNote,
    ChunkPlace,
    chunk_notes,
    footer_of,
    leaf_paths,
    parquet_schema,
    place_chunks,
    with_length,
)
from lakefmt.errors import InternalError

__all__ = [
    "CODECS",
    "ColumnPages",
    "Page",
    "ReadAt",
    "are_whole",
    "declared_alike",
    "encode_pages",
    "find_pages",
    "pages_with",
]

#: Returns bytes from an offset on, as many as asked for, fewer only at the end.
ReadAt = Callable[[int, int], bytes | memoryview]

#: Most headers are shorter; one with long statistics is read with the second number.
_HEADER_BYTES, _MOST_HEADER_BYTES = 128, 1 << 16
#: Writers end a page at a megabyte; what claims to be larger than this is left to Arrow.
_MOST_PAGE_BYTES = 64 << 20
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
# Numbers of fields in parquet.thrift.
_PAGE_KIND, _PAGE_UNCOMPRESSED, _PAGE_COMPRESSED, _PAGE_CRC = 1, 2, 3, 4
_PAGE_NUM_VALUES, _PAGE_ENCODING = 1, 2
#: The field with what is said of a page of a kind.
_KIND_FIELDS: Final = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7}
# Kinds of values of Thrift's compact protocol that have a size of their own; the kind of a boolean is its value.
_INTEGER_KINDS, _FIXED_KINDS = (5, 6, 4), {1: 0, 2: 0, 3: 1, 7: 8}
_STOP, _MORE, _SIGN_BITS = 0, 0x80, 64


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
    except (IndexError, InternalError):
        return None
    dictionary = all_pages[0] if all_pages and all_pages[0].is_dictionary else None
    pages = all_pages if dictionary is None else all_pages[1:]
    if position != size or any(page.is_dictionary for page in pages):
        return None
    return ColumnPages(dictionary, pages)


def are_whole(data: memoryview) -> bool:
    """Return whether the bytes of a column in a row group are pages of the usual kinds, whose checksums are right where they have some."""
    column = find_pages(lambda offset, count: data[offset : offset + count], len(data))
    if column is None:
        return False
    pages = column.pages if column.dictionary is None else [column.dictionary, *column.pages]
    return all(page.crc is None or crc32(data[page.content : page.end]) == page.crc for page in pages)


def _page_at(read_at: ReadAt, position: int) -> Page:
    """Return the page whose header begins at a byte.

    Raises:
        IndexError, InternalError: there is none, or one of another kind.
    """
    try:
        return _decode_page_header(bytes(read_at(position, _HEADER_BYTES)), position)
    except IndexError:
        return _decode_page_header(bytes(read_at(position, _MOST_HEADER_BYTES)), position)


def _decode_page_header(data: bytes, position: int) -> Page:
    outer, inner, structs, end = _header_numbers(data)
    page_type, size, uncompressed = (
        outer.get(_PAGE_KIND, -1),
        outer.get(_PAGE_COMPRESSED, -1),
        outer.get(_PAGE_UNCOMPRESSED, -1),
    )
    if structs != [_KIND_FIELDS.get(page_type)]:
        raise InternalError(f"a page of kind {page_type} is not expected")
    num_values, encoding = inner.get(_PAGE_NUM_VALUES, -1), inner.get(_PAGE_ENCODING, -1)
    if size < 0 or num_values < 0 or encoding < 0:
        raise InternalError("a page's header has other fields than expected")
    if not 0 <= uncompressed <= _MOST_PAGE_BYTES:
        raise InternalError(f"a page of {uncompressed:,} bytes is not expected")
    content = position + end
    crc = outer.get(_PAGE_CRC)
    checksum = None if crc is None else crc & 0xFFFFFFFF
    return Page(
        position, content, content + size, uncompressed, checksum, num_values, encoding, page_type == _DICTIONARY_PAGE
    )


def _header_numbers(data: bytes) -> tuple[dict[int, int], dict[int, int], list[int], int]:
    """Return the numbers of a struct and of the structs in it, which fields those are, and where the struct ends.

    Raises:
        IndexError: it is cut off.
        InternalError: it has a value of a kind that no header has.
    """
    outer: dict[int, int] = {}
    inner: dict[int, int] = {}
    structs: list[int] = []
    around: list[int] = []
    position = number = 0
    while True:
        head = data[position]
        position += 1
        if head == _STOP:
            if not around:
                return outer, inner, structs, position
            number = around.pop()
            continue
        if head < 1 << 4:
            raise InternalError("the fields of a page's header are not in order")
        number += head >> 4
        kind = head & 15
        if kind in _INTEGER_KINDS or kind == BINARY:
            byte = data[position]
            position += 1
            value, shift = byte & 0x7F, 7
            while byte >= _MORE:
                byte = data[position]
                position += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if shift > _SIGN_BITS + 7:
                    raise InternalError("a number of a page's header has too many bytes")
            if kind == BINARY:
                position += value
            elif len(around) < 2:  # what is deeper are statistics
                (inner if around else outer)[number] = value >> 1 ^ -(value & 1)
        elif kind == STRUCT:
            if not around:
                structs.append(number)
            around.append(number)
            number = 0
        elif kind in _FIXED_KINDS:
            position += _FIXED_KINDS[kind]
        else:
            raise InternalError(f"a page's header has a value of kind {kind}")


# --------------------------------------------------------------------------------------------------------------- search

Rows = npt.NDArray[np.int64]
#: Calls a function with every item of a list, as ``map`` does, perhaps several at the same time.
InTurn = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
#: Codecs of pages by the names that a footer gives them, and as Arrow's writer and its codecs are asked for them.
CODECS: Final = {"UNCOMPRESSED": "none", "SNAPPY": "snappy", "GZIP": "gzip", "ZSTD": "zstd"}

#: A page of plain values is searched with as many others by one thread.
_PAGES_PER_THREAD: Final = 2
_KEPT_FOOTERS: Final = 64
#: Of a page that has none of some texts.
_NOWHERE: Final[Rows] = np.zeros(0, np.int64)
#: The length in front of a text, and bytes that are compared at once.
_LENGTH_BYTES, _WORD_BYTES = 4, 8
_PLAIN_ENCODING, _DICTIONARY_ENCODINGS = 0, (2, 8)
# Numbers of fields in parquet.thrift.
_CHUNK_OFFSET, _CHUNK_META = 2, 3
_META_KEPT, _META_UNCOMPRESSED, _META_COMPRESSED, _META_DATA_PAGE, _META_DICTIONARY_PAGE = range(1, 6), 6, 7, 9, 11


def pages_with(
    column: ColumnPages, data: memoryview, codec: str, texts: Sequence[bytes], most: int, each: InTurn = map
) -> dict[int, Rows | None] | None:
    """Return the pages that may have some texts, by number; None: more than `most` may, or a page is damaged.

    With each page stand the numbers of its rows that have one, ascending; None: it has to be decoded.

    Parameters:
        column: the pages of a column of texts.
        data: its bytes.
        codec: of its pages, one of :data:`CODECS`.
        texts: in UTF-8.
        most: more pages are read by Arrow sooner.
        each: searches several pages at once, or in turn.
    """
    by_page: dict[int, Rows | None] = {}
    runs: list[list[int]] = []
    try:
        in_dictionary = (
            column.dictionary is not None and _search_page(data, codec, texts, column.dictionary) is not _NOWHERE
        )
        for number, page in enumerate(column.pages):
            if page.encoding == _PLAIN_ENCODING:
                if not runs or len(runs[-1]) == _PAGES_PER_THREAD:
                    runs.append([])
                runs[-1].append(number)
            elif in_dictionary or page.encoding not in _DICTIONARY_ENCODINGS:
                by_page[number] = None
        search = partial(_search_pages, data, codec, texts)
        for run, rows in zip(runs, each(search, [[column.pages[n] for n in run] for run in runs]), strict=True):
            by_page |= {n: some for n, some in zip(run, rows, strict=True) if some is not _NOWHERE}
            if len(by_page) > most:
                return None
    except InternalError:
        return None
    return dict(sorted(by_page.items())) if len(by_page) <= most else None


def _search_pages(data: memoryview, codec: str, texts: Sequence[bytes], pages: Sequence[Page]) -> list[Rows | None]:
    return [_search_page(data, codec, texts, page) for page in pages]


def _search_page(data: memoryview, codec: str, texts: Sequence[bytes], page: Page) -> Rows | None:
    """Return the rows of a page that have one of some texts; None: it may have one somewhere.

    Raises:
        InternalError: the page is damaged.
    """
    content = data[page.content : page.end]
    if page.crc is not None and crc32(content) != page.crc:
        raise InternalError("a page has another checksum")
    if CODECS[codec] == "none":
        plain = bytes(content)
    else:
        try:
            plain = pa.Codec(CODECS[codec]).decompress(content, page.uncompressed_size, asbytes=True)
        except (pa.ArrowException, OSError) as error:
            raise InternalError(f"a page cannot be decompressed: {error}") from None
    if len(plain) != page.uncompressed_size:
        raise InternalError("a page has another size")
    alike = None if page.is_dictionary else _texts_of_one_length(plain, page.num_values)
    if alike is None:
        return None if any(plain.find(text) >= 0 for text in texts) else _NOWHERE
    rows = [alike.rows_with(text) for text in texts]
    return distinct(np.concatenate(rows)) if any(map(len, rows)) else _NOWHERE


@dataclass(frozen=True, slots=True, eq=False)
class _AlikeTexts:
    """Texts of one length, each behind its length, without nulls.

    Attributes:
        plain: bytes of a page.
        begin: where the first length is.
        count: how many there are.
        step: bytes from one length to the next.
        heads: the length of each with what its text begins with, as a number.
    """

    plain: bytes
    begin: int
    count: int
    step: int
    heads: npt.NDArray[np.uint64]

    def rows_with(self, text: bytes) -> Rows:
        """Return which are a text."""
        size = self.step - _LENGTH_BYTES
        if len(text) != size:
            return _NOWHERE
        whole = size.to_bytes(_LENGTH_BYTES, "little") + text
        rows: Rows = np.flatnonzero(self.heads == _word_at(whole, 0))
        # Word by word: few texts begin alike, or end alike. The last word may have bytes of the one before it.
        for offset in (*range(_WORD_BYTES, self.step - _WORD_BYTES, _WORD_BYTES), self.step - _WORD_BYTES):
            if not len(rows):
                break
            words = np.ndarray((self.count,), "<u8", self.plain, self.begin + offset, (self.step,))
            rows = rows[words[rows] == _word_at(whole, offset)]
        return rows


def _word_at(data: bytes, offset: int) -> np.uint64:
    return np.uint64(int.from_bytes(data[offset : offset + _WORD_BYTES], "little"))


def _texts_of_one_length(plain: bytes, count: int) -> _AlikeTexts | None:
    """Return the texts of a page; None: they are short, have several lengths, or there is a null."""
    # In front of the values stand which of them are nulls, behind the number of its bytes.
    begin = _LENGTH_BYTES + int.from_bytes(plain[:_LENGTH_BYTES], "little")
    step, rest = divmod(len(plain) - begin, max(count, 1))
    if rest or count < 1 or step < _WORD_BYTES:
        return None
    heads = np.ndarray((count,), "<u8", plain, begin, (step,)).astype(np.uint64)
    # Where each length is the same, each text begins where its row does.
    is_alike = (heads.astype(np.uint32) == step - _LENGTH_BYTES).all()
    return _AlikeTexts(plain, begin, count, step, heads) if is_alike else None


# ------------------------------------------------------------------------------------------------- a file of some pages


def declared_alike(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, int] | None:
    """Return the numbers that columns have in a file, by name; None: one is declared otherwise there, or has no nulls.

    Parameters:
        metadata: the file's footer.
        schema: the columns.
    """
    declared, stored_schema = _declared_columns(schema), parquet_schema(metadata)
    stored = {path: number for number, path in enumerate(leaf_paths(metadata))}
    leaves: dict[str, int] = {}
    for number, name in enumerate(schema.names):
        leaf = stored.get(name)
        if leaf is None or declared.column(number).path != name:
            return None
        column = stored_schema.column(leaf)
        if (column.max_definition_level, column.max_repetition_level) != (1, 0):
            return None
        if not column.equals(declared.column(number)):
            return None
        leaves[name] = leaf
    return leaves


@lru_cache(_KEPT_FOOTERS)
def _declared_columns(schema: pa.Schema) -> pq.ParquetSchema:
    """Return columns as Arrow declares them in a file."""
    with _pages_writer(io.BytesIO(), schema, "none") as writer:
        pass
    return parquet_schema(writer.writer.metadata)


def _pages_writer(sink: io.BytesIO, schema: pa.Schema, codec: str) -> pq.ParquetWriter:
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
    footer = _footer_of_rows(schema, CODECS[codec], *counts)
    placed: dict[int, ChunkPlace] = {}
    parts, position = [MAGIC], len(MAGIC)
    for number, (name, note) in enumerate(zip(schema.names, _chunk_notes_of(footer), strict=True)):
        if note is None:
            raise InternalError("Arrow has written more than pages")
        pages = columns[name]
        dictionary = [] if pages.dictionary is None else [pages.dictionary]
        made = [bytes(read[name](page.begin, page.end - page.begin)) for page in [*dictionary, *pages.pages]]
        described = _chunk_of_pages(note, position, pages)
        placed[number] = ChunkPlace(described, name, position)
        parts += made
        position += described.size
    return b"".join([*parts, with_length(place_chunks(footer, {0: placed}))])


@lru_cache(_KEPT_FOOTERS)
def _footer_of_rows(schema: pa.Schema, codec: str, count: int) -> bytes:
    """Return the footer that Arrow writes for as many rows; the pages of a column have the same number as a rule."""
    sink = io.BytesIO()
    with _pages_writer(sink, schema, codec) as writer:
        rows = pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)
        writer.write_table(rows, row_group_size=max(1, count))  # all of them in one row group, as the pages are
    return footer_of(sink.getbuffer())


@lru_cache(_KEPT_FOOTERS)
def _chunk_notes_of(footer: bytes) -> Sequence[ChunkNote | None]:
    return chunk_notes(footer)[0]


def _chunk_of_pages(note: ChunkNote, begin: int, pages: ColumnPages) -> ChunkNote:
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
    kept_fields = [
        field for field in fields_of(chunk, only_field(outer, _CHUNK_META).start) if field.number in _META_KEPT
    ]
    fields = [*kept_fields, *(Field(number, I64, 0, 0, []) for number in numbers)]
    meta = encode_struct(chunk, fields, {number: encode_integer(value) for number, value in numbers.items()})
    offset = encode_integer(begin)
    return ChunkNote(encode_struct(chunk, outer, {_CHUNK_OFFSET: offset, _CHUNK_META: meta}), begin, size)
