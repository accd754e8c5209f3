"""Parquet footers as bytes: a column's chunk takes the place of another in a row group (Thrift's compact protocol). Pure.

Arrow writes a footer whole and lets nobody change it. Only what is asked for is taken apart, everything else is copied as it
is. Only footers that this process has just written come here: a footer of somebody else's is Arrow's to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from lakefmt.errors import InternalError

__all__ = ["MAGIC", "ChunkNote", "ChunkPlace", "footer_of", "note_chunk", "place_chunks", "with_length"]

MAGIC: Final = b"PAR1"
_LENGTH_BYTES: Final = 4

# Kinds of Thrift's compact protocol.
_INTEGERS, _I64, _BINARY, _LISTS, _STRUCT = (4, 5, 6), 6, 8, (9, 10), 12
_TRUTHS = (1, 2)
#: Bytes of values of one size; truth is told by the kind of a field.
_FIXED = {1: 0, 2: 0, 3: 1, 7: 8}
_STOP = 0
_MORE = 0x80
_LONG_LIST = 15

# Numbers of fields in parquet.thrift.
_FILE_ROW_GROUPS = 4
_GROUP_COLUMNS, _GROUP_BYTES, _GROUP_COMPRESSED = 1, 2, 6
_CHUNK_OFFSET, _CHUNK_META = 2, 3
_META_PATH, _META_UNCOMPRESSED, _META_COMPRESSED, _META_DATA_PAGE, _META_DICTIONARY_PAGE = 3, 6, 7, 9, 11


Span = tuple[int, int]


class _Field(NamedTuple):
    """A field of a struct: where its value begins and ends, and where the structs of a list do."""

    number: int
    kind: int
    start: int
    end: int
    items: list[Span]


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
    ((start, end),) = _only(group, _GROUP_COLUMNS).items
    meta = _meta(footer[start:end])
    begin = min(meta[at] for at in (_META_DATA_PAGE, _META_DICTIONARY_PAGE) if at in meta)
    return ChunkNote(footer[start:end], begin, meta[_META_COMPRESSED])


def place_chunks(footer: bytes, placed: Mapping[int, Mapping[int, ChunkPlace]]) -> bytes:
    """Return a footer in which chunks are others.

    Args:
        footer: as Arrow wrote it.
        placed: by row group and column, each by its number, what is there now.
    """
    groups, (start, end) = _row_groups(footer)
    made = [_struct(footer, group, _placed(footer, group, placed.get(at, {}))) for at, group in enumerate(groups)]
    return b"".join([footer[:start], _list(made), footer[end:]])


def _placed(footer: bytes, group: Sequence[_Field], placed: Mapping[int, ChunkPlace]) -> dict[int, bytes]:
    """Return what is said anew of a row group."""
    chunks = [footer[start:end] for start, end in _only(group, _GROUP_COLUMNS).items]
    grown = {_META_UNCOMPRESSED: 0, _META_COMPRESSED: 0}
    for number, place in placed.items():
        before, after = _meta(chunks[number]), _meta(place.note.described)
        grown = {size: grown[size] + after[size] - before[size] for size in grown}
        chunks[number] = _described(place)
    changed = {_GROUP_COLUMNS: _list(chunks)}
    for total, size in ((_GROUP_BYTES, _META_UNCOMPRESSED), (_GROUP_COMPRESSED, _META_COMPRESSED)):
        field = next((one for one in group if one.number == total), None)
        if field is not None:  # the second one may be left out
            changed[total] = _encode_integer(_integer(footer, field.start) + grown[size])
    return changed


def _described(place: ChunkPlace) -> bytes:
    """Return what a footer says of a chunk that was moved and renamed."""
    chunk, moved = place.note.described, place.begin - place.note.begin
    outer = _fields(chunk)
    inner = _fields(chunk, _only(outer, _CHUNK_META).start)
    name = place.name.encode()
    said = {_META_PATH: _list([_encode_number(len(name)) + name], _BINARY)}
    for one in inner:
        if one.number in (_META_DATA_PAGE, _META_DICTIONARY_PAGE):
            said[one.number] = _encode_integer(_integer(chunk, one.start) + moved)
    changed = {_CHUNK_META: _struct(chunk, inner, said)}
    offset = _integer(chunk, _only(outer, _CHUNK_OFFSET).start)
    if offset:  # some versions of Arrow say 0
        changed[_CHUNK_OFFSET] = _encode_integer(offset + moved)
    return _struct(chunk, outer, changed)


def _meta(chunk: bytes) -> dict[int, int]:
    """Return the 64-bit numbers that a footer says of a chunk, by their fields."""
    start = _only(_fields(chunk), _CHUNK_META).start
    return {one.number: _integer(chunk, one.start) for one in _fields(chunk, start) if one.kind == _I64}


def _only(fields: Iterable[_Field], number: int) -> _Field:
    found = next((one for one in fields if one.number == number), None)
    if found is None:
        raise InternalError(f"a Parquet footer that was just written lacks its field {number}")
    return found


def _row_groups(footer: bytes) -> tuple[list[list[_Field]], Span]:
    """Return the fields of each row group, and where the list of them begins and ends."""
    start = _only(_fields(footer, stop=_FILE_ROW_GROUPS), _FILE_ROW_GROUPS).start
    count, at = _count(footer, start)
    groups = []
    for _ in range(count):
        groups.append(_fields(footer, at))
        at = groups[-1][-1].end + 1
    return groups, (start, at)


def _fields(data: bytes, at: int = 0, stop: int = 0) -> list[_Field]:
    """Return the fields of the struct that begins at a byte; the field `stop`, the last one then, is not gone through."""
    found, number = [], 0
    while (head := data[at]) != _STOP:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at), _after_number(data, at)
        items: list[Span] = []
        end = at if number == stop else _after(data, at, head & 15, items)
        found.append(_Field(number, head & 15, at, end, items))
        if number == stop:
            break
        at = end
    return found


def _after(data: bytes, at: int, kind: int, items: list[Span] | None = None) -> int:
    """Return where a value ends; where the structs of a list begin and end goes into `items`."""
    if kind in _INTEGERS:
        return _after_number(data, at)
    if kind == _STRUCT:
        return _after_struct(data, at)
    if kind == _BINARY:
        return _after_number(data, at) + _number(data, at)
    if kind in _LISTS:
        return _after_list(data, at, items)
    if kind in _FIXED:
        return at + _FIXED[kind]
    raise InternalError(f"a Parquet footer that was just written has a value of kind {kind}")


def _after_struct(data: bytes, at: int) -> int:
    # Asked of some hundred structs with a thousand fields per file: the usual kinds are looked at here.
    while (head := data[at]) != _STOP:
        at += 1
        if head < 1 << 4:
            at = _after_number(data, at)
        kind = head & 15
        if 4 <= kind <= 6:
            while data[at] >= _MORE:
                at += 1
            at += 1
        elif kind == _STRUCT:
            at = _after_struct(data, at)
        elif kind == _BINARY and data[at] < _MORE:
            at += 1 + data[at]
        else:
            at = _after(data, at, kind)
    return at + 1


def _after_list(data: bytes, at: int, items: list[Span] | None) -> int:
    kind = data[at] & 15
    count, at = _count(data, at)
    for _ in range(count):
        end = at + 1 if kind in _TRUTHS else _after(data, at, kind)
        if items is not None and kind == _STRUCT:
            items.append((at, end))
        at = end
    return at


def _count(data: bytes, at: int) -> tuple[int, int]:
    """Return the number of items of a list, and where the first begins."""
    count = data[at] >> 4
    return (count, at + 1) if count != _LONG_LIST else (_number(data, at + 1), _after_number(data, at + 1))


def _after_number(data: bytes, at: int) -> int:
    while data[at] >= _MORE:
        at += 1
    return at + 1


def _number(data: bytes, at: int) -> int:
    found = shift = 0
    while (byte := data[at]) >= _MORE:
        found |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return found | byte << shift


def _integer(data: bytes, at: int) -> int:
    found = _number(data, at)
    return found >> 1 ^ -(found & 1)


def _encode_number(number: int) -> bytes:
    made = bytearray()
    while number >= _MORE:
        made.append(number & 0x7F | _MORE)
        number >>= 7
    made.append(number)
    return bytes(made)


def _encode_integer(number: int) -> bytes:
    return _encode_number(number << 1 if number >= 0 else (-number << 1) - 1)


def _list(items: list[bytes], kind: int = _STRUCT) -> bytes:
    count = len(items)
    head = bytes([count << 4 | kind]) if count < _LONG_LIST else bytes([0xF0 | kind]) + _encode_number(count)
    return head + b"".join(items)


def _struct(data: bytes, fields: Iterable[_Field], changed: Mapping[int, bytes]) -> bytes:
    """Return a struct with some of its values changed."""
    made, last = [], 0
    for one in fields:
        step = one.number - last
        last = one.number
        made.append(bytes([step << 4 | one.kind]) if 0 < step < 16 else bytes([one.kind]) + _encode_integer(last))
        made.append(changed.get(one.number, data[one.start : one.end]))
    return b"".join([*made, bytes([_STOP])])
