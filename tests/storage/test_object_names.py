"""Names: which may be used, which are hidden, and none that Hudi could take for one of its own."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.storage import LocalStore, MemoryStore
from lakefmt._core.storage.api import (
    TEMPORARY_PREFIX,
    as_bytes,
    directory_name,
    is_addressable,
    is_temporary,
    object_name,
    object_names,
)
from lakefmt.errors import InvalidInputError, UnsafePath
from lakefmt.testing.suites import ODD_NAMES, UNSAFE_NAMES

# The names of docs/format.md as wide as the engines read them.
HUDI_NAMES = [
    re.compile(r"(.+)_(\d+)-(\d+)-(\d+)_(\d+)(\.\w+)"),  # base file
    re.compile(r"\.(.+)_(.*)\.(log|archive)\.(\d+).*"),  # log file
    re.compile(r"(\d+)(_\d+)?(\.(\w+))(\.\D+)?"),  # instant
    re.compile(r"hoodie\.properties.*|\.hoodie_partition_metadata.*"),
    re.compile(r".+\.(parquet|orc|hfile|avro|properties|crc|marker\..*)"),
]


def temporary_names(tmp_path):
    local = LocalStore(tmp_path)
    for final in ("f_1-0-1_20260101000000000.parquet", ".hoodie/20260101000000000.commit", ".hoodie/hoodie.properties"):
        yield local._files.temporary_beside(f"{tmp_path}/{final}").rpartition("/")[2]
    memory = MemoryStore()
    memory.leave_temporary_object(".hoodie/hoodie.properties", b"")
    yield next(iter(memory._space.objects)).rpartition("/")[2]


def test_temporary_names_never_parse_as_names_of_hudi(tmp_path):
    names = list(temporary_names(tmp_path))
    assert len(set(names)) == 4
    for name in names:
        assert is_temporary(name)
        assert name.startswith(".")
        assert [grammar.pattern for grammar in HUDI_NAMES if grammar.fullmatch(name)] == []


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_names(name):
    assert object_name(name) == name
    assert is_addressable(name)


@pytest.mark.parametrize("name", UNSAFE_NAMES)
def test_unsafe_names_are_not(name):
    assert not is_addressable(name)
    with pytest.raises(UnsafePath):
        object_name(name)


@given(st.text(max_size=30))
def test_a_name_that_passes_stays_below_the_base(name):
    if not is_addressable(name):
        return
    parts = name.split("/")
    assert ".." not in parts
    assert "." not in parts
    assert not name.startswith("/")
    assert name.encode().decode() == name


@pytest.mark.parametrize(
    ("name", "temporary"),
    [
        (f"{TEMPORARY_PREFIX}x", True),
        (f"a/{TEMPORARY_PREFIX}x", True),
        (f"{TEMPORARY_PREFIX}x/a", False),
        (f"a{TEMPORARY_PREFIX}x", False),
        (f"{TEMPORARY_PREFIX}d/b{TEMPORARY_PREFIX}", False),
    ],
)
def test_only_the_last_part_makes_a_name_temporary(name, temporary):
    assert is_temporary(name) is temporary


def test_the_base_is_a_directory_and_no_object():
    assert directory_name("") == ""
    with pytest.raises(UnsafePath):
        object_name("")


def test_all_names_are_checked_before_one_is_used():
    with pytest.raises(UnsafePath):
        object_names(iter(["a", "../b"]))
    with pytest.raises(InvalidInputError):
        object_names("abc")


def test_bytes_are_not_copied_when_they_are_bytes():
    data = b"x" * 100
    assert as_bytes(data) is data
    assert as_bytes(bytearray(data)) == data
