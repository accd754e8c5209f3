"""The records of an Avro data block: where each begins, and single ones as values (spec 7.4, 7.5). Pure."""

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

#: What contents of Avro data, deletes and changes begin with (spec 7.4).
CONTENT_VERSION = 3

I64 = npt.NDArray[np.int64]

#: From so many records on they are looked for from several places at once; the fewest records and the most lanes.
_WORTH_LANES = 4096
_LEAST_LANE = 64
_MAX_LANES = 1024
#: What is compared of the first record (its commit time, mostly), and how far such bytes are looked for.
_SAMPLE_BYTES = 16
_WINDOW = 4096

_PAIR = struct.Struct(">ii")
_LENGTH = struct.Struct(">i")


def record_spans(content: bytes | memoryview, what: str) -> tuple[I64, I64]:
    r"""Return where the records of an Avro data block's content begin and end.

    Raises:
        CorruptFile: the lengths do not fit the bytes.
        UnsupportedFeature: the content version is not 1, 2 or 3.

    Spec 7.4, 7.5.

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
    # Between two records there is nothing but a length.
    return starts, np.append(starts[1:] - 4, size)[:count]


def _spans_one_by_one(content: bytes | memoryview, count: int, what: str) -> I64:
    starts, size = array("q"), len(content)
    at, unpack, begin = _PAIR.size, _LENGTH.unpack_from, starts.append
    try:
        for _ in range(count):
            (length,) = unpack(content, at)
            at += 4
            begin(at)
            at += length
            if length < 0 or at > size:
                raise CorruptFile(f"{what}: record of {length} bytes at {at - length} of a data block of {size} bytes")
    except struct.error:
        raise CorruptFile(f"{what}: a data block of {size} bytes ends before its last record") from None
    if at != size:
        raise CorruptFile(f"{what}: {size - at} bytes behind the last record of a data block")
    return np.array(starts, np.int64)


def _spans_by_lanes(content: bytes | memoryview, count: int) -> I64 | None:
    """Return where the records begin, found from many places at once; None when the guesses were wrong.

    The first record begins where it must. Records that look like it are taken for the beginnings of further lanes; when
    every lane runs exactly into the next one's beginning, each beginning was one.
    """
    size = len(content)
    begins = _guesses(content, min(_MAX_LANES, count // _LEAST_LANE))
    limits = np.append(begins[1:], size)
    lengths = np.ndarray((size - 3,), ">i4", content, 0, (1,))
    at, starts, found = begins, [], 0
    while len(at):
        if int(at.max()) > size - 4:
            return None
        length = lengths[at].astype(np.int64)
        found += len(at)
        starts.append(at + 4)
        at = at + length + 4
        if (length < 0).any() or (at > limits).any() or found > count:
            return None
        going_on = at < limits
        if not going_on.all():
            at, limits = at[going_on], limits[going_on]
    return np.sort(np.concatenate(starts)) if found == count else None


def _guesses(content: bytes | memoryview, lanes: int) -> I64:
    """Return offsets where records seem to begin: before bytes like those that the first record begins with."""
    size, first = len(content), _PAIR.size
    (length,) = _LENGTH.unpack_from(content, first)
    sample = bytes(content[first + 4 : first + 4 + min(max(length, 0), _SAMPLE_BYTES)])
    found = [first]
    for lane in range(1, lanes):
        cut = first + (size - first) * lane // lanes
        at = bytes(content[cut + 4 : cut + _WINDOW]).find(sample)
        if at >= 0 and cut + at > found[-1]:
            found.append(cut + at)
    return np.array(found, np.int64)


def split_avro_records(content: bytes, what: str) -> list[bytes]:
    r"""Return the records of an Avro data block's content, each as its datum: for the few of an archive file.

    Raises:
        CorruptFile: the lengths do not fit the bytes.
        UnsupportedFeature: the content version is not 1, 2 or 3.

    Spec 7.4, 7.5.

    Example:
        >>> split_avro_records(bytes.fromhex("00000003 00000001 00000002 0661"), "a.log")
        [b'\x06a']
    """
    spans = zip(*record_spans(content, what), strict=True)
    return [content[start:end] for start, end in spans]


def decode_avro_record(datum: bytes, schema: str, what: str, reader: str | None = None) -> dict[str, object]:
    r"""Return one record of an Avro data block as a dictionary.

    Parameters:
        datum: the record, one of those that :func:`split_avro_records` finds.
        schema: the Avro schema in the block's header, as JSON text.
        what: how the file is named in errors.
        reader: the Avro schema of the shape that is wanted; None: the shape that was stored.

    Raises:
        CorruptFile: the bytes are damaged or do not fit the schema.

    Spec 7.5.

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
