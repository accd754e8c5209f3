"""Payloads of large blocks are decompressed at once: the same bytes as by Python's zlib, and nothing that is damaged."""

from __future__ import annotations

import gzip
import random
import zlib

import pytest

from lakefmt._core.formats import hfile_blocks
from lakefmt._core.formats.hfile_blocks import HEADER_BYTES, BlockType, Codec, encode_hfile_block, read_payload
from lakefmt.errors import CorruptFile

PAYLOAD = b"".join(b"%024d-key" % (number * 7919 % 10**9) for number in range(20_000))


def block(stream: bytes, claimed: int = len(PAYLOAD)) -> memoryview:
    """Return a block with a compressed payload that was made elsewhere."""
    head = bytearray(encode_hfile_block(BlockType.DATA, b"", Codec.NONE, 1, -1)[:HEADER_BYTES])
    head[8:12] = len(stream).to_bytes(4, "big")
    head[12:16] = claimed.to_bytes(4, "big")
    head[29:33] = (HEADER_BYTES + len(stream)).to_bytes(4, "big")
    return memoryview(bytes(head) + stream)


def read(data: memoryview) -> bytes:
    return bytes(read_payload(data, BlockType.DATA, Codec.GZIP, "f.hfile"))


@pytest.mark.parametrize("level", [1, 6, 9])
def test_large_payloads_are_what_was_written(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = memoryview(encode_hfile_block(BlockType.DATA, PAYLOAD, Codec.GZIP, level, -1))
    other = block(gzip.compress(PAYLOAD, level))
    monkeypatch.setattr(zlib, "decompressobj", None)  # it is not asked
    assert read(data) == PAYLOAD
    assert read(other) == PAYLOAD


@pytest.mark.parametrize("at_once", [True, False])
def test_streams_of_another_size_or_form_are_refused(at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not at_once:
        monkeypatch.setattr(hfile_blocks, "_MOST_AT_ONCE", 0)
    stream, size = gzip.compress(PAYLOAD), len(PAYLOAD)
    half, rest = gzip.compress(PAYLOAD[: size // 2]), gzip.compress(PAYLOAD[size // 2 :])
    streams = [
        (stream, size + 1),
        (stream, size - 1),
        (stream + b"\0", size),
        (stream + stream, size),
        (half + rest, size),
        (stream[:-1], size),
        (stream[: len(stream) // 2], size),
        (half[:-4] + size.to_bytes(4, "little"), size),
        (half + size.to_bytes(4, "little"), size),
        (zlib.compress(PAYLOAD), size),
        (zlib.compress(PAYLOAD[:-9])[:-4] + size.to_bytes(4, "little"), size),
        (b"\x1f\x8b" + b"\0" * len(stream) + size.to_bytes(4, "little"), size),
    ]
    for data, claimed in streams:
        with pytest.raises(CorruptFile):
            read(block(data, claimed))


@pytest.mark.parametrize("at_once", [True, False])
def test_a_changed_bit_of_a_stream_is_noticed(at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not at_once:
        monkeypatch.setattr(hfile_blocks, "_MOST_AT_ONCE", 0)
    stream, dice = gzip.compress(PAYLOAD, mtime=0), random.Random(3)
    for place in [0, 1, 2, 3, *range(len(stream) - 8, len(stream)), *dice.sample(range(10, len(stream)), 40)]:
        changed = stream[:place] + bytes([stream[place] ^ 1 << dice.randrange(8)]) + stream[place + 1 :]
        try:
            got = read(block(changed))
        except CorruptFile:
            continue
        assert got == PAYLOAD


def test_a_large_claim_takes_no_memory_before_it_proves_true(monkeypatch: pytest.MonkeyPatch) -> None:
    def decompressed(*_: object, **__: object) -> bytes:
        raise AssertionError("memory for all that is claimed")

    monkeypatch.setattr(hfile_blocks.pa, "Codec", decompressed)
    stream, claimed = gzip.compress(b"\0" * (17 << 20)), (16 << 20) + 1
    with pytest.raises(CorruptFile, match="to the"):
        read(block(stream[:-4] + claimed.to_bytes(4, "little"), claimed))
