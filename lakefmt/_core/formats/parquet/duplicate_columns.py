"""Pages of a base file that are copied instead of encoded: those of a column equal to the record key, and those that a rewrite keeps.

`_hoodie_record_key` and the column it comes from often hold the same text in every row. They are encoded once, stored twice and
read once: :class:`DuplicatePages` lets Arrow encode one of them into memory and null columns in the place of both, copies the
pages into the file once per column, and rewrites the footer so that both column chunks point to their copy. The null pages, some
dozen bytes, stay in the file and nothing points to them. The result is a plain Parquet file: every byte range that its footer
names is a whole column chunk.

When reading, :func:`find_duplicate_column` finds a column whose chunks agree with those of the keys in sizes, value counts and
encodings. The caller compares the bytes and decodes one of them.

A rewrite stores pages of the older file as they are, where no value of their column has changed (:func:`keepable_chunks`). To
encode and compress a column again for the bytes that the file has already was two thirds of what rewriting it cost. A row group
takes such pages when it has all rows of an older row group, in their order; what the older footer says of them, statistics among
it, goes along.

The footer functions walk Thrift's compact protocol of footers that Arrow has just written in this process; a footer from a file
is read by Arrow only. The older footer of a rewrite is parsed by Arrow, written again by Arrow, and only that is walked here.

Why not let Arrow encode both columns? Both with zstd cost 10–14 % more CPU per file of 33,000 rows and 19 columns for
the same bytes, and about 7 % of a bulk load, which is a close case: the runs spread from -5 % to +13 %. With snappy the
file costs 9–16 % more CPU and is 32 % larger; uncompressed keys save 14 % and make it 40 % larger (docs/dev/speed.md).
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakefmt._core.data_classes import dataclass
from lakefmt._core.formats.parquet._compact import (
    BINARY,
    I64,
    ByteRange,
    Field,
    count_at,
    encode_integer,
    encode_list,
    encode_number,
    encode_struct,
    fields_of,
    integer_at,
    only_field,
)
from lakefmt._core.values import META_COLUMNS, RECORD_KEY
from lakefmt.errors import InternalError

__all__ = [
    "MAGIC",
    "ChunkNote",
    "ChunkPlace",
    "DuplicatePages",
    "LongText",
    "PageWriter",
    "Pages",
    "Span",
    "are_within",
    "chunk_notes",
    "chunk_span",
    "duplicate_key_column",
    "equal_column",
    "find_duplicate_column",
    "footer_of",
    "keepable_chunks",
    "leaf_paths",
    "note_chunk",
    "parquet_schema",
    "place_chunks",
    "with_length",
]

MAGIC: Final = b"PAR1"
_LENGTH_BYTES: Final = 4

# Numbers of fields in parquet.thrift.
_FILE_ROW_GROUPS, _FILE_ENTRIES = 4, 5
_ENTRY_NAME, _ENTRY_VALUE = 1, 2
_GROUP_COLUMNS, _GROUP_BYTES, _GROUP_COMPRESSED = 1, 2, 6
_CHUNK_OFFSET, _CHUNK_META = 2, 3
_META_PATH, _META_UNCOMPRESSED, _META_COMPRESSED, _META_DATA_PAGE, _META_DICTIONARY_PAGE = 3, 6, 7, 9, 11
_META_STATISTICS = 12
#: Of the statistics of a chunk: how many nulls there are, and how many distinct values.
_COUNT_STATISTICS = frozenset({3, 4})
#: Of a chunk that has nothing but pages: its place; type, encodings, path, codec, counts, sizes, offsets, statistics of its values,
#: of its pages and of its sizes.
_CHUNK_PAGES = frozenset({_CHUNK_OFFSET, _CHUNK_META})
_META_PAGES = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13, 16})


#: This many first rows are enough to rule out most columns as copies of the keys.
_FIRST_ROWS_COMPARED = 64
#: Arrow writes a page in several parts, and each that goes to Python waits for its lock.
_WRITE_BUFFER_BYTES = 64 << 10
#: With fewer bytes of keys than this, encoding them twice is faster than copying their pages.
_LEAST_KEY_BYTES = 192 << 10
_CREATED_BY_ARROW = "parquet-cpp-arrow"


@dataclass(frozen=True, slots=True)
class Span:
    """Where bytes are in a file."""

    offset: int
    size: int


def are_within(spans: Iterable[Span], file_size: int) -> bool:
    """Tell whether a file of that many bytes has them all: a footer may claim anything."""
    return all(0 <= span.offset <= span.offset + span.size <= file_size for span in spans)


@dataclass(frozen=True, slots=True)
class ChunkNote:
    """What a footer says of a column's values in a row group.

    Attributes:
        described: its bytes.
        begin: from which byte on the pages lie in that file.
        size: bytes of the pages.
    """

    described: bytes
    begin: int
    size: int

    @property
    def pages(self) -> slice:
        """Where the pages are in that file."""
        return slice(self.begin, self.begin + self.size)


@dataclass(frozen=True, slots=True)
class ChunkPlace:
    """Where a chunk's pages were copied to: which column's they are there, and from which byte on they lie."""

    note: ChunkNote
    name: str
    begin: int


# -------------------------------------------------------------------------------------------------------------- footers


def footer_of(file: memoryview) -> bytes:
    """Return the footer of a Parquet file."""
    if bytes(file[-len(MAGIC) :]) != MAGIC:
        raise InternalError("what was written is no Parquet file")
    end = len(file) - len(MAGIC) - _LENGTH_BYTES
    return bytes(file[end - int.from_bytes(file[end : end + _LENGTH_BYTES], "little") : end])


def with_length(footer: bytes) -> bytes:
    """Return the end of a Parquet file with that footer."""
    return footer + len(footer).to_bytes(_LENGTH_BYTES, "little") + MAGIC


def note_chunk(footer: bytes) -> ChunkNote:
    """Return what the footer of a file of one column and one row group says of the only chunk.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> sink = pa.BufferOutputStream()
        >>> pq.write_table(pa.table({"id": ["a", "b"]}), sink)
        >>> note_chunk(footer_of(memoryview(sink.getvalue()))).begin
        4
    """
    (group,), _ = _row_groups(footer)
    ((start, end),) = only_field(group, _GROUP_COLUMNS).items
    return _note_of_chunk(footer[start:end])


def _note_of_chunk(described: bytes) -> ChunkNote:
    meta = _chunk_numbers(described)
    begin = min(meta[field] for field in (_META_DATA_PAGE, _META_DICTIONARY_PAGE) if field in meta)
    return ChunkNote(described, begin, meta[_META_COMPRESSED])


def chunk_notes(footer: bytes) -> list[list[ChunkNote | None]]:
    """Return what a footer says of every column's values, row group by row group; None where they have more than pages.

    Example:
        >>> import pyarrow as pa, pyarrow.parquet as pq
        >>> sink = pa.BufferOutputStream()
        >>> pq.write_table(pa.table({"id": ["a", "b"], "n": [1, 2]}), sink)
        >>> [note.begin for note in chunk_notes(footer_of(memoryview(sink.getvalue())))[0]][0]
        4
    """
    groups, _ = _row_groups(footer)
    notes: list[list[ChunkNote | None]] = []
    for group in groups:
        chunks = (footer[start:end] for start, end in only_field(group, _GROUP_COLUMNS).items)
        notes.append([_note_of_chunk(chunk) if _has_pages_only(chunk) else None for chunk in chunks])
    return notes


def _has_pages_only(chunk: bytes) -> bool:
    """Tell whether a chunk has no index, no filter and no key of its own, which lie elsewhere in its file."""
    outer = fields_of(chunk)
    inner = {field.number for field in fields_of(chunk, only_field(outer, _CHUNK_META).start)}
    return {field.number for field in outer} <= _CHUNK_PAGES and inner <= _META_PAGES


def place_chunks(
    footer: bytes,
    placed: Mapping[int, Mapping[int, ChunkPlace]],
    endless: Mapping[int, Collection[int]] | None = None,
) -> bytes:
    """Return a footer in which chunks are others.

    Args:
        footer: as Arrow wrote it.
        placed: by row group and column, each by its number, what is there now.
        endless: by row group the columns, by number, whose smallest and largest value are not told.
    """
    groups, (start, end) = _row_groups(footer)
    without = endless or {}
    made = [
        encode_struct(
            footer, group, _row_group_with_places(footer, group, placed.get(number, {}), without.get(number, ()))
        )
        for number, group in enumerate(groups)
    ]
    return b"".join([footer[:start], encode_list(made), footer[end:]])


def _around_empty_text(footer: bytes, name: str) -> tuple[bytes, bytes]:
    """Return what comes before and behind the empty text of an entry."""
    for start, _ in only_field(fields_of(footer), _FILE_ENTRIES).items:
        fields = fields_of(footer, start)
        name_field, value = only_field(fields, _ENTRY_NAME), only_field(fields, _ENTRY_VALUE)
        if footer[name_field.start : name_field.end] == _encode_text(name) and value.end - value.start == 1:
            return footer[: value.start], footer[value.end :]
    raise InternalError(f"a Parquet footer lacks its entry {name}")


def _encode_text(text: str) -> bytes:
    data = text.encode()
    return encode_number(len(data)) + data


def _row_group_with_places(
    footer: bytes, group: Sequence[Field], placed: Mapping[int, ChunkPlace], endless: Collection[int]
) -> dict[int, bytes]:
    """Return what is said anew of a row group."""
    chunks = [footer[start:end] for start, end in only_field(group, _GROUP_COLUMNS).items]
    for number in endless:
        chunks[number] = _without_ends(chunks[number])
    grown = {_META_UNCOMPRESSED: 0, _META_COMPRESSED: 0}
    for number, place in placed.items():
        before, after = _chunk_numbers(chunks[number]), _chunk_numbers(place.note.described)
        grown = {size: grown[size] + after[size] - before[size] for size in grown}
        chunks[number] = _moved_chunk(place)
    changed = {_GROUP_COLUMNS: encode_list(chunks)}
    for total, size in ((_GROUP_BYTES, _META_UNCOMPRESSED), (_GROUP_COMPRESSED, _META_COMPRESSED)):
        field = next((each for each in group if each.number == total), None)
        if field is not None:  # the second one may be left out
            changed[total] = encode_integer(integer_at(footer, field.start) + grown[size])
    return changed


def _moved_chunk(place: ChunkPlace) -> bytes:
    """Return what a footer says of a chunk that was moved and renamed."""
    chunk, moved = place.note.described, place.begin - place.note.begin
    outer = fields_of(chunk)
    inner = fields_of(chunk, only_field(outer, _CHUNK_META).start)
    described = {_META_PATH: encode_list([_encode_text(place.name)], BINARY)}
    for field in inner:
        if field.number in (_META_DATA_PAGE, _META_DICTIONARY_PAGE):
            described[field.number] = encode_integer(integer_at(chunk, field.start) + moved)
    changed = {_CHUNK_META: encode_struct(chunk, inner, described)}
    offset = integer_at(chunk, only_field(outer, _CHUNK_OFFSET).start)
    if offset:  # some versions of Arrow say 0
        changed[_CHUNK_OFFSET] = encode_integer(offset + moved)
    return encode_struct(chunk, outer, changed)


def _without_ends(chunk: bytes) -> bytes:
    """Return what a footer says of a chunk, without its smallest and its largest value."""
    outer = fields_of(chunk)
    inner = fields_of(chunk, only_field(outer, _CHUNK_META).start)
    statistics = next((field for field in inner if field.number == _META_STATISTICS), None)
    if statistics is None:
        return chunk
    counts = [field for field in fields_of(chunk, statistics.start) if field.number in _COUNT_STATISTICS]
    described = encode_struct(chunk, inner, {_META_STATISTICS: encode_struct(chunk, counts, {})})
    return encode_struct(chunk, outer, {_CHUNK_META: described})


def _chunk_numbers(chunk: bytes) -> dict[int, int]:
    """Return the 64-bit numbers that a footer says of a chunk, by their fields."""
    start = only_field(fields_of(chunk), _CHUNK_META).start
    return {field.number: integer_at(chunk, field.start) for field in fields_of(chunk, start) if field.kind == I64}


def _row_groups(footer: bytes) -> tuple[list[list[Field]], ByteRange]:
    """Return the fields of each row group, and where the list of them begins and ends."""
    start = only_field(fields_of(footer, stop=_FILE_ROW_GROUPS), _FILE_ROW_GROUPS).start
    count, position = count_at(footer, start)
    groups = []
    for _ in range(count):
        groups.append(fields_of(footer, position))
        position = groups[-1][-1].end + 1
    return groups, (start, position)


# -------------------------------------------------------------------------------------------------------- equal columns


def equal_column(table: pa.Table, texts: pa.ChunkedArray, among: Sequence[str]) -> str | None:
    """Return the first of some columns whose values are `texts` in all rows; None: there is none.

    Example:
        >>> table = pa.table({"n": ["x", "y"], "id": ["a", "b"]})
        >>> equal_column(table, pa.chunked_array([["a"], ["b"]]), ["n", "id"])
        'id'
    """
    first = texts.slice(0, _FIRST_ROWS_COMPARED)
    for name in among:
        column = table.column(name)
        if column.type == texts.type and column.slice(0, _FIRST_ROWS_COMPARED).equals(first) and column.equals(texts):
            return name
    return None


def leaf_paths(metadata: pq.FileMetaData) -> list[str]:
    """Return the path of every column that a file stores, in its order."""
    schema = parquet_schema(metadata)
    return [schema.column(number).path for number in range(metadata.num_columns)]


def parquet_schema(metadata: pq.FileMetaData) -> pq.ParquetSchema:
    """Return how a footer declares the columns.

    ``FileMetaData.schema`` is the same, but the two refer to each other from then on: the footer, a megabyte or more, stays until
    Python's collector comes.
    """
    return pq.ParquetSchema(metadata)


def duplicate_key_column(rows: pa.Table) -> str | None:
    """Return the column that is stored with the record keys; None when there is none, or too little to win.

    Example:
        >>> keys = [f"key-{number:09}" for number in range(20_000)]
        >>> duplicate_key_column(pa.table({RECORD_KEY: keys, "n": range(20_000), "id": keys})), duplicate_key_column(pa.table({"id": keys}))
        ('id', None)
    """
    index = rows.schema.get_field_index(RECORD_KEY)
    if index < 0 or not rows.num_rows:
        return None
    keys, field = rows.column(index), rows.schema.field(index)
    if not (pa.types.is_string(field.type) and field.nullable) or keys.nbytes < _LEAST_KEY_BYTES:
        return None
    # A name with a dot could be that of a field of a struct, too: a footer tells columns by their paths.
    texts = (f.name for f in rows.schema if f.type == field.type and f.nullable and "." not in f.name)
    return equal_column(rows, keys, [name for name in texts if name not in META_COLUMNS])


# ------------------------------------------------------------------------------------------------ pages that are copied


class PageWriter(io.RawIOBase):
    """What Arrow writes a file into: hands bytes on until the footer comes, which is held back.

    Args:
        sink: takes the file's bytes; it stays open.
    """

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self._held: list[bytes] = []
        self.write = sink.write  # type: ignore[method-assign]

    def writable(self) -> bool:
        """Say that it takes bytes."""
        return True

    def stream(self) -> pa.NativeFile:
        """Return what Arrow writes into: it hands bytes on when its buffer is full, or when it is flushed."""
        return pa.BufferedOutputStream(pa.PythonFile(self, mode="w"), _WRITE_BUFFER_BYTES)

    def _hold(self, part: Any) -> int:
        self._held.append(bytes(part))
        return len(part)

    def hold(self) -> None:
        """Hold back what comes from now on."""
        self.write = self._hold  # type: ignore[method-assign]

    def drop(self) -> None:
        """Drop what comes from now on."""
        self.write = len  # type: ignore[method-assign, assignment]

    def let_go(self) -> bytes:
        """Return what was held back, and hold nothing back any more."""
        held, self._held = self._held, []
        self.write = self._sink.write  # type: ignore[method-assign]
        return b"".join(held)


class Pages(NamedTuple):
    """The pages of a column in a row group, as a file has them."""

    note: ChunkNote
    data: memoryview | pa.Buffer


class LongText(NamedTuple):
    """The text of a footer's entry that is written part by part, since Arrow would copy it several times.

    Attributes:
        name: of the entry.
        size: bytes of the text.
        parts: of the text, in their order.
    """

    name: str
    size: int
    parts: Iterable[bytes]


class DuplicatePages:
    """The pages of a file that are encoded elsewhere, such as those that are stored twice.

    Args:
        sink: takes the file's bytes.
        options: how columns without a dictionary are stored, as ``pyarrow.parquet.ParquetWriter`` takes it.
    """

    def __init__(self, sink: BinaryIO, options: Mapping[str, object]) -> None:
        self._sink = PageWriter(sink)
        #: Where Arrow and this object write: it knows how many bytes there are already.
        self.stream = self._sink.stream()
        self._options = options
        self._placed: dict[int, list[ChunkPlace]] = {}
        self._endless: dict[int, tuple[str, ...]] = {}

    def leave_out_ends(self, leaves: Iterable[str], group: int) -> None:
        """Do not tell the smallest and largest value of columns of a row group.

        Args:
            leaves: paths of columns, with dots for nested fields.
            group: the number of the row group.
        """
        if names := tuple(leaves):
            self._endless[group] = names

    def twice(self, rows: pa.Table, copy: str) -> dict[str, Pages]:
        """Return the pages of the record keys, encoded once, for their column and for `copy`, which equals them."""
        index = rows.schema.get_field_index(copy)
        field, keys = rows.schema.field(index), rows.column(index)
        pages = io.BytesIO()
        with pq.ParquetWriter(pages, pa.schema([field]), **self._options) as alone:
            alone.write_table(pa.Table.from_arrays([keys], schema=pa.schema([field])), row_group_size=len(keys))
        file = pages.getbuffer()
        note = note_chunk(footer_of(file))
        return dict.fromkeys((RECORD_KEY, copy), Pages(note, file[note.pages]))

    def write(self, writer: pq.ParquetWriter, rows: pa.Table, pages: Mapping[str, Pages], group: int) -> None:
        """Write a row group.

        Args:
            writer: Arrow's, of this file, that writes into `stream`.
            rows: the group's.
            pages: of the columns that are encoded already, by their names.
            group: the number of the row group.
        """
        for name in pages:
            number = rows.schema.get_field_index(name)
            field = rows.schema.field(number)
            rows = rows.set_column(number, field, pa.nulls(rows.num_rows, field.type))
        writer.write_table(rows, row_group_size=rows.num_rows)
        self._placed[group] = []
        for name, (note, bytes_) in pages.items():
            self._placed[group].append(ChunkPlace(note, name, self.stream.tell()))
            self.stream.write(bytes_)

    def close(self, writer: pq.ParquetWriter, groups: int, long_text: LongText | None = None) -> None:
        """Finish the file: its footer tells where the pages are.

        Args:
            writer: Arrow's.
            groups: how many row groups it was given.
            long_text: the text of an entry for which Arrow was given an empty one.

        Raises:
            InternalError: it made others of them.
        """
        if not self._placed and not self._endless and long_text is None:
            writer.close()
            self.stream.flush()
            return
        self.stream.flush()
        self._sink.hold()
        writer.close()
        self.stream.flush()
        metadata = writer.writer.metadata
        if metadata.num_row_groups != groups:
            raise InternalError(f"a base file has {metadata.num_row_groups} row groups, and {groups} were written")
        leaves = {name: leaf for leaf, name in reversed([*enumerate(leaf_paths(metadata))])}
        placed = {g: {leaves[place.name]: place for place in places} for g, places in self._placed.items()}
        endless = {g: [leaves[name] for name in names] for g, names in self._endless.items()}
        footer = footer_of(memoryview(self._sink.let_go()))
        if placed or endless:
            footer = place_chunks(footer, placed, endless)
        if long_text is None:
            self.stream.write(with_length(footer))
        else:
            self._write_footer(footer, long_text)
        self.stream.flush()

    def _write_footer(self, footer: bytes, long_text: LongText) -> None:
        before, behind = _around_empty_text(footer, long_text.name)
        begin = self.stream.tell()
        self.stream.write(before + encode_number(long_text.size))
        for part in long_text.parts:
            self.stream.write(part)
        self.stream.write(behind)
        self.stream.write((self.stream.tell() - begin).to_bytes(_LENGTH_BYTES, "little") + MAGIC)

    def discard(self, writer: pq.ParquetWriter) -> None:
        """Let go of a file that will not be finished: what is not in the sink yet never gets there.

        Args:
            writer: Arrow's.
        """
        self._sink.drop()
        for each in (writer, self.stream):
            with suppress(OSError, ValueError, pa.ArrowException):
                each.close()


# -------------------------------------------------------------------------------------------------- equal columns, read


def find_duplicate_column(metadata: pq.FileMetaData, name: str) -> tuple[str, list[tuple[Span, Span]]] | None:
    """Return a column that may hold the same bytes as the column `name`, and where both have theirs; None: there is none.

    Args:
        metadata: a file's footer.
        name: a column of text that is not nested.
    """
    paths = leaf_paths(metadata)
    if name not in paths or not metadata.num_row_groups:
        return None
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    key_leaf = paths.index(name)
    key_chunks = [_chunk_layout(group.column(key_leaf)) for group in groups]
    schema = parquet_schema(metadata)
    for leaf, path in enumerate(paths):
        first = metadata.row_group(0).column(leaf)
        if (
            leaf == key_leaf
            or first.total_compressed_size != key_chunks[0][0]
            or not _declared_alike(schema, leaf, key_leaf)
        ):
            continue
        if [_chunk_layout(group.column(leaf)) for group in groups] == key_chunks:
            return path, [(chunk_span(group.column(key_leaf)), chunk_span(group.column(leaf))) for group in groups]
    return None


def _chunk_layout(chunk: pq.ColumnChunkMetaData) -> tuple[int, int, int, str, Sequence[str], int]:
    """Return what two chunks of the same bytes have in common: sizes, values, how they are encoded, where pages begin."""
    return (
        chunk.total_compressed_size,
        chunk.total_uncompressed_size,
        chunk.num_values,
        chunk.compression,
        chunk.encodings,
        chunk.data_page_offset - _chunk_begin(chunk),
    )


def _declared_alike(schema: pq.ParquetSchema, first: int, other: int) -> bool:
    leaf, two = schema.column(first), schema.column(other)
    kinds = [
        (c.physical_type, str(c.logical_type), c.max_definition_level, c.max_repetition_level) for c in (leaf, two)
    ]
    return kinds[0] == kinds[1] and "." not in leaf.path


def chunk_span(chunk: pq.ColumnChunkMetaData) -> Span:
    """Return where a column's pages lie in the file."""
    return Span(_chunk_begin(chunk), chunk.total_compressed_size)


def _chunk_begin(chunk: pq.ColumnChunkMetaData) -> int:
    return int(chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset)


# ------------------------------------------------------------------------------------------- pages that a rewrite keeps


def keepable_chunks(
    metadata: pq.FileMetaData, schema: pa.Schema, codec: str, file_size: int
) -> list[Mapping[str, ChunkNote]]:
    """Return what a footer says of the columns whose pages another file can have as they are, row group by row group.

    Args:
        metadata: the footer of the file that has the pages, written by lakefmt.
        schema: the columns of the other file, as its writer stores them.
        codec: the compression of the other file.
        file_size: bytes of the file that has the pages.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if not metadata.created_by.startswith(_CREATED_BY_ARROW):
        return []
    leaves = _leaves_stored_alike(metadata, schema)
    try:
        noted = chunk_notes(_footer_written_again(metadata))
    except (InternalError, IndexError):  # a footer that Arrow reads may still hold what is not expected here
        return []
    if [len(notes) for notes in noted] != [metadata.num_columns] * len(groups):
        return []
    keepable: list[Mapping[str, ChunkNote]] = []
    for group, notes in zip(groups, noted, strict=True):
        keepable_notes: dict[str, ChunkNote] = {}
        for name, leaf in leaves.items():
            chunk, note = group.column(leaf), notes[leaf]
            if (
                note is not None
                and _has_codec_and_rows(chunk, group.num_rows, codec)
                and _is_within_file(note, file_size)
            ):
                keepable_notes[name] = note
        keepable.append(keepable_notes)
    return keepable


def _footer_written_again(metadata: pq.FileMetaData) -> bytes:
    sink = io.BytesIO()
    metadata.write_metadata_file(sink)
    return footer_of(sink.getbuffer())


def _leaves_stored_alike(metadata: pq.FileMetaData, schema: pa.Schema) -> dict[str, int]:
    """Return the plain nullable columns that both files store in the same way, with their numbers in the older one."""
    sink = io.BytesIO()
    # As the writer of base files has it, but for what does not change how a column is declared.
    with pq.ParquetWriter(sink, schema, store_schema=False, use_compliant_nested_type=True, version="2.6") as writer:
        pass
    new_metadata = writer.writer.metadata
    new_schema, old_schema = parquet_schema(new_metadata), parquet_schema(metadata)
    declared = {path: new_schema.column(leaf) for leaf, path in enumerate(leaf_paths(new_metadata))}
    equal = {}
    for leaf, path in enumerate(leaf_paths(metadata)):
        column, other = old_schema.column(leaf), declared.get(path)
        is_plain = "." not in path and (column.max_definition_level, column.max_repetition_level) == (1, 0)
        if other is not None and is_plain and column.equals(other):
            equal[path] = leaf
    return equal


def _has_codec_and_rows(chunk: pq.ColumnChunkMetaData, num_rows: int, codec: str) -> bool:
    compression = "UNCOMPRESSED" if codec == "none" else codec.upper()
    return bool(chunk.compression == compression and chunk.num_values == num_rows)


def _is_within_file(note: ChunkNote, file_size: int) -> bool:
    return note.size > 0 and are_within([Span(note.begin, note.size)], file_size)
