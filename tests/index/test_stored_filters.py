"""Filters asked in their stored text answer as decoded ones do, whatever their type (spec 5.1, 6.3, 6.4)."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats.bloom_filter import DYNAMIC, BloomFilter, decode_bloom_filter
from lakefmt._core.formats.parquet.base_file import BLOOM_TYPE_KEY, BaseFileFooter
from lakefmt._core.formats.parquet.footers import BLOOM_KEY, LEGACY_BLOOM_KEY
from lakefmt._core.index.lookup import SharedHashes, StoredFilter, stored_filter
from lakefmt.errors import CorruptFile, LakefmtError, UnsupportedFeature

FORMATS = Path(__file__).resolve().parents[1] / "data" / "formats"
FOOTERS = json.loads((FORMATS / "bloom_footers.json").read_text("utf-8"))
SMALL = "/////wAAAAcBAAAAYKAgAEFgYERQhAKAGA=="


def asked(stored: StoredFilter, keys: pa.Array, rounds: int | None = None) -> list[bool]:
    return stored.contains(SharedHashes(keys, rounds), np.arange(len(keys))).tolist()


def footer(**entries: str) -> BaseFileFooter:
    return BaseFileFooter(1, pa.schema([]), entries)


def test_the_footers_at_hand_are_of_both_types() -> None:
    assert {row["type_code"] for row in FOOTERS} == {None, "DYNAMIC_V0"}


@pytest.mark.parametrize("row", FOOTERS, ids=lambda row: str(row["type_code"]))
@pytest.mark.parametrize("rounds", [None, 0, 1, 30, 64])
def test_real_footers_hold_their_keys(row: dict[str, object], rounds: int | None) -> None:
    text, code = str(row["text"]), row["type_code"]
    stored_keys = pa.array(row["keys"], pa.string())
    strangers = pa.array([f"{n}-сторонний" for n in range(2000)])
    entries = {BLOOM_KEY: text} if code is None else {BLOOM_KEY: text, BLOOM_TYPE_KEY: str(code)}
    stored = stored_filter(footer(**entries))
    assert stored is not None
    assert all(asked(stored, stored_keys, rounds))
    decoded = decode_bloom_filter(text, None if code is None else str(code))
    assert asked(stored, strangers, rounds) == decoded.contains(strangers).tolist()


keys = st.lists(st.text(alphabet="abé日\U0001f600", max_size=6), max_size=30)


@given(keys, keys, st.integers(1, 40), st.sampled_from([0.5, 0.1, 1e-3, 1e-9]), st.booleans(), st.integers(0, 40))
def test_a_stored_filter_answers_like_a_decoded_one(
    added: list[str], probes: list[str], planned: int, fpp: float, dynamic: bool, rounds: int
) -> None:
    bloom = BloomFilter.sized(planned, fpp, 200) if dynamic else BloomFilter.simple(planned, fpp)
    bloom.add(pa.array(added, pa.string()))
    probed = pa.array([*probes, *added], pa.string())
    stored = StoredFilter(bloom.encode(), bloom.type_code)
    assert asked(stored, probed, rounds) == bloom.contains(probed).tolist()


def test_some_rows_are_asked_and_answered_in_their_order() -> None:
    bloom = BloomFilter.sized(1000, 1e-9)
    bloom.add(pa.array([f"k{n}" for n in range(500)]))
    wanted = SharedHashes(pa.array([f"k{n}" for n in range(1000)]))
    rows = np.array([999, 3, 500, 499])
    assert StoredFilter(bloom.encode(), DYNAMIC).contains(wanted, rows).tolist() == [False, True, False, True]


def test_more_keys_than_are_asked_at_a_time() -> None:
    bloom = BloomFilter.sized(1000, 1e-9)
    bloom.add(pa.array(["one"]))
    probes = pa.array(["one", *(f"x{n}" for n in range(70_000)), "one"])
    found = StoredFilter(bloom.encode(), DYNAMIC).contains(SharedHashes(probes), np.arange(len(probes)))
    assert np.flatnonzero(found).tolist() == [0, len(probes) - 1]


def test_a_filter_of_very_many_rows_is_decoded() -> None:
    bloom = BloomFilter.sized(1, 0.1, 200)
    bloom.add(pa.array([f"k{n}" for n in range(200)]))
    assert bloom.rows > 64
    assert all(asked(StoredFilter(bloom.encode(), DYNAMIC), pa.array([f"k{n}" for n in range(200)])))


def test_the_entry_of_hudis_forerunner_is_found() -> None:
    stored = stored_filter(footer(**{LEGACY_BLOOM_KEY: SMALL}))
    assert stored is not None
    assert asked(stored, pa.array(["a", "日本", "é", "e"])) == [True, True, True, False]


def test_no_entry_is_no_filter() -> None:
    assert stored_filter(footer()) is None


@pytest.mark.parametrize(
    ("text", "code", "error"),
    [
        ("", None, CorruptFile),
        ("AAAA", None, CorruptFile),
        (SMALL[:-4], None, CorruptFile),
        (SMALL + "AAAA", None, CorruptFile),
        (SMALL, "DYNAMIC_V0", CorruptFile),
        (SMALL, "DYNAMIC_V9", UnsupportedFeature),
        ("é" + SMALL[1:], None, CorruptFile),
        ("AAAAAwAAAAcBAAAAYKAgAEFgYERQhAKAGA==", None, UnsupportedFeature),
    ],
)
def test_damaged_texts_are_refused_as_the_decoder_refuses_them(
    text: str, code: str | None, error: type[LakefmtError]
) -> None:
    with pytest.raises(error):
        decode_bloom_filter(text, code)
    with pytest.raises(error):
        StoredFilter(text, code)


def test_a_character_that_is_no_base64_is_seen_where_it_is_looked_at() -> None:
    head = len(base64.b64encode(bytes(15)))
    stored = StoredFilter(SMALL[:head] + "*" * (len(SMALL) - head - 2) + "==")
    with pytest.raises(CorruptFile, match="Base64"):
        asked(stored, pa.array(["a"]))


@given(st.binary(max_size=80), st.sampled_from([None, "SIMPLE", "DYNAMIC_V0"]))
def test_any_bytes_are_a_filter_or_a_typed_error(data: bytes, code: str | None) -> None:
    text = base64.b64encode(b"\xff\xff\xff\xff\0\0\0\7\1" + data).decode()
    probes = pa.array(["a", "é"])
    try:
        expected = decode_bloom_filter(text, code).contains(probes).tolist()
    except LakefmtError as error:
        with pytest.raises(type(error)):
            StoredFilter(text, code)
    else:
        assert asked(StoredFilter(text, code), probes) == expected
