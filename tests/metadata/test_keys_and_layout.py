"""Keys and names of the metadata table: vectors from tables that Spark wrote, and Java's hash for any text."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.metadata.layout import (
    bloom_filter_key,
    check_file_groups,
    column_key,
    column_stats_key,
    escape_partition,
    file_group_numbers,
    file_id_of,
    initial_instant,
    log_file_name,
    parse_metadata_file,
    partition_key,
    partition_stats_key,
    secondary_index_keys,
    xxhash64,
)
from lakefmt._core.schema.java_text import java_hashes
from lakefmt._core.values import TableVersion
from lakefmt.errors import CorruptFile

NAME = "c7bbe63e-fa43-40ba-94a9-03158165edc6-0_1-27-53_20260307162434124.parquet"


def java_hash(text: str) -> int:
    """Java's String.hashCode, one UTF-16 unit after the other."""
    raw, value = text.encode("utf-16-le"), 0
    for at in range(0, len(raw), 2):
        value = (31 * value + int.from_bytes(raw[at : at + 2], "little")) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=30), st.integers(0, 5))
def test_the_hash_of_every_text_is_javas(texts: list[str], skipped: int) -> None:
    array = pa.array(texts, pa.string())[skipped:]
    assert java_hashes(array).tolist() == [java_hash(text) for text in texts[skipped:]]


@pytest.mark.parametrize(
    ("key", "number"), [("TXN-009", 0), ("TXN-008", 1), ("Amazon$", 6), ("19743$", 0), ("\0$", 6), ("", 0)]
)
def test_the_file_group_of_a_key(key: str, number: int) -> None:
    assert file_group_numbers(pa.array([key]), 10).tolist() == [number]


def test_the_smallest_int_keeps_its_sign_as_in_java() -> None:
    text = "polygenelubricants"
    assert java_hash(text) == -(1 << 31)
    assert file_group_numbers(pa.array([text]), 10).tolist() == [8]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("currency", "/m6lxu4Dh5w="),
        ("txn_id", "RXObmOuurgM="),
        ("_hoodie_record_key", "uSJGdDiVr/k="),
        ("region=us", "431THTTwO5Q="),
        ("region=eu", "bOOVnCDQlm8="),
        ("city=chennai", "qWIoUqdwX74="),
    ],
)
def test_keys_of_names(name: str, key: str) -> None:
    assert column_key(name) == partition_key(name) == key


def test_xxhash64_of_every_length_around_its_blocks() -> None:
    # Vectors of the reference implementation with seed 0.
    assert xxhash64(b"a", 0) == 0xD24EC4F1A98C6E5B
    assert xxhash64(b"abc", 0) == 0x44BC2CF5AD770999
    assert xxhash64(b"Nobody inspects the spammish repetition", 0) == 0xFBCEA83C8A378BF1


def test_keys_are_made_of_parts() -> None:
    md5 = "W7RhzS2IFnrW7FlqIkFJUw=="
    assert column_stats_key("currency", "region=us", NAME) == f"/m6lxu4Dh5w=431THTTwO5Q={md5}"
    assert partition_stats_key("currency", "") == "/m6lxu4Dh5w=FXThHwelITM="
    assert bloom_filter_key("region=us", NAME) == f"431THTTwO5Q={md5}"


def test_secondary_index_keys_are_escaped() -> None:
    values = pa.array(["a$b", "c\\d", "\0", None, "", "é"])
    keys = pa.array(["k$", "k\\", "k\0", "k", "", "ü"])
    assert secondary_index_keys(values, keys).to_pylist() == [
        "a\\$b$k\\$",
        "c\\\\d$k\\\\",
        "\\\0$k\\\0",
        "\0$k",
        "$",
        "é$ü",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "files-0000-0_0-5-4_00000000000000000.hfile",
        ".files-0000-0_20260307162434124.log.1_3-34-96",
        ".record-index-asia%2F東京-0000-0_20261121082223938.log.1_0-0-0",
        "record-index-0000-0_3-143-1038_20261121075540537001.hfile",
    ],
)
def test_names_of_files_are_parsed(name: str) -> None:
    found = parse_metadata_file(name)
    assert found is not None
    if found.version is not None:
        assert log_file_name(found.file_id, found.instant, found.version, found.write_token) == name


@pytest.mark.parametrize(
    "name",
    [
        "..files-0000-0_00000000000000000.log.1_0-0-0.crc",
        "..files-0000-0_00000000000000000.log.1_0-0-0",
        ".hoodie_partition_metadata",
        "files-0000-0_0-5-4_00000000000000000.parquet",
        "a/files-0000-0_0-5-4_00000000000000000.hfile",
        ".files-0000-0_1.log.1_0-0-0",
    ],
)
def test_other_files_are_none_of_the_metadata_table(name: str) -> None:
    assert parse_metadata_file(name) is None


def test_file_groups_are_complete_or_refused() -> None:
    ids = [file_id_of("record_index", number) for number in (1, 0, 2)]
    assert check_file_groups("record_index", ids) == {None: sorted(ids)}
    with pytest.raises(CorruptFile, match="record-index-0001-0"):
        check_file_groups("record_index", [ids[1], ids[2]])
    with pytest.raises(CorruptFile, match="none of its file groups"):
        check_file_groups("files", [".files-0000-0"])


def test_a_partitioned_record_index_has_runs_of_file_groups() -> None:
    ids = [file_id_of("record_index", number, path) for path in ("asia/tokyo", "2024-01-01") for number in (0, 1)]
    assert check_file_groups("record_index", ids) == {"2024%2D01%2D01": ids[2:], "asia%2Ftokyo": ids[:2]}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_escaped_partitions_have_no_dash_and_no_underscore(path: str) -> None:
    assert not {"-", "_", "/"} & set(escape_partition(path))


def test_initial_instants() -> None:
    assert [initial_instant(n, TableVersion.NINE) for n in (0, 1)] == ["00000000000000000", "00000000000000001"]
    assert initial_instant(3, TableVersion.SIX) == "00000000000000013"
    assert initial_instant(0, TableVersion.SIX, "20260307162434124") == "20260307162434124010"
