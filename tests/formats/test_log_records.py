"""Where the records of a large block begin: looked for from many places at once, and never found wrongly."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefmt._core.formats import log_blocks
from lakefmt._core.formats.log_blocks import record_spans
from lakefmt.errors import CorruptFile
from tests.example_counts import examples

COUNT = 5000


def pack(records: list[bytes]) -> bytes:
    return struct.pack(">ii", 3, len(records)) + b"".join(struct.pack(">i", len(one)) + one for one in records)


def records_of(seed: int, lead: bytes) -> list[bytes]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 60, COUNT)
    data = rng.bytes(int(sizes.sum()))
    ends = np.cumsum(sizes)
    return [lead + data[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def expected(records: list[bytes]) -> tuple[list[int], list[int]]:
    ends = np.cumsum([len(one) + 4 for one in records]) + 8
    return [int(end) - len(one) for end, one in zip(ends, records, strict=True)], ends.tolist()


def one_by_one(content: bytes) -> np.ndarray:
    return log_blocks._spans_one_by_one(content, COUNT, "a.log")


@pytest.mark.parametrize("lead", [b"\x02\x2220261121083512609", b"", b"\0"], ids=["a commit time", "none", "a zero"])
@pytest.mark.parametrize("view", [bytes, memoryview])
def test_all_records_are_found(lead, view):
    records = records_of(1, lead)
    starts, ends = record_spans(view(pack(records)), "a.log")
    assert (starts.tolist(), ends.tolist()) == expected(records)


def test_lanes_are_used_and_agree():
    content = pack(records_of(2, b"\x02\x2220261121083512609"))
    found = log_blocks._spans_by_lanes(content, COUNT)
    assert found is not None
    assert found.tolist() == one_by_one(content).tolist()
    assert len(log_blocks._guessed_starts(content, 50)) == 50


def test_records_that_look_like_several_mislead_nobody():
    """Each record holds what looks like the beginning of another one."""
    lead = b"\x02\x2220261121083512609"
    records = [lead + struct.pack(">i", 21) + lead + b"x" * (number % 7) for number in range(COUNT)]
    starts, ends = record_spans(pack(records), "a.log")
    assert (starts.tolist(), ends.tolist()) == expected(records)


CONTENT = pack(records_of(3, b"\x02\x2220261121083512609"))
STARTS = one_by_one(CONTENT)


@settings(max_examples=examples(30))
@given(st.integers(0, COUNT - 1), st.integers(0, 3), st.integers(1, 255))
def test_a_changed_length_is_refused_as_it_is_one_by_one(number, at, change):
    damaged = bytearray(CONTENT)
    damaged[int(STARTS[number]) - 4 + at] ^= change
    for read in (lambda: record_spans(bytes(damaged), "a.log"), lambda: one_by_one(bytes(damaged))):
        with pytest.raises(CorruptFile, match=r"a\.log"):
            read()


@pytest.mark.parametrize("cut", [9, 12, 1000, len(CONTENT) // 2, len(CONTENT) - 1])
def test_a_large_content_cut_short_is_refused(cut):
    with pytest.raises(CorruptFile, match=r"a\.log"):
        record_spans(CONTENT[:cut], "a.log")


def test_a_count_that_is_wrong_is_refused():
    for count in (COUNT - 1, COUNT + 1):
        with pytest.raises(CorruptFile, match=r"a\.log"):
            record_spans(CONTENT[:4] + struct.pack(">i", count) + CONTENT[8:], "a.log")
