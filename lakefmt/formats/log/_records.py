"""Find and decode the records of an Avro data block (docs/format.md, Data blocks). Pure."""

from __future__ import annotations

import struct
from array import array
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lakefmt.errors import CorruptFile, UnsupportedFeature
from lakefmt.formats.avro.reader import Decode, compile_decoder
from lakefmt.schema.avro_tree import parse_avro_schema

__all__ = ["CONTENT_VERSION", "decode_avro_record", "record_spans", "split_avro_records"]

#: The content version of Avro data, delete and change blocks.
CONTENT_VERSION = 3

I64 = npt.NDArray[np.int64]

#: From this number of records on their offsets are searched from several starts in parallel
#: (minimum records, maximum starts).
_WORTH_LANES = 4096
_LEAST_LANE = 64
_MAX_LANES = 1024
#: The bytes of the first record to compare (mostly its commit time), and the window to search them
#: in.
_SAMPLE_BYTES = 16
_WINDOW = 4096

_PAIR = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")


def record_spans(content: bytes | memoryview, what: str) -> tuple[I64, I64]:
    r"""Return the start and end offsets of the records in an Avro data block, int64.

    Raises:
        CorruptFile: the lengths do not fit the bytes.
        UnsupportedFeature: the content version is not 1, 2 or 3.

    Source: docs/format.md, Data blocks.

    Example:
        >>> starts, ends = record_spans(bytes.fromhex("00000003 00000001 00000002 0661"), "a.log")
        >>> starts.tolist(), ends.tolist()
        ([12], [14])
    """
    size = len(content)
    if size < _PAIR.size:
        raise CorruptFile(f"{what}: data block of {size} bytes is too short")
    version, count = _PAIR.unpack_from(content)
    if version not in (1, 2, 3):
        raise UnsupportedFeature(f"{what}: data block with content version {version}; versions 1 to 3 are read")
    if not 0 <= count <= (size - _PAIR.size) // 4:
        raise CorruptFile(f"{what}: data block of {size} bytes announces {count} records")
    starts = _spans_by_lanes(content, count) if count >= _WORTH_LANES else None
    if starts is None:
        starts = _spans_one_by_one(content, count, what)
    # Only a length is between two records.
    return starts, np.append(starts[1:] - 4, size)[:count]


def _spans_one_by_one(content: bytes | memoryview, count: int, what: str) -> I64:
    starts, size = array("q"), len(content)
    offset, unpack, begin = _PAIR.size, _LENGTH.unpack_from, starts.append
    try:
        for _ in range(count):
            (length,) = unpack(content, offset)
            offset += 4
            begin(offset)
            offset += length
            if length < 0 or offset > size:
                raise CorruptFile(
                    f"{what}: record of {length} bytes at {offset - length} of a data block of {size} bytes"
                )
    except struct.error:
        raise CorruptFile(f"{what}: a data block of {size} bytes ends before its last record") from None
    if offset != size:
        raise CorruptFile(f"{what}: {size - offset} bytes behind the last record of a data block")
    return np.array(starts, np.int64)


def _spans_by_lanes(content: bytes | memoryview, count: int) -> I64 | None:
    """Return the record offsets, searched from several starts; None if a start was wrong.

    The first record's start is certain. Places that look like a record are further starts; if the
    walk from each start arrives exactly at the next, every start was one.
    """
    size = len(content)
    begins = _guesses(content, min(_MAX_LANES, count // _LEAST_LANE))
    limits = np.append(begins[1:], size)
    lengths = np.ndarray((size - 3,), ">i4", content, 0, (1,))
    offsets, starts, total = begins, [], 0
    while len(offsets):
        if int(offsets.max()) > size - 4:
            return None
        length = lengths[offsets].astype(np.int64)
        total += len(offsets)
        starts.append(offsets + 4)
        offsets = offsets + length + 4
        if (length < 0).any() or (offsets > limits).any() or total > count:
            return None
        going_on = offsets < limits
        if not going_on.all():
            offsets, limits = offsets[going_on], limits[going_on]
    return np.sort(np.concatenate(starts)) if total == count else None


def _guesses(content: bytes | memoryview, lanes: int) -> I64:
    """Return offsets where records seem to start: before bytes equal to the first record's."""
    size, first = len(content), _PAIR.size
    (length,) = _LENGTH.unpack_from(content, first)
    sample = bytes(content[first + 4 : first + 4 + min(max(length, 0), _SAMPLE_BYTES)])
    offsets = [first]
    for lane in range(1, lanes):
        cut = first + (size - first) * lane // lanes
        index = bytes(content[cut + 4 : cut + _WINDOW]).find(sample)
        if index >= 0 and cut + index > offsets[-1]:
            offsets.append(cut + index)
    return np.array(offsets, np.int64)


def split_avro_records(content: bytes, what: str) -> list[bytes]:
    r"""Return the records of an Avro data block as datums, for the few of an archive file.

    Raises:
        CorruptFile: the lengths do not fit the bytes.
        UnsupportedFeature: the content version is not 1, 2 or 3.

    Source: docs/format.md, Data blocks.

    Example:
        >>> split_avro_records(bytes.fromhex("00000003 00000001 00000002 0661"), "a.log")
        [b'\x06a']
    """
    spans = zip(*record_spans(content, what), strict=True)
    return [content[start:end] for start, end in spans]


def decode_avro_record(datum: bytes, schema: str, what: str, reader: str | None = None) -> dict[str, object]:
    r"""Return a record of an Avro data block as a dict.

    Parameters:
        datum: a record from :func:`split_avro_records`.
        schema: Avro JSON from the block's header.
        what: the file's name in errors.
        reader: Avro JSON of the result; None: that of the block.

    Raises:
        CorruptFile: the bytes are damaged or do not fit the schema.

    Source: docs/format.md, Data blocks.

    Example:
        >>> note = '{"type": "record", "name": "Note", "fields": [{"name": "text", "type": "string"}]}'
        >>> decode_avro_record(bytes.fromhex("0261"), note, "a.log")
        {'text': 'a'}
    """
    try:
        record, end = _decoder(schema, reader)(datum, 0)
    except IndexError:
        raise CorruptFile(f"{what}: a record of a data block ends too early") from None
    except ValueError as error:
        raise CorruptFile(f"{what}: damaged data block: {error}") from None
    if not isinstance(record, dict) or end != len(datum):
        raise CorruptFile(f"{what}: a record of a data block does not fit its schema")
    return record


@lru_cache(maxsize=32)
def _decoder(schema: str, reader: str | None) -> Decode:
    writer = parse_avro_schema(schema)
    return compile_decoder(writer, writer if reader is None else parse_avro_schema(reader))
