"""The records of a small block, found one by one: the same as those that are found in all bytes together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.formats import hfile_blocks, hfile_container
from lakefmt._core.formats.hfile_blocks import Prefixes, encode_key_values, read_records
from lakefmt._core.formats.hfile_container import HFileOptions, HFileReader, encode_hfile, find_few_records
from lakefmt.errors import CorruptFile, UnsupportedFeature
from tests.formats.hfile.hfile_parts import KEYS, VALUES, numbered, table_of

PAIRS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=34)


def payload_of(pairs: dict[bytes, bytes]) -> bytes:
    keys, values = (pa.array(each, pa.large_binary()) for each in (pairs.keys(), pairs.values()))
    return bytes(encode_key_values(keys, values).data)


@given(PAIRS)
def test_every_record_is_found(pairs: dict[bytes, bytes]) -> None:
    few = find_few_records(memoryview(payload_of(pairs)))
    assert (few is None) == (len(pairs) > 32)
    if few is not None:
        assert few.keys().to_pylist() == list(pairs)
        assert few.values().to_pylist() == list(pairs.values())


@given(PAIRS, st.lists(st.binary(max_size=3) | KEYS, max_size=4), st.data())
def test_the_same_records_are_chosen(pairs: dict[bytes, bytes], texts: list[bytes], data: st.DataObject) -> None:
    few, many = find_few_records(payload_of(pairs)), read_records(payload_of(pairs), "f")
    if few is None:
        return
    asked = pa.array([*texts, None], pa.binary())
    rows = few.rows_beginning(Prefixes(asked))
    assert rows.tolist() == many.rows_beginning(Prefixes(asked)).tolist()
    assert rows.tolist() == [n for n, key in enumerate(pairs) if any(key.startswith(text) for text in texts)]
    some = pa.array(data.draw(st.lists(st.sampled_from(sorted(pairs)) | KEYS, max_size=4)), pa.binary())
    assert few.rows_of(some).tolist() == many.rows_of(some).tolist()
    assert few.keys(rows).equals(many.keys(rows))
    assert few.values(rows).equals(many.values(rows))


@given(PAIRS, st.data())
def test_damaged_bytes_give_the_same_or_are_left_to_the_other_way(
    pairs: dict[bytes, bytes], data: st.DataObject
) -> None:
    payload = bytearray(payload_of(pairs))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(payload[: data.draw(st.integers(1, len(payload)))])
    few = find_few_records(damaged)
    if few is not None:
        many = read_records(damaged, "f")
        assert (list(few.all_keys), list(few.all_values)) == (many.keys().to_pylist(), many.values().to_pylist())


def test_a_look_into_a_small_file_looks_at_no_bytes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_hfile(*numbered(30).columns)
    monkeypatch.setattr(hfile_container, "read_records", lambda *_: pytest.fail("all bytes were looked at together"))
    monkeypatch.setattr(hfile_container, "read_file_info", lambda *_: pytest.fail("the file info was decoded"))
    opened = HFileReader.from_bytes(data, "f")
    assert opened.read().equals(numbered(30))
    assert opened.lookup_prefixes(pa.array([b"key-0000001"])).num_rows == 10
    assert opened.lookup(pa.array([b"key-00000003x", b"key"])).num_rows == 0


@pytest.mark.parametrize("rows", [1, 40])
def test_records_with_versions_are_refused(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The byte behind each value is their version, and the file info says the largest one."""
    table = numbered(rows)
    plain = encode_hfile(*table.columns, HFileOptions(compression="none"))
    monkeypatch.setattr(hfile_container, "read_file_info", lambda *_: {"MAX_MEMSTORE_TS_KEY": bytes(7) + b"\1"})
    payload = payload_of(dict(zip(*(column.to_pylist() for column in table.columns), strict=True)))
    assert payload in plain
    versioned = plain.replace(payload, payload[:-1] + b"\1")
    opened = HFileReader.from_bytes(versioned, "f")
    with pytest.raises(UnsupportedFeature, match="have versions"):
        opened.read()


def test_a_damaged_file_info_is_said_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(encode_hfile(*table_of({b"a": b"1"}).columns, HFileOptions(compression="none")))
    data[data.index(b"PBUF")] = 0
    opened = HFileReader.from_bytes(bytes(data), "f")
    assert opened.read().num_rows == 1
    with pytest.raises(CorruptFile, match="PBUF"):
        _ = opened.last_key


def test_many_records_are_not_gone_through_one_by_one() -> None:
    many = {b"key-%05d" % number: bytes([number % 7]) * (number % 9) for number in range(33)}
    assert find_few_records(payload_of(many)) is None
    assert read_records(payload_of(many), "f").num_rows == 33
    assert np.array_equal(hfile_blocks.read_records(payload_of(many), "f").rows_of(pa.array([b"key-00007"])), [7])
