"""Which row goes to which file: nothing lost, nothing doubled, small files first."""

from __future__ import annotations

from itertools import count

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakefmt._core.filegroups.model import BaseFile, FileSlice
from lakefmt._core.index.api import Located
from lakefmt._core.values import FileId, InstantTime, PartitionPath
from lakefmt._core.write.assign import FileSizing, Routes, assign_rows

R = InstantTime("20260101000000000")


def _slices(sizes: list[tuple[str, int]]) -> list[FileSlice]:
    return [
        FileSlice(
            PartitionPath(p),
            FileId(f"g{n}"),
            R,
            BaseFile(PartitionPath(p), f"g{n}_x", FileId(f"g{n}"), "0-0-0", R, size),
        )
        for n, (p, size) in enumerate(sizes)
    ]


def _ids():  # type: ignore[no-untyped-def]
    numbers = count()
    return lambda: f"new{next(numbers)}"


rows = st.lists(st.sampled_from(["p", "q"]), max_size=40)
groups = st.lists(st.tuples(st.sampled_from(["p", "q"]), st.integers(0, 100)), max_size=4)


@given(rows, groups, st.data())
def test_every_row_is_routed_where_its_key_lives_or_once(places: list[str], sizes: list[tuple[str, int]], data) -> None:  # type: ignore[no-untyped-def]
    slices = _slices(sizes)
    pairs = []
    for row, place in enumerate(places):
        homes = [n for n, (p, _) in enumerate(sizes) if p == place]
        pairs += [(row, n) for n in data.draw(st.sets(st.sampled_from(homes), max_size=2) if homes else st.just(set()))]
    located = Located(np.array([r for r, _ in pairs], np.int64), np.array([n for _, n in pairs], np.int64))
    sizing = FileSizing(max_bytes=100, small_bytes=50, record_bytes=7.0)
    assigned = assign_rows(
        pa.array(places, pa.string()).dictionary_encode(), Routes(located), slices, sizing, R, _ids()
    )
    routed = sorted((row, a.assignment.file_id) for a in assigned for row in a.rows.tolist())
    known = {row for row, _ in pairs}
    assert [r for r, _ in routed if r not in known] == [r for r in range(len(places)) if r not in known]
    assert {(r, f) for r, f in routed if r in known} == {(r, f"g{n}") for r, n in pairs}
    for a in assigned:
        assert all(places[row] == a.assignment.partition for row in a.rows.tolist())
        assert a.assignment.num_rows == len(a.rows)
        if a.assignment.base is None:
            assert len(a.rows) <= sizing.rows_per_file
    names = [a.assignment.path for a in assigned]
    assert len(names) == len(set(names))


def test_small_files_are_filled_smallest_first_and_only_to_their_room() -> None:
    slices = _slices([("p", 40), ("p", 10), ("p", 60), ("q", 0)])
    places = pa.array(["p"] * 30).dictionary_encode()
    assigned = assign_rows(places, Routes(None), slices, FileSizing(100, 50, 10.0), R, _ids())
    by_file = {a.assignment.file_id: len(a.rows) for a in assigned}
    assert by_file == {"g0": 6, "g1": 9, "new0-0": 10, "new1-0": 5}
    assert all(not a.assignment.match_keys for a in assigned), "plain inserts never replace stored rows"


def test_filling_can_be_switched_off() -> None:
    assigned = assign_rows(
        pa.array(["p"] * 3).dictionary_encode(), Routes(None), _slices([("p", 1)]), FileSizing(100, 0, 10.0), R, _ids()
    )
    assert [a.assignment.base for a in assigned] == [None]


def test_row_numbers_and_names_are_the_same_in_every_run() -> None:
    places = pa.array(["q", "p", "q"]).dictionary_encode()
    one, two = (assign_rows(places, Routes(None), [], FileSizing(100, 0, 1.0), R, _ids()) for _ in range(2))
    assert [(a.assignment, a.rows.tolist()) for a in one] == [(a.assignment, a.rows.tolist()) for a in two]
