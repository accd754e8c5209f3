"""Records whose keys are all of one length are found by the bytes behind the keys: the same as by their own lengths."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats import hfile_blocks
from lakefmt._core.formats.hfile_blocks import KEY_TAIL, encode_few, encode_key_values, read_records
from lakefmt._core.formats.hfile_container import HFileReader, encode_hfile
from lakefmt.errors import CorruptFile, InvalidInputError

#: Values that look like what stands behind a key.
PARTS = st.sampled_from([b"", b"\xff" * 4, b"\xff" * 9, KEY_TAIL, KEY_TAIL[:-1], b"\0" * 12, b"abc"])
VALUES = st.lists(PARTS, max_size=4).map(b"".join)


def encoded(keys: list[bytes], values: list[bytes]) -> bytes:
    return bytes(encode_key_values(pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary())).data)


@st.composite
def records(draw: st.DrawFn) -> tuple[list[bytes], list[bytes]]:
    size = draw(st.integers(0, 20))
    keys = draw(st.lists(st.binary(min_size=size, max_size=size) | PARTS, min_size=1, max_size=12))
    return keys, [draw(VALUES) for _ in keys]


@given(records(), st.integers(0, 3))
def test_every_record_is_found(rows: tuple[list[bytes], list[bytes]], shift: int) -> None:
    keys, values = rows
    payload = memoryview(bytes(shift) + encoded(keys, values))[shift:]  # an uncompressed block begins anywhere
    block = read_records(payload, "f")
    assert (block.keys().to_pylist(), block.values().to_pylist()) == rows


@given(records())
def test_few_records_are_encoded_as_many_are(rows: tuple[list[bytes], list[bytes]]) -> None:
    few, many = encode_few(*rows), encode_key_values(*(pa.array(each, pa.large_binary()) for each in rows))
    assert bytes(few.data) == bytes(many.data)
    assert few.offsets.tolist() == many.offsets.tolist()
    assert (few.key_bytes, few.value_bytes) == (many.key_bytes, many.value_bytes)


@pytest.mark.parametrize("rows", [3, 300])
def test_keys_that_do_not_ascend_or_are_too_long_are_refused(rows: int) -> None:
    keys, values = [f"{row:05}".encode() for row in range(rows)], [b"v"] * rows
    assert HFileReader.from_bytes(encode_hfile(pa.array(keys), pa.array(values)), "f").read()["key"].to_pylist() == keys
    for wrong in ([*keys[1:], keys[0]], [keys[0], *keys[:-1]], [*keys[:-1], b"z" * (hfile_blocks.MAX_KEY_BYTES + 1)]):
        with pytest.raises(InvalidInputError):
            encode_hfile(pa.array(wrong), pa.array(values))


@given(records(), st.data())
def test_damaged_bytes_give_the_same_as_without_the_shortcut(
    rows: tuple[list[bytes], list[bytes]], data: st.DataObject
) -> None:
    payload = bytearray(encoded(*rows))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))

    def outcome() -> object:
        try:
            block = read_records(bytes(payload), "f")
        except CorruptFile:
            return CorruptFile
        return block.keys().to_pylist(), block.values().to_pylist()

    quick = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hfile_blocks, "_records_of_one_key_size", lambda _: None)
        assert outcome() == quick


def test_the_shortcut_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hfile_blocks, "_record_candidates", lambda _: pytest.fail("every byte was looked at"))
    keys = [f"key-{number:06d}".encode() for number in range(500)]
    values = [np.random.default_rng(number).bytes(50 + number % 7) for number in range(500)]
    assert read_records(encoded(keys, values), "f").keys().to_pylist() == keys
