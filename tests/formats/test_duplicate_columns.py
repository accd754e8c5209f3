"""A column stored byte for byte like the record keys is decoded once; one that only looks like it is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.filegroups import reader as module
from lakefmt._core.filegroups.merge import _shares_memory
from lakefmt._core.filegroups.model import BaseFile
from lakefmt._core.filegroups.reader import BaseFileReader
from lakefmt._core.formats.parquet import duplicate_columns
from lakefmt._core.formats.parquet.duplicate_columns import Span, are_within, find_duplicate_column
from lakefmt._core.storage.local import LocalStore
from lakefmt._core.values import RECORD_KEY, InstantTime
from tests.example_counts import examples
from tests.judges.compare import assert_same_multiset
from tests.judges.hudi_rs import HudiRsJudge

NAME = "f-0_0-0-0_20260101000000000.parquet"


@pytest.fixture(autouse=True)
def every_file_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of some rows stand for large ones."""
    monkeypatch.setattr(module, "_WORTH_COMPARING", 0)


def _stored(folder: Path, rows: pa.Table, groups: int = 1 << 20) -> BaseFile:
    pq.write_table(rows, folder / NAME, compression="none", use_dictionary=False, row_group_size=groups)
    return BaseFile("", NAME, "f-0", "", InstantTime("20260101000000000"), (folder / NAME).stat().st_size)


def _read(folder: Path, file: BaseFile, names: list[str]) -> pa.Table:
    return BaseFileReader(LocalStore(folder)).rows_and_footer(file, names, use_threads=False)[0]


def _keys(count: int) -> list[str]:
    return [f"key-{number:06}" for number in range(count)]


def test_the_second_copy_is_the_first_one(tmp_path: Path) -> None:
    rows = pa.table({"n": range(100), RECORD_KEY: _keys(100), "id": _keys(100)})
    found = _read(tmp_path, _stored(tmp_path, rows, groups=30), rows.column_names)
    assert found.select(rows.column_names).equals(rows)
    assert _shares_memory(found.column("id"), found.column(RECORD_KEY))
    assert not _shares_memory(found.column("n"), found.column(RECORD_KEY))


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 99), st.sampled_from(["k", "K", "x"]), st.integers(1, 100))
def test_a_column_that_differs_in_one_value_is_read(
    tmp_path_factory: pytest.TempPathFactory, row: int, letter: str, groups: int
) -> None:
    folder = tmp_path_factory.mktemp("twins")
    other = _keys(100)
    other[row] = letter + other[row][1:]
    rows = pa.table({RECORD_KEY: _keys(100), "id": other})
    file = _stored(folder, rows, groups)
    assert (
        find_duplicate_column(pq.read_metadata(folder / NAME), RECORD_KEY) is not None
    )  # its sizes and numbers are the same
    found = _read(folder, file, rows.column_names)
    assert found.select(rows.column_names).equals(rows)
    assert _shares_memory(found.column("id"), found.column(RECORD_KEY)) == (letter == "k")


@pytest.mark.parametrize(
    "other",
    [
        pa.array(_keys(9)).cast(pa.binary()),
        pa.array([[key] for key in _keys(9)]),
        pa.array([{RECORD_KEY: key} for key in _keys(9)]),
        pa.array([*_keys(8), None]),
    ],
    ids=["bytes", "in lists", "in structs", "a null"],
)
def test_other_kinds_of_columns_are_no_copies(tmp_path: Path, other: pa.Array) -> None:
    rows = pa.table({"other": other, RECORD_KEY: _keys(9)})
    file = _stored(tmp_path, rows)
    assert find_duplicate_column(pq.read_metadata(tmp_path / NAME), RECORD_KEY) is None
    assert _read(tmp_path, file, rows.column_names).equals(rows)
    assert find_duplicate_column(pq.read_metadata(tmp_path / NAME), "gone") is None


def test_a_required_column_has_other_bytes(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field(RECORD_KEY, pa.string())])
    rows = pa.table([_keys(9), _keys(9)], schema=schema)
    _stored(tmp_path, rows)
    assert find_duplicate_column(pq.read_metadata(tmp_path / NAME), RECORD_KEY) is None


def test_bytes_beyond_the_file_are_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({RECORD_KEY: _keys(9), "id": _keys(9)})
    file = _stored(tmp_path, rows)
    plain = duplicate_columns.find_duplicate_column

    def lying(metadata: pq.FileMetaData, name: str) -> object:
        found = plain(metadata, name)
        assert found is not None
        return found[0], [(replace(mine, size=1 << 60), theirs) for mine, theirs in found[1]]

    monkeypatch.setattr("lakefmt._core.filegroups.reader.find_duplicate_column", lying)
    found = _read(tmp_path, file, rows.column_names)
    assert found.equals(rows)
    assert not _shares_memory(found.column("id"), found.column(RECORD_KEY))
    assert [are_within([Span(*pair)], 9) for pair in ((0, 9), (-1, 3), (9, 1), (3, -1))] == [True, False, False, False]


def test_upserts_of_a_table_with_a_twin(tmp_path: Path, hudi_rs_judge: HudiRsJudge) -> None:
    table = lakefmt.create_table(
        str(tmp_path / "t"), schema=pa.schema([("id", pa.string()), ("v", pa.int64())]), record_key="id"
    )
    table.insert(pa.table({"id": _keys(50), "v": range(50)}))
    table.upsert(pa.table({"id": _keys(60)[40:], "v": range(100, 120)}))
    table.delete(_keys(1))
    found = table.read()
    expected = {key: n if n < 40 else 60 + n for n, key in enumerate(_keys(60)) if n}
    assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
    assert_same_multiset(hudi_rs_judge.snapshot(tmp_path / "t"), found, what="hudi-rs")


def test_a_column_that_only_happens_to_hold_the_keys_takes_other_values(tmp_path: Path) -> None:
    schema = pa.schema([("ref", pa.string()), ("id", pa.string())])
    table = lakefmt.create_table(str(tmp_path / "t"), schema=schema, record_key="id")
    table.insert(pa.table({"ref": _keys(9), "id": _keys(9)}))
    table.upsert(pa.table({"ref": ["other", "key-000005"], "id": ["key-000004", "key-000005"]}))
    wanted = dict(zip(_keys(9), _keys(9), strict=True)) | {"key-000004": "other"}
    found = table.read()
    assert dict(zip(found["id"].to_pylist(), found["ref"].to_pylist(), strict=True)) == wanted
