"""Bodies: packed bytes are unpacked however they come, and those that are cut off are refused, wherever (T8)."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest

from lakefmt._core.loads.bodies import unpacked
from lakefmt._core.loads.protocol import Refusal

ROWS = b"".join(b"%d,x\n" % number for number in range(40))


def _bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def _packed_by(codec: str) -> Callable[[bytes], bytes]:
    return lambda data: bytes(pa.Codec(codec).compress(data, asbytes=True))


PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "bz2": ("bz2", bz2.compress),
    "lz4": ("lz4", _packed_by("lz4")),
    "zstd": ("zstd", _packed_by("zstd")),
    "deflate": ("deflate", zlib.compress),
    "deflate without its header": ("deflate", _bare),
    "nothing": ("", bytes),
}


class Pieces:
    """A body of which so many bytes come at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._file, self._size = io.BytesIO(data), size

    def read(self, size: int, /) -> bytes:
        return self._file.read(min(size, self._size))


@pytest.mark.parametrize("how", list(PACKERS))
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_t8_a_body_is_unpacked_however_it_comes(how: str, size: int) -> None:
    compression, pack = PACKERS[how]
    assert b"".join(unpacked(Pieces(pack(ROWS), size), compression, 1 << 20)) == ROWS


@pytest.mark.parametrize("how", [how for how in PACKERS if how != "nothing"])
def test_t8_a_body_that_is_cut_off_is_refused_wherever(how: str) -> None:
    compression, pack = PACKERS[how]
    packed = pack(ROWS)
    for end in range(1, len(packed)):
        with pytest.raises(Refusal):
            list(unpacked(Pieces(packed[:end], 7), compression, 1 << 20))
