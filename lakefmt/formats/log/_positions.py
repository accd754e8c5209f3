"""Record positions of a log block: 64-bit numbers as Roaring bitmap in Base64 (docs/format.md, Record positions). Pure.

The bytes are those of ``Roaring64NavigableMap.serializePortable`` after ``runOptimize``: numbers
are grouped by their upper 32 bits, then by the next 16 bits into containers of the lowest 16, each
in the smallest of three forms: numbers, bitmap, runs. A container is one array operation.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from lakefmt.errors import CorruptFile, InvalidInputError

__all__ = ["decode_positions", "encode_positions"]

I64 = npt.NDArray[np.int64]
_U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]

_NO_RUNS = 12346
_WITH_RUNS = 12347
#: With runs, container offsets are omitted below this number of containers.
_OFFSETS_FROM = 4
_MAX_ARRAY = 4096
_BITMAP_BYTES = 8192
_MAX_POSITION = 1 << 62
#: Maximum number of decoded positions: no file has more rows, and runs make many from few bytes.
_MAX_POSITIONS = 1 << 31
_ARRAY, _BITMAP, _RUNS = range(3)


def encode_positions(positions: I64) -> str:
    """Return the text of a set of positions.

    Parameters:
        positions: row numbers in the base file, ascending without repetition.

    Raises:
        InvalidInputError: not ascending, or out of range.

    Source: docs/format.md, Record positions.

    Example:
        >>> encode_positions(np.array([1, 5, 9]))
        'AQAAAAAAAAAAAAAAOjAAAAEAAAAAAAIAEAAAAAEABQAJAA=='
    """
    if len(positions) and not (positions[0] >= 0 and positions[-1] < _MAX_POSITION and (np.diff(positions) > 0).all()):
        raise InvalidInputError("record positions must ascend from 0 on, none twice")
    if len(positions) and positions[-1] < 1 << 16:  # as in most base files: one container
        buckets = [_containers(0, [(0, positions.astype("<u2"))])]
    else:
        buckets = [_bitmap(key, low) for key, low in _split(positions, 32)]
    return base64.b64encode(struct.pack("<Q", len(buckets)) + b"".join(buckets)).decode()


def _split(numbers: npt.NDArray[np.integer], bits: int) -> list[tuple[int, npt.NDArray[np.integer]]]:
    """Return the runs of ascending numbers with equal upper bits, each with these bits."""
    keys = numbers >> bits
    bounds = np.flatnonzero(np.diff(keys)) + 1
    return [(int(part[0] >> bits), part & ((1 << bits) - 1)) for part in np.split(numbers, bounds) if len(part)]


def _bitmap(key: int, numbers: npt.NDArray[np.integer]) -> bytes:
    return _containers(key, [(high, low.astype("<u2")) for high, low in _split(numbers, 16)])


def _containers(key: int, parts: Sequence[tuple[int, _U16]]) -> bytes:
    bodies = [_container(low) for _, low in parts]
    count = len(parts)
    has_runs = any(form == _RUNS for form, _ in bodies)
    if has_runs:
        are_runs = np.array([form == _RUNS for form, _ in bodies])
        head = struct.pack("<I", _WITH_RUNS | count - 1 << 16) + np.packbits(are_runs, bitorder="little").tobytes()
    else:
        head = struct.pack("<II", _NO_RUNS, count)
    head += b"".join(struct.pack("<HH", high, len(low) - 1) for high, low in parts)
    if count >= _OFFSETS_FROM or not has_runs:
        sizes = accumulate((len(body) for _, body in bodies[:-1]), initial=len(head) + 4 * count)
        head += struct.pack(f"<{count}I", *sizes)
    return struct.pack("<I", key) + head + b"".join(body for _, body in bodies)


def _container(low: _U16) -> tuple[int, bytes]:
    """Return the smallest form of a container and its bytes."""
    breaks = low[1:] - low[:-1] != 1
    size = min(2 * len(low), _BITMAP_BYTES)
    if 2 + 4 * (1 + np.count_nonzero(breaks)) < size:
        starts = np.concatenate([[0], np.flatnonzero(breaks) + 1])
        first = low[starts]
        lengths = np.diff(np.concatenate([starts, [len(low)]])) - 1
        runs = np.stack([first, lengths.astype("<u2")], axis=1)
        return _RUNS, struct.pack("<H", len(starts)) + runs.tobytes()
    if len(low) <= _MAX_ARRAY:
        return _ARRAY, low.tobytes()
    flags = np.zeros(1 << 16, np.bool_)
    flags[low] = True
    return _BITMAP, np.packbits(flags, bitorder="little").tobytes()


# --------------------------------------------------------------------------------------------------------- decoding


def decode_positions(text: str, most: int, what: str = "record positions") -> I64:
    """Return the positions in a header's text, ascending.

    Parameters:
        text: the header's value.
        most: maximum number of positions, such as the records of the block.
        what: the file's name in errors.

    Raises:
        CorruptFile: the text is damaged or has more positions.

    Source: docs/format.md, Record positions.

    Example:
        >>> decode_positions("AgAAAAAAAAAAAAAAOjAAAAEAAAAAAAAAEAAAAAMAAQAAADowAAABAAAAAAAAABAAAAAHAA==", 2).tolist()
        [3, 4294967303]
    """
    try:
        data = base64.b64decode(text, validate=True)
        return _Reader(data, min(most, _MAX_POSITIONS)).read()
    except (binascii.Error, ValueError, struct.error) as error:
        raise CorruptFile(f"{what}: damaged record positions: {error}") from None


class _Reader:
    """Reads one set; lengths are checked against the remaining bytes and the expected number of positions."""

    def __init__(self, data: bytes, most: int) -> None:
        self._data = data
        self._at = 0
        self._left = most

    def read(self) -> I64:
        (buckets,) = struct.unpack("<Q", self._take(8))
        if buckets > len(self._data) // 8:
            raise ValueError(f"{buckets} bitmaps in {len(self._data)} bytes")
        parts = [np.empty(0, np.int64)]
        last = -1
        for _ in range(buckets):
            (key,) = struct.unpack("<I", self._take(4))
            if not last < key < _MAX_POSITION >> 32:
                raise ValueError(f"bitmap {key} is out of order")
            last = key
            parts += [(key << 32) + low for low in self._bitmap()]
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes are left")
        return np.concatenate(parts)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError("it ends too early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _bitmap(self) -> list[I64]:
        (cookie,) = struct.unpack("<I", self._take(4))
        if cookie & 0xFFFF == _WITH_RUNS:
            count = (cookie >> 16) + 1
            flags = np.unpackbits(np.frombuffer(self._take(-(-count // 8)), np.uint8), bitorder="little")[:count]
        elif cookie == _NO_RUNS:
            (count,) = struct.unpack("<I", self._take(4))
            if count > 1 << 16:
                raise ValueError(f"{count} containers")
            flags = np.zeros(count, np.uint8)
        else:
            raise ValueError(f"cookie {cookie:#x}")
        keys = np.frombuffer(self._take(4 * count), "<u2").astype(np.int64).reshape(-1, 2)
        if (np.diff(keys[:, 0]) <= 0).any():
            raise ValueError("containers are out of order")
        if count >= _OFFSETS_FROM or cookie == _NO_RUNS:
            self._take(4 * count)
        pairs = zip(keys, flags, strict=True)
        return [(int(key) << 16) + self._container(int(size) + 1, bool(is_run)) for (key, size), is_run in pairs]

    def _container(self, count: int, is_run: bool) -> I64:
        self._left -= count
        if self._left < 0:
            raise ValueError("there are more positions than records")
        if is_run:
            values = self._runs(count)
        elif count <= _MAX_ARRAY:
            values = np.frombuffer(self._take(2 * count), "<u2").astype(np.int64)
        else:
            bits = np.unpackbits(np.frombuffer(self._take(_BITMAP_BYTES), np.uint8), bitorder="little")
            values = np.flatnonzero(bits)
        if len(values) != count or (np.diff(values) <= 0).any():
            raise ValueError("a container does not hold what it says")
        return values

    def _runs(self, count: int) -> I64:
        (number,) = struct.unpack("<H", self._take(2))
        runs = np.frombuffer(self._take(4 * number), "<u2").astype(np.int64).reshape(-1, 2)
        lengths = runs[:, 1] + 1
        if int(lengths.sum()) != count or (runs.sum(axis=1) >= 1 << 16).any():
            raise ValueError("runs do not hold what their container says")
        return np.repeat(runs[:, 0] - (np.cumsum(lengths) - lengths), lengths) + np.arange(count)
