"""Record positions: Java's bitmaps both ways, and damage."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats.log_data_block import decode_positions, encode_positions
from lakefmt.errors import CorruptFile, InvalidInputError

JAVA = json.loads((Path(__file__).parents[1] / "data/formats/log/java.json").read_text("utf-8"))["positions"]
MIXED = [range(5), range(70000, 90000, 3), range(200000, 200004), [300000, 400000]]


def positions_of(entry: dict[str, str]) -> np.ndarray:
    if entry["set"] == "mixed":
        return np.concatenate([np.array(part) for part in MIXED])
    return np.arange(*map(int, entry["set"].split(",")))


@pytest.mark.parametrize("entry", JAVA, ids=lambda entry: entry["set"])
def test_the_texts_are_javas(entry):
    positions = positions_of(entry)
    text = encode_positions(positions)
    assert text == entry.get("text", text)
    assert hashlib.sha256(text.encode()).hexdigest() == entry.get("sha256", hashlib.sha256(text.encode()).hexdigest())
    assert decode_positions(text, len(positions)).tolist() == positions.tolist()


SETS = st.sets(st.integers(0, 300) | st.integers(65_000, 66_000) | st.integers(0, (1 << 40)), max_size=80)


@given(SETS, st.integers(0, 70_000), st.integers(1, 70_000), st.integers(1, 40))
def test_any_set_comes_back(numbers, start, length, step):
    positions = np.array(sorted(numbers | set(range(start, start + length, step))), np.int64)
    assert np.array_equal(decode_positions(encode_positions(positions), len(positions)), positions)


@pytest.mark.parametrize("positions", [[1, 1], [2, 1], [-1, 3], [1 << 62]])
def test_what_is_no_ascending_set_is_refused(positions):
    with pytest.raises(InvalidInputError, match="ascend"):
        encode_positions(np.array(positions))


SMALL = base64.b64decode(encode_positions(np.array([1, 5, 9, 70000, 1 << 33])))
RUNS = base64.b64decode(encode_positions(np.arange(10, 500)))


@pytest.mark.parametrize("data", [SMALL, RUNS], ids=["arrays", "runs"])
def test_a_text_cut_anywhere_is_refused(data):
    for cut in range(len(data)):
        with pytest.raises(CorruptFile, match=r"a\.log: damaged record positions"):
            decode_positions(base64.b64encode(data[:cut]).decode(), 1000, "a.log")


@given(st.sampled_from([SMALL, RUNS]), st.data())
def test_any_changed_byte_is_a_set_or_refused(data, draw):
    changed = bytearray(data)
    changed[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    try:
        found = decode_positions(base64.b64encode(changed).decode(), 1000)
    except CorruptFile:
        return
    assert len(found) <= 1000
    assert (np.diff(found) > 0).all()


@given(st.binary(max_size=60))
def test_any_bytes_are_a_set_or_refused(data):
    try:
        found = decode_positions(base64.b64encode(data).decode(), 100)
    except CorruptFile:
        return
    assert len(found) <= 100


@pytest.mark.parametrize("text", ["AQ", "not base64!", "ä", "AQAAAAAAAAA="])
def test_what_is_no_text_of_positions_is_refused(text):
    with pytest.raises(CorruptFile, match="damaged record positions"):
        decode_positions(text, 10)


def test_a_run_of_more_positions_than_records_is_refused_before_it_is_made():
    with pytest.raises(CorruptFile, match="more positions than records"):
        decode_positions(encode_positions(np.arange(1_000_000)), 999_999)
