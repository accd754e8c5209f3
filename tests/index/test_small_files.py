"""Keys of many small files are compared together: the answer is that of asking each file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.index import lookup, open_index
from lakefmt._core.index.api import IndexKeys
from lakefmt._core.index.key_reader import KeyFiles
from lakefmt._core.index.lookup import match_small_files

KEYS = st.sampled_from(["", "a", "b", "é", "k1", "k2", "k3", "key-4", "key-5"])


@st.composite
def look_ups(draw: st.DrawFn) -> tuple[list[str], list[list[int]], list[int], list[list[str]]]:
    """Return keys, the rows of each partition, the partition of each file and the keys of each file."""
    wanted = draw(st.lists(KEYS, min_size=1, max_size=8))
    partitions = draw(st.integers(1, 3))
    of_rows = draw(st.lists(st.integers(0, partitions - 1), min_size=len(wanted), max_size=len(wanted)))
    rows = [[row for row, partition in enumerate(of_rows) if partition == number] for number in range(partitions)]
    files = draw(
        st.lists(st.tuples(st.integers(0, partitions - 1), st.lists(KEYS, max_size=6)), min_size=1, max_size=6)
    )
    return wanted, rows, [partition for partition, _ in files], [keys for _, keys in files]


@given(look_ups(), st.integers(1, 3))
def test_every_row_finds_its_key_in_the_files_of_its_partition(look_up, chunk) -> None:
    wanted, rows, partitions, stored = look_up
    arrays = [np.array(each, np.int64) for each in rows]
    files = [
        pa.chunked_array([keys[at : at + chunk] for at in range(0, len(keys), chunk)], pa.string()) for keys in stored
    ]
    answer = match_small_files(pa.array(wanted, pa.string()), [arrays[partition] for partition in partitions], files)
    asked = [wanted[row] for partition in sorted(set(partitions)) for row in rows[partition]]
    if len(set(asked)) < len(asked):
        assert answer is None
        return
    assert answer is not None
    for partition, keys, (found, places) in zip(partitions, stored, answer, strict=True):
        expected = {row: keys.index(wanted[row]) for row in rows[partition] if wanted[row] in keys}
        expected = {row: at if keys.count(wanted[row]) == 1 else -1 for row, at in expected.items()}
        assert dict(zip(found.tolist(), places.tolist(), strict=True)) == expected
        assert len(found) == len(expected)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> lakefmt.Table:
    path: Path = tmp_path_factory.mktemp("small") / "t"
    data = pa.table({"id": [f"k{number}" for number in range(400)], "part": [f"p{n % 40:02d}" for n in range(400)]})
    made = lakefmt.create_table(
        str(path), data=data, record_key="id", partition_by="part", options={"lakefmt.durability": "none"}
    )
    made.insert(data)
    return made


def wanted(pairs: list[tuple[str, str]]) -> IndexKeys:
    return IndexKeys(
        pa.array([key for key, _ in pairs], pa.string()),
        pa.array([f"part={part}" for _, part in pairs]).dictionary_encode(),
    )


@pytest.mark.parametrize("index", ["bloom", "simple"])
def test_a_look_up_into_small_files_is_one_into_each(
    table: lakefmt.Table, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = table.file_groups()
    assert len(slices) == 40
    # Keys that are there, strangers, and keys of other partitions.
    pairs = [(f"k{n}", f"p{n % 40:02d}") for n in range(0, 400, 3)]
    pairs += [(f"x{n}", f"p{n:02d}") for n in range(40)] + [(f"k{n + 1}", f"p{n:02d}") for n in range(0, 40, 6)]
    keys = wanted(pairs)
    together = open_index(index).locate(keys, slices, KeyFiles(table.client.store, kept_key_bytes=1 << 20))
    names = [step.name for step in together.steps]
    assert names[:2] == ["considered", "small, compared at once"]
    assert [step.files for step in together.steps if step.name in ("considered", "opened")] == [40, 40]
    monkeypatch.setattr(lookup, "_MANY_SMALL", 1000)
    alone = open_index(index).locate(keys, slices, KeyFiles(table.client.store, kept_key_bytes=1 << 20))
    assert "small, compared at once" not in [step.name for step in alone.steps]
    assert alone.positions is not None
    assert together.positions is not None
    for one, other in ((together.rows, alone.rows), (together.slices, alone.slices)):
        assert one.tolist() == other.tolist()
    assert together.positions.tolist() == alone.positions.tolist()
    assert len(together.rows) == len(range(0, 400, 3))


def test_a_key_for_two_partitions_is_looked_for_in_each(table: lakefmt.Table) -> None:
    pairs = [(f"k{n}", f"p{n:02d}") for n in range(40)] + [("k0", "p01"), ("k1", "p00")]
    found = open_index("bloom").locate(
        wanted(pairs), table.file_groups(), KeyFiles(table.client.store, kept_key_bytes=1 << 20)
    )
    assert found.rows.tolist() == list(range(40))
