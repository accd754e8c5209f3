"""Both ends of what a reader of an HFile opens: the trailer of 4,096 bytes and the file info. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lakefmt.data_classes import dataclass
from lakefmt.errors import CorruptFile, UnsupportedFeature
from lakefmt.formats.hfile._blocks import Codec
from lakefmt.formats.hfile._protobuf import DamagedMessage, encode_fields, encode_varint, read_fields, read_varint

__all__ = ["TRAILER_BYTES", "Trailer", "encode_file_info", "encode_trailer", "read_file_info", "read_trailer"]

TRAILER_BYTES = 4096
_MAGIC = b'TRABLK"$'
_VERSION_BYTES = 4
_MAJOR_VERSION = 3
_COMPARATOR = b"org.apache.hudi.io.storage.HoodieHBaseKVComparator"
_INFO_MAGIC = b"PBUF"
#: Hudi writes a dozen.
_MAX_INFO_ENTRIES = 1024
_NO_OFFSET = (1 << 64) - 1

# Numbers of the fields of the trailer's message.
_FILE_INFO_OFFSET, _LOAD_ON_OPEN_OFFSET, _INDEX_BYTES = 1, 2, 3
_DATA_INDEX_COUNT, _META_INDEX_COUNT, _ENTRY_COUNT, _INDEX_LEVELS = 5, 6, 7, 8
_FIRST_DATA_OFFSET, _LAST_DATA_OFFSET, _COMPARATOR_NAME, _COMPRESSION = 9, 10, 11, 12


@dataclass(frozen=True, slots=True)
class Trailer:
    """What the end of the file says.

    Attributes:
        load_on_open_offset: where the root index begins; the index of meta blocks and the file info follow it.
        file_info_offset: where the file info begins; only written, its place follows from the blocks before it.
        data_index_count: entries of the root index.
        meta_index_count: entries of the index of meta blocks.
        entry_count: records of the file.
        index_levels: 1 when the root index names data blocks, one more for each level of indexes below it.
        codec: how payloads are compressed.
        last_data_offset: where the last data block begins; None: there is none. Only written.
        index_bytes: bytes of the root index. Only written.
    """

    load_on_open_offset: int
    file_info_offset: int
    data_index_count: int
    meta_index_count: int
    entry_count: int
    index_levels: int
    codec: Codec
    last_data_offset: int | None = None
    index_bytes: int = 0


def read_trailer(data: bytes, what: str) -> Trailer:
    """Return the trailer, whose bytes are all of `data`.

    Raises:
        CorruptFile: it is none.
        UnsupportedFeature: the file has another major version.
    """
    if len(data) != TRAILER_BYTES or not data.startswith(_MAGIC):
        raise CorruptFile(f"{what}: no HFile, or one that was cut off: it does not end in a trailer")
    major = int.from_bytes(data[-_VERSION_BYTES + 1 :], "big")
    if major != _MAJOR_VERSION:
        raise UnsupportedFeature(f"{what}: an HFile of version {major}; version {_MAJOR_VERSION} is read")
    try:
        size, begin = read_varint(data, len(_MAGIC))
        if size > TRAILER_BYTES - _VERSION_BYTES - begin:
            raise DamagedMessage("it is longer than the trailer")
        fields = {number: value for number, value in read_fields(data[begin : begin + size]) if isinstance(value, int)}
    except DamagedMessage as error:
        raise CorruptFile(f"{what}: its trailer is damaged: {error}") from None
    missing = [n for n in (_LOAD_ON_OPEN_OFFSET, _DATA_INDEX_COUNT, _ENTRY_COUNT) if n not in fields]
    if missing:
        raise CorruptFile(f"{what}: its trailer lacks the fields {missing}")
    return Trailer(
        fields[_LOAD_ON_OPEN_OFFSET],
        fields.get(_FILE_INFO_OFFSET, 0),
        fields[_DATA_INDEX_COUNT],
        fields.get(_META_INDEX_COUNT, 0),
        fields[_ENTRY_COUNT],
        fields.get(_INDEX_LEVELS, 1),
        _codec(fields.get(_COMPRESSION, Codec.NONE), what),
    )


def _codec(number: int, what: str) -> Codec:
    try:
        return Codec(number)
    except ValueError:
        raise UnsupportedFeature(f"{what}: unknown compression codec {number}") from None


def encode_trailer(trailer: Trailer) -> bytes:
    """Return the trailer as the last bytes of a file."""
    last = trailer.last_data_offset
    message = encode_fields(
        [
            (_FILE_INFO_OFFSET, trailer.file_info_offset),
            (_LOAD_ON_OPEN_OFFSET, trailer.load_on_open_offset),
            (_INDEX_BYTES, trailer.index_bytes),
            (_DATA_INDEX_COUNT, trailer.data_index_count),
            (_META_INDEX_COUNT, trailer.meta_index_count),
            (_ENTRY_COUNT, trailer.entry_count),
            (_INDEX_LEVELS, trailer.index_levels),
            (_FIRST_DATA_OFFSET, _NO_OFFSET if last is None else 0),
            (_LAST_DATA_OFFSET, 0 if last is None else last),
            (_COMPARATOR_NAME, _COMPARATOR),
            (_COMPRESSION, trailer.codec),
        ]
    )
    head = _MAGIC + encode_varint(len(message)) + message
    return head.ljust(TRAILER_BYTES - _VERSION_BYTES, b"\0") + _MAJOR_VERSION.to_bytes(_VERSION_BYTES, "big")


def read_file_info(payload: bytes, what: str) -> dict[str, bytes]:
    """Return the entries of the file info.

    Raises:
        CorruptFile: the payload is none.
    """
    entries: dict[str, bytes] = {}
    try:
        if not payload.startswith(_INFO_MAGIC):
            raise DamagedMessage("it does not begin with PBUF")
        size, begin = read_varint(payload, len(_INFO_MAGIC))
        if size > len(payload) - begin:
            raise DamagedMessage("it is cut off")
        for number, (_, entry) in enumerate(read_fields(payload[begin : begin + size])):
            if number >= _MAX_INFO_ENTRIES or not isinstance(entry, bytes):
                raise DamagedMessage("its entries are no pairs, or too many")
            pair = {field: part for field, part in read_fields(entry) if isinstance(part, bytes)}
            entries[pair.get(1, b"").decode()] = pair.get(2, b"")
    except (DamagedMessage, UnicodeDecodeError) as error:
        raise CorruptFile(f"{what}: its file info is damaged: {error}") from None
    return entries


def encode_file_info(entries: Mapping[str, bytes]) -> bytes:
    """Return the payload of the file info."""
    message = encode_fields((1, encode_fields([(1, key.encode()), (2, value)])) for key, value in entries.items())
    return _INFO_MAGIC + encode_varint(len(message)) + message
