r"""Avro object container files: how plans, commits and other bodies of the timeline are stored (docs/format.md, Avro records of the timeline).

A container is a header (magic, metadata with the writer's schema, a sync marker) and blocks of records, each followed
by the marker. lakefmt writes one record without compression and nothing but ``avro.schema`` in the header, as Hudi
does, and reads what other codecs and several blocks make of it. Pure: bytes in, values out.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache

import pyarrow as pa

from lakefmt._core.formats.avro.values import Decode, Encode, compile_decoder, compile_encoder, encode_long, read_long
from lakefmt._core.schema.avro import AvroType, MalformedAvro, parse_avro_schema
from lakefmt.errors import CorruptFile, InvalidInputError, UnsupportedFeature

__all__ = ["MAGIC", "decode_container", "decode_container_records", "encode_container"]

#: The first four bytes of a container.
MAGIC = b"Obj\x01"
_SYNC_BYTES = 16

#: A block may grow to one mebibyte, or to this many times its stored size, when it is decompressed.
_MAX_EXPANSION = 64
_FREE_EXPANSION = 1024 * 1024

#: Schemas longer than this are compiled anew each time: a cache of them could hold too much memory.
_CACHED_SCHEMA_BYTES = 64 * 1024


def encode_container(schema: Mapping[str, object] | str, record: Mapping[str, object]) -> bytes:
    """Return a container with one record; equal arguments give equal bytes.

    Parameters:
        schema: an Avro record schema, as JSON text (compiled once) or as its dictionary.
        record: fields by name; a field may be left out when the schema has a default for it.

    Raises:
        InvalidInputError: the record does not fit the schema, or the schema is not one.

    Example:
        >>> schema = '{"type": "record", "name": "Note", "fields": [{"name": "text", "type": "string"}]}'
        >>> decode_container(encode_container(schema, {"text": "hello"}))
        {'text': 'hello'}
    """
    schema_text = schema if isinstance(schema, str) else json.dumps(schema, separators=(",", ":"))
    parts: list[bytes] = []
    try:
        header, write = _writer(schema_text)
        write(parts.append, record)
    except ValueError as error:
        raise InvalidInputError(f"record does not fit its schema: {error}") from error
    body = b"".join(parts)
    # The marker only has to be unlikely inside the body; made from the content it is the same in every run.
    sync = hashlib.blake2b(body, digest_size=_SYNC_BYTES, key=hashlib.blake2b(header, digest_size=32).digest()).digest()
    return b"".join((header, sync, encode_long(1), encode_long(len(body)), body, sync))


def decode_container(
    data: bytes,
    *,
    reader: str | None = None,
    as_tuples: frozenset[str] = frozenset(),
    what: str = "Avro container",
) -> dict[str, object]:
    """Return the one record of a container.

    Parameters:
        data: the whole file.
        reader: the Avro schema, as JSON text, of the shape that is wanted: fields it does not name are left out, fields
            that were not stored get its defaults. None: the shape that was stored.
        as_tuples: short names of inner records that come as tuples, in the order of the reader's fields.
        what: how the file is named in errors.

    Raises:
        CorruptFile: it is not a container, damaged, of another shape, or holds no or several records.
        UnsupportedFeature: its compression codec is unknown.

    See :func:`encode_container` for an example.
    """
    records = decode_container_records(data, 1, reader=reader, as_tuples=as_tuples, what=what)
    if not records:
        raise CorruptFile(f"{what}: Avro container without a record")
    return records[0]


def decode_container_records(
    data: bytes,
    max_records: int,
    *,
    reader: str | None = None,
    as_tuples: frozenset[str] = frozenset(),
    what: str = "Avro container",
) -> list[dict[str, object]]:
    """Return the records of a container, `max_records` at most; otherwise like :func:`decode_container`.

    Example:
        >>> schema = '{"type": "record", "name": "Note", "fields": [{"name": "text", "type": "string"}]}'
        >>> decode_container_records(encode_container(schema, {"text": "hello"}), 10)
        [{'text': 'hello'}]
    """
    try:
        return _decode(data, max_records, reader, as_tuples)
    except IndexError:
        raise CorruptFile(f"{what}: Avro container ends too early, after {len(data):,} bytes") from None
    except ValueError as error:
        raise CorruptFile(f"{what}: damaged Avro container: {error}") from None


def _decode(data: bytes, max_records: int, reader: str | None, as_tuples: frozenset[str]) -> list[dict[str, object]]:
    header, pos = _read_header(data)
    schema = header.get("avro.schema")
    if schema is None:
        raise MalformedAvro("no schema in the header")
    codec = header.get("avro.codec", b"null").decode()
    make = _reader if len(schema) <= _CACHED_SCHEMA_BYTES else _make_reader
    read = make(schema, reader, as_tuples)
    records: list[dict[str, object]] = []
    for count, payload in _blocks(data, pos):
        block = _decompress(codec, payload)
        if not 0 <= count <= min(max_records - len(records), len(block)):
            raise MalformedAvro(f"{count} records in {len(block)} bytes, at most {max_records} expected")
        _read_records(block, count, read, records)
    return records


def _read_header(data: bytes) -> tuple[dict[str, bytes], int]:
    if not data.startswith(MAGIC):
        raise MalformedAvro("it does not begin with Obj and 1")
    values, pos = _HEADER(data, len(MAGIC))
    if not isinstance(values, dict):  # what the schema of the header promises
        raise MalformedAvro("no header")
    return values, pos


def _blocks(data: bytes, pos: int) -> Iterator[tuple[int, bytes]]:
    """Yield record count and bytes of every block behind the header, whose sync marker is at `pos`."""
    sync = data[pos : pos + _SYNC_BYTES]
    pos += _SYNC_BYTES
    if pos > len(data):
        raise IndexError
    while pos < len(data):
        count, pos = read_long(data, pos)
        size, pos = read_long(data, pos)
        end = pos + size
        if size < 0 or end + _SYNC_BYTES > len(data):
            raise MalformedAvro(f"block of {size} bytes at {pos}, {len(data) - pos} bytes left")
        if data[end : end + _SYNC_BYTES] != sync:
            raise MalformedAvro(f"no sync marker at {end}")
        yield count, data[pos:end]
        pos = end + _SYNC_BYTES


def _read_records(block: bytes, count: int, read: Decode, records: list[dict[str, object]]) -> None:
    pos = 0
    for _ in range(count):
        record, pos = read(block, pos)
        if not isinstance(record, dict):
            raise MalformedAvro("its values are not records")
        records.append(record)
    if pos != len(block):
        raise MalformedAvro(f"{len(block) - pos} bytes behind the last record of a block")


# ------------------------------------------------------------------------------------------------------ compiled once

_HEADER_SCHEMA = parse_avro_schema('{"type": "map", "values": "bytes"}')
_HEADER = compile_decoder(_HEADER_SCHEMA, _HEADER_SCHEMA)


@lru_cache(maxsize=64)
def _schema(schema_text: str) -> AvroType:
    return parse_avro_schema(schema_text)


@lru_cache(maxsize=64)
def _reader(schema: bytes, reader: str | None, as_tuples: frozenset[str]) -> Decode:
    return _make_reader(schema, reader, as_tuples)


def _make_reader(schema: bytes, reader: str | None, as_tuples: frozenset[str]) -> Decode:
    writer = parse_avro_schema(schema.decode())
    return compile_decoder(writer, writer if reader is None else _schema(reader), as_tuples)


@lru_cache(maxsize=64)
def _writer(schema_text: str) -> tuple[bytes, Encode]:
    """Return the header up to the sync marker, and the function that writes the record."""
    schema = _schema(schema_text)
    if schema.kind != "record" or not schema.fields:
        raise MalformedAvro(f"a {schema.kind} of {len(schema.fields)} fields is no record that can be stored")
    raw = schema_text.encode()
    key = b"avro.schema"
    entry = encode_long(len(key)) + key + encode_long(len(raw)) + raw
    return MAGIC + encode_long(1) + entry + encode_long(0), compile_encoder(schema)


# --------------------------------------------------------------------------------------------------------- compression


def _decompress(codec: str, payload: bytes) -> bytes:
    """Return a block as it was before compression, bounded before it is made."""
    if codec == "null":
        return payload
    limit = max(_FREE_EXPANSION, _MAX_EXPANSION * len(payload))
    if codec == "deflate":
        return _inflate(payload, limit)
    try:
        if codec == "snappy":
            return _decompress_snappy(payload, limit)
        if codec == "zstandard":
            return _decompress_zstandard(payload, limit)
    except (OSError, pa.ArrowException) as error:
        raise MalformedAvro(f"{codec}: {error}") from None
    raise UnsupportedFeature(f"Avro container with codec {codec!r}; null, deflate, snappy and zstandard are read")


def _inflate(payload: bytes, limit: int) -> bytes:
    decompressor = zlib.decompressobj(-15)
    try:
        block = decompressor.decompress(payload, limit)
    except zlib.error as error:
        raise MalformedAvro(f"deflate: {error}") from None
    # Some writers leave part of a checksum behind the stream; what counts is that the stream has an end.
    if not decompressor.eof:
        raise MalformedAvro(f"deflate: not a whole stream of at most {limit:,} bytes")
    return block


def _decompress_snappy(payload: bytes, limit: int) -> bytes:
    """Return the block; its size stands in front of the stream and its CRC-32 behind."""
    stream, checksum = payload[:-4], payload[-4:]
    size = _snappy_size(stream)
    if size > limit:
        raise MalformedAvro(f"snappy: {size:,} bytes announced, at most {limit:,} are read")
    block: bytes = pa.Codec("snappy").decompress(stream, decompressed_size=size, asbytes=True)
    if zlib.crc32(block).to_bytes(4, "big") != checksum:
        raise MalformedAvro("snappy: wrong checksum")
    return block


def _snappy_size(stream: bytes) -> int:
    size = 0
    for position, byte in enumerate(stream[:5]):
        size |= (byte & 127) << (7 * position)
        if byte < 128:
            return size
    raise MalformedAvro("snappy: no size")


def _decompress_zstandard(payload: bytes, limit: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(payload), "zstd") as stream:
        block: bytes = stream.read(limit)
        if stream.read(1):
            raise MalformedAvro(f"zstandard: more than {limit:,} bytes")
    return block
